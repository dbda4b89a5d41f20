//! What is wrong now, told from the state of things: a pure function, so that nothing can be forgotten or stay behind.
//!
//! An alert has a cause, an impact and an action, a plain sentence each. Its id is what is wrong and with what, so it is the same from look to look; only since
//! when is remembered ([`Since`]), and that is forgotten with the alert. What is told by events alone (a disk that is slow, but may not be taken
//! out) counts as long as it was told of late.

use crate::directory::Trouble;
use forebay_api::AlertSeverity::{self, Critical, Info, Warning};
use forebay_api::{
    Alert, AlertObject, Disk, DiskHealth, DiskHealthState, DiskState, Layout, Pool, PoolState, Volume,
    show_size,
};
use std::collections::BTreeMap;

/// A disk that reads so many places wrong is told of in an event, too.
const ERRORS_RECENT: u64 = 10;
/// What an event told is still so.
pub const TOLD_MS: u64 = 15 * 60 * 1000;
/// A certificate of somebody else's has to be replaced by hand.
const CERTIFICATE_DAYS: u64 = 21;
const DAY_MS: u64 = 24 * 3600 * 1000;
/// A week to buy disks.
const FULL_DAYS: u64 = 7;
/// Of one look; what is beyond is as wrong, and is seen when some of these are mended.
const ALERTS_MAX: usize = 1000;

/// A volume that has not had what it was promised.
pub struct Violation {
    pub volume: String,
    pub level: String,
    /// Of the last `of` seconds in which it was asked for something.
    pub seconds: usize,
    pub of: usize,
    pub why: String,
}

/// An event about a disk.
pub struct Told {
    /// `POOL/NUMBER`.
    pub disk: String,
    pub hangs: bool,
    pub message: String,
    pub at_unix_ms: u64,
}

/// How a disk of a pool is, as it says itself.
pub struct PoolDiskHealth {
    /// `POOL/NUMBER`.
    pub disk: String,
    pub health: DiskHealth,
}

/// Hosts without a secret, and the portals at which other machines can use their names.
#[derive(Default)]
pub struct Exposed {
    pub portals: Vec<String>,
    pub hosts: Vec<String>,
}

/// A threshold that is crossed.
pub struct Crossing {
    pub name: String,
    pub severity: AlertSeverity,
    pub expression: String,
    pub cause: String,
}

pub struct Quota {
    pub project: String,
    pub used: u64,
    pub quota: u64,
}

/// What an alert may come from.
#[derive(Default)]
pub struct View {
    pub now_unix_ms: u64,
    pub pools: Vec<Pool>,
    pub volumes: Vec<Volume>,
    pub quotas: Vec<Quota>,
    pub crossings: Vec<Crossing>,
    pub violations: Vec<Violation>,
    pub told: Vec<Told>,
    pub health: Vec<PoolDiskHealth>,
    pub exposed: Exposed,
    /// The end of the certificate that was given.
    pub certificate_ends_unix_ms: Option<u64>,
    /// Why the data directory cannot be written.
    pub directory: Option<Trouble>,
}

/// Since when alerts are, by id.
#[derive(Default)]
pub struct Since(BTreeMap<String, u64>);

impl Since {
    /// Says since when each is, and forgets the others; whether any came or went.
    pub fn note(&mut self, alerts: &mut [Alert], now_unix_ms: u64) -> bool {
        let mut next = BTreeMap::new();
        let mut is_news = self.0.len() != alerts.len();
        for alert in alerts {
            let known = self.0.get(&alert.id).copied();
            is_news |= known.is_none();
            let since = known.unwrap_or_else(|| alert.since_unix_ms.min(now_unix_ms));
            alert.since_unix_ms = since;
            next.insert(alert.id.clone(), since);
        }
        self.0 = next;
        is_news
    }
}

/// All that is wrong, the worst first.
pub fn found(view: &View) -> Vec<Alert> {
    let mut found = Found { now: view.now_unix_ms, alerts: Vec::new() };
    for pool in &view.pools {
        found.pool(pool);
        let disks = pool.status.groups.iter().flat_map(|group| &group.disks);
        disks.for_each(|disk| {
            found.disk(pool, disk, &view.told);
            found.health(pool, disk, &view.health);
        });
    }
    found.volumes(&view.volumes);
    view.violations.iter().for_each(|violation| found.violation(violation));
    view.quotas.iter().for_each(|quota| found.quota(quota));
    view.crossings.iter().for_each(|crossing| found.crossing(crossing));
    found.exposed(&view.exposed);
    found.certificate(view.certificate_ends_unix_ms);
    found.directory(view.directory.as_ref());
    let mut alerts = found.alerts;
    alerts.sort_by(|a, b| order(a).cmp(&order(b)));
    alerts.dedup_by(|a, b| a.id == b.id);
    alerts.truncate(ALERTS_MAX);
    alerts
}

/// The worst comes first: by severity, and of one severity by what is at stake: what is lost, redundancy, service, space, and the rest.
pub fn order(alert: &Alert) -> (AlertSeverity, usize, &str) {
    const STAKES: [&[&str]; 4] = [
        &["pool.data_lost"],
        &["pool.unavailable", "pool.suspended", "pool.degraded", "pool.healing_blocked", "disk."],
        &["level.", "threshold."],
        &["pool.reservation_short", "pool.filling", "pool.full_soon", "project."],
    ];
    let is_at = |stake: &&[&str]| stake.iter().any(|prefix| alert.id.starts_with(prefix));
    let stake = STAKES.iter().position(is_at).unwrap_or(STAKES.len());
    (alert.severity, stake, &alert.id)
}

/// A pool that has lost something is in some other state as well.
fn state_beside_loss(pool: &Pool) -> PoolState {
    let is = |reason: &str| pool.conditions.iter().any(|condition| condition.reason == reason);
    match pool.status.state {
        PoolState::Damaged if is("Suspended") => PoolState::Suspended,
        PoolState::Damaged if is("Degraded") => PoolState::Degraded,
        state => state,
    }
}

/// What is wrong, in words.
struct Words<'a> {
    cause: String,
    impact: &'a str,
    action: &'a str,
    command: String,
}

struct Found {
    now: u64,
    alerts: Vec<Alert>,
}

impl Found {
    fn add(&mut self, what: &str, severity: AlertSeverity, resource: &str, name: &str, words: Words<'_>) {
        self.alerts.push(Alert {
            id: format!("{what}:{name}"),
            severity,
            since_unix_ms: self.now,
            object: AlertObject { resource: resource.into(), name: name.into() },
            cause: words.cause,
            impact: words.impact.into(),
            action: words.action.into(),
            command: Some(words.command).filter(|command| !command.is_empty()),
        });
    }

    fn pool(&mut self, pool: &Pool) {
        let name = &pool.name;
        let status = format!("forebay pool status {name}");
        self.damage(pool);
        match state_beside_loss(pool) {
            PoolState::Online | PoolState::Damaged => {}
            PoolState::Suspended => self.add(
                "pool.suspended",
                Critical,
                "pools",
                name,
                Words {
                    cause: format!(
                        "Pool {name} has stopped writing after a failure beyond what its layout can lose."
                    ),
                    impact: "Writes to its volumes fail; reads go on where copies are left.",
                    action: "Bring its disks back, then export the pool and import it again.",
                    command: status,
                },
            ),
            PoolState::Unavailable => self.unavailable(pool),
            PoolState::Degraded => self.degraded(pool, status),
        }
        if let Some(why) = pool.status.healing.as_ref().and_then(|healing| healing.blocked.as_ref()) {
            self.add("pool.healing_blocked", Warning, "pools", name, Words {
                cause: format!("Pool {name} cannot heal: {why}."),
                impact: "What a failed or leaving disk held is not rebuilt, and another failure costs more.",
                action: "Add a disk to the pool, or replace the one that failed or leaves.",
                command: format!("forebay pool status {name}"),
            });
        }
        self.space(pool);
        if pool.status.read_only {
            self.add(
                "pool.read_only",
                Info,
                "pools",
                name,
                Words {
                    cause: format!("Pool {name} was imported so that nothing is written to its disks."),
                    impact: "Its volumes can be read, and every change is refused.",
                    action: "Export it, and import it without --read-only when it is to be used.",
                    command: format!("forebay pool export {name}"),
                },
            );
        }
    }

    fn damage(&mut self, pool: &Pool) {
        let (name, damage) = (&pool.name, pool.status.damage);
        if damage.places == 0 {
            return;
        }
        let are = if damage.places == 1 { "place" } else { "places" };
        let (severity, what) =
            if damage.open_places > 0 { (Critical, "lost") } else { (Info, "lost, as is known") };
        self.add(
            "pool.data_lost",
            severity,
            "pools",
            name,
            Words {
                cause: format!("Pool {name} has {} {are} that no disk has right: their data is {what}.", damage.places),
                impact: "Reading what lies there fails until it is written anew.",
                action: "See which bytes of which volumes and snapshots these are, and restore them from a backup.",
                command: format!("forebay pool status {name} --errors"),
            },
        );
    }

    fn unavailable(&mut self, pool: &Pool) {
        let Some(failed) = pool.conditions.iter().find(|condition| condition.reason == "ImportFailed") else {
            return;
        };
        let name = &pool.name;
        self.add(
            "pool.unavailable",
            Critical,
            "pools",
            name,
            Words {
                cause: format!(
                    "Pool {name} could not be imported: {}.",
                    failed.message.trim_end_matches('.')
                ),
                impact: "Its volumes cannot be used.",
                action: "Bring its disks back, then import it.",
                command: format!("forebay pool import {name} DISK…"),
            },
        );
    }

    fn degraded(&mut self, pool: &Pool, command: String) {
        // What the group that is worst off may lose besides.
        let left = pool.status.groups.iter().map(|group| {
            let lost = group.disks.iter().filter(|disk| is_lost(disk)).count();
            tolerance(group.layout).saturating_sub(lost)
        });
        let left = left.min().unwrap_or_default();
        let (severity, impact) = match left {
            0 => (Critical, "Its data is there, but the loss of one more disk may lose some of it."),
            _ => {
                (Warning, "Its data is there, and protected against fewer failures than its layout promises.")
            }
        };
        let action = match pool.status.healing.is_some() {
            true => "Wait until it has healed by itself, then replace the disk that failed.",
            false => "Bring the disk back that is out, or replace it.",
        };
        let cause = format!("Pool {} is degraded: some of its disks are out.", pool.name);
        self.add("pool.degraded", severity, "pools", &pool.name, Words { cause, impact, action, command });
    }

    fn space(&mut self, pool: &Pool) {
        let (name, status) = (&pool.name, &pool.status);
        if status.state == PoolState::Unavailable {
            return;
        }
        if status.reserved_bytes > status.free_bytes {
            let short = show_size(status.reserved_bytes - status.free_bytes);
            self.add(
                "pool.reservation_short",
                Critical,
                "pools",
                name,
                Words {
                    cause: format!("Pool {name} has {short} less free than it holds for reserved volumes."),
                    impact: "Writes to reserved volumes may fail although space was promised to them.",
                    action: "Add disks, or delete volumes or snapshots.",
                    command: format!("forebay pool add {name} DISK…"),
                },
            );
        }
        let used_permille = u128::from(status.size_bytes.saturating_sub(status.free_bytes)) * 1000
            / u128::from(status.size_bytes.max(1));
        let percent = used_permille / 10;
        let reached = |threshold: &&u8| used_permille >= u128::from(**threshold) * 10;
        let thresholds = &pool.spec.threshold_percents;
        let command = format!("forebay pool status {name}");
        let impact = "When it is full, writes to thin volumes fail.";
        if thresholds.iter().any(|threshold| reached(&threshold)) {
            let is_last = thresholds.iter().max().is_some_and(|last| reached(&last));
            let severity = if is_last { Critical } else { Warning };
            let cause = format!("Pool {name} is {percent} % full.");
            let action = "Add disks, or delete volumes or snapshots that nobody needs.";
            self.add("pool.filling", severity, "pools", name, Words { cause, impact, action, command });
        } else if let Some(days) = status.full_in_days.filter(|days| *days <= FULL_DAYS) {
            let when = if days == 1 { "a day".to_string() } else { format!("{days} days") };
            let cause = format!("At the rate of late, pool {name} is full in {when}.");
            let action = "Find out what grows, and add disks in time.";
            self.add("pool.full_soon", Warning, "pools", name, Words { cause, impact, action, command });
        }
    }

    fn disk(&mut self, pool: &Pool, disk: &Disk, told: &[Told]) {
        let short = format!("{}/{}", pool.name, disk.status.number);
        let name = if disk.name.is_empty() { short.clone() } else { format!("{short} ({})", disk.name) };
        let replace = format!("forebay disk replace {short}");
        let mut add = |what: &str, severity, words| self.add(what, severity, "disks", &short, words);
        match disk.status.state {
            DiskState::Failed => add(
                "disk.failed",
                Warning,
                Words {
                    cause: format!("Disk {name} failed and was taken out."),
                    impact: "What was on it is read from the other disks of its group.",
                    action: "Replace it; after a loose cable, take it back with `disk online`.",
                    command: replace,
                },
            ),
            DiskState::Missing => add(
                "disk.missing",
                Warning,
                Words {
                    cause: format!("Disk {name} was not found when the pool was imported."),
                    impact: "What was on it is read from the other disks of its group.",
                    action: "Look for it and take it back, or replace it.",
                    command: format!("forebay disk online {short}"),
                },
            ),
            DiskState::Offline => add(
                "disk.offline",
                Info,
                Words {
                    cause: format!("Disk {name} was taken out of service by an administrator."),
                    impact: "It misses what is written, and its group can lose one disk less.",
                    action: "Take it back when the work on it is done.",
                    command: format!("forebay disk online {short}"),
                },
            ),
            DiskState::Empty => add(
                "disk.empty",
                Info,
                Words {
                    cause: format!(
                        "Disk {name} is out of service; nothing is on it that is not on others, too."
                    ),
                    impact: "The pool is whole, with less room or a smaller cache.",
                    action: "Replace it, or remove it from the pool.",
                    command: format!("forebay disk remove {short}"),
                },
            ),
            DiskState::Online | DiskState::Leaving | DiskState::Spare | DiskState::Cache => {
                let status = &disk.status;
                let errors = status.errors_read_recent + status.errors_checksum_recent;
                if errors >= ERRORS_RECENT {
                    let cause = format!(
                        "Disk {name} could not read, or held wrong data in, {errors} places of late."
                    );
                    let words = match disk.status.state {
                        DiskState::Cache => Words {
                            cause,
                            impact: "It holds copies only: the data was read from the pool's other disks.",
                            action: "If it goes on, remove it from the pool, and add another.",
                            command: format!("forebay disk remove {short}"),
                        },
                        _ => Words {
                            cause,
                            impact: "They were put right from the other disks; a disk that goes on so is taken out.",
                            action: "Scrub the pool, and replace the disk if it goes on.",
                            command: format!("forebay pool scrub {}", pool.name),
                        },
                    };
                    add("disk.errors", Warning, words);
                }
                if let Some(last) = told.iter().rfind(|told| told.disk == short) {
                    let (what, severity) =
                        if last.hangs { ("disk.hung", Critical) } else { ("disk.slow", Warning) };
                    add(
                        what,
                        severity,
                        Words {
                            cause: sentence(&last.message),
                            impact: "Requests that need it wait, and its whole group is as slow as it.",
                            action: "Check its cable and controller; replace the disk if it stays so.",
                            command: replace,
                        },
                    );
                    self.alerts.last_mut().expect("it was added just now").since_unix_ms = last.at_unix_ms;
                }
            }
        }
    }

    /// Of disks in service; the others are to be replaced or removed already.
    fn health(&mut self, pool: &Pool, disk: &Disk, known: &[PoolDiskHealth]) {
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
                        "Choose a free disk, and replace it while it works: `forebay disk replace {short} DISK`."
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
                let cause = format!("Disk {name} is not well.{why}");
                let action = "Watch it: check its cable and its cooling, and have another disk ready.";
                let command = "forebay disk list --machine".into();
                self.add("disk.health", Info, "disks", &short, Words { cause, impact, action, command });
            }
            DiskHealthState::Good | DiskHealthState::Unknown => {}
        }
    }

    fn volumes(&mut self, volumes: &[Volume]) {
        for volume in volumes {
            let name = &volume.name;
            for condition in volume.conditions.iter().filter(|condition| !condition.status) {
                match condition.reason.as_str() {
                    "BestEffort" => self.add("level.best_effort", Warning, "volumes", name, Words {
                        cause: format!("The pool has not enough for the floor of level {} of volume {name}.", volume.spec.level),
                        impact: "The volume has its share of the pool; its floor and its latency goal do not count.",
                        action: "Add disks, or lower this level or those of other volumes.",
                        command: format!("forebay volume set {name} --level NAME"),
                    }),
                    "Unmeasured" => {
                        let pool = &volume.status.pool;
                        self.add("pool.unmeasured", Info, "pools", pool, Words {
                            cause: format!("Volumes of pool {pool} are promised floors, and nobody has measured what it can do."),
                            impact: "Their floors cannot be kept, because nobody knows how much there is to promise.",
                            action: "Measure the pool when it has little to do; it takes some seconds.",
                            command: format!("forebay pool calibrate {pool}"),
                        });
                    }
                    "LevelUnknown" => self.add("level.unknown", Info, "volumes", name, Words {
                        cause: format!("Volume {name} has a service level that this appliance does not know."),
                        impact: "It is served as if it had none.",
                        action: "Give it a level of this appliance, or none.",
                        command: format!("forebay volume set {name} --level NAME"),
                    }),
                    _ => {}
                }
            }
        }
    }

    fn violation(&mut self, violation: &Violation) {
        let Violation { volume, level, seconds, of, why } = violation;
        self.add("level.violated", Warning, "volumes", volume, Words {
            cause: format!("Volume {volume} had less than its level {level} promises in {seconds} of its last {of} busy seconds: {why}."),
            impact: "Whoever uses it waits longer than was promised.",
            action: "Look who has the pool's time, and give him a ceiling or this volume more room.",
            command: "forebay top qos".into(),
        });
    }

    fn crossing(&mut self, crossing: &Crossing) {
        let Crossing { name, severity, expression, cause } = crossing;
        self.add(
            "threshold.crossed",
            *severity,
            "thresholds",
            name,
            Words {
                cause: format!("{cause}."),
                impact: "Somebody asked to be told of this.",
                action: "Look what it was in the last hour; if it is as it should be, change the threshold.",
                command: format!("forebay stat query '{expression}' --from -3600"),
            },
        );
    }

    fn quota(&mut self, quota: &Quota) {
        let Quota { project, used, quota } = quota;
        if u128::from(*used) * 10 < u128::from(*quota) * 9 {
            return;
        }
        let is_over = used >= quota;
        let percent = u128::from(*used) * 100 / u128::from((*quota).max(1));
        let (severity, impact) = match is_over {
            true => (Critical, "Writes to its volumes fail."),
            false => (Warning, "When it is used up, writes to its volumes fail."),
        };
        self.add(
            "project.quota",
            severity,
            "projects",
            project,
            Words {
                cause: format!("Project {project} has used {percent} % of its quota."),
                impact,
                action: "Delete snapshots or volumes of it (and purge the trash), or raise the quota.",
                command: format!("forebay project show {project}"),
            },
        );
    }

    fn exposed(&mut self, exposed: &Exposed) {
        let Exposed { portals, hosts } = exposed;
        if portals.is_empty() {
            return;
        }
        for host in hosts {
            self.add(
                "host.without_secret",
                Warning,
                "hosts",
                host,
                Words {
                    cause: format!(
                        "Host {host} is let in by its initiator name alone, and iSCSI listens on {}.",
                        portals.join(", ")
                    ),
                    impact: "Every machine that reaches this address and knows the name can read and overwrite its volumes.",
                    action: "Give the host a CHAP secret, here and in its initiator, or listen on loopback only.",
                    command: format!("forebay host set {host} --chap USER"),
                },
            );
        }
    }

    fn certificate(&mut self, ends: Option<u64>) {
        let Some(ends) = ends.filter(|ends| *ends < self.now + CERTIFICATE_DAYS * DAY_MS) else { return };
        let days = ends.saturating_sub(self.now) / DAY_MS;
        let (severity, cause) = match ends > self.now {
            true => (Warning, format!("The certificate of this interface ends in {days} days.")),
            false => (Critical, "The certificate of this interface has ended.".to_string()),
        };
        self.add("server.certificate", severity, "server", "certificate", Words {
            cause,
            impact: "Browsers and programs refuse to connect when it has ended.",
            action: "Put a new one into the files that --http-cert and --http-key name; the daemon reads them at its start.",
            command: String::new(),
        });
    }
}

impl Found {
    fn directory(&mut self, trouble: Option<&Trouble>) {
        let Some(Trouble { path, error, remedy }) = trouble else { return };
        self.add("server.directory", Critical, "server", "directory", Words {
            cause: format!("The daemon cannot write its data directory: {}: {error}.", path.display()),
            impact: "Volumes are served, but the audit log, events and statistics are not kept, and users, tokens, hosts and pools cannot be changed.",
            action: remedy,
            command: String::new(),
        });
    }
}

fn is_lost(disk: &Disk) -> bool {
    matches!(disk.status.state, DiskState::Failed | DiskState::Missing | DiskState::Offline)
}

/// How many disks a group can lose.
fn tolerance(layout: Layout) -> usize {
    match layout {
        Layout::Single => 0,
        Layout::Mirror => 1,
        Layout::Mirror3 => 2,
        Layout::Parity { parity, .. } => parity.into(),
    }
}

/// Capital and full stop.
fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

#[cfg(test)]
#[path = "alerts_tests.rs"]
mod tests;
