//! The runs of a report: each is a case with a seed, or one point of a curve. They are independent of each other, so they are done side by side.

use crate::check_littles_law;
use crate::configuration::Configuration;
use crate::model::{Outcome, run};
use std::sync::atomic::{AtomicUsize, Ordering};

/// One run: a case with a seed, or one point of its curve.
pub struct Job {
    pub configuration: usize,
    pub case: usize,
    pub seed: u64,
    pub load: Option<u32>,
}

impl Job {
    fn run(&self, configurations: &[Configuration]) -> Result<Outcome, String> {
        let mut own = configurations[self.configuration].clone();
        let case = own.cases[self.case].clone();
        let machine = &mut own.machine;
        machine.warm_seconds = case.warm_seconds.unwrap_or(machine.warm_seconds);
        machine.seconds = case.seconds.unwrap_or(machine.seconds);
        if let (Some(load), Some(curve)) = (self.load, &case.curve) {
            machine.seconds = curve.seconds;
            machine.warm_seconds = machine.warm_seconds.min(curve.seconds);
            let closed = own.workloads.iter_mut().map(|client| &mut client.workload);
            for workload in closed.filter(|workload| workload.is_closed()) {
                workload.outstanding = load * workload.streams;
            }
        }
        let (configuration, case) = (&own, &case);
        let failed =
            |error: String| format!("{}, {}, seed {}: {error}", configuration.name, case.name, self.seed);
        let outcome = run(configuration, case, self.seed).map_err(failed)?;
        for got in &outcome.clients {
            let client = configuration.client(&got.workload).expect("it ran");
            check_littles_law(&client.workload, &got.tally).map_err(failed)?;
        }
        Ok(outcome)
    }
}

/// How many runs are complete, and how many there are.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Does all jobs, as many at a time as there are processors, and gives their outcomes in their order.
pub fn run_all(
    configurations: &[Configuration],
    jobs: &[Job],
    progress: Progress<'_>,
) -> Result<Vec<Outcome>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, complete) = (AtomicUsize::new(0), AtomicUsize::new(0));
    progress(0, jobs.len());
    let worker = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { return done };
            done.push((number, job.run(configurations)));
            progress(complete.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        }
    };
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let ended = workers.into_iter().map(|worker| worker.join());
        ended.collect::<Result<Vec<_>, _>>().map(|done| done.into_iter().flatten().collect::<Vec<_>>())
    })
    .map_err(|_| "the engine stopped because of a bug; its message is above".to_string())?;
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}
