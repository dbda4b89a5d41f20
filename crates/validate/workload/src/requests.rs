//! The requests of a workload, one after the other: a function of the description and the seed.

use crate::zipf::Zipf;
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
    /// The next place in sequence, and how often the part has been gone through before.
    fn next(&mut self) -> (u64, u64) {
        let next = self.next;
        self.next += 1;
        (self.first + next % self.places, next / self.places)
    }
}

pub struct Requests {
    random: Random,
    access: Access,
    bytes: u64,
    /// Of all requests, how many of a hundred go to the first part.
    hot_percent: u64,
    /// What is hot and the rest; or a part for each stream.
    parts: Vec<Part>,
    zipf: Option<Zipf>,
}

impl Requests {
    /// Requests to a volume of `size` bytes.
    pub fn new(workload: &Workload, size: u64, seed: u64) -> Requests {
        let bytes = workload.block_bytes();
        let of = |gib: u64| size / bytes * gib / workload.size_gib;
        let places = workload.footprint_gib.map_or(size / bytes, of).max(1);
        let part = |first, places| Part { first, places, next: 0 };
        let parts = if workload.has_streams() {
            let each = (places / u64::from(workload.streams)).max(1);
            (0..u64::from(workload.streams)).map(|stream| part(stream * each, each)).collect()
        } else {
            let hot = workload.hot.map_or(0, |hot| of(hot.size_gib).clamp(1, places));
            vec![part(0, hot), part(hot, places.saturating_sub(hot).max(1))]
        };
        Requests {
            random: Random::new(seed),
            access: workload.access,
            bytes,
            hot_percent: workload.hot.map_or(0, |hot| hot.percent.into()),
            parts,
            zipf: workload.theta.map(|theta| Zipf::new(places, theta)),
        }
    }

    /// The next one of those who ask, of which `asker` is one.
    pub fn next(&mut self, asker: usize, read_percent: u8) -> Request {
        let is_hot = self.hot_percent > 0 && self.random.below(100) < self.hot_percent;
        let streams = self.parts.len();
        let (place, sorted) = match (self.access, &self.zipf) {
            (Access::Zipfian, Some(zipf)) => (zipf.place(&mut self.random), None),
            (Access::Random | Access::Zipfian, _) => {
                let part = &self.parts[usize::from(!is_hot)];
                (part.first + self.random.below(part.places), None)
            }
            (Access::Sequential, _) if self.hot_percent > 0 => {
                (self.parts[usize::from(!is_hot)].next().0, None)
            }
            // Without hot ones the first part is empty.
            (Access::Sequential, _) => {
                let part = if self.parts[0].places == 0 { 1 } else { asker % streams };
                (self.parts[part].next().0, None)
            }
            (Access::Sort, _) => {
                let (place, round) = self.parts[asker % streams].next();
                (place, Some(round % 2 == 0))
            }
        };
        let drawn = self.random.below(100) >= u64::from(read_percent);
        Request { at: place * self.bytes, bytes: self.bytes, is_write: sorted.unwrap_or(drawn) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hot;

    fn workload(access: Access) -> Workload {
        Workload { name: "w".into(), block_kib: 8, access, ..Workload::default() }
    }

    fn some(workload: &Workload, size: u64, seed: u64, count: usize) -> Vec<Request> {
        let mut requests = Requests::new(workload, size, seed);
        let askers = workload.outstanding as usize;
        (0..count).map(|nth| requests.next(nth % askers, workload.read_percent)).collect()
    }

    #[test]
    fn as_many_reads_as_were_asked_for_and_places_everywhere() {
        let some = some(&Workload { read_percent: 75, ..workload(Access::Random) }, 100 << 13, 7, 20_000);
        let reads = some.iter().filter(|request| !request.is_write).count();
        assert!((14_700..15_300).contains(&reads), "{reads} of 20 000 are reads");
        let mut counts = [0; 100];
        some.iter().for_each(|request| counts[(request.at >> 13) as usize] += 1);
        assert!(counts.iter().all(|count| (130..280).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_sequence_begins_again_at_the_end_and_a_seed_says_it_all() {
        let sequence = Workload { read_percent: 50, ..workload(Access::Sequential) };
        let places: Vec<u64> = some(&sequence, 3 << 13, 7, 7).iter().map(|one| one.at >> 13).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(some(&sequence, 3 << 13, 7, 100), some(&sequence, 3 << 13, 7, 100));
        assert_ne!(some(&sequence, 3 << 13, 7, 100), some(&sequence, 3 << 13, 8, 100));
    }

    #[test]
    fn what_is_hot_is_asked_for_as_often_as_it_says() {
        for access in [Access::Random, Access::Sequential] {
            let hot = Some(Hot { percent: 60, size_gib: 1 });
            let all = Workload { size_gib: 10, hot, ..workload(access) };
            let places: Vec<u64> =
                some(&all, 1000 << 13, 7, 20_000).iter().map(|request| request.at >> 13).collect();
            let hot = places.iter().filter(|place| **place < 100).count();
            assert!((11_700..12_300).contains(&hot), "{hot} of 20 000 are hot");
            // No place of either part is left out.
            let seen: std::collections::BTreeSet<u64> = places.into_iter().collect();
            assert_eq!((seen.len(), seen.last()), (1000, Some(&999)));
        }
    }

    #[test]
    fn a_footprint_is_not_left() {
        for (access, theta) in
            [(Access::Random, None), (Access::Sequential, None), (Access::Zipfian, Some(0.9))]
        {
            let part = Workload { size_gib: 10, footprint_gib: Some(2), theta, ..workload(access) };
            let last = some(&part, 1000 << 13, 7, 20_000).iter().map(|one| one.at >> 13).max();
            assert_eq!(last, Some(199), "{access:?}");
        }
    }

    #[test]
    fn streams_have_their_own_parts_and_sorts_read_what_they_wrote() {
        let streams = Workload { streams: 2, outstanding: 2, ..workload(Access::Sequential) };
        let places: Vec<u64> = some(&streams, 8 << 13, 7, 6).iter().map(|one| one.at >> 13).collect();
        assert_eq!(places, [0, 4, 1, 5, 2, 6]);
        let sorts = Workload { streams: 2, outstanding: 2, ..workload(Access::Sort) };
        let one: Vec<_> = some(&sorts, 4 << 13, 7, 12).into_iter().step_by(2).collect();
        let told: Vec<_> = one.iter().map(|request| (request.at >> 13, request.is_write)).collect();
        assert_eq!(told, [(0, true), (1, true), (0, false), (1, false), (0, true), (1, true)]);
    }
}
