//! How a checkpoint writes a shard's tables: the leaves in which something changed since the last one, and what is above them.

use crate::checkpoint::NodeWriter;
use crate::error::IoError;
use crate::lineage::FrozenDataset;
use crate::record::{DatasetKind, DatasetRecord};
use crate::shard::Shard;
use crate::table_tree::{Place, Root, TableTree};
use crate::tables::{Table, Tables, encode_chunks, encode_datasets, sort_of, table_nodes};
use forebay_base::planted::{Bug, active};
use forebay_space::{ChunkId, Ptr, Space};
use forebay_tree::{NODE_BYTES, encode_node};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Nodes by which the tables may grow in a checkpoint although they have room for what comes: rows of another sort begin a leaf of their own.
const TABLE_GROWTH: usize = 4;

/// What a freeze captured of the catalogue: the leaves in which something changed, and the records that they have.
#[derive(Default)]
pub(crate) struct FrozenCatalog {
    pub leaves: BTreeSet<u64>,
    pub records: BTreeMap<u64, DatasetRecord>,
}

/// The nodes of the chunk table that a checkpoint writes, and those that are there and belong to it no more.
struct Plan {
    path: BTreeSet<Place>,
    gone: Vec<Place>,
}

impl Shard {
    /// The numbers of the datasets and snapshots that came, changed or went since the last freeze.
    pub fn take_touched(&self) -> BTreeSet<u64> {
        let mut touched = self.snapshots.borrow().take_touched();
        touched.extend(self.datasets.borrow().take_touched());
        touched
    }

    /// Captures what of the catalogue the checkpoint will write. `touched` are the numbers of what came, changed or went; what the checkpoint seals is in
    /// `frozen` only.
    pub fn freeze_catalog(&self, touched: &BTreeSet<u64>, frozen: &[FrozenDataset]) -> FrozenCatalog {
        let (datasets, snapshots) = (self.datasets.borrow(), self.snapshots.borrow());
        let tables = &mut *self.tables.borrow_mut();
        let rows = &mut tables.datasets;
        let mut leaves = BTreeSet::new();
        for number in touched {
            let is_there = datasets.contains_key(number) || snapshots.contains_key(number);
            let leaf = if is_there { Some(rows.take(*number, 0)) } else { rows.remove(*number) };
            leaves.extend(leaf);
        }
        leaves.extend(self.take_suspects(Table::Catalog));
        if self.space.borrow().is_vacating() {
            let space = self.space.borrow();
            leaves.extend(tables.catalog.leaves_to_leave(|id| space.is_in_vacated(id)));
        }
        let mut frozen_records = BTreeMap::new();
        for one in frozen {
            let sealed =
                one.snapshot.iter().chain((one.record.kind == DatasetKind::Snapshot).then_some(&one.record));
            leaves.extend(sealed.map(|record| rows.take(record.number, 0)));
            frozen_records.insert(one.record.number, &one.record);
        }
        let record_of = |number: u64| match (frozen_records.get(&number), datasets.get(&number)) {
            (Some(record), _) => Some((*record).clone()),
            (None, Some(dataset)) => Some(dataset.record_now()),
            (None, None) => snapshots.get(&number).map(|snapshot| snapshot.record.borrow().clone()),
        };
        let in_leaves = |leaf: &u64| rows.in_leaf(*leaf).map(|(_, number)| number).collect::<Vec<u64>>();
        let numbers = leaves.iter().flat_map(in_leaves);
        let records = numbers.filter_map(|number| Some((number, record_of(number)?))).collect();
        if cfg!(debug_assertions) {
            self.compare_catalog(tables, &leaves, record_of);
        }
        FrozenCatalog { leaves, records }
    }

    /// A leaf in which nothing is said to have changed is as it is stored: in tests, one at each checkpoint.
    fn compare_catalog(
        &self,
        tables: &Tables,
        changed: &BTreeSet<u64>,
        record_of: impl Fn(u64) -> Option<DatasetRecord>,
    ) {
        let leaf = self.checkpoints.get() % tables.datasets.leaves().max(1);
        let Some(stored) = tables.catalog.at((0, leaf)).filter(|_| !changed.contains(&leaf)) else { return };
        let records: Vec<(usize, DatasetRecord)> = tables
            .datasets
            .in_leaf(leaf)
            .map(|(place, number)| (place, record_of(number).expect("what has gone was touched")))
            .collect();
        let body = encode_datasets(records.iter().map(|(place, record)| (*place, record)));
        self.compare_leaf(Table::Catalog, leaf, stored, &body.unwrap_or_default());
    }

    /// Nodes that the tables need: a checkpoint may write all of them, and while it does there have to be as many for the next one, since what it replaces
    /// is free only when it is durable.
    pub fn nodes_of_tables(&self) -> u64 {
        self.nodes_of_tables_with(self.space.borrow().chunk_count())
    }

    /// The same with so many chunks.
    fn nodes_of_tables_with(&self, chunks: usize) -> u64 {
        let datasets = self.datasets.borrow().len() + self.snapshots.borrow().len();
        let tables = table_nodes(datasets, chunks).max(self.table_nodes.get());
        (2 * (tables + self.items.borrow().nodes()) + TABLE_GROWTH) as u64
    }

    /// Whether the entry of one chunk more makes the tables take more nodes than there are.
    pub fn lacks_nodes_for_a_chunk(&self) -> bool {
        let more = self.nodes_of_tables_with(self.space.borrow().chunk_count() + 1) - self.nodes_of_tables();
        let space = self.space.borrow();
        more > 0 && self.nodes_needed() + more + space.nodes_held() > space.nodes_free()
    }

    /// Leaves of a table that a scrub wants to be written anew.
    pub fn take_suspects(&self, table: Table) -> BTreeSet<u64> {
        let mut suspects = self.suspects.borrow_mut();
        let (own, others) = std::mem::take(&mut *suspects).into_iter().partition(|(of, _)| *of == table);
        *suspects = others;
        let own: BTreeSet<(Table, u64)> = own;
        own.into_iter().map(|(_, leaf)| leaf).collect()
    }

    fn compare_leaf(&self, table: Table, leaf: u64, stored: Ptr, body: &[u8]) {
        let header = table.header(self.shared.id, self.index, 0, leaf);
        let now = encode_node(&header, stored, body, &mut vec![0; NODE_BYTES]);
        let is_same =
            now.sum == stored.sum || active(Bug::CatalogLeafForgotten) || active(Bug::ChunkEntryStale);
        assert!(is_same, "leaf {leaf} of {table:?} changed, and nobody said so");
    }

    /// Writes the leaves of the catalogue that changed.
    pub async fn write_catalog(
        &self,
        writer: &mut NodeWriter<'_>,
        tables: &mut Tables,
        catalog: &FrozenCatalog,
    ) -> Result<Root, IoError> {
        let mut leaves = catalog.leaves.clone();
        if active(Bug::CatalogLeafForgotten) {
            leaves.pop_first();
        }
        let rows = &tables.datasets;
        let body = |leaf: u64| {
            let known = |(place, number)| catalog.records.get(&number).map(|record| (place, record));
            encode_datasets(rows.in_leaf(leaf).filter_map(known))
        };
        self.write_table(writer, &mut tables.catalog, (&leaves, rows.leaves()), body).await
    }

    /// Writes leaves of a table that is found through the chunk table, and what is above them.
    pub async fn write_table(
        &self,
        writer: &mut NodeWriter<'_>,
        tree: &mut TableTree,
        (changed, leaves): (&BTreeSet<u64>, u64),
        leaf: impl Fn(u64) -> Option<Vec<u8>>,
    ) -> Result<Root, IoError> {
        let (path, gone) = tree.path(changed, leaves);
        let gone = gone.into_iter().map(|place| tree.put(place, None)).collect::<Vec<_>>();
        gone.iter().flatten().for_each(|old| self.space.borrow_mut().freed_frozen(old));
        for place in path {
            let body = if place.0 == 0 { leaf(place.1) } else { tree.encode_node(place, |_| Vec::new()) };
            let header = tree.table.header(self.shared.id, self.index, place.0, place.1);
            let ptr = match body {
                Some(body) => Some(writer.add(&header, &body).await?),
                None => None,
            };
            if let Some(old) = tree.put(place, ptr) {
                self.space.borrow_mut().freed_frozen(&old);
            }
        }
        Ok(tree.root(leaves, |_| Vec::new()))
    }

    /// Forgets what is lost where the checkpoint frees it, and writes the table of the rest if it has changed.
    pub async fn write_damage(&self, writer: &mut NodeWriter<'_>) -> Result<Root, IoError> {
        let (bodies, mut tree) = {
            let (mut damage, space) = (self.damage.borrow_mut(), self.space.borrow());
            if !active(Bug::DamageOutlivesItsBlock) {
                damage.freed(space.frees());
            }
            let must_leave = || damage.has_node_where(|id| space.is_in_vacated(id));
            let is_suspect = !self.take_suspects(Table::Damage).is_empty();
            if !damage.is_changed() && !is_suspect && !must_leave() {
                return Ok(damage.root());
            }
            (damage.encode(), damage.take_tree())
        };
        let leaves = bodies.len() as u64;
        let body = |leaf: u64| Some(bodies[leaf as usize].clone());
        let root = self.write_table(writer, &mut tree, (&(0..leaves).collect(), leaves), body).await?;
        self.damage.borrow_mut().now_at(tree);
        Ok(root)
    }

    /// Closes the bitmaps, and writes the records and entries of the chunks that changed.
    pub async fn write_chunks(
        self: &Rc<Self>,
        writer: &mut NodeWriter<'_>,
        generation: u64,
        tables: &mut Tables,
    ) -> Result<Root, IoError> {
        let kept = self.nodes_needed() + self.space.borrow().nodes_held();
        self.space.borrow_mut().choose_leaving(kept);
        let mut leaves = self.take_suspects(Table::Chunks);
        let left = self
            .space
            .borrow()
            .leaving()
            .iter()
            .filter_map(|id| tables.chunks.remove(*id))
            .collect::<Vec<_>>();
        leaves.extend(left);
        let mut places = Vec::new();
        let mut changed = self.space.borrow().changing();
        let plan = loop {
            let plan = plan(tables, &self.space.borrow(), &mut changed, &mut leaves);
            // What changes in a chunk is put into what its record says.
            let unread = self.space.borrow().unread(changed.iter().copied());
            if !unread.is_empty() {
                self.read_maps(unread.into_iter().map(|entry| entry.id)).await?;
                continue;
            }
            if places.len() >= plan.path.len() {
                break plan;
            }
            // Each may bring a chunk, or change one whose entry is elsewhere.
            for _ in places.len()..plan.path.len() {
                let place = writer.place().await?;
                changed.insert(place.addr().chunk());
                places.push(place);
            }
        };
        settle(&plan, tables, places, &mut self.space.borrow_mut());
        self.space.borrow_mut().seal();
        self.write_records(generation, &mut writer.touched).await?;
        let home = |ptr: &Ptr| self.slots(ptr).expect("the shard owns what its table is in");
        for place in plan.path {
            let Some(at) = tables.table.at(place) else { continue };
            let body = match place {
                (0, leaf) => self.encode_chunk_leaf(tables, leaf),
                place => tables.table.encode_node(place, home),
            };
            let header = Table::Chunks.header(self.shared.id, self.index, place.0, place.1);
            let ptr =
                writer.add_at(&header, at, &body.expect("it was settled that there is something")).await?;
            tables.table.put(place, Some(ptr));
        }
        writer.write().await?;
        if cfg!(debug_assertions) {
            let leaf = generation % tables.chunks.leaves().max(1);
            if let Some(stored) = tables.table.at((0, leaf)) {
                let body = self.encode_chunk_leaf(tables, leaf).unwrap_or_default();
                self.compare_leaf(Table::Chunks, leaf, stored, &body);
            }
        }
        Ok(tables.table.root(tables.chunks.leaves(), home))
    }

    fn encode_chunk_leaf(&self, tables: &Tables, leaf: u64) -> Option<Vec<u8>> {
        let space = self.space.borrow();
        let entry = |(place, id)| (place, &space.chunk(id).expect("a chunk with a row is owned").entry);
        encode_chunks(tables.chunks.in_leaf(leaf).map(entry))
    }
}

/// What of the chunk table changes with what is known now, its own nodes included: they lie in chunks, too. Adds to the chunks that have `changed`, and to the
/// `leaves` that are to be written.
fn plan(
    tables: &mut Tables,
    space: &Space,
    changed: &mut BTreeSet<ChunkId>,
    leaves: &mut BTreeSet<u64>,
) -> Plan {
    changed.extend(space.touched().chain(space.moved_chunks()));
    for id in &*changed {
        let chunk = space.chunk(*id).expect("what changes is owned");
        leaves.insert(tables.chunks.take(*id, sort_of(chunk.entry.kind)));
    }
    // References to what is in a chunk that has moved name other slots: what is there is written anew, and so what refers to it.
    let moved = space.moved_chunks();
    if !moved.is_empty() && !active(Bug::TableHomeStale) {
        leaves.extend(tables.table.leaves_to_leave(|id| moved.contains(&id)));
    }
    if space.is_vacating() {
        leaves.extend(tables.table.leaves_to_leave(|id| space.is_in_vacated(id)));
    }
    loop {
        let (path, gone) = tables.table.path(leaves, tables.chunks.leaves());
        let left = path.iter().chain(&gone).filter_map(|place| tables.table.at(*place));
        let before = changed.len();
        for id in left.map(|ptr| ptr.addr().chunk()) {
            if changed.insert(id) {
                let chunk = space.chunk(id).expect("the shard owns what its table is in");
                leaves.insert(tables.chunks.take(id, sort_of(chunk.entry.kind)));
            }
        }
        if changed.len() == before {
            return Plan { path, gone };
        }
    }
}

/// Gives each node of the plan that has something in it one of these places, and frees what they were in.
fn settle(plan: &Plan, tables: &mut Tables, places: Vec<Ptr>, space: &mut Space) {
    let height = plan.path.last().map_or(0, |(level, _)| *level);
    let mut places = places.into_iter();
    for place in plan.gone.iter().chain(&plan.path) {
        let is_middle = place.0 > 0 && place.0 < height && active(Bug::TableWithoutMiddle);
        let has_something = match *place {
            place if !plan.path.contains(&place) => false,
            (0, leaf) => tables.chunks.in_leaf(leaf).next().is_some(),
            place => tables.table.has_below(place),
        };
        let to = if has_something && !is_middle { places.next() } else { None };
        if let Some(old) = tables.table.put(*place, to) {
            space.freed_frozen(&old);
        }
    }
    // One that has no use goes back with this checkpoint.
    places.for_each(|left| space.freed_frozen(&left));
}
