//! Tables: the catalogue of a shard's datasets and the table of its chunks.
//!
//! Both are lists of fixed-size records in node-sized blocks, with an index block of pointers to them; both are
//! written anew by every checkpoint. The index of the chunk table begins with the entries of the chunks that hold the
//! table's own blocks, so that it can be read before any chunk is known.
//!
//! ```text
//! chunk table index: 0 chunks 4   4 blocks 4   8 zero 8   16 chunks × 160 …   then blocks × 32
//! catalogue index:   0 zero 4     4 blocks 4   8 zero 8   16 blocks × 32
//! ```

use forebay_base::Id;
use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_space::{CHUNK_ENTRY_BYTES, ChunkEntry, PTR_BYTES, Ptr};
use forebay_tree::{NODE_BODY, NodeHeader, TABLE_LEVEL};

use crate::record::{DATASET_BYTES, DatasetRecord};

/// Chunks that may hold the blocks of one shard's chunk table.
const TABLE_CHUNKS_MAX: usize = 24;
/// Blocks of a table: what its index has room for beside the chunks.
const TABLE_BLOCKS_MAX: usize = (NODE_BODY - 16 - TABLE_CHUNKS_MAX * CHUNK_ENTRY_BYTES) / PTR_BYTES;
const ENTRIES_PER_BLOCK: usize = NODE_BODY / CHUNK_ENTRY_BYTES;
const DATASETS_PER_BLOCK: usize = NODE_BODY / DATASET_BYTES;
/// Arithmetic: 389 blocks × 102 entries = 39 678 chunks per shard; 389 × 31 = 12 059 datasets.
const _: () = assert!(TABLE_BLOCKS_MAX == 389 && ENTRIES_PER_BLOCK == 102 && DATASETS_PER_BLOCK == 31);
/// Datasets per shard.
pub(crate) const DATASETS_MAX: usize = TABLE_BLOCKS_MAX * DATASETS_PER_BLOCK;

/// Which of a shard's two tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    Catalog,
    Chunks,
}

/// What block `index` of a table (0 is its index block) says of itself.
pub(crate) fn header(pool: Id, shard: usize, table: Table, index: u64) -> NodeHeader {
    let kind: u128 = match table {
        Table::Catalog => 1,
        Table::Chunks => 2,
    };
    NodeHeader { pool, owner: Id((kind << 64) | shard as u128), level: TABLE_LEVEL, index }
}

/// Blocks that a chunk table of `chunks` entries needs, without its index.
pub(crate) fn chunk_blocks(chunks: usize) -> usize {
    chunks.div_ceil(ENTRIES_PER_BLOCK)
}

/// The bodies of the record blocks of a catalogue.
pub(crate) fn encode_catalog(records: &[DatasetRecord]) -> Vec<Vec<u8>> {
    let encode = |part: &[DatasetRecord]| part.iter().flat_map(|record| record.encode()).collect();
    records.chunks(DATASETS_PER_BLOCK).map(encode).collect()
}

pub(crate) fn decode_catalog(body: &[u8]) -> Vec<DatasetRecord> {
    let decode = |part: &[u8]| DatasetRecord::decode(part).ok().flatten();
    body.chunks_exact(DATASET_BYTES).filter_map(decode).collect()
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

pub(crate) fn decode_chunks(body: &[u8]) -> Vec<ChunkEntry> {
    let decode = |part: &[u8]| ChunkEntry::decode(&mut Reader::new(part)).ok().flatten();
    body.chunks_exact(CHUNK_ENTRY_BYTES).filter_map(decode).collect()
}

/// The body of an index block: `chunks` is empty for a catalogue.
pub(crate) fn encode_index(chunks: &[ChunkEntry], blocks: &[Ptr]) -> Vec<u8> {
    assert!(
        chunks.len() <= TABLE_CHUNKS_MAX && blocks.len() <= TABLE_BLOCKS_MAX,
        "a table beyond its limits"
    );
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
    if chunks > TABLE_CHUNKS_MAX || blocks > TABLE_BLOCKS_MAX {
        return Ok(None);
    }
    let chunks: Option<Vec<_>> = (0..chunks).map(|_| ChunkEntry::decode(&mut r)).collect::<Result<_, _>>()?;
    let blocks = (0..blocks).map(|_| Ptr::decode(&mut r)).collect::<Result<Vec<_>, _>>()?;
    Ok(chunks.map(|chunks| (chunks, blocks)))
}

/// Whether a chunk table of `entries` lines fits its index.
pub(crate) fn chunk_table_fits(entries: usize) -> bool {
    chunk_blocks(entries) <= TABLE_BLOCKS_MAX
}
