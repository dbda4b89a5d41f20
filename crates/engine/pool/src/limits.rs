//! How many datasets a shard can have: creating one more is refused, and events tell of it before. It ends when something is deleted.

use crate::control::Control;
use crate::error::{Error, ErrorKind};
use crate::shard::Shard;
use crate::spec::Severity;
use crate::tables::{LIMIT_NEAR_PERCENT, datasets_max};

/// Percent of a limit below which it counts as neither near nor reached again.
const LIMIT_FAR_PERCENT: usize = 75;

/// What events have told of a limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) enum Told {
    #[default]
    Nothing,
    Near,
    Reached,
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
    /// Whether there is room for so many datasets more, besides those that are deleted and not gone yet.
    pub fn has_catalog_room(&self, more: usize) -> bool {
        let datasets = self.datasets.borrow().len() + self.snapshots.borrow().len();
        let has_room = datasets + more <= datasets_max();
        let before = self.limit_told.get();
        self.limit_told.set(before.next(datasets, datasets_max(), !has_room));
        let (severity, code, consequence) = match self.limit_told.get() {
            now if now <= before => return has_room,
            Told::Reached => (Severity::Error, "pool.limit_reached", "no more can be created there"),
            _ => (Severity::Warning, "pool.limit_near", "at the maximum, no more can be created there"),
        };
        let message = format!(
            "shard {} has {datasets} of at most {} volumes, snapshots and clones; {consequence}",
            self.index,
            datasets_max()
        );
        self.event(severity, code, &self.shared.name, message);
        has_room
    }
}

impl Control {
    /// Refuses to create so many datasets on a shard that has no room for them.
    pub async fn check_catalog(&self, object: &str, shard: usize, more: usize) -> Result<(), Error> {
        if self.on_shard(shard, move |shard| async move { shard.has_catalog_room(more) }).await? {
            return Ok(());
        }
        let message = format!(
            "shard {shard} has room for {} volumes, snapshots and clones, including those being deleted, and {more} more \
             would be too many",
            datasets_max()
        );
        let remedy = match self.trash.is_empty() {
            true => "Delete snapshots or volumes, or use another pool",
            false => {
                "Purge volumes in the trash, which count too, delete snapshots or volumes, or use another pool"
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
