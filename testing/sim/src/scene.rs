//! A pool in a world, with clients on it: what every scenario starts from.

use crate::harness::{Events, Failure, LIMIT, engine, in_world};
use crate::setup::{POOL, Setup};
use crate::workload::{Clients, History, Tolerance};
use forebay_pool::{DiskStatus, Engine};
use forebay_runtime::Rt;
use forebay_simulation::{Image, World, WorldConfig};
use std::rc::Rc;
use std::time::Duration;

/// What fills a pool whose blocks come back one checkpoint after the other takes some three million turns; who spins takes any number.
const TURNS_MAX: u64 = 8_000_000;

/// Everything a scenario's script can reach.
pub struct Scene {
    pub world: World,
    pub rt: Rt,
    pub engine: Engine,
    pub events: Events,
    pub clients: Rc<Clients>,
}

impl Scene {
    /// Closes the pool in good order.
    pub async fn export(&self) -> Result<(), Failure> {
        let failed = |error| Failure::Outcome(format!("the export failed: {error}"));
        self.engine.pool_export(POOL).await.map_err(failed)
    }

    /// How many events of this code tell of a disk.
    pub fn told(&self, code: &str, disk: usize) -> usize {
        let object = format!("{POOL}/{disk}");
        let events = self.events.lock().expect("no holder of this lock panics");
        events.iter().filter(|event| event.code == code && event.object == object).count()
    }

    /// What the pool says of a disk.
    pub async fn disk(&self, number: usize) -> Result<DiskStatus, Failure> {
        let pools = self.engine.pools().await;
        let mut disks = pools
            .iter()
            .filter(|pool| pool.name == POOL)
            .flat_map(|pool| &pool.groups)
            .flat_map(|group| &group.disks);
        let found = disks.find(|status| usize::from(status.number) == number);
        found.cloned().ok_or_else(|| Failure::Outcome(format!("disk {number} is no part of the pool")))
    }

    /// Has the setup's second group join, if it has one.
    pub async fn join_second(&self, setup: &Setup) -> Result<(), Failure> {
        if setup.second {
            let failed = |error| Failure::Outcome(format!("adding a group failed: {error}"));
            self.engine.group_add(POOL, setup.second_group()).await.map_err(failed)?;
        }
        Ok(())
    }
}

/// What a scenario leaves behind, beside its world.
pub struct Ended {
    pub history: Rc<History>,
    /// Operations that failed in a way the tolerance excuses.
    pub excused: u64,
}

/// A world with the setup's disks, empty.
pub fn world(setup: &Setup) -> World {
    let mut config = WorldConfig::new(setup.seed);
    config.shuffle = setup.shuffle;
    config.trace_contents = true;
    config.limits = setup.limits();
    config.turns_max = TURNS_MAX;
    let world = World::new(config);
    setup.paths().iter().for_each(|_| {
        world.add_disk(Image::new(setup.disk_bytes()));
    });
    setup.second_disks().for_each(|_| {
        world.add_disk(Image::new(setup.second_disk_bytes()));
    });
    world
}

/// Creates the setup's pool in `world`, with all its groups, and plays `script` on it.
pub fn play(
    world: &World,
    setup: &Setup,
    tolerance: Tolerance,
    script: impl AsyncFnOnce(&Scene) -> Result<(), Failure> + 'static,
) -> Result<Ended, Failure> {
    let own = setup.clone();
    play_first(world, setup, tolerance, async move |scene: &Scene| {
        scene.join_second(&own).await?;
        script(scene).await
    })
}

/// The same on a pool with its first group; [`Scene::join_second`] is the script's.
pub fn play_first(
    world: &World,
    setup: &Setup,
    tolerance: Tolerance,
    script: impl AsyncFnOnce(&Scene) -> Result<(), Failure> + 'static,
) -> Result<Ended, Failure> {
    let (world2, setup2) = (world.clone(), setup.clone());
    let limit = LIMIT.max(Duration::from_millis(50) * setup.operations as u32);
    in_world(world, setup.conditions(), limit, move |rt, cores| async move {
        let (engine, events) = engine(cores);
        let failed = |error| Failure::Outcome(format!("creating the pool failed: {error}"));
        engine.pool_create(setup2.pool_spec()).await.map_err(failed)?;
        let clients = Clients::new(&world2, &rt, &engine, &setup2, tolerance);
        let scene = Scene { world: world2, rt, engine, events, clients };
        script(&scene).await?;
        Ok(Ended { history: Rc::new(scene.clients.history()), excused: scene.clients.excused.get() })
    })
}
