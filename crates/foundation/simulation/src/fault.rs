//! Faults of the running disk: what a device may do instead of what it was asked.
//!
//! A [`Rule`] says which operations it meets (disk, kind, byte range), when (after how many, how often, with
//! which probability) and what happens then. Rules are asked in the order in which they were added; the first
//! that fires decides. Faults that need no operation to happen (rot, a device that goes away, one that comes
//! back stale, a clock that jumps) are methods of [`crate::World`]; power loss is made from a recording
//! ([`crate::record`]).

use forebay_base::Random;
use forebay_runtime::DiskErrorKind;
use std::ops::Range;

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    Read,
    Write,
    Flush,
    Discard,
}

/// What the device does instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Fails; the operation leaves no trace.
    Fail(DiskErrorKind),
    /// Does it, and reports a failure.
    FailAfter(DiskErrorKind),
    /// Acknowledges a write that it never does.
    Lose,
    /// Does a write at another place; `None` draws one at random.
    Misdirect(Option<u64>),
    /// Acknowledges a write of which it does the first so many sectors only.
    Tear(usize),
    /// Flips one bit of what a write stores; the number counts bits from its start, modulo its length.
    Flip(u64),
    /// Acknowledges a flush that does nothing.
    Lie,
    /// Takes so many times longer.
    Slow(u32),
    /// Holds the operation until [`crate::World::release`].
    Hang,
    /// Vanishes: this operation and all later ones fail until [`crate::World::set_gone`] says otherwise.
    Vanish,
}

/// When which disk does what.
#[derive(Clone, Debug)]
pub struct Rule {
    disk: usize,
    action: Action,
    kind: Option<OpKind>,
    range: Option<Range<u64>>,
    skip: u64,
    times: u64,
    one_in: u64,
    /// How often it fired.
    pub fired: u64,
}

impl Rule {
    /// Every operation of `disk` meets `action`, until the rule is narrowed.
    pub fn new(disk: usize, action: Action) -> Rule {
        Rule { disk, action, kind: None, range: None, skip: 0, times: u64::MAX, one_in: 1, fired: 0 }
    }
    /// Only operations of this kind.
    pub fn on(mut self, kind: OpKind) -> Rule {
        self.kind = Some(kind);
        self
    }
    /// Only operations that touch these bytes.
    pub fn within(mut self, range: Range<u64>) -> Rule {
        self.range = Some(range);
        self
    }
    /// Not the first `n` of them.
    pub fn after(mut self, n: u64) -> Rule {
        self.skip = n;
        self
    }
    /// At most `n` times.
    pub fn times(mut self, n: u64) -> Rule {
        self.times = n;
        self
    }
    /// With probability 1/`n` each.
    pub fn one_in(mut self, n: u64) -> Rule {
        self.one_in = n;
        self
    }

    /// The action, when this rule meets the operation and it is its turn.
    pub(crate) fn fires(
        &mut self,
        disk: usize,
        kind: OpKind,
        bytes: &Range<u64>,
        random: &mut Random,
    ) -> Option<Action> {
        let meets = self.disk == disk
            && self.kind.is_none_or(|k| k == kind)
            && self.range.as_ref().is_none_or(|range| range.start < bytes.end && bytes.start < range.end);
        if !meets || self.times == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.one_in > 1 && !random.one_in(self.one_in) {
            return None;
        }
        self.times -= 1;
        self.fired += 1;
        Some(self.action)
    }
}
