//! Goal: each call does what it says to the disks it should, and no more.
//! Method: small chunks with one thing wrong, and the disks' counts of operations.

use crate::rig::{Rig, Shape, UNIT};
use forebay_base::Random;
use forebay_device::SlotRef;
use forebay_runtime::{DiskErrorKind, Rt};
use forebay_simulation::{Action, OpKind, Rule, World, WorldConfig};
use std::time::Duration;

const WIDE: Shape = Shape { data: 8, parity: 2, cell: 65536, slot: 256 << 10, spares: 1 };

fn run<F: Future<Output = ()> + 'static>(shape: Shape, width: usize, story: impl FnOnce(Rig, Rt) -> F) {
    let world = World::new(WorldConfig::new(1));
    let (executor, _) = world.executor(1);
    let rt = executor.rt().clone();
    let rig = Rig::new(&world, &rt, shape, width);
    world.run(&executor, Duration::from_secs(60), story(rig, rt)).expect("it ends");
}

/// A chunk of parity, written whole.
fn filled<F: Future<Output = ()> + 'static>(shape: Shape, story: impl FnOnce(Rig, Random) -> F + 'static) {
    run(shape, shape.data + shape.parity, |mut rig, _| async move {
        let mut random = Random::new(7);
        let parts = rig.renew(0, rig.bytes.len(), &mut random);
        let writing = rig.array.write(&rig.slots, 0, parts);
        rig.array.written(writing, &mut rig.touched).await.expect("all disks are there");
        story(rig, random).await;
    });
}

fn counts(rig: &Rig, kind: OpKind) -> Vec<u64> {
    (0..rig.world.disk_count()).map(|disk| rig.world.operations(disk, kind)).collect()
}

fn since(rig: &Rig, kind: OpKind, before: &[u64]) -> u64 {
    counts(rig, kind).iter().zip(before).map(|(now, before)| now - before).sum()
}

#[test]
fn a_block_is_read_from_one_disk_and_computed_from_as_few_as_it_takes() {
    filled(WIDE, |rig, _| async move {
        let (offset, len) = (3 * 65536 + 8192, 8192);
        let (index, at) = rig.place(offset);
        let before = counts(&rig, OpKind::Read);
        let good =
            rig.array.read(&rig.slots, offset, len, rig.check(offset, len)).await.expect("nothing is wrong");
        assert_eq!((good.bad, since(&rig, OpKind::Read, &before)), (vec![], 1));
        // A disk that is out: D others.
        rig.health(index).fail();
        let before = counts(&rig, OpKind::Read);
        let good =
            rig.array.read(&rig.slots, offset, len, rig.check(offset, len)).await.expect("one disk of two");
        assert_eq!((good.bad, since(&rig, OpKind::Read, &before)), (vec![], 8));
        // One of those cannot be read: the last, and another in its place.
        let other = rig.slot_of(0, 0);
        rig.world.set_unreadable(other, rig.position(other, at)..rig.position(other, at) + 512);
        let before = counts(&rig, OpKind::Read);
        let good = rig.array.read(&rig.slots, offset, len, rig.check(offset, len)).await.expect("two of two");
        assert_eq!((good.bad, since(&rig, OpKind::Read, &before)), (vec![], 9));
        assert_eq!(rig.errors(other).read, 1);
    });
}

#[test]
fn rot_is_found_counted_where_it_is_and_repaired_there_alone() {
    filled(WIDE, |rig, mut random| async move {
        let (offset, len) = (11 * 65536 + 4096, 8192);
        let (index, at) = rig.place(offset);
        rig.rot(index, at / UNIT, &mut random);
        let good = rig.array.read(&rig.slots, offset, len, rig.check(offset, len)).await.expect("one of two");
        assert_eq!(good.bad, [rig.slots[index]]);
        assert_eq!(rig.errors(index).checksum, 1);
        let before = counts(&rig, OpKind::Write);
        assert_eq!(rig.array.repair(&rig.slots, &good.bad, offset, &good.bytes.freeze()).await, 1);
        assert_eq!(since(&rig, OpKind::Write, &before), 1);
        assert_eq!(rig.errors(index).repaired, 1);
        assert!(rig.rotten(at / UNIT).is_empty());
        let others: u64 = (0..rig.width()).map(|n| rig.errors(n).checksum).sum();
        assert_eq!(others, 1, "nobody else is blamed");
    });
}

#[test]
fn a_plugged_block_reads_and_writes_its_cell_and_parity_and_spares_rot_beside_it() {
    filled(WIDE, |mut rig, mut random| async move {
        let (offset, len) = (2 * 65536, 8192);
        let (_, at) = rig.place(offset);
        let beside = rig.slot_of(0, 5);
        rig.rot(beside, at / UNIT, &mut random);
        let block = rig.rt.arena().copy(&[9; 8192]).freeze();
        rig.bytes[offset as usize..][..len].fill(9);
        let before = counts(&rig, OpKind::Read);
        let pieces = rig.array.plan_plug(&rig.slots, vec![(offset, block)]).await.expect("nothing is out");
        assert_eq!((pieces.len(), since(&rig, OpKind::Read, &before)), (3, 3));
        let before = counts(&rig, OpKind::Write);
        let writing = rig.array.write_pieces(&rig.slots, &pieces);
        rig.array.written(writing, &mut rig.touched).await.expect("nothing is out");
        assert_eq!(since(&rig, OpKind::Write, &before), 3);
        let rotten = 5 * 65536;
        let good =
            rig.array.read(&rig.slots, rotten, len, rig.check(rotten, len)).await.expect("parity is right");
        assert_eq!(good.bad, [rig.slots[beside]]);
    });
}

#[test]
fn a_write_is_one_request_to_each_slot_and_says_who_lacks_it() {
    filled(WIDE, |mut rig, mut random| async move {
        rig.health(4).fail();
        rig.world.add_rule(Rule::new(6, Action::Fail(DiskErrorKind::Io)).on(OpKind::Write));
        let before = counts(&rig, OpKind::Write);
        let parts = rig.renew(rig.line_bytes(), 2 * rig.line_bytes() as usize, &mut random);
        let writing = rig.array.write(&rig.slots, rig.line_bytes(), parts);
        let mut touched = forebay_raid::DiskSet::default();
        assert_eq!(rig.array.written(writing, &mut touched).await, Ok(()));
        assert_eq!(since(&rig, OpKind::Write, &before), 9);
        for disk in 0..10 {
            assert_eq!(rig.recorded.borrow().contains(disk), disk == 4 || disk == 6, "disk {disk}");
            assert_eq!(touched.contains(disk), disk != 4 && disk != 6, "disk {disk}");
        }
        assert_eq!(rig.array.flush(&touched).await, Ok(()));
        // A third is more than parity.
        rig.health(0).fail();
        let parts = rig.renew(0, rig.line_bytes() as usize, &mut random);
        let writing = rig.array.write(&rig.slots, 0, parts);
        assert!(rig.array.written(writing, &mut touched).await.is_err());
        assert!(rig.array.flush(&touched).await.is_err(), "the group is lost");
    });
}

#[test]
#[should_panic(expected = "to lines of")]
fn part_of_a_line_is_not_written_without_a_plan() {
    filled(WIDE, |mut rig, mut random| async move {
        let parts = rig.renew(0, 65536, &mut random);
        drop(rig.array.write(&rig.slots, 0, parts));
    });
}

#[test]
fn ranges_that_no_chunk_has_are_refused() {
    filled(WIDE, |rig, _| async move {
        for (offset, len) in [(0, 0), (1, 4096), (0, 100), (u64::MAX - 4095, 8192), (8 * (256 << 10), 4096)] {
            assert!(
                rig.array.read(&rig.slots, offset, len, |_| true).await.is_err(),
                "{len} bytes at {offset}"
            );
            assert_eq!(rig.array.mend(&rig.slots, offset, len, |_| true).await, None);
        }
        // Slots that no disk has, as a damaged table may name them.
        let mut slots = rig.slots.clone();
        slots[1].slot = 1 << 30;
        slots[2].disk = 999;
        for offset in (0..16).map(|cell| cell * 65536) {
            let read = rig.array.read(&slots, offset, 4096, rig.check(offset, 4096)).await;
            assert!(read.is_ok_and(|good| good.bad.is_empty()), "two of ten");
        }
    });
}

/// The log and nodes of a pool with parity: P + 1 slots of one and the same.
#[test]
fn fewer_slots_than_a_line_has_are_a_mirror() {
    let shape = Shape { data: 4, ..WIDE };
    run(shape, 3, |mut rig, rt| async move {
        let (offset, len) = (100 << 10, 8192);
        let block = rt.arena().copy(&[5; 8192]).freeze();
        let writing = rig.array.write(&rig.slots, offset, vec![block]);
        rig.array.written(writing, &mut rig.touched).await.expect("all disks are there");
        let five = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 5);
        let slots = rig.slots.clone();
        let sound = |index: usize| {
            let mut bytes = vec![0; len];
            rig.world.image(usize::from(slots[index].disk)).read(rig.position(index, offset), &mut bytes);
            five(&bytes)
        };
        assert!((0..3).all(sound), "every slot has it");
        for index in [0, 2] {
            rig.rot(index, offset / UNIT, &mut Random::new(3));
        }
        assert_eq!(rig.array.mend(&slots, offset, len, five).await, Some(2));
        assert!((0..3).all(sound), "a mend looks at every copy");
        rig.health(1).fail();
        let target = SlotRef { disk: 3, slot: 3 };
        let unreadable = rig.position(0, offset);
        rig.world.set_unreadable(0, unreadable..unreadable + 512);
        let mut touched = forebay_raid::DiskSet::default();
        let lost = rig.array.rebuild(&slots, 1, 0..shape.slot, target, &mut touched).await;
        assert_eq!(lost, Ok(vec![]), "the third copy has what the first has not");
        let rebuilt = rig.array.read(&[target], offset, len, five).await;
        assert!(rebuilt.is_ok() && touched.contains(3));
        rig.world.set_unreadable(2, rig.position(2, offset)..rig.position(2, offset) + 512);
        let lost = rig.array.rebuild(&slots, 1, 0..shape.slot, target, &mut touched).await;
        let unit = offset..offset + UNIT;
        assert_eq!(lost, Ok(vec![unit]), "no copy has that one");
    });
}

#[test]
fn a_rebuild_does_not_add_up_errors_in_different_places() {
    let shape = Shape { data: 4, parity: 1, ..WIDE };
    filled(shape, move |mut rig, _| async move {
        rig.health(2).fail();
        for (index, unit) in [(0, 3), (1, 9), (3, 20), (4, 61)] {
            rig.make_unreadable(index, unit);
        }
        let target = SlotRef { disk: 5, slot: 0 };
        let lost = rig
            .array
            .rebuild(&rig.slots, 2, 0..shape.slot, target, &mut rig.touched)
            .await
            .expect("four are left");
        let units: Vec<u64> =
            lost.iter().flat_map(|range| range.clone().step_by(4096)).map(|at| at / UNIT).collect();
        assert_eq!(units, [3, 9, 20, 61]);
        rig.slots[2] = target;
        assert!((0..rig.units()).filter(|unit| !units.contains(unit)).all(|unit| rig.wrong(unit).is_empty()));
    });
}

/// Goal: what a slot gives itself is not computed from others, which may be wrong where it is right.
#[test]
fn one_bad_sector_does_not_have_the_rest_of_a_slot_computed() {
    let shape = Shape { data: 4, parity: 1, ..WIDE };
    for is_copied in [true, false] {
        filled(shape, move |mut rig, mut random| async move {
            let (slot, line) = (2, 1);
            let first = line * rig.shape.cell / UNIT;
            // In the same line, and beside it, another disk has rot that nobody has seen.
            rig.make_unreadable(slot, first + 3);
            rig.rot(0, first + 9, &mut random);
            rig.rot(4, 0, &mut random);
            if is_copied {
                let target = SlotRef { disk: 5, slot: 0 };
                let lost = rig.array.rebuild(&rig.slots, slot, 0..shape.slot, target, &mut rig.touched).await;
                assert_eq!(lost, Ok(vec![]));
                rig.slots[slot] = target;
            } else {
                let whole = rig.array.restore_unread(&rig.slots, line, &mut rig.touched).await;
                assert_eq!(whole, Ok(true));
                rig.look().await;
            }
            let wrong: Vec<u64> = (0..rig.units()).filter(|unit| rig.wrong(*unit).contains(slot)).collect();
            assert_eq!(wrong, [0_u64; 0], "copied: {is_copied}");
        });
    }
}
