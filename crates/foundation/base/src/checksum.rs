//! The 128-bit content checksum of everything the engine stores: XXH3-128 (xxHash specification 0.1.1).
//!
//! It detects accidents (rot, torn, lost and misdirected writes), not adversaries; the pointer format keeps
//! room for a wider, cryptographic form. The library picks AVX2 at run time: 8 KiB cost half of what a build for
//! plain x86-64 costs.

use std::fmt;
use twox_hash::{XxHash3_64, XxHash3_128};

/// XXH3-128 of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Checksum(pub u128);

impl Checksum {
    /// Checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Checksum {
        Checksum(XxHash3_128::oneshot(bytes))
    }

    /// Checksum of `bytes` as if the 16 bytes at `at` were zero: for structures that carry their own checksum.
    ///
    /// Panics when `at + 16` lies outside `bytes`: the position is a constant of the caller's format.
    pub fn of_with_hole(bytes: &[u8], at: usize) -> Checksum {
        let mut hasher = XxHash3_128::new();
        hasher.write(&bytes[..at]);
        hasher.write(&[0; 16]);
        hasher.write(&bytes[at + 16..]);
        Checksum(hasher.finish_128())
    }
}

/// XXH3-64 of `bytes`: a second look, at what a checksum has led to.
pub fn hash_64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hole_is_read_as_zero() {
        let mut bytes: Vec<u8> = (0..=255).collect();
        let with_hole = Checksum::of_with_hole(&bytes, 32);
        bytes[32..48].fill(0);
        assert_eq!(with_hole, Checksum::of(&bytes));
    }

    #[test]
    fn published_vector_of_the_empty_input() {
        assert_eq!(Checksum::of(b"").0, 0x99aa06d3014798d86001c324468d497f);
    }
}
