//! Tables: the catalogue of a shard's datasets, the table of its chunks, that of what is lost, and the registry.
//!
//! Each is a tree of nodes whose leaves have fixed-size records ([`crate::table_tree`]). A record keeps its row ([`crate::rows`]), so a checkpoint writes
//! the leaves in which something changed, and what is above them. A row that is all zeros has no record.
//!
//! **The chunk table writes about itself.** Its nodes lie in chunks of nodes like any others, and writing one changes what is free in two of them: where it
//! lies now, and where it was. So their entries change as well, and the leaves with these are written, too. It ends soon, because the entries of chunks of nodes and of the
//! log have leaves of their own, and there is one such chunk among hundreds.

use crate::damage::LOST_PER_LEAF;
use crate::record::{DATASET_BYTES, DatasetRecord};
use crate::rows::Rows;
use crate::table_tree::TableTree;
use forebay_base::Id;
use forebay_base::codec::{Reader, Writer};
use forebay_base::planted::table_shape;
use forebay_space::{CHUNK_ENTRY_BYTES, ChunkEntry, ChunkId, ChunkKind};
use forebay_tree::{NODE_BODY, NodeHeader, TreeKind};

const ENTRIES_PER_LEAF: usize = NODE_BODY / CHUNK_ENTRY_BYTES;
const DATASETS_PER_LEAF: usize = NODE_BODY / DATASET_BYTES;
const _: () = assert!(ENTRIES_PER_LEAF == 84 && DATASETS_PER_LEAF == 31);
/// Datasets per shard. Their records are in memory: more than a gigabyte.
pub(crate) const DATASETS_MAX: usize = 1 << 20;
/// Percent of a limit from which on an event tells of it.
pub(crate) const LIMIT_NEAR_PERCENT: usize = 80;

/// Which of a shard's tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Table {
    Catalog,
    Chunks,
    Damage,
    Registry,
}

impl Table {
    /// What a node of this table says of itself, on this level above the leaves.
    pub fn header(self, pool: Id, shard: usize, level: usize, index: u64) -> NodeHeader {
        let kind = match self {
            Table::Catalog => TreeKind::Catalog,
            Table::Chunks => TreeKind::Chunks,
            Table::Damage => TreeKind::Lost,
            Table::Registry => TreeKind::Registry,
        };
        NodeHeader { pool, kind, owner: Id(0), object: shard as u64, level: level as u8, index }
    }

    /// Whether references say where the chunk of the node is.
    pub fn is_homed(self) -> bool {
        self == Table::Chunks
    }
}

/// Datasets that a shard can have.
pub(crate) fn datasets_max() -> usize {
    table_shape().map_or(DATASETS_MAX, |shape| shape.datasets)
}

/// Nodes of a table with so many leaves.
pub(crate) fn nodes_of(leaves: u64, table: Table) -> usize {
    let (mut all, mut level) = (leaves, leaves);
    while level > 1 {
        level = level.div_ceil(TableTree::fan_out(table));
        all += level;
    }
    all as usize
}

/// Nodes that the catalogue and the chunk table of a shard with so many datasets and chunks have when no leaf is begun before the others are full.
pub(crate) fn table_nodes(datasets: usize, chunks: usize) -> usize {
    let leaves = |records: usize, most: usize| (records as u64).div_ceil(per_leaf(most));
    // Chunks of nodes and of data begin leaves of their own.
    nodes_of(leaves(datasets, DATASETS_PER_LEAF), Table::Catalog)
        + nodes_of(leaves(chunks, ENTRIES_PER_LEAF) + 1, Table::Chunks)
}

/// Records in a leaf that has room for so many.
pub(crate) fn per_leaf(most: usize) -> u64 {
    table_shape().map_or(most as u64, |shape| shape.per_leaf.min(most as u64))
}

/// Places in a leaf of the table of what is lost.
pub(crate) fn damage_per_leaf() -> usize {
    per_leaf(LOST_PER_LEAF) as usize
}

/// The tables of a shard, as its last checkpoint has them.
pub(crate) struct Tables {
    pub catalog: TableTree,
    pub datasets: Rows<u64>,
    pub table: TableTree,
    pub chunks: Rows<ChunkId>,
}

impl Tables {
    /// Nodes that are stored.
    pub fn nodes(&self) -> usize {
        self.catalog.len() + self.table.len()
    }
}

impl Default for Tables {
    fn default() -> Tables {
        Tables {
            catalog: TableTree::new(Table::Catalog),
            datasets: Rows::new(per_leaf(DATASETS_PER_LEAF)),
            table: TableTree::new(Table::Chunks),
            chunks: Rows::new(per_leaf(ENTRIES_PER_LEAF)),
        }
    }
}

/// The sort of a chunk's row: those of data have leaves of their own.
pub(crate) fn sort_of(kind: ChunkKind) -> usize {
    usize::from(!matches!(kind, ChunkKind::Data { .. }))
}

/// A record that no version of this format writes, or only a later one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Impossible;

/// What `decode` makes of the records of a leaf, with the place of each; the rest of it is zeros.
fn decode_all<T>(
    body: &[u8],
    record_bytes: usize,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<(usize, T)>, Impossible> {
    let records = body.chunks_exact(record_bytes).enumerate();
    let in_use = records.filter(|(_, record)| record.iter().any(|byte| *byte != 0));
    in_use.map(|(place, record)| decode(record).map(|known| (place, known)).ok_or(Impossible)).collect()
}

/// A leaf with these records; nothing when there are none.
fn encode_leaf<T>(
    record_bytes: usize,
    records: impl Iterator<Item = (usize, T)>,
    encode: impl Fn(T, &mut [u8]),
) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    for (place, record) in records {
        body.resize((place + 1) * record_bytes, 0);
        encode(record, &mut body[place * record_bytes..]);
    }
    (!body.is_empty()).then_some(body)
}

/// A leaf of the catalogue.
pub(crate) fn encode_datasets<'a>(
    records: impl Iterator<Item = (usize, &'a DatasetRecord)>,
) -> Option<Vec<u8>> {
    encode_leaf(DATASET_BYTES, records, |record, into| into.copy_from_slice(&record.encode()))
}

/// # Errors
/// One of the records is impossible. It must not be left out: the next checkpoint would forget it for good.
pub(crate) fn decode_datasets(body: &[u8]) -> Result<Vec<(usize, DatasetRecord)>, Impossible> {
    decode_all(body, DATASET_BYTES, |record| DatasetRecord::decode(record).ok().flatten())
}

/// A leaf of the chunk table.
pub(crate) fn encode_chunks<'a>(entries: impl Iterator<Item = (usize, &'a ChunkEntry)>) -> Option<Vec<u8>> {
    encode_leaf(CHUNK_ENTRY_BYTES, entries, |entry, into| entry.encode(&mut Writer::new(into)))
}

/// # Errors
/// One of the entries is impossible. It must not be left out: the next checkpoint would forget it for good.
pub(crate) fn decode_chunks(body: &[u8]) -> Result<Vec<(usize, ChunkEntry)>, Impossible> {
    decode_all(body, CHUNK_ENTRY_BYTES, |entry| ChunkEntry::decode(&mut Reader::new(entry)).ok().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::DatasetKind;
    use forebay_base::Checksum;
    use forebay_device::SlotRef;

    fn entry(id: u32) -> ChunkEntry {
        let fresh =
            ChunkEntry::fresh(ChunkId(id), ChunkKind::Node, 0, 64, vec![SlotRef { disk: 0, slot: id }]);
        ChunkEntry { record_sum: Checksum(1), ..fresh }
    }

    fn padded(body: Option<Vec<u8>>) -> Vec<u8> {
        let mut body = body.expect("there is something");
        body.resize(NODE_BODY, 0);
        body
    }

    #[test]
    fn impossible_records_are_refused_and_not_left_out() {
        let entries: Vec<(usize, ChunkEntry)> = (1..=5).map(|nth| (2 * nth, entry(nth as u32))).collect();
        let mut body = padded(encode_chunks(entries.iter().map(|(place, entry)| (*place, entry))));
        assert_eq!(decode_chunks(&body), Ok(entries));
        // A kind that there is not.
        body[2 * CHUNK_ENTRY_BYTES + 4] = 9;
        assert_eq!(decode_chunks(&body), Err(Impossible));
        let record = DatasetRecord::new(DatasetKind::Volume, Id(7), 12, 4096, "one".into());
        let mut body = padded(encode_datasets([(0, &record), (30, &record)].into_iter()));
        assert_eq!(decode_datasets(&body).map(|records| (records.len(), records[1].0)), Ok((2, 30)));
        body[30 * DATASET_BYTES + 8] = 0xff;
        assert_eq!(decode_datasets(&body), Err(Impossible));
        assert_eq!(encode_chunks([].into_iter()), None);
    }
}
