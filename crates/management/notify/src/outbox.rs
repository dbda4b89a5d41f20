//! The queue of one channel, as a machine without I/O: notices in, deliveries out, time an argument.
//!
//! What is queued is not a list of messages but, for each alert, what happened to it since the channel last heard of it ([`Change`]): a later change of an
//! alert that still waits is merged into it. So an alert that flaps costs one place, however often it does, and nothing is lost by merging but the times in
//! between. Three things make a change wait: the alert was told too often lately ([`ALERT_NOTICES_MAX`]), it is quiet ([`QuietHours`]), or the channel fails or
//! is at its rate ([`Limits`]). When more waits than may be sent one by one, or when quiet hours end, it goes out as one summary.
//!
//! One delivery at a time. It is repeated under its identifier until it succeeds, is refused (then its alerts wait for [`REFUSED_REST`]), or has been tried [`ATTEMPTS_MAX`] times while
//! others wait: then its content goes back to the queue, so that one message that a receiver cannot digest does not hold up the rest.
//!
//! Memory is bounded by [`PENDING_MAX`] and by the length of texts ([`Change::new`]). Whatever is lost is counted and told with the next delivery.

use crate::channel::Channel;
use crate::failure::{Failure, Retry};
use crate::notice::{Change, Content, Message, Standing, Tally};
use crate::quiet;
use crate::rate::{Bucket, Limits, backoff, mix};
use forebay_api::{AlertSeverity, AuditEntry, CriticalAlerts, NoticeKind, QuietHours};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Alerts and audit lines that wait. With texts of at most 256 and 1024 bytes an alert takes 5 KiB, so a channel takes 2.5 MiB at most.
pub const PENDING_MAX: usize = 512;
/// Alerts of one summary: what a person reads, and 250 KiB of JSON at most.
pub const SUMMARY_MAX: usize = 50;
/// Audit lines of one delivery, over one connection.
pub const AUDIT_BATCH_MAX: usize = 128;
/// Raised, cleared, raised, cleared: what is told of one alert at once within [`ALERT_WINDOW`]; then it flaps, and is told once a window.
pub const ALERT_NOTICES_MAX: u32 = 4;
pub const ALERT_WINDOW: Duration = Duration::from_secs(10 * 60);
/// Alerts whose notices are counted: more than stand at one time on a large appliance.
const TOLD_MAX: usize = 4096;
/// Attempts before a delivery's content goes back to the queue, if others wait: 5, 10, 20, 40 and 80 s, so after two and a half minutes.
pub const ATTEMPTS_MAX: u32 = 5;
/// What could not be delivered for so long is given up: a long weekend.
pub const GIVE_UP: Duration = Duration::from_secs(96 * 3600);
/// Until an alert is told again that the receiver refused: many a refusal is a proxy's, or of settings that are about to be mended.
const REFUSED_REST: Duration = Duration::from_secs(15 * 60);
/// What a receiver may ask for with Retry-After.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// The host's clock may be set: what waits for a time of day looks again.
const CLOCK_LOOK: Duration = Duration::from_secs(60);

/// A moment on both clocks: the one that durations are measured with, and the one on the wall.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub at: Instant,
    pub unix_ms: u64,
}

/// What of a channel's settings the queue needs.
#[derive(Clone, Debug)]
pub struct Policy {
    pub severity_min: AlertSeverity,
    pub kinds: BTreeSet<NoticeKind>,
    pub heartbeat: Duration,
    pub quiet_hours: Option<QuietHours>,
    pub limits: Limits,
}

impl Policy {
    pub fn of(channel: &Channel) -> Policy {
        let spec = &channel.spec;
        Policy {
            severity_min: spec.severity_min,
            kinds: spec.kinds.clone(),
            heartbeat: Duration::from_secs(u64::from(spec.heartbeat_hours.max(1)) * 3600),
            quiet_hours: spec.quiet_hours.clone(),
            limits: Limits::of(&spec.delivery),
        }
    }

    fn quiet_until(&self, now: Now) -> Option<u64> {
        self.quiet_hours.as_ref().and_then(|quiet| quiet::end_unix_ms(quiet, now.unix_ms))
    }

    fn passes_quiet_hours(&self, severity: AlertSeverity) -> bool {
        let hold = self.quiet_hours.as_ref().is_some_and(|quiet| quiet.critical == CriticalAlerts::HoldBack);
        severity == AlertSeverity::Critical && !hold
    }
}

/// What the channel's task does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    Deliver(Message),
    /// Nothing until then, or until something is pushed.
    Wait(Option<Instant>),
}

#[derive(Debug)]
enum What {
    Alert(Change),
    Audit(AuditEntry),
}

#[derive(Debug)]
struct Entry {
    what: What,
    /// When it was put into the queue, and when its first delivery was tried.
    since: Instant,
    tried: Option<Instant>,
    /// An alert that flaps waits for the end of its window.
    not_before: Instant,
    /// It came in quiet hours and was held back.
    held: bool,
    /// The receiver has refused it, and it waits for [`REFUSED_REST`], or for other settings, or for a receiver that takes something again.
    refused: bool,
}

impl Entry {
    /// Whether it is given up.
    fn is_stale(&self, now: Instant) -> bool {
        self.tried.is_some_and(|at| now.saturating_duration_since(at) > GIVE_UP)
    }

    /// The order in which entries go when there is no room: what can be read elsewhere first, critical alerts last.
    fn rank(&self) -> u8 {
        match &self.what {
            What::Audit(_) => 0,
            What::Alert(change) if change.alert.severity == AlertSeverity::Critical => 2,
            What::Alert(_) => 1,
        }
    }
}

/// How often an alert was told since `since`.
#[derive(Debug)]
struct Told {
    since: Instant,
    count: u32,
    severity: AlertSeverity,
}

#[derive(Debug)]
struct Flight {
    message: Message,
    entries: Vec<Entry>,
    attempts: u32,
}

/// The queue of a channel.
#[derive(Debug)]
pub struct Outbox {
    policy: Policy,
    /// Makes identifiers and jitter; drawn at random by the caller.
    seed: u64,
    issued: u64,
    pending: VecDeque<Entry>,
    told: HashMap<String, Told>,
    bucket: Bucket,
    flight: Option<Flight>,
    failures: u32,
    retry_at: Option<Instant>,
    heartbeat_at: Instant,
    /// Lost since the last delivery, and since the beginning.
    lost: u64,
    lost_total: u64,
}

impl Outbox {
    pub fn new(policy: Policy, seed: u64, now: Now) -> Outbox {
        let bucket = Bucket::full(policy.limits, now.at);
        Outbox {
            policy,
            seed,
            issued: 0,
            pending: VecDeque::new(),
            told: HashMap::new(),
            bucket,
            flight: None,
            failures: 0,
            retry_at: None,
            // The first tells that the appliance started.
            heartbeat_at: now.at,
            lost: 0,
            lost_total: 0,
        }
    }

    /// Other settings for the same queue. What failed is tried again at once: the settings may be the cure.
    pub fn set_policy(&mut self, policy: Policy, now: Now) {
        self.policy = policy;
        self.try_refused(now.at);
        self.bucket.tokens = self.bucket.tokens.min(self.policy.limits.burst);
        (self.failures, self.retry_at) = (0, None);
    }

    /// What was refused may be taken now.
    fn try_refused(&mut self, now: Instant) {
        for entry in self.pending.iter_mut().filter(|entry| entry.refused) {
            (entry.since, entry.not_before, entry.refused) = (now, now, false);
        }
    }

    /// An alert began, became more severe, or is over.
    pub fn push_alert(&mut self, change: Change, now: Now) {
        if change.alert.severity > self.policy.severity_min {
            return;
        }
        let quiet = self.policy.quiet_until(now).is_some();
        let held = quiet && !self.policy.passes_quiet_hours(change.alert.severity);
        if let Some(entry) = find(&mut self.pending, &change.alert.id) {
            let What::Alert(waiting) = &mut entry.what else { return };
            let escalates =
                change.standing == Standing::Standing && change.alert.severity < waiting.alert.severity;
            waiting.merge(change);
            if escalates {
                (entry.not_before, entry.held) = (now.at, held);
            }
            return;
        }
        let kind = match change.standing {
            Standing::Standing => NoticeKind::Raised,
            Standing::Cleared => NoticeKind::Cleared,
        };
        if !self.policy.kinds.contains(&kind) {
            return;
        }
        let not_before = self.count_notice(&change, now.at);
        let what = What::Alert(change);
        self.push(Entry { what, since: now.at, tried: None, not_before, held, refused: false });
    }

    /// A line of the audit log, which quiet hours do not concern: a log without gaps is the point of it.
    pub fn push_audit(&mut self, entry: AuditEntry, now: Now) {
        if self.policy.kinds.contains(&NoticeKind::Audit) {
            self.push(Entry {
                what: What::Audit(entry),
                since: now.at,
                tried: None,
                not_before: now.at,
                held: false,
                refused: false,
            });
        }
    }

    /// Counts a notice of an alert, and returns when it may go out.
    fn count_notice(&mut self, change: &Change, now: Instant) -> Instant {
        let recent = |told: &Told| now.saturating_duration_since(told.since) < ALERT_WINDOW;
        if self.told.len() >= TOLD_MAX && !self.told.contains_key(&change.alert.id) {
            self.told.retain(|_, told| recent(told));
            let oldest = self.told.iter().min_by_key(|(_, told)| told.since).map(|(id, _)| id.clone());
            if let Some(id) = oldest.filter(|_| self.told.len() >= TOLD_MAX) {
                self.told.remove(&id);
            }
        }
        let severity = change.alert.severity;
        let fresh = || Told { since: now, count: 0, severity };
        let told = self.told.entry(change.alert.id.clone()).or_insert_with(fresh);
        if !recent(told) {
            *told = fresh();
        }
        told.count = told.count.saturating_add(1);
        let escalates = severity < told.severity;
        told.severity = told.severity.min(severity);
        if told.count <= ALERT_NOTICES_MAX || escalates { now } else { told.since + ALERT_WINDOW }
    }

    fn push(&mut self, entry: Entry) {
        self.pending.push_back(entry);
        self.shed();
    }

    /// Makes room: the oldest of the least important goes.
    fn shed(&mut self) {
        while self.pending.len() > PENDING_MAX {
            let lowest = self.pending.iter().map(Entry::rank).min().unwrap_or_default();
            let Some(at) = self.pending.iter().position(|entry| entry.rank() == lowest) else { return };
            self.pending.remove(at);
            self.lose(1);
        }
    }

    fn lose(&mut self, count: usize) {
        self.lost += count as u64;
        self.lost_total += count as u64;
    }

    /// Notices that wait or are being delivered.
    pub fn waiting(&self) -> usize {
        self.pending.len() + self.flight.as_ref().map_or(0, |flight| flight.entries.len())
    }

    /// Notices lost since the beginning: refused, given up, or without room.
    pub fn lost_total(&self) -> u64 {
        self.lost_total
    }

    /// When the next attempt is made after a failure.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// What to do now; without a tally there is no heartbeat yet. A delivery has to be followed by [`Outbox::done`]; until then it is what this answers.
    pub fn next(&mut self, tally: Option<Tally>, now: Now) -> Next {
        if let Some(at) = self.retry_at.filter(|at| *at > now.at) {
            return Next::Wait(Some(at));
        }
        self.put_back(now.at);
        if let Some(flight) = &self.flight {
            return Next::Deliver(flight.message.clone());
        }
        let quiet_until = self.policy.quiet_until(now);
        self.bucket.refill(self.policy.limits, now.at);
        let mut wake: Option<Instant> = None;
        let mut wake_at = |at: Instant| wake = Some(wake.map_or(at, |wake| wake.min(at)));
        if let Some(end) = quiet_until
            && (!self.pending.is_empty() || self.policy.kinds.contains(&NoticeKind::Heartbeat))
        {
            wake_at(now.at + Duration::from_millis(end.saturating_sub(now.unix_ms)).min(CLOCK_LOOK));
        }
        let mut alerts = Vec::new();
        let mut audit = Vec::new();
        for (at, entry) in self.pending.iter().enumerate() {
            match &entry.what {
                What::Audit(_) => audit.push(at),
                What::Alert(_) if entry.not_before > now.at => wake_at(entry.not_before),
                What::Alert(change)
                    if quiet_until.is_some() && !self.policy.passes_quiet_hours(change.alert.severity) => {}
                What::Alert(change) => alerts.push((change.alert.severity, at)),
            }
        }
        if !alerts.is_empty() {
            if self.bucket.tokens > 0 {
                // Most severe first, and then by age.
                alerts.sort_unstable();
                let places = alerts.into_iter().map(|(_, at)| at).collect();
                return self.take_alerts(places, now);
            }
            wake_at(self.bucket.next(self.policy.limits));
        }
        if !audit.is_empty() {
            audit.truncate(AUDIT_BATCH_MAX);
            return self.take(&audit, now);
        }
        if let Some(tally) = tally.filter(|_| self.policy.kinds.contains(&NoticeKind::Heartbeat)) {
            if self.heartbeat_at > now.at {
                wake_at(self.heartbeat_at);
            } else if quiet_until.is_none() {
                self.heartbeat_at = now.at + self.policy.heartbeat;
                return self.depart(Content::Heartbeat(tally), Vec::new(), now);
            }
        }
        Next::Wait(wake)
    }

    fn take_alerts(&mut self, mut places: Vec<usize>, now: Now) -> Next {
        let held = places.iter().filter(|at| self.pending[**at].held).count();
        let one_by_one = places.len() <= self.bucket.tokens as usize && held < 2;
        places.truncate(if one_by_one { 1 } else { SUMMARY_MAX });
        self.bucket.tokens -= 1;
        self.take(&places, now)
    }

    /// Takes these places of the queue, in this order, for one delivery.
    fn take(&mut self, places: &[usize], now: Now) -> Next {
        let mut taken: Vec<Option<Entry>> = (0..places.len()).map(|_| None).collect();
        let mut order: Vec<(usize, usize)> =
            places.iter().enumerate().map(|(rank, at)| (*at, rank)).collect();
        // From the back, so that the places in front stay what they are.
        order.sort_unstable_by(|a, b| b.cmp(a));
        for (at, rank) in order {
            taken[rank] = self.pending.remove(at);
        }
        let entries: Vec<Entry> = taken.into_iter().flatten().collect();
        let mut changes = Vec::new();
        let mut audit = Vec::new();
        for entry in &entries {
            match &entry.what {
                What::Audit(line) => audit.push(line.clone()),
                What::Alert(change) => {
                    if entry.not_before > entry.since
                        && let Some(told) = self.told.get_mut(&change.alert.id)
                    {
                        // It flapped: what follows waits for another window.
                        (told.since, told.count) = (now.at, ALERT_NOTICES_MAX);
                    }
                    changes.push(change.clone());
                }
            }
        }
        let content = match (changes.len(), audit.is_empty()) {
            (0, _) => Content::Audit(audit),
            (1, _) => Content::Alert(Box::new(changes.remove(0))),
            _ => Content::Summary(changes),
        };
        self.depart(content, entries, now)
    }

    fn depart(&mut self, content: Content, mut entries: Vec<Entry>, now: Now) -> Next {
        for entry in &mut entries {
            entry.tried.get_or_insert(now.at);
        }
        self.issued += 1;
        let id = format!("{:016x}-{}", self.seed, self.issued);
        let message = Message { id, at_unix_ms: now.unix_ms, content, lost: self.lost };
        self.flight = Some(Flight { message: message.clone(), entries, attempts: 0 });
        Next::Deliver(message)
    }

    /// Gives up what is too old, and makes way for others after too many attempts.
    fn put_back(&mut self, now: Instant) {
        if self.failures == 0 {
            return;
        }
        let Some(flight) = &mut self.flight else { return };
        let gives_way = flight.attempts >= ATTEMPTS_MAX && !self.pending.is_empty();
        // A heartbeat is of use only now.
        let is_stale_heartbeat = flight.entries.is_empty() && flight.attempts >= ATTEMPTS_MAX;
        if !gives_way && !is_stale_heartbeat && !flight.entries.iter().any(|entry| entry.is_stale(now)) {
            return;
        }
        let Some(flight) = self.flight.take() else { return };
        self.put_entries_back(flight.entries, now);
    }

    fn put_entries_back(&mut self, entries: Vec<Entry>, now: Instant) {
        for entry in entries.into_iter().rev() {
            if entry.is_stale(now) {
                self.lose(1);
                continue;
            }
            let waiting = match &entry.what {
                What::Alert(change) => find(&mut self.pending, &change.alert.id),
                What::Audit(_) => None,
            };
            match (waiting, entry) {
                (Some(later), Entry { what: What::Alert(mut change), tried, .. }) => {
                    if let What::Alert(newer) = &mut later.what {
                        change.merge(newer.clone());
                        *newer = change;
                    }
                    later.tried = tried;
                }
                (_, entry) => self.pending.push_front(entry),
            }
        }
        self.shed();
    }

    /// How the delivery that [`Outbox::next`] answered ended.
    pub fn done(&mut self, result: Result<(), &Failure>, now: Now) {
        let Some(flight) = &mut self.flight else { return };
        match result {
            Ok(()) => {
                self.lost = self.lost.saturating_sub(flight.message.lost);
                self.flight = None;
                (self.failures, self.retry_at) = (0, None);
                self.try_refused(now.at);
            }
            Err(Failure { retry: Retry::Never, .. }) => {
                let entries = std::mem::take(&mut flight.entries);
                self.flight = None;
                let (mut alerts, audit): (Vec<Entry>, Vec<Entry>) =
                    entries.into_iter().partition(|entry| matches!(entry.what, What::Alert(_)));
                self.lose(audit.len());
                let again = now.at + REFUSED_REST;
                for entry in &mut alerts {
                    (entry.since, entry.not_before, entry.refused) = (again, again, true);
                }
                self.put_entries_back(alerts, now.at);
                // The receiver answers, so the next one may be tried at once.
                (self.failures, self.retry_at) = (0, None);
            }
            Err(Failure { retry, .. }) => {
                flight.attempts = flight.attempts.saturating_add(1);
                self.failures = self.failures.saturating_add(1);
                let own =
                    backoff(self.failures, mix(self.seed ^ u64::from(self.failures) << 32 ^ self.issued));
                let asked = match retry {
                    Retry::After(time) => (*time).min(RETRY_AFTER_MAX),
                    _ => Duration::ZERO,
                };
                self.retry_at = Some(now.at + own.max(asked));
            }
        }
    }
}

fn find<'a>(pending: &'a mut VecDeque<Entry>, id: &str) -> Option<&'a mut Entry> {
    pending.iter_mut().find(|entry| matches!(&entry.what, What::Alert(change) if change.alert.id == id))
}
