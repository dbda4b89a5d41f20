//! Rows of the matrix about devices that do other than they say: torn, lost, misdirected, rotted, unreadable, lying,
//! slow, hung, failing.
//!
//! With redundancy the faults strike one disk only and nothing may be noticed but repairs; without it, and where
//! they strike all copies, data may be reported as damaged and must never be wrong.

use crate::crash::{self, Run};
use crate::harness::{Failure, all};
use crate::matrix::Shown;
use crate::scene::{self, Scene};
use crate::setup::Setup;
use crate::verify::{Demand, verify, verify_in};
use crate::workload::{History, Tolerance};
use forebay_base::Random;
use forebay_pool::{Layout, PoolState};
use forebay_runtime::DiskErrorKind;
use forebay_simulation::{Action, Cursor, Event, Fate, Image, OpKind, Rule, SECTOR, World};
use std::rc::Rc;
use std::time::Duration;

const NO_ERRORS: Tolerance = Tolerance { errors: false, no_space: true };
const ERRORS: Tolerance = Tolerance { errors: true, no_space: true };
/// Offset of the first superblock, behind two label copies of 64 KiB: what lies before is written once.
const LABELS_END: u64 = 128 << 10;
/// First page behind labels, superblocks and free-space records, on disks of the sizes used here (to within a few records).
pub(crate) const RECORDS_END_PAGE: u64 = (3 << 20) / 4096;

/// What is excused when one data disk is faulty: nothing where another copy exists.
fn tolerance(setup: &Setup) -> Tolerance {
    if setup.layout == Layout::Single { ERRORS } else { NO_ERRORS }
}

fn demand(setup: &Setup) -> Demand {
    if setup.layout == Layout::Single {
        Demand::NOTHING_WRONG
    } else {
        Demand { check: false, ..Demand::STRICT }
    }
}

fn images(world: &World) -> Vec<Image> {
    (0..world.disk_count()).map(|disk| world.image(disk)).collect()
}

fn judged(
    setup: &Setup,
    images: Vec<Image>,
    history: &Rc<History>,
    demand: Demand,
    seed: u64,
) -> Result<Shown, Failure> {
    let verified = verify(setup, images, history, demand, seed)?;
    Ok(Shown { cases: 1, errors: verified.unreadable_sectors, repaired: verified.repaired, faults: 0 })
}

/// Each write of a run, cut at each sector, with all other pending writes there or not.
pub fn torn(setup: &Setup) -> Result<Shown, Failure> {
    const CASES_MAX: u64 = 400;
    let setup = &Setup { operations: setup.operations.min(60), ..setup.clone() };
    let run = crash::record(setup)?;
    let writes =
        run.recording.events.iter().filter(|event| matches!(event, Event::Submitted { .. })).count() as u64;
    // Every so many writes are taken, starting with a drawn one; of each at most 16 cuts.
    let every = (writes * 12 / CASES_MAX).max(1);
    let mut random = Random::new(setup.seed);
    let mut skip = random.below(every);
    let mut cursor = Cursor::new(&run.recording);
    let (mut tick, mut shown) = (0, Shown::default());
    while let Some(event) = cursor.advance() {
        match event {
            Event::Mark(mark) => tick = *mark,
            Event::Submitted { .. } if skip == 0 => {
                skip = every - 1;
                shown += torn_at(&run, &cursor, event, tick, &mut random)?;
            }
            Event::Submitted { .. } => skip -= 1,
            _ => {}
        }
    }
    Ok(shown)
}

fn torn_at(
    run: &Run,
    cursor: &Cursor,
    event: &Event,
    tick: u64,
    random: &mut Random,
) -> Result<Shown, Failure> {
    let Event::Submitted { id, .. } = event else { return Ok(Shown::default()) };
    let pending: Vec<(bool, usize)> =
        cursor.pending().map(|(_, write)| (write.id == *id, write.sectors())).collect();
    let sectors = pending.iter().find(|(this, _)| *this).map_or(0, |(_, sectors)| *sectors);
    let step = sectors.div_ceil(16).max(1);
    let mut shown = Shown::default();
    for cut in (1..sectors).step_by(step) {
        let others = if random.one_in(2) { Fate::Whole } else { Fate::Lost };
        let own = if random.one_in(4) { Fate::Tail(cut) } else { Fate::Head(cut) };
        let fates: Vec<Fate> = pending.iter().map(|(this, _)| if *this { own } else { others }).collect();
        let demand = Demand { at: tick, export: random.one_in(2), ..Demand::STRICT };
        let judged = judged(&run.setup, cursor.crash(&fates), &run.history, demand, random.next_u64());
        shown += judged.map_err(|failure| {
            failure.because(&format!("{own:?} of the write of {event}, tick {tick}", event = told(event)))
        })?;
    }
    Ok(shown)
}

fn told(event: &Event) -> String {
    match event {
        Event::Submitted { disk, at, pages, .. } => {
            format!("{} bytes at {at} of sim{disk}", pages.len() * 4096)
        }
        _ => "another event".into(),
    }
}

/// The disks of a pool that was used and exported, and what its volumes must hold.
fn exported(setup: &Setup) -> Result<(World, Rc<History>), Failure> {
    let world = scene::world(setup);
    let operations = setup.operations;
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        scene.clients.run(operations).await?;
        scene.export().await
    })?;
    Ok((world, ended.history))
}

/// Copies of the label: at 0, at 64 KiB, and in the last 64 KiB.
pub fn label_torn(setup: &Setup) -> Result<Shown, Failure> {
    let (world, history) = exported(setup)?;
    let mut random = Random::new(setup.seed);
    let mut shown = Shown::default();
    let size = setup.disk_bytes();
    for at in [0, 64 << 10, size - (64 << 10)] {
        for cut in 0..8 {
            let mut images = images(&world);
            // The head of the copy is there, the rest is what was before it: zeros; at every disk.
            for image in &mut images {
                image.write(at + (cut * SECTOR) as u64, &vec![0; 4096 - cut * SECTOR]);
            }
            shown +=
                judged(setup, images, &history, Demand::STRICT, random.next_u64()).map_err(|failure| {
                    failure.because(&format!("the label at {at} cut at sector {cut} on all disks"))
                })?;
        }
    }
    Ok(shown)
}

/// Plays the setup's operations with `rules` in force for the second half, then takes the pool through an import.
fn with_rules(
    setup: &Setup,
    tolerance: Tolerance,
    demand: Demand,
    rules: impl FnOnce(&World) -> Vec<Rule> + 'static,
) -> Result<Shown, Failure> {
    let world = scene::world(setup);
    let operations = setup.operations;
    let faults = Rc::new(std::cell::Cell::new(0));
    let count = faults.clone();
    let ended = scene::play(&world, setup, tolerance, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        scene.clients.run(operations / 2).await?;
        rules(&scene.world).into_iter().for_each(|rule| scene.world.add_rule(rule));
        scene.clients.run(operations).await?;
        count.set(scene.world.faults_fired());
        scene.world.take_rules();
        Ok(())
    })?;
    let images = world.power_loss(|_, _| Fate::Lost);
    let mut shown = judged(setup, images, &ended.history, demand, setup.seed)?;
    shown.faults = faults.get();
    shown.errors += ended.excused;
    Ok(shown)
}

pub fn lost(setup: &Setup) -> Result<Shown, Failure> {
    with_rules(setup, tolerance(setup), demand(setup), |_| {
        vec![Rule::new(0, Action::Lose).on(OpKind::Write).one_in(12)]
    })
}

pub fn misdirected(setup: &Setup) -> Result<Shown, Failure> {
    with_rules(setup, tolerance(setup), demand(setup), |_| {
        vec![Rule::new(0, Action::Misdirect(None)).on(OpKind::Write).one_in(12)]
    })
}

/// What rot does to one place: a bit, a sector or a page.
fn mask(random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        0 => vec![1 << random.below(8)],
        1 => vec![0xa5; SECTOR],
        _ => vec![0x5a; 4096],
    }
}

/// Pages that hold something, in order: rot in what was never written shows nothing.
pub(crate) fn written_pages(image: &Image) -> Vec<u64> {
    (0..image.size() / 4096).filter(|&page| image.page(page).is_some()).collect()
}

/// Damages `images` of the disks `disks` at `places` written pages, the same on each, and judges an import.
fn rotted(
    setup: &Setup,
    disks: std::ops::Range<usize>,
    cases: u64,
    demand: Demand,
) -> Result<Shown, Failure> {
    let (world, history) = exported(setup)?;
    let mut random = Random::new(setup.seed ^ 0x707);
    let mut shown = Shown::default();
    let pages = written_pages(&world.image(disks.start));
    for _ in 0..cases {
        let mut images = images(&world);
        let places = 1 + random.below(40);
        for _ in 0..places {
            let page = pages[random.below(pages.len() as u64) as usize];
            let at = page * 4096 + random.below(8) * SECTOR as u64;
            let mask = mask(&mut random);
            for disk in disks.clone() {
                let len = mask.len().min((setup.disk_bytes() - at) as usize);
                let mut bytes = vec![0; len];
                images[disk].read(at, &mut bytes);
                bytes.iter_mut().zip(&mask).for_each(|(byte, mask)| *byte ^= mask);
                images[disk].write(at, &bytes);
            }
        }
        shown += judged(setup, images, &history, demand, random.next_u64())?;
        shown.faults += places;
    }
    Ok(shown)
}

pub fn rot(setup: &Setup) -> Result<Shown, Failure> {
    rotted(setup, 0..1, 12, demand(setup))
}

pub fn rot_same_place(setup: &Setup) -> Result<Shown, Failure> {
    rotted(setup, 0..setup.layout.width(), 12, Demand::NOTHING_WRONG)
}

/// Rot in a third of what one disk of a mirror stores: what reading meets, it repairs on that disk. (A copy that no read chooses
/// stays as it is: finding those is for a scrub.)
pub fn rot_repaired(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { groups: 1, log_disks: 0, ..setup.clone() };
    let (world, history) = exported(setup)?;
    let mut random = Random::new(setup.seed ^ 0x4e9a);
    let mut shown = Shown::default();
    let original = world.image(0);
    let pages = written_pages(&original);
    for _ in 0..4 {
        let mut images = images(&world);
        let mut rotted = Vec::new();
        // Labels, superblocks and free-space records are not repaired but written anew.
        for &page in pages.iter().filter(|&&page| page >= RECORDS_END_PAGE) {
            if random.one_in(3) {
                let at = page * 4096 + random.below(4096);
                let mut byte = [0];
                images[0].read(at, &mut byte);
                images[0].write(at, &[byte[0] ^ 1 << random.below(8)]);
                rotted.push(page);
            }
        }
        let before = images[0].clone();
        let demand = Demand { check: false, ..Demand::STRICT };
        let verified = verify(setup, images, &history, demand, random.next_u64())?;
        // A repair changes the rotted page that made it necessary: fewer changes than repairs, and some wrote elsewhere.
        let changed = verified.left[0].difference(&before);
        let mended = rotted.iter().filter(|page| changed.contains(page)).count() as u64;
        // Of this disk alone: where a frame of the log was accepted with rot behind its end, which no checksum covers, others were made like it.
        let (errors, repaired) =
            verified.errors.get(&0).map_or((0, 0), |held| (held.checksum, held.repaired));
        if mended < repaired || (errors > 0 && repaired == 0) {
            let text = format!(
                "{errors} bad copies were found on {} rotted pages and {repaired} repaired, yet {mended} pages changed",
                rotted.len()
            );
            return Err(Failure::Outcome(text));
        }
        shown += Shown { cases: 1, faults: rotted.len() as u64, errors, repaired };
    }
    Ok(shown)
}

/// Rot of one disk between operations; and in a mirror the other disk, once all was read, rots too.
pub fn rot_serving(setup: &Setup) -> Result<Shown, Failure> {
    let world = scene::world(setup);
    let rounds = 12;
    let operations = setup.operations / 4;
    let faults = Rc::new(std::cell::Cell::new(0));
    let (count, seed) = (faults.clone(), setup.seed);
    let ended = scene::play(&world, setup, tolerance(setup), async move |scene: &Scene| {
        let mut random = Random::new(seed ^ 0x70);
        scene.clients.create_volumes().await?;
        for _ in 0..rounds {
            scene.clients.run(operations).await?;
            let pages = written_pages(&scene.world.image(0));
            // Labels are read at import only: their turn is another row's.
            for &page in pages.iter().filter(|&&page| page * 4096 >= LABELS_END) {
                if random.one_in(10) {
                    scene.world.rot(0, page * 4096 + random.below(4096), &[1 << random.below(8)]);
                    count.set(count.get() + 1);
                }
            }
        }
        Ok(())
    })?;
    let images = world.power_loss(|_, _| Fate::Lost);
    let mut shown = judged(setup, images, &ended.history, demand(setup), setup.seed)?;
    shown.faults = faults.get();
    shown.errors += ended.excused;
    Ok(shown)
}

/// Unreadable sectors of one disk, while serving and at import.
pub fn unreadable(setup: &Setup) -> Result<Shown, Failure> {
    let (world, history) = exported(setup)?;
    let mut random = Random::new(setup.seed ^ 0x0bad);
    let mut shown = Shown::default();
    let pages = written_pages(&world.image(0));
    for _ in 0..8 {
        let places: Vec<u64> = (0..1 + random.below(40))
            .map(|_| pages[random.below(pages.len() as u64) as usize] * 4096)
            .collect();
        let faults = places.len() as u64;
        let verified = verify_in(
            setup,
            images(&world),
            &history,
            demand(setup),
            random.next_u64(),
            &|world: &World| places.iter().for_each(|&at| world.set_unreadable(0, at..at + SECTOR as u64)),
        )?;
        shown += Shown { cases: 1, faults, errors: verified.unreadable_sectors, repaired: verified.repaired };
    }
    Ok(shown)
}

/// All flushes of all disks do nothing, nor is any write durable by itself: what comes back may be old, but must be whole and from one place.
pub fn lying_flush(setup: &Setup) -> Result<Shown, Failure> {
    let disks = setup.paths().len() + setup.second_disks().len();
    let run = crash::record_with(setup, NO_ERRORS, move |world| {
        for (disk, kind) in (0..disks).flat_map(|disk| [(disk, OpKind::Flush), (disk, OpKind::Write)]) {
            world.add_rule(Rule::new(disk, Action::Lie).on(kind));
        }
    })?;
    let mut random = Random::new(setup.seed);
    let mut cursor = Cursor::new(&run.recording);
    let (mut tick, mut shown) = (0, Shown::default());
    let every = run.recording.events.len().div_ceil(60).max(1);
    while let Some(event) = cursor.advance() {
        if let Event::Mark(mark) = event {
            tick = *mark;
        }
        if cursor.position() % every != 0 {
            continue;
        }
        // Of what the device promised, most is there: a device that lies loses what was written last.
        let count = cursor.pending_count() as u64;
        let lost_one_in = [2, 10, 100][random.below(3) as usize];
        let tail = random.below(count + 1) as usize;
        let fates: Vec<Fate> = (0..count as usize)
            .map(|n| if n >= tail && random.one_in(lost_one_in) { Fate::Lost } else { Fate::Whole })
            .collect();
        let demand = Demand { at: tick, ..Demand::NOTHING_WRONG };
        shown += judged(&run.setup, cursor.crash(&fates), &run.history, demand, random.next_u64())?;
    }
    Ok(shown)
}

pub fn slow(setup: &Setup) -> Result<Shown, Failure> {
    with_rules(setup, NO_ERRORS, Demand::STRICT, |_| vec![Rule::new(0, Action::Slow(100)).one_in(2)])
}

/// Operations that hang for 50 ms at most, then go on.
pub fn hung(setup: &Setup) -> Result<Shown, Failure> {
    let world = scene::world(setup);
    let operations = setup.operations;
    let faults = Rc::new(std::cell::Cell::new(0));
    let count = faults.clone();
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        scene.world.add_rule(Rule::new(0, Action::Hang).one_in(20));
        let (rt, world) = (scene.rt.clone(), scene.world.clone());
        let done = Rc::new(std::cell::Cell::new(false));
        let over = done.clone();
        let releases = scene.rt.spawn(async move {
            while !over.get() {
                rt.sleep(Duration::from_millis(50)).await;
                world.release(0);
            }
        });
        scene.clients.run(operations).await?;
        count.set(scene.world.faults_fired());
        scene.world.take_rules();
        done.set(true);
        all(vec![releases]).await;
        scene.export().await
    })?;
    let mut shown = judged(setup, images(&world), &ended.history, Demand::STRICT, setup.seed)?;
    shown.faults = faults.get();
    Ok(shown)
}

/// Runs the workload again and again, with a fault at another operation of the faulty disk each time; without `gone`, bit by bit, from the beginning.
fn at_each(setup: &Setup, kind: OpKind, gone: u64, cases: u64, actions: &[Action]) -> Result<Shown, Failure> {
    let demand = Demand { check: false, absent: gone, ..Demand::STRICT };
    let tolerance = if gone == 0 { tolerance(setup) } else { ERRORS };
    let lose = move |world: &World| {
        (0..64).filter(|disk| gone >> disk & 1 > 0).for_each(|disk| world.set_gone(disk, true));
    };
    // How many operations of that kind a run without faults makes, after the pool and its volumes exist.
    let counted = Rc::new(std::cell::Cell::new((0, 0)));
    let (count, operations) = (counted.clone(), setup.operations / 2);
    scene::play(&scene::world(setup), setup, NO_ERRORS, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        lose(&scene.world);
        let before = scene.world.operations(0, kind);
        scene.clients.run(operations).await?;
        count.set((before, scene.world.operations(0, kind)));
        Ok(())
    })?;
    let (before, after) = counted.get();
    let mut random = Random::new(setup.seed ^ kind as u64 ^ gone << 8);
    let mut shown = Shown::default();
    for case in 0..cases.min((after - before).max(1)) {
        let nth = random.below((after - before).max(1));
        let action = actions[case as usize % actions.len()];
        let times = if random.one_in(2) { 1 } else { 1 + random.below(5) };
        let world = scene::world(setup);
        let (struck, operations) = (Rc::new(std::cell::Cell::new(0)), setup.operations / 2);
        let strikes = struck.clone();
        let ended = scene::play(&world, setup, tolerance, async move |scene: &Scene| {
            scene.clients.create_volumes().await?;
            lose(&scene.world);
            scene.world.add_rule(Rule::new(0, action).on(kind).after(nth).times(times));
            scene.clients.run(operations).await?;
            strikes.set(scene.world.faults_fired());
            let is_stopped = scene.engine.pools().await.iter().any(|pool| pool.state == PoolState::Suspended);
            match kind {
                OpKind::Read if is_stopped => {
                    Err(Failure::Outcome("reads that failed have stopped the pool".into()))
                }
                _ => Ok(()),
            }
        });
        let told = |failure: Failure| {
            failure.because(&format!("{action:?} at {kind:?} {nth} of sim0, {times} times"))
        };
        let ended = ended.map_err(told)?;
        let images = world.power_loss(|_, _| Fate::Lost);
        shown += judged(setup, images, &ended.history, demand, random.next_u64()).map_err(told)?;
        shown.faults += struck.get();
        shown.errors += ended.excused;
    }
    Ok(shown)
}

const IO: DiskErrorKind = DiskErrorKind::Io;

pub fn write_error(setup: &Setup) -> Result<Shown, Failure> {
    let actions = [Action::Fail(IO), Action::FailAfter(IO), Action::Fail(DiskErrorKind::NoSpace)];
    at_each(setup, OpKind::Write, 0, 20, &actions)
}

pub fn flush_error(setup: &Setup) -> Result<Shown, Failure> {
    let actions = [Action::Fail(IO), Action::FailAfter(IO)];
    at_each(setup, OpKind::Flush, 0, 20, &actions)
}

pub fn read_error(setup: &Setup) -> Result<Shown, Failure> {
    let actions = [Action::Fail(IO), Action::Fail(DiskErrorKind::Unreadable)];
    // Half of them when no further disk may be lost: what fails once is all there is.
    let gone = (1..=setup.redundancy()).map(|disk| 1 << disk).sum();
    if gone == 0 {
        return at_each(setup, OpKind::Read, gone, 20, &actions);
    }
    let mut shown = at_each(setup, OpKind::Read, 0, 10, &actions)?;
    shown += at_each(setup, OpKind::Read, gone, 10, &actions)?;
    Ok(shown)
}
