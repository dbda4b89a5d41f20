//! What snapshots and clones cost in requests to disks.

use super::{BLOCK, Bench, Figure, Machine, POOL, SECTOR, bench_on, failed};
use crate::harness::Failure;
use forebay_base::{GIB, MIB, Random, TIB};
use forebay_pool::{Compression, Layout, SyncPolicy, Volume, VolumeFormat, VolumeInfo, VolumeSpec};
use forebay_simulation::OpKind;
use std::time::Duration;

const VOLUME: u64 = 64 * MIB;
/// Blocks overwritten between two snapshots, of most and of one.
const FEW: u64 = 8;
const MANY: u64 = 2000;
const SNAPSHOTS: u64 = 1000;
const CLONES: u64 = 100;
const LOAD: Duration = Duration::from_millis(200);
/// Of the log: enough for all records of a load.
const LOG: u64 = 64 * MIB;
/// More than a deletion takes.
const REST: Duration = Duration::from_secs(5);

impl Bench {
    pub(super) async fn snapshot(&self, volume: &str, name: &str) -> Result<(), Failure> {
        let volumes = vec![format!("{POOL}/{volume}")];
        self.engine.snapshot_create(volumes, name).await.map(drop).map_err(failed)
    }

    pub(super) async fn overwrite(&self, info: &VolumeInfo, count: u64, within: u64) -> Result<(), Failure> {
        let volume = Volume::open(&self.rt, info.id).map_err(failed)?;
        let mut random = Random::new(self.rt.now().0);
        for _ in 0..count {
            let at = random.below(within / BLOCK) * BLOCK;
            let bytes = self.rt.arena().take_zeroed(BLOCK as usize).freeze();
            volume.write(at, vec![bytes], false).await.map_err(failed)?;
        }
        Ok(())
    }

    fn reads(&self) -> u64 {
        (0..2).map(|disk| self.world.operations(disk, OpKind::Read)).sum()
    }

    /// Reads of all disks that deleting a snapshot takes.
    async fn deletion(&self, snapshot: &str) -> Result<f64, Failure> {
        let before = self.reads();
        self.engine.snapshot_delete(snapshot).await.map_err(failed)?;
        self.rt.sleep(REST).await;
        Ok((self.reads() - before) as f64)
    }

    /// Seconds until a snapshot of an empty volume, but for some blocks, is there.
    async fn snapshot_seconds(&self, name: &str, size: u64) -> Result<f64, Failure> {
        let (block_size, sync) = (BLOCK as u32, SyncPolicy::Always);
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
        let mut seconds = 0.0;
        for nth in 0..20 {
            self.overwrite(&info, 64, GIB).await?;
            let start = self.rt.now();
            self.snapshot(name, &format!("s{nth}")).await?;
            seconds += self.rt.now().since(start) as f64 / 1e9;
        }
        Ok(seconds / 20.0)
    }
}

/// A pool in which checkpoints are made when they are asked for, with a volume of so many snapshots, each of which keeps some blocks.
async fn with_snapshots(bench: &Bench, count: u64) -> Result<VolumeInfo, Failure> {
    let info = bench.volume("v", VOLUME).await?;
    for nth in 0..count {
        // One of them keeps more than the others.
        let blocks = if nth == SNAPSHOTS / 2 { MANY } else { FEW };
        bench.snapshot("v", &format!("s{nth}")).await?;
        bench.overwrite(&info, blocks, VOLUME).await?;
    }
    Ok(info)
}

/// Random overwrites a second. No space is given back meanwhile: what is written to holes is slower, and a volume without snapshots leaves more of them.
async fn overwrites(bench: &Bench, info: &VolumeInfo, is_shared: bool) -> Result<f64, Failure> {
    if is_shared {
        bench.snapshot("v", "last").await?;
    }
    let before = bench.engine.checkpoint(POOL).await.map_err(failed)?;
    let load = bench.load_for(info, 16, 4, LOAD).await?;
    match bench.engine.checkpoint(POOL).await.map_err(failed)? - before {
        1 => Ok(load.iops),
        _ => Err(failed("a checkpoint gave space back during the load")),
    }
}

pub fn snapshots() -> Result<Vec<Figure>, Failure> {
    // Large enough for what the snapshots keep: a pool that is nearly full is slower with or without them.
    let machine = || Machine { log_bytes: Some(LOG), ..Machine::of(Layout::Mirror, 2, 4096, SECTOR) };
    let few = |count: u64| {
        bench_on(machine(), async move |bench| {
            let info = with_snapshots(&bench, count).await?;
            overwrites(&bench, &info, count > 0).await
        })
    };
    let (none, one) = (few(0)?, few(1)?);
    bench_on(machine(), async move |bench| {
        let info = with_snapshots(&bench, SNAPSHOTS).await?;
        let many = overwrites(&bench, &info, true).await?;
        let few_reads = bench.deletion(&format!("{POOL}/v@s{}", SNAPSHOTS / 3)).await?;
        let many_reads = bench.deletion(&format!("{POOL}/v@s{}", SNAPSHOTS / 2)).await?;
        let start = bench.rt.now();
        for nth in 0..CLONES {
            let cloned = bench.engine.volume_clone(&format!("{POOL}/v@last"), &format!("c{nth}")).await;
            cloned.map_err(failed)?;
        }
        let clones = bench.rt.now().since(start) as f64 / 1e9;
        let small = bench.snapshot_seconds("gib", GIB).await?;
        let large = bench.snapshot_seconds("tib", TIB).await?;
        let name = "8 KiB random overwrites, each of a shared block first";
        Ok(vec![
            Figure::with_goal(&format!("{name}, 1 snapshot / none"), one / none, 0.9..=1.1),
            Figure::with_goal(&format!("{name}, {SNAPSHOTS} snapshots / none"), many / none, 0.9..=1.1),
            Figure::with_goal("time of a snapshot, 1 TiB volume / 1 GiB", large / small, 0.0..=1.2),
            Figure::with_goal(
                &format!("disk reads to delete one of {SNAPSHOTS} that alone has {FEW} blocks"),
                few_reads,
                0.0..=100.0,
            ),
            Figure::plain(&format!("disk reads to delete one that alone has some {MANY} blocks"), many_reads),
            Figure::with_goal(
                &format!("seconds for {CLONES} clones, one after the other"),
                clones,
                0.0..=1.0,
            ),
        ])
    })
}
