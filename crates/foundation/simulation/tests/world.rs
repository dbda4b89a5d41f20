//! Goal: a simulated machine does exactly what its seed and its rules say.
//! Method: small workloads straight on disks, compared by trace, by contents and by the errors they meet.

use forebay_base::Nanos;
use forebay_runtime::{BufMut, Disk, DiskError, DiskErrorKind, Limits, OpenError, OpenMode, Rt, yield_now};
use forebay_simulation::{Action, Cursor, Event, Fate, Image, OpKind, PAGE, Rule, World, WorldConfig};
use std::time::Duration;

const SIZE: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(60);

fn world(seed: u64, disks: usize) -> World {
    let world = World::new(WorldConfig { trace_contents: true, ..WorldConfig::new(seed) });
    (0..disks).for_each(|_| {
        world.add_disk(Image::new(SIZE));
    });
    world
}

fn run<T: 'static, F: Future<Output = T> + 'static>(world: &World, main: impl FnOnce(Rt) -> F) -> T {
    let (executor, _) = world.executor(1);
    let main = main(executor.rt().clone());
    world.run(&executor, LIMIT, main).expect("the workload ends")
}

fn open(rt: &Rt, name: &str) -> Disk {
    rt.open_disk(name, OpenMode::ReadWrite).expect("the disk is there")
}

fn page(rt: &Rt, byte: u8) -> Vec<forebay_runtime::Buf> {
    let mut buffer = rt.buffer(PAGE);
    buffer.fill(byte);
    vec![buffer.freeze()]
}

async fn read(rt: &Rt, disk: &Disk, at: u64) -> Result<u8, DiskError> {
    let (buffer, result): (BufMut, _) = disk.read(at, rt.buffer(PAGE)).await;
    result.map(|()| buffer[0])
}

/// Sixteen tasks that write, flush and read as chance has it.
fn busy(seed: u64) -> (u64, Duration) {
    let world = world(seed, 2);
    world.add_rule(Rule::new(1, Action::Slow(100)).one_in(10));
    run(&world, |rt| async move {
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let rt2 = rt.clone();
                rt.spawn(async move {
                    let disk = open(&rt2, if task % 2 == 0 { "sim0" } else { "sim1" });
                    for _ in 0..20 {
                        let at = rt2.random() % (SIZE / PAGE as u64) * PAGE as u64;
                        match rt2.random() % 4 {
                            0 => disk.flush().await.expect("no fault"),
                            1 => drop(read(&rt2, &disk, at).await),
                            2 => rt2.sleep(Duration::from_micros(rt2.random() % 100)).await,
                            _ => disk.write(at, page(&rt2, task)).await.expect("no fault"),
                        }
                        yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    (world.trace(), world.elapsed())
}

#[test]
fn a_seed_is_a_trace() {
    assert_eq!(busy(7), busy(7));
    let traces: std::collections::HashSet<u64> = (0..50).map(|seed| busy(seed).0).collect();
    assert_eq!(traces.len(), 50, "every seed has a trace of its own");
}

#[test]
fn equal_pages_are_kept_once_and_damage_stays_where_it_is() {
    let world = world(1, 3);
    world.add_rule(Rule::new(2, Action::Flip(9)).on(OpKind::Write));
    run(&world, |rt| async move {
        let disks = ["sim0", "sim1", "sim2"].map(|name| open(&rt, name));
        for (disk, at) in disks.iter().zip([0, 4096, 0]) {
            disk.write(at, page(&rt, 7)).await.expect("no fault");
        }
    });
    let kept = |disk, number| world.image(disk).page(number).expect("it was written").clone();
    assert!(std::rc::Rc::ptr_eq(&kept(0, 0), &kept(1, 1)), "two copies of one page");
    world.rot(0, 5, &[1]);
    let pages = [kept(0, 0), kept(1, 1), kept(2, 0)];
    assert_eq!([1, 5].map(|at| [0, 1, 2].map(|nth| pages[nth][at])), [[7, 7, 5], [6, 7, 7]]);
}

#[test]
fn every_subset_of_unflushed_writes_is_a_crash_image() {
    let world = world(1, 2);
    world.record();
    let w = world.clone();
    run(&world, |rt| async move {
        let (a, b) = (open(&rt, "sim0"), open(&rt, "sim1"));
        a.write(0, page(&rt, 1)).await.expect("no fault");
        a.flush().await.expect("no fault");
        w.mark(42);
        let pending =
            [a.write(4096, page(&rt, 2)), b.write(0, page(&rt, 3)), b.write_durable(8192, page(&rt, 4))];
        for write in pending {
            write.await.expect("no fault");
        }
        w.mark(43);
    });
    let recording = world.take_recording();
    let mut cursor = Cursor::new(&recording);
    while !matches!(cursor.advance().expect("the mark was made"), Event::Mark(43)) {}
    let pending: Vec<(usize, u64)> = cursor.pending().map(|(disk, write)| (disk, write.at)).collect();
    assert_eq!(pending, [(0, 4096), (1, 0)]);
    for subset in 0..4 {
        let fates: Vec<Fate> =
            (0..2).map(|n| if subset >> n & 1 == 1 { Fate::Whole } else { Fate::Lost }).collect();
        let images = cursor.crash(&fates);
        let byte = |disk: usize, at: u64| {
            let mut byte = [0];
            images[disk].read(at, &mut byte);
            byte[0]
        };
        assert_eq!((byte(0, 0), byte(1, 8192)), (1, 4), "what was flushed survives");
        assert_eq!((byte(0, 4096), byte(1, 0)), (2 * (subset & 1), 3 * (subset >> 1)));
    }
    // What the recording says when all survive is what the disks hold.
    let all = cursor.crash(&[Fate::Whole; 2]);
    assert!((0..2).all(|disk| all[disk].difference(&world.image(disk)).is_empty()));
    // Nothing was flushed before the first mark but the first write.
    let mut cursor = Cursor::new(&recording);
    while !matches!(cursor.advance().expect("the mark was made"), Event::Mark(42)) {}
    assert_eq!(cursor.pending_count(), 0);
}

#[test]
fn errors_meet_the_operation_they_were_meant_for() {
    let world = world(1, 1);
    world.add_rule(Rule::new(0, Action::Fail(DiskErrorKind::Io)).on(OpKind::Write).after(1).times(1));
    world.add_rule(Rule::new(0, Action::Fail(DiskErrorKind::NoSpace)).on(OpKind::Write).within(65536..69632));
    world.add_rule(Rule::new(0, Action::FailAfter(DiskErrorKind::Io)).on(OpKind::Flush).times(1));
    run(&world, |rt| async move {
        let disk = open(&rt, "sim0");
        assert_eq!(disk.write(0, page(&rt, 1)).await, Ok(()));
        assert_eq!(disk.write(0, page(&rt, 2)).await, Err(DiskErrorKind::Io.into()));
        assert_eq!(disk.write(65536, page(&rt, 2)).await, Err(DiskErrorKind::NoSpace.into()));
        assert_eq!(read(&rt, &disk, 0).await, Ok(1), "a failed write leaves no trace");
        assert_eq!(disk.flush().await, Err(DiskErrorKind::Io.into()));
        assert_eq!(disk.flush().await, Ok(()));
    });
    let fired: Vec<u64> = world.take_rules().iter().map(|rule| rule.fired).collect();
    assert_eq!(fired, [1, 1, 1]);
}

#[test]
fn lost_writes_and_lying_flushes_are_acknowledged() {
    let world = world(1, 1);
    world.add_rule(Rule::new(0, Action::Lose).on(OpKind::Write).within(0..4096));
    world.add_rule(Rule::new(0, Action::Lie).on(OpKind::Flush).times(1));
    run(&world, |rt| async move {
        let disk = open(&rt, "sim0");
        disk.write(0, page(&rt, 1)).await.expect("it says so");
        assert_eq!(read(&rt, &disk, 0).await, Ok(0));
        disk.write(4096, page(&rt, 1)).await.expect("no fault");
        disk.flush().await.expect("it says so");
        assert_eq!(read(&rt, &disk, 4096).await, Ok(1));
    });
    assert_eq!(world.faults_fired(), 2);
    let after = world.power_loss(|_, _| Fate::Lost);
    assert!(after[0].difference(&Image::new(SIZE)).is_empty(), "the flush did nothing");
}

#[test]
fn a_misdirected_write_has_a_victim_and_a_torn_one_a_cut() {
    let world = world(1, 1);
    world.add_rule(Rule::new(0, Action::Misdirect(Some(16 << 10))).on(OpKind::Write).within(0..4096));
    world.add_rule(Rule::new(0, Action::Tear(3)).on(OpKind::Write).within(4096..8192));
    world.add_rule(Rule::new(0, Action::Flip(9)).on(OpKind::Write).within(8192..12288));
    run(&world, |rt| async move {
        let disk = open(&rt, "sim0");
        for at in [0, 4096, 8192] {
            assert_eq!(disk.write(at, page(&rt, 1)).await, Ok(()));
        }
    });
    let mut bytes = vec![0; 32 << 10];
    world.image(0).read(0, &mut bytes);
    assert_eq!((bytes[0], bytes[16 << 10]), (0, 1));
    assert_eq!((bytes[4096 + 1535], bytes[4096 + 1536]), (1, 0));
    assert_eq!((bytes[8192], bytes[8193], bytes[8194]), (1, 3, 1));
}

#[test]
fn rot_unreadable_sectors_and_stale_contents_come_from_outside() {
    let world = world(1, 1);
    let before = world.image(0);
    let w = world.clone();
    run(&world, |rt| async move {
        let disk = open(&rt, "sim0");
        disk.write(0, page(&rt, 1)).await.expect("no fault");
        w.rot(0, 0, &[0x80]);
        assert_eq!(read(&rt, &disk, 0).await, Ok(0x81));
        w.set_unreadable(0, 512..1024);
        assert_eq!(read(&rt, &disk, 0).await, Err(DiskErrorKind::Unreadable.into()));
        disk.write(0, page(&rt, 2)).await.expect("no fault");
        assert_eq!(read(&rt, &disk, 0).await, Ok(2), "a write makes sectors readable again");
        w.set_image(0, before);
        assert_eq!(read(&rt, &disk, 0).await, Ok(0));
        w.set_gone(0, true);
        assert_eq!(read(&rt, &disk, 0).await, Err(DiskErrorKind::Gone.into()));
        assert_eq!(rt.open_disk("sim0", OpenMode::Read).err(), Some(OpenError::NotFound));
    });
}

#[test]
fn a_hung_disk_holds_its_operations_until_it_is_released() {
    let world = world(1, 1);
    for kind in [OpKind::Write, OpKind::Flush, OpKind::Read] {
        world.add_rule(Rule::new(0, Action::Hang).on(kind).times(1));
    }
    let (executor, _) = world.executor(1);
    let rt = executor.rt().clone();
    let disk = open(&rt, "sim0");
    let write = disk.write(0, page(&rt, 1));
    let stuck = world.run(&executor, LIMIT, write);
    assert!(!stuck.expect_err("it hangs").spinning);
    let waiting = (disk.flush(), disk.read(0, rt.buffer(PAGE)));
    world.release(0);
    let ended = world.run(&executor, LIMIT, async move {
        let (buffer, result) = waiting.1.await;
        (waiting.0.await, result, buffer[0])
    });
    assert!(matches!(ended, Ok((Ok(()), Ok(()), 0 | 1))), "the read may overtake the write: {ended:?}");
}

#[test]
fn wall_time_jumps_and_monotonic_time_does_not() {
    let world = world(1, 0);
    let w = world.clone();
    run(&world, |rt| async move {
        let (wall, now) = (rt.wall().0, rt.now());
        const TEN_YEARS_MS: i128 = 10 * 365 * 24 * 3600 * 1000;
        w.jump_wall(-TEN_YEARS_MS);
        assert_eq!(rt.wall().0, wall - TEN_YEARS_MS as u64);
        assert!(rt.now() >= now && rt.now() < Nanos(1_000_000));
    });
}

#[test]
fn what_waits_for_a_hung_disk_goes_on_when_it_is_released() {
    let limits = Limits { ordinary: 8, guaranteed: 1, reserved: 1 };
    let world = World::new(WorldConfig { limits, ..WorldConfig::new(1) });
    let disk = world.add_disk(Image::new(SIZE));
    world.add_rule(Rule::new(disk, Action::Hang));
    let (executor, _) = world.executor(1);
    let (rt, own) = (executor.rt().clone(), world.clone());
    let run = world.run(&executor, Duration::from_secs(1), async move {
        let opened = rt.open_disk("sim0", OpenMode::ReadWrite).expect("it is there");
        let reads: Vec<_> = (0..10).map(|_| opened.read(0, rt.buffer(PAGE))).collect();
        assert_eq!(own.held(disk), 2, "a quarter");
        own.take_rules();
        own.release(disk);
        for read in reads {
            assert_eq!(read.await.1, Ok(()));
        }
    });
    assert_eq!(run, Ok(()));
}
