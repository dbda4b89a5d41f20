//! The ledger of service levels, second by second.

use super::others::{until, waiting};
use super::pools::imported;
use crate::Shared;
use crate::convert::permille;
use crate::levels::Content;
use crate::request::{Answered, Ask, Principal, ok};
use axum::Extension;
use axum::extract::{Path, State};
use forebay_api::{self as api, Page};
use forebay_base::Id;
use forebay_pool as engine;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The ledger has a second each second.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of volumes in one answer: some 4 MiB of JSON.
const LINES_MAX: usize = 5000;

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let _seat = waiting(&shared, &who, &ask)?;
    let deadline = Instant::now() + ask.wait();
    let pool = imported(&shared, &name).await?;
    loop {
        let seconds = shared.engine.ledger(&pool.name, ask.after.unwrap_or(0)).await?;
        if seconds.is_empty() && until(&shared, tokio::time::sleep(LOOK), deadline).await {
            continue;
        }
        let lines = seconds.iter().map(|second| second.volumes.len()).take(ask.limit());
        let newest = seconds.iter().rev().map(|second| second.volumes.len()).take(ask.limit());
        // The oldest that are new, or the newest of all.
        let shown = match ask.after {
            Some(_) => &seconds[..fitting(lines)],
            None => &seconds[seconds.len() - fitting(newest)..],
        };
        let names = names(shown, &shared.levels.content());
        let items = shown.iter().map(|second| self::second(&pool.name, second, &names)).collect();
        return ok(&Page { items, next_cursor: None });
    }
}

/// How many seconds of so many lines fit into an answer: one at least, or no client would ever see it.
fn fitting(lines: impl Iterator<Item = usize>) -> usize {
    let mut total = 0;
    let fits = |(nth, lines): &(usize, usize)| {
        total += lines;
        *nth == 0 || total <= LINES_MAX
    };
    lines.enumerate().take_while(fits).count()
}

/// Levels as people know them: looked up once, not for each line.
fn names(seconds: &[Arc<engine::LedgerSecond>], levels: &Content) -> HashMap<Id, String> {
    let mut names = HashMap::new();
    for id in seconds.iter().flat_map(|second| &second.volumes).map(|one| one.level) {
        names.entry(id).or_insert_with(|| levels.name_of(id).unwrap_or_else(|| id.to_string()));
    }
    names
}

fn second(pool: &str, second: &engine::LedgerSecond, names: &HashMap<Id, String>) -> api::LedgerSecond {
    let own_work = second.tasks.iter().zip(engine::Task::ALL).filter(|(nanos, _)| **nanos > 0);
    api::LedgerSecond {
        number: second.number,
        ended_unix_ms: second.at.0,
        span_us: second.span / 1000,
        guarantee_max_permille: second.capacity.map(permille),
        guaranteed_permille: permille(second.promised),
        background_work_us: own_work.map(|(nanos, task)| (task.name().into(), nanos / 1000)).collect(),
        volumes: second.volumes.iter().filter_map(|one| line(pool, one, names)).collect(),
    }
}

/// Nothing of a volume that was asked for nothing.
fn line(pool: &str, one: &engine::VolumeSecond, names: &HashMap<Id, String>) -> Option<api::LedgerLine> {
    let account = &one.account;
    let state = match one.state {
        engine::State::Idle => return None,
        engine::State::Met => api::LedgerState::Met,
        engine::State::NotDemanded => api::LedgerState::LowDemand,
        engine::State::Capped => api::LedgerState::Limited,
        engine::State::Violated => api::LedgerState::Missed,
        engine::State::BestEffort => api::LedgerState::BestEffort,
        engine::State::CannotBeKept => api::LedgerState::CannotBeMet,
    };
    Some(api::LedgerLine {
        volume: format!("{pool}/{}", one.name),
        volume_id: one.volume.to_string(),
        level: names[&one.level].clone(),
        standing: one.standing.map(|standing| match standing {
            engine::Standing::Promised => api::Standing::Guaranteed,
            engine::Standing::BestEffort => api::Standing::BestEffort,
            engine::Standing::CannotBeKept => api::Standing::CannotBeMet,
            engine::Standing::Unmeasured => api::Standing::Unmeasured,
        }),
        state,
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
        paused_us: account.paused / 1000,
        pool_time_us: account.cost / 1000,
    })
}

fn cause(pool: &str, cause: &engine::Cause<String>) -> api::LedgerCause {
    let (kind, object) = match cause {
        engine::Cause::Neighbour(name) => (api::CauseKind::Neighbour, Some(format!("{pool}/{name}"))),
        engine::Cause::Task(task) => (api::CauseKind::BackgroundWork, Some(task.name().to_string())),
        engine::Cause::Disk(disk) => (api::CauseKind::Disk, Some(disk.to_string())),
        engine::Cause::Disks => (api::CauseKind::Disks, None),
        engine::Cause::CacheMiss => (api::CauseKind::CacheMiss, None),
        engine::Cause::Itself => (api::CauseKind::OwnDemand, None),
    };
    api::LedgerCause { kind, object }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_before_it_has_too_many_lines_and_has_a_second_at_least() {
        for (lines, count) in [
            (vec![], 0),
            (vec![0, 0, 0], 3),
            (vec![LINES_MAX + 1, 0], 1),
            (vec![LINES_MAX - 1, 1, 1], 2),
            (vec![1, LINES_MAX, 1], 1),
        ] {
            assert_eq!(fitting(lines.iter().copied()), count, "{lines:?}");
        }
    }
}
