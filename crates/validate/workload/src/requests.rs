//! The requests of a workload, one after the other: a function of the description and the seed.

use crate::{Access, Workload};
use forebay_base::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub at: u64,
    pub bytes: u64,
    pub is_write: bool,
}

pub struct Requests {
    random: Random,
    access: Access,
    bytes: u64,
    /// Places where a request may begin.
    places: u64,
    next: u64,
    read_percent: u64,
}

impl Requests {
    /// Requests to a volume of `size` bytes.
    pub fn new(workload: &Workload, size: u64, seed: u64) -> Requests {
        let bytes = workload.block_bytes();
        Requests {
            random: Random::new(seed),
            access: workload.access,
            bytes,
            places: (size / bytes).max(1),
            next: 0,
            read_percent: workload.read_percent.into(),
        }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let place = match self.access {
            Access::Random => self.random.below(self.places),
            Access::Sequential => {
                self.next += 1;
                (self.next - 1) % self.places
            }
        };
        let is_write = self.random.below(100) >= self.read_percent;
        Some(Request { at: place * self.bytes, bytes: self.bytes, is_write })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
