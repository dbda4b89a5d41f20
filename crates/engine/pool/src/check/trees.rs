//! The trees of a shard, those of snapshots and of what grew from them.
//!
//! What a dataset shares is looked at where it was born, so every block and node is reached once. The rest of the proof is that what a
//! dataset takes for shared its parent has indeed, at the same place: otherwise it points to space that somebody freed.

use super::{Checker, Space};
use crate::parts::IN_PART;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use forebay_base::Checksum;
use forebay_space::Ptr;
use forebay_tree::{FANOUT, Mapped, NODE_BYTES, NodeHeader, Shared, decode_node, decode_ptrs, leaves_end};
use std::collections::{BTreeMap, BTreeSet};

/// A node of a parent: at the same place as the child's, or the root of a tree that is not as high.
#[derive(Clone, Copy)]
struct Beside {
    level: u8,
    ptr: Ptr,
}

impl Beside {
    const NOTHING: Beside = Beside { level: 0, ptr: Ptr::HOLE };

    fn of(record: Option<&DatasetRecord>) -> Beside {
        record.map_or(Beside::NOTHING, |record| Beside { level: record.height, ptr: record.root })
    }

    /// What is there, if it is of this level.
    fn at(&self, level: u8) -> Ptr {
        if self.level == level { self.ptr } else { Ptr::HOLE }
    }
}

/// A dataset, and from whom it has what.
struct Lineage<'a> {
    record: &'a DatasetRecord,
    shared: Shared,
    /// Leaves before this one are given back already.
    gone: u64,
}

/// A place in a dataset's tree, with what its parent and the parent of that have there.
#[derive(Clone, Copy)]
struct Place {
    level: u8,
    index: u64,
    ptr: Ptr,
    parent: Beside,
    before: Beside,
}

impl Checker {
    pub(super) async fn trees(&mut self, space: &mut Space, records: &[DatasetRecord]) {
        let snapshots = records.iter().filter(|record| record.kind == DatasetKind::Snapshot);
        let snapshots: BTreeMap<u64, &DatasetRecord> =
            snapshots.map(|record| (record.number, record)).collect();
        let find = |number: Option<u64>| number.and_then(|number| snapshots.get(&number).copied());
        let numbers: BTreeSet<u64> = records.iter().map(|record| record.number).collect();
        let mut counts = Vec::with_capacity(records.len());
        for record in records {
            let parent = find(record.parent);
            if record.parent.is_some() && parent.is_none() {
                self.report.problem(format!("{}: its parent is missing", name(record)));
            }
            let is_live_mark = record.kind == DatasetKind::Bookmark && record.state == DatasetState::Live;
            if is_live_mark && !numbers.contains(&record.volume) {
                self.report.problem(format!("{}: its volume is missing", name(record)));
            }
            let before = parent.and_then(|parent| find(parent.parent));
            let shared = Shared {
                upto: parent.map_or(0, |parent| parent.epoch),
                passed: parent.map_or(0, |parent| parent.cursor),
                before: before.map_or(0, |before| before.epoch),
            };
            let is_snapshot = record.kind == DatasetKind::Snapshot;
            let lineage = Lineage { record, shared, gone: if is_snapshot { record.cursor } else { 0 } };
            let (level, ptr) = (record.height, record.root);
            let (parent, before) = (Beside::of(parent), Beside::of(before));
            let root = Place { level, index: 0, ptr, parent, before };
            (self.own, self.added) = (0, 0);
            let mapped = self.tree(space, &lineage, root).await;
            counts.push((record, self.added));
            if !is_snapshot && record.own.blocks > self.own {
                let message = format!(
                    "{}: it has {} blocks of its own, but its record says {}",
                    name(record),
                    self.own,
                    record.own.blocks
                );
                self.report.problem(message);
            }
            if !is_snapshot && record.kind != DatasetKind::Bookmark {
                self.report.volumes += 1;
            }
            if lineage.gone == 0 && mapped != record.mapped {
                let message = format!(
                    "{}: {} blocks in {} units are mapped, but its record says {} in {}",
                    name(record),
                    mapped.blocks,
                    mapped.units,
                    record.mapped.blocks,
                    record.mapped.units
                );
                self.report.problem(message);
            }
        }
        self.added(&counts);
    }

    /// Compares what each dataset has added with what was found. A snapshot that is being given back counts what it has given to its child.
    fn added(&mut self, counts: &[(&DatasetRecord, i64)]) {
        let is_begun = |record: &DatasetRecord| record.kind == DatasetKind::Snapshot && record.cursor > 0;
        for (record, found) in counts {
            let heir = |child: &DatasetRecord| is_begun(record) && child.parent == Some(record.number);
            let giver = |parent: &DatasetRecord| is_begun(parent) && record.parent == Some(parent.number);
            if counts.iter().any(|(other, _)| heir(other)) {
                continue;
            }
            let (mut added, mut found) = (record.added, *found);
            for (other, more) in counts.iter().filter(|(other, _)| giver(other)) {
                (added, found) = (added.and(other.added), found + more);
            }
            if added.units != found {
                let message = format!(
                    "{}: it has added {found} units of data, but its record says {}",
                    name(record),
                    added.units
                );
                self.report.problem(message);
            }
        }
    }

    /// Checks what is below a place; what is mapped there.
    async fn tree(&mut self, space: &mut Space, of: &Lineage<'_>, place: Place) -> Mapped {
        let Place { level, index, ptr, .. } = place;
        if ptr.is_hole() || leaves_end(level, index) <= of.gone {
            return Mapped::default();
        }
        let what = format!("{}: node {index} of level {level}", name(of.record));
        let is_own = of.shared.owns(&ptr, level, index);
        if !is_own && !self.is_shared(of, &place, &what) {
            return Mapped::default();
        }
        if is_own && !self.reach(space, &ptr, &what) {
            return Mapped::default();
        }
        let body = match self.node(space, of.record, level, index, &ptr).await {
            Ok(body) => body,
            Err(error) => {
                self.report.problem(format!("{what} is lost: {error}"));
                return Mapped::default();
            }
        };
        self.report.nodes += u64::from(is_own);
        let parent = self.beside(space, of.record, place.parent, level, index).await;
        let before = self.beside(space, of.record, place.before, level, index).await;
        let mut mapped = Mapped::default();
        for (slot, child) in body.into_iter().enumerate() {
            if child.birth() > ptr.birth() && !child.is_hole() {
                self.report.problem(format!("{what} points to data newer than itself"));
            }
            let index = index * FANOUT + slot as u64;
            let (parent, before) = (parent[slot], before[slot]);
            if level > 0 {
                let place = Place { level: level - 1, index, ptr: child, parent, before };
                mapped += Box::pin(self.tree(space, of, place)).await;
            } else if !child.is_hole() {
                mapped += Mapped::of([&child]);
                // Blocks are asked for by their leaf.
                let place = Place { level: 0, index: index / FANOUT, ptr: child, parent, before };
                self.block(space, of, place, index).await;
            }
        }
        mapped
    }

    /// Whether a dataset has from its parent what it takes for shared.
    fn is_shared(&mut self, of: &Lineage<'_>, place: &Place, what: &str) -> bool {
        let is_passed = leaves_end(place.level, place.index) <= of.shared.passed;
        let theirs = if is_passed { place.before } else { place.parent };
        let is_shared = theirs.at(place.level) == place.ptr;
        if !is_shared {
            self.report
                .problem(format!("{what} is shared, but the dataset that should share it does not have it"));
        }
        is_shared
    }

    async fn node(
        &self,
        space: &Space,
        record: &DatasetRecord,
        level: u8,
        index: u64,
        ptr: &Ptr,
    ) -> Result<Vec<Ptr>, String> {
        let slots = space.slots(ptr).ok_or("it is in a chunk that its shard does not own")?;
        let header = NodeHeader::of_blocks(self.pool, record.family, level, index);
        let check = |bytes: &[u8]| decode_node(bytes, &header, ptr).is_ok();
        let read = self.array.read(&slots, ptr.addr().offset(), NODE_BYTES, check).await;
        let good = read.map_err(|error| format!("{error:?}"))?;
        Ok(decode_ptrs(decode_node(&good.bytes, &header, ptr).expect("checked on reading")))
    }

    /// What a parent has below a place. Nothing of what cannot be read: that is told where the parent itself is looked at.
    async fn beside(
        &self,
        space: &Space,
        record: &DatasetRecord,
        beside: Beside,
        level: u8,
        index: u64,
    ) -> Vec<Beside> {
        let mut below = vec![Beside::NOTHING; FANOUT as usize];
        if beside.ptr.is_hole() {
            return below;
        }
        if beside.level < level {
            below[0] = beside;
        } else if let Ok(ptrs) = self.node(space, record, level, index, &beside.ptr).await {
            let under = |ptr| Beside { level: level.saturating_sub(1), ptr };
            below = ptrs.into_iter().map(under).collect();
        }
        below
    }

    async fn block(&mut self, space: &mut Space, of: &Lineage<'_>, place: Place, block: u64) {
        let (record, ptr) = (of.record, &place.ptr);
        let what = format!("{}: block {block}", name(record));
        let whole = 1 << record.block_shift;
        let fits =
            if [0, IN_PART].contains(&ptr.kind()) { ptr.bytes() == whole } else { ptr.bytes() < whole };
        if block >= record.blocks() || !fits {
            self.report.problem(format!("{what} has an invalid size, or is beyond the end of the volume"));
        }
        if !of.shared.owns(ptr, 0, place.index) {
            self.is_shared(of, &place, &what);
            return;
        }
        self.added += i64::from(ptr.units());
        if !self.reach(space, ptr, &what) {
            return;
        }
        if ptr.birth() > record.own.since && space.is_home(ptr, record.block_shift) {
            self.own += 1;
        }
        let slots = space.slots(ptr).expect("reached");
        let check = |bytes: &[u8]| Checksum::of(bytes) == ptr.sum;
        match self.array.read(&slots, ptr.addr().offset(), ptr.bytes() as usize, check).await {
            Ok(good) => {
                self.report.blocks += 1;
                if ptr.kind() == IN_PART {
                    self.report.problem(format!("{what} is incomplete: the rest of it is lost"));
                    return;
                }
                let mut block = vec![0; whole as usize];
                if ptr.kind() != 0 && self.codec.unpack(ptr.kind(), &good.bytes, &mut block).is_err() {
                    self.report.problem(format!("{what} does not decompress to a whole block"));
                }
            }
            Err(error) => self.report.problem(format!("{what} is lost: {error:?}")),
        }
    }
}

fn name(record: &DatasetRecord) -> String {
    match record.kind {
        DatasetKind::Snapshot => format!("snapshot {} of volume number {}", record.name, record.volume),
        DatasetKind::Volume | DatasetKind::Attributes => format!("volume {}", record.name),
        DatasetKind::Project => format!("project {}", record.name),
        DatasetKind::Bookmark => format!("bookmark {} of volume number {}", record.name, record.volume),
    }
}
