//! Crash exploration: one workload, run once; then many images of what a power loss could have left of it.
//!
//! From the recording, moments are drawn; at each, which of the writes that were not yet durable survive, and
//! which of them torn. Up to six pending writes give all their subsets, up to ten at one moment in eight (at every
//! one with [`Plan::exhaustive`]); otherwise none, all, the prefixes, all but one, one only and random subsets.
//! At one moment in ten the recovery itself is recorded and crashed. Images of a seed are numbered in the order in
//! which they are made, so that one of them can be made again.

use crate::harness::Failure;
use crate::scene::{self, Scene};
use crate::setup::Setup;
use crate::verify::{Demand, verify};
use crate::workload::{History, Tolerance};
use forebay_base::Random;
use forebay_simulation::{Cursor, Event, Fate, Recording, World};
use futures_util::future::join;
use std::rc::Rc;

/// How much is explored of one seed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Images of one seed.
    pub images: u64,
    /// Images of one moment, unless all subsets are due.
    pub per_moment: usize,
    /// All subsets wherever at most ten writes are pending.
    pub exhaustive: bool,
    /// One moment in so many has its recovery crashed too.
    pub second_crash_one_in: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { images: 400, per_moment: 12, exhaustive: false, second_crash_one_in: 10 }
    }
}

/// A workload that has been run.
pub struct Run {
    pub setup: Setup,
    pub history: Rc<History>,
    pub recording: Recording,
    /// The trace at the end.
    pub trace: u64,
    /// Operations that failed for want of space.
    pub excused: u64,
}

/// Runs the workload of `setup` without faults, recorded from the moment the pool is there.
pub fn record(setup: &Setup) -> Result<Run, Failure> {
    record_with(setup, Tolerance { no_space: true, errors: false }, |_| {})
}

/// Like [`record`], after `prepare` has done something to the world in which the pool lies.
pub fn record_with(
    setup: &Setup,
    tolerance: Tolerance,
    prepare: impl FnOnce(&World) + 'static,
) -> Result<Run, Failure> {
    let world = scene::world(setup);
    let operations = setup.operations;
    let own = setup.clone();
    let ended = scene::play_first(&world, setup, tolerance, async move |scene: &Scene| {
        prepare(&scene.world);
        scene.world.record();
        scene.clients.create_volumes().await?;
        let (ran, joined) = join(scene.clients.run(operations), scene.join_second(&own)).await;
        // A disk may fail while it joins: then it is a matter of the tolerance.
        if !tolerance.errors {
            joined?;
        }
        ran
    })?;
    Ok(Run {
        setup: setup.clone(),
        history: ended.history,
        recording: world.take_recording(),
        trace: world.trace(),
        excused: ended.excused,
    })
}

/// An image that failed.
#[derive(Clone, Debug)]
pub struct Found {
    pub setup: Setup,
    /// Its number, from 0; `None` when the workload itself failed.
    pub image: Option<u64>,
    pub failure: Failure,
    /// Where in the recording, and what became of the pending writes.
    pub story: String,
}

/// Explores crash images of a run. With `only`, verifies that one alone. Returns how many were verified, or the first
/// that failed.
pub fn explore(run: &Run, plan: Plan, only: Option<u64>) -> Result<u64, Box<Found>> {
    let mut explorer = Explorer { run, plan, only, number: 0, verified: 0 };
    let mut random = Random::new(run.setup.seed ^ 0xc4a5);
    let events = run.recording.events.len() as u64;
    let moments = (plan.images / (plan.per_moment as u64 / 2).max(1)).clamp(1, events.max(1));
    let mut positions: Vec<usize> = (0..moments).map(|_| random.below(events + 1) as usize).collect();
    positions.sort_unstable();
    let mut cursor = Cursor::new(&run.recording);
    let mut tick = 0;
    for position in positions {
        while cursor.position() < position {
            if let Some(Event::Mark(mark)) = cursor.advance() {
                tick = *mark;
            }
        }
        explorer.moment(&cursor, tick, Random::new(random.next_u64()))?;
        if explorer.number >= plan.images {
            break;
        }
    }
    Ok(explorer.verified)
}

struct Explorer<'a> {
    run: &'a Run,
    plan: Plan,
    only: Option<u64>,
    number: u64,
    verified: u64,
}

impl Explorer<'_> {
    /// All images of one moment.
    fn moment(&mut self, cursor: &Cursor, tick: u64, mut random: Random) -> Result<(), Box<Found>> {
        let all_subsets = self.plan.exhaustive || random.one_in(8);
        let choices = fates(cursor, self.plan.per_moment, all_subsets, &mut random);
        let nested =
            random.one_in(self.plan.second_crash_one_in).then(|| random.below(choices.len() as u64) as usize);
        for (index, choice) in choices.iter().enumerate() {
            let seed = random.next_u64();
            let crash_again = nested == Some(index);
            let number = self.number;
            self.number += 1;
            let wanted = self.only.is_none_or(|only| only == number);
            if !wanted && !crash_again {
                continue;
            }
            let demand = Demand {
                at: tick,
                export: seed.is_multiple_of(2),
                again: seed % 4 == 1,
                record: crash_again,
                ..Demand::STRICT
            };
            let story = || {
                let fates: Vec<String> = cursor
                    .pending()
                    .zip(choice)
                    .map(|((disk, write), fate)| {
                        let state = if write.completed { "" } else { " in flight" };
                        format!("sim{disk} {}+{}{state}: {fate:?}", write.at, write.pages.len() * 4096)
                    })
                    .collect();
                format!("crash after event {} (tick {tick}); [{}]", cursor.position(), fates.join(", "))
            };
            let result = verify(&self.run.setup, cursor.crash(choice), &self.run.history, demand, seed);
            self.verified += 1;
            let verified = match result {
                Ok(verified) => verified,
                Err(_) if !wanted => continue,
                Err(failure) => return Err(self.found(number, failure, story())),
            };
            if crash_again {
                self.second_crash(&verified.recording, tick, &mut random, &story)?;
            }
        }
        Ok(())
    }

    /// Images of crashes within a recovery.
    fn second_crash(
        &mut self,
        recovery: &Recording,
        tick: u64,
        random: &mut Random,
        story: &dyn Fn() -> String,
    ) -> Result<(), Box<Found>> {
        const IMAGES_MAX: usize = 8;
        let mut positions: Vec<usize> =
            (0..4).map(|_| random.below(recovery.events.len() as u64 + 1) as usize).collect();
        positions.sort_unstable();
        let mut cursor = Cursor::new(recovery);
        let mut made = 0;
        for position in positions {
            cursor.advance_to(position);
            for choice in fates(&cursor, 3, false, random) {
                let seed = random.next_u64();
                let number = self.number;
                self.number += 1;
                made += 1;
                if self.only.is_some_and(|only| only != number) {
                    continue;
                }
                let demand = Demand { at: tick, export: seed.is_multiple_of(2), ..Demand::STRICT };
                let result = verify(&self.run.setup, cursor.crash(&choice), &self.run.history, demand, seed);
                self.verified += 1;
                if let Err(failure) = result {
                    let text = format!("{}; then again after event {position} of the recovery", story());
                    return Err(self.found(number, failure, text));
                }
                if made >= IMAGES_MAX {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn found(&self, number: u64, failure: Failure, story: String) -> Box<Found> {
        Box::new(Found { setup: self.run.setup.clone(), image: Some(number), failure, story })
    }
}

/// What becomes of the pending writes of a moment: at most `per_moment` choices, all subsets where they are few.
fn fates(cursor: &Cursor, per_moment: usize, all_subsets: bool, random: &mut Random) -> Vec<Vec<Fate>> {
    let sectors: Vec<usize> = cursor.pending().map(|(_, write)| write.sectors()).collect();
    let count = sectors.len();
    if count == 0 {
        return vec![Vec::new()];
    }
    let whole_if = |keep: &dyn Fn(usize) -> bool| -> Vec<Fate> {
        (0..count).map(|n| if keep(n) { Fate::Whole } else { Fate::Lost }).collect()
    };
    let mut choices = Vec::new();
    if 1 << count.min(20) <= per_moment || (all_subsets && count <= 10) {
        choices.extend((0..1u32 << count).map(|subset| whole_if(&|n| subset >> n & 1 == 1)));
    } else {
        choices.push(whole_if(&|_| false));
        choices.push(whole_if(&|_| true));
        while choices.len() < per_moment * 3 / 4 {
            let place = random.below(count as u64) as usize;
            let bits = random.next_u64();
            choices.push(match random.below(4) {
                0 => whole_if(&|n| n < place),
                1 => whole_if(&|n| n != place),
                2 => whole_if(&|n| n == place),
                _ => whole_if(&|n| bits >> (n % 64) & 1 == 1),
            });
        }
    }
    // Torn writes: one or, at times, every write cut somewhere.
    for _ in 0..(per_moment / 4).max(1) {
        let bits = random.next_u64();
        let mut choice = whole_if(&|n| bits >> (n % 64) & 1 == 1);
        let victim = random.below(count as u64) as usize;
        let every = random.one_in(4);
        for n in 0..count {
            if n == victim || every {
                let cut = 1 + random.below(sectors[n] as u64 - 1) as usize;
                choice[n] = if random.one_in(3) { Fate::Tail(cut) } else { Fate::Head(cut) };
            }
        }
        choices.push(choice);
    }
    choices
}
