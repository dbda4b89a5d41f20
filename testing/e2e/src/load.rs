//! Writers for the kill -9 test: connections that keep a queue of writes going until the server is gone, and remember
//! what they asked for and what they were told.
//!
//! Each connection is one thread with [`DEPTH`] requests in flight: mostly data of 1 to 16 units, some zeros
//! and flushes; one in ten with FUA. One place in four is in a small hot range, so that writes overlap and follow each other.

use crate::history::{self, Flush, Kind, Round, UNIT, Write};
use crate::host::{Context, Outcome};
use forebay_base::Random;
use forebay_client::{Command, Connection, FLAG_FUA};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const DEPTH: usize = 32;
const UNITS_MAX: u64 = 16;
const HOT_UNITS: u64 = 256;

/// Numbers that all connections of a run share.
#[derive(Clone)]
pub struct Ticks {
    time: Arc<AtomicU64>,
    version: Arc<AtomicU64>,
}

impl Ticks {
    pub fn new() -> Ticks {
        Ticks { time: Arc::new(AtomicU64::new(1)), version: Arc::new(AtomicU64::new(1)) }
    }
    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }
    fn version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::SeqCst)
    }
}

impl Default for Ticks {
    fn default() -> Ticks {
        Ticks::new()
    }
}

/// What one connection writes to.
#[derive(Clone)]
pub struct Target {
    pub address: String,
    pub export: String,
    /// The volume's number in its units' contents.
    pub volume: u64,
    pub units: u64,
    pub sync_always: bool,
}

pub fn open(target: &Target) -> Outcome<Connection> {
    Connection::open(&target.address, &target.export).context("opening the export")
}

enum Pending {
    /// Index into the round's writes.
    Write(usize),
    Flush {
        issued: u64,
    },
}

/// Writes until the connection breaks. An error reply is a failure: the server was healthy until it was gone.
pub fn write_until_broken(
    mut connection: Connection,
    target: &Target,
    ticks: &Ticks,
    seed: u64,
) -> Outcome<Round> {
    let mut random = Random::new(seed);
    let mut round = Round::default();
    let mut pending: HashMap<u64, Pending> = HashMap::new();
    let mut cookie = 0;
    let mut data = vec![0; UNITS_MAX as usize * UNIT];
    loop {
        while pending.len() < DEPTH {
            cookie += 1;
            let request = queue(&mut connection, target, ticks, &mut random, &mut round, cookie, &mut data);
            pending.insert(cookie, request);
        }
        if connection.send().is_err() {
            return Ok(round);
        }
        let mut wait = true;
        loop {
            let (cookie, error) = match connection.reply(wait) {
                Ok(Some(reply)) => (reply.cookie, reply.error),
                Ok(None) => break,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Err(format!("{}: {error}", target.export));
                }
                Err(_) => return Ok(round),
            };
            wait = false;
            if error != 0 {
                return Err(format!("{}: a request was answered with error {error}", target.export));
            }
            match pending.remove(&cookie).expect("the connection checks cookies") {
                Pending::Write(index) => round.writes[index].acknowledged = Some(ticks.now()),
                Pending::Flush { issued } => round.flushes.push(Flush { issued }),
            }
        }
    }
}

fn queue(
    connection: &mut Connection,
    target: &Target,
    ticks: &Ticks,
    random: &mut Random,
    round: &mut Round,
    cookie: u64,
    data: &mut [u8],
) -> Pending {
    let issued = ticks.now();
    let draw = random.below(100);
    if draw < 4 && connection.abilities().flush {
        connection.command(Command::Flush, cookie, 0, 0, 0);
        return Pending::Flush { issued };
    }
    let units = 1 + random.below(UNITS_MAX);
    let within = if random.one_in(4) { HOT_UNITS.min(target.units) } else { target.units };
    let unit = random.below(within - units.min(within - 1));
    let abilities = connection.abilities();
    let zeros = (4..8).contains(&draw) && abilities.write_zeroes;
    let fua = if zeros { abilities.write_zeroes_fua } else { abilities.fua } && random.one_in(10);
    let flags = if fua { FLAG_FUA } else { 0 };
    let version = ticks.version();
    let (at, len) = (unit * UNIT as u64, units as usize * UNIT);
    let kind = if zeros {
        connection.command(Command::WriteZeroes, cookie, at, len, flags);
        Kind::Zeros
    } else {
        for i in 0..units {
            let bytes = &mut data[i as usize * UNIT..][..UNIT];
            history::fill(bytes, target.volume, unit + i, version);
        }
        connection.write(cookie, at, &data[..len], flags);
        Kind::Data
    };
    let durable = target.sync_always || fua;
    round.writes.push(Write { version, kind, unit, units, issued, acknowledged: None, durable });
    Pending::Write(round.writes.len() - 1)
}

/// Reads the whole volume and says what each unit shows.
pub fn look_at_all(target: &Target) -> Outcome<Vec<history::Seen>> {
    const PART: usize = 256;
    let mut connection = open(target)?;
    let mut seen = Vec::with_capacity(target.units as usize);
    while (seen.len() as u64) < target.units {
        let first = seen.len() as u64;
        let units = PART.min((target.units - first) as usize);
        let read = connection.read_now(first * UNIT as u64, units * UNIT).context("reading back")?;
        let bytes = read.map_err(|error| format!("reading back unit {first}: error {error}"))?;
        seen.extend(
            bytes
                .chunks_exact(UNIT)
                .zip(first..)
                .map(|(bytes, unit)| history::look(bytes, target.volume, unit)),
        );
    }
    connection.close().context("closing")?;
    Ok(seen)
}
