//! Moves of volumes between pools, as the coordinators of both see them, from the beginning to the end. What a crash or an export leaves of
//! them is settled by [`crate::halves`].

use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::halves::{placeholder, settle};
use crate::moving::{Copier, Halt, PAUSE_DELAY, PAUSE_TRIES};
use crate::names::Place;
use crate::progress::WorkProgress;
use crate::projects::Inherits;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::registry::registry;
use crate::reserve::Refusal;
use crate::shard::Shard;
use crate::spec::{Severity, SyncPolicy, VolumeFormat, VolumeInfo};
use crate::tables::DATASETS_MAX;
use crate::volume::LocalVolume;
use crate::{Engine, find_pool};
use async_recursion::async_recursion as boxed;
use forebay_base::Id;
use forebay_device::UNIT;
use forebay_runtime::Rt;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

/// The volume that moves, and where to.
#[derive(Clone)]
struct Move {
    source: Rc<Control>,
    target: Rc<Control>,
    name: String,
    id: Id,
    /// The shard where it is, and its number there.
    from: usize,
    number: u64,
    /// The shard where it goes.
    to: usize,
    progress: Arc<WorkProgress>,
}

impl Control {
    /// Refuses what a move cannot take along.
    pub fn refuse_while_moving(&self, name: &str) -> Result<(), Error> {
        let Some((name, place)) = self.find(name) else { return Ok(()) };
        if !self.moving.borrow().contains_key(&place.id) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, self.object(&name), "the volume is being moved to another pool")
            .remedy("Wait until the move is complete, or cancel it ('forebay task list')"))
    }

    /// Calls off all moves to and from this pool, and waits until they are over.
    pub async fn end_moves(&self) {
        self.moving.borrow().values().for_each(|progress| progress.cancel());
        self.turnstile.until(|| self.moving.borrow().is_empty()).await;
    }

    /// The shard on a core that has the fewest volumes.
    fn shard_on_core(&self, core: usize) -> Option<usize> {
        let mut load = vec![0; self.shard_count()];
        load.iter_mut().enumerate().for_each(|(shard, load)| *load = self.names.borrow().on_shard(shard));
        self.trash.shards().into_iter().for_each(|shard| load[shard] += 1);
        let cores = self.shared.cores.count();
        let all = (0..load.len()).filter(|shard| shard % cores == core && load[*shard] < DATASETS_MAX - 1);
        all.min_by_key(|shard| load[*shard])
    }
}

impl Move {
    fn object(&self) -> String {
        self.source.object(&self.name)
    }

    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, self.object(), message)
    }

    /// Looks whether the volume can move, and takes its name in the other pool.
    async fn claim(
        source: Rc<Control>,
        name: &str,
        target: Rc<Control>,
        progress: Arc<WorkProgress>,
    ) -> Result<(Move, DatasetRecord), Error> {
        let (name, place) = source.existing(name)?;
        let id = place.id;
        let core = place.shard % source.shared.cores.count();
        let (from, to) = (place.shard, target.shard_on_core(core));
        let (number, to_shard) = (0, to.unwrap_or_default());
        let one = Move { source, target, name, id, from, number, to: to_shard, progress };
        let conflict = |message: String| one.error(ErrorKind::Conflict, message);
        if one.source.id() == one.target.id() {
            return Err(one
                .error(ErrorKind::Invalid("pool"), "the volume is in this pool already")
                .remedy("Name another pool; list them with: forebay pool list"));
        }
        if to.is_none() {
            let message = format!(
                "pool {} has no shard with room for another volume on core {core}, which serves the volume's clients",
                one.target.name()
            );
            return Err(conflict(message).remedy(
                "While no client uses the volume, copy it with 'forebay snapshot send SNAPSHOT' and 'forebay snapshot receive VOLUME'",
            ));
        }
        one.refuse_now()?;
        let look = |shard: Rc<Shard>, dataset: Rc<Dataset>| async move {
            let snapshots = shard.count_snapshots(dataset.number()) as usize;
            let bookmarks = shard.bookmarks_of(dataset.number()).len();
            let mapped = dataset.tree.borrow().mapped();
            Ok((DatasetRecord { mapped, ..dataset.record.borrow().clone() }, (snapshots, bookmarks)))
        };
        let (record, (snapshots, bookmarks)) = one.source.on_volume(&one.name, look).await?;
        if snapshots > 0 {
            return Err(conflict(format!("the volume has {snapshots} snapshots, which do not move with it")).remedy(
                "Delete them first, or copy the volume with its snapshots by 'forebay snapshot send SNAPSHOT' and 'forebay snapshot receive VOLUME'",
            ));
        }
        if bookmarks > 0 {
            let message = format!("the volume has {bookmarks} bookmarks, which do not move with it");
            return Err(conflict(message).remedy(
                "Delete them with 'forebay bookmark delete BOOKMARK'. The first stream from the other pool is then a whole one",
            ));
        }
        let damaged = one.source.volume_brief(&one.name).await?.damaged;
        if damaged > 0 {
            let message = format!(
                "{} KiB of the volume are unrecoverable and cannot be copied to pool {}",
                damaged.div_ceil(1024),
                one.target.name()
            );
            return Err(one.source.damaged_error(&one.name, message));
        }
        let status = one.target.status().await?;
        let (stored, free) = (record.mapped.units as u64 * UNIT, status.free.saturating_sub(status.reserved));
        if stored > free {
            let message = format!(
                "the volume does not fit into pool {}: it has {} MiB, and {} MiB are free there",
                one.target.name(),
                stored >> 20,
                free >> 20
            );
            return Err(one.error(ErrorKind::NoSpace, message).remedy("Add disks there, or purge volumes"));
        }
        let held = if record.format == VolumeFormat::Thin { stored } else { record.size };
        one.target.check_quota(&one.name, held).await?;
        Ok((Move { number: record.number, ..one }, record))
    }

    /// What can be said without asking a shard.
    fn refuse_now(&self) -> Result<(), Error> {
        if self.source.closing.get() || self.target.closing.get() {
            return Err(self
                .error(ErrorKind::Stopped, "one of the pools is being exported")
                .remedy("Import it again, then try again"));
        }
        self.source.refuse_while_moving(&self.name)?;
        self.target.check_new_name(&self.name)?;
        if self.target.names.borrow().contains_key(&self.name) {
            let message = format!("pool {} has a volume of this name", self.target.name());
            return Err(self.error(ErrorKind::Conflict, message).remedy(
                "Delete or move that volume. 'forebay volume list' shows it; after an interrupted move, 'forebay volume moves' does",
            ));
        }
        Ok(())
    }

    fn enter(&self) {
        for control in [&self.source, &self.target] {
            control.moving.borrow_mut().insert(self.id, self.progress.clone());
        }
        let place = Place { shard: self.to, id: placeholder(self.id) };
        self.target.names.borrow_mut().insert(self.name.clone(), place);
    }

    fn leave(&self) {
        for control in [&self.source, &self.target] {
            control.moving.borrow_mut().remove(&self.id);
            control.turnstile.changed();
        }
    }

    fn forget_name(&self) {
        let mut names = self.target.names.borrow_mut();
        if names.get(&self.name).is_some_and(|place| place.id == placeholder(self.id)) {
            names.remove(&self.name);
        }
    }

    /// Makes the hidden volume, with space for all that it may get if it is a reserved one. Its number.
    async fn create(&self, was: DatasetRecord) -> Result<u64, Error> {
        let (peer, rt) = (self.source.id(), &self.source.rt);
        let family = Id::from_random(rt.random(), rt.random());
        let (shift, format, size) = (was.block_shift, was.format, was.size);
        let fresh = DatasetRecord::new(DatasetKind::Volume, was.id, shift, size, was.name);
        let (state, sync, created) = (DatasetState::Arriving, SyncPolicy::Standard, was.created);
        // What is copied need not be durable before the switch, whatever the volume says.
        let inherits = was.inherits.without(Inherits::SYNC);
        let (compression, schedule, level) = (was.compression, was.schedule, was.level);
        let record = DatasetRecord {
            state,
            sync,
            created,
            compression,
            level,
            schedule,
            inherits,
            format,
            family,
            peer,
            ..fresh
        };
        let create = move |shard: Rc<Shard>| async move {
            let _pledge = shard.secure_new(format, shift, size).await?;
            let dataset = shard.create_dataset(record, None).await.map_err(Refusal::Failed)?;
            Ok(dataset.number())
        };
        let refused = |refusal| self.not_held(format, refusal);
        self.target.on_shard(self.to, create).await?.map_err(refused)
    }

    /// What would be held at the target is held and let go of again.
    async fn check_held(&self, was: &DatasetRecord) -> Result<(), Error> {
        let (format, shift, size) = (was.format, was.block_shift, was.size);
        let secure =
            move |shard: Rc<Shard>| async move { shard.secure_new(format, shift, size).await.map(drop) };
        self.target.on_shard(self.to, secure).await?.map_err(|refusal| self.not_held(format, refusal))
    }

    fn not_held(&self, format: VolumeFormat, refusal: Refusal) -> Error {
        let why = format!("the volume cannot be {} in pool {}", format.name(), self.target.name());
        self.target.not_reserved(&self.name, &why, &self.source.make_thin(&self.name), refusal)
    }

    /// Runs a part of the move on the core of both places.
    async fn on_both<F, W>(&self, number: u64, work: F) -> Result<(), Halt>
    where
        F: FnOnce(LocalVolume, LocalVolume, Arc<WorkProgress>) -> W + Send + 'static,
        W: Future<Output = Result<(), Halt>> + 'static,
    {
        let (id, from, progress) = (self.id, self.number, self.progress.clone());
        let (pool, index) = (self.target.id(), self.to);
        let done = self.source.on_shard(self.from, move |shard| async move {
            let to = registry(&shard.rt).shard(pool, index).ok_or(Halt::Target(IoError::Gone))?;
            let hidden = to.half(number).ok_or(Halt::Target(IoError::Gone))?;
            // Also one that was deleted meanwhile: the copier notices.
            let known = shard.datasets.borrow().get(&from).cloned();
            let volume = known.filter(|volume| volume.id() == id).ok_or(Halt::Source(IoError::Gone))?;
            work(LocalVolume::of(shard, volume), LocalVolume::of(to, hidden), progress).await
        });
        done.await.unwrap_or(Err(Halt::Source(IoError::Gone)))
    }

    /// Copies, and switches.
    async fn run(&self, number: u64) -> Result<(), Halt> {
        let begin = |source, target, progress| async move {
            Copier::begin(source, target, progress).await;
            Ok(())
        };
        let mut done = self.on_both(number, begin).await;
        for tried in 0..PAUSE_TRIES {
            let approach = move |source, target, progress| async move {
                Copier::again(source, target, progress).approach(tried).await
            };
            if done.is_ok() {
                done = self.on_both(number, approach).await;
            }
            if done.is_ok() {
                done = self.switch(number).await;
            }
            if done != Err(Halt::Busy) || tried + 1 == PAUSE_TRIES {
                break;
            }
            self.source.rt.sleep(PAUSE_DELAY).await;
            done = Ok(());
        }
        let end = |source: LocalVolume, target, progress| async move {
            Copier::again(source, target, progress).end().await;
            Ok(())
        };
        // Where one of the two is gone, nothing is there that could be ended.
        let _ = self.on_both(number, end).await;
        done
    }

    async fn switch(&self, number: u64) -> Result<(), Halt> {
        // Nobody takes a snapshot or exports one of the pools meanwhile.
        let _turns = self.source.lineage_with(&self.target).await;
        // Nobody waits there for what clients have changed until these were free.
        let look =
            |source, target, progress| async move { Copier::again(source, target, progress).is_near() };
        self.on_both(number, look).await?;
        // For management, too, the volume is always in one of the two.
        let registry = registry(&self.source.rt);
        let _turn = registry.switching.lock(0, 0).await;
        let switch =
            |source, target, progress| async move { Copier::again(source, target, progress).switch().await };
        let done = self.on_both(number, switch).await;
        if done.is_ok() || matches!(done, Err(Halt::NotLive(_))) {
            let mut names = self.source.names.borrow_mut();
            if names.get(&self.name).is_some_and(|known| known.id == self.id) {
                names.remove(&self.name);
            }
            drop(names);
            let place = Place { shard: self.to, id: self.id };
            self.target.names.borrow_mut().insert(self.name.clone(), place);
        }
        done
    }

    /// Deletes what is left of it on one of its sides.
    async fn clean_up(&self, control: &Control, (shard, number): (usize, u64)) -> Result<(), Error> {
        match control.half(shard, number).await? {
            Some(half) if half.id == self.id => control.delete_half(shard, &half).await,
            _ => Ok(()),
        }
    }

    fn tell(&self, halt: Halt) -> Error {
        let stays = "The volume stays in its pool";
        let failed = |control: &Control, error: IoError| {
            let pool = control.name();
            let error = control.io_error(&self.name, error);
            let message = format!("the move stopped because pool {pool} failed: {}", error.message);
            Error { object: self.object(), message, ..error }
        };
        match halt {
            Halt::Canceled => self.error(ErrorKind::Conflict, "the move was canceled").remedy(stays),
            Halt::Busy => self
                .error(
                    ErrorKind::Conflict,
                    "the last changes of clients could not be copied in the short time that clients can wait",
                )
                .remedy(format!("{stays}; try again when the pool is less busy")),
            Halt::Changed => self
                .error(
                    ErrorKind::Conflict,
                    "the volume was resized, converted or snapshotted during the move",
                )
                .remedy(format!("{stays}; try again")),
            Halt::Source(error) => failed(&self.source, error),
            Halt::Target(error) => failed(&self.target, error),
            Halt::Undecided(_) => {
                let message = format!(
                    "pool {} stopped writing during the switch-over; after its next import, the volume is in one of the two pools",
                    self.source.name()
                );
                self.error(ErrorKind::Suspended, message).remedy(
                    "Restore its disks, then export and import it. The other pool should be imported too",
                )
            }
            Halt::NotLive(_) => {
                let message = format!(
                    "the volume has moved, but pool {} has stopped writing: the volume is available after that pool's next import",
                    self.target.name()
                );
                self.error(ErrorKind::Suspended, message)
                    .remedy("Restore its disks, then export and import it")
            }
        }
    }
}

/// Moves a live volume into another pool.
async fn volume_move(
    rt: &Rt,
    source: Rc<Control>,
    name: String,
    target: Rc<Control>,
    progress: Arc<WorkProgress>,
) -> Result<VolumeInfo, Error> {
    settle(rt, None).await;
    let (one, record) = {
        let _turn = source.lineage.lock(0, 0).await;
        let claimed = Move::claim(source.clone(), &name, target.clone(), progress).await?;
        // Others may have come meanwhile.
        let (one, _) = &claimed;
        one.refuse_now()?;
        one.enter();
        claimed
    };
    let block_size = 1 << record.block_shift;
    let number = match one.create(record).await {
        Ok(number) => number,
        Err(error) => {
            one.forget_name();
            one.leave();
            return Err(error);
        }
    };
    let done = one.run(number).await;
    // Where this fails, the next import does it.
    let cleaned = match done {
        Ok(()) => one.clean_up(&one.source, (one.from, one.number)).await,
        Err(halt) if halt.is_undone() => {
            let cleaned = one.clean_up(&one.target, (one.to, number)).await;
            one.forget_name();
            cleaned
        }
        Err(_) => Ok(()),
    };
    one.leave();
    done.map_err(|halt| one.tell(halt))?;
    let (to, from) = (one.target.object(&one.name), one.source.name());
    one.target.event(Severity::Info, "volume.moved", &to, format!("the volume moved here from pool {from}"));
    if let Some(message) = one.target.small_blocks(block_size) {
        one.target.event(Severity::Warning, "volume.small_blocks", &to, message);
    }
    if let Err(error) = cleaned {
        let message = format!(
            "the volume has moved to pool {}, and its space here is freed after the next import of this pool: {}",
            one.target.name(),
            error.message
        );
        one.source.event(Severity::Warning, "volume.move_left", &one.object(), message);
    }
    one.target.volume_brief(&one.name).await
}

impl Engine {
    /// Moves a volume (`POOL/NAME` or UUID) into another pool while clients use it. It keeps its id, its name within the pool and its
    /// properties; its space comes back in the background. Dropping the future does not end the move, `progress` does.
    #[boxed]
    pub async fn volume_move(
        &self,
        volume: &str,
        pool: &str,
        progress: Arc<WorkProgress>,
    ) -> Result<VolumeInfo, Error> {
        let pool = pool.to_string();
        self.on_writable_volume(volume, |source, name| async move {
            let rt = source.rt.clone();
            let target = find_pool(&rt, &pool)?;
            target.writable()?;
            volume_move(&rt, source, name, target, progress).await
        })
        .await
    }

    /// What [`Engine::volume_move`] would refuse at once, for other reasons than reservations.
    #[boxed]
    pub async fn volume_move_check(&self, volume: &str, pool: &str) -> Result<(), Error> {
        let pool = pool.to_string();
        self.on_writable_volume(volume, |source, name| async move {
            let target = find_pool(&source.rt, &pool)?;
            target.writable()?;
            source.writing()?;
            target.writing()?;
            let (one, record) = Move::claim(source, &name, target, Arc::default()).await?;
            one.check_held(&record).await
        })
        .await
    }
}
