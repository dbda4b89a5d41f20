//! Reading ahead on simulated disks: each test asks one question.

use crate::compression::{Pool, on_pools};
use forebay_base::{MIB, Random};
use forebay_pool::{Compression, ReadFrom, Volume};
use forebay_runtime::Buf;
use forebay_simulation::OpKind;
use std::rc::Rc;
use std::time::Duration;

const SIZE: u64 = 8 * MIB;
const STEP: u64 = 16 << 10;
const PIECE: usize = 256 << 10;

fn joined(parts: Vec<Buf>) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

/// A volume that is written from end to end, a MiB at a time; what is in it.
async fn written_in_order(pool: &Pool, random: &mut Random) -> Vec<u8> {
    let volume = pool.volume("v", 4096, Compression::Off).await;
    let mut model = vec![0; SIZE as usize];
    random.fill(&mut model);
    for at in (0..SIZE).step_by(MIB as usize) {
        let data = pool.buffer(&model[at as usize..][..MIB as usize]);
        volume.write(at, vec![data], true).await.expect("written");
    }
    model
}

/// How often the disks were asked.
pub fn asked(pool: &Pool) -> u64 {
    (0..pool.paths.len()).map(|disk| pool.world.operations(disk, OpKind::Read)).sum()
}

/// What the tree takes is in memory after this.
async fn read_tree(volume: &Volume) {
    for at in (0..SIZE).step_by(1 << 20).chain([SIZE - 4096]) {
        volume.read(at, 512).await.expect("read");
    }
}

/// Goal: who reads in sequence, in any order that a few requests at a time have, asks the disks seldom; who reads at random asks them for nothing else.
#[test]
fn streams_are_read_much_at_a_time_and_nothing_else_is() {
    on_pools(2, |pool, seed| async move {
        let mut random = Random::new(seed);
        let model = written_in_order(&pool, &mut random).await;
        pool.again().await;
        let volume = Rc::new(pool.open("v").await);
        // What the import began is over.
        pool.rt.sleep(Duration::from_secs(1)).await;
        let asked = || asked(&pool);
        read_tree(&volume).await;
        let (begun, mut places) = (asked(), Vec::new());
        for _ in 0..64 {
            let at = random.below(SIZE / (4 * STEP)) * 4 * STEP;
            places.push(at);
            let read = joined(volume.read(at, 4096).await.expect("read"));
            assert!(read == model[at as usize..][..4096], "other bytes at {at}");
        }
        // One read for each, and two where a block lies on two disks; some were there.
        let at_random = asked() - begun;
        assert!(at_random <= 70, "{at_random} reads for {places:?}");

        // As many as large requests take, and a few until it is clear that it is a stream.
        let begun = asked();
        for at in (0..SIZE).step_by(PIECE) {
            volume.read(at, PIECE).await.expect("read");
        }
        let large = asked() - begun;
        pool.again().await;
        let volume = Rc::new(pool.open("v").await);
        pool.rt.sleep(Duration::from_secs(1)).await;
        read_tree(&volume).await;
        let begun = asked();
        for group in 0..SIZE / STEP / 4 {
            // Four at a time, in an order of their own.
            let order = if group % 2 == 0 { [0, 1, 2, 3] } else { [1, 0, 3, 2] };
            let reads: Vec<_> = order
                .into_iter()
                .map(|nth| {
                    let (volume, at) = (volume.clone(), (group * 4 + nth) * STEP);
                    pool.rt.spawn(async move { (at, volume.read(at, STEP as usize).await.expect("read")) })
                })
                .collect();
            for read in reads {
                let (at, data) = read.await;
                assert!(joined(data) == model[at as usize..][..STEP as usize], "other bytes at {at}");
            }
        }
        let in_sequence = asked() - begun;
        let requests = SIZE / STEP;
        assert!(
            in_sequence <= large + requests / 8,
            "{in_sequence} reads of {requests} requests, and {large} of large ones"
        );
    });
}

/// Goal: blocks that memory has already, here and there, do not cut what is read ahead into pieces.
#[test]
fn streams_pass_over_blocks_in_memory() {
    on_pools(2, |pool, seed| async move {
        let mut random = Random::new(seed);
        let model = written_in_order(&pool, &mut random).await;
        let mut reads = [0; 2];
        for (reads, few) in reads.iter_mut().zip([0, 200]) {
            pool.again().await;
            let volume = pool.open("v").await;
            for at in (0..SIZE).step_by(2 << 20) {
                volume.read(at, 512).await.expect("read");
            }
            for _ in 0..few {
                // What is asked for twice is kept.
                let at = random.below(SIZE / 4096) * 4096;
                for _ in 0..2 {
                    let read = joined(volume.read(at, 4096).await.expect("read"));
                    assert!(read == model[at as usize..][..4096], "other bytes at {at}");
                }
            }
            let begun = asked(&pool);
            for at in (0..SIZE).step_by(STEP as usize) {
                let read = joined(volume.read(at, STEP as usize).await.expect("read"));
                assert!(read == model[at as usize..][..STEP as usize], "other bytes at {at}");
            }
            *reads = asked(&pool) - begun;
        }
        assert!(reads[1] < reads[0] + 100, "{reads:?} reads without and with blocks in memory");
    });
}

/// Goal: what is written, discarded or zeroed where somebody is about to read is what that one reads.
/// Goal: every block that a client reads is counted once, where it came from; and what the disks did is what was asked of them.
#[test]
fn where_blocks_came_from_is_counted_and_what_disks_did() {
    on_pools(1, |pool, seed| async move {
        let volume = pool.volume("v", 4096, Compression::Off).await;
        let mut bytes = vec![0; MIB as usize];
        Random::new(seed).fill(&mut bytes);
        for at in (0..SIZE).step_by(MIB as usize) {
            volume.write(at, vec![pool.buffer(&bytes)], true).await.expect("written");
        }
        pool.again().await;
        let volume = pool.open("v").await;
        // What the import read is told of, too.
        pool.rt.sleep(std::time::Duration::from_secs(3)).await;
        let (mut from, mut disks) = (ReadFrom::default(), (0, 0));
        let mut after = pool.seconds(0).await.0.last().map_or(0, |last| last.number);
        // Seconds are taken as they come: of the disks, the last ten are kept.
        for round in 0..4 {
            let reads = pool.world.disk_count();
            let begun: u64 = (0..reads).map(|disk| pool.world.operations(disk, OpKind::Read)).sum();
            match round {
                // A stream, the same again, one block often, and nothing.
                0 | 1 => {
                    for at in (0..SIZE).step_by(PIECE) {
                        volume.read(at, PIECE).await.expect("read");
                    }
                }
                2 => {
                    for _ in 0..10 {
                        volume.read(3 * 4096, 4096).await.expect("read");
                    }
                }
                _ => {}
            }
            pool.rt.sleep(std::time::Duration::from_secs(2)).await;
            let asked: u64 =
                (0..reads).map(|disk| pool.world.operations(disk, OpKind::Read)).sum::<u64>() - begun;
            let (ledger, seconds) = pool.seconds(after).await;
            after = ledger.last().map_or(after, |last| last.number);
            let mut now = ReadFrom::default();
            for second in &ledger {
                now.memory += second.read_from.memory;
                now.ahead += second.read_from.ahead;
                now.disks += second.read_from.disks;
            }
            let blocks = [SIZE / 4096, SIZE / 4096, 10, 0][round];
            assert_eq!(now.memory + now.ahead + now.disks, blocks, "round {round}: {now:?}");
            let served = seconds.iter().flat_map(|second| &second.disks).map(|(_, vitals)| &vitals.served[0]);
            let counted: u64 = served.clone().map(|served| served.count).sum();
            assert_eq!(counted, asked, "round {round}");
            disks = (disks.0 + counted, disks.1 + served.map(|served| served.bytes).sum::<u64>());
            from.memory += now.memory;
            from.ahead += now.ahead;
            assert!(
                seconds
                    .iter()
                    .all(|second| second.disks.iter().all(|(_, vitals)| vitals.busy <= second.span))
            );
        }
        assert!(from.ahead > 0 && from.memory > 0, "{from:?}");
        assert!(disks.0 > 0 && disks.1 >= SIZE, "{disks:?}");
    });
}

#[test]
fn what_was_read_ahead_is_never_old() {
    on_pools(4, |pool, seed| async move {
        let kind = if seed % 2 == 0 { Compression::Off } else { Compression::Lz4 };
        let volume = pool.volume("v", 4096, kind).await;
        let mut random = Random::new(seed);
        let mut model = vec![0; SIZE as usize];
        for lap in 0..3 {
            for at in (0..SIZE).step_by(STEP as usize) {
                let read = joined(volume.read(at, STEP as usize).await.expect("read"));
                assert!(read == model[at as usize..][..STEP as usize], "lap {lap}: other bytes at {at}");
                // Near ahead, where it has been read or is being read just now.
                let len = 4096 << random.below(4);
                let there = at + STEP + random.below(64) * 4096;
                if there + len > SIZE || random.one_in(3) {
                    continue;
                }
                let bytes = &mut model[there as usize..][..len as usize];
                if random.one_in(4) {
                    bytes.fill(0);
                    volume.write_zeroes(there, len, false).await.expect("zeroed");
                } else {
                    random.fill(bytes);
                    let data = pool.buffer(bytes);
                    volume.write(there, vec![data], random.one_in(2)).await.expect("written");
                }
            }
        }
    });
}
