//! What a pool's disks can do: measured through the engine itself, so that redundancy, log and group commit are in the figures.
//!
//! Each shard gets a dataset that is *being deleted* from the beginning, as its record says, and is only kept from it as long as the measurement
//! lasts: whatever ends that gives its space back. It is written from its beginning, and read as far as that came, so that no disk answers for what it never stored; then come small requests, at
//! random places, more and more of them at a time, until that brings nothing more. Where there are more disks than a few large ones keep busy, as many at a time as
//! there are disks are tried, too. Reads pass by the cache.
//!
//! The number that was enough, in terms of the time that they take of the pool, is the *window* of the scheduler ([`forebay_qos`]).
//!
//! What clients do meanwhile is missing in the figures. They are those of a short time: a device that slows down later is slower than they say.

use crate::Engine;
use crate::control::Control;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind, IoError};
use crate::read::Reader;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::registry::{UNBOUNDED, UNMEASURED};
use crate::shard::Shard;
use crate::spec::PoolSpeed;
use crate::volume::LocalVolume;
use async_recursion::async_recursion as boxed;
use forebay_base::{Id, MIB, Random};
use forebay_compress::Compression;
use forebay_device::{DiskEntry, DiskStatus};
use forebay_qos::{Affine, Costs, Kind, Task, Usual, WHOLE, Work};
use forebay_runtime::Buf;
use futures_util::future::join_all;
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// log2 of the bytes of a block: small requests are of 8 KiB.
const SHIFT: u8 = 13;
const SMALL: u32 = 1 << SHIFT;
const LARGE: u32 = MIB as u32;
/// What each shard writes and reads, where so much is free.
const BYTES_MAX: u64 = 256 * MIB;
/// This part of what is free is taken at most: 1/16.
const FREE_PART: u64 = 16;
const BYTES_MIN: u64 = 4 * MIB;
/// How long it is written at most, and how long large requests are measured, and each number of small ones.
const FILL_TIME: Duration = Duration::from_secs(5);
const LARGE_TIME: Duration = Duration::from_millis(500);
const SMALL_TIME: Duration = Duration::from_millis(100);
/// Each number of small ones is tried so often, and the best counts: whatever else a machine does can only make it slower.
const TRIES: usize = 3;
/// Requests in flight, over all shards: of large ones at least and at most (as many bytes as the gate of a shard lets in), and of small ones at most.
const LARGE_DEPTH: usize = 8;
const LARGE_DEPTH_MAX: usize = 64;
const SMALL_DEPTH_MAX: usize = 256;
/// Twice as many at a time should bring a twentieth more. Once they may not: two writers take turns in commits, and four are together.
const GAIN_MIN: f64 = 1.05;
const IN_VAIN_MAX: u32 = 2;
/// What is enough for so much of the best, and a quarter more, is the window.
const ENOUGH: f64 = 0.95;
const SPARE: f64 = 1.25;

/// The dataset of a shard that is used for it.
pub(crate) struct Sample {
    volume: LocalVolume,
    /// What is written: no block of it is like another, nor can a device make it smaller.
    data: Buf,
    /// Bytes from its beginning that are written.
    filled: Cell<u64>,
}

/// What is asked of each shard.
#[derive(Clone, Copy)]
struct Load {
    kind: Kind,
    bytes: u32,
    depth: usize,
    order: Order,
    time: Duration,
}

#[derive(Clone, Copy)]
enum Order {
    Random,
    /// From left to right, and no further.
    Once,
}

/// Requests that were over in time, and in which time.
#[derive(Clone, Copy)]
struct Measured {
    requests: u64,
    nanos: u64,
}

impl PoolSpeed {
    /// What a request takes that has the disks almost for itself, in a pool with so many.
    pub(crate) fn usual(&self, disks: usize) -> Usual {
        let small = self.read_latency.max(self.write_latency).as_nanos() as u64;
        // Each of the large requests of a measurement had its part of all they did; where there were more of them than disks keep busy, what a disk did.
        let bytes = self.read_bytes.min(self.write_bytes).max(1) / large_depth(disks) as u64;
        Usual { small, byte_ps: 1_000_000_000_000 / bytes.max(1) }
    }

    /// What requests cost.
    pub fn costs(&self) -> Costs {
        let line = |small: u64, bytes: u64| {
            Affine::through((SMALL, small as f64), (LARGE, bytes as f64 / f64::from(LARGE)))
        };
        Costs { read: line(self.read_iops, self.read_bytes), write: line(self.write_iops, self.write_bytes) }
    }
}

/// So many large requests at a time keep so many disks busy.
fn large_depth(disks: usize) -> usize {
    disks.clamp(LARGE_DEPTH, LARGE_DEPTH_MAX)
}

impl Shard {
    /// Makes a dataset that nobody sees, and that is given back at [`Shard::end_sample`] or with the next import.
    async fn begin_sample(self: &Rc<Self>, bytes: u64) -> Result<(), IoError> {
        let id = Id::from_random(self.rt.random(), self.rt.random());
        let record = DatasetRecord::new(DatasetKind::Volume, id, SHIFT, bytes, String::new());
        let state = DatasetState::Deleting;
        let mut data = self.rt.buffer(LARGE as usize);
        Random::new(self.rt.random()).fill(&mut data);
        self.sampled.set(Some(id));
        let made =
            self.create_dataset(DatasetRecord { state, compression: Compression::Off, ..record }, None).await;
        let dataset = made.inspect_err(|_| self.end_sample())?;
        dataset.gone.set(false);
        let volume = LocalVolume::of(self.clone(), dataset);
        *self.sample.borrow_mut() =
            Some(Rc::new(Sample { volume, data: data.freeze(), filled: Cell::new(0) }));
        Ok(())
    }

    fn end_sample(&self) {
        if let Some(sample) = self.sample.take() {
            sample.volume.dataset.gone.set(true);
        }
        self.sampled.set(None);
        self.deletion_work.send();
    }

    async fn end_sampling(self: Rc<Self>) -> Result<(), IoError> {
        self.end_sample();
        Ok(())
    }

    /// Whether a dataset is kept from being deleted.
    pub fn is_sample(&self, dataset: &Dataset) -> bool {
        self.sampled.get() == Some(dataset.id())
    }

    async fn load_sample(&self, load: Load) -> Result<Measured, IoError> {
        let sample = self.sample.borrow().clone().ok_or(IoError::Gone)?;
        sample.load(load).await
    }
}

impl Sample {
    /// Goes on with so many requests until the time is over, or it has been through once where it goes from left to right.
    async fn load(&self, load: Load) -> Result<Measured, IoError> {
        let rt = &self.volume.shard.rt;
        let (begun, end) = (rt.now(), rt.now().after(load.time));
        let (requests, nanos, next) = (Cell::new(0), Cell::new(1), Cell::new(0));
        let bytes = u64::from(load.bytes);
        // Only what was written is read.
        let places = match load.order {
            Order::Once => self.volume.size() / bytes,
            Order::Random => self.filled.get() / bytes,
        };
        if places == 0 {
            return Err(IoError::NoSpace);
        }
        let all = (0..load.depth).map(|_| async {
            while rt.now() < end {
                let place = match load.order {
                    Order::Random => rt.random() % places,
                    Order::Once if next.get() == places => break,
                    Order::Once => next.replace(next.get() + 1),
                };
                self.request(load, place * bytes).await?;
                requests.set(requests.get() + 1);
                nanos.set(rt.now().since(begun));
            }
            Ok(())
        });
        join_all(all).await.into_iter().collect::<Result<(), IoError>>()?;
        if let Order::Once = load.order {
            self.filled.set(next.get() * bytes);
        }
        Ok(Measured { requests: requests.get(), nanos: nanos.get() })
    }

    async fn request(&self, load: Load, at: u64) -> Result<(), IoError> {
        let volume = &self.volume;
        let len = load.bytes as usize;
        match load.kind {
            Kind::Write => {
                let from = at as usize % self.data.len();
                volume.write(at, vec![self.data.slice(from, len)], false).await
            }
            Kind::Read if load.bytes == SMALL => {
                let _active = volume.begin()?;
                volume.shard.read_packed(&volume.dataset, at >> SHIFT).await.map(drop)
            }
            Kind::Read => {
                let _active = volume.begin()?;
                let _turn = volume.shard.unasked(Task::Calibrate, Work::read(len as u64, 1));
                let (first, last) = volume.blocks(at, len as u64);
                volume.shard.read_blocks(&volume.dataset, first, last, Reader::Copier).await.map(drop)
            }
        }
    }
}

impl Control {
    /// Measures, and goes by it from now on.
    async fn calibrate(self: &Rc<Self>) -> Result<PoolSpeed, Error> {
        if self.closing.get() {
            return Err(self.error(ErrorKind::Stopped, "the pool is being closed"));
        }
        if self.calibrating.replace(true) {
            return Err(self
                .error(ErrorKind::Conflict, "the pool is being measured already")
                .remedy("Wait until the measurement is complete"));
        }
        let result = self.calibrate_alone().await;
        self.calibrating.set(false);
        self.turnstile.changed();
        if result.is_err() {
            self.set_speed(self.speed.get());
        }
        result
    }

    async fn calibrate_alone(self: &Rc<Self>) -> Result<PoolSpeed, Error> {
        let shards = self.shard_count();
        let free = self.status().await?.free;
        let bytes = (free / FREE_PART / shards as u64).min(BYTES_MAX) / MIB * MIB;
        if bytes < BYTES_MIN {
            let message = format!(
                "the measurement needs {} MiB of free space",
                BYTES_MIN * FREE_PART * shards as u64 / MIB
            );
            return Err(self
                .error(ErrorKind::NoSpace, message)
                .remedy("Delete volumes or discard data, then try again"));
        }
        self.shared.turns.set_window(UNBOUNDED);
        let begun = self.on_all(move |shard| async move { shard.begin_sample(bytes).await }).await;
        let measured = match begun {
            Ok(_) => self.measure().await,
            Err(error) => Err(error),
        };
        let ended = self.on_all(Shard::end_sampling).await;
        let speed = measured.and_then(|speed| ended.map(|_| speed))?;
        self.set_speed(Some(speed));
        // What was seen of the disks before says nothing against these figures.
        self.ledger.health.set(WHOLE);
        self.look_at_promises().await;
        self.checkpoint().await?;
        Ok(speed)
    }

    /// Runs `work` on all shards at a time.
    async fn on_all<T, W>(
        &self,
        work: impl Fn(Rc<Shard>) -> W + Clone + Send + 'static,
    ) -> Result<Vec<T>, Error>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, IoError>> + 'static,
    {
        let all = join_all((0..self.shard_count()).map(|index| self.on_shard(index, work.clone()))).await;
        let named =
            |result: Result<Result<T, IoError>, Error>| result?.map_err(|error| self.io_error("", error));
        all.into_iter().map(named).collect()
    }

    /// Requests in a second, of all shards.
    async fn rate(&self, load: Load) -> Result<f64, Error> {
        if self.closing.get() {
            return Err(self.error(ErrorKind::Stopped, "the pool is being closed"));
        }
        let depth = load.depth.div_ceil(self.shard_count());
        let all =
            self.on_all(move |shard| async move { shard.load_sample(Load { depth, ..load }).await }).await?;
        Ok(all.iter().map(|one| one.requests as f64 * 1e9 / one.nanos as f64).sum())
    }

    async fn measure(&self) -> Result<PoolSpeed, Error> {
        let large = |kind, order| Load { kind, bytes: LARGE, depth: LARGE_DEPTH, order, time: LARGE_TIME };
        let mut writing = self.rate(Load { time: FILL_TIME, ..large(Kind::Write, Order::Once) }).await?;
        let mut reading = self.rate(large(Kind::Read, Order::Random)).await?;
        let depth = large_depth(self.data_disks());
        if depth > LARGE_DEPTH {
            writing = self.rate(Load { depth, ..large(Kind::Write, Order::Random) }).await?.max(writing);
            reading = self.rate(Load { depth, ..large(Kind::Read, Order::Random) }).await?.max(reading);
        }
        let (reads, reads_enough, read_latency) = self.most(Kind::Read).await?;
        let (writes, writes_enough, write_latency) = self.most(Kind::Write).await?;
        let speed = PoolSpeed {
            read_iops: reads as u64,
            write_iops: writes as u64,
            read_bytes: (reading * f64::from(LARGE)) as u64,
            write_bytes: (writing * f64::from(LARGE)) as u64,
            read_latency,
            write_latency,
            window: Duration::ZERO,
            measured: self.rt.wall(),
        };
        let cost = |work, enough: usize| speed.costs().of(work) * enough as u64;
        let small = u64::from(SMALL);
        let window = cost(Work::read(small, 1), reads_enough).max(cost(Work::write(small, 1), writes_enough));
        Ok(PoolSpeed { window: Duration::from_nanos(window).mul_f64(SPARE), ..speed })
    }

    /// Disks in service that hold data.
    pub(crate) fn data_disks(&self) -> usize {
        let label = self.label.borrow();
        let is_of_data = |disk: &&DiskEntry| {
            disk.status == DiskStatus::Online && label.groups[usize::from(disk.group)].role == 0
        };
        label.disks.iter().filter(is_of_data).count()
    }

    /// As many small requests as there can be in a second, with how many at a time almost as many are reached, and how long one takes by itself.
    async fn most(&self, kind: Kind) -> Result<(f64, usize, Duration), Error> {
        let mut rates: Vec<(usize, f64)> = Vec::new();
        let (mut depth, mut best, mut in_vain) = (self.shard_count(), 0.0, 0);
        while depth <= SMALL_DEPTH_MAX.max(self.shard_count()) && in_vain < IN_VAIN_MAX {
            let load = Load { kind, bytes: SMALL, depth, order: Order::Random, time: SMALL_TIME };
            let mut rate = 0.0;
            for _ in 0..TRIES {
                rate = self.rate(load).await?.max(rate);
            }
            rates.push((depth, rate));
            in_vain = if rate > best * GAIN_MIN { 0 } else { in_vain + 1 };
            best = rate.max(best);
            depth *= 2;
        }
        let enough = rates.iter().find(|(_, rate)| *rate >= best * ENOUGH).map_or(depth, |(depth, _)| *depth);
        let alone = rates.first().map_or(0.0, |(depth, rate)| *depth as f64 / rate.max(1.0));
        Ok((best, enough, Duration::from_secs_f64(alone)))
    }

    /// Goes by what was measured; by nothing when that is `None`.
    pub fn set_speed(&self, speed: Option<PoolSpeed>) {
        self.speed.set(speed);
        self.shared.is_measured.store(speed.is_some(), Ordering::Relaxed);
        let (costs, window) = match speed {
            Some(speed) => (speed.costs(), speed.window.as_nanos() as u64),
            None => (UNMEASURED, UNBOUNDED),
        };
        self.shared.turns.set_costs(costs);
        self.shared.turns.set_window(window);
    }
}

impl Engine {
    /// Measures what a pool's disks can do. It takes some seconds, in which the pool is busy with it.
    #[boxed]
    pub async fn pool_calibrate(&self, pool: &str) -> Result<PoolSpeed, Error> {
        let calibrate = |control: Rc<Control>| async move {
            control.writable()?;
            control.calibrate().await
        };
        self.on_pool(pool, calibrate).await
    }
}
