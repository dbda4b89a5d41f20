//! The commands about disks.
//!
//! A disk is named as its pool's part: `tank/3` by number, `tank//dev/sdb` or `tank/disk0` by path, or by UUID alone.

use crate::arguments::{DryRun, Wait, Yes};
use crate::client::Call;
use crate::commands::{Outcome, Session, of_pool};
use crate::failure::{Exit, Failure};
use crate::listing::{self, Shown};
use crate::show::{self, word};
use crate::size::parse_sector_size;
use crate::table::{Cell, Tone};
use clap::{Args, Subcommand};
use forebay_api as api;
use forebay_api::{DiskHealthState, DiskLocate, DiskOnline, DiskReplace, MachineDisk, Operation, show_size};

const NONE_FREE: &str =
    "No disk of the machine is free. To see what uses each disk: forebay disk list --machine";

#[derive(Subcommand, Debug)]
pub enum Disk {
    /// List the disks of all pools, or of the machine
    List {
        /// Only disks of this pool
        #[arg(long)]
        pool: Option<String>,
        /// Only disks of the machine that a pool can take; DEVICE is the path to give
        #[arg(long, conflicts_with = "pool")]
        free: bool,
        /// All disks of the machine, with their use and health
        #[arg(long, conflicts_with_all = ["pool", "free"])]
        machine: bool,
    },
    /// Replace a disk: its data is moved or rebuilt, and then it leaves the pool
    Replace {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        /// The new block device or file [default: a spare disk of the pool]
        new: Option<String>,
        /// Physical sector size of the new disk, 512 to 64K, if the disk reports it wrongly
        #[arg(long, value_name = "SIZE", value_parser = parse_sector_size, requires = "new")]
        sector: Option<u32>,
        /// Take a disk that is not empty; its data is lost. A disk in use is never taken
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Remove a disk from its pool; its data moves to other disks first
    Remove {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Take a disk out of service until `disk online`; it misses the writes in between
    Offline {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Bring a disk back into service; it gets the writes that it missed, and a new number
    Online {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        /// The disk's present path, if it has changed
        #[arg(long)]
        path: Option<String>,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Reset a disk's error counters, once the cause is fixed
    Clear {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Measure a device or file, and print a model of it for `forebay validate`; needs no daemon
    ///
    /// The output also shows how far the model is from the device in six workloads. Without --write, nothing is written to the device.
    Model(DiskModel),
    /// Blink a disk's activity light, by reading from it every other second
    Locate {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        /// Duration in seconds, 1 to 3600
        #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
        seconds: u32,
        #[command(flatten)]
        wait: Wait,
    },
}

#[derive(Args, Debug)]
pub struct DiskModel {
    /// A block device or file that no pool uses
    pub path: String,
    /// Also measure writes, which overwrites the first 512 MiB
    #[arg(long)]
    pub write: bool,
    /// Overwrite even if the device or file is not empty
    #[arg(long, requires = "write")]
    pub yes: bool,
    /// Duration of the measurement in seconds, 5 to 600, without the initial writes
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=600))]
    pub seconds: u64,
}

impl Session {
    pub fn disk(&self, command: Disk) -> Outcome {
        match command {
            Disk::List { free: true, .. } => {
                let free = [("filter", "free=true".to_string())];
                let disks: Vec<MachineDisk> = self.client.all(Operation::MachineDiskList, &free)?;
                self.list(&disks, |disks| machine_disks(disks, NONE_FREE))
            }
            Disk::List { machine: true, .. } => {
                let disks: Vec<MachineDisk> = self.client.all(Operation::MachineDiskList, &[])?;
                self.list(&disks, |disks| machine_disks(disks, "The machine has no disks."))
            }
            Disk::List { pool, .. } => {
                let disks: Vec<api::Disk> = self.client.all(Operation::DiskList, &of_pool(pool))?;
                self.list(&disks, show::disks)
            }
            Disk::Replace { disk, new, sector, force, dry_run, wait } => {
                let disk = self.disk_name(&disk)?;
                let body = DiskReplace { new: self.path(new)?, sector_bytes: sector, force };
                let call = Call::of(Operation::DiskReplace, &disk).body(&body).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                self.task(call, wait, |task| format!("Disk {} is replaced.", task.object))?;
                Ok(Exit::Ok)
            }
            Disk::Remove { disk, yes, dry_run, wait } => {
                let name = self.disk_name(&disk)?;
                let call = Call::of(Operation::DiskRemove, &name).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                let what = "Removing a disk leaves its pool with less capacity, or with one spare less";
                self.confirm(yes.yes, what, &disk, &call)?;
                self.task(call, wait, |task| format!("Disk {} is removed from its pool.", task.object))?;
                Ok(Exit::Ok)
            }
            Disk::Offline { disk, yes, dry_run, wait } => {
                let name = self.disk_name(&disk)?;
                let call = Call::of(Operation::DiskOffline, &name).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                let what = "Without the disk its pool has less redundancy";
                self.confirm(yes.yes, what, &disk, &call)?;
                self.task(call, wait, |task| format!("Disk {} is out of service.", task.object))?;
                Ok(Exit::Ok)
            }
            Disk::Online { disk, path, dry_run, wait } => {
                let disk = self.disk_name(&disk)?;
                let body = DiskOnline { path: self.path(path)? };
                let call = Call::of(Operation::DiskOnline, &disk).body(&body).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                let again = "is back in service under a new number: see `forebay disk list`.";
                self.task(call, wait, |task| format!("The disk that was {} {again}", task.object))?;
                Ok(Exit::Ok)
            }
            Disk::Clear { disk, dry_run, wait } => {
                let name = self.disk_name(&disk)?;
                let call = Call::of(Operation::DiskClear, &name).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                self.task(call, wait, |task| {
                    format!("The error counters of disk {} are reset.", task.object)
                })?;
                Ok(Exit::Ok)
            }
            Disk::Model(_) => unreachable!("what needs no daemon is done without a session"),
            Disk::Locate { disk, seconds, wait } => {
                let disk = self.disk_name(&disk)?;
                let call = Call::of(Operation::DiskLocate, &disk);
                let call = call.body(&DiskLocate { seconds: Some(seconds) });
                self.task(call, wait, |task| format!("Disk {} has stopped blinking.", task.object))?;
                Ok(Exit::Ok)
            }
        }
    }

    fn path(&self, path: Option<String>) -> Result<Option<String>, Failure> {
        Ok(self.paths(path.as_slice())?.pop())
    }

    /// A disk's name as the daemon knows it: a path may be written relative to here.
    fn disk_name(&self, name: &str) -> Result<String, Failure> {
        match name.split_once('/') {
            Some((pool, place)) if is_path(place) => {
                let paths = self.paths(&[place.to_string()])?;
                Ok(format!("{pool}/{}", paths.concat()))
            }
            _ => Ok(name.to_string()),
        }
    }
}

fn machine_disks(disks: &[MachineDisk], empty: &str) -> Shown {
    let text = |text: &Option<String>| Cell::text(text.as_deref().unwrap_or("-"));
    let rows = disks.iter().map(|disk| {
        let kind = if disk.rotational { "HDD" } else { "SSD" };
        let health = match disk.health.state {
            DiskHealthState::Good => Tone::Good,
            DiskHealthState::Unknown => Tone::Plain,
            DiskHealthState::Warning => Tone::Warning,
            DiskHealthState::Failing => Tone::Bad,
        };
        vec![
            Cell::text(&disk.device),
            text(&disk.model),
            text(&disk.serial),
            Cell::number(show_size(disk.size_bytes)),
            Cell::text(format!("{kind} {}", disk.transport.title())),
            text(&disk.place),
            Cell::text(word(&disk.health.state)).tone(health),
            Cell::text(used_by(disk)),
        ]
    });
    let titles = ["DEVICE", "MODEL", "SERIAL", "SIZE", "KIND", "PLACE", "HEALTH", "USED BY"];
    listing::table(&titles, rows.collect(), empty)
}

/// In as many words as a line has room for: `--json` has all reasons.
fn used_by(disk: &MachineDisk) -> String {
    match (&disk.pool, disk.number, disk.not_free.first()) {
        (Some(pool), Some(number), _) => format!("{pool}/{number}"),
        _ if disk.free => "FREE".into(),
        (_, _, Some(why)) => why.trim_end_matches('.').into(),
        _ => "-".into(),
    }
}

/// Whether it is neither a number nor a UUID.
fn is_path(place: &str) -> bool {
    let is_number = place.bytes().all(|byte| byte.is_ascii_digit());
    let groups: Vec<usize> = place.split('-').map(str::len).collect();
    let is_id = groups == [8, 4, 4, 4, 12] && place.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit());
    !is_number && !is_id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ids_are_no_paths() {
        for place in ["0", "17", "01234567-89ab-4cde-8f01-23456789abcd"] {
            assert!(!is_path(place), "{place}");
        }
        for place in ["/dev/sdb", "disk0", "./3", "a-b-c-d-e", "01234567-89ab-4cde-8f01-23456789abcx"] {
            assert!(is_path(place), "{place}");
        }
    }
}
