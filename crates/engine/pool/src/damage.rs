//! Damage: places that something points to and that nothing can be made of any more.
//!
//! A place is noted when a client or a scrub finds that no disk has it right, while the pool is not suspended: then it may be missing only as long as
//! disks are. It stays noted until nobody points to it (its block was written anew, or all who have it are deleted or put back), or until a
//! scrub finds it right after all, as when a disk came back. So no write has to look here: a checkpoint forgets what it frees.
//!
//! The places are kept in a table of their own, which checkpoints write when it has changed; so a restart, an export and an import know of them.
//! Whose they are is not kept: clones and snapshots share blocks, and come and go. Who asks has the trees of the family looked through
//! ([`Shard::damaged`]).
//!
//! ```text
//! record: 0 place 8   8 bytes 4   12 level 1 (255: a block, 254: how many more there are, in `index`)   13 flags 1 (bit 0: accepted)   14 zero 2
//!         16 family 16   32 index 8   40 found 8
//! ```

use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::open::is_node_place;
use crate::parts::IN_PART;
use crate::record::DatasetRecord;
use crate::shard::Shard;
use crate::spec::Severity;
use crate::steps::Steps;
use crate::table_tree::{Root, TableTree};
use crate::tables::{Impossible, Table, damage_per_leaf};
use forebay_base::codec::{Reader, Writer};
use forebay_base::planted::{Bug, active};
use forebay_base::{Id, Nanos, WallTime};
use forebay_device::UNIT;
use forebay_space::{Addr, ChunkEntry, ChunkId, Ptr};
use forebay_tree::{FANOUT, NODE_BODY};
use futures_util::future::select;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// The level of a block, which lies below leaves.
pub(crate) const BLOCK: u8 = u8::MAX;
/// The level of the record that says how many more places there are.
const MORE: u8 = u8::MAX - 1;
const RECORD_BYTES: usize = 48;
pub(crate) const LOST_PER_LEAF: usize = NODE_BODY / RECORD_BYTES;
const FLAG_ACCEPTED: u8 = 1;
/// Places that a shard notes; beyond, they are counted.
const PLACES_MAX: usize = 65_536;
/// So long what was counted of each volume is told again, as long as no place came or went.
const BYTES_KEPT: Duration = Duration::from_secs(10);
/// Ranges that are told at once.
const RANGES_MAX: usize = 10_000;
/// From one event about repairs to the next.
const REPAIRS_REST: Duration = Duration::from_secs(60);
/// How long after one look for what no disk gives the next comes, where what is not found is given up. A link that was reset is back by then; what a disk,
/// or the way to it, once failed to read would be lost for good otherwise.
pub(crate) const LOOK_AGAIN: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
];
/// So long after a write, or another loss, a pool that knows of losses makes a checkpoint, which forgets what was written anew, also if nobody writes any more.
const SETTLING_DELAY: Duration = Duration::from_secs(5);

/// What a pool knows to be lost: places on its disks that something points to and that nothing can be made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageStatus {
    /// Blocks, and nodes of trees, below which there may be many.
    pub places: u64,
    /// Those that nobody has accepted.
    pub open: u64,
    /// What the places hold, as it is stored.
    pub bytes: u64,
}

/// A stretch of a volume, of one in the trash, or of a snapshot that reads as an error until it is written anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// `VOLUME` or `VOLUME@SNAPSHOT`, within the pool.
    pub name: String,
    pub id: Id,
    /// In bytes.
    pub first: u64,
    pub bytes: u64,
    pub found: WallTime,
    pub accepted: bool,
}

/// What is lost at a place: node `index` of a level of a family's trees, or a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lost {
    pub family: Id,
    pub level: u8,
    pub index: u64,
    pub bytes: u32,
    pub found: WallTime,
    /// Somebody has said that he knows.
    pub accepted: bool,
}

/// Bad copies that reads came across and put right, and that no event has told yet: a disk that has rotted would fill the log with them.
#[derive(Default)]
pub(crate) struct Repairs {
    count: u64,
    disks: BTreeSet<u16>,
    told: Option<Nanos>,
}

impl Repairs {
    /// Adds one; gives what is to be told now, if the last time was long ago.
    pub fn add(&mut self, disks: impl Iterator<Item = u16>, now: Nanos) -> Option<String> {
        self.count += 1;
        self.disks.extend(disks);
        if self.told.is_some_and(|told| now.since(told) < REPAIRS_REST.as_nanos() as u64) {
            return None;
        }
        self.told = Some(now);
        let disks: Vec<String> = std::mem::take(&mut self.disks).iter().map(u16::to_string).collect();
        let places = match std::mem::take(&mut self.count) {
            1 => "1 block".to_string(),
            count => format!("{count} blocks since the last such event"),
        };
        let on = if disks.is_empty() { String::new() } else { format!(", on disk {}", disks.join(", ")) };
        Some(format!("reads found bad copies and repaired them: {places}{on}"))
    }
}

/// What a shard knows to be lost.
pub(crate) struct Damage {
    places: BTreeMap<Addr, Lost>,
    /// The same, by what is lost.
    order: BTreeSet<(Id, u8, u64, Addr)>,
    /// Found when there was no room for them.
    more: u64,
    is_changed: bool,
    changes: u64,
    /// What of each volume and snapshot was lost when somebody last asked: when that was, and how many changes there had been.
    bytes: Option<(Nanos, u64, BTreeMap<Id, u64>)>,
    /// Where the table is.
    tree: TableTree,
}

impl Default for Damage {
    fn default() -> Damage {
        Damage {
            places: BTreeMap::new(),
            order: BTreeSet::new(),
            more: 0,
            is_changed: false,
            changes: 0,
            bytes: None,
            tree: TableTree::new(Table::Damage),
        }
    }
}

impl Damage {
    /// As a table says that is there.
    pub fn load(bodies: &[Vec<u8>], tree: TableTree) -> Result<Damage, Impossible> {
        let mut damage = Damage { tree, ..Damage::default() };
        for record in bodies.iter().flat_map(|body| body.chunks_exact(RECORD_BYTES)) {
            if record.iter().any(|byte| *byte != 0) {
                damage.decode(record).ok_or(Impossible)?;
            }
        }
        damage.is_changed = false;
        Ok(damage)
    }

    /// Of a table that cannot be read: its root goes with the next checkpoint.
    pub fn unknown<'a>(root: &Root, chunk: impl Fn(ChunkId) -> Option<&'a ChunkEntry>) -> Damage {
        let mut damage = Damage { is_changed: true, ..Damage::default() };
        if is_node_place(&root.at.ptr, chunk) {
            damage.tree.put((root.height.into(), 0), Some(root.at.ptr));
        }
        damage
    }

    fn decode(&mut self, record: &[u8]) -> Option<()> {
        let mut r = Reader::new(record);
        let (place, bytes) = (Addr(r.u64().ok()?), r.u32().ok()?);
        let (level, flags, _) = (r.u8().ok()?, r.u8().ok()?, r.u16().ok()?);
        let (family, index, found) = (Id(r.u128().ok()?), r.u64().ok()?, WallTime(r.u64().ok()?));
        if level == MORE {
            self.more = index;
            return Some(());
        }
        let is_possible = place.0 != 0 && bytes > 0 && flags & !FLAG_ACCEPTED == 0 && index < u64::MAX;
        let lost = Lost { family, level, index, bytes, found, accepted: flags & FLAG_ACCEPTED != 0 };
        is_possible.then(|| _ = self.note(place, lost))
    }

    /// The bodies of the table's blocks.
    pub fn encode(&mut self) -> Vec<Vec<u8>> {
        self.is_changed = false;
        let more = Lost {
            family: Id(0),
            level: MORE,
            index: self.more,
            bytes: 0,
            found: WallTime(0),
            accepted: false,
        };
        let more = (self.more > 0).then_some((Addr(0), more));
        let all: Vec<(Addr, Lost)> =
            self.places.iter().map(|(addr, lost)| (*addr, *lost)).chain(more).collect();
        let encode = |part: &[(Addr, Lost)]| {
            let mut body = vec![0; part.len() * RECORD_BYTES];
            let mut w = Writer::new(&mut body);
            for (place, lost) in part {
                let flags = u8::from(lost.accepted) * FLAG_ACCEPTED;
                w.u64(place.0).u32(lost.bytes).u8(lost.level).u8(flags).u16(0);
                w.u128(lost.family.0).u64(lost.index).u64(lost.found.0);
            }
            body
        };
        all.chunks(damage_per_leaf()).map(encode).collect()
    }

    /// Where the table is, for who writes it and says where it is then.
    pub fn take_tree(&mut self) -> TableTree {
        std::mem::replace(&mut self.tree, TableTree::new(Table::Damage))
    }
    pub fn now_at(&mut self, tree: TableTree) {
        self.tree = tree;
    }
    pub fn tree(&self) -> &TableTree {
        &self.tree
    }
    pub fn nodes(&self) -> usize {
        self.tree.len()
    }
    pub fn root(&self) -> Root {
        self.tree.root(self.tree.leaves(), |_| Vec::new())
    }
    /// Whether a node of the table lies in a chunk of this kind.
    pub fn has_node_where(&self, is_meant: impl Fn(ChunkId) -> bool) -> bool {
        self.tree.leaves_to_leave(is_meant).next().is_some()
    }

    /// Whether the stored table does not say what there is.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    fn change(&mut self) {
        self.is_changed = true;
        self.changes += 1;
    }

    /// Takes note of a place. True when nothing beside it was known to be lost: a stretch of damage is told once.
    pub fn note(&mut self, place: Addr, lost: Lost) -> bool {
        if self.places.contains_key(&place) {
            return false;
        }
        self.change();
        if self.places.len() >= PLACES_MAX {
            self.more += 1;
            return self.more == 1;
        }
        let beside = (lost.family, lost.level, lost.index.saturating_sub(1), Addr(0))
            ..=(lost.family, lost.level, lost.index.saturating_add(1), Addr(u64::MAX));
        let is_alone = self.order.range(beside).next().is_none();
        self.order.insert((lost.family, lost.level, lost.index, place));
        self.places.insert(place, lost);
        is_alone
    }

    /// When it was found that a place is lost.
    pub fn found(&self, place: Addr) -> Option<WallTime> {
        self.places.get(&place).map(|lost| lost.found)
    }

    /// Nothing is known of the shard's volumes: at least one place is lost, and nobody can say whose it is.
    pub fn note_catalog(&mut self) {
        self.more += 1;
    }

    /// What is lost of a chunk: where in it, and how many bytes.
    pub fn of_chunk(&self, id: ChunkId) -> impl Iterator<Item = (u64, u32)> {
        let all = Addr::new(id, 0)..Addr::new(ChunkId(id.0 + 1), 0);
        self.places.range(all).map(|(place, lost)| (place.offset(), lost.bytes))
    }

    /// Forgets a place that is right after all.
    pub fn mended(&mut self, place: Addr) {
        if let Some(lost) = self.places.remove(&place) {
            self.order.remove(&(lost.family, lost.level, lost.index, place));
            self.change();
        }
    }

    /// Forgets a place that reads, if what it holds is all there is to know of a block.
    pub fn reads(&mut self, ptr: &Ptr) {
        if ptr.kind() != IN_PART {
            self.mended(ptr.addr());
        }
    }

    /// Forgets what lies in these runs of units: nobody points there any more.
    pub fn freed(&mut self, runs: impl Iterator<Item = (Addr, u32)>) {
        if self.places.is_empty() {
            return;
        }
        for (addr, units) in runs {
            let end = addr.plus(u64::from(units) * UNIT);
            let gone: Vec<Addr> = self.places.range(addr..end).map(|(place, _)| *place).collect();
            gone.into_iter().for_each(|place| self.mended(place));
        }
    }

    /// A scrub begins: what there was no room for it will find again.
    pub fn count_anew(&mut self) {
        self.is_changed |= std::mem::take(&mut self.more) > 0;
    }

    /// Somebody knows of all that is lost.
    pub fn accept(&mut self) {
        self.places.values_mut().for_each(|lost| lost.accepted = true);
        self.more = 0;
        self.change();
    }

    pub fn status(&self) -> DamageStatus {
        let open = self.places.values().filter(|lost| !lost.accepted).count() as u64;
        let bytes = self.places.values().map(|lost| u64::from(lost.bytes)).sum();
        DamageStatus { places: self.places.len() as u64 + self.more, open: open + self.more, bytes }
    }

    /// What is lost of a family: level, index and place, in order.
    fn of_family(&self, family: Id) -> Vec<(u8, u64, Addr)> {
        let all = (family, 0, 0, Addr(0))..=(family, BLOCK, u64::MAX, Addr(u64::MAX));
        self.order.range(all).map(|(_, level, index, addr)| (*level, *index, *addr)).collect()
    }
}

/// Adds a stretch of a volume to those before it.
fn add(ranges: &mut Vec<(Range<u64>, Lost)>, blocks: Range<u64>, lost: Lost) {
    match ranges.last_mut() {
        Some((last, known)) if last.end >= blocks.start && known.accepted == lost.accepted => {
            last.end = last.end.max(blocks.end);
        }
        _ => ranges.push((blocks, lost)),
    }
}

impl Shard {
    /// Reads have put something right, on these disks if that is known.
    pub fn tell_repairs(&self, disks: impl Iterator<Item = u16>) {
        let told = self.repairs.borrow_mut().add(disks, self.rt.now());
        if let Some(message) = told {
            self.event(Severity::Warning, "block.repaired", &self.shared.name, message);
        }
    }

    /// Takes note of a place that nothing can be made of. True when it is to be told.
    pub fn note_lost(&self, owner: Id, level: u8, index: u64, ptr: &Ptr) -> bool {
        if active(Bug::LossForgotten) {
            return true;
        }
        let (family, found) = (self.family_of(owner), self.rt.wall());
        let lost = Lost { family, level, index, bytes: ptr.bytes(), found, accepted: false };
        let is_told = self.damage.borrow_mut().note(ptr.addr(), lost);
        // A restart knows of it only from a checkpoint on.
        self.destage_work.send();
        is_told
    }

    /// Something was written, or found to be lost: soon it is durable what is lost, and what takes the place of such is told no longer.
    pub fn settle_damage(self: &Rc<Self>) {
        if self.damage.borrow().places.is_empty()
            || self.shared.import.read_only
            || self.damage_settles.replace(true)
        {
            return;
        }
        let shard = self.clone();
        self.spawn(async move {
            let rest = pin!(shard.rt.sleep(SETTLING_DELAY));
            let is_ending = pin!(shard.progress.until(|| shard.stopping.get() || shard.is_suspended()));
            select(rest, is_ending).await;
            shard.damage_settles.set(false);
            if !shard.stopping.get() {
                shard.want_checkpoint();
            }
        });
    }

    /// A scrub has found that something of a dataset's tree is lost: the first of a stretch is told.
    pub fn tell_lost(&self, dataset: &Dataset, (level, index): (u8, u64), ptr: &Ptr) {
        if !self.note_lost(dataset.id(), level, index, ptr) {
            return;
        }
        let what = match level {
            BLOCK => format!("the block at byte {}", index * dataset.block_bytes() as u64),
            level => format!("a node of level {level} of its block map"),
        };
        let pool = &self.shared.name;
        let message = format!(
            "the scrub found {what} unrecoverable: reads of it fail until it is overwritten or restored from a backup. 'forebay pool \
             status {pool} --errors' lists all lost data, also in snapshots and clones"
        );
        self.event(Severity::Error, "scrub.lost", &format!("{pool}/{}", self.name_of(dataset.id())), message);
    }

    /// What the nodes of a volume's or a snapshot's tree say that they belong to.
    fn family_of(&self, id: Id) -> Id {
        let dataset = self.datasets.borrow().of_id(id).next().map(|dataset| dataset.family());
        dataset.or_else(|| Some(self.snapshot(id)?.record.borrow().family)).unwrap_or(id)
    }

    /// What a volume or a snapshot is called; its number if it is neither.
    pub fn name_of(&self, id: Id) -> String {
        let volume =
            self.datasets.borrow().of_id(id).next().map(|dataset| dataset.record.borrow().name.clone());
        let snapshot = || self.snapshot(id).map(|snapshot| self.snapshot_name(&snapshot.record.borrow()));
        volume.or_else(snapshot).unwrap_or_else(|| id.to_string())
    }

    fn snapshot_name(&self, record: &DatasetRecord) -> String {
        let datasets = self.datasets.borrow();
        let volume = datasets.get(&record.volume).map(|dataset| dataset.record.borrow().name.clone());
        format!("{}@{}", volume.unwrap_or_default(), record.name)
    }

    /// Which bytes of which volumes and snapshots are lost.
    pub async fn damaged(&self) -> Vec<Damaged> {
        let families: BTreeSet<Id> = self.damage.borrow().order.iter().map(|(family, ..)| *family).collect();
        let (mut all, mut steps, mut number) = (Vec::new(), Steps::default(), 0);
        while let Some(dataset) = self.next_dataset(number).filter(|_| all.len() < RANGES_MAX) {
            number = dataset.number() + 1;
            steps.take(1).await;
            if families.contains(&dataset.family()) && !dataset.is_deleting() {
                let ranges = self.damaged_blocks(&dataset).await;
                let record = dataset.record.borrow();
                all.extend(
                    ranges.into_iter().map(|(blocks, lost)| damaged(&record, &record.name, blocks, lost)),
                );
            }
        }
        let mut number = 0;
        while all.len() < RANGES_MAX {
            let next = self
                .snapshots
                .borrow()
                .range(number..)
                .next()
                .map(|(number, snapshot)| (*number, snapshot.clone()));
            let Some((found, snapshot)) = next else { break };
            number = found + 1;
            steps.take(1).await;
            let record = snapshot.record.borrow().clone();
            if !families.contains(&record.family) || !snapshot.is_live() {
                continue;
            }
            let name = self.snapshot_name(&record);
            let lent = snapshot.lent.clone();
            let ranges = self.damaged_blocks(&Dataset::new(record.clone(), record.tree())).await;
            drop(lent);
            if !snapshot.is_live() {
                continue;
            }
            all.extend(ranges.into_iter().map(|(blocks, lost)| damaged(&record, &name, blocks, lost)));
        }
        all.truncate(RANGES_MAX);
        all
    }

    /// How many bytes of a volume are lost; what was found of late counts as true.
    pub async fn damaged_bytes(&self, id: Id) -> u64 {
        if self.damage.borrow().places.is_empty() {
            return 0;
        }
        let now = self.rt.now();
        let known = {
            let damage = self.damage.borrow();
            let is_new = |(at, changes, _): &&(Nanos, u64, _)| {
                *changes == damage.changes && now.since(*at) < BYTES_KEPT.as_nanos() as u64
            };
            damage.bytes.as_ref().filter(is_new).map(|(.., bytes)| bytes.get(&id).copied().unwrap_or(0))
        };
        if let Some(known) = known {
            return known;
        }
        let changes = self.damage.borrow().changes;
        let mut bytes: BTreeMap<Id, u64> = BTreeMap::new();
        self.damaged().await.iter().for_each(|range| *bytes.entry(range.id).or_default() += range.bytes);
        let own = bytes.get(&id).copied().unwrap_or(0);
        self.damage.borrow_mut().bytes = Some((now, changes, bytes));
        own
    }

    /// What of a tree is lost, in order. A leaf that has to be read for that, and cannot, is lost as a whole.
    async fn damaged_blocks(&self, dataset: &Dataset) -> Vec<(Range<u64>, Lost)> {
        let lost = self.damage.borrow().of_family(dataset.family());
        let size = dataset.record.borrow().blocks();
        let mut found: Vec<(Range<u64>, Lost)> = Vec::new();
        let mut leaf: Option<(u64, Vec<Ptr>)> = None;
        for (level, index, addr) in lost {
            let Some(lost) = self.damage.borrow().places.get(&addr).copied() else { continue };
            if level != BLOCK {
                if dataset.tree.borrow().height() < level {
                    continue;
                }
                // What is above it may be lost as well, and is in the list then.
                let stored = self.look_in_tree(dataset, |tree| tree.stored_at(level, index)).await;
                if stored.is_ok_and(|(home, _)| home.addr() == addr) {
                    let below = FANOUT.saturating_pow(u32::from(level) + 1);
                    let blocks = index.saturating_mul(below)..size.min((index + 1).saturating_mul(below));
                    found.extend((!blocks.is_empty()).then_some((blocks, lost)));
                }
                continue;
            }
            if index >= size || dataset.is_written_anew(index) {
                continue;
            }
            if leaf.as_ref().is_none_or(|(known, _)| *known != index / FANOUT) {
                let ptrs = self.leaf_pointers(dataset, index / FANOUT).await.unwrap_or_default();
                leaf = Some((index / FANOUT, ptrs));
            }
            let ptr = leaf.as_ref().and_then(|(_, ptrs)| ptrs.get((index % FANOUT) as usize));
            if ptr.is_some_and(|ptr| !ptr.is_hole() && ptr.addr() == addr) {
                found.push((index..index + 1, lost));
            }
        }
        found.sort_by_key(|(blocks, _)| (blocks.start, blocks.end));
        let mut ranges: Vec<(Range<u64>, Lost)> = Vec::new();
        found.into_iter().for_each(|(blocks, lost)| add(&mut ranges, blocks, lost));
        ranges
    }
}

fn damaged(record: &DatasetRecord, name: &str, blocks: Range<u64>, lost: Lost) -> Damaged {
    let (first, end) = (blocks.start << record.block_shift, blocks.end << record.block_shift);
    Damaged {
        name: name.into(),
        id: record.id,
        first,
        bytes: end - first,
        found: lost.found,
        accepted: lost.accepted,
    }
}

impl Control {
    /// What all shards know to be lost.
    pub async fn damage_status(&self) -> Result<DamageStatus, Error> {
        let mut all = DamageStatus::default();
        for index in 0..self.shard_count() {
            let own = self.on_shard(index, |shard| async move { shard.damage.borrow().status() }).await?;
            all.places += own.places;
            all.open += own.open;
            all.bytes += own.bytes;
        }
        Ok(all)
    }

    /// Which bytes of which volumes and snapshots are lost; as many ranges as can be told at once.
    pub async fn damaged(&self) -> Result<Vec<Damaged>, Error> {
        let mut all = Vec::new();
        for index in 0..self.shard_count() {
            all.extend(self.on_shard(index, |shard| async move { shard.damaged().await }).await?);
        }
        all.sort_by(|a, b| (&a.name, a.first).cmp(&(&b.name, b.first)));
        Ok(all)
    }

    /// Somebody knows of all that is lost so far: the pool is called damaged for it no longer. Durable when done.
    pub async fn accept_damage(self: &Rc<Self>) -> Result<(), Error> {
        for index in 0..self.shard_count() {
            self.on_shard(index, |shard| async move { shard.damage.borrow_mut().accept() }).await?;
        }
        self.checkpoint().await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_repairs_are_told_once_a_minute() {
        let mut repairs = Repairs::default();
        let second = |at: u64| Nanos(at * 1_000_000_000);
        let first = repairs.add([1].into_iter(), second(1)).unwrap();
        assert_eq!(first, "reads found bad copies and repaired them: 1 block, on disk 1");
        let told = (0..1000).filter(|_| repairs.add([2].into_iter(), second(30)).is_some());
        assert_eq!(told.count(), 0);
        let later = repairs.add([1].into_iter(), second(61)).unwrap();
        assert!(later.contains("1001 blocks since") && later.contains("on disk 1, 2"), "{later}");
    }
}
