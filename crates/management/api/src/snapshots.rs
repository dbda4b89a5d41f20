//! Snapshots: volumes as they were.
//!
//! A snapshot is made in a moment and holds on to the blocks that its volume had then. Volumes can be made of it (clones), and its
//! volume be put back to it; it is never written itself.

use crate::Condition;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume as it was. Its name is `POOL/VOLUME@NAME`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: SnapshotSpec,
    pub status: SnapshotStatus,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotSpec {
    /// The volume that it is a snapshot of, `POOL/NAME`.
    pub volume: String,
    /// Not to be deleted until it is let go.
    pub held: bool,
    /// Made to be cloned; not to be deleted either.
    pub template: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotStatus {
    pub pool: String,
    /// The volume's then.
    pub size_bytes: u64,
    pub block_size_bytes: u32,
    /// Bytes of blocks that held data.
    pub mapped_bytes: u64,
    /// Bytes of blocks that nothing else has: what deleting it, and it alone, gives back. Absent when something of it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_bytes: Option<u64>,
    /// Nobody can delete it before, by the machine's clock as it is now: what counts is the pool's own clock, which nobody can set, and which stands still
    /// while the pool is not imported. Absent when it is not retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_until_unix_ms: Option<u64>,
    /// Taken by the volume's schedule, which will delete it.
    pub scheduled: bool,
    /// Volumes that need it, `POOL/NAME`: it cannot be deleted as long as there are any.
    pub clones: Vec<String>,
    pub created_unix_ms: u64,
}

/// Snapshots to take, of one volume or of several at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// Names or UUIDs of volumes of one pool, at most 256. The name or UUID of a project stands for all its volumes.
    pub volumes: Vec<String>,
    /// What follows the `@`, for each of them: 1 to 100 letters, digits and `._-:`.
    pub name: String,
    /// For so many seconds nobody can delete them, nor their volumes, nor the pool as long as it is imported. This can be made longer, and never shorter.
    #[schema(minimum = 1, maximum = 3153600000_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_seconds: Option<u64>,
}

/// Snapshots that were taken at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Snapshots {
    /// In the order in which their volumes were named.
    pub items: Vec<Snapshot>,
}

/// What to change of a snapshot; what is absent stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<bool>,
    /// Nobody can delete it for so many seconds from now: not fewer than it is retained for already.
    #[schema(minimum = 1, maximum = 3153600000_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_seconds: Option<u64>,
}

/// Puts the volume back to what it was. What no snapshot has of it is lost; newer snapshots stay.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRollback {
    /// Although clients are connected to the volume.
    #[serde(default)]
    pub force: bool,
}

/// A volume to make of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotClone {
    /// `POOL/[PROJECT/]NAME`, in the snapshot's pool.
    pub name: String,
}
