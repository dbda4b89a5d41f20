//! Import: from paths to a running pool. Everything that speaks against it is found before anything is written.

use crate::assembly::{Assembly, JOINING, assemble, check_tolerance, refuse};
use crate::control::{Control, ControlDisk};
use crate::create::check_pool_name;
use crate::error::{Error, ErrorKind};
use crate::forced::check_host;
use crate::format::{ShardRoot, Super};
use crate::names::Place;
use crate::open::OpenShard;
use crate::projects::Projects;
use crate::registry::{PoolShared, call, registry};
use crate::retention::PoolClock;
use crate::slots::SlotMap;
use crate::spec::{Event, Import, PoolFound, Severity};
use crate::{Engine, EngineConfig};
use forebay_base::{Id, WallTime};
use forebay_device::{
    DiskEntry, DiskLayout, DiskStatus, Feature, GroupEntry, Health, Label, LabelError, Overlay,
    SuperblockSlot, UNIT, read_labels, read_superblocks,
};
use forebay_raid::{Array, Crowds};
use forebay_runtime::{Cores, Disk, Kind, OpenError, OpenMode, Rt};
use forebay_space::{ChunkEntry, Lines};
use futures_util::future::{Either, select};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A disk with a label, found at a path.
pub(crate) struct Found {
    pub path: String,
    pub disk: Disk,
    pub label: Label,
}

/// Opens a disk of a pool that is imported, for itself alone; one that is not to be written to so that it cannot be.
fn open_member(rt: &Rt, path: &str, read_only: bool) -> Result<Disk, OpenError> {
    match rt.open_disk(path, OpenMode::ReadWrite) {
        Ok(disk) if read_only => Ok(Overlay::over(rt, disk)),
        // Read-only media: nobody else writes to them either.
        Err(OpenError::NotPermitted) if read_only => {
            Ok(Overlay::over(rt, rt.open_disk(path, OpenMode::Read)?))
        }
        result => result,
    }
}

/// A disk that takes longer to say what it is hangs, and counts as one that is missing.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What is at a path.
pub(crate) enum Probe {
    Labelled(Box<Found>),
    /// Readable, without a whole label; what is wrong with it if it has a damaged or newer one.
    Blank(Disk, Option<LabelError>),
    Unopened(OpenError),
}

pub(crate) async fn probe(rt: &Rt, path: &str, mode: OpenMode) -> Probe {
    match rt.open_disk(path, mode) {
        Ok(disk) => probe_disk(rt, path, disk).await,
        Err(error) => Probe::Unopened(error),
    }
}

pub(crate) async fn probe_disk(rt: &Rt, path: &str, disk: Disk) -> Probe {
    let labels = match select(pin!(read_labels(rt, &disk)), rt.sleep(ANSWER_MAX)).await {
        Either::Left((labels, _)) => labels,
        Either::Right(_) => {
            // Nobody looks at what it answers now, and who looks again asks it again.
            disk.give_up();
            let seconds = ANSWER_MAX.as_secs();
            return Probe::Unopened(OpenError::Io(format!(
                "the disk has not answered for {seconds} seconds"
            )));
        }
    };
    let mut errors = labels.iter().filter_map(|label| label.as_ref().err().copied());
    let worst = errors.clone().find(|error| *error != LabelError::Absent);
    // A copy that was written before may not say it yet.
    if let Some(needs) = errors.find(|error| matches!(error, LabelError::Needs(_))) {
        return Probe::Blank(disk, Some(needs));
    }
    match labels.into_iter().filter_map(Result::ok).max_by_key(Label::order) {
        Some(label) => Probe::Labelled(Box::new(Found { path: path.into(), disk, label })),
        None => Probe::Blank(disk, worst),
    }
}

/// Pools on the disks at `paths`. The newest label of a pool says which disks it has in service: old ones list disks that have left since.
pub(crate) async fn scan(rt: &Rt, paths: &[String]) -> Vec<PoolFound> {
    let mut pools: Vec<(PoolFound, Vec<Label>)> = Vec::new();
    let mut newest: BTreeMap<Id, SuperblockSlot> = BTreeMap::new();
    for path in paths {
        let Probe::Labelled(found) = probe(rt, path, OpenMode::Read).await else { continue };
        for slot in read_superblocks(rt, &found.disk, found.label.pool).await {
            if newest.get(&slot.pool).is_none_or(|known| known.order() < slot.order()) {
                newest.insert(slot.pool, slot);
            }
        }
        let (id, name) = (found.label.pool, found.label.pool_name.clone());
        match pools.iter_mut().find(|(pool, _)| pool.id == id) {
            Some((pool, labels)) => {
                pool.disks_found.push(path.clone());
                labels.push(found.label);
            }
            None => {
                let pool =
                    PoolFound { id, name, disks_found: vec![path.clone()], disks_missing: 0, host: None };
                pools.push((pool, vec![found.label]));
            }
        }
    }
    for (pool, labels) in &mut pools {
        pool.disks_missing = missing(labels);
        let slot = newest.get(&pool.id).map(|slot| Super::decode(&slot.payload));
        pool.host = slot.and_then(|slot| slot.ok()?).filter(|slot| !slot.exported).map(|slot| slot.host);
    }
    pools.into_iter().map(|(pool, _)| pool).collect()
}

/// The pool uses something that came with a later version.
fn lacks(object: &str, feature: &Feature, besides: &str) -> Error {
    let message = format!(
        "its pool uses the feature '{}', which this version of forebay does not know",
        feature.name()
    );
    refuse(
        object,
        message,
        &format!("Import the pool with the version that wrote it, or a newer one{besides}"),
    )
}

/// How many of the disks that a pool has in service are not among those with these labels.
fn missing(labels: &[Label]) -> usize {
    let newest = labels.iter().filter(|label| label.generation != JOINING);
    let Some(newest) = newest.max_by_key(|label| label.order()) else { return 0 };
    let own = |label: &Label| label.disks.get(usize::from(label.disk)).map(|entry| entry.id);
    let is_there = |id: Id| labels.iter().any(|label| own(label) == Some(id));
    newest.disks.iter().filter(|disk| disk.status.in_service() && !is_there(disk.id)).count()
}

/// Builds the array of a pool's disks on the core one runs on.
pub(crate) fn build_array(
    rt: &Rt,
    label: &Label,
    disks: Vec<Option<Disk>>,
    healths: &[Arc<Health>],
    crowds: Crowds,
    failed: Box<dyn Fn(u16) -> forebay_raid::Recorded>,
) -> Array {
    let array = Array::new(rt.clone(), crowds, failed);
    for (index, group) in label.groups.iter().enumerate().filter(|(index, _)| label.is_inhabited(*index)) {
        array.add_group(index as u16, group);
    }
    for (index, disk) in disks.into_iter().enumerate().filter(|(index, _)| label.disks[*index].has_slots()) {
        let entry = &label.disks[index];
        let disk = disk.map(|disk| (disk, layout_of(label, entry)));
        array.add_disk(index as u16, place_of(label, index as u16), healths[index].clone(), disk);
    }
    array
}

pub(crate) fn place_of(label: &Label, disk: u16) -> forebay_raid::Place {
    let DiskEntry { group, enclosure, .. } = label.disks[usize::from(disk)];
    forebay_raid::Place { group, line: label.line(disk), enclosure }
}

pub(crate) fn layout_of(label: &Label, disk: &DiskEntry) -> DiskLayout {
    let group = &label.groups[usize::from(disk.group)];
    DiskLayout::new(disk.size, group.slot_bytes, u64::from(group.data)).expect("checked when it was added")
}

/// Chunks of data that can be filled side by side on disks of their own, for each shard.
pub(crate) fn lanes(label: &Label) -> usize {
    let members = |index: usize| {
        label.disks.iter().filter(|disk| usize::from(disk.group) == index && disk.counts()).count()
    };
    let data = label.groups.iter().enumerate().filter(|(_, group)| group.role == 0 && !group.leaving);
    let beside = data.map(|(index, group)| members(index) / usize::from(group.data + group.redundancy));
    beside.sum::<usize>().div_ceil(usize::from(label.shards.max(1)))
}

/// By group, the lines of its chunks of data; none for one that has left.
pub(crate) fn lines(label: &Label) -> Vec<Lines> {
    let groups = label.groups.iter().enumerate();
    groups
        .map(|(index, group)| if label.is_inhabited(index) { lines_of(group) } else { Lines::default() })
        .collect()
}

pub(crate) fn lines_of(group: &GroupEntry) -> Lines {
    let cell = (group.cell_bytes / UNIT) as u32;
    match group.data {
        1 => Lines::default(),
        data => Lines { units: cell * u32::from(data), cell },
    }
}

/// What one core needs to open a shard.
#[derive(Clone)]
struct ShardOrder {
    shared: Arc<PoolShared>,
    label: Label,
    /// Paths of the disks in use.
    paths: Vec<Option<String>>,
    root: ShardRoot,
    index: usize,
    old_incarnation: u64,
    incarnation: u64,
    epoch: u64,
}

/// What the coordinator learns from an opened shard.
struct Opened {
    chunks: Vec<ChunkEntry>,
    volumes: Vec<(String, Id)>,
    trashed: Vec<(Id, String, WallTime)>,
    projects: Projects,
    /// As it was opened.
    root: ShardRoot,
}

/// The result of `work`, which waits for disks that nobody watches yet: one that has owed it an answer for [`ANSWER_MAX`] has failed.
async fn attended<T>(
    rt: &Rt,
    shared: &PoolShared,
    disks: &[(usize, Disk)],
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        match select(work.as_mut(), rt.sleep(ANSWER_MAX / 6)).await {
            Either::Left((result, _)) => return result,
            Either::Right(_) => {}
        }
        let limit = ANSWER_MAX.as_nanos() as u64;
        for (index, disk) in disks.iter().filter(|(_, disk)| disk.watch().waits(&Kind::ALL) > limit) {
            if shared.healths[*index].fail() {
                let message = format!("the disk has not answered for {} seconds", ANSWER_MAX.as_secs());
                let object = format!("{}/{index}", shared.name);
                let (severity, code, at) = (Severity::Error, "disk.evicted", rt.wall());
                (shared.events)(Event { at, severity, code, object, message });
            }
            disk.give_up();
        }
    }
}

async fn open_shard(rt: Rt, order: ShardOrder) -> Result<Opened, Error> {
    let mut disks = Vec::with_capacity(order.paths.len());
    for path in &order.paths {
        disks.push(match path {
            None => None,
            Some(path) => {
                match open_member(&rt, path, order.shared.import.read_only) {
                    Ok(disk) => Some(disk),
                    // It was there a moment ago: it is one that fails.
                    Err(OpenError::NotFound | OpenError::Io(_)) => {
                        order.shared.healths[disks.len()].fail();
                        None
                    }
                    Err(error) => return Err(open_error(path, &error)),
                }
            }
        });
    }
    let handles: Vec<(usize, Disk)> =
        disks.iter().enumerate().filter_map(|(index, disk)| Some((index, disk.clone()?))).collect();
    let shared = order.shared.clone();
    let failed = Box::new(move |disk: u16| -> forebay_raid::Recorded {
        if shared.recorded[usize::from(disk)].load(Ordering::Acquire) {
            return Box::pin(std::future::ready(()));
        }
        let (pool, core) = (shared.id, shared.cores.core(0).clone());
        Box::pin(async move {
            let record = call(&core, move |rt| async move {
                if let Some(control) = registry(&rt).control(pool) {
                    control.disk_failed(disk).await;
                }
            });
            // The core has ended: so does the process, and nothing more is acknowledged.
            let _ = record.await;
        })
    });
    let cache: Vec<(usize, Disk)> = (disks.iter_mut().enumerate())
        .filter(|(disk, _)| order.label.disks[*disk].status == DiskStatus::Cache)
        .filter_map(|(index, disk)| Some((index, disk.take()?)))
        .collect();
    let array =
        build_array(&rt, &order.label, disks, &order.shared.healths, order.shared.crowds.clone(), failed);
    // Lines with parity are written whole, from what gathers in the log.
    let mut groups = order.label.groups.iter().enumerate();
    let data_in_log =
        groups.any(|(index, group)| order.label.is_inhabited(index) && (group.role == 1 || group.data > 1));
    let (lines, lanes) = (lines(&order.label), lanes(&order.label));
    let (index, incarnation, epoch) = (order.index, order.old_incarnation, order.epoch);
    let healths = order.shared.healths.clone();
    let opening = OpenShard {
        rt: rt.clone(),
        shared: order.shared.clone(),
        index,
        array,
        data_in_log,
        lines,
        root: &order.root,
        incarnation,
        epoch,
    };
    let (shard, root) = attended(&rt, &order.shared, &handles, opening.open()).await?;
    for (disk, handle) in cache {
        shard.add_flash(disk as u16, handle, healths[disk].clone(), order.label.shards.into());
    }
    shard.space.borrow_mut().set_lanes(lanes);
    shard.scrub.at.set(order.root.scrub);
    shard.log.borrow_mut().incarnation = order.incarnation;
    let volumes =
        shard.live().iter().map(|dataset| (dataset.record.borrow().name.clone(), dataset.id())).collect();
    let (trashed, projects) = (shard.trashed(), shard.own_projects());
    let chunks = shard.space.borrow().chunks().map(|chunk| chunk.entry.clone()).collect();
    registry(&rt).add_shard(shard);
    Ok(Opened { chunks, volumes, trashed, projects, root })
}

pub(crate) fn open_error(path: &str, error: &OpenError) -> Error {
    let kind = match error {
        OpenError::NotFound => ErrorKind::NotFound,
        OpenError::InUse(_) => ErrorKind::Conflict,
        OpenError::NotADisk => ErrorKind::Invalid("disks"),
        OpenError::NotPermitted | OpenError::Io(_) => ErrorKind::Io,
    };
    Error::new(kind, path, error.to_string())
}

impl Engine {
    /// Imports on core 0.
    pub(crate) async fn import_here(
        rt: Rt,
        cores: Cores,
        config: Arc<EngineConfig>,
        (name, new_name): (String, Option<String>),
        paths: Vec<String>,
        import: Import,
    ) -> Result<Rc<Control>, Error> {
        if let Some(new) = &new_name {
            check_pool_name(new, "new_name")?;
            if import.read_only {
                let message =
                    "a pool that is imported read-only keeps its name: nothing is written to its disks";
                return Err(Error::new(ErrorKind::Invalid("new_name"), name, message)
                    .remedy("Leave out one of the two"));
            }
        }
        let (mut found, mut forbidden) = (Vec::new(), Vec::new());
        for path in &paths {
            let probed = match open_member(&rt, path, import.read_only) {
                Ok(disk) => probe_disk(&rt, path, disk).await,
                Err(error) => Probe::Unopened(error),
            };
            match probed {
                Probe::Labelled(disk) => found.push(*disk),
                // A disk that is missing or dead is what redundancy is for: it counts when the pool is judged.
                Probe::Unopened(OpenError::NotFound | OpenError::Io(_)) => {}
                Probe::Unopened(error @ OpenError::NotPermitted) => forbidden.push((path, error)),
                Probe::Unopened(error) => return Err(open_error(path, &error)),
                Probe::Blank(_, Some(LabelError::Needs(feature))) => return Err(lacks(path, &feature, "")),
                Probe::Blank(_, Some(LabelError::TooNew { version })) => {
                    let message = format!(
                        "its label has version {version}, which this version of forebay does not know"
                    );
                    return Err(refuse(
                        path,
                        message,
                        "Import the pool with the version that wrote it, or a newer one",
                    ));
                }
                Probe::Blank(_, Some(LabelError::TooOld { version })) => {
                    let message = format!(
                        "its label has version {version}: a development version of forebay wrote it, whose pools can no longer be imported"
                    );
                    return Err(refuse(
                        path,
                        message,
                        "Copy its data elsewhere with the version that wrote it, then create the pool again with --force",
                    ));
                }
                Probe::Blank(..) => {}
            }
        }
        // If all are, it is who asks, and not the disks.
        if let (true, Some((path, error))) = (found.is_empty(), forbidden.first()) {
            return Err(open_error(path, error));
        }
        let is_another = |control: &Control| {
            found.iter().any(|disk| disk.label.pool_name == name && disk.label.pool != control.id())
        };
        let running = registry(&rt).controls().into_iter().find(|control| {
            (control.name() == name && !is_another(control))
                || found.iter().any(|disk| disk.label.pool == control.id())
        });
        if let Some(control) = running {
            let own = found.iter().find(|disk| disk.label.pool == control.id());
            let message = match own.filter(|_| control.name() != name) {
                Some(disk) => format!("the pool is imported already, and {} is one of its disks", disk.path),
                None => "the pool is imported already".to_string(),
            };
            let remedy = format!(
                "'forebay pool status {0}' shows it. To bring back a disk that is out of service: forebay disk online {0}/NUMBER --path PATH",
                control.name()
            );
            return Err(Error::new(ErrorKind::Conflict, control.name(), message).remedy(remedy));
        }
        let mut assembly = assemble(&rt, &name, found, import).await?;
        let own = new_name.unwrap_or_else(|| assembly.label.pool_name.clone());
        if let Some(other) = registry(&rt).controls().iter().find(|control| control.name() == own) {
            let message = format!("another pool of this name is imported, with id {}", other.id());
            let remedy = format!(
                "Import this one under another name: forebay pool import {} DISK… --as NEW",
                assembly.label.pool
            );
            return Err(Error::new(ErrorKind::Conflict, own, message).remedy(remedy));
        }
        let is_renamed = own != assembly.label.pool_name;
        assembly.label.pool_name = own;
        check_host(&assembly.label.pool_name, &assembly.pool, &config.host, import)?;
        let may_not = |feature: &&Feature| !import.read_only && !feature.may_be_written();
        if let Some(feature) = assembly.label.features.iter().find(may_not) {
            return Err(lacks(&assembly.label.pool_name, feature, ". With --read-only it can be read"));
        }
        for (path, error) in forbidden {
            let object = assembly.label.pool_name.clone();
            let message = format!("the pool is imported without {path}: {error}");
            let event =
                Event { at: rt.wall(), severity: Severity::Warning, code: "disk.missing", object, message };
            (config.events)(event);
        }
        Self::start(rt, cores, config, (assembly, is_renamed), import).await
    }

    async fn start(
        rt: Rt,
        cores: Cores,
        config: Arc<EngineConfig>,
        (assembly, is_renamed): (Assembly, bool),
        import: Import,
    ) -> Result<Rc<Control>, Error> {
        let Assembly { mut label, disks, stale, shrunk, pool, generation } = assembly;
        let shards = usize::from(label.shards);
        let memory = (config.memory / shards as u64).max(1 << 20);
        let (id, name) = (label.pool, label.pool_name.clone());
        let clock = PoolClock::from(pool.clock, &rt);
        let shared = Arc::new(PoolShared::new(id, name, cores, &config, import, memory, shards, clock));
        let mut newly_failed = false;
        for (index, _) in disks.iter().enumerate().filter(|(_, disk)| disk.is_none()) {
            // Its number may be given to another, in good health.
            if label.disks[index].status == DiskStatus::Removed {
                continue;
            }
            shared.out_of_service(index);
            let entry = &mut label.disks[index];
            if entry.status.in_service() && entry.has_slots() {
                newly_failed = true;
                // Of one that has shrunk nothing is to be trusted when it comes back.
                let is_shrunk = shrunk.iter().any(|disk| disk.index == index);
                (entry.status, entry.stale_since) =
                    (DiskStatus::Failed, if is_shrunk { 0 } else { generation });
            }
            if !entry.counts() {
                shared.healths[index].emptied();
            }
        }
        let paths: Vec<Option<String>> =
            disks.iter().map(|disk| disk.as_ref().map(|disk| disk.path.clone())).collect();
        let incarnation = pool.incarnation + 1;
        let opened = Self::open_shards(&shared, &label, &paths, &pool, incarnation).await;
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                Self::drop_shards(&shared, shards).await;
                return Err(error);
            }
        };
        let mut slots = SlotMap::new(&label);
        if !opened.iter().flat_map(|shard| &shard.chunks).all(|chunk| slots.occupy(chunk)) {
            Self::drop_shards(&shared, shards).await;
            return Err(Error::new(
                ErrorKind::Corrupt,
                &*shared.name,
                "two chunks claim the same place on a disk",
            )
            .remedy("Run 'forebay check --offline DISK…' on its disks; nothing was changed"));
        }
        slots.reserve_heirs();
        shared.note_crowds(&slots);
        let is_there: Vec<bool> = disks.iter().map(Option::is_some).collect();
        let checked = check_tolerance(&shared.name, &label, &is_there, import, |group| slots.crowd(group));
        if let Err(error) = checked {
            Self::drop_shards(&shared, shards).await;
            return Err(error);
        }
        let serves = |disk: &DiskEntry| disk.has_slots() || disk.status == DiskStatus::Cache;
        let served: Vec<bool> = label.disks.iter().map(serves).collect();
        let control_disks = disks.into_iter().enumerate().map(|(index, disk)| match disk {
            Some(found) => ControlDisk { disk: Some(found.disk), path: found.path, served: served[index] },
            None => {
                let stale = stale.iter().find(|(nth, _)| *nth == index).map(|(_, path)| path);
                let shrunk = shrunk.iter().find(|disk| disk.index == index).map(|disk| &disk.path);
                let path = stale.or(shrunk).cloned().unwrap_or_default();
                ControlDisk { disk: None, path, served: served[index] }
            }
        });
        let control = Rc::new(Control::new(
            rt.clone(),
            shared.clone(),
            label,
            control_disks.collect(),
            slots,
            generation,
            incarnation,
            // A freeze may have ended the epoch whose superblock never came to be; what was written after it counts all the same.
            pool.epoch + 1,
        ));
        // From here on the missing disks are stale; the others say so.
        let is_news = newly_failed || is_renamed || control.has_unrecorded();
        if is_news
            && !import.read_only
            && let Err(error) = attended(&rt, &shared, &control.online(), control.record_import()).await
        {
            Self::drop_shards(&shared, shards).await;
            return Err(error);
        }
        control.tell_shrunk(&shrunk);
        control.scrub.schedule.set(pool.scrubs);
        *control.scrub.state.borrow_mut() = pool.scrub.clone();
        pool.errors.iter().zip(&shared.healths).for_each(|(errors, health)| health.seen(errors));
        control.trash.keep_seconds.set(pool.trash_keep_seconds);
        control.set_speed(pool.speed);
        control.tell_forced(&pool);
        for (shard, opened) in opened.iter().enumerate() {
            let place = |id| Place { shard, id };
            let mut names = control.names.borrow_mut();
            opened.volumes.iter().for_each(|(name, id)| names.insert(name.clone(), place(*id)));
            drop(names);
            control.trash.found(shard, &opened.trashed);
            control.projects.borrow_mut().extend(opened.projects.clone());
        }
        control.tell_projects().await?;
        if import.read_only {
            registry(&rt).add_control(control.clone());
            control.forgo_healer();
            for index in 0..shards {
                control.on_shard(index, |shard| async move { shard.start_turns() }).await?;
            }
            // Where nothing was measured nobody waits, and whoever keeps the ledger looks soon enough.
            if control.speed.get().is_some() {
                control.look_at_promises().await;
            }
            control.watch_disks();
            for (index, path) in &stale {
                let message = format!("{path} has stale contents and is not used");
                control.event(Severity::Warning, "disk.stale", &control.disk_name(*index), message);
            }
            let message = format!("the pool was imported read-only, from checkpoint {generation}");
            control.event(Severity::Info, "pool.imported", control.name(), message);
            return Ok(control);
        }
        // What replay accepted is sealed before anything new is written: a second crash decides the same way.
        let is_cut_short =
            opened.iter().zip(&pool.shards).any(|(now, then)| now.root.needed() < then.needed());
        let roots = opened.into_iter().map(|opened| opened.root).collect();
        let writing = control.write_super(generation + 1, roots, false);
        if let Err(error) = attended(&rt, &shared, &control.online(), writing).await {
            Self::drop_shards(&shared, shards).await;
            return Err(error);
        }
        registry(&rt).add_control(control.clone());
        // What is held for reserved volumes comes before what the work of shards takes.
        control.make_up(false).await?;
        for index in 0..shards {
            control.on_shard(index, |shard| async move { shard.start() }).await?;
        }
        control.check_reservations().await?;
        control.end_renames().await;
        control.start_healer();
        // Where nothing was measured nobody waits, and whoever keeps the ledger looks soon enough.
        if control.speed.get().is_some() {
            control.look_at_promises().await;
        }
        control.watch_disks();
        control.schedule_scrubs();
        control.schedule_snapshots();
        control.empty_trash();
        control.keep_quotas().await;
        let is_scrubbing = pool.shards.iter().any(|root| root.scrub.is_some());
        if is_cut_short {
            // What became doubtful by that stays so. A pool that cannot write has told.
            control.checkpoint().await.ok();
            control.scrub_start().await?;
        } else if is_scrubbing {
            control.scrub_on(false).await?;
        } else {
            control.scrub_gone();
        }
        for (index, path) in stale {
            // One that was taken out waits to be taken back; one that left is left out.
            if control.label.borrow().disks[index].status != DiskStatus::Failed {
                continue;
            }
            let message = match control.come_back(index, &path).await {
                Ok(()) => format!(
                    "{path} returned with stale contents, and the data that it missed is copied to it"
                ),
                Err(error) => format!("{path} returned with stale contents and is not used: {error}"),
            };
            control.event(Severity::Warning, "disk.stale", &control.disk_name(index), message);
        }
        let message =
            format!("the pool was imported as incarnation {incarnation}, from checkpoint {generation}");
        control.event(Severity::Info, "pool.imported", control.name(), message);
        Ok(control)
    }

    async fn open_shards(
        shared: &Arc<PoolShared>,
        label: &Label,
        paths: &[Option<String>],
        pool: &Super,
        incarnation: u64,
    ) -> Result<Vec<Opened>, Error> {
        let opening = pool.shards.iter().enumerate().map(|(index, root)| {
            let order = ShardOrder {
                shared: shared.clone(),
                label: label.clone(),
                paths: paths.to_vec(),
                root: root.clone(),
                index,
                old_incarnation: pool.incarnation,
                incarnation,
                epoch: pool.epoch + 1,
            };
            call(shared.cores.core(index), move |rt| open_shard(rt, order))
        });
        let ended = || Error::new(ErrorKind::Stopped, &*shared.name, "the engine is stopping");
        let results = futures_util::future::join_all(opening).await;
        results.into_iter().map(|result| result.map_err(|_| ended()).and_then(|opened| opened)).collect()
    }

    /// Forgets the shards of a pool that did not come up, or has ended.
    pub(crate) async fn drop_shards(shared: &Arc<PoolShared>, shards: usize) {
        for index in 0..shards {
            let pool = shared.id;
            let drop =
                call(
                    shared.cores.core(index),
                    move |rt| async move { registry(&rt).remove_shard(pool, index) },
                );
            // A core that has ended holds nothing any more.
            let _ = drop.await;
        }
    }
}

impl crate::shard::Shard {
    /// Starts what reading needs.
    pub(crate) fn start_turns(self: Rc<Self>) {
        self.spawn(self.clone().turns_task());
    }

    /// Starts the shard's tasks.
    pub(crate) fn start(self: Rc<Self>) {
        self.clone().start_turns();
        self.spawn(self.clone().commit_task());
        // What an import found in the log moves, too.
        self.spawn(self.clone().destage_task());
        self.destage_work.send();
        self.spawn(self.clone().deletion_task());
        self.spawn(self.clone().look_through_flash());
        if self.log.borrow().fill_permille() > 500 {
            self.want_checkpoint();
        }
    }
}
