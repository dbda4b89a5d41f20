//! The trash: deleted volumes that can still be had back.
//!
//! A volume in the trash is as it was, with its tree in memory, its blocks and its snapshots, but nobody finds it: not by name, which is
//! free for another volume at once, and its snapshots neither. So to have it back is a change of its record, and so is what happens when its time
//! is over: it becomes a deleted one (see [`crate::deletion`]), with its snapshots.
//!
//! To whom it shares blocks with it is a volume like any other: the snapshot that it grew from cannot be deleted as long as it is there.
//!
//! Nothing is purged before its time because space is short: whoever deleted something by mistake relies on the time that was promised.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::names::Place;
use crate::projects::project_of;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::registry::registry;
use crate::shard::Shard;
use crate::spec::{Severity, TRASH_KEEP_SECONDS, TrashInfo, VolumeInfo};
use crate::utc::utc;
use crate::{Engine, controls_of, find_pool};
use async_recursion::async_recursion as boxed;
use forebay_base::{Id, Nanos, WallTime};
use forebay_runtime::Rt;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How often it is looked whether a volume's time is over.
const PERIOD: Duration = Duration::from_secs(60);
/// Ten years. More would not be a trash.
const KEEP_SECONDS_MAX: u32 = 10 * 366 * 24 * 3600;

/// A volume in the trash, as the coordinator knows it.
#[derive(Clone)]
struct Trashed {
    name: String,
    shard: usize,
    deleted: WallTime,
    /// When that was on the clock that cannot be set, if it was in this run.
    since: Option<Nanos>,
}

/// The trash of one pool.
pub(crate) struct Trash {
    volumes: RefCell<BTreeMap<Id, Trashed>>,
    /// How long they are kept; with 0 they are not.
    pub keep_seconds: Cell<u32>,
}

impl Default for Trash {
    fn default() -> Trash {
        Trash { volumes: RefCell::default(), keep_seconds: Cell::new(TRASH_KEEP_SECONDS) }
    }
}

impl Trash {
    pub fn is_empty(&self) -> bool {
        self.volumes.borrow().is_empty()
    }

    /// How many of them belong to a project.
    pub fn count_of(&self, project: &str) -> u32 {
        let volumes = self.volumes.borrow();
        volumes.values().filter(|trashed| project_of(&trashed.name) == Some(project)).count() as u32
    }

    /// On which shards they are, one for each.
    pub fn shards(&self) -> Vec<usize> {
        self.volumes.borrow().values().map(|trashed| trashed.shard).collect()
    }

    pub fn has(&self, id: Id) -> bool {
        self.volumes.borrow().contains_key(&id)
    }

    /// A volume that was deleted just now.
    pub fn add(&self, rt: &Rt, place: Place, name: String, deleted: WallTime) {
        let trashed = Trashed { name, shard: place.shard, deleted, since: Some(rt.now()) };
        self.volumes.borrow_mut().insert(place.id, trashed);
    }

    /// What an import found on one shard.
    pub fn found(&self, shard: usize, volumes: &[(Id, String, WallTime)]) {
        let trashed = |(id, name, deleted): &(Id, String, WallTime)| {
            (*id, Trashed { name: name.clone(), shard, deleted: *deleted, since: None })
        };
        self.volumes.borrow_mut().extend(volumes.iter().map(trashed));
    }

    pub fn rename(&self, id: Id, name: String) {
        if let Some(trashed) = self.volumes.borrow_mut().get_mut(&id) {
            trashed.name = name;
        }
    }

    fn purge_at(&self, deleted: WallTime) -> WallTime {
        WallTime(deleted.0.saturating_add(u64::from(self.keep_seconds.get()) * 1000))
    }

    /// Whose time is over. By the clock on the wall alone, a volume that was deleted while that was behind would go as soon as it is right
    /// again; one that was deleted while it was ahead stays longer than it has to.
    fn due(&self, rt: &Rt) -> Vec<Id> {
        let (keep, now) = (Duration::from_secs(self.keep_seconds.get().into()), rt.wall());
        let is_due = |trashed: &Trashed| {
            let has_waited =
                trashed.since.is_none_or(|since| u128::from(rt.now().since(since)) >= keep.as_nanos());
            has_waited && self.purge_at(trashed.deleted).0 <= now.0
        };
        let volumes = self.volumes.borrow();
        volumes.iter().filter(|(_, trashed)| is_due(trashed)).map(|(id, _)| *id).collect()
    }
}

impl Shard {
    fn all_trashed(&self) -> Vec<Rc<Dataset>> {
        let is_trashed = |dataset: &&Rc<Dataset>| {
            let record = dataset.record.borrow();
            record.kind == DatasetKind::Volume && record.state == DatasetState::Trashed
        };
        self.datasets.borrow().values().filter(is_trashed).cloned().collect()
    }

    /// The volumes in the trash: id, name, and since when.
    pub fn trashed(&self) -> Vec<(Id, String, WallTime)> {
        let told = |dataset: Rc<Dataset>| {
            let record = dataset.record.borrow();
            (record.id, record.name.clone(), record.deleted)
        };
        self.all_trashed().into_iter().map(told).collect()
    }

    pub fn is_trashed(&self, number: u64) -> bool {
        let datasets = self.datasets.borrow();
        datasets.get(&number).is_some_and(|dataset| dataset.record.borrow().state == DatasetState::Trashed)
    }

    fn trash_info(&self, dataset: &Dataset) -> TrashInfo {
        let record = dataset.record.borrow();
        TrashInfo {
            id: record.id,
            pool: self.shared.name.clone(),
            name: record.name.clone(),
            size: record.size,
            block_size: 1 << record.block_shift,
            mapped: (dataset.tree.borrow().mapped().blocks as u64) << record.block_shift,
            snapshots: self.count_snapshots(record.number),
            deleted: record.deleted,
            // The coordinator knows.
            purge: WallTime(0),
        }
    }
}

impl Control {
    /// A volume in the trash by id, or by name if only one had that.
    fn in_trash(&self, name: &str) -> Result<(Id, Trashed), Error> {
        let volumes = self.trash.volumes.borrow();
        if let Ok(id) = name.parse::<Id>()
            && let Some(trashed) = volumes.get(&id)
        {
            return Ok((id, trashed.clone()));
        }
        let mut named: Vec<_> = volumes.iter().filter(|(_, trashed)| trashed.name == name).collect();
        named.sort_by_key(|(_, trashed)| trashed.deleted.0);
        match named[..] {
            [] => Err(Error::new(ErrorKind::NotFound, self.object(name), "no such volume in the trash")
                .remedy("List the trash with: forebay volume trash")),
            [(id, trashed)] => Ok((*id, trashed.clone())),
            _ => {
                let each =
                    named.iter().map(|(id, trashed)| format!("{id} (deleted {})", utc(trashed.deleted)));
                let message = format!(
                    "the trash has {} volumes of this name: {}",
                    named.len(),
                    each.collect::<Vec<_>>().join(", ")
                );
                Err(Error::new(ErrorKind::Conflict, self.object(name), message)
                    .remedy("Name the volume by its UUID"))
            }
        }
    }

    /// Runs `work` on the shard of a volume in the trash.
    async fn on_trashed<T, F, W>(&self, id: Id, trashed: &Trashed, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Shard>, Rc<Dataset>) -> W + Send + 'static,
        W: Future<Output = Result<T, IoError>> + 'static,
    {
        let result = self.on_shard(trashed.shard, move |shard| async move {
            let dataset = shard.all_trashed().into_iter().find(|dataset| dataset.id() == id);
            match dataset {
                Some(dataset) => work(shard, dataset).await,
                None => Err(IoError::Gone),
            }
        });
        result.await?.map_err(|error| self.io_error(&trashed.name, error))
    }

    async fn trash_list(&self) -> Result<Vec<TrashInfo>, Error> {
        let mut all = Vec::new();
        for index in 0..self.shard_count() {
            let list = |shard: Rc<Shard>| async move {
                shard.all_trashed().iter().map(|dataset| shard.trash_info(dataset)).collect::<Vec<_>>()
            };
            all.extend(self.on_shard(index, list).await?);
        }
        all.iter_mut().for_each(|volume| volume.purge = self.trash.purge_at(volume.deleted));
        all.sort_by(|a, b| (&a.name, a.deleted.0, a.id).cmp(&(&b.name, b.deleted.0, b.id)));
        Ok(all)
    }

    async fn trash_show(&self, name: &str) -> Result<TrashInfo, Error> {
        let (id, trashed) = self.in_trash(name)?;
        let look = |shard: Rc<Shard>, dataset: Rc<Dataset>| async move { Ok(shard.trash_info(&dataset)) };
        let info = self.on_trashed(id, &trashed, look).await?;
        Ok(TrashInfo { purge: self.trash.purge_at(info.deleted), ..info })
    }

    async fn volume_restore(&self, name: &str, new_name: Option<String>) -> Result<VolumeInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (id, trashed) = self.in_trash(name)?;
        let name = new_name.unwrap_or_else(|| trashed.name.clone());
        let object = self.object(&name);
        if project_of(&name) != project_of(&trashed.name) {
            self.check_quota(&name, 0).await?;
        }
        self.check_new_name(&name)?;
        if self.names.borrow().contains_key(&name) {
            return Err(Error::new(ErrorKind::Conflict, object, "another volume has this name now")
                .remedy("Restore it under another name, with '--as'"));
        }
        // The name is taken from here on, so that two requests cannot both have it.
        self.names.borrow_mut().insert(name.clone(), Place { shard: trashed.shard, id });
        let own = name.clone();
        let restored = self.on_trashed(id, &trashed, move |shard, dataset| async move {
            let record = dataset.record.borrow().clone();
            let (state, deleted) = (DatasetState::Live, WallTime(0));
            shard.put_all(vec![DatasetRecord { state, deleted, name: own, ..record }]).await?;
            Ok(shard.info(&dataset).await)
        });
        let restored = restored.await;
        if restored.is_err() {
            self.names.borrow_mut().remove(&name);
        } else {
            self.trash.volumes.borrow_mut().remove(&id);
        }
        self.with_promise(restored?).await
    }

    async fn volume_purge(&self, name: &str) -> Result<(), Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (id, trashed) = self.in_trash(name)?;
        let refused = self.on_trashed(id, &trashed, |shard, dataset| async move {
            // A clone may have been on its way when its volume was deleted.
            let objections = shard.objections(dataset.number());
            if !objections.is_empty() {
                return Ok(Err(objections.join("; ")));
            }
            let snapshots = shard.snapshots_of(dataset.number());
            let volume = dataset.record.borrow().clone();
            shard.doom(&snapshots, Some(volume)).await.map(Ok)
        });
        refused.await?.map_err(|why| {
            let message = format!("it cannot be purged: {why}");
            Error::new(ErrorKind::Conflict, self.object(&trashed.name), message)
                .remedy("Delete or promote the clones first")
        })?;
        self.trash.volumes.borrow_mut().remove(&id);
        Ok(())
    }

    /// Has deleted volumes kept for so many seconds, those in the trash already too; with 0 nothing gets there.
    async fn set_trash_keep(self: &Rc<Self>, seconds: u32) -> Result<(), Error> {
        if seconds > KEEP_SECONDS_MAX {
            let message = format!("deleted volumes cannot be kept for {seconds} seconds");
            return Err(self
                .error(ErrorKind::Invalid("trash_keep_seconds"), message)
                .remedy("Give ten years at most, or 0 to keep none"));
        }
        self.trash.keep_seconds.set(seconds);
        self.checkpoint().await.map(drop)
    }

    /// Has volumes purged when their time is over.
    pub fn empty_trash(self: &Rc<Self>) {
        drop(self.rt.spawn(look(Rc::downgrade(self), self.rt.clone())));
    }
}

async fn look(control: Weak<Control>, rt: Rt) {
    loop {
        rt.sleep(PERIOD).await;
        let Some(control) = control.upgrade().filter(|control| !control.closing.get()) else { return };
        if control.shared.is_suspended() {
            continue;
        }
        for id in control.trash.due(&rt) {
            let Ok((_, Trashed { name, .. })) = control.in_trash(&id.to_string()) else { continue };
            // One that something grew from stays until that is gone.
            if control.volume_purge(&id.to_string()).await.is_ok() {
                let message = "the volume was purged: its time in the trash is over".to_string();
                control.event(Severity::Info, "volume.purged", &control.object(&name), message);
            }
        }
    }
}

impl Engine {
    /// What is in the trash, of one pool or of all.
    #[boxed]
    pub async fn trash(&self, pool: Option<&str>) -> Result<Vec<TrashInfo>, Error> {
        let pool = pool.map(str::to_string);
        let gather = |rt: Rt| async move {
            let mut all = Vec::new();
            for control in controls_of(&rt, pool.as_deref())? {
                all.extend(control.trash_list().await?);
            }
            Ok(all)
        };
        self.on_core_0(gather).await
    }

    /// Runs `work` with the coordinator of the pool of a volume in the trash, `POOL/NAME` or its UUID.
    async fn on_trash<T, F, W>(&self, volume: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>, String) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        let volume = volume.to_string();
        let found = move |rt: Rt| async move {
            if let Some((pool, name)) = volume.split_once('/') {
                return work(find_pool(&rt, pool)?, name.to_string()).await;
            }
            let has_it = |control: &Rc<Control>| control.in_trash(&volume).is_ok();
            let owner = registry(&rt).controls().into_iter().find(has_it).ok_or_else(|| {
                Error::new(
                    ErrorKind::NotFound,
                    &*volume,
                    "no imported pool has a volume with this id in its trash",
                )
                .remedy("Name it POOL/NAME or by its UUID; list the trash with: forebay volume trash")
            })?;
            work(owner, volume.clone()).await
        };
        self.on_core_0(found).await
    }

    /// A volume in the trash by `POOL/NAME`, if only one had that, or UUID.
    #[boxed]
    pub async fn trashed(&self, name: &str) -> Result<TrashInfo, Error> {
        self.on_trash(name, |control, name| async move { control.trash_show(&name).await }).await
    }

    /// Has a volume back from the trash, under its name or another (within the pool).
    #[boxed]
    pub async fn volume_restore(&self, name: &str, new_name: Option<&str>) -> Result<VolumeInfo, Error> {
        let new_name = new_name.map(str::to_string);
        self.on_trash(name, |control, name| async move {
            control.writable()?;
            control.volume_restore(&name, new_name).await
        })
        .await
    }

    /// Deletes a volume in the trash for good, with its snapshots; their space comes back in the background.
    #[boxed]
    pub async fn volume_purge(&self, name: &str) -> Result<(), Error> {
        self.on_trash(name, |control, name| async move {
            control.writable()?;
            control.volume_purge(&name).await
        })
        .await
    }

    /// Has deleted volumes kept for so many seconds before they are purged, those in the trash already too; with 0 they are not
    /// kept.
    #[boxed]
    pub async fn set_trash_keep(&self, pool: &str, seconds: u32) -> Result<(), Error> {
        self.on_writable_pool(pool, move |control| async move { control.set_trash_keep(seconds).await }).await
    }
}
