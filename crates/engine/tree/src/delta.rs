//! What changed in a leaf that is not in memory, until the leaf is read.

use forebay_space::Ptr;
use std::collections::BTreeMap;

/// Changes to a leaf that is not in memory.
#[derive(Clone, Default, Debug)]
pub(crate) struct Delta {
    /// The period in which the whole leaf was emptied.
    pub cleared: Option<u64>,
    /// Slot → new pointer and the period in which it came.
    pub entries: BTreeMap<u16, (Ptr, u64)>,
    /// Period of the first change: when it is not the current one, a checkpoint is resolving part of this delta.
    pub since: u64,
    /// Period of the last change.
    pub stamp: u64,
}

impl Delta {
    pub fn is_empty(&self) -> bool {
        self.cleared.is_none() && self.entries.is_empty()
    }
}
