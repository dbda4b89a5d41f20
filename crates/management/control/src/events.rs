//! The event log: what an administrator may want to know. A [`Journal`] in `events.jsonl`.

use crate::convert;
use crate::directory::DataDir;
use crate::journal::{Journal, Record, shorten};
use forebay_api::{Event, Severity};
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Milliseconds since 1970-01-01 UTC.
pub fn now_unix_ms() -> u64 {
    // A clock before 1970 is a clock that was never set.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}

impl Record for Event {
    const FILE: &'static str = "events.jsonl";
    const FILE_OLD: &'static str = "events.1.jsonl";
    const WHAT: &'static str = "events";

    fn sequence(&self) -> u64 {
        self.sequence
    }
    fn set_sequence(&mut self, sequence: u64) {
        self.sequence = sequence;
    }
    fn shorten(&mut self) {
        shorten(&mut self.message);
        shorten(&mut self.object);
    }
    fn dropped(count: u64) -> Event {
        Event {
            sequence: 0,
            at_unix_ms: now_unix_ms(),
            severity: Severity::Warning,
            code: "events.dropped".into(),
            object: "events".into(),
            message: format!("{count} events are lost: they came faster than they could be recorded"),
        }
    }
}

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct EventLog {
    journal: Journal<Event>,
}

impl EventLog {
    pub fn open(dir: Arc<DataDir>) -> io::Result<EventLog> {
        Ok(EventLog { journal: Journal::open(dir)? })
    }

    /// Records an event now. Never blocks.
    pub fn record(&self, severity: Severity, code: &str, object: &str, message: &str) {
        self.journal.push(Event {
            sequence: 0,
            at_unix_ms: now_unix_ms(),
            severity,
            code: code.into(),
            object: object.into(),
            message: message.into(),
        });
    }

    /// What the engine and the protocol servers call.
    pub fn sink(&self) -> Arc<dyn Fn(forebay_pool::Event) + Send + Sync> {
        let log = self.clone();
        Arc::new(move |event| {
            log.journal.push(Event {
                sequence: 0,
                at_unix_ms: event.at.0,
                severity: convert::severity(event.severity),
                code: event.code.into(),
                object: event.object,
                message: event.message,
            })
        })
    }

    /// Events after `after`, oldest first; without it the newest, oldest first. At most `limit`.
    pub fn list(&self, after: Option<u64>, limit: usize) -> Vec<Event> {
        self.journal.list(after, limit)
    }

    /// Tells the newest sequence number, and when it grows.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.journal.newest()
    }

    /// Waits until everything recorded before is in the file.
    pub fn flush(&self) {
        self.journal.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{FILE_BYTES_MAX, KEPT, TEXT_BYTES_MAX};
    use crate::test_directory;
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    fn record(log: &EventLog, from: u64, to: u64) {
        (from..=to).for_each(|n| {
            log.record(Severity::Info, "test.number", "object", &format!("number {n}"));
            // The queue is bounded on purpose; this test is not about drops.
            if n % 1000 == 0 {
                log.flush();
            }
        });
        log.flush();
    }

    #[test]
    fn numbers_go_on_after_a_torn_line() {
        let temp = test_directory();
        let dir = Arc::new(DataDir::open(temp.path()).unwrap());
        let log = EventLog::open(dir.clone()).unwrap();
        record(&log, 1, 10);
        // What `kill -9` in the middle of a write leaves.
        let mut file = OpenOptions::new().append(true).open(dir.file(Event::FILE)).unwrap();
        file.write_all(b"{\"sequence\":11,\"at_un").unwrap();
        let log = EventLog::open(dir.clone()).unwrap();
        assert_eq!(log.list(None, 100).len(), 10);
        record(&log, 11, 12);
        let log = EventLog::open(dir).unwrap();
        let events = log.list(Some(9), 100);
        let numbers: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(numbers, [10, 11, 12]);
        assert_eq!(events[1].message, "number 11");
        assert_eq!(log.list(Some(9), 2).len(), 2);
        assert_eq!(log.list(Some(99), 2), []);
        assert_eq!(log.list(None, 1)[0].sequence, 12);
    }

    #[test]
    fn files_and_memory_are_bounded() {
        let temp = test_directory();
        let dir = Arc::new(DataDir::open(temp.path()).unwrap());
        let log = EventLog::open(dir.clone()).unwrap();
        for _ in 0..30 {
            for _ in 0..400 {
                log.record(Severity::Info, "test.long", "object", &"ü".repeat(3000));
            }
            log.flush();
        }
        // 12 000 events of a good kilobyte: more than both files may hold.
        let size = |name| fs::metadata(dir.file(name)).unwrap().len();
        let slack = 256 * 2048;
        assert!(size(Event::FILE) < FILE_BYTES_MAX + slack && size(Event::FILE_OLD) < FILE_BYTES_MAX + slack);
        let events = log.list(Some(0), usize::MAX);
        assert_eq!(events.len(), KEPT);
        assert!(events.iter().all(|event| event.message.len() <= TEXT_BYTES_MAX + '…'.len_utf8()));
        assert_eq!(events.last().unwrap().sequence, 12_000);
        assert_eq!(EventLog::open(dir).unwrap().list(None, 1)[0].sequence, 12_000);
    }
}
