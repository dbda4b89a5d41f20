//! Verified blocks in memory, and how often clients found there what they asked for.

use forebay_base::NumberHasher;
use forebay_runtime::Buf;
use std::hash::BuildHasherDefault;

/// Weighs a cached block by the memory it holds.
#[derive(Clone)]
pub(crate) struct BlockWeight;

impl quick_cache::Weighter<u64, (u128, Buf)> for BlockWeight {
    fn weight(&self, _: &u64, value: &(u128, Buf)) -> u64 {
        value.1.footprint() as u64 + 64
    }
}

/// Verified blocks by address (S3-FIFO: one pass over a volume does not evict what is used often). A block never
/// changes at its address without changing its checksum, so an entry is valid if and only if the checksum matches.
pub(crate) type BlockCache =
    quick_cache::unsync::Cache<u64, (u128, Buf), BlockWeight, BuildHasherDefault<NumberHasher>>;

/// Lets a block into the cache when it is asked for the second time: what is read once, a scan or a random walk over more
/// than memory, neither evicts anything nor keeps buffers from being used again at once.
pub(crate) struct Doorkeeper {
    /// Marks of addresses seen, by hash; a newer one replaces an older one.
    marks: Vec<u32>,
}

impl Doorkeeper {
    /// Remembers about the last `count`.
    pub fn new(count: u64) -> Doorkeeper {
        Doorkeeper { marks: vec![0; count.next_power_of_two() as usize] }
    }

    /// Whether the address, or whatever else has such a number, was seen before; it is from now on.
    pub fn knows(&mut self, addr: u64) -> bool {
        let hash = addr.wrapping_mul(0x9e3779b97f4a7c15);
        let place = (hash >> 32) as usize & (self.marks.len() - 1);
        let mark = hash as u32 | 1;
        std::mem::replace(&mut self.marks[place], mark) == mark
    }
}

/// Where blocks came from that clients read. What nobody ever wrote comes from nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadFrom {
    pub memory: u64,
    /// Read from the disks before they were asked for.
    pub ahead: u64,
    /// From cache disks.
    pub flash: u64,
    pub disks: u64,
}

impl ReadFrom {
    pub(crate) fn add(&mut self, other: ReadFrom) {
        self.memory += other.memory;
        self.ahead += other.ahead;
        self.flash += other.flash;
        self.disks += other.disks;
    }
}
