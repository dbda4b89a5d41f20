//! Which chunks an evacuation empties. Nothing is allocated from them until it is over.

use crate::address::ChunkId;
use crate::allocator::Space;
use crate::chunk::{Chunk, ChunkKind};
use crate::held::CLASSES;
use std::collections::BTreeSet;

/// Chunks that one evacuation may empty however few there are: some may have to stay for a block that is locked.
const EVACUATED_MIN: usize = 8;

impl Space {
    /// The data chunks to evacuate: the emptiest, as many as their contents surely find room in the holes of the others, and
    /// at most a sixteenth of all at a time, so that a pass over the trees is worth its cost. None when so little is free
    /// that far more would be moved than gained.
    pub fn emptiest(&self) -> Vec<ChunkId> {
        let is_data =
            |chunk: &&Chunk| matches!(chunk.entry.kind, ChunkKind::Data { .. }) && !self.is_vacated(chunk);
        let mut data: Vec<&Chunk> = self.chunks.values().filter(is_data).collect();
        data.sort_by_key(|chunk| (chunk.busy.ones(), chunk.entry.id));
        let zeros = |chunk: &Chunk| u64::from(chunk.busy.zeros());
        let mut holes: u64 = data.iter().map(|chunk| zeros(chunk)).sum();
        let mut moved = 0;
        let mut spare = [None; CLASSES];
        let fits = |chunk: &&&Chunk| {
            moved += u64::from(chunk.busy.ones());
            holes -= zeros(chunk);
            // Half of the holes may be too small, or be taken by others meanwhile.
            chunk.busy.ones() <= chunk.entry.units / 8 * 7 && moved <= holes / 2
        };
        let most = (data.len() / 16).max(EVACUATED_MIN);
        let movable = data.iter().filter(|chunk| self.may_empty(chunk, &mut spare));
        movable.take(most).take_while(fits).map(|chunk| chunk.entry.id).collect()
    }

    /// Allocates nothing from these chunks until [`Space::reopen`].
    pub fn close(&mut self, chunks: BTreeSet<ChunkId>) {
        self.open.retain(|_, (id, _)| !chunks.contains(id));
        self.closed = chunks;
        self.recount_places();
    }

    /// Allocates from every chunk again.
    pub fn reopen(&mut self) {
        self.closed.clear();
        self.recount_places();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Ptr;
    use crate::chunk::ChunkEntry;
    use forebay_base::Checksum;

    #[test]
    fn a_chunk_that_was_emptied_and_comes_back_is_open() {
        let data = ChunkKind::Data { class: 0 };
        let fresh = |id| Chunk::fresh(ChunkEntry::fresh(ChunkId(id), data, 0, 64, Vec::new()));
        let mut space = Space::default();
        for id in 1..=2 {
            space.insert(fresh(id));
            space.grant_logged(ChunkId(id));
        }
        let addr = space.allocate(data, 1).expect("there is room");
        let ptr = Ptr::new(addr, 4096, 0, Checksum(0));
        space.applied(&ptr);
        space.close(BTreeSet::from([ChunkId(1), ChunkId(2)]));
        space.freed(&ptr);
        let mut left = Vec::new();
        for _ in 0..3 {
            space.freeze();
            space.choose_leaving(0);
            space.seal();
            left.extend(space.release());
        }
        assert_eq!(left.len(), 2);
        space.insert(fresh(1));
        assert!(space.allocate(data, 1).is_ok(), "those that were closed with it are not open again yet");
    }
}
