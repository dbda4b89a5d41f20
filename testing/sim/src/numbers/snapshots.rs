//! What snapshots and clones cost in requests to disks.

use super::{BLOCK, Bench, Figure, POOL, SECTOR, bench, failed};
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
/// Loads of each volume.
const ROUNDS: u64 = 3;
const LOAD: Duration = Duration::from_millis(200);
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

pub fn snapshots() -> Result<Vec<Figure>, Failure> {
    // Large enough for what the snapshots keep: a pool that is nearly full is slower with or without them.
    bench(Layout::Mirror, 2, 4096, SECTOR, async |bench| {
        let counts = [("none", 0), ("one", 1), ("many", SNAPSHOTS)];
        let mut volumes = Vec::new();
        for (name, count) in counts {
            let info = bench.volume(name, VOLUME).await?;
            for nth in 0..count {
                // One of them keeps more than the others.
                let blocks = if nth == SNAPSHOTS / 2 { MANY } else { FEW };
                bench.snapshot(name, &format!("s{nth}")).await?;
                bench.overwrite(&info, blocks, VOLUME).await?;
            }
            volumes.push(info);
        }
        // In turns: how full the log is when a load begins says more about it than snapshots do.
        let mut iops = [0.0; 3];
        for round in 0..ROUNDS {
            for (nth, (name, count)) in counts.into_iter().enumerate() {
                match count {
                    // A checkpoint gives space back, and what is written next goes into holes: that is not the snapshot's doing.
                    0 => bench.engine.checkpoint(POOL).await.map(|_| ()).map_err(failed)?,
                    _ => bench.snapshot(name, &format!("r{round}")).await?,
                }
                iops[nth] += bench.load_for(&volumes[nth], 16, 4, LOAD).await?.iops;
            }
        }
        let few = bench.deletion(&format!("{POOL}/many@s{}", SNAPSHOTS / 3)).await?;
        let many = bench.deletion(&format!("{POOL}/many@s{}", SNAPSHOTS / 2)).await?;
        let start = bench.rt.now();
        for nth in 0..CLONES {
            let cloned = bench.engine.volume_clone(&format!("{POOL}/many@r0"), &format!("c{nth}")).await;
            cloned.map_err(failed)?;
        }
        let clones = bench.rt.now().since(start) as f64 / 1e9;
        let small = bench.snapshot_seconds("gib", GIB).await?;
        let large = bench.snapshot_seconds("tib", TIB).await?;
        let overwrites = "8 KiB random overwrites, each of a shared block first";
        Ok(vec![
            Figure::with_goal(&format!("{overwrites}, 1 snapshot / none"), iops[1] / iops[0], 0.9..=1.1),
            Figure::with_goal(
                &format!("{overwrites}, {SNAPSHOTS} snapshots / none"),
                iops[2] / iops[0],
                0.9..=1.1,
            ),
            Figure::with_goal("time of a snapshot, 1 TiB volume / 1 GiB", large / small, 0.0..=1.2),
            Figure::with_goal(
                &format!("disk reads to delete one of {SNAPSHOTS} that alone has {FEW} blocks"),
                few,
                0.0..=100.0,
            ),
            Figure::plain(&format!("disk reads to delete one that alone has some {MANY} blocks"), many),
            Figure::with_goal(
                &format!("seconds for {CLONES} clones, one after the other"),
                clones,
                0.0..=1.0,
            ),
        ])
    })
}
