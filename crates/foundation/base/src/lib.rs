//! Foundation of the foundation: identifiers, time, checksums, little-endian codecs and seeded random numbers.
//!
//! Nothing here performs I/O, reads a clock or allocates behind the caller's back. Every other crate may
//! depend on this one; it depends on no other crate of the project.

pub mod checksum;
pub mod codec;
mod hash;
pub mod id;
pub mod panics;
pub mod planted;
pub mod random;
pub mod units;

pub use checksum::Checksum;
pub use hash::NumberHasher;
pub use id::Id;
pub use random::Random;
pub use units::{GIB, KIB, MIB, Nanos, TIB, WallTime};
