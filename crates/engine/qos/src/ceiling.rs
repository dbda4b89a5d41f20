//! A bound on what a flow takes, or several flows together, on one shard or on all.
//!
//! For requests and for bytes it keeps the time at which all that was taken has been paid for at that rate (the generic cell rate algorithm,
//! ITU-T I.371). Who asks may be ahead of it by the burst, and else is told when to come: its place is taken, so nobody has to ask twice. The times are
//! atomic numbers, so that flows of several cores can share them. Where each flow asks for one request at a time, they share it evenly.

use crate::cost::Work;
use crate::level::Rate;
use forebay_base::Nanos;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Anybody may be ahead so far: requests come in batches.
const BURST_MIN: Duration = Duration::from_millis(10);

/// Nanoseconds of each request and picoseconds of each byte; 0 where there is no bound.
#[derive(Debug)]
pub struct Ceiling {
    request_ns: u64,
    byte_ps: u64,
    burst_ns: u64,
    requests_paid: AtomicU64,
    bytes_paid: AtomicU64,
}

fn of_bytes(byte_ps: u64, bytes: u32) -> u64 {
    byte_ps.saturating_mul(bytes.into()) / 1000
}

impl Ceiling {
    pub fn new(rate: Rate, burst: Duration) -> Ceiling {
        let (request_ns, byte_ps) = rate.each();
        Ceiling {
            request_ns,
            byte_ps,
            burst_ns: burst.max(BURST_MIN).as_nanos() as u64,
            requests_paid: AtomicU64::new(0),
            bytes_paid: AtomicU64::new(0),
        }
    }

    /// A request for which it was taken does not come.
    pub fn give_back(&self, work: Work) {
        for (paid, cost) in
            [(&self.requests_paid, self.request_ns), (&self.bytes_paid, of_bytes(self.byte_ps, work.bytes))]
        {
            let earlier = |paid: u64| Some(paid.saturating_sub(cost));
            paid.fetch_update(Relaxed, Relaxed, earlier).expect("there is always an earlier");
        }
    }

    /// Takes what a request needs, and says when it may begin. Its size does not matter: those that come later pay for it.
    pub fn take(&self, now: Nanos, work: Work) -> Nanos {
        let pay = |paid: &AtomicU64, cost: u64| match cost {
            0 => 0,
            _ => {
                let later = |paid: u64| Some(paid.max(now.0).saturating_add(cost));
                let before = paid.fetch_update(Relaxed, Relaxed, later).expect("there is always a next");
                before.saturating_sub(self.burst_ns)
            }
        };
        let requests = pay(&self.requests_paid, self.request_ns);
        let bytes = pay(&self.bytes_paid, of_bytes(self.byte_ps, work.bytes));
        Nanos(requests.max(bytes).max(now.0))
    }
}
