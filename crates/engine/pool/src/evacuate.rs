//! Evacuation: moving what is in some chunks elsewhere, so that the chunks can go to whoever needs them.
//!
//! Chunks move between shards whole and empty. After random overwrites a shard may hold every chunk of a pool, each
//! partly used: nobody else gets space that the pool does have, and larger blocks find no hole in chunks of smaller ones.
//! When a shard asks for a chunk and there is none, the coordinator has the shard with the emptiest chunks *close* some
//! of them (nothing is allocated there any more) and write their live blocks anew into its other chunks' holes. Two
//! checkpoints later the chunks are empty on disk too and leave.
//!
//! Pointers do not say who points: a pass walks the shard's trees and moves what lies in the closed chunks. Blocks that a
//! client holds locked are left alone; the chunk then stays, with its holes, for the next time.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::entry::{Change, Entry};
use crate::error::{Error, ErrorKind, IoError};
use crate::interiors::Hidden;
use crate::pack::Block;
use crate::places::PlacesClaim;
use crate::registry::{call, registry};
use crate::reserve::{Claim, Units};
use crate::shard::Shard;
use crate::slots::DATA;
use crate::steps::Steps;
use crate::turns::Pace;
use crate::wanted::Wanted;
use async_recursion::async_recursion as boxed;
use forebay_base::planted::{Bug, active};
use forebay_qos::Work;
use forebay_runtime::completion;
use forebay_space::{ChunkId, Ptr, Size};
use forebay_tree::{FANOUT, Found, NODE_BYTES, NodeHeader, decode_ptrs};
use futures_util::stream::{self, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;
use std::rc::Rc;

/// Bytes that one entry moves: enough for a large write, little enough that a client's commit does not wait long behind it.
const MOVE_BYTES: usize = 512 << 10;
/// The same where moving goes by way of the log.
const MOVE_BYTES_LOGGED: usize = 64 << 10;
/// Blocks that are read at a time to be moved.
const READS: usize = 8;

/// Which blocks of a leaf the pool writes anew, and where.
#[derive(Clone, Copy)]
pub(crate) enum Moving<'a> {
    /// Those in chunks that are being emptied, wherever there is room.
    OutOf(&'a BTreeSet<ChunkId>),
    /// All of them, to lie beside each other ([`crate::gather`]).
    Together,
}

impl Moving<'_> {
    fn wants(&self, ptr: &Ptr) -> bool {
        match self {
            Moving::OutOf(closed) => is_inside(ptr, closed),
            Moving::Together => !ptr.is_hole(),
        }
    }

    fn claim(&self) -> Claim {
        match self {
            Moving::OutOf(_) => Claim::Moved,
            Moving::Together => Claim::Gathered,
        }
    }
}

impl Shard {
    /// Asks for space that other shards, or other chunks of this one, hold scattered. True when there may be some now.
    pub async fn reclaim(self: &Rc<Self>) -> bool {
        self.reclaim_for(vec![(DATA, 1)]).await
    }

    /// The same, for chunks of so many units.
    #[boxed(?Send)]
    pub async fn reclaim_for(&self, wanted: Vec<Units>) -> bool {
        let pool = self.shared.id;
        let reclaimed = call(self.shared.cores.core(0), move |rt| async move {
            match registry(&rt).control(pool) {
                Some(control) => control.reclaim(wanted).await,
                None => false,
            }
        });
        reclaimed.await.unwrap_or(false)
    }

    /// Has chunks of this shard emptied, of which gathering may take as many as that gives the pool.
    pub async fn empty_some(self: &Rc<Self>) -> bool {
        let (pool, index) = (self.shared.id, self.index);
        let emptied = call(self.shared.cores.core(0), move |rt| async move {
            match registry(&rt).control(pool) {
                Some(control) => control.empty_some(index).await,
                None => 0,
            }
        });
        self.emptied.set(emptied.await.unwrap_or(0));
        self.emptied.get() > 0
    }

    /// Moves what can be moved out of the emptiest data chunks and leaves them closed. False when there is nothing to be
    /// won.
    async fn evacuate_emptiest(self: &Rc<Self>) -> bool {
        let closed: BTreeSet<ChunkId> = self.space.borrow().emptiest().into_iter().collect();
        if closed.is_empty() {
            return false;
        }
        self.space.borrow_mut().close(closed.clone());
        let (mut number, mut steps) = (0, Steps::default());
        while let Some(dataset) = self.next_dataset(number) {
            number = dataset.number() + 1;
            steps.take(1).await;
            if self.evacuate_dataset(&dataset, &closed, &mut steps).await.is_err() {
                // What was moved until here may be enough.
                break;
            }
        }
        if self.space.borrow().has_lines() {
            self.drain().await;
        }
        true
    }

    async fn evacuate_dataset(
        self: &Rc<Self>,
        dataset: &Rc<Dataset>,
        closed: &BTreeSet<ChunkId>,
        steps: &mut Steps,
    ) -> Result<(), IoError> {
        self.replace_staged(dataset, closed).await?;
        let mut next = 0;
        loop {
            // In a leaf that is in memory there may be nothing to wait for.
            steps.take(FANOUT as usize).await;
            let leaf = match self.next_leaf(dataset, next).await {
                Ok(Some(leaf)) => leaf,
                Ok(None) => return Ok(()),
                // What cannot be read stays where it is.
                Err(Hidden { error: IoError::Corrupt | IoError::Io, end }) => {
                    next = end;
                    continue;
                }
                Err(hidden) => return Err(hidden.error),
            };
            if self.stopping.get() {
                return Err(IoError::Gone);
            }
            next = leaf + 1;
            // Somebody waits for the space, of whatever level.
            match self.move_leaf(dataset, leaf, Moving::OutOf(closed), None).await {
                Ok(_) | Err(IoError::Corrupt | IoError::Io) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes blocks of a leaf anew; how many bytes. In turn with others where it goes at a pace.
    pub async fn move_leaf(
        self: &Rc<Self>,
        dataset: &Rc<Dataset>,
        leaf: u64,
        which: Moving<'_>,
        mut pace: Option<&mut Pace>,
    ) -> Result<u64, IoError> {
        let bytes = if self.space.borrow().has_lines() { MOVE_BYTES_LOGGED } else { MOVE_BYTES };
        let run_max = (bytes / dataset.block_bytes()).max(1);
        let wanted: Vec<bool> = {
            let ptrs = self.leaf_pointers_in_turn(dataset, leaf, pace.as_deref_mut()).await?;
            ptrs.iter().map(|ptr| which.wants(ptr) && self.may_move(dataset, ptr, leaf)).collect()
        };
        let (mut at, mut moved) = (0, 0);
        while at < wanted.len() {
            let run = wanted[at..].iter().take_while(|wanted| **wanted).count().min(run_max);
            if run > 0 {
                let first = leaf * FANOUT + at as u64;
                let done = self.move_blocks(dataset, first, run, which, pace.as_deref_mut()).await;
                if let Some(pace) = &mut pace {
                    pace.rest().await;
                }
                moved += done?;
            }
            at += run.max(1);
        }
        Ok(moved)
    }

    /// All pointers of a leaf, for whose reading it may have to wait for its turn.
    pub async fn leaf_pointers_in_turn(
        &self,
        dataset: &Dataset,
        leaf: u64,
        pace: Option<&mut Pace>,
    ) -> Result<Vec<Ptr>, IoError> {
        let Some(pace) = pace.filter(|_| !dataset.tree.borrow().is_loaded(0, leaf)) else {
            return self.leaf_pointers(dataset, leaf).await;
        };
        pace.step_soon(Work::read(NODE_BYTES as u64, 1)).await;
        let ptrs = self.leaf_pointers(dataset, leaf).await;
        pace.rest().await;
        ptrs
    }

    /// All pointers of a leaf, as the tree in memory has them.
    pub async fn leaf_pointers(&self, dataset: &Dataset, leaf: u64) -> Result<Vec<Ptr>, IoError> {
        loop {
            let found: Vec<Found> = {
                let tree = dataset.tree.borrow();
                (leaf * FANOUT..(leaf + 1) * FANOUT).map(|block| tree.lookup(block)).collect()
            };
            let unread = found.iter().find_map(|found| match found {
                Found::Unread(node) => Some(*node),
                Found::Hole | Found::At(_) => None,
            });
            let Some(node) = unread else { return Ok(found.into_iter().map(pointer).collect()) };
            if node.level > 0 {
                self.read_above(dataset, node).await?;
                continue;
            }
            let home = node.home;
            let header = NodeHeader::of_blocks(self.shared.id, dataset.family(), 0, leaf);
            let still = || dataset.tree.borrow().overlaid(leaf, home, 0, &[Ptr::HOLE]).is_some();
            let is_there = || dataset.has_node(0, leaf, home);
            let Some(body) = self.read_node(&header, home, still, is_there).await? else { continue };
            let stored = decode_ptrs(&body);
            let tree = dataset.tree.borrow();
            let now = (0..FANOUT).map(|slot| tree.overlaid(leaf, home, slot, &stored).map(pointer));
            if let Some(ptrs) = now.collect() {
                return Ok(ptrs);
            }
        }
    }

    /// Gives blocks that are durable in the log only, with a place reserved in a closed chunk, another place.
    pub async fn replace_staged(
        self: &Rc<Self>,
        dataset: &Rc<Dataset>,
        closed: &BTreeSet<ChunkId>,
    ) -> Result<(), IoError> {
        let inside = |place: &Option<Ptr>| place.is_some_and(|place| is_inside(&place, closed));
        let (mut at, mut steps) = (0, Steps::default());
        loop {
            steps.take(1).await;
            let next = {
                let staged = dataset.staged.borrow();
                let next = staged.range(at..).next();
                next.map(|(block, staged)| (*block, staged.block.size(), inside(&staged.place)))
            };
            let Some((block, size, is_inside)) = next else { return Ok(()) };
            at = block + 1;
            if !is_inside {
                continue;
            }
            let (mut places, _) = self.allocate_here(&Wanted::one(size), 0, Claim::Moved).await?;
            // One that is locked may be on its way to its place.
            let Some(_guard) = dataset.locks.try_lock(block, block) else { continue };
            self.replace_place(dataset, block, places.take_first(1)[0], inside);
        }
    }

    /// Writes the blocks `first..first + count` of one leaf anew, those that are still to be moved and that nobody is changing; how
    /// many bytes.
    async fn move_blocks(
        self: &Rc<Self>,
        dataset: &Rc<Dataset>,
        first: u64,
        count: usize,
        which: Moving<'_>,
        mut pace: Option<&mut Pace>,
    ) -> Result<u64, IoError> {
        let has_lines = self.space.borrow().has_lines();
        let (mut places, mut waited_for) = (PlacesClaim::none(self), None);
        loop {
            let room = self.staging_room(if has_lines { count * dataset.block_bytes() } else { 0 }).await?;
            // As for a client's write: the turn after room in the log, which others keep who wait for theirs, and before any lock.
            if let Some(pace) = &mut pace {
                pace.step_soon(Work::write((count * dataset.block_bytes()) as u64, 1)).await;
            }
            let guard = dataset.locks.try_lock(first, first + count as u64 - 1);
            if guard.is_none() && !active(Bug::EvacuatesLockedBlocks) {
                return Ok(0);
            }
            let moving = self.movable(dataset, first, count, which).await?;
            if moving.is_empty() {
                return Ok(0);
            }
            let bytes = (moving.len() * dataset.block_bytes()) as u64;
            let nodes = dataset.nodes_over(once(first..first + count as u64));
            let sizes: Vec<Size> = moving.iter().map(|(_, block)| block.size()).collect();
            if waited_for.as_ref().is_some_and(|before| *before != sizes) {
                // Places of other sizes are not those that are wanted.
                places.give_back();
            }
            let wanted = Wanted::Each(&sizes);
            let Some(nodes_claim) = self.at_hand(&wanted, nodes, which.claim(), &mut places).await? else {
                if waited_for.is_some() || which.claim() == Claim::Gathered {
                    return Err(IoError::NoSpace);
                }
                // Nobody waits for space who has what others want that make some.
                drop((room, guard));
                if let Some(pace) = &mut pace {
                    pace.end();
                }
                places.give_back();
                (places, _) = self.allocate_here(&wanted, nodes, Claim::Moved).await?;
                waited_for = Some(sizes);
                continue;
            };
            // Into lines with parity by way of the log, as everything small.
            let change = |((first, block), place): ((u64, Block), Ptr)| match has_lines {
                true => Change::Data { dataset: dataset.clone(), first, blocks: vec![(block, Some(place))] },
                false => Change::moved(dataset, first, block, &place),
            };
            let changes = moving.into_iter().zip(places.take_first(sizes.len())).map(change).collect();
            let mut entry = Entry::new(self.entry_id(), changes, false);
            entry.nodes = Some(nodes_claim);
            entry.turn = pace.and_then(Pace::take_turn);
            let done = entry.awaited();
            self.submit(entry);
            return done.await.map(|()| bytes);
        }
    }

    /// What of the blocks `first..first + count` of one leaf is to be moved and can be, as it is stored. The caller has them locked.
    async fn movable(
        self: &Rc<Self>,
        dataset: &Rc<Dataset>,
        first: u64,
        count: usize,
        which: Moving<'_>,
    ) -> Result<Vec<(u64, Block)>, IoError> {
        let leaf = first / FANOUT;
        let ptrs = self.leaf_pointers(dataset, leaf).await?;
        // What is newer than the tree has a place of its own, and its coming frees this one.
        let wanted = |(block, ptr): &(u64, &Ptr)| {
            which.wants(ptr) && self.may_move(dataset, ptr, leaf) && !dataset.has_newer(*block, *block + 1)
        };
        let wanted = (first..).zip(&ptrs[(first % FANOUT) as usize..][..count]).filter(wanted);
        let read =
            wanted.map(|(block, ptr)| async move { (block, ptr, self.read_packed(dataset, block).await) });
        let read: Vec<_> = stream::iter(read).buffered(READS).collect().await;
        let (mut moving, mut spare) = (Vec::new(), BTreeMap::new());
        for (block, ptr, stored) in read {
            // A block that cannot be read stays where it is, and so does its chunk.
            let Ok(stored) = stored else { continue };
            // So does one that would take, elsewhere, what is held, and gives nothing of that back. What a reserved volume gets of its own
            // class, it is owed no longer.
            let size = stored.size();
            if dataset.reserved.get() == 0 && !self.space.borrow().is_at_home(ptr, size.class()) {
                let class = size.class();
                let spare = spare.entry(class).or_insert_with(|| self.space.borrow().spare(class));
                let places = if size.is_whole() { 1 } else { u64::from(size.units) };
                let Some(left) = spare.checked_sub(places) else { continue };
                *spare = left;
            }
            moving.push((block, stored));
        }
        Ok(moving)
    }

    /// Whether nobody else points to a block, and its dataset will not be looked at by a deletion.
    pub fn may_move(&self, dataset: &Dataset, ptr: &Ptr, leaf: u64) -> bool {
        dataset.may_move() && dataset.tree.borrow().shared.owns(ptr, 0, leaf)
    }
}

pub(crate) fn is_inside(ptr: &Ptr, closed: &BTreeSet<ChunkId>) -> bool {
    !ptr.is_hole() && closed.contains(&ptr.addr().chunk())
}

fn pointer(found: Found) -> Ptr {
    match found {
        Found::At(ptr) => ptr,
        Found::Hole | Found::Unread(_) => Ptr::HOLE,
    }
}

impl Control {
    /// Finds a chunk for a shard that got none: what a checkpoint releases, then what some shard can empty. True when a
    /// shard's request would be granted now. One search at a time; who comes meanwhile gets its result.
    async fn reclaim(self: &Rc<Self>, wanted: Vec<Units>) -> bool {
        if self.reclaiming.replace(true) {
            let is_over = || !self.reclaiming.get() || self.exporting.get() || self.can_grant(&wanted);
            self.turnstile.until(is_over).await;
            return self.can_grant(&wanted);
        }
        let found = self.search_space(&wanted).await;
        self.reclaiming.set(false);
        self.turnstile.changed();
        found.is_some()
    }

    async fn search_space(self: &Rc<Self>, wanted: &[Units]) -> Option<()> {
        let (mut freed, mut holes) = (false, 0);
        let mut by_gain = Vec::new();
        for index in 0..self.shard_count() {
            let look = |shard: Rc<Shard>| async move {
                let space = shard.space.borrow();
                (shard.expects_space(), space.emptiest().len(), space.units_free())
            };
            let (pending, chunks, units) = self.on_shard(index, look).await.ok()?;
            freed |= pending;
            holes += units;
            by_gain.push((chunks, index));
        }
        if freed {
            self.checkpoint().await.ok()?;
        }
        by_gain.sort_unstable();
        // Moving everything together would not give what the holes do not add up to.
        let units: u64 = wanted.iter().map(|(_, units)| *units).sum();
        if !freed && units > holes + self.units_free() {
            return self.can_grant(wanted).then_some(());
        }
        while !self.can_grant(wanted) {
            let (_, donor) = by_gain.pop()?;
            self.evacuate(donor).await?;
        }
        Some(())
    }

    /// Has one shard empty its emptiest chunks and takes them back. False when there were none worth it, nothing when the
    /// pool cannot.
    async fn evacuate(self: &Rc<Self>, donor: usize) -> Option<bool> {
        let evacuate = |shard: Rc<Shard>| async move {
            let (done, evacuated) = completion();
            let task = shard.clone();
            shard.spawn(async move { done.complete(task.evacuate_emptiest().await) });
            evacuated.await
        };
        if !self.on_shard(donor, evacuate).await.ok()? {
            return Some(false);
        }
        // The first gives back what was moved away, the second lets the empty chunks go.
        let left = async { self.checkpoint().await.and(self.checkpoint().await) }.await;
        self.on_shard(donor, |shard| async move { shard.space.borrow_mut().reopen() }).await.ok()?;
        left.ok().map(|_| true)
    }

    /// Has one shard empty its emptiest chunks, however many the pool has; how many that gives it.
    async fn empty_some(self: &Rc<Self>, index: usize) -> u64 {
        if self.reclaiming.replace(true) {
            return 0;
        }
        let before = self.chunks_free();
        self.evacuate(index).await;
        self.reclaiming.set(false);
        self.turnstile.changed();
        self.chunks_free().saturating_sub(before)
    }

    /// Moves blocks together, so that chunks which many holes make useless to others become free ones. Gives how many.
    pub async fn compact(self: &Rc<Self>) -> Result<u64, Error> {
        let before = self.chunks_free();
        self.turnstile.until(|| self.exporting.get() || !self.reclaiming.replace(true)).await;
        for index in 0..self.shard_count() {
            if !self.closing.get() {
                self.evacuate(index).await;
            }
        }
        if self.exporting.get() {
            return Err(self.error(ErrorKind::Stopped, "the pool is being closed"));
        }
        self.reclaiming.set(false);
        self.turnstile.changed();
        if self.shared.is_suspended() {
            return Err(self.suspended());
        }
        Ok(self.chunks_free().saturating_sub(before))
    }
}
