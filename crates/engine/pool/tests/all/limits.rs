//! Limits of a shard's tables, lowered so that small pools meet them: each is an error and an event, and never the end of a pool.

use forebay_base::planted::{TableLimits, set_table_limits};
use forebay_base::{KIB, MIB};
use forebay_pool::{
    Compression, Engine, EngineConfig, Error, ErrorKind, Event, Host, Import, IoError, Layout, PoolSpec,
    PoolState, SyncPolicy, Volume, VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Buf, Rt};
use forebay_simulation::{Image, World, WorldConfig};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);
const BLOCK: u64 = 64 * KIB;
const PURGE: VolumeDelete = VolumeDelete { with_snapshots: true, purge: true };
/// 306 chunks, and 31 datasets.
const LOW: TableLimits = TableLimits { chunk_blocks: 3, catalog_blocks: 1, homes: 24 };

struct Pool {
    rt: Rt,
    engine: Engine,
    paths: Vec<String>,
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

    async fn state(&self) -> PoolState {
        self.engine.pools().await[0].state
    }

    /// How often events with this code were told since this was last asked of any.
    fn told(&self) -> Vec<&'static str> {
        self.events.lock().expect("nobody panics").drain(..).map(|event| event.code).collect()
    }
}

fn spec(layout: Layout, paths: &[String], shards: usize) -> PoolSpec {
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

/// Runs `main` with a pool on `disks` disks of 64 MiB, under these limits.
fn on_pool<W: Future<Output = ()> + 'static>(
    (layout, disks, shards): (Layout, usize, usize),
    limits: Option<TableLimits>,
    main: impl FnOnce(Rc<Pool>) -> W,
) {
    set_table_limits(limits);
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
    let pool = Rc::new(Pool { rt: executor.rt().clone(), engine: Engine::new(cores, config), paths, events });
    let test = main(pool.clone());
    let whole = async move {
        pool.engine.pool_create(spec).await.expect("created");
        test.await;
        pool.engine.pool_export("tank").await.expect("exported");
    };
    world.run(&executor, LIMIT, whole).expect("finishes");
    set_table_limits(None);
}

/// Goal: a shard whose chunk table is full has no space, and nothing else is wrong with it: reads, discards and checkpoints go on, and space comes back.
#[test]
fn a_full_chunk_table_is_no_space_and_space_comes_back() {
    for limits in [LOW, TableLimits { homes: 2, ..LOW }] {
        on_pool((Layout::Single, 4, 1), Some(limits), |pool| async move {
            pool.create("v", 1 << 30).await.expect("created");
            let volume = pool.open("v").await;
            let written = pool.fill(&volume).await;
            let status = pool.engine.pools().await.remove(0);
            assert_eq!(status.state, PoolState::Online);
            assert!(status.free > 32 * MIB && written > 16 * MIB, "{written} written, {} free", status.free);
            let told = pool.told();
            let count = |code: &str| told.iter().filter(|known| **known == code).count();
            assert_eq!((count("pool.limit_near"), count("pool.limit_reached")), (1, 1), "{told:?}");
            for again in [false, true] {
                if again {
                    pool.engine.pool_export("tank").await.expect("exported");
                    let imported = pool.engine.pool_import("tank", pool.paths.clone(), Import::default());
                    assert_eq!(imported.await.expect("imported").state, PoolState::Online);
                }
                let volume = pool.open("v").await;
                pool.engine.checkpoint("tank").await.expect("a full table is no reason to stop");
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
}

/// Goal: what the catalogue has no room for is refused when it is created, by name of the limit; and what is deleted makes room.
#[test]
fn a_full_catalogue_refuses_volumes_snapshots_and_clones() {
    on_pool((Layout::Mirror, 4, 1), Some(LOW), |pool| async move {
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
            assert!(error.message.contains("catalogue of shard 0 has room for 31"), "{}", error.message);
        };
        is_named(refused);
        is_named(pool.engine.snapshot_create(vec!["tank/v1".into()], "s").await.expect_err("too many"));
        is_named(pool.engine.volume_clone("tank/v0@base", "clone").await.expect_err("too many"));
        let told = pool.told();
        let count = |code: &str| told.iter().filter(|known| **known == code).count();
        assert_eq!((count("pool.limit_near"), count("pool.limit_reached")), (1, 1), "{told:?}");
        pool.engine.checkpoint("tank").await.expect("a full catalogue is no reason to stop");
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

/// Goal: a pool whose first tables do not fit is refused, with the limit's name, before anything is written.
#[test]
fn a_log_of_more_chunks_than_the_table_lists_is_refused_and_nothing_is_written() {
    set_table_limits(Some(TableLimits { chunk_blocks: 1, ..LOW }));
    let world = World::new(WorldConfig::new(1));
    (0..64).for_each(|_| {
        world.add_disk(Image::new(64 * MIB));
    });
    let (executor, cores) = world.executor(1);
    let config = EngineConfig { memory: 16 << 20, events: Arc::new(|_| ()), host: Host::default() };
    let engine = Engine::new(cores, config);
    let before: Vec<Image> = (0..64).map(|disk| world.image(disk)).collect();
    let create = async move {
        let paths: Vec<String> = (0..64).map(|nth| format!("sim{nth}")).collect();
        engine.pool_create(spec(Layout::Single, &paths, 1)).await.expect_err("102 chunks are too few")
    };
    let error = world.run(&executor, LIMIT, create).expect("finishes");
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert!(error.message.contains("chunk table has room for 102 chunks"), "{}", error.message);
    let is_same = |(disk, before): (usize, &Image)| before.difference(&world.image(disk)).is_empty();
    assert!(before.iter().enumerate().all(is_same), "nothing is written");
    set_table_limits(None);
}
