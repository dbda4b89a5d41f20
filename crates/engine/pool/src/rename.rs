//! New names for volumes and snapshots.
//!
//! A name is one field of a dataset's record, so the new one is there with the commit of that record, or the old one is. Clients hold a volume by its
//! id: they do not notice. A volume may go to another project of its pool, or out of one, since that is a matter of its name.

use crate::Engine;
use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::projects::project_of;
use crate::record::DatasetRecord;
use crate::reserve::Attempt;
use crate::shard::Shard;
use crate::spec::{SnapshotInfo, VolumeInfo};
use crate::volume::LocalVolume;
use async_recursion::async_recursion as boxed;
use std::rc::Rc;

impl Control {
    async fn volume_rename(
        self: &Rc<Self>,
        name: &str,
        new: &str,
        attempt: Attempt,
    ) -> Result<VolumeInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (name, place) = self.existing(name)?;
        // A move may have begun before the turn came.
        self.refuse_while_moving(&name)?;
        if name == new {
            return self.volume_brief(&name).await;
        }
        self.check_new_name(new)?;
        self.refuse_taken(new)?;
        // What has come so far belongs to a volume by its name.
        self.refuse_while_receiving(&name).await?;
        self.refuse_while_receiving(new).await?;
        let changes_project = project_of(&name) != project_of(new);
        if changes_project {
            let charged =
                |shard: Rc<Shard>, dataset: Rc<Dataset>| async move { Ok(shard.charged_for(&dataset)) };
            let bytes = self.on_volume(&name, charged).await?;
            self.check_quota(new, bytes).await?;
        }
        if attempt == Attempt::Trial {
            return self.volume_brief(&name).await;
        }
        // The new name is taken from here on, and the old one as long as it may be the volume's. Others that look for names do not wait for this turn.
        self.check_new_name(new)?;
        self.refuse_taken(new)?;
        self.names.borrow_mut().insert(new.to_string(), place);
        let own = new.to_string();
        let put = self.on_shard(place.shard, move |shard| async move {
            let dataset = shard.volume(place.id).ok_or(IoError::Gone)?;
            LocalVolume::of(shard, dataset).put(|record| record.name = own).await
        });
        let put = put.await.and_then(|done| done.map_err(|error| self.io_error(&name, error)));
        match put {
            Ok(()) => self.names.borrow_mut().remove(&name),
            Err(error) => {
                let mut names = self.names.borrow_mut();
                names.remove(new);
                names.insert(name, place);
                return Err(error);
            }
        }
        if changes_project {
            // What was acknowledged on the terms of the other project is durable when the change is.
            let flush = |shard: Rc<Shard>| async move { shard.flush_queued().await };
            self.on_shard(place.shard, flush).await?.map_err(|error| self.io_error(new, error))?;
            self.look_at_promises().await;
            self.enforce_quotas().await?;
        }
        self.volume_brief(new).await
    }

    /// Refuses a change that would part a volume from what is being received for it.
    async fn refuse_while_receiving(&self, name: &str) -> Result<(), Error> {
        if self.is_receiving(name) {
            return Err(self.reception_busy(name));
        }
        if self.find_reception(name).await?.is_none() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, self.object(name), "the volume has an interrupted receive")
            .remedy("Resume the stream, or abandon the received part with 'forebay snapshot abandon VOLUME'"))
    }

    /// Refuses a name that a volume has.
    pub fn refuse_taken(&self, name: &str) -> Result<(), Error> {
        if !self.names.borrow().contains_key(name) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, self.object(name), "a volume of this name exists")
            .remedy("Choose another name"))
    }

    async fn snapshot_rename(&self, name: &str, new: &str, attempt: Attempt) -> Result<SnapshotInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        Self::check_snapshot_name(&self.object(name), new)?;
        let own = new.to_string();
        let renamed = self.on_snapshot(name, move |shard, snapshot| async move {
            let record = snapshot.record.borrow().clone();
            let others = shard.snapshots_of(record.volume);
            let is_taken = others.iter().any(|other| other.record.borrow().name == own);
            if record.name == own || (!is_taken && attempt == Attempt::Trial) {
                return Ok(Ok(shard.describe(&snapshot).await));
            }
            if is_taken {
                return Ok(Err(()));
            }
            // A name that was given by hand is meant to stay: a schedule deletes only what it has named itself.
            shard.put_all(vec![DatasetRecord { name: own, scheduled: false, ..record }]).await?;
            Ok(Ok(shard.describe(&snapshot).await))
        });
        renamed.await?.map_err(|()| {
            let message = format!("the volume has another snapshot named '{new}'");
            Error::new(ErrorKind::Conflict, self.object(name), message).remedy("Choose another name")
        })
    }
}

impl Engine {
    /// Gives a volume another name (within the pool): at once, for its clients too, who keep it.
    #[boxed]
    pub async fn volume_rename(&self, volume: &str, new: &str) -> Result<VolumeInfo, Error> {
        self.rename_volume(volume, new, Attempt::Real).await
    }

    /// What [`Engine::volume_rename`] would refuse, without doing it.
    #[boxed]
    pub async fn volume_rename_check(&self, volume: &str, new: &str) -> Result<(), Error> {
        self.rename_volume(volume, new, Attempt::Trial).await.map(drop)
    }

    async fn rename_volume(&self, volume: &str, new: &str, attempt: Attempt) -> Result<VolumeInfo, Error> {
        let new = new.to_string();
        self.on_writable_volume(volume, move |control, name| async move {
            control.volume_rename(&name, &new, attempt).await
        })
        .await
    }

    /// Gives a snapshot another name, `new` being what stands behind the `@`.
    #[boxed]
    pub async fn snapshot_rename(&self, snapshot: &str, new: &str) -> Result<SnapshotInfo, Error> {
        self.rename_snapshot(snapshot, new, Attempt::Real).await
    }

    /// What [`Engine::snapshot_rename`] would refuse, without doing it.
    #[boxed]
    pub async fn snapshot_rename_check(&self, snapshot: &str, new: &str) -> Result<(), Error> {
        self.rename_snapshot(snapshot, new, Attempt::Trial).await.map(drop)
    }

    async fn rename_snapshot(
        &self,
        snapshot: &str,
        new: &str,
        attempt: Attempt,
    ) -> Result<SnapshotInfo, Error> {
        let new = new.to_string();
        self.on_writable_owner(snapshot, move |control, name| async move {
            control.snapshot_rename(&name, &new, attempt).await
        })
        .await
    }
}
