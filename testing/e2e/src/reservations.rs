//! Persistent reservations through `kill -9`: what keeps a fenced cluster node from writing must outlive the daemon.
//!
//! [`survive`] asks three questions. Does a reservation of each type, made with APTPL, hold after a restart: is it reported,
//! are others still refused, may its holder still write? Is everything gone that was given up, or made without APTPL, which
//! shows that the first answers are no accident? And when the daemon is killed while a host registers one key after the
//! other, is the key that is there afterwards the last one acknowledged, or the one that was being registered?

use crate::host::{Context, Directory, Outcome};
use crate::server::{Forebay, Iscsi, Server};
use forebay_base::Random;
use forebay_client::iscsi::{Connection, INITIATOR, Port};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The host that reserves, the same host through a port that is not registered, and another host.
const HOLDER: Port = Port { name: INITIATOR, isid: 1 };
const HOLDER_ELSEWHERE: Port = Port { name: INITIATOR, isid: 2 };
const OTHER: Port = Port { name: "iqn.2026-11.io.forebay.test:other", isid: 1 };

const KEY: u64 = 0xf0ebab;
/// Kills while keys are being registered.
const ROUNDS: usize = 10;
const LOAD_MS: std::ops::Range<u64> = 5..300;

/// SPC-4: the status RESERVATION CONFLICT, without sense data.
const CONFLICT: u32 = 0x18;
/// Types of reservations (SPC-4 table 60), and whether others may read.
const TYPES: [(u8, bool); 6] = [(1, true), (3, false), (5, true), (6, false), (7, true), (8, false)];
const WRITE_EXCLUSIVE: u8 = 1;

/// Service actions of PERSISTENT RESERVE OUT.
mod action {
    pub const REGISTER: u8 = 0;
    pub const RESERVE: u8 = 1;
    pub const CLEAR: u8 = 3;
    pub const REGISTER_AND_IGNORE: u8 = 6;
}

pub fn survive(binary: &Path, directory: &Directory) -> Outcome<String> {
    let mut server = Iscsi::new(Forebay::create(binary, directory, "mirror", 2, 1 << 30)?)?;
    server.forebay.cli(&["host", "create", "other", "--iqn", OTHER.name])?;
    server.create_volume("fenced", 16 << 20, "8K", true)?;
    server.forebay.cli(&["volume", "map", "e2e/fenced", "--host", "other"])?;
    for (kind, others_read) in TYPES {
        holds(&mut server, kind, others_read).context(format!("a reservation of type {kind}"))?;
    }
    forgets(&mut server).context("a reservation without APTPL")?;
    let keys = is_the_last(&mut server).context("keys that are being registered")?;
    server.forebay.stop()?;
    server.check_offline()?;
    Ok(format!("{} types hold through kills; {keys} keys in {ROUNDS} more, none lost", TYPES.len()))
}

/// A reservation of this type is what it was after a kill, and gone for good once it is given up.
fn holds(server: &mut Iscsi, kind: u8, others_read: bool) -> Outcome {
    let mut holder = log_in(server, HOLDER)?;
    allowed(holder.reserve(action::REGISTER, 0, 0, KEY, true), "registering")?;
    allowed(holder.reserve(action::RESERVE, kind, KEY, 0, true), "reserving")?;
    // Not once it has been reported: the answer to RESERVE is the promise.
    restart(server)?;

    let mut other = log_in(server, OTHER)?;
    refused(other.write(), "another host's write")?;
    if others_read {
        allowed(other.read(), "another host's read")?;
    } else {
        refused(other.read(), "another host's read")?;
    }
    refused(log_in(server, HOLDER_ELSEWHERE)?.write(), "a write through a port that is not registered")?;
    expect("the keys", other.keys()?, vec![KEY])?;
    // All registrants hold types 7 and 8, and then no key is told.
    let told = if kind < 7 { KEY } else { 0 };
    expect("the reservation", other.reservation()?, Some((told, kind)))?;
    let mut holder = log_in(server, HOLDER)?;
    allowed(holder.write(), "the holder's write")?;
    allowed(holder.reserve(action::CLEAR, 0, KEY, 0, false), "clearing")?;
    restart(server)?;

    let mut other = log_in(server, OTHER)?;
    expect("the keys after they were cleared", other.keys()?, Vec::new())?;
    expect("the reservation after it was cleared", other.reservation()?, None)?;
    allowed(other.write(), "another host's write after the reservation was cleared")
}

/// What was not to be kept is not kept.
fn forgets(server: &mut Iscsi) -> Outcome {
    let mut holder = log_in(server, HOLDER)?;
    allowed(holder.reserve(action::REGISTER, 0, 0, KEY, false), "registering")?;
    allowed(holder.reserve(action::RESERVE, WRITE_EXCLUSIVE, KEY, 0, false), "reserving")?;
    refused(log_in(server, OTHER)?.write(), "another host's write")?;
    restart(server)?;
    let mut other = log_in(server, OTHER)?;
    expect("the keys", other.keys()?, Vec::new())?;
    allowed(other.write(), "another host's write after a restart")
}

/// A host changes its key until the daemon is killed: the last acknowledged key is there, or the next. How many there were.
fn is_the_last(server: &mut Iscsi) -> Outcome<u64> {
    let seed = u64::from(std::process::id());
    eprintln!("    seed {seed}");
    let mut random = Random::new(seed);
    let mut acknowledged = 0;
    for round in 1..=ROUNDS {
        let mut holder = log_in(server, HOLDER)?;
        let register = thread::spawn(move || {
            let mut last = acknowledged;
            while let Ok(answer) = holder.reserve(action::REGISTER_AND_IGNORE, 0, 0, last + 1, true) {
                answer.map_err(|error| format!("registering key {} failed with {error:#x}", last + 1))?;
                last += 1;
            }
            Ok::<u64, String>(last)
        });
        thread::sleep(Duration::from_millis(LOAD_MS.start + random.below(LOAD_MS.end - LOAD_MS.start)));
        server.kill();
        let last = register.join().map_err(|_| "the host panicked")??;
        server.check_offline()?;
        server.start().context(format!("round {round}, restart"))?;
        match log_in(server, OTHER)?.keys()?[..] {
            [key] if key == last || key == last + 1 => acknowledged = key,
            // Killed before the first key was there.
            [] if last == 0 => {}
            ref keys => {
                return Err(format!("round {round}: key {last} was acknowledged, {keys:?} are there"));
            }
        }
    }
    if acknowledged == 0 { Err("no key was registered in any round".into()) } else { Ok(acknowledged) }
}

fn restart(server: &mut Iscsi) -> Outcome {
    server.kill();
    server.check_offline()?;
    server.start()
}

fn log_in(server: &Iscsi, port: Port) -> Outcome<Host> {
    let export = &server.exports()[0].name;
    let portal = server.address().trim_start_matches("iscsi://");
    Connection::open_as(portal, export, port).map(Host).context("logging in")
}

type Answer<T> = std::io::Result<Result<T, u32>>;

fn allowed<T>(answer: Answer<T>, what: &str) -> Outcome {
    match answer.context(what)? {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{what} failed with sense key and status {error:#x}")),
    }
}

fn refused<T>(answer: Answer<T>, what: &str) -> Outcome {
    match answer.context(what)? {
        Err(CONFLICT) => Ok(()),
        Err(error) => Err(format!("{what} failed with {error:#x} instead of a reservation conflict")),
        Ok(_) => Err(format!("{what} was not refused")),
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, seen: T, expected: T) -> Outcome {
    if seen == expected { Ok(()) } else { Err(format!("{what}: {seen:?} instead of {expected:?}")) }
}

/// One port's session.
struct Host(Connection);

impl Host {
    fn write(&mut self) -> Answer<()> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[8]) = (0x2a, 8);
        Ok(self.0.execute(cdb, 0, &[0x55; 4096])?.map(|_| ()))
    }

    fn read(&mut self) -> Answer<()> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[8]) = (0x28, 8);
        Ok(self.0.execute(cdb, 4096, &[])?.map(|_| ()))
    }

    /// PERSISTENT RESERVE OUT.
    fn reserve(&mut self, action: u8, kind: u8, key: u64, new_key: u64, aptpl: bool) -> Answer<()> {
        let mut list = [0; 24];
        list[..8].copy_from_slice(&key.to_be_bytes());
        list[8..16].copy_from_slice(&new_key.to_be_bytes());
        list[20] = u8::from(aptpl);
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, kind, list.len() as u8);
        Ok(self.0.execute(cdb, 0, &list)?.map(|_| ()))
    }

    /// What PERSISTENT RESERVE IN says behind its header.
    fn reserve_in(&mut self, action: u8) -> Outcome<Vec<u8>> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[7]) = (0x5e, action, 16);
        let said = self.0.execute(cdb, 4096, &[]).context("PERSISTENT RESERVE IN")?;
        let said = said.map_err(|error| format!("PERSISTENT RESERVE IN failed with {error:#x}"))?;
        said.get(8..).map(<[u8]>::to_vec).ok_or_else(|| "PERSISTENT RESERVE IN says too little".into())
    }

    fn keys(&mut self) -> Outcome<Vec<u64>> {
        let said = self.reserve_in(0)?;
        Ok(said.chunks_exact(8).map(|key| u64::from_be_bytes(key.try_into().expect("eight bytes"))).collect())
    }

    /// The holder's key, and the type.
    fn reservation(&mut self) -> Outcome<Option<(u64, u8)>> {
        let said = self.reserve_in(1)?;
        let [key @ .., _, kind, _, _] = &said[..] else { return Ok(None) };
        let key = key.first_chunk().ok_or("a reservation without a key")?;
        Ok(Some((u64::from_be_bytes(*key), kind & 15)))
    }
}
