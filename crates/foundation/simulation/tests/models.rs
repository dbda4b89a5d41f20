//! Goal: modelled devices do what their data sheets say. Method: what the sheet measured, done on the device, and compared within a few hundredths.

use forebay_base::Random;
use forebay_runtime::{Disk, OpenMode, Rt};
use forebay_simulation::model::{
    DISK_7K2, DISK_10K, DISK_15K, DiskSheet, FLASH_NVME, FLASH_SATA, FlashRates, FlashSheet, SHEETS,
};
use forebay_simulation::{Image, PAGE, Sheet, World, WorldConfig};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);
const SMALL: u64 = 4 << 10;
const MIB: u64 = 1 << 20;

/// Runs `main` on one device.
fn on_device<T: 'static, F: Future<Output = T> + 'static>(
    sheet: Sheet,
    main: impl FnOnce(Rt, Disk) -> F,
) -> T {
    let config = WorldConfig { shuffle: false, turns_max: u64::MAX, ..WorldConfig::new(1) };
    let world = World::new(config);
    let disk = world.add_disk(Image::new(sheet.bytes() / PAGE as u64 * PAGE as u64));
    world.set_model(disk, &sheet);
    let (executor, _) = world.executor(1);
    let rt = executor.rt().clone();
    let disk = rt.open_disk("sim0", OpenMode::ReadWrite).expect("the disk is there");
    world.run(&executor, LIMIT, main(rt.clone(), disk)).expect("the load ends")
}

/// How a load asks.
#[derive(Clone, Copy)]
struct Load {
    bytes: u64,
    writes: bool,
    /// Whether writes have to be on the medium.
    durable: bool,
    depth: u64,
    count: u64,
    /// The bytes that are asked for, in order or at random.
    from: u64,
    to: u64,
    in_order: bool,
}

const RANDOM: Load = Load {
    bytes: SMALL,
    writes: false,
    durable: false,
    depth: 1,
    count: 2000,
    from: 0,
    to: 0,
    in_order: false,
};

/// Seconds that a load takes, and that of a request the longest.
fn run(sheet: Sheet, load: Load) -> (f64, f64) {
    on_device(sheet, move |rt, disk| async move {
        let begun = rt.now();
        let end = if load.to == 0 { disk.geometry().size } else { load.to };
        let tasks: Vec<_> = (0..load.depth)
            .map(|task| {
                let (rt2, disk) = (rt.clone(), disk.clone());
                rt.spawn(async move {
                    let mut random = Random::new(task);
                    let mut longest = 0;
                    for nth in (task..load.count).step_by(load.depth as usize) {
                        let places = (end - load.from) / load.bytes;
                        let place = if load.in_order { nth % places } else { random.below(places) };
                        let (at, asked) = (load.from + place * load.bytes, rt2.now());
                        if load.writes {
                            let data = vec![rt2.arena().take_zeroed(load.bytes as usize).freeze()];
                            match load.durable {
                                true => disk.write_durable(at, data).await.expect("no fault"),
                                false => disk.write(at, data).await.expect("no fault"),
                            }
                        } else {
                            disk.read(at, rt2.buffer(load.bytes as usize)).await.1.expect("no fault");
                        }
                        longest = longest.max(rt2.now().since(asked));
                    }
                    longest
                })
            })
            .collect();
        let mut longest = 0;
        for task in tasks {
            longest = longest.max(task.await);
        }
        disk.flush().await.expect("no fault");
        (rt.now().since(begun) as f64 / 1e9, longest as f64 / 1e9)
    })
}

fn near(what: &str, found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() <= within, "{what}: {found}, not {expected}");
}

#[test]
fn a_small_request_of_a_disk_takes_overhead_seek_half_a_turn_and_its_transfer() {
    for sheet in [DISK_7K2, DISK_10K, DISK_15K] {
        for writes in [false, true] {
            let load = Load { writes, durable: true, ..RANDOM };
            let each = run(Sheet::Disk(sheet), load).0 / load.count as f64;
            let seek = if writes { sheet.write.average } else { sheet.read.average };
            let half_a_turn = 30.0 / f64::from(sheet.rpm);
            let expected = sheet.overhead.as_secs_f64() + seek.as_secs_f64() + half_a_turn;
            // There are more bytes outside: ways between them are a little shorter than between tracks.
            near(&format!("{}, writes: {writes}", sheet.name), each, expected, 0.03);
        }
    }
}

#[test]
fn a_seek_from_end_to_end_takes_what_the_sheet_says() {
    for sheet in [DISK_7K2, DISK_10K, DISK_15K] {
        // Both ends in turns; a turn at most is lost by where the angle happens to be.
        let turn = 60.0 / f64::from(sheet.rpm);
        let ends = |sheet: DiskSheet| {
            on_device(Sheet::Disk(sheet), move |rt, disk| async move {
                let (begun, last) = (rt.now(), disk.geometry().size - SMALL);
                for nth in 0..400 {
                    // Another place of the track each time.
                    let shift = nth * 7919 % 100 * SMALL;
                    let at = if nth % 2 == 0 { last - shift } else { shift };
                    disk.read(at, rt.buffer(SMALL as usize)).await.1.expect("no fault");
                }
                rt.now().since(begun) as f64 / 1e9 / 400.0
            })
        };
        let expected = (sheet.overhead + sheet.read.full).as_secs_f64() + turn / 2.0;
        near(sheet.name, ends(sheet), expected, turn / 2.0 / expected);
    }
}

#[test]
fn streams_have_the_rate_of_their_zone() {
    for sheet in [DISK_7K2, DISK_10K, DISK_15K] {
        for (from, rate) in [(0, sheet.outer), (sheet.bytes - 600 * MIB, sheet.inner)] {
            for (writes, depth) in [(false, 1), (false, 4), (true, 4)] {
                let from = from / MIB * MIB;
                let to = from + 512 * MIB;
                let load = Load { bytes: MIB, writes, depth, count: 512, from, to, in_order: true, ..RANDOM };
                let seconds = run(Sheet::Disk(sheet), load).0;
                let what = format!("{}, writes: {writes}, depth {depth}", sheet.name);
                near(&what, (512 * MIB) as f64 / seconds, rate as f64, 0.03);
            }
        }
    }
}

#[test]
fn many_requests_at_a_time_shorten_the_way_and_none_waits_for_ever() {
    for sheet in [DISK_7K2, DISK_10K, DISK_15K] {
        let at_depth = |depth| run(Sheet::Disk(sheet), Load { depth, count: 4000, ..RANDOM });
        let (one, (many, longest)) = (at_depth(1).0, at_depth(32));
        // Shortest time first roughly halves it; twice as fast at 32 is what makers show.
        let gain = one / many;
        assert!((1.8..3.5).contains(&gain), "{}: {gain}", sheet.name);
        assert!(longest < 2.0, "{}: somebody waited for {longest} s", sheet.name);
    }
}

#[test]
fn writes_are_over_when_they_are_in_the_buffer_and_flushed_when_on_the_medium() {
    let sheet = DISK_7K2;
    let (some, all) = on_device(Sheet::Disk(sheet), |rt, disk| async move {
        let (begun, mut random) = (rt.now(), Random::new(3));
        for _ in 0..100 {
            let data = vec![rt.arena().take_zeroed(SMALL as usize).freeze()];
            let at = random.below(disk.geometry().size / SMALL) * SMALL;
            disk.write(at, data).await.expect("no fault");
        }
        let some = rt.now().since(begun);
        disk.flush().await.expect("no fault");
        (some, rt.now().since(begun))
    });
    assert!(some < 100 * 300_000, "a write in the buffer took {} ns", some / 100);
    // A hundred places, shortest time first, in 3 to 8 ms each.
    assert!((300_000_000..900_000_000).contains(&all), "all took {all} ns");
    // More than the buffer holds is as slow as the medium, shortest time first.
    let beyond = Load { writes: true, depth: 8, count: 20_000, ..RANDOM };
    let each = run(Sheet::Disk(sheet), beyond).0 / beyond.count as f64;
    assert!((0.001..0.006).contains(&each), "{each} s");
}

#[test]
fn a_flush_ends_although_reads_nearby_never_do() {
    let seconds = on_device(Sheet::Disk(DISK_7K2), |rt, disk| async move {
        let far = disk.geometry().size / 2 / MIB * MIB;
        let until = rt.now().0 + 30_000_000_000;
        let readers: Vec<_> = (0..32)
            .map(|reader| {
                let (rt2, disk) = (rt.clone(), disk.clone());
                rt.spawn(async move {
                    while rt2.now().0 < until {
                        disk.read(reader * MIB, rt2.buffer(MIB as usize)).await.1.expect("no fault");
                    }
                })
            })
            .collect();
        rt.sleep(Duration::from_millis(100)).await;
        let zeros = vec![rt.arena().take_zeroed(SMALL as usize).freeze()];
        disk.write(far, zeros).await.expect("no fault");
        let asked = rt.now();
        disk.flush().await.expect("no fault");
        let took = rt.now().since(asked) as f64 / 1e9;
        for reader in readers {
            reader.await;
        }
        took
    });
    assert!(seconds < 1.5, "the flush took {seconds} s");
}

#[test]
fn flash_does_what_its_sheet_says() {
    for sheet in [FLASH_SATA, FLASH_NVME] {
        for (writes, rates) in [(false, sheet.read), (true, sheet.write)] {
            let name = format!("{}, writes: {writes}", sheet.name);
            let FlashRates { iops_4k, iops_8k, bytes, latency } = rates;
            let rate = |load: Load| load.count as f64 / run(Sheet::Flash(sheet), load).0;
            let many = Load { writes, depth: 64, count: 20_000, ..RANDOM };
            near(&format!("{name}, 4 KiB"), rate(many), iops_4k.into(), 0.02);
            if let Some(iops) = iops_8k {
                near(&format!("{name}, 8 KiB"), rate(Load { bytes: 2 * SMALL, ..many }), iops.into(), 0.02);
            }
            let stream = Load { bytes: MIB, writes, depth: 8, count: 500, in_order: true, ..RANDOM };
            near(&format!("{name}, sequence"), rate(stream) * MIB as f64, bytes as f64, 0.02);
            near(
                &format!("{name}, alone"),
                1.0 / rate(Load { writes, ..RANDOM }),
                latency.as_secs_f64(),
                0.02,
            );
        }
    }
}

/// A small read beside large ones waits for pieces of them, not for all.
#[test]
fn flash_serves_small_requests_beside_large_ones() {
    let beside = |sheet: FlashSheet| {
        on_device(Sheet::Flash(sheet), |rt, disk| async move {
            let reads: Vec<_> = (0..4).map(|nth| disk.read(nth * MIB, rt.buffer(MIB as usize))).collect();
            rt.sleep(Duration::from_micros(100)).await;
            let asked = rt.now();
            disk.read(64 * MIB, rt.buffer(SMALL as usize)).await.1.expect("no fault");
            let took = rt.now().since(asked);
            for read in reads {
                read.await.1.expect("no fault");
            }
            (took, rt.now().0)
        })
    };
    let (took, all) = beside(FLASH_SATA);
    assert!(took < 6 * 70_000 && all > 8_000_000, "{took} ns of {all}");
}

#[test]
fn the_same_seed_is_the_same_time() {
    for sheet in SHEETS {
        let mixed = Load { depth: 16, ..RANDOM };
        assert_eq!(run(sheet, mixed), run(sheet, mixed));
    }
}
