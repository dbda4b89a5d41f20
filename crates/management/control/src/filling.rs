//! How pools fill: thresholds that raise events, and when a pool will be full at this rate.
//!
//! A threshold is crossed once, upwards, and can be crossed again when the pool has been [`HYSTERESIS_PERMILLE`] below it: a pool at the brink
//! does not fill the event log. The forecast is the median of the slopes between samples of what is used (Theil and Sen): a backup
//! that is written and deleted again moves it little. Samples are thinned as they grow in number, so a pool that runs for months has as many as one that
//! runs for a day, only further apart. They are kept in memory: after a restart it takes [`FORECAST_AFTER_SECONDS`] until there is a forecast again.

use crate::events::EventLog;
use forebay_api::{Severity, show_size};
use forebay_pool::PoolStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// In percent, unless something else is said.
pub const THRESHOLDS: [u8; 2] = [80, 90];
/// More would be noise.
pub const THRESHOLDS_MAX: usize = 8;
const HYSTERESIS_PERMILLE: u64 = 20;
/// Samples of one pool; when there are as many, every other one goes. All pairs are 18 000 slopes.
const SAMPLES_MAX: usize = 192;
/// The first samples are so far apart.
const SAMPLE_SECONDS: u64 = 60;
/// What was seen for less time than this foretells nothing.
const FORECAST_AFTER_SECONDS: u64 = 3600;
/// Ten years: further ahead, a forecast means nothing.
const DAYS_MAX: u64 = 3653;
const DAY_SECONDS: u64 = 24 * 3600;

/// What was seen of one pool.
#[derive(Default)]
struct Trend {
    /// Seconds, and bytes that were used then.
    samples: Vec<(u64, u64)>,
    /// Seconds from one sample to the next.
    apart: u64,
    /// Thresholds that are crossed, in percent.
    crossed: BTreeSet<u8>,
}

/// What was seen of all pools, by UUID.
#[derive(Default)]
pub struct Filling {
    pools: Mutex<BTreeMap<String, Trend>>,
}

impl Trend {
    /// Takes note of what is used now.
    fn sample(&mut self, seconds: u64, used: u64) {
        self.apart = self.apart.max(SAMPLE_SECONDS);
        if self.samples.last().is_some_and(|(last, _)| seconds < last + self.apart) {
            return;
        }
        if self.samples.len() >= SAMPLES_MAX {
            let mut nth = 0;
            self.samples.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.apart *= 2;
        }
        self.samples.push((seconds, used));
    }

    /// Days until so many bytes more are used; nothing when that is not to be foreseen.
    fn days_until(&self, more: u64) -> Option<u64> {
        let (first, last) = (self.samples.first()?.0, self.samples.last()?.0);
        if last - first < FORECAST_AFTER_SECONDS {
            return None;
        }
        let mut slopes = Vec::with_capacity(self.samples.len() * self.samples.len() / 2);
        for (nth, (from, before)) in self.samples.iter().enumerate() {
            for (to, after) in &self.samples[nth + 1..] {
                slopes.push((*after as f64 - *before as f64) / (to - from) as f64);
            }
        }
        let middle = slopes.len() / 2;
        let (_, slope, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
        let days = more as f64 / *slope / DAY_SECONDS as f64;
        (*slope > 0.0 && days <= DAYS_MAX as f64).then_some(days as u64)
    }

    /// Which thresholds are crossed upwards now, and which no longer.
    fn cross(&mut self, permille: u64, thresholds: &[u8]) -> (Vec<u8>, Vec<u8>) {
        self.crossed.retain(|threshold| thresholds.contains(threshold));
        let mut up = Vec::new();
        for threshold in thresholds {
            if permille >= u64::from(*threshold) * 10 && self.crossed.insert(*threshold) {
                up.push(*threshold);
            }
        }
        let is_below = |threshold: &u8| permille + HYSTERESIS_PERMILLE < u64::from(*threshold) * 10;
        let down: Vec<u8> = self.crossed.iter().copied().filter(is_below).collect();
        self.crossed.retain(|threshold| !down.contains(threshold));
        (up, down)
    }
}

/// What part of a pool is used or held for reserved volumes, in thousandths: for writes to thin volumes the pool is full when that is all.
pub fn taken_permille(pool: &PoolStatus) -> u64 {
    let taken = u128::from(pool.used) + u128::from(pool.reserved);
    (taken * 1000).checked_div(u128::from(pool.size)).unwrap_or(0).min(1000) as u64
}

impl Filling {
    /// Takes note of a pool at a time in seconds, and tells of thresholds that it has crossed.
    pub fn watch(&self, events: &EventLog, pool: &PoolStatus, thresholds: &[u8], seconds: u64) {
        let (permille, name) = (taken_permille(pool), &pool.name);
        let (up, down) = {
            let mut pools = self.pools.lock().expect("no holder of this lock panics");
            let trend = pools.entry(pool.id.to_string()).or_default();
            trend.sample(seconds, pool.used);
            trend.cross(permille, thresholds)
        };
        let free = show_size(pool.free.saturating_sub(pool.reserved));
        let state = match pool.reserved {
            0 => format!("{} % used, {free} free", permille / 10),
            _ => format!("{} % used or reserved, {free} free", permille / 10),
        };
        if let Some(highest) = up.last() {
            let is_last = thresholds.last() == Some(highest);
            let severity = if is_last { Severity::Error } else { Severity::Warning };
            let message = format!("the threshold of {highest} % is reached: {state}");
            events.record(severity, "pool.filling", name, &message);
        }
        if let Some(lowest) = down.first() {
            let message = format!("usage is below the threshold of {lowest} % again: {state}");
            events.record(Severity::Info, "pool.space_recovered", name, &message);
        }
    }

    /// Forgets pools that are not there any more.
    pub fn keep(&self, pools: &[PoolStatus]) {
        let is_there = |id: &String| pools.iter().any(|pool| pool.id.to_string() == *id);
        self.pools.lock().expect("no holder of this lock panics").retain(|id, _| is_there(id));
    }

    /// Days until a pool is full, at the rate of late; nothing when that is not to be foreseen.
    pub fn days_until_full(&self, pool: &PoolStatus) -> Option<u64> {
        let pools = self.pools.lock().expect("no holder of this lock panics");
        pools.get(&pool.id.to_string())?.days_until(pool.free.saturating_sub(pool.reserved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_told_of_once_until_the_pool_was_well_below_it() {
        let mut trend = Trend::default();
        let mut crossed = |permille| trend.cross(permille, &[80, 90]);
        assert_eq!(crossed(500), (vec![], vec![]));
        assert_eq!(crossed(800), (vec![80], vec![]));
        assert_eq!(crossed(799), (vec![], vec![]));
        assert_eq!(crossed(801), (vec![], vec![]));
        assert_eq!(crossed(950), (vec![90], vec![]));
        assert_eq!(crossed(880), (vec![], vec![]), "near it");
        assert_eq!(crossed(879), (vec![], vec![90]));
        assert_eq!(crossed(100), (vec![], vec![80]));
        assert_eq!(crossed(1000), (vec![80, 90], vec![]));
        assert_eq!(trend.cross(1000, &[70]), (vec![70], vec![]), "thresholds may change");
    }

    #[test]
    fn the_forecast_follows_the_trend_and_not_a_backup() {
        let mut trend = Trend::default();
        let gib = 1 << 30;
        // A GiB a day for 30 days, seen every minute; on one day 500 GiB come and go.
        for minute in 0..30 * 24 * 60 {
            let backup = if (10 * 1440..11 * 1440).contains(&minute) { 500 * gib } else { 0 };
            trend.sample(minute * 60, minute * gib / 1440 + backup);
        }
        assert!(trend.samples.len() <= SAMPLES_MAX, "{}", trend.samples.len());
        let days = trend.days_until(100 * gib).expect("it grows");
        assert!((95..=101).contains(&days), "{days}");
        assert_eq!(trend.days_until(u64::MAX), None, "too far away");
    }

    #[test]
    fn nothing_is_foretold_of_a_pool_that_does_not_grow_or_is_hardly_known() {
        let mut trend = Trend::default();
        assert_eq!(trend.days_until(1), None);
        trend.sample(0, 5);
        trend.sample(60, 500);
        assert_eq!(trend.days_until(1000), None, "a minute is no trend");
        let mut still = Trend::default();
        (0..100).for_each(|minute| still.sample(minute * 60, 5000 - minute));
        assert_eq!(still.days_until(1000), None);
    }
}
