//! Bookmarks: moments of volumes, without their blocks.
//!
//! What a volume has had since can be sent when the snapshot of then is gone: the receiver keeps the snapshot, the sender its bookmark.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The moment of a snapshot. Its name is `POOL/VOLUME#NAME`; in a path, `#` is written `%23`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Bookmark {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub pool: String,
    /// `POOL/NAME`.
    pub volume: String,
    /// What its snapshot is known by in streams, wherever that was sent.
    #[schema(format = "uuid")]
    pub origin: String,
    /// The volume's then.
    pub size_bytes: u64,
    /// When the snapshot was taken.
    pub created_unix_ms: u64,
    /// Whether snapshots of the volume that are taken from now on can be sent from it. Not if the volume went back to something older since.
    pub usable: bool,
}

/// A bookmark to make of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BookmarkCreate {
    /// `POOL/VOLUME@NAME` or UUID.
    pub snapshot: String,
    /// What follows the `#`: 1 to 100 letters, digits and `._-:`. Default: the snapshot's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
