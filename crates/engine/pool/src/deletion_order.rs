//! Which deleted volume or snapshot is given back next ([`crate::deletion`]).
//!
//! A snapshot can go when one dataset at most grew from it, and that one stays; so of a volume that goes with its snapshots, the
//! youngest goes first, and each time its parent is the next. What was begun is ended before anything else is begun.

use crate::dataset::Dataset;
use crate::lineage::Snapshot;
use crate::record::DatasetState;
use crate::shard::Shard;
use crate::steps::Steps;
use std::rc::Rc;

/// Where to look for the snapshot to delete next.
pub(crate) struct Order {
    /// Some deletion may have begun and not ended: before an import, or when a snapshot was taken meanwhile.
    may_be_begun: bool,
    /// The parent of the one that went last: of a volume that goes with its snapshots, it is the next.
    parent: Option<u64>,
}

impl Default for Order {
    fn default() -> Order {
        Order { may_be_begun: true, parent: None }
    }
}

impl Order {
    /// The deletion of this one begins, or goes on.
    pub fn goes(&mut self, snapshot: &Snapshot) {
        self.parent = snapshot.record.borrow().parent;
    }

    /// It did not come to its end.
    pub fn was_halted(&mut self) {
        self.may_be_begun = true;
    }
}

impl Shard {
    /// A deleted volume whose tree is not at rest yet.
    pub fn next_gone(&self) -> Option<Rc<Dataset>> {
        self.datasets.borrow().deleting().find(|dataset| !self.is_sample(dataset)).cloned()
    }

    /// The deleted snapshot to go on with: one that was begun first, then one whose child, if there is one, stays.
    pub async fn next_deleted(&self, order: &mut Order) -> Option<Rc<Snapshot>> {
        let parent = order.parent.take().and_then(|parent| self.snapshots.borrow().get(&parent).cloned());
        if let Some(parent) = parent.filter(|parent| !order.may_be_begun && self.is_free_to_go(parent)) {
            return Some(parent);
        }
        let (mut free, mut from, mut steps) = (None, 0, Steps::default());
        while free.is_none() || order.may_be_begun {
            steps.take(1).await;
            let next = self.snapshots.borrow().deleting_from(from).next().cloned();
            let Some(snapshot) = next else {
                order.may_be_begun = false;
                break;
            };
            from = snapshot.number() + 1;
            if snapshot.record.borrow().cursor > 0 && !snapshot.stuck.get() {
                return Some(snapshot);
            }
            if free.is_none() && self.is_free_to_go(&snapshot) {
                free = Some(snapshot);
            }
        }
        free
    }

    /// Whether a snapshot is deleted and that may begin: its child, if there is one, stays, and its parent's deletion has not begun.
    fn is_free_to_go(&self, snapshot: &Snapshot) -> bool {
        let (number, parent) = (snapshot.number(), snapshot.record.borrow().parent);
        let (datasets, snapshots) = (self.datasets.borrow(), self.snapshots.borrow());
        let parent = parent.and_then(|parent| snapshots.get(&parent));
        let is_deleting = |child: &Snapshot| child.record.borrow().state == DatasetState::Deleting;
        let volumes = datasets.with_parent(number).map(|child| !child.is_deleting());
        let mut children = volumes.chain(snapshots.with_parent(number).map(|child| !is_deleting(child)));
        is_deleting(snapshot)
            && !snapshot.stuck.get()
            && children.next().is_none_or(|stays| stays)
            && children.next().is_none()
            && parent.is_none_or(|parent| parent.record.borrow().cursor == 0)
    }
}
