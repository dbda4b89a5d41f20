//! Where blocks are on the cache disks: 16 bytes of memory for each.
//!
//! A table of small sets. A block is in the set that its tag says, or nowhere; a set that is full gives up its oldest, which is the one that is overwritten on
//! its disk first. So nothing is ever searched for or moved, and the table may be too small for the disks: then what it names is what is used of them.

use forebay_device::DISKS_MAX;

/// Blocks of a set.
const WAYS: usize = 8;

/// Where a block is: the number of the disk, the number of the segment, the unit in it, and how many units it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub disk: u16,
    pub segment: u64,
    pub unit: u8,
    pub units: u8,
}

/// Bits of a disk's number, of a segment's, and of how many units a block takes.
const DISK_BITS: u32 = 12;
const SEGMENT_BITS: u32 = 38;
const UNITS_BITS: u32 = 6;
const _: () = assert!(DISK_BITS + SEGMENT_BITS + 8 + UNITS_BITS == 64 && DISKS_MAX <= 1 << DISK_BITS);
/// No block takes more units.
pub const UNITS_MAX: u8 = (1 << UNITS_BITS) - 1;
/// Segments have lower numbers: more than any disk lives to see, a quarter of an exbibyte was written then.
pub const SEGMENT_NUMBER_MAX: u64 = 1 << SEGMENT_BITS;

/// In one word, the disk first. No block is at unit 0, so 0 is none.
#[derive(Clone, Copy, Default)]
struct Entry {
    tag: u64,
    place: u64,
}

impl Place {
    fn word(self) -> u64 {
        debug_assert!(self.units <= UNITS_MAX, "no block is so long");
        let segment = self.segment & (SEGMENT_NUMBER_MAX - 1);
        let place = u64::from(self.disk) << SEGMENT_BITS | segment;
        (place << 8 | u64::from(self.unit)) << UNITS_BITS | u64::from(self.units)
    }

    fn of(word: u64) -> Option<Place> {
        let (place, units) = (word >> UNITS_BITS, (word & ((1 << UNITS_BITS) - 1)) as u8);
        let (segment, unit) = (place >> 8 & (SEGMENT_NUMBER_MAX - 1), place as u8);
        let disk = (place >> 8 >> SEGMENT_BITS) as u16;
        (word != 0).then_some(Place { disk, segment, unit, units })
    }
}

impl Entry {
    fn units(&self) -> u64 {
        Place::of(self.place).map_or(0, |place| place.units.into())
    }
}

/// The table.
pub struct Index {
    sets: Vec<[Entry; WAYS]>,
    /// Of all blocks in it.
    units: u64,
}

impl Index {
    /// Bytes of memory that a block takes.
    pub const BLOCK_BYTES: u64 = size_of::<Entry>() as u64;

    /// For `blocks` blocks, rounded down to a power of two.
    pub fn new(blocks: u64) -> Index {
        let sets = (blocks / WAYS as u64).max(1);
        Index { sets: vec![Default::default(); 1 << sets.ilog2()], units: 0 }
    }

    /// Blocks that it has room for.
    pub fn capacity(&self) -> u64 {
        (self.sets.len() * WAYS) as u64
    }

    fn set(&self, tag: u64) -> usize {
        (tag >> 32) as usize & (self.sets.len() - 1)
    }

    /// Where the block with this tag was put.
    pub fn find(&self, tag: u64) -> Option<Place> {
        let set = &self.sets[self.set(tag)];
        set.iter().filter(|entry| entry.tag == tag).find_map(|entry| Place::of(entry.place))
    }

    /// Puts a block there. `age` says how old others are; the oldest gives way.
    pub fn insert(&mut self, tag: u64, place: Place, age: impl Fn(&Place) -> u64) {
        let at = self.set(tag);
        let set = &mut self.sets[at];
        let value = |entry: &Entry| match Place::of(entry.place) {
            Some(_) if entry.tag == tag => u64::MAX,
            Some(place) => age(&place),
            None => u64::MAX - 1,
        };
        let gives_way = set.iter_mut().max_by_key(|entry| value(entry)).expect("a set has entries");
        self.units += u64::from(place.units);
        self.units -= gives_way.units();
        *gives_way = Entry { tag, place: place.word() };
    }

    /// Units that the blocks in it take, those that were overwritten since and have not given way yet, too.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Takes a block out.
    pub fn forget(&mut self, tag: u64) {
        let at = self.set(tag);
        for entry in self.sets[at].iter_mut().filter(|entry| entry.tag == tag) {
            self.units -= entry.units();
            *entry = Entry::default();
        }
    }

    /// Everything in it.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, Place)> {
        self.sets.iter().flatten().filter_map(|entry| Some((entry.tag, Place::of(entry.place)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Random;
    use std::collections::BTreeMap;

    fn place(segment: u64) -> Place {
        Place { disk: 3, segment, unit: 255, units: 16 }
    }

    #[test]
    fn a_block_is_where_it_was_put_last_or_nowhere() {
        let (mut index, mut model, mut random) = (Index::new(1000), BTreeMap::new(), Random::new(5));
        assert_eq!(index.capacity(), 512);
        for segment in 1..5000 {
            let tag = random.below(400).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Others of its set may have had it give way.
            assert!(index.find(tag).is_none_or(|found| model.get(&tag) == Some(&found)));
            if random.one_in(8) {
                index.forget(tag);
                model.remove(&tag);
            } else {
                index.insert(tag, place(segment), |other| segment - other.segment);
                model.insert(tag, place(segment));
            }
            assert_eq!(index.find(tag), model.get(&tag).copied());
        }
        let mut found = 0;
        for (tag, place) in &model {
            if let Some(here) = index.find(*tag) {
                assert_eq!(here, *place);
                found += 1;
            }
        }
        assert_eq!(index.blocks().count(), found);
        assert_eq!(index.units(), found as u64 * 16);
        assert!(found > model.len() * 9 / 10, "{found} of {} were kept", model.len());
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut index = Index::new(8);
        for segment in 1..=8 {
            index.insert(segment, place(segment), |other| 100 - other.segment);
        }
        index.insert(9, place(9), |other| 100 - other.segment);
        assert_eq!((index.find(1), index.find(2), index.find(9)), (None, Some(place(2)), Some(place(9))));
        // Its own place is the first to go.
        index.insert(2, place(10), |other| 100 - other.segment);
        assert_eq!((index.find(3), index.find(2)), (Some(place(3)), Some(place(10))));
    }
}
