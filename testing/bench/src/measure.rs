//! What is run and what comes of it: work, measurements, medians.

use forebay_base::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Read,
    /// Written with no word about durability: what the system does by itself.
    Write,
    /// Durable before it is answered.
    DurableWrite,
    /// Three reads to one write.
    Mixed,
}

impl Direction {
    /// Whether the next request is a write.
    pub fn writes(self, random: &mut Random) -> bool {
        match self {
            Direction::Read => false,
            Direction::Write | Direction::DurableWrite => true,
            Direction::Mixed => random.one_in(4),
        }
    }
}

/// One kind of load.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub name: &'static str,
    pub direction: Direction,
    pub random: bool,
    /// Bytes of one request.
    pub size: usize,
    /// Requests in flight, on each connection where there are connections.
    pub depth: usize,
    pub connections: usize,
    /// Share of the volume that a run writes at most: an aged one's snapshots hold what is overwritten.
    pub share: Option<f64>,
    /// Whether what is written can be made half as small, rather than anything.
    pub compressible: bool,
    pub generator: Generator,
}

/// Who makes the requests, of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Generator {
    /// The plain client of the tests.
    Client,
    /// libiscsi's `iscsi-perf`: reads at any logical block, one connection.
    IscsiPerf,
}

impl Work {
    /// How many requests a run on a volume makes at most, if that is bounded.
    pub fn requests_max(&self, volume: u64) -> Option<usize> {
        self.share.map(|share| (volume as f64 * share / self.size as f64) as usize)
    }
}

pub const fn random(name: &'static str, direction: Direction, depth: usize) -> Work {
    Work {
        name,
        direction,
        random: true,
        size: 8 << 10,
        depth,
        connections: 1,
        share: None,
        compressible: false,
        generator: Generator::Client,
    }
}
const fn sequential(name: &'static str, direction: Direction) -> Work {
    Work { random: false, size: 1 << 20, ..random(name, direction, 8) }
}
const fn iscsi_perf(name: &'static str, depth: usize) -> Work {
    Work { generator: Generator::IscsiPerf, ..random(name, Direction::Read, depth) }
}

pub const SEQUENTIAL_READ: Work = sequential("1 MiB sequential read, QD 8", Direction::Read);
pub const SEQUENTIAL_WRITE: Work = sequential("1 MiB sequential write, QD 8", Direction::Write);

/// What a volume has been through before it is measured. A file stays as it was laid out, whatever is written; a volume
/// that writes elsewhere does not, so what order the bytes lie in is part of the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Written once, from its beginning to its end.
    Fresh,
    /// Read in sequence, overwritten with as many random writes of 8 KiB as it has blocks, and left alone until the pool has nothing more to do.
    Rested,
    /// As many random writes again.
    Overwritten,
    /// Five times as many, with a snapshot after each [`AGE_PART`] of them; the oldest go when the pool is [`AGE_FULL`].
    Aged,
}

/// Of the volume, between two snapshots while it ages.
pub const AGE_PART: f64 = 0.04;
/// How often as many blocks as the volume has are written while it ages.
pub const AGE_TIMES: f64 = 5.0;
/// Share of the pool in use when snapshots go.
pub const AGE_FULL: f64 = 0.8;
/// Of a volume with snapshots, what one run may write.
const AGED_SHARE: f64 = 0.2;
/// What ages a volume.
pub const AGEING: Work = random("8 KiB random write, QD 32", Direction::Write, 32);

/// Works on volumes in one state, all repetitions before the next chapter's.
pub struct Chapter {
    pub state: State,
    pub works: &'static [Work],
}

pub const READ: &str = "8 KiB random read, QD 32";
pub const MIXED: &str = "8 KiB random 75/25, QD 32";
pub const MIXED_1: &str = "8 KiB random 75/25, QD 1";
pub const MIXED_4: &str = "8 KiB random 75/25, QD 32, 4 connections";
pub const DURABLE: &str = "8 KiB random durable write, QD 32";
pub const DURABLE_1: &str = "4 KiB random durable write, QD 1";
pub const READ_1: &str = "4 KiB random read, QD 1";
pub const STREAM: &str = SEQUENTIAL_READ.name;
pub const STREAM_DURABLE: &str = "1 MiB sequential durable write, QD 8";
pub const STREAM_OVERWRITTEN: &str = "1 MiB sequential read after random overwrite, QD 8";
pub const STREAM_RESTED: &str = "1 MiB sequential read after random overwrite and a rest, QD 8";
pub const STREAM_AGED: &str = "1 MiB sequential read, aged, QD 8";
pub const WRITE_AGED: &str = "1 MiB sequential write, aged, QD 8";

pub const CHAPTERS: [Chapter; 4] = [
    Chapter {
        state: State::Fresh,
        works: &[SEQUENTIAL_READ, SEQUENTIAL_WRITE, sequential(STREAM_DURABLE, Direction::DurableWrite)],
    },
    Chapter { state: State::Rested, works: &[sequential(STREAM_RESTED, Direction::Read)] },
    Chapter { state: State::Overwritten, works: &[sequential(STREAM_OVERWRITTEN, Direction::Read)] },
    Chapter {
        state: State::Aged,
        works: &[
            random("8 KiB random read, QD 1", Direction::Read, 1),
            random(READ, Direction::Read, 32),
            random(MIXED, Direction::Mixed, 32),
            Work { size: 4 << 10, ..random(DURABLE_1, Direction::DurableWrite, 1) },
            Work { share: Some(AGED_SHARE), ..random(DURABLE, Direction::DurableWrite, 32) },
            sequential(STREAM_AGED, Direction::Read),
            Work { share: Some(AGED_SHARE), ..sequential(WRITE_AGED, Direction::Write) },
        ],
    },
];

/// Where the processor is the limit. Pools in memory are too small for snapshots beside what a run overwrites.
pub const MEMORY_CHAPTERS: [Chapter; 1] = [Chapter {
    state: State::Overwritten,
    works: &[
        Work { size: 4 << 10, ..random(READ_1, Direction::Read, 1) },
        random(READ, Direction::Read, 32),
        random(DURABLE, Direction::DurableWrite, 32),
        random(MIXED, Direction::Mixed, 32),
        Work { connections: 4, ..random(MIXED_4, Direction::Mixed, 32) },
    ],
}];

/// What is compared over iSCSI.
pub const ISCSI: [Chapter; 2] = [
    Chapter { state: State::Fresh, works: &[SEQUENTIAL_READ, SEQUENTIAL_WRITE] },
    Chapter {
        state: State::Overwritten,
        works: &[
            random(MIXED_1, Direction::Mixed, 1),
            random(MIXED, Direction::Mixed, 32),
            Work { connections: 4, ..random(MIXED_4, Direction::Mixed, 32) },
            sequential(STREAM_OVERWRITTEN, Direction::Read),
        ],
    },
];

/// The same servers under somebody else's load.
pub const ISCSI_PERF: [Chapter; 1] = [Chapter {
    state: State::Fresh,
    works: &[
        iscsi_perf("iscsi-perf 8 KiB random read, QD 1", 1),
        iscsi_perf("iscsi-perf 8 KiB random read, QD 32", 32),
    ],
}];

/// First writes to blocks that never held anything: each once, in random order. Then the same blocks again.
pub const FIRST_WRITES: Work = random("8 KiB durable first writes, QD 32", Direction::DurableWrite, 32);

/// Where the requests of one run go.
pub enum Places {
    Random {
        random: Random,
        count: u64,
    },
    Sequential {
        next: u64,
        count: u64,
    },
    /// Each place once.
    Once(std::vec::IntoIter<u32>),
}

impl Places {
    pub fn new(work: &Work, volume: u64, seed: u64) -> Places {
        let count = volume / work.size as u64;
        if work.random {
            Places::Random { random: Random::new(seed), count }
        } else {
            Places::Sequential { next: 0, count }
        }
    }

    /// Those of one run.
    pub fn run(work: &Work, volume: u64, seed: u64) -> Places {
        let places = Places::new(work, volume, seed);
        match work.requests_max(volume) {
            Some(count) => places.first(count),
            None => places,
        }
    }

    /// Every place of a volume, one after the other.
    pub fn whole(work: &Work, volume: u64) -> Places {
        Places::Once((0..(volume / work.size as u64) as u32).collect::<Vec<u32>>().into_iter())
    }

    /// Random ones, `times` as many as there are places.
    pub fn part(work: &Work, volume: u64, times: f64, seed: u64) -> Places {
        let count = volume as f64 / work.size as f64 * times;
        Places::new(work, volume, seed).first(count as usize)
    }

    /// The first `count` of them.
    pub fn first(self, count: usize) -> Places {
        Places::Once(self.take(count).map(|place| place as u32).collect::<Vec<u32>>().into_iter())
    }

    /// The same for several connections: random places for each, or an equal share of the sequence, one behind the other.
    pub fn split(self, connections: usize) -> Vec<Places> {
        match self {
            one if connections == 1 => vec![one],
            Places::Random { mut random, count } => (0..connections)
                .map(|_| Places::Random { random: Random::new(random.next_u64()), count })
                .collect(),
            _ => unreachable!("only random works have several connections"),
        }
    }

    pub fn once(work: &Work, volume: u64, seed: u64) -> Places {
        let count = u32::try_from(volume / work.size as u64).expect("a small volume is written once");
        let mut order: Vec<u32> = (0..count).collect();
        let mut random = Random::new(seed);
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        Places::Once(order.into_iter())
    }
}

/// Numbers of requests; a byte offset is the number times the request's size.
impl Iterator for Places {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        match self {
            Places::Random { random, count } => Some(random.below(*count)),
            Places::Sequential { next, count } => {
                let place = *next;
                *next = (place + 1) % *count;
                Some(place)
            }
            Places::Once(order) => order.next().map(u64::from),
        }
    }
}

/// Collected during a run.
#[derive(Default)]
pub struct Samples {
    /// Nanoseconds; a request of more than four seconds counts as four.
    pub latencies_ns: Vec<u32>,
}

impl Samples {
    pub fn join(&mut self, other: Samples) {
        self.latencies_ns.extend(other.latencies_ns);
    }

    pub fn add(&mut self, nanoseconds: u64) {
        self.latencies_ns.push(u32::try_from(nanoseconds).unwrap_or(u32::MAX));
    }

    pub fn measured(mut self, work: &Work, seconds: f64, cpu_seconds: f64) -> Measured {
        self.latencies_ns.sort_unstable();
        let count = self.latencies_ns.len();
        let percentile = |permille: usize| {
            let index = (count * permille / 1000).min(count.saturating_sub(1));
            self.latencies_ns.get(index).map_or(0.0, |&ns| f64::from(ns) / 1000.0)
        };
        let operations = count as f64;
        Measured {
            iops: operations / seconds,
            mb_per_s: operations * work.size as f64 / seconds / 1e6,
            p50_us: percentile(500),
            p99_us: percentile(990),
            p999_us: percentile(999),
            cpu_us_per_io: cpu_seconds * 1e6 / operations.max(1.0),
        }
    }
}

/// What one run gave.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub iops: f64,
    /// 10⁶ bytes.
    pub mb_per_s: f64,
    /// Latencies; not a number where the generator does not tell.
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// Processor time of the system per request; what it includes is the system's to say.
    pub cpu_us_per_io: f64,
}

/// The middle of the repetitions of one number, and how far they lie apart.
#[derive(Clone, Copy, Debug)]
pub struct Median {
    pub value: f64,
    pub min: f64,
    pub max: f64,
}

impl Median {
    pub fn of(values: impl Iterator<Item = f64>) -> Median {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len();
        assert!(n > 0, "the median of at least one repetition");
        Median { value: (values[(n - 1) / 2] + values[n / 2]) / 2.0, min: values[0], max: values[n - 1] }
    }
    /// Half the distance between the extremes, in percent of the middle.
    pub fn spread_percent(&self) -> f64 {
        if self.value == 0.0 { 0.0 } else { (self.max - self.min) / 2.0 / self.value * 100.0 }
    }
}

/// Processor time of this thread.
pub fn thread_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure it is given.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "every Linux has this clock");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles() {
        let odd = Median::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!((odd.value, odd.min, odd.max, odd.spread_percent()), (2.0, 1.0, 3.0, 50.0));
        assert_eq!(Median::of([1.0, 2.0].into_iter()).value, 1.5);
        let mut samples = Samples::default();
        (1..=1000).rev().for_each(|us| samples.add(us * 1000));
        let measured = samples.measured(&SEQUENTIAL_WRITE, 2.0, 0.5);
        assert_eq!((measured.p50_us, measured.p99_us, measured.p999_us), (501.0, 991.0, 1000.0));
        assert_eq!((measured.iops, measured.cpu_us_per_io), (500.0, 500.0));
    }

    #[test]
    fn every_place_once() {
        let mut places: Vec<u64> = Places::once(&FIRST_WRITES, 1 << 20, 3).collect();
        assert!(!places.is_sorted(), "in random order");
        places.sort_unstable();
        assert!(places.into_iter().eq(0..128));
    }
}
