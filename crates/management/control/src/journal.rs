//! A journal: records that are numbered without gaps, in a file of bounded size and, the newest of them, in memory.
//!
//! Records arrive from engine cores and handlers, which must not block: they go into a bounded queue, and one thread numbers
//! them, appends them to the file (one JSON object a line), and only then shows them to readers. So what was
//! ever shown is in the file, and after a `kill -9` the numbers go on where they stopped; a torn last line is closed
//! and skipped. What a full disk does not take waits in memory, up to [`WAITING_BYTES_MAX`], and is written before anything else when there is room. (A power cut may take the newest lines: they are told, not promised.) When the file is full it
//! becomes the old one, so at most twice [`FILE_BYTES_MAX`] is kept. The newest [`KEPT`] are also in memory; a
//! reader who asks for older ones sees the gap in the numbers.

use crate::directory::DataDir;
use rustix::fs::OFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use tokio::sync::watch;

/// Some 20 000 records.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Lines that wait for room on the disk; beyond that the oldest are lost, which is told like other losses.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// In memory: with the texts' limit below at most 5 MiB.
pub const KEPT: usize = 2048;
pub const TEXT_BYTES_MAX: usize = 1024;
/// A burst; what does not fit is counted, and the count becomes a record.
const QUEUE_MAX: usize = 4096;

/// What a journal is of.
pub trait Record: Clone + Serialize + DeserializeOwned + Send + 'static {
    const FILE: &'static str;
    /// What the file becomes when it is full.
    const FILE_OLD: &'static str;
    /// In messages, and the thread's name.
    const WHAT: &'static str;

    fn sequence(&self) -> u64;
    fn set_sequence(&mut self, sequence: u64);
    /// Cuts its texts to [`TEXT_BYTES_MAX`], with [`shorten`].
    fn shorten(&mut self);
    /// Says that so many were lost.
    fn dropped(count: u64) -> Self;
}

enum Message<R> {
    Record(R),
    Flush(SyncSender<()>),
}

struct Shared<R> {
    kept: Mutex<VecDeque<R>>,
    newest: watch::Sender<u64>,
    dropped: AtomicU64,
}

/// A handle; cheap to clone.
pub struct Journal<R> {
    shared: Arc<Shared<R>>,
    queue: SyncSender<Message<R>>,
}

impl<R> Clone for Journal<R> {
    fn clone(&self) -> Journal<R> {
        Journal { shared: self.shared.clone(), queue: self.queue.clone() }
    }
}

impl<R: Record> Journal<R> {
    pub fn open(dir: Arc<DataDir>) -> io::Result<Journal<R>> {
        let mut kept = VecDeque::new();
        for name in [R::FILE_OLD, R::FILE] {
            read_tail(&dir.file(name), &mut kept)?;
        }
        let newest = kept.back().map_or(0, R::sequence);
        let file = LogFile::open(dir, R::FILE, R::FILE_OLD)?;
        let shared = Arc::new(Shared {
            kept: Mutex::new(kept),
            newest: watch::Sender::new(newest),
            dropped: AtomicU64::new(0),
        });
        let (queue, records) = sync_channel(QUEUE_MAX);
        let journal = Journal { shared: shared.clone(), queue };
        thread::Builder::new().name(R::WHAT.into()).spawn(move || write_all(shared, file, records))?;
        Ok(journal)
    }

    /// Records something. Never blocks.
    pub fn push(&self, record: R) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(Message::Record(record)) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Those after `after`, oldest first; without it the newest, oldest first. At most `limit`.
    pub fn list(&self, after: Option<u64>, limit: usize) -> Vec<R> {
        let kept = self.shared.kept.lock().expect("no holder of this lock panics");
        let from = match after {
            Some(after) => kept.partition_point(|record| record.sequence() <= after),
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

fn write_all<R: Record>(shared: Arc<Shared<R>>, mut file: LogFile, records: Receiver<Message<R>>) {
    let mut sequence = *shared.newest.borrow();
    while let Ok(first) = records.recv() {
        let mut batch = Vec::new();
        let mut flushed = Vec::new();
        let mut take = |message| match message {
            Message::Record(record) => batch.push(record),
            Message::Flush(done) => flushed.push(done),
        };
        take(first);
        // One write for what has gathered meanwhile.
        records.try_iter().take(255).for_each(&mut take);
        let dropped = shared.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            batch.push(R::dropped(dropped));
        }
        let mut lines = Vec::new();
        for record in &mut batch {
            sequence += 1;
            record.set_sequence(sequence);
            record.shorten();
            serde_json::to_writer(&mut lines, record).expect("a record is plain data");
            lines.push(b'\n');
        }
        let lost = file.append(&lines);
        shared.dropped.fetch_add(lost, Ordering::Relaxed);
        if !batch.is_empty() {
            let mut kept = shared.kept.lock().expect("no holder of this lock panics");
            kept.extend(batch);
            let surplus = kept.len().saturating_sub(KEPT);
            kept.drain(..surplus);
            drop(kept);
            shared.newest.send_replace(sequence);
        }
        for done in flushed {
            // The waiting task may have gone.
            let _ = done.send(());
        }
    }
}

/// Cuts a text to [`TEXT_BYTES_MAX`].
pub fn shorten(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

/// Reads the records of one file into `kept`, the newest [`KEPT`] of them; what is none is skipped.
fn read_tail<R: Record>(path: &PathBuf, kept: &mut VecDeque<R>) -> io::Result<()> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let size = file.metadata()?.len();
    // A batch may overshoot the limit a little; a file that was inflated from outside is read at its end only.
    file.seek(SeekFrom::Start(size.saturating_sub(2 * FILE_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(2 * FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    for line in bytes.split(|&byte| byte == b'\n') {
        let Ok(record) = serde_json::from_slice::<R>(line) else { continue };
        // Numbers only grow: a line that says otherwise is not ours.
        if kept.back().is_none_or(|last| last.sequence() < record.sequence()) {
            kept.push_back(record);
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
    }
    Ok(())
}

struct LogFile {
    dir: Arc<DataDir>,
    name: &'static str,
    name_old: &'static str,
    file: File,
    bytes: u64,
    /// What the disk has not taken yet, in whole lines.
    waiting: Vec<u8>,
    failed: bool,
}

impl LogFile {
    fn open(dir: Arc<DataDir>, name: &'static str, name_old: &'static str) -> io::Result<LogFile> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(dir.file(name))?;
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
        Ok(LogFile { dir, name, name_old, file, bytes, waiting: Vec::new(), failed: false })
    }

    /// A full disk must not stop the daemon: the records stay in memory until there is room, and stderr says so once. Gives how many were lost for want of memory.
    fn append(&mut self, lines: &[u8]) -> u64 {
        self.waiting.extend_from_slice(lines);
        let mut lost = 0;
        let result = self.file.write_all(&self.waiting).and_then(|()| {
            self.bytes += std::mem::take(&mut self.waiting).len() as u64;
            if self.bytes >= FILE_BYTES_MAX { self.rotate() } else { Ok(()) }
        });
        if !self.waiting.is_empty() {
            // A part of it may be there: the next try begins with a whole line. That frees space, so it does not fail for want of it.
            let _ = self.file.set_len(self.bytes);
            while self.waiting.len() > WAITING_BYTES_MAX {
                let end = self
                    .waiting
                    .iter()
                    .position(|&byte| byte == b'\n')
                    .map_or(self.waiting.len(), |end| end + 1);
                self.waiting.drain(..end);
                lost += 1;
            }
        }
        self.dir.note(self.name, &result);
        if let (Err(error), false) = (&result, self.failed) {
            eprintln!("forebay: {} cannot be written: {error}", self.dir.file(self.name).display());
        }
        self.failed = result.is_err();
        lost
    }

    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(self.dir.file(self.name), self.dir.file(self.name_old))?;
        *self = LogFile::open(self.dir.clone(), self.name, self.name_old)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;

    #[test]
    fn what_a_full_disk_does_not_take_is_written_when_there_is_room() {
        let temp = test_directory();
        let dir = Arc::new(DataDir::open(temp.path()).unwrap());
        let mut log = LogFile::open(dir.clone(), "log", "log.old").unwrap();
        assert_eq!(log.append(b"one\n"), 0);
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let file = std::mem::replace(&mut log.file, full);
        assert_eq!(log.append(b"two\n"), 0);
        assert_eq!(log.append(b"three\n"), 0);
        assert!(
            log.failed && log.dir.trouble().is_none(),
            "it is told, and tried: the directory itself has room"
        );
        // A part of it had gone to the disk.
        let mut torn = OpenOptions::new().append(true).open(dir.file("log")).unwrap();
        torn.write_all(b"tw").unwrap();
        let full = std::mem::replace(&mut log.file, file);
        log.file.set_len(log.bytes).unwrap();
        assert_eq!(log.append(b"four\n"), 0);
        assert_eq!(fs::read(dir.file("log")).unwrap(), b"one\ntwo\nthree\nfour\n");
        log.file = full;
        let line = [b'x'; 1023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        let lost: u64 = (0..2048).map(|_| log.append(&line)).sum();
        assert_eq!((lost, log.waiting.len()), (1024, WAITING_BYTES_MAX));
    }
}
