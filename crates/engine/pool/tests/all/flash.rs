//! The flash cache on simulated disks: each test asks one question.

use crate::compression::{Pool, on_pools_with};
use forebay_base::planted::{Bug, plant};
use forebay_base::{MIB, Random};
use forebay_pool::{Compression, DiskAdd, DiskState, PoolState, Purpose, ReadFrom, Volume};
use forebay_runtime::DiskErrorKind;
use forebay_simulation::{Action, OpKind, Rule};
use std::time::Duration;

const SIZE: usize = 8 * MIB as usize;
const BLOCK: usize = 4096;
const BLOCKS: u64 = (SIZE / BLOCK) as u64;
const KINDS: [Compression; 2] = [Compression::Off, Compression::Lz4];

/// A volume, and what it must hold: half of it can be made smaller.
async fn filled(pool: &Pool, kind: Compression, random: &mut Random) -> Vec<u8> {
    let volume = pool.volume("v", BLOCK as u32, kind).await;
    let mut model = vec![0; SIZE];
    model.chunks_mut(BLOCK).for_each(|block| random.fill(&mut block[..BLOCK / 2]));
    for at in (0..SIZE).step_by(MIB as usize) {
        let bytes = pool.buffer(&model[at..at + MIB as usize]);
        volume.write(at as u64, vec![bytes], true).await.expect("written");
    }
    pool.settle("v").await;
    model
}

/// Reads each block once, in any order, one to four at a time, and compares.
async fn read_all(pool: &Pool, model: &[u8], random: &mut Random) {
    let volume = pool.open("v").await;
    let mut places: Vec<u64> = (0..BLOCKS / 4).collect();
    (1..places.len()).rev().for_each(|nth| places.swap(nth, random.below(nth as u64 + 1) as usize));
    for place in places {
        let cuts: &[usize] = if place % 3 == 0 { &[4] } else { &[1, 2, 1] };
        let mut at = place as usize * 4 * BLOCK;
        for cut in cuts {
            compare(&volume, model, at, cut * BLOCK).await;
            at += cut * BLOCK;
        }
    }
}

async fn compare(volume: &Volume, model: &[u8], at: usize, len: usize) {
    let read = volume.read(at as u64, len).await.expect("readable");
    let read: Vec<u8> = read.iter().flat_map(|part| part.iter().copied()).collect();
    assert!(read == model[at..at + len], "other bytes at {at}");
}

/// What was read since this was asked last, and where it came from.
async fn came_from(pool: &Pool, after: &mut u64) -> ReadFrom {
    pool.rt.sleep(Duration::from_secs(2)).await;
    let seconds = pool.seconds(*after).await.0;
    *after = seconds.last().map_or(*after, |last| last.number);
    let mut sum = ReadFrom::default();
    for second in &seconds {
        sum.memory += second.read_from.memory;
        sum.ahead += second.read_from.ahead;
        sum.flash += second.read_from.flash;
        sum.disks += second.read_from.disks;
    }
    sum
}

/// Goal: what was read at random once comes from the cache disks afterwards, also after an import, as long as it is what the volume has.
#[test]
fn what_was_read_comes_from_flash_then() {
    on_pools_with(2, 2, |pool, seed| async move {
        let (mut random, kind) = (Random::new(seed), KINDS[seed as usize % 2]);
        let mut model = filled(&pool, kind, &mut random).await;
        pool.again().await;
        let mut after = 0;
        came_from(&pool, &mut after).await;
        read_all(&pool, &model, &mut random).await;
        let first = came_from(&pool, &mut after).await;
        assert_eq!((first.flash, first.memory + first.ahead + first.disks), (0, BLOCKS), "{first:?}");
        let cache = pool.engine.pools().await.remove(0).cache.expect("there are cache disks");
        assert!((SIZE as u64 / 4..=SIZE as u64 * 2).contains(&cache.held), "{cache:?}");
        assert!(cache.size > cache.held && cache.hits_permille == Some(0), "{cache:?}");
        // Memory is empty after an import; seconds are counted anew.
        pool.again().await;
        after = 0;
        came_from(&pool, &mut after).await;
        read_all(&pool, &model, &mut random).await;
        let second = came_from(&pool, &mut after).await;
        // The last segments were not full: a MiB for each disk and shard.
        assert!(second.flash > BLOCKS / 4, "{second:?} after {first:?}");
        let again = pool.engine.pools().await.remove(0).cache.expect("there are cache disks");
        let hits = (second.flash * 1000 / (second.flash + second.disks)) as u32;
        assert_eq!((again.size, again.hits_permille), (cache.size, Some(hits)));
        assert!(again.held >= cache.held, "{again:?} after {cache:?}");
        assert_eq!(second.memory + second.ahead + second.flash + second.disks, BLOCKS);
        // A quarter is other than what the cache has.
        let volume = pool.open("v").await;
        for _ in 0..BLOCKS / 4 {
            let at = random.below(BLOCKS) as usize * BLOCK;
            random.fill(&mut model[at..at + BLOCK]);
            let bytes = pool.buffer(&model[at..at + BLOCK]);
            volume.write(at as u64, vec![bytes], random.one_in(2)).await.expect("written");
        }
        read_all(&pool, &model, &mut random).await;
        pool.again().await;
        read_all(&pool, &model, &mut random).await;
    });
}

/// Goal: whatever becomes of a cache disk, everybody reads what was written, without an error, and the pool is as well as before.
#[test]
fn a_cache_disk_that_fails_costs_nothing() {
    on_pools_with(1, 6, |pool, seed| async move {
        let mut random = Random::new(seed);
        let model = filled(&pool, KINDS[seed as usize % 2], &mut random).await;
        pool.again().await;
        // Where writes fail, there are to be some.
        if !matches!(seed, 2 | 5) {
            read_all(&pool, &model, &mut random).await;
        }
        pool.again().await;
        // What is there is looked for after an import.
        pool.rt.sleep(Duration::from_secs(1)).await;
        let cache = pool.paths.len() - 1;
        let rule = |action, kind| pool.world.add_rule(Rule::new(cache, action).on(kind));
        match seed {
            0 => (MIB..60 * MIB).step_by(4096).for_each(|at| pool.world.rot(cache, at + 77, &[4])),
            1 => pool.world.set_unreadable(cache, MIB..60 * MIB),
            2 => rule(Action::Fail(DiskErrorKind::Io), OpKind::Write),
            3 => pool.world.set_gone(cache, true),
            4 => rule(Action::Hang, OpKind::Read),
            _ => rule(Action::Misdirect(None), OpKind::Write),
        }
        for _ in 0..2 {
            read_all(&pool, &model, &mut random).await;
        }
        // It hangs for longer than anybody waits.
        pool.rt.sleep(Duration::from_secs(60)).await;
        read_all(&pool, &model, &mut random).await;
        let status = pool.engine.pools().await.remove(0);
        assert_eq!(status.state, PoolState::Online, "seed {seed}");
        let disk = &status.groups[0].disks.last().expect("the cache disk is the last");
        let expected = if (1..=4).contains(&seed) { DiskState::Empty } else { DiskState::Cache };
        assert_eq!(disk.state, expected, "seed {seed}");
        assert!(seed != 0 || disk.errors.checksum > 0, "nothing was found to be wrong");
        pool.world.take_rules();
        pool.world.release(cache);
        pool.world.set_gone(cache, false);
        pool.again().await;
        read_all(&pool, &model, &mut random).await;
        // What has failed leaves, and comes back as if it were new.
        let path = pool.paths[cache].clone();
        pool.engine.disk_remove("tank", &path).await.expect("removed");
        read_all(&pool, &model, &mut random).await;
        // Nobody could erase its label.
        let add = DiskAdd { purpose: Purpose::Cache, force: true, ..DiskAdd::default() };
        pool.engine.disk_add("tank", vec![path], add).await.expect("added");
        // Memory has all of it by now.
        pool.again().await;
        let mut after = 0;
        came_from(&pool, &mut after).await;
        for _ in 0..3 {
            read_all(&pool, &model, &mut random).await;
        }
        let from = came_from(&pool, &mut after).await;
        assert!(from.flash > 0, "seed {seed}: {from:?}");
    });
}

/// Goal: a cache disk that says something else is found out. Without the comparison the tests above would see it.
#[test]
#[should_panic(expected = "other bytes")]
fn what_a_cache_disk_says_is_compared() {
    on_pools_with(1, 1, |pool, seed| async move {
        let mut random = Random::new(seed);
        let model = filled(&pool, Compression::Off, &mut random).await;
        pool.again().await;
        read_all(&pool, &model, &mut random).await;
        pool.again().await;
        // What is there is looked for after an import.
        pool.rt.sleep(Duration::from_secs(1)).await;
        let cache = pool.paths.len() - 1;
        (2 * MIB..60 * MIB).step_by(4096).for_each(|at| pool.world.rot(cache, at + 77, &[4]));
        plant(Some(Bug::FlashUnchecked));
        read_all(&pool, &model, &mut random).await;
    });
}
