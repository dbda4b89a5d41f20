//! One volume on its shard: its record, its tree, and the blocks that are newer than the tree.
//!
//! A block's newest contents are in the first of these that has it: *pending* (queued for a commit, not yet
//! applied), *staged* (durable in the log only, see `destage`), the tree. Merging writers look at all three;
//! clients see pending blocks only where their acknowledgement did not wait for the disk, so that no client
//! ever reads what a crash could take back.

use crate::added::Added;
use crate::ahead::Streams;
use crate::changes::Changes;
use crate::error::IoError;
use crate::gather::Gathering;
use crate::locks::RangeLocks;
use crate::pack::Block;
use crate::parts::Parts;
use crate::pending::Pending;
use crate::projects::Inherits;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::reserve::Own;
use crate::signal::Turnstile;
use crate::spec::{ProjectProperties, SnapshotSchedule, SyncPolicy};
use crate::steps::Steps;
use crate::turns::Flow;
use forebay_base::Id;
use forebay_base::planted::{Bug, active};
use forebay_compress::{Compression, Sampling};
use forebay_qos::{Ceiling, Promise, Rate};
use forebay_runtime::Buf;
use forebay_space::Ptr;
use forebay_tree::{Found, Tree, nodes_over};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Staged blocks that are looked at between two yields.
pub(crate) const STAGED_LOOK: usize = 512;

/// A block that is durable in the log only.
#[derive(Clone)]
pub(crate) struct Staged {
    /// Sequence of the frame that has it.
    pub sequence: u64,
    pub block: Block,
    /// The place on the data disks that was reserved when the write was admitted, so that moving it there cannot fail for
    /// space. Absent after an import: the place is found again when the block moves.
    pub place: Option<Ptr>,
    /// What of the block is known, where that is not all; the rest is where the tree says.
    pub parts: Option<Parts>,
}

/// The newest contents of a block in memory outside the cache.
pub(crate) enum Newest {
    Whole(Buf),
    /// Parts of them.
    Parts,
}

pub(crate) struct Dataset {
    /// `root`, `height` and `mapped` are those of the last checkpoint.
    pub record: RefCell<DatasetRecord>,
    pub tree: RefCell<Tree>,
    pub locks: RangeLocks,
    /// Held (as range 0) while the record is being changed.
    pub properties: RangeLocks,
    pub pending: RefCell<Pending>,
    pub staged: RefCell<BTreeMap<u64, Staged>>,
    pub sampling: Sampling,
    /// Time that packing and unpacking took since the import.
    pub packing_nanos: Cell<u64>,
    pub unpacking_nanos: Cell<u64>,
    /// What it has for itself, and the blocks that space is held for: its size if it is reserved, else 0.
    pub own: Cell<Own>,
    pub reserved: Cell<u64>,
    /// What it adds, and what of it a snapshot that the running checkpoint seals takes over.
    pub added: Cell<Added>,
    pub sealing: Cell<Added>,
    /// What its project says; nothing without one.
    pub project: Cell<ProjectProperties>,
    /// Of its project.
    pub ceiling: RefCell<Option<Arc<Ceiling>>>,
    /// Its project has reached its quota.
    pub is_full: Cell<bool>,
    /// How it is with the floor of its level.
    pub promise: Cell<(Rate, Promise)>,
    /// The turns of what clients do with it.
    pub flow: OnceCell<Flow>,
    /// Client operations in flight, and those among them that change something; deletion waits for none.
    active: Cell<usize>,
    changing: Cell<usize>,
    /// Those of them that look for room, and may wait for it with blocks locked.
    lacking: Cell<usize>,
    /// Those of them that wait for room with nothing locked and nothing queued: for a snapshot they have not begun.
    aside: Cell<usize>,
    /// A snapshot is about to be taken: no client's change starts.
    held: Cell<bool>,
    /// A move lets no client's change start.
    paused: Cell<bool>,
    idle: Turnstile,
    /// Changes that were queued without a wait for stable storage, and how many of them a flush has covered since.
    volatile: Cell<u64>,
    flushed: Cell<u64>,
    pub streams: Streams,
    pub gathering: RefCell<Gathering>,
    /// While it moves to another pool: what is not there yet as it is here.
    pub changes: RefCell<Option<Changes>>,
    /// Its record or tree is not as the last checkpoint has it: [`crate::index::Datasets`] knows its number.
    pub touched: Cell<bool>,
    /// Deleted, into the trash or for good, moved, or exported: no new client operation starts.
    pub gone: Cell<bool>,
}

/// A client operation in flight.
pub(crate) struct Active(Rc<Dataset>);

/// One that changes something.
pub(crate) struct Changing(Rc<Dataset>);

/// One of these that looks for room.
pub(crate) struct Lacking<'a>(&'a Dataset);

/// One of these that has stepped aside.
struct Aside<'a>(&'a Dataset);

impl Dataset {
    pub fn new(record: DatasetRecord, tree: Tree) -> Dataset {
        let gone =
            matches!(record.state, DatasetState::Trashed | DatasetState::Deleting | DatasetState::Moved);
        let (block_bytes, own) = (1 << record.block_shift, Cell::new(record.own));
        let gathering = RefCell::new(Gathering::new(record.blocks()));
        let dataset = Dataset {
            own,
            added: Cell::new(record.added),
            sealing: Cell::default(),
            reserved: Cell::new(0),
            project: Cell::default(),
            ceiling: RefCell::default(),
            is_full: Cell::new(false),
            record: RefCell::new(record),
            tree: RefCell::new(tree),
            locks: RangeLocks::default(),
            properties: RangeLocks::default(),
            pending: RefCell::new(Pending::new(block_bytes)),
            staged: RefCell::default(),
            sampling: Sampling::default(),
            packing_nanos: Cell::new(0),
            unpacking_nanos: Cell::new(0),
            promise: Cell::default(),
            flow: OnceCell::new(),
            active: Cell::new(0),
            changing: Cell::new(0),
            lacking: Cell::new(0),
            aside: Cell::new(0),
            held: Cell::new(false),
            paused: Cell::new(false),
            changes: RefCell::new(None),
            idle: Turnstile::default(),
            volatile: Cell::new(0),
            flushed: Cell::new(0),
            streams: Streams::new(block_bytes),
            gathering,
            touched: Cell::new(false),
            gone: Cell::new(gone),
        };
        dataset.note_reserved();
        dataset
    }

    pub fn number(&self) -> u64 {
        self.record.borrow().number
    }
    /// The record as a checkpoint would write it now.
    pub fn record_now(&self) -> DatasetRecord {
        DatasetRecord { own: self.own.get(), added: self.added.get(), ..self.record.borrow().clone() }
    }
    pub fn id(&self) -> Id {
        self.record.borrow().id
    }
    /// What the nodes of its tree belong to.
    pub fn family(&self) -> Id {
        self.record.borrow().family
    }
    /// Whether it is a volume that is there for clients and management.
    pub fn is_live(&self) -> bool {
        let record = self.record.borrow();
        record.kind == DatasetKind::Volume && record.state == DatasetState::Live
    }
    /// Whether it is being given back: nothing of it is needed any more.
    pub fn is_deleting(&self) -> bool {
        self.record.borrow().state == DatasetState::Deleting
    }
    pub fn size(&self) -> u64 {
        self.record.borrow().size
    }
    /// Whether it says that the volume is in this pool now.
    pub fn has_moved_to(&self, pool: Id) -> bool {
        let record = self.record.borrow();
        (record.state, record.peer) == (DatasetState::Moved, pool) || active(Bug::MoveLiveBeforeMark)
    }
    /// What clients are told of its size: nothing of one that is the pool's own or is being given back.
    pub fn size_told(&self) -> u64 {
        let record = self.record.borrow();
        let is_told = record.kind == DatasetKind::Volume && record.state != DatasetState::Deleting;
        if is_told { record.size } else { 0 }
    }

    /// Blocks that are durable in the log only, and have no place in the tree yet.
    pub async fn blocks_staged(&self) -> u64 {
        let (mut count, mut from, mut steps) = (0, Some(0), Steps::default());
        while let Some(next) = from.take() {
            let left = self.staged.borrow().len();
            steps.take(left.min(STAGED_LOOK)).await;
            let (tree, staged) = (self.tree.borrow(), self.staged.borrow());
            for (looked, block) in staged.range(next..).map(|(block, _)| *block).enumerate() {
                if looked == STAGED_LOOK {
                    from = Some(block);
                    break;
                }
                count += u64::from(tree.lookup(block) == Found::Hole);
            }
        }
        count
    }

    /// Nodes that changing these runs of blocks, in order, makes dirty, at most.
    pub fn nodes_over(&self, runs: impl IntoIterator<Item = Range<u64>> + Clone) -> u64 {
        nodes_over(self.tree.borrow().height(), runs)
    }

    pub fn block_bytes(&self) -> usize {
        1 << self.record.borrow().block_shift
    }
    pub fn sync(&self) -> SyncPolicy {
        let record = self.record.borrow();
        match record.inherits.has(Inherits::SYNC) {
            true => self.project.get().sync.unwrap_or_default(),
            false => record.sync,
        }
    }
    /// The id of its service level; zero for none.
    pub fn level(&self) -> Id {
        let record = self.record.borrow();
        match record.inherits.has(Inherits::LEVEL) {
            true => self.project.get().level.unwrap_or(Id(0)),
            false => record.level,
        }
    }
    pub fn compression_wanted(&self) -> Compression {
        let record = self.record.borrow();
        match record.inherits.has(Inherits::COMPRESSION) {
            true => self.project.get().compression.unwrap_or_default(),
            false => record.compression,
        }
    }
    /// None while places are held for it: these are of whole blocks.
    pub fn compression(&self) -> Compression {
        if self.reserved.get() > 0 { Compression::Off } else { self.compression_wanted() }
    }
    pub fn schedule(&self) -> SnapshotSchedule {
        let record = self.record.borrow();
        match record.inherits.has(Inherits::SCHEDULE) {
            true => self.project.get().schedule.unwrap_or_default(),
            false => record.schedule,
        }
    }

    /// Takes note of a change that may be acknowledged before it is durable.
    pub fn note_volatile(&self) {
        self.volatile.set(self.volatile.get() + 1);
    }

    /// How many changes a flush that begins now has to cover; nothing when all of them are covered.
    pub fn volatile(&self) -> Option<u64> {
        (self.volatile.get() > self.flushed.get()).then_some(self.volatile.get())
    }

    /// The first so many of these changes are durable.
    pub fn note_flushed(&self, changes: u64) {
        self.flushed.set(self.flushed.get().max(changes));
    }

    /// It is no longer here: nobody begins anything, nor waits for that any more.
    pub fn leave(&self) {
        self.gone.set(true);
        // When it comes back, others may have been promised what it was.
        self.promise.take();
        if let Some(flow) = self.flow.get() {
            flow.bounds.look_again();
        }
    }

    /// Counts a client operation in; nothing when the dataset is gone.
    pub fn begin(self: &Rc<Self>) -> Option<Active> {
        if self.gone.get() {
            return None;
        }
        self.active.set(self.active.get() + 1);
        Some(Active(self.clone()))
    }

    /// Counts a client's change in; nothing while a snapshot is about to be taken, or a move ends. What waited for something else
    /// may find that the volume has moved away meanwhile.
    pub fn try_change(self: &Rc<Self>) -> Result<Option<Changing>, IoError> {
        if self.held.get() || self.paused.get() {
            return Ok(None);
        }
        if self.gone.get() {
            return Err(IoError::Gone);
        }
        self.changing.set(self.changing.get() + 1);
        Ok(Some(Changing(self.clone())))
    }

    /// Counts a client's change in, once no snapshot is about to be taken, nor a move at its end. Who waits here holds nothing that
    /// others wait for.
    pub async fn begin_change(self: &Rc<Self>) -> Result<Changing, IoError> {
        loop {
            self.idle.until(|| !self.held.get() && !self.paused.get()).await;
            if let Some(changing) = self.try_change()? {
                return Ok(changing);
            }
        }
    }

    /// Lets no client's change start until it is told otherwise.
    pub fn hold(&self, held: bool) {
        self.held.set(held);
        self.idle.changed();
    }

    /// The same for a move, which snapshots of other volumes do not end.
    pub fn pause(&self, paused: bool) {
        self.paused.set(paused);
        self.idle.changed();
    }

    /// Takes note of blocks that are new, for a move.
    pub fn note_changed(&self, first: u64, end: u64) {
        if let Some(changes) = &mut *self.changes.borrow_mut() {
            changes.mark(first, end);
        }
    }

    /// Whether a client's change was begun and has not ended.
    pub fn is_changing(&self) -> bool {
        self.changing.get() > 0
    }

    /// Takes note of a change that looks for places and nodes.
    pub fn lacking(&self) -> Lacking<'_> {
        self.lacking.set(self.lacking.get() + 1);
        Lacking(self)
    }

    /// Whether a node of its tree is stored here, and what is there must not be written over before it is elsewhere.
    pub fn has_node(&self, level: u8, index: u64, home: Ptr) -> bool {
        self.tree.borrow().stored_at(level, index).is_ok_and(|(at, _)| at == home)
    }

    /// Whether a change looks for room.
    pub fn lacks_places(&self) -> bool {
        self.lacking.get() > 0
    }

    /// Has a change wait for room that a checkpoint may bring. A snapshot that is about to be taken goes first: it waits in a checkpoint, and no other
    /// one comes before it is over. Not to be called with blocks locked or anything queued. Afterwards the volume may have gone back to what it was.
    pub async fn aside<T>(&self, wait: impl Future<Output = T>) -> T {
        self.aside.set(self.aside.get() + 1);
        let _aside = Aside(self);
        let found = wait.await;
        self.idle.until(|| !self.held.get()).await;
        found
    }

    /// Whether a change may have room in hand that it has not used yet.
    pub fn has_aside(&self) -> bool {
        self.aside.get() > 0
    }

    /// Whether all that was begun is in the tree.
    pub fn is_settled(&self) -> bool {
        self.changing.get() == self.aside.get()
            && self.locks.is_free()
            && self.pending.borrow().is_empty()
            && self.staged.borrow().is_empty()
    }

    /// Whether the pool itself may write blocks of it anew, elsewhere.
    pub fn may_move(&self) -> bool {
        !self.is_deleting() && !self.held.get()
    }

    /// Waits until no client operation is in flight.
    pub async fn quiesce(&self) {
        self.idle.until(|| self.active.get() == 0).await;
    }

    /// The newest contents of a block that are in memory outside the cache.
    pub fn newest(&self, block: u64, for_client: bool) -> Option<Newest> {
        let pending = self.pending.borrow();
        if !pending.is_empty()
            && let Some(data) = pending.get(block, for_client)
        {
            return Some(Newest::Whole(data));
        }
        self.staged.borrow().get(&block).map(|staged| match staged.parts {
            None => Newest::Whole(staged.block.data.clone()),
            Some(_) if active(Bug::PartsReadAsWhole) => Newest::Whole(staged.block.data.clone()),
            Some(_) => Newest::Parts,
        })
    }

    /// Takes the staged blocks among `first..end` out, in order.
    pub fn take_staged(&self, first: u64, end: u64) -> Vec<(u64, Staged)> {
        self.staged.borrow_mut().extract_if(first..end, |_, _| true).collect()
    }

    /// The first of the blocks `first..end` whose newest contents may be in memory outside the cache.
    pub fn first_newer(&self, first: u64, end: u64) -> Option<u64> {
        let staged = self.staged.borrow().range(first..end).next().map(|(block, _)| *block);
        staged.into_iter().chain(self.pending.borrow().first_of(first, end)).min()
    }

    /// Whether what was written of a block since it was stored is all of it.
    pub fn is_written_anew(&self, block: u64) -> bool {
        let is_whole = |staged: &Staged| staged.parts.is_none();
        self.pending.borrow().overlaps(block, block + 1)
            || self.staged.borrow().get(&block).is_some_and(is_whole)
    }

    /// Whether there is something of the blocks `first..end` whose newest contents may be in memory outside the cache.
    pub fn has_newer(&self, first: u64, end: u64) -> bool {
        self.pending.borrow().overlaps(first, end) || self.staged.borrow().range(first..end).next().is_some()
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.changing.set(self.0.changing.get() - 1);
    }
}

impl Drop for Lacking<'_> {
    fn drop(&mut self) {
        self.0.lacking.set(self.0.lacking.get() - 1);
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        self.0.aside.set(self.0.aside.get() - 1);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
        if self.0.active.get() == 0 {
            self.0.idle.changed();
        }
    }
}
