//! How often a channel sends, and how long it waits after a failure: pure functions of time.

use forebay_api::Delivery;
use std::time::Duration;
use tokio::time::Instant;

const BACKOFF_FIRST: Duration = Duration::from_secs(5);
const BACKOFF_MAX: Duration = Duration::from_secs(600);

/// How fast a channel may send: `burst` at once, and then one each `pace`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub burst: u32,
    pub pace: Duration,
}

impl Limits {
    /// People read mail; programs read the rest.
    pub fn of(delivery: &Delivery) -> Limits {
        match delivery {
            Delivery::Mail(_) => Limits { burst: 10, pace: Duration::from_secs(120) },
            Delivery::Webhook(_) => Limits { burst: 30, pace: Duration::from_secs(5) },
            Delivery::Syslog(_) | Delivery::SnmpTrap(_) => {
                Limits { burst: 100, pace: Duration::from_secs(1) }
            }
        }
    }
}

/// Tokens, refilled at a pace.
#[derive(Debug)]
pub struct Bucket {
    pub tokens: u32,
    refilled: Instant,
}

impl Bucket {
    pub fn full(limits: Limits, now: Instant) -> Bucket {
        Bucket { tokens: limits.burst, refilled: now }
    }

    /// When the next token comes.
    pub fn next(&self, limits: Limits) -> Instant {
        self.refilled + limits.pace
    }

    pub fn refill(&mut self, limits: Limits, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled);
        let pace_ms = limits.pace.as_millis().max(1);
        let gained = elapsed.as_millis() / pace_ms;
        if gained >= u128::from(limits.burst) {
            (self.tokens, self.refilled) = (limits.burst, now);
            return;
        }
        // Fewer than a burst, so they fit.
        let gained = gained as u32;
        self.tokens = (self.tokens + gained).min(limits.burst);
        self.refilled += limits.pace * gained;
    }
}

/// How long to wait after so many failures in a row: doubled each time, and between half and all of that, so that appliances that lost the same
/// receiver do not come back together. `random` decides where in between.
pub fn backoff(failures: u32, random: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let full_ms = BACKOFF_FIRST.saturating_mul(1 << doublings).min(BACKOFF_MAX).as_millis() as u64;
    Duration::from_millis(full_ms / 2 + random % (full_ms / 2 + 1))
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): jitter needs to differ, not to be secret.
pub fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
