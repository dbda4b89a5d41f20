//! Chunks of which a slot moves to another disk.
//!
//! A slot is copied while nothing writes to its chunk: nothing new is allocated there, and what had been promised before
//! is waited for. The chunk's entry changes when the copy is durable; the chunk stays closed until a checkpoint with the new
//! entry is, since before that a crash goes back to the old slot.

use crate::address::ChunkId;
use crate::allocator::Space;
use crate::chunk::{Chunk, ChunkEntry, ChunkKind};
use forebay_device::{SlotRef, UNIT};
use std::ops::Range;

impl Space {
    /// Allocates nothing from the chunk until [`Space::end_move`], and keeps it from leaving. False when it left already.
    pub fn begin_move(&mut self, id: ChunkId) -> bool {
        if !self.contains(id) || self.is_leaving(id) {
            return false;
        }
        self.forget_open(id);
        self.moving.insert(id);
        self.nodes_free.set(None);
        true
    }

    /// Allocates from the chunk again.
    pub fn end_move(&mut self, id: ChunkId) {
        self.moving.remove(&id);
        self.nodes_free.set(None);
    }

    /// Whether nothing is allocated from a chunk at present.
    pub(crate) fn is_closed(&self, id: ChunkId) -> bool {
        let is_vacated = || self.chunk(id).is_some_and(|chunk| self.is_vacated(chunk));
        self.closed.contains(&id) || self.moving.contains(&id) || is_vacated()
    }

    /// Whether some chunk is closed for a while: space may come back without a checkpoint.
    pub fn is_moving(&self) -> bool {
        !self.moving.is_empty()
    }

    /// Whether everything in a chunk that was ever promised has been written or given back, and is part of the last checkpoint. A chunk of
    /// which the running checkpoint frees something is not settled until that is durable: what it freed is busy, and stored no more.
    pub fn is_settled(&self, id: ChunkId) -> bool {
        self.chunk(id).is_some_and(|chunk| chunk.unknown || chunk.stored == chunk.busy)
    }

    /// The chunks from a number on, in order.
    pub fn chunks_from(&self, id: ChunkId) -> impl Iterator<Item = &Chunk> {
        self.chunks.from(id)
    }

    /// The bytes of each of a chunk's slots that hold something, for cells of `cell` bytes where it has parity.
    pub fn slot_ranges(&self, id: ChunkId, cell: u64) -> Vec<Range<u64>> {
        let chunk = self.chunk(id).expect("asked of owned chunks");
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for run in chunk.busy.runs() {
            let range = match (chunk.entry.kind, u64::from(self.line(chunk))) {
                (ChunkKind::Data { .. }, line) if line > 0 => {
                    u64::from(run.start) / line * cell..u64::from(run.end).div_ceil(line) * cell
                }
                _ => u64::from(run.start) * UNIT..u64::from(run.end) * UNIT,
            };
            match ranges.last_mut() {
                Some(last) if last.end >= range.start => last.end = range.end.max(last.end),
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// One slot of a chunk is elsewhere from the next checkpoint on that seals its period.
    pub fn move_slot(&mut self, id: ChunkId, index: usize, to: SlotRef) {
        self.moved.push((id, index, to));
    }

    /// The log goes on in these chunks from the running checkpoint on; those that it had leave with it.
    pub fn replace_log(&mut self, chunks: Vec<ChunkEntry>) {
        self.retired = self.chunks.of_kind(ChunkKind::Log).map(|chunk| chunk.entry.id).collect();
        self.retired.sort_unstable();
        chunks.into_iter().for_each(|entry| self.insert(Chunk::fresh(entry)));
    }

    /// A copy of the chunk's record is bad: the next checkpoint writes it anew.
    pub fn rewrite_record(&mut self, id: ChunkId) {
        if let Some(chunk) = self.chunk_mut(id) {
            chunk.dirty = true;
            self.touch(id);
        }
    }

    /// Part of sealing a period: records and table of a checkpoint name the same slots.
    pub(crate) fn seal_moves(&mut self) {
        for (id, index, to) in std::mem::take(&mut self.moved) {
            let chunk = self.chunk_mut(id).expect("moved in an owned chunk");
            chunk.entry.slots[index] = to;
            // Its record must be beside the new slot, too.
            chunk.dirty = chunk.entry.kind != ChunkKind::Log;
            self.touch(id);
        }
    }
}
