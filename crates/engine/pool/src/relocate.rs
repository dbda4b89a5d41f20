//! Moving slots of a shard's chunks to other disks: what rebuild, replacement, removal and rebalancing have in common.
//!
//! Pointers name chunks, so a slot moves without a pointer being rewritten. In three steps, between which the coordinator makes
//! checkpoints ([`crate::heal`]):
//!
//! 1. [`Shard::begin_moves`]: nothing is allocated from the chunks any more. After the next checkpoint all that had been
//!    promised there is written, and only frees happen.
//! 2. [`Shard::copy_moves`]: what the slot holds is copied, from its disk or from the other slots; the chunk's entry names the new
//!    slot. The old one is still where a crash leads to, and it stays true, since nothing is written.
//! 3. [`Shard::end_moves`], when a checkpoint with the new entry is durable: the chunk is open again.
//!
//! A part of the log is not copied: from step 1 on every frame is written to the new slot, too, and when the log's tail has passed
//! where that began, the new slot has all that counts.

use crate::damage::LOOK_AGAIN;
use crate::reserve::Need;
use crate::shard::Shard;
use crate::steps::Steps;
use forebay_base::MIB;
use forebay_base::planted::{Bug, active};
use forebay_device::SlotRef;
use forebay_qos::{Task, Work};
use forebay_raid::DiskSet;
use forebay_space::{Chunk, ChunkEntry, ChunkId, ChunkKind};
use futures_util::stream::{self, StreamExt};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::time::Duration;

/// Bytes of a slot that are copied at a time.
const COPY_BYTES: u64 = MIB;
/// Chunks that one shard copies side by side, where the window lets it: each has a disk to itself for as long as a MiB takes, and clients wait behind all of them.
const COPIES: usize = 4;
/// How long to wait for what was promised in a chunk before it closed, and how often.
const SETTLING_DELAY: Duration = Duration::from_millis(2);
const SETTLING_TRIES: usize = 20;
/// Chunks that are looked at between two yields.
const CHUNKS_LOOK: usize = 512;
/// Checkpoints until the log's tail must have moved on.
const LOG_LAPS: usize = 3;

/// Which chunks are to move: those with slots on these disks. What was on a disk that has failed is lost.
#[derive(Clone)]
pub(crate) struct Search {
    pub vacating: DiskSet,
    pub failed: DiskSet,
}

/// Chunks that have lost most come first.
pub(crate) type Rank = (Reverse<usize>, ChunkId);

impl Search {
    pub fn rank(&self, entry: &ChunkEntry) -> Rank {
        let lost = entry.slots.iter().filter(|slot| self.failed.contains(slot.disk)).count();
        (Reverse(lost), entry.id)
    }
}

/// What of `ranges` is in none of `others`, which are in order.
fn without(ranges: Vec<Range<u64>>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::with_capacity(ranges.len());
    for mut range in ranges {
        for other in others.iter().take_while(|other| other.start < range.end) {
            if other.end <= range.start {
                continue;
            }
            if other.start > range.start {
                left.push(range.start..other.start);
            }
            range.start = range.end.min(other.end);
        }
        if range.start < range.end {
            left.push(range);
        }
    }
    left
}

fn is_on(entry: &ChunkEntry, disks: &DiskSet) -> bool {
    entry.slots.iter().any(|slot| disks.contains(slot.disk))
}

/// One slot of a chunk is to go elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub chunk: ChunkEntry,
    pub index: usize,
    pub target: SlotRef,
    /// The target holds what the slot held at that checkpoint.
    pub holds: Option<u64>,
}

/// What became of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    pub id: ChunkId,
    pub done: bool,
    /// Bytes that could not be had from anywhere.
    pub lost: u64,
    pub copied: u64,
}

/// A slot to which a part of the log is written beside its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
    /// Number of the chunk in the ring.
    pub order: usize,
    pub target: SlotRef,
    /// Position from which on everything was.
    pub since: u64,
}

impl Shard {
    /// Shows the chunks from a number on to `visit`, in order, until that says to break off. It yields: one that is granted or leaves
    /// meanwhile may be shown or not.
    pub async fn visit_chunks(&self, from: ChunkId, mut visit: impl FnMut(&Chunk) -> ControlFlow<()>) {
        let (mut from, mut steps) = (Some(from), Steps::default());
        while let Some(next) = from.take() {
            steps.take(CHUNKS_LOOK).await;
            for (nth, chunk) in self.space.borrow().chunks_from(next).enumerate() {
                if nth == CHUNKS_LOOK {
                    from = Some(chunk.entry.id);
                    break;
                }
                if visit(chunk).is_break() {
                    return;
                }
            }
        }
    }

    /// Chunks with a slot on one of the disks.
    pub async fn chunks_on(&self, disks: &DiskSet) -> Vec<ChunkEntry> {
        let mut found = Vec::new();
        let visit = |chunk: &Chunk| {
            if is_on(&chunk.entry, disks) {
                found.push(chunk.entry.clone());
            }
            ControlFlow::Continue(())
        };
        self.visit_chunks(ChunkId(0), visit).await;
        found
    }

    /// The first chunks, `most` of them, with a slot on one disk and none on the other.
    pub async fn chunks_between(&self, from: u16, to: u16, most: usize) -> Vec<ChunkEntry> {
        let mut found = Vec::with_capacity(most);
        let visit = |chunk: &Chunk| {
            let has = |disk: u16| chunk.entry.slots.iter().any(|slot| slot.disk == disk);
            if has(from) && !has(to) {
                found.push(chunk.entry.clone());
            }
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.visit_chunks(ChunkId(0), visit).await;
        found
    }

    /// The chunks that come next, `most` of them, of those with a slot on disks that are being emptied; and how many slots there are on
    /// these, by group.
    pub async fn next_to_move(
        &self,
        search: Search,
        after: Option<Rank>,
        most: usize,
    ) -> (Vec<ChunkEntry>, BTreeMap<u16, u64>) {
        let (mut next, mut slots) = (BTreeMap::new(), BTreeMap::new());
        let visit = |chunk: &Chunk| {
            let entry = &chunk.entry;
            let count = entry.slots.iter().filter(|slot| search.vacating.contains(slot.disk)).count();
            if count == 0 {
                return ControlFlow::Continue(());
            }
            *slots.entry(entry.group).or_default() += count as u64;
            let rank = search.rank(entry);
            let is_next = next.len() < most || next.last_key_value().is_some_and(|(last, _)| rank < *last);
            if is_next && after.is_none_or(|after| rank > after) {
                next.insert(rank, entry.clone());
                if next.len() > most {
                    next.pop_last();
                }
            }
            ControlFlow::Continue(())
        };
        self.visit_chunks(ChunkId(0), visit).await;
        (next.into_values().collect(), slots)
    }

    /// Closes the chunks; gives the moves that can go on.
    pub async fn begin_moves(self: &Rc<Self>, moves: Vec<Move>) -> Vec<Move> {
        let (nodes, others): (Vec<_>, Vec<_>) =
            moves.into_iter().partition(|one| one.chunk.kind == ChunkKind::Node);
        let mut begun: Vec<Move> = others.into_iter().filter(|one| self.begin_move_of(one)).collect();
        // What is promised there goes there, and the log's tail can move.
        self.drain().await;
        // Nodes are promised to nobody but a running checkpoint, and what drains needs some.
        for one in nodes {
            if self.spare_nodes(one.chunk.id).await && self.begin_move_of(&one) {
                begun.push(one);
            }
        }
        begun
    }

    /// Closes a chunk of which a slot is to move. False when it cannot.
    fn begin_move_of(&self, one: &Move) -> bool {
        let id = one.chunk.id;
        // The chunk may have left since it was chosen, and its number may be another's.
        let is_it =
            |chunk: &Chunk| (chunk.entry.kind, &chunk.entry.slots) == (one.chunk.kind, &one.chunk.slots);
        if !self.space.borrow().chunk(id).is_some_and(is_it) {
            return false;
        }
        match one.chunk.kind {
            ChunkKind::Log => {
                let mut log = self.log.borrow_mut();
                if log.successor.is_some() {
                    return false;
                }
                let (order, since) = (one.chunk.order as usize, log.chain.position);
                log.twins.push(Twin { order, target: one.target, since });
                true
            }
            ChunkKind::Node => self.space.borrow_mut().begin_move(id),
            ChunkKind::Data { .. } => active(Bug::CopiesOpenChunk) || self.space.borrow_mut().begin_move(id),
        }
    }

    /// Makes sure that a checkpoint finds its nodes without this chunk.
    pub async fn spare_nodes(self: &Rc<Self>, id: ChunkId) -> bool {
        let enough = || {
            let space = self.space.borrow();
            let here = space.chunk(id).map_or(0, |chunk| chunk.busy.zeros() / forebay_space::NODE_UNITS);
            space.nodes_free() >= self.nodes_needed() + u64::from(here)
        };
        while !enough() {
            if !self.grant(ChunkKind::Node, Need::Urgent).await {
                return false;
            }
        }
        true
    }

    /// Copies the slots of chunks that are closed since before the last checkpoint.
    pub async fn copy_moves(self: &Rc<Self>, moves: Vec<Move>) -> Vec<Moved> {
        let copies = moves.iter().map(|one| self.copy_move(one));
        stream::iter(copies).buffer_unordered(COPIES.min(self.turns.places_max())).collect().await
    }

    async fn copy_move(self: &Rc<Self>, one: &Move) -> Moved {
        let mut moved = Moved { id: one.chunk.id, done: false, lost: 0, copied: 0 };
        if one.chunk.kind == ChunkKind::Log {
            moved.done = self.has_log_passed(one.target).await;
        } else {
            moved.done = self.settle(one.chunk.id).await && self.copy_slot(one, &mut moved).await;
        }
        if moved.done {
            self.space.borrow_mut().move_slot(one.chunk.id, one.index, one.target);
        }
        moved
    }

    /// Waits until the log's tail has passed where the slot began to be written.
    async fn has_log_passed(self: &Rc<Self>, target: SlotRef) -> bool {
        let since = self.log.borrow().twins.iter().find(|twin| twin.target == target).map(|twin| twin.since);
        let Some(since) = since else { return false };
        for _ in 0..LOG_LAPS {
            if self.log.borrow().tail >= since {
                return true;
            }
            // What was on its way to the log then is staged now.
            if !self.drain().await || !self.next_checkpoint().await {
                return false;
            }
        }
        self.log.borrow().tail >= since
    }

    /// Waits until all that was promised in a chunk is written.
    pub async fn settle(&self, id: ChunkId) -> bool {
        for _ in 0..SETTLING_TRIES {
            if active(Bug::CopiesOpenChunk) || self.space.borrow().is_settled(id) {
                return true;
            }
            // A running checkpoint may have freed something there.
            if self.between_checkpoints().await.is_err() {
                return false;
            }
            if !self.space.borrow().is_settled(id) {
                self.rt.sleep(SETTLING_DELAY).await;
            }
        }
        false
    }

    /// Which bytes of each slot of a chunk have something to do with what is known to be lost, in order.
    fn lost_parts(&self, id: ChunkId, slots: &[SlotRef]) -> Vec<Range<u64>> {
        let damage = self.damage.borrow();
        let lost = damage.of_chunk(id);
        let mut parts: Vec<Range<u64>> =
            lost.flat_map(|(offset, bytes)| self.array.slot_parts(slots, offset, bytes as usize)).collect();
        parts.sort_unstable_by_key(|part| part.start);
        parts
    }

    /// Copies what a slot holds. False when it could not be written.
    async fn copy_slot(self: &Rc<Self>, one: &Move, moved: &mut Moved) -> bool {
        let (id, slots) = (one.chunk.id, &one.chunk.slots);
        let changed = {
            let space = self.space.borrow();
            let chunk = space.chunk(id).expect("a chunk that moves does not leave");
            chunk.entry.changed.max(if chunk.dirty { u64::MAX } else { 0 })
        };
        let is_missed = one.holds.is_none_or(|held| changed > held) && !active(Bug::ResilverMissesChunk);
        if one.holds.is_some() && !is_missed {
            return true;
        }
        if self.read_maps([id]).await.is_err() {
            return false;
        }
        let ranges = self.space.borrow().slot_ranges(id, self.array.cell_bytes(slots).unwrap_or(0));
        let ranges = match one.holds {
            // What is known to be lost elsewhere may be right where it comes back, and a scrub will find it there.
            Some(_) if !active(Bug::ResilverCopiesLost) => without(ranges, &self.lost_parts(id, slots)),
            _ => ranges,
        };
        let parts_of = |range: &Range<u64>| {
            let (start, end) = (range.start, range.end);
            (start..end).step_by(COPY_BYTES as usize).map(move |at| at..end.min(at + COPY_BYTES))
        };
        let mut todo: Vec<Range<u64>> = ranges.iter().flat_map(parts_of).collect();
        let all = todo.iter().map(|part| part.end - part.start).sum();
        let (mut touched, mut pace) = (DiskSet::default(), self.pace(Task::Rebuild));
        // What no disk gives is looked for again: the error may be one that passes, and what the slot holds is given up with it.
        let mut pauses = LOOK_AGAIN.into_iter().filter(|_| !active(Bug::MoveLooksOnce));
        loop {
            let mut lost = Vec::new();
            for part in todo {
                if self.stopping.get() || self.is_suspended() {
                    return false;
                }
                pace.step_soon(Work::write(part.end - part.start, 1)).await;
                match self.array.rebuild(slots, one.index, part, one.target, &mut touched).await {
                    Ok(more) => lost.extend(more),
                    Err(_) => return false,
                }
                pace.rest().await;
            }
            todo = lost;
            let Some(pause) = pauses.next().filter(|_| !todo.is_empty()) else { break };
            self.rt.sleep(pause).await;
        }
        moved.copied = all;
        moved.lost = todo.iter().map(|part| part.end - part.start).sum();
        // The next checkpoint writes the chunk's record to the same disk, and flushes both.
        true
    }

    /// Opens the chunks again.
    pub fn end_moves(&self, moves: &[Move]) {
        let (mut space, mut log) = (self.space.borrow_mut(), self.log.borrow_mut());
        for one in moves {
            match one.chunk.kind {
                ChunkKind::Log => {
                    log.twins.retain(|twin| twin.target != one.target);
                    let entry = &space.chunk(one.chunk.id).expect("the log does not leave").entry;
                    log.chunks[entry.order as usize].clone_from(&entry.slots);
                }
                ChunkKind::Node | ChunkKind::Data { .. } => space.end_move(one.chunk.id),
            }
        }
        drop((space, log));
        self.progress.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn what_is_left_out_of_ranges_is_just_that() {
        let others = [2..4, 3..6, 10..12, 20..30];
        let left = |ranges: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let ranges = ranges.iter().map(|(start, end)| *start..*end).collect();
            without(ranges, &others).into_iter().map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(left(&[(0, 8), (8, 16)]), [(0, 2), (6, 8), (8, 10), (12, 16)]);
        assert_eq!(left(&[(3, 5), (10, 12), (12, 20)]), [(12, 20)]);
        assert_eq!(left(&[(25, 40)]), [(30, 40)]);
        assert_eq!(left(&[(7, 9)]), [(7, 9)]);
    }
}
