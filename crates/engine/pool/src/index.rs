//! What a shard has, by number, and by what else it is asked for: an id, the volume that a snapshot or a bookmark is listed under, the snapshot
//! that a dataset grew from, and whether it is being deleted. A shard may have a million of them, so nothing looks through all.
//!
//! Invariants: the indexes say what the records say, and whose record is not as the last checkpoint has it is *touched*. A change of a record goes
//! through `change`, or is followed by `touch`.

use crate::dataset::Dataset;
use crate::lineage::Snapshot;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use forebay_base::Id;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::rc::Rc;

/// The datasets of a shard.
#[derive(Default)]
pub(crate) struct Datasets {
    by_number: BTreeMap<u64, Rc<Dataset>>,
    index: Index,
    touched: RefCell<Vec<u64>>,
}

/// The snapshots of a shard.
#[derive(Default)]
pub(crate) struct Snapshots {
    by_number: BTreeMap<u64, Rc<Snapshot>>,
    index: Index,
    /// By the volume that they are listed under, oldest first.
    by_volume: BTreeSet<(u64, u64, u64)>,
    touched: RefCell<BTreeSet<u64>>,
}

/// The numbers with these properties.
#[derive(Default)]
struct Index {
    by_id: BTreeSet<(Id, u64)>,
    by_parent: BTreeSet<(u64, u64)>,
    /// Bookmarks, by their volume.
    bookmarks: BTreeSet<(u64, u64)>,
    deleting: BTreeSet<u64>,
}

impl Index {
    fn add(&mut self, record: &DatasetRecord) {
        let number = record.number;
        self.by_id.insert((record.id, number));
        self.by_parent.extend(record.parent.map(|parent| (parent, number)));
        if record.state == DatasetState::Deleting {
            self.deleting.insert(number);
        }
        if record.kind == DatasetKind::Bookmark {
            self.bookmarks.insert((record.volume, number));
        }
    }

    fn remove(&mut self, record: &DatasetRecord) {
        let number = record.number;
        self.by_id.remove(&(record.id, number));
        record.parent.map(|parent| self.by_parent.remove(&(parent, number)));
        self.deleting.remove(&number);
        self.bookmarks.remove(&(record.volume, number));
    }

    fn of_id(&self, id: Id) -> impl Iterator<Item = u64> {
        self.by_id.range((id, 0)..=(id, u64::MAX)).map(|(_, number)| *number)
    }

    fn with_parent(&self, parent: u64) -> impl Iterator<Item = u64> {
        self.by_parent.range((parent, 0)..=(parent, u64::MAX)).map(|(_, number)| *number)
    }
}

impl Datasets {
    pub fn insert(&mut self, dataset: Rc<Dataset>) {
        // What a disk says may have a number twice: the last one counts.
        self.remove(dataset.number());
        self.index.add(&dataset.record.borrow());
        self.touch(&dataset);
        self.by_number.insert(dataset.number(), dataset);
    }

    /// A record, or a tree, is not as the last checkpoint has it. Every write says so.
    pub fn touch(&self, dataset: &Dataset) {
        if !dataset.touched.replace(true) {
            self.touched.borrow_mut().push(dataset.number());
        }
    }

    /// The numbers of what came, changed or went since this was last asked.
    pub fn take_touched(&self) -> Vec<u64> {
        let touched = self.touched.take();
        let there = touched.iter().filter_map(|number| self.by_number.get(number));
        there.for_each(|dataset| dataset.touched.set(false));
        touched
    }

    pub fn remove(&mut self, number: u64) {
        if let Some(dataset) = self.by_number.remove(&number) {
            self.index.remove(&dataset.record.borrow());
            self.touched.borrow_mut().push(number);
        }
    }

    /// Changes the record of a dataset that is there.
    pub fn change(&mut self, number: u64, change: impl FnOnce(&mut DatasetRecord)) {
        self.touch(&self.by_number[&number]);
        let mut record = self.by_number[&number].record.borrow_mut();
        self.index.remove(&record);
        change(&mut record);
        self.index.add(&record);
    }

    pub fn of_id(&self, id: Id) -> impl Iterator<Item = &Rc<Dataset>> {
        self.index.of_id(id).map(|number| &self.by_number[&number])
    }

    /// Those that grew from a snapshot.
    pub fn with_parent(&self, parent: u64) -> impl Iterator<Item = &Rc<Dataset>> {
        self.index.with_parent(parent).map(|number| &self.by_number[&number])
    }

    /// The bookmarks of a volume, those that are being deleted too.
    pub fn bookmarks_of(&self, volume: u64) -> impl Iterator<Item = &Rc<Dataset>> {
        let range = self.index.bookmarks.range((volume, 0)..=(volume, u64::MAX));
        range.map(|(_, number)| &self.by_number[number])
    }

    pub fn deleting(&self) -> impl Iterator<Item = &Rc<Dataset>> {
        self.index.deleting.iter().map(|number| &self.by_number[number])
    }
}

impl Deref for Datasets {
    type Target = BTreeMap<u64, Rc<Dataset>>;
    fn deref(&self) -> &Self::Target {
        &self.by_number
    }
}

impl FromIterator<Rc<Dataset>> for Datasets {
    fn from_iter<I: IntoIterator<Item = Rc<Dataset>>>(datasets: I) -> Datasets {
        let mut all = Datasets::default();
        datasets.into_iter().for_each(|dataset| all.insert(dataset));
        // They are as they were read, but for a tree that had to grow.
        let touched = all.take_touched();
        let has_grown = |dataset: &&Rc<Dataset>| dataset.tree.borrow().is_dirty();
        touched
            .iter()
            .filter_map(|number| all.get(number))
            .filter(has_grown)
            .for_each(|grown| all.touch(grown));
        all
    }
}

impl Snapshots {
    pub fn insert(&mut self, snapshot: Rc<Snapshot>) {
        self.remove(snapshot.number());
        self.add(&snapshot.record.borrow());
        self.touch(snapshot.number());
        self.by_number.insert(snapshot.number(), snapshot);
    }

    /// Adds one that the last checkpoint has.
    pub fn insert_stored(&mut self, snapshot: Rc<Snapshot>) {
        let was_touched = self.touched.borrow().contains(&snapshot.number());
        let number = snapshot.number();
        self.insert(snapshot);
        if !was_touched {
            self.touched.borrow_mut().remove(&number);
        }
    }

    /// A record is not as the last checkpoint has it.
    pub fn touch(&self, number: u64) {
        self.touched.borrow_mut().insert(number);
    }

    /// The numbers of what came, changed or went since this was last asked.
    pub fn take_touched(&self) -> BTreeSet<u64> {
        self.touched.take()
    }

    pub fn remove(&mut self, number: u64) {
        if let Some(snapshot) = self.by_number.remove(&number) {
            self.take_out(&snapshot.record.borrow());
            self.touch(number);
        }
    }

    /// Changes the record of a snapshot that is there.
    pub fn change(&mut self, number: u64, change: impl FnOnce(&mut DatasetRecord)) {
        let snapshot = self.by_number[&number].clone();
        self.touch(number);
        let mut record = snapshot.record.borrow_mut();
        self.take_out(&record);
        change(&mut record);
        self.add(&record);
    }

    fn add(&mut self, record: &DatasetRecord) {
        self.index.add(record);
        self.by_volume.insert((record.volume, record.epoch, record.number));
    }

    fn take_out(&mut self, record: &DatasetRecord) {
        self.index.remove(record);
        self.by_volume.remove(&(record.volume, record.epoch, record.number));
    }

    pub fn of_id(&self, id: Id) -> impl Iterator<Item = &Rc<Snapshot>> {
        self.index.of_id(id).map(|number| &self.by_number[&number])
    }

    /// Those that are listed under a volume, oldest first; also what is being deleted.
    pub fn of_volume(&self, volume: u64) -> impl DoubleEndedIterator<Item = &Rc<Snapshot>> {
        self.of_volume_from(volume, 0)
    }

    /// Those that ended this epoch or a later one.
    pub fn of_volume_from(&self, volume: u64, epoch: u64) -> impl DoubleEndedIterator<Item = &Rc<Snapshot>> {
        let own = self.by_volume.range((volume, epoch, 0)..=(volume, u64::MAX, u64::MAX));
        own.map(|(.., number)| &self.by_number[number])
    }

    /// Those that grew from a snapshot.
    pub fn with_parent(&self, parent: u64) -> impl Iterator<Item = &Rc<Snapshot>> {
        self.index.with_parent(parent).map(|number| &self.by_number[&number])
    }

    /// How many there are, without those that are being deleted.
    pub fn kept(&self) -> usize {
        self.by_number.len() - self.index.deleting.len()
    }

    pub fn deleting(&self) -> impl Iterator<Item = &Rc<Snapshot>> {
        self.deleting_from(0)
    }

    /// Those that are being deleted, from a number on.
    pub fn deleting_from(&self, number: u64) -> impl Iterator<Item = &Rc<Snapshot>> {
        self.index.deleting.range(number..).map(|number| &self.by_number[number])
    }
}

impl Deref for Snapshots {
    type Target = BTreeMap<u64, Rc<Snapshot>>;
    fn deref(&self) -> &Self::Target {
        &self.by_number
    }
}

impl FromIterator<Rc<Snapshot>> for Snapshots {
    fn from_iter<I: IntoIterator<Item = Rc<Snapshot>>>(snapshots: I) -> Snapshots {
        let mut all = Snapshots::default();
        snapshots.into_iter().for_each(|snapshot| all.insert(snapshot));
        // They are as they were read.
        all.take_touched();
        all
    }
}
