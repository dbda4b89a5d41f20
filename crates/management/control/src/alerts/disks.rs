//! What is wrong with the disks of pools.
//!
//! An alert says no more than is known. A place that turned out wrong was repaired only where another disk of the group had it right: what
//! the pool knows to be unrecoverable is told by the alert `pool.data_lost`, and no disk is accused of it a second time. What was on a disk that is out is read from others only
//! where its group can lose as many as are out.

use super::{DiskEvent, Found, PoolDiskHealth, Told, Words, lost, sentence, tolerance};
use forebay_api::AlertSeverity::{Critical, Info, Warning};
use forebay_api::{Disk, DiskHealthState, DiskState, Group, Pool, show_size};

/// A disk that reads so many places wrong is told of in an event, too.
const ERRORS_RECENT: u64 = 10;

/// As sentences name it: with its path, or where it was last.
fn name_of(short: &str, disk: &Disk) -> String {
    match (&disk.name, &disk.status.last_path) {
        (path, _) if !path.is_empty() => format!("{short} ({path})"),
        (_, Some(last)) => format!("{short} (last at {last})"),
        _ => short.to_string(),
    }
}

/// Why it failed, from the event: if that was since the daemon keeps its events.
fn reason(short: &str, told: &[Told]) -> Option<String> {
    let failed = told.iter().rfind(|told| told.disk == short && told.what == DiskEvent::Failed)?;
    Some(sentence(&failed.message))
}

/// The command that takes a disk back; where it was last, if it is not there now.
fn online(short: &str, disk: &Disk) -> String {
    match (&disk.name, &disk.status.last_path) {
        (path, _) if !path.is_empty() => format!("forebay disk online {short}"),
        (_, Some(last)) => format!("forebay disk online {short} --path {}", forebay_api::quoted(last)),
        _ => format!("forebay disk online {short} --path PATH"),
    }
}

/// What it means for the data that a disk of this group is out.
fn impact_of_loss(group: &Group) -> &'static str {
    match lost(group) <= tolerance(group.layout) {
        true => "Its data is read from the other disks of its group.",
        false => {
            "Its group cannot lose it: data that only this disk has cannot be read until the disk is back."
        }
    }
}

impl Found {
    pub(super) fn disk(&mut self, pool: &Pool, group: &Group, disk: &Disk, told: &[Told]) {
        let short = format!("{}/{}", pool.name, disk.status.number);
        let name = name_of(&short, disk);
        match disk.status.state {
            DiskState::Failed => self.failed(pool, group, &short, &name, told),
            DiskState::Missing => self.add(
                "disk.missing",
                Warning,
                "disks",
                &short,
                Words {
                    cause: format!("Disk {name} was not found when the pool was imported."),
                    impact: impact_of_loss(group),
                    action: "Reconnect it and bring it back online from its new path, or replace it.",
                    command: online(&short, disk),
                },
            ),
            DiskState::Offline => self.add(
                "disk.offline",
                Info,
                "disks",
                &short,
                Words {
                    cause: format!("Disk {name} was taken out of service by an administrator."),
                    impact: "It misses new writes, and its group can lose one disk less.",
                    action: "Bring it back online when the work on it is done.",
                    command: online(&short, disk),
                },
            ),
            DiskState::Rebuilt => self.add(
                "disk.rebuilt",
                Warning,
                "disks",
                &short,
                Words {
                    cause: reason(&short, told).unwrap_or_else(|| format!("Disk {name} failed and was taken out.")),
                    impact: "All its data has been rebuilt on other disks: the pool is fully redundant, with one disk less.",
                    action: "Replace it with a free disk (`forebay disk list --free`), or remove it from the pool (`forebay disk remove DISK`).",
                    command: format!("forebay disk replace {short} DISK"),
                },
            ),
            DiskState::Empty => self.add(
                "disk.empty",
                Warning,
                "disks",
                &short,
                Words {
                    cause: reason(&short, told).unwrap_or_else(|| format!("Disk {name} failed, or was not found when the pool was imported.")),
                    impact: "No data is lost: it was a spare disk, or a cache disk with copies only.",
                    action: "Remove it from the pool, and add another: `forebay pool add POOL DISK` with `--spare` or `--cache`.",
                    command: format!("forebay disk remove {short}"),
                },
            ),
            DiskState::Online | DiskState::Leaving | DiskState::Spare | DiskState::Cache => {
                self.errors(pool, group, disk, &short, &name);
                self.small_spare(group, disk, &short, &name);
                self.slow(&short, told);
            }
        }
    }

    fn failed(&mut self, pool: &Pool, group: &Group, short: &str, name: &str, told: &[Told]) {
        let is_suspended = pool.conditions.iter().any(|condition| condition.reason == "Suspended");
        let mut disks = pool.status.groups.iter().flat_map(|group| &group.disks);
        let is_spare = disks.any(|disk| disk.status.state == DiskState::Spare);
        let (what, action, command) = match (is_suspended, is_spare) {
            // The pool has written down no failure: it stopped first.
            (true, _) => (
                "failed a write, and the pool has stopped writing",
                "Repair the disk: check cable and controller, and for a file the space on its file system. Then export the pool and import it again.",
                format!("forebay pool export {}", pool.name),
            ),
            (false, true) => (
                "failed and was taken out",
                "Replace it with a spare disk. If a cable was loose, or the file system of a file was full, bring it back with `forebay disk online \
                 DISK`.",
                format!("forebay disk replace {short}"),
            ),
            (false, false) => (
                "failed and was taken out",
                "Replace it with a free disk (`forebay disk list --free`). If a cable was loose, or the file system of a file was full, bring it \
                 back with `forebay disk online DISK`.",
                format!("forebay disk replace {short} DISK"),
            ),
        };
        let impact = match is_suspended {
            true => "Writes to the pool's volumes fail. Data that the disk can still return is read from it.",
            false => impact_of_loss(group),
        };
        let cause = match reason(short, told) {
            Some(reason) if !is_suspended => reason,
            _ => format!("Disk {name} {what}."),
        };
        self.add("disk.failed", Warning, "disks", short, Words { cause, impact, action, command });
    }

    /// Places that a disk in service could not read, or held wrong data in.
    fn errors(&mut self, pool: &Pool, group: &Group, disk: &Disk, short: &str, name: &str) {
        let (unreadable, wrong) = (disk.status.errors_read_recent, disk.status.errors_checksum_recent);
        let lost = pool.status.damage.places;
        // Each scrub finds again what no disk has right, also where its loss is accepted.
        let wrong_besides = wrong.saturating_sub(lost);
        if unreadable + wrong_besides < ERRORS_RECENT {
            return;
        }
        let of = |count: u64, what: &str| {
            let places = if count == 1 { "block" } else { "blocks" };
            (count > 0).then(|| format!("{what} {count} {places}"))
        };
        let said = [of(unreadable, "could not read"), of(wrong, "returned wrong data for")];
        let said: Vec<String> = said.into_iter().flatten().collect();
        let cause = format!("Disk {name} {} recently.", said.join(" and "));
        if disk.status.state == DiskState::Cache {
            let words = Words {
                cause,
                impact: "It holds copies only: the data was read from the pool's other disks.",
                action: "If the errors continue, remove the disk from the pool and add another.",
                command: format!("forebay disk remove {short}"),
            };
            return self.add("disk.errors", Warning, "disks", short, words);
        }
        let places = if lost == 1 { "block" } else { "blocks" };
        let impact = match (lost, tolerance(group.layout)) {
            (0, 0) => "Its group has no redundancy: data that stays unreadable is lost.".to_string(),
            (0, _) => "The bad blocks were repaired from the other disks of its group.".to_string(),
            (lost, _) => format!(
                "Unrecoverable: {lost} {places} of the pool (see the alert pool.data_lost). The others were repaired."
            ),
        };
        let action = match unreadable >= wrong_besides {
            true => {
                "Scrub the pool to find further unreadable blocks. If the errors continue, replace the disk."
            }
            false => {
                "Scrub the pool to find further bad blocks. If the errors continue, check what the disk shares with others (cable, controller, \
                 memory) before you replace it."
            }
        };
        let command = format!("forebay pool scrub {}", pool.name);
        self.add("disk.errors", Warning, "disks", short, Words { cause, impact: &impact, action, command });
    }

    fn small_spare(&mut self, group: &Group, disk: &Disk, short: &str, name: &str) {
        let serves = |disk: &&Disk| matches!(disk.status.state, DiskState::Online | DiskState::Leaving);
        let least = group.disks.iter().filter(serves).map(|disk| disk.status.size_bytes).min();
        let size = disk.status.size_bytes;
        let Some(least) = least.filter(|least| disk.status.state == DiskState::Spare && size < *least) else {
            return;
        };
        let words = Words {
            cause: format!(
                "Spare disk {name} has {}, less than the {} of the smallest disk of its group.",
                show_size(size),
                show_size(least)
            ),
            impact: "If it replaces another disk, the pool has less space, or the data of that disk is not rebuilt.",
            action: "Add a spare disk as large as the others, and remove this one.",
            command: format!("forebay disk remove {short}"),
        };
        self.add("disk.spare_small", Info, "disks", short, words);
    }

    fn slow(&mut self, short: &str, told: &[Told]) {
        let is_it = |told: &&Told| told.disk == short && told.what != DiskEvent::Failed;
        let Some(last) = told.iter().rfind(is_it) else { return };
        let (what, severity) = match last.what {
            DiskEvent::Hung => ("disk.hung", Critical),
            DiskEvent::Slow | DiskEvent::Failed => ("disk.slow", Warning),
        };
        self.add(
            what,
            severity,
            "disks",
            short,
            Words {
                cause: sentence(&last.message),
                impact: "Requests that need it wait. Its whole group is as slow as this disk.",
                action: "Check its cable and controller. If this continues, replace the disk.",
                command: format!("forebay disk replace {short} DISK"),
            },
        );
        self.alerts.last_mut().expect("it was added just now").since_unix_ms = last.at_unix_ms;
    }

    /// Of disks in service; the others are to be replaced or removed already.
    pub(super) fn health(&mut self, pool: &Pool, disk: &Disk, known: &[PoolDiskHealth]) {
        use DiskState::{Cache, Leaving, Online, Spare};
        let short = format!("{}/{}", pool.name, disk.status.number);
        let known = known.iter().find(|one| one.disk == short);
        let Some(PoolDiskHealth { health, .. }) = known else { return };
        if !matches!(disk.status.state, Online | Leaving | Spare | Cache) {
            return;
        }
        let name = if disk.name.is_empty() { short.clone() } else { format!("{short} ({})", disk.name) };
        let why = health.reasons.first().map_or(String::new(), |reason| format!(" {}", sentence(reason)));
        let impact = match disk.status.state {
            Spare => "It may fail as soon as it takes the place of another disk.",
            Cache => "It holds copies only: when it fails, reads are slower and nothing is lost.",
            _ => "When it fails, the other disks of its group hold the data, if its layout protects it.",
        };
        match health.state {
            DiskHealthState::Failing => {
                let action = match disk.status.state {
                    Spare | Cache => {
                        format!("Add a free disk in its place, and remove it: `forebay disk remove {short}`.")
                    }
                    _ => format!(
                        "Choose a free disk, and replace this one while it still works: `forebay disk replace {short} DISK`."
                    ),
                };
                let command = "forebay disk list --free".into();
                let cause = format!("Disk {name} is about to fail.{why}");
                self.add(
                    "disk.health",
                    Warning,
                    "disks",
                    &short,
                    Words { cause, impact, action: &action, command },
                );
            }
            DiskHealthState::Warning => {
                let cause = format!("Disk {name} reports a health warning.{why}");
                let action = "Watch it: check its cable and cooling, and have another disk ready.";
                let command = "forebay disk list --machine".into();
                self.add("disk.health", Info, "disks", &short, Words { cause, impact, action, command });
            }
            DiskHealthState::Good | DiskHealthState::Unknown => {}
        }
    }
}
