//! Is what is lost told as lost, at every step, until it is restored?
//!
//! Method: the real daemon on a mirror of files; what some blocks hold is searched in both files and overwritten, as if two disks had failed at these places.

use crate::common::{Daemon, Finished, Nbd, PATIENCE, Place, program};
use forebay_base::Random;
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

const BLOCK: usize = 8192;
const BLOCKS: u64 = 64;
const IO_ERROR: u32 = 5;

fn content(stamp: u64, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    Random::new(stamp << 32 | block).fill(&mut bytes);
    bytes
}

/// Overwrites a block's contents wherever they are in a file.
fn destroy(path: &str, wanted: &[u8]) {
    let bytes = std::fs::read(path).expect("a disk is a file");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("it is ours");
    let found: Vec<u64> = (0..bytes.len() / 4096)
        .map(|page| page * 4096)
        .filter(|at| bytes[*at..].starts_with(wanted))
        .map(|at| at as u64)
        .collect();
    assert!(!found.is_empty(), "{path} does not have the block");
    found.iter().for_each(|at| file.write_all_at(&[0xee; 512], *at).expect("it can be written"));
}

/// What `pool status --errors` lists: names, offsets, lengths.
fn listed(place: &Place, code: i32) -> Vec<(String, u64, u64)> {
    let listed = place.run(&["pool", "status", "tank", "--errors", "--json"]).expect(code);
    let listed: Value = serde_json::from_str(&listed.out).expect("JSON");
    let items = listed["items"].as_array().expect("a list").iter();
    let number = |item: &Value, name: &str| item[name].as_u64().expect("a number");
    items
        .map(|item| {
            let name = item["name"].as_str().expect("a name").to_string();
            (name, number(item, "offset_bytes"), number(item, "length_bytes"))
        })
        .collect()
}

fn state(place: &Place) -> String {
    let pools = place.json(&["pool", "list"]);
    pools["items"][0]["status"]["state"].as_str().expect("a state").to_string()
}

/// Goal: a double fault, a scrub, a restart, an export and an import: at every step pool, volume, alerts, list and exit status say what is lost, and
/// that reading fails; what is restored is told no longer.
#[test]
fn lost_data_is_told_until_it_is_restored() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place);
    let disks = place.disks();
    place.run(&["pool", "create", "tank", "--layout", "mirror", &disks[0], &disks[1]]).expect(0);
    place
        .run(&["volume", "create", "tank/vm", "--size", "64M", "--block-size", "8K", "--compression", "off"])
        .expect(0);
    let mut nbd = Nbd::open(&daemon.nbd, "tank/vm");
    (0..BLOCKS).for_each(|block| nbd.write(block * BLOCK as u64, &content(1, block)));
    nbd.flush();
    place.run(&["snapshot", "create", "tank/vm@kept"]).expect(0);
    // One of them is the snapshot's alone from here on.
    nbd.write(20 * BLOCK as u64, &content(2, 20));
    nbd.flush();
    drop(nbd);
    daemon.stop();
    for (stamp, block) in [(1, 3), (1, 4), (1, 20)] {
        disks.iter().for_each(|disk| destroy(disk, &content(stamp, block)));
    }
    daemon = Daemon::start(&place);
    assert_eq!(state(&place), "online", "nobody has read it yet");
    let mut nbd = Nbd::open(&daemon.nbd, "tank/vm");
    assert_eq!(nbd.try_read(3 * BLOCK as u64, BLOCK), Err(IO_ERROR));
    let [first, both] = [BLOCK as u64, 2 * BLOCK as u64];
    assert_eq!(
        listed(&place, 8),
        [("tank/vm".to_string(), 3 * first, first), ("tank/vm@kept".to_string(), 3 * first, first)]
    );
    let scrub = place.run(&["pool", "scrub", "tank"]).expect(8).out;
    assert!(scrub.contains("3 lost"), "{scrub}");
    // A stream that meets it says so, not only that it ended.
    let mut send = program();
    send.args(["snapshot", "send", "tank/vm@kept", "--data"]).arg(place.data()).stdout(Stdio::null());
    Finished::of(send, &["snapshot", "send"]).expect(1).says("interrupted the stream: ");
    let all = [
        ("tank/vm".to_string(), 3 * first, both),
        ("tank/vm@kept".to_string(), 3 * first, both),
        ("tank/vm@kept".to_string(), 20 * first, first),
    ];
    let expect = |when: &str| {
        assert_eq!(listed(&place, 8), all, "{when}");
        assert_eq!(state(&place), "damaged", "{when}");
        let status = place.run(&["pool", "status", "tank"]).expect(8);
        assert!(status.out.contains("3 lost"), "{when}: {}", status.out);
        let alerts = place.json(&["alert", "list"]);
        assert_eq!(alerts["items"][0]["id"], "pool.data_lost:tank", "{when}: {alerts}");
        let volume = place.json(&["volume", "show", "tank/vm"]);
        assert_eq!(volume["status"]["damaged_bytes"], 2 * BLOCK, "{when}: {volume}");
        for (words, told) in [
            (&["volume", "show", "tank/vm"][..], "16 KiB of it are lost"),
            (&["volume", "list"], "16 KiB lost"),
            (&["snapshot", "rollback", "tank/vm@kept", "--force", "--dry-run"], "24 KiB are lost"),
        ] {
            let shown = place.run(words).expect(0).out;
            assert!(shown.contains(told), "{when}: {words:?}: {shown}");
        }
    };
    expect("after the scrub");
    drop(nbd);
    daemon.kill();
    daemon = Daemon::start(&place);
    expect("after the daemon was killed");
    place.run(&["pool", "export", "tank"]).expect(0);
    place.run(&["pool", "import", "tank", &disks[0], &disks[1]]).expect(8).says("pool status tank --errors");
    expect("after an export and an import");
    place.run(&["pool", "accept-damage", "tank"]).expect(0);
    assert_eq!(state(&place), "online");
    assert_eq!(listed(&place, 0), all, "it is lost all the same");
    let scrub = place.run(&["pool", "scrub", "tank"]).expect(0).out;
    assert!(scrub.contains("accepted before"), "{scrub}");
    let events = place.json(&["event", "list"]).to_string();
    assert!(events.contains("pool.damage_accepted"), "{events}");
    let mut nbd = Nbd::open(&daemon.nbd, "tank/vm");
    for block in [3, 4] {
        nbd.write(block * BLOCK as u64, &content(1, block));
    }
    nbd.flush();
    place.run(&["snapshot", "delete", "tank/vm@kept", "--yes"]).expect(0);
    let start = Instant::now();
    while !listed(&place, 0).is_empty() {
        assert!(
            start.elapsed() < 3 * PATIENCE,
            "what was restored is still told as lost: {:?}",
            listed(&place, 0)
        );
        sleep(Duration::from_millis(200));
    }
    for block in 0..BLOCKS {
        let stamp = if block == 20 { 2 } else { 1 };
        assert!(nbd.read(block * BLOCK as u64, BLOCK) == content(stamp, block), "block {block}");
    }
    drop(nbd);
    let scrub = place.run(&["pool", "scrub", "tank"]).expect(0).out;
    assert!(scrub.contains("0 lost"), "{scrub}");
    daemon.stop();
    place.run(&["check", "--offline", &disks[0], &disks[1]]).expect(0);
}
