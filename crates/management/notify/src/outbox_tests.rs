//! Does a channel's queue keep a person informed, neither flooded nor left alone? Each test plays a course of events against the clock and looks at what
//! would go out.

use crate::failure::{Failure, Retry};
use crate::notice::{Change, Content, Message, Standing, Tally};
use crate::outbox::*;
use crate::quiet::WEEK;
use crate::rate::Limits;
use crate::samples::{alert, cleared, raised};
use forebay_api::AlertSeverity::{self, Critical, Info, Warning};
use forebay_api::{AuditEntry, CriticalAlerts, NoticeKind, QuietHours};
use std::time::Duration;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Thursday, 2026-01-01 00:00 UTC.
const BEGIN_MS: u64 = 1_767_225_600_000;

struct Course {
    outbox: Outbox,
    begin: Instant,
    passed: Duration,
}

fn policy() -> Policy {
    Policy {
        severity_min: Warning,
        kinds: [NoticeKind::Raised, NoticeKind::Cleared].into(),
        heartbeat: 24 * HOUR,
        quiet_hours: None,
        limits: Limits { burst: 10, pace: 2 * MINUTE },
    }
}

fn night(critical: CriticalAlerts) -> Option<QuietHours> {
    Some(QuietHours { days: WEEK.into(), from_minute: 22 * 60, to_minute: 6 * 60, critical })
}

fn failure(retry: Retry) -> Failure {
    Failure { message: "no".into(), remedy: "wait".into(), retry }
}

impl Course {
    fn new(policy: Policy) -> Course {
        let begin = Instant::now();
        let now = Now { at: begin, unix_ms: BEGIN_MS };
        Course { outbox: Outbox::new(policy, 0xaa, now), begin, passed: Duration::ZERO }
    }
    fn now(&self) -> Now {
        Now { at: self.begin + self.passed, unix_ms: BEGIN_MS + self.passed.as_millis() as u64 }
    }
    fn pass(&mut self, time: Duration) {
        self.passed += time;
    }
    fn raise(&mut self, id: &str, severity: AlertSeverity) {
        self.outbox.push_alert(raised(&alert(id, severity)), self.now());
    }
    fn clear(&mut self, id: &str, severity: AlertSeverity) {
        self.outbox.push_alert(cleared(&alert(id, severity)), self.now());
    }
    fn next(&mut self) -> Next {
        self.outbox.next(Some(Tally::default()), self.now())
    }
    fn message(&mut self) -> Message {
        match self.next() {
            Next::Deliver(message) => message,
            Next::Wait(until) => panic!("nothing goes out, but at {:?}", until.map(|at| at - self.now().at)),
        }
    }
    fn end(&mut self, result: Result<(), Retry>) {
        self.outbox.done(result.map_err(failure).as_ref().copied(), self.now());
    }
    /// Delivers all that goes out now.
    fn deliver(&mut self) -> Vec<Message> {
        let mut delivered = Vec::new();
        while let Next::Deliver(message) = self.next() {
            delivered.push(message);
            self.end(Ok(()));
            assert!(delivered.len() < 10_000, "it never ends");
        }
        delivered
    }
    /// The same, as identifiers and how often raised and cleared.
    fn delivered(&mut self) -> Vec<String> {
        self.deliver().iter().map(show).collect()
    }
    fn wait(&mut self) -> Option<Duration> {
        match self.next() {
            Next::Wait(until) => until.map(|at| at - self.now().at),
            Next::Deliver(message) => panic!("{message:?} goes out"),
        }
    }
}

fn show(message: &Message) -> String {
    let change = |change: &Change| {
        let state = if change.standing == Standing::Standing { "+" } else { "-" };
        format!("{}{state}{}/{}", change.alert.id, change.raised, change.cleared)
    };
    match &message.content {
        Content::Alert(one) => change(one),
        Content::Summary(changes) => {
            format!("[{}]", changes.iter().map(change).collect::<Vec<_>>().join(" "))
        }
        Content::Audit(lines) => format!("audit {}", lines.len()),
        Content::Heartbeat(_) => "heartbeat".into(),
        Content::Test => "test".into(),
    }
}

#[test]
fn an_alert_goes_out_at_once_and_so_does_its_end() {
    let mut course = Course::new(policy());
    assert_eq!(course.wait(), None);
    course.raise("a", Warning);
    assert_eq!(course.delivered(), ["a+1/0"]);
    course.clear("a", Warning);
    assert_eq!(course.delivered(), ["a-0/1"]);
    assert_eq!(course.wait(), None);
}

#[test]
fn what_the_channel_does_not_want_is_not_told() {
    let mut course = Course::new(Policy { kinds: [NoticeKind::Raised].into(), ..policy() });
    course.raise("info", Info);
    course.clear("a", Critical);
    assert_eq!(course.delivered(), Vec::<String>::new());
    // An end that is not wanted still corrects what waits.
    course.raise("a", Critical);
    course.clear("a", Critical);
    assert_eq!(course.delivered(), ["a-1/1"]);
}

#[test]
fn an_alert_that_flaps_for_an_hour_sends_a_handful() {
    let mut course = Course::new(policy());
    let mut all = Vec::new();
    for _ in 0..500 {
        course.raise("a", Warning);
        all.extend(course.delivered());
        course.pass(Duration::from_secs(3));
        course.clear("a", Warning);
        all.extend(course.delivered());
        course.pass(Duration::from_secs(4));
    }
    course.pass(HOUR);
    all.extend(course.delivered());
    // Four at once, and one for each ten minutes of the 58.
    assert!(all.len() <= 4 + 6, "{all:?}");
    assert_eq!(all[..4], ["a+1/0", "a-0/1", "a+1/0", "a-0/1"]);
    assert!(all.last().unwrap().starts_with("a-"), "the last state is told: {all:?}");
    let (raised, cleared) = all.iter().fold((0, 0), |(up, down), text| {
        let (up_now, down_now) = text[2..].split_once('/').unwrap();
        (up + up_now.parse::<u32>().unwrap(), down + down_now.parse::<u32>().unwrap())
    });
    assert_eq!((raised, cleared), (500, 500), "every change is accounted for");
}

#[test]
fn a_flapping_alert_that_becomes_critical_goes_out_at_once() {
    let mut course = Course::new(policy());
    for _ in 0..20 {
        course.raise("a", Warning);
        course.clear("a", Warning);
        course.deliver();
        course.pass(Duration::from_secs(1));
    }
    course.raise("a", Warning);
    assert_eq!(course.delivered(), Vec::<String>::new());
    course.raise("a", Critical);
    let told = course.deliver();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].changes()[0].alert.severity, Critical);
}

#[test]
fn a_storm_becomes_summaries_with_the_worst_first() {
    let mut course = Course::new(policy());
    for n in 0..70 {
        course.raise(&format!("w{n:02}"), Warning);
    }
    course.raise("worst", Critical);
    let first = course.message();
    assert_eq!((first.changes().len(), &*first.changes()[0].alert.id), (SUMMARY_MAX, "worst"));
    course.end(Ok(()));
    let second = course.message();
    assert_eq!(second.changes().len(), 71 - SUMMARY_MAX);
    course.end(Ok(()));
    assert_eq!(course.wait(), None);
}

#[test]
fn a_channel_keeps_to_its_rate_and_catches_up_in_one_message() {
    let mut course = Course::new(policy());
    let mut sent = 0;
    for n in 0..600 {
        course.raise(&format!("a{n}"), Warning);
        sent += course.deliver().len();
        course.pass(Duration::from_secs(6));
    }
    // An hour: the burst, and one in two minutes.
    assert!((38..=42).contains(&sent), "{sent}");
    course.pass(2 * MINUTE);
    course.deliver();
    assert_eq!((course.outbox.waiting(), course.outbox.lost_total()), (0, 0));
}

#[test]
fn quiet_hours_hold_back_all_but_critical_and_end_with_one_summary() {
    let mut course = Course::new(Policy { quiet_hours: night(CriticalAlerts::Deliver), ..policy() });
    course.raise("early", Warning);
    assert_eq!(course.delivered(), Vec::<String>::new(), "it is midnight");
    course.pass(HOUR);
    course.raise("second", Warning);
    course.raise("worst", Critical);
    assert_eq!(course.delivered(), ["worst+1/0"]);
    course.clear("early", Warning);
    // It looks at the clock again within a minute, and at six it is over.
    assert_eq!(course.wait(), Some(MINUTE));
    course.pass(5 * HOUR - MINUTE / 2);
    assert_eq!(course.wait(), Some(MINUTE / 2));
    course.pass(MINUTE / 2);
    assert_eq!(course.delivered(), ["[early-1/1 second+1/0]"]);
}

#[test]
fn critical_alerts_wait_too_when_told_to() {
    let mut course = Course::new(Policy { quiet_hours: night(CriticalAlerts::HoldBack), ..policy() });
    course.raise("worst", Critical);
    assert_eq!(course.delivered(), Vec::<String>::new());
    course.pass(6 * HOUR);
    assert_eq!(course.delivered(), ["worst+1/0"]);
}

#[test]
fn an_alert_that_worsens_in_quiet_hours_is_told() {
    let mut course = Course::new(Policy { quiet_hours: night(CriticalAlerts::Deliver), ..policy() });
    course.raise("a", Warning);
    course.raise("a", Critical);
    assert_eq!(course.delivered(), ["a+2/0"]);
}

#[test]
fn a_receiver_that_is_down_gets_the_same_message_later_and_later() {
    let mut course = Course::new(policy());
    course.raise("a", Critical);
    let first = course.message();
    let mut waits = Vec::new();
    for _ in 0..12 {
        assert_eq!(course.message(), first);
        course.end(Err(Retry::Backoff));
        let wait = course.wait().unwrap();
        waits.push(wait.as_secs_f64());
        course.pass(wait);
    }
    for (attempt, wait) in waits.iter().enumerate() {
        let full = (5.0 * f64::from(1 << attempt)).min(600.0);
        assert!((full / 2.0..=full).contains(wait), "attempt {attempt}: {wait} s of {full}");
    }
    assert_eq!(course.delivered(), ["a+1/0"]);
}

#[test]
fn the_receiver_may_ask_for_more_time_but_not_for_ever() {
    for (asked, waits) in [(90 * MINUTE, HOUR), (20 * MINUTE, 20 * MINUTE)] {
        let mut course = Course::new(policy());
        course.raise("a", Warning);
        course.message();
        course.end(Err(Retry::After(asked)));
        assert_eq!(course.wait(), Some(waits));
    }
}

#[test]
fn a_refused_alert_is_told_when_the_receiver_takes_something_and_later_in_any_case() {
    let mut course = Course::new(policy());
    course.raise("a", Warning);
    course.message();
    course.end(Err(Retry::Never));
    assert_eq!((course.wait(), course.outbox.lost_total()), (Some(15 * MINUTE), 0));
    course.raise("b", Warning);
    assert_eq!(show(&course.message()), "b+1/0", "it does not hold up others");
    course.end(Err(Retry::Never));
    course.pass(15 * MINUTE);
    course.message();
    course.end(Err(Retry::Never));
    // Other settings may be the cure.
    let now = course.now();
    course.outbox.set_policy(policy(), now);
    assert_eq!(course.delivered(), ["b+1/0", "a+1/0"]);
    assert_eq!((course.wait(), course.outbox.lost_total()), (None, 0));
}

#[test]
fn a_message_that_the_receiver_cannot_digest_does_not_hold_up_the_rest() {
    let mut course = Course::new(policy());
    course.raise("poison", Warning);
    for _ in 0..ATTEMPTS_MAX {
        course.message();
        course.end(Err(Retry::Backoff));
        let wait = course.wait().unwrap();
        course.pass(wait);
    }
    assert_eq!(show(&course.message()), "poison+1/0", "nothing else waits");
    course.raise("worst", Critical);
    assert_eq!(course.delivered(), ["worst+1/0", "poison+1/0"]);
}

#[test]
fn what_happens_during_an_outage_is_merged_with_what_was_under_way() {
    let mut course = Course::new(policy());
    course.raise("a", Warning);
    course.message();
    course.clear("a", Warning);
    course.raise("a", Warning);
    for _ in 0..ATTEMPTS_MAX {
        course.message();
        course.end(Err(Retry::Backoff));
        let wait = course.wait().unwrap();
        course.pass(wait);
    }
    course.pass(ALERT_WINDOW);
    assert_eq!(course.delivered(), ["a+2/1"]);
}

#[test]
fn memory_is_bounded_and_the_oldest_that_is_not_critical_goes() {
    let audit = AuditEntry {
        sequence: 1,
        at_unix_ms: 0,
        principal: "user ann".into(),
        address: "socket".into(),
        operation: "VolumeCreate".into(),
        path: "/v1/volumes".into(),
        status: 202,
        changes: Vec::new(),
        code: None,
        task: None,
        count: None,
    };
    let kinds = [NoticeKind::Raised, NoticeKind::Audit].into();
    let mut course = Course::new(Policy { kinds, ..policy() });
    course.outbox.push_audit(audit.clone(), course.now());
    course.raise("critical", Critical);
    for n in 0..PENDING_MAX {
        course.raise(&format!("w{n}"), Warning);
    }
    assert_eq!((course.outbox.waiting(), course.outbox.lost_total()), (PENDING_MAX, 2));
    let mut told = Vec::new();
    for _ in 0..2 * PENDING_MAX {
        told.extend(course.deliver().iter().flat_map(|m| m.changes().to_vec()).map(|c| c.alert.id));
        course.pass(2 * MINUTE);
    }
    assert_eq!((told.len(), &*told[0], &*told[1]), (PENDING_MAX, "critical", "w1"));
    // Only critical ones: then the oldest of those.
    for n in 0..PENDING_MAX + 1 {
        course.raise(&format!("c{n}"), Critical);
    }
    course.outbox.push_audit(audit, course.now());
    assert_eq!((course.outbox.waiting(), course.outbox.lost_total()), (PENDING_MAX, 4));
}

#[test]
fn audit_lines_go_together_and_in_order_whatever_the_hour() {
    let kinds = [NoticeKind::Audit].into();
    let quiet_hours = night(CriticalAlerts::HoldBack);
    let mut course = Course::new(Policy { kinds, quiet_hours, ..policy() });
    for sequence in 0..300 {
        let text = String::new;
        let (principal, address, operation, path) = (text(), text(), text(), text());
        let entry = AuditEntry {
            sequence,
            at_unix_ms: 0,
            principal,
            address,
            operation,
            path,
            status: 200,
            changes: Vec::new(),
            code: None,
            task: None,
            count: None,
        };
        course.outbox.push_audit(entry, course.now());
    }
    let sequences: Vec<u64> = course
        .deliver()
        .into_iter()
        .flat_map(|message| match message.content {
            Content::Audit(lines) => lines,
            other => panic!("{other:?}"),
        })
        .map(|line| line.sequence)
        .collect();
    assert_eq!(sequences, (0..300).collect::<Vec<_>>());
}

#[test]
fn heartbeats_come_at_the_start_and_then_regularly_but_not_at_night() {
    let kinds = [NoticeKind::Heartbeat].into();
    let mut course = Course::new(Policy { kinds, heartbeat: 12 * HOUR, ..policy() });
    let now = course.now();
    assert!(
        matches!(course.outbox.next(None, now), Next::Wait(None)),
        "not before it is known what is wrong"
    );
    assert_eq!(course.delivered(), ["heartbeat"]);
    assert_eq!(course.wait(), Some(12 * HOUR));
    course.pass(12 * HOUR);
    assert_eq!(course.delivered(), ["heartbeat"]);
    let now = course.now();
    let policy = Policy {
        kinds: [NoticeKind::Heartbeat].into(),
        heartbeat: 12 * HOUR,
        quiet_hours: night(CriticalAlerts::Deliver),
        ..policy()
    };
    course.outbox.set_policy(policy, now);
    course.pass(12 * HOUR);
    assert_eq!(course.wait(), Some(MINUTE), "it is midnight");
    course.pass(6 * HOUR);
    assert_eq!(course.delivered(), ["heartbeat"]);
}

#[test]
fn what_could_not_be_delivered_for_days_is_given_up_and_counted() {
    let mut course = Course::new(policy());
    course.raise("a", Warning);
    course.message();
    course.end(Err(Retry::Backoff));
    course.pass(GIVE_UP + HOUR);
    assert_eq!((course.wait(), course.outbox.lost_total()), (None, 1));
}

/// Any order of events and answers keeps the queue within its bounds, and ends when the receiver is well again.
#[test]
fn nothing_that_happens_breaks_the_bounds() {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut course = Course::new(Policy { quiet_hours: night(CriticalAlerts::Deliver), ..policy() });
    for _ in 0..20_000 {
        let id = format!("a{}", random(2000));
        let severity = [Critical, Warning, Info][random(3) as usize];
        match random(6) {
            0 | 1 => course.raise(&id, severity),
            2 => course.clear(&id, severity),
            3 => course.pass(Duration::from_secs(random(1000))),
            _ => match course.next() {
                Next::Deliver(_) => course.end(match random(4) {
                    0 => Err(Retry::Never),
                    1 | 2 => Err(Retry::Backoff),
                    _ => Ok(()),
                }),
                Next::Wait(until) => assert!(until.is_none_or(|at| at > course.now().at), "it would spin"),
            },
        }
        assert!(course.outbox.waiting() <= PENDING_MAX + SUMMARY_MAX);
    }
    for _ in 0..200 {
        course.deliver();
        course.pass(HOUR);
    }
    assert_eq!(course.outbox.waiting(), 0);
}
