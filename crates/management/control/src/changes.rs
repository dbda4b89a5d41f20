//! What the API changed, for those who watch: which lists to read again, not what is in them.
//!
//! A message is a resource's name. A client that falls more than [`QUEUE_MAX`] messages behind is told so and disconnected; it reads everything again when it
//! comes back. So there is nothing here that grows with the number or the slowness of readers.

use crate::seats::Seats;
use forebay_api::Operation::{self, *};
use std::sync::Arc;
use tokio::sync::broadcast;

/// A burst; each is a pointer.
const QUEUE_MAX: usize = 256;
/// Streams at a time: a quarter of all connections.
const SUBSCRIBERS_MAX: usize = 64;
/// Of one user, token or the owner: each tab of a browser has one. Half, so that none of them takes all.
const SUBSCRIBERS_EACH_MAX: usize = SUBSCRIBERS_MAX / 2;

/// All resources that change by the API.
pub const ALL: [&str; 22] = [
    "pools",
    "groups",
    "disks",
    "projects",
    "volumes",
    "snapshots",
    "bookmarks",
    "receives",
    "trash",
    "moves",
    "levels",
    "hosts",
    "host-groups",
    "mappings",
    "sessions",
    "tokens",
    "users",
    "worksheets",
    "reports",
    "channels",
    "thresholds",
    "server",
];

/// Where changes are told.
pub struct Changes {
    told: broadcast::Sender<&'static str>,
    pub places: Arc<Seats>,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            told: broadcast::Sender::new(QUEUE_MAX),
            places: Seats::new(SUBSCRIBERS_MAX, SUBSCRIBERS_EACH_MAX),
        }
    }
}

impl Changes {
    pub fn tell(&self, resources: &[&'static str]) {
        for &resource in resources {
            // There may be no listener.
            let _ = self.told.send(resource);
        }
    }

    pub fn subscribe(&self) -> broadcast::Receiver<&'static str> {
        self.told.subscribe()
    }
}

/// What is not as it was after this operation. Those that start a task have changed nothing yet: see [`touched_by_task`].
pub fn touched(operation: Operation) -> &'static [&'static str] {
    match operation {
        PoolSet => &["pools"],
        VolumeCreate | VolumeSet | VolumePromote => {
            &["volumes", "bookmarks", "projects", "mappings", "pools"]
        }
        VolumeDelete | TrashRestore => {
            &["volumes", "snapshots", "bookmarks", "trash", "projects", "mappings", "pools"]
        }
        TrashPurge => &["trash", "snapshots", "projects", "pools"],
        MoveKeep | MoveAbandon => &["moves", "volumes", "pools"],
        ProjectCreate | ProjectSet | ProjectDelete => &["projects", "volumes", "mappings", "hosts", "pools"],
        SnapshotCreate | SnapshotSet | SnapshotDelete => &["snapshots", "volumes", "projects", "pools"],
        SnapshotRollback | SnapshotClone | SnapshotReceive => {
            &["volumes", "snapshots", "receives", "projects", "mappings", "pools"]
        }
        BookmarkCreate | BookmarkSet | BookmarkDelete => &["bookmarks"],
        ReceiveAbandon => &["receives", "pools"],
        HostCreate | HostSet => &["hosts", "sessions"],
        HostDelete => &["hosts", "host-groups", "mappings", "volumes", "sessions"],
        HostGroupCreate | HostGroupSet | HostGroupDelete => &["host-groups", "hosts", "mappings", "volumes"],
        LevelCreate | LevelSet | LevelDelete => &["levels", "volumes", "projects", "pools"],
        MappingCreate | MappingDelete => &["mappings", "volumes", "hosts", "host-groups"],
        SessionDrop => &["sessions"],
        TokenCreate | TokenSet | TokenDelete => &["tokens"],
        SetupFinish | UserCreate | UserSet | UserDelete | LoginCreate => &["users"],
        WorksheetCreate | WorksheetSet | WorksheetDelete => &["worksheets"],
        ReportCreate | ReportDelete => &["reports"],
        ThresholdCreate | ThresholdSet | ThresholdDelete => &["thresholds"],
        ChannelCreate | ChannelSet | ChannelDelete | ChannelTest => &["channels"],
        ServerSet => &["server"],
        _ => &[],
    }
}

/// What is not as it was when a task of this name has ended.
pub fn touched_by_task(name: &str) -> &'static [&'static str] {
    match name.split('.').next().unwrap_or_default() {
        "pool" => &["pools", "groups", "disks", "volumes", "projects", "snapshots", "trash", "mappings"],
        "group" | "disk" => &["disks", "groups", "pools"],
        "volume" => &["volumes", "moves", "projects", "pools"],
        _ => &["pools"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::{Method, ReplyBody};

    #[test]
    fn every_change_touches_something_that_there_is() {
        for operation in Operation::ALL {
            let touched = touched(operation);
            assert!(touched.iter().all(|resource| ALL.contains(resource)), "{operation:?}");
            let is_told = operation.method() != Method::Get && operation.reply() != ReplyBody::Task;
            let is_exempt = matches!(operation, DiskScan | TaskCancel | SetupLink | LoginEnd);
            assert!(!is_told || is_exempt || !touched.is_empty(), "{operation:?}");
        }
        for name in ["pool.create", "disk.replace", "volume.move", "group.remove", "other"] {
            assert!(touched_by_task(name).iter().all(|resource| ALL.contains(resource)));
        }
    }
}
