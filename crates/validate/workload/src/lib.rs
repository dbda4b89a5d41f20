//! What clients ask of a volume: descriptions that people write (TOML), requests made of them with a seed, and what came of them.
//!
//! A workload asks in a *closed loop*: so many requests are outstanding, and each answer brings the next one, at once or after a time to think. A workload with a
//! rate takes its requests from a schedule instead, as many a second, evenly; who is
//! behind it catches up with what may be outstanding, and gives up what is a second late.

mod drive;
mod link;
mod requests;
mod tally;

pub use drive::drive;
pub use link::Link;
pub use tally::Tally;

use requests::{Request, Requests};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Where requests go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Anywhere, evenly.
    Random,
    /// One after the other from the beginning, and again.
    Sequential,
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
    /// Of the volume, in GiB.
    pub size_gib: u64,
    /// Requests that wait for their answers at the same time, at most.
    pub outstanding: u32,
    /// Requests a second; without it as many as are answered.
    pub rate: Option<u64>,
    /// Milliseconds between an answer and the next request.
    #[serde(default)]
    pub think_ms: u64,
    /// A part of the volume that is asked for more often than the rest.
    pub hot: Option<Hot>,
}

/// The first part of a volume, and how many of a hundred requests go there; each part is gone through as `access` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Hot {
    pub percent: u8,
    pub size_gib: u64,
}

impl Workload {
    pub fn block_bytes(&self) -> u64 {
        self.block_kib << 10
    }

    pub fn think(&self) -> Duration {
        Duration::from_millis(self.think_ms)
    }

    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        let Workload { name, block_kib, read_percent, size_gib, outstanding, .. } = self;
        let wrong = if !(4..=32 << 10).contains(block_kib) || block_kib % 4 != 0 {
            format!("block-kib is {block_kib}: give a multiple of 4, at most {}", 32 << 10)
        } else if *read_percent > 100 {
            format!("read-percent is {read_percent}: give 0 to 100")
        } else if !(1..=64 << 10).contains(size_gib) {
            format!("size-gib is {size_gib}: give 1 to {}", 64 << 10)
        } else if !(1..=4096).contains(outstanding) {
            format!("outstanding is {outstanding}: give 1 to 4096")
        } else if name.is_empty()
            || name.len() > 64
            || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        {
            "name: give up to 64 letters, digits and -_.".into()
        } else if self.think_ms > 60_000 {
            format!("think-ms is {}: give at most 60000", self.think_ms)
        } else if self.hot.is_some_and(|hot| !(1..=100).contains(&hot.percent)) {
            "percent of what is hot: give 1 to 100".into()
        } else if self.hot.is_some_and(|hot| !(1..*size_gib).contains(&hot.size_gib)) {
            format!("size-gib of what is hot: give less than the {size_gib} of all")
        } else if self.rate.is_some_and(|rate| !(1..=10_000_000).contains(&rate)) {
            "rate: give 1 to 10 000 000 requests a second".into()
        } else {
            return None;
        };
        Some(format!("workload '{name}': {wrong}"))
    }
}
