//! Does a client lose anything when it fills the pool to the last byte, and does space come back?
//!
//! Method: the real daemon on files; random writes over NBD to thin volumes that are larger than the pool, until nothing is taken any more.

use crate::common::{Daemon, Nbd, PATIENCE, Place};
use forebay_base::Random;
use std::thread::sleep;
use std::time::{Duration, Instant};

const BLOCK: u64 = 8192;
const BLOCKS: u64 = 1 << 17;
const NO_SPACE: u32 = 28;

fn content(stamp: u32, block: u64) -> Vec<u8> {
    let mut random = Random::new(u64::from(stamp) << 32 | block);
    let mut bytes = vec![0; BLOCK as usize];
    random.fill(&mut bytes);
    bytes
}

/// A volume, and what was acknowledged of each block: the stamp, 0 for nothing yet.
struct Client {
    nbd: Nbd,
    known: Vec<u32>,
    stamp: u32,
}

impl Client {
    fn open(daemon: &Daemon, export: &str, known: Vec<u32>) -> Client {
        let stamp = known.iter().copied().max().unwrap_or(0);
        Client { nbd: Nbd::open(&daemon.nbd, export), known, stamp }
    }

    /// Writes up to 16 blocks that follow each other; whether there was room.
    fn write(&mut self, random: &mut Random) -> bool {
        let count = 1 + random.below(16);
        let first = random.below(BLOCKS - count);
        self.stamp += 1;
        let data: Vec<u8> = (first..first + count).flat_map(|block| content(self.stamp, block)).collect();
        match self.nbd.try_write(first * BLOCK, &data) {
            0 => self.known[first as usize..(first + count) as usize].fill(self.stamp),
            NO_SPACE => return false,
            error => panic!("error {error}"),
        }
        true
    }

    fn expect_all(&mut self) {
        for (block, stamp) in self.known.iter().enumerate().filter(|(_, stamp)| **stamp > 0) {
            let read = self.nbd.read(block as u64 * BLOCK, BLOCK as usize);
            assert!(read == content(*stamp, block as u64), "block {block} is not what was acknowledged");
        }
    }
}

/// Writes to both until neither has taken anything for a while.
fn fill(clients: &mut [Client], random: &mut Random) {
    let (start, mut refused) = (Instant::now(), 0);
    while refused < 20 {
        let nth = random.below(clients.len() as u64) as usize;
        refused = if clients[nth].write(random) { 0 } else { refused + 1 };
        assert!(start.elapsed() < 20 * PATIENCE, "the pool is never full");
    }
}

#[test]
fn a_full_pool_loses_nothing_and_recovers() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place);
    let disk = place.disk("a", 192 << 20);
    place.run(&["pool", "create", "tank", "--layout", "single", &disk]).expect(0);
    for name in ["tank/a", "tank/b"] {
        place.run(&["volume", "create", name, "--size", "1G", "--compression", "off"]).expect(0);
    }
    let mut random = Random::new(1);
    let open = |daemon: &Daemon, known: Vec<Vec<u32>>| -> Vec<Client> {
        let names = ["tank/a", "tank/b"].into_iter().zip(known);
        names.map(|(name, known)| Client::open(daemon, name, known)).collect()
    };
    let mut clients = open(&daemon, vec![vec![0; BLOCKS as usize]; 2]);
    fill(&mut clients, &mut random);
    clients.iter_mut().for_each(Client::expect_all);
    let pool = &place.json(&["pool", "list"])["items"][0]["status"];
    let bytes = |name: &str| pool[name].as_u64().expect("a number");
    // The last slice is for deleting.
    assert!(bytes("used_bytes") * 10 > bytes("size_bytes") * 8, "{pool}");
    clients.iter_mut().for_each(|client| client.nbd.flush());
    daemon.kill();
    daemon = Daemon::start(&place);
    let mut clients = open(&daemon, clients.into_iter().map(|client| client.known).collect());
    clients.iter_mut().for_each(Client::expect_all);
    drop(clients.pop());
    place.run(&["volume", "delete", "tank/b", "--purge", "--force", "--yes"]).expect(0);
    let (start, mut written) = (Instant::now(), 0);
    while written < 100 {
        match clients[0].write(&mut random) {
            true => written += 1,
            false => sleep(Duration::from_millis(50)),
        }
        assert!(start.elapsed() < PATIENCE, "space does not come back");
    }
    fill(&mut clients, &mut random);
    clients[0].expect_all();
    drop(clients);
    daemon.stop();
    place.run(&["check", "--offline", &disk]).expect(0);
}

/// Goal: a reservation that does not fit is refused and takes nothing: writes to other volumes of the nearly empty pool go on at once.
/// Method: two volumes are overwritten after each of the ways to be refused, also after a restart.
#[test]
fn a_refused_reservation_starves_no_volume() {
    const IMAGE: u64 = 2048;
    let place = Place::new();
    let mut daemon = Daemon::start(&place);
    let disks = ["a", "b"].map(|name| place.disk(name, 1 << 30));
    place.run(&["pool", "create", "tank", "--layout", "mirror", &disks[0], &disks[1]]).expect(0);
    for name in ["tank/v", "tank/u"] {
        place.run(&["volume", "create", name, "--size", "1G"]).expect(0);
    }
    let mut stamp = 0;
    let mut overwrite = |daemon: &Daemon, after: &str| {
        stamp += 1;
        for name in ["tank/v", "tank/u"] {
            let mut nbd = Nbd::open(&daemon.nbd, name);
            for first in (0..IMAGE).step_by(16) {
                let data: Vec<u8> = (first..first + 16).flat_map(|block| content(stamp, block)).collect();
                assert_eq!(nbd.try_write(first * BLOCK, &data), 0, "{name}, block {first}, after {after}");
            }
            nbd.flush();
            let read = nbd.read(5 * BLOCK, BLOCK as usize);
            assert!(read == content(stamp, 5), "{name} after {after}");
        }
    };
    overwrite(&daemon, "creation");
    place.run(&["volume", "create", "tank/grown", "--size", "100G"]).expect(0);
    let refused: [&[&str]; 4] = [
        &["volume", "create", "tank/big", "--size", "100G", "--format", "zeroedthick"],
        &["volume", "convert", "tank/grown", "--format", "zeroedthick"],
        &["volume", "create", "tank/big", "--size", "100G", "--format", "eagerzeroedthick"],
        &["volume", "convert", "tank/grown", "--format", "eagerzeroedthick"],
    ];
    for words in refused {
        let finished = place.run(words);
        assert!(finished.code != Some(0), "{words:?} was not refused");
        finished.says("not free");
        overwrite(&daemon, &words.join(" "));
    }
    for words in refused {
        place.run(&[words, &["--dry-run"]].concat()).expect(1).says("not free");
    }
    overwrite(&daemon, "a dry run");
    daemon.stop();
    daemon = Daemon::start(&place);
    overwrite(&daemon, "a restart");
    daemon.stop();
}

/// Goal: where what is free is held for others, the pool is shown as full as its clients find it, and a refusal is an alert.
#[test]
fn a_pool_whose_space_is_held_is_told_as_full() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let disk = place.disk("a", 512 << 20);
    place.run(&["pool", "create", "tank", "--layout", "single", &disk]).expect(0);
    place.run(&["volume", "create", "tank/held", "--size", "300M", "--format", "zeroedthick"]).expect(0);
    place.run(&["volume", "create", "tank/thin", "--size", "1G", "--compression", "off"]).expect(0);
    let status = |place: &Place| place.json(&["pool", "list"])["items"][0]["status"].clone();
    let bytes = |status: &serde_json::Value, name: &str| status[name].as_u64().expect("a number");
    let empty = status(&place);
    assert_eq!(
        bytes(&empty, "available_bytes"),
        bytes(&empty, "free_bytes") - bytes(&empty, "reserved_bytes")
    );
    assert!(bytes(&empty, "reserved_bytes") >= 300 << 20, "{empty}");
    let mut client = Client::open(&daemon, "tank/thin", vec![0; BLOCKS as usize]);
    let mut random = Random::new(2);
    fill(std::slice::from_mut(&mut client), &mut random);
    let full = status(&place);
    assert!(bytes(&full, "available_bytes") < 64 << 20, "{full}");
    let alerts = place.json(&["alert", "list"]);
    let ids: Vec<&str> =
        alerts["items"].as_array().expect("a list").iter().filter_map(|alert| alert["id"].as_str()).collect();
    for id in ["pool.no_space:tank", "pool.filling:tank"] {
        assert!(ids.contains(&id), "{ids:?}");
    }
    assert!(place.run(&["event", "list"]).expect(0).out.contains("pool.no_space"));
    client.expect_all();
    // What is set for the pool comes back with it; and it is not taken from who uses it.
    place.run(&["pool", "set", "tank", "--threshold", "70"]).expect(0);
    place
        .run(&["pool", "export", "tank"])
        .expect(5)
        .says("tank/thin is in use by NBD client")
        .says("--force");
    drop(client);
    let start = Instant::now();
    while place.run(&["pool", "export", "tank"]).code != Some(0) {
        assert!(start.elapsed() < PATIENCE, "the client is gone");
    }
    place.run(&["pool", "import", "tank", &disk]).expect(0);
    assert_eq!(
        place.json(&["pool", "list"])["items"][0]["spec"]["threshold_percents"],
        serde_json::json!([70])
    );
    daemon.stop();
}
