//! What all cores know of one disk: whether it is in service, and its errors.
//!
//! Totals grow until somebody clears them. Beside them stands what erred *of late*: places, not requests. A place counts once, however
//! often it is read and in whatever pieces, and weighs half as much after each [`HALF_LIFE`] without an error. So one bad sector
//! weighs one, also where it is read every second and cannot be rewritten, and a thousand bad sectors weigh a thousand
//! (as far as [`PLACES_MAX`] goes), although each was read and put right once.
//!
//! Two requests that overlap may have met the same bad sector, so they are taken for one place: what they have in common. A bad sector
//! lies in everything that it made fail, so it is never two places.

use forebay_base::Nanos;
use forebay_base::planted::{Bug, active};
use forebay_runtime::{DiskError, DiskErrorKind};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A day: who looks every morning sees what the night brought, and a disk that finds another bad sector every hour
/// stands at 24 / ln 2 = 35.
const HALF_LIFE: u64 = 24 * 3600 * 1_000_000_000;
/// Places remembered of each kind of error: more than any judgement asks for.
const PLACES_MAX: usize = 256;

/// What all cores know of one disk. `failed`, `empty` and `shrunk` never go back within one import.
#[derive(Default, Debug)]
pub struct Health {
    failed: AtomicBool,
    empty: AtomicBool,
    shrunk: AtomicBool,
    /// Locked where something went wrong only.
    record: Mutex<Record>,
    /// What the write or flush ended with for which the disk was taken out.
    cause: Mutex<Option<DiskError>>,
}

#[derive(Default, Debug)]
struct Record {
    totals: ErrorCounts,
    unreadable: Places,
    wrong: Places,
}

/// What is held against a disk since it was cleared; of late, since this import.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ErrorCounts {
    /// Requests that the device failed.
    pub read: u64,
    pub write: u64,
    /// Reads that were not what had been written, and how many places were rewritten with what is right.
    pub checksum: u64,
    pub repaired: u64,
    /// Places of late that could not be read, and those that were wrong.
    pub read_recent: u64,
    pub checksum_recent: u64,
}

impl Health {
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
    /// Takes the disk out. True for the first caller.
    pub fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::AcqRel)
    }
    /// Takes the disk out for a write or a flush that ended with this error. True for the first caller.
    pub fn failed_by(&self, error: DiskError) -> bool {
        if error.kind.is_of_device() {
            self.failed_write();
        }
        if error.kind == DiskErrorKind::Shrunk {
            self.shrink();
        }
        if !self.is_failed() {
            self.cause.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        self.fail()
    }
    /// The error for which the disk was taken out, if it was one.
    pub fn cause(&self) -> Option<DiskError> {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether nothing points to the disk any more, so that its failure is no loss.
    pub fn is_empty(&self) -> bool {
        self.empty.load(Ordering::Acquire)
    }
    pub fn emptied(&self) {
        self.empty.store(true, Ordering::Release);
    }

    /// Whether it has become shorter, so that nothing it still holds is what it should be.
    pub fn is_shrunk(&self) -> bool {
        self.shrunk.load(Ordering::Acquire)
    }
    pub fn shrink(&self) {
        self.shrunk.store(true, Ordering::Release);
    }

    /// The device could not read these bytes.
    pub fn failed_read(&self, now: Nanos, bytes: Range<u64>) {
        let mut record = self.record();
        record.totals.read += 1;
        record.unreadable.note(now, bytes);
    }
    /// These bytes are not what was written there.
    pub fn failed_check(&self, now: Nanos, bytes: Range<u64>) {
        let mut record = self.record();
        record.totals.checksum += 1;
        let places =
            if active(Bug::WrongCountsAsUnreadable) { &mut record.unreadable } else { &mut record.wrong };
        places.note(now, bytes);
    }
    /// The device failed a write or a flush.
    pub fn failed_write(&self) {
        self.record().totals.write += 1;
    }
    /// Bytes that were unreadable or wrong were rewritten.
    pub fn repaired(&self) {
        self.record().totals.repaired += 1;
    }

    /// What earlier imports held against it, unless somebody has cleared it.
    pub fn seen(&self, errors: &ErrorCounts) {
        let mut record = self.record();
        record.totals = ErrorCounts {
            read: record.totals.read + errors.read,
            write: record.totals.write + errors.write,
            checksum: record.totals.checksum + errors.checksum,
            repaired: record.totals.repaired + errors.repaired,
            ..record.totals
        };
    }

    pub fn errors(&self, now: Nanos) -> ErrorCounts {
        let record = self.record();
        let (read_recent, checksum_recent) = (record.unreadable.weight(now), record.wrong.weight(now));
        ErrorCounts { read_recent, checksum_recent, ..record.totals }
    }
    /// Forgets all errors.
    pub fn clear(&self) {
        *self.record() = Record::default();
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where errors were of late, the latest last.
#[derive(Default, Debug)]
struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    bytes: Range<u64>,
    at: Nanos,
}

impl Places {
    fn note(&mut self, at: Nanos, mut bytes: Range<u64>) {
        let overlaps = |place: &Place| place.bytes.start < bytes.end && bytes.start < place.bytes.end;
        if let Some(nth) = self.0.iter().position(overlaps)
            && !active(Bug::SamePlaceCountsAgain)
        {
            let known = self.0.remove(nth).bytes;
            bytes = known.start.max(bytes.start)..known.end.min(bytes.end);
        } else if self.0.len() == PLACES_MAX {
            self.0.remove(0);
        }
        self.0.push(Place { bytes, at });
    }

    /// Each place by its age, together, to the nearest whole number.
    fn weight(&self, now: Nanos) -> u64 {
        let weight = |place: &Place| (-(now.since(place.at) as f64) / HALF_LIFE as f64).exp2();
        self.0.iter().map(weight).sum::<f64>().round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn recent(health: &Health, half_lives: u64) -> (u64, u64) {
        let errors = health.errors(Nanos(half_lives * HALF_LIFE));
        (errors.read_recent, errors.checksum_recent)
    }

    #[test]
    fn one_bad_sector_is_one_place_however_it_is_read() {
        let health = Health::default();
        // A scrub reads a run, then block by block; a rebuild halves its windows; clients read what they want.
        let bad = 300 * KIB;
        for (at, len) in
            [(0, 1024), (296, 8), (0, 512), (256, 256), (256, 128), (296, 8), (0, 1024), (300, 4)]
        {
            let bytes = at * KIB..(at + len) * KIB;
            assert!(bytes.contains(&bad), "the test's own figures");
            health.failed_read(Nanos(0), bytes);
        }
        assert_eq!((health.errors(Nanos(0)).read, recent(&health, 0)), (8, (1, 0)));
        health.failed_read(Nanos(0), 304 * KIB..312 * KIB);
        assert_eq!(recent(&health, 0), (2, 0), "what lies beside it is another");
    }

    #[test]
    fn the_first_error_is_why_a_disk_is_out() {
        let health = Health::default();
        assert_eq!(health.cause(), None);
        assert!(health.failed_by(DiskErrorKind::NoSpace.into()), "the first");
        assert!(!health.failed_by(DiskErrorKind::Gone.into()));
        health.clear();
        assert_eq!(health.cause().map(|error| error.kind), Some(DiskErrorKind::NoSpace));
        assert_eq!((health.is_failed(), health.is_shrunk()), (true, false));
        health.failed_by(DiskErrorKind::Shrunk.into());
        assert!(health.is_shrunk());
    }

    #[test]
    fn weights_halve_with_time_and_not_where_it_goes_on() {
        let health = Health::default();
        for place in 0..64 {
            health.failed_check(Nanos(0), place * KIB..(place + 1) * KIB);
        }
        assert_eq!([0, 1, 3, 7, 8].map(|age| recent(&health, age).1), [64, 32, 8, 1, 0]);
        health.failed_check(Nanos(6 * HALF_LIFE), 0..KIB);
        assert_eq!(recent(&health, 6).1, 2);
        assert_eq!(health.errors(Nanos(0)).checksum, 65, "totals stay");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_can_be_cleared() {
        let health = Health::default();
        for place in 0..100_000 {
            health.failed_read(Nanos(0), place * KIB..(place + 1) * KIB);
        }
        health.failed_write();
        health.repaired();
        assert_eq!(recent(&health, 0), (PLACES_MAX as u64, 0));
        let errors = health.errors(Nanos(0));
        assert_eq!((errors.read, errors.write, errors.repaired), (100_000, 1, 1));
        health.clear();
        assert_eq!(health.errors(Nanos(0)), ErrorCounts::default());
    }
}
