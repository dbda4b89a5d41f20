//! What the pool itself writes: the superblock's payload and the records of the catalogue.
//!
//! ```text
//! superblock payload: 128 bytes, then 288 per shard
//!   0 version 2   2 shards 2   4 flags 4 (bit 0: exported)   8 incarnation 8   16 epoch 8   24 label generation 8
//!   32 last whole scrub 8   40 seconds between scrubs 4   44 zero 4
//!   48 host that has it, or had it last 16   64 that host's name 64
//!   shard: 0 catalogue index 32   32 chunk table index 32   64 entry of the chunk that holds the latter 160
//!          224 tail position 8   232 tail sequence 8   240 tail link 16   256 cut sequence 8   264 sealed sequence 8
//!          272 scrub: dataset number plus one 4, leaf 8   284 zero 4
//!
//! dataset record: 512 bytes
//!   0 number 4   4 kind 1 (1 volume, 2 attributes)   5 state 1   6 sync 1   7 block shift 1   8 id 16   24 size 8   32 created 8
//!   40 root 32   72 mapped blocks 8   80 height 1   81 zero 15   96 name length 2   98 name 200   298 zero …
//! ```
//!
//! The zero bytes of a dataset record are reserved: project, service level, deadlists, further range roots.

use crate::scrub::ScrubPosition;
use crate::spec::{Host, ScrubSchedule, SyncPolicy};
use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_base::{Checksum, Id, WallTime};
use forebay_device::SUPERBLOCK_PAYLOAD_MAX;
use forebay_log::Chain;
use forebay_space::{CHUNK_ENTRY_BYTES, ChunkEntry, Ptr};

/// Shards a pool can have: what fits into a superblock.
pub(crate) const SHARDS_MAX: usize = 32;
const VERSION: u16 = 1;
const HEADER: usize = 128;
const HOST_NAME_BYTES: usize = 64;
const SHARD_BYTES: usize = 288;
const _: () = assert!(HEADER + SHARDS_MAX * SHARD_BYTES <= SUPERBLOCK_PAYLOAD_MAX);
const FLAG_EXPORTED: u32 = 1;

/// Where one shard's state is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShardRoot {
    pub catalog: Ptr,
    pub table: Ptr,
    /// The chunk that `table` is in: everything else is found through the table.
    pub table_chunk: ChunkEntry,
    /// The oldest frame that an import must read.
    pub tail: Chain,
    /// Frames before this sequence are in the trees, but for data that still lives in the log alone.
    pub cut: u64,
    /// Frames before this sequence were accepted by an earlier import, whatever their incarnation.
    pub sealed: u64,
    /// How far a scrub has come that is under way.
    pub scrub: Option<ScrubPosition>,
}

/// A checkpoint of the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Super {
    /// Grows with every import.
    pub incarnation: u64,
    pub epoch: u64,
    pub label_generation: u64,
    pub exported: bool,
    pub scrubs: ScrubSchedule,
    /// Who has the pool, or had it last.
    pub host: Host,
    pub shards: Vec<ShardRoot>,
}

impl Super {
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.shards.len() <= SHARDS_MAX);
        let mut bytes = vec![0; HEADER + self.shards.len() * SHARD_BYTES];
        let mut w = Writer::new(&mut bytes);
        w.u16(VERSION).u16(self.shards.len() as u16).u32(u32::from(self.exported) * FLAG_EXPORTED);
        w.u64(self.incarnation).u64(self.epoch).u64(self.label_generation);
        w.u64(self.scrubs.last.0).u32(self.scrubs.every_seconds).u32(0);
        let name = &self.host.name[..self.host.name.floor_char_boundary(HOST_NAME_BYTES)];
        w.u128(self.host.id.0).bytes(name.as_bytes()).zeros(HOST_NAME_BYTES - name.len());
        for shard in &self.shards {
            let start = w.position();
            shard.catalog.encode(&mut w);
            shard.table.encode(&mut w);
            shard.table_chunk.encode(&mut w);
            w.u64(shard.tail.position).u64(shard.tail.sequence).u128(shard.tail.previous.0);
            w.u64(shard.cut).u64(shard.sealed);
            let (number, leaf) = shard.scrub.map_or((0, 0), |(number, leaf)| (number + 1, leaf));
            w.u32(number).u64(leaf);
            w.zeros(SHARD_BYTES - (w.position() - start));
        }
        bytes
    }

    /// Nothing when the payload is impossible (its checksum was right: a newer version, or our bug).
    pub fn decode(bytes: &[u8]) -> Result<Option<Super>, Truncated> {
        let mut r = Reader::new(bytes);
        let (version, shards, flags) = (r.u16()?, usize::from(r.u16()?), r.u32()?);
        let (incarnation, epoch, label_generation) = (r.u64()?, r.u64()?, r.u64()?);
        let (last, every_seconds, _) = (WallTime(r.u64()?), r.u32()?, r.u32()?);
        let (id, name) = (Id(r.u128()?), r.bytes(HOST_NAME_BYTES)?);
        let host = Host { id, name: String::from_utf8_lossy(name).trim_end_matches('\0').to_string() };
        if version != VERSION || shards == 0 || shards > SHARDS_MAX {
            return Ok(None);
        }
        let mut roots = Vec::with_capacity(shards);
        for _ in 0..shards {
            let mut r = Reader::new(r.bytes(SHARD_BYTES)?);
            let (catalog, table) = (Ptr::decode(&mut r)?, Ptr::decode(&mut r)?);
            let Some(table_chunk) = ChunkEntry::decode(&mut r)? else { return Ok(None) };
            let tail = Chain { position: r.u64()?, sequence: r.u64()?, previous: Checksum(r.u128()?) };
            let (cut, sealed) = (r.u64()?, r.u64()?);
            let (number, leaf) = (r.u32()?, r.u64()?);
            let scrub = number.checked_sub(1).map(|number| (number, leaf));
            roots.push(ShardRoot { catalog, table, table_chunk, tail, cut, sealed, scrub });
        }
        let exported = flags & FLAG_EXPORTED != 0;
        let scrubs = ScrubSchedule { last, every_seconds };
        Ok(Some(Super { incarnation, epoch, label_generation, exported, scrubs, host, shards: roots }))
    }
}

const _: () = assert!(64 + CHUNK_ENTRY_BYTES == 224);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatasetState {
    Live,
    /// Being emptied in the background; gone for everyone else.
    Deleting,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatasetKind {
    Volume,
    /// The pool's own: see [`crate::attributes`].
    Attributes,
}

/// A dataset's line in the catalogue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DatasetRecord {
    /// Number within the shard, as log records use it.
    pub number: u32,
    pub kind: DatasetKind,
    pub state: DatasetState,
    pub sync: SyncPolicy,
    pub block_shift: u8,
    pub id: Id,
    pub size: u64,
    pub created: WallTime,
    pub root: Ptr,
    pub mapped: u64,
    pub height: u8,
    pub name: String,
}

pub(crate) const DATASET_BYTES: usize = 512;
/// Longest volume name in bytes.
pub(crate) const NAME_MAX: usize = 200;

impl DatasetRecord {
    pub fn blocks(&self) -> u64 {
        self.size >> self.block_shift
    }

    pub fn encode(&self) -> [u8; DATASET_BYTES] {
        let mut bytes = [0; DATASET_BYTES];
        let mut w = Writer::new(&mut bytes);
        let sync = match self.sync {
            SyncPolicy::Always => 0,
            SyncPolicy::Standard => 1,
            SyncPolicy::Disabled => 2,
        };
        let kind = match self.kind {
            DatasetKind::Volume => 1,
            DatasetKind::Attributes => 2,
        };
        w.u32(self.number)
            .u8(kind)
            .u8(u8::from(self.state == DatasetState::Deleting))
            .u8(sync)
            .u8(self.block_shift);
        w.u128(self.id.0).u64(self.size).u64(self.created.0);
        self.root.encode(&mut w);
        w.u64(self.mapped).u8(self.height).zeros(15);
        w.u16(self.name.len() as u16).text(&self.name, NAME_MAX);
        bytes
    }

    /// Nothing when a field is impossible or the place is unused.
    pub fn decode(bytes: &[u8]) -> Result<Option<DatasetRecord>, Truncated> {
        let mut r = Reader::new(bytes);
        let (number, kind, state, sync, block_shift) = (r.u32()?, r.u8()?, r.u8()?, r.u8()?, r.u8()?);
        let (id, size, created) = (Id(r.u128()?), r.u64()?, WallTime(r.u64()?));
        let root = Ptr::decode(&mut r)?;
        let (mapped, height) = (r.u64()?, r.u8()?);
        r.bytes(15)?;
        let (_, name) = (r.u16()?, r.text(NAME_MAX)?);
        let state = if state == 0 { DatasetState::Live } else { DatasetState::Deleting };
        let sync = match sync {
            0 => SyncPolicy::Always,
            1 => SyncPolicy::Standard,
            2 => SyncPolicy::Disabled,
            _ => return Ok(None),
        };
        let kind = match kind {
            1 => DatasetKind::Volume,
            2 => DatasetKind::Attributes,
            _ => return Ok(None),
        };
        let sane = (12..=17).contains(&block_shift) && height <= 4 && size <= 64 << 40;
        let record = DatasetRecord {
            number,
            kind,
            state,
            sync,
            block_shift,
            id,
            size,
            created,
            root,
            mapped,
            height,
            name,
        };
        Ok(sane.then_some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_device::SlotRef;
    use forebay_space::{Addr, ChunkId, ChunkKind};

    #[test]
    fn superblock_and_dataset_round_trip() {
        let ptr = Ptr::new(Addr::new(ChunkId(3), 4), 16384, 1, Checksum(9));
        let slots = vec![SlotRef { disk: 1, slot: 2 }; 3];
        let (id, kind, record_sum) = (ChunkId(3), ChunkKind::Node, Checksum(7));
        let table_chunk =
            ChunkEntry { id, kind, group: 0, units: 16, order: 0, record_sum, alternate: 1, slots };
        let tail = Chain { position: 4096, sequence: 8, previous: Checksum(1) };
        let root = ShardRoot {
            catalog: Ptr::HOLE,
            table: ptr,
            table_chunk,
            tail,
            cut: 10,
            sealed: 9,
            scrub: Some((4, 5)),
        };
        let pool = Super {
            incarnation: 2,
            epoch: 1,
            label_generation: 4,
            exported: true,
            scrubs: ScrubSchedule { last: WallTime(5), every_seconds: 6 },
            host: Host { id: Id(7), name: "alpha".into() },
            shards: vec![root; SHARDS_MAX],
        };
        assert_eq!(Super::decode(&pool.encode()), Ok(Some(pool.clone())));
        let long = Host { id: Id(7), name: format!("a{}", "ö".repeat(32)) };
        let kept = Super::decode(&Super { host: long, ..pool }.encode());
        assert_eq!(
            kept.map(|kept| kept.map(|kept| kept.host.name)),
            Ok(Some(format!("a{}", "ö".repeat(31))))
        );
        let record = DatasetRecord {
            number: 7,
            kind: DatasetKind::Attributes,
            state: DatasetState::Deleting,
            sync: SyncPolicy::Disabled,
            block_shift: 13,
            id: Id(5),
            size: 1 << 40,
            created: WallTime(3),
            root: ptr,
            mapped: 77,
            height: 2,
            name: "project/db-1".into(),
        };
        assert_eq!(DatasetRecord::decode(&record.encode()), Ok(Some(record)));
        assert_eq!(DatasetRecord::decode(&[0; DATASET_BYTES]), Ok(None));
    }
}
