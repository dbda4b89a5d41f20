//! Limits of a shard's tables: what is refused because of them, and what events tell.
//!
//! A table is as long as its index has room for ([`crate::tables`]). Long before a checkpoint would fail for it, writes that need more chunks find no space,
//! and creating what needs a line of the catalogue is refused. Both end when something is deleted.

use crate::control::Control;
use crate::error::{Error, ErrorKind};
use crate::reserve::Need;
use crate::shard::Shard;
use crate::spec::Severity;
use crate::tables::{LIMIT_NEAR_PERCENT, chunks_max, datasets_max, table_room};
use forebay_space::ChunkKind;
use std::cell::Cell;

/// Percent of a limit below which it counts as neither near nor reached again.
const LIMIT_FAR_PERCENT: usize = 75;

/// What events have told of a limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
enum Told {
    #[default]
    Nothing,
    Near,
    Reached,
}

/// The same of each limit.
#[derive(Default)]
pub(crate) struct LimitsTold {
    chunks: Cell<Told>,
    datasets: Cell<Told>,
}

impl Told {
    /// What is told when `used` of at most `most` are in use; `is_reached` when one more was refused.
    fn next(self, used: usize, most: usize, is_reached: bool) -> Told {
        let has = |percent: usize| used * 100 >= most * percent;
        match self {
            _ if is_reached => Told::Reached,
            Told::Nothing if has(LIMIT_NEAR_PERCENT) => Told::Near,
            _ if !has(LIMIT_FAR_PERCENT) => Told::Nothing,
            told => told,
        }
    }
}

impl Shard {
    /// Whether the chunk table has room for one chunk more.
    pub fn has_table_room(&self, kind: ChunkKind, need: Need) -> bool {
        let chunks = self.space.borrow().table_len();
        let has_room = table_room(chunks, kind, need) > 0;
        self.tell_limit(&self.limits_told.chunks, (chunks, chunks_max()), !has_room, |reached| {
            let consequence = match reached {
                true => "writes to its volumes find no space, however much the pool has free",
                false => "when it has them all, writes to its volumes find no space, however much the pool has free",
            };
            format!("has {chunks} of the {} chunks that its table has room for; {consequence}", chunks_max())
        });
        has_room
    }

    /// Whether the catalogue has room for so many datasets more, besides those that are deleted and not gone yet.
    pub fn has_catalog_room(&self, more: usize) -> bool {
        let numbers = self.numbers.borrow().len();
        let datasets = self.datasets.borrow().len() + self.snapshots.borrow().len() + numbers;
        let has_room = datasets + more <= datasets_max();
        self.tell_limit(&self.limits_told.datasets, (datasets, datasets_max()), !has_room, |reached| {
            let consequence = match reached {
                true => "none can be created there",
                false => "when it has them all, none can be created there",
            };
            format!(
                "has {datasets} of the {} volumes, snapshots and clones that its catalogue has room for; {consequence}",
                datasets_max()
            )
        });
        has_room
    }

    fn tell_limit(
        &self,
        told: &Cell<Told>,
        (used, most): (usize, usize),
        is_reached: bool,
        says: impl FnOnce(bool) -> String,
    ) {
        let before = told.get();
        told.set(before.next(used, most, is_reached));
        let (severity, code) = match told.get() {
            now if now <= before => return,
            Told::Reached => (Severity::Error, "pool.limit_reached"),
            _ => (Severity::Warning, "pool.limit_near"),
        };
        let message = format!("shard {} {}", self.index, says(is_reached));
        self.event(severity, code, &self.shared.name, message);
    }
}

impl Control {
    /// Refuses to create so many datasets on a shard whose catalogue has no room for them.
    pub async fn check_catalog(&self, object: &str, shard: usize, more: usize) -> Result<(), Error> {
        if self.on_shard(shard, move |shard| async move { shard.has_catalog_room(more) }).await? {
            return Ok(());
        }
        let message = format!(
            "the catalogue of shard {shard} has room for {} volumes, snapshots and clones, those that are being deleted among \
             them, and {more} more would be too many",
            datasets_max()
        );
        let remedy = match self.trash.is_empty() {
            true => "Delete snapshots or volumes, or use another pool",
            false => {
                "Purge volumes in the trash, which count as well; delete snapshots or volumes; or use another pool"
            }
        };
        Err(Error::new(ErrorKind::NoSpace, object, message).remedy(remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_once_until_it_is_far_again() {
        let next = |told: Told, used| told.next(used, 100, used >= 95);
        assert_eq!(next(Told::Nothing, 79), Told::Nothing);
        assert_eq!(next(Told::Nothing, 80), Told::Near);
        assert_eq!((next(Told::Near, 76), next(Told::Near, 74)), (Told::Near, Told::Nothing));
        assert_eq!((next(Told::Near, 95), next(Told::Reached, 90)), (Told::Reached, Told::Reached));
        assert_eq!(next(Told::Reached, 10), Told::Nothing);
    }
}
