//! Thresholds over the API: alerts that administrators request for a statistic.

use super::hosts::tag_of;
use super::told;
use crate::events::now_unix_ms;
use crate::request::{Answered, Ask, Input, Principal, check_precondition, json, made, ok, plan, tagged};
use crate::rules::snapshots::few;
use crate::thresholds::{Content, Threshold, check_expression, in_words, unit_of};
use crate::{Shared, alerts, blocking, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use forebay_analytics::{Dimension, Expression, Layer, Part};
use forebay_api::{
    self as api, Code, Operation, Problem, ThresholdCreate, ThresholdSet, ThresholdSpec, show_in_unit,
};
use forebay_pool::{GroupStatus, PoolStatus};
use std::fmt::Display;
use std::sync::Arc;

/// Looks at those that are due.
pub async fn look(shared: &Shared) {
    let now_unix_s = now_unix_ms() / 1000;
    let content = shared.thresholds.content();
    let due = shared.crossings().due(&content, now_unix_s);
    for (threshold, ask) in due {
        // When too much is asked, this one is looked at a little later.
        if let Ok(answer) = shared.statistics.ask(ask).await {
            shared.crossings().answered(&threshold, &answer, now_unix_s);
        }
    }
}

/// Those that are crossed, for the alerts.
pub fn crossed(shared: &Shared) -> Vec<alerts::Crossing> {
    let (content, crossings) = (shared.thresholds.content(), shared.crossings());
    let crossed = content.thresholds.iter().filter_map(|one| {
        let measured = crossings.of(one).filter(|measured| measured.crossed)?;
        Some(alerts::Crossing {
            name: one.name.clone(),
            severity: one.spec.severity,
            expression: one.spec.expression.clone(),
            cause: in_words(one, measured),
        })
    });
    crossed.collect()
}

fn shown(shared: &Shared, one: &Threshold) -> api::Threshold {
    let measured = shared.crossings().of(one).cloned();
    api::Threshold {
        id: one.id.clone(),
        name: one.name.clone(),
        spec: one.spec.clone(),
        status: api::ThresholdStatus {
            created_unix_ms: one.created_unix_ms,
            changed_unix_ms: one.changed_unix_ms,
            unit: unit_of(&one.spec).into(),
            crossed: measured.as_ref().is_some_and(|measured| measured.crossed),
            value: measured.map(|measured| measured.value),
        },
    }
}

fn now(shared: &Shared, name: &str) -> Result<(api::Threshold, String), Problem> {
    let content = shared.thresholds.content();
    let one = content.find(name)?;
    Ok((shown(shared, one), tag_of(&one.id, one.revision)))
}

/// Refuses to rename what thresholds name: they would never be crossed again, and raise no alert.
pub fn check_unnamed(shared: &Shared, dimension: Dimension, name: &str) -> Result<(), Problem> {
    check_named(shared, name, |of, value| of == dimension && value == name)
}

/// The same of a pool or a project, and of all that is in it.
pub fn check_all_unnamed(shared: &Shared, whole: &str) -> Result<(), Problem> {
    let is_in =
        |value: &str| value.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    check_named(shared, whole, |of, value| of != Dimension::Client && of != Dimension::Level && is_in(value))
}

fn check_named(
    shared: &Shared,
    name: &str,
    is_meant: impl Fn(Dimension, &str) -> bool,
) -> Result<(), Problem> {
    let content = shared.thresholds.content();
    let names_it = |one: &&Threshold| {
        let expression = Expression::parse(&one.spec.expression);
        let is_it = |part: &Part| matches!(part, Part::Is(of, value) | Part::IsNot(of, value) if is_meant(*of, value));
        expression.is_ok_and(|expression| expression.parts.iter().any(is_it))
    };
    let names: Vec<String> = content.thresholds.iter().filter(names_it).map(|one| one.name.clone()).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Problem::new(
        Code::Conflict,
        format!("the expressions of thresholds contain this name: {}", few(&names)),
    )
    .object(name)
    .field("name")
    .remedy("Delete these thresholds, rename the object, and create them with the new name."))
}

/// A filter that names what does not exist would never match, and its alert never come.
async fn check_objects(shared: &Shared, expression: &Expression) -> Result<(), Problem> {
    let pools = shared.engine.pools().await;
    for part in &expression.parts {
        let Part::Is(dimension, value) = part else { continue };
        let is = |pool: &str, of_pool: &dyn Display| format!("{pool}/{of_pool}") == *value;
        let groups = || pools.iter().flat_map(|pool| pool.groups.iter().map(move |group| (pool, group)));
        let (exists, remedy) = match dimension {
            Dimension::Volume => (
                shared.volumes().await.0.iter().any(|one| is(&one.pool, &one.name)),
                "`forebay volume list` shows them.",
            ),
            Dimension::Project => {
                let projects = shared.engine.projects(None).await.unwrap_or_default();
                (projects.iter().any(|one| is(&one.pool, &one.name)), "`forebay project list` shows them.")
            }
            Dimension::Level => (
                shared.levels.content().all().any(|one| one.name == *value),
                "`forebay level list` shows them.",
            ),
            Dimension::Pool => {
                (pools.iter().any(|pool| pool.name == *value), "`forebay pool list` shows them.")
            }
            Dimension::Group => (
                groups().any(|(pool, group)| is(&pool.name, &group.number)),
                "`forebay pool status` shows them.",
            ),
            Dimension::Device if expression.statistic.layer == Layer::Disk => {
                let has = |(pool, group): (&PoolStatus, &GroupStatus)| {
                    group.disks.iter().any(|disk| is(&pool.name, &disk.number))
                };
                (groups().any(has), "`forebay disk list` shows them.")
            }
            // Clients come and go, and the other dimensions name no objects.
            _ => continue,
        };
        if !exists {
            let kind = if *dimension == Dimension::Device { "disk" } else { dimension.name() };
            let problem = Problem::new(Code::NotFound, format!("there is no {kind} `{value}`"));
            return Err(problem.field("spec.expression").remedy(remedy));
        }
    }
    Ok(())
}

async fn change<T: Send + 'static>(
    shared: &Arc<Shared>,
    change: impl FnOnce(&mut Content) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let by = shared.clone();
    blocking(move || by.thresholds.change(change)).await
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let content = shared.thresholds.content();
    let all = content.thresholds.iter().map(|one| shown(&shared, one)).collect();
    ok(&ask.page(all, |one: &api::Threshold| one.name.clone())?)
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let (threshold, tag) = now(&shared, &name)?;
    Ok(tagged(json(StatusCode::OK, &threshold), &tag))
}

/// `disk.latency[device] above 10ms over 60 s is a warning alert`.
fn what(spec: &ThresholdSpec) -> String {
    let (word, limit) = match spec.above {
        Some(limit) => ("above", limit),
        None => ("below", spec.below.unwrap_or_default()),
    };
    let (limit, severity) = (show_in_unit(limit, unit_of(spec)), spec.severity.name());
    format!(
        "{} {word} {limit} over {} s raises an alert of severity {severity}",
        spec.expression, spec.over_seconds
    )
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<ThresholdCreate>,
) -> Answered {
    rules::name("name", &request.name)?;
    check_objects(&shared, &check_expression(&request.spec)?).await?;
    let now_unix_ms = now_unix_ms();
    let one = Threshold {
        id: crate::random_id(),
        name: request.name.clone(),
        created_unix_ms: now_unix_ms,
        changed_unix_ms: now_unix_ms,
        revision: 1,
        spec: request.spec,
    };
    let words = what(&one.spec);
    let add = move |content: &mut Content| {
        content.thresholds.push(one);
        Ok(())
    };
    if ask.dry_run {
        shared.thresholds.plan(add)?;
        return plan("threshold.create", &request.name, vec![format!("The threshold is created: {words}.")]);
    }
    change(&shared, add).await?;
    told(&shared, &who, "threshold.created", &request.name, &format!("created: {words}"));
    let (threshold, tag) = now(&shared, &request.name)?;
    let at = Operation::ThresholdShow.path_of(&threshold.name);
    Ok(tagged(made(StatusCode::CREATED, &at, &threshold)?, &tag))
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(request): Input<ThresholdSet>,
) -> Answered {
    if let Some(spec) = &request.spec {
        let expression = check_expression(spec)?;
        // What has gone since does not keep the limit from being changed.
        let is_another = |one: &Threshold| one.spec.expression != spec.expression;
        if shared.thresholds.content().find(&name).is_ok_and(is_another) {
            check_objects(&shared, &expression).await?;
        }
    }
    let change_it = move |content: &mut Content| {
        let one = content.find_mut(&name)?;
        check_precondition(&headers, &tag_of(&one.id, one.revision), "threshold", &one.name)?;
        let mut changes = Vec::new();
        if let Some(name) = request.name.filter(|name| *name != one.name) {
            rules::name("name", &name)?;
            changes.push(format!("Renamed from {} to {name}.", one.name));
            (one.name, one.revision, one.changed_unix_ms) = (name, one.revision + 1, now_unix_ms());
        }
        if let Some(spec) = request.spec.filter(|spec| *spec != one.spec) {
            changes.push(format!("Now {}.", what(&spec)));
            one.spec = spec;
            (one.revision, one.changed_unix_ms) = (one.revision + 1, now_unix_ms());
        }
        Ok((one.name.clone(), changes))
    };
    if ask.dry_run {
        let (name, changes) = shared.thresholds.plan(change_it)?;
        return plan("threshold.set", &name, changes);
    }
    let (name, changes) = change(&shared, change_it).await?;
    for what in changes {
        told(&shared, &who, "threshold.changed", &name, what.trim_end_matches('.'));
    }
    let (threshold, tag) = now(&shared, &name)?;
    Ok(tagged(json(StatusCode::OK, &threshold), &tag))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
) -> Answered {
    let remove = move |content: &mut Content| {
        let one = content.find(&name)?;
        check_precondition(&headers, &tag_of(&one.id, one.revision), "threshold", &one.name)?;
        content.remove(&name)
    };
    if ask.dry_run {
        let one = shared.thresholds.plan(remove)?;
        return plan("threshold.delete", &one.name, vec!["The threshold and its alert are deleted.".into()]);
    }
    let one = change(&shared, remove).await?;
    told(&shared, &who, "threshold.deleted", &one.name, "deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
