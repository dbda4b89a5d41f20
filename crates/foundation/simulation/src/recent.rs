//! Pages that were written last: one that comes again is not kept twice.
//!
//! Copies on several disks are written one after the other, pools are measured with the same MiB again and again, and volumes are filled with one. Most of what
//! modelled disks are given comes so. Pages never change ([`Page`] is shared, and whoever damages one copies it first), so nobody sees the difference.
//!
//! The table does not grow: where a page may be is told by some of its words, and there the one that was asked for longest ago makes room.
//! That two pages have these words in common costs a comparison, and nothing else.

use crate::image::{PAGE, Page};
use std::rc::Rc;

/// 4096 pages: sixteen times a MiB.
const SETS: usize = 1024;
const WAYS: usize = 4;
const _: () = assert!(SETS.is_power_of_two());

pub(crate) struct Recent {
    /// In each, what was asked for last is first.
    sets: Vec<[Option<Page>; WAYS]>,
}

impl Recent {
    pub fn new() -> Recent {
        Recent { sets: vec![[const { None }; WAYS]; SETS] }
    }

    /// A page of these bytes.
    pub fn page(&mut self, bytes: &[u8; PAGE]) -> Page {
        let set = &mut self.sets[set_of(bytes)];
        let known = set.iter().position(|page| page.as_ref().is_some_and(|page| **page == *bytes));
        match known {
            Some(place) => set[..=place].rotate_right(1),
            None => {
                set.rotate_right(1);
                set[0] = Some(Rc::new(*bytes));
            }
        }
        set[0].clone().expect("it was just put there")
    }
}

/// By the words at the beginning, where headers are, and one in each 256 bytes after.
fn set_of(bytes: &[u8; PAGE]) -> usize {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let places = (0..64).step_by(8).chain((264..PAGE).step_by(256));
    let hash =
        places.fold(0u64, |hash, at| (hash ^ word(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
    hash as usize % SETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: usize) -> [u8; PAGE] {
        let mut bytes = [0; PAGE];
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    #[test]
    fn what_comes_again_is_kept_once_and_what_differs_is_not() {
        let mut recent = Recent::new();
        let first: Vec<Page> = (0..512).map(|number| recent.page(&page(number))).collect();
        for (number, known) in first.iter().enumerate() {
            assert_eq!(**known, page(number));
            assert!(Rc::ptr_eq(&recent.page(&page(number)), known), "page {number} is there twice");
        }
        // In a byte that nobody looks at to find it.
        let mut other = page(7);
        other[PAGE - 1] = 1;
        assert_eq!(set_of(&other), set_of(&page(7)));
        assert_eq!(*recent.page(&other), other);
        assert!(Rc::ptr_eq(&recent.page(&page(7)), &first[7]));
    }

    #[test]
    fn what_was_not_asked_for_for_long_makes_room() {
        let mut recent = Recent::new();
        let kept = recent.page(&page(0));
        let left = Rc::downgrade(&recent.page(&page(1)));
        for number in 2..40_000 {
            recent.page(&page(number));
            recent.page(&page(0));
        }
        assert!(Rc::ptr_eq(&recent.page(&page(0)), &kept));
        assert_eq!(left.strong_count(), 0);
    }
}
