//! What came of a configuration, beside what was published of it.

use crate::configuration::{Case, Configuration, Figure, Measure};
use crate::model::{Got, Outcome, run};
use forebay_pool::Standing;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Of its rate a client must get so much for its need to be met: its last requests of a run may be answered after the end.
const MET: f64 = 0.99;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    pub configuration: Configuration,
    pub seed: u64,
    /// Where the models' figures are from.
    pub devices: Vec<String>,
    pub cases: Vec<CaseReport>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CaseReport {
    pub name: String,
    pub published: String,
    pub figures: Vec<FigureReport>,
    /// Whether the needs that were met are those of the publication, where it says which.
    pub agrees: Option<bool>,
    /// Why another answer is right, where one is.
    pub differs: Option<String>,
    pub clients: Vec<ClientReport>,
    /// Of the measured time, for each pool: of the disk that worked least, of all, and of the one that worked most.
    pub busy: Vec<[f64; 3]>,
    pub disk_requests: u64,
}

/// A published figure beside ours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FigureReport {
    pub workload: String,
    pub measure: Measure,
    pub published: f64,
    pub ours: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClientReport {
    pub workload: String,
    pub pool: usize,
    pub needs_iops: Option<u64>,
    pub iops: f64,
    /// Requests of the second that had the fewest.
    pub least_iops: u64,
    pub bytes_per_second: f64,
    pub mean_ms: f64,
    pub read_ms: f64,
    pub write_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    /// Requests that waited for their answers, on average; in a closed loop rate times mean has to give the same (Little's law).
    pub outstanding: f64,
    pub failed: u64,
    /// What its volume was promised was not kept: the pool has not enough for it.
    pub best_effort: bool,
    pub met: Option<bool>,
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl ClientReport {
    fn new(configuration: &Configuration, got: &Got) -> ClientReport {
        let client = configuration.client(&got.workload).expect("it ran");
        let (tally, needs) = (&got.tally, client.needs.map(|needs| needs.iops));
        ClientReport {
            workload: got.workload.clone(),
            pool: got.pool,
            needs_iops: needs,
            iops: tally.iops(),
            least_iops: tally.least(),
            bytes_per_second: tally.bytes_per_second(),
            mean_ms: milliseconds(tally.all.mean()),
            read_ms: milliseconds(tally.reads.mean()),
            write_ms: milliseconds(tally.writes.mean()),
            p50_ms: milliseconds(tally.all.quantile(500)),
            p99_ms: milliseconds(tally.all.quantile(990)),
            p999_ms: milliseconds(tally.all.quantile(999)),
            outstanding: tally.outstanding(),
            failed: tally.failures(),
            best_effort: got.standing == Some(Standing::BestEffort),
            met: needs.map(|needs| tally.failures() == 0 && tally.iops() >= needs as f64 * MET),
        }
    }
}

/// What all clients of a workload got together; times are means over their requests.
fn ours(clients: &[ClientReport], figure: &Figure) -> f64 {
    let of_it = || clients.iter().filter(|client| client.workload == figure.workload);
    let iops = of_it().map(|client| client.iops).sum::<f64>();
    let mean =
        |of: fn(&ClientReport) -> f64| of_it().map(|client| of(client) * client.iops).sum::<f64>() / iops;
    match figure.measure {
        Measure::Iops => iops,
        Measure::Megabytes => of_it().map(|client| client.bytes_per_second).sum::<f64>() / 1e6,
        Measure::MeanMs => mean(|client| client.mean_ms),
        Measure::ReadMs => mean(|client| client.read_ms),
        Measure::WriteMs => mean(|client| client.write_ms),
    }
}

impl CaseReport {
    fn new(configuration: &Configuration, case: &Case, outcome: &Outcome) -> CaseReport {
        let clients: Vec<_> =
            outcome.clients.iter().map(|got| ClientReport::new(configuration, got)).collect();
        // A workload that comes several times is met if each of it is.
        let mut met: BTreeMap<&str, bool> = BTreeMap::new();
        for client in &clients {
            let all = met.entry(&client.workload).or_insert(true);
            *all &= client.met == Some(true);
        }
        let is_as_listed = case.published_met.as_ref().map(|published| {
            let needs = |name: &str| configuration.client(name).is_some_and(|client| client.needs.is_some());
            let mut needy = met.iter().filter(|(name, _)| needs(name));
            needy.all(|(name, met)| *met == published.iter().any(|published| published == name))
        });
        let count = || met.values().filter(|met| **met).count();
        let agrees = is_as_listed.or_else(|| case.published_count.map(|published| published == count()));
        let spread = |busy: &Vec<f64>| {
            let fold = |of: fn(f64, f64) -> f64| busy.iter().copied().reduce(of).unwrap_or(0.0);
            [fold(f64::min), busy.iter().sum::<f64>() / busy.len().max(1) as f64, fold(f64::max)]
        };
        let figures = case.figures.iter().map(|figure| FigureReport {
            workload: figure.workload.clone(),
            measure: figure.measure,
            published: figure.value,
            ours: ours(&clients, figure),
        });
        CaseReport {
            name: case.name.clone(),
            published: case.published.clone(),
            figures: figures.collect(),
            agrees,
            differs: case.differs.clone(),
            busy: outcome.busy.iter().map(spread).collect(),
            disk_requests: outcome.disk_requests,
            clients,
        }
    }

    /// Beside what was published, in words.
    pub fn verdict(&self) -> &'static str {
        match (self.agrees, &self.differs) {
            (Some(true), _) => "as published",
            (Some(false), Some(_)) => "other than published",
            (Some(false), None) => "other than published, and nobody has said why",
            (None, _) if self.published.is_empty() => "nothing was published",
            (None, _) => "published in words only",
        }
    }

    /// Why it is other than published, if it is and somebody has said so.
    pub fn reason(&self) -> Option<&str> {
        self.differs.as_deref().filter(|_| self.agrees != Some(true))
    }

    /// Whether it is other than published, and nobody has said why.
    pub fn is_unexplained(&self) -> bool {
        self.agrees == Some(false) && self.differs.is_none()
    }
}

impl ClientReport {
    /// Of its need, in words.
    pub fn verdict(&self) -> String {
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        let failed = if self.failed > 0 { format!("{} FAILED", self.failed) } else { String::new() };
        let effort = if self.best_effort { "best effort" } else { "" };
        [met, &failed, effort].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

impl Report {
    /// Runs all cases, as many at a time as there are processors.
    pub fn make(configuration: Configuration, seed: u64) -> Result<Report, String> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let next = std::sync::atomic::AtomicUsize::new(0);
        let worker = || {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(case) = configuration.cases.get(number) else { return done };
                let outcome =
                    run(&configuration, case, seed).map_err(|error| format!("{}: {error}", case.name));
                done.push((number, outcome.map(|outcome| CaseReport::new(&configuration, case, &outcome))));
            }
        };
        let mut done = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            let ended = workers.into_iter().map(|worker| worker.join());
            ended.collect::<Result<Vec<_>, _>>().map(|done| done.into_iter().flatten().collect::<Vec<_>>())
        })
        .map_err(|_| "the engine stopped with a mistake of its own; what it said is above".to_string())?;
        done.sort_by_key(|(number, _)| *number);
        let cases = done.into_iter().map(|(_, case)| case).collect::<Result<Vec<_>, _>>()?;
        let machine = &configuration.machine;
        let devices = [Some(&machine.disk), machine.log.as_ref()].into_iter().flatten();
        let source = |name: &String| configuration.sheet(name).map(|(_, source)| format!("{name}: {source}"));
        let devices = devices.filter_map(source).collect();
        Ok(Report { seed, devices, cases, configuration })
    }

    /// What a reader needs to judge the figures and to make them again.
    pub fn conditions(&self) -> Vec<String> {
        let machine = &self.configuration.machine;
        let scale = machine.scale;
        let run = format!(
            "{} s were measured after {} s of the same load, with seed {}. Disks and volumes were {scale} times smaller than they are said to be, with \
             the same seeks and rates; each pool had {} MiB of memory, which is {:.1} GiB for volumes of full size; all clients shared a network of {} Gbit/s each way, whose \
             messages go one after the other.",
            machine.seconds,
            machine.warm_seconds,
            self.seed,
            machine.memory_mib,
            (machine.memory_mib * scale) as f64 / 1024.0,
            machine.network_gbit
        );
        let terms = "Met: 99 % of the rate. Times are means and percentiles, these too long by an eighth at most, of requests with a rate from when they \
                     were due. Best effort: the pool has not enough for what the volume was promised. Processors, memory and controllers take no time.";
        let fixed = [run, terms.into()].into_iter();
        fixed.chain(self.devices.iter().cloned()).chain(self.configuration.notes.iter().cloned()).collect()
    }

    /// For terminals.
    pub fn text(&self) -> String {
        let Configuration { name, title, source, .. } = &self.configuration;
        let mut text = format!("{name}: {title}\n");
        if !source.is_empty() {
            let _ = writeln!(text, "after {source}");
        }
        for case in &self.cases {
            let _ = writeln!(text, "\n{} ({})", case.name, case.verdict());
            if !case.published.is_empty() {
                let _ = writeln!(text, "  published: {}", case.published);
            }
            if let Some(why) = case.reason() {
                let _ = writeln!(text, "  ours: {why}");
            }
            for FigureReport { workload, measure, published, ours } in &case.figures {
                let ratio = ours / published;
                let _ = writeln!(
                    text,
                    "  {workload}, {measure}: published {published}, ours {ours:.2}, ours / published {ratio:.2}"
                );
            }
            for (pool, busy) in case.busy.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "  pool {pool}, disks busy {:<9}{:>7}{:>9}{:>9}{:>9}{:>9}{:>9}{:>13}",
                    percents(busy),
                    "needs/s",
                    "got/s",
                    "least/s",
                    "MB/s",
                    "mean ms",
                    "p99 ms",
                    "outstanding"
                );
                for client in case.clients.iter().filter(|client| client.pool == pool) {
                    let needs = client.needs_iops.map_or(String::new(), |needs| needs.to_string());
                    let _ = writeln!(
                        text,
                        "    {:<27}{needs:>7}{:>9.0}{:>9}{:>9.1}{:>9.2}{:>9.2}{:>13.2}  {}",
                        client.workload,
                        client.iops,
                        client.least_iops,
                        client.bytes_per_second / 1e6,
                        client.mean_ms,
                        client.p99_ms,
                        client.outstanding,
                        client.verdict()
                    );
                }
            }
        }
        text.push('\n');
        self.conditions().iter().for_each(|line| text.extend(["- ", line, "\n"]));
        text
    }
}

/// How much disks worked: the least and the most of them.
pub(crate) fn percents([least, _, most]: &[f64; 3]) -> String {
    let [least, most] = [least, most].map(|part| (part * 100.0).round());
    if least == most { format!("{most} %") } else { format!("{least}–{most} %") }
}
