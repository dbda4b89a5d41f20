//! Rows of the matrix about imports that are not the usual ones.

use crate::crash::{self, Run};
use crate::harness::{Failure, LIMIT, engine, engine_of, host, in_world};
use crate::matrix::Shown;
use crate::rows_pool::exported;
use crate::setup::{POOL, Setup};
use crate::verify::{Demand, take_away, untouched, verify};
use forebay_base::Random;
use forebay_pool::{Import, Layout};
use forebay_simulation::{Cursor, Event, Fate, Image, World, WorldConfig};
use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// Power losses that one run is judged at.
const MOMENTS: u64 = 16;

/// The power goes; an import that must not write shows all that a usual one shows, also without a disk, and leaves every byte as
/// it was; then comes a usual one.
pub fn read_only(setup: &Setup) -> Result<Shown, Failure> {
    let run = crash::record(setup)?;
    let mut random = Random::new(setup.seed ^ 0x4ead);
    let events = run.recording.events.len() as u64;
    let mut moments: Vec<usize> = (0..MOMENTS).map(|_| random.below(events + 1) as usize).collect();
    moments.sort_unstable();
    let mut cursor = Cursor::new(&run.recording);
    let (mut tick, mut shown) = (0, Shown::default());
    for moment in moments {
        tick = go_to(&mut cursor, moment, tick);
        let fates: Vec<Fate> = cursor
            .pending()
            .map(|(_, write)| match random.below(4) {
                0 => Fate::Lost,
                1 if write.sectors() > 1 => Fate::Head(1 + random.below(write.sectors() as u64 - 1) as usize),
                _ => Fate::Whole,
            })
            .collect();
        let images = cursor.crash(&fates);
        let is_lacking = setup.layout != Layout::Single && random.one_in(2);
        let absent = if is_lacking { 1 << random.below(setup.data_disks() as u64) } else { 0 };
        let usual = Demand { at: tick, absent, ..Demand::STRICT };
        let reading = Demand { read_only: true, check: false, ..usual };
        let told = |failure: Failure, what: &str| {
            let position = cursor.position();
            failure
                .because(&format!("{what} after event {position} (tick {tick}), without disks {absent:#b}"))
        };
        verify(setup, images.clone(), &run.history, reading, random.next_u64())
            .map_err(|failure| told(failure, "imported to be read only"))?;
        verify(setup, images, &run.history, usual, random.next_u64())
            .map_err(|failure| told(failure, "imported as usual"))?;
        shown += Shown { cases: 2, ..Shown::default() };
    }
    Ok(shown)
}

/// An import of `images` that must be refused, and write nothing.
fn refused(
    setup: &Setup,
    images: &[Image],
    absent: u64,
    import: Import,
    machine: u128,
) -> Result<(), Failure> {
    let world = World::new(WorldConfig::new(setup.seed));
    images.iter().for_each(|image| {
        world.add_disk(image.clone());
    });
    let paths = take_away(&world, absent);
    let result = in_world(&world, setup.conditions(), LIMIT, move |_, cores| async move {
        let (engine, _) = engine_of(cores, host(machine));
        Ok(engine.pool_import(POOL, paths, import).await.map(drop))
    })?;
    untouched(&world, images)?;
    match result {
        Err(_) => Ok(()),
        Ok(()) => {
            Err(Failure::Outcome(format!("{import:?} by host{machine} without {absent:#b} was not refused")))
        }
    }
}

/// The power goes, and another machine imports: refused as long as nobody forces it, and then everything is there. Exported, the pool
/// is anybody's.
pub fn another_host(setup: &Setup) -> Result<Shown, Failure> {
    let run = crash::record(setup)?;
    let mut random = Random::new(setup.seed ^ 0x4057);
    let moment = random.below(run.recording.events.len() as u64 + 1) as usize;
    let (tick, images) = stopped_at(&run, moment);
    let usual = Import::default();
    refused(setup, &images, 0, usual, 1)?;
    refused(setup, &images, 0, Import { read_only: true, ..usual }, 1)?;
    let taken =
        Demand { at: tick, force: true, host: 1, again: true, export: false, check: false, ..Demand::STRICT };
    let left = verify(setup, images, &run.history, taken, random.next_u64())?.left;
    refused(setup, &left, 0, usual, 0)?;
    let (history, images) = exported(setup)?;
    verify(setup, images, &history, Demand { host: 1, ..Demand::STRICT }, random.next_u64())?;
    Ok(Shown { cases: 5, ..Shown::default() })
}

/// Disks that the layout cannot do without are missing: nobody imports the pool to write to it, and a forced import that only reads
/// shows what is left, and nothing else.
pub fn rescued(setup: &Setup) -> Result<Shown, Failure> {
    let (history, images) = exported(setup)?;
    let mut random = Random::new(setup.seed ^ 0x4e5c);
    let mut shown = Shown::default();
    for _ in 0..MOMENTS / 2 {
        let mut absent = 0u64;
        while absent.count_ones() <= setup.redundancy() as u32 {
            absent |= 1 << random.below(setup.data_disks() as u64);
        }
        let told = |failure: Failure| failure.because(&format!("without disks {absent:#b}"));
        for import in [
            Import::default(),
            Import { read_only: true, force: false },
            Import { read_only: false, force: true },
        ] {
            refused(setup, &images, absent, import, 0).map_err(told)?;
        }
        let demand = Demand {
            read_errors: true,
            import_errors: true,
            read_only: true,
            force: true,
            export: false,
            check: false,
            absent,
            ..Demand::STRICT
        };
        let verified = verify(setup, images.clone(), &history, demand, random.next_u64()).map_err(told)?;
        shown.cases += u64::from(verified.imported);
        shown.errors += verified.unreadable_sectors;
    }
    verify(setup, images, &history, Demand::STRICT, random.next_u64())?;
    Ok(shown)
}

/// Goes on to a moment; the tick there, from the one where the cursor was.
fn go_to(cursor: &mut Cursor, moment: usize, mut tick: u64) -> u64 {
    while cursor.position() < moment {
        if let Some(Event::Mark(mark)) = cursor.advance() {
            tick = *mark;
        }
    }
    tick
}

/// The tick and the disks at a moment of a run, all that was under way done.
fn stopped_at(run: &Run, moment: usize) -> (u64, Vec<Image>) {
    let mut cursor = Cursor::new(&run.recording);
    let tick = go_to(&mut cursor, moment, 0);
    let fates = vec![Fate::Whole; cursor.pending_count()];
    (tick, cursor.crash(&fates))
}

/// The disks after an import, and a power loss right behind it.
fn imported(setup: &Setup, images: Vec<Image>) -> Result<Vec<Image>, Failure> {
    let world = World::new(WorldConfig::new(setup.seed));
    images.into_iter().for_each(|image| {
        world.add_disk(image);
    });
    let paths = take_away(&world, 0);
    in_world(&world, setup.conditions(), LIMIT, move |_, cores| async move {
        let imported = engine(cores).0.pool_import(POOL, paths, Import::default()).await;
        imported.map(drop).map_err(|error| Failure::Outcome(format!("the first import failed: {error}")))
    })?;
    Ok(world.power_loss(|_, _| Fate::Whole))
}

/// The head of a frame of a log, as it is on a disk.
struct Head {
    sequence: u64,
    durable: u64,
    disk: usize,
    page: u64,
}

/// All there are, by shard.
fn heads(images: &[Image]) -> BTreeMap<u16, Vec<Head>> {
    let mut heads: BTreeMap<u16, Vec<Head>> = BTreeMap::new();
    for (disk, image) in images.iter().enumerate() {
        for page in 0..image.size() / PAGE {
            let Some(bytes) = image.page(page).filter(|bytes| bytes.starts_with(b"FBLOGFRM")) else {
                continue;
            };
            let shard = u16::from_le_bytes([bytes[40], bytes[41]]);
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
            heads.entry(shard).or_default().push(Head {
                sequence: number(48),
                durable: number(72),
                disk,
                page,
            });
        }
    }
    heads
}

/// Frames before the last of each shard's log that are looked at.
const LAST: u64 = 24;

/// Overwrites those frames of each shard's log, on all disks, for which the function says so of their sequence. How many.
fn wipe(images: &mut [Image], heads: &[Head], wiped: impl Fn(u64) -> bool) -> u64 {
    let chosen: Vec<&Head> = heads.iter().filter(|head| wiped(head.sequence)).collect();
    chosen.iter().for_each(|head| images[head.disk].write(head.page * PAGE, &[0x5a; PAGE as usize]));
    chosen.len() as u64
}

/// Overwrites the frames of each shard's log from one of the last on, on all disks. How many.
fn wipe_frames(images: &mut [Image], random: &mut Random) -> u64 {
    let mut count = 0;
    for heads in heads(images).values() {
        let newest = heads.iter().map(|head| head.sequence).max().expect("not empty");
        let from = newest.saturating_sub(random.below(LAST));
        count += wipe(images, heads, |sequence| sequence >= from);
    }
    count
}

/// One of the last frames of each shard's log that others say was durable is lost on every disk. An import that needs it is refused; one that is not has
/// everything.
pub fn log_gap(setup: &Setup) -> Result<Shown, Failure> {
    let run = crash::record(setup)?;
    let mut random = Random::new(setup.seed ^ 0x9a9);
    let mut shown = Shown::default();
    for _ in 0..MOMENTS {
        let moment = random.below(run.recording.events.len() as u64 + 1) as usize;
        let (tick, mut images) = stopped_at(&run, moment);
        for heads in heads(&images).values() {
            let durable = heads.iter().map(|head| head.durable).max().expect("not empty");
            let gone = durable.saturating_sub(random.below(LAST));
            shown.faults += wipe(&mut images, heads, |sequence| sequence == gone);
        }
        let demand = Demand { at: tick, import_errors: true, ..Demand::STRICT };
        let verified = verify(setup, images, &run.history, demand, random.next_u64());
        verified.map_err(|failure| failure.because(&format!("after event {moment} (tick {tick})")))?;
        shown.cases += 1;
    }
    Ok(shown)
}

/// Frames of the log are lost on every disk, from some frame on: an import that would need them is refused; forced, it goes on without them,
/// and what is written from then on stays.
pub fn log_lost(setup: &Setup) -> Result<Shown, Failure> {
    let run = crash::record(setup)?;
    let mut random = Random::new(setup.seed ^ 0x1057);
    let mut shown = Shown::default();
    for _ in 0..MOMENTS / 2 {
        let moment = random.below(run.recording.events.len() as u64 + 1) as usize;
        let (tick, images) = stopped_at(&run, moment);
        // What an import accepts it seals: from then on it must be there.
        let mut images = imported(setup, images)?;
        shown.faults += wipe_frames(&mut images, &mut random);
        let forced =
            Demand { at: tick, force: true, again: true, export: random.one_in(2), ..Demand::STRICT };
        let forced = Demand { check: forced.export, ..forced };
        let verified = verify(setup, images.clone(), &run.history, forced, random.next_u64());
        let verified =
            verified.map_err(|failure| failure.because(&format!("after event {moment} (tick {tick})")))?;
        if verified.told_of_loss {
            refused(setup, &images, 0, Import::default(), 0)?;
            shown.cases += 1;
        }
    }
    Ok(shown)
}
