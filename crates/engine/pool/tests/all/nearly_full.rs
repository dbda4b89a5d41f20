//! A pool whose chunks all have been in use, on a simulated disk: each test asks one question.

use crate::compression::{Kind, Pool, on_pool};
use forebay_base::{KIB, MIB, Random};
use forebay_pool::{Compression, Layout, Volume};
use futures_util::stream::{StreamExt, iter};
use std::time::Duration;

const KIND: Kind = Kind {
    layout: Layout::Single,
    data: 1,
    log: 0,
    cache: 0,
    shards: 2,
    disk_bytes: 512 * MIB,
    memory: 64 * MIB,
};
const SIZE: u64 = 192 * MIB;
const BLOCK: u64 = 8 * KIB;
const BLOCKS: u64 = SIZE / BLOCK;
const QUEUE: usize = 32;
/// With these, a write was refused when blocks could take all chunks but the last slice.
const SEEDS: [u64; 2] = [18, 44];

/// What a block has after its nth write.
fn content(block: u64, nth: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    Random::new(nth << 32 | block).fill(&mut bytes);
    bytes
}

/// Overwrites so many blocks, any of them and many at a time; `model` knows how often each was written.
async fn overwrite(pool: &Pool, volume: &Volume, model: &mut [u64], random: &mut Random, count: u64) {
    let mut blocks: Vec<u64> = (0..count).map(|_| random.below(BLOCKS)).collect();
    blocks.sort_unstable();
    blocks.dedup();
    (1..blocks.len()).rev().for_each(|nth| blocks.swap(nth, random.below(nth as u64 + 1) as usize));
    let writes = blocks.into_iter().map(|block| {
        model[block as usize] += 1;
        let data = vec![pool.buffer(&content(block, model[block as usize]))];
        async move { volume.write(block * BLOCK, data, false).await.expect("there is space") }
    });
    let writes: Vec<_> = writes.collect();
    iter(writes).buffer_unordered(QUEUE).for_each(async |()| ()).await;
}

/// Goal: who overwrites a volume again and again, and then takes snapshots of it, is not refused for want of pointers' space while blocks leave a third
/// of the pool free. Pointers want chunks of their own, and what snapshots keep in the others does not move.
#[test]
fn pointers_find_room_while_blocks_have_holes() {
    for seed in SEEDS {
        on_pool(KIND, seed, move |pool| async move {
            let (mut random, mut model) = (Random::new(seed), vec![0; BLOCKS as usize]);
            let volume = pool.sized("v", SIZE, BLOCK as u32, Compression::Lz4).await;
            for at in (0..SIZE).step_by(MIB as usize) {
                let bytes: Vec<u8> =
                    (at / BLOCK..(at + MIB) / BLOCK).flat_map(|block| content(block, 0)).collect();
                volume.write(at, vec![pool.buffer(&bytes)], false).await.expect("there is space");
            }
            // What is read in sequence is gathered while nobody writes, and sometimes that is interrupted.
            for _ in 0..6 {
                let part = 1 + random.below(8);
                overwrite(&pool, &volume, &mut model, &mut random, BLOCKS * part / 8).await;
                pool.rt.sleep(Duration::from_millis(random.below(1500))).await;
                if random.one_in(2) {
                    for at in (0..SIZE).step_by(MIB as usize) {
                        volume.read(at, MIB as usize).await.expect("read");
                    }
                }
                pool.rt.sleep(Duration::from_millis(random.below(3000))).await;
            }
            for snapshot in 0..70 {
                overwrite(&pool, &volume, &mut model, &mut random, BLOCKS / 300).await;
                pool.snapshot("v", &format!("s{snapshot}")).await;
            }
            let status = &pool.engine.pools().await[0];
            assert!(status.used * 3 < status.size * 2, "{} of {} used", status.used, status.size);
            for (block, nth) in (0..).zip(&model) {
                let read = volume.read(block * BLOCK, BLOCK as usize).await.expect("read");
                let read: Vec<u8> = read.iter().flat_map(|part| part.iter().copied()).collect();
                assert!(read == content(block, *nth), "block {block} after {nth} writes");
            }
        });
    }
}
