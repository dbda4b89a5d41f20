//! Interior nodes come to memory when they are needed, and go like leaves do ([`crate::leaves`]).
//!
//! An import reads none of them, and a change below one that is not in memory is a change in memory: what it replaces is known when a
//! checkpoint reads the node to write it anew, or a reader needs it before that.

use crate::dataset::Dataset;
use crate::error::IoError;
use crate::read::Reader;
use crate::record::DatasetRecord;
use crate::shard::Shard;
use async_recursion::async_recursion as boxed;
use forebay_base::planted::{Bug, active};
use forebay_tree::{FANOUT, Found, NODE_BYTES, Next, NodeHeader, Tree, Unread, decode_ptrs};
use std::rc::Rc;

/// What is below a node cannot be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hidden {
    pub error: IoError,
    /// The leaf after the last one below it.
    pub end: u64,
}

impl From<Hidden> for IoError {
    fn from(hidden: Hidden) -> IoError {
        hidden.error
    }
}

impl DatasetRecord {
    /// The tree as it is stored, of which nothing is in memory.
    pub fn tree(&self) -> Tree {
        let mut tree = Tree::stored(self.root, self.height, self.mapped);
        // Of one that is empty, nothing has told how high it is.
        tree.grow(self.blocks());
        tree
    }
}

impl Shard {
    /// Reads the next node on the way to a block, which the tree has not read; where the block is, if that is known then and not kept.
    #[boxed(?Send)]
    pub async fn read_way(
        &self,
        dataset: &Dataset,
        block: u64,
        reader: Reader,
    ) -> Result<Option<Found>, IoError> {
        let found = dataset.tree.borrow().lookup(block);
        let Found::Unread(node) = found else { return Ok(None) };
        let still = || dataset.tree.borrow().lookup(block) == found;
        let turn = self.turn_to_read(dataset, reader, &[NODE_BYTES]).await;
        if node.level > 0 {
            self.read_above(dataset, node).await?;
            return Ok(None);
        }
        let (leaf, home) = (node.index, node.home);
        let header = NodeHeader::of_blocks(self.shared.id, dataset.family(), 0, leaf);
        let node = self.read_node(&header, home, still, || dataset.has_node(0, leaf, home)).await?;
        drop(turn);
        let Some(ptrs) = node.map(|body| decode_ptrs(&body)) else { return Ok(None) };
        let over = dataset.tree.borrow().overlaid(leaf, home, block % FANOUT, &ptrs);
        let mut freed = Vec::new();
        if self.change_tree(dataset, |tree| tree.load_leaf(leaf, home, ptrs, &mut freed)) {
            if !active(Bug::ColdLeafForgetsOldPointer) {
                self.let_go(dataset, &freed);
            }
            self.leaf_loaded(dataset.number(), leaf);
            return Ok(None);
        }
        // A checkpoint is resolving the leaf: use what was read without keeping it.
        Ok(over)
    }

    /// Reads an interior node: what is below it is asked for. It may be another when this is done: look again.
    #[boxed(?Send)]
    pub async fn read_above(&self, dataset: &Dataset, node: Unread) -> Result<(), IoError> {
        let header = NodeHeader::of_blocks(self.shared.id, dataset.family(), node.level, node.index);
        let still = || dataset.tree.borrow().is_unread(node);
        let is_there = || dataset.has_node(node.level, node.index, node.home);
        let Some(body) = self.read_node(&header, node.home, still, is_there).await? else { return Ok(()) };
        let mut tree = dataset.tree.borrow_mut();
        if !tree.load(node, &decode_ptrs(&body)) {
            return Ok(());
        }
        let number = dataset.number();
        let is_of_shard = |known: &Rc<Dataset>| std::ptr::eq(&**known, dataset);
        if self.datasets.borrow().get(&number).is_some_and(is_of_shard) {
            drop(tree);
            self.node_loaded(number, node.level, node.index);
        } else {
            // A snapshot's, that a scrub or a list goes through.
            tree.keep_way_to(node);
        }
        Ok(())
    }

    /// The first leaf at or after `from` that a dataset has.
    pub async fn next_leaf(&self, dataset: &Dataset, mut from: u64) -> Result<Option<u64>, Hidden> {
        loop {
            let next = dataset.tree.borrow().next_leaf(from);
            match next {
                Next::None => return Ok(None),
                Next::Leaf(leaf) => return Ok(Some(leaf)),
                Next::Unread(node) => {
                    let hidden = |error| Hidden { error, end: node.end() };
                    self.read_above(dataset, node).await.map_err(hidden)?;
                    // Before it there was none; whoever looks there again may find nodes that made room for this one. What came there meanwhile is not seen.
                    from = from.max(node.first());
                }
            }
        }
    }

    /// The first block from `from` on and before `end` that may hold something, in a leaf or in memory only.
    pub async fn next_block(&self, dataset: &Dataset, from: u64, end: u64) -> Result<Option<u64>, Hidden> {
        // What is in memory only may be in the tree when the way to a leaf has been read, before the place that was being looked at.
        let newer = dataset.first_newer(from, end);
        let leaf = self.next_leaf(dataset, from / FANOUT).await?.map(|leaf| from.max(leaf * FANOUT));
        let found = leaf.into_iter().chain(newer).chain(dataset.first_newer(from, end)).min();
        Ok(found.filter(|block| *block < end))
    }

    /// What `look` finds in a dataset's tree, once the nodes are in memory that it needs for that.
    pub async fn look_in_tree<T>(
        &self,
        dataset: &Dataset,
        look: impl Fn(&Tree) -> Result<T, Unread>,
    ) -> Result<T, IoError> {
        loop {
            let seen = look(&dataset.tree.borrow());
            match seen {
                Ok(found) => return Ok(found),
                Err(node) => self.read_above(dataset, node).await?,
            }
        }
    }
}
