//! `forebay-bench --server PATH`: the device, the engine, its NBD and iSCSI servers and others', side by side.
//!
//! All systems stand on files of the same size on the same file system, written whole beforehand. They take turns:
//! each kind of work ([`measure::CHAPTERS`]) runs on every system before the next kind, in an order that rotates with the
//! repetition, so that a machine that gets slower or faster meanwhile does so for all. Medians over the repetitions are compared; the
//! spread (half the distance between the extremes) is printed beside them.
//!
//! What is measured is larger than every cache that can be kept small, and caches that can be bypassed are; the
//! remarks under the table say which. `--quick` shows in minutes that a changed benchmark runs; its figures mean nothing. While working on one
//! figure, `--only` runs just the works whose names contain a text (`--only "random read"`), `--engine` just the bare
//! device and the engine, `--iscsi` just iSCSI. `--import` times an import after a crash instead, `--parity` the code of parity, `--compression` what
//! compression saves and costs, `--services` what snapshots, streams, formats of volumes, checkpoints and lz4 cost, `--scaling` what a second core brings and how much memory a large volume takes, `--levels` whether the daemon keeps what service levels promise,
//! `--analytics` what counting costs,
//! `--instructions` counts what a request costs the engine in instructions, `--instructions-check` fails where that has grown.

mod analytics;
mod compression;
mod import;
mod instructions;
mod levels;
mod measure;
mod parity;
mod report;
mod scaling;
mod services;
mod systems;

use forebay_base::{GIB, MIB};
use forebay_e2e::host::{self, Context, Directory, Outcome, run};
use measure::{CHAPTERS, Chapter, FIRST_WRITES, ISCSI, ISCSI_PERF, MEMORY_CHAPTERS, State, Work};
use report::{Goal, Report};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use systems::{Bare, InProcess, System, UNIT, UNIT_ANY_BLOCK, Unit};

/// Which systems are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Everything,
    Engine,
    Iscsi,
    Parity,
    Compression,
    Services,
    Scaling,
    Levels,
    Analytics,
}

/// How much of it.
struct Scale {
    /// Bytes of each system's file, and of the volume or the range that is used of it: a pool needs room to write
    /// elsewhere.
    file: u64,
    volume: u64,
    /// Bytes of the volume of first writes.
    thin: u64,
    run: Duration,
    repetitions: u64,
}

impl Scale {
    /// The same on files in memory, of which there is less.
    fn in_memory(&self) -> Scale {
        Scale { file: self.file / 2, volume: self.volume / 2, ..*self }
    }
}

/// Forebay's cache: the smallest that its metadata fits in, so that the device is measured.
const MEMORY: (&str, u64) = ("64M", 64 * MIB);

/// Log records of `--import`.
const IMPORT_RECORDS: u64 = 4_000_000;

const FULL: Scale = Scale {
    file: 6 * GIB,
    volume: 3 * GIB + 512 * MIB,
    thin: 256 * MIB,
    run: Duration::from_millis(2000),
    repetitions: 3,
};
const QUICK: Scale = Scale {
    file: 512 * MIB,
    volume: 192 * MIB,
    thin: 16 * MIB,
    run: Duration::from_millis(100),
    repetitions: 1,
};

fn main() -> ExitCode {
    let mut server = None;
    let mut json = None;
    let mut scale = FULL;
    let mut only = String::new();
    let mut what = What::Everything;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--server" => server = arguments.next().map(PathBuf::from),
            "--json" => json = arguments.next().map(PathBuf::from),
            "--quick" => scale = QUICK,
            "--engine" => what = What::Engine,
            "--iscsi" => what = What::Iscsi,
            "--parity" => what = What::Parity,
            "--compression" => what = What::Compression,
            "--services" => what = What::Services,
            "--scaling" => what = What::Scaling,
            "--levels" => what = What::Levels,
            "--analytics" => what = What::Analytics,
            "--only" => match arguments.next() {
                Some(text) => only = text,
                None => return usage(),
            },
            "--import" => return verdict(import::run(number(&mut arguments).unwrap_or(IMPORT_RECORDS))),
            "--instructions" => {
                return verdict(instructions::run(&arguments.next().unwrap_or_default()));
            }
            "--instructions-check" => return verdict(instructions::check()),
            "--instructions-load" => {
                let (Some(disk), Some(work), Some(requests)) =
                    (arguments.next(), arguments.next(), number(&mut arguments))
                else {
                    return usage();
                };
                return verdict(instructions::load(Path::new(&disk), &work, requests as usize));
            }
            "--responder" => {
                let (Some(port), Some(size)) = (number(&mut arguments), number(&mut arguments)) else {
                    return usage();
                };
                return verdict(systems::respond(port, size));
            }
            "--import-fill" => {
                let (Some(disk), Some(records)) = (arguments.next(), number(&mut arguments)) else {
                    return usage();
                };
                return verdict(import::fill(Path::new(&disk), records));
            }
            _ => return usage(),
        }
    }
    let quick = scale.repetitions == QUICK.repetitions;
    match what {
        What::Parity => return verdict(parity::run(quick)),
        What::Compression => return verdict(compression::run(quick)),
        What::Services => return verdict(services::run(quick)),
        What::Scaling => return verdict(scaling::run(quick)),
        What::Everything | What::Engine | What::Iscsi | What::Levels | What::Analytics => {}
    }
    let Some(server) = server else { return usage() };
    host::prepare();
    if what == What::Levels {
        return verdict(levels::run(&server, quick));
    }
    if what == What::Analytics {
        return verdict(analytics::run(&server, quick));
    }
    verdict(bench(&server, &scale, &only, what, json.as_deref()))
}

fn number(arguments: &mut impl Iterator<Item = String>) -> Option<u64> {
    arguments.next()?.parse().ok()
}

fn verdict(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: forebay-bench --server PATH/TO/forebay [--json FILE] [--quick] [--engine | --iscsi] [--only TEXT]"
    );
    eprintln!("       forebay-bench --server PATH/TO/forebay --levels | --analytics [--quick]");
    eprintln!("       forebay-bench --import [RECORDS]");
    eprintln!("       forebay-bench --instructions [TEXT] | --instructions-check");
    eprintln!("       forebay-bench --parity | --compression | --services | --scaling [--quick]");
    ExitCode::from(2)
}

/// NBD and the engine itself, beside the device and two NBD servers; in memory, beside the least that any server costs.
fn nbd(server: &Path, scale: &Scale, only: &str, in_memory: bool, peers: bool) -> Outcome<Report> {
    let directory = if in_memory { Directory::in_memory("bench")? } else { Directory::new("bench")? };
    let file = |name: &str| written_file(&directory, name, scale.file);
    let size = scale.volume;
    let mut systems: Vec<Box<dyn System>> =
        vec![Box::new(InProcess::create(&file("engine")?, size, MEMORY.1)?)];
    if !in_memory {
        systems.insert(0, Box::new(Bare::new(file("bare")?, size)));
    }
    if peers {
        systems.push(Box::new(systems::forebay(server, &directory, file("forebay")?, size, MEMORY.0)?));
        // One file for both: they use the same plain bytes, and are not asked at the same time.
        let plain = file("plain")?;
        systems.push(Box::new(systems::nbdkit(&directory, &plain, size)?));
        systems.push(Box::new(systems::qemu_nbd(&directory, &plain, size, in_memory)?));
        if in_memory {
            systems.push(Box::new(systems::responder(&directory, size)?));
        }
    }
    match in_memory {
        false => compare("on disk", systems, &CHAPTERS, report::GOALS, scale, only),
        true => compare("in memory", systems, &MEMORY_CHAPTERS, report::MEMORY_GOALS, scale, only),
    }
}

/// A comparison over iSCSI.
struct Iscsi {
    title: &'static str,
    chapters: &'static [Chapter],
    unit: Unit,
    in_memory: bool,
    goals: &'static [Goal],
}

const ISCSI_REPORTS: [Iscsi; 4] = [
    Iscsi {
        title: "iSCSI on disk",
        chapters: &ISCSI,
        unit: UNIT,
        in_memory: false,
        goals: report::ISCSI_DISK_GOALS,
    },
    Iscsi {
        title: "iSCSI in memory",
        chapters: &ISCSI,
        unit: UNIT,
        in_memory: true,
        goals: report::ISCSI_MEMORY_GOALS,
    },
    Iscsi {
        title: "iSCSI on disk, load by iscsi-perf",
        chapters: &ISCSI_PERF,
        unit: UNIT_ANY_BLOCK,
        in_memory: false,
        goals: &[],
    },
    Iscsi {
        title: "iSCSI in memory, load by iscsi-perf",
        chapters: &ISCSI_PERF,
        unit: UNIT_ANY_BLOCK,
        in_memory: true,
        goals: &[],
    },
];

impl Iscsi {
    /// Forebay beside tgt, and beside the least that any target costs.
    fn run(&self, server: &Path, scale: &Scale, only: &str) -> Outcome<Report> {
        let directory = match self.in_memory {
            true => Directory::in_memory("bench-iscsi")?,
            false => Directory::new("bench-iscsi")?,
        };
        let file = |name: &str| written_file(&directory, name, scale.file);
        let (size, unit) = (scale.volume, self.unit);
        let mut systems: Vec<Box<dyn System>> = vec![
            Box::new(systems::forebay_iscsi(server, &directory, file("forebay")?, size, unit, MEMORY.0)?),
            Box::new(systems::tgt(&directory, &file("plain")?, size, unit)?),
        ];
        if !self.in_memory && self.unit == UNIT {
            systems.insert(0, Box::new(Bare::new(file("bare")?, size)));
        }
        // It answers the plain client only.
        if self.unit == UNIT {
            systems.push(Box::new(systems::responder(&directory, size)?));
        }
        compare(self.title, systems, self.chapters, self.goals, scale, only)
    }

    fn has(&self, only: &str) -> bool {
        self.chapters.iter().flat_map(|chapter| chapter.works).any(|work| work.name.contains(only))
    }
}

fn compare(
    title: &'static str,
    mut systems: Vec<Box<dyn System>>,
    chapters: &[Chapter],
    goals: &'static [Goal],
    scale: &Scale,
    only: &str,
) -> Outcome<Report> {
    let start = Instant::now();
    let mut report = Report {
        title,
        goals: if scale.repetitions > 1 { goals } else { &[] },
        series: Vec::new(),
        remarks: systems.iter().map(|system| (system.name(), system.remark())).collect(),
        setting: String::new(),
    };
    // Before the pool is full of what ages.
    for repetition in (0..scale.repetitions).filter(|_| FIRST_WRITES.name.contains(only)) {
        for system in &mut systems {
            progress(&format!("{}/{}: first writes, {}", repetition + 1, scale.repetitions, system.name()));
            if let Some((first, again)) = system.first_writes(scale.thin, repetition * 2 + 1)? {
                report.add(FIRST_WRITES.name, system.name(), FIRST_WRITES.size, first);
                report.add(report::AGAIN, system.name(), FIRST_WRITES.size, again);
            }
        }
    }
    for Chapter { state, works } in chapters {
        for system in &mut systems {
            progress(&format!("{state:?}: {}", system.name()));
            system.prepare(*state)?;
        }
        let works: Vec<&Work> = works.iter().filter(|work| work.name.contains(only)).collect();
        for (repetition, work) in (0..scale.repetitions).flat_map(|n| works.iter().map(move |work| (n, work)))
        {
            for turn in 0..systems.len() {
                let at = (turn + repetition as usize) % systems.len();
                let system = &mut systems[at];
                let name = system.name();
                progress(&format!("{}/{}: {}, {name}", repetition + 1, scale.repetitions, work.name));
                if *state == State::Aged {
                    system.rotate()?;
                }
                // What was overwritten a while ago may lie in order by now.
                if *state == State::Overwritten && !work.random {
                    system.prepare(*state)?;
                }
                let measured = system.run(work, scale.run, repetition * 1000 + 1)?;
                report.add(work.name, name, work.size, measured);
            }
        }
    }
    report.sort();
    report.setting = format!(
        "{} repetitions of {} ms, {} MiB of {} MiB used, {} cores, {:.0} s in all",
        scale.repetitions,
        scale.run.as_millis(),
        scale.volume / MIB,
        scale.file / MIB,
        std::thread::available_parallelism().map_or(0, usize::from),
        start.elapsed().as_secs_f64()
    );
    Ok(report)
}

fn bench(server: &Path, scale: &Scale, only: &str, what: What, json: Option<&Path>) -> Outcome {
    let server = server.canonicalize().context(server.display())?;
    let mut reports = Vec::new();
    let mut add = |report: Report| {
        print!("{}", report.table());
        reports.push(report.json());
    };
    if what != What::Iscsi {
        let peers = what == What::Everything;
        add(nbd(&server, scale, only, false, peers)?);
        add(nbd(&server, &scale.in_memory(), only, true, peers)?);
    }
    if what != What::Engine {
        for iscsi in ISCSI_REPORTS.iter().filter(|iscsi| iscsi.has(only)) {
            let scale = if iscsi.in_memory { &scale.in_memory() } else { scale };
            add(iscsi.run(&server, scale, only)?);
        }
    }
    match json {
        Some(path) => std::fs::write(path, format!("{:#}\n", Value::from(reports))).context(path.display()),
        None => Ok(()),
    }
}

/// A file of `size` bytes, each of them written: no run pays for the file system's allocation.
fn written_file(directory: &Directory, name: &str, size: u64) -> Outcome<PathBuf> {
    progress(&format!("writing {name}"));
    let path = directory.join(name);
    run(&format!(
        "fio --name=fill --filename={} --size={size} --rw=write --bs=1M --iodepth=8 --ioengine=io_uring --direct=1 \
         --end_fsync=1",
        path.display()
    ))?;
    Ok(path)
}

fn progress(what: &str) {
    eprintln!("{what}");
}
