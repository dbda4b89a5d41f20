//! Rows of the matrix about disks that are replaced, rebuilt elsewhere, brought back, added and removed while clients work.
//!
//! Each ends with as many further disks lost as the layout allows: what was moved must be there without them. On the way
//! the power fails now and then, and what it leaves must be right as well.

use crate::content::SECTOR;
use crate::harness::Failure;
use crate::matrix::Shown;
use crate::rows_faulty::with_data;
use crate::rows_slow::expect;
use crate::scene::{self, Scene};
use crate::setup::{POOL, Setup};
use crate::verify::{Demand, verify, verify_in};
use crate::workload::{History, Tolerance};
use forebay_base::Random;
use forebay_pool::{DiskAdd, DiskReplace, DiskState, PoolState, PoolStatus, Purpose, ScrubState};
use forebay_simulation::{Action, DiscardEffect, Fate, Image, OpKind, Rule, World};
use futures_util::FutureExt;
use futures_util::future::join3;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const NO_ERRORS: Tolerance = Tolerance { errors: false, no_space: true };
/// Power losses that are judged of each run.
pub(crate) const CRASHES: u64 = 12;

/// A disk whose reads need 5 ms instead of 50 µs: clients' go around it, and it stays in service.
const SLOW_READS: Action = Action::Slow(100);
/// How often clients run until a disk is missed.
const TRIES: u64 = 16;
/// How often the healer looks at what does not move at once.
const LOOKS_MAX: u32 = 6;
/// By then what was acknowledged before it is durable is durable.
const COMMITTED: Duration = Duration::from_millis(300);

/// What a power loss left.
pub(crate) struct Crash {
    images: Vec<Image>,
    history: History,
    /// Disks that are gone, bit by bit.
    absent: u64,
    /// How many disks' contents are missing.
    spent: u32,
    /// Whether nothing on the disks is wrong.
    pub sound: bool,
}
pub(crate) type Crashes = Rc<RefCell<Vec<Crash>>>;

/// Keeps what a power loss leaves, at a moment of the next `most` microseconds.
pub(crate) async fn fail_power(scene: &Scene, most: u64, absent: u64, spent: u32, crashes: &Crashes) {
    scene.rt.sleep(Duration::from_micros(scene.clients.below(most))).await;
    let images = scene.world.power_loss(|_, _| Fate::Lost);
    let (history, spent) = (scene.clients.history(), spent.max(absent.count_ones()));
    crashes.borrow_mut().push(Crash { images, history, absent, spent, sound: true });
}

/// Until everything has moved, or does not after several looks: clients may keep a chunk busy for as long as one takes.
async fn healed(scene: &Scene, most: u32) -> Result<PoolStatus, Failure> {
    let mut looks = 0;
    loop {
        let status = scene.engine.pool_healed(POOL).await;
        let status = status.map_err(|error| Failure::Outcome(format!("healing failed: {error}")))?;
        looks += 1;
        if status.healing.is_none() || looks == most {
            return Ok(status);
        }
    }
}

/// Lets clients run and the power fail while the pool heals; then everything must have moved.
pub(crate) async fn heal(
    scene: &Scene,
    operations: u64,
    absent: u64,
    spent: u32,
    crashes: &Crashes,
) -> Result<PoolStatus, Failure> {
    let crash = async {
        for _ in 0..CRASHES {
            // Often, while it may be at it, and now and then later.
            let most = 1 << (5 + scene.clients.below(11));
            fail_power(scene, most, absent, spent, crashes).await;
        }
    };
    let (ran, beside, ()) = join3(scene.clients.run(operations), healed(scene, LOOKS_MAX), crash).await;
    ran?;
    let mut status = beside?;
    if status.healing.is_some() {
        // Clients keep nothing busy any more.
        status = healed(scene, 1).await?;
    }
    match &status.healing {
        None => Ok(status),
        Some(left) => {
            Err(Failure::Outcome(format!("{} bytes did not move: {}", left.bytes_left, left.blocked)))
        }
    }
}

/// Loses as many of the disks `from` as the layout allows; gives them, bit by bit.
pub(crate) async fn lose(
    scene: &Scene,
    setup: &Setup,
    from: impl Iterator<Item = usize>,
) -> Result<u64, Failure> {
    let mut gone = 0;
    for disk in from.take(setup.redundancy()) {
        scene.world.set_gone(disk, true);
        gone |= 1 << disk;
    }
    scene.clients.run(setup.operations / 2).await?;
    Ok(gone)
}

pub(crate) fn failed(what: &str) -> impl Fn(forebay_pool::Error) -> Failure {
    move |error| Failure::Outcome(format!("{what}: {error}"))
}

/// Plays `script`, which gives the disks that are absent at the end, and judges its end and every power loss on the way.
pub(crate) fn judged(
    setup: &Setup,
    script: impl AsyncFnOnce(&Scene, &Crashes) -> Result<u64, Failure> + 'static,
) -> Result<Shown, Failure> {
    judged_from(setup, false, script)
}

/// The same; of a pool with its first group only, if the script begins with that.
fn judged_from(
    setup: &Setup,
    first: bool,
    script: impl AsyncFnOnce(&Scene, &Crashes) -> Result<u64, Failure> + 'static,
) -> Result<Shown, Failure> {
    let world = scene::world(setup);
    let (crashes, absent): (Crashes, Rc<RefCell<u64>>) = Default::default();
    let (kept, gone, operations) = (crashes.clone(), absent.clone(), setup.operations);
    let own = setup.clone();
    let ended = scene::play_first(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        if !first {
            scene.join_second(&own).await?;
        }
        scene.clients.create_volumes().await?;
        scene.clients.run(operations).await?;
        let absent = script(scene, &kept).await?;
        *gone.borrow_mut() = absent;
        scene.export().await
    })?;
    let images = (0..world.disk_count()).map(|disk| world.image(disk)).collect();
    let mut shown = Shown { faults: 1, errors: ended.excused, ..Shown::default() };
    let absent = *absent.borrow();
    // What clients had in memory is read from the disks now, where what could not be read cannot be read.
    let as_it_was = |other: &World| {
        for disk in 0..world.disk_count() {
            for sector in world.unreadable(disk) {
                let at = sector * SECTOR as u64;
                other.set_unreadable(disk, at..at + SECTOR as u64);
            }
        }
    };
    let demand = Demand { absent, ..Demand::STRICT };
    verify_in(setup, images, &ended.history, demand, setup.seed, &as_it_was)?;
    shown.cases += 1;
    let mut random = Random::new(setup.seed);
    for (nth, crash) in crashes.take().into_iter().enumerate() {
        let Crash { images, history, mut absent, spent, sound } = crash;
        // Whatever was about to move, the power may take as many disks with it as the layout can lose.
        for _ in spent..setup.redundancy() as u32 {
            absent |= 1 << random.below(setup.data_disks() as u64);
            // Of each group.
            if setup.second {
                let others = setup.second_disks();
                absent |= 1 << (others.start as u64 + random.below(others.len() as u64));
            }
        }
        let demand = Demand { absent, export: nth % 2 == 0, check: sound && nth % 2 == 0, ..Demand::STRICT };
        verify(setup, images, &Rc::new(history), demand, setup.seed + nth as u64).map_err(|failure| {
            failure.because(&format!("the power failed (case {nth}) while slots moved"))
        })?;
        shown.cases += 1;
    }
    Ok(shown)
}

/// A disk goes and is replaced; then others go.
pub fn replaced(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, crashes: &Crashes| {
        let victim = own.seed as usize % own.data_disks();
        // One disk in three is replaced while it still serves.
        let mut absent = 0;
        if !own.seed.is_multiple_of(3) {
            scene.world.set_gone(victim, true);
            absent = 1 << victim;
            scene.clients.run(own.operations / 2).await?;
        }
        // Where there is another group, what clients go on writing may all have gone there meanwhile.
        let status = scene.engine.pools().await.into_iter().next();
        let disk = status.and_then(|pool| pool.groups[0].disks.get(victim).map(|disk| disk.state));
        let new = scene.world.add_disk(Image::new(own.disk_bytes()));
        let path = format!("sim{new}");
        if disk != Some(DiskState::Rebuilt) && absent != 0 && own.seed.is_multiple_of(2) {
            // A spare disk takes its place by itself.
            let add = DiskAdd { purpose: Purpose::Spare, ..DiskAdd::default() };
            scene.engine.disk_add(POOL, vec![path], add).await.map_err(failed("adding a spare failed"))?;
        } else {
            let with = DiskReplace { new: Some(path), ..DiskReplace::default() };
            let replacing = scene.engine.disk_replace(POOL, &victim.to_string(), with).await;
            replacing.map_err(failed("replacing a disk failed"))?;
        }
        heal(scene, own.operations, absent, 0, crashes).await?;
        // One that served until now has left the pool, and is blank.
        scene.world.set_gone(victim, true);
        let others = (0..own.data_disks()).filter(|disk| *disk != victim).chain([new]);
        Ok(1 << victim | lose(scene, &own, others.skip(1 + own.seed as usize % 2)).await?)
    })
}

/// A disk of a wide group goes, and what was on it is rebuilt on the others; then others go.
pub fn spare_space(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 2, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, crashes: &Crashes| {
        let victim = own.seed as usize % own.data_disks();
        scene.world.set_gone(victim, true);
        let state = |status: &PoolStatus| {
            let mut disks = status.groups.iter().flat_map(|group| &group.disks);
            disks.find(|disk| disk.number == victim as u16).map(|disk| disk.state)
        };
        // Where small writes wait on log disks, it takes a while until the pool asks anything of the disk.
        for _ in 0..TRIES {
            scene.clients.run(own.operations / 2).await?;
            let pools = scene.engine.pools().await;
            let is_known = |pool: &PoolStatus| {
                pool.state != PoolState::Online || state(pool) == Some(DiskState::Rebuilt)
            };
            if pools.first().is_none_or(is_known) {
                break;
            }
        }
        let status = heal(scene, own.operations, 1 << victim, 0, crashes).await?;
        if state(&status) != Some(DiskState::Rebuilt) {
            let state = state(&status);
            return Err(Failure::Outcome(format!("sim{victim} has been rebuilt elsewhere and is {state:?}")));
        }
        let others = (0..own.data_disks()).filter(|disk| *disk != victim);
        Ok(1 << victim | lose(scene, &own, others.skip(own.seed as usize % 2)).await?)
    })
}

/// A disk goes and comes back stale while the pool serves; it is given what it missed, and then others go.
pub fn returned(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, crashes: &Crashes| {
        let victim = own.seed as usize % own.data_disks();
        let name = victim.to_string();
        if own.seed.is_multiple_of(2) {
            scene.world.set_gone(victim, true);
            scene.clients.run(own.operations).await?;
            // As above.
            for _ in 0..TRIES {
                if scene.disk(victim).await.is_ok_and(|disk| disk.state != DiskState::Online) {
                    break;
                }
                scene.clients.run(own.operations / 2).await?;
            }
            scene.world.set_gone(victim, false);
        } else {
            scene.engine.disk_offline(POOL, &name).await.map_err(failed("taking a disk out failed"))?;
            scene.clients.run(own.operations).await?;
        }
        scene.engine.disk_online(POOL, &name, None).await.map_err(failed("bringing a disk back failed"))?;
        heal(scene, own.operations, 0, 1, crashes).await?;
        let others = (0..own.data_disks()).filter(|disk| *disk != victim);
        lose(scene, &own, others.skip(own.seed as usize % 2)).await
    })
}

/// A disk is added and another removed; then others go.
pub fn grown(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, ..setup.clone() };
    let own = setup.clone();
    judged(setup, async move |scene: &Scene, crashes: &Crashes| {
        let new = scene.world.add_disk(Image::new(own.disk_bytes() + (4 << 20)));
        let add = DiskAdd { group: Some(0), ..DiskAdd::default() };
        let adding = scene.engine.disk_add(POOL, vec![format!("sim{new}")], add).await;
        adding.map_err(failed("adding a disk failed"))?;
        heal(scene, own.operations, 0, 0, crashes).await?;
        let victim = own.seed as usize % own.data_disks();
        let removing = scene.engine.disk_remove(POOL, &victim.to_string()).await;
        removing.map_err(failed("removing a disk failed"))?;
        heal(scene, own.operations, 0, 0, crashes).await?;
        scene.world.set_gone(victim, true);
        let others = (0..own.data_disks()).filter(|disk| *disk != victim).chain([new]);
        Ok(1 << victim | lose(scene, &own, others).await?)
    })
}

/// A second group of disks joins, of another width and of larger disks; then as many disks of each as it can lose go at once.
pub fn group_added(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, second: true, ..setup.clone() };
    let (own, used) = (setup.clone(), Rc::new(Cell::new(0)));
    let held = used.clone();
    let shown = judged_from(setup, true, async move |scene: &Scene, crashes: &Crashes| {
        let crash = async {
            for _ in 0..2 * CRASHES {
                fail_power(scene, 1 << (4 + scene.clients.below(8)), 0, 0, crashes).await;
                // Whoever looks meanwhile sees a pool with the group or without it.
                scene.engine.pools().await;
            }
        };
        let (ran, joined, ()) =
            join3(scene.clients.run(own.operations), scene.join_second(&own), crash).await;
        ran?;
        joined?;
        let status = heal(scene, own.operations, 0, 0, crashes).await?;
        held.set(status.groups.last().map_or(0, |group| group.used));
        let (first, second) = (own.seed as usize % 2, own.second_disks());
        let gone = lose(scene, &own, first..own.data_disks()).await?;
        Ok(gone | lose(scene, &own, second.start + first..second.end).await?)
    })?;
    Ok(Shown { faults: u64::from(used.get() > 0), ..shown })
}

/// A group leaves under load: the first, the second, or that of the log disks; then as many disks of those left go as they can lose.
pub fn group_removed(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, second: true, ..setup.clone() };
    let own = setup.clone();
    let (first, log, second) =
        (0..own.data_disks(), own.data_disks()..own.data_disks() + own.log_disks, own.second_disks());
    let number_last = 1 + u16::from(own.log_disks > 0);
    let (number, leaving) = match own.seed % 3 {
        0 => (0, first.clone()),
        1 if own.log_disks > 0 => (1, log),
        _ => (number_last, second.clone()),
    };
    judged(setup, async move |scene: &Scene, crashes: &Crashes| {
        let over = Cell::new(false);
        let crash = async {
            while !over.get() {
                fail_power(scene, 1 << (6 + scene.clients.below(9)), 0, 0, crashes).await;
            }
        };
        let leave = async {
            let removing = scene.engine.group_remove(POOL, number).await;
            removing.map_err(failed("removing a group failed"))?;
            healed(scene, LOOKS_MAX).await
        };
        // However it ends: what the power left is kept until then.
        let leave = leave.inspect(|_| over.set(true));
        let (ran, left, ()) = join3(scene.clients.run(2 * own.operations), leave, crash).await;
        ran?;
        let mut status = left?;
        if status.healing.is_some() {
            // Clients keep nothing busy any more.
            status = healed(scene, 1).await?;
        }
        if let Some(healing) = &status.healing {
            let what =
                format!("group {number}: {} bytes did not move: {}", healing.bytes_left, healing.blocked);
            return Err(Failure::Outcome(what));
        }
        let paths: Vec<String> = leaving.clone().map(|disk| format!("sim{disk}")).collect();
        let labelled = scene.engine.pool_scan(paths).await;
        if status.groups.iter().any(|group| group.number == number) || !labelled.is_empty() {
            return Err(Failure::Outcome(format!("group {number} has left, and is there: {labelled:?}")));
        }
        let mut absent = 0;
        for disk in leaving.clone() {
            scene.world.set_gone(disk, true);
            absent |= 1 << disk;
        }
        let skip = own.seed as usize % 2;
        for group in [first, second].into_iter().filter(|group| *group != leaving) {
            absent |= lose(scene, &own, group.skip(skip)).await?;
        }
        Ok(absent)
    })
}

/// Free space is discarded while clients work and the power fails, and reads as anything afterwards; then others go.
pub fn trimmed(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, ..setup.clone() };
    let (own, discarded) = (setup.clone(), Rc::new(Cell::new(0)));
    let bytes = discarded.clone();
    let shown = judged(setup, async move |scene: &Scene, crashes: &Crashes| {
        for disk in 0..scene.world.disk_count() {
            let effects = [DiscardEffect::Garbage, DiscardEffect::Zeros, DiscardEffect::Nothing];
            scene.world.set_discard(disk, effects[(own.seed as usize + disk) % 3]);
        }
        let crash = async {
            for _ in 0..CRASHES {
                fail_power(scene, 1 << (5 + scene.clients.below(9)), 0, 0, crashes).await;
            }
        };
        let over = Cell::new(false);
        let clients = async {
            let ran = scene.clients.run(2 * own.operations).await;
            over.set(true);
            ran
        };
        let trims = async {
            while !over.get() {
                let trimmed = scene.engine.pool_trim(POOL).await.map_err(failed("trimming failed"))?;
                bytes.set(bytes.get() + trimmed.bytes);
            }
            Ok::<(), Failure>(())
        };
        let (ran, trimmed, ()) = join3(clients, trims, crash).await;
        ran?;
        trimmed?;
        lose(scene, &own, own.seed as usize % 2..own.data_disks()).await
    })?;
    Ok(Shown { faults: u64::from(discarded.get() > 0), ..shown })
}

/// A scrub while clients work puts everything right, and a second one finds nothing; how many places were repaired.
pub(crate) async fn scrub(scene: &Scene, operations: u64) -> Result<u64, Failure> {
    let mut repaired = 0;
    for round in 0..2 {
        scene.engine.scrub_start(POOL).await.map_err(failed("starting a scrub failed"))?;
        if round == 0 {
            scene.clients.run(operations).await?;
        }
        let status = scene.engine.pool_scrubbed(POOL).await.map_err(failed("scrubbing failed"))?;
        let scrub = status.scrub.ok_or_else(|| Failure::Outcome("the scrub has gone".into()))?;
        repaired += scrub.repaired;
        if scrub.state != ScrubState::Done || scrub.lost > 0 || (round == 1 && scrub.repaired > 0) {
            return Err(Failure::Outcome(format!("scrub number {round}: {scrub:?}")));
        }
    }
    Ok(repaired)
}

/// Two thirds of what one disk holds rot, which in half of the runs is slow, or some of it becomes unreadable; a scrub puts it right while clients work, and a second one finds nothing; then others go.
pub fn scrubbed(setup: &Setup) -> Result<Shown, Failure> {
    // Enough that the wrong places would make a disk unfit, if they were unreadable.
    let is_rot = setup.seed.is_multiple_of(2);
    let setup = &if is_rot { with_data(setup) } else { Setup { groups: 1, ..setup.clone() } };
    let own = setup.clone();
    let (found, rotten) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (repaired, rot) = (found.clone(), rotten.clone());
    let shown = judged(setup, async move |scene: &Scene, _: &Crashes| {
        // What is in its place and in no tree yet, since nobody waits for it to be durable, a scrub does not look at.
        scene.rt.sleep(COMMITTED).await;
        let victim = own.seed as usize % own.data_disks();
        let image = scene.world.image(victim);
        let pages: Vec<u64> = (0..image.size() / 4096).filter(|page| image.page(*page).is_some()).collect();
        if is_rot {
            for page in pages.iter().filter(|_| scene.clients.below(3) > 0) {
                let at = page * 4096 + scene.clients.below(4096);
                scene.world.rot(victim, at, &[1 << scene.clients.below(8)]);
                rot.set(rot.get() + 1);
            }
        } else {
            // Fewer than make a disk unfit.
            for _ in 0..80 {
                let at = pages[scene.clients.below(pages.len() as u64) as usize] * 4096;
                scene.world.set_unreadable(victim, at..at + 512);
                rot.set(rot.get() + 1);
            }
        }
        // Reads of clients go around a disk that is slow. A scrub must not: what is on it is what it is to look at.
        if is_rot && (own.seed / 2).is_multiple_of(2) {
            scene.world.add_rule(Rule::new(victim, SLOW_READS).on(OpKind::Read));
        }
        repaired.set(scrub(scene, own.operations / 2).await?);
        scene.world.take_rules();
        scene.rt.sleep(Duration::from_secs(3)).await;
        expect(scene.disk(victim).await?.state, &[DiskState::Online], "a disk was put right by a scrub")?;
        let others = (0..own.data_disks()).filter(|disk| *disk != victim);
        lose(scene, &own, others.skip(own.seed as usize % 2)).await
    })?;
    Ok(Shown { faults: rotten.get(), repaired: found.get(), ..shown })
}

/// Six enclosures, two disks in each: whichever goes, the pool stays online and serves, and what it held is there without it.
pub fn enclosure(setup: &Setup) -> Result<Shown, Failure> {
    const BOXES: usize = 6;
    let setup =
        &Setup { groups: 1, log_disks: 0, disks: Some(2 * BOXES), enclosures: BOXES, ..setup.clone() };
    let mut shown = Shown::default();
    for lost in 0..BOXES {
        let own = setup.clone();
        let gone = 1 << (2 * lost) | 1 << (2 * lost + 1);
        let world = scene::world(setup);
        let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
            scene.clients.create_volumes().await?;
            scene.clients.run(own.operations / 2).await?;
            scene.world.set_gone(2 * lost, true);
            scene.world.set_gone(2 * lost + 1, true);
            scene.clients.run(own.operations / 2).await?;
            let pools = scene.engine.pools().await;
            match pools.first().map(|pool| pool.state) {
                Some(PoolState::Degraded | PoolState::Online) => scene.export().await,
                state => Err(Failure::Outcome(format!("without enclosure {lost} the pool is {state:?}"))),
            }
        })?;
        let images = (0..world.disk_count()).map(|disk| world.image(disk)).collect();
        verify(setup, images, &ended.history, Demand { absent: gone, ..Demand::STRICT }, setup.seed)
            .map_err(|failure| failure.because(&format!("enclosure {lost} is gone")))?;
        shown += Shown { cases: 1, faults: 2, errors: ended.excused, repaired: 0 };
    }
    Ok(shown)
}
