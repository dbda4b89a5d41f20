//! Which blocks of a volume have changed: what a move has yet to copy.
//!
//! One bit for each block, or for each run of 2, 4, 8 … blocks of a large volume, so that the memory has a bound.

use std::ops::Range;

/// 16 MiB of bits: each block of a volume of 512 GiB with blocks of 4 KiB.
const REGIONS_MAX: u64 = 128 << 20;

pub(crate) struct Changes {
    blocks: u64,
    /// log2 of the blocks of a region.
    shift: u32,
    words: Vec<u64>,
    marked: u64,
}

impl Changes {
    pub fn new(blocks: u64) -> Changes {
        Changes::with(blocks, REGIONS_MAX)
    }

    fn with(blocks: u64, regions_max: u64) -> Changes {
        let shift = (0..).find(|shift| blocks >> shift <= regions_max).expect("a shift of 64 would do");
        let regions = (blocks >> shift) + 1;
        Changes { blocks, shift, words: vec![0; regions.div_ceil(64) as usize], marked: 0 }
    }

    fn is_marked(&self, region: u64) -> bool {
        self.words[(region / 64) as usize] & (1 << (region % 64)) != 0
    }

    /// Blocks in regions that are marked, at most.
    pub fn left(&self) -> u64 {
        self.marked << self.shift
    }

    /// The blocks `first..end` have changed.
    pub fn mark(&mut self, first: u64, end: u64) {
        let end = end.min(self.blocks);
        if first >= end {
            return;
        }
        for region in first >> self.shift..=(end - 1) >> self.shift {
            if !self.is_marked(region) {
                self.words[(region / 64) as usize] |= 1 << (region % 64);
                self.marked += 1;
            }
        }
    }

    /// The first run of changed blocks from `from` on, some `blocks_max` at most; they are marked no longer.
    pub fn take(&mut self, from: u64, blocks_max: u64) -> Option<Range<u64>> {
        let from = from.div_ceil(1 << self.shift);
        let mut word = (from / 64) as usize;
        let mut bits = self.words.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        let first = word as u64 * 64 + u64::from(bits.trailing_zeros());
        let (mut end, regions) = (first, self.words.len() as u64 * 64);
        while end < regions && self.is_marked(end) && (end == first || end - first < blocks_max >> self.shift)
        {
            self.words[(end / 64) as usize] &= !(1 << (end % 64));
            self.marked -= 1;
            end += 1;
        }
        Some(first << self.shift..(end << self.shift).min(self.blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Random;
    use std::collections::BTreeSet;

    #[test]
    fn all_that_is_marked_is_taken_once() {
        let mut random = Random::new(1);
        for (blocks, max) in [(1, 10), (256, 1000), (1000, 1000), (1001, 1000), (5000, 100), (64, 64)] {
            let mut changes = Changes::with(blocks, max);
            let mut marked = BTreeSet::new();
            for _ in 0..20 {
                let first = random.below(blocks);
                let end = first + random.below(blocks / 10 + 3);
                changes.mark(first, end);
                marked.extend(first..end.min(blocks));
            }
            let (mut taken, mut at) = (BTreeSet::new(), 0);
            while let Some(run) = changes.take(at, 1 + random.below(blocks)) {
                assert!(run.start >= at && !run.is_empty() && run.end <= blocks);
                at = run.end;
                taken.extend(run);
            }
            assert!(taken.is_superset(&marked) && (taken == marked || blocks > max));
            assert_eq!((changes.left(), changes.take(0, 1)), (0, None));
        }
    }
}
