//! The world: virtual time, a queue of what devices will report, disks by name, and seeded chance.
//!
//! One [`Executor`] runs all cores of a simulated machine; core numbers are names for it. Time moves only when no
//! task is ready, to the next thing that happens; a turn with ready tasks costs 100 ns, so that a task that
//! polls sees time pass. Everything that happens is a function of the seed and of the code that runs: which task
//! runs next, how long each operation takes, random numbers, faults. Each has a stream of its own, so that switching
//! one off does not change the others. Every event goes into a running hash, the *trace*: two runs with one
//! seed end with the same trace, or something outside the seed has leaked in.
//!
//! Disks are given requests as those of one core are in production ([`Admission`]): the machine has one executor.
//!
//! Networks are not modelled: asking for one is an error.

use crate::backend::WorldBackend;
use crate::cache::Fate;
use crate::disk::{DiscardEffect, SimDisk, Work};
use crate::fault::{OpKind, Rule};
use crate::image::{Image, SECTOR};
use crate::model::{Order, Sheet};
use crate::recent::Recent;
use crate::record::{Event, Recording};
use forebay_base::Random;
use forebay_runtime::{Admission, Completer, Cores, Executor, Geometry, HandleId, Limits, completion};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// 2026-11-01 00:00 UTC in milliseconds: where wall time starts.
const WALL_START_MS: u64 = 1_793_491_200_000;
/// Cost of a turn of the executor with ready tasks.
pub(crate) const TURN_NS: u64 = 100;

/// How a world behaves where chance is involved.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    pub seed: u64,
    /// Whether ready tasks run in a seeded order instead of first come, first served.
    pub shuffle: bool,
    /// Whether the contents of writes go into the trace (a tenth of the run's time).
    pub trace_contents: bool,
    /// Service times in nanoseconds, drawn evenly.
    pub read_ns: Range<u64>,
    pub write_ns: Range<u64>,
    pub flush_ns: Range<u64>,
    /// Bytes a second that each disk transfers, one request after the other; without it requests do not wait for each other.
    pub rate: Option<u64>,
    /// Turns of the executor after which [`World::run`] calls a run spinning.
    pub turns_max: u64,
    /// Whether the power may fail, so that it has to be known what would be left then.
    pub power_fails: bool,
    /// How many requests disks may have at a time.
    pub limits: Limits,
}

impl WorldConfig {
    pub fn new(seed: u64) -> WorldConfig {
        WorldConfig {
            seed,
            shuffle: true,
            trace_contents: false,
            read_ns: 10_000..100_000,
            write_ns: 10_000..100_000,
            flush_ns: 50_000..400_000,
            rate: None,
            // The longest of the ordinary ones take a tenth of this.
            turns_max: 2_000_000,
            power_fails: true,
            limits: Limits::CORE,
        }
    }
}

/// A future that was not done when its time was up: a deadlock, or waiting for something that hangs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// Virtual time that passed.
    pub after: Duration,
    /// Whether tasks kept the executor busy without end.
    pub spinning: bool,
}

pub(crate) struct Due {
    pub at: u64,
    pub number: u64,
    pub disk: usize,
    /// Nothing: the disk's model says what is over.
    pub work: Option<Work>,
}

/// An operation that waits until its disk may have it.
pub(crate) struct Waiting {
    pub disk: usize,
    pub work: Work,
    pub slower: u32,
    /// It hangs, unless the disk has been released since this release.
    pub hangs: Option<u64>,
}

// The heap is a maximum heap: the earliest is the greatest.
impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.number == other.number
    }
}
impl Eq for Due {}

/// Streams of chance, one for each purpose.
pub(crate) struct Chance {
    pub order: Random,
    pub service: Random,
    pub faults: Random,
    pub engine: Random,
}

pub(crate) struct Inner {
    pub config: WorldConfig,
    pub now: Cell<u64>,
    pub wall_ms: Cell<i64>,
    pub trace: Cell<u64>,
    pub turns: Cell<u64>,
    pub number: Cell<u64>,
    pub chance: RefCell<Chance>,
    pub disks: RefCell<Vec<SimDisk>>,
    pub admission: RefCell<Admission<Waiting>>,
    /// What they were given last.
    pub recent: RefCell<Recent>,
    pub names: RefCell<BTreeMap<String, usize>>,
    pub queue: RefCell<BinaryHeap<Due>>,
    pub rules: RefCell<Vec<Rule>>,
    pub recording: RefCell<Option<Recording>>,
    pub spinning: RefCell<Option<Completer<()>>>,
}

/// A simulated machine. Cheap to clone; lives on one thread.
#[derive(Clone)]
pub struct World(Rc<Inner>);

impl World {
    pub fn new(config: WorldConfig) -> World {
        let stream = |purpose: u64| Random::new(config.seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let chance = Chance { order: stream(1), service: stream(2), faults: stream(3), engine: stream(4) };
        let admission = RefCell::new(Admission::new(config.limits));
        World(Rc::new(Inner {
            config,
            now: Cell::new(0),
            wall_ms: Cell::new(WALL_START_MS as i64),
            trace: Cell::new(0xcbf2_9ce4_8422_2325),
            turns: Cell::new(0),
            number: Cell::new(0),
            chance: RefCell::new(chance),
            disks: RefCell::default(),
            admission,
            recent: RefCell::new(Recent::new()),
            names: RefCell::default(),
            queue: RefCell::default(),
            rules: RefCell::default(),
            recording: RefCell::default(),
            spinning: RefCell::default(),
        }))
    }

    /// The executor of this world, and all its `count` cores: names for the one executor.
    pub fn executor(&self, count: usize) -> (Executor, Cores) {
        let executor = Executor::new(0, Rc::new(WorldBackend(self.0.clone())));
        let cores = Cores::new(vec![executor.rt().remote(); count]);
        (executor, cores)
    }

    /// Runs `main` until it is done, at most for `limit` of virtual time.
    pub fn run<T: 'static>(
        &self,
        executor: &Executor,
        limit: Duration,
        main: impl Future<Output = T> + 'static,
    ) -> Result<T, Stuck> {
        let (spinning, spins) = completion();
        *self.0.spinning.borrow_mut() = Some(spinning);
        self.0.turns.set(0);
        let began = self.0.now.get();
        let deadline = executor.rt().sleep(limit);
        let result = executor.block_on(async move {
            let (mut main, mut deadline, mut spins) = (pin!(main), pin!(deadline), pin!(spins));
            std::future::poll_fn(move |context| {
                if let Poll::Ready(value) = main.as_mut().poll(context) {
                    return Poll::Ready(Ok(value));
                }
                if spins.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Err(true));
                }
                deadline.as_mut().poll(context).map(|()| Err(false))
            })
            .await
        });
        // The waiter is gone; a completer that nobody answers wakes nobody.
        self.0.spinning.borrow_mut().take();
        result.map_err(|spinning| Stuck { after: Duration::from_nanos(self.0.now.get() - began), spinning })
    }

    /// Adds a disk with these contents and returns its index; its name is `sim` and the index.
    pub fn add_disk(&self, image: Image) -> usize {
        let mut disks = self.0.disks.borrow_mut();
        let index = disks.len();
        disks.push(SimDisk::new(image, index as u64 + 1, self.0.config.power_fails));
        self.0.names.borrow_mut().insert(format!("sim{index}"), index);
        index
    }

    /// Sets the size of a disk's physical sectors.
    pub fn set_sector(&self, disk: usize, bytes: u32) {
        let geometry = &mut self.0.disks.borrow_mut()[disk].geometry;
        (geometry.sector_logical, geometry.sector_physical) = (bytes.min(geometry.sector_logical), bytes);
    }

    /// Has a disk that nobody has used yet take its time as a device with this sheet does, and turn if that turns.
    pub fn set_model(&self, disk: usize, sheet: &Sheet) {
        let seed = self.0.config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ disk as u64;
        let disk = &mut self.0.disks.borrow_mut()[disk];
        assert!(disk.operations == [0; 4], "a disk keeps its model once it is used");
        disk.geometry.rotational = matches!(sheet, Sheet::Disk(_));
        disk.device = Some(sheet.device(seed));
    }

    /// Time that a disk with a model has worked so far.
    pub fn busy(&self, disk: usize) -> Duration {
        Duration::from_nanos(self.0.disks.borrow()[disk].device.as_ref().map_or(0, |device| device.busy()))
    }

    /// A second name for a disk.
    pub fn alias(&self, name: &str, disk: usize) {
        self.0.names.borrow_mut().insert(name.into(), disk);
    }

    pub fn disk_count(&self) -> usize {
        self.0.disks.borrow().len()
    }

    /// The hash of everything that has happened.
    pub fn trace(&self) -> u64 {
        self.0.trace.get()
    }

    /// Virtual time since the world began.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.0.now.get())
    }

    /// What a reader of the disk sees now.
    pub fn image(&self, disk: usize) -> Image {
        self.0.disks.borrow()[disk].current.clone()
    }

    /// Exchanges the contents of a disk, as when it comes back after a time elsewhere.
    pub fn set_image(&self, disk: usize, image: Image) {
        let mut disks = self.0.disks.borrow_mut();
        let target = &mut disks[disk];
        assert_eq!(image.size(), target.geometry.size, "a disk keeps its size");
        target.current = image.clone();
        if self.0.config.power_fails {
            target.cache = crate::cache::WriteCache::new(image);
        }
        self.0.record(|| Event::Replaced { disk, cache: target.cache.clone() });
    }

    /// Changes what the disk says of itself; its size stays.
    pub fn set_geometry(&self, disk: usize, change: impl FnOnce(&mut Geometry)) {
        let mut disks = self.0.disks.borrow_mut();
        let size = disks[disk].geometry.size;
        change(&mut disks[disk].geometry);
        disks[disk].geometry.size = size;
    }

    /// Has a disk end earlier from now on. It keeps what lies behind.
    pub fn shrink(&self, disk: usize, bytes: u64) {
        let disk = &mut self.0.disks.borrow_mut()[disk];
        assert!(bytes <= disk.geometry.size, "a disk only becomes shorter");
        disk.geometry.size = bytes;
    }

    /// What discarded ranges of the disk read as.
    pub fn set_discard(&self, disk: usize, effect: DiscardEffect) {
        self.0.disks.borrow_mut()[disk].discard = effect;
    }

    /// The disks after a power loss now: `fate` decides about each write that is not durable, by disk.
    pub fn power_loss(&self, mut fate: impl FnMut(usize, usize) -> Fate) -> Vec<Image> {
        assert!(self.0.config.power_fails, "in this world the power does not fail");
        let disks = self.0.disks.borrow();
        let mut images = Vec::with_capacity(disks.len());
        for (index, disk) in disks.iter().enumerate() {
            let fates: Vec<Fate> =
                disk.cache.pending.iter().map(|pending| fate(index, pending.sectors())).collect();
            images.push(disk.cache.crash(|n, _| fates[n]));
        }
        images
    }

    // Faults.

    pub fn add_rule(&self, rule: Rule) {
        self.0.rules.borrow_mut().push(rule);
    }

    /// Ends all rules and returns them with their counts.
    pub fn take_rules(&self) -> Vec<Rule> {
        std::mem::take(&mut *self.0.rules.borrow_mut())
    }

    /// How often all rules together have fired.
    pub fn faults_fired(&self) -> u64 {
        self.0.rules.borrow().iter().map(|rule| rule.fired).sum()
    }

    /// Operations that hang on a disk.
    pub fn held(&self, disk: usize) -> usize {
        self.0.disks.borrow()[disk].held.len()
    }

    /// Bytes written to a disk so far.
    pub fn written(&self, disk: usize) -> u64 {
        self.0.disks.borrow()[disk].written
    }

    /// Operations of one kind that the disk was asked for so far.
    pub fn operations(&self, disk: usize, kind: OpKind) -> u64 {
        self.0.disks.borrow()[disk].operations[kind as usize]
    }

    /// Changes stored bytes behind the device's back: each is combined with `mask` by exclusive or.
    pub fn rot(&self, disk: usize, at: u64, mask: &[u8]) {
        let mut disks = self.0.disks.borrow_mut();
        let target = &mut disks[disk];
        // A page that waits in the cache rots like one on the medium: a reader of either sees it.
        let ids = target.cache.completed();
        target.cache.flushed(&ids);
        let durable = self.0.config.power_fails.then_some(&mut target.cache.durable);
        for image in [Some(&mut target.current), durable].into_iter().flatten() {
            let mut bytes = vec![0; mask.len()];
            image.read(at, &mut bytes);
            bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
            image.write(at, &bytes);
        }
        self.0.record(|| Event::Replaced { disk, cache: target.cache.clone() });
    }

    /// The sectors that these bytes touch cannot be read until they are written.
    pub fn set_unreadable(&self, disk: usize, bytes: Range<u64>) {
        let sectors = bytes.start / SECTOR as u64..bytes.end.div_ceil(SECTOR as u64);
        self.0.disks.borrow_mut()[disk].unreadable.extend(sectors);
    }

    /// Numbers of the sectors that cannot be read now: they are no part of an image.
    pub fn unreadable(&self, disk: usize) -> Vec<u64> {
        self.0.disks.borrow()[disk].unreadable.iter().copied().collect()
    }

    /// A disk that is gone cannot be opened, and fails everything.
    pub fn set_gone(&self, disk: usize, gone: bool) {
        self.0.disks.borrow_mut()[disk].gone = gone;
    }

    /// Lets the operations that hang on this disk go on.
    pub fn release(&self, disk: usize) {
        let held = {
            let disk = &mut self.0.disks.borrow_mut()[disk];
            disk.releases += 1;
            std::mem::take(&mut disk.held)
        };
        for work in held {
            self.0.queue(disk, work, 1);
        }
    }

    /// The machine stands still for a while, as a stopped process or a paused virtual machine does: time passes, and neither tasks nor
    /// devices get on. Not for worlds with models of devices.
    pub fn stand_still(&self, duration: Duration) {
        let nanos = duration.as_nanos() as u64;
        assert!(self.0.disks.borrow().iter().all(|disk| disk.device.is_none()), "a model keeps its own time");
        self.0.now.set(self.0.now.get() + nanos);
        self.0.disks.borrow_mut().iter_mut().for_each(|disk| disk.busy_until += nanos);
        let mut queue = self.0.queue.borrow_mut();
        *queue = queue.drain().map(|due| Due { at: due.at + nanos, ..due }).collect();
    }

    /// Moves wall time; monotonic time goes on.
    pub fn jump_wall(&self, by: i128) {
        let moved = i128::from(self.0.wall_ms.get()) + by;
        self.0.wall_ms.set(i64::try_from(moved.max(0)).unwrap_or(i64::MAX));
    }

    // Recording.

    /// Starts to record, from the disks as they are.
    pub fn record(&self) {
        let start = self.0.disks.borrow().iter().map(|disk| disk.cache.clone()).collect();
        *self.0.recording.borrow_mut() = Some(Recording { start, events: Vec::new() });
    }

    /// Puts the harness's own mark between the events.
    pub fn mark(&self, value: u64) {
        self.0.note([6, value, 0, 0]);
        self.0.record(|| Event::Mark(value));
    }

    /// Ends recording. Empty when nothing was recorded.
    pub fn take_recording(&self) -> Recording {
        self.0.recording.borrow_mut().take().unwrap_or_default()
    }
}

impl Inner {
    pub fn note(&self, values: [u64; 4]) {
        let mut hash = self.trace.get();
        for value in values {
            // FNV-1a over words: enough to tell two traces apart, cheap enough to be always on.
            hash = (hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        self.trace.set(hash);
    }

    pub fn record(&self, event: impl FnOnce() -> Event) {
        if let Some(recording) = &mut *self.recording.borrow_mut() {
            recording.events.push(event());
        }
    }

    pub fn next_number(&self) -> u64 {
        self.number.set(self.number.get() + 1);
        self.number.get()
    }

    /// Gives a disk an operation, now or when it may have it.
    pub fn ask(&self, waiting: Waiting) {
        let place = waiting.work.place();
        let now = self.admission.borrow_mut().ask(place.handle, place.class, waiting);
        if let Some(waiting) = now {
            self.begin(waiting);
        }
    }

    fn begin(&self, Waiting { disk, work, slower, hangs }: Waiting) {
        let mut disks = self.disks.borrow_mut();
        if hangs == Some(disks[disk].releases) {
            return disks[disk].held.push(work);
        }
        drop(disks);
        self.queue(disk, work, slower);
    }

    /// Gives a disk what may go on after an operation that was asked for through this handle is over, or all are given up.
    fn begin_next(&self, handle: HandleId) {
        loop {
            let next = self.admission.borrow_mut().next(handle);
            let Some(waiting) = next else { return };
            self.begin(waiting);
        }
    }

    /// Ends what was asked for through this handle and never came to the disk.
    pub fn give_up(&self, handle: HandleId) {
        let never = self.admission.borrow_mut().give_up(handle);
        for Waiting { disk, work, .. } in never {
            self.finish(disk, work.given_up());
        }
        self.begin_next(handle);
    }

    fn finish(&self, disk: usize, work: Work) {
        let event = self.disks.borrow_mut()[disk].finish(disk, work);
        if let Some(event) = event {
            self.record(|| event);
        }
    }

    /// Puts work into the queue, to be reported after its service time, `slower` times as long as usual.
    pub fn queue(&self, disk: usize, work: Work, slower: u32) {
        let number = self.next_number();
        let now = self.now.get();
        let mut disks = self.disks.borrow_mut();
        if let Some(device) = &mut disks[disk].device {
            device.accept(now, Order::new(work, slower));
            drop(disks);
            return self.look_again(disk);
        }
        drop(disks);
        let range = match work {
            Work::Read { .. } => &self.config.read_ns,
            Work::Write(_) => &self.config.write_ns,
            Work::Flush { .. } => &self.config.flush_ns,
        };
        let drawn = range.start + self.chance.borrow_mut().service.below((range.end - range.start).max(1));
        let took = drawn * u64::from(slower);
        let at = match self.config.rate {
            None => self.now.get() + took,
            Some(rate) => {
                let disk = &mut self.disks.borrow_mut()[disk];
                disk.busy_until =
                    disk.busy_until.max(self.now.get()) + took + work.bytes() * 1_000_000_000 / rate;
                disk.busy_until
            }
        };
        self.queue.borrow_mut().push(Due { at, number, disk, work: Some(work) });
    }

    /// Comes back to a disk with a model when something is over there.
    fn look_again(&self, disk: usize) {
        let known = &mut self.disks.borrow_mut()[disk];
        let next = known.device.as_ref().and_then(|device| device.next());
        let Some(at) = next.filter(|next| known.look_at.is_none_or(|look| *next < look)) else { return };
        known.look_at = Some(at);
        let number = self.next_number();
        self.queue.borrow_mut().push(Due { at, number, disk, work: None });
    }

    /// Reports everything whose time has come.
    pub fn deliver(&self) {
        loop {
            let due = {
                let mut queue = self.queue.borrow_mut();
                if queue.peek().is_none_or(|due| due.at > self.now.get()) {
                    return;
                }
                queue.pop().expect("the queue has a first element")
            };
            let over = match due.work {
                Some(work) => vec![work],
                None => {
                    let disk = &mut self.disks.borrow_mut()[due.disk];
                    disk.look_at = disk.look_at.filter(|look| *look > due.at);
                    disk.device.as_mut().map_or(Vec::new(), |device| device.advance(due.at))
                }
            };
            for work in over {
                self.note([2, due.at, due.number, due.disk as u64]);
                let place = work.place();
                self.finish(due.disk, work);
                self.admission.borrow_mut().answered(place.handle, place.class);
                self.begin_next(place.handle);
            }
            self.look_again(due.disk);
        }
    }
}
