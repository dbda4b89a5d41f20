//! `forebay-bench --services`: what snapshots, streams, volumes' formats, checkpoints and compression cost on a real file.
//!
//! The engine in this process, a pool on one file that was written whole. What is compared takes turns, in an order that rotates, and the
//! medians' ratio is told. All volumes are on one shard and share its chunks. Bytes of the disk are what the kernel counts for this process.

use crate::measure::{
    DURABLE, Direction, FIRST_WRITES, MIXED, Median, Places, SEQUENTIAL_WRITE, Work, random,
};
use crate::report::{self, Figure, at_least, at_most};
use crate::systems::{InProcess, POOL, thin_volume, wait};
use crate::{MEMORY, written_file};
use forebay_base::{GIB, MIB, TIB};
use forebay_e2e::host::{Context, Directory, Outcome};
use forebay_pool::{Compression, SendOptions, VolumeDelete, VolumeFormat, VolumeInfo, VolumeSpec};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: u64 = FIRST_WRITES.size as u64;
/// Blocks overwritten between two snapshots, of most and of one.
const FEW: u64 = 8;
const MANY: u64 = 2000;
/// The names of the volumes with none, one and many snapshots; the first is there from the beginning.
const SHARED: [&str; 3] = ["volume", "one", "many"];
const FORMATS: [(VolumeFormat, &str); 3] = [
    (VolumeFormat::Thin, "thin"),
    (VolumeFormat::ZeroedThick, "zeroedthick"),
    (VolumeFormat::EagerZeroedThick, "eagerzeroedthick"),
];

/// How much is measured.
struct Scale {
    file: u64,
    /// Bytes of each volume that has snapshots, or none.
    volume: u64,
    snapshots: u64,
    rounds: u64,
    run: Duration,
    /// More than a deletion takes.
    rest: Duration,
    /// Bytes of a volume of some format, and of those that are written in one turn: about a second's.
    format: u64,
    part: u64,
}

const FULL: Scale = Scale {
    file: 8 * GIB,
    volume: 256 * MIB,
    snapshots: 1000,
    rounds: 5,
    run: Duration::from_secs(1),
    rest: Duration::from_secs(2),
    format: 256 * MIB,
    part: 32 * MIB,
};
const QUICK: Scale = Scale {
    file: GIB,
    volume: 32 * MIB,
    snapshots: 20,
    rounds: 1,
    run: Duration::from_millis(100),
    rest: Duration::from_millis(200),
    format: 16 * MIB,
    part: 4 * MIB,
};

pub fn run(quick: bool) -> Outcome {
    let scale = if quick { QUICK } else { FULL };
    let start = Instant::now();
    let directory = Directory::new("services")?;
    let disk = written_file(&directory, "disk", scale.file)?;
    let bench = Bench { engine: InProcess::create(&disk, scale.volume, MEMORY.1)?, scale };
    let mut figures = bench.formats()?;
    figures.extend(bench.overwrites()?);
    figures.extend(bench.deletions()?);
    figures.push(bench.incremental()?);
    figures.push(bench.snapshot_times()?);
    figures.extend(bench.checkpoints()?);
    figures.push(bench.compression()?);
    report::print(&figures, quick);
    println!("\n{} rounds, {:.0} s in all", bench.scale.rounds, start.elapsed().as_secs_f64());
    Ok(())
}

struct Bench {
    engine: InProcess,
    scale: Scale,
}

impl Bench {
    fn volume(&self, name: &str, size: u64, format: VolumeFormat) -> Outcome<VolumeInfo> {
        let spec = VolumeSpec { format, ..thin_volume(name, size) };
        wait(self.engine.engine().volume_create(spec)).context("volume create")
    }

    fn delete(&self, name: &str) -> Outcome {
        let how = VolumeDelete { with_snapshots: true, purge: true };
        let deleted = wait(self.engine.engine().volume_delete(&format!("{POOL}/{name}"), how));
        deleted.context("volume delete")?;
        thread::sleep(self.scale.rest);
        self.checkpoint()
    }

    fn checkpoint(&self) -> Outcome {
        wait(self.engine.engine().checkpoint(POOL)).map(drop).context("checkpoint")
    }

    fn snapshot(&self, volume: &str, name: &str) -> Outcome {
        let volumes = vec![format!("{POOL}/{volume}")];
        wait(self.engine.engine().snapshot_create(volumes, name)).map(drop).context("snapshot create")
    }

    fn snapshot_delete(&self, volume: &str, name: &str) -> Outcome {
        let deleted = wait(self.engine.engine().snapshot_delete(&format!("{POOL}/{volume}@{name}")));
        thread::sleep(self.scale.rest);
        deleted.context("snapshot delete")
    }

    /// Writes blocks at these places; how many in a second.
    fn write(&self, volume: &VolumeInfo, places: Places, limit: Option<Duration>) -> Outcome<f64> {
        self.engine.load(volume, FIRST_WRITES, places, limit).map(|measured| measured.iops)
    }

    /// Overwrites so many different blocks.
    fn overwrite(&self, volume: &VolumeInfo, blocks: u64, seed: u64) -> Outcome {
        let places = Places::once(&FIRST_WRITES, volume.size.min(GIB), seed).first(blocks as usize);
        self.write(volume, places, None).map(drop)
    }

    /// 8 KiB at random over volumes that share all with a snapshot, beside one that has none.
    fn overwrites(&self) -> Outcome<Vec<Figure>> {
        let mut volumes = Vec::new();
        for (nth, name) in SHARED.into_iter().enumerate() {
            let size = self.scale.volume;
            let volume = match nth {
                0 => wait(self.engine.engine().volume(&format!("{POOL}/{name}"))).context(name)?,
                _ => self.volume(name, size, VolumeFormat::Thin)?,
            };
            self.engine.load(&volume, SEQUENTIAL_WRITE, Places::whole(&SEQUENTIAL_WRITE, size), None)?;
            volumes.push(volume);
        }
        for nth in 0..self.scale.snapshots {
            self.snapshot(SHARED[2], &format!("s{nth}"))?;
            let blocks = if nth == self.scale.snapshots / 2 { MANY } else { FEW };
            self.overwrite(&volumes[2], blocks, nth)?;
        }
        let mut iops = [const { Vec::new() }; 3];
        for round in 0..self.scale.rounds {
            for turn in 0..3 {
                let at = (turn + round as usize) % 3;
                let name = SHARED[at];
                match at {
                    // A snapshot is a checkpoint: all begin with what one gave back.
                    0 => self.checkpoint()?,
                    _ => {
                        if round > 0 {
                            self.snapshot_delete(name, "last")?;
                        }
                        self.snapshot(name, "last")?;
                    }
                }
                let places = Places::new(&FIRST_WRITES, self.scale.volume, round * 3 + at as u64);
                iops[at].push(self.write(&volumes[at], places, Some(self.scale.run))?);
            }
        }
        let [none, one, many] = iops.map(|iops| Median::of(iops.into_iter()).value);
        let name = |count: u64| format!("8 KiB random overwrites, snapshots: {count} ÷ none");
        Ok(vec![
            Figure::new("8 KiB random overwrites without snapshots, IOPS", none, None),
            Figure::new(name(1), one / none, at_least(0.9)),
            Figure::new(name(self.scale.snapshots), many / none, at_least(0.9)),
        ])
    }

    /// What is read to delete one of many snapshots, beside the blocks that come back.
    fn deletions(&self) -> Outcome<Vec<Figure>> {
        let count = self.scale.snapshots;
        let figure = |nth: u64, blocks: u64| -> Outcome<Figure> {
            let before = disk_bytes("read_bytes")?;
            self.snapshot_delete(SHARED[2], &format!("s{nth}"))?;
            let read = (disk_bytes("read_bytes")? - before) as f64 / 1024.0;
            let name =
                format!("KiB read to delete one of {count} snapshots that gives back {} KiB", blocks * 8);
            Ok(Figure::new(name, read, None))
        };
        Ok(vec![figure(count / 3, FEW)?, figure(count / 2, MANY)?])
    }

    /// What is sent from one snapshot to the next.
    fn incremental(&self) -> Outcome<Figure> {
        let name = SHARED[0];
        let volume = wait(self.engine.engine().volume(&format!("{POOL}/{name}"))).context(name)?;
        self.snapshot(name, "from")?;
        self.overwrite(&volume, MANY, 1)?;
        self.snapshot(name, "to")?;
        let options = SendOptions { from: Some("@from".into()), resume: None };
        let sent = wait(async {
            let mut stream =
                self.engine.engine().snapshot_send(&format!("{POOL}/{name}@to"), options).await?;
            let mut sent = 0;
            while let Some(piece) = stream.next().await? {
                sent += piece.len() as u64;
            }
            Ok::<u64, forebay_pool::Error>(sent)
        });
        let sent = sent.context("snapshot send")?;
        let name = format!("bytes of an incremental stream ÷ bytes of {MANY} changed blocks");
        Ok(Figure::new(name, sent as f64 / (MANY * BLOCK) as f64, at_most(1.1)))
    }

    /// Volumes that hold next to nothing, one a thousand times the other.
    fn snapshot_times(&self) -> Outcome<Figure> {
        let volumes = [("gib", GIB), ("tib", TIB)];
        let made = volumes.iter().map(|(name, size)| self.volume(name, *size, VolumeFormat::Thin));
        let infos = made.collect::<Outcome<Vec<VolumeInfo>>>()?;
        let mut seconds = [const { Vec::new() }; 2];
        for nth in 0..4 * self.scale.rounds {
            for at in [nth as usize % 2, (nth as usize + 1) % 2] {
                self.overwrite(&infos[at], 64, nth)?;
                let start = Instant::now();
                self.snapshot(volumes[at].0, &format!("s{nth}"))?;
                seconds[at].push(start.elapsed().as_secs_f64());
            }
        }
        let [small, large] = seconds.map(|seconds| Median::of(seconds.into_iter()).value);
        Ok(Figure::new("time of a snapshot, 1 TiB volume ÷ 1 GiB", large / small, at_most(1.2)))
    }

    /// Durable overwrites while one checkpoint follows the other, beside a time with none but those that the log asks for.
    fn checkpoints(&self) -> Outcome<Vec<Figure>> {
        let work = random(DURABLE, Direction::DurableWrite, 32);
        let mut slowest = [const { Vec::new() }; 2];
        let mut made = 0;
        for round in 0..self.scale.rounds {
            for at in [round as usize % 2, (round as usize + 1) % 2] {
                self.checkpoint()?;
                let places = Places::new(&work, self.scale.volume, round);
                let running = self.engine.begin(self.engine.volume(), work, places, Some(self.scale.run));
                let ends = AtomicBool::new(at == 0);
                let engine = self.engine.engine().clone();
                let (measured, count) = thread::scope(|scope| {
                    let checkpoints = scope.spawn(|| {
                        let mut count = 0;
                        while !ends.load(Ordering::Relaxed) {
                            wait(engine.checkpoint(POOL)).context("checkpoint")?;
                            count += 1;
                        }
                        Ok::<u64, String>(count)
                    });
                    let measured = running.end();
                    ends.store(true, Ordering::Relaxed);
                    (measured, checkpoints.join().expect("it does not panic"))
                });
                slowest[at].push(measured?.p999_us);
                made += count?;
            }
        }
        if made == 0 {
            return Err("no checkpoint was made while the volume was written to".into());
        }
        let [between, during] = slowest.map(|us| Median::of(us.into_iter()).value);
        Ok(vec![
            Figure::new("8 KiB durable overwrites, p99.9 between checkpoints, µs", between, None),
            Figure::new(
                "p99.9, one checkpoint after the other ÷ between them",
                during / between,
                at_most(2.0),
            ),
        ])
    }

    /// Reads and writes of blocks that can be made half as small, with lz4 beside without.
    fn compression(&self) -> Outcome<Figure> {
        const KINDS: [(&str, Compression); 2] = [("plain", Compression::Off), ("lz4", Compression::Lz4)];
        let fill = Work { compressible: true, ..SEQUENTIAL_WRITE };
        let work = Work { compressible: true, ..random(MIXED, Direction::Mixed, 32) };
        let made = KINDS.iter().map(|(name, compression)| {
            let spec = VolumeSpec { compression: Some(*compression), ..thin_volume(name, self.scale.volume) };
            let volume = wait(self.engine.engine().volume_create(spec)).context("volume create")?;
            self.engine.load(&volume, fill, Places::whole(&fill, volume.size), None).map(|_| volume)
        });
        let volumes = made.collect::<Outcome<Vec<VolumeInfo>>>()?;
        let mut iops = [const { Vec::new() }; KINDS.len()];
        for round in 0..self.scale.rounds {
            for at in [round as usize % 2, (round as usize + 1) % 2] {
                let places = Places::new(&work, self.scale.volume, round);
                let measured = self.engine.load(&volumes[at], work, places, Some(self.scale.run))?;
                iops[at].push(measured.iops);
            }
        }
        let [plain, packed] = iops.map(|iops| Median::of(iops.into_iter()).value);
        let stored = |name: &str| {
            let volume = wait(self.engine.engine().volume(&format!("{POOL}/{name}"))).context(name)?;
            Ok::<f64, String>(volume.stored as f64)
        };
        let share = stored(KINDS[1].0)? / stored(KINDS[0].0)?;
        if share > 0.6 {
            return Err(format!("lz4 leaves {share:.2} of what was to become half"));
        }
        Ok(Figure::new(
            "8 KiB random 75/25 of half-compressible data, lz4 ÷ off",
            packed / plain,
            at_least(0.85),
        ))
    }

    /// First writes to a volume from the moment it is there, beside overwrites of one of its kind.
    fn formats(&self) -> Outcome<Vec<Figure>> {
        let mut passes = [const { Vec::new() }; FORMATS.len()];
        let old = FORMATS.iter().map(|(format, name)| {
            let volume = self.volume(name, self.scale.format, *format)?;
            let places = Places::once(&FIRST_WRITES, volume.size, 1);
            self.write(&volume, places, None).map(|_| volume)
        });
        let old = old.collect::<Outcome<Vec<VolumeInfo>>>()?;
        for round in 0..self.scale.rounds {
            for turn in 0..FORMATS.len() {
                let at = (turn + round as usize) % FORMATS.len();
                // Each begins with a log that is next to empty.
                self.checkpoint()?;
                let new = self.volume("new", self.scale.format, FORMATS[at].0)?;
                passes[at].push(self.pass(&new, &old[at], round)?);
                self.delete("new")?;
            }
        }
        let figures = FORMATS.iter().zip(&passes).flat_map(|((_, name), passes)| {
            let median = |of: fn(&Pass) -> f64| Median::of(passes.iter().map(of)).value;
            let (first, last) = (median(|pass| pass.amplified[0]), median(|pass| pass.amplified[1]));
            let beside = format!("{name}: first writes ÷ overwrites");
            let bytes = format!("{name}: disk bytes ÷ bytes first written");
            [
                Figure::new(format!("{beside}, at the beginning"), median(|pass| pass.first), at_least(0.95)),
                Figure::new(beside, median(|pass| pass.all), at_least(0.95)),
                Figure::new(format!("{bytes}, at the beginning"), first, None),
                Figure::new(format!("{bytes}, at the end ÷ at the beginning"), last / first, at_most(1.1)),
            ]
        });
        Ok(figures.collect())
    }

    /// Writes every block of a new volume once, in random order, by turns with the same blocks of one that was written before.
    fn pass(&self, new: &VolumeInfo, old: &VolumeInfo, seed: u64) -> Outcome<Pass> {
        let order = Places::once(&FIRST_WRITES, new.size, seed).map(|place| place as u32);
        let order: Vec<u32> = order.collect();
        let (mut ratios, mut amplified) = (Vec::new(), Vec::new());
        for part in order.chunks((self.scale.part / BLOCK) as usize) {
            let write = |volume| self.write(volume, Places::Once(Vec::from(part).into_iter()), None);
            let before = disk_bytes("write_bytes")?;
            let first = write(new)?;
            let written = disk_bytes("write_bytes")? - before;
            ratios.push(first / write(old)?);
            amplified.push(written as f64 / (part.len() as u64 * BLOCK) as f64);
        }
        let amplified = [amplified[0], amplified[amplified.len() - 1]];
        Ok(Pass { first: ratios[0], all: Median::of(ratios.into_iter()).value, amplified })
    }
}

/// First writes to all of a volume.
struct Pass {
    /// Beside overwrites: those of the first part, and the median of all parts.
    first: f64,
    all: f64,
    /// Bytes of the disk for each that was written, in the first and in the last part.
    amplified: [f64; 2],
}

/// Bytes that this process has read from disks, or written to them, as the kernel counts.
fn disk_bytes(what: &str) -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/self/io").context("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(": "));
    line.and_then(|bytes| bytes.parse().ok()).ok_or_else(|| format!("/proc/self/io has no {what}"))
}
