//! What must hold of a set of disks after whatever happened to them: imported by a fresh engine in a fresh world.
//!
//! Three phases. *Safety*: the pool imports, the catalog is one that clients may see, and every sector of every
//! volume passes the oracle. *Liveness*: without further faults, every volume takes a write, a discard and a
//! flush, and reads them back; at times the power fails once more and they must still be there. *Structure*: the
//! offline checker finds nothing, after an orderly export or on the disks as a crash leaves them.

use crate::content::{SECTOR, Seen, fill, parse};
use crate::harness::{Conditions, Failure, LIMIT, engine_of, host, in_world};
use crate::oracle::{Judge, NEVER, VolumeModel};
use crate::registry::AFTERWARDS;
use crate::setup::{POOL, Setup};
use crate::workload::{History, append_sectors, read_sectors};
use forebay_base::Random;
use forebay_pool::{
    DiskState, Engine, ErrorCounts, ErrorKind, Import, IoError, ScrubState, SyncPolicy, Volume, VolumeFormat,
    VolumeInfo,
};
use forebay_runtime::{Cores, Rt};
use forebay_simulation::{Fate, Image, OpKind, Recording, World, WorldConfig};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Write numbers from here on belong to verification; runs use smaller ones.
const LIVENESS_NUMBER: u32 = 1 << 30;
/// Sectors per read of a whole volume: 1 MiB.
const READ_SECTORS: u32 = 2048;

/// What is asked of a set of disks.
#[derive(Clone, Copy)]
pub struct Demand {
    /// Tick of the crash.
    pub at: u64,
    pub judge: Judge,
    /// Blocks that cannot be read are excused.
    pub read_errors: bool,
    /// An import that is refused is excused: it is an error, and no wrong data.
    pub import_errors: bool,
    /// Whether an export comes before the offline checker; otherwise it sees what a power loss leaves.
    pub export: bool,
    /// Whether the power fails once more after the liveness phase.
    pub again: bool,
    /// Whether the import is recorded, for a crash within it.
    pub record: bool,
    /// Whether the offline checker must find nothing.
    pub check: bool,
    /// Disks that are not there, bit by bit.
    pub absent: u64,
    /// The import is one that must not write, to any disk.
    pub read_only: bool,
    /// The import takes what it can get. What it says is lost is excused.
    pub force: bool,
    /// Number of the machine that imports; that of the one that made the pool is 0.
    pub host: u128,
}

impl Demand {
    /// Everything, at the end of a run.
    pub const STRICT: Demand = Demand {
        at: NEVER - 1,
        judge: Judge::STRICT,
        read_errors: false,
        import_errors: false,
        export: true,
        again: false,
        record: false,
        check: true,
        absent: 0,
        read_only: false,
        force: false,
        host: 0,
    };
    /// Right data or an error, and nothing else: for damage beyond redundancy.
    pub const NOTHING_WRONG: Demand = Demand {
        judge: Judge { durability: false, prefix: false, whole: true },
        read_errors: true,
        import_errors: true,
        export: false,
        check: false,
        ..Demand::STRICT
    };
}

/// What a verified set of disks leaves behind.
#[derive(Default)]
pub struct Verified {
    /// False when the import was refused and that was excused.
    pub imported: bool,
    /// The import's recording, when it was asked for.
    pub recording: Recording,
    /// Whether the import has told that writes are lost.
    pub told_of_loss: bool,
    pub unreadable_sectors: u64,
    /// A read ended because writing had stopped.
    pub read_suspended: bool,
    pub repaired: u64,
    /// What was held against each disk, by its number.
    pub errors: BTreeMap<u16, ErrorCounts>,
    /// State of each disk, by its number.
    pub states: BTreeMap<u16, DiskState>,
    /// The disks afterwards, all writes done.
    pub left: Vec<Image>,
}

/// One volume as it was found, and as the liveness phase changed it.
struct Found {
    info: VolumeInfo,
    tag: u32,
    pieces: Vec<Piece>,
}

/// Whole blocks that follow each other.
struct Piece {
    first: u32,
    bytes: Vec<u8>,
    /// By sector.
    unreadable: Vec<bool>,
}

impl Piece {
    fn sectors(&self) -> u32 {
        self.unreadable.len() as u32
    }

    /// The bytes of sectors `from..to` of the volume.
    fn bytes_mut(&mut self, from: u32, to: u32) -> &mut [u8] {
        &mut self.bytes[(from - self.first) as usize * SECTOR..(to - self.first) as usize * SECTOR]
    }

    fn is_readable(&self, from: u32, to: u32) -> bool {
        !self.unreadable[(from - self.first) as usize..(to - self.first) as usize].contains(&true)
    }
}

/// Verifies `images` against what `history` allows.
pub fn verify(
    setup: &Setup,
    images: Vec<Image>,
    history: &Rc<History>,
    demand: Demand,
    seed: u64,
) -> Result<Verified, Failure> {
    verify_in(setup, images, history, demand, seed, &|_| {})
}

/// Like [`verify`], after `prepare` has done something to the world in which the import happens.
pub fn verify_in(
    setup: &Setup,
    images: Vec<Image>,
    history: &Rc<History>,
    demand: Demand,
    seed: u64,
    prepare: &dyn Fn(&World),
) -> Result<Verified, Failure> {
    let mut config = WorldConfig::new(seed);
    config.shuffle = setup.shuffle;
    config.limits = setup.limits();
    let world = World::new(config);
    images.into_iter().for_each(|image| {
        world.add_disk(image);
    });
    if demand.record {
        world.record();
    }
    let paths = take_away(&world, demand.absent);
    prepare(&world);
    let before: Vec<Image> = (0..world.disk_count()).map(|disk| world.image(disk)).collect();
    let (w, h) = (world.clone(), history.clone());
    let first_paths = paths.clone();
    let (mut verified, found) = in_world(&world, setup.conditions(), LIMIT, move |rt, cores| async move {
        let (engine, events) = engine_of(cores, host(demand.host));
        let mut verified = Verified::default();
        let import = Import { read_only: demand.read_only, force: demand.force };
        match engine.pool_import(POOL, first_paths, import).await {
            Ok(_) => verified.imported = true,
            Err(_) if demand.import_errors => return Ok((verified, Vec::new())),
            Err(error) => return Err(Failure::Outcome(format!("the import failed: {error}"))),
        }
        verified.recording = w.take_recording();
        let told = |code| {
            events.lock().expect("no holder of this lock panics").iter().any(|event| event.code == code)
        };
        let cut = Judge { durability: false, ..demand.judge };
        let (judge, is_lost) = match (told("log.lost") || told("catalog.lost"), told("log.cut")) {
            (true, _) => (Judge { prefix: false, whole: false, ..cut }, true),
            (false, true) => (cut, true),
            (false, false) => (demand.judge, false),
        };
        let demand = Demand { judge, ..demand };
        verified.told_of_loss = is_lost;
        if told("pool.reservation_short") && demand.judge.durability && demand.absent == 0 {
            return Err(Failure::Outcome("the pool has less free space than reserved volumes need".into()));
        }
        registry(&engine, &h, demand, told("registry.lost")).await?;
        let mut found = catalog(&rt, &engine, &h, demand, &mut verified).await?;
        // Reads go on in a pool that has stopped, but for what damage keeps from being completed.
        let is_stopped_by_damage = || {
            let events = events.lock().expect("no holder of this lock panics");
            events
                .iter()
                .any(|event| event.code == "pool.suspended" && event.message.contains("a checkpoint failed"))
        };
        if verified.read_suspended && !is_stopped_by_damage() {
            return Err(Failure::Outcome(
                "a read ended because writing had stopped, and no checkpoint failed".into(),
            ));
        }
        let mut random = Random::new(seed);
        if demand.read_only {
            takes_no_changes(&rt, &engine, &found).await?;
            found.clear();
        }
        for volume in &mut found {
            match exercise(&rt, volume, &mut random).await {
                // Damage beyond redundancy may stop the pool, too.
                Err(Failure::Outcome(_)) if demand.read_errors => {}
                result => result?,
            }
        }
        let pools = engine.pools().await;
        for disk in pools.iter().flat_map(|pool| &pool.groups).flat_map(|group| &group.disks) {
            verified.repaired += disk.errors.repaired;
            verified.errors.insert(disk.number, disk.errors);
            verified.states.insert(disk.number, disk.state);
        }
        if demand.force && !demand.read_only && verified.told_of_loss {
            let scrubbed = engine.pool_scrubbed(POOL).await;
            let done = scrubbed.map_err(|error| Failure::Outcome(format!("the scrub failed: {error}")))?;
            if done.scrub.is_none_or(|scrub| scrub.state != ScrubState::Done) {
                return Err(Failure::Outcome("no scrub followed a log that was cut short".into()));
            }
        }
        if demand.export {
            engine
                .pool_export(POOL)
                .await
                .map_err(|error| Failure::Outcome(format!("the export failed: {error}")))?;
        }
        Ok((verified, found))
    })?;
    if demand.read_only {
        untouched(&world, &before)?;
    }
    let mut left = world.power_loss(|_, _| if demand.again { Fate::Lost } else { Fate::Whole });
    if demand.again {
        left = reimport(setup, left, demand, found, seed)?;
    }
    verified.left = left.clone();
    if demand.check && verified.imported {
        offline_check(left, demand.absent, setup)?;
    }
    Ok(verified)
}

/// Compares the registry with the oracle, and puts something there.
async fn registry(engine: &Engine, history: &History, demand: Demand, is_lost: bool) -> Result<(), Failure> {
    let outcome = |what: &str, error: String| Failure::Outcome(format!("{what} the registry: {error}"));
    if is_lost && !demand.read_errors {
        return Err(outcome("reading", "parts of it are lost".into()));
    }
    let found = engine.items(POOL).await.map_err(|error| outcome("reading", error.to_string()))?;
    let may = (demand.judge.durability && !is_lost, demand.judge.whole && !is_lost);
    history.registry.judge(&found, demand.at, may).map_err(Failure::Content)?;
    if history.registry.puts.is_empty() || demand.read_only {
        return Ok(());
    }
    let (key, value) = (AFTERWARDS.to_string(), vec![7; 600]);
    let put = engine.put_items(POOL, [(key.clone(), Some(value.clone()))].into()).await;
    let now = engine.items(POOL).await.map_err(|error| outcome("reading", error.to_string()))?;
    match put {
        Ok(()) if now.get(&key) == Some(&value) => Ok(()),
        Ok(()) => Err(Failure::Content("the registry does not have what was just put there".into())),
        // In a full pool there may be none for it; then it is not there.
        Err(error) if error.kind == ErrorKind::NoSpace && now == found => Ok(()),
        Err(_) if demand.read_errors => Ok(()),
        Err(error) => Err(outcome("changing", error.to_string())),
    }
}

/// Compares the catalog and all contents with the oracle.
async fn catalog(
    rt: &Rt,
    engine: &Engine,
    history: &History,
    demand: Demand,
    verified: &mut Verified,
) -> Result<Vec<Found>, Failure> {
    let outcome = |text: String| Failure::Outcome(text);
    let infos =
        engine.volumes(Some(POOL)).await.map_err(|error| outcome(format!("no list of volumes: {error}")))?;
    let mut found = Vec::new();
    for model in &history.volumes {
        let name =
            model.name.strip_prefix(POOL).and_then(|rest| rest.strip_prefix('/')).unwrap_or(&model.name);
        let info = infos.iter().find(|info| info.name == name || info.name == model.name);
        let at = demand.at;
        let must = model.created.acknowledged <= at && model.deleted.issued > at;
        let must_not = model.created.issued > at || model.deleted.acknowledged <= at;
        match info {
            None if must && demand.judge.durability => {
                return Err(outcome(format!("{} was created and is not there", model.name)));
            }
            None => continue,
            Some(_) if must_not && demand.judge.durability => {
                return Err(outcome(format!("{} is there and must not be", model.name)));
            }
            Some(info) => found.push(contents(rt, model, info.clone(), demand, verified).await?),
        }
    }
    if found.len() != infos.len() {
        let names: Vec<&str> = infos.iter().map(|info| info.name.as_str()).collect();
        return Err(outcome(format!("the catalog holds volumes that nobody made: {names:?}")));
    }
    Ok(found)
}

/// Reads one volume and asks the oracle.
async fn contents(
    rt: &Rt,
    model: &VolumeModel,
    info: VolumeInfo,
    demand: Demand,
    verified: &mut Verified,
) -> Result<Found, Failure> {
    let outcome = |text: String| Failure::Outcome(format!("{}: {text}", model.name));
    let volume = Volume::open(rt, info.id).map_err(|error| outcome(format!("does not open: {error}")))?;
    let at = demand.at;
    let granted = model.sizes.iter().filter(|(_, span)| span.acknowledged <= at).map(|(size, _)| *size).max();
    let possible = model.sizes.iter().any(|(size, span)| *size == info.size && span.issued <= at);
    if !possible || (demand.judge.durability && info.size < granted.unwrap_or(0)) {
        return Err(outcome(format!("has {} bytes, was granted {granted:?}", info.size)));
    }
    // A forced import may have lost the project that it had its policy from; so may a disk that promised to have written it.
    let is_in_project = model.name.matches('/').count() > 1;
    let may_lose = is_in_project && (demand.force || !demand.judge.durability);
    let is_default = may_lose && info.project.is_none() && info.sync == SyncPolicy::Always;
    let has_policy = is_default || model.may_have(info.sync, at, demand.judge.durability);
    if info.block_size != model.block_size || !has_policy {
        return Err(outcome(format!("came back with other properties: {info:?}")));
    }
    let (sectors, block) = ((info.size / SECTOR as u64) as u32, info.block_size / SECTOR as u32);
    let mut pieces = Vec::new();
    for range in ranges(model, sectors, block, demand.at) {
        pieces.push(read_piece(&volume, &model.name, range, block, demand, verified).await?);
    }
    let mut seen: Vec<(u32, Seen)> = Vec::new();
    for piece in &pieces {
        let parsed = (piece.first..).zip(piece.bytes.chunks_exact(SECTOR).map(parse)).zip(&piece.unreadable);
        seen.extend(parsed.filter(|(_, unreadable)| !**unreadable).map(|(seen, _)| seen));
    }
    model
        .judge_crash(demand.at, demand.judge, &seen)
        .map_err(|violation| Failure::Content(format!("after a crash at tick {}: {violation}", demand.at)))?;
    Ok(Found { info, tag: model.tag, pieces })
}

/// What is read of a volume of `sectors` sectors: all that was ever touched, and a little of what never was.
fn ranges(model: &VolumeModel, sectors: u32, block: u32, seed: u64) -> Vec<Range<u32>> {
    const GAP: u32 = 128;
    let mut ranges = model.touched(block, GAP);
    let untouched = Random::new(seed).below(u64::from(sectors / block)) as u32 * block;
    if !ranges.iter().any(|range| range.start < untouched + block && untouched < range.end) {
        ranges.push(untouched..untouched + block);
    }
    ranges.retain_mut(|range| {
        range.end = range.end.min(sectors);
        range.start < range.end
    });
    ranges
}

/// Whether a read may end so where data is damaged beyond redundancy. When a checkpoint has failed for that, nobody can tell any more what the rest of a block is
/// of which only a part is in the log.
fn may_be_lost(error: IoError) -> bool {
    matches!(error, IoError::Corrupt | IoError::Io | IoError::Suspended)
}

async fn read_piece(
    volume: &Volume,
    name: &str,
    range: Range<u32>,
    block: u32,
    demand: Demand,
    verified: &mut Verified,
) -> Result<Piece, Failure> {
    let outcome = |text: String| Failure::Outcome(format!("{name}: {text}"));
    let len = (range.end - range.start) as usize;
    let mut piece =
        Piece { first: range.start, bytes: Vec::with_capacity(len * SECTOR), unreadable: vec![false; len] };
    let mut at = range.start;
    while at < range.end {
        let to = (at + READ_SECTORS).min(range.end);
        match append_sectors(volume, at, to, &mut piece.bytes).await {
            Ok(()) => {}
            Err(error) if demand.read_errors && may_be_lost(error) => {
                // Block by block: an error may only hide the block that is damaged.
                for from in (at..to).step_by(block as usize) {
                    let to = (from + block).min(range.end);
                    match append_sectors(volume, from, to, &mut piece.bytes).await {
                        Ok(()) => {}
                        Err(error) if may_be_lost(error) => {
                            piece.bytes.resize((to - range.start) as usize * SECTOR, 0);
                            piece.unreadable[(from - range.start) as usize..(to - range.start) as usize]
                                .fill(true);
                            verified.unreadable_sectors += u64::from(to - from);
                            verified.read_suspended |= error == IoError::Suspended;
                        }
                        Err(error) => return Err(outcome(format!("a read failed: {error}"))),
                    }
                }
            }
            Err(error) => return Err(outcome(format!("a read of sectors {at}..{to} failed: {error}"))),
        }
        at = to;
    }
    Ok(piece)
}

/// Every way to change a pool that is only to be read is refused, and it goes on reading.
async fn takes_no_changes(rt: &Rt, engine: &Engine, found: &[Found]) -> Result<(), Failure> {
    let failed = |what: String| Failure::Outcome(format!("{what} in a pool that is only to be read"));
    for Found { info, .. } in found {
        let volume = Volume::open(rt, info.id).map_err(|error| failed(format!("opening gave {error}")))?;
        let block = rt.arena().take_zeroed(info.block_size as usize).freeze();
        let results = [
            volume.write(0, vec![block.clone()], true).await,
            volume.discard(0, u64::from(info.block_size), true).await,
            volume.write_zeroes(0, u64::from(info.block_size), true).await,
            volume.compare_and_write(0, block.clone(), block).await.map(drop),
            volume.store_attributes(b"state").await,
        ];
        if let Some(result) = results.into_iter().find(|result| *result != Err(IoError::ReadOnly)) {
            return Err(failed(format!("a change of {} gave {result:?}", info.name)));
        }
        volume.flush().await.map_err(|error| failed(format!("a flush gave {error}")))?;
    }
    let changes = [
        engine.pool_trim(POOL).await.map(drop),
        engine.scrub_start(POOL).await,
        engine.checkpoint(POOL).await.map(drop),
        engine.disk_offline(POOL, "0").await.map(drop),
        engine.pool_destroy(POOL).await,
    ];
    let is_refused = |result: &Result<(), forebay_pool::Error>| {
        result.as_ref().is_err_and(|error| error.kind == ErrorKind::Conflict)
    };
    match changes.iter().position(|result| !is_refused(result)) {
        None => Ok(()),
        Some(nth) => Err(failed(format!("change {nth} gave {:?}", changes[nth]))),
    }
}

/// No disk was written to.
pub fn untouched(world: &World, before: &[Image]) -> Result<(), Failure> {
    for (disk, before) in before.iter().enumerate() {
        let differs = !before.difference(&world.image(disk)).is_empty();
        let asked = world.operations(disk, OpKind::Write);
        if differs || asked > 0 {
            return Err(Failure::Outcome(format!(
                "a read-only import wrote to sim{disk}: {asked} writes, contents {}",
                if differs { "changed" } else { "as before" }
            )));
        }
    }
    Ok(())
}

/// Liveness: a write, a discard of a block, a flush, and all around them read back.
async fn exercise(rt: &Rt, found: &mut Found, random: &mut Random) -> Result<(), Failure> {
    let Found { info, tag, pieces } = found;
    let name = info.name.clone();
    let outcome = |what: &str, error: IoError| {
        Failure::Outcome(format!("{what} on {name} after recovery failed: {error}"))
    };
    let volume = Volume::open(rt, info.id).map_err(|error| outcome("opening", error))?;
    let block = info.block_size / SECTOR as u32;
    let count = pieces.len() as u64;
    let piece = &mut pieces[random.below(count) as usize];
    let (first, end) = (piece.first, piece.first + piece.sectors());
    let from = first + random.below(u64::from(piece.sectors())) as u32;
    let to = (from + 1 + random.below(u64::from(block)) as u32).min(end);
    if piece.is_readable(from / block * block, to.next_multiple_of(block)) {
        let mut data = rt.buffer((to - from) as usize * SECTOR);
        fill(&mut data, *tag, LIVENESS_NUMBER, from);
        let data = data.freeze();
        match volume.write(u64::from(from) * SECTOR as u64, vec![data.clone()], false).await {
            Ok(()) => piece.bytes_mut(from, to).copy_from_slice(&data),
            // A pool that was full before the crash is full after it, but for those that space is held for.
            Err(IoError::NoSpace) if info.format == VolumeFormat::Thin => {}
            Err(error) => return Err(outcome("a write", error)),
        }
    }
    let discarded = first + random.below(u64::from(piece.sectors() / block)) as u32 * block;
    volume
        .discard(u64::from(discarded) * SECTOR as u64, u64::from(info.block_size), false)
        .await
        .map_err(|error| outcome("a discard", error))?;
    piece.bytes_mut(discarded, discarded + block).fill(0);
    let sectors = (discarded - first) as usize..(discarded - first + block) as usize;
    piece.unreadable[sectors].fill(false);
    volume.flush().await.map_err(|error| outcome("a flush", error))?;
    for (low, high) in [(from, to), (discarded, discarded + block)] {
        let low = (low / block * block).saturating_sub(block).max(first);
        let high = (high.next_multiple_of(block) + block).min(end);
        if piece.is_readable(low, high) {
            let bytes = read_sectors(&volume, low, high).await.map_err(|error| outcome("a read", error))?;
            same(&name, low, &bytes, piece.bytes_mut(low, high))?;
        }
    }
    Ok(())
}

/// What recovery showed once, and what was flushed after it, must be there after the next crash.
fn reimport(
    setup: &Setup,
    images: Vec<Image>,
    demand: Demand,
    found: Vec<Found>,
    seed: u64,
) -> Result<Vec<Image>, Failure> {
    let world = World::new(WorldConfig::new(seed ^ 1));
    images.into_iter().for_each(|image| {
        world.add_disk(image);
    });
    let paths = take_away(&world, demand.absent);
    in_world(&world, setup.conditions(), LIMIT, move |rt, cores| async move {
        let (engine, _) = engine_of(cores, host(demand.host));
        let failed = |error| Failure::Outcome(format!("the import after the second crash failed: {error}"));
        engine.pool_import(POOL, paths, Import::default()).await.map_err(failed)?;
        for mut found in found {
            let (block, sync) = (found.info.block_size, found.info.sync);
            if sync == SyncPolicy::Disabled {
                continue;
            }
            let failed =
                |error| Failure::Outcome(format!("{} after the second crash: {error}", found.info.name));
            let volume = Volume::open(&rt, found.info.id).map_err(failed)?;
            for piece in &mut found.pieces {
                let (low, high) = (piece.first, piece.first + piece.sectors());
                if !piece.is_readable(low, high) {
                    continue;
                }
                let bytes = read_sectors(&volume, low, high).await.map_err(failed)?;
                same(&found.info.name, low, &bytes, &piece.bytes).map_err(|failure| {
                    let told =
                        format!("after the second crash; blocks of {block} bytes, sync {}", sync.name());
                    failure.because(&told)
                })?;
            }
        }
        Ok(())
    })?;
    Ok(world.power_loss(|_, _| Fate::Whole))
}

/// Takes disks out of a world; gives the paths of the others.
pub fn take_away(world: &World, absent: u64) -> Vec<String> {
    let is_there = |disk: &usize| absent & (1 << disk) == 0;
    (0..world.disk_count()).filter(|disk| !is_there(disk)).for_each(|disk| world.set_gone(disk, true));
    (0..world.disk_count()).filter(is_there).map(|disk| format!("sim{disk}")).collect()
}

/// Compares exactly; the failure names the first sector that differs.
fn same(name: &str, first: u32, bytes: &[u8], expected: &[u8]) -> Result<(), Failure> {
    let differs = bytes.chunks_exact(SECTOR).zip(expected.chunks_exact(SECTOR)).position(|(a, b)| a != b);
    let Some(index) = differs else { return Ok(()) };
    let sector = |bytes: &[u8]| parse(&bytes[index * SECTOR..(index + 1) * SECTOR]);
    let (holds, expected) = (sector(bytes), sector(expected));
    let sector = first as usize + index;
    Err(Failure::Content(format!("{name} sector {sector} after recovery: holds {holds}, not {expected}")))
}

/// Runs the offline checker over the disks, in a world of its own.
pub fn offline_check(images: Vec<Image>, absent: u64, setup: &Setup) -> Result<(), Failure> {
    let world = World::new(WorldConfig { shuffle: false, ..WorldConfig::new(setup.seed) });
    images.into_iter().for_each(|image| {
        world.add_disk(image);
    });
    let paths = take_away(&world, absent);
    in_world(
        &world,
        Conditions { tables: setup.tables(), ..Conditions::of(1) },
        LIMIT,
        move |rt: Rt, _: Cores| async move {
            let report = forebay_pool::check::check(&rt, &paths)
                .await
                .map_err(|error| Failure::Checker(format!("it could not run: {error}")))?;
            match report.problems.first() {
                None => Ok(()),
                Some(first) => {
                    Err(Failure::Checker(format!("{} problems, the first: {first}", report.problems.len())))
                }
            }
        },
    )
}
