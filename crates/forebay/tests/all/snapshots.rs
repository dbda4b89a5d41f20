//! Are snapshots what the volume was, do clones and rollbacks begin from there, and is what somebody holds on to safe?
//!
//! Method: the real daemon and its command line; data goes through NBD, and `kill -9` comes in between.

use crate::common::{Daemon, Nbd, Place, wait_until};
use serde_json::{Value, json};

const BLOCK: usize = 8192;
const BLOCKS: u64 = 512;

/// A pool with a volume of 64 MiB.
fn tank(place: &Place) {
    place.disks();
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "64M", "--compression", "off"]).expect(0);
}

/// What a block has in one of its generations: no two are alike.
fn content(generation: u8, block: u64) -> Vec<u8> {
    let mut bytes = vec![generation; BLOCK];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

fn fill(daemon: &Daemon, export: &str, generation: u8) {
    let mut nbd = Nbd::open(&daemon.nbd, export);
    (0..BLOCKS).for_each(|block| nbd.write(block * BLOCK as u64, &content(generation, block)));
}

fn expect_filled(daemon: &Daemon, export: &str, generation: u8) {
    let mut nbd = Nbd::open(&daemon.nbd, export);
    for block in 0..BLOCKS {
        let is_right = nbd.read(block * BLOCK as u64, BLOCK) == content(generation, block);
        assert!(is_right, "block {block} of {export} is not of generation {generation}");
    }
}

/// Rolls back once the server has noticed that nobody is connected any more.
fn rollback(place: &Place, snapshot: &str) {
    let words = ["snapshot", "rollback", snapshot, "--yes"];
    wait_until("nobody is connected", || match place.run(&words) {
        refused if refused.code == Some(5) => false,
        done => done.expect(0).code == Some(0),
    });
}

fn volume(place: &Place, name: &str) -> Value {
    place.json(&["volume", "show", name])
}

fn snapshot(place: &Place, name: &str) -> Value {
    place.json(&["snapshot", "show", name])
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item["name"].as_str().expect("a name"))
        .collect()
}

/// Goal: what a volume was is there after it is overwritten and after crashes, in clones and after a rollback, and the room comes
/// back.
#[test]
fn a_volume_s_past_is_read_cloned_and_gone_back_to() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    assert!(place.run(&["snapshot", "list"]).expect(0).out.contains("forebay snapshot create"));
    fill(&daemon, "tank/a", 1);
    place.run(&["snapshot", "create", "tank/a@s", "--dry-run"]).expect(0);
    place.run(&["snapshot", "show", "tank/a@s"]).expect(3);
    assert!(place.run(&["snapshot", "create", "tank/a@s"]).expect(0).out.contains("tank/a@s is taken"));
    let taken = snapshot(&place, "tank/a@s");
    assert_eq!(taken["spec"], json!({"volume": "tank/a", "held": false, "template": false}));
    assert_eq!(taken["status"]["size_bytes"], 64 << 20);
    assert_eq!(taken["status"]["mapped_bytes"], BLOCKS * BLOCK as u64);
    assert_eq!(taken["status"]["unique_bytes"], 0, "it shares everything with the volume");
    assert_eq!(snapshot(&place, taken["id"].as_str().unwrap()), taken);

    // What the next snapshot no longer has, only the first one has.
    fill(&daemon, "tank/a", 2);
    expect_filled(&daemon, "tank/a", 2);
    place.run(&["snapshot", "create", "tank/a@t"]).expect(0);
    assert_eq!(snapshot(&place, "tank/a@s")["status"]["unique_bytes"], BLOCKS * BLOCK as u64);
    let shown = volume(&place, "tank/a")["status"].clone();
    assert_eq!((&shown["snapshots"], &shown["snapshot_bytes"]), (&json!(2), &json!(BLOCKS * BLOCK as u64)));
    let listed = &place.json(&["volume", "list"])["items"][0]["status"];
    assert_eq!(listed["snapshots"], 2);
    assert!(place.run(&["volume", "show", "tank/a"]).expect(0).out.contains("2 holding 4 MiB"));
    assert!(place.run(&["snapshot", "list"]).expect(0).out.contains("tank/a@s"));

    // A clone has the old contents, and what is written to it is its own.
    let create = ["clone", "create", "tank/a@s", "tank/b"];
    place.run(&[&create[..], &["--dry-run"]].concat()).expect(0);
    place.run(&["volume", "show", "tank/b"]).expect(3);
    let clone = place.json(&create);
    assert_eq!((&clone["name"], &clone["status"]["origin"]), (&"tank/b".into(), &"tank/a@s".into()));
    assert_eq!(clone["spec"]["size_bytes"], 64 << 20);
    place.run(&create).expect(4);
    assert_eq!(snapshot(&place, "tank/a@s")["status"]["clones"], json!(["tank/b"]));
    daemon.kill();
    let daemon = Daemon::start(&place);
    expect_filled(&daemon, "tank/b", 1);
    expect_filled(&daemon, "tank/a", 2);
    fill(&daemon, "tank/b", 3);
    expect_filled(&daemon, "tank/a", 2);

    // Who is connected is not surprised by a rollback.
    {
        let mut nbd = Nbd::open(&daemon.nbd, "tank/a");
        assert!(nbd.read(0, BLOCK) == content(2, 0));
        let words = ["snapshot", "rollback", "tank/a@s"];
        place.run(&[&words[..], &["--yes"]].concat()).expect(5).says("NBD client").says("--force");
        place.run(&[&words[..], &["--dry-run"]].concat()).expect(5).says("NBD client");
        place.run(&[&words[..], &["--force"]].concat()).expect(5).says("--yes");
        let plan = place.json(&[&words[..], &["--force", "--dry-run"]].concat());
        assert_eq!(plan["action"], "volume.rollback");
        assert!(nbd.read(0, BLOCK) == content(2, 0), "nothing has changed");
        place.run(&[&words[..], &["--force", "--yes"]].concat()).expect(0);
        assert!(nbd.read(0, BLOCK) == content(1, 0), "a client that stays sees the old contents");
    }
    expect_filled(&daemon, "tank/a", 1);
    expect_filled(&daemon, "tank/b", 3);

    // A later snapshot stays, so that one can go forward again; the size goes back, too.
    fill(&daemon, "tank/a", 4);
    place.run(&["snapshot", "create", "tank/a@later"]).expect(0);
    place.run(&["volume", "resize", "tank/a", "--size", "128M"]).expect(0);
    fill(&daemon, "tank/a", 5);
    rollback(&place, "tank/a@s");
    expect_filled(&daemon, "tank/a", 1);
    assert_eq!(volume(&place, "tank/a")["spec"]["size_bytes"], 64 << 20);
    assert_eq!(names(&place.json(&["snapshot", "list", "tank/a"])), ["tank/a@s", "tank/a@t", "tank/a@later"]);
    rollback(&place, "tank/a@later");
    expect_filled(&daemon, "tank/a", 4);
    daemon.kill();
    let daemon = Daemon::start(&place);
    expect_filled(&daemon, "tank/a", 4);
    expect_filled(&daemon, "tank/b", 3);
    place.run(&["snapshot", "rollback", "tank/a@nothing", "--yes"]).expect(3);
    place.run(&["snapshot", "rollback", "tank/nothing@s", "--yes"]).expect(3);

    let events = place.run(&["event", "list"]).expect(0).out;
    for code in ["snapshot.created", "volume.cloned", "volume.rolled_back"] {
        assert!(events.contains(code), "{code} in {events}");
    }
    daemon.stop();
    let words = ["check", "--offline", "a", "b"];
    place.run(&words).expect(0);
}

/// Goal: deleting gives back room, and takes nothing that somebody holds on to.
#[test]
fn what_is_held_on_to_is_not_deleted() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    fill(&daemon, "tank/a", 1);
    place.run(&["snapshot", "create", "tank/a@s"]).expect(0);
    fill(&daemon, "tank/a", 2);
    let delete = ["snapshot", "delete", "tank/a@s", "--yes"];

    // Holds and templates.
    place.run(&["snapshot", "hold", "tank/a@s", "--dry-run"]).expect(0);
    assert_eq!(snapshot(&place, "tank/a@s")["spec"]["held"], false);
    assert_eq!(place.json(&["snapshot", "hold", "tank/a@s"])["spec"]["held"], true);
    place.run(&delete).expect(4).says("held").says("snapshot release");
    place.run(&["snapshot", "delete", "tank/a@s", "--dry-run"]).expect(4);
    place.run(&["volume", "delete", "tank/a", "--with-snapshots", "--yes"]).expect(4).says("tank/a@s");
    assert!(place.run(&["snapshot", "list"]).expect(0).out.contains("held"));
    place.run(&["snapshot", "release", "tank/a@s"]).expect(0);
    let template = place.json(&["snapshot", "set", "tank/a@s", "--template", "true"]);
    assert_eq!(template["spec"], json!({"volume": "tank/a", "held": false, "template": true}));
    place.run(&delete).expect(4).says("template");
    daemon.kill();
    let daemon = Daemon::start(&place);
    place.run(&delete).expect(4).says("template");
    place.run(&["snapshot", "set", "tank/a@s", "--template", "false"]).expect(0);

    // Clones. A larger one has zeros behind what it came from.
    let from = ["volume", "create", "tank/b", "--from", "tank/a@s"];
    place.run(&[&from[..], &["--size", "32M"]].concat()).expect(2).says("smaller");
    place.run(&[&from[..], &["--block-size", "8K"]].concat()).expect(2);
    place.run(&["volume", "create", "other/b", "--from", "tank/a@s"]).expect(2).says("pool tank");
    place.run(&["volume", "create", "tank/b", "--from", "tank/a@nothing"]).expect(3);
    place.run(&[&from[..], &["--dry-run"]].concat()).expect(0);
    place.run(&["volume", "show", "tank/b"]).expect(3);
    let clone = place.json(&[&from[..], &["--size", "128M", "--sync", "standard"]].concat());
    assert_eq!(
        (&clone["spec"]["size_bytes"], &clone["spec"]["sync"]),
        (&json!(128 << 20), &"standard".into())
    );
    expect_filled(&daemon, "tank/b", 1);
    assert!(Nbd::open(&daemon.nbd, "tank/b").read(100 << 20, BLOCK).iter().all(|&byte| byte == 0));
    place.run(&delete).expect(4).says("tank/b").says("clone promote");

    // The volume goes with its snapshots or not at all, and not as long as a clone needs one.
    place.run(&["volume", "delete", "tank/a", "--yes"]).expect(5).says("1 snapshot").says("--with-snapshots");
    place.run(&["volume", "delete", "tank/a", "--dry-run"]).expect(5);
    place.run(&["volume", "delete", "tank/a", "--with-snapshots", "--yes"]).expect(4).says("tank/b");
    place.run(&["clone", "promote", "tank/a"]).expect(4).says("not a clone");
    place.run(&["clone", "promote", "tank/b", "--dry-run"]).expect(0);
    assert_eq!(volume(&place, "tank/b")["status"]["origin"], "tank/a@s");
    let promoted = place.json(&["clone", "promote", "tank/b"]);
    assert!(promoted["status"].get("origin").is_none(), "{promoted}");
    assert_eq!(volume(&place, "tank/a")["status"]["origin"], "tank/b@s");
    assert_eq!(names(&place.json(&["snapshot", "list"])), ["tank/b@s"]);
    place.run(&["volume", "delete", "tank/a", "--purge", "--yes"]).expect(0);
    expect_filled(&daemon, "tank/b", 1);

    // What only a snapshot had comes back. Another one, which makes sure that all is written, is in nobody's way.
    fill(&daemon, "tank/b", 3);
    place.run(&["snapshot", "create", "tank/b@t"]).expect(0);
    let used =
        || place.json(&["pool", "status", "tank"])["items"][0]["status"]["used_bytes"].as_u64().unwrap();
    let before = used();
    place.run(&["snapshot", "delete", "tank/b@s"]).expect(5).says("--yes");
    let plan = place.json(&["snapshot", "delete", "tank/b@s", "--dry-run"]);
    assert!(plan["changes"].to_string().contains("4 MiB"), "{plan}");
    place.run(&["snapshot", "delete", "tank/b@s", "--yes"]).expect(0);
    place.run(&["snapshot", "show", "tank/b@s"]).expect(3);
    place.run(&["snapshot", "delete", "tank/b@s", "--yes"]).expect(3);
    assert_eq!(volume(&place, "tank/b")["status"]["snapshots"], 1);
    wait_until("the room is free again", || used() < before);
    expect_filled(&daemon, "tank/b", 3);

    // A volume with its snapshots.
    place.run(&["snapshot", "create", "tank/b@u"]).expect(0);
    place.run(&["volume", "delete", "tank/b", "--yes"]).expect(5).says("2 snapshots");
    // The server may not have noticed yet that nobody is connected.
    let delete = ["volume", "delete", "tank/b", "--with-snapshots", "--purge", "--force"];
    let plan = place.json(&[&delete[..], &["--dry-run"]].concat());
    assert!(plan["changes"].to_string().contains("2 snapshots"), "{plan}");
    place.run(&[&delete[..], &["--yes"]].concat()).expect(0);
    assert_eq!(place.json(&["snapshot", "list"])["items"], json!([]));
    let events = place.run(&["event", "list"]).expect(0).out;
    for code in ["snapshot.changed", "snapshot.deleted", "volume.promoted", "volume.deleted"] {
        assert!(events.contains(code), "{code} in {events}");
    }
    daemon.stop();
    place.run(&["check", "--offline", "a", "b"]).expect(0);
}

#[test]
fn several_volumes_at_one_moment() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    place.run(&["project", "create", "tank/web"]).expect(0);
    place.run(&["volume", "create", "tank/web/b", "--size", "64M"]).expect(0);
    let disk = place.disk("c", 256 << 20);
    place.run(&["pool", "create", "other", "--layout", "single", &disk]).expect(0);
    place.run(&["volume", "create", "other/c", "--size", "64M"]).expect(0);
    let create = |names: &[&str]| place.run(&[&["snapshot", "create"], names].concat());
    for (names, code, words) in [
        (&["tank/a"][..], 2, "POOL/VOLUME@NAME"),
        (&["tank/a@s", "tank/web/b@t"], 2, "same name"),
        (&["tank/a@s", "other/c@s"], 2, "two pools"),
        (&["tank/a@s", "tank/a@s"], 2, "twice"),
        (&["tank/a@a b"], 2, "letters, digits"),
        (&["tank/a@"], 2, "letters, digits"),
        (&["tank/a@s", "tank/nothing@s"], 3, "volume list"),
        (&["nothing/a@s"], 3, "try:"),
    ] {
        create(names).expect(code).says(words);
    }
    let both = ["tank/a@s", "tank/web/b@s"];
    create(&[&both[..], &["--dry-run"]].concat()).expect(0);
    assert_eq!(place.json(&["snapshot", "list"])["items"], json!([]), "nothing was taken so far");

    // Writes to both in turn: the second is never ahead of the first.
    let (mut first, mut second) = (Nbd::open(&daemon.nbd, "tank/a"), Nbd::open(&daemon.nbd, "tank/web/b"));
    let taken = std::thread::scope(|scope| {
        let taking = scope.spawn(|| place.json(&["snapshot", "create", both[0], both[1]]));
        let mut number = 0u8;
        while !taking.is_finished() {
            number = number.wrapping_add(1);
            first.write(0, &[number; BLOCK]);
            second.write(0, &[number; BLOCK]);
        }
        taking.join().expect("the command has ended")
    });
    assert_eq!(names(&taken), both);
    let times: Vec<&Value> =
        taken["items"].as_array().unwrap().iter().map(|item| &item["status"]["created_unix_ms"]).collect();
    assert_eq!(times[0], times[1]);
    place.run(&["clone", "create", both[0], "tank/x"]).expect(0);
    place.run(&["clone", "create", both[1], "tank/y"]).expect(0);
    let x = Nbd::open(&daemon.nbd, "tank/x").read(0, BLOCK)[0];
    let y = Nbd::open(&daemon.nbd, "tank/y").read(0, BLOCK)[0];
    assert!(x == y || x == y.wrapping_add(1), "{x} in the first, {y} in the second");

    create(&["tank/a@s"]).expect(4).says("exists");
    create(&["tank/a@t", "tank/web/b@t"]).expect(0);
    create(&["tank/a@u", "tank/web/b@t"]).expect(2);
    create(&["other/c@s"]).expect(0);
    let listed = |words: &[&str]| place.json(&[&["snapshot", "list"], words].concat());
    let all = listed(&[]);
    assert_eq!(names(&all), ["other/c@s", "tank/a@s", "tank/a@t", "tank/web/b@s", "tank/web/b@t"]);
    assert_eq!(names(&listed(&["--pool", "other"])), ["other/c@s"]);
    assert_eq!(names(&listed(&["tank/web/b"])), ["tank/web/b@s", "tank/web/b@t"]);
    place.run(&["snapshot", "list", "tank/nothing"]).expect(3);
    place.run(&["snapshot", "list", "--pool", "nothing"]).expect(3);
    daemon.stop();
}

#[test]
fn schedules_are_set_and_shown() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    let set = |words: &[&str]| place.run(&[&["volume", "set", "tank/a"], words].concat());
    set(&[]).expect(2);
    set(&["--snapshot-every", "1h"]).expect(2).says("--snapshot-keep");
    set(&["--snapshot-keep", "24"]).expect(2).says("--snapshot-every");
    set(&["--snapshot-every", "1s", "--snapshot-keep", "24"]).expect(2).says("1 minute");
    set(&["--snapshot-every", "1h", "--snapshot-keep", "1001"]).expect(2).says("1 to 1000");
    set(&["--snapshot-every", "1h", "--snapshot-keep", "24", "--dry-run"]).expect(0);
    let spec = || volume(&place, "tank/a")["spec"].clone();
    assert_eq!((&spec()["snapshot_every_seconds"], &spec()["snapshot_keep"]["last"]), (&json!(0), &json!(0)));
    set(&["--snapshot-every", "1h", "--snapshot-keep", "24", "--sync", "standard"]).expect(0);
    set(&["--snapshot-keep", "48"]).expect(0);
    daemon.kill();
    let daemon = Daemon::start(&place);
    assert_eq!(
        (&spec()["snapshot_every_seconds"], &spec()["snapshot_keep"]["last"]),
        (&json!(3600), &json!(48))
    );
    assert_eq!(spec()["sync"], "standard");
    assert!(place.run(&["volume", "show", "tank/a"]).expect(0).out.contains("1h, 48 kept"));
    assert!(place.run(&["volume", "list"]).expect(0).out.contains("1h, 48 kept"));
    set(&["--snapshot-keep", "hourly=24,hourly=2"]).expect(2).says("twice");
    set(&["--snapshot-keep", "yearly=3"]).expect(2).says("hourly=24");
    set(&["--snapshot-keep", "hourly=24,daily=7,weekly=4,monthly=12"]).expect(0);
    let tiers = json!({"last": 0, "hourly": 24, "daily": 7, "weekly": 4, "monthly": 12});
    assert_eq!(spec()["snapshot_keep"], tiers);
    let shown = "every 1h, kept hourly=24,daily=7,weekly=4,monthly=12";
    assert!(place.run(&["volume", "show", "tank/a"]).expect(0).out.contains(shown));

    // The first one is due at once.
    wait_until("a snapshot is taken", || place.json(&["snapshot", "list"])["items"] != json!([]));
    let taken = &place.json(&["snapshot", "list", "tank/a"])["items"][0];
    assert_eq!(taken["status"]["scheduled"], true);
    assert!(place.run(&["snapshot", "list"]).expect(0).out.contains("scheduled"));
    set(&["--snapshot-every", "0"]).expect(0);
    assert_eq!((&spec()["snapshot_every_seconds"], &spec()["snapshot_keep"]["last"]), (&json!(0), &json!(0)));
    assert_eq!(
        place.json(&["snapshot", "list"])["items"].as_array().unwrap().len(),
        1,
        "what was taken stays"
    );
    daemon.stop();
}

#[test]
fn the_api_of_snapshots() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    tank(&place);
    let token = |role: &str| {
        let made = place.json(&["token", "create", role, "--role", role]);
        made["secret"].as_str().expect("a secret").to_string()
    };
    let (viewer, operator) = (token("viewer"), token("operator"));
    let api = daemon.api(&operator);
    let body = json!({"volumes": ["tank/a"], "name": "s"});
    daemon.api(&viewer).post("/api/v1/snapshots", body.clone()).problem(403, "forbidden");
    let plan = api.post("/api/v1/snapshots?dry_run=true", body.clone());
    assert_eq!((plan.status, plan.json()["action"].clone()), (200, json!("snapshot.create")));
    assert_eq!(api.get("/api/v1/snapshots").json()["items"], json!([]));
    let key = "Idempotency-Key: s";
    let made = api.call("POST", "/api/v1/snapshots", key, Some(body.clone()));
    assert_eq!(
        (made.status, made.header("location")),
        (201, Some("/api/v1/snapshots/tank%2Fa%40s")),
        "{made:?}"
    );
    assert_eq!(made.json()["items"][0]["name"], "tank/a@s");
    let again = api.call("POST", "/api/v1/snapshots", key, Some(body.clone()));
    assert_eq!((again.status, &again.body), (201, &made.body));
    api.post("/api/v1/snapshots", body).problem(409, "conflict");
    for (body, field) in [
        (json!({"volumes": [], "name": "t"}), "volumes"),
        (json!({"volumes": ["tank/a"], "name": "t/u"}), "name"),
        (json!({"volumes": ["tank/a"], "name": "t", "held": true}), "held"),
    ] {
        assert_eq!(api.post("/api/v1/snapshots", body).problem(400, "invalid")["field"], field);
    }
    let path = "/api/v1/snapshots/tank%2Fa%40s";
    assert_eq!(daemon.api(&viewer).get(path).json()["spec"]["volume"], "tank/a");
    api.get("/api/v1/snapshots/tank/a@s").problem(404, "not_found");
    api.get("/api/v1/snapshots/tank%2Fa%40t").problem(404, "not_found");

    // Versions: of the snapshot, and of the volume's schedule.
    let tag = api.get(path).header("etag").expect("a tag").to_string();
    let hold = |tag: &str, held: bool| {
        api.call("PATCH", path, &format!("If-Match: {tag}"), Some(json!({"held": held})))
    };
    let held = hold(&tag, true);
    assert_eq!((held.status, &held.json()["spec"]["held"]), (200, &json!(true)));
    hold(&tag, false).problem(412, "precondition_failed");
    assert_eq!(held.json()["conditions"][0]["reason"], "Held");
    api.call("DELETE", path, "", None).problem(409, "conflict");
    let released = hold(held.header("etag").expect("a tag"), false);
    assert_eq!(released.header("etag"), Some(tag.as_str()), "it is as it was");
    let volume = "/api/v1/volumes/tank%2Fa";
    let tag = api.get(volume).header("etag").expect("a tag").to_string();
    let schedule = json!({"snapshot_every_seconds": 86400, "snapshot_keep": {"last": 7}});
    let set = api.call("PATCH", volume, &format!("If-Match: {tag}"), Some(schedule.clone()));
    assert_eq!((set.status, &set.json()["spec"]["snapshot_keep"]["last"]), (200, &json!(7)));
    api.call("PATCH", volume, &format!("If-Match: {tag}"), Some(schedule))
        .problem(412, "precondition_failed");
    assert_eq!(api.call("PATCH", volume, "", Some(json!({"snapshot_every_seconds": 0}))).status, 200);

    // Clones, promotion, rollback.
    let clone = api.post(&format!("{path}/clone"), json!({"name": "tank/b"}));
    assert_eq!(
        (clone.status, clone.header("location")),
        (201, Some("/api/v1/volumes/tank%2Fb")),
        "{clone:?}"
    );
    assert_eq!(clone.header("etag"), api.get("/api/v1/volumes/tank%2Fb").header("etag"));
    let other = json!({"name": "tank/c", "from_snapshot": "tank/a@s", "size_bytes": 128 << 20});
    let other = api.post("/api/v1/volumes", other);
    assert_eq!((other.status, &other.json()["spec"]["size_bytes"]), (201, &json!(128 << 20)), "{other:?}");
    let none = json!({"name": "tank/d"});
    assert_eq!(api.post("/api/v1/volumes", none).problem(400, "invalid")["field"], "size_bytes");
    let back = api.post(&format!("{path}/rollback"), json!({}));
    assert_eq!((back.status, &back.json()["name"]), (200, &json!("tank/a")), "{back:?}");
    let promoted = api.call("POST", "/api/v1/volumes/tank%2Fb/promote", "", None);
    assert_eq!(promoted.status, 200, "{promoted:?}");
    let path = "/api/v1/snapshots/tank%2Fb%40s";
    assert_eq!(api.get(path).json()["status"]["clones"], json!(["tank/a", "tank/c"]));
    for volume in ["tank%2Fa", "tank%2Fc"] {
        assert_eq!(
            api.call("DELETE", &format!("/api/v1/volumes/{volume}?purge=true"), "", None).status,
            204,
            "{volume}"
        );
    }

    // Pages, in the order in which they were taken.
    for name in ["z", "y", "x"] {
        let body = json!({"volumes": ["tank/b"], "name": name});
        assert_eq!(api.post("/api/v1/snapshots", body).status, 201);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/api/v1/snapshots?volume=tank%2Fb&limit=2{cursor}")).json();
        seen.extend(names(&page).into_iter().map(str::to_string));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={}", forebay_api::encode_segment(next));
    }
    assert_eq!(seen, ["tank/b@s", "tank/b@z", "tank/b@y", "tank/b@x"]);
    api.call("DELETE", "/api/v1/volumes/tank%2Fb", "", None).problem(409, "unsafe");
    assert_eq!(api.call("DELETE", path, "", None).status, 204);
    assert_eq!(api.call("DELETE", "/api/v1/volumes/tank%2Fb?with_snapshots=true", "", None).status, 204);
    assert_eq!(api.get("/api/v1/snapshots").json()["items"], json!([]));
    daemon.stop();
}
