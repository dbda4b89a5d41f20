//! The end of a period: what a checkpoint does with what was allocated and freed since the one before.

use crate::address::{ChunkId, NODE_UNITS};
use crate::allocator::{Fill, Space};
use crate::chunk::{Chunk, ChunkEntry, ChunkKind};
use crate::lines::lines_in;
use forebay_base::planted::{Bug, active};

/// Of so many chunks, tests compare what is kept with what the bitmaps say.
const COUNTED_MAX: usize = 512;

impl Space {
    /// Closes the period: what follows belongs to the next checkpoint.
    pub fn freeze(&mut self) {
        assert!(self.frozen.allocated.is_empty() && self.frozen.freed.is_empty(), "one checkpoint at a time");
        self.frozen = std::mem::take(&mut self.current);
        self.was_wanted = self.until_wanted.take() == Some(0);
        self.freeze_held();
        let chunks = &mut self.chunks;
        self.unsettled.retain(|id| {
            let chunk = chunks.get_mut(*id);
            chunk.is_some_and(|chunk| {
                chunk.settled = chunk.logged;
                !chunk.settled
            })
        });
    }

    /// Chooses the empty chunks that leave with the running checkpoint; nothing is allocated from them any more. So many nodes have to be free in those
    /// that stay: the checkpoint, and the next one, need them.
    pub fn choose_leaving(&mut self, nodes_kept: u64) {
        self.nodes_free.set(None);
        let open = self.open.iter().filter(|(stream, _)| stream.fill != Fill::Holes);
        let open: Vec<ChunkId> = open.map(|(_, (id, _))| *id).collect();
        let idle = |chunk: &&Chunk| {
            chunk.entry.kind != ChunkKind::Log
                && chunk.settled
                && !self.moving.contains(&chunk.entry.id)
                && !open.contains(&chunk.entry.id)
        };
        let empty = self.chunks.empty().filter(idle).map(|chunk| chunk.entry.id).collect();
        let mut leaving = self.may_leave(empty);
        let is_of_use = |chunk: &Chunk| chunk.entry.kind == ChunkKind::Node && !self.is_vacated(chunk);
        let nodes = |id: &ChunkId| u64::from(self.chunks[*id].entry.units / NODE_UNITS);
        let of_use = leaving.iter().filter(|id| is_of_use(&self.chunks[**id]));
        let mut left = self.nodes_free().saturating_sub(of_use.map(nodes).sum());
        // One empty node chunk stays in any case.
        let mut is_first = true;
        leaving.retain(|id| {
            let stays = is_of_use(&self.chunks[*id]) && (is_first || left < nodes_kept);
            if stays {
                (is_first, left) = (false, left + nodes(id));
            }
            !stays
        });
        self.leaving = leaving.into_iter().chain(std::mem::take(&mut self.retired)).collect();
        self.nodes_free.set(None);
        for id in &self.leaving {
            // Out of the allocator's sight from now on.
            self.chunks.change(*id, |chunk| chunk.busy.set(0, chunk.entry.units));
        }
        let leaving = &self.leaving;
        self.open.retain(|_, (id, _)| !leaving.contains(id));
        self.recount_places();
    }

    /// Moves the closed period into the stored bitmaps, after the last node of the checkpoint is allocated. The frees stay
    /// listed for [`Space::release`].
    pub fn seal(&mut self) {
        self.seal_moves();
        for run in std::mem::take(&mut self.frozen.allocated) {
            let chunk = self.chunks.get_mut(run.addr.chunk()).expect("allocated from an owned chunk");
            let already = chunk.stored.set(run.addr.unit(), run.units);
            assert!(already == 0 || chunk.unknown, "a unit was allocated twice in one period");
            chunk.dirty = true;
            self.touched.insert(run.addr.chunk());
        }
        for run in &self.frozen.freed {
            let chunk = self.chunks.get_mut(run.addr.chunk()).expect("freed in an owned chunk");
            let already = chunk.stored.clear(run.addr.unit(), run.units);
            assert!(already == 0 || chunk.unknown, "a unit was freed that was not in use");
            chunk.dirty = true;
            self.touched.insert(run.addr.chunk());
            if active(Bug::FreeReleasedEarly) {
                self.chunks.change(run.addr.chunk(), |chunk| chunk.busy.clear(run.addr.unit(), run.units));
            }
        }
        let touched = std::mem::take(&mut self.touched).into_iter();
        self.sealed = touched.filter(|id| !self.leaving.contains(id)).collect();
        for id in self.sealed.iter().filter(|_| !active(Bug::EntryCountsStale)) {
            let chunk = self.chunks.get_mut(*id).expect("what changes is owned");
            if chunk.dirty {
                let line = lines_in(&self.lines, chunk).units;
                chunk.entry.note_free(&chunk.stored, line);
            }
        }
    }

    /// The checkpoint is durable: freed units may be written again. Returns the chunks that leave the shard.
    pub fn release(&mut self) -> Vec<ChunkEntry> {
        for run in std::mem::take(&mut self.frozen.freed) {
            if active(Bug::FreeReleasedEarly) {
                continue;
            }
            let already = self.chunks.change(run.addr.chunk(), |chunk| {
                if chunk.has_lines() {
                    chunk.written.clear(run.addr.unit(), run.units);
                }
                chunk.busy.clear(run.addr.unit(), run.units)
            });
            assert_eq!(already, 0, "released a free unit");
            self.scarce = false;
        }
        self.chunks.share_bitmaps();
        debug_assert!(
            self.chunks.len() > COUNTED_MAX || self.chunks.is_consistent(),
            "what is kept of chunks"
        );
        let leaving = std::mem::take(&mut self.leaving);
        for id in &leaving {
            self.touched.remove(id);
            // It may come back before those that were closed with it are open again.
            self.closed.remove(id);
        }
        self.nodes_free.set(None);
        self.lanes.look_again();
        self.release_held();
        self.forget_maps();
        leaving
            .into_iter()
            .map(|id| self.chunks.remove(id).expect("leaving chunks are owned").entry)
            .collect()
    }
}
