//! Where the nodes above a block are stored.

use crate::node::FANOUT;
use crate::tree::{Child, Tree};
use forebay_space::Ptr;

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
