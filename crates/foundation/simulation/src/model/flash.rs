//! Flash: one command after the other gets a piece of the interface, so a small request beside a large one waits for a piece of it, not for all.
//!
//! What a command costs the device is a part of its own and one by the byte, from what the sheet says of 4 KiB, 8 KiB and sequences. What is left of a
//! request's latency when it is alone passes beside other requests: the flash itself has many parts that work at the same time.

use super::{Device, FlashRates, FlashSheet, Kind, Order};
use crate::disk::Work;
use std::collections::{BTreeMap, VecDeque};

/// What a command gets at a time.
const PIECE: u64 = 32 << 10;
/// From this size on, writes come in sequences that the flash takes as such.
const SEQUENCE: u64 = 128 << 10;
const SMALL: u64 = 4 << 10;
const SECOND: u64 = 1_000_000_000;

/// Costs of reads or of writes in picoseconds.
#[derive(Clone, Copy)]
struct Costs {
    command: u64,
    random_byte: u64,
    sequential_byte: u64,
    /// Nanoseconds that pass beside others'.
    beside: u64,
}

pub(crate) struct Flash {
    read: Costs,
    write: Costs,
    /// Commands with the bytes that are left of them, in the order of their next pieces.
    waiting: VecDeque<(Order, u64)>,
    /// What has its piece now, until when.
    piece: Option<(Order, u64, u64)>,
    /// What is over, by time and number.
    over: BTreeMap<(u64, u64), Work>,
    orders: u64,
    busy: u64,
}

impl Costs {
    fn new(rates: &FlashRates) -> Costs {
        let small = 1000 * SECOND / u64::from(rates.iops_4k);
        let sequential_byte = 1000 * SECOND / rates.bytes;
        let random_byte = match rates.iops_8k {
            // Two points make a line.
            Some(iops) => (1000 * SECOND / u64::from(iops)).saturating_sub(small) / SMALL,
            None => sequential_byte,
        };
        let command = small.saturating_sub(random_byte * SMALL);
        let beside = (rates.latency.as_nanos() as u64).saturating_sub(small / 1000);
        Costs { command, random_byte, sequential_byte, beside }
    }
}

impl Device for Flash {
    fn accept(&mut self, now: u64, order: Order) {
        let bytes = order.bytes;
        self.waiting.push_back((order, bytes));
        self.begin(now);
    }

    fn next(&self) -> Option<u64> {
        let piece = self.piece.as_ref().map(|(.., until)| *until);
        let over = self.over.keys().next().map(|(at, _)| *at);
        piece.into_iter().chain(over).min()
    }

    fn advance(&mut self, now: u64) -> Vec<Work> {
        while let Some((order, left, until)) = self.piece.take_if(|(.., until)| *until <= now) {
            if left > 0 {
                self.waiting.push_back((order, left));
            } else {
                let beside = self.costs(&order).beside * u64::from(order.slower);
                self.orders += 1;
                self.over.insert((until + beside, self.orders), order.work);
            }
            self.begin(until);
        }
        let later = self.over.split_off(&(now + 1, 0));
        std::mem::replace(&mut self.over, later).into_values().collect()
    }

    fn busy(&self) -> u64 {
        self.busy
    }
}

impl Flash {
    pub fn new(sheet: FlashSheet) -> Flash {
        Flash {
            read: Costs::new(&sheet.read),
            write: Costs::new(&sheet.write),
            waiting: VecDeque::new(),
            piece: None,
            over: BTreeMap::new(),
            orders: 0,
            busy: 0,
        }
    }

    fn costs(&self, order: &Order) -> Costs {
        if order.kind == Kind::Read { self.read } else { self.write }
    }

    /// Gives the next command its piece.
    fn begin(&mut self, now: u64) {
        if self.piece.is_some() {
            return;
        }
        let Some((order, left)) = self.waiting.pop_front() else { return };
        let costs = self.costs(&order);
        let byte = match order.bytes {
            SEQUENCE.. => costs.sequential_byte,
            // Nothing smaller takes longer than that.
            bytes => costs.random_byte.min(costs.sequential_byte * SEQUENCE / bytes.max(1)),
        };
        let bytes = left.min(PIECE);
        let command = if left == order.bytes { costs.command } else { 0 };
        let cost = (command + bytes * byte) / 1000 * u64::from(order.slower);
        self.busy += cost.max(1);
        self.piece = Some((order, left - bytes, now + cost.max(1)));
    }
}
