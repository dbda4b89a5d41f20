//! Does the command line do what it says, and does it end with the documented status?
//!
//! Method: the real program against its own daemon in a temporary directory.

use crate::common::{Daemon, Finished, Place, program};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

#[test]
fn what_needs_no_daemon_works_without_one() {
    let place = Place::new();
    let version = place.run(&["version"]).expect(0);
    assert!(version.out.starts_with("forebay "));
    assert!(place.json(&["version"])["version"].is_string());
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completion", shell]).expect(0);
        assert!(script.out.contains("forebay") && script.out.contains("volume"), "{shell}");
    }
    place.run(&["--help"]).expect(0);
    place.run(&["man", "man1"]).expect(0);
    let page = std::fs::read_to_string(place.path().join("man1/forebay-volume-create.1")).unwrap();
    assert!(page.contains("\\-\\-block\\-size"), "{page}");
    for words in [
        &["volume", "create", "tank/a"][..],
        &["volume", "create", "tank/a", "--size", "ten"],
        &["pool", "create", "tank", "--layout", "4+9", "a", "b", "c", "d", "e"],
        &["pool", "polish", "tank"],
        &["check", "a"],
        &[],
    ] {
        place.run(words).expect(2);
    }
    place.run(&["pool", "list"]).expect(7).says("the daemon does not answer").says("forebay serve");
    let mut elsewhere = program();
    elsewhere.args(["pool", "list"]).env("FOREBAY_URL", "ftp://localhost:1");
    Finished::of(elsewhere, &["pool list"]).expect(2).says("https://");
}

#[test]
fn a_layout_is_validated_without_a_daemon() {
    let place = Place::new();
    assert!(place.run(&["validate", "list"]).expect(0).out.contains("Hitachi AMS 2100"));
    let listed = place.json(&["validate", "list"]);
    let cases = |nth: usize| (listed[nth]["name"].as_str(), listed[nth]["case"].as_array().map(Vec::len));
    let listed: Vec<_> = (0..6).map(cases).collect();
    let known =
        [("A", 6), ("B", 5), ("C", 10), ("D", 3), ("E", 3)].map(|(name, cases)| (Some(name), Some(cases)));
    assert_eq!((&listed[..5], listed[5]), (&known[..], (None, None)));
    place.run(&["validate", "run", "C"]).expect(2).says("--model");
    place.run(&["validate", "run", "Z", "--model"]).expect(3).says("no such reference architecture");
    place.run(&["validate", "run", "./mine.toml", "--model"]).expect(2).says("cannot be read");
    let mine = r#"
        name = "mine"
        title = "One file server <on a mirror>"
        source = "nobody"
        machine = { disk = "10K", memory-mib = 16, scale = 256, warm-seconds = 1, seconds = 60 }
        [[workload]]
        name = "files"
        block-kib = 64
        read-percent = 100
        access = "random"
        size-gib = 10
        outstanding = 2
        rate = 20
        volume-block-kib = 64
        needs = { iops = 20 }
        [[case]]
        name = "a mirror"
        published = "nothing"
        published-met = []
        figures = [{ workload = "files", measure = "iops", value = 10.0 }]
        pool = [{ layout = "mirror", groups = 1, workloads = ["files"] }]
    "#;
    std::fs::write(place.path().join("mine.toml"), mine).unwrap();
    let run = ["validate", "run", "mine.toml", "--model", "--seconds", "3", "--report", "page.html"];
    // It does better than was published, and the file does not say why.
    assert!(place.run(&run).expect(1).out.contains("without an explanation"));
    let page = std::fs::read_to_string(place.path().join("page.html")).unwrap();
    assert!(page.contains("One file server &lt;on a mirror&gt;") && page.contains("--seed 1"));
    std::fs::write(place.path().join("mine.toml"), mine.replace("published-met = []", "")).unwrap();
    // The same seeds give the same bytes, whichever processor does what.
    let several = [&run[..6], &["--seeds", "3", "--json"]].concat();
    assert_eq!(place.run(&several).expect(0).out, place.run(&several).expect(0).out);
    let report = &place.json(&run)[0];
    let client = &report["cases"][0]["clients"][0];
    assert_eq!(client["met"], true);
    let figure = &report["cases"][0]["figures"][0];
    assert_eq!((&figure["published"], &figure["ours"]), (&serde_json::json!(10.0), &client["iops"]));
    assert!((client["iops"].as_f64().unwrap() - 20.0).abs() < 1.0, "{client}");
    assert_eq!(report["configuration"]["machine"]["seconds"], 3);
}

#[test]
fn pools_and_volumes_live_and_die() {
    let place = Place::new();
    let [a, b] = place.disks();
    let daemon = Daemon::start(&place);

    // Nothing there yet.
    assert_eq!(place.json(&["pool", "list"])["items"], serde_json::json!([]));
    place.run(&["pool", "status", "tank"]).expect(3);
    place.run(&["volume", "show", "tank/a"]).expect(3);
    place.run(&["volume", "create", "tank/a", "--size", "1G"]).expect(3);

    // A dry run changes nothing; paths may be relative.
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b", "--dry-run"]).expect(0);
    assert_eq!(place.json(&["pool", "list"])["items"], serde_json::json!([]));
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "nothing", "--dry-run"]).expect(3);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a"]).expect(2).says("at least 2 disks");
    place.run(&["pool", "create", "1tank", "--layout", "mirror", "a", "b"]).expect(2);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(4);
    let other = place.disk("c", 256 << 20);
    // A disk that belongs to a pool is refused, whoever holds it.
    let taken = place.run(&["pool", "create", "other", "--layout", "mirror", "b", "c"]);
    assert!(matches!(taken.code, Some(4 | 5)), "{taken:?}");

    let pool = &place.json(&["pool", "status", "tank"])["items"][0];
    assert_eq!(pool["status"]["state"], "online");
    assert_eq!(pool["spec"]["disks"], serde_json::json!([a, b]));
    let disks = place.json(&["disk", "list"]);
    assert_eq!(disks["items"].as_array().unwrap().len(), 2);
    assert_eq!(place.json(&["disk", "list", "--pool", "tank"]), disks);
    place.run(&["disk", "list", "--pool", "nothing"]).expect(3);

    // Volumes.
    place.run(&["project", "create", "tank/web"]).expect(0);
    place.run(&["volume", "create", "tank/web/a", "--size", "100M", "--dry-run"]).expect(0);
    place.run(&["volume", "show", "tank/web/a"]).expect(3);
    let made = place.json(&["volume", "create", "tank/web/a", "--size", "100M", "--block-size", "4K"]);
    assert_eq!(made["name"], "tank/web/a");
    assert_eq!(made["spec"]["size_bytes"], 100 << 20);
    assert_eq!(made["spec"]["block_size_bytes"], 4096);
    assert_eq!(made["spec"]["sync"], "always");
    place.run(&["volume", "create", "tank/web/a", "--size", "100M"]).expect(4);
    place.run(&["volume", "create", "tank/b", "--size", "100G", "--block-size", "5K"]).expect(2);
    place.run(&["volume", "create", "tank/b", "--size", "100T"]).expect(2);
    place.run(&["volume", "create", "tank/b", "--size", "10G", "--sync", "standard"]).expect(0);
    let id = made["id"].as_str().unwrap();
    assert_eq!(place.json(&["volume", "show", id])["name"], "tank/web/a");
    let names: Vec<_> = place.json(&["volume", "list"])["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|volume| volume["name"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(names, ["tank/b", "tank/web/a"]);

    place.run(&["volume", "resize", "tank/b", "--size", "1G"]).expect(5).says("shrinking");
    place.run(&["volume", "resize", "tank/b", "--size", "20G", "--dry-run"]).expect(0);
    assert_eq!(place.json(&["volume", "show", "tank/b"])["spec"]["size_bytes"], 10u64 << 30);
    assert_eq!(
        place.json(&["volume", "resize", "tank/b", "--size", "20G"])["spec"]["size_bytes"],
        20u64 << 30
    );
    assert_eq!(place.json(&["volume", "set", "tank/b", "--sync", "disabled"])["spec"]["sync"], "disabled");

    // What loses data asks, and without a terminal refuses.
    place.run(&["volume", "delete", "tank/b"]).expect(5).says("--yes");
    // What is refused in any case is refused before the question.
    place.run(&["volume", "delete", "tank/none"]).expect(3);
    let refused = place.run(&["disk", "remove", "tank/0"]);
    assert!(refused.code != Some(0) && !refused.err.contains("--yes"), "{refused:?}");
    place.run(&["volume", "delete", "tank/b", "--dry-run"]).expect(0);
    place.run(&["volume", "show", "tank/b"]).expect(0);
    place.run(&["volume", "delete", "tank/b", "--yes"]).expect(0);
    place.run(&["volume", "show", "tank/b"]).expect(3);
    place.run(&["volume", "delete", "tank/b", "--yes"]).expect(3);

    // Export, find again, import.
    place.run(&["pool", "export", "tank", "--dry-run"]).expect(0);
    place.run(&["pool", "export", "tank"]).expect(0);
    place.run(&["pool", "export", "tank"]).expect(3);
    let found = place.json(&["pool", "import", "./a", "./b"]);
    assert_eq!(found["items"][0]["name"], "tank");
    assert_eq!(found["items"][0]["disks_missing"], 0);
    place.run(&["pool", "import", "nothing", "./a", "./b"]).expect(3);
    place.run(&["pool", "import", "tank", "./a", "./b", "--dry-run"]).expect(0);
    place.run(&["pool", "import", "tank", "./a", "./b"]).expect(0);
    place.run(&["pool", "import", "tank", "./a", "./b"]).expect(4);
    assert_eq!(place.json(&["volume", "show", "tank/web/a"])["id"], made["id"]);

    // Tasks and events have seen it all.
    let tasks = place.json(&["task", "list"]);
    let tasks = tasks["items"].as_array().unwrap();
    assert!(tasks.iter().any(|task| task["name"] == "pool.import" && task["state"] == "succeeded"));
    let failed = tasks.iter().find(|task| task["state"] == "failed").expect("an import of nothing failed");
    place.run(&["task", "watch", failed["id"].as_str().unwrap()]).expect(3);
    place.run(&["task", "cancel", failed["id"].as_str().unwrap()]).expect(4);
    place.run(&["task", "cancel", "nothing"]).expect(3);
    let events = place.json(&["event", "list"]);
    let events = events["items"].as_array().unwrap();
    assert!(events.iter().any(|event| event["code"] == "volume.trashed" && event["object"] == "tank/b"));
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");

    // Tables are for people.
    let table = place.run(&["pool", "list"]).expect(0).out;
    assert!(table.starts_with("NAME") && table.contains("tank") && !table.contains('\x1b'), "{table}");
    place.run(&["volume", "list"]).expect(0);
    place.run(&["pool", "status"]).expect(0);
    place.run(&["volume", "show", "tank/web/a"]).expect(0);
    place.run(&["disk", "list"]).expect(0);
    place.run(&["event", "list"]).expect(0);
    place.run(&["task", "list"]).expect(0);

    // The end of the pool.
    place.run(&["pool", "destroy", "tank"]).expect(5).says("--yes");
    place.run(&["pool", "destroy", "tank", "--yes", "--dry-run"]).expect(0);
    place.run(&["pool", "destroy", "tank", "--yes"]).expect(0);
    place.run(&["pool", "status", "tank"]).expect(3);
    assert_eq!(place.json(&["pool", "import", "./a", "./b"])["items"], serde_json::json!([]));
    place.run(&["pool", "create", "tank", "--layout", "single", &other]).expect(0);
    daemon.stop();
}

#[test]
fn hosts_groups_and_mappings() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["pool", "create", "Tank", "--layout", "mirror", "a", "b"]).expect(4).says("iSCSI target");
    assert_eq!(place.json(&["host", "list"])["items"], serde_json::json!([]));
    assert!(place.run(&["host", "list"]).expect(0).out.contains("forebay host create"));

    // Hosts.
    let esx1 = ["host", "create", "esx1", "--iqn", "IQN.1998-01.com.vmware:esx1", "eui.02004567A425678D"];
    place.run(&[&esx1[..], &["--dry-run"]].concat()).expect(0);
    place.run(&["host", "show", "esx1"]).expect(3);
    let made = place.json(&esx1);
    assert_eq!(
        made["spec"]["initiators"],
        serde_json::json!(["iqn.1998-01.com.vmware:esx1", "eui.02004567a425678d"])
    );
    place.run(&esx1).expect(4).says("Choose another name");
    let taken = place.run(&["host", "create", "esx2", "--iqn", "eui.02004567a425678d"]).expect(4);
    taken.says("eui.02004567a425678d: hosts esx1 and esx2 would both have this initiator name");
    place.run(&["host", "create", "esx2", "--iqn", "esx2"]).expect(2).says("initiatorname.iscsi");
    place.run(&["host", "create", "esx2", "--iqn", "iqn.1998-01.com.vmware:esx2"]).expect(0);
    let chap = ["host", "create", "esx3", "--iqn", "iqn.1998-01.com.vmware:esx3", "--chap", "esx3"];
    place.run(&chap).expect(2).says("stdin");
    place.run_with(&chap, "too short\n").expect(2).says("12 to 255 bytes");
    let mutual = [&chap[..], &["--mutual", "tank"]].concat();
    place.run_with(&mutual, "the same secret\nthe same secret\n").expect(2).says("same secret");
    place.run_with(&mutual, "a secret of the host\na secret of the target\n").expect(0);
    let shown = place.json(&["host", "show", "esx3"]);
    assert_eq!(
        (&shown["spec"]["chap_user"], &shown["spec"]["mutual_user"]),
        (&"esx3".into(), &"tank".into())
    );
    place.run_with(&["host", "set", "esx3", "--mutual", "tank"], "a secret of the host\n").expect(2);
    let removed = place.json(&["host", "set", "esx3", "--no-chap"]);
    assert!(removed["spec"].get("chap_user").is_none() && removed["spec"].get("mutual_user").is_none());
    place.run(&["host", "set", "esx3", "--iqn", "eui.02004567a425678d"]).expect(4);

    // Groups.
    place.run(&["host", "group", "create", "esx1", "--host", "esx2"]).expect(4);
    place.run(&["host", "group", "create", "cluster", "--host", "esx9"]).expect(3);
    place.run(&["host", "group", "create", "cluster", "--host", "esx1", "esx2"]).expect(0);
    assert_eq!(place.json(&["host", "show", "esx1"])["status"]["groups"], serde_json::json!(["cluster"]));
    assert!(place.run(&["host", "group", "list"]).expect(0).out.contains("esx1 esx2"));

    // Mappings.
    let create =
        ["volume", "create", "tank/a", "--size", "64M", "--host", "cluster", "esx3", "--logical-block", "4K"];
    let plan = place.json(&[&create[..], &["--dry-run"]].concat());
    assert_eq!(plan["changes"].as_array().unwrap().len(), 3, "{plan}");
    place.run(&["volume", "create", "tank/a", "--size", "64M", "--host", "nobody"]).expect(3);
    place.run(&["volume", "show", "tank/a"]).expect(3);
    place.run(&create).expect(0);
    place.run(&["volume", "create", "tank/b", "--size", "64M", "--host", "esx1"]).expect(0);
    let shown = place.run(&["volume", "show", "tank/b"]).expect(0).out;
    assert!(shown.contains("iqn.2026-11.io.forebay:tank"), "{shown}");
    let mapped = place.json(&["volume", "map", "tank/b", "--host", "esx2", "--lun", "7"]);
    assert_eq!((&mapped["spec"]["lun"], &mapped["spec"]["logical_block_bytes"]), (&7.into(), &512.into()));
    place.run(&["volume", "map", "tank/b", "--host", "esx2"]).expect(4).says("already, as LUN");
    place.run(&["volume", "map", "tank/b", "--host", "cluster"]).expect(4).says("already, as LUN");
    place.run(&["volume", "map", "tank/b", "--host", "esx3", "--lun", "0"]).expect(4).says("--lun");
    place.run(&["volume", "map", "tank/b", "--host", "esx3", "--logical-block", "4K"]).expect(4).says("512");
    place.run(&["volume", "map", "tank/nothing", "--host", "esx3"]).expect(3);
    place.run(&["volume", "map", "tank/b", "--host", "nobody"]).expect(3);
    let seen = place.run(&["host", "show", "esx1"]).expect(0).out;
    assert!(seen.contains("tank/a") && seen.contains("cluster") && seen.contains("tank/b"), "{seen}");

    // What would take volumes away has to be asked for.
    place.run(&["host", "delete", "esx1"]).expect(5).says("--unmap");
    place.run(&["host", "delete", "esx1", "--dry-run"]).expect(5);
    place.run(&["host", "delete", "esx1", "--unmap"]).expect(5).says("--yes");
    place.run(&["host", "delete", "esx1", "--unmap", "--dry-run"]).expect(0);
    place.run(&["host", "delete", "esx1", "--unmap", "--yes"]).expect(0);
    place.run(&["host", "delete", "esx1"]).expect(3);
    let members = place.json(&["host", "group", "show", "cluster"])["spec"]["hosts"].clone();
    assert_eq!(members, serde_json::json!(["esx2"]));
    place.run(&["volume", "unmap", "tank/a", "--host", "esx2"]).expect(4).says("as a member of cluster");
    place.run(&["volume", "unmap", "tank/b", "--host", "esx3"]).expect(3).says("not mapped");
    place.run(&["volume", "unmap", "tank/b", "--host", "esx2", "--dry-run"]).expect(0);
    place.run(&["volume", "unmap", "tank/b", "--host", "esx2"]).expect(0);
    place.run(&["volume", "unmap", "tank/b", "--host", "esx2"]).expect(3);
    place.run(&["host", "group", "delete", "cluster"]).expect(5).says("--unmap");
    place.run(&["volume", "unmap", "tank/a", "--host", "cluster"]).expect(0);
    place.run(&["host", "group", "set", "cluster", "--host"]).expect(0);
    place.run(&["host", "group", "delete", "cluster"]).expect(0);
    let plan = place.json(&["volume", "delete", "tank/a", "--dry-run"]);
    assert!(plan["changes"][1].as_str().unwrap().contains("esx3 loses the volume"), "{plan}");
    place.run(&["volume", "delete", "tank/a", "--yes"]).expect(0);
    place.run(&["host", "delete", "esx3"]).expect(0);
    assert_eq!(place.json(&["session", "list"])["items"], serde_json::json!([]));
    let events = place.run(&["event", "list"]).expect(0).out;
    for code in [
        "host.created",
        "host.changed",
        "host.deleted",
        "host_group.created",
        "mapping.created",
        "mapping.deleted",
    ] {
        assert!(events.contains(code), "{code} in {events}");
    }
    daemon.stop();
}

#[test]
fn what_the_disks_hold_is_not_overwritten_unasked() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["pool", "export", "tank"]).expect(0);
    place.run(&["pool", "create", "other", "--layout", "mirror", "a", "b"]).expect(5).says("--force");
    place.run(&["pool", "create", "other", "--layout", "mirror", "a", "b", "--dry-run"]).expect(5);
    place.run(&["pool", "import", "tank", "./a", "./b"]).expect(0);
    place.run(&["pool", "export", "tank"]).expect(0);
    place.run(&["pool", "create", "other", "--layout", "mirror", "a", "b", "--force"]).expect(0);
    place.run(&["pool", "status", "other"]).expect(0);
    place.disk("tiny", 4096);
    for more in [&[][..], &["--dry-run"]] {
        let words = [&["pool", "create", "small", "--layout", "single", "tiny"], more].concat();
        place.run(&words).expect(2).says("try:");
    }
    // The least of an ext2 file system: its magic number.
    let path = place.disk("foreign", 256 << 20);
    std::fs::File::options().write(true).open(&path).unwrap().write_all_at(&[0x53, 0xef], 1080).unwrap();
    for more in [&[][..], &["--dry-run"]] {
        let words = [&["pool", "create", "small", "--layout", "single", "foreign"], more].concat();
        place.run(&words).expect(5).says("ext2");
    }
    daemon.stop();
}

#[test]
fn a_missing_disk_degrades_and_says_so() {
    let place = Place::new();
    let [a, _] = place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["pool", "export", "tank"]).expect(0);
    place.run(&["pool", "import", "tank", "./a"]).expect(6).says("degraded");
    let status = place.run(&["pool", "status", "tank", "--json"]).expect(6);
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    let pool = &status["items"][0];
    assert_eq!(pool["status"]["state"], "degraded");
    assert_eq!(pool["spec"]["disks"], serde_json::json!([a]));
    let redundant = pool["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "Redundant")
        .expect("a condition");
    assert_eq!(redundant["status"], false);
    assert!(place.run(&["pool", "status", "tank"]).expect(6).out.contains("missing"));
    daemon.stop();
}

#[test]
fn the_offline_checker_has_the_last_word() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "1G"]).expect(0);
    daemon.stop();
    let check = || {
        let mut check = program();
        check.args(["check", "--offline", "a", "b"]).current_dir(place.path());
        Finished::of(check, &["check --offline a b"])
    };
    check().expect(0);
    // Every copy of the pool's beginning is gone: no checker may be content with that.
    for disk in ["a", "b"] {
        let path = place.path().join(disk);
        std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
    }
    let broken = check();
    assert_ne!(broken.code, Some(0), "{broken:?}");
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let mut command = program();
    command.args(["completion", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
    daemon.stop();
}
