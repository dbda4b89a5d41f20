//! Runs a case on modelled disks in virtual time: the engine's own code, from making the pools to the last answer.

use crate::configuration::{Case, Client, Configuration, Pool};
use forebay_base::{Id, Nanos};
use forebay_pool::{
    Compression, Engine, EngineConfig, Event, GroupAdd, Host, Layout, PoolSpec, Setting, Severity, Standing,
    SyncPolicy, Volume, VolumeChange, VolumeFormat, VolumeInfo, VolumeSpec,
};
use forebay_runtime::{Cores, Rt};
use forebay_simulation::{Image, OpKind, Sheet, World, WorldConfig};
use forebay_workload::{Link, Tally, drive};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;
/// Virtual time in which a case must be over: a measurement of each pool, filling it, and the longest run.
const LIMIT: Duration = Duration::from_secs(48 * 3600);
/// Bytes of a log device that are used: more than the largest log takes twice.
const LOG_BYTES: u64 = 4 * GIB;
/// Levels of these ids and after are the workloads'.
const LEVELS: u128 = 1000;

/// What one client got.
pub struct Got {
    pub workload: String,
    /// Number of the pool that its volume is in, from 0.
    pub pool: usize,
    pub tally: Tally,
    /// Whether what its volume was promised could be kept, at the end.
    pub standing: Option<Standing>,
}

/// What came of a case.
pub struct Outcome {
    pub clients: Vec<Got>,
    /// For each pool, what part of the measured time each of its data disks worked.
    pub busy: Vec<Vec<f64>>,
    /// Requests to disks, from the beginning to the end.
    pub disk_requests: u64,
}

fn told(error: impl Display) -> String {
    error.to_string()
}

/// The pools of a case: which disks of the world each has, group by group.
struct Plan {
    layout: Layout,
    groups: Vec<Vec<usize>>,
    log: Vec<usize>,
}

fn names(disks: &[usize]) -> Vec<String> {
    disks.iter().map(|disk| format!("sim{disk}")).collect()
}

fn add_disks(world: &World, sheet: &Sheet, bytes: u64, count: usize) -> Vec<usize> {
    let add = |_| {
        let disk = world.add_disk(Image::new(bytes));
        world.set_model(disk, sheet);
        disk
    };
    (0..count).map(add).collect()
}

fn plan(world: &World, configuration: &Configuration, pool: &Pool) -> Plan {
    let machine = &configuration.machine;
    let model = |name: &str| configuration.sheet(name).expect("the configuration was checked").0;
    let (disk, layout) = (model(&machine.disk).scaled(machine.scale), pool.layout.0);
    let disks = pool.disks.map_or(layout.width(), |disks| disks as usize);
    let group = |_| add_disks(world, &disk, disk.bytes(), disks);
    let groups = (0..pool.groups).map(group).collect();
    let log = machine.log.as_deref().map_or(Vec::new(), |name| {
        let flash = model(name);
        add_disks(world, &flash, flash.bytes().min(LOG_BYTES), 2)
    });
    Plan { layout, groups, log }
}

/// Runs a case; the same seed gives the same outcome.
pub fn run(configuration: &Configuration, case: &Case, seed: u64) -> Result<Outcome, String> {
    let config = WorldConfig { shuffle: false, turns_max: u64::MAX, ..WorldConfig::new(seed) };
    let world = World::new(config);
    let plans: Vec<Plan> = case.pools.iter().map(|pool| plan(&world, configuration, pool)).collect();
    let (executor, cores) = world.executor(1);
    let rt = executor.rt().clone();
    let work =
        Work { world: world.clone(), rt, configuration: configuration.clone(), case: case.clone(), seed };
    let ended = world.run(&executor, LIMIT, async move { work.run(cores, &plans).await });
    ended.unwrap_or_else(|stuck| Err(format!("not over after {:?} of virtual time", stuck.after)))
}

struct Work {
    world: World,
    rt: Rt,
    configuration: Configuration,
    case: Case,
    seed: u64,
}

impl Work {
    async fn run(self, cores: Cores, plans: &[Plan]) -> Result<Outcome, String> {
        let errors = Arc::new(Mutex::new(Vec::new()));
        let sink = errors.clone();
        let events = Arc::new(move |event: Event| {
            if event.severity == Severity::Error {
                sink.lock()
                    .expect("nobody panics with it")
                    .push(format!("{}: {}", event.object, event.message));
            }
        });
        let memory = self.configuration.machine.memory_mib * MIB;
        let host = Host { id: Id(1), name: "model".into() };
        let engine = Engine::new(cores, EngineConfig { memory, events, host });
        let levels = self.configuration.workloads.iter().zip(LEVELS..);
        let levels = levels.filter_map(|(client, id)| Some((Id(id), client.level.as_ref()?.level())));
        engine.set_levels(&levels.collect::<BTreeMap<_, _>>()).await.map_err(told)?;
        let mut volumes = Vec::new();
        for (number, (pool, plan)) in self.case.pools.iter().zip(plans).enumerate() {
            let name = format!("pool{number}");
            make_pool(&engine, &name, plan).await?;
            for (nth, workload) in pool.workloads.iter().enumerate() {
                let client = self.configuration.client(workload).expect("the configuration was checked");
                let volume = self.volume(&engine, &name, nth, client).await?;
                volumes.push((number, client.clone(), volume));
            }
            // Volumes follow what they were promised from here on.
            engine.pool_calibrate(&name).await.map_err(told)?;
            for (_, client, info) in volumes.iter().filter(|(of, ..)| *of == number) {
                let place = self.configuration.workloads.iter().position(|other| other == client);
                let id = Id(LEVELS + place.expect("it is one of them") as u128);
                if client.level.is_some() {
                    let change = VolumeChange { level: Setting::Own(id), ..VolumeChange::default() };
                    engine.volume_set(&format!("{name}/{}", info.name), change).await.map_err(told)?;
                }
            }
        }
        let named =
            volumes.iter().map(|(pool, _, info)| format!("pool{pool}/{}", info.name)).collect::<Vec<_>>();
        let mut outcome = self.measure(volumes, plans).await?;
        for (got, name) in outcome.clients.iter_mut().zip(&named) {
            got.standing = engine.volume(name).await.map_err(told)?.standing;
        }
        let errors = std::mem::take(&mut *errors.lock().expect("nobody panics with it"));
        match errors.first() {
            Some(error) => Err(format!("the engine reported {} errors, first {error}", errors.len())),
            None => Ok(outcome),
        }
    }

    /// A volume for this client, written once from end to end.
    async fn volume(
        &self,
        engine: &Engine,
        pool: &str,
        nth: usize,
        client: &Client,
    ) -> Result<VolumeInfo, String> {
        let size = client.workload.size_gib * GIB / self.configuration.machine.scale / MIB * MIB;
        let spec = VolumeSpec {
            pool: pool.into(),
            name: format!("{}-{nth}", client.workload.name),
            size,
            block_size: (client.volume_block_kib << 10) as u32,
            sync: Some(SyncPolicy::Always),
            compression: Some(Compression::Off),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = engine.volume_create(spec).await.map_err(told)?;
        let volume = Volume::open(&self.rt, info.id).map_err(told)?;
        // What is not compressed is stored as it is, and modelled disks keep zeros without taking memory.
        let zeros = self.rt.arena().take_zeroed(MIB as usize).freeze();
        for at in (0..size).step_by(MIB as usize) {
            volume.write(at, vec![zeros.clone()], false).await.map_err(told)?;
        }
        engine.checkpoint(pool).await.map_err(told)?;
        Ok(info)
    }

    async fn measure(
        &self,
        volumes: Vec<(usize, Client, VolumeInfo)>,
        plans: &[Plan],
    ) -> Result<Outcome, String> {
        let machine = &self.configuration.machine;
        let from = Nanos(self.rt.now().0 + machine.warm_seconds * SECOND);
        let to = Nanos(from.0 + machine.seconds * SECOND);
        let link = Rc::new(Link::new(machine.network_gbit));
        let mut tasks = Vec::new();
        for (nth, (pool, client, info)) in volumes.into_iter().enumerate() {
            let volume = Rc::new(Volume::open(&self.rt, info.id).map_err(told)?);
            let (rt, link, seed) = (self.rt.clone(), link.clone(), self.seed.wrapping_mul(1000) + nth as u64);
            tasks.push(self.rt.spawn(async move {
                let tally = drive(&rt, volume, link, &client.workload, info.size, seed, (from, to)).await;
                Got { workload: client.workload.name, pool, tally, standing: None }
            }));
        }
        self.rt.sleep_until(from).await;
        let busy = |plan: &Plan| -> Vec<Duration> {
            plan.groups.iter().flatten().map(|disk| self.world.busy(*disk)).collect()
        };
        let before: Vec<Vec<Duration>> = plans.iter().map(busy).collect();
        self.rt.sleep_until(to).await;
        let part =
            |(before, after): (&Duration, Duration)| (after - *before).as_secs_f64() / machine.seconds as f64;
        let worked =
            plans.iter().zip(&before).map(|(plan, before)| before.iter().zip(busy(plan)).map(part).collect());
        let busy = worked.collect();
        let mut clients = Vec::new();
        for task in tasks {
            clients.push(task.await);
        }
        let kinds = [OpKind::Read, OpKind::Write, OpKind::Flush];
        let requests = |disk| kinds.map(|kind| self.world.operations(disk, kind)).iter().sum::<u64>();
        Ok(Outcome { clients, busy, disk_requests: (0..self.world.disk_count()).map(requests).sum() })
    }
}

async fn make_pool(engine: &Engine, name: &str, plan: &Plan) -> Result<(), String> {
    let (first, others) = plan.groups.split_first().expect("a pool has a group");
    let spec = PoolSpec {
        name: name.into(),
        layout: plan.layout,
        disks: names(first),
        log_disks: names(&plan.log),
        spare_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards: 1,
        log_bytes: None,
        force: false,
    };
    engine.pool_create(spec).await.map_err(told)?;
    for group in others {
        let add = GroupAdd {
            layout: plan.layout,
            disks: names(group),
            enclosures: Vec::new(),
            sectors: Vec::new(),
            force: false,
        };
        engine.group_add(name, add).await.map_err(told)?;
    }
    Ok(())
}
