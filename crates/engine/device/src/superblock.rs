//! A superblock slot: a payload of the pool, framed so that a torn, lost or misplaced write is seen.

use crate::layout::{SUPERBLOCK_BYTES, UNIT};
use forebay_base::codec::{Reader, Writer};
use forebay_base::{Checksum, Id};

const MAGIC: &[u8; 8] = b"FBAYSUPR";
const CHECKSUM_AT: usize = 8;
const HEADER: usize = 72;
/// Bytes a superblock's payload may have.
pub const SUPERBLOCK_PAYLOAD_MAX: usize = SUPERBLOCK_BYTES as usize - HEADER;

/// Which of the controllers that the pool's disks are attached to writes it: all zeros while there is one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Owner {
    /// Grows whenever the pool gets another owner.
    pub epoch: u64,
    pub node: u16,
}

/// One decoded slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperblockSlot {
    pub pool: Id,
    pub owner: Owner,
    /// Checkpoint number.
    pub generation: u64,
    pub payload: Vec<u8>,
}

impl SuperblockSlot {
    /// Of all valid slots the one with the greatest is the pool's state: what a deposed owner still writes comes before all that the next one does.
    pub fn order(&self) -> (u64, u64) {
        (self.owner.epoch, self.generation)
    }

    /// The bytes for byte `at` of the disk: as many blocks of 4 KiB as the payload takes.
    pub fn encode(&self, at: u64) -> Vec<u8> {
        assert!(self.payload.len() <= SUPERBLOCK_PAYLOAD_MAX, "payload of {} bytes", self.payload.len());
        let mut bytes = vec![0; used(self.payload.len())];
        let mut w = Writer::new(&mut bytes);
        w.bytes(MAGIC).zeros(16).u128(self.pool.0).u64(at).u64(self.generation);
        w.u32(self.payload.len() as u32).u16(self.owner.node).u16(0).u64(self.owner.epoch);
        assert_eq!(w.position(), HEADER);
        w.bytes(&self.payload);
        let sum = Checksum::of(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 16].copy_from_slice(&sum.0.to_le_bytes());
        bytes
    }

    /// The slot read at byte `at`, or nothing when it is not a whole superblock of that place.
    pub fn decode(bytes: &[u8], at: u64) -> Option<SuperblockSlot> {
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return None;
        }
        let mut r = Reader::new(&bytes[8..]);
        let sum = r.u128().ok()?;
        let (pool, own, generation, length) =
            (Id(r.u128().ok()?), r.u64().ok()?, r.u64().ok()?, r.u32().ok()? as usize);
        let (node, _, epoch) = (r.u16().ok()?, r.u16().ok()?, r.u64().ok()?);
        if own != at || length > SUPERBLOCK_PAYLOAD_MAX {
            return None;
        }
        let bytes = bytes.get(..used(length))?;
        let payload = bytes[HEADER..HEADER + length].to_vec();
        let is_whole = sum == Checksum::of_with_hole(bytes, CHECKSUM_AT).0;
        is_whole.then_some(SuperblockSlot { pool, owner: Owner { epoch, node }, generation, payload })
    }
}

/// Bytes that are written of a superblock with so long a payload. What an earlier one left behind them counts for nothing.
fn used(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(UNIT as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(generation: u64, payload: Vec<u8>) -> SuperblockSlot {
        SuperblockSlot { pool: Id(9), owner: Owner { epoch: 3, node: 1 }, generation, payload }
    }

    #[test]
    fn round_trip_and_each_torn_cut_is_seen() {
        let (old, slot) = (slot(16, vec![1; 7000]).encode(131072), slot(32, vec![2; 7000]));
        let new = slot.encode(131072);
        assert_eq!(SuperblockSlot::decode(&new, 131072), Some(slot));
        assert_eq!(SuperblockSlot::decode(&new, 0), None);
        for cut in (512..7168).step_by(512) {
            for (first, rest, name) in [(&new, &old, "cut"), (&old, &new, "tail")] {
                let torn = [&first[..cut], &rest[cut..]].concat();
                assert_eq!(SuperblockSlot::decode(&torn, 131072), None, "{name} at {cut}");
            }
        }
    }

    #[test]
    fn a_short_one_over_a_long_one_is_whole_and_a_length_beyond_the_slot_is_refused() {
        let (long, short) = (slot(16, vec![1; 20_000]).encode(0), slot(32, vec![2; 100]));
        let new = short.encode(0);
        assert_eq!(new.len(), 4096);
        let both = [&new[..], &long[4096..]].concat();
        assert_eq!(SuperblockSlot::decode(&both, 0), Some(short));
        let mut beyond = new;
        beyond[56..60].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(SuperblockSlot::decode(&beyond, 0), None);
    }

    #[test]
    fn what_a_deposed_owner_writes_comes_before_all_that_the_next_one_does() {
        let of = |epoch, generation| SuperblockSlot {
            owner: Owner { epoch, node: 0 },
            ..slot(generation, vec![])
        };
        assert!(of(2, 9).order() > of(1, 500).order() && of(2, 9).order() > of(2, 8).order());
    }
}
