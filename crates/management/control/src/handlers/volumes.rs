//! Volumes.
//!
//! A volume's ETag is a hash of its identity and `spec`: it changes when an administrator resizes the volume or sets
//! something, not when clients write or snapshots are taken. Changes run one at a time, so that the comparison with `If-Match` and the change
//! are one step.

use super::sessions::users;
use super::{bookmarks, hosts, inherited, levels, mappings, pools, rename, told};
use crate::events::now_unix_ms;
use crate::hosts::Content;
use crate::request::{
    Answered, Ask, Failure, Input, Principal, check_precondition, json, made, ok, plan, tag_of_spec, tagged,
};
use crate::rules::NewVolume;
use crate::{Shared, convert, rules};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use forebay_api::{
    Code, Operation, Problem, Volume, VolumeCreate, VolumeSet, show_duration, show_size, show_size_exact,
};
use forebay_pool::{
    ErrorKind, ProjectProperties, PromiseChange, Setting, SnapshotInfo, Source, VolumeChange, VolumeDelete,
    VolumeInfo, VolumeSpec,
};
use std::sync::Arc;

pub fn etag(volume: &Volume) -> String {
    tag_of_spec(&volume.id, &volume.name, &volume.spec)
}

fn check(headers: &HeaderMap, volume: &Volume) -> Result<(), Problem> {
    check_precondition(headers, &etag(volume), "volume", &volume.name)
}

async fn find(shared: &Shared, name: &str) -> Result<Volume, Failure> {
    Ok(convert::volume(&shared.engine.volume(name).await?, &shared.known()))
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let volumes = shared.engine.volumes(ask.pool.as_deref()).await?;
    let volumes = convert::volumes(&volumes, &shared.known());
    ok(&ask.page(volumes, |volume| volume.name.clone())?)
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
    make(&shared, &who, &ask, request).await
}

/// Creates a volume, empty or as a clone.
pub async fn make(shared: &Arc<Shared>, who: &Principal, ask: &Ask, mut request: VolumeCreate) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let source = match &request.from_snapshot {
        Some(snapshot) => Some(shared.engine.snapshot(snapshot).await?),
        None => None,
    };
    let properties = properties_for(shared, &request.name).await?;
    if source.is_none() {
        request.block_size_bytes = request.block_size_bytes.or(properties.block_size);
    }
    let format = request.format.map(convert::format_in).or(properties.format).unwrap_or_default();
    let new = rules::volume(&request, source.as_ref(), &shared.levels.content())?;
    shared.engine.volume_name_check(new.pool, new.name).await?;
    let existing = shared.engine.volumes(Some(new.pool)).await?;
    shared.engine.pool_changeable(new.pool).await?;
    if existing.iter().any(|volume| volume.name == new.name) {
        return Err(Problem::new(Code::Conflict, "a volume with this name exists")
            .object(request.name)
            .field("name")
            .remedy("Choose another name, or use the existing volume: `forebay volume show VOLUME`.")
            .into());
    }
    // A clone has what its volume has of its own.
    let origin = source.as_ref().and_then(|source| existing.iter().find(|one| one.name == source.volume));
    let origin = origin.filter(|origin| origin.sources.level == Source::Own).map(|origin| origin.level);
    let promise = PromiseChange::Create { name: new.name.into(), level: new.level.or(origin) };
    levels::admit(shared, ask, new.pool, promise).await?;
    let wanted = mappings::Wanted::check(shared, &request).await?;
    let size = show_size(new.size);
    let spec = || VolumeSpec {
        pool: new.pool.into(),
        name: new.name.into(),
        size: new.size,
        block_size: new.block_size,
        sync: request.sync.map(convert::sync_in),
        compression: new.compression,
        format,
        level: new.level,
        own_hosts: !request.hosts.is_empty(),
    };
    if ask.dry_run {
        let (action, what) = match &source {
            None => {
                shared.engine.volume_create_check(spec()).await?;
                let blocks = show_size(u64::from(new.block_size));
                let what =
                    format!("A volume of {size} with blocks of {blocks} is created, {}.", format.name());
                ("volume.create", what)
            }
            Some(source) => {
                let source = rules::snapshots::full(source);
                shared.engine.volume_clone_check(&source, new.name).await?;
                ("volume.clone", format!("A volume of {size} is created as a clone of {source}."))
            }
        };
        let pools = shared.engine.pools().await;
        let free = pools
            .iter()
            .find(|pool| pool.name == new.pool)
            .map(|pool| pool.free - pool.reserved.min(pool.free));
        let short = free.filter(|free| source.is_none() && new.size > *free).map(|free| {
            format!("{} are free in pool {}. When they are used up, writes fail.", show_size(free), new.pool)
        });
        return plan(
            action,
            &request.name,
            [what].into_iter().chain(short).chain(wanted.in_words()).collect(),
        );
    }
    match &source {
        None => {
            shared.engine.volume_create(spec()).await?;
            told(shared, who, "volume.created", &request.name, &format!("created with {size}"));
        }
        Some(source) => {
            let snapshot = rules::snapshots::full(source);
            let made = shared.engine.volume_clone(&snapshot, new.name).await?;
            told(shared, who, "volume.cloned", &request.name, &format!("cloned from {snapshot}"));
            adapt(shared, made, &new, &request).await?;
        }
    }
    wanted.carry_out(shared, who, &find(shared, &request.name).await?).await?;
    let volume = find(shared, &request.name).await?;
    let place = Operation::VolumeShow.path_of(&volume.name);
    Ok(tagged(made(StatusCode::CREATED, &place, &volume)?, &etag(&volume)))
}

/// What the project says in which a volume of this name is to be made, if there is one.
async fn properties_for(shared: &Shared, name: &str) -> Result<ProjectProperties, Problem> {
    let (pool, within) = rules::volume_name(name)?;
    let Some(project) = rules::projects::project_of(within) else { return Ok(Default::default()) };
    match shared.engine.project(&format!("{pool}/{project}")).await {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(Default::default()),
        result => Ok(result.map_err(convert::problem)?.properties),
    }
}

/// Gives a new clone what of it is not to be as its snapshot was.
async fn adapt(
    shared: &Shared,
    made: VolumeInfo,
    new: &NewVolume<'_>,
    request: &VolumeCreate,
) -> Result<(), Problem> {
    let mut volume = made;
    let half = |error| {
        let problem = convert::problem(error);
        let detail =
            format!("the volume is created, but not all requested properties are set: {}", problem.detail);
        Problem { detail, ..problem }
    };
    let change = VolumeChange {
        sync: request.sync.map_or(Setting::Keep, |sync| Setting::Own(convert::sync_in(sync))),
        compression: new.compression.map_or(Setting::Keep, Setting::Own),
        schedule: Setting::Keep,
        level: new.level.map_or(Setting::Keep, Setting::Own),
        hosts: if request.hosts.is_empty() { Setting::Keep } else { Setting::Own(()) },
    };
    if change != VolumeChange::default() {
        volume = shared.engine.volume_set(&request.name, change).await.map_err(half)?;
    }
    if new.size > volume.size {
        volume = shared.engine.volume_resize(&request.name, new.size).await.map_err(half)?;
    }
    if let Some(format) = request.format.map(convert::format_in).filter(|&format| format != volume.format) {
        shared.engine.volume_convert(&request.name, format).await.map_err(half)?;
    }
    Ok(())
}

pub async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    headers: HeaderMap,
    Input(mut request): Input<VolumeSet>,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let info = shared.engine.volume(&name).await?;
    let known = shared.known();
    let before = convert::volume(&info, &known);
    check(&headers, &before)?;
    changeable(&shared, &before).await?;
    if let Some(name) = request.name.take() {
        rename::check_alone(&request)?;
        return rename::volume(&shared, &who, &ask, &info, name).await;
    }
    let change = rules::projects::volume_change(&info, &request, &known.levels)?;
    let size = request.size_bytes.filter(|&size| size != before.spec.size_bytes);
    let mut changes = Vec::new();
    if let Some(size) = size {
        rules::volume_size(size, before.spec.block_size_bytes)?;
        if size < before.spec.size_bytes {
            return Err(Problem::new(
                Code::Unsafe,
                format!(
                    "it has {}, and shrinking it to {} would cut off data",
                    show_size_exact(before.spec.size_bytes),
                    show_size_exact(size)
                ),
            )
            .object(before.name)
            .field("size_bytes")
            .remedy("Create a smaller volume and copy the data. To free unused space, discard it from the client instead.")
            .into());
        }
        changes.push(format!("grown from {} to {}", show_size(before.spec.size_bytes), show_size(size)));
    }
    if let Some(level) = change.level.said() {
        levels::admit(&shared, &ask, &info.pool, PromiseChange::Volume { id: info.id, level }).await?;
    }
    changes.extend(rules::projects::volume_change_in_words(&change, &known.levels));
    let format = request.format.filter(|&format| format != before.spec.format);
    changes.extend(format.map(|format| format!("converted to {}", convert::format_in(format).name())));
    let returns = match change.hosts {
        Setting::Inherit => Some(inherited::heir_of(&shared, &info).await?),
        Setting::Keep | Setting::Own(()) => None,
    };
    if let Some(heir) = &returns {
        changes.extend(inherited::returns_in_words(&shared, heir)?);
    }
    if ask.dry_run {
        if let Some(format) = format {
            shared.engine.volume_convert_check(&before.name, convert::format_in(format)).await?;
        }
        if let Some(size) = size {
            shared.engine.volume_resize_check(&before.name, size).await?;
        }
        return plan("volume.set", &before.name, changes);
    }
    // What may not be possible comes first, before any host loses the volume.
    if let Some(format) = format {
        shared.engine.volume_convert(&before.name, convert::format_in(format)).await?;
    }
    if let Some(size) = size {
        shared.engine.volume_resize(&before.name, size).await?;
        shared.tell_iscsi(|iscsi| iscsi.access_changed());
    }
    if change != VolumeChange::default() {
        shared.engine.volume_set(&before.name, change).await?;
    }
    if let Some(heir) = returns {
        let follow = move |content: &mut Content| content.inherit_wholly(&[heir], now_unix_ms());
        hosts::change(&shared, follow).await?;
    }
    for what in changes {
        told(&shared, &who, "volume.changed", &before.name, &what);
    }
    let volume = find(&shared, &before.id).await?;
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
    let info = shared.engine.volume(&name).await?;
    let volume = convert::volume(&info, &shared.known());
    check(&headers, &volume)?;
    changeable(&shared, &volume).await?;
    let (snapshots, users) = (volume.status.snapshots, users(&shared, &info));
    rules::snapshots::volume_delete(&volume.name, snapshots, ask.with_snapshots)?;
    if snapshots > 0 {
        snapshots_of(&shared, &volume).await?.iter().try_for_each(rules::snapshots::delete)?;
    }
    rules::snapshots::delete_used(&volume.name, &users, ask.force)?;
    let keep = if ask.purge { 0 } else { pools::imported(&shared, &info.pool).await?.trash_keep_seconds };
    if ask.dry_run {
        let mapped = show_size(volume.status.mapped_bytes);
        let mut changes = vec![match keep {
            0 => format!("The volume and its data ({mapped}) are lost."),
            _ => format!("The volume and its data ({mapped}) stay in the trash for {}.", show_duration(keep)),
        }];
        if snapshots > 0 {
            let count = rules::snapshots::counted(snapshots);
            let alone = show_size(volume.status.snapshot_bytes.unwrap_or_default());
            changes.push(format!("Deleted with it: {count}, with another {alone} of data."));
        }
        let bookmarks = bookmarks::of_volume(&shared, &info.pool, &info.name).await?.len();
        if bookmarks > 0 {
            changes.push(rules::snapshots::bookmarks_gone(bookmarks));
        }
        if !users.is_empty() {
            changes.push(format!("It is in use by {}.", rules::snapshots::few(&users)));
        }
        changes.extend(mappings::loss_in_words(&shared, &volume));
        return plan("volume.delete", &volume.name, changes);
    }
    let how = VolumeDelete { with_snapshots: ask.with_snapshots, purge: keep == 0 };
    shared.engine.volume_delete(&volume.name, how).await?;
    let with = match snapshots {
        0 => String::new(),
        count => format!(" with {}", rules::snapshots::counted(count)),
    };
    match keep {
        0 => told(&shared, &who, "volume.deleted", &volume.name, &format!("deleted{with}")),
        keep => {
            let what = format!("moved to the trash{with}, for {}", show_duration(keep));
            told(&shared, &who, "volume.trashed", &volume.name, &what);
        }
    }
    mappings::drop_where(&shared, move |mapping| mapping.volume == volume.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn snapshots_of(shared: &Shared, volume: &Volume) -> Result<Vec<SnapshotInfo>, Problem> {
    let all = shared.engine.snapshots(Some(&volume.status.pool)).await.map_err(convert::problem)?;
    let is_its = |snapshot: &SnapshotInfo| format!("{}/{}", snapshot.pool, snapshot.volume) == volume.name;
    Ok(all.into_iter().filter(is_its).collect())
}

pub async fn promote(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let _turn = shared.volume_turn.lock().await;
    let volume = find(&shared, &name).await?;
    changeable(&shared, &volume).await?;
    let Some(origin) = &volume.status.origin else {
        return Err(Problem::new(Code::Conflict, "it is not a clone")
            .object(volume.name)
            .remedy("`forebay volume list` shows which volumes are clones, and their origins.")
            .into());
    };
    if ask.dry_run {
        let former = origin.split('@').next().unwrap_or_default();
        let changes = vec![
            format!("It becomes the owner of {origin} and of the earlier snapshots of {former}."),
            format!("{former} becomes a clone of it, and keeps its bookmarks."),
        ];
        return plan("volume.promote", &volume.name, changes);
    }
    let promoted = shared.engine.volume_promote(&volume.name).await?;
    let promoted = convert::volume(&promoted, &shared.known());
    let what = format!("made the owner of {origin} and of the earlier snapshots");
    told(&shared, &who, "volume.promoted", &volume.name, &what);
    ok(&promoted)
}

/// Refuses a change of a volume whose pool is only to be read.
async fn changeable(shared: &Shared, volume: &Volume) -> Result<(), Problem> {
    shared.engine.pool_changeable(&volume.status.pool).await.map_err(convert::problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::{Sync, VolumeSpec, VolumeStatus};

    fn volume() -> Volume {
        Volume {
            id: "1".into(),
            name: "tank/a".into(),
            spec: VolumeSpec {
                size_bytes: 1 << 20,
                block_size_bytes: 8192,
                sync: Sync::Always,
                compression: "lz4".into(),
                format: Default::default(),
                snapshot_every_seconds: 0,
                snapshot_keep: Default::default(),
                hosts: Vec::new(),
                level: "none".into(),
                sources: Default::default(),
            },
            status: VolumeStatus {
                pool: "tank".into(),
                project: None,
                mapped_bytes: 0,
                stored_bytes: 0,
                compress_cpu_us: 0,
                expand_cpu_us: 0,
                used_bytes: 0,
                reserved_bytes: 0,
                origin: None,
                snapshots: 0,
                snapshot_bytes: None,
                damaged_bytes: 0,
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
        written.status.snapshots = 1;
        assert_eq!(etag(&before), etag(&written));
        let mut scheduled = volume();
        scheduled.spec.snapshot_keep.last = 24;
        assert_ne!(etag(&before), etag(&scheduled));
        let mut inheriting = volume();
        inheriting.spec.sources.sync = forebay_api::Source::Project;
        assert_ne!(etag(&before), etag(&inheriting), "it is as it was, and not wanted as it was");
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
