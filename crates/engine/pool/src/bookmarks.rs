//! Bookmarks: a moment of a volume without its blocks, from which increments can be sent when the snapshot is gone.
//!
//! What has been written since then was born since then, so the snapshot's tree says alone what differs: a node that was born before the
//! bookmark has nothing new below it. That is so as long as the volume only goes forward. One that went back to an older snapshot has
//! blocks again that are older than the bookmarks of moments in between; therefore a volume knows in which [`Gap`] these lie, its snapshots know it
//! of the moment when they were taken, and a bookmark from there is refused.
//!
//! A bookmark is a dataset without blocks, on the shard of its volume, and goes with it.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::names::Place;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::registry::registry;
use crate::reserve::Attempt;
use crate::shard::Shard;
use crate::steps::Steps;
use crate::{Engine, controls_of, find_pool};
use async_recursion::async_recursion as boxed;
use forebay_base::planted::{Bug, active};
use forebay_base::{Id, WallTime};
use forebay_runtime::Rt;
use std::rc::Rc;

/// Of one volume: a mistyped loop must not fill the catalogue.
const BOOKMARKS_MAX: usize = 4096;
/// Records that are written together.
const PIECE: usize = 64;

/// A moment of a volume, without its blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BookmarkInfo {
    pub id: Id,
    pub pool: String,
    /// The volume, and its own name behind the `#`.
    pub volume: String,
    pub name: String,
    /// The volume's size then.
    pub size: u64,
    /// When its snapshot was taken.
    pub created: WallTime,
    /// What its snapshot is known by in streams.
    pub origin: Id,
    /// Whether it leads to snapshots that are taken from now on: the volume did not go back behind it.
    pub usable: bool,
}

/// Moments between two epochs. What a volume has had since one of these, it may have from before it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Gap {
    pub after: u64,
    pub before: u64,
}

impl Gap {
    fn has(self, epoch: u64) -> bool {
        self.after < epoch && epoch < self.before && !active(Bug::BookmarkForgetsRollback)
    }

    /// What both have, and what lies between them: a record has room for one.
    fn over(self, other: Gap) -> Gap {
        match (self.before, other.before) {
            (0, _) => other,
            (_, 0) => self,
            _ => Gap { after: self.after.min(other.after), before: self.before.max(other.before) },
        }
    }
}

/// That a volume takes what is older than it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setback {
    /// Of what it takes, before that.
    gap: Gap,
    /// What it takes was not born up to this epoch, or is what the volume was then.
    after: u64,
}

impl Setback {
    /// To a snapshot.
    pub fn to(target: &DatasetRecord) -> Setback {
        Setback { gap: target.gap, after: target.epoch }
    }

    /// The volume's gap when that happens at the end of this epoch.
    pub fn at(self, epoch: u64) -> Gap {
        self.gap.over(Gap { after: self.after, before: epoch })
    }
}

/// Whether an increment from a bookmark to a snapshot can be told by what was born since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lead {
    There,
    /// The bookmark is not of the snapshot's volume.
    Elsewhere,
    /// The bookmark is of the same moment, or a later one.
    Back,
    /// The volume went back to something older in between.
    Broken,
}

impl Lead {
    /// Why a snapshot of `volume` cannot be sent from bookmark `mark`, and what to do.
    pub fn refusal(self, mark: &str, volume: &str) -> Option<(String, String)> {
        let older = format!(
            "Name a bookmark of {volume} that is older than the snapshot, or send from another snapshot"
        );
        let broken = "Name an older bookmark ('forebay bookmark list' shows the usable ones), or a snapshot that the receiver has. Or send the whole snapshot \
                      and receive it under another name";
        match self {
            Lead::There => None,
            Lead::Elsewhere => Some((format!("{mark} is a bookmark of another volume"), older)),
            Lead::Back => Some((format!("{mark} is not older than the snapshot"), older)),
            Lead::Broken => Some((
                format!(
                    "the volume went back to an older state after {mark}, by a rollback or a receive: the bookmark no longer shows which blocks \
                     have changed"
                ),
                broken.into(),
            )),
        }
    }
}

impl DatasetRecord {
    /// From this bookmark to a snapshot.
    pub fn lead_to(&self, snapshot: &DatasetRecord) -> Lead {
        match () {
            () if (self.family, self.volume) != (snapshot.family, snapshot.volume) => Lead::Elsewhere,
            () if self.epoch >= snapshot.epoch => Lead::Back,
            () if snapshot.gap.has(self.epoch) => Lead::Broken,
            () => Lead::There,
        }
    }
}

impl Shard {
    /// The live bookmarks of a volume, oldest first.
    pub fn bookmarks_of(&self, volume: u64) -> Vec<DatasetRecord> {
        let datasets = self.datasets.borrow();
        let records = datasets.bookmarks_of(volume).map(|dataset| dataset.record.borrow().clone());
        let mut live: Vec<_> = records.filter(|record| record.state == DatasetState::Live).collect();
        live.sort_by_key(|record| (record.epoch, record.number));
        live
    }

    fn bookmark_info(&self, volume: &DatasetRecord, record: &DatasetRecord) -> BookmarkInfo {
        BookmarkInfo {
            id: record.id,
            pool: self.shared.name.clone(),
            volume: volume.name.clone(),
            name: record.name.clone(),
            size: record.size,
            created: record.created,
            origin: record.origin,
            usable: !volume.gap.has(record.epoch),
        }
    }

    /// A live bookmark and its volume.
    fn bookmark(&self, id: Id) -> Option<(DatasetRecord, DatasetRecord)> {
        let datasets = self.datasets.borrow();
        let is_it = |mark: &&Rc<Dataset>| {
            let record = mark.record.borrow();
            record.kind == DatasetKind::Bookmark && record.state == DatasetState::Live
        };
        let mark = datasets.of_id(id).find(is_it)?.record.borrow().clone();
        let volume = datasets.get(&mark.volume).filter(|volume| volume.is_live())?.record.borrow().clone();
        Some((volume, mark))
    }

    /// Deletes bookmarks, durably; in pieces that fit into any log.
    async fn delete_bookmarks(self: &Rc<Self>, bookmarks: Vec<DatasetRecord>) -> Result<(), IoError> {
        for piece in bookmarks.chunks(PIECE) {
            let deleting = |record: &DatasetRecord| {
                let state = DatasetState::Deleting;
                DatasetRecord { state, ..record.clone() }
            };
            self.put_all(piece.iter().map(deleting).collect()).await?;
        }
        Ok(())
    }

    /// What `volume` goes back behind when it takes what was received as `from`. That was born before it arrives: perhaps before snapshots and bookmarks
    /// that the volume got while it came.
    pub fn setback(&self, volume: &Dataset, from: &DatasetRecord) -> Option<Setback> {
        let Some(base) = self.origin_in(volume.number(), from.base) else {
            return Some(Setback { gap: Gap::default(), after: 0 });
        };
        let base = base.record.borrow();
        if self.is_changed(volume, base.stream_id()) {
            return Some(Setback::to(&base));
        }
        let is_meanwhile = |mark: &Rc<Dataset>| mark.record.borrow().epoch >= from.epoch;
        let has_marks = self.datasets.borrow().bookmarks_of(volume.number()).any(is_meanwhile);
        let snapshots = self.snapshots.borrow();
        let has_snapshots = snapshots.of_volume_from(volume.number(), from.epoch).next().is_some();
        let gap = volume.record.borrow().gap;
        (has_marks || has_snapshots).then(|| Setback { gap, after: from.epoch.saturating_sub(1) })
    }

    /// The volume with this number is being deleted, and its bookmarks go with it.
    pub async fn forget_bookmarks(self: &Rc<Self>, volume: u64) -> Result<(), IoError> {
        self.delete_bookmarks(self.bookmarks_of(volume)).await
    }
}

impl Control {
    fn no_bookmark(&self, name: &str) -> Error {
        Error::new(ErrorKind::NotFound, self.object(name), "no such bookmark")
            .remedy("List them with: forebay bookmark list")
    }

    /// The shard and the id of a bookmark, named `VOLUME#NAME` or by its UUID.
    async fn find_bookmark(&self, name: &str) -> Result<Place, Error> {
        let missing = || self.no_bookmark(name);
        let Some((volume, own)) = name.split_once('#') else {
            let id: Id = name.parse().map_err(|_| missing())?;
            for shard in 0..self.shard_count() {
                let look = move |shard: Rc<Shard>| async move { shard.bookmark(id).is_some() };
                if self.on_shard(shard, look).await? {
                    return Ok(Place { shard, id });
                }
            }
            return Err(missing());
        };
        let (_, place) = self.find(volume).ok_or_else(missing)?;
        let own = own.to_string();
        let look = move |shard: Rc<Shard>| async move {
            let marks = shard.bookmarks_of(shard.volume(place.id)?.number());
            marks.into_iter().find(|mark| mark.name == own).map(|mark| mark.id)
        };
        let found = self.on_shard(place.shard, look).await?;
        found.map(|id| Place { shard: place.shard, id }).ok_or_else(missing)
    }

    /// Runs `work` with the records of a bookmark's volume and of the bookmark, on their shard.
    async fn on_bookmark<T, F, W>(&self, name: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Shard>, DatasetRecord, DatasetRecord) -> W + Send + 'static,
        W: Future<Output = Result<T, IoError>> + 'static,
    {
        let place = self.find_bookmark(name).await?;
        let result = self.on_shard(place.shard, move |shard| async move {
            let (volume, mark) = shard.bookmark(place.id).ok_or(IoError::Gone)?;
            work(shard, volume, mark).await
        });
        result.await?.map_err(|error| match error {
            IoError::Gone => self.no_bookmark(name),
            error => self.io_error(name, error),
        })
    }

    /// The shard and the record of a bookmark.
    pub(crate) async fn bookmark(&self, name: &str) -> Result<(usize, DatasetRecord), Error> {
        self.on_bookmark(name, |shard, _, record| async move { Ok((shard.index, record)) }).await
    }

    /// A bookmark that stands for the snapshot with this id in streams, and leads to another snapshot.
    pub(crate) async fn bookmark_of(
        &self,
        shard: usize,
        to: DatasetRecord,
        origin: Id,
    ) -> Result<Option<DatasetRecord>, Error> {
        let find = move |shard: Rc<Shard>| async move {
            let mut marks = shard.bookmarks_of(to.volume).into_iter();
            marks.find(|mark| mark.origin == origin && mark.lead_to(&to) == Lead::There)
        };
        self.on_shard(shard, find).await
    }

    async fn bookmark_create(
        &self,
        snapshot: &str,
        name: Option<String>,
        attempt: Attempt,
    ) -> Result<BookmarkInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let place = self.find_snapshot(snapshot).await?;
        if let Some(name) = &name {
            Self::check_snapshot_name(&self.object(snapshot), name)?;
        }
        self.check_catalog(&self.object(snapshot), place.shard, 1).await?;
        let (id, number) = (Id::from_random(self.rt.random(), self.rt.random()), place.id.to_string());
        let made = self.on_snapshot(&number, move |shard, snapshot| async move {
            let was = snapshot.record.borrow().clone();
            let volume = shard.datasets.borrow().get(&was.volume).cloned().ok_or(IoError::Gone)?;
            let volume = volume.record.borrow().clone();
            let known = shard.bookmarks_of(was.volume);
            let name = name.unwrap_or_else(|| was.name.clone());
            if known.iter().any(|record| record.name == name) {
                let remedy =
                    "Choose another name, or delete the existing one with 'forebay bookmark delete BOOKMARK'";
                let named = format!("{}#{name}", volume.name);
                return Ok(Err((named, "a bookmark with this name exists".to_string(), remedy)));
            }
            if known.len() >= BOOKMARKS_MAX {
                let message = format!("the volume has {BOOKMARKS_MAX} bookmarks, which is the maximum");
                let remedy =
                    "Delete bookmarks that no receiver needs with 'forebay bookmark delete BOOKMARK'";
                return Ok(Err((volume.name, message, remedy)));
            }
            let fresh = DatasetRecord::new(DatasetKind::Bookmark, id, was.block_shift, was.size, name);
            let record = DatasetRecord {
                created: was.created,
                family: was.family,
                epoch: was.epoch,
                volume: was.volume,
                origin: was.stream_id(),
                ..fresh
            };
            if attempt == Attempt::Real {
                shard.create_dataset(record.clone(), None).await?;
            }
            Ok(Ok(shard.bookmark_info(&volume, &record)))
        });
        made.await?.map_err(|(of, message, remedy)| {
            Error::new(ErrorKind::Conflict, self.object(&of), message).remedy(remedy)
        })
    }

    async fn bookmark_list(&self) -> Result<Vec<BookmarkInfo>, Error> {
        let mut all = Vec::new();
        for index in 0..self.shard_count() {
            let list = |shard: Rc<Shard>| async move {
                let (mut infos, mut from, mut steps) = (Vec::new(), 0, Steps::default());
                while let Some(volume) = shard.next_dataset(from) {
                    from = volume.number() + 1;
                    steps.take(1).await;
                    if !volume.is_live() {
                        continue;
                    }
                    let marks = shard.bookmarks_of(volume.number());
                    steps.take(marks.len()).await;
                    let volume = volume.record.borrow();
                    infos.extend(marks.iter().map(|mark| shard.bookmark_info(&volume, mark)));
                }
                infos
            };
            all.extend(self.on_shard(index, list).await?);
        }
        all.sort_by(|a: &BookmarkInfo, b| {
            (&a.volume, a.created.0, &a.name).cmp(&(&b.volume, b.created.0, &b.name))
        });
        Ok(all)
    }

    async fn bookmark_rename(&self, name: &str, new: &str, attempt: Attempt) -> Result<BookmarkInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        Self::check_snapshot_name(&self.object(name), new)?;
        let own = new.to_string();
        let renamed = self.on_bookmark(name, move |shard, volume, mark| async move {
            let is_taken = |other: &DatasetRecord| other.name == own && other.number != mark.number;
            if shard.bookmarks_of(volume.number).iter().any(is_taken) {
                return Ok(Err(format!("{}#{own}", volume.name)));
            }
            let renamed = DatasetRecord { name: own, ..mark.clone() };
            if attempt == Attempt::Real && renamed.name != mark.name {
                shard.put_all(vec![renamed.clone()]).await?;
            }
            Ok(Ok(shard.bookmark_info(&volume, &renamed)))
        });
        renamed.await?.map_err(|taken| {
            Error::new(ErrorKind::Conflict, self.object(&taken), "a bookmark with this name exists")
                .remedy("Choose another name")
        })
    }

    async fn bookmark_delete(&self, name: &str) -> Result<(), Error> {
        let _turn = self.lineage.lock(0, 0).await;
        self.on_bookmark(name, |shard, _, record| async move { shard.delete_bookmarks(vec![record]).await })
            .await
    }
}

impl Engine {
    /// Keeps the moment of a snapshot (`POOL/VOLUME@NAME`, or a UUID) as the base of increments, under a name of its own or the snapshot's. The
    /// snapshot can be deleted then.
    #[boxed]
    pub async fn bookmark_create(&self, snapshot: &str, name: Option<String>) -> Result<BookmarkInfo, Error> {
        self.bookmark_of(snapshot, name, Attempt::Real).await
    }

    /// The bookmark that [`Engine::bookmark_create`] would make, or why it would not, without making it.
    #[boxed]
    pub async fn bookmark_create_check(
        &self,
        snapshot: &str,
        name: Option<String>,
    ) -> Result<BookmarkInfo, Error> {
        self.bookmark_of(snapshot, name, Attempt::Trial).await
    }

    async fn bookmark_of(
        &self,
        snapshot: &str,
        name: Option<String>,
        attempt: Attempt,
    ) -> Result<BookmarkInfo, Error> {
        self.on_writable_owner(snapshot, move |control, snapshot| async move {
            control.bookmark_create(&snapshot, name, attempt).await
        })
        .await
    }

    /// All bookmarks, of one pool or of all, oldest first within a volume.
    #[boxed]
    pub async fn bookmarks(&self, pool: Option<&str>) -> Result<Vec<BookmarkInfo>, Error> {
        let pool = pool.map(str::to_string);
        let gather = |rt: Rt| async move {
            let mut all = Vec::new();
            for control in controls_of(&rt, pool.as_deref())? {
                all.extend(control.bookmark_list().await?);
            }
            Ok(all)
        };
        self.on_core_0(gather).await
    }

    /// A bookmark by `POOL/VOLUME#NAME` or UUID.
    #[boxed]
    pub async fn bookmark(&self, name: &str) -> Result<BookmarkInfo, Error> {
        let name = name.to_string();
        let look = |rt: Rt| async move {
            let (control, own) = owner(&rt, &name).await?;
            let info = |shard: Rc<Shard>, volume: DatasetRecord, mark: DatasetRecord| async move {
                Ok(shard.bookmark_info(&volume, &mark))
            };
            control.on_bookmark(&own, info).await
        };
        self.on_core_0(look).await
    }

    /// Gives a bookmark another name, `new` being what stands behind the `#`.
    #[boxed]
    pub async fn bookmark_rename(&self, bookmark: &str, new: &str) -> Result<BookmarkInfo, Error> {
        self.rename_bookmark(bookmark, new, Attempt::Real).await
    }

    /// The bookmark as [`Engine::bookmark_rename`] would leave it, or why it would not, without doing it.
    #[boxed]
    pub async fn bookmark_rename_check(&self, bookmark: &str, new: &str) -> Result<BookmarkInfo, Error> {
        self.rename_bookmark(bookmark, new, Attempt::Trial).await
    }

    async fn rename_bookmark(&self, name: &str, new: &str, attempt: Attempt) -> Result<BookmarkInfo, Error> {
        let (name, new) = (name.to_string(), new.to_string());
        let rename = move |rt: Rt| async move {
            let (control, own) = owner(&rt, &name).await?;
            control.writable()?;
            control.bookmark_rename(&own, &new, attempt).await
        };
        self.on_core_0(rename).await
    }

    /// Deletes a bookmark, `POOL/VOLUME#NAME` or UUID.
    #[boxed]
    pub async fn bookmark_delete(&self, name: &str) -> Result<(), Error> {
        let name = name.to_string();
        let delete = |rt: Rt| async move {
            let (control, own) = owner(&rt, &name).await?;
            control.writable()?;
            control.bookmark_delete(&own).await
        };
        self.on_core_0(delete).await
    }
}

/// The coordinator of a bookmark's pool, and its name within that.
async fn owner(rt: &Rt, name: &str) -> Result<(Rc<Control>, String), Error> {
    if let Some((pool, own)) = name.split_once('/') {
        return Ok((find_pool(rt, pool)?, own.to_string()));
    }
    let is_id = name.split('#').next().is_some_and(|first| first.parse::<Id>().is_ok());
    for control in registry(rt).controls().into_iter().filter(|_| is_id) {
        if control.find_bookmark(name).await.is_ok() {
            return Ok((control, name.to_string()));
        }
    }
    let message =
        if is_id { "no imported pool has this bookmark" } else { "a bookmark is named POOL/VOLUME#NAME" };
    Err(Error::new(ErrorKind::NotFound, name, message).remedy("List them with: forebay bookmark list"))
}
