//! Leaves in memory, and the nodes above them: which there are, which make room for others, and how much of memory is theirs.
//!
//! Leaves and blocks have the same memory. A leaf leads to 508 blocks and takes no more than two, so where blocks are asked for at random,
//! leaves spare more reads; after a scan they spare none. So it is looked what more memory would have spared: a leaf that is read again
//! soon after it went is a reason to give leaves more, a block that is read again is one to give them less. Rates of both, weighed
//! by how much memory each looks ahead, come to a balance where a byte is worth as much here as there.

use crate::cache::Doorkeeper;
use crate::shard::Shard;
use forebay_base::NumberHasher;
use forebay_base::planted::table_shape;
use forebay_tree::{INNER_MEMORY, LEAF_MEMORY};
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasherDefault;

/// However little memory there is.
const LEAVES_MIN: usize = 16;
/// Leaves that a call looks at, to let others go.
const LOOKS_MAX: usize = 64;
/// What a block that is read again takes of the leaves' share: doorkeepers remember some eight times as much memory of blocks as of leaves.
const BLOCK_STEP: u64 = LEAF_MEMORY as u64 / 8;

/// A node: of which dataset, its level, and its index there.
type Place = (u64, u8, u64);

/// Leaves in memory and the nodes above them, in the order in which they came: the clock that evicts them.
pub(crate) struct LeafClock {
    queue: VecDeque<Place>,
    members: HashSet<Place, BuildHasherDefault<NumberHasher>>,
    /// How many of them are no leaves.
    inner: usize,
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
            inner: 0,
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
        for (number, ..) in &mut self.queue {
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

    /// A node is in memory. Whether that is new.
    fn note(&mut self, place: Place) -> bool {
        let is_new = self.members.insert(place);
        if is_new {
            self.queue.push_back(place);
            let (number, level, index) = place;
            if level > 0 {
                self.inner += 1;
            } else if self.known.knows(number << 40 ^ index) {
                self.share = (self.share + LEAF_MEMORY as u64).min(self.most);
            }
        }
        is_new
    }

    /// A node is in memory no longer.
    fn forget(&mut self, place: Place) {
        self.members.remove(&place);
        self.inner -= usize::from(place.1 > 0);
    }

    fn bytes(&self) -> u64 {
        ((self.queue.len() - self.inner) * LEAF_MEMORY + self.inner * INNER_MEMORY) as u64
    }

    /// Whether there are more than may be.
    fn is_over(&self) -> bool {
        match table_shape() {
            Some(shape) => self.queue.len() > shape.nodes,
            None => self.queue.len() > LEAVES_MIN && self.bytes() > self.share,
        }
    }
}

impl Shard {
    /// Takes note that a leaf is in memory, and evicts others when there are too many.
    pub fn leaf_loaded(&self, number: u64, leaf: u64) {
        self.node_loaded(number, 0, leaf);
    }

    /// The same of any node.
    pub fn node_loaded(&self, number: u64, level: u8, index: u64) {
        let trim = {
            let mut clock = self.leaves.borrow_mut();
            // Leaves that were dirty may go by now.
            clock.note((number, level, index)) || clock.is_over()
        };
        if trim {
            self.trim_leaves(Some((number, level, index)));
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
            self.trim_leaves(None);
        }
    }

    /// Evicts nodes while there are too many. Two looks for each at most: dirty ones and those in use stay, and the newest, which somebody waits for.
    fn trim_leaves(&self, newest: Option<Place>) {
        let mut clock = self.leaves.borrow_mut();
        let mut looks = LOOKS_MAX.min(2 * clock.queue.len());
        while clock.is_over() && looks > 0 {
            looks -= 1;
            let place @ (number, level, index) = clock.queue.pop_front().expect("more than the least");
            let dataset = self.datasets.borrow().get(&number).cloned();
            let stays = dataset.is_some_and(|dataset| {
                let mut tree = dataset.tree.borrow_mut();
                tree.is_loaded(level, index) && (newest == Some(place) || !tree.evict(level, index))
            });
            if stays {
                clock.queue.push_back(place);
            } else {
                clock.forget(place);
            }
        }
        // In steps, as the cache looks through all it has.
        let step = (clock.most / 64).max(1);
        let taken = clock.bytes().clamp(clock.least, clock.most) / step * step;
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
