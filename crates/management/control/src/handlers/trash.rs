//! The trash.
//!
//! Who had a volume mapped is forgotten when it is deleted: a volume that comes back must not appear at a host whose LUN is another's by then. One without
//! hosts of its own is mapped as its project says, under numbers that are free.

use super::volumes::etag;
use super::{inherited, told};
use crate::request::{Answered, Ask, Input, Principal, json, ok, plan, tagged};
use crate::{Shared, convert, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use forebay_api::{Code, Problem, TrashRestore, TrashedVolume, show_size};
use std::sync::Arc;

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let trash = shared.engine.trash(ask.pool.as_deref()).await?;
    let trash: Vec<TrashedVolume> = trash.iter().map(convert::trashed).collect();
    // The oldest of one name first.
    ok(&ask.page(trash, |volume| format!("{} {:020} {}", volume.name, volume.deleted_unix_ms, volume.id))?)
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    ok(&convert::trashed(&shared.engine.trashed(&name).await?))
}

pub async fn restore(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<TrashRestore>,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let trashed = convert::trashed(&shared.engine.trashed(&name).await?);
    shared.engine.pool_changeable(&trashed.pool).await?;
    let full = request.name.as_ref().unwrap_or(&trashed.name);
    let (pool, new_name) = rules::volume_name(full)?;
    if pool != trashed.pool {
        let detail = format!("the volume is in pool {}", trashed.pool);
        return Err(rules::invalid("name", detail, &format!("Name it {}/….", trashed.pool)).into());
    }
    shared.engine.volume_name_check(pool, new_name).await?;
    if shared.engine.volumes(Some(pool)).await?.iter().any(|volume| volume.name == new_name) {
        return Err(Problem::new(Code::Conflict, "another volume has this name now")
            .object(full)
            .field("name")
            .remedy("Restore it under another name, with --as.")
            .into());
    }
    if ask.dry_run {
        let changes = vec![
            format!("The volume deleted as {} is restored as {full}, with its snapshots.", trashed.name),
            inherited::restored_in_words(&shared, full, &trashed.id).await?,
        ];
        return plan("volume.restore", full, changes);
    }
    let volume = shared.engine.volume_restore(&trashed.id, Some(new_name)).await?;
    shared.refresh_access().await;
    let volume = convert::volume(&volume, &shared.known());
    let what = match volume.name == trashed.name {
        true => "restored from the trash".to_string(),
        false => format!("restored from the trash, where its name was {}", trashed.name),
    };
    told(&shared, &who, "volume.restored", &volume.name, &what);
    Ok(tagged(json(StatusCode::OK, &volume), &etag(&volume)))
}

pub async fn purge(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let trashed = convert::trashed(&shared.engine.trashed(&name).await?);
    shared.engine.pool_changeable(&trashed.pool).await?;
    if ask.dry_run {
        let mut changes =
            vec![format!("The volume and its data ({}) are lost.", show_size(trashed.mapped_bytes))];
        if trashed.snapshots > 0 {
            changes.push(format!("Deleted with it: {}.", rules::snapshots::counted(trashed.snapshots)));
        }
        return plan("volume.purge", &trashed.name, changes);
    }
    shared.engine.volume_purge(&trashed.id).await?;
    told(&shared, &who, "volume.purged", &trashed.name, "permanently deleted from the trash");
    Ok(StatusCode::NO_CONTENT.into_response())
}
