//! What came of a configuration, beside what was published of it.
//!
//! A case is run once for each seed. Counts and histograms of all runs are put together before a percentile is read from them, and how far the runs
//! are apart is told beside the mean. Runs are independent of each other and of the order in which they are done, so they are done side by side.

use crate::configuration::{Case, Configuration, Fails, Figure, Measure, Pool};
use crate::jobs::{Job, Progress, run_all};
use crate::live::LiveReport;
use crate::model::{Failure, Got, Outcome};
use forebay_pool::Standing;
use forebay_workload::{Tally, Workload};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Of its rate a client must get so much for its need to be met: its last requests of a run may be answered after the end.
const MET: f64 = 0.99;
/// By so much a closed loop may miss Little's law: times are whole nanoseconds.
const LITTLE: f64 = 0.005;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    pub configuration: Configuration,
    /// The first one; the others follow it.
    pub seed: u64,
    pub seeds: u64,
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureReport>,
    pub clients: Vec<ClientReport>,
    /// Of the measured time, for each pool: of the disk that worked least, of all, and of the one that worked most.
    pub busy: Vec<[f64; 3]>,
    /// What part of their time all processors worked, where they take any.
    pub processors: Option<f64>,
    /// Bytes a second over all ports, each counted once, to the pools and from them.
    pub network: [f64; 2],
    pub disk_requests: u64,
    pub curve: Vec<LoadReport>,
    /// The same on a running pool, if one was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveReport>,
}

/// A disk that failed in the first seed's run, in seconds since the measurement began; what did not happen in that time is nothing.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FailureReport {
    pub pool: usize,
    /// By its number from 0 through all groups of the pool.
    pub disk: u32,
    pub after_seconds: u64,
    pub noticed: Option<f64>,
    pub spare_used: Option<f64>,
    pub rebuilt: Option<f64>,
    /// Bytes that were written to disks that stood by.
    pub to_spares: u64,
    /// Bytes of it that were rebuilt and that were left, where it was under way at the end.
    pub under_way: Option<[u64; 2]>,
}

/// A case with so many requests of each closed loop at a time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadReport {
    pub outstanding: u32,
    /// Of all its clients.
    pub iops: f64,
    pub mean_ms: f64,
    pub p99_ms: f64,
}

/// A published figure beside ours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FigureReport {
    pub workload: String,
    pub measure: Measure,
    /// The case that it is a ratio to, if it is one.
    pub over: Option<String>,
    /// And the workload there, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_workload: Option<String>,
    pub published: f64,
    /// The model's, and the least and the most of the seeds; nothing where only a running pool was asked.
    pub ours: Option<f64>,
    pub between: Option<[f64; 2]>,
    /// The running pool's, where one was asked and its clients can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClientReport {
    pub workload: String,
    pub pool: usize,
    pub needs_iops: Option<u64>,
    pub min_iops: Option<u64>,
    pub iops: f64,
    /// The least and the most of the seeds.
    pub iops_between: [f64; 2],
    pub p99_ms_between: [f64; 2],
    /// Requests of the second that had the fewest.
    pub least_iops: u64,
    pub bytes_per_second: f64,
    pub mean_ms: f64,
    pub read_ms: f64,
    pub write_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    /// Where several requests make an order, and where a cache in the client answers some.
    pub orders_per_minute: Option<f64>,
    pub hits_per_second: Option<f64>,
    /// Bytes of data to what of the pool they take, where its volume is compressed.
    pub compression_ratio: Option<f64>,
    /// Requests that waited for their answers, on average.
    pub outstanding: f64,
    pub failed: u64,
    /// What its volume was promised was not kept: the pool has not enough for it.
    pub best_effort: bool,
    pub met: Option<bool>,
    /// Of the first seed, second by second: requests, and milliseconds that one took on average.
    pub seconds: Vec<(u64, f64)>,
    /// Of its phases, where it has some that were measured.
    pub phases: Vec<PhaseReport>,
}

/// What came of a phase in the first seed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PhaseReport {
    /// Seconds from the beginning of what was measured.
    pub from: u64,
    pub to: u64,
    pub rate: u64,
    pub iops: f64,
    pub most_iops: u64,
    pub mean_ms: f64,
    pub longest_ms: f64,
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn least_and_most(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, 0.0], |[least, most], value| [least.min(value), most.max(value)])
}

/// Whether a closed loop's rate, its requests' mean time and its time to think make the number of those who ask. Little, A proof for the queuing formula
/// L = λW, 1961: it holds for whatever happens in between, so a result that does not is a mistake of ours.
pub fn check_littles_law(workload: &Workload, tally: &Tally) -> Result<(), String> {
    if !workload.is_closed() || tally.failures() > 0 {
        return Ok(());
    }
    let asked = f64::from(workload.outstanding);
    let think = workload.think().as_secs_f64() / f64::from(workload.requests_per_order);
    let found = tally.iops() * (tally.all.mean().as_secs_f64() + think);
    // Who waits or thinks when it is begun or ended is counted with all of that time or none.
    let edges = 2.0 * (tally.all.longest().as_secs_f64() + workload.think().as_secs_f64()) / tally.duration();
    if (found / asked - 1.0).abs() > LITTLE + edges {
        return Err(format!(
            "{}: Little's law does not hold: {asked} requests are outstanding, but {:.1} IOPS with {:.3} ms and {:.3} ms think time make {found:.2}",
            workload.name,
            tally.iops(),
            milliseconds(tally.all.mean()),
            think * 1e3
        ));
    }
    Ok(())
}

impl ClientReport {
    /// Of the same client in the runs of all seeds.
    fn new(configuration: &Configuration, warm_seconds: u64, runs: &[&Got]) -> ClientReport {
        let first = runs[0];
        let client = configuration.client(&first.workload).expect("it ran");
        let needs = client.needs.map(|needs| needs.iops);
        let mut tally = first.tally.clone();
        runs[1..].iter().for_each(|run| tally.merge(&run.tally));
        let workload = &client.workload;
        let is_met = |tally: &Tally, needs: u64| tally.failures() == 0 && tally.iops() >= needs as f64 * MET;
        let between = |of: fn(&Tally) -> f64| least_and_most(runs.iter().map(|run| of(&run.tally)));
        let mean = |(requests, took): (u64, u64)| took as f64 / 1e6 / requests.max(1) as f64;
        let seconds = first.tally.seconds().iter();
        let (mapped, stored) =
            runs.iter().fold((0, 0), |(mapped, stored), run| (mapped + run.mapped, stored + run.stored));
        ClientReport {
            workload: first.workload.clone(),
            pool: first.pool,
            needs_iops: needs,
            min_iops: client.level.as_ref().map(|level| level.min_iops).filter(|floor| *floor > 0),
            iops: tally.iops(),
            iops_between: between(Tally::iops),
            p99_ms_between: between(|tally| milliseconds(tally.all.quantile(990))),
            least_iops: tally.least(),
            bytes_per_second: tally.bytes_per_second(),
            mean_ms: milliseconds(tally.all.mean()),
            read_ms: milliseconds(tally.reads.mean()),
            write_ms: milliseconds(tally.writes.mean()),
            p50_ms: milliseconds(tally.all.quantile(500)),
            p99_ms: milliseconds(tally.all.quantile(990)),
            p999_ms: milliseconds(tally.all.quantile(999)),
            orders_per_minute: (workload.requests_per_order > 1).then(|| tally.orders_per_second() * 60.0),
            hits_per_second: workload.host_cache.map(|_| tally.hits_per_second()),
            compression_ratio: client
                .compression
                .as_ref()
                .filter(|_| stored > 0)
                .map(|_| mapped as f64 / stored as f64),
            outstanding: tally.outstanding(),
            failed: tally.failures(),
            best_effort: runs.iter().any(|run| run.standing == Some(Standing::BestEffort)),
            met: needs.map(|needs| runs.iter().all(|run| is_met(&run.tally, needs))),
            seconds: seconds.map(|second| (second.requests, mean((second.requests, second.took)))).collect(),
            phases: phases(warm_seconds, workload, &first.tally),
        }
    }

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

fn phases(warm_seconds: u64, workload: &Workload, tally: &Tally) -> Vec<PhaseReport> {
    let (mut begins, mut found) = (0, Vec::new());
    for (nth, phase) in workload.phases.iter().enumerate() {
        let is_last = nth + 1 == workload.phases.len();
        let ends = if is_last { u64::MAX } else { begins + phase.seconds };
        // Phases begin with the load, which is measured later.
        let measured = |second: u64| second.saturating_sub(warm_seconds).min(tally.seconds().len() as u64);
        let (from, to) = (measured(begins), measured(ends));
        begins = ends;
        let seconds = &tally.seconds()[from as usize..to as usize];
        if seconds.is_empty() {
            continue;
        }
        let sum = |of: fn(&forebay_workload::Second) -> u64| seconds.iter().map(of).sum::<u64>();
        let requests = sum(|second| second.requests);
        let most = |of: fn(&forebay_workload::Second) -> u64| seconds.iter().map(of).max().unwrap_or(0);
        found.push(PhaseReport {
            from,
            to,
            rate: phase.rate,
            iops: requests as f64 / seconds.len() as f64,
            most_iops: most(|second| second.requests),
            mean_ms: sum(|second| second.took) as f64 / 1e6 / requests.max(1) as f64,
            longest_ms: most(|second| second.longest) as f64 / 1e6,
        });
    }
    found
}

/// A time in words, or that it did not come to that.
fn after(seconds: Option<f64>, what: &str) -> String {
    seconds.map_or(format!("not {what} within the measurement"), |seconds| {
        format!("{what} after {seconds:.1} s")
    })
}

impl FailureReport {
    fn new(pool: &Pool, failure: &Failure) -> Option<FailureReport> {
        let Fails { disk, after_seconds } = pool.fails?;
        let Failure { pool, noticed, spare_used, rebuilt, to_spares, under_way } = *failure;
        Some(FailureReport { pool, disk, after_seconds, noticed, spare_used, rebuilt, to_spares, under_way })
    }

    /// In words.
    pub fn told(&self) -> String {
        let FailureReport { pool, disk, after_seconds, noticed, spare_used, rebuilt, to_spares, under_way } =
            self;
        let noticed = after(*noticed, "noticed");
        let spare = spare_used.map_or("no spare was used".into(), |at| {
            format!("a spare took its place after {at:.1} s and received {} MiB", to_spares >> 20)
        });
        let rebuilt = match (rebuilt, under_way) {
            (None, Some([done, left])) => {
                format!(
                    "{} MiB of its data were rebuilt within the measurement and {} MiB remained",
                    done >> 20,
                    left >> 20
                )
            }
            (rebuilt, _) => format!("its data was {}", after(*rebuilt, "rebuilt")),
        };
        format!(
            "disk {disk} of pool {pool} failed after {after_seconds} s, which was {noticed}; {spare}; {rebuilt}"
        )
    }
}

/// What all clients of a workload got together; times are means over their requests. Nothing of what clients cannot tell.
pub(crate) fn of_tallies(tallies: &[&Tally], measure: Measure) -> Option<f64> {
    let sum = |of: fn(&Tally) -> f64| tallies.iter().map(|tally| of(tally)).sum::<f64>();
    let mean = |of: fn(&Tally) -> &forebay_workload::Times| {
        let times = || tallies.iter().map(|tally| of(tally));
        let all = times().map(|times| milliseconds(times.mean()) * times.requests() as f64).sum::<f64>();
        all / times().map(|times| times.requests()).sum::<u64>().max(1) as f64
    };
    Some(match measure {
        Measure::Iops => sum(Tally::iops),
        Measure::Megabytes => sum(Tally::bytes_per_second) / 1e6,
        Measure::MeanMs => mean(|tally| &tally.all),
        Measure::ReadMs => mean(|tally| &tally.reads),
        Measure::WriteMs => mean(|tally| &tally.writes),
        Measure::OrdersPerMinute => sum(Tally::orders_per_second) * 60.0,
        Measure::HitsPerSecond => sum(Tally::hits_per_second),
        Measure::PoolRequests => sum(|tally| tally.iops() - tally.hits_per_second()),
        Measure::CompressionRatio | Measure::ProcessorPercent => return None,
    })
}

/// The same in one run of the model, which can tell all.
fn ours(outcome: &Outcome, workload: &str, measure: Measure) -> f64 {
    let of_it = || outcome.clients.iter().filter(|client| client.workload == workload);
    let sum = |of: fn(&Got) -> f64| of_it().map(of).sum::<f64>();
    match measure {
        Measure::CompressionRatio => {
            sum(|client| client.mapped as f64) / sum(|client| client.stored as f64).max(1.0)
        }
        Measure::ProcessorPercent => outcome.processors.unwrap_or(0.0) * 100.0,
        others => {
            let tallies: Vec<&Tally> = of_it().map(|client| &client.tally).collect();
            of_tallies(&tallies, others).expect("clients can tell")
        }
    }
}

impl FigureReport {
    /// `outcomes` are those of its case, `others` those of the case that it is a ratio to.
    fn new(figure: &Figure, outcomes: &[Outcome], others: Option<&[Outcome]>) -> FigureReport {
        let values = |outcomes: &[Outcome], workload: &str| -> Vec<f64> {
            outcomes.iter().map(|outcome| ours(outcome, workload, figure.measure)).collect()
        };
        let mut found = values(outcomes, &figure.workload);
        if let Some(others) = others {
            let workload = figure.over_workload.as_ref().unwrap_or(&figure.workload);
            found.iter_mut().zip(values(others, workload)).for_each(|(value, other)| *value /= other);
        }
        FigureReport {
            ours: Some(found.iter().sum::<f64>() / found.len() as f64),
            between: Some(least_and_most(found.iter().copied())),
            ..FigureReport::unmodelled(figure)
        }
    }

    /// As it was published.
    pub(crate) fn unmodelled(figure: &Figure) -> FigureReport {
        FigureReport {
            workload: figure.workload.clone(),
            measure: figure.measure,
            over: figure.over.clone(),
            over_workload: figure.over_workload.clone(),
            published: figure.value,
            ours: None,
            between: None,
            live: None,
        }
    }
}

impl LoadReport {
    fn new(outstanding: u32, outcome: &Outcome) -> LoadReport {
        let mut clients = outcome.clients.iter().map(|client| &client.tally);
        let mut all = clients.next().expect("a case has a workload").clone();
        let duration = all.duration();
        clients.for_each(|tally| all.merge(tally));
        LoadReport {
            outstanding,
            iops: all.all.requests() as f64 / duration,
            mean_ms: milliseconds(all.all.mean()),
            p99_ms: milliseconds(all.all.quantile(990)),
        }
    }
}

impl CaseReport {
    fn new(
        configuration: &Configuration,
        case: &Case,
        outcomes: &[Outcome],
        figures: Vec<FigureReport>,
        curve: Vec<LoadReport>,
    ) -> CaseReport {
        let client = |nth: usize| {
            let runs: Vec<&Got> = outcomes.iter().map(|outcome| &outcome.clients[nth]).collect();
            let warm_seconds = case.warm_seconds.unwrap_or(configuration.machine.warm_seconds);
            ClientReport::new(configuration, warm_seconds, &runs)
        };
        let clients: Vec<_> = (0..outcomes[0].clients.len()).map(client).collect();
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
        let runs = outcomes.len() as f64;
        let spread = |pool: usize| {
            let busy = || outcomes.iter().flat_map(|outcome| outcome.busy[pool].iter().copied());
            let [least, most] = least_and_most(busy());
            [least, busy().sum::<f64>() / busy().count().max(1) as f64, most]
        };
        let mean = |of: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / runs;
        let failure = |failure: &Failure| FailureReport::new(&case.pools[failure.pool], failure);
        CaseReport {
            name: case.name.clone(),
            published: case.published.clone(),
            figures,
            agrees,
            differs: case.differs.clone(),
            failures: outcomes[0].failures.iter().filter_map(failure).collect(),
            busy: (0..outcomes[0].busy.len()).map(spread).collect(),
            processors: outcomes[0].processors.map(|_| mean(&|outcome| outcome.processors.unwrap_or(0.0))),
            network: [0, 1].map(|way| mean(&|outcome| outcome.network[way])),
            disk_requests: outcomes.iter().map(|outcome| outcome.disk_requests).sum(),
            clients,
            curve,
            live: None,
        }
    }

    /// Whether there was a model of it.
    pub fn is_modelled(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Beside what was published, in words.
    pub fn verdict(&self) -> &'static str {
        match (self.agrees, &self.differs) {
            (Some(true), _) => "as published",
            (Some(false), Some(_)) => "other than published",
            (Some(false), None) => "other than published, without an explanation",
            (None, _) if self.published.is_empty() => "nothing was published",
            (None, _) if !self.is_modelled() => "live only",
            (None, _) => "published in words or figures only",
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

impl Report {
    /// Runs all cases of one configuration once.
    pub fn make(configuration: Configuration, seed: u64) -> Result<Report, String> {
        let mut made = Report::make_all(vec![configuration], seed, 1, &|_, _| {})?;
        Ok(made.remove(0))
    }

    /// Runs all cases of all configurations once with each of so many seeds.
    pub fn make_all(
        configurations: Vec<Configuration>,
        seed: u64,
        seeds: u64,
        progress: Progress<'_>,
    ) -> Result<Vec<Report>, String> {
        let seeds = seeds.max(1);
        let mut jobs = Vec::new();
        for (configuration, one) in configurations.iter().enumerate() {
            for (case, known) in one.cases.iter().enumerate() {
                let job = |seed, load| Job { configuration, case, seed, load };
                jobs.extend((seed..seed.saturating_add(seeds)).map(|seed| job(seed, None)));
                let loads = known.curve.iter().flat_map(|curve| &curve.outstanding);
                jobs.extend(loads.map(|load| job(seed, Some(*load))));
            }
        }
        let mut outcomes = run_all(&configurations, &jobs, progress)?.into_iter();
        let reports = configurations.into_iter().map(|configuration| {
            let mut runs = Vec::new();
            for case in &configuration.cases {
                let main: Vec<Outcome> = outcomes.by_ref().take(seeds as usize).collect();
                let loads = case.curve.iter().flat_map(|curve| curve.outstanding.iter().copied());
                let curve =
                    loads.zip(outcomes.by_ref()).map(|(load, outcome)| LoadReport::new(load, &outcome));
                runs.push((main, curve.collect::<Vec<_>>()));
            }
            Report::new(configuration, seed, seeds, runs)
        });
        Ok(reports.collect())
    }

    fn new(
        configuration: Configuration,
        seed: u64,
        seeds: u64,
        runs: Vec<(Vec<Outcome>, Vec<LoadReport>)>,
    ) -> Report {
        let of = |name: &String| {
            let nth = configuration.cases.iter().position(|case| case.name == *name)?;
            Some(runs[nth].0.as_slice())
        };
        let case = |(case, (outcomes, curve)): (&Case, &(Vec<Outcome>, Vec<LoadReport>))| {
            let figures = case.figures.iter();
            let figures =
                figures.map(|figure| FigureReport::new(figure, outcomes, figure.over.as_ref().and_then(of)));
            CaseReport::new(&configuration, case, outcomes, figures.collect(), curve.clone())
        };
        let cases = configuration.cases.iter().zip(&runs).map(case).collect();
        let devices = devices(&configuration);
        Report { seed, seeds, devices, cases, configuration }
    }

    /// What a reader needs to judge the figures and to make them again.
    pub fn conditions(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.is_modelled() {
            all.extend(self.model_conditions());
        }
        all.extend(self.live_conditions());
        all.extend(self.devices.iter().chain(&self.configuration.notes).cloned());
        all
    }

    fn model_conditions(&self) -> [String; 2] {
        let machine = &self.configuration.machine;
        let scale = machine.scale;
        let seeds = match self.seeds {
            1 => format!("seed {}", self.seed),
            seeds => format!("each of {seeds} seeds from {} on", self.seed),
        };
        let run = format!(
            "{} s were measured after {} s of the same load, unless a case says otherwise, with {seeds}. Disks and volumes were {scale} times smaller than configured, with \
             the same seeks and rates. Each pool had {} MiB of memory, which is {:.1} GiB for volumes of full size. All clients shared a network of {} ports of {} Gbit/s each way, which \
             carries messages one after the other.",
            machine.seconds,
            machine.warm_seconds,
            machine.memory_mib,
            (machine.memory_mib * scale) as f64 / 1024.0,
            machine.network_ports,
            machine.network_gbit
        );
        let processors = match &machine.processor {
            None => "Processors, memory and controllers take no time.",
            Some(_) => {
                "A request spends all its processor time before the pool sees it. Memory and controllers take no time."
            }
        };
        let terms = format!(
            "Met: at least 99 % of the needed IOPS with every seed. Times are means and percentiles; a percentile is at most an eighth too long. Requests with a rate are \
             timed from when they are due. Best effort: the pool cannot guarantee the volume's service level. With several seeds, the lowest and the highest \
             figure are given. {processors} Every closed loop was checked against Little's law."
        );
        [run, terms]
    }

    /// How far the comparison goes, in words, with reasons; nothing where nobody has said.
    pub fn likeness(&self) -> Option<(String, &[String])> {
        let likeness = self.configuration.likeness.as_ref()?;
        Some((likeness.verdict.to_string(), &likeness.reasons))
    }
}

/// Where the figures of a configuration's devices are from.
fn devices(configuration: &Configuration) -> Vec<String> {
    let machine = &configuration.machine;
    let of_pools = configuration.cases.iter().flat_map(|case| &case.pools);
    let devices = [Some(&machine.disk), machine.log.as_ref()].into_iter().flatten();
    let devices: BTreeSet<&String> = devices.chain(of_pools.filter_map(|pool| pool.disk.as_ref())).collect();
    let source = |name: &String| configuration.sheet(name).map(|(_, source)| format!("{name}: {source}"));
    let mut devices: Vec<String> = devices.into_iter().filter_map(source).collect();
    if let Some(processor) = &machine.processor {
        devices.push(format!("{} processors: {}", processor.cores, processor.source));
    }
    devices
}

/// How much disks worked: the least and the most of them.
pub(crate) fn percents([least, _, most]: &[f64; 3]) -> String {
    let [least, most] = [least, most].map(|part| (part * 100.0).round());
    if least == most { format!("{most} %") } else { format!("{least}–{most} %") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Nanos;
    use forebay_workload::{Request, Requests};

    const SECOND: u64 = 1_000_000_000;

    /// Two who ask for 10 ms each without a pause; `twice`: a mistake counts each answer two times.
    fn tally(workload: &Workload, think: u64, twice: bool) -> Tally {
        let mut tally = Tally::new(Nanos(0), Nanos(10 * SECOND));
        let mut requests = Requests::new(workload, 1 << 30, 1);
        let mut now = 0;
        while now < 10 * SECOND {
            let over = Nanos(now + 10_000_000);
            let request: Request = requests.next(0, 100);
            for _ in 0..workload.outstanding {
                (0..=u8::from(twice)).for_each(|_| tally.answered(Nanos(now), over, &request));
            }
            now = over.0 + think;
        }
        tally
    }

    #[test]
    fn littles_law_holds_and_who_breaks_it_is_found() {
        let workload = Workload { outstanding: 2, ..Workload::default() };
        assert_eq!(check_littles_law(&workload, &tally(&workload, 0, false)), Ok(()));
        let thinks = Workload { think_ms: 30, ..workload.clone() };
        assert_eq!(check_littles_law(&thinks, &tally(&thinks, 30_000_000, false)), Ok(()));
        // Planted: answers that are counted twice, one who asks without being counted, a pause that nobody knows of.
        let broken = [
            (workload.clone(), tally(&workload, 0, true)),
            (Workload { outstanding: 3, ..workload.clone() }, tally(&workload, 0, false)),
            (workload.clone(), tally(&workload, 3_000_000, false)),
        ];
        for (workload, tally) in broken {
            let error = check_littles_law(&workload, &tally).expect_err("it does not hold");
            assert!(error.contains("Little's law does not hold"), "{error}");
        }
        // A schedule is no closed loop.
        let scheduled = Workload { rate: Some(5), ..workload };
        assert_eq!(check_littles_law(&scheduled, &tally(&scheduled, 0, true)), Ok(()));
    }
}
