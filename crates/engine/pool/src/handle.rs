//! A volume as protocols use it: a handle that stays the volume's when it moves to another pool.
//!
//! Handles of one volume on one core share the place that they lead to, so a move turns all of them to where the volume is
//! now, also those that nobody uses for days: nothing keeps the pool that it left open. What was begun at the old place and
//! has changed nothing yet finds it `Gone`, looks again, and begins at the new one.

use crate::cancellation::Cancellation;
use crate::dataset::Dataset;
use crate::error::IoError;
use crate::registry::registry;
use crate::shard::Shard;
use crate::spec::{Extent, SyncPolicy};
use crate::tally::Request;
use crate::volume::{Admitted, LocalVolume, length};
use async_recursion::async_recursion as boxed;
use forebay_base::Id;
use forebay_qos::Work;
use forebay_runtime::{Buf, Rt};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// A volume on the core that owns it. Offsets and lengths are bytes and need no alignment, but whole,
/// aligned blocks are cheapest. Each write or compare-and-write is atomic: after a crash it is there whole or
/// not at all. Cheap to clone.
#[derive(Clone)]
pub struct Volume {
    place: Rc<RefCell<LocalVolume>>,
    /// Of requests through this handle.
    cancellation: Option<Cancellation>,
}

/// A place that is there as long as somebody has a handle.
pub(crate) struct WeakVolume(Weak<RefCell<LocalVolume>>);

impl WeakVolume {
    pub fn is_used(&self) -> bool {
        self.0.strong_count() > 0
    }
    pub fn upgrade(&self) -> Option<Volume> {
        self.0.upgrade().map(|place| Volume { place, cancellation: None })
    }
}

impl Volume {
    /// The volume with this id. `Gone` when it does not exist or lives on another core.
    pub fn open(rt: &Rt, id: Id) -> Result<Volume, IoError> {
        registry(rt).volume(id).ok_or(IoError::Gone)
    }

    pub(crate) fn of(shard: Rc<Shard>, dataset: Rc<Dataset>) -> Volume {
        let place = Rc::new(RefCell::new(LocalVolume::of(shard, dataset)));
        Volume { place, cancellation: None }
    }

    pub(crate) fn downgrade(&self) -> WeakVolume {
        WeakVolume(Rc::downgrade(&self.place))
    }

    pub(crate) fn here(&self) -> LocalVolume {
        self.place.borrow().clone()
    }

    /// All handles lead to another place from now on.
    pub(crate) fn turn_to(&self, to: LocalVolume) -> LocalVolume {
        self.place.replace(to)
    }

    pub(crate) fn is_of(&self, dataset: &Rc<Dataset>) -> bool {
        Rc::ptr_eq(&self.place.borrow().dataset, dataset)
    }

    pub(crate) fn is_on(&self, shard: &Rc<Shard>) -> bool {
        Rc::ptr_eq(&self.place.borrow().shard, shard)
    }

    /// Runs what changes nothing, or can be begun anew.
    async fn run<T, W: Future<Output = Result<T, IoError>>>(
        &self,
        work: impl Fn(LocalVolume) -> W,
    ) -> Result<T, IoError> {
        loop {
            let here = self.here();
            let dataset = here.dataset.clone();
            match work(here).await {
                Err(IoError::Gone) if !self.is_of(&dataset) => {}
                result => return result,
            }
        }
    }

    /// A handle whose requests are cancelled by `cancellation` as long as they have not begun: reads, changes and flushes that wait for
    /// ceilings, and changes that wait for anything else before they begin. They are [`IoError::Cancelled`] then, and have changed nothing.
    pub fn cancellable(&self, cancellation: &Cancellation) -> Volume {
        Volume { place: self.place.clone(), cancellation: Some(cancellation.clone()) }
    }

    /// Waits for what comes before a request begins.
    async fn until_begun<T>(&self, wait: impl Future<Output = Result<T, IoError>>) -> Result<T, IoError> {
        match &self.cancellation {
            Some(cancellation) => {
                cancellation.unless_cancelled(wait).await.unwrap_or(Err(IoError::Cancelled))
            }
            None => wait.await,
        }
    }

    /// Waits until a change may begin, and says where.
    async fn admit(&self, at: u64, len: usize) -> Result<(LocalVolume, Admitted, Request), IoError> {
        let wait = self.run(|here| async move {
            let request = here.ask(Work::write(len as u64, 1), true).await;
            match here.admit(at, len).await {
                Ok(admitted) => Ok((here, admitted, request)),
                Err(error) => request.ends(Err(error)),
            }
        });
        self.until_begun(wait).await
    }

    /// Runs what changes nothing, or can be begun anew, as a request of `work`. What takes as long as it is large, without bytes to say so, is not timed.
    async fn ask<T, W: Future<Output = Result<T, IoError>>>(
        &self,
        work: Work,
        is_timed: bool,
        then: impl Fn(LocalVolume) -> W,
    ) -> Result<T, IoError> {
        // What has done a part of its work where the volume was is not cancelled where it is now.
        let has_begun = Cell::new(false);
        self.run(|here| async {
            let wait = async { Ok(here.ask(work, is_timed).await) };
            let request = if has_begun.replace(true) { wait.await } else { self.until_begun(wait).await }?;
            request.ends(then(here).await)
        })
        .await
    }

    /// Bytes, now (it may grow).
    pub fn size(&self) -> u64 {
        self.place.borrow().size()
    }
    pub fn block_size(&self) -> u32 {
        self.place.borrow().block_size()
    }
    pub fn sync(&self) -> SyncPolicy {
        self.place.borrow().sync()
    }
    /// Whether every change is refused, since the pool was imported to be read only.
    pub fn is_read_only(&self) -> bool {
        self.place.borrow().is_read_only()
    }

    /// `len` bytes from `at`, in parts that follow each other. At most 32 MiB.
    pub async fn read(&self, at: u64, len: usize) -> Result<Vec<Buf>, IoError> {
        self.ask(Work::read(len as u64, 1), true, |here| async move { here.read(at, len).await }).await
    }

    /// Writes the parts one after the other from `at`; at most 32 MiB in all. `fua`: durable when done, whatever `sync` says
    /// (except [`SyncPolicy::Disabled`]).
    pub async fn write(&self, at: u64, data: Vec<Buf>, fua: bool) -> Result<(), IoError> {
        let (here, admitted, request) = self.admit(at, length(&data)).await?;
        request.ends(here.write_admitted(admitted, at, data, fua).await)
    }

    /// Makes every write acknowledged before it durable.
    pub async fn flush(&self) -> Result<(), IoError> {
        match self.sync() {
            SyncPolicy::Standard => {
                self.ask(Work::write(0, 1), true, |here| async move { here.flush().await }).await
            }
            // There is hardly ever anything to do.
            SyncPolicy::Always | SyncPolicy::Disabled => {
                self.run(|here| async move { here.flush().await }).await
            }
        }
    }

    /// Gives back the space of every whole block in the range; it reads as zeros afterwards. Partial blocks at the ends stay
    /// as they are. Large ranges are done piece by piece, each of which is atomic.
    #[boxed(?Send)]
    pub async fn discard(&self, at: u64, len: u64, fua: bool) -> Result<(), IoError> {
        self.ask(Work::write(0, 1), false, |here| async move { here.discard(at, len, fua).await }).await
    }

    /// The range reads as zeros afterwards; whole blocks by metadata alone.
    #[boxed(?Send)]
    pub async fn write_zeroes(&self, at: u64, len: u64, fua: bool) -> Result<(), IoError> {
        self.ask(Work::write(0, 1), false, |here| async move { here.write_zeroes(at, len, fua).await }).await
    }

    /// Writes `new` if the volume holds `expected` there (same length, at most 1 MiB); otherwise `Ok(Err(first differing byte))`.
    #[boxed(?Send)]
    pub async fn compare_and_write(
        &self,
        at: u64,
        expected: Buf,
        new: Buf,
    ) -> Result<Result<(), usize>, IoError> {
        let (here, admitted, request) = self.admit(at, new.len()).await?;
        request.ends(here.compare_and_write(admitted, at, expected, new).await)
    }

    /// Which parts of the range hold data: extents that cover it from its start, at most `extents_max` of them. They may end before the
    /// range does; then ask again from there.
    #[boxed(?Send)]
    pub async fn status(&self, at: u64, len: u64, extents_max: usize) -> Result<Vec<Extent>, IoError> {
        self.run(|here| async move { here.status(at, len, extents_max).await }).await
    }

    /// What [`Volume::store_attributes`] stored last; nothing when it never did.
    #[boxed(?Send)]
    pub async fn load_attributes(&self) -> Result<Option<Vec<u8>>, IoError> {
        self.run(|here| async move { here.load_attributes().await }).await
    }

    /// Keeps `bytes` with the volume, durably, instead of what was kept before; none to keep nothing. `OutOfRange` for more
    /// than [`crate::ATTRIBUTES_BYTES_MAX`].
    #[boxed(?Send)]
    pub async fn store_attributes(&self, bytes: &[u8]) -> Result<(), IoError> {
        self.run(|here| async move { here.store_attributes(bytes).await }).await
    }
}
