//! Gathering: blocks that follow each other in a volume come to lie beside each other.
//!
//! Nothing is overwritten in place, so what was written at random lies where it came, and who reads it in sequence has each block read by itself. Where
//! what is read ahead of a stream is found scattered ([`crate::ahead`]), its leaves are noted. While the shard's clients rest, their blocks are written anew in
//! order, as by an evacuation ([`crate::evacuate`]), into chunks that are empty; where there are none, the emptiest are emptied first.
//!
//! Bounds: only what a volume has for itself, since a snapshot's blocks do not move; no more blocks than clients have written, and once as many as the volume has; and
//! what is noted is forgotten where there is no room for it, until somebody reads it in sequence again. `docs/decisions/0020-gathering.md` has the reasons.

use crate::dataset::Dataset;
use crate::error::IoError;
use crate::evacuate::Moving;
use crate::shard::Shard;
use crate::turns::Pace;
use forebay_base::MIB;
use forebay_qos::Task;
use forebay_runtime::{Rt, completion};
use forebay_space::Ptr;
use forebay_tree::FANOUT;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Blocks are scattered where those that lie beside each other have fewer bytes than this on the average: a request for so little costs hardly more than one
/// for a block.
const TOGETHER_BYTES: usize = 64 << 10;
/// Leaves that are noted of a volume: 16 GiB in blocks of 8 KiB.
const NOTED_MAX: usize = 4096;
/// How long clients have to rest, and with how many operations they still do.
const REST: Duration = Duration::from_secs(1);
const REST_OPERATIONS: u64 = 16;
/// What is moved before a checkpoint gives back what it left.
const STEP_BYTES: u64 = 64 * MIB;

/// What of a volume is to be gathered.
pub(crate) struct Gathering {
    leaves: BTreeSet<u64>,
    /// Blocks that may be moved yet.
    allowed: u64,
    /// Blocks that the volume has room for.
    blocks: u64,
}

impl Gathering {
    pub fn new(blocks: u64) -> Gathering {
        Gathering { leaves: BTreeSet::new(), allowed: blocks, blocks }
    }

    fn spend(&mut self, blocks: u64) {
        self.allowed = self.allowed.saturating_sub(blocks);
    }

    /// Clients have written so many blocks.
    pub fn allow(&mut self, blocks: u64) {
        self.allowed = self.allowed.saturating_add(blocks).min(self.blocks);
    }

    /// The next leaf; where no more blocks may be moved, none is noted any longer.
    fn next(&mut self) -> Option<u64> {
        if self.allowed == 0 {
            self.leaves.clear();
        }
        self.leaves.pop_first()
    }
}

/// Whether what is read, of runs of these sizes, lies in too many places.
fn is_scattered(bytes: usize, runs: usize) -> bool {
    runs > 1 && bytes < runs * TOGETHER_BYTES
}

impl Shard {
    /// Takes note of what a stream reads from the disks in runs of these sizes.
    pub fn note_scattered(self: &Rc<Self>, dataset: &Dataset, blocks: Range<u64>, runs: &[usize]) {
        if !is_scattered(runs.iter().sum(), runs.len()) || self.shared.import.read_only {
            return;
        }
        let mut gathering = dataset.gathering.borrow_mut();
        if gathering.leaves.len() < NOTED_MAX {
            gathering.leaves.extend(blocks.start / FANOUT..=(blocks.end - 1) / FANOUT);
        }
        if !self.gathers.replace(true) {
            drop(self.rt.spawn(wait_for_rest(Rc::downgrade(self), self.rt.clone())));
        }
    }

    /// Moves what was noted, while clients rest. Nothing of it is left that has no room.
    async fn gather(self: &Rc<Self>) {
        let (mut moved, mut pace) = (0, self.pace(Task::Rebuild));
        // What is in the log only has no place yet that could be near to others.
        if self.staged_bytes.get() > 0 && !self.drain().await {
            return;
        }
        while let Some((dataset, leaf)) = self.next_scattered() {
            if self.stopping.get() || self.is_suspended() {
                break;
            }
            let served = self.served.get();
            let mut result = self.gather_leaf(&dataset, leaf, &mut pace).await;
            // What clients have overwritten is free after a checkpoint.
            if result == Err(IoError::NoSpace) && self.expects_space() && self.next_checkpoint().await {
                result = self.gather_leaf(&dataset, leaf, &mut pace).await;
            }
            let is_roomy = || self.space.borrow().is_roomy();
            if result == Err(IoError::NoSpace) && is_roomy() && self.reclaim().await {
                result = self.gather_leaf(&dataset, leaf, &mut pace).await;
            }
            if result == Err(IoError::NoSpace) {
                self.datasets.borrow().values().for_each(|other| other.gathering.borrow_mut().leaves.clear());
            }
            moved += result.unwrap_or(0);
            if moved > STEP_BYTES {
                self.next_checkpoint().await;
                moved = 0;
            }
            if self.served.get() - served > REST_OPERATIONS {
                break;
            }
        }
        self.space.borrow_mut().end_gathering();
    }

    fn next_scattered(&self) -> Option<(Rc<Dataset>, u64)> {
        let datasets = self.datasets.borrow();
        datasets.values().find_map(|dataset| {
            let leaf = dataset.gathering.borrow_mut().next()?;
            Some((dataset.clone(), leaf))
        })
    }

    /// Moves the blocks of a leaf if they are scattered still, and nearly all of them can move; how many bytes.
    async fn gather_leaf(
        self: &Rc<Self>,
        dataset: &Rc<Dataset>,
        leaf: u64,
        pace: &mut Pace,
    ) -> Result<u64, IoError> {
        let ptrs = self.leaf_pointers_in_turn(dataset, leaf, Some(pace)).await?;
        let mapped: Vec<&Ptr> = ptrs.iter().filter(|ptr| !ptr.is_hole()).collect();
        let own = mapped.iter().filter(|ptr| self.may_move(dataset, ptr, leaf)).count();
        let bytes = mapped.iter().map(|ptr| ptr.bytes() as usize).sum();
        let runs = mapped.chunk_by(|one, next| one.is_followed_by(next)).count();
        if !is_scattered(bytes, runs) || own * 8 < mapped.len() * 7 {
            return Ok(0);
        }
        let moved = self.move_leaf(dataset, leaf, Moving::Together, Some(pace)).await?;
        dataset.gathering.borrow_mut().spend(own as u64);
        Ok(moved)
    }

    fn has_scattered(&self) -> bool {
        self.datasets.borrow().values().any(|dataset| !dataset.gathering.borrow().leaves.is_empty())
    }
}

/// Has a shard gather what is noted whenever its clients rest, until nothing is noted any more.
async fn wait_for_rest(shard: Weak<Shard>, rt: Rt) {
    let mut served = 0;
    loop {
        rt.sleep(REST).await;
        let Some(shard) = shard.upgrade().filter(|shard| !shard.stopping.get()) else { return };
        let before = std::mem::replace(&mut served, shard.served.get());
        if !shard.has_scattered() {
            return shard.gathers.set(false);
        }
        if served - before <= REST_OPERATIONS {
            let ((done, gathered), task) = (completion(), shard.clone());
            shard.spawn(async move {
                task.gather().await;
                done.complete(());
            });
            drop(shard);
            let _ = gathered.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_blocks_move_than_the_volume_has_and_clients_write() {
        let mut gathering = Gathering::new(1000);
        gathering.leaves.extend([7, 3, 5]);
        assert_eq!(gathering.next(), Some(3));
        gathering.spend(900);
        assert_eq!(gathering.next(), Some(5));
        gathering.spend(200);
        assert_eq!((gathering.next(), gathering.leaves.len()), (None, 0), "all is spent, and forgotten");
        gathering.allow(40);
        gathering.leaves.insert(9);
        assert_eq!(gathering.next(), Some(9));
        gathering.allow(u64::MAX);
        assert_eq!(gathering.allowed, 1000, "who wrote all again and again has no more in order than all");
    }

    #[test]
    fn runs_of_half_the_size_are_scattered_and_one_is_not() {
        assert!(is_scattered(MIB as usize, 17) && !is_scattered(MIB as usize, 16) && !is_scattered(4096, 1));
    }
}
