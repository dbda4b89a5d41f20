//! Block ranges of one dataset that are being changed.
//!
//! A writer holds its blocks from before it reads what it will merge with until its record is queued; a discard
//! until it is applied. Ranges that overlap take turns in order of arrival. There are at most a few hundred at a
//! time (protocols bound what is in flight), so a list that is scanned beats a tree.

use crate::signal::Turnstile;
use std::cell::{Cell, RefCell};

#[derive(Default)]
pub(crate) struct RangeLocks {
    /// Held and waiting, in order of arrival: id, first, last.
    ranges: RefCell<Vec<(u64, u64, u64)>>,
    next: Cell<u64>,
    turnstile: Turnstile,
}

/// A held range.
pub(crate) struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    id: u64,
}

impl RangeLocks {
    /// Waits until no earlier overlapping range is left, and holds `first..=last`.
    pub async fn lock(&self, first: u64, last: u64) -> RangeGuard<'_> {
        let id = self.next.get();
        self.next.set(id + 1);
        self.ranges.borrow_mut().push((id, first, last));
        let guard = RangeGuard { locks: self, id };
        let free = || {
            let ranges = self.ranges.borrow();
            let me = ranges.iter().position(|range| range.0 == id).expect("listed until the guard drops");
            !ranges[..me]
                .iter()
                .any(|&(_, other_first, other_last)| first <= other_last && other_first <= last)
        };
        self.turnstile.until(free).await;
        guard
    }

    /// Whether nobody holds or waits for anything.
    pub fn is_free(&self) -> bool {
        self.ranges.borrow().is_empty()
    }

    /// Holds `first..=last` if nobody holds or waits for any of it.
    pub fn try_lock(&self, first: u64, last: u64) -> Option<RangeGuard<'_>> {
        let overlaps =
            |&(_, other_first, other_last): &(u64, u64, u64)| first <= other_last && other_first <= last;
        if self.ranges.borrow().iter().any(overlaps) {
            return None;
        }
        let id = self.next.get();
        self.next.set(id + 1);
        self.ranges.borrow_mut().push((id, first, last));
        Some(RangeGuard { locks: self, id })
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.locks.ranges.borrow_mut().retain(|range| range.0 != self.id);
        self.locks.turnstile.changed();
    }
}
