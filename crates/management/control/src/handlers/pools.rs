//! Pools.
//!
//! Whatever changes a pool is a task, but for its properties, which are changed at once. The daemon's configuration is written before a pool comes to be or ceases to be,
//! and again afterwards: see [`crate::configuration`].

use super::sessions::users;
use super::{calibrate, disks, mappings, thresholds, told};
use crate::configuration::{Remembered, Unsettled};
use crate::filling::THRESHOLDS;
use crate::hosts::Uncounted;
use crate::iscsi_names::target_name;
use crate::request::{Answered, Ask, Input, Principal, made, ok, plan};
use crate::{Shared, carrier, convert, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use forebay_api::{Code, Operation, Pool, PoolCreate, PoolImport, PoolSet, Problem, Severity, Task};
use forebay_base::Id;
use forebay_pool::{DiskState, Import, PoolFound, PoolSpec, PoolState, PoolStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A killed daemon's requests end in the kernel after the process is gone, and only then are its disks let go: normally
/// within milliseconds, with a slow disk within the kernel's own limit of 30 s. A restart waits that long.
const HELD_PAUSE: Duration = Duration::from_millis(50);
const HELD_ATTEMPTS: u32 = 600;
/// After a second it is worth a word.
const HELD_ATTEMPTS_QUIET: u32 = 20;

/// Imported pools and those that only the configuration knows, by name.
pub async fn all(shared: &Shared) -> Vec<Pool> {
    let mut pools: Vec<Pool> =
        shared.engine.pools().await.iter().map(|status| described(shared, status)).collect();
    for entry in shared.configuration.pools() {
        if !pools.iter().any(|pool| pool.name == entry.name || Some(&pool.id) == entry.id.as_ref()) {
            pools.push(convert::pool_unavailable(&entry));
        }
    }
    pools
}

/// An imported pool, with what is known of how it fills.
fn described(shared: &Shared, status: &PoolStatus) -> Pool {
    let mut pool = convert::pool(status);
    let remembered = shared.configuration.find(&status.name);
    if let Some(entry) = &remembered {
        pool.status.groups.iter_mut().flat_map(|group| &mut group.disks).for_each(|disk| entry.place(disk));
    }
    let thresholds = remembered.as_ref().map_or(&THRESHOLDS[..], |entry| entry.thresholds());
    pool.spec.threshold_percents = thresholds.to_vec();
    pool.status.full_in_days = shared.filling.days_until_full(status);
    pool
}

pub fn not_found(pool: &str) -> Problem {
    Problem::new(Code::NotFound, "there is no such pool")
        .object(pool)
        .remedy("`forebay pool list` shows them; `forebay pool import DISK…` looks for pools on disks.")
}

async fn find(shared: &Shared, name: &str) -> Result<Pool, Problem> {
    let found = all(shared).await.into_iter().find(|pool| pool.name == name || pool.id == name);
    found.ok_or_else(|| not_found(name))
}

/// The imported pool with this name or UUID.
pub async fn imported(shared: &Shared, name: &str) -> Result<PoolStatus, Problem> {
    let pools = shared.engine.pools().await;
    pools.into_iter().find(|pool| pool.name == name || pool.id.to_string() == name).ok_or_else(|| {
        match shared.configuration.find(name) {
            Some(_) => Problem::new(Code::Conflict, "the pool is not imported").object(name).remedy(
                "Import it with `forebay pool import NAME DISK…`, or remove it from the list with `forebay pool export NAME`.",
            ),
            None => not_found(name),
        }
    })
}

pub fn accepted(task: Result<Task, Problem>) -> Answered {
    let task = task?;
    made(StatusCode::ACCEPTED, &Operation::TaskShow.path_of(&task.id), &task)
}

pub fn result(status: &PoolStatus) -> Result<Option<serde_json::Value>, Problem> {
    Ok(Some(serde_json::to_value(convert::pool(status)).expect("a pool is plain data")))
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    ok(&ask.page(all(&shared).await, |pool| pool.name.clone())?)
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    ok(&find(&shared, &name).await?)
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<PoolSet>,
) -> Answered {
    let pool = imported(&shared, &name).await?;
    shared.engine.pool_changeable(&pool.name).await?;
    let keep = request.trash_keep_seconds.filter(|&keep| keep != pool.trash_keep_seconds);
    let mut changes: Vec<String> = match keep {
        None => Vec::new(),
        Some(keep) => vec![rules::trash_keep(keep)?],
    };
    let thresholds = request.threshold_percents.as_deref().map(rules::thresholds).transpose()?;
    changes.extend(thresholds.iter().map(|(_, words)| words.clone()));
    if ask.dry_run {
        return plan("pool.set", &pool.name, changes);
    }
    if let Some(keep) = keep {
        shared.engine.set_trash_keep(&pool.name, keep).await?;
    }
    if let Some((percents, _)) = thresholds {
        let (name, own) = (pool.name.clone(), shared.clone());
        let update = move || own.configuration.update(&name, |entry| entry.threshold_percents = percents);
        tokio::task::spawn_blocking(update).await.expect("it does not panic")?;
        carrier::note_changes(&shared, vec![pool.id.to_string()], Uncounted::OfPool).await;
    }
    for what in changes {
        told(&shared, &who, "pool.changed", &pool.name, &what);
    }
    ok(&described(&shared, &imported(&shared, &pool.name).await?))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<PoolCreate>,
) -> Answered {
    rules::pool(&request)?;
    if all(&shared).await.iter().any(|pool| pool.name == request.name) {
        return Err(Problem::new(Code::Conflict, "a pool with this name exists")
            .object(request.name)
            .field("name")
            .remedy("Choose another name.")
            .into());
    }
    check_target(&request.name, "name", &all(&shared).await)?;
    if ask.dry_run {
        let sizes = shared.engine.pool_create_check(spec_of(&shared, &request)).await?;
        let mut changes = vec![format!(
            "A {} pool on {} is created. All existing data there is lost.",
            request.layout,
            disks_in_words(request.disks.len())
        )];
        if !request.log_disks.is_empty() {
            changes.push(format!("Its intent log is on {}.", disks_in_words(request.log_disks.len())));
        }
        if !request.spare_disks.is_empty() {
            let spare = disks_in_words(request.spare_disks.len());
            changes.push(format!("Spare for a disk that fails: {spare}."));
            let data = sizes.iter().take(request.disks.len()).copied().min();
            let spares = sizes.iter().skip(request.disks.len() + request.log_disks.len());
            let spares = request.spare_disks.iter().zip(spares.copied());
            changes.extend(spares.filter_map(|(path, size)| rules::disks::small_disk(path, size, data)));
        }
        if !request.cache_disks.is_empty() {
            let cache = disks_in_words(request.cache_disks.len());
            changes.push(format!("Copies of data that is read at random are kept on {cache}."));
        }
        if request.calibrate {
            changes.push("Its performance is measured, which takes some seconds.".into());
        }
        return plan("pool.create", &request.name, changes);
    }
    let name = request.name.clone();
    accepted(shared.tasks.start("pool.create", &name, create_now(shared.clone(), request, who.name)))
}

/// Refuses a name with which a pool would have the iSCSI target of one of these.
fn check_target(name: &str, field: &str, others: &[Pool]) -> Result<(), Problem> {
    let target = target_name(name);
    let Some(other) = others.iter().find(|pool| target_name(&pool.name) == target) else { return Ok(()) };
    let detail = format!("its iSCSI target would be {target}, which pool {} has", other.name);
    Err(Problem::new(Code::Conflict, detail)
        .object(name)
        .field(field)
        .remedy("Choose a name that differs from that one in more than upper and lower case."))
}

/// Refuses a new name for the pool `name` that another one has, imported or not, or with which thresholds would measure nothing any more.
async fn check_renamed(shared: &Shared, name: &str, request: &PoolImport) -> Result<(), Problem> {
    let Some(new) = &request.new_name else { return Ok(()) };
    rules::name("new_name", new)?;
    if request.read_only {
        let detail = "a pool that is imported read-only keeps its name: nothing is written to its disks";
        return Err(rules::invalid("new_name", detail.into(), "Leave out one of the two."));
    }
    let found = shared.engine.pool_scan(request.disks.clone()).await;
    let own = found.iter().find(|pool| pool.name == name || pool.id.to_string() == name);
    let is_own = |pool: &Pool| own.is_some_and(|own| own.id.to_string() == pool.id);
    let others: Vec<Pool> = all(shared).await.into_iter().filter(|pool| !is_own(pool)).collect();
    if others.iter().any(|pool| pool.name == *new) {
        return Err(Problem::new(Code::Conflict, "another pool has this name")
            .object(new.as_str())
            .field("new_name")
            .remedy("Choose another name; `forebay pool list` shows them."));
    }
    check_target(new, "new_name", &others)?;
    match own.filter(|own| own.name != *new && others.iter().all(|pool| pool.name != own.name)) {
        Some(own) => {
            thresholds::check_all_unnamed(shared, &own.name).map_err(|problem| problem.field("new_name"))
        }
        None => Ok(()),
    }
}

/// For the daemon's own use: creates a pool and waits.
pub async fn create_here(shared: &Arc<Shared>, request: PoolCreate) -> Result<(), Problem> {
    rules::pool(&request)?;
    let name = request.name.clone();
    let work = create_now(shared.clone(), request, "the daemon".into());
    let task = shared.tasks.start("pool.create", &name, work)?;
    ended(shared, &task).await
}

/// For the daemon's own use: imports a pool and waits.
pub async fn import_here(shared: &Arc<Shared>, name: &str, disks: Vec<String>) -> Result<(), Problem> {
    let work = import_now(shared.clone(), name.to_string(), disks, Import::default());
    let task = shared.tasks.start("pool.import", name, work)?;
    ended(shared, &task).await
}

async fn ended(shared: &Shared, task: &Task) -> Result<(), Problem> {
    let mut version = shared.tasks.version();
    loop {
        version.mark_unchanged();
        let task = shared.tasks.find(&task.id)?;
        if task.state.is_final() {
            return task.error.map_or(Ok(()), Err);
        }
        // An error means that the tasks are gone, and so would `find` say.
        let _ = version.changed().await;
    }
}

pub fn disks_in_words(count: usize) -> String {
    if count == 1 { "1 disk".into() } else { format!("{count} disks") }
}

fn spec_of(shared: &Shared, request: &PoolCreate) -> PoolSpec {
    PoolSpec {
        name: request.name.clone(),
        layout: convert::layout_in(request.layout),
        disks: request.disks.clone(),
        log_disks: request.log_disks.clone(),
        spare_disks: request.spare_disks.clone(),
        cache_disks: request.cache_disks.clone(),
        enclosures: request.enclosures.clone().into_iter().collect(),
        sectors: request.sectors.clone().into_iter().collect(),
        shards: request.shards.map_or(shared.cores.clamp(1, rules::SHARDS_MAX), |shards| shards as usize),
        log_bytes: request.log_bytes,
        force: request.force,
    }
}

async fn create_now(
    shared: Arc<Shared>,
    request: PoolCreate,
    who: String,
) -> Result<Option<serde_json::Value>, Problem> {
    let disks: Vec<String> = rules::all_disks(&request).cloned().collect();
    let spec = spec_of(&shared, &request);
    let name = spec.name.clone();
    let told = format!("created with layout {} on {}, by {who}", spec.layout, disks_in_words(disks.len()));
    if shared.configuration.find(&name).is_some() {
        // A request that was ahead in the queue.
        return Err(Problem::new(Code::Conflict, "a pool with this name exists").object(name));
    }
    let entry = Remembered {
        id: None,
        name: name.clone(),
        disks,
        read_only: false,
        forced: false,
        threshold_percents: Vec::new(),
        places: BTreeMap::new(),
        joining: Vec::new(),
        unfound: Vec::new(),
        unsettled: Some(Unsettled::Creating),
        failure: None,
    };
    remember(&shared, entry).await?;
    match shared.engine.pool_create(spec).await {
        Ok(status) => {
            remember_imported(&shared, &status, Import::default()).await?;
            carrier::note_changes(&shared, vec![status.id.to_string()], Uncounted::OfPool).await;
            shared.events.record(Severity::Info, "pool.created", &name, &told);
            if request.calibrate {
                // The pool is there either way, and its status says that it is not measured.
                let _ = calibrate::start(&shared, name, who);
            }
            result(&status)
        }
        Err(error) => {
            forget(&shared, &name).await?;
            Err(convert::problem(error))
        }
    }
}

pub async fn import(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<PoolImport>,
) -> Answered {
    rules::disks("disks", &request.disks)?;
    // With another name it may be another pool that is meant: its disks say so.
    let is_it =
        |pool: &&PoolStatus| pool.id.to_string() == name || (pool.name == name && request.new_name.is_none());
    if let Some(pool) = shared.engine.pools().await.iter().find(is_it) {
        let other = format!("`forebay pool import UUID {} --as NEW`", crate::alerts::words(&request.disks));
        return Err(Problem::new(Code::Conflict, "a pool with this name is imported already")
            .object(pool.name.as_str())
            .remedy(format!(
                "`forebay pool status {}` shows it. If these disks are of another pool: {other}.",
                pool.name
            ))
            .into());
    }
    check_renamed(&shared, &name, &request).await?;
    writable(&shared).await?;
    if ask.dry_run {
        let found = shared.engine.pool_scan(request.disks.clone()).await;
        let pool = found.iter().find(|pool| pool.name == name || pool.id.to_string() == name);
        let pool = pool.ok_or_else(|| not_found_on(&name, &request.disks, &found))?;
        let called = request.new_name.as_ref().map_or(String::new(), |new| format!(" as {new}"));
        let mut changes =
            vec![format!("The pool is imported{called} from {}.", disks_in_words(pool.disks_found.len()))];
        if pool.disks_missing > 0 {
            changes.push(format!("Missing: {}.", disks_in_words(pool.disks_missing)));
        }
        let others = request.disks.iter().filter(|disk| !pool.disks_found.contains(disk));
        let others: Vec<String> = others.cloned().collect();
        if !others.is_empty() {
            let others = rules::snapshots::few(&others);
            changes.push(format!("Left alone, because no label of this pool can be read there: {others}."));
        }
        if let Some(host) = &pool.host {
            let what = if request.force { "overrides that" } else { "is refused, unless that is this host" };
            changes
                .push(format!("Host '{}' has the pool and did not export it. The import {what}.", host.name));
        }
        if request.read_only {
            changes.push("Nothing is written to the disks. Volumes can be read but not changed.".into());
        }
        return plan("pool.import", &pool.name, changes);
    }
    let object = name.clone();
    let import = Import { read_only: request.read_only, force: request.force };
    let work = import_as(shared.clone(), name, request.disks, import, request.new_name);
    accepted(shared.tasks.start("pool.import", &object, work))
}

/// No pool of this name is on the disks: says which are.
fn not_found_on(name: &str, disks: &[String], found: &[PoolFound]) -> Problem {
    let problem =
        |detail: String, remedy: String| Problem::new(Code::NotFound, detail).object(name).remedy(remedy);
    match found {
        [] => problem(
            "none of these disks has a readable pool label".into(),
            "Check the paths; `forebay pool import DISK…` without a name lists the pools on disks.".into(),
        ),
        [one] => problem(
            format!("there is no such pool on these disks: they belong to pool {}", one.name),
            format!("forebay pool import {} {}", one.name, crate::alerts::words(disks)),
        ),
        more => {
            let of = |pool: &PoolFound| format!("{} ({})", pool.name, pool.disks_found.join(" "));
            let pools: Vec<String> = more.iter().map(of).collect();
            problem(
                format!("there is no such pool on these disks: they belong to pools {}", pools.join(", ")),
                "Import one of them, from its disks.".into(),
            )
        }
    }
}

async fn import_now(
    shared: Arc<Shared>,
    name: String,
    disks: Vec<String>,
    import: Import,
) -> Result<Option<serde_json::Value>, Problem> {
    import_as(shared, name, disks, import, None).await
}

async fn import_as(
    shared: Arc<Shared>,
    name: String,
    disks: Vec<String>,
    import: Import,
    new_name: Option<String>,
) -> Result<Option<serde_json::Value>, Problem> {
    let imported = shared.engine.pool_import_as(&name, disks, import, new_name);
    let status = imported.await.map_err(convert::problem)?;
    remember_imported(&shared, &status, import).await?;
    result(&status)
}

/// Imports everything remembered, one pool after the other. What fails stays remembered and is told in an event.
pub async fn import_remembered(shared: &Arc<Shared>) {
    for entry in shared.configuration.pools() {
        let wanted = entry.id.clone().unwrap_or_else(|| entry.name.clone());
        let work = import_at_start(shared.clone(), entry.clone(), wanted);
        let result = match shared.tasks.start("pool.import", &entry.name, work) {
            Ok(task) => ended(shared, &task).await,
            Err(problem) => Err(problem),
        };
        if let Err(problem) = result {
            shared.configuration.note_failure(&entry.name, Some(problem));
        }
    }
}

async fn import_at_start(
    shared: Arc<Shared>,
    entry: Remembered,
    wanted: String,
) -> Result<Option<serde_json::Value>, Problem> {
    let disks = [&entry.disks[..], &entry.joining].concat();
    let import = Import { read_only: entry.read_only, force: entry.forced };
    let mut result = import_now(shared.clone(), wanted.clone(), disks.clone(), import).await;
    for attempt in 1..=HELD_ATTEMPTS {
        if !matches!(&result, Err(problem) if problem.code == Code::Conflict) || *shared.stopping.borrow() {
            break;
        }
        if attempt == HELD_ATTEMPTS_QUIET {
            eprintln!("forebay: pool {}: another process holds its disks; waiting for it", entry.name);
        }
        tokio::time::sleep(HELD_PAUSE).await;
        result = import_now(shared.clone(), wanted.clone(), disks.clone(), import).await;
    }
    if matches!(&result, Err(problem) if problem.code != Code::Conflict) && !entry.joining.is_empty() {
        // What was about to join may be another pool's still.
        result = import_now(shared.clone(), wanted, entry.disks.clone(), import).await;
    }
    match (result, entry.unsettled) {
        (Ok(value), None) => Ok(value),
        (Ok(value), Some(unsettled)) => settle(&shared, &entry.name, unsettled, value).await,
        (Err(problem), None) => Err(problem),
        (Err(problem), Some(_)) => {
            if let Some(id) = entry.id {
                mappings::pool_destroyed(&shared, id).await?;
            }
            forget(&shared, &entry.name).await?;
            let what = "its creation or destruction was interrupted and it cannot be imported; it is removed from the list of pools";
            let message = format!("{what}: {}", problem.detail);
            shared.events.record(Severity::Warning, "pool.removed", &entry.name, &message);
            Ok(None)
        }
    }
}

/// Ends what was begun with a pool that could be imported.
async fn settle(
    shared: &Arc<Shared>,
    name: &str,
    unsettled: Unsettled,
    value: Option<serde_json::Value>,
) -> Result<Option<serde_json::Value>, Problem> {
    let status = imported(shared, name).await?;
    if status.state == PoolState::Online {
        return Ok(value);
    }
    let volumes = shared.engine.volumes(Some(name)).await.map_err(convert::problem)?;
    if unsettled == Unsettled::Creating && volumes.is_empty() {
        // Not all of its disks were labelled. Its existence was never reported, and nothing is on it.
        shared.engine.pool_destroy(name).await.map_err(convert::problem)?;
        forget(shared, name).await?;
        let message = "its creation was interrupted and has been undone; create it again, with --force if its disks are files";
        shared.events.record(Severity::Warning, "pool.removed", name, message);
        return Ok(None);
    }
    // The administrator may have interrupted the destruction on purpose: the remainder stays.
    let message = "its destruction was interrupted, and some of its disks are gone already; destroy it again";
    shared.events.record(Severity::Warning, "pool.half_destroyed", name, message);
    Ok(value)
}

pub async fn export(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let pool = find(&shared, &name).await?;
    writable(&shared).await?;
    let used = match pool.status.state {
        forebay_api::PoolState::Unavailable => Vec::new(),
        _ => users_in_words(&shared, &pool.name).await?,
    };
    // A suspended pool serves its clients badly, and only an import ends that.
    let is_stopped = pool.status.state == forebay_api::PoolState::Suspended;
    rules::snapshots::leave_used(&pool.name, &used, ask.force || is_stopped)?;
    if ask.dry_run {
        let mut changes =
            vec!["The pool is exported. Clients lose its volumes until it is imported again.".to_string()];
        changes.extend(used.into_iter().map(|used| format!("{used}.")));
        return plan("pool.export", &pool.name, changes);
    }
    let work = leave(shared.clone(), pool.name.clone(), None);
    accepted(shared.tasks.start("pool.export", &pool.name, work))
}

pub async fn destroy(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let pool = imported(&shared, &name).await?;
    shared.engine.pool_destroy_check(&pool.name).await?;
    writable(&shared).await?;
    let used = users_in_words(&shared, &pool.name).await?;
    rules::snapshots::leave_used(&pool.name, &used, ask.force)?;
    if ask.dry_run {
        let volumes = shared.engine.volumes(Some(&pool.name)).await.map_err(convert::problem)?;
        let mut changes = vec![match volumes.len() {
            0 => "The pool is lost. It has no volumes.".to_string(),
            1 => "The pool, its volume and all its data are lost.".to_string(),
            count => format!("The pool, its {count} volumes and all their data are lost."),
        }];
        changes.extend(used.into_iter().map(|used| format!("{used}.")));
        return plan("pool.destroy", &pool.name, changes);
    }
    let work = leave(shared.clone(), pool.name.clone(), Some(who.name));
    accepted(shared.tasks.start("pool.destroy", &pool.name, work))
}

/// Who uses volumes of an imported pool now, and loses them with it: a clause for each volume.
async fn users_in_words(shared: &Shared, pool: &str) -> Result<Vec<String>, Problem> {
    let volumes = shared.engine.volumes(Some(pool)).await.map_err(convert::problem)?;
    let used = volumes.iter().filter_map(|volume| {
        let users = users(shared, volume);
        let by = rules::snapshots::few(&users);
        (!users.is_empty()).then(|| format!("{pool}/{} is in use by {by}", volume.name))
    });
    Ok(used.collect())
}

/// Refuses what the daemon could do and not remember, before it is done.
pub async fn writable(shared: &Arc<Shared>) -> Result<(), Problem> {
    let shared = shared.clone();
    crate::blocking(move || shared.configuration.check()).await
}

/// Exports a pool, or destroys it for `destroyer`.
async fn leave(
    shared: Arc<Shared>,
    name: String,
    destroyer: Option<String>,
) -> Result<Option<serde_json::Value>, Problem> {
    let imported = shared.engine.pools().await.into_iter().find(|pool| pool.name == name);
    let is_destroyed = destroyer.is_some();
    if let Some(who) = destroyer {
        let before = shared.configuration.find(&name);
        if let Some(entry) = before.clone() {
            remember(&shared, Remembered { unsettled: Some(Unsettled::Destroying), ..entry }).await?;
        }
        let carried = imported.as_ref().and_then(|pool| carrier::ends(&shared, &pool.id.to_string()));
        if let Err(error) = shared.engine.pool_destroy(&name).await {
            if let Some(pool) = &imported {
                carrier::stays(&shared, &pool.id.to_string(), carried);
            }
            let is_there = shared.engine.pools().await.iter().any(|pool| pool.name == name);
            if let Some(entry) = before.filter(|_| is_there) {
                remember(&shared, entry).await?;
            }
            return Err(convert::problem(error));
        }
        let told = format!("destroyed with all its volumes, by {who}");
        shared.events.record(Severity::Warning, "pool.destroyed", &name, &told);
        if let Some(pool) = imported {
            mappings::pool_destroyed(&shared, pool.id.to_string()).await?;
        }
    } else if let Some(pool) = imported {
        let carried = carrier::leaves(&shared, &pool).await;
        if let Err(error) = shared.engine.pool_export(&name).await {
            if shared.engine.pools().await.iter().any(|other| other.id == pool.id) {
                carrier::stays(&shared, &pool.id.to_string(), carried);
            }
            return Err(convert::problem(error));
        }
        let _turn = shared.volume_turn.lock().await;
        shared.refresh_access().await;
    } else if shared.configuration.find(&name).is_none() {
        return Err(not_found(&name));
    }
    if is_destroyed {
        forget(&shared, &name).await?;
    } else {
        let shared = shared.clone();
        crate::blocking(move || shared.configuration.leave(&name)).await?;
    }
    Ok(None)
}

/// Remembers where an imported pool's disks are.
async fn remember_imported(shared: &Arc<Shared>, status: &PoolStatus, import: Import) -> Result<(), Problem> {
    let before = shared.configuration.find(&status.name);
    let before = before.map(|entry| [entry.disks, entry.joining].concat()).unwrap_or_default();
    let found = disks::paths(status, &[]);
    let known = shared.configuration.find(&status.name).map(|entry| (entry.threshold_percents, entry.places));
    let is_known = known.is_some();
    let left = || {
        let left = shared.configuration.left(&status.id.to_string()).unwrap_or_default();
        (left.threshold_percents, left.places)
    };
    let (threshold_percents, places) = known.unwrap_or_else(left);
    let unfound = before.into_iter().filter(|path| !found.contains(path)).collect::<Vec<_>>();
    let entry = Remembered {
        id: Some(status.id.to_string()),
        name: status.name.clone(),
        disks: disks::paths(status, &unfound),
        read_only: import.read_only,
        forced: import.is_rescue(),
        threshold_percents,
        places: disks::places(status, &places),
        joining: Vec::new(),
        unfound,
        unsettled: None,
        failure: None,
    };
    for disk in status.groups.iter().flat_map(|group| &group.disks) {
        if disk.state == DiskState::Missing {
            let last = entry.places.get(&disk.id.to_string());
            let last = last.map_or(String::new(), |path| format!("; it was last at {path}"));
            let message = format!("it was not found when the pool was imported{last}");
            let object = format!("{}/{}", status.name, disk.number);
            shared.events.record(Severity::Warning, "disk.missing", &object, &message);
        }
    }
    let remembered = remember(shared, entry).await;
    let followed = mappings::pool_came(shared, status).await;
    // The pool is served all the same where the directory is full, which has an alert of its own: the next start looks where this one did.
    if is_known { Ok(()) } else { remembered.and(followed) }
}

/// Changes what is remembered of an imported pool. Needs the tasks' turn.
pub async fn update(
    shared: &Arc<Shared>,
    pool: Id,
    change: impl FnOnce(&mut Remembered) + Send + 'static,
) -> Result<(), Problem> {
    let shared = shared.clone();
    crate::blocking(move || shared.configuration.update(&pool.to_string(), change)).await
}

async fn remember(shared: &Arc<Shared>, entry: Remembered) -> Result<(), Problem> {
    let shared = shared.clone();
    crate::blocking(move || shared.configuration.remember(entry)).await
}

async fn forget(shared: &Arc<Shared>, name: &str) -> Result<(), Problem> {
    let (shared, name) = (shared.clone(), name.to_string());
    crate::blocking(move || shared.configuration.forget(&name)).await
}
