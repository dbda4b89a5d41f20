//! What counting for the analytics takes of a processor for a request: once where it is answered, and once at a disk.

use super::scheduler::each;
use forebay_probe::Histogram;
use forebay_target::{Asked, Operation, Watched};

const VOLUME: u64 = 1 << 40;

/// A client's read of 8 KiB, at another place and with another latency each time.
pub fn client(count: u64) -> f64 {
    let watched = Watched::default();
    let mut nth = 0u64;
    each(count, |now| {
        nth = nth.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let asked = Asked { operation: Operation::Read, at: nth >> 24, bytes: 8192, since: now };
        watched.answered(&asked, VOLUME, now.after(std::time::Duration::from_nanos(nth >> 44)), true);
    })
}

/// A disk's request.
pub fn disk(count: u64) -> f64 {
    let mut latencies = Histogram::default();
    let mut nth = 0u64;
    each(count, |_| {
        nth = nth.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        latencies.record(std::hint::black_box(nth >> 44));
    })
}
