//! The trash: deleted volumes that can be restored.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A deleted volume in the trash, with its snapshots. Several may have had the same name: the UUID identifies each.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TrashedVolume {
    #[schema(format = "uuid")]
    pub id: String,
    /// Its name before the deletion, `POOL/NAME`; another volume may have it now.
    pub name: String,
    pub pool: String,
    pub size_bytes: u64,
    /// Bytes of blocks that hold data.
    pub mapped_bytes: u64,
    /// How many snapshots it has.
    pub snapshots: u32,
    pub deleted_unix_ms: u64,
    /// When it will be deleted for good.
    pub purge_unix_ms: u64,
}

/// Restores a volume from the trash, with its snapshots. Its own mappings to hosts are not restored.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrashRestore {
    /// `POOL/[PROJECT/]NAME`, in the same pool. Default: its former name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
