//! Service levels: what a flow is promised, and what it may take at most.

use forebay_base::MIB;
use std::time::Duration;

/// How much it matters. It says what share a flow has of what nobody was promised, and whose promise is kept first when not all can be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Class {
    NonCritical,
    #[default]
    BusinessCritical,
    MissionCritical,
}

impl Class {
    pub fn weight(self) -> u64 {
        match self {
            Class::NonCritical => 1,
            Class::BusinessCritical => 4,
            Class::MissionCritical => 16,
        }
    }
}

/// Requests and bytes in a second; 0 where there is no bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rate {
    pub iops: u64,
    pub bytes: u64,
}

impl Rate {
    /// Of requests of `bytes` each, how many these are in a second; nothing when they are not bounded.
    pub fn requests(&self, bytes: u32) -> Option<f64> {
        let by_bytes = (self.bytes > 0).then(|| self.bytes as f64 / f64::from(bytes.max(1)));
        let by_count = (self.iops > 0).then_some(self.iops as f64);
        match (by_count, by_bytes) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    pub class: Class,
    /// What it gets whenever it asks for so much: as many requests, or bytes, whichever is reached first.
    pub floor: Rate,
    /// What 99 of 100 requests should take at most.
    pub latency: Option<Duration>,
    /// What it gets at most, of both.
    pub ceiling: Rate,
    /// For how long of its ceiling a flow may make up, after it asked for less.
    pub burst: Duration,
}

impl Level {
    /// Those that every pool has, the most demanding first.
    pub const BUILT_IN: [(&'static str, Level); 5] = [
        ("mission-critical", Level::promised(Class::MissionCritical, 75_000, 750, 10)),
        ("business-critical-1", Level::promised(Class::BusinessCritical, 30_000, 375, 20)),
        ("business-critical-2", Level::promised(Class::BusinessCritical, 15_000, 150, 40)),
        ("non-critical-1", Level::promised(Class::NonCritical, 7500, 75, 100)),
        ("non-critical-2", Level::promised(Class::NonCritical, 1500, 37, 250)),
    ];

    const fn promised(class: Class, iops: u64, mib: u64, latency_ms: u64) -> Level {
        Level {
            class,
            floor: Rate { iops, bytes: mib * MIB },
            latency: Some(Duration::from_millis(latency_ms)),
            ceiling: Rate { iops: 0, bytes: 0 },
            burst: Duration::ZERO,
        }
    }
}
