//! What goes into a commit: changes to datasets and to the shard, and the entries that hold together what a caller queued.

use crate::dataset::Dataset;
use crate::destage::LogClaim;
use crate::error::IoError;
use crate::items::ItemChanges;
use crate::pack::Block;
use crate::places::PlacesClaim;
use crate::record::DatasetRecord;
use crate::shard::NodesClaim;
use crate::signal::Pass;
use crate::turns::Turn;
use forebay_base::planted::{Bug, active};
use forebay_log::{PlugPiece, Record};
use forebay_raid::{DiskSet, Piece};
use forebay_runtime::{Buf, Completer, Completion, completion};
use forebay_space::{Addr, ChunkEntry, Ptr};
use forebay_tree::Tree;
use std::rc::Rc;

/// A change to one dataset or to the shard.
pub(crate) enum Change {
    /// The blocks from `first` on: their pointers, and their contents in parts of whole blocks. Where some are stored in another
    /// form, or are holes since they are zeros, `stored` has what goes to disk of each; otherwise it is empty.
    Write {
        dataset: Rc<Dataset>,
        first: u64,
        ptrs: Vec<Ptr>,
        parts: Vec<Buf>,
        stored: Vec<Buf>,
        destage: bool,
    },
    /// Each block with the place that is reserved for it.
    Data {
        dataset: Rc<Dataset>,
        first: u64,
        blocks: Vec<(Block, Option<Ptr>)>,
    },
    /// Bytes of one block, from where they begin in it, with the place that is reserved for the block.
    Parts {
        dataset: Rc<Dataset>,
        block: u64,
        parts: Vec<(u32, Buf)>,
        place: Ptr,
    },
    Clear {
        dataset: Rc<Dataset>,
        first: u64,
        count: u64,
    },
    /// With the tree of a dataset that begins as a clone.
    Put {
        record: Box<DatasetRecord>,
        encoded: Vec<u8>,
        tree: Option<Tree>,
    },
    Grant {
        chunk: ChunkEntry,
    },
    /// What is about to be written into lines in use.
    Plug {
        chunk: u32,
        pieces: Vec<Piece>,
    },
    /// It is there.
    Plugged,
    /// Of the pool's registry.
    Items {
        changes: ItemChanges,
    },
}

/// What one caller queued: applied together or not at all.
pub(crate) struct Entry {
    pub id: u64,
    pub changes: Vec<Change>,
    /// Whether the caller waits for stable storage.
    pub durable: bool,
    pub done: Option<Completer<Result<(), IoError>>>,
    /// What writing the data gave, when that came first.
    pub ahead: Option<Result<DiskSet, IoError>>,
    /// Room at the gate and a turn at the disks, given back when the commit is over.
    pub pass: Option<Pass>,
    pub turn: Option<Turn>,
    /// Room in the log.
    pub room: Option<LogClaim>,
    /// Lines of which the entry has all that is taken.
    pub lines: Vec<PlacesClaim>,
    /// Nodes that applying the entry may make dirty.
    pub nodes: Option<NodesClaim>,
    /// Bytes of the entry's records, once it is queued.
    pub records_bytes: usize,
}

impl Entry {
    pub fn new(id: u64, changes: Vec<Change>, durable: bool) -> Entry {
        Entry {
            id,
            changes,
            durable,
            done: None,
            ahead: None,
            pass: None,
            turn: None,
            room: None,
            lines: Vec::new(),
            nodes: None,
            records_bytes: 0,
        }
    }
    pub fn grant(chunk: ChunkEntry) -> Entry {
        Entry::new(0, vec![Change::Grant { chunk }], false)
    }

    /// The entry's data is on the disks already, of which these are yet to be flushed; or it could not be written.
    pub fn is_in_place(&mut self, touched: Result<DiskSet, IoError>) {
        self.ahead = Some(touched);
    }

    /// Adds the means to wait for the entry.
    pub fn awaited(&mut self) -> Completion<Result<(), IoError>> {
        let (done, result) = completion();
        self.done = Some(done);
        result
    }

    /// Adds what the entry writes to the data disks: runs of blocks that follow each other in memory and on disk.
    pub fn add_data(&self, runs: &mut Vec<(Addr, Buf)>) {
        for change in &self.changes {
            let Change::Write { ptrs, parts, stored, .. } = change else { continue };
            if !stored.is_empty() {
                let blocks = ptrs.iter().zip(stored).filter(|(ptr, _)| !ptr.is_hole());
                runs.extend(blocks.map(|(ptr, stored)| (ptr.addr(), stored.clone())));
                continue;
            }
            let mut ptrs = &ptrs[..];
            for part in parts {
                let mut at = 0;
                while at < part.len() {
                    let left = (part.len() - at) / ptrs[0].bytes() as usize;
                    let adjacent =
                        ptrs[..left].windows(2).take_while(|pair| pair[0].is_followed_by(&pair[1]));
                    let count = 1 + adjacent.count();
                    let bytes = count * ptrs[0].bytes() as usize;
                    runs.push((ptrs[0].addr(), part.slice(at, bytes)));
                    (at, ptrs) = (at + bytes, &ptrs[count..]);
                }
            }
        }
    }

    /// Sets when the entry's blocks are born.
    pub fn born_in(&mut self, epoch: u64) {
        for change in &mut self.changes {
            let Change::Write { ptrs, .. } = change else { continue };
            let other = |ptr: &&mut Ptr| ptr.birth() != epoch && !ptr.is_hole();
            ptrs.iter_mut().filter(other).for_each(|ptr| ptr.set_birth(epoch));
        }
    }

    /// Whether a client was answered before it is in the log.
    pub fn is_acknowledged(&self) -> bool {
        let is_of_client = |change: &Change| match change {
            Change::Write { destage, .. } => !destage,
            Change::Data { .. } | Change::Parts { .. } | Change::Clear { .. } => true,
            Change::Put { .. }
            | Change::Grant { .. }
            | Change::Plug { .. }
            | Change::Plugged
            | Change::Items { .. } => false,
        };
        self.done.is_none() && self.changes.iter().any(is_of_client)
    }

    /// Whether its records point to blocks.
    pub fn has_pointers(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, Change::Write { .. }))
    }

    /// Bytes that the entry writes to the data disks.
    pub fn stored_bytes(&self) -> usize {
        let bytes = |change: &Change| match change {
            Change::Write { ptrs, .. } => ptrs.iter().map(|ptr| ptr.bytes() as usize).sum(),
            _ => 0,
        };
        self.changes.iter().map(bytes).sum()
    }

    /// In how many places they are.
    pub fn places(&self) -> usize {
        let written = self.changes.iter().filter_map(|change| match change {
            Change::Write { ptrs, .. } => Some(ptrs),
            _ => None,
        });
        let mut last: Option<&Ptr> = None;
        let mut places = 0;
        for ptr in written.flatten().filter(|ptr| !ptr.is_hole()) {
            places += usize::from(!last.is_some_and(|last| last.is_followed_by(ptr)));
            last = Some(ptr);
        }
        places
    }

    /// Bytes of memory that this holds.
    pub fn data_bytes(&self) -> usize {
        let bytes = |change: &Change| match change {
            Change::Write { parts, .. } => parts.iter().map(|part| part.len()).sum(),
            _ => 0,
        };
        self.changes.iter().map(bytes).sum()
    }

    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.changes.iter().filter(|change| !change.is_forgotten()).map(Change::record)
    }
}

impl Change {
    /// A dataset's new properties.
    pub fn put(record: DatasetRecord) -> Change {
        Change::Put { encoded: record.encode().to_vec(), record: Box::new(record), tree: None }
    }

    /// A block that the pool itself writes to another place.
    pub fn moved(dataset: &Rc<Dataset>, first: u64, block: Block, to: &Ptr) -> Change {
        let (mut ptrs, stored) = (vec![block.point(to)], vec![block.stored()]);
        if active(Bug::MovedBlockForgetsKind) {
            ptrs[0].set_kind(0);
        }
        Change::Write {
            dataset: dataset.clone(),
            first,
            ptrs,
            parts: vec![block.data],
            stored,
            destage: true,
        }
    }

    /// A new dataset that begins with what `tree` has.
    pub fn put_clone(record: DatasetRecord, tree: Tree) -> Change {
        Change::Put { encoded: record.encode().to_vec(), record: Box::new(record), tree: Some(tree) }
    }

    fn is_forgotten(&self) -> bool {
        (active(Bug::DiscardNotLogged) && matches!(self, Change::Clear { .. }))
            || (active(Bug::ResizeNotLogged)
                && matches!(self, Change::Put { record, .. } if record.mapped.blocks > 0))
    }

    /// Shows the blocks that a client wrote to whom they concern until the entry is applied; to clients too, when they are
    /// `visible`: acknowledged already. A destaged block is known, and there may be a newer one.
    pub fn make_pending(&self, entry: u64, visible: bool) {
        match self {
            Change::Write { dataset, first, parts, destage: false, .. } => {
                dataset.pending.borrow_mut().queue(*first, entry, parts, visible);
            }
            Change::Data { dataset, first, blocks } => {
                let blocks = blocks.iter().map(|(block, _)| &block.data);
                dataset.pending.borrow_mut().queue(*first, entry, blocks, visible);
            }
            _ => {}
        }
    }

    pub fn record(&self) -> Record<'_> {
        match self {
            Change::Write { dataset, first, ptrs, .. } => {
                Record::Write { dataset: dataset.number(), first: *first, ptrs: ptrs.into() }
            }
            Change::Data { dataset, first, blocks } => Record::Data {
                dataset: dataset.number(),
                first: *first,
                block_bytes: dataset.block_bytes() as u32,
                blocks: blocks.iter().map(|(block, _)| &block.data[..]).collect(),
            },
            Change::Parts { dataset, block, parts, .. } => Record::Parts {
                dataset: dataset.number(),
                block: *block,
                block_bytes: dataset.block_bytes() as u32,
                parts: parts.iter().map(|(at, bytes)| (*at, &bytes[..])).collect(),
            },
            Change::Clear { dataset, first, count } => {
                Record::Clear { dataset: dataset.number(), first: *first, count: *count }
            }
            Change::Put { record, encoded, .. } => Record::Put { dataset: record.number, record: encoded },
            Change::Grant { chunk } => Record::Grant { chunk: chunk.clone() },
            Change::Plug { chunk, pieces } => {
                let pieces = pieces.iter().map(|piece| PlugPiece {
                    slot: piece.slot,
                    at: piece.at,
                    bytes: &piece.data,
                });
                Record::Plug { chunk: *chunk, pieces: pieces.collect() }
            }
            Change::Plugged => Record::Plugged,
            Change::Items { changes } => {
                let items = changes.iter().map(|(key, value)| (key.as_bytes(), value.as_deref()));
                Record::Items { items: items.collect() }
            }
        }
    }
}
