//! The engine on simulated disks: each test asks one question of a whole pool.

use forebay_base::{KIB, MIB, WallTime};
use forebay_pool::check::check;
use forebay_pool::{
    ATTRIBUTES_BYTES_MAX, Compression, DiskAdd, DiskReplace, Engine, EngineConfig, ErrorCounts, ErrorKind,
    Host, Import, IoError, Layout, PoolSpec, PoolState, ScrubSchedule, ScrubState, SyncPolicy, Volume,
    VolumeDelete, VolumeFormat, VolumeSpec,
};
use forebay_runtime::{Buf, Cores, DiskErrorKind, Rt};
use forebay_simulation::{Action, Image, OpKind, Rule, World, WorldConfig};
use std::sync::Arc;
use std::time::Duration;

const PURGE: VolumeDelete = VolumeDelete { with_snapshots: false, purge: true };
const LIMIT: Duration = Duration::from_secs(3600);

fn engine(cores: Cores) -> Engine {
    Engine::new(cores, EngineConfig { memory: 16 << 20, events: Arc::new(|_| ()), host: Host::default() })
}

fn spec(layout: Layout, disks: &[&str], log: &[&str], shards: usize) -> PoolSpec {
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    let (disks, log_disks) = (names(disks), names(log));
    PoolSpec {
        name: "tank".into(),
        layout,
        disks,
        log_disks,
        spare_disks: Vec::new(),
        cache_disks: Vec::new(),
        enclosures: Vec::new(),
        sectors: Vec::new(),
        shards,
        log_bytes: None,
        force: false,
    }
}

pub fn volume(name: &str, size: u64, block_size: u32) -> VolumeSpec {
    VolumeSpec {
        pool: "tank".into(),
        name: name.into(),
        size,
        block_size,
        sync: Some(SyncPolicy::Always),
        compression: Some(Compression::Off),
        format: VolumeFormat::Thin,
        level: None,
        own_hosts: false,
    }
}

fn pattern(rt: &Rt, seed: u64, len: usize) -> Buf {
    let mut buffer = rt.buffer(len);
    forebay_base::Random::new(seed).fill(&mut buffer);
    buffer.freeze()
}

async fn bytes(volume: &Volume, at: u64, len: usize) -> Vec<u8> {
    let parts = volume.read(at, len).await.expect("readable");
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}

/// Runs `main` in a world with `disks` disks of `bytes` bytes and `cores` cores.
fn run<W: Future<Output = ()> + 'static>(
    disks: usize,
    bytes: u64,
    cores: usize,
    main: impl FnOnce(Rt, Cores) -> W,
) {
    let world = World::new(WorldConfig::new(1));
    for _ in 0..disks {
        world.add_disk(Image::new(bytes));
    }
    let (executor, cores) = world.executor(cores);
    let main = main(executor.rt().clone(), cores);
    world.run(&executor, LIMIT, main).expect("finishes");
}

/// Goal: labels and superblocks that take more than one block serve as others do.
#[test]
fn a_pool_of_six_hundred_disks_is_imported_and_takes_another() {
    const DISKS: usize = 600;
    run(DISKS + 1, 22 * MIB, 2, |rt, cores| async move {
        let engine = engine(cores);
        let paths: Vec<String> = (0..DISKS).map(|disk| format!("sim{disk}")).collect();
        let names: Vec<&str> = paths.iter().map(String::as_str).collect();
        engine.pool_create(spec(Layout::Mirror, &names, &[], 2)).await.expect("created");
        let info = engine.volume_create(volume("a", 64 * MIB, 8192)).await.expect("created");
        let a = Volume::open(&rt, info.id).expect("open");
        let data = pattern(&rt, 5, MIB as usize);
        a.write(0, vec![data.clone()], false).await.expect("written");
        engine.pool_export("tank").await.expect("exported");
        engine.pool_import("tank", paths.clone(), Import::default()).await.expect("imported");
        let a = Volume::open(&rt, info.id).expect("open");
        assert_eq!(bytes(&a, 0, MIB as usize).await, &data[..]);
        let added = engine.disk_add("tank", vec![format!("sim{DISKS}")], DiskAdd::default()).await;
        added.expect("added");
        engine.pool_export("tank").await.expect("exported");
        let all: Vec<String> = (0..=DISKS).map(|disk| format!("sim{disk}")).collect();
        let report = check(&rt, &all).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
    });
}

#[test]
fn what_is_written_is_read_after_export_and_import() {
    for (layout, data, log, shards) in [
        (Layout::Single, vec!["sim0"], vec![], 1),
        (Layout::Mirror, vec!["sim0", "sim1"], vec![], 2),
        (Layout::Mirror3, vec!["sim0", "sim1", "sim2"], vec!["sim3"], 4),
        (Layout::Parity { data: 3, parity: 1 }, vec!["sim0", "sim1", "sim2", "sim3"], vec![], 2),
        (Layout::Parity { data: 2, parity: 1 }, vec!["sim0", "sim1", "sim2"], vec!["sim3"], 1),
    ] {
        let paths: Vec<String> = data.iter().chain(&log).map(|name| name.to_string()).collect();
        let pool = spec(layout, &data, &log, shards);
        run(4, 32 * MIB, shards, |rt, cores| async move {
            let engine = engine(cores);
            engine.pool_create(pool).await.expect("created");
            for name in ["a", "b"] {
                engine.volume_create(volume(name, 4 * MIB, 8192)).await.expect("created");
            }
            let info = engine.volume("tank/a").await.expect("there");
            let a = Volume::open(&rt, info.id).expect("open");
            let data = pattern(&rt, 7, 100_000);
            a.write(12345, vec![data.clone()], false).await.expect("written");
            assert_eq!(bytes(&a, 12345, 100_000).await, &data[..]);
            assert!(bytes(&a, 2 * MIB, 5000).await.iter().all(|byte| *byte == 0));
            a.write_zeroes(20_000, 30_000, false).await.expect("zeroed");
            engine.checkpoint("tank").await.expect("checkpoint");
            a.write(3 * MIB, vec![data.slice(0, 8192)], false).await.expect("written");
            let mut expected = data.to_vec();
            expected[20_000 - 12345..50_000 - 12345].fill(0);
            assert_eq!(bytes(&a, 12345, 100_000).await, expected);
            engine.pool_export("tank").await.expect("exported");
            assert_eq!(a.read(0, 10).await.err(), Some(IoError::Gone));
            engine.pool_import("tank", paths.clone(), Import::default()).await.expect("imported");
            let a = Volume::open(&rt, info.id).expect("open");
            assert_eq!(bytes(&a, 12345, 100_000).await, expected);
            assert_eq!(bytes(&a, 3 * MIB, 8192).await, &data[..8192]);
            engine.volume_resize("tank/a", 8 * MIB).await.expect("grown");
            a.write(7 * MIB, vec![data.slice(0, 4096)], false).await.expect("written");
            engine.volume_delete("tank/b", PURGE).await.expect("deleted");
            engine.pool_export("tank").await.expect("exported");
            let report = check(&rt, &paths).await.expect("checked");
            assert_eq!(report.problems, Vec::<String>::new());
        });
    }
}

#[test]
fn a_full_pool_refuses_writes_and_comes_back_after_discard() {
    fill_and_discard(Layout::Single, &["sim0"]);
    fill_and_discard(Layout::Parity { data: 2, parity: 2 }, &["sim0", "sim1", "sim2", "sim3"]);
}

fn fill_and_discard(layout: Layout, disks: &'static [&'static str]) {
    run(disks.len(), 22 * MIB, 1, move |rt, cores| async move {
        let engine = engine(cores);
        engine.pool_create(spec(layout, disks, &[], 1)).await.expect("created");
        let info = engine.volume_create(volume("a", 64 * MIB, 4096)).await.expect("thin");
        let a = Volume::open(&rt, info.id).expect("open");
        let mut written = 0;
        let error = loop {
            match a.write(written, vec![pattern(&rt, written, 64 * KIB as usize)], false).await {
                Ok(()) => written += 64 * KIB,
                Err(error) => break error,
            }
        };
        assert_eq!(error, IoError::NoSpace);
        assert!(written > 12 * MIB, "only {written} bytes fit");
        for at in (0..written).step_by(64 * KIB as usize) {
            assert_eq!(bytes(&a, at, 64 * KIB as usize).await, &pattern(&rt, at, 64 * KIB as usize)[..]);
        }
        a.discard(0, written / 2, false).await.expect("discarding needs no space");
        engine.checkpoint("tank").await.expect("checkpoint");
        for at in (0..written / 4).step_by(64 * KIB as usize) {
            a.write(at, vec![pattern(&rt, at + 1, 64 * KIB as usize)], false).await.expect("space is back");
        }
        engine.pool_export("tank").await.expect("exported");
        let paths: Vec<String> = disks.iter().map(|disk| disk.to_string()).collect();
        let report = check(&rt, &paths).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
    });
}

#[test]
fn the_largest_volume_works_at_both_ends_and_costs_what_is_written() {
    run(2, 64 * MIB, 2, |rt, cores| async move {
        let engine = engine(cores);
        engine.pool_create(spec(Layout::Mirror, &["sim0", "sim1"], &[], 2)).await.expect("created");
        let too_large = engine.volume_create(volume("x", 65 << 40, 4096)).await.expect_err("beyond 64 TiB");
        assert_eq!(too_large.kind, ErrorKind::Invalid("size"));
        let size = 64 << 40;
        let info = engine.volume_create(volume("huge", size, 4096)).await.expect("thin");
        let huge = Volume::open(&rt, info.id).expect("open");
        let data = pattern(&rt, 3, 8192);
        for at in [0, size / 3 / 4096 * 4096, size - 8192] {
            huge.write(at, vec![data.clone()], false).await.expect("written");
        }
        assert_eq!(huge.write(size - 4096, vec![data.clone()], false).await, Err(IoError::OutOfRange));
        assert_eq!(huge.read(u64::MAX, 2).await.err(), Some(IoError::OutOfRange));
        let extents = huge.status(0, size, 16).await.expect("status");
        assert_eq!(
            extents.iter().map(|extent| extent.mapped).collect::<Vec<_>>(),
            [true, false, true, false, true]
        );
        assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), size);
        engine.pool_export("tank").await.expect("exported");
        engine
            .pool_import("tank", vec!["sim1".into(), "sim0".into()], Import::default())
            .await
            .expect("imported");
        let huge = Volume::open(&rt, info.id).expect("open");
        assert_eq!(bytes(&huge, size - 8192, 8192).await, &data[..]);
        assert_eq!(engine.volume("tank/huge").await.expect("there").mapped, 6 * 4096);
        huge.discard(0, size, false).await.expect("discarded");
        engine.checkpoint("tank").await.expect("checkpoint");
        assert_eq!(engine.volume("tank/huge").await.expect("there").mapped, 0);
    });
}

#[test]
fn compare_and_write_is_all_or_nothing() {
    run(1, 32 * MIB, 1, |rt, cores| async move {
        let engine = engine(cores);
        engine.pool_create(spec(Layout::Single, &["sim0"], &[], 1)).await.expect("created");
        let info = engine.volume_create(volume("a", MIB, 8192)).await.expect("created");
        let a = Volume::open(&rt, info.id).expect("open");
        let (old, new) = (pattern(&rt, 1, 20_000), pattern(&rt, 2, 20_000));
        a.write(5000, vec![old.clone()], false).await.expect("written");
        let mut wrong = old.to_vec();
        wrong[17_000] ^= 1;
        let wrong = rt.arena().copy(&wrong).freeze();
        assert_eq!(a.compare_and_write(5000, wrong, new.clone()).await, Ok(Err(17_000)));
        assert_eq!(bytes(&a, 5000, 20_000).await, &old[..]);
        assert_eq!(a.compare_and_write(5000, old, new.clone()).await, Ok(Ok(())));
        assert_eq!(bytes(&a, 5000, 20_000).await, &new[..]);
    });
}

#[test]
fn attributes_stay_with_their_volume_and_go_with_it() {
    run(2, 32 * MIB, 1, |rt, cores| async move {
        let engine = engine(cores);
        engine.pool_create(spec(Layout::Mirror, &["sim0", "sim1"], &[], 1)).await.expect("created");
        let a = engine.volume_create(volume("a", MIB, 8192)).await.expect("created").id;
        let b = engine.volume_create(volume("b", MIB, 8192)).await.expect("created").id;
        let open = |id| Volume::open(&rt, id).expect("open");
        assert_eq!(open(a).load_attributes().await, Ok(None));
        let (long, short) = (vec![7; ATTRIBUTES_BYTES_MAX], b"short".to_vec());
        open(a).store_attributes(&long).await.expect("stored");
        open(b).store_attributes(&long).await.expect("stored");
        open(b).store_attributes(&short).await.expect("stored");
        let too_long = vec![7; ATTRIBUTES_BYTES_MAX + 1];
        assert_eq!(open(b).store_attributes(&too_long).await, Err(IoError::OutOfRange));
        assert_eq!(engine.volumes(None).await.expect("listed").len(), 2);
        engine.pool_export("tank").await.expect("exported");
        engine
            .pool_import("tank", vec!["sim0".into(), "sim1".into()], Import::default())
            .await
            .expect("imported");
        assert_eq!(open(a).load_attributes().await, Ok(Some(long)));
        assert_eq!(open(b).load_attributes().await, Ok(Some(short)));
        open(b).store_attributes(&[]).await.expect("stored");
        assert_eq!(open(b).load_attributes().await, Ok(None));
        // Its number becomes another volume's.
        engine.volume_delete("tank/a", PURGE).await.expect("deleted");
        rt.sleep(Duration::from_secs(1)).await;
        for name in ["c", "d"] {
            let id = engine.volume_create(volume(name, MIB, 8192)).await.expect("created").id;
            assert_eq!(open(id).load_attributes().await, Ok(None), "{name}");
        }
        engine.pool_export("tank").await.expect("exported");
        let report = check(&rt, &["sim0".into(), "sim1".into()]).await.expect("readable");
        assert_eq!(report.problems, Vec::<String>::new());
    });
}

#[test]
fn creation_refuses_what_would_destroy_data() {
    run(3, 32 * MIB, 1, |rt, cores| async move {
        let engine = engine(cores);
        let disk = rt.open_disk("sim0", forebay_runtime::OpenMode::ReadWrite).expect("there");
        let mut sector = rt.arena().take_zeroed(4096);
        sector[1080..1082].copy_from_slice(&[0x53, 0xef]);
        disk.write(0, vec![sector.freeze()]).await.expect("written");
        let ext4 = engine
            .pool_create(spec(Layout::Single, &["sim0"], &[], 1))
            .await
            .expect_err("an ext4 file system");
        assert_eq!((ext4.kind, ext4.object.as_str()), (ErrorKind::Unsafe, "sim0"));
        engine.pool_create(spec(Layout::Single, &["sim1"], &[], 1)).await.expect("created");
        engine.pool_export("tank").await.expect("exported");
        let taken = engine
            .pool_create(spec(Layout::Single, &["sim1"], &[], 1))
            .await
            .expect_err("another pool's disk");
        assert_eq!(taken.kind, ErrorKind::Unsafe);
        let twice = engine
            .pool_create(spec(Layout::Mirror, &["sim2", "sim2"], &[], 1))
            .await
            .expect_err("given twice");
        assert_eq!(twice.kind, ErrorKind::Invalid("disks"));
        let forced = PoolSpec { force: true, ..spec(Layout::Mirror, &["sim0", "sim1"], &[], 1) };
        engine.pool_create(forced).await.expect("forced");
    });
}

/// Goal: each disk has its own sector size, given or its own, wherever it joins, and keeps it over an import; what cannot be is
/// refused.
#[test]
fn disks_have_sectors_of_their_own() {
    let world = World::new(WorldConfig::new(1));
    for _ in 0..5 {
        world.add_disk(Image::new(32 * MIB));
    }
    world.set_geometry(3, |geometry| geometry.sector_logical = 4096);
    let events = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = events.clone();
    let (executor, cores) = world.executor(1);
    let main = async move {
        let seen = events.clone();
        let tell = move |event: forebay_pool::Event| seen.lock().expect("one thread").push(event.code);
        let engine = Engine::new(
            cores,
            EngineConfig { memory: 16 << 20, events: Arc::new(tell), host: Host::default() },
        );
        let given = |sectors: &[(&str, u32)]| {
            sectors.iter().map(|(disk, sector)| (disk.to_string(), *sector)).collect::<Vec<_>>()
        };
        let mirror = |sectors: &[(&str, u32)]| PoolSpec {
            sectors: given(sectors),
            ..spec(Layout::Mirror, &["sim0", "sim3"], &[], 1)
        };
        for (sectors, object) in [
            (&[("sim0", 3000)][..], "sim0"),
            (&[("sim0", 256)], "sim0"),
            (&[("sim0", 128 << 10)], "sim0"),
            (&[("sim3", 512)], "sim3"),
            (&[("sim1", 4096)], "tank"),
        ] {
            let refused = engine.pool_create(mirror(sectors)).await.expect_err("impossible");
            assert_eq!((refused.kind, refused.object.as_str()), (ErrorKind::Invalid("sectors"), object));
        }
        engine.pool_create(mirror(&[("sim0", 512)])).await.expect("created");
        let add = DiskAdd { sector: Some(16 << 10), ..DiskAdd::default() };
        engine.disk_add("tank", vec!["sim1".into()], add).await.expect("added");
        let with = DiskReplace { new: Some("sim2".into()), sector: Some(8192), force: false };
        let bad = DiskReplace { sector: Some(1000), ..with.clone() };
        let refused = engine.disk_replace("tank", "0", bad).await.expect_err("impossible");
        assert_eq!(refused.kind, ErrorKind::Invalid("sectors"));
        engine.disk_replace("tank", "0", with).await.expect("replaced");
        engine.pool_healed("tank").await.expect("healed");
        engine.pool_export("tank").await.expect("exported");
        let paths = (1..4).map(|disk| format!("sim{disk}")).collect();
        let pool = engine.pool_import("tank", paths, Import::default()).await.expect("imported");
        let mut disks: Vec<(&str, u32, Option<u32>)> = pool.groups[0]
            .disks
            .iter()
            .map(|disk| (&disk.path[..], disk.sector_physical, disk.sector_reported))
            .collect();
        disks.sort();
        let said = Some(4096);
        assert_eq!(disks, [("sim1", 16 << 10, said), ("sim2", 8192, said), ("sim3", 4096, said)]);
        engine.volume_create(volume("small", 8 * MIB, 8192)).await.expect("created");
        assert!(events.lock().expect("one thread").contains(&"volume.small_blocks"));
        events.lock().expect("one thread").clear();
        engine.volume_create(volume("large", 8 * MIB, 16 << 10)).await.expect("created");
        assert!(!events.lock().expect("one thread").contains(&"volume.small_blocks"));
    };
    world.run(&executor, LIMIT, main).expect("finishes");
    assert!(!seen.lock().expect("one thread").contains(&"volume.small_blocks"));
}

/// Goal: an import does without a disk that hangs, as without one that is missing.
#[test]
fn an_import_does_not_wait_for_a_disk_that_hangs() {
    let world = World::new(WorldConfig::new(1));
    world.add_disk(Image::new(32 * MIB));
    world.add_disk(Image::new(32 * MIB));
    let (executor, cores) = world.executor(1);
    let faults = world.clone();
    let main = async move {
        let engine = Engine::new(
            cores,
            EngineConfig { memory: 16 << 20, events: Arc::new(|_| {}), host: Host::default() },
        );
        engine.pool_create(spec(Layout::Mirror, &["sim0", "sim1"], &[], 1)).await.expect("created");
        engine.pool_export("tank").await.expect("exported");
        faults.add_rule(Rule::new(1, Action::Hang));
        let paths = vec!["sim0".to_string(), "sim1".to_string()];
        let pool = engine.pool_import("tank", paths, Import::default()).await.expect("imported");
        assert_eq!(pool.state, PoolState::Degraded);
    };
    world.run(&executor, Duration::from_secs(60), main).expect("finishes");
}

/// Goal: a disk that is slow only because it is being filled is not taken for a slow one.
/// Method: disks of 1 MiB/s, so that the copy to a replacement takes longer than a slow disk is suffered.
#[test]
fn a_disk_that_is_being_filled_is_not_a_slow_one() {
    let world = World::new(WorldConfig { rate: Some(MIB), ..WorldConfig::new(1) });
    for _ in 0..3 {
        world.add_disk(Image::new(128 * MIB));
    }
    let (executor, cores) = world.executor(1);
    let rt = executor.rt().clone();
    let events = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = events.clone();
    let main = async move {
        let tell = move |event: forebay_pool::Event| seen.lock().expect("one thread").push(event.code);
        let engine = Engine::new(
            cores,
            EngineConfig { memory: 16 << 20, events: Arc::new(tell), host: Host::default() },
        );
        engine.pool_create(spec(Layout::Mirror, &["sim0", "sim1"], &[], 1)).await.expect("created");
        let info = engine.volume_create(volume("a", 64 * MIB, 8192)).await.expect("created");
        let a = Volume::open(&rt, info.id).expect("open");
        for at in (0..64 * MIB).step_by(MIB as usize) {
            a.write(at, vec![pattern(&rt, at, MIB as usize)], false).await.expect("written");
        }
        let with = DiskReplace { new: Some("sim2".into()), ..DiskReplace::default() };
        engine.disk_replace("tank", "0", with).await.expect("replaced");
        let begun = rt.now();
        let clients = async {
            while rt.now().since(begun) < 60_000_000_000 {
                a.write(0, vec![pattern(&rt, 1, 8192)], false).await.expect("written");
                rt.sleep(Duration::from_millis(100)).await;
            }
        };
        let (healed, ()) = futures_util::future::join(engine.pool_healed("tank"), clients).await;
        healed.expect("healed");
        assert!(rt.now().since(begun) > 60_000_000_000);
    };
    world.run(&executor, Duration::from_secs(3600), main).expect("finishes");
    let events = events.lock().expect("one thread");
    assert!(!events.contains(&"disk.evicted") && events.contains(&"disk.removed"), "{events:?}");
}

/// Goal: a scrub begins by itself when its time has come and not before, also after a time in which the pool was not imported; the
/// schedule stays with the pool.
#[test]
fn scrubs_begin_by_themselves() {
    const DAY_MS: i128 = 24 * 3600 * 1000;
    let world = World::new(WorldConfig::new(1));
    world.add_disk(Image::new(32 * MIB));
    world.add_disk(Image::new(32 * MIB));
    let (executor, cores) = world.executor(1);
    let (rt, clock) = (executor.rt().clone(), world.clone());
    let main = async move {
        let engine = Engine::new(
            cores,
            EngineConfig { memory: 16 << 20, events: Arc::new(|_| {}), host: Host::default() },
        );
        let status = async || engine.pools().await.remove(0);
        let minutes = Duration::from_secs(150);
        let paths = vec!["sim0".to_string(), "sim1".to_string()];
        engine.pool_create(spec(Layout::Mirror, &["sim0", "sim1"], &[], 1)).await.expect("created");
        engine.volume_create(volume("a", 8 * MIB, 8192)).await.expect("created");
        clock.jump_wall(29 * DAY_MS);
        rt.sleep(minutes).await;
        let before = status().await;
        assert_eq!((before.scrub, before.scrubs.last), (None, WallTime(0)));
        engine.pool_export("tank").await.expect("exported");
        clock.jump_wall(DAY_MS);
        engine.pool_import("tank", paths.clone(), Import::default()).await.expect("imported");
        rt.sleep(minutes).await;
        let after = status().await;
        assert_eq!(after.scrub.as_ref().map(|scrub| scrub.state), Some(ScrubState::Done));
        assert!(after.scrubs.last.0 > 0 && after.scrub_next.is_some_and(|next| next.0 > after.scrubs.last.0));
        engine.scrub_schedule("tank", 0).await.expect("set");
        engine.pool_export("tank").await.expect("exported");
        engine.pool_import("tank", paths, Import::default()).await.expect("imported");
        clock.jump_wall(1000 * DAY_MS);
        rt.sleep(minutes).await;
        let never = status().await;
        assert_eq!((never.scrub, never.scrub_next), (after.scrub, None), "the last one, and no next");
        assert_eq!(never.scrubs, ScrubSchedule { every_seconds: 0, ..after.scrubs });
        let last = never.scrubs.last.0;
        engine.scrub_schedule("tank", 3600).await.expect("set");
        rt.sleep(minutes).await;
        assert!(status().await.scrubs.last.0 > last);
    };
    world.run(&executor, Duration::from_secs(3600), main).expect("finishes");
}

/// Goal: a shard whose neighbour holds every chunk, each partly used, still gets the space that the pool says is free.
/// Method: one volume fills most of the pool and is then overwritten at random, so that no chunk of its shard is empty; then
/// a volume of the other shard writes what is left.
#[test]
fn space_that_another_shard_left_scattered_is_there_for_all() {
    run(1, 64 * MIB, 1, |rt, cores| async move {
        let engine = engine(cores);
        // A log so long that what is overwritten between two checkpoints spreads over every chunk.
        let pool = PoolSpec { log_bytes: Some(8 * MIB), ..spec(Layout::Single, &["sim0"], &[], 2) };
        engine.pool_create(pool).await.expect("created");
        let block = 8 * KIB;
        let size = 28 * MIB;
        let open = |id| Volume::open(&rt, id).expect("open");
        let a = open(engine.volume_create(volume("a", size, block as u32)).await.expect("created").id);
        let mut seeds = vec![0; (size / block) as usize];
        let mut random = forebay_base::Random::new(5);
        for nth in 0..4 * seeds.len() as u64 {
            let index = if nth < seeds.len() as u64 { nth } else { random.below(seeds.len() as u64) };
            seeds[index as usize] = nth;
            a.write(index * block, vec![pattern(&rt, nth, block as usize)], false).await.expect("room");
        }
        let b = engine.volume_create(volume("b", size, 128 << 10)).await.expect("created");
        assert_eq!(b.shard, 1);
        let b = open(b.id);
        let free = engine.pools().await[0].free;
        assert!(free > 8 * MIB, "only {free} bytes are free");
        for at in (0..free / 4 * 3 / MIB * MIB).step_by(MIB as usize) {
            b.write(at, vec![pattern(&rt, at, MIB as usize)], false).await.expect("the pool has room");
        }
        engine.pool_export("tank").await.expect("exported");
        engine.pool_import("tank", vec!["sim0".into()], Import::default()).await.expect("imported");
        let (a, b) = (engine.volume("tank/a").await.expect("a"), engine.volume("tank/b").await.expect("b"));
        let (a, b) = (open(a.id), open(b.id));
        for (index, seed) in seeds.into_iter().enumerate() {
            let found = bytes(&a, index as u64 * block, block as usize).await;
            assert!(found == pattern(&rt, seed, block as usize)[..], "block {index} of a");
        }
        for at in (0..free / 4 * 3 / MIB * MIB).step_by(MIB as usize) {
            assert!(bytes(&b, at, MIB as usize).await == pattern(&rt, at, MIB as usize)[..], "{at} of b");
        }
        engine.pool_export("tank").await.expect("exported");
        let report = check(&rt, &["sim0".into()]).await.expect("checked");
        assert_eq!(report.problems, Vec::<String>::new());
    });
}

/// Goal: of a pool that has lost more disks than its layout can, a forced read-only import shows every block that is left, and an error
/// for each of the others; nothing less than that brings it up.
#[test]
fn what_is_left_of_a_pool_can_be_read() {
    const BLOCK: u64 = 8 * KIB;
    run(6, 32 * MIB, 1, |rt, cores| async move {
        let engine = engine(cores);
        let all = ["sim0", "sim1", "sim2", "sim3", "sim4", "sim5"];
        engine.pool_create(spec(Layout::Mirror, &all, &[], 1)).await.expect("created");
        let size = 48 * MIB;
        let a = engine.volume_create(volume("a", size, BLOCK as u32)).await.expect("created").id;
        let open = || Volume::open(&rt, a).expect("open");
        for at in (0..size).step_by(BLOCK as usize) {
            open().write(at, vec![pattern(&rt, at, BLOCK as usize)], false).await.expect("room");
        }
        engine.pool_export("tank").await.expect("exported");
        let rescue = Import { read_only: true, force: true };
        let others =
            [Import::default(), Import { force: false, ..rescue }, Import { read_only: false, ..rescue }];
        let (mut rescued, mut left, mut lost) = (0, 0, 0);
        for (one, other) in (0..6).flat_map(|one| (one + 1..6).map(move |other| (one, other))) {
            let there = (0..6).filter(|disk| *disk != one && *disk != other);
            let paths: Vec<String> = there.map(|disk| all[disk].to_string()).collect();
            for import in others {
                let error = engine.pool_import("tank", paths.clone(), import).await.expect_err("refused");
                assert!(error.remedy.contains("--read-only --force"), "{error}");
            }
            // What the whole pool hangs from may be among what is gone.
            let Ok(pool) = engine.pool_import("tank", paths, rescue).await else { continue };
            assert_eq!((pool.state, pool.read_only), (PoolState::Suspended, true));
            rescued += 1;
            if engine.volumes(None).await.expect("a list").is_empty() {
                engine.pool_export("tank").await.expect("closed");
                continue;
            }
            for at in (0..size).step_by(BLOCK as usize) {
                match open().read(at, BLOCK as usize).await {
                    Ok(parts) => {
                        let found: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
                        assert!(found[..] == pattern(&rt, at, BLOCK as usize)[..], "block at {at}");
                        left += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error, IoError::Io | IoError::Corrupt), "{error}");
                        lost += 1;
                    }
                }
            }
            engine.pool_export("tank").await.expect("closed");
        }
        assert!(
            rescued >= 10 && left > 6 * lost && lost > 0,
            "{rescued} imports, {left} blocks left, {lost} lost"
        );
        engine.pool_import("tank", all.map(String::from).into(), Import::default()).await.expect("as it was");
    });
}

/// Goal: a pool that a host has not exported is not another's, and says whose it is.
#[test]
fn a_pool_belongs_to_its_host_until_it_is_exported() {
    let world = World::new(WorldConfig::new(1));
    world.add_disk(Image::new(32 * MIB));
    let on_host = |world: &World, number: u128, import: Import, export: bool| {
        let (executor, cores) = world.executor(1);
        let host = Host { id: forebay_base::Id(number), name: format!("host{number}") };
        let fresh = world.written(0) == 0;
        let main = async move {
            let engine =
                Engine::new(cores, EngineConfig { memory: 16 << 20, events: Arc::new(|_| ()), host });
            let imported = if fresh {
                engine.pool_create(spec(Layout::Single, &["sim0"], &[], 1)).await
            } else {
                engine.pool_import("tank", vec!["sim0".into()], import).await
            };
            if export && imported.is_ok() {
                engine.pool_export("tank").await.expect("exported");
            }
            let found = engine.pool_scan(vec!["sim0".into()]).await.remove(0).host;
            (imported.map(drop), found.map(|host| host.name))
        };
        world.run(&executor, LIMIT, main).expect("finishes")
    };
    let (usual, forced) = (Import::default(), Import { force: true, ..Import::default() });
    assert_eq!(on_host(&world, 1, usual, false), (Ok(()), Some("host1".into())));
    let (refused, _) = on_host(&world, 2, usual, false);
    let error = refused.expect_err("refused");
    assert!(
        error.kind == ErrorKind::Unsafe
            && error.message.contains("host1")
            && error.remedy.contains("--force")
    );
    assert_eq!(on_host(&world, 1, usual, false).0, Ok(()), "its own after a crash");
    assert_eq!(on_host(&world, 2, forced, false), (Ok(()), Some("host2".into())));
    assert_eq!(on_host(&world, 2, usual, true), (Ok(()), None));
    assert_eq!(on_host(&world, 3, usual, false).0, Ok(()), "anybody's once it is exported");
}

/// Goal: a disk that its administrator takes offline has not failed, neither in what is told nor in what is counted; errors can be
/// cleared, and are told of anew.
/// Method: writes in flight while the disk is taken out; then ten bad places of another, twice.
#[test]
fn errors_of_disks_are_told_once_and_those_of_nobody_are_not() {
    let world = World::new(WorldConfig::new(1));
    for _ in 0..3 {
        world.add_disk(Image::new(32 * MIB));
    }
    let (executor, cores) = world.executor(1);
    let (rt, faults) = (executor.rt().clone(), world.clone());
    let main = async move {
        let events = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = events.clone();
        let tell = move |event: forebay_pool::Event| seen.lock().expect("one thread").push(event.code);
        let told =
            |code: &str| events.lock().expect("one thread").iter().filter(|told| **told == code).count();
        let host = Host::default();
        let engine = Engine::new(cores, EngineConfig { memory: 16 << 20, events: Arc::new(tell), host });
        engine.pool_create(spec(Layout::Mirror3, &["sim0", "sim1", "sim2"], &[], 1)).await.expect("created");
        let info = engine.volume_create(volume("a", 8 * MIB, 8192)).await.expect("created");
        let a = Volume::open(&rt, info.id).expect("open");
        let errors = async |disk: usize| engine.pools().await.remove(0).groups[0].disks[disk].errors;
        let writes = async {
            for at in (0..2 * MIB).step_by(64 << 10) {
                a.write(at, vec![pattern(&rt, at, 64 << 10)], false).await.expect("written");
            }
        };
        let (offline, ()) = futures_util::future::join(engine.disk_offline("tank", "0"), writes).await;
        offline.expect("taken offline");
        assert_eq!((errors(0).await.write, told("disk.failed"), told("disk.offline")), (0, 0, 1));
        for round in 1..3 {
            faults.add_rule(Rule::new(1, Action::Fail(DiskErrorKind::Unreadable)).on(OpKind::Read).times(20));
            engine.scrub_start("tank").await.expect("started");
            engine.pool_scrubbed("tank").await.expect("scrubbed");
            faults.take_rules();
            let counted = errors(1).await;
            assert!((10..=20).contains(&counted.read_recent) && counted.read == 20, "{counted:?}");
            rt.sleep(Duration::from_secs(60)).await;
            assert_eq!((told("disk.errors"), errors(1).await), (round, counted));
            engine.disk_clear("tank", "1").await.expect("cleared");
            assert_eq!(errors(1).await, ErrorCounts::default());
        }
    };
    world.run(&executor, LIMIT, main).expect("finishes");
}

/// Goal: a pool that has stopped writing acknowledges no discard, also where nothing is: the write that failed may have reached the disk, and
/// would come back after the next import.
#[test]
fn what_is_discarded_after_a_failure_is_not_acknowledged() {
    let world = World::new(WorldConfig::new(1));
    world.add_disk(Image::new(32 * MIB));
    let (executor, cores) = world.executor(1);
    let (rt, faults) = (executor.rt().clone(), world.clone());
    let main = async move {
        let engine = engine(cores);
        engine.pool_create(spec(Layout::Single, &["sim0"], &[], 1)).await.expect("created");
        let info = engine.volume_create(volume("a", 8 * MIB, 8192)).await.expect("created");
        let a = Volume::open(&rt, info.id).expect("open");
        faults.add_rule(Rule::new(0, Action::FailAfter(DiskErrorKind::Io)).on(OpKind::Write));
        a.write(0, vec![pattern(&rt, 1, 8192)], false).await.expect_err("the disk fails");
        assert_eq!(a.discard(0, MIB, true).await, Err(IoError::Suspended));
        assert_eq!(a.write_zeroes(0, MIB, true).await, Err(IoError::Suspended));
        assert_eq!(bytes(&a, 0, 8192).await, [0; 8192]);
    };
    world.run(&executor, LIMIT, main).expect("finishes");
}
