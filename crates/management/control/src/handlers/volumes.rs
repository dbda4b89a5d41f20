//! Volumes.
//!
//! A volume's ETag is a hash of its identity and `spec`: it changes when somebody resizes the volume or sets
//! something, not when clients write. Changes run one at a time, so that the comparison with `If-Match` and the change
//! are one step.

use super::{mappings, told};
use crate::request::{
    Answered, Ask, Failure, Input, Principal, check_precondition, json, made, ok, plan, tagged,
};
use crate::{Shared, convert, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use forebay_api::{Code, Operation, Problem, Volume, VolumeCreate, VolumeSet, show_size};
use forebay_base::Checksum;
use forebay_pool::VolumeSpec;
use std::sync::Arc;

fn etag(volume: &Volume) -> String {
    let identity = serde_json::to_vec(&(&volume.id, &volume.name, &volume.spec)).expect("plain data");
    format!("\"{:016x}\"", Checksum::of(&identity).0 as u64)
}

fn check(headers: &HeaderMap, volume: &Volume) -> Result<(), Problem> {
    check_precondition(headers, &etag(volume), "volume", &volume.name)
}

async fn find(shared: &Shared, name: &str) -> Result<Volume, Failure> {
    Ok(convert::volume(&shared.engine.volume(name).await?))
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let pool = match &ask.pool {
        Some(wanted) => {
            let pools = shared.engine.pools().await;
            let by_id = pools.into_iter().find(|pool| pool.id.to_string() == *wanted);
            Some(by_id.map_or(wanted.clone(), |pool| pool.name))
        }
        None => None,
    };
    let volumes = shared.engine.volumes(pool.as_deref()).await?;
    let volumes: Vec<Volume> = volumes.iter().map(convert::volume).collect();
    ok(&ask.page(volumes, |volume| volume.name.clone()))
}

pub async fn show(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    let volume = find(&shared, &name).await?;
    Ok(tagged(json(StatusCode::OK, &volume), &etag(&volume)))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    ask: Ask,
    Input(request): Input<VolumeCreate>,
) -> Answered {
    let (pool, name) = rules::volume(&request)?;
    let _turn = shared.volume_turn.lock().await;
    let existing = shared.engine.volumes(Some(pool)).await?;
    shared.engine.pool_changeable(pool).await?;
    if existing.iter().any(|volume| volume.name == name) {
        return Err(Problem::new(Code::Conflict, "a volume with this name exists")
            .object(request.name)
            .field("name")
            .remedy("Choose another name, or change that one with `forebay volume set` and `resize`.")
            .into());
    }
    let wanted = mappings::Wanted::check(&shared, &request).await?;
    if ask.dry_run {
        let mut changes = vec![format!(
            "A thin volume of {} with blocks of {} is created.",
            show_size(request.size_bytes),
            show_size(u64::from(request.block_size_bytes))
        )];
        changes.extend(wanted.in_words());
        return plan("volume.create", &request.name, changes);
    }
    let spec = VolumeSpec {
        pool: pool.into(),
        name: name.into(),
        size: request.size_bytes,
        block_size: request.block_size_bytes,
        sync: convert::sync_in(request.sync),
    };
    let volume = convert::volume(&shared.engine.volume_create(spec).await?);
    let what = format!("created with {}", show_size(volume.spec.size_bytes));
    told(&shared, &who, "volume.created", &volume.name, &what);
    wanted.carry_out(&shared, &who, &volume).await?;
    let place = Operation::VolumeShow.path_of(&volume.name);
    Ok(tagged(made(StatusCode::CREATED, &place, &volume)?, &etag(&volume)))
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(request): Input<VolumeSet>,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let before = find(&shared, &name).await?;
    check(&headers, &before)?;
    changeable(&shared, &before).await?;
    let size = request.size_bytes.filter(|&size| size != before.spec.size_bytes);
    let sync = request.sync.filter(|&sync| sync != before.spec.sync);
    let mut changes = Vec::new();
    if let Some(size) = size {
        rules::volume_size(size, before.spec.block_size_bytes)?;
        if size < before.spec.size_bytes {
            return Err(Problem::new(
                Code::Unsafe,
                format!(
                    "it has {} bytes, and shrinking it to {size} would cut off data",
                    before.spec.size_bytes
                ),
            )
            .object(before.name)
            .field("size_bytes")
            .remedy("Create a smaller volume and copy what you need; discard gives back unused space.")
            .into());
        }
        changes.push(format!("grown from {} to {}", show_size(before.spec.size_bytes), show_size(size)));
    }
    if let Some(sync) = sync {
        changes.push(format!("sync set to {}", convert::sync_in(sync).name()));
    }
    if ask.dry_run {
        return plan("volume.set", &before.name, changes);
    }
    if let Some(sync) = sync {
        shared.engine.volume_set_sync(&before.name, convert::sync_in(sync)).await?;
    }
    if let Some(size) = size {
        shared.engine.volume_resize(&before.name, size).await?;
        shared.tell_iscsi(|iscsi| iscsi.access_changed());
    }
    for what in changes {
        told(&shared, &who, "volume.changed", &before.name, &what);
    }
    let volume = find(&shared, &before.name).await?;
    Ok(tagged(json(StatusCode::OK, &volume), &etag(&volume)))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let volume = find(&shared, &name).await?;
    check(&headers, &volume)?;
    changeable(&shared, &volume).await?;
    if ask.dry_run {
        let mut changes =
            vec![format!("The volume and its data, {}, are lost.", show_size(volume.status.mapped_bytes))];
        changes.extend(mappings::loss_in_words(&shared, &volume));
        return plan("volume.delete", &volume.name, changes);
    }
    shared.engine.volume_delete(&volume.name, false).await?;
    told(&shared, &who, "volume.deleted", &volume.name, "deleted");
    mappings::drop_where(&shared, move |mapping| mapping.volume == volume.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Refuses a change of a volume whose pool is only to be read.
async fn changeable(shared: &Shared, volume: &Volume) -> Result<(), Problem> {
    let pool = volume.name.split_once('/').map_or("", |(pool, _)| pool);
    shared.engine.pool_changeable(pool).await.map_err(convert::problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::{Sync, VolumeSpec, VolumeStatus};

    fn volume() -> Volume {
        Volume {
            id: "1".into(),
            name: "tank/a".into(),
            spec: VolumeSpec { size_bytes: 1 << 20, block_size_bytes: 8192, sync: Sync::Always },
            status: VolumeStatus {
                pool: "tank".into(),
                mapped_bytes: 0,
                shard: 0,
                nbd_export: "tank/a".into(),
                iscsi_target: "iqn.2026-11.io.forebay:tank".into(),
                created_unix_ms: 0,
            },
            conditions: Vec::new(),
        }
    }

    #[test]
    fn the_tag_follows_the_spec_and_not_the_status() {
        let before = volume();
        let mut written = volume();
        written.status.mapped_bytes = 8192;
        assert_eq!(etag(&before), etag(&written));
        let mut grown = volume();
        grown.spec.size_bytes += 8192;
        assert_ne!(etag(&before), etag(&grown));
        let mut again = volume();
        again.id = "2".into();
        assert_ne!(etag(&before), etag(&again), "a new volume of the same name is another one");
    }

    #[test]
    fn preconditions() {
        let volume = volume();
        let tag = etag(&volume);
        let check = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(axum::http::header::IF_MATCH, value.parse().unwrap());
            super::check(&headers, &volume).is_ok()
        };
        assert!(super::check(&HeaderMap::new(), &volume).is_ok());
        assert!(check(&tag) && check("*") && check(&format!("\"x\", {tag}")));
        assert!(!check("\"x\"") && !check("") && !check(&format!("W/{tag}")));
    }
}
