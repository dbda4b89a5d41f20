//! A whole group leaves the pool: what is in it moves to the other groups while clients work.
//!
//! Groups differ in width, cells and slots, so nothing moves as it is ([`crate::relocate`]); everything is written anew. From the
//! moment the label says that a group leaves, no chunk is granted from it, and nothing is allocated in those that it has. Then
//!
//! - the *log* goes on in new chunks: frames are written to both places until a checkpoint, whose tail is after the moment when
//!   that began, names the new ones;
//! - *blocks* are moved as by an evacuation ([`crate::evacuate`]), leaf by leaf of every tree;
//! - *nodes* are marked as changed, so that the next checkpoint writes them elsewhere; tables are written by every checkpoint.
//!
//! All in steps of the healer, each followed by a checkpoint. Chunks that are empty go as they always do. When none is left, one
//! label says that all the group's disks are gone. A crash loses a step at most: what is left to do is what the label says of the
//! group and the tables say of the chunks.

use crate::control::Control;
use crate::dataset::Dataset;
use crate::entry::Entry;
use crate::error::{Error, ErrorKind, IoError};
use crate::evacuate::{Moving, is_inside};
use crate::heal::{Round, as_task};
use crate::reserve::{Claim, Need};
use crate::shard::Shard;
use crate::spec::Severity;
use crate::steps::Steps;
use forebay_base::MIB;
use forebay_base::planted::{Bug, active};
use forebay_device::{DiskEntry, DiskLayout, DiskStatus, GroupEntry, Label, UNIT};
use forebay_log::Ring;
use forebay_qos::Task;
use forebay_space::{CLASSES, Chunk, ChunkEntry, ChunkId, ChunkKind, Lines};
use forebay_tree::FANOUT;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::ops::{AddAssign, ControlFlow};
use std::rc::Rc;

/// What one shard does in a step: few enough that a disk which fails meanwhile need not wait long to be rebuilt.
const STEP_BYTES: u64 = 64 * MIB;
/// 16 MiB of nodes.
const STEP_NODES: u64 = 1024;
const STEP_LEAVES: u64 = 4096;
/// Checkpoints until the log's tail must have moved on.
const LOG_LAPS: usize = 3;

/// Where the log goes on.
pub(crate) struct Successor {
    pub ring: Ring,
    pub chunks: Vec<ChunkEntry>,
    /// Position from which on every frame was written there, too.
    since: u64,
    /// The running checkpoint names it.
    sealed: bool,
}

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    More,
    /// The last leaf of the last tree has been seen.
    End,
    NoSpace,
}

/// What a shard has in a group, and room for, in bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Share {
    chunks: u64,
    data: u64,
    nodes: u64,
    log: u64,
    /// Free space in chunks of data of other groups.
    holes: u64,
}

/// Falls as a group empties.
fn rest(shares: &[Share]) -> u64 {
    shares.iter().map(|share| share.chunks + share.data + share.nodes + share.log).sum()
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Share) {
        self.chunks += other.chunks;
        self.data += other.data;
        self.nodes += other.nodes;
        self.log += other.log;
        self.holes += other.holes;
    }
}

impl Shard {
    async fn share(&self, group: u16) -> Share {
        let mut share = Share::default();
        let visit = |chunk: &Chunk| {
            let is_inside = chunk.entry.group == group;
            share.chunks += u64::from(is_inside);
            let busy = u64::from(chunk.busy.ones()) * UNIT;
            match chunk.entry.kind {
                // What is held for reserved volumes is held elsewhere then.
                ChunkKind::Data { class } if self.space.borrow().owed(class) > 0 => {
                    share.data += if is_inside { u64::from(chunk.entry.units) * UNIT } else { 0 }
                }
                ChunkKind::Data { .. } if is_inside => share.data += busy,
                ChunkKind::Data { .. } => share.holes += u64::from(chunk.busy.zeros()) * UNIT,
                ChunkKind::Node if is_inside => share.nodes += busy,
                ChunkKind::Log if is_inside => share.log += u64::from(chunk.entry.units) * UNIT,
                ChunkKind::Node | ChunkKind::Log => {}
            }
            ControlFlow::Continue(())
        };
        self.visit_chunks(ChunkId(0), visit).await;
        share
    }

    /// Allocates nothing in a group any more. False when checkpoints would find no place for their nodes elsewhere.
    async fn begin_vacating(self: &Rc<Self>, group: u16) -> bool {
        let held = self.space.borrow().nodes_held();
        while self.space.borrow().nodes_free_beside(group) < self.nodes_needed() + held {
            if !self.grant(ChunkKind::Node, Need::Urgent).await {
                return false;
            }
        }
        for class in 0..CLASSES as u8 {
            while self.space.borrow().lacking_without(class, group) > 0 {
                if !self.grant(ChunkKind::Data { class }, Need::Ordinary).await {
                    return false;
                }
            }
        }
        self.space.borrow_mut().vacate(group);
        true
    }

    /// Moves some of what is in a group elsewhere, from where the step before ended; how many bytes of blocks.
    async fn vacate_some(self: &Rc<Self>, group: u16) -> (Step, u64) {
        let mut closed = BTreeSet::new();
        let visit = |Chunk { entry, .. }: &Chunk| {
            if entry.group == group && entry.kind != ChunkKind::Log {
                closed.insert(entry.id);
            }
            ControlFlow::Continue(())
        };
        self.visit_chunks(ChunkId(0), visit).await;
        let (mut bytes, mut nodes, mut leaves, mut pace) = (0, 0, 0, self.pace(Task::Rebuild));
        let (mut number, mut leaf) = self.vacated.get();
        let mut steps = Steps::default();
        loop {
            let next = self.datasets.borrow().range(number..).next().map(|(_, dataset)| dataset.clone());
            let Some(dataset) = next.filter(|_| !closed.is_empty()) else {
                self.vacated.set((0, 0));
                return (Step::End, bytes);
            };
            if dataset.number() != number {
                (number, leaf) = (dataset.number(), 0);
            }
            if leaf == 0 && self.replace_staged(&dataset, &closed).await == Err(IoError::NoSpace) {
                return (Step::NoSpace, bytes);
            }
            loop {
                self.vacated.set((number, leaf));
                let is_enough = bytes > STEP_BYTES || nodes > STEP_NODES || leaves > STEP_LEAVES;
                if is_enough || self.has_ended() {
                    return (Step::More, bytes);
                }
                steps.take(FANOUT as usize).await;
                let found = match self.next_leaf(&dataset, leaf).await {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    // What cannot be read stays, and so does its chunk.
                    Err(hidden) => {
                        (leaf, leaves) = (hidden.end, leaves + 1);
                        continue;
                    }
                };
                let moved = match self
                    .move_leaf(&dataset, found, Moving::OutOf(&closed), Some(&mut pace))
                    .await
                {
                    Ok(moved) => self.rewrite_above(&dataset, found, &closed).await.map(|more| (moved, more)),
                    Err(error) => Err(error),
                };
                match moved {
                    Ok((moved, more)) => (bytes, nodes) = (bytes + moved, nodes + more),
                    Err(IoError::NoSpace) => return (Step::NoSpace, bytes),
                    Err(_) if self.has_ended() => return (Step::More, bytes),
                    // What cannot be read stays, and so does its chunk.
                    Err(_) => {}
                }
                (leaf, leaves) = (found + 1, leaves + 1);
            }
            (number, leaf) = (number + 1, 0);
        }
    }

    /// Has the next checkpoint write a leaf and the nodes above it elsewhere, if one of them is in a closed chunk; how many.
    async fn rewrite_above(
        self: &Rc<Self>,
        dataset: &Rc<Dataset>,
        leaf: u64,
        closed: &BTreeSet<ChunkId>,
    ) -> Result<u64, IoError> {
        let path = self.look_in_tree(dataset, |tree| tree.path(leaf)).await?;
        if !path.iter().any(|(_, node)| is_inside(node, closed)) {
            return Ok(0);
        }
        let nodes = u64::from(dataset.tree.borrow().height()) + 1;
        let claim = self.reserve_nodes(nodes, Claim::Moved).await?;
        self.change_tree(dataset, |tree| tree.rewrite(leaf));
        drop(claim);
        Ok(nodes)
    }

    /// Has the log go on in other chunks, those given if it was not about to already. False when its tail does not move: it stays
    /// in both places then.
    async fn move_log(self: &Rc<Self>, chunks: Vec<ChunkEntry>) -> bool {
        if let Some(first) = chunks.first() {
            let mut log = self.log.borrow_mut();
            let ring = Ring { chunk_bytes: u64::from(first.units) * UNIT, chunks: chunks.len() };
            let since = log.chain.position;
            log.successor = Some(Successor { ring, chunks, since, sealed: false });
        }
        for _ in 0..LOG_LAPS {
            // What was on its way to the log then is staged now.
            if !self.drain().await || !self.next_checkpoint().await || self.log.borrow().successor.is_none() {
                break;
            }
        }
        self.log.borrow().successor.is_none()
    }

    /// Part of sealing a checkpoint with this tail: the table names where the log goes on, if all that an import would read is there.
    pub fn seal_log(&self, tail: u64) {
        let mut log = self.log.borrow_mut();
        let ready = log.successor.as_mut().filter(|successor| tail >= successor.since);
        if let Some(successor) = ready {
            successor.sealed = true;
            self.space.borrow_mut().replace_log(successor.chunks.clone());
        }
    }

    /// The checkpoint is durable: the log is where its table says. True when that is elsewhere than before.
    pub fn switch_log(&self) -> bool {
        let mut log = self.log.borrow_mut();
        let Some(successor) = log.successor.take_if(|successor| successor.sealed) else { return false };
        log.ring = successor.ring;
        log.chunks = successor.chunks.into_iter().map(|chunk| chunk.slots).collect();
        true
    }

    /// Waits until what is being committed is.
    pub async fn committed_all(&self) {
        let mut entry = Entry::new(self.entry_id(), Vec::new(), false);
        let done = entry.awaited();
        self.submit(entry);
        // In a suspended pool nothing is written any more.
        let _ = done.await;
    }
}

impl Control {
    fn group_name(&self, group: u16) -> String {
        format!("{} group {group}", self.name())
    }

    fn group_refused(&self, group: u16, message: impl Into<String>, remedy: &str) -> Error {
        Error::new(ErrorKind::Unsafe, self.group_name(group), message).remedy(remedy)
    }

    async fn shares(&self, group: u16) -> Result<Vec<Share>, Error> {
        let shares = (0..self.shard_count())
            .map(|index| self.on_shard(index, move |shard| async move { shard.share(group).await }));
        join_all(shares).await.into_iter().collect()
    }

    /// What [`Control::group_remove`] would refuse; how many bytes would move. Changes nothing.
    pub async fn group_remove_check(&self, group: u16) -> Result<u64, Error> {
        let entry = {
            let label = self.label.borrow();
            let entry = label.groups.get(usize::from(group)).copied();
            if let Some(leaving) = label.groups.iter().position(|group| group.leaving) {
                let message = format!("group {leaving} is already being removed from the pool");
                let remedy = "Wait until it is removed; 'forebay pool status' shows the progress";
                return Err(Error::new(ErrorKind::Conflict, self.group_name(group), message).remedy(remedy));
            }
            entry.filter(|_| label.is_inhabited(usize::from(group)))
        };
        let Some(entry) = entry else {
            let message = format!("the pool has no group {group}");
            return Err(self
                .error(ErrorKind::NotFound, message)
                .remedy("See its groups with 'forebay pool status'"));
        };
        let snapshots = self.snapshot_count().await?;
        if snapshots > 0 {
            let are =
                if snapshots == 1 { "1 snapshot".to_string() } else { format!("{snapshots} snapshots") };
            let message = format!("the pool has {are}, and the data of a snapshot cannot move");
            return Err(self.group_refused(
                group,
                &message,
                "Delete them ('forebay snapshot list'), then try again",
            ));
        }
        let shares = self.shares(group).await?;
        let mut without = self.slots.borrow().without(group);
        let others: Vec<u16> = without.data_groups().collect();
        if others.is_empty() && entry.role == 0 {
            let message = "it is the only data group of the pool";
            let remedy = "Add another first, with 'forebay pool add POOL DISK… --layout LAYOUT'";
            return Err(self.group_refused(group, message, remedy));
        }
        let reserve = |total: u64| self.reserve(total);
        for share in shares.iter().filter(|share| share.log > 0) {
            if without.take_ring(share.log, reserve).is_none() {
                let message = format!(
                    "the pool's log is in it, and no other group has room for {} MiB of log",
                    share.log.div_ceil(MIB)
                );
                let remedy = "Add disks or a group first, or delete volumes";
                return Err(self.group_refused(group, message, remedy));
            }
        }
        let mut all = Share::default();
        shares.into_iter().for_each(|share| all += share);
        let label = self.label.borrow();
        let of_group = |group: &u16| &label.groups[usize::from(*group)];
        // Nodes are mirrored wherever they are, and begin a chunk for each shard.
        let slot = others.iter().map(|group| of_group(group).slot_bytes).max().unwrap_or(0);
        let nodes = match all.nodes {
            0 => 0,
            nodes => nodes + self.shard_count() as u64 * slot,
        };
        let cost = others.iter().map(|group| mirrored_permille(of_group(group))).max().unwrap_or(0);
        let needed = all.data + nodes * cost / 1000;
        let room = |group: &u16| {
            let (total, free) = without.chunks(*group);
            free.saturating_sub(reserve(total)) * u64::from(without.units(*group, crate::slots::DATA)) * UNIT
        };
        // Half of the holes may be too small, or be taken by others meanwhile.
        let room = others.iter().map(room).sum::<u64>() + all.holes / 2;
        if needed > room {
            let message = format!(
                "{} MiB would have to move, and the other groups have room for {} MiB",
                needed.div_ceil(MIB),
                room / MIB
            );
            let remedy = "Add disks or a group first, or delete volumes";
            return Err(self.group_refused(group, message, remedy));
        }
        Ok(all.data + all.nodes + all.log)
    }

    /// Has a group leave the pool.
    pub async fn group_remove(&self, group: u16) -> Result<(), Error> {
        // No snapshot is taken between the look and the mark.
        let _turn = self.lineage.lock(0, 0).await;
        let bytes = self.group_remove_check(group).await?;
        self.relabel(|label| label.groups[usize::from(group)].leaving = true).await?;
        let message =
            format!("group {group} is being removed: {} MiB move to other groups", bytes.div_ceil(MIB));
        self.event(Severity::Info, "group.leaving", self.name(), message);
        self.wake_healer();
        Ok(())
    }

    /// A step of emptying a group that leaves.
    pub async fn vacate(self: &Rc<Self>, group: u16) -> Result<Round, Error> {
        if let Some(blocked) = self.move_logs(group).await? {
            return Ok(Round::Blocked(blocked));
        }
        let no_room = format!(
            "the other groups have no room for all data of group {group}; add disks or a group, or delete volumes"
        );
        for index in 0..self.shard_count() {
            let begin = move |shard: Rc<Shard>| async move {
                as_task(&shard, move |shard| async move { shard.begin_vacating(group).await }).await
            };
            if self.on_shard(index, begin).await? != Some(true) {
                return Ok(Round::Blocked(no_room));
            }
        }
        let before = rest(&self.shares(group).await?);
        let steps = (0..self.shard_count()).map(|index| {
            self.on_shard(index, move |shard| async move {
                as_task(&shard, move |shard| async move { shard.vacate_some(group).await }).await
            })
        });
        let mut steps_made = Vec::new();
        for step in join_all(steps).await {
            // None is from a shard that ends.
            steps_made.push(step?.unwrap_or((Step::More, 0)));
        }
        self.note_progress(self.bytes_on(group), steps_made.iter().map(|(_, bytes)| bytes).sum());
        let has_ended = steps_made.iter().all(|(step, _)| *step == Step::End);
        if has_ended && active(Bug::GroupLeavesEarly) {
            return self.vacated(group).await;
        }
        self.checkpoint().await?;
        if steps_made.iter().any(|(step, _)| *step == Step::NoSpace) {
            // Checkpoints give space back that others freed.
            let is_better = rest(&self.shares(group).await?) < before;
            return Ok(if is_better { Round::Moved } else { Round::Blocked(no_room) });
        }
        if !has_ended {
            return Ok(Round::Moved);
        }
        for index in 0..self.shard_count() {
            let drain = |shard: Rc<Shard>| async move {
                as_task(&shard, |shard| async move { shard.drain().await }).await
            };
            self.on_shard(index, drain).await?;
        }
        // The first gives back what was moved away, the second lets the empty chunks go.
        self.checkpoint().await?;
        self.checkpoint().await?;
        let after = self.shares(group).await?;
        if after.iter().all(|share| share.chunks == 0) {
            return self.vacated(group).await;
        }
        if rest(&after) < before {
            return Ok(Round::Moved);
        }
        let left: u64 = after.iter().map(|share| share.data + share.nodes).sum();
        Ok(Round::Blocked(format!(
            "{left} bytes in group {group} cannot be read, or are always in use; a scrub finds the unrecoverable blocks: \
             overwrite them, or delete their volume"
        )))
    }

    /// Bytes of slots in use on a group's disks.
    fn bytes_on(&self, group: u16) -> u64 {
        let (label, slots) = (self.label.borrow(), self.slots.borrow());
        let own = |(_, disk): &(usize, &DiskEntry)| disk.group == group && disk.has_slots();
        let used = label.disks.iter().enumerate().filter(own).map(|(index, _)| slots.used(index as u16));
        used.sum::<u64>() * slots.slot_bytes(group)
    }

    /// Moves what is of the log in a group elsewhere; gives what is in the way.
    async fn move_logs(self: &Rc<Self>, group: u16) -> Result<Option<String>, Error> {
        for index in 0..self.shard_count() {
            // The healer of slots has the log in two places, too.
            let _turn = self.slots_turn().await;
            let look = move |shard: Rc<Shard>| async move {
                (shard.share(group).await.log, shard.log.borrow().successor.is_some())
            };
            let chunks = match self.on_shard(index, look).await? {
                (0, _) => continue,
                (_, true) => Vec::new(),
                (bytes, false) => {
                    let taken = self.slots.borrow_mut().take_ring(bytes, |total| self.reserve(total));
                    let Some(taken) = taken else {
                        let why =
                            "no other group has room for the log; add disks or a group, or delete volumes";
                        return Ok(Some(why.into()));
                    };
                    self.shared.note_crowds(&self.slots.borrow());
                    taken
                }
            };
            let go = |shard: Rc<Shard>| async move {
                as_task(&shard, |shard| async move { shard.move_log(chunks).await }).await
            };
            if self.on_shard(index, go).await? != Some(true) {
                let why = "the disks have no room for the data that is only in the log; add disks, or delete volumes";
                return Ok(Some(why.into()));
            }
        }
        Ok(None)
    }

    /// Nothing is in a group any more: its disks are no part of the pool. Spare and cache disks of it are from now on of another.
    async fn vacated(&self, group: u16) -> Result<Round, Error> {
        let is_own = |(_, disk): &(usize, &DiskEntry)| disk.group == group && disk.has_slots();
        let own: Vec<usize> =
            self.label.borrow().disks.iter().enumerate().filter(is_own).map(|(index, _)| index).collect();
        let is_unused = |disk: &usize| self.slots.borrow_mut().close_if_unused(*disk as u16);
        if !own.iter().all(is_unused) && !active(Bug::GroupLeavesEarly) {
            return Ok(Round::Blocked("its free space is being trimmed".into()));
        }
        let stays: Vec<u16> = self.slots.borrow().data_groups().collect();
        let mut gone = own.clone();
        self.relabel(|label| {
            label.groups[usize::from(group)].leaving = false;
            for index in &own {
                (label.disks[*index].status, label.disks[*index].heir_of) = (DiskStatus::Removed, None);
            }
            gone.extend(rehouse_spares(label, group, &stays));
        })
        .await?;
        for index in &gone {
            self.shared.healths[*index].emptied();
            self.shared.out_of_service(*index);
            self.let_go(*index).await;
        }
        for index in 0..self.shard_count() {
            let forget = move |shard: Rc<Shard>| async move {
                shard.space.borrow_mut().set_lines(group, Lines::default())
            };
            self.on_shard(index, forget).await?;
        }
        let message =
            format!("group {group} is empty, and its {} disks are no longer part of the pool", gone.len());
        self.event(Severity::Info, "group.removed", self.name(), message);
        Ok(Round::Moved)
    }
}

/// Bytes of room for data that a byte costs which is mirrored in a group, in thousandths.
fn mirrored_permille(group: &GroupEntry) -> u64 {
    let (data, redundancy) = (u64::from(group.data), u64::from(group.redundancy));
    (1 + redundancy) * data * 1000 / (data + redundancy)
}

/// Makes spare and cache disks of a group that leaves those of a group that stays; gives those that are too small for all, which leave.
fn rehouse_spares(label: &mut Label, group: u16, stays: &[u16]) -> Vec<usize> {
    let mut leaving = Vec::new();
    for (index, disk) in label.disks.iter_mut().enumerate() {
        if disk.group != group || !matches!(disk.status, DiskStatus::Spare | DiskStatus::Cache) {
            continue;
        }
        let fits = |group: &u16| {
            let group = &label.groups[usize::from(*group)];
            disk.status == DiskStatus::Cache
                || DiskLayout::new(disk.size, group.slot_bytes, u64::from(group.data)).is_ok()
        };
        match stays.iter().copied().find(fits) {
            Some(other) => disk.group = other,
            None => {
                disk.status = DiskStatus::Removed;
                leaving.push(index);
            }
        }
    }
    leaving
}
