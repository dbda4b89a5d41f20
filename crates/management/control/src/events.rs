//! The event log: what an administrator may want to know, numbered without gaps.
//!
//! Events arrive from engine cores, which must not block: they go into a bounded queue, and one thread numbers
//! them, appends them to `events.jsonl` (one JSON object a line), and only then shows them to readers. So what was
//! ever shown is in the file, and after a `kill -9` the numbers go on where they stopped; a torn last line is closed
//! and skipped. (A power cut may take the newest lines: events are told, not promised.) When the file is full it
//! becomes `events.1.jsonl`, so at most twice [`FILE_BYTES_MAX`] is kept. The newest [`KEPT`] are also in memory; a
//! reader who asks for older ones sees the gap in the numbers.

use crate::convert;
use crate::directory::DataDir;
use forebay_api::{Event, Severity};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

const FILE: &str = "events.jsonl";
const FILE_OLD: &str = "events.1.jsonl";
/// Some 20 000 events.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// In memory: with the texts' limit below at most 5 MiB.
const KEPT: usize = 2048;
const TEXT_BYTES_MAX: usize = 1024;
/// A burst; what does not fit is counted, and the count becomes an event.
const QUEUE_MAX: usize = 4096;

/// Milliseconds since 1970-01-01 UTC.
pub fn now_unix_ms() -> u64 {
    // A clock before 1970 is a clock that was never set.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}

enum Message {
    Event(Event),
    Flush(SyncSender<()>),
}

struct Shared {
    kept: Mutex<VecDeque<Event>>,
    newest: watch::Sender<u64>,
    dropped: AtomicU64,
}

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct EventLog {
    shared: Arc<Shared>,
    queue: SyncSender<Message>,
}

impl EventLog {
    pub fn open(dir: Arc<DataDir>) -> io::Result<EventLog> {
        let mut kept = VecDeque::new();
        for name in [FILE_OLD, FILE] {
            read_tail(&dir.file(name), &mut kept)?;
        }
        let newest = kept.back().map_or(0, |event| event.sequence);
        let file = LogFile::open(dir)?;
        let shared = Arc::new(Shared {
            kept: Mutex::new(kept),
            newest: watch::Sender::new(newest),
            dropped: AtomicU64::new(0),
        });
        let (queue, events) = sync_channel(QUEUE_MAX);
        let log = EventLog { shared: shared.clone(), queue };
        thread::Builder::new().name("events".into()).spawn(move || write_events(shared, file, events))?;
        Ok(log)
    }

    /// Records an event now. Never blocks.
    pub fn record(&self, severity: Severity, code: &str, object: &str, message: &str) {
        self.push(Event {
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
            log.push(Event {
                sequence: 0,
                at_unix_ms: event.at.0,
                severity: convert::severity(event.severity),
                code: event.code.into(),
                object: event.object,
                message: event.message,
            })
        })
    }

    fn push(&self, event: Event) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Event(event)) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events after `after`, oldest first; without it the newest, oldest first. At most `limit`.
    pub fn list(&self, after: Option<u64>, limit: usize) -> Vec<Event> {
        let kept = self.shared.kept.lock().expect("no holder of this lock panics");
        let from = match after {
            Some(after) => kept.partition_point(|event| event.sequence <= after),
            None => kept.len().saturating_sub(limit),
        };
        kept.range(from..).take(limit).cloned().collect()
    }

    /// Tells the newest sequence number, and when it grows.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.shared.newest.subscribe()
    }

    /// Waits until everything recorded before is in the file.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.send(Message::Flush(done)).is_ok() {
            // An error means that the writer is gone; there is nothing left to wait for.
            let _ = wait.recv();
        }
    }
}

fn write_events(shared: Arc<Shared>, mut file: LogFile, events: Receiver<Message>) {
    let mut sequence = *shared.newest.borrow();
    while let Ok(first) = events.recv() {
        let mut batch = Vec::new();
        let mut flushed = Vec::new();
        let mut take = |message| match message {
            Message::Event(event) => batch.push(event),
            Message::Flush(done) => flushed.push(done),
        };
        take(first);
        // One write for what has gathered meanwhile.
        events.try_iter().take(255).for_each(&mut take);
        let dropped = shared.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            batch.push(Event {
                sequence: 0,
                at_unix_ms: now_unix_ms(),
                severity: Severity::Warning,
                code: "events.dropped".into(),
                object: "events".into(),
                message: format!("{dropped} events came faster than they could be recorded and are lost"),
            });
        }
        let mut lines = Vec::new();
        for event in &mut batch {
            sequence += 1;
            event.sequence = sequence;
            shorten(&mut event.message);
            shorten(&mut event.object);
            serde_json::to_writer(&mut lines, event).expect("an event is plain data");
            lines.push(b'\n');
        }
        file.append(&lines);
        if !batch.is_empty() {
            let mut kept = shared.kept.lock().expect("no holder of this lock panics");
            kept.extend(batch);
            let surplus = kept.len().saturating_sub(KEPT);
            kept.drain(..surplus);
            drop(kept);
            shared.newest.send_replace(sequence);
        }
        for done in flushed {
            // Whoever waited may have gone.
            let _ = done.send(());
        }
    }
}

fn shorten(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

/// Reads the events of one file into `kept`, the newest [`KEPT`] of them; what is not an event is skipped.
fn read_tail(path: &PathBuf, kept: &mut VecDeque<Event>) -> io::Result<()> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let size = file.metadata()?.len();
    // A batch may overshoot the limit a little; a file that somebody inflated is read at its end only.
    file.seek(SeekFrom::Start(size.saturating_sub(2 * FILE_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(2 * FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    for line in bytes.split(|&byte| byte == b'\n') {
        let Ok(event) = serde_json::from_slice::<Event>(line) else { continue };
        // Numbers only grow: a line that says otherwise is not ours.
        if kept.back().is_none_or(|last| last.sequence < event.sequence) {
            kept.push_back(event);
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
    }
    Ok(())
}

struct LogFile {
    dir: Arc<DataDir>,
    file: File,
    bytes: u64,
    failed: bool,
}

impl LogFile {
    fn open(dir: Arc<DataDir>) -> io::Result<LogFile> {
        let mut file =
            OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(dir.file(FILE))?;
        let mut bytes = file.metadata()?.len();
        if bytes > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                // A kill in the middle of a write: close the torn line, so that the next one is whole.
                file.write_all(b"\n")?;
                bytes += 1;
            }
        }
        Ok(LogFile { dir, file, bytes, failed: false })
    }

    /// A full disk must not stop the daemon: the event stays in memory, and stderr says so once.
    fn append(&mut self, lines: &[u8]) {
        let result = self.file.write_all(lines).and_then(|()| {
            self.bytes += lines.len() as u64;
            if self.bytes >= FILE_BYTES_MAX { self.rotate() } else { Ok(()) }
        });
        if let (Err(error), false) = (&result, self.failed) {
            eprintln!("forebay: events cannot be written to {}: {error}", self.dir.file(FILE).display());
        }
        self.failed = result.is_err();
    }

    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(self.dir.file(FILE), self.dir.file(FILE_OLD))?;
        *self = LogFile::open(self.dir.clone())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;

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
        let mut file = OpenOptions::new().append(true).open(dir.file(FILE)).unwrap();
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
        assert!(size(FILE) < FILE_BYTES_MAX + slack && size(FILE_OLD) < FILE_BYTES_MAX + slack);
        let events = log.list(Some(0), usize::MAX);
        assert_eq!(events.len(), KEPT);
        assert!(events.iter().all(|event| event.message.len() <= TEXT_BYTES_MAX + '…'.len_utf8()));
        assert_eq!(events.last().unwrap().sequence, 12_000);
        assert_eq!(EventLog::open(dir).unwrap().list(None, 1)[0].sequence, 12_000);
    }
}
