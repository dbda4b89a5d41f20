//! A shard's chunks by number. Every write looks several of them up, so that is a hash of the number; where it matters which comes first they have an
//! order, so that a run can be repeated.

use crate::address::ChunkId;
use crate::chunk::Chunk;
use forebay_base::NumberHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Index;

#[derive(Default)]
pub(crate) struct Chunks {
    by_id: HashMap<ChunkId, Chunk, BuildHasherDefault<NumberHasher>>,
    order: BTreeSet<ChunkId>,
}

impl Chunks {
    /// Adds a chunk; gives the one of this number that was there.
    pub fn insert(&mut self, chunk: Chunk) -> Option<Chunk> {
        self.order.insert(chunk.entry.id);
        self.by_id.insert(chunk.entry.id, chunk)
    }

    pub fn remove(&mut self, id: ChunkId) -> Option<Chunk> {
        self.order.remove(&id);
        self.by_id.remove(&id)
    }

    pub fn get(&self, id: ChunkId) -> Option<&Chunk> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: ChunkId) -> Option<&mut Chunk> {
        self.by_id.get_mut(&id)
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All, in the order of their numbers.
    pub fn in_order(&self) -> impl Iterator<Item = &Chunk> {
        self.order.iter().map(|id| &self.by_id[id])
    }

    /// Those from a number on, in order.
    pub fn from(&self, id: ChunkId) -> impl Iterator<Item = &Chunk> {
        self.order.range(id..).map(|id| &self.by_id[id])
    }

    /// All, in no order: for who sorts or adds up.
    pub fn values(&self) -> impl Iterator<Item = &Chunk> {
        self.by_id.values()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Chunk> {
        self.by_id.values_mut()
    }
}

impl Index<ChunkId> for Chunks {
    type Output = Chunk;
    fn index(&self, id: ChunkId) -> &Chunk {
        &self.by_id[&id]
    }
}
