//! Volumes.

use crate::levels::no_level;
use crate::{Condition, Property, SnapshotKeep, Sync, VolumeSources};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The space that is reserved for a volume. `thin`: none. `zeroedthick`: its whole size. `eagerzeroedthick`: its
/// whole size, which counts as used from the start.
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
    /// Compression of new writes: `off`, `lz4`, `lzjb`, `gzip-1` to `gzip-9`, `zstd-1` to `zstd-19`.
    #[serde(default = "no_compression")]
    pub compression: String,
    #[serde(default)]
    pub format: VolumeFormat,
    /// Interval of scheduled snapshots; 0: none.
    #[serde(default)]
    pub snapshot_every_seconds: u32,
    /// Which scheduled snapshots are kept.
    #[serde(default)]
    pub snapshot_keep: SnapshotKeep,
    /// Names of the hosts and host groups that the volume is mapped to.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Name of its service level, or `none`. A UUID when this appliance does not have the level, which then counts as
    /// `none`.
    #[serde(default = "no_level")]
    pub level: String,
    /// Where these values come from. Block size and format are never inherited.
    #[serde(default)]
    pub sources: VolumeSources,
}

/// The compression in answers of versions without compression.
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
    /// Pool space of these blocks, compressed and without redundancy.
    #[serde(default)]
    pub stored_bytes: u64,
    /// Processor time for compressing its blocks since the pool was imported.
    #[serde(default)]
    pub compress_cpu_us: u64,
    /// Processor time for decompressing them.
    #[serde(default)]
    pub expand_cpu_us: u64,
    /// Bytes that count as used by the volume; for an eagerzeroedthick volume, its size.
    #[serde(default)]
    pub used_bytes: u64,
    /// Free space that is reserved for the volume.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// The snapshot that it is a clone of; absent otherwise, and when it no longer needs the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Number of its snapshots.
    #[serde(default)]
    pub snapshots: u32,
    /// Bytes of blocks that only its snapshots have; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes: Option<u64>,
    /// Known unreadable bytes; `damage` of the pool lists them.
    #[serde(default)]
    pub damaged_bytes: u64,
    pub shard: u32,
    /// The volume's NBD export name.
    pub nbd_export: String,
    /// The iSCSI target at which mapped hosts see the volume.
    pub iscsi_target: String,
    pub created_unix_ms: u64,
}

/// A volume to create, empty or as a clone of a snapshot.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// `POOL/[PROJECT/]NAME`; after the pool 1 to 200 letters, digits and `._-/`. The project must exist.
    pub name: String,
    /// 1 MiB to 64 TiB, a multiple of the block size. Required, except for a clone, which has at least its snapshot's
    /// size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// A power of two from 4096 to 131072. Default: the project's, or 8192. A clone has its snapshot's block size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Default: inherited from the project, or `always`. A clone copies a value that its origin volume does not
    /// inherit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// `off`, `lz4`, `lzjb`, `gzip-1` to `gzip-9`, `zstd-1` to `zstd-19`. Default: inherited from the project, or
    /// `lz4`. A clone copies a value that its origin volume does not inherit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Default: the project's, or `thin`; for a clone `thin`. Refused when the pool has no space for the reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<VolumeFormat>,
    /// Name or UUID of a snapshot in the same pool: the volume becomes a clone of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_snapshot: Option<String>,
    /// Hosts and host groups to map the volume to, by name or UUID, each with a free LUN. Default: those of
    /// the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Logical block size over iSCSI, 512 or 4096. Default: 512. Only with `hosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logical_block_bytes: Option<u32>,
    /// Name or UUID of a service level, or `none`. Default: inherited from the project, or `none`. A clone copies a
    /// level that its origin volume does not inherit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

impl VolumeCreate {
    /// Bytes.
    pub const BLOCK_SIZE_DEFAULT: u32 = 8192;
}

/// Changes to a volume. Absent fields stay as they are.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSet {
    /// The new name, `POOL/NAME` or `POOL/PROJECT/NAME` in the same pool, in a request without other changes. Clients
    /// that have it open keep it; NBD clients connect by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new size; a volume grows and never shrinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Sync>,
    /// For new writes; stored data stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// The new format; refused when the pool has no space for the reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<VolumeFormat>,
    /// Interval of scheduled snapshots in seconds: 60 (a minute) to 31622400 (366 days); 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_every_seconds: Option<u32>,
    /// Which scheduled snapshots to keep; replaces all counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_keep: Option<SnapshotKeep>,
    /// Name or UUID of a service level; `none` for none, also when the project has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Properties to inherit again from the project, or by default: `sync`, `compression`, `snapshot_schedule`,
    /// `hosts`, `level`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherit: Vec<Property>,
}
