//! Deletion: giving back what nothing but a deleted volume or snapshot has.
//!
//! Trees are positional, so what a snapshot alone has is found without a list of what died: walk its tree beside that of its
//! only *child*, the dataset that grew from it. Where both have the same node, everything below it is shared. What was
//! born before the snapshot's own parent was sealed belongs to that as well. The rest is the snapshot's own, and each
//! node that is looked at on the way is freed at the end: deletion costs what it frees.
//!
//! A deleted volume becomes a snapshot without a child once its tree has come to rest.
//!
//! The walk goes from left to right, and how far it has come (the *cursor*) is in the record that checkpoints write, in the same freeze
//! as what was freed: after a crash it goes on where the last checkpoint was. It takes its steps only while no checkpoint is
//! between its freeze and its superblock. Left of the cursor the child owns what it shared with the snapshot.

use crate::added::Added;
use crate::dataset::Dataset;
use crate::deletion_order::Order;
use crate::entry::{Change, Entry};
use crate::error::IoError;
use crate::lineage::Snapshot;
use crate::record::{DatasetKind, DatasetRecord};
use crate::reserve::Claim;
use crate::shard::Shard;
use crate::spec::Severity;
use crate::steps::ITEMS_MAX;
use crate::turns::Turn;
use forebay_base::planted::{Bug, active};
use forebay_qos::{Task, Work};
use forebay_space::Ptr;
use forebay_tree::{FANOUT, LeafState, NODE_BYTES, NodeHeader, Unread, decode_ptrs, leaves_end};
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Leaves that are read together.
const BATCH: usize = 16;
/// Places freed in one period after which a checkpoint is worth its cost.
const FREED_MAX: u64 = 64 << 10;
/// How often a count begins anew when what it goes through changes or is given back.
const COUNT_TRIES: u32 = 8;
/// Runs of staged blocks that are dropped with one entry.
const RUNS_MAX: usize = 256;
/// Between looks whether a checkpoint has done with a leaf.
const CHECKPOINT_LOOK: Duration = Duration::from_millis(1);

/// Bytes of blocks that a snapshot has and its child has not.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub all: u64,
    /// Without those that older snapshots have, too.
    pub unique: u64,
}

/// Who grew from the snapshot that is walked.
#[derive(Clone)]
enum Child {
    Nobody,
    Volume(Rc<Dataset>),
    Snapshot(Rc<Snapshot>),
}

/// A node of the snapshot, and where the child's node at the same place is stored, if that is a snapshot.
#[derive(Clone, Copy)]
struct Place {
    level: u8,
    index: u64,
    own: Ptr,
    child: Ptr,
}

impl Place {
    /// The first leaf below.
    fn first(&self) -> u64 {
        self.index.saturating_mul(FANOUT.saturating_pow(u32::from(self.level)))
    }

    /// The leaf after the last one below.
    fn end(&self) -> u64 {
        leaves_end(self.level, self.index)
    }
}

/// Why a walk ends before its end.
#[derive(Debug)]
enum Halt {
    /// A snapshot was taken meanwhile, which may have come between.
    ChildChanged,
    Failed(IoError),
}

impl From<IoError> for Halt {
    fn from(error: IoError) -> Halt {
        Halt::Failed(error)
    }
}

/// A walk over what a snapshot has and its child has not.
struct Walk<'a> {
    shard: &'a Rc<Shard>,
    snapshot: Rc<Snapshot>,
    child: Child,
    /// The epoch of the snapshot's parent: what was born up to then is that one's.
    limit: u64,
    /// The shard's when it was last looked who the child is.
    epoch: Cell<u64>,
    /// The nodes that the walk is below, from the root on.
    above: RefCell<Vec<Place>>,
    /// Where it only counts and frees nothing.
    counted: Option<Cell<Kept>>,
    freed: Cell<u64>,
}

impl Shard {
    /// The task that deletes, one dataset after the other, until the shard stops.
    pub async fn deletion_task(self: Rc<Self>) {
        let mut order = Order::default();
        loop {
            while !self.stopping.get() && !self.is_suspended() {
                if let Some(dataset) = self.next_gone() {
                    self.begin_deleting();
                    if self.lay_to_rest(&dataset).await.is_err() {
                        break;
                    }
                } else if let Some(snapshot) = self.next_deleted(&mut order).await {
                    self.begin_deleting();
                    order.goes(&snapshot);
                    match self.delete_snapshot(&snapshot).await {
                        Ok(()) => {}
                        // It goes on from its cursor, beside the new child.
                        Err(Halt::ChildChanged) => order.was_halted(),
                        Err(Halt::Failed(error)) => self.tell_stuck(&snapshot, error),
                    }
                } else {
                    break;
                }
            }
            if self.stopping.get() {
                return;
            }
            self.deletes.set(false);
            self.deletion_work.wait().await;
        }
    }

    fn begin_deleting(&self) {
        self.deletes.set(true);
        self.note_deletion();
    }

    fn tell_stuck(&self, snapshot: &Snapshot, error: IoError) {
        snapshot.stuck.set(true);
        if !matches!(error, IoError::Gone | IoError::Suspended) {
            let (object, record) = (&self.shared.name, snapshot.record.borrow());
            let message = format!(
                "the deletion of '{}' cannot continue ({error}), and the space of the remainder stays in use. It is tried again \
                 after the next import",
                record.name
            );
            self.event(Severity::Error, "deletion.stuck", object, message);
        }
    }

    /// Makes a snapshot without a child of a deleted volume. What has no blocks goes at once.
    async fn lay_to_rest(self: &Rc<Self>, dataset: &Rc<Dataset>) -> Result<(), IoError> {
        if !dataset.record.borrow().kind.has_blocks() {
            self.between_checkpoints().await?;
            self.datasets.borrow_mut().remove(dataset.number());
            return Ok(());
        }
        dataset.quiesce().await;
        let number = dataset.number();
        // What the pool itself has begun to move ends, and nothing more is moved.
        drop(dataset.locks.lock(0, u64::MAX).await);
        loop {
            self.drop_staged(dataset).await?;
            if !self.next_checkpoint().await {
                return Err(IoError::Suspended);
            }
            let is_at_rest = dataset.is_settled() && !dataset.tree.borrow().is_dirty();
            if is_at_rest && !self.checkpointing.get() {
                break;
            }
        }
        // If this fails, an import goes on from here.
        self.forget_attributes(number).await?;
        self.forget_bookmarks(number).await?;
        self.between_checkpoints().await?;
        let record = dataset.record.borrow().clone();
        self.datasets.borrow_mut().remove(number);
        let kind = DatasetKind::Snapshot;
        let (epoch, added) = (self.epoch.get(), dataset.added.get());
        let rest = DatasetRecord { kind, epoch, volume: number, cursor: 0, added, ..record };
        self.snapshots.borrow_mut().insert(Snapshot::new(rest));
        Ok(())
    }

    /// Forgets what of a volume is durable in the log only.
    async fn drop_staged(self: &Rc<Self>, dataset: &Rc<Dataset>) -> Result<(), IoError> {
        loop {
            let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
            for &block in dataset.staged.borrow().keys().take(ITEMS_MAX) {
                let is_full = runs.len() == RUNS_MAX;
                match runs.last_mut() {
                    Some(run) if run.end == block => run.end += 1,
                    _ if is_full => break,
                    _ => runs.push(block..block + 1),
                }
            }
            let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return Ok(()) };
            let _guard = dataset.locks.lock(first.start, last.end - 1).await;
            let nodes = self.reserve_nodes(dataset.nodes_over(runs.iter().cloned()), Claim::Urgent).await?;
            let clear = |run: std::ops::Range<u64>| Change::Clear {
                dataset: dataset.clone(),
                first: run.start,
                count: run.end - run.start,
            };
            let changes = runs.into_iter().map(clear).collect();
            let mut entry = Entry::new(self.entry_id(), changes, true);
            entry.nodes = Some(nodes);
            let done = entry.awaited();
            self.submit(entry);
            done.await?;
        }
    }

    /// Waits until no checkpoint is between its freeze and its superblock.
    pub async fn between_checkpoints(&self) -> Result<(), IoError> {
        let is_over = || !self.checkpointing.get() || self.stopping.get() || self.is_suspended();
        if !is_over() {
            self.progress.until(is_over).await;
        }
        match (self.stopping.get(), self.is_suspended()) {
            (true, _) => Err(IoError::Gone),
            (_, true) => Err(IoError::Suspended),
            _ => Ok(()),
        }
    }

    fn child_of(&self, snapshot: u64) -> Child {
        let (volume, child) = (self.volumes_from(snapshot).pop(), self.snapshots_from(snapshot).pop());
        match (volume, child) {
            (_, Some(child)) => Child::Snapshot(child),
            (Some(volume), None) => Child::Volume(volume),
            (None, None) => Child::Nobody,
        }
    }

    /// Frees what nothing but the snapshot has, and forgets it.
    async fn delete_snapshot(self: &Rc<Self>, snapshot: &Rc<Snapshot>) -> Result<(), Halt> {
        self.between_checkpoints().await?;
        let record = snapshot.record.borrow().clone();
        let shared = self.shared_with(Some(record.number));
        let walk = Walk {
            shard: self,
            snapshot: snapshot.clone(),
            child: self.child_of(record.number),
            limit: if active(Bug::DeletionIgnoresParent) { 0 } else { shared.before },
            epoch: self.epoch.clone(),
            above: RefCell::default(),
            counted: None,
            freed: Cell::new(0),
        };
        walk.pass(record.cursor);
        walk.whole().await?;
        walk.step().await?;
        let rest = match active(Bug::RestNotGivenToChild) {
            true => Added::default(),
            false => snapshot.record.borrow().added,
        };
        match &walk.child {
            Child::Nobody => {}
            Child::Volume(volume) => {
                volume.added.set(volume.added.get().and(rest));
                let mut datasets = self.datasets.borrow_mut();
                datasets.change(volume.number(), |volume| volume.parent = record.parent);
                drop(datasets);
                volume.tree.borrow_mut().shared = self.shared_with(record.parent);
                if record.parent.is_none() {
                    self.all_is_own(volume);
                }
            }
            Child::Snapshot(child) => {
                self.snapshots.borrow_mut().change(child.number(), |child| {
                    (child.parent, child.added) = (record.parent, child.added.and(rest));
                });
            }
        }
        // What older snapshots have for themselves has changed.
        self.kept_since.set(self.kept_since.get() + 1);
        self.snapshots.borrow_mut().remove(record.number);
        Ok(())
    }

    /// What a snapshot has that its child has not.
    pub async fn kept_by(self: &Rc<Self>, snapshot: &Rc<Snapshot>) -> Result<Kept, IoError> {
        if let Some((_, kept)) = snapshot.kept.get().filter(|(since, _)| *since == self.kept_since.get()) {
            return Ok(kept);
        }
        let (number, since) = (snapshot.number(), self.kept_since.get());
        for _ in 0..COUNT_TRIES {
            let child = self.child_of(number);
            let is_final = matches!(child, Child::Snapshot(_));
            let walk = Walk {
                shard: self,
                snapshot: snapshot.clone(),
                child,
                limit: self.shared_with(Some(number)).before,
                epoch: self.epoch.clone(),
                above: RefCell::default(),
                counted: Some(Cell::default()),
                freed: Cell::new(0),
            };
            match walk.whole().await {
                Ok(()) => {}
                Err(Halt::ChildChanged) => continue,
                Err(Halt::Failed(error)) => return Err(error),
            }
            let kept = walk.counted.map(Cell::into_inner).unwrap_or_default();
            if is_final {
                snapshot.kept.set(Some((since, kept)));
            }
            return Ok(kept);
        }
        Err(IoError::Gone)
    }
}

impl Walk<'_> {
    async fn root(&self) -> Result<Place, Halt> {
        let (level, own) = {
            let record = self.snapshot.record.borrow();
            (record.height, record.root)
        };
        let (mut height, mut child) = match &self.child {
            Child::Snapshot(child) => (child.record.borrow().height, child.record.borrow().root),
            Child::Nobody | Child::Volume(_) => (level, Ptr::HOLE),
        };
        // A volume that has grown is higher: what it was is on the left.
        while height > level {
            let place = Place { level: height, index: 0, own: Ptr::HOLE, child };
            child = self.read_stable(&place, child).await?[0];
            height -= 1;
        }
        Ok(Place { level, index: 0, own, child })
    }

    fn header(&self, level: u8, index: u64) -> NodeHeader {
        let owner = self.snapshot.record.borrow().family;
        NodeHeader::of_blocks(self.shard.shared.id, owner, level, index)
    }

    /// The pointers of a node; nothing when it cannot be read since it is the snapshot's, or its child's, no longer.
    async fn read(&self, place: &Place, ptr: Ptr) -> Result<Option<Vec<Ptr>>, IoError> {
        if ptr.is_hole() {
            return Ok(Some(vec![Ptr::HOLE; FANOUT as usize]));
        }
        let still = || {
            let is_of_child = ptr == place.own || self.child_at(place).is_ok_and(|(home, _)| home == ptr);
            is_of_child && (self.counted.is_none() || self.is_live())
        };
        let body = self.shard.read_node(&self.header(place.level, place.index), ptr, &still, &still).await?;
        Ok(body.map(|body| decode_ptrs(&body)))
    }

    /// A leaf is read once more, since its child has changed: that has no turn.
    fn counted_read(&self) -> Turn {
        self.shard.unasked(Task::Deletion, Work::read(NODE_BYTES as u64, 1))
    }

    /// The pointers of a node that only a change of who grew from whom can take away.
    async fn read_stable(&self, place: &Place, ptr: Ptr) -> Result<Vec<Ptr>, Halt> {
        self.read(place, ptr).await?.ok_or(Halt::ChildChanged)
    }

    /// Whether what the walk goes through is there to stay: neither the snapshot nor its child is being deleted.
    fn is_live(&self) -> bool {
        let child_is_live = match &self.child {
            Child::Nobody => true,
            Child::Volume(volume) => !volume.is_deleting(),
            Child::Snapshot(child) => child.is_live(),
        };
        self.snapshot.is_live() && child_is_live
    }

    /// Nobody but the snapshot can have it, as far as its birth tells.
    fn is_recent(&self, ptr: &Ptr) -> bool {
        !ptr.is_hole() && ptr.birth() > self.limit
    }

    /// Waits until the next step may be taken; what is looked at afterwards stays as it is until somebody is awaited.
    async fn step(&self) -> Result<(), Halt> {
        if self.counted.is_none() {
            self.shard.between_checkpoints().await?;
        }
        // Only a checkpoint that seals changes who the child is.
        let epoch = self.shard.epoch.get();
        if self.epoch.replace(epoch) != epoch && !self.is_same_child() {
            return Err(Halt::ChildChanged);
        }
        Ok(())
    }

    fn is_same_child(&self) -> bool {
        match (&self.child, self.shard.child_of(self.snapshot.number())) {
            (Child::Nobody, Child::Nobody) => true,
            (Child::Volume(known), Child::Volume(now)) => Rc::ptr_eq(known, &now),
            (Child::Snapshot(known), Child::Snapshot(now)) => Rc::ptr_eq(known, &now),
            _ => false,
        }
    }

    /// The leaves before `end` are done, and so are the nodes above that end there: they go in the same step.
    fn pass(&self, end: u64) {
        if self.counted.is_some() {
            return;
        }
        let above = self.above.borrow();
        above.iter().rev().take_while(|place| place.end() == end).for_each(|place| self.free_node(place));
        self.snapshot.record.borrow_mut().cursor = end;
        self.shard.snapshots.borrow().touch(self.snapshot.number());
        if let Child::Volume(volume) = &self.child
            && !active(Bug::DeletionForgetsCursor)
        {
            let shared = self.shard.shared_with(volume.record.borrow().parent);
            volume.tree.borrow_mut().shared = shared;
        }
    }

    fn free_block(&self, ptr: &Ptr) {
        match &self.counted {
            None => {
                let mut record = self.snapshot.record.borrow_mut();
                record.added = record.added.without_blocks(&[*ptr]);
                self.shard.snapshots.borrow().touch(record.number);
                self.shard.space.borrow_mut().freed(ptr);
            }
            Some(counted) => {
                let (bytes, mut kept) = (u64::from(ptr.bytes()), counted.get());
                kept.all += bytes;
                kept.unique += if self.is_recent(ptr) { bytes } else { 0 };
                counted.set(kept);
            }
        }
        self.freed.set(self.freed.get() + 1);
    }

    /// Where the child's node at a place is stored, and whether all below is stored as it is.
    fn child_at(&self, place: &Place) -> Result<(Ptr, bool), Unread> {
        match &self.child {
            Child::Nobody => Ok((Ptr::HOLE, true)),
            Child::Volume(volume) => volume.tree.borrow().stored_at(place.level, place.index),
            Child::Snapshot(_) => Ok((place.child, true)),
        }
    }

    /// A node of the child that has to be read before it is known what it has at a place and at those above it.
    fn unseen(&self, place: &Place) -> Option<(&Rc<Dataset>, Unread)> {
        let Child::Volume(volume) = &self.child else { return None };
        let above = self.above.borrow();
        let unread = above.iter().chain([place]).find_map(|place| self.child_at(place).err());
        unread.map(|node| (volume, node))
    }

    /// Has in memory what the child has at a place and at those above it.
    async fn see(&self, place: &Place) -> Result<(), IoError> {
        while let Some((volume, node)) = self.unseen(place) {
            self.shard.read_above(volume, node).await?;
        }
        Ok(())
    }

    /// A step that looks at a place: what holds after a step, holds after this, and what the child has there is in memory.
    async fn step_to(&self, place: &Place) -> Result<(), Halt> {
        loop {
            self.step().await?;
            match self.unseen(place) {
                None => return Ok(()),
                Some((volume, node)) => self.shard.read_above(volume, node).await?,
            }
        }
    }

    /// Whether there is something to do below a place.
    fn is_open(&self, place: &Place) -> bool {
        match self.counted {
            Some(_) => !place.own.is_hole(),
            None => self.is_recent(&place.own) && place.end() > self.snapshot.record.borrow().cursor,
        }
    }

    /// Whether the child has the same at a place, all of it. It was seen.
    fn is_shared(&self, place: &Place) -> bool {
        let (first, end) = (place.first() * FANOUT, place.end().saturating_mul(FANOUT));
        let is_newer = |volume: &Rc<Dataset>| self.counted.is_some() && volume.has_newer(first, end);
        self.child_at(place) == Ok((place.own, true))
            && !matches!(&self.child, Child::Volume(volume) if is_newer(volume))
    }

    async fn whole(&self) -> Result<(), Halt> {
        self.visit(self.root().await?).await
    }

    /// Frees what only the snapshot has below a node, and the node.
    async fn visit(&self, place: Place) -> Result<(), Halt> {
        if !self.is_open(&place) {
            return Ok(());
        }
        if place.level == 0 {
            return self.visit_leaves(&[place]).await;
        }
        self.step_to(&place).await?;
        if self.is_shared(&place) {
            self.pass(place.end());
            return Ok(());
        }
        let below = self.below(&place).await?;
        self.above.borrow_mut().push(place);
        if place.level == 1 {
            for batch in below.chunks(BATCH.min(self.shard.turns.places_max())) {
                self.visit_leaves(batch).await?;
            }
        } else {
            for place in below {
                Box::pin(self.visit(place)).await?;
            }
        }
        self.step_to(&place).await?;
        if self.is_open(&place) {
            self.pass(place.end());
        }
        self.above.borrow_mut().pop();
        Ok(())
    }

    /// The places of the children of a node.
    async fn below(&self, place: &Place) -> Result<Vec<Place>, Halt> {
        let own = self.read_stable(place, place.own).await?;
        let child = self.read_stable(place, place.child).await?;
        let (level, first) = (place.level - 1, place.index * FANOUT);
        let place = |((own, child), index)| Place { level, index, own, child };
        Ok(own.into_iter().zip(child).zip(first..).map(place).collect())
    }

    async fn visit_leaves(&self, places: &[Place]) -> Result<(), Halt> {
        let mut pace = self.shard.pace(Task::Deletion);
        pace.step_soon(Work::read((places.len() * NODE_BYTES) as u64, places.len())).await;
        // All at once; what the child has may be something else when its turn comes, and is then read again.
        let read = places.iter().filter(|place| self.is_open(place)).map(|place| async move {
            self.see(place).await?;
            if self.is_shared(place) {
                return Ok::<_, Halt>((place, None));
            }
            let own = self.read_stable(place, place.own).await?;
            let child = match self.leaf_of_child(place) {
                ChildLeaf::Stored(home) => self.read(place, home).await?.map(|ptrs| (home, ptrs)),
                ChildLeaf::Here(_) | ChildLeaf::Changed(_) | ChildLeaf::Unread => None,
            };
            Ok((place, Some((own, child))))
        });
        let read = join_all(read).await;
        // What follows may wait for a checkpoint: with a turn, others would, too.
        pace.end();
        let mut has_read = false;
        for read in read {
            let (place, read) = read?;
            self.step_to(place).await?;
            if self.is_shared(place) {
                self.pass(place.end());
                continue;
            }
            has_read = true;
            let (own, child) = match read {
                Some(read) => read,
                None => {
                    let _turn = self.counted_read();
                    (self.read_stable(place, place.own).await?, None)
                }
            };
            self.visit_leaf(place, own, child).await?;
        }
        if has_read {
            pace.rest().await;
        }
        if self.counted.is_none() && self.freed.get() > FREED_MAX {
            self.freed.set(0);
            self.shard.want_checkpoint();
        }
        Ok(())
    }

    /// Frees what only the snapshot has of a leaf with these pointers; the child's are known as they are at some home.
    async fn visit_leaf(
        &self,
        place: &Place,
        own: Vec<Ptr>,
        mut read: Option<(Ptr, Vec<Ptr>)>,
    ) -> Result<(), Halt> {
        loop {
            let counted = match (&self.child, &self.counted) {
                (Child::Volume(volume), Some(_)) => {
                    let mut ptrs = self.shard.leaf_pointers(volume, place.index).await?;
                    // What is on its way to the tree will replace what is there.
                    let blocks = place.index * FANOUT..;
                    let newer =
                        ptrs.iter_mut().zip(blocks).filter(|(_, block)| volume.has_newer(*block, block + 1));
                    newer.for_each(|(ptr, _)| *ptr = Ptr::HOLE);
                    Some(ptrs)
                }
                _ => None,
            };
            self.step_to(place).await?;
            let child = match counted {
                Some(ptrs) => ptrs,
                None => match self.leaf_of_child(place) {
                    ChildLeaf::Here(ptrs) => ptrs,
                    ChildLeaf::Stored(home) => match read.take().filter(|(at, _)| *at == home) {
                        Some((_, ptrs)) => ptrs,
                        None => {
                            let _turn = self.counted_read();
                            read = self.read(place, home).await?.map(|ptrs| (home, ptrs));
                            // Who only counts keeps no node that goes with a snapshot or a volume.
                            if read.is_none() && self.counted.is_some() && !self.is_live() {
                                return Err(Halt::ChildChanged);
                            }
                            continue;
                        }
                    },
                    ChildLeaf::Changed(home) => {
                        self.load(place, home).await?;
                        continue;
                    }
                    ChildLeaf::Unread => continue,
                },
            };
            let is_own =
                |own: &Ptr| if self.counted.is_some() { !own.is_hole() } else { self.is_recent(own) };
            let gone = own.iter().zip(&child).filter(|(own, child)| own != child && is_own(own));
            gone.for_each(|(own, _)| self.free_block(own));
            self.free_node(place);
            self.pass(place.end());
            return Ok(());
        }
    }

    /// The node goes, unless it is the child's, too.
    fn free_node(&self, place: &Place) {
        let is_childs = || self.child_at(place).expect("it was seen").0 == place.own;
        if self.counted.is_none() && !is_childs() {
            self.shard.space.borrow_mut().freed(&place.own);
        }
    }

    /// What the child has in place of a leaf.
    fn leaf_of_child(&self, place: &Place) -> ChildLeaf {
        let holes = || ChildLeaf::Here(vec![Ptr::HOLE; FANOUT as usize]);
        match &self.child {
            Child::Nobody => holes(),
            Child::Snapshot(_) => ChildLeaf::Stored(place.child),
            Child::Volume(volume) => match volume.tree.borrow().leaf_state(place.index) {
                Err(_) => ChildLeaf::Unread,
                Ok(LeafState::Hole) => holes(),
                Ok(LeafState::Loaded(ptrs)) => ChildLeaf::Here(ptrs.iter().collect()),
                Ok(LeafState::Stored { home, changed: false }) => ChildLeaf::Stored(home),
                Ok(LeafState::Stored { home, changed: true }) => ChildLeaf::Changed(home),
            },
        }
    }

    /// Brings a leaf of the child into memory: what its changes replaced is known then.
    async fn load(&self, place: &Place, home: Ptr) -> Result<(), IoError> {
        let Child::Volume(volume) = &self.child else { return Ok(()) };
        let turn = self.counted_read();
        let (Some(ptrs), leaf) = (self.read(place, home).await?, place.index) else { return Ok(()) };
        drop(turn);
        let mut freed = Vec::new();
        if self.shard.change_tree(volume, |tree| tree.load_leaf(leaf, home, ptrs, &mut freed)) {
            self.shard.let_go(volume, &freed);
            self.shard.leaf_loaded(volume.number(), leaf);
        } else {
            // A checkpoint has it, and soon no more.
            self.shard.rt.sleep(CHECKPOINT_LOOK).await;
        }
        Ok(())
    }
}

/// A leaf of the child.
enum ChildLeaf {
    Here(Vec<Ptr>),
    Stored(Ptr),
    /// With changes in memory that are not merged with it.
    Changed(Ptr),
    /// A node above it has to be read to know.
    Unread,
}
