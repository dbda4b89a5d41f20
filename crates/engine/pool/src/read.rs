//! Reading: memory, cache, tree, disk, in that order, and never a byte that was not verified.
//!
//! A pointer can become stale while its block is being read: the block is overwritten, a checkpoint releases the
//! old place, and something else is written there. So a checksum that fails is first held against the tree: if
//! the pointer has changed, the read starts over; only if it has not is the copy bad.

use crate::cache::ReadFrom;
use crate::damage::BLOCK;
use crate::dataset::{Dataset, Newest};
use crate::error::IoError;
use crate::pack::Block;
use crate::parts::IN_PART;
use crate::shard::Shard;
use crate::spec::Severity;
use crate::turns::Turn;
use async_recursion::async_recursion as boxed;
use forebay_base::planted::{Bug, active};
use forebay_base::{Checksum, Id};
use forebay_device::SlotRef;
use forebay_qos::Work;
use forebay_raid::{ArrayError, Good};
use forebay_runtime::Buf;
use forebay_space::Ptr;
use forebay_tree::{Found, NODE_BODY, NODE_BYTES, NodeHeader, decode_node};
use futures_util::future::join_all;
use std::rc::Rc;

/// One device read: longer ones gain nothing and hold their memory longer.
const RUN_BYTES_MAX: usize = 1 << 20;
/// What is read ahead from so many places has one turn.
const PLACES_AHEAD: usize = 8;
/// Blocks in memory that lie between others that are read ahead are read with them, up to so many bytes: two requests cost more.
const BRIDGED_BYTES: usize = 64 << 10;

/// Who reads, and what that one sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// What is acknowledged; in turn with all others.
    Client,
    /// The same, for a client that has done with the blocks before this one.
    Consumer(u64),
    /// The same, for work of the pool's that has a turn.
    Copier,
    /// For a client that will ask for it soon.
    Ahead,
    /// The newest there is, for whoever changes a part of it, which is in a turn.
    Merger,
}

impl Reader {
    fn is_merger(self) -> bool {
        self == Reader::Merger
    }

    fn is_client(self) -> bool {
        matches!(self, Reader::Client | Reader::Consumer(_))
    }
}

/// Where a block's contents are.
pub(crate) enum Source {
    Zeros,
    Memory(Buf),
    Ahead(Ptr, Buf),
    Disk(Ptr),
}

impl Shard {
    /// Keeps a block that was read, if it was asked for before. Large requests are no exception: a table that is read again and again should be read from memory, and a
    /// scan that is not is kept out like any other block that is read once.
    pub fn cache_insert(&self, ptr: &Ptr, data: Buf) {
        if !self.doorkeeper.borrow_mut().knows(ptr.addr().0) {
            return;
        }
        self.block_missed();
        let data = self.alone(data);
        self.cache.borrow_mut().insert(ptr.addr().0, (ptr.sum.0, data));
    }

    /// The same, to be kept: a slice of something larger would hold all of it.
    pub fn alone(&self, data: Buf) -> Buf {
        if data.footprint() > data.len().next_power_of_two() {
            return self.rt.arena().copy(&data).freeze();
        }
        data
    }

    fn is_cached(&self, ptr: &Ptr) -> bool {
        self.cache.borrow().peek(&ptr.addr().0).is_some_and(|(sum, _)| *sum == ptr.sum.0)
    }

    /// Where the contents of a stored block are.
    pub fn source(&self, dataset: &Dataset, ptr: &Ptr) -> Source {
        // What is stored of a packed block may be what somebody wrote as a smaller one, to the same place: the checksum is of that.
        let is_it = |sum: u128, data: &Buf| sum == ptr.sum.0 && data.len() == dataset.block_bytes();
        let addr = ptr.addr().0;
        match self.cache.borrow().get(&addr) {
            Some((sum, data)) if is_it(*sum, data) || active(Bug::CacheKeepsOldBlock) => {
                return Source::Memory(data.clone());
            }
            _ => {}
        }
        match self.ahead.borrow().get(addr) {
            Some((sum, data)) if is_it(sum, data) => Source::Ahead(*ptr, data.clone()),
            _ => Source::Disk(*ptr),
        }
    }

    /// A block that was read ahead is asked for. Once its reader has done with it, it is like one that was read from the disks.
    fn consume(&self, block: u64, ptr: &Ptr, data: &Buf, reader: Reader) {
        if matches!(reader, Reader::Consumer(done) if block < done) {
            self.ahead.borrow_mut().remove(ptr.addr().0);
            self.cache_insert(ptr, data.clone());
        }
    }

    /// Where block `block` is now; reads its leaf if need be.
    async fn locate(&self, dataset: &Dataset, block: u64, reader: Reader) -> Result<Source, IoError> {
        Ok(match self.find(dataset, block, reader).await? {
            Source::Disk(ptr) => self.source(dataset, &ptr),
            found => found,
        })
    }

    /// The same, without the cache.
    async fn find(&self, dataset: &Dataset, block: u64, reader: Reader) -> Result<Source, IoError> {
        loop {
            match dataset.newest(block, !reader.is_merger()) {
                Some(Newest::Whole(data)) => return Ok(Source::Memory(data)),
                Some(Newest::Parts) => self.complete(dataset, block, reader).await?,
                None => {
                    // Pending blocks may have been applied when a leaf was read; the loop looks again at everything.
                    if let Some(found) = self.look(dataset, block, reader).await? {
                        return Ok(found);
                    }
                }
            }
        }
    }

    /// Where the tree has a block; nothing when a node had to be read for that, and who asks should look again.
    pub async fn look(
        &self,
        dataset: &Dataset,
        block: u64,
        reader: Reader,
    ) -> Result<Option<Source>, IoError> {
        let source = |found| match found {
            Found::Hole => Some(Source::Zeros),
            Found::At(ptr) => Some(Source::Disk(ptr)),
            Found::Unread(_) => None,
        };
        let found = dataset.tree.borrow().lookup(block);
        if !matches!(found, Found::Unread(_)) {
            return Ok(source(found));
        }
        let read = self.read_way(dataset, block, reader).await?;
        Ok(read.and_then(source))
    }

    /// Whether a block holds data, reading its leaf if need be.
    pub async fn locate_mapped(
        &self,
        dataset: &Dataset,
        block: u64,
        reader: Reader,
    ) -> Result<bool, IoError> {
        Ok(!matches!(self.find(dataset, block, reader).await?, Source::Zeros))
    }

    /// The body of a node, verified; nothing when it could not be, and `still` says that it is not needed any more. Bad copies are rewritten if `is_there`.
    pub async fn read_node(
        &self,
        header: &NodeHeader,
        ptr: Ptr,
        still: impl Fn() -> bool,
        is_there: impl Fn() -> bool,
    ) -> Result<Option<Vec<u8>>, IoError> {
        let check =
            |bytes: &[u8]| active(Bug::MissingNodeChecksumCheck) || decode_node(bytes, header, &ptr).is_ok();
        loop {
            let Some(slots) = self.slots(&ptr) else {
                return if still() { Err(IoError::Corrupt) } else { Ok(None) };
            };
            match self.array.read(&slots, ptr.addr().offset(), NODE_BYTES, check).await {
                Ok(good) => {
                    let bytes = self.mend(good, &slots, ptr, &is_there).await;
                    return Ok(Some(bytes[NODE_BYTES - NODE_BODY..].to_vec()));
                }
                Err(_) if !still() => return Ok(None),
                Err(_) if self.has_moved(&ptr, &slots) => {}
                Err(error) => {
                    return Err(self.report_loss(header.owner, (header.level, header.index), &ptr, error));
                }
            }
        }
    }

    /// Whether a slot of the chunk that holds `ptr` has moved since `slots` were read from its entry.
    pub fn has_moved(&self, ptr: &Ptr, slots: &[SlotRef]) -> bool {
        self.slots(ptr).is_none_or(|now| now != slots)
    }

    /// Rewrites bad copies, if the pointer that led to them is still current. What reads is not lost.
    async fn mend(&self, good: Good, slots: &[SlotRef], ptr: Ptr, still: impl Fn() -> bool) -> Buf {
        self.damage.borrow_mut().reads(&ptr);
        let bytes = good.bytes.freeze();
        let may_write = !self.is_suspended() && !self.shared.import.read_only;
        if !good.bad.is_empty() && still() && !self.has_moved(&ptr, slots) && may_write {
            // Space is not released while a repair is in flight, so it cannot land on something newer.
            let _hold = self.holds.take();
            let repaired = self.array.repair(slots, &good.bad, ptr.addr().offset(), &bytes).await;
            // A disk that does not take what is right is out, which is told.
            if repaired > 0 {
                self.tell_repairs(good.bad.iter().map(|slot| slot.disk));
            }
        }
        bytes
    }

    /// Makes every copy of a block right, of a pointer that is current, if one of them is.
    #[boxed(?Send)]
    async fn mend_copies(&self, ptr: &Ptr) {
        let may_write = !self.is_suspended() && !self.shared.import.read_only;
        let (Some(slots), true) = (self.slots(ptr), may_write) else { return };
        let _hold = self.holds.take();
        let check = |bytes: &[u8]| Checksum::of(bytes) == ptr.sum;
        let mended = self.array.mend(&slots, ptr.addr().offset(), ptr.bytes() as usize, check).await;
        if mended.is_some_and(|repaired| repaired > 0) {
            self.tell_repairs(std::iter::empty());
        }
    }

    /// Node `index` of a level, or a block, that `ptr` leads to is lost.
    fn report_loss(&self, owner: Id, (level, index): (u8, u64), ptr: &Ptr, error: ArrayError) -> IoError {
        let (why, error) = match error {
            ArrayError::Corrupt => ("fails its checksum on every copy", IoError::Corrupt),
            ArrayError::Io => ("cannot be read from any disk", IoError::Io),
        };
        let what = match level {
            BLOCK => format!("block {index}"),
            level => format!("tree node {index} of level {level}"),
        };
        self.lost(owner, (level, index), ptr, &format!("{what} {why}"), error)
    }

    fn lost(&self, owner: Id, (level, index): (u8, u64), ptr: &Ptr, what: &str, error: IoError) -> IoError {
        let object = format!("{}/{}", self.shared.name, self.name_of(owner));
        if self.is_suspended() {
            let message = format!(
                "{what}. The pool is suspended: restore its disks, then export and import it. Until then, the data may still be recoverable"
            );
            self.event(Severity::Error, "block.unreadable", &object, message);
            return error;
        }
        if self.note_lost(owner, level, index, ptr) {
            let pool = &self.shared.name;
            let message = format!(
                "{what}; data next to it may be lost too. 'forebay pool scrub {pool}' finds all lost data, and 'forebay pool status {pool} \
                 --errors' lists it. Restore it from a backup: overwritten blocks can be read again"
            );
            self.event(Severity::Error, "block.lost", &object, message);
        }
        error
    }

    /// A block that is stored in part, with the rest lost: whoever wants all of it is told so.
    pub fn lost_in_part(&self, owner: Id, block: u64, ptr: &Ptr) -> IoError {
        let what = format!("block {block} is incomplete: the rest of it is lost");
        self.lost(owner, (BLOCK, block), ptr, &what, IoError::Corrupt)
    }

    /// Takes note of where blocks came from, if a client asked for them.
    fn came_from(&self, reader: Reader, which: fn(&mut ReadFrom) -> &mut u64, blocks: usize) {
        if reader.is_client() {
            let mut counts = self.read_from.get();
            *which(&mut counts) += blocks as u64;
            self.read_from.set(counts);
        }
    }

    /// Waits until a client may read what it does not find in memory, pieces of these sizes.
    pub async fn turn_to_read(&self, dataset: &Dataset, reader: Reader, sizes: &[usize]) -> Option<Turn> {
        if sizes.is_empty() {
            return None;
        }
        let work = Work::read(sizes.iter().sum::<usize>() as u64, sizes.len());
        match reader {
            Reader::Client | Reader::Consumer(_) => Some(dataset.flow(self).turn(work).await),
            Reader::Ahead => Some(dataset.flow(self).turn_ahead(work).await),
            Reader::Copier | Reader::Merger => None,
        }
    }

    /// The contents of a whole block.
    pub async fn read_block(
        self: &Rc<Self>,
        dataset: &Dataset,
        block: u64,
        reader: Reader,
    ) -> Result<Buf, IoError> {
        let mut doubted = None;
        loop {
            let ptr = match self.locate(dataset, block, reader).await? {
                Source::Zeros => return Ok(self.zeros(dataset.block_bytes())),
                Source::Memory(data) => {
                    self.came_from(reader, |from| &mut from.memory, 1);
                    return Ok(data);
                }
                Source::Ahead(ptr, data) => {
                    self.came_from(reader, |from| &mut from.ahead, 1);
                    self.consume(block, &ptr, &data, reader);
                    return Ok(data);
                }
                // It comes, and is then looked for again.
                Source::Disk(_) if self.is_coming(dataset, block..block + 1, reader).await => continue,
                Source::Disk(ptr) => ptr,
            };
            if reader.is_client()
                && self.has_flash()
                && let Some(stored) = self.read_flash(&ptr).await
                && let Some(data) = self.unpack_run(dataset, &[ptr], stored)
            {
                self.came_from(reader, |from| &mut from.flash, 1);
                self.cache_insert(&ptr, data.clone());
                return Ok(data);
            }
            let _turn = self.turn_to_read(dataset, reader, &[ptr.bytes() as usize]).await;
            if let Some((stored, data)) = self.fetch(dataset, block, ptr, &mut doubted).await? {
                self.came_from(reader, |from| &mut from.disks, 1);
                if reader.is_client() {
                    self.keep_in_flash(&[ptr], &stored);
                }
                match reader {
                    Reader::Ahead => {
                        self.ahead.borrow_mut().keep(&[ptr], data.clone(), self.rt.now(), |_| true);
                    }
                    _ => self.cache_insert(&ptr, data.clone()),
                }
                return Ok(data);
            }
        }
    }

    /// A block as it is stored, for whoever writes it to another place; whole when it is in memory only.
    pub async fn read_packed(&self, dataset: &Dataset, block: u64) -> Result<Block, IoError> {
        let mut doubted = None;
        loop {
            match self.find(dataset, block, Reader::Merger).await? {
                Source::Zeros => return Ok(Block::whole(self.zeros(dataset.block_bytes()))),
                Source::Memory(data) | Source::Ahead(_, data) => return Ok(Block::whole(data)),
                Source::Disk(ptr) => {
                    if let Some((stored, data)) = self.fetch(dataset, block, ptr, &mut doubted).await? {
                        return Ok(Block::of(data, ptr.kind(), stored));
                    }
                }
            }
        }
    }

    /// What is stored at `ptr`, which led to the block, and the block's contents. Nothing when the pointer is stale, or may be; `doubted` is the one
    /// that was so before.
    pub async fn fetch(
        &self,
        dataset: &Dataset,
        block: u64,
        ptr: Ptr,
        doubted: &mut Option<Ptr>,
    ) -> Result<Option<(Buf, Buf)>, IoError> {
        let still = || match dataset.tree.borrow().lookup(block) {
            Found::At(now) => now == ptr,
            // If it is unread nobody knows; who asks again has the leaf.
            Found::Unread(_) | Found::Hole => false,
        };
        let Some(stored) = self.read_stored(dataset.id(), block, ptr, still).await? else {
            // While a checkpoint has the leaf, it is not kept, and nobody knows. Who has looked again and found the same pointer does.
            let is_unknown = matches!(dataset.tree.borrow().lookup(block), Found::Unread(_));
            if doubted.replace(ptr) == Some(ptr) && is_unknown {
                return Err(self.report_loss(dataset.id(), (BLOCK, block), &ptr, ArrayError::Corrupt));
            }
            return Ok(None);
        };
        if let Ok(data) = self.unpack(dataset, ptr.kind(), &stored) {
            return Ok(Some((stored, data)));
        }
        if ptr.kind() == IN_PART {
            return Err(self.lost_in_part(dataset.id(), block, &ptr));
        }
        let what = format!(
            "block {block} has a valid checksum, but its {} bytes of kind {} do not decompress to a whole block: it was damaged in memory, or \
             stored by a newer version",
            ptr.bytes(),
            ptr.kind()
        );
        Err(self.lost(dataset.id(), (BLOCK, block), &ptr, &what, IoError::Corrupt))
    }

    /// A block of `owner` as it is stored; nothing when it could not be verified and `still` says that the pointer is stale.
    pub async fn read_stored(
        &self,
        owner: Id,
        block: u64,
        ptr: Ptr,
        still: impl Fn() -> bool,
    ) -> Result<Option<Buf>, IoError> {
        let lost = |error| Err(self.report_loss(owner, (BLOCK, block), &ptr, error));
        loop {
            let Some(slots) = self.slots(&ptr) else {
                return if still() { lost(ArrayError::Corrupt) } else { Ok(None) };
            };
            let check = |bytes: &[u8]| Checksum::of(bytes) == ptr.sum || active(Bug::MissingChecksumCheck);
            let plugs = self.plugs.get();
            match self.array.read(&slots, ptr.addr().offset(), ptr.bytes() as usize, check).await {
                Ok(good) => return Ok(Some(self.mend(good, &slots, ptr, still).await)),
                Err(_) if !still() => return Ok(None),
                Err(_) if self.has_moved(&ptr, &slots) => {}
                // What had to be computed came from a line that was being changed.
                Err(_) if self.was_plugged(plugs).await => {}
                Err(_) if active(Bug::UnreadableReadsAsZeros) => {
                    return Ok(Some(self.zeros(ptr.bytes() as usize)));
                }
                Err(error) => return lost(error),
            }
        }
    }

    /// Whole blocks `first..=last`, in parts that follow each other.
    pub async fn read_blocks(
        self: &Rc<Self>,
        dataset: &Rc<Dataset>,
        first: u64,
        last: u64,
        reader: Reader,
    ) -> Result<Vec<Buf>, IoError> {
        if first == last {
            return Ok(vec![self.read_block(dataset, first, reader).await?]);
        }
        let block_bytes = dataset.block_bytes();
        let mut sources = self.locate_all(dataset, first, last, reader).await?;
        let lacks = |sources: &[Source]| sources.iter().any(|source| matches!(source, Source::Disk(_)));
        if lacks(&sources) && self.is_coming(dataset, first..last + 1, reader).await {
            sources = self.locate_all(dataset, first, last, reader).await?;
        }
        if reader == Reader::Ahead {
            bridge(dataset, first, &mut sources);
        }
        let mut runs = runs_of(&sources);
        let copies = self.read_copies(dataset, &mut runs, reader).await;
        let sizes: Vec<usize> = runs.iter().map(|(_, run)| run_bytes(run)).collect();
        if reader == Reader::Ahead {
            self.note_stream(dataset, first..last + 1, &sizes);
        }
        // Nobody waits for all of what is read ahead: others come in between.
        let at_once = if reader == Reader::Ahead { PLACES_AHEAD } else { usize::MAX };
        let mut read = Vec::with_capacity(runs.len());
        while !runs.is_empty() {
            let some = runs.drain(..runs.len().min(at_once));
            let _turn = self.turn_to_read(dataset, reader, &sizes[read.len()..][..some.len()]).await;
            let reading = some.map(|(start, run)| async move {
                let data = self.read_run(dataset, first + start as u64, &run, reader).await;
                (start, run, data)
            });
            read.extend(join_all(reading).await);
        }
        let from_disks = read.into_iter().map(|(start, run, data)| (start, run, data, false));
        let mut read: Vec<_> = copies.into_iter().chain(from_disks).collect();
        read.sort_unstable_by_key(|(start, ..)| *start);
        let mut read = read.into_iter();
        let mut parts: Vec<Buf> = Vec::new();
        let mut add = |part: Buf| match parts.last_mut() {
            Some(last) if last.is_followed_by(&part) => *last = last.join(&part),
            _ => parts.push(part),
        };
        let mut left = (first..).zip(sources);
        while let Some((block, source)) = left.next() {
            match source {
                Source::Memory(data) => {
                    self.came_from(reader, |from| &mut from.memory, 1);
                    add(data);
                }
                Source::Ahead(ptr, data) => {
                    self.came_from(reader, |from| &mut from.ahead, 1);
                    self.consume(block, &ptr, &data, reader);
                    add(data);
                }
                Source::Zeros => add(self.zeros(block_bytes)),
                Source::Disk(_) => {
                    let (start, run, data, is_copy) = read.next().expect("every run was read");
                    left.by_ref().take(run.len() - 1).for_each(drop);
                    if data.is_some() {
                        let which: fn(&mut ReadFrom) -> &mut u64 =
                            if is_copy { |from| &mut from.flash } else { |from| &mut from.disks };
                        self.came_from(reader, which, run.len());
                    }
                    if let (Some(data), Reader::Ahead) = (&data, reader) {
                        let is_wanted = |ptr: &Ptr| !self.is_cached(ptr);
                        self.ahead.borrow_mut().keep(&run, data.clone(), self.rt.now(), is_wanted);
                    }
                    for (nth, ptr) in run.iter().enumerate() {
                        match &data {
                            // What the pool reads for itself, to copy or to measure, says nothing about what is wanted again.
                            Some(_) if matches!(reader, Reader::Ahead | Reader::Copier) => {}
                            Some(data) => self.cache_insert(ptr, data.slice(nth * block_bytes, block_bytes)),
                            // Stale, or no copy has all of it right: one by one, with retries and repair.
                            None => {
                                add(self.read_block(dataset, first + (start + nth) as u64, reader).await?)
                            }
                        }
                    }
                    data.into_iter().for_each(&mut add);
                }
            }
        }
        Ok(parts)
    }

    /// [`Shard::locate`] for the blocks `first..=last`; those of a leaf in memory in one step.
    async fn locate_all(
        &self,
        dataset: &Dataset,
        first: u64,
        last: u64,
        reader: Reader,
    ) -> Result<Vec<Source>, IoError> {
        let mut sources = Vec::with_capacity((last - first + 1) as usize);
        let mut block = first;
        while block <= last {
            if !dataset.has_newer(block, last + 1)
                && let Some(ptrs) = dataset.tree.borrow().loaded(block, last + 1 - block)
            {
                block += ptrs.len() as u64;
                sources.extend(ptrs.map(|ptr| match ptr.is_hole() {
                    true => Source::Zeros,
                    false => self.source(dataset, &ptr),
                }));
            } else {
                sources.push(self.locate(dataset, block, reader).await?);
                block += 1;
            }
        }
        Ok(sources)
    }

    /// Reads those runs that cache disks have for a client; what is left is on disks only.
    async fn read_copies(
        self: &Rc<Self>,
        dataset: &Dataset,
        runs: &mut Vec<(usize, Vec<Ptr>)>,
        reader: Reader,
    ) -> Vec<(usize, Vec<Ptr>, Option<Buf>, bool)> {
        if !reader.is_client() || !self.has_flash() {
            return Vec::new();
        }
        let reading = runs.drain(..).map(|(start, run)| async move {
            let data = match self.read_flash_run(&run).await {
                Some(stored) => self.unpack_run(dataset, &run, stored),
                None => None,
            };
            (start, run, data, true)
        });
        let read = join_all(reading).await;
        let (found, missed): (Vec<_>, Vec<_>) = read.into_iter().partition(|(_, _, data, _)| data.is_some());
        runs.extend(missed.into_iter().map(|(start, run, ..)| (start, run)));
        found
    }

    /// Adjacent blocks from `first` on in one device read; nothing unless all of them verify.
    async fn read_run(
        self: &Rc<Self>,
        dataset: &Dataset,
        first: u64,
        run: &[Ptr],
        reader: Reader,
    ) -> Option<Buf> {
        let still = || {
            let tree = dataset.tree.borrow();
            (first..).zip(run).all(|(block, ptr)| tree.lookup(block) == Found::At(*ptr))
        };
        let stored = self.read_stored_run(run, still).await?;
        if reader.is_client() {
            self.keep_in_flash(run, &stored);
        }
        self.unpack_run(dataset, run, stored)
    }

    /// The contents of blocks that are stored so.
    fn unpack_run(&self, dataset: &Dataset, run: &[Ptr], stored: Buf) -> Option<Buf> {
        if run.iter().all(|ptr| ptr.kind() == 0 && ptr.bytes() as usize == dataset.block_bytes()) {
            return Some(stored);
        }
        let mut whole = self.rt.arena().take(run.len() * dataset.block_bytes());
        for (block, (ptr, at)) in whole.chunks_exact_mut(dataset.block_bytes()).zip(cut(run)) {
            let stored = stored.slice(at, ptr.bytes() as usize);
            block.copy_from_slice(&self.unpack(dataset, ptr.kind(), &stored).ok()?);
        }
        Some(whole.freeze())
    }

    /// The same as they are stored. Bad copies are rewritten if `still` says that the pointers are current: whoever reads the blocks once more, one
    /// by one, may be given a copy that is right, and never see them.
    pub async fn read_stored_run(&self, run: &[Ptr], still: impl Fn() -> bool) -> Option<Buf> {
        let slots = self.slots(&run[0])?;
        let check = |bytes: &[u8]| {
            cut(run).all(|(ptr, at)| Checksum::of(&bytes[at..at + ptr.bytes() as usize]) == ptr.sum)
                || active(Bug::MissingChecksumCheck)
        };
        match self.array.read(&slots, run[0].addr().offset(), run_bytes(run), check).await {
            Ok(good) if active(Bug::RunsLeaveBadCopies) && !good.bad.is_empty() => None,
            Ok(good) => Some(self.mend(good, &slots, run[0], still).await),
            // No copy has all of it right. A block may be right on each.
            Err(ArrayError::Corrupt) if still() && !active(Bug::RunsLeaveBadCopies) => {
                // All at once: each waits for every disk that has it.
                join_all(run.iter().map(|ptr| self.mend_copies(ptr))).await;
                None
            }
            Err(_) => None,
        }
    }

    /// A shared buffer of zeros.
    pub fn zeros(&self, len: usize) -> Buf {
        self.zero.slice(0, len)
    }
}

/// Has blocks read once more that are in memory, where they lie between others that are on disks only: a stream that finds a block here and there in the cache
/// would be read in as many pieces.
fn bridge(dataset: &Dataset, first: u64, sources: &mut [Source]) {
    let most = BRIDGED_BYTES / dataset.block_bytes();
    let mut last: Option<(usize, Ptr)> = None;
    for at in 0..sources.len() {
        let Source::Disk(ptr) = sources[at] else { continue };
        let Some((before, mut end)) = last.replace((at, ptr)) else { continue };
        let between = before + 1..at;
        let blocks = first + between.start as u64..first + at as u64;
        if !(1..=most).contains(&between.len()) || dataset.has_newer(blocks.start, blocks.end) {
            continue;
        }
        let tree = dataset.tree.borrow();
        let stored = blocks.map_while(|block| match tree.lookup(block) {
            Found::At(ptr) if end.is_followed_by(&ptr) => {
                end = ptr;
                Some(ptr)
            }
            _ => None,
        });
        let stored: Vec<Ptr> = stored.collect();
        if stored.len() == between.len() && end.is_followed_by(&ptr) {
            sources[between].iter_mut().zip(stored).for_each(|(source, ptr)| *source = Source::Disk(ptr));
        }
    }
}

/// Adjacent blocks on disks, with the place of each first one.
fn runs_of(sources: &[Source]) -> Vec<(usize, Vec<Ptr>)> {
    let mut runs: Vec<(usize, Vec<Ptr>)> = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let Source::Disk(ptr) = source else { continue };
        match runs.last_mut() {
            Some((start, run)) if *start + run.len() == index && follows(run, ptr) => run.push(*ptr),
            _ => runs.push((index, vec![*ptr])),
        }
    }
    runs
}

/// Whether a block can be read together with those of `run`.
pub(crate) fn follows(run: &[Ptr], next: &Ptr) -> bool {
    let last = run.last().expect("runs have a first block");
    last.is_followed_by(next) && run_bytes(run) + next.bytes() as usize <= RUN_BYTES_MAX
}

pub(crate) fn run_bytes(run: &[Ptr]) -> usize {
    run.iter().map(|ptr| ptr.bytes() as usize).sum()
}

/// Blocks that follow each other, and where each begins in them all.
pub(crate) fn cut(run: &[Ptr]) -> impl Iterator<Item = (&Ptr, usize)> {
    run.iter().scan(0, |at, ptr| {
        let from = *at;
        *at += ptr.bytes() as usize;
        Some((ptr, from))
    })
}
