//! Blocks made smaller, and made whole again.
//!
//! ```text
//! stored form   0 length of the payload 4   4 XXH3-64 of the contents 8   12 payload   … zeros to a multiple of 4 KiB
//! ```
//!
//! The kind is in the pointer, which also has a checksum of all stored bytes: that is held against what a disk returns,
//! and the hash in here against what the payload expands to. A block is stored in this form only when that saves
//! an allocation unit.

mod lzjb;
mod property;
mod sampling;

pub use property::Compression;
pub use sampling::Sampling;

use forebay_base::checksum::hash_64;
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use std::collections::BTreeMap;
use zstd_safe::{CCtx, DCtx};

/// How a stored block was made smaller. The numbers are in pointers on disk; 0 is a block as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Lz4 = 1,
    Lzjb = 2,
    Deflate = 3,
    Zstd = 4,
}

/// The stored bytes are not what their kind says, or do not expand to what was stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damaged;

const HEADER: usize = 12;
/// A block saves space in steps of this many bytes.
const UNIT: usize = 4096;

/// The working memory of the compressors; one for each shard. What a kind needs is made when it is first used.
#[derive(Default)]
pub struct Codec {
    packed: Vec<u8>,
    lz4: Option<CompressTable>,
    deflate: BTreeMap<u8, Compressor>,
    inflate: Option<Decompressor>,
    zstd: Option<CCtx<'static>>,
    unzstd: Option<DCtx<'static>>,
}

impl Codec {
    /// Packs `block`. Gives the kind and what is to be stored, a multiple of 4 KiB; nothing when that would save nothing.
    pub fn pack(&mut self, compression: Compression, block: &[u8]) -> Option<(Kind, &[u8])> {
        let room = block.len().checked_sub(UNIT).filter(|room| *room > 0)?;
        // LZ4 begins only with room for what does not get smaller.
        self.packed.resize(HEADER + get_maximum_output_size(block.len()).next_multiple_of(UNIT), 0);
        let payload = &mut self.packed[HEADER..];
        let (kind, len) = match compression {
            Compression::Off => return None,
            Compression::Lz4 => {
                let table = self.lz4.get_or_insert_default();
                (Kind::Lz4, compress_into_with_table(block, payload, table).ok()?)
            }
            Compression::Lzjb => (Kind::Lzjb, lzjb::compress(block, &mut payload[..room - HEADER])?),
            Compression::Gzip(level) => {
                let make = || Compressor::new(CompressionLvl::new(level.into()).expect("levels are checked"));
                let deflate = self.deflate.entry(level).or_insert_with(make);
                (Kind::Deflate, deflate.deflate_compress(block, &mut payload[..room - HEADER]).ok()?)
            }
            Compression::Zstd(level) => {
                let context = self.zstd.get_or_insert_default();
                let room = &mut payload[..room - HEADER];
                (Kind::Zstd, context.compress(room, block, level.into()).ok()?)
            }
        };
        let end = (HEADER + len).next_multiple_of(UNIT);
        if end > room {
            return None;
        }
        self.packed[..4].copy_from_slice(&(len as u32).to_le_bytes());
        self.packed[4..HEADER].copy_from_slice(&hash_64(block).to_le_bytes());
        self.packed[HEADER + len..end].fill(0);
        Some((kind, &self.packed[..end]))
    }

    /// Fills `into` with the contents of a block that is stored as `stored`.
    pub fn unpack(&mut self, kind: u8, stored: &[u8], into: &mut [u8]) -> Result<(), Damaged> {
        let (header, rest) = stored.split_at_checked(HEADER).ok_or(Damaged)?;
        let len = u32::from_le_bytes(header[..4].try_into().expect("four bytes")) as usize;
        let hash = u64::from_le_bytes(header[4..].try_into().expect("eight bytes"));
        let payload = rest.get(..len).ok_or(Damaged)?;
        let whole = into.len();
        let filled = match kind {
            _ if kind == Kind::Lz4 as u8 => lz4_flex::block::decompress_into(payload, into).ok(),
            _ if kind == Kind::Lzjb as u8 => lzjb::decompress(payload, into),
            _ if kind == Kind::Deflate as u8 => {
                self.inflate.get_or_insert_default().deflate_decompress(payload, into).ok()
            }
            _ if kind == Kind::Zstd as u8 => {
                self.unzstd.get_or_insert_default().decompress(into, payload).ok()
            }
            _ => None,
        };
        if filled == Some(whole) && hash_64(into) == hash { Ok(()) } else { Err(Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Random;

    const KINDS: [Compression; 7] = [
        Compression::Lz4,
        Compression::Lzjb,
        Compression::Gzip(1),
        Compression::Gzip(9),
        Compression::Zstd(1),
        Compression::Zstd(3),
        Compression::Zstd(19),
    ];

    /// Bytes of which `share` of 16 are at random, the others from a short text.
    fn block(len: usize, share: u64, random: &mut Random) -> Vec<u8> {
        let text = b"select name, price from goods where price > 100 order by name; ";
        let byte = |at: usize| {
            if random.below(16) < share { random.next_u64() as u8 } else { text[at % text.len()] }
        };
        (0..len).map(byte).collect()
    }

    #[test]
    fn what_is_packed_comes_back() {
        let (mut codec, mut random) = (Codec::default(), Random::new(3));
        let mut saved = 0;
        for round in 0..40 {
            for compression in KINDS {
                let len = 4096 << random.below(6);
                let block = block(len, round % 17, &mut random);
                let Some((kind, stored)) = codec.pack(compression, &block) else {
                    assert!(
                        len == 4096 || round % 17 > 1,
                        "{compression} leaves {len} bytes of text as they are"
                    );
                    continue;
                };
                let stored = stored.to_vec();
                assert!(stored.len() < len && stored.len().is_multiple_of(4096));
                saved += len - stored.len();
                let mut back = vec![0x55; len];
                assert_eq!(codec.unpack(kind as u8, &stored, &mut back), Ok(()));
                assert_eq!(back, block, "{compression}");
            }
        }
        assert!(saved > 0);
    }

    /// Goal: whatever is on disk under a right checksum, nothing but the contents that were stored ever comes out.
    #[test]
    fn what_is_damaged_is_refused() {
        let (mut codec, mut random) = (Codec::default(), Random::new(4));
        for compression in KINDS {
            let block = block(16384, 2, &mut random);
            let (kind, stored) = codec.pack(compression, &block).expect("mostly text");
            let stored = stored.to_vec();
            let used = 12 + u32::from_le_bytes(stored[..4].try_into().unwrap()) as usize;
            let mut back = vec![0; block.len()];
            for _ in 0..500 {
                let mut bad = stored.clone();
                let at = random.below(used as u64) as usize;
                bad[at] ^= 1 << random.below(8);
                if codec.unpack(kind as u8, &bad, &mut back).is_ok() {
                    assert_eq!(back, block, "{compression}: another encoding of the same");
                }
                let noise: Vec<u8> = (0..random.below(9000)).map(|_| random.next_u64() as u8).collect();
                assert_eq!(codec.unpack(kind as u8, &noise, &mut back), Err(Damaged));
            }
            assert_eq!(codec.unpack(0, &stored, &mut back), Err(Damaged));
            assert_eq!(codec.unpack(9, &stored, &mut back), Err(Damaged));
            assert_eq!(codec.unpack(kind as u8, &stored, &mut back[..8192]), Err(Damaged));
            assert_eq!(codec.unpack(kind as u8, &stored[..11], &mut back), Err(Damaged));
        }
    }
}
