//! The row about the limit of a shard's datasets, lowered until it is met, and about tables of many levels in a full pool: a limit is an error and an event,
//! never the end of a pool.

use crate::harness::Failure;
use crate::matrix::Shown;
use crate::scene::{self, Scene};
use crate::setup::{POOL, Setup};
use crate::verify::{Demand, verify};
use crate::workload::{History, Tolerance};
use forebay_pool::{Compression, ErrorKind, PoolState};
use forebay_simulation::{Fate, Image};
use std::cell::RefCell;
use std::rc::Rc;

const DATASETS: usize = 31;
const NO_ERRORS: Tolerance = Tolerance { errors: false, no_space: true };

/// The pool must serve, and have told of a limit.
async fn is_refused(scene: &Scene, codes: &[&str], what: &str) -> Result<(), Failure> {
    let pools = scene.engine.pools().await;
    let status = pools.first().ok_or_else(|| Failure::Outcome("the pool has gone".into()))?;
    if status.state != PoolState::Online {
        return Err(Failure::Outcome(format!("{what} the pool is {:?}", status.state)));
    }
    let events = scene.events.lock().expect("no holder of this lock panics");
    match codes.iter().find(|code| !events.iter().any(|event| event.code == **code)) {
        Some(code) => Err(Failure::Outcome(format!("{what} there was no event {code}"))),
        None => Ok(()),
    }
}

/// Takes snapshots of a volume until there is no room for one more, and deletes them.
async fn fill_catalog(scene: &Scene, volume: &str) -> Result<(), Failure> {
    let mut taken = Vec::new();
    loop {
        let name = format!("limit{}", taken.len());
        match scene.engine.snapshot_create(vec![volume.into()], &name).await {
            Ok(_) if taken.len() < DATASETS => taken.push(format!("{volume}@{name}")),
            Ok(_) => return Err(Failure::Outcome("more snapshots were taken than there may be".into())),
            Err(error) if error.kind == ErrorKind::NoSpace && error.message.contains("has room for 31") => {
                break;
            }
            Err(error) => return Err(Failure::Outcome(format!("a snapshot too many: {error}"))),
        }
    }
    is_refused(scene, &["pool.limit_near", "pool.limit_reached"], "with as many datasets as there may be")
        .await?;
    for snapshot in &taken {
        let deleted = scene.engine.snapshot_delete(snapshot).await;
        deleted.map_err(|error| Failure::Outcome(format!("deleting one of too many snapshots: {error}")))?;
    }
    Ok(())
}

/// What a power loss left, and what clients knew then.
type Left = (Vec<Image>, History);

/// Snapshots until there is no room for one more, then writes until there is no space, and a crash there; what is discarded and deleted comes back.
pub fn limits(setup: &Setup) -> Result<Shown, Failure> {
    let tables = setup.table_records.max(24);
    let setup = &Setup {
        shards: 1,
        groups: 2,
        second: false,
        compression: Some(Compression::Off),
        table_records: tables,
        datasets_max: Some(DATASETS),
        ..setup.clone()
    };
    let world = scene::world(setup);
    let operations = setup.operations;
    let full: Rc<RefCell<Option<Left>>> = Rc::default();
    let kept = full.clone();
    let ended = scene::play(&world, setup, NO_ERRORS, async move |scene: &Scene| {
        let failed = |error| Failure::Outcome(format!("without space: {error}"));
        scene.clients.create_volumes().await?;
        let volume = scene
            .engine
            .volumes(None)
            .await
            .ok()
            .and_then(|all| Some(format!("{POOL}/{}", all.first()?.name)));
        fill_catalog(scene, &volume.ok_or_else(|| Failure::Outcome("there is no volume".into()))?).await?;
        scene.events.lock().expect("no holder of this lock panics").clear();
        let filling = scene.clients.fill().await?;
        is_refused(scene, &[], "without space").await?;
        scene.clients.run(operations / 2).await?;
        scene.engine.checkpoint(POOL).await.map_err(failed)?;
        *kept.borrow_mut() = Some((scene.world.power_loss(|_, _| Fate::Lost), scene.clients.history()));
        scene.clients.discard_half(&filling).await?;
        for _ in 0..3 {
            scene.engine.checkpoint(POOL).await.map_err(failed)?;
        }
        let refused = scene.clients.refused.get();
        scene.clients.run(operations / 4).await?;
        if scene.clients.refused.get() > refused {
            return Err(Failure::Outcome(
                "half of what filled the pool was discarded, and there is no space".into(),
            ));
        }
        scene.clients.fill_again(&filling).await?;
        scene.clients.delete_filling(&filling).await?;
        is_refused(scene, &[], "after all was deleted").await?;
        scene.export().await
    })?;
    let images = (0..world.disk_count()).map(|disk| world.image(disk)).collect();
    verify(setup, images, &ended.history, Demand::STRICT, setup.seed)?;
    let (images, history) = full.take().expect("the script kept it");
    verify(setup, images, &Rc::new(history), Demand::STRICT, setup.seed)
        .map_err(|failure| failure.because("crashed without space"))?;
    Ok(Shown { cases: 2, faults: ended.excused, ..Shown::default() })
}
