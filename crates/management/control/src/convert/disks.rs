//! Disks as the API shows them, and what moves between them.

use super::{condition, role};
use forebay_api as api;
use forebay_pool as engine;

pub fn disk(pool: &str, group: &engine::GroupStatus, disk: &engine::DiskStatus) -> api::Disk {
    let (state, ready) = match disk.state {
        engine::DiskState::Online => (api::DiskState::Online, condition("Ready", true, "Online", "")),
        engine::DiskState::Failed => (
            api::DiskState::Failed,
            condition(
                "Ready",
                false,
                "Failed",
                "It was taken out of service after an error. Its data is out of date.",
            ),
        ),
        engine::DiskState::Missing => (
            api::DiskState::Missing,
            condition("Ready", false, "Missing", "It was not found when the pool was imported."),
        ),
        engine::DiskState::Offline => (
            api::DiskState::Offline,
            condition(
                "Ready",
                false,
                "Offline",
                "An administrator took it out of service. It misses new writes.",
            ),
        ),
        engine::DiskState::Rebuilt => (
            api::DiskState::Rebuilt,
            condition(
                "Ready",
                false,
                "Rebuilt",
                "It has failed. All its data has been rebuilt on other disks.",
            ),
        ),
        engine::DiskState::Empty => (
            api::DiskState::Empty,
            condition(
                "Ready",
                false,
                "Failed",
                "It failed, or was not found when the pool was imported. As a spare or cache disk it held no data of its own.",
            ),
        ),
        engine::DiskState::Leaving => {
            (api::DiskState::Leaving, condition("Ready", true, "Leaving", "Its data moves to other disks."))
        }
        engine::DiskState::Spare => (api::DiskState::Spare, condition("Ready", true, "Spare", "")),
        engine::DiskState::Cache => (api::DiskState::Cache, condition("Ready", true, "Cache", "")),
    };
    api::Disk {
        id: disk.id.to_string(),
        name: disk.path.clone(),
        spec: api::DiskSpec {
            pool: pool.into(),
            role: role(group.role),
            enclosure: Some(disk.enclosure.clone()).filter(|name| !name.is_empty()),
        },
        status: api::DiskStatus {
            number: disk.number,
            joined_as: (disk.joined_as != disk.number).then_some(disk.joined_as),
            last_path: None,
            state,
            size_bytes: disk.size,
            sector_physical_bytes: disk.sector_physical,
            sector_reported_bytes: disk.sector_reported,
            rotational: disk.rotational,
            errors_read: disk.errors.read,
            errors_write: disk.errors.write,
            errors_checksum: disk.errors.checksum,
            repaired: disk.errors.repaired,
            errors_read_recent: disk.errors.read_recent,
            errors_checksum_recent: disk.errors.checksum_recent,
        },
        conditions: vec![ready],
    }
}

/// A sentence on what keeps a pool from healing.
pub fn blocked(healing: &engine::Healing) -> String {
    let why = match healing.blocked.as_str() {
        "" => "requests to the disks involved fail",
        why => why,
    };
    format!("data cannot move: {why}")
}

pub(super) fn healing(healing: &engine::Healing) -> (api::Rebuild, api::Condition) {
    let blocked = Some(&healing.blocked).filter(|why| !why.is_empty()).map(|_| blocked(healing));
    let condition = match &blocked {
        Some(why) => condition(
            "Rebuilding",
            false,
            "Blocked",
            format!("At the moment, {why}. It is retried automatically."),
        ),
        None => condition("Rebuilding", true, "Moving", ""),
    };
    let rebuild = api::Rebuild {
        left_bytes: healing.bytes_left,
        done_bytes: healing.bytes_done,
        since_unix_ms: healing.since.0,
        blocked,
    };
    (rebuild, condition)
}
