//! Scrubs: what they found, and when they begin.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Scrubs that begin by themselves: one pool at a time, and not while something has to heal.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ScrubSchedule {
    /// From the end of one to the next; 0 for never.
    pub every_seconds: u32,
    /// When one was last through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_unix_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_unix_ms: Option<u64>,
}

/// Everything that is stored, on every disk, is read and checked, and what is bad put right.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    pub state: ScrubState,
    /// Bytes of disk that were read and checked; every copy counts.
    pub done_bytes: u64,
    /// Bytes in use when it began.
    pub used_bytes: u64,
    /// Bad places that are right again.
    pub repaired: u64,
    pub lost: u64,
    pub since_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScrubState {
    Running,
    /// It goes on where it was when it is started again, or when the pool is next imported.
    Paused,
    Done,
    /// Ended before it was through.
    Stopped,
}

/// What to do about a pool's scrub.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolScrub {
    #[serde(default)]
    pub action: ScrubAction,
    /// With `schedule`: scrubs begin by themselves so long after the last was through, an hour to ten years; 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScrubAction {
    /// Begin, or go on with one that was paused.
    #[default]
    Start,
    Pause,
    Stop,
    /// Say when scrubs begin by themselves.
    Schedule,
}
