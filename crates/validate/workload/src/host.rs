//! A read cache of flash in a client: what it has read before, and written, comes from there and asks nothing of the pool.
//!
//! It keeps what was used last. Writes go to the pool and are kept, too (write-through); that the flash is written to takes no time, being done after the
//! answer. A read from it takes its turn, and then the rest of the flash's latency beside others'.

use crate::{HostCache, Request};
use forebay_base::Nanos;
use std::collections::{BTreeMap, HashMap};

pub(crate) struct Host {
    /// Requests that it has room for.
    room: usize,
    /// When each was used last; and what was used when.
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    uses: u64,
    /// Nanoseconds of a turn, and of all of a read that is alone.
    turn: u64,
    latency: u64,
    /// When the last turn is over.
    free: u64,
}

impl Host {
    /// A cache for so many requests.
    pub fn new(cache: &HostCache, room: u64) -> Host {
        Host {
            room: room.max(1) as usize,
            used: HashMap::new(),
            order: BTreeMap::new(),
            uses: 0,
            turn: 1_000_000_000 / cache.iops,
            latency: cache.read_us * 1000,
            free: 0,
        }
    }

    /// When a read is over, if it is here.
    pub fn read(&mut self, request: &Request, now: Nanos) -> Option<Nanos> {
        if !self.used.contains_key(&request.at) {
            return None;
        }
        self.keep(request);
        let begun = self.free.max(now.0);
        self.free = begun + self.turn;
        Some(Nanos(begun + self.latency.max(self.turn)))
    }

    /// Keeps what was read or written.
    pub fn keep(&mut self, request: &Request) {
        self.uses += 1;
        if let Some(before) = self.used.insert(request.at, self.uses) {
            self.order.remove(&before);
        }
        self.order.insert(self.uses, request.at);
        if self.used.len() > self.room
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_is_here_and_reads_take_turns() {
        let mut host = Host::new(&HostCache { size_gib: 1, read_us: 50, iops: 100_000 }, 2);
        let request = |at| Request { at, bytes: 4096, is_write: false };
        assert_eq!(host.read(&request(0), Nanos(0)), None);
        [0, 1].iter().for_each(|at| host.keep(&request(*at)));
        // 0 is used again, so 2 takes the place of 1.
        assert_eq!(host.read(&request(0), Nanos(100)), Some(Nanos(50_100)));
        host.keep(&request(2));
        assert_eq!(host.read(&request(1), Nanos(100)), None);
        assert_eq!(host.read(&request(2), Nanos(100)), Some(Nanos(60_100)));
        assert_eq!((host.used.len(), host.order.len()), (2, 2));
    }
}
