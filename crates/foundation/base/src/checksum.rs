//! The 128-bit content checksum of everything the engine stores: XXH3-128 (xxHash specification 0.1.1).
//!
//! It detects accidents (rot, torn, lost and misdirected writes), not adversaries; the pointer format keeps
//! room for a wider, cryptographic form.

use std::fmt;

/// XXH3-128 of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Checksum(pub u128);

impl Checksum {
    /// Checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Checksum {
        Checksum(xxhash_rust::xxh3::xxh3_128(bytes))
    }

    /// Checksum of `bytes` as if the 16 bytes at `at` were zero: for structures that carry their own checksum.
    ///
    /// Panics when `at + 16` lies outside `bytes`: the position is a constant of the caller's format.
    pub fn of_with_hole(bytes: &[u8], at: usize) -> Checksum {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        hasher.update(&bytes[..at]);
        hasher.update(&[0; 16]);
        hasher.update(&bytes[at + 16..]);
        Checksum(hasher.digest128())
    }
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
