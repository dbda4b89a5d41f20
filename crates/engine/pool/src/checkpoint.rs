//! A shard's part of a checkpoint: from the frozen trees to everything on disk but the superblock.
//!
//! Order: leaves, then interior nodes bottom-up, the catalogue; then the chunk table's blocks are *placed*, and
//! with that the last allocation is made; the bitmaps are closed and written to their alternate slots; the
//! table, which carries their checksums, is written; everything is flushed. Nothing allocates through itself.

use crate::added::Added;
use crate::dataset::Dataset;
use crate::error::IoError;
use crate::format::ShardRoot;
use crate::lineage::FrozenDataset;
use crate::record::{DatasetKind, DatasetRecord};
use crate::reserve::Need;
use crate::shard::{FrozenShard, Shard};
use crate::tables::{
    Table, chunk_blocks, chunks_max, encode_catalog, encode_chunks, encode_index, header, scattered,
};
use crate::turns::Turn;
use forebay_base::planted::{Bug, active};
use forebay_device::SlotRef;
use forebay_qos::{Task, Work};
use forebay_raid::DiskSet;
use forebay_runtime::{Buf, completion};
use forebay_space::{ChunkEntry, ChunkKind, Ptr, encode_record};
use forebay_tree::{DirtyLeaf, Frozen, Mapped, NODE_BYTES, NodeHeader, decode_ptrs, encode_node, leaf_body};
use futures_util::future::join_all;
use std::rc::Rc;

/// Leaves that are read and written together: enough for one large write, few enough to hold in memory.
const BATCH: usize = 64;
/// Chunk records that are written together, each on all disks of its chunk: what clients want next waits for as many on each of them.
const RECORDS_MAX: usize = 8;
/// Nodes that are written at once where they are adjacent: 128 KiB. More of them take a device longer than finding the place.
const RUN_MAX: usize = 8;

/// Nodes on their way to disk.
struct NodeWriter<'a> {
    shard: &'a Rc<Shard>,
    ready: Vec<(Ptr, Buf)>,
    touched: DiskSet,
}

impl NodeWriter<'_> {
    /// Encodes a node for a place that was allocated for it.
    async fn add_at(&mut self, header: &NodeHeader, place: Ptr, body: &[u8]) -> Result<Ptr, IoError> {
        let mut bytes = self.shard.rt.buffer(NODE_BYTES);
        let ptr = encode_node(header, place, body, &mut bytes);
        self.ready.push((ptr, bytes.freeze()));
        if self.ready.len() >= BATCH {
            self.write().await?;
        }
        Ok(ptr)
    }

    async fn add(&mut self, header: &NodeHeader, body: &[u8]) -> Result<Ptr, IoError> {
        let place = self.place().await?;
        self.add_at(header, place, body).await
    }

    async fn place(&mut self) -> Result<Ptr, IoError> {
        let place = self.shard.allocate_node().await?;
        self.shard.space.borrow_mut().applied_frozen(&place);
        Ok(place)
    }

    async fn write(&mut self) -> Result<(), IoError> {
        let nodes = std::mem::take(&mut self.ready);
        // What clients want next is behind all of them at the disks.
        let mut rest = &nodes[..];
        while !rest.is_empty() {
            let (some, places) = first_places(rest, self.shard.places_at_once());
            rest = &rest[some.len()..];
            let work = Work::write((some.len() * NODE_BYTES) as u64, places);
            let _turn = self.shard.checkpoint_turn(work).await;
            let writes = some.iter().map(|(ptr, bytes)| (ptr.addr(), bytes.clone())).collect();
            for writing in self.shard.start_writes(writes) {
                self.shard.array.written(writing, &mut self.touched).await.map_err(|_| IoError::Io)?;
            }
        }
        Ok(())
    }
}

/// As many of these as lie in so many places, and in how many. A device writes what is adjacent at once.
fn first_places(nodes: &[(Ptr, Buf)], places_max: usize) -> (&[(Ptr, Buf)], usize) {
    let (mut places, mut run) = (0, 0);
    for (at, (ptr, _)) in nodes.iter().enumerate() {
        let goes_on = run < RUN_MAX && at > 0 && nodes[at - 1].0.is_followed_by(ptr);
        if !goes_on && places == places_max {
            return (&nodes[..at], places);
        }
        (places, run) = if goes_on { (places, run + 1) } else { (places + 1, 1) };
    }
    (nodes, places)
}

impl Shard {
    /// Clients wait for checkpoints with their turns.
    async fn checkpoint_turn(&self, work: Work) -> Turn {
        if active(Bug::CheckpointTakesTurns) {
            return self.task_flow(Task::Checkpoint).turn(work).await;
        }
        self.unasked(Task::Checkpoint, work)
    }

    /// Closes the period between two commits.
    pub async fn freeze(self: &Rc<Self>) {
        let (done, frozen) = completion();
        *self.freeze_request.borrow_mut() = Some(done);
        self.work.send();
        frozen.await;
    }

    /// Writes what was frozen. Durable, and unreachable until the superblock says otherwise.
    pub async fn write_checkpoint(self: &Rc<Self>, generation: u64) -> Result<ShardRoot, IoError> {
        let frozen = self.frozen.borrow_mut().take().expect("frozen before it is written");
        let FrozenShard { datasets, snapshots, tail, cut, unflushed } = frozen;
        let mut writer = NodeWriter { shard: self, ready: Vec::new(), touched: unflushed };
        let mut records = Vec::with_capacity(datasets.len());
        let mut catalog_early = None;
        if active(Bug::CatalogBeforeTree) {
            let records: Vec<_> = datasets.iter().map(|dataset| dataset.record.clone()).collect();
            catalog_early = Some(self.write_catalog(&mut writer, &records).await?);
        }
        for FrozenDataset { mut record, frozen, mut snapshot } in datasets {
            if let Some(frozen) = frozen {
                // What was of a volume that has gone back to a snapshot is not in memory any more.
                let dataset = match record.kind {
                    DatasetKind::Snapshot => None,
                    _ => self.datasets.borrow().get(&record.number).cloned(),
                };
                let owner = NodeOwner { dataset, id: record.family, number: record.number };
                let added = snapshot.as_mut().map(|snapshot| &mut snapshot.added);
                self.write_tree(&mut writer, owner, frozen, &mut record, added).await?;
            }
            if let Some(snapshot) = snapshot {
                let (root, height, mapped) = (record.root, record.height, record.mapped);
                self.seal_snapshot(DatasetRecord { root, height, mapped, ..snapshot });
            }
            match record.kind {
                DatasetKind::Snapshot => self.seal_snapshot(record),
                _ => records.push(record),
            }
        }
        records.extend(snapshots);
        records.extend(self.sealed_snapshots.borrow().iter().cloned());
        let (catalog, mut tables) = match catalog_early {
            Some(early) => early,
            None => self.write_catalog(&mut writer, &records).await?,
        };
        let damage = self.write_damage(&mut writer).await?;
        writer.write().await?;
        let old = std::mem::take(&mut *self.tables.borrow_mut());
        old.iter().for_each(|ptr| self.space.borrow_mut().freed_frozen(ptr));
        self.seal_log(tail.position);
        let (table, table_chunk) = self.write_chunks(&mut writer, generation, &mut tables).await?;
        *self.tables.borrow_mut() = tables;
        self.nodes_frozen.set(0);
        if !active(Bug::SuperblockBeforeNodes) {
            self.array.flush(&writer.touched).await.map_err(|_| IoError::Io)?;
        }
        self.frozen_tail.set(tail);
        let cut = if active(Bug::LogCutTooFar) { cut + 1 } else { cut };
        let (sealed, scrub) = (self.sealed.get(), self.scrub.at.get());
        Ok(ShardRoot { catalog, table, table_chunk, tail, cut, sealed, scrub, damage })
    }

    /// Writes what is frozen of a dataset, or of who has its tree now, and says in its record what became of it. What it lets go of is
    /// subtracted from what the snapshot has added that is `sealed`, if one is.
    async fn write_tree(
        self: &Rc<Self>,
        writer: &mut NodeWriter<'_>,
        owner: NodeOwner,
        mut frozen: Frozen,
        record: &mut DatasetRecord,
        sealed: Option<&mut Added>,
    ) -> Result<(), IoError> {
        let mut resolved = Added::default();
        let mut leaves = frozen.dirty_leaves();
        // Cold leaves are read in the order in which they lie on disk.
        leaves.sort_by_key(|leaf| (leaf.hot().is_none(), leaf.home.addr()));
        if active(Bug::FreezeMissesDirtyLeaf) && leaves.len() > 1 {
            leaves.pop();
        }
        for batch in leaves.chunks(BATCH.min(self.turns.places_max())) {
            let cold = batch.iter().filter(|leaf| leaf.hot().is_none()).count();
            let turn = self.checkpoint_turn(Work::read((cold * NODE_BYTES) as u64, cold)).await;
            let bodies = join_all(batch.iter().map(|leaf| self.leaf_content(&owner, leaf))).await;
            drop(turn);
            for (leaf, content) in batch.iter().zip(bodies) {
                let (body, freed, mapped) = content?;
                frozen.resolved(mapped);
                if !active(Bug::ColdLeafForgetsOldPointer) {
                    freed.iter().for_each(|ptr| self.space.borrow_mut().freed_frozen(ptr));
                }
                let gone = self.resolved(&owner.dataset, record.own.since, &freed);
                record.own.blocks = record.own.blocks.saturating_sub(gone);
                resolved = resolved.without_blocks(&freed);
                let owns = frozen.owns(&leaf.home, 0, leaf.index);
                let ptr = self.replace(writer, &owner, (0, leaf.index), (leaf.home, owns), body).await?;
                frozen.wrote(0, leaf.index, ptr);
            }
        }
        drop(leaves);
        match (sealed, &owner.dataset) {
            (Some(sealed), _) => *sealed = sealed.and(resolved),
            (None, dataset) => {
                record.added = record.added.and(resolved);
                dataset.iter().for_each(|dataset| dataset.added.set(dataset.added.get().and(resolved)));
            }
        }
        for level in 1..=frozen.height() {
            for (index, home, body) in frozen.dirty_inner(level) {
                let owns = frozen.owns(&home, level, index);
                let ptr = self.replace(writer, &owner, (level, index), (home, owns), body).await?;
                frozen.wrote(level, index, ptr);
            }
        }
        writer.write().await?;
        (record.root, record.height, record.mapped) = (frozen.root(), frozen.height(), frozen.mapped());
        let (written, resolved) = frozen.finish();
        if let Some(dataset) = &owner.dataset {
            dataset.tree.borrow_mut().install(&written, resolved);
            let mut now = dataset.record.borrow_mut();
            (now.root, now.height, now.mapped) = (record.root, record.height, record.mapped);
            drop(now);
            for (level, index, _) in written {
                if level == 0 && dataset.tree.borrow().is_loaded(index) {
                    self.leaf_loaded(owner.number, index);
                }
            }
        }
        Ok(())
    }

    /// The body of a dirty leaf (nothing when it is empty), the stored pointers it replaces, and how many blocks more are
    /// mapped.
    async fn leaf_content(
        &self,
        owner: &NodeOwner,
        leaf: &DirtyLeaf,
    ) -> Result<(Option<Vec<u8>>, Vec<Ptr>, Mapped), IoError> {
        if let Some(ptrs) = leaf.hot() {
            return Ok((leaf_body(ptrs.iter()), Vec::new(), Mapped::default()));
        }
        let header = self.node_header(owner, 0, leaf.index);
        let stored =
            self.read_node(&header, leaf.home, || true).await?.expect("a frozen pointer is never stale");
        let merged = leaf.merge(decode_ptrs(&stored));
        Ok((leaf_body(merged.ptrs.into_iter()), merged.freed, merged.mapped))
    }

    fn node_header(&self, owner: &NodeOwner, level: u8, index: u64) -> NodeHeader {
        NodeHeader { pool: self.shared.id, owner: owner.id, level, index }
    }

    /// Writes a node in a new place and frees the old one, if the tree owns it.
    async fn replace(
        &self,
        writer: &mut NodeWriter<'_>,
        owner: &NodeOwner,
        (level, index): (u8, u64),
        (home, owns): (Ptr, bool),
        body: Option<Vec<u8>>,
    ) -> Result<Ptr, IoError> {
        if !home.is_hole() && owns {
            self.space.borrow_mut().freed_frozen(&home);
        }
        match body {
            Some(body) => writer.add(&self.node_header(owner, level, index), &body).await,
            None => Ok(Ptr::HOLE),
        }
    }

    /// Writes the catalogue; gives its index and all its blocks.
    async fn write_catalog(
        &self,
        writer: &mut NodeWriter<'_>,
        records: &[DatasetRecord],
    ) -> Result<(Ptr, Vec<Ptr>), IoError> {
        self.write_table(writer, Table::Catalog, encode_catalog(records)).await
    }

    /// Writes a table that is found through the chunk table; gives its index and all its blocks.
    async fn write_table(
        &self,
        writer: &mut NodeWriter<'_>,
        table: Table,
        bodies: Vec<Vec<u8>>,
    ) -> Result<(Ptr, Vec<Ptr>), IoError> {
        if bodies.is_empty() {
            return Ok((Ptr::HOLE, Vec::new()));
        }
        let mut blocks = Vec::new();
        for (nth, body) in bodies.into_iter().enumerate() {
            let header = header(self.shared.id, self.index, table, nth as u64 + 1);
            blocks.push(writer.add(&header, &body).await?);
        }
        let header = header(self.shared.id, self.index, table, 0);
        let index = writer.add(&header, &encode_index(&[], &blocks)).await?;
        blocks.push(index);
        Ok((index, blocks))
    }

    /// Forgets what is lost where the checkpoint frees it, and writes the table of the rest if it has changed; gives its index.
    async fn write_damage(&self, writer: &mut NodeWriter<'_>) -> Result<Ptr, IoError> {
        let bodies = {
            let (mut damage, space) = (self.damage.borrow_mut(), self.space.borrow());
            if !active(Bug::DamageOutlivesItsBlock) {
                damage.freed(space.frees());
            }
            if !damage.is_changed() {
                return Ok(damage.stored);
            }
            damage.encode()
        };
        let (index, blocks) = self.write_table(writer, Table::Damage, bodies).await?;
        let old = self.damage.borrow_mut().now_at(index, blocks);
        old.iter().for_each(|ptr| self.space.borrow_mut().freed_frozen(ptr));
        Ok(index)
    }

    /// Writes the chunk records and the chunk table; gives its index and the chunk that is in.
    async fn write_chunks(
        self: &Rc<Self>,
        writer: &mut NodeWriter<'_>,
        generation: u64,
        tables: &mut Vec<Ptr>,
    ) -> Result<(Ptr, ChunkEntry), IoError> {
        self.space.borrow_mut().choose_leaving();
        self.space.borrow_mut().close_node_chunk();
        let places = self.place_chunk_table(writer).await?;
        self.space.borrow_mut().seal();
        self.write_records(generation, &mut writer.touched).await?;
        let entries = self.space.borrow().table();
        let mut blocks = Vec::new();
        let mut homes: Vec<ChunkEntry> = Vec::new();
        for (nth, body) in encode_chunks(&entries).into_iter().enumerate() {
            let place = places[nth + 1];
            let header = header(self.shared.id, self.index, Table::Chunks, nth as u64 + 1);
            blocks.push(writer.add_at(&header, place, &body).await?);
        }
        let entry_of = |ptr: &Ptr| entries.iter().find(|entry| entry.id == ptr.addr().chunk()).cloned();
        for ptr in &blocks {
            let entry = entry_of(ptr).expect("the table lists every chunk it is in");
            if !homes.contains(&entry) {
                homes.push(entry);
            }
        }
        let table_chunk = entry_of(&places[0]).expect("the table lists every chunk it is in");
        let header = header(self.shared.id, self.index, Table::Chunks, 0);
        let index = writer.add_at(&header, places[0], &encode_index(&homes, &blocks)).await?;
        writer.write().await?;
        tables.extend(places);
        Ok((index, table_chunk))
    }

    /// Places for the chunk table, its index first, in as few chunks as that can name.
    async fn place_chunk_table(self: &Rc<Self>, writer: &mut NodeWriter<'_>) -> Result<Vec<Ptr>, IoError> {
        let mut places = vec![writer.place().await?];
        loop {
            // Placing a block may bring a chunk, which makes the table longer.
            while places.len() < 1 + chunk_blocks(self.space.borrow().table_len()) {
                places.push(writer.place().await?);
            }
            if self.space.borrow().table_len() > chunks_max() {
                return Err(IoError::NoSpace);
            }
            let elsewhere = scattered(&places[1..]);
            if elsewhere.is_empty() {
                return Ok(places);
            }
            // In a fresh chunk, which is the emptiest, they lie together.
            if !self.grant(ChunkKind::Node, Need::Urgent).await {
                return Err(IoError::NoSpace);
            }
            let mut space = self.space.borrow_mut();
            elsewhere.iter().for_each(|place| space.freed_frozen(place));
            places.retain(|place| !elsewhere.contains(place));
            space.close_node_chunk();
        }
    }

    /// Writes the bitmap of every chunk that changed to its alternate slot. A chunk names its old record, and counts as
    /// changed, until the new one is written: a scrub meanwhile does not read what is half there.
    async fn write_records(&self, generation: u64, touched: &mut DiskSet) -> Result<(), IoError> {
        let dirty = self.space.borrow().dirty_chunks();
        for batch in dirty.chunks(RECORDS_MAX.min(self.turns.places_max())) {
            let (mut writes, mut bytes) = (Vec::new(), 0);
            for id in batch {
                let space = self.space.borrow();
                let chunk = space.chunk(*id).expect("dirty chunks are owned");
                let (record, sum) = encode_record(self.shared.id, generation, *id, &chunk.stored);
                let same = active(Bug::SameAlternateSlot);
                let alternate = if same { chunk.entry.alternate } else { 1 - chunk.entry.alternate };
                bytes += record.len() as u64;
                let record = self.rt.arena().copy(&record).freeze();
                let to: &[SlotRef] = if active(Bug::BitmapNotWritten) { &[] } else { &chunk.entry.slots };
                writes.push((*id, alternate, sum, self.array.write_record(to, alternate, record)));
            }
            let _turn = self.checkpoint_turn(Work::write(bytes, batch.len())).await;
            for (id, alternate, sum, writing) in writes {
                self.array.written(writing, touched).await.map_err(|_| IoError::Io)?;
                self.space.borrow_mut().record_written(id, alternate, sum, generation);
            }
        }
        Ok(())
    }

    /// The superblock is durable: old space is free, the log is cut. Gives the chunks that leave the shard, which may have so many units more
    /// of the pool's.
    pub async fn committed(self: &Rc<Self>, units_more: u64) -> Vec<ChunkEntry> {
        self.holds.earlier_ended().await;
        self.checkpointing.set(false);
        self.add_sealed();
        let leaving = self.space.borrow_mut().release();
        let is_data = |chunk: &&ChunkEntry| matches!(chunk.kind, ChunkKind::Data { .. });
        let leave: u64 = leaving.iter().filter(is_data).map(|chunk| u64::from(chunk.units)).sum();
        self.space.borrow_mut().count_room(units_more + leave);
        self.log.borrow_mut().tail = self.frozen_tail.get().position;
        self.checkpoints.set(self.checkpoints.get() + 1);
        let has_moved = self.switch_log();
        self.progress.changed();
        self.work.send();
        if has_moved {
            // A frame may still be on its way to where the log was.
            self.committed_all().await;
        }
        leaving
    }
}

/// Whose nodes are being written.
struct NodeOwner {
    /// Absent when the dataset was removed since the freeze.
    dataset: Option<Rc<Dataset>>,
    id: forebay_base::Id,
    number: u32,
}
