//! Service levels. They change in the volumes' turn: who has one is so until it is done.

use super::hosts::tag_of;
use super::thresholds::check_unnamed;
use super::told;
use crate::events::now_unix_ms;
use crate::hosts::Uncounted;
use crate::levels::{Content, Level, in_words, is_built_in};
use crate::request::{
    Answered, Ask, Failure, Input, Principal, check_precondition, json, made, ok, plan, tagged,
};
use crate::rules::snapshots::few;
use crate::{Shared, blocking, carrier, convert, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use forebay_analytics::Dimension;
use forebay_api::{self as api, Code, LevelCreate, LevelSet, LevelSpec, Operation, Problem};
use forebay_base::Id;
use forebay_pool::{PromiseChange, Source};
use std::collections::HashMap;
use std::sync::Arc;

/// Has the engine go by the levels that there are.
pub async fn apply(shared: &Shared) -> Result<(), Problem> {
    shared.engine.set_levels(&shared.levels.content().for_engine()).await.map_err(convert::problem)
}

/// Refuses what would promise more than a pool can keep, unless it is asked for as best effort.
pub async fn admit(shared: &Shared, ask: &Ask, pool: &str, change: PromiseChange) -> Result<(), Failure> {
    match ask.best_effort {
        true => Ok(()),
        false => Ok(shared.engine.promise_check(pool, change).await?),
    }
}

/// A change of the remembered levels, written and in force when this returns. Needs the volumes' turn.
async fn change<T: Send + 'static>(
    shared: &Arc<Shared>,
    change: impl FnOnce(&mut Content) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let by = shared.clone();
    let made = blocking(move || by.levels.change(change)).await?;
    let pools: Vec<String> = shared.engine.pools().await.iter().map(|pool| pool.id.to_string()).collect();
    carrier::note_changes(shared, pools, Uncounted::OfLevels).await;
    apply(shared).await?;
    Ok(made)
}

/// For how many volumes each level holds.
async fn counts(shared: &Shared) -> HashMap<Id, u64> {
    let mut counts = HashMap::new();
    shared.volumes().await.0.iter().for_each(|volume| *counts.entry(volume.level).or_default() += 1);
    counts
}

fn shown(level: &Level, counts: &HashMap<Id, u64>) -> api::Level {
    let id = level.engine_id();
    let built_in = is_built_in(id);
    api::Level {
        id: level.id.clone(),
        name: level.name.clone(),
        spec: level.spec.clone(),
        status: api::LevelStatus {
            built_in,
            volumes: counts.get(&id).copied().unwrap_or_default(),
            created_unix_ms: (!built_in).then_some(level.created_unix_ms),
        },
    }
}

async fn now(shared: &Shared, name: &str) -> Result<(api::Level, String), Failure> {
    let level = shared.levels.content().find(name)?;
    Ok((shown(&level, &counts(shared).await), tag_of(&level.id, level.revision)))
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let counts = counts(&shared).await;
    let levels = shared.levels.content().all().map(|level| shown(&level, &counts)).collect();
    ok(&ask.page(levels, |level: &api::Level| level.name.clone())?)
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let (level, tag) = now(&shared, &name).await?;
    Ok(tagged(json(StatusCode::OK, &level), &tag))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<LevelCreate>,
) -> Answered {
    rules::name("name", &request.name)?;
    let level = Level {
        id: crate::random_id(),
        name: request.name.clone(),
        created_unix_ms: now_unix_ms(),
        revision: 1,
        spec: LevelSpec {
            class: request.class,
            min_iops: request.min_iops,
            min_bytes_per_second: request.min_bytes_per_second,
            latency_us: request.latency_us,
            max_iops: request.max_iops,
            max_bytes_per_second: request.max_bytes_per_second,
            burst_seconds: request.burst_seconds,
        },
    };
    let what = in_words(&level.spec).join(", ");
    let add = move |content: &mut Content| {
        content.levels.push(level);
        Ok(())
    };
    if ask.dry_run {
        shared.levels.plan(add)?;
        return plan("level.create", &request.name, vec![format!("The level is created: {what}.")]);
    }
    let _turn = shared.volume_turn.lock().await;
    change(&shared, add).await?;
    told(&shared, &who, "level.created", &request.name, &format!("created: {what}"));
    let (level, tag) = now(&shared, &request.name).await?;
    Ok(tagged(made(StatusCode::CREATED, &Operation::LevelShow.path_of(&level.name), &level)?, &tag))
}

/// What a level says after a change.
fn changed(spec: &LevelSpec, request: &LevelSet) -> LevelSpec {
    LevelSpec {
        class: request.class.unwrap_or(spec.class),
        min_iops: request.min_iops.unwrap_or(spec.min_iops),
        min_bytes_per_second: request.min_bytes_per_second.unwrap_or(spec.min_bytes_per_second),
        latency_us: request.latency_us.unwrap_or(spec.latency_us),
        max_iops: request.max_iops.unwrap_or(spec.max_iops),
        max_bytes_per_second: request.max_bytes_per_second.unwrap_or(spec.max_bytes_per_second),
        burst_seconds: request.burst_seconds.unwrap_or(spec.burst_seconds),
    }
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(request): Input<LevelSet>,
) -> Answered {
    let known = shared.levels.content().find(&name)?.name;
    if request.name.as_ref().is_some_and(|new| *new != known) {
        check_unnamed(&shared, Dimension::Level, &known)?;
    }
    let change_it = move |content: &mut Content| {
        let level = content.find_mut(&name)?;
        check_precondition(&headers, &tag_of(&level.id, level.revision), "level", &level.name)?;
        let spec = changed(&level.spec, &request);
        let words = in_words(&spec).into_iter().zip(in_words(&level.spec));
        let mut changes: Vec<String> =
            words.filter(|(now, before)| now != before).map(|(now, _)| now).collect();
        let new_name = request.name.as_ref().filter(|name| **name != level.name);
        if let Some(name) = new_name {
            rules::name("name", name)?;
            changes.push(format!("renamed from {} to {name}", level.name));
            level.name.clone_from(name);
        }
        if spec != level.spec || new_name.is_some() {
            (level.spec, level.revision) = (spec, level.revision + 1);
        }
        Ok((level.clone(), changes))
    };
    let _turn = shared.volume_turn.lock().await;
    let (level, changes) = shared.levels.plan(&change_it)?;
    for pool in shared.engine.pools().await {
        let promise = PromiseChange::Level { id: level.engine_id(), level: convert::level_in(&level.spec) };
        match admit(&shared, &ask, &pool.name, promise).await {
            // It was exported since, and promises nothing.
            Err(Failure(problem)) if matches!(problem.code, Code::NotFound | Code::Stopped) => {}
            admitted => admitted?,
        }
    }
    let name = level.name;
    if ask.dry_run {
        return plan("level.set", &name, changes);
    }
    change(&shared, change_it).await?;
    for what in changes {
        told(&shared, &who, "level.changed", &name, &what);
    }
    let (level, tag) = now(&shared, &name).await?;
    Ok(tagged(json(StatusCode::OK, &level), &tag))
}

/// Refuses to delete a level that projects or volumes have of their own. Pools that are not imported are unknown.
async fn check_unused(shared: &Shared, level: &Level) -> Result<(), Problem> {
    let id = level.engine_id();
    let projects = shared.engine.projects(None).await.map_err(convert::problem)?;
    let projects = projects.into_iter().filter(|project| project.properties.level == Some(id));
    let volumes = shared.engine.volumes(None).await.map_err(convert::problem)?;
    let volumes =
        volumes.into_iter().filter(|volume| volume.level == id && volume.sources.level == Source::Own);
    let users: Vec<String> = projects
        .map(|project| format!("project {}/{}", project.pool, project.name))
        .chain(volumes.map(|volume| format!("volume {}/{}", volume.pool, volume.name)))
        .collect();
    if users.is_empty() {
        return Ok(());
    }
    let detail = format!("the level is in use by {}", few(&users));
    let remedy = "Give them another level with `forebay volume set VOLUME --level LEVEL` and `forebay project set PROJECT --level LEVEL`; LEVEL can \
                  be `none`.";
    Err(Problem::new(Code::Conflict, detail).object(&level.name).remedy(remedy))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let level = shared.levels.plan(|content| content.find_mut(&name).cloned())?;
    check_precondition(&headers, &tag_of(&level.id, level.revision), "level", &level.name)?;
    check_unused(&shared, &level).await?;
    if ask.dry_run {
        return plan(
            "level.delete",
            &level.name,
            vec!["The level is deleted. No volume or project of an imported pool has it.".to_string()],
        );
    }
    let id = level.id.clone();
    let remove = move |content: &mut Content| {
        content.levels.retain(|other| other.id != id);
        Ok(())
    };
    change(&shared, remove).await?;
    told(&shared, &who, "level.deleted", &level.name, "deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
