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

/// On which side of a move something was left: `moved` where the volume was, `arriving` where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MoveSide {
    Moved,
    Arriving,
}

/// What a move that did not end has left in a pool, as long as the other pool, which decides what becomes of it, is not imported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MoveLeft {
    /// The volume's.
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
    /// Whether it has all that was acknowledged until the switch.
    pub complete: bool,
}

/// Makes a volume of what a move has left. It gets another UUID, so that there are not two if the other pool comes back.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveKeep {
    /// `POOL/[PROJECT/]NAME`, in the same pool. Default: the name that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
