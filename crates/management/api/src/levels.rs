//! Service levels: the guarantees and limits of volumes, and the measured performance of pools.
//!
//! A change of a level applies from the next request of its volumes. Five levels are built in and cannot be changed.
//! Guarantees are calculated from the pool's measured performance.

use crate::hosts::present;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Shown as the level of volumes and projects without one. No level has this name.
pub const LEVEL_NONE: &str = "none";

/// The level in answers of versions without levels.
pub(crate) fn no_level() -> String {
    LEVEL_NONE.into()
}

/// The importance of a level. Performance that is not guaranteed to a volume is shared 16 : 4 : 1 by class.
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
    /// Guaranteed minimum, as long as the volume demands it: IOPS or bytes per second, whichever is reached first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_bytes_per_second: Option<u64>,
    /// Goal for the p99 latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// Limit in IOPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Limit in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_second: Option<u64>,
    /// For how long a volume may exceed its limit after lower demand; absent: 10 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_seconds: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LevelStatus {
    /// A built-in level can be neither changed nor deleted.
    pub built_in: bool,
    /// Number of volumes of imported pools that have it.
    pub volumes: u64,
    /// Absent for built-in levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_unix_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LevelCreate {
    /// 1 to 63 letters, digits and `._-`, starting with a letter; not `none`, and not the name of another level.
    pub name: String,
    #[serde(default)]
    pub class: LevelClass,
    /// 1 to 10000000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_iops: Option<u64>,
    /// 1 to 100000000000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_bytes_per_second: Option<u64>,
    /// 100 (0.1 ms) to 60000000 (a minute).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// 10 to 10000000, at least `min_iops`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// 1000000 to 100000000000, at least `min_bytes_per_second`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_second: Option<u64>,
    /// 1 to 3600. Only with a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_seconds: Option<u32>,
}

/// Changes to a level. Absent fields stay as they are; `null` removes a bound. The change applies to all volumes of
/// the level when the answer arrives, also to waiting requests.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LevelSet {
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<LevelClass>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub min_iops: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub min_bytes_per_second: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub latency_us: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub max_iops: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub max_bytes_per_second: Option<Option<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub burst_seconds: Option<Option<u32>>,
}

/// Measured performance of a pool, redundancy and log included.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolSpeed {
    /// With random requests of 8 KiB; writes are durable.
    pub read_iops: u64,
    pub write_iops: u64,
    /// With requests of 1 MiB.
    pub read_bytes_per_second: u64,
    pub write_bytes_per_second: u64,
    pub measured_unix_ms: u64,
}
