//! Snapshots: the contents of volumes at one moment.
//!
//! A snapshot keeps the blocks that its volume had when it was taken, and is never written. Clones can be made of it,
//! and its volume can be rolled back to it.

use crate::Condition;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The contents of a volume at one moment. Its name is `POOL/VOLUME@NAME`.
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
    /// Its volume, `POOL/NAME`.
    pub volume: String,
    /// It cannot be deleted until the hold is released.
    pub held: bool,
    /// A source of clones; it cannot be deleted either.
    pub template: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotStatus {
    pub pool: String,
    /// Size of the volume at that moment.
    pub size_bytes: u64,
    pub block_size_bytes: u32,
    /// Bytes of blocks that held data.
    pub mapped_bytes: u64,
    /// Bytes of blocks that only this snapshot has: deleting it alone frees them. Absent when some of its metadata
    /// cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_bytes: Option<u64>,
    /// End of the retention: no user can delete the snapshot before. It is given by the machine's clock as it is now.
    /// The pool's own clock decides; it cannot be set, and stands still while the pool is not imported. Absent
    /// without retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_until_unix_ms: Option<u64>,
    /// Taken by the volume's schedule, which also deletes it.
    pub scheduled: bool,
    /// Clones of it, `POOL/NAME`. It cannot be deleted while it has any.
    pub clones: Vec<String>,
    pub created_unix_ms: u64,
}

/// Snapshots to take, of one volume or of several at the same moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// Names or UUIDs of volumes of one pool, at most 256. The name or UUID of a project stands for all its volumes.
    pub volumes: Vec<String>,
    /// The part of the name after `@`, the same for all: 1 to 100 letters, digits and `._-:`.
    pub name: String,
    /// Retention in seconds: no user can delete these snapshots, their volumes or the imported pool before it ends.
    /// It can be extended, never shortened.
    #[schema(minimum = 1, maximum = 3153600000_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_seconds: Option<u64>,
}

/// Snapshots that were taken at the same moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Snapshots {
    /// In the order of the volumes in the request.
    pub items: Vec<Snapshot>,
}

/// Changes to a snapshot. Absent fields stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<bool>,
    /// Retention in seconds from now: no user can delete the snapshot before it ends. It cannot end earlier than the
    /// present retention.
    #[schema(minimum = 1, maximum = 3153600000_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_seconds: Option<u64>,
}

/// Rolls the volume back to the snapshot. Changes since then that no snapshot has are lost. Newer snapshots stay.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRollback {
    /// Proceed although clients are connected to the volume.
    #[serde(default)]
    pub force: bool,
}

/// A clone to make of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotClone {
    /// `POOL/[PROJECT/]NAME`, in the snapshot's pool.
    pub name: String,
}
