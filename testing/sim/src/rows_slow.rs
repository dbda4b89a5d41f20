//! Rows of the matrix about disks that are slow or hang: reads go around them, and what cannot is waited for until the disk is out.

use crate::harness::Failure;
use crate::matrix::Shown;
use crate::rows_heal::{Crashes, failed, heal, judged, lose};
use crate::scene::{self, Scene};
use crate::setup::{POOL, Setup};
use crate::verify::{Demand, verify};
use crate::workload::{Mix, Tolerance};
use forebay_pool::{DiskState, ErrorKind, PoolState};
use forebay_simulation::{Action, Fate, OpKind, Rule};
use futures_util::future::join;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// A disk that needs 20 ms instead of 50 µs.
const SLOW: Action = Action::Slow(400);
/// Virtual time in which reads must go around a disk that hangs: it is taken out only after ten seconds.
const HEDGED: Duration = Duration::from_secs(2);

pub(crate) fn victim(setup: &Setup) -> usize {
    setup.seed as usize % setup.data_disks()
}

/// Clients work, now and then, for so many seconds, or until the disk is no longer online.
pub(crate) async fn work(scene: &Scene, seconds: u64, disk: usize) -> Result<DiskState, Failure> {
    let begun = scene.rt.now();
    loop {
        scene.clients.run(8).await?;
        scene.rt.sleep(Duration::from_millis(250)).await;
        let state = scene.disk(disk).await?.state;
        if state != DiskState::Online || scene.rt.now().since(begun) > seconds * 1_000_000_000 {
            return Ok(state);
        }
    }
}

pub(crate) fn expect(state: DiskState, expected: &[DiskState], what: &str) -> Result<(), Failure> {
    if expected.contains(&state) {
        return Ok(());
    }
    Err(Failure::Outcome(format!("{what}, and it is {state:?}")))
}

/// A slow disk is taken out of service, and nothing is missing without it.
pub fn evicted(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, _: &Crashes| {
        let victim = victim(&own);
        scene.world.add_rule(Rule::new(victim, SLOW));
        let state = work(scene, 90, victim).await?;
        expect(state, &[DiskState::Failed, DiskState::Rebuilt], "a disk was slow for 90 seconds")?;
        scene.world.take_rules();
        scene.clients.run(own.operations).await?;
        Ok(1 << victim)
    })
}

/// A disk that is slow now and then stays, and has everything.
pub fn passing(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, _: &Crashes| {
        let victim = victim(&own);
        for _ in 0..3 {
            scene.world.add_rule(Rule::new(victim, SLOW));
            let slow = work(scene, 15, victim).await?;
            scene.world.take_rules();
            let after = work(scene, 20, victim).await?;
            for state in [slow, after] {
                expect(state, &[DiskState::Online], "a disk was slow for 15 seconds now and then")?;
            }
        }
        let others = (0..own.data_disks()).filter(|disk| *disk != victim);
        lose(scene, &own, others).await
    })
}

/// When all disks are slow, none is taken out.
pub fn all_slow(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, _: &Crashes| {
        for disk in 0..scene.world.disk_count() {
            scene.world.add_rule(Rule::new(disk, SLOW));
        }
        work(scene, 60, 0).await?;
        for disk in 0..own.data_disks() {
            expect(
                scene.disk(disk).await?.state,
                &[DiskState::Online],
                "all disks were slow for 60 seconds",
            )?;
        }
        scene.world.take_rules();
        lose(scene, &own, own.seed as usize % 2..own.data_disks()).await
    })
}

/// A disk that hangs is taken out of service, and clients go on. It cannot come back before it has answered, and then gets what
/// it missed.
pub fn hung(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, crashes: &Crashes| {
        let (victim, begun) = (victim(&own), scene.rt.now());
        scene.world.add_rule(Rule::new(victim, Action::Hang).after(scene.clients.below(40)));
        let state = work(scene, 60, victim).await?;
        expect(state, &[DiskState::Failed, DiskState::Rebuilt], "a disk hung for 60 seconds")?;
        scene.clients.run(own.operations).await?;
        let took = Duration::from_nanos(scene.rt.now().since(begun));
        if took > Duration::from_secs(20) {
            return Err(Failure::Outcome(format!("clients waited for a disk that hangs: {took:?}")));
        }
        scene.world.take_rules();
        let name = victim.to_string();
        match scene.engine.disk_online(POOL, &name, None).await {
            Err(error) if error.kind == ErrorKind::Unsafe => {}
            other => {
                let text = format!("a disk that owes answers was brought back: {other:?}");
                return Err(Failure::Outcome(text));
            }
        }
        scene.world.release(victim);
        scene.rt.sleep(Duration::from_millis(100)).await;
        scene.engine.disk_online(POOL, &name, None).await.map_err(failed("bringing a disk back failed"))?;
        heal(scene, own.operations, 0, 1, crashes).await?;
        let others = (0..own.data_disks()).filter(|disk| *disk != victim);
        lose(scene, &own, others.skip(own.seed as usize % 2)).await
    })
}

/// Nothing is given up that the pool cannot lose: requests wait until the disk answers.
pub fn hung_beyond(setup: &Setup) -> Result<Shown, Failure> {
    // A pool whose volumes are deleted, or which has another group, may come to have nothing on these disks.
    let setup = &Setup { groups: 1, second: false, management: false, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, _: &Crashes| {
        let victim = victim(&own);
        let others = (0..own.data_disks()).filter(|disk| *disk != victim);
        let gone = lose(scene, &own, others).await?;
        scene.world.add_rule(Rule::new(victim, Action::Hang));
        let over = async {
            scene.rt.sleep(Duration::from_secs(40)).await;
            scene.world.take_rules();
            scene.world.release(victim);
        };
        let (ran, ()) = join(scene.clients.run(own.operations), over).await;
        ran?;
        expect(
            scene.disk(victim).await?.state,
            &[DiskState::Online],
            "the pool could not lose a disk that hung",
        )?;
        match scene.engine.pools().await.first().map(|pool| pool.state) {
            Some(PoolState::Online | PoolState::Degraded) => Ok(gone),
            state => Err(Failure::Outcome(format!("a disk hung for a while, and the pool is {state:?}"))),
        }
    })
}

/// Plays reads while `rule` is in force, after `prepare`; says how long they took and how often it struck.
fn reads(
    setup: &Setup,
    prepare: impl FnOnce(&Scene) + 'static,
    rule: Rule,
) -> Result<(Shown, Duration), Failure> {
    let world = scene::world(setup);
    let seen = Rc::new(Cell::new((Duration::ZERO, 0)));
    let (note, operations) = (seen.clone(), setup.operations);
    let tolerance = Tolerance { errors: false, no_space: true };
    let ended = scene::play(&world, setup, tolerance, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        scene.clients.run(operations).await?;
        prepare(scene);
        scene.world.add_rule(rule);
        let begun = scene.rt.now();
        scene.clients.mix.set(Mix::READS);
        scene.clients.run(4 * operations).await?;
        note.set((Duration::from_nanos(scene.rt.now().since(begun)), scene.world.faults_fired()));
        scene.world.take_rules();
        (0..scene.world.disk_count()).for_each(|disk| scene.world.release(disk));
        Ok(())
    })?;
    let (took, faults) = seen.get();
    let images = world.power_loss(|_, _| Fate::Lost);
    let demand = Demand { check: false, ..Demand::STRICT };
    let verified = verify(setup, images, &ended.history, demand, setup.seed)?;
    let (errors, repaired) = (ended.excused + verified.unreadable_sectors, verified.repaired);
    Ok((Shown { cases: 1, faults, errors, repaired }, took))
}

/// Reads of one disk hang: the bytes come from elsewhere, long before the disk is given up.
pub fn hedged(setup: &Setup) -> Result<Shown, Failure> {
    let rule = Rule::new(victim(setup), Action::Hang).on(OpKind::Read);
    let (shown, took) = reads(setup, |_| {}, rule)?;
    if took > HEDGED {
        return Err(Failure::Outcome(format!("reads waited for a disk that hangs: {took:?}")));
    }
    Ok(shown)
}

/// One disk is slow, and what the others hold has rotted here and there: what goes around the slow disk is checked, and where it is
/// wrong, the slow disk has the bytes.
pub fn rotten(setup: &Setup) -> Result<Shown, Failure> {
    let (slow, disks) = (victim(setup), setup.data_disks());
    let rot = move |scene: &Scene| {
        let rotten = (slow + 1) % disks;
        let image = scene.world.image(rotten);
        // Labels and superblocks are read at import only: their turn is another row's.
        for page in (96..image.size() / 4096).filter(|page| image.page(*page).is_some()) {
            if scene.clients.below(4) == 0 {
                scene.world.rot(
                    rotten,
                    page * 4096 + scene.clients.below(4096),
                    &[1 << scene.clients.below(8)],
                );
            }
        }
    };
    Ok(reads(setup, rot, Rule::new(slow, SLOW).on(OpKind::Read))?.0)
}
