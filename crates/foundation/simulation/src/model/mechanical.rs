//! A disk that turns: command overhead, seek, rotation, and transfer at the rate of the zone (Ruemmler and Wilkes, An Introduction to Disk Drive Modeling, 1994).
//!
//! *Where things are*: the disk is read from its outer edge inwards, and the rate falls in a straight line with the place of the arm. Then the time at which a
//! reader from the beginning comes to a byte is proportional to where the arm is by then, and both follow from the byte by one square root; and since tracks are
//! laid so that such a reader never waits, that time in revolutions is the angle, too.
//!
//! *Which is next*: of what waits, what can be begun first (Seltzer, Chen and Ousterhout, Disk Scheduling Revisited, 1990: shortest time first), but every other time what a host
//! has waited for too long. Writes are over when they are in the buffer, if they need not be on the medium; they go there when nothing else waits, when half of the buffer is
//! full, and before a flush is over. After a read the disk reads on into its buffer until something else is asked for.

use super::{Device, DiskSheet, Kind, Order, Seeks, transfer};
use crate::disk::Work;
use std::collections::BTreeMap;

const SECOND: f64 = 1e9;
/// Nanoseconds by which a job may come late for the place where the one before ended: what was rounded since.
const TOLERANCE: f64 = 10_000.0;
/// After this long, what a host waits for is next, every other time.
const PATIENCE: u64 = 500_000_000;
/// So many, the oldest, are looked at for which is next: command queues hold as many.
const CANDIDATES: usize = 256;

/// Nanoseconds of a seek by a part of the disk's width: a + b·√d + c·d through the three that the sheet has.
#[derive(Clone, Copy)]
struct Curve {
    track: f64,
    root: f64,
    linear: f64,
}

/// Something that the arm has to do.
struct Job {
    number: u64,
    arrived: u64,
    at: u64,
    bytes: u64,
    /// Where it begins, and how long it takes from there.
    place: f64,
    transfer: u64,
    is_write: bool,
    /// Whether it comes before writes that need not be on the medium.
    is_urgent: bool,
    slower: u32,
    /// Nothing for a write that is over already, being in the buffer.
    work: Option<Work>,
}

pub(crate) struct Mechanical {
    sheet: DiskSheet,
    read: Curve,
    write: Curve,
    /// Nanoseconds in which all of it is read.
    whole: f64,
    revolution: f64,
    /// Where the arm is, in the time in which it would have come there reading, and since when it has nothing to do, there having read or written up to this byte.
    place: f64,
    idle_since: u64,
    end: u64,
    /// Whether that was a read, and so it has read on since.
    reads_on: bool,
    /// By number.
    waiting: Vec<Job>,
    serving: Option<(Job, u64)>,
    /// Whether what was begun last had waited for too long.
    was_overdue: bool,
    /// Bytes in the buffer that are to be written.
    dirty: u64,
    /// What is over, by time and number.
    over: BTreeMap<(u64, u64), Work>,
    /// Flushes and when they came, by the number that they came with: they wait for all writes before.
    flushes: BTreeMap<u64, (u64, Work)>,
    jobs: u64,
    busy: u64,
}

impl Curve {
    fn new(seeks: &Seeks) -> Curve {
        let nanos = |time: std::time::Duration| time.as_nanos() as f64;
        let (track, average, full) = (nanos(seeks.track), nanos(seeks.average), nanos(seeks.full));
        // Between two places at random, √d is 8/15 and d is 1/3 on average.
        let (mean_root, mean) = (8.0 / 15.0, 1.0 / 3.0);
        let root = ((average - track) - mean * (full - track)) / (mean_root - mean);
        Curve { track, root, linear: full - track - root }
    }

    fn time(&self, distance: f64) -> f64 {
        self.track + self.root * distance.sqrt() + self.linear * distance
    }
}

impl Device for Mechanical {
    fn accept(&mut self, now: u64, order: Order) {
        self.jobs += 1;
        let Order { work, at, bytes, kind, slower } = order;
        let is_write = match kind {
            Kind::Flush => {
                self.flushes.insert(self.jobs, (now, work));
                self.end_flushes(now);
                self.begin(now);
                return;
            }
            Kind::Read => false,
            Kind::Write { .. } => true,
        };
        let place = self.place_of(at);
        let transfer = (self.place_of(at + bytes) - place).ceil() as u64;
        let is_urgent = !is_write || kind == Kind::Write { durable: true };
        let (number, arrived) = (self.jobs, now);
        let work = Some(work);
        self.waiting.push(Job {
            number,
            arrived,
            at,
            bytes,
            place,
            transfer,
            is_write,
            is_urgent,
            slower,
            work,
        });
        self.fill_buffer(now);
        self.begin(now);
    }

    fn next(&self) -> Option<u64> {
        let serving = self.serving.as_ref().map(|(_, until)| *until);
        let over = self.over.keys().next().map(|(at, _)| *at);
        serving.into_iter().chain(over).min()
    }

    fn advance(&mut self, now: u64) -> Vec<Work> {
        while let Some((job, until)) = self.serving.take_if(|(_, until)| *until <= now) {
            (self.end, self.idle_since, self.reads_on) = (job.at + job.bytes, until, !job.is_write);
            self.place = job.place + job.transfer as f64;
            match job.work {
                Some(work) => drop(self.over.insert((until, job.number), work)),
                None => self.dirty -= job.bytes,
            }
            self.fill_buffer(until);
            self.end_flushes(until);
            self.begin(until);
        }
        let later = self.over.split_off(&(now + 1, 0));
        std::mem::replace(&mut self.over, later).into_values().collect()
    }

    fn busy(&self) -> u64 {
        self.busy
    }
}

impl Mechanical {
    pub fn new(sheet: DiskSheet) -> Mechanical {
        Mechanical {
            read: Curve::new(&sheet.read),
            write: Curve::new(&sheet.write),
            whole: sheet.bytes as f64 * 2.0 / (sheet.outer + sheet.inner) as f64 * SECOND,
            revolution: 60.0 * SECOND / f64::from(sheet.rpm),
            place: 0.0,
            idle_since: 0,
            end: 0,
            reads_on: false,
            waiting: Vec::new(),
            serving: None,
            was_overdue: false,
            dirty: 0,
            over: BTreeMap::new(),
            flushes: BTreeMap::new(),
            jobs: 0,
            busy: 0,
            sheet,
        }
    }

    /// Nanoseconds after which a reader from the first byte on comes to this one.
    fn place_of(&self, byte: u64) -> f64 {
        let (outer, inner) = (self.sheet.outer as f64, self.sheet.inner as f64);
        // Bytes from outside up to the arm at x (1 is inside) are to all bytes as outer·x − (outer − inner)·x²/2 is to the mean rate.
        let part = byte as f64 / self.sheet.bytes as f64 * (outer + inner) / 2.0;
        let fall = outer - inner;
        (outer - (outer * outer - 2.0 * fall * part).max(0.0).sqrt()) / fall * self.whole
    }

    /// How long it takes to begin with a job now, and when it would be over.
    fn times(&self, job: &Job, now: u64) -> (u64, u64) {
        let overhead = self.sheet.overhead.as_nanos() as u64;
        let ready = now.max(job.arrived + overhead);
        let curve = if job.is_write { &self.write } else { &self.read };
        let distance = (job.place - self.place).abs() / self.whole;
        let seek = if distance * f64::from(self.sheet.tracks) < 1.0 { 0.0 } else { curve.time(distance) };
        let arrived = ready as f64 + seek;
        let wait = (job.place - arrived).rem_euclid(self.revolution);
        let wait = if wait > self.revolution - TOLERANCE { 0.0 } else { wait };
        let begun = (arrived + wait).ceil() as u64;
        let over = begun + job.transfer;
        if let Some(read) = self.read_by(job) {
            // It comes from the buffer, or from where the disk is reading anyway.
            let read = read.max(ready + transfer(job.bytes, self.sheet.interface));
            if read <= over {
                return (read.saturating_sub(now + job.transfer), read);
            }
        }
        (begun - now, over)
    }

    /// When a disk that has read on since its last job comes to the end of this one, if it begins there or later, and the buffer holds all that is before.
    fn read_by(&self, job: &Job) -> Option<u64> {
        let skipped = job.at.checked_sub(self.end)?;
        let reads_it = self.reads_on && !job.is_write && skipped + job.bytes <= self.sheet.buffer;
        reads_it.then(|| self.idle_since + (job.place - self.place).max(0.0).ceil() as u64 + job.transfer)
    }

    /// Takes writes into the buffer as far as there is room, the oldest first.
    fn fill_buffer(&mut self, now: u64) {
        let overhead = self.sheet.overhead.as_nanos() as u64;
        for job in self.waiting.iter_mut().filter(|job| !job.is_urgent && job.work.is_some()) {
            if self.dirty + job.bytes > self.sheet.buffer {
                return;
            }
            self.dirty += job.bytes;
            let took = overhead + transfer(job.bytes, self.sheet.interface);
            let over = (now + took * u64::from(job.slower), job.number);
            self.over.extend(job.work.take().map(|work| (over, work)));
        }
    }

    /// Ends the flushes before which no write is left.
    fn end_flushes(&mut self, now: u64) {
        let serving = self.serving.iter().map(|(job, _)| job);
        let writes = self.waiting.iter().chain(serving).filter(|job| job.is_write);
        let oldest = writes.map(|job| job.number).min().unwrap_or(u64::MAX);
        let later = self.flushes.split_off(&oldest);
        let over = now + self.sheet.overhead.as_nanos() as u64;
        let ended = std::mem::replace(&mut self.flushes, later);
        self.over.extend(ended.into_iter().map(|(number, (_, work))| ((over, number), work)));
    }

    /// Begins with what is next, if there is anything.
    fn begin(&mut self, now: u64) {
        if self.serving.is_some() {
            return;
        }
        let waits = self.waiting.iter().any(|job| job.is_urgent);
        let writes = !waits || !self.flushes.is_empty() || self.dirty > self.sheet.buffer / 2;
        let is_late = |arrived: u64| arrived + PATIENCE < now;
        let overdue = |job: &&Job| job.work.is_some() && is_late(job.arrived);
        // Who waits for a flush waits for the writes before it.
        let late = self.flushes.iter().rev().find(|(_, (arrived, _))| is_late(*arrived));
        let flushed = |job: &&Job| job.is_write && late.is_some_and(|(number, _)| job.number < *number);
        let may = |job: &&Job| writes || job.is_urgent;
        let soonest = |among: &dyn Fn(&&Job) -> bool| {
            let candidates = self.waiting.iter().filter(|job| among(job)).take(CANDIDATES);
            candidates.map(|job| (self.times(job, now).0, job.number)).min().map(|(_, number)| number)
        };
        let overdue = self.waiting.iter().find(overdue).map(|job| job.number);
        let first = overdue.or_else(|| soonest(&flushed)).filter(|_| !self.was_overdue);
        let Some(number) = first.or_else(|| soonest(&may)) else { return };
        self.was_overdue = first.is_some();
        let index = self.waiting.iter().position(|job| job.number == number).expect("it waits");
        let job = self.waiting.remove(index);
        let took = (self.times(&job, now).1 - now) * u64::from(job.slower);
        self.busy += took;
        self.serving = Some((job, now + took));
    }
}
