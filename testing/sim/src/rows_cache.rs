//! A row of the matrix about cache disks: whatever they do, nobody notices.

use crate::harness::Failure;
use crate::matrix::Shown;
use crate::rows_heal::failed;
use crate::scene::{self, Scene};
use crate::setup::{POOL, Setup};
use crate::verify::{Demand, verify};
use crate::workload::{Mix, Tolerance};
use forebay_base::{MIB, Random};
use forebay_pool::{DiskAdd, DiskState, DiskStatus, Import, PoolState, Purpose};
use forebay_runtime::DiskErrorKind;
use forebay_simulation::{Action, Fate, OpKind, Rule};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Longer than a disk may hang.
const LONG: Duration = Duration::from_secs(30);
/// Clients have done their work by then, whatever a cache disk does.
const SOON: Duration = Duration::from_secs(5);

/// Rot in all that a cache disk has; or it lies about where it wrote, cannot be read or written, vanishes or hangs. Clients see no error, nothing waits for
/// long, and the pool is as redundant as it was.
pub fn faulty(setup: &Setup) -> Result<Shown, Failure> {
    let setup = &Setup { cache_disks: 1, ..setup.clone() };
    let world = scene::world(setup);
    let (own, struck) = (setup.clone(), Rc::new(Cell::new(0)));
    let count = struck.clone();
    let tolerance = Tolerance { errors: false, no_space: true };
    let ended = scene::play(&world, setup, tolerance, async move |scene: &Scene| {
        let cache = own.paths().len() - 1;
        let mut random = Random::new(own.seed ^ 0xcac4e);
        scene.clients.create_volumes().await?;
        for round in 0..6 {
            scene.clients.run(own.operations / 2).await?;
            // What was in memory is read from disks, and then from the cache disk.
            for _ in 0..2 {
                again(scene, &own).await?;
                scene.clients.mix.set(Mix::READS);
                scene.clients.run(own.operations).await?;
            }
            let rule = |action| Rule::new(cache, action);
            match (own.seed + round) % 6 {
                0 => {
                    for at in (MIB..own.disk_bytes() - MIB).step_by(4096) {
                        scene.world.rot(cache, at + 64 + random.below(4000), &[1 << random.below(8)]);
                    }
                }
                1 => scene.world.add_rule(rule(Action::Misdirect(None)).on(OpKind::Write)),
                2 => scene.world.add_rule(rule(Action::Fail(DiskErrorKind::Unreadable)).on(OpKind::Read)),
                3 => scene.world.add_rule(rule(Action::Fail(DiskErrorKind::Io)).on(OpKind::Write)),
                4 => scene.world.set_gone(cache, true),
                _ => scene.world.add_rule(rule(Action::Hang)),
            }
            let begun = scene.rt.now();
            scene.clients.run(own.operations).await?;
            let took = Duration::from_nanos(scene.rt.now().since(begun));
            if took > SOON {
                return Err(Failure::Outcome(format!("clients waited for a cache disk: {took:?}")));
            }
            scene.rt.sleep(LONG).await;
            scene.clients.run(own.operations).await?;
            scene.clients.mix.set(Mix::default());
            count.set(count.get() + scene.world.faults_fired() + disk(scene, cache).await?.errors.checksum);
            scene.world.take_rules();
            scene.world.release(cache);
            scene.world.set_gone(cache, false);
            match scene.engine.pools().await.first().map(|pool| pool.state) {
                Some(PoolState::Online) => {}
                state => {
                    return Err(Failure::Outcome(format!(
                        "a cache disk was faulty, and the pool is {state:?}"
                    )));
                }
            }
            replace(scene, cache).await?;
        }
        Ok(())
    })?;
    let images = world.power_loss(|_, _| Fate::Lost);
    let verified = verify(setup, images, &ended.history, Demand::STRICT, setup.seed)?;
    Ok(Shown {
        cases: 6,
        errors: verified.unreadable_sectors,
        repaired: verified.repaired,
        faults: struck.get(),
    })
}

async fn again(scene: &Scene, setup: &Setup) -> Result<(), Failure> {
    scene.export().await?;
    let paths = (0..scene.world.disk_count()).map(|disk| format!("sim{disk}")).collect();
    scene.engine.pool_import(POOL, paths, Import::default()).await.map_err(failed("importing failed"))?;
    scene.clients.open_again().await?;
    // What the cache has is looked for.
    scene.rt.sleep(Duration::from_millis(setup.shards as u64 * 100)).await;
    Ok(())
}

/// What the pool says of a disk: its number changes when it leaves and comes back.
async fn disk(scene: &Scene, number: usize) -> Result<DiskStatus, Failure> {
    let (pools, path) = (scene.engine.pools().await, format!("sim{number}"));
    let mut disks = pools.iter().flat_map(|pool| &pool.groups).flat_map(|group| &group.disks);
    disks
        .find(|disk| disk.path == path)
        .cloned()
        .ok_or_else(|| Failure::Outcome(format!("{path} is no part of the pool")))
}

/// A cache disk that has failed leaves, and comes back.
async fn replace(scene: &Scene, cache: usize) -> Result<(), Failure> {
    let disk = disk(scene, cache).await?;
    if disk.state != DiskState::Cache {
        let path = disk.path;
        scene.engine.disk_remove(POOL, &path).await.map_err(failed("removing a cache disk failed"))?;
        let add = DiskAdd { purpose: Purpose::Cache, force: true, ..DiskAdd::default() };
        scene.engine.disk_add(POOL, vec![path], add).await.map_err(failed("adding a cache disk failed"))?;
    }
    Ok(())
}
