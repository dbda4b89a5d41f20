//! Which frames of the log hold staged blocks, and which blocks: the oldest of them is found at once, however many there are.
//!
//! A block that is staged again leaves the frame that had it before, unless it is the same one.

use forebay_log::Chain;
use std::collections::{BTreeMap, BTreeSet};

/// A staged block: the sequence of the frame that has it, the number of its dataset, and the block.
pub(crate) type StagedAt = (u64, u64, u64);

#[derive(Default)]
pub(crate) struct StagedFrames {
    /// Where each frame starts, and how many of its blocks are still staged.
    frames: BTreeMap<u64, (Chain, usize)>,
    blocks: BTreeSet<StagedAt>,
}

impl StagedFrames {
    /// Adds a block of a frame, which starts there if it is new.
    pub fn insert(&mut self, at: StagedAt, start: Chain) {
        if self.blocks.insert(at) {
            self.frames.entry(at.0).or_insert((start, 0)).1 += 1;
        }
    }

    pub fn remove(&mut self, at: StagedAt) {
        if self.blocks.remove(&at)
            && let Some((_, count)) = self.frames.get_mut(&at.0)
        {
            *count -= 1;
            if *count == 0 {
                self.frames.remove(&at.0);
            }
        }
    }

    /// Where the oldest frame starts: the log's tail cannot pass it.
    pub fn start(&self) -> Option<Chain> {
        self.frames.values().next().map(|(start, _)| *start)
    }

    /// The sequences of the oldest frame and of the newest.
    pub fn oldest(&self) -> Option<u64> {
        self.frames.keys().next().copied()
    }
    pub fn newest(&self) -> Option<u64> {
        self.frames.keys().next_back().copied()
    }

    /// The blocks from one on, those of the oldest frames first.
    pub fn blocks_from(&self, at: StagedAt) -> impl Iterator<Item = StagedAt> {
        self.blocks.range(at..).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_there_as_long_as_one_of_its_blocks() {
        let chain = |position| Chain { position, ..Chain::default() };
        let mut staged = StagedFrames::default();
        staged.insert((3, 1, 9), chain(30));
        staged.insert((3, 1, 9), chain(31));
        staged.insert((3, 0, 9), chain(32));
        staged.insert((7, 0, 2), chain(70));
        let order: Vec<StagedAt> = staged.blocks_from((0, 0, 0)).collect();
        assert_eq!(order, [(3, 0, 9), (3, 1, 9), (7, 0, 2)]);
        staged.remove((3, 1, 9));
        staged.remove((3, 1, 9));
        assert_eq!((staged.oldest(), staged.start().map(|start| start.position)), (Some(3), Some(30)));
        staged.remove((3, 0, 9));
        assert_eq!((staged.oldest(), staged.newest()), (Some(7), Some(7)));
    }
}
