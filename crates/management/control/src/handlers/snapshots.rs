//! Snapshots: what is taken of volumes, what volumes go back to, and what clones are made of.
//!
//! They change in the volumes' turn. Those that a schedule takes and deletes do not wait for it: what is looked at here may be
//! overtaken by them, and then the engine refuses.

use super::sessions::users;
use super::{bookmarks, damage, told, volumes};
use crate::request::{
    Answered, Ask, Failure, Input, Principal, check_precondition, json, made, ok, plan, tag_of_spec, tagged,
};
use crate::rules::snapshots as rules;
use crate::{Shared, convert};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use forebay_api::{
    Code, Operation, Problem, Snapshot, SnapshotClone, SnapshotCreate, SnapshotRollback, SnapshotSet,
    Snapshots, VolumeCreate, show_duration, show_size,
};
use forebay_base::WallTime;
use forebay_pool::{BookmarkInfo, ErrorKind, SnapshotChange, VolumeInfo, utc};
use std::sync::Arc;

fn etag(snapshot: &Snapshot) -> String {
    tag_of_spec(&snapshot.id, &snapshot.name, &snapshot.spec)
}

fn check(headers: &HeaderMap, snapshot: &Snapshot) -> Result<(), Problem> {
    check_precondition(headers, &etag(snapshot), "snapshot", &snapshot.name)
}

fn full(volume: &VolumeInfo) -> String {
    format!("{}/{}", volume.pool, volume.name)
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let volume = match &ask.volume {
        Some(name) => Some(shared.engine.volume(name).await?),
        None => None,
    };
    let pool = ask.pool.as_ref().or(volume.as_ref().map(|volume| &volume.pool));
    let mut found = shared.engine.snapshots(pool.map(String::as_str)).await?;
    if let Some(volume) = &volume {
        found.retain(|snapshot| snapshot.pool == volume.pool && snapshot.volume == volume.name);
    }
    let found: Vec<Snapshot> = found.iter().map(convert::snapshot).collect();
    // Times of one width sort as they count.
    let key = |snapshot: &Snapshot| {
        format!("{} {:0>20} {}", snapshot.spec.volume, snapshot.status.created_unix_ms, snapshot.name)
    };
    ok(&ask.page(found, key)?)
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let snapshot = convert::snapshot(&shared.engine.snapshot(&name).await?);
    Ok(tagged(json(StatusCode::OK, &snapshot), &etag(&snapshot)))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<SnapshotCreate>,
) -> Answered {
    rules::create(&request)?;
    let _turn = shared.volume_turn.lock().await;
    let mut of = Vec::new();
    for name in &request.volumes {
        of.extend(named(&shared, name).await?);
    }
    let pool = rules::group(&of)?;
    shared.engine.pool_changeable(pool).await?;
    let wanted: Vec<String> = of.iter().map(|volume| format!("{}@{}", full(volume), request.name)).collect();
    for name in &wanted {
        // Not looked up in the list: there, what each snapshot has is counted.
        match shared.engine.snapshot(name).await {
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(exists(name).into()),
        }
    }
    let together = match wanted.len() {
        1 => String::new(),
        count => format!(", one of {count} at the same moment"),
    };
    if ask.dry_run {
        shared.engine.snapshot_create_check(of.iter().map(full).collect(), &request.name).await?;
        let retained = match rules::retain(request.retain_seconds)? {
            Some(seconds) => format!(" It cannot be deleted before {}.", before(seconds)),
            None => String::new(),
        };
        let changes =
            wanted.iter().map(|name| format!("Snapshot {name} is taken{together}.{retained}")).collect();
        return plan("snapshot.create", &rules::few(&wanted), changes);
    }
    let (volumes, retain) = (of.iter().map(full).collect(), rules::retain(request.retain_seconds)?);
    let taken = shared.engine.snapshot_create_retained(volumes, &request.name, retain.unwrap_or(0)).await?;
    let retained = match retain {
        Some(seconds) => format!(", retained for {}, until {}", show_duration(seconds), before(seconds)),
        None => String::new(),
    };
    let taken = Snapshots { items: taken.iter().map(convert::snapshot).collect() };
    for snapshot in &taken.items {
        told(&shared, &who, "snapshot.created", &snapshot.name, &format!("taken{together}{retained}"));
    }
    // A header has room for one place: that of the first.
    made(StatusCode::CREATED, &Operation::SnapshotShow.path_of(&wanted[0]), &taken)
}

/// A volume, or all volumes of a project.
async fn named(shared: &Shared, name: &str) -> Result<Vec<VolumeInfo>, Problem> {
    let missing = match shared.engine.volume(name).await {
        Err(error) if error.kind == ErrorKind::NotFound => error,
        result => return Ok(vec![result.map_err(convert::problem)?]),
    };
    let project = match shared.engine.project(name).await {
        Err(error) if error.kind == ErrorKind::NotFound => return Err(convert::problem(missing)),
        result => result.map_err(convert::problem)?,
    };
    let mut volumes = shared.engine.volumes(Some(&project.pool)).await.map_err(convert::problem)?;
    volumes.retain(|volume| volume.project.as_ref() == Some(&project.name));
    if volumes.is_empty() {
        return Err(Problem::new(Code::Conflict, "the project has no volumes")
            .object(name)
            .remedy("Create volumes in it first."));
    }
    Ok(volumes)
}

fn exists(name: &str) -> Problem {
    Problem::new(Code::Conflict, "a snapshot with this name exists")
        .object(name)
        .field("name")
        .remedy("Choose another name, or delete the existing one with `forebay snapshot delete SNAPSHOT`.")
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(mut request): Input<SnapshotSet>,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let info = shared.engine.snapshot(&name).await?;
    let before = convert::snapshot(&info);
    check(&headers, &before)?;
    shared.engine.pool_changeable(&before.status.pool).await?;
    let name = request.name.take();
    if name.is_some() {
        super::rename::check_alone(&request)?;
    }
    let change = SnapshotChange {
        held: request.held.filter(|&held| held != before.spec.held),
        template: request.template.filter(|&template| template != before.spec.template),
        retain_seconds: rules::retain(request.retain_seconds)?,
    };
    rules::lengthen(&info, change.retain_seconds, WallTime(crate::events::now_unix_ms()))?;
    let mut changes = in_words(change);
    let name = name.filter(|name| *name != info.name);
    changes.extend(name.as_ref().map(|name| format!("renamed to {}@{name}", before.spec.volume)));
    if ask.dry_run {
        if let Some(name) = &name {
            shared.engine.snapshot_rename_check(&before.id, name).await?;
        }
        return plan("snapshot.set", &before.name, changes);
    }
    if change != SnapshotChange::default() {
        shared.engine.snapshot_set(&before.id, change).await?;
    }
    if let Some(name) = &name {
        shared.engine.snapshot_rename(&before.id, name).await?;
    }
    for what in changes {
        told(&shared, &who, "snapshot.changed", &before.name, &what);
    }
    let snapshot = convert::snapshot(&shared.engine.snapshot(&before.id).await?);
    Ok(tagged(json(StatusCode::OK, &snapshot), &etag(&snapshot)))
}

/// When so many seconds have passed.
fn before(seconds: u32) -> String {
    utc(WallTime(crate::events::now_unix_ms() + u64::from(seconds) * 1000))
}

fn in_words(change: SnapshotChange) -> Vec<String> {
    let held = change.held.map(|held| if held { "held" } else { "released" });
    let template = change.template.map(|is| if is { "made a template" } else { "no longer a template" });
    let retained = change
        .retain_seconds
        .map(|seconds| format!("retained for {}, until {}", show_duration(seconds), before(seconds)));
    held.into_iter().chain(template).map(str::to_string).chain(retained).collect()
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let info = shared.engine.snapshot(&name).await?;
    let snapshot = convert::snapshot(&info);
    check(&headers, &snapshot)?;
    shared.engine.pool_changeable(&info.pool).await?;
    rules::delete(&info)?;
    if ask.dry_run {
        let back = snapshot.status.unique_bytes.map_or("an unknown number of bytes".into(), show_size);
        return plan(
            "snapshot.delete",
            &snapshot.name,
            vec![format!("The snapshot is deleted, and {back} are freed.")],
        );
    }
    shared.engine.snapshot_delete(&snapshot.name).await?;
    told(&shared, &who, "snapshot.deleted", &snapshot.name, "deleted");
    Ok::<_, Failure>(StatusCode::NO_CONTENT.into_response())
}

pub async fn rollback(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    Input(request): Input<SnapshotRollback>,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let snapshot = shared.engine.snapshot(&name).await?;
    let before = shared.engine.volume(&format!("{}/{}", snapshot.pool, snapshot.volume)).await?;
    shared.engine.pool_changeable(&snapshot.pool).await?;
    let (of, users) = (full(&before), users(&shared, &before));
    rules::rollback(&of, &users, request.force)?;
    let name = rules::full(&snapshot);
    let damage = damage::of_named(&shared, &snapshot.pool, &name).await?;
    if ask.dry_run {
        let mut changes =
            vec![format!("The volume returns to its state at {name}. Data that is in no snapshot is lost.")];
        changes.extend(damage.as_ref().map(|damage| format!("Of the snapshot, {damage}")));
        if snapshot.size != before.size {
            let (was, is) = (show_size(before.size), show_size(snapshot.size));
            changes.push(format!("Its size changes from {was} to {is}."));
        }
        let marks = bookmarks::of_volume(&shared, &snapshot.pool, &snapshot.volume).await?;
        let is_behind = |mark: &&BookmarkInfo| mark.usable && mark.created.0 > snapshot.created.0;
        let behind = marks.iter().filter(is_behind).count();
        if behind > 0 {
            changes.push(rules::bookmarks_behind(behind));
        }
        if !users.is_empty() {
            changes.push(format!("It is in use by {}.", rules::few(&users)));
        }
        return plan("volume.rollback", &of, changes);
    }
    let volume = shared.engine.volume_rollback(&name).await?;
    let volume = convert::volume(&volume, &shared.known());
    let of_it = damage.map_or(String::new(), |damage| format!("; of that, {damage}"));
    told(&shared, &who, "volume.rolled_back", &of, &format!("rolled back to {name}{of_it}"));
    // It may have another size.
    shared.tell_iscsi(|iscsi| iscsi.access_changed());
    ok(&volume)
}

pub async fn clone(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(snapshot): Path<String>,
    ask: Ask,
    Input(request): Input<SnapshotClone>,
) -> Answered {
    let request = VolumeCreate {
        name: request.name,
        size_bytes: None,
        block_size_bytes: None,
        format: None,
        sync: None,
        compression: None,
        from_snapshot: Some(snapshot),
        hosts: Vec::new(),
        logical_block_bytes: None,
        level: None,
    };
    volumes::make(&shared, &who, &ask, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_told_and_nothing_else() {
        let change =
            |held, template| in_words(SnapshotChange { held, template, ..Default::default() }).join(", ");
        assert_eq!(change(None, None), "");
        assert_eq!(change(Some(true), None), "held");
        assert_eq!(change(Some(false), Some(true)), "released, made a template");
        assert_eq!(change(None, Some(false)), "no longer a template");
    }
}
