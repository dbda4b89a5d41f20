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
    /// Nanoseconds of all of them, and of the one that took longest.
    took: u128,
    longest: u64,
    latencies: Histogram,
}

impl Times {
    fn add(&mut self, took: u64, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.took += u128::from(took);
        self.longest = self.longest.max(took);
        self.latencies.record(took);
    }

    fn merge(&mut self, other: &Times) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.took += other.took;
        self.longest = self.longest.max(other.longest);
        self.latencies.add(&other.latencies);
    }

    pub fn requests(&self) -> u64 {
        self.requests
    }

    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.took / u128::from(self.requests.max(1))) as u64)
    }

    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// What so many thousandths took at most, too long by an eighth at most.
    pub fn quantile(&self, permille: u64) -> Duration {
        Duration::from_nanos(self.latencies.quantile(permille))
    }
}

/// One second of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Second {
    pub requests: u64,
    /// Nanoseconds of all of them, and of the one that took longest.
    pub took: u64,
    pub longest: u64,
}

/// What came of a workload.
#[derive(Clone, Debug)]
pub struct Tally {
    from: Nanos,
    to: Nanos,
    /// Nanoseconds that were measured: of several runs, when they have been put together.
    measured: u64,
    pub all: Times,
    pub reads: Times,
    pub writes: Times,
    /// Orders, where several requests make one.
    pub orders: Times,
    seconds: Vec<Second>,
    failed: u64,
    /// Requests that a cache in the client answered.
    hits: u64,
    /// Requests that wait for their answers, since when, and that number times nanoseconds until then.
    waiting: u64,
    since: Nanos,
    waited: u128,
}

impl Tally {
    /// Of what is answered from one moment to another.
    pub fn new(from: Nanos, to: Nanos) -> Tally {
        let measured = to.since(from);
        let seconds = vec![Second::default(); measured.div_ceil(SECOND) as usize];
        let (all, reads, writes, orders) = Default::default();
        let (failed, hits, waiting, waited) = (0, 0, 0, 0);
        Tally {
            from,
            to,
            measured,
            all,
            reads,
            writes,
            orders,
            seconds,
            failed,
            hits,
            waiting,
            since: from,
            waited,
        }
    }

    /// Adds what came of the same workload in another run.
    pub fn merge(&mut self, other: &Tally) {
        self.measured += other.measured;
        self.all.merge(&other.all);
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.orders.merge(&other.orders);
        self.seconds.extend(&other.seconds);
        self.failed += other.failed;
        self.hits += other.hits;
        self.waited += other.waited;
    }

    /// How many wait changes now.
    fn pass(&mut self, now: Nanos) {
        let now = Nanos(now.0.clamp(self.from.0, self.to.0));
        self.waited += u128::from(self.waiting) * u128::from(now.since(self.since));
        self.since = now;
    }

    fn is_measured(&self, now: Nanos) -> bool {
        (self.from.0..self.to.0).contains(&now.0)
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
        if !self.is_measured(now) {
            return;
        }
        let took = now.since(asked);
        let kind = if request.is_write { &mut self.writes } else { &mut self.reads };
        kind.add(took, request.bytes);
        self.all.add(took, request.bytes);
        let second = &mut self.seconds[(now.since(self.from) / SECOND) as usize];
        second.requests += 1;
        second.took += took;
        second.longest = second.longest.max(took);
    }

    /// An order was begun at one moment and done at another.
    pub fn ordered(&mut self, begun: Nanos, now: Nanos) {
        if self.is_measured(now) {
            self.orders.add(now.since(begun), 0);
        }
    }

    /// A cache in the client had what was asked for.
    pub fn hit(&mut self, now: Nanos) {
        self.hits += u64::from(self.is_measured(now));
    }

    /// A request was answered with an error.
    pub fn failed(&mut self) {
        self.failed += 1;
    }

    pub fn failures(&self) -> u64 {
        self.failed
    }

    /// Seconds that were measured.
    pub fn duration(&self) -> f64 {
        self.measured as f64 / SECOND as f64
    }

    /// Requests a second.
    pub fn iops(&self) -> f64 {
        self.all.requests as f64 / self.duration()
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.all.bytes as f64 / self.duration()
    }

    pub fn orders_per_second(&self) -> f64 {
        self.orders.requests as f64 / self.duration()
    }

    /// Requests a second that a cache in the client answered.
    pub fn hits_per_second(&self) -> f64 {
        self.hits as f64 / self.duration()
    }

    /// Requests of the second with the fewest.
    pub fn least(&self) -> u64 {
        self.seconds.iter().map(|second| second.requests).min().unwrap_or(0)
    }

    pub fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    /// Requests that waited for their answers, on average over the time.
    pub fn outstanding(&self) -> f64 {
        self.waited as f64 / SECOND as f64 / self.duration()
    }
}
