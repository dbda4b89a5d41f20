//! Do service levels reach the disks, from wherever a volume has them, at once, and whatever happens to the pool?

use forebay_base::{Id, MIB};
use forebay_pool::check::check;
use forebay_pool::{
    BUILT_IN_LEVELS, Cause, Class, Engine, EngineConfig, Error, ErrorKind, Event, Host, Import, Layout,
    Level, PoolSpec, ProjectChange, ProjectProperties, PromiseChange, Rate, Setting, Source, Standing, State,
    Volume, VolumeChange, VolumeFormat, VolumeInfo, VolumeSecond, VolumeSpec,
};
use forebay_runtime::Rt;
use forebay_simulation::{Action, Fate, Image, Rule, World, WorldConfig};
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
        let data = self.rt.arena().copy(&[block as u8 + 1; BLOCK]).freeze();
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

    async fn levels<const N: usize>(&self, levels: [(Id, Level); N]) {
        self.engine.set_levels(&BTreeMap::from(levels)).await.expect("set");
    }

    /// So many writes of this size at a time, at any places of the volume, for so many seconds.
    async fn load(&self, name: &str, bytes: u64, depth: u64, seconds: u64) {
        let info = self.engine.volume(&format!("tank/{name}")).await.unwrap();
        let volume = Volume::open(&self.rt, info.id).unwrap();
        let end = self.rt.now().after(Duration::from_secs(seconds));
        let client = |_| async {
            while self.rt.now() < end {
                let at = self.rt.random() % (info.size / bytes) * bytes;
                let data = self.rt.arena().take_zeroed(bytes as usize).freeze();
                volume.write(at, vec![data], false).await.expect("written");
            }
        };
        join_all((0..depth).map(client)).await;
    }

    /// One write of 8 KiB every so often, for so many seconds, whether or not those before are answered.
    async fn ask(self: &Rc<Self>, name: &str, every: Duration, seconds: u64) {
        let id = self.engine.volume(&format!("tank/{name}")).await.unwrap().id;
        let volume = Volume::open(&self.rt, id).unwrap();
        let end = self.rt.now().after(Duration::from_secs(seconds));
        let mut asked = Vec::new();
        while self.rt.now() < end {
            let (volume, at) = (volume.clone(), self.rt.random() % 500 * BLOCK as u64);
            let data = self.rt.arena().take_zeroed(BLOCK).freeze();
            asked.push(self.rt.spawn(async move { volume.write(at, vec![data], false).await }));
            self.rt.sleep(every).await;
        }
        for one in asked {
            one.await.expect("written");
        }
    }

    /// Lines of a volume in seconds after that number, the first and the last of it left out: they are of parts of seconds.
    async fn lines(&self, name: &str, after: u64) -> Vec<VolumeSecond> {
        let seconds = self.engine.ledger("tank", after).await.expect("kept");
        let lines = seconds.iter().filter_map(|second| second.volumes.iter().find(|line| line.name == name));
        let lines: Vec<VolumeSecond> = lines.cloned().collect();
        assert!(lines.len() >= 3, "{name} was asked for something in {} seconds", lines.len());
        lines[1..lines.len() - 1].to_vec()
    }

    async fn number(&self) -> u64 {
        self.engine.ledger("tank", 0).await.expect("kept").last().map_or(0, |second| second.number)
    }

    fn told(&self, code: &str) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let of_code = events.iter().filter(|event| event.code == code);
        of_code.map(|event| format!("{}: {}", event.object, event.message)).collect()
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

fn promise(iops: u64, milliseconds: u64) -> Level {
    Level {
        class: Class::MissionCritical,
        floor: Rate { iops, bytes: 0 },
        latency: Some(Duration::from_millis(milliseconds)),
        ..Level::default()
    }
}

const GOLD: Id = Id(1000);

#[test]
fn the_ledger_has_what_clients_asked_for_and_got() {
    on_pool(|pool| async move {
        pool.volume("a", None).await;
        pool.volume("idle", None).await;
        pool.rt.sleep(Duration::from_millis(3500)).await;
        let begun = pool.number().await;
        assert!((2..=4).contains(&begun), "a second each: {begun}");
        let volume = Volume::open(&pool.rt, pool.engine.volume("tank/a").await.unwrap().id).unwrap();
        let mut slowest = 0;
        for block in 0..100 {
            let asked = pool.rt.now();
            assert!(pool.write(&volume, block).await);
            slowest = slowest.max(pool.rt.now().since(asked));
        }
        for block in 0..50 {
            volume.read(block * BLOCK as u64, BLOCK).await.expect("read");
        }
        pool.rt.sleep(Duration::from_secs(3)).await;
        let seconds = pool.engine.ledger("tank", begun).await.expect("kept");
        let lines: Vec<&VolumeSecond> = seconds.iter().flat_map(|second| &second.volumes).collect();
        assert!(lines.iter().all(|line| line.name == "a" && line.state == State::Met), "{lines:?}");
        let sum = |what: fn(&VolumeSecond) -> u64| lines.iter().map(|line| what(line)).sum::<u64>();
        assert_eq!(sum(|line| line.account.asked), 150);
        assert_eq!(sum(|line| line.account.done), 150);
        assert_eq!(sum(|line| line.account.done_bytes), 150 * BLOCK as u64);
        let p99 = lines.iter().map(|line| line.account.p99).max().unwrap();
        assert!(p99 <= slowest + slowest / 8 && p99 > slowest / 4, "{p99} for {slowest}");
        assert!(lines.iter().any(|line| line.account.cost > 0));
        assert!(seconds.iter().all(|second| second.span.abs_diff(1_000_000_000) < 50_000_000));
    });
}

#[test]
fn who_asks_for_less_or_has_its_floor_is_not_wronged() {
    on_pool(|pool| async move {
        pool.levels([(GOLD, promise(1000, 10))]).await;
        pool.volume("a", Some(GOLD)).await;
        pool.load("a", MIB, 4, 1).await;
        let before = pool.number().await;
        pool.ask("a", Duration::from_millis(5), 5).await;
        let lines = pool.lines("a", before).await;
        assert!(lines.iter().all(|line| line.state == State::NotDemanded), "{lines:?}");
        let before = pool.number().await;
        pool.load("a", BLOCK as u64, 64, 5).await;
        let lines = pool.lines("a", before).await;
        assert!(lines.iter().all(|line| line.state == State::Met && line.account.done > 2000), "{lines:?}");
        let capped = Level { ceiling: Rate { iops: 500, bytes: 0 }, ..promise(1000, 10) };
        pool.levels([(GOLD, capped)]).await;
        let before = pool.number().await;
        pool.load("a", BLOCK as u64, 8, 5).await;
        let lines = pool.lines("a", before).await;
        assert!(lines.iter().all(|line| line.state == State::Capped), "{lines:?}");
        assert_eq!(pool.told("level.violated"), Vec::<String>::new());
    });
}

/// Goal: whoever has the disks is named, a person is told once, and told when it is over.
#[test]
fn a_neighbour_is_named_that_breaks_a_promise() {
    on_pool(|pool| async move {
        // Nobody has measured the pool: nothing keeps the neighbour off the disks.
        pool.levels([(GOLD, promise(1000, 1))]).await;
        pool.volume("db", Some(GOLD)).await;
        pool.volume("flood", None).await;
        pool.load("db", MIB, 4, 1).await;
        let before = pool.number().await;
        let beside = async |seconds| {
            let neighbour = pool.load("flood", MIB, 32, seconds);
            futures_util::future::join(pool.ask("db", Duration::from_millis(5), seconds), neighbour).await;
        };
        beside(8).await;
        let lines = pool.lines("db", before).await;
        let is_told = |line: &VolumeSecond| {
            (line.state, &line.cause) == (State::Violated, &Some(Cause::Neighbour("flood".into())))
        };
        assert!(lines.iter().all(is_told), "{lines:?}");
        assert!(lines.iter().all(|line| line.standing == Some(Standing::Unmeasured)));
        let told = pool.told("level.violated");
        assert!(
            told.len() == 1 && told[0].contains("tank/db: ") && told[0].contains("tank/flood"),
            "{told:?}"
        );
        assert_eq!(pool.told("level.kept").len(), 0);
        pool.ask("db", Duration::from_millis(5), 20).await;
        assert_eq!((pool.told("level.violated").len(), pool.told("level.kept").len()), (1, 1));
        // A second or two are nobody's business.
        beside(2).await;
        pool.rt.sleep(Duration::from_secs(4)).await;
        assert_eq!(pool.told("level.violated").len(), 1);
    });
}

#[test]
fn disks_that_slow_down_are_the_cause_and_can_keep_less() {
    on_pool(|pool| async move {
        pool.volume("db", Some(GOLD)).await;
        pool.volume("other", None).await;
        pool.load("db", MIB, 4, 1).await;
        pool.load("other", MIB, 4, 1).await;
        let speed = pool.engine.pool_calibrate("tank").await.expect("measured");
        pool.levels([(GOLD, promise(speed.read_iops.min(speed.write_iops) / 2, 8))]).await;
        let load = async |depth, seconds| {
            let other = pool.load("other", BLOCK as u64, depth, seconds);
            futures_util::future::join(pool.ask("db", Duration::from_millis(1), seconds), other).await;
        };
        let before = pool.number().await;
        load(4, 6).await;
        let lines = pool.lines("db", before).await;
        assert!(lines.iter().all(|line| line.state == State::NotDemanded), "{lines:?}");
        assert!(lines.iter().all(|line| line.standing == Some(Standing::Promised)), "{lines:?}");

        pool.world.add_rule(Rule::new(0, Action::Slow(100)));
        let before = pool.number().await;
        load(8, 20).await;
        let lines = pool.lines("db", before).await;
        // As long as its floor counted.
        let is_blamed = |line: &&VolumeSecond| line.cause == Some(Cause::Disks);
        let promised = lines.iter().filter(|line| line.standing == Some(Standing::Promised)).count();
        assert!(promised >= 5, "{lines:#?}");
        assert_eq!(lines.iter().filter(is_blamed).count(), promised, "{lines:#?}");
        let capacities: Vec<u64> = pool
            .engine
            .ledger("tank", before)
            .await
            .unwrap()
            .iter()
            .filter_map(|second| second.capacity)
            .collect();
        assert!(capacities.last().unwrap() * 2 < capacities[0], "it can keep less: {capacities:?}");
        let told = pool.told("level.best_effort");
        assert!(told.len() == 1 && told[0].starts_with("tank/db: "), "{told:?}");
        assert_eq!(pool.told("level.kept"), Vec::<String>::new(), "it has nothing again");

        // A new measurement is what is known of the disks.
        pool.world.take_rules();
        pool.engine.pool_calibrate("tank").await.expect("measured");
        let before = pool.number().await;
        load(4, 4).await;
        let lines = pool.lines("db", before).await;
        assert!(lines.iter().all(|line| line.standing == Some(Standing::Promised)), "{lines:?}");
        assert_eq!(pool.told("level.promised").len(), 1);
        let capacity = pool.engine.ledger("tank", before).await.unwrap().last().unwrap().capacity;
        assert_eq!(capacity, Some(900_000));
    });
}

#[test]
fn a_goal_that_only_memory_could_reach_is_said_to_be_one() {
    on_pool(|pool| async move {
        pool.volume("db", Some(GOLD)).await;
        pool.load("db", MIB, 4, 1).await;
        pool.engine.pool_calibrate("tank").await.expect("measured");
        let goal = Level { latency: Some(Duration::from_micros(50)), ..promise(1000, 1) };
        pool.levels([(GOLD, goal)]).await;
        let before = pool.number().await;
        pool.ask("db", Duration::from_millis(20), 6).await;
        let lines = pool.lines("db", before).await;
        assert!(lines.iter().all(|line| line.cause == Some(Cause::CacheMiss)), "{lines:?}");
    });
}

/// Goal: what does not fit is refused with the numbers; whoever wants it all the same gets no promise, and breaks none.
#[test]
fn what_does_not_fit_is_refused_or_best_effort() {
    on_pool(|pool| async move {
        pool.volume("a", None).await;
        let check = async |change: PromiseChange| pool.engine.promise_check("tank", change).await;
        let create = |level| PromiseChange::Create { name: "new".into(), level: Some(level) };
        let (gold, _, _) = BUILT_IN_LEVELS[0];
        assert_eq!(check(create(gold)).await, Ok(()), "nobody knows yet");
        let speed = pool.engine.pool_calibrate("tank").await.expect("measured");
        let half = speed.read_iops.min(speed.write_iops) / 2;
        let (silver, huge) = (Id(1001), Id(1002));
        let all = |silver_iops| {
            [(GOLD, promise(half, 10)), (silver, promise(silver_iops, 10)), (huge, promise(half * 10, 10))]
        };
        pool.levels(all(half / 2)).await;
        let error = check(create(huge)).await.expect_err("it does not fit");
        assert_eq!(error.kind, ErrorKind::Conflict);
        for part in ["500.0 %", "promised 0.0 %", "90.0 %", "--best-effort"] {
            assert!(error.to_string().contains(part), "{part} in: {error}");
        }
        assert_eq!(check(create(GOLD)).await, Ok(()));
        pool.volume("b", Some(GOLD)).await;
        let error = check(create(GOLD)).await.expect_err("half of it is another's");
        assert!(error.to_string().contains("promised 50.0 %"), "{error}");
        assert_eq!(check(create(silver)).await, Ok(()));

        // Of a project, and of a level: all volumes that have it.
        pool.engine.project_create("tank/p", ProjectProperties::default()).await.expect("created");
        pool.volume("p/one", None).await;
        pool.volume("p/two", None).await;
        let of_project = |level| PromiseChange::Project { name: "p".into(), level };
        assert_eq!(check(of_project(silver)).await.map_err(|error| error.kind), Err(ErrorKind::Conflict));
        let own = |name: &str, level| {
            let (engine, name) = (pool.engine.clone(), format!("tank/{name}"));
            async move { PromiseChange::Volume { id: engine.volume(&name).await.unwrap().id, level } }
        };
        assert_eq!(check(own("p/one", Some(silver)).await).await, Ok(()));
        assert!(check(own("p/one", Some(GOLD)).await).await.is_err());
        assert!(check(PromiseChange::Level { id: GOLD, level: promise(half * 2, 10) }).await.is_err());
        assert_eq!(
            check(PromiseChange::Level { id: huge, level: promise(1, 10) }).await,
            Ok(()),
            "nobody has it"
        );

        // Wanted all the same: the older ones of the same class keep theirs.
        pool.volume("late", Some(GOLD)).await;
        pool.rt.sleep(Duration::from_secs(3)).await;
        let standings = async || {
            let before = pool.number().await;
            for name in ["b", "late"] {
                let volume =
                    Volume::open(&pool.rt, pool.engine.volume(&format!("tank/{name}")).await.unwrap().id);
                volume.unwrap().read(0, BLOCK).await.expect("read");
            }
            pool.rt.sleep(Duration::from_secs(2)).await;
            let seconds = pool.engine.ledger("tank", before).await.expect("kept");
            let line =
                |name: &str| seconds.iter().flat_map(|second| &second.volumes).find(|line| line.name == name);
            ["b", "late"].map(|name| line(name).expect("asked").standing)
        };
        assert_eq!(standings().await, [Some(Standing::Promised), Some(Standing::BestEffort)]);
        pool.set("b", Setting::Own(Id(0))).await;
        pool.rt.sleep(Duration::from_secs(2)).await;
        assert_eq!(standings().await, [None, Some(Standing::Promised)], "now there is room");
    });
}
