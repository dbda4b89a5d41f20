//! Bookmarks: what is left of snapshots for increments.

use super::told;
use crate::request::{Answered, Ask, Input, Principal, made, ok, plan};
use crate::rules::snapshots as rules;
use crate::{Shared, convert};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use forebay_api::{Bookmark, BookmarkCreate, Code, Operation, Problem};
use forebay_pool::ErrorKind;
use std::sync::Arc;

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let volume = match &ask.volume {
        Some(name) => Some(shared.engine.volume(name).await?),
        None => None,
    };
    let pool = ask.pool.as_ref().or(volume.as_ref().map(|volume| &volume.pool));
    let mut found = shared.engine.bookmarks(pool.map(String::as_str)).await?;
    if let Some(volume) = &volume {
        found.retain(|mark| mark.pool == volume.pool && mark.volume == volume.name);
    }
    let found: Vec<Bookmark> = found.iter().map(convert::bookmark).collect();
    // Times of one width sort as they count.
    ok(&ask.page(found, |mark| format!("{} {:0>20} {}", mark.volume, mark.created_unix_ms, mark.name))?)
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
    let own = request.name.as_ref().unwrap_or(&snapshot.name);
    let name = format!("{}/{}#{own}", snapshot.pool, snapshot.volume);
    match shared.engine.bookmark(&name).await {
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(_) => {
            return Err(Problem::new(Code::Conflict, "a bookmark with this name exists")
                .object(&name)
                .field("name")
                .remedy("Choose another name, or delete that one with `forebay bookmark delete BOOKMARK`.")
                .into());
        }
    }
    let of = rules::full(&snapshot);
    if ask.dry_run {
        return plan(
            "bookmark.create",
            &name,
            vec![format!("The moment of {of} is kept, without its blocks.")],
        );
    }
    let mark = shared.engine.bookmark_create(&snapshot.id.to_string(), request.name.clone()).await?;
    let mark = convert::bookmark(&mark);
    told(&shared, &who, "bookmark.created", &mark.name, &format!("made of {of}"));
    made(StatusCode::CREATED, &Operation::BookmarkShow.path_of(&mark.name), &mark)
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
        let change = "No increment can be sent from it any more; no data is lost.".to_string();
        return plan("bookmark.delete", &mark.name, vec![change]);
    }
    shared.engine.bookmark_delete(&mark.name).await?;
    told(&shared, &who, "bookmark.deleted", &mark.name, "deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}
