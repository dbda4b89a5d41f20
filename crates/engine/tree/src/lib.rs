//! The copy-on-write tree of a volume, in memory and as nodes on disk.
//!
//! The tree is positional: a leaf is a dense array of pointers for 508 consecutive blocks, an interior node
//! one for 508 consecutive children, so keys are implied and lookup is arithmetic. Nodes come to memory and go.
//!
//! Pure: no I/O. Where a node is needed that is not in memory, the caller is told its pointer, reads it, and
//! comes back. [`Tree`] is the living state, [`Frozen`] what a checkpoint writes of it.

mod delta;
mod frozen;
mod mapped;
mod node;
mod path;
mod pointers;
mod shared;
mod tree;
#[cfg(test)]
mod tree_tests;

pub use frozen::{DirtyLeaf, Frozen, Merged, leaf_body};
pub use mapped::Mapped;
pub use node::{
    FANOUT, NODE_BODY, NODE_BYTES, NodeError, NodeHeader, TreeKind, decode_node, decode_ptrs, encode_node,
};
pub use path::{LeafState, height_for, nodes_over};
pub use pointers::{LEAF_MEMORY, Pointers};
pub use shared::{Shared, leaves_end};
pub use tree::{Found, INNER_MEMORY, Next, Tree, Unread};
