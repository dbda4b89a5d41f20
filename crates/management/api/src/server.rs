//! The daemon itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The daemon itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Server {
    pub version: String,
    pub cores: u32,
    pub started_unix_ms: u64,
    /// Where NBD clients connect, `HOST:PORT` or `unix:PATH`; absent until it is known, and when NBD is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<String>,
    /// Where iSCSI initiators connect, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iscsi: Vec<String>,
    /// Whether statistics are counted.
    #[serde(default = "yes")]
    pub statistics: bool,
}

/// Daemons that do not say so count.
fn yes() -> bool {
    true
}

/// What to change of the daemon until it ends; what is absent stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerSet {
    /// Whether statistics are counted: without, nothing is known of the seconds that pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<bool>,
}
