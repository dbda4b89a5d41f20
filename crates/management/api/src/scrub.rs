//! Scrubs: their schedule and their results.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Scheduled scrubs. They run in one pool at a time, and never during a rebuild.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ScrubSchedule {
    /// Time from the end of one scrub to the start of the next; 0: never.
    pub every_seconds: u32,
    /// When the last scrub was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_unix_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_unix_ms: Option<u64>,
}

/// A scrub: all stored data is read from every disk and verified, and bad copies are repaired.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    pub state: ScrubState,
    /// Bytes of disk that were verified; every copy counts.
    pub done_bytes: u64,
    /// Bytes in use when it began.
    pub used_bytes: u64,
    /// Bad places that were repaired.
    pub repaired: u64,
    /// Unrecoverable places.
    pub lost: u64,
    pub since_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScrubState {
    Running,
    /// It continues where it stopped when it is started again, or when the pool is next imported.
    Paused,
    Done,
    /// Ended before it was complete.
    Stopped,
}

/// An action on a pool's scrub.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolScrub {
    #[serde(default)]
    pub action: ScrubAction,
    /// With `schedule`: seconds from the end of one scrub to the start of the next, 3600 (an hour) to 315360000 (ten
    /// years); 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScrubAction {
    /// Start a scrub, or continue a paused one.
    #[default]
    Start,
    Pause,
    Stop,
    /// Set the schedule.
    Schedule,
}
