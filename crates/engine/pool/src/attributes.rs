//! What front-ends keep with a volume beside its data, such as persistent reservations.
//!
//! Each shard has at most one dataset of kind *attributes*, made when the first volume needs it and seen by nobody:
//! a slot for each dataset number, thin as any volume, so that an unused one costs nothing; it grows with the numbers. A slot is written whole
//! and at once, so after a crash it holds the old bytes or the new ones. It is emptied when its volume is removed.

use crate::dataset::Dataset;
use crate::error::IoError;
use crate::record::{DatasetKind, DatasetRecord};
use crate::shard::Shard;
use crate::volume::LocalVolume;
use forebay_base::Id;
use forebay_runtime::Buf;
use std::rc::Rc;

/// Most bytes that are kept with a volume.
pub const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;
/// The length of what follows it: 4 bytes, little-endian.
const LENGTH_BYTES: usize = 4;
const BLOCK_BYTES: usize = 4096;
/// Slots that the first volume brings, and the least by which they become more.
const SLOTS_MIN: u64 = 1 << 16;
/// As large as a dataset can be.
const BYTES_MAX: u64 = 64 << 40;
/// Rounded up to whole blocks: writing one slot never reads another.
const SLOT_BYTES: usize = (LENGTH_BYTES + ATTRIBUTES_BYTES_MAX).next_multiple_of(BLOCK_BYTES);

impl LocalVolume {
    pub async fn load_attributes(&self) -> Result<Option<Vec<u8>>, IoError> {
        let _active = self.begin()?;
        let (shard, number) = (&self.shard, self.dataset.number());
        let Some(slots) = shard.attributes().filter(|slots| has_slot(slots, number)) else { return Ok(None) };
        let _whole = shard.attribute_locks.lock(lock_of(number), lock_of(number)).await;
        let at = slot(number);
        let length = join(&slots.read(at, LENGTH_BYTES).await?);
        let length = u32::from_le_bytes(length.try_into().expect("as many as were asked for")) as usize;
        if length == 0 {
            return Ok(None);
        }
        if length > ATTRIBUTES_BYTES_MAX {
            return Err(IoError::Corrupt);
        }
        Ok(Some(join(&slots.read(at + LENGTH_BYTES as u64, length).await?)))
    }

    pub async fn store_attributes(&self, bytes: &[u8]) -> Result<(), IoError> {
        let _active = self.begin_change()?;
        let _changing = self.dataset.begin_change().await?;
        let (shard, number) = (&self.shard, self.dataset.number());
        if bytes.len() > ATTRIBUTES_BYTES_MAX {
            return Err(IoError::OutOfRange);
        }
        let slots = {
            // Two volumes that need the first slot must not make two datasets.
            let _turn = shard.attribute_locks.lock(0, 0).await;
            match shard.attributes() {
                slots if bytes.is_empty() && !slots.as_ref().is_some_and(|slots| has_slot(slots, number)) => {
                    return Ok(());
                }
                slots => shard.attributes_up_to(number, slots).await?,
            }
        };
        let used = LENGTH_BYTES + bytes.len();
        let mut buffer = shard.rt.arena().take_zeroed(used.next_multiple_of(BLOCK_BYTES));
        buffer[..LENGTH_BYTES].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        buffer[LENGTH_BYTES..used].copy_from_slice(bytes);
        let _whole = shard.attribute_locks.lock(lock_of(number), lock_of(number)).await;
        slots.write(slot(number), vec![buffer.freeze()], true).await
    }
}

impl Shard {
    fn attributes(self: &Rc<Self>) -> Option<LocalVolume> {
        let datasets = self.datasets.borrow();
        let of_kind = |dataset: &&Rc<Dataset>| dataset.record.borrow().kind == DatasetKind::Attributes;
        datasets.values().find(of_kind).map(|dataset| LocalVolume::of(self.clone(), dataset.clone()))
    }

    /// The slots, with one for this number.
    async fn attributes_up_to(
        self: &Rc<Self>,
        number: u64,
        slots: Option<LocalVolume>,
    ) -> Result<LocalVolume, IoError> {
        let size = (number + 1).next_multiple_of(SLOTS_MIN).saturating_mul(SLOT_BYTES as u64);
        if size > BYTES_MAX {
            return Err(IoError::NoSpace);
        }
        let Some(slots) = slots else {
            let id = Id::from_random(self.rt.random(), self.rt.random());
            let shift = BLOCK_BYTES.trailing_zeros() as u8;
            let fresh = DatasetRecord::new(DatasetKind::Attributes, id, shift, size, String::new());
            let record = DatasetRecord { created: self.rt.wall(), ..fresh };
            let dataset = self.create_dataset(record, None).await?;
            return Ok(LocalVolume::of(self.clone(), dataset));
        };
        if !has_slot(&slots, number) {
            slots.put(|record| record.size = size).await?;
        }
        Ok(slots)
    }

    /// Empties the slot of a dataset that is about to be removed.
    pub(crate) async fn forget_attributes(self: &Rc<Self>, number: u64) -> Result<(), IoError> {
        match self.attributes() {
            Some(slots) if has_slot(&slots, number) => {
                let _whole = self.attribute_locks.lock(lock_of(number), lock_of(number)).await;
                slots.discard(slot(number), SLOT_BYTES as u64, true).await
            }
            _ => Ok(()),
        }
    }
}

/// Whether a dataset of so many slots has that of this number.
fn has_slot(slots: &LocalVolume, number: u64) -> bool {
    number < slots.dataset.record.borrow().size / SLOT_BYTES as u64
}

/// What is held while the slot of a dataset is read or written, since its length and its bytes are read apart. 0 is for making the first slot.
fn lock_of(number: u64) -> u64 {
    number + 1
}

/// Where the slot of a dataset starts.
fn slot(number: u64) -> u64 {
    number * SLOT_BYTES as u64
}

fn join(parts: &[Buf]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}
