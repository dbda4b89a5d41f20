//! The clients of a run: seeded tasks that use volumes in every way there is, and tell the oracle.
//!
//! Tasks draw operations from one budget and overlap freely, except that a compare-and-write has its range to
//! itself: its outcome must be known to be judged. Every read is judged when it ends. The history that
//! remains, with the world's recording, is all that crash exploration needs.

mod filling;
mod policies;
mod registry;

use crate::content::{SECTOR, fill};
use crate::harness::{Failure, FirstFailure, TELL_EVENTS, all};
use crate::oracle::{Effect, End, NEVER, Span, VolumeModel};
use crate::registry::Registry;
use crate::setup::{POOL, Setup};
use forebay_base::{GIB, MIB, Random};
use forebay_pool::{
    Compression, Engine, Error, ErrorKind, IoError, SyncPolicy, Volume, VolumeDelete, VolumeFormat,
    VolumeInfo, VolumeSpec,
};
use forebay_runtime::{Buf, Rt, yield_now};
use forebay_simulation::World;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// What a run did, as its clients saw it.
#[derive(Clone, Default, Debug)]
pub struct History {
    pub volumes: Vec<VolumeModel>,
    pub registry: Registry,
    pub ticks: u64,
}

/// Which errors the faults in play excuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tolerance {
    /// Operations may fail with `Io`, `Suspended` or `Corrupt`.
    pub errors: bool,
    /// Operations may fail with `NoSpace`.
    pub no_space: bool,
}

/// How often each kind of operation is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub write: u64,
    pub read: u64,
    pub flush: u64,
    pub discard: u64,
    pub zeroes: u64,
    pub compare: u64,
    /// A checkpoint, or compacting the pool, which ends with two.
    pub checkpoint: u64,
    pub pause: u64,
    pub manage: u64,
    /// Where the setup says so: another sync policy, of a volume or of its project; zeros over all of a volume; a change of the registry.
    pub policy: u64,
    pub wipe: u64,
    pub registry: u64,
}

impl Mix {
    /// Reads, and nothing else.
    pub const READS: Mix = Mix {
        write: 0,
        read: 1,
        flush: 0,
        discard: 0,
        zeroes: 0,
        compare: 0,
        checkpoint: 0,
        pause: 0,
        manage: 0,
        policy: 0,
        wipe: 0,
        registry: 0,
    };
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            write: 50,
            read: 12,
            flush: 7,
            discard: 6,
            zeroes: 5,
            compare: 5,
            checkpoint: 5,
            pause: 3,
            manage: 4,
            policy: 8,
            wipe: 5,
            registry: 8,
        }
    }
}

/// A volume in use.
#[derive(Clone)]
struct Live {
    model: usize,
    handle: Volume,
    name: String,
    /// Space is reserved for it.
    is_thick: bool,
    /// Its sync policy is its project's.
    in_project: bool,
    /// Ranges of sectors that a compare-and-write has for itself.
    reserved: Rc<RefCell<Vec<(u32, u32)>>>,
}

/// The state that all clients of one run share.
pub struct Clients {
    world: World,
    rt: Rt,
    engine: Engine,
    setup: Setup,
    tolerance: Tolerance,
    pub mix: Cell<Mix>,
    random: RefCell<Random>,
    history: RefCell<History>,
    live: RefCell<Vec<Live>>,
    left: Cell<u64>,
    named: Cell<usize>,
    /// Whether a change of the registry is under way.
    changes_registry: Cell<bool>,
    failure: FirstFailure,
    /// Operations that failed in a way that the tolerance excuses.
    pub excused: Cell<u64>,
    /// Those of them for which there was no space.
    pub refused: Cell<u64>,
}

const BLOCK_SIZES: [u32; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
/// Parts of large volumes that are used.
const ISLAND_SECTORS: u64 = (512 << 10) / SECTOR as u64;
/// Largest length of a compare-and-write here.
const COMPARE_SECTORS_MAX: u64 = 32;

impl Clients {
    pub fn new(world: &World, rt: &Rt, engine: &Engine, setup: &Setup, tolerance: Tolerance) -> Rc<Clients> {
        Rc::new(Clients {
            world: world.clone(),
            rt: rt.clone(),
            engine: engine.clone(),
            setup: setup.clone(),
            tolerance,
            mix: Cell::default(),
            random: RefCell::new(Random::new(setup.seed ^ 0x00c1_1e27)),
            history: RefCell::default(),
            live: RefCell::default(),
            left: Cell::new(0),
            named: Cell::new(0),
            changes_registry: Cell::new(false),
            failure: FirstFailure::default(),
            excused: Cell::new(0),
            refused: Cell::new(0),
        })
    }

    /// The next tick, marked in the recording.
    fn tick(&self) -> u64 {
        let mut history = self.history.borrow_mut();
        history.ticks += 1;
        self.world.mark(history.ticks);
        history.ticks
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    pub fn history(&self) -> History {
        self.history.borrow().clone()
    }

    /// Opens volumes anew, after an import.
    pub async fn open_again(&self) -> Result<(), Failure> {
        let names: Vec<String> = self.live.borrow().iter().map(|live| live.name.clone()).collect();
        for (nth, name) in names.iter().enumerate() {
            let failed = |error: String| Failure::Outcome(format!("opening {name} again failed: {error}"));
            let info = self.engine.volume(name).await.map_err(|error| failed(error.to_string()))?;
            let opened = Volume::open(&self.rt, info.id).map_err(|error| failed(error.to_string()))?;
            self.live.borrow_mut()[nth].handle = opened;
        }
        Ok(())
    }

    /// Creates the setup's volumes, one after the other.
    pub async fn create_volumes(&self) -> Result<(), Failure> {
        if self.setup.policies {
            self.create_project().await?;
        }
        for _ in 0..self.setup.volumes {
            self.create().await;
        }
        self.failure.check()
    }

    /// Runs `operations` operations over the setup's number of tasks, until all have ended.
    pub async fn run(self: &Rc<Clients>, operations: u64) -> Result<(), Failure> {
        self.left.set(operations);
        let tasks = (0..self.setup.clients)
            .map(|_| {
                let clients = self.clone();
                self.rt.spawn(async move {
                    while clients.left.get() > 0 && !clients.failure.is_set() {
                        clients.left.set(clients.left.get() - 1);
                        clients.operation().await;
                    }
                })
            })
            .collect();
        all(tasks).await;
        self.failure.check()
    }

    async fn operation(&self) {
        let Some(live) = self.draw_volume() else { return self.create().await };
        let mix = self.mix.get();
        let manage = if self.setup.management { mix.manage } else { 0 };
        let weights = [
            mix.write,
            mix.read,
            mix.flush,
            mix.discard,
            mix.zeroes,
            mix.compare,
            mix.checkpoint,
            mix.pause,
            manage,
            if self.setup.policies { mix.policy } else { 0 },
            if self.setup.policies { mix.wipe } else { 0 },
            if self.setup.registry { mix.registry } else { 0 },
        ];
        let mut draw = self.below(weights.iter().sum());
        let kind = weights.iter().position(|&weight| {
            let here = draw < weight;
            draw = draw.wrapping_sub(weight);
            here
        });
        match kind.expect("the draw is below the sum") {
            0 => self.write(&live).await,
            1 => self.read(&live).await,
            2 => self.flush(&live).await,
            3 => self.zero(&live, true).await,
            4 => self.zero(&live, false).await,
            5 => self.compare_and_write(&live).await,
            6 if self.below(2) == 0 => {
                let result = self.engine.checkpoint(POOL).await;
                self.outcome("a checkpoint", result.map(drop));
            }
            6 => {
                let result = self.engine.pool_compact(POOL).await;
                self.outcome("compacting the pool", result.map(drop));
            }
            7 => self.rt.sleep(Duration::from_micros(self.below(2000))).await,
            8 => self.manage(&live).await,
            9 => self.change_policy(&live).await,
            10 => self.wipe(&live).await,
            _ => self.change_registry().await,
        }
        if self.below(4) == 0 {
            yield_now().await;
        }
    }

    fn draw_volume(&self) -> Option<Live> {
        let live = self.live.borrow();
        (!live.is_empty()).then(|| live[self.below(live.len() as u64) as usize].clone())
    }

    /// Draws sectors `from..to` of a volume, half of the time at the start of an island, so that blocks are overwritten.
    fn draw_range(&self, live: &Live, sectors_max: u64) -> (u32, u32) {
        let sectors =
            live.handle.size().min(self.history.borrow().volumes[live.model].size()) / SECTOR as u64;
        let block = u64::from(live.handle.block_size()) / SECTOR as u64;
        // A large volume is used in a few places only: they lie under different leaves, and an image stays small.
        let islands = if sectors > ISLAND_SECTORS * 8 { 4 } else { 1 };
        let start = sectors / islands * self.below(islands) / block * block;
        let land = if islands == 1 { sectors } else { ISLAND_SECTORS };
        let area = if self.below(2) == 0 { (land / 8).max(block) } else { land };
        let (mut from, mut len) = (start + self.below(area), 1 + self.below(sectors_max.min(sectors)));
        if self.below(10) < 6 {
            from = from / block * block;
            len = len.next_multiple_of(block);
        }
        (from as u32, (from + len).min(sectors) as u32)
    }

    /// Like [`Clients::draw_range`], outside reserved ranges. `None` when three draws met one.
    fn draw_free_range(&self, live: &Live, sectors_max: u64) -> Option<(u32, u32)> {
        (0..3).map(|_| self.draw_range(live, sectors_max)).find(|&(from, to)| {
            // A partial block is read, changed and written whole: its neighbours count as touched too.
            let block = live.handle.block_size() / SECTOR as u32;
            let (low, high) = (from / block * block, to.next_multiple_of(block));
            !live.reserved.borrow().iter().any(|&(a, b)| a < high && low < b)
        })
    }

    /// Longest write in sectors: mostly a few blocks, at times many.
    fn draw_length_max(&self, live: &Live) -> u64 {
        let block = u64::from(live.handle.block_size()) / SECTOR as u64;
        match self.below(10) {
            0 => 512,
            1..=3 => 4 * block,
            _ => block,
        }
        .min(512)
    }

    fn issue(&self, live: &Live, effect: Effect, from: u32, to: u32) -> (u32, u64) {
        let tick = self.tick();
        let number = self.history.borrow_mut().volumes[live.model].issue(effect, from, to, tick);
        if TELL_EVENTS.get() {
            println!("  tick {tick}: {} {number}: {effect:?} of sectors {from}..{to}", live.name);
        }
        (number, tick)
    }

    /// Tells the oracle how operation `number` ended, and whether that is excused.
    fn end(&self, live: &Live, number: u32, result: Result<(), IoError>, fua: bool, what: &str) {
        let tick = self.tick();
        if TELL_EVENTS.get()
            && let Err(error) = result
        {
            println!("  tick {tick}: {} {number}: {error}", live.name);
        }
        let mut history = self.history.borrow_mut();
        let model = &mut history.volumes[live.model];
        let end = match result {
            Ok(()) => End::Acknowledged { durable: model.promises(fua) },
            // What is done piece by piece may have been begun.
            Err(IoError::NoSpace | IoError::OutOfRange) if model.is_atomic(number) => End::Refused,
            Err(_) => End::Failed,
        };
        model.end(number, end, tick);
        drop(history);
        self.data_outcome(live, what, result);
    }

    fn excuse(&self, is_refused: bool) {
        self.excused.set(self.excused.get() + 1);
        self.refused.set(self.refused.get() + u64::from(is_refused));
    }

    /// Reports an error of a data operation unless it is excused.
    fn data_outcome(&self, live: &Live, what: &str, result: Result<(), IoError>) {
        let Err(error) = result else { return };
        let deleted = self.history.borrow().volumes[live.model].deleted.issued != NEVER;
        let excused = match error {
            IoError::Gone => deleted,
            IoError::NoSpace => self.tolerance.no_space && !live.is_thick,
            IoError::Io | IoError::Suspended | IoError::Corrupt => self.tolerance.errors,
            IoError::OutOfRange | IoError::ReadOnly | IoError::Cancelled => false,
        };
        if excused {
            self.excuse(error == IoError::NoSpace);
        } else {
            self.failure.report(Failure::Outcome(format!("{what} on {} failed: {error}", live.name)));
        }
    }

    /// Reports an error of a management operation unless it is excused.
    fn outcome(&self, what: &str, result: Result<(), Error>) {
        let Err(error) = result else { return };
        let excused = match error.kind {
            ErrorKind::NoSpace => self.tolerance.no_space,
            ErrorKind::Io | ErrorKind::Suspended | ErrorKind::Corrupt => self.tolerance.errors,
            _ => false,
        };
        if excused {
            self.excuse(error.kind == ErrorKind::NoSpace);
        } else {
            self.failure.report(Failure::Outcome(format!("{what} failed: {error}")));
        }
    }

    /// The bytes that write `number` puts into sectors `from..to`, in up to three parts.
    fn data(&self, live: &Live, number: u32, from: u32, to: u32) -> Vec<Buf> {
        let mut bytes = self.rt.buffer((to - from) as usize * SECTOR);
        let tag = self.history.borrow().volumes[live.model].tag;
        fill(&mut bytes, tag, number, from);
        let whole = bytes.freeze();
        let mut parts = Vec::new();
        let mut at = 0;
        while parts.len() < 2 && self.below(3) == 0 && whole.len() - at > 1 {
            let len = 1 + self.below((whole.len() - at) as u64 - 1) as usize;
            parts.push(whole.slice(at, len));
            at += len;
        }
        parts.push(whole.slice(at, whole.len() - at));
        parts
    }

    async fn write(&self, live: &Live) {
        let Some((from, to)) = self.draw_free_range(live, self.draw_length_max(live)) else { return };
        let fua = self.below(5) == 0;
        let (number, _) = self.issue(live, Effect::Write, from, to);
        let parts = self.data(live, number, from, to);
        let result = live.handle.write(u64::from(from) * SECTOR as u64, parts, fua).await;
        self.end(live, number, result, fua, "a write");
    }

    async fn read(&self, live: &Live) {
        let (from, to) = self.draw_range(live, 256);
        self.read_range(live, from, to).await;
    }

    async fn read_range(&self, live: &Live, from: u32, to: u32) {
        let issued = self.tick();
        match read_sectors(&live.handle, from, to).await {
            Ok(bytes) => {
                let judged = self.history.borrow().volumes[live.model].judge_read(from, &bytes, issued);
                if let Err(violation) = judged {
                    self.failure.report(Failure::Content(format!("a read at tick {issued}: {violation}")));
                }
            }
            Err(error) => self.data_outcome(live, "a read", Err(error)),
        }
    }

    async fn flush(&self, live: &Live) {
        let issued = self.tick();
        let result = live.handle.flush().await;
        let ended = self.tick();
        if result.is_ok() {
            let mut history = self.history.borrow_mut();
            let model = &mut history.volumes[live.model];
            if model.promises(true) {
                model.flushed(issued, ended);
            }
        }
        self.data_outcome(live, "a flush", result);
    }

    /// A discard, which leaves partial blocks alone, or a write of zeros.
    async fn zero(&self, live: &Live, discard: bool) {
        let Some((from, to)) = self.draw_free_range(live, 2 * self.draw_length_max(live)) else { return };
        let block = live.handle.block_size() / SECTOR as u32;
        let (low, high) =
            if discard { (from.next_multiple_of(block), to / block * block) } else { (from, to) };
        let fua = self.below(5) == 0;
        let (at, len) = (u64::from(from) * SECTOR as u64, u64::from(to - from) * SECTOR as u64);
        let (number, _) = self.issue(live, Effect::Zero, low, high.max(low));
        let result = if discard {
            live.handle.discard(at, len, fua).await
        } else {
            live.handle.write_zeroes(at, len, fua).await
        };
        self.end(live, number, result, fua, if discard { "a discard" } else { "a write of zeros" });
    }

    async fn compare_and_write(&self, live: &Live) {
        let Some((from, to)) = self.draw_free_range(live, COMPARE_SECTORS_MAX) else { return };
        let to = to.min(from + COMPARE_SECTORS_MAX as u32);
        let (expected, settled) = {
            let history = self.history.borrow();
            let model = &history.volumes[live.model];
            let mut expected = self.rt.arena().take_zeroed((to - from) as usize * SECTOR);
            let mut settled = !model.busy(from, to);
            for sector in from..to {
                match model.settled(sector) {
                    None => settled = false,
                    Some(0) => {}
                    Some(number) => {
                        let at = (sector - from) as usize * SECTOR;
                        fill(&mut expected[at..at + SECTOR], model.tag, number, sector);
                    }
                }
            }
            (expected, settled)
        };
        if !settled {
            return;
        }
        let mut expected = expected;
        let wrong = (self.below(3) == 0).then(|| self.below(expected.len() as u64) as usize);
        if let Some(wrong) = wrong {
            expected[wrong] ^= 0x10;
        }
        live.reserved.borrow_mut().push((from, to));
        let (number, _) = self.issue(live, Effect::Write, from, to);
        let mut new = self.rt.buffer((to - from) as usize * SECTOR);
        fill(&mut new, self.history.borrow().volumes[live.model].tag, number, from);
        let at = u64::from(from) * SECTOR as u64;
        let result = live.handle.compare_and_write(at, expected.freeze(), new.freeze()).await;
        live.reserved.borrow_mut().retain(|&range| range != (from, to));
        match (result, wrong) {
            (Ok(Ok(())), None) => self.end(live, number, Ok(()), false, "a compare-and-write"),
            (Ok(Err(at)), Some(wrong)) if at == wrong => {
                let tick = self.tick();
                self.history.borrow_mut().volumes[live.model].end(number, End::Refused, tick);
            }
            (Err(error), _) => self.end(live, number, Err(error), false, "a compare-and-write"),
            (Ok(other), wrong) => self.failure.report(Failure::Outcome(format!(
                "a compare-and-write of sectors {from}..{to} on {} answered {other:?}; the byte that differs was {wrong:?}",
                live.name
            ))),
        }
    }

    async fn manage(&self, live: &Live) {
        match self.below(4) {
            0 => self.create().await,
            1 if self.live.borrow().len() > 1 => self.delete(live).await,
            _ => self.resize(live).await,
        }
    }

    async fn create(&self) {
        if self.live.borrow().len() >= self.setup.volumes + 2 {
            return;
        }
        let sync = self.setup.sync.unwrap_or_else(|| match self.below(6) {
            0..=2 => SyncPolicy::Always,
            3 | 4 => SyncPolicy::Standard,
            _ => SyncPolicy::Disabled,
        });
        let drawn = BLOCK_SIZES[self.below(BLOCK_SIZES.len() as u64) as usize];
        let block_size = drawn.min(self.setup.block_bytes_max());
        let size = [MIB, MIB, MIB, 12 * MIB, 40 * MIB, GIB][self.below(6) as usize];
        let size = size + self.below(4) * u64::from(block_size);
        let kinds =
            [Compression::Off, Compression::Lz4, Compression::Lz4, Compression::Lzjb, Compression::Zstd(1)];
        let compression = self.setup.compression.unwrap_or_else(|| kinds[self.below(5) as usize]);
        self.create_volume(size, block_size, sync, (compression, VolumeFormat::Thin)).await;
    }

    /// Creates a volume; it is the last of the live ones when that worked.
    async fn create_volume(
        &self,
        size: u64,
        block_size: u32,
        sync: SyncPolicy,
        (compression, format): (Compression, VolumeFormat),
    ) {
        let index = self.named.get();
        self.named.set(index + 1);
        // Of the first volumes, every other one. Those have their policy from there.
        let in_project = self.setup.policies && index % 2 == 1 && index < self.setup.volumes;
        let name = if in_project { format!("{}/v{index}", policies::PROJECT) } else { format!("v{index}") };
        let sync = if in_project { SyncPolicy::Standard } else { sync };
        let issued = self.tick();
        let model = {
            let mut history = self.history.borrow_mut();
            let full = format!("{POOL}/{name}");
            history.volumes.push(VolumeModel::new(index as u32 + 1, full, size, block_size, sync, issued));
            history.volumes.len() - 1
        };
        let (pool, name_of) = (POOL.into(), name.clone());
        let (sync, compression) = ((!in_project).then_some(sync), Some(compression));
        let spec = VolumeSpec {
            pool,
            name: name_of,
            size,
            block_size,
            sync,
            compression,
            format,
            level: None,
            own_hosts: false,
        };
        if TELL_EVENTS.get() {
            println!("  tick {issued}: {spec:?}");
        }
        match self.engine.volume_create(spec).await {
            Ok(VolumeInfo { id, .. }) => {
                let acknowledged = self.tick();
                self.history.borrow_mut().volumes[model].created.acknowledged = acknowledged;
                match Volume::open(&self.rt, id) {
                    Ok(handle) => {
                        let name = format!("{POOL}/{name}");
                        let is_thick = format != VolumeFormat::Thin;
                        self.live.borrow_mut().push(Live {
                            model,
                            handle,
                            name,
                            is_thick,
                            in_project,
                            reserved: Rc::default(),
                        });
                    }
                    Err(error) => self
                        .failure
                        .report(Failure::Outcome(format!("the new volume {name} did not open: {error}"))),
                }
            }
            Err(error) => self.outcome("creating a volume", Err(error)),
        }
    }

    async fn delete(&self, live: &Live) {
        // It is there until the end, to be written.
        if live.is_thick {
            return;
        }
        let issued = self.tick();
        self.live.borrow_mut().retain(|other| other.model != live.model);
        {
            let mut history = self.history.borrow_mut();
            let deleted = &mut history.volumes[live.model].deleted;
            if deleted.issued != NEVER {
                return;
            }
            deleted.issued = issued;
        }
        let result =
            self.engine.volume_delete(&live.name, VolumeDelete { with_snapshots: false, purge: true }).await;
        if result.is_ok() {
            let acknowledged = self.tick();
            self.history.borrow_mut().volumes[live.model].deleted.acknowledged = acknowledged;
        }
        self.outcome("deleting a volume", result);
    }

    async fn resize(&self, live: &Live) {
        let block = u64::from(live.handle.block_size());
        let issued = self.tick();
        let (place, size) = {
            let mut history = self.history.borrow_mut();
            let model = &mut history.volumes[live.model];
            let in_progress = model.sizes.iter().any(|(_, span)| span.acknowledged == NEVER);
            if model.deleted.issued != NEVER || in_progress {
                return;
            }
            // At times the tree becomes higher: 508 blocks are a leaf, 508 leaves a node above them.
            let more = [1, 3, 508, 508 * 508][self.below(4) as usize];
            let size = (model.size() + more * block).min(model.size().max(4 * GIB));
            (model.resize_issued(size, issued), size)
        };
        let result = self.engine.volume_resize(&live.name, size).await;
        let deleted = self.history.borrow().volumes[live.model].deleted.issued != NEVER;
        match result {
            Ok(info) => {
                let acknowledged = self.tick();
                self.history.borrow_mut().volumes[live.model].sizes[place].1 = Span { issued, acknowledged };
                if info.size != size {
                    let text = format!("{} was resized to {size} and is {}", live.name, info.size);
                    self.failure.report(Failure::Outcome(text));
                }
            }
            Err(error) if deleted && error.kind == ErrorKind::NotFound => {}
            Err(error) => self.outcome("resizing a volume", Err(error)),
        }
    }
}

/// The bytes of sectors `from..to`.
pub async fn read_sectors(volume: &Volume, from: u32, to: u32) -> Result<Vec<u8>, IoError> {
    let mut bytes = Vec::with_capacity((to - from) as usize * SECTOR);
    append_sectors(volume, from, to, &mut bytes).await?;
    Ok(bytes)
}

/// The same, behind what is in `bytes`.
pub async fn append_sectors(volume: &Volume, from: u32, to: u32, bytes: &mut Vec<u8>) -> Result<(), IoError> {
    let (len, before) = ((to - from) as usize * SECTOR, bytes.len());
    let parts = volume.read(u64::from(from) * SECTOR as u64, len).await?;
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    assert_eq!(bytes.len() - before, len, "a read of {len} bytes returned another length");
    Ok(())
}
