//! Who changed what over the API, took down what clients do or read a whole volume, or tried to. A [`Journal`] in `audit.jsonl`.
//!
//! Written down is who, what, where, how it ended, and what of the object is another now ([`crate::audit_words`]): never a secret. What was refused is in it, too, failed
//! logins as well; of those, the name only when it is one that exists, because people type passwords into the wrong field. Requests of strangers that reach no
//! operation are not, and refused logins once a minute with their number ([`Refusals`]): they could fill it. The same is done for a principal that is refused again and
//! again: no client may push its own entries out of the log.

use crate::authentication::Peer;
use crate::events::now_unix_ms;
use crate::journal::{Journal, Record, shorten};
use crate::request::Principal;
use forebay_api::{AuditEntry, Code, Operation, Task, TaskState};
use std::collections::HashMap;

/// From one entry about refusals that are counted to the next.
const REFUSALS_MS: u64 = 60_000;
/// Refusals of a known principal within that time that have lines of their own.
const REFUSALS_ALONE: u32 = 10;

pub type Audit = Journal<AuditEntry>;

impl Record for AuditEntry {
    const FILE: &'static str = "audit.jsonl";
    const FILE_OLD: &'static str = "audit.1.jsonl";
    const WHAT: &'static str = "audit";

    fn sequence(&self) -> u64 {
        self.sequence
    }
    fn set_sequence(&mut self, sequence: u64) {
        self.sequence = sequence;
    }
    fn shorten(&mut self) {
        shorten(&mut self.principal);
        shorten(&mut self.path);
        self.changes.iter_mut().for_each(shorten);
    }
    fn dropped(count: u64) -> AuditEntry {
        AuditEntry {
            sequence: 0,
            at_unix_ms: now_unix_ms(),
            principal: "anonymous".into(),
            address: "socket".into(),
            operation: "AuditDropped".into(),
            path: format!(
                "{count} entries are lost: they came faster than they could be recorded, or the disk stayed full"
            ),
            status: 500,
            changes: Vec::new(),
            code: None,
            task: None,
            count: None,
        }
    }
}

/// What is known of a change before it is made.
pub struct Attempt {
    operation: Operation,
    entry: AuditEntry,
}

/// How a request ended, besides its status.
#[derive(Default)]
pub struct Outcome {
    /// Who it was, when only the request itself told.
    pub by: Option<String>,
    pub code: Option<Code>,
    pub task: Option<String>,
    pub changes: Vec<String>,
}

impl Attempt {
    pub fn new(who: &Principal, peer: &Peer, operation: Operation, path: &str) -> Attempt {
        let address = match peer {
            Peer::Socket(behind) => behind.to_string(),
            Peer::Address(address) => address.to_canonical().to_string(),
        };
        Attempt {
            operation,
            entry: AuditEntry {
                sequence: 0,
                at_unix_ms: now_unix_ms(),
                principal: who.unique(),
                address,
                operation: format!("{operation:?}"),
                path: path.into(),
                status: 0,
                changes: Vec::new(),
                code: None,
                task: None,
                count: None,
            },
        }
    }

    /// What is written down of how it ended.
    pub fn ended(mut self, refusals: &mut Refusals, status: u16, outcome: Outcome) -> Option<AuditEntry> {
        let Outcome { by, code, task, changes } = outcome;
        self.entry = AuditEntry { status, code, task, changes, ..self.entry };
        if let Some(by) = by {
            self.entry.principal = by;
        }
        match status >= 400 {
            true => refusals.add(self.entry, if self.operation.is_open() { 1 } else { REFUSALS_ALONE }),
            false => Some(self.entry),
        }
    }
}

/// How the task ended that a request began: who, from where and what are the request's.
pub fn of_task(begun: &AuditEntry, task: &Task) -> AuditEntry {
    let code = match task.state {
        TaskState::Succeeded => None,
        // Cancelled, if there is no problem.
        _ => Some(task.error.as_ref().map_or(Code::Conflict, |problem| problem.code)),
    };
    let how = match (task.state, &task.error) {
        (TaskState::Succeeded, _) => "succeeded".to_string(),
        (_, Some(problem)) => format!("failed: {}", problem.detail),
        _ => "was cancelled".to_string(),
    };
    AuditEntry {
        sequence: 0,
        at_unix_ms: now_unix_ms(),
        status: code.map_or(200, Code::status),
        code,
        changes: vec![format!("{} of {} {how}", task.name, task.object)],
        ..begun.clone()
    }
}

/// Refusals that are not written down yet, by who was refused; of logins, by the name that was tried if there is one: of as many names as there are users.
#[derive(Default)]
pub struct Refusals(HashMap<String, Refused>);

struct Refused {
    /// Since when so many were told.
    since_unix_ms: u64,
    told: u32,
    count: u64,
    last: AuditEntry,
}

impl Refused {
    fn tell(&mut self, now_unix_ms: u64) -> AuditEntry {
        let count = std::mem::take(&mut self.count);
        (self.since_unix_ms, self.told) = (now_unix_ms, u32::MAX);
        AuditEntry { count: Some(count).filter(|count| *count > 1), ..self.last.clone() }
    }
}

impl Refusals {
    fn add(&mut self, entry: AuditEntry, alone: u32) -> Option<AuditEntry> {
        let now = entry.at_unix_ms;
        let of = self.0.entry(entry.principal.clone());
        let of = of.or_insert_with(|| Refused { since_unix_ms: now, told: 0, count: 0, last: entry.clone() });
        if of.count == 0 && now.abs_diff(of.since_unix_ms) >= REFUSALS_MS {
            (of.since_unix_ms, of.told) = (now, 0);
        }
        if of.told < alone {
            of.told += 1;
            return Some(entry);
        }
        (of.count, of.last) = (of.count + 1, entry);
        (now.abs_diff(of.since_unix_ms) >= REFUSALS_MS).then(|| of.tell(now))
    }

    /// What has waited for a minute; all of it at the end of time.
    pub fn due(&mut self, now_unix_ms: u64) -> Vec<AuditEntry> {
        self.0.retain(|_, of| of.count > 0 || now_unix_ms.abs_diff(of.since_unix_ms) < REFUSALS_MS);
        let is_due =
            |of: &&mut Refused| of.count > 0 && now_unix_ms.abs_diff(of.since_unix_ms) >= REFUSALS_MS;
        self.0.values_mut().filter(is_due).map(|of| of.tell(now_unix_ms)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(at_unix_ms: u64) -> Attempt {
        let peer = Peer::Address("192.0.2.7".parse().unwrap());
        let mut attempt = Attempt::new(&Principal::nobody(), &peer, Operation::LoginCreate, "/api/v1/login");
        attempt.entry.at_unix_ms = at_unix_ms;
        attempt
    }

    #[test]
    fn a_flood_of_refused_logins_is_one_line_a_minute_with_its_number() {
        let mut strangers = Refusals::default();
        let first = attempt(100_000).ended(&mut strangers, 401, Outcome::default()).unwrap();
        assert_eq!((first.count, &*first.address), (None, "192.0.2.7"), "told at once");
        for at in 1..5000 {
            assert_eq!(attempt(100_000 + at).ended(&mut strangers, 401, Outcome::default()), None);
        }
        assert_eq!(strangers.due(130_000), []);
        let anna = || Outcome { by: Some("user anna".into()), ..Outcome::default() };
        let other = attempt(130_000).ended(&mut strangers, 401, anna()).unwrap();
        assert_eq!((&*other.principal, other.count), ("user anna", None), "another name is told by itself");
        let told = strangers.due(160_000);
        assert_eq!((told.len(), told[0].count), (1, Some(4999)));
        assert_eq!(strangers.due(1_000_000), []);
        assert!(strangers.0.is_empty());
        let refused = |at, strangers: &mut Refusals| {
            let peer = Peer::Address("192.0.2.7".parse().unwrap());
            let mut attempt =
                Attempt::new(&Principal::nobody(), &peer, Operation::VolumeDelete, "/api/v1/volumes/x");
            attempt.entry.at_unix_ms = at;
            attempt.ended(strangers, 403, Outcome { by: Some("user victor".into()), ..Outcome::default() })
        };
        let told = (0..5000).filter_map(|at| refused(2_000_000 + at, &mut strangers)).count();
        assert_eq!(told, REFUSALS_ALONE as usize, "nor does one who may only look wash it away");
        assert_eq!(strangers.due(2_060_000)[0].count, Some(4990));
        assert_eq!(strangers.due(3_000_000), []);
        let right = attempt(1_000_001).ended(&mut strangers, 200, anna());
        assert!(right.is_some_and(|entry| entry.status == 200));
    }

    #[test]
    fn a_task_that_failed_or_was_cancelled_is_not_done() {
        let mut task = Task {
            id: crate::random_id(),
            name: "pool.create".into(),
            object: "two".into(),
            state: TaskState::Succeeded,
            progress_permille: None,
            rate_bytes_per_second: None,
            eta: None,
            cancellable: false,
            started_unix_ms: 1,
            finished_unix_ms: Some(2),
            result: None,
            error: None,
        };
        let outcome = Outcome { task: Some(task.id.clone()), ..Outcome::default() };
        let begun = attempt(1).ended(&mut Refusals::default(), 202, outcome).unwrap();
        let ended = |task: &Task| {
            let entry = of_task(&begun, task);
            assert_eq!((&entry.principal, &entry.task), (&begun.principal, &begun.task));
            (entry.status, entry.code, entry.changes.concat())
        };
        assert_eq!(ended(&task), (200, None, "pool.create of two succeeded".into()));
        task.state = TaskState::Cancelled;
        assert_eq!(ended(&task), (409, Some(Code::Conflict), "pool.create of two was cancelled".into()));
        task.state = TaskState::Failed;
        task.error = Some(forebay_api::Problem::new(Code::Invalid, "/tmp is a directory"));
        assert_eq!(
            ended(&task),
            (400, Some(Code::Invalid), "pool.create of two failed: /tmp is a directory".into())
        );
    }
}
