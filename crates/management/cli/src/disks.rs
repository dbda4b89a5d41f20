//! The commands about disks.
//!
//! A disk is named as its pool's part: `tank/3` by number, `tank//dev/sdb` or `tank/disk0` by path, or by UUID alone.

use crate::arguments::{DryRun, Wait, Yes};
use crate::client::Call;
use crate::commands::{Outcome, Session, of_pool};
use crate::failure::{Exit, Failure};
use crate::show::{self, table, word};
use crate::size::parse_sector_size;
use crate::table::{Cell, Tone};
use clap::{Args, Subcommand};
use forebay_api as api;
use forebay_api::{DiskHealthState, DiskLocate, DiskOnline, DiskReplace, MachineDisk, Operation, show_size};

const NONE_FREE: &str = "No disk of the machine is free. What uses each says: forebay disk list --machine";

#[derive(Subcommand, Debug)]
pub enum Disk {
    /// List the disks of all pools, or of the machine
    List {
        /// Only this pool's
        #[arg(long)]
        pool: Option<String>,
        /// The machine's disks that a pool may take: DEVICE is the path to give it
        #[arg(long, conflicts_with = "pool")]
        free: bool,
        /// All disks of the machine, who uses them, and how they are
        #[arg(long, conflicts_with_all = ["pool", "free"])]
        machine: bool,
    },
    /// Put another disk in a disk's place: what is on it moves, or is rebuilt, and then it leaves the pool
    Replace {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        /// The new block device or file; without it a spare disk of the pool
        new: Option<String>,
        /// Physical sector of the new disk, if it does not say it right: 512 to 64K
        #[arg(long, value_name = "SIZE", value_parser = parse_sector_size, requires = "new")]
        sector: Option<u32>,
        /// Take a disk that is not empty, whatever is on it; never a disk in use
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Have a disk leave its pool: what is on it moves to the others first
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
    /// Take a disk out of service, to come back later; what is written meanwhile it misses
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
    /// Take a disk back that was out of service; it gets what it missed, and a new number
    Online {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        /// Where it is now, if not where it was
        #[arg(long)]
        path: Option<String>,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Set a disk's error counters back, once the cause is dealt with
    Clear {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        #[command(flatten)]
        dry_run: DryRun,
        #[command(flatten)]
        wait: Wait,
    },
    /// Measure a device or file and print a model of it that a configuration can have; needs no daemon
    ///
    /// How far the model is from the device in six workloads is printed with it. Without --write nothing is written.
    Model(DiskModel),
    /// Make a disk's light blink, by reading from it a second on and a second off
    Locate {
        /// POOL/NUMBER, POOL/PATH or UUID
        disk: String,
        /// How long
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
    /// Also measure writes, in its first 512 MiB; what it holds is lost
    #[arg(long)]
    pub write: bool,
    /// Write although something is there
    #[arg(long, requires = "write")]
    pub yes: bool,
    /// How long to measure, but for what is written first
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
                let what = "Removing a disk leaves its pool with less room, or without a spare";
                self.confirm(yes.yes, what, &disk, &call)?;
                self.task(call, wait, |task| format!("Disk {} has left its pool.", task.object))?;
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
                let again = "serves again, under a new number: `forebay disk list` shows it.";
                self.task(call, wait, |task| format!("The disk that was {} {again}", task.object))?;
                Ok(Exit::Ok)
            }
            Disk::Clear { disk, dry_run, wait } => {
                let name = self.disk_name(&disk)?;
                let call = Call::of(Operation::DiskClear, &name).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                self.task(call, wait, |task| format!("The errors of disk {} are forgotten.", task.object))?;
                Ok(Exit::Ok)
            }
            Disk::Model(_) => unreachable!("what needs no daemon is done without a session"),
            Disk::Locate { disk, seconds, wait } => {
                let disk = self.disk_name(&disk)?;
                let call = Call::of(Operation::DiskLocate, &disk);
                let call = call.body(&DiskLocate { seconds: Some(seconds) });
                self.task(call, wait, |task| format!("Disk {} blinks no more.", task.object))?;
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

fn machine_disks(disks: &[MachineDisk], empty: &str) {
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
    table(&titles, rows.collect(), empty);
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
