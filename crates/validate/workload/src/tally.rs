//! What came of a workload's requests.

use crate::Request;
use forebay_base::Nanos;
use forebay_probe::Histogram;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// Requests of one kind, or all, that were answered while it was measured.
#[derive(Clone, Debug, Default)]
pub struct Times {
    requests: u64,
    bytes: u64,
    /// Nanoseconds of all of them.
    took: u128,
    latencies: Histogram,
}

impl Times {
    fn add(&mut self, took: u64, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.took += u128::from(took);
        self.latencies.record(took);
    }

    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.took / u128::from(self.requests.max(1))) as u64)
    }

    /// What so many thousandths took at most, too long by an eighth at most.
    pub fn quantile(&self, permille: u64) -> Duration {
        Duration::from_nanos(self.latencies.quantile(permille))
    }
}

/// What came of a workload.
#[derive(Clone, Debug)]
pub struct Tally {
    from: Nanos,
    to: Nanos,
    pub all: Times,
    pub reads: Times,
    pub writes: Times,
    /// Requests by second.
    seconds: Vec<u64>,
    failed: u64,
    /// Requests that wait for their answers, since when, and that number times nanoseconds until then.
    waiting: u64,
    since: Nanos,
    waited: u128,
}

impl Tally {
    /// Of what is answered from one moment to another.
    pub fn new(from: Nanos, to: Nanos) -> Tally {
        let seconds = vec![0; to.since(from).div_ceil(SECOND) as usize];
        let (all, reads, writes) = Default::default();
        Tally { from, to, all, reads, writes, seconds, failed: 0, waiting: 0, since: from, waited: 0 }
    }

    /// How many wait changes now.
    fn pass(&mut self, now: Nanos) {
        let now = Nanos(now.0.clamp(self.from.0, self.to.0));
        self.waited += u128::from(self.waiting) * u128::from(now.since(self.since));
        self.since = now;
    }

    /// A request waits for its answer from now on.
    pub fn asked(&mut self, now: Nanos) {
        self.pass(now);
        self.waiting += 1;
    }

    /// One waits no longer.
    pub fn over(&mut self, now: Nanos) {
        self.pass(now);
        self.waiting -= 1;
    }

    /// A request was asked at one moment and answered at another.
    pub fn answered(&mut self, asked: Nanos, now: Nanos, request: &Request) {
        if now.0 < self.from.0 || now.0 >= self.to.0 {
            return;
        }
        let took = now.since(asked);
        let kind = if request.is_write { &mut self.writes } else { &mut self.reads };
        kind.add(took, request.bytes);
        self.all.add(took, request.bytes);
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
        self.all.requests as f64 / self.duration()
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.all.bytes as f64 / self.duration()
    }

    /// Requests of the second with the fewest.
    pub fn least(&self) -> u64 {
        self.seconds.iter().copied().min().unwrap_or(0)
    }

    /// Requests that waited for their answers, on average over the time.
    pub fn outstanding(&self) -> f64 {
        self.waited as f64 / SECOND as f64 / self.duration()
    }
}
