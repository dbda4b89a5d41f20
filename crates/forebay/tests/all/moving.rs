//! Do clients notice when a volume moves to another pool under them, or is searched for zeros, and is all there that was
//! acknowledged, also when the daemon is killed meanwhile?
//!
//! Method: the real daemon and its command line; a client writes and reads over one NBD connection all the time, and knows what was
//! acknowledged.

use crate::common::{Daemon, Nbd, PATIENCE, Place};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: usize = 8192;
const BLOCKS: u64 = 4096;

fn content(generation: u64, block: u64) -> Vec<u8> {
    let mut bytes = vec![generation as u8; BLOCK];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&generation.to_le_bytes());
    bytes
}

/// What a client wrote: the generation of each block.
struct Client {
    nbd: Nbd,
    known: Vec<u64>,
    next: u64,
    /// The longest that one request took.
    longest: Duration,
}

impl Client {
    fn open(daemon: &Daemon, export: &str) -> Client {
        Client {
            nbd: Nbd::open(&daemon.nbd, export),
            known: vec![0; BLOCKS as usize],
            next: 0,
            longest: Duration::ZERO,
        }
    }

    fn fill(&mut self) {
        for block in 0..BLOCKS {
            self.write(block);
        }
    }

    fn write(&mut self, block: u64) {
        self.next += 1;
        let begin = Instant::now();
        self.nbd.write(block * BLOCK as u64, &content(self.next, block));
        self.longest = self.longest.max(begin.elapsed());
        self.known[block as usize] = self.next;
    }

    /// Writes here and there, and reads, until it is told to stop.
    fn work(&mut self, stop: &AtomicBool) {
        let mut at = 1;
        while !stop.load(Ordering::SeqCst) {
            at = (at * 1597 + 51749) % BLOCKS;
            self.write(at);
            self.expect(&[(at * 7) % BLOCKS]);
        }
    }

    fn expect(&mut self, blocks: &[u64]) {
        for &block in blocks {
            let is_right =
                self.nbd.read(block * BLOCK as u64, BLOCK) == content(self.known[block as usize], block);
            assert!(is_right, "block {block} is not what was acknowledged");
        }
    }

    fn expect_all(&mut self) {
        self.expect(&(0..BLOCKS).collect::<Vec<_>>());
    }
}

/// Ends the client's work also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn pools(place: &Place) {
    place.disks();
    ["c", "d", "e"].iter().for_each(|name| drop(place.disk(name, 256 << 20)));
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["pool", "create", "vault", "--layout", "2+1", "c", "d", "e"]).expect(0);
}

fn used(place: &Place, pool: &str) -> u64 {
    let pools = place.json(&["pool", "list"])["items"].clone();
    let pools = pools.as_array().expect("a list");
    let found = pools.iter().find(|one| one["name"] == json!(pool)).expect("there");
    found["status"]["used_bytes"].as_u64().expect("a number")
}

/// Goal: a client goes on over its connection through two moves, and the space of the pool that was left comes back.
#[test]
fn a_client_goes_on_while_its_volume_moves() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    pools(&place);
    let before = used(&place, "tank");
    place.run(&["volume", "create", "tank/a", "--size", "32M", "--format", "zeroedthick"]).expect(0);
    let volume = place.json(&["volume", "show", "tank/a"]);
    let mut client = Client::open(&daemon, "tank/a");
    client.fill();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let working = scope.spawn(|| client.work(&stop));
        let _stop = Stop(&stop);
        assert!(
            place.run(&["volume", "move", "tank/a", "vault", "--dry-run"]).expect(0).out.contains("vault")
        );
        let moved = place.run(&["volume", "move", "tank/a", "vault"]).expect(0);
        assert!(
            moved.out.contains("has moved to pool vault") || moved.err.contains("has moved to pool vault")
        );
        thread::sleep(Duration::from_millis(200));
        place.run(&["volume", "show", "tank/a"]).expect(3);
        // Nobody may think that it is not used.
        place.run(&["volume", "delete", "vault/a", "--yes"]).expect(5);
        // What it left can be exported.
        place.run(&["pool", "export", "tank"]).expect(0);
        thread::sleep(Duration::from_millis(200));
        place.run(&["pool", "import", "tank", "a", "b"]).expect(0);
        let there = place.json(&["volume", "show", "vault/a"]);
        assert_eq!((&there["id"], &there["spec"]), (&volume["id"], &volume["spec"]));
        stop.store(true, Ordering::SeqCst);
        working.join().expect("it saw what was acknowledged, and no error");
    });
    client.expect_all();
    println!("the longest request took {:?}", client.longest);
    assert!(client.longest < Duration::from_secs(5), "{:?}", client.longest);
    let begin = Instant::now();
    // On each of two shards an empty chunk of data may stay: it takes a leaf of its table, and that a node above.
    let before = before + 2 * 2 * 16384;
    while used(&place, "tank") > before {
        assert!(begin.elapsed() < PATIENCE, "{} of {before}", used(&place, "tank"));
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(place.json(&["volume", "moves"])["items"], json!([]));
    place.run(&["volume", "move", "vault/a", "vault"]).expect(2);
    place.run(&["volume", "move", "vault/a", "attic"]).expect(3);
    place.run(&["snapshot", "create", "vault/a@one"]).expect(0);
    place.run(&["volume", "move", "vault/a", "tank"]).expect(4);
    place.run(&["snapshot", "delete", "vault/a@one", "--yes"]).expect(0);
    let id = volume["id"].as_str().expect("a UUID");
    place.run(&["volume", "move", id, "tank"]).expect(0);
    client.write(1);
    client.expect_all();
    drop(client);
    daemon.stop();
    place.run(&["check", "--offline", "a", "b"]).expect(0);
    place.run(&["check", "--offline", "c", "d", "e"]).expect(0);
}

/// Goal: a daemon that is killed at any moment of a move leaves one volume, with all that was acknowledged; and a move that is canceled
/// leaves the volume where it was.
#[test]
fn a_move_that_does_not_end_leaves_one_volume() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place);
    pools(&place);
    place.run(&["volume", "create", "tank/a", "--size", "32M"]).expect(0);
    let mut client = Client::open(&daemon, "tank/a");
    client.fill();
    let (mut known, mut next) = (client.known, client.next);
    drop(client.nbd);
    let mut places = Vec::new();
    for round in 0..8u64 {
        let name = place.json(&["volume", "list"])["items"][0]["name"].as_str().expect("a name").to_string();
        let to = if name.starts_with("tank") { "vault" } else { "tank" };
        let mut client = Client { known, next, ..Client::open(&daemon, &name) };
        let task = place.json(&["volume", "move", &name, to, "--no-wait"]);
        let id = task["id"].as_str().expect("a task").to_string();
        let begin = Instant::now();
        // The last rounds last as long as the move, and longer.
        while begin.elapsed() < Duration::from_millis(30 * round * round) {
            client.write((next + round * 97) % BLOCKS);
            next = client.next;
        }
        if round == 2 {
            let canceled = place.run(&["task", "cancel", &id]);
            let state = || place.json(&["task", "list"])["items"][0]["state"].clone();
            while canceled.code == Some(0) && state() == json!("running") {
                thread::sleep(Duration::from_millis(20));
            }
            if state() == json!("cancelled") {
                place.run(&["volume", "show", &name]).expect(0);
            }
        }
        (known, next) = (client.known, client.next);
        daemon.kill();
        daemon = Daemon::start(&place);
        let volumes = place.json(&["volume", "list"])["items"].clone();
        assert_eq!(volumes.as_array().expect("a list").len(), 1, "{volumes}");
        assert_eq!(place.json(&["volume", "moves"])["items"], json!([]));
        let name = volumes[0]["name"].as_str().expect("a name").to_string();
        let mut client = Client { known, next, ..Client::open(&daemon, &name) };
        client.expect_all();
        (known, next) = (client.known, client.next);
        places.push(name);
    }
    println!("where it was found: {places:?}");
    daemon.stop();
    place.run(&["check", "--offline", "a", "b"]).expect(0);
    place.run(&["check", "--offline", "c", "d", "e"]).expect(0);
}

/// Goal: zeros that a guest wrote are given back, and what it has stays.
#[test]
fn zeros_are_given_back() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    pools(&place);
    place.run(&["volume", "create", "tank/a", "--size", "32M", "--compression", "off"]).expect(0);
    let mut client = Client::open(&daemon, "tank/a");
    client.fill();
    for at in 0..16 {
        client.nbd.write(at << 20, &vec![0; 1 << 20]);
    }
    let mapped = || place.json(&["volume", "show", "tank/a"])["status"]["mapped_bytes"].as_u64();
    assert_eq!(mapped(), Some(32 << 20));
    let told = place.run(&["volume", "reclaim", "tank/a"]).expect(0).out;
    assert!(told.contains("16 MiB of zeros in tank/a"), "{told}");
    assert_eq!(mapped(), Some(16 << 20));
    client.expect(&(BLOCKS / 2..BLOCKS).collect::<Vec<_>>());
    assert!(client.nbd.read(0, 1 << 20) == vec![0; 1 << 20]);
}
