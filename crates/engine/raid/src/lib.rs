//! Mirrors: one chunk's bytes on each of its slots.
//!
//! [`Array`] is a pool's disks on one core. It writes to every copy that is in service, reads from the one
//! with the shortest queue, and turns to the others when a read fails or the caller's check refuses what was
//! read. What it cannot decide it reports: which copies were bad (the caller knows whether the pointer is
//! still current, and so whether they may be repaired), and which disk must be taken out (the pool records
//! that on the surviving disks before any write that lacks the copy is acknowledged).
//!
//! A failed write or flush is never retried: the disk is out (invariant 9).

use forebay_base::planted::{Bug, active};
use forebay_device::{Health, Member, SlotRef, UNIT};
use forebay_runtime::{Buf, BufMut, Completion, DiskError, Rt};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Nothing could be read or written: no copy is left that would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayError {
    /// Copies could be read, and none of them passed the check.
    Corrupt,
    /// No copy could be read or written.
    Io,
}

/// A set of disks of one pool.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskSet([u64; 4]);

impl DiskSet {
    pub fn insert(&mut self, disk: u16) {
        self.0[usize::from(disk / 64)] |= 1 << (disk % 64);
    }
    pub fn contains(&self, disk: u16) -> bool {
        self.0[usize::from(disk / 64)] & (1 << (disk % 64)) != 0
    }
    pub fn union(&mut self, other: &DiskSet) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }
}

/// Completes when the disk's failure is recorded where an import will find it.
pub type Recorded = Pin<Box<dyn Future<Output = ()>>>;

/// The disks of a pool on one core.
pub struct Array {
    rt: Rt,
    /// By index in the label; missing disks are absent.
    members: Vec<Option<Rc<Member>>>,
    /// For each disk, its group; for each group, the disks it can lose.
    group_of: Vec<u16>,
    tolerance: Vec<u8>,
    /// Called when a disk failed a write or flush.
    failed: Box<dyn Fn(u16) -> Recorded>,
}

/// A read that passed its check.
pub struct Good {
    pub bytes: BufMut,
    /// Copies in service that failed: they may be rewritten with these bytes.
    pub bad: Vec<SlotRef>,
}

impl Array {
    pub fn new(
        rt: Rt,
        members: Vec<Option<Rc<Member>>>,
        group_of: Vec<u16>,
        tolerance: Vec<u8>,
        failed: Box<dyn Fn(u16) -> Recorded>,
    ) -> Array {
        assert_eq!(members.len(), group_of.len());
        Array { rt, members, group_of, tolerance, failed }
    }

    pub fn members(&self) -> &[Option<Rc<Member>>] {
        &self.members
    }

    /// The disk, when it is in service.
    pub fn member(&self, disk: u16) -> Option<&Rc<Member>> {
        let member = self.members.get(usize::from(disk))?.as_ref()?;
        (!member.health.is_failed()).then_some(member)
    }

    /// The disk of a slot, when it is in service and has that slot: what is read from a damaged table may name others.
    fn of_slot(&self, slot: &SlotRef) -> Option<&Rc<Member>> {
        self.member(slot.disk).filter(|member| slot.slot < member.layout.slots)
    }

    /// Whether some group has lost more disks than it can.
    pub fn is_lost(&self) -> bool {
        let mut lost = vec![0; self.tolerance.len()];
        for (disk, group) in self.group_of.iter().enumerate() {
            lost[usize::from(*group)] += u8::from(self.member(disk as u16).is_none());
        }
        lost.iter().zip(&self.tolerance).any(|(lost, tolerance)| lost > tolerance)
    }

    /// Reads `len` bytes at `offset` of the chunk on `slots`, from the first copy that `check` accepts.
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
        let first = self.preferred(slots);
        let mut buffer = self.rt.buffer(len);
        let mut bad = Vec::new();
        let mut error = ArrayError::Io;
        let order = first.into_iter().chain(slots.iter().copied().filter(|slot| Some(*slot) != first));
        for slot in order {
            let Some(member) = self.of_slot(&slot) else { continue };
            let at = member.layout.slot_at(slot.slot) + offset;
            member.reads.set(member.reads.get() + 1);
            let (bytes, result) = member.disk.read(at, buffer).await;
            member.reads.set(member.reads.get() - 1);
            match result {
                Ok(()) if check(&bytes) => return Ok(Good { bytes, bad }),
                Ok(()) => {
                    Health::count(&member.health.errors_checksum);
                    error = ArrayError::Corrupt;
                }
                Err(_) => Health::count(&member.health.errors_read),
            }
            bad.push(slot);
            buffer = bytes;
        }
        Err(error)
    }

    /// The copy in service with the fewest reads in flight.
    fn preferred(&self, slots: &[SlotRef]) -> Option<SlotRef> {
        if let [only] = slots {
            return Some(*only);
        }
        let queue = |slot: &SlotRef| self.member(slot.disk).map(|member| member.reads.get());
        slots.iter().filter(|slot| queue(slot).is_some()).min_by_key(|slot| queue(slot)).copied()
    }

    /// Reads every copy in service; each passes `check` or not. For what a crash may have left different.
    pub async fn read_all(
        &self,
        slots: &[SlotRef],
        offset: u64,
        len: usize,
        check: impl Fn(&[u8]) -> bool,
    ) -> Vec<(SlotRef, Option<BufMut>)> {
        let mut copies = Vec::new();
        if !is_aligned(offset, len) {
            return copies;
        }
        for slot in slots {
            let Some(member) = self.of_slot(slot) else { continue };
            let (bytes, result) =
                member.disk.read(member.layout.slot_at(slot.slot) + offset, self.rt.buffer(len)).await;
            copies.push((*slot, (result.is_ok() && check(&bytes)).then_some(bytes)));
        }
        copies
    }

    /// Starts writing `parts` at `offset` of the chunk, to every copy in service.
    pub fn write(&self, slots: &[SlotRef], offset: u64, parts: Vec<Buf>) -> Writing {
        self.write_each(slots, |member, slot| member.layout.slot_at(slot.slot) + offset, parts)
    }

    fn write_each(
        &self,
        slots: &[SlotRef],
        at: impl Fn(&Member, &SlotRef) -> u64,
        parts: Vec<Buf>,
    ) -> Writing {
        let mut writing = Writing { parts: Vec::with_capacity(slots.len()), absent: Vec::new() };
        for slot in slots {
            match self.member(slot.disk) {
                Some(member) => {
                    writing.parts.push((slot.disk, member.disk.write(at(member, slot), parts.clone())))
                }
                None => writing.absent.push(slot.disk),
            }
        }
        writing
    }

    /// Starts writing a chunk record to alternate 0 or 1 beside each slot in service.
    pub fn write_record(&self, slots: &[SlotRef], alternate: u8, record: Buf) -> Writing {
        let at = |member: &Member, slot: &SlotRef| member.layout.record_at(slot.slot, alternate);
        self.write_each(slots, at, vec![record])
    }

    /// Reads the chunk record in an alternate, from the first copy that `check` accepts.
    pub async fn read_record(
        &self,
        slots: &[SlotRef],
        alternate: u8,
        check: impl Fn(&[u8]) -> bool,
    ) -> Result<BufMut, ArrayError> {
        for slot in slots {
            let Some(member) = self.of_slot(slot) else { continue };
            let buffer = self.rt.buffer(member.layout.record_bytes as usize);
            let (bytes, result) =
                member.disk.read(member.layout.record_at(slot.slot, alternate), buffer).await;
            if result.is_ok() && check(&bytes) {
                return Ok(bytes);
            }
        }
        Err(ArrayError::Corrupt)
    }

    /// Waits for a write. Ok when at least one copy has it and the loss of every other is recorded. Adds the disks to flush.
    pub async fn written(&self, writing: Writing, touched: &mut DiskSet) -> Result<(), ArrayError> {
        let mut lacking = writing.absent;
        let mut good = false;
        for (disk, completion) in writing.parts {
            match completion.await {
                Ok(()) => {
                    touched.insert(disk);
                    good = true;
                }
                Err(_) if active(Bug::WriteErrorIgnored) => good = true,
                Err(_) => {
                    self.fail(disk);
                    lacking.push(disk);
                }
            }
        }
        for disk in lacking {
            (self.failed)(disk).await;
        }
        if good { Ok(()) } else { Err(ArrayError::Io) }
    }

    /// Makes completed writes to `disks` durable. Ok when no group has lost more than it can, and every loss is recorded.
    pub async fn flush(&self, disks: &DiskSet) -> Result<(), ArrayError> {
        let flushing: Vec<_> = (0..self.members.len() as u16)
            .filter(|disk| disks.contains(*disk))
            .filter_map(|disk| self.member(disk).map(|member| (disk, member.disk.flush())))
            .collect();
        let mut lacking = Vec::new();
        for (disk, completion) in flushing {
            if completion.await.is_err() && !active(Bug::FlushErrorIgnored) {
                self.fail(disk);
                lacking.push(disk);
            }
        }
        for disk in lacking {
            (self.failed)(disk).await;
        }
        if self.is_lost() { Err(ArrayError::Io) } else { Ok(()) }
    }

    fn fail(&self, disk: u16) {
        if let Some(member) = &self.members[usize::from(disk)] {
            Health::count(&member.health.errors_write);
            member.health.fail();
        }
    }

    /// Rewrites bad copies with what a good one holds. The caller makes sure that nothing else writes there meanwhile. Returns
    /// how many were repaired; a disk that refuses is left to the next write that meets it.
    pub async fn repair(&self, bad: &[SlotRef], offset: u64, bytes: &Buf) -> usize {
        let mut repaired = 0;
        for slot in bad {
            let Some(member) = self.of_slot(slot) else { continue };
            if active(Bug::RepairWritesWrongCopy) {
                Health::count(&member.health.repaired);
                repaired += 1;
                continue;
            }
            let at = member.layout.slot_at(slot.slot) + offset;
            let write: Completion<Result<(), DiskError>> = member.disk.write(at, vec![bytes.clone()]);
            if write.await.is_ok() {
                Health::count(&member.health.repaired);
                repaired += 1;
            }
        }
        repaired
    }
}

/// Whether a range can be asked of a device: a pointer from a damaged or hostile node may say anything.
fn is_aligned(offset: u64, len: usize) -> bool {
    offset.is_multiple_of(UNIT) && len > 0 && (len as u64).is_multiple_of(UNIT)
}

/// A write to several copies, in flight.
pub struct Writing {
    parts: Vec<(u16, Completion<Result<(), DiskError>>)>,
    /// Disks out of service that would have had a copy.
    absent: Vec<u16>,
}
