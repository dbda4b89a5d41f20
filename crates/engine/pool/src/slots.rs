//! Which slots of which disks are free, and how new chunks are laid over them.

use forebay_base::Checksum;
use forebay_device::{DiskEntry, DiskStatus, GroupEntry, SlotRef, UNIT};
use forebay_space::{Bits, ChunkEntry, ChunkId, ChunkKind};
use std::collections::BTreeSet;

/// Any kind of data: the class does not change a chunk's shape.
pub(crate) const DATA: ChunkKind = ChunkKind::Data { class: 0 };

/// Free slots of a pool.
pub(crate) struct SlotMap {
    groups: Vec<GroupEntry>,
    /// By disk: its group and its used slots.
    disks: Vec<(u16, Bits)>,
    ids: BTreeSet<ChunkId>,
}

impl SlotMap {
    pub fn new(groups: &[GroupEntry], disks: &[DiskEntry]) -> SlotMap {
        let disks = disks.iter().map(|disk| (disk.group, Bits::new(disk.slots))).collect();
        SlotMap { groups: groups.to_vec(), disks, ids: BTreeSet::new() }
    }

    /// Takes note of a chunk in use; false when one of its slots is taken, does not exist, or its number is in use.
    #[must_use]
    pub fn occupy(&mut self, chunk: &ChunkEntry) -> bool {
        if !self.ids.insert(chunk.id) {
            return false;
        }
        chunk.slots.iter().all(|slot| match self.disks.get_mut(usize::from(slot.disk)) {
            Some((group, used)) => {
                *group == chunk.group && slot.slot < used.len() && used.set(slot.slot, 1) == 0
            }
            None => false,
        })
    }

    pub fn release(&mut self, chunk: &ChunkEntry) {
        self.ids.remove(&chunk.id);
        for slot in &chunk.slots {
            self.disks[usize::from(slot.disk)].1.clear(slot.slot, 1);
        }
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

    /// Chunks of data that a group could hold in all, and those it could still give.
    pub fn chunks(&self, group: u16) -> (u64, u64) {
        let of_group = || self.disks.iter().filter(move |(own, _)| *own == group).map(|(_, used)| used);
        let width = self.shape(group, DATA).1;
        let count = |slots: Vec<u64>| most_chunks(slots, width);
        let total = count(of_group().map(|used| u64::from(used.len())).collect());
        (total, count(of_group().map(|used| u64::from(used.zeros())).collect()))
    }

    /// Lays a new chunk over the disks of a group with the most free slots, disks in service first.
    pub fn take(
        &mut self,
        group: u16,
        kind: ChunkKind,
        order: u32,
        status: &[DiskEntry],
    ) -> Option<ChunkEntry> {
        let id = (ChunkId::FIRST.0..=ChunkId::MAX.0).map(ChunkId).find(|id| !self.ids.contains(id))?;
        let mut candidates: Vec<u16> = (0..self.disks.len() as u16)
            .filter(|disk| {
                self.disks[usize::from(*disk)].0 == group && self.disks[usize::from(*disk)].1.zeros() > 0
            })
            .collect();
        candidates.sort_by_key(|disk| {
            let failed = status[usize::from(*disk)].status == DiskStatus::Failed;
            (failed, std::cmp::Reverse(self.disks[usize::from(*disk)].1.zeros()), *disk)
        });
        let width = self.shape(group, kind).1;
        if candidates.len() < width {
            return None;
        }
        let mut slots: Vec<SlotRef> = Vec::with_capacity(width);
        for disk in candidates.into_iter().take(width) {
            let used = &mut self.disks[usize::from(disk)].1;
            let slot = used.find_free(0, 1).expect("the disk has a free slot");
            used.set(slot, 1);
            slots.push(SlotRef { disk, slot });
        }
        self.ids.insert(id);
        let (units, record_sum) = (self.units(group, kind), Checksum::default());
        Some(ChunkEntry { id, kind, group, units, order, record_sum, alternate: 0, slots })
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
mod tests {
    use super::*;
    use forebay_base::Id;

    #[test]
    fn chunks_spread_over_disks_and_slots_come_back() {
        assert_eq!(most_chunks(vec![10, 10], 2), 10);
        assert_eq!(most_chunks(vec![10, 2, 2], 2), 4);
        assert_eq!(most_chunks(vec![5, 5, 5], 2), 7);
        let group = GroupEntry { role: 0, data: 1, redundancy: 1, slot_bytes: 65536, cell_bytes: 65536 };
        let disk = DiskEntry {
            id: Id(1),
            group: 0,
            status: DiskStatus::Online,
            slots: 4,
            size: 0,
            sector_physical: 512,
        };
        let disks = [disk; 3];
        let mut map = SlotMap::new(&[group], &disks);
        let chunks: Vec<_> = std::iter::from_fn(|| map.take(0, ChunkKind::Node, 0, &disks)).collect();
        assert_eq!((chunks.len(), map.chunks(0)), (6, (6, 0)));
        assert!(chunks.iter().all(|chunk| chunk.slots[0].disk != chunk.slots[1].disk));
        assert!(!map.occupy(&chunks[0]), "in use already");
        map.release(&chunks[3]);
        assert_eq!(map.take(0, ChunkKind::Node, 0, &disks).map(|chunk| chunk.id), Some(chunks[3].id));
    }
}
