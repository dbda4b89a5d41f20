//! Tables: the catalogue of a shard's datasets, the table of its chunks, and that of what is lost.
//!
//! All are lists of fixed-size records in node-sized blocks, with an index block of pointers to them. The first two are
//! written anew by every checkpoint, the last ([`crate::damage`]) when it has changed. The index of the chunk table begins with the entries of the chunks that hold the
//! table's own blocks, so that it can be read before any chunk is known.
//!
//! ```text
//! chunk table index: 0 chunks 4   4 blocks 4   8 zero 8   16 chunks × 160 …   then blocks × 32
//! other indexes:     0 zero 4     4 blocks 4   8 zero 8   16 blocks × 32
//! ```
//!
//! An index is one block, so a table has a limit. No checkpoint may meet it: one that fails ends the pool. So chunks are refused before
//! ([`table_room`]): for data first, for nodes that clients make dirty later, and a few are left to checkpoints and to what gives space back. Datasets are
//! refused one by one when they are created.

use crate::reserve::Need;
use forebay_base::Id;
use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_base::planted::{Bug, active, table_limits};
use forebay_space::{CHUNK_ENTRY_BYTES, ChunkEntry, ChunkId, ChunkKind, PTR_BYTES, Ptr};
use forebay_tree::{NODE_BODY, NodeHeader, TABLE_LEVEL};

use crate::record::{DATASET_BYTES, DatasetRecord};
use std::collections::BTreeSet;

/// Chunks that may hold the blocks of the longest chunk table; those of a shorter one may lie in more.
const HOMES_MIN: usize = 24;
/// Blocks of a table: what its index has room for beside the chunks.
const TABLE_BLOCKS_MAX: usize = (NODE_BODY - 16 - HOMES_MIN * CHUNK_ENTRY_BYTES) / PTR_BYTES;
const ENTRIES_PER_BLOCK: usize = NODE_BODY / CHUNK_ENTRY_BYTES;
const DATASETS_PER_BLOCK: usize = NODE_BODY / DATASET_BYTES;
/// Arithmetic: 389 blocks × 102 entries = 39 678 chunks per shard; 389 × 31 = 12 059 datasets.
const _: () = assert!(TABLE_BLOCKS_MAX == 389 && ENTRIES_PER_BLOCK == 102 && DATASETS_PER_BLOCK == 31);
/// Datasets per shard.
pub(crate) const DATASETS_MAX: usize = TABLE_BLOCKS_MAX * DATASETS_PER_BLOCK;
/// Of the chunks that a table can list, one in so many is left to nodes and to what gives space back, and no fewer than so many: each of the smallest has
/// eight nodes.
const CHUNKS_KEPT_PART: usize = 64;
const CHUNKS_KEPT_MIN: usize = 16;
/// Percent of a limit from which on an event tells of it.
pub(crate) const LIMIT_NEAR_PERCENT: usize = 80;

/// Which of a shard's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    Catalog,
    Chunks,
    Damage,
}

/// What block `index` of a table (0 is its index block) says of itself.
pub(crate) fn header(pool: Id, shard: usize, table: Table, index: u64) -> NodeHeader {
    let kind: u128 = match table {
        Table::Catalog => 1,
        Table::Chunks => 2,
        Table::Damage => 3,
    };
    NodeHeader { pool, owner: Id((kind << 64) | shard as u128), level: TABLE_LEVEL, index }
}

/// Blocks that a chunk table of `chunks` entries needs, without its index.
pub(crate) fn chunk_blocks(chunks: usize) -> usize {
    chunks.div_ceil(ENTRIES_PER_BLOCK)
}

/// Chunks that a shard's table can list.
pub(crate) fn chunks_max() -> usize {
    table_limits().map_or(TABLE_BLOCKS_MAX, |limits| limits.chunk_blocks) * ENTRIES_PER_BLOCK
}

/// Datasets that a shard's catalogue can list.
pub(crate) fn datasets_max() -> usize {
    table_limits().map_or(TABLE_BLOCKS_MAX, |limits| limits.catalog_blocks) * DATASETS_PER_BLOCK
}

/// How many chunks more a shard may get whose table will have `chunks` lines.
pub(crate) fn table_room(chunks: usize, kind: ChunkKind, need: Need) -> usize {
    let kept = (chunks_max() / CHUNKS_KEPT_PART).max(CHUNKS_KEPT_MIN);
    if active(Bug::GrantsBeyondTable) {
        return usize::MAX;
    }
    let kept = match (kind, need) {
        (_, Need::Urgent) => 0,
        (ChunkKind::Node, _) => kept / 2,
        _ => kept,
    };
    chunks_max().saturating_sub(chunks + kept)
}

/// Chunks that may hold the blocks of a chunk table of so many: what its index has room for beside the pointers.
fn homes_max(blocks: usize) -> usize {
    let fitting = (NODE_BODY - 16).saturating_sub(blocks * PTR_BYTES) / CHUNK_ENTRY_BYTES;
    table_limits().map_or(fitting, |limits| limits.homes)
}

/// Of the places of a chunk table's blocks, those that have to be elsewhere, in chunks that hold none of them, so that the index can name all chunks: all but
/// those in the chunks with most of them. None when it can.
pub(crate) fn scattered(places: &[Ptr]) -> Vec<Ptr> {
    let mut homes: Vec<(ChunkId, usize)> = Vec::new();
    for place in places {
        let chunk = place.addr().chunk();
        match homes.iter_mut().find(|(known, _)| *known == chunk) {
            Some((_, count)) => *count += 1,
            None => homes.push((chunk, 1)),
        }
    }
    let most = homes_max(places.len());
    if homes.len() <= most {
        return Vec::new();
    }
    homes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    // One more is for those that go elsewhere.
    let kept: BTreeSet<ChunkId> = homes.iter().take(most - 1).map(|(chunk, _)| *chunk).collect();
    places.iter().filter(|place| !kept.contains(&place.addr().chunk())).copied().collect()
}

/// A record that no version of this format writes, or only a later one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Impossible;

/// What `decode` makes of the records of a block; the rest of it is zeros.
fn decode_all<T>(
    body: &[u8],
    record_bytes: usize,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>, Impossible> {
    let records = body.chunks_exact(record_bytes);
    let in_use = records.filter(|record| record.iter().any(|byte| *byte != 0));
    in_use.map(|record| decode(record).ok_or(Impossible)).collect()
}

/// The bodies of the record blocks of a catalogue.
pub(crate) fn encode_catalog(records: &[DatasetRecord]) -> Vec<Vec<u8>> {
    let encode = |part: &[DatasetRecord]| part.iter().flat_map(|record| record.encode()).collect();
    records.chunks(DATASETS_PER_BLOCK).map(encode).collect()
}

/// # Errors
/// One of the records is impossible. It must not be left out: the next checkpoint would forget it for good.
pub(crate) fn decode_catalog(body: &[u8]) -> Result<Vec<DatasetRecord>, Impossible> {
    decode_all(body, DATASET_BYTES, |record| DatasetRecord::decode(record).ok().flatten())
}

/// The bodies of the entry blocks of a chunk table.
pub(crate) fn encode_chunks(entries: &[ChunkEntry]) -> Vec<Vec<u8>> {
    let encode = |part: &[ChunkEntry]| {
        let mut body = vec![0; part.len() * CHUNK_ENTRY_BYTES];
        let mut w = Writer::new(&mut body);
        part.iter().for_each(|entry| entry.encode(&mut w));
        body
    };
    entries.chunks(ENTRIES_PER_BLOCK).map(encode).collect()
}

/// # Errors
/// One of the entries is impossible. It must not be left out: the next checkpoint would forget it for good.
pub(crate) fn decode_chunks(body: &[u8]) -> Result<Vec<ChunkEntry>, Impossible> {
    decode_all(body, CHUNK_ENTRY_BYTES, |entry| ChunkEntry::decode(&mut Reader::new(entry)).ok().flatten())
}

/// The body of an index block: `chunks` is empty for a catalogue.
pub(crate) fn encode_index(chunks: &[ChunkEntry], blocks: &[Ptr]) -> Vec<u8> {
    assert!(fits_index(chunks.len(), blocks.len()), "a table beyond its limits");
    let mut body = vec![0; 16 + chunks.len() * CHUNK_ENTRY_BYTES + blocks.len() * PTR_BYTES];
    let mut w = Writer::new(&mut body);
    w.u32(chunks.len() as u32).u32(blocks.len() as u32).zeros(8);
    chunks.iter().for_each(|chunk| chunk.encode(&mut w));
    blocks.iter().for_each(|block| block.encode(&mut w));
    body
}

/// An index block: the chunks that hold the table's blocks, and the pointers to these.
pub(crate) type Index = (Vec<ChunkEntry>, Vec<Ptr>);

/// An index block's contents; nothing when they are impossible.
pub(crate) fn decode_index(body: &[u8]) -> Result<Option<Index>, Truncated> {
    let mut r = Reader::new(body);
    let (chunks, blocks, _) = (r.u32()? as usize, r.u32()? as usize, r.u64()?);
    if !fits_index(chunks, blocks) {
        return Ok(None);
    }
    let chunks: Option<Vec<_>> = (0..chunks).map(|_| ChunkEntry::decode(&mut r)).collect::<Result<_, _>>()?;
    let blocks = (0..blocks).map(|_| Ptr::decode(&mut r)).collect::<Result<Vec<_>, _>>()?;
    Ok(chunks.map(|chunks| (chunks, blocks)))
}

/// Whether an index has room for so many chunks and pointers.
fn fits_index(chunks: usize, blocks: usize) -> bool {
    let room = NODE_BODY - 16;
    blocks <= TABLE_BLOCKS_MAX && chunks <= room && chunks * CHUNK_ENTRY_BYTES + blocks * PTR_BYTES <= room
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::DatasetKind;
    use forebay_base::Checksum;
    use forebay_base::planted::{TableLimits, set_table_limits};
    use forebay_device::SlotRef;
    use forebay_space::Addr;

    fn entry(id: u32) -> ChunkEntry {
        ChunkEntry {
            id: ChunkId(id),
            kind: ChunkKind::Node,
            group: 0,
            units: 64,
            order: 0,
            record_sum: Checksum(1),
            alternate: 0,
            slots: vec![SlotRef { disk: 0, slot: id }],
        }
    }

    fn padded(mut body: Vec<u8>) -> Vec<u8> {
        body.resize(NODE_BODY, 0);
        body
    }

    #[test]
    fn impossible_records_are_refused_and_not_left_out() {
        let entries: Vec<ChunkEntry> = (1..=5).map(entry).collect();
        let mut body = padded(encode_chunks(&entries).remove(0));
        assert_eq!(decode_chunks(&body), Ok(entries));
        // A kind that there is not.
        body[2 * CHUNK_ENTRY_BYTES + 4] = 9;
        assert_eq!(decode_chunks(&body), Err(Impossible));
        let record = DatasetRecord::new(DatasetKind::Volume, Id(7), 12, 4096, "one".into());
        let mut body = padded(encode_catalog(&[record.clone(), record]).remove(0));
        assert_eq!(decode_catalog(&body).map(|records| records.len()), Ok(2));
        body[DATASET_BYTES + 4] = 0xff;
        assert_eq!(decode_catalog(&body), Err(Impossible));
    }

    #[test]
    fn a_table_of_few_blocks_may_have_each_in_another_chunk_and_one_of_many_may_not() {
        let place = |chunk: u32, unit: u32| Ptr::new(Addr::new(ChunkId(chunk), unit), 16384, 1, Checksum(0));
        let apart = |count: u32| (1..=count).map(|chunk| place(chunk, 0)).collect::<Vec<Ptr>>();
        assert!(scattered(&apart(84)).is_empty());
        let left = scattered(&apart(120));
        assert_eq!(left.len(), 120 - (homes_max(120) - 1));
        // What lies with others stays.
        let many = [apart(60), (0..60).map(|nth| place(99, 4 * nth)).collect()].concat();
        assert!(scattered(&many).is_empty());
        let longest = [apart(80), (0..309).map(|nth| place(99, 4 * nth)).collect()].concat();
        let left = scattered(&longest);
        assert_eq!(left.len(), 80 - (HOMES_MIN - 2));
        assert!(left.iter().all(|place| place.addr().chunk() != ChunkId(99)));
        for (chunks, blocks) in [(84, 84), (homes_max(120), 120), (HOMES_MIN, TABLE_BLOCKS_MAX)] {
            let entries: Vec<ChunkEntry> = (1..=chunks as u32).map(entry).collect();
            let body = padded(encode_index(&entries, &vec![place(1, 0); blocks]));
            let index = decode_index(&body).expect("it is all there").expect("it is possible");
            assert_eq!((index.0.len(), index.1.len()), (chunks, blocks));
        }
        assert!(!fits_index(85, 85) && !fits_index(0, TABLE_BLOCKS_MAX + 1) && !fits_index(usize::MAX, 0));
    }

    #[test]
    fn data_is_refused_before_nodes_and_these_before_what_is_urgent() {
        set_table_limits(Some(TableLimits { chunk_blocks: 3, catalog_blocks: 1, homes: 24 }));
        let data = ChunkKind::Data { class: 0 };
        assert_eq!((chunks_max(), datasets_max()), (306, 31));
        assert!(table_room(289, data, Need::Ordinary) == 1 && table_room(290, data, Need::Deferrable) == 0);
        assert!(
            table_room(297, ChunkKind::Node, Need::Ordinary) == 1
                && table_room(298, ChunkKind::Node, Need::Ordinary) == 0
        );
        assert!(
            table_room(305, data, Need::Urgent) == 1 && table_room(306, ChunkKind::Node, Need::Urgent) == 0
        );
        set_table_limits(None);
    }
}
