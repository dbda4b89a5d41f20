//! Snapshots and clones as management sees them.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::lineage::{Purpose, Rest, SealOrder, Snapshot};
use crate::names::Place;
use crate::projects::Inherits;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::registry::registry;
use crate::reserve::Attempt;
use crate::shard::Shard;
use crate::spec::{SnapshotChange, SnapshotInfo, VolumeInfo};
use crate::steps::Steps;
use crate::{Engine, controls_of, find_pool};
use async_recursion::async_recursion as boxed;
use forebay_base::{Id, WallTime};
use forebay_runtime::Rt;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use std::{cell::Cell, rc::Rc};

/// Longest snapshot name in bytes.
const NAME_MAX: usize = 100;
/// How often volumes are given time to come to rest for a snapshot. In between a checkpoint helps who waits for one.
const SEAL_TRIES: u32 = 6;
/// What is left to others before the second one; twice as much before each that follows.
const SEAL_PAUSE: Duration = Duration::from_millis(10);

/// Snapshots to be taken by one checkpoint, on one shard.
pub(crate) struct SealRequest {
    shard: usize,
    orders: Vec<SealOrder>,
    /// How it ended.
    pub done: Cell<Option<Result<(), IoError>>>,
    /// Why there was no checkpoint for it.
    rest: Cell<Rest>,
}

impl SealRequest {
    /// Whether a volume becomes something else than it was.
    pub fn exchanges(&self) -> bool {
        self.orders.iter().any(|order| !matches!(order.purpose, Purpose::Keep))
    }
}

impl Shard {
    pub(crate) fn snapshot_info(&self, snapshot: &Snapshot) -> SnapshotInfo {
        let record = snapshot.record.borrow();
        let name = |number: u64| {
            let datasets = self.datasets.borrow();
            datasets.get(&number).map_or(String::new(), |dataset| dataset.record.borrow().name.clone())
        };
        // Who grew from it beside the volume itself and its own snapshots.
        let (volumes, snapshots) = self.heirs(record.number);
        let volumes = volumes.iter().filter(|dataset| dataset.number() != record.volume);
        let mut clones: Vec<String> = volumes.map(|dataset| clone_name(&dataset.record.borrow())).collect();
        let others = snapshots.iter().filter(|child| child.record.borrow().volume != record.volume);
        clones.extend(others.map(|child| name(child.record.borrow().volume)));
        clones.sort();
        clones.dedup();
        SnapshotInfo {
            id: record.id,
            pool: self.shared.name.clone(),
            volume: name(record.volume),
            name: record.name.clone(),
            size: record.size,
            block_size: 1 << record.block_shift,
            created: record.created,
            mapped: (record.mapped.blocks as u64) << record.block_shift,
            unique: None,
            retained_until: self.retained_until(&record),
            held: record.held,
            template: record.template,
            scheduled: record.scheduled,
            clones,
        }
    }

    pub(crate) async fn describe(self: &Rc<Self>, snapshot: &Rc<Snapshot>) -> SnapshotInfo {
        let kept = self.kept_by(snapshot).await.ok();
        SnapshotInfo { unique: kept.map(|kept| kept.unique), ..self.snapshot_info(snapshot) }
    }

    /// The snapshot of another volume that a clone grew from. It may have snapshots of its own since.
    fn cloned_from(&self, dataset: &Dataset) -> Option<Rc<Snapshot>> {
        let mut parent = dataset.record.borrow().parent;
        // More than there are lead round in a circle: nobody has written these.
        for _ in 0..=self.count_snapshots(dataset.number()) {
            let found = self.ancestor(parent)?;
            if found.record.borrow().volume != dataset.number() {
                return Some(found);
            }
            parent = found.record.borrow().parent;
        }
        None
    }

    /// What a live volume was cloned from, `VOLUME@NAME`.
    pub(crate) fn origin_of(&self, dataset: &Dataset) -> Option<String> {
        let origin = self.cloned_from(dataset)?;
        let origin = origin.record.borrow();
        let datasets = self.datasets.borrow();
        let volume = datasets.get(&origin.volume)?.record.borrow();
        Some(format!("{}@{}", volume.name, origin.name))
    }

    /// Has snapshots, and a volume with them, deleted in the background, once that is durable.
    pub(crate) async fn doom(
        self: &Rc<Self>,
        snapshots: &[Rc<Snapshot>],
        volume: Option<DatasetRecord>,
    ) -> Result<(), IoError> {
        snapshots.iter().for_each(|snapshot| snapshot.doomed.set(true));
        snapshots.iter().for_each(|snapshot| self.scrub_forgets(snapshot.number()));
        let snapshots = snapshots.iter().map(|snapshot| snapshot.record.borrow().clone());
        let deleting = |record| DatasetRecord { state: DatasetState::Deleting, ..record };
        self.put_all(snapshots.chain(volume).map(deleting).collect()).await
    }

    /// Makes a clone the owner of its snapshot and those before.
    async fn promote(self: &Rc<Self>, dataset: &Rc<Dataset>) -> Result<Result<(), String>, IoError> {
        let number = dataset.number();
        let Some(origin) = self.cloned_from(dataset) else {
            return Ok(Err("it is not a clone, or already owns the snapshot that it was cloned from".into()));
        };
        let owner = origin.record.borrow().volume;
        let own: Vec<String> =
            self.snapshots_of(number).iter().map(|own| own.record.borrow().name.clone()).collect();
        let (mut moved, mut next) = (Vec::new(), Some(origin));
        while let Some(snapshot) = next.filter(|snapshot| snapshot.record.borrow().volume == owner) {
            let record = snapshot.record.borrow().clone();
            if own.contains(&record.name) {
                let name = record.name;
                return Ok(Err(format!("both have a snapshot named '{name}'; delete one of them")));
            }
            next = self.ancestor(record.parent);
            moved.push(DatasetRecord { volume: number, ..record });
        }
        self.put_all(moved).await.map(Ok)
    }
}

impl Control {
    /// An error with a snapshot named within the pool.
    fn snapshot_error(&self, name: &str, error: IoError) -> Error {
        match error {
            IoError::Gone if self.closing.get() => self.io_error(name, error),
            IoError::Gone if name.contains('#') => Error::new(
                ErrorKind::NotFound,
                self.object(name),
                "a bookmark holds no data, only a point in time",
            )
            .remedy("Name a snapshot, VOLUME@NAME; list them with: forebay snapshot list"),
            IoError::Gone if !name.contains('@') => {
                Error::new(ErrorKind::NotFound, self.object(name), "no such snapshot")
                    .remedy("A snapshot is named VOLUME@NAME; list them with: forebay snapshot list")
            }
            IoError::Gone => Error::new(ErrorKind::NotFound, self.object(name), "no such snapshot")
                .remedy("List them with: forebay snapshot list"),
            error => self.io_error(name, error),
        }
    }

    /// The shard and the id of a snapshot named `VOLUME@NAME`, or by its UUID.
    pub(crate) async fn find_snapshot(&self, name: &str) -> Result<Place, Error> {
        let missing = || self.snapshot_error(name, IoError::Gone);
        let found = match name.split_once('@') {
            Some((volume, own)) => {
                let (_, place) = self.find(volume).ok_or_else(missing)?;
                let own = own.to_string();
                let look = move |shard: Rc<Shard>| async move {
                    let volume = shard.volume(place.id)?;
                    let snapshots = shard.snapshots.borrow();
                    let is_it =
                        |snapshot: &&Rc<Snapshot>| snapshot.is_live() && snapshot.record.borrow().name == own;
                    let found = snapshots.of_volume(volume.number()).find(is_it);
                    found.map(|snapshot| snapshot.record.borrow().id)
                };
                self.on_shard(place.shard, look).await?.map(|id| Place { shard: place.shard, id })
            }
            None => {
                let id: Id = name.parse().map_err(|_| missing())?;
                let mut found = None;
                for shard in 0..self.shard_count() {
                    let look = move |shard: Rc<Shard>| async move { shard.snapshot(id).is_some() };
                    if self.on_shard(shard, look).await? {
                        found = Some(Place { shard, id });
                    }
                }
                found
            }
        };
        found.ok_or_else(missing)
    }

    /// Runs `work` with a snapshot on its shard.
    pub(crate) async fn on_snapshot<T, F, W>(&self, name: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Shard>, Rc<Snapshot>) -> W + Send + 'static,
        W: Future<Output = Result<T, IoError>> + 'static,
    {
        let place = self.find_snapshot(name).await?;
        let result = self.on_shard(place.shard, move |shard| async move {
            match shard.snapshot(place.id) {
                Some(snapshot) => work(shard, snapshot).await,
                None => Err(IoError::Gone),
            }
        });
        result.await?.map_err(|error| self.snapshot_error(name, error))
    }

    /// Brings the volumes of all requests to rest, on every shard. Gives those that the freeze will seal; the others are over, or
    /// wait for the next checkpoint.
    pub async fn prepare_seals(&self) -> Result<Vec<Rc<SealRequest>>, Error> {
        let requests: Vec<Rc<SealRequest>> = self.seals.take();
        if requests.is_empty() {
            return Ok(requests);
        }
        let mut by_shard: BTreeMap<usize, Vec<SealOrder>> = BTreeMap::new();
        for request in &requests {
            by_shard.entry(request.shard).or_default().extend(request.orders.iter().cloned());
        }
        let holding = by_shard.into_iter().map(|(shard, orders)| {
            self.on_shard(shard, move |shard| async move { shard.hold_volumes(orders).await })
        });
        let mut result = Ok(Rest::Reached);
        for held in join_all(holding).await {
            match held? {
                Ok(Rest::Reached) => {}
                Ok(rest) => result = result.map(|_| rest),
                Err(error) => result = Err(error),
            }
        }
        match result {
            Ok(Rest::Reached) => return Ok(requests),
            Ok(rest) => requests.iter().for_each(|request| request.rest.set(rest)),
            Err(error) => requests.iter().for_each(|request| request.done.set(Some(Err(error)))),
        }
        self.release_volumes().await?;
        Ok(Vec::new())
    }

    /// Lets changes go on after a freeze, or where there will be none.
    pub async fn release_volumes(&self) -> Result<(), Error> {
        for shard in 0..self.shard_count() {
            let release = |shard: Rc<Shard>| async move {
                shard.forget_seals();
                shard.release_volumes();
            };
            self.on_shard(shard, release).await?;
        }
        Ok(())
    }

    /// Has one checkpoint seal these snapshots, all at one moment.
    pub(crate) async fn seal(
        self: &Rc<Self>,
        name: &str,
        orders: Vec<(usize, SealOrder)>,
    ) -> Result<(), Error> {
        let mut by_shard: BTreeMap<usize, Vec<SealOrder>> = BTreeMap::new();
        orders.into_iter().for_each(|(shard, order)| by_shard.entry(shard).or_default().push(order));
        let mut is_short = false;
        for tried in 0..SEAL_TRIES {
            if tried > 0 {
                self.rt.sleep(SEAL_PAUSE * (1 << (tried - 1))).await;
            }
            let request = |(&shard, orders): (&usize, &Vec<SealOrder>)| {
                let (done, rest) = (Cell::new(None), Cell::new(Rest::Reached));
                Rc::new(SealRequest { shard, orders: orders.clone(), done, rest })
            };
            let requests: Vec<Rc<SealRequest>> = by_shard.iter().map(request).collect();
            self.seals.borrow_mut().extend(requests.iter().cloned());
            self.checkpoint().await?;
            match requests.iter().map(|request| request.rest.get()).find(|rest| *rest != Rest::Reached) {
                Some(Rest::Changed) => return Err(self.changed(name)),
                Some(rest) => {
                    is_short |= rest == Rest::Short;
                    continue;
                }
                None => {}
            }
            for request in &requests {
                let done = request.done.get().unwrap_or(Err(IoError::Gone));
                done.map_err(|error| self.snapshot_error(name, error))?;
            }
            return Ok(());
        }
        if is_short {
            return Err(self.snapshot_error(name, IoError::NoSpace));
        }
        Err(Error::new(
            ErrorKind::Conflict,
            self.object(name),
            "writes of clients did not complete in time, so no snapshot was taken",
        )
        .remedy("Try again when the pool is less busy; 'forebay pool status' shows any problem"))
    }

    /// The same, when what reserved volumes will have to write anew is held for them.
    async fn secure_and_seal(
        self: &Rc<Self>,
        name: &str,
        orders: Vec<(usize, SealOrder)>,
        attempt: Attempt,
    ) -> Result<(), Error> {
        let mut secured = Ok(());
        for shard in 0..self.shard_count() {
            let own = orders.iter().filter(|(of, _)| *of == shard);
            let volumes: Vec<Id> = own.map(|(_, order)| order.volume).collect();
            let secure = move |shard: Rc<Shard>| async move { shard.secure_snapshots(volumes, true).await };
            if secured.is_ok() {
                secured = self.on_shard(shard, secure).await?;
            }
        }
        let sealed = match secured {
            Ok(()) if attempt == Attempt::Trial => Ok(()),
            Ok(()) => self.seal(name, orders).await,
            Err((_, refusal)) => {
                let what = "no snapshot is taken, because the volume's reserved space must be available in addition to the snapshot";
                let volume = name.split('@').next().unwrap_or_default();
                Err(self.not_reserved(name, what, &self.make_thin(volume), refusal))
            }
        };
        for shard in 0..self.shard_count() {
            self.on_shard(shard, |shard| async move { shard.forget_pledges() }).await?;
        }
        sealed
    }

    pub(crate) fn check_snapshot_name(object: &str, name: &str) -> Result<(), Error> {
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fine) {
            let message = format!("the name '{}' cannot be used", name.escape_default());
            let remedy = format!("Use 1 to {NAME_MAX} letters, digits and . _ - :");
            return Err(Error::new(ErrorKind::Invalid("name"), object, message).remedy(remedy));
        }
        Ok(())
    }

    /// Refuses what would tie down blocks of a group that has to be emptied.
    pub(crate) fn refuse_while_leaving(&self, object: &str) -> Result<(), Error> {
        let label = self.label.borrow();
        match label.groups.iter().position(|group| group.leaving) {
            None => Ok(()),
            Some(group) => {
                let message = format!(
                    "group {group} is being removed from the pool, and the data of a snapshot cannot move"
                );
                Err(Error::new(ErrorKind::Conflict, object, message)
                    .remedy("Try again when the group is removed"))
            }
        }
    }

    /// How many snapshots there are; what is being deleted goes by itself.
    pub async fn snapshot_count(&self) -> Result<usize, Error> {
        let mut count = 0;
        for shard in 0..self.shard_count() {
            count += self.on_shard(shard, |shard| async move { shard.snapshots.borrow().kept() }).await?;
        }
        Ok(count)
    }

    pub async fn snapshot_create(
        self: &Rc<Self>,
        volumes: &[String],
        name: &str,
        (scheduled, retain_seconds): (bool, u32),
        attempt: Attempt,
    ) -> Result<Vec<SnapshotInfo>, Error> {
        let first = format!("{}@{name}", volumes.first().map_or("", |name| name));
        let object = self.object(&first);
        Self::check_snapshot_name(&object, name)?;
        let _turn = self.lineage.lock(0, 0).await;
        self.refuse_while_leaving(&object)?;
        self.check_retention(&first, retain_seconds > 0)?;
        let (created, retain_until) = (self.rt.wall(), self.retain_until(retain_seconds));
        let (mut orders, mut named): (Vec<(usize, SealOrder)>, _) = (Vec::new(), BTreeSet::new());
        for volume in volumes {
            let (_, place) = self.existing(volume)?;
            self.refuse_while_moving(volume)?;
            let own = self.object(&format!("{volume}@{name}"));
            if !named.insert(place.id) {
                return Err(Error::new(ErrorKind::Conflict, own, "the volume is named twice"));
            }
            if self.find_snapshot(&format!("{volume}@{name}")).await.is_ok() {
                return Err(Error::new(ErrorKind::Conflict, own, "a snapshot of this name exists")
                    .remedy("Choose another name"));
            }
            let snapshot = Id::from_random(self.rt.random(), self.rt.random());
            let name = name.to_string();
            let (volume, purpose) = (place.id, Purpose::Keep);
            let order = SealOrder { volume, snapshot, name, created, scheduled, retain_until, purpose };
            orders.push((place.shard, order));
        }
        for shard in 0..self.shard_count() {
            let more = orders.iter().filter(|(of, _)| *of == shard).count();
            if more > 0 {
                self.check_catalog(&object, shard, more).await?;
            }
        }
        let mut ids: Vec<String> = orders.iter().map(|(_, order)| order.snapshot.to_string()).collect();
        self.secure_and_seal(&first, orders, attempt).await?;
        if attempt == Attempt::Trial {
            ids.clear();
        }
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            all.push(self.snapshot_info(&id).await?);
        }
        Ok(all)
    }

    pub(crate) async fn snapshot_info(&self, name: &str) -> Result<SnapshotInfo, Error> {
        self.on_snapshot(name, |shard, snapshot| async move { Ok(shard.describe(&snapshot).await) }).await
    }

    async fn snapshot_list(&self) -> Result<Vec<SnapshotInfo>, Error> {
        let mut all = Vec::new();
        for index in 0..self.shard_count() {
            let list = |shard: Rc<Shard>| async move {
                let (mut infos, mut from, mut steps) = (Vec::new(), 0, Steps::default());
                while let Some(volume) = shard.next_dataset(from) {
                    from = volume.number() + 1;
                    steps.take(1).await;
                    let snapshots = if volume.is_live() { shard.snapshots_of(from - 1) } else { Vec::new() };
                    for snapshot in snapshots {
                        steps.take(1).await;
                        infos.push(shard.describe(&snapshot).await);
                    }
                }
                infos
            };
            all.extend(self.on_shard(index, list).await?);
        }
        all.sort_by(|a: &SnapshotInfo, b| {
            (&a.volume, a.created.0, &a.name).cmp(&(&b.volume, b.created.0, &b.name))
        });
        Ok(all)
    }

    async fn volume_rollback(self: &Rc<Self>, name: &str) -> Result<VolumeInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        self.refuse_while_leaving(&self.object(name))?;
        let place = self.find_snapshot(name).await?;
        let volume = self
            .on_snapshot(name, |shard, snapshot| async move {
                let number = snapshot.record.borrow().volume;
                let dataset = shard.datasets.borrow().get(&number).cloned();
                dataset.map(|dataset| dataset.id()).ok_or(IoError::Gone)
            })
            .await?;
        let snapshot = Id::from_random(self.rt.random(), self.rt.random());
        let (created, purpose) = (self.rt.wall(), Purpose::BackTo(place.id));
        let (name_of_new, retain_until) = (String::new(), WallTime(0));
        let order = SealOrder {
            volume,
            snapshot,
            name: name_of_new,
            created,
            scheduled: false,
            retain_until,
            purpose,
        };
        self.seal(name, vec![(place.shard, order)]).await?;
        self.volume_brief(&volume.to_string()).await
    }

    /// Refuses a clone that cannot be made; the place of its snapshot.
    async fn check_clone(&self, snapshot: &str, name: &str) -> Result<Place, Error> {
        let object = self.object(name);
        let place = self.find_snapshot(snapshot).await?;
        self.check_quota(name, 0).await?;
        self.refuse_while_leaving(&object)?;
        self.check_catalog(&object, place.shard, 1).await?;
        self.check_new_name(name)?;
        self.refuse_taken(name)?;
        Ok(place)
    }

    async fn volume_clone(&self, snapshot: &str, name: &str) -> Result<VolumeInfo, Error> {
        let place = self.check_clone(snapshot, name).await?;
        let id = Id::from_random(self.rt.random(), self.rt.random());
        // The name is taken from here on, so that two requests cannot both have it.
        self.names.borrow_mut().insert(name.to_string(), Place { shard: place.shard, id });
        let (created, own, from) = (self.rt.wall(), name.to_string(), place.id.to_string());
        let cloned = self.on_snapshot(&from, move |shard, snapshot| async move {
            let fresh = DatasetRecord::new(DatasetKind::Volume, id, 12, 0, own);
            let new = {
                let datasets = shard.datasets.borrow();
                let volume = datasets.get(&snapshot.record.borrow().volume);
                // What the volume has of its own, the clone has of its own; but not when it is taken, nor who sees it.
                let volume = volume.map_or(fresh.clone(), |volume| volume.record.borrow().clone());
                let DatasetRecord { sync, compression, level, inherits, .. } = volume;
                let inherits = inherits.and(Inherits::SCHEDULE).and(Inherits::HOSTS);
                DatasetRecord { created, sync, compression, level, inherits, ..fresh }
            };
            let dataset = shard.clone_snapshot(&snapshot, new).await?;
            Ok(shard.info(&dataset).await)
        });
        let cloned = cloned.await;
        if cloned.is_err() {
            self.names.borrow_mut().remove(name);
        }
        self.with_promise(cloned?).await
    }

    async fn volume_promote(&self, name: &str) -> Result<VolumeInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let promoted = self.on_volume(name, |shard, dataset| async move { shard.promote(&dataset).await });
        promoted.await?.map_err(|why| {
            Error::new(ErrorKind::Conflict, self.object(name), format!("it cannot be promoted: {why}"))
        })?;
        self.volume_brief(name).await
    }
}

/// What a clone is called where it is in the way.
fn clone_name(record: &DatasetRecord) -> String {
    match record.state {
        DatasetState::Trashed => format!("{} (in the trash)", record.name),
        DatasetState::Receiving => format!("{} (being received)", record.name),
        DatasetState::Moved => format!("{} (moved away)", record.name),
        DatasetState::Live | DatasetState::Deleting | DatasetState::Arriving => record.name.clone(),
    }
}

impl Engine {
    /// Takes a snapshot of each of these volumes (`POOL/NAME`, all of one pool), all at one moment.
    #[boxed]
    pub async fn snapshot_create(
        &self,
        volumes: Vec<String>,
        name: &str,
    ) -> Result<Vec<SnapshotInfo>, Error> {
        self.snapshots_of(volumes, name, 0, Attempt::Real).await
    }

    /// The same, and nobody can delete them for so many seconds of the pool's clock.
    #[boxed]
    pub async fn snapshot_create_retained(
        &self,
        volumes: Vec<String>,
        name: &str,
        seconds: u32,
    ) -> Result<Vec<SnapshotInfo>, Error> {
        self.snapshots_of(volumes, name, seconds, Attempt::Real).await
    }

    /// What [`Engine::snapshot_create`] would refuse, without taking any.
    #[boxed]
    pub async fn snapshot_create_check(&self, volumes: Vec<String>, name: &str) -> Result<(), Error> {
        self.snapshots_of(volumes, name, 0, Attempt::Trial).await.map(drop)
    }

    async fn snapshots_of(
        &self,
        volumes: Vec<String>,
        name: &str,
        retain_seconds: u32,
        attempt: Attempt,
    ) -> Result<Vec<SnapshotInfo>, Error> {
        let mut pool = None;
        let mut names = Vec::with_capacity(volumes.len());
        for volume in volumes {
            let Some((own, within)) = volume.split_once('/') else {
                return Err(Error::new(ErrorKind::Invalid("volumes"), volume, "a volume is named POOL/NAME"));
            };
            if *pool.get_or_insert_with(|| own.to_string()) != own {
                let message = "volumes of one snapshot command must be in the same pool";
                return Err(Error::new(ErrorKind::Invalid("volumes"), volume, message));
            }
            names.push(within.to_string());
        }
        let Some(pool) = pool else {
            return Err(Error::new(ErrorKind::Invalid("volumes"), name, "no volume is given"));
        };
        let name = name.to_string();
        self.on_writable_pool(&pool, move |control| async move {
            control.snapshot_create(&names, &name, (false, retain_seconds), attempt).await
        })
        .await
    }

    /// All snapshots, of one pool or of all, oldest first within a volume.
    #[boxed]
    pub async fn snapshots(&self, pool: Option<&str>) -> Result<Vec<SnapshotInfo>, Error> {
        let pool = pool.map(str::to_string);
        let gather = |rt: Rt| async move {
            let mut all = Vec::new();
            for control in controls_of(&rt, pool.as_deref())? {
                all.extend(control.snapshot_list().await?);
            }
            Ok(all)
        };
        self.on_core_0(gather).await
    }

    /// Runs `work` with the coordinator of the pool of `POOL/VOLUME@NAME`, or of the snapshot with that UUID.
    pub(crate) async fn on_owner<T, F, W>(&self, snapshot: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>, String) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        let name = snapshot.to_string();
        let found = move |rt: Rt| async move {
            if let Some((pool, own)) = name.split_once('/') {
                return work(find_pool(&rt, pool)?, own.to_string()).await;
            }
            // A name without its pool could be of any.
            let is_id = name.split('@').next().is_some_and(|first| first.parse::<Id>().is_ok());
            for control in registry(&rt).controls().into_iter().filter(|_| is_id) {
                if control.find_snapshot(&name).await.is_ok() {
                    return work(control, name).await;
                }
            }
            let message = if is_id {
                "no imported pool has this snapshot"
            } else {
                "a snapshot is named POOL/VOLUME@NAME"
            };
            Err(Error::new(ErrorKind::NotFound, name, message)
                .remedy("List them with: forebay snapshot list"))
        };
        self.on_core_0(found).await
    }

    /// The same for what changes something.
    pub(crate) async fn on_writable_owner<T, F, W>(&self, snapshot: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>, String) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        self.on_owner(snapshot, |control, name| async move {
            control.writable()?;
            work(control, name).await
        })
        .await
    }

    /// A snapshot by `POOL/VOLUME@NAME` or UUID.
    #[boxed]
    pub async fn snapshot(&self, name: &str) -> Result<SnapshotInfo, Error> {
        self.on_owner(name, |control, name| async move { control.snapshot_info(&name).await }).await
    }

    #[boxed]
    pub async fn snapshot_set(&self, name: &str, change: SnapshotChange) -> Result<SnapshotInfo, Error> {
        self.on_writable_owner(
            name,
            move |control, name| async move { control.snapshot_set(&name, change).await },
        )
        .await
    }

    /// Deletes a snapshot; what only it has comes back in the background.
    #[boxed]
    pub async fn snapshot_delete(&self, name: &str) -> Result<(), Error> {
        self.on_writable_owner(name, |control, name| async move { control.snapshot_delete(&name).await })
            .await
    }

    /// Puts a volume back to what it was. Newer snapshots stay; what came after the newest is lost.
    #[boxed]
    pub async fn volume_rollback(&self, snapshot: &str) -> Result<VolumeInfo, Error> {
        self.on_writable_owner(snapshot, |control, name| async move { control.volume_rollback(&name).await })
            .await
    }

    /// Makes a volume (named within the pool) out of a snapshot. It shares the snapshot's blocks until they are overwritten.
    #[boxed]
    pub async fn volume_clone(&self, snapshot: &str, name: &str) -> Result<VolumeInfo, Error> {
        let own = name.to_string();
        let clone =
            |control: Rc<Control>, name: String| async move { control.volume_clone(&name, &own).await };
        self.on_writable_owner(snapshot, clone).await
    }

    /// What [`Engine::volume_clone`] would refuse, without making one.
    #[boxed]
    pub async fn volume_clone_check(&self, snapshot: &str, name: &str) -> Result<(), Error> {
        let own = name.to_string();
        let check =
            |control: Rc<Control>, name: String| async move { control.check_clone(&name, &own).await };
        self.on_writable_owner(snapshot, check).await.map(drop)
    }

    /// Makes a clone the owner of the snapshot it came from, and of those before it; the volume they were of becomes the clone.
    #[boxed]
    pub async fn volume_promote(&self, volume: &str) -> Result<VolumeInfo, Error> {
        self.on_writable_volume(volume, |control, name| async move { control.volume_promote(&name).await })
            .await
    }
}
