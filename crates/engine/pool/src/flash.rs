//! The flash cache: copies of what is read from disks at random, on devices that are quicker than these.
//!
//! Copies are found by the checksum and the address of what they are copies of, and compared with the whole checksum when they are read. So the cache cannot be
//! wrong: nothing in it is ever taken back when a block is overwritten or a snapshot deleted, no write waits for it, and a cache disk that rots, lies, hangs or goes
//! away costs reads of the pool's disks and nothing else. What it says of itself survives an export and a crash, because nobody has to believe it.
//!
//! Each shard has a part of each cache disk, a ring of segments of a MiB ([`crate::flash_segment`]). A client's small read that comes from the disks joins the
//! segment that is being filled, and so does a small write on its way from the log to the disks; a full one is written over the oldest. What is found in the oldest
//! quarter joins again, so that what is asked for stays. Streams pass it by: disks are good at these, and who reads a volume once should not wear flash out.
//!
//! Memory names each block ([`crate::flash_index`]), and takes an eighth of the shard's for that at most; what it has no room for is lost first.

use crate::entry::Change;
use crate::flash_index::{Index, Place};
use crate::flash_segment::{Cached, SEGMENT_BYTES, Segment, UNIT_BYTES, UNITS};
use crate::parts::IN_PART;
use crate::read::{cut, run_bytes};
use crate::registry::registry;
use crate::shard::Shard;
use forebay_base::planted::{Bug, active};
use forebay_base::{Checksum, Nanos};
use forebay_device::{DISK_GRAIN, HEAD_BYTES, Health, LABEL_REGION};
use forebay_runtime::{Buf, BufMut, Disk, DiskError, Vitals};
use forebay_space::Ptr;
use futures_util::future::{Either, join_all, select};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Where segments begin: behind labels and superblocks.
const FIRST: u64 = HEAD_BYTES;
const _: () = assert!(FIRST.is_multiple_of(SEGMENT_BYTES));
/// A shard's part of a cache disk has so many segments at least.
const SEGMENTS_MIN: u64 = 4;
/// The largest request that is kept: disks read more than that at little more cost.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// What takes longer to read is read from the pool's disks, and the cache disk is left alone for a while.
const LATE: Duration = Duration::from_millis(50);
const LEFT_ALONE: Duration = Duration::from_secs(10);
/// Requests that a cache disk has from a shard at a time: one that hangs takes no more memory than for these.
const IN_FLIGHT_MAX: usize = 256;
/// Places that could not be read, after which a cache disk is out of service.
const UNREADABLE_MAX: u64 = 16;
/// Headers that are read at a time when the cache is looked through.
const HEADERS_AT_ONCE: u64 = 16;
/// This part of a shard's memory names what is in the cache.
const MEMORY_PART: u64 = 8;
/// What is one of so many segments from being overwritten is kept when it is read: the oldest quarter.
const OLD_PART: u64 = 4;

/// What a shard has of all cache disks.
#[derive(Default)]
pub(crate) struct Flash {
    index: RefCell<Option<Index>>,
    parts: RefCell<Vec<Rc<Part>>>,
    /// Which one is filled next.
    turn: Cell<usize>,
}

/// A shard's part of a cache disk.
struct Part {
    /// Its index in the label.
    disk: u16,
    handle: Disk,
    health: Arc<Health>,
    first: u64,
    segments: u64,
    /// Number of the segment that is written next.
    next: Cell<u64>,
    filling: RefCell<Filling>,
    is_writing: Cell<bool>,
    /// What was there before this run was looked through.
    is_known: Cell<bool>,
    left_alone_until: Cell<Nanos>,
}

#[derive(Default)]
struct Filling {
    blocks: Vec<Cached>,
    data: Vec<Buf>,
    units: u64,
}

/// Bytes and segments of a shard's part of a cache disk of `size` bytes; none if it is too small.
pub(crate) fn part_of(size: u64, shard: usize, shards: usize) -> Option<(u64, u64)> {
    let end = size / DISK_GRAIN * DISK_GRAIN - LABEL_REGION;
    let segments = end.saturating_sub(FIRST) / SEGMENT_BYTES / shards as u64;
    (segments >= SEGMENTS_MIN).then_some((FIRST + shard as u64 * segments * SEGMENT_BYTES, segments))
}

/// The least bytes that a cache disk of a pool with so many shards has.
pub(crate) fn bytes_min(shards: usize) -> u64 {
    FIRST + shards as u64 * SEGMENTS_MIN * SEGMENT_BYTES + 2 * LABEL_REGION
}

/// What a copy is found by: the checksum of the block and where it is.
fn tag(ptr: &Ptr) -> u64 {
    ptr.sum.0 as u64 ^ ptr.addr().0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Part {
    /// Segments that will be written before this one is overwritten; nothing when it is.
    fn left(&self, place: &Place) -> Option<u64> {
        (place.segment + self.segments).checked_sub(self.next.get())
    }

    fn byte(&self, segment: u64, unit: u64) -> u64 {
        self.first + segment % self.segments * SEGMENT_BYTES + unit * UNIT_BYTES
    }

    fn serves(&self, now: Nanos) -> bool {
        self.is_known.get() && !self.health.is_failed() && now >= self.left_alone_until.get()
    }
}

impl Flash {
    fn part(&self, disk: u16) -> Option<Rc<Part>> {
        self.parts.borrow().iter().find(|part| part.disk == disk).cloned()
    }

    /// The handle of a cache disk.
    pub fn handle(&self, disk: u16) -> Option<Disk> {
        self.part(disk).map(|part| part.handle.clone())
    }

    /// The disks are filled by turns.
    fn next_part(&self) -> Option<Rc<Part>> {
        let parts = self.parts.borrow();
        let turn = self.turn.replace(self.turn.get().wrapping_add(1));
        parts.get(turn.checked_rem(parts.len())?).cloned()
    }

    /// Where a block is, if it can be read there.
    fn find(&self, ptr: &Ptr, now: Nanos) -> Option<(Rc<Part>, Place)> {
        let place = self.index.borrow().as_ref()?.find(tag(ptr))?;
        let part = self.part(place.disk).filter(|part| part.serves(now))?;
        part.left(&place).is_some().then_some((part, place))
    }

    /// Memory that it takes to know where blocks are.
    pub fn index_bytes(&self) -> u64 {
        self.index.borrow().as_ref().map_or(0, |index| index.capacity() * Index::BLOCK_BYTES)
    }

    fn forget(&self, ptr: &Ptr) {
        if let Some(index) = self.index.borrow_mut().as_mut() {
            index.forget(tag(ptr));
        }
    }

    fn note(&self, tag: u64, place: Place) {
        let parts = self.parts.borrow();
        // As a part of its ring, since rings are of different length.
        let age = |other: &Place| {
            let part = parts.iter().find(|part| part.disk == other.disk);
            let left = part.and_then(|part| Some(part.left(other)? * 1000 / part.segments));
            left.map_or(u64::MAX - 2, |left| 1000 - left.min(1000))
        };
        if let Some(index) = self.index.borrow_mut().as_mut() {
            index.insert(tag, place, age);
        }
    }
}

impl Shard {
    /// A cache disk joins. What it has from before is found by [`Shard::look_through_flash`].
    pub fn add_flash(&self, disk: u16, handle: Disk, health: Arc<Health>, shards: usize) {
        let size = handle.geometry().size;
        let Some((first, segments)) = part_of(size, self.index, shards) else { return };
        let part = Part {
            disk,
            handle,
            health,
            first,
            segments,
            // Numbers of segments are distances to what is overwritten, too.
            next: Cell::new(segments),
            filling: RefCell::default(),
            is_writing: Cell::new(false),
            is_known: Cell::new(false),
            left_alone_until: Cell::default(),
        };
        self.flash.parts.borrow_mut().push(Rc::new(part));
        self.size_flash_index();
    }

    /// Makes the index as large as its disks can use, in memory that the cache of blocks has otherwise.
    fn size_flash_index(&self) {
        let budget = self.shared.memory_per_shard;
        let segments: u64 = self.flash.parts.borrow().iter().map(|part| part.segments).sum();
        // A set may be full while another is not.
        let blocks = segments * SEGMENT_BYTES / (8 << 10) * 2;
        let new = Index::new(blocks.min(budget / MEMORY_PART / Index::BLOCK_BYTES));
        let old = self.flash.index.borrow_mut().replace(new);
        self.size_cache();
        for (tag, place) in old.iter().flat_map(Index::blocks) {
            self.flash.note(tag, place);
        }
    }

    /// A cache disk leaves.
    pub fn remove_flash(&self, disk: u16) {
        self.flash.parts.borrow_mut().retain(|part| part.disk != disk);
        if self.flash.parts.borrow().is_empty() {
            *self.flash.index.borrow_mut() = None;
            self.size_cache();
        }
    }

    /// The shard ends: it waits for no cache disk.
    pub fn give_up_flash(&self) {
        self.flash.parts.borrow().iter().for_each(|part| part.handle.give_up());
    }

    /// How cache disks did since they were last asked.
    pub fn flash_vitals(&self) -> Vec<(u16, Vitals)> {
        self.flash.parts.borrow().iter().map(|part| (part.disk, part.handle.watch().take_vitals())).collect()
    }

    /// Bytes that this shard has for segments, and how many of them hold blocks that can be found.
    pub fn flash_bytes(&self) -> (u64, u64) {
        let (mut size, mut written) = (0, 0);
        for part in self.flash.parts.borrow().iter().filter(|part| !part.health.is_failed()) {
            size += part.segments * SEGMENT_BYTES;
            written += (part.next.get() - part.segments).min(part.segments) * SEGMENT_BYTES;
        }
        let named = self.flash.index.borrow().as_ref().map_or(0, Index::units) * UNIT_BYTES;
        (size, written.min(named))
    }

    /// Finds what cache disks have from before. Until then nothing is read from them nor written to them.
    pub async fn look_through_flash(self: Rc<Self>) {
        let unknown = |part: &&Rc<Part>| !part.is_known.get();
        let parts: Vec<Rc<Part>> = self.flash.parts.borrow().iter().filter(unknown).cloned().collect();
        'parts: for part in parts {
            let mut next = part.segments;
            for from in (0..part.segments).step_by(HEADERS_AT_ONCE as usize) {
                if self.stopping.get() || part.health.is_failed() {
                    continue 'parts;
                }
                let to = (from + HEADERS_AT_ONCE).min(part.segments);
                let headers = (from..to).map(|nth| {
                    let at = part.byte(nth, 0);
                    let reading = part.handle.read(at, self.rt.buffer(UNIT_BYTES as usize));
                    async move { (nth, Segment::decode(&reading.await.0, at)) }
                });
                for (nth, segment) in join_all(headers).await {
                    let is_own = |segment: &Segment| {
                        segment.pool == self.shared.id
                            && segment.number % part.segments == nth
                            && segment.number >= part.segments
                    };
                    if let Some(segment) = segment.filter(is_own) {
                        next = next.max(segment.number + 1);
                        self.note_segment(part.disk, &segment);
                    }
                }
            }
            // Unless another task has looked through it meanwhile, and it is being filled.
            if !part.is_known.replace(true) {
                part.next.set(next);
            }
        }
    }

    fn note_segment(&self, disk: u16, segment: &Segment) {
        for (tag, place) in segment.places(disk) {
            self.flash.note(tag, place);
        }
    }

    /// The stored bytes of a block, if a cache disk has them.
    pub async fn read_flash(self: &Rc<Self>, ptr: &Ptr) -> Option<Buf> {
        let (part, place) = self.flash.find(ptr, self.rt.now())?;
        if u32::from(place.units) != ptr.units() || part.handle.watch().in_flight() >= IN_FLIGHT_MAX {
            return None;
        }
        let at = part.byte(place.segment, place.unit.into());
        let len = ptr.units() as usize * UNIT_BYTES as usize;
        let reading = part.handle.read(at, self.rt.buffer(len));
        let patience = if active(Bug::FlashAwaited) { Duration::MAX } else { LATE };
        let Either::Left(((mut bytes, result), _)) = select(reading, pin!(self.rt.sleep(patience))).await
        else {
            part.left_alone_until.set(self.rt.now().after(LEFT_ALONE));
            return None;
        };
        bytes.truncate(ptr.bytes() as usize);
        match result {
            Ok(()) if Checksum::of(&bytes) == ptr.sum || active(Bug::FlashUnchecked) => {
                let bytes = bytes.freeze();
                if part.left(&place).is_some_and(|left| left < part.segments / OLD_PART) {
                    self.flash.forget(ptr);
                    self.fill_flash(&part, ptr, &bytes);
                }
                return Some(bytes);
            }
            // It was overwritten meanwhile: that is no fault of the disk's.
            _ if part.left(&place).is_none() => return None,
            Ok(()) => part.health.failed_check(self.rt.now(), at..at + len as u64),
            Err(error) => self.flash_unreadable(&part, error, at..at + len as u64),
        }
        self.flash.forget(ptr);
        None
    }

    fn flash_unreadable(self: &Rc<Self>, part: &Part, error: DiskError, bytes: std::ops::Range<u64>) {
        if error.kind.is_of_device() {
            part.health.failed_read(self.rt.now(), bytes);
        }
        if part.health.errors(self.rt.now()).read_recent > UNREADABLE_MAX {
            self.flash_failed(part);
        }
    }

    /// A cache disk is out of service. Nothing is lost with it, and nobody waits until that is recorded.
    fn flash_failed(self: &Rc<Self>, part: &Part) {
        if part.health.fail() {
            let (pool, disk) = (self.shared.id, part.disk);
            self.shared.cores.core(0).run(move |rt| {
                if let Some(control) = registry(rt).control(pool) {
                    drop(rt.spawn(async move { control.record_failure(disk).await }));
                }
            });
        }
    }

    /// The stored bytes of blocks that follow each other, if cache disks have all of them.
    pub async fn read_flash_run(self: &Rc<Self>, run: &[Ptr]) -> Option<Buf> {
        let now = self.rt.now();
        if run_bytes(run) > REQUEST_BYTES_MAX || !run.iter().all(|ptr| self.flash.find(ptr, now).is_some()) {
            return None;
        }
        let parts = join_all(run.iter().map(|ptr| self.read_flash(ptr))).await;
        if let [one] = &parts[..] {
            return one.clone();
        }
        let mut whole: BufMut = self.rt.arena().take(run_bytes(run));
        for ((ptr, at), part) in cut(run).zip(parts) {
            whole[at..at + ptr.bytes() as usize].copy_from_slice(&part?);
        }
        Some(whole.freeze())
    }

    /// Whether there are cache disks.
    pub fn has_flash(&self) -> bool {
        self.flash.index.borrow().is_some()
    }

    /// What a client read from the disks at once, as it is stored, and may read again.
    pub fn keep_in_flash(self: &Rc<Self>, run: &[Ptr], stored: &Buf) {
        if stored.len() > REQUEST_BYTES_MAX {
            return;
        }
        let Some(part) = self.flash.next_part() else { return };
        for (ptr, at) in cut(run) {
            self.fill_flash(&part, ptr, &stored.slice(at, ptr.bytes() as usize));
        }
    }

    /// What moves from the log to the disks: who wrote it may read it, and now it is in memory. What came in sequence is not kept.
    pub fn keep_moved_in_flash(self: &Rc<Self>, changes: &[Change]) {
        if !self.has_flash() {
            return;
        }
        let follows = |one: &Change, next: &Change| match (one, next) {
            (
                Change::Write { dataset, first, ptrs, .. },
                Change::Write { dataset: other, first: next, .. },
            ) => Rc::ptr_eq(dataset, other) && first + ptrs.len() as u64 == *next,
            _ => false,
        };
        for run in changes.chunk_by(follows) {
            let blocks = run.iter().filter_map(|change| match change {
                Change::Write { ptrs, stored, .. } => Some(ptrs.iter().zip(stored)),
                _ => None,
            });
            let blocks: Vec<(&Ptr, &Buf)> = blocks.flatten().filter(|(ptr, _)| !ptr.is_hole()).collect();
            let bytes: usize = blocks.iter().map(|(_, stored)| stored.len()).sum();
            let Some(part) = self.flash.next_part().filter(|_| bytes <= REQUEST_BYTES_MAX) else { continue };
            for (ptr, stored) in blocks {
                self.fill_flash(&part, ptr, &self.alone(stored.clone()));
            }
        }
    }

    /// Puts a block into the segment that is being filled, unless it is somewhere already.
    fn fill_flash(self: &Rc<Self>, part: &Rc<Part>, ptr: &Ptr, stored: &Buf) {
        let (units, now) = (u64::from(ptr.units()), self.rt.now());
        if !part.serves(now) || ptr.kind() == IN_PART || self.flash.find(ptr, now).is_some() {
            return;
        }
        if part.filling.borrow().units + units >= UNITS && !self.write_flash(part) {
            return;
        }
        let mut filling = part.filling.borrow_mut();
        let block = Cached { tag: tag(ptr), units: units as u8 };
        if filling.blocks.contains(&block) {
            return;
        }
        filling.blocks.push(block);
        filling.data.push(stored.clone());
        let rest = (units * UNIT_BYTES) as usize - stored.len();
        if rest > 0 {
            filling.data.push(self.zero.slice(0, rest));
        }
        filling.units += units;
    }

    /// Writes what was filled over the oldest segment. False while the one before is being written: what comes is then not kept.
    fn write_flash(self: &Rc<Self>, part: &Rc<Part>) -> bool {
        if part.is_writing.replace(true) {
            return false;
        }
        let filled = part.filling.take();
        let number = part.next.get();
        part.next.set(number + 1);
        let (shard, part, at) = (self.clone(), part.clone(), part.byte(number, 0));
        self.spawn(async move {
            let segment = Segment { pool: shard.shared.id, number, blocks: filled.blocks };
            let mut data = vec![shard.rt.arena().copy(&segment.encode(at)).freeze()];
            data.extend(filled.data);
            match part.handle.write(at, data).await {
                Ok(()) => shard.note_segment(part.disk, &segment),
                Err(error) => {
                    if error.kind.is_of_device() {
                        part.health.failed_write();
                    }
                    shard.flash_failed(&part);
                }
            }
            part.is_writing.set(false);
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::MIB;

    #[test]
    fn parts_lie_beside_each_other_between_the_labels() {
        for (size, shards) in [(bytes_min(1), 1), (64 * MIB, 3), (bytes_min(32), 32), (1 << 40, 16)] {
            let parts: Vec<_> =
                (0..shards).map(|shard| part_of(size, shard, shards).expect("enough")).collect();
            let end = |part: &(u64, u64)| part.0 + part.1 * SEGMENT_BYTES;
            assert!(parts.windows(2).all(|pair| end(&pair[0]) == pair[1].0));
            assert!(parts[0].0 >= FIRST && end(&parts[shards - 1]) + LABEL_REGION <= size);
        }
        assert_eq!(part_of(bytes_min(2) - MIB, 0, 2), None);
    }
}
