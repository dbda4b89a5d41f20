//! Destaging: small writes may be durable in the log first and move to the data disks later. On a pool with log disks or parity all are, elsewhere those
//! that nobody else's come with: one write to one place, durable by itself, is sooner over than data and frame side by side and a flush after them.
//!
//! A destaged block is an ordinary write of the pool's own: data to a new place, a pointer record in the log. When
//! that is applied, the block leaves the staged set; a crash in between leaves it staged. Oldest frames go first,
//! because the log's tail cannot pass a frame with staged blocks.

use crate::dataset::{Dataset, Staged};
use crate::entry::{Change, Entry};
use crate::error::IoError;
use crate::reserve::Claim;
use crate::shard::{SPACE_WAITS_MAX, Shard};
use crate::steps::Steps;
use forebay_base::Nanos;
use forebay_log::Frame;
use futures_util::future::select;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Blocks that one destage entry moves: their data makes one large write,
pub(crate) const BLOCKS_MAX: usize = 128;
/// or as many as there are disks side by side to take one each, but no more than so many.
const WRITES_MAX: usize = 8;
/// Where clients have the same disks, no more is left in the log unless nobody can move it: snapshots wait until it has.
const BESIDE_CLIENTS_BYTES_MAX: u64 = 1 << 20;
/// Places that are written at a time beside clients: who is alone with a write waits for no more than these at the disks.
const PLACES_BESIDE_CLIENTS: usize = 8;
/// Checkpoints without any destaging after which a writer gives up waiting for room in the log.
const STALLED_CHECKPOINTS: u64 = 3;
/// And how often destaging has to have tried.
const STALLED_TRIES: u64 = 16;
/// Checkpoints, while space is being given back.
const STALLED_CHECKPOINTS_FREEING: u64 = 64;
/// In how many checkpoints the space of what is deleted comes back: it is free after the second, and a chunk that is empty then leaves its shard with one of
/// the next two.
const CHECKPOINTS_TO_LEAVE: u64 = 4;
/// How full the log is when clients get no chunks and clear nothing any more.
const FULL_PERMILLE: u64 = 875;
/// How long an export waits for room in the log while no checkpoint makes progress.
const CLOSING_WAIT: Duration = Duration::from_secs(120);
/// How long after a search for space the next may begin.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);
/// How long to leave blocks alone that a queued write is about to replace.
const SUPERSEDED_DELAY: Duration = Duration::from_micros(100);

/// How far the end of the pool has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Ending {
    No,
    /// The pool is being exported.
    Begun,
    /// The log had no room then for what was to be committed: nothing is any more.
    GaveUp,
    /// And an event has said that acknowledged writes may be lost.
    Told,
}

/// Log space for what a writer is about to queue, or has queued.
pub(crate) struct LogClaim {
    shard: Rc<Shard>,
    bytes: usize,
}

impl Drop for LogClaim {
    fn drop(&mut self) {
        self.shard.claimed_bytes.set(self.shard.claimed_bytes.get() - self.bytes);
        if self.shard.log_waiters.get() > 0 {
            self.shard.progress.changed();
        }
    }
}

impl Shard {
    /// Waits until a frame with `bytes` of data fits into the log beside what destaging needs, and claims the room until the
    /// entry is applied. Every client operation asks: one that did not could fill the log while its tail waits for
    /// blocks to be destaged. Not to be called with blocks locked: destaging locks them too.
    pub async fn staging_room(self: &Rc<Self>, bytes: usize) -> Result<LogClaim, IoError> {
        let stalled = self.stall_watch();
        let mut claim = None;
        let wait = || {
            claim = self.claim_staging_room(bytes);
            let stop = claim.is_some() || stalled() || self.has_ended();
            if !stop {
                self.want_log_room();
            }
            stop
        };
        self.log_waiters.set(self.log_waiters.get() + 1);
        self.progress.until(wait).await;
        self.log_waiters.set(self.log_waiters.get() - 1);
        match claim {
            _ if self.is_suspended() => Err(IoError::Suspended),
            Some(claim) => Ok(claim),
            None => Err(self.why_none()),
        }
    }

    /// Like [`Shard::staging_room`], when there is room at once.
    pub fn claim_staging_room(self: &Rc<Self>, bytes: usize) -> Option<LogClaim> {
        let bytes = Frame::length_for(bytes);
        let fits = self.log_needed(bytes) <= self.staging_limit()
            && self.staged_bytes.get() as u64 <= self.shared.memory_per_shard / 4;
        fits.then(|| {
            self.claimed_bytes.set(self.claimed_bytes.get() + bytes);
            LogClaim { shard: self.clone(), bytes }
        })
    }

    /// Whether nobody is about to queue something or waits until it is applied, and the last commit had one entry at most: who comes first of many that
    /// were answered together is not alone.
    pub fn is_quiet(&self) -> bool {
        self.claimed_bytes.get() == 0 && self.committed_together.get() <= 1
    }

    /// Bytes of the log that are in use or will be, with `more` bytes of frames: what waits there for its place comes once more, with
    /// its parity, before it is there.
    fn log_needed(&self, more: usize) -> u64 {
        let log = self.log.borrow();
        let used = log.chain.position - log.tail + self.queued_bytes.get() as u64;
        let coming = (self.claimed_bytes.get() + more) as u64;
        used + coming + self.plug_factor() * (coming + self.staged_bytes.get() as u64)
    }

    /// What plugging a byte writes to the log, at most: a block of one page takes a page for itself and each parity cell, headers and
    /// pointers three.
    fn plug_factor(&self) -> u64 {
        self.array.parity_max().map_or(0, |parity| 4 + parity as u64)
    }

    /// Has the tail of the log move. A checkpoint takes it to the oldest block that is staged, so while destaging goes on, one is
    /// worth its cost only when that is far enough.
    fn want_log_room(self: &Rc<Self>) {
        let (gain, ring) = {
            let log = self.log.borrow();
            let oldest = log.staged.start().map_or(log.chain.position, |start| start.position);
            (oldest.saturating_sub(log.tail), log.ring.bytes())
        };
        if gain * 4 > ring || self.staged_bytes.get() == 0 || self.destage_stuck.get() {
            self.want_checkpoint();
        }
        self.destage_work.send();
    }

    /// Whether nothing is committed any more.
    pub fn has_ended(&self) -> bool {
        self.is_suspended() || self.stopping.get() || self.ending.get() >= Ending::GaveUp
    }

    /// The error for a request that gets no room: the pool is suspended, it is being closed, or it has no space.
    pub fn why_none(&self) -> IoError {
        match (self.is_suspended(), self.has_ended()) {
            (true, _) => IoError::Suspended,
            (false, true) => IoError::Gone,
            (false, false) => IoError::NoSpace,
        }
    }

    /// Tells whether room in the log is no longer to be expected: it comes with destaging and a checkpoint, and since the last
    /// block moved, checkpoints have passed and destaging has tried often enough.
    fn stall_watch(&self) -> impl Fn() -> bool {
        let now = || (self.destaged.get(), self.checkpoints.get(), self.destage_tries.get());
        let seen = Cell::new(now());
        move || {
            let (destaged, checkpoints, tries) = now();
            if seen.get().0 != destaged {
                seen.set(now());
            }
            // As long as frees are on their way, the pool is not full.
            let frees = self.expects_space() || self.expects_deletions();
            let most = if frees { STALLED_CHECKPOINTS_FREEING } else { STALLED_CHECKPOINTS };
            let has_tried = self.staged_bytes.get() == 0 || tries >= seen.get().2 + STALLED_TRIES;
            checkpoints >= seen.get().1 + most && has_tried
        }
    }

    /// Whether the ring has room for a frame of `length` bytes now.
    pub fn has_room_in_log(&self, length: usize) -> bool {
        let log = self.log.borrow();
        log.chain.position - log.tail + length as u64 <= log.ring.bytes()
    }

    /// Waits until the ring has room for a frame. The freeze that makes room happens in here: the commit task is waiting.
    pub async fn wait_for_room(self: &Rc<Self>, length: usize) -> Result<(), IoError> {
        // Checkpoints when the export was first seen; the last progress of checkpoints (how many, and their steps), and when it was.
        let mut ending: Option<(u64, (u64, u64), Nanos)> = None;
        loop {
            if length as u64 > self.log.borrow().ring.bytes() {
                return Err(IoError::NoSpace);
            }
            if self.has_room_in_log(length) {
                return Ok(());
            }
            if self.is_suspended() {
                return Err(IoError::Suspended);
            }
            // No checkpoint comes any more: what is on its way from the log to its place stays in the log. Or none helps, or ends, and the pool is not
            // kept from being exported.
            let (now, checkpoints) = (self.rt.now(), self.checkpoints.get());
            if self.ending.get() == Ending::Begun {
                let reached = (checkpoints, self.shared.checkpoint_steps());
                let (begun, last, since) = *ending.get_or_insert((checkpoints, reached, now));
                ending = Some((begun, reached, if last == reached { since } else { now }));
            }
            let is_hopeless = ending.is_some_and(|(begun, _, since)| {
                checkpoints > begun + u64::from(SPACE_WAITS_MAX)
                    || now.since(since) >= CLOSING_WAIT.as_nanos() as u64
            });
            if self.stopping.get() || is_hopeless {
                self.ending.set(Ending::GaveUp);
                self.progress.changed();
                return Err(IoError::Gone);
            }
            self.want_checkpoint();
            if let Some(done) = self.freeze_request.borrow_mut().take() {
                let frozen = self.freeze_now();
                *self.frozen.borrow_mut() = Some(frozen);
                self.checkpoint_wanted.set(false);
                done.complete(());
            }
            select(pin!(self.work.wait()), self.rt.sleep(CLOSING_WAIT / 8)).await;
        }
    }

    /// Whether next to nothing of the log is left. What is in it may wait for space, and then only what brings some may take the rest.
    pub fn is_log_full(&self) -> bool {
        let log = self.log.borrow();
        log.fill_permille() > FULL_PERMILLE
    }

    /// Whether something in the log has found no place.
    pub fn lacks_place_for_log(&self) -> bool {
        self.lacks_place.get() && self.staged_bytes.get() > 0
    }

    /// Whether who asks for room leaves the pool's last chunks to what is in the log and has found no place: its tail waits for that, and each chunk that
    /// comes and goes takes a frame.
    pub fn yields_to_log(&self, claim: Claim) -> bool {
        matches!(claim, Claim::Ordinary | Claim::Gathered)
            && (self.lacks_place_for_log() || self.is_log_full())
    }

    /// Whether space comes back from something that is being deleted.
    pub fn is_deleting(&self) -> bool {
        let (datasets, snapshots) = (self.datasets.borrow(), self.snapshots.borrow());
        datasets.deleting().any(|dataset| !self.is_sample(dataset))
            || snapshots.deleting().any(|snapshot| !snapshot.stuck.get())
    }

    /// Tells the pool's other shards that space comes back from what this one is deleting. What waits for something that cannot go
    /// does not count.
    pub fn note_deletion(&self) {
        if self.deletes.get() {
            self.shared.note_deletion(self.checkpoints.get() + CHECKPOINTS_TO_LEAVE);
        }
    }

    /// Whether some shard of the pool is deleting something, or a chunk that became free may still come.
    pub fn expects_deletions(&self) -> bool {
        self.shared.deletes_until() > self.checkpoints.get()
    }

    /// Whether so many blocks could ever go to the log at once.
    pub fn fits_into_log(&self, blocks: u64, block_bytes: usize) -> bool {
        let bytes = Frame::length_for(blocks as usize * block_bytes) as u64;
        bytes * (1 + self.plug_factor()) <= self.staging_limit()
    }

    /// Bytes of the log that client operations may need. The rest is for what makes room: pointers, and evacuation, for which
    /// clients may be waiting.
    fn staging_limit(&self) -> u64 {
        let ring = self.log.borrow().ring.bytes();
        if self.space.borrow().has_lines() { ring / 3 * 2 } else { ring / 4 * 3 }
    }

    /// Whether staged blocks should move now.
    fn should_destage(&self) -> bool {
        let staged = self.staged_bytes.get() as u64;
        let most = self.shared.memory_per_shard / 16;
        let most = if self.data_in_log { most } else { most.min(BESIDE_CLIENTS_BYTES_MAX) };
        staged > 0 && (self.is_waited_for() || staged > most)
    }

    /// Whether staged blocks should move as fast as they can.
    fn is_waited_for(&self) -> bool {
        let full = self.staged_bytes.get() as u64 * (1 + self.plug_factor()) * 2 > self.staging_limit();
        full || self.checkpoint_wanted.get() || self.draining.get() > 0 || self.log_waiters.get() > 0
    }

    /// In how many places staged blocks are completed and written at a time. Where clients have the same disks and nobody waits for it: in few.
    pub fn destaged_at_once(&self) -> usize {
        let is_gentle = !self.data_in_log && !self.is_waited_for();
        self.places_at_once().min(if is_gentle { PLACES_BESIDE_CLIENTS } else { BLOCKS_MAX * WRITES_MAX })
    }

    /// Moves all that is staged now to the data disks. False when it does not move.
    pub async fn drain(self: &Rc<Self>) -> bool {
        let last = self.log.borrow().staged.newest();
        let Some(last) = last else { return true };
        let is_done = || self.log.borrow().staged.oldest().is_none_or(|oldest| oldest > last);
        self.draining.set(self.draining.get() + 1);
        self.progress.changed();
        let stalled = self.stall_watch();
        self.progress
            .until(|| {
                let stop = is_done() || stalled() || self.has_ended();
                if !stop {
                    self.want_checkpoint();
                    self.destage_work.send();
                }
                stop
            })
            .await;
        self.draining.set(self.draining.get() - 1);
        is_done()
    }

    /// Moves what is in a log that is on the data disks to its places, once no client has anything under way: then who has only some of the disks of an exported
    /// pool misses no more than what was on the others.
    pub async fn leave_log(self: &Rc<Self>) {
        let may_write = || !self.shared.import.read_only && !self.is_suspended();
        let mut left = usize::MAX;
        while !self.data_in_log && (1..left).contains(&self.staged_bytes.get()) && may_write() {
            left = self.staged_bytes.get();
            if self.destage_some().await.is_err() {
                return;
            }
        }
    }

    /// The task that moves staged blocks, until the shard stops.
    pub async fn destage_task(self: Rc<Self>) {
        loop {
            self.destage_work.wait().await;
            if self.damage.borrow().is_changed() {
                self.settle_damage();
            }
            while self.should_destage() && !self.has_ended() {
                let has_lines = self.space.borrow().has_lines();
                let moved = if has_lines { self.destage_lines().await } else { self.destage_some().await };
                // Who has blocks locked waits for no room, and lets go of them.
                if moved != Ok(false) {
                    self.destage_tries.set(self.destage_tries.get() + 1);
                }
                self.destage_stuck.set(moved.is_err());
                if let Err(error) = moved {
                    // Suspended, or no space: what made it so will wake this task again.
                    if error == IoError::NoSpace {
                        self.lacks_place.set(true);
                        self.find_space();
                    }
                    break;
                }
                self.progress.changed();
            }
            if self.stopping.get() {
                return;
            }
        }
    }

    /// Searches for space where some staged blocks have no place, and all others are about to be overwritten. Counts as a try of destaging, so that
    /// requests that wait for room in the log do not wait for ever.
    pub fn seek_space(self: &Rc<Self>, unplaced: Result<(), IoError>) {
        if unplaced == Err(IoError::NoSpace) && !self.finding_space.get() {
            self.destage_tries.set(self.destage_tries.get() + 1);
            self.find_space();
        }
    }

    /// Has others make space for what is staged. Not waited for: they may want room in the log, and that what is there moves on.
    fn find_space(self: &Rc<Self>) {
        if self.finding_space.replace(true) {
            return;
        }
        let shard = self.clone();
        self.spawn(async move {
            let before = shard.checkpoints.get();
            let found = shard.reclaim().await;
            // Not one search after the other: each moves blocks, and takes checkpoints.
            shard.rt.sleep(SEARCH_PAUSE).await;
            shard.finding_space.set(false);
            if found || shard.checkpoints.get() != before {
                shard.destage_work.send();
            }
        });
    }

    /// Moves the oldest blocks that have a place, so many that they make a large write. False when others had them locked.
    async fn destage_some(self: &Rc<Self>) -> Result<bool, IoError> {
        // What has a place gives others theirs.
        let unplaced = self.place_staged().await;
        let writes = if self.data_in_log { self.space.borrow().lanes().min(WRITES_MAX) } else { 1 };
        // After a failure less at a time may do: one block needs few nodes.
        let runs = self.oldest_runs(if self.destage_stuck.get() { 1 } else { BLOCKS_MAX * writes }).await;
        if runs.is_empty() {
            return unplaced.map(|()| true);
        }
        let mut locked = Vec::with_capacity(runs.len());
        for (nth, (dataset, blocks)) in runs.iter().enumerate() {
            // The log's tail cannot pass the oldest; others that somebody is about to replace need not be moved.
            let guard = match nth == 0 {
                true => Some(dataset.locks.lock(blocks.start, blocks.end - 1).await),
                false => dataset.locks.try_lock(blocks.start, blocks.end - 1),
            };
            locked.extend(guard.map(|guard| (dataset, blocks, guard)));
        }
        let places = self.destaged_at_once();
        let runs = locked.iter().map(|(dataset, blocks, _)| (*dataset, (*blocks).clone()));
        self.complete_all(runs, places).await?;
        locked.sort_by_key(|(dataset, blocks, _)| (dataset.number(), blocks.start));
        let by_dataset = locked.chunk_by(|(one, ..), (next, ..)| Rc::ptr_eq(one, next));
        let nodes =
            by_dataset.map(|runs| runs[0].0.nodes_over(runs.iter().map(|(_, blocks, _)| (*blocks).clone())));
        let nodes = self.reserve_nodes(nodes.sum(), Claim::Urgent).await?;
        let mut changes = Vec::new();
        for (dataset, blocks, _) in &locked {
            // What is pending is newer and stands before this entry in the log: moving the older contents would undo it.
            let movable = |block: &u64| !dataset.pending.borrow().overlaps(*block, block + 1);
            let staged = dataset.staged.borrow();
            for block in (*blocks).clone().filter(movable) {
                let Some(staged) = staged.get(&block) else { continue };
                let Some(place) = &staged.place else { continue };
                changes.push(Change::moved(dataset, block, self.to_store(staged), place));
            }
        }
        if changes.is_empty() {
            // Nothing is lost by letting the commit that supersedes them go first. It may itself wait for log room, which needs space for the other blocks.
            drop(locked);
            self.seek_space(unplaced);
            self.rt.sleep(SUPERSEDED_DELAY).await;
            return Ok(false);
        }
        let count = changes.len() as u64;
        let mut entry = Entry::new(self.entry_id(), changes, false);
        entry.nodes = Some(nodes);
        let done = entry.awaited();
        self.submit_durable(entry, places).await;
        let result = done.await;
        drop(locked);
        result.map(|()| self.destaged.set(self.destaged.get() + count))?;
        Ok(true)
    }

    /// The oldest blocks that have a place, up to `most`, with what follows each in block order, whatever its age: it merges.
    async fn oldest_runs(&self, most: usize) -> Vec<(Rc<Dataset>, Range<u64>)> {
        let has_place = |staged: &Staged| staged.place.is_some();
        let (mut taken, mut runs) = (BTreeSet::new(), Vec::new());
        let (mut next, mut steps) = ((0, 0, 0), Steps::default());
        // Many are passed over only when some of the oldest have no place, and find none.
        while taken.len() < most {
            steps.take(1).await;
            let oldest = self.log.borrow().staged.blocks_from(next).next();
            let Some((sequence, number, first)) = oldest else { break };
            next = (sequence, number, first + 1);
            let dataset = self.datasets.borrow().get(&number).cloned();
            let dataset = dataset.expect("staged blocks belong to a dataset");
            let run = {
                let staged = dataset.staged.borrow();
                let follow = staged.range(first..).zip(first..).take(most - taken.len());
                let run = follow.take_while(|((at, staged), want)| {
                    *at == want && has_place(staged) && !taken.contains(&(number, *want))
                });
                run.count() as u64
            };
            if run > 0 {
                taken.extend((first..first + run).map(|block| (number, block)));
                runs.push((dataset, first..first + run));
            }
        }
        runs
    }
}
