//! Hosts and host groups.
//!
//! Their ETag is the revision that each change raises, a change of a secret included, which is not shown. Taking away what
//! a host sees can stop what runs on it, so removing one that sees volumes has to be asked for (`unmap`).

use super::thresholds::check_unnamed;
use super::told;
use crate::access::IscsiSession;
use crate::events::now_unix_ms;
use crate::hosts::{Content, Group, Host, Mapping};
use crate::levels::{CEILING_BYTES, CEILING_IOPS, check_ceiling};
use crate::request::{
    Answered, Ask, Failure, Input, Principal, check_precondition, json, made, ok, plan, tagged,
};
use crate::rules::snapshots::few;
use crate::{Shared, blocking, convert, iscsi_names, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use forebay_analytics::Dimension;
use forebay_api as api;
use forebay_api::{Code, HostCreate, HostGroupCreate, HostGroupSet, HostSet, Operation, Problem};
use std::collections::HashMap;
use std::sync::Arc;

pub fn tag_of(id: &str, revision: u64) -> String {
    format!("\"{id}.{revision}\"")
}

/// A change of the remembered hosts, written and in effect when this returns. Needs the volumes' turn.
pub async fn change<T: Send + 'static>(
    shared: &Arc<Shared>,
    change: impl FnOnce(&mut Content) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let by = shared.clone();
    let made = blocking(move || by.hosts.change(change)).await?;
    shared.refresh_access().await;
    Ok(made)
}

/// What hosts are shown with; made once for a whole list.
struct Surroundings<'a> {
    content: &'a Content,
    views: HashMap<&'a str, Vec<&'a Mapping>>,
    sessions: Vec<IscsiSession>,
}

impl<'a> Surroundings<'a> {
    fn of(shared: &Shared, content: &'a Content) -> Surroundings<'a> {
        let sessions = shared.iscsi.get().map(|iscsi| iscsi.sessions()).unwrap_or_default();
        Surroundings { content, views: content.views(), sessions }
    }
}

fn shown(host: &Host, around: &Surroundings<'_>) -> api::Host {
    let is_its = |session: &&IscsiSession| host.initiators.contains(&session.initiator);
    let sessions = around.sessions.iter().filter(is_its).count();
    let connected = match sessions {
        0 => convert::condition("Connected", false, "NoSession", ""),
        _ => convert::condition("Connected", true, "LoggedIn", ""),
    };
    api::Host {
        id: host.id.clone(),
        name: host.name.clone(),
        spec: api::HostSpec {
            initiators: host.initiators.clone(),
            chap_user: host.chap.as_ref().map(|chap| chap.user.clone()),
            mutual_user: host.mutual.as_ref().map(|chap| chap.user.clone()),
            max_iops: host.max_iops,
            max_bytes_per_second: host.max_bytes_per_second,
        },
        status: api::HostStatus {
            groups: around.content.groups_with(&host.id).map(|group| group.name.clone()).collect(),
            volumes: around.views.get(host.id.as_str()).map_or(0, Vec::len) as u64,
            sessions: sessions as u64,
            created_unix_ms: host.created_unix_ms,
        },
        conditions: vec![connected],
    }
}

fn group_shown(content: &Content, group: &Group) -> api::HostGroup {
    let name = |id: &String| content.host(id).map(|host| host.name.clone()).unwrap_or_default();
    api::HostGroup {
        id: group.id.clone(),
        name: group.name.clone(),
        spec: api::HostGroupSpec { hosts: group.hosts.iter().map(name).collect() },
        status: api::HostGroupStatus {
            volumes: content.mappings.iter().filter(|mapping| mapping.to == group.id).count() as u64,
            created_unix_ms: group.created_unix_ms,
        },
    }
}

/// Answers with the host as it is now.
fn host_now(shared: &Shared, id: &str) -> Result<(api::Host, String), Failure> {
    let content = shared.hosts.content();
    let host = content.host(id)?;
    Ok((shown(host, &Surroundings::of(shared, &content)), tag_of(&host.id, host.revision)))
}

fn group_now(shared: &Shared, id: &str) -> Result<(api::HostGroup, String), Failure> {
    let content = shared.hosts.content();
    let group = content.group(id)?;
    Ok((group_shown(&content, group), tag_of(&group.id, group.revision)))
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let content = shared.hosts.content();
    let around = Surroundings::of(&shared, &content);
    let hosts = content.hosts.iter().map(|host| shown(host, &around)).collect();
    ok(&ask.page(hosts, |host: &api::Host| host.name.clone())?)
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let (host, tag) = host_now(&shared, &name)?;
    Ok(tagged(json(StatusCode::OK, &host), &tag))
}

fn proof_in_words(host: &Host) -> String {
    match (&host.chap, &host.mutual) {
        (None, _) => "Its initiator name is enough to log in.".into(),
        (Some(chap), None) => format!("It logs in as {} with CHAP.", chap.user),
        (Some(chap), Some(mutual)) => {
            format!(
                "It logs in as {}, and the target proves itself as {} (mutual CHAP).",
                chap.user, mutual.user
            )
        }
    }
}

/// A ceiling that is asked for: 0 is none.
fn ceiling(field: &str, asked: Option<u64>) -> Result<Option<u64>, Problem> {
    let asked = asked.filter(|rate| *rate > 0);
    asked.map(|rate| check_ceiling(field, rate).map(|()| rate)).transpose()
}

/// The host that is asked for.
pub fn new(request: &HostCreate) -> Result<Host, Problem> {
    rules::name("name", &request.name)?;
    let host = Host {
        id: crate::random_id(),
        name: request.name.clone(),
        created_unix_ms: now_unix_ms(),
        revision: 1,
        came_with: None,
        initiators: iscsi_names::initiators(&request.initiators)?,
        chap: iscsi_names::chap(request.chap.as_ref())?,
        mutual: iscsi_names::mutual(request.mutual.as_ref())?,
        max_iops: ceiling(CEILING_IOPS, request.max_iops)?,
        max_bytes_per_second: ceiling(CEILING_BYTES, request.max_bytes_per_second)?,
    };
    iscsi_names::both(host.chap.as_ref(), host.mutual.as_ref())?;
    Ok(host)
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<HostCreate>,
) -> Answered {
    let host = new(&request)?;
    let (id, name) = (host.id.clone(), host.name.clone());
    let what = format!("with initiator names {}", host.initiators.join(", "));
    let mut more = vec![proof_in_words(&host)];
    more.extend(host.ceilings().map(|limit| format!("Its limit is {limit}.")));
    let add = move |content: &mut Content| {
        content.hosts.push(host);
        Ok(())
    };
    if ask.dry_run {
        shared.hosts.plan(add)?;
        return plan("host.create", &name, [vec![format!("A host {what} is created.")], more].concat());
    }
    let _turn = shared.volume_turn.lock().await;
    change(&shared, add).await?;
    told(&shared, &who, "host.created", &name, &what);
    let (host, tag) = host_now(&shared, &id)?;
    Ok(tagged(made(StatusCode::CREATED, &Operation::HostShow.path_of(&name), &host)?, &tag))
}

/// Applies a change to a host; says what is different.
fn apply(host: &mut Host, request: &HostSet) -> Result<Vec<String>, Problem> {
    let before = host.clone();
    if let Some(name) = &request.name {
        rules::name("name", name)?;
        host.name.clone_from(name);
    }
    if let Some(initiators) = &request.initiators {
        host.initiators = iscsi_names::initiators(initiators)?;
    }
    if let Some(chap) = &request.chap {
        host.chap = iscsi_names::chap(chap.as_ref())?;
    }
    if let Some(mutual) = &request.mutual {
        host.mutual = iscsi_names::mutual(mutual.as_ref())?;
    }
    iscsi_names::both(host.chap.as_ref(), host.mutual.as_ref())?;
    if request.max_iops.is_some() {
        host.max_iops = ceiling(CEILING_IOPS, request.max_iops)?;
    }
    if request.max_bytes_per_second.is_some() {
        host.max_bytes_per_second = ceiling(CEILING_BYTES, request.max_bytes_per_second)?;
    }
    let mut changes = Vec::new();
    if host.name != before.name {
        changes.push(format!("renamed from {} to {}", before.name, host.name));
    }
    if host.initiators != before.initiators {
        changes.push(format!("initiator names set to {}", host.initiators.join(", ")));
    }
    for (what, now, then) in
        [("CHAP", &host.chap, &before.chap), ("mutual CHAP", &host.mutual, &before.mutual)]
    {
        match now {
            _ if now == then => {}
            Some(credentials) => changes.push(format!("{what} set, with user {}", credentials.user)),
            None => changes.push(format!("{what} removed")),
        }
    }
    if host.ceiling() != before.ceiling() {
        let ceilings: Vec<String> = host.ceilings().collect();
        changes.push(match ceilings.is_empty() {
            true => "limit removed".into(),
            false => format!("limit set to {}", ceilings.join(" and ")),
        });
    }
    // Who sets it, also to what it is, has looked at it.
    host.came_with = None;
    host.revision += u64::from(!changes.is_empty());
    Ok(changes)
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(request): Input<HostSet>,
) -> Answered {
    let known = shared.hosts.content().host(&name)?.clone();
    if request.name.as_ref().is_some_and(|new| *new != known.name) {
        check_unnamed(&shared, Dimension::Client, &known.name)?;
    }
    let id = known.id;
    let change_it = move |content: &mut Content| {
        let host = content.host_mut(&id)?;
        check_precondition(&headers, &tag_of(&host.id, host.revision), "host", &host.name)?;
        let changes = apply(host, &request)?;
        Ok((host.id.clone(), host.name.clone(), changes))
    };
    if ask.dry_run {
        let (_, name, changes) = shared.hosts.plan(change_it)?;
        return plan("host.set", &name, changes);
    }
    let _turn = shared.volume_turn.lock().await;
    let (id, name, changes) = change(&shared, change_it).await?;
    for what in changes {
        told(&shared, &who, "host.changed", &name, &what);
    }
    let (host, tag) = host_now(&shared, &id)?;
    Ok(tagged(json(StatusCode::OK, &host), &tag))
}

/// Refuses to remove what sees volumes, or is to see those of projects, unless that was asked for.
fn check_unmapped(name: &str, volumes: usize, projects: &[String], unmap: bool) -> Result<(), Problem> {
    if (volumes == 0 && projects.is_empty()) || unmap {
        return Ok(());
    }
    let seen = format!("{volumes} volumes are mapped to it, and programs that use them would lose them");
    let named = format!("projects name it: {}", few(projects));
    let unnamed = "Give the projects other hosts with `forebay project set PROJECT --host NAME`";
    let (detail, remedy) = match (volumes, projects) {
        (0, _) => (named, format!("{unnamed}, or remove it with --unmap.")),
        (_, []) => (
            seen,
            "Unmap them with `forebay volume unmap VOLUME --host NAME`, or remove it with --unmap."
                .to_string(),
        ),
        _ => (
            format!("{seen}; {named}"),
            format!(
                "{unnamed}, and unmap the other volumes with `forebay volume unmap VOLUME --host HOST`. Or remove it with --unmap."
            ),
        ),
    };
    Err(Problem::new(Code::Unsafe, detail).object(name).field("unmap").remedy(remedy))
}

/// For the plan of a removal.
fn loss_in_words(who: &str, volumes: usize, projects: &[String]) -> impl Iterator<Item = String> {
    let seen = (volumes > 0).then(|| format!("{who} {volumes} volumes."));
    let named = (!projects.is_empty())
        .then(|| format!("It is removed from the projects that name it: {}.", few(projects)));
    seen.into_iter().chain(named)
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
) -> Answered {
    let unmap = ask.unmap;
    let remove = move |content: &mut Content| {
        let host = content.host(&name)?.clone();
        check_precondition(&headers, &tag_of(&host.id, host.revision), "host", &host.name)?;
        let volumes = content.views().get(host.id.as_str()).map_or(0, Vec::len);
        let projects = content.projects_naming(&host.id);
        check_unmapped(&host.name, volumes, &projects, unmap)?;
        content.unsay(&host.id);
        content.hosts.retain(|other| other.id != host.id);
        for group in content.groups.iter_mut().filter(|group| group.hosts.contains(&host.id)) {
            group.hosts.retain(|member| *member != host.id);
            group.revision += 1;
        }
        content.mappings.retain(|mapping| mapping.to != host.id);
        Ok((host.name, volumes, projects))
    };
    if ask.dry_run {
        let (name, volumes, projects) = shared.hosts.plan(remove)?;
        let mut changes = vec!["The host is removed and can no longer log in.".to_string()];
        changes.extend(loss_in_words("It loses", volumes, &projects));
        return plan("host.delete", &name, changes);
    }
    let _turn = shared.volume_turn.lock().await;
    let (name, ..) = change(&shared, remove).await?;
    told(&shared, &who, "host.deleted", &name, "removed");
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub async fn group_list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let content = shared.hosts.content();
    let groups = content.groups.iter().map(|group| group_shown(&content, group)).collect();
    ok(&ask.page(groups, |group: &api::HostGroup| group.name.clone())?)
}

pub async fn group_show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let (group, tag) = group_now(&shared, &name)?;
    Ok(tagged(json(StatusCode::OK, &group), &tag))
}

/// UUIDs of the named hosts, each once, and their names in words.
fn members(content: &Content, hosts: &[String]) -> Result<(Vec<String>, String), Problem> {
    let mut ids: Vec<String> = Vec::new();
    let mut names = Vec::new();
    for name in hosts {
        let host = content.host(name).map_err(|problem| problem.field("hosts"))?;
        if !ids.contains(&host.id) {
            ids.push(host.id.clone());
            names.push(host.name.clone());
        }
    }
    let words = if names.is_empty() { "no members".into() } else { format!("members {}", names.join(", ")) };
    Ok((ids, words))
}

pub async fn group_create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<HostGroupCreate>,
) -> Answered {
    rules::name("name", &request.name)?;
    let name = request.name.clone();
    let id = crate::random_id();
    let mut group = Group {
        id: id.clone(),
        name: request.name,
        created_unix_ms: now_unix_ms(),
        revision: 1,
        came_with: None,
        hosts: Vec::new(),
    };
    let add = move |content: &mut Content| {
        let (hosts, words) = members(content, &request.hosts)?;
        group.hosts = hosts;
        content.groups.push(group);
        Ok(words)
    };
    if ask.dry_run {
        let words = shared.hosts.plan(add)?;
        return plan("host_group.create", &name, vec![format!("A host group with {words} is created.")]);
    }
    let _turn = shared.volume_turn.lock().await;
    let words = change(&shared, add).await?;
    told(&shared, &who, "host_group.created", &name, &format!("created with {words}"));
    let (group, tag) = group_now(&shared, &id)?;
    Ok(tagged(made(StatusCode::CREATED, &Operation::HostGroupShow.path_of(&name), &group)?, &tag))
}

pub async fn group_set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(request): Input<HostGroupSet>,
) -> Answered {
    let change_it = move |content: &mut Content| {
        let members = request.hosts.as_ref().map(|hosts| members(content, hosts)).transpose()?;
        let group = content.group_mut(&name)?;
        check_precondition(&headers, &tag_of(&group.id, group.revision), "host group", &group.name)?;
        let mut changes = Vec::new();
        if let Some(name) = request.name.filter(|name| *name != group.name) {
            rules::name("name", &name)?;
            changes.push(format!("renamed from {} to {name}", group.name));
            group.name = name;
        }
        if let Some((hosts, words)) = members.filter(|(hosts, _)| *hosts != group.hosts) {
            changes.push(format!("has {words}"));
            group.hosts = hosts;
        }
        // An administrator has looked at it, also where nothing changes.
        group.came_with = None;
        group.revision += u64::from(!changes.is_empty());
        Ok((group.id.clone(), group.name.clone(), changes))
    };
    if ask.dry_run {
        let (_, name, changes) = shared.hosts.plan(change_it)?;
        return plan("host_group.set", &name, changes);
    }
    let _turn = shared.volume_turn.lock().await;
    let (id, name, changes) = change(&shared, change_it).await?;
    for what in changes {
        told(&shared, &who, "host_group.changed", &name, &what);
    }
    let (group, tag) = group_now(&shared, &id)?;
    Ok(tagged(json(StatusCode::OK, &group), &tag))
}

pub async fn group_delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
) -> Answered {
    let unmap = ask.unmap;
    let remove = move |content: &mut Content| {
        let group = content.group(&name)?.clone();
        check_precondition(&headers, &tag_of(&group.id, group.revision), "host group", &group.name)?;
        let volumes = content.mappings.iter().filter(|mapping| mapping.to == group.id).count();
        let projects = content.projects_naming(&group.id);
        check_unmapped(&group.name, volumes, &projects, unmap)?;
        content.unsay(&group.id);
        content.groups.retain(|other| other.id != group.id);
        content.mappings.retain(|mapping| mapping.to != group.id);
        Ok((group.name, volumes, projects))
    };
    if ask.dry_run {
        let (name, volumes, projects) = shared.hosts.plan(remove)?;
        let mut changes = vec!["The group is deleted; its hosts stay.".to_string()];
        changes.extend(loss_in_words("They lose", volumes, &projects));
        return plan("host_group.delete", &name, changes);
    }
    let _turn = shared.volume_turn.lock().await;
    let (name, ..) = change(&shared, remove).await?;
    told(&shared, &who, "host_group.deleted", &name, "deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
