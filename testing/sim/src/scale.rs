//! What many things cost: volumes, snapshots and chunks by the hundred thousand, on simulated disks.
//!
//! Simulated disks answer at once, so times are the processor's, of this machine; bytes are what all disks were written. Memory is what the process has more
//! than before, and includes the contents of the simulated disks.

use crate::harness::{Conditions, Failure, host, in_world};
use crate::setup::POOL;
use forebay_base::{KIB, MIB};
use forebay_pool::{
    Compression, Engine, EngineConfig, Import, Layout, PoolSpec, SnapshotInfo, SyncPolicy, Volume,
    VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::Rt;
use forebay_simulation::{Image, World, WorldConfig};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(100_000_000);
const BLOCK: u64 = 64 * KIB;
const PURGE: VolumeDelete = VolumeDelete { with_snapshots: true, purge: true };
/// Volumes of which snapshots are taken together.
const TOGETHER: usize = 1000;

/// How many of each.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub volumes: usize,
    pub snapshots: usize,
    pub chunks: usize,
    pub shards: usize,
}

struct Scale {
    world: World,
    rt: Rt,
    engine: Engine,
    paths: Vec<String>,
    extent: Extent,
}

/// Prints each figure as it is there.
pub fn run(extent: Extent) -> Result<(), Failure> {
    // A slot of the smallest disks is 128 KiB, and a disk has 256.
    let disks = (extent.chunks.div_ceil(200)).max(8);
    let world = World::new(WorldConfig { shuffle: false, turns_max: u64::MAX, ..WorldConfig::new(1) });
    for _ in 0..disks {
        world.add_disk(Image::new(64 * MIB));
    }
    println!("{extent:?}, {disks} disks of 64 MiB");
    let own = world.clone();
    let conditions = Conditions { is_bounded: false, ..Conditions::of(extent.shards) };
    in_world(&world, conditions, LIMIT, move |rt, cores| async move {
        let config = EngineConfig { memory: 256 * MIB, events: Arc::new(|_| ()), host: host(1) };
        let engine = Engine::new(cores, config);
        let paths: Vec<String> = (0..disks).map(|disk| format!("sim{disk}")).collect();
        let scale = Scale { world: own, rt, engine, paths, extent };
        scale.create().await?;
        scale.fill_volumes().await?;
        scale.snapshots().await?;
        scale.import().await?;
        scale.chunks().await?;
        scale.import().await?;
        scale.delete().await
    })
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Outcome(error.to_string())
}

/// Memory of the process, in bytes.
fn memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 4096
}

impl Scale {
    fn written(&self) -> u64 {
        (0..self.paths.len()).map(|disk| self.world.written(disk)).sum()
    }

    /// Does something, and prints what each of `count` took.
    async fn timed<T>(
        &self,
        what: &str,
        count: usize,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let (begun, written, before) = (Instant::now(), self.written(), memory());
        let done = work.await?;
        let (took, bytes) = (begun.elapsed(), self.written() - written);
        println!(
            "{what:44} {count:8}: {:9.3} s, {:9.1} us and {:9.0} bytes written each; {:6} MiB more memory",
            took.as_secs_f64(),
            took.as_secs_f64() * 1e6 / count.max(1) as f64,
            bytes as f64 / count.max(1) as f64,
            memory().saturating_sub(before) >> 20,
        );
        Ok(done)
    }

    async fn create(&self) -> Result<(), Failure> {
        let spec = PoolSpec {
            name: POOL.into(),
            layout: Layout::Single,
            disks: self.paths.clone(),
            log_disks: Vec::new(),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            shards: self.extent.shards,
            log_bytes: Some(64 * MIB),
            force: false,
        };
        self.timed("pool created", 1, async { self.engine.pool_create(spec).await.map_err(failed) }).await?;
        Ok(())
    }

    async fn volume(&self, name: String, size: u64) -> Result<(), Failure> {
        let spec = VolumeSpec {
            pool: POOL.into(),
            name,
            size,
            block_size: BLOCK as u32,
            sync: Some(SyncPolicy::Standard),
            compression: Some(Compression::Off),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        self.engine.volume_create(spec).await.map(drop).map_err(failed)
    }

    async fn checkpoints(&self, what: &str) -> Result<(), Failure> {
        let volume = self.open("v0").await?;
        for _ in 0..2 {
            self.write(&volume, 0).await?;
            self.engine.checkpoint(POOL).await.map_err(failed)?;
        }
        self.write(&volume, 0).await?;
        let what = format!("checkpoint of one block, {what}");
        self.timed(&what, 1, async { self.engine.checkpoint(POOL).await.map_err(failed) }).await.map(drop)
    }

    async fn open(&self, name: &str) -> Result<Volume, Failure> {
        let id = self.engine.volume(&format!("{POOL}/{name}")).await.map_err(failed)?.id;
        Volume::open(&self.rt, id).map_err(failed)
    }

    async fn write(&self, volume: &Volume, at: u64) -> Result<(), Failure> {
        let mut bytes = self.rt.buffer(BLOCK as usize);
        bytes.fill(at as u8 | 1);
        volume.write(at, vec![bytes.freeze()], false).await.map_err(failed)
    }

    async fn fill_volumes(&self) -> Result<(), Failure> {
        let count = self.extent.volumes;
        self.timed("volumes created", count, async {
            for nth in 0..count {
                self.volume(format!("v{nth}"), MIB).await?;
            }
            Ok(())
        })
        .await?;
        let all =
            self.timed("volumes listed", count, async { self.engine.volumes(None).await.map_err(failed) });
        assert_eq!(all.await?.len(), count);
        self.checkpoints("with volumes").await
    }

    async fn snapshots(&self) -> Result<(), Failure> {
        let (volumes, count) = (self.extent.volumes, self.extent.snapshots);
        let taken = self.timed("snapshots taken, a thousand at a time", count, async {
            let mut taken = 0;
            while taken < count {
                let (round, first) = (taken / volumes, taken % volumes);
                let last = volumes.min(first + TOGETHER).min(first + count - taken);
                let of = (first..last).map(|nth| format!("{POOL}/v{nth}")).collect();
                self.engine.snapshot_create(of, &format!("s{round}")).await.map_err(failed)?;
                taken += last - first;
            }
            Ok(())
        });
        taken.await?;
        if count == 0 {
            return Ok(());
        }
        let listed = self
            .timed("snapshots listed", count, async { self.engine.snapshots(None).await.map_err(failed) });
        let all: Vec<SnapshotInfo> = listed.await?;
        assert_eq!(all.len(), count);
        self.checkpoints("with snapshots").await?;
        let few = 1000.min(count);
        self.timed("snapshots deleted", few, async {
            for snapshot in &all[..few] {
                self.engine.snapshot_delete(&snapshot.id.to_string()).await.map_err(failed)?;
            }
            Ok(())
        })
        .await
    }

    async fn import(&self) -> Result<(), Failure> {
        self.timed("pool exported", 1, async { self.engine.pool_export(POOL).await.map_err(failed) }).await?;
        self.timed("pool imported", 1, async {
            self.engine.pool_import(POOL, self.paths.clone(), Import::default()).await.map_err(failed)
        })
        .await?;
        self.checkpoints("after an import").await
    }

    /// Has all chunks granted that there are to be.
    async fn chunks(&self) -> Result<(), Failure> {
        let blocks = self.extent.chunks * 2;
        if blocks == 0 {
            return Ok(());
        }
        self.volume("large".into(), 1 << 40).await?;
        let volume = self.open("large").await?;
        self.timed("chunks filled", self.extent.chunks, async {
            for nth in 0..blocks as u64 {
                match volume
                    .write(nth * BLOCK, vec![self.rt.arena().take_zeroed(BLOCK as usize).freeze()], false)
                    .await
                {
                    Ok(()) => {}
                    Err(forebay_pool::IoError::NoSpace) => break,
                    Err(error) => return Err(failed(error)),
                }
            }
            Ok(())
        })
        .await?;
        self.checkpoints("with chunks").await
    }

    async fn delete(&self) -> Result<(), Failure> {
        let few = 1000.min(self.extent.volumes - 1);
        self.timed("volumes deleted, with their snapshots", few, async {
            for nth in 1..=few {
                let name = format!("{POOL}/v{nth}");
                self.engine.volume_delete(&name, PURGE).await.map_err(failed)?;
            }
            Ok(())
        })
        .await
    }
}
