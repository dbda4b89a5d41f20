//! Leaves in memory: which there are, and which make room for others.

use crate::shard::Shard;
use forebay_base::NumberHasher;
use forebay_tree::LEAF_MEMORY;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasherDefault;

/// Leaves in memory, in the order in which they came: the clock that evicts them.
#[derive(Default)]
pub(crate) struct LeafClock {
    queue: VecDeque<(u32, u64)>,
    members: HashSet<(u32, u64), BuildHasherDefault<NumberHasher>>,
}

impl LeafClock {
    /// Two datasets have exchanged their trees.
    pub fn exchange(&mut self, one: u32, other: u32) {
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
}

impl Shard {
    /// Takes note that a leaf is in memory, and evicts others when there are too many.
    pub fn leaf_loaded(&self, number: u32, leaf: u64) {
        let mut clock = self.leaves.borrow_mut();
        if clock.members.insert((number, leaf)) {
            clock.queue.push_back((number, leaf));
        }
        let limit = (self.shared.memory_per_shard / 4 / LEAF_MEMORY as u64).max(16) as usize;
        // Two looks per leaf at most: dirty ones and those in use stay.
        let mut looks = if clock.queue.len() > limit { 2 * clock.queue.len() - limit } else { 0 }.min(64);
        while clock.queue.len() > limit && looks > 0 {
            looks -= 1;
            let (number, leaf) = clock.queue.pop_front().expect("longer than the limit");
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
    }
}
