//! Reading ahead on simulated disks: each test asks one question.

use crate::compression::on_pools;
use forebay_base::{MIB, Random};
use forebay_pool::Compression;
use forebay_runtime::Buf;
use forebay_simulation::OpKind;
use std::rc::Rc;

const SIZE: u64 = 8 * MIB;
const STEP: u64 = 16 << 10;
const PIECE: usize = 256 << 10;

fn joined(parts: Vec<Buf>) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

/// Goal: who reads in sequence, in any order that a few requests at a time have, asks the disks seldom; who reads at random asks them for nothing else.
#[test]
fn streams_are_read_much_at_a_time_and_nothing_else_is() {
    on_pools(2, |pool, seed| async move {
        let volume = pool.volume("v", 4096, Compression::Off).await;
        let mut random = Random::new(seed);
        let mut model = vec![0; SIZE as usize];
        random.fill(&mut model);
        for at in (0..SIZE).step_by(MIB as usize) {
            let data = pool.buffer(&model[at as usize..][..MIB as usize]);
            volume.write(at, vec![data], true).await.expect("written");
        }
        pool.again().await;
        let volume = Rc::new(pool.open("v").await);
        let asked = || {
            let disks = 0..pool.paths.len();
            disks.map(|disk| pool.world.operations(disk, OpKind::Read)).sum::<u64>()
        };
        // What the tree takes is in memory after this.
        for at in (0..SIZE).step_by(2 << 20) {
            volume.read(at, 512).await.expect("read");
        }
        let (begun, mut places) = (asked(), Vec::new());
        for _ in 0..64 {
            let at = random.below(SIZE / (4 * STEP)) * 4 * STEP;
            places.push(at);
            let read = joined(volume.read(at, 4096).await.expect("read"));
            assert!(read == model[at as usize..][..4096], "other bytes at {at}");
        }
        // One read for each, and one for each disk of a line when it is computed; some were there.
        let at_random = asked() - begun;
        assert!(at_random <= 64, "{at_random} reads for {places:?}");

        // As many as large requests take, and a few until it is clear that it is a stream.
        let begun = asked();
        for at in (0..SIZE).step_by(PIECE) {
            volume.read(at, PIECE).await.expect("read");
        }
        let large = asked() - begun;
        pool.again().await;
        let volume = Rc::new(pool.open("v").await);
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
            in_sequence < large + requests / 8,
            "{in_sequence} reads of {requests} requests, and {large} of large ones"
        );
    });
}

/// Goal: what is written, discarded or zeroed where somebody is about to read is what that one reads.
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
