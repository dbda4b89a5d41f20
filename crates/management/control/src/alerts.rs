//! What is wrong now, told from the state of things: a pure function, so that nothing can be forgotten or stay behind.
//!
//! An alert has a cause, an impact and an action, a plain sentence each. Its id is what is wrong and with what, so it is the same from look to look; only since
//! when is remembered ([`Since`]), and that is forgotten with the alert. What is told by events alone (a disk that is slow, but may not be taken
//! out) counts as long as it was told of late.

mod disks;

use crate::directory::Trouble;
use forebay_api::AlertSeverity::{self, Critical, Info, Warning};
use forebay_api::{
    Alert, AlertObject, Disk, DiskHealth, DiskState, Group, Layout, Pool, PoolState, Volume, quoted,
    show_size,
};
use std::collections::{BTreeMap, BTreeSet};

/// What an event told is still so.
pub const TOLD_MS: u64 = 15 * 60 * 1000;
/// Refused logins of one initiator, within [`TOLD_MS`], that are told of.
const LOGINS_REFUSED: usize = 3;
/// A certificate that the daemon did not create has to be replaced by hand.
const CERTIFICATE_DAYS: u64 = 21;
const DAY_MS: u64 = 24 * 3600 * 1000;
/// A 64th of a pool, and more of a small one, is kept for nodes and deletion: where that begins, writes fail.
const FULL_PERCENT: u128 = 98;
const FREE_SPACE: &str = "Add disks, delete snapshots that are no longer needed, or delete volumes permanently. Volumes in the trash use space \
                          until they are purged: `forebay volume purge VOLUME`, or `forebay volume delete VOLUME --purge` (with its snapshots: \
                          `--with-snapshots`).";
/// A week to buy disks.
const FULL_DAYS: u64 = 7;

/// A volume that does not have what it was promised.
pub struct Violation {
    pub pool: String,
    pub volume: String,
    pub level: String,
    /// In the words of the event.
    pub why: String,
    pub remedy: String,
}

/// A pool that refused a client's write of late, for want of space.
pub struct Refusal {
    pub pool: String,
    /// Of the last one.
    pub message: String,
}

/// What an event says that happened to a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DiskEvent {
    Slow,
    Hung,
    /// It was taken out of service.
    Failed,
}

/// An event about a disk.
pub struct Told {
    /// `POOL/NUMBER`.
    pub disk: String,
    pub what: DiskEvent,
    pub message: String,
    pub at_unix_ms: u64,
}

/// An event about an iSCSI login that was refused.
pub struct LoginRefused {
    /// The initiator's name, or its address where it told none.
    pub initiator: String,
    pub message: String,
    /// There were so many that those that follow are answered slowly.
    pub is_slowed: bool,
}

/// An event about a deletion that cannot go on, since the last import of its pool.
pub struct DeletionStuck {
    pub pool: String,
    pub message: String,
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

/// A channel whose last attempt to deliver failed.
pub struct FailingChannel {
    pub name: String,
    pub error: String,
    pub remedy: String,
    /// Notices that wait.
    pub waiting: u64,
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
    pub channels: Vec<FailingChannel>,
    pub violations: Vec<Violation>,
    pub told: Vec<Told>,
    pub logins_refused: Vec<LoginRefused>,
    pub deletions_stuck: Vec<DeletionStuck>,
    pub refusals: Vec<Refusal>,
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
        for group in &pool.status.groups {
            for disk in &group.disks {
                found.disk(pool, group, disk, &view.told);
                found.health(pool, disk, &view.health);
            }
        }
    }
    found.volumes(&view.volumes);
    view.violations.iter().for_each(|violation| found.violation(violation));
    view.refusals.iter().for_each(|refusal| found.refusal(refusal));
    view.quotas.iter().for_each(|quota| found.quota(quota));
    view.crossings.iter().for_each(|crossing| found.crossing(crossing));
    view.channels.iter().for_each(|channel| found.channel(channel));
    found.deletions(&view.deletions_stuck);
    found.logins(&view.logins_refused);
    found.exposed(&view.exposed);
    found.certificate(view.certificate_ends_unix_ms);
    found.directory(view.directory.as_ref());
    let mut alerts = found.alerts;
    alerts.sort_by(|a, b| order(a).cmp(&order(b)));
    alerts.dedup_by(|a, b| a.id == b.id);
    alerts.truncate(forebay_notify::ALERTS_MAX);
    alerts
}

/// The worst comes first: by severity, and of one severity by what is at stake: what is lost, redundancy, service, space, and the rest.
pub fn order(alert: &Alert) -> (AlertSeverity, usize, &str) {
    const STAKES: [&[&str]; 4] = [
        &["pool.data_lost"],
        &["pool.unavailable", "pool.suspended", "pool.degraded", "pool.rebuild_blocked", "disk."],
        &["level.", "threshold."],
        &["pool.no_space", "pool.reservation_short", "pool.filling", "pool.full_soon", "project."],
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
                        "Pool {name} is suspended: it stopped writing after a failure beyond its redundancy."
                    ),
                    impact: "Writes to its volumes fail. Reads continue where a copy is left.",
                    action: "Repair its disks: check cable and controller, and for a file the space on its file system. Then export the pool, which \
                             disconnects its clients, and import it again (`forebay pool import POOL DISK…`).",
                    command: format!("forebay pool export {name}"),
                },
            ),
            PoolState::Unavailable => self.unavailable(pool),
            PoolState::Degraded => self.degraded(pool, status),
        }
        if let Some(why) = pool.status.rebuild.as_ref().and_then(|healing| healing.blocked.as_ref()) {
            self.add("pool.rebuild_blocked", Warning, "pools", name, Words {
                cause: format!("In pool {name}, {why}."),
                impact: "Data of a failed disk is not rebuilt, and data of a leaving disk stays on it. With a failed disk, the pool survives fewer \
                         failures.",
                action: "Add a disk to the pool, or replace the failed or leaving disk.",
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
                    cause: format!("Pool {name} is imported read-only: nothing is written to its disks."),
                    impact: "Its volumes can be read. Every change is refused.",
                    action: "To write to it, export it and import it without --read-only.",
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
        let are = if damage.places == 1 { "block" } else { "blocks" };
        let (severity, what) =
            if damage.open_places > 0 { (Critical, "lost") } else { (Info, "lost (accepted)") };
        self.add(
            "pool.data_lost",
            severity,
            "pools",
            name,
            Words {
                cause: format!("Pool {name} has {} unrecoverable {are}: data is {what}.", damage.places),
                impact: "Reading them fails until they are overwritten.",
                action: "List the affected bytes of volumes and snapshots, and restore them from a backup.",
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
                action: "Fix the cause, then import the pool from all its disks.",
                command: import_command(pool),
            },
        );
    }

    fn degraded(&mut self, pool: &Pool, command: String) {
        // What the group that is worst off may lose besides.
        let left = pool.status.groups.iter().map(|group| tolerance(group.layout).saturating_sub(lost(group)));
        let left = left.min().unwrap_or_default();
        let (severity, impact) = match left {
            0 => (Critical, "All data is available, but one more failed disk may lose some of it."),
            _ => (
                Warning,
                "All data is available, but protected against fewer failures than its layout provides.",
            ),
        };
        let healing = pool.status.rebuild.as_ref();
        let action = match healing.map(|healing| healing.blocked.is_some()) {
            Some(false) => {
                "Wait until the data of the failed disk is rebuilt on the others. Then replace the failed disk."
            }
            // What is in the way has an alert of its own.
            Some(true) => {
                "Replace the disk that is out of service, bring it back, or add a disk. Then the rebuild continues."
            }
            None => "Bring back the disk that is out of service, or replace it.",
        };
        let cause =
            format!("Pool {} is degraded: some of its disks are failed, missing or offline.", pool.name);
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
                    cause: format!(
                        "Pool {name} has {short} less free space than is reserved for its volumes."
                    ),
                    impact: "Writes to volumes with reserved space may fail.",
                    action: FREE_SPACE,
                    command: format!("forebay pool add {name} DISK…"),
                },
            );
        }
        // What is held for reserved volumes is not there for thin ones.
        let available = status.free_bytes.saturating_sub(status.reserved_bytes);
        let taken_permille = u128::from(status.size_bytes.saturating_sub(available)) * 1000
            / u128::from(status.size_bytes.max(1));
        let percent = taken_permille / 10;
        let reached = |threshold: &&u8| taken_permille >= u128::from(**threshold) * 10;
        let thresholds = &pool.spec.threshold_percents;
        let command = format!("forebay pool status {name}");
        let impact = match percent >= FULL_PERCENT {
            true => {
                "Writes to thin volumes fail, or soon will: the last space of a pool is kept for deletions."
            }
            false => "When it is full, writes to thin volumes fail.",
        };
        if thresholds.iter().any(|threshold| reached(&threshold)) {
            let is_last = thresholds.iter().max().is_some_and(|last| reached(&last));
            let severity = if is_last { Critical } else { Warning };
            let cause = match status.reserved_bytes {
                0 => format!("Pool {name} is {percent} % full."),
                held => format!(
                    "Pool {name} is {percent} % full, including {} reserved for volumes.",
                    show_size(held)
                ),
            };
            self.add(
                "pool.filling",
                severity,
                "pools",
                name,
                Words { cause, impact, action: FREE_SPACE, command },
            );
        } else if let Some(days) = status.full_in_days.filter(|days| *days <= FULL_DAYS) {
            let when = if days == 1 { "1 day".to_string() } else { format!("{days} days") };
            let cause = format!("At the current rate, pool {name} is full in {when}.");
            let action = "Find out which volumes grow, and add disks in time.";
            self.add("pool.full_soon", Warning, "pools", name, Words { cause, impact, action, command });
        }
    }

    fn volumes(&mut self, volumes: &[Volume]) {
        for volume in volumes {
            let name = &volume.name;
            for condition in volume.conditions.iter().filter(|condition| !condition.status) {
                match condition.reason.as_str() {
                    "BestEffort" => self.add("level.best_effort", Info, "volumes", name, Words {
                        cause: format!("Volume {name} is best effort: the performance left in the pool is below the minimum of level {}.", volume.spec.level),
                        impact: "The volume gets its share of the pool, without a guaranteed minimum or latency goal.",
                        action: "Add disks, or lower this level or the levels of other volumes.",
                        command: "forebay level list".into(),
                    }),
                    "CannotBeMet" => {
                        let pool = &volume.status.pool;
                        self.add("level.cannot_be_met", Warning, "volumes", name, Words {
                            cause: format!(
                                "Pool {pool} cannot meet level {} of volume {name}: disks are out of service or slower than measured.",
                                volume.spec.level
                            ),
                            impact: "The volume gets its share of the pool, without guarantees until the disks recover.",
                            action: "Bring the disks back or replace them. If they cannot become faster, measure the pool again.",
                            command: format!("forebay pool status {pool}"),
                        });
                    }
                    "Unmeasured" => {
                        let pool = &volume.status.pool;
                        self.add("pool.unmeasured", Info, "pools", pool, Words {
                            cause: format!("Volumes of pool {pool} have a minimum, but the pool has not been measured."),
                            impact: "Their minimums are not guaranteed, because the performance of the pool is unknown.",
                            action: "Measure the pool at a quiet time. This takes some seconds.",
                            command: format!("forebay pool calibrate {pool}"),
                        });
                    }
                    "LevelUnknown" => self.add("level.unknown", Info, "volumes", name, Words {
                        cause: format!("Volume {name} has a service level that this appliance does not have."),
                        impact: "The volume is served without a service level.",
                        action: "Give the volume a level of this appliance, or none.",
                        command: "forebay level list".into(),
                    }),
                    _ => {}
                }
            }
        }
    }

    fn refusal(&mut self, refusal: &Refusal) {
        let Refusal { pool, message } = refusal;
        let what = message.split(':').next().unwrap_or_default();
        self.add(
            "pool.no_space",
            Critical,
            "pools",
            pool,
            Words {
                cause: format!("Pool {pool} has no space left: {what} within the last 15 minutes."),
                impact: "Writes to thin volumes fail. Guest systems stop, or lose the data of these writes.",
                action: FREE_SPACE,
                command: format!("forebay pool add {pool} DISK…"),
            },
        );
    }

    fn violation(&mut self, violation: &Violation) {
        let Violation { pool, volume, level, why, remedy } = violation;
        self.add(
            "level.missed",
            Warning,
            "volumes",
            volume,
            Words {
                cause: format!("Volume {volume} misses its level {level}: {why}. Remedy: {remedy}."),
                impact: "Its clients wait longer than the level guarantees.",
                action: "See which volumes use the disks of the pool.",
                command: format!("forebay top qos {pool}"),
            },
        );
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
                impact: "The statistic is beyond the limit that was set for it.",
                action: "Look at its values of the last hour. If they are normal, change the threshold.",
                command: format!("forebay stat query {} --from -3600", quoted(expression)),
            },
        );
    }

    fn channel(&mut self, channel: &FailingChannel) {
        let FailingChannel { name, error, remedy, waiting } = channel;
        let wait = if *waiting == 1 { "1 notice waits".into() } else { format!("{waiting} notices wait") };
        self.add(
            "channel.failing",
            Warning,
            "channels",
            name,
            Words {
                cause: format!("Channel {name} does not deliver: {}. {wait}.", error.trim_end_matches('.')),
                impact: "Its recipients get no alerts.",
                action: remedy,
                command: format!("forebay channel show {}", quoted(name)),
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
                action: "Delete snapshots or volumes of the project (and purge the trash), or raise the quota.",
                command: format!("forebay project show {project}"),
            },
        );
    }

    fn deletions(&mut self, stuck: &[DeletionStuck]) {
        for DeletionStuck { pool, message } in stuck {
            self.add(
                "pool.deletion_stuck",
                Warning,
                "pools",
                pool,
                Words {
                    cause: sentence(message),
                    impact: "The remainder of the deleted data keeps its space.",
                    action: "Bring back disks that are out of service. Then export the pool and import it again, which retries the deletion.",
                    command: format!("forebay pool status {pool}"),
                },
            );
        }
    }

    /// One that mistyped a secret once is no news.
    fn logins(&mut self, refused: &[LoginRefused]) {
        let mut initiators: BTreeMap<&str, Vec<&LoginRefused>> = BTreeMap::new();
        for one in refused {
            initiators.entry(&one.initiator).or_default().push(one);
        }
        for (initiator, refused) in initiators {
            let is_slowed = refused.iter().any(|one| one.is_slowed);
            let why = refused.iter().rfind(|one| !one.is_slowed);
            if refused.len() < LOGINS_REFUSED && !is_slowed {
                continue;
            }
            let why = why.map_or(String::new(), |one| {
                format!(" The last reason: {}.", one.message.trim_end_matches('.'))
            });
            self.add(
                "host.logins_refused",
                Warning,
                "hosts",
                initiator,
                Words {
                    cause: format!("Logins of {initiator} over iSCSI are refused repeatedly.{why}"),
                    impact: "If it is one of your hosts, it cannot use its volumes. Otherwise an unknown machine tries names or secrets.",
                    action: "Compare the name, CHAP user and CHAP secret of the initiator with those of its host here.",
                    command: "forebay host list".into(),
                },
            );
        }
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
                        "Host {host} logs in with its initiator name alone, without a secret, and iSCSI listens on {}.",
                        portals.join(", ")
                    ),
                    impact: "Any machine that reaches this address and knows the name can read and overwrite its volumes.",
                    action: "Give the host a CHAP secret, here and in its initiator, or listen on loopback only.",
                    command: format!("forebay host set {} --chap USER", quoted(host)),
                },
            );
        }
    }

    fn certificate(&mut self, ends: Option<u64>) {
        let Some(ends) = ends.filter(|ends| *ends < self.now + CERTIFICATE_DAYS * DAY_MS) else { return };
        let days = ends.saturating_sub(self.now) / DAY_MS;
        let (severity, cause) = match ends > self.now {
            true => (Warning, format!("The HTTPS certificate expires in {days} days.")),
            false => (Critical, "The HTTPS certificate has expired.".to_string()),
        };
        self.add("server.certificate", severity, "server", "certificate", Words {
            cause,
            impact: "Browsers and programs refuse to connect once it has expired.",
            action: "Put a new certificate into the files of --http-cert and --http-key, then restart the daemon.",
            command: String::new(),
        });
    }
}

impl Found {
    fn directory(&mut self, trouble: Option<&Trouble>) {
        let Some(Trouble { path, error, remedy }) = trouble else { return };
        self.add("server.directory", Critical, "server", "directory", Words {
            cause: format!("The daemon cannot write to its data directory: {}: {error}.", path.display()),
            impact: "Volumes are still served. The audit log, events and statistics are not kept. Users, tokens, hosts and pools cannot be changed.",
            action: remedy,
            command: String::new(),
        });
    }
}

fn is_lost(disk: &Disk) -> bool {
    matches!(disk.status.state, DiskState::Failed | DiskState::Missing | DiskState::Offline)
}

/// How many disks of a group are out; one that came back and failed again is listed under each of its numbers.
fn lost(group: &Group) -> usize {
    let lost = group.disks.iter().filter(|disk| is_lost(disk));
    lost.map(|disk| disk.status.joined_as.unwrap_or(disk.status.number)).collect::<BTreeSet<_>>().len()
}

/// How a pool is imported from where its disks were.
/// As a shell takes them.
pub fn words(paths: &[String]) -> String {
    paths.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(" ")
}

fn import_command(pool: &Pool) -> String {
    let disks = if pool.spec.disks.is_empty() { "DISK…".to_string() } else { words(&pool.spec.disks) };
    format!("forebay pool import {} {disks}", pool.name)
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
