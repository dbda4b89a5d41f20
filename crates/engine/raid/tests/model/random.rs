//! Goal: whatever is written, lost, rotted, plugged, repaired and rebuilt, the chunk holds what was written, as long as no
//! column has more wrong cells than parity; and nothing else than that ever leaves it.
//! Method: random operations and faults on a random shape, each compared with a byte model. Faults are dealt out within the
//! bounds; the test looks at the disks to know them. A planted bug must make some seed fail.

use crate::rig::{Rig, Shape, UNIT};
use forebay_base::Random;
use forebay_base::planted::{self, Bug};
use forebay_device::SlotRef;
use forebay_raid::{ArrayError, Subset};
use forebay_runtime::{Buf, DiskErrorKind};
use forebay_simulation::{Action, OpKind, Rule, World, WorldConfig};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

const OPERATIONS: usize = 60;
/// The largest block, up to which a reader may expect the array to seek suspects.
const BLOCK_MAX: usize = 128 << 10;

type Outcome<T = ()> = Result<T, String>;

fn ensure(fact: bool, what: impl FnOnce() -> String) -> Outcome {
    if fact { Ok(()) } else { Err(what()) }
}

fn shape(random: &mut Random) -> Shape {
    Shape {
        // Narrow ones as often as wide ones: there the bounds are met soonest.
        data: if random.one_in(2) { 2 + random.below(3) } else { 2 + random.below(15) } as usize,
        parity: 1 + random.below(3) as usize,
        cell: 4096 << random.below(5),
        slot: 128 << 10,
        spares: 3,
    }
}

fn run(seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let shape = shape(&mut random);
    let world = World::new(WorldConfig::new(seed));
    let (executor, _) = world.executor(1);
    let rt = executor.rt().clone();
    let mut rig = Rig::new(&world, &rt, shape, shape.data + shape.parity);
    let story = async move {
        for n in 0..OPERATIONS {
            let what = random.below(100);
            let done = match what {
                0..18 => write(&mut rig, &mut random).await,
                18..40 => plug(&mut rig, &mut random).await,
                40..65 => read(&mut rig, &mut random).await,
                65..85 => damage(&mut rig, &mut random).await,
                85..88 => lose(&mut rig, &mut random),
                88..92 => rebuild(&mut rig, &mut random).await,
                92..95 => scrub(&mut rig, &mut random).await,
                _ => restore(&mut rig, &mut random).await,
            };
            done.map_err(|why| format!("operation {n} ({what}): {why}"))?;
            rig.look().await;
            ensure(rig.is_within_bounds(), || {
                format!("operation {n} ({what}) left more wrong than parity covers")
            })?;
        }
        // At the end, everything, block by block.
        let blocks = (0..rig.bytes.len() as u64).step_by(UNIT as usize);
        for offset in blocks {
            read_range(&mut rig, offset, UNIT as usize, false)
                .await
                .map_err(|why| format!("at the end: {why}"))?;
        }
        Ok(())
    };
    let ended = world.run(&executor, Duration::from_secs(3600), story);
    ended
        .unwrap_or_else(|stuck| Err(format!("{stuck:?}")))
        .map_err(|why| format!("seed {seed}, {shape:?}: {why}"))
}

/// Whole lines; now and then a disk fails in the middle of it.
async fn write(rig: &mut Rig, random: &mut Random) -> Outcome {
    let first = random.below(rig.lines());
    let count = 1 + random.below(3.min(rig.lines() - first));
    let offset = first * rig.line_bytes();
    let failing = random.below(rig.width() as u64) as usize;
    let fails = random.one_in(12) && may_lose(rig, failing);
    let parts = rig.renew(offset, (count * rig.line_bytes()) as usize, random);
    let disk = rig.slots[failing].disk;
    if fails {
        let rule = Rule::new(disk.into(), Action::Fail(DiskErrorKind::Io)).on(OpKind::Write).times(1);
        rig.world.add_rule(rule);
    }
    let writing = rig.array.write(&rig.slots, offset, parts);
    rig.array.written(writing, &mut rig.touched).await.map_err(|error| format!("write: {error:?}"))?;
    rig.world.take_rules();
    if fails {
        ensure(rig.health(failing).is_failed(), || "a disk that failed a write is in service".into())?;
    }
    let recorded = rig.recorded.borrow().clone();
    ensure(rig.out().iter().all(|index| recorded.contains(rig.slots[index].disk)), || {
        "a loss is not recorded".into()
    })
}

/// Whether the chunk stands the loss of a slot.
fn may_lose(rig: &Rig, index: usize) -> bool {
    let more: Subset = [index].into_iter().collect();
    (0..rig.units()).all(|unit| rig.wrong(unit).union(more).len() <= rig.shape.parity)
}

/// Blocks in a few lines, as the pool would log and then write them; sometimes a crash lies between.
async fn plug(rig: &mut Rig, random: &mut Random) -> Outcome {
    let mut ranges: Vec<(u64, usize)> = Vec::new();
    let mut at = random.below(rig.bytes.len() as u64 / UNIT) * UNIT;
    for _ in 0..1 + random.below(5) {
        let most = if random.one_in(4) { 40 } else { 4 };
        let len = UNIT * (1 + random.below(most));
        if at + len <= rig.bytes.len() as u64 {
            ranges.push((at, len as usize));
        }
        at += len + UNIT * random.below(20);
    }
    if !may_plug(rig, &ranges) {
        return Ok(());
    }
    let width = rig.width();
    let mut blocks: Vec<(u64, Buf)> = Vec::new();
    for (offset, len) in ranges {
        let mut at = offset;
        for part in rig.renew(offset, len, random) {
            at += part.len() as u64;
            blocks.push((at - part.len() as u64, part));
        }
    }
    let pieces = rig.array.plan_plug(&rig.slots, blocks).await.map_err(|error| format!("plan: {error:?}"))?;
    ensure(pieces.iter().all(|piece| usize::from(piece.slot) < width), || "a piece for no slot".into())?;
    if random.one_in(3) {
        let some: Vec<_> = pieces.iter().filter(|_| random.one_in(2)).cloned().collect();
        let writing = rig.array.write_pieces(&rig.slots, &some);
        rig.array
            .written(writing, &mut rig.touched)
            .await
            .map_err(|error| format!("before a crash: {error:?}"))?;
    }
    let writing = rig.array.write_pieces(&rig.slots, &pieces);
    rig.array.written(writing, &mut rig.touched).await.map_err(|error| format!("pieces: {error:?}"))
}

/// Whether plugging these ranges leaves no more wrong than parity covers. What is computed from rot is rotten, and rot
/// under a block that is replaced gets into all parity; rot beside it stays where it is.
fn may_plug(rig: &Rig, ranges: &[(u64, usize)]) -> bool {
    let lines: BTreeSet<u64> = ranges
        .iter()
        .flat_map(|(offset, len)| rig.columns(*offset, *len))
        .map(|columns| columns.start / rig.shape.cell)
        .collect();
    lines.into_iter().all(|line| {
        let cells = line * rig.shape.cell..(line + 1) * rig.shape.cell;
        let of_line = |columns: &Range<u64>| cells.contains(&columns.start);
        let columns = ranges.iter().flat_map(|(offset, len)| rig.columns(*offset, *len)).filter(of_line);
        let columns = columns.reduce(|all, more| all.start.min(more.start)..all.end.max(more.end));
        let columns = columns.expect("the line is touched");
        let parity: Subset = (rig.shape.data..rig.width()).map(|role| rig.slot_of(line, role)).collect();
        let replaced = |rig: &Rig, unit: u64| {
            let offset = |role: usize| {
                line * rig.line_bytes() + role as u64 * rig.shape.cell + unit * UNIT % rig.shape.cell
            };
            let covers = |role: &usize| {
                ranges.iter().any(|(at, len)| (*at..at + *len as u64).contains(&offset(*role)))
            };
            (0..rig.shape.data).filter(covers).map(|role| rig.slot_of(line, role)).collect::<Subset>()
        };
        let rotten = |rig: &Rig, unit: u64| rig.rotten(unit).without(rig.gone(unit));
        let gone = rig.over(columns.clone(), Rig::gone);
        let computes = !gone.intersection(rig.over(columns.clone(), replaced).union(parity)).is_empty();
        let spares = |unit: u64| {
            let (rotten, replaced) = (rotten(rig, unit), replaced(rig, unit));
            let stays = rotten.intersection(replaced).is_empty();
            stays || rig.gone(unit).is_empty() && rotten.without(replaced.union(parity)).is_empty()
        };
        gone.len() <= rig.shape.parity
            && (rig.over(columns.clone(), rotten).is_empty()
                || !computes && (columns.start / UNIT..columns.end.div_ceil(UNIT)).all(spares))
    })
}

async fn read(rig: &mut Rig, random: &mut Random) -> Outcome {
    let units = if random.one_in(5) { 1 + random.below(64) } else { 1 + random.below(4) };
    let offset = random.below(rig.bytes.len() as u64 / UNIT) * UNIT;
    let len = (units * UNIT).min(rig.bytes.len() as u64 - offset) as usize;
    let repair = random.one_in(2);
    if random.one_in(6) { mend(rig, offset, len).await } else { read_range(rig, offset, len, repair).await }
}

/// Whether the array must be able to read a range: what is wrong beside and in it, taken together, is within parity.
fn must_read(rig: &Rig, offset: u64, len: usize) -> bool {
    let columns = rig.columns(offset, len);
    let all = |what: fn(&Rig, u64) -> Subset| {
        columns.iter().fold(Subset::default(), |sum, at| sum.union(rig.over(at.clone(), what)))
    };
    all(Rig::wrong).len() <= rig.shape.parity
        && (len <= BLOCK_MAX || all(Rig::rotten).without(rig.out()).is_empty())
}

async fn read_range(rig: &mut Rig, offset: u64, len: usize, repair: bool) -> Outcome {
    let (must, bad) = (must_read(rig, offset, len), rig.bad_in(offset, len));
    let read = rig.array.read(&rig.slots, offset, len, rig.check(offset, len)).await;
    let good = match read {
        Err(error) => return ensure(!must, || format!("{len} bytes at {offset} cannot be read: {error:?}")),
        Ok(good) => good,
    };
    ensure(good.bytes[..] == rig.bytes[offset as usize..][..len], || {
        format!("{len} bytes at {offset} are wrong")
    })?;
    let named: Vec<SlotRef> = bad.iter().map(|index| rig.slots[index]).collect();
    ensure(good.bad == named, || format!("{:?} were called bad and {named:?} are", good.bad))?;
    if repair {
        let repaired = rig.array.repair(&rig.slots, &good.bad, offset, &good.bytes.freeze()).await;
        rig.look().await;
        let left = rig.bad_in(offset, len);
        ensure(repaired == named.len() && left.is_empty(), || format!("{left:?} are bad after the repair"))?;
    }
    Ok(())
}

async fn mend(rig: &mut Rig, offset: u64, len: usize) -> Outcome {
    let must = must_read(rig, offset, len);
    let mended = rig.array.mend(&rig.slots, offset, len, rig.check(offset, len)).await.is_some();
    rig.look().await;
    ensure(mended || !must, || format!("{len} bytes at {offset} cannot be mended"))?;
    ensure(!mended || rig.bad_in(offset, len).is_empty(), || "something is bad after it was mended".into())
}

/// Rots a cell, or makes it unreadable, in a column that stands it.
async fn damage(rig: &mut Rig, random: &mut Random) -> Outcome {
    let (index, unit) = (random.below(rig.width() as u64) as usize, random.below(rig.units()));
    let mut wrong = rig.wrong(unit);
    wrong.insert(index);
    if wrong.len() <= rig.shape.parity && !rig.wrong(unit).contains(index) {
        if random.one_in(2) {
            rig.rot(index, unit, random);
        } else {
            rig.make_unreadable(index, unit);
        }
    }
    Ok(())
}

fn lose(rig: &mut Rig, random: &mut Random) -> Outcome {
    let index = random.below(rig.width() as u64) as usize;
    if may_lose(rig, index) && !rig.out().contains(index) {
        rig.health(index).fail();
        rig.recorded.borrow_mut().insert(rig.slots[index].disk);
    }
    Ok(())
}

/// Puts a slot of another disk in place of a lost one, or of one in service, in two steps.
async fn rebuild(rig: &mut Rig, random: &mut Random) -> Outcome {
    let serves = random.below(rig.width() as u64) as usize;
    let Some(missing) = rig.out().iter().next().or(random.one_in(3).then_some(serves)) else { return Ok(()) };
    let in_use = |disk: u16| rig.slots.iter().any(|slot| slot.disk == disk);
    let disks = 0..(rig.width() + rig.shape.spares) as u16;
    let Some(disk) = disks.clone().find(|disk| !in_use(*disk) && rig.array.member(*disk).is_some()) else {
        return Ok(());
    };
    let sound = sound(rig, missing, 0..rig.units());
    let target = SlotRef { disk, slot: 3 };
    let middle = random.below(rig.units() + 1) * UNIT;
    for range in [0..middle, middle..rig.shape.slot].into_iter().filter(|range| !range.is_empty()) {
        let done = rig.array.rebuild(&rig.slots, missing, range, target, &mut rig.touched).await;
        ensure(done == Ok(Vec::new()), || format!("rebuild: {done:?}"))?;
    }
    rig.slots[missing] = target;
    let left = sound.into_iter().find(|unit| rig.wrong(*unit).contains(missing));
    ensure(left.is_none(), || format!("unit {left:?} of the new slot is wrong"))
}

/// The units of a slot that come out right when it is written anew: those that are right and can be read, and those that the others give. What is
/// copied or computed from rot is rot: only where there is none it counts.
fn sound(rig: &Rig, slot: usize, units: Range<u64>) -> Vec<u64> {
    let is_sound = |unit: &u64| {
        let (gone, rotten) = (rig.gone(*unit), rig.rotten(*unit));
        let others = rotten.without(rig.out()).iter().all(|index| index == slot);
        if gone.contains(slot) { others } else { !rotten.contains(slot) }
    };
    units.filter(is_sound).collect()
}

/// A scrub tells exactly the lines in which something is wrong.
async fn scrub(rig: &mut Rig, random: &mut Random) -> Outcome {
    let first = random.below(rig.lines());
    let range = first..first + 1 + random.below(rig.lines() - first);
    let found = rig.array.scrub_lines(&rig.slots, range.clone()).await;
    let of_line = |line: u64, what: fn(&Rig, u64) -> Subset| {
        !rig.over(line * rig.shape.cell..(line + 1) * rig.shape.cell, what).is_empty()
    };
    let unread: Vec<u64> = range.clone().filter(|line| of_line(*line, Rig::gone)).collect();
    let rotten = |line: &u64| !unread.contains(line) && of_line(*line, Rig::rotten);
    let mismatched: Vec<u64> = range.filter(rotten).collect();
    ensure(found.unread == unread && found.mismatched == mismatched, || {
        format!("{found:?}, but {unread:?} are unreadable and {mismatched:?} do not agree")
    })
}

/// Parity of lines whose data is right is right afterwards; and what cannot be read of a line is written anew, and nothing else changed.
async fn restore(rig: &mut Rig, random: &mut Random) -> Outcome {
    let line = random.below(rig.lines());
    let columns = line * rig.shape.cell..(line + 1) * rig.shape.cell;
    let data: Subset = (0..rig.shape.data).map(|role| rig.slot_of(line, role)).collect();
    let (gone, rotten) = (rig.over(columns.clone(), Rig::gone), rig.over(columns.clone(), Rig::rotten));
    if random.one_in(2) {
        let units = columns.start / UNIT..columns.end / UNIT;
        let sound: Vec<_> = (0..rig.width()).map(|slot| sound(rig, slot, units.clone())).collect();
        let whole = rig.array.restore_unread(&rig.slots, line, &mut rig.touched).await;
        rig.look().await;
        ensure(whole == Ok(rig.out().is_empty()), || format!("restored what was not read: {whole:?}"))?;
        let is_left = |(slot, units): (usize, &Vec<u64>)| {
            !rig.out().contains(slot) && units.iter().any(|unit| rig.wrong(*unit).contains(slot))
        };
        let left: Vec<usize> =
            sound.iter().enumerate().filter(|all| is_left(*all)).map(|(slot, _)| slot).collect();
        return ensure(left.is_empty(), || format!("slots {left:?} have something wrong in line {line}"));
    }
    if !rotten.without(gone).intersection(data).is_empty() {
        return Ok(());
    }
    let left = rig.array.restore_parity(&rig.slots, line..line + 1, &mut rig.touched).await;
    rig.look().await;
    let impossible = !gone.intersection(data).is_empty();
    let expected = if impossible { vec![line] } else { vec![] };
    ensure(left == Ok(expected), || format!("restored: {left:?}"))?;
    let wrong = rig.over(columns, Rig::wrong).without(rig.out());
    ensure(impossible || wrong.is_empty(), || format!("{wrong:?} of line {line} are wrong"))
}

#[test]
fn a_chunk_holds_what_was_written_through_every_loss_within_its_parity() {
    (0..200).for_each(|seed| run(seed).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn each_planted_bug_is_caught() {
    for bug in Bug::OF_PARITY {
        planted::plant(Some(bug));
        let caught = (0..200).find_map(|seed| run(seed).err());
        let met = planted::times_met();
        planted::plant(None);
        let why = caught.unwrap_or_else(|| panic!("{bug:?} was met {met} times and not caught"));
        println!("{bug:?}: {why}");
    }
}

#[test]
fn more_losses_than_parity_are_an_error_and_never_something_else() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let shape = shape(&mut random);
        let world = World::new(WorldConfig::new(seed));
        let (executor, _) = world.executor(1);
        let rt = executor.rt().clone();
        let mut rig = Rig::new(&world, &rt, shape, shape.data + shape.parity);
        let story = async move {
            let parts = rig.renew(0, rig.bytes.len(), &mut random);
            let writing = rig.array.write(&rig.slots, 0, parts);
            rig.array.written(writing, &mut rig.touched).await.expect("all disks are there");
            let lost = 1 + shape.parity;
            let from = random.below(rig.width() as u64) as usize;
            let out: Vec<usize> = (0..lost).map(|n| (from + n) % rig.width()).collect();
            for index in &out {
                assert!(rig.health(*index).fail());
                // They cannot be read either.
                rig.world.set_gone(usize::from(rig.slots[*index].disk), true);
            }
            assert!(rig.array.is_lost());
            for offset in (0..rig.bytes.len() as u64).step_by(UNIT as usize) {
                let read =
                    rig.array.read(&rig.slots, offset, UNIT as usize, rig.check(offset, UNIT as usize)).await;
                let there = !out.contains(&rig.place(offset).0);
                assert_eq!(
                    read.map(|good| good.bad),
                    if there { Ok(Vec::new()) } else { Err(ArrayError::Io) }
                );
            }
            let parts = rig.renew(0, rig.line_bytes() as usize, &mut random);
            let writing = rig.array.write(&rig.slots, 0, parts);
            assert_eq!(rig.array.written(writing, &mut rig.touched).await, Err(ArrayError::Io));
            let block = rig.renew(0, UNIT as usize, &mut random).remove(0);
            let (index, _) = rig.place(0);
            // A plan needs every changed cell: what is gone beyond parity, it cannot have.
            let needs: Vec<usize> =
                (shape.data..rig.width()).map(|role| rig.slot_of(0, role)).chain([index]).collect();
            let planned = rig.array.plan_plug(&rig.slots, vec![(0, block)]).await.map(drop);
            let expected =
                if needs.iter().any(|index| out.contains(index)) { Err(ArrayError::Io) } else { Ok(()) };
            assert_eq!(planned, expected);
            let spare = SlotRef { disk: rig.width() as u16, slot: 0 };
            let rebuilt = rig.array.rebuild(&rig.slots, out[0], 0..UNIT, spare, &mut rig.touched).await;
            assert_eq!(rebuilt, Err(ArrayError::Io));
        };
        world.run(&executor, Duration::from_secs(600), story).expect("it ends");
    }
}
