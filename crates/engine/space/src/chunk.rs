//! One chunk: its slots, its two bitmaps, its record and its line in the chunk table.
//!
//! `busy` is what the allocator sees: everything that must not be written over now. `stored` is what the last
//! (or the running) checkpoint says is in use; it is what goes to disk. Between checkpoints `busy` is a
//! superset of `stored`: it also has what was allocated since, and still has what was freed since.
//!
//! The record is read when it is needed which units are in use, and forgotten when memory is short; how many are in use the
//! chunk table says.
//!
//! ```text
//! chunk record: 4 KiB multiple, in alternate 0 or 1 beside the chunk's first slot on every disk
//!   0 magic "FBCHUNK\1"   8 checksum 16   24 pool id 16   40 generation 8   48 chunk 4   52 units 4   56 zero … 256 bitmap
//! chunk table entry, 192 bytes
//!   0 chunk 4   4 kind 1   5 class 1   6 group 2   8 units 4   12 order 4   16 record checksum 16
//!   32 alternate 1   33 slots 1   34 zero 2   36 free 4   40 places 4   44 lines 4   48 changed 8   56 zero 16
//!   72 (disk 2, slot 4) × 19 … 186 zero
//! ```

use crate::address::{CHUNK_UNITS_MAX, ChunkId, NODE_UNITS};
use crate::bits::Bits;
use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_base::{Checksum, Id};
use forebay_device::{SlotRef, record_bytes};
use std::cell::Cell;

/// What a chunk holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChunkKind {
    /// Data blocks of 2^class allocation units.
    Data { class: u8 },
    /// Tree nodes and tables.
    Node,
    /// A part of the shard's log ring.
    Log,
}

impl ChunkKind {
    /// Where blocks lie that were made smaller, whatever their size.
    pub const PACKED: ChunkKind = ChunkKind::Data { class: 0 };

    /// Units of what is allocated in such a chunk, which begins at a multiple of them.
    pub fn place_units(self) -> u32 {
        match self {
            ChunkKind::Data { class } => 1 << class,
            ChunkKind::Node | ChunkKind::Log => NODE_UNITS,
        }
    }
}

/// The line of a chunk in its shard's chunk table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkEntry {
    pub id: ChunkId,
    pub kind: ChunkKind,
    pub group: u16,
    pub units: u32,
    /// Position in the log ring, for log chunks.
    pub order: u32,
    /// Checksum of the current record, and which alternate it is in. Zero for log chunks, which have no record.
    pub record_sum: Checksum,
    pub alternate: u8,
    /// Units that the record says are free, how many places of the kind ([`ChunkKind::place_units`]) are in them, and of a chunk with parity how many
    /// whole lines.
    pub free: u32,
    pub places: u32,
    pub lines: u32,
    /// The checkpoint that wrote the record, the last before which something in the chunk changed.
    pub changed: u64,
    pub slots: Vec<SlotRef>,
}

/// Bytes of an encoded [`ChunkEntry`].
pub const CHUNK_ENTRY_BYTES: usize = 192;
const SLOTS_AT: usize = 72;
const SLOTS_MAX: usize = 19; // 16 data + 3 parity
const _: () = assert!(SLOTS_AT + SLOTS_MAX * 6 <= CHUNK_ENTRY_BYTES);

impl ChunkEntry {
    /// Of a chunk in which nothing is in use, and that has no record.
    pub fn fresh(id: ChunkId, kind: ChunkKind, group: u16, units: u32, slots: Vec<SlotRef>) -> ChunkEntry {
        let (free, places) = (units, units / kind.place_units());
        let (order, record_sum, alternate, lines, changed) = (0, Checksum(0), 0, 0, 0);
        ChunkEntry {
            id,
            kind,
            group,
            units,
            order,
            record_sum,
            alternate,
            free,
            places,
            lines,
            changed,
            slots,
        }
    }

    /// What of the chunk is free by this bitmap, where its lines have so many units, or 0: units, places and lines.
    pub fn count_free(&self, stored: &Bits, line: u32) -> (u32, u32, u32) {
        let of_line = |nth: u32| stored.is_free(nth * line, line);
        let lines = (0..self.units.checked_div(line).unwrap_or(0)).filter(|nth| of_line(*nth)).count();
        (stored.zeros(), stored.places(self.kind.place_units()), lines as u32)
    }

    pub(crate) fn note_free(&mut self, stored: &Bits, line: u32) {
        (self.free, self.places, self.lines) = self.count_free(stored, line);
    }

    pub fn encode(&self, w: &mut Writer) {
        let (kind, class) = match self.kind {
            ChunkKind::Data { class } => (0, class),
            ChunkKind::Node => (1, 0),
            ChunkKind::Log => (2, 0),
        };
        let start = w.position();
        w.u32(self.id.0).u8(kind).u8(class).u16(self.group).u32(self.units).u32(self.order);
        w.u128(self.record_sum.0).u8(self.alternate).u8(self.slots.len() as u8).u16(0);
        w.u32(self.free).u32(self.places).u32(self.lines).u64(self.changed);
        w.zeros(SLOTS_AT - (w.position() - start));
        for slot in &self.slots {
            w.u16(slot.disk).u32(slot.slot);
        }
        w.zeros(CHUNK_ENTRY_BYTES - (w.position() - start));
    }

    /// Nothing when a field is impossible.
    pub fn decode(r: &mut Reader) -> Result<Option<ChunkEntry>, Truncated> {
        let mut r = Reader::new(r.bytes(CHUNK_ENTRY_BYTES)?);
        let (id, kind, class, group, units, order) =
            (r.u32()?, r.u8()?, r.u8()?, r.u16()?, r.u32()?, r.u32()?);
        let (sum, alternate, slots, _) = (r.u128()?, r.u8()?, r.u8()? as usize, r.u16()?);
        let (free, places, lines, changed, _) = (r.u32()?, r.u32()?, r.u32()?, r.u64()?, r.bytes(16)?);
        let kind = match kind {
            0 if class <= 5 => ChunkKind::Data { class },
            1 => ChunkKind::Node,
            2 => ChunkKind::Log,
            _ => return Ok(None),
        };
        if id == 0
            || id > ChunkId::MAX.0
            || slots == 0
            || slots > SLOTS_MAX
            || alternate > 1
            || units == 0
            || units > CHUNK_UNITS_MAX
            || free > units
            || places > free / kind.place_units()
            || lines > free
        {
            return Ok(None);
        }
        let slots =
            (0..slots).map(|_| Ok(SlotRef { disk: r.u16()?, slot: r.u32()? })).collect::<Result<_, _>>()?;
        Ok(Some(ChunkEntry {
            id: ChunkId(id),
            kind,
            group,
            units,
            order,
            record_sum: Checksum(sum),
            alternate,
            free,
            places,
            lines,
            changed,
            slots,
        }))
    }
}

/// A chunk that a shard owns.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub entry: ChunkEntry,
    pub busy: Bits,
    pub stored: Bits,
    /// What has been written: in use, and not merely promised. Kept only where there are lines.
    pub written: Bits,
    /// Whether the bitmaps may not have the same memory.
    pub(crate) is_apart: bool,
    /// Whether they count among those that may be forgotten.
    pub(crate) is_kept: bool,
    /// Whether `stored` differs from the record on disk.
    pub dirty: bool,
    /// The record was lost: everything counts as in use, and frees may find what they free still marked.
    pub unknown: bool,
    /// Whether the grant is in the log.
    pub logged: bool,
    /// Whether it was before the running checkpoint's cut: only then may the checkpoint drop the chunk.
    pub settled: bool,
    /// Of each sort of search, the least that found no place here since something was freed.
    pub(crate) lacks: Lacks,
}

/// By the sort of search, units.
pub(crate) type Lacks = [Cell<u32>; 9];

/// Nothing was looked for.
pub(crate) fn lacks_nothing() -> Lacks {
    std::array::from_fn(|_| Cell::new(u32::MAX))
}

impl Chunk {
    /// A chunk that was just granted.
    pub fn fresh(entry: ChunkEntry) -> Chunk {
        let bits = Bits::new(entry.units);
        Chunk::with(entry, bits)
    }

    pub(crate) fn has_lines(&self) -> bool {
        self.written.len() == self.busy.len()
    }

    /// Where nothing is on its way, all bitmaps say the same, and one has the memory. Of a large pool that is nearly all chunks. Whether it is so.
    pub(crate) fn share_bitmaps(&mut self) -> bool {
        self.stored.share(&self.busy);
        self.written.share(&self.busy);
        self.stored.shares(&self.busy) && (!self.has_lines() || self.written.shares(&self.busy))
    }

    /// A chunk of the last checkpoint, its record not read.
    pub fn stored(entry: ChunkEntry) -> Chunk {
        let bits = Bits::unread(entry.units, entry.units - entry.free);
        Chunk { dirty: false, is_apart: false, logged: true, settled: true, ..Chunk::with(entry, bits) }
    }

    fn with(entry: ChunkEntry, bits: Bits) -> Chunk {
        let (busy, written, stored) = (bits.clone(), bits.clone(), bits);
        let dirty = entry.kind != ChunkKind::Log;
        let (is_apart, is_kept, unknown, logged, settled) = (true, false, false, false, false);
        Chunk {
            entry,
            busy,
            written,
            stored,
            dirty,
            is_apart,
            is_kept,
            unknown,
            logged,
            settled,
            lacks: lacks_nothing(),
        }
    }

    /// Whether it is known which units are in use.
    pub fn is_read(&self) -> bool {
        self.busy.is_read()
    }

    /// Which units the record says are in use.
    pub(crate) fn set_map(&mut self, stored: &Bits) {
        if self.has_lines() {
            self.written = stored.clone();
        }
        (self.busy, self.stored) = (stored.clone(), stored.clone());
    }

    /// The record cannot be read: all counts as in use, and nothing is allocated but what is freed later.
    pub(crate) fn lose_map(&mut self) {
        let all = Bits::unread(self.entry.units, self.entry.units);
        self.set_map(&all);
        (self.unknown, self.dirty) = (true, true);
    }

    /// Whether the record says all that is known of the chunk.
    pub(crate) fn may_forget(&self) -> bool {
        // Nodes are promised to writes before it is said which.
        !self.is_apart && !self.dirty && !self.unknown && self.entry.kind != ChunkKind::Node
    }

    pub(crate) fn forget_map(&mut self) {
        debug_assert!(self.entry.free == self.busy.zeros(), "the entry says something else than the record");
        self.set_map(&Bits::unread(self.entry.units, self.busy.ones()));
    }

    /// Places of its kind that are free.
    pub fn places(&self) -> u32 {
        if self.is_read() { self.busy.places(self.entry.kind.place_units()) } else { self.entry.places }
    }
}

const MAGIC: &[u8; 8] = b"FBCHUNK\x01";
const CHECKSUM_AT: usize = 8;
const BITMAP_AT: usize = 256;

/// A chunk record; its checksum goes into the chunk table.
pub fn encode_record(pool: Id, generation: u64, id: ChunkId, stored: &Bits) -> (Vec<u8>, Checksum) {
    let mut bytes = vec![0; record_bytes(u64::from(stored.len())) as usize];
    let bitmap = stored.to_bytes();
    let mut w = Writer::new(&mut bytes);
    w.bytes(MAGIC).zeros(16).u128(pool.0).u64(generation).u32(id.0).u32(stored.len());
    w.zeros(BITMAP_AT - w.position()).bytes(&bitmap);
    let sum = Checksum::of(&bytes);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 16].copy_from_slice(&sum.0.to_le_bytes());
    (bytes, sum)
}

/// The bitmap of a record and the checkpoint that wrote it, when it is the one that `entry` names.
pub fn decode_record(bytes: &[u8], pool: Id, entry: &ChunkEntry) -> Option<(Bits, u64)> {
    // What was read may be longer: the place on disk is as long as the group's longest record.
    let bytes = bytes.get(..record_bytes(u64::from(entry.units)) as usize)?;
    if &bytes[..8] != MAGIC {
        return None;
    }
    let mut r = Reader::new(&bytes[8..]);
    let sum = r.u128().ok()?;
    let (own_pool, generation, id, units) = (Id(r.u128().ok()?), r.u64().ok()?, r.u32().ok()?, r.u32().ok()?);
    if own_pool != pool || id != entry.id.0 || units != entry.units || sum != entry.record_sum.0 {
        return None;
    }
    if Checksum::of_with_hole(bytes, CHECKSUM_AT).0 != sum {
        return None;
    }
    Some((Bits::from_bytes(units, &bytes[BITMAP_AT..])?, generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_and_record_round_trip() {
        let mut stored = Bits::new(100);
        stored.set(3, 50);
        let (record, sum) = encode_record(Id(5), 9, ChunkId(7), &stored);
        let (kind, slots) = (ChunkKind::Data { class: 3 }, vec![SlotRef { disk: 2, slot: 70000 }; 19]);
        let fresh = ChunkEntry::fresh(ChunkId(7), kind, 1, 100, slots);
        let mut entry = ChunkEntry { record_sum: sum, alternate: 1, changed: 9, ..fresh };
        entry.note_free(&stored, 10);
        assert_eq!((entry.free, entry.places, entry.lines), (50, 5, 4));
        let mut bytes = [0; CHUNK_ENTRY_BYTES];
        entry.encode(&mut Writer::new(&mut bytes));
        assert_eq!(ChunkEntry::decode(&mut Reader::new(&bytes)), Ok(Some(entry.clone())));
        assert_eq!(decode_record(&record, Id(5), &entry), Some((stored.clone(), 9)));
        assert_eq!(decode_record(&record, Id(6), &entry), None);
        stored.clear(3, 1);
        let (older, _) = encode_record(Id(5), 8, ChunkId(7), &stored);
        assert_eq!(decode_record(&older, Id(5), &entry), None, "a whole record that is not the one named");
        for (at, more) in [(36, 101), (40, 7)] {
            let mut impossible = bytes;
            impossible[at] = more;
            assert_eq!(
                ChunkEntry::decode(&mut Reader::new(&impossible)),
                Ok(None),
                "more is free than can be"
            );
        }
    }
}
