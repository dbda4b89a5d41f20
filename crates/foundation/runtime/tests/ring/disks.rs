//! Disks over the ring. The oracle is content: every word written says where it belongs.

use crate::common::{Scratch, child, fill, role, wrong_at};
use forebay_runtime::{Buf, Disk, DiskError, DiskErrorKind, OpenError, OpenMode, Rt, Users, uring};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn pattern(rt: &Rt, at: u64, len: usize, version: u64) -> Buf {
    let mut buffer = rt.buffer(len);
    fill(&mut buffer, at, version);
    buffer.freeze()
}

async fn check(rt: &Rt, disk: &Disk, at: u64, len: usize, version: u64) {
    let (bytes, result) = disk.read(at, rt.buffer(len)).await;
    assert_eq!(result, Ok(()));
    assert_eq!(wrong_at(&bytes, at, version), None, "{len} bytes at {at}, version {version}");
}

#[test]
fn what_was_written_is_read_back_at_many_sizes_and_offsets() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 80 * MIB);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        let mut version = 0;
        for len in [4096, 8192, 12288, 65536, 135_168, 1 << 20, 32 << 20] {
            for at in [0, 4096, 7 * 4096, 5 * MIB] {
                version += 1;
                if version % 2 == 0 {
                    disk.write(at, vec![pattern(&rt, at, len, version)]).await.unwrap();
                } else {
                    disk.write_durable(at, vec![pattern(&rt, at, len, version)]).await.unwrap();
                }
                check(&rt, &disk, at, len, version).await;
            }
        }
        disk.flush().await.unwrap();
        disk.write(0, Vec::new()).await.unwrap();
        disk.write_durable(0, Vec::new()).await.unwrap();
    })
    .unwrap();
    // What direct I/O wrote is what everyone else reads.
    let mut bytes = vec![0; 32 << 20];
    std::fs::File::open(scratch.path().join("disk")).unwrap().read_exact_at(&mut bytes, 5 * MIB).unwrap();
    assert_eq!(wrong_at(&bytes, 5 * MIB, 28), None);
}

/// More regions of buffers than are kept free, several times: those that go leave their places with the kernel to others. The last
/// buffer outlives the ring and is used with the next, which does not know it.
#[test]
fn what_is_read_lands_in_buffers_that_come_and_go() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 4 * MIB);
    let path2 = path.clone();
    let last = uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        disk.write(0, vec![pattern(&rt, 0, 4 << 20, 1)]).await.unwrap();
        for _ in 0..3 {
            let reads: Vec<_> = (0..80u64)
                .map(|n| (n % 3 * 4096, 2 << 20))
                .chain([(4096, 8192)])
                .map(|(at, len)| (at, disk.read(at, rt.buffer(len))))
                .collect();
            let mut buffers = Vec::new();
            for (at, read) in reads {
                let (bytes, result) = read.await;
                assert_eq!((result, wrong_at(&bytes, at, 1)), (Ok(()), None));
                buffers.push(bytes);
            }
        }
        disk.read(0, rt.buffer(8192)).await.0
    })
    .unwrap();
    assert_eq!(wrong_at(&last, 0, 1), None);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path2, OpenMode::ReadWrite).unwrap();
        check(&rt, &disk, 8192, 8192, 1).await;
        let (bytes, result) = disk.read(4096, last).await;
        assert_eq!((result, wrong_at(&bytes, 4096, 1)), (Ok(()), None));
    })
    .unwrap();
}

/// Parts of every alignment: more than one system call takes, pieces that direct I/O refuses, neighbours.
#[test]
fn a_write_of_many_parts_is_one_write() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 64 * MIB);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        type Cut = fn(usize) -> usize;
        let cuts: [(&str, usize, Cut); 4] = [
            ("3000 pages apart in memory", 3000 * 4096, |_| 4096),
            ("odd pieces", 5 * 4096, |part| 1 + part * 37 % 500),
            ("a header's length off", 1 << 20, |part| if part == 0 { 28 } else { 1 << 16 }),
            ("pieces beyond one buffer", 40 << 20, |part| if part == 0 { 512 } else { 1 << 20 }),
        ];
        for (version, (name, len, cut)) in cuts.into_iter().enumerate() {
            let (mut parts, mut done) = (Vec::new(), 0);
            while done < len {
                let count = cut(parts.len()).min(len - done);
                let mut buffer = rt.buffer(count + 8);
                fill(&mut buffer[8..], 0, 0);
                let mut whole = vec![0; (done % 8) + count];
                fill(&mut whole, (done - done % 8) as u64, version as u64);
                buffer[8..].copy_from_slice(&whole[done % 8..]);
                // An odd place in memory, except for whole pages.
                let page = count == 4096;
                if page {
                    buffer.copy_within(8.., 0);
                }
                parts.push(buffer.freeze().slice(if page { 0 } else { 8 }, count));
                done += count;
            }
            disk.write(4096, parts).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            for at in (0..len).step_by(1 << 20) {
                let count = (len - at).min(1 << 20);
                let (bytes, result) = disk.read(4096 + at as u64, rt.buffer(count)).await;
                assert_eq!((result, wrong_at(&bytes, at as u64, version as u64)), (Ok(()), None), "{name}");
            }
        }
        // Slices of one buffer, in order: neighbours in memory.
        let whole = pattern(&rt, 0, 1 << 20, 9);
        let parts = (0..256).map(|page| whole.slice(page * 4096, 4096)).collect();
        disk.write(0, parts).await.unwrap();
        check(&rt, &disk, 0, 1 << 20, 9).await;
    })
    .unwrap();
}

#[test]
fn requests_beyond_every_queue_are_all_carried_out() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 16 * MIB);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        let writes: Vec<_> =
            (0..4096).map(|page| disk.write(page * 4096, vec![pattern(&rt, page * 4096, 4096, 1)])).collect();
        for write in writes {
            write.await.unwrap();
        }
        let reads: Vec<_> = (0..4096).map(|page| disk.read(page * 4096, rt.buffer(4096))).collect();
        for (page, read) in reads.into_iter().enumerate() {
            let (bytes, result) = read.await;
            assert_eq!((result, wrong_at(&bytes, page as u64 * 4096, 1)), (Ok(()), None));
        }
    })
    .unwrap();
}

/// Whoever loses interest in a request must not get its memory back before the device is done with it. Reads are
/// abandoned in flight while their buffers' size is in constant demand: a buffer recycled too early would be
/// overwritten by the device under its new owner.
#[test]
fn abandoned_requests_keep_their_buffers() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 8 * MIB);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        disk.write(0, vec![pattern(&rt, 0, 8 << 20, 1)]).await.unwrap();
        for round in 0..400u64 {
            for page in 0..16 {
                let at = (round * 16 + page) % 1024 * 8192;
                drop(disk.read(at, rt.buffer(8192)));
            }
            // Lets the ring submit them, and not much more.
            rt.sleep(std::time::Duration::from_micros(1)).await;
            let mut mine: Vec<_> = (0..16).map(|_| rt.buffer(8192)).collect();
            mine.iter_mut().for_each(|buffer| buffer.fill(0xA5));
            // The device works while this waits for a request of its own.
            check(&rt, &disk, 0, 4096, 1).await;
            assert!(mine.iter().all(|buffer| buffer.iter().all(|&byte| byte == 0xA5)), "round {round}");
        }
        // Abandoned writes are carried out with the contents they had.
        for page in 0..256 {
            drop(disk.write(page * 4096, vec![pattern(&rt, page * 4096, 4096, 2)]));
            rt.buffer(4096).fill(0xA5);
        }
        for page in 0..256 {
            // A write and a read in flight together may pass each other; a second write waits for the first.
            rt.sleep(std::time::Duration::from_millis(1)).await;
            let (bytes, _) = disk.read(page * 4096, rt.buffer(4096)).await;
            let version = if wrong_at(&bytes, page * 4096, 2).is_none() { 2 } else { 1 };
            assert_eq!(wrong_at(&bytes, page * 4096, version), None, "old or new, never anything else");
        }
        while rt.arena().bytes_out() > 0 {
            rt.sleep(std::time::Duration::from_millis(1)).await;
        }
        check(&rt, &disk, 0, 256 * 4096, 2).await;
    })
    .unwrap();
}

#[test]
fn what_lies_outside_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 4 * MIB);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        assert_eq!(disk.geometry().size, 4 * MIB);
        for at in [4 * MIB, 4 * MIB - 4096, u64::MAX - 4095] {
            let (_, read) = disk.read(at, rt.buffer(8192)).await;
            let write = disk.write(at, vec![pattern(&rt, 0, 8192, 0)]).await;
            let discard = disk.discard(at, 8192).await;
            for result in [read, write, discard] {
                assert_eq!(result.unwrap_err().kind, DiskErrorKind::Io, "at {at}");
            }
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 * MIB, "the file has not grown");
    })
    .unwrap();
}

async fn check_zero(rt: &Rt, disk: &Disk, at: u64) {
    let mut buffer = rt.buffer(4096);
    buffer.fill(1);
    let (bytes, result) = disk.read(at, buffer).await;
    assert_eq!(result, Ok(()));
    assert!(bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn discarded_space_goes_back_to_the_file_system() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 4 * MIB);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        disk.write(0, vec![pattern(&rt, 0, 4 << 20, 1)]).await.unwrap();
        disk.flush().await.unwrap();
        let blocks = std::fs::metadata(&path).unwrap().blocks();
        disk.discard(MIB, 2 * MIB).await.unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 <= blocks * 512 - 2 * MIB);
        check(&rt, &disk, 0, 1 << 20, 1).await;
        check(&rt, &disk, 3 * MIB, 1 << 20, 1).await;
        check_zero(&rt, &disk, MIB).await;
    })
    .unwrap();
}

#[test]
fn what_is_not_a_disk_is_refused_and_one_disk_has_one_identity() {
    let scratch = Scratch::new();
    let (path, other) = (scratch.file("disk", MIB), scratch.file("other", MIB));
    let link = scratch.path().join("link");
    std::fs::hard_link(&path, &link).unwrap();
    let directory = scratch.path().to_str().unwrap().to_owned();
    uring::block_on(|rt| async move {
        let refused = |path: &str| rt.open_disk(path, OpenMode::ReadWrite).err();
        assert_eq!(refused("/nonexistent"), Some(OpenError::NotFound));
        assert_eq!(refused("/dev/null"), Some(OpenError::NotADisk));
        assert_eq!(refused(&directory), Some(OpenError::NotADisk));
        let identity = |path: &str| rt.open_disk(path, OpenMode::Read).unwrap().geometry().identity;
        assert_eq!(identity(&path), identity(link.to_str().unwrap()));
        assert_ne!(identity(&path), identity(&other));
    })
    .unwrap();
}

/// In another process: opens the disk for writing, says how it went, and keeps it until it is killed.
fn hold_a_disk(path: String) {
    uring::block_on(|rt| async move {
        let disk = match rt.open_disk(&path, OpenMode::ReadWrite) {
            Err(error) => return println!("refused: {error}"),
            Ok(disk) => disk,
        };
        println!("holding");
        // Keeps the disk busy, so that being killed finds requests in flight; ends if nobody kills it.
        for _ in 0..2000 {
            let writes: Vec<_> =
                (0..16).map(|page| disk.write(page * 4096, vec![pattern(&rt, 0, 4096, 1)])).collect();
            for write in writes {
                write.await.unwrap();
            }
        }
    })
    .unwrap();
}

#[test]
fn a_disk_is_locked_against_other_processes_until_its_last_user_closes_it() {
    if let Some(path) = role() {
        return hold_a_disk(path);
    }
    let scratch = Scratch::new();
    let path = scratch.file("disk", MIB);
    let holder = |path: &str| {
        child("disks::a_disk_is_locked_against_other_processes_until_its_last_user_closes_it", path)
    };
    let (again, scratch_path) = (path.clone(), path.clone());
    uring::block_on(|rt| async move {
        let path = scratch_path;
        let first = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        let second = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        assert_eq!(first.geometry(), second.geometry());
        drop(first);
        let output = holder(&path).output().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout);
        let reason = format!("refused: in use: locked by process {}", std::process::id());
        assert!(answer.contains(&reason), "one user is left: {answer}");
        second.write(0, vec![pattern(&rt, 0, 4096, 7)]).await.unwrap();
        drop(second);
        let mut child = holder(&path).spawn().unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let mut answers = lines.map(Result::unwrap).filter(|line| !line.starts_with("running"));
        assert!(answers.any(|line| line.contains("holding")), "nobody holds it");
        assert!(matches!(rt.open_disk(&path, OpenMode::ReadWrite), Err(OpenError::InUse(_))));
        assert!(rt.open_disk(&path, OpenMode::Read).is_ok(), "reading needs no lock");
        child.kill().unwrap();
        child.wait().unwrap();
    })
    .unwrap();
    // A killed process leaves nothing locked, whatever it had in flight.
    uring::block_on(|rt| async move {
        rt.open_disk(&again, OpenMode::ReadWrite).unwrap();
    })
    .unwrap();
}

/// As a worker of the kernel does that was put aside right after it had posted its answer.
#[test]
fn a_disk_that_this_process_has_not_quite_let_go_of_is_waited_for() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", MIB);
    let late = File::open(&path).unwrap();
    late.lock().unwrap();
    let worker = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(late);
    });
    uring::block_on(|rt| async move { rt.open_disk(&path, OpenMode::ReadWrite).map(drop).unwrap() }).unwrap();
    worker.join().unwrap();
}

/// On tmpfs direct I/O is refused (before Linux 6.6) or does not bypass anything: the disk works all the same.
#[test]
fn a_file_in_memory_works_too() {
    if !std::path::Path::new("/dev/shm").is_dir() {
        return;
    }
    let scratch = Scratch::in_directory("/dev/shm");
    let path = scratch.file("disk", MIB);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        disk.write_durable(8192, vec![pattern(&rt, 8192, 65536, 3)]).await.unwrap();
        check(&rt, &disk, 8192, 65536, 3).await;
        disk.flush().await.unwrap();
    })
    .unwrap();
}

/// A process that has a disk open is found by what the disk is, not by the name that it was given.
#[test]
fn the_users_of_a_disk_are_found() {
    let scratch = Scratch::new();
    let (path, link) = (scratch.file("disk", 64 * MIB), scratch.path().join("link").display().to_string());
    std::fs::hard_link(&path, &link).unwrap();
    let file = File::open(&path).unwrap();
    let users = |path: String| {
        uring::block_on(|rt| async move { rt.find_users(&path).await.expect("it can be told") }).unwrap()
    };
    assert_eq!(users(link.clone()), Users::default(), "this process does not count");
    let mut child = std::process::Command::new("sleep").arg("600").stdin(file).spawn().unwrap();
    let other = users(link.clone()).other.unwrap_or_default();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(other, format!("open in process {} (sleep)", child.id()));
    assert_eq!(users(link), Users::default());
    assert!(uring::block_on(|rt| async move { rt.find_users("/dev/null").await }).unwrap().is_err());
}

/// Loop devices need root; without them the test has nothing to ask.
#[test]
fn devices_over_and_under_a_disk_are_found() {
    let run = |words: &[&str]| {
        let output = std::process::Command::new(words[0]).args(&words[1..]).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let scratch = Scratch::new();
    let path = scratch.file("disk", 64 * MIB);
    let Some(device) = run(&["losetup", "--find", "--show", &path]) else {
        return eprintln!("SKIPPED: no loop device can be attached here (root is needed)");
    };
    let beside = run(&["losetup", "--find", "--show", &path]).expect("a second one can be attached");
    let names = (path.clone(), device.clone(), beside.clone());
    let found = uring::block_on(|rt| async move {
        let (path, device, beside) = names;
        let identity = |path: &str| rt.open_disk(path, OpenMode::Read).unwrap().geometry().identity;
        let identities = [&path, &device, &beside].map(|path| identity(path));
        let unused = rt.find_users(&device).await;
        let held = rt.open_disk(&beside, OpenMode::ReadWrite).unwrap();
        let used = rt.find_users(&device).await;
        drop(held);
        (identities, rt.find_users(&path).await, unused, used, rt.find_contents(&device).await)
    });
    let detached = [&device, &beside].map(|device| run(&["losetup", "-d", device]));
    let ([file, first, second], of_file, unused, used, contents) = found.unwrap();
    assert!(detached.iter().all(Option::is_some));
    let of_file = of_file.expect("it can be told");
    let mut over: Vec<u64> = of_file.overlaps.iter().map(|(identity, _)| *identity).collect();
    over.sort_unstable();
    let mut expected = [first, second];
    expected.sort_unstable();
    assert_eq!(over, expected);
    assert!(of_file.other.expect("it is attached").contains("losetup -d"));
    let unused = unused.expect("it can be told");
    assert_eq!((unused.overlaps, unused.other), (vec![(file, path), (second, beside.clone())], None));
    assert_eq!(
        used.expect("it can be told").other,
        Some(format!("{beside} holds the same bytes and is in use"))
    );
    assert_eq!(contents, Ok(None));
}

/// A file or device that becomes shorter fails what lies behind its end, and from then on everything.
#[test]
fn a_disk_that_becomes_shorter_fails() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 4 * MIB);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        disk.write(0, vec![pattern(&rt, 0, 4096, 1)]).await.unwrap();
        File::options().write(true).open(&path).unwrap().set_len(MIB).unwrap();
        check(&rt, &disk, 0, 4096, 1).await;
        let kind = |result: Result<(), DiskError>| result.err().map(|error| error.kind);
        let shrunk = Some(DiskErrorKind::Shrunk);
        assert_eq!(kind(disk.read(2 * MIB, rt.buffer(4096)).await.1), shrunk);
        assert_eq!(kind(disk.read(0, rt.buffer(4096)).await.1), shrunk);
        assert_eq!(kind(disk.write(2 * MIB, vec![pattern(&rt, 0, 4096, 1)]).await), shrunk);
        assert_eq!(kind(disk.flush().await), shrunk);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB, "a write would hide what is lost");
    })
    .unwrap();
}
