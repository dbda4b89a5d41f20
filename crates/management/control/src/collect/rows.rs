//! What was counted, in the words of the analytics.

use super::machine::Seen;
use crate::levels::Content;
use forebay_analytics::{Dimension, Layer, Noun, Row, Value};
use forebay_base::Id;
use forebay_pool::{Cause, DisksSecond, LedgerSecond, PoolStatus, State, Task, VolumeInfo, VolumeSecond};
use forebay_target::{ClientFacts, Operation, Protocol};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A volume as its rows name it.
pub struct Volume {
    name: Arc<str>,
    project: Option<Arc<str>>,
    level: Id,
}

impl Volume {
    pub fn of(volume: &VolumeInfo) -> Volume {
        let of_pool = |name: &String| format!("{}/{name}", volume.pool).into();
        Volume {
            name: of_pool(&volume.name),
            project: volume.project.as_ref().map(of_pool),
            level: volume.level,
        }
    }
}

/// Who is called what.
pub struct Names<'a> {
    pub volumes: &'a BTreeMap<Id, Volume>,
    pub levels: Arc<Content>,
    /// The host of an initiator.
    pub host: &'a dyn Fn(&str) -> Option<String>,
}

impl Names<'_> {
    /// The name of a level, unless that is none.
    fn level(&self, id: Id) -> Option<Arc<str>> {
        (id != Id(0)).then(|| self.levels.name_of(id).unwrap_or_else(|| id.to_string()).into())
    }

    /// What rows of a volume have. One that has just gone, or come, has its number.
    fn labels(&self, id: Id) -> Vec<(Dimension, Arc<str>)> {
        let known = self.volumes.get(&id);
        let name = known.map_or_else(|| id.to_string().into(), |volume| volume.name.clone());
        let mut labels = vec![(Dimension::Volume, name)];
        labels.extend(known.and_then(|volume| volume.project.clone()).map(|name| (Dimension::Project, name)));
        labels.extend(known.and_then(|volume| self.level(volume.level)).map(|name| (Dimension::Level, name)));
        labels
    }
}

pub struct Rows<'a> {
    names: &'a Names<'a>,
    rows: Vec<Row>,
}

fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::Flush => "flush",
        Operation::Discard => "discard",
        Operation::Other => "other",
    }
}

impl<'a> Rows<'a> {
    pub fn new(names: &'a Names<'a>) -> Rows<'a> {
        Rows { names, rows: Vec::new() }
    }

    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    fn add(
        &mut self,
        layer: Layer,
        labels: impl IntoIterator<Item = (Dimension, Arc<str>)>,
        values: impl IntoIterator<Item = (Noun, Value)>,
    ) {
        let mut labels: Vec<_> = labels.into_iter().collect();
        labels.sort();
        self.rows.push(Row { layer, labels, values: values.into_iter().collect() });
    }

    /// What a client did with a volume.
    pub fn client(&mut self, one: ClientFacts) {
        let (layer, client) = match one.protocol {
            Protocol::Nbd => (Layer::Nbd, one.client),
            Protocol::Iscsi => (Layer::Iscsi, (self.names.host)(&one.client).unwrap_or(one.client)),
        };
        let mut labels = self.names.labels(one.volume);
        labels.push((Dimension::Client, client.into()));
        if one.failed > 0 {
            self.add(layer, labels.clone(), [(Noun::Failed, Value::Count(one.failed))]);
        }
        for (kind, facts) in one.facts {
            let op = [(Dimension::Op, Arc::from(operation(kind)))];
            let places = (0..).zip(facts.places).filter(|(_, count)| *count > 0).collect();
            let values = [
                (Noun::Ops, Value::Count(facts.count)),
                (Noun::Bytes, Value::Count(facts.bytes)),
                (Noun::Latency, Value::Spread(facts.latencies.buckets().collect())),
                (Noun::Size, Value::Spread(facts.sizes.buckets().collect())),
                (Noun::Offset, Value::Spread(places)),
            ];
            self.add(layer, labels.iter().cloned().chain(op), values);
        }
    }

    /// What a pool's volumes asked for and got, and who had its time.
    pub fn ledger(&mut self, pool: &str, second: &LedgerSecond) {
        let of_pool = || (Dimension::Pool, Arc::from(pool));
        let cost = second.volumes.iter().map(|one| one.account.cost).sum();
        let tasks = Task::ALL.into_iter().zip(second.tasks).map(|(task, nanos)| (task.name(), nanos));
        for (class, nanos) in [("client", cost)].into_iter().chain(tasks).filter(|(_, nanos)| *nanos > 0) {
            let labels = [of_pool(), (Dimension::Class, class.into())];
            self.add(Layer::Pool, labels, [(Noun::Time, Value::Count(nanos))]);
        }
        let from = second.read_from;
        for (source, blocks) in
            [("memory", from.memory), ("ahead", from.ahead), ("flash", from.flash), ("disk", from.disks)]
        {
            if blocks > 0 {
                let labels = [of_pool(), (Dimension::Source, source.into())];
                self.add(Layer::Cache, labels, [(Noun::Blocks, Value::Count(blocks))]);
            }
        }
        second.volumes.iter().for_each(|one| self.volume(pool, one));
    }

    fn volume(&mut self, pool: &str, one: &VolumeSecond) {
        let (account, labels) = (&one.account, self.names.labels(one.volume));
        let count = Value::Count;
        let done = [
            (Noun::Ops, count(account.done)),
            (Noun::Bytes, count(account.done_bytes)),
            (Noun::Failed, count(account.failed)),
        ];
        self.add(Layer::Volume, labels.clone(), done);
        let stages = [
            ("limit", account.held),
            ("pause", account.paused),
            ("log-space", account.room),
            ("queue", account.turn),
            ("disks", account.disks()),
        ];
        for (stage, nanos) in stages.into_iter().filter(|(_, nanos)| *nanos > 0) {
            let stage = (Dimension::Stage, Arc::from(stage));
            self.add(Layer::Volume, labels.iter().cloned().chain([stage]), [(Noun::Time, count(nanos))]);
        }
        let mut values = vec![
            (Noun::Asked, count(account.asked)),
            (Noun::Done, count(account.done)),
            (Noun::Late, count(account.late)),
            (Noun::Waiting, Value::Level(account.open + account.held_now)),
        ];
        if account.timed > 0 {
            values.extend([(Noun::P50, Value::Level(account.p50)), (Noun::P99, Value::Level(account.p99))]);
        }
        self.add(Layer::Qos, labels.clone(), values);
        let is_violated = one.state == State::Violated;
        let cause =
            one.cause.as_ref().filter(|_| is_violated).map(|cause| (Dimension::Cause, words(pool, cause)));
        let violated = Value::Level(u64::from(is_violated));
        self.add(Layer::Qos, labels.into_iter().chain(cause), [(Noun::Missed, violated)]);
    }

    /// What a pool's disks did.
    pub fn disks(&mut self, pool: &str, second: &DisksSecond, statuses: &[PoolStatus]) {
        let groups = statuses.iter().filter(|status| status.name == pool).flat_map(|status| &status.groups);
        let groups: BTreeMap<u16, u16> =
            groups.flat_map(|group| group.disks.iter().map(|disk| (disk.number, group.number))).collect();
        for (number, vitals) in &second.disks {
            let mut labels = vec![
                (Dimension::Pool, Arc::from(pool)),
                (Dimension::Device, format!("{pool}/{number}").into()),
            ];
            labels
                .extend(groups.get(number).map(|group| (Dimension::Group, format!("{pool}/{group}").into())));
            let busy = (u128::from(vitals.busy) * 1000 / u128::from(second.span.max(1))).min(1000);
            self.add(Layer::Disk, labels.clone(), [(Noun::Busy, Value::Level(busy as u64))]);
            for (kind, served) in ["read", "write", "flush"].into_iter().zip(&vitals.served) {
                let Some(latencies) = &served.latencies else { continue };
                let values = [
                    (Noun::Ops, Value::Count(served.count)),
                    (Noun::Bytes, Value::Count(served.bytes)),
                    (Noun::Latency, Value::Spread(latencies.buckets().collect())),
                ];
                self.add(Layer::Disk, labels.iter().cloned().chain([(Dimension::Op, kind.into())]), values);
            }
        }
    }

    /// How full a pool is.
    pub fn fill(&mut self, status: &PoolStatus) {
        let labels = [(Dimension::Pool, Arc::from(status.name.as_str()))];
        let free = status.free.saturating_sub(status.reserved);
        let values = [
            (Noun::Size, status.size),
            (Noun::Used, status.used),
            (Noun::Free, free),
            (Noun::Lost, status.damage.bytes),
        ];
        self.add(Layer::Pool, labels, values.map(|(noun, bytes)| (noun, Value::Level(bytes))));
    }

    pub fn machine(&mut self, seen: Seen) {
        for (part, used) in seen.cpu.into_iter().flatten() {
            self.add(Layer::Cpu, [(Dimension::Part, part.into())], [(Noun::Used, Value::Level(used))]);
        }
        if let Some(bytes) = seen.memory_bytes {
            let part = [(Dimension::Part, Arc::from("process"))];
            self.add(Layer::Memory, part, [(Noun::Used, Value::Level(bytes))]);
        }
        for (port, ways) in seen.ports {
            for (direction, (bytes, packets)) in ["in", "out"].into_iter().zip(ways) {
                let labels =
                    [(Dimension::Device, port.as_str().into()), (Dimension::Direction, direction.into())];
                let values = [(Noun::Bytes, Value::Count(bytes)), (Noun::Packets, Value::Count(packets))];
                self.add(Layer::Nic, labels, values);
            }
        }
    }

    /// What collecting the second before took.
    pub fn observer(&mut self, nanos: u64) {
        let rows = self.rows.len() as u64 + 1;
        let values = [(Noun::Time, Value::Count(nanos)), (Noun::Rows, Value::Level(rows))];
        self.add(Layer::Observer, [], values);
    }
}

/// A cause in few words; of one kind and object always the same.
fn words(pool: &str, cause: &Cause<String>) -> Arc<str> {
    match cause {
        Cause::Neighbour(name) => format!("{pool}/{name}").into(),
        Cause::Task(task) => task.name().into(),
        Cause::Disk(disk) => format!("disk {pool}/{disk}").into(),
        Cause::Disks => "disks".into(),
        Cause::CacheMiss => "cache miss".into(),
        Cause::Itself => "own demand".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_analytics::{STATISTICS, find};
    use forebay_pool::{Account, Level, ReadFrom};
    use forebay_runtime::Served;

    fn names(volumes: &BTreeMap<Id, Volume>) -> Names<'_> {
        Names { volumes, levels: Arc::default(), host: &|name| name.strip_prefix("iqn.").map(str::to_string) }
    }

    fn volume() -> BTreeMap<Id, Volume> {
        let volume = Volume { name: "tank/web/a".into(), project: Some("tank/web".into()), level: Id(0) };
        BTreeMap::from([(Id(7), volume)])
    }

    /// Everything that is collected is in the table of what there is, with its dimensions: what is not would be thrown away.
    fn check(rows: &[Row]) {
        for row in rows {
            for (noun, _) in &row.values {
                let statistic = find(row.layer, *noun).unwrap_or_else(|| panic!("no {}.{noun}", row.layer));
                for (dimension, _) in &row.labels {
                    assert!(statistic.dimensions.contains(dimension), "{statistic} has no {dimension}");
                }
            }
            assert!(row.labels.is_sorted(), "{row:?}");
        }
    }

    fn second() -> LedgerSecond {
        let account = Account {
            asked: 9,
            done: 8,
            done_bytes: 65_536,
            late: 2,
            open: 1,
            turn: 500,
            timed: 8,
            p99: 77,
            cost: 1000,
            total: 900,
            ..Account::default()
        };
        let one = VolumeSecond {
            volume: Id(7),
            name: "web/a".into(),
            level: Id(0),
            promise: Level::default(),
            standing: None,
            account,
            state: State::Violated,
            cause: Some(Cause::Neighbour("b".into())),
        };
        let mut tasks = [0; Task::ALL.len()];
        tasks[Task::Scrub as usize] = 300;
        LedgerSecond {
            number: 1,
            at: forebay_base::WallTime(1000),
            span: 1_000_000_000,
            volumes: vec![one],
            tasks,
            read_from: ReadFrom { memory: 3, ahead: 0, flash: 0, disks: 5 },
            capacity: None,
            promised: 0,
        }
    }

    #[test]
    fn a_pool_s_second_says_who_had_what_and_why_a_promise_was_broken() {
        let volumes = volume();
        let names = names(&volumes);
        let mut rows = Rows::new(&names);
        rows.ledger("tank", &second());
        let mut latencies = forebay_probe::Histogram::default();
        latencies.record(5000);
        let served = Served { count: 1, bytes: 4096, nanos: 5000, latencies: Some(latencies) };
        let vitals = forebay_runtime::Vitals {
            busy: 250_000_000,
            served: [served, Served::default(), Served::default()],
            ..Default::default()
        };
        rows.disks("tank", &DisksSecond { number: 1, span: 1_000_000_000, disks: vec![(3, vitals)] }, &[]);
        rows.observer(5);
        let rows = rows.into_rows();
        check(&rows);
        let value = |layer, noun, label: &str| {
            let row = rows.iter().find(|row| {
                let has_label = label.is_empty() || row.labels.iter().any(|(_, value)| &**value == label);
                row.layer == layer && has_label && row.values.iter().any(|(one, _)| *one == noun)
            });
            let row = row.unwrap_or_else(|| panic!("no {layer}.{noun} of {label}"));
            row.values.iter().find(|(one, _)| *one == noun).map(|(_, value)| value.clone()).unwrap()
        };
        assert_eq!(value(Layer::Volume, Noun::Ops, "tank/web/a"), Value::Count(8));
        assert_eq!(value(Layer::Volume, Noun::Time, "queue"), Value::Count(500));
        assert_eq!(value(Layer::Qos, Noun::Missed, "tank/b"), Value::Level(1));
        assert_eq!(value(Layer::Qos, Noun::P99, "tank/web"), Value::Level(77));
        assert_eq!(value(Layer::Pool, Noun::Time, "client"), Value::Count(1000));
        assert_eq!(value(Layer::Pool, Noun::Time, "scrub"), Value::Count(300));
        assert_eq!(value(Layer::Cache, Noun::Blocks, "disk"), Value::Count(5));
        assert_eq!(value(Layer::Disk, Noun::Busy, "tank/3"), Value::Level(250));
        assert_eq!(value(Layer::Disk, Noun::Bytes, "read"), Value::Count(4096));
        assert!(!rows.iter().any(|row| row.labels.iter().any(|(_, value)| &**value == "ahead")));
        assert_eq!(value(Layer::Observer, Noun::Rows, ""), Value::Level(rows.len() as u64));
    }

    #[test]
    fn clients_are_hosts_where_somebody_named_them_and_volumes_have_names() {
        let volumes = volume();
        let names = names(&volumes);
        let mut rows = Rows::new(&names);
        for (protocol, client, volume) in [
            (Protocol::Nbd, "10.0.0.7", Id(7)),
            (Protocol::Iscsi, "iqn.esx1", Id(7)),
            (Protocol::Iscsi, "eui.1", Id(8)),
        ] {
            let client = client.to_string();
            rows.client(ClientFacts { protocol, client, volume, failed: 1, facts: Vec::new() });
        }
        let rows = rows.into_rows();
        check(&rows);
        let clients: Vec<_> = rows
            .iter()
            .map(|row| {
                let of = |dimension| {
                    row.labels.iter().find(|(one, _)| *one == dimension).map(|(_, value)| value.to_string())
                };
                (
                    row.layer,
                    of(Dimension::Client).unwrap(),
                    of(Dimension::Volume).unwrap(),
                    of(Dimension::Project),
                )
            })
            .collect();
        let web = Some("tank/web".to_string());
        assert_eq!(clients[0], (Layer::Nbd, "10.0.0.7".into(), "tank/web/a".into(), web.clone()));
        assert_eq!(clients[1], (Layer::Iscsi, "esx1".into(), "tank/web/a".into(), web));
        assert_eq!(clients[2], (Layer::Iscsi, "eui.1".into(), Id(8).to_string(), None));
    }

    #[test]
    fn a_machine_s_second_has_its_statistics() {
        let volumes = BTreeMap::new();
        let names = names(&volumes);
        let mut rows = Rows::new(&names);
        let ports = BTreeMap::from([("eth0".to_string(), [(10, 1), (20, 2)])]);
        rows.machine(Seen { cpu: Some([("user", 5), ("system", 6)]), memory_bytes: Some(9), ports });
        let rows = rows.into_rows();
        check(&rows);
        assert_eq!(rows.len(), 5);
        assert!(STATISTICS.iter().any(|one| one.layer == Layer::Nic));
    }
}
