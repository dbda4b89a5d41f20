//! Alerts: current faults. They are derived from the present state and not stored, and end with their cause.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AlertSeverity {
    /// Data or service is lost, or one more fault would lose it.
    Critical,
    /// An administrator has to act, but nothing is lost.
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

/// A current fault.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Alert {
    /// Kind of the fault and its object: the same as long as the alert lasts.
    pub id: String,
    pub severity: AlertSeverity,
    /// When the fault began, or was first seen. A restart of the daemon sets it anew.
    pub since_unix_ms: u64,
    pub object: AlertObject,
    /// A sentence: what happened.
    pub cause: String,
    /// A sentence: what this means for the service.
    pub impact: String,
    /// A sentence: what to do.
    pub action: String,
    /// The command that does this, or shows more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// The object of an alert.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AlertObject {
    /// As in paths: `pools`, `disks`, `volumes`, `projects`.
    pub resource: String,
    pub name: String,
}
