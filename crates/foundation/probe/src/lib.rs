//! The write side of analytics: what is counted where it happens, at a cost that nobody notices. No I/O, no locks.

mod histogram;

pub use histogram::{BUCKETS, Histogram, bounds, bucket_of};
