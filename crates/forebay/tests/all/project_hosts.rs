//! Are volumes mapped to the hosts that their project says, at once and whatever brings them there, unless they have hosts of their own?
//!
//! Method: the real daemon, its command line and its REST API; `kill -9` comes in between.

use crate::common::{Daemon, Finished, Place, mapped, program};
use serde_json::{Value, json};
use std::fs::File;

/// The hosts of a volume or project, and where they come from.
fn hosts(place: &Place, noun: &str, name: &str) -> (Value, Value) {
    let spec = place.json(&[noun, "show", name])["spec"].clone();
    (spec["hosts"].clone(), spec["sources"]["hosts"].clone())
}

fn from(names: &[&str], source: &str) -> (Value, Value) {
    (json!(names), json!(source))
}

/// What a dry run says would change.
fn plan(place: &Place, words: &[&str]) -> Vec<String> {
    let plan = place.json(&[words, &["--dry-run"]].concat());
    let changes = plan["changes"].as_array().expect("a list").iter();
    changes.map(|change| change.as_str().expect("a sentence").to_string()).collect()
}

fn begin(place: &Place) -> (Daemon, String) {
    place.disks();
    let daemon = Daemon::start(place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    for name in ["esx1", "esx2", "esx3"] {
        place.run(&["host", "create", name, "--iqn", &format!("iqn.2026-01.example:{name}")]).expect(0);
    }
    place.run(&["host", "group", "create", "cluster", "--host", "esx1", "esx2"]).expect(0);
    let secret = place.run(&["token", "create", "robot", "--role", "operator"]).expect(0).out;
    (daemon, secret.trim().to_string())
}

#[test]
fn volumes_are_mapped_to_whom_their_project_says() {
    let place = Place::new();
    let (daemon, secret) = begin(&place);
    let api = daemon.api(&secret);
    let volume = |name: &str, more: &[&str]| {
        place.run(&[&["volume", "create", name, "--size", "16M"], more].concat()).expect(0)
    };
    let create = ["project", "create", "tank/web", "--host", "esx1"];
    assert!(plan(&place, &create).contains(&"They are mapped to esx1.".to_string()));
    place.run(&["project", "create", "tank/web", "--host", "nobody"]).expect(3).says("host list");
    place.run(&["project", "create", "tank/web", "--host", "esx1", "cluster"]).expect(4).says("esx1 twice");
    place.run(&["project", "show", "tank/web"]).expect(3);
    place.run(&create).expect(0);
    assert_eq!(hosts(&place, "project", "tank/web"), from(&["esx1"], "own"));

    // New volumes, unless they are told otherwise or belong to nothing.
    let told = plan(&place, &["volume", "create", "tank/web/a", "--size", "16M"]);
    assert!(told.contains(&"esx1 gains tank/web/a as LUN 0.".to_string()), "{told:?}");
    volume("tank/web/a", &[]);
    volume("tank/alone", &[]);
    volume("tank/web/own", &["--host", "esx3"]);
    volume("tank/web/b", &[]);
    let begun = ["tank/web/a esx1 0", "tank/web/b esx1 1", "tank/web/own esx3 0"];
    assert_eq!(mapped(&api), begun);
    assert_eq!(hosts(&place, "volume", "tank/web/a"), from(&["esx1"], "project"));
    assert_eq!(hosts(&place, "volume", "tank/web/own"), from(&["esx3"], "own"));
    assert_eq!(hosts(&place, "volume", "tank/alone"), from(&[], "default"));
    let shown = place.run(&["volume", "show", "tank/web/a"]).expect(0).out;
    assert!(shown.contains("hosts       esx1 (project)"), "{shown}");
    let shown = place.run(&["project", "show", "tank/web"]).expect(0).out;
    assert!(shown.contains("hosts       esx1 (own)"), "{shown}");

    // Other hosts for all of them, which a dry run tells, and a crash takes nothing back.
    let set = |words: &[&str]| place.run(&[&["project", "set", "tank/web"], words].concat());
    set(&["--host", "cluster", "--inherit", "hosts"]).expect(2).says("one of them");
    set(&["--host", "nobody"]).expect(3);
    set(&["--host", "cluster", "esx2"]).expect(4).says("host esx2 twice");
    let cluster = ["project", "set", "tank/web", "--host", "cluster", "--compression", "off"];
    let told = plan(&place, &cluster);
    assert!(told.contains(&"hosts set to cluster".to_string()), "{told:?}");
    assert!(told.contains(&"esx2 gains 2 volumes".to_string()), "{told:?}");
    assert!(!told.iter().any(|line| line.starts_with("esx1")), "it goes on seeing them: {told:?}");
    assert_eq!(mapped(&api), begun);
    place.run(&cluster).expect(0);
    let now = ["tank/web/a cluster 0", "tank/web/b cluster 1", "tank/web/own esx3 0"];
    assert_eq!(mapped(&api), now);
    assert_eq!(hosts(&place, "volume", "tank/web/b"), from(&["cluster"], "project"));
    daemon.kill();
    let daemon = Daemon::start(&place);
    let api = daemon.api(&secret);
    assert_eq!(mapped(&api), now);
    assert_eq!(hosts(&place, "project", "tank/web"), from(&["cluster"], "own"));

    // Nobody, and again somebody.
    let told = plan(&place, &["project", "set", "tank/web", "--inherit", "hosts"]);
    assert!(told.contains(&"esx1, esx2 lose 2 volumes".to_string()), "{told:?}");
    set(&["--inherit", "hosts"]).expect(0);
    assert_eq!(mapped(&api), ["tank/web/own esx3 0"]);
    assert_eq!(hosts(&place, "project", "tank/web"), from(&[], "default"));
    assert_eq!(hosts(&place, "volume", "tank/web/a"), from(&[], "default"));
    set(&["--host", "esx3", "esx1"]).expect(0);
    assert_eq!(
        mapped(&api),
        [
            "tank/web/a esx1 0",
            "tank/web/a esx3 1",
            "tank/web/b esx1 1",
            "tank/web/b esx3 2",
            "tank/web/own esx3 0"
        ]
    );
    let events = place.run(&["event", "list"]).expect(0).out;
    for words in ["esx1, esx2 lose 2 volumes", "mapping.inherited esx1: gains tank/web/a as LUN 0"] {
        let flat = events.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "{words} in {flat}");
    }
    daemon.stop();
    place.run(&["check", "--offline", "a", "b"]).expect(0);
}

#[test]
fn a_volume_that_is_mapped_by_hand_has_hosts_of_its_own() {
    let place = Place::new();
    let (daemon, secret) = begin(&place);
    let api = daemon.api(&secret);
    place.run(&["project", "create", "tank/web", "--host", "esx1", "esx2"]).expect(0);
    for name in ["tank/web/a", "tank/web/b", "tank/web/c"] {
        place.run(&["volume", "create", name, "--size", "16M"]).expect(0);
    }
    let unmap = ["volume", "unmap", "tank/web/b", "--host", "esx1"];
    let told = plan(&place, &unmap).join(" ");
    assert!(told.contains("esx1 loses the volume") && told.contains("--inherit hosts"), "{told}");
    assert_eq!(hosts(&place, "volume", "tank/web/b"), from(&["esx1", "esx2"], "project"));
    let out = place.run(&unmap).expect(0).out;
    assert!(
        out.contains("no longer inherits the hosts") && out.contains("tank/web/b --inherit hosts"),
        "{out}"
    );
    assert_eq!(hosts(&place, "volume", "tank/web/b"), from(&["esx2"], "own"));
    let map = ["volume", "map", "tank/web/c", "--host", "esx3", "--lun", "7"];
    let told = plan(&place, &map).join(" ");
    assert!(told.contains("LUN 7") && told.contains("--inherit hosts"), "{told}");
    // What is refused makes nothing its own.
    place.run(&["volume", "map", "tank/web/a", "--host", "esx1", "--lun", "9"]).expect(4);
    assert_eq!(hosts(&place, "volume", "tank/web/a"), from(&["esx1", "esx2"], "project"));
    assert!(place.run(&map).expect(0).out.contains("no longer inherits the hosts"));
    let again = place.run(&["volume", "map", "tank/web/b", "--host", "esx3"]).expect(0).out;
    assert!(!again.contains("no longer inherits the hosts"), "they were before: {again}");
    let own = [
        "tank/web/b esx2 1",
        "tank/web/b esx3 0",
        "tank/web/c esx1 2",
        "tank/web/c esx2 2",
        "tank/web/c esx3 7",
    ];
    assert_eq!(mapped(&api), [&["tank/web/a esx1 0", "tank/web/a esx2 0"], &own[..]].concat());

    // The project has nothing to do with them any more, whatever happens.
    place.run(&["project", "set", "tank/web", "--host", "esx3"]).expect(0);
    assert_eq!(mapped(&api), [&["tank/web/a esx3 1"], &own[..]].concat());
    daemon.kill();
    let daemon = Daemon::start(&place);
    let api = daemon.api(&secret);
    place.run(&["volume", "create", "tank/web/d", "--size", "16M"]).expect(0);
    assert_eq!(mapped(&api), [&["tank/web/a esx3 1"], &own[..], &["tank/web/d esx3 2"]].concat());

    // Until one follows it again: the number at the host that stays is the old one.
    let inherit = ["volume", "set", "tank/web/c", "--inherit", "hosts"];
    let told = plan(&place, &inherit);
    assert!(told.contains(&"esx1, esx2 lose tank/web/c (LUN 2)".to_string()), "{told:?}");
    assert_eq!(hosts(&place, "volume", "tank/web/c"), from(&["esx1", "esx2", "esx3"], "own"));
    place.run(&inherit).expect(0);
    assert_eq!(hosts(&place, "volume", "tank/web/c"), from(&["esx3"], "project"));
    let now = ["tank/web/a esx3 1", own[0], own[1], "tank/web/c esx3 7", "tank/web/d esx3 2"];
    assert_eq!(mapped(&api), now);

    // What belongs to no project has what it was given, until that is taken away.
    place.run(&["volume", "create", "tank/alone", "--size", "16M"]).expect(0);
    let out = place.run(&["volume", "map", "tank/alone", "--host", "esx3", "--lun", "99"]).expect(0).out;
    assert!(!out.contains("no longer inherits the hosts"), "{out}");
    assert_eq!(hosts(&place, "volume", "tank/alone"), from(&["esx3"], "own"));
    place.run(&["volume", "set", "tank/alone", "--inherit", "hosts"]).expect(0);
    assert_eq!(hosts(&place, "volume", "tank/alone"), from(&[], "default"));
    assert_eq!(mapped(&api), now);

    // A host that projects name does not go unasked, nor one that a group brings in twice.
    let delete = ["host", "delete", "esx3", "--yes"];
    place.run(&delete).expect(5).says("projects name it: tank/web");
    place.run(&["host", "group", "create", "both", "--host", "esx3"]).expect(0);
    place.run(&["project", "create", "tank/db", "--host", "esx3", "cluster"]).expect(0);
    place.run(&["host", "group", "set", "cluster", "--host", "esx3"]).expect(4).says("esx3 twice");
    place.run(&["host", "group", "delete", "cluster", "--yes"]).expect(5).says("projects name it: tank/db");
    let told = plan(&place, &["host", "delete", "esx3", "--unmap"]).join(" ");
    assert!(told.contains("projects that name it: tank/web, tank/db."), "{told}");
    place.run(&[&delete[..], &["--unmap"]].concat()).expect(0);
    assert_eq!(mapped(&api), [own[0]]);
    assert_eq!(hosts(&place, "project", "tank/web"), from(&[], "default"));
    assert_eq!(hosts(&place, "project", "tank/db"), from(&["cluster"], "own"));
    daemon.stop();
}

#[test]
fn whatever_brings_a_volume_into_a_project_maps_it() {
    let place = Place::new();
    let (daemon, secret) = begin(&place);
    let api = daemon.api(&secret);
    place.run(&["project", "create", "tank/web", "--host", "esx1"]).expect(0);
    place.run(&["project", "create", "tank/db", "--host", "esx2"]).expect(0);
    for name in ["tank/web/a", "tank/web/b"] {
        place.run(&["volume", "create", name, "--size", "16M"]).expect(0);
    }
    place.run(&["snapshot", "create", "tank/web/a@s"]).expect(0);
    // A clone is mapped where it is, also one of a volume with hosts of its own; unless it has some.
    place.run(&["clone", "create", "tank/web/a@s", "tank/db/clone"]).expect(0);
    place.run(&["volume", "create", "tank/db/own", "--from", "tank/web/a@s", "--host", "esx3"]).expect(0);
    assert_eq!(hosts(&place, "volume", "tank/db/own"), from(&["esx3"], "own"));
    let stream = place.path().join("stream");
    let mut send = program();
    send.args(["snapshot", "send", "tank/web/a@s", "--data"]).arg(place.data());
    send.stdout(File::create(&stream).expect("a file can be made"));
    assert!(send.status().expect("it runs").success());
    let mut receive = program();
    receive.args(["snapshot", "receive", "tank/db/received", "--data"]).arg(place.data());
    receive.stdin(File::open(&stream).expect("it was written just now"));
    Finished::of(receive, &["receive"]).expect(0);
    assert_eq!(
        mapped(&api),
        [
            "tank/db/clone esx2 0",
            "tank/db/own esx3 0",
            "tank/db/received esx2 1",
            "tank/web/a esx1 0",
            "tank/web/b esx1 1"
        ]
    );
    // One that comes back from the trash has its number: nobody else got it meanwhile.
    place.run(&["volume", "delete", "tank/web/b", "--yes"]).expect(0);
    place.run(&["volume", "create", "tank/web/c", "--size", "16M"]).expect(0);
    let told = plan(&place, &["volume", "restore", "tank/web/b"]).join(" ");
    assert!(told.contains("esx1 gains tank/web/b as LUN 1"), "{told}");
    place.run(&["volume", "restore", "tank/web/b"]).expect(0);
    assert_eq!(mapped(&api)[3..], ["tank/web/a esx1 0", "tank/web/b esx1 1", "tank/web/c esx1 2"]);
    place.run(&["volume", "delete", "tank/db/own", "--yes"]).expect(0);
    place.run(&["volume", "restore", "tank/db/own"]).expect(0);
    assert_eq!(hosts(&place, "volume", "tank/db/own"), from(&[], "own"), "its hosts are forgotten");

    // The answer to whoever made it says so already; and the entry goes with the project.
    let body = json!({"name": "tank/web/d", "size_bytes": 16 << 20});
    let made = api.post("/api/v1/volumes", body);
    assert_eq!((made.status, &made.json()["spec"]["hosts"]), (201, &json!(["esx1"])));
    let tag = made.header("etag").expect("a tag").to_string();
    let shown = api.get("/api/v1/volumes/tank%2Fweb%2Fd");
    assert_eq!(shown.header("etag"), Some(&*tag));
    for refused in [json!({"hosts": []}), json!({"hosts": ["esx1"], "inherit": ["hosts"]})] {
        api.call("PATCH", "/api/v1/projects/tank%2Fweb", "", Some(refused)).problem(400, "invalid");
    }
    for name in ["tank/db/clone", "tank/db/received", "tank/db/own"] {
        place.run(&["volume", "delete", name, "--yes", "--purge", "--with-snapshots"]).expect(0);
    }
    place.run(&["project", "delete", "tank/db"]).expect(0);
    place.run(&["host", "delete", "esx2", "--yes"]).expect(0);
    // Nor does a pool that is exported and comes back change any number.
    let before = mapped(&api);
    place.run(&["pool", "export", "tank"]).expect(0);
    assert_eq!(mapped(&api), before);
    place.run(&["pool", "import", "tank", "./a", "./b"]).expect(0);
    assert_eq!(mapped(&api), before);
    place.run(&["pool", "destroy", "tank", "--yes"]).expect(0);
    assert_eq!(mapped(&api), Vec::<String>::new());
    daemon.stop();
}

#[test]
fn a_volume_moves_to_where_its_hosts_are_the_same() {
    let place = Place::new();
    let (daemon, secret) = begin(&place);
    let api = daemon.api(&secret);
    for name in ["c", "d"] {
        place.disk(name, 256 << 20);
    }
    place.run(&["pool", "create", "vault", "--layout", "mirror", "c", "d"]).expect(0);
    place.run(&["project", "create", "tank/web", "--host", "esx1", "esx3"]).expect(0);
    place.run(&["project", "create", "vault/web", "--host", "esx3"]).expect(0);
    for name in ["tank/web/a", "tank/web/own"] {
        place.run(&["volume", "create", name, "--size", "16M"]).expect(0);
    }
    place.run(&["volume", "unmap", "tank/web/own", "--host", "esx3"]).expect(0);
    let go = ["volume", "move", "tank/web/a", "vault"];
    let remedy = "project set vault/web --host esx1 esx3";
    place.run(&[&go[..], &["--dry-run"]].concat()).expect(4).says(remedy);
    place.run(&go).expect(4).says("tank/web has esx1, esx3, but project vault/web has esx3");
    place.run(&["project", "set", "vault/web", "--host", "esx3", "esx1"]).expect(0);
    place.run(&go).expect(0);
    place.run(&["volume", "move", "tank/web/own", "vault"]).expect(0);
    let now = ["vault/web/a esx1 0", "vault/web/a esx3 0", "vault/web/own esx1 1"];
    assert_eq!(mapped(&api), now);
    assert_eq!(hosts(&place, "volume", "vault/web/own"), from(&["esx1"], "own"));
    // From now on it follows the project that it is in.
    place.run(&["project", "set", "tank/web", "--host", "esx2"]).expect(0);
    assert_eq!(mapped(&api), now);
    place.run(&["project", "set", "vault/web", "--host", "esx1"]).expect(0);
    assert_eq!(mapped(&api), ["vault/web/a esx1 0", "vault/web/own esx1 1"]);
    daemon.stop();
}
