//! When to look at the completion queue for a while before sleeping.
//!
//! Going to sleep and being woken costs a context switch each way, more than a fast device needs to answer;
//! looking costs this core's time, which others may need. So the executor looks only while its recent waits
//! were shorter than what it may look for, and tries again now and then.

use std::cell::Cell;
use std::time::Duration;

/// How long to look at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollLimit(pub Duration);

pub(super) struct Polling {
    limit: Duration,
    /// Moving average of the recent waits.
    average: Cell<Duration>,
}

impl Polling {
    pub(super) fn new(limit: PollLimit) -> Polling {
        Polling { limit: limit.0, average: Cell::new(Duration::ZERO) }
    }

    /// For how long to look before sleeping, if at all.
    pub(super) fn budget(&self) -> Option<Duration> {
        let average = self.average.get();
        (!self.limit.is_zero() && average <= self.limit).then(|| (average * 2).min(self.limit))
    }

    /// Takes note of a wait.
    pub(super) fn waited(&self, duration: Duration) {
        // A long idle time counts as four limits, so that a few short waits bring the looking back.
        let duration = duration.min(self.limit * 4);
        self.average.set((self.average.get() * 7 + duration) / 8);
    }
}
