//! Reading: memory, cache, tree, disk, in that order, and never a byte that was not verified.
//!
//! A pointer can become stale while its block is being read: the block is overwritten, a checkpoint releases the
//! old place, and something else is written there. So a checksum that fails is first held against the tree: if
//! the pointer has changed, the read starts over; only if it has not is the copy bad.

use crate::dataset::Dataset;
use crate::error::IoError;
use crate::shard::Shard;
use crate::spec::Severity;
use forebay_base::planted::{Bug, active};
use forebay_base::{Checksum, Id};
use forebay_device::SlotRef;
use forebay_raid::{ArrayError, Good};
use forebay_runtime::{Buf, BufMut};
use forebay_space::Ptr;
use forebay_tree::{FANOUT, Found, NODE_BYTES, NodeHeader, decode_node, decode_ptrs};
use futures_util::future::join_all;
use std::rc::Rc;

/// One device read: longer ones gain nothing and hold their memory longer.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Reads up to this size are cached; larger ones are streams.
const CACHE_READ_BYTES_MAX: usize = 64 << 10;

/// Where a block's contents are.
enum Source {
    Zeros,
    Memory(Buf),
    Disk(Ptr),
}

impl Shard {
    /// Keeps a block that was read, if it was asked for before.
    pub fn cache_insert(&self, ptr: &Ptr, data: Buf) {
        if !self.doorkeeper.borrow_mut().knows(ptr.addr().0) {
            return;
        }
        // A slice of something larger would hold all of it.
        let data = if data.footprint() > data.len().next_power_of_two() {
            self.rt.arena().copy(&data).freeze()
        } else {
            data
        };
        self.cache.borrow_mut().insert(ptr.addr().0, (ptr.sum.0, data));
    }

    /// Where the contents of a stored block are.
    fn source(&self, ptr: &Ptr) -> Source {
        match self.cache.borrow().get(&ptr.addr().0) {
            Some((sum, data)) if *sum == ptr.sum.0 || active(Bug::CacheKeepsOldBlock) => {
                Source::Memory(data.clone())
            }
            _ => Source::Disk(*ptr),
        }
    }

    /// Where block `block` is now; reads its leaf if need be.
    async fn locate(&self, dataset: &Dataset, block: u64, for_client: bool) -> Result<Source, IoError> {
        let ptr = loop {
            if let Some(data) = dataset.newest(block, for_client) {
                return Ok(Source::Memory(data));
            }
            let found = dataset.tree.borrow().lookup(block);
            let (leaf, home) = match found {
                Found::Hole => return Ok(Source::Zeros),
                Found::At(ptr) => break ptr,
                Found::Unloaded { leaf, home } => (leaf, home),
            };
            let still = || dataset.tree.borrow().lookup(block) == found;
            let header = NodeHeader { pool: self.shared.id, owner: dataset.family(), level: 0, index: leaf };
            let Some(ptrs) = self.read_node(&header, home, still).await?.map(|body| decode_ptrs(&body))
            else {
                continue;
            };
            // Pending blocks may have been applied meanwhile; the loop looks again at everything.
            let over = dataset.tree.borrow().overlaid(leaf, home, block % FANOUT, &ptrs);
            let mut freed = Vec::new();
            if self.change_tree(dataset, |tree| tree.load_leaf(leaf, home, ptrs, &mut freed)) {
                if !active(Bug::ColdLeafForgetsOldPointer) {
                    self.let_go(dataset, &freed);
                }
                self.leaf_loaded(dataset.number(), leaf);
                continue;
            }
            // A checkpoint is resolving the leaf: use what was read without keeping it.
            match over {
                Some(Found::At(ptr)) => break ptr,
                Some(Found::Hole) => return Ok(Source::Zeros),
                _ => continue,
            }
        };
        Ok(self.source(&ptr))
    }

    /// Whether a block holds data, reading its leaf if need be.
    pub async fn locate_mapped(&self, dataset: &Dataset, block: u64) -> Result<bool, IoError> {
        Ok(!matches!(self.locate(dataset, block, true).await?, Source::Zeros))
    }

    /// The body of a node, verified; nothing when it could not be verified and `still` says that the pointer is stale.
    pub async fn read_node(
        &self,
        header: &NodeHeader,
        ptr: Ptr,
        still: impl Fn() -> bool,
    ) -> Result<Option<Vec<u8>>, IoError> {
        let check =
            |bytes: &[u8]| active(Bug::MissingNodeChecksumCheck) || decode_node(bytes, header, &ptr).is_ok();
        loop {
            let Some(slots) = self.slots(&ptr) else {
                return if still() { Err(IoError::Corrupt) } else { Ok(None) };
            };
            match self.array.read(&slots, ptr.addr().offset(), NODE_BYTES, check).await {
                Ok(good) => {
                    let bytes = self.mend(good, &slots, ptr, &still).await;
                    return Ok(Some(bytes[NODE_BYTES - FANOUT as usize * 32..].to_vec()));
                }
                Err(_) if !still() => return Ok(None),
                Err(_) if self.has_moved(&ptr, &slots) => {}
                Err(error) => {
                    let what = format!("tree node {} of level {}", header.index, header.level);
                    return Err(self.report_loss(header.owner, &what, error));
                }
            }
        }
    }

    /// Whether a slot of the chunk that holds `ptr` has moved since `slots` were read from its entry.
    pub fn has_moved(&self, ptr: &Ptr, slots: &[SlotRef]) -> bool {
        self.slots(ptr).is_none_or(|now| now != slots)
    }

    /// Rewrites bad copies, if the pointer that led to them is still current.
    async fn mend(&self, good: Good, slots: &[SlotRef], ptr: Ptr, still: impl Fn() -> bool) -> Buf {
        let bytes = good.bytes.freeze();
        let may_write = !self.is_suspended() && !self.shared.import.read_only;
        if !good.bad.is_empty() && still() && !self.has_moved(&ptr, slots) && may_write {
            // Space is not released while a repair is in flight, so it cannot land on something newer.
            self.repairs.set(self.repairs.get() + 1);
            let bad: Vec<SlotRef> = good.bad;
            let repaired = self.array.repair(slots, &bad, ptr.addr().offset(), &bytes).await;
            self.repairs.set(self.repairs.get() - 1);
            self.progress.changed();
            let disks: Vec<String> = bad.iter().map(|slot| slot.disk.to_string()).collect();
            let message =
                format!("a bad copy on disk {} was found on reading; {repaired} rewritten", disks.join(", "));
            self.event(Severity::Warning, "block.repaired", &self.shared.name, message);
        }
        bytes
    }

    fn report_loss(&self, owner: Id, what: &str, error: ArrayError) -> IoError {
        let (why, error) = match error {
            ArrayError::Corrupt => ("fails its checksum on every copy", IoError::Corrupt),
            ArrayError::Io => ("cannot be read from any disk", IoError::Io),
        };
        let message =
            format!("{what} {why}. Restore it from a backup; overwriting the block clears the error");
        self.event(Severity::Error, "block.lost", &format!("{}/{owner}", self.shared.name), message);
        error
    }

    /// The contents of a whole block, as a merging writer (`for_client` false) or a client sees it.
    pub async fn read_block(&self, dataset: &Dataset, block: u64, for_client: bool) -> Result<Buf, IoError> {
        loop {
            let ptr = match self.locate(dataset, block, for_client).await? {
                Source::Zeros => return Ok(self.zeros(dataset.block_bytes())),
                Source::Memory(data) => return Ok(data),
                Source::Disk(ptr) => ptr,
            };
            let still = || match dataset.tree.borrow().lookup(block) {
                Found::At(now) => now == ptr,
                Found::Unloaded { .. } => true,
                Found::Hole => false,
            };
            let Some(slots) = self.slots(&ptr) else {
                if still() {
                    return Err(self.report_loss(
                        dataset.id(),
                        &format!("block {block}"),
                        ArrayError::Corrupt,
                    ));
                }
                continue;
            };
            let check = |bytes: &[u8]| Checksum::of(bytes) == ptr.sum || active(Bug::MissingChecksumCheck);
            let plugs = self.plugs.get();
            match self.array.read(&slots, ptr.addr().offset(), ptr.bytes() as usize, check).await {
                Ok(good) => {
                    let data = self.mend(good, &slots, ptr, still).await;
                    self.cache_insert(&ptr, data.clone());
                    return Ok(data);
                }
                Err(_) if !still() || self.has_moved(&ptr, &slots) => {}
                // What had to be computed came from a line that was being changed.
                Err(_) if self.was_plugged(plugs).await => {}
                Err(_) if active(Bug::UnreadableReadsAsZeros) => return Ok(self.zeros(dataset.block_bytes())),
                Err(error) => return Err(self.report_loss(dataset.id(), &format!("block {block}"), error)),
            }
        }
    }

    /// Whole blocks `first..=last`, in parts that follow each other, as a client sees them.
    pub async fn read_blocks(
        self: &Rc<Self>,
        dataset: &Rc<Dataset>,
        first: u64,
        last: u64,
    ) -> Result<Vec<Buf>, IoError> {
        if first == last {
            return Ok(vec![self.read_block(dataset, first, true).await?]);
        }
        let block_bytes = dataset.block_bytes();
        let sources = self.locate_all(dataset, first, last).await?;
        let stream = (last - first + 1) as usize * block_bytes > CACHE_READ_BYTES_MAX;
        let mut runs: Vec<(usize, Vec<Ptr>)> = Vec::new();
        for (index, source) in sources.iter().enumerate() {
            let Source::Disk(ptr) = source else { continue };
            match runs.last_mut() {
                Some((start, run)) if *start + run.len() == index && follows(run, ptr, block_bytes) => {
                    run.push(*ptr)
                }
                _ => runs.push((index, vec![*ptr])),
            }
        }
        let reading = runs.into_iter().map(|(start, run)| async move {
            let data = self.read_run(&run).await;
            (start, run, data)
        });
        let mut read = join_all(reading).await.into_iter();
        let mut parts: Vec<Buf> = Vec::new();
        let mut add = |part: Buf| match parts.last_mut() {
            Some(last) if last.is_followed_by(&part) => *last = last.join(&part),
            _ => parts.push(part),
        };
        let mut left = sources.into_iter();
        while let Some(source) = left.next() {
            match source {
                Source::Memory(block) => add(block),
                Source::Zeros => add(self.zeros(block_bytes)),
                Source::Disk(_) => {
                    let (start, run, data) = read.next().expect("every run was read");
                    left.by_ref().take(run.len() - 1).for_each(drop);
                    for (nth, ptr) in run.iter().enumerate() {
                        match &data {
                            Some(_) if stream => {}
                            Some(data) => self.cache_insert(ptr, data.slice(nth * block_bytes, block_bytes)),
                            // Stale, or a bad copy: one by one, with retries and repair.
                            None => add(self.read_block(dataset, first + (start + nth) as u64, true).await?),
                        }
                    }
                    data.into_iter().for_each(&mut add);
                }
            }
        }
        Ok(parts)
    }

    /// [`Shard::locate`] for the blocks `first..=last`, as clients see them; those of a leaf in memory in one step.
    async fn locate_all(&self, dataset: &Dataset, first: u64, last: u64) -> Result<Vec<Source>, IoError> {
        let mut sources = Vec::with_capacity((last - first + 1) as usize);
        let mut block = first;
        while block <= last {
            if !dataset.has_newer(block, last + 1)
                && let Some(ptrs) = dataset.tree.borrow().loaded(block, last + 1 - block)
            {
                sources.extend(ptrs.iter().map(|ptr| match ptr.is_hole() {
                    true => Source::Zeros,
                    false => self.source(ptr),
                }));
                block += ptrs.len() as u64;
            } else {
                sources.push(self.locate(dataset, block, true).await?);
                block += 1;
            }
        }
        Ok(sources)
    }

    /// Adjacent blocks in one device read; nothing unless all of them verify.
    async fn read_run(&self, run: &[Ptr]) -> Option<Buf> {
        let slots = self.slots(&run[0])?;
        let block_bytes = run[0].bytes() as usize;
        let check = |bytes: &[u8]| {
            bytes.chunks(block_bytes).zip(run).all(|(block, ptr)| Checksum::of(block) == ptr.sum)
                || active(Bug::MissingChecksumCheck)
        };
        let read = self.array.read(&slots, run[0].addr().offset(), run.len() * block_bytes, check).await;
        match read {
            Ok(Good { bytes, bad }) if bad.is_empty() => Some(BufMut::freeze(bytes)),
            _ => None,
        }
    }

    /// A shared buffer of zeros.
    pub fn zeros(&self, len: usize) -> Buf {
        self.zero.slice(0, len)
    }
}

fn follows(run: &[Ptr], next: &Ptr, block_bytes: usize) -> bool {
    let last = run.last().expect("runs have a first block");
    last.is_followed_by(next) && (run.len() + 1) * block_bytes <= RUN_BYTES_MAX
}
