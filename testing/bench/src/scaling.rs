//! `forebay-bench --scaling`: what more cores bring, and what memory a large volume takes.
//!
//! Cores: the engine in this process, on files in memory so that processors are the limit; one shard with one volume beside two, four … shards with a
//! volume each, as many as the machine has processors, by turns. The load runs on the cores that it asks. There is a file for each shard and one
//! more, which the pool keeps free: the kernel lets only one write to a file at a time, unlike to a disk.
//!
//! Memory: a volume is written from end to end on a file, and what the process holds more after the last third is written is told for a TiB:
//! with a cache that all leaves of the tree fit in, and with the smallest. The C library's allocator tells what is held: what of it is resident, and
//! what it keeps for later, differs by more than a small cache is large. Buffers are not counted, of which the cache has as many as its size says.

use crate::measure::{DURABLE, Direction, MIXED, Median, Places, READ, SEQUENTIAL_WRITE, Work, random};
use crate::report::{self, Figure, at_least, at_most};
use crate::systems::{InProcess, POOL, Running, thin_volume, wait};
use crate::{MEMORY, written_file};
use forebay_base::{GIB, MIB, TIB};
use forebay_e2e::host::{Context, Directory, Outcome};
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

const WORKS: [Work; 3] = [
    random(READ, Direction::Read, 32),
    random(MIXED, Direction::Mixed, 32),
    random(DURABLE, Direction::DurableWrite, 32),
];
/// All leaves fit in: a quarter of it is theirs in any case.
const LARGE_MEMORY: u64 = GIB;

/// How much is measured.
struct Scale {
    /// Bytes of each file, and of the volume for each core.
    file: u64,
    volume: u64,
    rounds: u64,
    run: Duration,
    /// Of the volume that is written for its memory.
    large: u64,
}

const FULL: Scale =
    Scale { file: GIB, volume: 512 * MIB, rounds: 5, run: Duration::from_secs(1), large: 12 * GIB };
const QUICK: Scale =
    Scale { file: 128 * MIB, volume: 32 * MIB, rounds: 1, run: Duration::from_millis(100), large: 256 * MIB };

pub fn run(quick: bool) -> Outcome {
    let scale = if quick { QUICK } else { FULL };
    let start = Instant::now();
    let mut figures = cores(&scale)?;
    for (name, memory, most) in
        [("all resident", LARGE_MEMORY, 4096.0), ("with the smallest cache", MEMORY.1, 64.0)]
    {
        let name = format!("MiB of memory for a TiB in blocks of 8 KiB, {name}");
        figures.push(Figure::new(name, memory_per_tib(&scale, memory)?, at_most(most)));
    }
    report::print(&figures, quick);
    println!("\n{} rounds, {:.0} s in all", scale.rounds, start.elapsed().as_secs_f64());
    Ok(())
}

/// An engine with a volume on each core.
struct Side {
    engine: InProcess,
    volumes: Vec<forebay_pool::VolumeInfo>,
}

impl Side {
    fn create(cores: usize, disks: &[PathBuf], size: u64) -> Outcome<Side> {
        let engine = InProcess::on_cores(cores, disks, size, MEMORY.1)?;
        let mut volumes = vec![engine.volume().clone()];
        for core in 1..cores {
            let spec = thin_volume(&format!("volume-{core}"), size);
            volumes.push(wait(engine.engine().volume_create(spec)).context("volume create")?);
        }
        let mut on: Vec<usize> = volumes.iter().map(|volume| volume.core).collect();
        on.sort_unstable();
        on.dedup();
        if on.len() < cores {
            return Err(format!("{cores} volumes are on {} cores", on.len()));
        }
        for volume in &volumes {
            engine.load(volume, SEQUENTIAL_WRITE, Places::whole(&SEQUENTIAL_WRITE, size), None)?;
        }
        Ok(Side { engine, volumes })
    }

    /// Requests in a second, and microseconds of processors for each.
    fn run(&self, work: Work, limit: Duration, seed: u64) -> Outcome<(f64, f64)> {
        let places = |nth: usize| Places::new(&work, self.volumes[nth].size, seed + nth as u64);
        let begin = |nth: usize| self.engine.begin(&self.volumes[nth], work, places(nth), Some(limit));
        let running: Vec<Running> = (0..self.volumes.len()).map(begin).collect();
        let measured = running.into_iter().map(Running::end).collect::<Outcome<Vec<_>>>()?;
        let iops = measured.iter().map(|measured| measured.iops).sum::<f64>();
        // Each counts the whole process.
        Ok((iops, measured[0].cpu_us_per_io * measured[0].iops / iops))
    }
}

fn cores(scale: &Scale) -> Outcome<Vec<Figure>> {
    let directory = Directory::in_memory("bench-scaling")?;
    let most = available_parallelism().context("processors")?.get().max(2);
    let counts: Vec<usize> = (0..).map(|doubled| 1 << doubled).take_while(|count| *count <= most).collect();
    let side = |count: &usize| {
        let file = |nth| written_file(&directory, &format!("{count}-{nth}"), scale.file);
        let disks = (0..*count + 1).map(file).collect::<Outcome<Vec<_>>>()?;
        Side::create(*count, &disks, scale.volume)
    };
    let sides: Vec<Side> = counts.iter().map(side).collect::<Outcome<_>>()?;
    let mut figures = Vec::new();
    for work in WORKS {
        let mut iops = vec![Vec::new(); sides.len()];
        let mut cpu = iops.clone();
        for round in 0..scale.rounds {
            for turn in 0..sides.len() {
                let at = (turn + round as usize) % sides.len();
                let (rate, each) = sides[at].run(work, scale.run, round * 2 + 1)?;
                iops[at].push(rate);
                cpu[at].push(each * 1000.0);
            }
        }
        let median = |all: &Vec<f64>| Median::of(all.iter().copied()).value;
        let (one, cpu) = (median(&iops[0]), cpu.iter().map(median).collect::<Vec<_>>());
        figures.push(Figure::new(format!("{}, one shard in memory, IOPS", work.name), one, None));
        figures.push(Figure::new(
            format!("{}, processor ns of each, the load's too", work.name),
            cpu[0],
            None,
        ));
        for ((count, iops), cpu) in counts.iter().zip(&iops).zip(&cpu).skip(1) {
            let goal = if *count == 2 { at_least(1.7) } else { None };
            figures.push(Figure::new(
                format!("{}, {count} shards ÷ one", work.name),
                median(iops) / one,
                goal,
            ));
            figures.push(Figure::new(
                format!("{}, {count} shards, processor ns of each", work.name),
                *cpu,
                None,
            ));
        }
    }
    Ok(figures)
}

/// What mapping a TiB takes, in MiB.
fn memory_per_tib(scale: &Scale, memory: u64) -> Outcome<f64> {
    let directory = Directory::new("bench-scaling")?;
    let disk = directory.join("disk");
    // With room for what a checkpoint has not given back.
    let made = std::fs::File::create(&disk).and_then(|file| file.set_len(scale.large + scale.large / 4));
    made.context(disk.display())?;
    let engine = InProcess::create(&disk, scale.large, memory)?;
    let blocks = scale.large / SEQUENTIAL_WRITE.size as u64;
    let write = |range: std::ops::Range<u64>| -> Outcome<f64> {
        let places: Vec<u32> = range.map(|block| block as u32).collect();
        engine.load(engine.volume(), SEQUENTIAL_WRITE, Places::Once(places.into_iter()), None)?;
        // What is on its way to a checkpoint is in memory twice.
        wait(engine.engine().checkpoint(POOL)).context("checkpoint")?;
        Ok(allocated())
    };
    // What is taken once, however much is mapped, is there after two thirds.
    let first = write(0..blocks * 2 / 3)?;
    let second = write(blocks * 2 / 3..blocks)?;
    Ok((second - first) / MIB as f64 * TIB as f64 / (scale.large as f64 / 3.0))
}

/// Bytes that the allocator has given out.
fn allocated() -> f64 {
    // SAFETY: it takes no argument, and reads what is the allocator's own under its locks.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as f64
}
