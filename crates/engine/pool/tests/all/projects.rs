//! Projects on simulated disks: each test asks one question.

use forebay_base::{Id, MIB, Random};
use forebay_pool::check::check;
use forebay_pool::{
    Compression, Engine, EngineConfig, Error, ErrorKind, Host, Import, Layout, PoolSpec, ProjectChange,
    ProjectInfo, ProjectProperties, Rate, ReceiveOptions, SendOptions, Setting, SnapshotKeep,
    SnapshotSchedule, Source, SyncPolicy, Volume, VolumeChange, VolumeDelete, VolumeFormat, VolumeInfo,
    VolumeSpec,
};
use forebay_runtime::{Cores, Rt};
use forebay_simulation::{Fate, Image, World, WorldConfig};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(24 * 3600);
const BLOCK: usize = 8192;
pub(crate) const KEEP: VolumeDelete = VolumeDelete { with_snapshots: true, purge: false };
const PURGE: VolumeDelete = VolumeDelete { with_snapshots: true, purge: true };
const HOURLY: SnapshotSchedule = SnapshotSchedule { every_seconds: 3600, keep: SnapshotKeep::last(3) };
const NEVER: SnapshotSchedule = SnapshotSchedule { every_seconds: 0, keep: SnapshotKeep::last(0) };
/// Nothing is said.
pub(crate) const PLAIN: ProjectProperties = ProjectProperties {
    sync: None,
    compression: None,
    schedule: None,
    level: None,
    block_size: None,
    format: None,
    quota: None,
    ceiling: Rate { iops: 0, bytes: 0 },
};

pub(crate) struct Pool {
    pub rt: Rt,
    pub world: World,
    pub engine: Engine,
    paths: Vec<String>,
}

impl Pool {
    pub async fn make(
        &self,
        name: &str,
        sync: Option<SyncPolicy>,
        compression: Option<Compression>,
    ) -> Result<VolumeInfo, Error> {
        self.engine.volume_create(self.spec(name, sync, compression)).await
    }

    fn spec(&self, name: &str, sync: Option<SyncPolicy>, compression: Option<Compression>) -> VolumeSpec {
        VolumeSpec {
            pool: "tank".into(),
            name: name.into(),
            size: 4 * MIB,
            block_size: BLOCK as u32,
            sync,
            compression,
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        }
    }

    /// A volume that inherits everything.
    pub async fn volume(&self, name: &str) -> VolumeInfo {
        self.make(name, None, None).await.expect("created")
    }

    pub async fn info(&self, name: &str) -> VolumeInfo {
        self.engine.volume(&format!("tank/{name}")).await.expect("there")
    }

    pub async fn open(&self, name: &str) -> Volume {
        Volume::open(&self.rt, self.info(name).await.id).expect("open")
    }

    pub async fn project(&self, name: &str, properties: ProjectProperties) -> ProjectInfo {
        self.engine.project_create(&format!("tank/{name}"), properties).await.expect("created")
    }

    async fn compress(&self, project: &str, compression: Setting<Compression>) {
        let change = ProjectChange { compression, ..Default::default() };
        self.engine.project_set(&format!("tank/{project}"), change).await.expect("set");
    }

    /// Fills a block with what becomes smaller.
    pub async fn write(&self, volume: &str, block: u64, byte: u8) {
        let bytes = self.rt.arena().copy(&[byte; BLOCK]).freeze();
        let volume = self.open(volume).await;
        volume.write(block * BLOCK as u64, vec![bytes], true).await.expect("written");
    }

    /// Fills a block with what does not become smaller.
    async fn noise(&self, volume: &str, block: u64) {
        let mut bytes = self.rt.arena().take(BLOCK);
        Random::new(block).fill(&mut bytes);
        let volume = self.open(volume).await;
        volume.write(block * BLOCK as u64, vec![bytes.freeze()], true).await.expect("written");
    }

    pub async fn read(&self, volume: &str, block: u64) -> u8 {
        let parts = self.open(volume).await.read(block * BLOCK as u64, BLOCK).await.expect("readable");
        parts[0][0]
    }

    /// What a volume's blocks take, once they are in their places: those of a snapshot are.
    async fn stored(&self, volume: &str) -> u64 {
        let full = format!("tank/{volume}");
        self.engine.snapshot_create(vec![full.clone()], "s").await.expect("taken");
        self.engine.snapshot_delete(&format!("{full}@s")).await.expect("deleted");
        self.info(volume).await.stored
    }

    pub async fn import(&self) {
        let report = check(&self.rt, &self.paths).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
        self.engine.pool_import("tank", self.paths.clone(), Import::default()).await.expect("imported");
    }

    async fn again(&self) {
        self.engine.pool_export("tank").await.expect("exported");
        self.import().await;
    }

    /// The pool as a loss of power leaves it now.
    pub async fn crash(&self) {
        let images = self.world.power_loss(|_, _| Fate::Lost);
        self.engine.pool_export("tank").await.expect("exported");
        images.into_iter().enumerate().for_each(|(disk, image)| self.world.set_image(disk, image));
        self.import().await;
    }
}

pub(crate) fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind)
}

/// Runs `main` on pools of several kinds; the offline checker has the last word.
pub(crate) fn on_pools<W: Future<Output = ()> + 'static>(seed: u64, main: impl Fn(Rc<Pool>) -> W) {
    for (layout, data, log, shards) in [(Layout::Single, 1, 0, 1), (Layout::Mirror, 2, 1, 3)] {
        let world = World::new(WorldConfig::new(seed));
        (0..data + log).for_each(|_| {
            world.add_disk(Image::new(64 * MIB));
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
        let (engine, paths) = (Engine::new(cores, config), names(0..data + log));
        let pool = Rc::new(Pool { rt, world: world.clone(), engine, paths });
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
fn volumes_inherit_until_they_have_their_own() {
    on_pools(1, |pool| async move {
        let said = ProjectProperties {
            sync: Some(SyncPolicy::Standard),
            compression: Some(Compression::Zstd(3)),
            ..PLAIN
        };
        pool.project("db", said).await;
        for name in ["db/a", "db/b", "db/c", "alone"] {
            pool.volume(name).await;
        }
        pool.make("db/own", Some(SyncPolicy::Always), Some(Compression::Off)).await.expect("created");
        let expect = async |name: &str, compression: Compression, from: Source, sync: SyncPolicy| {
            let info = pool.info(name).await;
            assert_eq!((info.compression, info.sources.compression), (compression, from), "{name}");
            assert_eq!((info.sync, pool.open(name).await.sync()), (sync, sync), "{name}");
        };
        let (standard, always) = (SyncPolicy::Standard, SyncPolicy::Always);
        for name in ["db/a", "db/b", "db/c"] {
            expect(name, Compression::Zstd(3), Source::Project, standard).await;
            assert_eq!(pool.info(name).await.project.as_deref(), Some("db"));
        }
        expect("db/own", Compression::Off, Source::Own, always).await;
        expect("alone", Compression::Lz4, Source::Default, always).await;
        assert_eq!(pool.info("alone").await.project, None);
        // It changes for all, and stays so.
        pool.compress("db", Setting::Own(Compression::Gzip(6))).await;
        for _ in 0..2 {
            for name in ["db/a", "db/b", "db/c"] {
                expect(name, Compression::Gzip(6), Source::Project, standard).await;
            }
            expect("db/own", Compression::Off, Source::Own, always).await;
            pool.again().await;
        }
        // One gets its own, and gives it back.
        let change = VolumeChange { compression: Setting::Own(Compression::Lz4), ..Default::default() };
        pool.engine.volume_set("tank/db/a", change).await.expect("set");
        pool.compress("db", Setting::Own(Compression::Off)).await;
        for _ in 0..2 {
            expect("db/a", Compression::Lz4, Source::Own, standard).await;
            expect("db/b", Compression::Off, Source::Project, standard).await;
            pool.again().await;
        }
        let change =
            VolumeChange { compression: Setting::Inherit, sync: Setting::Inherit, ..Default::default() };
        pool.engine.volume_set("tank/db/a", change).await.expect("set");
        pool.engine.volume_set("tank/db/own", change).await.expect("set");
        expect("db/a", Compression::Off, Source::Project, standard).await;
        expect("db/own", Compression::Off, Source::Project, standard).await;
        pool.again().await;
        expect("db/own", Compression::Off, Source::Project, standard).await;
        // Nor does the project say it any more.
        pool.compress("db", Setting::Inherit).await;
        expect("db/a", Compression::Lz4, Source::Default, standard).await;
    });
}

#[test]
fn whether_hosts_are_its_own_is_kept_with_a_volume() {
    on_pools(1, |pool| async move {
        let project = pool.project("db", PLAIN).await;
        pool.volume("alone").await;
        pool.volume("db/a").await;
        let own = VolumeSpec { own_hosts: true, ..pool.spec("db/own", None, None) };
        pool.engine.volume_create(own).await.expect("created");
        for name in ["db/a", "db/own"] {
            pool.engine.snapshot_create(vec![format!("tank/{name}")], "s").await.expect("taken");
            pool.engine.volume_clone(&format!("tank/{name}@s"), &format!("{name}2")).await.expect("cloned");
        }
        let expect = async |name: &str, from: Source| {
            let info = pool.info(name).await;
            assert_eq!(info.sources.hosts, from, "{name}");
            assert_eq!(info.project_id, Some(project.id).filter(|_| name != "alone"));
        };
        let set = async |name: &str, hosts: Setting<()>| {
            let change = VolumeChange { hosts, ..Default::default() };
            let info = pool.engine.volume_set(&format!("tank/{name}"), change).await.expect("set");
            assert_eq!(info.sources.sync, Source::Default, "nothing else changes");
        };
        for _ in 0..2 {
            expect("alone", Source::Default).await;
            expect("db/own", Source::Own).await;
            for name in ["db/a", "db/a2", "db/own2"] {
                expect(name, Source::Project).await;
            }
            pool.again().await;
        }
        set("db/a", Setting::Own(())).await;
        set("db/own", Setting::Inherit).await;
        set("db/a2", Setting::Keep).await;
        for _ in 0..2 {
            expect("db/a", Source::Own).await;
            expect("db/own", Source::Project).await;
            expect("db/a2", Source::Project).await;
            pool.crash().await;
        }
        // In the trash it is not forgotten.
        set("db/own2", Setting::Own(())).await;
        pool.engine.volume_delete("tank/db/own2", KEEP).await.expect("deleted");
        pool.engine.volume_restore("tank/db/own2", None).await.expect("restored");
        expect("db/own2", Source::Own).await;
    });
}

#[test]
fn what_is_inherited_is_what_is_done() {
    on_pools(1, |pool| async move {
        pool.project("db", PLAIN).await;
        for name in ["db/a", "db/b"] {
            pool.volume(name).await;
            pool.write(name, 0, 1).await;
            pool.write(name, 1, 2).await;
            assert_eq!(pool.stored(name).await, 2 * 4096, "by default with lz4");
        }
        pool.compress("db", Setting::Own(Compression::Off)).await;
        for name in ["db/a", "db/b"] {
            pool.write(name, 1, 3).await;
            assert_eq!(pool.stored(name).await, 4096 + 8192);
        }
        pool.again().await;
        for name in ["db/a", "db/b"] {
            pool.write(name, 2, 4).await;
            assert_eq!(pool.stored(name).await, 4096 + 2 * 8192, "after an import as well");
        }
        pool.engine
            .volume_set(
                "tank/db/a",
                VolumeChange { compression: Setting::Own(Compression::Lz4), ..Default::default() },
            )
            .await
            .expect("set");
        for name in ["db/a", "db/b"] {
            pool.write(name, 3, 5).await;
        }
        assert_eq!(pool.stored("db/a").await, 2 * 4096 + 2 * 8192);
        assert_eq!(pool.stored("db/b").await, 4096 + 3 * 8192);
    });
}

#[test]
fn schedules_are_inherited() {
    on_pools(1, |pool| async move {
        pool.project("db", PLAIN).await;
        for name in ["db/a", "db/b", "db/never"] {
            pool.volume(name).await;
        }
        let change = VolumeChange { schedule: Setting::Own(NEVER), ..Default::default() };
        let never = pool.engine.volume_set("tank/db/never", change).await.expect("set");
        assert_eq!(never.sources.schedule, Source::Own, "although it is what it was");
        let change = ProjectChange { schedule: Setting::Own(HOURLY), ..Default::default() };
        let project = pool.engine.project_set("tank/db", change).await.expect("set");
        assert_eq!(project.properties.schedule, Some(HOURLY));
        pool.again().await;
        assert_eq!(pool.info("db/a").await.schedule, HOURLY);
        pool.rt.sleep(Duration::from_secs(4000)).await;
        let taken = pool.engine.snapshots(None).await.expect("listed");
        let of = |volume: &str| {
            let own = taken.iter().filter(|snapshot| snapshot.volume == volume);
            own.map(|snapshot| snapshot.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("db/a").len(), 2);
        assert_eq!(of("db/a"), of("db/b"), "at one moment");
        assert_eq!(of("db/never").len(), 0);
    });
}

#[test]
fn names_of_volumes_lead_to_projects_that_there_are() {
    on_pools(1, |pool| async move {
        let refused = |name: &'static str| {
            let pool = pool.clone();
            async move { kind(pool.make(name, None, None).await) }
        };
        assert_eq!(refused("one/a").await, Some(ErrorKind::NotFound));
        pool.project("one", PLAIN).await;
        pool.project("two", PLAIN).await;
        for name in ["one/a", "two/a", "a"] {
            pool.volume(name).await;
        }
        // The same name behind the slash is not the same volume.
        for (byte, name) in (1..).zip(["one/a", "two/a", "a"]) {
            pool.write(name, 0, byte).await;
        }
        pool.again().await;
        for (byte, name) in (1..).zip(["one/a", "two/a", "a"]) {
            assert_eq!(pool.read(name, 0).await, byte);
        }
        assert_eq!(refused("one/a").await, Some(ErrorKind::Conflict));
        assert_eq!(refused("one").await, Some(ErrorKind::Conflict), "a project has this name");
        assert_eq!(refused("one/b/c").await, Some(ErrorKind::Invalid("name")));
        let project = async |name: &str| kind(pool.engine.project_create(name, PLAIN).await);
        assert_eq!(project("tank/one").await, Some(ErrorKind::Conflict));
        assert_eq!(project("tank/a").await, Some(ErrorKind::Conflict), "a volume has this name");
        assert_eq!(project("tank/one/two").await, Some(ErrorKind::Invalid("name")));
        assert_eq!(project("tank/..").await, Some(ErrorKind::Invalid("name")));
        let long = format!("tank/{}", "x".repeat(64));
        assert_eq!(project(&long).await, Some(ErrorKind::Invalid("name")));
        let block_size = Setting::Own(5000);
        let change = ProjectChange { block_size, ..Default::default() };
        let changed = pool.engine.project_set("tank/one", change).await;
        assert_eq!(kind(changed), Some(ErrorKind::Invalid("block_size")));
        // A project is no volume.
        let id = pool.engine.project("tank/one").await.expect("there").id;
        assert!(Volume::open(&pool.rt, id).is_err());
        assert_eq!(kind(pool.engine.volume("tank/one").await), Some(ErrorKind::NotFound));
        assert_eq!(kind(pool.engine.volume_delete(&id.to_string(), PURGE).await), Some(ErrorKind::NotFound));
        assert_eq!(pool.engine.project(&id.to_string()).await.expect("there").name, "one");
        assert_eq!(pool.engine.volumes(None).await.expect("listed").len(), 3);
    });
}

#[test]
fn clones_and_restored_volumes_inherit_where_they_are() {
    on_pools(1, |pool| async move {
        let says = |compression| ProjectProperties { compression: Some(compression), ..PLAIN };
        pool.project("one", says(Compression::Off)).await;
        pool.project("two", says(Compression::Zstd(9))).await;
        pool.volume("one/a").await;
        pool.make("one/own", None, Some(Compression::Lzjb)).await.expect("created");
        pool.engine
            .snapshot_create(vec!["tank/one/a".into(), "tank/one/own".into()], "s")
            .await
            .expect("taken");
        let cloned = pool.engine.volume_clone("tank/one/a@s", "two/a").await.expect("cloned");
        assert_eq!((cloned.compression, cloned.sources.compression), (Compression::Zstd(9), Source::Project));
        let cloned = pool.engine.volume_clone("tank/one/own@s", "two/own").await.expect("cloned");
        assert_eq!((cloned.compression, cloned.sources.compression), (Compression::Lzjb, Source::Own));
        let nowhere = pool.engine.volume_clone("tank/one/a@s", "three/a").await;
        assert_eq!(kind(nowhere), Some(ErrorKind::NotFound));
        pool.volume("one/b").await;
        pool.engine.volume_delete("tank/one/b", KEEP).await.expect("deleted");
        let nowhere = pool.engine.volume_restore("tank/one/b", Some("three/b")).await;
        assert_eq!(kind(nowhere), Some(ErrorKind::NotFound));
        let restored = pool.engine.volume_restore("tank/one/b", Some("two/b")).await.expect("restored");
        assert_eq!((restored.compression, restored.project.as_deref()), (Compression::Zstd(9), Some("two")));
    });
}

#[test]
fn what_is_received_inherits_where_it_arrives() {
    on_pools(1, |pool| async move {
        let (sync, compression) = (Some(SyncPolicy::Disabled), Some(Compression::Zstd(9)));
        pool.project("db", ProjectProperties { sync, compression, ..PLAIN }).await;
        pool.volume("a").await;
        pool.write("a", 0, 1).await;
        pool.engine.snapshot_create(vec!["tank/a".into()], "s").await.expect("taken");
        let options = SendOptions { from: None, resume: None };
        let mut stream = pool.engine.snapshot_send("tank/a@s", options).await.expect("sent");
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await.expect("sent") {
            bytes.extend(piece);
        }
        let receive = async |name: &str, len: usize| {
            let mut receiver = pool.engine.snapshot_receive(name, ReceiveOptions::default()).await?;
            receiver.push(&bytes[..len]).await?;
            receiver.finish().await
        };
        assert_eq!(kind(receive("tank/nowhere/b", bytes.len()).await), Some(ErrorKind::NotFound));
        receive("tank/db/b", bytes.len() - 1).await.expect_err("cut");
        // A part of a volume belongs to it already.
        pool.again().await;
        assert_eq!(kind(pool.engine.project_delete("tank/db").await), Some(ErrorKind::Conflict));
        receive("tank/db/b", bytes.len()).await.expect("received");
        for _ in 0..2 {
            let info = pool.info("db/b").await;
            assert_eq!((Some(info.sync), Some(info.compression)), (sync, compression));
            assert_eq!((info.sources.sync, info.sources.compression), (Source::Project, Source::Project));
            assert_eq!(info.sources.hosts, Source::Project);
            assert_eq!(pool.open("db/b").await.sync(), SyncPolicy::Disabled);
            pool.again().await;
        }
    });
}

#[test]
fn a_project_with_volumes_stays() {
    on_pools(1, |pool| async move {
        pool.project("db", PLAIN).await;
        pool.volume("db/a").await;
        let delete = async || kind(pool.engine.project_delete("tank/db").await);
        assert_eq!(delete().await, Some(ErrorKind::Conflict));
        pool.engine.volume_delete("tank/db/a", KEEP).await.expect("deleted");
        assert_eq!(delete().await, Some(ErrorKind::Conflict), "it is in the trash");
        assert_eq!(pool.engine.project("tank/db").await.expect("there").trashed, 1);
        pool.again().await;
        assert_eq!(delete().await, Some(ErrorKind::Conflict), "it is in the trash");
        // It was refused, and nothing changed.
        pool.engine.volume_restore("tank/db/a", None).await.expect("restored");
        assert_eq!(pool.info("db/a").await.project.as_deref(), Some("db"));
        pool.engine.volume_delete("tank/db/a", PURGE).await.expect("deleted");
        assert_eq!(delete().await, None);
        assert_eq!(delete().await, Some(ErrorKind::NotFound));
        assert_eq!(kind(pool.make("db/a", None, None).await), Some(ErrorKind::NotFound));
        // Its name is free for either, and the next project of this name says nothing of what this one said.
        pool.volume("db").await;
        pool.engine.volume_delete("tank/db", PURGE).await.expect("deleted");
        pool.project("db", PLAIN).await;
        pool.again().await;
        let all = pool.engine.projects(Some("tank")).await.expect("listed");
        let names: Vec<&str> = all.iter().map(|project| &*project.name).collect();
        assert_eq!(names, ["db"]);
    });
}

/// Goal: whenever the power goes, what a project says is old or new, for all its volumes alike; and new if that was acknowledged.
#[test]
fn a_crash_leaves_all_volumes_with_the_old_or_the_new() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..12 {
        let seen = Rc::new(std::cell::Cell::new((0, 0)));
        let counted = seen.clone();
        on_pools(seed, move |pool| {
            let seen = seen.clone();
            async move {
                let mut random = Random::new(seed);
                let says = |level| ProjectProperties { compression: Some(Compression::Zstd(level)), ..PLAIN };
                pool.project("db", says(1)).await;
                for nth in 0..6 {
                    pool.volume(&format!("db/v{nth}")).await;
                }
                if random.one_in(2) {
                    pool.engine.checkpoint("tank").await.expect("checkpoint");
                }
                let acknowledged = Rc::new(std::cell::Cell::new(1));
                let (level, told, engine) = (Compression::Zstd, acknowledged.clone(), pool.engine.clone());
                drop(pool.rt.spawn(async move {
                    for next in 2..6 {
                        let compression = Setting::Own(level(next));
                        let change = ProjectChange { compression, ..Default::default() };
                        if engine.project_set("tank/db", change).await.is_err() {
                            return;
                        }
                        told.set(next);
                    }
                }));
                pool.rt.sleep(Duration::from_nanos(random.below(300_000) >> random.below(20))).await;
                let told = acknowledged.get();
                pool.crash().await;
                let project = pool.engine.project("tank/db").await.expect("there").properties;
                let is_possible = [told, told + 1].map(|level| Some(Compression::Zstd(level)));
                assert!(is_possible.contains(&project.compression), "{project:?} after {told}");
                for nth in 0..6 {
                    let info = pool.info(&format!("db/v{nth}")).await;
                    assert_eq!(Some(info.compression), project.compression);
                    assert_eq!(info.sources.compression, Source::Project);
                }
                let (old, new) = seen.get();
                seen.set(if told == 1 { (old + 1, new) } else { (old, new + 1) });
            }
        });
        (old, new) = (old + counted.get().0, new + counted.get().1);
    }
    assert!(old > 0 && new > 0, "crashes before and after: {old} and {new}");
}

/// Goal: a project that was made or deleted, and was acknowledged, is there or not after a loss of power; a volume in it has a project.
#[test]
fn a_crash_takes_back_no_project() {
    for seed in 0..4 {
        on_pools(seed, move |pool| async move {
            let said = ProjectProperties {
                sync: Some(SyncPolicy::Standard),
                compression: Some(Compression::Gzip(2)),
                schedule: Some(HOURLY),
                level: Some(Id(3)),
                block_size: Some(65536),
                format: Some(VolumeFormat::ZeroedThick),
                quota: Some(1 << 40),
                ceiling: Rate { iops: 700, bytes: 0 },
            };
            let made = pool.project("db", said).await;
            pool.project("gone", PLAIN).await;
            pool.volume("db/a").await;
            if seed % 2 == 0 {
                pool.engine.checkpoint("tank").await.expect("checkpoint");
            }
            pool.engine.project_delete("tank/gone").await.expect("deleted");
            pool.crash().await;
            let found = pool.engine.projects(None).await.expect("listed");
            assert_eq!(found, [ProjectInfo { volumes: 1, size: 4 * MIB, ..made }]);
            let info = pool.info("db/a").await;
            assert_eq!((info.sync, info.compression), (SyncPolicy::Standard, Compression::Gzip(2)));
            assert_eq!((info.schedule, info.project.as_deref()), (HOURLY, Some("db")));
            assert_ne!(info.id, Id(0));
        });
    }
}

#[test]
fn a_volume_gets_another_name_and_another_project() {
    on_pools(1, |pool| async move {
        let engine = &pool.engine;
        let said = ProjectProperties { sync: Some(SyncPolicy::Standard), quota: Some(2 * MIB), ..PLAIN };
        pool.project("db", said).await;
        pool.volume("a").await;
        pool.volume("b").await;
        pool.write("a", 0, 7).await;
        engine.snapshot_create(vec!["tank/a".into()], "s").await.expect("taken");
        engine.snapshot_create(vec!["tank/a".into()], "t").await.expect("taken");
        // Whoever has it open keeps it.
        let (open, id) = (pool.open("a").await, pool.info("a").await.id);
        engine.volume_rename_check("tank/a", "c").await.expect("possible");
        assert_eq!(kind(engine.volume("tank/c").await), Some(ErrorKind::NotFound));
        let renamed = engine.volume_rename("tank/a", "c").await.expect("renamed");
        assert_eq!((renamed.name.as_str(), renamed.id), ("c", id));
        assert_eq!(kind(engine.volume("tank/a").await), Some(ErrorKind::NotFound));
        open.write(BLOCK as u64, vec![pool.rt.arena().copy(&[8; BLOCK]).freeze()], true)
            .await
            .expect("written");
        // What a crash takes back is nothing of this.
        for round in 0..2 {
            assert_eq!((pool.read("c", 0).await, pool.read("c", 1).await), (7, 8), "round {round}");
            assert_eq!(engine.volume(&id.to_string()).await.expect("there").name, "c");
            let snapshots = engine.snapshots(Some("tank")).await.expect("listed");
            assert!(snapshots.iter().all(|snapshot| snapshot.volume == "c"), "{snapshots:?}");
            pool.crash().await;
        }
        // The old name is free, and taken ones are refused, like those that no volume can have.
        pool.volume("a").await;
        for (new, why) in [
            ("b", ErrorKind::Conflict),
            ("db", ErrorKind::Conflict),
            ("none/c", ErrorKind::NotFound),
            ("c d", ErrorKind::Invalid("name")),
        ] {
            assert_eq!(kind(engine.volume_rename("tank/c", new).await), Some(why), "{new}");
            assert_eq!(kind(engine.volume_rename_check("tank/c", new).await), Some(why), "{new}");
        }
        engine.volume_rename("tank/c", "c").await.expect("its own");
        // Into a project: what that says counts, and its quota is charged for the snapshots, too.
        assert_eq!(pool.info("c").await.sync, SyncPolicy::Always);
        let moved = engine.volume_rename("tank/c", "db/c").await.expect("renamed");
        assert_eq!((moved.sync, moved.project.as_deref()), (SyncPolicy::Standard, Some("db")));
        assert_eq!(pool.open("db/c").await.sync(), SyncPolicy::Standard);
        let used = engine.project("tank/db").await.expect("there").used;
        assert!(used > 0);
        pool.crash().await;
        assert_eq!(pool.info("db/c").await.sync, SyncPolicy::Standard);
        // What does not fit is refused, and nothing has changed.
        let change = ProjectChange { quota: Setting::Own(MIB), ..Default::default() };
        engine.project_set("tank/db", change).await.expect("set");
        for block in 0..160 {
            pool.noise("b", block).await;
        }
        assert_eq!(kind(engine.volume_rename("tank/b", "db/b").await), Some(ErrorKind::NoSpace));
        assert_eq!(engine.project("tank/db").await.expect("there").used, used);
        pool.info("b").await;
        // Out of it again, and nothing of it is left there.
        engine.volume_rename("tank/db/c", "d").await.expect("renamed");
        assert_eq!(engine.project("tank/db").await.expect("there").used, 0);
        assert_eq!(pool.info("d").await.sync, SyncPolicy::Always);
        engine.project_delete("tank/db").await.expect("empty");
    });
}

#[test]
fn a_snapshot_gets_another_name() {
    on_pools(2, |pool| async move {
        let engine = &pool.engine;
        pool.volume("a").await;
        pool.write("a", 0, 7).await;
        engine.snapshot_create(vec!["tank/a".into()], "s").await.expect("taken");
        engine.snapshot_create(vec!["tank/a".into()], "t").await.expect("taken");
        engine.volume_clone("tank/a@s", "clone").await.expect("cloned");
        engine.snapshot_rename_check("tank/a@s", "u").await.expect("possible");
        engine.snapshot("tank/a@s").await.expect("still there");
        assert_eq!(engine.snapshot_rename("tank/a@s", "u").await.expect("renamed").name, "u");
        for _ in 0..2 {
            assert_eq!(kind(engine.snapshot("tank/a@s").await), Some(ErrorKind::NotFound));
            assert_eq!(pool.info("clone").await.origin.as_deref(), Some("a@u"));
            pool.crash().await;
        }
        for (new, why) in [("t", ErrorKind::Conflict), ("a b", ErrorKind::Invalid("name"))] {
            assert_eq!(kind(engine.snapshot_rename("tank/a@u", new).await), Some(why), "{new}");
            assert_eq!(kind(engine.snapshot_rename_check("tank/a@u", new).await), Some(why), "{new}");
        }
        engine.snapshot_rename("tank/a@u", "u").await.expect("its own");
    });
}
