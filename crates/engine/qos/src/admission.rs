//! What can be promised: the floors of all flows against what the pool was measured to do.

use crate::cost::{Costs, Work};
use crate::level::{Class, Level};
use std::cmp::Reverse;

/// Shares of the pool's time are in millionths.
pub const WHOLE: u64 = 1_000_000;
/// A tenth is for what the pool does by itself, and for those who were promised nothing.
pub const SHARE_MAX: u64 = WHOLE / 10 * 9;
/// While there is less than usual, what was withdrawn is promised again only when so much of what can be promised is left beside it: a tenth. It is not to
/// come and go.
const AGAIN_PART: u64 = 10;
/// A floor of requests alone is for small ones, one of bytes alone for large ones.
const SMALL: u64 = 8 << 10;
const LARGE: u64 = 64 << 10;

impl Costs {
    /// How much of the pool's time a level's floor takes at worst: with requests of the size at which both of its rates are reached, reads or writes,
    /// whichever take more.
    pub fn share(&self, level: &Level) -> u64 {
        let (iops, bytes) = (level.floor.iops, level.floor.bytes);
        let (rate, size) = match (iops, bytes) {
            (0, 0) => return 0,
            (iops, 0) => (iops, SMALL),
            (0, bytes) => (bytes.div_ceil(LARGE), LARGE),
            // Smaller ones are bounded by their number, larger ones by their bytes.
            (iops, bytes) => (iops, (bytes / iops).max(1)),
        };
        let cost = self.of(Work::read(size, 1)).max(self.of(Work::write(size, 1)));
        (u128::from(rate) * u128::from(cost) * u128::from(WHOLE) / 1_000_000_000)
            .try_into()
            .unwrap_or(u64::MAX)
    }
}

/// How it is with a promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Promise {
    /// Nobody has looked yet whether it fits.
    #[default]
    New,
    Kept,
    /// It does not fit as long as disks are out or do less than they were measured to do.
    Withdrawn,
    /// It does not fit even if all of them do that.
    TooMuch,
}

/// A flow with a floor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    pub class: Class,
    /// What its floor takes of the pool's time.
    pub share: u64,
    pub promise: Promise,
}

/// Which floors are kept: as many as fit into `capacity`. Those that are kept already come before others, so that nobody's promise is broken by another's; then
/// critical ones before others, and among equals those that come first.
pub fn kept(wishes: &[Wish], capacity: u64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by_key(|nth| (wishes[*nth].promise != Promise::Kept, Reverse(wishes[*nth].class.weight())));
    let (mut kept, mut left) = (vec![false; wishes.len()], capacity);
    for nth in order {
        let Wish { share, promise, .. } = wishes[nth];
        let may_go_again = matches!(promise, Promise::Withdrawn | Promise::TooMuch) && capacity < SHARE_MAX;
        let beside = if may_go_again { capacity / AGAIN_PART } else { 0 };
        if share == 0 || share.saturating_add(beside) <= left {
            (kept[nth], left) = (true, left - share);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Affine;
    use crate::level::Rate;

    /// 100 000 small requests in a second, or 1 GB.
    const COSTS: Costs = {
        let line = Affine { fixed: 1808, byte_ps: 1000 };
        Costs { read: line, write: Affine { fixed: 0, byte_ps: 0 } }
    };

    fn floor(iops: u64, bytes: u64) -> Level {
        Level { floor: Rate { iops, bytes }, ..Level::default() }
    }

    #[test]
    fn a_floor_takes_what_its_worst_requests_take() {
        assert_eq!(COSTS.share(&Level::default()), 0);
        assert_eq!(COSTS.share(&floor(10_000, 0)), 100_000, "a tenth of 100 000");
        // 512 requests of 64 KiB in a second.
        assert_eq!(COSTS.share(&floor(0, 32 << 20)), 512 * (1808 + 65_536) / 1000);
        // At 1000 requests of 16 KiB both are reached; larger ones are fewer, and take no longer than that together.
        let both = COSTS.share(&floor(1000, 1000 * 16384));
        assert_eq!(both, (1808 + 16384) * 1000 / 1000);
        assert_eq!(COSTS.share(&floor(u64::MAX, u64::MAX)), u64::MAX);
    }

    #[test]
    fn critical_floors_are_kept_first_and_what_fits_beside_them() {
        let wish = |class, share| Wish { class, share, promise: Promise::New };
        let (mission, business) = (Class::MissionCritical, Class::BusinessCritical);
        let wishes = [wish(business, 300), wish(business, 500), wish(mission, 600), wish(business, 100)];
        assert_eq!(kept(&wishes, 900), [true, false, true, false]);
        assert_eq!(kept(&wishes, 1500), [true, true, true, true]);
        assert_eq!(kept(&wishes, 599), [true, false, false, true]);
        assert_eq!(kept(&wishes, 0), [false; 4]);
        assert_eq!(kept(&[wish(mission, 0)], 0), [true], "who wants nothing has it");
        assert_eq!(kept(&[wish(mission, u64::MAX)], 900), [false]);
    }

    #[test]
    fn a_kept_promise_is_not_broken_by_another() {
        use Promise::{Kept, New, Withdrawn};
        let wish = |class, share, promise| Wish { class, share, promise };
        let (mission, business) = (Class::MissionCritical, Class::BusinessCritical);
        // Neither by a more critical one that is new, nor by an older one that had to wait.
        assert_eq!(kept(&[wish(business, 500, Kept), wish(mission, 500, New)], 900), [true, false]);
        assert_eq!(kept(&[wish(business, 500, Withdrawn), wish(business, 500, Kept)], 900), [false, true]);
        // Where there is less, critical ones are kept.
        assert_eq!(kept(&[wish(business, 500, Kept), wish(mission, 500, Kept)], 600), [false, true]);
        // What was withdrawn leaves a tenth beside it, when it comes back; what is new need not, and what is kept stays.
        for (promise, capacity, expected) in [
            (Withdrawn, 1090, false),
            (Withdrawn, 1000, false),
            (Withdrawn, 1112, true),
            (New, 1000, true),
            (Kept, 1000, true),
        ] {
            let wishes = [wish(business, 400, Kept), wish(business, 600, promise)];
            assert_eq!(kept(&wishes, capacity), [true, expected], "{promise:?} of {capacity}");
        }
        let whole = [wish(business, 400_000, Kept), wish(business, 500_000, Withdrawn)];
        assert_eq!(kept(&whole, SHARE_MAX), [true; 2], "all disks do what they did");
    }
}
