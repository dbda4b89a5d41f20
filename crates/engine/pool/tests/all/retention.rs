//! Who can delete what is retained: nobody, by no way, whatever the machine's clock says, before its time; and everybody afterwards.

use forebay_base::MIB;
use forebay_pool::{
    Compression, Engine, EngineConfig, Error, ErrorKind, Host, Import, Layout, PoolSpec, SnapshotChange,
    SnapshotInfo, VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::Rt;
use forebay_simulation::{Fate, Image, World, WorldConfig};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1 << 20);
const HOUR: u32 = 3600;
const TEN_YEARS_MS: i128 = 10 * 365 * 24 * 3600 * 1000;
const SNAPSHOT: &str = "tank/vm@kept";

fn disks() -> Vec<String> {
    vec!["sim0".into(), "sim1".into()]
}

/// Runs `main` with an engine on these images, of a pool that is imported if there is one.
fn run<W: Future<Output = ()> + 'static>(
    images: Option<Vec<Image>>,
    main: impl FnOnce(Rc<World>, Rc<Engine>, Rt) -> W + 'static,
) {
    let world = Rc::new(World::new(WorldConfig::new(7)));
    let is_new = images.is_none();
    let images = images.unwrap_or_else(|| vec![Image::new(48 * MIB), Image::new(48 * MIB)]);
    images.into_iter().for_each(|image| _ = world.add_disk(image));
    let (executor, cores) = world.executor(2);
    let rt = executor.rt().clone();
    let config = EngineConfig { memory: 16 << 20, events: Arc::new(|_| ()), host: Host::default() };
    let (engine, own) = (Rc::new(Engine::new(cores, config)), world.clone());
    let whole = async move {
        match is_new {
            true => create(&engine).await,
            false => {
                let import = Import { force: true, ..Import::default() };
                engine.pool_import("tank", disks(), import).await.map(drop).expect("imported");
            }
        }
        main(own, engine, rt).await;
    };
    world.run(&executor, LIMIT, whole).expect("finishes");
}

async fn create(engine: &Engine) {
    let spec = PoolSpec {
        name: "tank".into(),
        layout: Layout::Mirror,
        disks: disks(),
        log_disks: Vec::new(),
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards: 2,
        log_bytes: None,
        force: false,
    };
    engine.pool_create(spec).await.expect("created");
    let spec = VolumeSpec {
        pool: "tank".into(),
        name: "vm".into(),
        size: MIB,
        block_size: 4096,
        sync: None,
        compression: Some(Compression::Off),
        format: VolumeFormat::Thin,
        level: None,
        own_hosts: false,
    };
    engine.volume_create(spec).await.expect("created");
}

async fn retain(engine: &Engine, seconds: u32) -> Result<SnapshotInfo, Error> {
    let change = SnapshotChange { retain_seconds: Some(seconds), ..SnapshotChange::default() };
    engine.snapshot_set(SNAPSHOT, change).await
}

/// Every way to be rid of it is refused.
async fn cannot_go(engine: &Engine, when: &str) {
    let refused = |result: Result<(), Error>, how: &str| match result {
        Err(error) if error.kind == ErrorKind::Conflict && error.to_string().contains("retained") => {}
        other => panic!("{when}: {how}: {other:?}"),
    };
    refused(engine.snapshot_delete(SNAPSHOT).await, "deleting it");
    for purge in [false, true] {
        let how = VolumeDelete { with_snapshots: true, purge };
        refused(engine.volume_delete("tank/vm", how).await, "deleting its volume");
    }
    refused(engine.pool_destroy_check("tank").await, "asking whether its pool can be destroyed");
    refused(engine.pool_destroy("tank").await, "destroying its pool");
    refused(retain(engine, 1).await.map(drop), "retaining it for less");
    let rolled_back = engine.volume_rollback(SNAPSHOT).await;
    rolled_back.unwrap_or_else(|error| panic!("{when}: a rollback loses nothing of it: {error}"));
    engine.snapshot(SNAPSHOT).await.unwrap_or_else(|error| panic!("{when}: it has gone: {error}"));
}

async fn again(engine: &Engine) {
    engine.pool_export("tank").await.expect("exported");
    engine.pool_import("tank", disks(), Import::default()).await.map(drop).expect("imported");
}

#[test]
fn what_is_retained_outlives_administrators_and_clocks() {
    run(None, async |world: Rc<World>, engine: Rc<Engine>, rt: Rt| {
        let sleep = Duration::from_secs;
        let taken =
            engine.snapshot_create_retained(vec!["tank/vm".into()], "kept", HOUR).await.expect("taken");
        let until = taken[0].retained_until.expect("retained").0;
        assert_eq!(until, taken[0].created.0 + 3_600_000);
        cannot_go(&engine, "at once").await;
        for jump in [TEN_YEARS_MS, -2 * TEN_YEARS_MS, TEN_YEARS_MS] {
            world.jump_wall(jump);
            cannot_go(&engine, "with the clock set").await;
            again(&engine).await;
            cannot_go(&engine, "with the clock set, exported and imported").await;
        }
        // The time in which it is not imported does not count.
        rt.sleep(sleep(1800)).await;
        engine.pool_export("tank").await.expect("exported");
        rt.sleep(sleep(7200)).await;
        engine.pool_import("tank", disks(), Import::default()).await.map(drop).expect("imported");
        cannot_go(&engine, "half an hour before the time").await;
        let longer = retain(&engine, 2 * HOUR).await.expect("longer");
        assert!(longer.retained_until.expect("retained").0 > until + 3_600_000);
        rt.sleep(sleep(7100)).await;
        cannot_go(&engine, "before the longer time").await;
        rt.sleep(sleep(110)).await;
        assert_eq!(engine.snapshot(SNAPSHOT).await.expect("there").retained_until, None);
        engine.snapshot_delete(SNAPSHOT).await.expect("its time is over");
        engine.pool_destroy("tank").await.expect("nothing is retained");
    });
}

#[test]
fn a_crash_makes_it_longer_by_an_hour_at_most() {
    let left = Rc::new(RefCell::new(None));
    let images = left.clone();
    run(None, async move |world: Rc<World>, engine: Rc<Engine>, rt: Rt| {
        engine.snapshot_create_retained(vec!["tank/vm".into()], "kept", 10 * HOUR).await.expect("taken");
        // Nobody writes: only the clock wants superblocks.
        rt.sleep(Duration::from_secs(9 * 3600 + 1800)).await;
        *images.borrow_mut() = Some(world.power_loss(|_, _| Fate::Lost));
    });
    run(left.take(), async |_, engine: Rc<Engine>, rt: Rt| {
        cannot_go(&engine, "after a crash").await;
        rt.sleep(Duration::from_secs(1800 + 3600 + 120)).await;
        engine.snapshot_delete(SNAPSHOT).await.expect("its time is over, and an hour more");
    });
}
