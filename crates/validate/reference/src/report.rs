//! What came of a configuration, beside what was published of it.

use crate::configuration::{Case, Configuration};
use crate::model::{Got, Outcome, run};
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
    /// Whether the needs that were met are those of the publication, where it says which.
    pub agrees: Option<bool>,
    /// Why another answer is right, where one is.
    pub differs: Option<String>,
    pub clients: Vec<ClientReport>,
    /// Of the measured time, for each pool: of the disk that worked least, of all, and of the one that worked most.
    pub busy: Vec<[f64; 3]>,
    pub disk_requests: u64,
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
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    /// By Little's law, from rate and mean.
    pub outstanding: f64,
    pub failed: u64,
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
            mean_ms: milliseconds(tally.mean()),
            p50_ms: milliseconds(tally.quantile(500)),
            p99_ms: milliseconds(tally.quantile(990)),
            p999_ms: milliseconds(tally.quantile(999)),
            outstanding: tally.outstanding(),
            failed: tally.failures(),
            met: needs.map(|needs| tally.failures() == 0 && tally.iops() >= needs as f64 * MET),
        }
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
        let agrees = case.published_met.as_ref().map(|published| {
            met.iter().all(|(name, met)| *met == published.iter().any(|published| published == name))
        });
        let spread = |busy: &Vec<f64>| {
            let fold = |of: fn(f64, f64) -> f64| busy.iter().copied().reduce(of).unwrap_or(0.0);
            [fold(f64::min), busy.iter().sum::<f64>() / busy.len().max(1) as f64, fold(f64::max)]
        };
        CaseReport {
            name: case.name.clone(),
            published: case.published.clone(),
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
            (None, _) => "published in words only",
        }
    }

    /// Why it is other than published, if it is and somebody has said so.
    pub fn reason(&self) -> Option<&str> {
        self.differs.as_deref().filter(|_| self.agrees == Some(false))
    }

    /// Whether it is other than published, and nobody has said why.
    pub fn is_unexplained(&self) -> bool {
        self.agrees == Some(false) && self.differs.is_none()
    }
}

impl ClientReport {
    /// Of a need, in a word.
    pub fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        }
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
        let devices = devices.filter_map(|name| crate::configuration::sheet(name));
        let devices = devices.map(|sheet| format!("{}: {}", sheet.name(), sheet.source())).collect();
        Ok(Report { seed, devices, cases, configuration })
    }

    /// What a reader needs to judge the figures and to make them again.
    pub fn conditions(&self) -> Vec<String> {
        let machine = &self.configuration.machine;
        let run = format!(
            "{} s were measured after {} s of the same load, with seed {}; disks, volumes and logs were {} times smaller than they are said to \
             be, with the same seeks and rates.",
            machine.seconds, machine.warm_seconds, self.seed, machine.scale
        );
        [run]
            .into_iter()
            .chain(self.devices.iter().cloned())
            .chain(self.configuration.notes.iter().cloned())
            .collect()
    }

    /// For terminals.
    pub fn text(&self) -> String {
        let Configuration { name, title, source, .. } = &self.configuration;
        let mut text = format!("{name}: {title}\nafter {source}\n");
        for case in &self.cases {
            let _ = write!(text, "\n{} ({})\n  published: {}\n", case.name, case.verdict(), case.published);
            if let Some(why) = case.reason() {
                let _ = writeln!(text, "  ours: {why}");
            }
            for (pool, busy) in case.busy.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "  pool {pool}, disks busy {:<9}{:>7}{:>9}{:>9}{:>9}{:>9}{:>13}",
                    percents(busy),
                    "needs/s",
                    "got/s",
                    "MB/s",
                    "mean ms",
                    "p99 ms",
                    "outstanding"
                );
                for client in case.clients.iter().filter(|client| client.pool == pool) {
                    let needs = client.needs_iops.map_or(String::new(), |needs| needs.to_string());
                    let _ = writeln!(
                        text,
                        "    {:<27}{needs:>7}{:>9.0}{:>9.1}{:>9.2}{:>9.2}{:>13.2}  {}",
                        client.workload,
                        client.iops,
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
