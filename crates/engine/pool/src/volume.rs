//! A volume where it is: what clients do with it, carried out on its shard. They have a [`crate::Volume`], which finds it.

use crate::dataset::{Active, Changing, Dataset};
use crate::entry::{Change, Entry};
use crate::error::IoError;
use crate::read::Reader;
use crate::record::DatasetRecord;
use crate::reserve::Claim;
use crate::shard::Shard;
use crate::signal::Pass;
use crate::spec::{Extent, SyncPolicy};
use crate::steps::Steps;
use forebay_base::planted::{Bug, active};
use forebay_runtime::{Buf, Completion};
use forebay_tree::{FANOUT, Found};
use std::ops::Range;
use std::rc::Rc;

/// The longest read or write in bytes.
pub const IO_BYTES_MAX: usize = 32 << 20;
/// Blocks that one question for extents looks at, holes between leaves apart: 512 MiB of 8 KiB blocks. Where their leaves have to be read, a disk
/// that turns takes a second for them; whoever asks for more gets that much, and asks again.
const EXTENT_BLOCKS_MAX: u64 = 64 << 10;

/// A volume in the pool and on the shard where it is. Every operation is as that of [`crate::Volume`]; once the volume has moved, or
/// is there no longer, it is `Gone`.
#[derive(Clone)]
pub(crate) struct LocalVolume {
    pub shard: Rc<Shard>,
    pub dataset: Rc<Dataset>,
}

/// A client's change that may begin.
pub(crate) struct Admitted {
    pub _active: Active,
    pub _changing: Changing,
    /// Of all but what moves bring.
    pub pass: Option<Pass>,
}

impl LocalVolume {
    pub fn of(shard: Rc<Shard>, dataset: Rc<Dataset>) -> LocalVolume {
        LocalVolume { shard, dataset }
    }
    pub fn size(&self) -> u64 {
        self.dataset.size()
    }
    pub fn block_size(&self) -> u32 {
        self.dataset.block_bytes() as u32
    }
    pub fn sync(&self) -> SyncPolicy {
        self.dataset.sync()
    }
    pub fn is_read_only(&self) -> bool {
        self.shard.shared.import.read_only
    }

    pub fn check(&self, at: u64, len: u64) -> Result<(), IoError> {
        if at.checked_add(len).is_none_or(|end| end > self.size()) {
            Err(IoError::OutOfRange)
        } else {
            Ok(())
        }
    }

    /// Counts an operation in.
    pub fn begin(&self) -> Result<Active, IoError> {
        self.shard.served.set(self.shard.served.get() + 1);
        self.dataset.begin().ok_or(IoError::Gone)
    }

    /// Counts an operation in that changes something.
    pub fn begin_change(&self) -> Result<Active, IoError> {
        let active = self.begin()?;
        if self.is_read_only() { Err(IoError::ReadOnly) } else { Ok(active) }
    }

    /// First and last block of a range that is not empty.
    pub fn blocks(&self, at: u64, len: u64) -> (u64, u64) {
        let block_bytes = u64::from(self.block_size());
        (at / block_bytes, (at + len - 1) / block_bytes)
    }

    pub async fn read(&self, at: u64, len: usize) -> Result<Vec<Buf>, IoError> {
        let _active = self.begin()?;
        self.check(at, len as u64)?;
        if len > IO_BYTES_MAX {
            return Err(IoError::OutOfRange);
        }
        if len == 0 {
            return Ok(Vec::new());
        }
        let (first, last) = self.blocks(at, len as u64);
        self.shard.read_ahead(&self.dataset, first, last);
        let reader = Reader::Consumer((at + len as u64) / u64::from(self.block_size()));
        let parts = self.shard.read_blocks(&self.dataset, first, last, reader).await?;
        let skip = (at - first * u64::from(self.block_size())) as usize;
        Ok(trim(parts, skip, len))
    }

    /// Waits a moment when the log is filling up.
    pub async fn throttle(&self) {
        let waited = self.shard.throttle().await;
        if !waited.is_zero() {
            self.flow().tally.waited_for_room(waited.as_nanos() as u64);
        }
    }

    /// Waits for its place among the writes that the shard has taken in.
    async fn enter(&self, len: usize) -> Pass {
        let flow = self.flow();
        let gate = if flow.has_floor() { &self.shard.gate_of_promised } else { &self.shard.gate };
        if let Some(pass) = gate.try_enter(len) {
            return pass;
        }
        let asked = self.shard.rt.now();
        let pass = gate.enter(len).await;
        flow.tally.waited_for_turn(self.shard.rt.now().since(asked));
        pass
    }

    /// Waits until a change of `len` bytes from `at` may begin.
    pub async fn admit(&self, at: u64, len: usize) -> Result<Admitted, IoError> {
        let active = self.begin_change()?;
        self.check(at, len as u64)?;
        self.dataset.check_quota()?;
        if len > IO_BYTES_MAX {
            return Err(IoError::OutOfRange);
        }
        let mut pass = self.enter(len).await;
        self.throttle().await;
        let changing = match self.dataset.try_change()? {
            Some(changing) => changing,
            None => {
                // Others need the place at the gate, and among them may be who ends this wait.
                drop(pass);
                let asked = self.shard.rt.now();
                let changing = self.dataset.begin_change().await?;
                self.flow().tally.was_paused(self.shard.rt.now().since(asked));
                pass = self.dataset.aside(self.enter(len)).await;
                changing
            }
        };
        // It may have gone back to what it was, and be smaller.
        self.check(at, len as u64)?;
        Ok(Admitted { _active: active, _changing: changing, pass: Some(pass) })
    }

    /// Queues an entry; gives what to wait for, if the caller must.
    pub fn queue(&self, mut entry: Entry, wait: bool) -> Option<Completion<Result<(), IoError>>> {
        let done = wait.then(|| entry.awaited());
        if !entry.durable {
            self.dataset.note_volatile();
        }
        self.shard.submit(entry);
        done
    }

    pub async fn flush(&self) -> Result<(), IoError> {
        let _active = self.begin()?;
        if self.shard.is_suspended() {
            return Err(IoError::Suspended);
        }
        if self.is_read_only() || active(Bug::FuaIgnored) {
            return Ok(());
        }
        self.flush_acknowledged().await
    }

    /// Makes every change that was acknowledged before durable, whatever the policy was then. Under `always` there is nothing to do unless
    /// some were acknowledged before the policy changed; under `disabled` a flush promises nothing.
    pub(crate) async fn flush_acknowledged(&self) -> Result<(), IoError> {
        let volatile = self.dataset.volatile().filter(|_| !active(Bug::FlushTrustsPolicy));
        match (self.sync(), volatile) {
            (SyncPolicy::Disabled, _) | (SyncPolicy::Always, None) => return Ok(()),
            (SyncPolicy::Standard, _) | (SyncPolicy::Always, Some(_)) => {}
        }
        self.shard.flush_queued().await?;
        self.dataset.note_flushed(volatile.unwrap_or(0));
        Ok(())
    }

    pub async fn status(&self, at: u64, len: u64, extents_max: usize) -> Result<Vec<Extent>, IoError> {
        let _active = self.begin()?;
        self.extents(at, len, extents_max, Reader::Client).await
    }

    /// The same for any reader. The answer ends early after [`EXTENT_BLOCKS_MAX`].
    pub async fn extents(
        &self,
        at: u64,
        len: u64,
        extents_max: usize,
        reader: Reader,
    ) -> Result<Vec<Extent>, IoError> {
        self.check(at, len)?;
        if len == 0 || extents_max == 0 {
            return Ok(Vec::new());
        }
        let block_bytes = u64::from(self.block_size());
        let (mut block, last) = self.blocks(at, len);
        let (mut extents, mut position): (Vec<Extent>, u64) = (Vec::new(), at);
        let (mut looked, mut steps) = (0, Steps::default());
        while block <= last && looked < EXTENT_BLOCKS_MAX {
            steps.take(FANOUT as usize).await;
            // Empty leaves are passed over at a stride; what is only in memory counts as data.
            let next = self.shard.next_block(&self.dataset, block, last + 1).await?.unwrap_or(last + 1);
            let mut runs = if next > block {
                vec![(next - block, false)]
            } else {
                let end = ((block / FANOUT + 1) * FANOUT).min(last + 1);
                let runs = self.shard.runs_in_memory(&self.dataset, block..end);
                looked += runs.iter().map(|(count, _)| count).sum::<u64>();
                runs
            };
            if runs.is_empty() {
                // Its leaf is in memory then.
                let is_mapped = self.shard.locate_mapped(&self.dataset, block, reader).await?;
                runs.push((1, is_mapped));
                looked += 1;
            }
            for (count, mapped) in runs {
                let end = ((block + count) * block_bytes).min(at + len);
                let full = extents.len() == extents_max;
                match extents.last_mut() {
                    Some(extent) if extent.mapped == mapped => extent.len += end - position,
                    _ if full => return Ok(extents),
                    _ => extents.push(Extent { len: end - position, mapped }),
                }
                position = end;
                block += count;
            }
        }
        Ok(extents)
    }

    /// Changes the volume's properties; durable when done.
    pub(crate) async fn put(&self, change: impl FnOnce(&mut DatasetRecord)) -> Result<(), IoError> {
        // A change starts from what the one before it left: two at once would undo each other, and a resize a deletion.
        let _turn = self.dataset.properties.lock(0, 0).await;
        if self.dataset.gone.get() {
            return Err(IoError::Gone);
        }
        let mut record = self.dataset.record.borrow().clone();
        record.mapped = self.dataset.tree.borrow().mapped();
        change(&mut record);
        let height = forebay_tree::height_for(record.blocks());
        let nodes = self.shard.reserve_nodes(u64::from(height) + 1, Claim::Urgent).await?;
        let mut entry = Entry::new(self.shard.entry_id(), vec![Change::put(record)], true);
        entry.nodes = Some(nodes);
        finish(self.queue(entry, true)).await
    }
}

impl Shard {
    /// Makes everything durable that was queued before.
    pub async fn flush_queued(&self) -> Result<(), IoError> {
        let mut entry = Entry::new(self.entry_id(), Vec::new(), true);
        let done = entry.awaited();
        self.submit(entry);
        done.await
    }

    /// How many of these blocks of one leaf hold data, and how many that follow do not, and so on: up to the first of which only a
    /// disk knows.
    fn runs_in_memory(&self, dataset: &Dataset, blocks: Range<u64>) -> Vec<(u64, bool)> {
        let tree = dataset.tree.borrow();
        let has_newer = dataset.has_newer(blocks.start, blocks.end);
        let mut runs: Vec<(u64, bool)> = Vec::new();
        let mut add = |mapped| match runs.last_mut() {
            Some((count, last)) if *last == mapped => *count += 1,
            _ => runs.push((1, mapped)),
        };
        match tree.loaded(blocks.start, blocks.end - blocks.start).filter(|_| !has_newer) {
            Some(ptrs) => ptrs.for_each(|ptr| add(!ptr.is_hole())),
            None => {
                for block in blocks {
                    match tree.lookup(block) {
                        _ if has_newer && dataset.newest(block, true).is_some() => add(true),
                        Found::Hole => add(false),
                        Found::At(_) => add(true),
                        Found::Unread(_) => break,
                    }
                }
            }
        }
        runs
    }
}

pub(crate) fn length(data: &[Buf]) -> usize {
    data.iter().map(|part| part.len()).sum()
}

pub(crate) async fn finish(done: Option<Completion<Result<(), IoError>>>) -> Result<(), IoError> {
    match done {
        Some(done) => done.await,
        None => Ok(()),
    }
}

/// The bytes `skip..skip + len` of `parts`.
fn trim(mut parts: Vec<Buf>, mut skip: usize, mut len: usize) -> Vec<Buf> {
    if let [only] = &mut parts[..]
        && skip == 0
        && only.len() == len
    {
        return parts;
    }
    let mut out = Vec::with_capacity(parts.len());
    for part in parts {
        let from = skip.min(part.len());
        let here = (part.len() - from).min(len);
        if here > 0 {
            out.push(part.slice(from, here));
        }
        skip -= from;
        len -= here;
    }
    out
}
