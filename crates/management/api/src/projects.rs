//! Projects: volumes that have properties in common.
//!
//! A volume `POOL/PROJECT/NAME` belongs to the project `POOL/PROJECT`. Each of its properties has a value of its own, or the project's, or,
//! where the project has none, the default; a change of the project concerns all volumes that inherit from it, at once.

use crate::levels::no_level;
use crate::{Condition, Sync, VolumeFormat};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where the value of a property comes from: it was set here, the project has it, or nobody has set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    #[default]
    Own,
    Project,
    Default,
}

/// A property that volumes inherit. Block size and format of a volume are its own; of a project they say what new volumes have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    Sync,
    Compression,
    /// How often and how many: both together.
    SnapshotSchedule,
    BlockSize,
    Format,
    /// To whom it is mapped over iSCSI.
    Hosts,
    /// Its service level.
    Level,
}

impl Property {
    pub const ALL: [Property; 7] = [
        Property::Sync,
        Property::Compression,
        Property::SnapshotSchedule,
        Property::BlockSize,
        Property::Format,
        Property::Hosts,
        Property::Level,
    ];

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Property::Sync => "sync",
            Property::Compression => "compression",
            Property::SnapshotSchedule => "snapshot-schedule",
            Property::BlockSize => "block-size",
            Property::Format => "format",
            Property::Hosts => "hosts",
            Property::Level => "level",
        }
    }
}

/// Where the values of a volume's properties come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct VolumeSources {
    pub sync: Source,
    pub compression: Source,
    pub snapshot_schedule: Source,
    #[serde(default)]
    pub hosts: Source,
    #[serde(default)]
    pub level: Source,
}

/// Where the values of a project's properties come from: `own` or `default`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ProjectSources {
    pub sync: Source,
    pub compression: Source,
    pub snapshot_schedule: Source,
    pub block_size: Source,
    pub format: Source,
    #[serde(default)]
    pub hosts: Source,
    #[serde(default)]
    pub level: Source,
}

/// What volumes inherit, and what new ones are made with. Its name is `POOL/PROJECT`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Project {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: ProjectSpec,
    pub status: ProjectStatus,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProjectSpec {
    pub sync: Sync,
    pub compression: String,
    /// From one snapshot that is taken by itself to the next; 0 for never.
    pub snapshot_every_seconds: u32,
    pub snapshot_keep: u32,
    pub block_size_bytes: u32,
    pub format: VolumeFormat,
    /// What all that belongs to it may take, see `status.used_bytes`; absent without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// What clients of all its volumes together get at most in a second; absent without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes_per_second: Option<u64>,
    /// Names of the hosts and host groups that its volumes are mapped to.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The name of their service level, or `none`; a UUID when this appliance does not know it, and then it holds as `none` does.
    #[serde(default = "no_level")]
    pub level: String,
    pub sources: ProjectSources,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProjectStatus {
    pub pool: String,
    /// How many volumes belong to it, and how many of those that are in the trash besides.
    pub volumes: u32,
    pub volumes_trashed: u32,
    /// The sizes of its volumes, and the bytes of their blocks that hold data.
    pub size_bytes: u64,
    pub mapped_bytes: u64,
    /// What counts towards its quota: what its volumes and their snapshots take of the pool, without redundancy and as compressed, those in the
    /// trash, on their way and being given back too, and what is held for its reserved volumes.
    pub used_bytes: u64,
    /// What is left of its quota; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_left_bytes: Option<u64>,
    pub created_unix_ms: u64,
}

/// A project to create. What is absent, its volumes have by default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectCreate {
    /// `POOL/PROJECT`; after the pool 1 to 63 letters, digits and `._-`. No volume has this name.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// `off`, `lz4`, `lzjb`, `gzip-1` to `gzip-9`, `zstd-1` to `zstd-19`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// A snapshot is taken by itself so often: 60 (a minute) to 31622400 (366 days), or 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_every_seconds: Option<u32>,
    /// How many of these are kept of each volume, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_keep: Option<u32>,
    /// Of new volumes: a power of two from 4096 to 131072.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Of new volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<VolumeFormat>,
    /// What all that belongs to it may take, at least 1048576; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Requests that clients of all its volumes together get at most in a second: 10 to 10000000; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops: Option<u64>,
    /// Bytes likewise, at least 1048576; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes_per_second: Option<u64>,
    /// Hosts and host groups, by name or UUID, that its volumes are mapped to, each with its lowest free LUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Name or UUID of a service level, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

/// What to change of a project; what is absent stays. It is true for all volumes that inherit from it when the answer comes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectSet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// For what is written from now on; what is stored stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// A snapshot is taken by itself so often: 60 (a minute) to 31622400 (366 days), or 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_every_seconds: Option<u32>,
    /// How many of these are kept of each volume, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_keep: Option<u32>,
    /// Of new volumes: a power of two from 4096 to 131072.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Of new volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<VolumeFormat>,
    /// What all that belongs to it may take, at least 1048576; 0 for no bound. It may be less than what is used: writes fail then until it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Requests that clients of all its volumes together get at most in a second: 10 to 10000000; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops: Option<u64>,
    /// Bytes likewise, at least 1048576; 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes_per_second: Option<u64>,
    /// All hosts and host groups, by name or UUID, that its volumes are mapped to from now on. LUNs of those that stay do not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Name or UUID of a service level; with `none` the project says none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// What the project does not say any more: its volumes have the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherit: Vec<Property>,
}
