//! Volumes.

use crate::levels::no_level;
use crate::{Condition, Property, Sync, VolumeSources};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is kept ready for a volume: `thin` nothing; `zeroedthick` holds space for its whole size; `eagerzeroedthick` does as well, and all of it
/// counts as used from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VolumeFormat {
    #[default]
    Thin,
    ZeroedThick,
    EagerZeroedThick,
}

/// A volume: a virtual disk. Its name is `POOL/NAME`, or `POOL/PROJECT/NAME` when it belongs to a project.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: VolumeSpec,
    pub status: VolumeStatus,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeSpec {
    pub size_bytes: u64,
    pub block_size_bytes: u32,
    pub sync: Sync,
    /// How blocks that are written from now on are compressed: `off`, `lz4`, `lzjb`, `gzip-1` to `gzip-9`, `zstd-1` to `zstd-19`.
    #[serde(default = "no_compression")]
    pub compression: String,
    #[serde(default)]
    pub format: VolumeFormat,
    /// From one snapshot that is taken by itself to the next; 0 for never.
    #[serde(default)]
    pub snapshot_every_seconds: u32,
    /// How many of these are kept: the oldest is deleted when there are more.
    #[serde(default)]
    pub snapshot_keep: u32,
    /// Names of the hosts and host groups that it is mapped to.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// The name of its service level, or `none`; a UUID when this appliance does not know it, and then it holds as `none` does.
    #[serde(default = "no_level")]
    pub level: String,
    /// Where these values come from. Block size and format are always its own.
    #[serde(default)]
    pub sources: VolumeSources,
}

/// What an appliance meant that could not compress.
fn no_compression() -> String {
    "off".into()
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeStatus {
    pub pool: String,
    /// The project that it belongs to, `POOL/PROJECT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Bytes of blocks that hold data.
    pub mapped_bytes: u64,
    /// What these take of the pool, without redundancy: less where they are compressed.
    #[serde(default)]
    pub stored_bytes: u64,
    /// Processor time for compressing and for expanding its blocks since the pool was imported.
    #[serde(default)]
    pub compress_cpu_us: u64,
    #[serde(default)]
    pub expand_cpu_us: u64,
    /// Bytes that count as used by it: of an eagerzeroedthick volume, its size.
    #[serde(default)]
    pub used_bytes: u64,
    /// Bytes of free space that are held for it alone.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// The snapshot that it was cloned from; absent when it was not, or needs it no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// How many snapshots it has.
    #[serde(default)]
    pub snapshots: u32,
    /// Bytes of blocks that only its snapshots still have; absent in lists, where they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes: Option<u64>,
    /// Bytes that read as errors, as far as is known; `damage` of its pool says which.
    #[serde(default)]
    pub damaged_bytes: u64,
    pub shard: u32,
    /// The name under which NBD clients find it.
    pub nbd_export: String,
    /// The iSCSI target at which hosts see it once it is mapped to them.
    pub iscsi_target: String,
    pub created_unix_ms: u64,
}

/// A volume to create, empty or as a clone of a snapshot.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// `POOL/[PROJECT/]NAME`; after the pool 1 to 200 letters, digits and `._-/`. The project must be there.
    pub name: String,
    /// 1 MiB to 64 TiB, a multiple of the block size. Needed, except for a clone, which is as large as its snapshot or larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// A power of two from 4096 to 131072. Default: the project's, or 8192. A clone has its snapshot's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Default: inherited from the project, or `always`; for a clone, what the volume has of its own that its snapshot is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// `off`, `lz4`, `lzjb`, `gzip-1` to `gzip-9`, `zstd-1` to `zstd-19`. Default: inherited from the project, or `lz4`; for a clone, what
    /// the volume has of its own that its snapshot is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Default: the project's, or `thin`; a clone is `thin`. Refused when the pool cannot hold what it would reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<VolumeFormat>,
    /// Name or UUID of a snapshot in the same pool: the volume becomes a clone of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_snapshot: Option<String>,
    /// Hosts and host groups to map it to, by name or UUID, each with its lowest free LUN. Default: those of the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The logical block that iSCSI shows, 512 or 4096. Default: 512. Only with `hosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logical_block_bytes: Option<u32>,
    /// Name or UUID of a service level, or `none`. Default: inherited from the project, or `none`; for a clone, what the volume has of its own
    /// that its snapshot is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

impl VolumeCreate {
    /// Bytes.
    pub const BLOCK_SIZE_DEFAULT: u32 = 8192;
}

/// What to change of a volume; what is absent stays.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSet {
    /// The new size; a volume grows and never shrinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// For what is written from now on; what is stored stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Its new format; refused when the pool cannot hold what it would reserve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<VolumeFormat>,
    /// A snapshot is taken by itself so often: 60 (a minute) to 31622400 (366 days), or 0 for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_every_seconds: Option<u32>,
    /// How many of these are kept, 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_keep: Option<u32>,
    /// Name or UUID of a service level, or `none` even if the project says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Of `sync`, `compression`, `snapshot_schedule`, `hosts` and `level`, what it has from its project again, or by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherit: Vec<Property>,
}
