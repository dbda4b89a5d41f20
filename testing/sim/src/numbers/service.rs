//! What a volume that was promised something gets, beside neighbours that take all there is.

use super::{BLOCK, Bench, Figure, Machine, POOL, SECTOR, bench_on, failed};
use crate::harness::{Failure, all};
use forebay_base::{Id, MIB, Nanos, Random};
use forebay_pool::{Class, DiskReplace, Layout, Level, Rate, Setting, Volume, VolumeChange, VolumeInfo};
use forebay_runtime::Rt;
use forebay_simulation::model::FLASH_SATA;
use forebay_simulation::{Image, Sheet};
use futures_util::future::{join_all, join3};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const DISKS: usize = 4;
const DISK_MIB: u64 = 512;
const VOLUME: u64 = 96 * MIB;
const SECONDS: u64 = 10;
const SECOND: u64 = 1_000_000_000;
const OLTP: Id = Id(1000);
const WRITES_PERCENT: u64 = 25;

/// Requests of one volume, by the second in which they were over: their latencies in nanoseconds.
type Seconds = Rc<RefCell<Vec<Vec<u64>>>>;

/// Disks, and what the database on them was promised: so many requests a second, which it asks for, each within a time.
#[derive(Clone, Copy)]
struct Scene {
    disks: &'static str,
    sheet: Option<Sheet>,
    floor: u64,
    goal: Duration,
    /// How many times as long as alone its slowest hundredth may take, if the goal says that it can be so.
    alone_max: Option<f64>,
}

/// How a neighbour works.
#[derive(Clone, Copy)]
struct Pattern {
    bytes: u64,
    writes_percent: u64,
    is_sequential: bool,
    depth: u64,
}

const NEIGHBOURS: [(&str, Pattern); 4] = [
    ("flood", Pattern { bytes: BLOCK, writes_percent: 30, is_sequential: false, depth: 256 }),
    ("writer", Pattern { bytes: MIB, writes_percent: 100, is_sequential: true, depth: 8 }),
    ("backup", Pattern { bytes: MIB, writes_percent: 0, is_sequential: true, depth: 4 }),
    ("desktops", Pattern { bytes: 32 << 10, writes_percent: 5, is_sequential: false, depth: 64 }),
];

async fn request(volume: &Volume, rt: &Rt, at: u64, bytes: u64, is_write: bool) -> Result<(), Failure> {
    if is_write {
        let data = rt.arena().take_zeroed(bytes as usize).freeze();
        volume.write(at, vec![data], false).await.map_err(failed)
    } else {
        volume.read(at, bytes as usize).await.map(drop).map_err(failed)
    }
}

impl Bench {
    /// So many requests a second at random moments, whether or not the ones before are answered.
    async fn oltp(&self, info: &VolumeInfo, floor: u64, end: u64) -> Result<Seconds, Failure> {
        let seconds: Seconds = Rc::new(RefCell::new(vec![Vec::new(); SECONDS as usize]));
        let (mut random, mut waiting) = (Random::new(7), Vec::new());
        let (begun, mut next) = (self.rt.now().0, self.rt.now().0);
        while next < end {
            self.rt.sleep_until(Nanos(next)).await;
            let (rt, id, seconds) = (self.rt.clone(), info.id, seconds.clone());
            let (at, is_write) =
                (random.below(info.size / BLOCK) * BLOCK, random.below(100) < WRITES_PERCENT);
            waiting.push(self.rt.spawn(async move {
                let (volume, asked) = (Volume::open(&rt, id).map_err(failed)?, rt.now());
                request(&volume, &rt, at, BLOCK, is_write).await?;
                let second = (rt.now().since(Nanos(begun)) / SECOND) as usize;
                if let Some(second) = seconds.borrow_mut().get_mut(second) {
                    second.push(rt.now().since(asked));
                }
                Ok::<(), Failure>(())
            }));
            // Evenly, but for half of the distance.
            next += SECOND / floor / 2 + random.below(SECOND / floor);
        }
        all(waiting).await.into_iter().collect::<Result<Vec<()>, Failure>>()?;
        Ok(seconds)
    }

    /// Bytes that a neighbour moved until then.
    async fn neighbour(&self, info: &VolumeInfo, pattern: Pattern, end: u64) -> Result<u64, Failure> {
        let moved = Rc::new(RefCell::new(0));
        let next = Rc::new(RefCell::new(0));
        let tasks = (0..pattern.depth).map(|task| {
            let (rt, id, size) = (self.rt.clone(), info.id, info.size);
            let (moved, next) = (moved.clone(), next.clone());
            self.rt.spawn(async move {
                let volume = Volume::open(&rt, id).map_err(failed)?;
                let mut random = Random::new(task);
                while rt.now().0 < end {
                    let place = match pattern.is_sequential {
                        true => next.replace_with(|next| *next + 1),
                        false => random.next_u64(),
                    };
                    let is_write = random.below(100) < pattern.writes_percent;
                    let at = place % (size / pattern.bytes) * pattern.bytes;
                    request(&volume, &rt, at, pattern.bytes, is_write).await?;
                    moved.replace_with(|moved| *moved + pattern.bytes);
                }
                Ok::<(), Failure>(())
            })
        });
        all(tasks.collect()).await.into_iter().collect::<Result<Vec<()>, Failure>>()?;
        Ok(moved.take())
    }

    /// A disk goes, and another one takes its place: in how many seconds.
    async fn rebuild(&self, sheet: Option<Sheet>) -> Result<f64, Failure> {
        self.world.set_gone(1, true);
        let (begun, new) = (self.rt.now(), self.world.add_disk(Image::new(DISK_MIB * MIB)));
        self.world.set_sector(new, SECTOR);
        sheet.iter().for_each(|sheet| self.world.set_model(new, sheet));
        let with = DiskReplace { new: Some(format!("sim{new}")), ..DiskReplace::default() };
        self.engine.disk_replace(POOL, "sim1", with).await.map_err(failed)?;
        self.engine.pool_healed(POOL).await.map_err(failed)?;
        Ok(self.rt.now().since(begun) as f64 / SECOND as f64)
    }
}

/// What the database had, and what all moved.
struct Outcome {
    /// Requests of the second that had the fewest.
    iops_least: f64,
    /// Part of the seconds in which 99 of 100 were within the goal.
    in_time: f64,
    p50_us: f64,
    p99_us: f64,
    /// Bytes of each neighbour, and at last of the database.
    moved: Vec<f64>,
    /// Seconds until a disk was rebuilt.
    rebuilt: f64,
}

/// What the pool itself does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chore {
    Nothing,
    /// A scrub, and the deletion of a snapshot.
    Scrub,
    /// Another disk takes the place of one that is gone.
    Rebuild,
}

/// What everybody got together, each as a part of what it gets alone: the weighted speedup of schedulers (Snavely and Tullsen, ASPLOS 2000). Bytes say
/// mostly what those got for whom they are cheapest.
fn work(moved: &[f64], alone: &[f64]) -> f64 {
    moved.iter().zip(alone).map(|(moved, alone)| moved / alone).sum()
}

fn percentile(sorted: &[u64], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or(u64::MAX) as f64 / 1e3
}

impl Scene {
    fn machine(&self) -> Machine {
        Machine { sheet: self.sheet, ..Machine::of(Layout::Mirror, DISKS, DISK_MIB, SECTOR) }
    }
}

/// Bytes that a neighbour moves where there is nobody else.
fn alone(scene: Scene, name: &'static str, pattern: Pattern) -> Result<f64, Failure> {
    bench_on(scene.machine(), async move |bench| {
        let volume = bench.volume(name, VOLUME).await?;
        let end = bench.rt.now().0 + SECONDS * SECOND;
        Ok(bench.neighbour(&volume, pattern, end).await? as f64)
    })
}

fn outcome(scene: Scene, has_neighbours: bool, chore: Chore, is_scheduled: bool) -> Result<Outcome, Failure> {
    bench_on(scene.machine(), async move |bench| {
        let oltp = bench.volume("oltp", VOLUME).await?;
        let mut others = Vec::new();
        for (name, pattern) in NEIGHBOURS.iter().filter(|_| has_neighbours) {
            others.push((bench.volume(name, VOLUME).await?, *pattern));
        }
        if is_scheduled {
            bench.engine.pool_calibrate(POOL).await.map_err(failed)?;
            let level = Level {
                class: Class::MissionCritical,
                floor: Rate { iops: scene.floor, bytes: 0 },
                latency: Some(scene.goal),
                ..Level::default()
            };
            bench.engine.set_levels(&BTreeMap::from([(OLTP, level)])).await.map_err(failed)?;
            let change = VolumeChange { level: Setting::Own(OLTP), ..VolumeChange::default() };
            bench.engine.volume_set(&format!("{POOL}/oltp"), change).await.map_err(failed)?;
        }
        if chore == Chore::Scrub {
            // Most of it is the snapshot's alone.
            let old = bench.volume("old", VOLUME / 2).await?;
            bench.snapshot("old", "s").await?;
            bench.overwrite(&old, old.size / BLOCK, old.size).await?;
            bench.engine.scrub_start(POOL).await.map_err(failed)?;
            bench.engine.snapshot_delete(&format!("{POOL}/old@s")).await.map_err(failed)?;
        }
        let end = bench.rt.now().0 + SECONDS * SECOND;
        let loads = join_all(others.iter().map(|(info, pattern)| bench.neighbour(info, *pattern, end)));
        let healed = async {
            match chore {
                Chore::Rebuild => bench.rebuild(scene.sheet).await,
                Chore::Nothing | Chore::Scrub => Ok(0.0),
            }
        };
        let (moved, seconds, rebuilt) = join3(loads, bench.oltp(&oltp, scene.floor, end), healed).await;
        let (moved, seconds) = (moved.into_iter().collect::<Result<Vec<u64>, Failure>>()?, seconds?);
        let rebuilt = rebuilt?;
        let iops_least = seconds.borrow().iter().map(Vec::len).min().unwrap_or(0) as f64;
        seconds.borrow_mut().iter_mut().for_each(|second| second.sort_unstable());
        let is_in_time = |second: &&Vec<u64>| percentile(second, 99) <= scene.goal.as_micros() as f64;
        let in_time = seconds.borrow().iter().filter(is_in_time).count() as f64 / SECONDS as f64;
        let mut latencies: Vec<u64> = seconds.borrow().iter().flatten().copied().collect();
        latencies.sort_unstable();
        let (p50_us, p99_us) = (percentile(&latencies, 50), percentile(&latencies, 99));
        let own = latencies.len() as u64 * BLOCK;
        let moved = moved.into_iter().chain([own]).map(|bytes| bytes as f64).collect();
        Ok(Outcome { iops_least, in_time, p50_us, p99_us, moved, rebuilt })
    })
}

/// Disks that serve one request after the other, with a goal that leaves much to neighbours, and flash with one that leaves them next to nothing: 2.4 times
/// what 99 of 100 requests take alone.
const SCENES: [Scene; 2] = [
    Scene { disks: "disks", sheet: None, floor: 4000, goal: Duration::from_millis(10), alone_max: None },
    Scene {
        disks: "SATA flash",
        sheet: Some(Sheet::Flash(FLASH_SATA)),
        floor: 10_000,
        goal: Duration::from_micros(600),
        alone_max: Some(1.5),
    },
];

pub fn service() -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for scene in SCENES {
        let oltp = outcome(scene, false, Chore::Nothing, true)?;
        let mut alone = NEIGHBOURS
            .iter()
            .map(|(name, pattern)| alone(scene, name, *pattern))
            .collect::<Result<Vec<f64>, Failure>>()?;
        alone.extend(oltp.moved);
        let (kept, open) =
            (outcome(scene, true, Chore::Scrub, true)?, outcome(scene, true, Chore::Scrub, false)?);
        let Scene { disks, floor, goal, .. } = scene;
        let with =
            |name: &str| format!("a floor of {floor}/s within {goal:?} on {disks}, six neighbours: {name}");
        let plain = |name: &str, value: f64| Figure::plain(&with(name), value);
        let sum = |outcome: &Outcome| outcome.moved.iter().sum::<f64>();
        figures.extend([
            Figure::with_goal(&with("least of a second / floor"), kept.iops_least / floor as f64, 0.95..=1.1),
            Figure::with_goal(&with("seconds with p99 in time"), kept.in_time, 0.995..=1.0),
            plain("p50 / alone", kept.p50_us / oltp.p50_us),
            match scene.alone_max {
                Some(most) => Figure::with_goal(&with("p99 / alone"), kept.p99_us / oltp.p99_us, 0.0..=most),
                None => plain("p99 / alone", kept.p99_us / oltp.p99_us),
            },
            plain("p99 / without a level", kept.p99_us / open.p99_us),
            plain("bytes of all / without a level", sum(&kept) / sum(&open)),
            plain("work of all / without a level", work(&kept.moved, &alone) / work(&open.moved, &alone)),
        ]);
    }
    Ok(figures)
}

/// A disk goes, and another is filled in its place beside all of them: redundancy comes back, and who has a goal is not late for that.
pub fn rebuild() -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for scene in SCENES {
        let kept = outcome(scene, true, Chore::Rebuild, true)?;
        let Scene { disks, floor, goal, .. } = scene;
        let with = |name: &str| {
            format!(
                "a rebuild beside a floor of {floor}/s within {goal:?} on {disks}, four neighbours: {name}"
            )
        };
        figures.extend([
            Figure::plain(&with("seconds with p99 in time"), kept.in_time),
            Figure::with_goal(&with("p99 / goal"), kept.p99_us / goal.as_micros() as f64, 0.0..=1.0),
            // Without a bound on how long it waits it ends when the neighbours do.
            Figure::with_goal(&with("seconds of it"), kept.rebuilt, 0.0..=SECONDS as f64 / 2.0),
        ]);
    }
    Ok(figures)
}
