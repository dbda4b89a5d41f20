//! The network between clients and the pools: so many bits a second each way, one message after the other.
//!
//! A message is on its way for as long as its bytes take, after those that came before it. Real networks let the packets of a small message through between those of a
//! large one, and have several ways; this one is a bound, so that what is in memory does not come at once.

use forebay_base::Nanos;
use forebay_runtime::Rt;
use std::cell::Cell;

/// What a message takes besides its data: headers of Ethernet, IP, TCP and iSCSI.
const HEADER_BYTES: u64 = 126;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    ToPool,
    ToClient,
}

pub struct Link {
    /// Bits a nanosecond.
    gbit: u64,
    /// For each way, when the last message is over, in nanoseconds times `gbit`.
    free: [Cell<u128>; 2],
}

impl Link {
    /// One of so many gigabits (10⁹) a second.
    pub fn new(gbit: u64) -> Link {
        Link { gbit, free: Default::default() }
    }

    /// Waits until a message with so many bytes of data has arrived.
    pub(crate) async fn carry(&self, rt: &Rt, way: Way, bytes: u64) {
        let arrives = self.arrives(rt.now(), way, bytes);
        rt.sleep_until(arrives).await;
    }

    fn arrives(&self, now: Nanos, way: Way, bytes: u64) -> Nanos {
        let free = &self.free[way as usize];
        let begins = free.get().max(u128::from(now.0) * u128::from(self.gbit));
        let ends = begins + u128::from((bytes + HEADER_BYTES) * 8);
        free.set(ends);
        Nanos(ends.div_ceil(u128::from(self.gbit)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_each_other_and_both_ways_are_apart() {
        let link = Link::new(10);
        // 1250 bytes take a microsecond.
        let bytes = 1250 - HEADER_BYTES;
        assert_eq!(link.arrives(Nanos(5), Way::ToPool, bytes), Nanos(1005));
        assert_eq!(link.arrives(Nanos(10), Way::ToPool, bytes), Nanos(2005));
        assert_eq!(link.arrives(Nanos(10), Way::ToClient, bytes), Nanos(1010));
        assert_eq!(link.arrives(Nanos(9000), Way::ToPool, bytes), Nanos(10_000));
    }

    #[test]
    fn a_thousand_small_ones_take_as_long_as_their_bits() {
        let link = Link::new(25);
        let last = (0..1000).map(|_| link.arrives(Nanos(0), Way::ToClient, 0)).last();
        assert_eq!(last, Some(Nanos((1000 * HEADER_BYTES * 8).div_ceil(25))));
    }
}
