//! A pool in virtual time that is busy with one request after the other, its shards, and clients.

use forebay_base::Nanos;
use forebay_qos::{Ceiling, Costs, FlowId, InFlight, Level, Next, Pool, Rate, Scheduler, Work};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// Twenty times the latency: all that keeps it busy.
const WINDOW: u64 = 1_000_000;
/// What a request takes besides the pool's time.
const LATENCY: u64 = 50_000;
/// A shard that others hold up looks again after this.
const LOOK: u64 = 100_000;

/// How much a client asks for.
#[derive(Clone, Copy)]
pub enum Demand {
    /// So many requests at any time.
    Closed(u32),
    /// So many a second, evenly.
    Open(u64),
}

#[derive(Clone, Copy)]
pub struct Client {
    pub level: Level,
    pub work: Work,
    pub demand: Demand,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Look(usize),
    Ask(usize, u32),
    /// The first of those that a client's ceilings hold back may go on, unless these have changed meanwhile.
    Pass(usize, u32),
    Done(usize, u64),
}

struct Waiting {
    client: usize,
    asked: u64,
}

/// What bounds a client: its own, and what it shares.
struct Ceilings {
    own: Ceiling,
    together: Vec<Arc<Ceiling>>,
    /// When requests that are held back were asked for.
    waiting: VecDeque<u64>,
    version: u32,
}

pub struct Model {
    now: u64,
    shards: Vec<Scheduler<Waiting>>,
    clients: Vec<Client>,
    flows: Vec<FlowId>,
    ceilings: Vec<Ceilings>,
    /// Which of a client's demands is in force, and how many of its requests are on their way.
    era: Vec<u32>,
    open: Vec<u32>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    begun: Vec<Option<(Waiting, InFlight)>>,
    looks: Vec<u64>,
    nth: u64,
    busy: u64,
    done: Vec<u64>,
    slowest: Vec<u64>,
    costs: Costs,
}

impl Model {
    pub fn new(shards: usize, costs: Costs, clients: &[Client]) -> Model {
        let pool = Arc::new(Pool::new(shards, costs, WINDOW));
        let mut model = Model {
            now: 1,
            shards: (0..shards).map(|shard| Scheduler::new(pool.clone(), shard)).collect(),
            clients: clients.to_vec(),
            flows: Vec::new(),
            ceilings: Vec::new(),
            era: vec![0; clients.len()],
            open: vec![0; clients.len()],
            events: BinaryHeap::new(),
            begun: Vec::new(),
            looks: vec![0; shards],
            nth: 0,
            busy: 0,
            done: vec![0; clients.len()],
            slowest: vec![0; clients.len()],
            costs,
        };
        for (nth, client) in clients.iter().enumerate() {
            let own = Ceiling::new(client.level.ceiling, client.level.burst);
            let (together, waiting) = (Vec::new(), VecDeque::new());
            model.ceilings.push(Ceilings { own, together, waiting, version: 0 });
            let flow = model.shards[nth % shards].add(&client.level);
            model.flows.push(flow);
            model.demand(nth, client.demand);
        }
        model
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.nth += 1;
        self.events.push(Reverse((self.now + delay, self.nth, event)));
    }

    pub fn demand(&mut self, client: usize, demand: Demand) {
        self.clients[client].demand = demand;
        self.era[client] += 1;
        let era = self.era[client];
        match demand {
            Demand::Closed(depth) => {
                for _ in self.open[client]..depth {
                    self.after(0, Event::Ask(client, era));
                }
            }
            Demand::Open(0) => {}
            Demand::Open(rate) => self.after(SECOND / rate, Event::Ask(client, era)),
        }
    }

    pub fn level(&mut self, client: usize, level: &Level) {
        self.clients[client].level = *level;
        self.ceilings[client].own = Ceiling::new(level.ceiling, level.burst);
        self.bounds_changed(client);
        let shard = client % self.shards.len();
        self.shards[shard].set(Nanos(self.now), self.flows[client], level);
        self.poll(shard);
    }

    pub fn bound_together(&mut self, clients: Range<usize>, rate: Rate) {
        let ceiling = Arc::new(Ceiling::new(rate, Duration::ZERO));
        for client in clients {
            self.ceilings[client].together.push(ceiling.clone());
            self.bounds_changed(client);
        }
    }

    fn bounds_changed(&mut self, client: usize) {
        self.ceilings[client].version += 1;
        self.take(client);
    }

    /// Takes a place under all ceilings for the first that waits.
    fn take(&mut self, client: usize) {
        let (ceilings, now) = (&self.ceilings[client], Nanos(self.now));
        if !ceilings.waiting.is_empty() {
            let work = self.clients[client].work;
            let together = ceilings.together.iter().map(|ceiling| ceiling.take(now, work));
            let begins = together.fold(ceilings.own.take(now, work), Nanos::max);
            self.after(begins.since(now), Event::Pass(client, ceilings.version));
        }
    }

    pub fn slowest_us(&self, client: usize) -> u64 {
        self.slowest[client] / 1000
    }

    /// Requests that were answered in the next second, by client.
    pub fn second(&mut self) -> Vec<u64> {
        self.run(SECOND)
    }

    pub fn run(&mut self, time: u64) -> Vec<u64> {
        let end = self.now + time;
        self.done.fill(0);
        self.slowest.fill(0);
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= end
        {
            let Reverse((at, _, event)) = self.events.pop().unwrap();
            self.now = at;
            self.event(event);
        }
        self.now = end;
        self.done.clone()
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Look(shard) => {
                if self.looks[shard] == self.now {
                    self.looks[shard] = 0;
                }
                self.poll(shard);
            }
            Event::Ask(client, era) => self.ask(client, era),
            Event::Pass(client, version) if version != self.ceilings[client].version => {}
            Event::Pass(client, _) => {
                let asked = self.ceilings[client].waiting.pop_front().expect("who took a place");
                self.take(client);
                self.pass(client, asked);
            }
            Event::Done(shard, nth) => {
                let (waiting, begun) = self.begun[nth as usize].take().expect("it began");
                self.shards[shard].end(Nanos(self.now), begun);
                let client = waiting.client;
                self.done[client] += 1;
                self.slowest[client] = self.slowest[client].max(self.now - waiting.asked);
                self.open[client] -= 1;
                match self.clients[client].demand {
                    Demand::Closed(depth) if self.open[client] < depth => self.ask(client, self.era[client]),
                    _ => self.poll(shard),
                }
            }
        }
    }

    fn ask(&mut self, client: usize, era: u32) {
        if era != self.era[client] {
            return;
        }
        if let Demand::Open(rate) = self.clients[client].demand {
            self.after(SECOND / rate, Event::Ask(client, era));
        }
        self.open[client] += 1;
        let ceilings = &mut self.ceilings[client];
        ceilings.waiting.push_back(self.now);
        if ceilings.waiting.len() == 1 {
            self.take(client);
        }
    }

    fn pass(&mut self, client: usize, asked: u64) {
        let (shard, work) = (client % self.shards.len(), self.clients[client].work);
        let waiting = Waiting { client, asked };
        match self.shards[shard].begin_at_once(Nanos(self.now), self.flows[client], work) {
            Some(begun) => self.begin(shard, waiting, begun),
            None => {
                self.shards[shard].push(Nanos(self.now), self.flows[client], work, waiting);
                self.poll(shard);
            }
        }
    }

    fn begin(&mut self, shard: usize, waiting: Waiting, begun: InFlight) {
        self.busy = self.busy.max(self.now) + self.costs.of(self.clients[waiting.client].work);
        self.begun.push(Some((waiting, begun)));
        let nth = self.begun.len() as u64 - 1;
        self.after(self.busy + LATENCY - self.now, Event::Done(shard, nth));
    }

    fn poll(&mut self, shard: usize) {
        let look = loop {
            match self.shards[shard].next(Nanos(self.now)) {
                Next::Begin(waiting, begun) => self.begin(shard, waiting, begun),
                Next::Wait(time) => break time.0.min(self.now + LOOK).max(self.now + 1),
                Next::Full => break self.now + LOOK,
                Next::Idle => return,
            }
        };
        if self.looks[shard] == 0 || self.looks[shard] > look {
            self.looks[shard] = look;
            self.after(look - self.now, Event::Look(shard));
        }
    }
}

/// Of requests of `bytes` each, how many a rate is in a second; nothing when it does not bound them.
fn requests(rate: Rate, bytes: u32) -> Option<f64> {
    let by_bytes = (rate.bytes > 0).then(|| rate.bytes as f64 / f64::from(bytes));
    let by_count = (rate.iops > 0).then_some(rate.iops as f64);
    [by_count, by_bytes].into_iter().flatten().reduce(f64::min)
}

/// Requests a second of each client, if all were as it should be.
pub fn ideal(costs: &Costs, clients: &[Client]) -> Vec<f64> {
    let at = |share: f64| -> Vec<f64> {
        let of = |client: &Client| {
            let bytes = client.work.bytes;
            let fair = share * client.level.class.weight() as f64 / costs.of(client.work) as f64;
            let wanted = match client.demand {
                Demand::Open(rate) => rate as f64,
                Demand::Closed(_) => f64::INFINITY,
            };
            let ceiling = requests(client.level.ceiling, bytes).unwrap_or(f64::INFINITY);
            fair.max(requests(client.level.floor, bytes).unwrap_or(0.0)).min(wanted).min(ceiling)
        };
        clients.iter().map(of).collect()
    };
    let time = |rates: &[f64]| -> f64 {
        rates.iter().zip(clients).map(|(rate, client)| rate * costs.of(client.work) as f64).sum()
    };
    let (mut low, mut high) = (0.0, 1e12);
    if time(&at(high)) <= SECOND as f64 {
        return at(high);
    }
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if time(&at(middle)) > SECOND as f64 { high = middle } else { low = middle }
    }
    at(low)
}
