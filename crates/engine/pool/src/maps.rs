//! Reading the records of chunks when it is needed which of their units are in use.

use crate::damage::LOOK_AGAIN;
use crate::error::IoError;
use crate::shard::Shard;
use crate::signal::Turnstile;
use crate::spec::Severity;
use forebay_base::planted::table_shape;
use forebay_device::{SlotRef, record_bytes};
use forebay_raid::{ArrayError, Good};
use forebay_space::{ChunkEntry, ChunkId, ChunkKind, decode_record};
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Records that are read at a time.
const READS_MAX: usize = 64;
/// Of a shard's memory, the part that bitmaps of chunks at rest may take beside what else it is for: of 8 GiB, those of 64 TiB.
const MAPS_PART: u64 = 4;

/// Bytes of bitmaps that are kept with so much memory.
pub(crate) fn maps_bytes_max(memory: u64) -> usize {
    table_shape().map_or((memory / MAPS_PART) as usize, |shape| shape.maps_bytes)
}

/// What is under way.
#[derive(Default)]
pub(crate) struct Maps {
    /// Chunks whose records are being read; and whoever waits for one.
    reading: RefCell<BTreeSet<ChunkId>>,
    read: Turnstile,
    /// The import has read all that it reads.
    pub is_opened: Cell<bool>,
}

/// A record that is being read; others wait for it.
struct Reading<'a> {
    shard: &'a Shard,
    id: ChunkId,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.shard.maps.reading.borrow_mut().remove(&self.id);
        self.shard.maps.read.changed();
    }
}

impl Shard {
    /// Reads the records of these chunks, as far as it is not known what they say.
    ///
    /// # Errors
    /// The pool is suspended, or has lost more disks than it can. A record that cannot be read otherwise is lost: its chunk counts as full, and an event says so.
    pub async fn read_maps(&self, ids: impl IntoIterator<Item = ChunkId>) -> Result<(), IoError> {
        let ids: BTreeSet<ChunkId> = ids.into_iter().collect();
        loop {
            // One that was written anew meanwhile, and forgotten, is to be read where it is now.
            let unread = self.space.borrow().unread(ids.iter().copied());
            if unread.is_empty() {
                return Ok(());
            }
            for batch in unread.chunks(READS_MAX.min(self.turns.places_max())) {
                let results = join_all(batch.iter().map(|entry| self.read_map(entry))).await;
                results.into_iter().collect::<Result<(), IoError>>()?;
            }
        }
    }

    /// Reads what the last allocation has looked for, before anything else is allocated. False when there was nothing.
    ///
    /// # Errors
    /// As [`Shard::read_maps`] has them.
    pub async fn read_sought(&self) -> Result<bool, IoError> {
        let sought = self.space.borrow_mut().take_sought();
        let is_sought = !sought.is_empty();
        self.read_maps(sought).await?;
        Ok(is_sought)
    }

    /// Reads what an allocation would have looked into that has found a place elsewhere. No request waits for it.
    pub fn read_later(self: &Rc<Self>) {
        let mut sought = self.space.borrow_mut().take_sought();
        sought.retain(|id| !self.maps.reading.borrow().contains(id));
        if !sought.is_empty() && !self.stopping.get() && !self.is_suspended() {
            let shard = self.clone();
            self.spawn(async move { _ = shard.read_maps(sought).await });
        }
    }

    /// Reads the records of chunks of nodes, which stay in memory: nodes are promised before it is said which.
    pub async fn read_maps_of_nodes(&self) -> Result<(), IoError> {
        let ids: Vec<ChunkId> = {
            let space = self.space.borrow();
            space.chunks_of(ChunkKind::Node).map(|chunk| chunk.entry.id).collect()
        };
        self.read_maps(ids).await
    }

    async fn read_map(&self, entry: &ChunkEntry) -> Result<(), IoError> {
        if self.maps.reading.borrow().contains(&entry.id) {
            self.maps.read.until(|| !self.maps.reading.borrow().contains(&entry.id)).await;
            return Ok(());
        }
        self.maps.reading.borrow_mut().insert(entry.id);
        let _reading = Reading { shard: self, id: entry.id };
        let is_rescue = self.shared.import.is_rescue();
        let is_current = || self.space.borrow().wants(entry);
        let decode = |bytes: &[u8]| decode_record(bytes, self.shared.id, entry).map(|(stored, _)| stored);
        let mut waits = LOOK_AGAIN.iter();
        let read = loop {
            // One that is not the chunk's any more may say what it likes.
            let check = |bytes: &[u8]| decode(bytes).is_some() || !is_current();
            match self.read_record(&entry.slots, entry, check).await {
                Ok(good) => break Some(good),
                Err(_) if self.is_suspended() => return Err(IoError::Suspended),
                // An import is refused then, or only shows what is left.
                Err(_) if self.array.is_lost() && !self.maps.is_opened.get() => {
                    self.space.borrow_mut().has_read(entry, None);
                    return Ok(());
                }
                Err(_) if self.array.is_lost() => return Err(IoError::Io),
                Err(_) => match waits.next() {
                    Some(wait) => self.rt.sleep(*wait).await,
                    None => break None,
                },
            }
        };
        let stored = read.as_ref().and_then(|good| decode(&good.bytes));
        if !is_current() || !self.space.borrow_mut().has_read(entry, stored.as_ref()) {
            return Ok(());
        }
        if read.is_some_and(|good| !good.bad.is_empty()) {
            self.space.borrow_mut().rewrite_record(entry.id);
        }
        if stored.is_none() && !is_rescue {
            let message =
                format!("the free-space record of chunk {} is lost; its free space stays unused", entry.id.0);
            self.event(Severity::Warning, "space.record_lost", &self.shared.name.clone(), message);
        }
        Ok(())
    }

    /// Reads the record that an entry names from the first of these slots that has one that `check` accepts.
    pub async fn read_record(
        &self,
        slots: &[SlotRef],
        entry: &ChunkEntry,
        check: impl Fn(&[u8]) -> bool,
    ) -> Result<Good, ArrayError> {
        let len = record_bytes(entry.units.into()) as usize;
        self.array.read_record(slots, entry.alternate, len, check).await
    }
}
