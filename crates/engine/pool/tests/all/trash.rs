//! The trash on simulated disks: each test asks one question.

use forebay_base::{Id, MIB};
use forebay_pool::check::check;
use forebay_pool::{
    Compression, Engine, EngineConfig, Error, ErrorKind, Event, Host, Import, IoError, Layout, PoolSpec,
    ProjectProperties, Setting, SnapshotChange, SnapshotKeep, SnapshotSchedule, SyncPolicy,
    TRASH_KEEP_SECONDS, Volume, VolumeChange, VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Arena, Cores, Rt};
use forebay_simulation::{Image, World, WorldConfig};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);
const BLOCK: u64 = 4096;
const KEEP: VolumeDelete = VolumeDelete { with_snapshots: false, purge: false };
const KEEP_ALL: VolumeDelete = VolumeDelete { with_snapshots: true, purge: false };
const PURGE: VolumeDelete = VolumeDelete { with_snapshots: false, purge: true };
const MINUTES: Duration = Duration::from_secs(180);
const DAY_MS: i128 = 24 * 3600 * 1000;

struct Pool {
    rt: Rt,
    world: World,
    engine: Engine,
    paths: Vec<String>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Pool {
    async fn volume(&self, name: &str) -> Volume {
        let spec = VolumeSpec {
            pool: "tank".into(),
            name: name.into(),
            size: 16 * MIB,
            block_size: BLOCK as u32,
            sync: Some(SyncPolicy::Always),
            compression: Some(Compression::Off),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = self.engine.volume_create(spec).await.expect("created");
        self.open(info.id)
    }

    fn open(&self, id: Id) -> Volume {
        Volume::open(&self.rt, id).expect("open")
    }

    async fn id(&self, name: &str) -> Id {
        self.engine.volume(&format!("tank/{name}")).await.expect("there").id
    }

    async fn snapshot(&self, volume: &str, name: &str) {
        self.engine.snapshot_create(vec![format!("tank/{volume}")], name).await.expect("taken");
    }

    /// Names of what is in the trash.
    async fn trash(&self) -> Vec<String> {
        let trash = self.engine.trash(None).await.expect("listed");
        trash.into_iter().map(|volume| volume.name).collect()
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

    fn told(&self, code: &str) -> usize {
        self.events.lock().expect("nobody panicked").iter().filter(|event| event.code == code).count()
    }
}

async fn mark(volume: &Volume, blocks: impl IntoIterator<Item = u64>, byte: u8) {
    for block in blocks {
        let mut data = Arena::new().take(BLOCK as usize);
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

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

/// Runs `main` on pools of several kinds; the offline checker has the last word.
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
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let sink = events.clone();
        let tell = Arc::new(move |event| sink.lock().expect("nobody panicked").push(event));
        let config = EngineConfig { memory: 16 << 20, events: tell, host: Host::default() };
        let (engine, paths) = (Engine::new(cores, config), names(0..data + log));
        let pool = Rc::new(Pool { rt, world: world.clone(), engine, paths, events });
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
fn a_deleted_volume_comes_back_as_it_was() {
    on_pools(|pool| async move {
        let a = pool.volume("a").await;
        mark(&a, [0, 700], 1).await;
        pool.snapshot("a", "one").await;
        mark(&a, [1, 700], 2).await;
        a.store_attributes(b"reserved").await.expect("stored");
        let id = pool.id("a").await;
        // In the log only, as far as there is a log for data.
        mark(&a, [3000], 3).await;
        assert_eq!(kind(pool.engine.volume_delete("tank/a", KEEP).await), Some(ErrorKind::Unsafe));
        pool.engine.volume_delete("tank/a", KEEP_ALL).await.expect("deleted");
        assert_eq!(a.read(0, 4096).await.err(), Some(IoError::Gone));
        assert!(Volume::open(&pool.rt, id).is_err());
        assert_eq!(kind(pool.engine.volume("tank/a").await), Some(ErrorKind::NotFound));
        assert_eq!(kind(pool.engine.volume(&id.to_string()).await), Some(ErrorKind::NotFound));
        assert_eq!(pool.engine.volumes(None).await.expect("listed"), Vec::new());
        for is_again in [false, true] {
            if is_again {
                pool.again().await;
            }
            assert_eq!(pool.engine.snapshots(None).await.expect("listed"), Vec::new());
            let trash = pool.engine.trash(Some("tank")).await.expect("listed");
            assert_eq!(trash.len(), 1);
            let info = &trash[0];
            assert_eq!((info.id, &*info.name, info.snapshots, info.size), (id, "a", 1, 16 * MIB));
            assert_eq!(info.purge.0 - info.deleted.0, u64::from(TRASH_KEEP_SECONDS) * 1000);
            assert!(info.mapped > 0);
        }
        let back = pool.engine.volume_restore("tank/a", None).await.expect("restored");
        assert_eq!((back.id, &*back.name, back.snapshots), (id, "a", 1));
        assert!(pool.trash().await.is_empty());
        for is_again in [false, true] {
            if is_again {
                pool.again().await;
            }
            let a = pool.open(id);
            for (block, byte) in [(0, 1), (1, 2), (700, 2), (3000, 3), (5, 0)] {
                assert_eq!(look(&a, block).await, byte, "block {block}");
            }
            assert_eq!(a.load_attributes().await, Ok(Some(b"reserved".to_vec())));
            mark(&a, [5], 0).await;
        }
        pool.engine.volume_rollback("tank/a@one").await.expect("its snapshots are there again");
        assert_eq!(look(&pool.open(id), 700).await, 1);
    });
}

#[test]
fn the_name_is_free_at_once_and_those_of_one_name_go_by_their_ids() {
    on_pools(|pool| async move {
        let mut ids = Vec::new();
        for byte in [1, 2] {
            let a = pool.volume("a").await;
            mark(&a, [9], byte).await;
            ids.push(pool.id("a").await.to_string());
            pool.engine.volume_delete("tank/a", KEEP).await.expect("deleted");
            pool.rt.sleep(MINUTES).await;
        }
        pool.volume("a").await;
        let which = pool.engine.volume_restore("tank/a", Some("b")).await.expect_err("ambiguous");
        assert_eq!(which.kind, ErrorKind::Conflict);
        assert!(ids.iter().all(|id| which.message.contains(id)), "{which}");
        let taken = pool.engine.volume_restore(&ids[0], None).await.expect_err("taken");
        assert_eq!((taken.kind, &*taken.object), (ErrorKind::Conflict, "tank/a"));
        let nobody = pool.engine.volume_restore("tank/b", None).await;
        assert_eq!(kind(nobody), Some(ErrorKind::NotFound));
        let odd = pool.engine.volume_restore(&ids[0], Some("a b")).await;
        assert_eq!(kind(odd), Some(ErrorKind::Invalid("name")));
        for project in ["tank/old", "tank/older"] {
            pool.engine.project_create(project, ProjectProperties::default()).await.expect("created");
        }
        pool.engine.volume_restore(&ids[0], Some("old/a")).await.expect("restored");
        // Now it is the only one.
        pool.engine.volume_restore("tank/a", Some("older/a")).await.expect("restored");
        pool.again().await;
        for (name, byte) in [("a", 0), ("old/a", 1), ("older/a", 2)] {
            assert_eq!(look(&pool.open(pool.id(name).await), 9).await, byte, "{name}");
        }
        assert!(pool.trash().await.is_empty());
    });
}

#[test]
fn its_space_comes_back_after_seven_days() {
    on_pools(|pool| async move {
        let empty = pool.used().await;
        let a = pool.volume("a").await;
        mark(&a, 0..1000, 1).await;
        pool.snapshot("a", "one").await;
        mark(&a, 0..1000, 2).await;
        let before = pool.used().await;
        pool.engine.volume_delete("tank/a", KEEP_ALL).await.expect("deleted");
        assert!(pool.used().await >= before);
        let day = Duration::from_secs(24 * 3600);
        pool.rt.sleep(7 * day - MINUTES).await;
        assert_eq!((pool.trash().await.len(), pool.told("volume.purged")), (1, 0));
        pool.rt.sleep(2 * MINUTES).await;
        assert_eq!((pool.trash().await.len(), pool.told("volume.purged")), (0, 1));
        let after = pool.used().await;
        assert!(after < empty + MIB, "{after} of {before}");
        pool.again().await;
        assert!(pool.trash().await.is_empty());
    });
}

#[test]
fn a_wrong_clock_purges_nothing_early() {
    on_pools(|pool| async move {
        pool.world.jump_wall(30 * DAY_MS);
        pool.volume("a").await;
        pool.engine.volume_delete("tank/a", KEEP).await.expect("deleted");
        // It was ahead: the volume stays longer.
        pool.world.jump_wall(-20 * DAY_MS);
        pool.rt.sleep(MINUTES).await;
        // It is behind, and then right again.
        pool.volume("b").await;
        pool.engine.volume_delete("tank/b", KEEP).await.expect("deleted");
        pool.world.jump_wall(20 * DAY_MS);
        pool.rt.sleep(MINUTES).await;
        assert_eq!(pool.trash().await, ["a", "b"]);
        // It is over, also when the pool was away meanwhile.
        pool.engine.pool_export("tank").await.expect("exported");
        pool.world.jump_wall(8 * DAY_MS);
        pool.engine.pool_import("tank", pool.paths.clone(), Import::default()).await.expect("imported");
        assert_eq!(pool.trash().await, ["a", "b"]);
        pool.rt.sleep(MINUTES).await;
        assert!(pool.trash().await.is_empty());
    });
}

#[test]
fn the_pool_says_how_long() {
    on_pools(|pool| async move {
        let keep = async || pool.engine.pools().await[0].trash_keep_seconds;
        assert_eq!(keep().await, TRASH_KEEP_SECONDS);
        pool.volume("a").await;
        pool.engine.volume_delete("tank/a", KEEP).await.expect("deleted");
        pool.engine.set_trash_keep("tank", 3600).await.expect("set");
        pool.again().await;
        assert_eq!(keep().await, 3600);
        pool.rt.sleep(Duration::from_secs(3600) - MINUTES).await;
        assert_eq!(pool.trash().await, ["a"]);
        pool.rt.sleep(2 * MINUTES).await;
        assert!(pool.trash().await.is_empty());
        pool.engine.set_trash_keep("tank", 0).await.expect("set");
        pool.again().await;
        assert_eq!(keep().await, 0);
        pool.volume("a").await;
        pool.engine.volume_delete("tank/a", KEEP).await.expect("deleted");
        assert!(pool.trash().await.is_empty());
        let odd = pool.engine.set_trash_keep("tank", u32::MAX).await;
        assert_eq!(kind(odd), Some(ErrorKind::Invalid("trash_keep_seconds")));
    });
}

#[test]
fn purging_gives_back_what_only_the_volume_has() {
    on_pools(|pool| async move {
        let (a, empty) = (pool.volume("a").await, pool.used().await);
        mark(&a, 0..800, 1).await;
        let id = pool.id("a").await.to_string();
        pool.engine.volume_delete("tank/a", KEEP).await.expect("deleted");
        // Another one is not touched by either.
        let other = pool.volume("a").await;
        mark(&other, [7], 7).await;
        pool.engine.volume_purge(&id).await.expect("purged");
        assert!(pool.used().await < empty + MIB);
        assert_eq!(kind(pool.engine.volume_purge(&id).await), Some(ErrorKind::NotFound));
        assert_eq!(kind(pool.engine.volume_restore("tank/a", Some("b")).await), Some(ErrorKind::NotFound));
        mark(&other, 100..900, 8).await;
        pool.engine.volume_delete("tank/a", PURGE).await.expect("deleted");
        assert!(pool.trash().await.is_empty());
        assert!(pool.used().await < empty + MIB);
    });
}

#[test]
fn a_volume_in_the_trash_keeps_the_snapshot_that_it_grew_from() {
    on_pools(|pool| async move {
        let a = pool.volume("a").await;
        mark(&a, 0..600, 1).await;
        pool.snapshot("a", "one").await;
        pool.engine.volume_clone("tank/a@one", "c").await.expect("cloned");
        let clone = pool.id("c").await;
        mark(&pool.open(clone), [3], 3).await;
        mark(&a, 0..600, 2).await;
        assert_eq!(kind(pool.engine.volume_delete("tank/a", KEEP_ALL).await), Some(ErrorKind::Conflict));
        pool.engine.volume_delete("tank/c", KEEP).await.expect("deleted");
        pool.again().await;
        let refused = pool.engine.snapshot_delete("tank/a@one").await.expect_err("the clone needs it");
        assert!(refused.message.contains("c (in the trash)"), "{refused}");
        assert_eq!(kind(pool.engine.volume_delete("tank/a", KEEP_ALL).await), Some(ErrorKind::Conflict));
        let purge_all = VolumeDelete { with_snapshots: true, purge: true };
        assert_eq!(kind(pool.engine.volume_delete("tank/a", purge_all).await), Some(ErrorKind::Conflict));
        pool.engine.volume_restore("tank/c", None).await.expect("restored");
        assert_eq!((look(&pool.open(clone), 3).await, look(&pool.open(clone), 599).await), (3, 1));
        // The other way round: the volume goes, and what it shares stays with who has the snapshot now.
        pool.engine.volume_promote("tank/c").await.expect("promoted");
        pool.engine.volume_delete("tank/a", KEEP).await.expect("deleted");
        let refused = pool.engine.snapshot_delete("tank/c@one").await.expect_err("the volume needs it");
        assert!(refused.message.contains("a (in the trash)"), "{refused}");
        pool.engine.volume_purge("tank/a").await.expect("purged");
        pool.used().await;
        pool.engine.snapshot_delete("tank/c@one").await.expect("deleted");
        pool.again().await;
        assert_eq!((look(&pool.open(clone), 3).await, look(&pool.open(clone), 599).await), (3, 1));
    });
}

#[test]
fn a_snapshot_can_go_from_beneath_a_volume_in_the_trash() {
    on_pools(|pool| async move {
        let a = pool.volume("a").await;
        mark(&a, 0..600, 1).await;
        pool.snapshot("a", "one").await;
        mark(&a, 0..300, 2).await;
        let before = pool.used().await;
        pool.engine.snapshot_delete("tank/a@one").await.expect("deleted");
        // At once: the deletion goes on beside a volume in the trash.
        pool.engine.volume_delete("tank/a", KEEP).await.expect("deleted");
        let after = pool.used().await;
        assert!(after < before, "{after} of {before}");
        pool.again().await;
        pool.engine.volume_restore("tank/a", None).await.expect("restored");
        let a = pool.open(pool.id("a").await);
        assert_eq!((look(&a, 0).await, look(&a, 299).await, look(&a, 300).await), (2, 2, 1));
    });
}

#[test]
fn snapshots_in_the_trash_rest() {
    on_pools(|pool| async move {
        pool.volume("a").await;
        let schedule = SnapshotSchedule { every_seconds: 60, keep: SnapshotKeep::last(3) };
        let change = VolumeChange { schedule: Setting::Own(schedule), ..Default::default() };
        pool.engine.volume_set("tank/a", change).await.expect("set");
        pool.rt.sleep(MINUTES).await;
        let taken = pool.engine.snapshots(None).await.expect("listed");
        assert!(!taken.is_empty());
        let id = taken[0].id.to_string();
        pool.engine.volume_delete("tank/a", KEEP_ALL).await.expect("deleted");
        let count = pool.engine.trash(None).await.expect("listed")[0].snapshots;
        pool.rt.sleep(MINUTES).await;
        assert_eq!(pool.engine.trash(None).await.expect("listed")[0].snapshots, count);
        assert_eq!(kind(pool.engine.snapshot(&id).await), Some(ErrorKind::NotFound));
        assert_eq!(kind(pool.engine.volume_clone(&id, "b").await), Some(ErrorKind::NotFound));
        let held = SnapshotChange { held: Some(true), ..Default::default() };
        assert_eq!(kind(pool.engine.snapshot_set(&id, held).await), Some(ErrorKind::NotFound));
        assert_eq!(kind(pool.engine.snapshot_delete(&id).await), Some(ErrorKind::NotFound));
        pool.engine.volume_restore("tank/a", None).await.expect("restored");
        pool.rt.sleep(MINUTES).await;
        let names = pool.engine.snapshots(None).await.expect("listed");
        assert_eq!(names.len(), 3);
        assert!(names.iter().all(|snapshot| snapshot.volume == "a"));
    });
}

#[test]
fn a_full_pool_purges_nothing_by_itself() {
    on_pools(|pool| async move {
        let a = pool.volume("a").await;
        mark(&a, 0..1000, 1).await;
        pool.engine.volume_delete("tank/a", KEEP).await.expect("deleted");
        let mut data = Arena::new().take(MIB as usize);
        data.fill(9);
        let (data, mut is_full) = (data.freeze(), false);
        for nth in 0..8 {
            let filler = pool.volume(&format!("filler{nth}")).await;
            for at in 0..16 {
                is_full |= filler.write(at * MIB, vec![data.clone()], false).await == Err(IoError::NoSpace);
            }
        }
        assert!(is_full);
        pool.rt.sleep(MINUTES).await;
        assert_eq!(pool.trash().await, ["a"]);
        pool.engine.volume_restore("tank/a", None).await.expect("restored");
        assert_eq!(look(&pool.open(pool.id("a").await), 999).await, 1);
    });
}

#[test]
fn what_is_in_the_trash_makes_room_by_moving() {
    on_pools(|pool| async move {
        let a = pool.volume("a").await;
        mark(&a, 0..3000, 1).await;
        // Of each chunk, little is left.
        for block in (0..3000).filter(|block| block % 8 != 0) {
            a.discard(block * BLOCK, BLOCK, false).await.expect("discarded");
        }
        mark(&a, [2992], 2).await;
        pool.engine.volume_delete("tank/a", KEEP).await.expect("deleted");
        pool.used().await;
        assert!(pool.engine.pool_compact("tank").await.expect("compacted") > 0);
        pool.again().await;
        pool.engine.volume_restore("tank/a", None).await.expect("restored");
        let a = pool.open(pool.id("a").await);
        for (block, byte) in [(0, 1), (1, 0), (1600, 1), (2984, 1), (2992, 2)] {
            assert_eq!(look(&a, block).await, byte, "block {block}");
        }
    });
}
