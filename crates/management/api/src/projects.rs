//! Projects: volumes that share properties.
//!
//! A volume `POOL/PROJECT/NAME` belongs to the project `POOL/PROJECT`. Each of its properties has a value of its own,
//! the project's value, or the default. A change of the project applies at once to all volumes that inherit from it.

use crate::levels::no_level;
use crate::{Condition, SnapshotKeep, Sync, VolumeFormat};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Origin of a property's value: set on the object itself, inherited from the project, or the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    #[default]
    Own,
    Project,
    Default,
}

/// A property that volumes inherit. Block size and format of a project apply to new volumes only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    Sync,
    Compression,
    /// Interval and number of snapshots together.
    SnapshotSchedule,
    BlockSize,
    Format,
    /// The hosts that the volume is mapped to over iSCSI.
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

/// Origins of a volume's property values.
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

/// Origins of a project's property values: `own` or `default`.
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

/// A set of properties that volumes inherit. Its name is `POOL/PROJECT`.
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
    /// Interval of scheduled snapshots; 0: none.
    pub snapshot_every_seconds: u32,
    pub snapshot_keep: SnapshotKeep,
    pub block_size_bytes: u32,
    pub format: VolumeFormat,
    /// Quota: the limit of `status.used_bytes`; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Limit in IOPS for all its volumes together; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_second: Option<u64>,
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
    /// Number of its volumes.
    pub volumes: u32,
    /// Number of its volumes in the trash.
    pub volumes_trashed: u32,
    /// Total size of its volumes.
    pub size_bytes: u64,
    /// Bytes of blocks that hold data.
    pub mapped_bytes: u64,
    /// Space that counts towards the quota: pool space of its volumes and their snapshots, compressed and without
    /// redundancy, and reserved space. It includes volumes in the trash, being received, and being deleted.
    pub used_bytes: u64,
    /// Unused quota; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_left_bytes: Option<u64>,
    pub created_unix_ms: u64,
}

/// A project to create. Absent properties have the default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectCreate {
    /// `POOL/PROJECT`; after the pool 1 to 63 letters, digits and `._-`; not the name of a volume.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// `off`, `lz4`, `lzjb`, `gzip-1` to `gzip-9`, `zstd-1` to `zstd-19`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Interval of scheduled snapshots in seconds: 60 (a minute) to 31622400 (366 days); 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_every_seconds: Option<u32>,
    /// Which scheduled snapshots of each volume to keep; replaces all counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_keep: Option<SnapshotKeep>,
    /// Block size of new volumes: a power of two from 4096 to 131072.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Format of new volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<VolumeFormat>,
    /// Quota, at least 1048576; 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Limit in IOPS for all its volumes together: 10 to 10000000; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Limit in bytes per second for all its volumes together, at least 1000000; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_second: Option<u64>,
    /// Hosts and host groups that its volumes are mapped to, by name or UUID, each with a free LUN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Name or UUID of a service level, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

/// Changes to a project. Absent fields stay as they are. The change applies to all volumes that inherit from it when
/// the answer arrives.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectSet {
    /// The new name, `POOL/PROJECT` in the same pool, in a request without other changes. The names of its volumes
    /// change with it; clients that have them open keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// For new writes; stored data stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Interval of scheduled snapshots in seconds: 60 (a minute) to 31622400 (366 days); 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_every_seconds: Option<u32>,
    /// Which scheduled snapshots of each volume to keep; replaces all counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_keep: Option<SnapshotKeep>,
    /// Block size of new volumes: a power of two from 4096 to 131072.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Format of new volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<VolumeFormat>,
    /// Quota, at least 1048576; 0: none. It may be less than the used space: writes then fail until the used space is
    /// below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Limit in IOPS for all its volumes together: 10 to 10000000; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Limit in bytes per second for all its volumes together, at least 1000000; 0: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_second: Option<u64>,
    /// The new list of hosts and host groups that its volumes are mapped to, by name or UUID. LUNs of those that stay
    /// do not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Name or UUID of a service level; `none` removes the project's level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Properties to reset to the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherit: Vec<Property>,
}
