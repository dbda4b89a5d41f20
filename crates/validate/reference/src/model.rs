//! Runs a case on modelled disks in virtual time: the engine's own code, from making the pools to the last answer.

use crate::configuration::{Case, Client, Configuration, Fails, Pool, Processor};
use forebay_base::{Id, Nanos};
use forebay_pool::{
    Engine, EngineConfig, Event, GroupAdd, Host, Layout, PoolSpec, Setting, Severity, Standing, SyncPolicy,
    Volume, VolumeChange, VolumeFormat, VolumeInfo, VolumeSpec,
};
use forebay_runtime::{Cores, OpenMode, Rt};
use forebay_simulation::{Image, OpKind, Sheet, World, WorldConfig};
use forebay_workload::{Costs, Link, Store, Tally, Target, contents, drive};
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
/// No pool takes a smaller cache disk.
const CACHE_BYTES_MIN: u64 = 32 << 20;
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
    /// Bytes of its volume that hold data, and what of the pool they take; zeros take nothing.
    pub mapped: u64,
    pub stored: u64,
}

/// What came of a disk that failed, in seconds since the measurement began; what had not happened when it ended is nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Failure {
    /// Number of the pool, from 0.
    pub pool: usize,
    pub noticed: Option<f64>,
    pub spare_used: Option<f64>,
    pub rebuilt: Option<f64>,
    /// Bytes that were written to disks that stood by.
    pub to_spares: u64,
    /// Bytes of it that were rebuilt and that were left, where it was under way at the end.
    pub under_way: Option<[u64; 2]>,
}

/// What came of a case.
pub struct Outcome {
    pub clients: Vec<Got>,
    /// For each disk that failed.
    pub failures: Vec<Failure>,
    /// For each pool, what part of the measured time each of its data disks worked.
    pub busy: Vec<Vec<f64>>,
    /// Of the measured time of all processors, what part they worked; nothing where they take no time.
    pub processors: Option<f64>,
    /// Bytes a second over all ports, to the pools and from them.
    pub network: [f64; 2],
    /// Requests to disks, from the beginning to the end.
    pub disk_requests: u64,
}

impl Failure {
    /// With what the engine said, by clocks of milliseconds of which `began` was when it began to be measured.
    fn with(self, events: &[Event], began: u64) -> Failure {
        let pool = format!("pool{}/", self.pool);
        let when = |code: &str| {
            let mut all = events.iter().filter(|event| event.code == code && event.object.starts_with(&pool));
            all.next().map(|event| event.at.0.saturating_sub(began) as f64 / 1e3)
        };
        let [noticed, spare_used, rebuilt] = ["disk.failed", "disk.spare_used", "disk.rebuilt"].map(when);
        Failure { noticed, spare_used, rebuilt, ..self }
    }
}

fn told(error: impl Display) -> String {
    error.to_string()
}

/// A pool of a case: which disks of the world it has, group by group.
struct Plan {
    layout: Layout,
    groups: Vec<Vec<usize>>,
    log: Vec<usize>,
    spares: Vec<usize>,
    cache: Vec<usize>,
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
    let name = pool.disk.as_deref().unwrap_or(&machine.disk);
    let (disk, layout) = (model(name).scaled(machine.scale), pool.layout.0);
    let disks = pool.disks.map_or(layout.width(), |disks| disks as usize);
    let group = |_| add_disks(world, &disk, disk.bytes(), disks);
    let groups: Vec<Vec<usize>> = (0..pool.groups).map(group).collect();
    if let Some(bytes) = pool.sector_bytes {
        groups.iter().flatten().for_each(|disk| world.set_sector(*disk, bytes));
    }
    let log = if pool.bare { None } else { machine.log.as_deref() };
    let log = log.map_or(Vec::new(), |name| {
        let flash = model(name);
        add_disks(world, &flash, flash.bytes().min(LOG_BYTES), 2)
    });
    let spares = add_disks(world, &disk, disk.bytes(), pool.spares as usize);
    let cache = pool.cache.zip(machine.cache.as_deref()).map_or(Vec::new(), |(cache, name)| {
        let bytes = (cache.gib * GIB / machine.scale).max(CACHE_BYTES_MIN);
        add_disks(world, &model(name), bytes, cache.disks as usize)
    });
    Plan { layout, groups, log, spares, cache }
}

/// Runs a case; the same seed gives the same outcome.
pub fn run(configuration: &Configuration, case: &Case, seed: u64) -> Result<Outcome, String> {
    let traces = configuration.workloads.iter().filter_map(|client| client.workload.trace.as_ref());
    if let Some(trace) = traces.into_iter().find(|trace| trace.requests.is_empty()) {
        return Err(format!("{} was not read", trace.path));
    }
    let config =
        WorldConfig { shuffle: false, turns_max: u64::MAX, power_fails: false, ..WorldConfig::new(seed) };
    let world = World::new(config);
    let plans: Vec<Plan> = case.pools.iter().map(|pool| plan(&world, configuration, pool)).collect();
    let (executor, cores) = world.executor(1);
    let rt = executor.rt().clone();
    let work =
        Work { world: world.clone(), rt, configuration: configuration.clone(), case: case.clone(), seed };
    let ended = world.run(&executor, LIMIT, async move { work.run(cores, &plans).await });
    ended.unwrap_or_else(|stuck| Err(format!("the run exceeded {:?} of virtual time", stuck.after)))
}

/// Where what a client asks for is.
enum Place {
    Volume(Box<VolumeInfo>),
    /// On these disks, from this byte on.
    Disks(Vec<String>, u64),
}

/// What a client asks.
struct Asked {
    pool: usize,
    client: Client,
    size: u64,
    place: Place,
}

impl Asked {
    /// Of its volume, if it has one.
    fn name(&self) -> Option<String> {
        match &self.place {
            Place::Volume(info) => Some(format!("pool{}/{}", self.pool, info.name)),
            Place::Disks(..) => None,
        }
    }
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
        let told_events = Arc::new(Mutex::new(Vec::new()));
        let sink = told_events.clone();
        let events = Arc::new(move |event: Event| sink.lock().expect("nobody panics with it").push(event));
        let memory = self.configuration.machine.memory_mib * MIB;
        let host = Host { id: Id(1), name: "model".into() };
        let engine = Engine::new(cores, EngineConfig { memory, events, host });
        let levels = self.configuration.workloads.iter().zip(LEVELS..);
        let levels = levels.filter_map(|(client, id)| Some((Id(id), client.level.as_ref()?.level())));
        engine.set_levels(&levels.collect::<BTreeMap<_, _>>()).await.map_err(told)?;
        let mut targets = Vec::new();
        for (number, (pool, plan)) in self.case.pools.iter().zip(plans).enumerate() {
            if pool.bare {
                targets.extend(self.bare(number, pool, plan)?);
                continue;
            }
            let (name, first) = (format!("pool{number}"), targets.len());
            make_pool(&engine, &name, plan).await?;
            for (nth, workload) in pool.workloads.iter().enumerate() {
                let client = self.configuration.client(workload).expect("the configuration was checked");
                let info = self.volume(&engine, &name, nth, client).await?;
                let (client, size) = (client.clone(), info.size);
                targets.push(Asked { pool: number, client, size, place: Place::Volume(Box::new(info)) });
            }
            // Volumes follow what they were promised from here on.
            engine.pool_calibrate(&name).await.map_err(told)?;
            for Asked { client, place, .. } in &targets[first..] {
                let nth = self.configuration.workloads.iter().position(|other| other == client);
                let id = Id(LEVELS + nth.expect("it is one of them") as u128);
                if let (Some(_), Place::Volume(info)) = (&client.level, place) {
                    let change = VolumeChange { level: Setting::Own(id), ..VolumeChange::default() };
                    engine.volume_set(&format!("{name}/{}", info.name), change).await.map_err(told)?;
                }
            }
        }
        let named = targets.iter().map(Asked::name).collect::<Vec<_>>();
        let began = self.rt.wall().0 + self.configuration.machine.warm_seconds * 1000;
        let to_spares = |number: usize| -> u64 {
            plans[number].spares.iter().map(|disk| self.world.written(*disk)).sum()
        };
        let stood_by: Vec<u64> = (0..plans.len()).map(to_spares).collect();
        let mut outcome = self.measure(targets, plans).await?;
        for (got, name) in outcome.clients.iter_mut().zip(&named) {
            let Some(name) = name else { continue };
            let VolumeInfo { standing, mapped, stored, .. } = engine.volume(name).await.map_err(told)?;
            (got.standing, got.mapped, got.stored) = (standing, mapped, stored);
        }
        let events = std::mem::take(&mut *told_events.lock().expect("nobody panics with it"));
        // That a disk has gone is what was asked for.
        let fails = self.case.pools.iter().any(|pool| pool.fails.is_some());
        let is_error =
            |event: &&Event| event.severity == Severity::Error && !(fails && event.code.starts_with("disk."));
        let errors: Vec<&Event> = events.iter().filter(is_error).collect();
        if let Some(Event { object, message, .. }) = errors.first() {
            return Err(format!(
                "the engine reported {} errors; the first is {object}: {message}",
                errors.len()
            ));
        }
        let pools = self.case.pools.iter().enumerate();
        for (number, _) in pools.filter(|(_, pool)| pool.fails.is_some()) {
            let name = format!("pool{number}");
            let status = engine.pools().await.into_iter().find(|status| status.name == name);
            let healing = status.and_then(|status| status.healing);
            let under_way = healing.map(|healing| [healing.bytes_done, healing.bytes_left]);
            let to_spares = to_spares(number) - stood_by[number];
            let failure = Failure { pool: number, to_spares, under_way, ..Failure::default() };
            outcome.failures.push(failure.with(&events, began));
        }
        Ok(outcome)
    }

    /// Parts of bare disks, one after the other.
    fn bare(&self, number: usize, pool: &Pool, plan: &Plan) -> Result<Vec<Asked>, String> {
        let mut first = 0;
        let part = |workload: &String| {
            let client = self.configuration.client(workload).expect("the configuration was checked").clone();
            let size = self.size(&client);
            let names = names(&plan.groups.concat());
            first += size;
            Asked { pool: number, client, size, place: Place::Disks(names, first - size) }
        };
        Ok(pool.workloads.iter().map(part).collect())
    }

    /// Bytes of a client's volume.
    fn size(&self, client: &Client) -> u64 {
        client.workload.size_gib * GIB / self.configuration.machine.scale / MIB * MIB
    }

    /// What a client's requests cost the processors.
    fn costs(&self, client: &Client, is_bare: bool) -> Costs {
        let Some(processor) = self.configuration.machine.processor.as_ref().filter(|_| !is_bare) else {
            return Costs::default();
        };
        let packing = client.compression.as_ref().and_then(|name| processor.compression.get(name));
        let [pack, unpack] = packing.copied().unwrap_or_default();
        let Processor { read_ns, write_ns, kib_ns, .. } = *processor;
        Costs { read: read_ns, write: write_ns, read_kib: kib_ns + unpack, write_kib: kib_ns + pack }
    }

    /// A volume for this client, written once from end to end.
    async fn volume(
        &self,
        engine: &Engine,
        pool: &str,
        nth: usize,
        client: &Client,
    ) -> Result<VolumeInfo, String> {
        let size = self.size(client);
        let spec = VolumeSpec {
            pool: pool.into(),
            name: format!("{}-{nth}", client.workload.name),
            size,
            block_size: (client.volume_block_kib << 10) as u32,
            sync: Some(SyncPolicy::Always),
            compression: Some(client.compression()),
            format: VolumeFormat::Thin,
            level: None,
            own_hosts: false,
        };
        let info = engine.volume_create(spec).await.map_err(told)?;
        let volume = Volume::open(&self.rt, info.id).map_err(told)?;
        let mut data = self.rt.arena().take_zeroed(MIB as usize);
        data.copy_from_slice(&contents(client.workload.contents, MIB as usize));
        let data = data.freeze();
        for at in (0..size).step_by(MIB as usize) {
            volume.write(at, vec![data.clone()], false).await.map_err(told)?;
        }
        engine.checkpoint(pool).await.map_err(told)?;
        Ok(info)
    }

    async fn measure(&self, targets: Vec<Asked>, plans: &[Plan]) -> Result<Outcome, String> {
        let machine = &self.configuration.machine;
        let from = Nanos(self.rt.now().0 + machine.warm_seconds * SECOND);
        let to = Nanos(from.0 + machine.seconds * SECOND);
        let cores = machine.processor.as_ref().map_or(0, |processor| processor.cores);
        let link = Rc::new(Link::new(machine.network_ports, machine.network_gbit, cores));
        for (pool, plan) in self.case.pools.iter().zip(plans) {
            let Some(Fails { disk, after_seconds }) = pool.fails else { continue };
            let (rt, world) = (self.rt.clone(), self.world.clone());
            let disk = plan.groups.concat()[disk as usize];
            let at = Nanos(from.0 + after_seconds * SECOND);
            drop(self.rt.spawn(async move {
                rt.sleep_until(at).await;
                world.set_gone(disk, true);
            }));
        }
        let mut tasks = Vec::new();
        for (nth, Asked { pool, client, size, place }) in targets.into_iter().enumerate() {
            let costs = self.costs(&client, matches!(place, Place::Disks(..)));
            let store = match place {
                Place::Volume(info) => Store::Volume(Rc::new(Volume::open(&self.rt, info.id).map_err(told)?)),
                Place::Disks(names, first) => {
                    let open = |name: &String| self.rt.open_disk(name, OpenMode::ReadWrite).map_err(told);
                    Store::Disks { disks: names.iter().map(open).collect::<Result<_, _>>()?, first }
                }
            };
            let target = Target { store, size, link: link.clone(), costs };
            let (rt, seed) = (self.rt.clone(), self.seed.wrapping_mul(1000) + nth as u64);
            tasks.push(self.rt.spawn(async move {
                let tally = drive(&rt, target, &client.workload, seed, (from, to)).await;
                Got { workload: client.workload.name, pool, tally, standing: None, mapped: 0, stored: 0 }
            }));
        }
        self.rt.sleep_until(from).await;
        let busy = |plan: &Plan| -> Vec<Duration> {
            plan.groups.iter().flatten().map(|disk| self.world.busy(*disk)).collect()
        };
        let before: Vec<Vec<Duration>> = plans.iter().map(busy).collect();
        let (worked_before, carried_before) = (link.worked(), link.carried());
        self.rt.sleep_until(to).await;
        let seconds = machine.seconds as f64;
        let worked = (link.worked() - worked_before) as f64 / 1e9;
        let processors = (cores > 0).then(|| worked / seconds / f64::from(cores));
        let carried = link.carried();
        let network = [0, 1].map(|way| (carried[way] - carried_before[way]) as f64 / seconds);
        let part = |(before, after): (&Duration, Duration)| (after - *before).as_secs_f64() / seconds;
        let worked =
            plans.iter().zip(&before).map(|(plan, before)| before.iter().zip(busy(plan)).map(part).collect());
        let busy = worked.collect();
        let mut clients = Vec::new();
        for task in tasks {
            clients.push(task.await);
        }
        let kinds = [OpKind::Read, OpKind::Write, OpKind::Flush];
        let requests = |disk| kinds.map(|kind| self.world.operations(disk, kind)).iter().sum::<u64>();
        let disk_requests = (0..self.world.disk_count()).map(requests).sum();
        Ok(Outcome { clients, failures: Vec::new(), busy, processors, network, disk_requests })
    }
}

async fn make_pool(engine: &Engine, name: &str, plan: &Plan) -> Result<(), String> {
    let (first, others) = plan.groups.split_first().expect("a pool has a group");
    let spec = PoolSpec {
        name: name.into(),
        layout: plan.layout,
        disks: names(first),
        log_disks: names(&plan.log),
        spare_disks: names(&plan.spares),
        cache_disks: names(&plan.cache),
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
