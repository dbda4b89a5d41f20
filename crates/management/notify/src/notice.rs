//! What a channel is told, before it becomes mail, JSON, a syslog line or a trap.
//!
//! Texts are cleaned and clipped here, once ([`Change::new`]), so that a queue's length bounds its bytes.

use crate::text::line;
use forebay_api::{Alert, AlertObject, AlertSeverity, AuditEntry};

/// Longest texts: an identifier or a name, and a sentence.
const NAME_BYTES_MAX: usize = 256;
const SENTENCE_BYTES_MAX: usize = 1024;
/// Of an audit line.
const CHANGES_MAX: usize = 16;

/// Who speaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Appliance {
    /// What people call it: the host name.
    pub name: String,
    /// Unique and the same for the appliance's life; the SNMP engine ID follows from it.
    pub id: String,
}

impl Appliance {
    /// The name as a host name: what cannot be in one is a dash.
    pub(crate) fn host_name(&self) -> String {
        let kept: String = self
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
            .take(253)
            .collect();
        let trimmed = kept.trim_matches(['-', '.']);
        if trimmed.is_empty() { "forebay".into() } else { trimmed.into() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Standing,
    Cleared,
}

impl Standing {
    pub fn name(self) -> &'static str {
        match self {
            Standing::Standing => "standing",
            Standing::Cleared => "cleared",
        }
    }
}

/// What happened to one alert since it was last told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub alert: Alert,
    pub standing: Standing,
    /// How often it was raised and cleared since it was last told; 1 in all unless it was held back.
    pub raised: u32,
    pub cleared: u32,
    /// When the last change happened.
    pub at_unix_ms: u64,
}

impl Change {
    pub fn new(alert: &Alert, standing: Standing, at_unix_ms: u64) -> Change {
        let alert = Alert {
            id: Change::clean_id(&alert.id),
            severity: alert.severity,
            since_unix_ms: alert.since_unix_ms,
            object: AlertObject {
                resource: line(&alert.object.resource, NAME_BYTES_MAX),
                name: line(&alert.object.name, NAME_BYTES_MAX),
            },
            cause: line(&alert.cause, SENTENCE_BYTES_MAX),
            impact: line(&alert.impact, SENTENCE_BYTES_MAX),
            action: line(&alert.action, SENTENCE_BYTES_MAX),
            // Half a command is another command.
            command: alert
                .command
                .as_deref()
                .filter(|command| command.len() <= SENTENCE_BYTES_MAX)
                .map(|command| line(command, SENTENCE_BYTES_MAX)),
        };
        let (raised, cleared) = match standing {
            Standing::Standing => (1, 0),
            Standing::Cleared => (0, 1),
        };
        Change { alert, standing, raised, cleared, at_unix_ms }
    }

    /// An alert's identifier as it is kept here.
    pub fn clean_id(id: &str) -> String {
        line(id, NAME_BYTES_MAX)
    }

    /// Adds a later change of the same alert. The severity is the worst: what was critical for a moment is worth a look.
    pub fn merge(&mut self, later: Change) {
        let severity = self.alert.severity.min(later.alert.severity);
        self.raised = self.raised.saturating_add(later.raised);
        self.cleared = self.cleared.saturating_add(later.cleared);
        (self.alert, self.standing, self.at_unix_ms) = (later.alert, later.standing, later.at_unix_ms);
        self.alert.severity = severity;
    }

    /// `pools/tank`.
    pub fn object(&self) -> String {
        format!("{}/{}", self.alert.object.resource, self.alert.object.name)
    }

    /// A sentence about repetitions, if there are any.
    pub fn repetitions(&self) -> Option<String> {
        (self.raised + self.cleared > 1).then(|| {
            format!(
                "Since the last report, it was raised {} and cleared {}.",
                times(self.raised),
                times(self.cleared)
            )
        })
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".into(),
        count => format!("{count} times"),
    }
}

/// How many alerts stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub critical: usize,
    pub warning: usize,
    pub info: usize,
}

impl Tally {
    pub fn of<'a>(alerts: impl IntoIterator<Item = &'a Alert>) -> Tally {
        let mut tally = Tally::default();
        for alert in alerts {
            match alert.severity {
                AlertSeverity::Critical => tally.critical += 1,
                AlertSeverity::Warning => tally.warning += 1,
                AlertSeverity::Info => tally.info += 1,
            }
        }
        tally
    }

    /// `1 critical, 2 warning and 0 info alerts are active`.
    pub fn sentence(&self) -> String {
        format!(
            "{} critical, {} warning and {} info alerts are active",
            self.critical, self.warning, self.info
        )
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    Alert(Box<Change>),
    /// Several alerts, the most severe first.
    Summary(Vec<Change>),
    Audit(Vec<AuditEntry>),
    Heartbeat(Tally),
    Test,
}

/// One delivery: a mail, a request, or a few syslog lines or traps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The same for every attempt to deliver this.
    pub id: String,
    /// When it was put together.
    pub at_unix_ms: u64,
    pub content: Content,
    /// Notices that this channel lost since its last delivery.
    pub lost: u64,
}

impl Message {
    /// The alerts that it tells of.
    pub fn changes(&self) -> &[Change] {
        match &self.content {
            Content::Alert(change) => std::slice::from_ref(change),
            Content::Summary(changes) => changes,
            Content::Audit(_) | Content::Heartbeat(_) | Content::Test => &[],
        }
    }

    /// A sentence about what was lost, if anything.
    pub fn lost_sentence(&self) -> Option<String> {
        (self.lost > 0).then(|| {
            let notices = if self.lost == 1 { "notice was" } else { "notices were" };
            format!("{} earlier {notices} not delivered over this channel; see the browser or `forebay alert list`.", self.lost)
        })
    }
}

/// An audit line of bounded length without control characters.
pub fn clean_audit(entry: &AuditEntry) -> AuditEntry {
    AuditEntry {
        sequence: entry.sequence,
        at_unix_ms: entry.at_unix_ms,
        principal: line(&entry.principal, NAME_BYTES_MAX),
        address: line(&entry.address, NAME_BYTES_MAX),
        operation: line(&entry.operation, NAME_BYTES_MAX),
        path: line(&entry.path, SENTENCE_BYTES_MAX),
        status: entry.status,
        code: entry.code,
        task: entry.task.as_deref().map(|task| line(task, NAME_BYTES_MAX)),
        changes: entry.changes.iter().take(CHANGES_MAX).map(|one| line(one, NAME_BYTES_MAX)).collect(),
        count: entry.count,
    }
}
