//! A bound on what a flow takes, or several flows together, on one shard or on all.
//!
//! For requests and for bytes it keeps the time at which all that was taken has been paid for at that rate (the generic cell rate algorithm,
//! ITU-T I.371). Who asks may be ahead of it by the burst. The times are atomic numbers, so that flows of several cores can share them; each adds what it
//! takes after it looked, and so together they may be ahead by one request each, which the next ones wait for.

use crate::cost::Work;
use crate::level::Rate;
use forebay_base::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Anybody may be ahead so far: requests come in batches.
const BURST_MIN: Duration = Duration::from_millis(10);
const SECOND_PS: u64 = 1_000_000_000_000;

/// Nanoseconds of each request and picoseconds of each byte; 0 where there is no bound.
#[derive(Debug)]
pub struct Ceiling {
    request_ns: AtomicU64,
    byte_ps: AtomicU64,
    burst_ns: AtomicU64,
    requests_paid: AtomicU64,
    bytes_paid: AtomicU64,
}

fn of_bytes(byte_ps: u64, bytes: u32) -> u64 {
    byte_ps.saturating_mul(bytes.into()) / 1000
}

impl Ceiling {
    pub fn new(rate: Rate, burst: Duration) -> Ceiling {
        let zero = || AtomicU64::new(0);
        let ceiling = Ceiling {
            request_ns: zero(),
            byte_ps: zero(),
            burst_ns: zero(),
            requests_paid: zero(),
            bytes_paid: zero(),
        };
        ceiling.set(rate, burst);
        ceiling
    }

    /// Another rate, from now on.
    pub fn set(&self, rate: Rate, burst: Duration) {
        let each = |whole: u64, rate: u64| whole.checked_div(rate).map_or(0, |each| each.max(1));
        self.request_ns.store(each(SECOND_PS / 1000, rate.iops), Relaxed);
        self.byte_ps.store(each(SECOND_PS, rate.bytes), Relaxed);
        self.burst_ns.store(burst.max(BURST_MIN).as_nanos() as u64, Relaxed);
    }

    /// When something may begin. Its size does not matter: it is paid for afterwards.
    pub fn opens(&self, now: Nanos) -> Nanos {
        let burst = self.burst_ns.load(Relaxed);
        // A slower rate from before is not made up for longer than the burst.
        let opens = |paid: &AtomicU64, each: &AtomicU64| match each.load(Relaxed) {
            0 => 0,
            _ => paid.load(Relaxed).saturating_sub(burst),
        };
        let of_both =
            opens(&self.requests_paid, &self.request_ns).max(opens(&self.bytes_paid, &self.byte_ps));
        Nanos(of_both.max(now.0))
    }

    pub fn take(&self, now: Nanos, work: Work) {
        let pay = |paid: &AtomicU64, cost: u64| {
            if cost > 0 {
                let later = |paid: u64| Some(paid.max(now.0).saturating_add(cost));
                paid.fetch_update(Relaxed, Relaxed, later).expect("there is always a next");
            }
        };
        pay(&self.requests_paid, self.request_ns.load(Relaxed));
        pay(&self.bytes_paid, of_bytes(self.byte_ps.load(Relaxed), work.bytes));
    }
}
