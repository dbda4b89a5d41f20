//! Tables of many levels, and the limit of a shard's datasets, lowered so that small pools meet it: an error and an event, and never the end of a pool.

use forebay_base::planted::{TableShape, set_table_shape};
use forebay_base::{KIB, MIB};
use forebay_pool::{
    Compression, Engine, EngineConfig, Error, ErrorKind, Event, Host, Import, IoError, Layout, PoolSpec,
    PoolState, SyncPolicy, Volume, VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Buf, Rt};
use forebay_simulation::{Image, World, WorldConfig};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);
const BLOCK: u64 = 64 * KIB;
const PURGE: VolumeDelete = VolumeDelete { with_snapshots: true, purge: true };
/// Tables of a few hundred chunks have four levels.
pub(crate) const SMALL: TableShape =
    TableShape { per_leaf: 8, fan_out: 3, datasets: 31, maps_bytes: 0, nodes: 2 };

pub(crate) struct Pool {
    pub world: World,
    pub rt: Rt,
    pub engine: Engine,
    pub paths: Vec<String>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Pool {
    async fn create(&self, name: &str, size: u64) -> Result<(), Error> {
        let spec = VolumeSpec {
            pool: "tank".into(),
            name: name.into(),
            size,
            block_size: BLOCK as u32,
            sync: Some(SyncPolicy::Standard),
            format: VolumeFormat::Thin,
            compression: Some(Compression::Off),
            level: None,
            own_hosts: false,
        };
        self.engine.volume_create(spec).await.map(drop)
    }

    async fn open(&self, name: &str) -> Volume {
        let id = self.engine.volume(&format!("tank/{name}")).await.expect("there").id;
        Volume::open(&self.rt, id).expect("it opens")
    }

    fn content(&self, byte: u8) -> Buf {
        let mut buffer = self.rt.buffer(BLOCK as usize);
        buffer.fill(byte);
        buffer.freeze()
    }

    /// Writes until there is no space; how many bytes.
    async fn fill(&self, volume: &Volume) -> u64 {
        for at in (0..volume.size()).step_by(BLOCK as usize) {
            match volume.write(at, vec![self.content((at / BLOCK) as u8)], true).await {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error, IoError::NoSpace);
                    return at;
                }
            }
        }
        panic!("the volume was written to its end");
    }

    /// Bytes that all disks have been written.
    pub fn written(&self) -> u64 {
        (0..self.paths.len()).map(|disk| self.world.written(disk)).sum()
    }

    /// Exports the pool and imports it again.
    pub async fn again(&self) {
        self.engine.pool_export("tank").await.expect("exported");
        let imported = self.engine.pool_import("tank", self.paths.clone(), Import::default());
        assert_eq!(imported.await.expect("imported").state, PoolState::Online);
    }

    async fn state(&self) -> PoolState {
        self.engine.pools().await[0].state
    }

    /// How often events with this code were told since this was last asked of any.
    pub fn told(&self) -> Vec<&'static str> {
        self.events.lock().expect("nobody panics").drain(..).map(|event| event.code).collect()
    }
}

pub(crate) fn spec(layout: Layout, paths: &[String], shards: usize) -> PoolSpec {
    PoolSpec {
        name: "tank".into(),
        layout,
        disks: paths.to_vec(),
        log_disks: Vec::new(),
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards,
        log_bytes: None,
        force: false,
    }
}

/// Runs `main` with a pool on `disks` disks of 64 MiB, with tables cut like this.
pub(crate) fn on_pool<W: Future<Output = ()> + 'static>(
    (layout, disks, shards): (Layout, usize, usize),
    shape: Option<TableShape>,
    main: impl FnOnce(Rc<Pool>) -> W,
) {
    set_table_shape(shape);
    let world = World::new(WorldConfig::new(1));
    (0..disks).for_each(|_| {
        world.add_disk(Image::new(64 * MIB));
    });
    let (executor, cores) = world.executor(shards);
    let paths: Vec<String> = (0..disks).map(|nth| format!("sim{nth}")).collect();
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let told = events.clone();
    let config = EngineConfig {
        memory: 16 << 20,
        events: Arc::new(move |event| told.lock().expect("nobody panics").push(event)),
        host: Host::default(),
    };
    let spec = spec(layout, &paths, shards);
    let engine = Engine::new(cores, config);
    let pool = Rc::new(Pool { world: world.clone(), rt: executor.rt().clone(), engine, paths, events });
    let test = main(pool.clone());
    let whole = async move {
        pool.engine.pool_create(spec).await.expect("created");
        test.await;
        pool.engine.pool_export("tank").await.expect("exported");
    };
    world.run(&executor, LIMIT, whole).expect("finishes");
    set_table_shape(None);
}

/// Goal: a chunk table of many levels grows to all chunks of the pool and shrinks again, over imports; what it lists stays right.
#[test]
fn a_chunk_table_of_many_levels_grows_and_shrinks() {
    on_pool((Layout::Single, 4, 1), Some(SMALL), |pool| async move {
        pool.create("v", 1 << 30).await.expect("created");
        let volume = pool.open("v").await;
        let written = pool.fill(&volume).await;
        assert!(written > 150 * MIB, "{written} written");
        for again in [false, true] {
            if again {
                pool.again().await;
            }
            let volume = pool.open("v").await;
            pool.engine.checkpoint("tank").await.expect("a full pool is no reason to stop");
            volume.discard(0, written, true).await.expect("that gives space back");
            for _ in 0..3 {
                pool.engine.checkpoint("tank").await.expect("a checkpoint");
            }
            assert!(pool.fill(&volume).await >= written / 8 * 7, "space came back");
            assert_eq!(pool.state().await, PoolState::Online);
            let read = volume.read(written / 2, BLOCK as usize).await.expect("it is readable");
            let byte = (written / 2 / BLOCK) as u8;
            assert!(read.iter().all(|part| part.iter().all(|found| *found == byte)));
        }
    });
}

/// Goal: a checkpoint of one changed block writes as much in a pool with thousands of chunks and hundreds of volumes as in one with few.
#[test]
fn a_checkpoint_writes_what_changed_and_not_what_there_is() {
    let bytes_of_one = |volumes: usize| {
        let bytes = Rc::new(Cell::new(0));
        let told = bytes.clone();
        on_pool((Layout::Single, 16, 1), None, move |pool| async move {
            for nth in 0..volumes {
                pool.create(&format!("v{nth}"), MIB).await.expect("created");
            }
            let volume = pool.open("v0").await;
            for round in 0..3 {
                volume.write(0, vec![pool.content(round)], true).await.expect("written");
                let before = pool.written();
                pool.engine.checkpoint("tank").await.expect("a checkpoint");
                told.set(pool.written() - before);
            }
        });
        bytes.get()
    };
    let (few, many) = (bytes_of_one(4), bytes_of_one(400));
    assert!(many <= few + 3 * 16 * KIB, "{few} bytes with 4 volumes, {many} with 400");
}

/// Goal: what there is no room for is refused when it is created, by name of the limit; and what is deleted makes room.
#[test]
fn more_datasets_than_there_may_be_are_refused() {
    on_pool((Layout::Mirror, 4, 1), Some(SMALL), |pool| async move {
        pool.create("v0", MIB).await.expect("created");
        pool.engine.snapshot_create(vec!["tank/v0".into()], "base").await.expect("taken");
        let mut volumes = 1;
        let refused = loop {
            match pool.create(&format!("v{volumes}"), MIB).await {
                Ok(()) => volumes += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(volumes, 30, "with the snapshot there are 31");
        let is_named = |error: Error| {
            assert_eq!(error.kind, ErrorKind::NoSpace);
            assert!(error.message.contains("shard 0 has room for 31"), "{}", error.message);
        };
        is_named(refused);
        is_named(pool.engine.snapshot_create(vec!["tank/v1".into()], "s").await.expect_err("too many"));
        is_named(pool.engine.volume_clone("tank/v0@base", "clone").await.expect_err("too many"));
        let told = pool.told();
        let count = |code: &str| told.iter().filter(|known| **known == code).count();
        assert_eq!((count("pool.limit_near"), count("pool.limit_reached")), (1, 1), "{told:?}");
        pool.engine.checkpoint("tank").await.expect("a limit is no reason to stop");
        for nth in 20..30 {
            pool.engine.volume_delete(&format!("tank/v{nth}"), PURGE).await.expect("deleted");
        }
        pool.rt.sleep(Duration::from_secs(5)).await;
        for _ in 0..3 {
            pool.engine.checkpoint("tank").await.expect("a checkpoint");
        }
        pool.engine.volume_clone("tank/v0@base", "clone").await.expect("there is room again");
        assert_eq!(pool.state().await, PoolState::Online);
    });
}

/// Goal: many small disks have many small chunks of the log, whose table takes more nodes than one chunk has.
#[test]
fn a_pool_of_many_small_disks_is_created_and_serves() {
    for layout in [Layout::Single, Layout::Mirror, Layout::Parity { data: 4, parity: 1 }] {
        on_pool((layout, 64, 1), None, |pool| async move {
            pool.create("v", 64 * MIB).await.expect("created");
            let volume = pool.open("v").await;
            for at in (0..4 * MIB).step_by(BLOCK as usize) {
                volume.write(at, vec![pool.content(7)], false).await.expect("written");
            }
            pool.engine.checkpoint("tank").await.expect("a checkpoint");
            assert_eq!(pool.state().await, PoolState::Online);
        });
    }
}
