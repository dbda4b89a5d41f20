//! One shard's allocator: bump allocation in open chunks, frees that wait for a checkpoint.
//!
//! Each kind of chunk (nodes, and data of each block size) has an open chunk with a cursor, data of wide pools some side by side (`lanes.rs`); `choice.rs` says
//! which is next. Blocks of one
//! size in a chunk keep it free of fragments; when every chunk of a kind is poor and no fresh one is to be
//! had, any data chunk with an aligned hole serves.
//!
//! A chunk with parity is filled line by line: a line that holds anything is not begun, so that lines are written
//! whole; only when there are no free lines left do blocks go into the gaps of others. Large writes take whole lines for
//! themselves.
//!
//! Blocks that were made smaller lie close together in chunks of the least class. One of a volume whose blocks fit into a
//! cell of a line lies in one cell, as it would if it were whole: one disk has it.
//!
//! The period between two checkpoints has two lists: what was allocated *and* applied to a tree, and what was
//! freed. `freeze` closes them; `seal` moves them into the stored bitmaps; `release`, after the superblock is
//! durable, lets freed units be written again. So nothing reachable from the last durable checkpoint is ever
//! overwritten (invariant 2).

use crate::address::{Addr, ChunkId, NODE_UNITS, Ptr};
use crate::bits::Bits;
use crate::chunk::{Chunk, ChunkKind};
use crate::chunks::{Chunks, Sum};
use crate::groups::whole_lines;
use crate::held::{CLASSES, Held};
use crate::lanes::Lanes;
use crate::size::{Lines, Size};
use forebay_device::SlotRef;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// For so many units at least no checkpoint is wanted: 4 MiB. Where less is free, who needs it waits for one.
const ROOM_MIN: u64 = 1024;

/// No chunk of the kind has room: ask the coordinator for a fresh one, or declare space scarce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeedChunk;

/// A run of allocation units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub addr: Addr,
    pub units: u32,
}

#[derive(Default)]
pub(crate) struct Period {
    pub allocated: Vec<Run>,
    pub freed: Vec<Run>,
}

/// How a stretch of space is to be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Stream {
    pub kind: ChunkKind,
    pub fill: Fill,
    /// Of those that are filled side by side.
    pub lane: u8,
}

impl Stream {
    /// The sort of its searches: where one finds no place for so much, none of the sort does for more.
    pub(crate) fn sort(&self, block: Size, cell: u32) -> usize {
        let fill = match self.fill {
            Fill::Lines => 0,
            Fill::Free | Fill::Gathered | Fill::Long => 1,
            Fill::Holes => 2,
        };
        // What lies in one cell finds no place where something longer does that lies in two.
        let shape = if block.is_whole() { 0 } else { 1 + usize::from(block.whole <= cell) };
        3 * fill + shape
    }

    /// Units that it takes at a time for blocks of `units`, of a chunk whose lines have so many.
    pub(crate) fn piece(&self, line: u32, units: u32) -> u32 {
        if self.fill == Fill::Lines { whole_lines(line, units) } else { units }
    }
}

/// What a stream takes of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fill {
    /// All that is free; in a chunk with lines, lines that are free.
    Free,
    /// Whole lines at a time.
    Lines,
    /// Whatever hole is left, in chunks of other kinds too.
    Holes,
    /// Like [`Fill::Free`], of chunks that began empty: what is moved there comes to lie beside each other.
    Gathered,
    /// The same, for what one request writes.
    Long,
}

impl Fill {
    /// Whether it wants chunks in which nothing else lies.
    pub(crate) fn wants_empty(self) -> bool {
        matches!(self, Fill::Gathered | Fill::Long)
    }
}

/// The chunks of one shard.
#[derive(Default)]
pub struct Space {
    pub(crate) chunks: Chunks,
    /// By group.
    pub(crate) lines: Vec<Lines>,
    /// Free places for nodes, unless something changed since they were counted.
    pub(crate) nodes_free: Cell<Option<u64>>,
    /// The chunk that each stream fills, and the unit after the last that it took.
    pub(crate) open: BTreeMap<Stream, (ChunkId, u32)>,
    pub(crate) lanes: Lanes,
    pub(crate) current: Period,
    pub(crate) frozen: Period,
    /// Units that were allocated and are in no tree yet.
    in_hand: u64,
    /// The coordinator had no chunk left: fill every hole.
    pub(crate) scarce: bool,
    /// Much of the pool is in no chunk: what is large need not go into holes.
    pub(crate) spacious: bool,
    /// Units that may be taken until a checkpoint is wanted, for what it frees; unknown before there was one, and while one runs.
    pub(crate) until_wanted: Option<u64>,
    /// The running checkpoint was wanted.
    pub(crate) was_wanted: bool,
    /// Chunks that are being evacuated, and chunks of which a slot is moving: nothing is allocated from them.
    pub(crate) closed: BTreeSet<ChunkId>,
    pub(crate) moving: BTreeSet<ChunkId>,
    /// What is held for reserved volumes, by class, and interior nodes that they are owed.
    pub(crate) held: [Held; CLASSES],
    pub(crate) owed_inner: u64,
    /// Groups that are leaving: nothing is allocated from their chunks.
    pub(crate) vacated: BTreeSet<u16>,
    /// Slots that have been copied: the chunk, which of its slots, where to.
    pub(crate) moved: Vec<(ChunkId, usize, SlotRef)>,
    /// Chunks that the log had until the running checkpoint.
    pub(crate) retired: Vec<ChunkId>,
    /// Empty chunks that the running checkpoint leaves out of the table; they go back when it is durable.
    pub(crate) leaving: BTreeSet<ChunkId>,
    /// Chunks whose entry or record on disk is not what is known here.
    pub(crate) touched: BTreeSet<ChunkId>,
    /// Those of them that the running checkpoint writes. What is granted after its bitmaps were closed is in the log.
    pub(crate) sealed: Vec<ChunkId>,
    /// Chunks whose grant was not in the log when the last period ended.
    pub(crate) unsettled: BTreeSet<ChunkId>,
    /// Chunks that have most room for what was looked for last, and whose records have to be read before it is known where.
    pub(crate) sought: BTreeSet<ChunkId>,
    /// Bytes of bitmaps that are kept, at most, beside those that are needed.
    pub(crate) maps_bytes_max: usize,
}

impl Space {
    /// No chunks yet; `lines` says for each group what lines its data chunks have.
    pub fn new(lines: Vec<Lines>) -> Space {
        Space { lines, ..Space::default() }
    }

    pub fn insert(&mut self, mut chunk: Chunk) {
        if chunk.entry.kind != ChunkKind::Log {
            self.scarce = false;
        }
        if self.line(&chunk) == 0 {
            chunk.written = Bits::default();
        }
        if chunk.dirty || !chunk.settled {
            self.touched.insert(chunk.entry.id);
        }
        if !chunk.settled {
            self.unsettled.insert(chunk.entry.id);
        }
        self.nodes_free.set(None);
        self.lanes.look_again();
        self.recount_places();
        let before = self.chunks.insert(chunk);
        assert!(before.is_none(), "chunk granted twice");
    }

    /// The chunk's grant is in the log.
    pub fn grant_logged(&mut self, id: ChunkId) {
        if let Some(chunk) = self.chunks.get_mut(id) {
            chunk.logged = true;
        }
    }

    pub fn contains(&self, id: ChunkId) -> bool {
        self.chunks.get(id).is_some()
    }

    pub fn chunk(&self, id: ChunkId) -> Option<&Chunk> {
        self.chunks.get(id)
    }

    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.in_order()
    }

    /// Says that no fresh chunk is to be had; lasts until one is inserted or space is released.
    pub fn declare_scarce(&mut self) {
        self.scarce = true;
        self.set_spacious(false);
    }

    pub fn is_scarce(&self) -> bool {
        self.scarce
    }

    /// Whether units wait for a checkpoint to become free.
    pub fn has_pending_frees(&self) -> bool {
        !self.current.freed.is_empty() || !self.frozen.freed.is_empty()
    }

    /// Units that were allocated and are in no tree yet; what they are for may replace something.
    pub fn in_hand(&self) -> u64 {
        self.in_hand
    }

    /// So many units were taken of what is free.
    pub(crate) fn took(&mut self, units: u32) {
        self.in_hand += u64::from(units);
        self.until_wanted = self.until_wanted.map(|left| left.saturating_sub(units.into()));
    }

    /// Whether half of what was free after the last checkpoint is taken: whoever has one begin now does not wait for what it frees.
    pub fn wants_checkpoint(&self) -> bool {
        self.until_wanted == Some(0)
    }

    /// Counts what is free from now on, with so many units `elsewhere`, in no chunk.
    pub fn count_room(&mut self, elsewhere: u64) {
        let Sum { free: here, units } = self.chunks.sum_of_data();
        (self.until_wanted, self.was_wanted) = (Some(((here + elsewhere) / 2).max(ROOM_MIN)), false);
        self.set_spacious(elsewhere * 3 >= units);
    }

    /// What began empty and is none too much any more is anybody's.
    fn set_spacious(&mut self, is_spacious: bool) {
        self.spacious = is_spacious;
        if !is_spacious {
            self.open.retain(|stream, _| stream.fill != Fill::Long);
        }
    }

    /// Gives back what was allocated and never applied.
    pub fn give_back(&mut self, ptr: &Ptr) {
        let (already, kind) = self.chunks.change(ptr.addr().chunk(), |chunk| {
            debug_assert!(
                chunk.stored.is_free(ptr.addr().unit(), ptr.units()),
                "gave back what is in a tree"
            );
            (chunk.busy.clear(ptr.addr().unit(), ptr.units()), chunk.entry.kind)
        });
        assert_eq!(already, 0, "gave back a free unit");
        self.in_hand -= u64::from(ptr.units());
        self.until_wanted = self.until_wanted.map(|left| left + u64::from(ptr.units()));
        self.note_places(kind, ptr.addr().unit(), ptr.units(), false);
    }

    /// The block at `ptr` is now part of a tree.
    pub fn applied(&mut self, ptr: &Ptr) {
        debug_assert!(
            self.is_taken(ptr),
            "what is in a tree now has a place that is anybody's: {:?}",
            ptr.addr()
        );
        if self.has_lines() {
            let chunk = self.chunks.get_mut(ptr.addr().chunk()).expect("allocated from an owned chunk");
            if chunk.has_lines() {
                chunk.written.set(ptr.addr().unit(), ptr.units());
            }
        }
        self.in_hand = self.in_hand.saturating_sub(ptr.units().into());
        push(&mut self.current.allocated, ptr);
    }

    /// Whether nobody else can get the units of `ptr`.
    fn is_taken(&self, ptr: &Ptr) -> bool {
        let chunk = &self.chunks[ptr.addr().chunk()];
        (0..ptr.units()).all(|unit| chunk.busy.get(ptr.addr().unit() + unit))
    }

    /// The block at `ptr` left a tree in this period.
    pub fn freed(&mut self, ptr: &Ptr) {
        push(&mut self.current.freed, ptr);
    }

    /// Like [`Space::applied`], for what the running checkpoint writes.
    pub fn applied_frozen(&mut self, ptr: &Ptr) {
        self.in_hand = self.in_hand.saturating_sub(ptr.units().into());
        push(&mut self.frozen.allocated, ptr);
    }

    /// Like [`Space::freed`], for what the running checkpoint replaces.
    pub fn freed_frozen(&mut self, ptr: &Ptr) {
        push(&mut self.frozen.freed, ptr);
    }

    /// Replay: the block is in use. False when the address is outside the shard's chunks or in use already: a record after
    /// the cut can only point to what the checkpoint left free.
    #[must_use]
    pub fn claim(&mut self, ptr: &Ptr) -> bool {
        let Some(chunk) = self.chunks.get(ptr.addr().chunk()) else { return false };
        if ptr.addr().unit() + ptr.units() > chunk.entry.units || chunk.entry.kind == ChunkKind::Log {
            return false;
        }
        let (free, unknown) = self.chunks.change(ptr.addr().chunk(), |chunk| {
            (chunk.busy.set(ptr.addr().unit(), ptr.units()) == 0, chunk.unknown)
        });
        self.in_hand += u64::from(ptr.units());
        self.recount_places();
        self.applied(ptr);
        free || unknown
    }

    /// Nodes that can be written before another chunk is needed. Every write asks, and only checkpoints change the answer.
    pub fn nodes_free(&self) -> u64 {
        self.nodes_free.get().unwrap_or_else(|| {
            let nodes = self.chunks.of_kind(ChunkKind::Node).filter(|chunk| !self.is_closed(chunk.entry.id));
            let free = nodes.map(|chunk| u64::from(chunk.busy.zeros() / NODE_UNITS)).sum();
            self.nodes_free.set(Some(free));
            free
        })
    }

    pub(crate) fn chunk_mut(&mut self, id: ChunkId) -> Option<&mut Chunk> {
        self.chunks.get_mut(id)
    }

    /// Fills the chunk no further.
    pub(crate) fn forget_open(&mut self, id: ChunkId) {
        self.open.retain(|_, (open, _)| *open != id);
    }

    /// Nothing more is gathered for now: what is left of those chunks is anybody's.
    pub fn end_gathering(&mut self) {
        self.open.retain(|stream, _| stream.fill != Fill::Gathered);
    }

    /// Fills no holes further.
    pub(crate) fn forget_holes(&mut self) {
        self.open.retain(|stream, _| stream.fill != Fill::Holes);
    }

    pub(crate) fn is_leaving(&self, id: ChunkId) -> bool {
        self.leaving.contains(&id)
    }

    /// What was freed and is not to be used again yet.
    pub(crate) fn freed_runs(&self) -> impl Iterator<Item = (Addr, u32)> {
        self.current.freed.iter().chain(&self.frozen.freed).map(|run| (run.addr, run.units))
    }

    /// What the running checkpoint frees.
    pub fn frees(&self) -> impl Iterator<Item = (Addr, u32)> {
        self.frozen.freed.iter().map(|run| (run.addr, run.units))
    }
}

/// Appends a run, joined with the last one when it follows it in the same chunk.
fn push(list: &mut Vec<Run>, ptr: &Ptr) {
    let (addr, units) = (ptr.addr(), ptr.units());
    match list.last_mut() {
        Some(last) if last.addr.is_followed_by(last.units, addr) => last.units += units,
        _ => list.push(Run { addr, units }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::ChunkEntry;
    use crate::size::Size;
    use forebay_base::{Checksum, Random};
    use forebay_device::SlotRef;

    const DATA: ChunkKind = ChunkKind::Data { class: 1 };

    fn entry(id: u32, kind: ChunkKind, units: u32) -> ChunkEntry {
        ChunkEntry::fresh(ChunkId(id), kind, 0, units, vec![SlotRef { disk: 0, slot: id }])
    }

    fn ptr(addr: Addr, units: u32) -> Ptr {
        Ptr::new(addr, units * 4096, 1, Checksum(1))
    }

    #[test]
    fn a_checkpoint_is_wanted_once_half_of_what_is_free_is_taken() {
        let mut space = Space::default();
        space.insert(Chunk::fresh(entry(1, DATA, 65536)));
        let take = |space: &mut Space, units: u32| {
            for _ in 0..units / 2 {
                space.allocate(DATA, 2).expect("room");
            }
        };
        take(&mut space, 1000);
        assert!(!space.wants_checkpoint(), "nobody has counted yet");
        space.freeze();
        space.seal();
        space.release();
        space.count_room(1464);
        // Of 64 536 units here, and 1464 elsewhere.
        take(&mut space, 32_998);
        assert!(!space.wants_checkpoint());
        take(&mut space, 2);
        assert!(space.wants_checkpoint());
        take(&mut space, 30_000);
        space.freeze();
        assert!(!space.wants_checkpoint(), "it runs");
        space.seal();
        space.release();
        // Where little is left, one that comes too often costs more than waiting.
        space.count_room(0);
        take(&mut space, 1022);
        assert!(!space.wants_checkpoint());
        take(&mut space, 2);
        assert!(space.wants_checkpoint());
    }

    #[test]
    fn freed_units_come_back_only_after_release() {
        let mut space = Space::default();
        space.insert(Chunk::fresh(entry(1, DATA, 4)));
        let a = ptr(space.allocate(DATA, 2).expect("room"), 2);
        let b = ptr(space.allocate(DATA, 2).expect("room"), 2);
        assert_eq!(space.allocate(DATA, 2), Err(NeedChunk));
        space.applied(&a);
        space.applied(&b);
        space.freed(&a);
        space.freeze();
        space.declare_scarce();
        assert_eq!(space.allocate(DATA, 2), Err(NeedChunk), "frozen");
        space.seal();
        assert_eq!(space.allocate(DATA, 2), Err(NeedChunk), "sealed, not durable");
        assert_eq!(space.chunk(ChunkId(1)).map(|c| c.stored.ones()), Some(2));
        assert!(space.release().is_empty());
        assert_eq!(space.allocate(DATA, 2), Ok(a.addr()));
    }

    #[test]
    fn a_chunk_in_which_nothing_is_on_its_way_has_one_bitmap() {
        for lines in [Lines::default(), Lines { units: 4, cell: 2 }] {
            let mut space = Space::new(vec![lines]);
            space.insert(Chunk::fresh(entry(1, DATA, 64)));
            let is_one = |space: &Space| {
                let chunk = space.chunk(ChunkId(1)).expect("owned");
                let written = !chunk.has_lines() || chunk.written.shares(&chunk.busy);
                chunk.stored.shares(&chunk.busy) && written
            };
            let block = ptr(space.allocate(DATA, 2).expect("room"), 2);
            space.applied(&block);
            assert!(!is_one(&space), "allocated, and not yet in a checkpoint");
            space.freeze();
            space.seal();
            space.release();
            assert!(is_one(&space));
            space.freed(&block);
            space.freeze();
            space.seal();
            assert!(!is_one(&space), "freed, and that is not yet durable");
            space.release();
            assert!(is_one(&space));
        }
    }

    #[test]
    fn empty_chunks_leave_with_a_checkpoint_and_are_not_allocated_from_meanwhile() {
        let mut space = Space::default();
        space.insert(Chunk::fresh(entry(1, DATA, 4)));
        space.insert(Chunk::fresh(entry(2, ChunkKind::Data { class: 2 }, 4)));
        space.freeze();
        space.choose_leaving(0);
        space.seal();
        assert!(space.release().is_empty(), "its grant may come after the cut");
        space.grant_logged(ChunkId(2));
        let a = ptr(space.allocate(DATA, 2).expect("room"), 2);
        space.applied(&a);
        space.freeze();
        space.choose_leaving(0);
        space.seal();
        assert_eq!((space.leaving(), space.chunk_count()), (&BTreeSet::from([ChunkId(2)]), 1));
        space.declare_scarce();
        assert_eq!(space.allocate(ChunkKind::Data { class: 2 }, 4), Err(NeedChunk));
        assert_eq!(space.release().iter().map(|e| e.id).collect::<Vec<_>>(), [ChunkId(2)]);
    }

    #[test]
    fn a_chunk_whose_holes_were_filled_leaves_when_it_is_empty() {
        let mut space = Space::default();
        space.insert(Chunk::fresh(entry(1, DATA, 4)));
        space.grant_logged(ChunkId(1));
        space.declare_scarce();
        let other = ChunkKind::Data { class: 0 };
        let block = ptr(space.allocate(other, 1).expect("a hole"), 1);
        space.applied(&block);
        space.freed(&block);
        for leaves in [0, 1] {
            space.freeze();
            space.choose_leaving(0);
            space.seal();
            assert_eq!(space.release().len(), leaves);
        }
        space.declare_scarce();
        assert_eq!(space.allocate(other, 1), Err(NeedChunk));
    }

    #[test]
    fn fresh_chunks_come_before_holes_but_not_for_ever() {
        const BLOCKS: usize = 16 * 128;
        let (mut space, mut random, mut granted) = (Space::default(), Random::new(5), 0);
        let mut write = |space: &mut Space| loop {
            if let Ok(addr) = space.allocate(DATA, 2) {
                let new = ptr(addr, 2);
                space.applied(&new);
                return new;
            }
            granted += 1;
            space.insert(Chunk::fresh(entry(granted, DATA, 256)));
            space.grant_logged(ChunkId(granted));
        };
        let mut live: Vec<Ptr> = (0..BLOCKS).map(|_| write(&mut space)).collect();
        let mut overwrite = |space: &mut Space, slot: usize| {
            let new = write(space);
            space.freed(&std::mem::replace(&mut live[slot], new));
            if slot.is_multiple_of(32) {
                space.freeze();
                space.choose_leaving(0);
                space.seal();
                space.release();
            }
            new.addr()
        };
        // Every second block of one chunk, and then a chunk's worth of others.
        let slots = (0..128).step_by(2).chain((256..256 + 128 * 8).step_by(8));
        let places: Vec<Addr> = slots.map(|slot| overwrite(&mut space, slot)).collect();
        let in_order = |pair: &[Addr]| pair[0].is_followed_by(2, pair[1]) || pair[1].unit() == 0;
        assert!(places.windows(2).all(in_order), "{places:?}");
        for _ in 0..20 * BLOCKS {
            overwrite(&mut space, random.below(BLOCKS as u64) as usize);
        }
        let chunks = space.chunks().count();
        assert!(chunks <= 21, "{chunks} chunks for what fills 16: more than a quarter is holes");
    }

    #[test]
    fn smaller_blocks_lie_close_together_and_each_in_one_cell() {
        let mut space = Space::new(vec![Lines { units: 32, cell: 8 }]);
        space.insert(Chunk::fresh(entry(1, ChunkKind::PACKED, 64)));
        let mut place =
            |units: u32, whole: u32| space.allocate_packed(Size { units, whole }).map(|addr| addr.unit());
        assert_eq!((place(3, 4), place(3, 4), place(3, 4)), (Ok(0), Ok(3), Ok(8)));
        assert_eq!(place(9, 16), Ok(11), "whole, it would take two cells");
        assert_eq!((place(7, 8), place(1, 2)), (Ok(24), Ok(31)));
        space.declare_scarce();
        let mut place =
            |units: u32, whole: u32| space.allocate_packed(Size { units, whole }).map(|addr| addr.unit());
        assert_eq!((0..4).map(|_| place(7, 8)).collect::<Vec<_>>(), [Ok(32), Ok(40), Ok(48), Ok(56)]);
        assert_eq!((place(3, 4), place(3, 4)), (Ok(20), Err(NeedChunk)), "holes of two and one are left");
        assert_eq!((place(2, 4), place(1, 2)), (Ok(6), Ok(23)));
    }

    #[test]
    fn random_work_never_hands_out_a_unit_twice() {
        let mut random = Random::new(3);
        let mut space = Space::default();
        (1..6).for_each(|id| {
            space.insert(Chunk::fresh(entry(id, ChunkKind::Data { class: (id % 3) as u8 }, 64)))
        });
        let mut live: Vec<Ptr> = Vec::new();
        let mut frees_pending = Vec::new();
        for step in 0..20_000 {
            let class = random.below(3) as u8;
            if random.one_in(2) && !live.is_empty() {
                let ptr = live.swap_remove(random.below(live.len() as u64) as usize);
                space.freed(&ptr);
                frees_pending.push(ptr);
            } else if let Ok((addr, count)) =
                space.allocate_run(ChunkKind::Data { class }, 1 << class, 1 + step % 5)
            {
                assert!((1..=1 + step % 5).contains(&count));
                for nth in 0..count {
                    let new = ptr(Addr::new(addr.chunk(), addr.unit() + (nth << class)), 1 << class);
                    for old in live.iter().chain(&frees_pending) {
                        let apart = old.addr().chunk() != addr.chunk()
                            || old.addr().unit() + old.units() <= new.addr().unit()
                            || new.addr().unit() + new.units() <= old.addr().unit();
                        assert!(apart, "{new:?} over {old:?}");
                    }
                    space.applied(&new);
                    live.push(new);
                }
            } else {
                space.declare_scarce();
            }
            if step % 100 == 0 {
                space.freeze();
                space.choose_leaving(0);
                space.seal();
                for chunk in space.release() {
                    space.insert(Chunk::fresh(entry(chunk.id.0, ChunkKind::Data { class }, chunk.units)));
                    space.grant_logged(chunk.id);
                }
                frees_pending.clear();
                let stored: u32 = space.chunks().map(|chunk| chunk.stored.ones()).sum();
                assert_eq!(stored, live.iter().map(Ptr::units).sum());
                assert!(space.chunks().all(|chunk| chunk.busy == chunk.stored));
            }
        }
    }
}
