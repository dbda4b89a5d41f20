//! Can an administrator change a pool's disks under its clients, and does a restart find the disks that there are then?
//!
//! Method: the real daemon with pools on sparse files, changed with the command line, while a client's data is there to be
//! compared. What the daemon remembers of the disks is read from its directory.

use crate::common::{Daemon, Nbd, Place, wait_until};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const DISK_BYTES: u64 = 256 << 20;
const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS: u64 = 256;

/// 16 MiB that say where they are and in which round they were written.
fn write(daemon: &Daemon, round: u64) {
    let mut nbd = Nbd::open(&daemon.nbd, "tank/v");
    for block in 0..BLOCKS {
        nbd.write(block * BLOCK_BYTES as u64, &content(block, round));
    }
}

fn check(daemon: &Daemon, round: u64) {
    let mut nbd = Nbd::open(&daemon.nbd, "tank/v");
    for block in 0..BLOCKS {
        let read = nbd.read(block * BLOCK_BYTES as u64, BLOCK_BYTES);
        assert!(read == content(block, round), "block {block} of round {round}");
    }
}

fn content(block: u64, round: u64) -> Vec<u8> {
    let word = (block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    (0..BLOCK_BYTES as u64 / 8).flat_map(|at| (word ^ at).to_le_bytes()).collect()
}

/// File names of the pool's disks, by number, in this state.
fn disks(place: &Place, state: &str) -> Vec<String> {
    let disks = place.json(&["disk", "list", "--pool", "tank"]);
    let disks = disks["items"].as_array().unwrap().iter();
    disks.filter(|disk| disk["status"]["state"] == state).map(|disk| file_name(&disk["name"])).collect()
}

fn file_name(path: &serde_json::Value) -> String {
    path.as_str().unwrap().rsplit('/').next().unwrap().into()
}

/// File names of the disks that the next start will look for.
fn remembered(place: &Place) -> Vec<String> {
    let config = fs::read(place.data().join("config")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    let pools = config["pools"].as_array().unwrap();
    let tank = pools.iter().find(|pool| pool["name"] == "tank").unwrap();
    assert!(tank.get("joining").is_none(), "{tank}");
    tank["disks"].as_array().unwrap().iter().map(file_name).collect()
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[test]
fn disks_are_replaced_taken_out_and_back_added_and_removed() {
    let place = Place::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        place.disk(name, DISK_BYTES);
    }
    let daemon = Daemon::start(&place);
    let create = ["pool", "create", "tank", "--layout", "2+1", "a", "b", "c", "d"];
    place.run(&[&create[..], &["--spare", "a"]].concat()).expect(2).says("one role");
    place.run(&[&create[..], &["--enclosure", "e=left"]].concat()).expect(2).says("not one of the pool's");
    place.run(&[&create[..], &["--enclosure", "a=left", "b=right"]].concat()).expect(0);
    place.run(&["volume", "create", "tank/v", "--size", "64M"]).expect(0);
    write(&daemon, 1);
    let shown = place.run(&["disk", "list"]).expect(0).out;
    assert!(shown.contains("tank/3") && shown.contains("left"), "{shown}");
    assert_eq!(disks(&place, "online"), ["a", "b", "c", "d"]);

    // What cannot be is refused, in a dry run, too.
    for more in [&[][..], &["--dry-run"]] {
        let refused = |words: &[&str], code| place.run(&[words, more].concat()).expect(code);
        refused(&["disk", "replace", "tank/9", "e"], 3).says("disk list");
        refused(&["disk", "replace", "nothing/0", "e"], 3);
        refused(&["disk", "replace", "tank/0", "nothing"], 3);
        refused(&["disk", "replace", "tank/0", "b"], 5);
        refused(&["disk", "replace", "tank/0"], 5).says("spare");
        refused(&["disk", "online", "tank/0"], 4).says("in service");
        refused(&["pool", "add", "tank", "a"], 5);
        refused(&["pool", "add", "nothing", "e"], 3);
    }
    place.run(&["disk", "remove", "tank/0"]).expect(5).says("--yes");
    place.run(&["disk", "offline", "tank/0"]).expect(5).says("--yes");
    assert_eq!(remembered(&place), ["a", "b", "c", "d"]);

    // A replacement.
    let plan = place.json(&["disk", "replace", "tank/b", "e", "--dry-run"]);
    assert!(plan["changes"].to_string().contains("leaves the pool"), "{plan}");
    assert_eq!(disks(&place, "online"), ["a", "b", "c", "d"]);
    let task = place.json(&["disk", "replace", "tank/b", "e"]);
    assert_eq!((&task["name"], &task["object"]), (&"disk.replace".into(), &"tank/1".into()));
    assert_eq!(task["state"], "succeeded");
    assert_eq!(disks(&place, "online"), ["a", "c", "d", "e"]);
    assert_eq!(sorted(remembered(&place)), ["a", "c", "d", "e"]);
    check(&daemon, 1);
    daemon.kill();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "status", "tank"]).expect(0);
    check(&daemon, 1);

    // Out of service and back.
    place.run(&["disk", "offline", "tank/c", "--yes", "--dry-run"]).expect(0);
    place.run(&["disk", "offline", "tank/c", "--yes"]).expect(0);
    place.run(&["disk", "offline", "tank/d", "--yes", "--dry-run"]).expect(5).says("can lose 1");
    place.run(&["disk", "offline", "tank/d", "--yes"]).expect(5).says("can lose 1");
    place.run(&["pool", "status", "tank"]).expect(6);
    write(&daemon, 2);
    daemon.stop();
    let daemon = Daemon::start(&place);
    assert_eq!(disks(&place, "offline"), ["c"]);
    place.run(&["disk", "online", "tank/c"]).expect(0);
    place.run(&["pool", "status", "tank"]).expect(0);
    assert_eq!(sorted(disks(&place, "online")), ["a", "c", "d", "e"]);
    check(&daemon, 2);

    // A spare one, which takes a place when it is asked to.
    place.run(&["pool", "add", "tank", "f", "--spare", "--enclosure", "left", "--dry-run"]).expect(0);
    place.run(&["pool", "add", "tank", "f", "--spare", "--enclosure", "left"]).expect(0);
    assert_eq!(disks(&place, "spare"), ["f"]);
    place.run(&["disk", "replace", "tank/d"]).expect(0);
    assert_eq!(sorted(disks(&place, "online")), ["a", "c", "e", "f"]);

    // One more, and one less. What left may serve another pool: the next start must not look at it.
    // A file that served is not empty.
    place.run(&["pool", "add", "tank", "b"]).expect(5).says("data");
    place.run(&["pool", "add", "tank", "b", "--force"]).expect(0);
    place.run(&["disk", "remove", "tank/a", "--yes", "--dry-run"]).expect(0);
    place.run(&["disk", "remove", "tank/a", "--yes"]).expect(0);
    assert_eq!(sorted(disks(&place, "online")), ["b", "c", "e", "f"]);
    assert_eq!(sorted(remembered(&place)), ["b", "c", "e", "f"]);
    place.run(&["pool", "create", "other", "--layout", "single", "a", "--force"]).expect(0);
    check(&daemon, 2);
    daemon.kill();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "status"]).expect(0);
    check(&daemon, 2);
    place.run(&["disk", "locate", "tank/f", "--seconds", "1"]).expect(0);
    place.run(&["disk", "locate", "tank/9"]).expect(3);
    place.run(&["disk", "clear", "tank/f", "--dry-run"]).expect(0);
    place.run(&["disk", "clear", "tank/f"]).expect(0);
    place.run(&["disk", "clear", "tank/9"]).expect(3);
    daemon.stop();
}

/// Reads everything in an order in which no two neighbours follow each other, and compares.
fn check_at_random(daemon: &Daemon, round: u64) {
    let mut nbd = Nbd::open(&daemon.nbd, "tank/v");
    for block in (0..BLOCKS).map(|nth| nth * 97 % BLOCKS) {
        let read = nbd.read(block * BLOCK_BYTES as u64, BLOCK_BYTES);
        assert!(read == content(block, round), "block {block} of round {round}");
    }
}

/// Blocks a second that clients had from cache disks, in the last minutes.
fn from_cache(place: &Place) -> f64 {
    let answer = place.json(&["stat", "query", "cache.blocks[source]"]);
    let lines = answer["lines"].as_array().unwrap().iter();
    lines.filter(|line| line["labels"]["source"] == "flash").filter_map(|line| line["mean"].as_f64()).sum()
}

#[test]
fn a_cache_disk_serves_after_a_restart_and_is_lost_without_harm() {
    let place = Place::new();
    for name in ["a", "b", "c", "d"] {
        place.disk(name, DISK_BYTES);
    }
    let daemon = Daemon::start(&place);
    let create = ["pool", "create", "tank", "--layout", "mirror", "a", "b"];
    place.run(&[&create[..], &["--cache", "a"]].concat()).expect(2).says("one role");
    let plan = place.json(&[&create[..], &["--cache", "c", "--dry-run"]].concat());
    assert!(plan["changes"].to_string().contains("read at random"), "{plan}");
    place.run(&[&create[..], &["--cache", "c"]].concat()).expect(0);
    place.run(&["volume", "create", "tank/v", "--size", "64M"]).expect(0);
    write(&daemon, 1);
    daemon.stop();
    let daemon = Daemon::start(&place);
    check_at_random(&daemon, 1);
    daemon.kill();
    let daemon = Daemon::start(&place);
    assert_eq!(
        (disks(&place, "cache"), disks(&place, "online")),
        (vec!["c".into()], vec!["a".into(), "b".into()])
    );
    wait_until("the cache disk serves", || {
        // Nothing is in memory then, and what the cache has is looked for.
        place.run(&["pool", "export", "tank"]).expect(0);
        place.run(&["pool", "import", "tank", "a", "b", "c"]).expect(0);
        // Counting begins a second after the import, and goes by the second.
        std::thread::sleep(Duration::from_secs(3));
        check_at_random(&daemon, 1);
        std::thread::sleep(Duration::from_secs(3));
        from_cache(&place) > 0.0
    });

    // Somebody writes over it, and it is another disk's, and gone.
    place.run(&["disk", "offline", "tank/c", "--yes"]).expect(4).says("disk remove");
    fs::OpenOptions::new().write(true).open(place.path().join("c")).unwrap().set_len(0).unwrap();
    fs::OpenOptions::new().write(true).open(place.path().join("c")).unwrap().set_len(DISK_BYTES).unwrap();
    check_at_random(&daemon, 1);
    daemon.kill();
    fs::remove_file(place.path().join("c")).unwrap();
    let daemon = Daemon::start(&place);
    check_at_random(&daemon, 1);
    assert_eq!(disks(&place, "empty"), [""]);
    place.run(&["disk", "remove", "tank/2", "--yes"]).expect(0);
    place.run(&["pool", "add", "tank", "d", "--cache"]).expect(0);
    assert_eq!(disks(&place, "cache"), ["d"]);
    check_at_random(&daemon, 1);
    place.run(&["disk", "remove", "tank/d", "--yes"]).expect(0);
    place.run(&["pool", "status", "tank"]).expect(0);
    check_at_random(&daemon, 1);
    daemon.stop();
}

#[test]
fn a_pool_gets_another_group_and_then_loses_a_disk_of_each() {
    let place = Place::new();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        place.disk(name, DISK_BYTES);
    }
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "2+1", "a", "b", "c"]).expect(0);
    place.run(&["volume", "create", "tank/v", "--size", "64M"]).expect(0);
    write(&daemon, 1);

    // What cannot be is refused, in a dry run, too.
    for more in [&[][..], &["--dry-run"]] {
        let refused =
            |words: &[&str], code| place.run(&[&["pool", "add", "tank"], words, more].concat()).expect(code);
        refused(&["--layout", "2+2", "d", "e", "f", "g"], 2).says("can lose one disk").says("as many");
        refused(&["--layout", "mirror", "d", "e"], 2).says("have parity");
        refused(&["--layout", "3+1", "d", "e", "f"], 2).says("needs 4 disks");
        refused(&["--layout", "3+1", "c", "d", "e", "f"], 5).says("tank");
        refused(&["--group", "1", "d"], 2).says("no data group");
    }
    let words = ["pool", "add", "tank", "--layout", "3+1", "d", "e", "f", "g", "--enclosure", "d=left"];
    let plan = place.json(&[&words[..], &["--dry-run"]].concat());
    assert!(plan["changes"].to_string().contains("a 3+1 group of 4 disks, with room for"), "{plan}");
    assert_eq!(disks(&place, "online"), ["a", "b", "c"]);
    let group = |number: usize| {
        let status = place.json(&["pool", "status", "tank"]);
        status["items"][0]["status"]["groups"][number].clone()
    };
    let bytes = |number: usize, field: &str| group(number)[field].as_u64().unwrap();
    let before = bytes(0, "size_bytes");
    place.run(&words).expect(0);
    assert_eq!(disks(&place, "online"), ["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!(remembered(&place), ["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!((group(1)["layout"].as_str(), group(1)["number"].as_u64()), (Some("3+1"), Some(1)));
    let pool = place.json(&["pool", "status", "tank"])["items"][0]["status"]["size_bytes"].clone();
    assert_eq!(pool.as_u64().unwrap(), before + bytes(1, "size_bytes"));
    write(&daemon, 2);
    assert!(bytes(1, "used_bytes") > 1 << 20, "{}", group(1));
    let shown = place.run(&["pool", "status", "tank"]).expect(0).out;
    assert!(shown.contains("group 1, data, 3+1") && shown.contains("left"), "{shown}");

    // Which group a disk joins has to be said now.
    place.run(&["pool", "add", "tank", "h", "--dry-run"]).expect(2).says("several data groups: 0, 1");
    place.run(&["pool", "add", "tank", "h"]).expect(2).says("--group");
    place.run(&["pool", "add", "tank", "h", "--group", "1"]).expect(0);
    assert_eq!(group(1)["disks"].as_array().unwrap().len(), 5);
    check(&daemon, 2);

    // One disk of each group is gone, and everything is there.
    daemon.kill();
    for name in ["b", "f"] {
        fs::remove_file(place.path().join(name)).unwrap();
    }
    let daemon = Daemon::start(&place);
    check(&daemon, 2);
    write(&daemon, 3);
    check(&daemon, 3);
    place.run(&["pool", "status", "tank"]).expect(6);
    daemon.stop();
}

#[test]
fn a_group_leaves_under_a_client_and_over_a_kill_and_its_disks_are_free() {
    let place = Place::new();
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        place.disk(name, DISK_BYTES);
    }
    for name in ["tiny1", "tiny2", "tiny3"] {
        place.disk(name, 22 << 20);
    }
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "2+1", "a", "b", "c"]).expect(0);
    place.run(&["volume", "create", "tank/v", "--size", "64M"]).expect(0);
    write(&daemon, 1);
    let refused = |group: &str, code| {
        let words = ["pool", "remove", "tank", "--group", group];
        place.run(&[&words[..], &["--yes"]].concat()).expect(code);
        place.run(&[&words[..], &["--dry-run"]].concat()).expect(code)
    };
    refused("0", 5).says("only data group").says("pool add POOL DISK… --layout");
    refused("7", 3).says("no group 7");
    place.run(&["pool", "add", "tank", "--layout", "2+1", "tiny1", "tiny2", "tiny3"]).expect(0);
    refused("0", 5).says("room for").says("MiB");
    place.run(&["pool", "remove", "tank", "--group", "1"]).expect(5).says("--yes");
    assert_eq!(disks(&place, "online").len(), 6);

    // What is small may go, and its disks may be used elsewhere.
    let told = place.run(&["pool", "remove", "tank", "--group", "1", "--yes"]).expect(0).out;
    assert!(told.contains("Group tank/1 is removed from its pool"), "{told}");
    assert_eq!(remembered(&place), ["a", "b", "c"]);
    place.run(&["pool", "create", "other", "--layout", "single", "tiny1", "--force"]).expect(0);
    check(&daemon, 1);

    // The first group, and with it the log, the nodes and the blocks.
    place.run(&["pool", "add", "tank", "--layout", "3+1", "d", "e", "f", "g"]).expect(0);
    let plan = place.json(&["pool", "remove", "tank", "--group", "0", "--dry-run"]);
    assert!(plan["changes"].to_string().contains("move from group 0"), "{plan}");
    place.run(&["pool", "remove", "tank", "--group", "0", "--yes", "--no-wait"]).expect(0);
    wait_until("it is seen", || {
        disks(&place, "leaving") == ["a", "b", "c"] || disks(&place, "online").len() == 4
    });
    write(&daemon, 2);
    daemon.kill();
    let daemon = Daemon::start(&place);
    check(&daemon, 2);
    write(&daemon, 3);
    wait_until("the group has left", || disks(&place, "online") == ["d", "e", "f", "g"]);
    wait_until("that is remembered", || remembered(&place) == ["d", "e", "f", "g"]);
    check(&daemon, 3);
    let events = place.run(&["event", "list"]).expect(0).out;
    assert!(events.contains("group 0 is empty, and its 3 disks are no longer part of the pool"), "{events}");
    place.run(&["pool", "status", "tank"]).expect(0);

    // Its number is free after a restart; one of the disks that are left may be gone.
    daemon.kill();
    fs::remove_file(place.path().join("e")).unwrap();
    let daemon = Daemon::start(&place);
    check(&daemon, 3);
    place.run(&["pool", "add", "tank", "--layout", "2+1", "a", "b", "c", "--force"]).expect(0);
    let status = place.run(&["pool", "status", "tank", "--json"]).expect(6).out;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let group = &status["items"][0]["status"]["groups"][0];
    assert_eq!((group["number"].as_u64(), group["layout"].as_str()), (Some(0), Some("2+1")), "{status}");
    write(&daemon, 4);
    check(&daemon, 4);
    daemon.stop();
}

#[test]
fn a_lost_disk_is_rebuilt_by_itself_and_what_is_in_the_way_is_told() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.disk(name, DISK_BYTES);
    }
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["volume", "create", "tank/v", "--size", "64M"]).expect(0);
    write(&daemon, 1);
    daemon.stop();
    fs::remove_file(place.path().join("b")).unwrap();
    let daemon = Daemon::start(&place);
    let status = || {
        let shown = place.run(&["pool", "status", "tank", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
        shown["items"][0].clone()
    };
    wait_until("the pool says what it waits for", || status()["status"]["rebuild"]["blocked"].is_string());
    let pool = status();
    assert!(pool["status"]["rebuild"]["left_bytes"].as_u64().unwrap() > 0, "{pool}");
    let conditions = pool["conditions"].as_array().unwrap();
    let healing = conditions.iter().find(|condition| condition["type"] == "Rebuilding").expect("a condition");
    assert_eq!((&healing["status"], &healing["reason"]), (&false.into(), &"Blocked".into()));
    let shown = place.run(&["pool", "status", "tank"]).expect(6).out;
    assert!(shown.contains("rebuild") && shown.contains("add a disk"), "{shown}");

    // A spare one that is too small changes nothing, and whoever waits is told so.
    place.disk("tiny", 24 << 20);
    let waiting = place.run(&["pool", "add", "tank", "tiny", "--spare"]);
    waiting.expect(4).says("can take the data").says("continues automatically");
    // One that is large enough does, without anybody waiting.
    place.run(&["pool", "add", "tank", "c", "--no-wait"]).expect(0);
    wait_until("the pool has healed", || {
        let pool = status();
        pool["status"]["state"] == "online" && pool["status"].get("rebuild").is_none()
    });
    check(&daemon, 1);
    // The lost one is told of until another takes its place, or it is removed.
    let lost = place.json(&["disk", "list", "--pool", "tank"]);
    let lost = lost["items"].as_array().unwrap().iter().find(|disk| disk["status"]["state"] == "rebuilt");
    let lost = format!("tank/{}", lost.expect("all was rebuilt elsewhere")["status"]["number"]);
    let alerts = || place.json(&["alert", "list"])["items"].to_string();
    let alert = format!("disk.rebuilt:{lost}");
    assert!(alerts().contains(&alert), "{}", alerts());
    place.disk("d", DISK_BYTES);
    let plan = place.run(&["disk", "replace", &lost, "d", "--dry-run"]).expect(0).out;
    assert!(plan.contains("rebuilt already") && plan.contains("leaves the pool"), "{plan}");
    place.run(&["disk", "replace", &lost, "d"]).expect(0);
    assert!(!alerts().contains(&alert), "{}", alerts());
    assert_eq!(remembered(&place), ["a", "tiny", "c", "d"]);
    check(&daemon, 1);
    daemon.kill();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "status", "tank"]).expect(0);
    check(&daemon, 1);
    daemon.stop();
}

#[test]
fn a_trim_gives_back_the_space_of_what_was_deleted() {
    let place = Place::new();
    let disks = ["a", "b"].map(|name| place.disk(name, DISK_BYTES));
    let held = || disks.iter().map(|disk| fs::metadata(disk).unwrap().blocks() * 512).sum::<u64>();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["volume", "create", "tank/v", "--size", "64M"]).expect(0);
    place.run(&["volume", "create", "tank/other", "--size", "64M"]).expect(0);
    let mut nbd = Nbd::open(&daemon.nbd, "tank/other");
    (0..BLOCKS).for_each(|block| nbd.write(block * BLOCK_BYTES as u64, &content(block, 9)));
    drop(nbd);
    write(&daemon, 1);

    let (data, full) = (2 * BLOCKS * BLOCK_BYTES as u64, held());
    assert!(full > 2 * data, "the disks hold {full} bytes");
    place.run(&["volume", "delete", "tank/other", "--purge", "--force", "--yes"]).expect(0);
    // What was deleted is free some checkpoints later.
    wait_until("the space is given back", || {
        let trim = place.json(&["pool", "trim", "tank"]);
        assert!(trim["result"]["discarded_bytes"].as_u64().unwrap() > DISK_BYTES, "{trim}");
        assert_eq!(trim["result"]["disks_without"].as_array().unwrap().len(), 0, "{trim}");
        held() < full - data * 3 / 4
    });
    assert!(held() > data, "the disks hold {} bytes, and {data} are in use", held());
    check(&daemon, 1);
    let said = place.run(&["pool", "trim", "tank"]).expect(0).out;
    assert!(said.contains("was reported to the disks"), "{said}");
}

#[test]
fn a_schedule_of_scrubs_stays_with_its_pool() {
    let place = Place::new();
    for name in ["a", "b"] {
        place.disk(name, DISK_BYTES);
    }
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    let schedule = || place.json(&["pool", "list"])["items"][0]["status"]["scrub_schedule"].clone();
    let created = place.json(&["pool", "list"])["items"][0]["status"]["created_unix_ms"].as_u64().unwrap();
    assert_eq!(
        schedule(),
        serde_json::json!({ "every_seconds": 2592000, "next_unix_ms": created + 2592000000 })
    );
    place.run(&["pool", "scrub", "tank", "--every", "12m"]).expect(2).says("every 12m is not possible");
    place.run(&["pool", "scrub", "tank", "--every", "7d"]).expect(0);
    daemon.kill();
    let _daemon = Daemon::start(&place);
    assert_eq!(schedule()["every_seconds"], 604800);
    place.run(&["pool", "scrub", "tank"]).expect(0);
    let after = schedule();
    let (last, next) = (after["last_unix_ms"].as_u64().unwrap(), after["next_unix_ms"].as_u64().unwrap());
    assert!(last > created && next == last + 604800000, "{after}");
    place.run(&["pool", "scrub", "tank", "--every", "off"]).expect(0);
    assert!(schedule().get("next_unix_ms").is_none(), "{}", schedule());
    let said = place.run(&["pool", "status", "tank"]).expect(0).out;
    assert!(said.contains("next none scheduled"), "{said}");
}
