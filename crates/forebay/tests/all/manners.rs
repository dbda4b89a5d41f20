//! Does the command line behave as people who know others expect: other names of verbs, help by name, lists as they are asked for, names that change, sizes with
//! a sign, mistakes in words for people and as JSON for programs?
//!
//! Method: the real program against its own daemon.

use crate::common::{Daemon, Place, mapped};
use serde_json::{Value, json};

fn lines(place: &Place, words: &[&str]) -> Vec<String> {
    let out = place.run(words).expect(0).out;
    out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn mistakes_are_answered_in_words_and_as_json() {
    let place = Place::new();
    place.run(&["volume", "create", "tank/a", "--size", "-5G"]).expect(2).says("--size: `-5G` is not a size");
    place.run(&["level", "create", "gold", "--min-iops", "-5"]).expect(2).says("`-5` is not a number");
    place.run(&["volume", "create", "tank/a"]).expect(2).says("--size").says("try: forebay volume create");
    place.run(&["volume", "lst"]).expect(2).says("try: some similar subcommands exist: 'ls', 'list'");
    let failed = place.run(&["--json", "volume", "create", "tank/a", "--size", "10Q"]).expect(2);
    let problem: Value = serde_json::from_str(failed.err.trim()).expect("one line of JSON");
    assert_eq!(problem["exit"], json!(2));
    assert!(problem["detail"].as_str().expect("a text").contains("`10Q` is not a size"), "{problem}");
    // What needs no daemon says so before one is looked for.
    place.run(&["volume", "list", "--json", "--sort", "size"]).expect(2).says("--sort");
    place.run(&["event", "list", "--since", "yesterday"]).expect(2).says("is not a time");
    let help = place.run(&["help", "volume", "create"]).expect(0).out;
    assert_eq!(help, place.run(&["volume", "create", "--help"]).expect(0).out);
    place.run(&["help", "volume", "polish"]).expect(2).says("polish");
    assert!(place.run(&["help"]).expect(0).out.contains("Print the help of a command"));
}

#[test]
fn lists_are_shown_as_they_are_asked_for() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    for (name, size) in [("tank/small", "16MB"), ("tank/large", "1GiB"), ("tank/middle", "64M")] {
        place.run(&["volume", "create", name, "--size", size]).expect(0);
    }
    let names = ["tank/large 1 GiB", "tank/middle 64 MiB", "tank/small 16 MiB"];
    let columns = ["vol", "ls", "--columns", "name,size", "--no-header"];
    assert_eq!(lines(&place, &columns), names);
    let sorted = lines(&place, &[&columns[..], &["--sort", "size"]].concat());
    assert_eq!(sorted, names.iter().rev().map(ToString::to_string).collect::<Vec<_>>());
    let sorted = lines(&place, &[&columns[..], &["--sort", "-size", "--limit", "1"]].concat());
    assert_eq!(sorted, [names[0]]);
    let chosen = ["--filter", "SIZE<1G", "--filter", "NAME~Mid"];
    assert_eq!(lines(&place, &[&columns[..], &chosen[..]].concat()), [names[1]]);
    assert_eq!(lines(&place, &["volume", "list", "--columns", "name"])[0], "NAME");
    assert_eq!(lines(&place, &["snapshot", "list", "--no-header"]), [""; 0]);
    place.run(&["snapshot", "list", "--columns", "nme"]).expect(2).says("no column `nme`");
    place.run(&["volume", "list", "--columns", "nme"]).expect(2).says("no column `nme`").says("NAME, STATE");
    place.run(&["volume", "list", "--filter", "NAME"]).expect(2).says("not a condition");
    let limited = place.json(&["volume", "list", "--limit", "2"]);
    assert_eq!(limited["items"].as_array().expect("a list").len(), 2);

    place.run(&["volume", "resize", "tank/small", "--size", "+16M"]).expect(0);
    assert_eq!(place.json(&["volume", "show", "tank/small"])["spec"]["size_bytes"], json!(32 << 20));
    place.run(&["volume", "resize", "tank/small", "--size", "-16M"]).expect(2).says("only grows");

    let codes = |words: &[&str]| -> Vec<String> {
        let events = place.json(&[&["event", "list"], words].concat())["items"].clone();
        let events = events.as_array().expect("a list").iter();
        events.map(|event| event["code"].as_str().expect("a text").to_string()).collect()
    };
    assert_eq!(codes(&["--code", "volume.created"]).len(), 3);
    assert_eq!(codes(&["--code", "volume.", "--object", "middle"]), ["volume.created"]);
    assert_eq!(codes(&["--severity", "error"]), [""; 0]);
    assert!(codes(&["--since", "1h"]).len() >= 4);
    assert_eq!(codes(&["--since", "2100-01-01"]), [""; 0]);
    daemon.stop();
}

#[test]
fn what_has_a_name_gets_another() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    let secret = place.run(&["token", "create", "robot", "--role", "operator"]).expect(0).out;
    let api = daemon.api(secret.trim());
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    for name in ["esx1", "esx2"] {
        place.run(&["host", "create", name, "--iqn", &format!("iqn.2026-01.example:{name}")]).expect(0);
    }
    place.run(&["host", "group", "create", "cluster", "--host", "esx1"]).expect(0);
    place.run(&["level", "create", "gold", "--max-iops", "500"]).expect(0);
    place
        .run(&["volume", "create", "tank/a", "--size", "16M", "--level", "gold", "--host", "cluster"])
        .expect(0);
    place.run(&["project", "create", "tank/web", "--host", "esx2"]).expect(0);
    place.run(&["volume", "create", "tank/web/b", "--size", "16M"]).expect(0);

    let plan = place.run(&["host", "rename", "esx2", "web1", "--dry-run"]).expect(0).out;
    assert!(plan.contains("renamed from esx2 to web1"), "{plan}");
    for (noun, words, old, new) in [
        (&["host"][..], "Host", "esx2", "web1"),
        (&["host", "group"][..], "Host group", "cluster", "farm"),
        (&["level"][..], "Level", "gold", "silver"),
    ] {
        let said = place.run(&[noun, &["rename", old, new]].concat()).expect(0).out;
        assert_eq!(said, format!("{words} {old} is now named {new}.\n"));
        place.run(&[noun, &["show", old]].concat()).expect(3);
        place.run(&[noun, &["show", new]].concat()).expect(0);
    }
    // What names them by their UUID says the new name.
    assert_eq!(mapped(&api), ["tank/a farm 0", "tank/web/b web1 0"]);
    assert_eq!(place.json(&["volume", "show", "tank/a"])["spec"]["level"], json!("silver"));
    assert_eq!(place.json(&["project", "show", "tank/web"])["spec"]["hosts"], json!(["web1"]));
    // Hosts and groups share their names, and built-in levels keep theirs.
    place.run(&["host", "rename", "esx1", "farm"]).expect(4).says("exists");
    place.run(&["host", "rename", "esx1", "a b"]).expect(2).says("name");
    place.run(&["level", "rename", "silver", "none"]).expect(4);
    place.run(&["level", "rename", "non-critical-1", "bronze"]).expect(4).says("built in");

    let threshold = ["threshold", "create", "busy", "nbd.ops", "--above", "5", "--severity", "warning"];
    place.run(&threshold).expect(0);
    place.run(&["threshold", "rename", "busy", "calm"]).expect(0);
    let named = ["threshold", "create", "slow", "nbd.ops[level=silver]", "--above", "5"];
    place.run(&named).expect(0);
    place.run(&["level", "rename", "silver", "copper"]).expect(4).says("slow");
    place.run(&["threshold", "show", "calm"]).expect(0);
    let mail =
        ["channel", "mail", "ops", "--host", "127.0.0.1", "--from", "a@example.com", "--to", "b@example.com"];
    place.run(&mail).expect(0);
    place.run(&["channel", "mv", "ops", "night"]).expect(0);
    place.run(&["channel", "show", "night"]).expect(0);
    daemon.stop();
}

#[test]
fn volumes_snapshots_and_users_get_other_names() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["host", "create", "esx1", "--iqn", "iqn.1998-01.com.vmware:esx1"]).expect(0);
    place.run(&["project", "create", "tank/web", "--host", "esx1"]).expect(0);
    place.run(&["project", "create", "tank/plain"]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "16M"]).expect(0);
    place.run(&["volume", "create", "tank/b", "--size", "16M"]).expect(0);
    place.run(&["volume", "map", "tank/b", "--host", "esx1"]).expect(0);
    place.run(&["snapshot", "create", "tank/a@s"]).expect(0);
    place.run(&["snapshot", "create", "tank/a@t"]).expect(0);

    let plan = place.run(&["volume", "rename", "tank/a", "tank/c", "--dry-run"]).expect(0).out;
    assert!(plan.contains("renamed to tank/c"), "{plan}");
    let said = place.run(&["volume", "rename", "tank/a", "tank/c"]).expect(0).out;
    assert_eq!(said.trim(), "Volume tank/a is now named tank/c.");
    place.run(&["volume", "show", "tank/a"]).expect(3);
    place.run(&["snapshot", "rename", "tank/c@s", "tank/c@before"]).expect(0);
    place.run(&["snapshot", "rename", "tank/c@t", "after"]).expect(0);
    let snapshots = lines(&place, &["snapshot", "list", "tank/c", "--columns", "name", "--no-header"]);
    assert_eq!(snapshots, ["tank/c@before", "tank/c@after"]);
    place.run(&["snapshot", "rename", "tank/c@after", "before"]).expect(4).says("another snapshot");
    place
        .run(&["snapshot", "rename", "tank/c@after", "tank/b@after"])
        .expect(2)
        .says("stays with its volume");
    // A new name is a request of its own: what else it asks for would be done, or not, with a name that is refused.
    let secret = place.run(&["token", "create", "robot", "--role", "operator"]).expect(0).out;
    let api = daemon.api(secret.trim());
    let both = json!({"name": "tank/d", "sync": "disabled"});
    api.call("PATCH", "/api/v1/volumes/tank%2Fc", "", Some(both)).problem(400, "invalid");
    let both = json!({"name": "x", "held": true});
    api.call("PATCH", "/api/v1/snapshots/tank%2Fc%40after", "", Some(both)).problem(400, "invalid");
    let id = place.json(&["volume", "show", "tank/c"])["id"].as_str().expect("an id").to_string();
    place.run(&["volume", "rename", "tank/b", &format!("tank/{id}")]).expect(2).says("UUID");
    // Taken names, other pools, projects that there are not, thresholds that name it.
    place.run(&["volume", "rename", "tank/c", "tank/b"]).expect(4).says("a volume of this name exists");
    place.run(&["volume", "rename", "tank/c", "vault/c"]).expect(4).says("forebay volume move tank/c vault");
    place
        .run(&["volume", "rename", "tank/c", "tank/none/c"])
        .expect(3)
        .says("forebay project create tank/none");
    place.run(&["volume", "rename", "tank/c", "c"]).expect(2).says("POOL/NAME");
    // Hosts stay the same: what would be mapped to others is refused, also in a dry run, unless it has its own.
    place.run(&["volume", "rename", "tank/c", "tank/plain/c"]).expect(0);
    let refused = ["volume", "rename", "tank/plain/c", "tank/web/c"];
    place.run(&refused).expect(4).says("esx1").says("forebay volume map");
    place.run(&[&refused[..], &["--dry-run"]].concat()).expect(4).says("esx1");
    place.run(&["volume", "rename", "tank/b", "tank/web/b"]).expect(0);
    assert_eq!(place.json(&["volume", "show", "tank/web/b"])["spec"]["hosts"], json!(["esx1"]));
    assert_eq!(mapped(&api), ["tank/web/b esx1 0"]);
    place.run(&["threshold", "create", "busy", "volume.ops[volume=tank/web/b]", "--above", "1000"]).expect(0);
    place.run(&["volume", "rename", "tank/web/b", "tank/web/d"]).expect(4).says("busy");
    place.run(&["threshold", "delete", "busy"]).expect(0);
    place.run(&["volume", "rename", "tank/web/b", "tank/web/d"]).expect(0);
    assert_eq!(mapped(&api), ["tank/web/d esx1 0"]);
    let events = place.json(&["event", "list", "--object", "tank/web/b"]);
    assert!(events.to_string().contains("renamed to tank/web/d"), "{events}");

    // A project, with its volumes: hosts, their LUNs and what inherits stay.
    place.run(&["volume", "create", "tank/web/heir", "--size", "16M"]).expect(0);
    place.run(&["bookmark", "create", "tank/plain/c@after", "mark"]).expect(0);
    assert_eq!(mapped(&api), ["tank/web/d esx1 0", "tank/web/heir esx1 1"]);
    place
        .run(&["project", "rename", "tank/web", "tank/plain"])
        .expect(4)
        .says("a project of this name exists");
    place.run(&["project", "rename", "tank/web", "vault/www"]).expect(4).says("stays in its pool");
    place.run(&["threshold", "create", "busy", "volume.ops[volume=tank/web/d]", "--above", "1000"]).expect(0);
    place.run(&["project", "rename", "tank/web", "tank/www"]).expect(4).says("busy");
    place.run(&["threshold", "delete", "busy"]).expect(0);
    let plan = place.run(&["project", "rename", "tank/web", "tank/www", "--dry-run"]).expect(0).out;
    assert!(plan.contains("renamed to tank/www") && plan.contains("volumes change with it: 2"), "{plan}");
    let said = place.run(&["project", "rename", "tank/web", "tank/www"]).expect(0).out;
    assert_eq!(said.trim(), "Project tank/web is now named tank/www.");
    assert_eq!(mapped(&api), ["tank/www/d esx1 0", "tank/www/heir esx1 1"]);
    assert_eq!(place.json(&["volume", "show", "tank/www/heir"])["status"]["project"], json!("tank/www"));
    let events = place.json(&["event", "list", "--object", "tank/web"]);
    assert!(events.to_string().contains("renamed to tank/www"), "{events}");
    place.run(&["project", "rename", "tank/www", "tank/web"]).expect(0);
    place.run(&["volume", "delete", "tank/web/heir", "--purge", "--yes"]).expect(0);

    place
        .run(&["bookmark", "rename", "tank/plain/c#mark", "tank/web/d#x"])
        .expect(2)
        .says("stays with its volume");
    place.run(&["bookmark", "rename", "tank/plain/c#mark", "base"]).expect(0);
    let marks = lines(&place, &["bookmark", "list", "--columns", "name", "--no-header"]);
    assert_eq!(marks, ["tank/plain/c#base"]);
    place.run(&["token", "create", "ci"]).expect(0);
    place.run(&["token", "rename", "robot", "ci"]).expect(4).says("exists");
    place.run(&["token", "rename", "robot", "deploy"]).expect(0);
    // Its secret stays.
    assert_eq!(mapped(&api), ["tank/web/d esx1 0"]);

    for (name, role) in [("ann", "admin"), ("bob", "viewer")] {
        let words = ["user", "create", name, "--role", role, "--password-file", "password"];
        std::fs::write(place.path().join("password"), "correct horse battery").unwrap();
        place.run(&words).expect(0);
    }
    place.run(&["user", "rename", "bob", "robert"]).expect(0);
    place.run(&["user", "rename", "robert", "ANN"]).expect(4).says("exists");
    place.run(&["user", "rename", "robert", "a b"]).expect(2);
    assert_eq!(place.json(&["user", "list"])["items"][1]["name"], "robert");

    // A pool gets another name as it is imported; what is in it, its hosts and its target follow.
    let disks = [
        place.disk("c", 64 << 20),
        place.path().join("a").display().to_string(),
        place.path().join("b").display().to_string(),
    ];
    place.run(&["pool", "create", "vault", "--layout", "single", &disks[0]]).expect(0);
    place.run(&["pool", "export", "tank"]).expect(0);
    for (new, exit, why) in
        [("vault", 4, "another pool has this name"), ("Vault", 4, "iSCSI target"), ("a/b", 2, "name")]
    {
        let import = ["pool", "import", "tank", &disks[1], &disks[2], "--as", new];
        place.run(&[&import[..], &["--dry-run"]].concat()).expect(exit).says(why);
        place.run(&import).expect(exit).says(why);
    }
    let said = place.run(&["pool", "import", "tank", &disks[1], &disks[2], "--as", "big"]).expect(0).out;
    assert_eq!(said.trim(), "Pool tank is imported as big.");
    assert_eq!(mapped(&api), ["big/web/d esx1 0"]);
    let target = &place.json(&["volume", "show", "big/web/d"])["status"]["iscsi_target"];
    assert!(target.as_str().expect("a name").ends_with(":big"), "{target}");
    place.run(&["pool", "export", "big"]).expect(0);
    place.run(&["pool", "import", "big", &disks[1], &disks[2], "--as", "tank"]).expect(0);

    // All of it is so after a power failure, too.
    daemon.kill();
    let daemon = Daemon::start(&place);
    let volumes = lines(&place, &["volume", "list", "--columns", "name", "--no-header"]);
    assert_eq!(volumes, ["tank/plain/c", "tank/web/d"]);
    assert_eq!(place.json(&["volume", "show", "tank/web/d"])["spec"]["hosts"], json!(["esx1"]));
    daemon.stop();
}
