//! What is wrong now: gathers what alerts come from, and looks now and then by itself, so that it is known since when something is wrong.

use super::pools;
use crate::alerts::{
    DeletionStuck, DiskEvent, Exposed, LoginRefused, PoolDiskHealth, Quota, Refusal, TOLD_MS, Told, View,
    Violation, found, order,
};
use crate::directory::Trouble;
use crate::events::now_unix_ms;
use crate::machine::PoolDisk;
use crate::request::{Answered, Ask, ok};
use crate::{Shared, convert};
use axum::extract::State;
use forebay_api::{Alert, Event};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Events that are looked through: more in a quarter of an hour is another trouble.
const EVENTS: usize = 1000;

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let alerts = look(&shared).await;
    // The worst first, also over pages.
    let key = |alert: &Alert| {
        let (severity, stake, id) = order(alert);
        format!("{} {stake} {id}", severity as u8)
    };
    ok(&ask.page(alerts, key)?)
}

/// The present alerts, the worst first; watching clients are told of changes.
pub async fn look(shared: &Shared) -> Vec<Alert> {
    let view = view(shared).await;
    let mut alerts = found(&view);
    let is_news =
        shared.alerts.lock().expect("no holder of this lock panics").note(&mut alerts, view.now_unix_ms);
    if is_news {
        shared.changes.tell(&["alerts"]);
    }
    alerts
}

async fn view(shared: &Shared) -> View {
    let pools = pools::all(shared).await;
    let (volumes, _) = shared.volumes().await;
    let known = shared.known();
    let mut violations = Vec::new();
    for pool in &pools {
        // A pool that is not imported promises nothing.
        let broken = shared.engine.broken_promises(&pool.name).await.unwrap_or_default();
        violations.extend(broken.into_iter().map(|broken| Violation {
            pool: pool.name.clone(),
            volume: format!("{}/{}", pool.name, broken.volume),
            level: known.levels.name_of(broken.level).unwrap_or_else(|| "of another appliance".into()),
            why: broken.why,
            remedy: broken.remedy,
        }));
    }
    let projects = shared.engine.projects(None).await.unwrap_or_default();
    let quotas = projects.iter().filter_map(|project| {
        let quota = project.properties.quota?;
        Some(Quota { project: format!("{}/{}", project.pool, project.name), used: project.used, quota })
    });
    let now_unix_ms = now_unix_ms();
    let events = shared.events.list(None, EVENTS);
    let logins_refused = logins_refused(&events, now_unix_ms);
    let deletions_stuck = deletions_stuck(&events);
    let refusals = refusals(&events, now_unix_ms);
    let told = told_of_disks(events, now_unix_ms);
    let disks = pools.iter().flat_map(|pool| {
        let disks = pool.status.groups.iter().flat_map(|group| &group.disks);
        disks.map(|disk| PoolDisk {
            pool: pool.name.clone(),
            number: disk.status.number,
            path: disk.name.clone(),
        })
    });
    let disks: Vec<PoolDisk> = disks.collect();
    let health = shared.machine.health_of(&disks).into_iter();
    View {
        now_unix_ms,
        volumes: convert::volumes(&volumes, &known),
        quotas: quotas.collect(),
        crossings: super::thresholds::crossed(shared),
        channels: super::channels::failing(shared),
        violations,
        told,
        logins_refused,
        deletions_stuck,
        refusals,
        health: health.map(|(disk, health)| PoolDiskHealth { disk, health }).collect(),
        exposed: Exposed {
            portals: shared.iscsi.get().map(|iscsi| iscsi.portals_beyond_loopback()).unwrap_or_default(),
            hosts: shared.access.hosts_without_secret(),
        },
        certificate_ends_unix_ms: shared.front().certificate_ends_unix_ms,
        directory: trouble(shared).await,
        pools,
    }
}

/// What was told of disks and is so still.
fn told_of_disks(events: Vec<Event>, now_unix_ms: u64) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    for event in events {
        let what = match event.code.as_str() {
            "disk.slow" => DiskEvent::Slow,
            "disk.hung" => DiskEvent::Hung,
            "disk.failed" | "disk.evicted" => DiskEvent::Failed,
            // It has the name of one from before, and not its disks.
            "pool.created" => {
                let of_pool = format!("{}/", event.object);
                told.retain(|told| !told.disk.starts_with(&of_pool));
                continue;
            }
            _ => continue,
        };
        // One that has failed stays out until an administrator acts.
        if what == DiskEvent::Failed || event.at_unix_ms + TOLD_MS > now_unix_ms {
            let (disk, message, at_unix_ms) = (event.object, event.message, event.at_unix_ms);
            told.push(Told { disk, what, message, at_unix_ms });
        }
    }
    told
}

fn logins_refused(events: &[Event], now_unix_ms: u64) -> Vec<LoginRefused> {
    let recent = events.iter().filter(|event| event.at_unix_ms + TOLD_MS > now_unix_ms);
    let refused = recent.filter_map(|event| {
        let is_slowed = match event.code.as_str() {
            "iscsi.login.refused" => false,
            "iscsi.login.slowed" => true,
            _ => return None,
        };
        // `INITIATOR at ADDRESS`.
        let initiator = event.object.split(" at ").next().unwrap_or_default().to_string();
        Some(LoginRefused { initiator, message: event.message.clone(), is_slowed })
    });
    refused.collect()
}

/// Of each pool the last of late.
fn refusals(events: &[Event], now_unix_ms: u64) -> Vec<Refusal> {
    let recent = events
        .iter()
        .filter(|event| event.code == "pool.no_space" && event.at_unix_ms + TOLD_MS > now_unix_ms);
    let last: BTreeMap<&str, &str> = recent.map(|event| (&*event.object, &*event.message)).collect();
    last.into_iter().map(|(pool, message)| Refusal { pool: pool.into(), message: message.into() }).collect()
}

/// Each pool's last, unless the pool was imported since: then it is tried again.
fn deletions_stuck(events: &[Event]) -> Vec<DeletionStuck> {
    let mut stuck: BTreeMap<&str, &Event> = BTreeMap::new();
    for event in events {
        match event.code.as_str() {
            "deletion.stuck" => _ = stuck.insert(&event.object, event),
            "pool.imported" | "pool.exported" | "pool.destroyed" => _ = stuck.remove(event.object.as_str()),
            _ => {}
        }
    }
    let told =
        |(pool, event): (&str, &Event)| DeletionStuck { pool: pool.into(), message: event.message.clone() };
    stuck.into_iter().map(told).collect()
}

/// Why the data directory cannot be written. Tries it where it could not be.
async fn trouble(shared: &Shared) -> Option<Trouble> {
    let dir = shared.dir.clone();
    crate::blocking(move || Ok(dir.trouble())).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(code: &str, object: &str, at_unix_ms: u64) -> Event {
        serde_json::from_value(serde_json::json!({
            "sequence": 1, "at_unix_ms": at_unix_ms, "severity": "warning", "code": code, "object": object, "message": "so",
        }))
        .expect("it is an event")
    }

    #[test]
    fn what_was_told_of_a_disk_counts_as_long_as_it_is_so() {
        let told = |events: Vec<Event>| {
            let told = told_of_disks(events, 2 * TOLD_MS).into_iter();
            told.map(|told| told.disk).collect::<Vec<_>>()
        };
        let events = || {
            vec![
                event("disk.failed", "tank/0", 1),
                event("disk.slow", "tank/1", 1),
                event("disk.hung", "tank/2", 2 * TOLD_MS),
                event("disk.failed", "tank2/0", 1),
            ]
        };
        assert_eq!(told(events()), ["tank/0", "tank/2", "tank2/0"], "a failure stays, slowness passes");
        let again = events().into_iter().chain([event("pool.created", "tank", 3)]);
        assert_eq!(told(again.collect()), ["tank2/0"], "another pool of this name has other disks");
    }

    #[test]
    fn a_deletion_is_tried_again_after_an_import() {
        let stuck = |codes: &[&str]| {
            let events: Vec<Event> = codes.iter().map(|code| event(code, "tank", 1)).collect();
            deletions_stuck(&events).len()
        };
        assert_eq!(stuck(&["pool.imported", "deletion.stuck", "deletion.stuck"]), 1);
        assert_eq!(stuck(&["deletion.stuck", "pool.imported"]), 0);
    }
}
