//! Do service levels reach the disks, from wherever a volume has them, at once, and whatever happens to the pool?

mod cancelled;
mod promises;

use forebay_base::{Id, MIB};
use forebay_pool::check::check;
use forebay_pool::{
    BUILT_IN_LEVELS, Engine, EngineConfig, Error, ErrorKind, Event, Host, Import, Layout, Level, PoolSpec,
    ProjectChange, ProjectProperties, Rate, Setting, Source, Volume, VolumeChange, VolumeFormat, VolumeInfo,
    VolumeSpec,
};
use forebay_runtime::Rt;
use forebay_simulation::{Fate, Image, World, WorldConfig};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BLOCK: usize = 8192;
const CAPPED: Id = Id(77);

struct Pool {
    rt: Rt,
    world: World,
    engine: Engine,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Pool {
    async fn volume(&self, name: &str, level: Option<Id>) -> VolumeInfo {
        let spec = VolumeSpec {
            pool: "tank".into(),
            name: name.into(),
            size: 4 * MIB,
            block_size: BLOCK as u32,
            sync: None,
            compression: None,
            format: VolumeFormat::Thin,
            level,
            own_hosts: false,
        };
        self.engine.volume_create(spec).await.expect("created")
    }

    /// A volume's level, and where it comes from.
    async fn level(&self, name: &str) -> (Id, Source) {
        let info = self.engine.volume(&format!("tank/{name}")).await.expect("there");
        (info.level, info.sources.level)
    }

    async fn set(&self, name: &str, level: Setting<Id>) {
        let change = VolumeChange { level, ..VolumeChange::default() };
        self.engine.volume_set(&format!("tank/{name}"), change).await.expect("set");
    }

    /// Nobody may write more often than this to a volume of this level.
    async fn cap(&self, iops: u64) {
        let level = Level { ceiling: Rate { iops, bytes: 0 }, ..Level::default() };
        self.engine.set_levels(&BTreeMap::from([(CAPPED, level)])).await.expect("set");
    }

    async fn write(&self, volume: &Volume, block: u64) -> bool {
        let data = self.rt.arena().copy(&[(block % 255) as u8 + 1; BLOCK]).freeze();
        volume.write(block * BLOCK as u64, vec![data], false).await.is_ok()
    }

    /// Writes that eight clients get done in a second.
    async fn writes(&self, name: &str) -> u64 {
        let volume =
            Volume::open(&self.rt, self.engine.volume(&format!("tank/{name}")).await.unwrap().id).unwrap();
        let end = self.rt.now().after(Duration::from_secs(1));
        let client = |nth: u64| {
            let volume = volume.clone();
            async move {
                let mut done = 0;
                while self.rt.now() < end {
                    assert!(self.write(&volume, nth).await);
                    done += u64::from(self.rt.now() < end);
                }
                done
            }
        };
        join_all((0..8).map(client)).await.into_iter().sum()
    }

    async fn import(&self) {
        let paths = vec!["sim0".to_string()];
        let report = check(&self.rt, &paths).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
        self.engine.pool_import("tank", paths, Import::default()).await.expect("imported");
    }

    async fn again(&self) {
        self.engine.pool_export("tank").await.expect("exported");
        self.import().await;
    }

    async fn free(&self) -> u64 {
        self.engine.pools().await[0].free
    }
}

fn on_pool<W: Future<Output = ()> + 'static>(main: impl FnOnce(Rc<Pool>) -> W) {
    let service = |ns: u64| ns..ns + 1;
    let world = World::new(WorldConfig {
        read_ns: service(100_000),
        write_ns: service(100_000),
        flush_ns: service(50_000),
        rate: Some(200_000_000),
        ..WorldConfig::new(1)
    });
    world.add_disk(Image::new(256 * MIB));
    let (executor, cores) = world.executor(1);
    let rt = executor.rt().clone();
    let host = Host { id: Id(1), name: "host".into() };
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let told = events.clone();
    let config = EngineConfig {
        memory: 8 * MIB,
        events: Arc::new(move |event| told.lock().unwrap().push(event)),
        host,
    };
    let engine = Engine::new(cores, config);
    let pool = Rc::new(Pool { rt: rt.clone(), world: world.clone(), engine, events });
    let own = pool.clone();
    let work = main(own);
    let whole = async move {
        let spec = PoolSpec {
            name: "tank".into(),
            layout: Layout::Single,
            disks: vec!["sim0".into()],
            log_disks: Vec::new(),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            shards: 1,
            log_bytes: None,
            force: false,
        };
        pool.engine.pool_create(spec).await.expect("created");
        work.await;
        pool.again().await;
        pool.engine.pool_export("tank").await.expect("exported");
    };
    world.run(&executor, Duration::from_secs(3600), whole).expect("finishes");
}

#[test]
fn a_level_comes_from_where_it_is_said_and_stays() {
    on_pool(|pool| async move {
        let [(gold, ..), (silver, ..), ..] = BUILT_IN_LEVELS;
        let said = ProjectProperties { level: Some(silver), ..ProjectProperties::default() };
        pool.engine.project_create("tank/db", said).await.expect("created");
        pool.volume("db/a", None).await;
        pool.volume("db/b", Some(gold)).await;
        pool.volume("c", None).await;
        let expect = async |a: (Id, Source), b: (Id, Source)| {
            assert_eq!(pool.level("db/a").await, a);
            assert_eq!(pool.level("db/b").await, b);
            assert_eq!(pool.level("c").await, (Id(0), Source::Default));
        };
        expect((silver, Source::Project), (gold, Source::Own)).await;
        pool.again().await;
        expect((silver, Source::Project), (gold, Source::Own)).await;

        // A clone has of its own what its volume has.
        pool.engine.snapshot_create(vec!["tank/db/b".into()], "s").await.expect("taken");
        pool.engine.volume_clone("tank/db/b@s", "clone").await.expect("cloned");
        assert_eq!(pool.level("clone").await, (gold, Source::Own));

        // None at all is a value, too.
        pool.set("db/a", Setting::Own(Id(0))).await;
        pool.set("db/b", Setting::Inherit).await;
        expect((Id(0), Source::Own), (silver, Source::Project)).await;
        let images = pool.world.power_loss(|_, _| Fate::Lost);
        pool.engine.pool_export("tank").await.expect("exported");
        images.into_iter().enumerate().for_each(|(disk, image)| pool.world.set_image(disk, image));
        pool.import().await;
        expect((Id(0), Source::Own), (silver, Source::Project)).await;

        let change = ProjectChange { level: Setting::Inherit, ..ProjectChange::default() };
        pool.engine.project_set("tank/db", change).await.expect("set");
        expect((Id(0), Source::Own), (Id(0), Source::Default)).await;
    });
}

#[test]
fn a_ceiling_is_in_force_at_once_wherever_it_comes_from() {
    on_pool(|pool| async move {
        pool.engine.project_create("tank/db", ProjectProperties::default()).await.expect("created");
        pool.volume("db/a", None).await;
        pool.cap(500).await;
        let free = pool.writes("db/a").await;
        assert!(free > 2000, "nothing bounds it: {free}");
        // Up to 10 ms of it come at once.
        let is = |writes: u64, cap: u64| writes.abs_diff(cap) <= 12 + cap / 50;
        let set = async |level| {
            let change = ProjectChange { level, ..ProjectChange::default() };
            pool.engine.project_set("tank/db", change).await.expect("set");
        };
        set(Setting::Own(CAPPED)).await;
        let writes = pool.writes("db/a").await;
        assert!(is(writes, 500), "the project's: {writes}");
        pool.cap(1000).await;
        let writes = pool.writes("db/a").await;
        assert!(is(writes, 1000), "the level is another: {writes}");
        pool.again().await;
        let writes = pool.writes("db/a").await;
        assert!(is(writes, 1000), "after an import: {writes}");
        pool.set("db/a", Setting::Own(Id(0))).await;
        assert!(pool.writes("db/a").await > 2000, "it has none any more");
        pool.set("db/a", Setting::Own(Id(12345))).await;
        assert!(pool.writes("db/a").await > 2000, "nobody knows this one");
    });
}

/// Goal: volumes of a project are under its ceiling together, whatever each has of its own, and share it evenly.
#[test]
fn a_project_has_a_ceiling_for_all_its_volumes() {
    on_pool(|pool| async move {
        let ceiling = Rate { iops: 1000, bytes: 0 };
        let bound = ProjectProperties { ceiling, ..ProjectProperties::default() };
        pool.engine.project_create("tank/db", bound).await.expect("created");
        pool.cap(200).await;
        pool.volume("db/a", None).await;
        pool.volume("db/b", None).await;
        pool.volume("db/capped", Some(CAPPED)).await;
        pool.volume("free", None).await;
        let is = |writes: u64, cap: u64| writes.abs_diff(cap) <= 12 + cap / 20;
        let all = async || {
            let names = ["db/a", "db/b", "db/capped", "free"];
            let writes = join_all(names.iter().map(|name| pool.writes(name))).await;
            let together: u64 = writes[..3].iter().sum();
            (writes, together)
        };
        for _ in 0..2 {
            let (writes, together) = all().await;
            assert!(is(together, 1000) && is(writes[0], 400) && is(writes[1], 400), "{writes:?}");
            assert!(is(writes[2], 200), "{writes:?}");
            pool.again().await;
        }
        // While they wait.
        let set = async |max_iops| {
            pool.rt.sleep(Duration::from_millis(500)).await;
            let change = ProjectChange { max_iops, ..ProjectChange::default() };
            pool.engine.project_set("tank/db", change).await.expect("set");
        };
        let ((_, together), ()) = futures_util::future::join(all(), set(Setting::Own(3000))).await;
        assert!(is(together, 2000), "{together}");
        set(Setting::Inherit).await;
        assert!(pool.writes("db/a").await > 2000);
        let info = pool.engine.project("tank/db").await.expect("there");
        assert_eq!(info.properties.ceiling, Rate::default());
    });
}

/// Goal: who waits at a ceiling is let through when that goes, and who goes away leaves nothing behind.
#[test]
fn who_waits_at_a_ceiling_may_go_away_or_is_let_through() {
    on_pool(|pool| async move {
        let id = pool.volume("a", Some(CAPPED)).await.id;
        pool.cap(1).await;
        let volume = Volume::open(&pool.rt, id).expect("open");
        let started = pool.rt.now();
        let spawn = |block: u64| {
            let (pool, volume) = (pool.clone(), volume.clone());
            pool.rt.clone().spawn(async move { pool.write(&volume, block).await })
        };
        assert!(pool.write(&volume, 0).await);
        let waits = spawn(1);
        // The clients of these are gone before their turn.
        for block in 2..6 {
            let gone = pool.write(&volume, block);
            let soon = pool.rt.sleep(Duration::from_millis(1));
            futures_util::future::select(std::pin::pin!(gone), std::pin::pin!(soon)).await;
        }
        pool.rt.sleep(Duration::from_millis(100)).await;
        pool.cap(0).await;
        assert!(waits.await);
        assert!(pool.rt.now().since(started) < 500_000_000, "it did not wait for its second");
        for block in 0..8 {
            let data = volume.read(block * BLOCK as u64, BLOCK).await.expect("readable");
            let expected = if block < 2 { block as u8 + 1 } else { 0 };
            assert!(data[0].iter().all(|byte| *byte == expected), "block {block}");
        }
    });
}

/// Goal: what waits at a ceiling has not begun: other volumes, snapshots and the export go on as if it were not there.
#[test]
fn who_waits_at_a_ceiling_hinders_nobody() {
    on_pool(|pool| async move {
        pool.cap(1).await;
        let id = pool.volume("capped", Some(CAPPED)).await.id;
        pool.volume("free", None).await;
        let alone = pool.writes("free").await;
        let volume = Volume::open(&pool.rt, id).expect("open");
        assert!(pool.write(&volume, 0).await);
        // More than all that may be in flight on a shard.
        let large = pool.rt.arena().copy(&vec![7; MIB as usize]).freeze();
        let waiting: Vec<_> = (0..256)
            .map(|_| {
                let (volume, large) = (volume.clone(), large.clone());
                pool.rt.spawn(async move { volume.write(0, vec![large], false).await })
            })
            .collect();
        let beside = pool.writes("free").await;
        // There are checkpoints in some seconds.
        assert!(beside * 2 >= alone, "{beside} beside who waits, {alone} alone");
        let begun = pool.rt.now();
        pool.engine.snapshot_create(vec!["tank/capped".into()], "s").await.expect("taken");
        let took = pool.rt.now().since(begun);
        assert!(took < 300_000_000, "a snapshot took {took} ns");
        let begun = pool.rt.now();
        pool.again().await;
        let took = pool.rt.now().since(begun);
        assert!(took < 2_000_000_000, "export and import took {took} ns");
        let done = join_all(waiting).await.into_iter().filter(|result| result.is_ok()).count();
        assert!(done <= 4, "{done} of them were written");
    });
}

#[test]
fn a_ceiling_counts_what_is_in_memory_too() {
    on_pool(|pool| async move {
        pool.cap(100).await;
        let id = pool.volume("a", Some(CAPPED)).await.id;
        let volume = Volume::open(&pool.rt, id).expect("open");
        assert!(pool.write(&volume, 0).await);
        let (end, mut reads) = (pool.rt.now().after(Duration::from_secs(1)), 0);
        while pool.rt.now() < end {
            volume.read(0, BLOCK).await.expect("readable");
            reads += 1;
        }
        assert!((98..=103).contains(&reads), "{reads} of the same block");
    });
}

#[test]
fn a_measurement_leaves_figures_and_nothing_else() {
    on_pool(|pool| async move {
        pool.volume("a", None).await;
        let free = pool.free().await;
        assert_eq!(pool.engine.pools().await[0].speed, None);
        let (one, other) = futures_util::future::join(
            pool.engine.pool_calibrate("tank"),
            pool.engine.pool_calibrate("tank"),
        )
        .await;
        let kind = |result: Result<_, Error>| result.map_err(|error| error.kind);
        assert_eq!(kind(other.map(|_| ())), Err(ErrorKind::Conflict), "one at a time");
        let speed = one.expect("measured");
        assert!(speed.read_iops > 1000 && speed.write_iops > 1000, "{speed:?}");
        assert!(speed.read_bytes > 50 * MIB && speed.write_bytes > 50 * MIB, "{speed:?}");
        assert!(
            speed.window > Duration::from_micros(10) && speed.window < Duration::from_secs(1),
            "{speed:?}"
        );
        pool.rt.sleep(Duration::from_secs(5)).await;
        let left = pool.free().await;
        assert!(left + 2 * MIB >= free, "what it wrote is given back: {left} of {free} bytes");
        pool.again().await;
        assert_eq!(pool.engine.pools().await[0].speed, Some(speed), "the pool remembers");
        assert!(pool.writes("a").await > 1000, "and goes by it");
    });
}

/// Goal: a loss of power in the middle of a measurement leaves neither a volume nor space that is taken.
#[test]
fn a_crash_ends_a_measurement() {
    for milliseconds in [1, 100, 1000] {
        on_pool(move |pool| async move {
            let free = pool.free().await;
            let engine = pool.engine.clone();
            let measuring = pool.rt.spawn(async move { engine.pool_calibrate("tank").await.map(drop) });
            pool.rt.sleep(Duration::from_millis(milliseconds)).await;
            let images = pool.world.power_loss(|_, _| Fate::Lost);
            pool.engine.pool_export("tank").await.expect("exported");
            drop(measuring.await);
            images.into_iter().enumerate().for_each(|(disk, image)| pool.world.set_image(disk, image));
            pool.import().await;
            assert_eq!(pool.engine.volumes(None).await.expect("listed"), Vec::new());
            pool.rt.sleep(Duration::from_secs(5)).await;
            let left = pool.free().await;
            assert!(left + 2 * MIB >= free, "{milliseconds} ms: {left} of {free} bytes");
        });
    }
}
