//! The ledger: what each volume was promised, asked for and got, second by second, and why a promise was not kept.
//!
//! Shards count (`tally`). Once a second the coordinator takes what they counted, judges it ([`forebay_qos::Account`]), and keeps the last quarter of an
//! hour. It also sees what the pool really does when more is asked of it than it has: if that is less than was measured, or disks are out of service, fewer
//! floors fit, and those that no longer do are *best effort* until they fit again (`promises`).
//!
//! A person is told when a promise was broken in several seconds and not made good in between, and again when that is over.

use crate::Engine;
use crate::cache::ReadFrom;
use crate::control::Control;
use crate::promises::{Standing, Wished};
use crate::record::{DatasetKind, DatasetState};
use crate::registry::registry;
use crate::shard::Shard;
use crate::spec::Severity;
use crate::steps::Steps;
use async_recursion::async_recursion as boxed;
use forebay_base::{Id, Nanos, WallTime};
use forebay_qos::{Account, Cause, Circumstances, Level, State, Task, WHOLE};
use forebay_runtime::Vitals;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A quarter of an hour, or less of many volumes: a line is some 300 bytes.
const SECONDS_MAX: usize = 900;
const LINES_MAX: usize = 50_000;
/// With their histograms, seconds of disks are large: some kilobytes each.
const DISKS_SECONDS_MAX: usize = 10;
/// Seconds in which a promise was broken, less those in which it was not, until a person is told; it is over when as many good ones followed, up to this.
const TOLD_SECONDS: usize = 5;
const SECONDS_COUNTED: u32 = 30;
/// The weight of a second in what is thought of a pool's disks: 1/16. What was bad is forgotten in some minutes.
const WEIGHT: u64 = 16;
const FORGET: u64 = 256;

/// A volume's second.
#[derive(Clone, PartialEq, Debug)]
pub struct VolumeSecond {
    pub volume: Id,
    /// Without the pool's.
    pub name: String,
    /// The level's id, and what it says.
    pub level: Id,
    pub promise: Level,
    /// Nothing of a level without a floor.
    pub standing: Option<Standing>,
    pub account: Account,
    pub state: State,
    /// Of a promise that was not kept. Neighbours are named as the volume is.
    pub cause: Option<Cause<String>>,
}

/// A pool's second.
#[derive(Clone, PartialEq, Debug)]
pub struct LedgerSecond {
    /// They grow, and are seconds since 1970 as long as nobody sets the clock back.
    pub number: u64,
    /// When it was over.
    pub at: WallTime,
    /// Nanoseconds.
    pub span: u64,
    /// Volumes that were asked for something.
    pub volumes: Vec<VolumeSecond>,
    /// Nanoseconds of the pool's time that its own work took, by its place in [`Task::ALL`].
    pub tasks: [u64; Task::ALL.len()],
    pub read_from: ReadFrom,
    /// In millionths of the pool's time: what can be promised, if the pool was measured, and what all floors together would take.
    pub capacity: Option<u64>,
    pub promised: u64,
}

/// What a pool's disks did in a second, by their numbers in the pool. Whoever wants to keep that asks every few seconds.
#[derive(Clone, PartialEq, Debug)]
pub struct DisksSecond {
    /// That of the [`LedgerSecond`] that ended with it.
    pub number: u64,
    /// Nanoseconds.
    pub span: u64,
    pub disks: Vec<(u16, Vitals)>,
}

/// Seconds without requests after which what was missed before is over.
const IDLE_SECONDS: u32 = 60;

/// A promise that is broken, as a person was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// Without the pool's.
    pub volume: String,
    pub level: Id,
    /// What most of the time went to, and what can be done about it.
    pub why: String,
    pub remedy: String,
}

/// What counts against a promise.
#[derive(Default)]
struct Breach {
    /// Seconds in which it was broken, less those in which it was not.
    seconds: u32,
    /// Of the last ones in which it was broken.
    causes: VecDeque<Cause<String>>,
    /// What a person was told.
    told: Option<Broken>,
    /// Seconds since anything was asked for.
    idle: u32,
}

impl Breach {
    fn note(&mut self, cause: &Cause<String>) {
        (self.seconds, self.idle) = ((self.seconds + 1).min(SECONDS_COUNTED), 0);
        self.causes.push_back(cause.clone());
        if self.causes.len() > TOLD_SECONDS {
            self.causes.pop_front();
        }
    }

    /// The cause in most of the last seconds, and whether in all of them.
    fn cause(&self) -> Option<(&Cause<String>, bool)> {
        let count = |cause: &Cause<String>| self.causes.iter().filter(|other| *other == cause).count();
        let most = self.causes.iter().max_by_key(|cause| count(cause))?;
        Some((most, count(most) == TOLD_SECONDS))
    }
}

/// What a shard counted of a volume.
pub(crate) struct Counted {
    pub wished: Wished,
    pub account: Account,
}

pub(crate) struct Ledger {
    seconds: RefCell<VecDeque<Arc<LedgerSecond>>>,
    lines: Cell<usize>,
    disks: RefCell<VecDeque<Arc<DisksSecond>>>,
    next: Cell<u64>,
    /// What all floors together would take, in millionths of the pool's time.
    pub promised: Cell<u64>,
    /// When it was last looked.
    looked: Cell<Option<Nanos>>,
    /// By volume, what counts against its promise.
    broken: RefCell<BTreeMap<Id, Breach>>,
    /// What the disks do of what they were measured to do, in millionths.
    pub health: Cell<u64>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            seconds: RefCell::default(),
            lines: Cell::new(0),
            disks: RefCell::default(),
            next: Cell::new(0),
            promised: Cell::new(0),
            looked: Cell::new(None),
            broken: RefCell::default(),
            health: Cell::new(WHOLE),
        }
    }
}

impl Shard {
    /// What was counted since this was last asked, of volumes that did something or were promised something, and of the pool's own work.
    async fn take_counts(&self) -> (Vec<Counted>, [u64; Task::ALL.len()], ReadFrom) {
        let mut tasks = Task::ALL
            .map(|task| self.task_flows[task as usize].get().map_or(0, |flow| flow.tally.take().cost));
        let mut counted = Vec::new();
        let (mut from, mut steps) = (0, Steps::default());
        while let Some(dataset) = self.next_dataset(from) {
            from = dataset.number() + 1;
            steps.take(1).await;
            let account = dataset.flow.get().map(|flow| flow.tally.take()).unwrap_or_default();
            let level = registry(&self.rt).level(dataset.level());
            let record = dataset.record.borrow();
            match (record.kind, record.state) {
                (DatasetKind::Volume, DatasetState::Live) => {
                    if account != Account::default() || level.late_after().is_some() {
                        counted.push(Counted { wished: self.wished(&dataset), account });
                    }
                }
                // What comes into it is no client's.
                _ => {
                    let task = if self.is_sample(&dataset) { Task::Calibrate } else { Task::Copy };
                    tasks[task as usize] += account.cost;
                }
            }
        }
        (counted, tasks, self.read_from.take())
    }
}

impl Control {
    /// Writes down the second that has passed.
    pub async fn keep_ledger(&self, vitals: &[Vitals]) {
        let (now, mut counted, mut tasks) = (self.rt.now(), Vec::new(), [0; Task::ALL.len()]);
        let (mut waited, mut read_from) = (Vec::new(), ReadFrom::default());
        for shard in 0..self.shard_count() {
            let taken = self.on_shard(shard, |shard| async move { shard.take_counts().await }).await;
            // A shard that has ended has nothing to tell.
            let Ok((theirs, took, read)) = taken else { return };
            read_from.add(read);
            waited.push(theirs.iter().map(|one| one.account.turn).sum::<u64>());
            counted.extend(theirs);
            tasks.iter_mut().zip(took).for_each(|(sum, cost)| *sum += cost);
        }
        let Some(before) = self.ledger.looked.replace(Some(now)) else { return };
        let span = now.since(before).max(1);
        let usual = self.speed.get().map(|speed| speed.usual(self.data_disks()));
        counted.iter_mut().for_each(|one| one.account.span = span);
        let costs = counted.iter().map(|one| (one.wished.id, one.account.cost));
        // What was taken back since the disks are slow would be broken as long as they are.
        let would_be_broken = |one: &Counted| one.account.state(&one.wished.level) == State::Violated;
        let is_broken = counted.iter().any(would_be_broken);
        let slow_disk = if is_broken { self.far_slower(vitals) } else { None };
        let among = Circumstances::new(costs, tasks, usual, slow_disk);
        let names: BTreeMap<Id, &str> =
            counted.iter().map(|one| (one.wished.id, one.wished.name.as_str())).collect();
        let (mut volumes, mut slowest) = (Vec::new(), None);
        for one in &counted {
            let Counted { wished, account } = one;
            let cause = would_be_broken(one).then(|| account.cause(wished.id, &among));
            if let (Some(Cause::Disks), Some(usual)) = (cause, usual) {
                slowest = slowest.max(Some(account.slowness(usual)));
            }
            let state = account.state(&wished.in_force());
            let cause = cause.filter(|_| state == State::Violated).map(|cause| named(cause, &names));
            self.note_state(wished, account, state, cause.as_ref());
            let standing = wished.standing(usual.is_some());
            let state = match (state, standing) {
                (State::Idle, _) => state,
                (_, Some(Standing::BestEffort)) => State::BestEffort,
                (_, Some(Standing::CannotBeKept)) => State::CannotBeKept,
                _ => state,
            };
            if state != State::Idle {
                let (volume, name, level) = (wished.id, wished.name.clone(), wished.level_id);
                let (promise, account) = (wished.level, *account);
                volumes.push(VolumeSecond { volume, name, level, promise, standing, account, state, cause });
            }
        }
        // Volumes that are gone, or to whom nothing is promised any more, miss nothing.
        self.ledger.broken.borrow_mut().retain(|id, _| names.contains_key(id));
        // A shard alone need not be able to keep all disks busy.
        let is_full = waited.iter().all(|waited| *waited >= span);
        self.note_health(span, among.busy(), is_full, slowest);
        let promised = counted.into_iter().map(|one| one.wished).filter(Wished::has_floor).collect();
        let (capacity, promised) = self.keep_promises(promised).await;
        let at = self.rt.wall();
        let number = self.ledger.next.get().max(at.0 / 1000);
        self.ledger.next.set(number + 1);
        self.ledger.keep_disks(DisksSecond { number, span, disks: self.disks_that_are_there(vitals) });
        self.ledger.keep(LedgerSecond { number, at, span, volumes, tasks, read_from, capacity, promised });
    }

    /// By number, disks that are there.
    fn disks_that_are_there(&self, vitals: &[Vitals]) -> Vec<(u16, Vitals)> {
        let disks = self.disks.borrow();
        let there = (0u16..).zip(vitals).zip(&*disks).filter(|(_, disk)| disk.disk.is_some());
        there.map(|((index, vitals), _)| (index, vitals.clone())).collect()
    }

    /// Where requests of all shards waited for their turn all the time, the disks did what they can do, unless the window is small for latency goals, or still is. Where they took
    /// `slowest` thousandths of their usual time although there was little to do, they can do no more than that leaves.
    fn note_health(&self, span: u64, busy: u64, is_full: bool, slowest: Option<u64>) {
        let health = self.ledger.health.get();
        // A measurement has all of the pool, and says itself what came of it.
        if self.calibrating.get() {
            return;
        }
        let done = (u128::from(busy) * u128::from(WHOLE) / u128::from(span)).min(WHOLE.into()) as u64;
        let now = match slowest {
            Some(slowest) => (WHOLE * 1000 / slowest.max(1000)).max(done),
            None if is_full && self.shared.turns.is_wide_open() => done,
            None => {
                self.ledger.health.set(health + (WHOLE - health).div_ceil(FORGET));
                return;
            }
        };
        self.ledger.health.set((health * (WEIGHT - 1) + now) / WEIGHT);
    }

    /// Counts seconds in which a promise was broken, and tells a person: when there were several, and when the cause has become another.
    fn note_state(&self, wished: &Wished, account: &Account, state: State, cause: Option<&Cause<String>>) {
        let mut broken = self.ledger.broken.borrow_mut();
        // It may have another name than when it was told.
        let told = broken.get_mut(&wished.id).and_then(|breach| breach.told.as_mut());
        if let Some(told) = told.filter(|told| told.volume != wished.name) {
            told.volume.clone_from(&wished.name);
        }
        if wished.in_force().late_after().is_none() {
            // It was taken back, and that was told.
            broken.remove(&wished.id);
            return;
        }
        match (state, cause) {
            (State::Violated, Some(cause)) => {
                let breach = broken.entry(wished.id).or_default();
                breach.note(cause);
                let Some((cause, is_all)) = breach.cause() else { return };
                let (why, remedy) = self.because(cause);
                let is_news = match &breach.told {
                    None => breach.seconds as usize >= TOLD_SECONDS,
                    Some(told) => is_all && told.why != why,
                };
                if is_news {
                    self.tell_broken(wished, account, &why, &remedy);
                    let (volume, level) = (wished.name.clone(), wished.level_id);
                    breach.told = Some(Broken { volume, level, why, remedy });
                }
            }
            // Who asks for nothing has not had it; but nobody waits for it either, after a while.
            (State::Idle, _) => {
                let Some(breach) = broken.get_mut(&wished.id) else { return };
                breach.idle += 1;
                if breach.idle < IDLE_SECONDS {
                    return;
                }
                if broken.remove(&wished.id).is_some_and(|breach| breach.told.is_some()) {
                    let message = format!(
                        "the volume has had no requests for a minute; it missed its service level before: {}",
                        wished.level
                    );
                    self.event(Severity::Info, "level.idle", &self.object(&wished.name), message);
                }
            }
            _ => {
                let Some(breach) = broken.get_mut(&wished.id) else { return };
                breach.idle = 0;
                breach.seconds -= 1;
                if breach.seconds == 0
                    && broken.remove(&wished.id).is_some_and(|breach| breach.told.is_some())
                {
                    let message = format!("the volume meets its service level again: {}", wished.level);
                    self.event(Severity::Info, "level.met", &self.object(&wished.name), message);
                }
            }
        }
    }

    fn tell_broken(&self, wished: &Wished, account: &Account, why: &str, remedy: &str) {
        let rate = u128::from(account.done) * 1_000_000_000 / u128::from(account.span);
        let got = match account.timed {
            0 => format!("completed no request, and {} wait", account.open),
            _ => format!("completed {rate} IOPS with a p99 of {:.1} ms", account.p99 as f64 / 1e6),
        };
        let message = format!(
            "the volume missed its service level ({}): it {got}. Cause: {why}. Remedy: {remedy}",
            wished.level
        );
        self.event(Severity::Warning, "level.missed", &self.object(&wished.name), message);
    }

    /// A cause in words, and what can be done about it.
    fn because(&self, cause: &Cause<String>) -> (String, String) {
        let words = |why: &str, remedy: &str| (why.to_string(), remedy.to_string());
        match cause {
            Cause::Neighbour(name) => (
                format!("the disks were busy with volume {}", self.object(name)),
                "limit that volume, or give this one a more critical level".into(),
            ),
            Cause::Task(task) => (
                format!("the disks were busy with background work: {}", task.name()),
                "wait until that work is complete".into(),
            ),
            Cause::Disk(disk) => (
                format!("disk {} is far slower than the others of its group", self.object(&disk.to_string())),
                "replace it if it stays slow".into(),
            ),
            Cause::Disks => (
                "the disks are slower than they were measured".into(),
                format!(
                    "check the disks and their controller, then measure again with 'forebay pool calibrate {}'",
                    self.name()
                ),
            ),
            Cause::CacheMiss => words(
                "the disks take that long even without other load",
                "add memory or faster disks, or give the volume a level that these disks can meet",
            ),
            Cause::Itself => words(
                "the volume asked for more than the pool can do",
                "add disks, or give the volume a lower level",
            ),
        }
    }
}

fn named(cause: Cause<Id>, names: &BTreeMap<Id, &str>) -> Cause<String> {
    match cause {
        Cause::Neighbour(id) => {
            Cause::Neighbour(names.get(&id).map_or_else(|| id.to_string(), |name| name.to_string()))
        }
        Cause::Task(task) => Cause::Task(task),
        Cause::Disk(disk) => Cause::Disk(disk),
        Cause::Disks => Cause::Disks,
        Cause::CacheMiss => Cause::CacheMiss,
        Cause::Itself => Cause::Itself,
    }
}

impl Ledger {
    fn keep(&self, second: LedgerSecond) {
        let mut seconds = self.seconds.borrow_mut();
        let mut lines = self.lines.get() + second.volumes.len();
        seconds.push_back(Arc::new(second));
        while seconds.len() > SECONDS_MAX || (lines > LINES_MAX && seconds.len() > 1) {
            lines -= seconds.pop_front().map_or(0, |second| second.volumes.len());
        }
        self.lines.set(lines);
    }

    fn keep_disks(&self, second: DisksSecond) {
        let mut seconds = self.disks.borrow_mut();
        seconds.push_back(Arc::new(second));
        if seconds.len() > DISKS_SECONDS_MAX {
            seconds.pop_front();
        }
    }

    /// In thousandths, how much came from cache disks of what did not come from memory, in the last so many seconds.
    pub fn flash_permille(&self, seconds: usize) -> Option<u32> {
        let (mut flash, mut disks) = (0, 0);
        for second in self.seconds.borrow().iter().rev().take(seconds) {
            flash += second.read_from.flash;
            disks += second.read_from.disks;
        }
        (flash * 1000).checked_div(flash + disks).map(|permille| permille as u32)
    }

    fn after(&self, number: u64) -> Vec<Arc<LedgerSecond>> {
        let seconds = self.seconds.borrow();
        let old = seconds.partition_point(|second| second.number <= number);
        seconds.range(old..).cloned().collect()
    }
}

impl Engine {
    /// Promises that are broken, as a person was told of them.
    #[boxed]
    pub async fn broken_promises(&self, pool: &str) -> Result<Vec<Broken>, crate::Error> {
        self.on_pool(pool, |control| async move {
            let broken = control.ledger.broken.borrow();
            Ok(broken.values().filter_map(|breach| breach.told.clone()).collect())
        })
        .await
    }

    /// The seconds of a pool's ledger that came after that number, the oldest first.
    #[boxed]
    pub async fn ledger(&self, pool: &str, after: u64) -> Result<Vec<Arc<LedgerSecond>>, crate::Error> {
        self.on_pool(pool, move |control| async move { Ok(control.ledger.after(after)) }).await
    }

    /// What a pool's disks did in the seconds that came after that number, of the last ten, the oldest first.
    #[boxed]
    pub async fn disks_seconds(&self, pool: &str, after: u64) -> Result<Vec<Arc<DisksSecond>>, crate::Error> {
        let newer = move |control: &Control| {
            let seconds = control.ledger.disks.borrow();
            seconds.iter().filter(|second| second.number > after).cloned().collect()
        };
        self.on_pool(pool, move |control| async move { Ok(newer(&control)) }).await
    }
}
