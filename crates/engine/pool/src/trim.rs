//! Trim: tells the disks which of their space holds nothing, so that flash can erase it ahead of writes, and thin disks and files
//! give it back to whoever lends it.
//!
//! Space that is free now may be promised the next moment, and a discard that comes after the write destroys it. So what
//! is discarded is kept from everybody meanwhile: slots that no chunk has are taken, few of a disk's at a time, so that
//! there is always room for new ones; chunks are closed as for a move ([`crate::relocate`]) until what had been promised there is written. Of lines only
//! those are discarded of which no cell is in use: parity covers them all. What the last checkpoint still needs counts as in use.

use crate::control::Control;
use crate::error::{Error, ErrorKind};
use crate::heal::as_task;
use crate::shard::Shard;
use forebay_base::planted::{Bug, active};
use forebay_device::{SlotRef, UNIT};
use forebay_qos::{Task, Work};
use forebay_raid::DiskSet;
use forebay_space::{Chunk, ChunkId, ChunkKind};
use std::ops::{AddAssign, ControlFlow, Range};
use std::rc::Rc;
use std::time::Duration;

/// Less is not worth a request to a disk.
const LEAST: u64 = 16 << 10;
/// Chunks that are closed together.
const CHUNKS: usize = 8;
/// Slots that are taken together, on each disk.
const SLOTS: u32 = 32;

/// What became of a trim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes of disk that were discarded.
    pub bytes: u64,
    /// Names of the disks that do not take discards.
    pub without: Vec<String>,
}

/// The same on its way from the shards.
#[derive(Default)]
struct Part {
    bytes: u64,
    without: DiskSet,
}

impl AddAssign for Part {
    fn add_assign(&mut self, other: Part) {
        self.bytes += other.bytes;
        self.without.union(&other.without);
    }
}

impl Shard {
    /// Closes the next chunks from number `from` on that have something to discard; gives them, and the number after them.
    async fn close_for_trim(self: &Rc<Self>, from: u32) -> (Vec<ChunkId>, u32) {
        let mut next: Vec<(ChunkId, bool)> = Vec::with_capacity(CHUNKS);
        let visit = |chunk: &Chunk| {
            let entry = &chunk.entry;
            // Of one whose record has not been read, some of what is free may lie together.
            let has_unused = || match chunk.is_read() {
                true => !self.unused(entry.id).is_empty(),
                false => u64::from(chunk.busy.zeros()) * UNIT >= LEAST,
            };
            if entry.kind != ChunkKind::Log && has_unused() {
                next.push((entry.id, entry.kind == ChunkKind::Node));
            }
            if next.len() < CHUNKS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.visit_chunks(ChunkId(from), visit).await;
        let end = next.last().map_or(u32::MAX, |(last, _)| last.0 + 1);
        // Those that have been forgotten meanwhile are looked at when they are closed.
        if self.read_maps(next.iter().map(|(id, _)| *id)).await.is_ok() {
            next.retain(|(id, _)| {
                !self.space.borrow().unread([*id]).is_empty() || !self.unused(*id).is_empty()
            });
        }
        let is_open = active(Bug::TrimsOpenChunk);
        let (nodes, others): (Vec<_>, Vec<_>) = next.into_iter().partition(|(_, has_nodes)| *has_nodes);
        let close = |id: &ChunkId| is_open || self.space.borrow_mut().begin_move(*id);
        let mut closed: Vec<ChunkId> = others.into_iter().map(|(id, _)| id).filter(close).collect();
        // What is promised there goes there, for which it may need nodes.
        self.drain().await;
        for (id, _) in nodes {
            if (is_open || self.spare_nodes(id).await) && close(&id) {
                closed.push(id);
            }
        }
        (closed, end)
    }

    /// The bytes of each of a chunk's slots that hold nothing.
    fn unused(&self, id: ChunkId) -> Vec<Range<u64>> {
        let space = self.space.borrow();
        let Some(slots) = space.chunk(id).map(|chunk| &chunk.entry.slots) else { return Vec::new() };
        let Some(end) = self.array.slot_bytes(slots) else { return Vec::new() };
        let used = space.slot_ranges(id, self.array.cell_bytes(slots).unwrap_or(0));
        let starts = std::iter::once(0).chain(used.iter().map(|range| range.end));
        let ends = used.iter().map(|range| range.start).chain([end]);
        starts
            .zip(ends)
            .map(|(start, end)| start..end)
            .filter(|range| range.end - range.start >= LEAST)
            .collect()
    }

    /// Discards what is unused in closed chunks, and opens them.
    async fn trim_chunks(self: &Rc<Self>, chunks: Vec<ChunkId>) -> Part {
        let mut part = Part::default();
        for id in &chunks {
            let early = match active(Bug::TrimsOpenChunk) && self.read_maps([*id]).await.is_ok() {
                true => Some(self.unused(*id)),
                false => None,
            };
            if early.is_some() {
                self.rt.sleep(Duration::from_millis(2)).await;
            }
            if early.is_some() || (self.settle(*id).await && self.read_maps([*id]).await.is_ok()) {
                let slots = self.space.borrow().chunk(*id).map(|chunk| chunk.entry.slots.clone());
                for range in early.unwrap_or_else(|| self.unused(*id)) {
                    for slot in slots.iter().flatten() {
                        part += self.discard_slot(*slot, range.clone()).await;
                    }
                }
            }
            self.space.borrow_mut().end_move(*id);
            self.progress.changed();
        }
        part
    }

    async fn discard_slot(self: &Rc<Self>, slot: SlotRef, range: Range<u64>) -> Part {
        let mut part = Part::default();
        let mut pace = self.pace(Task::Trim);
        pace.step_soon(Work::write(0, 1)).await;
        let bytes = range.end - range.start;
        match self.array.discard(slot, range).await {
            Some(Ok(())) => part.bytes = bytes,
            Some(Err(_)) => part.without.insert(slot.disk),
            None => {}
        }
        pace.rest().await;
        part
    }
}

impl Control {
    /// Discards all free space of the disks in service.
    pub async fn trim(self: &Rc<Self>) -> Result<Trimmed, Error> {
        if self.trimming.replace(true) {
            return Err(self.error(ErrorKind::Conflict, "a trim is running already; wait for its end"));
        }
        let result = self.trim_all().await;
        self.trimming.set(false);
        let part = result?;
        let disks = 0..self.disks.borrow().len();
        let without =
            disks.filter(|disk| part.without.contains(*disk as u16)).map(|disk| self.disk_name(disk));
        Ok(Trimmed { bytes: part.bytes, without: without.collect() })
    }

    async fn trim_all(self: &Rc<Self>) -> Result<Part, Error> {
        let mut all = Part::default();
        for index in 0..self.shard_count() {
            let mut from = 0;
            while from < u32::MAX {
                self.refuse_when_ending()?;
                let _turn = self.slots_turn().await;
                let close = move |shard: Rc<Shard>| async move {
                    as_task(&shard, move |shard| async move { shard.close_for_trim(from).await }).await
                };
                let Some((chunks, next)) = self.on_shard(index, close).await? else { break };
                from = next;
                let settled = match chunks.is_empty() {
                    true => Ok(0),
                    false => self.checkpoint().await,
                };
                let trim = move |shard: Rc<Shard>| async move {
                    as_task(&shard, |shard| async move { shard.trim_chunks(chunks).await }).await
                };
                all += self.on_shard(index, trim).await?.unwrap_or_default();
                settled?;
            }
        }
        let disks = self.disks.borrow().len() as u16;
        for disk in 0..disks {
            all += self.trim_slots(disk).await?;
        }
        Ok(all)
    }

    /// Discards the slots of a disk that no chunk has.
    async fn trim_slots(self: &Rc<Self>, disk: u16) -> Result<Part, Error> {
        let mut all = Part::default();
        let mut from = 0;
        loop {
            self.refuse_when_ending()?;
            let taken = self.slots.borrow_mut().take_free(disk, from, SLOTS);
            let Some(last) = taken.last() else { return Ok(all) };
            from = last.slot + 1;
            let slots = taken.clone();
            let discard = move |shard: Rc<Shard>| async move {
                let mut part = Part::default();
                for slot in slots {
                    if let Some(end) = shard.array.slot_bytes(&[slot]) {
                        part += shard.discard_slot(slot, 0..end).await;
                    }
                }
                part
            };
            let discarded = self.on_shard(0, |shard| async move { as_task(&shard, discard).await }).await;
            taken.into_iter().for_each(|slot| self.slots.borrow_mut().vacate(slot));
            all += discarded?.unwrap_or_default();
        }
    }

    fn refuse_when_ending(&self) -> Result<(), Error> {
        match self.is_ending() {
            true => Err(self.error(ErrorKind::Conflict, "the trim ended early: the pool is being closed, or has stopped writing. Start it again when the pool is in service")),
            false => Ok(()),
        }
    }
}
