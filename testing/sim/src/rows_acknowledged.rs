//! Rows of the matrix about what an acknowledgement promises when something else changes at the same moment: the policy, the disks, a
//! checkpoint, a scrub.

use crate::crash::{self, Plan};
use crate::harness::Failure;
use crate::matrix::Shown;
use crate::rows_disk::{RECORDS_END_PAGE, written_pages};
use crate::rows_heal::failed;
use crate::rows_slow::victim;
use crate::scene::{self, Scene};
use crate::setup::{POOL, Setup};
use crate::verify::{Demand, verify};
use crate::workload::{History, Mix, Tolerance};
use forebay_base::{GIB, Random};
use forebay_pool::{Compression, DiskState, ErrorKind, SyncPolicy, Volume, VolumeFormat, VolumeSpec};
use forebay_runtime::DiskErrorKind;
use forebay_simulation::{Action, Fate, Image, OpKind, Rule};
use futures_util::future::join;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const NO_ERRORS: Tolerance = Tolerance { errors: false, no_space: true };
/// Crash images of one run.
const IMAGES: u64 = 120;
/// Power losses after one failure of a disk.
const CRASHES: u64 = 16;
/// Pages that rot and cannot be written again.
const ROTTEN_MAX: usize = 200;
/// Looks at whether it has failed.
const LOOKS: usize = 2_000;
/// What a power loss left, and what clients knew then.
type Left = (Vec<Image>, History);
/// The first two copies of a label.
const LABELS: std::ops::Range<u64> = 0..128 << 10;

/// Sync policies change under load, of volumes and of a project; volumes are zeroed whole. Each acknowledgement is held to the policy of its time.
pub fn policies(setup: &Setup) -> Result<Shown, Failure> {
    let setup = Setup { policies: true, sync: None, volumes: setup.volumes.max(2), ..setup.clone() };
    let run = crash::record(&setup)?;
    let plan = Plan { images: IMAGES, ..Plan::default() };
    match crash::explore(&run, plan, None) {
        Ok(cases) => Ok(Shown { cases, ..Shown::default() }),
        Err(found) => Err(found.failure.because(&found.story)),
    }
}

/// A disk fails a write, and recording that takes long. The power fails meanwhile; then as many of the *other* disks go as the layout can lose,
/// and the one that failed is there. An import that knows of its failure refuses; one that does not finds everything that was promised.
pub fn unrecorded(setup: &Setup) -> Result<Shown, Failure> {
    let setup =
        &Setup { groups: 1, second: false, log_disks: 0, shards: setup.shards.max(2), ..setup.clone() };
    let (own, world, victim) = (setup.clone(), scene::world(setup), victim(setup));
    let kept: Rc<RefCell<Vec<Left>>> = Rc::default();
    let crashes = kept.clone();
    scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        scene.clients.run(own.operations / 2).await?;
        for other in (0..scene.world.disk_count()).filter(|disk| *disk != victim) {
            scene.world.add_rule(Rule::new(other, Action::Slow(60)).on(OpKind::Write).within(LABELS));
        }
        // The other shards have written to it then, and are about to flush.
        for disk in 0..scene.world.disk_count() {
            scene.world.add_rule(Rule::new(disk, Action::Slow(4)).on(OpKind::Flush));
        }
        let error = Action::Fail(DiskErrorKind::Io);
        let after = scene.clients.below(30);
        scene.world.add_rule(Rule::new(victim, error).on(OpKind::Write).after(after).times(1));
        let crash = async {
            for _ in 0..LOOKS {
                if scene.disk(victim).await.is_ok_and(|disk| disk.state == DiskState::Failed) {
                    break;
                }
                scene.rt.sleep(Duration::from_micros(20)).await;
            }
            for _ in 0..CRASHES {
                scene.rt.sleep(Duration::from_micros(scene.clients.below(200))).await;
                let images = scene.world.power_loss(|_, _| Fate::Lost);
                crashes.borrow_mut().push((images, scene.clients.history()));
            }
        };
        join(scene.clients.run(own.operations), crash).await.0
    })?;
    let mut random = Random::new(setup.seed ^ 0x0acc);
    let mut shown = Shown { faults: 1, ..Shown::default() };
    for (nth, (images, history)) in kept.take().into_iter().enumerate() {
        let mut absent = 0u64;
        while absent.count_ones() < setup.redundancy() as u32 {
            let disk = random.below(setup.data_disks() as u64) as usize;
            absent |= if disk == victim { 0 } else { 1 << disk };
        }
        let demand = Demand { absent, import_errors: true, check: false, export: false, ..Demand::STRICT };
        let told = format!("the power failed (case {nth}) after sim{victim} failed; {absent:b} are gone");
        verify(setup, images, &Rc::new(history), demand, setup.seed + nth as u64)
            .map_err(|failure| failure.because(&told))?;
        shown.cases += 1;
    }
    Ok(shown)
}

/// By then a repair that was begun has ended.
const REPAIRED: Duration = Duration::from_millis(5);

/// A disk has rotted and fails writes: the first repair takes it out, as any write would.
pub fn repair_fails(setup: &Setup) -> Result<Shown, Failure> {
    // A bad copy is repaired while its leaf is in memory; with tables so small that leaves are evicted at once, it is left to a scrub.
    let setup = &Setup { groups: 1, second: false, table_records: 0, ..setup.clone() };
    let (own, world, victim) = (setup.clone(), scene::world(setup), victim(setup));
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        scene.clients.run(own.operations).await?;
        scene.engine.checkpoint(POOL).await.map_err(failed("a checkpoint failed"))?;
        let pages = written_pages(&scene.world.image(victim));
        // What lies before the slots is not repaired on being read, but written anew by the next checkpoint that has to.
        let mut rotten: Vec<u64> = pages.into_iter().filter(|page| *page >= RECORDS_END_PAGE).collect();
        while rotten.len() > ROTTEN_MAX {
            rotten.swap_remove(scene.clients.below(rotten.len() as u64) as usize);
        }
        for page in &rotten {
            scene.world.rot(victim, page * 4096 + scene.clients.below(4096), &[1]);
        }
        // Only repairs write there; whatever else is written goes to its disk.
        for page in rotten {
            let error = Action::Fail(DiskErrorKind::Io);
            let bytes = page * 4096..(page + 1) * 4096;
            scene.world.add_rule(Rule::new(victim, error).on(OpKind::Write).within(bytes));
        }
        scene.clients.mix.set(Mix::READS);
        // Looked at before the end of the scrub: it makes a checkpoint, whose own writes can take the disk out without any repair.
        scene.clients.run(own.operations).await?;
        // A repair may be on its way.
        scene.rt.sleep(REPAIRED).await;
        out_if_rotten(scene, victim).await?;
        scene.engine.scrub_start(POOL).await.map_err(failed("starting a scrub failed"))?;
        scene.clients.run(own.operations / 4).await?;
        scene.engine.pool_scrubbed(POOL).await.map_err(failed("scrubbing failed"))?;
        out_if_rotten(scene, victim).await
    })?;
    let images = world.power_loss(|_, _| Fate::Lost);
    let demand = Demand { absent: 1 << victim, check: false, ..Demand::STRICT };
    verify(setup, images, &ended.history, demand, setup.seed)?;
    Ok(Shown { cases: 1, faults: 1, ..Shown::default() })
}

/// That a disk of which something rotten was read, and whose repairs fail, is out, and that no other is held for it.
async fn out_if_rotten(scene: &Scene, victim: usize) -> Result<(), Failure> {
    for number in 0..scene.world.disk_count() {
        // Log disks, and those of the cache, may be no part of a group.
        let Ok(found) = scene.disk(number).await else { continue };
        let is_out = matches!(found.state, DiskState::Failed | DiskState::Rebuilt);
        let wrong = match (number == victim, found.errors.checksum > 0) {
            (true, true) if !is_out => "a disk whose repairs fail is still in service",
            (false, true) => "a disk that is right is said to have been wrong",
            _ => continue,
        };
        return Err(Failure::Outcome(format!("{wrong}: {found:?}")));
    }
    Ok(())
}

/// Leaves of a volume that a scrub walks while checkpoints are made.
const LEAVES: u64 = 200;
/// How much longer a checkpoint may take beside a scrub: one step of it, which reads 16 runs.
const STEP: Duration = Duration::from_millis(5);

/// A scrub walks many leaves, and delays no checkpoint by more than one step.
pub fn scrubbed_beside_checkpoints(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, second: false, volumes: 1, shards: 1, disk_mib: 38, ..setup.clone() };
    let world = scene::world(setup);
    scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        let spec = VolumeSpec {
            pool: POOL.into(),
            name: "sparse".into(),
            size: 4 * GIB,
            block_size: 4096,
            sync: Some(SyncPolicy::Standard),
            compression: Some(Compression::Off),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = scene.engine.volume_create(spec).await.map_err(failed("creating a volume failed"))?;
        let io = |error| Failure::Outcome(format!("on the sparse volume: {error}"));
        let volume = Volume::open(&scene.rt, info.id).map_err(io)?;
        for leaf in 0..LEAVES {
            let data = scene.rt.arena().take_zeroed(4096);
            let mut data = data;
            data.fill(1 + leaf as u8 % 200);
            volume.write(leaf * 508 * 4096, vec![data.freeze()], false).await.map_err(io)?;
        }
        let mut took = Vec::new();
        for is_scrubbed in [false, true] {
            for _ in 0..2 {
                scene.engine.checkpoint(POOL).await.map_err(failed("a checkpoint failed"))?;
            }
            if is_scrubbed {
                scene.engine.scrub_start(POOL).await.map_err(failed("starting a scrub failed"))?;
                scene.rt.sleep(Duration::from_millis(1)).await;
            }
            let begun = scene.rt.now();
            scene.engine.checkpoint(POOL).await.map_err(failed("a checkpoint failed"))?;
            took.push(Duration::from_nanos(scene.rt.now().since(begun)));
        }
        match scene.engine.scrub_start(POOL).await {
            // It is still at it: the checkpoint was beside it.
            Err(error) if error.kind == ErrorKind::Conflict => {}
            _ => return Err(Failure::Outcome("the scrub was over before the checkpoint".into())),
        }
        scene.engine.pool_scrubbed(POOL).await.map_err(failed("scrubbing failed"))?;
        match took[1] > took[0] + STEP {
            true => Err(Failure::Stuck(format!(
                "a checkpoint took {:?} beside a scrub, {:?} alone",
                took[1], took[0]
            ))),
            false => Ok(()),
        }
    })?;
    Ok(Shown { cases: 1, ..Shown::default() })
}
