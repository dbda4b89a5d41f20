//! Figures of redundancy on modelled disks: each serves one request after the other, in a tenth of a millisecond and at 500 MB/s.
//!
//! Virtual time, so the figures are the same on every machine, and only ratios are meant: what the layout and the engine make of the
//! disks. Processor time costs nothing here.

mod service;
mod snapshots;
mod streams;

use crate::harness::{Conditions, Failure, all, host, in_world};
use forebay_base::{MIB, Random};
use forebay_pool::{
    Compression, DiskReplace, Engine, EngineConfig, Layout, PoolSpec, SyncPolicy, Volume, VolumeFormat,
    VolumeInfo, VolumeSpec,
};
use forebay_runtime::Rt;
use forebay_simulation::{Image, Sheet, World, WorldConfig};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const POOL: &str = "tank";
const BLOCK: u64 = 8 << 10;
const LIMIT: Duration = Duration::from_secs(3600);
const RUN: Duration = Duration::from_millis(500);
/// Of the disks where it does not matter.
const SECTOR: u32 = 4096;
const PARITY: Layout = Layout::Parity { data: 4, parity: 1 };

/// One figure, and what it should be.
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub goal: Option<std::ops::RangeInclusive<f64>>,
}

impl Figure {
    fn plain(name: &str, value: f64) -> Figure {
        Figure { name: name.into(), value, goal: None }
    }
    fn with_goal(name: &str, value: f64, goal: std::ops::RangeInclusive<f64>) -> Figure {
        Figure { goal: Some(goal), ..Figure::plain(name, value) }
    }
    pub fn is_met(&self) -> bool {
        self.goal.as_ref().is_none_or(|goal| goal.contains(&self.value))
    }
}

/// A pool on modelled disks.
#[derive(Clone)]
struct Bench {
    world: World,
    rt: Rt,
    engine: Engine,
}

/// What a closed loop of requests came to.
struct Load {
    iops: f64,
    p99_us: f64,
}

/// What a pool is on.
struct Machine {
    layout: Layout,
    disks: usize,
    disk_mib: u64,
    sector: u32,
    /// Where it is not as above.
    sheet: Option<Sheet>,
    memory: u64,
    /// Of the log, if not as much as the engine takes.
    log_bytes: Option<u64>,
}

impl Machine {
    fn of(layout: Layout, disks: usize, disk_mib: u64, sector: u32) -> Machine {
        Machine { layout, disks, disk_mib, sector, sheet: None, memory: 4 * MIB, log_bytes: None }
    }
}

fn bench<T: 'static>(
    layout: Layout,
    disks: usize,
    disk_mib: u64,
    sector: u32,
    script: impl AsyncFnOnce(Bench) -> Result<T, Failure> + 'static,
) -> Result<T, Failure> {
    bench_on(Machine::of(layout, disks, disk_mib, sector), script)
}

fn bench_on<T: 'static>(
    machine: Machine,
    script: impl AsyncFnOnce(Bench) -> Result<T, Failure> + 'static,
) -> Result<T, Failure> {
    let Machine { layout, disks, disk_mib, sector, sheet, memory, log_bytes } = machine;
    let service = |ns: u64| ns..ns + 1;
    let world = World::new(WorldConfig {
        shuffle: false,
        read_ns: service(100_000),
        write_ns: service(100_000),
        flush_ns: service(50_000),
        rate: Some(500_000_000),
        turns_max: 50_000_000,
        ..WorldConfig::new(1)
    });
    for _ in 0..disks {
        let disk = world.add_disk(Image::new(disk_mib * MIB));
        world.set_sector(disk, sector);
        sheet.iter().for_each(|sheet| world.set_model(disk, sheet));
    }
    let own = world.clone();
    in_world(&world, Conditions::of(1), LIMIT, move |rt, cores| async move {
        let engine = Engine::new(cores, EngineConfig { memory, events: Arc::new(|_| ()), host: host(1) });
        let spec = PoolSpec {
            name: POOL.into(),
            layout,
            disks: (0..disks).map(|disk| format!("sim{disk}")).collect(),
            log_disks: Vec::new(),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            shards: 1,
            log_bytes,
            force: false,
        };
        engine.pool_create(spec).await.map_err(failed)?;
        script(Bench { world: own, rt, engine }).await
    })
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Outcome(error.to_string())
}

impl Bench {
    /// A volume of `size` bytes, written once from end to end.
    async fn volume(&self, name: &str, size: u64) -> Result<VolumeInfo, Failure> {
        let (size, block_size, sync) = (size / MIB * MIB, BLOCK as u32, SyncPolicy::Always);
        let spec = VolumeSpec {
            pool: POOL.into(),
            name: name.into(),
            size,
            block_size,
            sync: Some(sync),
            compression: Some(Compression::Off),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = self.engine.volume_create(spec).await.map_err(failed)?;
        let volume = Volume::open(&self.rt, info.id).map_err(failed)?;
        let mut random = Random::new(size);
        for at in (0..size).step_by(MIB as usize) {
            let mut bytes = self.rt.buffer(MIB as usize);
            random.fill(&mut bytes);
            volume.write(at, vec![bytes.freeze()], false).await.map_err(failed)?;
        }
        self.engine.checkpoint(POOL).await.map_err(failed)?;
        Ok(info)
    }

    /// Random 8 KiB requests, `depth` at a time, `writes` of four of them writes, until `done`.
    async fn load(
        &self,
        info: &VolumeInfo,
        depth: usize,
        writes: u64,
        done: impl Fn() -> bool + 'static,
    ) -> Result<Load, Failure> {
        let done = Rc::new(done);
        let latencies: Rc<RefCell<Vec<u64>>> = Rc::default();
        let start = self.rt.now();
        let tasks = (0..depth as u64).map(|task| {
            let (rt, id, blocks) = (self.rt.clone(), info.id, info.size / BLOCK);
            let (done, latencies) = (done.clone(), latencies.clone());
            self.rt.spawn(async move {
                let volume = Volume::open(&rt, id).map_err(failed)?;
                let mut random = Random::new(task + rt.now().0);
                while !done() {
                    let (at, begin) = (random.below(blocks) * BLOCK, rt.now());
                    if random.below(4) < writes {
                        let mut bytes = rt.buffer(BLOCK as usize);
                        bytes[..8].copy_from_slice(&random.next_u64().to_le_bytes());
                        volume.write(at, vec![bytes.freeze()], false).await.map_err(failed)?;
                    } else {
                        volume.read(at, BLOCK as usize).await.map_err(failed)?;
                    }
                    latencies.borrow_mut().push(rt.now().since(begin));
                }
                Ok::<(), Failure>(())
            })
        });
        all(tasks.collect()).await.into_iter().collect::<Result<Vec<()>, Failure>>()?;
        let seconds = self.rt.now().since(start) as f64 / 1e9;
        let mut latencies = latencies.borrow_mut();
        latencies.sort_unstable();
        let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
        Ok(Load { iops: latencies.len() as f64 / seconds, p99_us: p99 as f64 / 1e3 })
    }

    async fn load_for(
        &self,
        info: &VolumeInfo,
        depth: usize,
        writes: u64,
        run: Duration,
    ) -> Result<Load, Failure> {
        let (rt, start) = (self.rt.clone(), self.rt.now());
        self.load(info, depth, writes, move || rt.now().since(start) >= run.as_nanos() as u64).await
    }

    /// Load for as long as `work` lasts; gives what each came to.
    async fn load_during<T>(
        &self,
        info: &VolumeInfo,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<(Load, T), Failure> {
        let over = Rc::new(Cell::new(false));
        let ends = over.clone();
        let work = async move {
            let result = work.await;
            ends.set(true);
            result
        };
        let (load, result) =
            futures_util::future::join(self.load(info, 4, 1, move || over.get()), work).await;
        Ok((load?, result?))
    }
}

/// All figures, each kind in a world and on a thread of its own.
pub fn figures() -> Result<Vec<Figure>, Failure> {
    std::thread::scope(|scope| {
        let filled = [70, 80, 90].map(|percent| scope.spawn(move || write_amplification(percent)));
        let others = [
            reads,
            healing,
            space,
            snapshots::snapshots,
            service::service,
            service::rebuild,
            streams::streams,
        ]
        .map(|figures| scope.spawn(figures));
        let joined = others.into_iter().chain(filled).map(|thread| thread.join().expect("no panic"));
        joined.collect::<Result<Vec<_>, _>>().map(|figures| figures.into_iter().flatten().collect())
    })
}

fn reads() -> Result<Vec<Figure>, Failure> {
    let single = bench(Layout::Single, 1, 160, SECTOR, async |bench| {
        let info = bench.volume("v", 96 * MIB).await?;
        bench.load_for(&info, 16, 0, RUN).await
    })?;
    let (healthy, degraded, mixed, mixed_degraded) = bench(PARITY, 5, 96, SECTOR, async |bench| {
        let info = bench.volume("v", 256 * MIB).await?;
        let healthy = bench.load_for(&info, 160, 0, RUN).await?;
        let mixed = bench.load_for(&info, 32, 1, RUN).await?;
        bench.world.set_gone(2, true);
        bench.load_for(&info, 8, 4, Duration::from_millis(50)).await?;
        let degraded = bench.load_for(&info, 160, 0, RUN).await?;
        let mixed_degraded = bench.load_for(&info, 32, 1, RUN).await?;
        Ok((healthy, degraded, mixed, mixed_degraded))
    })?;
    let name = "8 KiB random reads on 4+1 / (one disk's rate x 5)";
    Ok(vec![
        Figure::with_goal(name, healthy.iops / (5.0 * single.iops), 0.95..=1.1),
        Figure::plain("random reads on 4+1, one disk out / healthy", degraded.iops / healthy.iops),
        Figure::plain("random 75/25 on 4+1, one disk out / healthy", mixed_degraded.iops / mixed.iops),
    ])
}

fn healing() -> Result<Vec<Figure>, Failure> {
    bench(PARITY, 5, 96, SECTOR, async |bench| {
        let info = bench.volume("v", 200 * MIB).await?;
        let alone = bench.load_for(&info, 4, 1, RUN).await?;
        let (scrubbing, ()) = bench
            .load_during(&info, async {
                bench.engine.scrub_start(POOL).await.map_err(failed)?;
                bench.engine.pool_scrubbed(POOL).await.map(drop).map_err(failed)
            })
            .await?;
        let rebuild = async |bench: &Bench, old: usize| {
            bench.world.set_gone(old, true);
            let new = bench.world.add_disk(Image::new(96 * MIB));
            let start = bench.rt.now();
            let path = format!("sim{new}");
            let with = DiskReplace { new: Some(path), ..DiskReplace::default() };
            let replaced = bench.engine.disk_replace(POOL, &format!("sim{old}"), with).await;
            replaced.map_err(failed)?;
            bench.engine.pool_healed(POOL).await.map_err(failed)?;
            let seconds = bench.rt.now().since(start) as f64 / 1e9;
            Ok::<f64, Failure>(bench.world.written(new) as f64 / seconds / 1e6)
        };
        let (rebuilding, under_load) = bench.load_during(&info, rebuild(&bench, 1)).await?;
        let idle = rebuild(&bench, 3).await?;
        Ok(vec![
            Figure::with_goal(
                "client p99 during a scrub / without",
                scrubbing.p99_us / alone.p99_us,
                0.0..=2.0,
            ),
            Figure::with_goal(
                "client p99 during a rebuild / without",
                rebuilding.p99_us / alone.p99_us,
                0.0..=2.0,
            ),
            Figure::plain("rebuild under load, MB/s written to the new disk", under_load),
            Figure::plain("rebuild without load, MB/s written to the new disk", idle),
        ])
    })
}

/// What part of the disk space that a volume takes is its data, by what its disks hold before and after: another four times its size.
fn space() -> Result<Vec<Figure>, Failure> {
    let figure = |sector: u32| {
        // Large enough for chunks to be worth their records, as on any real disk.
        let share = bench(PARITY, 5, 1024, sector, async move |bench| {
            let held = async || {
                bench.engine.pool_trim(POOL).await.map_err(failed)?;
                // A disk gives whole sectors; the engine asks for 4 KiB at least.
                let piece = u64::from(sector).max(4096);
                let pieces = |image: Image| {
                    let pages = image.difference(&Image::new(image.size())).into_iter();
                    pages.map(|page| page * 4096 / piece).collect::<BTreeSet<u64>>().len() as u64
                };
                let held = (0..5).map(|disk| piece * pieces(bench.world.image(disk))).sum::<u64>();
                Ok::<f64, Failure>(held as f64)
            };
            let small = bench.volume("small", 48 * MIB).await?;
            let before = held().await?;
            let large = bench.volume("large", 4 * small.size).await?;
            Ok(large.size as f64 / (held().await? - before))
        })?;
        let name = format!("8 KiB volume on 4+1, user data / disk space, {sector}-byte sectors");
        Ok(Figure::with_goal(&name, share, 0.78..=0.82))
    };
    [512, 4096, 8192].into_iter().map(figure).collect()
}

/// Bytes written to the disks for each byte that a client overwrites at random, after the volume was overwritten five times.
fn write_amplification(percent: u64) -> Result<Vec<Figure>, Failure> {
    let value = bench(PARITY, 5, 48, SECTOR, async move |bench| {
        let pools = bench.engine.pools().await;
        let size = pools.first().map_or(0, |pool| pool.free) * percent / 100;
        let info = bench.volume("v", size).await?;
        let overwrite = async |times: u64| {
            let left = Cell::new(times * info.size / BLOCK);
            bench.load(&info, 32, 4, move || left.replace(left.get().saturating_sub(1)) == 0).await
        };
        overwrite(5).await?;
        let written = || (0..5).map(|disk| bench.world.written(disk)).sum::<u64>();
        let before = written();
        overwrite(1).await?;
        Ok((written() - before) as f64 / info.size as f64)
    });
    let name = format!("device bytes / user byte, random overwrites, {percent} % full");
    let value = value.map_err(|failure| failure.because(&name))?;
    Ok(vec![Figure::plain(&name, value)])
}
