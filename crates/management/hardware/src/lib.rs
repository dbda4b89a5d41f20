//! The machine's disks as things: what each one is, where it sits, what is on it, who uses it, and how it is.
//!
//! Three layers, from what costs nothing to what may hang:
//!
//! 1. [`Inventory::read`] lists the disks from sysfs, procfs and udev's database. It opens no disk.
//! 2. An [`Examiner`] asks the disks themselves, in programs of their own with time limits: their health (smartctl) and their contents (wipefs, and a search
//!    for Forebay labels). A disk that hangs blocks no caller.
//! 3. Pure functions say what it means: [`judge()`] and [`History`] turn readings into a [`Health`], [`changes()`] compares two inventories, [`suggest`] proposes
//!    layouts for a pool.
//!
//! ```no_run
//! # use forebay_hardware::*;
//! # use std::{path::Path, time::Duration};
//! let examiner = Examiner::new(Options::default());
//! let mut history = History::default();
//! let mut inventory = Inventory::read(Path::new("/"));
//! examiner.read_contents(&mut inventory, Duration::from_secs(60));
//! let readings = examiner.read_health_of(&inventory.disks, Duration::from_secs(120));
//! for (disk, reading) in inventory.disks.iter_mut().zip(&readings) {
//!     disk.health = Some(history.judge(&disk.identity, 1_700_000_000, reading));
//! }
//! let free: Vec<Candidate> = inventory.disks.iter().filter(|disk| disk.is_free()).map(Candidate::from).collect();
//! let suggestions = suggest(&free);
//! ```
//!
//! Programs that are run: `smartctl` (package smartmontools, 7.0 or later), `wipefs` (util-linux, 2.33 or later) and `dd` (coreutils).
//!
//! What this crate does not do: write to a disk, change a setting of one, or decide that one may be overwritten. The engine looks again before it
//! writes, and with a lock.

mod changes;
mod child;
mod disk;
mod enclosure;
mod examine;
mod history;
mod inventory;
mod judge;
mod layout;
mod mounts;
mod smart;
mod sysfs;
#[cfg(test)]
mod tests_support;
mod tree;
mod udev;
mod usage;

pub use changes::{Change, ChangeKind, changes, title};
pub use disk::{
    Contents, ContentsSource, Disk, DiskPath, Identity, NotFree, NotFreeKind, Partition, Signature,
    SignatureUsage, Slot, Transport, Zoned,
};
pub use examine::{ABANDONED_MAX, Examiner, Options};
pub use history::{History, KEPT_DAYS};
pub use inventory::Inventory;
pub use judge::{
    HOT_FLASH, HOT_ROTATING, Health, HealthState, REALLOCATED_MANY, SPARE_MARGIN, WEAR_HIGH, judge,
};
pub use layout::{Candidate, LARGE_DISK, Layout, MANY_DISKS, SIZE_SPREAD, Suggestion, Suggestions, suggest};
pub use smart::{
    Counters, FailedAttribute, NoReading, NvmeWarning, Protocol, Reading, SelfTest, SelfTestResult, Smart,
    Temperature, parse,
};
pub use udev::link_rank;
