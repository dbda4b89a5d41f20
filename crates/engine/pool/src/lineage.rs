//! Snapshots, and who grew from which.
//!
//! A snapshot is a root that a checkpoint wrote, and an epoch that the checkpoint ended: whatever is below the root was born up
//! to then, and what is written afterwards is born later. So taking one costs the same for any volume. From then on
//! the volume's tree leaves alone what it replaces of the snapshot's ([`forebay_tree::Shared`]).
//!
//! The snapshot is the volume's *parent*; clones have it as their parent as well, and so has a volume that was put back to
//! it. Each dataset has one parent at most, and who can still be reached from a root follows from that alone. Which
//! volume a snapshot is listed under is a matter of names.
//!
//! What was acknowledged before a snapshot is asked for is in it: new changes are held, those in flight end, what is staged in the
//! log moves to its place, and then all shards freeze. So snapshots of several volumes are of one moment, whichever
//! shards they are on.

use crate::added::Added;
use crate::bookmarks::Setback;
use crate::dataset::Dataset;
use crate::deletion::Kept;
use crate::entry::{Change, Entry};
use crate::error::IoError;
use crate::projects::Inherits;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::registry::registry;
use crate::shard::Shard;
use crate::spec::VolumeFormat;
use forebay_base::planted::{Bug, active};
use forebay_base::{Id, Nanos, WallTime};
use forebay_tree::{Frozen, Shared, Tree};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long clients' changes are held at most; and where one of them has lacked room all the while, for which it may wait until the checkpoint that
/// waits for it.
const HOLD_MAX: Duration = Duration::from_secs(2);
const HOLD_SHORT_MAX: Duration = Duration::from_millis(100);
const HOLD_LOOK: Duration = Duration::from_micros(100);

/// A volume as it was.
pub(crate) struct Snapshot {
    pub record: RefCell<DatasetRecord>,
    /// Who clones or sends it holds this as well: it is not deleted meanwhile.
    pub lent: Arc<()>,
    /// Its deletion is on its way to the log.
    pub doomed: Cell<bool>,
    /// Its deletion cannot go on: something of it cannot be read.
    pub stuck: Cell<bool>,
    /// What it alone has, as it was last counted, and how many deletions had ended by then.
    pub kept: Cell<Option<(u64, Kept)>>,
}

impl Snapshot {
    pub fn new(record: DatasetRecord) -> Rc<Snapshot> {
        let (doomed, stuck, kept) = (Cell::new(false), Cell::new(false), Cell::new(None));
        Rc::new(Snapshot { record: RefCell::new(record), lent: Arc::default(), doomed, stuck, kept })
    }

    pub fn number(&self) -> u64 {
        self.record.borrow().number
    }
    pub fn epoch(&self) -> u64 {
        self.record.borrow().epoch
    }
    pub fn is_live(&self) -> bool {
        self.record.borrow().state == DatasetState::Live && !self.doomed.get()
    }
    pub fn is_lent(&self) -> bool {
        Arc::strong_count(&self.lent) > 1
    }
}

/// A snapshot that is to be taken.
#[derive(Clone, Debug)]
pub(crate) struct SealOrder {
    pub volume: Id,
    pub snapshot: Id,
    pub name: String,
    pub created: WallTime,
    pub scheduled: bool,
    pub retain_until: WallTime,
    pub purpose: Purpose,
}

/// What happens with a volume of which a snapshot is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// It goes on from there.
    Keep,
    /// It goes back to this snapshot, and the new one, of what it was, is deleted.
    BackTo(Id),
    /// It was received, and is there for all from now on.
    Arrive(Arrival),
}

/// How a received volume arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Of the snapshot.
    pub origin: Id,
    /// The volume's from now on. What was received of it ends there.
    pub size: u64,
    /// It becomes what this volume is, which gives up what it was ...
    pub into: Option<Id>,
    /// ... although that is no longer what the stream builds upon.
    pub discard_changes: bool,
}

/// How volumes that are to be at rest are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    Reached,
    Busy,
    /// What has to be held for reserved volumes is not there, and may be after a checkpoint.
    Short,
    /// What a stream builds upon is not there any more.
    Changed,
}

/// The same, when all is known.
pub(crate) struct Seal {
    pub volume: u64,
    snapshot: DatasetRecord,
    back_to: Option<(Rc<Snapshot>, Tree)>,
    /// The volume that was received, how large it is, and since when it goes back behind what the volume was.
    arrived: Option<(u64, u64, Option<Setback>)>,
}

/// What a freeze does beside freezing.
#[derive(Default)]
pub(crate) struct FreezeOrder {
    pub seals: Vec<Seal>,
    /// Whether the epoch ends, here or on another shard.
    pub ends_epoch: bool,
}

/// What a freeze captured of one dataset.
pub(crate) struct FrozenDataset {
    pub record: DatasetRecord,
    pub frozen: Option<Frozen>,
    /// Gets the same root.
    pub snapshot: Option<DatasetRecord>,
}

/// A dataset has what was another's.
fn take_tree(record: &mut DatasetRecord, of: &DatasetRecord) {
    (record.root, record.height, record.mapped) = (of.root, of.height, of.mapped);
    (record.size, record.parent) = (of.size, of.parent);
}

impl Shard {
    /// Freezes the datasets that changed, and seals what is to be sealed. Called between commits only.
    pub fn freeze_datasets(&self, order: FreezeOrder, touched: &mut BTreeSet<u64>) -> Vec<FrozenDataset> {
        let epoch = self.epoch.get();
        self.epoch_frozen.set(epoch);
        if order.ends_epoch && !active(Bug::SnapshotKeepsEpoch) {
            self.epoch.set(epoch + 1);
        }
        for seal in &order.seals {
            if let Some((from, size, setback)) = seal.arrived {
                self.arrive(from, seal.volume, size);
                if let Some(setback) = setback {
                    self.datasets.borrow_mut().change(seal.volume, |record| record.gap = setback.at(epoch));
                }
            }
        }
        let mut seals: BTreeMap<u64, Seal> =
            order.seals.into_iter().map(|seal| (seal.volume, seal)).collect();
        touched.extend(seals.keys());
        touched.extend(self.datasets.borrow().take_touched());
        let mut parents = Vec::with_capacity(seals.len());
        let mut all = Vec::with_capacity(touched.len() + seals.len());
        let datasets = self.datasets.borrow();
        for dataset in touched.iter().filter_map(|number| datasets.get(number)) {
            let mut tree = dataset.tree.borrow_mut();
            let frozen = tree.is_dirty().then(|| tree.freeze());
            let mut record = dataset.record.borrow_mut();
            (record.own, record.added) = (dataset.own.get(), dataset.added.get());
            let seal = seals.remove(&record.number).filter(|_| !dataset.gone.get());
            let Some(Seal { snapshot, back_to, .. }) = seal else {
                all.push(FrozenDataset { record: record.clone(), frozen, snapshot: None });
                continue;
            };
            // What is its own is as it was ordered, and the rest the volume's.
            let was = DatasetRecord {
                kind: DatasetKind::Snapshot,
                number: snapshot.number,
                id: snapshot.id,
                name: snapshot.name,
                created: snapshot.created,
                scheduled: snapshot.scheduled,
                retain_until: snapshot.retain_until,
                state: snapshot.state,
                volume: record.number,
                schedule: Default::default(),
                epoch,
                origin: snapshot.origin,
                format: VolumeFormat::Thin,
                own: record.own.shared_at(epoch),
                ..record.clone()
            };
            dataset.own.set(dataset.own.get().shared_at(epoch));
            dataset.sealing.set(dataset.added.take());
            (record.own, record.added) = (dataset.own.get(), Added::default());
            let Some((target, stored)) = back_to else {
                tree.shared = Shared::upto(if active(Bug::SnapshotSharesNothing) { 0 } else { epoch });
                parents.push((record.number, was.number));
                let record = DatasetRecord { parent: Some(was.number), ..record.clone() };
                all.push(FrozenDataset { record, frozen, snapshot: Some(was) });
                continue;
            };
            *tree = stored;
            tree.shared = Shared::upto(target.epoch());
            let target = target.record.borrow();
            (record.root, record.height, record.mapped) = (target.root, target.height, target.mapped);
            (record.size, record.gap) = (target.size, Setback::to(&target).at(epoch));
            parents.push((record.number, target.number));
            record.own.strays = record.own.strays.max(target.own.strays);
            dataset.own.set(record.own);
            let now = DatasetRecord { parent: Some(target.number), ..record.clone() };
            all.push(FrozenDataset { record: now, frozen: None, snapshot: None });
            all.push(FrozenDataset { record: was, frozen, snapshot: None });
            drop(record);
            dataset.note_reserved();
        }
        drop(datasets);
        let mut datasets = self.datasets.borrow_mut();
        for (number, parent) in parents {
            datasets.change(number, |record| record.parent = Some(parent));
        }
        all
    }

    /// What was received as volume `from` becomes what volume `into` is, which may be the same.
    fn arrive(&self, from: u64, into: u64, size: u64) {
        let mut datasets = self.datasets.borrow_mut();
        let is_same = from == into;
        if !is_same {
            let (from, into) = (datasets[&from].clone(), datasets[&into].clone());
            assert_eq!(from.family(), into.family(), "nodes say whose they are");
            std::mem::swap(&mut *from.tree.borrow_mut(), &mut *into.tree.borrow_mut());
            let (old, new) = (from.record.borrow().clone(), into.record.borrow().clone());
            datasets.change(old.number, |record| {
                take_tree(record, &new);
                record.state = DatasetState::Deleting;
            });
            datasets.change(new.number, |record| take_tree(record, &old));
            from.own.swap(&into.own);
            from.added.swap(&into.added);
            from.leave();
            self.leaves.borrow_mut().exchange(from.number(), into.number());
        }
        datasets.change(into, |record| {
            (record.state, record.size) = (DatasetState::Live, size);
            (record.origin, record.base, record.received, record.epoch) = (Id(0), Id(0), 0, 0);
            if is_same {
                record.inherits = record.inherits.and(Inherits::SYNC);
            }
        });
    }

    /// The checkpoint will have this snapshot.
    pub fn seal_snapshot(&self, record: DatasetRecord) {
        self.sealed_snapshots.borrow_mut().push(record);
    }

    /// It has them.
    pub fn add_sealed(self: &Rc<Self>) {
        for record in self.sealed_snapshots.take() {
            if let Some(volume) = self.datasets.borrow().get(&record.volume) {
                volume.sealing.set(Added::default());
            }
            self.snapshots.borrow_mut().insert_stored(Snapshot::new(record));
            self.deletion_work.send();
        }
    }

    /// A live volume by id.
    pub fn volume(&self, id: Id) -> Option<Rc<Dataset>> {
        self.datasets.borrow().of_id(id).find(|dataset| dataset.is_live()).cloned()
    }

    /// A snapshot by id, unless it is being deleted or its volume is in the trash.
    pub fn snapshot(&self, id: Id) -> Option<Rc<Snapshot>> {
        let snapshots = self.snapshots.borrow();
        let found = snapshots.of_id(id).find(|known| known.is_live())?;
        let is_trashed = self.is_trashed(found.record.borrow().volume);
        (!is_trashed).then(|| found.clone())
    }

    /// The live snapshots listed under a volume, oldest first.
    pub fn snapshots_of(&self, volume: u64) -> Vec<Rc<Snapshot>> {
        self.snapshots.borrow().of_volume(volume).filter(|own| own.is_live()).cloned().collect()
    }

    /// How many there are.
    pub fn count_snapshots(&self, volume: u64) -> u32 {
        self.snapshots.borrow().of_volume(volume).filter(|own| own.is_live()).count() as u32
    }

    /// Volumes that grew from a snapshot, gone ones too.
    pub fn volumes_from(&self, snapshot: u64) -> Vec<Rc<Dataset>> {
        self.datasets.borrow().with_parent(snapshot).cloned().collect()
    }

    /// Snapshots that grew from a snapshot, those that are being deleted too.
    pub fn snapshots_from(&self, snapshot: u64) -> Vec<Rc<Snapshot>> {
        self.snapshots.borrow().with_parent(snapshot).cloned().collect()
    }

    /// Volumes, those in the trash too, and live snapshots that grew from a snapshot, and from ones in between that are being
    /// deleted.
    pub fn heirs(&self, snapshot: u64) -> (Vec<Rc<Dataset>>, Vec<Rc<Snapshot>>) {
        let (mut volumes, mut snapshots, mut from) = (Vec::new(), Vec::new(), vec![snapshot]);
        while let Some(number) = from.pop() {
            volumes.extend(self.volumes_from(number));
            let (live, deleted): (Vec<_>, Vec<_>) =
                self.snapshots_from(number).into_iter().partition(|child| child.is_live());
            snapshots.extend(live);
            from.extend(deleted.iter().map(|child| child.number()));
        }
        volumes.retain(|volume| !volume.is_deleting());
        (volumes, snapshots)
    }

    /// The snapshot that a dataset with this parent grew from, of those that are not being deleted.
    pub fn ancestor(&self, mut parent: Option<u64>) -> Option<Rc<Snapshot>> {
        let snapshots = self.snapshots.borrow();
        loop {
            let found = snapshots.get(&parent?)?;
            if found.is_live() {
                return Some(found.clone());
            }
            parent = found.record.borrow().parent;
        }
    }

    /// What a dataset with this parent has in common with it, and how far its parent is being deleted.
    pub fn shared_with(&self, parent: Option<u64>) -> Shared {
        let snapshots = self.snapshots.borrow();
        let Some(parent) = parent.and_then(|number| snapshots.get(&number)) else { return Shared::default() };
        let record = parent.record.borrow();
        let before =
            record.parent.and_then(|number| snapshots.get(&number)).map_or(0, |before| before.epoch());
        Shared { upto: record.epoch, passed: record.cursor, before }
    }

    /// Tells every tree what it shares, after an import.
    pub fn share_with_snapshots(&self) {
        for dataset in self.datasets.borrow().values() {
            let shared = self.shared_with(dataset.record.borrow().parent);
            dataset.tree.borrow_mut().shared = shared;
        }
    }

    /// Makes ready for a freeze that seals: nothing changes these volumes until [`Shard::release_volumes`]. When that cannot be,
    /// they are released.
    pub async fn hold_volumes(self: &Rc<Self>, orders: Vec<SealOrder>) -> Result<Rest, IoError> {
        let mut prepared = Vec::with_capacity(orders.len());
        let mut held = Vec::with_capacity(orders.len());
        for order in &orders {
            let mut back_to = None;
            let dataset = match order.purpose {
                Purpose::Arrive(_) => self.reception(order.volume),
                Purpose::Keep | Purpose::BackTo(_) => self.volume(order.volume),
            };
            held.push(dataset.clone().ok_or(IoError::Gone)?);
            let into = match order.purpose {
                Purpose::Arrive(Arrival { into: Some(id), .. }) => self.volume(id),
                Purpose::BackTo(id) => {
                    let target = self.snapshot(id).ok_or(IoError::Gone)?;
                    let stored = target.record.borrow().tree();
                    back_to = Some((target, stored));
                    dataset
                }
                Purpose::Keep | Purpose::Arrive(_) => dataset,
            };
            let into = into.ok_or(IoError::Gone)?;
            held.push(into.clone());
            prepared.push((order, into, back_to));
        }
        let is_kept = |order: &&SealOrder| matches!(order.purpose, Purpose::Keep);
        let sealed: Vec<Id> = orders.iter().filter(is_kept).map(|order| order.volume).collect();
        held.iter().for_each(|dataset| dataset.hold(!active(Bug::SnapshotWithoutHold)));
        if !active(Bug::SnapshotWithoutHold) && !self.come_to_rest(&held, HOLD_MAX, HOLD_SHORT_MAX).await {
            held.iter().for_each(|dataset| dataset.hold(false));
            return Ok(Rest::Busy);
        }
        let is_changed = |(order, into, _): &(&SealOrder, Rc<Dataset>, _)| match order.purpose {
            Purpose::Arrive(arrival) => {
                let from = self.reception(order.volume).expect("it is held");
                let base = from.record.borrow().base;
                // What is held for a reserved volume is not known of what takes its place, nodes say whose they are, and of two copies of
                // the base it may have grown from the other one.
                let of_it = self.origin_in(into.number(), base).map(|base| base.number());
                let has_grown = of_it.is_some() && from.record.borrow().parent == of_it;
                let is_fit = into.reserved.get() == 0 && into.family() == from.family() && has_grown;
                arrival.into.is_some()
                    && (!is_fit || (!arrival.discard_changes && self.is_changed(into, base)))
            }
            Purpose::Keep | Purpose::BackTo(_) => false,
        };
        if prepared.iter().any(is_changed) {
            held.iter().for_each(|dataset| dataset.hold(false));
            return Ok(Rest::Changed);
        }
        if self.secure_snapshots(sealed, false).await.is_err() {
            held.iter().for_each(|dataset| dataset.hold(false));
            // What was overwritten since the space was looked for comes back with a checkpoint; what changes have in hand, when they are over.
            let is_in_hand = self.datasets.borrow().values().any(|dataset| dataset.has_aside());
            return if self.expects_space() || is_in_hand { Ok(Rest::Short) } else { Err(IoError::NoSpace) };
        }
        let mut seals = Vec::with_capacity(prepared.len());
        for (order, dataset, back_to) in prepared {
            let number = match self.new_number() {
                Ok(number) => number,
                Err(error) => {
                    held.iter().for_each(|dataset| dataset.hold(false));
                    return Err(error);
                }
            };
            let state = if back_to.is_some() { DatasetState::Deleting } else { DatasetState::Live };
            let (created, scheduled, retain_until) = (order.created, order.scheduled, order.retain_until);
            let (origin, arrived) = match order.purpose {
                Purpose::Arrive(Arrival { origin, size, .. }) => {
                    let arrived = self.reception(order.volume).map(|from| {
                        let is_same = Rc::ptr_eq(&from, &dataset);
                        let setback =
                            if is_same { None } else { self.setback(&dataset, &from.record.borrow()) };
                        (from.number(), size, setback)
                    });
                    (origin, arrived)
                }
                Purpose::Keep | Purpose::BackTo(_) => (Id(0), None),
            };
            let fresh = DatasetRecord::new(DatasetKind::Snapshot, order.snapshot, 12, 0, order.name.clone());
            let snapshot = DatasetRecord { number, state, created, scheduled, retain_until, origin, ..fresh };
            seals.push(Seal { volume: dataset.number(), snapshot, back_to, arrived });
        }
        self.freeze_order.borrow_mut().seals = seals;
        Ok(Rest::Reached)
    }

    /// Waits until all that was begun is in the trees of these volumes, so long at most, and where space is short, so long. Whether it is.
    pub async fn come_to_rest(
        &self,
        volumes: &[Rc<Dataset>],
        patience: Duration,
        when_short: Duration,
    ) -> bool {
        let start = self.rt.now();
        let short_since = Cell::new(None);
        let is_over = || {
            let now = self.rt.now();
            let is_in_log = |dataset: &Rc<Dataset>| {
                !dataset.staged.borrow().is_empty() || !dataset.pending.borrow().is_empty()
            };
            let is_short = volumes.iter().any(|dataset| dataset.lacks_places())
                || (self.lacks_place_for_log() && volumes.iter().any(is_in_log));
            short_since.set(is_short.then(|| short_since.get().unwrap_or(now)));
            let has_been = |since: Nanos, most: Duration| now.since(since) > most.as_nanos() as u64;
            has_been(start, patience)
                || short_since.get().is_some_and(|since| has_been(since, when_short))
                || self.has_ended()
        };
        self.draining.set(self.draining.get() + 1);
        while !volumes.iter().all(|dataset| dataset.is_settled()) && !is_over() {
            self.destage_work.send();
            self.rt.sleep(HOLD_LOOK).await;
        }
        self.draining.set(self.draining.get() - 1);
        volumes.iter().all(|dataset| dataset.is_settled())
    }

    /// There will be no freeze for them.
    pub fn forget_seals(&self) {
        self.freeze_order.borrow_mut().seals.clear();
    }

    /// Lets changes go on.
    pub fn release_volumes(&self) {
        self.datasets.borrow().values().for_each(|dataset| dataset.hold(false));
    }

    /// A number that nothing ever had.
    pub fn new_number(&self) -> Result<u64, IoError> {
        // Deleted ones count until they are gone.
        if !self.has_catalog_room(1) {
            return Err(IoError::NoSpace);
        }
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        Ok(number)
    }

    /// Makes a volume with this record's identity out of a snapshot.
    pub async fn clone_snapshot(
        self: &Rc<Self>,
        snapshot: &Rc<Snapshot>,
        new: DatasetRecord,
    ) -> Result<Rc<Dataset>, IoError> {
        if !snapshot.is_live() {
            return Err(IoError::Gone);
        }
        let _lent = snapshot.lent.clone();
        self.clone_used(snapshot, new).await
    }

    async fn clone_used(
        self: &Rc<Self>,
        snapshot: &Snapshot,
        new: DatasetRecord,
    ) -> Result<Rc<Dataset>, IoError> {
        let was = snapshot.record.borrow().clone();
        let tree = was.tree();
        let record = DatasetRecord {
            root: was.root,
            height: was.height,
            mapped: was.mapped,
            size: was.size,
            block_shift: was.block_shift,
            family: was.family,
            parent: Some(was.number),
            gap: was.gap,
            own: was.own.shared_at(was.epoch),
            ..new
        };
        self.create_dataset(record, Some(tree)).await
    }

    /// Makes new properties of datasets durable, all at once.
    pub async fn put_all(self: &Rc<Self>, records: Vec<DatasetRecord>) -> Result<(), IoError> {
        let changes = records.into_iter().map(Change::put).collect();
        let mut entry = Entry::new(self.entry_id(), changes, true);
        let done = entry.awaited();
        self.submit(entry);
        done.await
    }

    /// Applies new properties; `tree` is that of a clone.
    pub fn apply_put(self: &Rc<Self>, record: DatasetRecord, tree: Option<Tree>) {
        // What a log says while it is replayed may be no longer so: clients see what is there in the end.
        let is_open = registry(&self.rt).shard(self.shared.id, self.index).is_some();
        let forgets_name = !is_open && active(Bug::RenameNotReplayed);
        if self.snapshots.borrow().contains_key(&record.number) {
            if record.state == DatasetState::Deleting {
                self.deletion_work.send();
            }
            let name_of = |now: &DatasetRecord| if forgets_name { now.name.clone() } else { record.name };
            self.snapshots.borrow_mut().change(record.number, |now| {
                (now.name, now.state, now.volume) = (name_of(now), record.state, record.volume);
                (now.held, now.template, now.scheduled) = (record.held, record.template, record.scheduled);
                now.retain_until = record.retain_until;
            });
            return;
        }
        let known = self.datasets.borrow().get(&record.number).cloned();
        let mut arrives = false;
        let dataset = match known {
            Some(dataset) => {
                self.change_tree(&dataset, |tree| tree.grow(record.blocks()));
                let was = dataset.record.borrow().state;
                let was_away = matches!(was, DatasetState::Trashed | DatasetState::Moved);
                let is_back = was_away && record.state == DatasetState::Live;
                arrives = was == DatasetState::Arriving && record.state == DatasetState::Live;
                // What belongs to the tree, and what it grew from, is as the tree has it now.
                self.datasets.borrow_mut().change(record.number, |now| {
                    *now = DatasetRecord {
                        root: now.root,
                        height: now.height,
                        mapped: now.mapped,
                        family: now.family,
                        epoch: now.epoch,
                        parent: now.parent,
                        gap: now.gap,
                        own: now.own,
                        added: now.added,
                        name: if forgets_name { now.name.clone() } else { record.name },
                        ..record
                    };
                });
                dataset.note_reserved();
                if is_back {
                    dataset.gone.set(false);
                }
                dataset
            }
            None => {
                // In a replay, nothing else has told.
                self.next_number.set(self.next_number.get().max(record.number + 1));
                let mut tree = tree.unwrap_or_else(|| Tree::empty(record.blocks()));
                tree.shared = self.shared_with(record.parent);
                let record = DatasetRecord { height: tree.height(), ..record };
                let dataset = Rc::new(Dataset::new(record, tree));
                self.datasets.borrow_mut().insert(dataset.clone());
                dataset
            }
        };
        self.note_project(&dataset);
        // Nearly always nothing is owed to anybody, and a shard may have very many volumes.
        if dataset.reserved.get() > 0 || !self.owes_nothing() {
            self.settle_debts();
        }
        let registry = registry(&self.rt);
        let (kind, state) = (dataset.record.borrow().kind, dataset.record.borrow().state);
        match (kind, state) {
            (DatasetKind::Volume, DatasetState::Live) if arrives && is_open => {
                registry.hand_over(self, dataset)
            }
            (DatasetKind::Volume, DatasetState::Live) if is_open => registry.add_volume(self, dataset),
            (_, DatasetState::Live | DatasetState::Receiving | DatasetState::Arriving) => {}
            // It is gone when it is there in the other pool.
            (_, DatasetState::Moved) if is_open => {}
            (_, DatasetState::Trashed | DatasetState::Moved) => {
                dataset.leave();
                registry.remove_volume(&dataset);
            }
            (_, DatasetState::Deleting) => {
                dataset.leave();
                registry.remove_volume(&dataset);
                self.deletion_work.send();
            }
        }
    }
}
