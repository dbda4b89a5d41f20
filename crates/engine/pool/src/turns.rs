//! Whose turn it is at the disks: the shard's scheduler ([`forebay_qos`]), and those who wait for it.
//!
//! Whoever wants the disks takes a [`Turn`] first, and keeps it until what he asked for is over. Clients take one for what they do not find in
//! memory and for what they write; so does the pool's work that nobody waits for. What clients may be waiting for while they have a turn (checkpoints, blocks
//! that move out of the log), or for space that others' levels say nothing of (evacuations), begins unasked and is only counted: otherwise both could wait for each
//! other.
//!
//! What must come to its end whatever clients do (a rebuild, space that is given back) waits for its turn for so long only, and then begins unasked. That is also the
//! way out of a wait in a circle that nobody has thought of: such work keeps chunks closed, or slots, while it waits.

use crate::bounds::Bounds;
use crate::dataset::Dataset;
use crate::registry::registry;
use crate::shard::Shard;
use crate::signal::Signal;
use crate::tally::Tally;
use forebay_base::Nanos;
use forebay_qos::{Class, FlowId, InFlight, Level, Next, Pool, Rate, Scheduler, Task, Work};
use forebay_runtime::Rt;
use futures_util::future::{Either, select};
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
    /// What its requests have to pass before they ask for a turn.
    pub bounds: Bounds,
    pub tally: Tally,
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
    /// With what its level says, and what of it is in force.
    pub fn new(turns: &Rc<Turns>, said: &Level, level: &Level) -> Flow {
        let id = turns.scheduler.borrow_mut().add(level);
        let (bounds, tally) = (Bounds::new(level), Tally::default());
        tally.set_level(said);
        Flow { turns: turns.clone(), id, level: Cell::new(*level), bounds, tally }
    }

    /// Another level, also for who waits already.
    fn set(&self, said: &Level, level: &Level) {
        self.tally.set_level(said);
        if self.level.replace(*level) != *level {
            self.bounds.set(level);
            self.turns.scheduler.borrow_mut().set(self.turns.rt.now(), self.id, level);
            self.turns.poll();
        }
    }

    pub fn has_goal(&self) -> bool {
        self.level.get().latency.is_some()
    }

    pub fn has_floor(&self) -> bool {
        self.level.get().floor != Rate::default()
    }

    /// Waits until `work` may begin that nobody waits for yet: not a latency, nor time that a client has lost.
    pub async fn turn_ahead(&self, work: Work) -> Turn {
        let now = self.turns.rt.now();
        let mut turn = match self.turn_at_once(now, work) {
            Some(turn) => turn,
            None => self.wait_for_turn(now, work).await,
        };
        turn.begun.iter_mut().for_each(InFlight::is_in_no_haste);
        turn
    }

    /// Waits until `work` may begin.
    pub async fn turn(&self, work: Work) -> Turn {
        let asked = self.turns.rt.now();
        if let Some(turn) = self.turn_at_once(asked, work) {
            return turn;
        }
        let turn = self.wait_for_turn(asked, work).await;
        self.tally.waited_for_turn(self.turns.rt.now().since(asked));
        turn
    }

    fn turn_at_once(&self, now: Nanos, work: Work) -> Option<Turn> {
        let begun = self.turns.scheduler.borrow_mut().begin_at_once(now, self.id, work)?;
        self.tally.took(begun.cost());
        Some(Turn { turns: self.turns.clone(), begun: Some(begun) })
    }

    async fn wait_for_turn(&self, now: Nanos, work: Work) -> Turn {
        let turns = &self.turns;
        let mut waiting = Waiting { flow: self, waiter: Rc::default(), has_begun: false };
        turns.scheduler.borrow_mut().push(now, self.id, work, waiting.waiter.clone());
        turns.poll();
        let turn = poll_fn(|context| match waiting.waiter.turn.take() {
            Some(turn) => {
                waiting.has_begun = true;
                Poll::Ready(turn)
            }
            None => {
                waiting.waiter.waker.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await;
        self.tally.took(turn.begun.as_ref().map_or(0, InFlight::cost));
        turn
    }

    /// Counts what others may wait for, and so begins at once.
    pub fn unasked(&self, work: Work) -> Turn {
        let begun = self.turns.scheduler.borrow_mut().begin_unasked(work);
        self.tally.took(begun.cost());
        Turn { turns: self.turns.clone(), begun: Some(begun) }
    }

    /// What a turn of this flow is for turned out to be this.
    pub fn amend(&self, turn: &mut Turn, work: Work) {
        let begun = turn.begun.as_mut().expect("until it ends");
        self.tally.took(self.turns.scheduler.borrow_mut().amend(begun, work));
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // Nobody can wait in it any more: whoever does has borrowed it.
        drop(self.turns.scheduler.borrow_mut().remove(self.id));
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
        Turns { rt, scheduler, look_at: Cell::new(None), look: Signal::default() }
    }

    /// Places that one request may write to at a time: a part of what may be in flight.
    pub fn places_max(&self) -> usize {
        self.scheduler.borrow().places_max()
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
/// A step holds its turn, so it must not wait for anything but the disks, or what a client's write waits for with its turn.
pub(crate) struct Pace {
    shard: Rc<Shard>,
    task: Task,
    turn: Option<Turn>,
    began: Nanos,
    /// Nanoseconds that the step waited for its turn, which others had.
    waited: u64,
    served: u64,
}

impl Pace {
    /// Waits until a step may begin.
    pub async fn step(&mut self, work: Work) {
        self.turn = Some(self.shard.task_flow(self.task).turn(work).await);
        self.began = self.shard.rt.now();
    }

    /// Waits until a step may begin, but no longer than [`Pool::patience`] says: then it begins all the same.
    pub async fn step_soon(&mut self, work: Work) {
        self.end();
        let (shard, asked) = (self.shard.clone(), self.shard.rt.now());
        let flow = shard.task_flow(self.task);
        let patience = shard.rt.sleep(Duration::from_nanos(shard.shared.turns.patience(work)));
        self.turn = Some(match select(pin!(flow.turn(work)), patience).await {
            Either::Left((turn, _)) => turn,
            Either::Right(_) => flow.unasked(work),
        });
        self.began = shard.rt.now();
        self.waited = self.began.since(asked);
    }

    /// Begins a step that counts itself.
    pub fn begin(&mut self) {
        self.began = self.shard.rt.now();
    }

    /// The step's turn, for what is to be over before it ends.
    pub fn take_turn(&mut self) -> Option<Turn> {
        self.turn.take()
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
            let rest = took.saturating_sub(std::mem::take(&mut self.waited));
            self.shard.rt.sleep(Duration::from_nanos(rest)).await;
        }
    }
}

impl Dataset {
    /// The flow of what clients do with it.
    pub fn flow(&self, shard: &Shard) -> &Flow {
        self.flow.get_or_init(|| {
            let said = registry(&shard.rt).level(self.level());
            let flow = Flow::new(&shard.turns, &said, &self.in_force(said));
            flow.bounds.share(self.ceiling.borrow().clone());
            flow
        })
    }
}

impl Shard {
    /// For a task that begins now.
    pub fn pace(self: &Rc<Self>, task: Task) -> Pace {
        Pace {
            task,
            turn: None,
            began: self.rt.now(),
            waited: 0,
            served: self.served.get(),
            shard: self.clone(),
        }
    }

    /// In how many places to write at a time: who comes next waits for all of them at the disks.
    pub fn places_at_once(&self) -> usize {
        // Lines are written whole.
        if self.space.borrow().has_lines() { usize::MAX } else { self.turns.places_max() }
    }

    /// The flow of a task of the pool's.
    pub fn task_flow(&self, task: Task) -> &Flow {
        let level = Level { class: Class::NonCritical, ..Level::default() };
        self.task_flows[task as usize].get_or_init(|| Flow::new(&self.turns, &level, &level))
    }

    /// Counts what others may wait for, and so begins at once.
    pub fn unasked(&self, task: Task, work: Work) -> Turn {
        self.task_flow(task).unasked(work)
    }

    /// Has a dataset's turns be what its service level says.
    pub fn note_level(&self, dataset: &Dataset) {
        let said = registry(&self.rt).level(dataset.level());
        dataset.promise.set((said.floor, dataset.promise_of(said)));
        if let Some(flow) = dataset.flow.get() {
            flow.set(&said, &dataset.in_force(said));
            flow.bounds.share(dataset.ceiling.borrow().clone());
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
