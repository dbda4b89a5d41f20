//! What clients ask of a volume: descriptions that people write (TOML), requests made of them with a seed, and what came of them.
//!
//! A workload asks in a *closed loop*: so many requests are outstanding, and each answer brings the next one, at once or after a time to think; several requests
//! one after the other can make an *order*, with the time to think after it. A workload with a
//! rate takes its requests from a schedule instead, as many a second, evenly or as chance has it; rates can change with time (*phases*). Who is
//! behind catches up with what may be outstanding, and gives up what is a second late. Or it asks again what was asked of a volume once ([`trace`]), as late as then.

mod contents;
mod drive;
pub mod fio;
mod host;
mod link;
mod requests;
mod tally;
pub mod trace;
mod zipf;

pub use contents::{Contents, contents};
pub use drive::{Remote, Store, Target, drive};
pub use link::{Costs, Link};
pub use requests::{Request, Requests};
pub use tally::{Second, Tally, Times};
pub use trace::{Recorded, Trace};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A workload's phases, at most.
const PHASES_MAX: usize = 64;
/// Streams of a workload, at most.
const STREAMS_MAX: u32 = 4096;
const RATE_MAX: u64 = 10_000_000;

/// Where requests go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Anywhere, evenly.
    #[default]
    Random,
    /// Anywhere, some places far more often than others: the n-th most popular one as often as n to the power of -theta says.
    Zipfian,
    /// One after the other from the beginning, and again.
    Sequential,
    /// Each stream writes its part from end to end, reads it back, and again: `read-percent` says nothing.
    Sort,
}

/// When the requests of a rate are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    #[default]
    Even,
    /// Each independently of the others (Poisson).
    Chance,
}

/// What one client asks of its volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    /// Bytes of a request in KiB.
    pub block_kib: u64,
    /// Of a hundred requests.
    pub read_percent: u8,
    pub access: Access,
    /// How much more popular popular places are, where access is zipfian: 0.01 to 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theta: Option<f64>,
    /// Of the volume, in GiB.
    pub size_gib: u64,
    /// The part of it that is asked for, from its beginning; without it all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub footprint_gib: Option<u64>,
    /// Requests that wait for their answers at the same time, at most.
    pub outstanding: u32,
    /// Sequences side by side, each in a part of its own, with `outstanding` shared evenly.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub streams: u32,
    /// Requests a second; without it as many as are answered.
    pub rate: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub arrivals: Arrivals,
    /// Rates that follow each other from when the load begins, instead of `rate`; the last one stays.
    #[serde(default, rename = "phase", skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Milliseconds between an answer and the next request, or between orders.
    #[serde(default)]
    pub think_ms: u64,
    /// Requests, one after the other, that make an order.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub requests_per_order: u32,
    /// A part of the volume that is asked for more often than the rest.
    pub hot: Option<Hot>,
    /// A read cache of flash in the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_cache: Option<HostCache>,
    /// What the volume is filled with, and what is written.
    #[serde(default, skip_serializing_if = "is_default")]
    pub contents: Contents,
    /// What was asked of a volume once is asked again, instead of what the rest says; the path of its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
}

fn one() -> u32 {
    1
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The first part of a volume, and how many of a hundred requests go there; each part is gone through as `access` says. What a cache is meant to hold, and how
/// often it is meant to be hit, are said with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Hot {
    pub percent: u8,
    pub size_gib: u64,
}

/// So many seconds at so many requests a second; 0 is a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Phase {
    pub seconds: u64,
    pub rate: u64,
    /// Instead of the workload's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_percent: Option<u8>,
}

/// Of a cache in a client: its size, what a read from it takes when it is alone, and how many it gives a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HostCache {
    pub size_gib: u64,
    pub read_us: u64,
    pub iops: u64,
}

impl Default for Workload {
    /// One reader of 8 KiB somewhere in 1 GiB.
    fn default() -> Workload {
        Workload {
            name: "workload".into(),
            block_kib: 8,
            read_percent: 100,
            access: Access::Random,
            theta: None,
            size_gib: 1,
            footprint_gib: None,
            outstanding: 1,
            streams: 1,
            rate: None,
            arrivals: Arrivals::Even,
            phases: Vec::new(),
            think_ms: 0,
            requests_per_order: 1,
            hot: None,
            host_cache: None,
            contents: Contents::Zeros,
            trace: None,
        }
    }
}

impl Workload {
    pub fn block_bytes(&self) -> u64 {
        self.block_kib << 10
    }

    pub fn think(&self) -> Duration {
        Duration::from_millis(self.think_ms)
    }

    /// Whether its requests wait for answers only, and for no schedule.
    pub fn is_closed(&self) -> bool {
        self.rate.is_none() && self.phases.is_empty() && self.trace.is_none()
    }

    fn has_streams(&self) -> bool {
        self.streams > 1 || self.access == Access::Sort
    }

    /// Nanoseconds after its beginning: the rate that is asked at, how many of a hundred are reads, and when that changes.
    pub(crate) fn phase(&self, since: u64) -> (u64, u8, Option<u64>) {
        let mut ends = 0;
        for (nth, phase) in self.phases.iter().enumerate() {
            ends += phase.seconds * 1_000_000_000;
            let is_last = nth + 1 == self.phases.len();
            if since < ends || is_last {
                let reads = phase.read_percent.unwrap_or(self.read_percent);
                return (phase.rate, reads, Some(ends).filter(|_| !is_last));
            }
        }
        (self.rate.unwrap_or(0), self.read_percent, None)
    }

    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        let Workload { name, block_kib, read_percent, size_gib, outstanding, streams, .. } = self;
        let most_kib = 32 << 10;
        let (is_zipfian, in_sequence) =
            (self.access == Access::Zipfian, matches!(self.access, Access::Sequential | Access::Sort));
        let percents = self.phases.iter().filter_map(|phase| phase.read_percent).chain([*read_percent]);
        let wrong = if !(4..=most_kib).contains(block_kib) || block_kib % 4 != 0 {
            format!("block-kib is {block_kib}: give a multiple of 4, at most {most_kib}")
        } else if let Some(wrong) = percents.into_iter().find(|percent| *percent > 100) {
            format!("read-percent is {wrong}: give 0 to 100")
        } else if !(1..=64 << 10).contains(size_gib) {
            format!("size-gib is {size_gib}: give 1 to {}", 64 << 10)
        } else if self.footprint_gib.is_some_and(|part| !(1..=*size_gib).contains(&part)) {
            format!("footprint-gib: give 1 to size-gib, which is {size_gib}")
        } else if !(1..=4096).contains(outstanding) {
            format!("outstanding is {outstanding}: give 1 to 4096")
        } else if !(1..=STREAMS_MAX).contains(streams) || outstanding % streams.max(&1) != 0 {
            format!("streams is {streams}: give a divisor of outstanding, which is {outstanding}")
        } else if *streams > 1 && !in_sequence {
            "streams: only sequential access and sorts have several".into()
        } else if is_zipfian != self.theta.is_some() {
            "theta: give it with zipfian access, and only there".into()
        } else if self.theta.is_some_and(|theta| !(0.01..=3.0).contains(&theta)) {
            "theta: give 0.01 to 3".into()
        } else if name.is_empty()
            || name.len() > 64
            || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        {
            "name: use at most 64 letters, digits and -_.".into()
        } else if self.think_ms > 60_000 {
            format!("think-ms is {}: give at most 60000", self.think_ms)
        } else if !(1..=10_000).contains(&self.requests_per_order) {
            format!("requests-per-order is {}: give 1 to 10000", self.requests_per_order)
        } else if self.hot.is_some_and(|hot| !(1..=100).contains(&hot.percent)) {
            "percent of hot: give 1 to 100".into()
        } else if self.hot.is_some_and(|hot| !(1..*size_gib).contains(&hot.size_gib)) {
            format!("size-gib of hot: give less than the workload's size-gib, which is {size_gib}")
        } else if self.hot.is_some() && (is_zipfian || self.has_streams() || self.footprint_gib.is_some()) {
            "hot: do not give it with zipfian access, several streams, sorts or a footprint".into()
        } else if self.rate.is_some_and(|rate| !(1..=RATE_MAX).contains(&rate)) {
            "rate: give 1 to 10 000 000 IOPS".into()
        } else if self.rate.is_some() && !self.phases.is_empty() {
            "rate: give a rate or phases, not both".into()
        } else if self.phases.len() > PHASES_MAX
            || self.phases.iter().any(|phase| !(1..=86_400).contains(&phase.seconds) || phase.rate > RATE_MAX)
        {
            format!("phase: give at most {PHASES_MAX}, of 1 to 86400 seconds, with at most 10 000 000 IOPS")
        } else if self.arrivals == Arrivals::Chance && self.is_closed() {
            "arrivals: a closed loop has none; give a rate or phases".into()
        } else if self.requests_per_order > 1 && !self.is_closed() {
            "requests-per-order: only a closed loop has orders; give neither a rate nor phases".into()
        } else if self.trace.is_some()
            && (self.rate.is_some() || !self.phases.is_empty() || self.host_cache.is_some())
        {
            "trace: a trace has its own times and was recorded behind any cache; give neither a rate, phases nor host-cache"
                .into()
        } else if self.host_cache.is_some_and(|cache| {
            cache.size_gib == 0
                || cache.size_gib > *size_gib
                || !(1..=1_000_000).contains(&cache.read_us)
                || !(1..=RATE_MAX).contains(&cache.iops)
        }) {
            format!(
                "host-cache: give a size-gib of 1 to {size_gib}, a read-us of 1 to 1000000 and 1 to 10000000 iops"
            )
        } else {
            return None;
        };
        Some(format!("workload '{name}': {wrong}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other_and_the_last_one_stays() {
        let phase = |seconds, rate, read_percent| Phase { seconds, rate, read_percent };
        let phases = vec![phase(10, 100, Some(90)), phase(5, 0, None), phase(1, 7, None)];
        let workload = Workload { phases, read_percent: 30, ..Workload::default() };
        assert_eq!(workload.problem(), None);
        let at = |seconds: u64| workload.phase(seconds * 1_000_000_000);
        let nanos = |seconds: u64| Some(seconds * 1_000_000_000);
        assert_eq!(at(0), (100, 90, nanos(10)));
        assert_eq!(at(9), (100, 90, nanos(10)));
        assert_eq!(at(10), (0, 30, nanos(15)));
        assert_eq!([at(15), at(1000)], [(7, 30, None), (7, 30, None)]);
        assert_eq!(Workload { rate: Some(5), ..Workload::default() }.phase(1), (5, 100, None));
    }

    #[test]
    fn what_says_nothing_together_is_refused() {
        let good = Workload::default;
        let cache = |size_gib| Some(HostCache { size_gib, read_us: 50, iops: 1000 });
        let phase = Phase { seconds: 1, rate: 1, read_percent: None };
        let trace = Some(Trace::from("x".to_string()));
        let cases = [
            (Workload { streams: 2, outstanding: 2, ..good() }, "streams: only"),
            (Workload { access: Access::Sort, streams: 2, outstanding: 3, ..good() }, "a divisor"),
            (Workload { access: Access::Sort, streams: 0, ..good() }, "a divisor"),
            (Workload { access: Access::Zipfian, ..good() }, "theta"),
            (Workload { theta: Some(0.9), ..good() }, "theta"),
            (Workload { access: Access::Zipfian, theta: Some(f64::NAN), ..good() }, "0.01 to 3"),
            (Workload { footprint_gib: Some(2), ..good() }, "footprint-gib"),
            (Workload { arrivals: Arrivals::Chance, ..good() }, "arrivals"),
            (Workload { rate: Some(1), phases: vec![phase], ..good() }, "not both"),
            (Workload { phases: vec![phase; 65], ..good() }, "at most 64"),
            (Workload { rate: Some(1), requests_per_order: 2, ..good() }, "requests-per-order"),
            (Workload { host_cache: cache(2), ..good() }, "host-cache"),
            (Workload { trace, rate: Some(1), ..good() }, "trace"),
        ];
        assert_eq!(good().problem(), None);
        for (workload, message) in cases {
            let problem = workload.problem().expect(message);
            assert!(problem.contains(message), "{problem}, not {message}");
        }
    }
}
