//! What the shards of a pool share: the window, and how far each is in virtual time. Every number is atomic, and none needs another to be right.

use crate::cost::{Affine, Costs, Work};
use crate::trial::{Seen, Trial};
use forebay_base::Nanos;
use forebay_base::planted::has_strict_turns;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Of a shard that has nothing waiting.
const IDLE: u64 = u64::MAX;
/// By this part of a second's progress a shard may be ahead of others: 1/200.
const LEAD_PER_SECOND: u64 = 200;
const LOOK_NS: u64 = 10_000_000;
/// A window is set by so many requests at least, and never to less than this part of what it may be.
const TIMED_MIN: u64 = 50;
const WINDOW_PARTS: u64 = 256;
/// Nor to less than this part of the goals that are missed. The window is what somebody who comes waits for, if it is spread over the disks; where it is so short
/// something else makes them late, and who has none would only have less.
const GOAL_PARTS: u64 = 32;

/// A step that must come to its turn waits for eight times as long as it keeps the pool busy, on a pool of one shard.
const PATIENCE_COSTS: u64 = 8;

/// Each in a cache line of its own: a shard writes it with each request, and the others seldom read it.
#[repr(align(64))]
struct Own(AtomicU64);

pub struct Pool {
    /// Cost of what is in flight, and how much that may be.
    in_flight: Own,
    window: AtomicU64,
    /// What keeps the disks busy, and it never exceeds.
    window_max: AtomicU64,
    /// The shortest latency goal that anybody ever had, and whether the window grows fast since it began at its least for that.
    strictest: AtomicU64,
    is_starting: AtomicBool,
    /// Requests with a goal that are over, and those of them that took too long, since the window was last set.
    timed: AtomicU64,
    late: AtomicU64,
    /// The shortest time that these should have taken.
    missed: AtomicU64,
    /// Of those with a goal, how many missed it, with the time that they waited before they began; and what small windows were found to be good for. Whoever
    /// steers has the lock for that moment; only who comes with a shorter goal waits for it.
    failed: AtomicU64,
    trial: Mutex<Trial>,
    /// Whether something waited since then because the window was full.
    was_full: AtomicBool,
    /// Virtual time: the greatest tag that began.
    reached: Own,
    /// By how much a shard may be ahead of the others.
    lead: AtomicU64,
    /// When the lead was last set, and where virtual time was then.
    seen: AtomicU64,
    seen_at: AtomicU64,
    /// By shard, the tag of what it would begin next.
    heads: Box<[Own]>,
    costs: [AtomicU64; 4],
}

impl Pool {
    /// A pool of so many shards, with nothing in flight.
    pub fn new(shards: usize, costs: Costs, window: u64) -> Pool {
        let own = |value| Own(AtomicU64::new(value));
        let pool = Pool {
            in_flight: own(0),
            window: AtomicU64::new(window),
            window_max: AtomicU64::new(window),
            strictest: AtomicU64::new(u64::MAX),
            is_starting: AtomicBool::new(false),
            timed: AtomicU64::new(0),
            late: AtomicU64::new(0),
            missed: AtomicU64::new(u64::MAX),
            failed: AtomicU64::new(0),
            trial: Mutex::default(),
            was_full: AtomicBool::new(false),
            reached: own(0),
            lead: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            seen_at: AtomicU64::new(0),
            heads: (0..shards).map(|_| own(IDLE)).collect(),
            costs: Default::default(),
        };
        pool.set_costs(costs);
        pool
    }

    pub fn costs(&self) -> Costs {
        let [read_fixed, read_byte, write_fixed, write_byte] =
            [0, 1, 2, 3].map(|at| self.costs[at].load(Relaxed));
        Costs {
            read: Affine { fixed: read_fixed, byte_ps: read_byte },
            write: Affine { fixed: write_fixed, byte_ps: write_byte },
        }
    }

    /// What requests cost from now on.
    pub fn set_costs(&self, costs: Costs) {
        let all = [costs.read.fixed, costs.read.byte_ps, costs.write.fixed, costs.write.byte_ps];
        self.costs.iter().zip(all).for_each(|(place, value)| place.store(value, Relaxed));
    }

    /// Nanoseconds that a step waits for its turn at most, of work that must come to its end whatever others ask for. All shards may have such work; together they get a
    /// ninth of the pool's time at least.
    pub fn patience(&self, work: Work) -> u64 {
        if has_strict_turns() {
            return u64::MAX;
        }
        self.costs().of(work).saturating_mul(PATIENCE_COSTS * self.shards() as u64)
    }

    /// Nanoseconds of the pool's time.
    pub(crate) fn window(&self) -> u64 {
        if has_strict_turns() { 1 } else { self.window.load(Relaxed) }
    }

    /// What it never exceeds: as much as keeps the disks busy.
    pub(crate) fn window_max(&self) -> u64 {
        self.window_max.load(Relaxed)
    }

    /// Whether as much may be in flight as keeps the disks busy.
    pub fn is_wide_open(&self) -> bool {
        self.window() == self.window_max()
    }

    /// What it may be from now on. It is smaller for latency goals.
    pub fn set_window(&self, window: u64) {
        self.window_max.store(window, Relaxed);
        self.window.store(window.min(self.least(self.strictest.load(Relaxed))), Relaxed);
    }

    /// Somebody has a latency goal from now on. If nobody had one so short, the window begins where it cannot make him late, and grows as far as he allows.
    pub(crate) fn begin_narrow(&self, goal: u64) {
        if goal < self.strictest.fetch_min(goal, Relaxed) {
            *self.trial.lock().unwrap_or_else(PoisonError::into_inner) = Trial::default();
            self.is_starting.store(true, Relaxed);
            self.window.fetch_min(self.least(goal), Relaxed);
        }
    }

    /// The least window where this goal is missed.
    fn least(&self, goal: u64) -> u64 {
        (goal / GOAL_PARTS).max(self.window_max() / WINDOW_PARTS)
    }

    /// Something waits because the window is full, or goes in pieces because it is small.
    pub(crate) fn note_full(&self) {
        if !self.was_full.load(Relaxed) {
            self.was_full.store(true, Relaxed);
        }
    }

    /// A request with a latency goal is over: the nanoseconds that it took once it had begun, and those that it should; and whether it was answered too late.
    pub(crate) fn note(&self, took: u64, in_time: u64, is_failed: bool) {
        self.timed.fetch_add(1, Relaxed);
        if is_failed {
            self.failed.fetch_add(1, Relaxed);
        }
        if took > in_time {
            self.late.fetch_add(1, Relaxed);
            self.missed.fetch_min(in_time, Relaxed);
        }
    }

    /// A goal is for 99 of 100. When more were late, there was too much in flight in front of them. It grows again more slowly than it shrinks, but for the
    /// first time, and only where it was full: otherwise nobody has shown that more would do no harm.
    fn steer(&self, now: Nanos) {
        let Ok(mut trial) = self.trial.try_lock() else { return };
        let (timed, window) = (self.timed.load(Relaxed), self.window());
        let was_full = self.was_full.swap(false, Relaxed);
        let grown = |part| if was_full { window + window / part } else { window };
        let next = if timed < TIMED_MIN {
            // Who has a goal asks for little. That shows nothing yet, and the less the longer it lasts.
            grown(1024)
        } else {
            let (late, missed) = (self.late.swap(0, Relaxed), self.missed.swap(u64::MAX, Relaxed));
            let seen = Seen { timed, late: self.failed.swap(0, Relaxed) };
            self.timed.store(0, Relaxed);
            let least = self.least(missed).min(window);
            match trial.stays_open(now.0, seen) {
                Some(true) => u64::MAX,
                Some(false) => least,
                None if late * 100 > timed => {
                    self.is_starting.store(false, Relaxed);
                    let smaller = (window - window / 8).max(least);
                    if smaller == least && trial.opens(now.0, seen) { u64::MAX } else { smaller }
                }
                None => {
                    trial.is_steered();
                    grown(if self.is_starting.load(Relaxed) { 32 } else { 64 })
                }
            }
        };
        // Unless somebody else has set it.
        let _ = self.window.compare_exchange(window, next.min(self.window_max()), Relaxed, Relaxed);
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.0.load(Relaxed)
    }

    /// Looks now and then how fast virtual time goes: that says how much of it is a moment.
    pub(crate) fn look(&self, now: Nanos) {
        let at = self.seen_at.load(Relaxed);
        let elapsed = now.0.saturating_sub(at);
        let is_mine = || self.seen_at.compare_exchange(at, now.0, Relaxed, Relaxed).is_ok();
        if elapsed < LOOK_NS || !is_mine() {
            return;
        }
        self.steer(now);
        let reached = self.reached();
        let passed = reached.saturating_sub(self.seen.swap(reached, Relaxed));
        // What was a pause says nothing of how fast it goes.
        if elapsed < 10 * LOOK_NS {
            let lead = u128::from(passed) * 1_000_000_000 / u128::from(LEAD_PER_SECOND * elapsed);
            self.lead.store(lead as u64, Relaxed);
        }
    }

    pub(crate) fn shards(&self) -> usize {
        self.heads.len()
    }

    pub(crate) fn begin(&self, cost: u64) {
        self.in_flight.0.fetch_add(cost, Relaxed);
    }

    pub(crate) fn end(&self, cost: u64) {
        self.in_flight.0.fetch_sub(cost, Relaxed);
    }

    pub(crate) fn reached(&self) -> u64 {
        self.reached.0.load(Relaxed)
    }

    pub(crate) fn lead(&self) -> u64 {
        self.lead.load(Relaxed)
    }

    /// Something with this tag begins.
    pub(crate) fn reach(&self, tag: u64) {
        if tag > self.reached() {
            self.reached.0.fetch_max(tag, Relaxed);
        }
    }

    /// What `shard` would begin next; nothing waits when it is `None`.
    pub(crate) fn show(&self, shard: usize, tag: Option<u64>) {
        self.heads[shard].0.store(tag.unwrap_or(IDLE), Relaxed);
    }

    /// The least tag that another shard than `shard` would begin next.
    pub(crate) fn others(&self, shard: usize) -> u64 {
        let others = self.heads.iter().enumerate().filter(|(index, _)| *index != shard);
        others.map(|(_, head)| head.0.load(Relaxed)).min().unwrap_or(IDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What part of four minutes the window was wide open, where this many of a hundred requests are too late with a small window and with a wide one.
    fn open_part(late_small: u64, late_wide: u64) -> f64 {
        let line = Affine { fixed: 1000, byte_ps: 0 };
        let pool = Pool::new(1, Costs { read: line, write: line }, 1_000_000);
        let (goal, looks) = (320_000, 24_000);
        let mut open = 0;
        for look in 1..=looks {
            open += u64::from(pool.is_wide_open());
            let late = if pool.is_wide_open() { late_wide } else { late_small };
            for nth in 0..100 {
                let is_late = nth < late;
                pool.note(if is_late { goal + 1 } else { goal }, goal, is_late);
            }
            pool.note_full();
            pool.look(Nanos(look * LOOK_NS));
        }
        open as f64 / looks as f64
    }

    #[test]
    fn patience_leaves_a_ninth_of_the_pool_to_what_must_end() {
        let costs = Costs {
            read: Affine { fixed: 5000, byte_ps: 500 },
            write: Affine { fixed: 10_000, byte_ps: 1000 },
        };
        for (shards, work, cost) in [
            (1, Work::read(0, 1), 5000),
            (1, Work::read(1 << 20, 16), 80_000 + 524_288),
            (16, Work::write(1 << 20, 1), 10_000 + 1_048_576),
        ] {
            let pool = Pool::new(shards, costs, u64::MAX);
            let period = pool.patience(work) + cost;
            // Each shard has one step in flight or waiting.
            let part = (shards as u64 * cost) as f64 / period as f64;
            assert!((1.0 / 9.0..=1.0 / 8.0).contains(&part), "{work:?} on {shards} shards: {part}");
        }
        assert_eq!(
            Pool::new(1, Costs { read: Affine { fixed: 0, byte_ps: 0 }, ..costs }, 0)
                .patience(Work::read(9, 9)),
            0
        );
    }

    #[test]
    fn a_window_is_small_only_where_that_helps() {
        for (small, wide) in [(0, 0), (60, 63), (96, 100), (3, 5), (100, 100), (5, 2)] {
            let open = open_part(small, wide);
            assert!(open > 0.9, "{small} and {wide} of 100: open for {open} of the time");
        }
        // Goals out of reach may stand beside others that are kept: some more in time is worth it.
        for (small, wide) in [(2, 90), (40, 100), (3, 7), (72, 82)] {
            let open = open_part(small, wide);
            assert!(open < 0.05, "{small} and {wide} of 100: open for {open} of the time");
        }
    }

    #[test]
    fn a_window_is_no_smaller_than_helps_those_that_are_late() {
        let line = Affine { fixed: 1000, byte_ps: 0 };
        for (goal, expected) in
            [(3_200_000, 100_000), (96_000, 1_000_000 / WINDOW_PARTS), (64_000_000, 1_000_000)]
        {
            let pool = Pool::new(1, Costs { read: line, write: line }, 1_000_000);
            let look = |looks: std::ops::RangeInclusive<u64>, took: u64, is_full: bool| {
                for look in looks {
                    (0..TIMED_MIN).for_each(|_| pool.note(took, goal, false));
                    if is_full {
                        pool.note_full();
                    }
                    pool.look(Nanos(look * LOOK_NS));
                }
            };
            look(1..=100, goal + 1, false);
            assert_eq!(pool.window(), expected, "a goal of {goal} ns");
            // It grows again when all are in time.
            look(101..=500, goal, false);
            assert_eq!(pool.window(), expected, "it was not full");
            look(501..=900, goal, true);
            assert!(pool.is_wide_open());
            pool.begin_narrow(goal);
            assert_eq!(pool.window(), expected, "with a goal of {goal} ns");
            pool.set_window(1_000_000);
            assert_eq!(pool.window(), expected, "somebody has that still");
            // The first time it grows fast, until somebody is late.
            look(901..=1100, goal, true);
            assert!(pool.is_wide_open());
            // Another one with that goal finds it as it is.
            pool.begin_narrow(goal);
            assert!(pool.is_wide_open());
        }
    }
}
