//! A block: all rows of a second, a minute or an hour, as bytes that say themselves whether they are whole.
//!
//! ```text
//! header, 40 bytes, little-endian
//!   0  magic "FBAN"        4  version 1 (u16)     6  resolution (u8: 0 second, 1 minute, 2 hour)   7  zero
//!   8  start (u64, seconds since 1970)           16  seconds that were kept in it (u32)
//!  20  length of what follows (u32)              24  XXH3-64 of what follows    32  XXH3-64 of bytes 0 to 31
//! then a section for each layer
//!   layer (u8)   1 if packed with LZ4 (u8)   length as stored (u32)   length unpacked (u32)   bytes
//! a section unpacked; numbers are LEB128
//!   count of texts, each: length, UTF-8
//!   count of rows, each: count of labels, each: dimension (u8), number of its text
//!                        count of cells, each: noun (u8), kind (u8), then
//!                          0 counter: count     1 gauge: sum, seconds
//!                          2 spread: length in bytes, pairs of: distance from the bucket before, count
//! ```
//!
//! Each block has its own table of texts, so losing one loses nothing of the others; each layer is packed by itself, so a query unpacks one. Reading
//! trusts nothing: lengths have bounds before anything is allocated, and unknown layers, nouns, dimensions and kinds are passed over.

use crate::catalogue::{Dimension, Layer, Noun};
use crate::intake::Line;
use crate::row::{Cell, LABELS_MAX};
use forebay_base::checksum::hash_64;
use forebay_base::codec::{Reader, Truncated};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) const MAGIC: [u8; 4] = *b"FBAN";
const VERSION: u16 = 1;
pub(crate) const HEADER_LEN: usize = 40;
/// Of a header, what its own hash covers.
const HASHED_LEN: usize = HEADER_LEN - 8;
const SECTION_HEADER_LEN: usize = 10;
/// A row has 400 bytes or so where its histograms are wide; a layer has 512 at most.
const SECTION_MAX: usize = 4 << 20;
/// All layers together.
pub(crate) const BLOCK_MAX: usize = 16 << 20;
/// Not worth unpacking.
const PACKED_MIN: usize = 64;

/// How much time a block is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Resolution {
    Second,
    Minute,
    Hour,
}

impl Resolution {
    pub const ALL: [Resolution; 3] = [Resolution::Second, Resolution::Minute, Resolution::Hour];

    pub fn seconds(self) -> u64 {
        match self {
            Resolution::Second => 1,
            Resolution::Minute => 60,
            Resolution::Hour => 3600,
        }
    }

    /// As files are named.
    pub fn name(self) -> &'static str {
        match self {
            Resolution::Second => "seconds",
            Resolution::Minute => "minutes",
            Resolution::Hour => "hours",
        }
    }
}

/// What a header says that verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub resolution: Resolution,
    pub start: u64,
    /// How many seconds of it were kept.
    pub seconds: u32,
    pub len: usize,
    hash: u64,
}

impl Header {
    /// `None` when it is none, or damaged.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Option<Header> {
        let mut reader = Reader::new(bytes);
        let magic = reader.bytes(4).ok()?;
        let version = reader.u16().ok()?;
        let resolution = Resolution::ALL.get(usize::from(reader.u8().ok()?));
        reader.u8().ok()?;
        let (start, seconds) = (reader.u64().ok()?, reader.u32().ok()?);
        let (len, hash) = (reader.u32().ok()? as usize, reader.u64().ok()?);
        let own = reader.u64().ok()?;
        let whole = magic == MAGIC && version == VERSION && own == hash_64(&bytes[..HASHED_LEN]);
        let header = Header { resolution: *resolution?, start, seconds, len, hash };
        // Times are added to: what no clock says is no time.
        (whole && len <= BLOCK_MAX && start <= u64::from(u32::MAX) << 8).then_some(header)
    }

    fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = self.resolution as u8;
        bytes[8..16].copy_from_slice(&self.start.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.seconds.to_le_bytes());
        bytes[20..24].copy_from_slice(&(self.len as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.hash.to_le_bytes());
        let own = hash_64(&bytes[..HASHED_LEN]);
        bytes[HASHED_LEN..].copy_from_slice(&own.to_le_bytes());
        bytes
    }
}

/// A whole block, header included, that verified.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub header: Header,
    bytes: Arc<[u8]>,
}

impl Block {
    /// `None`: too large to be read again. Lines of a layer are in order already.
    pub fn encode(
        resolution: Resolution,
        start: u64,
        seconds: u32,
        layers: &[(Layer, Vec<Line>)],
    ) -> Option<Block> {
        let mut bytes = vec![0; HEADER_LEN];
        for (layer, lines) in layers {
            let plain = section(lines);
            let packed = (plain.len() >= PACKED_MIN).then(|| lz4_flex::block::compress(&plain));
            let packed = packed.filter(|packed| packed.len() < plain.len());
            let stored = packed.as_ref().unwrap_or(&plain);
            if plain.len() > SECTION_MAX {
                return None;
            }
            bytes.extend([layer.code(), u8::from(packed.is_some())]);
            bytes.extend((stored.len() as u32).to_le_bytes());
            bytes.extend((plain.len() as u32).to_le_bytes());
            bytes.extend(stored);
        }
        let payload = &bytes[HEADER_LEN..];
        let header = Header { resolution, start, seconds, len: payload.len(), hash: hash_64(payload) };
        if header.len > BLOCK_MAX {
            return None;
        }
        bytes[..HEADER_LEN].copy_from_slice(&header.encode());
        Some(Block { header, bytes: bytes.into() })
    }

    /// What a header and the bytes behind it are; `None` when these are not the header's.
    pub fn verify(header: Header, bytes: Arc<[u8]>) -> Option<Block> {
        let payload = bytes.get(HEADER_LEN..)?;
        (payload.len() == header.len && hash_64(payload) == header.hash).then_some(Block { header, bytes })
    }

    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Sections, as layers, flags and bytes.
    fn sections(&self) -> impl Iterator<Item = (u8, bool, &[u8], usize)> {
        let mut reader = Reader::new(&self.bytes[HEADER_LEN..]);
        std::iter::from_fn(move || {
            if reader.remaining() < SECTION_HEADER_LEN {
                return None;
            }
            let (layer, packed) = (reader.u8().ok()?, reader.u8().ok()? == 1);
            let (stored, plain) = (reader.u32().ok()? as usize, reader.u32().ok()? as usize);
            Some((layer, packed, reader.bytes(stored).ok()?, plain))
        })
    }

    /// The texts and rows of a layer, unpacked into `space`; `None` when it has none here.
    pub fn rows<'a>(&'a self, layer: Layer, space: &'a mut Vec<u8>) -> Option<(Vec<&'a str>, Rows<'a>)> {
        let (_, packed, stored, plain) = self.sections().find(|section| section.0 == layer.code())?;
        Rows::begin(unpacked(packed, stored, plain, space)?).ok()
    }

    /// All rows of all layers that are known, as they were.
    pub fn lines(&self) -> Vec<(Layer, Vec<Line>)> {
        let mut space = Vec::new();
        let mut layers = Vec::new();
        for (code, packed, stored, plain) in self.sections() {
            let Some(layer) = Layer::of_code(code) else { continue };
            let bytes = unpacked(packed, stored, plain, &mut space);
            let Some((texts, mut rows)) = bytes.and_then(|bytes| Rows::begin(bytes).ok()) else { continue };
            let texts: Vec<Arc<str>> = texts.iter().map(|text| Arc::from(*text)).collect();
            let mut lines = Vec::new();
            while let Ok(Some(row)) = rows.next() {
                let labels = row.labels.iter().map(|(dimension, text)| (*dimension, texts[*text].clone()));
                let cells = row.cells.iter().map(|(noun, cell)| (*noun, cell.owned()));
                lines.push(Line { labels: labels.collect(), cells: cells.collect() });
            }
            layers.push((layer, lines));
        }
        layers
    }
}

fn unpacked<'a>(packed: bool, stored: &'a [u8], plain: usize, space: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    if !packed {
        return Some(stored);
    }
    if plain > SECTION_MAX {
        return None;
    }
    space.resize(plain.max(space.len()), 0);
    let len = lz4_flex::block::decompress_into(stored, &mut space[..plain]).ok()?;
    (len == plain).then_some(&space[..plain])
}

fn number(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn section(lines: &[Line]) -> Vec<u8> {
    let mut texts: Vec<&str> = Vec::new();
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for (_, text) in lines.iter().flat_map(|line| &line.labels) {
        numbers.entry(text).or_insert_with(|| {
            texts.push(text);
            texts.len() - 1
        });
    }
    let mut out = Vec::with_capacity(lines.len() * 100);
    let length = |out: &mut Vec<u8>, length: usize| number(out, length as u128);
    length(&mut out, texts.len());
    for text in texts {
        length(&mut out, text.len());
        out.extend(text.as_bytes());
    }
    length(&mut out, lines.len());
    let mut pairs = Vec::new();
    for line in lines {
        length(&mut out, line.labels.len());
        for (dimension, text) in &line.labels {
            out.push(dimension.code());
            length(&mut out, numbers[&**text]);
        }
        length(&mut out, line.cells.len());
        for (noun, cell) in &line.cells {
            out.push(noun.code());
            match cell {
                Cell::Count(count) => {
                    out.push(0);
                    number(&mut out, (*count).into());
                }
                Cell::Level { sum, seconds } => {
                    out.push(1);
                    number(&mut out, *sum);
                    number(&mut out, (*seconds).into());
                }
                Cell::Spread(buckets) => {
                    out.push(2);
                    pairs.clear();
                    let mut before = 0;
                    for (bucket, count) in buckets {
                        number(&mut pairs, (bucket - before).into());
                        number(&mut pairs, (*count).into());
                        before = *bucket;
                    }
                    length(&mut out, pairs.len());
                    out.extend(&pairs);
                }
            }
        }
    }
    out
}

/// Reads the rows of a section one after the other.
pub(crate) struct Rows<'a> {
    texts: usize,
    left: u64,
    reader: Numbers<'a>,
    row: RowView<'a>,
}

/// A row as it lies in a section.
#[derive(Default)]
pub(crate) struct RowView<'a> {
    /// Dimensions and numbers of texts.
    pub labels: Vec<(Dimension, usize)>,
    pub cells: Vec<(Noun, CellView<'a>)>,
}

#[derive(Clone, Copy)]
pub(crate) enum CellView<'a> {
    Count(u64),
    Level { sum: u128, seconds: u32 },
    Spread(Buckets<'a>),
}

impl CellView<'_> {
    fn owned(self) -> Cell {
        match self {
            CellView::Count(count) => Cell::Count(count),
            CellView::Level { sum, seconds } => Cell::Level { sum, seconds },
            CellView::Spread(buckets) => Cell::Spread(buckets.collect()),
        }
    }
}

/// Buckets in rising order, with how much each counts.
#[derive(Clone, Copy)]
pub(crate) struct Buckets<'a> {
    reader: Numbers<'a>,
    bucket: u16,
}

impl Iterator for Buckets<'_> {
    type Item = (u16, u64);

    fn next(&mut self) -> Option<(u16, u64)> {
        let distance = self.reader.number().ok()?;
        self.bucket = self.bucket.saturating_add(u16::try_from(distance).unwrap_or(u16::MAX));
        Some((self.bucket, self.reader.number().ok()?))
    }
}

impl<'a> Rows<'a> {
    fn begin(bytes: &'a [u8]) -> Result<(Vec<&'a str>, Rows<'a>), Truncated> {
        let mut reader = Numbers { rest: bytes };
        let mut texts = Vec::new();
        for _ in 0..reader.number()? {
            let length = reader.number()?;
            texts.push(std::str::from_utf8(reader.bytes(length)?).map_err(|_| Truncated)?);
        }
        let left = reader.number()?;
        let rows = Rows { texts: texts.len(), left, reader, row: RowView::default() };
        Ok((texts, rows))
    }

    /// The next row; `None` behind the last.
    pub fn next(&mut self) -> Result<Option<&RowView<'a>>, Truncated> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let (reader, row) = (&mut self.reader, &mut self.row);
        row.labels.clear();
        row.cells.clear();
        for _ in 0..reader.number()? {
            let (dimension, text) = (reader.byte()?, reader.number()? as usize);
            if text >= self.texts {
                return Err(Truncated);
            }
            if let Some(dimension) = Dimension::of_code(dimension)
                && row.labels.len() < LABELS_MAX
            {
                row.labels.push((dimension, text));
            }
        }
        for _ in 0..reader.number()? {
            let (noun, kind) = (reader.byte()?, reader.byte()?);
            let cell = match kind {
                0 => CellView::Count(reader.number()?),
                1 => {
                    let sum = reader.wide()?;
                    CellView::Level { sum, seconds: u32::try_from(reader.number()?).unwrap_or(u32::MAX) }
                }
                2 => {
                    let length = reader.number()?;
                    CellView::Spread(Buckets { reader: Numbers { rest: reader.bytes(length)? }, bucket: 0 })
                }
                _ => return Err(Truncated),
            };
            if let Some(noun) = Noun::of_code(noun) {
                row.cells.push((noun, cell));
            }
        }
        Ok(Some(&self.row))
    }
}

#[derive(Clone, Copy)]
struct Numbers<'a> {
    rest: &'a [u8],
}

impl<'a> Numbers<'a> {
    fn byte(&mut self) -> Result<u8, Truncated> {
        let (first, rest) = self.rest.split_first().ok_or(Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], Truncated> {
        let length = usize::try_from(length).map_err(|_| Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64, Truncated> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Truncated)
    }

    fn wide(&mut self) -> Result<u128, Truncated> {
        let mut value = 0;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            value |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Random;

    fn lines() -> Vec<(Layer, Vec<Line>)> {
        let label = |dimension, value: &str| (dimension, Arc::from(value));
        let nbd = (0..40).map(|nth| Line {
            labels: vec![label(Dimension::Op, "read"), label(Dimension::Client, &format!("10.0.0.{nth:02}"))],
            cells: vec![
                (Noun::Ops, Cell::Count(nth * 1000)),
                (Noun::Latency, Cell::Spread(vec![(0, 1), (7, u64::MAX), (303, nth + 1)])),
            ],
        });
        let pool = Line {
            labels: vec![label(Dimension::Pool, "")],
            cells: vec![(Noun::Used, Cell::Level { sum: u128::MAX, seconds: 3600 })],
        };
        vec![(Layer::Nbd, nbd.collect()), (Layer::Pool, vec![pool]), (Layer::Disk, vec![])]
    }

    fn block() -> Block {
        Block::encode(Resolution::Minute, 1_790_000_040, 58, &lines()).unwrap()
    }

    fn read(bytes: &[u8]) -> Option<Block> {
        Block::verify(Header::decode(bytes.first_chunk()?)?, bytes.into())
    }

    #[test]
    fn what_was_written_is_read() {
        let block = read(block().bytes()).unwrap();
        let Header { resolution, start, seconds, .. } = block.header;
        assert_eq!((resolution, start, seconds), (Resolution::Minute, 1_790_000_040, 58));
        assert_eq!(block.lines(), lines());
        let mut space = Vec::new();
        let (_, mut rows) = block.rows(Layer::Nbd, &mut space).unwrap();
        let row = rows.next().unwrap().unwrap();
        assert_eq!((row.labels.len(), row.cells.len()), (2, 2));
        assert!(block.rows(Layer::Iscsi, &mut Vec::new()).is_none());
    }

    #[test]
    fn no_changed_or_missing_byte_goes_unnoticed() {
        let whole = block().bytes().to_vec();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert!(read(&damaged).is_none(), "byte {at}");
            assert!(read(&whole[..at]).is_none(), "cut at {at}");
        }
    }

    /// Goal: whatever a block says, reading it ends, without a panic and without more memory than it has bytes. Method: random changes, with hashes
    /// that are right again.
    #[test]
    fn lies_under_a_right_checksum_are_survived() {
        let whole = block().bytes().to_vec();
        let plain = section(&lines()[0].1);
        let mut random = Random::new(3);
        for _ in 0..5000 {
            let mut bytes = whole.clone();
            if random.one_in(2) {
                // Unpacked, so that what changes is what rows are read from.
                bytes.truncate(HEADER_LEN);
                bytes.extend([Layer::Nbd.code(), 0]);
                bytes.extend((plain.len() as u32).to_le_bytes());
                bytes.extend((plain.len() as u32).to_le_bytes());
                bytes.extend(&plain);
            }
            for _ in 0..=random.below(4) {
                let at = HEADER_LEN as u64 + random.below((bytes.len() - HEADER_LEN) as u64);
                bytes[at as usize] = random.next_u64() as u8;
            }
            let payload = &bytes[HEADER_LEN..];
            let hash = hash_64(payload);
            let header =
                Header { resolution: Resolution::Second, start: 1, seconds: 1, len: payload.len(), hash };
            let block = Block::verify(header, bytes.into()).unwrap();
            let rows: usize = block.lines().iter().map(|(_, lines)| lines.len()).sum();
            assert!(rows <= 4096, "{rows}");
        }
    }
}
