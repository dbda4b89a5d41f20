//! What front-ends keep with a volume beside its data, such as persistent reservations.
//!
//! Each shard has at most one dataset of kind *attributes*, made when the first volume needs it and seen by nobody:
//! a slot for each dataset number, thin as any volume, so that an unused one costs nothing. A slot is written whole
//! and at once, so after a crash it holds the old bytes or the new ones. It is emptied before its number becomes
//! free for another volume.

use crate::dataset::Dataset;
use crate::error::IoError;
use crate::record::{DatasetKind, DatasetRecord};
use crate::shard::Shard;
use crate::tables::DATASETS_MAX;
use crate::volume::LocalVolume;
use forebay_base::Id;
use forebay_runtime::Buf;
use std::rc::Rc;

/// Most bytes that are kept with a volume.
pub const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;
/// The length of what follows it: 4 bytes, little-endian.
const LENGTH_BYTES: usize = 4;
const BLOCK_BYTES: usize = 4096;
/// Rounded up to whole blocks: writing one slot never reads another.
const SLOT_BYTES: usize = (LENGTH_BYTES + ATTRIBUTES_BYTES_MAX).next_multiple_of(BLOCK_BYTES);

impl LocalVolume {
    pub async fn load_attributes(&self) -> Result<Option<Vec<u8>>, IoError> {
        let _active = self.begin()?;
        let (shard, number) = (&self.shard, self.dataset.number());
        let Some(slots) = shard.attributes() else { return Ok(None) };
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
                Some(slots) => slots,
                None if bytes.is_empty() => return Ok(()),
                None => shard.create_attributes().await?,
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

    async fn create_attributes(self: &Rc<Self>) -> Result<LocalVolume, IoError> {
        let id = Id::from_random(self.rt.random(), self.rt.random());
        let (shift, size) = (BLOCK_BYTES.trailing_zeros() as u8, (DATASETS_MAX * SLOT_BYTES) as u64);
        let fresh = DatasetRecord::new(DatasetKind::Attributes, id, shift, size, String::new());
        let record = DatasetRecord { created: self.rt.wall(), ..fresh };
        let dataset = self.create_dataset(record, None).await?;
        Ok(LocalVolume::of(self.clone(), dataset))
    }

    /// Empties the slot of a dataset that is about to be removed.
    pub(crate) async fn forget_attributes(self: &Rc<Self>, number: u32) -> Result<(), IoError> {
        match self.attributes() {
            Some(slots) => {
                let _whole = self.attribute_locks.lock(lock_of(number), lock_of(number)).await;
                slots.discard(slot(number), SLOT_BYTES as u64, true).await
            }
            None => Ok(()),
        }
    }
}

/// What is held while the slot of a dataset is read or written, since its length and its bytes are read apart. 0 is for making the first slot.
fn lock_of(number: u32) -> u64 {
    u64::from(number) + 1
}

/// Where the slot of a dataset starts.
fn slot(number: u32) -> u64 {
    u64::from(number) * SLOT_BYTES as u64
}

fn join(parts: &[Buf]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}
