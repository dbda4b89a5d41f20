//! What a frame says happened.
//!
//! ```text
//! 1 Write   1 kind | 8 dataset | 8 first block | 4 count | count × 32 pointers
//! 2 Data    1 kind | 8 dataset | 8 first block | 4 count | 4 bytes per block | the blocks
//! 3 Clear   1 kind | 8 dataset | 8 first block | 8 count
//! 4 Put     1 kind | 8 dataset | 4 length | dataset record
//! 5 Parts   1 kind | 8 dataset | 8 block | 4 bytes per block | 4 count | count × (4 byte in the block, 4 length) | the bytes, one after the other
//! 6 Grant   1 kind | 192 chunk table entry
//! 7 Plug    1 kind | 4 chunk | 4 count | count × (1 slot, 8 byte in the slot, 4 length) | the bytes, one after the other
//! 8 Plugged 1 kind
//! 9 Items   1 kind | 4 count | count × (2 bytes of the key, 4 of the value, all ones when it is gone) | of each the key and the value
//! ```
//!
//! A dataset is named by its number in the shard's catalogue. Records carry absolute positions and pointers: applying one
//! twice changes nothing.

use forebay_base::codec::{Reader, Truncated, Writer};
use std::borrow::Cow;

use forebay_space::{CHUNK_ENTRY_BYTES, ChunkEntry, PTR_BYTES, Ptr};

/// A record, borrowed from what is being logged or from a frame being replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// The blocks from `first` are at `ptrs`. One client write is one record: it is there whole or not at all.
    Write { dataset: u64, first: u64, ptrs: Cow<'a, [Ptr]> },
    /// The blocks from `first` have these contents, which are nowhere else yet.
    Data { dataset: u64, first: u64, block_bytes: u32, blocks: Vec<&'a [u8]> },
    /// These bytes of a block, from where they begin in it, in order; they are nowhere else yet.
    Parts { dataset: u64, block: u64, block_bytes: u32, parts: Vec<(u32, &'a [u8])> },
    /// The blocks read as zeros.
    Clear { dataset: u64, first: u64, count: u64 },
    /// The dataset has these properties; it is new if it was not there.
    Put { dataset: u64, record: &'a [u8] },
    /// The shard owns this chunk from here on.
    Grant { chunk: ChunkEntry },
    /// These bytes go into lines in use of a chunk with parity: data and parity, all of it. The last one that no
    /// [`Record::Plugged`] follows is written again after a crash.
    Plug { chunk: u32, pieces: Vec<PlugPiece<'a>> },
    /// The bytes of the last [`Record::Plug`] are in place.
    Plugged,
    /// Items of the pool's registry have these values, or are gone.
    Items { items: Vec<Item<'a>> },
}

/// A key, and a value if there is one.
pub type Item<'a> = (&'a [u8], Option<&'a [u8]>);

/// Bytes for one slot of a chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlugPiece<'a> {
    /// Index in the chunk's slots.
    pub slot: u8,
    /// Byte in the slot.
    pub at: u64,
    pub bytes: &'a [u8],
}

/// Encoded bytes of a part of a block without its contents.
const PART_HEADER: usize = 8;
/// Encoded bytes of a [`PlugPiece`] without its contents.
const PIECE_HEADER: usize = 13;
/// Encoded bytes of an item without key and value.
const ITEM_HEADER: usize = 6;
/// What stands for the length of a value where there is none.
const GONE: u32 = u32::MAX;

/// A frame whose checksum is right holds something impossible: written by a newer version, or our bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordError;

impl From<Truncated> for RecordError {
    fn from(_: Truncated) -> RecordError {
        RecordError
    }
}

impl Record<'_> {
    /// Encoded bytes.
    pub fn len(&self) -> usize {
        match self {
            Record::Write { ptrs, .. } => 21 + ptrs.len() * PTR_BYTES,
            Record::Data { blocks, .. } => 25 + blocks.iter().map(|block| block.len()).sum::<usize>(),
            Record::Parts { parts, .. } => {
                25 + parts.iter().map(|(_, bytes)| PART_HEADER + bytes.len()).sum::<usize>()
            }
            Record::Clear { .. } => 25,
            Record::Put { record, .. } => 13 + record.len(),
            Record::Grant { .. } => 1 + CHUNK_ENTRY_BYTES,
            Record::Plug { pieces, .. } => {
                9 + pieces.iter().map(|piece| PIECE_HEADER + piece.bytes.len()).sum::<usize>()
            }
            Record::Plugged => 1,
            Record::Items { items } => {
                let bytes = |(key, value): &Item<'_>| ITEM_HEADER + key.len() + value.map_or(0, <[u8]>::len);
                5 + items.iter().map(bytes).sum::<usize>()
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    pub fn encode(&self, w: &mut Writer) {
        match self {
            Record::Write { dataset, first, ptrs } => {
                w.u8(1).u64(*dataset).u64(*first).u32(ptrs.len() as u32);
                for ptr in ptrs.iter() {
                    ptr.encode(w);
                }
            }
            Record::Data { dataset, first, block_bytes, blocks } => {
                w.u8(2).u64(*dataset).u64(*first).u32(blocks.len() as u32).u32(*block_bytes);
                for block in blocks {
                    w.bytes(block);
                }
            }
            Record::Parts { dataset, block, block_bytes, parts } => {
                w.u8(5).u64(*dataset).u64(*block).u32(*block_bytes).u32(parts.len() as u32);
                for (at, bytes) in parts {
                    w.u32(*at).u32(bytes.len() as u32);
                }
                for (_, bytes) in parts {
                    w.bytes(bytes);
                }
            }
            Record::Clear { dataset, first, count } => {
                w.u8(3).u64(*dataset).u64(*first).u64(*count);
            }
            Record::Put { dataset, record } => {
                w.u8(4).u64(*dataset).u32(record.len() as u32).bytes(record);
            }
            Record::Grant { chunk } => {
                w.u8(6);
                chunk.encode(w);
            }
            Record::Plug { chunk, pieces } => {
                w.u8(7).u32(*chunk).u32(pieces.len() as u32);
                for piece in pieces {
                    w.u8(piece.slot).u64(piece.at).u32(piece.bytes.len() as u32);
                }
                for piece in pieces {
                    w.bytes(piece.bytes);
                }
            }
            Record::Plugged => {
                w.u8(8);
            }
            Record::Items { items } => {
                w.u8(9).u32(items.len() as u32);
                for (key, value) in items {
                    w.u16(key.len() as u16).u32(value.map_or(GONE, |value| value.len() as u32));
                }
                for (key, value) in items {
                    w.bytes(key).bytes(value.unwrap_or_default());
                }
            }
        }
    }

    fn decode<'a>(r: &mut Reader<'a>) -> Result<Record<'a>, RecordError> {
        Ok(match r.u8()? {
            1 => {
                let (dataset, first, count) = (r.u64()?, r.u64()?, r.u32()? as usize);
                if count.saturating_mul(PTR_BYTES) > r.remaining() {
                    return Err(RecordError);
                }
                let ptrs = (0..count).map(|_| Ptr::decode(r)).collect::<Result<Vec<_>, _>>()?;
                Record::Write { dataset, first, ptrs: ptrs.into() }
            }
            2 => {
                let (dataset, first, count, block_bytes) = (r.u64()?, r.u64()?, r.u32()? as usize, r.u32()?);
                if block_bytes == 0 || count.saturating_mul(block_bytes as usize) > r.remaining() {
                    return Err(RecordError);
                }
                let blocks = (0..count).map(|_| r.bytes(block_bytes as usize)).collect::<Result<_, _>>()?;
                Record::Data { dataset, first, block_bytes, blocks }
            }
            3 => Record::Clear { dataset: r.u64()?, first: r.u64()?, count: r.u64()? },
            4 => {
                let (dataset, len) = (r.u64()?, r.u32()? as usize);
                Record::Put { dataset, record: r.bytes(len)? }
            }
            5 => {
                let (dataset, block, block_bytes, count) = (r.u64()?, r.u64()?, r.u32()?, r.u32()? as usize);
                if count.saturating_mul(PART_HEADER) > r.remaining() {
                    return Err(RecordError);
                }
                let headers: Vec<(u32, u32)> =
                    (0..count).map(|_| Ok((r.u32()?, r.u32()?))).collect::<Result<_, RecordError>>()?;
                let mut end = 0;
                let mut parts = Vec::with_capacity(count);
                for (at, len) in headers {
                    if at < end || len == 0 || len > block_bytes.saturating_sub(at) {
                        return Err(RecordError);
                    }
                    end = at + len;
                    parts.push((at, r.bytes(len as usize)?));
                }
                Record::Parts { dataset, block, block_bytes, parts }
            }
            6 => Record::Grant { chunk: ChunkEntry::decode(r)?.ok_or(RecordError)? },
            7 => {
                let (chunk, count) = (r.u32()?, r.u32()? as usize);
                if count.saturating_mul(PIECE_HEADER) > r.remaining() {
                    return Err(RecordError);
                }
                let headers: Vec<(u8, u64, u32)> = (0..count)
                    .map(|_| Ok((r.u8()?, r.u64()?, r.u32()?)))
                    .collect::<Result<_, RecordError>>()?;
                let pieces = headers
                    .into_iter()
                    .map(|(slot, at, len)| Ok(PlugPiece { slot, at, bytes: r.bytes(len as usize)? }));
                Record::Plug { chunk, pieces: pieces.collect::<Result<_, RecordError>>()? }
            }
            8 => Record::Plugged,
            9 => {
                let count = r.u32()? as usize;
                if count.saturating_mul(ITEM_HEADER) > r.remaining() {
                    return Err(RecordError);
                }
                let headers: Vec<(u16, u32)> =
                    (0..count).map(|_| Ok((r.u16()?, r.u32()?))).collect::<Result<_, RecordError>>()?;
                let items = headers.into_iter().map(|(key, value)| {
                    let key = r.bytes(key.into())?;
                    let value = if value == GONE { None } else { Some(r.bytes(value as usize)?) };
                    Ok((key, value))
                });
                Record::Items { items: items.collect::<Result<_, RecordError>>()? }
            }
            _ => return Err(RecordError),
        })
    }
}

/// All records of a frame's payload.
pub fn decode_records(payload: &[u8], count: u32) -> Result<Vec<Record<'_>>, RecordError> {
    let mut r = Reader::new(payload);
    let mut records = Vec::with_capacity((count as usize).min(payload.len() / 5));
    for _ in 0..count {
        records.push(Record::decode(&mut r)?);
    }
    if r.remaining() > 0 { Err(RecordError) } else { Ok(records) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Checksum;
    use forebay_device::SlotRef;
    use forebay_space::{Addr, ChunkId, ChunkKind};

    #[test]
    fn records_round_trip_and_truncation_is_an_error() {
        let ptr = Ptr::new(Addr::new(ChunkId(1), 2), 8192, 3, Checksum(4));
        let slots = vec![SlotRef { disk: 1, slot: 2 }];
        let chunk = ChunkEntry::fresh(ChunkId(3), ChunkKind::Node, 0, 16, slots);
        let block = [7; 4096];
        let records = vec![
            Record::Write { dataset: 1, first: 2, ptrs: vec![ptr, Ptr::HOLE].into() },
            Record::Data { dataset: 1, first: 9, block_bytes: 4096, blocks: vec![&block, &block] },
            Record::Parts { dataset: 1, block: 7, block_bytes: 8192, parts: vec![(0, b"a"), (4096, &block)] },
            Record::Clear { dataset: 1, first: 2, count: u64::MAX },
            Record::Put { dataset: 5, record: b"properties" },
            Record::Grant { chunk },
            Record::Plug {
                chunk: 3,
                pieces: vec![
                    PlugPiece { slot: 4, at: 1 << 33, bytes: &block },
                    PlugPiece { slot: 0, at: 0, bytes: b"" },
                ],
            },
            Record::Plugged,
            Record::Items { items: vec![(b"host/1", Some(b"{}")), (b"host/2", None), (b"k", Some(b""))] },
        ];
        let mut bytes = vec![0; records.iter().map(Record::len).sum()];
        let mut w = Writer::new(&mut bytes);
        records.iter().for_each(|record| record.encode(&mut w));
        assert_eq!(decode_records(&bytes, 9), Ok(records));
        assert!((0..bytes.len()).all(|len| decode_records(&bytes[..len], 9).is_err()));
        assert_eq!(decode_records(&bytes, 8), Err(RecordError), "left-over bytes");
        assert_eq!(
            decode_records(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255], 1),
            Err(RecordError)
        );
    }
}
