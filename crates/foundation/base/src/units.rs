//! Sizes and times.

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const TIB: u64 = 1 << 40;

/// Nanoseconds on a monotonic clock that starts at an arbitrary point. Comparable within one process only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    pub fn after(self, duration: std::time::Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Milliseconds since 1970-01-01 UTC, for people: labels, events. Never used to order or to expire anything.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WallTime(pub u64);
