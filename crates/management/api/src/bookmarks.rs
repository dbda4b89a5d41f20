//! Bookmarks: moments of volumes, without their blocks.
//!
//! A bookmark is the base of an increment after its snapshot is deleted: the receiver keeps the snapshot, the sender
//! its bookmark.

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
    /// Identifies its snapshot in streams, also on receivers.
    #[schema(format = "uuid")]
    pub origin: String,
    /// Size of the volume at that moment.
    pub size_bytes: u64,
    /// When the snapshot was taken.
    pub created_unix_ms: u64,
    /// Whether snapshots taken from now on can be sent as an increment from it. They cannot if the volume was rolled
    /// back to an older state since.
    pub usable: bool,
}

/// A bookmark to make of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BookmarkCreate {
    /// `POOL/VOLUME@NAME` or UUID.
    pub snapshot: String,
    /// The part of the name after `#`: 1 to 100 letters, digits and `._-:`. Default: the snapshot's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A new name for a bookmark.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BookmarkSet {
    /// The part after `#`.
    pub name: String,
}
