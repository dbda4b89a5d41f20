//! Do snapshots reach another pool by way of files and pipes, whole or not at all, and is what broke off taken up again?
//!
//! Method: the real daemon and its command line; streams go through the shell's redirections, and `kill -9` comes in between.

use crate::common::{Daemon, Finished, Nbd, PATIENCE, Place, program};
use serde_json::json;
use std::fs::{self, File};
use std::time::{Duration, Instant};

const BLOCK: usize = 8192;

fn content(generation: u8, block: u64) -> Vec<u8> {
    let mut bytes = vec![generation; BLOCK];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

fn fill(daemon: &Daemon, export: &str, blocks: std::ops::Range<u64>, generation: u8) {
    let mut nbd = Nbd::open(&daemon.nbd, export);
    blocks.for_each(|block| nbd.write(block * BLOCK as u64, &content(generation, block)));
}

fn expect(daemon: &Daemon, export: &str, blocks: std::ops::Range<u64>, generation: u8) {
    let mut nbd = Nbd::open(&daemon.nbd, export);
    for block in blocks {
        let is_right = nbd.read(block * BLOCK as u64, BLOCK) == content(generation, block);
        assert!(is_right, "block {block} of {export} is not of generation {generation}");
    }
}

/// Sends to a file; returns the stream.
fn send(place: &Place, words: &[&str], file: &str) -> Vec<u8> {
    let path = place.path().join(file);
    let mut command = program();
    command.args(["snapshot", "send"]).args(words).arg("--data").arg(place.data());
    command.stdout(File::create(&path).expect("a file can be made"));
    assert!(command.status().expect("it runs").success(), "send {words:?}");
    fs::read(&path).expect("it was written just now")
}

fn receive(place: &Place, file: &str, words: &[&str]) -> Finished {
    let mut command = program();
    command.args(["snapshot", "receive"]).args(words).arg("--data").arg(place.data());
    command.stdin(File::open(place.path().join(file)).expect("there is such a stream"));
    Finished::of(command, words)
}

/// Goal: a copy in another pool follows the volume, through a stream that is cut and a daemon that is killed.
#[test]
fn a_copy_in_another_pool_follows_its_volume() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    place.disks();
    ["c", "d", "e"].iter().for_each(|name| drop(place.disk(name, 256 << 20)));
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["pool", "create", "vault", "--layout", "2+1", "c", "d", "e"]).expect(0);
    for project in ["tank/web", "vault/web"] {
        place.run(&["project", "create", project, "--compression", "off"]).expect(0);
    }
    place.run(&["volume", "create", "tank/web/a", "--size", "64M"]).expect(0);
    fill(&daemon, "tank/web/a", 0..1024, 1);
    place.run(&["snapshot", "create", "tank/web/a@one"]).expect(0);
    fill(&daemon, "tank/web/a", 100..200, 2);
    place.run(&["snapshot", "create", "tank/web/a@two"]).expect(0);

    // Whole, but cut in the middle, with a crash behind it.
    let whole = send(&place, &["tank/web/a@one"], "whole");
    assert!(whole.len() > 1024 * BLOCK);
    fs::write(place.path().join("cut"), &whole[..whole.len() / 2]).expect("written");
    let cut = receive(&place, "cut", &["vault/web/a"]).expect(2).says("is interrupted at byte");
    assert!(!place.run(&["volume", "list"]).expect(0).out.contains("vault/web/a"));
    daemon.kill();
    let daemon = Daemon::start(&place);
    let receptions = place.json(&["snapshot", "receives"])["items"].clone();
    let token = receptions[0]["resume_token"].as_str().expect("a token").to_string();
    assert!(cut.err.contains(&token), "{}", cut.err);
    assert_eq!((&receptions[0]["name"], &receptions[0]["active"]), (&json!("vault/web/a"), &json!(false)));
    assert!(receptions[0]["received_bytes"].as_u64().expect("a number") > 0);
    let rest = send(&place, &["tank/web/a@one", "--resume", &token], "rest");
    assert!(rest.len() < whole.len() * 3 / 4);
    let got = receive(&place, "rest", &["vault/web/a", "--json"]).expect(0);
    assert!(got.out.contains("\"vault/web/a@one\""), "{}", got.out);
    expect(&daemon, "vault/web/a", 0..1024, 1);
    assert_eq!(place.json(&["snapshot", "receives"])["items"], json!([]));

    // What changed is little, and is refused over other changes.
    let change = send(&place, &["tank/web/a@two", "--from", "@one"], "change");
    assert!(change.len() < 120 * BLOCK, "{} bytes", change.len());
    let mut damaged = change.clone();
    damaged[change.len() / 2] ^= 1;
    fs::write(place.path().join("damaged"), damaged).expect("written");
    wait_until_unused(&place, "damaged", 2).says("damaged or out of place");
    expect(&daemon, "vault/web/a", 100..200, 1);
    receive(&place, "change", &["vault/other"]).expect(0);
    expect(&daemon, "vault/other", 100..200, 2);
    fill(&daemon, "vault/web/a", 0..1, 9);
    wait_until_unused(&place, "change", 5).says("--discard-changes");
    place.run(&["snapshot", "abandon", "vault/web/a", "--dry-run"]).expect(0);
    place.run(&["snapshot", "abandon", "vault/web/a", "--yes"]).expect(0);
    place.run(&["snapshot", "abandon", "vault/web/a", "--yes"]).expect(3);
    receive(&place, "change", &["vault/web/a", "--discard-changes", "--force"]).expect(0);
    expect(&daemon, "vault/web/a", 0..100, 1);
    expect(&daemon, "vault/web/a", 100..200, 2);
    receive(&place, "change", &["vault/web/a", "--force"]).expect(4).says("has this snapshot already");
    receive(&place, "whole", &["vault/web/a", "--force"]).expect(4);
    let back = send(&place, &["vault/web/a@two", "--from", "@one"], "back");
    assert_eq!(back.len(), change.len(), "what came is what would be sent on");

    // The base goes, and a bookmark of it is enough.
    let made = place.json(&["bookmark", "create", "tank/web/a@two"]);
    assert_eq!(made["name"], "tank/web/a#two", "{made}");
    place.run(&["bookmark", "create", "tank/web/a@two"]).expect(4).says("a bookmark with this name exists");
    place.run(&["bookmark", "create", "tank/web/a@two", "again", "--dry-run"]).expect(0);
    place.run(&["snapshot", "delete", "tank/web/a@two", "--yes"]).expect(0);
    fill(&daemon, "tank/web/a", 500..510, 3);
    place.run(&["snapshot", "create", "tank/web/a@three"]).expect(0);
    let since = send(&place, &["tank/web/a@three", "--from", "#two"], "since");
    assert!(since.len() < 20 * BLOCK, "{} bytes", since.len());
    receive(&place, "since", &["vault/web/a", "--force"]).expect(0);
    expect(&daemon, "vault/web/a", 500..510, 3);
    expect(&daemon, "vault/web/a", 100..200, 2);
    place.run(&["snapshot", "rollback", "tank/web/a@one", "--force", "--yes"]).expect(0);
    place.run(&["snapshot", "create", "tank/web/a@back"]).expect(0);
    let refused = place.run(&["snapshot", "send", "tank/web/a@back", "--from", "tank/web/a#two"]).expect(2);
    refused.says("went back to an older state");
    let mut behind = made.clone();
    behind["usable"] = json!(false);
    assert_eq!(place.json(&["bookmark", "list", "tank/web/a"])["items"], json!([behind]));
    place.run(&["bookmark", "delete", "tank/web/a#two", "--yes"]).expect(0);
    place.run(&["bookmark", "delete", "tank/web/a#two", "--yes"]).expect(3).says("no such bookmark");
    assert_eq!(place.json(&["bookmark", "list", "--pool", "tank"])["items"], json!([]));

    // What is no stream, and what is not there.
    fs::write(place.path().join("text"), "not a stream, but long enough to be one's first record")
        .expect("written");
    receive(&place, "text", &["vault/x"]).expect(2).says("not a snapshot stream");
    place.run(&["snapshot", "send", "tank/web/a@none"]).expect(3);
    place.run(&["snapshot", "send", "tank/web/a@three", "--resume", "x"]).expect(2);
    let events = place.run(&["event", "list"]).expect(0).out;
    assert!(events.contains("snapshot.received") && events.contains("snapshot.receive_stopped"), "{events}");
    // Who has read a whole volume is written down, and who could not, too.
    let audit = place.json(&["audit", "list"]);
    let sent = |snapshot: &str, status: u64| {
        let entries = audit["items"].as_array().expect("a list").iter();
        let path = format!("/api/v1/snapshots/{snapshot}/stream");
        entries
            .filter(|one| {
                one["operation"] == "SnapshotSend" && one["path"] == path && one["status"] == status
            })
            .count()
    };
    assert_eq!(sent("tank%2Fweb%2Fa%40one", 200), 2, "{audit}");
    assert_eq!(sent("tank%2Fweb%2Fa%40none", 404), 1, "{audit}");
    daemon.stop();
    place.run(&["check", "--offline", "c", "d", "e"]).expect(0);
    place.run(&["check", "--offline", "a", "b"]).expect(0);
}

/// Receives once the server has noticed that nobody is connected to the volume any more, which is refused as well.
fn wait_until_unused(place: &Place, file: &str, code: i32) -> Finished {
    let begin = Instant::now();
    loop {
        let done = receive(place, file, &["vault/web/a"]);
        if !done.err.contains("in use") {
            return done.expect(code);
        }
        assert!(begin.elapsed() < PATIENCE, "still in use");
        std::thread::sleep(Duration::from_millis(100));
    }
}
