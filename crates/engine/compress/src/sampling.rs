//! Giving up early on data that does not get smaller.

use std::cell::Cell;

/// Blocks in a row that were not worth it, after which only samples are tried.
const MISSES: u32 = 4;
/// One block of so many is a sample.
const SAMPLE: u32 = 8;

/// Whether the next block of a volume is worth trying: after some in a row that were not, only one in eight is, until one
/// gets smaller.
#[derive(Default, Debug)]
pub struct Sampling {
    /// And, once there are enough of them, blocks passed over since.
    misses: Cell<u32>,
}

impl Sampling {
    pub fn tries(&self) -> bool {
        let passed = self.misses.get();
        if passed < MISSES {
            return true;
        }
        self.misses.set(if passed == MISSES + SAMPLE - 1 { MISSES } else { passed + 1 });
        passed == MISSES + SAMPLE - 1
    }

    /// Takes note of what trying gave.
    pub fn tried(&self, is_smaller: bool) {
        let misses = self.misses.get();
        self.misses.set(if is_smaller { 0 } else { misses.max(MISSES.min(misses + 1)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_eight_is_tried_when_nothing_gets_smaller() {
        let sampling = Sampling::default();
        let tried = |count: usize, is_smaller: bool| {
            let tries = (0..count).filter(|_| sampling.tries().then(|| sampling.tried(is_smaller)).is_some());
            tries.count()
        };
        assert_eq!(tried(800 + 4, false), 4 + 100);
        assert!(tried(8, true) >= 1);
        assert_eq!(tried(100, true), 100, "one that got smaller, and all are tried again");
    }
}
