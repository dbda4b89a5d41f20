//! Mappings: which host sees which volume under which number.
//!
//! They change in the volumes' turn, so that a volume is not mapped while it is deleted. What goes with a volume or its pool
//! goes after it: a crash in between leaves mappings of nothing, which have no effect and are dropped when
//! the pool is next imported (or are its owner's to unmap, when it never is).
//!
//! Mapping or unmapping a volume that inherits its hosts gives it hosts of its own. That is written first: a crash in between leaves
//! what it was mapped to.

use super::hosts::{self, change};
use super::sessions::users;
use super::{inherited, told};
use crate::events::now_unix_ms;
use crate::hosts::{Content, Here, Host, Mapping, Moving, NewMapping};
use crate::request::{Answered, Ask, Failure, Input, Principal, made, ok, plan};
use crate::{Shared, carrier, convert, iscsi_names, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use forebay_api as api;
use forebay_api::{Code, HostCreate, MappingCreate, Operation, Problem, Volume, VolumeCreate};
use forebay_pool::{ErrorKind, PoolStatus, ProjectInfo, Setting, Source, VolumeChange, VolumeInfo};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Stands for the UUID of a volume that is not made yet.
const UNBORN: &str = "";

fn shown(content: &Content, volumes: &HashSet<String>, mapping: &Mapping) -> api::Mapping {
    let (_, host, is_group) = content.party(&mapping.to).unwrap_or(("", "", false));
    let ready = match volumes.contains(&mapping.volume) {
        true => convert::condition("Ready", true, "Online", ""),
        false => {
            convert::condition("Ready", false, "PoolNotImported", "The volume's pool is not imported here.")
        }
    };
    api::Mapping {
        id: mapping.id.clone(),
        name: format!("{}:{host}", mapping.volume_name),
        spec: api::MappingSpec {
            volume: mapping.volume_name.clone(),
            host: host.into(),
            lun: mapping.lun,
            logical_block_bytes: mapping.logical_block_bytes,
        },
        status: api::MappingStatus {
            volume_id: mapping.volume.clone(),
            is_group,
            target: mapping.target(),
            created_unix_ms: mapping.created_unix_ms,
        },
        conditions: vec![ready],
    }
}

/// UUIDs of the volumes that are here.
async fn volumes_here(shared: &Shared) -> HashSet<String> {
    shared.volumes().await.0.iter().map(|volume| volume.id.to_string()).collect()
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let here = volumes_here(&shared).await;
    let content = shared.hosts.content();
    let live = match &ask.volume {
        Some(name) => shared.engine.volume(name).await.ok().map(|volume| volume.id.to_string()),
        None => None,
    };
    let mut wanted: Vec<&Mapping> = match &ask.volume {
        Some(name) => content.of_volume(name, live.as_deref()).collect(),
        None => content.mappings.iter().collect(),
    };
    if let Some(host) = &ask.host {
        let (id, _, is_group) = content.party(host)?;
        let views = content.views();
        let seen: HashSet<&str> = match is_group {
            true => {
                wanted.iter().filter(|mapping| mapping.to == id).map(|mapping| mapping.id.as_str()).collect()
            }
            false => views.get(id).into_iter().flatten().map(|mapping| mapping.id.as_str()).collect(),
        };
        wanted.retain(|mapping| seen.contains(mapping.id.as_str()));
    }
    let mappings = wanted.into_iter().map(|mapping| shown(&content, &here, mapping)).collect();
    ok(&ask.page(mappings, |mapping: &api::Mapping| format!("{} {}", mapping.name, mapping.id))?)
}

/// The mapping with this UUID or name.
fn find<'a>(content: &'a Content, name: &str) -> Result<&'a Mapping, Problem> {
    let called = |mapping: &&Mapping| {
        let (volume, host) = name.rsplit_once(':')?;
        let is_it =
            mapping.volume_name == volume && content.party(host).is_ok_and(|(id, ..)| id == mapping.to);
        is_it.then_some(())
    };
    let mut found = content.mappings.iter().filter(|mapping| mapping.id == name || called(mapping).is_some());
    match (found.next(), found.next()) {
        (Some(mapping), None) => Ok(mapping),
        (None, _) => Err(Problem::new(Code::NotFound, "there is no such mapping")
            .object(name)
            .remedy("`forebay volume show VOLUME` and `forebay host show HOST` list them.")),
        (Some(_), Some(_)) => Err(Problem::new(Code::Conflict, "several mappings have this name")
            .object(name)
            .remedy("Name it by its UUID: a volume of the same name is in a pool that is not imported.")),
    }
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let here = volumes_here(&shared).await;
    let content = shared.hosts.content();
    ok(&shown(&content, &here, find(&content, &name)?))
}

fn in_words(host: &str, mapping: &Mapping) -> String {
    let target = mapping.target();
    format!(
        "mapped to {host} as LUN {} of {target}, logical blocks of {} bytes",
        mapping.lun, mapping.logical_block_bytes
    )
}

/// UUID of a pool, by its name or UUID.
pub async fn pool_id(shared: &Shared, name: &str) -> Result<String, Problem> {
    let pools = shared.engine.pools().await;
    let pool = pools.iter().find(|pool| pool.name == name || pool.id.to_string() == name);
    // It was exported since the volume was found in it.
    let gone = || Problem::new(Code::Conflict, "the pool is no longer imported").object(name);
    pool.map(|pool| pool.id.to_string()).ok_or_else(gone)
}

/// For a volume that inherits its hosts, and gets its own.
fn own_in_words(volume: &VolumeInfo) -> Option<String> {
    let project = volume.project.as_ref().filter(|_| volume.sources.hosts != Source::Own)?;
    let (pool, name) = (&volume.pool, &volume.name);
    Some(format!(
        "It no longer inherits the hosts of project {pool}/{project}. To inherit them again: `forebay volume set {pool}/{name} --inherit hosts`."
    ))
}

/// Whether it has to be written that its hosts are its own. Without a project there is nothing to follow; then a pool that is only read is no
/// obstacle.
fn becomes_own(volume: &VolumeInfo) -> bool {
    volume.sources.hosts != Source::Own && (volume.project.is_some() || !volume.read_only)
}

/// Refuses what [`make_own`] would refuse.
async fn check_own(shared: &Shared, volume: &VolumeInfo) -> Result<(), Problem> {
    match becomes_own(volume) {
        true => shared.engine.pool_changeable(&volume.pool).await.map_err(convert::problem),
        false => Ok(()),
    }
}

/// From now on it does not follow its project; what it is mapped to it stays mapped to.
async fn make_own(shared: &Shared, volume: &VolumeInfo) -> Result<(), Problem> {
    if becomes_own(volume) {
        let change = VolumeChange { hosts: Setting::Own(()), ..VolumeChange::default() };
        let name = format!("{}/{}", volume.pool, volume.name);
        shared.engine.volume_set(&name, change).await.map_err(convert::problem)?;
    }
    Ok(())
}

fn tell_own(shared: &Shared, who: &Principal, volume: &VolumeInfo) {
    if volume.project.is_some() && volume.sources.hosts != Source::Own {
        let name = format!("{}/{}", volume.pool, volume.name);
        told(shared, who, "volume.changed", &name, "it no longer inherits the hosts of its project");
    }
}

fn check_lun(lun: Option<u16>) -> Result<(), Problem> {
    match lun {
        Some(lun) if lun > crate::hosts::LUN_MAX => {
            Err(crate::rules::invalid("lun", format!("LUN {lun} is out of range"), "Give 0 to 16383."))
        }
        _ => Ok(()),
    }
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<MappingCreate>,
) -> Answered {
    iscsi_names::logical_block(request.logical_block_bytes)?;
    check_lun(request.lun)?;
    let _turn = shared.volume_turn.lock().await;
    let volume = shared.engine.volume(&request.volume).await?;
    let pool = pool_id(&shared, &volume.pool).await?;
    let name = format!("{}/{}", volume.pool, volume.name);
    let id = volume.id.to_string();
    let add = move |content: &mut Content| {
        let host = content.party(&request.host)?.1.to_string();
        let mapping = content.map(NewMapping {
            volume: &id,
            pool: &pool,
            volume_name: &name,
            host: &request.host,
            lun: request.lun,
            logical_block_bytes: request.logical_block_bytes,
            now_unix_ms: now_unix_ms(),
        })?;
        Ok((host, mapping))
    };
    check_own(&shared, &volume).await?;
    let (host, mapping) = shared.hosts.plan(&add)?;
    if ask.dry_run {
        let changes = [in_words(&host, &mapping)].into_iter().chain(own_in_words(&volume)).collect();
        return plan("mapping.create", &mapping.volume_name, changes);
    }
    make_own(&shared, &volume).await?;
    tell_own(&shared, &who, &volume);
    let (host, mapping) = change(&shared, add).await?;
    told(&shared, &who, "mapping.created", &mapping.volume_name, &in_words(&host, &mapping));
    let content = shared.hosts.content();
    let mapping = shown(&content, &HashSet::from([mapping.volume.clone()]), &mapping);
    made(StatusCode::CREATED, &Operation::MappingShow.path_of(&mapping.id), &mapping)
}

/// Refuses to unmap what would be mapped again when its pool comes: that it has no hosts of its own is kept there.
fn check_unnamed(content: &Content, mapping: &Mapping, host: &str) -> Result<(), Problem> {
    let is_named = content.projects.iter().any(|entry| {
        let within = mapping.volume_name.strip_prefix(&*entry.name).is_some_and(|name| name.starts_with('/'));
        within && entry.pool == mapping.pool && entry.hosts.contains(&mapping.to)
    });
    if !is_named {
        return Ok(());
    }
    let detail =
        format!("its pool is not imported, and its project names {host}: the import would map it again");
    let problem = Problem::new(Code::Conflict, detail).object(&*mapping.volume_name);
    Err(problem.remedy("Import the pool, then unmap it; or delete the host with --unmap."))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let content = shared.hosts.content();
    let mapping = find(&content, &name)?.clone();
    let host = content.party(&mapping.to).map(|(_, name, _)| name.to_string()).unwrap_or_default();
    let volume = match shared.engine.volume(&mapping.volume).await {
        // Its pool is not here.
        Err(error) if error.kind == ErrorKind::NotFound => None,
        result => Some(result?),
    };
    match &volume {
        Some(volume) => check_own(&shared, volume).await?,
        None => check_unnamed(&content, &mapping, &host)?,
    }
    if ask.dry_run {
        let lost = format!("{host} loses the volume (LUN {}).", mapping.lun);
        let users = volume.as_ref().map(|volume| users(&shared, volume)).unwrap_or_default();
        let used = (!users.is_empty()).then(|| {
            let by = rules::snapshots::few(&users);
            format!("It is in use by {by}: programs there get I/O errors.")
        });
        let changes = [lost].into_iter().chain(used).chain(volume.as_ref().and_then(own_in_words)).collect();
        return plan("mapping.delete", &mapping.volume_name, changes);
    }
    if let Some(volume) = &volume {
        make_own(&shared, volume).await?;
        tell_own(&shared, &who, volume);
    }
    let id = mapping.id.clone();
    drop_where(&shared, move |mapping| mapping.id == id).await?;
    let what = format!("unmapped from {host}, where it was LUN {}", mapping.lun);
    told(&shared, &who, "mapping.deleted", &mapping.volume_name, &what);
    Ok::<_, Failure>(StatusCode::NO_CONTENT.into_response())
}

/// For the daemon's own use: a host that sees a volume.
pub async fn ensure(
    shared: &Arc<Shared>,
    host: &str,
    initiators: &[&str],
    volume: &str,
) -> Result<(), Problem> {
    let initiators = initiators.iter().map(|name| name.to_string()).collect();
    let new = hosts::new(&HostCreate { name: host.into(), initiators, ..HostCreate::default() })?;
    let _turn = shared.volume_turn.lock().await;
    let volume = shared.engine.volume(volume).await.map_err(convert::problem)?;
    let pool = pool_id(shared, &volume.pool).await?;
    make_own(shared, &volume).await?;
    let (id, volume) = (volume.id.to_string(), format!("{}/{}", volume.pool, volume.name));
    let add = move |content: &mut Content| {
        let is_it = |host: &&Host| {
            host.name == new.name || host.initiators.iter().any(|name| new.initiators.contains(name))
        };
        let host = match content.hosts.iter().find(is_it) {
            Some(host) => host.id.clone(),
            None => {
                content.hosts.push(new.clone());
                new.id
            }
        };
        if !content.views().get(host.as_str()).into_iter().flatten().any(|mapping| mapping.volume == id) {
            content.map(NewMapping {
                volume: &id,
                pool: &pool,
                volume_name: &volume,
                host: &host,
                lun: None,
                logical_block_bytes: None,
                now_unix_ms: now_unix_ms(),
            })?;
        }
        Ok(())
    };
    change(shared, add).await
}

/// Mappings that a new volume is to have.
pub struct Wanted {
    hosts: Vec<String>,
    logical_block_bytes: Option<u32>,
    pool: String,
    planned: Vec<(String, Mapping)>,
    /// What hosts gain because the project says so.
    inherited: Vec<String>,
}

impl Wanted {
    /// Refuses, before the volume is made, what could not be mapped.
    pub async fn check(shared: &Shared, request: &VolumeCreate) -> Result<Wanted, Problem> {
        let mut wanted = Wanted {
            hosts: request.hosts.clone(),
            logical_block_bytes: request.logical_block_bytes,
            pool: String::new(),
            planned: Vec::new(),
            inherited: Vec::new(),
        };
        if wanted.hosts.is_empty() {
            wanted.inherited = inherited::gains_in_words(shared, &request.name, "").await?;
        } else {
            let pool = request.name.split('/').next().unwrap_or_default();
            // A pool that is not there the engine refuses, in its own words.
            shared.engine.volumes(Some(pool)).await.map_err(convert::problem)?;
            wanted.pool = pool_id(shared, pool).await?;
            wanted.planned = shared.hosts.plan(|content| wanted.apply(content, UNBORN, &request.name))?;
        }
        Ok(wanted)
    }

    fn apply(
        &self,
        content: &mut Content,
        volume: &str,
        name: &str,
    ) -> Result<Vec<(String, Mapping)>, Problem> {
        let map = |host: &String| {
            let called = content.party(host).map_err(|problem| problem.field("hosts"))?.1.to_string();
            let mapping = content.map(NewMapping {
                volume,
                pool: &self.pool,
                volume_name: name,
                host,
                lun: None,
                logical_block_bytes: self.logical_block_bytes,
                now_unix_ms: now_unix_ms(),
            })?;
            Ok((called, mapping))
        };
        self.hosts.iter().map(map).collect()
    }

    pub fn in_words(&self) -> impl Iterator<Item = String> {
        let own = self.planned.iter().map(|(host, mapping)| format!("It is {}.", in_words(host, mapping)));
        own.chain(self.inherited.iter().cloned())
    }

    /// Maps the volume, now that it is there.
    pub async fn carry_out(
        self,
        shared: &Arc<Shared>,
        who: &Principal,
        volume: &Volume,
    ) -> Result<(), Problem> {
        if self.hosts.is_empty() {
            shared.refresh_access().await;
            return Ok(());
        }
        let (id, name) = (volume.id.clone(), volume.name.clone());
        let made =
            change(shared, move |content| self.apply(content, &id, &name)).await.map_err(|problem| {
                let detail = format!("the volume is created, but it is not mapped: {}", problem.detail);
                Problem { detail, ..problem }
            })?;
        for (host, mapping) in made {
            told(shared, who, "mapping.created", &volume.name, &in_words(&host, &mapping));
        }
        Ok(())
    }
}

/// For the plan of a volume's deletion: who would lose it.
pub fn loss_in_words(shared: &Shared, volume: &Volume) -> Vec<String> {
    let content = shared.hosts.content();
    let mapped = content.mappings.iter().filter(|mapping| mapping.volume == volume.id);
    let host = |mapping: &Mapping| {
        content.party(&mapping.to).map(|(_, name, _)| name.to_string()).unwrap_or_default()
    };
    mapped.map(|mapping| format!("{} loses the volume (LUN {}).", host(mapping), mapping.lun)).collect()
}

/// Drops mappings of what is no more; the snapshot follows in any case.
pub async fn drop_where(
    shared: &Arc<Shared>,
    is_gone: impl Fn(&Mapping) -> bool + Send + 'static,
) -> Result<(), Problem> {
    let drop = move |content: &mut Content| {
        content.mappings.retain(|mapping| !is_gone(mapping));
        Ok(())
    };
    change(shared, drop).await
}

/// What is known of volumes now.
async fn here(shared: &Shared) -> Here {
    let pools: HashMap<String, String> =
        shared.engine.pools().await.into_iter().map(|pool| (pool.name, pool.id.to_string())).collect();
    let ((volumes, is_all), left) = (shared.volumes().await, shared.engine.moves_left().await);
    // When a pool says nothing, nothing is known to be in none.
    let is_all = is_all && left.is_ok();
    let pool_of = |volume: VolumeInfo| {
        let pool = pools.get(&volume.pool)?.clone();
        Some((volume.id.to_string(), (pool, format!("{}/{}", volume.pool, volume.name))))
    };
    let mut left: HashSet<String> = left.unwrap_or_default().iter().map(|left| left.id.to_string()).collect();
    let (mut known, mut once) = (HashMap::new(), HashSet::new());
    for (id, place) in volumes.into_iter().filter_map(pool_of) {
        // Of two with one UUID, which a pool from elsewhere may have, neither takes the other's mappings.
        if !once.insert(id.clone()) {
            known.remove(&id);
            left.insert(id);
            continue;
        }
        known.insert(id, place);
    }
    Here {
        volumes: known,
        left,
        pools: if is_all { pools.into_values().collect() } else { HashSet::new() },
        projects: None,
    }
}

/// After an import: what the pool carries is taken where it is newer, mappings of volumes that the pool does not have any more are dropped, and what projects say that it does not have; the others take effect.
pub async fn pool_came(shared: &Arc<Shared>, pool: &PoolStatus) -> Result<(), Problem> {
    let _turn = shared.volume_turn.lock().await;
    let (mut here, came) = (here(shared).await, pool.id.to_string());
    let projects = shared.engine.projects(Some(&pool.name)).await;
    let named = |project: ProjectInfo| (project.id.to_string(), format!("{}/{}", project.pool, project.name));
    here.projects = projects.ok().map(|all| all.into_iter().map(named).collect());
    carrier::came(shared, pool).await;
    let follow = move |content: &mut Content| {
        content.follow(&here, Some(&came));
        Ok(())
    };
    change(shared, follow).await
}

/// Before a volume moves: from now on its mappings are dropped only when it is in neither pool, whatever a crash leaves.
pub async fn move_begins(shared: &Arc<Shared>, volume: &Volume, pool: &str) -> Result<(), Problem> {
    let _turn = shared.volume_turn.lock().await;
    let from = pool_id(shared, volume.name.split('/').next().unwrap_or_default()).await?;
    let to = pool_id(shared, pool).await?;
    // It may have waited for its turn.
    let info = shared.engine.volume(&volume.id).await.map_err(convert::problem)?;
    inherited::move_check(shared, &info, pool).await?;
    let moving = Moving { volume: volume.id.clone(), from, to };
    let add = move |content: &mut Content| {
        content.moving.retain(|one| *one != moving);
        content.moving.push(moving);
        Ok(())
    };
    change(shared, add).await
}

/// After that, whether it has moved or not.
pub async fn move_ended(shared: &Arc<Shared>, volume: String) -> Result<(), Problem> {
    let _turn = shared.volume_turn.lock().await;
    let here = here(shared).await;
    let follow = move |content: &mut Content| {
        content.follow(&here, None);
        if here.volumes.contains_key(&volume) {
            content.moving.retain(|one| one.volume != volume);
        }
        Ok(())
    };
    change(shared, follow).await
}

/// After the destruction of a pool: its volumes are gone.
pub async fn pool_destroyed(shared: &Arc<Shared>, pool: String) -> Result<(), Problem> {
    let _turn = shared.volume_turn.lock().await;
    let forget = move |content: &mut Content| {
        content.forget_pool(&pool);
        Ok(())
    };
    change(shared, forget).await
}
