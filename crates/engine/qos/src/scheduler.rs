//! The scheduler of one shard.
//!
//! A flow keeps two tags for its next request: when it is *due* to its floor, in real time, and its *turn*, in virtual time, which every request
//! advances by its cost over the flow's weight. Each is in a heap, once for each flow and perhaps earlier than it is: tags only grow, so one that comes up
//! too early goes back to where it belongs. That makes a request cost the logarithm of the flows that have requests waiting.
//!
//! A flow that was idle begins where virtual time is: it has not saved up a turn. Nor does it lose one: what its floor gave it puts it
//! ahead of its turn by a moment at most. It is due at most a moment's floor at once.

use crate::cost::Work;
use crate::level::Level;
use crate::pool::Pool;
use forebay_base::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// Virtual time of a nanosecond of the pool's at weight 1: the largest weight, so that nothing is rounded away.
const SCALE: u64 = 16;
/// How much of its floor a flow can be owed at once.
const OWED_NS_MAX: u64 = 20_000_000;
/// How many leads a flow can be ahead of its turn, by what its floor gave it.
const AHEAD_LEADS_MAX: u64 = 10;
/// One in so many, by cost, goes to who waits for a turn, however much is due.
const TURNS_AMONG_DUE: u64 = 16;
/// One in so many of the window is theirs, each shard having its part of that.
const TURNS_PART: u64 = 8;
/// One request has so much of the window in flight at most: a quarter, but one place at least.
const REQUEST_PART: u64 = 4;

/// The window is steered so that what has begun is over in this part of a goal: two thirds. The rest is for waiting, and for what comes in bursts.
const STEERED_TO: (u64, u64) = (2, 3);

/// A flow of one scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowId(u32);

/// What has begun: to be given back to [`Scheduler::end`].
#[derive(Debug)]
#[must_use]
pub struct InFlight {
    cost: u64,
    is_turn: bool,
    /// Absent where nobody asked for a turn.
    flow: Option<FlowId>,
    /// When it was asked for, and when it began.
    asked: Nanos,
    begun: Nanos,
    /// Nanoseconds in which it should be over once it has begun; 0 for any time.
    in_time: u64,
}

impl InFlight {
    /// Nanoseconds of the pool's time.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// It may take any time: nobody waits for it.
    pub fn is_in_no_haste(&mut self) {
        self.in_time = 0;
    }
}

/// What the scheduler says.
#[derive(Debug)]
pub enum Next<T> {
    /// This begins.
    Begin(T, InFlight),
    /// Nothing may, before this time unless something ends.
    Wait(Nanos),
    /// Nothing may, before something ends here or elsewhere.
    Full,
    /// Nothing waits.
    Idle,
}

struct Flow<T> {
    weight: u64,
    /// Nanoseconds that each request and picoseconds that each byte of the floor takes; 0 for no such floor.
    floor_request_ns: u64,
    floor_byte_ps: u64,
    /// Of its latency goal, in nanoseconds; 0 without one.
    in_time: u64,
    waiting: VecDeque<(Work, T, Nanos)>,
    due: u64,
    turn: u64,
    /// Whether it is among those that wait for a turn, and among those that are due.
    is_listed: bool,
    is_promised: bool,
}

type Heap = BinaryHeap<Reverse<(u64, u32)>>;

pub struct Scheduler<T> {
    pool: Arc<Pool>,
    shard: usize,
    flows: Vec<Option<Flow<T>>>,
    unused: Vec<u32>,
    turns: Heap,
    dues: Heap,
    /// Requests that wait, over all flows.
    waiting: usize,
    /// Cost in flight of this shard, of what asked, and of that what had its turn.
    in_flight: u64,
    turns_in_flight: u64,
    /// Cost in flight of what did not ask.
    unasked: u64,
    /// Something waits for nothing but other shards' turns.
    is_held_up: bool,
    /// Everything may begin: nobody will be there to say when.
    is_open: bool,
    /// What was due and went before the turns, less their part.
    owed_to_turns: u64,
}

impl<T> Flow<T> {
    fn has_floor(&self) -> bool {
        self.floor_request_ns > 0 || self.floor_byte_ps > 0
    }

    fn of_floor(&self, work: Work) -> u64 {
        self.floor_request_ns.max(self.floor_byte_ps.saturating_mul(work.bytes.into()) / 1000)
    }

    fn set(&mut self, level: &Level, pool: &Pool) {
        self.weight = level.class.weight();
        (self.floor_request_ns, self.floor_byte_ps) = level.floor.each();
        self.in_time = level.latency.map_or(0, |goal| goal.as_nanos() as u64 / STEERED_TO.1 * STEERED_TO.0);
        if self.in_time > 0 {
            pool.begin_narrow(self.in_time);
        }
    }
}

impl<T> Scheduler<T> {
    /// The scheduler of a shard of `pool`.
    pub fn new(pool: Arc<Pool>, shard: usize) -> Scheduler<T> {
        assert!(shard < pool.shards(), "the pool has {} shards", pool.shards());
        Scheduler {
            pool,
            shard,
            flows: Vec::new(),
            unused: Vec::new(),
            turns: Heap::new(),
            dues: Heap::new(),
            waiting: 0,
            in_flight: 0,
            turns_in_flight: 0,
            unasked: 0,
            is_held_up: false,
            is_open: false,
            owed_to_turns: 0,
        }
    }

    fn flow(&mut self, id: u32) -> &mut Flow<T> {
        self.flows[id as usize].as_mut().expect("a flow that was not removed")
    }

    /// A new flow. What comes to it is below its ceilings already.
    pub fn add(&mut self, level: &Level) -> FlowId {
        let mut flow = Flow {
            weight: 1,
            floor_request_ns: 0,
            floor_byte_ps: 0,
            in_time: 0,
            waiting: VecDeque::new(),
            due: 0,
            turn: 0,
            is_listed: false,
            is_promised: false,
        };
        flow.set(level, &self.pool);
        match self.unused.pop() {
            Some(id) => {
                self.flows[id as usize] = Some(flow);
                FlowId(id)
            }
            None => {
                self.flows.push(Some(flow));
                FlowId(self.flows.len() as u32 - 1)
            }
        }
    }

    /// Another level, in force for what waits already.
    pub fn set(&mut self, now: Nanos, id: FlowId, level: &Level) {
        let flow = self.flows[id.0 as usize].as_mut().expect("a flow that was not removed");
        flow.set(level, &self.pool);
        // What an earlier level made it owe or be owed is forgotten.
        (flow.due, flow.turn) = (now.0, 0);
        self.unlist(id.0);
        self.list(now, id.0);
    }

    /// Removes a flow; what waited in it is the caller's.
    pub fn remove(&mut self, id: FlowId) -> impl Iterator<Item = T> + use<T> {
        self.unlist(id.0);
        self.unused.push(id.0);
        let flow = self.flows[id.0 as usize].take().expect("a flow that was not removed");
        self.waiting -= flow.waiting.len();
        flow.waiting.into_iter().map(|(_, request, _)| request)
    }

    fn unlist(&mut self, id: u32) {
        for heap in [&mut self.turns, &mut self.dues] {
            heap.retain(|Reverse((_, flow))| *flow != id);
        }
        let flow = self.flow(id);
        (flow.is_listed, flow.is_promised) = (false, false);
    }

    /// Puts a flow with something waiting where it belongs.
    fn list(&mut self, now: Nanos, id: u32) {
        let reached = self.pool.reached();
        let flow = self.flows[id as usize].as_mut().expect("a flow that was not removed");
        if flow.waiting.is_empty() {
            return;
        }
        if flow.waiting.len() == 1 || !flow.is_listed {
            // It may be listed from before it was idle, earlier than it is now.
            flow.turn = flow.turn.max(reached);
            flow.due = flow.due.max(now.0.saturating_sub(OWED_NS_MAX));
        }
        if !flow.is_listed {
            flow.is_listed = true;
            self.turns.push(Reverse((flow.turn, id)));
        }
        if flow.has_floor() && !flow.is_promised {
            flow.is_promised = true;
            self.dues.push(Reverse((flow.due, id)));
        }
    }

    /// Begins a request if nothing on this shard waits and it may begin now: what happens as long as there is enough for all.
    pub fn begin_at_once(&mut self, now: Nanos, id: FlowId, work: Work) -> Option<InFlight> {
        if self.waiting > 0 {
            return None;
        }
        if self.is_open {
            return Some(self.begin_unasked(work));
        }
        let (cost, reached) = (self.pool.costs().of(work), self.pool.reached());
        let flow = self.flow(id.0);
        let is_due = flow.has_floor() && flow.due <= now.0;
        flow.turn = flow.turn.max(reached);
        let turn = flow.turn;
        let may_begin = (is_due || self.is_turn(turn)) && self.has_room(cost, is_due);
        may_begin.then(|| self.account(now, id.0, work, cost, is_due))
    }

    /// Begins what others wait for, whatever waits: it is only counted.
    pub fn begin_unasked(&mut self, work: Work) -> InFlight {
        let cost = self.pool.costs().of(work);
        self.unasked += cost;
        self.pool.begin(cost);
        InFlight { cost, is_turn: false, flow: None, asked: Nanos(0), begun: Nanos(0), in_time: 0 }
    }

    /// A request waits from now on.
    pub fn push(&mut self, now: Nanos, id: FlowId, work: Work, request: T) {
        self.flow(id.0).waiting.push_back((work, request, now));
        self.waiting += 1;
        self.list(now, id.0);
    }

    /// Gives up what waits in a flow and is not `wanted`.
    pub fn retain(&mut self, id: FlowId, wanted: impl Fn(&T) -> bool) {
        let flow = self.flow(id.0);
        let before = flow.waiting.len();
        flow.waiting.retain(|(_, request, _)| wanted(request));
        let gone = before - flow.waiting.len();
        self.waiting -= gone;
    }

    /// Whether something waits because it is another shard's turn, or since other shards may have all that is in flight. It has to be looked at again soon:
    /// nobody tells when that has passed.
    pub fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    /// Lets everything begin from now on.
    pub fn open(&mut self) {
        self.is_open = true;
    }

    /// Whether requests wait.
    pub fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// What may begin now. To be called until it begins nothing: after a request came, after one ended, and at the time that it said.
    pub fn next(&mut self, now: Nanos) -> Next<T> {
        self.pool.look(now);
        if self.is_open {
            return self.next_of_all();
        }
        let (first, due) = (self.first_turn(), self.first_due());
        self.pool.show(self.shard, first.map(|(tag, _)| tag));
        let turn = first.filter(|(tag, _)| self.is_turn(*tag)).map(|(_, id)| id);
        self.is_held_up = first.is_some() && turn.is_none();
        let due_now = due.filter(|(time, _)| *time <= now.0).map(|(_, id)| id);
        // What is due goes first, unless turns have waited for long enough, or it has no room.
        let waits_for_turn = |id: &u32| self.owed_to_turns >= self.cost(*id);
        let order = [
            turn.filter(waits_for_turn).map(|id| (id, false)),
            due_now.map(|id| (id, true)),
            turn.map(|id| (id, false)),
        ];
        for (id, by_floor) in order.into_iter().flatten() {
            let cost = self.cost(id);
            if self.has_room(cost, by_floor) {
                let (work, request, asked) =
                    self.flow(id).waiting.pop_front().expect("a flow with something waiting");
                self.waiting -= 1;
                let begun = self.account(now, id, work, cost, by_floor);
                return Next::Begin(request, InFlight { asked, ..begun });
            }
        }
        if turn.is_some() {
            self.pool.note_full();
        }
        let next = self.until(due.filter(|_| due_now.is_none()));
        self.is_held_up |= matches!(next, Next::Full) && self.pool.shards() > 1;
        next
    }

    /// The next of whatever waits.
    fn next_of_all(&mut self) -> Next<T> {
        self.pool.show(self.shard, None);
        self.is_held_up = false;
        let waiting = self.flows.iter_mut().flatten().find_map(|flow| flow.waiting.pop_front());
        let Some((work, request, _)) = waiting else { return Next::Idle };
        self.waiting -= 1;
        Next::Begin(request, self.begin_unasked(work))
    }

    /// Whether no other shard has one that should come long before `tag`.
    fn is_turn(&self, tag: u64) -> bool {
        tag <= self.pool.others(self.shard).saturating_add(self.pool.lead())
    }

    fn has_room(&self, cost: u64, by_floor: bool) -> bool {
        let window = self.pool.window();
        let room = |limit: u64| self.pool.in_flight() + cost <= limit;
        match by_floor {
            // Who fills the window does not make others miss their floor: as much again may be in flight as keeps the disks busy, however small the window is
            // for others.
            true => self.in_flight == 0 || room(window + self.pool.window_max()),
            // Nor are turns missed because others fill it with what is due.
            false => {
                let part = window / TURNS_PART / self.pool.shards() as u64;
                self.turns_in_flight == 0 || self.turns_in_flight + cost <= part || room(window)
            }
        }
    }

    fn until<R>(&self, due: Option<(u64, u32)>) -> Next<R> {
        if !self.has_waiting() {
            return Next::Idle;
        }
        due.map_or(Next::Full, |(time, _)| Next::Wait(Nanos(time)))
    }

    fn cost(&self, id: u32) -> u64 {
        let flow = self.flows[id as usize].as_ref().expect("a flow that was not removed");
        flow.waiting.front().map_or(0, |(work, ..)| self.pool.costs().of(*work))
    }

    /// The flow whose turn is next, and the tag of it.
    fn first_turn(&mut self) -> Option<(u64, u32)> {
        loop {
            let Reverse((tag, id)) = self.turns.peek().copied()?;
            let flow = self.flows[id as usize].as_mut().expect("a removed flow is in no list");
            if flow.waiting.is_empty() {
                self.turns.pop();
                flow.is_listed = false;
            } else if flow.turn > tag {
                self.turns.pop();
                self.turns.push(Reverse((flow.turn, id)));
            } else {
                return Some((tag, id));
            }
        }
    }

    /// The flow that is due next, and when.
    fn first_due(&mut self) -> Option<(u64, u32)> {
        loop {
            let Reverse((time, id)) = self.dues.peek().copied()?;
            let flow = self.flows[id as usize].as_mut().expect("a removed flow is in no list");
            if flow.waiting.is_empty() || !flow.has_floor() {
                self.dues.pop();
                flow.is_promised = false;
            } else if flow.due > time {
                self.dues.pop();
                self.dues.push(Reverse((flow.due, id)));
            } else {
                return Some((time, id));
            }
        }
    }

    fn account(&mut self, now: Nanos, id: u32, work: Work, cost: u64, by_floor: bool) -> InFlight {
        let ahead = self.pool.reached() + self.pool.lead() * AHEAD_LEADS_MAX;
        let flow = self.flows[id as usize].as_mut().expect("a flow that was not removed");
        let (next, in_time) = (flow.turn + cost * SCALE / flow.weight, flow.in_time);
        if by_floor {
            flow.due = flow.due.max(now.0.saturating_sub(OWED_NS_MAX)) + flow.of_floor(work);
            flow.turn = next.min(ahead.max(flow.turn));
            self.owed_to_turns += cost / TURNS_AMONG_DUE;
        } else {
            self.pool.reach(flow.turn);
            flow.turn = next;
            self.owed_to_turns = 0;
            self.turns_in_flight += cost;
        }
        self.in_flight += cost;
        self.pool.begin(cost);
        InFlight { cost, is_turn: !by_floor, flow: Some(FlowId(id)), asked: now, begun: now, in_time }
    }

    /// Small writes that one request may have in flight at a time.
    pub fn places_max(&self) -> usize {
        if !self.pool.is_wide_open() {
            self.pool.note_full();
        }
        let places = (self.pool.window() / REQUEST_PART / self.pool.costs().write.fixed.max(1)) as usize;
        places.max(1)
    }

    /// What has begun turned out to be this. Of what goes to many places only [`Scheduler::places_max`] is in flight at a time, but all is paid for.
    /// How much more it costs.
    pub fn amend(&mut self, begun: &mut InFlight, work: Work) -> u64 {
        let all = self.pool.costs().of(work).saturating_sub(begun.cost);
        let (Some(id), more) = (begun.flow.filter(|_| all > 0), all) else { return 0 };
        let part = self.pool.window() / REQUEST_PART;
        let flow = self.flow(id.0);
        flow.turn += more * SCALE / flow.weight;
        // Not all of it is in flight at a time.
        let more = more.min(part.saturating_sub(begun.cost));
        begun.cost += more;
        self.in_flight += more;
        self.turns_in_flight += if begun.is_turn { more } else { 0 };
        self.pool.begin(more);
        all
    }

    /// What had begun is over.
    pub fn end(&mut self, now: Nanos, begun: InFlight) {
        if begun.in_time > 0 {
            let is_failed = now.since(begun.asked) > begun.in_time / STEERED_TO.0 * STEERED_TO.1;
            self.pool.note(now.since(begun.begun), begun.in_time, is_failed);
        }
        match begun.flow {
            Some(_) => self.in_flight -= begun.cost,
            None => self.unasked -= begun.cost,
        }
        self.turns_in_flight -= if begun.is_turn { begun.cost } else { 0 };
        self.pool.end(begun.cost);
        // Also where nothing waits.
        self.pool.look(now);
    }
}

impl<T> Drop for Scheduler<T> {
    fn drop(&mut self) {
        self.pool.show(self.shard, None);
        self.pool.end(self.in_flight + self.unasked);
    }
}
