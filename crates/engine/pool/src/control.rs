//! The coordinator of one pool, on core 0: membership, chunks, checkpoints, names.
//!
//! It owns what is the pool's and not a shard's, takes one request at a time where order matters, and never
//! touches the data path.

use crate::error::{Error, ErrorKind, IoError};
use crate::faulty::FaultyDisks;
use crate::format::ShardRoot;
use crate::heal::Healer;
use crate::ledger::Ledger;
use crate::locks::RangeLocks;
use crate::names::Names;
use crate::progress::WorkProgress;
use crate::projects::Projects;
use crate::quota::Quotas;
use crate::registry::{PoolShared, call, registry};
use crate::reserve::{Need, Units};
use crate::scrub::PoolScrub;
use crate::signal::Turnstile;
use crate::slots::{DATA, SlotMap};
use crate::slow::SlowDisks;
use crate::snapshots::SealRequest;
use crate::spec::{
    CacheStatus, DiskState, DiskStatus, Event, GroupStatus, Layout, PoolSpeed, PoolState, PoolStatus, Role,
    Severity,
};
use crate::trash::Trash;
use forebay_base::{Id, Nanos};
use forebay_device::{self as device, DiskEntry, Label, UNIT};
use forebay_runtime::{Disk, Rt, yield_now};
use forebay_space::{ChunkEntry, ChunkKind};
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

/// Seconds over which [`CacheStatus::hits_permille`] is.
const HITS_SECONDS: usize = 60;

/// Chunks that are granted together before others have their turn: each takes some microseconds.
const GRANTS_AT_ONCE: usize = 64;

/// One disk as the coordinator sees it.
pub(crate) struct ControlDisk {
    /// Absent when the disk was not found.
    pub disk: Option<Disk>,
    pub path: String,
    /// Whether the cores know it under its number, in this run.
    pub served: bool,
}

pub(crate) struct Control {
    pub rt: Rt,
    pub shared: Arc<PoolShared>,
    pub label: RefCell<Label>,
    pub disks: RefCell<Vec<ControlDisk>>,
    pub slots: RefCell<SlotMap>,
    pub generation: Cell<u64>,
    pub incarnation: u64,
    pub epoch: Cell<u64>,
    /// Live volumes by name.
    pub names: RefCell<Names>,
    pub projects: RefCell<Projects>,
    pub quotas: Quotas,
    /// Held (as range 0) while it changes who grew from which, and what projects there are.
    pub lineage: RangeLocks,
    /// Names under which streams are coming in, and who has them.
    pub receiving: RefCell<BTreeMap<String, Weak<()>>>,
    /// Volumes that move to or from this pool.
    pub moving: RefCell<BTreeMap<Id, Arc<WorkProgress>>>,
    /// Snapshots that the next checkpoint is to seal.
    pub seals: RefCell<Vec<Rc<SealRequest>>>,
    /// Whether the pool is being closed, and whether all that clients did is over.
    pub closing: Cell<bool>,
    pub exporting: Cell<bool>,
    /// The last checkpoint has been made: what one after it wrote would come when the disks are another's already.
    closed: Cell<bool>,
    /// Checkpoints begun and ended, and whether one is to follow the running one.
    begun: Cell<u64>,
    ended: Cell<u64>,
    running: Cell<bool>,
    again: Cell<bool>,
    pub turnstile: Turnstile,
    pub labelling: Cell<bool>,
    pub joining: Cell<bool>,
    pub healer: Healer,
    pub scrub: PoolScrub,
    pub trash: Trash,
    /// The pool is being destroyed: no snapshot becomes retained any more.
    pub destroying: Cell<bool>,
    /// When a superblock last had the pool's clock.
    pub clock_stored: Cell<Nanos>,
    /// What the disks were measured to do.
    pub speed: Cell<Option<PoolSpeed>>,
    pub calibrating: Cell<bool>,
    pub ledger: Ledger,
    pub slow: SlowDisks,
    pub faulty: FaultyDisks,
    pub trimming: Cell<bool>,
    /// Whether someone is looking for a chunk to evacuate.
    pub reclaiming: Cell<bool>,
}

impl Control {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        rt: Rt,
        shared: Arc<PoolShared>,
        label: Label,
        disks: Vec<ControlDisk>,
        slots: SlotMap,
        generation: u64,
        incarnation: u64,
        epoch: u64,
    ) -> Control {
        Control {
            destroying: Cell::new(false),
            clock_stored: Cell::new(rt.now()),
            rt,
            shared,
            label: RefCell::new(label),
            disks: RefCell::new(disks),
            slots: RefCell::new(slots),
            generation: Cell::new(generation),
            incarnation,
            epoch: Cell::new(epoch),
            lineage: RangeLocks::default(),
            receiving: RefCell::default(),
            moving: RefCell::default(),
            seals: RefCell::default(),
            names: RefCell::default(),
            projects: RefCell::default(),
            quotas: Quotas::default(),
            closing: Cell::new(false),
            exporting: Cell::new(false),
            closed: Cell::new(false),
            begun: Cell::new(0),
            ended: Cell::new(0),
            running: Cell::new(false),
            again: Cell::new(false),
            turnstile: Turnstile::default(),
            labelling: Cell::new(false),
            joining: Cell::new(false),
            healer: Healer::default(),
            scrub: PoolScrub::default(),
            trash: Trash::default(),
            speed: Cell::new(None),
            calibrating: Cell::new(false),
            ledger: Ledger::default(),
            slow: SlowDisks::default(),
            faulty: FaultyDisks::default(),
            trimming: Cell::new(false),
            reclaiming: Cell::new(false),
        }
    }

    pub fn id(&self) -> Id {
        self.shared.id
    }
    pub fn name(&self) -> &str {
        &self.shared.name
    }
    pub fn shard_count(&self) -> usize {
        usize::from(self.label.borrow().shards)
    }

    pub fn event(&self, severity: Severity, code: &'static str, object: &str, message: String) {
        (self.shared.events)(Event { at: self.rt.wall(), severity, code, object: object.into(), message });
    }

    /// Refuses what would change a pool that is only to be read.
    pub fn writable(&self) -> Result<(), Error> {
        if !self.shared.import.read_only {
            return Ok(());
        }
        let error = self.error(ErrorKind::Conflict, "the pool is imported read-only and cannot be changed");
        Err(error.remedy("To change it, export it and import it without --read-only"))
    }

    /// Refuses what needs a pool that writes.
    pub fn writing(&self) -> Result<(), Error> {
        match self.shared.is_suspended() {
            true => Err(self.suspended()),
            false => Ok(()),
        }
    }

    /// Something cannot be done since the pool has stopped writing.
    pub fn suspended(&self) -> Error {
        let remedy = format!(
            "'forebay alert list' shows why. Repair its disks, then run 'forebay pool export {0}' and 'forebay pool import {0} DISK…'",
            self.name()
        );
        self.error(ErrorKind::Suspended, "the pool has stopped writing after a failure").remedy(remedy)
    }

    pub fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, self.name(), message)
    }

    /// Runs `work` on the core of shard `index`, with that shard.
    pub async fn on_shard<T, F, W>(&self, index: usize, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<crate::shard::Shard>) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        let pool = self.id();
        let result = call(self.shared.cores.core(index), move |rt| async move {
            match registry(&rt).shard(pool, index) {
                Some(shard) => Some(work(shard).await),
                None => None,
            }
        });
        result.await.ok().flatten().ok_or_else(|| self.error(ErrorKind::Stopped, "the pool is being closed"))
    }

    /// Grants a chunk to a shard. Data leaves a slice of the pool untouched, so that deletion can always go on.
    pub fn grant(&self, kind: ChunkKind, need: Need) -> Option<ChunkEntry> {
        self.grant_above(kind, |_, total| self.floor(kind, need, total))
    }

    /// Of so many chunks of a group, those that are left when one is granted.
    fn floor(&self, kind: ChunkKind, need: Need, total: u64) -> u64 {
        match (kind, need) {
            (_, Need::Urgent) => 0,
            (ChunkKind::Node, _) => self.reserve(total) / 2,
            (_, Need::Ordinary) => self.reserve(total),
            (_, Need::Deferrable) => self.reserve(total).max(total / 8),
        }
    }

    /// Grants chunks of so many units, `most` at most: all of them or none. What does not suffice is taken from nobody.
    pub async fn grant_all(&self, wanted: Vec<Units>) -> Option<Vec<ChunkEntry>> {
        if !self.can_grant(&wanted) {
            return None;
        }
        let mut taken: Vec<ChunkEntry> = Vec::new();
        for (kind, units) in wanted {
            let mut left = units;
            while left > 0 {
                let Some(chunk) = self.grant(kind, Need::Ordinary) else {
                    let mut slots = self.slots.borrow_mut();
                    taken.iter().for_each(|chunk| slots.release(chunk));
                    return None;
                };
                left = left.saturating_sub(chunk.units.into());
                taken.push(chunk);
                if taken.len().is_multiple_of(GRANTS_AT_ONCE) {
                    yield_now().await;
                }
            }
        }
        Some(taken)
    }

    /// Whether chunks of so many units would be granted; of each kind if there were no other.
    pub fn can_grant(&self, wanted: &[Units]) -> bool {
        let slots = self.slots.borrow();
        wanted.iter().all(|(kind, wanted)| {
            let units = |group| {
                let (total, free) = slots.chunks(group);
                free.saturating_sub(self.floor(*kind, Need::Ordinary, total))
                    * u64::from(slots.units(group, *kind))
            };
            slots.data_groups().map(units).sum::<u64>() >= *wanted
        })
    }

    /// Grants a chunk that makes a shard's writes go to more disks, while a quarter of the pool is left.
    pub fn grant_lane(&self, kind: ChunkKind) -> Option<ChunkEntry> {
        self.grant_above(kind, |_, total| self.reserve(total).max(total / 4))
    }

    fn grant_above(&self, kind: ChunkKind, floor: impl Fn(u16, u64) -> u64) -> Option<ChunkEntry> {
        let mut slots = self.slots.borrow_mut();
        let group = slots.emptiest_group(floor)?;
        let chunk = slots.take(group, kind, 0);
        self.shared.note_crowds(&slots);
        chunk
    }

    /// Of so many chunks of a group, those that are kept for nodes and deletion.
    pub fn reserve(&self, total: u64) -> u64 {
        (self.shard_count() as u64 * 3).max(total / 64)
    }

    /// Chunks that could be granted.
    pub fn chunks_free(&self) -> u64 {
        let slots = self.slots.borrow();
        slots.data_groups().map(|group| slots.chunks(group).1).sum()
    }

    /// Units of chunks for data that would be granted.
    pub fn units_free(&self) -> u64 {
        let slots = self.slots.borrow();
        let units = |group| {
            let (total, free) = slots.chunks(group);
            free.saturating_sub(self.reserve(total)) * u64::from(slots.units(group, ChunkKind::PACKED))
        };
        slots.data_groups().map(units).sum()
    }

    /// Starts a checkpoint, or has one follow the running one.
    pub fn spawn_checkpoint(self: &Rc<Self>) {
        if self.closed.get() {
            return;
        }
        if self.running.replace(true) {
            self.again.set(true);
            return;
        }
        let control = self.clone();
        drop(self.rt.spawn(async move {
            loop {
                control.again.set(false);
                control.begun.set(control.begun.get() + 1);
                let is_last = control.exporting.get();
                if let Err(error) = control.run_checkpoint(is_last).await
                    && control.shared.suspend()
                {
                    control.shared.wake_all();
                    let message = format!("writing has stopped: a checkpoint failed ({}). Reads continue. Restore the disks, then export and import the pool", error.message);
                    control.event(Severity::Error, "pool.suspended", control.name(), message);
                }
                control.ended.set(control.begun.get());
                control.closed.set(is_last);
                control.turnstile.changed();
                if !control.again.get() || control.shared.is_suspended() || is_last {
                    control.running.set(false);
                    return;
                }
            }
        }));
    }

    /// A checkpoint that begins after this call.
    pub async fn checkpoint(self: &Rc<Self>) -> Result<u64, Error> {
        let goal = self.begun.get() + 1;
        self.spawn_checkpoint();
        let has_ended = || self.ended.get() >= goal;
        self.turnstile.until(|| has_ended() || self.shared.is_suspended() || self.closed.get()).await;
        if self.shared.is_suspended() {
            return Err(self.suspended());
        }
        if !has_ended() {
            return Err(self.error(ErrorKind::Stopped, "the pool is being closed"));
        }
        Ok(self.generation.get())
    }

    /// The checkpoint after which there is no other, and nothing is evacuated: shards that have ended can do neither. False where nothing is
    /// to be changed.
    pub async fn last_checkpoint(self: &Rc<Self>) -> Result<bool, Error> {
        self.turnstile.until(|| !self.reclaiming.replace(true)).await;
        self.exporting.set(true);
        self.turnstile.changed();
        let last = match self.shared.is_suspended() || self.shared.import.read_only {
            true => Ok(false),
            false => self.checkpoint().await.map(|_| true),
        };
        self.closed.set(true);
        self.turnstile.changed();
        last
    }

    /// One checkpoint; `is_last` says in its superblock that the pool is exported, so that it is true of what the checkpoint froze.
    async fn run_checkpoint(&self, is_last: bool) -> Result<(), Error> {
        if self.shared.is_suspended() {
            // What a failed checkpoint froze is still frozen: there is no second one before the next import.
            return Err(self.suspended());
        }
        let shards = self.shard_count();
        let generation = self.generation.get() + 1;
        let seals = self.prepare_seals().await?;
        let ends_epoch = !seals.is_empty();
        // What a volume goes back to, or has become, is nothing to build upon before it is durable.
        let exchanges = seals.iter().any(|seal| seal.exchanges());
        let freezing = (0..shards).map(|index| {
            self.on_shard(index, move |shard| async move {
                shard.freeze_order.borrow_mut().ends_epoch = ends_epoch;
                shard.freeze().await
            })
        });
        join_all(freezing).await.into_iter().collect::<Result<Vec<()>, Error>>()?;
        if ends_epoch {
            self.epoch.set(self.epoch.get() + 1);
            if !exchanges {
                self.release_volumes().await?;
            }
        }
        let written = self.write_frozen(generation, is_last).await;
        if exchanges {
            self.release_volumes().await?;
        }
        written?;
        let units_more = self.units_free() / shards as u64;
        let committing = (0..shards)
            .map(|index| self.on_shard(index, move |shard| async move { shard.committed(units_more).await }));
        for leaving in join_all(committing).await {
            let mut slots = self.slots.borrow_mut();
            leaving?.iter().for_each(|chunk| slots.release(chunk));
        }
        seals.iter().for_each(|seal| seal.done.set(Some(Ok(()))));
        Ok(())
    }

    /// Writes what is frozen, and the superblock.
    async fn write_frozen(&self, generation: u64, exported: bool) -> Result<(), Error> {
        let shards = self.shard_count();
        let writing = (0..shards).map(|index| {
            self.on_shard(index, move |shard| async move { shard.write_checkpoint(generation).await })
        });
        let mut roots: Vec<ShardRoot> = Vec::with_capacity(shards);
        for written in join_all(writing).await {
            roots.push(written?.map_err(|error: IoError| self.error(ErrorKind::Io, error.to_string()))?);
        }
        self.write_super(generation, roots, exported).await
    }

    pub async fn status(&self) -> Result<PoolStatus, Error> {
        let gather = (0..self.shard_count()).map(|index| {
            self.on_shard(index, |shard| async move {
                let busy = shard.space.borrow().units_busy();
                let sizes = shard.datasets.borrow().values().map(|dataset| dataset.size_told()).sum::<u64>();
                let (fill, held) = (shard.log.borrow().fill_permille(), shard.held_bytes());
                (busy, fill, held, sizes, shard.flash_bytes())
            })
        });
        let (mut busy, mut fill) = (BTreeMap::new(), 0);
        let (mut reserved, mut thick, mut provisioned) = (0, 0, 0);
        let mut flash = (0, 0);
        for result in join_all(gather).await {
            let (units, permille, (held, unwritten), sizes, (size, copies)) = result?;
            flash = (flash.0 + size, flash.1 + copies);
            (reserved, thick, provisioned) = (reserved + held, thick + unwritten, provisioned + sizes);
            units.into_iter().for_each(|(group, units)| *busy.entry(group).or_insert(0) += units * UNIT);
            fill = fill.max(permille);
        }
        let damage = self.damage_status().await?;
        let (scrub, scrub_next) = (self.scrub_status().await?, self.next_scrub());
        let label = self.label.borrow();
        let lacks = |disk: &DiskEntry| {
            matches!(disk.status, device::DiskStatus::Failed | device::DiskStatus::Offline)
        };
        let is_suspended = self.shared.is_suspended() || self.is_lost();
        let state = match (is_suspended, label.disks.iter().any(lacks)) {
            (true, _) => PoolState::Suspended,
            (false, true) => PoolState::Degraded,
            (false, false) => PoolState::Online,
        };
        let status = |group: u16| self.group_status(&label, group, busy.get(&group).copied().unwrap_or(0));
        // One that is just joining has no chunks to count yet.
        let known = self.slots.borrow().groups();
        let groups = (0..known).filter(|group| label.is_inhabited(usize::from(*group)));
        let groups: Vec<GroupStatus> = groups.map(status).collect();
        let data = || groups.iter().filter(|group| group.role == Role::Data);
        let size = data().map(|group| group.size).sum();
        let used = data().map(|group| group.used).sum::<u64>() + thick;
        let hits_permille = self.ledger.flash_permille(HITS_SECONDS);
        let cache = Some(CacheStatus { size: flash.0, held: flash.1, hits_permille });
        let cache = cache.filter(|cache| cache.size > 0);
        Ok(PoolStatus {
            id: self.id(),
            name: self.name().into(),
            state,
            read_only: self.shared.import.read_only,
            groups,
            shards: self.shard_count(),
            size,
            used,
            free: u64::saturating_sub(size, used),
            reserved,
            provisioned,
            checkpoint: self.generation.get(),
            log_fill_permille: fill as u32,
            created: label.created,
            healing: self.healer.status(),
            damage,
            scrub,
            scrubs: self.scrub.schedule.get(),
            scrub_next,
            trash_keep_seconds: self.trash.keep_seconds.get(),
            speed: self.speed.get(),
            promisable: self.promisable(),
            promised: self.ledger.promised.get(),
            cache,
        })
    }

    fn group_status(&self, label: &Label, number: u16, used: u64) -> GroupStatus {
        use device::DiskStatus as Is;
        let entry = &label.groups[usize::from(number)];
        let is_member = |disk: &DiskEntry| disk.group == number && disk.status != Is::Removed;
        let members = label.disks.iter().enumerate().filter(|(_, disk)| is_member(disk));
        let handles = self.disks.borrow();
        let disks = members.map(|(index, disk)| {
            let health = &self.shared.healths[index];
            let handle = handles[index].disk.as_ref();
            let state = match (disk.status, handle) {
                (Is::Spare, Some(_)) => DiskState::Spare,
                (Is::Cache, Some(_)) if !health.is_failed() => DiskState::Cache,
                (Is::Cache, _) => DiskState::Empty,
                (Is::Leaving, Some(_)) => DiskState::Leaving,
                (Is::Offline, _) => DiskState::Offline,
                (Is::Empty, _) if disk.slots > 0 => DiskState::Rebuilt,
                (Is::Empty, _) => DiskState::Empty,
                (_, None) => DiskState::Missing,
                (_, Some(_)) if health.is_failed() => DiskState::Failed,
                (_, Some(_)) if entry.leaving => DiskState::Leaving,
                (_, Some(_)) => DiskState::Online,
            };
            DiskStatus {
                id: disk.id,
                number: index as u16,
                joined_as: label.line(index as u16),
                path: handles[index].path.clone(),
                size: disk.size,
                sector_physical: disk.sector_physical,
                sector_reported: handle.map(|disk| disk.geometry().sector_physical),
                rotational: handle.is_some_and(|disk| disk.geometry().rotational),
                enclosure: disk.enclosure.name(),
                state,
                errors: health.errors(self.rt.now()),
            }
        });
        let layout = Layout::of(entry.data, entry.redundancy);
        let (role, kind) = if entry.role == 0 { (Role::Data, DATA) } else { (Role::Log, ChunkKind::Log) };
        let slots = self.slots.borrow();
        let size = match entry.leaving {
            // Nothing more goes there.
            true => used,
            false => slots.chunks(number).0 * u64::from(slots.units(number, kind)) * UNIT,
        };
        GroupStatus { number, role, layout, leaving: entry.leaving, size, used, disks: disks.collect() }
    }
}
