//! Rows of the matrix about disks that cannot read what they hold: told of, taken out where the pool can lose them, and kept where it
//! cannot, or where it is one sector and nothing more.

use crate::harness::Failure;
use crate::matrix::Shown;
use crate::rows_heal::{Crashes, failed, judged, lose};
use crate::rows_slow::{expect, victim, work};
use crate::scene::Scene;
use crate::setup::{POOL, Setup};
use crate::workload::Mix;
use forebay_pool::DiskState;
use forebay_runtime::DiskErrorKind;
use forebay_simulation::{Action, OpKind, Rule};
use std::cell::Cell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

const UNREADABLE: Action = Action::Fail(DiskErrorKind::Unreadable);
/// First page behind labels, superblocks and free-space records.
const RECORDS_END_PAGE: u64 = (3 << 20) / 4096;
/// Places that a disk could not read when it counts as unfit.
const UNFIT: u64 = 100;

/// Enough volumes and writes that a disk holds more places than make it unfit.
pub(crate) fn with_data(setup: &Setup) -> Setup {
    Setup { groups: 1, second: false, volumes: 6, operations: setup.operations.max(400), ..setup.clone() }
}

fn told(scene: &Scene, code: &str, disk: usize, times: RangeInclusive<usize>) -> Result<(), Failure> {
    let told = scene.told(code, disk);
    match times.contains(&told) {
        true => Ok(()),
        false => Err(Failure::Outcome(format!("{code} of disk {disk} was told {told} times, not {times:?}"))),
    }
}

/// A disk fails every other read: it is told once, and taken out; nothing is missing without it.
pub fn evicted(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &with_data(setup);
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, _: &Crashes| {
        let victim = victim(&own);
        scene.world.add_rule(Rule::new(victim, UNREADABLE).on(OpKind::Read).one_in(2));
        // Reading everything again and again is what clients with more data would do.
        let mut state = DiskState::Online;
        for _ in 0..60 {
            scene.engine.scrub_start(POOL).await.map_err(failed("starting a scrub failed"))?;
            state = work(scene, 2, victim).await?;
            scene.engine.pool_scrubbed(POOL).await.map_err(failed("scrubbing failed"))?;
            if state != DiskState::Online {
                break;
            }
        }
        expect(state, &[DiskState::Failed, DiskState::Rebuilt], "a disk failed every other read")?;
        scene.world.take_rules();
        // Where it all comes within a second, it is out before anything was told.
        told(scene, "disk.errors", victim, 0..=1)?;
        told(scene, "disk.evicted", victim, 1..=1)?;
        let errors = scene.disk(victim).await?.errors;
        if errors.read < UNFIT || errors.write > 0 {
            return Err(Failure::Outcome(format!("a disk was taken out that has {errors:?}")));
        }
        scene.clients.run(own.operations).await?;
        let others = (0..own.data_disks()).filter(|disk| *disk != victim);
        Ok(1 << victim
            | lose(scene, &own, others.skip(own.seed as usize % 2).take(own.redundancy() - 1)).await?)
    })
}

/// A disk is unfit, and before anybody looks, as many others have gone as the pool can lose: it stays, and has everything.
pub fn beyond(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &with_data(setup);
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, _: &Crashes| {
        let victim = victim(&own);
        let rule = Rule::new(victim, UNREADABLE).on(OpKind::Read);
        scene.world.add_rule(rule);
        for _ in 0..30 {
            if scene.disk(victim).await?.errors.read_recent >= UNFIT {
                break;
            }
            scene.engine.scrub_start(POOL).await.map_err(failed("starting a scrub failed"))?;
            scene.clients.run(40).await?;
            scene.engine.pool_scrubbed(POOL).await.map_err(failed("scrubbing failed"))?;
        }
        scene.world.take_rules();
        let errors = scene.disk(victim).await?.errors;
        if errors.read_recent < UNFIT {
            return Err(Failure::Outcome(format!("a disk that failed all reads has {errors:?}")));
        }
        let others = (0..own.data_disks()).filter(|disk| *disk != victim);
        if scene.disk(victim).await?.state != DiskState::Online {
            // It was looked at meanwhile.
            return Ok(1 << victim | lose(scene, &own, others.take(own.redundancy() - 1)).await?);
        }
        let gone = lose(scene, &own, others).await?;
        scene.rt.sleep(Duration::from_secs(30)).await;
        scene.clients.run(own.operations / 2).await?;
        let state = scene.disk(victim).await?.state;
        expect(state, &[DiskState::Online], "the pool could not lose a disk that was unfit")?;
        // That it errs, and that it cannot be spared.
        told(scene, "disk.errors", victim, 1..=2)?;
        Ok(gone)
    })
}

/// One sector stays unreadable, whatever is written there and however often it is read: nobody is bothered.
pub fn one_sector(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, ..setup.clone() };
    let (own, struck) = (setup.clone(), Rc::new(Cell::new(0)));
    let strikes = struck.clone();
    let shown = judged(setup, async move |scene: &Scene, _: &Crashes| {
        let victim = victim(&own);
        scene.clients.mix.set(Mix::READS);
        let image = scene.world.image(victim);
        let pages: Vec<u64> =
            (RECORDS_END_PAGE..image.size() / 4096).filter(|page| image.page(*page).is_some()).collect();
        // Not all that was written is still in use.
        for _ in 0..20 {
            let at = pages[scene.clients.below(pages.len() as u64) as usize] * 4096;
            scene.engine.disk_clear(POOL, &victim.to_string()).await.map_err(failed("clearing failed"))?;
            scene.world.take_rules();
            scene.world.add_rule(Rule::new(victim, UNREADABLE).on(OpKind::Read).within(at..at + 512));
            for _ in 0..2 {
                scene.engine.scrub_start(POOL).await.map_err(failed("starting a scrub failed"))?;
                scene.clients.run(own.operations).await?;
                scene.engine.pool_scrubbed(POOL).await.map_err(failed("scrubbing failed"))?;
            }
            strikes.set(scene.disk(victim).await?.errors.read);
            if strikes.get() > 1 {
                break;
            }
        }
        let errors = scene.disk(victim).await?.errors;
        if errors.read_recent > 1 {
            return Err(Failure::Outcome(format!("one bad sector, and the disk has {errors:?}")));
        }
        scene.world.take_rules();
        told(scene, "disk.errors", victim, 0..=0)?;
        scene.clients.mix.set(Mix::default());
        scene.clients.run(own.operations).await?;
        let others = (0..own.data_disks()).filter(|disk| *disk != victim);
        lose(scene, &own, others).await
    })?;
    Ok(Shown { faults: struck.get(), ..shown })
}
