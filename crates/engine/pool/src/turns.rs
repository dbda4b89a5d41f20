//! Whose turn it is at the disks: the shard's scheduler ([`forebay_qos`]), and those who wait for it.
//!
//! Whoever wants the disks takes a [`Turn`] first, and keeps it until what he asked for is over. Clients take one for what they do not find in
//! memory and for what they write; so does the pool's work that nobody waits for. What clients may be waiting for while they have a turn (checkpoints, blocks that
//! move out of the log or out of chunks that are needed) begins unasked and is only counted: otherwise both could wait for each other.

use crate::calibrate::Sample;
use crate::dataset::Dataset;
use crate::registry::registry;
use crate::shard::Shard;
use crate::signal::Signal;
use forebay_base::{Id, Nanos};
use forebay_qos::{Ceiling, Class, FlowId, InFlight, Level, Next, Pool, Scheduler, Work};
use forebay_runtime::Rt;
use futures_util::future::select;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Where other shards' turn comes first, it looks again after this.
const LOOK: Duration = Duration::from_micros(100);

pub(crate) struct Turns {
    rt: Rt,
    scheduler: RefCell<Scheduler<Rc<Waiter>>>,
    /// When to look again, and the wake-up of the task that does.
    look_at: Cell<Option<Nanos>>,
    look: Signal,
    /// While the pool is measured: what with, and its id from before it is there.
    pub sample: RefCell<Option<Rc<Sample>>>,
    pub sampled: Cell<Option<Id>>,
}

/// A place at the disks; given back when it is dropped.
pub(crate) struct Turn {
    turns: Rc<Turns>,
    begun: Option<InFlight>,
}

/// What has turns of its own: a volume, or a kind of work.
pub(crate) struct Flow {
    turns: Rc<Turns>,
    id: FlowId,
    level: Cell<Level>,
}

#[derive(Default)]
struct Waiter {
    turn: RefCell<Option<Turn>>,
    waker: Cell<Option<Waker>>,
}

impl Waiter {
    fn has_it(&self, turn: Turn) {
        *self.turn.borrow_mut() = Some(turn);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Somebody waits; gives up his place when he goes away.
struct Waiting<'a> {
    flow: &'a Flow,
    waiter: Rc<Waiter>,
    has_begun: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.has_begun || self.waiter.turn.borrow_mut().take().is_some() {
            return;
        }
        let is_other = |other: &Rc<Waiter>| !Rc::ptr_eq(other, &self.waiter);
        self.flow.turns.scheduler.borrow_mut().retain(self.flow.id, is_other);
        // Other shards may wait for the turn that this was to have.
        self.flow.turns.poll();
    }
}

impl Flow {
    pub fn new(turns: &Rc<Turns>, level: &Level) -> Flow {
        let ceiling = Arc::new(Ceiling::new(level.ceiling, level.burst));
        let id = turns.scheduler.borrow_mut().add(level, vec![ceiling]);
        Flow { turns: turns.clone(), id, level: Cell::new(*level) }
    }

    /// Another level, also for who waits already.
    fn set(&self, level: &Level) {
        if self.level.replace(*level) != *level {
            let ceiling = Arc::new(Ceiling::new(level.ceiling, level.burst));
            self.turns.scheduler.borrow_mut().set(self.turns.rt.now(), self.id, level, vec![ceiling]);
            self.turns.poll();
        }
    }

    /// Waits until `work` may begin.
    pub async fn turn(&self, work: Work) -> Turn {
        let (turns, now) = (&self.turns, self.turns.rt.now());
        if let Some(begun) = turns.scheduler.borrow_mut().begin_at_once(now, self.id, work) {
            return Turn { turns: turns.clone(), begun: Some(begun) };
        }
        let mut waiting = Waiting { flow: self, waiter: Rc::default(), has_begun: false };
        turns.scheduler.borrow_mut().push(now, self.id, work, waiting.waiter.clone());
        turns.poll();
        poll_fn(|context| match waiting.waiter.turn.take() {
            Some(turn) => {
                waiting.has_begun = true;
                Poll::Ready(turn)
            }
            None => {
                waiting.waiter.waker.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // Nobody can wait in it any more: whoever does has borrowed it.
        drop(self.turns.scheduler.borrow_mut().remove(self.id));
    }
}

impl Turn {
    /// What it is for turned out to be this.
    pub fn amend(&mut self, work: Work) {
        let begun = self.begun.as_mut().expect("until it ends");
        self.turns.scheduler.borrow_mut().amend(begun, work);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut scheduler = self.turns.scheduler.borrow_mut();
        scheduler.end(self.turns.rt.now(), self.begun.take().expect("a turn ends once"));
        let waits = scheduler.has_waiting();
        drop(scheduler);
        if waits {
            self.turns.poll();
        }
    }
}

impl Turns {
    pub fn new(rt: Rt, pool: Arc<Pool>, shard: usize) -> Turns {
        let scheduler = RefCell::new(Scheduler::new(pool, shard));
        Turns {
            rt,
            scheduler,
            look_at: Cell::new(None),
            look: Signal::default(),
            sample: RefCell::default(),
            sampled: Cell::new(None),
        }
    }

    /// Places that one request may write to at a time: a part of what may be in flight.
    pub fn places_max(&self) -> usize {
        self.scheduler.borrow().places_max()
    }

    /// Counts what others may wait for, and so begins at once.
    pub fn unasked(self: &Rc<Self>, work: Work) -> Turn {
        let begun = self.scheduler.borrow_mut().begin_unasked(work);
        Turn { turns: self.clone(), begun: Some(begun) }
    }

    /// Lets begin what may.
    fn poll(self: &Rc<Self>) {
        let now = self.rt.now();
        let look_at = loop {
            let next = self.scheduler.borrow_mut().next(now);
            match next {
                Next::Begin(waiter, begun) => waiter.has_it(Turn { turns: self.clone(), begun: Some(begun) }),
                Next::Idle => break None,
                Next::Wait(time) => break Some(time),
                Next::Full => break Some(Nanos(u64::MAX)),
            }
        };
        let is_held_up = self.scheduler.borrow().is_held_up();
        let look_at = look_at.map(|time| if is_held_up { time.min(now.after(LOOK)) } else { time });
        self.look_at.set(look_at.filter(|time| time.0 < u64::MAX));
        if self.look_at.get().is_some() {
            self.look.send();
        }
    }

    /// The shard ends: nobody has to wait any more, nor will anybody look again.
    pub fn end(self: &Rc<Self>) {
        self.scheduler.borrow_mut().open();
        self.poll();
        self.look.send();
    }
}

/// Work of the pool's own, that goes in steps. Each step takes its turn; after it, if clients were served meanwhile, the disks are theirs for as long as it
/// took: a device that has nothing else to do is not to be busy with this when they come.
///
/// A step holds its turn, so it must not wait for what takes turns, nor hold what those wait for who have one.
pub(crate) struct Pace {
    shard: Rc<Shard>,
    flow: Flow,
    turn: Option<Turn>,
    began: Nanos,
    served: u64,
}

impl Pace {
    /// Waits until a step may begin.
    pub async fn step(&mut self, work: Work) {
        self.turn = Some(self.flow.turn(work).await);
        self.began = self.shard.rt.now();
    }

    /// Begins a step that waits for nobody: writers who have their turn may be waiting for it.
    pub fn step_unasked(&mut self, work: Work) {
        self.begin();
        self.turn = Some(self.shard.turns.unasked(work));
    }

    /// Begins a step that counts itself.
    pub fn begin(&mut self) {
        self.began = self.shard.rt.now();
    }

    /// The step is over.
    pub fn end(&mut self) {
        self.turn = None;
    }

    /// The step is over, and others have their turn.
    pub async fn rest(&mut self) {
        self.end();
        let served = self.shard.served.get();
        if std::mem::replace(&mut self.served, served) != served {
            let took = self.shard.rt.now().since(self.began);
            self.shard.rt.sleep(Duration::from_nanos(took)).await;
        }
    }
}

impl Dataset {
    /// The flow of what clients do with it.
    pub fn flow(&self, shard: &Shard) -> &Flow {
        self.flow.get_or_init(|| Flow::new(&shard.turns, &registry(&shard.rt).level(self.level())))
    }
}

impl Shard {
    /// For work that begins now.
    pub fn pace(self: &Rc<Self>) -> Pace {
        let flow = Flow::new(&self.turns, &Level { class: Class::NonCritical, ..Level::default() });
        Pace { flow, turn: None, began: self.rt.now(), served: self.served.get(), shard: self.clone() }
    }

    /// Has a dataset's turns be what its service level says.
    pub fn note_level(&self, dataset: &Dataset) {
        if let Some(flow) = dataset.flow.get() {
            flow.set(&registry(&self.rt).level(dataset.level()));
        }
    }

    /// The task that looks again at its time, until the shard stops.
    pub async fn turns_task(self: Rc<Self>) {
        while !self.stopping.get() {
            match self.turns.look_at.get() {
                None => self.turns.look.wait().await,
                Some(time) => {
                    select(pin!(self.turns.look.wait()), pin!(self.rt.sleep_until(time))).await;
                    if self.turns.look_at.get().is_some_and(|time| time <= self.rt.now()) {
                        self.turns.look_at.set(None);
                        self.turns.poll();
                    }
                }
            }
        }
    }
}
