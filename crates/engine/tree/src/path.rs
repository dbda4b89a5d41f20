//! The nodes above a block: where they are stored, and how many there are above several.

use crate::node::FANOUT;
use crate::tree::{Child, Tree};
use forebay_space::Ptr;
use std::ops::Range;

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
}
