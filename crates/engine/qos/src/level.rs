//! Service levels: what a flow is promised, and what it may take at most.

use std::fmt;
use std::time::Duration;

/// How much it matters: what share a flow has of what nobody was promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    /// Nanoseconds that each request takes, and picoseconds that each byte does; 0 where there is no bound.
    pub(crate) fn each(&self) -> (u64, u64) {
        let each = |whole: u64, rate: u64| whole.checked_div(rate).map_or(0, |each| each.max(1));
        (each(1_000_000_000, self.iops), each(1_000_000_000_000, self.bytes))
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

impl fmt::Display for Level {
    /// What it promises, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.floor.iops > 0 {
            parts.push(format!("{} IOPS", self.floor.iops));
        }
        if self.floor.bytes > 0 {
            parts.push(format!("{:.1} MB/s", self.floor.bytes as f64 / 1e6));
        }
        // Whichever is reached first.
        let rates = parts.join(" or ");
        match self.latency {
            Some(latency) if rates.is_empty() => {
                write!(f, "answers within {} ms", latency.as_secs_f64() * 1e3)
            }
            Some(latency) => write!(f, "{rates} within {} ms", latency.as_secs_f64() * 1e3),
            None if rates.is_empty() => f.write_str("nothing"),
            None => f.write_str(&rates),
        }
    }
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

    const fn promised(class: Class, iops: u64, mb: u64, latency_ms: u64) -> Level {
        Level {
            class,
            floor: Rate { iops, bytes: mb * 1_000_000 },
            latency: Some(Duration::from_millis(latency_ms)),
            ceiling: Rate { iops: 0, bytes: 0 },
            burst: Duration::ZERO,
        }
    }
}
