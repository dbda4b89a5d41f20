//! Gathering: blocks that follow each other in a volume come to lie beside each other.
//!
//! Nothing is overwritten in place, so what was written at random lies where it came, and who reads it in sequence has each block read by itself. Where
//! what is read ahead of a stream is found scattered ([`crate::ahead`]), its leaves are noted; and those where it was found in order are noted when they are
//! written to, since who read them in sequence will do so again. While the shard's clients rest, the blocks of what is noted are written anew in
//! order, as by an evacuation ([`crate::evacuate`]), into chunks that are empty; where there are none, the emptiest are emptied first.
//!
//! Bounds: only what a volume has for itself, since a snapshot's blocks do not move; no more blocks than clients have written, and once as many as the volume has; and
//! what is noted is forgotten where there is no room for it, until somebody reads it in sequence again. `docs/development/decisions/0020-gathering.md` has the reasons.

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
use std::ops::{Range, RangeInclusive};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Blocks are scattered where those that lie beside each other have fewer bytes than this on the average: a request for so little costs hardly more than one
/// for a block.
const TOGETHER_BYTES: usize = 64 << 10;
/// How long clients have to rest, and with how many operations they still do.
const REST: Duration = Duration::from_secs(1);
const REST_OPERATIONS: u64 = 16;
/// What is moved before a checkpoint gives back what it left.
const STEP_BYTES: u64 = 64 * MIB;

/// A set of leaves: a bit for each, so that of a volume of a TiB all can be in it.
#[derive(Default)]
struct Leaves {
    words: Vec<u64>,
    count: usize,
}

impl Leaves {
    fn insert(&mut self, leaf: u64) {
        let word = (leaf / 64) as usize;
        self.words.resize(self.words.len().max(word + 1), 0);
        self.count += usize::from(!self.contains(leaf));
        self.words[word] |= 1 << (leaf % 64);
    }

    /// Whether it was there.
    fn remove(&mut self, leaf: u64) -> bool {
        let was_there = self.contains(leaf);
        if was_there {
            self.words[(leaf / 64) as usize] &= !(1 << (leaf % 64));
            self.count -= 1;
        }
        was_there
    }

    fn contains(&self, leaf: u64) -> bool {
        self.words.get((leaf / 64) as usize).is_some_and(|word| word & (1 << (leaf % 64)) != 0)
    }

    fn pop_first(&mut self) -> Option<u64> {
        let word = self.words.iter().position(|word| *word != 0)?;
        let first = word as u64 * 64 + u64::from(self.words[word].trailing_zeros());
        self.remove(first).then_some(first)
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// What of a volume is to be gathered.
pub(crate) struct Gathering {
    noted: Leaves,
    /// Where streams found all in order.
    orderly: Leaves,
    /// Blocks that may be moved yet.
    allowed: u64,
    /// Blocks that the volume has room for.
    blocks: u64,
}

impl Gathering {
    pub fn new(blocks: u64) -> Gathering {
        let (noted, orderly) = Default::default();
        Gathering { noted, orderly, allowed: blocks, blocks }
    }

    fn spend(&mut self, blocks: u64) {
        self.allowed = self.allowed.saturating_sub(blocks);
    }

    /// A stream has read a leaf, in order or not.
    fn was_read(&mut self, leaf: u64, is_scattered: bool) {
        if is_scattered {
            self.orderly.remove(leaf);
            self.noted.insert(leaf);
        } else if !self.noted.contains(leaf) {
            self.orderly.insert(leaf);
        }
    }

    /// Clients have written these blocks; whether more is noted for that.
    fn was_written(&mut self, blocks: Range<u64>) -> bool {
        self.allowed = self.allowed.saturating_add(blocks.end - blocks.start).min(self.blocks);
        if self.orderly.is_empty() {
            return false;
        }
        let before = self.noted.count;
        for leaf in leaves_of(&blocks) {
            if self.orderly.remove(leaf) {
                self.noted.insert(leaf);
            }
        }
        self.noted.count > before
    }

    /// The next leaf; where no more blocks may be moved, none is noted any longer.
    fn next(&mut self) -> Option<u64> {
        if self.allowed == 0 {
            self.forget();
        }
        self.noted.pop_first()
    }

    fn forget(&mut self) {
        (self.noted, self.orderly) = Default::default();
    }
}

fn leaves_of(blocks: &Range<u64>) -> RangeInclusive<u64> {
    blocks.start / FANOUT..=(blocks.end - 1) / FANOUT
}

/// Whether what is read, of runs of these sizes, lies in too many places.
fn is_scattered(bytes: usize, runs: usize) -> bool {
    runs > 1 && bytes < runs * TOGETHER_BYTES
}

impl Shard {
    /// Takes note of what a stream reads from the disks in runs of these sizes.
    pub fn note_stream(self: &Rc<Self>, dataset: &Dataset, blocks: Range<u64>, runs: &[usize]) {
        if runs.is_empty() || self.shared.import.read_only {
            return;
        }
        let is_scattered = is_scattered(runs.iter().sum(), runs.len());
        let mut gathering = dataset.gathering.borrow_mut();
        leaves_of(&blocks).for_each(|leaf| gathering.was_read(leaf, is_scattered));
        if is_scattered {
            self.gather_at_rest();
        }
    }

    /// Takes note of blocks that a client writes.
    pub fn note_written(self: &Rc<Self>, dataset: &Dataset, blocks: Range<u64>) {
        if dataset.gathering.borrow_mut().was_written(blocks) {
            self.gather_at_rest();
        }
    }

    fn gather_at_rest(self: &Rc<Self>) {
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
            if self.has_ended() {
                break;
            }
            let served = self.served.get();
            let mut result = self.gather_leaf(&dataset, leaf, &mut pace).await;
            // What clients have overwritten is free after a checkpoint.
            if result == Err(IoError::NoSpace) && self.expects_space() && self.next_checkpoint().await {
                result = self.gather_leaf(&dataset, leaf, &mut pace).await;
            }
            let is_roomy = || self.space.borrow().is_roomy();
            if result == Err(IoError::NoSpace) && is_roomy() && self.empty_some().await {
                result = self.gather_leaf(&dataset, leaf, &mut pace).await;
            }
            if result == Err(IoError::NoSpace) {
                self.datasets.borrow().values().for_each(|other| other.gathering.borrow_mut().forget());
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
        self.emptied.set(0);
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
        if !is_scattered(bytes, runs) {
            // Until more of it is written.
            dataset.gathering.borrow_mut().orderly.insert(leaf);
            return Ok(0);
        }
        if own * 8 < mapped.len() * 7 {
            return Ok(0);
        }
        let moved = self.move_leaf(dataset, leaf, Moving::Together, Some(pace)).await?;
        dataset.gathering.borrow_mut().spend(own as u64);
        Ok(moved)
    }

    fn has_scattered(&self) -> bool {
        self.datasets.borrow().values().any(|dataset| !dataset.gathering.borrow().noted.is_empty())
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
        [700, 3, 5].into_iter().for_each(|leaf| gathering.was_read(leaf, true));
        assert_eq!(gathering.next(), Some(3));
        gathering.spend(900);
        assert_eq!(gathering.next(), Some(5));
        gathering.spend(200);
        assert_eq!((gathering.next(), gathering.noted.count), (None, 0), "all is spent, and forgotten");
        gathering.was_written(0..40);
        gathering.was_read(9, true);
        assert_eq!(gathering.next(), Some(9));
        gathering.was_written(0..FANOUT * 4);
        assert_eq!(gathering.allowed, 1000, "who wrote all again and again has no more in order than all");
    }

    #[test]
    fn what_was_read_in_order_is_noted_when_it_is_written() {
        let mut gathering = Gathering::new(10_000);
        (0..4).for_each(|leaf| gathering.was_read(leaf, leaf == 3));
        assert!(!gathering.was_written(4 * FANOUT..5 * FANOUT), "nobody has read it in sequence");
        assert!(gathering.was_written(FANOUT - 1..FANOUT + 1));
        assert!(!gathering.was_written(FANOUT..FANOUT + 1), "it is noted already");
        gathering.was_read(1, false);
        let noted: Vec<u64> = std::iter::from_fn(|| gathering.next()).collect();
        assert_eq!(noted, [0, 1, 3]);
        assert!(gathering.was_written(2 * FANOUT..4 * FANOUT), "the last one was not read in order");
        assert_eq!((gathering.next(), gathering.next()), (Some(2), None));
    }

    #[test]
    fn runs_of_half_the_size_are_scattered_and_one_is_not() {
        assert!(is_scattered(MIB as usize, 17) && !is_scattered(MIB as usize, 16) && !is_scattered(4096, 1));
    }
}
