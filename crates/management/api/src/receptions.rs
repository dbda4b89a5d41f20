//! Receptions: what has come of snapshots whose streams are coming in, or broke off.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of a snapshot that was received. Nobody sees the volume before all is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reception {
    #[schema(format = "uuid")]
    pub id: String,
    /// What the volume is called, or will be, `POOL/NAME`.
    pub name: String,
    pub pool: String,
    pub size_bytes: u64,
    /// Bytes of the volume, from its start, that are there for good.
    pub received_bytes: u64,
    /// Bytes of blocks that hold data, those of the snapshot that the stream builds upon included.
    pub mapped_bytes: u64,
    /// Whether a stream is coming in.
    pub active: bool,
    /// What the sender needs to go on (`resume`).
    pub resume_token: String,
    pub created_unix_ms: u64,
}
