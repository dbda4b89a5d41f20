//! Opening a shard: from its root in the superblock to trees, space and the end of the log.

use crate::damage::{Damage, LOOK_AGAIN};
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind};
use crate::format::ShardRoot;
use crate::index::{Datasets, Snapshots};
use crate::items::{Items, read_items};
use crate::lineage::Snapshot;
use crate::maps::maps_bytes_max;
use crate::record::{DatasetKind, DatasetRecord, check_lineage};
use crate::registry::PoolShared;
use crate::replay::Replay;
use crate::rows::Rows;
use crate::shard::{Log, Shard, ShardParts};
use crate::spec::{Event, Severity};
use crate::table_tree::{HOME_SLOTS_MAX, Place, Ref, Root, TableTree};
use crate::tables::{Table, Tables, decode_chunks, decode_datasets, sort_of};
use forebay_base::planted::{Bug, active};
use forebay_base::{Checksum, Id};
use forebay_device::{Owner, SlotRef, UNIT};
use forebay_log::{Chain, Frame, FrameContext, Ring};
use forebay_raid::Array;
use forebay_runtime::{Buf, Rt};
use forebay_space::{Chunk, ChunkEntry, ChunkId, ChunkKind, Lines, Ptr, Space};
use forebay_tree::{NODE_BODY, NODE_BYTES, NodeHeader, decode_node};
use futures_util::stream::{self, StreamExt};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of the ring that replay reads at a time: first and at most. Most logs are short.
const WINDOW_FIRST: usize = 64 << 10;
const WINDOW_MAX: usize = 4 << 20;
/// Bytes behind the end of the log in which frames are looked for that should not be there: more than one bad sector can make unreadable, as frames are mostly short.
const BEYOND_LOOK: u64 = 4 << 20;
/// Reads that may fail there of each copy: its disk may read nothing at all.
const BEYOND_FAILED_MAX: usize = 64;
/// Choices among copies that are tried for one frame: four copies of five parts are a thousand.
const COMBINATIONS_MAX: u64 = 1024;
/// Nodes that are read at a time: enough for the disks to have something to order, and no more than a disk takes at once.
const READS_MAX: usize = 64;

/// Reads a node that nothing else can be changing: during import and in the checker.
pub(crate) async fn read_stored_node(
    array: &Array,
    slots: &[SlotRef],
    header: &NodeHeader,
    ptr: Ptr,
) -> Result<Vec<u8>, String> {
    let check =
        |bytes: &[u8]| active(Bug::MissingNodeChecksumCheck) || decode_node(bytes, header, &ptr).is_ok();
    match array.read(slots, ptr.addr().offset(), NODE_BYTES, check).await {
        Ok(good) => {
            let body = good.bytes[NODE_BYTES - NODE_BODY..].to_vec();
            if !good.bad.is_empty() {
                array.repair(slots, &good.bad, ptr.addr().offset(), &good.bytes.freeze()).await;
            }
            Ok(body)
        }
        Err(error) => {
            Err(format!("node {} of level {} at {:?}: {error:?}", header.index, header.level, ptr.addr()))
        }
    }
}

/// A table as it was read: its tree, what led to its nodes, and the bodies of its leaves with their numbers.
pub(crate) struct Stored {
    pub tree: TableTree,
    pub refs: Vec<Ref>,
    pub leaves: Vec<(u64, Vec<u8>)>,
    /// Nodes that cannot be read, and are not in the tree.
    pub lost: Vec<(Place, Ptr)>,
}

/// A shard's chunk table: where it is, and what it lists.
pub(crate) struct StoredChunks {
    pub tree: TableTree,
    pub refs: Vec<Ref>,
    pub rows: Rows<ChunkId>,
    pub entries: Vec<ChunkEntry>,
}

/// A shard's chunk table.
pub(crate) async fn read_chunk_table(
    array: &Array,
    pool: Id,
    shard: usize,
    root: &ShardRoot,
    lost: impl Fn(&str) -> bool,
) -> Result<StoredChunks, String> {
    let slots = |at: &Ref| Some(at.slots.clone());
    let Stored { tree, refs, leaves, .. } =
        read_table(array, (pool, shard, Table::Chunks, usize::MAX), &root.table, slots, lost).await?;
    let (mut rows, mut entries, mut taken) = (Tables::default().chunks, Vec::new(), BTreeSet::new());
    for (leaf, body) in leaves {
        let impossible =
            || format!("leaf {leaf} of the chunk table has an entry that is invalid or of a newer version");
        for (place, entry) in decode_chunks(&body).map_err(|_| impossible())? {
            let row = rows.row(leaf, place).ok_or_else(impossible)?;
            if !rows.load(row, entry.id, sort_of(entry.kind)) {
                return Err(format!("chunk {} is in the chunk table twice", entry.id.0));
            }
            // No more is believed than there are disks: what memory takes goes by it.
            if !is_possible(array, &entry)
                || !entry.slots.iter().all(|slot| taken.insert((slot.disk, slot.slot)))
            {
                return Err(format!("chunk {} is in an invalid place", entry.id.0));
            }
            entries.push(entry);
        }
    }
    // Whoever goes through them does so by their numbers.
    entries.sort_by_key(|entry| entry.id);
    let find = |id: ChunkId| entries.binary_search_by_key(&id, |entry| entry.id).ok().map(|at| &entries[at]);
    check_places(&tree, find)?;
    Ok(StoredChunks { tree, refs, rows, entries })
}

/// Whether a chunk fits into its slots, and these onto their disks, as far as the disks are there.
fn is_possible(array: &Array, entry: &ChunkEntry) -> bool {
    let fits = |slot: &SlotRef| {
        array.attached(slot.disk).is_none_or(|member| {
            let layout = &member.layout;
            slot.slot < layout.slots
                && u64::from(entry.units) * UNIT <= layout.slot_bytes * entry.slots.len() as u64
        })
    };
    entry.slots.iter().all(fits) && (entry.kind != ChunkKind::Node || entry.slots.len() <= HOME_SLOTS_MAX)
}

/// Whether a node can be there.
pub(crate) fn is_node_place<'a>(ptr: &Ptr, chunk: impl Fn(ChunkId) -> Option<&'a ChunkEntry>) -> bool {
    let is_inside =
        |entry: &ChunkEntry| entry.kind == ChunkKind::Node && ptr.addr().unit() + ptr.units() <= entry.units;
    ptr.bytes() as usize == NODE_BYTES && chunk(ptr.addr().chunk()).is_some_and(is_inside)
}

/// A table whose nodes are not in chunks of nodes is none: a checkpoint gives back where they were.
fn check_places<'a>(
    tree: &TableTree,
    chunk: impl Fn(ChunkId) -> Option<&'a ChunkEntry>,
) -> Result<(), String> {
    for ((level, index), ptr) in tree.all() {
        if !is_node_place(ptr, &chunk) {
            return Err(format!(
                "node {index} of level {level} is in no chunk of nodes that the chunk table lists"
            ));
        }
    }
    Ok(())
}

/// A shard's catalogue.
pub(crate) struct StoredCatalog {
    pub tree: TableTree,
    pub rows: Rows<u64>,
    pub records: Vec<DatasetRecord>,
}

/// A shard's catalogue.
pub(crate) async fn read_catalog(
    array: &Array,
    pool: Id,
    shard: usize,
    root: &Root,
    slots: impl Fn(&Ptr) -> Option<Vec<SlotRef>>,
    lost: impl Fn(&str) -> bool,
) -> Result<StoredCatalog, String> {
    let slots = |at: &Ref| slots(&at.ptr);
    let Stored { tree, leaves, .. } =
        read_table(array, (pool, shard, Table::Catalog, usize::MAX), root, slots, lost).await?;
    let (mut rows, mut records) = (Tables::default().datasets, Vec::new());
    for (leaf, body) in leaves {
        let impossible =
            || format!("leaf {leaf} of the catalog has a record that is invalid or of a newer version");
        for (place, record) in decode_datasets(&body).map_err(|_| impossible())? {
            let row = rows.row(leaf, place).ok_or_else(impossible)?;
            if !rows.load(row, record.number, 0) {
                return Err(format!("dataset {} is in the catalog twice", record.number));
            }
            records.push(record);
        }
    }
    records.sort_by_key(|record| record.number);
    check_lineage(&records)?;
    Ok(StoredCatalog { tree, rows, records })
}

/// What a shard knows to be lost.
pub(crate) async fn read_damage(
    array: &Array,
    (pool, shard): (Id, usize),
    root: &Root,
    slots: impl Fn(&Ptr) -> Option<Vec<SlotRef>>,
) -> Result<Damage, String> {
    let slots = |at: &Ref| slots(&at.ptr);
    let Stored { tree, leaves, .. } =
        read_table(array, (pool, shard, Table::Damage, usize::MAX), root, slots, |_| false).await?;
    let bodies: Vec<Vec<u8>> = leaves.into_iter().map(|(_, body)| body).collect();
    let damage = Damage::load(&bodies, tree);
    Ok(damage.map_err(|_| "it has a record that is invalid or of a newer version")?)
}

/// A table's nodes and the bodies of its leaves, level by level, some read at a time; no more of one level than `most`. `lost` is told of nodes below the root that
/// cannot be read, and says whether to go on without them.
pub(crate) async fn read_table(
    array: &Array,
    (pool, shard, table, most): (Id, usize, Table, usize),
    root: &Root,
    slots: impl Fn(&Ref) -> Option<Vec<SlotRef>>,
    lost: impl Fn(&str) -> bool,
) -> Result<Stored, String> {
    let (mut tree, mut refs, mut unread, slots) = (TableTree::new(table), Vec::new(), Vec::new(), &slots);
    let mut level: Vec<(u64, Ref)> = match root.at.ptr.is_hole() {
        true => Vec::new(),
        false => vec![(0, root.at.clone())],
    };
    for height in (0..=usize::from(root.height)).rev() {
        let reads = level.iter().map(|(index, at)| async move {
            let header = table.header(pool, shard, height, *index);
            let slots = slots(at).ok_or("it is in a chunk that the chunk table lacks")?;
            read_stored_node(array, &slots, &header, at.ptr).await
        });
        let bodies: Vec<Result<Vec<u8>, String>> = stream::iter(reads).buffered(READS_MAX).collect().await;
        let mut read = Vec::new();
        for ((index, at), body) in level.iter().zip(bodies) {
            match body {
                Ok(body) => read.push((*index, body)),
                Err(error) if height < usize::from(root.height) && lost(&error) => {
                    unread.push(((height, *index), at.ptr));
                    continue;
                }
                Err(error) => return Err(error),
            }
            tree.put((height, *index), Some(at.ptr));
            refs.push(at.clone());
        }
        if height == 0 {
            return Ok(Stored { tree, refs, leaves: read, lost: unread });
        }
        let mut below = Vec::new();
        for (index, body) in read {
            let refs = TableTree::decode_node(table, &body).map_err(|_| {
                format!("node {index} of level {height} has an invalid reference, or is of a newer version")
            })?;
            let known = (index * TableTree::fan_out(table)..).zip(refs);
            below.extend(known.filter(|(_, at)| !at.ptr.is_hole()));
            if below.len() > most {
                return Err(format!("level {} has more nodes than possible", height - 1));
            }
        }
        level = below;
    }
    unreachable!("the last level is that of the leaves")
}

/// The log ring that a chunk table describes.
pub(crate) fn log_ring(entries: &[ChunkEntry]) -> Result<(Ring, Vec<Vec<SlotRef>>), String> {
    let mut chunks: Vec<&ChunkEntry> = entries.iter().filter(|entry| entry.kind == ChunkKind::Log).collect();
    chunks.sort_by_key(|entry| entry.order);
    let first = chunks.first().ok_or("the chunk table has no log")?;
    let ring = Ring { chunk_bytes: u64::from(first.units) * UNIT, chunks: chunks.len() };
    if chunks.iter().enumerate().any(|(nth, chunk)| chunk.order as usize != nth || chunk.units != first.units)
    {
        return Err("the log ring has a gap".into());
    }
    Ok((ring, chunks.into_iter().map(|chunk| chunk.slots.clone()).collect()))
}

/// Reads frames from a ring in order.
pub(crate) struct FrameReader<'a> {
    pub array: &'a Array,
    pub ring: Ring,
    pub chunks: &'a [Vec<SlotRef>],
    pub context: FrameContext,
    pub chain: Chain,
    /// Frames from this sequence on must be of this incarnation.
    pub sealed: u64,
    pub incarnation: u64,
    window: Vec<u8>,
    window_at: u64,
    /// Bytes of the next window.
    window_next: usize,
}

impl<'a> FrameReader<'a> {
    pub fn new(
        array: &'a Array,
        (ring, chunks): (Ring, &'a [Vec<SlotRef>]),
        context: FrameContext,
        root: &ShardRoot,
        incarnation: u64,
    ) -> FrameReader<'a> {
        let (window, window_at) = (Vec::new(), root.tail.position);
        FrameReader {
            array,
            ring,
            chunks,
            context,
            chain: root.tail,
            sealed: root.sealed,
            incarnation,
            window,
            window_at,
            window_next: WINDOW_FIRST,
        }
    }

    fn accepts(&self, frame: &Frame) -> bool {
        frame.sequence < self.sealed
            || frame.incarnation == self.incarnation
            || active(Bug::ReplayIgnoresChain)
    }

    fn decode(&self, bytes: &[u8]) -> Option<(Frame, Vec<u8>)> {
        let mut chain = self.chain;
        if active(Bug::ReplayIgnoresChain) && bytes.len() > 104 {
            chain.previous = Checksum(u128::from_le_bytes(bytes[88..104].try_into().expect("16 bytes")));
            chain.sequence = u64::from_le_bytes(bytes[48..56].try_into().expect("8 bytes"));
            chain.position = u64::from_le_bytes(bytes[56..64].try_into().expect("8 bytes"));
        }
        let (frame, payload) = Frame::decode(bytes, self.context, &chain)?;
        self.accepts(&frame).then(|| (frame, payload.to_vec()))
    }

    /// The next frame and its records; nothing at the end of the log.
    pub async fn next(&mut self) -> Option<(Frame, Vec<u8>)> {
        let unit = UNIT as usize;
        // From the window, if the whole frame is in it.
        let skip = (self.chain.position - self.window_at) as usize;
        if skip + unit > self.window.len() {
            self.fill(unit).await;
        }
        let skip = (self.chain.position - self.window_at) as usize;
        let length = self.window.get(skip..).and_then(|bytes| Frame::peek(bytes, self.context, &self.chain));
        if let Some(length) = length
            && skip + length as usize > self.window.len()
        {
            self.fill(length as usize).await;
        }
        let skip = (self.chain.position - self.window_at) as usize;
        let mut found = self.window.get(skip..).and_then(|bytes| self.decode(bytes));
        if found.is_none() {
            // The window is of whichever copies could be read: look at all of them before calling it the end.
            found = self.search().await;
        }
        let (frame, payload) = found?;
        self.chain = frame.next();
        Some((frame, payload))
    }

    /// A sequence that a frame behind the end of the log says was durable, if that is not before the end: then the log does not end there, a frame
    /// in its middle is right on no copy. Frames that were under way together at a crash do not say so of each other; one of which only the header got to a
    /// disk says what was so before.
    pub async fn durable_beyond(&self) -> Option<u64> {
        let (unit, end) = (UNIT as usize, self.chain);
        let look = BEYOND_LOOK.min(self.ring.bytes()) as usize;
        let mut from = end.position;
        for piece in self.ring.pieces(from, look) {
            for slot in &self.chunks[piece.chunk] {
                // What does not read takes no more with it than it has to.
                let (mut parts, mut failed) = (vec![(0, piece.len)], 0);
                while let Some((at, len)) = parts.pop() {
                    let read = self.array.read(&[*slot], piece.offset + at as u64, len, |_| true).await;
                    let Ok(good) = read else {
                        failed += 1;
                        if len > unit && failed < BEYOND_FAILED_MAX {
                            let half = (len / 2).next_multiple_of(unit);
                            parts.extend([(at + half, len - half), (at, half)]);
                        }
                        continue;
                    };
                    for (position, bytes) in (from + at as u64..).step_by(unit).zip(good.bytes.chunks(unit)) {
                        let frame = Frame::alone(bytes, self.context).filter(|frame| {
                            frame.position == position
                                && frame.sequence > end.sequence
                                && frame.durable >= end.sequence
                                && frame.incarnation == self.incarnation
                        });
                        if let Some(frame) = frame {
                            return Some(frame.durable);
                        }
                    }
                }
            }
            from += piece.len as u64;
        }
        None
    }

    /// The frame at the chain's position, from whichever copies of its parts make it whole.
    async fn search(&self) -> Option<(Frame, Vec<u8>)> {
        let (unit, position) = (UNIT as usize, self.chain.position);
        let lengths = RefCell::new(Vec::new());
        let peek = |head: &[u8]| {
            lengths.borrow_mut().extend(Frame::peek(head, self.context, &self.chain));
            false
        };
        read_ring(self.array, self.ring, self.chunks, position, unit, peek).await;
        if active(Bug::ReplayIgnoresChain) {
            lengths.borrow_mut().push(UNIT as u32);
        }
        for length in lengths.take() {
            let whole = |bytes: &[u8]| self.decode(bytes).is_some();
            if u64::from(length) <= self.ring.bytes()
                && let Some(bytes) =
                    read_ring(self.array, self.ring, self.chunks, position, length as usize, whole).await
            {
                return self.decode(&bytes);
            }
        }
        None
    }

    /// Reads the window anew from the chain's position, so many bytes at least.
    async fn fill(&mut self, least: usize) {
        self.window_at = self.chain.position;
        let len = self.window_next.max(least).min(self.ring.bytes() as usize);
        self.window_next = (self.window_next * 4).min(WINDOW_MAX);
        let window = read_ring(self.array, self.ring, self.chunks, self.window_at, len, |_| true).await;
        self.window = window.unwrap_or_default();
    }
}

/// `len` bytes of a log ring from `position`: the first choice of copies, one for each chunk they lie in, that `accepts` takes.
/// Which disk holds the first copy differs from chunk to chunk, and so does what a missing disk or a crash took.
pub(crate) async fn read_ring(
    array: &Array,
    ring: Ring,
    chunks: &[Vec<SlotRef>],
    position: u64,
    len: usize,
    accepts: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    let pieces = ring.pieces(position, len);
    // The first copy of each piece that can be read: nearly always that is the answer, and others need not be read.
    let mut choices: Vec<Vec<Buf>> = vec![Vec::new(); pieces.len()];
    let most = pieces.iter().map(|piece| chunks[piece.chunk].len()).max()?;
    for copy in 0..most {
        let mut more = false;
        for (piece, choices) in pieces.iter().zip(&mut choices) {
            let Some(slot) = chunks[piece.chunk].get(copy) else { continue };
            if let Ok(good) = array.read(&[*slot], piece.offset, piece.len, |_| true).await
                && !choices.iter().any(|known| known[..] == good.bytes[..])
            {
                choices.push(good.bytes.freeze());
                more = true;
            }
        }
        if !more || choices.iter().any(Vec::is_empty) {
            continue;
        }
        let combinations = choices.iter().map(|choices| choices.len() as u64).product::<u64>();
        for nth in 0..combinations.min(COMBINATIONS_MAX) {
            let mut rest = nth;
            let mut parts = Vec::with_capacity(choices.len());
            for choices in &choices {
                parts.push(&choices[(rest % choices.len() as u64) as usize][..]);
                rest /= choices.len() as u64;
            }
            let bytes = parts.concat();
            if accepts(&bytes) {
                return Some(bytes);
            }
        }
    }
    None
}

/// What a root leads to, the log not yet replayed.
struct Loaded {
    root: ShardRoot,
    parts: ShardParts,
    /// Nodes of tables are lost as well, and what is left is shown.
    is_partial: bool,
}

/// Everything a shard's opening needs.
pub(crate) struct OpenShard<'a> {
    pub rt: Rt,
    pub shared: Arc<PoolShared>,
    pub index: usize,
    pub array: Array,
    pub data_in_log: bool,
    pub lines: Vec<Lines>,
    pub root: &'a ShardRoot,
    pub incarnation: u64,
    pub epoch: u64,
}

impl OpenShard<'_> {
    fn corrupt(&self, message: String) -> Error {
        Error::new(ErrorKind::Corrupt, self.shared.name.clone(), format!("shard {} cannot be read: {message}", self.index))
            .remedy(
                "Bring back all missing disks of the pool and import it again. If none is missing, import it with --read-only --force, and copy \
                 the readable data elsewhere. 'forebay check --offline DISK…' on its disks shows the extent of the damage",
            )
    }

    /// Reads the shard's state and replays its log. The root is as the shard now stands.
    pub async fn open(self) -> Result<(Rc<Shard>, ShardRoot), Error> {
        let (index, was) = (self.index, self.root.clone());
        let stored = match self.load().await {
            Err(error) if self.shared.import.is_rescue() => {
                self.tell("catalog.lost", format!("the volumes of shard {index} are lost: {error}"));
                None
            }
            Err(error) => {
                self.tell(
                    "catalog.unreadable",
                    format!("the pool is not imported: shard {index} cannot be read: {error}"),
                );
                return Err(self.corrupt(error));
            }
            Ok(stored) => Some(stored),
        };
        let is_there = stored.is_some();
        let nothing = || Loaded { root: was.clone(), parts: self.nothing(), is_partial: true };
        let Loaded { root, parts, is_partial } = stored.unwrap_or_else(nothing);
        let incarnation = self.incarnation;
        let shard = Rc::new(Shard::new(self.rt, self.shared, index, self.array, self.data_in_log, parts));
        if !is_there {
            shard.damage.borrow_mut().note_catalog();
            return Ok((shard, root));
        }
        let of_nodes = shard.read_maps_of_nodes().await;
        of_nodes.expect("a pool that is being opened is not suspended");
        shard.share_with_snapshots();
        Replay::new(shard.clone(), root.clone(), incarnation, is_partial).run().await?;
        shard.settle_debts();
        shard.space.borrow_mut().held_since_import();
        if root.needed() < was.needed() {
            shard.tell_cut_short(root.needed(), was.needed(), &was);
        }
        if root.cut < was.cut {
            shard.doubt_arrivals();
        }
        shard.maps.is_opened.set(true);
        let sealed = shard.sealed.get();
        Ok((shard, ShardRoot { sealed, ..root }))
    }

    async fn load(&self) -> Result<Loaded, String> {
        let (pool, index) = (self.shared.id, self.index);
        let is_partial = Cell::new(false);
        let lost = |error: &str| {
            let goes_on = self.shared.import.is_rescue();
            if goes_on && !is_partial.replace(true) {
                self.tell("table.lost", format!("part of the metadata of shard {index} is lost: {error}"));
            }
            goes_on
        };
        let StoredChunks { tree: table, rows: chunks, entries, .. } =
            read_chunk_table(&self.array, pool, index, self.root, lost)
                .await
                .map_err(|error| format!("the chunk table: {error}"))?;
        let (ring, log_chunks) = log_ring(&entries)?;
        let mut root = self.root.clone();
        if self.shared.import.force {
            root = root.ending_at(self.log_end((ring, &log_chunks)).await);
        }
        let space = self.space_of(entries);
        let slots = |ptr: &Ptr| space.chunk(ptr.addr().chunk()).map(|chunk| chunk.entry.slots.clone());
        let StoredCatalog { tree: catalog, rows: datasets, records } =
            read_catalog(&self.array, pool, index, &root.catalog, slots, lost)
                .await
                .map_err(|error| format!("the catalog: {error}"))?;
        let find = |id: ChunkId| space.chunk(id).map(|chunk| &chunk.entry);
        check_places(&catalog, find).map_err(|error| format!("the catalog: {error}"))?;
        let tables = Tables { catalog, datasets, table, chunks };
        let damage = read_damage(&self.array, (pool, index), &root.damage, slots).await;
        let damage = damage.and_then(|damage| check_places(damage.tree(), find).map(|()| damage));
        let damage = match damage {
            Ok(damage) => damage,
            Err(error) => {
                let message = format!(
                    "the table of unrecoverable blocks of shard {index} is lost: {error}. 'forebay pool scrub {}' finds the blocks again",
                    self.shared.name
                );
                self.tell("damage.unknown", message);
                Damage::unknown(&root.damage, find)
            }
        };
        let items = self.load_items(&root.registry, find).await;
        let above = records.iter().map(|record| record.number + 1).max().unwrap_or(0);
        let next_number = root.next_number.max(above);
        let is_snapshot = |record: &DatasetRecord| record.kind == DatasetKind::Snapshot;
        let (snapshots, records): (Vec<_>, Vec<_>) = records.into_iter().partition(is_snapshot);
        let snapshots = snapshots.into_iter().map(Snapshot::new).collect();
        let load = |record: DatasetRecord| {
            let tree = record.tree();
            Rc::new(Dataset::new(record, tree))
        };
        let datasets = records.into_iter().map(load).collect();
        let log = Log::new(ring, log_chunks, root.tail, self.incarnation);
        let (sealed, epoch) = (root.sealed, self.epoch);
        let parts =
            ShardParts { space, datasets, snapshots, log, tables, damage, items, sealed, epoch, next_number };
        Ok(Loaded { root, parts, is_partial: is_partial.get() })
    }

    /// The registry. What is lost of it is lost for good, so it is looked for again first.
    async fn load_items<'a>(&self, root: &Root, chunk: impl Fn(ChunkId) -> Option<&'a ChunkEntry>) -> Items {
        let mut pauses = LOOK_AGAIN.into_iter();
        loop {
            let (items, lost) = read_items(&self.array, (self.shared.id, self.index), root, &chunk).await;
            let Some(error) = lost else { return items };
            if let Some(pause) = pauses.next() {
                self.rt.sleep(pause).await;
                continue;
            }
            let message = format!(
                "part of the pool's registry is lost ({error}): copies of hosts, mappings or service levels. If this machine has the originals, it writes them to the pool again automatically. Otherwise, create the missing ones again"
            );
            self.tell("registry.lost", message);
            return items;
        }
    }

    /// A shard of which nothing can be read, and that nobody writes to.
    fn nothing(&self) -> ShardParts {
        let ring = Ring { chunk_bytes: UNIT, chunks: 1 };
        ShardParts {
            space: Space::new(self.lines.clone()),
            datasets: Datasets::default(),
            snapshots: Snapshots::default(),
            log: Log::new(ring, vec![Vec::new()], self.root.tail, self.incarnation),
            tables: Tables::default(),
            damage: Damage::default(),
            items: Items::default(),
            sealed: self.root.sealed,
            epoch: self.epoch,
            next_number: self.root.next_number,
        }
    }

    /// Where the part of the log ends that can be read.
    async fn log_end(&self, ring: (Ring, &[Vec<SlotRef>])) -> Chain {
        let context =
            FrameContext { pool: self.shared.id, shard: self.index as u16, owner: Owner::default() };
        let mut reader = FrameReader::new(&self.array, ring, context, self.root, self.incarnation);
        while reader.next().await.is_some() {}
        reader.chain
    }

    /// Tells what is lost to an import that shows what is left.
    fn tell(&self, code: &'static str, message: String) {
        let (at, severity, object) = (self.rt.wall(), Severity::Error, self.shared.name.clone());
        (self.shared.events)(Event { at, severity, code, object, message });
    }

    /// The space of these chunks; which units of them are in use is read when it is needed.
    fn space_of(&self, entries: Vec<ChunkEntry>) -> Space {
        let mut space = Space::new(self.lines.clone());
        space.keep_maps(maps_bytes_max(self.shared.memory_per_shard));
        for entry in entries {
            let is_log = entry.kind == ChunkKind::Log;
            space.insert(if is_log { Chunk::fresh(entry) } else { Chunk::stored(entry) });
        }
        space
    }
}
