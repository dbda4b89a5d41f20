//! Chunks on disks: mirrors, and lines with parity.
//!
//! [`Array`] is a pool's disks on one core. A chunk is one slot of each of several disks; the shape of their group and
//! the number of slots say what it is: with more data than one slot holds and as many slots as data and parity together,
//! lines of cells with parity ([`lines`]); otherwise a mirror, each slot with the same bytes (also the log and
//! the nodes of a pool with parity: small, and rewritten in small pieces).
//!
//! It writes to every slot that is in service, reads from one (of a mirror the one with the shortest queue), and turns to
//! the others when a read fails or the caller's check refuses what was read. What it cannot decide it
//! reports: which slots were bad (the caller knows whether the pointer is still current, and so whether they may be
//! repaired), and which disk must be taken out (the pool records that on the surviving disks before any write that lacks
//! the slot is acknowledged).
//!
//! A failed write or flush is never retried: the disk is out (invariant 9).

mod bands;
mod code;
mod degraded;
mod field;
mod hedge;
mod kernels;
mod lines;
mod rebuild;
mod subset;
mod write;

use forebay_base::planted::{Bug, active};
use forebay_device::{
    DISKS_MAX, DiskLayout, Enclosure, GROUPS_MAX, GroupEntry, Health, Member, SlotRef, UNIT, most_lacking,
};
use forebay_runtime::{Buf, BufMut, Completion, Disk, DiskError, DiskErrorKind, Rt, Vitals};
use hedge::{Hedge, avoids};
use lines::Lines;
use std::cell::{Cell, OnceCell};
use std::future::Future;
use std::iter::successors;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub use code::{Code, DATA_MAX, PARITY_MAX, Recipe};
pub use kernels::Kernel;
pub use rebuild::Scrubbed;
pub use subset::Subset;
pub use write::Piece;

/// Nothing could be read or written: what is left of the chunk will not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayError {
    /// Something could be read, and no way to read it passed the check.
    Corrupt,
    /// Too little could be read or written.
    Io,
}

/// A set of disks of one pool.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DiskSet(Vec<u64>);

impl DiskSet {
    pub fn insert(&mut self, disk: u16) {
        let word = usize::from(disk / 64);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (disk % 64);
    }
    pub fn contains(&self, disk: u16) -> bool {
        self.0.get(usize::from(disk / 64)).is_some_and(|word| word & (1 << (disk % 64)) != 0)
    }
    pub fn union(&mut self, other: &DiskSet) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        let of_word = |(nth, word): (usize, &u64)| {
            let first = nth as u16 * 64;
            successors(Some(*word), |left| Some(left & left.wrapping_sub(1)))
                .take_while(|left| *left != 0)
                .map(move |left| first + left.trailing_zeros() as u16)
        };
        self.0.iter().enumerate().flat_map(of_word)
    }
}

/// Completes when the disk's failure is recorded where an import will find it.
pub type Recorded = Pin<Box<dyn Future<Output = ()>>>;

/// By group, the most slots that any chunk of it has in one enclosure.
pub type Crowds = Arc<[AtomicU8; GROUPS_MAX]>;

/// Each slot of a chunk in an enclosure of its own.
pub fn no_crowds() -> Crowds {
    Arc::new(std::array::from_fn(|_| AtomicU8::new(1)))
}

/// Where a disk belongs: its group, its line ([`forebay_device::Label::line`]) and its enclosure.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub group: u16,
    pub line: u16,
    pub enclosure: Enclosure,
}

/// A disk of the pool, there or not.
struct Known {
    place: Place,
    health: Arc<Health>,
    /// Absent when the disk was not found.
    member: Option<Rc<Member>>,
}

/// A group of disks.
struct Group {
    /// Disks that it can lose.
    redundancy: u8,
    /// When it has parity.
    lines: Option<Lines>,
}

/// The disks of a pool on one core. Disks and groups can be added, and never change.
pub struct Array {
    rt: Rt,
    /// By index in the label.
    disks: Box<[OnceCell<Box<Known>>]>,
    numbers_end: Cell<u16>,
    groups: Box<[OnceCell<Group>]>,
    /// The most parity cells of a line of any group that has lines.
    parity_max: Cell<Option<usize>>,
    crowds: Crowds,
    hedge: Rc<Hedge>,
    /// Called when a disk failed a write or flush.
    failed: Box<dyn Fn(u16) -> Recorded>,
}

/// How a reader stands to a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It needs this one's bytes.
    Only,
    /// It could get by without, and does when the disk is late.
    Among,
}

/// Whose slots may be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Those of disks in service.
    Serving,
    /// Also those of disks that are out, when nothing else is left: by a reader who checks what he gets. When more disks are out than a
    /// group can lose, its pool is suspended, and nothing was acknowledged that the last of them lack.
    Readable,
}

/// A read that passed its check.
pub struct Good {
    pub bytes: BufMut,
    /// Slots in service whose part of the range was unreadable or wrong: they may be rewritten with these bytes.
    pub bad: Vec<SlotRef>,
}

impl Array {
    /// No disks yet; `failed` is called when a disk failed a write or flush.
    pub fn new(rt: Rt, crowds: Crowds, failed: Box<dyn Fn(u16) -> Recorded>) -> Array {
        let disks = (0..DISKS_MAX).map(|_| OnceCell::new()).collect();
        let groups = (0..GROUPS_MAX).map(|_| OnceCell::new()).collect();
        let (parity_max, numbers_end) = (Cell::new(None), Cell::new(0));
        let hedge = Hedge::new(rt.clone());
        Array { hedge, rt, disks, numbers_end, groups, parity_max, crowds, failed }
    }

    /// Adds a group by its index in the label.
    ///
    /// # Panics
    /// When there is one of this index, or it has a shape that a label must not have: data cells not 1 to 16, with more than one of
    /// them parity cells not 1 to 3, cells not a multiple of 4 KiB up to 256 KiB or not a divisor of the slot.
    pub fn add_group(&self, index: u16, group: &GroupEntry) {
        let group = Group { redundancy: group.redundancy, lines: Lines::of(group) };
        let parity = group.lines.as_ref().map(|lines| lines.code.parity());
        self.parity_max.set(self.parity_max.get().max(parity));
        assert!(self.groups[usize::from(index)].set(group).is_ok(), "group {index} is there already");
    }

    /// Adds a disk of a group, in an enclosure, by its index in the label; `disk` is absent when it was not found.
    ///
    /// # Panics
    /// When there is one of this index.
    pub fn add_disk(&self, index: u16, place: Place, health: Arc<Health>, disk: Option<(Disk, DiskLayout)>) {
        let member = disk.map(|(disk, layout)| Rc::new(Member::new(disk, layout, health.clone())));
        if let Some(member) = &member {
            self.hedge.add(place.group, member.clone());
        }
        let known = Known { place, health, member };
        assert!(self.disks[usize::from(index)].set(Box::new(known)).is_ok(), "disk {index} is there already");
        self.numbers_end.set(self.numbers_end.get().max(index + 1));
    }

    /// The numbers up to the greatest that a disk has.
    fn numbers(&self) -> std::ops::Range<u16> {
        0..self.numbers_end.get()
    }

    /// Every disk in service.
    pub fn all(&self) -> DiskSet {
        let mut all = DiskSet::default();
        self.numbers().filter(|disk| self.member(*disk).is_some()).for_each(|disk| all.insert(disk));
        all
    }

    fn known(&self, disk: u16) -> Option<&Known> {
        self.disks.get(usize::from(disk))?.get().map(|known| &**known)
    }

    /// The disk, in service or not.
    pub fn attached(&self, disk: u16) -> Option<&Rc<Member>> {
        self.known(disk)?.member.as_ref()
    }

    /// How each disk did since this was last asked, as far as this core has to do with it.
    pub fn take_vitals(&self) -> Vec<(u16, Vitals)> {
        let attached = self.numbers().filter_map(|disk| Some((disk, self.attached(disk)?)));
        attached.map(|(disk, member)| (disk, member.disk.watch().take_vitals())).collect()
    }

    /// The line that a disk was added to.
    pub fn line(&self, disk: u16) -> Option<u16> {
        self.known(disk).map(|known| known.place.line)
    }

    /// The disk, when it is in service.
    pub fn member(&self, disk: u16) -> Option<&Rc<Member>> {
        self.attached(disk).filter(|member| !member.health.is_failed())
    }

    /// The disk of a slot, when it is in service and has that slot: what is read from a damaged table may name others.
    fn of_slot(&self, slot: &SlotRef) -> Option<&Rc<Member>> {
        self.member(slot.disk).filter(|member| slot.slot < member.layout.slots)
    }

    /// The disk of a slot, when it may be read.
    fn of(&self, whose: Whose, slot: &SlotRef) -> Option<&Rc<Member>> {
        match whose {
            Whose::Serving => self.of_slot(slot),
            Whose::Readable => self.attached(slot.disk).filter(|member| slot.slot < member.layout.slots),
        }
    }

    /// Whether some chunk may have lost more slots than it can.
    pub fn is_lost(&self) -> bool {
        let is_out = |known: &&Known| known.health.is_failed() && !known.health.is_empty();
        // Every flush asks, and nearly always there are none.
        let out: Vec<Place> = self
            .numbers()
            .filter_map(|disk| self.known(disk))
            .filter(is_out)
            .map(|known| known.place)
            .collect();
        let is_lost = |place: &Place| {
            let number = usize::from(place.group);
            let Some(group) = self.groups[number].get() else { return false };
            let of_group = out.iter().filter(|other| other.group == place.group);
            let crowd = usize::from(self.crowds[number].load(Ordering::Acquire));
            most_lacking(of_group.map(|other| (other.line, other.enclosure)), crowd)
                > usize::from(group.redundancy)
        };
        out.iter().any(is_lost)
    }

    /// The most parity cells of a line of any group that has lines.
    pub fn parity_max(&self) -> Option<usize> {
        self.parity_max.get()
    }

    /// How the chunk on `slots` is divided, when it is one with parity.
    fn lines(&self, slots: &[SlotRef]) -> Option<&Lines> {
        let group = self.known(slots.first()?.disk)?.place.group;
        let lines = self.groups[usize::from(group)].get()?.lines.as_ref()?;
        (slots.len() == lines.code.width()).then_some(lines)
    }

    /// Bytes of a cell of the chunk on `slots`, when it has parity.
    pub fn cell_bytes(&self, slots: &[SlotRef]) -> Option<u64> {
        self.lines(slots).map(|lines| lines.cell)
    }

    /// Of the chunk's slots, how many must lack a write for it to be lost.
    fn lacking_too_many(&self, slots: &[SlotRef]) -> usize {
        self.lines(slots).map_or(slots.len(), |lines| lines.code.parity() + 1)
    }

    /// Reads `len` bytes at `offset` of the chunk on `slots`, in the first way that `check` accepts: of a mirror, copy by copy;
    /// of a chunk with parity, from the disks that hold it, then computed from the others.
    ///
    /// # Errors
    /// `Corrupt` when something could be read and nothing of it passed, or the range cannot be one of the chunk; `Io` when too
    /// little could be read.
    pub async fn read(
        &self,
        slots: &[SlotRef],
        offset: u64,
        len: usize,
        check: impl Fn(&[u8]) -> bool,
    ) -> Result<Good, ArrayError> {
        if !is_aligned(offset, len) {
            return Err(ArrayError::Corrupt);
        }
        match self.read_of(Whose::Serving, slots, offset, len, &check).await {
            // Of a suspended pool, disks that failed may have what no other has.
            Err(_) if self.is_lost() => {
                Box::pin(self.read_of(Whose::Readable, slots, offset, len, check)).await
            }
            read => read,
        }
    }

    /// The same from disks in service, and whatever takes long is waited for: what a disk holds is right only when it has been read.
    ///
    /// # Errors
    /// As [`Array::read`] has them.
    pub async fn read_waiting(
        &self,
        slots: &[SlotRef],
        offset: u64,
        len: usize,
        check: impl Fn(&[u8]) -> bool,
    ) -> Result<Good, ArrayError> {
        let way = if active(Bug::ScrubAvoidsLate) { Way::Among } else { Way::Only };
        match self.lines(slots) {
            _ if !is_aligned(offset, len) => Err(ArrayError::Corrupt),
            Some(lines) => self.read_lines((way, Whose::Serving), lines, slots, offset, len, check).await,
            None => self.read_of(Whose::Serving, slots, offset, len, check).await,
        }
    }

    async fn read_of(
        &self,
        whose: Whose,
        slots: &[SlotRef],
        offset: u64,
        len: usize,
        check: impl Fn(&[u8]) -> bool,
    ) -> Result<Good, ArrayError> {
        if let Some(lines) = self.lines(slots) {
            return self.read_lines((Way::Among, whose), lines, slots, offset, len, check).await;
        }
        let place = |member: &Member, slot: &SlotRef| member.layout.slot_at(slot.slot) + offset;
        self.read_copies(whose, slots, place, len, check).await
    }

    /// Reads `len` bytes that each slot has a copy of, at a place of its disk.
    async fn read_copies(
        &self,
        whose: Whose,
        slots: &[SlotRef],
        place: impl Fn(&Member, &SlotRef) -> u64,
        len: usize,
        check: impl Fn(&[u8]) -> bool,
    ) -> Result<Good, ArrayError> {
        let first = self.preferred(slots);
        let mut buffer = self.rt.buffer(len);
        let (mut bad, mut late) = (Vec::new(), Vec::new());
        let mut error = ArrayError::Io;
        let mut order =
            first.into_iter().chain(slots.iter().copied().filter(|slot| Some(*slot) != first)).peekable();
        while let Some((slot, way)) = match order.next() {
            // The last one has to be waited for.
            Some(slot) if order.peek().is_none() => Some((slot, Way::Only)),
            Some(slot) => Some((slot, Way::Among)),
            None => late.pop().map(|slot| (slot, Way::Only)),
        } {
            let Some(member) = self.of(whose, &slot) else { continue };
            let at = place(member, &slot);
            let (bytes, result) = self.read_member(member, at, buffer, way).await;
            buffer = bytes;
            match result {
                Ok(()) if check(&buffer) => return Ok(Good { bytes: buffer, bad }),
                Ok(()) => {
                    member.health.failed_check(self.rt.now(), at..at + len as u64);
                    error = ArrayError::Corrupt;
                }
                Err(DiskError { kind: DiskErrorKind::Late, .. }) => {
                    late.push(slot);
                    continue;
                }
                Err(_) => {}
            }
            bad.push(slot);
        }
        Err(error)
    }

    /// The copy in service with the fewest reads in flight, of a disk that is not late when there is one.
    fn preferred(&self, slots: &[SlotRef]) -> Option<SlotRef> {
        if let [only] = slots {
            return Some(*only);
        }
        let queues = slots.iter().filter_map(|slot| {
            let member = self.member(slot.disk)?;
            Some((avoids(member), member.reads.get(), slot))
        });
        queues.min_by_key(|(avoided, reads, _)| (*avoided, *reads)).map(|(_, _, slot)| *slot)
    }

    /// Starts writing `parts`, each a multiple of 4 KiB, at `offset` of the chunk, to every slot in service. To a chunk
    /// with parity only whole lines can be written.
    ///
    /// # Panics
    /// When the range is not of whole lines: [`Array::plan_plug`] is for the rest.
    pub fn write(&self, slots: &[SlotRef], offset: u64, parts: Vec<Buf>) -> Writing {
        match self.lines(slots) {
            Some(lines) => self.write_lines(lines, slots, offset, parts),
            None => self.write_copies(slots, offset, parts),
        }
    }

    /// Like [`Array::write`], of the same bytes to every slot, however many they are.
    pub fn write_copies(&self, slots: &[SlotRef], offset: u64, parts: Vec<Buf>) -> Writing {
        self.write_each(slots, slots.len(), |member, slot| {
            member.disk.write(member.layout.slot_at(slot.slot) + offset, parts.clone())
        })
    }

    /// The same, durable without a flush.
    pub fn write_copies_durable(&self, slots: &[SlotRef], offset: u64, parts: Vec<Buf>) -> Writing {
        self.write_each(slots, slots.len(), |member, slot| {
            member.disk.write_durable(member.layout.slot_at(slot.slot) + offset, parts.clone())
        })
    }

    fn write_each(
        &self,
        slots: &[SlotRef],
        too_many: usize,
        write: impl Fn(&Member, &SlotRef) -> Completion<Result<(), DiskError>>,
    ) -> Writing {
        let mut writing = Writing::new(too_many);
        for slot in slots {
            match self.member(slot.disk) {
                Some(member) => writing.parts.push((slot.disk, write(member, slot))),
                None => writing.lack(slot.disk),
            }
        }
        writing
    }

    /// Adds to `writing` a write to byte `at` of the disk of a slot.
    fn write_slot(
        &self,
        slot: &SlotRef,
        at: impl Fn(&Member) -> u64,
        parts: Vec<Buf>,
        writing: &mut Writing,
    ) {
        match self.member(slot.disk) {
            Some(member) => writing.parts.push((slot.disk, member.disk.write(at(member), parts))),
            None => writing.lack(slot.disk),
        }
    }

    /// Bytes of each of these slots.
    pub fn slot_bytes(&self, slots: &[SlotRef]) -> Option<u64> {
        slots.iter().find_map(|slot| self.attached(slot.disk)).map(|member| member.layout.slot_bytes)
    }

    /// Which bytes of each of a chunk's slots are in the same lines as a range of the chunk: of a mirror, where the range is.
    pub fn slot_parts(&self, slots: &[SlotRef], offset: u64, len: usize) -> Vec<Range<u64>> {
        match self.lines(slots) {
            None => std::iter::once(offset..offset + len as u64).collect(),
            Some(lines) => {
                lines.extents(offset, len).map(|extent| extent.at..extent.at + extent.len as u64).collect()
            }
        }
    }

    /// Tells the disk of a slot that these bytes of the slot hold nothing; nothing when it is out of service.
    pub async fn discard(&self, slot: SlotRef, bytes: Range<u64>) -> Option<Result<(), DiskError>> {
        let member = self.of_slot(&slot)?;
        let at = member.layout.slot_at(slot.slot) + bytes.start;
        Some(member.disk.discard(at, bytes.end - bytes.start).await)
    }

    /// Starts writing a chunk record to alternate 0 or 1 beside each slot in service.
    pub fn write_record(&self, slots: &[SlotRef], alternate: u8, record: Buf) -> Writing {
        self.write_each(slots, self.lacking_too_many(slots), |member, slot| {
            member.disk.write(member.layout.record_at(slot.slot, alternate), vec![record.clone()])
        })
    }

    /// Reads the chunk record in an alternate, from the first copy that `check` accepts.
    ///
    /// # Errors
    /// `Corrupt` when something could be read and no copy passed; `Io` when none could be read.
    pub async fn read_record(
        &self,
        slots: &[SlotRef],
        alternate: u8,
        len: usize,
        check: impl Fn(&[u8]) -> bool,
    ) -> Result<Good, ArrayError> {
        let place = |member: &Member, slot: &SlotRef| member.layout.record_at(slot.slot, alternate);
        self.read_copies(Whose::Serving, slots, place, len, check).await
    }

    /// Waits for a write. Ok when what reached the disks holds the data (of a mirror one copy; of a chunk with parity, all
    /// slots but as many as there is parity) and the loss of every other is recorded. Adds the disks to flush.
    pub async fn written(&self, mut writing: Writing, touched: &mut DiskSet) -> Result<(), ArrayError> {
        for (disk, completion) in std::mem::take(&mut writing.parts) {
            match completion.await {
                Ok(()) => touched.insert(disk),
                Err(_) if active(Bug::WriteErrorIgnored) => {}
                Err(error) => {
                    self.fail(disk, error);
                    writing.lack(disk);
                }
            }
        }
        for disk in &writing.lacking {
            (self.failed)(*disk).await;
        }
        if writing.lacking.len() < writing.lacking_too_many { Ok(()) } else { Err(ArrayError::Io) }
    }

    /// Makes completed writes to `disks` durable. Ok when no group has lost more than it can, and every loss is recorded.
    pub async fn flush(&self, disks: &DiskSet) -> Result<(), ArrayError> {
        let flushing: Vec<_> = disks
            .iter()
            .filter_map(|disk| self.member(disk).map(|member| (disk, member.disk.flush())))
            .collect();
        for (disk, completion) in flushing {
            if let Err(error) = completion.await
                && !active(Bug::FlushErrorIgnored)
            {
                self.fail(disk, error);
            }
        }
        // Also of those that failed elsewhere, before or meanwhile: what was written to them is on the others only, which has to be known first.
        let is_out = |disk: &u16| self.known(*disk).is_some_and(|known| known.health.is_failed());
        for disk in disks.iter().filter(is_out) {
            if !active(Bug::FlushForgetsFailedDisk) {
                (self.failed)(disk).await;
            }
        }
        if self.is_lost() { Err(ArrayError::Io) } else { Ok(()) }
    }

    fn fail(&self, disk: u16, error: DiskError) {
        if let Some(known) = self.known(disk) {
            known.health.failed_by(error);
        }
    }

    /// Rewrites, on those of the chunk's `slots` that are `bad`, what they hold of the range at `offset` with its good `bytes`. The
    /// caller makes sure that nothing else writes there meanwhile. Returns how many slots were repaired. A disk
    /// that fails such a write is out, as with any other, and that is recorded before this returns.
    pub async fn repair(&self, slots: &[SlotRef], bad: &[SlotRef], offset: u64, bytes: &Buf) -> usize {
        let mut repaired = 0;
        for slot in bad {
            let Some(member) = self.of_slot(slot) else { continue };
            if active(Bug::RepairWritesWrongCopy) {
                member.health.repaired();
                repaired += 1;
                continue;
            }
            let start = member.layout.slot_at(slot.slot);
            let mut written = Ok(());
            match self.lines(slots) {
                None => written = member.disk.write(start + offset, vec![bytes.clone()]).await,
                Some(lines) => {
                    let here =
                        |extent: &lines::Extent| slots[lines.slot_of(extent.line, extent.role)] == *slot;
                    for extent in lines.extents(offset, bytes.len()).filter(here) {
                        let part = bytes.slice(extent.from, extent.len);
                        written = written.and(member.disk.write(start + extent.at, vec![part]).await);
                    }
                }
            }
            match written {
                Ok(()) => {
                    member.health.repaired();
                    repaired += 1;
                }
                Err(_) if active(Bug::RepairErrorIgnored) => {}
                Err(error) => {
                    self.fail(slot.disk, error);
                    (self.failed)(slot.disk).await;
                }
            }
        }
        repaired
    }

    /// Rewrites every slot whose part of the range is bad, of a mirror every copy, if some way to read it passes `check`: how
    /// many are right again; nothing when no way does. Nothing else writes there meanwhile.
    pub async fn mend(
        &self,
        slots: &[SlotRef],
        offset: u64,
        len: usize,
        check: impl Fn(&[u8]) -> bool,
    ) -> Option<usize> {
        if !is_aligned(offset, len) {
            return None;
        }
        let (good, bad) = match self.lines(slots) {
            Some(_) => match self.read_waiting(slots, offset, len, check).await {
                Ok(Good { bytes, bad }) => (bytes, bad),
                Err(_) => return None,
            },
            None => {
                let (mut good, mut bad) = (None, Vec::new());
                for slot in slots {
                    let Some(member) = self.of_slot(slot) else { continue };
                    let at = member.layout.slot_at(slot.slot) + offset;
                    let (bytes, result) =
                        self.read_slot(member, slot, offset, self.rt.buffer(len), Way::Only).await;
                    match result {
                        Ok(()) if check(&bytes) => good = good.or(Some(bytes)),
                        Ok(()) => {
                            member.health.failed_check(self.rt.now(), at..at + len as u64);
                            bad.push(*slot);
                        }
                        Err(_) => bad.push(*slot),
                    }
                }
                (good?, bad)
            }
        };
        if bad.is_empty() {
            return Some(0);
        }
        Some(self.repair(slots, &bad, offset, &good.freeze()).await)
    }
}

/// Whether a range can be asked of a device: a pointer from a damaged or hostile node may say anything.
fn is_aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(UNIT) && len > 0 && (len as u64).is_multiple_of(UNIT)
}

/// A write to several slots of a chunk, in flight.
pub struct Writing {
    parts: Vec<(u16, Completion<Result<(), DiskError>>)>,
    /// Disks that lack their part, each once: out of service, or the write failed.
    lacking: Vec<u16>,
    /// So many disks without their part make the write fail.
    lacking_too_many: usize,
}

impl Writing {
    fn new(lacking_too_many: usize) -> Writing {
        Writing { parts: Vec::new(), lacking: Vec::new(), lacking_too_many }
    }

    fn lack(&mut self, disk: u16) {
        if !self.lacking.contains(&disk) {
            self.lacking.push(disk);
        }
    }
}
