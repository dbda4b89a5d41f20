//! What a forced import overrides, and at what risk.
//!
//! | Refused because | With `--force` | The risk |
//! |---|---|---|
//! | another host had the pool and did not export it | imported | if that host still runs and reaches the disks, both write to the same places, and the pool is lost |
//! | a shard's log ends before the frame that the superblock says is there | imported without the rest of the log | the last acknowledged writes of that shard's volumes are lost |
//! | more disks are missing than the layout can lose | refused still; with `--read-only`, what is left is shown | what was on them reads as an error |
//!
//! A log that ends too early, but not before the cut, leaves a prefix: the volumes are as they were a moment earlier. One that ends
//! before the cut says nothing that can be believed: of data that lives in the log alone, later frames would say whether it is out of date.
//! Then the trees of the checkpoint count and nothing else, and blocks that had not left the log are as old as their last copy in a tree.
//! Either way every block is one that was acknowledged once, or an error; what clients were told is broken, and they must check.
//! Lines that were being changed may have parity that does not agree, so a scrub follows.

use crate::assembly::refuse;
use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::format::{ShardRoot, Super};
use crate::membership::superblock_disks;
use crate::record::DatasetState;
use crate::shard::Shard;
use crate::spec::{Host, Import, Severity};
use forebay_base::planted::{Bug, active};
use forebay_device::Label;
use forebay_log::Chain;
use std::rc::Rc;

/// Refuses a pool that another host has, as far as its superblock tells.
pub(crate) fn check_host(name: &str, pool: &Super, host: &Host, import: Import) -> Result<(), Error> {
    if pool.exported || pool.host.id == host.id || import.force || active(Bug::ForeignHostIgnored) {
        return Ok(());
    }
    let (id, other) = (pool.host.id, &pool.host.name);
    let message = format!(
        "host '{other}' ({id}) used the pool last and did not export it: if it still uses these disks, writing to them from here destroys the pool"
    );
    Err(refuse(
        name,
        message,
        "Export the pool there. If that host is down for good, import it with --force. Nothing was changed",
    ))
}

/// Refuses to show what is left of a pool when the newest superblock may be on disks that are missing: blocks would come back
/// that were overwritten long ago.
pub(crate) fn check_newest(name: &str, label: &Label, is_there: &[bool]) -> Result<(), Error> {
    let holders = superblock_disks(label, (0..label.disks.len()).collect());
    if holders.iter().any(|disk| is_there[*disk]) {
        return Ok(());
    }
    let holders: Vec<String> =
        holders.iter().map(|disk| format!("{disk} ({})", label.disks[*disk].id)).collect();
    let message = format!("the pool's current state is on disks that are missing: {}", holders.join(", "));
    Err(refuse(name, message, "Give the path of one of them"))
}

/// Volumes that an event names.
const NAMES_MAX: usize = 10;

impl Control {
    /// Tells what was overridden.
    pub fn tell_forced(&self, pool: &Super) {
        let host = &pool.host;
        if !pool.exported && host.id != self.shared.host.id {
            let message = format!(
                "the pool was taken over from host '{}' ({}), which had not exported it",
                host.name, host.id
            );
            self.event(Severity::Warning, "pool.forced", self.name(), message);
        }
        if self.is_lost() {
            let message = "more disks are missing than the layout can lose: their data cannot be read";
            self.event(Severity::Error, "pool.forced", self.name(), message.into());
        }
    }
}

impl Shard {
    /// Tells whose writes are lost with the log, which ended before the frame with this sequence, and should have reached the other.
    pub fn tell_cut_short(&self, ends: u64, needed: u64, was: &ShardRoot) {
        let live = self.live();
        let mut names: Vec<String> =
            live.iter().take(NAMES_MAX).map(|dataset| dataset.record.borrow().name.clone()).collect();
        if live.len() > NAMES_MAX {
            names.push(format!("{} more", live.len() - NAMES_MAX));
        }
        let (code, what) = match ends < was.cut {
            true => ("log.lost", "some blocks are older than others: check their data"),
            false => ("log.cut", "their data is that of a moment earlier"),
        };
        let message = format!(
            "the log of shard {} is lost from frame {ends} to at least frame {}. Volumes {}: the last acknowledged writes are missing, and {what}",
            self.index,
            needed - 1,
            names.join(", ")
        );
        self.event(Severity::Error, code, &self.shared.name, message);
    }

    /// After the loss of blocks that were in the log alone, nothing that arrives from another pool counts as complete.
    pub fn doubt_arrivals(&self) {
        let mut datasets = self.datasets.borrow_mut();
        let arrives = |dataset: &&Rc<Dataset>| dataset.record.borrow().state == DatasetState::Arriving;
        let arriving: Vec<u64> = datasets.values().filter(arrives).map(|dataset| dataset.number()).collect();
        for number in arriving {
            datasets.change(number, |record| record.received = 0);
        }
    }
}

impl ShardRoot {
    /// Frames before this sequence must be there: those before the cut say which staged blocks are out of date, and sealed ones were
    /// served by an earlier import, so going on without them would bring old contents back.
    pub fn needed(&self) -> u64 {
        self.cut.max(self.sealed)
    }

    /// The same, when the log cannot be read from `end` on.
    pub fn ending_at(mut self, end: Chain) -> ShardRoot {
        if end.sequence < self.cut {
            self.tail = end;
            self.cut = if active(Bug::CutStaysBehindLog) { self.cut } else { end.sequence };
        }
        self.sealed = self.sealed.min(end.sequence);
        self
    }
}
