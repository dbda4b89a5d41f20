//! Rows of the matrix about several disks at fault at once, each in a way of its own drawn from the seed: as many as the layout can lose, and
//! one more.
//!
//! Within tolerance nobody may notice, also after power losses on the way; then the pool heals, a scrub puts right what is wrong, and everything
//! must be there without as many of the *other* disks. One beyond, what only the last disk had is an error, never wrong, and
//! the rest can be read.

use crate::content::{SECTOR, Seen, parse};
use crate::harness::Failure;
use crate::matrix::Shown;
use crate::rows_disk::written_pages;
use crate::rows_heal::{CRASHES, Crashes, fail_power, failed, judged, lose, scrub};
use crate::scene::{self, Scene};
use crate::setup::{POOL, Setup};
use crate::verify::{Demand, verify_in};
use crate::workload::{Mix, Tolerance};
use forebay_pool::{DiskState, Layout, PoolState};
use forebay_runtime::DiskErrorKind;
use forebay_simulation::{Action, Fate, Image, OpKind, Rule, World};
use futures_util::future::{join, join3};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// What a disk does. A run takes some that follow each other, from where its seed says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Gone,
    Rot,
    ReadErrors,
    Lost,
    Slow,
    Unreadable,
    Hung,
    Misdirected,
}

const FAULTS: [Fault; 8] = [
    Fault::Gone,
    Fault::Rot,
    Fault::ReadErrors,
    Fault::Lost,
    Fault::Slow,
    Fault::Unreadable,
    Fault::Hung,
    Fault::Misdirected,
];

impl Fault {
    /// What is on the disk is wrong, and the disk does not say so.
    fn is_silent(self) -> bool {
        matches!(self, Fault::Rot | Fault::Lost | Fault::Misdirected)
    }

    fn strike(self, scene: &Scene, disk: usize) {
        let rule = |action| Rule::new(disk, action);
        let pages = written_pages(&scene.world.image(disk));
        let third: Vec<u64> = pages.into_iter().filter(|_| scene.clients.below(3) == 0).collect();
        match self {
            Fault::Gone => scene.world.set_gone(disk, true),
            Fault::Rot => third.iter().for_each(|page| {
                let at = page * 4096 + scene.clients.below(4096);
                scene.world.rot(disk, at, &[1 << scene.clients.below(8)]);
            }),
            Fault::Unreadable => {
                third.iter().for_each(|page| scene.world.set_unreadable(disk, page * 4096..page * 4096 + 512))
            }
            Fault::ReadErrors => {
                scene.world.add_rule(rule(Action::Fail(DiskErrorKind::Io)).on(OpKind::Read).one_in(3))
            }
            Fault::Lost => scene.world.add_rule(rule(Action::Lose).on(OpKind::Write).one_in(12)),
            Fault::Misdirected => {
                scene.world.add_rule(rule(Action::Misdirect(None)).on(OpKind::Write).one_in(12))
            }
            Fault::Slow => scene.world.add_rule(rule(Action::Slow(100)).one_in(2)),
            Fault::Hung => scene.world.add_rule(rule(Action::Hang).after(scene.clients.below(40))),
        }
    }
}

fn has_lines(setup: &Setup) -> bool {
    matches!(setup.layout, Layout::Parity { .. })
}

/// Data disks of the setup, beginning where its seed says.
fn disks_from(setup: &Setup) -> impl Iterator<Item = usize> + use<> {
    let (seed, count) = (setup.seed as usize, setup.data_disks());
    (0..count).map(move |nth| (seed + nth) % count)
}

/// As many disks at fault as the layout can lose, each in another way.
pub fn tolerated(setup: &Setup) -> Result<Shown, Failure> {
    let own = setup.clone();
    let drawn = (setup.seed as usize / 3..).map(|nth| FAULTS[nth % FAULTS.len()]);
    let mut struck: Vec<(usize, Fault)> = disks_from(setup).take(setup.redundancy()).zip(drawn).collect();
    // What is written into lines of which a cell is wrong and another missing may be lost: not promised before a scrub.
    let silent = struck.iter().filter(|(_, fault)| fault.is_silent()).count();
    let is_quiet = has_lines(setup) && (1..struck.len()).contains(&silent);
    if is_quiet {
        struck.iter_mut().filter(|(_, fault)| fault.is_silent()).for_each(|(_, fault)| *fault = Fault::Rot);
    }
    let told = format!("{struck:?}");
    judged(setup, async move |scene: &Scene, crashes: &Crashes| {
        let is_gone = |(disk, fault): &(usize, Fault)| if *fault == Fault::Gone { 1 << disk } else { 0 };
        let gone: u64 = struck.iter().map(is_gone).sum();
        if is_quiet {
            scene.clients.mix.set(Mix::READS);
            // What waits in the log for its place is on its way into lines, too: a scrub has it go there first.
            scrub(scene, 0).await?;
        }
        struck.iter().for_each(|(disk, fault)| fault.strike(scene, *disk));
        let crash = async {
            for _ in 0..CRASHES {
                // One that is gone may be back after the power was, with what it had.
                let absent = if scene.clients.below(2) == 0 { gone } else { 0 };
                let most = 1 << (5 + scene.clients.below(11));
                fail_power(scene, most, absent, struck.len() as u32, crashes).await;
            }
        };
        let (ran, ()) = join(scene.clients.run(2 * own.operations), crash).await;
        ran?;
        crashes.borrow_mut().iter_mut().for_each(|crash| crash.sound = false);
        scene.world.take_rules();
        struck.iter().for_each(|(disk, _)| scene.world.release(*disk));
        // Who only reads does not learn that a disk is gone: a write does. Until it is known, a scrub passes over the parity of its chunks.
        scene.engine.checkpoint(POOL).await.map_err(failed("a checkpoint failed"))?;
        // Where there is room, what is out of service is rebuilt.
        scene.engine.pool_healed(POOL).await.map_err(failed("healing failed"))?;
        scrub(scene, own.operations / 2).await?;
        let (mut lacking, mut out) = (0, 0);
        for (disk, _) in &struck {
            let state = scene.disk(*disk).await?.state;
            if !matches!(state, DiskState::Online | DiskState::Rebuilt) {
                (lacking, out) = (lacking + 1, out | 1 << disk);
            }
        }
        // Without a disk, a scrub cannot tell which of a line's parity is right: nor can the checker, if it stays away.
        let is_sound = lacking == 0 || !has_lines(&own);
        let gone = if is_sound { gone } else { gone | out };
        scene.clients.mix.set(if is_sound { Mix::default() } else { Mix::READS });
        let more = if is_sound { own.redundancy() - lacking } else { 0 };
        let others = disks_from(&own).skip(struck.len()).take(more);
        Ok(gone | lose(scene, &own, others).await?)
    })
    .map_err(|failure| failure.because(&told))
}

/// As many disks as the layout can lose go one right after the other, while it is recorded of the one before; when the power comes back, so
/// may they, with what they had.
pub fn together(setup: &Setup) -> Result<Shown, Failure> {
    let mut shown = Shown::default();
    for case in 0..2 {
        let own = Setup { seed: setup.seed + case, ..setup.clone() };
        let script = own.clone();
        shown += judged(&own, async move |scene: &Scene, crashes: &Crashes| {
            let gone = Cell::new(0);
            let going = async {
                scene.rt.sleep(Duration::from_micros(scene.clients.below(2000))).await;
                for disk in disks_from(&script).take(script.redundancy()) {
                    scene.world.set_gone(disk, true);
                    gone.set(gone.get() | 1 << disk);
                    scene.rt.sleep(Duration::from_micros(scene.clients.below(1500))).await;
                }
            };
            let spent = script.redundancy() as u32;
            let crash = async {
                for _ in 0..CRASHES {
                    fail_power(scene, 2000, 0, spent, crashes).await;
                }
            };
            let (ran, (), ()) = join3(scene.clients.run(2 * script.operations), going, crash).await;
            ran?;
            Ok(gone.get())
        })?;
    }
    Ok(shown)
}

/// What is wrong with one disk more than the layout can lose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    Unreadable,
    Rot,
    /// It goes as well, and comes back.
    Gone,
}

fn is_data(image: &Image, page: u64) -> bool {
    let is_write = |sector| matches!(parse(sector), Seen::Write { .. });
    image.page(page).is_some_and(|bytes| bytes.chunks_exact(SECTOR).all(is_write))
}

/// Some of the pages of a disk that hold what clients wrote, and nothing else.
fn data_pages(scene: &Scene, disk: usize) -> Vec<u64> {
    let image = scene.world.image(disk);
    let pages: Vec<u64> = written_pages(&image).into_iter().filter(|page| is_data(&image, *page)).collect();
    let draw = |_| pages.get(scene.clients.below(pages.len().max(1) as u64) as usize).copied();
    (0..1 + scene.clients.below(4)).filter_map(draw).collect()
}

/// As many disks go as the layout can lose; and while they are rebuilt, if there is room, another has damaged data, or goes as well and
/// comes back.
pub fn beyond(setup: &Setup) -> Result<Shown, Failure> {
    let last = [Last::Unreadable, Last::Rot, Last::Gone][setup.seed as usize / 2 % 3];
    // With no other disk, its going is another row's.
    let last = if setup.redundancy() == 0 && last == Last::Gone { Last::Rot } else { last };
    let world = scene::world(setup);
    let (own, damaged) = (setup.clone(), Rc::new(RefCell::new(Vec::new())));
    let (places, absent) = (damaged.clone(), Rc::new(Cell::new(0)));
    let missing = absent.clone();
    let tolerance = Tolerance { errors: true, no_space: true };
    let victim = disks_from(setup).nth(setup.redundancy()).expect("a layout has more disks than it can lose");
    let ended = scene::play(&world, setup, tolerance, async move |scene: &Scene| {
        scene.clients.create_volumes().await?;
        scene.clients.run(own.operations).await?;
        scene.engine.checkpoint(POOL).await.map_err(failed("a checkpoint failed"))?;
        for disk in disks_from(&own).take(own.redundancy()) {
            scene.world.set_gone(disk, true);
            missing.set(missing.get() | 1 << disk);
        }
        if last != Last::Gone {
            for page in data_pages(scene, victim) {
                let bytes = page * 4096..page * 4096 + SECTOR as u64;
                match last {
                    Last::Unreadable => scene.world.set_unreadable(victim, bytes.clone()),
                    _ => scene.world.rot(victim, bytes.start + scene.clients.below(512), &[1]),
                }
                places.borrow_mut().push(bytes);
            }
        }
        let healing = scene.engine.pool_healed(POOL);
        let (ran, healed) = join(scene.clients.run(own.operations), healing).await;
        ran?;
        healed.map_err(failed("healing failed"))?;
        let state = scene.engine.pools().await.first().map(|pool| pool.state);
        if !matches!(state, Some(PoolState::Online | PoolState::Degraded)) {
            return Err(Failure::Outcome(format!("with some blocks lost the pool is {state:?}")));
        }
        if last == Last::Gone {
            scene.world.set_gone(victim, true);
            scene.clients.run(own.operations).await?;
        }
        scene.export().await.or(if last == Last::Gone {
            Ok(())
        } else {
            Err(Failure::Outcome("no export".into()))
        })
    });
    let told = format!("beyond disks {:#b}, disk {victim}: {last:?}", absent.get());
    let ended = ended.map_err(|failure| failure.because(&told))?;
    let images = world.power_loss(|_, _| Fate::Lost);
    let places = damaged.take();
    let read_errors = last != Last::Gone;
    let demand = Demand { absent: absent.get(), read_errors, check: false, ..Demand::STRICT };
    let again = |world: &World| {
        // Where there are nodes by now, more than a block would be lost.
        let image = world.image(victim);
        for bytes in
            places.iter().filter(|bytes| last == Last::Unreadable && is_data(&image, bytes.start / 4096))
        {
            world.set_unreadable(victim, bytes.clone());
        }
    };
    let verified = verify_in(setup, images, &ended.history, demand, setup.seed, &again)
        .map_err(|failure| failure.because(&told))?;
    // A page lies in one block of its disk, and in the columns of one block of each disk that is gone.
    let blocks = places.len() * (1 + setup.redundancy());
    let most = blocks as u64 * u64::from(setup.block_bytes_max()) / SECTOR as u64;
    if verified.unreadable_sectors > most {
        let text =
            format!("{} sectors cannot be read for {} bad pages", verified.unreadable_sectors, places.len());
        return Err(Failure::Outcome(text).because(&told));
    }
    let errors = ended.excused + verified.unreadable_sectors;
    Ok(Shown { cases: 1, faults: places.len() as u64 + 1, errors, repaired: verified.repaired })
}
