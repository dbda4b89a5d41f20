//! The demonstration's load: a few clients over NBD, as different as those of a real appliance, each read verified.
//!
//! Each client has an address of its own on the loopback network, so that the analytics tell them apart; each of its workers is a connection and has a
//! part of the volume for itself. A piece's content is a function of the volume, the place and a generation; the generation is in its first bytes, and
//! the worker remembers the last one that it wrote. So a read can be checked completely: it must be the piece of this volume, of this place, of the
//! remembered generation (after a restart, of any, since only then is none remembered), and whole.
//!
//! Rates are low: it is to be looked at, also on a laptop.

mod connection;

use connection::{Connection, Ended};
use forebay_api::Severity;
use forebay_base::{Checksum, MIB, Random};
use forebay_control::EventLog;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The part of a volume that a client uses: small enough to come by every piece now and then.
const REGION_BYTES: u64 = 64 * MIB;
/// A volume that is not there, because the user deleted it or exported the pool, is looked for so often.
const AGAIN: Duration = Duration::from_secs(3);
/// A stopping worker ends after its request in flight; a disk that hangs does not hold up the stop for ever.
const STOP_MAX: Duration = Duration::from_secs(10);
const HEADER_BYTES: usize = 16;

/// What a client is like.
pub struct Client {
    /// The last number of its address.
    pub host: u8,
    pub volume: &'static str,
    pub workers: u64,
    pub piece_bytes: usize,
    pub read_percent: u64,
    pub is_sequential: bool,
    /// Between two requests of a worker.
    pub pause: Duration,
    /// It works for the second of these out of each of the first; always without.
    pub at_times: Option<(Duration, Duration)>,
}

const fn client(
    host: u8,
    volume: &'static str,
    piece_bytes: usize,
    read_percent: u64,
    pause_ms: u64,
) -> Client {
    Client {
        host,
        volume,
        workers: 2,
        piece_bytes,
        read_percent,
        is_sequential: false,
        pause: Duration::from_millis(pause_ms),
        at_times: None,
    }
}

/// A database, mail, a player of films, a backup that comes every minute, and desktops that start together.
pub const CLIENTS: [Client; 5] = [
    Client { workers: 4, ..client(11, "demo/database", 8 << 10, 70, 25) },
    client(12, "demo/mail", 32 << 10, 50, 60),
    Client { workers: 1, is_sequential: true, ..client(13, "demo/media", 256 << 10, 95, 40) },
    Client {
        workers: 1,
        is_sequential: true,
        at_times: Some((Duration::from_secs(60), Duration::from_secs(12))),
        ..client(14, "demo/scratch", 1 << 20, 10, 30)
    },
    Client {
        workers: 8,
        at_times: Some((Duration::from_secs(90), Duration::from_secs(10))),
        ..client(15, "demo/desktops", 16 << 10, 90, 4)
    },
];

/// The running workers.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// Disconnected when the last worker has ended.
    ended: Receiver<()>,
}

impl Load {
    /// Starts all clients of the NBD server at `address`.
    pub fn start(address: SocketAddr, events: &EventLog) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (alive, ended): (Sender<()>, _) = channel();
        for client in &CLIENTS {
            for nth in 0..client.workers {
                let worker = Worker { client, nth, address, stop: stop.clone() };
                let (events, alive) = (events.clone(), alive.clone());
                // Without threads there is no load, which is a pity and nothing worse.
                let _ = std::thread::Builder::new().name("demo".into()).spawn(move || {
                    if let Err(why) = worker.run() {
                        let message = format!("the demonstration's load stopped: {why}");
                        events.record(Severity::Error, "demo.stopped", worker.client.volume, &message);
                    }
                    drop(alive);
                });
            }
        }
        Load { stop, ended }
    }

    /// Lets every worker finish what it has in flight.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.ended.recv_timeout(STOP_MAX) == Err(RecvTimeoutError::Timeout) {
            eprintln!("forebay: the demonstration's load does not stop; the daemon stops without it");
        }
    }
}

struct Worker {
    client: &'static Client,
    nth: u64,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps, and wakes up early at the end.
    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    /// Until it is over; an error when something was read that was not written.
    fn run(&self) -> Result<(), String> {
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| format!("no random numbers: {error}"))?;
        let mut random = Random::new(u64::from_le_bytes(seed));
        let mut pieces =
            Pieces { volume: self.client.volume, known: HashMap::new(), next: 1 + random.below(1 << 40) };
        let begun = Instant::now();
        while !self.is_over() {
            let from = Ipv4Addr::new(127, 0, 0, self.client.host);
            let opened = Connection::open(from, self.address, self.client.volume);
            match opened
                .map_err(Ended::from)
                .and_then(|connection| self.work(connection, &mut pieces, &mut random, begun))
            {
                Ok(()) => {}
                Err(Ended::Wrong(why)) => return Err(why),
                // A full pool, a sick disk or a volume that is not there are the daemon's to report, and may pass.
                Err(Ended::Broken) => self.sleep(AGAIN),
            }
        }
        Ok(())
    }

    fn work(
        &self,
        mut connection: Connection,
        pieces: &mut Pieces,
        random: &mut Random,
        begun: Instant,
    ) -> Result<(), Ended> {
        let Client { workers, piece_bytes, read_percent, is_sequential, pause, at_times, .. } = *self.client;
        let len = piece_bytes as u64;
        let count = (REGION_BYTES.min(connection.size()) / len / workers).max(1);
        let mut next = 0;
        while !self.is_over() {
            if let Some((every, lasting)) = at_times {
                let into = begun.elapsed().as_millis() % every.as_millis();
                if into >= lasting.as_millis() {
                    self.sleep(Duration::from_millis((every.as_millis() - into) as u64));
                    continue;
                }
            }
            next = if is_sequential { (next + 1) % count } else { random.below(count) };
            let piece = self.nth * count + next;
            if random.below(100) < read_percent {
                let found = connection.read(piece * len, piece_bytes)?;
                pieces.verify(piece, &found).map_err(Ended::Wrong)?;
            } else {
                let (generation, content) = pieces.renew(piece, piece_bytes);
                connection.write(piece * len, &content)?;
                pieces.known.insert(piece, generation);
            }
            self.sleep(pause);
        }
        connection.close();
        Ok(())
    }
}

/// What a worker knows of its part.
struct Pieces {
    volume: &'static str,
    known: HashMap<u64, u64>,
    next: u64,
}

impl Pieces {
    /// Another generation of a piece. Until its write is acknowledged it may be there or not: both are right.
    fn renew(&mut self, piece: u64, len: usize) -> (u64, Vec<u8>) {
        self.known.remove(&piece);
        self.next += 1;
        (self.next, self.content(piece, self.next, len))
    }

    fn content(&self, piece: u64, generation: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        bytes[..8].copy_from_slice(&generation.to_le_bytes());
        bytes[8..HEADER_BYTES].copy_from_slice(&piece.to_le_bytes());
        let volume = Checksum::of(self.volume.as_bytes()).0 as u64;
        // Half of it is the same again, so that it can be compressed.
        let half = HEADER_BYTES + (len - HEADER_BYTES) / 2;
        Random::new(volume ^ generation.rotate_left(32) ^ piece).fill(&mut bytes[HEADER_BYTES..half]);
        bytes
    }

    fn verify(&self, piece: u64, found: &[u8]) -> Result<(), String> {
        let generation = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
        match self.known.get(&piece) {
            Some(&expected) if expected != generation => {
                return Err(format!("piece {piece} has generation {generation} instead of {expected}"));
            }
            // Never written.
            None if found.iter().all(|&byte| byte == 0) => return Ok(()),
            _ => {}
        }
        match self.content(piece, generation, found.len()) == found {
            true => Ok(()),
            false => Err(format!("piece {piece} of generation {generation} does not match the written data")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_is_old_or_from_elsewhere_is_found_out() {
        let mut pieces = Pieces { volume: "demo/a", known: HashMap::new(), next: 7 };
        let (first, old) = pieces.renew(3, 4096);
        assert!(pieces.verify(3, &old).is_ok(), "not acknowledged, and there");
        assert!(pieces.verify(3, &vec![0; 4096]).is_ok(), "not acknowledged, and not there");
        pieces.known.insert(3, first);
        assert!(pieces.verify(3, &old).is_ok() && pieces.verify(3, &vec![0; 4096]).is_err());
        assert!(pieces.verify(4, &old).is_err(), "from another place");
        let mut bad = old.clone();
        bad[100] ^= 1;
        assert!(pieces.verify(3, &bad).is_err());
        let (second, new) = pieces.renew(3, 4096);
        pieces.known.insert(3, second);
        assert!(pieces.verify(3, &new).is_ok() && pieces.verify(3, &old).is_err());
    }
}
