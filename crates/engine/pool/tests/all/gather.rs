//! Gathering on simulated disks: each test asks one question.

use crate::compression::{Pool, on_pools};
use forebay_base::{MIB, Random};
use forebay_pool::{Compression, Volume, VolumeDelete};
use forebay_simulation::OpKind;
use std::time::Duration;

const SIZE: u64 = 8 * MIB;
const BLOCK: usize = 4096;
const PIECE: usize = 256 << 10;
/// Clients rest for longer than it takes.
const REST: Duration = Duration::from_secs(60);
const KINDS: [Compression; 2] = [Compression::Off, Compression::Lz4];

/// Overwrites some blocks of those that `model` has, in any order; half of what is written can be made smaller.
async fn overwrite(pool: &Pool, volume: &Volume, model: &mut [u8], random: &mut Random, count: u64) {
    for _ in 0..count {
        let at = random.below(SIZE / BLOCK as u64) as usize * BLOCK;
        let block = &mut model[at..at + BLOCK];
        block.fill(random.next_u64() as u8);
        random.fill(&mut block[..BLOCK / 2]);
        volume.write(at as u64, vec![pool.buffer(block)], random.one_in(2)).await.expect("written");
    }
}

/// A volume in which no two neighbours lie beside each other.
async fn scattered(pool: &Pool, name: &str, kind: Compression, random: &mut Random) -> Vec<u8> {
    let volume = pool.volume(name, BLOCK as u32, kind).await;
    let mut model = vec![0; SIZE as usize];
    let mut blocks: Vec<usize> = (0..SIZE as usize / BLOCK).collect();
    (1..blocks.len()).rev().for_each(|nth| blocks.swap(nth, random.below(nth as u64 + 1) as usize));
    for block in blocks {
        let bytes = &mut model[block * BLOCK..][..BLOCK];
        random.fill(&mut bytes[..BLOCK / 2]);
        volume.write((block * BLOCK) as u64, vec![pool.buffer(bytes)], true).await.expect("written");
    }
    model
}

/// Writes what `model` has in sequence.
async fn write_in_order(pool: &Pool, volume: &Volume, model: &[u8]) {
    for at in (0..SIZE as usize).step_by(PIECE) {
        volume.write(at as u64, vec![pool.buffer(&model[at..at + PIECE])], true).await.expect("written");
    }
}

/// Reads a volume in sequence, and compares; how often the disks were asked.
async fn read_through(pool: &Pool, volume: &Volume, model: &[u8]) -> u64 {
    let asked = || (0..pool.paths.len()).map(|disk| pool.world.operations(disk, OpKind::Read)).sum::<u64>();
    let begun = asked();
    for at in (0..model.len()).step_by(PIECE) {
        let read = volume.read(at as u64, PIECE).await.expect("read");
        let read: Vec<u8> = read.iter().flat_map(|part| part.iter().copied()).collect();
        assert!(read == model[at..at + PIECE], "other bytes at {at}");
    }
    asked() - begun
}

/// Bytes of writes, while nobody asks for anything.
async fn written_at_rest(pool: &Pool) -> u64 {
    let written =
        || (0..pool.paths.len()).map(|disk| pool.world.operations(disk, OpKind::Write)).sum::<u64>();
    let begun = written();
    pool.rt.sleep(REST).await;
    written() - begun
}

/// Goal: who reads in sequence what was written at random finds it as if it had been written in sequence, wherever it lay; and nothing moves for ever.
#[test]
fn what_is_read_in_sequence_comes_to_lie_together() {
    on_pools(2, |pool, seed| async move {
        let (mut random, kind) = (Random::new(seed), KINDS[seed as usize % 2]);
        let ordered = pool.volume("ordered", BLOCK as u32, kind).await;
        let model = scattered(&pool, "v", kind, &mut random).await;
        write_in_order(&pool, &ordered, &model).await;
        pool.again().await;
        let before = read_through(&pool, &pool.open("v").await, &model).await;
        assert!(written_at_rest(&pool).await > 0);
        let (mut after, mut left) = (0, 0);
        // What was moved by way of the log may have come in parts.
        for _ in 0..3 {
            pool.again().await;
            after = read_through(&pool, &pool.open("v").await, &model).await;
            left = written_at_rest(&pool).await;
        }
        pool.again().await;
        let best = read_through(&pool, &pool.open("ordered").await, &model).await;
        assert!(
            best * 3 < before && after * 2 <= best * 3,
            "{before} reads before, {after} after, {best} in order"
        );
        assert!(left < 8, "{left} writes for what lies in order");
    });
}

/// Goal: what was read in sequence and then overwritten lies together again before it is read the next time, if clients rest; once for each time that it is read.
#[test]
fn what_was_in_order_and_read_is_put_in_order_again() {
    on_pools(2, |pool, seed| async move {
        let (mut random, kind) = (Random::new(seed), KINDS[seed as usize % 2]);
        let mut model = vec![0; SIZE as usize];
        model.chunks_exact_mut(BLOCK).for_each(|block| random.fill(&mut block[..BLOCK / 2]));
        write_in_order(&pool, &pool.volume("v", BLOCK as u32, kind).await, &model).await;
        pool.again().await;
        let best = read_through(&pool, &pool.open("v").await, &model).await;
        let blocks = SIZE / BLOCK as u64;
        overwrite(&pool, &pool.open("v").await, &mut model, &mut random, blocks).await;
        let moved = written_at_rest(&pool).await;
        overwrite(&pool, &pool.open("v").await, &mut model, &mut random, blocks / 64).await;
        let left = written_at_rest(&pool).await;
        assert!(moved > 16 && left * 4 < moved, "{moved} writes, and {left} where nobody has read it since");
        pool.again().await;
        let after = read_through(&pool, &pool.open("v").await, &model).await;
        assert!(after * 2 <= best * 5, "{after} reads, {best} in order");
    });
}

/// Goal: what is written in large requests lies together from the beginning, though others have left holes everywhere, while much of the pool is in no chunk.
#[test]
fn large_requests_stay_out_of_holes() {
    on_pools(2, |pool, seed| async move {
        let (mut random, block) = (Random::new(seed), BLOCK as u32);
        let neighbours =
            [pool.volume("a", block, Compression::Off), pool.volume("b", block, Compression::Off)];
        let neighbours = futures_util::future::join_all(neighbours).await;
        let mut model = vec![0; SIZE as usize];
        random.fill(&mut model);
        for at in (0..model.len()).step_by(BLOCK) {
            for volume in &neighbours {
                volume
                    .write(at as u64, vec![pool.buffer(&model[at..at + BLOCK])], true)
                    .await
                    .expect("written");
            }
        }
        let purge = VolumeDelete { with_snapshots: false, purge: true };
        pool.engine.volume_delete("tank/b", purge).await.expect("deleted");
        pool.rt.sleep(REST).await;
        pool.checkpoint().await;
        write_in_order(&pool, &pool.volume("c", block, Compression::Off).await, &model).await;
        pool.again().await;
        let reads = read_through(&pool, &pool.open("c").await, &model).await;
        assert!(reads * 3 < SIZE / BLOCK as u64, "{reads} reads");
    });
}

/// Goal: what a snapshot has stays where it is, and so does what nobody reads in sequence.
#[test]
fn what_is_shared_or_read_at_random_stays() {
    on_pools(1, |pool, seed| async move {
        let mut random = Random::new(seed);
        let models = [
            scattered(&pool, "shared", Compression::Off, &mut random).await,
            scattered(&pool, "random", Compression::Off, &mut random).await,
        ];
        pool.snapshot("shared", "s").await;
        pool.again().await;
        read_through(&pool, &pool.open("shared").await, &models[0]).await;
        let volume = pool.open("random").await;
        for _ in 0..2000 {
            let at = random.below(SIZE / BLOCK as u64) as usize * BLOCK;
            let read = volume.read(at as u64, BLOCK).await.expect("read");
            assert!(read[0][..] == models[1][at..at + BLOCK], "other bytes at {at}");
        }
        written_at_rest(&pool).await;
        for (name, model) in ["shared", "random"].iter().zip(&models) {
            pool.again().await;
            let reads = read_through(&pool, &pool.open(name).await, model).await;
            assert!(reads > SIZE / BLOCK as u64 / 2, "{name} lies together: {reads} reads");
        }
    });
}

/// Goal: clients that write what is just being moved read what they wrote, and no more is moved than they wrote.
#[test]
fn writers_and_gathering_agree() {
    on_pools(2, |pool, seed| async move {
        let mut random = Random::new(seed);
        let mut model = scattered(&pool, "v", KINDS[seed as usize % 2], &mut random).await;
        for round in 0..12 {
            let volume = pool.open("v").await;
            read_through(&pool, &volume, &model).await;
            // Few enough to be taken for rest, while the leaves are moved.
            for _ in 0..20 {
                pool.rt.sleep(Duration::from_millis(100 + random.below(150))).await;
                overwrite(&pool, &volume, &mut model, &mut random, 1 + round % 2).await;
            }
            if round % 4 == 3 {
                pool.again().await;
            }
        }
        read_through(&pool, &pool.open("v").await, &model).await;
    });
}
