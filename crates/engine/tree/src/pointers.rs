//! The pointers of a leaf in memory: 28 bytes each where a node on disk has 32.
//!
//! Blocks of a leaf were mostly born within some millions of epochs of each other. So of each birth only what it is more than the leaf's base is
//! kept, beside the kind. A leaf of which that is not true has its pointers as they are.

use crate::node::FANOUT;
use forebay_space::Ptr;
use std::ops::Range;

/// Bytes of memory of a leaf's pointers.
pub const LEAF_MEMORY: usize = FANOUT as usize * size_of::<Near>();

/// Place, birth beyond the base (24 bits) with kind (8 bits), checksum. Zeros are a hole.
type Near = [u32; 7];

const BIRTH_BITS: u32 = 48;
const NEAR_BITS: u32 = 24;

/// The pointers of a leaf.
#[derive(Clone, Debug)]
pub struct Pointers(Form);

#[derive(Clone, Debug)]
enum Form {
    Near { base: u64, ptrs: Vec<Near> },
    Far(Vec<Ptr>),
}

impl Pointers {
    pub(crate) fn holes() -> Pointers {
        Pointers(Form::Near { base: 0, ptrs: vec![Near::default(); FANOUT as usize] })
    }

    pub(crate) fn get(&self, slot: usize) -> Ptr {
        match &self.0 {
            Form::Near { base, ptrs } => unpack(&ptrs[slot], *base),
            Form::Far(ptrs) => ptrs[slot],
        }
    }

    /// Puts a pointer in the place of another, and gives that.
    pub(crate) fn replace(&mut self, slot: usize, ptr: Ptr) -> Ptr {
        let near = match &mut self.0 {
            Form::Near { base, ptrs } => pack(&ptr, *base).map(|near| (&mut ptrs[slot], near, *base)),
            Form::Far(ptrs) => return std::mem::replace(&mut ptrs[slot], ptr),
        };
        if let Some((place, near, base)) = near {
            return unpack(&std::mem::replace(place, near), base);
        }
        let mut ptrs: Vec<Ptr> = self.iter().collect();
        let old = std::mem::replace(&mut ptrs[slot], ptr);
        *self = ptrs.into();
        old
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = Ptr> {
        self.slots(0..FANOUT as usize)
    }

    pub(crate) fn slots(&self, slots: Range<usize>) -> impl ExactSizeIterator<Item = Ptr> {
        slots.map(|slot| self.get(slot))
    }
}

impl From<Vec<Ptr>> for Pointers {
    fn from(ptrs: Vec<Ptr>) -> Pointers {
        // In the middle between births that were and births to come.
        let base = ptrs.iter().map(Ptr::birth).max().unwrap_or(0).saturating_sub(1 << (NEAR_BITS - 1));
        match ptrs.iter().map(|ptr| pack(ptr, base)).collect() {
            Some(ptrs) => Pointers(Form::Near { base, ptrs }),
            None => Pointers(Form::Far(ptrs)),
        }
    }
}

/// Nothing of a pointer that has no such form.
fn pack(ptr: &Ptr, base: u64) -> Option<Near> {
    if *ptr == Ptr::HOLE {
        return Some(Near::default());
    }
    let [place, time, low, high] = ptr.words();
    let (near, kind) = (ptr.birth().checked_sub(base)?, time >> BIRTH_BITS);
    if place == 0 || near >> NEAR_BITS != 0 || kind > u64::from(u8::MAX) {
        return None;
    }
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let ([a, b], [c, d], [e, f]) = (halves(place), halves(low), halves(high));
    Some([a, b, near as u32 | (kind as u32) << NEAR_BITS, c, d, e, f])
}

fn unpack(near: &Near, base: u64) -> Ptr {
    let [a, b, time, c, d, e, f] = *near;
    let whole = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let place = whole(a, b);
    if place == 0 {
        return Ptr::HOLE;
    }
    let (near, kind) = (u64::from(time & ((1 << NEAR_BITS) - 1)), u64::from(time >> NEAR_BITS));
    Ptr::from_words([place, (base + near) | kind << BIRTH_BITS, whole(c, d), whole(e, f)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::{Checksum, Random};
    use forebay_space::{Addr, ChunkId};

    fn is_near(pointers: &Pointers) -> bool {
        matches!(pointers.0, Form::Near { .. })
    }

    fn random_ptr(random: &mut Random, births: &Range<u64>) -> Ptr {
        if random.one_in(8) {
            return Ptr::HOLE;
        }
        let (chunk, unit) = (ChunkId(1 + random.below(1 << 27) as u32), random.below(1 << 17) as u32);
        let sum = Checksum(u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()));
        let birth = births.start + random.below(births.end - births.start);
        let mut ptr = Ptr::new(Addr::new(chunk, unit), 512 << random.below(9), birth, sum);
        ptr.set_kind(random.next_u64() as u8);
        ptr
    }

    /// Goal: whatever is put in comes out, also when births are too far apart, or come before the base.
    #[test]
    fn what_is_put_in_comes_out() {
        let last = (1 << BIRTH_BITS) - 1;
        for (seed, (births, near)) in
            [(0..9, true), (0..last, false), (1 << 40..(1 << 40) + (1 << 22), true), (last - 9..last, true)]
                .into_iter()
                .enumerate()
        {
            let mut random = Random::new(seed as u64);
            let mut plain = vec![Ptr::HOLE; FANOUT as usize];
            let mut pointers = Pointers::holes();
            for _ in 0..5000 {
                let (slot, ptr) = (random.below(FANOUT) as usize, random_ptr(&mut random, &births));
                assert_eq!(pointers.replace(slot, ptr), std::mem::replace(&mut plain[slot], ptr));
            }
            assert!(pointers.iter().eq(plain.iter().copied()) && is_near(&pointers) == near, "{births:?}");
            assert!(pointers.slots(7..9).eq(plain[7..9].iter().copied()));
            let stored = Pointers::from(plain.clone());
            assert!(stored.iter().eq(plain) && is_near(&stored) == near, "{births:?}");
        }
        assert_eq!(LEAF_MEMORY, 14_224);
    }

    #[test]
    fn births_at_the_end_of_what_is_near_stay() {
        let end = 1 << NEAR_BITS;
        for birth in [1, end - 1, end, 2 * end - 1, 2 * end] {
            let ptr = Ptr::new(Addr::new(ChunkId(1), 0), 4096, birth, Checksum(5));
            let (mut early, mut late) = (Pointers::holes(), Pointers::holes());
            early.replace(0, ptr);
            late.replace(1, Ptr::new(Addr::new(ChunkId(1), 1), 4096, end + end / 2, Checksum(6)));
            late.replace(0, ptr);
            assert_eq!((early.get(0), late.get(0)), (ptr, ptr), "{birth}");
        }
    }

    #[test]
    fn what_no_pointer_of_ours_has_stays_too() {
        for odd in [[1 << 48 | 8, 1 << 63, 2, 3], [0, 7, 0, 0], [8 | 1 << 48, u64::MAX, u64::MAX, u64::MAX]] {
            let odd = Ptr::from_words(odd);
            let mut pointers = Pointers::holes();
            pointers.replace(3, odd);
            assert_eq!((pointers.get(3), pointers.get(4)), (odd, Ptr::HOLE));
        }
    }
}
