//! Do volumes do what their project says, does everybody see where a value comes from, and do clients find them under their names?
//!
//! Method: the real daemon, its command line and its REST API; data goes through NBD, and `kill -9` comes in between.

use crate::common::{Daemon, Nbd, Place};
use serde_json::{Value, json};

const BLOCK: usize = 8192;

/// A property's value and where it comes from.
fn said(place: &Place, volume: &str, value: &str, source: &str) -> (Value, Value) {
    let spec = place.json(&["volume", "show", volume])["spec"].clone();
    (spec[value].clone(), spec["sources"][source].clone())
}

fn compression(place: &Place, volume: &str) -> (Value, Value) {
    said(place, volume, "compression", "compression")
}

fn from(value: &str, source: &str) -> (Value, Value) {
    (json!(value), json!(source))
}

#[test]
fn volumes_do_what_their_project_says() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    assert!(place.run(&["project", "list"]).expect(0).out.contains("forebay project create"));
    let volume =
        |name: &str, more: &[&str]| place.run(&[&["volume", "create", name, "--size", "16M"], more].concat());
    volume("tank/db/data", &[]).expect(3).says("forebay project create tank/db");
    volume("tank/db/data", &["--dry-run"]).expect(3);
    let create = ["project", "create", "tank/db", "--compression", "zstd-3", "--block-size", "64K"];
    place.run(&["project", "create", "tank/db", "--compression", "zip"]).expect(2).says("zstd");
    place.run(&["project", "create", "tank/db", "--snapshot-every", "1h"]).expect(2).says("--snapshot-keep");
    place.run(&["project", "create", "nothing/db"]).expect(3);
    place.run(&["project", "create", "tank"]).expect(2).says("POOL/PROJECT");
    place.run(&[&create[..], &["--dry-run"]].concat()).expect(0);
    place.run(&["project", "show", "tank/db"]).expect(3).says("project list");
    place.run(&create).expect(0);
    place.run(&create).expect(4);
    volume("tank/db", &[]).expect(4).says("project");
    volume("tank/db/a/b", &[]).expect(2);
    volume("tank/db/data", &[]).expect(0);
    volume("tank/db/log", &["--compression", "off", "--block-size", "8K"]).expect(0);
    volume("tank/data", &[]).expect(0);
    place.run(&["project", "create", "tank/data"]).expect(4).says("volume");

    // Values, and where they come from.
    assert_eq!(compression(&place, "tank/db/data"), from("zstd-3", "project"));
    assert_eq!(compression(&place, "tank/db/log"), from("off", "own"));
    assert_eq!(compression(&place, "tank/data"), from("lz4", "default"));
    let data = place.json(&["volume", "show", "tank/db/data"]);
    assert_eq!(
        (&data["spec"]["block_size_bytes"], &data["status"]["project"]),
        (&json!(65536), &json!("tank/db"))
    );
    let shown = place.run(&["volume", "show", "tank/db/data"]).expect(0).out;
    for words in ["compression zstd-3 (project)", "sync        always (default)", "project     tank/db"] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    let shown = place.run(&["project", "show", "tank/db"]).expect(0).out;
    for words in ["compression zstd-3 (own)", "sync        always (default)", "volumes     2, 0 in the trash"]
    {
        assert!(shown.contains(words), "{words} in {shown}");
    }
    assert!(place.run(&["project", "list"]).expect(0).out.contains("zstd-3"));

    // It changes for those that inherit it, while clients use them; and a crash takes nothing back.
    let mut nbd = Nbd::open(&daemon.nbd, "tank/db/data");
    nbd.write(0, &[7; BLOCK]);
    let set = |words: &[&str]| place.run(&[&["project", "set", "tank/db"], words].concat());
    set(&[]).expect(2);
    set(&["--compression", "gzip-2", "--inherit", "compression"]).expect(2).says("one of them");
    set(&["--inherit", "size"]).expect(2).says("snapshot-schedule");
    let plan = place.json(&["project", "set", "tank/db", "--compression", "gzip-2", "--dry-run"]);
    assert!(plan["changes"].to_string().contains("gzip-2"), "{plan}");
    assert_eq!(compression(&place, "tank/db/data"), from("zstd-3", "project"));
    set(&["--compression", "gzip-2", "--sync", "standard"]).expect(0);
    for _ in 0..2 {
        assert_eq!(compression(&place, "tank/db/data"), from("gzip-2", "project"));
        assert_eq!(said(&place, "tank/db/data", "sync", "sync"), from("standard", "project"));
        assert_eq!(compression(&place, "tank/db/log"), from("off", "own"));
        if Nbd::open(&daemon.nbd, "tank/db/data").read(0, BLOCK) != [7; BLOCK] {
            panic!("what was written is gone");
        }
    }
    drop(nbd);
    daemon.kill();
    let daemon = Daemon::start(&place);
    assert_eq!(compression(&place, "tank/db/data"), from("gzip-2", "project"));
    place.run(&["volume", "set", "tank/db/log", "--inherit", "compression"]).expect(0);
    assert_eq!(compression(&place, "tank/db/log"), from("gzip-2", "project"));
    place.run(&["volume", "set", "tank/db/log", "--inherit", "block-size"]).expect(2);
    place.run(&["volume", "set", "tank/db/log", "--compression", "gzip-2"]).expect(0);
    assert_eq!(compression(&place, "tank/db/log"), from("gzip-2", "own"), "it was asked for");
    set(&["--inherit", "compression,sync"]).expect(0);
    assert_eq!(compression(&place, "tank/db/data"), from("lz4", "default"));
    assert_eq!(compression(&place, "tank/db/log"), from("gzip-2", "own"));

    // The same name in another project is another volume.
    place.run(&["project", "create", "tank/web"]).expect(0);
    volume("tank/web/data", &[]).expect(0);
    for (byte, name) in [(1, "tank/db/data"), (2, "tank/web/data"), (3, "tank/data")] {
        Nbd::open(&daemon.nbd, name).write(0, &[byte; BLOCK]);
    }
    for (byte, name) in [(1, "tank/db/data"), (2, "tank/web/data"), (3, "tank/data")] {
        assert_eq!(Nbd::open(&daemon.nbd, name).read(0, BLOCK), [byte; BLOCK]);
    }

    // A project does not go from under its volumes.
    let delete = ["project", "delete", "tank/web"];
    place.run(&delete).expect(4).says("volumes");
    place.run(&["volume", "delete", "tank/web/data", "--yes"]).expect(0);
    place.run(&[&delete[..], &["--dry-run"]].concat()).expect(4).says("trash");
    place.run(&delete).expect(4).says("trash");
    place.run(&["volume", "purge", "tank/web/data", "--yes"]).expect(0);
    place.run(&[&delete[..], &["--dry-run"]].concat()).expect(0);
    place.run(&delete).expect(0);
    place.run(&delete).expect(3);
    let events = place.run(&["event", "list"]).expect(0).out;
    for code in ["project.created", "project.changed", "project.deleted"] {
        assert!(events.contains(code), "{code} in {events}");
    }
    daemon.stop();
    place.run(&["check", "--offline", "a", "b"]).expect(0);
}

#[test]
fn a_project_has_snapshots_of_one_moment() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    for name in ["tank/db", "tank/none"] {
        place.run(&["project", "create", name]).expect(0);
    }
    for name in ["tank/db/a", "tank/db/b", "tank/other"] {
        place.run(&["volume", "create", name, "--size", "16M"]).expect(0);
    }
    place.run(&["snapshot", "create", "tank/none@s"]).expect(4).says("no volumes");
    place.run(&["snapshot", "create", "tank/nothing@s"]).expect(3);
    place.run(&["snapshot", "create", "tank/db@s", "tank/db/a@s"]).expect(2).says("twice");
    place.run(&["snapshot", "create", "tank/db@s", "--dry-run"]).expect(0);
    assert_eq!(place.json(&["snapshot", "list"])["items"], json!([]));
    let taken = place.json(&["snapshot", "create", "tank/db@s"]);
    let items = taken["items"].as_array().expect("a list");
    let names: Vec<_> = items.iter().map(|item| item["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["tank/db/a@s", "tank/db/b@s"]);
    assert_eq!(items[0]["status"]["created_unix_ms"], items[1]["status"]["created_unix_ms"]);
    assert_eq!(place.json(&["snapshot", "list"])["items"].as_array().map(Vec::len), Some(2));
    daemon.stop();
}

#[test]
fn the_api_versions_projects() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    let secret = place.run(&["token", "create", "robot", "--role", "operator"]).expect(0).out;
    let api = daemon.api(secret.trim());
    let made = api.post("/api/v1/projects", json!({"name": "tank/db", "sync": "standard"}));
    assert_eq!((made.status, made.header("location")), (201, Some("/api/v1/projects/tank%2Fdb")));
    api.post("/api/v1/projects", json!({"name": "tank/db"})).problem(409, "conflict");
    let tag = made.header("etag").expect("a tag").to_string();
    let volume = "/api/v1/volumes/tank%2Fdb%2Fa";
    let body = json!({"name": "tank/db/a", "size_bytes": 16 << 20});
    assert_eq!(api.post("/api/v1/volumes", body).status, 201);
    let before = api.get(volume).header("etag").map(str::to_string);
    let project = "/api/v1/projects/tank%2Fdb";
    let set = |tag: &str, body: Value| api.call("PATCH", project, &format!("If-Match: {tag}"), Some(body));
    let changed = set(&tag, json!({"compression": "zstd-9", "inherit": ["sync"]}));
    assert_eq!(changed.status, 200, "{changed:?}");
    let spec = changed.json()["spec"].clone();
    assert_eq!((&spec["compression"], &spec["sources"]["compression"]), (&json!("zstd-9"), &json!("own")));
    assert_eq!((&spec["sync"], &spec["sources"]["sync"]), (&json!("always"), &json!("default")));
    set(&tag, json!({"sync": "always"})).problem(412, "precondition_failed");
    set("*", json!({"quota": 1})).problem(400, "invalid");
    assert_ne!(api.get(volume).header("etag").map(str::to_string), before, "what holds for it has changed");
    assert_eq!(api.get(volume).json()["spec"]["sources"]["compression"], "project");
    let id = changed.json()["id"].as_str().expect("an id").to_string();
    let by_id = api.get(&format!("/api/v1/projects/{id}")).json();
    assert_eq!((&by_id["name"], &by_id["status"]["volumes"]), (&json!("tank/db"), &json!(1)));
    assert_eq!(by_id["conditions"][0]["reason"], "Used");
    assert_eq!(api.get("/api/v1/projects?pool=tank").json()["items"].as_array().map(Vec::len), Some(1));
    api.call("DELETE", project, "", None).problem(409, "conflict");
    daemon.stop();
}
