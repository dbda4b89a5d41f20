//! Bookmarks: what is left of snapshots for increments.

use super::told;
use crate::request::{Answered, Ask, Input, Principal, made, ok, plan};
use crate::rules::snapshots as rules;
use crate::{Shared, convert};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use forebay_api::{Bookmark, BookmarkCreate, BookmarkSet, Operation, Problem};
use forebay_pool::BookmarkInfo;
use std::sync::Arc;

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let found = match &ask.volume {
        Some(name) => {
            let volume = shared.engine.volume(name).await?;
            of_volume(&shared, &volume.pool, &volume.name).await?
        }
        None => shared.engine.bookmarks(ask.pool.as_deref()).await?,
    };
    let found: Vec<Bookmark> = found.iter().map(convert::bookmark).collect();
    // Times of one width sort as they count.
    ok(&ask.page(found, |mark| format!("{} {:0>20} {}", mark.volume, mark.created_unix_ms, mark.name))?)
}

/// The bookmarks of a volume.
pub async fn of_volume(shared: &Shared, pool: &str, volume: &str) -> Result<Vec<BookmarkInfo>, Problem> {
    let all = shared.engine.bookmarks(Some(pool)).await.map_err(convert::problem)?;
    Ok(all.into_iter().filter(|mark| mark.volume == volume).collect())
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    ok(&convert::bookmark(&shared.engine.bookmark(&name).await?))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<BookmarkCreate>,
) -> Answered {
    if let Some(name) = &request.name {
        rules::name(name)?;
    }
    let _turn = shared.volume_turn.lock().await;
    let snapshot = shared.engine.snapshot(&request.snapshot).await?;
    shared.engine.pool_changeable(&snapshot.pool).await?;
    let (of, id) = (rules::full(&snapshot), snapshot.id.to_string());
    if ask.dry_run {
        let mark = convert::bookmark(&shared.engine.bookmark_create_check(&id, request.name).await?);
        let change = format!("The bookmark keeps the point in time of {of}, without its data.");
        return plan("bookmark.create", &mark.name, vec![change]);
    }
    let mark = convert::bookmark(&shared.engine.bookmark_create(&id, request.name).await?);
    told(&shared, &who, "bookmark.created", &mark.name, &format!("created from {of}"));
    made(StatusCode::CREATED, &Operation::BookmarkShow.path_of(&mark.name), &mark)
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<BookmarkSet>,
) -> Answered {
    rules::name(&request.name)?;
    let _turn = shared.volume_turn.lock().await;
    let before = shared.engine.bookmark(&name).await?;
    shared.engine.pool_changeable(&before.pool).await?;
    let (id, before) = (before.id.to_string(), convert::bookmark(&before));
    let renamed = shared.engine.bookmark_rename_check(&id, &request.name).await?;
    let change = format!("renamed to {}", convert::bookmark(&renamed).name);
    if ask.dry_run {
        return plan("bookmark.set", &before.name, vec![change]);
    }
    let mark = convert::bookmark(&shared.engine.bookmark_rename(&id, &request.name).await?);
    if mark != before {
        told(&shared, &who, "bookmark.changed", &before.name, &change);
    }
    ok(&mark)
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let mark = convert::bookmark(&shared.engine.bookmark(&name).await?);
    shared.engine.pool_changeable(&mark.pool).await?;
    if ask.dry_run {
        let changes = [
            "It can no longer be the base of an incremental send. No data is lost.",
            "An interrupted send from it can resume only if another bookmark or the snapshot of that point in time exists.",
        ];
        return plan("bookmark.delete", &mark.name, changes.map(str::to_string).to_vec());
    }
    shared.engine.bookmark_delete(&mark.name).await?;
    told(&shared, &who, "bookmark.deleted", &mark.name, "deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
