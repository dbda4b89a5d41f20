//! Running and interrupted receives of snapshots.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The received part of a snapshot. A new volume appears when the snapshot is complete.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Receive {
    #[schema(format = "uuid")]
    pub id: String,
    /// Present or future name of the volume, `POOL/NAME`.
    pub name: String,
    pub pool: String,
    pub size_bytes: u64,
    /// Bytes of the volume, from its start, that are received durably.
    pub received_bytes: u64,
    /// Bytes of blocks that hold data, including those of the base.
    pub mapped_bytes: u64,
    /// Whether a stream is being received now.
    pub active: bool,
    /// The value of `resume` with which the sender continues.
    pub resume_token: String,
    pub created_unix_ms: u64,
}
