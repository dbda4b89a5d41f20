//! What of a pool is lost.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Places on a pool's disks that something points to and that nothing can be made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolDamage {
    /// Blocks, and nodes of trees, below which there may be many.
    pub places: u64,
    /// Those that nobody has accepted.
    pub open_places: u64,
    /// What they hold, as it is stored.
    pub stored_bytes: u64,
}

/// A stretch of a volume or a snapshot that reads as an error until it is written anew, or all who have it are deleted or put back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DamagedRange {
    /// `POOL/VOLUME` or `POOL/VOLUME@SNAPSHOT`; a volume in the trash has its own name, too.
    pub name: String,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub found_unix_ms: u64,
    /// Somebody has said that he knows.
    pub accepted: bool,
}
