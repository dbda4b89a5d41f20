//! A chunk on simulated disks, and what it should hold.
//!
//! The model is the chunk's bytes. What every cell of every slot should be follows from them by the definition of
//! the layout and the code, which this file states anew; what is wrong is seen by looking at the disks, not kept in
//! books. A *unit* is 4 KiB of a slot; the same unit of every slot is a column in which up to P slots may be wrong.

use forebay_base::{Checksum, MIB, Nanos, Random};
use forebay_device::{DiskLayout, ErrorCounts, GroupEntry, Health, Member, SlotRef};
use forebay_raid::{Array, Code, DiskSet, Place, Subset};
use forebay_runtime::{Buf, OpenMode, Rt};
use forebay_simulation::{Image, World};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

pub const UNIT: u64 = 4096;
const DISK: u64 = 22 * MIB;

/// The shape of a group, and how many disks stand beside the chunk's.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub data: usize,
    pub parity: usize,
    pub cell: u64,
    pub slot: u64,
    pub spares: usize,
}

pub struct Rig {
    pub world: World,
    pub rt: Rt,
    pub shape: Shape,
    pub array: Array,
    pub slots: Vec<SlotRef>,
    /// What the chunk should hold.
    pub bytes: Vec<u8>,
    /// Disks of whose loss the array said that it is to be recorded.
    pub recorded: Rc<RefCell<DiskSet>>,
    /// Units made unreadable, by disk and byte, as long as they are.
    unreadable: BTreeSet<(u16, u64)>,
    pub touched: DiskSet,
}

impl Rig {
    /// A chunk of zeros, of `width` slots: a mirror when that is not data and parity together.
    pub fn new(world: &World, rt: &Rt, shape: Shape, width: usize) -> Rig {
        let group = GroupEntry {
            role: 0,
            data: shape.data as u8,
            redundancy: shape.parity as u8,
            slot_bytes: shape.slot,
            cell_bytes: shape.cell,
            leaving: false,
        };
        let layout = DiskLayout::new(DISK, shape.slot, shape.data as u64).expect("large enough");
        let disks = width + shape.spares;
        (0..disks).for_each(|disk| assert_eq!(world.add_disk(Image::new(DISK)), disk));
        let recorded: Rc<RefCell<DiskSet>> = Rc::default();
        let (record, sleeper) = (recorded.clone(), rt.clone());
        let failed = move |disk| {
            let (record, sleeper) = (record.clone(), sleeper.clone());
            let recording: forebay_raid::Recorded = Box::pin(async move {
                sleeper.sleep(std::time::Duration::from_micros(50)).await;
                record.borrow_mut().insert(disk);
            });
            recording
        };
        let array = Array::new(rt.clone(), forebay_raid::no_crowds(), Box::new(failed));
        array.add_group(0, &group);
        for disk in 0..disks {
            let handle = rt.open_disk(&format!("sim{disk}"), OpenMode::ReadWrite).expect("it was added");
            let place = Place { group: 0, line: disk as u16, enclosure: Default::default() };
            array.add_disk(disk as u16, place, Default::default(), Some((handle, layout)));
        }
        Rig {
            world: world.clone(),
            rt: rt.clone(),
            shape,
            array,
            slots: (0..width as u16).map(|disk| SlotRef { disk, slot: u32::from(disk) % 7 }).collect(),
            bytes: vec![0; shape.data * shape.slot as usize],
            recorded,
            unreadable: BTreeSet::new(),
            touched: DiskSet::default(),
        }
    }

    pub fn width(&self) -> usize {
        self.slots.len()
    }

    pub fn line_bytes(&self) -> u64 {
        self.shape.cell * self.shape.data as u64
    }

    pub fn lines(&self) -> u64 {
        self.shape.slot / self.shape.cell
    }

    pub fn units(&self) -> u64 {
        self.shape.slot / UNIT
    }

    pub fn member(&self, index: usize) -> &Member {
        self.array.attached(self.slots[index].disk).expect("every disk was there once")
    }

    pub fn errors(&self, index: usize) -> ErrorCounts {
        self.health(index).errors(Nanos(0))
    }
    pub fn health(&self, index: usize) -> &Health {
        &self.member(index).health
    }

    /// Byte on the disk of byte `at` of a slot.
    pub fn position(&self, index: usize, at: u64) -> u64 {
        self.member(index).layout.slot_at(self.slots[index].slot) + at
    }

    /// The slot of data cell `role` of a line, or of parity after the data: the layout, stated anew.
    pub fn slot_of(&self, line: u64, role: usize) -> usize {
        (line as usize * self.shape.data + role) % self.width()
    }

    /// Where a byte of the chunk is: slot, and byte in the slot.
    pub fn place(&self, offset: u64) -> (usize, u64) {
        let (line, rest) = (offset / self.line_bytes(), offset % self.line_bytes());
        (
            self.slot_of(line, (rest / self.shape.cell) as usize),
            line * self.shape.cell + rest % self.shape.cell,
        )
    }

    /// What a unit of every slot should hold.
    fn expected(&self, unit: u64) -> Vec<Vec<u8>> {
        let Shape { data, parity, cell, .. } = self.shape;
        let (line, within) = (unit * UNIT / cell, unit * UNIT % cell);
        let start = |role: usize| (line * self.line_bytes() + role as u64 * cell + within) as usize;
        let cells: Vec<&[u8]> =
            (0..data).map(|role| &self.bytes[start(role)..start(role) + UNIT as usize]).collect();
        let mut sums = vec![vec![0; UNIT as usize]; parity];
        let mut outs: Vec<&mut [u8]> = sums.iter_mut().map(|sum| &mut sum[..]).collect();
        Code::new(data, parity).encode(&cells, &mut outs);
        let mut slots = vec![Vec::new(); self.width()];
        for (role, bytes) in cells.into_iter().map(<[u8]>::to_vec).chain(sums).enumerate() {
            slots[self.slot_of(line, role)] = bytes;
        }
        slots
    }

    /// Slots out of service.
    pub fn out(&self) -> Subset {
        (0..self.width()).filter(|index| self.health(*index).is_failed()).collect()
    }

    /// Slots out of service or unreadable in a column.
    pub fn gone(&self, unit: u64) -> Subset {
        let unreadable = |index: usize| {
            self.unreadable.contains(&(self.slots[index].disk, self.position(index, unit * UNIT)))
        };
        (0..self.width()).filter(|index| unreadable(*index)).collect::<Subset>().union(self.out())
    }

    /// Slots that hold something else than they should in a column, whether or not they can be read.
    pub fn rotten(&self, unit: u64) -> Subset {
        let expected = self.expected(unit);
        let mut actual = vec![0; UNIT as usize];
        (0..self.width())
            .filter(|&index| {
                let disk = usize::from(self.slots[index].disk);
                self.world.image(disk).read(self.position(index, unit * UNIT), &mut actual);
                actual != expected[index]
            })
            .collect()
    }

    /// Slots that cannot be relied upon in a column.
    pub fn wrong(&self, unit: u64) -> Subset {
        self.gone(unit).union(self.rotten(unit))
    }

    /// The same over all columns of a range of a slot.
    pub fn over(&self, at: Range<u64>, what: impl Fn(&Rig, u64) -> Subset) -> Subset {
        (at.start / UNIT..at.end.div_ceil(UNIT))
            .fold(Subset::default(), |all, unit| all.union(what(self, unit)))
    }

    /// No column has more wrong slots than parity makes up for.
    pub fn is_within_bounds(&self) -> bool {
        (0..self.units()).all(|unit| self.wrong(unit).len() <= self.shape.parity)
    }

    pub fn make_unreadable(&mut self, index: usize, unit: u64) {
        let position = self.position(index, unit * UNIT);
        self.unreadable.insert((self.slots[index].disk, position));
        self.world.set_unreadable(usize::from(self.slots[index].disk), position..position + UNIT);
    }

    pub fn rot(&self, index: usize, unit: u64, random: &mut Random) {
        let mut mask = vec![0; 1 + random.below(512) as usize];
        random.fill(&mut mask);
        mask[0] |= 1;
        let at = unit * UNIT + random.below(UNIT - 512);
        self.world.rot(usize::from(self.slots[index].disk), self.position(index, at), &mask);
    }

    /// Writes have made units readable again: asks the disks which.
    pub async fn look(&mut self) {
        for (disk, at) in self.unreadable.clone() {
            let member = self.array.attached(disk).expect("every disk was there once");
            let (_, result) = member.disk.read(at, self.rt.buffer(UNIT as usize)).await;
            if result.is_ok() {
                self.unreadable.remove(&(disk, at));
            }
        }
    }

    /// New contents for a range, in the model and as parts of every size.
    pub fn renew(&mut self, offset: u64, len: usize, random: &mut Random) -> Vec<Buf> {
        let new = &mut self.bytes[offset as usize..][..len];
        random.fill(new);
        let (mut parts, mut done) = (Vec::new(), 0);
        while done < len {
            // A buffer of its own, handed over in up to three slices.
            let n = (UNIT * (1 + random.below(12))).min((len - done) as u64) as usize;
            let buffer = self.rt.arena().copy(&new[done..done + n]).freeze();
            let mut cuts: Vec<usize> =
                (0..2).map(|_| random.below(n as u64 / UNIT + 1) as usize * 4096).collect();
            cuts.extend([0, n]);
            cuts.sort_unstable();
            parts.extend(
                cuts.windows(2)
                    .filter(|cut| cut[0] < cut[1])
                    .map(|cut| buffer.slice(cut[0], cut[1] - cut[0])),
            );
            done += n;
        }
        parts
    }

    /// The check of a reader who knows what should be there.
    pub fn check(&self, offset: u64, len: usize) -> impl Fn(&[u8]) -> bool + use<> {
        let sum = Checksum::of(&self.bytes[offset as usize..][..len]);
        move |bytes| Checksum::of(bytes) == sum
    }

    /// The ranges of slots that a range of the chunk covers, one for each line, wide enough for all its cells.
    pub fn columns(&self, offset: u64, len: usize) -> Vec<Range<u64>> {
        let (cell, line_bytes, end) = (self.shape.cell, self.line_bytes(), offset + len as u64);
        let of_line = |line: u64| {
            let (from, to) = (offset.max(line * line_bytes), end.min((line + 1) * line_bytes));
            let (from, to) = (from - line * line_bytes, to - line * line_bytes);
            let base = line * cell;
            if from / cell == (to - 1) / cell {
                base + from % cell..base + (to - 1) % cell + 1
            } else {
                base..base + cell
            }
        };
        (offset / line_bytes..end.div_ceil(line_bytes)).map(of_line).collect()
    }

    /// Slots that are wrong in the data of a range, and in service.
    pub fn bad_in(&self, offset: u64, len: usize) -> Subset {
        let units = (offset..offset + len as u64).step_by(UNIT as usize);
        let places = units.map(|offset| self.place(offset));
        places
            .filter(|(index, at)| self.wrong(at / UNIT).contains(*index))
            .map(|(index, _)| index)
            .collect::<Subset>()
            .without(self.out())
    }
}
