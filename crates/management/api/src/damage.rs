//! Unrecoverable data of a pool.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Unrecoverable places of a pool: places on its disks that are in use and cannot be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolDamage {
    /// Number of unrecoverable blocks of data and metadata. One metadata block may stand for many data blocks.
    pub places: u64,
    /// The part of `places` that is not accepted.
    pub open_places: u64,
    /// Stored size of these places.
    pub stored_bytes: u64,
}

/// A range of a volume or snapshot that cannot be read. It becomes readable when it is overwritten. It is no longer
/// listed when all volumes and snapshots that have it are deleted or rolled back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DamagedRange {
    /// `POOL/VOLUME` or `POOL/VOLUME@SNAPSHOT`. A volume in the trash has its own former name.
    pub name: String,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub found_unix_ms: u64,
    /// An administrator has accepted the loss.
    pub accepted: bool,
}
