//! Leaves in memory: which there are, which make room for others, and how much of memory is theirs.
//!
//! Leaves and blocks have the same memory. A leaf leads to 508 blocks and takes no more than two, so where blocks are asked for at random,
//! leaves spare more reads; after a scan they spare none. So it is looked what more memory would have spared: a leaf that is read again
//! soon after it went is a reason to give leaves more, a block that is read again is one to give them less. Rates of both, weighed
//! by how much memory each looks ahead, come to a balance where a byte is worth as much here as there.

use crate::cache::Doorkeeper;
use crate::shard::Shard;
use forebay_base::NumberHasher;
use forebay_tree::LEAF_MEMORY;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasherDefault;

/// However little memory there is.
const LEAVES_MIN: usize = 16;
/// Leaves that a call looks at, to let others go.
const LOOKS_MAX: usize = 64;
/// What a block that is read again takes of the leaves' share: doorkeepers remember some eight times as much memory of blocks as of leaves.
const BLOCK_STEP: u64 = LEAF_MEMORY as u64 / 8;

/// Leaves in memory, in the order in which they came: the clock that evicts them.
pub(crate) struct LeafClock {
    queue: VecDeque<(u64, u64)>,
    members: HashSet<(u64, u64), BuildHasherDefault<NumberHasher>>,
    /// Leaves that came, the last ones: as many as there ever could be in memory.
    known: Doorkeeper,
    /// Bytes that leaves may take, within these bounds.
    share: u64,
    least: u64,
    most: u64,
    /// Of these, what is told to the cache of blocks.
    taken: u64,
}

impl LeafClock {
    /// For a shard with so many bytes of memory.
    pub fn new(memory: u64) -> LeafClock {
        let (least, most) = (LeafClock::least_of(memory), memory / 8 * 5);
        LeafClock {
            queue: VecDeque::new(),
            members: HashSet::default(),
            known: Doorkeeper::new(most / LEAF_MEMORY as u64),
            share: least,
            least,
            most,
            taken: least,
        }
    }

    /// Bytes that no blocks get.
    pub fn least_of(memory: u64) -> u64 {
        memory / 4
    }

    /// Bytes of the blocks' memory that leaves have.
    pub fn borrowed(&self) -> u64 {
        self.taken - self.least
    }

    /// Two datasets have exchanged their trees.
    pub fn exchange(&mut self, one: u64, other: u64) {
        for (number, _) in &mut self.queue {
            *number = if *number == one {
                other
            } else if *number == other {
                one
            } else {
                *number
            };
        }
        self.members = self.queue.iter().copied().collect();
    }

    /// A leaf is in memory. Whether that is new.
    fn note(&mut self, number: u64, leaf: u64) -> bool {
        let is_new = self.members.insert((number, leaf));
        if is_new {
            self.queue.push_back((number, leaf));
            if self.known.knows(number << 40 ^ leaf) {
                self.share = (self.share + LEAF_MEMORY as u64).min(self.most);
            }
        }
        is_new
    }

    /// Whether there are more than may be.
    fn is_over(&self) -> bool {
        self.queue.len() > LEAVES_MIN && (self.queue.len() * LEAF_MEMORY) as u64 > self.share
    }
}

impl Shard {
    /// Takes note that a leaf is in memory, and evicts others when there are too many.
    pub fn leaf_loaded(&self, number: u64, leaf: u64) {
        let trim = {
            let mut clock = self.leaves.borrow_mut();
            // Leaves that were dirty may go by now.
            clock.note(number, leaf) || clock.is_over()
        };
        if trim {
            self.trim_leaves();
        }
    }

    /// A block was read again that more memory for blocks might have kept.
    pub fn block_missed(&self) {
        let is_over = {
            let mut clock = self.leaves.borrow_mut();
            clock.share = clock.share.saturating_sub(BLOCK_STEP).max(clock.least);
            clock.is_over()
        };
        if is_over {
            self.trim_leaves();
        }
    }

    /// Evicts leaves while there are too many. Two looks for each at most: dirty ones and those in use stay.
    fn trim_leaves(&self) {
        let mut clock = self.leaves.borrow_mut();
        let mut looks = LOOKS_MAX.min(2 * clock.queue.len());
        while clock.is_over() && looks > 0 {
            looks -= 1;
            let (number, leaf) = clock.queue.pop_front().expect("more than the least");
            let dataset = self.datasets.borrow().get(&number).cloned();
            let stays = dataset.is_some_and(|dataset| {
                let mut tree = dataset.tree.borrow_mut();
                tree.is_loaded(leaf) && !tree.evict(leaf)
            });
            if stays {
                clock.queue.push_back((number, leaf));
            } else {
                clock.members.remove(&(number, leaf));
            }
        }
        // In steps, as the cache looks through all it has.
        let step = (clock.most / 64).max(1);
        let taken = ((clock.queue.len() * LEAF_MEMORY) as u64).clamp(clock.least, clock.most) / step * step;
        let taken = taken.max(clock.least);
        if clock.taken != taken {
            clock.taken = taken;
            drop(clock);
            self.size_cache();
        }
    }

    /// Gives the cache of blocks what nobody else has of its memory.
    pub fn size_cache(&self) {
        let others = self.leaves.borrow().borrowed() + self.flash.index_bytes();
        self.cache.borrow_mut().set_capacity(self.cache_bytes.saturating_sub(others).max(1));
    }
}
