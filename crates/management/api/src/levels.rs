//! Service levels: what a volume is promised, and what it may take at most.
//!
//! Volumes and projects name a level, and it is in force with their next request. Five are built in and stay as they are; others are made. With
//! them is what a pool was measured to do, from which everybody's share is reckoned.

use crate::hosts::present;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What volumes and projects without a level are said to have. No level is called that.
pub const LEVEL_NONE: &str = "none";

/// What an appliance meant that had no levels.
pub(crate) fn no_level() -> String {
    LEVEL_NONE.into()
}

/// How much it matters: what nobody was promised is shared 16 to 4 to 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LevelClass {
    MissionCritical,
    #[default]
    BusinessCritical,
    NonCritical,
}

impl LevelClass {
    /// As JSON and the command line have it.
    pub fn name(self) -> &'static str {
        match self {
            LevelClass::MissionCritical => "mission-critical",
            LevelClass::BusinessCritical => "business-critical",
            LevelClass::NonCritical => "non-critical",
        }
    }
}

/// A service level.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Level {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: LevelSpec,
    pub status: LevelStatus,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LevelSpec {
    pub class: LevelClass,
    /// What a volume gets whenever it asks for so much: as many requests, or as many bytes, whichever is reached first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_bytes_per_second: Option<u64>,
    /// What 99 of 100 requests should take at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// What a volume gets at most, of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes_per_second: Option<u64>,
    /// For how long of its ceiling a volume may make up, after it asked for less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_seconds: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LevelStatus {
    /// It can be neither changed nor deleted.
    pub built_in: bool,
    /// Volumes of imported pools for which it holds.
    pub volumes: u64,
    /// Absent of those that are built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_unix_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LevelCreate {
    /// 1 to 63 letters, digits and `._-`, starting with a letter; no level has it yet, and it is not `none`.
    pub name: String,
    #[serde(default)]
    pub class: LevelClass,
    /// 1 to 10000000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_iops: Option<u64>,
    /// 1 to 107374182400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_bytes_per_second: Option<u64>,
    /// 100 (0.1 ms) to 60000000 (a minute).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// 10 to 10000000, and no less than the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops: Option<u64>,
    /// 1048576 to 107374182400, and no less than the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes_per_second: Option<u64>,
    /// 1 to 3600. Only with a ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_seconds: Option<u32>,
}

/// What to change of a level; what is absent stays, and what is `null` is not bounded any more. It is in force for all volumes of this level when the
/// answer comes, also for requests that wait.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LevelSet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<LevelClass>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub floor_iops: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub floor_bytes_per_second: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub latency_us: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub ceiling_iops: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub ceiling_bytes_per_second: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub burst_seconds: Option<Option<u32>>,
}

/// What a pool's disks can do together, redundancy and log included: the result of its measurement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolSpeed {
    /// Requests of 8 KiB at random places, in a second; writes are durable.
    pub read_iops: u64,
    pub write_iops: u64,
    /// In requests of 1 MiB.
    pub read_bytes_per_second: u64,
    pub write_bytes_per_second: u64,
    pub measured_unix_ms: u64,
}
