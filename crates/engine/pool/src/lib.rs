//! The pool engine: shards, checkpoints, import, volumes.
//!
//! [`Engine`] is the handle for management: `Send`, every method a message to the cores. [`Volume`] is the
//! handle for the data path: it lives on the core that owns the volume's shard ([`VolumeInfo::core`]).

mod error;
mod spec;

pub use error::{Error, ErrorKind, IoError};
pub use spec::*;

use forebay_base::Id;
use forebay_runtime::{Buf, Cores, Rt};
use std::sync::Arc;

/// How the engine runs.
pub struct EngineConfig {
    /// Bytes of DRAM for cached blocks and tree nodes, over all pools and shards.
    pub memory: u64,
    /// Receives events; called on engine cores, must not block.
    pub events: Arc<dyn Fn(Event) + Send + Sync>,
}

/// All pools of this process.
#[derive(Clone)]
pub struct Engine {}

impl Engine {
    pub fn new(cores: Cores, config: EngineConfig) -> Engine {
        let _ = (cores, config);
        todo!()
    }
    pub async fn pool_create(&self, spec: PoolSpec) -> Result<PoolStatus, Error> {
        let _ = spec;
        todo!()
    }
    /// Imports the pool called `name` (or with that UUID) from the disks at `paths`.
    pub async fn pool_import(&self, name: &str, paths: Vec<String>) -> Result<PoolStatus, Error> {
        let _ = (name, paths);
        todo!()
    }
    /// Pools whose labels are on the disks at `paths`.
    pub async fn pool_scan(&self, paths: Vec<String>) -> Vec<PoolFound> {
        let _ = paths;
        todo!()
    }
    /// Checkpoints and closes a pool.
    pub async fn pool_export(&self, name: &str) -> Result<(), Error> {
        let _ = name;
        todo!()
    }
    /// Exports a pool and erases its labels.
    pub async fn pool_destroy(&self, name: &str) -> Result<(), Error> {
        let _ = name;
        todo!()
    }
    pub async fn pools(&self) -> Vec<PoolStatus> {
        todo!()
    }
    /// Forces a checkpoint of one pool and returns its number.
    pub async fn checkpoint(&self, pool: &str) -> Result<u64, Error> {
        let _ = pool;
        todo!()
    }
    pub async fn volume_create(&self, spec: VolumeSpec) -> Result<VolumeInfo, Error> {
        let _ = spec;
        todo!()
    }
    /// All volumes, of one pool or of all.
    pub async fn volumes(&self, pool: Option<&str>) -> Result<Vec<VolumeInfo>, Error> {
        let _ = pool;
        todo!()
    }
    /// A volume by `POOL/NAME` or UUID.
    pub async fn volume(&self, name: &str) -> Result<VolumeInfo, Error> {
        let _ = name;
        todo!()
    }
    /// Grows a volume while clients use it; shrinking is refused.
    pub async fn volume_resize(&self, name: &str, size: u64) -> Result<VolumeInfo, Error> {
        let _ = (name, size);
        todo!()
    }
    pub async fn volume_set_sync(&self, name: &str, sync: SyncPolicy) -> Result<VolumeInfo, Error> {
        let _ = (name, sync);
        todo!()
    }
    /// Deletes a volume; its space comes back in the background.
    pub async fn volume_delete(&self, name: &str) -> Result<(), Error> {
        let _ = name;
        todo!()
    }
    /// Checkpoints and closes everything.
    pub async fn stop(&self) {
        todo!()
    }
}

/// A volume on the core that owns it. Offsets and lengths are bytes and need no alignment, but whole,
/// aligned blocks are cheapest. Each write, discard or compare-and-write is atomic: after a crash it is
/// there whole or not at all. Cheap to clone.
#[derive(Clone)]
pub struct Volume {}

impl Volume {
    /// The volume with this id. `Gone` when it does not exist or lives on another core.
    pub fn open(rt: &Rt, id: Id) -> Result<Volume, IoError> {
        let _ = (rt, id);
        todo!()
    }
    /// Bytes, now (it may grow).
    pub fn size(&self) -> u64 {
        todo!()
    }
    pub fn block_size(&self) -> u32 {
        todo!()
    }
    pub fn sync(&self) -> SyncPolicy {
        todo!()
    }
    /// `len` bytes from `at`, in parts that follow each other. At most 32 MiB.
    pub async fn read(&self, at: u64, len: usize) -> Result<Vec<Buf>, IoError> {
        let _ = (at, len);
        todo!()
    }
    /// Writes the parts one after the other from `at`; at most 32 MiB in all. `fua`: durable when done, whatever `sync` says
    /// (except [`SyncPolicy::Disabled`]).
    pub async fn write(&self, at: u64, data: Vec<Buf>, fua: bool) -> Result<(), IoError> {
        let _ = (at, data, fua);
        todo!()
    }
    /// Makes every write acknowledged before it durable.
    pub async fn flush(&self) -> Result<(), IoError> {
        todo!()
    }
    /// Gives back the space of every whole block in the range; it reads as zeros afterwards. Partial blocks at the ends stay
    /// as they are.
    pub async fn discard(&self, at: u64, len: u64, fua: bool) -> Result<(), IoError> {
        let _ = (at, len, fua);
        todo!()
    }
    /// The range reads as zeros afterwards; whole blocks by metadata alone.
    pub async fn write_zeroes(&self, at: u64, len: u64, fua: bool) -> Result<(), IoError> {
        let _ = (at, len, fua);
        todo!()
    }
    /// Writes `new` if the volume holds `expected` there (same length, at most 1 MiB); otherwise `Ok(Err(first differing byte))`.
    pub async fn compare_and_write(
        &self,
        at: u64,
        expected: Buf,
        new: Buf,
    ) -> Result<Result<(), usize>, IoError> {
        let _ = (at, expected, new);
        todo!()
    }
    /// Which parts of the range hold data: extents that cover it from its start, at most `extents_max` of them.
    pub async fn status(&self, at: u64, len: u64, extents_max: usize) -> Result<Vec<Extent>, IoError> {
        let _ = (at, len, extents_max);
        todo!()
    }
}
