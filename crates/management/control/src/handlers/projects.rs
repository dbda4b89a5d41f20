//! Projects. They change in the volumes' turn: what is looked at here is so until it is done.

use super::told;
use crate::request::{
    Answered, Ask, Input, Principal, check_precondition, json, made, ok, plan, tag_of_spec, tagged,
};
use crate::rules::projects as rules;
use crate::{Shared, convert};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use forebay_api::{Operation, Problem, Project, ProjectCreate, ProjectSet};
use std::sync::Arc;

fn etag(project: &Project) -> String {
    tag_of_spec(&project.id, &project.name, &project.spec)
}

fn check(headers: &HeaderMap, project: &Project) -> Result<(), Problem> {
    check_precondition(headers, &etag(project), "project", &project.name)
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let projects = shared.engine.projects(ask.pool.as_deref()).await?;
    let projects: Vec<Project> = projects.iter().map(convert::project).collect();
    ok(&ask.page(projects, |project| project.name.clone()))
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let project = convert::project(&shared.engine.project(&name).await?);
    Ok(tagged(json(StatusCode::OK, &project), &etag(&project)))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<ProjectCreate>,
) -> Answered {
    let properties = rules::create(&request)?;
    let _turn = shared.volume_turn.lock().await;
    shared.engine.project_create_check(&request.name, properties).await?;
    if ask.dry_run {
        let changes = vec!["The project is created. Volumes in it inherit what it says.".to_string()];
        return plan("project.create", &request.name, changes);
    }
    let project = convert::project(&shared.engine.project_create(&request.name, properties).await?);
    told(&shared, &who, "project.created", &project.name, "created");
    let place = Operation::ProjectShow.path_of(&project.name);
    Ok(tagged(made(StatusCode::CREATED, &place, &project)?, &etag(&project)))
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(request): Input<ProjectSet>,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let info = shared.engine.project(&name).await?;
    let before = convert::project(&info);
    check(&headers, &before)?;
    shared.engine.pool_changeable(&info.pool).await?;
    let change = rules::project_change(&info.properties, &request)?;
    let changes = rules::project_change_in_words(&change);
    if ask.dry_run {
        return plan("project.set", &before.name, changes);
    }
    let mut after = before;
    if !changes.is_empty() {
        after = convert::project(&shared.engine.project_set(&after.name, change).await?);
    }
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
    let project = convert::project(&shared.engine.project(&name).await?);
    check(&headers, &project)?;
    shared.engine.project_delete_check(&project.name).await?;
    if ask.dry_run {
        let changes = vec!["The project and what it says are gone. It has no volumes.".to_string()];
        return plan("project.delete", &project.name, changes);
    }
    shared.engine.project_delete(&project.name).await?;
    told(&shared, &who, "project.deleted", &project.name, "deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
