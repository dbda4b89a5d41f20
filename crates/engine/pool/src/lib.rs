//! The pool engine: shards, checkpoints, import, volumes.
//!
//! [`Engine`] is the handle for management: `Send`, every method a message to the cores. [`Volume`] is the
//! handle for the data path: it lives on the core that owns the volume's shard ([`VolumeInfo::core`]).

mod added;
mod ahead;
mod assembly;
mod attributes;
mod bookmarks;
mod bounds;
mod cache;
mod calibrate;
mod cancellation;
mod candidate;
mod changes;
pub mod check;
mod checkpoint;
mod clear;
mod commit;
mod control;
mod create;
mod damage;
mod data;
mod dataset;
mod deletion;
mod deletion_order;
mod destage;
mod disks;
mod entry;
mod error;
mod evacuate;
mod faulty;
mod flash;
pub mod flash_index;
pub mod flash_segment;
mod forced;
mod format;
#[cfg(test)]
mod format_doc;
mod gather;
mod groups;
mod halves;
mod handle;
mod heal;
mod holds;
mod import;
mod index;
mod interiors;
mod items;
mod leaves;
mod ledger;
mod limits;
mod lineage;
mod lines;
mod locks;
mod maps;
mod members;
mod membership;
mod moves;
mod moving;
mod names;
mod open;
mod pack;
mod parts;
mod pending;
mod places;
mod progress;
mod project_rename;
mod projects;
mod promises;
mod quota;
mod read;
mod receive;
mod record;
mod registry;
mod relocate;
mod rename;
mod replay;
mod reserve;
mod retention;
mod rows;
mod schedule;
mod scrub;
mod scrub_parity;
mod scrub_records;
mod sectors;
mod send;
mod shard;
mod signal;
mod slots;
mod slow;
mod snapshots;
mod spec;
mod staged;
mod steps;
pub mod stream;
mod table_tree;
mod table_write;
mod tables;
mod tally;
mod trash;
mod trim;
mod turns;
mod utc;
mod vacate;
mod volume;
mod volumes;
mod wanted;
mod write;

pub use attributes::ATTRIBUTES_BYTES_MAX;
pub use bookmarks::BookmarkInfo;
pub use bounds::Bounds;
pub use cache::ReadFrom;
pub use cancellation::Cancellation;
pub use damage::{DamageStatus, Damaged};
pub use error::{Error, ErrorKind, IoError};
pub use forebay_compress::Compression;
pub use forebay_device::ErrorCounts;
pub use forebay_qos::{Account, Cause, Ceiling, Class, Level, Rate, State, Task, Work};
pub use groups::GroupAdd;
pub use handle::Volume;
pub use items::{
    ITEM_KEY_MAX, ITEM_VALUE_MAX, ITEMS_BYTES_MAX, ITEMS_CHANGED_MAX, ITEMS_PUT_MAX, ItemChanges,
};
pub use ledger::{Broken, DisksSecond, LedgerSecond, VolumeSecond};
pub use members::{DiskAdd, DiskReplace, Purpose};
pub use progress::WorkProgress;
pub use promises::{PromiseChange, Standing};
pub use receive::{ReceiveOptions, ReceptionInfo, SnapshotReceiver};
pub use registry::BUILT_IN_LEVELS;
pub use send::{ResumeToken, SendOptions, SnapshotStream};
pub use spec::*;
pub use trim::Trimmed;
pub use utc::utc;
pub use volume::IO_BYTES_MAX;

use async_recursion::async_recursion as boxed;
use control::Control;
use forebay_base::Id;
use forebay_device::write_label;
use forebay_runtime::{Cores, Disk, Rt};
use futures_util::future::join_all;
use registry::{call, registry};
use reserve::Attempt;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

/// How the engine runs.
pub struct EngineConfig {
    /// Bytes of DRAM for cached blocks and tree nodes of each pool, over all its shards.
    pub memory: u64,
    /// Receives events; called on engine cores, must not block.
    pub events: Arc<dyn Fn(Event) + Send + Sync>,
    /// Who has the pools that are imported.
    pub host: Host,
}

/// All pools of this process.
#[derive(Clone)]
pub struct Engine {
    cores: Cores,
    config: Arc<EngineConfig>,
}

impl Engine {
    pub fn new(cores: Cores, config: EngineConfig) -> Engine {
        Engine { cores, config: Arc::new(config) }
    }

    /// Has volumes' turns be what these levels say, besides those that are built in. In force on all cores when it returns.
    #[boxed]
    pub async fn set_levels(&self, levels: &BTreeMap<Id, Level>) -> Result<(), Error> {
        for core in 0..self.cores.count() {
            let levels = levels.clone();
            let set = move |rt: Rt| async move { registry(&rt).set_levels(levels) };
            let ended = |_| Error::new(ErrorKind::Stopped, "engine", "it is being stopped");
            call(self.cores.core(core), set).await.map_err(ended)?;
        }
        let look = |rt: Rt| async move {
            for control in registry(&rt).controls() {
                control.look_at_promises().await;
            }
            Ok(())
        };
        self.on_core_0(look).await
    }

    /// Runs `work` on core 0.
    async fn on_core_0<T, F, W>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rt) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        let result = call(self.cores.core(0), work).await;
        result.unwrap_or_else(|_| Err(Error::new(ErrorKind::Stopped, "forebay", "the engine has stopped")))
    }

    /// Runs `work` with the coordinator of an imported pool, by name or UUID.
    async fn on_pool<T, F, W>(&self, pool: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        let pool = pool.to_string();
        self.on_core_0(move |rt| async move { work(find_pool(&rt, &pool)?).await }).await
    }

    /// Like [`Engine::on_pool`], for what changes the pool.
    async fn on_writable_pool<T, F, W>(&self, pool: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        self.on_pool(pool, |control| async move {
            control.writable()?;
            work(control).await
        })
        .await
    }

    /// Like [`Engine::on_volume`], for what changes the volume.
    async fn on_writable_volume<T, F, W>(&self, volume: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>, String) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        self.on_volume(volume, |control, name| async move {
            control.writable()?;
            control.refuse_while_moving(&name)?;
            work(control, name).await
        })
        .await
    }

    /// Runs `work` with the coordinator of the pool of `POOL/NAME`, or of the volume with that UUID.
    async fn on_volume<T, F, W>(&self, volume: &str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(Rc<Control>, String) -> W + Send + 'static,
        W: Future<Output = Result<T, Error>> + 'static,
    {
        let volume = volume.to_string();
        let found = move |rt: Rt| async move {
            // One that changes its pool just now is in neither.
            drop(registry(&rt).switching.lock(0, 0).await);
            if volume.parse::<Id>().is_ok() {
                let owner =
                    registry(&rt).controls().into_iter().find(|control| control.find(&volume).is_some());
                let missing = || {
                    Error::new(ErrorKind::NotFound, &*volume, "no imported pool has a volume with this id")
                };
                return work(owner.ok_or_else(missing)?, volume.clone()).await;
            }
            let Some((pool, name)) = volume.split_once('/') else {
                let message = "a volume is named POOL/NAME";
                return Err(Error::new(ErrorKind::Invalid("name"), volume, message));
            };
            work(find_pool(&rt, pool)?, name.to_string()).await
        };
        self.on_core_0(found).await
    }

    #[boxed]
    pub async fn pool_create(&self, spec: PoolSpec) -> Result<PoolStatus, Error> {
        let (cores, config) = (self.cores.clone(), self.config.clone());
        self.on_core_0(move |rt| async move {
            if registry(&rt).controls().iter().any(|control| control.name() == spec.name) {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    spec.name,
                    "a pool of this name is imported already",
                ));
            }
            create::create(&rt, &cores, &config, &spec).await?;
            let paths = spec.paths().cloned().collect();
            Engine::import_here(rt, cores, config, (spec.name, None), paths, Import::default())
                .await?
                .status()
                .await
        })
        .await
    }

    /// What [`Engine::pool_create`] would refuse, without making anything: looks at the disks and writes nothing.
    #[boxed]
    pub async fn pool_create_check(&self, spec: PoolSpec) -> Result<Vec<u64>, Error> {
        let sizes = |disks: Vec<Disk>| disks.iter().map(|disk| disk.geometry().size).collect();
        self.on_core_0(move |rt| async move { create::examine(&rt, &spec).await.map(sizes) }).await
    }

    /// Imports the pool called `name` (or with that UUID) from the disks at `paths`.
    #[boxed]
    pub async fn pool_import(
        &self,
        name: &str,
        paths: Vec<String>,
        import: Import,
    ) -> Result<PoolStatus, Error> {
        self.pool_import_as(name, paths, import, None).await
    }

    /// The same, with another name for the pool from now on.
    #[boxed]
    pub async fn pool_import_as(
        &self,
        name: &str,
        paths: Vec<String>,
        import: Import,
        new_name: Option<String>,
    ) -> Result<PoolStatus, Error> {
        let (cores, config, name) = (self.cores.clone(), self.config.clone(), name.to_string());
        self.on_core_0(move |rt| async move {
            let control =
                Engine::import_here(rt.clone(), cores, config, (name, new_name), paths, import).await?;
            halves::settle(&rt, Some(control.id())).await;
            control.status().await
        })
        .await
    }

    /// Refuses as every change of the pool would be, when it was imported to be read only or has stopped writing.
    #[boxed]
    pub async fn pool_changeable(&self, pool: &str) -> Result<(), Error> {
        self.on_writable_pool(pool, |control| async move { control.writing() }).await
    }

    /// What [`Engine::pool_destroy`] would refuse: it needs no pool that still writes.
    #[boxed]
    pub async fn pool_destroy_check(&self, pool: &str) -> Result<(), Error> {
        self.on_writable_pool(pool, |control| async move { control.refuse_while_retained().await }).await
    }

    /// Pools whose labels are on the disks at `paths`.
    #[boxed]
    pub async fn pool_scan(&self, paths: Vec<String>) -> Vec<PoolFound> {
        self.on_core_0(move |rt| async move { Ok(import::scan(&rt, &paths).await) }).await.unwrap_or_default()
    }

    /// Checkpoints and closes a pool; one that is only read is left as it was.
    #[boxed]
    pub async fn pool_export(&self, name: &str) -> Result<(), Error> {
        self.on_pool(name, |control| async move { close(&control).await }).await
    }

    /// Exports a pool and erases its labels.
    #[boxed]
    pub async fn pool_destroy(&self, name: &str) -> Result<(), Error> {
        self.on_writable_pool(name, |control| async move {
            // A pool that is refused at once does not refuse retention meanwhile.
            control.refuse_while_retained().await?;
            // From here on no snapshot becomes retained, so the second answer is final.
            control.destroying.set(true);
            let refused = {
                let _turn = control.lineage.lock(0, 0).await;
                control.refuse_while_retained().await
            };
            let closed = match refused {
                Ok(()) => close(&control).await,
                refused => refused,
            };
            if let Err(error) = closed {
                control.destroying.set(false);
                return Err(error);
            }
            for (disk, handle) in control.online() {
                let failed = |error| {
                    control.error(ErrorKind::Io, format!("erasing the label of disk {disk} failed: {error}"))
                };
                write_label(&control.rt, &handle, None).await.map_err(failed)?;
            }
            Ok(())
        })
        .await
    }

    #[boxed]
    pub async fn pools(&self) -> Vec<PoolStatus> {
        let gather = |rt: Rt| async move {
            let statuses = registry(&rt)
                .controls()
                .into_iter()
                .map(|control| async move { control.status().await.ok() });
            Ok(join_all(statuses).await.into_iter().flatten().collect())
        };
        self.on_core_0(gather).await.unwrap_or_default()
    }

    /// Forces a checkpoint of one pool and returns its number.
    #[boxed]
    pub async fn checkpoint(&self, pool: &str) -> Result<u64, Error> {
        self.on_writable_pool(pool, |control| async move { control.checkpoint().await }).await
    }

    /// Moves scattered blocks together and gives the chunks that become free back to the pool; how many those were.
    #[boxed]
    pub async fn pool_compact(&self, pool: &str) -> Result<u64, Error> {
        self.on_writable_pool(pool, |control| async move { control.compact().await }).await
    }

    #[boxed]
    pub async fn volume_create(&self, spec: VolumeSpec) -> Result<VolumeInfo, Error> {
        let pool = spec.pool.clone();
        self.on_writable_pool(&pool, |control| async move { control.volume_create(spec).await }).await
    }

    /// What [`Engine::volume_create`] would refuse, without creating anything.
    #[boxed]
    pub async fn volume_create_check(&self, spec: VolumeSpec) -> Result<(), Error> {
        let pool = spec.pool.clone();
        let check = |control: Rc<Control>| async move { control.volume_create_check(spec).await };
        self.on_writable_pool(&pool, check).await
    }

    /// All volumes, of one pool or of all.
    #[boxed]
    pub async fn volumes(&self, pool: Option<&str>) -> Result<Vec<VolumeInfo>, Error> {
        let pool = pool.map(str::to_string);
        let gather = |rt: Rt| async move {
            let controls = controls_of(&rt, pool.as_deref())?;
            let registry = registry(&rt);
            let _turn = registry.switching.lock(0, 0).await;
            let mut volumes = Vec::new();
            for control in controls {
                volumes.extend(control.volume_list().await?);
            }
            Ok(volumes)
        };
        self.on_core_0(gather).await
    }

    /// A volume by `POOL/NAME` or UUID.
    #[boxed]
    pub async fn volume(&self, name: &str) -> Result<VolumeInfo, Error> {
        self.on_volume(name, |control, name| async move { control.volume_info(&name).await }).await
    }

    /// Grows a volume while clients use it; shrinking is refused.
    #[boxed]
    pub async fn volume_resize(&self, name: &str, size: u64) -> Result<VolumeInfo, Error> {
        self.on_writable_volume(name, move |control, name| async move {
            control.volume_resize(&name, size, Attempt::Real).await
        })
        .await
    }

    /// What [`Engine::volume_resize`] would refuse, without changing anything.
    #[boxed]
    pub async fn volume_resize_check(&self, name: &str, size: u64) -> Result<(), Error> {
        let check = move |control: Rc<Control>, name: String| async move {
            control.volume_resize(&name, size, Attempt::Trial).await.map(drop)
        };
        self.on_writable_volume(name, check).await
    }

    /// What [`Engine::volume_convert`] would refuse, without changing anything.
    #[boxed]
    pub async fn volume_convert_check(&self, name: &str, format: VolumeFormat) -> Result<(), Error> {
        let check = move |control: Rc<Control>, name: String| async move {
            control.volume_convert(&name, format, Attempt::Trial).await.map(drop)
        };
        self.on_writable_volume(name, check).await
    }

    /// Gives a volume another format, while clients use it; durable when done. `NoSpace` when the pool cannot hold what it would
    /// reserve.
    #[boxed]
    pub async fn volume_convert(&self, name: &str, format: VolumeFormat) -> Result<VolumeInfo, Error> {
        self.on_writable_volume(name, move |control, name| async move {
            control.volume_convert(&name, format, Attempt::Real).await
        })
        .await
    }

    #[boxed]
    pub async fn volume_set(&self, name: &str, change: VolumeChange) -> Result<VolumeInfo, Error> {
        self.on_writable_volume(
            name,
            move |control, name| async move { control.volume_set(&name, change).await },
        )
        .await
    }

    /// Deletes a volume, into the trash or for good; the space of one that is gone for good comes back in the background.
    #[boxed]
    pub async fn volume_delete(&self, name: &str, how: VolumeDelete) -> Result<(), Error> {
        self.on_writable_volume(
            name,
            move |control, name| async move { control.volume_delete(&name, how).await },
        )
        .await
    }

    /// Checkpoints and closes everything.
    #[boxed]
    pub async fn stop(&self) {
        let close_all = |rt: Rt| async move {
            for control in registry(&rt).controls() {
                // A pool that cannot checkpoint is left as a crash would leave it: its log has everything acknowledged.
                let _ = close(&control).await;
            }
            Ok(())
        };
        // An engine that has ended has nothing to close.
        let _ = self.on_core_0(close_all).await;
    }
}

fn find_pool(rt: &Rt, pool: &str) -> Result<Rc<Control>, Error> {
    let id: Option<Id> = pool.parse().ok();
    let found = registry(rt)
        .controls()
        .into_iter()
        .find(|control| control.name() == pool || Some(control.id()) == id);
    found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, pool, "no pool of this name is imported")
            .remedy("List pools with 'forebay pool list'; import one with 'forebay pool import NAME DISK…'")
    })
}

/// The pools that a question is about: this one, or all.
fn controls_of(rt: &Rt, pool: Option<&str>) -> Result<Vec<Rc<Control>>, Error> {
    match pool {
        Some(pool) => Ok(vec![find_pool(rt, pool)?]),
        None => Ok(registry(rt).controls()),
    }
}

/// Ends client operations, makes the last checkpoint and lets go of the disks.
async fn close(control: &Rc<Control>) -> Result<(), Error> {
    if control.closing.replace(true) {
        return Err(control.error(ErrorKind::Conflict, "the pool is being exported already"));
    }
    for index in 0..control.shard_count() {
        let begin = |shard: Rc<shard::Shard>| async move {
            shard.ending.set(destage::Ending::Begun);
            shard.work.send();
        };
        control.on_shard(index, begin).await?;
    }
    control.turnstile.until(|| !control.calibrating.get()).await;
    control.wait_for_healer().await;
    control.end_moves().await;
    // A snapshot that is being taken is there before the pool goes.
    let _turn = control.lineage.lock(0, 0).await;
    control.halt_scrub().await?;
    let shards = control.shard_count();
    for index in 0..shards {
        control.on_shard(index, |shard| async move { shard.close_volumes().await }).await?;
        // As long as checkpoints make room for it: what was acknowledged before it is durable may wait for that.
        let commit = |shard: Rc<shard::Shard>| async move {
            if !shard.shared.import.read_only {
                shard.committed_all().await;
            }
        };
        control.on_shard(index, commit).await?;
        control.on_shard(index, |shard| async move { shard.leave_log().await }).await?;
    }
    let last = control.last_checkpoint().await;
    for index in 0..shards {
        control.on_shard(index, |shard| async move { shard.end().await }).await?;
    }
    control.end_watch().await;
    Engine::drop_shards(&control.shared, shards).await;
    registry(&control.rt).remove_control(control.id());
    let how = if matches!(last, Ok(true)) { "closed after a last checkpoint" } else { "closed as it was" };
    control.event(Severity::Info, "pool.exported", control.name(), how.into());
    last.map(drop)
}
