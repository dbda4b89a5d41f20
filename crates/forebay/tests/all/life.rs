//! Does the daemon start, stop and survive `kill -9` without help, keeping what it acknowledged?
//!
//! Method: the real daemon in a temporary directory, ended by signals at various moments; data goes through NBD.

use crate::common::{Daemon, Nbd, Place, program};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn an_orderly_stop_leaves_nothing_and_a_restart_finds_everything() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    use std::os::unix::fs::PermissionsExt;
    let mode = |name: &str| fs::metadata(place.data().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("forebay.sock"), 0o600);
    assert_eq!(mode(""), 0o700);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    let volume = place.json(&["volume", "create", "tank/a", "--size", "64M"]);
    daemon.stop();
    assert!(!place.data().join("forebay.sock").exists());
    assert!(!place.data().join("addresses.json").exists());
    place.run(&["pool", "list"]).expect(7);
    let mut daemon = Daemon::start(&place);
    assert_eq!(place.json(&["volume", "show", "tank/a"])["id"], volume["id"]);
    daemon.signal(Signal::INT);
    assert_eq!(daemon.wait().code(), Some(0));
    // An exported pool is not imported again.
    let daemon = Daemon::start(&place);
    place.run(&["pool", "export", "tank"]).expect(0);
    daemon.stop();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "status", "tank"]).expect(3);
    daemon.stop();
}

#[test]
fn a_second_daemon_is_refused_and_harms_nothing() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    place
        .run(&["serve", "--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--iscsi", "127.0.0.1:0"])
        .expect(4)
        .says("another forebay daemon");
    place.run(&["pool", "list"]).expect(0);
    // NBD has no authentication of its own, so without TLS it stays on this host.
    let other = Place::new();
    other
        .run(&["serve", "--listen", "127.0.0.1:0", "--nbd", "0.0.0.0:0", "--iscsi", "127.0.0.1:0"])
        .expect(5)
        .says("TLS");
    other
        .run(&["serve", "--listen", "nowhere", "--nbd", "127.0.0.1:0", "--iscsi", "127.0.0.1:0"])
        .expect(2)
        .says("--listen");
    let no_file = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--nbd",
        "127.0.0.1:0",
        "--iscsi",
        "127.0.0.1:0",
        "--nbd-tls-cert",
        "no",
        "--nbd-tls-key",
        "no",
    ];
    assert_ne!(other.run(&no_file).says("no").code, Some(0));
    // An address that is taken.
    let other = Place::new();
    other
        .run(&["serve", "--listen", &daemon.http, "--nbd", "127.0.0.1:0", "--iscsi", "127.0.0.1:0"])
        .expect(4)
        .says("--listen");
    other
        .run(&["serve", "--listen", "127.0.0.1:0", "--nbd", &daemon.nbd, "--iscsi", "127.0.0.1:0"])
        .expect(4)
        .says("--nbd");
    let taken = ["serve", "--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--iscsi", &daemon.iscsi[1]];
    other.run(&taken).expect(4).says("--iscsi");
    daemon.stop();
}

#[test]
fn kill_minus_nine_needs_no_recovery() {
    let place = Place::new();
    place.disks();
    let mut daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "64M"]).expect(0);
    let mut numbers = 0;
    for round in 0..10u8 {
        {
            let mut nbd = Nbd::open(&daemon.nbd, "tank/a");
            for block in 0..32u64 {
                nbd.write(block * 8192, &[round + 1; 8192]);
            }
        }
        let events = place.json(&["event", "list", "--limit", "1000"]);
        let newest = events["items"].as_array().unwrap().last().unwrap()["sequence"].as_u64().unwrap();
        assert!(newest >= numbers, "event numbers only grow");
        numbers = newest;
        daemon.kill();
        // The socket is stale now, and the next daemon takes its place.
        assert!(place.data().join("forebay.sock").exists());
        place.run(&["pool", "list"]).expect(7);
        place.run(&["check", "--offline", "a", "b"]).expect(0);
        daemon = Daemon::start(&place);
        place.run(&["pool", "status", "tank"]).expect(0);
        let mut nbd = Nbd::open(&daemon.nbd, "tank/a");
        for block in 0..32u64 {
            assert!(nbd.read(block * 8192, 8192).iter().all(|&byte| byte == round + 1), "block {block}");
        }
    }
    place.run(&["check", "--offline", "a", "b"]).expect(4).says("locked");
    daemon.stop();
}

#[test]
fn a_stop_ends_clients_that_are_connected_and_waiting() {
    let place = Place::new();
    place.disks();
    let mut daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "64M"]).expect(0);
    let mut nbd = Nbd::open(&daemon.nbd, "tank/a");
    nbd.write(0, &[7; 4096]);
    let mut follow = program();
    follow.args(["event", "list", "--follow", "--json", "--data"]).arg(place.data());
    let mut follow = follow.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    // It has told what was there, and waits for more.
    assert!(lines.next().unwrap().unwrap().contains("\"sequence\":1,"));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(follow.wait().unwrap().code(), Some(7), "following ends with the daemon");
    // The address was in use by clients until a moment ago.
    let daemon = Daemon::start_at(&place, &daemon.http, &daemon.nbd);
    assert_eq!(Nbd::open(&daemon.nbd, "tank/a").read(0, 4096), [7; 4096]);
    // What a client uses may be deleted under it, if somebody insists, and its pool exported.
    let _held = Nbd::open(&daemon.nbd, "tank/a");
    place.run(&["volume", "delete", "tank/a", "--yes"]).expect(5).says("NBD client").says("--force");
    place.run(&["volume", "delete", "tank/a", "--force", "--yes"]).expect(0);
    place.run(&["pool", "export", "tank"]).expect(0);
    daemon.stop();
}

#[test]
fn a_kill_during_creation_or_destruction_leaves_a_pool_or_none() {
    let place = Place::new();
    place.disks();
    let mut daemon = Daemon::start(&place);
    let mut creating = false;
    let exists = |creating: bool| {
        let status = place.run(&["pool", "status", "tank"]);
        match status.code {
            Some(3) => false,
            // Half a destruction leaves what it leaves; half a creation must leave nothing.
            Some(6) if !creating => true,
            _ => status.expect(0).code == Some(0),
        }
    };
    for round in 0..24 {
        creating = !exists(creating);
        let words: &[&str] = match creating {
            true => &["pool", "create", "tank", "--layout", "mirror", "a", "b", "--force", "--no-wait"],
            false => &["pool", "destroy", "tank", "--yes", "--no-wait"],
        };
        place.run(words).expect(0);
        // At various moments: at once, or after some more requests.
        for _ in 0..round % 4 {
            place.run(&["task", "list"]).expect(0);
        }
        daemon.kill();
        daemon = Daemon::start(&place);
    }
    if exists(creating) {
        place.run(&["pool", "destroy", "tank", "--yes"]).expect(0);
    }
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b", "--force"]).expect(0);
    daemon.stop();
}

#[test]
fn a_pool_whose_disks_are_gone_is_remembered_and_comes_back() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    daemon.stop();
    let hide = |from: &str, to: &str| fs::rename(place.path().join(from), place.path().join(to)).unwrap();
    hide("a", "a-hidden");
    hide("b", "b-hidden");
    let daemon = Daemon::start(&place);
    let status = place.run(&["pool", "status", "tank"]).expect(6);
    assert!(status.out.contains("unavailable"), "{}", status.out);
    place.run(&["pool", "destroy", "tank", "--yes"]).expect(4);
    place.run(&["pool", "import", "tank", "./a-hidden", "./b-hidden"]).expect(0);
    place.run(&["pool", "status", "tank"]).expect(0);
    daemon.kill();
    // Its new places are remembered.
    let daemon = Daemon::start(&place);
    place.run(&["pool", "status", "tank"]).expect(0);
    daemon.stop();
    // Forgetting one that is gone for good.
    hide("a-hidden", "x");
    hide("b-hidden", "y");
    let daemon = Daemon::start(&place);
    place.run(&["pool", "status", "tank"]).expect(6);
    place.run(&["pool", "export", "tank"]).expect(0);
    place.run(&["pool", "status", "tank"]).expect(3);
    daemon.stop();
}

#[test]
fn an_interrupted_creation_is_settled_at_the_next_start() {
    let place = Place::new();
    let [a, b] = place.disks();
    place.make_data();
    // What a kill between the intent and the creation leaves.
    let intent = serde_json::json!({
        "version": 1, "pools": [{"name": "tank", "disks": [a, b], "unsettled": "creating"}],
    });
    fs::write(place.data().join("config"), intent.to_string()).unwrap();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "status", "tank"]).expect(3);
    let events = place.run(&["event", "list"]).expect(0).out;
    assert!(events.contains("pool.removed"), "{events}");
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    daemon.stop();
    // What a kill between the creation and its record leaves.
    fs::write(place.data().join("config"), intent.to_string()).unwrap();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "status", "tank"]).expect(0);
    daemon.stop();
}

#[test]
fn damaged_files_of_its_own_are_told_not_overwritten() {
    for name in ["config", "tokens", "hosts"] {
        let place = Place::new();
        place.make_data();
        fs::write(place.data().join(name), "{ not json").unwrap();
        let refused = place
            .run(&["serve", "--listen", "127.0.0.1:0", "--nbd", "127.0.0.1:0", "--iscsi", "127.0.0.1:0"])
            .expect(1);
        assert!(refused.err.contains(name) && refused.err.contains("try:"), "{}", refused.err);
        assert_eq!(fs::read_to_string(place.data().join(name)).unwrap(), "{ not json");
    }
}

#[test]
fn the_demonstration_runs_verifies_and_comes_back() {
    let place = Place::new();
    for round in 0..3 {
        let mut daemon = Daemon::start_as(&place, "demo", &[]);
        while !daemon.line().contains("Ctrl-C stops it") {}
        place.run(&["pool", "status", "demo"]).expect(0);
        let names = place.run(&["volume", "list"]).expect(0).out;
        assert!(names.contains("demo/files") && names.contains("demo/database"), "{names}");
        // Let it do some of its I/O: by the volume's own account, not by the clock.
        if round == 0 {
            while place.json(&["volume", "show", "demo/database"])["status"]["mapped_bytes"] == 0 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        let events = place.run(&["event", "list", "--json"]).expect(0).out;
        assert!(!events.contains("demo.stopped"), "{events}");
        match round {
            1 => daemon.kill(),
            _ => {
                daemon.signal(Signal::INT);
                assert_eq!(daemon.wait().code(), Some(0));
            }
        }
    }
    let mut help = program();
    help.args(["demo", "--help"]);
    assert!(help.output().unwrap().status.success());
}
