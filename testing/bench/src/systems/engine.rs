//! The engine in this process, without a network: what a front-end in the same process would get.
//!
//! Each request in flight is a task on the core that owns the volume. Processor time is this whole process's: engine,
//! kernel threads of its ring, and the load itself, which cannot be told apart.

use super::System;
use super::ageing::{Ages, Rotation};
use crate::measure::{Direction, FIRST_WRITES, Measured, Places, Samples, State, Work};
use forebay_base::Random;
use forebay_e2e::host::{Context, Outcome};
use forebay_pool::{
    Compression, Engine, EngineConfig, Host, IoError, Layout, PoolSpec, SyncPolicy, Volume, VolumeDelete,
    VolumeFormat, VolumeInfo, VolumeSpec,
};
use forebay_runtime::{Cores, Rt, uring};
use std::cell::RefCell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Name of the engine's pool.
pub const POOL: &str = "bench";

pub struct InProcess {
    engine: Engine,
    cores: Cores,
    running: Option<uring::Running>,
    volume: VolumeInfo,
    /// Names of thin volumes made so far; the last is deleted when the next is made.
    thin: Option<String>,
    snapshots: RefCell<Rotation>,
}

impl Ages for InProcess {
    fn size(&self) -> u64 {
        self.volume.size
    }
    fn work(&self, work: &Work, places: Places) -> Outcome {
        self.load(&self.volume, *work, places, None).map(drop)
    }
    fn snapshot(&self, name: &str) -> Outcome {
        let volumes = vec![format!("{POOL}/{}", self.volume.name)];
        wait(self.engine.snapshot_create(volumes, name)).map(drop).context("snapshot create")
    }
    fn delete(&self, name: &str) -> Outcome {
        let name = format!("{POOL}/{}@{name}", self.volume.name);
        wait(self.engine.snapshot_delete(&name)).context("snapshot delete")
    }
    fn full(&self) -> Outcome<f64> {
        let pools = wait(self.engine.pools());
        let pool = pools.first().ok_or("the pool is gone")?;
        Ok(pool.used as f64 / pool.size as f64)
    }
}

impl InProcess {
    pub fn create(disk: &Path, size: u64, memory: u64) -> Outcome<InProcess> {
        InProcess::on_cores(1, &[disk.to_path_buf()], size, memory)
    }

    /// With as many shards as cores.
    pub fn on_cores(count: usize, disks: &[PathBuf], size: u64, memory: u64) -> Outcome<InProcess> {
        let (cores, running) = uring::start(count).context("io_uring")?;
        let engine = Engine::new(
            cores.clone(),
            EngineConfig { memory, events: Arc::new(|_| {}), host: Host::default() },
        );
        let disks = disks.iter().map(|disk| disk.display().to_string()).collect();
        let pool = PoolSpec { shards: count, ..engine_pool(disks) };
        wait(engine.pool_create(pool)).context("pool create")?;
        let volume = wait(engine.volume_create(thin_volume("volume", size))).context("volume create")?;
        Ok(InProcess {
            engine,
            cores,
            running: Some(running),
            volume,
            thin: None,
            snapshots: RefCell::default(),
        })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    /// Runs on the volume's core and returns here.
    pub fn load(
        &self,
        volume: &VolumeInfo,
        work: Work,
        places: Places,
        limit: Option<Duration>,
    ) -> Outcome<Measured> {
        self.begin(volume, work, places, limit).end()
    }

    /// The same, and returns at once.
    pub fn begin(&self, volume: &VolumeInfo, work: Work, places: Places, limit: Option<Duration>) -> Running {
        let (done, result) = mpsc::channel();
        let id = volume.id;
        let running = Running { work, result, cpu: cpu_seconds(), start: Instant::now() };
        self.cores.core(volume.core).run(move |rt| {
            let inner = rt.clone();
            rt.spawn(async move {
                let outcome = drive(&inner, id, work, places, limit).await;
                done.send(outcome).expect("the benchmark waits for its result");
            });
        });
        running
    }
}

/// A load that has begun.
pub struct Running {
    work: Work,
    result: mpsc::Receiver<Result<Samples, IoError>>,
    cpu: f64,
    start: Instant,
}

impl Running {
    /// What it gave, when it is over.
    pub fn end(self) -> Outcome<Measured> {
        let samples = self.result.recv().context("the engine's core ended")?.context("the engine")?;
        let seconds = self.start.elapsed().as_secs_f64();
        Ok(samples.measured(&self.work, seconds, cpu_seconds() - self.cpu))
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        wait(self.engine.stop());
        if let Some(running) = self.running.take() {
            running.stop().expect("the engine's cores do not panic");
        }
    }
}

pub fn engine_pool(disks: Vec<String>) -> PoolSpec {
    PoolSpec {
        name: POOL.into(),
        layout: Layout::Single,
        disks,
        log_disks: Vec::new(),
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards: 1,
        log_bytes: None,
        force: false,
    }
}

pub fn thin_volume(name: &str, size: u64) -> VolumeSpec {
    VolumeSpec {
        pool: POOL.into(),
        name: name.into(),
        size,
        block_size: 8 << 10,
        sync: Some(SyncPolicy::Standard),
        compression: Some(Compression::Off),
        format: VolumeFormat::Thin,
        level: None,
        own_hosts: false,
    }
}

impl System for InProcess {
    fn name(&self) -> &'static str {
        "engine"
    }
    fn remark(&self) -> String {
        "in process; sync=standard, durable writes with FUA; checksums on; small cache; CPU includes the load"
            .into()
    }
    fn prepare(&mut self, state: State) -> Outcome {
        self.snapshots.borrow_mut().prepare(self, state)
    }
    fn rotate(&mut self) -> Outcome {
        self.snapshots.borrow_mut().rotate_and_rest(self)
    }
    fn run(&mut self, work: &Work, limit: Duration, seed: u64) -> Outcome<Measured> {
        self.load(&self.volume, *work, Places::run(work, self.volume.size, seed), Some(limit))
    }
    fn first_writes(&mut self, size: u64, seed: u64) -> Outcome<Option<(Measured, Measured)>> {
        if let Some(last) = self.thin.take() {
            wait(self.engine.volume_delete(&last, VolumeDelete { with_snapshots: false, purge: true }))
                .context("volume delete")?;
        }
        let volume = wait(self.engine.volume_create(thin_volume("thin", size))).context("volume create")?;
        self.thin = Some(format!("{POOL}/thin"));
        let work = FIRST_WRITES;
        let first = self.load(&volume, work, Places::once(&work, size, seed), None)?;
        let again = self.load(&volume, work, Places::once(&work, size, seed + 1), None)?;
        Ok(Some((first, again)))
    }
}

/// Keeps the work's depth in flight until `limit` has passed or `places` end.
pub async fn drive(
    rt: &Rt,
    id: forebay_base::Id,
    work: Work,
    places: Places,
    limit: Option<Duration>,
) -> Result<Samples, IoError> {
    let volume = Volume::open(rt, id)?;
    let places = Rc::new(RefCell::new(places));
    let samples = Rc::new(RefCell::new(Samples::default()));
    let deadline = limit.map(|limit| rt.now().after(limit));
    let mut tasks = Vec::new();
    for task in 0..work.depth {
        let (rt, volume) = (rt.clone(), volume.clone());
        let (places, samples) = (places.clone(), samples.clone());
        let spawner = rt.clone();
        tasks.push(spawner.spawn(async move {
            let mut random = Random::new(task as u64);
            let content = work.compressible.then(|| half_compressible(&mut random, work.size));
            while deadline.is_none_or(|deadline| rt.now() < deadline) {
                let Some(place) = places.borrow_mut().next() else { break };
                let at = place * work.size as u64;
                let start = rt.now();
                if work.direction.writes(&mut random) {
                    let mut data = rt.buffer(work.size);
                    // The rest is what the buffer held before, if nothing here looks at content.
                    if let Some(content) = &content {
                        data.copy_from_slice(content);
                    }
                    data[..8].copy_from_slice(&random.next_u64().to_le_bytes());
                    volume.write(at, vec![data.freeze()], work.direction == Direction::DurableWrite).await?;
                } else {
                    volume.read(at, work.size).await?;
                }
                samples.borrow_mut().add(rt.now().since(start));
            }
            Ok::<(), IoError>(())
        }));
    }
    for task in tasks {
        task.await?;
    }
    if work.direction == Direction::Write {
        volume.flush().await?;
    }
    Ok(samples.take())
}

/// Blocks of 8 KiB of which lz4 leaves a little less than half, so that of two allocation units one is enough.
fn half_compressible(random: &mut Random, size: usize) -> Vec<u8> {
    let noise = |at: usize| at % 8192 < 3840;
    (0..size).map(|at| if noise(at) { random.next_u64() as u8 } else { b'-' }).collect()
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    // SAFETY: the structure is plain numbers, filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Waits on this thread for something that other threads do.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}
