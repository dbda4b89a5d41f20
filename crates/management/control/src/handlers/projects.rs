//! Projects. They change in the volumes' turn: what is looked at here is so until it is done.

use super::hosts::change;
use super::inherited::{change_told, heirs_of};
use super::levels::admit;
use super::mappings::pool_id;
use super::{rename, told};
use crate::events::now_unix_ms;
use crate::hosts::Content;
use crate::inherited::{Difference, Heir, ProjectHosts};
use crate::request::{
    Answered, Ask, Failure, Input, Principal, check_precondition, json, made, ok, plan, tag_of_spec, tagged,
};
use crate::rules::projects as rules;
use crate::{Known, Shared, convert};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use forebay_api::{Operation, Problem, Project, ProjectCreate, ProjectSet};
use forebay_base::Id;
use forebay_pool::{ProjectChange, ProjectInfo, PromiseChange, Setting};
use std::sync::Arc;

pub(super) fn etag(project: &Project) -> String {
    tag_of_spec(&project.id, &project.name, &project.spec)
}

/// UUIDs of the named hosts and groups, each once.
fn parties(content: &Content, names: &[String]) -> Result<Vec<String>, Problem> {
    let mut ids: Vec<String> = Vec::new();
    for name in names {
        let id = content.party(name).map_err(|problem| problem.field("hosts"))?.0;
        if !ids.iter().any(|known| known == id) {
            ids.push(id.into());
        }
    }
    Ok(ids)
}

/// Hosts that a project is to name, and the volumes that this concerns.
struct Naming {
    said: ProjectHosts,
    heirs: Vec<Heir>,
}

impl Naming {
    async fn of(shared: &Shared, project: &ProjectInfo, hosts: Vec<String>) -> Result<Naming, Problem> {
        let mut volumes = shared.volumes().await.0;
        volumes.retain(|volume| volume.project_id == Some(project.id));
        let said = ProjectHosts {
            pool: pool_id(shared, &project.pool).await?,
            project: project.id.to_string(),
            name: format!("{}/{}", project.pool, project.name),
            hosts,
        };
        Ok(Naming { said, heirs: heirs_of(shared, &volumes).await })
    }

    /// What hosts gain and lose by it.
    fn apply(&self, content: &mut Content) -> Result<Vec<Difference>, Problem> {
        change_told(content, |content| {
            content.say(self.said.clone());
            content.inherit_wholly(&self.heirs, now_unix_ms())
        })
    }
}

fn check(headers: &HeaderMap, project: &Project) -> Result<(), Problem> {
    check_precondition(headers, &etag(project), "project", &project.name)
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let projects = shared.engine.projects(ask.pool.as_deref()).await?;
    let known = shared.known();
    let projects: Vec<Project> = projects.iter().map(|project| convert::project(project, &known)).collect();
    ok(&ask.page(projects, |project| project.name.clone())?)
}

async fn find(shared: &Shared, name: &str) -> Result<Project, Failure> {
    Ok(convert::project(&shared.engine.project(name).await?, &shared.known()))
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let project = find(&shared, &name).await?;
    Ok(tagged(json(StatusCode::OK, &project), &etag(&project)))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<ProjectCreate>,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let Known { hosts: content, levels } = shared.known();
    let properties = rules::create(&request, &levels)?;
    shared.engine.project_create_check(&request.name, properties).await?;
    let asked = request.hosts.as_ref().map(|names| parties(&content, names)).transpose()?;
    let hosts = match rules::hosts(&[], asked, &[])? {
        Setting::Own(hosts) => hosts,
        Setting::Keep | Setting::Inherit => Vec::new(),
    };
    let said = ProjectHosts {
        pool: String::new(),
        project: String::new(),
        name: request.name.clone(),
        hosts: hosts.clone(),
    };
    shared.hosts.plan(|content| {
        content.say(said);
        Ok(())
    })?;
    if ask.dry_run {
        let mut changes = vec!["The project is created. Volumes in it inherit its properties.".to_string()];
        if !hosts.is_empty() {
            changes.push(format!("They are mapped to {}.", content.names(&hosts).join(", ")));
        }
        return plan("project.create", &request.name, changes);
    }
    let project = shared.engine.project_create(&request.name, properties).await?;
    told(&shared, &who, "project.created", &request.name, "created");
    if !hosts.is_empty() {
        let naming = Naming::of(&shared, &project, hosts).await?;
        change(&shared, move |content| naming.apply(content)).await.map_err(|problem| {
            let detail = format!("the project is created, but without hosts: {}", problem.detail);
            Problem { detail, ..problem }
        })?;
    }
    let project = find(&shared, &request.name).await?;
    let place = Operation::ProjectShow.path_of(&project.name);
    Ok(tagged(made(StatusCode::CREATED, &place, &project)?, &etag(&project)))
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(mut request): Input<ProjectSet>,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let info = shared.engine.project(&name).await?;
    let known = shared.known();
    let before = convert::project(&info, &known);
    let Known { hosts: content, levels } = known;
    check(&headers, &before)?;
    if let Some(name) = request.name.take() {
        rename::check_alone(&request)?;
        shared.engine.pool_changeable(&info.pool).await?;
        return rename::project(&shared, &who, &ask, &info, name).await;
    }
    let properties = rules::project_change(&info.properties, &request, &levels)?;
    if properties != ProjectChange::default() {
        // Hosts are not in the pool: one that is only read is no obstacle to them.
        shared.engine.pool_changeable(&info.pool).await?;
    }
    if let Some(level) = properties.level.said() {
        let (name, level) = (info.name.clone(), level.unwrap_or(Id(0)));
        admit(&shared, &ask, &info.pool, PromiseChange::Project { name, level }).await?;
    }
    let mut changes = rules::project_change_in_words(&properties, &levels);
    let asked = request.hosts.as_ref().map(|names| parties(&content, names)).transpose()?;
    let naming = match rules::hosts(content.said(&before.id), asked, &request.inherit)? {
        Setting::Keep => None,
        Setting::Own(hosts) => {
            changes.push(format!("hosts set to {}", content.names(&hosts).join(", ")));
            Some(Naming::of(&shared, &info, hosts).await?)
        }
        Setting::Inherit => {
            changes.push("hosts removed".into());
            Some(Naming::of(&shared, &info, Vec::new()).await?)
        }
    };
    if let Some(naming) = &naming {
        let told = shared.hosts.plan(|content| naming.apply(content))?;
        changes.extend(told.iter().map(ToString::to_string));
    }
    if ask.dry_run {
        return plan("project.set", &before.name, changes);
    }
    if properties != ProjectChange::default() {
        shared.engine.project_set(&before.name, properties).await?;
    }
    if let Some(naming) = naming {
        change(&shared, move |content| naming.apply(content)).await?;
    }
    let after = find(&shared, &before.name).await?;
    for what in changes {
        told(&shared, &who, "project.changed", &after.name, &what);
    }
    Ok(tagged(json(StatusCode::OK, &after), &etag(&after)))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let project = find(&shared, &name).await?;
    check(&headers, &project)?;
    shared.engine.project_delete_check(&project.name).await?;
    if ask.dry_run {
        let changes = vec!["The project and its properties are deleted. It has no volumes.".to_string()];
        return plan("project.delete", &project.name, changes);
    }
    shared.engine.project_delete(&project.name).await?;
    told(&shared, &who, "project.deleted", &project.name, "deleted");
    let forget = move |content: &mut Content| {
        content.projects.retain(|entry| entry.project != project.id);
        Ok(())
    };
    change(&shared, forget).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
