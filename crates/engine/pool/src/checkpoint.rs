//! A shard's part of a checkpoint: from the frozen trees to everything on disk but the superblock.
//!
//! Order: leaves, then interior nodes bottom-up, the catalogue; then the chunk table's nodes are *placed*, and
//! with that the last allocation is made; the bitmaps are closed and written to their alternate slots; the
//! table, which carries their checksums, is written ([`crate::table_write`]); everything is flushed. Nothing allocates through itself.

use crate::added::Added;
use crate::damage::LOOK_AGAIN;
use crate::dataset::Dataset;
use crate::error::IoError;
use crate::format::ShardRoot;
use crate::lineage::FrozenDataset;
use crate::record::{DatasetKind, DatasetRecord};
use crate::shard::{FrozenShard, Shard};
use crate::turns::Turn;
use forebay_base::planted::{Bug, active};
use forebay_device::SlotRef;
use forebay_qos::{Task, Work};
use forebay_raid::DiskSet;
use forebay_runtime::{Buf, completion};
use forebay_space::{ChunkEntry, ChunkKind, Ptr, encode_record};
use forebay_tree::{
    DirtyLeaf, FANOUT, Frozen, Mapped, NODE_BYTES, NodeHeader, decode_ptrs, encode_node, leaf_body,
};
use futures_util::future::join_all;
use std::rc::Rc;

/// Leaves that are read and written together: enough for one large write, few enough to hold in memory.
const BATCH: usize = 64;
/// Chunk records that are written together, each on all disks of its chunk: what clients want next waits for as many on each of them.
const RECORDS_MAX: usize = 8;
/// Nodes that are written at once where they are adjacent: 128 KiB. More of them take a device longer than finding the place.
const RUN_MAX: usize = 8;

/// Nodes on their way to disk.
pub(crate) struct NodeWriter<'a> {
    shard: &'a Rc<Shard>,
    ready: Vec<(Ptr, Buf)>,
    pub touched: DiskSet,
}

impl NodeWriter<'_> {
    /// Encodes a node for a place that was allocated for it.
    pub async fn add_at(&mut self, header: &NodeHeader, place: Ptr, body: &[u8]) -> Result<Ptr, IoError> {
        let mut bytes = self.shard.rt.buffer(NODE_BYTES);
        let ptr = encode_node(header, place, body, &mut bytes);
        self.ready.push((ptr, bytes.freeze()));
        if self.ready.len() >= BATCH {
            self.write().await?;
        }
        Ok(ptr)
    }

    pub async fn add(&mut self, header: &NodeHeader, body: &[u8]) -> Result<Ptr, IoError> {
        let place = self.place().await?;
        self.add_at(header, place, body).await
    }

    pub async fn place(&mut self) -> Result<Ptr, IoError> {
        let place = self.shard.allocate_node().await?;
        self.shard.space.borrow_mut().applied_frozen(&place);
        Ok(place)
    }

    pub async fn write(&mut self) -> Result<(), IoError> {
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
        self.shared.note_checkpoint_step();
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
        let FrozenShard { datasets, mut catalog, items, tail, cut, unflushed } = frozen;
        let mut writer = NodeWriter { shard: self, ready: Vec::new(), touched: unflushed };
        let mut tables = self.tables.take();
        let mut catalog_early = None;
        if active(Bug::CatalogBeforeTree) {
            catalog_early = Some(self.write_catalog(&mut writer, &mut tables, &catalog).await?);
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
                _ => drop(catalog.records.insert(record.number, record)),
            }
        }
        let sealed = self.sealed_snapshots.borrow().clone();
        catalog.records.extend(sealed.into_iter().map(|record| (record.number, record)));
        let root = match catalog_early {
            Some(early) => early,
            None => self.write_catalog(&mut writer, &mut tables, &catalog).await?,
        };
        let damage = self.write_damage(&mut writer).await?;
        let registry = self.write_items(&mut writer, items).await?;
        writer.write().await?;
        self.seal_log(tail.position);
        let table = self.write_chunks(&mut writer, generation, &mut tables).await?;
        self.table_nodes.set(tables.nodes() + self.damage.borrow().nodes());
        *self.tables.borrow_mut() = tables;
        self.nodes_frozen.set(0);
        if !active(Bug::SuperblockBeforeNodes) {
            self.array.flush(&writer.touched).await.map_err(|_| IoError::Io)?;
        }
        self.frozen_tail.set(tail);
        let cut = if active(Bug::LogCutTooFar) { cut + 1 } else { cut };
        let (sealed, scrub) = (self.sealed.get(), self.scrub.at.get());
        let next_number = self.next_number.get().saturating_sub(active(Bug::NumberComesBack).into());
        Ok(ShardRoot { catalog: root, table, tail, cut, sealed, scrub, damage, registry, next_number })
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
        self.read_frozen(&owner, &mut frozen).await?;
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
                let is_loaded = dataset.tree.borrow().is_loaded(level, index);
                if is_loaded {
                    self.node_loaded(owner.number, level, index);
                }
            }
        }
        Ok(())
    }

    /// Reads the interior nodes that are to be written and were changed below without being read.
    async fn read_frozen(&self, owner: &NodeOwner, frozen: &mut Frozen) -> Result<(), IoError> {
        loop {
            let unread = frozen.unread();
            if unread.is_empty() {
                return Ok(());
            }
            for batch in unread.chunks(BATCH.min(self.turns.places_max())) {
                let turn =
                    self.checkpoint_turn(Work::read((batch.len() * NODE_BYTES) as u64, batch.len())).await;
                let bodies = batch.iter().map(|node| async move {
                    let header = self.node_header(owner, node.level, node.index);
                    self.read_frozen_node(&header, node.home).await
                });
                let bodies = join_all(bodies).await;
                drop(turn);
                for (node, ptrs) in batch.iter().zip(bodies) {
                    let ptrs = ptrs?;
                    frozen.load(*node, &ptrs);
                    // The living tree has it as well, unless it was read meanwhile.
                    if let Some(dataset) = &owner.dataset {
                        dataset.tree.borrow_mut().load(*node, &ptrs);
                    }
                }
            }
        }
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
        let stored = if leaf.home.is_hole() {
            vec![Ptr::HOLE; FANOUT as usize]
        } else {
            let header = self.node_header(owner, 0, leaf.index);
            self.read_frozen_node(&header, leaf.home).await?
        };
        let merged = leaf.merge(stored);
        Ok((leaf_body(merged.ptrs.into_iter()), merged.freed, merged.mapped))
    }

    /// The pointers of a node without which the checkpoint fails, and the pool with it: what no disk gives is looked for again.
    async fn read_frozen_node(&self, header: &NodeHeader, home: Ptr) -> Result<Vec<Ptr>, IoError> {
        let mut pauses = LOOK_AGAIN.into_iter().filter(|_| !active(Bug::CheckpointLooksOnce));
        loop {
            match self.read_node(header, home, || true, || true).await {
                Ok(body) => return Ok(decode_ptrs(&body.expect("a frozen pointer is never stale"))),
                Err(error) if self.is_suspended() || self.array.is_lost() => return Err(error),
                Err(error) => match pauses.next() {
                    Some(pause) => self.rt.sleep(pause).await,
                    None => return Err(error),
                },
            }
        }
    }

    fn node_header(&self, owner: &NodeOwner, level: u8, index: u64) -> NodeHeader {
        NodeHeader::of_blocks(self.shared.id, owner.id, level, index)
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

    /// Writes the bitmap of every chunk that changed to its alternate slot. A chunk names its old record, and counts as
    /// changed, until the new one is written: a scrub meanwhile does not read what is half there.
    pub async fn write_records(&self, generation: u64, touched: &mut DiskSet) -> Result<(), IoError> {
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
        self.note_deletion();
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
    number: u64,
}
