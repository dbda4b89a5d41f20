//! The engine's values as the API shows them, and the other way round. Nothing is decided here.

mod disks;

pub use disks::{blocked, disk};

use crate::Known;
use crate::handlers::damage;
use disks::healing;
use forebay_api as api;
use forebay_base::Id;
use forebay_pool as engine;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

pub fn layout_in(layout: api::Layout) -> engine::Layout {
    match layout {
        api::Layout::Single => engine::Layout::Single,
        api::Layout::Mirror => engine::Layout::Mirror,
        api::Layout::Mirror3 => engine::Layout::Mirror3,
        api::Layout::Parity { data, parity } => engine::Layout::Parity { data, parity },
    }
}

fn layout(layout: engine::Layout) -> api::Layout {
    match layout {
        engine::Layout::Single => api::Layout::Single,
        engine::Layout::Mirror => api::Layout::Mirror,
        engine::Layout::Mirror3 => api::Layout::Mirror3,
        engine::Layout::Parity { data, parity } => api::Layout::Parity { data, parity },
    }
}

fn role(role: engine::Role) -> api::Role {
    match role {
        engine::Role::Data => api::Role::Data,
        engine::Role::Log => api::Role::Log,
    }
}

pub fn sync_in(sync: api::Sync) -> engine::SyncPolicy {
    match sync {
        api::Sync::Always => engine::SyncPolicy::Always,
        api::Sync::Standard => engine::SyncPolicy::Standard,
        api::Sync::Disabled => engine::SyncPolicy::Disabled,
    }
}

fn sync(sync: engine::SyncPolicy) -> api::Sync {
    match sync {
        engine::SyncPolicy::Always => api::Sync::Always,
        engine::SyncPolicy::Standard => api::Sync::Standard,
        engine::SyncPolicy::Disabled => api::Sync::Disabled,
    }
}

pub fn format_in(format: api::VolumeFormat) -> engine::VolumeFormat {
    match format {
        api::VolumeFormat::Thin => engine::VolumeFormat::Thin,
        api::VolumeFormat::ZeroedThick => engine::VolumeFormat::ZeroedThick,
        api::VolumeFormat::EagerZeroedThick => engine::VolumeFormat::EagerZeroedThick,
    }
}

fn format(format: engine::VolumeFormat) -> api::VolumeFormat {
    match format {
        engine::VolumeFormat::Thin => api::VolumeFormat::Thin,
        engine::VolumeFormat::ZeroedThick => api::VolumeFormat::ZeroedThick,
        engine::VolumeFormat::EagerZeroedThick => api::VolumeFormat::EagerZeroedThick,
    }
}

fn class_in(class: api::LevelClass) -> engine::Class {
    match class {
        api::LevelClass::MissionCritical => engine::Class::MissionCritical,
        api::LevelClass::BusinessCritical => engine::Class::BusinessCritical,
        api::LevelClass::NonCritical => engine::Class::NonCritical,
    }
}

fn class(class: engine::Class) -> api::LevelClass {
    match class {
        engine::Class::MissionCritical => api::LevelClass::MissionCritical,
        engine::Class::BusinessCritical => api::LevelClass::BusinessCritical,
        engine::Class::NonCritical => api::LevelClass::NonCritical,
    }
}

pub fn level_in(level: &api::LevelSpec) -> engine::Level {
    let rate = |iops: Option<u64>, bytes: Option<u64>| engine::Rate {
        iops: iops.unwrap_or_default(),
        bytes: bytes.unwrap_or_default(),
    };
    engine::Level {
        class: class_in(level.class),
        floor: rate(level.min_iops, level.min_bytes_per_second),
        latency: level.latency_us.map(Duration::from_micros),
        ceiling: rate(level.max_iops, level.max_bytes_per_second),
        burst: Duration::from_secs(level.burst_seconds.unwrap_or_default().into()),
    }
}

pub fn level(level: &engine::Level) -> api::LevelSpec {
    let given = |number: u64| Some(number).filter(|number| *number > 0);
    api::LevelSpec {
        class: class(level.class),
        min_iops: given(level.floor.iops),
        min_bytes_per_second: given(level.floor.bytes),
        latency_us: level.latency.map(|goal| goal.as_micros() as u64),
        max_iops: given(level.ceiling.iops),
        max_bytes_per_second: given(level.ceiling.bytes),
        burst_seconds: given(level.burst.as_secs()).map(|seconds| seconds as u32),
    }
}

/// Of millionths.
pub fn permille(millionths: u64) -> u32 {
    (millionths / 1000).try_into().unwrap_or(u32::MAX)
}

pub fn speed(speed: &engine::PoolSpeed) -> api::PoolSpeed {
    api::PoolSpeed {
        read_iops: speed.read_iops,
        write_iops: speed.write_iops,
        read_bytes_per_second: speed.read_bytes,
        write_bytes_per_second: speed.write_bytes,
        measured_unix_ms: speed.measured.0,
    }
}

fn cache(cache: &engine::CacheStatus) -> api::PoolCache {
    api::PoolCache { size_bytes: cache.size, held_bytes: cache.held, hits_permille: cache.hits_permille }
}

pub fn severity(severity: engine::Severity) -> api::Severity {
    match severity {
        engine::Severity::Info => api::Severity::Info,
        engine::Severity::Warning => api::Severity::Warning,
        engine::Severity::Error => api::Severity::Error,
    }
}

/// For paths that lead to no disk.
const DISKS_LISTED: &str = "`forebay disk list --free` lists the machine's disks that a pool can use; `--machine` lists all of them.";

/// An engine error as a problem document, with the same texts.
pub fn problem(error: engine::Error) -> api::Problem {
    let (code, field) = match error.kind {
        engine::ErrorKind::Invalid(field) => (api::Code::Invalid, field),
        engine::ErrorKind::NotFound => (api::Code::NotFound, ""),
        engine::ErrorKind::Conflict => (api::Code::Conflict, ""),
        engine::ErrorKind::Unsafe => (api::Code::Unsafe, ""),
        engine::ErrorKind::NoSpace => (api::Code::NoSpace, ""),
        engine::ErrorKind::Corrupt => (api::Code::Corrupt, ""),
        engine::ErrorKind::Io => (api::Code::Io, ""),
        engine::ErrorKind::Suspended => (api::Code::Suspended, ""),
        engine::ErrorKind::Stopped => (api::Code::Stopped, ""),
    };
    let is_no_disk = error.object.starts_with('/') && (code == api::Code::NotFound || field == "disks");
    let remedy = match error.remedy.is_empty() {
        true if is_no_disk => DISKS_LISTED.into(),
        _ => error.remedy,
    };
    api::Problem::new(code, error.message).object(error.object).field(field).remedy(remedy)
}

pub fn condition(kind: &str, status: bool, reason: &str, message: impl Into<String>) -> api::Condition {
    api::Condition { kind: kind.into(), status, reason: reason.into(), message: message.into() }
}

/// The disks of one role that are spare, a cache or, without a state, neither, by path; a missing disk has none.
fn paths(pool: &engine::PoolStatus, role: engine::Role, state: Option<engine::DiskState>) -> Vec<String> {
    let groups = pool.groups.iter().filter(|group| group.role == role);
    let disks = groups.flat_map(|group| &group.disks);
    let special = |is: engine::DiskState| matches!(is, engine::DiskState::Spare | engine::DiskState::Cache);
    let disks = disks.filter(|disk| Some(disk.state).filter(|is| special(*is)) == state);
    disks.map(|disk| disk.path.clone()).filter(|path| !path.is_empty()).collect()
}

/// So many disks that are out are named.
const LOST_NAMED: usize = 4;

pub fn pool(pool: &engine::PoolStatus) -> api::Pool {
    let lost = pool.groups.iter().flat_map(|group| &group.disks);
    let is_lost = |state: engine::DiskState| {
        matches!(state, engine::DiskState::Failed | engine::DiskState::Missing | engine::DiskState::Offline)
    };
    // One that came back and failed again is listed under each of its numbers.
    let lost: BTreeMap<u16, &engine::DiskStatus> =
        lost.filter(|disk| is_lost(disk.state)).map(|disk| (disk.joined_as, disk)).collect();
    let named = lost.values().map(|disk| format!("{}/{}", pool.name, disk.number));
    let named: Vec<String> = named.take(LOST_NAMED).collect();
    let (state, mut conditions) = match pool.state {
        engine::PoolState::Online => (
            api::PoolState::Online,
            vec![condition("Ready", true, "Online", ""), condition("Redundant", true, "AllDisksOnline", "")],
        ),
        engine::PoolState::Degraded => (
            api::PoolState::Degraded,
            vec![
                condition("Ready", true, "Degraded", ""),
                condition(
                    "Redundant",
                    false,
                    "DisksLost",
                    match (&named[..], lost.len()) {
                        ([one], _) => {
                            format!("Disk {one} is failed, missing or offline. Its data has less redundancy.")
                        }
                        (some, all) => format!(
                            "{all} disks are failed, missing or offline: {}{}. Their data has less redundancy.",
                            some.join(", "),
                            if all > some.len() { ", …" } else { "" }
                        ),
                    },
                ),
            ],
        ),
        engine::PoolState::Suspended => (
            api::PoolState::Suspended,
            vec![condition(
                "Ready",
                false,
                "Suspended",
                "A failure beyond its redundancy stopped all writes. Reads continue. Repair the disks, then export and import the pool.",
            )],
        ),
    };
    let state = if pool.damage.open > 0 { api::PoolState::Damaged } else { state };
    if pool.damage.places > 0 {
        conditions.insert(0, damage::of_pool(pool));
    }
    let (rebuild, rebuilding) = pool.healing.as_ref().map(healing).unzip();
    conditions.extend(rebuilding);
    if pool.read_only {
        let message =
            "Nothing is written to its disks. To change it, export it and import it without --read-only.";
        conditions.push(condition("Writable", false, "ReadOnly", message));
    }
    let data = pool.groups.iter().find(|group| group.role == engine::Role::Data);
    api::Pool {
        id: pool.id.to_string(),
        name: pool.name.clone(),
        spec: api::PoolSpec {
            layout: data.map(|group| layout(group.layout)),
            disks: paths(pool, engine::Role::Data, None),
            log_disks: paths(pool, engine::Role::Log, None),
            spare_disks: paths(pool, engine::Role::Data, Some(engine::DiskState::Spare)),
            cache_disks: paths(pool, engine::Role::Data, Some(engine::DiskState::Cache)),
            trash_keep_seconds: Some(pool.trash_keep_seconds),
            threshold_percents: Vec::new(),
        },
        status: api::PoolStatus {
            state,
            read_only: pool.read_only,
            size_bytes: pool.size,
            used_bytes: pool.used,
            free_bytes: pool.free,
            reserved_bytes: pool.reserved,
            available_bytes: pool.free.saturating_sub(pool.reserved),
            provisioned_bytes: pool.provisioned,
            provisioned_permille: (u128::from(pool.provisioned) * 1000 / u128::from(pool.size.max(1))) as u64,
            full_in_days: None,
            shards: pool.shards as u32,
            checkpoint: pool.checkpoint,
            log_fill_permille: pool.log_fill_permille,
            created_unix_ms: pool.created.0,
            groups: pool
                .groups
                .iter()
                .map(|group| api::Group {
                    number: group.number,
                    role: role(group.role),
                    layout: layout(group.layout),
                    leaving: group.leaving,
                    size_bytes: group.size,
                    used_bytes: group.used,
                    disks: group.disks.iter().map(|d| disk(&pool.name, group, d)).collect(),
                })
                .collect(),
            rebuild,
            damage: api::PoolDamage {
                places: pool.damage.places,
                open_places: pool.damage.open,
                stored_bytes: pool.damage.bytes,
            },
            scrub: pool.scrub.as_ref().map(damage::of_scrub),
            speed: pool.speed.as_ref().map(speed),
            guarantee_max_permille: pool.promisable.map(permille),
            guaranteed_permille: permille(pool.promised),
            cache: pool.cache.as_ref().map(cache),
            scrub_schedule: api::ScrubSchedule {
                every_seconds: pool.scrubs.every_seconds,
                last_unix_ms: (pool.scrubs.last.0 > 0).then_some(pool.scrubs.last.0),
                next_unix_ms: pool.scrub_next.map(|next| next.0),
            },
        },
        conditions,
    }
}

/// A pool that is remembered but not imported.
pub fn pool_unavailable(entry: &crate::configuration::Remembered) -> api::Pool {
    let (reason, message) = match &entry.failure {
        // Most are of one disk, and say so with its path.
        Some(problem) => match problem.object.as_ref().filter(|object| **object != entry.name) {
            Some(object) => ("ImportFailed", format!("{object}: {}", problem.detail)),
            None => ("ImportFailed", problem.detail.clone()),
        },
        None => ("Importing", "It is being imported.".to_string()),
    };
    api::Pool {
        id: entry.id.clone().unwrap_or_default(),
        name: entry.name.clone(),
        spec: api::PoolSpec {
            layout: None,
            disks: entry.disks.clone(),
            log_disks: Vec::new(),
            spare_disks: Vec::new(),
            cache_disks: Vec::new(),
            trash_keep_seconds: None,
            threshold_percents: entry.thresholds().to_vec(),
        },
        status: api::PoolStatus {
            state: api::PoolState::Unavailable,
            read_only: false,
            size_bytes: 0,
            used_bytes: 0,
            free_bytes: 0,
            reserved_bytes: 0,
            available_bytes: 0,
            provisioned_bytes: 0,
            provisioned_permille: 0,
            full_in_days: None,
            shards: 0,
            checkpoint: 0,
            log_fill_permille: 0,
            created_unix_ms: 0,
            groups: Vec::new(),
            rebuild: None,
            damage: api::PoolDamage::default(),
            scrub: None,
            speed: None,
            guarantee_max_permille: None,
            guaranteed_permille: 0,
            cache: None,
            scrub_schedule: api::ScrubSchedule::default(),
        },
        conditions: vec![condition("Ready", false, reason, message)],
    }
}

/// With what is known of their hosts and levels.
pub fn volumes(volumes: &[engine::VolumeInfo], known: &Known) -> Vec<api::Volume> {
    let content = &known.hosts;
    let groups = content.groups.iter().map(|group| (&*group.id, &*group.name));
    let names: HashMap<&str, &str> =
        content.hosts.iter().map(|host| (&*host.id, &*host.name)).chain(groups).collect();
    let mut hosts: HashMap<&str, Vec<String>> = HashMap::new();
    for mapping in &content.mappings {
        let name = names.get(&*mapping.to).map(|name| name.to_string());
        hosts.entry(&mapping.volume).or_default().extend(name);
    }
    let said: HashSet<&str> = content.projects.iter().map(|entry| &*entry.project).collect();
    let with_hosts = |volume: &engine::VolumeInfo| {
        let hosts = hosts.get(&*volume.id.to_string()).cloned().unwrap_or_default();
        let is_said = volume.project_id.is_some_and(|project| said.contains(&*project.to_string()));
        let from = match volume.sources.hosts {
            engine::Source::Project if !is_said => engine::Source::Default,
            from => from,
        };
        volume_with(volume, hosts, source(from), level_shown(known, volume.level))
    };
    volumes.iter().map(with_hosts).collect()
}

/// With what is known of its hosts and level.
pub fn volume(volume: &engine::VolumeInfo, known: &Known) -> api::Volume {
    volumes(std::slice::from_ref(volume), known).pop().expect("one is made of one")
}

fn volume_with(
    volume: &engine::VolumeInfo,
    hosts: Vec<String>,
    hosts_from: api::Source,
    (level, unknown): (String, Option<api::Condition>),
) -> api::Volume {
    let name = format!("{}/{}", volume.pool, volume.name);
    api::Volume {
        id: volume.id.to_string(),
        spec: api::VolumeSpec {
            size_bytes: volume.size,
            block_size_bytes: volume.block_size,
            sync: sync(volume.sync),
            compression: volume.compression.to_string(),
            format: format(volume.format),
            snapshot_every_seconds: volume.schedule.every_seconds,
            snapshot_keep: snapshot_keep(volume.schedule.keep),
            hosts,
            level,
            sources: api::VolumeSources {
                sync: source(volume.sources.sync),
                compression: source(volume.sources.compression),
                snapshot_schedule: source(volume.sources.schedule),
                hosts: hosts_from,
                level: source(volume.sources.level),
            },
        },
        status: api::VolumeStatus {
            pool: volume.pool.clone(),
            project: volume.project.as_ref().map(|project| format!("{}/{project}", volume.pool)),
            mapped_bytes: volume.mapped,
            stored_bytes: volume.stored,
            compress_cpu_us: volume.packing_nanos / 1000,
            expand_cpu_us: volume.unpacking_nanos / 1000,
            used_bytes: volume.used,
            reserved_bytes: volume.reserved,
            origin: volume.origin.as_ref().map(|origin| format!("{}/{origin}", volume.pool)),
            snapshots: volume.snapshots,
            snapshot_bytes: volume.snapshot_bytes,
            damaged_bytes: volume.damaged,
            shard: volume.shard as u32,
            nbd_export: name.clone(),
            iscsi_target: crate::iscsi_names::target_name(&volume.pool),
            created_unix_ms: volume.created.0,
        },
        conditions: [condition("Ready", true, "Online", "")]
            .into_iter()
            .chain(damage::of_volume(volume))
            .chain(unknown)
            .chain(volume.standing.map(standing))
            .collect(),
        name,
    }
}

/// Whether the floor of a volume's level is kept.
fn standing(standing: engine::Standing) -> api::Condition {
    let (is_kept, reason, message) = match standing {
        engine::Standing::Promised => (true, "Guaranteed", ""),
        engine::Standing::BestEffort => (
            false,
            "BestEffort",
            "The performance left in the pool is below the minimum of this level. The volume gets its share; minimum and latency goal are not \
             guaranteed. Add disks, or lower this level or the levels of other volumes.",
        ),
        engine::Standing::CannotBeKept => (
            false,
            "CannotBeMet",
            "Disks of the pool are out of service or slower than measured. Until they recover, the volume gets its share; minimum and latency goal \
             are not guaranteed.",
        ),
        engine::Standing::Unmeasured => (
            false,
            "Unmeasured",
            "The pool has not been measured. Measure it with `forebay pool calibrate POOL`.",
        ),
    };
    condition("LevelMet", is_kept, reason, message)
}

/// The level with this id by its name, or else by its UUID with a word on that.
fn level_shown(known: &Known, id: Id) -> (String, Option<api::Condition>) {
    match known.levels.name_of(id) {
        Some(name) => (name, None),
        None => {
            let message = "Neither this appliance nor the pool has a level with this id. It was deleted while the pool was exported or the volume \
                           was in the trash. It has no effect; set another one with --level.";
            (id.to_string(), Some(condition("LevelKnown", false, "LevelUnknown", message)))
        }
    }
}

fn source(source: engine::Source) -> api::Source {
    match source {
        engine::Source::Own => api::Source::Own,
        engine::Source::Project => api::Source::Project,
        engine::Source::Default => api::Source::Default,
    }
}

/// Where the value comes from that a project has, if it has one.
fn said<T>(value: &Option<T>) -> api::Source {
    if value.is_some() { api::Source::Own } else { api::Source::Default }
}

pub fn snapshot_keep(keep: engine::SnapshotKeep) -> api::SnapshotKeep {
    let engine::SnapshotKeep { last, hourly, daily, weekly, monthly } = keep;
    api::SnapshotKeep { last, hourly, daily, weekly, monthly }
}

pub fn snapshot_keep_in(keep: api::SnapshotKeep) -> engine::SnapshotKeep {
    let api::SnapshotKeep { last, hourly, daily, weekly, monthly } = keep;
    engine::SnapshotKeep { last, hourly, daily, weekly, monthly }
}

/// With what is known of its hosts and level.
pub fn project(project: &engine::ProjectInfo, known: &Known) -> api::Project {
    let content = &known.hosts;
    let properties = &project.properties;
    let hosts = content.names(content.said(&project.id.to_string()));
    let schedule = properties.schedule.unwrap_or_default();
    let (level, unknown) = level_shown(known, properties.level.unwrap_or_default());
    let deletable = match (project.volumes, project.trashed) {
        (0, 0) => condition("Deletable", true, "Empty", ""),
        (0, _) => condition("Deletable", false, "Trashed", "It has volumes in the trash."),
        _ => condition("Deletable", false, "Used", "It has volumes."),
    };
    api::Project {
        id: project.id.to_string(),
        name: format!("{}/{}", project.pool, project.name),
        spec: api::ProjectSpec {
            sync: sync(properties.sync.unwrap_or_default()),
            compression: properties.compression.unwrap_or_default().to_string(),
            snapshot_every_seconds: schedule.every_seconds,
            snapshot_keep: snapshot_keep(schedule.keep),
            block_size_bytes: properties.block_size.unwrap_or(api::VolumeCreate::BLOCK_SIZE_DEFAULT),
            format: format(properties.format.unwrap_or_default()),
            quota_bytes: properties.quota,
            max_iops: Some(properties.ceiling.iops).filter(|iops| *iops > 0),
            max_bytes_per_second: Some(properties.ceiling.bytes).filter(|bytes| *bytes > 0),
            sources: api::ProjectSources {
                sync: said(&properties.sync),
                compression: said(&properties.compression),
                snapshot_schedule: said(&properties.schedule),
                block_size: said(&properties.block_size),
                format: said(&properties.format),
                hosts: said(&hosts.first()),
                level: said(&properties.level),
            },
            hosts,
            level,
        },
        status: api::ProjectStatus {
            pool: project.pool.clone(),
            volumes: project.volumes,
            volumes_trashed: project.trashed,
            size_bytes: project.size,
            mapped_bytes: project.mapped,
            used_bytes: project.used,
            quota_left_bytes: properties.quota.map(|quota| quota.saturating_sub(project.used)),
            created_unix_ms: project.created.0,
        },
        conditions: [deletable].into_iter().chain(unknown).collect(),
    }
}

pub fn trashed(volume: &engine::TrashInfo) -> api::TrashedVolume {
    api::TrashedVolume {
        id: volume.id.to_string(),
        name: format!("{}/{}", volume.pool, volume.name),
        pool: volume.pool.clone(),
        size_bytes: volume.size,
        mapped_bytes: volume.mapped,
        snapshots: volume.snapshots,
        deleted_unix_ms: volume.deleted.0,
        purge_unix_ms: volume.purge.0,
    }
}

pub fn bookmark(mark: &engine::BookmarkInfo) -> api::Bookmark {
    let volume = format!("{}/{}", mark.pool, mark.volume);
    api::Bookmark {
        id: mark.id.to_string(),
        name: format!("{volume}#{}", mark.name),
        pool: mark.pool.clone(),
        volume,
        origin: mark.origin.to_string(),
        size_bytes: mark.size,
        created_unix_ms: mark.created.0,
        usable: mark.usable,
    }
}

pub fn move_left(left: &engine::MoveLeft) -> api::MoveLeft {
    api::MoveLeft {
        id: left.id.to_string(),
        name: format!("{}/{}", left.pool, left.name),
        pool: left.pool.clone(),
        size_bytes: left.size,
        side: match left.side {
            engine::MoveSide::Moved => api::MoveSide::Moved,
            engine::MoveSide::Arriving => api::MoveSide::Arriving,
        },
        other_pool: left.peer.to_string(),
        complete: left.is_complete,
    }
}

pub fn reception(reception: &engine::ReceptionInfo) -> api::Receive {
    api::Receive {
        id: reception.id.to_string(),
        name: format!("{}/{}", reception.pool, reception.volume),
        pool: reception.pool.clone(),
        size_bytes: reception.size,
        received_bytes: reception.received,
        mapped_bytes: reception.mapped,
        active: reception.active,
        resume_token: reception.token.to_string(),
        created_unix_ms: reception.created.0,
    }
}

pub fn snapshot(snapshot: &engine::SnapshotInfo) -> api::Snapshot {
    let in_pool = |name: &String| format!("{}/{name}", snapshot.pool);
    let deletable = match snapshot {
        _ if snapshot.retained_until.is_some() => {
            condition("Deletable", false, "Retained", "It is retained and cannot be deleted yet.")
        }
        _ if snapshot.held => condition("Deletable", false, "Held", "It is held."),
        _ if snapshot.template => condition("Deletable", false, "Template", "It is a template."),
        _ if !snapshot.clones.is_empty() => condition("Deletable", false, "Cloned", "It has clones."),
        _ => condition("Deletable", true, "Free", ""),
    };
    api::Snapshot {
        id: snapshot.id.to_string(),
        name: crate::rules::snapshots::full(snapshot),
        spec: api::SnapshotSpec {
            volume: in_pool(&snapshot.volume),
            held: snapshot.held,
            template: snapshot.template,
        },
        status: api::SnapshotStatus {
            pool: snapshot.pool.clone(),
            size_bytes: snapshot.size,
            block_size_bytes: snapshot.block_size,
            mapped_bytes: snapshot.mapped,
            unique_bytes: snapshot.unique,
            retained_until_unix_ms: snapshot.retained_until.map(|until| until.0),
            scheduled: snapshot.scheduled,
            clones: snapshot.clones.iter().map(in_pool).collect(),
            created_unix_ms: snapshot.created.0,
        },
        conditions: vec![deletable],
    }
}

pub fn found(found: engine::PoolFound) -> api::PoolFound {
    api::PoolFound {
        id: found.id.to_string(),
        name: found.name,
        disks_found: found.disks_found,
        disks_missing: found.disks_missing as u64,
        host: found.host.map(|host| host.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_error_becomes_a_problem_with_its_texts() {
        use engine::ErrorKind::*;
        for (kind, code, status) in [
            (Invalid("size_bytes"), api::Code::Invalid, 400),
            (NotFound, api::Code::NotFound, 404),
            (Conflict, api::Code::Conflict, 409),
            (Unsafe, api::Code::Unsafe, 409),
            (NoSpace, api::Code::NoSpace, 507),
            (Corrupt, api::Code::Corrupt, 500),
            (Io, api::Code::Io, 500),
            (Suspended, api::Code::Suspended, 503),
            (Stopped, api::Code::Stopped, 503),
        ] {
            let problem = problem(engine::Error::new(kind, "tank", "what happened").remedy("what to do"));
            assert_eq!((problem.code, problem.status), (code, status));
            assert_eq!(problem.detail, "what happened");
            assert_eq!(problem.object.as_deref(), Some("tank"));
            assert_eq!(problem.remedy.as_deref(), Some("what to do"));
            assert_eq!(problem.field.is_some(), kind == Invalid("size_bytes"));
        }
    }
}
