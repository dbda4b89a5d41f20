//! Channels over the API: where the appliance's notices go.

use super::hosts::tag_of;
use super::told;
use crate::alerts::FailingChannel;
use crate::channels::{Content, Remembered, for_reporter, tidy};
use crate::events::now_unix_ms;
use crate::request::{
    Answered, Ask, Failed, Input, Principal, check_precondition, json, made, ok, plan, tagged,
};
use crate::{Shared, blocking, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use forebay_api::{
    self as api, ChannelCreate, ChannelSet, ChannelSpec, Code, Delivery, Operation, Problem, Secret,
};
use forebay_notify::{ChannelError, ChannelState, webhook};
use std::sync::Arc;

/// Has the reporter go by what is remembered, and tells it each line of the audit log from now on.
pub async fn begin(shared: Arc<Shared>) -> Result<(), Problem> {
    apply(&shared)?;
    let mut newest = shared.audit.newest();
    let mut told = *newest.borrow_and_update();
    tokio::spawn(async move {
        // An error means that the log is closed: the daemon ends.
        while newest.changed().await.is_ok() {
            for entry in shared.audit.list(Some(told), usize::MAX) {
                told = entry.sequence;
                shared.reporter.audit(&entry);
            }
        }
    });
    Ok(())
}

fn apply(shared: &Shared) -> Result<(), Problem> {
    shared.reporter.configure(shared.channels.content().for_reporter()).map_err(|wrong| {
        // They were checked before they were remembered.
        let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        Problem::new(Code::Internal, format!("channels cannot be used: {}", wrong.join(" ")))
    })
}

/// A change of the remembered channels, written and in force when this returns.
async fn change<T: Send + 'static>(
    shared: &Arc<Shared>,
    change: impl FnOnce(&mut Content) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let _turn = shared.channel_turn.lock().await;
    let by = shared.clone();
    let made = blocking(move || by.channels.change(change)).await?;
    apply(shared)?;
    Ok(made)
}

fn shown(shared: &Shared, one: &Remembered, states: &[ChannelState]) -> api::Channel {
    let state = states.iter().find(|state| state.name == one.name);
    let failure = state.and_then(|state| state.error.as_ref()).map(|error| api::ChannelFailure {
        at_unix_ms: error.at_unix_ms,
        message: error.message.clone(),
        remedy: error.remedy.clone(),
    });
    let is_snmp = matches!(one.spec.delivery, Delivery::SnmpTrap(_));
    api::Channel {
        id: one.id.clone(),
        name: one.name.clone(),
        spec: one.spec.shown(),
        status: api::ChannelStatus {
            created_unix_ms: one.created_unix_ms,
            changed_unix_ms: one.changed_unix_ms,
            delivered: state.map_or(0, |state| state.delivered),
            delivered_unix_ms: state.and_then(|state| state.delivered_at_unix_ms),
            note: state.and_then(|state| state.note.clone()),
            failure,
            retry_unix_ms: state.and_then(|state| state.retry_at_unix_ms),
            waiting: state.map_or(0, |state| state.waiting as u64),
            lost: state.map_or(0, |state| state.dropped),
            quiet: state.is_some_and(|state| state.is_quiet),
            snmp_engine_id: is_snmp.then(|| shared.reporter.snmp_engine_id()),
        },
        webhook_secret: None,
    }
}

/// Those whose last attempt failed, for the alerts.
pub fn failing(shared: &Shared) -> Vec<FailingChannel> {
    let failing = shared.reporter.states().into_iter().filter(|state| state.enabled);
    let failing = failing.filter_map(|state| {
        let ChannelError { message, remedy, .. } = state.error?;
        Some(FailingChannel { name: state.name, error: message, remedy, waiting: state.waiting as u64 })
    });
    failing.collect()
}

fn now(shared: &Shared, name: &str) -> Result<(api::Channel, String), Problem> {
    let content = shared.channels.content();
    let one = content.find(name)?;
    Ok((shown(shared, one, &shared.reporter.states()), tag_of(&one.id, one.revision)))
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let states = shared.reporter.states();
    let content = shared.channels.content();
    let channels = content.channels.iter().map(|one| shown(&shared, one, &states)).collect();
    ok(&ask.page(channels, |one: &api::Channel| one.name.clone())?)
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let (channel, tag) = now(&shared, &name)?;
    Ok(tagged(json(StatusCode::OK, &channel), &tag))
}

/// Makes a webhook's secret if it was given none.
fn sign(spec: &mut ChannelSpec) -> Result<Option<String>, Problem> {
    let Delivery::Webhook(hook) = &mut spec.delivery else { return Ok(None) };
    if !hook.secret.is_hidden() {
        return Ok(None);
    }
    let secret = webhook::generate_secret().map_err(|error| {
        Problem::new(Code::Internal, format!("the system gives no random numbers: {error}"))
    })?;
    hook.secret = Secret::new(&*secret);
    Ok(Some(secret))
}

/// `alerts of severity warning or worse go by mail to a@example.com over mail.example.com`.
fn in_words(spec: &ChannelSpec) -> String {
    let to = match &spec.delivery {
        Delivery::Mail(mail) => format!("by mail to {} over {}", mail.to.join(", "), mail.host),
        Delivery::Webhook(hook) => format!("by webhook to {}", hook.shown_url()),
        Delivery::Syslog(syslog) => format!("by syslog to {}", syslog.host),
        Delivery::SnmpTrap(trap) => format!("by SNMP traps to {}", trap.host),
    };
    let off = if spec.enabled { "" } else { ", but the channel is disabled" };
    format!("alerts of severity {} or worse go {to}{off}", spec.severity_min.name())
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<ChannelCreate>,
) -> Answered {
    rules::text::check("name", &request.name)?;
    let now_unix_ms = now_unix_ms();
    let mut spec = request.spec;
    tidy(&mut spec);
    let secret = sign(&mut spec)?;
    let one = Remembered {
        id: crate::random_id(),
        name: request.name.clone(),
        created_unix_ms: now_unix_ms,
        changed_unix_ms: now_unix_ms,
        revision: 1,
        spec,
    };
    let what = in_words(&one.spec);
    let add = move |content: &mut Content| {
        content.channels.push(one);
        Ok(())
    };
    if ask.dry_run {
        shared.channels.plan(add)?;
        return plan("channel.create", &request.name, vec![format!("The channel is created: {what}.")]);
    }
    change(&shared, add).await?;
    told(&shared, &who, "channel.created", &request.name, &format!("created: {what}"));
    let (mut channel, tag) = now(&shared, &request.name)?;
    channel.webhook_secret = secret;
    Ok(tagged(made(StatusCode::CREATED, &Operation::ChannelShow.path_of(&channel.name), &channel)?, &tag))
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(request): Input<ChannelSet>,
) -> Answered {
    if let Some(name) = &request.name {
        rules::text::check("name", name)?;
    }
    let change_it = move |content: &mut Content| {
        let one = content.find_mut(&name)?;
        check_precondition(&headers, &tag_of(&one.id, one.revision), "channel", &one.name)?;
        let before = one.clone();
        if let Some(name) = request.name {
            one.name = name;
        }
        if let Some(mut spec) = request.spec {
            tidy(&mut spec);
            spec.keep_secrets(&one.spec);
            one.spec = spec;
        }
        let mut changes = Vec::new();
        if one.name != before.name {
            changes.push(format!("The channel is renamed to {}.", one.name));
        }
        if one.spec != before.spec {
            changes.push(format!("Now {}.", in_words(&one.spec)));
        }
        if !changes.is_empty() {
            (one.revision, one.changed_unix_ms) = (before.revision + 1, now_unix_ms());
        }
        Ok((before.name, one.name.clone(), changes))
    };
    if ask.dry_run {
        let (name, _, changes) = shared.channels.plan(change_it)?;
        return plan("channel.set", &name, changes);
    }
    let (_, name, changes) = change(&shared, change_it).await?;
    for what in changes {
        told(&shared, &who, "channel.changed", &name, what.trim_end_matches('.'));
    }
    let (channel, tag) = now(&shared, &name)?;
    Ok(tagged(json(StatusCode::OK, &channel), &tag))
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
        check_precondition(&headers, &tag_of(&one.id, one.revision), "channel", &one.name)?;
        content.remove(&name)
    };
    if ask.dry_run {
        let one = shared.channels.plan(remove)?;
        return plan(
            "channel.delete",
            &one.name,
            vec!["The channel is deleted. Its undelivered notices are not sent.".into()],
        );
    }
    let one = change(&shared, remove).await?;
    told(&shared, &who, "channel.deleted", &one.name, "deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Sends a message at once; how that went is the answer, whether it arrived or not.
pub async fn test(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let channel = for_reporter(shared.channels.content().find(&name)?);
    let tested = match shared.reporter.test(&channel).await {
        Ok(delivered) => api::ChannelTested { delivered: true, note: delivered.note, failure: None },
        Err(failure) => {
            let failure = api::ChannelFailure {
                at_unix_ms: now_unix_ms(),
                message: failure.message,
                remedy: failure.remedy,
            };
            api::ChannelTested { delivered: false, note: None, failure: Some(failure) }
        }
    };
    let mut response = ok(&tested)?;
    if !tested.delivered {
        response.extensions_mut().insert(Failed(Code::Io));
    }
    Ok(response)
}
