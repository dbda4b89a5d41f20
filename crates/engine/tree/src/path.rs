//! Single nodes: where those above a block are stored, how many there are above several, how they come to be elsewhere, and which
//! leaves stay in memory.

use crate::delta::Delta;
use crate::node::FANOUT;
use crate::pointers::Pointers;
use crate::tree::{Child, DELTA_MEMORY, INNER_MEMORY, NODE_MEMORY, Tree, Unread, opened};
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
    /// The stored nodes on the way from the root to a leaf, with their levels. One of those may have to be read to know.
    pub fn path(&self, leaf: u64) -> Result<Vec<(u8, Ptr)>, Unread> {
        let mut homes = Vec::new();
        for level in (0..=self.height).rev() {
            let seen = self.seen(level, leaf / FANOUT.pow(u32::from(level)));
            match (seen.child.home(), seen.unread) {
                (Some(home), _) if home.is_hole() => {}
                (Some(home), _) => homes.push((level, home)),
                (None, Some(unread)) => return Err(unread),
                (None, None) => unreachable!("what is below an unread node is known by it"),
            }
        }
        Ok(homes)
    }

    /// Where node `index` of `level` is stored, and whether all below it is stored as it is. The tree may be higher than `level`,
    /// not lower. A node above may have to be read to know.
    pub fn stored_at(&self, level: u8, index: u64) -> Result<(Ptr, bool), Unread> {
        let seen = self.seen(level, index);
        let home = seen.child.home().ok_or_else(|| seen.unread.expect("the node above knows"))?;
        let is_stored = match seen.child {
            Child::Hole | Child::Below(None) => true,
            Child::Cold { delta, .. } => delta.is_none(),
            Child::Below(Some(_)) => false,
            Child::Leaf(leaf) => leaf.stamp == 0,
            Child::Inner(inner) => inner.stamp == 0,
        };
        Ok((home, is_stored))
    }

    /// What there is of a leaf. A node above may have to be read to know.
    pub fn leaf_state(&self, leaf: u64) -> Result<LeafState<'_>, Unread> {
        let seen = self.leaf(leaf);
        Ok(match seen.child {
            Child::Hole => LeafState::Hole,
            Child::Leaf(node) => LeafState::Loaded(&node.ptrs),
            Child::Cold { home, delta } => LeafState::Stored { home: *home, changed: delta.is_some() },
            Child::Below(_) => return Err(seen.unread.expect("the node above knows")),
            Child::Inner(_) => unreachable!("leaves are at level 0"),
        })
    }

    /// Whether a node has not been read since somebody was told that it must be, and is still there.
    pub fn is_unread(&self, node: Unread) -> bool {
        match self.seen(node.level, node.index).child {
            Child::Cold { home, .. } => *home == node.home,
            Child::Inner(inner) => inner.unread && inner.home == Some(node.home),
            Child::Hole | Child::Below(_) | Child::Leaf(_) => false,
        }
    }

    /// Drops what is beside the way to a node from memory, where nothing is changed there: whoever goes through a tree once keeps no more than that.
    pub fn keep_way_to(&mut self, node: Unread) {
        let (mut child, mut at) = (&mut self.root, self.height);
        while at > node.level {
            let Child::Inner(inner) = child else { return };
            at -= 1;
            let own = (node.index / FANOUT.pow(u32::from(at - node.level)) % FANOUT) as usize;
            let children = &mut Rc::make_mut(inner).children;
            for (slot, beside) in children.iter_mut().enumerate() {
                let stored = match beside {
                    Child::Inner(inner) if inner.stamp == 0 && slot != own => inner.home,
                    _ => None,
                };
                if let Some(home) = stored.filter(|home| !home.is_hole()) {
                    *beside = Child::Cold { home, delta: None };
                }
            }
            child = &mut children[own];
        }
    }

    /// Drops a node from memory if it equals its home, a leaf if it was not looked at since the last call, another if nothing below it is in memory. True
    /// when it went.
    pub fn evict(&mut self, level: u8, index: u64) -> bool {
        let home = match self.seen(level, index).child {
            Child::Leaf(node) if node.stamp == 0 && !node.touched.replace(false) => node.home,
            Child::Inner(node) if node.stamp == 0 && node.children.iter().all(Child::is_bare) => {
                match node.home {
                    Some(home) if !home.is_hole() => home,
                    _ => return false,
                }
            }
            _ => return false,
        };
        *self.place(level, index).expect("the node is there") = Child::Cold { home, delta: None };
        true
    }

    /// Whether a node is in memory, in part at least.
    pub fn is_loaded(&self, level: u8, index: u64) -> bool {
        matches!(self.seen(level, index).child, Child::Leaf(_) | Child::Inner(_))
    }

    /// Has the next checkpoint write a leaf and the nodes above it once more, elsewhere, as they are.
    pub fn rewrite(&mut self, leaf: u64) {
        let period = self.period;
        let (mut child, mut at) = (&mut self.root, self.height);
        while at > 0 {
            let Some(inner) = opened(child) else { return };
            if inner.stamp != period {
                inner.stamp = period;
                self.dirty += 1;
                self.dirty_bytes += INNER_MEMORY as u64;
            }
            at -= 1;
            child = &mut inner.children[(leaf / FANOUT.pow(u32::from(at)) % FANOUT) as usize];
        }
        let (stamp, memory) = match child {
            Child::Leaf(node) => (&mut Rc::make_mut(node).stamp, NODE_MEMORY),
            Child::Cold { delta, .. } | Child::Below(delta) => {
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
    use crate::tree::{Found, Next};
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

    /// Goal: a node that has not been read hides nothing: whoever looks for a block below it is led to it, and what is changed there is known.
    #[test]
    fn what_is_below_an_unread_node_is_not_a_hole() {
        let at = |unit: u32| {
            Ptr::new(Addr::new(ChunkId(1), unit), NODE_BYTES as u32, 1, Checksum(u128::from(unit)))
        };
        let (root, inner, leaf, block) = (at(4), at(8), at(12), at(16));
        let mut tree = Tree::stored(root, 2, Mapped { blocks: 5, units: 10 });
        let above = Unread { level: 2, index: 0, home: root };
        let far = 300 * FANOUT + 9;
        assert_eq!((tree.lookup(0), tree.lookup(far)), (Found::Unread(above), Found::Unread(above)));
        assert_eq!((tree.next_leaf(7), tree.path(7)), (Next::Unread(above), Err(above)));
        let mut freed = Vec::new();
        tree.set(far, &[block], &mut freed);
        tree.set(far + 2, &[block], &mut freed);
        tree.clear(far, 1, &mut freed);
        assert_eq!(freed, [block], "what was there before is not known");
        assert_eq!((tree.lookup(far), tree.lookup(far + 2)), (Found::Hole, Found::At(block)));
        assert_eq!((tree.lookup(far + 1), tree.leaf_state(300).err()), (Found::Unread(above), Some(above)));
        // The first interior node has that leaf and one more; the second there is not.
        let pointers = |places: &[(usize, Ptr)]| {
            let mut all = vec![Ptr::HOLE; FANOUT as usize];
            places.iter().for_each(|(slot, ptr)| all[*slot] = *ptr);
            all
        };
        let stale = Unread { home: inner, ..above };
        assert!(!tree.load(stale, &pointers(&[])) && tree.load(above, &pointers(&[(0, inner)])));
        let below = Unread { level: 1, index: 0, home: inner };
        assert_eq!((tree.lookup(far + 1), tree.next_leaf(0)), (Found::Unread(below), Next::Unread(below)));
        assert_eq!((tree.lookup(FANOUT * FANOUT), tree.next_leaf(FANOUT)), (Found::Hole, Next::None));
        assert!(tree.load(below, &pointers(&[(300, leaf)])) && !tree.load(below, &pointers(&[])));
        let cold = Unread { level: 0, index: 300, home: leaf };
        assert_eq!(
            (tree.lookup(far), tree.lookup(far + 1), tree.lookup(0)),
            (Found::Hole, Found::Unread(cold), Found::Hole)
        );
        assert_eq!(
            (tree.next_leaf(7), tree.path(300)),
            (Next::Leaf(300), Ok(vec![(2, root), (1, inner), (0, leaf)]))
        );
        assert!(!tree.evict(1, 0), "something is changed below it");
    }
}
