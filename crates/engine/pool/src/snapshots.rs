//! Snapshots and clones as management sees them.

use crate::Engine;
use crate::error::Error;
use crate::spec::{SnapshotChange, SnapshotInfo, SnapshotSchedule, VolumeInfo};

impl Engine {
    /// Takes a snapshot of each of these volumes (`POOL/NAME`, all of one pool), all at one moment.
    pub async fn snapshot_create(&self, _volumes: Vec<String>, _name: &str) -> Result<Vec<SnapshotInfo>, Error> {
        todo!()
    }

    /// All snapshots, of one pool or of all, oldest first within a volume.
    pub async fn snapshots(&self, _pool: Option<&str>) -> Result<Vec<SnapshotInfo>, Error> {
        todo!()
    }

    /// A snapshot by `POOL/VOLUME@NAME` or UUID.
    pub async fn snapshot(&self, _name: &str) -> Result<SnapshotInfo, Error> {
        todo!()
    }

    pub async fn snapshot_set(&self, _name: &str, _change: SnapshotChange) -> Result<SnapshotInfo, Error> {
        todo!()
    }

    /// Deletes a snapshot; what only it has comes back in the background.
    pub async fn snapshot_delete(&self, _name: &str) -> Result<(), Error> {
        todo!()
    }

    /// Puts a volume back to what it was. Newer snapshots stay; what came after the newest is lost.
    pub async fn volume_rollback(&self, _snapshot: &str) -> Result<VolumeInfo, Error> {
        todo!()
    }

    /// Makes a volume (named within the pool) out of a snapshot. It shares the snapshot's blocks until they are overwritten.
    pub async fn volume_clone(&self, _snapshot: &str, _name: &str) -> Result<VolumeInfo, Error> {
        todo!()
    }

    /// Makes a clone the owner of the snapshot it came from, and of those before it; the volume they were of becomes the clone.
    pub async fn volume_promote(&self, _volume: &str) -> Result<VolumeInfo, Error> {
        todo!()
    }

    pub async fn volume_set_schedule(
        &self,
        _volume: &str,
        _schedule: SnapshotSchedule,
    ) -> Result<VolumeInfo, Error> {
        todo!()
    }
}
