//! Histories of volumes, snapshots and clones, held against a plain model.
//!
//! One thing is done after the other, so that the model knows what everything holds; the power fails in the middle of some. Then
//! what was being done is done or not, whole, and everything else is as it was. Snapshots are looked at by way of clones. At
//! other times a snapshot of several volumes is taken while somebody writes to them in turn: it must hold the
//! writes up to one moment, those acknowledged before it among them. The offline checker recounts the space after every crash and at
//! the end.

mod model;
mod travel;

use crate::harness::{Failure, LIMIT, TELL_EVENTS, engine, in_world};
use crate::matrix::Shown;
use crate::setup::{POOL, Setup};
use crate::verify::offline_check;
use forebay_base::Random;
use forebay_pool::{
    Compression, Engine, Error, ErrorKind, Import, IoError, Setting, SnapshotChange, SyncPolicy, Volume,
    VolumeChange, VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Buf, Rt};
use forebay_simulation::{Fate, Image, World, WorldConfig};
use futures_util::future::{Either, join, select};
use model::{Content, Model, Op, fill, is_filled};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Histories that one run of the row plays for so many operations that it may have.
const HISTORIES: u64 = 112;
const HISTORIES_OPERATIONS: u64 = 120;
/// Times that a machine is started in a history, and what is done in between.
const STARTS: u64 = 3;
const OPERATIONS: u64 = 18;
const BLOCK: u64 = 8192;
/// Blocks that are used: at the ends of leaves, of nodes above them, and of small volumes.
const ISLANDS: [u64; 4] = [0, 500, 5 * 508 - 6, 508 * 508 - 6];
const ISLAND: u64 = 16;
/// Sizes of volumes in blocks: one leaf, some leaves, three levels.
const SIZES: [u64; 4] = [256, 520, 5000, 508 * 508 + 300];
const VOLUMES_MAX: usize = 5;
const SNAPSHOTS_MAX: usize = 8;
/// A crash comes this long after an operation began, at most.
const CRASH_NANOS_MAX: u64 = 6_000_000;

/// Plays histories on the setup's pool.
pub fn lineage(setup: &Setup) -> Result<Shown, Failure> {
    let mut shown = Shown::default();
    for nth in 0..HISTORIES * setup.operations.div_ceil(HISTORIES_OPERATIONS) {
        let seed = setup.seed.wrapping_mul(1009).wrapping_add(nth);
        let crashes = history(setup, seed)
            .map_err(|failure| failure.because(&format!("history {nth} of this seed")))?;
        shown += Shown { cases: 1, faults: crashes, ..Shown::default() };
    }
    Ok(shown)
}

/// One history; how often the power failed.
fn history(setup: &Setup, seed: u64) -> Result<u64, Failure> {
    let setup = Setup { second: false, disk_mib: setup.disk_mib.max(24), ..setup.clone() };
    let random = Rc::new(RefCell::new(Random::new(seed)));
    // Where crashes are, every write is durable when it is acknowledged.
    let crashes = random.borrow_mut().below(3) > 0;
    let (mut known, mut unfinished) = (vec![Model::default()], None);
    let mut images: Vec<Image> = setup.paths().iter().map(|_| Image::new(setup.disk_bytes())).collect();
    let numbers = Rc::new(Cell::new(0));
    for start in 0..STARTS {
        let mut config = WorldConfig::new(random.borrow_mut().next_u64());
        config.shuffle = setup.shuffle;
        config.limits = setup.limits();
        let world = World::new(config);
        images.iter().for_each(|image| {
            world.add_disk(image.clone());
        });
        let (random2, numbers, setup2) = (random.clone(), numbers.clone(), setup.clone());
        let (before, begun) = (known.clone(), unfinished.take());
        let world2 = world.clone();
        let ended = in_world(&world, setup.conditions(), LIMIT, move |rt, cores| async move {
            let (engine, _) = engine(cores);
            if start == 0 {
                engine
                    .pool_create(setup2.pool_spec())
                    .await
                    .map_err(|error| told("creating the pool", error))?;
            } else {
                let imported = engine.pool_import(POOL, setup2.paths(), Import::default()).await;
                imported.map_err(|error| told("the import", error))?;
            }
            let model = RefCell::default();
            let player =
                Player { world: world2, setup: setup2, rt, engine, random: random2, numbers, crashes, model };
            let is_doubtful = player.recognise(before).await?;
            player.finish(begun, is_doubtful).await?;
            player.play(start + 1 == STARTS).await
        })?;
        let now = match ended {
            End::Crash(now, op) => {
                unfinished = op;
                now
            }
            End::Export { absent } => {
                offline_check(world.power_loss(|_, _| Fate::Whole), absent, &setup)?;
                return Ok(start);
            }
        };
        let mut random = Random::new(seed ^ (start + 1));
        images = world.power_loss(|_, sectors| match random.below(4) {
            0 => Fate::Whole,
            1 if sectors > 1 => Fate::Head(1 + random.below(sectors as u64 - 1) as usize),
            _ => Fate::Lost,
        });
        offline_check(images.clone(), 0, &setup)?;
        known = now;
    }
    unreachable!("the last start ends in good order")
}

fn told(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Outcome(format!("{what} failed: {error}"))
}

/// How a start of the machine ends.
enum End {
    /// With a power loss: what the pool may hold then, and what was being done.
    Crash(Vec<Model>, Option<Op>),
    /// In good order, without some disks.
    Export { absent: u64 },
}

/// Whoever does all this.
struct Player {
    world: World,
    setup: Setup,
    rt: Rt,
    engine: Engine,
    random: Rc<RefCell<Random>>,
    numbers: Rc<Cell<u32>>,
    crashes: bool,
    model: RefCell<Model>,
}

impl Player {
    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    fn number(&self) -> u32 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// Finds out which of the models is what the pool holds. Gives whether another one would look the same.
    async fn recognise(&self, known: Vec<Model>) -> Result<bool, Failure> {
        let mut failures = Vec::new();
        for model in &known {
            *self.model.borrow_mut() = model.clone();
            match self.verify().await {
                Ok(()) => return Ok(known.iter().any(|other| other != model && other.looks_like(model))),
                Err(failure) => failures.push(failure),
            }
        }
        let (count, first, last) = (failures.len(), failures.swap_remove(0), failures.pop());
        Err(match last {
            None => first,
            Some(last) => first.because(&format!("the first of {count} that it might be; the last: {last}")),
        })
    }

    /// Does many things. The power fails in the middle of one, or the pool is exported.
    async fn play(&self, is_last: bool) -> Result<End, Failure> {
        let operations = if is_last { OPERATIONS } else { self.below(OPERATIONS) + 1 };
        for _ in 0..operations {
            if self.below(6) == 0 && !self.model.borrow().volumes.is_empty() {
                self.snapshot_while_written().await?;
            } else if let Some(op) = self.draw() {
                self.perform(&op).await?;
            }
        }
        if is_last {
            let absent = if self.below(3) == 0 { self.scrub_and_lose().await? } else { 0 };
            self.verify().await?;
            self.engine.pool_export(POOL).await.map_err(|error| told("the export", error))?;
            return Ok(End::Export { absent });
        }
        let before = self.model.borrow().clone();
        let Some(op) = self.draw().filter(|_| self.crashes) else {
            // Everything is made durable, and the power fails while nothing goes on.
            self.engine.checkpoint(POOL).await.map_err(|error| told("a checkpoint", error))?;
            return Ok(End::Crash(vec![before], None));
        };
        self.crash_amid(before, &op).await
    }

    /// The power fails while something is done and somebody writes. It is done at one moment between the writes or not at all, and each write that was
    /// acknowledged is there, on the side of that moment where it belongs.
    async fn crash_amid(&self, before: Model, op: &Op) -> Result<End, Failure> {
        // The writer goes by the name.
        let writable = |volume: &&String| !matches!(op, Op::DeleteVolume { volume: gone, .. } | Op::Rename { volume: gone, .. } if gone == *volume);
        let volume = before.volumes.keys().rfind(writable).cloned();
        let writes: Vec<Op> = match &volume {
            None => Vec::new(),
            Some(volume) => (0..8)
                .map(|_| {
                    let (volume, first, number) = (volume.clone(), self.below(2 * ISLAND), self.number());
                    Op::Write { volume, first, count: 1, number }
                })
                .collect(),
        };
        let (begun, done, asked) = (Cell::new(0), Cell::new(0), Cell::new(None));
        let write = async {
            for write in &writes {
                begun.set(begun.get() + 1);
                match self.ask(write).await {
                    Ok(()) => done.set(done.get() + 1),
                    Err(ErrorKind::NoSpace) => {
                        begun.set(done.get());
                        return Ok(());
                    }
                    Err(kind) => return Err(Failure::Outcome(format!("{write:?} beside {op:?}: {kind:?}"))),
                }
            }
            Ok(())
        };
        let ask = async {
            let result = self.ask(op).await;
            asked.set(Some(result.is_ok()));
        };
        let moment = Duration::from_nanos(self.below(CRASH_NANOS_MAX));
        let (doing, crash) = (pin!(join(write, ask)), pin!(self.rt.sleep(moment)));
        if let Either::Left(((written, ()), _)) = select(doing, crash).await {
            written?;
        }
        let mut known = Vec::new();
        for count in done.get()..=begun.get() {
            let apply = |mut model: Model, ops: &[Op]| {
                for op in ops {
                    model.apply(op);
                }
                model
            };
            if asked.get() != Some(true) {
                known.push(apply(before.clone(), &writes[..count]));
            }
            for moment in (0..=count).filter(|_| asked.get() != Some(false)) {
                let mut model = apply(before.clone(), &writes[..moment]);
                model.apply(op);
                known.push(apply(model, &writes[moment..count]));
            }
        }
        known.dedup();
        Ok(End::Crash(known, Some(op.clone())))
    }

    /// Some of what one disk holds rots, a scrub puts it right, and as many others go as the layout allows: what only snapshots have
    /// was scrubbed, too, or it is lost now. Gives who went, bit by bit.
    async fn scrub_and_lose(&self) -> Result<u64, Failure> {
        let victim = self.below(self.setup.data_disks() as u64) as usize;
        let others = (0..self.setup.data_disks()).filter(|disk| *disk != victim);
        let lost: Vec<usize> = others.take(self.setup.redundancy()).collect();
        if lost.is_empty() {
            return Ok(0);
        }
        // What is on its way to the disks, or being deleted, is not met by a scrub that begins now.
        self.rt.sleep(Duration::from_secs(1)).await;
        self.engine.checkpoint(POOL).await.map_err(|error| told("a checkpoint", error))?;
        let image = self.world.image(victim);
        let pages = (0..image.size() / BLOCK).filter(|page| image.page(*page).is_some());
        for page in pages.filter(|_| self.below(3) == 0) {
            self.world.rot(victim, page * BLOCK + self.below(BLOCK), &[1 << self.below(8)]);
        }
        self.engine.scrub_start(POOL).await.map_err(|error| told("starting a scrub", error))?;
        let status = self.engine.pool_scrubbed(POOL).await.map_err(|error| told("scrubbing", error))?;
        if let Some(scrub) = status.scrub.filter(|scrub| scrub.lost > 0) {
            return Err(Failure::Outcome(format!("rot of one disk was too much for the scrub: {scrub:?}")));
        }
        lost.iter().for_each(|disk| self.world.set_gone(*disk, true));
        Ok(lost.iter().map(|disk| 1 << disk).sum())
    }

    /// Something that can be done now.
    fn draw(&self) -> Option<Op> {
        let model = self.model.borrow();
        let pick = |count: usize| self.below(count as u64) as usize;
        let volumes: Vec<&String> = model.volumes.keys().collect();
        let new = || format!("v{}", self.number());
        if volumes.is_empty() || (volumes.len() < 2 && self.below(3) == 0) {
            return Some(self.create(new()));
        }
        let volume = volumes[pick(volumes.len())].clone();
        let size = model.volumes[&volume].size;
        let range = || {
            let islands: Vec<u64> = ISLANDS.into_iter().filter(|at| at + 2 * ISLAND <= size).collect();
            let first = islands[pick(islands.len())] + self.below(ISLAND);
            (first, 1 + self.below(ISLAND))
        };
        let snapshots: Vec<(&str, &str)> =
            model.snapshots.values().map(|known| (&*known.volume, &*known.name)).collect();
        let snapshot = (!snapshots.is_empty()).then(|| {
            let (volume, name) = snapshots[pick(snapshots.len())];
            (volume.to_string(), name.to_string())
        });
        if self.setup.renames && self.below(6) == 0 {
            return Some(match snapshot.filter(|_| self.below(2) == 0) {
                Some((volume, name)) => {
                    Op::RenameSnapshot { volume, name, new: format!("s{}", self.below(6)) }
                }
                // A name may be taken, or be its own.
                None if self.below(3) == 0 => {
                    Op::Rename { new: volumes[pick(volumes.len())].clone(), volume }
                }
                None => Op::Rename { volume, new: new() },
            });
        }
        Some(match (self.below(24), snapshot) {
            (0, _) if volumes.len() < VOLUMES_MAX => self.create(new()),
            (1, _) => Op::Checkpoint,
            (2, _) => {
                let larger: Vec<u64> = SIZES.into_iter().filter(|known| *known > size).collect();
                Op::Resize { size: *larger.first()?, volume }
            }
            (3, _) => {
                let (first, count) = range();
                Op::Discard { volume, first, count }
            }
            (4..=6, _) if snapshots.len() < SNAPSHOTS_MAX => {
                let volumes = volumes.into_iter().filter(|other| **other == volume || self.below(3) == 0);
                // A name may be taken already.
                Op::Snapshot { volumes: volumes.cloned().collect(), name: format!("s{}", self.below(6)) }
            }
            (7 | 8, Some((volume, name))) => Op::DeleteSnapshot { volume, name },
            (9, Some((volume, name))) => Op::Rollback { volume, name },
            (10 | 11, Some((volume, name))) if volumes.len() < VOLUMES_MAX => {
                Op::Clone { volume, name, new: new() }
            }
            (12, _) => Op::Promote { volume },
            (13, _) => Op::DeleteVolume { volume, with_snapshots: self.below(2) == 0 },
            (14, Some((volume, name))) => Op::Hold { volume, name, held: self.below(3) == 0 },
            (15, _) => Op::Compress { volume, compression: self.compression() },
            (16..=18, Some(_)) => self.draw_travel(&model, volumes.len() < VOLUMES_MAX, new)?,
            _ => {
                let (first, count) = range();
                Op::Write { volume, first, count, number: self.number() }
            }
        })
    }

    fn create(&self, volume: String) -> Op {
        let size = SIZES[self.below(SIZES.len() as u64) as usize];
        let format = match self.below(6) {
            0 => VolumeFormat::ZeroedThick,
            1 => VolumeFormat::EagerZeroedThick,
            _ => VolumeFormat::Thin,
        };
        Op::Create { volume, size, format }
    }

    fn compression(&self) -> Compression {
        [Compression::Off, Compression::Lz4, Compression::Zstd(1)][self.below(3) as usize]
    }

    /// Does something, and holds against the model whether it was refused.
    async fn perform(&self, op: &Op) -> Result<(), Failure> {
        let mut after = self.model.borrow().clone();
        let expected = after.apply(op);
        let result = self.ask(op).await;
        let refused =
            |kind: ErrorKind| matches!(kind, ErrorKind::Conflict | ErrorKind::Unsafe | ErrorKind::NotFound);
        match result {
            Ok(()) if expected => *self.model.borrow_mut() = after,
            Err(kind) if !expected && refused(kind) => {}
            // There may be no room for something new; for less there always is.
            Err(ErrorKind::NoSpace) if !matches!(op, Op::DeleteSnapshot { .. } | Op::DeleteVolume { .. }) => {
            }
            other => {
                let text = format!(
                    "{op:?}: {other:?}, but it should {}",
                    if expected { "work" } else { "be refused" }
                );
                return Err(Failure::Outcome(text));
            }
        }
        Ok(())
    }

    async fn ask(&self, op: &Op) -> Result<(), ErrorKind> {
        if TELL_EVENTS.get() {
            println!("  {op:?}");
        }
        let engine = &self.engine;
        let full = |volume: &str| format!("{POOL}/{volume}");
        let snapshot = |volume: &str, name: &str| format!("{POOL}/{volume}@{name}");
        let kind = |error: Error| {
            if TELL_EVENTS.get() {
                println!("  {op:?}: {error}");
            }
            error.kind
        };
        match op {
            Op::Create { volume, size, format } => {
                let sync = match (self.crashes, self.below(3)) {
                    (true, _) | (_, 0) => SyncPolicy::Always,
                    (_, 1) => SyncPolicy::Standard,
                    _ => SyncPolicy::Disabled,
                };
                let (pool, name, size, format) = (POOL.into(), volume.clone(), size * BLOCK, *format);
                let (sync, compression) = (Some(sync), Some(self.compression()));
                let spec = VolumeSpec {
                    pool,
                    name,
                    size,
                    block_size: BLOCK as u32,
                    sync,
                    compression,
                    format,
                    level: None,
                    own_hosts: false,
                };
                engine.volume_create(spec).await.map(drop).map_err(kind)
            }
            Op::Write { volume, first, count, number } => {
                let data = self.data(*first, *count, *number);
                let volume = self.open(volume).await.map_err(kind)?;
                volume.write(first * BLOCK, vec![data], false).await.map_err(io)
            }
            Op::Discard { volume, first, count } => {
                let volume = self.open(volume).await.map_err(kind)?;
                volume.discard(first * BLOCK, count * BLOCK, false).await.map_err(io)
            }
            Op::Resize { volume, size } => {
                engine.volume_resize(&full(volume), size * BLOCK).await.map(drop).map_err(kind)
            }
            Op::Snapshot { volumes, name } => {
                let volumes = volumes.iter().map(|volume| full(volume)).collect();
                engine.snapshot_create(volumes, name).await.map(drop).map_err(kind)
            }
            Op::Hold { volume, name, held } => {
                let change = SnapshotChange { held: Some(*held), ..Default::default() };
                engine.snapshot_set(&snapshot(volume, name), change).await.map(drop).map_err(kind)
            }
            Op::DeleteSnapshot { volume, name } => {
                engine.snapshot_delete(&snapshot(volume, name)).await.map_err(kind)
            }
            Op::Rollback { volume, name } => {
                engine.volume_rollback(&snapshot(volume, name)).await.map(drop).map_err(kind)
            }
            Op::Clone { volume, name, new } => {
                engine.volume_clone(&snapshot(volume, name), new).await.map(drop).map_err(kind)
            }
            Op::Rename { volume, new } => {
                engine.volume_rename(&full(volume), new).await.map(drop).map_err(kind)
            }
            Op::RenameSnapshot { volume, name, new } => {
                engine.snapshot_rename(&snapshot(volume, name), new).await.map(drop).map_err(kind)
            }
            Op::Promote { volume } => engine.volume_promote(&full(volume)).await.map(drop).map_err(kind),
            Op::DeleteVolume { volume, with_snapshots } => {
                let how = VolumeDelete { with_snapshots: *with_snapshots, purge: true };
                engine.volume_delete(&full(volume), how).await.map_err(kind)
            }
            Op::Compress { volume, compression } => {
                let change =
                    VolumeChange { compression: Setting::Own(*compression), ..VolumeChange::default() };
                let set = engine.volume_set(&full(volume), change).await.map_err(kind)?;
                assert_eq!(set.compression, *compression);
                Ok(())
            }
            Op::Travel { volume, name, base, into } => {
                let base = base.as_ref().map(|(volume, name)| snapshot(volume, name));
                self.travel(&snapshot(volume, name), base, &full(into)).await.map_err(kind)
            }
            Op::Checkpoint => engine.checkpoint(POOL).await.map(drop).map_err(kind),
        }
    }

    async fn open(&self, volume: &str) -> Result<Volume, Error> {
        let info = self.engine.volume(&format!("{POOL}/{volume}")).await?;
        Volume::open(&self.rt, info.id)
            .map_err(|error| Error::new(ErrorKind::NotFound, volume, error.to_string()))
    }

    fn data(&self, first: u64, count: u64, number: u32) -> Buf {
        let mut bytes = self.rt.buffer((count * BLOCK) as usize);
        let blocks = (first..).zip(bytes.chunks_mut(BLOCK as usize));
        blocks.for_each(|(block, part)| fill(part, block << 32 | u64::from(number)));
        bytes.freeze()
    }

    /// Takes a snapshot of some volumes while they are written to in turn.
    async fn snapshot_while_written(&self) -> Result<(), Failure> {
        let name = format!("w{}", self.number());
        let volumes: Vec<String> = {
            let model = self.model.borrow();
            let all =
                model.volumes.keys().filter(|_| self.below(2) == 0).take(3).cloned().collect::<Vec<_>>();
            if all.is_empty() { model.volumes.keys().take(1).cloned().collect() } else { all }
        };
        let mut opened = Vec::new();
        for volume in &volumes {
            opened.push(self.open(volume).await.map_err(|error| told("opening", error))?);
        }
        let writes: Vec<(usize, u64, u32)> =
            (0..30).map(|nth| (nth % volumes.len(), self.below(2 * ISLAND), self.number())).collect();
        let (begun, done, refused) = (Cell::new(0), Cell::new(0), Cell::new(false));
        let start = self.below(20) as usize;
        let write = async {
            for (at, block, number) in &writes {
                begun.set(begun.get() + 1);
                let data = self.data(*block, 1, *number);
                match opened[*at].write(block * BLOCK, vec![data], false).await {
                    Ok(()) => done.set(done.get() + 1),
                    Err(IoError::NoSpace) => {
                        refused.set(true);
                        begun.set(begun.get() - 1);
                        return Ok(());
                    }
                    Err(error) => return Err(told("a write beside a snapshot", error)),
                }
            }
            Ok(())
        };
        let take = async {
            while done.get() < start && !refused.get() {
                self.rt.sleep(Duration::from_micros(20)).await;
            }
            let least = done.get();
            let full = volumes.iter().map(|volume| format!("{POOL}/{volume}")).collect();
            let taken = self.engine.snapshot_create(full, &name).await;
            (least, taken, begun.get())
        };
        let (written, (least, taken, most)) = join(write, take).await;
        written?;
        let before = self.model.borrow().clone();
        let upto = |count: usize| {
            let mut model = before.clone();
            for (at, block, number) in &writes[..count] {
                let (volume, first, number) = (volumes[*at].clone(), *block, *number);
                model.apply(&Op::Write { volume, first, count: 1, number });
            }
            model
        };
        let now = upto(done.get());
        match taken {
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::NoSpace => {
                *self.model.borrow_mut() = now;
                return Ok(());
            }
            Err(error) => return Err(Failure::Outcome(format!("a snapshot beside writes failed: {error}"))),
        }
        let mut held = Vec::new();
        for volume in &volumes {
            held.push(self.look(volume, &name, before.volumes[volume].size).await?);
        }
        // Which moment it was.
        let is_it = |count: &usize| {
            let model = upto(*count);
            volumes.iter().zip(&held).all(|(volume, held)| *model.volumes[volume].content == *held)
        };
        let Some(moment) = (least..=most.min(done.get())).find(is_it) else {
            let text = format!(
                "snapshot {name} of {volumes:?} is of no moment: {least} writes had ended when it was asked for, {most} begun when it was there"
            );
            return Err(Failure::Content(text));
        };
        let of_then = upto(moment);
        let mut model = now;
        for volume in &volumes {
            model.snapshot(volume, &name, of_then.volumes[volume].content.clone());
        }
        *self.model.borrow_mut() = model;
        Ok(())
    }

    /// What a snapshot holds.
    async fn look(&self, volume: &str, name: &str, size: u64) -> Result<BTreeMap<u64, u32>, Failure> {
        let (snapshot, look) = (format!("{POOL}/{volume}@{name}"), "look");
        self.engine.volume_clone(&snapshot, look).await.map_err(|error| told("cloning a snapshot", error))?;
        let content = self.read(look, size).await;
        let deleted = self
            .engine
            .volume_delete(&format!("{POOL}/{look}"), VolumeDelete { with_snapshots: false, purge: true })
            .await;
        deleted.map_err(|error| told("deleting a clone", error))?;
        content
    }

    /// What a volume holds where anything was ever written.
    async fn read(&self, name: &str, size: u64) -> Result<BTreeMap<u64, u32>, Failure> {
        let volume = self.open(name).await.map_err(|error| told("opening", error))?;
        let mut content = BTreeMap::new();
        for first in ISLANDS.into_iter().filter(|first| first + 2 * ISLAND <= size) {
            let read = volume.read(first * BLOCK, (2 * ISLAND * BLOCK) as usize).await;
            let parts = read.map_err(|error| told(&format!("reading {name}"), error))?;
            let bytes = parts.iter().map(|part| &part[..]).collect::<Vec<_>>().concat();
            for (block, part) in (first..).zip(bytes.chunks(BLOCK as usize)) {
                let word = u64::from_le_bytes(part[..8].try_into().expect("8 bytes"));
                let whole = is_filled(part, word);
                if !whole || (word != 0 && word >> 32 != block) {
                    return Err(Failure::Content(format!(
                        "{name}: block {block} holds {word:#x}, whole: {whole}"
                    )));
                }
                if word != 0 {
                    content.insert(block, word as u32);
                }
            }
        }
        Ok(content)
    }

    /// Holds everything against the model.
    async fn verify(&self) -> Result<(), Failure> {
        let model = self.model.borrow().clone();
        let volumes =
            self.engine.volumes(Some(POOL)).await.map_err(|error| told("listing volumes", error))?;
        let found: Vec<_> = volumes
            .iter()
            .map(|info| (info.name.clone(), info.size / BLOCK, info.origin.clone(), info.snapshots as usize))
            .collect();
        let expected: Vec<_> = model
            .volumes
            .iter()
            .map(|(name, volume)| {
                let origin = model.origin(name).map(|id| &model.snapshots[&id]);
                let origin = origin.map(|origin| format!("{}@{}", origin.volume, origin.name));
                (name.clone(), volume.size, origin, model.of(name).count())
            })
            .collect();
        same("volumes", &found, &expected)?;
        let snapshots =
            self.engine.snapshots(Some(POOL)).await.map_err(|error| told("listing snapshots", error))?;
        let mut found: Vec<_> = snapshots
            .into_iter()
            .map(|info| (info.volume, info.name, info.size / BLOCK, info.held, info.mapped / BLOCK))
            .collect();
        let mut expected: Vec<_> = model
            .snapshots
            .values()
            .map(|known| {
                let mapped = known.content.len() as u64;
                (known.volume.clone(), known.name.clone(), known.size, known.held, mapped)
            })
            .collect();
        found.sort();
        expected.sort();
        same("snapshots", &found, &expected)?;
        for (name, volume) in &model.volumes {
            agree(name, &self.read(name, volume.size).await?, &volume.content)?;
        }
        for known in model.snapshots.values() {
            let held = self.look(&known.volume, &known.name, known.size).await?;
            agree(&format!("{}@{}", known.volume, known.name), &held, &known.content)?;
        }
        Ok(())
    }
}

fn io(error: IoError) -> ErrorKind {
    match error {
        IoError::NoSpace => ErrorKind::NoSpace,
        IoError::Suspended => ErrorKind::Suspended,
        _ => ErrorKind::Io,
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &[T], expected: &[T]) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    Err(Failure::Content(format!("{what}: there are {found:?}, there should be {expected:?}")))
}

fn agree(what: &str, found: &BTreeMap<u64, u32>, expected: &Content) -> Result<(), Failure> {
    let blocks = found.keys().chain(expected.keys());
    match blocks.into_iter().find(|block| found.get(block) != expected.get(block)) {
        None => Ok(()),
        Some(block) => Err(Failure::Content(format!(
            "{what}: block {block} holds write {:?}, not {:?}",
            found.get(block),
            expected.get(block)
        ))),
    }
}
