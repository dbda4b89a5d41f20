//! Which bitmaps of chunks are in memory.
//!
//! A pool of a petabyte has gigabytes of them, and an import would read for minutes. So the chunk table says how much is free in a chunk, and which units are
//! is read when it is needed: to allocate there, at the checkpoint that frees something there, to copy what the chunk has. What is
//! at rest is forgotten again once it takes more memory than it may.
//!
//! An allocation cannot wait for a disk. It says which chunk it would have taken ([`Space::take_sought`]); whoever wants the place has that read, and tries again.

use crate::address::ChunkId;
use crate::allocator::Space;
use crate::bits::Bits;
use crate::chunk::{Chunk, ChunkEntry, ChunkKind};
use std::collections::BTreeSet;

impl Space {
    /// Keeps so many bytes of bitmaps in memory, beside those that are needed.
    pub fn keep_maps(&mut self, bytes: usize) {
        self.maps_bytes_max = bytes;
    }

    /// The chunks that the last allocation would have looked into, if it had known what is free there: their records have to be read.
    pub fn take_sought(&mut self) -> BTreeSet<ChunkId> {
        std::mem::take(&mut self.sought)
    }

    /// Of these chunks, those whose records have to be read before it is known what is free in them.
    pub fn unread(&self, ids: impl IntoIterator<Item = ChunkId>) -> Vec<ChunkEntry> {
        let chunks = ids.into_iter().filter_map(|id| self.chunk(id));
        chunks.filter(|chunk| !chunk.is_read()).map(|chunk| chunk.entry.clone()).collect()
    }

    /// Whether the record that `entry` names is still the chunk's, and has not been read.
    pub fn wants(&self, entry: &ChunkEntry) -> bool {
        let is_it = |chunk: &crate::Chunk| !chunk.is_read() && chunk.entry.record_sum == entry.record_sum;
        self.chunk(entry.id).is_some_and(is_it)
    }

    /// The chunks of a kind.
    pub fn chunks_of(&self, kind: ChunkKind) -> impl Iterator<Item = &Chunk> {
        self.chunks.of_kind(kind)
    }

    /// The record that `entry` names says this; nothing where the record cannot be read. False when that is of no use: something newer has come
    /// to be known meanwhile.
    pub fn has_read(&mut self, entry: &ChunkEntry, stored: Option<&Bits>) -> bool {
        if !self.wants(entry) {
            return false;
        }
        self.chunks.change(entry.id, |chunk| match stored {
            Some(stored) => chunk.set_map(stored),
            None => chunk.lose_map(),
        });
        let line = self.lines_at(crate::Addr::new(entry.id, 0)).units;
        let says = (entry.free, entry.places, entry.lines);
        if stored.is_none_or(|stored| entry.count_free(stored, line) != says) {
            // Whatever the entry was wrong for, it is written anew.
            self.rewrite_record(entry.id);
            self.nodes_free.set(None);
            self.recount_places();
        }
        if stored.is_some() {
            self.lanes.look_again();
        }
        true
    }

    /// Forgets what is at rest, down to what may be kept; what is being filled is needed.
    pub(crate) fn forget_maps(&mut self) {
        let Space { chunks, open, maps_bytes_max, .. } = self;
        chunks.forget_maps(*maps_bytes_max, |id| open.values().any(|(open, _)| *open == id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Checksum;
    use forebay_device::SlotRef;

    const DATA: ChunkKind = ChunkKind::Data { class: 0 };

    fn entry(id: u32, used: u32, sum: u128) -> (ChunkEntry, Bits) {
        let slots = vec![SlotRef { disk: 0, slot: id }];
        let mut bits = Bits::new(64);
        bits.set(0, used);
        let mut entry = ChunkEntry::fresh(ChunkId(id), DATA, 0, 64, slots);
        entry.record_sum = Checksum(sum);
        entry.note_free(&bits, 0);
        (entry, bits)
    }

    #[test]
    fn a_place_is_found_once_the_record_has_been_read_and_the_record_is_forgotten_again() {
        let mut space = Space::default();
        let (half, bits) = entry(1, 32, 7);
        space.insert(Chunk::stored(half.clone()));
        space.insert(Chunk::stored(entry(2, 64, 8).0));
        assert!(space.allocate(DATA, 1).is_err());
        assert_eq!(
            space.take_sought().into_iter().collect::<Vec<_>>(),
            [ChunkId(1)],
            "the other one is full"
        );
        assert_eq!(space.unread([ChunkId(1), ChunkId(2)]), std::slice::from_ref(&half));
        let older = ChunkEntry { record_sum: Checksum(6), ..half.clone() };
        assert!(!space.has_read(&older, Some(&Bits::new(64))), "that is another record");
        assert!(space.has_read(&half, Some(&bits)));
        let place = space.allocate(DATA, 1).expect("read");
        assert_eq!((place.chunk(), place.unit()), (ChunkId(1), 32));
        let ptr = crate::Ptr::new(place, 4096, 1, Checksum(1));
        space.give_back(&ptr);
        let end = |space: &mut Space| {
            space.freeze();
            space.seal();
            space.release();
        };
        end(&mut space);
        assert!(space.chunk(ChunkId(1)).is_some_and(Chunk::is_read), "it is being filled");
        space.close([ChunkId(1)].into());
        space.reopen();
        end(&mut space);
        let chunk = space.chunk(ChunkId(1)).expect("there");
        assert!(!chunk.is_read() && chunk.busy.zeros() == 32);
    }

    #[test]
    fn a_lost_record_has_nothing_free_and_is_written_anew() {
        let mut space = Space::default();
        let (half, _) = entry(1, 32, 7);
        space.insert(Chunk::stored(half.clone()));
        assert!(space.has_read(&half, None));
        assert!(space.allocate(DATA, 1).is_err() && space.take_sought().is_empty());
        assert_eq!(space.touched().collect::<Vec<_>>(), [ChunkId(1)]);
        // What is freed there may be marked or not.
        space.freed(&crate::Ptr::new(crate::Addr::new(ChunkId(1), 3), 4096, 1, Checksum(1)));
        for _ in 0..2 {
            space.freeze();
            space.seal();
            space.release();
        }
        space.declare_scarce();
        assert_eq!(space.allocate(DATA, 1).map(|addr| addr.unit()), Ok(3));
    }
}
