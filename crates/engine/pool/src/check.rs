//! The offline checker: reads a pool that nobody has imported, and holds it against the invariants.
//!
//! It trusts nothing but the superblock. From there it reads every chunk table, catalogue, tree node and data
//! block; rebuilds the free map from what is reachable and compares it with the stored bitmaps (invariants 1, 6
//! and 10); checks that births grow towards the root (3); follows the log and checks that what it points to
//! lies in space that the checkpoint does not use (2). It writes nothing, not even repairs.

mod trees;

use crate::Import;
use crate::assembly::assemble;
use crate::error::Error;
use crate::format::ShardRoot;
use crate::import::{Found, Probe, build_array, lines, open_error, probe};
use crate::items::read_items;
use crate::open::{
    FrameReader, StoredCatalog, StoredChunks, log_ring, read_catalog, read_chunk_table, read_damage,
};
use async_recursion::async_recursion as boxed;
use forebay_base::Id;
use forebay_compress::Codec;
use forebay_device::{Health, Owner, UNIT, record_bytes};
use forebay_log::{FrameContext, Record, decode_records};
use forebay_raid::{Array, no_crowds};
use forebay_runtime::{OpenMode, Rt};
use forebay_space::{Addr, Bits, ChunkEntry, ChunkId, ChunkKind, Lines, Ptr, decode_record};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Problems reported one by one; beyond this many only their number grows.
const PROBLEMS_MAX: usize = 1000;

/// What the checker found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub pool: Option<Id>,
    pub name: String,
    pub checkpoint: u64,
    pub volumes: u64,
    /// Data blocks and tree nodes that were read and verified.
    pub blocks: u64,
    pub nodes: u64,
    pub log_frames: u64,
    /// One sentence each; empty when every invariant holds.
    pub problems: Vec<String>,
    /// Problems beyond those listed.
    pub problems_unlisted: u64,
}

impl CheckReport {
    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.problems_unlisted += 1;
        }
    }
}

/// Checks the pool whose disks are at `paths`. An error when there is no pool to check.
#[boxed(?Send)]
pub async fn check(rt: &Rt, paths: &[String]) -> Result<CheckReport, Error> {
    let mut found: Vec<Found> = Vec::new();
    for path in paths {
        match probe(rt, path, OpenMode::Read).await {
            Probe::Labelled(disk) => found.push(*disk),
            Probe::Unopened(error) => return Err(open_error(path, &error)),
            Probe::Blank(..) => {}
        }
    }
    let name = found.first().map_or("pool".to_string(), |disk| disk.label.pool.to_string());
    let assembly = assemble(rt, &name, found, Import::default()).await?;
    let label = assembly.label;
    let healths: Vec<Arc<Health>> = label.disks.iter().map(|_| Arc::default()).collect();
    let disks = assembly.disks.into_iter().map(|disk| disk.map(|found| found.disk)).collect();
    let failed = |_| -> forebay_raid::Recorded { Box::pin(std::future::ready(())) };
    let array = build_array(rt, &label, disks, &healths, no_crowds(), Box::new(failed));
    let report = CheckReport {
        pool: Some(label.pool),
        name: label.pool_name.clone(),
        checkpoint: assembly.generation,
        ..CheckReport::default()
    };
    let mut checker = Checker {
        pool: label.pool,
        array,
        report,
        slots: BTreeSet::new(),
        chunk_ids: BTreeSet::new(),
        lines: lines(&label),
        // In a pool that was not exported, lines may be half written: the log knows how they go on.
        exported: assembly.pool.exported,
        codec: Codec::default(),
        own: 0,
        added: 0,
    };
    for (index, root) in assembly.pool.shards.iter().enumerate() {
        checker.shard(index, root, assembly.pool.incarnation).await;
    }
    Ok(checker.report)
}

struct Checker {
    pool: Id,
    array: Array,
    report: CheckReport,
    /// Slots and chunk numbers seen: each belongs to one chunk of one shard.
    slots: BTreeSet<(u16, u32)>,
    chunk_ids: BTreeSet<u32>,
    lines: Vec<Lines>,
    exported: bool,
    codec: Codec,
    /// Blocks of the dataset being looked at that it has for itself.
    own: u64,
    /// Units of data blocks that were born to it.
    added: i64,
}

/// One shard's space, as it is rebuilt.
struct Space {
    chunks: BTreeMap<ChunkId, (ChunkEntry, Bits)>,
}

impl Space {
    /// Whether a block lies in a chunk of its class.
    fn is_home(&self, ptr: &Ptr, block_shift: u8) -> bool {
        let kind = ChunkKind::Data { class: block_shift - UNIT.trailing_zeros() as u8 };
        self.chunks.get(&ptr.addr().chunk()).is_some_and(|(entry, _)| entry.kind == kind)
    }

    fn slots(&self, ptr: &Ptr) -> Option<Vec<forebay_device::SlotRef>> {
        self.chunks.get(&ptr.addr().chunk()).map(|(entry, _)| entry.slots.clone())
    }
}

impl Checker {
    async fn shard(&mut self, index: usize, root: &ShardRoot, incarnation: u64) {
        let StoredChunks { tree, refs, entries, .. } =
            match read_chunk_table(&self.array, self.pool, index, root, |_| false).await {
                Ok(table) => table,
                Err(error) => return self.report.problem(format!("shard {index}: chunk table: {error}")),
            };
        for entry in &entries {
            self.chunk(index, entry);
        }
        let chunks =
            entries.iter().map(|entry| (entry.id, (entry.clone(), Bits::new(entry.units)))).collect();
        let mut space = Space { chunks };
        tree.all().for_each(|(_, ptr)| _ = self.reach(&mut space, ptr, "a node of the chunk table"));
        for at in refs.iter().filter(|at| space.slots(&at.ptr).as_ref() != Some(&at.slots)) {
            let place = at.ptr.addr();
            self.report.problem(format!(
                "shard {index}: the chunk table refers to a node at {place:?}, but that chunk is elsewhere"
            ));
        }
        let slots = |ptr: &Ptr| space.slots(ptr);
        let StoredCatalog { tree, records, .. } =
            match read_catalog(&self.array, self.pool, index, &root.catalog, slots, |_| false).await {
                Ok(catalog) => catalog,
                Err(error) => return self.report.problem(format!("shard {index}: catalog: {error}")),
            };
        tree.all().for_each(|(_, ptr)| _ = self.reach(&mut space, ptr, "a node of the catalog"));
        if let Some(record) = records.iter().find(|record| record.number >= root.next_number) {
            let (number, next) = (record.number, root.next_number);
            self.report.problem(format!(
                "shard {index}: dataset {number} exists, but the next new number is {next}"
            ));
        }
        let slots = |ptr: &Ptr| space.slots(ptr);
        match read_damage(&self.array, (self.pool, index), &root.damage, slots).await {
            Ok(damage) => damage.tree().all().for_each(|(_, ptr)| {
                self.reach(&mut space, ptr, "a node of the table of unrecoverable blocks");
            }),
            Err(error) => {
                self.report.problem(format!("shard {index}: the table of unrecoverable blocks: {error}"))
            }
        }
        let chunk = |id: ChunkId| space.chunks.get(&id).map(|(entry, _)| entry);
        let (items, lost) = read_items(&self.array, (self.pool, index), &root.registry, chunk).await;
        items.tree().all().for_each(|(_, ptr)| _ = self.reach(&mut space, ptr, "a node of the registry"));
        if let Some(error) = lost {
            self.report.problem(format!("shard {index}: part of the registry is lost: {error}"));
        }
        self.trees(&mut space, &records).await;
        self.bitmaps(index, &space, &entries).await;
        self.parity(index, &space).await;
        self.log(index, root, incarnation, &space, &entries).await;
    }

    fn chunk(&mut self, shard: usize, entry: &ChunkEntry) {
        if !self.chunk_ids.insert(entry.id.0) {
            self.report.problem(format!("shard {shard}: chunk {} is in two tables", entry.id.0));
        }
        for slot in &entry.slots {
            if !self.slots.insert((slot.disk, slot.slot)) {
                self.report
                    .problem(format!("slot {} of disk {} belongs to two chunks", slot.slot, slot.disk));
            }
        }
    }

    /// Marks what a pointer occupies; a unit that is reached twice is a problem.
    fn reach(&mut self, space: &mut Space, ptr: &Ptr, what: &str) -> bool {
        let addr: Addr = ptr.addr();
        let Some((entry, reached)) = space.chunks.get_mut(&addr.chunk()) else {
            self.report
                .problem(format!("{what} is in chunk {}, which its shard does not own", addr.chunk().0));
            return false;
        };
        if entry.kind == ChunkKind::Log || addr.unit() + ptr.units() > entry.units {
            self.report.problem(format!("{what} lies outside the data of chunk {}", addr.chunk().0));
            return false;
        }
        if reached.set(addr.unit(), ptr.units()) > 0 {
            self.report.problem(format!("{what} at {addr:?} overlaps other data"));
        }
        true
    }

    async fn bitmaps(&mut self, shard: usize, space: &Space, entries: &[ChunkEntry]) {
        for entry in entries.iter().filter(|entry| entry.kind != ChunkKind::Log) {
            let check = |bytes: &[u8]| decode_record(bytes, self.pool, entry).is_some();
            let len = record_bytes(entry.units.into()) as usize;
            let Ok(record) = self.array.read_record(&entry.slots, entry.alternate, len, check).await else {
                self.report.problem(format!("shard {shard}: the record of chunk {} is lost", entry.id.0));
                continue;
            };
            let (stored, changed) =
                decode_record(&record.bytes, self.pool, entry).expect("checked on reading");
            let lines = self.lines.get(usize::from(entry.group)).copied().unwrap_or_default();
            let is_data = matches!(entry.kind, ChunkKind::Data { .. });
            let says = entry.count_free(&stored, if is_data { lines.units } else { 0 });
            if (says, changed) != ((entry.free, entry.places, entry.lines), entry.changed) {
                self.report.problem(format!(
                    "shard {shard}: chunk {} has {} free units, {} free places and {} free stripes by the table, changed in checkpoint {}; \
                     its record says {says:?} and {changed}",
                    entry.id.0, entry.free, entry.places, entry.lines, entry.changed
                ));
            }
            let reached = &space.chunks[&entry.id].1;
            if stored != *reached {
                let differing = |want: bool| {
                    (0..entry.units)
                        .filter(|unit| stored.get(*unit) == want && reached.get(*unit) != want)
                        .count()
                };
                self.report.problem(format!(
                    "shard {shard}: chunk {} has {} used units without a reference, and {} free units with one",
                    entry.id.0,
                    differing(true),
                    differing(false)
                ));
            }
        }
    }

    /// Compares the parity of every line that holds something with its data.
    async fn parity(&mut self, shard: usize, space: &Space) {
        for (entry, reached) in space.chunks.values() {
            let is_data = matches!(entry.kind, ChunkKind::Data { .. });
            let line = self.lines.get(usize::from(entry.group)).map_or(0, |lines| lines.units);
            if !is_data || line == 0 || !self.exported {
                continue;
            }
            for nth in (0..entry.units / line).filter(|nth| !reached.is_free(nth * line, line)) {
                let found = self.array.scrub_lines(&entry.slots, u64::from(nth)..u64::from(nth) + 1).await;
                if !found.mismatched.is_empty() {
                    let chunk = entry.id.0;
                    self.report.problem(format!(
                        "shard {shard}: stripe {nth} of chunk {chunk} has parity that does not match its data"
                    ));
                }
            }
        }
    }

    async fn log(
        &mut self,
        shard: usize,
        root: &ShardRoot,
        incarnation: u64,
        space: &Space,
        entries: &[ChunkEntry],
    ) {
        let (ring, chunks) = match log_ring(entries) {
            Ok(ring) => ring,
            Err(error) => return self.report.problem(format!("shard {shard}: {error}")),
        };
        let context = FrameContext { pool: self.pool, shard: shard as u16, owner: Owner::default() };
        let mut problems = Vec::new();
        let mut reader = FrameReader::new(&self.array, (ring, &chunks), context, root, incarnation);
        while let Some((frame, payload)) = reader.next().await {
            self.report.log_frames += 1;
            let Ok(records) = decode_records(&payload, frame.records) else {
                problems.push(format!("shard {shard}: log frame {} has an invalid record", frame.sequence));
                break;
            };
            if frame.sequence < root.cut {
                continue;
            }
            for record in records {
                let Record::Write { ptrs, .. } = record else { continue };
                for ptr in ptrs.iter() {
                    // A chunk that the table lacks was granted after the checkpoint: all of it was free.
                    let Some((_, reached)) = space.chunks.get(&ptr.addr().chunk()) else { continue };
                    let unit = ptr.addr().unit();
                    let end = (unit + ptr.units()).min(reached.len());
                    if (unit..end).any(|unit| reached.get(unit)) {
                        problems.push(format!(
                            "shard {shard}: log frame {} points to space that the checkpoint uses, at {:?}",
                            frame.sequence,
                            ptr.addr()
                        ));
                    }
                }
            }
        }
        let wanted = root.needed();
        if reader.chain.sequence < wanted {
            problems.push(format!(
                "shard {shard}: the log ends at frame {}, before frame {wanted}",
                reader.chain.sequence
            ));
        }
        problems.into_iter().for_each(|problem| self.report.problem(problem));
    }
}
