//! The ledger of service levels, second by second.

use super::others::until;
use super::pools::imported;
use crate::Shared;
use crate::convert::permille;
use crate::levels::Content;
use crate::request::{Answered, Ask, ok};
use axum::extract::{Path, State};
use forebay_api::{self as api, Page};
use forebay_pool as engine;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The ledger has a second each second.
const LOOK: Duration = Duration::from_millis(100);

pub async fn list(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let deadline = Instant::now() + ask.wait();
    let pool = imported(&shared, &name).await?;
    loop {
        let seconds = shared.engine.ledger(&pool.name, ask.after.unwrap_or(0)).await?;
        if seconds.is_empty() && until(&shared, tokio::time::sleep(LOOK), deadline).await {
            continue;
        }
        // The oldest that are new, or the newest of all.
        let first = if ask.after.is_some() { 0 } else { seconds.len().saturating_sub(ask.limit()) };
        let levels = shared.levels.content();
        let shown = seconds
            .iter()
            .skip(first)
            .take(ask.limit())
            .map(|second| self::second(&pool.name, second, &levels));
        return ok(&Page { items: shown.collect(), next_cursor: None });
    }
}

fn second(pool: &str, second: &engine::LedgerSecond, levels: &Content) -> api::LedgerSecond {
    let own_work = second.tasks.iter().zip(engine::Task::ALL).filter(|(nanos, _)| **nanos > 0);
    api::LedgerSecond {
        number: second.number,
        ended_unix_ms: second.at.0,
        span_us: second.span / 1000,
        promisable_permille: second.capacity.map(permille),
        promised_permille: permille(second.promised),
        own_work_us: own_work.map(|(nanos, task)| (task.name().into(), nanos / 1000)).collect(),
        volumes: second.volumes.iter().map(|one| line(pool, one, levels)).collect(),
    }
}

fn line(pool: &str, one: &engine::VolumeSecond, levels: &Content) -> api::LedgerLine {
    let account = &one.account;
    api::LedgerLine {
        volume: format!("{pool}/{}", one.name),
        volume_id: one.volume.to_string(),
        level: levels.name_of(one.level).unwrap_or_else(|| one.level.to_string()),
        standing: one.standing.map(|standing| match standing {
            engine::Standing::Promised => api::Standing::Promised,
            engine::Standing::BestEffort => api::Standing::BestEffort,
            engine::Standing::Unmeasured => api::Standing::Unmeasured,
        }),
        state: match one.state {
            engine::State::Idle => api::LedgerState::Idle,
            engine::State::Met => api::LedgerState::Met,
            engine::State::NotDemanded => api::LedgerState::NotDemanded,
            engine::State::Capped => api::LedgerState::Capped,
            engine::State::Violated => api::LedgerState::Violated,
        },
        cause: one.cause.as_ref().map(|cause| self::cause(pool, cause)),
        asked: account.asked,
        asked_bytes: account.asked_bytes,
        done: account.done,
        done_bytes: account.done_bytes,
        failed: account.failed,
        late: account.late,
        waiting: account.open + account.held_now,
        p50_us: account.p50 / 1000,
        p99_us: account.p99 / 1000,
        held_us: account.held / 1000,
        room_us: account.room / 1000,
        turn_us: account.turn / 1000,
        disks_us: account.disks() / 1000,
        pool_time_us: account.cost / 1000,
    }
}

fn cause(pool: &str, cause: &engine::Cause<String>) -> api::LedgerCause {
    let (kind, object) = match cause {
        engine::Cause::Neighbour(name) => (api::CauseKind::Neighbour, Some(format!("{pool}/{name}"))),
        engine::Cause::Task(task) => (api::CauseKind::OwnWork, Some(task.name().to_string())),
        engine::Cause::Disk(disk) => (api::CauseKind::Disk, Some(disk.to_string())),
        engine::Cause::Disks => (api::CauseKind::Disks, None),
        engine::Cause::CacheMiss => (api::CauseKind::CacheMiss, None),
        engine::Cause::Itself => (api::CauseKind::Itself, None),
    };
    api::LedgerCause { kind, object }
}
