//! The physical sector of a disk: what it reads, modifies and writes when it is asked to write less.
//!
//! A disk's label keeps what the device said when it joined, or what the administrator said instead; disks of a pool differ, and a
//! replacement has its own. The engine asks no disk for less than 4 KiB, aligned, so sectors up to that cost nothing, known or
//! not. Larger ones do where a volume's blocks are smaller, and whoever creates such a volume is told.
//! Timing does not decide: see docs/development/decisions/0009-sector-sizes.md.

use crate::control::Control;
use crate::create::invalid;
use crate::error::Error;
use forebay_base::KIB;
use forebay_device::DiskEntry;
use forebay_runtime::Disk;

const SECTOR_MIN: u32 = 512;
/// Slots begin at multiples of it.
const SECTOR_MAX: u32 = 64 << 10;

/// The physical sector of the disk at `path`: the one that is given for it, if it can be, or what the device says.
pub(crate) fn sector_of(path: &str, disk: &Disk, given: Option<u32>) -> Result<u32, Error> {
    let geometry = disk.geometry();
    let Some(sector) = given else { return Ok(geometry.sector_physical) };
    let message = format!("a physical sector of {sector} bytes is not possible");
    if !sector.is_power_of_two() || !(SECTOR_MIN..=SECTOR_MAX).contains(&sector) {
        return Err(invalid("sectors", path, message, "Give a power of two from 512 to 64K"));
    }
    let least = geometry.sector_logical;
    if sector < least {
        let message = format!("{message}: the device's own sectors have {least} bytes");
        return Err(invalid(
            "sectors",
            path,
            message,
            "Give at least that, or omit the option to use the device's value",
        ));
    }
    Ok(sector)
}

/// What is given for the disk at `path`.
pub(crate) fn given(sectors: &[(String, u32)], path: &str) -> Option<u32> {
    sectors.iter().find(|(disk, _)| disk == path).map(|(_, sector)| *sector)
}

/// Checks that sectors are given for disks that are meant.
pub(crate) fn check_sectors(
    pool: &str,
    sectors: &[(String, u32)],
    is_disk: impl Fn(&String) -> bool,
) -> Result<(), Error> {
    match sectors.iter().find(|(path, _)| !is_disk(path)) {
        None => Ok(()),
        Some((path, _)) => {
            let message = format!("{path} is not one of the disks");
            Err(invalid("sectors", pool, message, "Write the path as in the list of disks"))
        }
    }
}

/// Enters the sectors that are given for disks at these paths, which were checked.
pub(crate) fn put_sectors<'a>(
    entries: &mut [DiskEntry],
    paths: impl Iterator<Item = &'a String>,
    sectors: &[(String, u32)],
) {
    for (entry, path) in entries.iter_mut().zip(paths) {
        entry.sector_physical = given(sectors, path).unwrap_or(entry.sector_physical);
    }
}

impl Control {
    /// What to know of a volume with blocks of so many bytes, when disks have larger sectors.
    pub(crate) fn small_blocks(&self, block_bytes: u32) -> Option<String> {
        let label = self.label.borrow();
        let data =
            |disk: &&DiskEntry| disk.status.in_service() && label.groups[usize::from(disk.group)].role == 0;
        let largest = label.disks.iter().filter(data).map(|disk| disk.sector_physical).max()?;
        let why = "for small writes the disks read, modify and rewrite a whole sector, and a power loss may damage the rest of it";
        (block_bytes < largest).then(|| {
            let (block, sector) = (u64::from(block_bytes) / KIB, u64::from(largest) / KIB);
            format!("the volume's blocks of {block} KiB are smaller than the disks' sectors of {sector} KiB: {why}")
        })
    }
}
