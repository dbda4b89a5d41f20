//! Bookmarks: a moment of a volume without its blocks, from which increments can be sent when the snapshot is gone.
//!
//! What has been written since then was born since then, so the snapshot's tree says alone what differs: a node that was born before the
//! bookmark has nothing new below it. That is so as long as the volume only goes forward. One that went back to an older snapshot has
//! blocks again that are older than the bookmark; therefore a volume knows since when it has only gone forward, its snapshots know it of the moment
//! when they were taken, and a bookmark from before is refused.
//!
//! A bookmark is a dataset without blocks, on the shard of its volume, and goes with it.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::shard::Shard;
use crate::steps::Steps;
use crate::{Engine, controls_of, find_pool};
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
}

impl DatasetRecord {
    /// Whether an increment from this bookmark to a snapshot can be told by what was born since.
    pub fn leads_to(&self, snapshot: &DatasetRecord) -> bool {
        let is_of_it = self.family == snapshot.family && self.volume == snapshot.volume;
        let is_before = is_of_it && self.epoch < snapshot.epoch;
        is_before && (self.epoch >= snapshot.forward_since || active(Bug::BookmarkForgetsRollback))
    }
}

impl Shard {
    /// The live bookmarks of a volume, oldest first.
    fn bookmarks_of(&self, volume: u64) -> Vec<DatasetRecord> {
        let datasets = self.datasets.borrow();
        let records = datasets.bookmarks_of(volume).map(|dataset| dataset.record.borrow().clone());
        let mut live: Vec<_> = records.filter(|record| record.state == DatasetState::Live).collect();
        live.sort_by_key(|record| (record.epoch, record.number));
        live
    }

    fn bookmark_info(&self, volume: &str, record: &DatasetRecord) -> BookmarkInfo {
        BookmarkInfo {
            id: record.id,
            pool: self.shared.name.clone(),
            volume: volume.to_string(),
            name: record.name.clone(),
            size: record.size,
            created: record.created,
            origin: record.origin,
        }
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

    /// Whether a volume that takes what was received since its snapshot with this origin may have, besides what is born from now on, what a bookmark
    /// of it does not know. What was received was born before that: after the base, but perhaps before snapshots and bookmarks that came later.
    pub fn goes_back(&self, volume: &Dataset, base: Id) -> bool {
        let Some(base) = self.origin_in(volume.number(), base) else { return true };
        let is_newest = volume.record.borrow().parent == Some(base.number());
        let is_later = |mark: &Rc<Dataset>| mark.record.borrow().epoch > base.epoch();
        let marks_later = self.datasets.borrow().bookmarks_of(volume.number()).any(is_later);
        self.is_changed(volume, base.record.borrow().stream_id()) || !is_newest || marks_later
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

    /// Runs `work` with a volume's name and number and the record of the bookmark `VOLUME#NAME`, on their shard.
    async fn on_bookmark<T, F, W>(&self, name: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Shard>, String, DatasetRecord) -> W + Send + 'static,
        W: Future<Output = Result<T, IoError>> + 'static,
    {
        let (volume, own) = name.split_once('#').ok_or_else(|| self.no_bookmark(name))?;
        let (_, place) = self.find(volume).ok_or_else(|| self.no_bookmark(name))?;
        let own = own.to_string();
        let result = self.on_shard(place.shard, move |shard| async move {
            let volume = shard.volume(place.id).ok_or(IoError::Gone)?;
            let found = shard.bookmarks_of(volume.number()).into_iter().find(|record| record.name == own);
            let volume = volume.record.borrow().name.clone();
            work(shard, volume, found.ok_or(IoError::Gone)?).await
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
    pub(crate) async fn find_bookmark(
        &self,
        shard: usize,
        to: DatasetRecord,
        origin: Id,
    ) -> Result<Option<DatasetRecord>, Error> {
        let find = move |shard: Rc<Shard>| async move {
            let mut marks = shard.bookmarks_of(to.volume).into_iter();
            marks.find(|mark| mark.origin == origin && mark.leads_to(&to))
        };
        self.on_shard(shard, find).await
    }

    async fn bookmark_create(&self, snapshot: &str, name: Option<String>) -> Result<BookmarkInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let place = self.find_snapshot(snapshot).await?;
        let object = self.object(snapshot);
        if let Some(name) = &name {
            Self::check_snapshot_name(&object, name)?;
        }
        self.check_catalog(&object, place.shard, 1).await?;
        let (id, number) = (Id::from_random(self.rt.random(), self.rt.random()), place.id.to_string());
        let made = self.on_snapshot(&number, move |shard, snapshot| async move {
            let was = snapshot.record.borrow().clone();
            let known = shard.bookmarks_of(was.volume);
            let name = name.unwrap_or_else(|| was.name.clone());
            if known.iter().any(|record| record.name == name) {
                return Ok(Err(format!("the volume has a bookmark '{name}' already")));
            }
            if known.len() >= BOOKMARKS_MAX {
                return Ok(Err(format!("the volume has its {BOOKMARKS_MAX} bookmarks")));
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
            shard.create_dataset(record.clone(), None).await?;
            let volume = shard.datasets.borrow().get(&was.volume).cloned().ok_or(IoError::Gone)?;
            let volume = volume.record.borrow().name.clone();
            Ok(Ok(shard.bookmark_info(&volume, &record)))
        });
        made.await?.map_err(|why| {
            Error::new(ErrorKind::Conflict, object, format!("it cannot be bookmarked: {why}"))
                .remedy("Choose another name, or delete some with 'forebay bookmark delete BOOKMARK'")
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
                    let name = volume.record.borrow().name.clone();
                    for record in shard.bookmarks_of(volume.number()) {
                        steps.take(1).await;
                        infos.push(shard.bookmark_info(&name, &record));
                    }
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

    async fn bookmark_delete(&self, name: &str) -> Result<(), Error> {
        let _turn = self.lineage.lock(0, 0).await;
        self.on_bookmark(name, |shard, _, record| async move { shard.delete_bookmarks(vec![record]).await })
            .await
    }
}

impl Engine {
    /// Keeps the moment of a snapshot (`POOL/VOLUME@NAME`, or a UUID) as the base of increments, under a name of its own or the snapshot's. The
    /// snapshot can be deleted then.
    pub async fn bookmark_create(&self, snapshot: &str, name: Option<String>) -> Result<BookmarkInfo, Error> {
        self.on_writable_owner(snapshot, |control, snapshot| async move {
            control.bookmark_create(&snapshot, name).await
        })
        .await
    }

    /// All bookmarks, of one pool or of all, oldest first within a volume.
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

    /// A bookmark by `POOL/VOLUME#NAME`.
    pub async fn bookmark(&self, name: &str) -> Result<BookmarkInfo, Error> {
        let name = name.to_string();
        let look = |rt: Rt| async move {
            let (control, own) = named(&rt, &name)?;
            let info = |shard: Rc<Shard>, volume: String, record| async move {
                Ok(shard.bookmark_info(&volume, &record))
            };
            control.on_bookmark(&own, info).await
        };
        self.on_core_0(look).await
    }

    /// Deletes a bookmark, `POOL/VOLUME#NAME`.
    pub async fn bookmark_delete(&self, name: &str) -> Result<(), Error> {
        let name = name.to_string();
        let delete = |rt: Rt| async move {
            let (control, own) = named(&rt, &name)?;
            control.writable()?;
            control.bookmark_delete(&own).await
        };
        self.on_core_0(delete).await
    }
}

/// The coordinator of the pool of `POOL/VOLUME#NAME`, and the rest of the name.
fn named(rt: &Rt, name: &str) -> Result<(Rc<Control>, String), Error> {
    let Some((pool, own)) = name.split_once('/') else {
        return Err(Error::new(ErrorKind::NotFound, name, "a bookmark is named POOL/VOLUME#NAME")
            .remedy("List them with: forebay bookmark list"));
    };
    Ok((find_pool(rt, pool)?, own.to_string()))
}
