//! Hashing of numbers in tables that live in memory.

use std::hash::Hasher;

/// Hashes numbers that are distinct already, such as addresses and block numbers: Fibonacci multiplication spreads them. Not
/// for tables without a bound whose keys a stranger chooses: it has no secret.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e3779b97f4a7c15).rotate_left(29);
    }
}
