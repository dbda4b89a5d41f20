//! What came of a workload's requests.

use forebay_base::Nanos;
use forebay_probe::Histogram;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// Requests that were answered while it was measured.
#[derive(Clone, Debug)]
pub struct Tally {
    from: Nanos,
    to: Nanos,
    requests: u64,
    bytes: u64,
    /// Nanoseconds of all of them.
    took: u128,
    latencies: Histogram,
    /// By second.
    seconds: Vec<u64>,
    failed: u64,
}

impl Tally {
    /// Of what is answered from one moment to another.
    pub fn new(from: Nanos, to: Nanos) -> Tally {
        let seconds = vec![0; to.since(from).div_ceil(SECOND) as usize];
        Tally {
            from,
            to,
            requests: 0,
            bytes: 0,
            took: 0,
            latencies: Histogram::default(),
            seconds,
            failed: 0,
        }
    }

    /// A request was asked at one moment and answered at another.
    pub fn answered(&mut self, asked: Nanos, now: Nanos, bytes: u64) {
        if now.0 < self.from.0 || now.0 >= self.to.0 {
            return;
        }
        let took = now.since(asked);
        self.requests += 1;
        self.bytes += bytes;
        self.took += u128::from(took);
        self.latencies.record(took);
        self.seconds[(now.since(self.from) / SECOND) as usize] += 1;
    }

    /// A request was answered with an error.
    pub fn failed(&mut self) {
        self.failed += 1;
    }

    pub fn failures(&self) -> u64 {
        self.failed
    }

    fn duration(&self) -> f64 {
        self.to.since(self.from) as f64 / SECOND as f64
    }

    /// Requests a second.
    pub fn iops(&self) -> f64 {
        self.requests as f64 / self.duration()
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.duration()
    }

    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.took / u128::from(self.requests.max(1))) as u64)
    }

    /// What so many thousandths took at most, too long by an eighth at most.
    pub fn quantile(&self, permille: u64) -> Duration {
        Duration::from_nanos(self.latencies.quantile(permille))
    }

    /// Requests of the second with the fewest.
    pub fn least(&self) -> u64 {
        self.seconds.iter().copied().min().unwrap_or(0)
    }

    /// Requests that waited for an answer at the same time, on average, by Little's law.
    pub fn outstanding(&self) -> f64 {
        self.took as f64 / SECOND as f64 / self.duration()
    }
}
