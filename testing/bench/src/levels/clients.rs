//! Clients over NBD that know what they wrote: every read is held against it.
//!
//! Each client has an area to itself, so what a read must return is known to the request. Every sector says which volume, block and write it is
//! of; what lies between is the same everywhere, and does not compress.

use crate::measure::{Places, Work};
use forebay_base::Random;
use forebay_client::Connection;
use forebay_e2e::host::{Context, Outcome};
use forebay_e2e::server::Export;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a block: requests are whole ones.
pub const BLOCK: u64 = 8 << 10;
const SECTOR: usize = 512;
const STAMP: usize = 16;

/// Requests that were answered, and their bytes.
#[derive(Default)]
pub struct Tally {
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
}

impl Tally {
    fn add(&self, bytes: usize) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// A part of a volume that one client has to itself.
pub struct Area {
    export: String,
    /// The volume's number, and the area's first block in it.
    volume: u32,
    first: u64,
    /// By block, which write it holds; 0 before the first.
    writes: Vec<u32>,
}

impl Area {
    /// A volume that nothing was written to.
    pub fn new(export: &Export, volume: u32) -> Area {
        let writes = vec![0; (export.size / BLOCK) as usize];
        Area { export: export.name.clone(), volume, first: 0, writes }
    }

    /// The same in so many equal parts.
    pub fn split(self, parts: usize) -> Vec<Area> {
        let blocks = self.writes.len() / parts;
        let part = |(nth, writes): (usize, &[u32])| Area {
            export: self.export.clone(),
            volume: self.volume,
            first: (nth * blocks) as u64,
            writes: writes.to_vec(),
        };
        self.writes.chunks_exact(blocks).enumerate().map(part).collect()
    }

    pub fn bytes(&self) -> u64 {
        self.writes.len() as u64 * BLOCK
    }

    /// The sectors of a request and what each begins with.
    fn stamps(&self, place: u64, len: usize) -> impl Iterator<Item = [u8; STAMP]> + use<'_> {
        let first = (place * len as u64 / BLOCK) as usize;
        let blocks = (first..first + len / BLOCK as usize).map(|block| {
            let mut stamp = [0; STAMP];
            stamp[..8].copy_from_slice(&(self.first + block as u64).to_le_bytes());
            stamp[8..12].copy_from_slice(&self.volume.to_le_bytes());
            stamp[12..].copy_from_slice(&self.writes[block].to_le_bytes());
            stamp
        });
        blocks.flat_map(|stamp| std::iter::repeat_n(stamp, BLOCK as usize / SECTOR))
    }

    /// The next write to these blocks is this.
    fn write(&mut self, place: u64, data: &mut [u8]) {
        let first = (place * data.len() as u64 / BLOCK) as usize;
        let len = data.len();
        self.writes[first..first + len / BLOCK as usize].iter_mut().for_each(|write| *write += 1);
        for (sector, stamp) in data.chunks_exact_mut(SECTOR).zip(self.stamps(place, len)) {
            sector[..STAMP].copy_from_slice(&stamp);
        }
    }

    /// `like` is as long, and has what lies between the stamps.
    fn check(&self, place: u64, data: &[u8], like: &[u8]) -> Outcome {
        let sectors = data.chunks_exact(SECTOR).zip(like.chunks_exact(SECTOR));
        for (nth, ((read, like), stamp)) in sectors.zip(self.stamps(place, data.len())).enumerate() {
            if read[..STAMP] != stamp || read[STAMP..] != like[STAMP..] {
                let at = self.first * BLOCK + place * data.len() as u64 + (nth * SECTOR) as u64;
                let (read, stamp) = (&read[..STAMP], &stamp[..]);
                return Err(format!(
                    "{}: WRONG CONTENT at byte {at}: {read:02x?} instead of {stamp:02x?}",
                    self.export
                ));
            }
        }
        Ok(())
    }
}

/// When requests are made that do not wait for answers: so many a second, or, without a rate, as soon as a client is free.
pub struct Demand {
    begins: Instant,
    rate: Option<u64>,
    made: AtomicU64,
}

impl Demand {
    pub fn new(rate: Option<u64>) -> Demand {
        Demand { begins: Instant::now(), rate, made: AtomicU64::new(0) }
    }

    /// When the next one is due, whoever makes it.
    fn next(&self) -> Instant {
        let nth = self.made.fetch_add(1, Relaxed);
        self.rate
            .map_or_else(Instant::now, |rate| self.begins + Duration::from_secs_f64(nth as f64 / rate as f64))
    }
}

/// An answer, and how long after the request was due it came.
#[derive(Clone, Copy)]
pub struct Answer {
    pub at: Instant,
    pub took: Duration,
}

/// A connection with one kind of work.
pub struct Client<'a> {
    connection: Connection,
    area: &'a mut Area,
    work: Work,
    random: Random,
    /// Of a request.
    data: Vec<u8>,
}

impl Client<'_> {
    pub fn open<'a>(address: &str, area: &'a mut Area, work: Work, seed: u64) -> Outcome<Client<'a>> {
        let connection = Connection::open(address, &area.export).context(&area.export)?;
        let mut block = [0; BLOCK as usize];
        Random::new(1).fill(&mut block);
        let data = block.repeat(work.size / BLOCK as usize);
        Ok(Client { connection, area, work, random: Random::new(seed), data })
    }

    /// Keeps the work's depth in flight until told to stop, or until `places` end.
    pub fn drive(mut self, mut places: Places, tally: &Tally, stop: &AtomicBool) -> Outcome {
        let depth = self.work.depth;
        // By slot, where its request is. The slot's number is the cookie.
        let mut in_flight = vec![None; depth];
        let mut free: Vec<usize> = (0..depth).collect();
        loop {
            while let Some(&slot) = free.last()
                && !stop.load(Relaxed)
                // What is read is known only where nothing is being written.
                && let Some(place) = places.find(|place| !in_flight.contains(&Some(*place)))
            {
                free.pop();
                in_flight[slot] = Some(place);
                self.queue(slot as u64, place);
            }
            if free.len() == depth {
                return self.connection.close().context("closing");
            }
            self.connection.send().context("sending")?;
            let mut wait = true;
            while let Some(reply) = self.connection.reply(wait).context("receiving")? {
                wait = false;
                let slot = reply.cookie as usize;
                let place = in_flight[slot].take().expect("a reply answers what is in flight");
                if reply.error != 0 {
                    return Err(format!(
                        "{}: a request was answered with error {}",
                        self.area.export, reply.error
                    ));
                }
                // Writes are answered with nothing.
                self.area.check(place, reply.data, &self.data)?;
                tally.add(self.work.size);
                free.push(slot);
            }
        }
    }

    fn queue(&mut self, cookie: u64, place: u64) {
        let at = self.area.first * BLOCK + place * self.work.size as u64;
        if self.work.direction.writes(&mut self.random) {
            self.area.write(place, &mut self.data);
            self.connection.write(cookie, at, &self.data, 0);
        } else {
            self.connection.read(cookie, at, self.work.size);
        }
    }

    /// Makes one request after the other, at random, each when it is due, until told to stop.
    pub fn ask(mut self, demand: &Demand, tally: &Tally, stop: &AtomicBool) -> Outcome<Vec<Answer>> {
        let mut answers = Vec::new();
        while !stop.load(Relaxed) {
            let due = demand.next();
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let place = self.random.below(self.area.bytes() / self.work.size as u64);
            self.queue(0, place);
            self.connection.send().context("sending")?;
            let reply = self.connection.reply(true).context("receiving")?.expect("waiting yields a reply");
            if reply.error != 0 {
                return Err(format!(
                    "{}: a request was answered with error {}",
                    self.area.export, reply.error
                ));
            }
            let at = Instant::now();
            self.area.check(place, reply.data, &self.data)?;
            answers.push(Answer { at, took: at - due });
            tally.add(self.work.size);
        }
        self.connection.close().context("closing")?;
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas() -> Vec<Area> {
        let export = Export { name: "pool/volume".into(), size: 8 * BLOCK, sync_always: true };
        Area::new(&export, 3).split(2)
    }

    #[test]
    fn what_was_not_written_there_last_is_wrong() {
        let mut areas = areas();
        let like = vec![7; 2 * BLOCK as usize];
        let mut data = like.clone();
        areas[1].write(1, &mut data);
        let before = data.clone();
        areas[1].write(1, &mut data);
        assert_eq!(areas[1].check(1, &data, &like), Ok(()));
        assert!(areas[1].check(1, &before, &like).is_err(), "an older write");
        assert!(areas[1].check(0, &data, &like).is_err(), "another block's");
        areas[0].writes = areas[1].writes.clone();
        assert!(areas[0].check(1, &data, &like).is_err(), "another area's");
        *data.last_mut().expect("it is not empty") ^= 1;
        assert!(areas[1].check(1, &data, &like).is_err(), "a wrong bit");
    }

    #[test]
    fn demand_is_even() {
        let demand = Demand::new(Some(3000));
        let due: Vec<Duration> = (0..=3000).map(|_| demand.next() - demand.begins).collect();
        assert_eq!(
            (due[0], due[1500], due[3000]),
            (Duration::ZERO, Duration::from_millis(500), Duration::from_secs(1))
        );
    }
}
