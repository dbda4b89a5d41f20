//! Where the parts of a disk are: a function of its size, its slot size and the width of its group's chunks.

use forebay_base::KIB;

/// Allocation unit, and the smallest I/O of the engine, in bytes.
pub const UNIT: u64 = 4 * KIB;
/// What a disk has is at multiples of this, and so is its end.
pub const DISK_GRAIN: u64 = 64 * KIB;
/// Bytes set aside for one copy of the label.
pub const LABEL_REGION: u64 = 384 * KIB;
/// Two copies are at the beginning; what is left of the first MiB is for what controllers that share the disk will tell each other.
const SUPERBLOCKS_AT: u64 = 1024 * KIB;
const _: () = assert!(2 * LABEL_REGION < SUPERBLOCKS_AT);
pub const SUPERBLOCK_BYTES: u64 = 32 * KIB;
/// Slots of a controller's superblock ring; checkpoint n goes to slot n modulo this.
pub const SUPERBLOCK_SLOTS: u64 = 16;
/// Controllers that can write superblocks, each to a ring of its own.
pub const NODES: u64 = 2;
/// Of all rings of a disk.
pub const SUPERBLOCKS_BYTES: usize = (NODES * SUPERBLOCK_SLOTS * SUPERBLOCK_BYTES) as usize;
/// Labels and superblocks at the beginning of every disk.
pub const HEAD_BYTES: u64 = SUPERBLOCKS_AT + SUPERBLOCKS_BYTES as u64;
const _: () = assert!(HEAD_BYTES == 2048 * KIB);

/// A disk has at least this many slots, so that space is dealt out evenly; the smallest have half as many.
const SLOTS_MIN: u64 = 256;
/// A chunk holds at least one block of the largest size.
const SLOT_BYTES_MIN: u64 = 128 * KIB;
/// Data of a chunk in a pool that is not small. A slot has the part of it that is one disk's.
const CHUNK_BYTES: u64 = 256 << 20;
/// As much as an address can name.
pub(crate) const CHUNK_BYTES_MAX: u64 = 512 << 20;
/// A slot is a multiple of it, and so of every cell.
const SLOT_GRAIN: u64 = 256 * KIB;
/// The smallest disk: some 150 slots of 128 KiB and everything around them.
pub const DISK_BYTES_MIN: u64 = 22 << 20;

/// Header of a chunk record in bytes; the bitmap follows.
const RECORD_HEADER: u64 = 256;

/// Bytes of one alternate of a chunk record for chunks with `units` allocation units of data.
pub fn record_bytes(units: u64) -> u64 {
    (RECORD_HEADER + units.div_ceil(8)).next_multiple_of(UNIT)
}

/// One slot of one disk of a pool; the disk by its index in the label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotRef {
    pub disk: u16,
    pub slot: u32,
}

/// Positions on one disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskLayout {
    /// Usable bytes: the device's size rounded down to [`DISK_GRAIN`].
    pub size: u64,
    pub slot_bytes: u64,
    pub slots: u32,
    pub record_bytes: u64,
}

/// The disk cannot hold what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// Fewer bytes than [`DISK_BYTES_MIN`].
    TooSmall { bytes: u64 },
}

impl DiskLayout {
    /// The slot size for a disk of `size` bytes whose chunks have `data_slots` slots of data: the greatest power of two that leaves 256 slots,
    /// and no more than makes a chunk of 256 MiB.
    pub fn slot_bytes_for(size: u64, data_slots: u64) -> u64 {
        let fitting = (size / SLOTS_MIN).max(1);
        let power = 1u64 << (63 - fitting.leading_zeros());
        // Records, and what is before them, take less than a 16th of all but the smallest; half the size again would waste slots on nothing.
        let slot = if (size - size / 16) / power >= SLOTS_MIN { power } else { power / 2 };
        slot.clamp(SLOT_BYTES_MIN, CHUNK_BYTES.div_ceil(data_slots).next_multiple_of(SLOT_GRAIN))
    }

    /// Lays out a disk of `size` bytes in slots of `slot_bytes`, for chunks that span `data_slots` slots of data.
    pub fn new(size: u64, slot_bytes: u64, data_slots: u64) -> Result<DiskLayout, LayoutError> {
        let size = size / DISK_GRAIN * DISK_GRAIN;
        if size < DISK_BYTES_MIN {
            return Err(LayoutError::TooSmall { bytes: size });
        }
        let record_bytes = record_bytes(slot_bytes * data_slots / UNIT);
        let space = size - HEAD_BYTES - LABEL_REGION;
        let slots = space / (slot_bytes + 2 * record_bytes);
        // The slots start at a multiple of 64 KiB, which may cost one of them.
        let slots = if Self::slots_at(slots, record_bytes) + slots * slot_bytes > size - LABEL_REGION {
            slots - 1
        } else {
            slots
        };
        if slots == 0 {
            return Err(LayoutError::TooSmall { bytes: size });
        }
        let slots = u32::try_from(slots).map_err(|_| LayoutError::TooSmall { bytes: size })?;
        Ok(DiskLayout { size, slot_bytes, slots, record_bytes })
    }

    fn slots_at(slots: u64, record_bytes: u64) -> u64 {
        (HEAD_BYTES + slots * 2 * record_bytes).next_multiple_of(DISK_GRAIN)
    }

    /// Byte positions of the label's copies.
    pub fn labels_at(size: u64) -> [u64; 3] {
        let size = size / DISK_GRAIN * DISK_GRAIN;
        [0, LABEL_REGION, size.saturating_sub(LABEL_REGION)]
    }

    /// Byte position of a controller's superblock slot for checkpoint `generation`.
    pub fn superblock_at(node: u16, generation: u64) -> u64 {
        let slot = u64::from(node) % NODES * SUPERBLOCK_SLOTS + generation % SUPERBLOCK_SLOTS;
        SUPERBLOCKS_AT + slot * SUPERBLOCK_BYTES
    }

    /// Byte position of alternate 0 or 1 of the chunk record kept with `slot`.
    pub fn record_at(&self, slot: u32, alternate: u8) -> u64 {
        assert!(slot < self.slots && alternate < 2, "record {alternate} of slot {slot} of {}", self.slots);
        HEAD_BYTES + (u64::from(slot) * 2 + u64::from(alternate)) * self.record_bytes
    }

    /// Byte position of a slot.
    pub fn slot_at(&self, slot: u32) -> u64 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        Self::slots_at(u64::from(self.slots), self.record_bytes) + u64::from(slot) * self.slot_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{GIB, MIB, TIB};

    #[test]
    fn slots_fit_and_do_not_overlap_anything() {
        for size in [DISK_BYTES_MIN, 23 * MIB + 12345, 100 * MIB, GIB, 10 * GIB, 900 * GIB, 16 * TIB] {
            for data_slots in [1, 3, 4, 16] {
                let slot = DiskLayout::slot_bytes_for(size, data_slots);
                let layout = DiskLayout::new(size, slot, data_slots).expect("large enough");
                let last = layout.slots - 1;
                assert!(layout.slots >= 140, "{size}: {} slots", layout.slots);
                assert!(layout.record_at(last, 1) + layout.record_bytes <= layout.slot_at(0));
                assert!(layout.slot_at(last) + slot <= DiskLayout::labels_at(size)[2]);
                assert!(layout.slot_at(0).is_multiple_of(DISK_GRAIN));
                assert!(slot.is_multiple_of(SLOT_BYTES_MIN) && slot * data_slots <= CHUNK_BYTES_MAX);
            }
        }
        let slots = [1, 3, 4, 16].map(|data_slots| DiskLayout::slot_bytes_for(16 * TIB, data_slots));
        assert_eq!(slots, [256 * MIB, 85 * MIB + 512 * KIB, 64 * MIB, 16 * MIB]);
    }

    #[test]
    fn small_disks_are_refused() {
        assert_eq!(DiskLayout::new(MIB, 128 * KIB, 1), Err(LayoutError::TooSmall { bytes: MIB }));
        assert_eq!(DiskLayout::new(0, 128 * KIB, 1), Err(LayoutError::TooSmall { bytes: 0 }));
    }
}
