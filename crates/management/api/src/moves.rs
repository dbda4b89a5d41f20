//! Moves of volumes between pools.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Moves a volume to another pool while clients use it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeMove {
    /// Name or UUID of the pool.
    pub pool: String,
}

/// The pool's side of a move: `moved` in the pool that the volume leaves, `arriving` in the pool that it goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MoveSide {
    Moved,
    Arriving,
}

/// Data of an interrupted move in a pool. It waits until the other pool is imported, which decides what becomes of
/// it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MoveLeft {
    /// The volume's UUID.
    #[schema(format = "uuid")]
    pub id: String,
    /// `POOL/NAME`.
    pub name: String,
    pub pool: String,
    pub size_bytes: u64,
    pub side: MoveSide,
    /// UUID of the other pool.
    #[schema(format = "uuid")]
    pub other_pool: String,
    /// Whether it has all writes that were acknowledged before the switch.
    pub complete: bool,
}

/// Makes a volume of an interrupted move's data. It gets another UUID, so that there are not two if the other pool
/// comes back.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveKeep {
    /// `POOL/[PROJECT/]NAME`, in the same pool. Default: its former name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
