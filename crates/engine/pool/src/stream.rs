//! The format in which a snapshot travels: a header, what to write and what to clear in the order of the blocks, an end.
//!
//! Bytes in, records out, no I/O. A record is taken only whole, and only if its checksum is right, which was computed over the checksum
//! of the record before: none can be left out, repeated, moved, or put in from another stream. So whatever a damaged stream has
//! delivered before its damage is right, and a receiver can keep it. Memory is bounded by the longest record, and taken as bytes arrive.
//!
//! The table is in `docs/development/decisions/0012-streams.md`, and a test compares it.

use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_base::{Checksum, Id, TIB, WallTime};
use forebay_compress::Kind;
use std::fmt;

const MAGIC: &[u8; 4] = b"FBST";
const VERSION: u16 = 1;
/// Before each record's payload.
const RECORD_HEADER: usize = 32;
const SUM_AT: usize = 16;
const NAME_BYTES: usize = 200;
const HEADER_BYTES: usize = 2 + 1 + 5 + 16 + 16 + 8 + 8 + 8 + 2 * (2 + NAME_BYTES);
/// What stands before the contents of each block.
const BLOCK_BYTES: usize = 24;
const CLEAR_BYTES: usize = 16;
const END_BYTES: usize = 24;
/// Contents of blocks in one record. Longer ones gain nothing, and a receiver holds a whole one in memory.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Greater kinds are of later versions.
const KIND_OF_BLOCK_MAX: u8 = Kind::Zstd as u8;
const BLOCKS_MAX: usize = DATA_BYTES_MAX / 4096;
const RECORD_BYTES_MAX: usize = RECORD_HEADER + 16 + BLOCKS_MAX * BLOCK_BYTES + DATA_BYTES_MAX;
const SIZE_MAX: u64 = 64 * TIB;

const KIND_HEADER: u8 = 1;
const KIND_WRITE: u8 = 2;
const KIND_CLEAR: u8 = 3;
const KIND_END: u8 = 4;

/// What a stream brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The id of the snapshot, in the pool where it was taken.
    pub snapshot: Id,
    /// The same of the snapshot that it builds upon; nothing when the stream is whole.
    pub base: Option<Id>,
    /// log2 of the bytes of a block.
    pub block_shift: u8,
    /// Bytes.
    pub size: u64,
    pub created: WallTime,
    /// The blocks before this one are left out: the receiver has them.
    pub from: u64,
    /// What the volume was called, and the snapshot.
    pub volume: String,
    pub name: String,
}

/// Blocks that follow each other, as they were stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    pub first: u64,
    /// Of each block the kind of compression, and how many bytes it has.
    pub forms: Vec<(u8, usize)>,
    /// One block after the other.
    pub data: Vec<u8>,
}

/// What a stream had, and what there is at its end.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Blocks that were written, and those that were cleared.
    pub written: u64,
    pub cleared: u64,
    /// Blocks that hold data in the snapshot.
    pub mapped: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Header(Header),
    Write(Write),
    /// These blocks hold nothing.
    Clear {
        first: u64,
        count: u64,
    },
    End(Totals),
}

/// Why bytes are not a stream, or not one that can be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    NotAStream,
    Version(u16),
    /// A record that is damaged, or not the one that follows.
    Checksum,
    /// A record that no sender writes.
    Malformed(&'static str),
    /// A block that is stored in a way that this version does not know.
    Kind(u8),
    /// The stream ends before its end.
    Truncated,
}

/// A flaw, and at which byte of the stream the record begins that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamError {
    pub at: u64,
    pub flaw: Flaw,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flaw {
            Flaw::NotAStream => write!(
                f,
                "byte {} does not begin a record: this is not a snapshot stream of Forebay, or it is damaged",
                self.at
            ),
            Flaw::Version(version) => {
                write!(
                    f,
                    "the stream has format version {version}, which this version of forebay does not know"
                )
            }
            Flaw::Checksum => {
                write!(f, "the record at byte {} of the stream is damaged or out of place", self.at)
            }
            Flaw::Malformed(what) => write!(f, "the record at byte {} of the stream has {what}", self.at),
            Flaw::Kind(kind) => write!(
                f,
                "the record at byte {} of the stream has blocks with a compression (kind {kind}) that this version of forebay does not know",
                self.at
            ),
            Flaw::Truncated => write!(f, "the stream is interrupted at byte {}, before its end", self.at),
        }
    }
}

/// Writes a stream.
#[derive(Debug, Default)]
pub struct Encoder {
    sum: Checksum,
    totals: Totals,
}

impl Encoder {
    /// Appends a record whose payload, of `len` bytes, is what `payload` writes.
    fn record(&mut self, out: &mut Vec<u8>, kind: u8, len: usize, payload: impl FnOnce(&mut Writer)) {
        let start = out.len();
        out.resize(start + RECORD_HEADER + len, 0);
        let record = &mut out[start..];
        let mut w = Writer::new(record);
        w.bytes(MAGIC).u8(kind).zeros(3).u32((RECORD_HEADER + len) as u32).zeros(4).u128(self.sum.0);
        payload(&mut w);
        assert_eq!(w.position(), RECORD_HEADER + len);
        self.sum = Checksum::of(record);
        record[SUM_AT..SUM_AT + 16].copy_from_slice(&self.sum.0.to_le_bytes());
    }

    pub fn header(&mut self, header: &Header, out: &mut Vec<u8>) {
        self.record(out, KIND_HEADER, HEADER_BYTES, |w| {
            w.u16(VERSION).u8(header.block_shift).zeros(5);
            w.u128(header.snapshot.0).u128(header.base.map_or(0, |base| base.0));
            w.u64(header.size).u64(header.created.0).u64(header.from);
            for text in [&header.volume, &header.name] {
                w.u16(text.len() as u16).text(text, NAME_BYTES);
            }
        });
    }

    /// Blocks from `first` on: the kind and the checksum of each, and what is stored of it. When whole, they are at most
    /// [`DATA_BYTES_MAX`] in all.
    pub fn write(&mut self, first: u64, blocks: &[(u8, Checksum, &[u8])], out: &mut Vec<u8>) {
        let len = 16 + blocks.iter().map(|(.., data)| BLOCK_BYTES + data.len()).sum::<usize>();
        self.record(out, KIND_WRITE, len, |w| {
            w.u64(first).u32(blocks.len() as u32).zeros(4);
            for (kind, sum, data) in blocks {
                w.u8(*kind).zeros(3).u32(data.len() as u32).u128(sum.0);
            }
            for (.., data) in blocks {
                w.bytes(data);
            }
        });
        self.totals.written += blocks.len() as u64;
    }

    pub fn clear(&mut self, first: u64, count: u64, out: &mut Vec<u8>) {
        self.record(out, KIND_CLEAR, CLEAR_BYTES, |w| {
            w.u64(first).u64(count);
        });
        self.totals.cleared += count;
    }

    /// The end of the stream of a snapshot in which so many blocks hold data.
    pub fn end(&mut self, mapped: u64, out: &mut Vec<u8>) {
        let Totals { written, cleared, .. } = self.totals;
        self.record(out, KIND_END, END_BYTES, |w| {
            w.u64(written).u64(cleared).u64(mapped);
        });
    }
}

/// Reads a stream.
#[derive(Debug, Default)]
pub struct Decoder {
    /// What has arrived of the next record.
    record: Vec<u8>,
    sum: Checksum,
    /// Where the next record begins.
    at: u64,
    block_shift: Option<u8>,
    /// The next record's blocks are not before this one.
    next: u64,
    totals: Totals,
    ended: bool,
}

impl Decoder {
    fn error(&self, flaw: Flaw) -> StreamError {
        StreamError { at: self.at, flaw }
    }

    /// The next record, once all of it is there; takes from `input` what belongs to it. After an error there are no more.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Record>, StreamError> {
        let mut wanted = RECORD_HEADER;
        loop {
            if self.record.len() >= RECORD_HEADER {
                wanted = self.length().map_err(|flaw| self.error(flaw))?;
            }
            if self.record.len() >= RECORD_HEADER && self.record.len() == wanted {
                break;
            }
            if input.is_empty() {
                return Ok(None);
            }
            if self.ended {
                return Err(self.error(Flaw::Malformed("come after the end")));
            }
            let here = input.len().min(wanted - self.record.len());
            self.record.extend_from_slice(&input[..here]);
            *input = &input[here..];
        }
        let record = self.whole().map_err(|flaw| self.error(flaw))?;
        self.at += self.record.len() as u64;
        self.record.clear();
        Ok(Some(record))
    }

    /// What is wrong when no more bytes come; nothing when that is the end.
    pub fn finish(&self) -> Result<(), StreamError> {
        match self.ended && self.record.is_empty() {
            true => Ok(()),
            false => Err(StreamError { at: self.at + self.record.len() as u64, flaw: Flaw::Truncated }),
        }
    }

    /// Of the record whose first bytes are there.
    fn length(&self) -> Result<usize, Flaw> {
        let cut = |_: Truncated| Flaw::NotAStream;
        let mut r = Reader::new(&self.record);
        let magic = r.bytes(4).map_err(cut)?;
        let (kind, zeros) = (r.u8().map_err(cut)?, r.bytes(3).map_err(cut)?);
        let (length, more) = (r.u32().map_err(cut)? as usize, r.u32().map_err(cut)?);
        if magic != MAGIC || zeros != [0; 3] || more != 0 {
            return Err(if self.at == 0 { Flaw::NotAStream } else { Flaw::Checksum });
        }
        let fits = match kind {
            // Of another version it may have another length.
            KIND_HEADER => (RECORD_HEADER + 2..=RECORD_BYTES_MAX).contains(&length),
            KIND_WRITE => (RECORD_HEADER + 16..=RECORD_BYTES_MAX).contains(&length),
            KIND_CLEAR => length == RECORD_HEADER + CLEAR_BYTES,
            KIND_END => length == RECORD_HEADER + END_BYTES,
            _ => false,
        };
        match fits {
            true => Ok(length),
            false => Err(Flaw::Malformed("an unknown kind or length")),
        }
    }

    fn whole(&mut self) -> Result<Record, Flaw> {
        let sum: [u8; 16] = self.record[SUM_AT..SUM_AT + 16].try_into().expect("16 bytes");
        let sum = Checksum(u128::from_le_bytes(sum));
        self.record[SUM_AT..SUM_AT + 16].copy_from_slice(&self.sum.0.to_le_bytes());
        if Checksum::of(&self.record) != sum {
            return Err(Flaw::Checksum);
        }
        self.sum = sum;
        let kind = self.record[4];
        match (kind, self.block_shift) {
            (KIND_HEADER, None) => self.header(),
            (KIND_HEADER, Some(_)) => Err(Flaw::Malformed("a second header")),
            (_, None) => Err(Flaw::Malformed("no header before it")),
            (KIND_WRITE, Some(shift)) => self.write(shift),
            (KIND_CLEAR, Some(shift)) => self.clear(shift),
            (_, Some(_)) => self.end(),
        }
    }

    fn payload(&self) -> Reader<'_> {
        Reader::new(&self.record[RECORD_HEADER..])
    }

    fn header(&mut self) -> Result<Record, Flaw> {
        let cut = |_: Truncated| Flaw::Malformed("a header that is too short");
        let mut r = self.payload();
        let version = r.u16().map_err(cut)?;
        if version != VERSION {
            return Err(Flaw::Version(version));
        }
        let (block_shift, _) = (r.u8().map_err(cut)?, r.bytes(5).map_err(cut)?);
        let (snapshot, base) = (Id(r.u128().map_err(cut)?), Id(r.u128().map_err(cut)?));
        let (size, created) = (r.u64().map_err(cut)?, WallTime(r.u64().map_err(cut)?));
        let from = r.u64().map_err(cut)?;
        let mut names = [String::new(), String::new()];
        for name in &mut names {
            r.u16().map_err(cut)?;
            *name = r.text(NAME_BYTES).map_err(cut)?;
        }
        let [volume, name] = names;
        if r.remaining() != 0 {
            return Err(Flaw::Malformed("a header that is too long"));
        }
        if !(12..=17).contains(&block_shift) {
            return Err(Flaw::Malformed("an invalid block size"));
        }
        if size == 0 || size > SIZE_MAX || !size.is_multiple_of(1 << block_shift) {
            return Err(Flaw::Malformed("an invalid size"));
        }
        if snapshot == Id(0) || from > SIZE_MAX >> block_shift {
            return Err(Flaw::Malformed("an invalid header"));
        }
        (self.block_shift, self.next) = (Some(block_shift), from);
        let base = Some(base).filter(|base| *base != Id(0));
        Ok(Record::Header(Header { snapshot, base, block_shift, size, created, from, volume, name }))
    }

    /// Takes note of the blocks that a record is about.
    fn pass(&mut self, first: u64, count: u64, shift: u8) -> Result<(), Flaw> {
        if first < self.next || count == 0 {
            return Err(Flaw::Malformed("blocks out of order"));
        }
        match first.checked_add(count).filter(|end| *end <= SIZE_MAX >> shift) {
            Some(end) => self.next = end,
            None => return Err(Flaw::Malformed("blocks beyond the largest volume")),
        }
        Ok(())
    }

    fn write(&mut self, shift: u8) -> Result<Record, Flaw> {
        let cut = |_: Truncated| Flaw::Malformed("truncated blocks");
        let block_bytes = 1usize << shift;
        let mut r = self.payload();
        let (first, count, _) = (r.u64().map_err(cut)?, r.u32().map_err(cut)?, r.u32().map_err(cut)?);
        let mut table = Reader::new(r.bytes((count as usize).saturating_mul(BLOCK_BYTES)).map_err(cut)?);
        if (count as usize).saturating_mul(block_bytes) > DATA_BYTES_MAX {
            return Err(Flaw::Malformed("too many blocks"));
        }
        let (mut data, mut forms) = (Vec::with_capacity(r.remaining()), Vec::with_capacity(count as usize));
        for _ in 0..count {
            let (kind, _) = (table.u8().map_err(cut)?, table.bytes(3).map_err(cut)?);
            let (len, sum) = (table.u32().map_err(cut)? as usize, Checksum(table.u128().map_err(cut)?));
            if kind > KIND_OF_BLOCK_MAX {
                return Err(Flaw::Kind(kind));
            }
            let fits = if kind == 0 { len == block_bytes } else { len < block_bytes && len % 4096 == 0 };
            if !fits || len == 0 {
                return Err(Flaw::Malformed("a block of the wrong size"));
            }
            let block = r.bytes(len).map_err(cut)?;
            if Checksum::of(block) != sum {
                return Err(Flaw::Checksum);
            }
            data.extend_from_slice(block);
            forms.push((kind, len));
        }
        if r.remaining() != 0 {
            return Err(Flaw::Malformed("bytes that belong to no block"));
        }
        self.pass(first, count.into(), shift)?;
        self.totals.written += u64::from(count);
        Ok(Record::Write(Write { first, forms, data }))
    }

    fn clear(&mut self, shift: u8) -> Result<Record, Flaw> {
        let cut = |_: Truncated| Flaw::Malformed("a truncated range");
        let mut r = self.payload();
        let (first, count) = (r.u64().map_err(cut)?, r.u64().map_err(cut)?);
        self.pass(first, count, shift)?;
        self.totals.cleared += count;
        Ok(Record::Clear { first, count })
    }

    fn end(&mut self) -> Result<Record, Flaw> {
        let cut = |_: Truncated| Flaw::Malformed("a truncated end");
        let mut r = self.payload();
        let (written, cleared) = (r.u64().map_err(cut)?, r.u64().map_err(cut)?);
        let totals = Totals { written, cleared, mapped: r.u64().map_err(cut)? };
        if (written, cleared) != (self.totals.written, self.totals.cleared) {
            return Err(Flaw::Malformed("totals that do not match the stream"));
        }
        self.ended = true;
        Ok(Record::End(totals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn header() -> Header {
        let (volume, name) = ("db/a".into(), "monday".into());
        let (snapshot, base) = (Id(0x51), Some(Id(0x52)));
        Header {
            snapshot,
            base,
            block_shift: 12,
            size: 1 << 20,
            created: WallTime(0x53),
            from: 2,
            volume,
            name,
        }
    }

    fn stream() -> Vec<u8> {
        let (mut encoder, mut out) = (Encoder::default(), Vec::new());
        let blocks = [vec![7u8; BLOCK], vec![8; BLOCK]];
        encoder.header(&header(), &mut out);
        encoder.clear(2, 3, &mut out);
        let blocks: Vec<_> = blocks.iter().map(|block| (0, Checksum::of(block), &block[..])).collect();
        encoder.write(7, &blocks, &mut out);
        encoder.clear(9, 100, &mut out);
        encoder.end(2, &mut out);
        out
    }

    fn decode(bytes: &[u8], piece: usize) -> Result<Vec<Record>, StreamError> {
        let (mut decoder, mut records) = (Decoder::default(), Vec::new());
        for mut input in bytes.chunks(piece) {
            while let Some(record) = decoder.next(&mut input)? {
                records.push(record);
            }
            assert!(input.is_empty() && decoder.record.capacity() <= 2 * RECORD_BYTES_MAX);
        }
        decoder.finish().map(|()| records)
    }

    #[test]
    fn a_stream_is_read_as_it_was_written_in_pieces_of_any_size() {
        let data = [vec![7u8; BLOCK], vec![8; BLOCK]].concat();
        let wanted = vec![
            Record::Header(header()),
            Record::Clear { first: 2, count: 3 },
            Record::Write(Write { first: 7, forms: vec![(0, BLOCK); 2], data }),
            Record::Clear { first: 9, count: 100 },
            Record::End(Totals { written: 2, cleared: 103, mapped: 2 }),
        ];
        for piece in [1, 31, 33, 1000, 1 << 20] {
            assert_eq!(decode(&stream(), piece).as_ref(), Ok(&wanted));
        }
    }

    #[test]
    fn whatever_is_changed_or_cut_is_noticed() {
        let stream = stream();
        for at in 0..stream.len() {
            let mut bytes = stream.clone();
            bytes[at] ^= 1 << (at % 8);
            let error = decode(&bytes, bytes.len()).expect_err("a changed stream");
            // A length that is too long now takes the rest for its record.
            assert!(error.at <= at as u64 || error.flaw == Flaw::Truncated, "byte {at}: {error}");
            assert_eq!(decode(&stream[..at], 4096).err().map(|error| (error.at, error.flaw)), {
                Some((at as u64, Flaw::Truncated))
            });
        }
        let more = [&stream[..], &[0]].concat();
        assert_eq!(decode(&more, more.len()).err().map(|error| error.at), Some(stream.len() as u64));
        let starts = |kind: u8| {
            let is_start = |at: &usize| stream[*at..].starts_with(MAGIC) && stream[*at + 4] == kind;
            (0..stream.len() - 4).filter(is_start).collect::<Vec<_>>()
        };
        let (write, clears) = (starts(KIND_WRITE)[0], starts(KIND_CLEAR));
        let without = [&stream[..write], &stream[clears[1]..]].concat();
        let twice = [&stream[..write], &stream[clears[0]..]].concat();
        for spliced in [without, twice] {
            assert_eq!(decode(&spliced, 512).err().map(|error| error.flaw), Some(Flaw::Checksum));
        }
    }

    /// A record with a right checksum is not yet one that a sender writes.
    #[test]
    fn what_no_sender_writes_is_refused() {
        let flaw = |records: &dyn Fn(&mut Encoder, &mut Vec<u8>)| {
            let (mut encoder, mut out) = (Encoder::default(), Vec::new());
            records(&mut encoder, &mut out);
            decode(&out, 999).err().map(|error| error.flaw)
        };
        let starts = |change: fn(&mut Header)| {
            let mut header = header();
            change(&mut header);
            flaw(&|encoder, out| encoder.header(&header, out))
        };
        let malformed = |flaw: Option<Flaw>| matches!(flaw, Some(Flaw::Malformed(_)));
        assert_eq!(starts(|_| ()), Some(Flaw::Truncated));
        assert!(malformed(starts(|header| header.block_shift = 11)));
        assert!(malformed(starts(|header| header.size = 4097)));
        assert!(malformed(starts(|header| header.size = 1 << 60)));
        assert!(malformed(starts(|header| header.from = u64::MAX)));
        assert!(malformed(flaw(&|encoder, out| encoder.clear(0, 1, out))));
        let block = vec![1; 8192];
        let after = |records: &dyn Fn(&mut Encoder, &mut Vec<u8>)| {
            flaw(&|encoder, out| {
                encoder.header(&header(), out);
                records(encoder, out);
            })
        };
        assert!(malformed(after(&|encoder, out| encoder.clear(1, 1, out))));
        assert!(malformed(after(&|encoder, out| encoder.clear(2, 0, out))));
        assert!(malformed(after(&|encoder, out| encoder.clear(u64::MAX, 2, out))));
        assert!(malformed(after(&|encoder, out| encoder.header(&header(), out))));
        let sum = Checksum::of(&block);
        assert!(malformed(after(&|encoder, out| encoder.write(2, &[(0, sum, &block)], out))));
        let wrong = |encoder: &mut Encoder, out: &mut Vec<u8>| {
            encoder.write(2, &[(0, Checksum(1), &block[..BLOCK])], out);
        };
        assert_eq!(after(&wrong), Some(Flaw::Checksum));
        let compressed = |encoder: &mut Encoder, out: &mut Vec<u8>| {
            encoder.record(out, KIND_WRITE, 16 + BLOCK_BYTES, |w| {
                w.u64(2).u32(1).zeros(4).u8(9).zeros(BLOCK_BYTES - 1);
            });
        };
        assert_eq!(after(&compressed), Some(Flaw::Kind(9)));
        let newer = |encoder: &mut Encoder, out: &mut Vec<u8>| {
            encoder.record(out, KIND_HEADER, 3, |w| {
                w.u16(2).u8(0);
            });
        };
        assert_eq!(flaw(&newer), Some(Flaw::Version(2)));
    }

    /// `docs/development/decisions/0012-streams.md` says where each field is.
    #[test]
    fn the_tables_of_the_page_are_right() {
        const PAGE: &str = include_str!("../../../../docs/development/decisions/0012-streams.md");
        let stream = stream();
        let record = |kind: u8| {
            let mut at = 0;
            while stream[at + 4] != kind {
                at += u32::from_le_bytes(stream[at + 8..at + 12].try_into().expect("4 bytes")) as usize;
            }
            &stream[at..]
        };
        let (data, sum) = (vec![7; BLOCK], Checksum::of(&vec![7; BLOCK]).0.to_le_bytes());
        let own_sum = record(KIND_HEADER)[SUM_AT..SUM_AT + 16].to_vec();
        type Fields<'a> = &'a [(&'a str, &'a [u8])];
        let tables: &[(&str, u8, Fields)] = &[
            (
                "record",
                KIND_HEADER,
                &[("magic", MAGIC), ("kind", &[1]), ("bytes", &[244, 1]), ("checksum", &own_sum)],
            ),
            (
                "header",
                KIND_HEADER,
                &[
                    ("version", &[1]),
                    ("log2", &[12]),
                    ("snapshot", &[0x51]),
                    ("base", &[0x52]),
                    ("size", &[0, 0, 16]),
                    ("created", &[0x53]),
                    ("from", &[2]),
                    ("bytes of the volume", &[4]),
                    ("the volume", b"db/a"),
                    ("bytes of the snapshot", &[6]),
                    ("the snapshot's name", b"monday"),
                ],
            ),
            (
                "write",
                KIND_WRITE,
                &[("first", &[7]), ("count", &[2]), ("kind", &[0]), ("stored", &[0, 16]), ("checksum", &sum)],
            ),
            ("clear", KIND_CLEAR, &[("first", &[2]), ("count", &[3])]),
            ("end", KIND_END, &[("written", &[2]), ("cleared", &[103]), ("mapped", &[2])]),
        ];
        assert_eq!(record(KIND_WRITE)[RECORD_HEADER + 16 + 2 * BLOCK_BYTES..][..BLOCK], data);
        for (table, kind, fields) in tables {
            let rows = PAGE.lines().skip_while(|line| *line != format!("<!-- table: {table} -->")).skip(3);
            let rows: Vec<_> = rows.take_while(|line| line.starts_with('|')).collect();
            assert_eq!(rows.len(), fields.len(), "fields of {table}");
            for (row, (name, value)) in rows.iter().zip(*fields) {
                let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
                let (at, len): (usize, usize) =
                    (cells[0].parse().expect("a number"), cells[1].parse().expect("one"));
                assert!(cells[2].starts_with(name), "{table}: {row}");
                let mut value = value.to_vec();
                value.resize(len, 0);
                assert_eq!(&record(*kind)[at..at + len], value, "{table}: {row}");
            }
        }
    }
}
