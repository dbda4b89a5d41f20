//! The way between clients and the pools: ports of a network, and the processors behind them.
//!
//! A message is on its way for as long as its bytes take, after those that came before it on its port; requests take the ports by turns, as clients with several
//! paths do. Each port is counted once: what goes over several that act as one is the sum of theirs. Real networks let the packets of a small message through
//! between those of a large one; this one is a bound, so that what is in memory does not come at once.
//!
//! A request then has the first processor that is free for as long as [`Costs`] say: all that it costs, at once and before the pool sees it.

use forebay_base::Nanos;
use forebay_runtime::Rt;
use std::cell::{Cell, RefCell};

/// What a message takes besides its data: headers of Ethernet, IP, TCP and iSCSI.
const HEADER_BYTES: u64 = 126;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    ToPool,
    ToClient,
}

/// Nanoseconds of a processor: of a request, and of each KiB of its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    pub read: u64,
    pub write: u64,
    pub read_kib: u64,
    pub write_kib: u64,
}

impl Costs {
    pub(crate) fn of(&self, is_write: bool, bytes: u64) -> u64 {
        let (fixed, kib) = if is_write { (self.write, self.write_kib) } else { (self.read, self.read_kib) };
        fixed + kib * bytes / 1024
    }
}

/// What one port has done each way.
#[derive(Default)]
struct Port {
    /// When the last message is over, in nanoseconds times `gbit`.
    free: [Cell<u128>; 2],
    bytes: [Cell<u64>; 2],
}

pub struct Link {
    /// Bits a nanosecond of a port.
    gbit: u64,
    ports: Vec<Port>,
    next: Cell<usize>,
    /// For each processor, when it is free; none if processors take no time.
    processors: RefCell<Vec<u64>>,
    worked: Cell<u64>,
}

impl Link {
    /// So many ports of so many gigabits (10⁹) a second, and so many processors behind them.
    pub fn new(ports: u32, gbit: u64, processors: u32) -> Link {
        let ports = (0..ports.max(1)).map(|_| Port::default()).collect();
        let processors = RefCell::new(vec![0; processors as usize]);
        Link { gbit, ports, next: Cell::new(0), processors, worked: Cell::new(0) }
    }

    /// The port that the next request takes.
    pub(crate) fn port(&self) -> usize {
        self.next.replace((self.next.get() + 1) % self.ports.len())
    }

    /// Waits until a message with so many bytes of data has arrived.
    pub(crate) async fn carry(&self, rt: &Rt, port: usize, way: Way, bytes: u64) {
        let arrives = self.arrives(rt.now(), port, way, bytes);
        rt.sleep_until(arrives).await;
    }

    fn arrives(&self, now: Nanos, port: usize, way: Way, bytes: u64) -> Nanos {
        let Port { free, bytes: carried } = &self.ports[port];
        let (free, carried) = (&free[way as usize], &carried[way as usize]);
        carried.set(carried.get() + bytes + HEADER_BYTES);
        let begins = free.get().max(u128::from(now.0) * u128::from(self.gbit));
        let ends = begins + u128::from((bytes + HEADER_BYTES) * 8);
        free.set(ends);
        Nanos(ends.div_ceil(u128::from(self.gbit)) as u64)
    }

    /// Waits until a processor has done so many nanoseconds of work.
    pub(crate) async fn work(&self, rt: &Rt, nanos: u64) {
        if let Some(over) = self.worked_at(rt.now(), nanos) {
            rt.sleep_until(over).await;
        }
    }

    fn worked_at(&self, now: Nanos, nanos: u64) -> Option<Nanos> {
        let mut processors = self.processors.borrow_mut();
        let first = processors.iter_mut().min()?;
        *first = (*first).max(now.0) + nanos;
        self.worked.set(self.worked.get() + nanos);
        Some(Nanos(*first))
    }

    /// Nanoseconds that all processors together have been given until now.
    pub fn worked(&self) -> u64 {
        self.worked.get()
    }

    /// Bytes that have gone over all ports, to the pool and from it.
    pub fn carried(&self) -> [u64; 2] {
        [0, 1].map(|way| self.ports.iter().map(|port| port.bytes[way].get()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_each_other_and_both_ways_are_apart() {
        let link = Link::new(1, 10, 0);
        // 1250 bytes take a microsecond.
        let bytes = 1250 - HEADER_BYTES;
        let arrives = |now, way| link.arrives(Nanos(now), link.port(), way, bytes);
        assert_eq!(arrives(5, Way::ToPool), Nanos(1005));
        assert_eq!(arrives(10, Way::ToPool), Nanos(2005));
        assert_eq!(arrives(10, Way::ToClient), Nanos(1010));
        assert_eq!(arrives(9000, Way::ToPool), Nanos(10_000));
        assert_eq!(link.carried(), [3 * 1250, 1250]);
    }

    #[test]
    fn ports_are_taken_by_turns_and_counted_once() {
        let link = Link::new(2, 10, 0);
        let arrive = |_| link.arrives(Nanos(0), link.port(), Way::ToPool, 1250 - HEADER_BYTES).0;
        assert_eq!((0..4).map(arrive).collect::<Vec<_>>(), [1000, 1000, 2000, 2000]);
        assert_eq!(link.carried(), [4 * 1250, 0]);
    }

    #[test]
    fn a_thousand_small_ones_take_as_long_as_their_bits() {
        let link = Link::new(1, 25, 0);
        let last = (0..1000).map(|_| link.arrives(Nanos(0), 0, Way::ToClient, 0)).last();
        assert_eq!(last, Some(Nanos((1000 * HEADER_BYTES * 8).div_ceil(25))));
    }

    #[test]
    fn processors_do_one_thing_after_the_other_side_by_side() {
        let link = Link::new(1, 10, 2);
        let over: Vec<_> = (0..5).filter_map(|_| link.worked_at(Nanos(10), 100)).map(|at| at.0).collect();
        assert_eq!(over, [110, 110, 210, 210, 310]);
        assert_eq!(link.worked(), 500);
        assert_eq!(Link::new(1, 10, 0).worked_at(Nanos(10), 100), None);
        let costs = Costs { read: 10, write: 20, read_kib: 1, write_kib: 3 };
        assert_eq!((costs.of(false, 8192), costs.of(true, 8192)), (18, 44));
    }
}
