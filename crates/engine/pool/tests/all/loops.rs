//! Work that grows with what a pool has, on simulated disks: it grows no faster, and lets others have the core in between.
//!
//! Loops over blocks, chunks, volumes and snapshots count their items ([`take_items`]) and yield after 4096 of them. Here the items are
//! compared with what there is, the yields with the times that a request is polled, and reads in a row with the time they take on
//! disks that take the same time for each.

use crate::compression::Pool;
use forebay_base::MIB;
use forebay_base::planted::{Bug, plant, take_items, take_longest_turn, times_met};
use forebay_pool::{
    Compression, Engine, EngineConfig, Extent, Host, Import, Layout, PoolSpec, Setting, SnapshotKeep,
    SnapshotSchedule, Volume, VolumeChange, VolumeDelete,
};
use forebay_runtime::yield_now;
use forebay_simulation::{Fate, Image, World, WorldConfig};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(24 * 3600);
const BLOCK: u64 = 4096;
/// Items between two yields.
const ITEMS_MAX: u64 = 4096;
/// What a read of the disks takes.
const READ_NS: u64 = 50_000;

/// Runs `main` on a pool of one shard, with log disks or without.
fn on_pool<W: Future<Output = ()> + 'static>(
    log_disks: usize,
    bytes: u64,
    main: impl FnOnce(Rc<Pool>) -> W + 'static,
) {
    let config = WorldConfig { turns_max: u64::MAX, read_ns: READ_NS..READ_NS + 1, ..WorldConfig::new(3) };
    let world = World::new(config);
    (0..1 + log_disks).for_each(|_| {
        world.add_disk(Image::new(bytes));
    });
    let (executor, cores) = world.executor(1);
    let rt = executor.rt().clone();
    let paths: Vec<String> = (0..1 + log_disks).map(|nth| format!("sim{nth}")).collect();
    let spec = PoolSpec {
        name: "tank".into(),
        layout: Layout::Single,
        disks: paths[..1].to_vec(),
        log_disks: paths[1..].to_vec(),
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards: 1,
        log_bytes: (log_disks > 0).then_some(256 * MIB),
        force: false,
    };
    let config = EngineConfig { memory: 1 << 30, events: Arc::new(|_| ()), host: Host::default() };
    let engine = Engine::new(cores, config);
    let pool = Rc::new(Pool { world: world.clone(), rt, engine, paths, shards: 1 });
    let whole = async move {
        pool.engine.pool_create(spec).await.expect("created");
        main(pool).await;
    };
    take_longest_turn();
    world.run(&executor, LIMIT, whole).expect("finishes");
    let longest = take_longest_turn();
    assert!(longest <= 2 * ITEMS_MAX, "a task had the core for {longest} items in one turn");
}

/// The result, and how often it was polled for that.
async fn polls<T>(work: impl Future<Output = T>) -> (T, u64) {
    let (mut work, mut polls) = (pin!(work), 0);
    let result = poll_fn(|context| {
        polls += 1;
        work.as_mut().poll(context)
    });
    let result = result.await;
    (result, polls)
}

async fn volumes(pool: &Pool, count: u64) -> Vec<String> {
    for nth in 0..count {
        pool.sized(&format!("v{nth}"), MIB, BLOCK as u32, Compression::Off).await;
    }
    (0..count).map(|nth| format!("tank/v{nth}")).collect()
}

/// What a client learns that asks again from where the answer ends.
async fn whole_status(volume: &Volume, extents_max: usize) -> Vec<Extent> {
    let (mut all, mut at): (Vec<Extent>, u64) = (Vec::new(), 0);
    while at < volume.size() {
        let extents = volume.status(at, volume.size() - at, extents_max).await.expect("told");
        yield_now().await;
        assert!(!extents.is_empty() && extents.len() <= extents_max);
        for extent in extents {
            at += extent.len;
            match all.last_mut() {
                Some(last) if last.mapped == extent.mapped => last.len += extent.len,
                _ => all.push(extent),
            }
        }
    }
    all
}

/// Goal: who asks what a large range holds gets a part of the answer, and others get the core after 4096 blocks.
#[test]
fn status_yields_and_ends_early() {
    on_pool(0, 1 << 30, |pool| async move {
        let (size, looked) = (300 * MIB, 65_536);
        let volume = pool.sized("v", size, BLOCK as u32, Compression::Off).await;
        let data = pool.buffer(&vec![1; MIB as usize]);
        for at in (0..size).step_by(MIB as usize) {
            volume.write(at, vec![data.clone()], false).await.expect("written");
        }
        let (extents, polls) = polls(volume.status(0, size, 16)).await;
        let extents = extents.expect("told");
        let blocks = extents.iter().map(|extent| extent.len).sum::<u64>() / BLOCK;
        assert!(blocks >= looked && blocks < looked + 508, "{blocks} blocks, and others were waiting");
        assert!(polls >= blocks / ITEMS_MAX, "{blocks} blocks in {polls} polls");
        assert_eq!(whole_status(&volume, 16).await, [Extent { len: size, mapped: true }]);
    });
}

/// Goal: the answer is what was written, whether that is in memory, in the log, on disk, or some of each.
#[test]
fn status_is_the_same_wherever_blocks_are() {
    on_pool(1, 1 << 30, |pool| async move {
        let blocks = 5000;
        let mut volume = pool.sized("v", blocks * BLOCK, BLOCK as u32, Compression::Off).await;
        let mut model = vec![false; blocks as usize];
        let told = |model: &[bool]| -> Vec<Extent> {
            let runs = model.chunk_by(|one, next| one == next);
            runs.map(|run| Extent { len: run.len() as u64 * BLOCK, mapped: run[0] }).collect()
        };
        let mut random = forebay_base::Random::new(7);
        for step in 0..60 {
            let first = random.below(blocks - 40);
            let count = 1 + random.below(40);
            let (at, len) = (first * BLOCK, count * BLOCK);
            let is_write = random.below(3) > 0;
            match is_write {
                true => volume.write(at, vec![pool.buffer(&vec![1; len as usize])], false).await,
                false => volume.discard(at, len, false).await,
            }
            .expect("done");
            model[first as usize..(first + count) as usize].fill(is_write);
            match step % 20 {
                7 => pool.checkpoint().await,
                13 => pool.settle("v").await,
                19 => {
                    pool.again().await;
                    volume = pool.open("v").await;
                }
                _ => {}
            }
            let extents_max = if step % 2 == 0 { 1 } else { 1000 };
            assert_eq!(whole_status(&volume, extents_max).await, told(&model), "step {step}");
        }
        let within = volume.status(1000, 3 * BLOCK, 16).await.expect("told");
        assert_eq!(within.iter().map(|extent| extent.len).sum::<u64>(), 3 * BLOCK);
    });
}

/// Goal: blocks that an import found in the log get their places, and move there, in one pass each.
#[test]
fn blocks_of_the_log_find_their_places_in_one_pass() {
    let items = [2_000, 8_000].map(|blocks| {
        let items = Rc::new(std::cell::Cell::new(0));
        let seen = items.clone();
        on_pool(1, 1 << 30, move |pool| async move {
            let volume = pool.sized("v", 1 << 30, BLOCK as u32, Compression::Off).await;
            for nth in 0..blocks {
                let data = pool.buffer(&[nth as u8 | 1; BLOCK as usize]);
                volume.write(nth * BLOCK, vec![data], false).await.expect("written");
            }
            volume.flush().await.expect("durable");
            let images = pool.world.power_loss(|_, _| Fate::Lost);
            pool.engine.pool_export("tank").await.expect("exported");
            images.into_iter().enumerate().for_each(|(disk, image)| pool.world.set_image(disk, image));
            let paths = pool.paths.clone();
            pool.engine.pool_import("tank", paths, Import::default()).await.expect("imported");
            take_items();
            let ((), polls) = polls(pool.snapshot("v", "s")).await;
            seen.set(take_items());
            assert!(polls > 0);
            let volume = pool.open("v").await;
            for nth in (0..blocks).step_by(97) {
                let found = volume.read(nth * BLOCK, BLOCK as usize).await.expect("read");
                assert!(found.iter().all(|part| part.iter().all(|byte| *byte == nth as u8 | 1)));
            }
        });
        (blocks, items.get())
    });
    for (blocks, items) in items {
        assert!((blocks..5 * blocks).contains(&items), "{items} items for {blocks} blocks");
    }
}

/// Goal: looking whether snapshots are due costs as much as there are volumes and snapshots, and so does listing volumes.
#[test]
fn schedules_and_lists_look_at_each_snapshot_once() {
    on_pool(0, 1 << 30, |pool| async move {
        let (count, rounds) = (60, 8);
        let names = volumes(&pool, count).await;
        for round in 0..rounds {
            pool.engine.snapshot_create(names.clone(), &format!("s{round}")).await.expect("taken");
        }
        let schedule = SnapshotSchedule { every_seconds: 1 << 30, keep: SnapshotKeep::last(3) };
        for name in &names {
            let change = VolumeChange { schedule: Setting::Own(schedule), ..VolumeChange::default() };
            pool.engine.volume_set(name, change).await.expect("set");
        }
        // The first look takes one of each.
        pool.rt.sleep(Duration::from_secs(20)).await;
        let snapshots = pool.engine.snapshots(Some("tank")).await.expect("listed");
        assert_eq!(snapshots.iter().filter(|snapshot| snapshot.scheduled).count() as u64, count);
        take_items();
        let listed = pool.engine.volumes(None).await.expect("listed");
        let items = take_items();
        assert!(listed.iter().all(|info| u64::from(info.snapshots) == rounds + 1));
        let all = count * (1 + rounds + 1);
        assert!((all..2 * all).contains(&items), "{items} items for a list of {all}");
        pool.rt.sleep(Duration::from_secs(50)).await;
        let items = take_items();
        // Ten looks; the ledger and others count as well.
        assert!((10 * count..60 * 3 * all).contains(&items), "{items} items for ten looks at {all}");
    });
}

/// Goal: an import takes hardly longer for many volumes than for few: it reads nothing of their trees.
#[test]
fn an_import_reads_no_trees() {
    let import = |count| {
        let took = Rc::new(std::cell::Cell::new(0));
        let seen = took.clone();
        on_pool(0, 2 << 30, move |pool| async move {
            for nth in 0..count {
                let volume = pool.sized(&format!("v{nth}"), 16 * MIB, BLOCK as u32, Compression::Off).await;
                volume.write(0, vec![pool.buffer(&[1; BLOCK as usize])], false).await.expect("written");
            }
            pool.engine.pool_export("tank").await.expect("exported");
            let begun = pool.rt.now();
            let paths = pool.paths.clone();
            pool.engine.pool_import("tank", paths, Import::default()).await.expect("imported");
            seen.set(pool.rt.now().since(begun) / READ_NS);
        });
        took.get()
    };
    let (few, many) = (import(10), import(1500));
    assert!(many <= few + 16, "{many} reads in a row for 1500 volumes, {few} for 10");
}

/// Goal: a volume that goes with many snapshots is given back, all of it.
#[test]
fn a_volume_with_many_snapshots_is_given_back() {
    on_pool(0, 1 << 30, |pool| async move {
        let (names, rounds) = (volumes(&pool, 1).await, 200);
        let volume = pool.open("v0").await;
        for round in 0..rounds {
            let data = pool.buffer(&[round as u8; BLOCK as usize]);
            volume.write(round % 256 * BLOCK, vec![data], false).await.expect("written");
            pool.engine.snapshot_create(names.clone(), &format!("s{round}")).await.expect("taken");
        }
        drop(volume);
        let before = pool.engine.pools().await[0].used;
        let all = VolumeDelete { with_snapshots: true, purge: true };
        pool.engine.volume_delete(&names[0], all).await.expect("deleted");
        for _ in 0..50 {
            pool.checkpoint().await;
            pool.rt.sleep(Duration::from_millis(50)).await;
        }
        // Each snapshot had a block, a leaf and the node above it for itself.
        let given_back = before - pool.engine.pools().await[0].used;
        assert!(given_back >= rounds * 3 * BLOCK, "{given_back} bytes given back");
        pool.again().await;
    });
}

#[test]
fn planted_bugs_are_caught() {
    for bug in Bug::OF_LOOPS {
        plant(Some(bug));
        let caught = std::panic::catch_unwind(status_yields_and_ends_early).is_err();
        let met = times_met();
        plant(None);
        assert!(caught && met > 0, "{bug:?} was met {met} times and nobody noticed");
    }
}
