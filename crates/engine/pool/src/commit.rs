//! Group commit: what arrived while the previous commit was in flight goes with the next.
//!
//! One task per shard takes the queue, writes the data (merged where it is adjacent) and one log frame in
//! parallel, flushes each device touched once, applies the records to the trees in log order, and only then
//! acknowledges. Frames are written one at a time, so a valid frame n+1 proves that frame n was complete;
//! whether it was also flushed is told by the `durable` field (see `forebay_log`).
//!
//! Large writes bring their data to disk before they queue ([`Shard::write_ahead`]): their commit is a frame and a flush, and
//! the device goes on with the data of the next ones meanwhile.

use crate::Severity;
use crate::damage::BLOCK;
use crate::dataset::{Dataset, Staged};
use crate::destage::Ending;
use crate::entry::{Change, Entry};
use crate::error::IoError;
use crate::pack::Block;
use crate::parts::IN_PART;
use crate::shard::Shard;
use forebay_base::codec::Writer;
use forebay_base::planted::{Bug, active};
use forebay_device::SlotRef;
use forebay_log::{FRAME_HEADER, Frame, Ring, encode_frame};
use forebay_raid::{DiskSet, Writing};
use forebay_runtime::{Buf, yield_now};
use forebay_space::Ptr;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Data from this size on is written before its commit, not with it.
pub(crate) const AHEAD_BYTES: usize = 64 << 10;
/// One frame's records, if they are more than one entry's: a longer frame would delay who waits for it.
const FRAME_RECORDS_MAX: usize = 256 << 10;
/// One commit's data, for the same reason.
const COMMIT_BYTES_MAX: usize = 8 << 20;
/// Acknowledged writes that a crash may take back under `sync=standard` before a flush is made for them.
const UNFLUSHED_BYTES_MAX: usize = 32 << 20;
/// After this long without work, a frame says that the last one is durable, so that a later import need not doubt it.
const MARKER_DELAY: Duration = Duration::from_millis(2);
/// Cached copies of written blocks: larger writes are streams, which would sweep the cache.
const CACHE_WRITE_BYTES_MAX: usize = 64 << 10;

/// A batch on its way to disk.
struct Batch {
    entries: Vec<Entry>,
    touched: DiskSet,
    bytes: usize,
}

impl Batch {
    /// Whether somebody waits until it is on stable storage.
    fn is_durable(&self) -> bool {
        self.entries.iter().any(|entry| entry.durable)
    }
}

fn skips_flush() -> bool {
    active(Bug::SkipLogFlush) || active(Bug::SkipDataFlush) || active(Bug::AckBeforeFlush)
}

impl Shard {
    /// Queues an entry; what it brings is pending from here on.
    pub fn submit(&self, mut entry: Entry) {
        if entry.turn.is_none() {
            entry.turn = Some(self.unasked_write(&entry));
        }
        entry.changes.iter().for_each(|change| change.make_pending(entry.id, !entry.durable));
        entry.records_bytes = entry.records().map(|record| record.len()).sum();
        self.queued_bytes.set(self.queued_bytes.get() + entry.records_bytes);
        self.queue.borrow_mut().push_back(entry);
        self.work.send();
    }

    /// The task that makes commits, until the shard stops, its queue is empty, and no other task is left that could queue
    /// something and wait for it.
    pub async fn commit_task(self: Rc<Self>) {
        loop {
            if let Some(done) = self.freeze_request.borrow_mut().take() {
                let frozen = self.freeze_now();
                *self.frozen.borrow_mut() = Some(frozen);
                self.checkpoint_wanted.set(false);
                done.complete(());
            }
            let batch = self.next_batch();
            if !batch.is_empty() {
                self.commit(batch).await;
                // Who was answered asks again now, and goes with the next commit: otherwise clients fall into two halves that wait for each other's.
                yield_now().await;
            } else if self.stopping.get() && self.tasks.get() == 1 {
                return;
            } else if !self.wait_for_work().await {
                self.commit(Vec::new()).await;
            }
        }
    }

    /// Waits for entries or requests. False when none came and the last frame wants a marker.
    async fn wait_for_work(&self) -> bool {
        // The last frame is flushed, and no later one says so yet.
        let unmarked = {
            let log = self.log.borrow();
            log.durable + 1 == log.chain.sequence && log.marked < log.durable
        };
        // In a full log, a flush without data would wait behind the marker.
        if !unmarked || !self.has_room_in_log(Frame::length_for(0)) || self.has_ended() {
            self.work.wait().await;
            return true;
        }
        let (work, delay) = (pin!(self.work.wait()), self.rt.sleep(MARKER_DELAY));
        matches!(select(work, delay).await, Either::Left(_))
    }

    fn next_batch(&self) -> Vec<Entry> {
        let mut queue = self.queue.borrow_mut();
        let (mut records, mut data) = (0, 0);
        let records_max = FRAME_RECORDS_MAX.min(self.log.borrow().ring.bytes() as usize / 8);
        let mut batch = Vec::new();
        while let Some(entry) = queue.front() {
            records += entry.records_bytes;
            data += entry.data_bytes();
            if !batch.is_empty() && (records > records_max || data > COMMIT_BYTES_MAX) {
                break;
            }
            batch.extend(queue.pop_front());
        }
        batch
    }

    /// Commits a batch; an empty one makes a marker frame.
    async fn commit(self: &Rc<Self>, entries: Vec<Entry>) {
        self.committed_together.set(entries.len());
        let mut batch = Batch { entries, touched: DiskSet::default(), bytes: 0 };
        let result = self.make_durable(&mut batch).await;
        if result.is_err_and(|error| error != IoError::Gone)
            && batch.entries.iter().any(|entry| !entry.changes.is_empty())
        {
            self.suspend("a commit could not be written");
        }
        let result = if self.is_suspended() { Err(IoError::Suspended) } else { result };
        let is_lost = result == Err(IoError::Gone) && batch.entries.iter().any(Entry::is_acknowledged);
        if is_lost && !self.stopping.get() && self.ending.replace(Ending::Told) != Ending::Told {
            let message = "the log stayed full while the pool was exported: the last writes that were not flushed may be lost. \
                           Check the file systems on its volumes. After the next import, add disks, or delete volumes or snapshots";
            self.event(Severity::Error, "log.full", &self.shared.name.clone(), message.into());
        }
        for entry in batch.entries {
            drop(entry.nodes);
            self.queued_bytes.set(self.queued_bytes.get() - entry.records_bytes);
            let id = entry.id;
            for change in entry.changes {
                match result {
                    Ok(()) => self.apply(change, id),
                    Err(_) => self.drop_change(change, id),
                }
            }
            if let Some(done) = entry.done {
                done.complete(result);
            }
        }
    }

    /// Writes data and frame, and flushes when someone waits for it.
    async fn make_durable(self: &Rc<Self>, batch: &mut Batch) -> Result<(), IoError> {
        if self.is_suspended() {
            return Err(IoError::Suspended);
        }
        // Nor is anything durable that came after what did not fit: also a flush without changes of its own.
        if self.ending.get() >= Ending::GaveUp {
            return Err(IoError::Gone);
        }
        let marker = batch.entries.is_empty();
        let flush_only = !marker && batch.entries.iter().all(|entry| entry.changes.is_empty());
        if !flush_only {
            self.write_batch(batch).await?;
        }
        let must_flush = {
            let mut log = self.log.borrow_mut();
            log.unflushed.union(&batch.touched);
            log.unflushed_bytes += batch.bytes;
            let is_wanted = batch.is_durable() || log.unflushed_bytes > UNFLUSHED_BYTES_MAX;
            !marker && is_wanted && !log.unflushed.is_empty()
        };
        if must_flush {
            self.flush_log().await?;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    async fn flush_log(&self) -> Result<(), IoError> {
        let (disks, upto) = {
            let mut log = self.log.borrow_mut();
            log.unflushed_bytes = 0;
            (std::mem::take(&mut log.unflushed), log.chain.sequence - 1)
        };
        if skips_flush() {
            return Ok(());
        }
        let flushed = self.array.flush(&disks).await;
        flushed.map_err(|_| IoError::Io)?;
        self.log.borrow_mut().durable = upto;
        Ok(())
    }

    /// Writes a batch's data and its frame in parallel. A frame that has all that is not durable yet is written so that it is.
    async fn write_batch(self: &Rc<Self>, batch: &mut Batch) -> Result<(), IoError> {
        let payload: usize = batch.entries.iter().map(|entry| entry.records_bytes).sum();
        let length = Frame::length_for(payload);
        self.wait_for_room(length).await?;
        let mut data = Vec::new();
        for entry in &batch.entries {
            batch.bytes += entry.data_bytes();
            match &entry.ahead {
                Some(ahead) => batch.touched.union(ahead.as_ref().map_err(|error| *error)?),
                None => entry.add_data(&mut data),
            }
        }
        let is_alone = batch.is_durable()
            && data.is_empty()
            && batch.touched.is_empty()
            && self.log.borrow().unflushed.is_empty()
            && !skips_flush();
        let mut writes = self.start_writes(data);
        // Only now is it certain on which side of a snapshot they come to lie.
        batch.entries.iter_mut().for_each(|entry| entry.born_in(self.epoch.get()));
        let frame = self.encode_batch(batch, payload, length);
        batch.bytes += length;
        writes.extend(self.start_frame(frame, is_alone));
        self.written(writes, &mut batch.touched).await?;
        if is_alone {
            batch.touched = DiskSet::default();
            batch.bytes = 0;
            let mut log = self.log.borrow_mut();
            log.durable = log.chain.sequence - 1;
            if !batch.entries.iter().any(Entry::has_pointers) {
                // An import finds all of it in the frame: it has nothing to doubt.
                log.marked = log.durable;
            }
        }
        Ok(())
    }

    fn encode_batch(&self, batch: &Batch, payload: usize, length: usize) -> Buf {
        let mut bytes = self.rt.buffer(length);
        let mut w = Writer::new(&mut bytes[FRAME_HEADER..FRAME_HEADER + payload]);
        let mut records = 0;
        for record in batch.entries.iter().flat_map(Entry::records) {
            record.encode(&mut w);
            records += 1;
        }
        let mut log = self.log.borrow_mut();
        let (context, chain) = (self.frame_context(), log.chain);
        let frame = encode_frame(&mut bytes, context, &chain, log.incarnation, log.durable, records, payload);
        log.frame_start = chain;
        log.marked = log.durable;
        log.chain = frame.next();
        bytes.freeze()
    }

    /// Starts writing the frame that ends where the chain now stands; when that is over, it is `durable`.
    fn start_frame(&self, frame: Buf, durable: bool) -> Vec<Writing> {
        let log = self.log.borrow();
        let position = log.chain.position - frame.len() as u64;
        let write_to = |ring: Ring, slots: &dyn Fn(usize) -> Vec<SlotRef>| {
            let mut from = 0;
            let write = |piece: forebay_log::Piece| {
                let part = frame.slice(from, piece.len);
                from += piece.len;
                let slots = slots(piece.chunk);
                match durable {
                    true => self.array.write_copies_durable(&slots, piece.offset, vec![part]),
                    false => self.array.write_copies(&slots, piece.offset, vec![part]),
                }
            };
            ring.pieces(position, frame.len()).into_iter().map(write).collect::<Vec<_>>()
        };
        let mut writes = write_to(log.ring, &|chunk| {
            let twins = log.twins.iter().filter(|twin| twin.order == chunk).map(|twin| twin.target);
            log.chunks[chunk].iter().copied().chain(twins).collect()
        });
        let successor = log.successor.as_ref().filter(|_| !active(Bug::LogMovesWithoutFrames));
        if let Some(successor) = successor {
            writes.extend(write_to(successor.ring, &|chunk| successor.chunks[chunk].slots.clone()));
        }
        writes
    }

    /// Makes a durable change part of the state that clients see and the next checkpoint writes.
    fn apply(self: &Rc<Self>, change: Change, entry: u64) {
        let mut freed = Vec::new();
        match change {
            Change::Write { dataset, first, ptrs, parts, destage, .. } => {
                let end = first + ptrs.len() as u64;
                let small = parts.iter().map(|part| part.len()).sum::<usize>() <= CACHE_WRITE_BYTES_MAX;
                self.change_tree(&dataset, |tree| tree.set(first, &ptrs, &mut freed));
                if ptrs.iter().any(Ptr::is_hole) && active(Bug::ZerosFreeNothing) {
                    freed.clear();
                }
                self.account(&dataset, &ptrs, &freed);
                if destage {
                    // What it was a part of is lost, and the place of that forgotten.
                    let in_part = (first..).zip(&ptrs).filter(|(_, ptr)| ptr.kind() == IN_PART);
                    in_part.for_each(|(block, ptr)| _ = self.note_lost(dataset.id(), BLOCK, block, ptr));
                }
                if active(Bug::FreesNewPointer) {
                    freed.clone_from(&ptrs);
                }
                {
                    let mut space = self.space.borrow_mut();
                    ptrs.iter().filter(|ptr| !ptr.is_hole()).for_each(|ptr| space.applied(ptr));
                }
                if small && !destage {
                    // Their first read will bring them into the cache.
                    let mut doorkeeper = self.doorkeeper.borrow_mut();
                    for ptr in ptrs.iter().filter(|ptr| !ptr.is_hole()) {
                        doorkeeper.knows(ptr.addr().0);
                    }
                }
                dataset.pending.borrow_mut().settle(first, end, entry);
                if !destage {
                    dataset.note_changed(first, end);
                }
                for (block, staged) in dataset.take_staged(first, end) {
                    // A destaged block is now in the place that was reserved for it.
                    let ptr = ptrs[(block - first) as usize];
                    if staged.place.is_some_and(|place| place.addr() == ptr.addr()) {
                        self.placed.borrow_mut().remove(&ptr.addr());
                        self.forget_staged(&dataset, block, &staged);
                    } else {
                        self.unstage(&dataset, block, &staged);
                    }
                }
                self.note_loaded(&dataset, first, end - 1);
            }
            Change::Data { dataset, first, blocks } => {
                let sequence = self.log.borrow().chain.sequence - 1;
                dataset.note_changed(first, first + blocks.len() as u64);
                self.stage(&dataset, first, blocks, sequence, entry);
            }
            Change::Parts { dataset, block, parts, place } => {
                let sequence = self.log.borrow().chain.sequence - 1;
                dataset.note_changed(block, block + 1);
                self.stage_parts(&dataset, block, &parts, Some(place), sequence);
            }
            Change::Clear { dataset, first, count } => {
                let staged = dataset.take_staged(first, first + count);
                staged.iter().for_each(|(block, staged)| self.unstage(&dataset, *block, staged));
                self.change_tree(&dataset, |tree| tree.clear(first, count, &mut freed));
                self.account(&dataset, &[], &freed);
                dataset.note_changed(first, first + count);
            }
            Change::Put { record, tree, .. } => self.apply_put(*record, tree),
            Change::Grant { chunk } => self.space.borrow_mut().grant_logged(chunk.id),
            Change::Items { changes } => self.items.borrow_mut().change_all(&changes),
            Change::Plug { .. } | Change::Plugged => {}
        }
        freed.iter().for_each(|ptr| self.space.borrow_mut().freed(ptr));
        self.settle_damage();
    }

    /// Puts blocks that are durable in frame `sequence` of the log where reads find them.
    pub fn stage(
        &self,
        dataset: &Dataset,
        first: u64,
        blocks: Vec<(Block, Option<Ptr>)>,
        sequence: u64,
        entry: u64,
    ) {
        dataset.pending.borrow_mut().settle(first, first + blocks.len() as u64, entry);
        for (number, (block, place)) in (first..).zip(blocks) {
            self.insert_staged(dataset, number, Staged { sequence, block, place, parts: None });
        }
        self.destage_work.send();
    }

    /// Puts a block that is durable in a frame of the log, the one that is being applied or one that has staged blocks, in the place of what
    /// was staged of it before.
    pub fn insert_staged(&self, dataset: &Dataset, block: u64, staged: Staged) {
        {
            let mut log = self.log.borrow_mut();
            let start = log.frame_start;
            log.staged.insert((staged.sequence, dataset.number(), block), start);
        }
        self.staged_bytes.set(self.staged_bytes.get() + staged.block.data.len());
        let place = staged.place;
        let before = dataset.staged.borrow_mut().insert(block, staged);
        if let Some(before) = before {
            self.unstage(dataset, block, &before);
        }
        match place {
            Some(place) => self.note_placed(dataset.number(), block, &place),
            None => self.has_unplaced.set(true),
        }
    }

    /// Takes note of leaves that a write made or changed in memory.
    fn note_loaded(&self, dataset: &Dataset, first: u64, last: u64) {
        let number = dataset.number();
        for leaf in first / forebay_tree::FANOUT..=last / forebay_tree::FANOUT {
            let loaded = dataset.tree.borrow().is_loaded(0, leaf);
            if loaded {
                self.leaf_loaded(number, leaf);
            }
        }
    }

    /// Undoes what queueing did, for an entry that failed. The pool is suspended: nothing is allocated any more, so space
    /// stays reserved until the next import, which finds the truth.
    ///
    /// What was acknowledged before it was durable stays where clients see it: they were told that it is written.
    fn drop_change(&self, change: Change, entry: u64) {
        let (dataset, first, count) = match &change {
            Change::Write { dataset, first, ptrs, .. } => (dataset, *first, ptrs.len()),
            Change::Data { dataset, first, blocks } => (dataset, *first, blocks.len()),
            _ => return,
        };
        dataset.pending.borrow_mut().abandon(first, first + count as u64, entry);
    }
}
