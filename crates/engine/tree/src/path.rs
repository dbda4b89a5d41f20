//! Single nodes: where those above a block are stored, how many there are above several, how they come to be elsewhere, and which
//! leaves stay in memory.

use crate::delta::Delta;
use crate::node::FANOUT;
use crate::pointers::Pointers;
use crate::tree::{Child, DELTA_MEMORY, NODE_MEMORY, Tree};
use forebay_space::Ptr;
use std::ops::Range;
use std::rc::Rc;

/// What memory has of a leaf.
pub enum LeafState<'a> {
    Hole,
    Loaded(&'a Pointers),
    /// On disk, perhaps with changes in memory that are not merged with it.
    Stored {
        home: Ptr,
        changed: bool,
    },
}

impl Tree {
    /// The stored nodes on the way from the root to a leaf, as far as there are any.
    pub fn path(&self, leaf: u64) -> Vec<Ptr> {
        let (mut homes, mut child, mut level) = (Vec::new(), &self.root, u32::from(self.height));
        loop {
            let home = match child {
                Child::Hole => break,
                Child::Cold { home, .. } => *home,
                Child::Leaf(leaf) => leaf.home,
                Child::Inner(inner) => inner.home,
            };
            if !home.is_hole() {
                homes.push(home);
            }
            let Child::Inner(inner) = child else { break };
            level -= 1;
            child = &inner.children[(leaf / FANOUT.pow(level) % FANOUT) as usize];
        }
        homes
    }

    /// Where node `index` of `level` is stored, and whether all below it is stored as it is. The tree may be higher than `level`,
    /// not lower.
    pub fn stored_at(&self, level: u8, index: u64) -> (Ptr, bool) {
        let (mut child, mut at) = (&self.root, self.height);
        while at > level {
            let Child::Inner(inner) = child else { break };
            at -= 1;
            let slot = index / FANOUT.pow(u32::from(at - level)) % FANOUT;
            child = &inner.children[slot as usize];
        }
        match child {
            Child::Hole => (Ptr::HOLE, true),
            Child::Cold { home, delta } => (*home, delta.is_none()),
            Child::Leaf(leaf) => (leaf.home, leaf.stamp == 0),
            Child::Inner(inner) => (inner.home, inner.stamp == 0),
        }
    }

    /// What there is of a leaf.
    pub fn leaf_state(&self, leaf: u64) -> LeafState<'_> {
        match self.leaf(leaf).unwrap_or(&Child::Hole) {
            Child::Hole => LeafState::Hole,
            Child::Leaf(node) => LeafState::Loaded(&node.ptrs),
            Child::Cold { home, delta } => LeafState::Stored { home: *home, changed: delta.is_some() },
            Child::Inner(_) => unreachable!("leaves are at level 0"),
        }
    }

    /// Drops a leaf from memory if it equals its home and was not looked at since the last call. True when it went.
    pub fn evict(&mut self, leaf: u64) -> bool {
        let Some(Child::Leaf(node)) = self.leaf(leaf) else { return false };
        if node.stamp != 0 || node.touched.replace(false) {
            return false;
        }
        let home = node.home;
        *self.place(0, leaf).expect("the leaf is there") = Child::Cold { home, delta: None };
        true
    }

    /// Whether a leaf is in memory.
    pub fn is_loaded(&self, leaf: u64) -> bool {
        matches!(self.leaf(leaf), Some(Child::Leaf(_)))
    }

    /// Has the next checkpoint write a leaf and the nodes above it once more, elsewhere, as they are.
    pub fn rewrite(&mut self, leaf: u64) {
        let period = self.period;
        let (mut child, mut at) = (&mut self.root, self.height);
        while at > 0 {
            let Child::Inner(inner) = child else { return };
            let inner = Rc::make_mut(inner);
            if inner.stamp != period {
                inner.stamp = period;
                self.dirty += 1;
            }
            at -= 1;
            child = &mut inner.children[(leaf / FANOUT.pow(u32::from(at)) % FANOUT) as usize];
        }
        let (stamp, memory) = match child {
            Child::Leaf(node) => (&mut Rc::make_mut(node).stamp, NODE_MEMORY),
            Child::Cold { delta, .. } => {
                let fresh = || Rc::new(Delta { since: period, ..Delta::default() });
                (&mut Rc::make_mut(delta.get_or_insert_with(fresh)).stamp, DELTA_MEMORY)
            }
            Child::Hole | Child::Inner(_) => return,
        };
        if *stamp != period {
            *stamp = period;
            self.dirty += 1;
            self.dirty_bytes += memory;
        }
    }
}

/// Interior levels that a volume of `blocks` blocks needs.
pub fn height_for(blocks: u64) -> u8 {
    let (mut height, mut reach) = (0, FANOUT);
    while reach < blocks {
        reach = reach.saturating_mul(FANOUT);
        height += 1;
    }
    height
}

/// Nodes of a tree of this height that are above runs of blocks, leaves included. The runs come in order.
pub fn nodes_over(height: u8, runs: impl IntoIterator<Item = Range<u64>> + Clone) -> u64 {
    let on_level = |level: u8| {
        let span = FANOUT.saturating_pow(u32::from(level) + 1);
        // The first node that is not counted yet.
        let (mut nodes, mut next) = (0, 0);
        for run in runs.clone() {
            let (first, end) = (next.max(run.start / span), run.end.div_ceil(span));
            nodes += end.saturating_sub(first);
            next = next.max(end);
        }
        nodes
    };
    (0..=height).map(on_level).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped::Mapped;
    use crate::node::NODE_BYTES;
    use crate::tree::Found;
    use forebay_base::Checksum;
    use forebay_space::{Addr, ChunkId};

    #[test]
    fn heights() {
        assert_eq!([1, 508, 509, 258_064, 258_065].map(height_for), [0, 0, 1, 1, 2]);
        assert_eq!(height_for((64 << 40) / 4096), 3);
    }

    #[test]
    fn nodes_above_several_runs_count_once() {
        let block = |leaf: u64| leaf * FANOUT..leaf * FANOUT + 1;
        assert_eq!(nodes_over(0, [block(0)]), 1);
        assert_eq!(nodes_over(2, [block(7)]), 3);
        assert_eq!(nodes_over(1, [0..1, 5..9, 100..FANOUT]), 2, "one leaf and the root");
        assert_eq!(nodes_over(1, [0..FANOUT + 1, FANOUT + 5..FANOUT + 6]), 3, "two leaves and the root");
        assert_eq!(nodes_over(2, [block(0), block(1), block(FANOUT)]), 3 + 2 + 1);
        assert_eq!(nodes_over(1, std::iter::empty()), 0);
    }

    /// Goal: an interior node that could not be loaded hides nothing: whoever looks for a block below it is led to it, and what is
    /// changed there is known.
    #[test]
    fn what_is_below_a_lost_node_is_not_a_hole() {
        let lost = Ptr::new(Addr::new(ChunkId(1), 4), NODE_BYTES as u32, 1, Checksum(7));
        let below = Ptr::new(Addr::new(ChunkId(2), 8), 8192, 1, Checksum(8));
        let mut tree = Tree::stored(lost, 2, Mapped { blocks: 5, units: 10 });
        let led = |block: u64| Found::Unloaded { leaf: block / FANOUT, home: lost };
        let far = 300 * FANOUT + 9;
        assert_eq!((tree.lookup(0), tree.lookup(far)), (led(0), led(far)));
        assert_eq!((tree.next_leaf(0), tree.next_leaf(7)), (Some(0), Some(7)));
        let mut freed = Vec::new();
        tree.set(far, &[below], &mut freed);
        assert_eq!(
            (tree.lookup(far), tree.lookup(far + 1), tree.lookup(0)),
            (Found::At(below), led(far + 1), led(0))
        );
        tree.clear(far, 1, &mut freed);
        assert_eq!((tree.lookup(far), tree.lookup(far + 1)), (Found::Hole, led(far + 1)));
        assert_eq!(freed, [below], "what was there before is not known");
    }
}
