//! Self-describing data: every 512-byte sector says which write put it there, and where it belongs.
//!
//! A sector of write `number` holds a magic word, the number, the sector's own place within its volume, the
//! volume's tag, and a pattern derived from all of them. A wrong byte therefore tells its story: another
//! write's number is a lost or resurrected write, another place a misdirected one, a broken pattern a torn or
//! rotted one. Zeros are what was never written, discarded or zeroed.

use std::fmt;

/// Bytes of the smallest unit that the workloads write.
pub const SECTOR: usize = 512;
const MAGIC: u64 = u64::from_le_bytes(*b"Forebay!");
const WORDS: usize = SECTOR / 8;

/// What one sector holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    Zeros,
    Write {
        /// Tag of the volume that was written.
        tag: u32,
        number: u32,
        /// Place within that volume, in sectors.
        sector: u32,
    },
    /// Bytes that no write put there as they are.
    Foreign,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Zeros => f.write_str("zeros"),
            Seen::Write { tag, number, sector } => {
                write!(f, "write {number} to volume {tag}, sector {sector}")
            }
            Seen::Foreign => f.write_str("bytes that nobody wrote"),
        }
    }
}

fn head(tag: u32, number: u32, sector: u32) -> [u64; 2] {
    [u64::from(number) << 32 | u64::from(sector), u64::from(tag)]
}

fn pattern([place, tag]: [u64; 2]) -> u64 {
    (place ^ tag << 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// The pattern at a place: of every other write the same throughout, so that blocks of it can be made much smaller; of the others
/// there is nothing to save.
fn word_at([place, _]: [u64; 2], step: u64, at: usize) -> u64 {
    if place >> 32 & 1 == 0 { step } else { step.wrapping_mul(at as u64 + 1) }
}

/// Fills `bytes` (whole sectors) as write `number` of the volume from `sector` on.
pub fn fill(bytes: &mut [u8], tag: u32, number: u32, sector: u32) {
    assert!(bytes.len().is_multiple_of(SECTOR), "{} bytes are not whole sectors", bytes.len());
    for (index, sector_bytes) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        let head = head(tag, number, sector + index as u32);
        let step = pattern(head);
        for (place, target) in sector_bytes.chunks_exact_mut(8).enumerate() {
            let value = match place {
                0 => MAGIC,
                1 => head[0],
                2 => head[1],
                _ => word_at(head, step, place),
            };
            target.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// What the sector `bytes` holds.
pub fn parse(bytes: &[u8]) -> Seen {
    let word = |place: usize| {
        u64::from_le_bytes(bytes[place * 8..place * 8 + 8].try_into().expect("eight bytes of a sector"))
    };
    if word(0) == 0 {
        let all = (0..WORDS).fold(0, |all, place| all | word(place));
        return if all == 0 { Seen::Zeros } else { Seen::Foreign };
    }
    let head = [word(1), word(2)];
    let step = pattern(head);
    let wrong =
        (3..WORDS).fold(word(0) ^ MAGIC, |wrong, place| wrong | word(place) ^ word_at(head, step, place));
    if wrong != 0 || head[1] > u64::from(u32::MAX) {
        return Seen::Foreign;
    }
    Seen::Write { tag: head[1] as u32, number: (head[0] >> 32) as u32, sector: head[0] as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_says_what_it_is_and_one_wrong_bit_shows() {
        let mut bytes = [0; 2 * SECTOR];
        assert_eq!(parse(&bytes[..SECTOR]), Seen::Zeros);
        fill(&mut bytes, 3, 77, 10);
        assert_eq!(parse(&bytes[SECTOR..]), Seen::Write { tag: 3, number: 77, sector: 11 });
        for bit in 0..SECTOR * 8 {
            let mut rotten = bytes;
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(parse(&rotten[..SECTOR]), parse(&bytes[..SECTOR]), "bit {bit}");
        }
        let mut torn = bytes;
        fill(&mut torn, 3, 78, 10);
        torn[256..].copy_from_slice(&bytes[256..]);
        assert_eq!(parse(&torn[..SECTOR]), Seen::Foreign);
    }
}
