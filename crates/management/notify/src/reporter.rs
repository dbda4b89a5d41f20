//! The channels at work: a queue and a task for each.
//!
//! The daemon calls [`Reporter::standing`] whenever it has looked what is wrong, and [`Reporter::audit`] with each line of the audit log. Both only put notices into
//! queues ([`Outbox`]) and return. A channel's task delivers from its own queue, one message at a time and each within [`DELIVERY_TIME_MAX`], so that one that
//! hangs delays neither the daemon nor another channel.
//!
//! Queues are in memory. What was not delivered when the daemon ends is lost, but not forgotten: the next start tells every alert that still stands
//! again, because all of them are new to it. An alert that ended in between is not told as cleared, and audit lines that waited are not sent;
//! they are in the audit log.
//!
//! Deliveries have a thread of their own: whatever receivers do, neither the API nor the watchdog waits for a processor because of them.
//!
//! Settings change while channels work ([`Reporter::configure`]). A channel keeps its queue as long as it keeps its UUID; one that is new, or whose delivery
//! changed, is told what stands.

use crate::channel::Channel;
use crate::delivery::{Delivered, Sender};
use crate::failure::{Failure, Problem};
use crate::notice::{Appliance, Change, Content, Message, Tally, clean_audit};
use crate::outbox::{Next, Now, Outbox, Policy};
use crate::snmp::Engine;
use crate::text::rfc3339;
use crate::tracker::Tracker;
use forebay_api::{Alert, AuditEntry};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Channels of an appliance: 2.5 MiB of queue each, and a task.
pub const CHANNELS_MAX: usize = 32;
/// Test messages that are under way at one time.
const TESTS_MAX: usize = 4;
/// Threads that look names up.
const LOOKUPS_MAX: usize = 4;

/// Milliseconds since 1970, by the host's clock; tests have their own.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What the UI shows of a channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ChannelState {
    pub name: String,
    /// `mail`, `webhook`, `syslog`, `snmp_trap`.
    pub delivery: String,
    pub enabled: bool,
    /// The last success. Over UDP (syslog, traps) that means "sent".
    pub delivered_at_unix_ms: Option<u64>,
    /// Messages delivered since the daemon started.
    pub delivered: u64,
    /// What is worth knowing about the last success: recipients that were refused.
    pub note: Option<String>,
    /// The last failure; it stays until a delivery succeeds.
    pub error: Option<ChannelError>,
    /// When the next attempt is made, if one failed.
    pub retry_at_unix_ms: Option<u64>,
    /// Notices that wait: for the receiver, for quiet hours to end, or for the channel's rate.
    pub waiting: usize,
    /// Notices that were lost since the daemon started: refused by the receiver, or without room in the queue.
    pub dropped: u64,
    pub is_quiet: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ChannelError {
    pub at_unix_ms: u64,
    /// What happened.
    pub message: String,
    /// What to do next.
    pub remedy: String,
}

/// What a channel's task and its callers share.
struct Shared {
    outbox: Outbox,
    channel: Channel,
    delivered: u64,
    delivered_at_unix_ms: Option<u64>,
    note: Option<String>,
    error: Option<ChannelError>,
}

struct Line {
    shared: Mutex<Shared>,
    /// Something was pushed, or settings changed.
    changed: Notify,
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no holder of this lock panics")
    }
}

struct Worker {
    line: Arc<Line>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// What all tasks use.
struct Common {
    sender: Sender,
    clock: Clock,
    /// Nothing until it is known what is wrong.
    tally: Mutex<Option<Tally>>,
}

impl Common {
    fn now(&self) -> Now {
        Now { at: Instant::now(), unix_ms: (self.clock)() }
    }

    fn tally(&self) -> Option<Tally> {
        *self.tally.lock().expect("no holder of this lock panics")
    }
}

/// The appliance's voice. Dropping it ends all deliveries.
pub struct Reporter {
    common: Arc<Common>,
    tracker: Mutex<Tracker>,
    workers: Mutex<BTreeMap<String, Worker>>,
    tests: Semaphore,
    /// Nothing once it ends.
    runtime: Option<Runtime>,
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // Where it is dropped, nothing may block.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// What [`Reporter::new`] needs to know.
pub struct Setup {
    pub appliance: Appliance,
    /// Grows by one with each start of the daemon, from 1 (snmpEngineBoots): receivers of traps refuse what seems older than what they had.
    pub boots: u32,
    pub clock: Clock,
}

impl Reporter {
    /// A reporter without channels.
    ///
    /// # Errors
    /// When the system gives no random numbers, or no thread.
    pub fn new(setup: Setup) -> std::io::Result<Reporter> {
        let engine = Engine::new(&setup.appliance.id, setup.boots, random()?);
        let sender = Sender { appliance: setup.appliance, engine };
        let common = Common { sender, clock: setup.clock, tally: Mutex::default() };
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_blocking_threads(LOOKUPS_MAX).thread_name("notices").enable_all();
        Ok(Reporter {
            common: Arc::new(common),
            tracker: Mutex::default(),
            workers: Mutex::default(),
            tests: Semaphore::new(TESTS_MAX),
            runtime: Some(builder.build()?),
        })
    }

    /// The engine ID under which receivers of traps have to know the user, in hexadecimal with `0x`, as net-snmp's `createUser -e` takes it.
    pub fn snmp_engine_id(&self) -> String {
        let digits: String = self.common.sender.engine.id.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("0x{digits}")
    }

    fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.runtime.as_ref().expect("it is there until the end").spawn(work)
    }

    /// Replaces all channels.
    ///
    /// # Errors
    /// Everything that is wrong with them, each with the channel's place in the list (`channels[2].delivery.port`); nothing is changed then.
    pub fn configure(&self, channels: Vec<Channel>) -> Result<(), Vec<Problem>> {
        check_all(&channels)?;
        let seeds: Vec<u64> =
            channels.iter().map(|_| random()).collect::<Result<_, _>>().map_err(|error| {
                vec![Problem {
                    field: "channels".into(),
                    message: format!("The system gives no random numbers: {error}."),
                    remedy: "Try again.".into(),
                }]
            })?;
        // The tracker's lock is held throughout, so that a change meanwhile is neither missed nor told twice.
        let tracker = self.tracker.lock().expect("no holder of this lock panics");
        let standing = tracker.standing();
        let mut workers = self.workers();
        let mut old = std::mem::take(&mut *workers);
        for (channel, seed) in channels.into_iter().zip(seeds) {
            let id = channel.id.clone();
            let worker = match old.remove(&id) {
                Some(worker) => self.reconfigure(worker, channel, seed, &standing),
                None => self.start(channel, seed, &standing),
            };
            workers.insert(id, worker);
        }
        Ok(())
    }

    fn start(&self, channel: Channel, seed: u64, standing: &[Change]) -> Worker {
        let outbox = Outbox::new(Policy::of(&channel), seed, self.common.now());
        let enabled = channel.spec.enabled;
        let shared =
            Shared { outbox, channel, delivered: 0, delivered_at_unix_ms: None, note: None, error: None };
        let line = Arc::new(Line { shared: Mutex::new(shared), changed: Notify::new() });
        let mut worker = Worker { line, task: None };
        if enabled {
            self.tell(&worker.line, standing);
            worker.task = Some(self.spawn(work(worker.line.clone(), self.common.clone())));
        }
        worker
    }

    fn reconfigure(&self, mut worker: Worker, channel: Channel, seed: u64, standing: &[Change]) -> Worker {
        let mut shared = worker.line.lock();
        if shared.channel == channel {
            drop(shared);
            return worker;
        }
        if !channel.spec.enabled || !shared.channel.spec.enabled {
            drop(shared);
            return self.start(channel, seed, standing);
        }
        let is_moved = shared.channel.spec.delivery != channel.spec.delivery;
        shared.outbox.set_policy(Policy::of(&channel), self.common.now());
        shared.channel = channel;
        drop(shared);
        if is_moved {
            self.tell(&worker.line, standing);
            // A delivery to the old place ends here, and is repeated to the new one.
            if let Some(task) = worker.task.take() {
                task.abort();
            }
            worker.task = Some(self.spawn(work(worker.line.clone(), self.common.clone())));
        } else {
            worker.line.changed.notify_one();
        }
        worker
    }

    fn tell(&self, line: &Line, changes: &[Change]) {
        let now = self.common.now();
        let mut shared = line.lock();
        for change in changes {
            shared.outbox.push_alert(change.clone(), now);
        }
        drop(shared);
        line.changed.notify_one();
    }

    fn workers(&self) -> MutexGuard<'_, BTreeMap<String, Worker>> {
        self.workers.lock().expect("no holder of this lock panics")
    }

    /// Takes what is wrong now, the worst first, all of it or the first [`ALERTS_MAX`](crate::ALERTS_MAX); what changed since the last call is reported. Returns
    /// at once. Before the first call there is no heartbeat: it would say that nothing is wrong.
    pub fn standing(&self, alerts: &[Alert]) {
        let mut tracker = self.tracker.lock().expect("no holder of this lock panics");
        let changes = tracker.observe(alerts, (self.common.clock)());
        let mut tally = self.common.tally.lock().expect("no holder of this lock panics");
        // Heartbeats have waited for it.
        let is_first = tally.replace(tracker.tally()).is_none();
        drop(tally);
        if changes.is_empty() && !is_first {
            return;
        }
        for worker in self.workers().values().filter(|worker| worker.task.is_some()) {
            self.tell(&worker.line, &changes);
        }
    }

    /// Takes a line of the audit log. Returns at once.
    pub fn audit(&self, entry: &AuditEntry) {
        let entry = clean_audit(entry);
        let now = self.common.now();
        for worker in self.workers().values().filter(|worker| worker.task.is_some()) {
            worker.line.lock().outbox.push_audit(entry.clone(), now);
            worker.line.changed.notify_one();
        }
    }

    /// Delivers a test message at once, past queue and quiet hours. The channel need not be one of those that are configured.
    ///
    /// # Errors
    /// What is wrong with the settings, or why it was not delivered.
    pub async fn test(&self, channel: &Channel) -> Result<Delivered, Failure> {
        if let Err(problems) = channel.check() {
            let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(Failure::is_final(text.join(" "), "Correct the settings and test again."));
        }
        let _permit = self.tests.try_acquire().map_err(|_| {
            Failure::passing(format!("{TESTS_MAX} tests are under way"), "Wait for one of them to end.")
        })?;
        let now_unix_ms = (self.common.clock)();
        let id = random().map_err(|error| {
            Failure::passing(format!("The system gives no random numbers: {error}"), "Try again.")
        })?;
        let message = Message {
            id: format!("{id:016x}-test"),
            at_unix_ms: now_unix_ms,
            content: Content::Test,
            lost: 0,
        };
        let (common, delivery) = (self.common.clone(), channel.spec.delivery.clone());
        let task = self.spawn(async move { common.sender.deliver(&delivery, &message, now_unix_ms).await });
        let ended = || Failure::passing("The appliance is shutting down", "Try again when it has started.");
        task.await.unwrap_or_else(|_| Err(ended()))
    }

    /// How the channels are.
    pub fn states(&self) -> Vec<ChannelState> {
        let now = self.common.now();
        self.workers().values().map(|worker| state(&worker.line.lock(), now)).collect()
    }
}

fn state(shared: &Shared, now: Now) -> ChannelState {
    let channel = &shared.channel;
    let retry_at = shared.outbox.retry_at().filter(|at| *at > now.at);
    let is_quiet = channel
        .spec
        .quiet_hours
        .as_ref()
        .is_some_and(|quiet| crate::quiet::end_unix_ms(quiet, now.unix_ms).is_some());
    ChannelState {
        name: channel.name.clone(),
        delivery: channel.spec.delivery.name().into(),
        enabled: channel.spec.enabled,
        delivered_at_unix_ms: shared.delivered_at_unix_ms,
        delivered: shared.delivered,
        note: shared.note.clone(),
        error: shared.error.clone(),
        retry_at_unix_ms: retry_at.map(|at| now.unix_ms + (at - now.at).as_millis() as u64),
        waiting: shared.outbox.waiting(),
        dropped: shared.outbox.lost_total(),
        is_quiet,
    }
}

fn check_all(channels: &[Channel]) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    if channels.len() > CHANNELS_MAX {
        problems.push(Problem {
            field: "channels".into(),
            message: format!("There are {} channels.", channels.len()),
            remedy: format!("Keep at most {CHANNELS_MAX}; one channel may have several recipients."),
        });
    }
    for (at, channel) in channels.iter().enumerate() {
        let place = |field: &str| format!("channels[{at}].{field}");
        for problem in channel.check().err().unwrap_or_default() {
            problems.push(Problem { field: place(&problem.field), ..problem });
        }
        if channels[..at].iter().any(|other| other.name == channel.name) {
            problems.push(Problem {
                field: place("name"),
                message: format!("Another channel is called {:?}.", channel.name),
                remedy: "Give each channel a name of its own.".into(),
            });
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(u64::from_le_bytes(bytes))
}

/// One channel's task, which ends when it is aborted.
async fn work(line: Arc<Line>, common: Arc<Common>) {
    loop {
        let (next, delivery) = {
            let mut shared = line.lock();
            let next = shared.outbox.next(common.tally(), common.now());
            (next, shared.channel.spec.delivery.clone())
        };
        match next {
            Next::Deliver(message) => {
                let result = common.sender.deliver(&delivery, &message, (common.clock)()).await;
                conclude(&mut line.lock(), &message, result, common.now());
            }
            Next::Wait(until) => {
                // Without a time there is nothing to wait for but a change.
                let far = Duration::from_secs(24 * 3600);
                let until = until.unwrap_or_else(|| Instant::now() + far);
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = line.changed.notified() => {}
                }
            }
        }
    }
}

fn conclude(shared: &mut Shared, message: &Message, result: Result<Delivered, Failure>, now: Now) {
    match result {
        Ok(delivered) => {
            shared.delivered += 1;
            shared.delivered_at_unix_ms = Some(now.unix_ms);
            (shared.note, shared.error) = (delivered.note, None);
            shared.outbox.done(Ok(()), now);
        }
        Err(failure) => {
            shared.outbox.done(Err(&failure), now);
            let about = format!(" (message of {})", rfc3339(message.at_unix_ms));
            shared.error = Some(ChannelError {
                at_unix_ms: now.unix_ms,
                message: failure.message + &about,
                remedy: failure.remedy,
            });
        }
    }
}
