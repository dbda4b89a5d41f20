//! A shard: the single-threaded owner of some datasets, their space, their log and their cache.
//!
//! Everything here lives on one core. Clients and background work queue entries ([`crate::commit`]); one task
//! per shard turns the queue into group commits and is the only one that changes trees. A freeze for a
//! checkpoint happens between two commits, so it sees every record before the cut applied and none after.

use crate::ahead::Ahead;
use crate::cache::{BlockCache, BlockWeight, Doorkeeper, ReadFrom};
use crate::calibrate::Sample;
use crate::control::Control;
use crate::damage::{Damage, Repairs};
use crate::dataset::{Dataset, Staged};
use crate::destage::Ending;
use crate::entry::Entry;
use crate::error::IoError;
use crate::flash::Flash;
use crate::holds::Holds;
use crate::index::{Datasets, Snapshots};
use crate::items::{FrozenItems, Items};
use crate::leaves::LeafClock;
use crate::limits::Told;
use crate::lineage::{FreezeOrder, FrozenDataset};
use crate::lines::Places;
use crate::locks::RangeLocks;
use crate::maps::Maps;
use crate::quota::Said;
use crate::record::DatasetRecord;
use crate::registry::{PoolShared, call, registry};
use crate::relocate::Twin;
use crate::reserve::{Need, Pledge, Promise};
use crate::scrub::ShardScrub;
use crate::signal::{Gate, Signal, Turnstile};
use crate::spec::{Event, Severity};
use crate::staged::StagedFrames;
use crate::table_write::FrozenCatalog;
use crate::tables::{Table, Tables};
use crate::turns::{Flow, Turns};
use crate::vacate::Successor;
use forebay_compress::Codec;
use forebay_device::{Owner, SlotRef};
use forebay_log::{Chain, FrameContext, Ring};
use forebay_qos::Task;
use forebay_raid::{Array, DiskSet};
use forebay_runtime::{Buf, Completer, Disk, Rt};
use forebay_space::{Chunk, ChunkEntry, ChunkKind, NODE_UNITS, Ptr, Space};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasherDefault;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of client writes that a shard takes in before it makes the next one wait: a second of a fast disk's
/// bandwidth would be too long a queue, a millisecond's too short to merge.
const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;

/// Memory that changes may hold before they ask for a checkpoint, however small the budget: checkpoints that follow each
/// other at once write each leaf for every few blocks.
const DIRTY_BYTES_MIN: u64 = 32 << 20;

/// Checkpoints that one request waits for while frees are pending. What a checkpoint releases, others may take first; as long as
/// frees are on their way, the pool is not full.
pub(crate) const SPACE_WAITS_MAX: u32 = 64;

/// The log ring and where in it the shard is.
pub(crate) struct Log {
    pub ring: Ring,
    /// Slots of the ring's chunks, in order.
    pub chunks: Vec<Vec<SlotRef>>,
    /// The next frame.
    pub chain: Chain,
    /// Position of the oldest frame that an import still needs.
    pub tail: u64,
    /// Every frame up to this sequence is on stable storage.
    pub durable: u64,
    /// Disks with completed writes that no flush has covered, and how many bytes that is.
    pub unflushed: DiskSet,
    pub unflushed_bytes: usize,
    pub incarnation: u64,
    /// What the last frame said of `durable`.
    pub marked: u64,
    /// Where the frame that is being applied starts.
    pub frame_start: Chain,
    /// Parts that are moving to another disk.
    pub twins: Vec<Twin>,
    /// Where all of it is moving.
    pub successor: Option<Successor>,
    /// Frames that hold staged blocks.
    pub staged: StagedFrames,
}

impl Log {
    /// An empty log that goes on at `start`.
    pub fn new(ring: Ring, chunks: Vec<Vec<SlotRef>>, start: Chain, incarnation: u64) -> Log {
        Log {
            ring,
            chunks,
            chain: start,
            tail: start.position,
            durable: 0,
            unflushed: DiskSet::default(),
            unflushed_bytes: 0,
            incarnation,
            marked: 0,
            frame_start: start,
            twins: Vec::new(),
            successor: None,
            staged: StagedFrames::default(),
        }
    }

    /// Part of the ring in use, in thousandths.
    pub fn fill_permille(&self) -> u64 {
        (self.chain.position - self.tail) * 1000 / self.ring.bytes()
    }
}

/// What a freeze captured of one shard.
pub(crate) struct FrozenShard {
    pub datasets: Vec<FrozenDataset>,
    pub catalog: FrozenCatalog,
    pub items: FrozenItems,
    pub tail: Chain,
    pub cut: u64,
    /// Disks whose completed writes no flush had covered: among them the data of records before the cut.
    pub unflushed: DiskSet,
}

pub(crate) struct Shard {
    pub rt: Rt,
    pub shared: Arc<PoolShared>,
    pub index: usize,
    pub array: Array,
    /// Whether data of small writes goes to the log first: the pool has log disks, or parity.
    pub data_in_log: bool,
    pub space: RefCell<Space>,
    pub datasets: RefCell<Datasets>,
    /// What each project of the pool says.
    pub projects: RefCell<BTreeMap<String, Said>>,
    /// Their numbers are no dataset's.
    pub snapshots: RefCell<Snapshots>,
    /// Those that the running checkpoint seals.
    pub sealed_snapshots: RefCell<Vec<DatasetRecord>>,
    pub deletion_work: Signal,
    /// Whether something is being deleted now.
    pub deletes: Cell<bool>,
    pub turns: Rc<Turns>,
    /// Of the pool's own tasks, by their place in [`Task::ALL`]; none before a task has begun.
    pub task_flows: [OnceCell<Flow>; Task::ALL.len()],
    /// While the pool is measured: what with, and its id from before it is there.
    pub sample: RefCell<Option<Rc<Sample>>>,
    pub sampled: Cell<Option<forebay_base::Id>>,
    pub log: RefCell<Log>,
    pub queue: RefCell<VecDeque<Entry>>,
    /// Tells the commit task that there is something to do.
    pub work: Signal,
    pub freeze_request: RefCell<Option<Completer<()>>>,
    /// What the next freeze seals.
    pub freeze_order: RefCell<FreezeOrder>,
    /// Whether something is frozen that no superblock has yet.
    pub checkpointing: Cell<bool>,
    pub frozen: RefCell<Option<FrozenShard>>,
    /// The log's tail once the running checkpoint is durable.
    pub frozen_tail: Cell<Chain>,
    pub cache: RefCell<BlockCache>,
    /// Bytes that it may have, when leaves have their least and there are no cache disks.
    pub cache_bytes: u64,
    pub doorkeeper: RefCell<Doorkeeper>,
    /// Copies on disks that are quicker.
    pub flash: Flash,
    pub ahead: RefCell<Ahead>,
    /// Of what clients read, since it was last taken.
    pub read_from: Cell<ReadFrom>,
    pub codec: RefCell<Codec>,
    pub leaves: RefCell<LeafClock>,
    pub gate: Rc<Gate>,
    /// For those that were promised a floor: who waits for turns behind the other one does not hold them up.
    pub gate_of_promised: Rc<Gate>,
    /// Checkpoints that finished here, and who waits for one.
    pub checkpoints: Cell<u64>,
    pub progress: Turnstile,
    pub checkpoint_wanted: Cell<bool>,
    /// One is about to be wanted, since something was written while something is lost.
    pub damage_settles: Cell<bool>,
    /// Nodes that changed in this period, over all datasets, and the memory that the changes hold.
    pub nodes_dirty: Cell<u64>,
    pub dirty_bytes: Cell<u64>,
    /// Nodes that the running checkpoint has yet to write.
    pub nodes_frozen: Cell<u64>,
    /// Nodes that entries in the queue, or on their way to it, may make dirty.
    pub nodes_queued: Cell<u64>,
    /// Whose turn it is among clients that wait for nodes: one's at a time, whatever it wants.
    pub nodes_turn: Rc<Gate>,
    /// Checkpoints there had been when the last of them got some.
    pub nodes_given: Cell<u64>,
    /// Units in the hands of who waits for more.
    pub units_waiting: Cell<u64>,
    /// Of the last checkpoint; the running one has them. And how many nodes all have together.
    pub tables: RefCell<Tables>,
    pub table_nodes: Cell<usize>,
    /// Leaves of them that a scrub did not find right on some disk.
    pub suspects: RefCell<BTreeSet<(Table, u64)>>,
    /// Those who read or repair what space must not be released under.
    pub holds: Rc<Holds>,
    pub sealed: Cell<u64>,
    /// When what is written now is born, and what the running checkpoint writes.
    pub epoch: Cell<u64>,
    pub epoch_frozen: Cell<u64>,
    /// Bytes of records that queued entries bring to the log.
    pub queued_bytes: Cell<usize>,
    /// Bytes of the log that are claimed for blocks which are not staged yet.
    pub claimed_bytes: Cell<usize>,
    /// Writers who wait for room in the log.
    pub log_waiters: Cell<usize>,
    /// Bytes that are durable in the log only, and the wake-up of the task that moves them.
    pub staged_bytes: Cell<usize>,
    /// Blocks that have moved from the log since the import.
    pub destaged: Cell<u64>,
    /// How often some were to move, with or without success.
    pub destage_tries: Cell<u64>,
    /// Whether the last try failed.
    pub destage_stuck: Cell<bool>,
    /// Whether the last one found no place for some of them.
    pub lacks_place: Cell<bool>,
    /// How far the end of the pool has come, for the log.
    pub ending: Cell<Ending>,
    /// Whether blocks that are staged may have no place, as after an import.
    pub has_unplaced: Cell<bool>,
    /// Entries of the last commit.
    pub committed_together: Cell<usize>,
    /// Blocks that came in parts to volumes that compress, by the number of these.
    pub to_be_packed: RefCell<Vec<(u64, u64)>>,
    /// Whether somebody looks for space for what is staged.
    pub finding_space: Cell<bool>,
    pub destage_work: Signal,
    /// Staged blocks by the place that is kept for them, where places are in lines with parity.
    pub placed: RefCell<Places>,
    /// Blocks put into lines in use since the import, and whether some are being put there.
    pub plugs: Cell<u64>,
    pub plugging: Cell<bool>,
    /// Whether someone waits for all that is staged to move.
    pub draining: Cell<u32>,
    /// How often the oldest staged blocks could not be had.
    pub contended: Cell<u32>,
    /// Zeros, as long as the largest block.
    pub zero: Buf,
    /// What the next dataset or snapshot has for a number: no other ever had it.
    pub next_number: Cell<u64>,
    /// Snapshots whose deletion has ended: what others have for themselves is counted anew then.
    pub kept_since: Cell<u64>,
    /// What somebody is about to be owed, and what snapshots that are being taken will make it, by volume.
    pub promises: RefCell<BTreeMap<u64, Promise>>,
    pub seal_pledges: RefCell<Vec<(forebay_base::Id, Pledge)>>,
    /// Held (as range 0) by the reserved volume's write that waits for places to come back.
    pub reserved_turn: RangeLocks,
    /// Held (as range 0) while attributes are stored.
    pub attribute_locks: RangeLocks,
    pub scrub: ShardScrub,
    pub damage: RefCell<Damage>,
    pub items: RefCell<Items>,
    pub repairs: RefCell<Repairs>,
    /// When it was told last that clients are refused for want of space.
    pub refused: Cell<Option<forebay_base::Nanos>>,
    /// How far it has come in emptying a group that leaves: the number of the dataset and its leaf.
    pub vacated: Cell<(u64, u64)>,
    /// Client operations so far.
    pub served: Cell<u64>,
    /// Somebody waits for clients to rest, to gather blocks.
    pub gathers: Cell<bool>,
    /// Chunks that were emptied for that, and not taken yet.
    pub emptied: Cell<u64>,
    pub limit_told: Cell<Told>,
    pub granting: Cell<bool>,
    grants: Turnstile,
    pub maps: Maps,
    entries: Cell<u64>,
    pub stopping: Cell<bool>,
    /// Tasks of this shard that are still running.
    pub tasks: Cell<usize>,
}

/// Nodes that a change may make dirty, claimed until it has.
pub(crate) struct NodesClaim {
    pub shard: Rc<Shard>,
    pub nodes: u64,
}

impl Drop for NodesClaim {
    fn drop(&mut self) {
        self.shard.nodes_queued.set(self.shard.nodes_queued.get() - self.nodes);
        if !self.shard.nodes_turn.is_free() {
            self.shard.progress.changed();
        }
    }
}

/// What a shard is made of, once its state is known.
pub(crate) struct ShardParts {
    pub space: Space,
    pub datasets: Datasets,
    pub snapshots: Snapshots,
    pub log: Log,
    pub tables: Tables,
    pub damage: Damage,
    pub items: Items,
    pub sealed: u64,
    pub epoch: u64,
    pub next_number: u64,
}

impl Shard {
    pub fn new(
        rt: Rt,
        shared: Arc<PoolShared>,
        index: usize,
        array: Array,
        data_in_log: bool,
        parts: ShardParts,
    ) -> Shard {
        let budget = shared.memory_per_shard;
        let ahead_bytes = Ahead::bytes_of(budget);
        let cache_bytes = budget - LeafClock::least_of(budget) - ahead_bytes;
        let cache = BlockCache::with(
            (cache_bytes / 8192).max(16) as usize,
            cache_bytes,
            BlockWeight,
            BuildHasherDefault::default(),
            Default::default(),
        );
        let zero = rt.arena().take_zeroed(128 << 10).freeze();
        let turns = Rc::new(Turns::new(rt.clone(), shared.turns.clone(), index));
        let dirty = parts.datasets.values().map(|dataset| dataset.tree.borrow().dirty()).sum();
        Shard {
            zero,
            rt,
            shared,
            index,
            array,
            data_in_log,
            space: RefCell::new(parts.space),
            datasets: RefCell::new(parts.datasets),
            projects: RefCell::default(),
            snapshots: RefCell::new(parts.snapshots),
            sealed_snapshots: RefCell::default(),
            deletion_work: Signal::default(),
            deletes: Cell::new(false),
            turns,
            task_flows: Default::default(),
            sample: RefCell::default(),
            sampled: Cell::new(None),
            log: RefCell::new(parts.log),
            queue: RefCell::default(),
            work: Signal::default(),
            freeze_request: RefCell::default(),
            freeze_order: RefCell::default(),
            checkpointing: Cell::new(false),
            frozen: RefCell::default(),
            frozen_tail: Cell::default(),
            cache: RefCell::new(cache),
            cache_bytes,
            doorkeeper: RefCell::new(Doorkeeper::new(cache_bytes / 8192 * 4)),
            flash: Flash::default(),
            ahead: RefCell::new(Ahead::new(ahead_bytes)),
            read_from: Cell::default(),
            codec: RefCell::default(),
            leaves: RefCell::new(LeafClock::new(budget)),
            gate: Rc::new(Gate::new(IN_FLIGHT_BYTES_MAX)),
            gate_of_promised: Rc::new(Gate::new(IN_FLIGHT_BYTES_MAX)),
            checkpoints: Cell::new(0),
            progress: Turnstile::default(),
            checkpoint_wanted: Cell::new(false),
            damage_settles: Cell::new(false),
            nodes_dirty: Cell::new(dirty),
            dirty_bytes: Cell::new(0),
            nodes_frozen: Cell::new(0),
            nodes_queued: Cell::new(0),
            nodes_turn: Rc::new(Gate::new(1)),
            nodes_given: Cell::new(0),
            units_waiting: Cell::new(0),
            suspects: RefCell::default(),
            table_nodes: Cell::new(parts.tables.nodes() + parts.damage.nodes()),
            tables: RefCell::new(parts.tables),
            holds: Rc::default(),
            sealed: Cell::new(parts.sealed),
            epoch: Cell::new(parts.epoch),
            epoch_frozen: Cell::new(parts.epoch),
            queued_bytes: Cell::new(0),
            claimed_bytes: Cell::new(0),
            log_waiters: Cell::new(0),
            staged_bytes: Cell::new(0),
            destaged: Cell::new(0),
            destage_tries: Cell::new(0),
            destage_stuck: Cell::new(false),
            lacks_place: Cell::new(false),
            ending: Cell::new(Ending::No),
            finding_space: Cell::new(false),
            destage_work: Signal::default(),
            placed: RefCell::default(),
            plugs: Cell::new(0),
            plugging: Cell::new(false),
            draining: Cell::new(0),
            has_unplaced: Cell::new(false),
            committed_together: Cell::new(0),
            to_be_packed: RefCell::default(),
            contended: Cell::new(0),
            next_number: Cell::new(parts.next_number),
            kept_since: Cell::new(0),
            promises: RefCell::default(),
            seal_pledges: RefCell::default(),
            reserved_turn: RangeLocks::default(),
            attribute_locks: RangeLocks::default(),
            scrub: ShardScrub::default(),
            damage: RefCell::new(parts.damage),
            items: RefCell::new(parts.items),
            repairs: RefCell::default(),
            refused: Cell::default(),
            vacated: Cell::default(),
            served: Cell::new(0),
            gathers: Cell::new(false),
            emptied: Cell::new(0),
            limit_told: Cell::default(),
            granting: Cell::new(false),
            grants: Turnstile::default(),
            maps: Maps::default(),
            entries: Cell::new(0),
            stopping: Cell::new(false),
            tasks: Cell::new(0),
        }
    }

    pub fn frame_context(&self) -> FrameContext {
        FrameContext { pool: self.shared.id, shard: self.index as u16, owner: Owner::default() }
    }

    /// A number for a new entry.
    pub fn entry_id(&self) -> u64 {
        self.entries.set(self.entries.get() + 1);
        self.entries.get()
    }

    pub fn is_suspended(&self) -> bool {
        self.shared.is_suspended()
    }

    /// Stops all writing in the pool: redundancy could not absorb a failure.
    pub fn suspend(&self, why: &str) {
        if self.shared.suspend() {
            self.shared.wake_all();
            self.event(Severity::Error, "pool.suspended", &self.shared.name, format!(
                "writing has stopped: {why}. Reads continue. Restore the disks, then export and import the pool"
            ));
        }
    }

    pub fn event(&self, severity: Severity, code: &'static str, object: &str, message: String) {
        (self.shared.events)(Event { at: self.rt.wall(), severity, code, object: object.into(), message });
    }

    /// Spawns a task that the shard's end waits for.
    pub fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let shard = self.clone();
        self.tasks.set(self.tasks.get() + 1);
        drop(self.rt.spawn(async move {
            task.await;
            shard.tasks.set(shard.tasks.get() - 1);
            shard.progress.changed();
            shard.work.send();
        }));
    }

    /// Asks for a checkpoint of the pool; many calls make one.
    pub fn want_checkpoint(self: &Rc<Self>) {
        if self.checkpoint_wanted.replace(true) || self.is_suspended() {
            return;
        }
        self.destage_work.send();
        let (pool, core) = (self.shared.id, self.shared.cores.core(0).clone());
        core.run(move |rt| {
            if let Some(control) = registry(rt).control(pool) {
                control.spawn_checkpoint();
            }
        });
    }

    /// Waits until a checkpoint that began after this call is durable. False when the pool cannot.
    pub async fn next_checkpoint(self: &Rc<Self>) -> bool {
        self.next_checkpoint_or(|| false).await
    }

    /// The same, but no longer than until there is enough.
    pub async fn next_checkpoint_or(self: &Rc<Self>, has_enough: impl Fn() -> bool) -> bool {
        // One may be running already, and what is needed may be frozen in it or come after it: two are enough for both.
        let goal = self.checkpoints.get() + if self.checkpointing.get() { 2 } else { 1 };
        self.progress
            .until(|| {
                let goes_on = self.checkpoints.get() < goal && !has_enough();
                if goes_on && !self.has_ended() {
                    self.want_checkpoint();
                    return false;
                }
                true
            })
            .await;
        self.checkpoints.get() >= goal || has_enough()
    }

    /// Slows writers as the log fills, from 60 % on, smoothly: there is no cliff at the end. For how long it did.
    pub async fn throttle(self: &Rc<Self>) -> Duration {
        let fill = self.log.borrow().fill_permille();
        let is_dirty = self.dirty_bytes.get() > (self.shared.memory_per_shard / 2).max(DIRTY_BYTES_MIN);
        if fill > 500 || is_dirty || self.space.borrow().wants_checkpoint() {
            self.want_checkpoint();
        }
        if fill > 600 {
            let over = (fill - 600).min(400);
            // (fill − 60 %)² scaled to 8 ms at a full log.
            let pause = Duration::from_micros(over * over / 20);
            self.rt.sleep(pause).await;
            return pause;
        }
        Duration::ZERO
    }

    /// Nodes that must stay allocatable whatever happens: dirty ones, those being written, and the tables.
    pub fn nodes_needed(&self) -> u64 {
        self.nodes_dirty.get() + self.nodes_frozen.get() + self.nodes_queued.get() + self.nodes_of_tables()
    }

    /// The handle of a disk of the pool on this core, if it has one.
    pub fn disk(&self, disk: u16) -> Option<Disk> {
        self.array.attached(disk).map(|member| member.disk.clone()).or_else(|| self.flash.handle(disk))
    }

    /// Whether a checkpoint may give space back: then the shard is not full. What was replaced in leaves that are not loaded is known only when a
    /// checkpoint has read them.
    pub fn expects_space(&self) -> bool {
        let has_changes = self.nodes_dirty.get() + self.nodes_frozen.get() > 0;
        has_changes || self.space.borrow().has_pending_frees() || self.is_deleting()
    }

    /// Whether something is on its way to places that it has, and may replace what is elsewhere.
    pub fn expects_changes(&self) -> bool {
        self.space.borrow().in_hand() > self.units_waiting.get()
    }

    /// Asks the coordinator for a chunk. True when space of the kind may be there now.
    pub async fn grant(self: &Rc<Self>, kind: ChunkKind, need: Need) -> bool {
        while self.granting.get() {
            // Someone else's chunk may serve this caller too. Whoever may take what others may not asks for himself.
            self.grants.until(|| !self.granting.get()).await;
            let is_scarce = self.space.borrow().is_scarce();
            if need != Need::Urgent || !is_scarce {
                return !is_scarce;
            }
        }
        // A chunk of data makes the tables longer: there have to be nodes for that, or a checkpoint finds none.
        if kind != ChunkKind::Node && need != Need::Urgent && self.lacks_nodes_for_a_chunk() {
            let granted = self.grant_by(move |control| control.grant(ChunkKind::Node, need)).await;
            return granted && Box::pin(self.grant(kind, need)).await;
        }
        self.grant_by(move |control| control.grant(kind, need)).await
    }

    /// Has the coordinator give a chunk. There is one such request at a time.
    pub async fn grant_by(
        self: &Rc<Self>,
        grants: impl FnOnce(&Control) -> Option<ChunkEntry> + Send + 'static,
    ) -> bool {
        self.granting.set(true);
        let pool = self.shared.id;
        let granted = call(self.shared.cores.core(0), move |rt| async move {
            registry(&rt).control(pool).and_then(|control| grants(&control))
        })
        .await;
        let granted = granted.ok().flatten();
        let done = granted.is_some();
        if let Some(chunk) = granted {
            self.accept(chunk);
        }
        self.granting.set(false);
        self.grants.changed();
        done
    }

    /// Takes over a chunk: it is logged before anything that uses it.
    pub fn accept(self: &Rc<Self>, chunk: ChunkEntry) {
        self.space.borrow_mut().insert(Chunk::fresh(chunk.clone()));
        self.submit(Entry::grant(chunk));
    }

    /// A place for one node of the running checkpoint.
    pub async fn allocate_node(self: &Rc<Self>) -> Result<Ptr, IoError> {
        loop {
            let found = self.space.borrow_mut().allocate(ChunkKind::Node, NODE_UNITS);
            if let Ok(addr) = found {
                let epoch = self.epoch_frozen.get();
                let ptr = Ptr::new(addr, forebay_tree::NODE_BYTES as u32, epoch, Default::default());
                self.nodes_frozen.set(self.nodes_frozen.get().saturating_sub(1));
                return Ok(ptr);
            }
            if self.read_sought().await? {
                continue;
            }
            if !self.grant(ChunkKind::Node, Need::Urgent).await {
                if self.space.borrow().is_scarce() {
                    return Err(IoError::NoSpace);
                }
                self.space.borrow_mut().declare_scarce();
            }
        }
    }

    /// Slots of the chunk that holds `ptr`; nothing when the shard does not own it (any more).
    pub fn slots(&self, ptr: &Ptr) -> Option<Vec<SlotRef>> {
        self.space.borrow().chunk(ptr.addr().chunk()).map(|chunk| chunk.entry.slots.clone())
    }

    /// Changes a dataset's tree, and keeps count of the nodes that makes dirty.
    pub fn change_tree<T>(&self, dataset: &Dataset, change: impl FnOnce(&mut forebay_tree::Tree) -> T) -> T {
        let mut tree = dataset.tree.borrow_mut();
        let before = (tree.dirty(), tree.dirty_bytes());
        let result = change(&mut tree);
        self.nodes_dirty.set(self.nodes_dirty.get() + tree.dirty() - before.0);
        self.dirty_bytes.set(self.dirty_bytes.get() + tree.dirty_bytes() - before.1);
        self.datasets.borrow().touch(dataset);
        result
    }

    /// Forgets a staged block that something newer replaced.
    pub fn unstage(&self, dataset: &Dataset, block: u64, staged: &Staged) {
        if let Some(place) = &staged.place {
            self.placed.borrow_mut().remove(&place.addr());
            self.space.borrow_mut().give_back(place);
        } else {
            self.place_found(dataset);
        }
        self.forget_staged(dataset, block, staged);
    }

    /// A block is staged no longer, or otherwise than it was.
    pub fn forget_staged(&self, dataset: &Dataset, block: u64, staged: &Staged) {
        self.staged_bytes.set(self.staged_bytes.get() - staged.block.data.len());
        let now = dataset.staged.borrow().get(&block).map(|now| now.sequence);
        if now != Some(staged.sequence) {
            self.log.borrow_mut().staged.remove((staged.sequence, dataset.number(), block));
        }
    }

    /// Closes the period. Called between commits only.
    pub fn freeze_now(&self) -> FrozenShard {
        let log = self.log.borrow();
        self.checkpointing.set(true);
        self.nodes_frozen.set(self.nodes_dirty.get());
        let order = self.freeze_order.take();
        let sealed: Vec<u64> = order.seals.iter().map(|seal| seal.volume).collect();
        let mut touched = self.take_touched();
        let datasets = self.freeze_datasets(order, &mut touched);
        let (catalog, items) = (self.freeze_catalog(&touched, &datasets), self.freeze_items());
        self.keep_pledges(&sealed);
        self.space.borrow_mut().freeze();
        self.nodes_dirty.set(0);
        self.dirty_bytes.set(0);
        let tail = log.staged.start().unwrap_or(log.chain);
        let unflushed = log.unflushed.clone();
        FrozenShard { datasets, catalog, items, tail, cut: log.chain.sequence, unflushed }
    }

    /// Lets no client operation start any more and waits for those in flight.
    pub async fn close_volumes(&self) {
        let datasets: Vec<_> = self.datasets.borrow().values().cloned().collect();
        for dataset in datasets {
            dataset.leave();
            dataset.quiesce().await;
        }
    }

    /// Ends the shard's tasks.
    pub async fn end(&self) {
        self.stopping.set(true);
        self.work.send();
        self.destage_work.send();
        self.deletion_work.send();
        self.turns.end();
        self.give_up_flash();
        self.progress.changed();
        self.progress.until(|| self.tasks.get() == 0).await;
    }

    /// Volumes that are there for clients and management.
    pub fn live(&self) -> Vec<Rc<Dataset>> {
        self.datasets.borrow().values().filter(|dataset| dataset.is_live()).cloned().collect()
    }

    /// The dataset with the lowest number from this one on: how a loop that yields goes through them.
    pub fn next_dataset(&self, from: u64) -> Option<Rc<Dataset>> {
        self.datasets.borrow().range(from..).next().map(|(_, dataset)| dataset.clone())
    }
}
