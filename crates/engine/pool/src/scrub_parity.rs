//! The part of a scrub that compares parity with what it is of. Checksums are of blocks, so parity can be wrong although every block is right.
//!
//! Parity is computed anew from cells in which every block has been looked at, on the disk that holds it: computed from one that nobody has seen, it would
//! agree with what is wrong there, and nothing could say any more what was right.

use crate::damage::BLOCK;
use crate::scrub::{Found, Outcome, PARITY};
use crate::shard::Shard;
use forebay_base::planted::{Bug, active};
use forebay_device::SlotRef;
use forebay_qos::{Task, Work};
use forebay_runtime::yield_now;
use forebay_space::{ChunkId, ChunkKind, Ptr};
use forebay_tree::FANOUT;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Chunks that are closed together, and lines that are compared together.
const CHUNKS: usize = 8;
const LINES: u64 = 16;
/// How often blocks of lines are looked at once more, since a snapshot was deleted meanwhile.
const RESTORE_TRIES: usize = 3;
/// Chunks that are looked at, for whether they have parity, between two yields.
const LOOKS_MAX: usize = 4096;

impl Shard {
    /// Adds to `found` the next chunks with parity, from a number on, up to [`CHUNKS`] of them; gives the last chunk that it looked at.
    fn chunks_with_parity(&self, from: u64, found: &mut Vec<ChunkId>) -> Option<ChunkId> {
        let (space, from) = (self.space.borrow(), u32::try_from(from).ok()?);
        let mut last = None;
        for chunk in space.chunks_from(ChunkId(from)).take(LOOKS_MAX) {
            last = Some(chunk.entry.id);
            let is_data = matches!(chunk.entry.kind, ChunkKind::Data { .. });
            if is_data && self.array.cell_bytes(&chunk.entry.slots).is_some() {
                found.push(chunk.entry.id);
            }
            if found.len() == CHUNKS {
                break;
            }
        }
        last
    }

    /// The next chunks whose parity is to be compared, closed; nothing when all have been.
    pub(crate) async fn close_for_parity(self: &Rc<Self>) -> Option<Vec<ChunkId>> {
        let mut from = match self.scrub.at.get() {
            Some((PARITY, next)) => next,
            _ => 0,
        };
        let mut chunks: Vec<ChunkId> = Vec::new();
        while chunks.len() < CHUNKS
            && let Some(passed) = self.chunks_with_parity(from, &mut chunks)
        {
            from = u64::from(passed.0) + 1;
            yield_now().await;
        }
        self.scrub.next_parity.set(Some((PARITY, from)));
        if chunks.is_empty() {
            self.scrub.at.set(None);
            return None;
        }
        let closed = chunks.into_iter().filter(|id| self.space.borrow_mut().begin_move(*id)).collect();
        self.drain().await;
        Some(closed)
    }

    /// Compares the parity of closed chunks and computes it anew where it differs; opens them again. Gives those that it has left closed: what had been
    /// promised there when they closed is to be part of the next checkpoint. The last time, they are passed over.
    pub(crate) async fn scrub_parity(self: &Rc<Self>, chunks: Vec<ChunkId>, is_last: bool) -> Vec<ChunkId> {
        let mut pace = self.pace(Task::Scrub);
        let (mut unsettled, mut passed_over) = (Vec::new(), 0);
        for id in &chunks {
            if !self.settle(*id).await {
                unsettled.push(*id);
                continue;
            }
            if self.read_maps([*id]).await.is_err() {
                passed_over += 1;
                continue;
            }
            let Some(slots) = self.space.borrow().chunk(*id).map(|chunk| chunk.entry.slots.clone()) else {
                continue;
            };
            // With cells of one byte, a slot's bytes are its lines.
            let ranges = self.space.borrow().slot_ranges(*id, 1);
            let cell = self.array.cell_bytes(&slots).unwrap_or(0);
            let mut suspects = BTreeSet::new();
            // Without a disk its parity may be all that there is of it.
            let is_whole = || {
                slots.iter().all(|slot| self.array.member(slot.disk).is_some())
                    && !active(Bug::ScrubLeavesUnread)
            };
            for range in ranges {
                let mut first = range.start;
                while first < range.end {
                    let lines = LINES.min(self.turns.places_max() as u64);
                    let end = range.end.min(first + lines);
                    let bytes = (end - first) * cell * slots.len() as u64;
                    pace.step_soon(Work::read(bytes, slots.len())).await;
                    let found = self.array.scrub_lines(&slots, first..end).await;
                    suspects.extend(found.mismatched);
                    suspects.extend(found.unread.into_iter().filter(|_| is_whole()));
                    self.scrub_found(Found { bytes, ..Found::default() });
                    pace.rest().await;
                    if self.is_scrub_halted() {
                        break;
                    }
                    first = end;
                }
            }
            if !suspects.is_empty() {
                passed_over += u64::from(!self.restore_lines(*id, &slots, suspects).await);
            }
        }
        let is_halted = self.is_scrub_halted();
        if is_last || is_halted || active(Bug::ScrubPassesOver) {
            passed_over += std::mem::take(&mut unsettled).len() as u64;
        }
        let is_done = |id: &&ChunkId| !unsettled.contains(id);
        chunks.iter().filter(is_done).for_each(|id| self.space.borrow_mut().end_move(*id));
        self.progress.changed();
        if is_halted {
            return unsettled;
        }
        self.scrub_found(Found { passed_over, ..Found::default() });
        if unsettled.is_empty() {
            self.scrub.at.set(self.scrub.next_parity.get());
        } else {
            // What was on its way to the log when they closed is staged now.
            self.drain().await;
        }
        unsettled
    }

    /// Computes anew what cannot be read of lines of a closed chunk, and their parity where it does not agree, after their blocks were found
    /// right. Not when a snapshot is deleted meanwhile: what it shared with others was left to it. False when they are left as they are.
    async fn restore_lines(
        self: &Rc<Self>,
        id: ChunkId,
        slots: &[SlotRef],
        mut lines: BTreeSet<u64>,
    ) -> bool {
        for _ in 0..RESTORE_TRIES {
            let dooms = self.scrub.dooms.get();
            if !self.mend_lines(id, &mut lines).await {
                return false;
            }
            if self.scrub.dooms.get() == dooms {
                self.restore_parity_of(slots, lines).await;
                return true;
            }
        }
        false
    }

    /// Makes the blocks right that lie in these lines of a closed chunk; takes out the lines of those that are lost. False when some cannot be
    /// looked at.
    async fn mend_lines(self: &Rc<Self>, id: ChunkId, lines: &mut BTreeSet<u64>) -> bool {
        let mut number = 0;
        while let Some(found) = self.next_number(number) {
            number = found + 1;
            let Some(walkable) = self.walkable(found) else { continue };
            let dataset = &walkable.dataset;
            let mut next = 0;
            loop {
                yield_now().await;
                // Only from leaf to leaf: the chunk is closed, so nothing else is written to it in between.
                let _hold = self.holds.take();
                if walkable.is_gone() {
                    break;
                }
                let Ok(leaf) = self.next_leaf(dataset, next).await else { return false };
                let Some(leaf) = leaf else { break };
                next = leaf + 1;
                match walkable.shares(self, leaf).await {
                    Ok(false) => {}
                    Ok(true) => continue,
                    Err(_) => return false,
                }
                let Ok(ptrs) = self.leaf_pointers(dataset, leaf).await else { return false };
                let is_there = |ptr: &Ptr| walkable.has(ptr) && ptr.addr().chunk() == id;
                for (block, ptr) in (leaf * FANOUT..).zip(&ptrs).filter(|(_, ptr)| is_there(ptr)) {
                    let own = self.space.borrow().lines_of(ptr).into_iter().flatten();
                    let own: Vec<u64> = own.filter(|line| lines.contains(line)).collect();
                    if !own.is_empty() && self.scrub_block(ptr).await == Outcome::Lost {
                        self.tell_lost(dataset, (BLOCK, block), ptr);
                        // Its parity may be all that is left of it.
                        lines.retain(|line| !own.contains(line));
                    }
                }
            }
        }
        true
    }

    async fn restore_parity_of(&self, slots: &[SlotRef], lines: BTreeSet<u64>) {
        for line in lines {
            let (mut found, mut touched) =
                (self.array.scrub_lines(slots, line..line + 1).await, Default::default());
            let mut restored = false;
            if !found.unread.is_empty() {
                restored =
                    self.array.restore_unread(slots, line, &mut touched).await.is_ok_and(|whole| whole);
                found = self.array.scrub_lines(slots, line..line + 1).await;
            }
            if !found.mismatched.is_empty() {
                let left = self.array.restore_parity(slots, line..line + 1, &mut touched).await;
                restored = left.is_ok_and(|left| left.is_empty());
            }
            if restored && self.array.flush(&touched).await.is_ok() {
                self.scrub_found(Found { repaired: 1, ..Found::default() });
            }
        }
    }
}
