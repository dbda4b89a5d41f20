//! What a checkpoint writes of the chunks: the entries and records of those that changed, and nothing of the others.

use crate::address::ChunkId;
use crate::allocator::{Run, Space};
use forebay_base::planted::{Bug, active};
use std::collections::BTreeSet;

impl Space {
    /// The chunks that leave with the running checkpoint.
    pub fn leaving(&self) -> &BTreeSet<ChunkId> {
        &self.leaving
    }

    /// The chunks whose entries the running checkpoint has to write, as far as is known before it is sealed.
    pub fn changing(&self) -> BTreeSet<ChunkId> {
        let freed: &[Run] = if active(Bug::ChunkEntryStale) { &[] } else { &self.frozen.freed };
        let runs = self.frozen.allocated.iter().chain(freed).map(|run| run.addr.chunk());
        let mut changing: BTreeSet<ChunkId> = runs.chain(self.touched()).collect();
        changing.extend(self.moved_chunks());
        self.leaving.iter().for_each(|id| _ = changing.remove(id));
        changing
    }

    /// Those of them that were granted, or whose record is to be written anew, and do not leave.
    pub fn touched(&self) -> impl Iterator<Item = ChunkId> {
        self.touched.iter().copied().filter(|id| !self.is_leaving(*id))
    }

    /// The chunks of which a slot will be elsewhere once the running checkpoint is sealed.
    pub fn moved_chunks(&self) -> BTreeSet<ChunkId> {
        self.moved.iter().map(|(id, ..)| *id).collect()
    }

    /// Chunks that the shard keeps.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len() - self.leaving.len()
    }

    pub(crate) fn touch(&mut self, id: ChunkId) {
        self.touched.insert(id);
    }

    /// Chunks whose record must be written by the running checkpoint.
    pub fn dirty_chunks(&self) -> Vec<ChunkId> {
        self.sealed.iter().copied().filter(|id| self.chunks[*id].dirty).collect()
    }

    /// The record of a chunk goes to its other alternate with this checksum.
    pub fn record_written(
        &mut self,
        id: ChunkId,
        alternate: u8,
        sum: forebay_base::Checksum,
        generation: u64,
    ) {
        let chunk = self.chunks.get_mut(id).expect("dirty chunks are owned");
        chunk.entry.changed = generation;
        chunk.entry.alternate = alternate;
        chunk.entry.record_sum = sum;
        chunk.dirty = false;
    }
}
