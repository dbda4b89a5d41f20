//! Whether what was promised was kept in a span of time, and if not, why: as pure functions of what happened.
//!
//! A level promises so many requests, each within its latency goal. Who gets as many as its floor has what it was promised, whatever else it asks for. Who
//! gets fewer has been wronged only if its requests took too long: a client that keeps little outstanding, and is answered in time, asks for no more. So a floor that is
//! not reached is no violation by itself, nor is a ceiling, or a burst that is used up.
//!
//! The *cause* is what most of the time went to. Requests wait for room (the log is full), for their turn, or for the disks. If the disks did as much as they were
//! measured to do, somebody else had them; if they did less, it is theirs.

use crate::level::{Level, Rate};
use crate::task::Task;
use std::time::Duration;

/// Who was promised requests but no latency: whatever takes longer than this is late.
const PATIENCE: Duration = Duration::from_millis(100);
/// A goal is for 99 of 100.
const LATE_PART: u64 = 100;
/// So much of a floor is the floor.
const REACHED_PERCENT: u128 = 95;
/// Disks that do less than this part of what they were measured to do, while requests wait, are slow.
const BUSY_PERCENT: u64 = 60;
/// By so many times requests may take longer than one does by itself before that is somebody's fault.
const USUAL_TIMES: u64 = 2;

/// What was asked for, and what came of it. Times are nanoseconds, of all requests together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    pub span: u64,
    pub asked: u64,
    pub asked_bytes: u64,
    /// Answered with what was asked for, and with an error.
    pub done: u64,
    pub done_bytes: u64,
    pub failed: u64,
    /// Of those that are done, how many took longer than they should.
    pub late: u64,
    /// Of those that are timed, below their ceilings and not answered yet; how many of these since before the span; and how many of all wait at ceilings.
    pub open: u64,
    pub stuck: u64,
    pub held_now: u64,
    /// At ceilings.
    pub held: u64,
    /// For room in the log.
    pub room: u64,
    /// For their turn.
    pub turn: u64,
    /// For a snapshot that was taken, or a move that came to its end.
    pub paused: u64,
    /// How many were timed, and how long they took from when they were below their ceilings.
    pub timed: u64,
    pub total: u64,
    pub p50: u64,
    pub p99: u64,
    /// Time of the pool's that they took.
    pub cost: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing was asked for.
    Idle,
    /// It had its floor; or it has none, and all in time.
    Met,
    /// It asked for less than its floor, and had it in time.
    NotDemanded,
    /// It had as much as its ceiling allows.
    Capped,
    Violated,
    /// It has its share and no promise: that does not fit into the pool.
    BestEffort,
    /// Nor has it one here: that would fit if all disks were there and did what they were measured to do.
    CannotBeKept,
}

/// Why a promise was not kept. `F` names a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause<F> {
    /// Another flow had the most of the pool's time.
    Neighbour(F),
    /// The pool's own work had.
    Task(Task),
    /// A disk is far slower than others of its group.
    Disk(u16),
    /// The disks do less than they were measured to do.
    Disks,
    /// The disks are as fast as they are: only memory is faster.
    CacheMiss,
    /// It needs more than the pool has, by itself.
    Itself,
}

/// What a request takes that has the disks almost for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usual {
    /// Nanoseconds of a small one, and picoseconds of each byte.
    pub small: u64,
    pub byte_ps: u64,
}

/// What else happened in a pool.
#[derive(Debug)]
pub struct Circumstances<F> {
    /// Time of the pool's that all took together, and the two flows that took most.
    busy: u64,
    greatest: [Option<(F, u64)>; 2],
    tasks: [u64; Task::ALL.len()],
    /// Nothing when the pool was not measured.
    usual: Option<Usual>,
    /// A disk that is far slower than the others of its group.
    slow_disk: Option<u16>,
}

impl<F: Copy> Circumstances<F> {
    /// What flows took of the pool's time, and its own work, by its place in [`Task::ALL`].
    pub fn new(
        flows: impl Iterator<Item = (F, u64)>,
        tasks: [u64; Task::ALL.len()],
        usual: Option<Usual>,
        slow_disk: Option<u16>,
    ) -> Circumstances<F> {
        let (mut busy, mut greatest) = (tasks.iter().sum(), [None; 2]);
        for (flow, cost) in flows {
            busy += cost;
            let is_greater = |than: Option<(F, u64)>| than.is_none_or(|(_, other)| cost > other);
            if is_greater(greatest[0]) {
                greatest = [Some((flow, cost)), greatest[0]];
            } else if is_greater(greatest[1]) {
                greatest[1] = Some((flow, cost));
            }
        }
        Circumstances { busy, greatest, tasks, usual, slow_disk }
    }

    /// What of the pool's time was used.
    pub fn busy(&self) -> u64 {
        self.busy
    }
}

impl Level {
    /// Nanoseconds after which a request is late; nothing when nothing was promised.
    pub fn late_after(&self) -> Option<u64> {
        let promised = self.latency.or((self.floor != Rate::default()).then_some(PATIENCE));
        promised.map(|promised| promised.as_nanos() as u64)
    }

    /// The same level for a flow to which nothing can be promised.
    pub fn without_promise(&self) -> Level {
        Level { floor: Rate::default(), latency: None, ..*self }
    }
}

impl Account {
    fn has_reached(&self, floor: Rate) -> bool {
        let reached = |rate: u64, done: u64| {
            let least = u128::from(rate) * u128::from(self.span) * REACHED_PERCENT / 100;
            rate > 0 && u128::from(done) * 1_000_000_000 >= least
        };
        reached(floor.iops, self.done) || reached(floor.bytes, self.done_bytes)
    }

    /// Whether more than one in a hundred was late, those included that wait since before the span. One of few may be.
    fn is_late(&self, late_after: u64) -> bool {
        let stuck = if self.span >= late_after { self.stuck } else { 0 };
        let late = self.late + stuck;
        late > (self.timed + stuck) / LATE_PART && (late > 1 || self.timed == 0)
    }

    pub fn state(&self, level: &Level) -> State {
        if [self.asked, self.open, self.done, self.failed, self.held_now].iter().all(|number| *number == 0) {
            return State::Idle;
        }
        let has_floor = level.floor != Rate::default();
        if self.has_reached(level.floor) {
            return State::Met;
        }
        // Without a goal, whoever waited for turns all the time wanted more.
        let wanted_more = has_floor && level.latency.is_none() && self.turn >= self.span;
        if wanted_more || level.late_after().is_some_and(|late_after| self.is_late(late_after)) {
            return State::Violated;
        }
        match (self.held > 0 || self.held_now > 0, has_floor) {
            (true, _) => State::Capped,
            (false, true) => State::NotDemanded,
            (false, false) => State::Met,
        }
    }

    /// Time that went to the disks.
    pub fn disks(&self) -> u64 {
        self.total.saturating_sub(self.room + self.turn + self.paused)
    }

    /// How many thousandths of their usual time requests took at the disks; as much as can be where none came to its end.
    pub fn slowness(&self, usual: Usual) -> u64 {
        if self.timed == 0 {
            return u64::MAX;
        }
        let bytes = (self.done_bytes / self.timed).saturating_mul(usual.byte_ps) / 1000;
        let mean = self.disks() / self.timed;
        mean.saturating_mul(1000) / usual.small.saturating_add(bytes).max(1)
    }

    /// Why a promise to `me` was not kept.
    pub fn cause<F: Copy + PartialEq>(&self, me: F, among: &Circumstances<F>) -> Cause<F> {
        // Room in the log comes with the next checkpoint.
        if self.room > self.turn.max(self.disks()).max(self.paused) {
            return Cause::Task(Task::Checkpoint);
        }
        if self.paused > self.turn.max(self.disks()) {
            return Cause::Task(Task::Copy);
        }
        if let Some(disk) = among.slow_disk {
            return Cause::Disk(disk);
        }
        if let Some(usual) = among.usual
            && among.busy < self.span / 100 * BUSY_PERCENT
        {
            if self.slowness(usual) > USUAL_TIMES * 1000 {
                return Cause::Disks;
            }
            // Whoever waited for turns although there was time did so in bursts of others.
            if self.turn <= self.disks() {
                return Cause::CacheMiss;
            }
        }
        let neighbour = among.greatest.iter().flatten().find(|(flow, _)| *flow != me);
        let neighbour = neighbour.map(|(flow, cost)| (*cost, Cause::Neighbour(*flow)));
        let tasks = among.tasks.iter().zip(Task::ALL).map(|(cost, task)| (*cost, Cause::Task(task)));
        let own = if among.usual.is_some() { Cause::Itself } else { Cause::Disks };
        let all = tasks.chain(neighbour).chain([(self.cost, own)]);
        all.max_by_key(|(cost, _)| *cost).map_or(own, |(_, cause)| cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    fn level() -> Level {
        Level {
            floor: Rate { iops: 1000, bytes: 100 << 20 },
            latency: Some(Duration::from_millis(10)),
            ..Level::default()
        }
    }

    fn account() -> Account {
        Account { span: SECOND, asked: 500, done: 500, timed: 500, ..Account::default() }
    }

    #[test]
    fn a_promise_is_broken_only_to_who_wanted_it_kept() {
        let none = Account { asked: 0, done: 0, timed: 0, ..account() };
        let busy = Account { asked: 5000, done: 950, timed: 950, ..account() };
        let cases = [
            ("nothing asked", none, State::Idle),
            ("asks for less", account(), State::NotDemanded),
            ("asks for less, five late", Account { late: 5, ..account() }, State::NotDemanded),
            ("asks for less, and waits", Account { late: 6, ..account() }, State::Violated),
            ("one of few", Account { done: 3, timed: 3, late: 1, ..account() }, State::NotDemanded),
            ("two of few", Account { done: 3, timed: 3, late: 2, ..account() }, State::Violated),
            ("its floor", Account { late: 900, open: 4050, stuck: 50, ..busy }, State::Met),
            ("its floor of bytes", Account { done_bytes: 96 << 20, late: 90, ..account() }, State::Met),
            ("less than it asked for", Account { done: 900, timed: 900, late: 800, ..busy }, State::Violated),
            ("all hang", Account { open: 8, stuck: 8, ..none }, State::Violated),
            ("one hangs", Account { open: 1, stuck: 1, ..none }, State::Violated),
            ("some hang", Account { open: 50, stuck: 50, ..account() }, State::Violated),
            ("just asked", Account { asked: 8, open: 8, ..none }, State::NotDemanded),
            ("errors are no service", Account { asked: 5000, failed: 5000, ..none }, State::NotDemanded),
            ("at its ceiling", Account { held: MS, ..account() }, State::Capped),
            ("still at its ceiling", Account { held_now: 3, ..none }, State::Capped),
            ("at its ceiling and late", Account { held: MS, late: 50, ..account() }, State::Violated),
            ("waits for turns, in time", Account { turn: 4 * SECOND, ..account() }, State::NotDemanded),
        ];
        for (what, account, expected) in cases {
            assert_eq!(account.state(&level()), expected, "{what}");
        }
        let nothing = Account { late: 500, ..account() };
        assert_eq!(nothing.state(&Level::default()), State::Met, "nothing was promised");
        assert_eq!(nothing.state(&level().without_promise()), State::Met);
        let half = Account { span: SECOND / 2, done: 480, ..account() };
        assert_eq!(half.state(&level()), State::Met, "a rate, whatever the span");
        let rate_only = Level { latency: None, ..level() };
        assert_eq!(rate_only.late_after(), Some(100 * MS));
        let waits = Account { turn: 4 * SECOND, ..account() };
        assert_eq!(waits.state(&rate_only), State::Violated, "it would have asked for more");
    }

    #[test]
    fn the_cause_is_where_the_time_went() {
        let violated = Account { late: 400, total: 500 * 50 * MS, cost: SECOND / 10, ..account() };
        let waited =
            |room: u64, turn: u64| Account { room: 500 * room * MS, turn: 500 * turn * MS, ..violated };
        let busy: &[(u32, u64)] = &[(1, SECOND / 10), (3, SECOND / 5), (2, SECOND / 2)];
        let idle: &[(u32, u64)] = &[(1, SECOND / 10), (2, SECOND / 20)];
        let none = [0; Task::ALL.len()];
        let mut scrubs = none;
        scrubs[Task::Scrub as usize] = SECOND / 4 * 3;
        let usual = Some(Usual { small: 2 * MS, byte_ps: 1000 });
        let among =
            |flows: &[(u32, u64)], tasks| Circumstances::new(flows.iter().copied(), tasks, usual, None);
        let cases = [
            ("a neighbour", waited(0, 40), among(busy, none), Cause::Neighbour(2)),
            ("before it at the disks", waited(0, 0), among(busy, none), Cause::Neighbour(2)),
            ("scrub", waited(0, 40), among(busy, scrubs), Cause::Task(Task::Scrub)),
            ("a full log", waited(40, 5), among(busy, scrubs), Cause::Task(Task::Checkpoint)),
            (
                "a snapshot",
                Account { paused: 500 * 40 * MS, ..violated },
                among(busy, none),
                Cause::Task(Task::Copy),
            ),
            ("slow disks", waited(0, 0), among(idle, none), Cause::Disks),
            (
                "none is done",
                Account { span: SECOND, open: 8, ..Account::default() },
                among(idle, none),
                Cause::Disks,
            ),
            (
                "one disk",
                waited(0, 40),
                Circumstances { slow_disk: Some(7), ..among(idle, none) },
                Cause::Disk(7),
            ),
            (
                "a goal that the disks cannot meet",
                Account { total: 500 * 3 * MS, ..violated },
                among(idle, none),
                Cause::CacheMiss,
            ),
            (
                "large ones take longer",
                Account { total: 500 * 10 * MS, done_bytes: 500 << 22, ..violated },
                among(idle, none),
                Cause::CacheMiss,
            ),
            (
                "bursts of another",
                Account { turn: 500 * 40 * MS, total: 500 * 43 * MS, ..violated },
                among(&[(1, SECOND / 10), (2, SECOND / 3)], none),
                Cause::Neighbour(2),
            ),
            (
                "too much for the pool",
                Account { cost: SECOND, ..waited(0, 40) },
                among(&[(1, SECOND), (2, SECOND / 20)], none),
                Cause::Itself,
            ),
        ];
        for (what, account, among, expected) in cases {
            assert_eq!(account.cause(1, &among), expected, "{what}");
        }
        // Without a measurement nobody knows what the disks should do: who had most of them, if somebody had.
        let unmeasured = |flows| Circumstances { usual: None, ..among(flows, none) };
        assert_eq!(waited(0, 0).cause(1, &unmeasured(busy)), Cause::Neighbour(2));
        assert_eq!(waited(0, 0).cause(2, &unmeasured(busy)), Cause::Neighbour(3));
        assert_eq!(waited(0, 0).cause(1, &unmeasured(&[(1, SECOND / 10)])), Cause::Disks);
    }
}
