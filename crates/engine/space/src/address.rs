//! Virtual addresses and the pointers made of them.
//!
//! ```text
//! Addr (48 bits)   chunk number 28 bits | sector within the chunk 20 bits      (sectors of 512 bytes)
//!
//! Ptr (32 bytes)   0   address 48 bits | sectors 16 bits
//!                  8   birth epoch 48 bits | compression kind 8 bits | flags 8 bits
//!                  16  XXH3-128 of the stored bytes
//! ```
//!
//! A chunk spans at most 2²⁰ sectors = 512 MiB of virtual space, whatever its layout. Which slots of which disks it means
//! is known to the chunk table alone: moving a slot rewrites no pointer. All zeros is the hole.

use forebay_base::Checksum;
use forebay_base::codec::{Reader, Truncated, Writer};

const SECTOR: u64 = 512;
/// Sectors in one allocation unit.
pub const UNIT_SECTORS: u64 = forebay_device::UNIT / SECTOR;
const _: () = assert!(UNIT_SECTORS == 8);
/// Allocation units of one tree node (16 KiB).
pub const NODE_UNITS: u32 = 4;
const WITHIN_BITS: u32 = 20;
/// Allocation units of a chunk, at most.
pub const CHUNK_UNITS_MAX: u32 = 1 << (WITHIN_BITS - UNIT_SECTORS.trailing_zeros());
/// Encoded size of a pointer.
pub const PTR_BYTES: usize = 32;

/// Number of a virtual chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkId(pub u32);

impl ChunkId {
    /// 0 is never used, so that an address is never 0.
    pub const FIRST: ChunkId = ChunkId(1);
    pub const MAX: ChunkId = ChunkId((1 << 28) - 1);
}

/// A place in virtual space, in sectors of 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Addr(pub u64);

impl Addr {
    /// The address of allocation unit `unit` of a chunk.
    pub fn new(chunk: ChunkId, unit: u32) -> Addr {
        Addr((u64::from(chunk.0) << WITHIN_BITS) | (u64::from(unit) * UNIT_SECTORS))
    }
    pub fn chunk(self) -> ChunkId {
        ChunkId((self.0 >> WITHIN_BITS) as u32)
    }
    /// Allocation unit within the chunk.
    pub fn unit(self) -> u32 {
        ((self.0 & ((1 << WITHIN_BITS) - 1)) / UNIT_SECTORS) as u32
    }
    /// Byte within the chunk.
    pub fn offset(self) -> u64 {
        (self.0 & ((1 << WITHIN_BITS) - 1)) * SECTOR
    }
    /// Whether `next` lies right behind `units` allocation units from here, in the same chunk.
    pub fn is_followed_by(self, units: u32, next: Addr) -> bool {
        next.0 == self.0 + u64::from(units) * UNIT_SECTORS && next.chunk() == self.chunk()
    }
    /// The address `bytes` further on (a multiple of 512).
    pub fn plus(self, bytes: u64) -> Addr {
        Addr(self.0 + bytes / SECTOR)
    }
}

/// Where a block is stored and how to know that it is the right one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ptr {
    place: u64,
    birth: u64,
    pub sum: Checksum,
}

const LOW_48: u64 = (1 << 48) - 1;
const KIND_SHIFT: u32 = 48;

impl Ptr {
    /// No block: reads as zeros.
    pub const HOLE: Ptr = Ptr { place: 0, birth: 0, sum: Checksum(0) };

    /// A pointer to `bytes` stored bytes (a multiple of 512, at most 32 MiB) at `addr`.
    pub fn new(addr: Addr, bytes: u32, birth: u64, sum: Checksum) -> Ptr {
        let sectors = u64::from(bytes) / SECTOR;
        assert!(sectors > 0 && sectors < 1 << 16 && addr.0 <= LOW_48 && birth <= LOW_48);
        Ptr { place: addr.0 | (sectors << 48), birth, sum }
    }
    pub fn is_hole(&self) -> bool {
        self.place == 0
    }
    pub fn addr(&self) -> Addr {
        Addr(self.place & LOW_48)
    }
    /// Stored size in bytes.
    pub fn bytes(&self) -> u32 {
        (self.place >> 48) as u32 * SECTOR as u32
    }
    /// Allocation units occupied.
    pub fn units(&self) -> u32 {
        self.bytes().div_ceil(forebay_device::UNIT as u32)
    }
    /// Whether `next` lies right behind this block in the same chunk.
    pub fn is_followed_by(&self, next: &Ptr) -> bool {
        self.addr().is_followed_by(self.units(), next.addr())
    }
    /// Epoch in which the block was written.
    pub fn birth(&self) -> u64 {
        self.birth & LOW_48
    }
    /// The same, written in `epoch`.
    pub fn set_birth(&mut self, epoch: u64) {
        assert!(epoch <= LOW_48);
        self.birth = (self.birth & !LOW_48) | epoch;
    }
    /// How the block was made smaller; 0 for one that is stored as it is.
    pub fn kind(&self) -> u8 {
        (self.birth >> KIND_SHIFT) as u8
    }
    pub fn set_kind(&mut self, kind: u8) {
        self.birth = (self.birth & !(0xff << KIND_SHIFT)) | u64::from(kind) << KIND_SHIFT;
    }
    /// All of it, in four words.
    pub fn words(&self) -> [u64; 4] {
        [self.place, self.birth, self.sum.0 as u64, (self.sum.0 >> 64) as u64]
    }
    /// One of which these are the words.
    pub fn from_words([place, birth, low, high]: [u64; 4]) -> Ptr {
        Ptr { place, birth, sum: Checksum(u128::from(low) | u128::from(high) << 64) }
    }
    pub fn encode(&self, w: &mut Writer) {
        let mut bytes = [0; PTR_BYTES];
        bytes[..8].copy_from_slice(&self.place.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.birth.to_le_bytes());
        bytes[16..].copy_from_slice(&self.sum.0.to_le_bytes());
        w.bytes(&bytes);
    }
    pub fn decode(r: &mut Reader) -> Result<Ptr, Truncated> {
        Ok(Ptr { place: r.u64()?, birth: r.u64()?, sum: Checksum(r.u128()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_run_into_each_other() {
        let addr = Addr::new(ChunkId::MAX, CHUNK_UNITS_MAX - 1);
        assert_eq!(
            (addr.chunk(), addr.unit(), addr.offset()),
            (ChunkId::MAX, (1 << 17) - 1, (512 << 20) - 4096)
        );
        let ptr = Ptr::new(addr, 131072, LOW_48, Checksum(u128::MAX));
        assert_eq!((ptr.addr(), ptr.bytes(), ptr.units(), ptr.birth()), (addr, 131072, 32, LOW_48));
        let mut ptr = ptr;
        ptr.set_kind(0xff);
        ptr.set_kind(4);
        ptr.set_birth(7);
        assert_eq!((ptr.kind(), ptr.birth(), ptr.addr()), (4, 7, addr));
        let mut bytes = [0; PTR_BYTES];
        ptr.encode(&mut Writer::new(&mut bytes));
        assert_eq!(bytes[14..16], [4, 0]);
        assert_eq!(Ptr::decode(&mut Reader::new(&bytes)), Ok(ptr));
        assert!(Ptr::HOLE.is_hole() && !ptr.is_hole());
    }
}
