//! The contents of one simulated disk: sparse, and cheap to copy.
//!
//! An [`Image`] is a persistent array of 4 KiB pages in groups of 64. A copy shares every group and every page
//! with the original and costs one pointer per 256 KiB; the first write to a group after a copy clones 64
//! pointers. So ten thousand crash images of one run share all but the pages in which they differ.
//! What was never written reads as zeros and takes no memory.

use std::rc::Rc;

/// Bytes of a page, the smallest unit that the runtime's disks read and write.
pub const PAGE: usize = 4096;
/// Bytes below which a device never tears a write.
pub const SECTOR: usize = 512;
const GROUP: usize = 64;

pub type Page = Rc<[u8; PAGE]>;

/// The contents of a disk at one moment.
#[derive(Clone)]
pub struct Image {
    size: u64,
    groups: Vec<Option<Rc<[Option<Page>; GROUP]>>>,
}

impl Image {
    /// A disk of `size` bytes (a multiple of 4096), all zeros.
    pub fn new(size: u64) -> Image {
        assert!(size.is_multiple_of(PAGE as u64), "a simulated disk is a whole number of pages");
        let groups = (size / PAGE as u64).div_ceil(GROUP as u64) as usize;
        Image { size, groups: vec![None; groups] }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The page with this number; `None` reads as zeros.
    pub fn page(&self, number: u64) -> Option<&Page> {
        let number = number as usize;
        self.groups[number / GROUP].as_ref()?[number % GROUP].as_ref()
    }

    pub fn set_page(&mut self, number: u64, page: Option<Page>) {
        assert!(number < self.size / PAGE as u64, "page {number} is outside the disk");
        let number = number as usize;
        let group = &mut self.groups[number / GROUP];
        if group.is_none() && page.is_none() {
            return;
        }
        let group = group.get_or_insert_with(|| Rc::new([const { None }; GROUP]));
        Rc::make_mut(group)[number % GROUP] = page;
    }

    /// Copies bytes out; any alignment.
    pub fn read(&self, at: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let position = at + done as u64;
            let from = (position % PAGE as u64) as usize;
            let len = (PAGE - from).min(into.len() - done);
            match self.page(position / PAGE as u64) {
                Some(page) => into[done..done + len].copy_from_slice(&page[from..from + len]),
                None => into[done..done + len].fill(0),
            }
            done += len;
        }
    }

    /// Copies bytes in; any alignment.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let position = at + done as u64;
            let from = (position % PAGE as u64) as usize;
            let len = (PAGE - from).min(bytes.len() - done);
            let number = position / PAGE as u64;
            let mut page = self.page(number).map_or([0; PAGE], |page| **page);
            page[from..from + len].copy_from_slice(&bytes[done..done + len]);
            self.set_page(number, Some(Rc::new(page)));
            done += len;
        }
    }

    /// Numbers of the pages that differ between two images of one size; shared groups are skipped.
    pub fn difference(&self, other: &Image) -> Vec<u64> {
        assert_eq!(self.size, other.size, "only images of one size are compared");
        let mut numbers = Vec::new();
        for (index, (a, b)) in self.groups.iter().zip(&other.groups).enumerate() {
            if let (Some(a), Some(b)) = (a, b)
                && Rc::ptr_eq(a, b)
            {
                continue;
            }
            for place in 0..GROUP {
                let number = (index * GROUP + place) as u64;
                if number >= self.size / PAGE as u64 {
                    break;
                }
                let zeros = [0; PAGE];
                let bytes = |image: &'_ Image| image.page(number).map_or(zeros, |page| **page);
                let shared = match (self.page(number), other.page(number)) {
                    (Some(a), Some(b)) => Rc::ptr_eq(a, b),
                    (None, None) => true,
                    _ => false,
                };
                if !shared && bytes(self) != bytes(other) {
                    numbers.push(number);
                }
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_independent_and_unwritten_bytes_are_zeros() {
        let mut a = Image::new(1 << 20);
        a.write(
            4000,
            b"across a page boundary: this is long enough to reach into the next page. And more than that.",
        );
        let mut b = a.clone();
        b.write(4096, b"B");
        let (mut from_a, mut from_b) = ([0; 200], [0; 200]);
        a.read(3990, &mut from_a);
        b.read(3990, &mut from_b);
        assert_eq!(&from_a[10..18], b"across a");
        assert_eq!(from_a[..10], [0; 10]);
        assert_ne!(from_a[106], b'B');
        assert_eq!(from_b[106], b'B');
        assert_eq!(a.difference(&b), [1]);
    }
}
