//! The trash: deleted volumes that can still be had back.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A deleted volume that waits in the trash, with its snapshots. Several may have had one name: then the UUID says which is meant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TrashedVolume {
    #[schema(format = "uuid")]
    pub id: String,
    /// What it was called, `POOL/NAME`; another volume may be called that now.
    pub name: String,
    pub pool: String,
    pub size_bytes: u64,
    /// Bytes of blocks that hold data.
    pub mapped_bytes: u64,
    /// How many snapshots it has.
    pub snapshots: u32,
    pub deleted_unix_ms: u64,
    /// From when on it is purged.
    pub purge_unix_ms: u64,
}

/// Has a volume back from the trash, with its snapshots. Which hosts saw it is not remembered.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrashRestore {
    /// `POOL/[PROJECT/]NAME`, in the same pool. Default: the name that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
