//! A bitmap with a population count and a search for free runs.
//!
//! One that is *unread* knows how many bits are set, and not which: that is asked for before anything else is. Where none are, or all, nothing has to
//! be read, and nothing is kept.

use std::ops::Range;
use std::rc::Rc;

/// `len` bits, one per allocation unit; 1 is occupied. Clones share their memory until one of them changes.
#[derive(Clone, Default, Debug)]
pub struct Bits {
    len: u32,
    ones: u32,
    /// Nothing when it is unread, or all bits are the same.
    words: Option<Rc<Vec<u64>>>,
}

impl PartialEq for Bits {
    fn eq(&self, other: &Bits) -> bool {
        (self.len, self.ones) == (other.len, other.ones) && (self.is_uniform() || self.words == other.words)
    }
}

impl Eq for Bits {}

impl Bits {
    pub fn new(len: u32) -> Bits {
        Bits::unread(len, 0)
    }

    /// So many bits are set, and it is not known which.
    pub fn unread(len: u32, ones: u32) -> Bits {
        Bits { words: None, len, ones }
    }

    /// Whether it is known which bits are set.
    pub fn is_read(&self) -> bool {
        self.words.is_some() || self.is_uniform()
    }

    pub(crate) fn is_uniform(&self) -> bool {
        self.ones == 0 || self.ones == self.len
    }

    /// 64 bits; those beyond the end are clear.
    fn word(&self, index: u32) -> u64 {
        match &self.words {
            Some(words) => words[index as usize],
            None => self.uniform_word(index),
        }
    }

    #[cold]
    fn uniform_word(&self, index: u32) -> u64 {
        assert!(self.is_uniform(), "it was asked which units are in use before the record was read");
        match self.len - index * 64 {
            _ if self.ones == 0 => 0,
            left if left < 64 => (1 << left) - 1,
            _ => u64::MAX,
        }
    }

    fn words_mut(&mut self) -> &mut Vec<u64> {
        if self.words.is_none() {
            let words = (0..self.len.div_ceil(64)).map(|at| self.uniform_word(at)).collect();
            self.words = Some(Rc::new(words));
        }
        Rc::make_mut(self.words.as_mut().expect("there are some"))
    }
    pub fn len(&self) -> u32 {
        self.len
    }
    pub fn is_empty(&self) -> bool {
        self.ones == 0
    }
    /// Bits that are set.
    pub fn ones(&self) -> u32 {
        self.ones
    }
    pub fn zeros(&self) -> u32 {
        self.len - self.ones
    }
    pub fn get(&self, at: u32) -> bool {
        self.word(at / 64) & (1 << (at % 64)) != 0
    }

    /// Takes up the memory of another one that says the same.
    pub(crate) fn share(&mut self, with: &Bits) {
        if !self.shares(with) && self == with {
            self.words = with.words.clone();
        }
    }
    /// Whether both have the same memory, or need none.
    pub(crate) fn shares(&self, with: &Bits) -> bool {
        match (&self.words, &with.words) {
            (Some(own), Some(other)) => Rc::ptr_eq(own, other),
            (None, None) => self == with,
            _ => false,
        }
    }

    /// Whether no bit of `count` from `at` is set.
    pub fn is_free(&self, at: u32, count: u32) -> bool {
        self.free_run(at, count) == count
    }

    /// Sets `count` bits from `at`. Returns how many were set already.
    pub fn set(&mut self, at: u32, count: u32) -> u32 {
        let before = self.ones;
        self.change(at, count, |word, mask| word | mask);
        count - (self.ones - before)
    }

    /// Clears `count` bits from `at`. Returns how many were clear already.
    pub fn clear(&mut self, at: u32, count: u32) -> u32 {
        let before = self.ones;
        self.change(at, count, |word, mask| word & !mask);
        count - (before - self.ones)
    }

    fn change(&mut self, at: u32, count: u32, apply: impl Fn(u64, u64) -> u64) {
        assert!(at + count <= self.len, "bits {at}+{count} of {}", self.len);
        let (mut at, end) = (at, at + count);
        let mut ones = self.ones;
        let words = self.words_mut();
        while at < end {
            let (index, shift) = ((at / 64) as usize, at % 64);
            let here = (64 - shift).min(end - at);
            let mask = if here == 64 { u64::MAX } else { ((1 << here) - 1) << shift };
            let old = words[index];
            let new = apply(old, mask);
            words[index] = new;
            ones = ones + new.count_ones() - old.count_ones();
            at += here;
        }
        self.ones = ones;
        if self.is_uniform() {
            self.words = None;
        }
    }

    /// The first run of `count` clear bits at or after `from` whose start is a multiple of `count` (a power of two).
    pub fn find_free(&self, from: u32, count: u32) -> Option<u32> {
        debug_assert!(count.is_power_of_two());
        let mut at = from.next_multiple_of(count);
        while at + count <= self.len {
            let word = self.word(at / 64);
            if word == u64::MAX {
                at = (at / 64 + 1) * 64;
                at = at.next_multiple_of(count);
                continue;
            }
            if count <= 64 {
                let mask = if count == 64 { u64::MAX } else { ((1 << count) - 1) << (at % 64) };
                if word & mask == 0 {
                    return Some(at);
                }
            } else if (at / 64..(at + count) / 64).all(|index| self.word(index) == 0) {
                return Some(at);
            }
            at += count;
        }
        None
    }

    /// The first `count` clear bits at or after `from` that begin where `place` lets them: the first such position at or after
    /// the one it is given.
    pub fn find_run(&self, from: u32, count: u32, place: impl Fn(u32) -> u32) -> Option<u32> {
        let mut at = place(from);
        while at + count <= self.len {
            let free = self.free_run(at, count);
            if free == count {
                return Some(at);
            }
            at = place(at + free + self.used_run(at + free));
        }
        None
    }

    /// How many set bits follow each other from `at` on.
    fn used_run(&self, at: u32) -> u32 {
        let mut to = at;
        while to < self.len {
            let ahead = !self.word(to / 64) >> (to % 64);
            if ahead != 0 {
                return (to + ahead.trailing_zeros()).min(self.len) - at;
            }
            to = (to / 64 + 1) * 64;
        }
        self.len.saturating_sub(at)
    }

    /// Runs of `count` clear bits (a power of two up to 64) that start at a multiple of `count`.
    pub fn places(&self, count: u32) -> u32 {
        debug_assert!(count.is_power_of_two() && count <= 64);
        if self.ones == 0 {
            return self.len / count;
        }
        // The first bit of each run, in a word that has as many runs as fit.
        let starts = (0..64).step_by(count as usize).fold(0u64, |starts, at| starts | 1 << at);
        if self.ones == self.len {
            return 0;
        }
        let in_word = |index: u32| {
            let (word, beyond) = (self.word(index), (self.len - index * 64).min(64));
            let mut taken = if beyond == 64 { word } else { word | u64::MAX << beyond };
            let mut reach = 1;
            while reach < count {
                taken |= taken >> reach;
                reach *= 2;
            }
            (!taken & starts).count_ones()
        };
        (0..self.len.div_ceil(64)).map(in_word).sum()
    }

    /// How many clear bits follow each other from `at` on, counted up to `most`.
    pub fn free_run(&self, at: u32, most: u32) -> u32 {
        let end = self.len.min(at.saturating_add(most));
        let mut to = at;
        while to < end {
            let ahead = self.word(to / 64) >> (to % 64);
            if ahead != 0 {
                return (to + ahead.trailing_zeros()).min(end) - at;
            }
            to = (to / 64 + 1) * 64;
        }
        end.saturating_sub(at)
    }

    /// Runs of set bits, in order.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            at += self.free_run(at, self.len - at);
            let start = at;
            while at < self.len && self.get(at) {
                at += 1;
            }
            (start < at).then_some(start..at)
        })
    }

    /// The bits as little-endian bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..self.len.div_ceil(64)).flat_map(|at| self.word(at).to_le_bytes()).collect();
        bytes.truncate((self.len as usize).div_ceil(8));
        bytes
    }

    /// Bits from what [`Bits::to_bytes`] gave; nothing when there are too few bytes or bits beyond `len` are set.
    pub fn from_bytes(len: u32, bytes: &[u8]) -> Option<Bits> {
        let bytes = bytes.get(..(len as usize).div_ceil(8))?;
        let (mut words, mut ones) = (Vec::with_capacity((len as usize).div_ceil(64)), 0);
        for part in bytes.chunks(8) {
            let mut raw = [0; 8];
            raw[..part.len()].copy_from_slice(part);
            let word = u64::from_le_bytes(raw);
            ones += word.count_ones();
            words.push(word);
        }
        let tail = len % 64;
        if tail != 0 && words.last().is_some_and(|word| word >> tail != 0) {
            return None;
        }
        let is_uniform = ones == 0 || ones == len;
        Some(Bits { len, ones, words: (!is_uniform).then(|| Rc::new(words)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Random;

    #[test]
    fn clones_share_memory_until_they_differ_and_again_when_they_are_the_same() {
        let mut one = Bits::new(100);
        one.set(3, 70);
        let mut other = one.clone();
        assert!(other.shares(&one));
        other.clear(5, 1);
        assert!(one.get(5) && !other.get(5));
        other.share(&one);
        assert!(!other.shares(&one));
        other.set(5, 1);
        other.share(&one);
        assert!(other.shares(&one));
    }

    #[test]
    fn what_is_all_the_same_has_no_memory_and_what_is_unread_says_how_many() {
        let mut bits = Bits::new(100);
        bits.set(0, 99);
        assert!(bits.words.is_some());
        bits.set(99, 1);
        assert!(bits.words.is_none() && bits.get(99) && bits == Bits::unread(100, 100));
        assert_eq!((bits.runs().next(), bits.find_free(0, 1), bits.places(4)), (Some(0..100), None, 0));
        bits.clear(40, 4);
        assert_eq!((bits.find_free(0, 4), bits.free_run(40, 9), bits.to_bytes()[12]), (Some(40), 4, 0xf));
        let unread = Bits::unread(100, 96);
        assert!(!unread.is_read() && unread != bits && unread.zeros() == 4);
    }

    #[test]
    #[should_panic(expected = "before the record was read")]
    fn what_is_unread_is_not_guessed() {
        Bits::unread(100, 96).is_free(0, 4);
    }

    #[test]
    fn agrees_with_a_plain_vector() {
        let mut random = Random::new(1);
        for len in [1, 63, 64, 65, 1000] {
            let (mut bits, mut plain) = (Bits::new(len), vec![false; len as usize]);
            for _ in 0..300 {
                let at = random.below(u64::from(len)) as u32;
                let count = 1 + random.below(u64::from(len - at).min(130)) as u32;
                let range = at as usize..(at + count) as usize;
                let set = random.one_in(2);
                let already = plain[range.clone()].iter().filter(|&&bit| bit == set).count() as u32;
                assert_eq!(if set { bits.set(at, count) } else { bits.clear(at, count) }, already);
                plain[range].fill(set);
                assert_eq!(bits.ones() as usize, plain.iter().filter(|&&bit| bit).count());
                let want = 1 << random.below(8);
                let from = random.below(u64::from(len)) as u32;
                let free =
                    (from.next_multiple_of(want)..).step_by(want as usize).take_while(|a| a + want <= len);
                let free =
                    free.into_iter().find(|&a| plain[a as usize..(a + want) as usize].iter().all(|bit| !bit));
                assert_eq!(bits.find_free(from, want), free, "len {len} from {from} want {want}");
                let any = 1 + random.below(9) as u32;
                let here = |a: &u32| plain[*a as usize..(a + any) as usize].iter().all(|bit| !bit);
                let odd = |at: u32| at | 1;
                let first = (from..).take_while(|a| a + any <= len).find(|a| a % 2 == 1 && here(a));
                assert_eq!(bits.find_run(from, any, odd), first, "len {len} from {from} any {any}");
                let run = plain[from as usize..].iter().take(want as usize).take_while(|bit| !**bit).count();
                let places =
                    plain.chunks_exact(want.min(64) as usize).filter(|run| run.iter().all(|bit| !bit));
                assert_eq!(bits.places(want.min(64)), places.count() as u32, "len {len} of {want}");
                assert_eq!(bits.free_run(from, want), run as u32, "len {len} from {from} most {want}");
                assert_eq!(Bits::from_bytes(len, &bits.to_bytes()).as_ref(), Some(&bits));
            }
        }
    }
}
