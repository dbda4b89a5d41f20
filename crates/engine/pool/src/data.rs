//! What entries bring to the data disks, before their commit or with it.
//!
//! Large writes bring their data to disk before they queue: their commit is a frame and a flush, and the device goes on with the data of
//! the next ones meanwhile. What the pool itself moves is flushed before it queues as well: no client's commit waits for these disks.

use crate::entry::Entry;
use crate::error::IoError;
use crate::shard::Shard;
use crate::turns::Turn;
use forebay_base::planted::{Bug, active};
use forebay_qos::{Task, Work};
use forebay_raid::{ArrayError, DiskSet, Writing};
use forebay_runtime::Buf;
use forebay_space::Addr;
use std::rc::Rc;

/// Parts of one device write: IOV_MAX is 1024.
const PARTS_MAX: usize = 512;

impl Shard {
    /// Writes an entry's data before the entry is queued. The caller holds the lock of the blocks until then: two entries for
    /// one block stand in the log in the order in which they were made. An error is the commit's to report.
    ///
    /// Where the log has disks of its own, what has to be durable is flushed as well: a commit that touched all the data disks would keep every writer
    /// waiting for the slowest of them.
    pub async fn write_ahead(&self, entry: &mut Entry) {
        let written = self.write_data(entry, self.places_at_once()).await;
        let written = match written {
            Ok(touched) if entry.durable && self.is_beside_log(&touched) => self.flush_data(&touched).await,
            written => written,
        };
        entry.is_in_place(written);
    }

    /// Whether data goes to the log first, and the log is on none of these disks: no commit has to flush them but for this data.
    fn is_beside_log(&self, disks: &DiskSet) -> bool {
        let log = self.log.borrow();
        self.data_in_log && !log.chunks.iter().flatten().any(|slot| disks.contains(slot.disk))
    }

    /// Flushes what was written to these disks: none are left to be.
    async fn flush_data(&self, touched: &DiskSet) -> Result<DiskSet, IoError> {
        if !active(Bug::SkipDataFlush) {
            self.array.flush(touched).await.map_err(|_| IoError::Io)?;
        }
        Ok(DiskSet::default())
    }

    /// Writes an entry's data, to so many places at a time; which disks are to be flushed.
    async fn write_data(&self, entry: &Entry, places: usize) -> Result<DiskSet, IoError> {
        let mut touched = DiskSet::default();
        let mut data = Vec::new();
        entry.add_data(&mut data);
        let mut result = Ok(());
        for some in data.chunks(places) {
            result = result.and(self.written(self.start_writes(some.to_vec()), &mut touched).await);
        }
        result.map(|()| touched)
    }

    /// Queues what the pool moves, once it is durable where it goes, written to so many places at a time: no client's commit waits for these disks. The
    /// caller holds the blocks' locks.
    pub async fn submit_durable(self: &Rc<Self>, mut entry: Entry, places: usize) {
        entry.turn = Some(self.unasked_write(&entry));
        let flushed = match self.write_data(&entry, places).await {
            Ok(touched) => self.flush_data(&touched).await,
            Err(error) => Err(error),
        };
        self.keep_moved_in_flash(&entry.changes);
        entry.is_in_place(flushed);
        self.submit(entry);
    }

    pub fn unasked_write(&self, entry: &Entry) -> Turn {
        self.unasked(Task::Destage, Work::write(entry.stored_bytes() as u64, entry.places()))
    }

    /// Waits for writes; for all of them, also after one failed.
    pub async fn written(&self, writes: Vec<Writing>, touched: &mut DiskSet) -> Result<(), IoError> {
        let mut result = Ok(());
        for writing in writes {
            let written = self.array.written(writing, touched).await;
            result = result.and(written.map_err(|error: ArrayError| match error {
                ArrayError::Corrupt | ArrayError::Io => IoError::Io,
            }));
        }
        result
    }

    /// Starts writing blocks, merged where they are adjacent.
    pub fn start_writes(&self, mut blocks: Vec<(Addr, Buf)>) -> Vec<Writing> {
        blocks.sort_unstable_by_key(|(at, _)| *at);
        let has_lines = self.space.borrow().has_lines();
        if has_lines {
            blocks = self.fill_lines(blocks);
        }
        let mut writes = Vec::new();
        let mut run: Vec<Buf> = Vec::new();
        let (mut start, mut end) = (Addr::default(), Addr::default());
        let flush = |start: Addr, run: &mut Vec<Buf>, writes: &mut Vec<Writing>| {
            if !run.is_empty() {
                let space = self.space.borrow();
                let slots = &space.chunk(start.chunk()).expect("allocated from an owned chunk").entry.slots;
                let slots = if active(Bug::MirrorWritesOneCopy) { &slots[..1] } else { &slots[..] };
                writes.push(self.array.write(slots, start.offset(), std::mem::take(run)));
            }
        };
        for (at, block) in blocks {
            let len = block.len() as u64;
            // Lines must not be torn apart; the array divides what it writes of them.
            if at != end || at.chunk() != start.chunk() || (run.len() >= PARTS_MAX && !has_lines) {
                flush(start, &mut run, &mut writes);
                start = at;
            }
            match run.last_mut() {
                Some(last) if last.is_followed_by(&block) => *last = last.join(&block),
                _ => run.push(block),
            }
            end = at.plus(len);
        }
        flush(start, &mut run, &mut writes);
        writes
    }
}
