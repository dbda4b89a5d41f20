//! Parts of blocks in the log, on simulated disks: each test asks one question.

use crate::compression::{Pool, on_pools};
use forebay_base::planted::{Bug, plant, times_met};
use forebay_base::{MIB, Random};
use forebay_pool::{Compression, IoError, Volume};
use forebay_runtime::DiskErrorKind;
use forebay_simulation::{Action, OpKind, Rule};
use std::cell::Cell;
use std::rc::Rc;

const SIZE: usize = 8 * MIB as usize;
const BLOCK: usize = 8192;
const SECTOR: usize = 512;

fn operations(pool: &Pool, kind: OpKind) -> u64 {
    (0..pool.paths.len()).map(|disk| pool.world.operations(disk, kind)).sum()
}

async fn bytes(volume: &Volume, at: usize, len: usize) -> Result<Vec<u8>, IoError> {
    let parts = volume.read(at as u64, len).await?;
    Ok(parts.iter().flat_map(|part| part.iter().copied()).collect())
}

async fn write(pool: &Pool, volume: &Volume, model: &mut [u8], at: usize, bytes: &[u8], fua: bool) {
    model[at..at + bytes.len()].copy_from_slice(bytes);
    volume.write(at as u64, vec![pool.buffer(bytes)], fua).await.expect("written");
}

/// Goal: who is alone with a durable write of a part of a block waits for one write of each copy of the log, and nothing is read for it.
#[test]
fn a_lone_part_is_one_write() {
    on_pools(1, |pool, seed| async move {
        let mut random = Random::new(seed);
        let volume = pool.volume("v", BLOCK as u32, Compression::Off).await;
        let mut model = vec![0; SIZE];
        for at in (0..SIZE / 8).step_by(64 << 10) {
            let mut some = vec![0; 64 << 10];
            random.fill(&mut some);
            write(&pool, &volume, &mut model, at, &some, true).await;
        }
        pool.again().await;
        let volume = pool.open("v").await;
        // What the import began is over.
        pool.rt.sleep(std::time::Duration::from_secs(1)).await;
        // Its leaf is read.
        assert_eq!(bytes(&volume, 0, BLOCK).await.as_deref(), Ok(&model[..BLOCK]));
        let asked = |kind| operations(&pool, kind);
        for nth in 1..8 {
            let mut some = [0; 4096];
            random.fill(&mut some);
            let before = (asked(OpKind::Read), asked(OpKind::Write), asked(OpKind::Flush));
            write(&pool, &volume, &mut model, nth * BLOCK + nth % 2 * 4096, &some, true).await;
            let after = (asked(OpKind::Read), asked(OpKind::Write), asked(OpKind::Flush));
            if nth < 3 {
                // A chunk was granted with the first one: it was not alone.
                continue;
            }
            assert_eq!((after.0, after.2), (before.0, before.2), "reads and flushes for write {nth}");
            // Three copies at most, and a chunk of the log may end within the frame.
            assert!(after.1 - before.1 <= 6, "{} writes for one", after.1 - before.1);
        }
        pool.crash().await;
        let volume = pool.open("v").await;
        assert!(bytes(&volume, 0, SIZE).await.expect("read") == model);
    });
}

/// Goal: whatever happens to blocks of which parts are in the log, they are what was written.
#[test]
fn parts_are_read_with_the_rest() {
    on_pools(4, |pool, seed| async move {
        let mut random = Random::new(seed);
        let block = [4096, BLOCK, 16384, 65536][seed as usize % 4];
        let kind = if seed == 3 { Compression::Lz4 } else { Compression::Off };
        let mut volume = pool.volume("v", block as u32, kind).await;
        let mut model = vec![0; SIZE];
        // So few that parts meet parts.
        let sectors = (24 * block).min(SIZE) as u64 / SECTOR as u64;
        for step in 0..400 {
            let at = random.below(sectors) as usize * SECTOR;
            let len = (1 + random.below(20) as usize) * SECTOR;
            match random.below(24) {
                0 => pool.checkpoint().await,
                1 => {
                    pool.crash().await;
                    volume = pool.open("v").await;
                }
                2 => {
                    pool.again().await;
                    volume = pool.open("v").await;
                }
                3 => pool.snapshot("v", &format!("s{step}")).await,
                4 => {
                    volume.write_zeroes(at as u64, len as u64, true).await.expect("written");
                    model[at..at + len].fill(0);
                }
                5 => {
                    let at = at / block * block;
                    volume.discard(at as u64, block as u64, true).await.expect("discarded");
                    model[at..at + block].fill(0);
                }
                6..12 => {
                    let found = bytes(&volume, at, len).await.expect("read");
                    assert!(found == model[at..at + len], "step {step}: other bytes at {at}");
                }
                12 => {
                    // Several at once: nobody is alone.
                    let both = [at, at + len].map(|at| {
                        let some = vec![random.next_u64() as u8; len];
                        model[at..at + len].copy_from_slice(&some);
                        volume.write(at as u64, vec![pool.buffer(&some)], true)
                    });
                    for written in futures_util::future::join_all(both).await {
                        written.expect("written");
                    }
                }
                _ => {
                    let mut some = vec![0; len];
                    random.fill(&mut some);
                    write(&pool, &volume, &mut model, at, &some, true).await;
                }
            }
        }
        assert!(bytes(&volume, 0, SIZE).await.expect("read") == model);
    });
}

/// Goal: what comes in parts to a volume that compresses takes nearly as little as what comes in blocks: all but what is on its way already.
#[test]
fn parts_are_compressed_when_they_move() {
    on_pools(1, |pool, seed| async move {
        let mut random = Random::new(seed);
        let volume = pool.volume("v", BLOCK as u32, Compression::Lz4).await;
        let mut model = vec![0; SIZE];
        for nth in 0..200 {
            let some = vec![1 + random.below(255) as u8; 4096];
            write(&pool, &volume, &mut model, nth % 120 * 4096 + nth % 2 * BLOCK, &some, true).await;
        }
        pool.settle("v").await;
        let info = pool.info("v").await;
        assert!(
            info.mapped > 0 && info.stored * 9 <= info.mapped * 5,
            "{} bytes take {}",
            info.mapped,
            info.stored
        );
        assert!(bytes(&volume, 0, SIZE).await.expect("read") == model);
    });
}

/// Damages every copy of a block on the disks; how many there were.
fn damage(pool: &Pool, block: &[u8]) -> usize {
    let mut copies = 0;
    for disk in 0..pool.paths.len() {
        let image = pool.world.image(disk);
        for number in 0..image.size() / 4096 {
            if image.page(number).is_some_and(|page| page[..] == block[..4096]) {
                pool.world.rot(disk, number * 4096, &[0xff; SECTOR]);
                copies += 1;
            }
        }
    }
    copies
}

/// Writes a part of a block whose rest is lost, and has it go to its place; then the rest, too.
async fn lose_the_rest(pool: &Pool, seed: u64, lost: &Cell<u32>) {
    let mut random = Random::new(seed);
    let volume = pool.volume("v", BLOCK as u32, Compression::Off).await;
    // So much goes past the log.
    let mut old = vec![0; 16 * BLOCK];
    random.fill(&mut old);
    volume.write(0, vec![pool.buffer(&old)], true).await.expect("written");
    old.truncate(BLOCK);
    let mut model = old.clone();
    pool.again().await;
    assert!(damage(pool, &old) > 0);
    let volume = pool.open("v").await;
    let mut part = [0; 4096];
    random.fill(&mut part);
    write(pool, &volume, &mut model, 1024, &part, true).await;
    if bytes(&volume, 0, BLOCK).await == Ok(model.clone()) {
        // It was computed from parity.
        return;
    }
    lost.set(lost.get() + 1);
    for nth in 0..4 {
        match nth {
            0 => pool.checkpoint().await,
            1 => pool.crash().await,
            2 => pool.settle("v").await,
            _ => assert_eq!(pool.problems().await.len(), 1),
        }
        let volume = pool.open("v").await;
        assert_eq!(bytes(&volume, 0, BLOCK).await, Err(IoError::Corrupt), "after {nth}");
    }
    let volume = pool.open("v").await;
    write(pool, &volume, &mut model, 0, &old[..1024], true).await;
    pool.settle("v").await;
    let told = pool.problems().await;
    assert!(
        told.len() == 1 && told[0].ends_with("block 0 is incomplete: the rest of it is lost"),
        "{told:?}"
    );
    let volume = pool.open("v").await;
    assert_eq!(bytes(&volume, 0, BLOCK).await, Err(IoError::Corrupt), "the end is lost");
    write(pool, &volume, &mut model, 5120, &old[5120..], true).await;
    assert!(bytes(&volume, 0, BLOCK).await.expect("it is whole again") == model);
    pool.settle("v").await;
    pool.again().await;
    assert!(bytes(&pool.open("v").await, 0, BLOCK).await.expect("read") == model);
}

/// Goal: what was acknowledged of a block is there when its rest is lost; nobody is given anything in place of that, and who writes it has a whole block.
#[test]
fn parts_outlive_what_they_were_parts_of() {
    let lost = Rc::new(Cell::new(0));
    let counted = lost.clone();
    on_pools(2, move |pool, seed| {
        let lost = lost.clone();
        async move { lose_the_rest(&pool, seed, &lost).await }
    });
    assert!(counted.get() >= 2, "lost in {} pools", counted.get());
}

/// Goal: an error of a disk that passes takes nothing: the rest of a block is looked for again before it is given up.
#[test]
fn an_error_that_passes_takes_no_rest() {
    let fired = Rc::new(Cell::new(0));
    let counted = fired.clone();
    on_pools(2, move |pool, seed| {
        let fired = fired.clone();
        async move {
            let mut random = Random::new(seed);
            let volume = pool.volume("v", BLOCK as u32, Compression::Off).await;
            // So much goes past the log.
            let mut model = vec![0; 16 * BLOCK];
            random.fill(&mut model);
            volume.write(0, vec![pool.buffer(&model)], true).await.expect("written");
            pool.again().await;
            let volume = pool.open("v").await;
            assert!(bytes(&volume, 8 * BLOCK, BLOCK).await.is_ok(), "its leaf is read");
            let mut part = [0; 4096];
            random.fill(&mut part);
            write(&pool, &volume, &mut model, 1024, &part, true).await;
            for disk in 0..pool.paths.len() {
                let fails = Rule::new(disk, Action::Fail(DiskErrorKind::Io)).on(OpKind::Read);
                pool.world.add_rule(fails.times(3));
            }
            pool.settle("v").await;
            fired.set(fired.get() + pool.world.faults_fired());
            pool.world.take_rules();
            assert!(bytes(&volume, 0, 16 * BLOCK).await.expect("nothing is lost") == model);
            pool.again().await;
        }
    });
    assert!(counted.get() >= 8, "{} reads failed", counted.get());
}

#[test]
fn planted_bugs_are_caught() {
    for bug in
        [Bug::PartsReadAsWhole, Bug::PartsForgetOlderFrame, Bug::LostRestBecomesZeros, Bug::RestLookedForOnce]
    {
        plant(Some(bug));
        let tests = [
            parts_are_read_with_the_rest,
            parts_outlive_what_they_were_parts_of,
            an_error_that_passes_takes_no_rest,
        ];
        let caught = tests.iter().any(|test| std::panic::catch_unwind(test).is_err());
        let met = times_met();
        plant(None);
        assert!(caught && met > 0, "{bug:?} was met {met} times and nobody noticed");
    }
}
