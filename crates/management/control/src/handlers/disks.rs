//! The disks of pools: shown, added, replaced, removed, taken out of service and back.
//!
//! A change is two things: what the engine does at once, which takes the tasks' turn, and the moving of data that follows, which
//! may take days. The task watches that, too, and fails when it does not get on; the engine goes on by itself as soon as it
//! can, with or without a task and after a restart. Where the disks are is remembered before the first and after the second
//! ([`crate::configuration`]); disks that leave without a command are noticed every few seconds.

use super::pools::{accepted, disks_in_words, imported, not_found, result, update};
use crate::configuration::Remembered;
use crate::pace::Pace;
use crate::request::{Answered, Ask, Failure, Input, ok, plan};
use crate::tasks::{Progress, Running};
use crate::{Shared, convert, rules};
use axum::extract::{Path, State};
use forebay_api::{
    self as api, Code, Disk, DiskLocate, DiskOnline, DiskPaths, PoolAdd, PoolScrub, PoolTrimmed, PoolsFound,
    Problem, ScrubAction, show_duration, show_size,
};
use forebay_base::Id;
use forebay_pool::{
    DiskAdd, DiskReplace, DiskState, DiskStatus, GroupAdd, GroupStatus, PoolState, PoolStatus, Purpose, Role,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

const POLL_DELAY: Duration = Duration::from_secs(1);
/// The engine tries by itself every five seconds: a task gives up after three times in vain.
const BLOCKED_RETRY_DELAY: Duration = Duration::from_secs(5);
const BLOCKED_TIME_MAX: Duration = Duration::from_secs(15);
/// How often it is looked whether disks joined or left without a command.
const FOLLOW_DELAY: Duration = Duration::from_secs(10);
const LOCATE_SECONDS: u32 = 30;
/// Of work that is remembered in the pool.
const GOES_ON: &str = "Start the daemon again: the work continues automatically.";

/// A disk of an imported pool.
struct Found {
    pool: PoolStatus,
    group: GroupStatus,
    disk: DiskStatus,
}

impl Found {
    /// As the command line names it.
    fn name(&self) -> String {
        format!("{}/{}", self.pool.name, self.disk.number)
    }
    /// For sentences.
    fn words(&self) -> String {
        match self.disk.path.is_empty() {
            true => format!("disk {}", self.name()),
            false => format!("disk {} ({})", self.name(), self.disk.path),
        }
    }
    fn is_in_service(&self) -> bool {
        use DiskState::{Cache, Leaving, Online, Spare};
        matches!(self.disk.state, Online | Leaving | Spare | Cache)
    }
}

/// The disk with this UUID, or `POOL/NUMBER`, or `POOL/PATH`.
async fn find(shared: &Shared, name: &str) -> Result<Found, Problem> {
    let by_place = name.split_once('/');
    let pools = match by_place {
        Some((pool, _)) => vec![imported(shared, pool).await?],
        None => shared.engine.pools().await,
    };
    let is_it = |disk: &DiskStatus| match by_place {
        Some((_, place)) => {
            place.parse() == Ok(disk.number) || disk.id.to_string() == place || disk.path == place
        }
        None => disk.id.to_string() == name,
    };
    for pool in pools {
        for group in &pool.groups {
            if let Some(disk) = group.disks.iter().find(|disk| is_it(disk)) {
                let (group, disk) = (group.clone(), disk.clone());
                return Ok(Found { pool, group, disk });
            }
        }
    }
    let remedy = "Name the disk as POOL/NUMBER, POOL/PATH or UUID; `forebay disk list` shows them.";
    Err(Problem::new(Code::NotFound, "no imported pool has such a disk").object(name).remedy(remedy))
}

/// A disk, with where it was if it is missing.
fn described(shared: &Shared, pool: &PoolStatus, group: &GroupStatus, disk: &DiskStatus) -> Disk {
    let mut disk = convert::disk(&pool.name, group, disk);
    if let Some(entry) = shared.configuration.find(&pool.id.to_string()) {
        entry.place(&mut disk);
    }
    disk
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let pools = shared.engine.pools().await;
    if let Some(name) = &ask.pool
        && !pools.iter().any(|pool| pool.name == *name || pool.id.to_string() == *name)
    {
        return Err(Failure(imported(&shared, name).await.err().unwrap_or_else(|| not_found(name))));
    }
    let wanted = |pool: &&PoolStatus| {
        ask.pool.as_ref().is_none_or(|name| pool.name == *name || pool.id.to_string() == *name)
    };
    let mut disks: Vec<Disk> = Vec::new();
    for pool in pools.iter().filter(wanted) {
        for group in &pool.groups {
            disks.extend(group.disks.iter().map(|disk| described(&shared, pool, group, disk)));
        }
    }
    ok(&ask.page(disks, |disk| format!("{} {:05}", disk.spec.pool, disk.status.number))?)
}

pub async fn scan(State(shared): State<Arc<Shared>>, Input(request): Input<DiskPaths>) -> Answered {
    rules::disks("disks", &request.disks)?;
    let found = shared.engine.pool_scan(request.disks).await;
    ok(&PoolsFound { items: found.into_iter().map(convert::found).collect() })
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let found = find(&shared, &name).await?;
    ok(&described(&shared, &found.pool, &found.group, &found.disk))
}

/// One of them at most is asked for: [`rules::pool_add`].
fn purpose_of(request: &PoolAdd) -> Purpose {
    match (request.spare, request.cache) {
        (true, _) => Purpose::Spare,
        (false, true) => Purpose::Cache,
        (false, false) => Purpose::Data,
    }
}

pub async fn add(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<PoolAdd>,
) -> Answered {
    let pool = imported(&shared, &name).await?;
    shared.engine.pool_changeable(&pool.name).await?;
    rules::pool_add(&request, &pool.groups)?;
    let purpose = purpose_of(&request);
    let box_of = |path: &String| {
        let name = request.enclosures.get(path).or(request.enclosure.as_ref());
        (path.clone(), name.cloned().unwrap_or_default())
    };
    let boxes: Vec<(String, String)> = request.disks.iter().map(box_of).collect();
    if let Some(layout) = request.layout {
        let layout = convert::layout_in(layout);
        let sectors = request.sectors.into_iter().collect();
        let add = GroupAdd { layout, disks: request.disks, enclosures: boxes, sectors, force: request.force };
        return add_group(&shared, pool, ask.dry_run, add).await;
    }
    let (group, force) = (request.group, request.force);
    let adds = boxes.into_iter().map(|(path, enclosure)| {
        let sector = request.sectors.get(&path).copied();
        (path, DiskAdd { purpose, group, enclosure, sector, force })
    });
    let adds: Vec<(String, DiskAdd)> = adds.collect();
    if ask.dry_run {
        let sizes = shared.engine.disk_add_check(&pool.id.to_string(), adds).await?;
        let joining = format!(
            "Added to the pool: {}. All existing data there is lost.",
            disks_in_words(request.disks.len())
        );
        let then = match purpose {
            Purpose::Spare => "A spare disk replaces a disk that fails.",
            Purpose::Cache => "A cache disk keeps copies of data that is read at random.",
            Purpose::Data => "Data is spread over the new disks in the background.",
        };
        let mut changes = vec![joining, then.into()];
        if purpose == Purpose::Spare {
            let least = pool
                .groups
                .iter()
                .filter(|group| group.role == Role::Data)
                .filter_map(rules::disks::smallest_disk);
            let least = least.max();
            let spares = request.disks.iter().zip(sizes);
            changes.extend(spares.filter_map(|(path, size)| rules::disks::small_disk(path, size, least)));
        }
        return plan("pool.add", &pool.name, changes);
    }
    let (object, id, by) = (pool.name.clone(), pool.id, shared.clone());
    shared.engine.disk_add_check(&id.to_string(), adds.clone()).await?;
    let work = move |running| async move {
        let name = id.to_string();
        let adding = async {
            let mut status = pool;
            for (path, add) in adds {
                status = by.engine.disk_add(&name, vec![path], add).await?;
            }
            Ok(status)
        };
        changed(&by, id, request.disks, adding).await?;
        healed(by.clone(), running, id, None).await
    };
    accepted(shared.tasks.start_long("pool.add", &object, work))
}

/// Adds disks as a group of their own.
async fn add_group(shared: &Arc<Shared>, pool: PoolStatus, dry_run: bool, add: GroupAdd) -> Answered {
    let (id, name) = (pool.id.to_string(), pool.name);
    if dry_run {
        let (layout, disks) = (add.layout, disks_in_words(add.disks.len()));
        let bytes = shared.engine.group_add_check(&id, add).await?;
        let room = show_size(bytes);
        let changes = vec![
            format!(
                "Added to the pool: a {layout} group of {disks}, with room for {room}. All existing data there is lost."
            ),
            "New data goes to all groups, to this one first. Existing data stays where it is.".into(),
        ];
        return plan("pool.add", &name, changes);
    }
    let by = shared.clone();
    let work = async move {
        let joining = add.disks.clone();
        result(&changed(&by, pool.id, joining, by.engine.group_add(&id, add)).await?)
    };
    accepted(shared.tasks.start("pool.add", &name, work))
}

pub async fn replace(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<api::DiskReplace>,
) -> Answered {
    rules::disk_replace(&request)?;
    let found = find(&shared, &name).await?;
    shared.engine.pool_changeable(&found.pool.name).await?;
    let new = match &request.new {
        Some(path) => path.clone(),
        None => {
            let mut disks = found.pool.groups.iter().flat_map(|group| &group.disks);
            let spare = disks.find(|disk| disk.state == DiskState::Spare).ok_or_else(|| {
                Problem::new(Code::Unsafe, "the pool has no spare disk")
                    .object(found.name())
                    .remedy("Name the new disk: `forebay disk replace DISK NEW`; `forebay disk list --free` lists those that a pool can use.")
            })?;
            format!("spare disk {}/{}", found.pool.name, spare.number)
        }
    };
    let is_new = request.new.is_some();
    let joining: Vec<String> = request.new.iter().cloned().collect();
    let with = DiskReplace { new: request.new, sector: request.sector_bytes, force: request.force };
    if ask.dry_run {
        let (pool, disk) = (found.pool.id.to_string(), found.disk.id.to_string());
        let size = shared.engine.disk_replace_check(&pool, &disk, with).await?;
        let how = if found.is_in_service() { "moves to" } else { "is rebuilt on" };
        let mut changes = match found.disk.state {
            DiskState::Rebuilt => vec![
                format!("All data of {} has been rebuilt already. It leaves the pool.", found.words()),
                "Data is spread over the new disk in the background.".into(),
            ],
            _ => vec![
                format!("The data of {} {how} {new} or other disks of its group.", found.words()),
                "Then the old disk leaves the pool.".into(),
            ],
        };
        if is_new {
            changes.insert(0, format!("Added to the pool: {new}. All existing data there is lost."));
        }
        let least = Some(found.disk.size);
        changes.extend(size.and_then(|size| rules::disks::small_disk(&new, size, least)));
        return plan("disk.replace", &found.name(), changes);
    }
    let (object, id, old) = (found.name(), found.pool.id, found.disk.id);
    // What is refused is refused at once, and not by a task.
    shared.engine.disk_replace_check(&id.to_string(), &old.to_string(), with.clone()).await?;
    let by = shared.clone();
    let work = move |running| async move {
        let (pool, disk) = (id.to_string(), old.to_string());
        changed(&by, id, joining, by.engine.disk_replace(&pool, &disk, with)).await?;
        healed(by, running, id, Some(old)).await
    };
    accepted(shared.tasks.start_long("disk.replace", &object, work))
}

pub async fn remove(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let found = find(&shared, &name).await?;
    shared.engine.pool_changeable(&found.pool.name).await?;
    let (object, id, disk) = (found.name(), found.pool.id, found.disk.id);
    if ask.dry_run {
        let words = found.words();
        let bytes = shared.engine.disk_remove_check(&id.to_string(), &disk.to_string()).await?;
        let change = match bytes {
            0 => format!("{words} leaves the pool. It holds no data."),
            bytes => {
                let bytes = show_size(bytes);
                format!(
                    "{words} leaves the pool after {bytes} of data have moved to other disks of its group."
                )
            }
        };
        return plan("disk.remove", &object, vec![change]);
    }
    let by = shared.clone();
    let work = move |running| async move {
        let (pool, name) = (id.to_string(), disk.to_string());
        changed(&by, id, Vec::new(), by.engine.disk_remove(&pool, &name)).await?;
        healed(by, running, id, Some(disk)).await
    };
    accepted(shared.tasks.start_long("disk.remove", &object, work))
}

/// Has a group, named `POOL/NUMBER`, leave its pool.
pub async fn group_remove(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let named = name.rsplit_once('/').and_then(|(pool, number)| Some((pool, number.parse::<u16>().ok()?)));
    let Some((pool, number)) = named else {
        let remedy = "Name the group as POOL/NUMBER; `forebay pool status` shows the numbers.";
        return Err(Problem::new(Code::NotFound, "there is no such group")
            .object(name)
            .remedy(remedy)
            .into());
    };
    let pool = imported(&shared, pool).await?;
    shared.engine.pool_changeable(&pool.name).await?;
    let (object, id) = (format!("{}/{number}", pool.name), pool.id);
    if ask.dry_run {
        let bytes = shared.engine.group_remove_check(&id.to_string(), number).await?;
        let group = pool.groups.iter().find(|group| group.number == number);
        let disks = disks_in_words(group.map_or(0, |group| group.disks.len()));
        let changes = vec![
            format!(
                "{} of data move from group {number} to the other groups, which have room for them.",
                show_size(bytes)
            ),
            format!("Then its {disks} leave the pool."),
        ];
        return plan("group.remove", &object, changes);
    }
    let by = shared.clone();
    let work = move |running| async move {
        changed(&by, id, Vec::new(), by.engine.group_remove(&id.to_string(), number)).await?;
        healed(by, running, id, None).await
    };
    accepted(shared.tasks.start_long("group.remove", &object, work))
}

pub async fn offline(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let found = find(&shared, &name).await?;
    shared.engine.pool_changeable(&found.pool.name).await?;
    let left = rules::disks::disk_offline(&found.group, &found.disk).map_err(|p| p.object(found.name()))?;
    if ask.dry_run {
        let changes = vec![
            format!("{} is taken out of service and misses new writes.", found.words()),
            format!("Disks that its group can still lose until it is back or rebuilt: {left}."),
        ];
        return plan("disk.offline", &found.name(), changes);
    }
    let (object, id, disk) = (found.name(), found.pool.id, found.disk.id);
    let by = shared.clone();
    let work = async move {
        let (pool, name) = (id.to_string(), disk.to_string());
        result(&changed(&by, id, Vec::new(), by.engine.disk_offline(&pool, &name)).await?)
    };
    accepted(shared.tasks.start("disk.offline", &object, work))
}

pub async fn online(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<DiskOnline>,
) -> Answered {
    request.path.as_ref().map_or(Ok(()), |path| rules::disks("path", std::slice::from_ref(path)))?;
    let found = find(&shared, &name).await?;
    shared.engine.pool_changeable(&found.pool.name).await?;
    super::pools::writable(&shared).await?;
    if ask.dry_run {
        let (pool, disk) = (found.pool.id.to_string(), found.disk.id.to_string());
        shared.engine.disk_online_check(&pool, &disk, request.path.as_deref()).await?;
        let change =
            "The disk serves again, under a new number, and gets a copy of the writes that it missed.";
        return plan("disk.online", &found.name(), vec![change.into()]);
    }
    let (object, id, disk) = (found.name(), found.pool.id, found.disk.id);
    let by = shared.clone();
    let work = move |running| async move {
        let (pool, name) = (id.to_string(), disk.to_string());
        let change = by.engine.disk_online(&pool, &name, request.path.as_deref());
        changed(&by, id, request.path.clone().into_iter().collect(), change).await?;
        healed(by, running, id, None).await
    };
    accepted(shared.tasks.start_long("disk.online", &object, work))
}

pub async fn clear(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let found = find(&shared, &name).await?;
    if ask.dry_run {
        let errors = found.disk.errors;
        let change = format!(
            "{}: the counters of {} read, {} write and {} checksum errors are reset to 0.",
            found.words(),
            errors.read,
            errors.write,
            errors.checksum
        );
        return plan("disk.clear", &found.name(), vec![change]);
    }
    let (object, by) = (found.name(), shared.clone());
    let work = async move {
        let (pool, disk) = (found.pool.id.to_string(), found.disk.id.to_string());
        result(&by.engine.disk_clear(&pool, &disk).await.map_err(convert::problem)?)
    };
    accepted(shared.tasks.start("disk.clear", &object, work))
}

pub async fn locate(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Input(request): Input<DiskLocate>,
) -> Answered {
    let seconds = request.seconds.unwrap_or(LOCATE_SECONDS);
    if !(1..=3600).contains(&seconds) {
        let detail = format!("{} is out of range", show_duration(seconds));
        return Err(rules::invalid("seconds", detail, "Choose from 1 second to 1 hour.").into());
    }
    let found = find(&shared, &name).await?;
    let (object, by) = (found.name(), shared.clone());
    let time = Duration::from_secs(seconds.into());
    let work = move |mut running: Running| async move {
        running.give_up_turn();
        let (pool, disk) = (found.pool.id.to_string(), found.disk.id.to_string());
        let blinking = by.engine.disk_locate(&pool, &disk, time);
        tokio::select! {
            ended = blinking => ended.map(|()| None).map_err(convert::problem),
            _ = stopped(&by) => Ok(None),
        }
    };
    accepted(shared.tasks.start_long("disk.locate", &object, work))
}

/// Begins, pauses or ends a scrub, or says when scrubs begin by themselves. The task of one that was begun ends with it.
pub async fn scrub(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Input(request): Input<PoolScrub>,
) -> Answered {
    let pool = imported(&shared, &name).await?;
    shared.engine.pool_changeable(&pool.name).await?;
    let every_seconds = rules::pool_scrub(&request)?;
    rules::disks::scrub_is_there(request.action, pool.scrub.as_ref().map(|scrub| scrub.state))
        .map_err(|problem| problem.object(pool.name.as_str()))?;
    let (object, id, by) = (pool.name.clone(), pool.id.to_string(), shared.clone());
    let work = move |mut running: Running| async move {
        let begun = match request.action {
            ScrubAction::Start => by.engine.scrub_start(&id).await,
            ScrubAction::Pause => by.engine.scrub_pause(&id).await,
            ScrubAction::Stop => by.engine.scrub_stop(&id).await,
            ScrubAction::Schedule => by.engine.scrub_schedule(&id, every_seconds).await,
        };
        begun.map_err(convert::problem)?;
        if request.action != ScrubAction::Start {
            return Ok(None);
        }
        running.give_up_turn();
        tokio::select! {
            ended = by.engine.pool_scrubbed(&id) => result(&ended.map_err(convert::problem)?),
            problem = stopped(&by) => Err(problem.object(&id).remedy(GOES_ON)),
        }
    };
    accepted(shared.tasks.start_long("pool.scrub", &object, work))
}

/// Tells the disks which of their space is free. It keeps no turn: other changes go on beside it.
pub async fn trim(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let pool = imported(&shared, &name).await?;
    let (object, id, by) = (pool.name.clone(), pool.id.to_string(), shared.clone());
    let work = move |mut running: Running| async move {
        running.give_up_turn();
        let trimmed = tokio::select! {
            trimmed = by.engine.pool_trim(&id) => trimmed.map_err(convert::problem)?,
            problem = stopped(&by) => return Err(problem.object(&id).remedy("Start the daemon again, then trim the pool.")),
        };
        let trimmed = PoolTrimmed { discarded_bytes: trimmed.bytes, disks_without: trimmed.without };
        Ok(Some(serde_json::to_value(trimmed).expect("it is plain data")))
    };
    accepted(shared.tasks.start_long("pool.trim", &object, work))
}

/// Changes the disks of a pool, of which those at `joining` are new; remembers where they are before and after.
async fn changed(
    shared: &Arc<Shared>,
    pool: Id,
    joining: Vec<String>,
    change: impl Future<Output = Result<PoolStatus, forebay_pool::Error>>,
) -> Result<PoolStatus, Problem> {
    update(shared, pool, move |entry| entry.joining = joining).await?;
    let changed = change.await.map_err(convert::problem);
    // Also after a failure: of several disks, some may have joined.
    let now = match &changed {
        Ok(status) => Some(status.clone()),
        Err(_) => current(shared, pool).await,
    };
    if let Some(status) = now {
        remember_disks(shared, &status).await?;
    }
    changed
}

async fn current(shared: &Shared, pool: Id) -> Option<PoolStatus> {
    shared.engine.pools().await.into_iter().find(|status| status.id == pool)
}

/// Paths of a pool's disks. A missing disk has none: then those stay at which nothing was found, because it may come back there.
pub fn paths(status: &PoolStatus, unfound: &[String]) -> Vec<String> {
    let disks = || status.groups.iter().flat_map(|group| &group.disks).map(|disk| &disk.path);
    let mut paths: Vec<String> = disks().filter(|path| !path.is_empty()).cloned().collect();
    if disks().any(String::is_empty) {
        let more: Vec<String> = unfound.iter().filter(|path| !paths.contains(path)).cloned().collect();
        paths.extend(more);
    }
    paths
}

/// Where each disk of the pool is, or was `before` it went missing.
pub fn places(status: &PoolStatus, before: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let disks = status.groups.iter().flat_map(|group| &group.disks);
    let place = |disk: &DiskStatus| {
        let id = disk.id.to_string();
        let path =
            Some(disk.path.clone()).filter(|path| !path.is_empty()).or_else(|| before.get(&id).cloned());
        path.map(|path| (id, path))
    };
    disks.filter_map(place).collect()
}

fn follow(entry: &mut Remembered, status: &PoolStatus) {
    entry.disks = paths(status, &entry.unfound);
    entry.places = places(status, &entry.places);
    entry.joining.clear();
}

/// Needs the tasks' turn.
async fn remember_disks(shared: &Arc<Shared>, status: &PoolStatus) -> Result<(), Problem> {
    let now = status.clone();
    update(shared, status.id, move |entry| follow(entry, &now)).await
}

/// Remembers where disks are that joined or left without a command: spare ones, and those that were leaving at a restart.
pub async fn follow_all(shared: Arc<Shared>) {
    let mut ticks = interval(FOLLOW_DELAY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for seen in shared.engine.pools().await {
            let is_as_remembered = |entry: &Remembered| {
                let mut next = entry.clone();
                follow(&mut next, &seen);
                next == *entry
            };
            let entry = shared.configuration.find(&seen.id.to_string());
            if entry.is_none_or(|entry| is_as_remembered(&entry)) {
                continue;
            }
            let _turn = shared.tasks.turn().await;
            let Some(status) = current(&shared, seen.id).await else { continue };
            // When it cannot be written now, the next time it will be tried again.
            let _ = remember_disks(&shared, &status).await;
        }
    }
}

/// Watches until all data of the pool is where it should be, then drops the disk `left`.
async fn healed(
    shared: Arc<Shared>,
    mut running: Running,
    pool: Id,
    left: Option<Id>,
) -> Result<Option<serde_json::Value>, Problem> {
    running.give_up_turn();
    watch_healing(&shared, &running, pool).await?;
    let _turn = shared.tasks.turn().await;
    let mut status = current(&shared, pool).await.ok_or_else(|| gone(pool))?;
    let is_left = |disk: &DiskStatus| Some(disk.id) == left && disk.state == DiskState::Rebuilt;
    if let Some(disk) = status.groups.iter().flat_map(|group| &group.disks).find(|disk| is_left(disk)) {
        // One that had failed stays, to be taken back, unless it was to leave.
        let removed = shared.engine.disk_remove(&pool.to_string(), &disk.id.to_string()).await;
        status = removed.map_err(convert::problem)?;
    }
    remember_disks(&shared, &status).await?;
    result(&status)
}

fn gone(pool: Id) -> Problem {
    Problem::new(Code::Conflict, "the pool was closed before the work was complete")
        .object(pool.to_string())
        .remedy("Import the pool: the work continues automatically.")
}

/// What a task fails with when the daemon stops before it is done; waits until then.
pub async fn stopped(shared: &Shared) -> Problem {
    let mut stopping = shared.stopping.subscribe();
    // An error means that the daemon is gone altogether.
    let _ = stopping.wait_for(|stopping| *stopping).await;
    Problem::new(Code::Stopped, "the daemon is stopping")
}

async fn watch_healing(shared: &Shared, running: &Running, pool: Id) -> Result<(), Problem> {
    let name = pool.to_string();
    let (begin, mut pace) = (Instant::now(), Pace::default());
    let mut ticks = interval(POLL_DELAY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Since when it does not get on, and what was done by then.
    let mut blocked: Option<(Instant, u64)> = None;
    // What was under way when the pool was changed may end without having seen the change; what follows has.
    let heal = |delay: Duration, times: usize| {
        let name = &name;
        async move {
            sleep(delay).await;
            let mut status = shared.engine.pool_healed(name).await;
            for _ in 1..times {
                status = shared.engine.pool_healed(name).await;
            }
            status
        }
    };
    let mut healing = Box::pin(heal(Duration::ZERO, 2));
    loop {
        tokio::select! {
            status = &mut healing => {
                let status = status.map_err(|_| gone(pool))?;
                if status.state == PoolState::Suspended {
                    return Err(Problem::new(Code::Suspended, "the pool has stopped writing after a disk failure")
                        .object(status.name)
                        .remedy("`forebay pool status` says what to do."));
                }
                let Some(now) = status.healing else { return Ok(()) };
                let (since, _) = *blocked
                    .insert(blocked.filter(|(_, done)| *done == now.bytes_done).unwrap_or((Instant::now(), now.bytes_done)));
                if since.elapsed() >= BLOCKED_TIME_MAX {
                    return Err(Problem::new(Code::Conflict, convert::blocked(&now))
                        .object(status.name)
                        .remedy("The work continues automatically as soon as possible; `forebay pool status` shows its progress."));
                }
                healing = Box::pin(heal(BLOCKED_RETRY_DELAY, 1));
            }
            _ = ticks.tick() => {
                let status = current(shared, pool).await.ok_or_else(|| gone(pool))?;
                running.progress(status.healing.map_or(Progress::default(), |now| pace.note(begin.elapsed(), &now)));
            }
            problem = stopped(shared) => return Err(problem.object(&name).remedy(GOES_ON)),
        }
    }
}
