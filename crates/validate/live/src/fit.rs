//! Fits the figures of a measured device to slices of it, and says how well that went.
//!
//! The grid is small requests and large ones, one, a few and many at a time, reads and writes. Latencies come from one at a time, costs from a few and from many, the spread from
//! small ones alone; how many it works on at once from the first answers of many; pauses are moments of small slices in which nothing was answered for far longer than is usual. A few rounds then measure the model
//! as the device was measured, and move latencies and costs by what is left. Judged it is by six workloads of other sizes, depths and mixes, which no figure comes from.

use crate::probe::{Shape, Slice, quantile, slice};
use forebay_reference::{DeviceCosts, DeviceModel};
use forebay_runtime::OpenMode;
use forebay_simulation::model::{FEW, MANY, POINTS, Spread};
use forebay_simulation::{Image, PAGE, World, WorldConfig};
use std::time::Duration;

pub const SMALL: u64 = 4 << 10;
pub const LARGE: u64 = 256 << 10;
const DEPTHS: [u64; 3] = [1, FEW, MANY];
/// Requests of a slice of the model: enough for a rate while it is fitted, and for a 99th percentile when it is judged.
const FITTED: usize = 20_000;
const JUDGED: usize = 20_000;
const ROUNDS: usize = 8;
/// Of the disk that is looked at, in the model: places do not matter to it.
const MODELLED_BYTES: u64 = 64 << 20;
/// Shorter stops are nobody's pauses.
const PAUSE_NS_MIN: u64 = 200_000;

/// The slices that the figures come from; writes last.
pub fn grid() -> Vec<Shape> {
    let mut grid = Vec::new();
    for write_percent in [0, 100] {
        for bytes in [SMALL, LARGE] {
            grid.extend(DEPTHS.map(|depth| Shape { write_percent, bytes, depth, in_order: false }));
        }
    }
    grid
}

/// Those that it is judged by.
pub fn workloads() -> [(&'static str, Shape); 6] {
    let random = |write_percent| Shape { write_percent, bytes: 8 << 10, depth: 16, in_order: false };
    let sequential = |write_percent| Shape { write_percent, bytes: 128 << 10, depth: 4, in_order: true };
    [
        ("random reads, 8 KiB, 16 at a time", random(0)),
        ("random writes, 8 KiB, 16 at a time", random(100)),
        ("random, 30 % writes, 8 KiB, 16 at a time", random(30)),
        ("sequential reads, 128 KiB, 4 at a time", sequential(0)),
        ("sequential writes, 128 KiB, 4 at a time", sequential(100)),
        ("sequential, half writes, 128 KiB, 4 at a time", sequential(50)),
    ]
}

/// All slices of one shape, of several rounds.
#[derive(Clone, Debug)]
pub struct Measured {
    pub shape: Shape,
    pub slices: Vec<Slice>,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl Measured {
    /// Requests a second, of the round in the middle.
    pub fn rate(&self) -> f64 {
        median(self.slices.iter().map(Slice::rate).collect())
    }

    /// Nanoseconds.
    pub fn p99(&self) -> f64 {
        median(self.slices.iter().map(|slice| slice.p99() as f64).collect())
    }

    /// The least and the most that rounds differ from the one in the middle by, of rates: how quiet the machine was.
    pub fn unrest(&self) -> f64 {
        let middle = self.rate();
        self.slices.iter().map(|slice| (slice.rate() / middle - 1.0).abs()).fold(0.0, f64::max)
    }

    fn pooled(&self, of: fn(&Slice) -> &Vec<u32>) -> Vec<u32> {
        let mut all: Vec<u32> = self.slices.iter().flat_map(of).copied().collect();
        all.sort_unstable();
        all
    }
}

fn spread_of(sorted: &[u32]) -> Spread {
    POINTS.map(|point| quantile(sorted, point))
}

/// Moments in which a device stood still: how much it worked between two of them, and how long they were.
fn pauses(measured: &[Measured]) -> (u64, Spread) {
    let (mut worked, mut lengths) = (0, Vec::new());
    for one in measured.iter().filter(|one| one.shape.bytes == SMALL && one.shape.depth <= FEW) {
        let (gaps, latencies) = (one.pooled(|slice| &slice.gaps), one.pooled(|slice| &slice.latencies));
        let usual = quantile(&gaps, 50_000);
        // Requests that are answered together leave a gap as long as one takes before the next answers.
        let long = (10 * usual + 2 * quantile(&latencies, 50_000)).max(PAUSE_NS_MIN);
        let paused: Vec<u32> = gaps.into_iter().filter(|gap| u64::from(*gap) > long).collect();
        let took: u64 = one.slices.iter().map(|slice| slice.took).sum();
        worked += took - paused.iter().map(|gap| u64::from(*gap)).sum::<u64>().min(took);
        lengths.extend(paused.into_iter().map(|gap| gap - usual as u32));
    }
    lengths.sort_unstable();
    match lengths.len() as u64 {
        0 => (0, [0; POINTS.len()]),
        count => ((worked / count).max(1000), spread_of(&lengths)),
    }
}

/// How many requests a device works on at once: of [`MANY`] that come together so many are answered after the time of one, and then for as long nobody. Zero if there is no
/// such number.
fn at_once(measured: &[Measured]) -> u64 {
    let is_it = |one: &&Measured| one.shape.bytes == SMALL && one.shape.depth == MANY;
    let answered = |slice: &Slice| {
        let times = slice.gaps.iter().take(MANY as usize).scan(0, |now, gap| {
            *now += u64::from(*gap);
            Some(*now)
        });
        let times: Vec<u64> = times.collect();
        let first = *times.first()?;
        let together = times.partition_point(|time| time * 2 < first * 3);
        let has_step = *times.get(together)? - times[together - 1] > first / 3;
        has_step.then_some(together as f64)
    };
    let slices = measured.iter().filter(is_it).flat_map(|one| &one.slices);
    median(slices.map(|slice| answered(slice).unwrap_or(0.0)).collect()) as u64
}

/// What a line through the costs of a small and of a large request says of a request and of a byte, in ns and ps.
fn line(small: f64, large: f64) -> (u64, u64) {
    let byte = ((large - small) / (LARGE - SMALL) as f64).max(0.0);
    ((small - byte * SMALL as f64).max(0.0) as u64, (byte * 1000.0) as u64)
}

/// Costs of one kind, as they are fitted: for small and for large requests, in ns.
struct Costs {
    /// Among few and among many.
    alone: [[f64; 2]; 2],
    beside: [f64; 2],
    spread: Spread,
}

impl Costs {
    fn first(of: impl Fn(u64, u64) -> Measured, at_once: u64) -> Costs {
        // Where the rate is bounded by how many it works on, little of a request has the device for itself.
        let share = if at_once > 0 { 0.1 } else { 1.0 };
        let each = |bytes, depth| share * 1e9 / of(bytes, depth).rate().max(1.0);
        let sizes = [SMALL, LARGE];
        let alone = [FEW, MANY].map(|depth| sizes.map(|bytes| each(bytes, depth)));
        let sorted = of(SMALL, 1).pooled(|slice| &slice.latencies);
        let middle = quantile(&sorted, 50_000) as f64;
        let beside = std::array::from_fn(|size| {
            let lone = of(sizes[size], 1).pooled(|slice| &slice.latencies);
            (quantile(&lone, 50_000) as f64 - alone[0][size]).max(1000.0)
        });
        // What takes longer than the longest usual one has met a pause.
        let cut = sorted.partition_point(|ns| f64::from(*ns) < 10.0 * middle);
        let own = middle - alone[0][0].min(middle * 0.9);
        let spread = spread_of(&sorted[..cut.max(1)])
            .map(|ns| (((ns as f64 - (middle - own)) / own).clamp(0.0, 1000.0) * 1000.0) as u64);
        Costs { alone, beside, spread }
    }

    fn model(&self) -> DeviceCosts {
        let [few, many] = self.alone.map(|[small, large]| line(small, large));
        let (latency_ns, latency_byte_ps) = line(self.beside[0], self.beside[1]);
        DeviceCosts {
            command_ns: [few.0, many.0],
            byte_ps: [few.1, many.1],
            latency_ns,
            latency_byte_ps,
            spread: self.spread,
        }
    }

    /// Moves by what the model is beside the device at one size and depth.
    fn correct(&mut self, size: usize, depth: u64, device: f64, model: f64) {
        let ratio = (model / device).clamp(0.5, 2.0);
        match depth {
            1 => {
                let moved = self.beside[size] + (1e9 / device - 1e9 / model);
                self.beside[size] = moved.clamp(100.0, 1e9);
            }
            FEW => self.alone[0][size] *= ratio,
            _ => self.alone[1][size] *= ratio,
        }
    }
}

/// A slice of the model.
pub fn modelled(model: &DeviceModel, shape: Shape) -> Slice {
    some(model, shape, JUDGED)
}

/// As many requests.
fn some(model: &DeviceModel, shape: Shape, count: usize) -> Slice {
    let world = World::new(WorldConfig { shuffle: false, turns_max: u64::MAX, ..WorldConfig::new(1) });
    let disk = world.add_disk(Image::new(MODELLED_BYTES / PAGE as u64 * PAGE as u64));
    world.set_model(disk, &model.sheet());
    let (executor, _) = world.executor(1);
    let rt = executor.rt().clone();
    let disk = rt.open_disk("sim0", OpenMode::ReadWrite).expect("the disk is there");
    let hour = Duration::from_secs(3600);
    let content = rt.arena().take_zeroed(LARGE as usize).freeze();
    let ended = world.run(&executor, 2 * hour, async move {
        slice(&rt, &disk, (shape, MODELLED_BYTES), 1, (hour, count), &content).await
    });
    // A model that is so slow that an hour is not enough has had no more answers.
    ended.ok().and_then(Result::ok).unwrap_or_default()
}

/// Fits a model to what was measured: the whole grid, or only its reads. Then writes are taken to cost what reads do.
pub fn fit(name: &str, source: &str, size_mib: u64, grid: &[Measured], flushes: &[u32]) -> DeviceModel {
    let of = |write_percent: u64| {
        move |bytes: u64, depth: u64| {
            let is_it = |one: &&Measured| {
                let shape = one.shape;
                (shape.write_percent, shape.bytes, shape.depth) == (write_percent, bytes, depth)
            };
            grid.iter().find(is_it).expect("the grid has it").clone()
        }
    };
    let has_writes = grid.iter().any(|one| one.shape.write_percent == 100);
    let at_once = at_once(grid);
    let mut read = Costs::first(of(0), at_once);
    let mut write = has_writes.then(|| Costs::first(of(100), at_once));
    let (pause_every_ns, pause_ns) = pauses(grid);
    let mut sorted = flushes.to_vec();
    sorted.sort_unstable();
    let flush_ns = spread_of(&sorted);
    let model = |read: &Costs, write: &Option<Costs>| DeviceModel {
        name: name.into(),
        source: source.into(),
        size_mib,
        at_once,
        read: read.model(),
        write: write.as_ref().unwrap_or(read).model(),
        flush_ns,
        pause_every_ns,
        pause_ns,
    };
    for _ in 0..ROUNDS {
        let now = model(&read, &write);
        for one in grid {
            let costs = match &mut write {
                Some(write) if one.shape.write_percent == 100 => write,
                _ => &mut read,
            };
            let size = usize::from(one.shape.bytes == LARGE);
            costs.correct(
                size,
                one.shape.depth,
                one.rate().max(1.0),
                some(&now, one.shape, FITTED).rate().max(1.0),
            );
        }
    }
    model(&read, &write)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device whose figures are known.
    fn device() -> DeviceModel {
        let costs = |command: u64| DeviceCosts {
            command_ns: [command, command / 2],
            byte_ps: [400, 350],
            latency_ns: 60_000,
            latency_byte_ps: 200,
            spread: [700, 800, 900, 1000, 1100, 1300, 1800, 2500, 4000],
        };
        DeviceModel {
            name: "known".into(),
            source: String::new(),
            size_mib: 64,
            at_once: 0,
            read: costs(16_000),
            write: costs(24_000),
            flush_ns: [1_000_000; 9],
            pause_every_ns: 20_000_000,
            pause_ns: [3_000_000; 9],
        }
    }

    fn measured(device: &DeviceModel, shape: Shape) -> Measured {
        Measured { shape, slices: vec![modelled(device, shape)] }
    }

    #[test]
    fn a_device_of_the_family_is_found_again() {
        let device = device();
        let grid: Vec<Measured> = grid().into_iter().map(|shape| measured(&device, shape)).collect();
        let found = fit("found", "", 64, &grid, &[900_000, 1_000_000, 1_100_000]);
        assert_eq!((found.flush_ns[3], found.at_once), (1_000_000, 0));
        let every = found.pause_every_ns as f64 / device.pause_every_ns as f64;
        assert!((0.8..1.25).contains(&every), "a pause every {} ns", found.pause_every_ns);
        assert!(found.pause_ns[3].abs_diff(3_000_000) < 200_000, "{:?}", found.pause_ns);
        for (name, shape) in workloads() {
            let (theirs, ours) = (measured(&device, shape), measured(&found, shape));
            let (rate, p99) = (ours.rate() / theirs.rate(), ours.p99() / theirs.p99());
            assert!((0.93..1.07).contains(&rate), "{name}: {rate} of the rate");
            assert!((0.85..1.15).contains(&p99), "{name}: {p99} of the 99th percentile");
        }
    }

    #[test]
    fn a_device_that_works_on_a_few_at_once_is_found_again() {
        let costs = DeviceCosts {
            command_ns: [10_000, 10_000],
            byte_ps: [0, 300],
            latency_ns: 3_000_000,
            latency_byte_ps: 800,
            spread: [960, 980, 990, 1000, 1020, 1070, 1200, 1300, 1400],
        };
        let device =
            DeviceModel { at_once: 10, read: costs.clone(), write: costs, pause_every_ns: 0, ..device() };
        let rate = |depth| {
            measured(&device, Shape { write_percent: 0, bytes: SMALL, depth, in_order: false }).rate()
        };
        // Each takes 3.07 ms on the average, and ten go on at a time.
        let rates = [1, FEW, MANY].map(|depth| (rate(depth) * 3.07e-3).round());
        assert_eq!(rates, [1.0, 8.0, 10.0]);
        let grid: Vec<Measured> = grid().into_iter().map(|shape| measured(&device, shape)).collect();
        let found = fit("found", "", 64, &grid, &[1_000_000]);
        assert_eq!((found.at_once, found.pause_every_ns), (10, 0));
        for (name, shape) in workloads() {
            let (theirs, ours) = (measured(&device, shape), measured(&found, shape));
            let (rate, p99) = (ours.rate() / theirs.rate(), ours.p99() / theirs.p99());
            assert!((0.95..1.05).contains(&rate), "{name}: {rate} of the rate");
            assert!((0.9..1.1).contains(&p99), "{name}: {p99} of the 99th percentile");
        }
    }

    #[test]
    fn without_writes_they_cost_what_reads_do() {
        let device = device();
        let reads = grid().into_iter().filter(|shape| shape.write_percent == 0);
        let grid: Vec<Measured> = reads.map(|shape| measured(&device, shape)).collect();
        let found = fit("found", "", 64, &grid, &[]);
        assert_eq!((found.read, found.flush_ns), (found.write, [0; POINTS.len()]));
    }
}
