//! The daemon itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The daemon itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Server {
    pub version: String,
    pub cores: u32,
    pub started_unix_ms: u64,
    /// Where NBD clients connect, `HOST:PORT` or `unix:PATH`. Absent during the start and when NBD is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<String>,
    /// Where iSCSI initiators connect: a list of `HOST:PORT`. Absent during the start and when iSCSI is off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iscsi: Vec<String>,
    /// Whether statistics are counted.
    #[serde(default = "yes")]
    pub statistics: bool,
}

/// Older daemons always count.
fn yes() -> bool {
    true
}

/// Changes to the daemon, until it restarts. Absent fields stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerSet {
    /// Whether statistics are counted. Seconds without counting are missing in all answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<bool>,
}
