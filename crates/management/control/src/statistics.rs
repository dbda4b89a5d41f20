//! Statistics, as the daemon has them: one thread owns what is kept, everybody else asks copies of a list.
//!
//! A second comes in by [`Statistics::append`], which never waits: the thread's queue has [`SECONDS_MAX`] places, and when the disk is so slow that these
//! are full, the second is lost and counted. After each second the thread publishes a [`View`]; queries read it on threads for work that blocks,
//! [`QUERIES_MAX`] at a time. Nothing here is on the way of a client's request.

pub mod answers;
pub mod prometheus;
pub mod worksheets;

use crate::directory::DataDir;
use crate::events::EventLog;
use crate::request::Failure;
use crate::seats::Seats;
use forebay_analytics::{Answer, Ask, Options, PinError, Row, Second, Store, View, query};
use forebay_api::{Code, Problem, Severity};
use prometheus::Totals;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};

/// A disk that answers after so many seconds is late; one that does not in ten is no disk.
const SECONDS_MAX: usize = 10;
/// Each takes a core while it lasts.
const QUERIES_MAX: usize = 2;
const QUERY_PATIENCE: Duration = Duration::from_secs(10);
/// Exports read for as long as the client takes them.
const EXPORTS_MAX: usize = 2;
/// WebSockets at a time; each may have as many subscriptions as one page has graphs.
const STREAMS_MAX: usize = 64;
/// Of one user, token or the owner: each tab of a browser has one. Half, so that none of them takes all.
const STREAMS_EACH_MAX: usize = STREAMS_MAX / 2;
const DIRECTORY: &str = "analytics";

/// What the thread is told.
enum Message {
    Second(u64, Vec<Row>),
    Pin(String, Range<u64>, oneshot::Sender<Result<(), PinError>>),
    Unpin(String, oneshot::Sender<std::io::Result<()>>),
    Stop,
}

/// The newest second, and how many there were.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Newest {
    pub count: u64,
    pub at_unix_s: u64,
}

/// What the thread and everybody else share.
struct Published {
    view: Mutex<Arc<View>>,
    totals: Mutex<Totals>,
    newest: watch::Sender<Newest>,
}

pub struct Statistics {
    messages: SyncSender<Message>,
    published: Arc<Published>,
    lost: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
    queries: Semaphore,
    pub exports: Arc<Semaphore>,
    pub streams: Arc<Seats>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Statistics {
    /// Opens what is kept. Pins that belong to none of these names are given up: of a worksheet that was deleted when the daemon was killed.
    pub fn open(
        dir: &Arc<DataDir>,
        events: EventLog,
        options: Options,
        pinned: &[String],
    ) -> Result<Statistics, Problem> {
        let path = dir.file(DIRECTORY);
        let failed = |error: std::io::Error| {
            Problem::new(Code::Io, format!("statistics cannot be kept: {error}"))
                .object(path.display().to_string())
                .remedy(
                    "Check that the directory is writable and has space. Or move it away; the daemon creates a new one.",
                )
        };
        let mut store = Store::open(&path, options).map_err(failed)?;
        let orphans: Vec<String> = store.pins().filter(|name| !pinned.contains(name)).cloned().collect();
        orphans.iter().try_for_each(|name| store.unpin(name)).map_err(failed)?;
        let published = Arc::new(Published {
            view: Mutex::new(Arc::new(store.view())),
            totals: Mutex::default(),
            newest: watch::Sender::default(),
        });
        let (messages, queue) = sync_channel(SECONDS_MAX);
        let (to, of) = (published.clone(), dir.clone());
        let thread = std::thread::Builder::new().name("statistics".into());
        let thread = thread.spawn(move || keep(store, &queue, &to, &events, &of)).map_err(failed)?;
        Ok(Statistics {
            messages,
            published,
            lost: AtomicU64::new(0),
            thread: Mutex::new(Some(thread)),
            queries: Semaphore::new(QUERIES_MAX),
            exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
            streams: Seats::new(STREAMS_MAX, STREAMS_EACH_MAX),
        })
    }

    /// Takes what there was in a second. Never waits.
    pub fn append(&self, at_unix_s: u64, rows: Vec<Row>) {
        if self.messages.try_send(Message::Second(at_unix_s, rows)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Seconds that were lost because the disk did not keep up.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub fn view(&self) -> Arc<View> {
        lock(&self.published.view).clone()
    }

    /// Tells when there is a new second.
    pub fn newest(&self) -> watch::Receiver<Newest> {
        self.published.newest.subscribe()
    }

    pub fn metrics(&self) -> String {
        let totals = lock(&self.published.totals).clone();
        totals.render(self.lost())
    }

    /// Answers a question, beside the threads that serve.
    pub async fn ask(&self, ask: Ask) -> Result<Answer, Failure> {
        let busy = || {
            Problem::new(Code::Busy, "too many queries are running")
                .remedy("Try again in a moment, with fewer seconds or a longer step.")
        };
        let turn = tokio::time::timeout(QUERY_PATIENCE, self.queries.acquire()).await;
        let _turn = turn.map_err(|_| busy())?.expect("the semaphore is never closed");
        let view = self.view();
        let answer = crate::blocking(move || query(&view, &ask).map_err(answers::asked_wrongly)).await?;
        Ok(answer)
    }

    /// Keeps an interval for ever, under a worksheet's UUID.
    pub async fn pin(&self, name: &str, range: Range<u64>) -> Result<(), Failure> {
        let (done, kept) = oneshot::channel();
        self.tell(Message::Pin(name.into(), range, done)).await?;
        Ok(kept.await.map_err(|_| stopped())?.map_err(answers::not_pinned)?)
    }

    /// Gives an interval up, if there is one of this name.
    pub async fn unpin(&self, name: &str) -> Result<(), Failure> {
        let (done, given_up) = oneshot::channel();
        self.tell(Message::Unpin(name.into(), done)).await?;
        let given_up = given_up.await.map_err(|_| stopped())?;
        Ok(given_up.map_err(|error| answers::not_pinned(PinError::Io(error)))?)
    }

    async fn tell(&self, message: Message) -> Result<(), Problem> {
        // The thread may be with the disk: as long as it is, a change of a worksheet waits.
        let messages = self.messages.clone();
        crate::blocking(move || messages.send(message).map_err(|_| stopped())).await
    }

    /// Returns when everything that came in is on the disk.
    pub fn stop(&self) {
        let Some(thread) = lock(&self.thread).take() else { return };
        // An error means that it has ended.
        let _ = self.messages.send(Message::Stop);
        let _ = thread.join();
    }
}

fn stopped() -> Problem {
    Problem::new(Code::Stopped, "the daemon no longer records statistics")
}

/// The thread.
fn keep(
    mut store: Store,
    queue: &Receiver<Message>,
    published: &Published,
    events: &EventLog,
    dir: &DataDir,
) {
    let mut has_failed = false;
    while let Ok(message) = queue.recv() {
        match message {
            Message::Second(at_unix_s, rows) => {
                lock(&published.totals).add(&rows);
                let kept = store.append(Second { at_unix_s, rows });
                dir.note(DIRECTORY, &kept);
                if let (Err(error), false) = (&kept, has_failed) {
                    let message = format!("the last seconds are in memory only: {error}");
                    events.record(Severity::Warning, "statistics.failed", DIRECTORY, &message);
                } else if kept.is_ok() && has_failed {
                    events.record(
                        Severity::Info,
                        "statistics.kept",
                        DIRECTORY,
                        "statistics are written to the disk again",
                    );
                }
                has_failed = kept.is_err();
                *lock(&published.view) = Arc::new(store.view());
                published.newest.send_modify(|newest| {
                    *newest = Newest { count: newest.count + 1, at_unix_s };
                });
                continue;
            }
            // Who asked may have gone; it is done all the same.
            Message::Pin(name, range, done) => drop(done.send(store.pin(&name, range))),
            Message::Unpin(name, done) => drop(done.send(store.unpin(&name))),
            Message::Stop => break,
        }
        *lock(&published.view) = Arc::new(store.view());
    }
    // What cannot be written now was told before, or is of the last minute.
    let _ = store.sync();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;
    use forebay_analytics::{Dimension, Expression, Layer, Noun, Value};

    const START: u64 = 1_790_000_000;

    fn open((dir, events): &(Arc<DataDir>, EventLog), pinned: &[String]) -> Statistics {
        Statistics::open(dir, events.clone(), Options::default(), pinned).unwrap()
    }

    fn rows(ops: u64) -> Vec<Row> {
        let labels = vec![(Dimension::Op, "read".into()), (Dimension::Client, "10.0.0.7".into())];
        vec![Row { layer: Layer::Nbd, labels, values: vec![(Noun::Ops, Value::Count(ops))] }]
    }

    async fn values(statistics: &Statistics, from: u64, to: u64) -> Vec<Option<f64>> {
        let expression = Expression::parse("nbd.ops").unwrap();
        let ask = Ask { expression, from, to, step_seconds: None, limit: 1 };
        statistics.ask(ask).await.unwrap().series[0].values.clone()
    }

    #[tokio::test]
    async fn what_is_appended_is_told_answered_and_kept() {
        let temp = test_directory();
        let dir = Arc::new(DataDir::open(temp.path()).unwrap());
        let place = (dir.clone(), EventLog::open(dir).unwrap());
        let statistics = open(&place, &[]);
        let mut newest = statistics.newest();
        for nth in 0..3 {
            statistics.append(START + nth, rows(10 + nth));
        }
        newest.wait_for(|newest| newest.count == 3).await.unwrap();
        assert_eq!(newest.borrow().at_unix_s, START + 2);
        let known = [Some(10.0), Some(11.0), Some(12.0)];
        assert_eq!(values(&statistics, START, START + 3).await, known);
        statistics.pin("w-1", START..START + 2).await.unwrap();
        statistics.pin("w-2", START..START + 2).await.unwrap();
        statistics.unpin("w-2").await.unwrap();
        let nothing = statistics.pin("w-2", 1..2).await.unwrap_err().0;
        assert_eq!((nothing.code, nothing.field.as_deref()), (Code::Conflict, Some("spec.pinned")));
        statistics.stop();
        assert!(statistics.unpin("w-1").await.is_err());
        statistics.append(START + 3, rows(1));
        assert_eq!(statistics.lost(), 1);
        drop(statistics);
        let again = open(&place, &["w-1".into()]);
        assert_eq!(values(&again, START, START + 3).await, known);
        let kept = || std::fs::read_dir(temp.path().join("analytics/pins")).unwrap().count();
        assert_eq!(kept(), 1);
        again.stop();
        open(&place, &[]).stop();
        assert_eq!(kept(), 0, "nobody's any more");
    }
}
