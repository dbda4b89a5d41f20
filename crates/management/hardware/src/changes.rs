//! What changed between two inventories, disk by disk.
//!
//! Disks are known by their identity, never by the kernel's name: after a restart `sda` may be another one, and that is no change. A disk that is in another
//! place has moved.

use crate::disk::{Disk, Identity};
use crate::inventory::Inventory;
use crate::judge::HealthState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    pub disk: Identity,
    /// What people call the disk: model and serial number, else the kernel's name.
    pub name: String,
    pub kind: ChangeKind,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Came,
    Went,
    /// From one place to another, as [`Disk::place`] says them.
    Moved {
        from: String,
        to: String,
    },
    /// The number of ways to the disk that work.
    Paths {
        from: usize,
        to: usize,
    },
    Health {
        from: HealthState,
        to: HealthState,
    },
}

/// What is different in `after`: disks that went first, then those that came, then what changed, each in the order of identities.
/// A health that is not known in one of the two (`None`) is no change.
pub fn changes(before: &Inventory, after: &Inventory) -> Vec<Change> {
    let by_identity = |inventory: &'_ Inventory| -> BTreeMap<Identity, usize> {
        inventory.disks.iter().enumerate().map(|(at, disk)| (disk.identity.clone(), at)).collect()
    };
    let (old, new) = (by_identity(before), by_identity(after));
    let change = |disk: &Disk, kind| Change { disk: disk.identity.clone(), name: title(disk), kind };
    let gone = old.iter().filter(|(identity, _)| !new.contains_key(identity));
    let come = new.iter().filter(|(identity, _)| !old.contains_key(identity));
    let mut list: Vec<Change> = gone.map(|(_, at)| change(&before.disks[*at], ChangeKind::Went)).collect();
    list.extend(come.map(|(_, at)| change(&after.disks[*at], ChangeKind::Came)));
    for (identity, at) in &new {
        let Some(was) = old.get(identity).map(|at| &before.disks[*at]) else { continue };
        let is = &after.disks[*at];
        if let (Some(from), Some(to)) = (was.place(), is.place())
            && has_moved(was, is)
        {
            list.push(change(is, ChangeKind::Moved { from, to }));
        }
        let (from, to) = (working_paths(was), working_paths(is));
        if from != to {
            list.push(change(is, ChangeKind::Paths { from, to }));
        }
        if let (Some(was), Some(now)) = (&was.health, &is.health)
            && was.state != now.state
        {
            list.push(change(is, ChangeKind::Health { from: was.state, to: now.state }));
        }
    }
    list
}

/// Model and serial number, or the kernel's name.
pub fn title(disk: &Disk) -> String {
    match (&disk.model, &disk.serial) {
        (Some(model), Some(serial)) => format!("{model} {serial}"),
        (None, Some(serial)) => serial.clone(),
        _ => disk.name.clone(),
    }
}

/// Whether a disk is elsewhere. The most precise thing that both know decides: SCSI numbers are given anew after a restart and say nothing where slots or
/// ports are known, and a disk with several paths is in its place as long as one of them is the same.
fn has_moved(was: &Disk, is: &Disk) -> bool {
    if let (Some(from), Some(to)) = (&was.slot, &is.slot) {
        return from != to;
    }
    let ports =
        |disk: &Disk| -> Vec<String> { disk.paths.iter().filter_map(|path| path.by_path.clone()).collect() };
    let (from, to) = (ports(was), ports(is));
    if !from.is_empty() && !to.is_empty() {
        return !from.iter().any(|port| to.contains(port));
    }
    matches!((&was.hctl, &is.hctl), (Some(from), Some(to)) if from != to)
}

fn working_paths(disk: &Disk) -> usize {
    let works = |state: &Option<String>| {
        !matches!(state.as_deref(), Some("offline" | "transport-offline" | "dead" | "deleting" | "blocked"))
    };
    disk.paths.iter().filter(|path| works(&path.state)).count()
}
