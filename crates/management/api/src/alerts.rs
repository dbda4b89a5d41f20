//! What is wrong now. Nothing of it is stored: it is told anew from the state of things, and is gone when the cause is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AlertSeverity {
    /// Data or service is lost, or one more fault would lose it.
    Critical,
    /// Something has to be done, though nothing is lost.
    Warning,
    /// Worth knowing.
    Info,
}

impl AlertSeverity {
    pub fn name(self) -> &'static str {
        match self {
            AlertSeverity::Critical => "critical",
            AlertSeverity::Warning => "warning",
            AlertSeverity::Info => "info",
        }
    }
}

/// Something that is wrong now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Alert {
    /// The same as long as it lasts: what is wrong, and with which object.
    pub id: String,
    pub severity: AlertSeverity,
    /// When it began, or was first seen; after a restart of the daemon, anew.
    pub since_unix_ms: u64,
    pub object: AlertObject,
    /// A sentence: what happened.
    pub cause: String,
    /// A sentence: what that means.
    pub impact: String,
    /// A sentence: what to do.
    pub action: String,
    /// The command that does it, or shows more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// What an alert is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertObject {
    /// As in paths: `pools`, `disks`, `volumes`, `projects`.
    pub resource: String,
    pub name: String,
}
