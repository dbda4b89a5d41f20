//! Volumes that move to another pool, and what moves have left.
//!
//! The task only watches: the engine copies and switches, and a restart settles what did not end. Hosts that see the volume go on
//! seeing it at the target where they are logged in.

use super::pools::accepted;
use super::volumes::etag;
use super::{inherited, mappings, told, watched};
use crate::request::{Answered, Ask, Failure, Input, Principal, json, ok, plan, tagged};
use crate::tasks::Running;
use crate::{Shared, convert, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use forebay_api::{self as api, Code, MoveKeep, MoveLeft, Problem, VolumeMove, show_size};
use std::sync::Arc;

pub async fn begin(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<VolumeMove>,
) -> Answered {
    let info = shared.engine.volume(&name).await?;
    let volume = convert::volume(&info, &shared.known());
    shared.engine.volume_move_check(&volume.id, &request.pool).await?;
    inherited::move_check(&shared, &info, &request.pool).await?;
    if ask.dry_run {
        let mapped = show_size(volume.status.mapped_bytes);
        let changes = vec![
            format!("{mapped} are copied to pool {} while clients keep using the volume.", request.pool),
            "Then the volume is in that pool, and its space in this pool is freed.".to_string(),
        ];
        return plan("volume.move", &volume.name, changes);
    }
    let (by, object) = (shared.clone(), volume.name.clone());
    let work = move |running| carry_out(by, who, running, volume, request.pool);
    accepted(shared.tasks.start_long("volume.move", &object, work))
}

async fn carry_out(
    shared: Arc<Shared>,
    who: Principal,
    mut running: Running,
    volume: api::Volume,
    pool: String,
) -> Result<Option<serde_json::Value>, Problem> {
    let moved = watched(&shared, &mut running, async |progress| {
        mappings::move_begins(&shared, &volume, &pool).await?;
        shared.engine.volume_move(&volume.id, &pool, progress).await.map_err(convert::problem)
    });
    let moved = moved.await;
    let followed = mappings::move_ended(&shared, volume.id.clone()).await;
    let moved = convert::volume(&moved?, &shared.known());
    told(&shared, &who, "volume.moved_away", &volume.name, &format!("moved to {}", moved.name));
    followed?;
    Ok(Some(serde_json::to_value(moved).expect("it is plain data")))
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let left: Vec<MoveLeft> = all(&shared).await?;
    ok(&ask.page(left, |left| left.name.clone())?)
}

async fn all(shared: &Shared) -> Result<Vec<MoveLeft>, Failure> {
    Ok(shared.engine.moves_left().await?.iter().map(convert::move_left).collect())
}

/// What a move has left under this name or UUID.
async fn find(shared: &Shared, name: &str) -> Result<MoveLeft, Failure> {
    let mut found = all(shared).await?;
    found.retain(|left| left.name == name || left.id == name);
    let refused = |code, detail| {
        let remedy = "List the interrupted moves with 'forebay volume moves', and name one by its UUID.";
        Failure(Problem::new(code, detail).object(name).remedy(remedy))
    };
    if found.len() > 1 {
        return Err(refused(Code::Conflict, "several interrupted moves have a volume of this name"));
    }
    found.pop().ok_or_else(|| refused(Code::NotFound, "no interrupted move has a volume of this name"))
}

/// What a move has left, also where another one has left something of the same name.
fn exactly(left: &MoveLeft) -> String {
    format!("{}/{}", left.pool, left.id)
}

pub async fn keep(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<MoveKeep>,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let left = find(&shared, &name).await?;
    let full = request.name.as_ref().unwrap_or(&left.name);
    let (pool, new_name) = rules::volume_name(full)?;
    if pool != left.pool {
        let detail = format!("it is in pool {}", left.pool);
        return Err(rules::invalid("name", detail, &format!("Name it {}/….", left.pool)).into());
    }
    if ask.dry_run {
        let what =
            "It becomes a volume with a new UUID, with the data at the time of the switch.".to_string();
        let hosts = inherited::restored_in_words(&shared, full, "").await?;
        return plan("move.keep", full, vec![what, hosts]);
    }
    let kept = shared.engine.move_keep(&exactly(&left), Some(new_name)).await?;
    shared.refresh_access().await;
    let kept = convert::volume(&kept, &shared.known());
    told(&shared, &who, "volume.move_kept", &kept.name, "created from an interrupted move");
    Ok(tagged(json(StatusCode::OK, &kept), &etag(&kept)))
}

pub async fn abandon(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let left = find(&shared, &name).await?;
    if ask.dry_run {
        return plan(
            "move.abandon",
            &left.name,
            vec!["The remainder of the move in this pool is deleted.".into()],
        );
    }
    shared.engine.move_abandon(&exactly(&left)).await?;
    told(
        &shared,
        &who,
        "volume.move_abandoned",
        &left.name,
        "the remainder of an interrupted move is deleted",
    );
    Ok(StatusCode::NO_CONTENT.into_response())
}
