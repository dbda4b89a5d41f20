//! A row of the matrix about disks that hang with all requests that they may have: they are taken out, and others of the core are served.

use crate::harness::Failure;
use crate::matrix::Shown;
use crate::rows_heal::{failed, judged};
use crate::rows_slow::victim;
use crate::scene::Scene;
use crate::setup::Setup;
use forebay_base::MIB;
use forebay_pool::{Compression, DiskState, Layout, PoolSpec, SyncPolicy, Volume, VolumeFormat, VolumeSpec};
use forebay_simulation::{Action, Image, Rule};
use futures_util::future::join3;
use std::cell::Cell;
use std::time::Duration;

/// Requests that the disks of a core have at a time, so few that a disk which hangs is asked for more.
const REQUESTS: usize = 32;
/// Tasks that work while disks hang, and what they do.
const CLIENTS: usize = 64;
const OPERATIONS: u64 = 600;
/// Seconds of virtual time after which a disk that hangs is out: one that answered a moment ago is given twenty, its peers two.
const OUT_SECONDS: u64 = 30;
/// What an operation of the pool beside takes at most; alone it is a few milliseconds.
const BESIDE: Duration = Duration::from_millis(500);

/// One disk of each group hangs, with more requests than it may have. Both are taken out, and meanwhile a pool beside it, on the
/// same cores, is served as ever.
pub fn crowded(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, second: true, requests: REQUESTS, clients: CLIENTS, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, _| {
        let beside = Beside::create(scene, own.shards).await?;
        let second = own.second_disks();
        let victims = [victim(&own), second.start + own.seed as usize / 2 % second.len()];
        victims.iter().for_each(|disk| scene.world.add_rule(Rule::new(*disk, Action::Hang)));
        let done = Cell::new(false);
        let evicted = async {
            let result = evicted(scene, &victims).await;
            done.set(true);
            result
        };
        let (ran, evicted, served) =
            join3(scene.clients.run(OPERATIONS), evicted, beside.work(scene, &done)).await;
        evicted?;
        served?;
        ran?;
        scene.clients.run(own.operations).await?;
        let gone = victims.iter().chain(&beside.disks);
        Ok(gone.fold(0, |gone, disk| gone | 1 << disk))
    })
}

/// Waits until these disks are out of service.
async fn evicted(scene: &Scene, disks: &[usize]) -> Result<(), Failure> {
    for _ in 0..4 * OUT_SECONDS {
        scene.rt.sleep(Duration::from_millis(250)).await;
        let mut are_out = true;
        for disk in disks {
            are_out &= matches!(scene.disk(*disk).await?.state, DiskState::Failed | DiskState::Rebuilt);
        }
        if are_out {
            return Ok(());
        }
    }
    let mut states = Vec::new();
    for disk in disks {
        states.push(scene.disk(*disk).await?.state);
    }
    Err(Failure::Outcome(format!("disks {disks:?} hung for {OUT_SECONDS} seconds, and are {states:?}")))
}

/// A pool on other disks.
struct Beside {
    disks: [usize; 2],
    volume: Volume,
}

impl Beside {
    async fn create(scene: &Scene, shards: usize) -> Result<Beside, Failure> {
        let disks = [(); 2].map(|()| scene.world.add_disk(Image::new(22 * MIB)));
        let pool = PoolSpec {
            name: "beside".into(),
            layout: Layout::Mirror,
            disks: disks.iter().map(|disk| format!("sim{disk}")).collect(),
            log_disks: Vec::new(),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            shards,
            log_bytes: Some(256 << 10),
            force: false,
        };
        scene.engine.pool_create(pool).await.map_err(failed("creating the pool beside failed"))?;
        let volume = VolumeSpec {
            pool: "beside".into(),
            name: "volume".into(),
            size: MIB,
            block_size: 4096,
            sync: Some(SyncPolicy::Standard),
            compression: Some(Compression::Off),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = scene.engine.volume_create(volume).await;
        let info = info.map_err(failed("creating the volume beside failed"))?;
        let volume = Volume::open(&scene.rt, info.id).expect("it was just created");
        Ok(Beside { disks, volume })
    }

    /// Writes, flushes, reads back and makes checkpoints until `done`; none may take long.
    async fn work(&self, scene: &Scene, done: &Cell<bool>) -> Result<(), Failure> {
        let failed = |error| Failure::Outcome(format!("an operation on the pool beside failed: {error}"));
        let mut written = [0; (MIB / 4096) as usize];
        while !done.get() {
            let begun = scene.rt.now();
            for _ in 0..8 {
                let block = scene.clients.below(written.len() as u64) as usize;
                written[block] = scene.clients.below(256) as u8;
                let page = scene.rt.arena().copy(&[written[block]; 4096]).freeze();
                self.volume.write(block as u64 * 4096, vec![page], false).await.map_err(failed)?;
            }
            self.volume.flush().await.map_err(failed)?;
            let block = scene.clients.below(written.len() as u64) as usize;
            let parts = self.volume.read(block as u64 * 4096, 4096).await.map_err(failed)?;
            if parts.iter().any(|part| part.iter().any(|byte| *byte != written[block])) {
                return Err(Failure::Content(format!("block {block} of the pool beside is another")));
            }
            let checkpoint = scene.engine.checkpoint("beside").await;
            checkpoint.map_err(|error| Failure::Outcome(format!("a checkpoint beside failed: {error}")))?;
            let took = Duration::from_nanos(scene.rt.now().since(begun));
            if took > BESIDE {
                let text = format!("disks hung, and a pool on others waited for them: {took:?}");
                return Err(Failure::Outcome(text));
            }
            scene.rt.sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}
