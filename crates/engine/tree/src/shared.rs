//! What a tree shares with the snapshot it grew from.
//!
//! A snapshot keeps a root. Nothing says which of what is below it the living tree still has, or needs to: a pointer tells
//! when what it points to was born, and what was born up to the snapshot's epoch is the snapshot's as well. When the
//! tree replaces such a block or node, it only lets go of it.

use crate::node::FANOUT;
use forebay_space::Ptr;

/// Which of its blocks and nodes a tree has for itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Shared {
    /// What was born up to this epoch belongs to a snapshot, too.
    pub upto: u64,
    /// That snapshot is being deleted: at the leaves before this one it has nothing any more ...
    pub passed: u64,
    /// ... and what is there is shared only if it was born up to this epoch, with the snapshot before that one.
    pub before: u64,
}

impl Shared {
    /// With a snapshot of this epoch.
    pub fn upto(upto: u64) -> Shared {
        Shared { upto, ..Shared::default() }
    }

    /// Whether the tree alone has what `ptr`, at node `index` of `level` or in that leaf, points to.
    pub fn owns(&self, ptr: &Ptr, level: u8, index: u64) -> bool {
        let upto = if leaves_end(level, index) <= self.passed { self.before } else { self.upto };
        ptr.birth() > upto
    }
}

/// The leaf after the last one below node `index` of `level`.
pub fn leaves_end(level: u8, index: u64) -> u64 {
    (index + 1).saturating_mul(FANOUT.saturating_pow(u32::from(level)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Checksum;
    use forebay_space::{Addr, ChunkId};

    #[test]
    fn what_a_deleted_snapshot_has_let_go_of_belongs_to_the_tree() {
        let born = |epoch: u64| Ptr::new(Addr::new(ChunkId(1), 0), 4096, epoch, Checksum(1));
        let shared = Shared { upto: 7, passed: 3 * FANOUT, before: 4 };
        let owns = |epoch: u64, level: u8, index: u64| shared.owns(&born(epoch), level, index);
        assert!(owns(8, 0, 5000) && !owns(7, 0, 5000) && !owns(5, 0, 3 * FANOUT));
        assert!(owns(5, 0, 3 * FANOUT - 1) && !owns(4, 0, 0));
        assert!(owns(5, 1, 2) && !owns(5, 1, 3) && !owns(5, 2, 0), "a node is passed when all below it is");
    }
}
