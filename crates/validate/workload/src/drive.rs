//! Asks, and takes note of the answers.

use crate::host::Host;
use crate::link::Way;
use crate::trace::Replay;
use crate::{Arrivals, Costs, Link, Request, Requests, Tally, Workload, contents};
use forebay_base::{Nanos, Random};
use forebay_pool::Volume;
use forebay_runtime::{Buf, Completion, Disk, Rt};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// Picoseconds: what a rate divides a second into is rounded, and must not add up.
const PICO: u128 = 1_000_000_000_000;

/// A client whose requests are due for longer than this gives them up.
const PATIENCE: u64 = SECOND;

/// What is asked: a volume, or bare disks to see beside it what a pool costs.
pub enum Store {
    Volume(Rc<Volume>),
    /// Disks side by side, a MiB of each in turn, from this byte on.
    Disks {
        disks: Vec<Disk>,
        first: u64,
    },
    /// Whatever answers over a network that is there.
    Remote(Rc<dyn Remote>),
}

/// Somebody who can be asked for more than one thing at a time.
pub trait Remote {
    /// Whether it was read, or was written and is safe; `data` is what to write.
    fn ask(&self, request: &Request, data: Buf) -> Completion<bool>;
}

/// Bytes of one disk before the next.
const STRIPE: u64 = 1 << 20;

impl Store {
    /// Whether it was read.
    async fn read(&self, rt: &Rt, at: u64, bytes: u64) -> bool {
        match self {
            Store::Volume(volume) => volume.read(at, bytes as usize).await.is_ok(),
            Store::Disks { disks, first } => {
                let (disk, at) = place(disks, first + at);
                disk.read(at, rt.buffer(bytes as usize)).await.1.is_ok()
            }
            Store::Remote(remote) => {
                let nothing = rt.buffer(0).freeze();
                remote.ask(&Request { at, bytes, is_write: false }, nothing).await
            }
        }
    }

    /// Whether it was written and is safe.
    async fn write(&self, at: u64, data: Buf) -> bool {
        match self {
            Store::Volume(volume) => volume.write(at, vec![data], false).await.is_ok(),
            Store::Disks { disks, first } => {
                let (disk, at) = place(disks, first + at);
                disk.write_durable(at, vec![data]).await.is_ok()
            }
            Store::Remote(remote) => {
                let bytes = data.len() as u64;
                remote.ask(&Request { at, bytes, is_write: true }, data).await
            }
        }
    }
}

fn place(disks: &[Disk], at: u64) -> (&Disk, u64) {
    let (stripe, count) = (at / STRIPE, disks.len() as u64);
    (&disks[(stripe % count) as usize], stripe / count * STRIPE + at % STRIPE)
}

/// What is asked, and the way there.
pub struct Target {
    pub store: Store,
    /// Bytes of it.
    pub size: u64,
    pub link: Rc<Link>,
    pub costs: Costs,
}

struct Shared {
    workload: Workload,
    requests: Requests,
    /// Instead of them, if they were taken down once.
    replay: Option<Replay>,
    tally: Tally,
    host: Option<Host>,
    chance: Random,
    begun: Nanos,
    /// When the next request of the schedule is due, in picoseconds after it has begun.
    due: u128,
    /// What is written.
    data: Buf,
}

impl Shared {
    /// When the next request of a trace is due, and what it is; who is too late leaves some out.
    fn replayed(&mut self, now: Nanos) -> Option<(Nanos, Request)> {
        let replay = self.replay.as_mut()?;
        loop {
            let (due, request) = replay.next();
            let due = Nanos(self.begun.0 + due);
            if now.since(due) <= PATIENCE {
                return Some((due, request));
            }
        }
    }

    /// When the next request is due, and how many of a hundred are reads then; nothing if none is any more.
    fn due(&mut self, now: Nanos) -> Option<(Nanos, u8)> {
        let since = now.since(self.begun);
        self.due = self.due.max(u128::from(since.saturating_sub(PATIENCE)) * 1000);
        loop {
            let due = (self.due / 1000) as u64;
            let (rate, reads, changes) = self.workload.phase(due);
            if rate == 0 {
                // A pause, until something else.
                self.due = u128::from(changes?) * 1000;
                continue;
            }
            let mean = PICO / u128::from(rate);
            self.due += match self.workload.arrivals {
                Arrivals::Even => mean,
                Arrivals::Chance => {
                    let even = ((self.chance.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                    (-even.ln() * mean as f64) as u128
                }
            };
            return Some((Nanos(self.begun.0 + due), reads));
        }
    }
}

/// Asks what `workload` says of `target` until `to`, and measures from `from` on. Requests of a schedule take from when they were due.
pub async fn drive(
    rt: &Rt,
    target: Target,
    workload: &Workload,
    seed: u64,
    (from, to): (Nanos, Nanos),
) -> Tally {
    let size = target.size;
    let room = |cache: &crate::HostCache| size / workload.block_bytes() * cache.size_gib / workload.size_gib;
    let mut chance = Random::new(seed ^ 0x5bd1_e995);
    // Clients with the same rate do not all ask at the same moments.
    let (rate, ..) = workload.phase(0);
    let offset = u128::from(chance.below(SECOND)) * 1000 / u128::from(rate.max(1));
    let past = workload.trace.as_ref().map(|trace| trace.requests.clone());
    let longest = past.iter().flat_map(|past| past.iter()).map(|past| u64::from(past.bytes)).max();
    let bytes = longest.unwrap_or(workload.block_bytes()) as usize;
    let mut block = rt.arena().take_zeroed(bytes);
    block.copy_from_slice(&contents(workload.contents, bytes));
    // Several of one trace do not all ask for the same at the same moments.
    let replay = past.filter(|past| !past.is_empty()).map(|past| {
        let first = chance.below(past.len() as u64) as usize;
        Replay::new(past, size, first)
    });
    let shared = Rc::new(RefCell::new(Shared {
        requests: Requests::new(workload, size, seed),
        replay,
        tally: Tally::new(from, to),
        host: workload.host_cache.as_ref().map(|cache| Host::new(cache, room(cache))),
        chance,
        begun: rt.now(),
        due: offset,
        data: block.freeze(),
        workload: workload.clone(),
    }));
    let target = Rc::new(target);
    let tasks: Vec<_> = (0..workload.outstanding as usize)
        .map(|asker| rt.spawn(work(rt.clone(), shared.clone(), target.clone(), asker, to)))
        .collect();
    for task in tasks {
        task.await;
    }
    Rc::into_inner(shared).expect("all tasks are over").into_inner().tally
}

/// One who asks, one request at a time.
async fn work(rt: Rt, shared: Rc<RefCell<Shared>>, target: Rc<Target>, asker: usize, to: Nanos) {
    let (is_closed, think, per_order, reads) = {
        let workload = &shared.borrow().workload;
        (workload.is_closed(), workload.think(), workload.requests_per_order, workload.read_percent)
    };
    while rt.now().0 < to.0 {
        let (begun, mut has_failed) = (rt.now(), false);
        for _ in 0..per_order {
            let (mut due, mut reads) = (rt.now(), reads);
            let past = shared.borrow_mut().replayed(due);
            if let Some((then, _)) = past {
                if then.0 >= to.0 {
                    return;
                }
                due = then;
                rt.sleep_until(due).await;
            } else if !is_closed {
                let next = shared.borrow_mut().due(due);
                let Some(next) = next.filter(|(due, _)| due.0 < to.0) else { return };
                (due, reads) = next;
                rt.sleep_until(due).await;
            }
            let request = match past {
                Some((_, request)) => request,
                None => shared.borrow_mut().requests.next(asker, reads),
            };
            shared.borrow_mut().tally.asked(rt.now());
            let is_done = ask(&rt, &shared, &target, request).await;
            shared.borrow_mut().tally.over(rt.now());
            if is_done {
                shared.borrow_mut().tally.answered(due, rt.now(), &request);
            } else {
                // Who gets an error at once must not ask for ever without time passing.
                shared.borrow_mut().tally.failed();
                has_failed = true;
                rt.sleep(Duration::from_millis(10)).await;
            }
        }
        if per_order > 1 && !has_failed {
            shared.borrow_mut().tally.ordered(begun, rt.now());
        }
        if !think.is_zero() {
            rt.sleep(think).await;
        }
    }
}

/// Whether it was done.
async fn ask(rt: &Rt, shared: &RefCell<Shared>, target: &Target, request: Request) -> bool {
    let Request { at, bytes, is_write } = request;
    let Target { store, link, costs, .. } = target;
    let data = shared.borrow().data.slice(0, if is_write { bytes as usize } else { 0 });
    if !is_write {
        let here = shared.borrow_mut().host.as_mut().and_then(|host| host.read(&request, rt.now()));
        if let Some(over) = here {
            rt.sleep_until(over).await;
            shared.borrow_mut().tally.hit(rt.now());
            return true;
        }
    }
    let (there, back) = if is_write { (bytes, 0) } else { (0, bytes) };
    let port = link.port();
    link.carry(rt, port, Way::ToPool, there).await;
    link.work(rt, costs.of(is_write, bytes)).await;
    let is_done = match is_write {
        true => store.write(at, data).await,
        false => store.read(rt, at, bytes).await,
    };
    link.carry(rt, port, Way::ToClient, if is_done { back } else { 0 }).await;
    if let Some(host) = shared.borrow_mut().host.as_mut().filter(|_| is_done) {
        host.keep(&request);
    }
    is_done
}
