//! A disk at work: the handle of one core, beside the health that all cores share.

use crate::health::Health;
use crate::label::{Label, LabelError};
use crate::layout::{DiskLayout, NODES, SUPERBLOCK_BYTES, SUPERBLOCK_SLOTS, SUPERBLOCKS_BYTES, UNIT};
use crate::superblock::SuperblockSlot;
use forebay_base::Id;
use forebay_runtime::{Disk, DiskError, Rt};
use std::cell::Cell;
use std::sync::Arc;

/// A disk of a pool on one core.
pub struct Member {
    pub disk: Disk,
    pub layout: DiskLayout,
    pub health: Arc<Health>,
    /// Reads in flight from this core: the shortest queue serves the next read of a mirror.
    pub reads: Cell<u32>,
    /// Whether reads that have another way should rather take it, and how many did.
    pub late: Cell<bool>,
    pub avoided: Cell<u32>,
}

impl Member {
    pub fn new(disk: Disk, layout: DiskLayout, health: Arc<Health>) -> Member {
        Member { disk, layout, health, reads: Cell::new(0), late: Cell::new(false), avoided: Cell::new(0) }
    }
}

/// The copies of the label on a disk: each decoded, or why not. A copy that cannot be read counts as damaged.
pub async fn read_labels(rt: &Rt, disk: &Disk) -> [Result<Label, LabelError>; 3] {
    let mut labels = [const { Err(LabelError::Absent) }; 3];
    let size = disk.geometry().size;
    for (label, at) in labels.iter_mut().zip(DiskLayout::labels_at(size)) {
        if at + UNIT > size {
            continue;
        }
        let (mut bytes, mut result) = disk.read(at, rt.buffer(UNIT as usize)).await;
        let length = Label::length(&bytes);
        if result.is_ok() && length > bytes.len() && at + length as u64 <= size && Label::begins(&bytes) {
            (bytes, result) = disk.read(at, rt.buffer(length)).await;
        }
        *label = match result {
            Ok(()) => Label::decode(&bytes, at),
            Err(_) => Err(LabelError::Damaged),
        };
    }
    labels
}

/// Writes all copies, with a flush after each, so that one is whole at any time. With `None`, erases them.
pub async fn write_label(rt: &Rt, disk: &Disk, label: Option<&Label>) -> Result<(), DiskError> {
    for at in DiskLayout::labels_at(disk.geometry().size) {
        let bytes = label.map_or_else(|| vec![0; UNIT as usize], |label| label.encode(at));
        disk.write_reserved(at, vec![rt.arena().copy(&bytes).freeze()]).await?;
        disk.flush().await?;
    }
    Ok(())
}

/// Every whole superblock of `pool` on a disk, in no order. Slots that cannot be read are skipped.
pub async fn read_superblocks(rt: &Rt, disk: &Disk, pool: Id) -> Vec<SuperblockSlot> {
    let start = DiskLayout::superblock_at(0, 0);
    let (bytes, result) = disk.read(start, rt.buffer(SUPERBLOCKS_BYTES)).await;
    let mut found = Vec::new();
    for (node, slot) in (0..NODES as u16).flat_map(|node| (0..SUPERBLOCK_SLOTS).map(move |slot| (node, slot)))
    {
        let at = DiskLayout::superblock_at(node, slot);
        let decoded = if result.is_ok() {
            let from = (at - start) as usize;
            SuperblockSlot::decode(&bytes[from..from + SUPERBLOCK_BYTES as usize], at)
        } else {
            // One bad sector must not hide the whole ring.
            let (bytes, result) = disk.read(at, rt.buffer(SUPERBLOCK_BYTES as usize)).await;
            result.ok().and_then(|()| SuperblockSlot::decode(&bytes, at))
        };
        found.extend(decoded.filter(|slot| slot.pool == pool));
    }
    found
}

/// Writes a superblock to its slot. Not durable before the next flush.
pub async fn write_superblock(rt: &Rt, disk: &Disk, slot: &SuperblockSlot) -> Result<(), DiskError> {
    let at = DiskLayout::superblock_at(slot.owner.node, slot.generation);
    disk.write_reserved(at, vec![rt.arena().copy(&slot.encode(at)).freeze()]).await
}
