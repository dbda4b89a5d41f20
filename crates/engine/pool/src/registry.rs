//! How the parts of a pool find each other: one registry per core, and calls between cores.

use crate::EngineConfig;
use crate::control::Control;
use crate::dataset::Dataset;
use crate::handle::{Volume, WeakVolume};
use crate::locks::RangeLocks;
use crate::retention::PoolClock;
use crate::shard::Shard;
use crate::slots::SlotMap;
use crate::spec::{Event, Host, Import};
use crate::volume::LocalVolume;
use forebay_base::Id;
use forebay_device::{DISKS_MAX, Health};
use forebay_qos::{Affine, Costs, Level};
use forebay_raid::{Crowds, no_crowds};
use forebay_runtime::{Cores, Remote, Rt};
use futures_channel::oneshot;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is taken for the cost of a request as long as nobody has measured what the disks do: that of a flash disk of 100 000 requests and 2 GB
/// a second. Then nothing is held back for lack of time; only ceilings and floors count.
pub(crate) const UNMEASURED: Costs = {
    let line = Affine { fixed: 6000, byte_ps: 500 };
    Costs { read: line, write: line }
};
pub(crate) const UNBOUNDED: u64 = u64::MAX / 8;

/// Levels that every pool knows, with the ids under which volumes have them.
pub const BUILT_IN_LEVELS: [(Id, &str, Level); 5] = {
    let mut levels = [(Id(0), "", Level::BUILT_IN[0].1); 5];
    let mut nth = 0;
    while nth < levels.len() {
        levels[nth] = (Id(nth as u128 + 1), Level::BUILT_IN[nth].0, Level::BUILT_IN[nth].1);
        nth += 1;
    }
    levels
};

/// What all cores know of one pool.
pub(crate) struct PoolShared {
    pub id: Id,
    pub name: String,
    pub cores: Cores,
    /// For each disk that a pool can have, by index in the label.
    pub healths: Vec<Arc<Health>>,
    /// Whether the failure of a disk is recorded on the others.
    pub recorded: Vec<AtomicBool>,
    pub crowds: Crowds,
    suspended: AtomicBool,
    /// Batches of reads and writes that checkpoints have begun, on all shards.
    checkpoint_steps: AtomicU64,
    /// The checkpoint up to which what some shard deletes may give space back.
    deletes_until: AtomicU64,
    pub import: Import,
    pub host: Host,
    pub events: Arc<dyn Fn(Event) + Send + Sync>,
    /// Bytes of cache and tree nodes for each shard.
    pub memory_per_shard: u64,
    pub clock: PoolClock,
    /// Whether somebody has measured what its disks can do.
    pub is_measured: AtomicBool,
    /// What is in flight at the disks, and whose turn it is.
    pub turns: Arc<forebay_qos::Pool>,
}

impl PoolShared {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        id: Id,
        name: String,
        cores: Cores,
        config: &EngineConfig,
        import: Import,
        memory_per_shard: u64,
        shards: usize,
        clock: PoolClock,
    ) -> PoolShared {
        PoolShared {
            id,
            name,
            cores,
            healths: (0..DISKS_MAX).map(|_| Arc::default()).collect(),
            recorded: (0..DISKS_MAX).map(|_| AtomicBool::new(false)).collect(),
            crowds: no_crowds(),
            suspended: AtomicBool::new(false),
            checkpoint_steps: AtomicU64::new(0),
            deletes_until: AtomicU64::new(0),
            import,
            host: config.host.clone(),
            events: config.events.clone(),
            memory_per_shard,
            clock,
            is_measured: AtomicBool::new(false),
            turns: Arc::new(forebay_qos::Pool::new(shards, UNMEASURED, UNBOUNDED)),
        }
    }
    pub fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }
    /// A checkpoint makes progress.
    pub fn note_checkpoint_step(&self) {
        self.checkpoint_steps.fetch_add(1, Ordering::Relaxed);
    }
    pub fn checkpoint_steps(&self) -> u64 {
        self.checkpoint_steps.load(Ordering::Relaxed)
    }
    pub fn note_deletion(&self, until: u64) {
        self.deletes_until.fetch_max(until, Ordering::Relaxed);
    }
    pub fn deletes_until(&self) -> u64 {
        self.deletes_until.load(Ordering::Relaxed)
    }
    /// Wakes everything that waits in this pool, on every core, to look at its state again.
    pub fn wake_all(&self) {
        for core in 0..self.cores.count() {
            let pool = self.id;
            self.cores.core(core).run(move |rt| {
                for shard in registry(rt).shards(pool) {
                    shard.work.send();
                    shard.destage_work.send();
                    shard.deletion_work.send();
                    shard.progress.changed();
                }
            });
        }
    }
    /// Takes note of how crowded enclosures are.
    pub fn note_crowds(&self, slots: &SlotMap) {
        for (group, crowd) in self.crowds.iter().enumerate() {
            crowd.fetch_max(slots.crowd(group) as u8, Ordering::AcqRel);
        }
    }
    /// A disk is out of service, and its label says so.
    pub fn out_of_service(&self, disk: usize) {
        self.healths[disk].fail();
        self.recorded[disk].store(true, Ordering::Release);
    }
    /// True for the first caller.
    pub fn suspend(&self) -> bool {
        !self.suspended.swap(true, Ordering::AcqRel)
    }
}

/// What runs on one core.
#[derive(Default)]
pub(crate) struct Registry {
    shards: RefCell<BTreeMap<(Id, usize), Rc<Shard>>>,
    volumes: RefCell<BTreeMap<Id, Volume>>,
    /// Places of volumes that clients do not find, such as those in the trash, while somebody still has a handle.
    hidden: RefCell<BTreeMap<Id, WeakVolume>>,
    /// Service levels besides those that are built in, by id.
    levels: RefCell<BTreeMap<Id, Level>>,
    /// On core 0 only.
    controls: RefCell<BTreeMap<Id, Rc<Control>>>,
    /// On core 0: held (as range 0) while a volume changes its pool, and while it is settled what moves have left.
    pub switching: RangeLocks,
    pub settling: RangeLocks,
}

/// The registry of the core one runs on.
pub(crate) fn registry(rt: &Rt) -> Rc<Registry> {
    rt.local::<Registry>()
}

impl Registry {
    /// The service level with this id; that of volumes without one when it is not known.
    pub fn level(&self, id: Id) -> Level {
        let built_in = BUILT_IN_LEVELS.iter().find(|(built_in, ..)| *built_in == id);
        let known = built_in.map(|(.., level)| *level).or_else(|| self.levels.borrow().get(&id).copied());
        known.unwrap_or_default()
    }
    pub fn set_levels(&self, levels: BTreeMap<Id, Level>) {
        *self.levels.borrow_mut() = levels;
        for shard in self.shards.borrow().values() {
            shard.datasets.borrow().values().for_each(|dataset| shard.note_level(dataset));
        }
    }
    pub fn shard(&self, pool: Id, index: usize) -> Option<Rc<Shard>> {
        self.shards.borrow().get(&(pool, index)).cloned()
    }
    pub fn shards(&self, pool: Id) -> Vec<Rc<Shard>> {
        self.shards.borrow().range((pool, 0)..=(pool, usize::MAX)).map(|(_, shard)| shard.clone()).collect()
    }
    pub fn add_shard(&self, shard: Rc<Shard>) {
        for dataset in shard.live() {
            self.add_volume(&shard, dataset);
        }
        self.shards.borrow_mut().insert((shard.shared.id, shard.index), shard);
    }
    pub fn remove_shard(&self, pool: Id, index: usize) {
        if let Some(shard) = self.shards.borrow_mut().remove(&(pool, index)) {
            self.volumes.borrow_mut().retain(|_, volume| !volume.is_on(&shard));
        }
    }
    pub fn volume(&self, id: Id) -> Option<Volume> {
        self.volumes.borrow().get(&id).cloned()
    }
    /// Shows a volume to clients. One that is there already under this id stays. Handles from before it was hidden go on.
    pub fn add_volume(&self, shard: &Rc<Shard>, dataset: Rc<Dataset>) {
        let (mut volumes, id) = (self.volumes.borrow_mut(), dataset.id());
        volumes.entry(id).or_insert_with(|| {
            let known = self.hidden.borrow_mut().remove(&id).and_then(|known| known.upgrade());
            let known = known.filter(|volume| volume.is_of(&dataset));
            known.unwrap_or_else(|| Volume::of(shard.clone(), dataset))
        });
    }
    /// A volume has arrived: whoever has a handle of it where it was has it here from now on. Another volume with its id, which a forced
    /// import may bring, stays what it is.
    pub fn hand_over(&self, shard: &Rc<Shard>, dataset: Rc<Dataset>) {
        match self.volume(dataset.id()) {
            Some(volume) if volume.here().dataset.has_moved_to(shard.shared.id) => {
                let before = volume.turn_to(LocalVolume::of(shard.clone(), dataset));
                before.dataset.leave();
            }
            _ => self.add_volume(shard, dataset),
        }
    }
    pub fn remove_volume(&self, dataset: &Rc<Dataset>) {
        let mut hidden = self.hidden.borrow_mut();
        hidden.retain(|_, volume| volume.is_used());
        let (mut volumes, id) = (self.volumes.borrow_mut(), dataset.id());
        if let Some(volume) = volumes.get(&id).filter(|volume| volume.is_of(dataset)) {
            hidden.insert(id, volume.downgrade());
            volumes.remove(&id);
        }
    }
    pub fn control(&self, pool: Id) -> Option<Rc<Control>> {
        self.controls.borrow().get(&pool).cloned()
    }
    pub fn controls(&self) -> Vec<Rc<Control>> {
        self.controls.borrow().values().cloned().collect()
    }
    pub fn add_control(&self, control: Rc<Control>) {
        self.controls.borrow_mut().insert(control.id(), control);
    }
    pub fn remove_control(&self, pool: Id) {
        self.controls.borrow_mut().remove(&pool);
    }
}

/// The core that was called has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ended;

/// Runs `work` on another core and waits for its result.
pub(crate) async fn call<T, F, W>(core: &Remote, work: F) -> Result<T, Ended>
where
    T: Send + 'static,
    F: FnOnce(Rt) -> W + Send + 'static,
    W: Future<Output = T> + 'static,
{
    let (send, receive) = oneshot::channel();
    core.run(move |rt| {
        let work = work(rt.clone());
        drop(rt.spawn(async move {
            // The caller may have gone away; the work is done all the same.
            let _ = send.send(work.await);
        }));
    });
    receive.await.map_err(|_| Ended)
}
