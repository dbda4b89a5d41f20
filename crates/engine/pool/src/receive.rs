//! Receiving: a stream becomes a snapshot, and the volume what it was then; all of it, or nothing that anybody sees.
//!
//! It goes by ordinary writes into a hidden volume: an empty one, or a clone of the snapshot that the stream builds upon. How far that is
//! durable is in its record, so a stream that broke off, or a receiver that crashed, goes on from there; what came of it is right, since
//! every record of a stream vouches for those before it. At the end one checkpoint seals the snapshot and puts the volume in its place: a new
//! one appears; one that was there exchanges its tree with the hidden volume's (see [`Shard::freeze_datasets`]), which is then deleted.
//! A volume is not advanced over changes that it has had since the base, unless that was asked for. That is looked at first, to refuse early,
//! and again when nothing can change any more.
//! A hidden volume belongs to the name that it is received under, one for each. It is not the trash's, nor deleted by itself.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::lineage::{Arrival, Purpose, SealOrder, Snapshot};
use crate::names::Place;
use crate::pack::Block;
use crate::projects::Inherits;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::registry::{call, registry};
use crate::send::ResumeToken;
use crate::shard::Shard;
use crate::spec::{SnapshotInfo, SyncPolicy};
use crate::stream::{Decoder, Header, Record, StreamError, Totals};
use crate::volume::LocalVolume;
use crate::volumes::{check_name, check_size};
use crate::{Engine, controls_of};
use async_recursion::async_recursion as boxed;
use forebay_base::{Id, MIB, WallTime, planted};
use forebay_runtime::{Remote, Rt};
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// After so many bytes it is written down how far the reception is: what is sent again at most after a crash.
const SAVED_BYTES: u64 = 64 * MIB;
/// How long what was received may take to its place at the end.
const REST_MAX: Duration = Duration::from_secs(60);

/// How a stream is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// What the volume has had since the base is lost.
    pub discard_changes: bool,
}

/// A part of a snapshot that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceptionInfo {
    pub id: Id,
    pub pool: String,
    /// What the volume is called, or will be.
    pub volume: String,
    /// Where the sender goes on.
    pub token: ResumeToken,
    /// Bytes.
    pub size: u64,
    pub block_size: u32,
    /// Bytes of the volume, from its start, that are there and durable.
    pub received: u64,
    /// Bytes of blocks that hold data; those of the base, too.
    pub mapped: u64,
    /// Since when.
    pub created: WallTime,
    /// Whether a stream is coming in.
    pub active: bool,
}

impl Shard {
    /// The volumes of which a part has been received.
    fn receptions(&self) -> Vec<Rc<Dataset>> {
        let is_one = |dataset: &&Rc<Dataset>| dataset.record.borrow().state == DatasetState::Receiving;
        self.datasets.borrow().values().filter(is_one).cloned().collect()
    }

    /// One of them by its id.
    pub fn reception(&self, id: Id) -> Option<Rc<Dataset>> {
        let is_it = |dataset: &&Rc<Dataset>| dataset.record.borrow().state == DatasetState::Receiving;
        self.datasets.borrow().of_id(id).find(is_it).cloned()
    }

    /// The live snapshot of a volume that has this id in streams.
    pub fn origin_in(&self, volume: u64, origin: Id) -> Option<Rc<Snapshot>> {
        let is_it =
            |snapshot: &&Rc<Snapshot>| snapshot.is_live() && snapshot.record.borrow().stream_id() == origin;
        self.snapshots.borrow().of_volume(volume).find(is_it).cloned()
    }

    /// Whether a volume is no longer as it was at the snapshot with this origin. Right when the volume is at rest and no checkpoint is
    /// under way; otherwise it may be too early to tell.
    pub fn is_changed(&self, volume: &Dataset, base: Id) -> bool {
        let Some(base) = self.origin_in(volume.number(), base) else { return true };
        let (now, was) = (volume.record.borrow(), base.record.borrow());
        let is_same = volume.is_settled()
            && !volume.tree.borrow().is_dirty()
            && (now.root, now.size) == (was.root, was.size);
        !is_same && !planted::active(planted::Bug::ReceiveOverChanges)
    }

    fn reception_info(&self, dataset: &Dataset) -> ReceptionInfo {
        let record = dataset.record.borrow();
        ReceptionInfo {
            id: record.id,
            pool: self.shared.name.clone(),
            volume: record.name.clone(),
            token: token(&record),
            size: record.size,
            block_size: 1 << record.block_shift,
            received: (record.received << record.block_shift).min(record.size),
            mapped: (dataset.tree.borrow().mapped().blocks as u64) << record.block_shift,
            created: record.created,
            // The coordinator knows.
            active: false,
        }
    }

    /// Writes down that all before a block is durable.
    async fn save_reception(self: &Rc<Self>, dataset: Rc<Dataset>, block: u64) -> Result<(), IoError> {
        let volume = LocalVolume::of(self.clone(), dataset);
        volume.flush().await?;
        volume.put(|record| record.received = record.received.max(block)).await
    }

    async fn write_reception(self: &Rc<Self>, dataset: Rc<Dataset>, record: Record) -> Result<(), IoError> {
        let volume = LocalVolume::of(self.clone(), dataset.clone());
        let block_bytes = u64::from(volume.block_size());
        match record {
            Record::Write(write) => {
                let mut rest = &write.data[..];
                let mut blocks = Vec::with_capacity(write.forms.len());
                for (kind, len) in write.forms {
                    let (bytes, after) = rest.split_at(len);
                    let stored = self.rt.arena().copy(bytes).freeze();
                    let data = self.unpack(&dataset, kind, &stored).map_err(|_| IoError::Corrupt)?;
                    blocks.push(Block::of(data, kind, stored));
                    rest = after;
                }
                volume.write_blocks(write.first, blocks).await
            }
            Record::Clear { first, count } => {
                volume.discard(first * block_bytes, count * block_bytes, false).await
            }
            Record::Header(_) | Record::End(_) => Ok(()),
        }
    }
}

fn token(record: &DatasetRecord) -> ResumeToken {
    let base = Some(record.base).filter(|base| *base != Id(0));
    ResumeToken { snapshot: record.origin, base, block: record.received }
}

/// What a reception goes on with.
struct Begun {
    shard: usize,
    id: Id,
    /// Held as long as the stream comes in.
    turn: Arc<()>,
}

impl Control {
    /// Claims a name for a stream; nothing when another is coming in under it.
    fn claim_reception(&self, name: &str) -> Option<Arc<()>> {
        let mut receiving = self.receiving.borrow_mut();
        receiving.retain(|_, turn| turn.strong_count() > 0);
        if receiving.contains_key(name) {
            return None;
        }
        let turn = Arc::new(());
        receiving.insert(name.into(), Arc::downgrade(&turn));
        Some(turn)
    }

    pub(crate) fn is_receiving(&self, name: &str) -> bool {
        self.receiving.borrow().get(name).is_some_and(|turn: &Weak<()>| turn.strong_count() > 0)
    }

    pub(crate) fn reception_busy(&self, name: &str) -> Error {
        Error::new(
            ErrorKind::Conflict,
            self.object(name),
            "a stream is already being received for this volume",
        )
        .remedy("Wait until it ends, or stop its sender")
    }

    async fn reception_list(&self) -> Result<Vec<ReceptionInfo>, Error> {
        let mut all = Vec::new();
        for index in 0..self.shard_count() {
            let list = |shard: Rc<Shard>| async move {
                let receptions = shard.receptions();
                receptions.iter().map(|dataset| shard.reception_info(dataset)).collect::<Vec<_>>()
            };
            all.extend(self.on_shard(index, list).await?);
        }
        all.iter_mut().for_each(|info| info.active = self.is_receiving(&info.volume));
        all.sort_by(|a, b| a.volume.cmp(&b.volume));
        Ok(all)
    }

    /// The shard and the record of what was received under a name, or has this id.
    pub(crate) async fn find_reception(&self, name: &str) -> Result<Option<(usize, DatasetRecord)>, Error> {
        for index in 0..self.shard_count() {
            let name = name.to_string();
            let find = |shard: Rc<Shard>| async move {
                let is_it = |record: &DatasetRecord| record.name == name || record.id.to_string() == name;
                let records = shard.receptions().into_iter().map(|dataset| dataset.record.borrow().clone());
                records.into_iter().find(is_it)
            };
            if let Some(record) = self.on_shard(index, find).await? {
                return Ok(Some((index, record)));
            }
        }
        Ok(None)
    }

    /// Runs `work` with a volume that is being received.
    async fn on_reception<T, F, W>(&self, shard: usize, id: Id, name: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Shard>, Rc<Dataset>) -> W + Send + 'static,
        W: Future<Output = Result<T, IoError>> + 'static,
    {
        let result = self.on_shard(shard, move |shard| async move {
            let dataset = shard.reception(id).ok_or(IoError::Gone)?;
            work(shard, dataset).await
        });
        result.await?.map_err(|error| self.io_error(name, error))
    }

    pub(crate) fn changed(&self, name: &str) -> Error {
        let message = "the volume has changed since the base snapshot of the stream";
        Error::new(ErrorKind::Unsafe, self.object(name), message).remedy(
            "Receive it under another name, roll the volume back with 'forebay snapshot rollback SNAPSHOT', or discard the changes with '--discard-changes'",
        )
    }

    /// A snapshot in any of the pool's volumes that has this id in streams.
    async fn find_base(&self, base: Id, volume: Option<Place>) -> Result<Option<Place>, Error> {
        let shards = volume.map_or(0..self.shard_count(), |place| place.shard..place.shard + 1);
        for shard in shards {
            let find = move |shard: Rc<Shard>| async move {
                let volumes = shard.live().into_iter();
                let mut volumes = volumes.filter(|known| volume.is_none_or(|place| place.id == known.id()));
                volumes.find_map(|volume| {
                    let found = shard.origin_in(volume.number(), base)?;
                    Some(found.record.borrow().id)
                })
            };
            if let Some(id) = self.on_shard(shard, find).await? {
                return Ok(Some(Place { shard, id }));
            }
        }
        Ok(None)
    }

    /// Refuses what could not arrive in the end; `part` of it may be there.
    async fn check_reception(
        &self,
        name: &str,
        header: &Header,
        options: ReceiveOptions,
        part: Option<&DatasetRecord>,
    ) -> Result<Option<Place>, Error> {
        let object = self.object(name);
        check_name(&object, name, "name")?;
        let full = format!("{name}@{}", header.name);
        Self::check_snapshot_name(&self.object(&full), &header.name)?;
        check_size(&object, header.size, 1 << header.block_shift)?;
        self.refuse_while_leaving(&object)?;
        self.check_quota(name, 0).await?;
        let place = self.names.borrow().get(name).copied();
        if place.is_none() {
            self.check_new_name(name)?;
        }
        let base = match (header.base, place) {
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                let message = "a volume of this name exists, and the stream is a whole snapshot";
                return Err(Error::new(ErrorKind::Conflict, object, message).remedy(
                    "Receive it under another name, or send the changes since a snapshot that both sides have",
                ));
            }
            (Some(base), place) => self.find_base(base, place).await?.ok_or_else(|| {
                let of = if place.is_some() { "the volume" } else { "the pool" };
                let message = format!("{of} does not have the base snapshot of the stream ({base})");
                Error::new(ErrorKind::NotFound, &*object, message)
                    .remedy(
                        "Receive that snapshot first ('forebay snapshot list --json' shows each \"origin\"); a bookmark of it is not enough. Or send the \
                         whole snapshot, and receive it under another name",
                    )
            })?,
        };
        let Some(volume) = place else { return Ok(Some(base)) };
        let (origin, own) = (header.snapshot, header.name.clone());
        let (shift, from) = (header.block_shift, header.base.unwrap_or_default());
        let grown = part.map(|record| (record.family, record.parent));
        let verdict = self
            .on_volume(&volume.id.to_string(), move |shard, dataset| async move {
                let number = dataset.number();
                let has_it = shard.origin_in(number, origin).is_some();
                let mut snapshots = shard.snapshots_of(number).into_iter();
                let has_name = snapshots.any(|snapshot| snapshot.record.borrow().name == own);
                let fits = dataset.record.borrow().block_shift == shift;
                // Of two copies of the base, it may have grown from the other one.
                let base = shard.origin_in(number, from).map(|base| base.number());
                let is_kin = grown.is_none_or(|grown| grown == (dataset.family(), base));
                let is_reserved = dataset.reserved.get() > 0;
                Ok((has_it, has_name, fits, is_kin, is_reserved, shard.is_changed(&dataset, from)))
            })
            .await?;
        let conflict = |message: &str, remedy: &str| {
            Err(Error::new(ErrorKind::Conflict, self.object(&full), message).remedy(remedy))
        };
        match verdict {
            (true, ..) => conflict("the volume has this snapshot already", ""),
            (_, true, ..) => {
                conflict("a snapshot of this name exists", "Delete it, or have the sender use another name")
            }
            (_, _, false, ..) => {
                conflict("the volume has another block size", "Receive it under another name")
            }
            (_, _, _, false, ..) => conflict(
                "the volume was created after a part of the snapshot was received",
                "Abandon that part with 'forebay snapshot abandon VOLUME', and send the snapshot again",
            ),
            (.., true, _) => conflict(
                "the volume has reserved space, and the space that the stream needs is not known beforehand",
                "Make it thin first ('forebay volume convert VOLUME --format thin'), or receive it under another name",
            ),
            (.., true) if !options.discard_changes => Err(self.changed(name)),
            _ => Ok(Some(base)),
        }
    }

    /// Makes ready for a stream with this header.
    async fn reception_begin(
        &self,
        name: String,
        header: Header,
        options: ReceiveOptions,
    ) -> Result<Begun, Error> {
        let turn = self.claim_reception(&name).ok_or_else(|| self.reception_busy(&name))?;
        let _turn = self.lineage.lock(0, 0).await;
        let part = self.find_reception(&name).await?;
        let known = part.as_ref().map(|(_, record)| record);
        let base = self.check_reception(&name, &header, options, known).await?;
        let (object, origin, from) = (self.object(&name), header.snapshot, header.base.unwrap_or_default());
        let (shard, id) = match part {
            Some((shard, record)) => {
                if (record.origin, record.base, record.block_shift) != (origin, from, header.block_shift) {
                    let message = "the volume has a received part of another snapshot";
                    return Err(Error::new(ErrorKind::Conflict, object, message).remedy(format!(
                        "Resume that stream (its token is {}), or abandon the received part with 'forebay snapshot abandon VOLUME'",
                        token(&record)
                    )));
                }
                if header.from > record.received {
                    let message = format!(
                        "the stream begins at block {}, and blocks before it were not received",
                        header.from
                    );
                    return Err(Error::new(ErrorKind::Conflict, object, message)
                        .remedy(format!("Send it with '--resume {}'", token(&record))));
                }
                (shard, record.id)
            }
            None if header.from > 0 => {
                let message = "the stream resumes an earlier one, of which nothing was received here";
                return Err(
                    Error::new(ErrorKind::Conflict, object, message).remedy("Send it without '--resume'")
                );
            }
            None => {
                let id = Id::from_random(self.rt.random(), self.rt.random());
                let shard = match base {
                    Some(base) => base.shard,
                    None => self.shard_for_volume(&object)?,
                };
                self.check_catalog(&object, shard, 1).await?;
                let fresh = DatasetRecord::new(
                    DatasetKind::Volume,
                    id,
                    header.block_shift,
                    header.size,
                    name.clone(),
                );
                let (state, sync, created) = (DatasetState::Receiving, SyncPolicy::Standard, self.rt.wall());
                let inherits =
                    Inherits::COMPRESSION.and(Inherits::SCHEDULE).and(Inherits::HOSTS).and(Inherits::LEVEL);
                let record = DatasetRecord { state, sync, inherits, created, origin, base: from, ..fresh };
                let create = move |shard: Rc<Shard>| async move {
                    match base {
                        Some(base) => {
                            let base = shard.snapshot(base.id).ok_or(IoError::Gone)?;
                            let record = DatasetRecord { epoch: shard.epoch.get(), ..record };
                            shard.clone_snapshot(&base, record).await.map(drop)
                        }
                        None => shard.create_dataset(record, None).await.map(drop),
                    }
                };
                self.on_shard(shard, create).await?.map_err(|error| self.io_error(&name, error))?;
                (shard, id)
            }
        };
        let size = header.size;
        self.on_reception(shard, id, &name, move |shard, dataset| async move {
            let is_small = dataset.size() < size;
            let volume = LocalVolume::of(shard, dataset);
            if is_small { volume.put(|record| record.size = size).await } else { Ok(()) }
        })
        .await?;
        Ok(Begun { shard, id, turn })
    }

    /// All has come: the snapshot is there, and the volume.
    async fn reception_end(
        self: &Rc<Self>,
        name: String,
        begun: (usize, Id),
        header: Header,
        totals: Totals,
        options: ReceiveOptions,
    ) -> Result<SnapshotInfo, Error> {
        let (index, id) = begun;
        let size = header.size;
        let resting = self.on_reception(index, id, &name, move |shard, dataset| async move {
            let (now, end) = (dataset.size(), dataset.record.borrow().blocks());
            // Of what the base had there, a sender has cleared all.
            LocalVolume::of(shard.clone(), dataset.clone()).discard(size, now - size, false).await?;
            shard.save_reception(dataset.clone(), end).await?;
            // A sender that broke off may have left writes behind, and the client that the volume gets writes to it as soon as it is one.
            dataset.quiesce().await;
            // What waits in the log counts when it is in its place.
            Ok(shard.come_to_rest(&[dataset], REST_MAX, REST_MAX).await)
        });
        if !resting.await? {
            let message = "the received data could not be stored in time";
            return Err(Error::new(ErrorKind::Conflict, self.object(&name), message)
                .remedy("Resume the stream when the pool is less busy; the received data is kept"));
        }
        self.checkpoint().await?;
        let mapped = self.on_reception(index, id, &name, |_, dataset| async move {
            Ok(dataset.record.borrow().mapped.blocks as u64)
        });
        let mapped = mapped.await?;
        if mapped != totals.mapped {
            let message = format!(
                "{mapped} blocks hold data after the receive, and {} blocks do at the sender",
                totals.mapped
            );
            return Err(Error::new(ErrorKind::Corrupt, self.object(&name), message)
                .remedy("Abandon it with 'forebay snapshot abandon VOLUME', and send the whole snapshot"));
        }
        let _turn = self.lineage.lock(0, 0).await;
        // What was found at the beginning may have changed since.
        let part = self.find_reception(&id.to_string()).await?;
        self.check_reception(&name, &header, options, part.as_ref().map(|(_, record)| record)).await?;
        let into = self.names.borrow().get(&name).map(|place| place.id);
        let snapshot = Id::from_random(self.rt.random(), self.rt.random());
        let (origin, discard_changes) = (header.snapshot, options.discard_changes);
        let purpose = Purpose::Arrive(Arrival { origin, size, into, discard_changes });
        let (volume, created) = (id, header.created);
        let (own, scheduled, retain_until) = (header.name, false, WallTime(0));
        let order = SealOrder { volume, snapshot, name: own, created, scheduled, retain_until, purpose };
        if into.is_none() {
            self.names.borrow_mut().insert(name.clone(), Place { shard: index, id });
        }
        let sealed = self.seal(&name, vec![(index, order)]).await;
        if into.is_none() {
            if sealed.is_err() {
                self.names.borrow_mut().remove(&name);
            } else {
                let show = move |shard: Rc<Shard>| async move {
                    if let Some(dataset) = shard.volume(id) {
                        registry(&shard.rt).add_volume(&shard, dataset);
                    }
                };
                self.on_shard(index, show).await?;
            }
        }
        sealed?;
        self.snapshot_info(&snapshot.to_string()).await
    }

    async fn reception_delete(&self, name: &str) -> Result<(), Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let Some((shard, record)) = self.find_reception(name).await? else {
            return Err(Error::new(
                ErrorKind::NotFound,
                self.object(name),
                "the volume has no interrupted receive",
            )
            .remedy("List interrupted receives with: forebay snapshot receives"));
        };
        let Some(_busy) = self.claim_reception(&record.name) else {
            return Err(self.reception_busy(name));
        };
        self.on_reception(shard, record.id, name, |shard, dataset| async move {
            let record = dataset.record.borrow().clone();
            shard.doom(&[], Some(record)).await
        })
        .await
    }
}

/// A stream that comes in.
struct Open {
    core: Remote,
    pool: Id,
    begun: Begun,
    header: Header,
    /// The blocks before this one have been taken.
    block: u64,
    unsaved: u64,
}

impl Open {
    /// Runs `work` with the hidden volume.
    async fn with<F, W>(&self, work: F) -> Result<(), IoError>
    where
        F: FnOnce(Rc<Shard>, Rc<Dataset>) -> W + Send + 'static,
        W: Future<Output = Result<(), IoError>> + 'static,
    {
        let (pool, index, id) = (self.pool, self.begun.shard, self.begun.id);
        let done = call(&self.core, move |rt| async move {
            let shard = registry(&rt).shard(pool, index).ok_or(IoError::Gone)?;
            let dataset = shard.reception(id).ok_or(IoError::Gone)?;
            work(shard, dataset).await
        });
        done.await.unwrap_or(Err(IoError::Gone))
    }

    async fn save(&mut self) -> Result<(), IoError> {
        let block = self.block;
        self.unsaved = 0;
        self.with(move |shard, dataset| async move { shard.save_reception(dataset, block).await }).await
    }

    async fn take(&mut self, record: Record) -> Result<(), IoError> {
        let (end, bytes) = match &record {
            Record::Write(write) => (write.first + write.forms.len() as u64, write.data.len() as u64),
            Record::Clear { first, count } => (first + count, 4096),
            Record::Header(_) | Record::End(_) => return Ok(()),
        };
        self.with(|shard, dataset| async move { shard.write_reception(dataset, record).await }).await?;
        self.block = end;
        self.unsaved += bytes;
        if self.unsaved >= SAVED_BYTES { self.save().await } else { Ok(()) }
    }
}

/// Takes a stream, piece by piece. When it is dropped, what was not saved is sent again the next time.
pub struct SnapshotReceiver {
    engine: Engine,
    pool: String,
    /// Within the pool.
    volume: String,
    options: ReceiveOptions,
    decoder: Decoder,
    open: Option<Open>,
    totals: Totals,
}

impl SnapshotReceiver {
    fn object(&self) -> String {
        format!("{}/{}", self.pool, self.volume)
    }

    /// Writes down how far it is, and says how it goes on.
    async fn stop(&mut self, kind: ErrorKind, message: String, remedy: &str) -> Error {
        let mut remedy = remedy.to_string();
        if let Some(mut open) = self.open.take() {
            let is_saved = open.save().await.is_ok();
            if !remedy.is_empty() {
                remedy.push_str(". ");
            }
            let Header { snapshot, base, .. } = open.header;
            let token = ResumeToken { snapshot, base, block: open.block };
            remedy.push_str(&match is_saved {
                true => format!(
                    "The received part is kept. Resume with 'forebay snapshot send SNAPSHOT --resume {token}'"
                ),
                false => "'forebay snapshot receives' shows how to resume it".to_string(),
            });
        }
        Error::new(kind, self.object(), message).remedy(remedy)
    }

    async fn damaged(&mut self, error: StreamError) -> Error {
        self.stop(ErrorKind::Invalid("stream"), error.to_string(), "").await
    }

    /// Takes the next bytes. After an error the stream is over; what came before is kept.
    #[boxed]
    pub async fn push(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        loop {
            let record = match self.decoder.next(&mut bytes) {
                Ok(None) => return Ok(()),
                Ok(Some(record)) => record,
                Err(error) => return Err(self.damaged(error).await),
            };
            match record {
                Record::Header(header) => self.begin(header).await?,
                Record::End(totals) => self.totals = totals,
                record => {
                    let Some(open) = &mut self.open else { return Err(self.over()) };
                    if let Err(error) = open.take(record).await {
                        let (kind, remedy) = match error {
                            IoError::NoSpace => (ErrorKind::NoSpace, "Free space in the pool"),
                            IoError::OutOfRange => (ErrorKind::Invalid("stream"), ""),
                            IoError::Gone => (ErrorKind::Stopped, "Import the pool again"),
                            IoError::Suspended => (ErrorKind::Suspended, "Restore the failed disks"),
                            _ => (ErrorKind::Io, "See the pool's events"),
                        };
                        let message = format!("the received data cannot be written: {error}");
                        return Err(self.stop(kind, message, remedy).await);
                    }
                }
            }
        }
    }

    fn over(&self) -> Error {
        Error::new(ErrorKind::Stopped, self.object(), "the receive has ended")
    }

    async fn begin(&mut self, header: Header) -> Result<(), Error> {
        let (name, own, options) = (self.volume.clone(), header.clone(), self.options);
        let begin = move |control: Rc<Control>| async move {
            let begun = control.reception_begin(name, own, options).await?;
            let core = control.shared.cores.core(begun.shard).clone();
            Ok((core, control.id(), begun))
        };
        let (core, pool, begun) = self.engine.on_writable_pool(&self.pool, begin).await?;
        let block = header.from;
        self.open = Some(Open { core, pool, begun, header, block, unsaved: 0 });
        Ok(())
    }

    /// No more bytes come: the snapshot that is there now, if all has come.
    #[boxed]
    pub async fn finish(mut self) -> Result<SnapshotInfo, Error> {
        if let Err(error) = self.decoder.finish() {
            return Err(self.damaged(error).await);
        }
        let Some(open) = self.open.take() else { return Err(self.over()) };
        let (name, begun, totals) = (self.volume.clone(), (open.begun.shard, open.begun.id), self.totals);
        let (header, options) = (open.header.clone(), self.options);
        let end = move |control: Rc<Control>| async move {
            control.reception_end(name, begun, header, totals, options).await
        };
        let ended = self.engine.on_writable_pool(&self.pool, end).await;
        drop(open.begun.turn);
        ended
    }
}

impl Engine {
    /// Receives a stream as volume `POOL/NAME`: a new one, or one that has the snapshot that the stream builds upon.
    #[boxed]
    pub async fn snapshot_receive(
        &self,
        volume: &str,
        options: ReceiveOptions,
    ) -> Result<SnapshotReceiver, Error> {
        let Some((pool, name)) = volume.split_once('/') else {
            return Err(Error::new(ErrorKind::Invalid("name"), volume, "a volume is named POOL/NAME"));
        };
        check_name(volume, name, "name")?;
        self.pool_changeable(pool).await?;
        let (engine, pool, volume) = (self.clone(), pool.to_string(), name.to_string());
        let (decoder, open, totals) = (Decoder::default(), None, Totals::default());
        Ok(SnapshotReceiver { engine, pool, volume, options, decoder, open, totals })
    }

    /// What has been received in part, of one pool or of all.
    #[boxed]
    pub async fn receptions(&self, pool: Option<&str>) -> Result<Vec<ReceptionInfo>, Error> {
        let pool = pool.map(str::to_string);
        let gather = |rt: Rt| async move {
            let mut all = Vec::new();
            for control in controls_of(&rt, pool.as_deref())? {
                all.extend(control.reception_list().await?);
            }
            Ok(all)
        };
        self.on_core_0(gather).await
    }

    /// Gives up what was received for `POOL/NAME`; its space comes back in the background.
    #[boxed]
    pub async fn reception_delete(&self, volume: &str) -> Result<(), Error> {
        let Some((pool, name)) = volume.split_once('/') else {
            return Err(Error::new(ErrorKind::Invalid("name"), volume, "a volume is named POOL/NAME"));
        };
        let name = name.to_string();
        self.on_writable_pool(pool, |control| async move { control.reception_delete(&name).await }).await
    }
}
