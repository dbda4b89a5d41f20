//! The requests of a workload, one after the other: a function of the description and the seed.

use crate::{Access, Workload};
use forebay_base::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub at: u64,
    pub bytes: u64,
    pub is_write: bool,
}

/// Places where a request may begin, from the first on.
struct Part {
    first: u64,
    places: u64,
    next: u64,
}

impl Part {
    fn place(&mut self, access: Access, random: &mut Random) -> u64 {
        self.first
            + match access {
                Access::Random => random.below(self.places),
                Access::Sequential => {
                    self.next += 1;
                    (self.next - 1) % self.places
                }
            }
    }
}

pub struct Requests {
    random: Random,
    access: Access,
    bytes: u64,
    /// Of all requests, how many of a hundred go to the first part.
    hot_percent: u64,
    parts: [Part; 2],
    read_percent: u64,
}

impl Requests {
    /// Requests to a volume of `size` bytes.
    pub fn new(workload: &Workload, size: u64, seed: u64) -> Requests {
        let bytes = workload.block_bytes();
        let places = (size / bytes).max(1);
        let hot = workload.hot.map_or(0, |hot| (places * hot.size_gib / workload.size_gib).max(1));
        let part = |first, places| Part { first, places, next: 0 };
        Requests {
            random: Random::new(seed),
            access: workload.access,
            bytes,
            hot_percent: workload.hot.map_or(0, |hot| hot.percent.into()),
            parts: [part(0, hot), part(hot, places.saturating_sub(hot).max(1))],
            read_percent: workload.read_percent.into(),
        }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let is_hot = self.hot_percent > 0 && self.random.below(100) < self.hot_percent;
        let place = self.parts[usize::from(!is_hot)].place(self.access, &mut self.random);
        let is_write = self.random.below(100) >= self.read_percent;
        Some(Request { at: place * self.bytes, bytes: self.bytes, is_write })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hot;

    fn workload(access: Access, read_percent: u8) -> Workload {
        Workload {
            name: "w".into(),
            block_kib: 8,
            read_percent,
            access,
            size_gib: 1,
            outstanding: 1,
            rate: None,
            think_ms: 0,
            hot: None,
        }
    }

    #[test]
    fn as_many_reads_as_were_asked_for_and_places_everywhere() {
        let requests = Requests::new(&workload(Access::Random, 75), 100 << 13, 7);
        let some: Vec<Request> = requests.take(20_000).collect();
        let reads = some.iter().filter(|request| !request.is_write).count();
        assert!((14_700..15_300).contains(&reads), "{reads} of 20 000 are reads");
        let mut counts = [0; 100];
        some.iter().for_each(|request| counts[(request.at >> 13) as usize] += 1);
        assert!(counts.iter().all(|count| (130..280).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_sequence_begins_again_at_the_end_and_a_seed_says_it_all() {
        let requests = || Requests::new(&workload(Access::Sequential, 50), 3 << 13, 7);
        let places: Vec<u64> = requests().take(7).map(|request| request.at >> 13).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2, 0]);
        assert!(requests().take(100).eq(requests().take(100)));
        let other = Requests::new(&workload(Access::Sequential, 50), 3 << 13, 8);
        assert!(!requests().take(100).eq(other.take(100)));
    }

    #[test]
    fn what_is_hot_is_asked_for_as_often_as_it_says() {
        for access in [Access::Random, Access::Sequential] {
            let all = Workload {
                size_gib: 10,
                hot: Some(Hot { percent: 60, size_gib: 1 }),
                ..workload(access, 100)
            };
            let places: Vec<u64> =
                Requests::new(&all, 1000 << 13, 7).take(20_000).map(|request| request.at >> 13).collect();
            let hot = places.iter().filter(|place| **place < 100).count();
            assert!((11_700..12_300).contains(&hot), "{hot} of 20 000 are hot");
            // No place of either part is left out.
            let seen: std::collections::BTreeSet<u64> = places.into_iter().collect();
            assert_eq!((seen.len(), seen.last()), (1000, Some(&999)));
        }
    }
}
