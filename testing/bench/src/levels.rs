//! `forebay-bench --levels`: does a volume get what its service level promises, whatever its neighbours do?
//!
//! The daemon with a pool on one file, measured by itself, and clients over NBD. One volume is asked for so many requests a second by clients that do not wait
//! for answers: a request's time begins when it is due. Six neighbours want all they can get. Runs take turns, in an order that rotates: alone, beside them, and
//! beside them without the level. All that is read is held against what was written. On a machine that does other work, and stalls, look first at what the volume gets alone.
//!
//! What fails is wrong content, an error, and a change of the level that changes nothing. Figures that miss their goal are told.

mod clients;
mod scheduler;
mod watching;

use crate::measure::{Direction, FIRST_WRITES, Median, Places, SEQUENTIAL_WRITE, Samples, Work};
use crate::report::{self, Figure, at_least, at_most};
use crate::{MEMORY, progress, written_file};
use clients::{Answer, Area, BLOCK, Client, Demand, Tally};
use forebay_base::{GIB, MIB};
use forebay_e2e::host::{Context, Directory, Outcome};
use forebay_e2e::server::{Forebay, Server};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Of the lesser rate that was measured, the volume is promised a quarter, but no more than this.
const FLOOR_PART: u64 = 4;
const FLOOR_MAX: u64 = 4000;
const GOAL: Duration = Duration::from_millis(10);
/// Who ask for the volume's requests: so many can be on their way.
const CRITICAL_CLIENTS: usize = 64;
const CRITICAL: Work = Work { direction: Direction::Mixed, depth: 1, ..FIRST_WRITES };

/// The clients on each volume beside it. With a scrub and the deletion of a snapshot they are six.
const NEIGHBOURS: [(&str, &[Work]); 4] = [
    ("flood", &[Work { direction: Direction::Read, ..FLOOD }, Work { direction: Direction::Write, ..FLOOD }]),
    ("writers", &[Work { depth: 4, ..SEQUENTIAL_WRITE }; 2]),
    ("backup", &[Work { direction: Direction::Read, depth: 4, ..SEQUENTIAL_WRITE }]),
    ("boot", &[Work { direction: Direction::Read, size: 32 << 10, depth: 16, ..FIRST_WRITES }; 4]),
];
const FLOOD: Work = Work { depth: 128, ..FIRST_WRITES };

const VOLUME: &str = "e2e/critical";
const SNAPSHOT: &str = "e2e/overwritten@before";
/// The level that promises, and two that differ in nothing but the class.
const PROMISED: &str = "promised";
const LEAST: &str = "least";
const MOST: &str = "most";
/// A change must bring so many times the share at least: less would be no effect.
const EFFECT: f64 = 1.25;
const BIN: Duration = Duration::from_millis(100);

/// How much is measured.
struct Scale {
    file: u64,
    /// Bytes of each volume.
    volume: u64,
    repetitions: usize,
    /// What neighbours do before anything counts, and whole seconds that count.
    before: Duration,
    seconds: u64,
    /// Before a change and after it.
    bins: usize,
    calls: u64,
}

const FULL: Scale = Scale {
    file: 6 * GIB,
    volume: 256 * MIB,
    repetitions: 3,
    before: Duration::from_secs(2),
    seconds: 12,
    bins: 30,
    calls: 1_000_000,
};
const QUICK: Scale = Scale {
    file: 2 * GIB,
    volume: 64 * MIB,
    repetitions: 1,
    before: Duration::from_millis(500),
    seconds: 3,
    bins: 10,
    calls: 10_000,
};

pub fn run(server: &Path, quick: bool) -> Outcome {
    let scale = if quick { QUICK } else { FULL };
    let start = Instant::now();
    let directory = Directory::new("levels")?;
    let disk = written_file(&directory, "disk", scale.file)?;
    let server = server.canonicalize().context(server.display())?;
    let server = Forebay::create_on(&server, &directory, "single", vec![disk], MEMORY.0)?;
    let mut bench = Bench::new(server, scale)?;
    let mut figures = bench.promises()?;
    figures.extend(bench.change()?);
    let calls = bench.scale.calls;
    figures.push(Figure::new(
        "scheduler, nothing waits: ns a request",
        scheduler::alone(calls),
        at_most(1000.0),
    ));
    figures.push(Figure::new(
        "scheduler, 100 volumes wait: ns a request",
        scheduler::crowded(calls),
        at_most(1000.0),
    ));
    // Two in a hundred of the 5 µs of processor that a request over NBD should take in all.
    figures.push(Figure::new(
        "analytics, at the client: ns a request",
        watching::client(calls),
        at_most(80.0),
    ));
    figures.push(Figure::new("analytics, at the disk: ns a request", watching::disk(calls), at_most(20.0)));
    report::print(&figures, quick);
    println!(
        "\n{} repetitions of {} s, {} cores, {:.0} s in all",
        bench.scale.repetitions,
        bench.scale.seconds,
        thread::available_parallelism().map_or(0, usize::from),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// How the volume is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Alone,
    Promised,
    Unpromised,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Alone, Kind::Promised, Kind::Unpromised];

    fn name(self) -> &'static str {
        match self {
            Kind::Alone => "alone",
            Kind::Promised => "beside six",
            Kind::Unpromised => "beside six, without the level",
        }
    }
}

/// What came of asking for as much as is promised.
struct Run {
    /// Requests of the second with the fewest, beside those promised.
    fewest: f64,
    /// Of all seconds, those within the latency goal.
    in_time: f64,
    p99_ms: f64,
    /// What neighbours got.
    mb_per_s: f64,
    /// What the ledger says was done, beside what clients counted.
    ledger: f64,
}

/// What clients count while others look on.
struct Load {
    mine: Tally,
    neighbours: Tally,
}

struct Bench {
    server: Forebay,
    scale: Scale,
    rate: u64,
    critical: Vec<Area>,
    neighbours: Vec<(Work, Area)>,
    /// Of the volume whose snapshot is deleted.
    overwritten: Area,
}

impl Bench {
    /// Measures the pool, makes levels and volumes, and fills these.
    fn new(mut server: Forebay, scale: Scale) -> Outcome<Bench> {
        progress("measuring the pool");
        server.cli(&["pool", "calibrate", "e2e"])?;
        let status = json(&server.cli(&["pool", "status", "e2e", "--json"])?)?;
        let iops =
            ["read_iops", "write_iops"].map(|kind| status["items"][0]["status"]["speed"][kind].as_u64());
        let [Some(reads), Some(writes)] = iops else {
            return Err(format!("the pool was not measured: {status}"));
        };
        println!("pool as measured: {reads} reads/s and {writes} writes/s of 8 KiB");
        let rate = (reads.min(writes) / FLOOR_PART).clamp(1, FLOOR_MAX);
        let (floor, goal) = (rate.to_string(), format!("{}ms", GOAL.as_millis()));
        let most = ["--class", "mission-critical"];
        server.cli(
            &[&["level", "create", PROMISED, "--min-iops", &floor, "--latency", &goal], &most[..]].concat(),
        )?;
        server.cli(&[&["level", "create", MOST], &most[..]].concat())?;
        server.cli(&["level", "create", LEAST, "--class", "non-critical"])?;

        let mut volumes = 0;
        let mut volume = |name: &str, clients: usize| -> Outcome<Vec<Area>> {
            progress(&format!("filling {name}"));
            let export = server.create_volume(name, scale.volume, "8K", true)?;
            volumes += 1;
            let mut area = Area::new(&export, volumes);
            let whole = Places::whole(&SEQUENTIAL_WRITE, scale.volume);
            work(&server, &mut area, SEQUENTIAL_WRITE, whole)?;
            Ok(area.split(clients))
        };
        let critical = volume("critical", CRITICAL_CLIENTS)?;
        let mut neighbours = Vec::new();
        for (name, works) in NEIGHBOURS {
            neighbours.extend(works.iter().copied().zip(volume(name, works.len())?));
        }
        let overwritten = volume("overwritten", 1)?.remove(0);
        Ok(Bench { server, scale, rate, critical, neighbours, overwritten })
    }

    fn set_level(&self, level: &str) -> Outcome {
        self.server.cli(&["volume", "set", VOLUME, "--level", level]).map(drop)
    }

    /// What `look` sees while the volume is asked, and what it was answered.
    fn under_load<T>(
        &mut self,
        rate: Option<u64>,
        is_alone: bool,
        seed: u64,
        look: impl FnOnce(&Forebay, &Load) -> Outcome<T>,
    ) -> Outcome<(T, Vec<Answer>)> {
        if !is_alone {
            self.server.cli(&["snapshot", "create", SNAPSHOT])?;
            let places = Places::once(&FIRST_WRITES, self.scale.volume, seed);
            let half = places.first((self.scale.volume / BLOCK / 2) as usize);
            work(&self.server, &mut self.overwritten, FIRST_WRITES, half)?;
        }
        let (server, address, before) = (&self.server, self.server.address(), self.scale.before);
        let load = &Load { mine: Tally::default(), neighbours: Tally::default() };
        let (stop, demand) = (&AtomicBool::new(false), &Demand::new(rate));
        thread::scope(|scope| {
            let mine: Vec<_> = (self.critical.iter_mut().zip(seed..))
                .map(|(area, seed)| {
                    scope.spawn(move || {
                        Client::open(address, area, CRITICAL, seed)?.ask(demand, &load.mine, stop)
                    })
                })
                .collect();
            let mut others = Vec::new();
            if !is_alone {
                for (nth, (work, area)) in self.neighbours.iter_mut().enumerate() {
                    let places = Places::new(work, area.bytes(), seed + nth as u64);
                    others.push(scope.spawn(move || {
                        Client::open(address, area, *work, seed)?.drive(places, &load.neighbours, stop)
                    }));
                }
                others.push(scope.spawn(move || {
                    thread::sleep(before);
                    server.cli(&["snapshot", "delete", SNAPSHOT, "--yes"]).map(drop)
                }));
                others.push(scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        server.cli(&["pool", "scrub", "e2e"])?;
                    }
                    Ok(())
                }));
            }
            let seen = look(server, load);
            stop.store(true, Relaxed);
            let mut answers = Vec::new();
            for client in mine {
                answers.extend(client.join().map_err(|_| "a client panicked")??);
            }
            for other in others {
                other.join().map_err(|_| "a neighbour panicked")??;
            }
            Ok((seen?, answers))
        })
    }

    /// Is what was promised kept?
    fn promises(&mut self) -> Outcome<Vec<Figure>> {
        let mut runs = [const { Vec::new() }; Kind::ALL.len()];
        for repetition in 0..self.scale.repetitions {
            for turn in 0..Kind::ALL.len() {
                let at = (turn + repetition) % Kind::ALL.len();
                let kind = Kind::ALL[at];
                progress(&format!("{}/{}: {}", repetition + 1, self.scale.repetitions, kind.name()));
                runs[at].push(self.promise(kind, (repetition * 1000 + 1) as u64)?);
            }
        }
        let median = |kind: Kind, of: fn(&Run) -> f64| Median::of(runs[kind as usize].iter().map(of)).value;
        let mut figures =
            vec![Figure::new("requests a second promised, and asked for", self.rate as f64, None)];
        for kind in Kind::ALL {
            let is_kept = kind == Kind::Promised;
            let figure = |name: &str, of, goal: f64| {
                let goal = is_kept.then_some(goal).and_then(at_least);
                Figure::new(format!("{}: {name}", kind.name()), median(kind, of), goal)
            };
            figures.push(figure("requests of the second with the fewest ÷ promised", |run| run.fewest, 0.95));
            figures.push(figure("part of the seconds within the latency goal", |run| run.in_time, 0.995));
            figures.push(Figure::new(
                format!("{}: p99, ms", kind.name()),
                median(kind, |run| run.p99_ms),
                None,
            ));
        }
        // Of runs that follow each other: the machine is not the same later.
        let ratio = |name: &str, than: Kind, of: fn(&Run) -> f64, goal| {
            let pairs = runs[Kind::Promised as usize].iter().zip(&runs[than as usize]);
            Figure::new(name, Median::of(pairs.map(|(run, other)| of(run) / of(other))).value, goal)
        };
        figures.push(ratio("p99, beside six ÷ alone", Kind::Alone, |run| run.p99_ms, at_most(1.5)));
        figures.push(ratio("p99, with the level ÷ without", Kind::Unpromised, |run| run.p99_ms, None));
        let bytes = "bytes of neighbours, with the level ÷ without";
        figures.push(ratio(bytes, Kind::Unpromised, |run| run.mb_per_s, at_least(0.95)));
        let ledger = median(Kind::Promised, |run| run.ledger);
        figures.push(Figure::new("requests done, ledger ÷ clients", ledger, Some(0.99..=1.01)));
        Ok(figures)
    }

    fn promise(&mut self, kind: Kind, seed: u64) -> Outcome<Run> {
        self.set_level(if kind == Kind::Unpromised { "none" } else { PROMISED })?;
        let (rate, before, seconds) = (self.rate, self.scale.before, self.scale.seconds);
        let look = |server: &Forebay, load: &Load| {
            thread::sleep(before);
            let (begun, bytes) = (Instant::now(), load.neighbours.bytes.load(Relaxed));
            // Its seconds begin when they like: it has one less that is over.
            let ledger =
                server.cli(&["top", "qos", "e2e", "--json", "--count", &(seconds - 1).to_string()])?;
            thread::sleep((begun + Duration::from_secs(seconds)).saturating_duration_since(Instant::now()));
            let bytes = load.neighbours.bytes.load(Relaxed) - bytes;
            Ok((begun, bytes as f64 / begun.elapsed().as_secs_f64() / 1e6, ledger))
        };
        let ((begun, mb_per_s, ledger), answers) =
            self.under_load(Some(rate), kind == Kind::Alone, seed, look)?;
        let mut all = Samples::default();
        let mut each: Vec<Samples> = (0..seconds).map(|_| Samples::default()).collect();
        for answer in &answers {
            let since = answer.at.checked_duration_since(begun).map(|since| since.as_secs() as usize);
            if let Some(second) = since.and_then(|nth| each.get_mut(nth)) {
                second.add(answer.took.as_nanos() as u64);
                all.add(answer.took.as_nanos() as u64);
            }
        }
        let each: Vec<_> = each.into_iter().map(|samples| samples.measured(&CRITICAL, 1.0, 0.0)).collect();
        let is_in_time = |p99_us: f64| p99_us <= GOAL.as_micros() as f64;
        let in_time = each.iter().filter(|second| second.iops > 0.0 && is_in_time(second.p99_us)).count();
        Ok(Run {
            fewest: each.iter().map(|second| second.iops).fold(f64::INFINITY, f64::min) / rate as f64,
            in_time: in_time as f64 / seconds as f64,
            p99_ms: all.measured(&CRITICAL, seconds as f64, 0.0).p99_us / 1000.0,
            mb_per_s,
            ledger: beside_ledger(&ledger, &answers)?,
        })
    }

    /// How soon after a change of its level a volume that wants all it can get has the share of the new one.
    fn change(&mut self) -> Outcome<Vec<Figure>> {
        let (before, bins) = (self.scale.before, self.scale.bins);
        let mut runs = Vec::new();
        for repetition in 0..self.scale.repetitions {
            progress(&format!("{}/{}: a change of the level", repetition + 1, self.scale.repetitions));
            self.set_level(LEAST)?;
            let look = |server: &Forebay, load: &Load| {
                thread::sleep(before);
                let lesser = shares(load, bins);
                server.cli(&["volume", "set", VOLUME, "--level", MOST])?;
                Ok([lesser, shares(load, bins)])
            };
            let (seen, _) = self.under_load(None, false, (repetition * 1000 + 500) as u64, look)?;
            runs.push(seen);
        }
        let middle = |shares: &[f64]| Median::of(shares.iter().copied()).value;
        let lesser = Median::of(runs.iter().map(|[lesser, _]| middle(lesser))).value;
        // By then it is what it will be.
        let greater = Median::of(runs.iter().map(|[_, greater]| middle(&greater[bins / 2..]))).value;
        if greater < lesser * EFFECT {
            return Err(format!(
                "a change from non-critical to mission-critical has no effect: {lesser:.3} of all requests before, {greater:.3} after"
            ));
        }
        let risen = lesser + (greater - lesser) * 0.9;
        let taken = runs.iter().map(|[_, greater]| {
            let nth = greater.iter().position(|share| *share >= risen).unwrap_or(bins);
            BIN.as_secs_f64() * (nth + 1) as f64
        });
        Ok(vec![
            Figure::new("share of all requests, non-critical", lesser, None),
            Figure::new("share of all requests, mission-critical", greater, None),
            Figure::new(
                "seconds from the change until nine tenths of it are there",
                Median::of(taken).value,
                at_most(1.0),
            ),
        ])
    }
}

/// Does this with an area, and nothing else meanwhile.
fn work(server: &Forebay, area: &mut Area, work: Work, places: Places) -> Outcome {
    let client = Client::open(server.address(), area, work, 1)?;
    client.drive(places, &Tally::default(), &AtomicBool::new(false))
}

/// The volume's share of all requests in the next bins.
fn shares(load: &Load, bins: usize) -> Vec<f64> {
    let begun = Instant::now();
    let counts = || [&load.mine, &load.neighbours].map(|tally| tally.requests.load(Relaxed));
    let mut last = counts();
    let bin = |nth: usize| {
        thread::sleep((begun + BIN * (nth as u32 + 1)).saturating_duration_since(Instant::now()));
        let now = counts();
        let [mine, others] = [0, 1].map(|at| (now[at] - last[at]) as f64);
        last = now;
        mine / (mine + others).max(1.0)
    };
    (0..bins).map(bin).collect()
}

/// What the ledger's seconds say was done, beside the answers that came in them.
fn beside_ledger(lines: &str, answers: &[Answer]) -> Outcome<f64> {
    let now = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?);
    let (mut done, mut span, mut ended) = (0, Duration::ZERO, None);
    for line in lines.lines() {
        let second = json(line)?;
        let number =
            |value: &Value| value.as_u64().ok_or_else(|| format!("the ledger lacks a number: {second}"));
        for volume in second["volumes"].as_array().into_iter().flatten() {
            if volume["volume"] == VOLUME {
                done += number(&volume["done"])?;
            }
        }
        span += Duration::from_micros(number(&second["span_us"])?);
        let ended_unix = Duration::from_millis(number(&second["ended_unix_ms"])?);
        ended = Some(now.0 - now.1.saturating_sub(ended_unix));
    }
    let ended = ended.ok_or("the ledger is empty")?;
    let counted = answers.iter().filter(|answer| answer.at <= ended && answer.at > ended - span).count();
    Ok(done as f64 / counted as f64)
}

fn json(text: &str) -> Outcome<Value> {
    serde_json::from_str(text).context(text)
}
