//! The healer: moves slots off disks that are out of service or leaving, and spreads them when disks were added.
//!
//! One task per pool, on core 0, in rounds: it asks the shards which chunks have slots on such disks, picks some (those that
//! have lost most first), takes a new slot for each, and has the shards move them ([`crate::relocate`]). A round
//! is two checkpoints: one after which the closed chunks are still, one that makes the new places known; then the old
//! slots are free. A crash loses at most a round, and the next import goes on from what the label says of the disks.
//!
//! A group of disks that leaves is emptied in the same task ([`crate::vacate`]), when no slot has to move.
//!
//! When nothing is left on a disk, it is *empty* if it had failed, and no part of the pool any more if it was leaving.

use crate::control::Control;
use crate::error::Error;
use crate::relocate::{Move, Moved, Rank, Search};
use crate::shard::Shard;
use crate::signal::Signal;
use crate::slots::SlotMap;
use crate::spec::{Healing, Severity};
use crate::steps::Steps;
use forebay_base::MIB;
use forebay_base::planted::{Bug, active};
use forebay_device::DiskStatus;
use forebay_raid::DiskSet;
use forebay_runtime::completion;
use forebay_space::{ChunkEntry, ChunkKind};
use futures_util::future::{join_all, select};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Chunks that one shard moves in a round: what is free in them is not to be had meanwhile.
const MOVES_MAX: usize = 16;
/// Chunks that a shard is asked for at first. For most of them there is a place; where there is none, more are asked for each time, so that
/// all have been looked at after a few times.
const PAGE_MIN: usize = 4 * MOVES_MAX;
const PAGE_GROWTH: usize = 8;
/// How long to wait before looking again whether what blocks the work has gone.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// At most that, when a look takes long.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(300);

/// The healer's state.
#[derive(Default)]
pub(crate) struct Healer {
    wanted: Signal,
    /// How often it began to look at the pool, and to which of these it has come to an end.
    looks: Cell<(u64, u64)>,
    ended: Cell<bool>,
    closing_chunks: Cell<bool>,
    progress: RefCell<Option<Healing>>,
    /// What the last event said is in the way.
    told: RefCell<String>,
}

impl Healer {
    pub fn status(&self) -> Option<Healing> {
        self.progress.borrow().clone()
    }
}

/// The right to close chunks, until it is dropped.
pub(crate) struct Turn(Rc<Control>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.healer.closing_chunks.set(false);
        self.0.turnstile.changed();
    }
}

/// What a round came to.
pub(crate) enum Round {
    Moved,
    /// Nothing had to be moved.
    Idle,
    /// Something has to be moved, and this is why it is not.
    Blocked(String),
}

/// Moves of one shard.
struct Plan {
    shard: usize,
    moves: Vec<Move>,
}

/// A chunk of a shard, and which of its slots is to move.
type Wanted = (usize, ChunkEntry, usize);

/// How far the search for chunks that can move has come.
struct Pages {
    search: Search,
    /// Chunks that each shard is asked for.
    most: usize,
    /// By shard: what was asked for last, if that was something; nothing when there are no more, or it has enough to move.
    next: Vec<Option<Option<Rank>>>,
}

impl Pages {
    fn new(search: Search, shards: usize) -> Pages {
        Pages { search, most: PAGE_MIN, next: vec![Some(None); shards] }
    }

    /// Shards with a round's moves are asked for no more.
    fn pass(&mut self, plans: &[Plan]) {
        for plan in plans.iter().filter(|plan| plan.moves.len() >= MOVES_MAX) {
            self.next[plan.shard] = None;
        }
    }

    fn is_over(&self) -> bool {
        self.next.iter().all(Option::is_none)
    }
}

impl Control {
    pub fn start_healer(self: &Rc<Self>) {
        let control = self.clone();
        drop(self.rt.spawn(async move {
            control.heal_task().await;
            control.healer.ended.set(true);
            control.turnstile.changed();
        }));
        self.wake_healer();
    }

    /// A pool that is only read is not healed.
    pub fn forgo_healer(&self) {
        self.healer.ended.set(true);
    }

    /// Something changed that the healer may have to do with.
    pub fn wake_healer(&self) {
        self.healer.wanted.send();
    }

    /// Waits until the healer has ended; the pool is closing.
    pub async fn wait_for_healer(&self) {
        self.wake_healer();
        self.turnstile.until(|| self.healer.ended.get()).await;
    }

    /// Waits until the healer, looking at the pool as it is now, finds nothing to move, or nothing that can be moved.
    pub async fn healed(&self) {
        let goal = self.healer.looks.get().0 + 1;
        self.wake_healer();
        self.turnstile.until(|| self.healer.looks.get().1 >= goal || self.healer.ended.get()).await;
    }

    /// Closing chunks is for one at a time: rounds of the healer, steps of a scrub.
    pub async fn slots_turn(self: &Rc<Self>) -> Turn {
        self.turnstile.until(|| !self.reclaiming.get() && !self.healer.closing_chunks.replace(true)).await;
        Turn(self.clone())
    }

    pub fn is_ending(&self) -> bool {
        self.closing.get() || self.shared.is_suspended()
    }

    async fn heal_task(self: &Rc<Self>) {
        while !self.closing.get() {
            let (begun, ended) = self.healer.looks.get();
            self.healer.looks.set((begun + 1, ended));
            let start = self.rt.now();
            while !self.is_ending() {
                let round = self.next_round().await.unwrap_or_else(|error| Round::Blocked(error.message));
                match round {
                    Round::Moved => continue,
                    Round::Idle => {
                        self.healer.progress.take();
                        self.healer.told.take();
                    }
                    Round::Blocked(why) => self.note_blocked(why),
                }
                break;
            }
            let took = Duration::from_nanos(self.rt.now().since(start));
            self.healer.looks.set((begun + 1, begun + 1));
            self.turnstile.changed();
            let retry = self.rt.sleep((took * 8).clamp(RETRY_DELAY, RETRY_DELAY_MAX));
            let wanted = pin!(self.healer.wanted.wait());
            match self.healer.status() {
                Some(_) if !self.is_ending() => drop(select(wanted, retry).await),
                _ => wanted.await,
            }
        }
    }

    /// Moves slots, and when none can be moved, what is in a group that leaves.
    async fn next_round(self: &Rc<Self>) -> Result<Round, Error> {
        let round = self.round().await?;
        let leaving = self.label.borrow().groups.iter().position(|group| group.leaving);
        match (round, leaving) {
            (Round::Idle | Round::Blocked(_), Some(group)) => self.vacate(group as u16).await,
            (round, _) => Ok(round),
        }
    }

    /// Tells why the work does not go on; once, until something else is in the way.
    fn note_blocked(&self, why: String) {
        let mut progress = self.healer.progress.borrow_mut();
        let progress = progress.get_or_insert_with(|| Healing::since(self.rt.wall()));
        progress.blocked.clone_from(&why);
        if !why.is_empty() && self.healer.told.replace(why.clone()) != why {
            let message = format!("{} MiB cannot be moved: {why}", progress.bytes_left.div_ceil(MIB));
            self.event(Severity::Warning, "pool.rebuild_blocked", self.name(), message);
        }
    }

    async fn round(self: &Rc<Self>) -> Result<Round, Error> {
        let _turn = self.slots_turn().await;
        let (mut vacating, mut failed) = (DiskSet::default(), DiskSet::default());
        let mut disks = Vec::new();
        for (index, disk) in self.label.borrow().disks.iter().enumerate() {
            // What is in a group that leaves does not move within it.
            let stays = !self.label.borrow().groups[usize::from(disk.group)].leaving;
            if stays && matches!(disk.status, DiskStatus::Failed | DiskStatus::Leaving) {
                vacating.insert(index as u16);
                disks.push(index as u16);
            }
            if matches!(disk.status, DiskStatus::Failed | DiskStatus::Offline) {
                failed.insert(index as u16);
            }
        }
        let mut search = Pages::new(Search { vacating, failed }, self.shard_count());
        let (mut wanted, bytes_left) = self.next_wanted(&mut search).await?;
        for disk in disks {
            // From here on no chunk gets a slot there, so it stays empty.
            if self.slots.borrow_mut().close_if_unused(disk) {
                self.emptied(disk).await?;
            }
        }
        let is_vacating = !wanted.is_empty();
        let mut only = None;
        if !is_vacating {
            let unbalanced = self.slots.borrow().unbalanced();
            let Some((full, empty)) = unbalanced else { return Ok(Round::Idle) };
            // A few at a time: then it is seen who is the fullest now.
            let gap = {
                let both = self.slots.borrow();
                both.used(full).saturating_sub(both.used(empty)) / 4
            };
            let most = (gap as usize).clamp(1, MOVES_MAX);
            for shard in 0..self.shard_count() {
                let left = most - wanted.len();
                if left == 0 {
                    break;
                }
                let look =
                    move |shard: Rc<Shard>| async move { shard.chunks_between(full, empty, left).await };
                for chunk in self.on_shard(shard, look).await? {
                    let index = chunk.slots.iter().position(|slot| slot.disk == full);
                    wanted.push((shard, chunk, index.expect("it has a slot there")));
                }
            }
            only = Some(empty);
        }
        self.note_progress(bytes_left, 0);
        let mut plans = Vec::new();
        loop {
            self.plan(&mut plans, wanted, only).await;
            search.pass(&plans);
            if !is_vacating || search.is_over() {
                break;
            }
            (wanted, _) = self.next_wanted(&mut search).await?;
        }
        plans.retain(|plan| !plan.moves.is_empty());
        self.shared.note_crowds(&self.slots.borrow());
        if plans.is_empty() && !is_vacating {
            return Ok(Round::Idle);
        }
        if plans.is_empty() {
            if self.activate_spare().await? {
                return Ok(Round::Moved);
            }
            let why = "no other disk of the group can take the data; add a disk, or replace the one that failed or is being removed";
            return Ok(Round::Blocked(why.into()));
        }
        self.carry_out(plans).await
    }

    fn slot_bytes(&self, group: u16) -> u64 {
        self.label.borrow().groups[usize::from(group)].slot_bytes
    }

    pub fn note_progress(&self, left: u64, done: u64) {
        let mut progress = self.healer.progress.borrow_mut();
        let progress = progress.get_or_insert_with(|| Healing::since(self.rt.wall()));
        progress.bytes_left = left;
        progress.bytes_done += done;
        progress.blocked.clear();
    }

    /// Every chunk with a slot on one of the disks, with its shard.
    pub async fn chunks_on(&self, disks: DiskSet) -> Result<Vec<(usize, ChunkEntry)>, Error> {
        let mut found = Vec::new();
        for index in 0..self.shard_count() {
            let on = disks.clone();
            let chunks = self.on_shard(index, move |shard| async move { shard.chunks_on(&on).await }).await?;
            found.extend(chunks.into_iter().map(|chunk| (index, chunk)));
        }
        Ok(found)
    }

    /// What each shard that has no more than it can move in a round has to move next, those that have lost most first; and how many bytes
    /// there are to move.
    async fn next_wanted(&self, pages: &mut Pages) -> Result<(Vec<Wanted>, u64), Error> {
        let Pages { search, most, .. } = &*pages;
        let (search, most) = (search.clone(), *most);
        let (mut wanted, mut bytes): (Vec<Wanted>, u64) = (Vec::new(), 0);
        for (shard, next) in pages.next.iter_mut().enumerate() {
            let Some(after) = *next else { continue };
            let own = search.clone();
            let look = move |shard: Rc<Shard>| async move { shard.next_to_move(own, after, most).await };
            let (chunks, slots) = self.on_shard(shard, look).await?;
            bytes += slots.iter().map(|(group, slots)| slots * self.slot_bytes(*group)).sum::<u64>();
            *next = chunks.last().filter(|_| chunks.len() == most).map(|last| Some(search.rank(last)));
            for chunk in chunks {
                let on = |disks: &DiskSet| chunk.slots.iter().position(|slot| disks.contains(slot.disk));
                let lost = chunk.slots.iter().position(|slot| {
                    search.vacating.contains(slot.disk) && search.failed.contains(slot.disk)
                });
                let index = lost.or(on(&search.vacating)).expect("it has a slot on one of the disks");
                wanted.push((shard, chunk, index));
            }
        }
        wanted.sort_by_key(|(_, chunk, _)| search.rank(chunk));
        pages.most *= PAGE_GROWTH;
        Ok((wanted, bytes))
    }

    /// Whether what is left on the disks of a group is kept for nodes, since no other group has room for them.
    fn keeps_room(&self, slots: &SlotMap, group: u16) -> bool {
        let has_room = |other: u16| {
            let (total, free) = slots.chunks(other);
            other != group && free > self.reserve(total)
        };
        slots.is_down_to(group, || self.reserve(slots.chunks(group).0)) && !slots.data_groups().any(has_room)
    }

    /// Takes slots for what is to move, as much as a round holds.
    async fn plan(&self, plans: &mut Vec<Plan>, wanted: Vec<Wanted>, only: Option<u16>) {
        let mut steps = Steps::default();
        for (shard, chunk, index) in wanted {
            steps.take(1).await;
            let (label, mut slots) = (self.label.borrow(), self.slots.borrow_mut());
            let at = plans.iter().position(|plan| plan.shard == shard).unwrap_or_else(|| {
                plans.push(Plan { shard, moves: Vec::new() });
                plans.len() - 1
            });
            let moves = &mut plans[at].moves;
            // Nodes cannot go into a chunk that is closed: one at a time.
            let is_node = |chunk: &ChunkEntry| chunk.kind == ChunkKind::Node;
            let second_node = is_node(&chunk) && moves.iter().any(|one| is_node(&one.chunk));
            if moves.len() >= MOVES_MAX || second_node {
                continue;
            }
            let old = chunk.slots[index].disk;
            // A checkpoint, a deletion and a new volume need nodes; what is mirrored where data waits for a disk can wait for it, too.
            let is_mirrored = !matches!(chunk.kind, ChunkKind::Data { .. });
            if is_mirrored
                && only.is_none()
                && slots.heir_of(old).is_none()
                && self.keeps_room(&slots, chunk.group)
            {
                continue;
            }
            let Some(target) = slots.take_target(&chunk, index, only) else { continue };
            let is_heir = label.disks[usize::from(target.disk)].heir_of == Some(old);
            let holds = is_heir.then(|| label.disks[usize::from(old)].stale_since);
            moves.push(Move { chunk, index, target, holds });
        }
    }

    async fn carry_out(self: &Rc<Self>, plans: Vec<Plan>) -> Result<Round, Error> {
        let mut begun = Vec::new();
        for Plan { shard, moves } in plans {
            let planned = moves.clone();
            let begin = |shard: Rc<Shard>| async move {
                as_task(&shard, |shard| async move { shard.begin_moves(moves).await }).await
            };
            let moves = self.on_shard(shard, begin).await?.unwrap_or_default();
            self.return_targets(&planned, |one| !moves.iter().any(|other| other.target == one.target));
            begun.push(Plan { shard, moves });
        }
        let mut moved: Vec<(usize, Vec<Moved>)> = Vec::new();
        if self.checkpoint().await.is_ok() {
            let copying = begun.iter().map(|plan| {
                let moves = plan.moves.clone();
                let copy = |shard: Rc<Shard>| async move {
                    as_task(&shard, |shard| async move { shard.copy_moves(moves).await }).await
                };
                async move {
                    (plan.shard, self.on_shard(plan.shard, copy).await.ok().flatten().unwrap_or_default())
                }
            });
            moved = join_all(copying).await;
        }
        let is_known = active(Bug::MovedSlotReusedEarly) || self.checkpoint().await.is_ok();
        let done: BTreeSet<_> = moved
            .iter()
            .flat_map(|(_, moved)| moved)
            .filter(|moved| moved.done)
            .map(|moved| moved.id)
            .collect();
        for Plan { shard, moves } in &begun {
            let ended = moves.clone();
            let end = |shard: Rc<Shard>| async move {
                shard.end_moves(&ended);
                if ended.iter().any(|one| one.chunk.kind == ChunkKind::Log) {
                    // A frame may still be on its way to where the log was.
                    shard.committed_all().await;
                }
            };
            self.on_shard(*shard, end).await?;
            if !is_known {
                // Which of the two places counts is decided by the next import.
                continue;
            }
            self.return_targets(moves, |one| !done.contains(&one.chunk.id));
            let mut slots = self.slots.borrow_mut();
            for one in moves.iter().filter(|one| done.contains(&one.chunk.id)) {
                slots.vacate(one.chunk.slots[one.index]);
            }
        }
        if !is_known {
            return Err(self.suspended());
        }
        let all = || moved.iter().flat_map(|(_, moved)| moved);
        let bytes: u64 = all().map(|moved| moved.copied).sum();
        let lost: u64 = all().map(|moved| moved.lost).sum();
        if lost > 0 {
            let message = format!(
                "{lost} bytes of disk could not be rebuilt: too few disks of their stripes can be read. Reads of this data fail until \
                 it is overwritten or restored from a backup"
            );
            self.event(Severity::Error, "pool.rebuild_lost", self.name(), message);
        }
        self.note_progress(self.healer.status().map_or(0, |progress| progress.bytes_left), bytes);
        Ok(if done.is_empty() { Round::Blocked(String::new()) } else { Round::Moved })
    }

    /// Gives targets back that nothing moved to.
    fn return_targets(&self, moves: &[Move], unused: impl Fn(&Move) -> bool) {
        let mut slots = self.slots.borrow_mut();
        for one in moves.iter().filter(|one| unused(one)) {
            // The place under a disk's new number is kept while the old one has it.
            slots.vacate(one.target);
        }
    }

    /// Nothing points to a disk any more.
    async fn emptied(&self, disk: u16) -> Result<(), Error> {
        let index = usize::from(disk);
        let is_failed = self.label.borrow().disks[index].status == DiskStatus::Failed;
        let has_heir = self.label.borrow().disks.iter().any(|other| other.heir_of == Some(disk));
        let status = if is_failed && !has_heir { DiskStatus::Empty } else { DiskStatus::Removed };
        if is_failed {
            self.shared.healths[index].emptied();
        }
        // An empty disk may come back, and still is the heir of what it was.
        self.relabel(|label| match status {
            DiskStatus::Removed => label.take_out(index),
            _ => label.disks[index].status = status,
        })
        .await?;
        let path = self.disks.borrow()[index].path.clone();
        let (code, message) = match (is_failed, has_heir) {
            (true, true) => (
                "disk.resilvered",
                format!("disk {index} ({path}) is resilvered: all data that it missed was copied to it"),
            ),
            (true, false) => {
                ("disk.rebuilt", format!("all data of disk {index} ({path}) has been rebuilt on other disks"))
            }
            (false, _) => {
                ("disk.removed", format!("disk {index} ({path}) is empty and no longer part of the pool"))
            }
        };
        self.event(Severity::Info, code, &self.disk_name(index), message);
        if !is_failed {
            self.shared.healths[index].emptied();
            self.shared.out_of_service(index);
            self.let_go(index).await;
        }
        Ok(())
    }
}

/// Runs `work` as a task that the shard's end waits for; nothing when it did not come to its end.
pub(crate) async fn as_task<T: 'static, W: Future<Output = T> + 'static>(
    shard: &Rc<Shard>,
    work: impl FnOnce(Rc<Shard>) -> W,
) -> Option<T> {
    let (done, result) = completion();
    let working = work(shard.clone());
    shard.spawn(async move { done.complete(Some(working.await)) });
    result.await
}
