//! Virtual disk formats, held against the functional table of the Hitachi AMS 2100 reference architecture.
//!
//! The paper counts the chunks of 1 GiB that a pool of RAID-5 (4D+1P) groups has given to its volumes; a chunk is given when something
//! in it is first written. Everything here is smaller by 1024: a *chunk* is 1 MiB. We take space by the block, so a volume uses
//! its `used` bytes, rounded up to whole chunks for the comparison: never more than the paper's, since blocks that lie in one chunk there count together here.

use forebay_base::{KIB, MIB};
use forebay_pool::{
    Compression, Engine, EngineConfig, GroupAdd, Host, Layout, PoolSpec, SyncPolicy, Volume, VolumeFormat,
    VolumeSpec,
};
use forebay_runtime::Rt;
use forebay_simulation::{Image, World, WorldConfig};
use std::sync::Arc;
use std::time::Duration;

/// 1 GiB in the paper.
const CHUNK: u64 = MIB;
const LAYOUT: Layout = Layout::Parity { data: 4, parity: 1 };
/// What an empty file system of this size writes, all in its first chunk.
const FILE_SYSTEM: u64 = 256 * KIB;

struct Pool {
    rt: Rt,
    engine: Engine,
}

impl Pool {
    async fn create(&self, name: &str, chunks: u64, format: VolumeFormat) {
        let (pool, sync) = ("tank".into(), SyncPolicy::Always);
        let spec = VolumeSpec {
            pool,
            name: name.into(),
            size: chunks * CHUNK,
            block_size: 8 << 10,
            sync: Some(sync),
            format,
            compression: Some(Compression::Off),
            level: None,
            own_hosts: false,
        };
        self.engine.volume_create(spec).await.expect("there is room");
    }

    /// Writes the bytes `from..to` of a volume.
    async fn write(&self, name: &str, from: u64, to: u64) {
        let id = self.engine.volume(&format!("tank/{name}")).await.expect("there").id;
        let volume = Volume::open(&self.rt, id).expect("it opens");
        for at in (from..to).step_by(64 << 10) {
            let mut data = self.rt.buffer(64 << 10);
            data.fill(7);
            volume.write(at, vec![data.freeze()], false).await.expect("written");
        }
    }

    /// Chunks that a volume uses.
    async fn chunks(&self, name: &str) -> u64 {
        let info = self.engine.volume(&format!("tank/{name}")).await.expect("there");
        info.used.div_ceil(CHUNK)
    }

    async fn used(&self) -> u64 {
        let pools = self.engine.pools().await;
        pools.iter().find(|pool| pool.name == "tank").expect("there").used
    }
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|nth| format!("sim{nth}")).collect()
}

/// Runs `main` with a pool of five of ten disks.
fn on_a_pool<W: Future<Output = ()> + 'static>(main: impl FnOnce(Pool) -> W) {
    let world = World::new(WorldConfig::new(1));
    (0..10).for_each(|_| {
        world.add_disk(Image::new(80 * MIB));
    });
    let (executor, cores) = world.executor(1);
    let config = EngineConfig { memory: 16 << 20, events: Arc::new(|_| ()), host: Host::default() };
    let (rt, engine) = (executor.rt().clone(), Engine::new(cores, config));
    let test = main(Pool { rt, engine: engine.clone() });
    let whole = async move {
        engine.pool_create(spec("tank", 0..5)).await.expect("created");
        test.await;
    };
    world.run(&executor, Duration::from_secs(3600), whole).expect("finishes");
}

fn spec(name: &str, disks: std::ops::Range<usize>) -> PoolSpec {
    PoolSpec {
        name: name.into(),
        layout: LAYOUT,
        disks: names(disks),
        log_disks: Vec::new(),
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards: 1,
        log_bytes: None,
        force: false,
    }
}

#[test]
fn formats_use_the_space_that_the_reference_architecture_expects() {
    on_a_pool(|pool| async move {
        // 50 GB volume, empty file system on it: 1 GiB.
        pool.create("datastore", 50, VolumeFormat::Thin).await;
        pool.write("datastore", 0, FILE_SYSTEM).await;
        assert_eq!(pool.chunks("datastore").await, 1);

        // Deploy a VM with 12 GB of OS from a zeroedthick template, 50 GB disk: 14 GiB in all.
        pool.create("vm", 50, VolumeFormat::ZeroedThick).await;
        pool.write("vm", 0, 12 * CHUNK + FILE_SYSTEM).await;
        assert_eq!(pool.chunks("datastore").await + pool.chunks("vm").await, 14);
        let vm = pool.engine.volume("tank/vm").await.expect("there");
        assert_eq!(
            (vm.used, vm.reserved),
            (12 * CHUNK + FILE_SYSTEM, 38 * CHUNK - FILE_SYSTEM),
            "to the byte"
        );

        // The same, eagerzeroedthick: 50 GiB.
        let before = pool.used().await;
        pool.create("eager", 50, VolumeFormat::EagerZeroedThick).await;
        assert_eq!(pool.chunks("eager").await, 50);
        let more = pool.used().await - before;
        assert!((50 * CHUNK..51 * CHUNK).contains(&more), "the pool says so, too: {more}");
        pool.write("eager", 0, 12 * CHUNK + FILE_SYSTEM).await;
        assert_eq!(pool.chunks("eager").await, 50, "before and after it is written");
        let more = pool.used().await - before;
        assert!((50 * CHUNK..52 * CHUNK).contains(&more), "with the nodes of its tree: {more}");
        let id = pool.engine.volume("tank/eager").await.expect("there").id;
        let eager = Volume::open(&pool.rt, id).expect("it opens");
        eager.discard(0, 6 * CHUNK, false).await.expect("discarded");
        let extents = eager.status(0, 50 * CHUNK, 2).await.expect("known");
        assert_eq!((pool.chunks("eager").await, extents[0].mapped), (50, false), "and after a discard");

        // Convert a 100 GB thin disk to thick: 1 → 100 GiB. And back.
        pool.create("disk", 100, VolumeFormat::Thin).await;
        pool.write("disk", 0, FILE_SYSTEM).await;
        assert_eq!(pool.chunks("disk").await, 1);
        pool.engine.volume_convert("tank/disk", VolumeFormat::EagerZeroedThick).await.expect("there is room");
        assert_eq!(pool.chunks("disk").await, 100);
        pool.engine.volume_convert("tank/disk", VolumeFormat::Thin).await.expect("always");
        assert_eq!(pool.chunks("disk").await, 1);

        // Add a RAID group; grow the volume 50 → 100 GB; grow the file system: +0.
        let (before, size) = (pool.chunks("datastore").await, pool.engine.pools().await[0].size);
        let (disks, none) = (names(5..10), Vec::new());
        let add = GroupAdd { layout: LAYOUT, disks, enclosures: none, sectors: Vec::new(), force: false };
        pool.engine.group_add("tank", add).await.expect("added");
        pool.engine.volume_resize("tank/datastore", 100 * CHUNK).await.expect("grown");
        pool.write("datastore", FILE_SYSTEM, 2 * FILE_SYSTEM).await;
        assert_eq!(pool.chunks("datastore").await - before, 0);
        assert!(pool.engine.pools().await[0].size > size * 3 / 2);
    });
}

#[test]
fn a_thick_disk_that_moves_takes_what_is_written_and_gives_all_back() {
    on_a_pool(|pool| async move {
        pool.engine.pool_create(spec("attic", 5..10)).await.expect("created");
        let before = pool.used().await;
        // Live-migrate a 50 GB zeroedthick disk, half written, to another pool: 25 GiB there, and the space here comes back.
        pool.create("disk", 50, VolumeFormat::ZeroedThick).await;
        pool.write("disk", 0, 25 * CHUNK).await;
        let moving = pool.engine.volume_move("tank/disk", "attic", Arc::default());
        let (moved, ()) = futures_util::future::join(moving, pool.write("disk", 0, 5 * CHUNK)).await;
        let moved = moved.expect("moved");
        assert_eq!((moved.used, moved.reserved), (25 * CHUNK, 25 * CHUNK), "to the byte");
        for _ in 0..4 {
            pool.engine.checkpoint("tank").await.expect("checkpoint");
            pool.rt.sleep(Duration::from_millis(50)).await;
        }
        // An empty chunk that stays takes a leaf of the table, and that a node above.
        assert!([0, 2 * 16384].contains(&(pool.used().await - before)));
        assert!(pool.engine.volumes(Some("tank")).await.expect("listed").is_empty());
    });
}
