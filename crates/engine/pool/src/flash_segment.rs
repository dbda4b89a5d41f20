//! A segment of the flash cache: what is written to a cache disk at once. A header says which blocks follow it; so an import finds again what is there.
//!
//! Nothing here has to be right. Whoever reads a block compares it with the checksum in the pointer that he has, so a header that is torn, old or of
//! another pool at worst costs a read.

use crate::flash_index::{Place, SEGMENT_NUMBER_MAX, UNITS_MAX};
use forebay_base::codec::{Reader, Writer};
use forebay_base::{Checksum, Id, KIB, MIB};

/// Bytes of a segment with its header.
pub const SEGMENT_BYTES: u64 = MIB;
/// A unit of what is in it: 4 KiB. The header is the first.
pub const UNIT_BYTES: u64 = 4 * KIB;
pub const UNITS: u64 = SEGMENT_BYTES / UNIT_BYTES;
const MAGIC: &[u8; 8] = b"FBAYCACH";
const CHECKSUM_AT: usize = 8;
const HEADER: usize = 64;
const BLOCK_BYTES: usize = 9;
const _: () = assert!(HEADER + (UNITS as usize - 1) * BLOCK_BYTES <= UNIT_BYTES as usize);

/// A block in it: what it is found by, and how many units it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached {
    pub tag: u64,
    pub units: u8,
}

/// The header. Blocks follow it without gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub pool: Id,
    /// How many were written to this part of the disk before: its place is that modulo as many as there are.
    pub number: u64,
    pub blocks: Vec<Cached>,
}

impl Segment {
    /// The bytes for byte `at` of the disk.
    pub fn encode(&self, at: u64) -> Vec<u8> {
        let mut bytes = vec![0; UNIT_BYTES as usize];
        let mut w = Writer::new(&mut bytes);
        w.bytes(MAGIC).zeros(16).u128(self.pool.0).u64(at).u64(self.number);
        w.u16(self.blocks.len() as u16).zeros(HEADER - 58);
        for block in &self.blocks {
            w.u64(block.tag).u8(block.units);
        }
        let sum = Checksum::of(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 16].copy_from_slice(&sum.0.to_le_bytes());
        bytes
    }

    /// The header read at byte `at`, or nothing when it is not a whole one of that place.
    pub fn decode(bytes: &[u8], at: u64) -> Option<Segment> {
        if bytes.len() != UNIT_BYTES as usize || &bytes[..8] != MAGIC {
            return None;
        }
        let mut r = Reader::new(&bytes[8..]);
        let sum = r.u128().ok()?;
        let (pool, own, number, count) = (Id(r.u128().ok()?), r.u64().ok()?, r.u64().ok()?, r.u16().ok()?);
        if own != at || number >= SEGMENT_NUMBER_MAX || sum != Checksum::of_with_hole(bytes, CHECKSUM_AT).0 {
            return None;
        }
        let mut r = Reader::new(&bytes[HEADER..]);
        let mut left = UNITS - 1;
        let mut blocks = Vec::new();
        for _ in 0..count {
            let block = Cached { tag: r.u64().ok()?, units: r.u8().ok()? };
            left = left.checked_sub(block.units.into()).filter(|_| (1..=UNITS_MAX).contains(&block.units))?;
            blocks.push(block);
        }
        Some(Segment { pool, number, blocks })
    }

    /// Where its blocks are on cache disk `disk`, each with the tag that it is found by.
    pub fn places(&self, disk: u16) -> impl Iterator<Item = (u64, Place)> {
        let mut next = 1u8;
        self.blocks.iter().map(move |Cached { tag, units }| {
            let unit = next;
            // Behind the last block of a full segment there is no unit.
            next = next.wrapping_add(*units);
            (*tag, Place { disk, segment: self.number, unit, units: *units })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Random;

    fn segment(number: u64, blocks: usize) -> Segment {
        let block = |nth| Cached { tag: nth as u64 * 77 + number, units: 1 };
        Segment { pool: Id(9), number, blocks: (0..blocks).map(block).collect() }
    }

    #[test]
    fn a_block_longer_than_any_is_refused() {
        let of = |units| Segment { pool: Id(9), number: 3, blocks: vec![Cached { tag: 1, units }] };
        let comes_back = |units| Segment::decode(&of(units).encode(8192), 8192).is_some();
        assert!(comes_back(UNITS_MAX) && !comes_back(UNITS_MAX + 1));
    }

    #[test]
    fn a_header_comes_back_and_each_torn_one_is_seen() {
        let (old, new) = (segment(3, 255), segment(7, 255));
        let (before, after) = (old.encode(8192), new.encode(8192));
        assert_eq!(Segment::decode(&after, 8192), Some(new));
        assert_eq!(Segment::decode(&after, 4096), None, "it is of another place");
        for cut in (512..4096).step_by(512).filter(|cut| *cut < HEADER + 255 * BLOCK_BYTES) {
            assert_eq!(
                Segment::decode(&[&after[..cut], &before[cut..]].concat(), 8192),
                None,
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn hostile_headers_name_no_block_outside() {
        let mut random = Random::new(1);
        for _ in 0..2000 {
            let mut bytes = segment(random.below(9), 200).encode(0);
            for _ in 0..4 {
                bytes[24 + random.below(2000) as usize] = random.next_u64() as u8;
            }
            bytes[8..24].fill(0);
            let sum = Checksum::of(&bytes);
            bytes[8..24].copy_from_slice(&sum.0.to_le_bytes());
            if let Some(segment) = Segment::decode(&bytes, 0) {
                let units: u64 = segment.blocks.iter().map(|block| u64::from(block.units)).sum();
                assert!(units < UNITS && segment.blocks.iter().all(|block| block.units > 0));
            }
        }
    }
}
