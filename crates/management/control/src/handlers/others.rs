//! The daemon itself, tasks, events, the audit log and tokens.

use crate::events::now_unix_ms;
use crate::request::{Answered, Ask, Input, Principal, json, ok, plan};
use crate::seats::Seat;
use crate::tasks::cannot_cancel;
use crate::{Shared, blocking};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use forebay_api::{Code, Problem, Server, ServerSet, Severity, Task, TokenCreate, TokenSet, show_duration};
use std::sync::Arc;
use tokio::time::Instant;

pub async fn server_show(State(shared): State<Arc<Shared>>) -> Answered {
    ok(&server(&shared))
}

fn server(shared: &Shared) -> Server {
    let at = shared.configuration.addresses();
    Server {
        version: env!("CARGO_PKG_VERSION").into(),
        cores: shared.cores as u32,
        started_unix_ms: shared.started_unix_ms,
        nbd: at.nbd,
        iscsi: at.iscsi,
        statistics: *shared.counts.borrow(),
    }
}

/// Nothing of it is remembered: each start of the daemon turns statistics on.
pub async fn server_set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<ServerSet>,
) -> Answered {
    let before = *shared.counts.borrow();
    let after = request.statistics.unwrap_or(before);
    let what = if after { "Statistics are collected." } else { "Statistics are no longer collected." };
    if ask.dry_run {
        return plan("server.set", "server", Vec::from_iter((after != before).then(|| what.to_string())));
    }
    if shared.counts.send_replace(after) != after {
        let code = if after { "statistics.on" } else { "statistics.off" };
        super::told(&shared, &who, code, "server", what.trim_end_matches('.'));
    }
    ok(&server(&shared))
}

pub async fn document_show() -> Answered {
    Ok(([(header::CONTENT_TYPE, "application/json")], forebay_api::document()).into_response())
}

/// Waits until something happens, the deadline passes or the daemon stops; false when there is no point in waiting on.
pub async fn until<T>(shared: &Shared, happens: impl Future<Output = T>, deadline: Instant) -> bool {
    let mut stopping = shared.stopping.subscribe();
    if *stopping.borrow_and_update() {
        return false;
    }
    tokio::select! {
        happened = tokio::time::timeout_at(deadline, happens) => happened.is_ok(),
        _ = stopping.changed() => false,
    }
}

/// A place for a request that may wait; one that asks for what there is needs none.
pub fn waiting(shared: &Shared, who: &Principal, ask: &Ask) -> Result<Option<Seat>, Problem> {
    if ask.wait().is_zero() {
        return Ok(None);
    }
    let seat = shared.waits.take(who.unique());
    seat.map(Some).ok_or_else(|| {
        Problem::new(Code::Busy, "too many requests with `wait_seconds` are open already").remedy(
            "Use one waiting request for each object, read the stream of events, or ask without `wait_seconds`.",
        )
    })
}

pub async fn task_list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    // Newest first, also over pages.
    let key = |task: &Task| format!("{:020} {}", u64::MAX - task.started_unix_ms, task.id);
    ok(&ask.page(shared.tasks.list(), key)?)
}

pub async fn task_show(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(id): Path<String>,
    ask: Ask,
) -> Answered {
    let _seat = waiting(&shared, &who, &ask)?;
    let deadline = Instant::now() + ask.wait();
    let mut version = shared.tasks.version();
    loop {
        version.mark_unchanged();
        let task = shared.tasks.find(&id)?;
        if task.state.is_final() || !until(&shared, version.changed(), deadline).await {
            return ok(&shared.tasks.find(&id)?);
        }
    }
}

pub async fn task_cancel(State(shared): State<Arc<Shared>>, Path(id): Path<String>, ask: Ask) -> Answered {
    if ask.dry_run {
        let task = shared.tasks.find(&id)?;
        if !task.cancellable {
            return Err(cannot_cancel(&id, task.state).into());
        }
        return plan("task.cancel", &id, vec![format!("{} of {} is cancelled.", task.name, task.object)]);
    }
    ok(&shared.tasks.cancel(&id)?)
}

pub async fn event_list(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
) -> Answered {
    let _seat = waiting(&shared, &who, &ask)?;
    let deadline = Instant::now() + ask.wait();
    let mut newest = shared.events.newest();
    loop {
        newest.mark_unchanged();
        let page = ask.numbered(shared.events.list(ask.after, usize::MAX))?;
        if !page.items.is_empty() || !until(&shared, newest.changed(), deadline).await {
            return ok(&page);
        }
    }
}

pub async fn audit_list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    ok(&ask.numbered(shared.audit.list(ask.after, usize::MAX))?)
}

pub async fn token_list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    ok(&ask.page(shared.tokens.list(), |token| token.name.clone())?)
}

pub async fn token_create(
    State(shared): State<Arc<Shared>>,
    ask: Ask,
    Input(request): Input<TokenCreate>,
) -> Answered {
    let life = shared.tokens.validate(&request)?;
    if ask.dry_run {
        let changes = vec![format!(
            "A token with role {} for {} is created.",
            request.role.name(),
            show_duration(life)
        )];
        return plan("token.create", &request.name, changes);
    }
    let by = shared.clone();
    let created = blocking(move || by.tokens.create(&request, now_unix_ms())).await?;
    let what = format!("created with role {}", created.token.role.name());
    shared.events.record(Severity::Info, "token.created", &created.token.name, &what);
    Ok(json(StatusCode::CREATED, &created))
}

pub async fn token_set(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<TokenSet>,
) -> Answered {
    let token = shared.tokens.find(&name)?;
    shared.tokens.check_name(&token, &request.name)?;
    let change = format!("renamed to {}", request.name);
    if ask.dry_run {
        return plan("token.set", &token.name, vec![change]);
    }
    let (by, before) = (shared.clone(), token.name.clone());
    let renamed = blocking(move || by.tokens.rename(&token, &request.name)).await?;
    if renamed.name != before {
        shared.events.record(Severity::Info, "token.changed", &before, &change);
    }
    ok(&renamed)
}

pub async fn token_delete(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let token = shared.tokens.find(&name)?;
    if ask.dry_run {
        return plan("token.delete", &token.name, vec!["The token stops working at once.".into()]);
    }
    let by = shared.clone();
    let token = blocking(move || by.tokens.delete(&name)).await?;
    shared.admissions_changed();
    shared.events.record(Severity::Info, "token.deleted", &token.name, "revoked");
    Ok::<_, crate::request::Failure>(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_a_running_task_is_a_conflict() {
        let problem = cannot_cancel("1", forebay_api::TaskState::Running);
        assert_eq!(problem.status, 409);
        assert!(problem.remedy.is_some());
    }
}
