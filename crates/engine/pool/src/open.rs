//! Opening a shard: from its root in the superblock to trees, space and the end of the log.
//!
//! Replay reads frames from the tail until one does not continue the chain. Frames up to the greatest `durable`
//! seen (and all that an earlier import sealed) were complete before later ones were written: they count
//! without a look at their data. The *doubtful* ones after that may be the last, never acknowledged commit, whose
//! frame reached the disk and whose data did not; each of their pointers is verified on every copy. The first frame
//! with a block that verifies nowhere ends the log, whole: nothing after it can have been acknowledged.
//! What is accepted in doubt is rewritten on the copies that lack it, so that a later import cannot see it otherwise.
//!
//! Frames before the cut are in the trees already; they are read for blocks that live in the log alone.

use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind};
use crate::format::{DatasetRecord, ShardRoot};
use crate::registry::PoolShared;
use crate::shard::{Log, Shard, ShardParts};
use crate::spec::Severity;
use crate::tables::{Table, decode_catalog, decode_chunks, decode_index, header};
use forebay_base::planted::{Bug, active};
use forebay_base::{Checksum, Id};
use forebay_device::{SlotRef, UNIT};
use forebay_log::{Chain, Frame, FrameContext, Record, Ring, decode_records};
use forebay_raid::{Array, DiskSet};
use forebay_runtime::{Buf, Rt};
use forebay_space::{Chunk, ChunkEntry, ChunkKind, Ptr, Space, decode_record};
use forebay_tree::{NODE_BODY, NODE_BYTES, NodeHeader, Tree, decode_node, decode_ptrs};
use futures_util::future::join_all;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of the ring that replay reads at a time.
const WINDOW: usize = 4 << 20;
/// Interior nodes and chunk records that are read together.
const BATCH: usize = 64;

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

/// A shard's chunk table, its own blocks first.
pub(crate) async fn read_chunk_table(
    array: &Array,
    pool: Id,
    shard: usize,
    root: &ShardRoot,
) -> Result<(Vec<ChunkEntry>, Vec<Ptr>), String> {
    let index_header = header(pool, shard, Table::Chunks, 0);
    let body = read_stored_node(array, &root.table_chunk.slots, &index_header, root.table).await?;
    let (homes, blocks) =
        decode_index(&body).ok().flatten().ok_or("the chunk table's index is impossible")?;
    let mut entries = Vec::new();
    let mut nodes = vec![root.table];
    for (nth, ptr) in blocks.into_iter().enumerate() {
        let home = homes
            .iter()
            .find(|home| home.id == ptr.addr().chunk())
            .ok_or("the chunk table lacks its own chunk")?;
        let block_header = header(pool, shard, Table::Chunks, nth as u64 + 1);
        let body = read_stored_node(array, &home.slots, &block_header, ptr).await?;
        entries.extend(decode_chunks(&body));
        nodes.push(ptr);
    }
    Ok((entries, nodes))
}

/// A shard's catalogue.
pub(crate) async fn read_catalog(
    array: &Array,
    pool: Id,
    shard: usize,
    catalog: Ptr,
    slots: impl Fn(&Ptr) -> Option<Vec<SlotRef>>,
) -> Result<(Vec<DatasetRecord>, Vec<Ptr>), String> {
    if catalog.is_hole() {
        return Ok((Vec::new(), Vec::new()));
    }
    let missing = "the catalogue is in a chunk that the table lacks";
    let index_header = header(pool, shard, Table::Catalog, 0);
    let body = read_stored_node(array, &slots(&catalog).ok_or(missing)?, &index_header, catalog).await?;
    let (_, blocks) = decode_index(&body).ok().flatten().ok_or("the catalogue's index is impossible")?;
    let (mut records, mut nodes) = (Vec::new(), vec![catalog]);
    for (nth, ptr) in blocks.into_iter().enumerate() {
        let block_header = header(pool, shard, Table::Catalog, nth as u64 + 1);
        let body = read_stored_node(array, &slots(&ptr).ok_or(missing)?, &block_header, ptr).await?;
        records.extend(decode_catalog(&body));
        nodes.push(ptr);
    }
    Ok((records, nodes))
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
        }
    }

    /// `len` bytes of the ring from `position`, with copy `copy` of each chunk first; nothing when that copy cannot be read.
    async fn bytes(&self, position: u64, len: usize, copy: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        for piece in self.ring.pieces(position, len) {
            let slots = &self.chunks[piece.chunk];
            let slot = slots.get(copy)?;
            let good = self.array.read(&[*slot], piece.offset, piece.len, |_| true).await.ok()?;
            bytes.extend_from_slice(&good.bytes);
        }
        Some(bytes)
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
            self.fill().await;
        }
        let skip = (self.chain.position - self.window_at) as usize;
        let length = self.window.get(skip..).and_then(|bytes| Frame::peek(bytes, self.context, &self.chain));
        if let Some(length) = length
            && skip + length as usize > self.window.len()
        {
            self.fill().await;
        }
        let skip = (self.chain.position - self.window_at) as usize;
        let mut found = self.window.get(skip..).and_then(|bytes| self.decode(bytes));
        for copy in 0..self.chunks[0].len() {
            if found.is_some() {
                break;
            }
            // The window is of whichever copy could be read: look at each by itself before calling it the end.
            let Some(head) = self.bytes(self.chain.position, unit, copy).await else { continue };
            let ring = self.ring.bytes();
            let length =
                Frame::peek(&head, self.context, &self.chain).filter(|length| u64::from(*length) <= ring);
            let length = length
                .map_or(if active(Bug::ReplayIgnoresChain) { unit } else { 0 }, |length| length as usize);
            if length > 0
                && let Some(bytes) = self.bytes(self.chain.position, length, copy).await
            {
                found = self.decode(&bytes);
            }
        }
        let (frame, payload) = found?;
        self.chain = frame.next();
        Some((frame, payload))
    }

    /// Reads the window anew from the chain's position.
    async fn fill(&mut self) {
        self.window_at = self.chain.position;
        let len = WINDOW.min(self.ring.bytes() as usize);
        self.window = Vec::new();
        for copy in 0..self.chunks[0].len() {
            if let Some(bytes) = self.bytes(self.window_at, len, copy).await {
                self.window = bytes;
                return;
            }
        }
    }
}

/// Everything a shard's opening needs.
pub(crate) struct OpenShard<'a> {
    pub rt: Rt,
    pub shared: Arc<PoolShared>,
    pub index: usize,
    pub array: Array,
    pub data_in_log: bool,
    pub root: &'a ShardRoot,
    pub incarnation: u64,
    pub epoch: u64,
}

impl OpenShard<'_> {
    fn corrupt(&self, message: String) -> Error {
        Error::new(ErrorKind::Corrupt, self.shared.name.clone(), format!("shard {} cannot be read: {message}", self.index))
            .remedy("Bring back every disk of the pool and import again; 'forebay check --offline' on its disks shows the extent")
    }

    /// Reads the shard's state and replays its log.
    pub async fn open(self) -> Result<Rc<Shard>, Error> {
        let (pool, index) = (self.shared.id, self.index);
        let (entries, mut tables) = read_chunk_table(&self.array, pool, index, self.root)
            .await
            .map_err(|error| self.corrupt(error))?;
        let (ring, log_chunks) = log_ring(&entries).map_err(|error| self.corrupt(error))?;
        let (space, lost) = self.load_space(entries).await;
        let slots = |ptr: &Ptr| space.chunk(ptr.addr().chunk()).map(|chunk| chunk.entry.slots.clone());
        let (records, catalog) = read_catalog(&self.array, pool, index, self.root.catalog, slots)
            .await
            .map_err(|error| self.corrupt(error))?;
        tables.extend(catalog);
        let mut datasets = BTreeMap::new();
        for record in records {
            let tree = self.load_tree(&space, &record).await.map_err(|error| self.corrupt(error))?;
            datasets.insert(record.number, Rc::new(Dataset::new(record, tree)));
        }
        let log = Log {
            ring,
            chunks: log_chunks,
            chain: self.root.tail,
            tail: self.root.tail.position,
            durable: 0,
            unflushed: DiskSet::default(),
            unflushed_bytes: 0,
            incarnation: self.incarnation,
            marked: 0,
            frame_start: self.root.tail,
            staged: BTreeMap::new(),
        };
        let (root, incarnation) = (self.root.clone(), self.incarnation);
        let parts = ShardParts { space, datasets, log, tables, sealed: root.sealed, epoch: self.epoch };
        let shard = Rc::new(Shard::new(self.rt, self.shared, index, self.array, self.data_in_log, parts));
        for chunk in lost {
            let message =
                format!("the free-space record of chunk {chunk} is lost; its free space stays unused");
            shard.event(Severity::Warning, "space.record_lost", &shard.shared.name.clone(), message);
        }
        Replay { shard: shard.clone(), root, incarnation }.run().await?;
        Ok(shard)
    }

    async fn load_space(&self, entries: Vec<ChunkEntry>) -> (Space, Vec<u32>) {
        let (mut space, mut lost) = (Space::default(), Vec::new());
        for batch in entries.chunks(BATCH) {
            let read = batch.iter().map(|entry| async {
                if entry.kind == ChunkKind::Log {
                    return Some(Chunk::fresh(entry.clone()));
                }
                let check = |bytes: &[u8]| decode_record(bytes, self.shared.id, entry).is_some();
                let record = self.array.read_record(&entry.slots, entry.alternate, check).await.ok()?;
                let stored = decode_record(&record, self.shared.id, entry).expect("checked on reading");
                Some(Chunk::load(entry.clone(), stored))
            });
            for (entry, chunk) in batch.iter().zip(join_all(read).await) {
                space.insert(chunk.unwrap_or_else(|| {
                    lost.push(entry.id.0);
                    Chunk::unknown(entry.clone())
                }));
            }
        }
        (space, lost)
    }

    async fn load_tree(&self, space: &Space, record: &DatasetRecord) -> Result<Tree, String> {
        let mut tree = Tree::stored(record.root, record.height, record.mapped);
        loop {
            let missing = tree.missing_inner();
            if missing.is_empty() {
                tree.grow(record.blocks());
                return Ok(tree);
            }
            for batch in missing.chunks(BATCH) {
                let read = batch.iter().map(|&(level, index, ptr)| async move {
                    let header = NodeHeader { pool: self.shared.id, owner: record.id, level, index };
                    let chunk = space
                        .chunk(ptr.addr().chunk())
                        .ok_or("a tree node is in a chunk that the table lacks")?;
                    read_stored_node(&self.array, &chunk.entry.slots, &header, ptr).await
                });
                for (&(level, index, ptr), body) in batch.iter().zip(join_all(read).await) {
                    tree.load_inner(level, index, ptr, decode_ptrs(&body?));
                }
            }
        }
    }
}

struct Replay {
    shard: Rc<Shard>,
    root: ShardRoot,
    incarnation: u64,
}

impl Replay {
    async fn run(self) -> Result<(), Error> {
        let (ring, chunks) = {
            let log = self.shard.log.borrow();
            (log.ring, log.chunks.clone())
        };
        let context = self.shard.frame_context();
        let mut reader =
            FrameReader::new(&self.shard.array, (ring, &chunks), context, &self.root, self.incarnation);
        let mut certain = self.root.sealed.saturating_sub(1);
        let mut waiting: VecDeque<(Chain, Frame, Vec<u8>)> = VecDeque::new();
        loop {
            let start = reader.chain;
            let Some((frame, payload)) = reader.next().await else { break };
            certain = certain.max(frame.durable);
            waiting.push_back((start, frame, payload));
            while waiting.front().is_some_and(|(_, frame, _)| frame.sequence <= certain) {
                let (start, frame, payload) = waiting.pop_front().expect("just seen");
                self.apply(start, &frame, &payload)?;
            }
        }
        // Frames before the cut say which staged blocks are out of date, and sealed ones were served by an earlier import:
        // going on without them would bring old contents back.
        let needed = self.root.cut.max(self.root.sealed);
        if reader.chain.sequence < needed {
            let message = format!(
                "the log ends at frame {}, frames up to {} are needed",
                reader.chain.sequence,
                needed - 1
            );
            let error = self.error(ErrorKind::Corrupt, &message);
            return Err(error.remedy("Give the paths of all its disks: another copy of the log may be whole"));
        }
        if active(Bug::ReplaySkipsLastFrame) {
            waiting.pop_back();
        }
        for (start, frame, payload) in waiting {
            if !self.verify(&frame, &payload).await {
                if active(Bug::ReplayContinuesAfterGap) {
                    continue;
                }
                break;
            }
            self.settle(&start, &frame).await;
            self.apply(start, &frame, &payload)?;
        }
        // What was accepted in doubt is certain from here on: the next superblock seals it.
        let disks = self.all_disks();
        let lost = self.shard.array.flush(&disks).await.is_err();
        let mut log = self.shard.log.borrow_mut();
        log.durable = log.chain.sequence.saturating_sub(1);
        log.marked = log.durable;
        self.shard.sealed.set(log.chain.sequence);
        if lost { Err(self.error(ErrorKind::Io, "the disks could not be flushed")) } else { Ok(()) }
    }

    fn error(&self, kind: ErrorKind, message: &str) -> Error {
        Error::new(kind, self.shard.shared.name.clone(), format!("shard {}: {message}", self.shard.index))
    }

    fn all_disks(&self) -> DiskSet {
        let mut disks = DiskSet::default();
        (0..self.shard.array.members().len() as u16).for_each(|disk| disks.insert(disk));
        disks
    }

    /// Applies a frame that counts.
    fn apply(&self, start: Chain, frame: &Frame, payload: &[u8]) -> Result<(), Error> {
        let impossible = || self.error(ErrorKind::Corrupt, "the log holds an impossible record");
        let records = decode_records(payload, frame.records).map_err(|_| impossible())?;
        {
            let mut log = self.shard.log.borrow_mut();
            log.frame_start = start;
            log.chain = frame.next();
        }
        let staged_only = frame.sequence < self.root.cut;
        for record in records {
            self.replay(record, frame.sequence, staged_only).ok_or_else(impossible)?;
        }
        Ok(())
    }

    /// Nothing when the record cannot be true.
    fn replay(&self, record: Record, sequence: u64, staged_only: bool) -> Option<()> {
        let shard = &self.shard;
        let dataset = |number: u32| shard.datasets.borrow().get(&number).cloned();
        let unstage = |dataset: &Dataset, first: u64, count: u64| {
            let gone: Vec<u64> = dataset
                .staged
                .borrow()
                .range(first..first.saturating_add(count))
                .map(|(block, _)| *block)
                .collect();
            for block in gone {
                let staged = dataset.staged.borrow_mut().remove(&block).expect("just listed");
                shard.unstage(&staged);
            }
        };
        match record {
            Record::Write { dataset: number, first, ptrs } => {
                let Some(dataset) = dataset(number) else { return staged_only.then_some(()) };
                unstage(&dataset, first, ptrs.len() as u64);
                if staged_only {
                    return Some(());
                }
                if first.checked_add(ptrs.len() as u64)? > dataset.record.borrow().blocks() {
                    return None;
                }
                let ptrs =
                    if active(Bug::TornWriteAccepted) { &ptrs[..ptrs.len().div_ceil(2)] } else { &ptrs[..] };
                let mut freed = Vec::new();
                let mut space = shard.space.borrow_mut();
                if !ptrs.iter().all(|ptr| space.claim(ptr)) {
                    return None;
                }
                let set = |tree: &mut Tree| {
                    (first..).zip(ptrs).for_each(|(block, ptr)| tree.set(block, *ptr, &mut freed))
                };
                shard.change_tree(&dataset, set);
                freed.iter().for_each(|ptr| space.freed(ptr));
            }
            Record::Data { dataset: number, first, block_bytes, blocks } => {
                let Some(dataset) = dataset(number) else { return staged_only.then_some(()) };
                let blocks_all = dataset.record.borrow().blocks();
                if block_bytes as usize != dataset.block_bytes()
                    || first.checked_add(blocks.len() as u64).is_none_or(|end| end > blocks_all)
                {
                    return None;
                }
                let copy = |block: &[u8]| -> Buf { shard.rt.arena().copy(block).freeze() };
                let blocks = blocks.into_iter().map(|block| (copy(block), None)).collect();
                shard.stage(&dataset, first, blocks, sequence, 0);
            }
            Record::Clear { dataset: number, first, count } => {
                let Some(dataset) = dataset(number) else { return staged_only.then_some(()) };
                unstage(&dataset, first, count);
                if !staged_only {
                    let mut freed = Vec::new();
                    shard.change_tree(&dataset, |tree| tree.clear(first, count, &mut freed));
                    let mut space = shard.space.borrow_mut();
                    freed.iter().for_each(|ptr| space.freed(ptr));
                }
            }
            Record::Put { record, .. } if !staged_only => {
                shard.apply_put(DatasetRecord::decode(record).ok().flatten()?)
            }
            Record::Remove { dataset } if !staged_only => shard.apply_remove(dataset),
            Record::Grant { chunk } if !staged_only => {
                let mut space = shard.space.borrow_mut();
                let id = chunk.id;
                if !space.contains(id) {
                    space.insert(Chunk::fresh(chunk));
                }
                space.grant_logged(id);
            }
            Record::Put { .. } | Record::Remove { .. } | Record::Grant { .. } => {}
        }
        Some(())
    }

    /// Whether every block that a doubtful frame points to is there, on some copy. Mends the others.
    async fn verify(&self, frame: &Frame, payload: &[u8]) -> bool {
        if frame.sequence < self.root.cut || active(Bug::ReplayNoDataVerification) {
            return true;
        }
        let Ok(records) = decode_records(payload, frame.records) else { return false };
        let mut granted: BTreeMap<u32, Vec<SlotRef>> = BTreeMap::new();
        for record in records {
            match record {
                Record::Grant { chunk } => drop(granted.insert(chunk.id.0, chunk.slots)),
                Record::Write { ptrs, .. } => {
                    for ptr in ptrs.iter() {
                        let slots =
                            granted.get(&ptr.addr().chunk().0).cloned().or_else(|| self.shard.slots(ptr));
                        let Some(slots) = slots else { return false };
                        if !self.verify_block(&slots, ptr).await {
                            return false;
                        }
                    }
                }
                _ => {}
            }
        }
        true
    }

    async fn verify_block(&self, slots: &[SlotRef], ptr: &Ptr) -> bool {
        let check = |bytes: &[u8]| Checksum::of(bytes) == ptr.sum;
        let array = &self.shard.array;
        let (offset, len) = (ptr.addr().offset(), ptr.bytes() as usize);
        array.mend(slots, offset, len, check).await
    }

    /// Makes every copy of a frame that was accepted in doubt the same.
    async fn settle(&self, start: &Chain, frame: &Frame) {
        let (ring, chunks) = {
            let log = self.shard.log.borrow();
            (log.ring, log.chunks.clone())
        };
        let context = self.shard.frame_context();
        let array = &self.shard.array;
        let whole = |bytes: &[u8]| Frame::decode(bytes, context, start).is_some();
        let pieces = ring.pieces(start.position, frame.length as usize);
        if let [piece] = pieces[..] {
            let slots = &chunks[piece.chunk];
            array.mend(slots, piece.offset, piece.len, whole).await;
            return;
        }
        // Across a chunk boundary: take the frame from whichever copy has it whole and write all pieces everywhere.
        for copy in 0..chunks[0].len() {
            let mut bytes = Vec::with_capacity(frame.length as usize);
            for piece in &pieces {
                let Some(slot) = chunks[piece.chunk].get(copy) else { break };
                let Ok(good) = array.read(&[*slot], piece.offset, piece.len, |_| true).await else { break };
                bytes.extend_from_slice(&good.bytes);
            }
            if bytes.len() == frame.length as usize && whole(&bytes) {
                let mut from = 0;
                for piece in &pieces {
                    let part = self.shard.rt.arena().copy(&bytes[from..from + piece.len]).freeze();
                    let slots = &chunks[piece.chunk];
                    array.repair(slots, slots, piece.offset, &part).await;
                    from += piece.len;
                }
                return;
            }
        }
    }
}
