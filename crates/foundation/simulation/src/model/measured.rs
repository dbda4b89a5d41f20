//! A device as somebody has measured it: few figures, none of them of what is inside.
//!
//! A request has the device for itself for a while (*command* and *byte*: what bounds its rate; less where many wait, which are taken together), and then needs a time that passes beside others' (*latency*: what
//! a lone request sees besides), which is spread as it was measured. Now and then the device stands still, with all that it has (*pauses*: collected garbage, a
//! virtual machine that has to wait for its processor). Some take so many requests at a time and no more (*at once*: a device of the network's with its threads). A flush takes a
//! time of its own. All draws follow the seed.
//!
//! Everything but pauses runs on a clock that stands still in them, so a pause is a piece that is cut into the clock and touches nothing else.

use super::{Device, Kind, Order};
use crate::disk::Work;
use forebay_base::Random;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Of a hundred thousand, how many are smaller than each figure of [`Spread`].
pub const POINTS: [u32; 9] = [0, 10_000, 25_000, 50_000, 75_000, 90_000, 99_000, 99_900, 100_000];

/// Figures at [`POINTS`], between which lines are drawn.
pub type Spread = [u64; POINTS.len()];

/// Requests of which the device has so many at a time; between the two, costs follow the number's logarithm.
pub const FEW: u64 = 8;
pub const MANY: u64 = 32;

/// What was measured of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeasuredSheet {
    pub bytes: u64,
    /// Requests that it works on at a time: others wait, in their order, until one of these is over. Zero: as many as there are.
    pub at_once: u64,
    pub read: MeasuredCosts,
    pub write: MeasuredCosts,
    /// Nanoseconds.
    pub flush: Spread,
    pub pauses: Pauses,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeasuredCosts {
    /// For which a request has the device for itself, and for each of its bytes, in picoseconds; among at most [`FEW`] and among at least [`MANY`].
    pub command: [Duration; 2],
    pub byte_ps: [u64; 2],
    /// What passes beside other requests, and of each byte of it, in picoseconds.
    pub latency: Duration,
    pub latency_byte_ps: u64,
    /// Thousandths of the latency.
    pub spread: Spread,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pauses {
    /// Of work between two of them, on average (they come evenly spread over twice that); zero: there are none.
    pub every: Duration,
    /// Nanoseconds.
    pub lasting: Spread,
}

/// A draw from a spread.
fn draw(spread: &Spread, random: &mut Random) -> u64 {
    let place = random.below(u64::from(POINTS[POINTS.len() - 1]));
    let above = POINTS.iter().position(|point| u64::from(*point) > place).expect("the last is above all");
    let (from, to) = (u64::from(POINTS[above - 1]), u64::from(POINTS[above]));
    let (low, high) = (spread[above - 1], spread[above].max(spread[above - 1]));
    low + ((u128::from(high - low) * u128::from(place - from)) / u128::from(to - from)) as u64
}

/// Time without the pauses.
struct Clock {
    pauses: Pauses,
    random: Random,
    /// Pauses to come and the last ones: when they begin by this clock, and how long they last.
    ahead: VecDeque<(u64, u64)>,
    /// What those that are no longer listed took.
    passed: u64,
    /// When the last of those that are listed begins.
    known: u64,
}

impl Clock {
    /// Lists pauses until there is one that begins later.
    fn look_ahead(&mut self, until: u64) {
        let every = self.pauses.every.as_nanos() as u64;
        while every > 0 && self.known <= until {
            self.known += 1 + self.random.below(2 * every);
            let lasting = draw(&self.pauses.lasting, &mut self.random);
            self.ahead.push_back((self.known, lasting));
        }
    }

    /// What this clock shows at a moment of the world; such moments only grow.
    fn shows(&mut self, now: u64) -> u64 {
        loop {
            let shown = now - self.passed;
            self.look_ahead(shown);
            match self.ahead.front().copied() {
                // Over: what it took is passed.
                Some((begins, lasting)) if shown >= begins + lasting => {
                    self.passed += lasting;
                    self.ahead.pop_front();
                }
                Some((begins, _)) if shown > begins => return begins,
                _ => return shown,
            }
        }
    }

    /// The moment of the world at which it shows this, which it has not shown yet and has been looked ahead to.
    fn moment(&self, shown: u64) -> u64 {
        let within: u64 =
            self.ahead.iter().take_while(|(begins, _)| *begins < shown).map(|(_, lasting)| lasting).sum();
        shown + self.passed + within
    }
}

pub(crate) struct Measured {
    sheet: MeasuredSheet,
    clock: Clock,
    random: Random,
    /// Until when it belongs to one request.
    taken: u64,
    /// What it has, by when it is over and number.
    over: BTreeMap<(u64, u64), Work>,
    orders: u64,
    busy: u64,
}

impl Measured {
    pub fn new(sheet: MeasuredSheet, seed: u64) -> Measured {
        let (pauses, random) = (sheet.pauses, Random::new(seed ^ 0x70_6175_7365));
        let clock = Clock { pauses, random, ahead: VecDeque::new(), passed: 0, known: 0 };
        Measured {
            sheet,
            clock,
            random: Random::new(seed),
            taken: 0,
            over: BTreeMap::new(),
            orders: 0,
            busy: 0,
        }
    }

    /// When the next request can begin: as many as it works on, less this one, may be over later.
    fn free_at(&self, now: u64) -> u64 {
        let others = self.sheet.at_once.checked_sub(1);
        let before = others.and_then(|others| self.over.keys().nth_back(others as usize));
        before.map_or(now, |(ends, _)| now.max(*ends))
    }
}

/// Of [`FEW`] and [`MANY`], what there is among `count`, in the unit that they have.
fn among([few, many]: [u64; 2], count: u64) -> u64 {
    if count <= FEW {
        return few;
    }
    // Thousandths of the way from one to the other: 0 to 2 for their logarithms, in straight lines between powers of two.
    let (power, doubled) = if count < 2 * FEW { (FEW, 0) } else { (2 * FEW, 500) };
    let way = (doubled + (count.min(MANY) - power) * 500 / power).min(1000);
    (few * (1000 - way) + many * way) / 1000
}

fn bytes_take(bytes: u64, each_ps: u64) -> u64 {
    (u128::from(bytes) * u128::from(each_ps) / 1000) as u64
}

impl Device for Measured {
    fn accept(&mut self, now: u64, order: Order) {
        let now = self.clock.shows(now);
        let flush = match order.kind {
            Kind::Flush | Kind::Write { durable: true } => draw(&self.sheet.flush, &mut self.random),
            _ => 0,
        };
        let (alone, beside) = match order.kind {
            Kind::Flush => (0, 0),
            kind => {
                let costs = if kind == Kind::Read { &self.sheet.read } else { &self.sheet.write };
                let count = self.over.len() as u64 + 1;
                let command = among(costs.command.map(|command| command.as_nanos() as u64), count);
                let alone = command + bytes_take(order.bytes, among(costs.byte_ps, count));
                let beside = costs.latency.as_nanos() as u64 + bytes_take(order.bytes, costs.latency_byte_ps);
                let spread = draw(&costs.spread, &mut self.random);
                (alone, (u128::from(beside) * u128::from(spread) / 1000) as u64)
            }
        };
        let slower = u64::from(order.slower);
        let mut ends = now;
        if alone > 0 {
            self.taken = self.taken.max(self.free_at(now)) + alone * slower;
            let of_its_places = (alone + beside).checked_div(self.sheet.at_once).unwrap_or(0);
            self.busy += alone.max(of_its_places) * slower;
            ends = self.taken;
        }
        ends += ((beside + flush) * slower).max(1);
        self.clock.look_ahead(ends);
        self.orders += 1;
        self.over.insert((ends, self.orders), order.work);
    }

    fn next(&self) -> Option<u64> {
        let shown = self.over.keys().next()?.0;
        Some(self.clock.moment(shown))
    }

    fn advance(&mut self, now: u64) -> Vec<Work> {
        let shown = self.clock.shows(now);
        let later = self.over.split_off(&(shown + 1, 0));
        std::mem::replace(&mut self.over, later).into_values().collect()
    }

    fn busy(&self) -> u64 {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(every: u64, lasting: u64) -> Clock {
        let pauses = Pauses { every: Duration::from_nanos(every), lasting: [lasting; POINTS.len()] };
        Clock { pauses, random: Random::new(3), ahead: VecDeque::new(), passed: 0, known: 0 }
    }

    #[test]
    fn draws_are_as_the_spread_says() {
        let spread = [100, 200, 300, 400, 500, 600, 700, 800, 900];
        let mut random = Random::new(1);
        let mut drawn: Vec<u64> = (0..100_000).map(|_| draw(&spread, &mut random)).collect();
        drawn.sort_unstable();
        for (point, wanted) in POINTS.iter().zip(spread) {
            let got = drawn[(*point as usize).min(drawn.len() - 1)];
            assert!(got.abs_diff(wanted) <= 6, "at {point}: {got}, {wanted} are wanted");
        }
    }

    #[test]
    fn a_clock_stands_still_in_pauses_and_comes_back_to_the_same_moments() {
        let mut clock = clock(1000, 70);
        // Within 100 pauses of 70 on average every 1000 ns.
        let mut now = 0;
        for shown in (5..100_000).step_by(5) {
            clock.look_ahead(shown);
            let moment = clock.moment(shown);
            assert!(moment >= now, "time goes on");
            assert_eq!(clock.shows(moment), shown);
            now = moment;
        }
        let paused = now - 99_995;
        assert!((70 * 80..=70 * 120).contains(&paused), "{paused} ns of pauses");
    }

    #[test]
    fn costs_go_from_those_of_few_to_those_of_many() {
        let costs = [1, 8, 12, 16, 24, 32, 1000].map(|count| among([1000, 200], count));
        assert_eq!(costs, [1000, 1000, 800, 600, 400, 200, 200]);
    }

    #[test]
    fn without_pauses_it_is_the_clock_of_the_world() {
        let mut clock = clock(0, 0);
        clock.look_ahead(77);
        assert_eq!((clock.moment(77), clock.shows(77)), (77, 77));
    }
}
