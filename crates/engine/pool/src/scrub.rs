//! Scrub: reads everything that is stored, on every disk, and puts right what is wrong while that is still possible.
//!
//! Each shard walks its trees. Of a mirror every copy of every block and node is read and checked; of lines every cell that
//! holds a block. What fails is rewritten from what is right. Then come the parity cells, which no pointer vouches for:
//! chunk by chunk, each closed for a moment ([`crate::relocate`]), parity is compared with the data, and where it
//! differs, the blocks of that line are checked once more before parity is computed anew. Last come the records
//! beside the slots and, by the coordinator, the labels. The log is not read: it is written over and over.
//!
//! How far a shard has come is in its root, so that a restart goes on there. Clients go first: a scrub rests as long as it
//! worked whenever somebody was served meanwhile.

use crate::control::Control;
use crate::damage::BLOCK;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::heal::as_task;
use crate::lineage::Snapshot;
use crate::parts::IN_PART;
use crate::shard::Shard;
use crate::spec::{Scrub, ScrubSchedule, ScrubState, Severity};
use forebay_base::planted::{Bug, active};
use forebay_base::{Checksum, MIB};
use forebay_device::SlotRef;
use forebay_qos::{Task, Work};
use forebay_runtime::yield_now;
use forebay_space::{ChunkId, Ptr};
use forebay_tree::FANOUT;
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::rc::Rc;

/// Bytes of blocks that are checked before space is given back again, which waits for the check.
const STEP_BYTES: u64 = MIB;
/// And in so many places at most, which are read at a time: no checkpoint ends before a step does.
const RUNS_MAX: usize = 16;
/// Bytes of one device read.
const RUN_BYTES: u64 = MIB;
/// How often parity is looked at of chunks in which something has been promised and is not there yet.
const PARITY_LOOKS: u32 = 4;

/// How far a shard has come: the number of the dataset and its leaf; beyond all datasets the chunk whose parity is next.
pub(crate) type ScrubPosition = (u64, u64);

/// Stands for parity where a dataset's number would be.
pub(crate) const PARITY: u64 = u64::MAX - 1;

/// What a shard keeps of a scrub.
#[derive(Default)]
pub(crate) struct ShardScrub {
    /// Nothing when none is under way.
    pub at: Cell<Option<ScrubPosition>>,
    pub halted: Cell<bool>,
    pub found: Cell<Found>,
    /// Datasets and snapshots that are to be looked at once more.
    pub again: RefCell<BTreeSet<u64>>,
    /// Where it goes on when the parity of what is closed has been compared.
    pub next_parity: Cell<Option<ScrubPosition>>,
    /// Snapshots whose deletion has begun.
    pub dooms: Cell<u64>,
}

/// What a scrub came across.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Bytes of disk that were read and checked.
    pub bytes: u64,
    /// Blocks, nodes, records and lines of parity that were bad somewhere and are right again.
    pub repaired: u64,
    /// Blocks and nodes that nothing could be made of.
    pub lost: u64,
    /// Chunks of which not all parity was compared, or put right, since the pool was imported.
    pub passed_over: u64,
}

const LOST: Found = Found { bytes: 0, repaired: 0, lost: 1, passed_over: 0 };

/// What became of a block or a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Right,
    /// Nothing can be made of it, or it is known in part only.
    Lost,
}

impl AddAssign for Found {
    fn add_assign(&mut self, other: Found) {
        self.bytes += other.bytes;
        self.repaired += other.repaired;
        self.lost += other.lost;
        self.passed_over += other.passed_over;
    }
}

/// The coordinator's part.
#[derive(Default)]
pub(crate) struct PoolScrub {
    /// What it had found before this import is in it; what it has found since, the shards know.
    pub state: RefCell<Option<Scrub>>,
    pub running: Cell<bool>,
    pub schedule: Cell<ScrubSchedule>,
}

/// What a scrub goes through.
pub(crate) struct Walkable {
    pub dataset: Rc<Dataset>,
    /// Whose tree it is, if it is not a living one.
    snapshot: Option<Rc<Snapshot>>,
    /// What was born up to then is looked at where it was born.
    since: u64,
}

impl Walkable {
    pub fn has(&self, ptr: &Ptr) -> bool {
        !ptr.is_hole() && ptr.birth() > self.since
    }

    /// Whether a leaf is stored as it is, and all of it is shared.
    pub async fn shares(&self, shard: &Shard, leaf: u64) -> Result<bool, IoError> {
        let (home, is_stored) = shard.look_in_tree(&self.dataset, |tree| tree.stored_at(0, leaf)).await?;
        Ok(is_stored && !self.has(&home))
    }

    pub fn is_gone(&self) -> bool {
        match &self.snapshot {
            Some(snapshot) => !snapshot.is_live(),
            None => self.dataset.is_deleting(),
        }
    }
}

/// What can be read together, of blocks in the order of their places.
fn runs(blocks: &[Ptr]) -> impl Iterator<Item = &[Ptr]> {
    blocks.chunk_by(|a, b| a.is_followed_by(b) && a.addr().offset() % RUN_BYTES != 0)
}

impl Shard {
    pub fn scrub_found(&self, more: Found) {
        let mut found = self.scrub.found.get();
        found += more;
        self.scrub.found.set(found);
    }

    pub fn is_scrub_halted(&self) -> bool {
        self.scrub.halted.get() || self.stopping.get() || self.is_suspended()
    }

    /// Checks the shard's trees from where it stands. False when it was halted.
    async fn scrub_trees(self: &Rc<Self>) -> bool {
        let Some((mut number, mut leaf)) = self.scrub.at.get() else { return true };
        let _throughout = active(Bug::ScrubHoldsThroughout).then(|| self.holds.take());
        // What comes later is as it was written.
        let end = self.next_number.get();
        while let Some(next) = self.next_number(number).filter(|next| *next < end) {
            if next != number {
                leaf = 0;
            }
            number = next;
            if !self.scrub_tree(number, leaf, |leaf| self.scrub.at.set(Some((number, leaf)))).await {
                return false;
            }
            (number, leaf) = (number + 1, 0);
            self.scrub.at.set(Some((number, leaf)));
        }
        loop {
            // What they shared with a snapshot that has been deleted since they were looked at.
            let next = self.scrub.again.borrow_mut().pop_first();
            let Some(number) = next else { return true };
            if !self.scrub_tree(number, 0, |_| ()).await {
                self.scrub.again.borrow_mut().insert(number);
                return false;
            }
        }
    }

    /// Checks one tree from a leaf on; tells which leaf is next. False when it was halted.
    async fn scrub_tree(self: &Rc<Self>, number: u64, mut leaf: u64, at: impl Fn(u64)) -> bool {
        let mut above: Vec<Ptr> = Vec::new();
        let known = self.walkable(number);
        while let Some(walkable) = &known {
            if self.is_scrub_halted() {
                return false;
            }
            // From here on what it has is not given back.
            let hold = self.holds.take();
            if walkable.is_gone() {
                break;
            }
            let next = self.next_leaf(&walkable.dataset, leaf).await;
            drop(hold);
            let found = match next {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(hidden) => {
                    // It has been told which node.
                    self.scrub_found(LOST);
                    leaf = hidden.end;
                    at(leaf);
                    continue;
                }
            };
            if !self.scrub_leaf(walkable, found, &mut above).await {
                return false;
            }
            // A leaf that is all shared is passed over without a wait.
            yield_now().await;
            leaf = found + 1;
            at(leaf);
        }
        true
    }

    /// A snapshot is being deleted: nobody looks at what it shared with those that grew from it, if they were looked at before.
    pub fn scrub_forgets(&self, snapshot: u64) {
        self.scrub.dooms.set(self.scrub.dooms.get() + 1);
        let Some((at, _)) = self.scrub.at.get() else { return };
        let (mut again, mut parents) = (self.scrub.again.borrow_mut(), vec![snapshot]);
        while let Some(parent) = parents.pop() {
            let (volumes, snapshots) = self.heirs(parent);
            again.extend(volumes.iter().map(|heir| heir.number()).filter(|heir| *heir <= at));
            let (live, doomed): (Vec<_>, Vec<_>) = snapshots.into_iter().partition(|heir| heir.is_live());
            again.extend(live.iter().map(|heir| heir.number()).filter(|heir| *heir <= at));
            // What grew from one that is being deleted shared with this one as well.
            parents.extend(doomed.iter().map(|heir| heir.number()));
        }
    }

    /// The next dataset or snapshot from a number on.
    pub(crate) fn next_number(&self, from: u64) -> Option<u64> {
        let dataset = self.datasets.borrow().range(from..).next().map(|(number, _)| *number);
        let snapshot = self.snapshots.borrow().range(from..).next().map(|(number, _)| *number);
        dataset.into_iter().chain(snapshot).min()
    }

    /// A dataset, or a snapshot with its tree read for the purpose; nothing when it is being deleted.
    pub(crate) fn walkable(&self, number: u64) -> Option<Walkable> {
        if let Some(dataset) = self.datasets.borrow().get(&number) {
            let since = self.born_since(dataset.record.borrow().parent);
            return Some(Walkable { dataset: dataset.clone(), snapshot: None, since });
        }
        let snapshot = self.snapshots.borrow().get(&number).cloned();
        let is_there = |snapshot: &Rc<Snapshot>| snapshot.is_live() && !active(Bug::ScrubForgetsSnapshots);
        let snapshot = snapshot.filter(is_there)?;
        let record = snapshot.record.borrow().clone();
        let (tree, since) = (record.tree(), self.born_since(record.parent));
        Some(Walkable { dataset: Rc::new(Dataset::new(record, tree)), snapshot: Some(snapshot), since })
    }

    /// What a dataset with this parent does not share was born after this epoch; what a snapshot has that is being deleted does not
    /// count as shared.
    fn born_since(&self, parent: Option<u64>) -> u64 {
        self.ancestor(parent).map_or(0, |ancestor| ancestor.epoch())
    }

    /// Checks what a dataset alone has of a leaf, of the nodes above it that are not among those `above` the last, and of its blocks:
    /// what it shares is checked where it was born. False when it was halted in the middle.
    async fn scrub_leaf(self: &Rc<Self>, walkable: &Walkable, leaf: u64, above: &mut Vec<Ptr>) -> bool {
        let dataset = &walkable.dataset;
        let mut pace = self.pace(Task::Scrub);
        let mut from = 0;
        loop {
            pace.step(Work::read(STEP_BYTES, RUNS_MAX)).await;
            let hold = self.holds.take();
            // From here on what it has is not given back.
            if walkable.is_gone() {
                return true;
            }
            if from == 0 {
                // What cannot be read has been reported, and is counted below.
                let path = self.look_in_tree(dataset, |tree| tree.path(leaf)).await.unwrap_or_default();
                for (level, node) in
                    path.iter().filter(|(_, node)| !above.contains(node) && walkable.has(node))
                {
                    if self.scrub_block(node).await == Outcome::Lost {
                        let index = leaf / FANOUT.pow(u32::from(*level));
                        self.tell_lost(dataset, (*level, index), node);
                    }
                }
                *above = path.into_iter().map(|(_, node)| node).collect();
                // A node above may be its own all the same: leaves beside this one went.
                if walkable.shares(self, leaf).await == Ok(true) {
                    return true;
                }
            }
            // What cannot be read has been reported and counted as a node.
            let Ok(ptrs) = self.leaf_pointers(dataset, leaf).await else { return true };
            let mut bytes = 0;
            let fits = |ptr: &&Ptr| {
                bytes += if ptr.is_hole() { 0 } else { u64::from(ptr.bytes()) };
                bytes <= STEP_BYTES
            };
            let mut count = ptrs[from..].iter().take_while(fits).count().max(1);
            let some = loop {
                let blocks = (leaf * FANOUT..).zip(&ptrs).skip(from).take(count);
                // What was written anew since, and is in the log, has nothing to lose there.
                let blocks =
                    blocks.filter(|(block, ptr)| walkable.has(ptr) && !dataset.is_written_anew(*block));
                let mut some: Vec<Ptr> = blocks.map(|(_, ptr)| *ptr).collect();
                some.sort_unstable_by_key(|ptr| ptr.addr());
                if count == 1 || runs(&some).count() <= RUNS_MAX {
                    break some;
                }
                count /= 2;
            };
            let lost = join_all(runs(&some).map(|run| self.scrub_run(run))).await;
            drop(hold);
            for (block, ptr) in (leaf * FANOUT..).zip(&ptrs).skip(from).take(count) {
                if lost.iter().flatten().any(|lost| lost == ptr) {
                    self.tell_lost(dataset, (BLOCK, block), ptr);
                }
            }
            from += count;
            if from >= ptrs.len() {
                return true;
            }
            if self.is_scrub_halted() {
                return false;
            }
            pace.rest().await;
        }
    }

    /// Checks blocks of one size that follow each other, on every disk that has them; gives those that are lost.
    async fn scrub_run(self: &Rc<Self>, run: &[Ptr]) -> Vec<Ptr> {
        let Some(slots) = self.slots(&run[0]) else { return Vec::new() };
        let block = run[0].bytes() as usize;
        let has_lines = self.array.cell_bytes(&slots).is_some();
        let copies: Vec<Vec<SlotRef>> = match has_lines {
            true => vec![slots],
            false => slots.into_iter().map(|slot| vec![slot]).collect(),
        };
        let mut suspects = BTreeSet::new();
        let mut read = 0;
        for copy in copies {
            if !has_lines && self.array.member(copy[0].disk).is_none() {
                continue;
            }
            let bad = RefCell::new(Vec::new());
            let check = |bytes: &[u8]| {
                let is_bad = |(_, (bytes, ptr)): &(usize, (&[u8], &Ptr))| Checksum::of(bytes) != ptr.sum;
                let blocks = bytes.chunks(block).zip(run).enumerate();
                *bad.borrow_mut() = blocks.filter(is_bad).map(|(nth, _)| nth).collect();
                true
            };
            let bytes = run.len() * block;
            let result = self.array.read_waiting(&copy, run[0].addr().offset(), bytes, check).await;
            read += bytes as u64;
            match result {
                Ok(good) if good.bad.is_empty() => suspects.extend(bad.take()),
                _ => suspects.extend(0..run.len()),
            }
        }
        self.scrub_found(Found { bytes: read, ..Found::default() });
        let mut lost = Vec::new();
        if active(Bug::ScrubOnlyLooks) {
            return lost;
        }
        for (nth, ptr) in run.iter().enumerate() {
            if suspects.contains(&nth) {
                if self.scrub_block(ptr).await == Outcome::Lost {
                    lost.push(*ptr);
                }
            } else if ptr.kind() == IN_PART {
                self.scrub_found(LOST);
                lost.push(*ptr);
            } else {
                self.damage.borrow_mut().mended(ptr.addr());
            }
        }
        lost
    }

    /// Makes every copy of one block or node right; counts it when one was not.
    pub(crate) async fn scrub_block(self: &Rc<Self>, ptr: &Ptr) -> Outcome {
        let check = |bytes: &[u8]| Checksum::of(bytes) == ptr.sum;
        loop {
            let Some(slots) = self.slots(ptr) else { return Outcome::Right };
            let plugs = self.plugs.get();
            let mended = self.array.mend(&slots, ptr.addr().offset(), ptr.bytes() as usize, check).await;
            match mended {
                Some(repaired) => {
                    let found = match repaired {
                        0 => Found { bytes: u64::from(ptr.bytes()), ..Found::default() },
                        _ => Found { repaired: 1, ..Found::default() },
                    };
                    self.scrub_found(found);
                    if ptr.kind() != IN_PART {
                        self.damage.borrow_mut().mended(ptr.addr());
                        return Outcome::Right;
                    }
                    self.scrub_found(LOST);
                    return Outcome::Lost;
                }
                None if self.has_moved(ptr, &slots) || self.was_plugged(plugs).await => {}
                None => {
                    self.scrub_found(LOST);
                    return Outcome::Lost;
                }
            }
        }
    }
}

impl Control {
    /// Begins a scrub, or goes on with one that was paused.
    pub async fn scrub_start(self: &Rc<Self>) -> Result<(), Error> {
        if self.scrub.running.get() {
            return Err(self.error(ErrorKind::Conflict, "a scrub is running already"));
        }
        let is_paused =
            self.scrub.state.borrow().as_ref().is_some_and(|scrub| scrub.state == ScrubState::Paused);
        if !is_paused {
            for index in 0..self.shard_count() {
                let begin = |shard: Rc<Shard>| async move {
                    shard.scrub.found.set(Found::default());
                    shard.damage.borrow_mut().count_anew();
                    shard.scrub.at.set(Some((0, 0)));
                    shard.scrub.again.take();
                };
                self.on_shard(index, begin).await?;
            }
        }
        self.scrub_on(!is_paused).await
    }

    /// Goes on where the shards stand.
    pub async fn scrub_on(self: &Rc<Self>, is_new: bool) -> Result<(), Error> {
        let bytes_total = self.status().await?.used;
        if self.closing.get() {
            return Err(self.error(ErrorKind::Stopped, "the pool is being closed"));
        }
        {
            let mut state = self.scrub.state.borrow_mut();
            let since = self.rt.wall();
            let fresh = Scrub { state: ScrubState::Running, since, bytes_total, ..Scrub::default() };
            match state.as_mut().filter(|_| !is_new) {
                Some(known) => known.state = ScrubState::Running,
                None => *state = Some(fresh),
            }
        }
        self.scrub.running.set(true);
        let control = self.clone();
        drop(self.rt.spawn(async move {
            let result = control.scrub_all().await;
            control.scrub_ended(result).await;
            control.scrub.running.set(false);
            control.turnstile.changed();
        }));
        Ok(())
    }

    /// Halts a scrub; `scrub_start` goes on with it, also after a restart.
    pub async fn scrub_pause(self: &Rc<Self>) -> Result<(), Error> {
        if !self.scrub.running.get() {
            return Err(self.error(ErrorKind::Conflict, "no scrub is running"));
        }
        self.halt_scrub().await?;
        // How far it has come is in the next checkpoint.
        self.checkpoint().await.map(drop)
    }

    /// Ends a scrub, running or paused.
    pub async fn scrub_stop(self: &Rc<Self>) -> Result<(), Error> {
        self.halt_scrub().await?;
        for index in 0..self.shard_count() {
            self.on_shard(index, |shard| async move { shard.scrub.at.set(None) }).await?;
        }
        if let Some(state) =
            self.scrub.state.borrow_mut().as_mut().filter(|scrub| scrub.state == ScrubState::Paused)
        {
            state.state = ScrubState::Stopped;
        }
        Ok(())
    }

    /// Has the scrub stop where it is and waits until it has.
    pub async fn halt_scrub(&self) -> Result<(), Error> {
        self.set_halted(true).await?;
        self.turnstile.until(|| !self.scrub.running.get()).await;
        Ok(())
    }

    async fn set_halted(&self, halted: bool) -> Result<(), Error> {
        for index in 0..self.shard_count() {
            self.on_shard(index, move |shard| async move { shard.scrub.halted.set(halted) }).await?;
        }
        Ok(())
    }

    /// False when it was halted.
    async fn scrub_all(self: &Rc<Self>) -> Result<bool, Error> {
        self.set_halted(false).await?;
        let trees = (0..self.shard_count()).map(|index| {
            self.on_shard(index, |shard| async move {
                as_task(&shard, |shard| async move { shard.scrub_trees().await }).await.unwrap_or(false)
            })
        });
        for walked in futures_util::future::join_all(trees).await {
            if !walked? {
                return Ok(false);
            }
        }
        for index in 0..self.shard_count() {
            loop {
                let halted = self.on_shard(index, |shard| async move { shard.is_scrub_halted() }).await?;
                if halted {
                    return Ok(false);
                }
                let _turn = self.slots_turn().await;
                let close = |shard: Rc<Shard>| async move {
                    as_task(&shard, |shard| async move { shard.close_for_parity().await }).await
                };
                let Some(chunks) = self.on_shard(index, close).await?.flatten() else { break };
                self.compare_parity(index, chunks).await?;
            }
            let records = |shard: Rc<Shard>| async move {
                as_task(&shard, |shard| async move {
                    shard.scrub_records().await;
                    shard.scrub_tables().await;
                })
                .await
            };
            self.on_shard(index, records).await?;
        }
        self.scrub_labels().await;
        // The checkpoint makes it known; without one, it has not been through.
        let before = self.scrub.schedule.get();
        self.scrub.schedule.set(ScrubSchedule { last: self.rt.wall(), ..before });
        self.checkpoint().await.map(|_| true).inspect_err(|_| {
            self.scrub.schedule.set(ScrubSchedule { last: before.last, ..self.scrub.schedule.get() });
        })
    }

    /// Compares the parity of closed chunks, once what was promised in them is part of a checkpoint.
    async fn compare_parity(self: &Rc<Self>, index: usize, mut chunks: Vec<ChunkId>) -> Result<(), Error> {
        for look in 1..=PARITY_LOOKS {
            let settled = self.checkpoint().await;
            let is_last = look == PARITY_LOOKS || settled.is_err() || self.closing.get();
            let compare = move |shard: Rc<Shard>| async move {
                as_task(&shard, move |shard| async move { shard.scrub_parity(chunks, is_last).await }).await
            };
            chunks = self.on_shard(index, compare).await?.unwrap_or_default();
            settled?;
            if chunks.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// What an import found to be running, no shard knows of: it was ended by a forced import.
    pub fn scrub_gone(&self) {
        if let Some(scrub) = self.scrub.state.borrow_mut().as_mut()
            && matches!(scrub.state, ScrubState::Running | ScrubState::Paused)
        {
            scrub.state = ScrubState::Stopped;
        }
    }

    async fn scrub_ended(&self, result: Result<bool, Error>) {
        let (Ok(Some(found)), Ok(shards)) = (self.scrub_status().await, self.scrub_progress().await) else {
            return;
        };
        let mut state = self.scrub.state.borrow_mut();
        let Some(scrub) = state.as_mut() else { return };
        scrub.state = match result {
            Ok(true) => ScrubState::Done,
            Ok(false) => ScrubState::Paused,
            Err(_) => ScrubState::Stopped,
        };
        if scrub.state != ScrubState::Done {
            return;
        }
        scrub.ended = Some(self.rt.wall());
        let severity = if found.lost > 0 { Severity::Error } else { Severity::Info };
        let message = format!(
            "a scrub read {} MiB: {} errors were repaired, {} are unrecoverable",
            found.bytes_done / MIB,
            found.repaired,
            found.lost
        );
        self.event(severity, "pool.scrubbed", self.name(), message);
        if shards.passed_over > 0 {
            let message = format!(
                "the scrub did not compare parity in {} of the pool's chunks: clients were writing there, or a disk did not answer. Check 'forebay disk list' for errors, then \
                 run 'forebay pool scrub {}' again when clients write less",
                shards.passed_over,
                self.name()
            );
            self.event(Severity::Warning, "scrub.incomplete", self.name(), message);
        }
    }

    /// What the shards have found so far.
    async fn scrub_progress(&self) -> Result<Found, Error> {
        let mut all = Found::default();
        for index in 0..self.shard_count() {
            all += self.on_shard(index, |shard| async move { shard.scrub.found.get() }).await?;
        }
        Ok(all)
    }

    pub async fn scrub_status(&self) -> Result<Option<Scrub>, Error> {
        let found = self.scrub_progress().await?;
        let state = self.scrub.state.borrow();
        Ok(state.clone().map(|scrub| Scrub {
            bytes_done: scrub.bytes_done + found.bytes,
            repaired: scrub.repaired + found.repaired,
            lost: scrub.lost + found.lost,
            ..scrub
        }))
    }

    /// Waits until no scrub is running.
    pub async fn scrubbed(&self) {
        self.turnstile.until(|| !self.scrub.running.get()).await;
    }
}
