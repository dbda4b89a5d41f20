//! Clones, holes, zeros, compression and streams, each with each: what a block is in a snapshot, what its clone makes of it twice, under which
//! compressions, and by which streams all that travels.

use super::*;
use forebay_pool::{Setting, VolumeChange};

/// Larger than the unit of allocation, so that blocks can be made smaller.
const BLOCK: u64 = 16 << 10;
/// Blocks that are looked at are apart, so that there are several leaves of them, and holes between them.
const APART: u64 = 11;

/// What is done to a block.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Change {
    None,
    Discard,
    Zeros,
    Text,
    Noise,
}

const CHANGES: [Change; 5] = [Change::None, Change::Discard, Change::Zeros, Change::Text, Change::Noise];

/// The changes that a block goes through, one after the other; every combination is one block.
fn changes(nth: u64) -> [Change; 3] {
    [nth % 5, nth / 5 % 5, nth / 25].map(|which| CHANGES[which as usize])
}

/// What a block holds after so many of its changes.
fn held(nth: u64, done: usize) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    for (step, change) in changes(nth).into_iter().enumerate().take(done) {
        let seed = nth * 10 + step as u64 + 1;
        match change {
            Change::None => {}
            Change::Discard | Change::Zeros => bytes.fill(0),
            Change::Text => {
                bytes.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&seed.to_le_bytes()))
            }
            Change::Noise => Random::new(seed).fill(&mut bytes),
        }
    }
    bytes
}

async fn change(pools: &Pools, name: &str, step: usize) {
    let volume = pools.open(name).await;
    for nth in 0..125 {
        let at = nth * APART * BLOCK;
        match changes(nth)[step] {
            Change::None => {}
            Change::Discard => volume.discard(at, BLOCK, false).await.expect("discarded"),
            Change::Zeros | Change::Text | Change::Noise => {
                let data = pools.rt.arena().copy(&held(nth, step + 1)).freeze();
                volume.write(at, vec![data], false).await.expect("written");
            }
        }
    }
}

/// All blocks of a snapshot, those between them included, by way of a clone.
async fn is_as_after(pools: &Pools, snapshot: &str, done: usize, why: &str) {
    let (pool, _) = snapshot.split_once('/').expect("POOL/VOLUME@NAME");
    pools.engine.volume_clone(snapshot, "look").await.expect("cloned");
    let look = format!("{pool}/look");
    let volume = pools.open(&look).await;
    for nth in 0..125 {
        let parts = volume.read(nth * APART * BLOCK, 2 * BLOCK as usize).await.expect("readable");
        let read: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let (block, hole) = read.split_at(BLOCK as usize);
        assert!(block == held(nth, done), "{why}: {snapshot}: {:?}", &changes(nth)[..done]);
        assert!(hole.iter().all(|byte| *byte == 0), "{why}: {snapshot}: after block {nth}");
    }
    drop(volume);
    pools.engine.volume_delete(&look, PURGE).await.expect("deleted");
}

/// A volume of one compression with a snapshot, a clone of another compression with two, and streams of these by every way.
async fn travels(pools: &Pools, compressions: [Compression; 2]) {
    let set = |compression| VolumeChange { compression: Setting::Own(compression), ..Default::default() };
    let why = format!("{compressions:?}");
    pools.create("tank/a", 32 * MIB).await;
    pools.engine.volume_set("tank/a", set(compressions[0])).await.expect("set");
    change(pools, "tank/a", 0).await;
    pools.snapshot("tank/a@s0").await;
    pools.engine.volume_clone("tank/a@s0", "c").await.expect("cloned");
    pools.engine.volume_set("tank/c", set(compressions[1])).await.expect("set");
    // What the volume itself becomes is nothing of the clone's.
    pools.discard(&pools.open("tank/a").await, 0, 32 * MIB / BLOCK).await;
    for (step, name) in [(1, "tank/c@s1"), (2, "tank/c@s2")] {
        change(pools, "tank/c", step).await;
        pools.snapshot(name).await;
    }
    let ways: [&[(&str, Option<&str>)]; 4] = [
        &[("tank/a@s0", None), ("tank/c@s1", Some("tank/a@s0")), ("tank/c@s2", Some("tank/c@s1"))],
        &[("tank/a@s0", None), ("tank/c@s2", Some("tank/a@s0"))],
        &[("tank/c@s1", None), ("tank/c@s2", Some("tank/c@s1"))],
        &[("tank/c@s2", None)],
    ];
    for (nth, way) in ways.into_iter().enumerate() {
        let into = format!("vault/way{nth}");
        for (snapshot, from) in way {
            let stream = pools.stream(snapshot, *from).await;
            pools.receive(&stream, &into, KEEP).await.expect("received");
        }
        for (snapshot, _) in way {
            let (_, name) = snapshot.split_once('@').expect("VOLUME@NAME");
            let done = 1 + name[1..].parse::<usize>().expect("a number");
            is_as_after(pools, &format!("{into}@{name}"), done, &why).await;
        }
    }
    for (snapshot, done) in [("tank/a@s0", 1), ("tank/c@s1", 2), ("tank/c@s2", 3)] {
        is_as_after(pools, snapshot, done, &why).await;
    }
}

#[test]
fn each_with_each() {
    let kinds = [Compression::Off, Compression::Lz4, Compression::Zstd(1)];
    for (nth, first) in kinds.into_iter().enumerate() {
        for second in kinds {
            let layouts = if nth % 2 == 0 { [LAYOUTS[0], LAYOUTS[1]] } else { [LAYOUTS[3], LAYOUTS[2]] };
            world(Err(96 * MIB), layouts, BLOCK, |pools| async move {
                travels(&pools, [first, second]).await;
                pools.settle().await;
                pools.again().await;
            });
        }
    }
}
