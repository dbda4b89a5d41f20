//! Rows of the matrix about the pool as a whole: disks that go, come back or are not its own, space that ends, a clock
//! that jumps.

use crate::harness::{Failure, LIMIT, engine, in_world};
use crate::matrix::Shown;
use crate::scene::{self, Ended, Scene};
use crate::setup::{POOL, Setup};
use crate::verify::{Demand, verify};
use crate::workload::{History, Tolerance};
use forebay_base::Random;
use forebay_pool::{Compression, DiskState, Import};
use forebay_simulation::{Action, Fate, Image, OpKind, Rule, World, WorldConfig};
use futures_util::future::join3;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const NO_ERRORS: Tolerance = Tolerance { errors: false, no_space: true };

/// A mirror's disk goes in mid-run; the pool serves on, comes back without it, and with it as it was when it went.
pub fn gone_and_stale(setup: &Setup) -> Result<Shown, Failure> {
    let world = scene::world(setup);
    let victim = if setup.seed.is_multiple_of(4) { 0 } else { setup.data_disks() - 1 };
    let operations = setup.operations;
    let stale: Rc<RefCell<Option<Image>>> = Rc::default();
    let kept = stale.clone();
    let export = setup.seed.is_multiple_of(2);
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        scene.clients.run(operations / 2).await?;
        *kept.borrow_mut() = scene.world.power_loss(|_, _| Fate::Lost).into_iter().nth(victim);
        scene.world.set_gone(victim, true);
        scene.clients.run(operations).await?;
        if export { scene.export().await } else { Ok(()) }
    })?;
    let mut images = world.power_loss(|_, _| Fate::Lost);
    let without = Demand { absent: 1 << victim, ..Demand::STRICT };
    let told = |failure: Failure, what: &str| failure.because(&format!("sim{victim} {what}"));
    verify(setup, images.clone(), &ended.history, without, setup.seed)
        .map_err(|failure| told(failure, "had gone and stays away"))?;
    images[victim] = stale.take().expect("the script kept it");
    let with = Demand { check: false, ..Demand::STRICT };
    let verified = verify(setup, images, &ended.history, with, setup.seed)
        .map_err(|failure| told(failure, "had gone and comes back stale"))?;
    if verified.states.get(&(victim as u16)) == Some(&DiskState::Online) {
        return Err(Failure::Outcome(format!("sim{victim} came back stale and counts as online")));
    }
    Ok(Shown { cases: 2, faults: 1, errors: ended.excused, repaired: verified.repaired })
}

/// The only disk vanishes at a drawn operation; when it is back, everything acknowledged is there.
pub fn gone_single(setup: &Setup) -> Result<Shown, Failure> {
    let mut random = Random::new(setup.seed ^ 0x60e);
    let mut shown = Shown::default();
    for _ in 0..12 {
        let world = scene::world(setup);
        let (operations, after) = (setup.operations, random.below(400));
        let tolerance = Tolerance { errors: true, no_space: true };
        let fired = Rc::new(Cell::new(0));
        let count = fired.clone();
        let ended = scene::play(&world, setup, tolerance, async move |scene: &Scene| {
            scene.clients.create_volumes().await?;
            scene.world.add_rule(Rule::new(0, Action::Vanish).after(after).times(1));
            scene.clients.run(operations).await?;
            count.set(scene.world.faults_fired());
            Ok(())
        })
        .map_err(|failure| failure.because(&format!("sim0 vanished after {after} operations")))?;
        let images = world.power_loss(|_, _| Fate::Lost);
        verify(setup, images, &ended.history, Demand::STRICT, random.next_u64())
            .map_err(|failure| failure.because(&format!("sim0 had vanished after {after} operations")))?;
        shown += Shown { cases: 1, faults: fired.get(), errors: ended.excused, repaired: 0 };
    }
    Ok(shown)
}

/// What stands in a list of devices at import.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Device {
    /// The pool's own disk of this index.
    Own(usize),
    /// A disk of another pool.
    Foreign,
    /// A byte-for-byte copy of the pool's first disk: another device with the same label.
    Copy,
    /// The pool's first disk once more, by another name: the same device, which is no harm.
    Alias,
    /// A disk without a label: as good as a missing one.
    Empty,
}

/// Every ordered choice of the pool's disks and strangers: the right ones in any order are taken, those of other pools and
/// copies refused, and then nothing has been written.
pub fn wrong_disk(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, log_disks: 0, cache_disks: 0, second: false, ..setup.clone() };
    let (_, own) = exported(setup)?;
    let (_, foreign) = exported(&Setup { seed: setup.seed ^ 0xf0, ..setup.clone() })?;
    let strangers = [Device::Foreign, Device::Copy, Device::Alias, Device::Empty];
    let mut shown = Shown::default();
    for stranger in strangers.into_iter().map(Some).chain([None]) {
        let mut devices: Vec<Device> = (0..own.len()).map(Device::Own).chain(stranger).collect();
        if own.len() < 3 && stranger.is_some() {
            devices.push(Device::Foreign);
        }
        for list in ordered_choices(&devices) {
            if import_of(setup, &own, &foreign, &list)? {
                shown.cases += 1;
            }
        }
    }
    Ok(shown)
}

/// What a power loss left on the disks, and what had happened before.
type Crash = (Vec<Image>, History);

/// Judges the disks as they were in the end, and after each power loss.
fn verify_all(
    setup: &Setup,
    world: &World,
    ended: &Ended,
    crashes: Vec<Crash>,
    because: &str,
) -> Result<Shown, Failure> {
    let images = (0..world.disk_count()).map(|disk| world.image(disk)).collect();
    verify(setup, images, &ended.history, Demand::STRICT, setup.seed)?;
    let cases = 1 + crashes.len() as u64;
    for (images, history) in crashes {
        verify(setup, images, &Rc::new(history), Demand::STRICT, setup.seed)
            .map_err(|failure| failure.because(because))?;
    }
    Ok(Shown { cases, faults: ended.excused, ..Shown::default() })
}

/// Disks of a pool that was used a little and exported, and what must be on them.
pub(crate) fn exported(setup: &Setup) -> Result<(Rc<History>, Vec<Image>), Failure> {
    let world = scene::world(setup);
    let operations = setup.operations.min(40);
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        scene.clients.run(operations).await?;
        scene.export().await
    })?;
    Ok((ended.history, (0..world.disk_count()).map(|disk| world.image(disk)).collect()))
}

fn ordered_choices(devices: &[Device]) -> Vec<Vec<Device>> {
    let mut lists: Vec<Vec<Device>> = vec![Vec::new()];
    let mut from = 0;
    while from < lists.len() {
        let list = lists[from].clone();
        for device in devices.iter().copied().filter(|device| !list.contains(device)) {
            lists.push(list.iter().copied().chain([device]).collect());
        }
        from += 1;
    }
    lists.retain(|list| !list.is_empty());
    lists
}

/// Imports one list of devices. False when it says nothing: some of the pool's disks alone.
fn import_of(setup: &Setup, own: &[Image], foreign: &[Image], list: &[Device]) -> Result<bool, Failure> {
    let is_there =
        |index: usize| list.contains(&Device::Own(index)) || (index == 0 && list.contains(&Device::Alias));
    let stranger = list.contains(&Device::Foreign);
    let twice = list.contains(&Device::Copy) && is_there(0);
    let complete = (0..own.len()).all(is_there) && !stranger && !twice;
    if !(stranger || twice || complete) {
        return Ok(false);
    }
    let world = World::new(WorldConfig::new(setup.seed));
    own.iter().for_each(|image| {
        world.add_disk(image.clone());
    });
    let strangers = [foreign[0].clone(), own[0].clone(), Image::new(setup.disk_bytes())];
    let [foreign, copy, empty] = strangers.map(|image| world.add_disk(image));
    world.alias("again", 0);
    let before: Vec<Image> = (0..world.disk_count()).map(|disk| world.image(disk)).collect();
    let paths: Vec<String> = list
        .iter()
        .map(|device| match device {
            Device::Own(index) => format!("sim{index}"),
            Device::Foreign => format!("sim{foreign}"),
            Device::Copy => format!("sim{copy}"),
            Device::Alias => "again".into(),
            Device::Empty => format!("sim{empty}"),
        })
        .collect();
    // Both pools have one name: the pool is asked for by what the first disk's label says.
    let (result, _) = in_world(&world, setup.conditions(), LIMIT, move |_, cores| async move {
        let (engine, _) = engine(cores);
        let id = engine.pool_scan(vec!["sim0".into()]).await.first().map(|found| found.id.to_string());
        let id = id.ok_or_else(|| Failure::Outcome("the pool's own disk was not recognised".into()))?;
        Ok((engine.pool_import(&id, paths, Import::default()).await.map(drop), ()))
    })?;
    match result {
        Ok(()) if complete => Ok(true),
        Ok(()) => Err(Failure::Outcome(format!("an import of {list:?} was not refused"))),
        Err(error) if complete => Err(Failure::Outcome(format!("an import of {list:?} failed: {error}"))),
        Err(_) => {
            let written =
                (0..before.len()).find(|&disk| !before[disk].difference(&world.image(disk)).is_empty());
            match written {
                None => Ok(true),
                Some(disk) => {
                    Err(Failure::Outcome(format!("a refused import of {list:?} wrote to sim{disk}")))
                }
            }
        }
    }
}

/// The pool is filled to the last block, used on, crashed, emptied by discard and deletion, and used again.
pub fn no_space(setup: &Setup) -> Result<Shown, Failure> {
    // Large blocks need large holes, and small pieces in every chunk leave few of them: a full pool may refuse them with
    // half of its space free.
    let setup = &Setup { compression: Some(Compression::Off), ..setup.clone() };
    let world = scene::world(setup);
    let operations = setup.operations;
    type Full = Option<(Vec<Image>, crate::workload::History)>;
    let full: Rc<RefCell<Full>> = Rc::default();
    let kept = full.clone();
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        let failed = |error| Failure::Outcome(format!("on a full pool: {error}"));
        scene.clients.create_volumes().await?;
        let filling = scene.clients.fill().await?;
        scene.clients.run(operations / 2).await?;
        *kept.borrow_mut() = Some((scene.world.power_loss(|_, _| Fate::Lost), scene.clients.history()));
        scene.clients.discard_half(&filling).await?;
        scene.engine.checkpoint(POOL).await.map_err(failed)?;
        scene.engine.checkpoint(POOL).await.map_err(failed)?;
        let refused = scene.clients.refused.get();
        scene.clients.run(operations / 4).await?;
        if scene.clients.refused.get() > refused {
            return Err(Failure::Outcome(
                "half of the pool was discarded and there is still no space".into(),
            ));
        }
        scene.clients.fill_again(&filling).await?;
        scene.clients.delete_filling(&filling).await?;
        scene.engine.checkpoint(POOL).await.map_err(failed)?;
        scene.engine.checkpoint(POOL).await.map_err(failed)?;
        let refused = scene.clients.refused.get();
        scene.clients.run(operations / 4).await?;
        if scene.clients.refused.get() > refused {
            return Err(Failure::Outcome(
                "the volume that filled the pool was deleted and there is still no space".into(),
            ));
        }
        scene.export().await
    })?;
    let images = (0..world.disk_count()).map(|disk| world.image(disk)).collect();
    verify(setup, images, &ended.history, Demand::STRICT, setup.seed)?;
    let (images, history) = full.take().expect("the script kept it");
    verify(setup, images, &Rc::new(history), Demand::STRICT, setup.seed)
        .map_err(|failure| failure.because("crashed while full"))?;
    Ok(Shown { cases: 2, faults: ended.excused, ..Shown::default() })
}

/// The log of a pool with parity that takes the longest write of the workload in any layout.
const RESERVED_LOG_KIB: u64 = 4096;

/// A pool that thin volumes have filled: what is reserved can be written, whole and again and again, after a crash as well, and
/// a snapshot is refused when what it keeps could not be written anew.
pub fn reserved(setup: &Setup) -> Result<Shown, Failure> {
    let mut setup = setup.clone();
    if setup.layout.data() > 1 {
        // What fits neither into whole lines nor into the log is refused in a full pool: see decision 0013.
        setup.log_kib = setup.log_kib.max(RESERVED_LOG_KIB);
    }
    let setup = &setup;
    let world = scene::world(setup);
    let crashes: Rc<RefCell<Vec<Crash>>> = Rc::default();
    let kept = crashes.clone();
    let operations = setup.operations;
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        let crash = || {
            let images = scene.world.power_loss(|nth, _| if nth % 3 == 0 { Fate::Whole } else { Fate::Lost });
            kept.borrow_mut().push((images, scene.clients.history()));
        };
        let clients = &scene.clients;
        clients.create_volumes().await?;
        let mut reserved = clients.reserve().await?;
        let filling = clients.fill().await?;
        clients.write_reserved(&reserved, true).await?;
        crash();
        for _ in 0..3 {
            let taken = clients.snapshot_reserved(&mut reserved).await?;
            clients.write_reserved(&reserved, true).await?;
            clients.write_reserved(&reserved, false).await?;
            clients.run(operations / 4).await?;
            clients.fill_again(&filling).await?;
            clients.write_reserved(&reserved, true).await?;
            crash();
            if taken {
                clients.forget_snapshot(&reserved).await?;
            } else {
                clients.scatter(&filling).await?;
            }
        }
        scene.export().await
    })?;
    verify_all(setup, &world, &ended, crashes.take(), "crashed while full")
}

/// Chunks with many holes are evacuated while clients overwrite what lies in them; the power goes now and then.
pub fn scattered(setup: &Setup) -> Result<Shown, Failure> {
    let world = scene::world(setup);
    let crashes: Rc<RefCell<Vec<Crash>>> = Rc::default();
    let kept = crashes.clone();
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        let failed = |error| Failure::Outcome(format!("with scattered space: {error}"));
        scene.clients.create_volumes().await?;
        let filling = scene.clients.fill().await?;
        scene.clients.scatter(&filling).await?;
        scene.engine.checkpoint(POOL).await.map_err(failed)?;
        scene.engine.checkpoint(POOL).await.map_err(failed)?;
        scene.clients.compress(&filling).await?;
        let mut won = 0;
        for _ in 0..6 {
            let compacting = scene.engine.pool_compact(POOL);
            let overwriting = scene.clients.overwrite(&filling, 60);
            let crashing = async {
                scene.rt.sleep(Duration::from_micros(scene.clients.below(20_000))).await;
                let crash = (
                    scene.world.power_loss(|nth, _| if nth % 3 == 0 { Fate::Whole } else { Fate::Lost }),
                    scene.clients.history(),
                );
                kept.borrow_mut().push(crash);
            };
            let (compacted, overwritten, ()) = join3(compacting, overwriting, crashing).await;
            won += compacted.map_err(failed)?;
            overwritten?;
        }
        if won == 0 {
            return Err(Failure::Outcome("half of the pool was discarded and not one chunk was won".into()));
        }
        scene.export().await
    })?;
    verify_all(setup, &world, &ended, crashes.take(), "crashed while chunks were evacuated")
}

/// Blocks are moved together while clients rest, and now and then overwrite some of them; the power goes meanwhile.
pub fn gathered(setup: &Setup) -> Result<Shown, Failure> {
    let world = scene::world(setup);
    let crashes: Rc<RefCell<Vec<Crash>>> = Rc::default();
    let kept = crashes.clone();
    // Where a full pool has no free lines, chunks can hardly be emptied.
    let has_room = setup.layout.data() == 1;
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        let reads = || -> u64 {
            (0..scene.world.disk_count()).map(|disk| scene.world.operations(disk, OpKind::Read)).sum()
        };
        scene.clients.create_volumes().await?;
        let filling = scene.clients.fill().await?;
        scene.clients.scatter(&filling).await?;
        scene.clients.compress(&filling).await?;
        let mut moved = 0;
        for _ in 0..2 {
            scene.clients.overwrite(&filling, 60).await?;
            scene.clients.read_through(&filling).await?;
            for _ in 0..2 {
                // It begins after a second or two of rest.
                let before = reads();
                scene.rt.sleep(Duration::from_micros(1_100_000 + scene.clients.below(300_000))).await;
                moved += reads() - before;
                let crash = (
                    scene.world.power_loss(|nth, _| if nth % 3 == 0 { Fate::Whole } else { Fate::Lost }),
                    scene.clients.history(),
                );
                kept.borrow_mut().push(crash);
                scene.clients.overwrite(&filling, 8).await?;
            }
        }
        if moved < 100 && has_room {
            return Err(Failure::Outcome(format!("hardly anything was moved together: {moved} reads")));
        }
        scene.export().await
    })?;
    verify_all(setup, &world, &ended, crashes.take(), "crashed while blocks were moved together")
}

/// Ten years forward, twenty back, and so on, before each handful of operations and before the import.
pub fn clock(setup: &Setup) -> Result<Shown, Failure> {
    const TEN_YEARS_MS: i128 = 10 * 365 * 24 * 3600 * 1000;
    let world = scene::world(setup);
    let operations = setup.operations;
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        for round in 0..8 {
            scene.world.jump_wall(if round % 2 == 0 { TEN_YEARS_MS } else { -2 * TEN_YEARS_MS });
            scene.clients.run(operations / 8).await?;
        }
        Ok(())
    })?;
    let images = world.power_loss(|_, _| Fate::Lost);
    for jump in [TEN_YEARS_MS, -TEN_YEARS_MS] {
        let prepare = move |world: &World| world.jump_wall(jump);
        crate::verify::verify_in(
            setup,
            images.clone(),
            &ended.history,
            Demand::STRICT,
            setup.seed,
            &prepare,
        )?;
    }
    Ok(Shown { cases: 2, faults: 10, ..Shown::default() })
}
