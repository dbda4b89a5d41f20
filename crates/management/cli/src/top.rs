//! The live load, second by second: the ledger of service levels, and the statistics that the browser shows, too.

use crate::client::{Call, Client};
use crate::commands::{Outcome, Session};
use crate::failure::{Failure, printable};
use crate::screen::{self, Second, Source, View};
use crate::show::{json_line, permille_words as percent, word};
use crate::table::{Cell, Tone};
use clap::{Args, Subcommand, ValueEnum};
use forebay_api::{
    self as api, LedgerSecond, LedgerState, Operation, Page, StatisticAnswer, show_measured, show_rate,
};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long the server waits for the next second.
const WAIT_SECONDS: u32 = 10;
/// What is asked for of the past: the newest second that is kept is among them.
const BACK_SECONDS: i32 = 3;
/// Lines of an answer: as many as there may be.
const LINES_MAX: u32 = 100;
const LOOK: Duration = Duration::from_millis(200);
/// A daemon that has had nothing to tell for so long counts nothing.
const SILENT_LOOKS_MAX: u32 = 50;

#[derive(Subcommand, Debug)]
pub enum Top {
    /// Show every second the demand and performance of each volume, whether its level is met, and why not
    Qos {
        /// Pool name or UUID
        pool: String,
        #[command(flatten)]
        count: Count,
    },
    /// Show every second the load of each volume, over NBD and iSCSI
    Volumes(Seen),
    /// Show every second the load of each client
    Clients(Seen),
    /// Show every second the load of each disk
    Disks(Seen),
}

#[derive(Args, Debug)]
pub struct Count {
    /// End after this many seconds [default: 1 with --json or without a terminal, otherwise until `q`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

#[derive(Args, Debug)]
pub struct Seen {
    /// Sort order, the greatest first
    #[arg(long, default_value = "operations")]
    sort: By,
    #[command(flatten)]
    count: Count,
}

/// In the order of [`SORTS`].
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum By {
    Operations,
    Bytes,
    Latency,
}

const SORTS: &[&str] = &["operations", "bytes", "latency"];
const QOS_SORTS: &[&str] = &["missed", "asked", "latency"];

impl Session {
    pub fn top(self, command: Top) -> Outcome {
        let (what, seen) = match command {
            Top::Qos { pool, count } => {
                let ledger = Ledger { pool, after: None, waiting: VecDeque::new() };
                return screen::run(self.client, ledger, self.json, count.count, 0);
            }
            Top::Volumes(seen) => (&VOLUMES, seen),
            Top::Clients(seen) => (&CLIENTS, seen),
            Top::Disks(seen) => (&DISKS, seen),
        };
        let source = Statistics { what, at_unix_s: 0 };
        screen::run(self.client, source, self.json, seen.count.count, seen.sort as usize)
    }
}

/// The seconds of a pool's ledger.
struct Ledger {
    pool: String,
    after: Option<u64>,
    /// Came, and were not shown yet: as many as one answer has.
    waiting: VecDeque<LedgerSecond>,
}

struct LedgerView {
    pool: String,
    second: LedgerSecond,
}

impl Source for Ledger {
    fn sorts(&self) -> &'static [&'static str] {
        QOS_SORTS
    }

    fn next(&mut self, client: &Client) -> Result<Box<dyn Second>, Failure> {
        loop {
            if let Some(second) = self.waiting.pop_front() {
                self.after = Some(second.number);
                return Ok(Box::new(LedgerView { pool: self.pool.clone(), second }));
            }
            let call = Call::of(Operation::PoolLedger, &self.pool);
            match self.after {
                // The last one is over: the one that comes is waited for.
                None => {
                    let newest: Page<LedgerSecond> = client.get(call.query("limit", 1))?;
                    self.after = Some(newest.items.last().map_or(0, |second| second.number));
                }
                Some(after) => {
                    let call = call.query("after", after).query("wait_seconds", WAIT_SECONDS);
                    self.waiting = client.get::<Page<LedgerSecond>>(call)?.items.into();
                }
            }
        }
    }
}

impl Second for LedgerView {
    fn view(&self, sort: usize) -> View {
        view(&self.pool, &self.second, sort)
    }
    fn print_json(&self, _: usize) {
        json_line(&self.second);
    }
}

/// What an answer has of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Figure {
    Operations,
    Bytes,
    /// The 99th percentile.
    Latency,
    Busy,
}

/// What is looked at, by which names, and where that is asked for.
struct What {
    title: &'static str,
    label: &'static str,
    questions: &'static [(Figure, &'static str)],
    headline: &'static str,
    empty: &'static str,
}

static VOLUMES: What = What {
    title: "VOLUME",
    label: "volume",
    questions: &[
        (Figure::Operations, "nbd.ops[volume]"),
        (Figure::Operations, "iscsi.ops[volume]"),
        (Figure::Bytes, "nbd.bytes[volume]"),
        (Figure::Bytes, "iscsi.bytes[volume]"),
        (Figure::Latency, "nbd.latency[volume]"),
        (Figure::Latency, "iscsi.latency[volume]"),
    ],
    headline: "Load of volumes over NBD and iSCSI, as clients see it",
    empty: "No client is active.",
};
static CLIENTS: What = What {
    title: "CLIENT",
    label: "client",
    questions: &[
        (Figure::Operations, "nbd.ops[client]"),
        (Figure::Operations, "iscsi.ops[client]"),
        (Figure::Bytes, "nbd.bytes[client]"),
        (Figure::Bytes, "iscsi.bytes[client]"),
        (Figure::Latency, "nbd.latency[client]"),
        (Figure::Latency, "iscsi.latency[client]"),
    ],
    headline: "Load of clients over NBD and iSCSI",
    empty: "No client is active.",
};
static DISKS: What = What {
    title: "DISK",
    label: "device",
    questions: &[
        (Figure::Operations, "disk.ops[device]"),
        (Figure::Bytes, "disk.bytes[device]"),
        (Figure::Latency, "disk.latency[device]"),
        (Figure::Busy, "disk.busy[device]"),
    ],
    headline: "Load of the disks of all pools",
    empty: "No disk is active.",
};

/// Seconds of the statistics.
struct Statistics {
    what: &'static What,
    /// The newest that was shown.
    at_unix_s: u64,
}

/// What a name did in a second.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
struct Doing {
    name: String,
    operations_per_second: u64,
    bytes_per_second: u64,
    /// Of several protocols, that of the slower one.
    latency_p99_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    busy_permille: Option<u64>,
}

#[derive(Serialize)]
struct StatisticsSecond {
    at_unix_s: u64,
    items: Vec<Doing>,
    #[serde(skip)]
    what: &'static What,
}

/// When the newest second of an answer was, and where it stands in its lines.
fn newest(answer: &StatisticAnswer) -> Option<(usize, u64)> {
    let total = answer.total.iter().map(|total| &total.values);
    let values = total.chain(answer.lines.iter().flatten().map(|line| &line.values));
    let last = values.filter_map(|values| values.iter().rposition(Option::is_some)).max()?;
    Some((last, answer.from_unix_s + last as u64 * answer.step_seconds))
}

impl Statistics {
    fn ask(&self, client: &Client, expression: &str, from: i64, to: i64) -> Result<StatisticAnswer, Failure> {
        let call =
            Call::new(Operation::StatisticQuery).query("expression", expression).query("limit", LINES_MAX);
        client.get(call.query("from", from).query("to", to).query("step", 1))
    }
}

impl Source for Statistics {
    fn sorts(&self) -> &'static [&'static str] {
        SORTS
    }

    fn next(&mut self, client: &Client) -> Result<Box<dyn Second>, Failure> {
        for _ in 0..SILENT_LOOKS_MAX {
            // What watching costs is counted in every second, whatever else there was.
            let clock = self.ask(client, "observer.time", (-BACK_SECONDS).into(), 0)?;
            let Some((_, at)) = newest(&clock).filter(|(_, at)| *at > self.at_unix_s) else {
                std::thread::sleep(LOOK);
                continue;
            };
            self.at_unix_s = at;
            let mut doing: BTreeMap<String, Doing> = BTreeMap::new();
            for (figure, expression) in self.what.questions {
                let answer = self.ask(client, expression, at as i64, at as i64 + 1)?;
                add(&mut doing, *figure, self.what.label, &answer);
            }
            let items = doing.into_iter().map(|(name, doing)| Doing { name, ..doing }).collect();
            return Ok(Box::new(StatisticsSecond { at_unix_s: at, items, what: self.what }));
        }
        let remedy = "If statistics are off, turn them on with `forebay stat on`.";
        Err(Failure::new(crate::failure::Exit::Failed, "no statistics for ten seconds", remedy))
    }
}

/// Adds a figure of a second to those of its names.
fn add(doing: &mut BTreeMap<String, Doing>, figure: Figure, label: &str, answer: &StatisticAnswer) {
    for line in answer.lines.iter().flatten() {
        let (Some(name), Some(value)) = (line.labels.get(label), line.values.iter().rev().flatten().next())
        else {
            continue;
        };
        let value = *value as u64;
        let is_p99 = line.labels.get("quantile").is_some_and(|quantile| quantile == "p99");
        if figure == Figure::Latency && !is_p99 {
            continue;
        }
        let one = doing.entry(name.clone()).or_default();
        match figure {
            Figure::Operations => one.operations_per_second += value,
            Figure::Bytes => one.bytes_per_second += value,
            Figure::Latency => one.latency_p99_ns = one.latency_p99_ns.max(value),
            Figure::Busy => one.busy_permille = Some(value),
        }
    }
}

impl StatisticsSecond {
    fn sorted(&self, sort: usize) -> Vec<&Doing> {
        let mut items: Vec<&Doing> = self.items.iter().collect();
        items.sort_by_key(|one| {
            Reverse(match sort {
                0 => one.operations_per_second,
                1 => one.bytes_per_second,
                _ => one.latency_p99_ns,
            })
        });
        items
    }
}

impl Second for StatisticsSecond {
    fn view(&self, sort: usize) -> View {
        let has_busy = self.what.questions.iter().any(|(figure, _)| *figure == Figure::Busy);
        let mut titles = vec![self.what.title, "IOPS", "BANDWIDTH", "P99"];
        titles.extend(has_busy.then_some("BUSY"));
        let row = |one: &Doing| {
            let mut row = vec![
                Cell::text(&one.name),
                Cell::number(one.operations_per_second),
                Cell::number(show_rate(one.bytes_per_second)),
                Cell::number(show_measured(one.latency_p99_ns / 1000)),
            ];
            if has_busy {
                let busy = one.busy_permille.map(|busy| percent(busy.try_into().unwrap_or(u32::MAX)));
                row.push(Cell::number(busy.unwrap_or_default()));
            }
            row
        };
        View {
            headline: self.what.headline.into(),
            titles,
            rows: self.sorted(sort).into_iter().map(row).collect(),
            empty: self.what.empty,
        }
    }

    fn print_json(&self, sort: usize) {
        let items = self.sorted(sort).into_iter().cloned().collect();
        json_line(&StatisticsSecond { items, ..*self });
    }
}

/// As many of something as there would have been in a second.
fn per_second(number: u64, second: &LedgerSecond) -> u64 {
    (u128::from(number) * 1_000_000 / u128::from(second.span_us.max(1))) as u64
}

/// A part of the pool's time, in words.
fn share(us: u64, second: &LedgerSecond) -> String {
    let permille = u128::from(us) * 1000 / u128::from(second.span_us.max(1));
    percent(permille.try_into().unwrap_or(u32::MAX))
}

/// Missed levels first, then the volumes with the most of the pool's time; or by demand, or by latency.
fn view(pool: &str, second: &LedgerSecond, sort: usize) -> View {
    let possible = match second.guarantee_max_permille {
        Some(permille) => format!("{} can be guaranteed", percent(permille)),
        None => "nothing is guaranteed before 'forebay pool calibrate POOL'".into(),
    };
    let mut text = format!(
        "{}: levels need {} of the pool's time; {possible}",
        printable(pool),
        percent(second.guaranteed_permille)
    );
    if !second.background_work_us.is_empty() {
        let own = second.background_work_us.iter();
        let own = own.map(|(kind, us)| format!("{} {}", printable(kind), share(*us, second)));
        text.push_str(&format!("; background work: {}", own.collect::<Vec<_>>().join(", ")));
    }
    let mut lines: Vec<&api::LedgerLine> = second.volumes.iter().collect();
    let by = |line: &api::LedgerLine| match sort {
        0 => line.pool_time_us,
        1 => line.asked,
        _ => line.p99_us,
    };
    lines.sort_by_key(|line| (sort == 0 && line.state != LedgerState::Missed, Reverse(by(line))));
    let titles =
        vec!["VOLUME", "LEVEL", "ASKED", "IOPS", "BANDWIDTH", "P50", "P99", "POOL TIME", "STATE", "CAUSE"];
    let rows: Vec<Vec<Cell>> = lines
        .into_iter()
        .map(|line| {
            let tone = match line.state {
                LedgerState::Missed => Tone::Bad,
                LedgerState::Limited | LedgerState::CannotBeMet => Tone::Warning,
                LedgerState::Met | LedgerState::LowDemand | LedgerState::BestEffort => Tone::Plain,
            };
            vec![
                Cell::text(&line.volume),
                Cell::text(&line.level),
                Cell::number(per_second(line.asked, second)),
                Cell::number(per_second(line.done, second)),
                Cell::number(show_rate(per_second(line.done_bytes, second))),
                Cell::number(show_measured(line.p50_us)),
                Cell::number(show_measured(line.p99_us)),
                Cell::number(share(line.pool_time_us, second)),
                Cell::text(if line.level == "none" { "-".into() } else { word(&line.state) }).tone(tone),
                Cell::text(line.cause.as_ref().map_or(String::new(), api::LedgerCause::words)),
            ]
        })
        .collect();
    View { headline: text, titles, rows, empty: "No volume is active." }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::{StatisticKind, StatisticLine};

    /// Labels, and a value for each second.
    type Line<'a> = (&'a [(&'a str, &'a str)], &'a [Option<f64>]);

    fn answer(lines: &[Line]) -> StatisticAnswer {
        let line = |(labels, values): &Line| StatisticLine {
            labels: labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            mean: 0.0,
            greatest: 0.0,
            values: values.to_vec(),
        };
        StatisticAnswer {
            expression: String::new(),
            kind: StatisticKind::Counter,
            unit: String::new(),
            from_unix_s: 100,
            to_unix_s: 103,
            step_seconds: 1,
            lines: Some(lines.iter().map(line).collect()),
            others: None,
            total: None,
            heatmap: None,
        }
    }

    #[test]
    fn the_newest_second_is_the_last_that_was_kept() {
        assert_eq!(newest(&answer(&[(&[], &[Some(1.0), Some(0.0), None])])), Some((1, 101)));
        assert_eq!(newest(&answer(&[(&[], &[None, None, None])])), None);
        assert_eq!(newest(&answer(&[])), None);
    }

    #[test]
    fn protocols_are_added_and_the_slower_one_counts() {
        let mut doing = BTreeMap::new();
        let of = |value| answer(&[(&[("volume", "tank/a")], &[Some(value)])]);
        add(&mut doing, Figure::Operations, "volume", &of(10.0));
        add(&mut doing, Figure::Operations, "volume", &of(5.0));
        add(&mut doing, Figure::Bytes, "volume", &of(8192.0));
        let slow = |value| {
            answer(&[
                (&[("quantile", "max"), ("volume", "tank/a")], &[Some(9e9)]),
                (&[("quantile", "p99"), ("volume", "tank/a")], &[Some(value)]),
            ])
        };
        add(&mut doing, Figure::Latency, "volume", &slow(5e6));
        add(&mut doing, Figure::Latency, "volume", &slow(2e6));
        add(&mut doing, Figure::Operations, "client", &of(1.0));
        let one = &doing["tank/a"];
        assert_eq!((doing.len(), one.operations_per_second, one.bytes_per_second), (1, 15, 8192));
        assert_eq!((one.latency_p99_ns, one.busy_permille), (5_000_000, None));
    }

    #[test]
    fn they_are_in_the_order_that_was_chosen() {
        let one = |name: &str, operations_per_second, bytes_per_second, latency_p99_ns| Doing {
            name: name.into(),
            operations_per_second,
            bytes_per_second,
            latency_p99_ns,
            busy_permille: Some(500),
        };
        let items = vec![one("a", 1, 9, 5), one("b", 3, 1, 1), one("c", 2, 5, 9)];
        let second = StatisticsSecond { at_unix_s: 1, items, what: &DISKS };
        let names = |sort| second.view(sort).rows.iter().map(|row| row[0].text.clone()).collect::<String>();
        assert_eq!([names(0), names(1), names(2)], ["bca", "acb", "cab"]);
        let view = second.view(0);
        assert_eq!(view.titles.len(), view.rows[0].len());
        assert_eq!(view.rows[0][4].text, percent(500));
    }
}
