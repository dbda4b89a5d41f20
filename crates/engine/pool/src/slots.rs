//! Which slots of which disks are free, how new chunks are laid over them, and where slots move.
//!
//! A group wider than its layout keeps room for the slots of one disk: *distributed spare space*. When a disk fails, what was
//! on it is rebuilt there, on all others at once.

use forebay_device::{DiskEntry, DiskStatus, Enclosure, GROUPS_MAX, GroupEntry, Label, SlotRef, UNIT};
use forebay_space::{Bits, ChunkEntry, ChunkId, ChunkKind};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::iter::successors;

/// Any kind of data: the class does not change a chunk's shape.
pub(crate) const DATA: ChunkKind = ChunkKind::Data { class: 0 };

/// How many seconds a load is the mean of, roughly.
const LOAD_SECONDS: u64 = 16;
/// One request under way at any time: less is no load to speak of.
const LOAD_NANOS_MIN: u64 = 1_000_000_000;

/// Free slots of a pool.
#[derive(Clone)]
pub(crate) struct SlotMap {
    groups: Vec<GroupEntry>,
    disks: Vec<DiskSlots>,
    ids: BTreeSet<ChunkId>,
    /// No lower number is free.
    lowest: ChunkId,
    /// By group, the most slots that a chunk has, or had, in one enclosure.
    crowds: [usize; GROUPS_MAX],
    /// By group, nanoseconds of requests under way on each disk in a second, lately.
    loads: [u64; GROUPS_MAX],
}

/// The slots of one disk.
#[derive(Clone)]
struct DiskSlots {
    group: u16,
    status: DiskStatus,
    enclosure: Enclosure,
    used: Bits,
    /// Those of its earlier numbers that it does not use itself: they are on the same disk, and move here one by one.
    kept: Bits,
    /// The disk that has the same slots under another number and gives them up one by one.
    heir_of: Option<u16>,
}

impl DiskSlots {
    fn of(disk: &DiskEntry) -> DiskSlots {
        let slots = if disk.has_slots() { disk.slots } else { 0 };
        let DiskEntry { group, status, enclosure, heir_of, .. } = *disk;
        DiskSlots { group, status, enclosure, used: Bits::new(slots), kept: Bits::new(slots), heir_of }
    }
    fn free(&self) -> u32 {
        self.used.zeros() - self.kept.ones()
    }
    fn is_free(&self, slot: u32) -> bool {
        !self.used.get(slot) && !self.kept.get(slot)
    }
    /// Whether chunks may have slots on it.
    fn is_there(&self) -> bool {
        !matches!(self.status, DiskStatus::Removed | DiskStatus::Spare | DiskStatus::Cache)
    }
    fn is_open(&self) -> bool {
        self.status == DiskStatus::Online
    }
    /// Whether slots on it must go elsewhere.
    fn is_vacating(&self) -> bool {
        matches!(self.status, DiskStatus::Failed | DiskStatus::Leaving)
    }
    /// Whether a chunk may get a slot here when there are too few other disks: it begins degraded.
    fn is_last_resort(&self) -> bool {
        self.is_vacating() || self.status == DiskStatus::Offline
    }
}

impl SlotMap {
    pub fn new(label: &Label) -> SlotMap {
        let disks = label.disks.iter().map(DiskSlots::of).collect();
        SlotMap {
            groups: label.groups.clone(),
            disks,
            ids: BTreeSet::new(),
            lowest: ChunkId::FIRST,
            crowds: [1; GROUPS_MAX],
            loads: [0; GROUPS_MAX],
        }
    }

    /// Takes over what the label says of the disks, new ones among them. Slots in use stay in use.
    pub fn update(&mut self, label: &Label) {
        self.groups.clone_from(&label.groups);
        for (index, entry) in label.disks.iter().enumerate() {
            let mut disk = DiskSlots::of(entry);
            match self.disks.get_mut(index) {
                Some(known) => {
                    if known.used.len() == disk.used.len() {
                        disk.used = known.used.clone();
                    }
                    *known = disk;
                }
                None => self.disks.push(disk),
            }
        }
        self.reserve_heirs();
    }

    /// Takes note of a chunk in use; false when one of its slots is taken, does not exist, or its number is in use.
    #[must_use]
    pub fn occupy(&mut self, chunk: &ChunkEntry) -> bool {
        if !self.ids.insert(chunk.id) {
            return false;
        }
        let disks: Vec<u16> = chunk.slots.iter().map(|slot| slot.disk).collect();
        self.note_crowd(chunk.group, &disks);
        chunk.slots.iter().all(|slot| match self.disks.get_mut(usize::from(slot.disk)) {
            Some(disk) => {
                disk.group == chunk.group && slot.slot < disk.used.len() && disk.used.set(slot.slot, 1) == 0
            }
            None => false,
        })
    }

    /// Keeps, on disks that came back under another number, the places of what their earlier numbers still have.
    pub fn reserve_heirs(&mut self) {
        for index in 0..self.disks.len() as u16 {
            let runs: Vec<_> =
                self.earlier(index).flat_map(|old| self.disks[usize::from(old)].used.runs()).collect();
            for slot in runs.into_iter().flatten() {
                self.keep(index, slot);
            }
        }
    }

    /// The earlier numbers of a disk that may still have slots.
    fn earlier(&self, disk: u16) -> impl Iterator<Item = u16> {
        let heir_of = |disk: u16| self.disks.get(usize::from(disk)).and_then(|known| known.heir_of);
        successors(heir_of(disk), move |disk| heir_of(*disk)).take(self.disks.len())
    }

    /// Keeps a slot of a disk, or no longer, as its earlier numbers have it and it does not.
    fn keep(&mut self, disk: u16, slot: u32) {
        let has = |disk: u16| {
            let used = &self.disks[usize::from(disk)].used;
            slot < used.len() && used.get(slot)
        };
        let is_kept = !has(disk) && self.earlier(disk).any(has);
        let kept = &mut self.disks[usize::from(disk)].kept;
        if slot >= kept.len() {
            // An empty disk has no slots.
            return;
        }
        match is_kept {
            true => _ = kept.set(slot, 1),
            false => _ = kept.clear(slot, 1),
        }
    }

    /// A slot has changed hands: all numbers of its disk take note.
    fn note_slot(&mut self, SlotRef { disk, slot }: SlotRef) {
        let heirs =
            (0..self.disks.len() as u16).filter(|index| self.disks[usize::from(*index)].heir_of.is_some());
        let kin: Vec<u16> = heirs.filter(|index| self.line(*index) == self.line(disk)).collect();
        kin.into_iter().for_each(|index| self.keep(index, slot));
    }

    pub fn release(&mut self, chunk: &ChunkEntry) {
        self.ids.remove(&chunk.id);
        self.lowest = self.lowest.min(chunk.id);
        chunk.slots.iter().for_each(|slot| self.vacate(*slot));
    }

    /// A slot is free again.
    pub fn vacate(&mut self, slot: SlotRef) {
        self.disks[usize::from(slot.disk)].used.clear(slot.slot, 1);
        self.note_slot(slot);
    }

    /// The disk that has come back under this number.
    pub fn heir_of(&self, disk: u16) -> Option<u16> {
        self.disks
            .iter()
            .position(|heir| heir.heir_of == Some(disk) && heir.is_open())
            .map(|heir| heir as u16)
    }

    /// As [`Label::line`]: a chunk has a slot on one disk of a line.
    fn line(&self, disk: u16) -> u16 {
        self.earlier(disk).last().unwrap_or(disk)
    }

    /// Slots with data, and slots in all, of a chunk of a kind: nodes and the log are mirrored even where data has parity, since
    /// they are written in small pieces and must survive as many losses.
    fn shape(&self, group: u16, kind: ChunkKind) -> (usize, usize) {
        let group = &self.groups[usize::from(group)];
        let data = match kind {
            ChunkKind::Data { .. } => usize::from(group.data),
            ChunkKind::Node | ChunkKind::Log => 1,
        };
        (data, data + usize::from(group.redundancy))
    }

    /// Allocation units of one chunk of a group.
    pub fn units(&self, group: u16, kind: ChunkKind) -> u32 {
        (self.groups[usize::from(group)].slot_bytes * self.shape(group, kind).0 as u64 / UNIT) as u32
    }

    /// Chunks of data that a group could hold in all, and those it could still give, without what is kept to rebuild on.
    pub fn chunks(&self, group: u16) -> (u64, u64) {
        let width = self.shape(group, DATA).1;
        let members = || self.disks.iter().filter(move |disk| disk.group == group);
        let open = self.open(group);
        let came_back = |index: u16| self.has_heir(index);
        let counts = |(index, disk): &(u16, &DiskSlots)| {
            disk.group == group
                && (disk.is_open() || (open < width && disk.is_last_resort() && !came_back(*index)))
        };
        let counted = || (0..).zip(&self.disks).filter(counts).map(|(_, disk)| disk);
        let vacating = || members().filter(|disk| disk.is_vacating());
        let to_move: u64 = vacating().map(|disk| u64::from(disk.used.ones())).sum();
        let largest = members().filter(|disk| disk.is_open()).map(|disk| u64::from(disk.used.len())).max();
        let is_redundant = self.groups[usize::from(group)].redundancy > 0;
        let spare = match (open > width, vacating().next()) {
            (true, Some(_)) => to_move,
            // What nobody could rebuild needs no room to be rebuilt on.
            (true, None) if is_redundant => largest.unwrap_or(0),
            _ => 0,
        };
        let kept = spare.div_ceil(width as u64);
        let count = |slots: Vec<u64>| most_chunks(slots, width).saturating_sub(kept);
        let total = count(counted().map(|disk| u64::from(disk.used.len())).collect());
        (total, count(counted().map(|disk| u64::from(disk.free())).collect()))
    }

    /// How many disks of a group take new chunks.
    fn open(&self, group: u16) -> usize {
        self.disks.iter().filter(|disk| disk.group == group && disk.is_open()).count()
    }

    /// Whether a group has too few disks for whole chunks of data, and no more than `kept` chunks of nodes would find a place on those that it has. Nodes and
    /// the log are mirrored, so they could still move there, and would take the last room for what comes.
    pub fn is_down_to(&self, group: u16, kept: impl Fn() -> u64) -> bool {
        let entry = &self.groups[usize::from(group)];
        let lacks_disks = entry.role == 0 && entry.data > 1 && self.open(group) < self.shape(group, DATA).1;
        let open = || self.disks.iter().filter(|disk| disk.group == group && disk.is_open());
        let places = || open().map(|disk| u64::from(disk.free())).collect();
        lacks_disks && most_chunks(places(), self.shape(group, ChunkKind::Node).1) <= kept()
    }

    /// Whether a disk has come back under another number that may have slots: it has its room under that one, or places would be given twice. One
    /// that is empty has none, and gets none.
    fn has_heir(&self, index: u16) -> bool {
        let has_slots = |heir: &DiskSlots| heir.is_there() && heir.status != DiskStatus::Empty;
        self.disks.iter().any(|heir| heir.heir_of == Some(index) && has_slots(heir))
    }

    /// How many groups there are, for whatever.
    pub fn groups(&self) -> u16 {
        self.groups.len() as u16
    }

    /// The groups that hold data, but for one that is leaving.
    pub fn data_groups(&self) -> impl Iterator<Item = u16> {
        let has_disks = |group: u16| self.disks.iter().any(|disk| disk.group == group && disk.is_there());
        let stays = |group: &GroupEntry| group.role == 0 && !group.leaving;
        (0..self.groups.len() as u16)
            .filter(move |group| stays(&self.groups[usize::from(*group)]) && has_disks(*group))
    }

    /// Plans with a group that is to leave.
    pub fn without(&self, group: u16) -> SlotMap {
        let mut without = self.clone();
        without.groups[usize::from(group)].leaving = true;
        without
    }

    pub fn slot_bytes(&self, group: u16) -> u64 {
        self.groups[usize::from(group)].slot_bytes
    }

    /// Takes note of how busy the disks of a group were in the last second: nanoseconds of requests under way, on each.
    pub fn note_load(&mut self, group: u16, nanos: u64) {
        if let Some(load) = self.loads.get_mut(usize::from(group)) {
            *load = *load - *load / LOAD_SECONDS + nanos / LOAD_SECONDS;
        }
    }

    /// The data group of which the greatest part is free, among those with more chunks free than `floor` says for as many as
    /// they have in all. So groups fill evenly, whatever their sizes, and a new one catches up. While requests queue at some group, its part
    /// counts half, that of one less busy up to all: what is written next goes where the disks have time for it.
    pub fn emptiest_group(&self, floor: impl Fn(u16, u64) -> u64) -> Option<u16> {
        let counts = self.data_groups().map(|group| (group, self.chunks(group)));
        let giving = counts.filter(|(group, (total, free))| *free > floor(*group, *total));
        let busiest = self
            .data_groups()
            .map(|group| self.loads[usize::from(group)])
            .max()
            .unwrap_or(0)
            .max(LOAD_NANOS_MIN);
        let ease = |group: u16| {
            u128::from(2 * busiest - self.loads[usize::from(group)]) * 1000 / u128::from(busiest)
        };
        let share = |group: u16, (total, free): (u64, u64)| {
            (u128::from(free) * 1_000_000 * ease(group) / u128::from(total.max(1)), total)
        };
        giving.max_by_key(|(group, counts)| (share(*group, *counts), Reverse(*group))).map(|(group, _)| group)
    }

    /// Lays a new chunk over the disks of a group with the most free slots; of one enclosure, as far as possible, no more
    /// than may be lost.
    pub fn take(&mut self, group: u16, kind: ChunkKind, order: u32) -> Option<ChunkEntry> {
        self.lowest = self.free_number();
        let id = (self.lowest <= ChunkId::MAX).then_some(self.lowest)?;
        let mut candidates: Vec<u16> = (0..self.disks.len() as u16)
            .filter(|index| {
                let disk = &self.disks[usize::from(*index)];
                let is_last_resort = disk.is_last_resort() && !self.has_heir(*index);
                disk.group == group && disk.free() > 0 && (disk.is_open() || is_last_resort)
            })
            .collect();
        candidates.sort_by_key(|index| {
            let disk = &self.disks[usize::from(*index)];
            (!disk.is_open(), disk.status != DiskStatus::Leaving, Reverse(disk.free()), *index)
        });
        let (data, width) = self.shape(group, kind);
        let mut chosen: Vec<u16> = Vec::with_capacity(width);
        for crowded in [false, true] {
            for disk in &candidates {
                let is_kin = chosen.iter().any(|other| self.line(*other) == self.line(*disk));
                let fits = crowded || self.beside(*disk, &chosen) < width - data || width == data;
                if chosen.len() < width && !is_kin && fits {
                    chosen.push(*disk);
                }
            }
        }
        if chosen.len() < width {
            return None;
        }
        self.note_crowd(group, &chosen);
        let slots = chosen.into_iter().map(|disk| self.take_slot(disk).expect("the disk has a free slot"));
        let slots = slots.collect();
        self.ids.insert(id);
        let entry = ChunkEntry::fresh(id, kind, group, self.units(group, kind), slots);
        Some(ChunkEntry { order, ..entry })
    }

    /// The lowest number that no chunk has: beyond [`ChunkId::MAX`] when all are in use.
    fn free_number(&self) -> ChunkId {
        let mut free = self.lowest.0;
        for used in self.ids.range(self.lowest..) {
            if used.0 != free {
                break;
            }
            free += 1;
        }
        ChunkId(free)
    }

    /// Takes the chunks of a log ring of at least so many bytes, all of one group.
    pub fn take_ring(&mut self, bytes: u64, floor: impl Fn(u64) -> u64) -> Option<Vec<ChunkEntry>> {
        let count = |group: u16| bytes.div_ceil(self.slot_bytes(group));
        let group = self.emptiest_group(|group, total| floor(total) + count(group))?;
        let count = count(group) as u32;
        let chunks: Vec<ChunkEntry> =
            (0..count).map_while(|order| self.take(group, ChunkKind::Log, order)).collect();
        if chunks.len() == count as usize {
            return Some(chunks);
        }
        chunks.iter().for_each(|chunk| self.release(chunk));
        None
    }

    pub fn crowd(&self, group: usize) -> usize {
        self.crowds[group]
    }

    /// Takes note of how many of a chunk's disks are in one enclosure.
    fn note_crowd(&mut self, group: u16, disks: &[u16]) {
        let known = |disk: &&u16| usize::from(**disk) < self.disks.len();
        let most = disks.iter().filter(known).map(|disk| self.beside(*disk, disks)).max();
        if let Some(crowd) = self.crowds.get_mut(usize::from(group)) {
            *crowd = most.unwrap_or(0).max(*crowd);
        }
    }

    /// How many of `others` are in the enclosure of `disk`.
    fn beside(&self, disk: u16, others: &[u16]) -> usize {
        let enclosure = |disk: u16| self.disks[usize::from(disk)].enclosure;
        let same = |other: &&u16| {
            usize::from(**other) < self.disks.len()
                && enclosure(disk).is_named()
                && enclosure(**other) == enclosure(disk)
        };
        others.iter().filter(same).count()
    }

    fn take_slot(&mut self, disk: u16) -> Option<SlotRef> {
        let known = &mut self.disks[usize::from(disk)];
        let slot = match known.kept.is_empty() {
            true => known.used.find_free(0, 1)?,
            false => (0..known.used.len()).find(|slot| known.is_free(*slot))?,
        };
        known.used.set(slot, 1);
        Some(SlotRef { disk, slot })
    }

    /// Takes free slots of a disk from number `from` on, `most` at most and an eighth of those it has.
    pub fn take_free(&mut self, disk: u16, from: u32, most: u32) -> Vec<SlotRef> {
        let known = self.disks.get_mut(usize::from(disk)).filter(|known| known.status != DiskStatus::Empty);
        let Some(known) = known else { return Vec::new() };
        let free = (from..known.used.len()).filter(|slot| known.is_free(*slot));
        let taken: Vec<u32> = free.take(most.min(known.free() / 8) as usize).collect();
        taken.iter().for_each(|slot| _ = known.used.set(*slot, 1));
        taken.into_iter().map(|slot| SlotRef { disk, slot }).collect()
    }

    /// Takes the slot to which slot number `index` of a chunk should move: its own under the new number of a disk that came
    /// back; otherwise one of the emptiest disk that has none of this chunk, and not too many neighbours that do. `only`
    /// restricts the choice to one disk.
    pub fn take_target(&mut self, chunk: &ChunkEntry, index: usize, only: Option<u16>) -> Option<SlotRef> {
        let old = chunk.slots[index];
        let others: Vec<u16> =
            (0..chunk.slots.len()).filter(|nth| *nth != index).map(|nth| chunk.slots[nth].disk).collect();
        if let Some(heir) = self.heir_of(old.disk).filter(|heir| !others.contains(heir)) {
            let place = SlotRef { disk: heir, slot: old.slot };
            self.disks[usize::from(heir)].used.set(place.slot, 1);
            self.note_slot(place);
            return Some(place);
        }
        let (data, width) = self.shape(chunk.group, chunk.kind);
        let fits = |index: &u16| {
            let disk = &self.disks[usize::from(*index)];
            disk.group == chunk.group
                && disk.is_open()
                && disk.free() > 0
                && *index != old.disk
                && !others.iter().any(|other| self.line(*other) == self.line(*index))
                && only.is_none_or(|only| only == *index)
        };
        let best = (0..self.disks.len() as u16).filter(fits).min_by_key(|index| {
            let disk = &self.disks[usize::from(*index)];
            let crowded = width > data && self.beside(*index, &others) >= width - data;
            (crowded, Reverse(u64::from(disk.free()) * 1000 / u64::from(disk.used.len())), *index)
        })?;
        self.note_crowd(chunk.group, &others.into_iter().chain([best]).collect::<Vec<u16>>());
        self.take_slot(best)
    }

    /// Lets no chunk have a slot on a disk any more, if none has; true then.
    pub fn close_if_unused(&mut self, disk: u16) -> bool {
        let disk = &mut self.disks[usize::from(disk)];
        let is_unused = disk.used.is_empty();
        if is_unused {
            disk.status = DiskStatus::Empty;
        }
        is_unused
    }

    /// Slots in use on a disk.
    pub fn used(&self, disk: u16) -> u64 {
        u64::from(self.disks[usize::from(disk)].used.ones())
    }

    /// How many other disks of a disk's group take new chunks.
    pub fn others(&self, disk: u16) -> usize {
        let group = self.disks[usize::from(disk)].group;
        let is_other = |(index, other): &(usize, &DiskSlots)| {
            *index != usize::from(disk) && other.group == group && other.is_open()
        };
        self.disks.iter().enumerate().filter(is_other).count()
    }

    /// Of these chunks, those whose slot on a disk would find no place on another.
    pub fn stranded(&self, disk: u16, chunks: &[ChunkEntry]) -> usize {
        let mut trial = self.clone();
        let mut is_stranded = |chunk: &&ChunkEntry| {
            let index = chunk.slots.iter().position(|slot| slot.disk == disk);
            index.is_some_and(|index| trial.take_target(chunk, index, None).is_none())
        };
        chunks.iter().filter(|chunk| is_stranded(chunk)).count()
    }

    /// Of one group whose disks are unequally full by more than a sixteenth, the fullest and the emptiest.
    pub fn unbalanced(&self) -> Option<(u16, u16)> {
        let staying = (0..self.groups.len()).filter(|group| !self.groups[*group].leaving);
        staying.map(|group| group as u16).find_map(|group| {
            let permille =
                |disk: &DiskSlots| u64::from(disk.used.ones()) * 1000 / u64::from(disk.used.len().max(1));
            let open = || {
                let members = self.disks.iter().enumerate();
                members
                    .filter(move |(_, disk)| disk.group == group && disk.is_open() && disk.heir_of.is_none())
            };
            let (full, most) = open().max_by_key(|(_, disk)| permille(disk))?;
            let (empty, least) = open().min_by_key(|(_, disk)| permille(disk))?;
            (permille(most) > permille(least) + 63).then_some((full as u16, empty as u16))
        })
    }
}

/// Chunks of `width` slots on different disks that disks with these free slots can hold: the greatest n for which the
/// disks, each counted at most n times, add up to n × width.
fn most_chunks(slots: Vec<u64>, width: usize) -> u64 {
    let fits = |n: u64| slots.iter().map(|free| (*free).min(n)).sum::<u64>() >= n * width as u64;
    let (mut low, mut high) = (0, slots.iter().sum::<u64>() / width.max(1) as u64);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
