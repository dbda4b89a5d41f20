//! Which disks chunks get slots on, how many chunks there is room for, and what is kept.

use super::*;
use forebay_base::Id;
use forebay_device::Owner;

const MIRROR: GroupEntry =
    GroupEntry { role: 0, data: 1, redundancy: 1, slot_bytes: 65536, cell_bytes: 65536, leaving: false };

#[test]
fn chunks_spread_over_disks_and_slots_come_back() {
    assert_eq!(most_chunks(vec![10, 10], 2), 10);
    assert_eq!(most_chunks(vec![10, 2, 2], 2), 4);
    assert_eq!(most_chunks(vec![5, 5, 5], 2), 7);
    let group = MIRROR;
    let mut map = SlotMap::new(&label(group, 3));
    let chunks: Vec<_> = std::iter::from_fn(|| map.take(0, ChunkKind::Node, 0)).collect();
    assert_eq!((chunks.len(), map.chunks(0)), (6, (4, 0)), "of twelve slots four are spare");
    assert!(chunks.iter().all(|chunk| chunk.slots[0].disk != chunk.slots[1].disk));
    assert!(!map.occupy(&chunks[0]), "in use already");
    map.release(&chunks[3]);
    map.release(&chunks[1]);
    assert_eq!(map.take(0, ChunkKind::Node, 0).map(|chunk| chunk.id), Some(chunks[1].id));
    assert_eq!(map.take(0, ChunkKind::Node, 0).map(|chunk| chunk.id), Some(chunks[3].id));
    let single = GroupEntry { redundancy: 0, ..MIRROR };
    assert_eq!(SlotMap::new(&label(single, 3)).chunks(0), (12, 12), "nothing could be rebuilt");
}

fn label(group: GroupEntry, disks: usize) -> Label {
    let disk = DiskEntry {
        id: Id(1),
        group: 0,
        status: DiskStatus::Online,
        slots: 4,
        size: 0,
        sector_physical: 512,
        stale_since: 0,
        heir_of: None,
        enclosure: Enclosure::default(),
    };
    Label {
        features: Vec::new(),
        pool: Id(1),
        pool_name: "tank".into(),
        disk: 0,
        owner: Owner::default(),
        generation: 1,
        created: Default::default(),
        shards: 1,
        groups: vec![group],
        disks: vec![disk; disks],
    }
}

#[test]
fn groups_of_any_size_fill_evenly_and_a_new_one_catches_up() {
    let group = MIRROR;
    let mut label = label(group, 2);
    label.disks.iter_mut().for_each(|disk| disk.slots = 40);
    let mut map = SlotMap::new(&label);
    let fill = |map: &mut SlotMap, count: usize| -> Vec<u16> {
        let group = |_| map.emptiest_group(|_, total| total / 10).and_then(|group| map.take(group, DATA, 0));
        (0..count).map_while(group).map(|chunk| chunk.group).collect()
    };
    assert_eq!(fill(&mut map, 100).len(), 36, "a tenth is kept");
    let wide = GroupEntry { data: 2, slot_bytes: 1 << 20, ..group };
    label.groups.extend([GroupEntry { role: 1, ..group }, wide]);
    for group in [1, 1, 2, 2, 2] {
        let slots = if group == 2 { 80 } else { 40 };
        label.disks.push(DiskEntry { group, slots, ..label.disks[0] });
    }
    map.update(&label);
    assert_eq!(fill(&mut map, 50), [2; 50], "it catches up, and nobody takes from the log's group");
    let mut both = SlotMap::new(&label);
    let taken = fill(&mut both, 60);
    let of = |group: u16| taken.iter().filter(|taken| **taken == group).count();
    assert_eq!((of(0), of(1), of(2)), (20, 0, 40), "half of each");
    assert!(taken.chunks(3).all(|three| three.contains(&0) && three.contains(&2)), "{taken:?}");
}

#[test]
fn a_disk_that_came_back_and_is_empty_again_counts_under_its_old_number() {
    let group = GroupEntry { data: 2, ..MIRROR };
    let mut label = label(group, 4);
    label.disks[2].status = DiskStatus::Failed;
    label.disks[3].heir_of = Some(2);
    for status in [DiskStatus::Online, DiskStatus::Failed, DiskStatus::Empty] {
        label.disks[3].status = status;
        let mut map = SlotMap::new(&label);
        assert_eq!(map.chunks(0), (4, 4), "{status:?}");
        let disks: Vec<u16> =
            map.take(0, DATA, 0).expect("room").slots.iter().map(|slot| slot.disk).collect();
        assert_eq!(disks.contains(&2), status == DiskStatus::Empty, "{status:?}: {disks:?}");
    }
}

#[test]
fn a_busy_group_gets_less_of_what_is_new() {
    let mut label = label(MIRROR, 2);
    label.disks.iter_mut().for_each(|disk| disk.slots = 400);
    label.groups.push(MIRROR);
    label.disks.extend([DiskEntry { group: 1, ..label.disks[0] }; 2]);
    let left = |loads: [u64; 2]| {
        let mut map = SlotMap::new(&label);
        for _ in 0..10 * LOAD_SECONDS {
            (0..2).for_each(|group| map.note_load(group, loads[usize::from(group)]));
        }
        for _ in 0..300 {
            let group = map.emptiest_group(|_, _| 0).expect("there is room");
            map.take(group, DATA, 0).expect("there is room");
        }
        (map.chunks(0).1, map.chunks(1).1)
    };
    let near = |(a, b): (u64, u64), (c, d): (u64, u64)| a.abs_diff(c) <= 2 && b.abs_diff(d) <= 2;
    assert!(near(left([0, 0]), (250, 250)));
    assert!(near(left([8 * LOAD_NANOS_MIN; 2]), (250, 250)), "both are busy");
    assert!(near(left([8 * LOAD_NANOS_MIN, 0]), (333, 166)), "{:?}", left([8 * LOAD_NANOS_MIN, 0]));
    assert!(near(left([LOAD_NANOS_MIN / 100, 0]), (250, 250)), "hardly busy");
}

#[test]
fn a_group_that_leaves_gives_nothing_and_a_disk_leaves_only_if_every_slot_finds_a_place() {
    let group = MIRROR;
    let mut label = label(group, 3);
    label.groups.push(group);
    let others = label.disks.clone();
    label.disks.extend(others.into_iter().map(|disk| DiskEntry { group: 1, ..disk }));
    let mut map = SlotMap::new(&label).without(0);
    assert_eq!(map.data_groups().collect::<Vec<u16>>(), [1]);
    assert_eq!(map.emptiest_group(|_, _| 0), Some(1));
    let ring = map.take_ring(3 * group.slot_bytes, |_| 0).expect("there is room");
    assert_eq!(
        ring.iter().map(|chunk| (chunk.group, chunk.order)).collect::<Vec<_>>(),
        [(1, 0), (1, 1), (1, 2)]
    );
    assert!(map.take_ring(3 * group.slot_bytes, |_| 0).is_none(), "a spare disk's worth is kept");
    // Of four slots on each disk, some are in use; a chunk has no two on one.
    let mut map = SlotMap::new(&label);
    let chunks: Vec<ChunkEntry> = std::iter::from_fn(|| map.take(0, DATA, 0)).collect();
    let on = |disk: u16| {
        let has = |chunk: &&ChunkEntry| chunk.slots.iter().any(|slot| slot.disk == disk);
        chunks.iter().filter(has).cloned().collect::<Vec<ChunkEntry>>()
    };
    assert_eq!((map.others(0), map.stranded(0, &on(0))), (2, on(0).len()), "all slots are taken");
    on(1)
        .into_iter()
        .filter(|chunk| chunk.slots.iter().all(|slot| slot.disk != 0))
        .for_each(|chunk| map.release(&chunk));
    assert!(map.stranded(0, &on(0)) < on(0).len());
}

#[test]
fn a_crowded_box_of_one_group_does_not_count_for_another() {
    let group = MIRROR;
    let mut label = label(group, 4);
    label.groups.push(group);
    for (index, disk) in label.disks.iter_mut().enumerate() {
        disk.group = index as u16 / 2;
        let name = if index < 2 { format!("box{index}") } else { "box2".into() };
        disk.enclosure = Enclosure::new(&name).expect("a short name");
    }
    let mut map = SlotMap::new(&label);
    for group in [0, 1] {
        assert!(map.take(group, DATA, 0).is_some());
    }
    assert_eq!((map.crowd(0), map.crowd(1)), (1, 2));
}

#[test]
fn no_enclosure_holds_more_of_a_chunk_than_may_be_lost() {
    let group = GroupEntry {
        role: 0,
        data: 4,
        redundancy: 1,
        slot_bytes: 1 << 20,
        cell_bytes: 65536,
        leaving: false,
    };
    let mut label = label(group, 12);
    for (index, disk) in label.disks.iter_mut().enumerate() {
        disk.enclosure = Enclosure::new(&format!("box{}", index / 2)).expect("a short name");
    }
    let mut map = SlotMap::new(&label);
    let apart = |chunk: &ChunkEntry| {
        let boxes: BTreeSet<u16> = chunk.slots.iter().map(|slot| slot.disk / 2).collect();
        boxes.len() == 5
    };
    let chunks: Vec<ChunkEntry> = std::iter::from_fn(|| map.take(0, DATA, 0)).take(7).collect();
    assert!(chunks.len() == 7 && chunks.iter().all(apart), "{chunks:?}");
    for mut chunk in chunks {
        let target = map.take_target(&chunk, 2, None).expect("there is room");
        chunk.slots[2] = target;
        assert!(apart(&chunk), "{chunk:?}");
    }
}

#[test]
fn a_group_with_too_few_disks_keeps_room_for_nodes() {
    let mut label = label(GroupEntry { data: 2, ..MIRROR }, 3);
    label.disks.iter_mut().for_each(|disk| disk.slots = 8);
    let mut map = SlotMap::new(&label);
    let logs: Vec<ChunkEntry> = (0..9).filter_map(|_| map.take(0, ChunkKind::Log, 0)).collect();
    assert!(!map.is_down_to(0, || 8), "all are there");
    label.disks[0].status = DiskStatus::Failed;
    map.update(&label);
    let mut moved = 0;
    for chunk in &logs {
        let index = chunk.slots.iter().position(|slot| slot.disk == 0);
        if let Some(index) = index.filter(|_| !map.is_down_to(0, || 1)) {
            assert!(map.take_target(chunk, index, None).is_some());
            map.vacate(chunk.slots[index]);
            moved += 1;
        }
    }
    assert!(moved < 6, "not all can move: {moved}");
    assert!(map.take(0, ChunkKind::Node, 0).is_some());
    label.disks[0].status = DiskStatus::Online;
    map.update(&label);
    assert!(!map.is_down_to(0, || 8));
}
