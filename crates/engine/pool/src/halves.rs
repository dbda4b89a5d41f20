//! What moves have left in pools: halves of volumes, and what becomes of them.
//!
//! A move that is not over leaves two *halves*: a volume that is live or *moved* where it was, and one that is *arriving* where it goes. Which of
//! them is the volume is written in the first alone, so nothing is decided before both pools are imported, in whichever order. Then:
//!
//! - arriving and complete, and moved to this pool: it is live; then the other half is deleted;
//! - arriving in part, and moved to this pool, whose log was cut by a forced import: it is live again where it was, and deleted here;
//! - arriving in part otherwise: nothing was lost where it came from, and it is deleted;
//! - moved, or arriving and complete, with no other half: one of the pools has the volume, so it is deleted.
//!
//! Halves whose other pool is not there stay as they are, until it comes, or an administrator says what becomes of them. So do those of a
//! volume that no pool has: a forced import may have lost it, or the other half may have been given up.

use crate::Engine;
use crate::control::Control;
use crate::error::{Error, ErrorKind, IoError};
use crate::locks::RangeGuard;
use crate::names::Place;
use crate::record::{DatasetRecord, DatasetState};
use crate::registry::registry;
use crate::shard::Shard;
use crate::spec::{MoveLeft, MoveSide, Severity, VolumeInfo};
use async_recursion::async_recursion as boxed;
use forebay_base::Id;
use forebay_runtime::Rt;
use std::rc::Rc;

/// What a name leads to that is kept for a volume on its way: nothing.
pub(crate) fn placeholder(id: Id) -> Id {
    Id(!id.0)
}

/// Ends what a crash or an export has left of moves, so far as both pools are there. For the pool `imported`, it is told what stays.
pub(crate) async fn settle(rt: &Rt, imported: Option<Id>) {
    let registry = registry(rt);
    let _turn = registry.settling.lock(0, 0).await;
    for state in [DatasetState::Arriving, DatasetState::Moved] {
        for control in registry.controls() {
            let Ok(halves) = control.halves().await else { continue };
            for (shard, half) in halves.into_iter().filter(|(_, half)| half.state == state) {
                let are_settled = |other: &Rc<Control>| is_settled(other) && is_settled(&control);
                let other = registry.control(half.peer).filter(are_settled);
                // Nobody keeps, gives up or exports it meanwhile.
                let mut turns = Vec::new();
                match &other {
                    Some(other) => turns.extend(control.lineage_with(other).await),
                    None => turns.push(control.lineage.lock(0, 0).await),
                }
                let Some(half) = control.still_half(shard, &half).await else { continue };
                match other.as_ref().filter(|other| are_settled(other)) {
                    Some(other) => settle_half(&control, (shard, half), other, imported).await,
                    None => control.keep_half((shard, half), None, imported == Some(control.id())),
                }
            }
        }
    }
}

/// Whether what a pool says of its volumes is what an import would find.
fn is_settled(control: &Control) -> bool {
    !control.shared.import.read_only && !control.shared.is_suspended() && !control.closing.get()
}

/// Whether a pool has the volume of which this is a half, live or in its trash.
fn is_volume_here(rt: &Rt, half: &DatasetRecord) -> bool {
    let has_it = |control: &Rc<Control>| {
        let is_live = control.names.borrow().of(half.id).is_some();
        is_settled(control) && (is_live || control.trash.has(half.id))
    };
    registry(rt).controls().iter().any(has_it)
}

async fn settle_half(
    control: &Rc<Control>,
    (shard, half): (usize, DatasetRecord),
    other: &Rc<Control>,
    imported: Option<Id>,
) {
    let Ok(theirs) = control.counterpart(&half, other).await else { return };
    let (object, name) = (control.object(&half.name), other.name());
    let result = match (half.state, theirs) {
        (DatasetState::Arriving, Some(_)) if half.is_whole() => {
            let shown = control.show_half(shard, &half, (half.name.clone(), half.id)).await;
            shown.map(|()| format!("the volume has arrived from pool {name}"))
        }
        (DatasetState::Arriving, Some((index, theirs))) => {
            let back = other.show_half(index, &theirs, (theirs.name.clone(), theirs.id)).await;
            let deleted = match back {
                Ok(()) => control.delete_half(shard, &half).await,
                Err(error) => Err(error),
            };
            deleted.map(|()| {
                format!("a part of the copy from pool {name} is lost; the volume is back in that pool")
            })
        }
        // It goes on to be live there first.
        (_, Some(_)) => return,
        (DatasetState::Arriving, None) if !half.is_whole() || is_volume_here(&control.rt, &half) => {
            let deleted = control.delete_half(shard, &half).await;
            deleted.map(|()| format!("a move from pool {name} was interrupted; its copy here was deleted"))
        }
        (DatasetState::Moved, None) if is_volume_here(&control.rt, &half) => {
            let deleted = control.delete_half(shard, &half).await;
            deleted.map(|()| format!("the volume has moved to pool {name}; its space here is being freed"))
        }
        _ => {
            let told = [control.id(), other.id()].map(Some).contains(&imported);
            return control.keep_half((shard, half), Some(other), told);
        }
    };
    match result {
        Ok(message) => control.event(Severity::Info, "volume.move_settled", &object, message),
        Err(error) => {
            let message = format!("an interrupted move cannot be settled: {error}");
            control.event(Severity::Warning, "volume.move_left", &object, message);
        }
    }
}

impl Control {
    /// Keeps what belongs to a move whose other pool is not there, or has nothing of the volume.
    fn keep_half(&self, (shard, half): (usize, DatasetRecord), other: Option<&Control>, told: bool) {
        let message = if half.state == DatasetState::Arriving {
            let place = Place { shard, id: placeholder(half.id) };
            self.names.borrow_mut().insert_new(&half.name, place);
            "a move to this pool was interrupted"
        } else {
            "the volume has moved to another pool, where it may not be available yet"
        };
        if told {
            let message = match other {
                Some(other) => format!(
                    "{message}. The other pool, {}, has no copy of it, and no other imported pool has one. Keep the copy here as a volume, or \
                     abandon it: see 'forebay volume moves'",
                    other.name()
                ),
                None => format!(
                    "{message}. The other pool, {}, decides which copy stays: import that pool too. If it is lost for good, see 'forebay \
                     volume moves'",
                    half.peer
                ),
            };
            self.event(Severity::Warning, "volume.move_left", &self.object(&half.name), message);
        }
    }

    /// A half as it is now, if it is what it was.
    async fn still_half(&self, shard: usize, was: &DatasetRecord) -> Option<DatasetRecord> {
        let now = self.half(shard, was.number).await.ok()??;
        ((now.id, now.state) == (was.id, was.state)).then_some(now)
    }

    /// The half with this number, if there is one.
    pub async fn half(&self, shard: usize, number: u64) -> Result<Option<DatasetRecord>, Error> {
        let look = move |shard: Rc<Shard>| async move {
            shard.half(number).map(|half| half.record.borrow().clone())
        };
        self.on_shard(shard, look).await
    }

    /// The turn of whatever changes volumes of two pools. All take them in the same order.
    pub async fn lineage_with<'a>(&'a self, other: &'a Control) -> [RangeGuard<'a>; 2] {
        let (first, second) = if self.id() < other.id() { (self, other) } else { (other, self) };
        [first.lineage.lock(0, 0).await, second.lineage.lock(0, 0).await]
    }

    /// The other half, in the other pool.
    async fn counterpart(
        &self,
        half: &DatasetRecord,
        other: &Control,
    ) -> Result<Option<(usize, DatasetRecord)>, Error> {
        let is_it = |(_, theirs): &(usize, DatasetRecord)| {
            (theirs.id, theirs.peer) == (half.id, self.id()) && theirs.state != half.state
        };
        Ok(other.halves().await?.into_iter().find(is_it))
    }

    async fn moves_left(&self) -> Result<Vec<MoveLeft>, Error> {
        let left = self.halves().await?.into_iter().map(|(_, half)| MoveLeft {
            id: half.id,
            pool: self.name().into(),
            size: half.size,
            is_complete: half.state == DatasetState::Moved || half.is_whole(),
            side: if half.state == DatasetState::Moved { MoveSide::Moved } else { MoveSide::Arriving },
            peer: half.peer,
            name: half.name,
        });
        Ok(left.collect())
    }

    /// A half by its name or id, as long as its other pool is not there, or has nothing of the volume.
    async fn lone_half(&self, name: &str) -> Result<(usize, DatasetRecord), Error> {
        let mut halves = self.halves().await?;
        halves.retain(|(_, record)| record.name == name || record.id.to_string() == name);
        let refused = |kind, message| {
            Error::new(kind, self.object(name), message)
                .remedy("List interrupted moves with 'forebay volume moves', and name the volume by its UUID")
        };
        if halves.len() > 1 {
            return Err(refused(
                ErrorKind::Conflict,
                "more than one interrupted move has a volume of this name",
            ));
        }
        let missing = || refused(ErrorKind::NotFound, "no interrupted move has a volume of this name");
        let found = halves.pop().ok_or_else(missing)?;
        let Some(other) = registry(&self.rt).control(found.1.peer) else { return Ok(found) };
        let is_nowhere = is_settled(&other) && !is_volume_here(&self.rt, &found.1);
        if is_nowhere && self.counterpart(&found.1, &other).await?.is_none() {
            return Ok(found);
        }
        let message =
            format!("the other pool of the move, {}, is imported and decides which copy stays", other.name());
        Err(Error::new(ErrorKind::Conflict, self.object(name), message)
            .remedy("Restore that pool's disks if it has stopped writing, then export and import it"))
    }

    async fn move_keep(&self, name: &str, new_name: Option<String>) -> Result<VolumeInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (shard, half) = self.lone_half(name).await?;
        let object = self.object(name);
        if half.state == DatasetState::Arriving && !half.is_whole() {
            let message = "only a part of the volume was copied here";
            return Err(Error::new(ErrorKind::Unsafe, object, message)
                .remedy("Import the pool that it comes from, or abandon it: forebay volume abandon VOLUME"));
        }
        let name = new_name.unwrap_or_else(|| half.name.clone());
        self.check_new_name(&name)?;
        // Another id: should the other pool come back, there are not two volumes that clients take for one.
        let id = Id::from_random(self.rt.random(), self.rt.random());
        self.show_half(shard, &half, (name, id)).await?;
        self.volume_brief(&id.to_string()).await
    }

    async fn move_abandon(&self, name: &str) -> Result<(), Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (shard, half) = self.lone_half(name).await?;
        self.delete_half(shard, &half).await
    }

    async fn halves(&self) -> Result<Vec<(usize, DatasetRecord)>, Error> {
        let mut all = Vec::new();
        for index in 0..self.shard_count() {
            let halves = self.on_shard(index, |shard| async move { shard.halves() }).await?;
            all.extend(halves.into_iter().map(|record| (index, record)));
        }
        all.retain(|(_, record)| !self.moving.borrow().contains_key(&record.id));
        Ok(all)
    }

    /// Gives a half another state, if it is still what it was, with other properties too.
    async fn change_half(
        &self,
        shard: usize,
        was: &DatasetRecord,
        change: impl FnOnce(&mut DatasetRecord) + Send + 'static,
    ) -> Result<(), Error> {
        let (name, was) = (was.name.clone(), was.clone());
        let changed = self.on_shard(shard, move |shard| async move {
            let half = shard.half(was.number).ok_or(IoError::Gone)?;
            let mut record = half.record.borrow().clone();
            if (record.id, record.state) != (was.id, was.state) {
                return Err(IoError::Gone);
            }
            change(&mut record);
            shard.put_all(vec![record]).await
        });
        changed.await?.map_err(|error| self.io_error(&name, error))
    }

    pub async fn delete_half(&self, shard: usize, half: &DatasetRecord) -> Result<(), Error> {
        self.change_half(shard, half, |record| record.state = DatasetState::Deleting).await?;
        let mut names = self.names.borrow_mut();
        if names.get(&half.name).is_some_and(|place| place.id == placeholder(half.id)) {
            names.remove(&half.name);
        }
        Ok(())
    }

    /// A half becomes a volume under this name, which nothing else may have.
    async fn show_half(
        &self,
        shard: usize,
        half: &DatasetRecord,
        (name, id): (String, Id),
    ) -> Result<(), Error> {
        let own = placeholder(half.id);
        let is_taken = self.names.borrow().get(&name).is_some_and(|place| place.id != own);
        if is_taken || self.projects.borrow().contains_key(&name) {
            let message = "another volume or a project has this name";
            return Err(Error::new(ErrorKind::Conflict, self.object(&name), message)
                .remedy("Delete that one, or give this volume another name with '--as'"));
        }
        let placeholder = self.names.borrow().of(own).cloned();
        placeholder.iter().for_each(|name| self.names.borrow_mut().remove(name));
        self.names.borrow_mut().insert(name.clone(), Place { shard, id });
        let own_name = name.clone();
        let shown = self.change_half(shard, half, move |record| {
            (record.state, record.peer, record.received) = (DatasetState::Live, Id(0), 0);
            (record.name, record.id) = (own_name, id);
        });
        let shown = shown.await;
        if shown.is_err() {
            let mut names = self.names.borrow_mut();
            names.remove(&name);
            if half.state == DatasetState::Arriving {
                names.insert_new(&half.name, Place { shard, id: own });
            }
        }
        shown
    }
}

impl Engine {
    /// What moves have left that wait for a pool.
    #[boxed]
    pub async fn moves_left(&self) -> Result<Vec<MoveLeft>, Error> {
        self.on_core_0(|rt| async move {
            let mut all = Vec::new();
            for control in registry(&rt).controls() {
                all.extend(control.moves_left().await?);
            }
            Ok(all)
        })
        .await
    }

    /// Makes a volume, with a new id, of what a move has left in `POOL/NAME`, when the other pool is lost.
    #[boxed]
    pub async fn move_keep(&self, volume: &str, new_name: Option<&str>) -> Result<VolumeInfo, Error> {
        let (pool, name) = split(volume)?;
        let new_name = new_name.map(str::to_string);
        self.on_writable_pool(pool, |control| async move { control.move_keep(&name, new_name).await }).await
    }

    /// Deletes what a move has left in `POOL/NAME`, when the other pool is lost.
    #[boxed]
    pub async fn move_abandon(&self, volume: &str) -> Result<(), Error> {
        let (pool, name) = split(volume)?;
        self.on_writable_pool(pool, |control| async move { control.move_abandon(&name).await }).await
    }
}

fn split(volume: &str) -> Result<(&str, String), Error> {
    let named = || Error::new(ErrorKind::Invalid("name"), volume, "a volume is named POOL/NAME");
    volume.split_once('/').map(|(pool, name)| (pool, name.to_string())).ok_or_else(named)
}
