//! Who changed what over the API, took down what clients do or read a whole volume, or tried to. A [`Journal`] in `audit.jsonl`.
//!
//! Written down is who, what, where and how it ended: never a body, so never a secret. What was refused is in it, too, failed logins as well; of those, the name only when
//! it is one that exists, because people type passwords into the wrong field. Requests of strangers that reach no operation are
//! not: they could fill it.

use crate::authentication::{Identity, Peer};
use crate::events::now_unix_ms;
use crate::journal::{Journal, Record, shorten};
use crate::request::Principal;
use forebay_api::{AuditEntry, Operation};

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
    }
    fn dropped(count: u64) -> AuditEntry {
        AuditEntry {
            sequence: 0,
            at_unix_ms: now_unix_ms(),
            principal: "nobody".into(),
            address: "socket".into(),
            operation: "AuditDropped".into(),
            path: format!("{count} entries came faster than they could be written down"),
            status: 500,
        }
    }
}

/// What is known of a change before it is made.
pub struct Attempt {
    entry: AuditEntry,
}

impl Attempt {
    pub fn new(who: &Principal, peer: Peer, operation: Operation, path: &str) -> Attempt {
        let address = match (&who.identity, peer.0) {
            (Identity::Socket, _) | (_, None) => "socket".into(),
            (_, Some(address)) => address.to_canonical().to_string(),
        };
        Attempt {
            entry: AuditEntry {
                sequence: 0,
                at_unix_ms: now_unix_ms(),
                principal: who.unique(),
                address,
                operation: format!("{operation:?}"),
                path: path.into(),
                status: 0,
            },
        }
    }

    /// Writes down how it ended; `by`: who it was, when only the request itself told.
    pub fn ended(mut self, audit: &Audit, status: u16, by: Option<String>) {
        self.entry.status = status;
        if let Some(by) = by {
            self.entry.principal = by;
        }
        audit.push(self.entry);
    }
}
