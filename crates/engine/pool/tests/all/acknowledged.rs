//! What an acknowledgement promises when something else changes at the same moment: the power fails, with every write lost that no flush has
//! covered, and what was promised is there.

use forebay_base::MIB;
use forebay_base::planted::{Bug, plant, times_met};
use forebay_pool::{
    Compression, Engine, EngineConfig, Host, Import, Layout, PoolSpec, PoolState, PoolStatus, ProjectChange,
    ProjectProperties, Setting, SyncPolicy, Volume, VolumeChange, VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Buf, DiskErrorKind, Rt};
use forebay_simulation::{Action, Fate, Image, OpKind, Rule, World, WorldConfig};
use futures_util::future::{Either, join, select};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);
const BLOCK: usize = 8192;
const POOL: &str = "tank";

struct Pool {
    world: World,
    rt: Rt,
    engine: Engine,
    paths: Vec<String>,
}

impl Pool {
    async fn volume(&self, name: &str, size: u64, sync: Option<SyncPolicy>) -> Volume {
        let spec = VolumeSpec {
            pool: POOL.into(),
            name: name.into(),
            size,
            block_size: BLOCK as u32,
            sync,
            compression: Some(Compression::Off),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = self.engine.volume_create(spec).await.expect("it is created");
        Volume::open(&self.rt, info.id).expect("it opens")
    }

    fn filled(&self, byte: u8, len: usize) -> Buf {
        let mut bytes = self.rt.buffer(len);
        bytes.fill(byte);
        bytes.freeze()
    }

    async fn checkpoint(&self) {
        self.engine.checkpoint(POOL).await.expect("it is made");
    }

    /// Puts in place of the pool what a power loss left of it, without the disks that are `gone`.
    async fn import(&self, images: &[Image], gone: &[usize]) -> Result<PoolStatus, forebay_pool::Error> {
        self.world.take_rules();
        (0..images.len()).for_each(|disk| self.world.release(disk));
        let _ = self.engine.pool_export(POOL).await;
        for (disk, image) in images.iter().enumerate() {
            self.world.set_image(disk, image.clone());
            self.world.set_gone(disk, gone.contains(&disk));
        }
        self.engine.pool_import(POOL, self.paths.clone(), Import::default()).await
    }

    /// The distinct bytes of the first `len` of a volume.
    async fn bytes(&self, name: &str, len: usize) -> Vec<u8> {
        let id = self.engine.volume(&format!("{POOL}/{name}")).await.expect("it is there").id;
        let volume = Volume::open(&self.rt, id).expect("it opens");
        let parts = volume.read(0, len).await.expect("it reads");
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        bytes.dedup();
        bytes
    }
}

/// Runs `test` on a mirror of two disks.
fn on_mirror<W: Future<Output = ()> + 'static>(shards: usize, seed: u64, test: impl FnOnce(Rc<Pool>) -> W) {
    let world = World::new(WorldConfig::new(seed));
    let paths: Vec<String> = (0..2).map(|nth| format!("sim{nth}")).collect();
    paths.iter().for_each(|_| {
        world.add_disk(Image::new(64 * MIB));
    });
    let (executor, cores) = world.executor(shards);
    let rt = executor.rt().clone();
    let config = EngineConfig { memory: 16 * MIB, events: Arc::new(|_| {}), host: Host::default() };
    let spec = PoolSpec {
        name: POOL.into(),
        layout: Layout::Mirror,
        disks: paths.clone(),
        log_disks: vec![],
        spare_disks: vec![],
        cache_disks: vec![],
        enclosures: vec![],
        sectors: vec![],
        shards,
        log_bytes: None,
        force: false,
    };
    let pool = Rc::new(Pool { world: world.clone(), rt, engine: Engine::new(cores, config), paths });
    let test = test(pool.clone());
    let whole = async move {
        pool.engine.pool_create(spec).await.expect("it is created");
        test.await;
    };
    world.run(&executor, LIMIT, whole).expect("it ends");
}

#[test]
fn a_change_to_always_covers_what_was_acknowledged_before() {
    // Volumes lie on both shards, and the project's record on one of them.
    on_mirror(2, 1, |pool| async move {
        let project = ProjectProperties { sync: Some(SyncPolicy::Standard), ..Default::default() };
        pool.engine.project_create("tank/p", project).await.expect("it is created");
        let names = ["p/a", "p/b", "own"];
        for name in names {
            let sync = (name == "own").then_some(SyncPolicy::Standard);
            let volume = pool.volume(name, MIB, sync).await;
            volume.write(0, vec![pool.filled(1, BLOCK)], true).await.expect("it is written");
            pool.checkpoint().await;
            volume.write(0, vec![pool.filled(2, BLOCK)], false).await.expect("it is acknowledged");
        }
        let sync = Setting::Own(SyncPolicy::Always);
        let change = ProjectChange { sync, ..Default::default() };
        pool.engine.project_set("tank/p", change).await.expect("it is changed");
        let change = VolumeChange { sync, ..Default::default() };
        pool.engine.volume_set("tank/own", change).await.expect("it is changed");
        let images = pool.world.power_loss(|_, _| Fate::Lost);
        pool.import(&images, &[]).await.expect("it is imported");
        for name in names {
            assert_eq!(pool.bytes(name, BLOCK).await, [2], "{name}");
        }
    });
}

#[test]
fn a_flush_while_the_policy_changes_covers_what_was_acknowledged_before() {
    for nth in 0..60 {
        on_mirror(1, nth, |pool| async move {
            let volume = pool.volume("v", MIB, Some(SyncPolicy::Standard)).await;
            volume.write(0, vec![pool.filled(1, BLOCK)], true).await.expect("it is written");
            pool.checkpoint().await;
            let change = VolumeChange { sync: Setting::Own(SyncPolicy::Always), ..Default::default() };
            let set = async { pool.engine.volume_set("tank/v", change).await.expect("it is changed") };
            let client = async {
                pool.rt.sleep(Duration::from_micros(5 * nth)).await;
                volume.write(0, vec![pool.filled(2, BLOCK)], false).await.expect("it is acknowledged");
                while volume.sync() != SyncPolicy::Always {
                    pool.rt.sleep(Duration::from_micros(1)).await;
                }
                volume.flush().await.expect("it is acknowledged");
                pool.world.power_loss(|_, _| Fate::Lost)
            };
            let (_, images) = join(set, client).await;
            pool.import(&images, &[]).await.expect("it is imported");
            assert_eq!(pool.bytes("v", BLOCK).await, [2], "after {} µs", 5 * nth);
        });
    }
}

#[test]
fn zeros_with_fua_over_a_hole_that_is_only_in_memory_are_durable() {
    const LEAF: usize = 508 * BLOCK;
    for nth in 0..40 {
        on_mirror(1, nth, |pool| async move {
            let volume = pool.volume("v", 16 * MIB, Some(SyncPolicy::Standard)).await;
            volume.write(0, vec![pool.filled(7, LEAF)], true).await.expect("it is written");
            pool.checkpoint().await;
            volume.discard(0, LEAF as u64, false).await.expect("it is acknowledged");
            let client = async {
                pool.rt.sleep(Duration::from_micros(50 * nth)).await;
                volume.write_zeroes(0, LEAF as u64, true).await.expect("it is acknowledged");
                pool.world.power_loss(|_, _| Fate::Lost)
            };
            let ((), images) = join(pool.checkpoint(), client).await;
            pool.import(&images, &[]).await.expect("it is imported");
            assert_eq!(pool.bytes("v", LEAF).await, [0], "after {} µs", 50 * nth);
        });
    }
}

#[test]
fn a_flush_waits_until_the_failure_of_a_disk_is_recorded() {
    on_mirror(1, 3, |pool| async move {
        let volume = pool.volume("v", MIB, Some(SyncPolicy::Standard)).await;
        volume.write(0, vec![pool.filled(1, BLOCK)], true).await.expect("it is written");
        pool.checkpoint().await;
        volume.write(0, vec![pool.filled(2, BLOCK)], false).await.expect("it is acknowledged");
        pool.rt.sleep(Duration::from_millis(1)).await;
        // Disk 0 fails a write of the checkpoint's, and the label of disk 1 that is to say so takes its time.
        pool.world.add_rule(Rule::new(1, Action::Hang).on(OpKind::Write).within(0..64 << 10));
        pool.world.add_rule(Rule::new(0, Action::Fail(DiskErrorKind::Io)).on(OpKind::Write).times(1));
        let (engine, rt) = (pool.engine.clone(), pool.rt.clone());
        let checkpoint = pool.rt.spawn(async move { engine.checkpoint(POOL).await });
        while pool.engine.pools().await[0].groups[0].disks.iter().all(|disk| disk.errors.write == 0) {
            rt.sleep(Duration::from_micros(20)).await;
        }
        let limit = pin!(pool.rt.sleep(Duration::from_millis(200)));
        let is_acknowledged = match select(pin!(volume.flush()), limit).await {
            Either::Left((flushed, _)) => flushed.is_ok(),
            Either::Right(_) => false,
        };
        let images = pool.world.power_loss(|_, _| Fate::Lost);
        pool.world.take_rules();
        pool.world.release(1);
        let _ = checkpoint.await;
        // With the disk that failed alone: the layout can lose the other one.
        match pool.import(&images, &[1]).await {
            Ok(_) if is_acknowledged => {
                assert_eq!(pool.bytes("v", BLOCK).await, [2], "a flushed write is lost")
            }
            Ok(_) => {}
            Err(error) => assert!(!is_acknowledged, "flushed, and then refused: {error}"),
        }
    });
}

/// Goal: what a pool has that no disk takes writes for any more can be read, and is there when the disks take writes again.
#[test]
fn a_suspended_pool_reads_on() {
    for kind in [DiskErrorKind::NoSpace, DiskErrorKind::Io] {
        on_mirror(1, 5, move |pool| async move {
            let volume = pool.volume("v", MIB, Some(SyncPolicy::Standard)).await;
            volume.write(0, vec![pool.filled(7, 8 * BLOCK)], true).await.expect("it is written");
            drop(volume);
            pool.engine.pool_export(POOL).await.expect("it is exported");
            let paths = pool.paths.clone();
            pool.engine.pool_import(POOL, paths, Import::default()).await.expect("it is imported");
            for disk in 0..2 {
                pool.world.add_rule(Rule::new(disk, Action::Fail(kind)).on(OpKind::Write));
            }
            let id = pool.engine.volume("tank/v").await.expect("it is there").id;
            let volume = Volume::open(&pool.rt, id).expect("it opens");
            volume.write(0, vec![pool.filled(8, BLOCK)], true).await.expect_err("no disk takes it");
            assert_eq!(pool.engine.pools().await[0].state, PoolState::Suspended);
            assert_eq!(pool.bytes("v", 8 * BLOCK).await.last(), Some(&7));
            let images: Vec<Image> = (0..2).map(|disk| pool.world.image(disk)).collect();
            pool.import(&images, &[]).await.expect("it is imported again");
            let found = pool.bytes("v", 8 * BLOCK).await;
            assert!(found == [7] || found == [8, 7], "{found:?}");
            let volume = Volume::open(&pool.rt, id).expect("it opens");
            volume.write(0, vec![pool.filled(9, BLOCK)], true).await.expect("it goes on");
        });
    }
}

#[test]
fn what_is_kept_with_a_volume_is_read_whole() {
    on_mirror(1, 9, |pool| async move {
        let volume = pool.volume("v", MIB, None).await;
        let kept = |byte: u8, len: usize| vec![byte; len];
        volume.store_attributes(&kept(1, 60_000)).await.expect("it is kept");
        let writer = async {
            for nth in 0..40u8 {
                let (byte, len) = if nth % 2 == 0 { (2, 9) } else { (1, 60_000) };
                volume.store_attributes(&kept(byte, len)).await.expect("it is kept");
            }
        };
        let reader = async {
            for _ in 0..200 {
                let found = volume.load_attributes().await.expect("it is read").expect("there is something");
                assert!(
                    [kept(1, 60_000), kept(2, 9)].contains(&found),
                    "{} bytes, {:?} …",
                    found.len(),
                    found[0]
                );
                pool.rt.sleep(Duration::from_micros(7)).await;
            }
        };
        join(writer, reader).await;
    });
}

#[test]
fn a_planted_bug_is_caught() {
    plant(Some(Bug::HolesTakenForDurable));
    let caught =
        std::panic::catch_unwind(zeros_with_fua_over_a_hole_that_is_only_in_memory_are_durable).is_err();
    let met = times_met();
    plant(None);
    assert!(caught && met > 0, "it was met {met} times and nobody noticed");
}
