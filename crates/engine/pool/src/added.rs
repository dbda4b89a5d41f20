//! What each dataset *adds*: the units of data blocks that were born to it since its parent was sealed, and that it still has.
//!
//! A block belongs to the dataset that it was born to, and trees are positional, so who counts a block follows from births, as in
//! [`crate::deletion`]. A write adds what it writes; what is freed is subtracted; what is left to a snapshot stays counted there, since
//! the snapshot took the count over when it was taken, and the volume began anew with nothing. So what a volume and its snapshots take is
//! a sum over their records, and no tree is walked for it.
//!
//! While a snapshot is being deleted, only the sum of it and its child is exact: what the child has from it by now is still counted with the
//! snapshot, so that the child's may be less than nothing. The child takes over what is left when the snapshot is gone.
//!
//! Counted is what is in trees. What replaces blocks of a leaf that is not in memory counts beside them until the next checkpoint.

use forebay_space::Ptr;

/// In a dataset's record, of the same freeze as its tree, and in memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Added {
    pub units: i64,
}

impl Added {
    pub fn with_blocks(self, blocks: &[Ptr]) -> Added {
        Added { units: self.units + units(blocks) }
    }

    pub fn without_blocks(self, blocks: &[Ptr]) -> Added {
        Added { units: self.units - units(blocks) }
    }

    /// With what another one has.
    pub fn and(self, other: Added) -> Added {
        Added { units: self.units + other.units }
    }
}

fn units(blocks: &[Ptr]) -> i64 {
    blocks.iter().map(|ptr| i64::from(ptr.units())).sum()
}
