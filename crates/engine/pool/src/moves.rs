//! Moves of volumes between pools, as the coordinators of both see them: begin, end, and what a crash or an export has left.
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

use crate::control::{Control, Place};
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::moving::{Copier, Halt, MoveProgress, PAUSE_DELAY, PAUSE_TRIES};
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::registry::registry;
use crate::reserve::Refusal;
use crate::shard::Shard;
use crate::spec::{MoveLeft, MoveSide, Severity, SyncPolicy, VolumeFormat, VolumeInfo};
use crate::tables::DATASETS_MAX;
use crate::volume::LocalVolume;
use crate::{Engine, find_pool};
use forebay_base::Id;
use forebay_device::UNIT;
use forebay_runtime::Rt;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

/// What a name leads to that is kept for a volume on its way: nothing.
fn placeholder(id: Id) -> Id {
    Id(!id.0)
}

/// The volume that moves, and where to.
#[derive(Clone)]
struct Move {
    source: Rc<Control>,
    target: Rc<Control>,
    name: String,
    id: Id,
    from: usize,
    to: usize,
    progress: Arc<MoveProgress>,
}

impl Control {
    /// Refuses what a move cannot take along.
    pub fn refuse_while_moving(&self, name: &str) -> Result<(), Error> {
        let Some((name, place)) = self.find(name) else { return Ok(()) };
        if !self.moving.borrow().contains_key(&place.id) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, self.object(&name), "the volume is being moved to another pool")
            .remedy("Wait until it is there, or cancel the move ('forebay task list')"))
    }

    /// Calls off all moves to and from this pool, and waits until they are over.
    pub async fn end_moves(&self) {
        self.moving.borrow().values().for_each(|progress| progress.cancel());
        self.turnstile.until(|| self.moving.borrow().is_empty()).await;
    }

    /// The shard on a core that has the fewest volumes.
    fn shard_on_core(&self, core: usize) -> Option<usize> {
        let mut load = vec![0; self.shard_count()];
        self.names.borrow().values().for_each(|place| load[place.shard] += 1);
        self.trash.shards().into_iter().for_each(|shard| load[shard] += 1);
        let cores = self.shared.cores.count();
        let all = (0..load.len()).filter(|shard| shard % cores == core && load[*shard] < DATASETS_MAX - 1);
        all.min_by_key(|shard| load[*shard])
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

    async fn delete_half(&self, shard: usize, half: &DatasetRecord) -> Result<(), Error> {
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
            let message = "another volume, or a project, has this name";
            return Err(Error::new(ErrorKind::Conflict, self.object(&name), message)
                .remedy("Delete that one, or give this one another name with '--as'"));
        }
        self.names.borrow_mut().retain(|_, place| place.id != own);
        self.names.borrow_mut().insert(name.clone(), Place { shard, id });
        let own_name = name.clone();
        let shown = self.change_half(shard, half, move |record| {
            (record.state, record.peer, record.received) = (DatasetState::Live, Id(0), 0);
            (record.name, record.id) = (own_name, id);
        });
        let shown = shown.await;
        if shown.is_err() {
            self.names.borrow_mut().remove(&name);
        }
        shown
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
        progress: Arc<MoveProgress>,
    ) -> Result<(Move, DatasetRecord), Error> {
        let (name, place) = source.existing(name)?;
        source.refuse_while_moving(&name)?;
        let id = place.id;
        let core = place.shard % source.shared.cores.count();
        let (from, to) = (place.shard, target.shard_on_core(core));
        let one = Move { source, target, name, id, from, to: to.unwrap_or_default(), progress };
        let conflict = |message: String| one.error(ErrorKind::Conflict, message);
        if one.source.id() == one.target.id() {
            return Err(one
                .error(ErrorKind::Invalid("pool"), "the volume is in this pool already")
                .remedy("Name another pool; list them with: forebay pool list"));
        }
        if one.source.closing.get() || one.target.closing.get() {
            return Err(one.error(ErrorKind::Stopped, "one of the pools is being exported"));
        }
        if to.is_none() {
            let message = format!(
                "pool {} has no shard on core {core}, where the volume's clients are, with room for one more volume",
                one.target.name()
            );
            return Err(conflict(message).remedy(
                "Move it while no client uses it: with 'forebay snapshot send' and 'forebay snapshot receive'",
            ));
        }
        one.target.check_new_name(&one.name)?;
        if one.target.names.borrow().contains_key(&one.name) {
            return Err(conflict(format!("pool {} has a volume of this name", one.target.name()))
                .remedy("Rename or delete that one"));
        }
        let look = |shard: Rc<Shard>, dataset: Rc<Dataset>| async move {
            let snapshots = shard.snapshots_of(dataset.number()).len();
            let mapped = dataset.tree.borrow().mapped();
            Ok((DatasetRecord { mapped, ..dataset.record.borrow().clone() }, snapshots))
        };
        let (record, snapshots) = one.source.on_volume(&one.name, look).await?;
        if snapshots > 0 {
            return Err(conflict(format!("it has {snapshots} snapshots, which do not move with it")).remedy(
                "Delete them first; or copy the volume with its snapshots by 'forebay snapshot send' and 'forebay snapshot receive'",
            ));
        }
        let status = one.target.status().await?;
        let (stored, free) = (record.mapped.units as u64 * UNIT, status.free.saturating_sub(status.reserved));
        if stored > free {
            let message = format!(
                "it does not fit into pool {}: it has {} MiB, and {} MiB are free there",
                one.target.name(),
                stored >> 20,
                free >> 20
            );
            return Err(one.error(ErrorKind::NoSpace, message).remedy("Add disks there, or delete volumes"));
        }
        let held = if record.format == VolumeFormat::Thin { stored } else { record.size };
        one.target.check_quota(&one.name, held).await?;
        Ok((one, record))
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
    async fn create(&self, was: DatasetRecord) -> Result<u32, Error> {
        let (peer, rt) = (self.source.id(), &self.source.rt);
        let family = Id::from_random(rt.random(), rt.random());
        let (shift, format, size) = (was.block_shift, was.format, was.size);
        let fresh = DatasetRecord::new(DatasetKind::Volume, was.id, shift, size, was.name);
        let (state, sync, created) = (DatasetState::Arriving, SyncPolicy::Standard, was.created);
        let (compression, schedule, inherits) = (was.compression, was.schedule, was.inherits);
        let record = DatasetRecord {
            state,
            sync,
            created,
            compression,
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
        let why = format!("it cannot be {} in pool {}", format.name(), self.target.name());
        let refused = |refusal| self.target.not_reserved(&self.name, &why, refusal);
        self.target.on_shard(self.to, create).await?.map_err(refused)
    }

    /// Runs a part of the move on the core of both places.
    async fn on_both<F, W>(&self, number: u32, work: F) -> Result<(), Halt>
    where
        F: FnOnce(LocalVolume, LocalVolume, Arc<MoveProgress>) -> W + Send + 'static,
        W: Future<Output = Result<(), Halt>> + 'static,
    {
        let (id, progress) = (self.id, self.progress.clone());
        let (pool, index) = (self.target.id(), self.to);
        let done = self.source.on_shard(self.from, move |shard| async move {
            let to = registry(&shard.rt).shard(pool, index).ok_or(Halt::Target(IoError::Gone))?;
            let hidden = to.half(number).ok_or(Halt::Target(IoError::Gone))?;
            let volume = shard.volume(id).ok_or(Halt::Source(IoError::Gone))?;
            work(LocalVolume::of(shard, volume), LocalVolume::of(to, hidden), progress).await
        });
        done.await.unwrap_or(Err(Halt::Source(IoError::Gone)))
    }

    /// Copies, and switches.
    async fn run(&self, number: u32) -> Result<(), Halt> {
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
            Copier::again(source, target, progress).end();
            Ok(())
        };
        // Where it has moved, nothing is there that could be ended.
        let _ = self.on_both(number, end).await;
        done
    }

    async fn switch(&self, number: u32) -> Result<(), Halt> {
        // Nobody takes a snapshot or exports one of the pools meanwhile. Two moves between the same pools take the same order.
        let mut both = [&self.source, &self.target];
        both.sort_by_key(|control| control.id());
        let _first = both[0].lineage.lock(0, 0).await;
        let _second = both[1].lineage.lock(0, 0).await;
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
            self.source.names.borrow_mut().remove(&self.name);
            let place = Place { shard: self.to, id: self.id };
            self.target.names.borrow_mut().insert(self.name.clone(), place);
        }
        done
    }

    /// Ends the move on one of its sides.
    async fn clean_up(&self, control: &Control, state: DatasetState) -> Result<(), Error> {
        for shard in 0..control.shard_count() {
            for half in control.on_shard(shard, |shard| async move { shard.halves() }).await? {
                if half.id == self.id && half.state == state {
                    control.delete_half(shard, &half).await?;
                }
            }
        }
        Ok(())
    }

    fn tell(&self, halt: Halt) -> Error {
        let stays = "The volume is where it was";
        let failed = |control: &Control, error: IoError| {
            let pool = control.name();
            let error = control.io_error(&self.name, error);
            let message = format!("the move ended, since pool {pool} failed: {}", error.message);
            Error { object: self.object(), message, ..error }
        };
        match halt {
            Halt::Canceled => self.error(ErrorKind::Conflict, "the move was canceled").remedy(stays),
            Halt::Busy => self
                .error(
                    ErrorKind::Conflict,
                    "what clients had changed could not be copied while they wait, which must not be long",
                )
                .remedy(format!("{stays}; try again when the pool is less busy")),
            Halt::Changed => self
                .error(ErrorKind::Conflict, "the volume was resized, converted or given a snapshot meanwhile")
                .remedy(format!("{stays}; try again")),
            Halt::Source(error) => failed(&self.source, error),
            Halt::Target(error) => failed(&self.target, error),
            Halt::Undecided(_) => {
                let message = format!(
                    "pool {} stopped writing at the moment of the switch; when it is imported again, the volume is in one of the two pools",
                    self.source.name()
                );
                self.error(ErrorKind::Suspended, message).remedy(
                    "Restore its disks, then export and import it; the other pool should be imported, too",
                )
            }
            Halt::NotLive(_) => {
                let message = format!(
                    "the volume has moved, and pool {} has stopped writing: the volume is there when that is imported again",
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
    progress: Arc<MoveProgress>,
) -> Result<VolumeInfo, Error> {
    settle(rt, None).await;
    let (one, record) = {
        let _turn = source.lineage.lock(0, 0).await;
        let claimed = Move::claim(source.clone(), &name, target.clone(), progress).await?;
        // Others may have come meanwhile.
        let (one, _) = &claimed;
        one.source.refuse_while_moving(&one.name)?;
        one.target.check_new_name(&one.name)?;
        if one.target.names.borrow().contains_key(&one.name) {
            return Err(one.error(ErrorKind::Conflict, "the other pool has a volume of this name by now"));
        }
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
        Ok(()) => one.clean_up(&one.source, DatasetState::Moved).await,
        Err(halt) if halt.is_undone() => {
            let cleaned = one.clean_up(&one.target, DatasetState::Arriving).await;
            one.forget_name();
            cleaned
        }
        Err(_) => Ok(()),
    };
    one.leave();
    done.map_err(|halt| one.tell(halt))?;
    let (to, from) = (one.target.object(&one.name), one.source.name());
    one.target.event(Severity::Info, "volume.moved", &to, format!("moved here from pool {from}"));
    if let Some(message) = one.target.small_blocks(block_size) {
        one.target.event(Severity::Warning, "volume.small_blocks", &to, message);
    }
    if let Err(error) = cleaned {
        let message = format!(
            "it has moved to pool {}, and its space here comes back when this pool is imported again: {}",
            one.target.name(),
            error.message
        );
        one.source.event(Severity::Warning, "volume.move_left", &one.object(), message);
    }
    one.target.volume_brief(&one.name).await
}

/// Ends what a crash or an export has left of moves, so far as both pools are there. For the pool `imported`, it is told what stays.
pub(crate) async fn settle(rt: &Rt, imported: Option<Id>) {
    let registry = registry(rt);
    let _turn = registry.settling.lock(0, 0).await;
    for state in [DatasetState::Arriving, DatasetState::Moved] {
        for control in registry.controls() {
            let Ok(halves) = control.halves().await else { continue };
            for (shard, half) in halves.into_iter().filter(|(_, half)| half.state == state) {
                let other = registry.control(half.peer);
                match other.filter(|other| is_settled(other) && is_settled(&control)) {
                    Some(other) => settle_half(&control, (shard, half), &other, imported).await,
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
        let is_live = control.names.borrow().values().any(|place| place.id == half.id);
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
            shown.map(|()| format!("has arrived from pool {name}"))
        }
        (DatasetState::Arriving, Some((index, theirs))) => {
            let back = other.show_half(index, &theirs, (theirs.name.clone(), theirs.id)).await;
            let deleted = match back {
                Ok(()) => control.delete_half(shard, &half).await,
                Err(error) => Err(error),
            };
            deleted
                .map(|()| format!("a part of what came from pool {name} is lost; the volume is there again"))
        }
        // It goes on to be live there first.
        (_, Some(_)) => return,
        (DatasetState::Arriving, None) if !half.is_whole() || is_volume_here(&control.rt, &half) => {
            let deleted = control.delete_half(shard, &half).await;
            deleted.map(|()| format!("a move from pool {name} had not ended; what it brought is deleted"))
        }
        (DatasetState::Moved, None) if is_volume_here(&control.rt, &half) => {
            let deleted = control.delete_half(shard, &half).await;
            deleted.map(|()| format!("has moved from here to pool {name}; its space here comes back"))
        }
        _ => {
            let told = [control.id(), other.id()].map(Some).contains(&imported);
            return control.keep_half((shard, half), Some(other), told);
        }
    };
    match result {
        Ok(message) => control.event(Severity::Info, "volume.move_settled", &object, message),
        Err(error) => {
            let message = format!("a move that had not ended cannot be settled: {error}");
            control.event(Severity::Warning, "volume.move_left", &object, message);
        }
    }
}

impl Control {
    /// Keeps what belongs to a move whose other pool is not there, or has nothing of the volume.
    fn keep_half(&self, (shard, half): (usize, DatasetRecord), other: Option<&Control>, told: bool) {
        let message = if half.state == DatasetState::Arriving {
            let place = Place { shard, id: placeholder(half.id) };
            self.names.borrow_mut().entry(half.name.clone()).or_insert(place);
            "a move to this pool had not ended"
        } else {
            "it has moved to another pool, where it may not be live yet"
        };
        if told {
            let message = match other {
                Some(other) => format!(
                    "{message}; the other pool, {}, has nothing of it, nor has any that is imported. Make a volume of what is here, or give \
                     it up: see 'forebay volume moves'",
                    other.name()
                ),
                None => format!(
                    "{message}; the other pool, {}, decides what becomes of it: import that one, too. If it is lost for good, see 'forebay \
                     volume moves'",
                    half.peer
                ),
            };
            self.event(Severity::Warning, "volume.move_left", &self.object(&half.name), message);
        }
    }

    /// The other half, in this pool.
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
        let is_it = |record: &DatasetRecord| record.name == name || record.id.to_string() == name;
        let found = self.halves().await?.into_iter().find(|(_, record)| is_it(record)).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, self.object(name), "no move has left anything of this name")
                .remedy("List what moves have left with: forebay volume moves")
        })?;
        let Some(other) = registry(&self.rt).control(found.1.peer) else { return Ok(found) };
        let is_nowhere = is_settled(&other) && !is_volume_here(&self.rt, &found.1);
        if is_nowhere && self.counterpart(&found.1, &other).await?.is_none() {
            return Ok(found);
        }
        let message = format!("pool {}, which decides what becomes of it, is imported", other.name());
        Err(Error::new(ErrorKind::Conflict, self.object(name), message)
            .remedy("Restore that pool's disks if it has stopped writing, then export and import it"))
    }

    async fn move_keep(&self, name: &str, new_name: Option<String>) -> Result<VolumeInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let (shard, half) = self.lone_half(name).await?;
        let object = self.object(name);
        if half.state == DatasetState::Arriving && !half.is_whole() {
            let message = "only a part of the volume has arrived";
            return Err(Error::new(ErrorKind::Unsafe, object, message)
                .remedy("Import the pool that it comes from, or give it up: forebay volume abandon"));
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
}

impl Engine {
    /// Moves a volume (`POOL/NAME` or UUID) into another pool while clients use it. It keeps its id, its name within the pool and its
    /// properties; its space comes back in the background. Dropping the future does not end the move, `progress` does.
    pub async fn volume_move(
        &self,
        volume: &str,
        pool: &str,
        progress: Arc<MoveProgress>,
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
    pub async fn volume_move_check(&self, volume: &str, pool: &str) -> Result<(), Error> {
        let pool = pool.to_string();
        self.on_writable_volume(volume, |source, name| async move {
            let target = find_pool(&source.rt, &pool)?;
            target.writable()?;
            Move::claim(source, &name, target, Arc::default()).await.map(drop)
        })
        .await
    }

    /// What moves have left that wait for a pool.
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
    pub async fn move_keep(&self, volume: &str, new_name: Option<&str>) -> Result<VolumeInfo, Error> {
        let (pool, name) = split(volume)?;
        let new_name = new_name.map(str::to_string);
        self.on_writable_pool(pool, |control| async move { control.move_keep(&name, new_name).await }).await
    }

    /// Deletes what a move has left in `POOL/NAME`, when the other pool is lost.
    pub async fn move_abandon(&self, volume: &str) -> Result<(), Error> {
        let (pool, name) = split(volume)?;
        self.on_writable_pool(pool, |control| async move { control.move_abandon(&name).await }).await
    }
}

fn split(volume: &str) -> Result<(&str, String), Error> {
    let named = || Error::new(ErrorKind::Invalid("name"), volume, "a volume is named POOL/NAME");
    volume.split_once('/').map(|(pool, name)| (pool, name.to_string())).ok_or_else(named)
}
