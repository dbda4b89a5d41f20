//! Snapshots, clones and rollback on simulated disks: each test asks one question.

use forebay_base::MIB;
use forebay_pool::check::check;
use forebay_pool::{
    Compression, Engine, EngineConfig, ErrorKind, Host, Import, Layout, PoolSpec, Setting, SnapshotChange,
    SnapshotKeep, SnapshotSchedule, SyncPolicy, Volume, VolumeChange, VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Cores, Rt};
use forebay_simulation::{Image, World, WorldConfig};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const PURGE: VolumeDelete = VolumeDelete { with_snapshots: false, purge: true };
const PURGE_ALL: VolumeDelete = VolumeDelete { with_snapshots: true, purge: true };
const LIMIT: Duration = Duration::from_secs(3600);
const BLOCK: u64 = 4096;

struct Pool {
    rt: Rt,
    engine: Engine,
    paths: Vec<String>,
}

impl Pool {
    async fn volume(&self, name: &str, size: u64) -> Volume {
        let spec = VolumeSpec {
            pool: "tank".into(),
            name: name.into(),
            size,
            block_size: BLOCK as u32,
            sync: Some(SyncPolicy::Always),
            compression: Some(Compression::Off),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = self.engine.volume_create(spec).await.expect("created");
        Volume::open(&self.rt, info.id).expect("open")
    }

    async fn open(&self, name: &str) -> Volume {
        let info = self.engine.volume(&format!("tank/{name}")).await.expect("there");
        Volume::open(&self.rt, info.id).expect("open")
    }

    async fn snapshot(&self, name: &str) {
        let (volume, own) = name.split_once('@').expect("VOLUME@NAME");
        self.engine.snapshot_create(vec![format!("tank/{volume}")], own).await.expect("taken");
    }

    /// What a snapshot holds, by way of a clone.
    async fn as_of(&self, snapshot: &str, block: u64) -> u8 {
        self.engine.volume_clone(&format!("tank/{snapshot}"), "look").await.expect("cloned");
        let seen = look(&self.open("look").await, block).await;
        self.engine.volume_delete("tank/look", PURGE).await.expect("deleted");
        seen
    }

    async fn used(&self) -> u64 {
        for _ in 0..3 {
            self.engine.checkpoint("tank").await.expect("checkpoint");
            self.rt.sleep(Duration::from_millis(50)).await;
        }
        self.engine.pools().await[0].used
    }

    async fn again(&self) {
        self.engine.pool_export("tank").await.expect("exported");
        let report = check(&self.rt, &self.paths).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
        self.engine.pool_import("tank", self.paths.clone(), Import::default()).await.expect("imported");
    }
}

async fn mark(volume: &Volume, blocks: impl IntoIterator<Item = u64>, byte: u8) {
    for block in blocks {
        let mut data = forebay_runtime::Arena::new().take(BLOCK as usize);
        data.fill(byte);
        volume.write(block * BLOCK, vec![data.freeze()], false).await.expect("written");
    }
}

async fn look(volume: &Volume, block: u64) -> u8 {
    let parts = volume.read(block * BLOCK, BLOCK as usize).await.expect("readable");
    let first = parts[0][0];
    assert!(parts.iter().flat_map(|part| part.iter()).all(|byte| *byte == first));
    first
}

/// Runs `main` on pools of several kinds.
fn on_pools<W: Future<Output = ()> + 'static>(main: impl Fn(Rc<Pool>) -> W) {
    for (layout, data, log, shards) in [
        (Layout::Single, 1, 0, 1),
        (Layout::Mirror, 2, 1, 2),
        (Layout::Parity { data: 2, parity: 1 }, 3, 0, 1),
    ] {
        let world = World::new(WorldConfig::new(1));
        (0..data + log).for_each(|_| {
            world.add_disk(Image::new(48 * MIB));
        });
        let (executor, cores): (_, Cores) = world.executor(shards);
        let rt = executor.rt().clone();
        let names = |range: std::ops::Range<usize>| range.map(|nth| format!("sim{nth}")).collect::<Vec<_>>();
        let spec = PoolSpec {
            name: "tank".into(),
            layout,
            disks: names(0..data),
            log_disks: names(data..data + log),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            shards,
            log_bytes: None,
            force: false,
        };
        let config = EngineConfig { memory: 16 << 20, events: Arc::new(|_| ()), host: Host::default() };
        let pool = Rc::new(Pool { rt, engine: Engine::new(cores, config), paths: names(0..data + log) });
        let test = main(pool.clone());
        let whole = async move {
            pool.engine.pool_create(spec).await.expect("created");
            test.await;
            pool.again().await;
        };
        world.run(&executor, LIMIT, whole).expect("finishes");
    }
}

#[test]
fn a_snapshot_keeps_what_was_written_before_it() {
    on_pools(|pool| async move {
        let a = pool.volume("a", 16 * MIB).await;
        mark(&a, [0, 1, 700, 3000], 1).await;
        pool.snapshot("a@one").await;
        mark(&a, [1, 2], 2).await;
        pool.snapshot("a@two").await;
        mark(&a, [1, 700], 3).await;
        a.discard(3000 * BLOCK, BLOCK, false).await.expect("discarded");
        for _ in 0..2 {
            for (block, one, two) in [(0, 1, 1), (1, 1, 2), (2, 0, 2), (700, 1, 1), (3000, 1, 1)] {
                assert_eq!((pool.as_of("a@one", block).await, pool.as_of("a@two", block).await), (one, two));
            }
            let a = pool.open("a").await;
            for (block, byte) in [(0, 1), (1, 3), (2, 2), (700, 3), (3000, 0)] {
                assert_eq!(look(&a, block).await, byte);
            }
            pool.again().await;
        }
    });
}

#[test]
fn deleting_gives_back_what_nothing_else_has() {
    on_pools(|pool| async move {
        let a = pool.volume("a", 16 * MIB).await;
        let empty = pool.used().await;
        mark(&a, 0..600, 1).await;
        let before = pool.used().await;
        for (name, byte) in [("one", 2), ("two", 3), ("three", 4)] {
            pool.snapshot(&format!("a@{name}")).await;
            mark(&a, 100..200, byte).await;
        }
        for name in ["one", "two", "three"] {
            let snapshot = pool.engine.snapshot(&format!("tank/a@{name}")).await.expect("there");
            assert_eq!(snapshot.unique, Some(100 * BLOCK), "{name}");
        }
        assert_eq!(pool.engine.volume("tank/a").await.expect("there").snapshot_bytes, Some(300 * BLOCK));
        pool.engine.snapshot_delete("tank/a@two").await.expect("deleted");
        pool.used().await;
        pool.again().await;
        assert_eq!((pool.as_of("a@one", 150).await, pool.as_of("a@three", 150).await), (1, 3));
        for name in ["one", "three"] {
            pool.engine.snapshot_delete(&format!("tank/a@{name}")).await.expect("deleted");
        }
        let after = pool.used().await;
        assert!(after <= before + 64 * BLOCK, "{before} bytes before the snapshots, {after} after them");
        let a = pool.open("a").await;
        assert_eq!((look(&a, 99).await, look(&a, 150).await), (1, 4));
        pool.snapshot("a@last").await;
        let refused = pool.engine.volume_delete("tank/a", PURGE).await.err().map(|error| error.kind);
        assert_eq!(refused, Some(ErrorKind::Unsafe));
        pool.engine.volume_delete("tank/a", PURGE_ALL).await.expect("deleted");
        let after = pool.used().await;
        assert!(after <= empty + 64 * BLOCK, "{empty} bytes without a volume, {after} after it");
    });
}

#[test]
fn clones_live_their_own_lives_and_can_be_promoted() {
    on_pools(|pool| async move {
        let engine = &pool.engine;
        let a = pool.volume("a", 8 * MIB).await;
        mark(&a, 0..20, 1).await;
        pool.snapshot("a@one").await;
        mark(&a, 0..10, 2).await;
        let clone = engine.volume_clone("tank/a@one", "b").await.expect("cloned");
        assert_eq!((clone.origin.as_deref(), clone.size, clone.mapped), (Some("a@one"), 8 * MIB, 20 * BLOCK));
        let b = pool.open("b").await;
        mark(&b, 5..8, 3).await;
        assert_eq!((look(&b, 0).await, look(&b, 5).await, look(&a, 5).await), (1, 3, 2));
        let refused = engine.snapshot_delete("tank/a@one").await.expect_err("b needs it");
        assert_eq!(refused.kind, ErrorKind::Conflict);
        assert!(refused.message.contains('b'), "{refused}");
        let refused = engine.volume_delete("tank/a", PURGE_ALL).await.err().map(|error| error.kind);
        assert_eq!(refused, Some(ErrorKind::Conflict));
        // Also when it has snapshots of its own, it came from where it came from.
        pool.snapshot("b@own").await;
        pool.again().await;
        assert_eq!(engine.volume("tank/b").await.expect("there").origin.as_deref(), Some("a@one"));
        assert_eq!(engine.volume_promote("tank/b").await.expect("promoted").snapshots, 2);
        let origin = async |name: &str| engine.volume(name).await.expect("there").origin;
        assert_eq!((origin("tank/a").await.as_deref(), origin("tank/b").await), (Some("b@one"), None));
        engine.volume_delete("tank/a", PURGE_ALL).await.expect("deleted");
        pool.used().await;
        engine.snapshot_delete("tank/b@one").await.expect("nobody else needs it");
        engine.snapshot_delete("tank/b@own").await.expect("nobody else needs it");
        pool.used().await;
        pool.again().await;
        let b = pool.open("b").await;
        assert_eq!((look(&b, 0).await, look(&b, 5).await, look(&b, 19).await), (1, 3, 1));
    });
}

#[test]
fn a_volume_goes_back_to_a_snapshot_and_newer_ones_stay() {
    on_pools(|pool| async move {
        let engine = &pool.engine;
        let a = pool.volume("a", 8 * MIB).await;
        mark(&a, 0..20, 1).await;
        pool.snapshot("a@one").await;
        mark(&a, 0..10, 2).await;
        pool.snapshot("a@two").await;
        engine.volume_resize("tank/a", 16 * MIB).await.expect("grown");
        mark(&a, 3000..3010, 3).await;
        let back = engine.volume_rollback("tank/a@one").await.expect("rolled back");
        assert_eq!((back.size, back.mapped, back.snapshots), (8 * MIB, 20 * BLOCK, 2));
        assert_eq!((look(&a, 0).await, look(&a, 15).await), (1, 1));
        mark(&a, 0..5, 4).await;
        assert_eq!((pool.as_of("a@one", 0).await, pool.as_of("a@two", 0).await), (1, 2));
        let refused = engine.snapshot_delete("tank/a@one").await.err().map(|error| error.kind);
        assert_eq!(refused, Some(ErrorKind::Conflict), "both the volume and a newer snapshot stand on it");
        pool.used().await;
        pool.again().await;
        let a = pool.open("a").await;
        assert_eq!((look(&a, 0).await, look(&a, 7).await), (4, 1));
        engine.volume_rollback("tank/a@two").await.expect("and forward again");
        assert_eq!((look(&a, 0).await, look(&a, 15).await), (2, 1));
        engine.snapshot_delete("tank/a@one").await.expect("only the newer one stands on it");
        pool.used().await;
    });
}

#[test]
fn held_ones_stay_and_schedules_keep_as_many_as_they_say() {
    on_pools(|pool| async move {
        let engine = &pool.engine;
        let a = pool.volume("a", 8 * MIB).await;
        mark(&a, 0..20, 1).await;
        pool.snapshot("a@one").await;
        let held = SnapshotChange { held: Some(true), ..Default::default() };
        assert!(engine.snapshot_set("tank/a@one", held).await.expect("set").held);
        let refused = engine.snapshot_delete("tank/a@one").await.err().map(|error| error.kind);
        assert_eq!(refused, Some(ErrorKind::Conflict));
        let schedule = SnapshotSchedule { every_seconds: 60, keep: SnapshotKeep::last(3) };
        let set = |schedule| VolumeChange { schedule: Setting::Own(schedule), ..Default::default() };
        engine.volume_set("tank/a", set(schedule)).await.expect("set");
        pool.again().await;
        pool.rt.sleep(Duration::from_secs(600)).await;
        let snapshots = engine.snapshots(Some("tank")).await.expect("listed");
        let scheduled = snapshots.iter().filter(|snapshot| snapshot.scheduled).count();
        assert!((3..=4).contains(&scheduled), "{scheduled} of them");
        assert!(snapshots.iter().any(|snapshot| snapshot.name == "one" && snapshot.held));
        assert_eq!(engine.volume("tank/a").await.expect("there").schedule, schedule);
        engine.volume_set("tank/a", set(SnapshotSchedule::default())).await.expect("set");
    });
}
