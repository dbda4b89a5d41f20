//! Disks that are to be overwritten, and what speaks against it.
//!
//! What is *on* a disk can be overridden: another pool's label, a signature that `libblkid` knows, a file's data, or that none of this can
//! be told. What *uses* a disk cannot: a pool that is imported here, another process, a mount, a lock. It would go on writing, and both
//! sides would lose everything. The disk counts, not its name: links, other nodes, partitions, loop devices and the files below
//! them are found by the runtime ([`forebay_runtime::Users`]).
//!
//! The disk is opened first, which locks it, and judged then: what comes later finds it locked.

use crate::control::Control;
use crate::create::invalid;
use crate::error::{Error, ErrorKind};
use crate::import::{ANSWER_MAX, Probe, open_error, probe_disk};
use crate::registry::registry;
use forebay_base::MIB;
use forebay_base::planted::{Bug, active};
use forebay_device::{DISK_BYTES_MIN, LabelError};
use forebay_runtime::{Disk, DiskErrorKind, OpenError, OpenMode, Rt};
use futures_util::future::{Either, select};

/// What a person does about a disk that is in use.
const LET_GO: &str = "End that use of the disk, or give another disk";
const OVERWRITE: &str = "Give another disk, or add --force to overwrite this one";

/// Opens a disk that is to become one of a pool, unless something speaks against it. `joins` is the pool, where it exists already: a
/// disk that failed in it may join it anew.
pub(crate) async fn open_disk(
    rt: &Rt,
    path: &str,
    force: bool,
    joins: Option<&Control>,
) -> Result<Disk, Error> {
    let disk = open_unused(rt, path, joins).await?;
    let disk = match probe_disk(rt, path, disk).await {
        Probe::Unopened(error) => return Err(open_error(path, &error)),
        Probe::Labelled(found) if force => found.disk,
        Probe::Blank(disk, _) if force => disk,
        Probe::Labelled(found) => {
            let (name, id) = (&found.label.pool_name, found.label.pool);
            return Err(unsafe_to(path, format!("the disk belongs to pool '{name}' ({id})")));
        }
        Probe::Blank(
            _,
            Some(
                LabelError::TooOld { .. }
                | LabelError::TooNew { .. }
                | LabelError::Needs(_)
                | LabelError::Damaged,
            ),
        ) => {
            return Err(unsafe_to(
                path,
                "the disk has a pool label that is damaged or was written by another version of forebay",
            ));
        }
        Probe::Blank(disk, None | Some(LabelError::Absent)) => {
            check_empty(rt, path, &disk).await?;
            disk
        }
    };
    if disk.geometry().size < DISK_BYTES_MIN {
        let message = format!(
            "the disk has {} bytes; a pool needs disks of at least {DISK_BYTES_MIN} bytes",
            disk.geometry().size
        );
        return Err(invalid("disks", path, message, "Give a larger disk"));
    }
    Ok(disk)
}

/// Refuses a disk that is one of these already.
pub(crate) fn check_new(path: &str, disk: &Disk, others: &[Disk]) -> Result<(), Error> {
    if others.iter().any(|other| other.geometry().identity == disk.geometry().identity) {
        return Err(invalid("disks", path, "the disk is given twice", "Give each disk once"));
    }
    Ok(())
}

fn unsafe_to(path: &str, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsafe, path, message).remedy(OVERWRITE)
}

fn in_use(path: &str, how: &str) -> Error {
    Error::new(ErrorKind::Conflict, path, format!("the disk is in use: {how}")).remedy(LET_GO)
}

/// Opens a disk that nothing uses.
async fn open_unused(rt: &Rt, path: &str, joins: Option<&Control>) -> Result<Disk, Error> {
    let opened = match rt.open_disk(path, OpenMode::ReadWrite) {
        Err(error) if !matches!(error, OpenError::InUse(_)) => return Err(open_error(path, &error)),
        opened => opened,
    };
    let users = rt.find_users(path).await;
    let mut shown: Vec<(u64, Option<&str>)> = Vec::new();
    shown.extend(opened.iter().map(|disk| (disk.geometry().identity, None)));
    shown.extend(users.iter().flat_map(|users| &users.overlaps).map(|(disk, name)| (*disk, Some(&**name))));
    for (identity, through) in shown {
        check_pools(rt, path, identity, through, joins).await?;
    }
    match (opened, users) {
        (Err(OpenError::InUse(how)), users) => {
            Err(in_use(path, &users.ok().and_then(|users| users.other).unwrap_or(how)))
        }
        (Err(error), _) => Err(open_error(path, &error)),
        (Ok(_), Err(why)) => {
            let message = format!("the check whether the disk is in use failed: {why}");
            Err(Error::new(ErrorKind::Io, path, message).remedy("Try again, or give another disk"))
        }
        (Ok(disk), Ok(users)) => match users.other {
            Some(how) => Err(in_use(path, &how)),
            None => Ok(disk),
        },
    }
}

/// Refuses a disk that a pool has which is imported here, by whatever name.
async fn check_pools(
    rt: &Rt,
    path: &str,
    identity: u64,
    through: Option<&str>,
    joins: Option<&Control>,
) -> Result<(), Error> {
    if active(Bug::ForceTakesUsedDisk) {
        return Ok(());
    }
    for control in registry(rt).controls() {
        let is_it = |disk: &crate::control::ControlDisk| {
            disk.disk.as_ref().is_some_and(|disk| disk.geometry().identity == identity)
        };
        let Some(index) = control.disks.borrow().iter().position(is_it) else { continue };
        let name = control.disk_name(index);
        let joins_again = joins.is_some_and(|joins| joins.id() == control.id());
        if joins_again && through.is_none() && control.shared.healths[index].is_failed() {
            if !control.owes(identity).await {
                return Ok(());
            }
            // A write that it carries out later would land on what it is given now.
            let message = format!("{path} is disk {name}, which still has unanswered requests");
            let remedy = "Try again when the disk has answered them, or give another disk";
            return Err(Error::new(ErrorKind::Unsafe, name, message).remedy(remedy));
        }
        let through = through.map_or(String::new(), |other| format!(", through {other}"));
        let message = format!("the disk is in use: it is disk {name} of an imported pool{through}");
        let remedy = format!("Give another disk, or export pool '{}' first", control.name());
        return Err(Error::new(ErrorKind::Unsafe, path, message).remedy(remedy));
    }
    Ok(())
}

/// Refuses a disk with something on it, or of which that cannot be told.
async fn check_empty(rt: &Rt, path: &str, disk: &Disk) -> Result<(), Error> {
    match rt.find_contents(path).await {
        Ok(None) => {}
        Ok(Some(what)) => return Err(unsafe_to(path, format!("the disk holds {what}"))),
        Err(why) => return Err(unsafe_to(path, format!("the check for data on the disk failed: {why}"))),
    }
    // A search for signatures passes over what cannot be read.
    let size = disk.geometry().size / 4096 * 4096;
    let len = MIB.min(size);
    for at in [0, size - len] {
        let reading = disk.read(at, rt.buffer(len as usize));
        let result = match select(reading, rt.sleep(ANSWER_MAX)).await {
            Either::Left(((_, result), _)) => result,
            Either::Right(_) => {
                disk.give_up();
                Err(DiskErrorKind::GivenUp.into())
            }
        };
        if let Err(error) = result {
            return Err(unsafe_to(path, format!("the check for data on the disk failed: {error}")));
        }
    }
    Ok(())
}
