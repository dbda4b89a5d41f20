//! Is a pool of many disks used as one? On disks that turn, as their sheets say, with the log on flash: what was measured of the pool, and what writers get.

use forebay_base::{Id, MIB, Random};
use forebay_pool::{Engine, EngineConfig, Host, Layout, PoolSpec, Volume};
use forebay_runtime::Rt;
use forebay_simulation::model::{DISK_10K, FLASH_NVME};
use forebay_simulation::{Image, Sheet, World, WorldConfig};
use futures_util::future::join_all;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

const DISKS: u64 = 24;
const LARGE: u64 = 256 << 10;
/// Bytes a second of one disk, where it is fastest: the sheet's.
const OF_A_DISK: u64 = 94_125_000;

/// On a pool of mirrors that was measured.
fn on_wide_pool<W: Future<Output = ()> + 'static>(main: impl FnOnce(Rt, Engine) -> W + 'static) {
    let config =
        WorldConfig { shuffle: false, turns_max: u64::MAX, power_fails: false, ..WorldConfig::new(1) };
    let world = World::new(config);
    let add = |sheet: Sheet, bytes: u64| {
        let disk = world.add_disk(Image::new(bytes));
        world.set_model(disk, &sheet);
        format!("sim{disk}")
    };
    let disk = Sheet::Disk(DISK_10K).scaled(256);
    let disks: Vec<String> = (0..DISKS).map(|_| add(disk, disk.bytes())).collect();
    let log_disks: Vec<String> = (0..2).map(|_| add(Sheet::Flash(FLASH_NVME), 1024 * MIB)).collect();
    let (executor, cores) = world.executor(1);
    let rt = executor.rt().clone();
    world
        .run(&executor, Duration::from_secs(600), async move {
            let host = Host { id: Id(1), name: "test".into() };
            let config = EngineConfig { memory: 64 * MIB, events: Arc::new(|_| {}), host };
            let engine = Engine::new(cores, config);
            let spec = PoolSpec {
                name: "tank".into(),
                layout: Layout::Mirror,
                disks,
                log_disks,
                spare_disks: Vec::new(),
                cache_disks: Vec::new(),
                enclosures: Vec::new(),
                sectors: Vec::new(),
                shards: 1,
                log_bytes: None,
                force: false,
            };
            engine.pool_create(spec).await.expect("created");
            engine.pool_calibrate("tank").await.expect("measured");
            main(rt, engine).await;
        })
        .unwrap_or_else(|stuck| panic!("not over after {:?}", stuck.after));
}

/// A volume all of whose writes are durable.
async fn volume(rt: &Rt, engine: &Engine, size: u64, block_size: u32) -> Volume {
    let spec = crate::engine::volume("v", size, block_size);
    let info = engine.volume_create(spec).await.expect("created");
    Volume::open(rt, info.id).expect("it is there")
}

/// Goal: what all disks do together is found, which eight requests at a time do not show.
#[test]
fn many_disks_are_measured_as_many() {
    on_wide_pool(|_, engine| async move {
        let speed = engine.pools().await[0].speed.expect("it was measured");
        // Eight disks would do less than this however fast each request were.
        assert!(speed.read_bytes > 8 * OF_A_DISK, "{speed:?}");
        // Each byte goes to two disks; eight writers had sixteen of them write for half of the time.
        assert!(speed.write_bytes > 5 * OF_A_DISK, "{speed:?}");
        assert!(
            speed.read_bytes < DISKS * OF_A_DISK && speed.write_bytes < DISKS / 2 * OF_A_DISK,
            "{speed:?}"
        );
    });
}

/// Goal: those who write much at a time, safely, keep most disks busy, and do not all wait for the slowest of them.
#[test]
fn large_writers_wait_for_their_own_disks_only() {
    on_wide_pool(|rt, engine| async move {
        let size = 128 * MIB;
        let volume = volume(&rt, &engine, size, 128 << 10).await;
        let data = rt.arena().take_zeroed(LARGE as usize).freeze();
        let (begun, end) = (rt.now(), rt.now().after(Duration::from_secs(2)));
        let writer = |nth: u64| {
            let (volume, data, rt) = (volume.clone(), data.clone(), rt.clone());
            async move {
                let mut done = 0;
                while rt.now() < end {
                    let at = (nth + 48 * done) * LARGE % size;
                    volume.write(at, vec![data.clone()], false).await.expect("written");
                    done += 1;
                }
                done
            }
        };
        let done: u64 = join_all((0..48).map(writer)).await.into_iter().sum();
        let rate = done * LARGE * 1_000_000_000 / rt.now().since(begun);
        // 4.8 of a disk where each commit flushes all of them.
        assert!(rate > 6 * OF_A_DISK, "{} MB/s", rate / 1_000_000);
    });
}

/// Goal: what small writes left in the log goes to as many disks at a time as there are, and not to one pair after the other.
#[test]
fn small_writes_leave_the_log_for_many_disks_at_once() {
    on_wide_pool(|rt, engine| async move {
        let (size, block) = (256 * MIB, 8 << 10);
        let volume = volume(&rt, &engine, size, block as u32).await;
        let data = rt.arena().take_zeroed(block as usize).freeze();
        let (begun, end) = (rt.now(), rt.now().after(Duration::from_secs(4)));
        let writer = |nth: u64| {
            let (volume, data, rt) = (volume.clone(), data.clone(), rt.clone());
            async move {
                let (mut random, mut done) = (Random::new(nth), 0);
                while rt.now() < end {
                    let at = random.below(size / block) * block;
                    volume.write(at, vec![data.clone()], false).await.expect("written");
                    done += 1;
                }
                done
            }
        };
        let done: u64 = join_all((0..128).map(writer)).await.into_iter().sum();
        let rate = done * 1_000_000_000 / rt.now().since(begun);
        // One pair of disks after the other takes 9300.
        assert!(rate > 15_000, "{rate} writes/s");
    });
}
