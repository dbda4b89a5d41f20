//! A superblock slot: a payload of the pool, framed so that a torn, lost or misplaced write is seen.

use crate::layout::SUPERBLOCK_BYTES;
use forebay_base::codec::{Reader, Writer};
use forebay_base::{Checksum, Id};

const MAGIC: &[u8; 8] = b"FBAYSUPR";
const CHECKSUM_AT: usize = 8;
const HEADER: usize = 72;
/// Bytes a superblock's payload may have.
pub const SUPERBLOCK_PAYLOAD_MAX: usize = SUPERBLOCK_BYTES as usize - HEADER;

/// One decoded slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperblockSlot {
    pub pool: Id,
    /// Checkpoint number; of all valid slots the greatest is the pool's state.
    pub generation: u64,
    pub payload: Vec<u8>,
}

impl SuperblockSlot {
    /// The bytes for byte `at` of the disk, [`SUPERBLOCK_BYTES`] long.
    pub fn encode(&self, at: u64) -> Vec<u8> {
        assert!(self.payload.len() <= SUPERBLOCK_PAYLOAD_MAX, "payload of {} bytes", self.payload.len());
        let mut bytes = vec![0; SUPERBLOCK_BYTES as usize];
        let mut w = Writer::new(&mut bytes);
        w.bytes(MAGIC).zeros(16).u128(self.pool.0).u64(at).u64(self.generation);
        w.u32(self.payload.len() as u32).zeros(HEADER - 60).bytes(&self.payload);
        let sum = Checksum::of(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 16].copy_from_slice(&sum.0.to_le_bytes());
        bytes
    }

    /// The slot read at byte `at`, or nothing when it is not a whole superblock of that place.
    pub fn decode(bytes: &[u8], at: u64) -> Option<SuperblockSlot> {
        if bytes.len() != SUPERBLOCK_BYTES as usize || &bytes[..8] != MAGIC {
            return None;
        }
        let mut r = Reader::new(&bytes[8..]);
        let sum = r.u128().ok()?;
        let (pool, own, generation, length) =
            (Id(r.u128().ok()?), r.u64().ok()?, r.u64().ok()?, r.u32().ok()?);
        if own != at || sum != Checksum::of_with_hole(bytes, CHECKSUM_AT).0 {
            return None;
        }
        let payload = bytes.get(HEADER..HEADER + length as usize)?.to_vec();
        Some(SuperblockSlot { pool, generation, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_each_torn_cut_is_seen() {
        let old = SuperblockSlot { pool: Id(9), generation: 16, payload: vec![1; 7000] }.encode(131072);
        let slot = SuperblockSlot { pool: Id(9), generation: 32, payload: vec![2; 7000] };
        let new = slot.encode(131072);
        assert_eq!(SuperblockSlot::decode(&new, 131072), Some(slot));
        assert_eq!(SuperblockSlot::decode(&new, 0), None);
        for cut in (512..7168).step_by(512) {
            assert_eq!(
                SuperblockSlot::decode(&[&new[..cut], &old[cut..]].concat(), 131072),
                None,
                "cut at {cut}"
            );
            assert_eq!(
                SuperblockSlot::decode(&[&old[..cut], &new[cut..]].concat(), 131072),
                None,
                "tail at {cut}"
            );
        }
    }
}
