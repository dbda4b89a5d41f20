//! Earlier readings of each disk, so that growth over a week is seen and not only growth since the last look.
//!
//! A disk that replaced ten sectors on Monday should still be a warning on Thursday, however often it is asked in between, and should be well again
//! when nothing more came for a week. So a reading is kept for each day, for [`KEPT_DAYS`], and the oldest one is what is compared with. Time is an
//! argument. It is all plain data for the caller to store; a restart then forgets nothing.

use crate::disk::Identity;
use crate::judge::{Health, judge};
use crate::smart::{Reading, Smart};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const DAY_SECONDS: u64 = 24 * 3600;
/// Growth counts for so long.
pub const KEPT_DAYS: u64 = 7;
/// Disks remembered: more than an inventory has; of more, those that were not read for longest are forgotten.
const DISKS_MAX: usize = 8192;

/// Readings of disks on earlier days.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    disks: BTreeMap<Identity, Vec<Kept>>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Kept {
    /// Seconds since 1970.
    at: u64,
    smart: Smart,
}

impl History {
    /// Judges a reading of a disk, and remembers it. `now` is seconds since 1970.
    pub fn judge(&mut self, disk: &Identity, now: u64, reading: &Reading) -> Health {
        let kept = self.disks.get(disk).map(Vec::as_slice).unwrap_or_default();
        match reading {
            Reading::Values(smart) => {
                let health = judge(reading, Self::baseline(kept, now));
                self.keep(disk, now, smart);
                health
            }
            Reading::Standby => judge(reading, kept.last().map(|kept| &kept.smart)),
            Reading::None(_) => judge(reading, None),
        }
    }

    /// The latest reading of a disk, and when it was.
    pub fn latest(&self, disk: &Identity) -> Option<(u64, &Smart)> {
        self.disks.get(disk)?.last().map(|kept| (kept.at, &kept.smart))
    }

    /// The oldest reading of the last days; of a disk that was away for longer, the last one.
    fn baseline(kept: &[Kept], now: u64) -> Option<&Smart> {
        let recent = kept.iter().find(|one| one.at.saturating_add(KEPT_DAYS * DAY_SECONDS) >= now);
        recent.or(kept.last()).map(|one| &one.smart)
    }

    fn keep(&mut self, disk: &Identity, now: u64, smart: &Smart) {
        if !self.disks.contains_key(disk) && self.disks.len() >= DISKS_MAX {
            let last_seen = |kept: &Vec<Kept>| kept.last().map_or(0, |one| one.at);
            let oldest =
                self.disks.iter().min_by_key(|(_, kept)| last_seen(kept)).map(|(disk, _)| disk.clone());
            oldest.map(|disk| self.disks.remove(&disk));
        }
        let kept = self.disks.entry(disk.clone()).or_default();
        // A clock that was ahead and was put right: what is from the future is compared with, but not kept beside it.
        kept.retain(|one| one.at <= now);
        // The last one is always the latest reading; those before it are a day apart.
        if let [.., before, last] = &**kept
            && last.at.saturating_sub(before.at) < DAY_SECONDS
        {
            kept.pop();
        }
        kept.push(Kept { at: now, smart: smart.clone() });
        let is_recent = |one: &Kept| one.at.saturating_add(KEPT_DAYS * DAY_SECONDS) >= now;
        let first = kept.iter().position(is_recent).unwrap_or(0);
        kept.drain(..first);
    }
}
