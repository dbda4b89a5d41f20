//! Moving a volume to another pool, on the core that both places are on: copying, and the switch.
//!
//! The volume's blocks are copied into a hidden volume of the other pool by ordinary reads and writes, while clients work; what they
//! change meanwhile is marked ([`Changes`]) as it gets into the tree, and copied again. When little is left, no change begins any more, what
//! was begun ends, and the rest is copied. Then, each step durable before the next:
//!
//! 1. the hidden volume is complete: it has all data, and says so;
//! 2. the volume is *moved*, here: this decides;
//! 3. the hidden volume is live, there. All handles lead to it from then on ([`crate::handle`]), and what waited begins there.
//!
//! A crash before 2 leaves the volume where it was, one after it where it goes; [`crate::moves`] cleans up. `docs/development/decisions/0016-moving-volumes.md` has
//! the table of what a crash leaves at each step.

use crate::changes::Changes;
use crate::dataset::{Dataset, STAGED_LOOK};
use crate::entry::Entry;
use crate::error::IoError;
use crate::progress::WorkProgress;
use crate::read::Reader;
use crate::record::{DatasetRecord, DatasetState};
use crate::registry::registry;
use crate::shard::Shard;
use crate::steps::Steps;
use crate::volume::LocalVolume;
use forebay_base::planted::{Bug, active};
use forebay_qos::{Task, Work};
use forebay_tree::FANOUT;
use futures_util::future::{Either, join_all, select};
use std::cell::Cell;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one read and write, and how many of these are under way.
const RUN_BYTES: u64 = 1 << 20;
const RUNS: usize = 4;
/// So much is left to copy while clients wait, some 50 ms of a disk's bandwidth.
const REST_BYTES: u64 = 4 << 20;
/// 128 blocks of 4 KiB: disks that seek read and write them well within a second.
const REST_BYTES_MIN: u64 = REST_BYTES / 8;
/// With more, clients had time to change much since little was left, and the switch is not begun.
const NEAR_BYTES: u64 = 4 * REST_BYTES;
/// How long clients' changes wait at the switch, each time that is tried, before it is decided that the volume moves.
const PAUSE_MAX: Duration = Duration::from_secs(2);
pub(crate) const PAUSE_TRIES: u32 = 10;
/// How long clients go on in between.
pub(crate) const PAUSE_DELAY: Duration = Duration::from_millis(500);
/// Changes of clients that change more than can be copied wait for 1, 3, 7 … times as long as they may then begin: up to 2 to this power, less one.
const PRESSURE_MAX: u32 = 6;
/// So they wait for half a second at most, 63 times this.
const TURN: Duration = Duration::from_micros(500_000 / ((1 << PRESSURE_MAX) - 1));
/// How often is looked whether clients' changes that were begun have ended.
const LOOK_DELAY: Duration = Duration::from_micros(100);
/// Leaves of the tree that are listed without giving others a turn.
const LEAVES: usize = 4096;

/// Why a move ends before the volume has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Halt {
    Canceled,
    /// The switch would have clients wait for too long just now.
    Busy,
    /// The volume is no longer what it was when the move began.
    Changed,
    Source(IoError),
    Target(IoError),
    /// Nobody knows whether the volume has moved before its pool is imported again.
    Undecided(IoError),
    /// It has moved, and is live when the other pool is imported again.
    NotLive(IoError),
}

impl Halt {
    /// Whether the volume is where it was, and what was copied is of no use.
    pub fn is_undone(self) -> bool {
        !matches!(self, Halt::Undecided(_) | Halt::NotLive(_))
    }
}

/// The two sides of a move.
pub(crate) struct Copier {
    source: LocalVolume,
    target: LocalVolume,
    progress: Arc<WorkProgress>,
    /// The switch is given up, for now.
    is_late: Cell<bool>,
}

impl Copier {
    /// Begins to take note of changes; all that there is counts as one.
    pub async fn begin(source: LocalVolume, target: LocalVolume, progress: Arc<WorkProgress>) -> Copier {
        let dataset = &source.dataset;
        let blocks = dataset.record.borrow().blocks();
        *dataset.changes.borrow_mut() = Some(Changes::new(blocks));
        // What moves from the log to the tree meanwhile is in a leaf below.
        let (mut from, mut steps) = (Some(0), Steps::default());
        while let Some(next) = from.take() {
            steps.take(STAGED_LOOK).await;
            let staged = dataset.staged.borrow();
            for (looked, block) in staged.range(next..).map(|(block, _)| *block).enumerate() {
                if looked == STAGED_LOOK {
                    from = Some(block);
                    break;
                }
                dataset.note_changed(block, block + 1);
            }
        }
        let mapped = dataset.tree.borrow().mapped().blocks as u64;
        let mapped = mapped + dataset.blocks_staged().await;
        progress.expect(mapped * dataset.block_bytes() as u64);
        let leaves = dataset.record.borrow().blocks().div_ceil(FANOUT);
        let mut leaf = Some(0);
        while leaf.is_some() {
            for _ in 0..LEAVES {
                let Some(at) = leaf else { break };
                let (found, end) = match source.shard.next_leaf(dataset, at).await {
                    Ok(Some(found)) => (found, found + 1),
                    Ok(None) => {
                        leaf = None;
                        break;
                    }
                    // Whoever copies what may be there finds that it cannot be read.
                    Err(hidden) => (at, hidden.end),
                };
                dataset.note_changed(found * FANOUT, end.min(leaves.max(found + 1)) * FANOUT);
                leaf = Some(end);
            }
            source.shard.rt.sleep(Duration::ZERO).await;
        }
        Copier::again(source, target, progress)
    }

    /// A move that was begun goes on.
    pub fn again(source: LocalVolume, target: LocalVolume, progress: Arc<WorkProgress>) -> Copier {
        Copier { source, target, progress, is_late: Cell::new(false) }
    }

    fn left(&self) -> u64 {
        let dataset = &self.source.dataset;
        let blocks = dataset.changes.borrow().as_ref().map_or(0, Changes::left);
        blocks * dataset.block_bytes() as u64
    }

    fn check(&self) -> Result<(), Halt> {
        let (source, target) = (&self.source, &self.target);
        if self.progress.is_canceled() {
            Err(Halt::Canceled)
        } else if source.dataset.gone.get() || source.shard.stopping.get() {
            Err(Halt::Source(IoError::Gone))
        } else if source.shard.is_suspended() {
            Err(Halt::Source(IoError::Suspended))
        } else if target.dataset.gone.get() || target.shard.stopping.get() {
            Err(Halt::Target(IoError::Gone))
        } else if self.is_late.get() {
            Err(Halt::Busy)
        } else {
            Ok(())
        }
    }

    /// Makes the target what the source is in these blocks.
    async fn copy(&self, run: Range<u64>) -> Result<(), Halt> {
        let (source, target) = (&self.source, &self.target);
        let block_bytes = source.dataset.block_bytes() as u64;
        let (mut at, end) = (run.start * block_bytes, run.end * block_bytes);
        while at < end {
            for extent in source.extents(at, end - at, 64, Reader::Copier).await.map_err(Halt::Source)? {
                if extent.mapped {
                    let (first, last) = (at / block_bytes, (at + extent.len - 1) / block_bytes);
                    // Counted, and over before it waits for a turn at the target, where another move may wait for one here.
                    let turn = source.shard.unasked(Task::Copy, Work::read(extent.len, 1));
                    let data = source.shard.read_blocks(&source.dataset, first, last, Reader::Copier).await;
                    drop(turn);
                    let data = data.map_err(Halt::Source)?;
                    target.write_moved(at, data).await.map_err(Halt::Target)?;
                    self.progress.add(extent.len);
                } else {
                    target.discard(at, extent.len, false).await.map_err(Halt::Target)?;
                }
                at += extent.len;
            }
        }
        Ok(())
    }

    /// Goes through all that has changed once, from left to right; it may give way to clients.
    async fn sweep(&self, gives_way: bool) -> Result<(), Halt> {
        let source = &self.source;
        let (shard, dataset) = (&source.shard, &source.dataset);
        let blocks_max = RUN_BYTES / dataset.block_bytes() as u64;
        let (mut at, mut pace) = (0, shard.pace(Task::Copy));
        loop {
            self.check()?;
            let next = |at: &mut u64| {
                let run = dataset.changes.borrow_mut().as_mut()?.take(*at, blocks_max)?;
                *at = run.end;
                Some(run)
            };
            let runs: Vec<_> = std::iter::from_fn(|| next(&mut at)).take(RUNS).collect();
            if runs.is_empty() {
                return Ok(());
            }
            pace.begin();
            let copied = join_all(runs.iter().map(|run| self.copy(run.clone()))).await;
            if let Some(halt) = copied.into_iter().find_map(Result::err) {
                // Nobody may be told: a switch that was given up is tried again.
                runs.into_iter().for_each(|run| dataset.note_changed(run.start, run.end));
                return Err(halt);
            }
            if gives_way {
                pace.rest().await;
            }
        }
    }

    /// Lets clients' changes begin, and has them wait, in turn.
    async fn take_turns(&self, pressure: u32) -> Infallible {
        let (rt, dataset) = (&self.source.shard.rt, &self.source.dataset);
        loop {
            // This first, or sweeps that follow each other would leave clients no turn.
            rt.sleep(TURN).await;
            dataset.pause(true);
            rt.sleep(TURN * ((1 << pressure) - 1)).await;
            dataset.pause(false);
        }
    }

    /// The same while something is copied.
    async fn under_pressure<T>(&self, pressure: u32, work: impl Future<Output = T>) -> T {
        if pressure == 0 {
            return work.await;
        }
        let done = match select(pin!(work), pin!(self.take_turns(pressure))).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => match never {},
        };
        self.source.dataset.pause(false);
        done
    }

    /// Copies until little is left: less after each time that a switch was tried, since that takes long here.
    pub async fn approach(&self, tried: u32) -> Result<(), Halt> {
        self.end_late().await;
        let rest = (REST_BYTES >> tried).max(REST_BYTES_MIN);
        let (mut before, mut pressure) = (u64::MAX, 0);
        loop {
            let left = self.left();
            if left <= rest {
                break;
            }
            if left > before / 2 {
                pressure = (pressure + 1).min(PRESSURE_MAX);
            }
            before = left;
            self.under_pressure(pressure, self.sweep(pressure == 0)).await?;
        }
        self.check()
    }

    /// Whether there is still little left.
    pub fn is_near(&self) -> Result<(), Halt> {
        if self.left() > NEAR_BYTES { Err(Halt::Busy) } else { Ok(()) }
    }

    /// The volume becomes that of the other pool. `Busy` when it takes too long until that can be decided; what is under way then ends
    /// by itself ([`Copier::end_late`]), and neither clients nor management wait for it.
    pub async fn switch(self) -> Result<(), Halt> {
        let (rt, copier) = (self.source.shard.rt.clone(), Rc::new(self));
        let dataset = &copier.source.dataset;
        dataset.pause(true);
        let work = copier.clone();
        let complete = rt.spawn(async move { work.complete().await });
        let switched = match select(complete, pin!(rt.sleep(PAUSE_MAX))).await {
            Either::Left((Ok(()), _)) => copier.decide().await,
            Either::Left((error, _)) => error,
            Either::Right(_) => {
                copier.is_late.set(true);
                Err(Halt::Busy)
            }
        };
        dataset.pause(false);
        switched
    }

    /// Waits until a switch that was given up does nothing any more: what it has read is old by now.
    async fn end_late(&self) {
        self.target.dataset.quiesce().await;
    }

    /// Brings all there that is here, and makes it durable.
    async fn complete(&self) -> Result<(), Halt> {
        let LocalVolume { shard, dataset } = &self.source;
        let _active = self.target.begin().map_err(Halt::Target)?;
        while dataset.is_changing() {
            self.check()?;
            shard.rt.sleep(LOOK_DELAY).await;
        }
        // What nobody waits for any more, a discard whose client has gone, is in the tree too when this is.
        let mut entry = Entry::new(shard.entry_id(), Vec::new(), true);
        let done = entry.awaited();
        shard.submit(entry);
        done.await.map_err(Halt::Source)?;
        if !active(Bug::MoveSkipsRest) {
            self.sweep(false).await?;
        }
        let attributes = self.source.load_attributes().await.map_err(Halt::Source)?;
        let attributes = attributes.unwrap_or_default();
        self.check()?;
        self.target.store_attributes(&attributes).await.map_err(Halt::Target)?;
        self.target.flush().await.map_err(Halt::Target)
    }

    /// From here on nothing is tried again.
    async fn decide(&self) -> Result<(), Halt> {
        let (source, target) = (&self.source.dataset, &self.target.dataset);
        // Whoever changes properties has to wait, and finds it gone.
        let _turn = source.properties.lock(0, 0).await;
        let now = source.record.borrow().clone();
        let there = target.record.borrow().clone();
        let is_same = (now.size, now.format, now.state) == (there.size, there.format, DatasetState::Live);
        if !is_same || !self.source.shard.snapshots_of(now.number).is_empty() {
            return Err(Halt::Changed);
        }
        let DatasetRecord { sync, compression, schedule, level, inherits, .. } = now;
        let received = there.blocks();
        let complete = DatasetRecord { sync, compression, schedule, level, inherits, received, ..there };
        let to = &self.target.shard;
        to.put_all(vec![complete.clone()]).await.map_err(Halt::Target)?;
        self.check()?;
        let moved = DatasetRecord { state: DatasetState::Moved, peer: to.shared.id, ..now };
        let live = DatasetRecord { state: DatasetState::Live, peer: forebay_base::Id(0), ..complete };
        if active(Bug::MoveLiveBeforeMark) {
            to.put_all(vec![live.clone()]).await.map_err(Halt::NotLive)?;
        }
        self.source.shard.put_all(vec![moved]).await.map_err(Halt::Undecided)?;
        if !active(Bug::MoveLiveBeforeMark)
            && let Err(error) = to.put_all(vec![live]).await
        {
            // Nothing is written here any more, since nobody could tell which of the two is newer.
            registry(&to.rt).hand_over(to, target.clone());
            return Err(Halt::NotLive(error));
        }
        Ok(())
    }

    /// Nothing is copied any more.
    pub async fn end(&self) {
        self.end_late().await;
        *self.source.dataset.changes.borrow_mut() = None;
    }
}

impl Shard {
    /// Volumes of this pool that a move has left in one of its states.
    pub fn halves(&self) -> Vec<DatasetRecord> {
        let is_half =
            |record: &DatasetRecord| matches!(record.state, DatasetState::Moved | DatasetState::Arriving);
        let datasets = self.datasets.borrow();
        let halves = datasets.values().filter(|known| is_half(&known.record.borrow()));
        halves.map(|half| half.record.borrow().clone()).collect()
    }

    pub fn half(&self, number: u64) -> Option<Rc<Dataset>> {
        let found = self.datasets.borrow().get(&number).cloned()?;
        let state = found.record.borrow().state;
        matches!(state, DatasetState::Moved | DatasetState::Arriving).then_some(found)
    }
}
