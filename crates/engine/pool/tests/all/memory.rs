//! How memory is shared between blocks and the leaves that point to them: each test asks one question.

use crate::ahead::asked;
use crate::compression::{Pool, on_pools};
use forebay_base::{MIB, Random};
use forebay_pool::{Compression, Volume};

/// What one leaf points to in blocks of 4 KiB.
const REACH: u64 = 508 * 4096;

/// Reads a hole of each leaf: nothing but leaves is asked of the disks. How often they were.
async fn leaves_read(pool: &Pool, volume: &Volume, leaves: u64) -> u64 {
    let before = asked(pool);
    for leaf in 0..leaves {
        assert!(
            volume
                .read(leaf * REACH + 4096, 4096)
                .await
                .expect("read")
                .iter()
                .all(|part| **part == [0; 4096])
        );
    }
    asked(pool) - before
}

/// Reads blocks of a volume in random order, and how often the disks were asked for it.
async fn blocks_read(pool: &Pool, volume: &Volume, blocks: u64, random: &mut Random) -> u64 {
    let before = asked(pool);
    let mut order: Vec<u64> = (0..blocks).collect();
    order.sort_by_cached_key(|_| random.next_u64());
    for block in order {
        volume.read(block * 4096, 4096).await.expect("read");
    }
    asked(pool) - before
}

/// Goal: who asks at random for more blocks than the least share of memory has pointers for, has the pointers in memory after a while; who
/// then asks for blocks again and again has these there instead.
#[test]
fn memory_goes_where_it_spares_reads() {
    on_pools(1, |pool, seed| async move {
        let mut random = Random::new(seed);
        // Leaves and blocks take half of a shard's memory, each.
        let memory = 16 * MIB / pool.shards;
        let (leaves, blocks) = (memory / 2 / (508 * 28), memory / 2 / (4096 + 64));
        let volume = pool.sized("v", leaves * REACH, 4096, Compression::Off).await;
        for leaf in 0..leaves {
            volume.write(leaf * REACH, vec![pool.buffer(&[1; 4096])], false).await.expect("written");
        }
        let small = pool.sized("w", blocks * 4096, 4096, Compression::Off).await;
        for at in (0..blocks * 4096).step_by(MIB as usize) {
            let mut data = vec![0; MIB.min(blocks * 4096 - at) as usize];
            random.fill(&mut data);
            small.write(at, vec![pool.buffer(&data)], false).await.expect("written");
        }
        // A snapshot waits until nothing is in the log alone any more.
        pool.engine.snapshot_create(vec!["tank/v".into()], "s").await.expect("taken");
        pool.again().await;
        let (volume, small) = (pool.open("v").await, pool.open("w").await);
        let mut reads = Vec::new();
        for _ in 0..6 {
            reads.push(leaves_read(&pool, &volume, leaves).await);
        }
        assert!(reads[0] > 0 && reads[5] == 0, "{reads:?} reads of {leaves} leaves");
        reads.clear();
        for _ in 0..12 {
            reads.push(blocks_read(&pool, &small, blocks, &mut random).await);
        }
        assert!(reads[0] > blocks / 2 && reads[11] < blocks / 50, "{reads:?} reads of {blocks} blocks");
    });
}
