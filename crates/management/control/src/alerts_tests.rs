//! Is each kind of trouble told, as bad as it is, and nothing when all is well?

use super::*;
use forebay_api::{DiskHealthState, PoolDamage};
use serde_json::json;

fn disk(number: u16, state: &str) -> serde_json::Value {
    json!({
        "id": "0", "name": format!("/dev/sd{number}"), "spec": {"pool": "tank", "role": "data"}, "conditions": [],
        "status": {
            "number": number, "state": state, "size_bytes": 1, "sector_physical_bytes": 512, "rotational": false,
            "errors_read": 0, "errors_write": 0, "errors_checksum": 0, "repaired": 0, "errors_read_recent": 0,
            "errors_checksum_recent": 0,
        },
    })
}

fn pool(layout: &str, states: &[&str]) -> Pool {
    let disks: Vec<_> = states.iter().enumerate().map(|(n, state)| disk(n as u16, state)).collect();
    let is_whole = states.iter().all(|state| *state == "online");
    serde_json::from_value(json!({
        "id": "0", "name": "tank", "conditions": [],
        "spec": {"disks": [], "log_disks": [], "spare_disks": [], "threshold_percents": [80, 90]},
        "status": {
            "state": if is_whole { "online" } else { "degraded" },
            "size_bytes": 1000, "used_bytes": 100, "free_bytes": 900, "available_bytes": 900, "shards": 1, "checkpoint": 1,
            "log_fill_permille": 0, "created_unix_ms": 0,
            "groups": [{"number": 0, "role": "data", "layout": layout, "size_bytes": 1000, "used_bytes": 100, "disks": disks}],
        },
    }))
    .unwrap()
}

fn ids(view: &View) -> Vec<(String, AlertSeverity)> {
    let alerts = found(view);
    for alert in &alerts {
        for text in [&alert.cause, &alert.impact, &alert.action] {
            let first = text.chars().next().unwrap();
            assert!(first.is_uppercase() && text.ends_with('.') && !text.ends_with(".."), "{text}");
        }
    }
    alerts.into_iter().map(|alert| (alert.id, alert.severity)).collect()
}

fn of_pool(change: impl FnOnce(&mut Pool)) -> Vec<(String, AlertSeverity)> {
    let mut pool = pool("mirror", &["online", "online"]);
    change(&mut pool);
    ids(&View { pools: vec![pool], now_unix_ms: 1 << 40, ..View::default() })
}

fn one(id: &str, severity: AlertSeverity) -> Vec<(String, AlertSeverity)> {
    vec![(id.to_string(), severity)]
}

#[test]
fn nothing_is_told_when_all_is_well() {
    assert_eq!(ids(&View::default()), []);
    assert_eq!(of_pool(|_| {}), []);
}

#[test]
fn a_degraded_pool_is_as_bad_as_what_it_may_still_lose() {
    for (layout, states, severity) in [
        ("mirror", &["online", "failed"][..], Critical),
        ("mirror3", &["online", "online", "missing"], Warning),
        ("mirror3", &["online", "failed", "missing"], Critical),
        ("4+2", &["online", "online", "online", "online", "online", "failed"], Warning),
    ] {
        let view = View { pools: vec![pool(layout, states)], ..View::default() };
        let degraded = ids(&view).into_iter().find(|(id, _)| id == "pool.degraded:tank");
        assert_eq!(degraded.unwrap().1, severity, "{layout} {states:?}");
    }
    let offline = View { pools: vec![pool("mirror", &["online", "offline"])], ..View::default() };
    assert!(ids(&offline).contains(&("disk.offline:tank/1".into(), Info)));
}

#[test]
fn pools_tell_what_is_wrong_with_them() {
    let state = |state| of_pool(|pool| pool.status.state = state);
    assert_eq!(state(PoolState::Suspended), one("pool.suspended:tank", Critical));
    assert_eq!(state(PoolState::Unavailable), [], "it is being imported");
    let failed = of_pool(|pool| {
        pool.status.state = PoolState::Unavailable;
        pool.conditions.push(crate::convert::condition("Ready", false, "ImportFailed", "no disks."));
    });
    assert_eq!(failed, one("pool.unavailable:tank", Critical));
    let blocked = of_pool(|pool| {
        pool.status.rebuild = Some(
            serde_json::from_value(
                json!({"left_bytes": 1, "done_bytes": 0, "since_unix_ms": 0, "blocked": "no room"}),
            )
            .unwrap(),
        );
    });
    assert_eq!(blocked, one("pool.rebuild_blocked:tank", Warning));
    let damaged = |places: u64, open_places: u64| {
        of_pool(|pool| {
            pool.status.damage = PoolDamage { places, open_places, stored_bytes: places * 4096 };
            pool.status.state = if open_places > 0 { PoolState::Damaged } else { PoolState::Online };
        })
    };
    assert_eq!(damaged(0, 0), []);
    assert_eq!(damaged(2, 1), one("pool.data_lost:tank", Critical));
    assert_eq!(damaged(2, 0), one("pool.data_lost:tank", Info));
    assert_eq!(of_pool(|pool| pool.status.read_only = true), one("pool.read_only:tank", Info));
}

/// Goal: what is lost hides nothing else that is wrong, and comes before it, also before what began earlier.
#[test]
fn what_is_lost_comes_first_and_hides_nothing() {
    let mut full = pool("mirror", &["online", "failed"]);
    full.status.free_bytes = 0;
    full.status.state = PoolState::Damaged;
    full.status.damage = PoolDamage { places: 1, open_places: 1, stored_bytes: 4096 };
    full.conditions.push(crate::convert::condition("Ready", true, "Degraded", ""));
    let ids: Vec<String> =
        ids(&View { pools: vec![full], ..View::default() }).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids[..3], ["pool.data_lost:tank", "pool.degraded:tank", "pool.filling:tank"], "{ids:?}");
}

#[test]
fn space_is_told_by_the_pool_s_own_thresholds() {
    let free = |free: u64| of_pool(|pool| pool.status.free_bytes = free);
    assert_eq!(free(201), []);
    assert_eq!(free(200), one("pool.filling:tank", Warning));
    assert_eq!(free(100), one("pool.filling:tank", Critical));
    let held = |held: u64| of_pool(|pool| (pool.status.free_bytes, pool.status.reserved_bytes) = (900, held));
    assert_eq!(held(700), one("pool.filling:tank", Warning), "what is held is not there for others");
    let short = held(901).into_iter().map(|(id, _)| id);
    assert_eq!(short.collect::<Vec<_>>(), ["pool.filling:tank", "pool.reservation_short:tank"]);
    assert_eq!(of_pool(|pool| pool.status.full_in_days = Some(7)), one("pool.full_soon:tank", Warning));
    assert_eq!(of_pool(|pool| pool.status.full_in_days = Some(8)), []);
}

#[test]
fn disks_tell_of_errors_and_of_being_slow() {
    let errors = |read, checksum| {
        of_pool(|pool| {
            let status = &mut pool.status.groups[0].disks[1].status;
            (status.errors_read_recent, status.errors_checksum_recent) = (read, checksum);
        })
    };
    assert_eq!(errors(4, 5), []);
    assert_eq!(errors(5, 5), one("disk.errors:tank/1", Warning));
    // What no disk has right has an alert of its own; what cannot be read is the disk's own doing also then.
    let beside_loss = |read, checksum| {
        let alerts = of_pool(|pool| {
            pool.status.damage = PoolDamage { places: 8, open_places: 0, stored_bytes: 1 << 15 };
            let status = &mut pool.status.groups[0].disks[1].status;
            (status.errors_read_recent, status.errors_checksum_recent) = (read, checksum);
        });
        alerts.into_iter().any(|(id, _)| id == "disk.errors:tank/1")
    };
    assert!(!beside_loss(0, 8) && !beside_loss(0, 17) && beside_loss(0, 18) && beside_loss(10, 0));
    // There is nothing to scrub on a cache disk.
    for (state, command) in [("online", "forebay pool scrub tank"), ("cache", "forebay disk remove tank/1")] {
        let mut pool = pool("single", &["online", state]);
        pool.status.state = PoolState::Online;
        pool.status.groups[0].disks[1].status.errors_checksum_recent = 10;
        let alerts = found(&View { pools: vec![pool], now_unix_ms: 1 << 40, ..View::default() });
        let told: Vec<_> = alerts.iter().map(|alert| (alert.id.as_str(), alert.command.as_deref())).collect();
        assert_eq!(told, [("disk.errors:tank/1", Some(command))]);
    }
    let told =
        |disk: &str, what| Told { disk: disk.into(), what, message: "disk 1 is slow".into(), at_unix_ms: 7 };
    let view = |told| View {
        pools: vec![pool("mirror", &["online", "online"])],
        now_unix_ms: 9,
        told,
        ..View::default()
    };
    let slow = view(vec![told("tank/1", DiskEvent::Slow), told("vault/0", DiskEvent::Slow)]);
    assert_eq!(ids(&slow), one("disk.slow:tank/1", Warning));
    assert_eq!((found(&slow)[0].since_unix_ms, found(&slow)[0].cause.as_str()), (7, "Disk 1 is slow."));
    assert_eq!(ids(&view(vec![told("tank/0", DiskEvent::Hung)])), one("disk.hung:tank/0", Critical));
}

fn told_of(view: &View, id: &str) -> Alert {
    found(view).into_iter().find(|alert| alert.id == id).unwrap_or_else(|| panic!("no alert {id}"))
}

/// Goal: nothing is said to be repaired or readable that is not.
#[test]
fn disks_claim_no_more_than_is_known() {
    let errors = |layout: &str, lost: u64| {
        let mut pool = pool(layout, &["online", "online", "online"]);
        pool.status.damage = PoolDamage { places: lost, open_places: lost, stored_bytes: lost * 4096 };
        pool.status.groups[0].disks[1].status.errors_checksum_recent = 112;
        told_of(&View { pools: vec![pool], ..View::default() }, "disk.errors:tank/1")
    };
    assert!(errors("mirror", 0).impact.contains("repaired"));
    assert!(errors("mirror", 12).impact.starts_with("Unrecoverable: 12 blocks of the pool"));
    assert!(errors("single", 0).impact.contains("no redundancy"));
    assert!(!errors("mirror", 0).action.contains("replace the disk"), "wrong data takes no disk out");
    let impact = |layout: &str, states: &[&str], id: &str| {
        told_of(&View { pools: vec![pool(layout, states)], ..View::default() }, id).impact
    };
    assert!(impact("mirror", &["online", "failed"], "disk.failed:tank/1").contains("other disks"));
    assert!(impact("single", &["failed"], "disk.failed:tank/0").contains("cannot lose it"));
}

/// Goal: what is to be done can be done as it is printed, and names the disk by where it was.
#[test]
fn a_disk_that_is_gone_is_named_by_where_it_was() {
    let mut one = pool("mirror", &["online", "missing"]);
    let disk = &mut one.status.groups[0].disks[1];
    (disk.name, disk.status.last_path) = (String::new(), Some("/disks/d3".into()));
    let alert = told_of(&View { pools: vec![one.clone()], ..View::default() }, "disk.missing:tank/1");
    assert!(alert.cause.contains("tank/1 (last at /disks/d3)"), "{}", alert.cause);
    assert_eq!(alert.command.as_deref(), Some("forebay disk online tank/1 --path /disks/d3"));
    one.status.groups[0].disks[1].status.last_path = None;
    let alert = told_of(&View { pools: vec![one], ..View::default() }, "disk.missing:tank/1");
    assert_eq!(alert.command.as_deref(), Some("forebay disk online tank/1 --path PATH"));
}

#[test]
fn a_failed_disk_is_told_with_its_reason_and_what_can_be_done() {
    let failed = |spare: &str, conditions: &[&str]| {
        let mut pool = pool("mirror", &["online", "failed", spare]);
        for reason in conditions {
            pool.conditions.push(crate::convert::condition("Ready", false, reason, ""));
        }
        let told = Told {
            disk: "tank/1".into(),
            what: DiskEvent::Failed,
            message: "disk 1 (/d) failed and is out of service: the file system under it is full; its contents are stale".into(),
            at_unix_ms: 1,
        };
        let view = View { pools: vec![pool], told: vec![told], now_unix_ms: 1 << 40, ..View::default() };
        told_of(&view, "disk.failed:tank/1")
    };
    let alert = failed("online", &[]);
    assert!(alert.cause.contains("the file system under it is full"), "{}", alert.cause);
    assert_eq!(alert.command.as_deref(), Some("forebay disk replace tank/1 DISK"));
    assert_eq!(failed("spare", &[]).command.as_deref(), Some("forebay disk replace tank/1"));
    let suspended = failed("online", &["Suspended"]);
    assert_eq!(suspended.command.as_deref(), Some("forebay pool export tank"));
    assert!(!suspended.action.contains("disk online"), "the pool refuses it: {}", suspended.action);
}

#[test]
fn a_spare_that_is_too_small_is_told_before_it_is_needed() {
    let mut small = pool("mirror", &["online", "online", "spare"]);
    small.status.state = PoolState::Online;
    small.status.groups[0].disks.iter_mut().take(2).for_each(|disk| disk.status.size_bytes = 2);
    let told = |pool: &Pool| ids(&View { pools: vec![pool.clone()], ..View::default() });
    assert_eq!(told(&small), one("disk.spare_small:tank/2", Info));
    small.status.groups[0].disks[2].status.size_bytes = 2;
    assert_eq!(told(&small), []);
}

#[test]
fn refused_logins_are_told_when_they_go_on() {
    let told = |refused: usize, slowed: usize| {
        let one = |is_slowed| LoginRefused {
            initiator: "iqn.a".into(),
            message: "its CHAP secret is wrong".into(),
            is_slowed,
        };
        let logins = (0..refused).map(|_| one(false)).chain((0..slowed).map(|_| one(true)));
        ids(&View { logins_refused: logins.collect(), ..View::default() })
    };
    assert_eq!(told(2, 0), []);
    assert_eq!(told(3, 0), one("host.logins_refused:iqn.a", Warning));
    assert_eq!(told(0, 1), one("host.logins_refused:iqn.a", Warning));
}

#[test]
fn a_deletion_that_cannot_go_on_is_told() {
    let stuck = DeletionStuck { pool: "tank".into(), message: "the deletion of 'a' cannot go on".into() };
    let view = View { deletions_stuck: vec![stuck], ..View::default() };
    assert_eq!(ids(&view), one("pool.deletion_stuck:tank", Warning));
}

/// Goal: two alerts of one pool advise the same.
#[test]
fn a_blocked_rebuild_is_not_waited_for() {
    let degraded = |blocked: Option<&str>| {
        let mut pool = pool("mirror", &["online", "failed"]);
        let healing = json!({"left_bytes": 1, "done_bytes": 0, "since_unix_ms": 0, "blocked": blocked});
        pool.status.rebuild = Some(serde_json::from_value(healing).unwrap());
        told_of(&View { pools: vec![pool], ..View::default() }, "pool.degraded:tank").action
    };
    assert!(degraded(None).starts_with("Wait"));
    assert!(!degraded(Some("no room")).contains("Wait"));
}

#[test]
fn a_disk_that_came_back_and_failed_again_is_one_loss() {
    let mut one = pool("mirror3", &["online", "failed", "failed"]);
    one.status.groups[0].disks[2].status.joined_as = Some(1);
    let view = View { pools: vec![one], ..View::default() };
    assert_eq!(told_of(&view, "pool.degraded:tank").severity, Warning);
}

#[test]
fn a_pool_that_cannot_be_imported_names_how_to_try_again() {
    let mut one = pool("mirror", &[]);
    one.status.state = PoolState::Unavailable;
    one.spec.disks = vec!["/disks/a".into(), "/disks/b".into()];
    one.conditions.push(crate::convert::condition(
        "Ready",
        false,
        "ImportFailed",
        "/disks/b: permission denied",
    ));
    let alert = told_of(&View { pools: vec![one], ..View::default() }, "pool.unavailable:tank");
    assert!(alert.cause.contains("/disks/b: permission denied"), "{}", alert.cause);
    assert_eq!(alert.command.as_deref(), Some("forebay pool import tank /disks/a /disks/b"));
}

#[test]
fn promises_quotas_and_certificates() {
    let violation = Violation {
        pool: "tank".into(),
        volume: "tank/a".into(),
        level: "gold".into(),
        why: "so".into(),
        remedy: "this".into(),
    };
    let view = View { violations: vec![violation], ..View::default() };
    assert_eq!(ids(&view), one("level.missed:tank/a", Warning));
    let quota = |used| {
        ids(&View { quotas: vec![Quota { project: "tank/p".into(), used, quota: 100 }], ..View::default() })
    };
    assert_eq!((quota(89), quota(90)), (vec![], one("project.quota:tank/p", Warning)));
    assert_eq!(quota(100), one("project.quota:tank/p", Critical));
    let exposed = |portals: &[&str], hosts: &[&str]| {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        let exposed = Exposed { portals: words(portals), hosts: words(hosts) };
        ids(&View { exposed, ..View::default() })
    };
    assert_eq!(exposed(&[], &["esx1"]), vec![]);
    assert_eq!(exposed(&["0.0.0.0:3260"], &[]), vec![]);
    assert_eq!(exposed(&["0.0.0.0:3260"], &["esx1"]), one("host.without_secret:esx1", Warning));
    let ends = |days: u64| {
        ids(&View {
            now_unix_ms: 50 * DAY_MS,
            certificate_ends_unix_ms: Some(days * DAY_MS),
            ..View::default()
        })
    };
    assert_eq!((ends(71), ends(70)), (vec![], one("server.certificate:certificate", Warning)));
    assert_eq!(ends(50), one("server.certificate:certificate", Critical));
}

#[test]
fn the_beginning_is_kept_as_long_as_it_lasts() {
    let mut since = Since::default();
    let look = |now: u64, is_wrong: bool, since: &mut Since| {
        let mut wrong = pool("mirror", &["online", "online"]);
        wrong.status.read_only = is_wrong;
        let mut alerts = found(&View { pools: vec![wrong], now_unix_ms: now, ..View::default() });
        let is_news = since.note(&mut alerts, now);
        (is_news, alerts.first().map(|alert| alert.since_unix_ms))
    };
    assert_eq!(look(1, false, &mut since), (false, None));
    assert_eq!(look(5, true, &mut since), (true, Some(5)));
    assert_eq!(look(9, true, &mut since), (false, Some(5)));
    assert_eq!(look(10, false, &mut since), (true, None));
    assert_eq!(look(11, true, &mut since), (true, Some(11)));
}

#[test]
fn a_data_directory_that_cannot_be_written_is_told_with_the_reason() {
    let trouble = Trouble {
        path: "/var/lib/forebay/tokens".into(),
        error: "Operation not permitted".into(),
        remedy: "Take the attribute off.",
    };
    let view = View { directory: Some(trouble), ..View::default() };
    assert_eq!(ids(&view), one("server.directory:directory", Critical));
    let alert = &found(&view)[0];
    assert!(alert.cause.contains("/var/lib/forebay/tokens: Operation not permitted"), "{}", alert.cause);
    assert_eq!(alert.action, "Take the attribute off.");
}

#[test]
fn a_disk_of_a_pool_that_is_not_well_is_told_while_it_is_in_service() {
    let told = |state: DiskState, health: DiskHealthState| {
        let mut pool = pool("mirror", &["online", "online"]);
        pool.status.groups[0].disks[1].status.state = state;
        let health = DiskHealth {
            state: health,
            reasons: vec!["The disk itself says that it fails.".into()],
            read_unix_ms: None,
            temperature_celsius: None,
            power_on_hours: None,
            wear_percent: None,
        };
        let health = vec![PoolDiskHealth { disk: "tank/1".into(), health }];
        let view = View { pools: vec![pool], health, ..View::default() };
        let told = ids(&view);
        let alert = found(&view).into_iter().find(|alert| alert.id == "disk.health:tank/1");
        assert!(alert.iter().all(|alert| alert.cause.contains("/dev/sd1") && alert.cause.contains("says")));
        told.into_iter().find(|(id, _)| id == "disk.health:tank/1").map(|(_, severity)| severity)
    };
    use DiskHealthState::{Failing, Good, Unknown};
    for state in [DiskState::Online, DiskState::Leaving, DiskState::Spare, DiskState::Cache] {
        assert_eq!(told(state, Failing), Some(Warning), "{state:?}");
        assert_eq!(told(state, DiskHealthState::Warning), Some(Info), "{state:?}");
        assert_eq!((told(state, Good), told(state, Unknown)), (None, None), "{state:?}");
    }
    assert_eq!(told(DiskState::Failed, Failing), None, "it is replaced already");
}

#[test]
fn a_channel_that_does_not_deliver_is_told_over_the_others() {
    let channel = FailingChannel {
        name: "the pager".into(),
        error: "hooks.example.com:443 answered 500 (message of today)".into(),
        remedy: "See the receiver's log.".into(),
        waiting: 3,
    };
    let view = View { channels: vec![channel], ..View::default() };
    assert_eq!(ids(&view), one("channel.failing:the pager", Warning));
    let alert = found(&view).remove(0);
    assert_eq!(
        alert.cause,
        "Channel the pager does not deliver: hooks.example.com:443 answered 500 (message of today). 3 notices wait."
    );
    assert_eq!(alert.command.as_deref(), Some("forebay channel show 'the pager'"));
}
