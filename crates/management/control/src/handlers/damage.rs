//! Lost data of a pool, and its acceptance by an administrator.

use super::pools::{accepted, imported, result};
use super::told;
use crate::convert::condition;
use crate::request::{Answered, Ask, Principal, ok, plan};
use crate::{Shared, convert};
use axum::Extension;
use axum::extract::{Path, State};
use forebay_api::{self as api, Problem};
use forebay_pool as engine;
use std::sync::Arc;

pub async fn list(State(shared): State<Arc<Shared>>, Path(name): Path<String>, ask: Ask) -> Answered {
    let pool = imported(&shared, &name).await?;
    let ranges = shared.engine.damage(&pool.id.to_string()).await?;
    let ranges = ranges.iter().map(|range| self::range(&pool.name, range)).collect();
    ok(&ask.page(ranges, |range| format!("{} {:020}", range.name, range.offset_bytes))?)
}

pub async fn accept(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let pool = imported(&shared, &name).await?;
    shared.engine.pool_changeable(&pool.name).await?;
    let open = pool.damage.open;
    let words = if open == 1 {
        "1 unrecoverable block is accepted".to_string()
    } else {
        format!("{open} unrecoverable blocks are accepted")
    };
    if ask.dry_run {
        let changes = match open {
            0 => Vec::new(),
            _ => {
                vec![format!("{words}: pool {} no longer counts as damaged because of this loss.", pool.name)]
            }
        };
        return plan("pool.damage_accept", &pool.name, changes);
    }
    let (object, id, by) = (pool.name.clone(), pool.id.to_string(), shared.clone());
    let work = async move {
        let accepted = by.engine.damage_accept(&id).await.map_err(convert::problem)?;
        if open > 0 {
            told(&by, &who, "pool.damage_accepted", &pool.name, &words);
        }
        result(&accepted)
    };
    accepted(shared.tasks.start("pool.damage_accept", &object, work))
}

/// What is lost of a volume or snapshot, in words, if something is; `name` is its full name.
pub async fn of_named(shared: &Shared, pool: &str, name: &str) -> Result<Option<String>, Problem> {
    if imported(shared, pool).await?.damage.places == 0 {
        return Ok(None);
    }
    let ranges = shared.engine.damage(pool).await.map_err(convert::problem)?;
    let own = ranges.iter().filter(|lost| format!("{pool}/{}", lost.name) == name);
    Ok(in_words(pool, own.map(|lost| lost.bytes).sum()))
}

/// So many bytes of something in a pool are lost: the end of a sentence.
fn in_words(pool: &str, bytes: u64) -> Option<String> {
    let lost = api::show_size(bytes);
    (bytes > 0).then(|| {
        format!("{lost} are lost, and reading them fails: `forebay pool status {pool} --errors` lists them.")
    })
}

/// What a pool says of it.
pub fn of_pool(pool: &engine::PoolStatus) -> api::Condition {
    let (places, name) = (pool.damage.places, &pool.name);
    let reason = if pool.damage.open > 0 { "DataLost" } else { "LossAccepted" };
    let are = if places == 1 { "block is" } else { "blocks are" };
    let message = format!(
        "{places} {are} unrecoverable: no disk has the data, and reading it fails. 'forebay pool status {name} --errors' lists the affected volumes \
         and snapshots. Restore them from a backup; overwriting a block repairs it."
    );
    condition("Intact", false, reason, message)
}

/// Within its pool, as the engine tells it.
fn range(pool: &str, lost: &engine::Damaged) -> api::DamagedRange {
    api::DamagedRange {
        name: format!("{pool}/{}", lost.name),
        offset_bytes: lost.first,
        length_bytes: lost.bytes,
        found_unix_ms: lost.found.0,
        accepted: lost.accepted,
    }
}

/// What a volume says of it.
pub fn of_volume(volume: &engine::VolumeInfo) -> Option<api::Condition> {
    let message = format!(
        "{} of it are lost, and reading them fails. 'forebay pool status {} --errors' lists them. Restore them from a backup, or roll the volume \
         back to an earlier snapshot.",
        api::show_size(volume.damaged),
        volume.pool
    );
    (volume.damaged > 0).then(|| condition("Intact", false, "DataLost", message))
}

/// What a scrub has found.
pub fn of_scrub(scrub: &engine::Scrub) -> api::Scrub {
    let state = match scrub.state {
        engine::ScrubState::Running => api::ScrubState::Running,
        engine::ScrubState::Paused => api::ScrubState::Paused,
        engine::ScrubState::Done => api::ScrubState::Done,
        engine::ScrubState::Stopped => api::ScrubState::Stopped,
    };
    api::Scrub {
        state,
        done_bytes: scrub.bytes_done,
        used_bytes: scrub.bytes_total,
        repaired: scrub.repaired,
        lost: scrub.lost,
        since_unix_ms: scrub.since.0,
        ended_unix_ms: scrub.ended.map(|ended| ended.0),
    }
}
