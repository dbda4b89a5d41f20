//! Judging the disks of one pool: which label counts, who has its place in it, what speaks against an import.
//!
//! Every refusal says why and changes nothing. What `--force` overrides, and at what risk, is in [`crate::forced`].

use crate::control::Control;
use crate::error::{Error, ErrorKind};
use crate::forced::check_newest;
use crate::format::Super;
use crate::import::Found;
use crate::spec::{Import, Severity};
use forebay_base::Id;
use forebay_base::planted::{Bug, active};
use forebay_device::{DiskEntry, DiskStatus, Label, SuperblockSlot, most_lacking, read_superblocks};
use forebay_runtime::Rt;

/// Generation of the label on a disk that is about to join. It decides nothing: where no other label knows the disk, it never
/// joined, and is nobody's.
pub(crate) const JOINING: u64 = 0;

/// The disks of one pool, judged.
pub(crate) struct Assembly {
    pub label: Label,
    /// By index in the label; absent when missing or stale.
    pub disks: Vec<Option<Found>>,
    /// Disks that were found and must not be used, with why.
    pub stale: Vec<(usize, String)>,
    /// Disks that are too short to be used.
    pub shrunk: Vec<ShrunkDisk>,
    pub pool: Super,
    pub generation: u64,
}

/// A disk that has fewer bytes than are in use on it.
pub(crate) struct ShrunkDisk {
    pub index: usize,
    pub path: String,
    pub size: u64,
    pub expected: u64,
}

impl ShrunkDisk {
    fn words(&self) -> String {
        let ShrunkDisk { index, path, size, expected } = self;
        format!("disk {index} ({path}) has shrunk: it has {size} bytes, and the pool uses {expected}")
    }
}

impl Control {
    /// Tells which disks an import did without since they have shrunk.
    pub fn tell_shrunk(&self, shrunk: &[ShrunkDisk]) {
        for disk in shrunk {
            let what = disk.words();
            let message = format!(
                "{what}. The disk is out of service. Restore its size and bring it back with 'forebay disk online DISK', or replace it"
            );
            self.event(Severity::Error, "disk.failed", &self.disk_name(disk.index), message);
        }
    }
}

pub(crate) fn refuse(object: &str, message: String, remedy: &str) -> Error {
    Error::new(ErrorKind::Unsafe, object, message).remedy(remedy)
}

/// Picks the pool called `name` (or with that id) out of `found` and checks that it can be imported.
pub(crate) async fn assemble(
    rt: &Rt,
    name: &str,
    found: Vec<Found>,
    import: Import,
) -> Result<Assembly, Error> {
    let id: Option<Id> = name.parse().ok();
    let (mine, other): (Vec<Found>, Vec<Found>) =
        found.into_iter().partition(|disk| disk.label.pool_name == name || Some(disk.label.pool) == id);
    if mine.is_empty() {
        let seen: Vec<String> =
            other.iter().map(|disk| format!("{} ({})", disk.label.pool_name, disk.path)).collect();
        let (message, remedy) = match seen.is_empty() {
            true => (
                "none of the given disks has a readable pool label".to_string(),
                "Give the paths of all its disks",
            ),
            false => (
                format!("none of the given disks belongs to this pool; they belong to: {}", seen.join(", ")),
                "Name the pool that these disks belong to, or give the paths of this pool's disks",
            ),
        };
        return Err(Error::new(ErrorKind::NotFound, name, message).remedy(remedy));
    }
    if let Some(foreign) = other.first() {
        let message =
            format!("disk {} belongs to pool '{}', not to this one", foreign.path, foreign.label.pool_name);
        return Err(refuse(name, message, "Leave it out of the command; nothing was changed"));
    }
    let pool = mine[0].label.pool;
    if let Some(other) = mine.iter().find(|disk| disk.label.pool != pool) {
        let message = format!(
            "two pools have this name: {pool} ({}) and {} ({})",
            mine[0].path, other.label.pool, other.path
        );
        return Err(refuse(name, message, "Give the pool's id instead of its name"));
    }
    let label =
        mine.iter().map(|disk| &disk.label).max_by_key(|label| label.order()).expect("not empty").clone();
    let mut disks: Vec<Option<Found>> = label.disks.iter().map(|_| None).collect();
    let (mut stale, mut shrunk) = (Vec::new(), Vec::new());
    for disk in mine {
        place(name, &label, &mut disks, &mut stale, &mut shrunk, disk)?;
    }
    let explained = |error: Error| match &shrunk[..] {
        [] => error,
        disks => {
            let words: Vec<String> = disks.iter().map(ShrunkDisk::words).collect();
            refuse(name, words.join("; "), "Restore its size; nothing was changed")
        }
    };
    let (pool, generation) = newest_super(rt, name, &label, &disks).await.map_err(explained)?;
    let is_there: Vec<bool> = disks.iter().map(Option::is_some).collect();
    // How crowded enclosures are is known when the chunk tables have been read.
    check_tolerance(name, &label, &is_there, import, |_| 1).map_err(explained)?;
    Ok(Assembly { label, disks, stale, shrunk, pool, generation })
}

/// Puts a disk in its place, or says why it has none.
fn place(
    name: &str,
    label: &Label,
    disks: &mut [Option<Found>],
    stale: &mut Vec<(usize, String)>,
    shrunk: &mut Vec<ShrunkDisk>,
    disk: Found,
) -> Result<(), Error> {
    let index = usize::from(disk.label.disk);
    let known = label
        .disks
        .get(index)
        .filter(|entry| disk.label.disks.get(index).is_some_and(|own| own.id == entry.id));
    let Some(entry) = known else {
        if disk.label.generation == JOINING {
            return Ok(());
        }
        let message = format!("disk {} was replaced by another and is no longer part of the pool", disk.path);
        return Err(refuse(name, message, "Leave it out of the command"));
    };
    if let Some(twin) = &disks[index] {
        if twin.disk.geometry().identity == disk.disk.geometry().identity {
            return Ok(());
        }
        let message = format!(
            "{} and {} both claim to be disk {index}: one is a copy of the other",
            twin.path, disk.path
        );
        return Err(refuse(name, message, "Give only the original; nothing was changed"));
    }
    if disk.disk.geometry().size < entry.size {
        let (size, expected) = (disk.disk.geometry().size, entry.size);
        shrunk.push(ShrunkDisk { index, path: disk.path, size, expected });
        return match active(Bug::ShrunkDiskRefused) {
            true => Err(refuse(name, "a disk has shrunk".into(), "")),
            false => Ok(()),
        };
    }
    let parted = || {
        let path = &disk.path;
        let message =
            format!("disk {path} and the other disks were used separately: their contents have diverged");
        refuse(name, message, "Decide which side to keep and import only its disks; nothing was changed")
    };
    if !entry.status.in_service() && !active(Bug::StaleDiskAccepted) {
        if has_parted(&disk.label, label) {
            return Err(parted());
        }
        stale.push((index, disk.path));
        return Ok(());
    }
    if disk.label.order() == label.order()
        && (disk.label.disks != label.disks || disk.label.groups != label.groups)
    {
        return Err(parted());
    }
    disks[index] = Some(disk);
    Ok(())
}

/// Whether a disk that these no longer have in service went on without one of them that they have.
pub(crate) fn has_parted(own: &Label, others: &Label) -> bool {
    let is_out = |entry: &DiskEntry| matches!(entry.status, DiskStatus::Failed | DiskStatus::Offline);
    own.disks
        .iter()
        .zip(&others.disks)
        .any(|(own, there)| own.id == there.id && is_out(own) && there.status == DiskStatus::Online)
}

/// Refuses a pool of which more is missing than a chunk can lose that has at most `crowd` slots, by its group, in one enclosure.
pub(crate) fn check_tolerance(
    name: &str,
    label: &Label,
    is_there: &[bool],
    import: Import,
    crowd: impl Fn(usize) -> usize,
) -> Result<(), Error> {
    for (index, group) in label.groups.iter().enumerate() {
        let is_member = |(_, disk): &(usize, &DiskEntry)| usize::from(disk.group) == index && disk.counts();
        let members = label.disks.iter().enumerate().filter(is_member);
        let missing: Vec<(usize, &DiskEntry)> = members.filter(|(nth, _)| !is_there[*nth]).collect();
        let lacking = most_lacking(
            missing.iter().map(|(nth, disk)| (label.line(*nth as u16), disk.enclosure)),
            crowd(index),
        );
        if lacking > usize::from(group.redundancy) {
            if import.is_rescue() {
                return check_newest(name, label, is_there);
            }
            let missing: Vec<String> =
                missing.iter().map(|(nth, disk)| format!("{nth} ({})", disk.id)).collect();
            let message = format!(
                "{} of its disks are missing or stale, and its layout survives the loss of {}. Missing or stale: {}",
                missing.len(),
                group.redundancy,
                missing.join(", ")
            );
            return Err(Error::new(ErrorKind::NotFound, name, message)
                .remedy("Give the paths of the missing disks too. Without them, --read-only --force imports what can still be read"));
        }
    }
    Ok(())
}

async fn newest_super(
    rt: &Rt,
    name: &str,
    label: &Label,
    disks: &[Option<Found>],
) -> Result<(Super, u64), Error> {
    let mut newest: Option<SuperblockSlot> = None;
    // What is on cache disks is clients' from behind the labels on.
    let has_ring = |(index, _): &(usize, &Option<Found>)| label.disks[*index].status != DiskStatus::Cache;
    let with_ring = disks.iter().enumerate().filter(has_ring);
    for disk in with_ring.filter_map(|(_, disk)| disk.as_ref()) {
        for slot in read_superblocks(rt, &disk.disk, label.pool).await {
            if newest.as_ref().is_none_or(|known| slot.order() > known.order()) {
                newest = Some(slot);
            }
        }
    }
    let lost = |message: &str| {
        Error::new(ErrorKind::Corrupt, name, message).remedy("Give the paths of all its disks")
    };
    let SuperblockSlot { generation, payload, .. } =
        newest.ok_or_else(|| lost("no superblock can be read from the given disks"))?;
    match Super::decode(&payload) {
        Ok(Some(pool)) if pool.shards.len() == usize::from(label.shards) => Ok((pool, generation)),
        _ => Err(lost("its superblock is damaged, or was written by a newer version of forebay")),
    }
}
