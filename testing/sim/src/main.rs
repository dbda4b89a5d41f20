//! `sim`: crash exploration, the fault matrix, the planted bugs, and the replay of any failure.
//!
//! ```text
//! sim crash   [--images N] [--seed FIRST] [--per-seed N] [--exhaustive]   explore crash images of seeds FIRST, FIRST + 1 …
//! sim matrix  [--seed S] [--row NAME] [--operations N]     every fault over layouts and shard counts
//! sim matrix  --fresh N                                    every fault over one setup of each of N seeds, which are others for every commit
//! sim matrix  --minutes M [--seed S]                       the whole matrix from seed S on, seed after seed, for so long
//! sim planted [--bug NAME]                                 plant every bug and catch it
//! sim numbers                                              what redundancy costs on modelled disks
//! sim scale   [--volumes N] [--snapshots N] [--chunks N] [--shards N]   what many of them cost
//! sim replay  --seed S [--image K | --row NAME] [--bug NAME] [--events] [options of the run]
//! ```
//!
//! All take `--threads N` (default: one for each processor). Exit status 0: nothing was found (planted: everything was). Every failure prints
//! its seed, the commit and the command that makes it happen again.

use forebay_base::planted::{self, Bug};
use forebay_sim::crash::{self, Plan};
use forebay_sim::harness::Failure;
use forebay_sim::matrix::{self, ROWS, Row, Shown};
use forebay_sim::numbers;
use forebay_sim::scale;
use forebay_sim::setup::Setup;
use forebay_sim::suite;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const COMMIT: &str = env!("FOREBAY_COMMIT");

/// The command line: a verb and pairs of option and value.
struct Arguments {
    verb: String,
    options: Vec<(String, String)>,
}

impl Arguments {
    fn parse() -> Result<Arguments, String> {
        let mut words = std::env::args().skip(1);
        let verb =
            words.next().ok_or("a verb is missing: crash, matrix, planted, numbers, scale or replay")?;
        let mut options = Vec::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| format!("{word:?} is not an option"))?;
            let value = if ["exhaustive", "events"].contains(&name) {
                "true".into()
            } else {
                words.next().ok_or_else(|| format!("--{name} needs a value"))?
            };
            options.push((name.to_string(), value));
        }
        Ok(Arguments { verb, options })
    }

    /// Takes an option out.
    fn take(&mut self, name: &str) -> Option<String> {
        let index = self.options.iter().position(|(option, _)| option == name)?;
        Some(self.options.remove(index).1)
    }

    fn number(&mut self, name: &str, default: u64) -> Result<u64, String> {
        let Some(value) = self.take(name) else { return Ok(default) };
        value.parse().map_err(|_| format!("--{name} takes a number, not {value:?}"))
    }

    fn bug(&mut self) -> Result<Option<Bug>, String> {
        let Some(name) = self.take("bug") else { return Ok(None) };
        let bug = Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name);
        bug.map(Some).ok_or_else(|| format!("there is no bug {name:?}"))
    }

    fn row(&mut self) -> Result<Option<&'static Row>, String> {
        let Some(name) = self.take("row") else { return Ok(None) };
        let row = ROWS.iter().find(|row| row.name == name);
        row.map(Some).ok_or_else(|| format!("there is no row {name:?}"))
    }

    fn nothing_else(&self) -> Result<(), String> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!("{} does not know --{name}", self.verb)),
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(usage) => {
            eprintln!("sim: {usage}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let mut arguments = Arguments::parse()?;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = arguments.number("threads", processors as u64)? as usize;
    match arguments.verb.as_str() {
        "crash" => {
            let first = arguments.number("seed", 0)?;
            let images = arguments.number("images", 10_000)?;
            let mut plan = Plan::default();
            plan.images = arguments.number("per-seed", plan.images)?;
            plan.exhaustive = arguments.take("exhaustive").is_some();
            arguments.nothing_else()?;
            Ok(explore(first, images, plan, threads))
        }
        "matrix" => {
            let seed = arguments.number("seed", 0)?;
            let operations = Some(arguments.number("operations", 0)?).filter(|operations| *operations > 0);
            let only = arguments.row()?;
            let (fresh, minutes) = (arguments.number("fresh", 0)?, arguments.number("minutes", 0)?);
            arguments.nothing_else()?;
            let extent = match (fresh, minutes) {
                (0, 0) => Extent::Whole,
                (fresh, 0) => Extent::Fresh(fresh),
                (_, minutes) => Extent::Until(Instant::now() + Duration::from_secs(60 * minutes)),
            };
            Ok(run_matrix(extent, seed, operations, only, threads))
        }
        "planted" => {
            let bugs = arguments.bug()?.map_or_else(suite::all, |bug| vec![bug]);
            arguments.nothing_else()?;
            Ok(run_planted(&bugs, threads))
        }
        "numbers" => {
            arguments.nothing_else()?;
            Ok(run_numbers())
        }
        "scale" => {
            let extent = scale::Extent {
                volumes: arguments.number("volumes", 1000)?.max(2) as usize,
                snapshots: arguments.number("snapshots", 10_000)? as usize,
                chunks: arguments.number("chunks", 10_000)? as usize,
                shards: arguments.number("shards", 1)?.max(1) as usize,
            };
            arguments.nothing_else()?;
            scale::run(extent).map_err(|failure| failure.to_string())?;
            Ok(true)
        }
        "replay" => replay(arguments),
        other => Err(format!("unknown verb {other:?}: crash, matrix, planted, numbers, scale or replay")),
    }
}

fn run_numbers() -> bool {
    let figures = match numbers::figures() {
        Ok(figures) => figures,
        Err(failure) => {
            println!("FAILED {failure}");
            return false;
        }
    };
    for figure in &figures {
        let goal = figure.goal.as_ref().map_or_else(String::new, |goal| {
            let verdict = if figure.is_met() { "met" } else { "MISSED" };
            format!("   goal {} to {}: {verdict}", goal.start(), goal.end())
        });
        println!("{:64} {:8.2}{goal}", figure.name, figure.value);
    }
    figures.iter().all(numbers::Figure::is_met)
}

/// Prints a failure with everything needed to see it again.
fn report(setup: &Setup, what: &str, failure: &Failure) {
    println!("FAILED {failure}");
    println!("  seed {} · commit {COMMIT}", setup.seed);
    println!("  cargo run --profile test -p forebay-sim -- replay {}{what}", setup.options());
}

/// Runs `job` for the numbers 0.. on `threads` threads until it says that this is enough.
fn parallel(threads: usize, job: impl Fn(usize) -> bool + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            // The engine's futures are deep in builds that are not optimised.
            let builder = std::thread::Builder::new().stack_size(16 << 20);
            let worker = || while job(next.fetch_add(1, Ordering::Relaxed)) {};
            builder.spawn_scoped(scope, worker).expect("a thread can be started");
        }
    });
}

fn explore(first: u64, images: u64, plan: Plan, threads: usize) -> bool {
    const FAILURES_MAX: u64 = 10;
    let [verified, failed, seeds, refused] = [const { AtomicU64::new(0) }; 4];
    let output = Mutex::new(());
    let began = Instant::now();
    parallel(threads, |index| {
        if verified.load(Ordering::Relaxed) >= images || failed.load(Ordering::Relaxed) >= FAILURES_MAX {
            return false;
        }
        let setup = Setup::from_seed(first + index as u64);
        let outcome = match crash::record(&setup) {
            Err(failure) => Err((failure, String::new(), String::new())),
            Ok(run) => crash::explore(&run, plan, None)
                .inspect(|_| {
                    refused.fetch_add(run.excused, Ordering::Relaxed);
                })
                .map_err(|found| {
                    let number = found.image.map_or(String::new(), |image| format!(" --image {image}"));
                    let extent = plan_options(&plan);
                    (found.failure.clone(), format!("{number}{extent}"), found.story.clone())
                }),
        };
        seeds.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(count) => {
                verified.fetch_add(count, Ordering::Relaxed);
            }
            Err((failure, options, story)) => {
                failed.fetch_add(1, Ordering::Relaxed);
                let _one_at_a_time = output.lock().expect("no holder of this lock panics");
                report(&setup, &options, &failure);
                if !story.is_empty() {
                    println!("  {story}");
                }
            }
        }
        true
    });
    let (verified, failed) = (verified.into_inner(), failed.into_inner());
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{verified} crash images of {} workloads in {seconds:.1} s: {:.0} images/minute on {threads} threads; {} operations refused for want of space; {failed} failed",
        seeds.into_inner(),
        verified as f64 / seconds * 60.0,
        refused.into_inner()
    );
    failed == 0
}

/// What a replay needs to know of a plan that is not the default.
fn plan_options(plan: &Plan) -> String {
    let mut text = String::new();
    if plan.images != Plan::default().images {
        text += &format!(" --per-seed {}", plan.images);
    }
    if plan.exhaustive {
        text += " --exhaustive";
    }
    text
}

/// What all setups have shown of a row.
#[derive(Clone, Copy, Default)]
struct Total {
    shown: Shown,
    runs: u64,
    failed: u64,
    took: Duration,
}

/// How much of the matrix runs.
#[derive(Clone, Copy)]
enum Extent {
    /// Every row over all setups of one seed.
    Whole,
    /// Every row over one setup of each of so many seeds that the commit gives.
    Fresh(u64),
    /// Every row over all setups of one seed after the other.
    Until(Instant),
}

/// Seeds that are others for every commit, and the same ones for the same.
fn fresh_seeds(count: u64) -> Vec<u64> {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let first = COMMIT.bytes().fold(0xcbf2_9ce4_8422_2325, mix) % 1_000_000_000;
    (0..count).map(|nth| 1_000_000 + first * 1000 + nth * 20).collect()
}

/// Seeds between one matrix and the next: more than it has setups.
const SEEDS_APART: u64 = 1000;

/// What of the matrix runs, row by row.
fn jobs(extent: Extent, seed: u64, operations: Option<u64>) -> Vec<(usize, Setup)> {
    match extent {
        Extent::Fresh(count) => {
            let seeds = fresh_seeds(count);
            println!("fresh seeds of commit {COMMIT}: {seeds:?}");
            matrix::sample(seeds, operations)
        }
        Extent::Whole | Extent::Until(_) => {
            let setups = matrix::setups(seed, operations);
            let all = (0..ROWS.len()).flat_map(|row| setups.iter().map(move |setup| (row, setup.clone())));
            all.filter(|(row, setup)| (ROWS[*row].applies)(setup)).collect()
        }
    }
}

fn run_matrix(
    extent: Extent,
    mut seed: u64,
    operations: Option<u64>,
    only: Option<&'static Row>,
    threads: usize,
) -> bool {
    let mut is_good = true;
    loop {
        let is_wanted = |(row, _): &(usize, Setup)| only.is_none_or(|only| only.name == ROWS[*row].name);
        let jobs = jobs(extent, seed, operations).into_iter().filter(is_wanted).collect();
        is_good &= run_jobs(jobs, extent, threads);
        match extent {
            Extent::Until(end) if Instant::now() < end => seed += SEEDS_APART,
            _ => return is_good,
        }
    }
}

fn run_jobs(jobs: Vec<(usize, Setup)>, extent: Extent, threads: usize) -> bool {
    let totals: Vec<Mutex<Total>> = ROWS.iter().map(|_| Mutex::default()).collect();
    let good = AtomicBool::new(true);
    let began = Instant::now();
    parallel(threads, |index| {
        let Some((row, setup)) = jobs.get(index) else { return false };
        let (row, begun) = (*row, Instant::now());
        if matches!(extent, Extent::Until(end) if begun > end) {
            return false;
        }
        let result = (ROWS[row].run)(setup);
        let mut total = totals[row].lock().expect("no holder of this lock panics");
        total.runs += 1;
        total.took += begun.elapsed();
        match result {
            Ok(shown) => total.shown += shown,
            Err(failure) => {
                total.failed += 1;
                good.store(false, Ordering::Relaxed);
                report(setup, &format!(" --row {}", ROWS[row].name), &failure);
            }
        }
        true
    });
    println!(
        "{:17} {:>6} {:>6} {:>7} {:>7} {:>7} {:>9} failed  fault",
        "row", "setups", "took s", "cases", "faults", "errors", "repaired"
    );
    for (row, total) in ROWS.iter().zip(&totals) {
        let Total { shown, runs, failed, took } = *total.lock().expect("no holder of this lock panics");
        if runs == 0 {
            continue;
        }
        let Shown { cases, faults, errors, repaired } = shown;
        println!(
            "{:17} {runs:6} {:6.1} {cases:7} {faults:7} {errors:7} {repaired:9} {failed:6}  {} ({})",
            row.name,
            took.as_secs_f64(),
            row.fault,
            row.holds
        );
        if row.strikes && faults == 0 && failed == 0 && matches!(extent, Extent::Whole) {
            println!("FAILED row {}: no fault struck, so nothing was shown", row.name);
            good.store(false, Ordering::Relaxed);
        }
    }
    let runs: u64 =
        totals.iter().map(|total| total.lock().expect("no holder of this lock panics").runs).sum();
    println!("{runs} runs in {:.1} s · commit {COMMIT}", began.elapsed().as_secs_f64());
    good.into_inner()
}

fn run_planted(bugs: &[Bug], threads: usize) -> bool {
    let missed = AtomicUsize::new(0);
    parallel(threads, |index| {
        let Some(&bug) = bugs.get(index) else { return false };
        let verdict = suite::hunt(bug);
        let bug = format!("{bug:?}");
        // At once: a suite that is cut off has said what it was at.
        match verdict.caught {
            Some(caught) => {
                let why: String = caught.failure.to_string().chars().take(100).collect();
                println!("{bug:26} caught after {:5} cases by {}: {why}", caught.cases, caught.by);
            }
            None => {
                missed.fetch_add(1, Ordering::Relaxed);
                let reached = if verdict.met == 0 { "its site was never reached" } else { "MISSED" };
                println!("{bug:26} {reached}, {} cases", verdict.cases);
            }
        }
        true
    });
    let missed = missed.into_inner();
    println!("{} of {} planted bugs caught · commit {COMMIT}", bugs.len() - missed, bugs.len());
    missed == 0
}

fn replay(mut arguments: Arguments) -> Result<bool, String> {
    let seed = arguments.take("seed").ok_or("replay needs --seed")?;
    let mut setup =
        Setup::from_seed(seed.parse().map_err(|_| format!("--seed takes a number, not {seed:?}"))?);
    let image = arguments.take("image").map(|text| text.parse::<u64>()).transpose();
    let image = image.map_err(|_| "--image takes a number".to_string())?;
    let (row, bug) = (arguments.row()?, arguments.bug()?);
    let mut plan = Plan::default();
    plan.images = arguments.number("per-seed", plan.images)?;
    plan.exhaustive = arguments.take("exhaustive").is_some();
    forebay_sim::harness::TELL_EVENTS.set(arguments.take("events").is_some());
    for (name, value) in std::mem::take(&mut arguments.options) {
        if !setup.set(&name, &value)? {
            return Err(format!("replay does not know --{name}"));
        }
    }
    planted::plant(bug);
    println!("{setup:?}");
    let result = match row {
        Some(row) => (row.run)(&setup).map(|shown| format!("{shown:?}")),
        None => crash::record(&setup).and_then(|run| {
            println!("trace {:016x}, {} events", run.trace, run.recording.events.len());
            crash::explore(&run, plan, image)
                .map(|images| format!("{images} images"))
                .map_err(|found| found.failure.because(&found.story))
        }),
    };
    match result {
        Ok(shown) => println!("passed: {shown}"),
        Err(failure) => {
            println!("FAILED {failure}\n  commit {COMMIT}");
            return Ok(false);
        }
    }
    Ok(true)
}
