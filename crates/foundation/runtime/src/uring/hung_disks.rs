//! Goal: a disk that hangs has no other disk's requests wait, however many it was asked for, and holds no more than it may.
//! Method: a pipe that nothing is written to takes the place of the disk, beside one on a real file; what is given up is
//! dropped by the kernel, or held by it as a real device that hangs holds it.

use super::*;
use crate::admission::Limits;
use crate::disk::{Disk, DiskError, DiskErrorKind, DiskOp, Geometry};
use crate::executor::yield_now;
use disk::UringDisk;
use file::DiskFile;
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::path::PathBuf;
use std::time::Duration;

const PAGE: usize = 4096;

/// A pipe: reads of it hang until something is written to its other end, or that is closed.
fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written to.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: they were just made, and are owned by nothing else.
    ends.map(|end| unsafe { File::from_raw_fd(end) }).into()
}

/// A disk of which the kernel drops nothing that it has been given.
struct Obstinate(UringDisk, Rc<ring::Ring>);

impl DiskBackend for Obstinate {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn submit(&self, op: DiskOp) {
        self.0.submit(op);
    }
    fn give_up(&self) {
        self.1.abandon(self.0.handle());
    }
}

/// A file that is gone when this is.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let name = format!("forebay-hung-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = PathBuf::from("/var/tmp").join(name);
        let pages = (0..=255).flat_map(|page: u8| [page; PAGE]).collect::<Vec<_>>();
        std::fs::write(&path, pages).expect("a file can be made");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A core with a disk that answers and the ring under it.
struct Rig {
    rt: Rt,
    ring: Rc<ring::Ring>,
    good: Disk,
}

impl Rig {
    fn hung(&self, pipe: &File, identity: u64, is_obstinate: bool) -> Disk {
        let file = pipe.try_clone().expect("descriptors are left");
        let disk = UringDisk::over(self.ring.clone(), DiskFile::of_pipe(file, identity));
        match is_obstinate {
            true => Disk::new(Rc::new(Obstinate(disk, self.ring.clone())), self.rt.watch()),
            false => Disk::new(Rc::new(disk), self.rt.watch()),
        }
    }

    /// Reads, writes and flushes of the disk that answers, more at a time than it may have.
    async fn others_are_served(&self) {
        let reads: Vec<_> =
            (0..600).map(|n| self.good.read(n % 256 * PAGE as u64, self.rt.buffer(PAGE))).collect();
        let page = self.rt.arena().copy(&[7; PAGE]).freeze();
        let writes = [
            self.good.write(7 * PAGE as u64, vec![page.clone()]),
            self.good.write_reserved(7 * PAGE as u64, vec![page]),
        ];
        let flushes: Vec<_> = (0..20).map(|_| self.good.flush()).collect();
        for done in writes.into_iter().chain(flushes) {
            assert_eq!(done.await, Ok(()));
        }
        for (n, read) in reads.into_iter().enumerate() {
            let (bytes, result) = read.await;
            assert_eq!(result, Ok(()));
            assert!(bytes.iter().all(|byte| *byte == n as u8), "read {n}");
        }
    }
}

fn on_a_core<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rig) -> F) {
    let scratch = Scratch::new();
    let backend = UringBackend::new().expect("a ring");
    let ring = backend.ring.clone();
    let executor = Executor::new(0, backend);
    let rt = executor.rt().clone();
    let good = rt.open_disk(scratch.0.to_str().expect("ASCII"), OpenMode::ReadWrite).expect("a file");
    executor.block_on(main(Rig { rt, ring, good }));
}

fn kind<T>(result: Result<T, DiskError>) -> Option<DiskErrorKind> {
    result.err().map(|error| error.kind)
}

/// Asks a disk that hangs for `asked` reads, sees others served, gives it up, and sees that again.
fn hang(asked: usize, is_obstinate: bool) {
    let (hangs, writer) = pipe();
    on_a_core(async move |rig| {
        let hung = rig.hung(&hangs, 1, is_obstinate);
        let waiting: Vec<_> = (0..asked).map(|_| hung.read(0, rig.rt.buffer(PAGE))).collect();
        rig.others_are_served().await;
        assert_eq!(hung.watch().in_flight(), asked);
        hung.give_up();
        for read in waiting {
            assert_eq!(kind(read.await.1), Some(DiskErrorKind::GivenUp));
        }
        assert_eq!(kind(hung.flush().await), Some(DiskErrorKind::GivenUp));
        rig.others_are_served().await;
        // What the kernel had is its own until it lets go of it.
        let held = if is_obstinate { asked.min(Limits::CORE.of_device()) } else { 0 };
        assert_eq!(hung.watch().in_flight(), held);
        drop(writer);
        while hung.watch().in_flight() > 0 {
            rig.rt.sleep(Duration::from_millis(1)).await;
        }
        rig.others_are_served().await;
    });
}

#[test]
fn a_disk_that_hangs_leaves_others_their_requests() {
    for asked in [1, 500, 512, 600, 5000] {
        hang(asked, false);
        hang(asked, true);
    }
}

/// Eight disks with six hundred requests each, given up one after the other.
#[test]
fn several_that_hang_leave_others_their_requests() {
    let (hangs, writer) = pipe();
    on_a_core(async move |rig| {
        let hung: Vec<Disk> = (1..=8).map(|identity| rig.hung(&hangs, identity, true)).collect();
        let ask = |disk: &Disk| (0..600).map(|_| disk.read(0, rig.rt.buffer(PAGE))).collect::<Vec<_>>();
        let waiting: Vec<_> = hung.iter().flat_map(ask).collect();
        for disk in &hung {
            rig.others_are_served().await;
            disk.give_up();
        }
        rig.others_are_served().await;
        for read in waiting {
            assert_eq!(kind(read.await.1), Some(DiskErrorKind::GivenUp));
        }
        drop(writer);
        while hung.iter().any(|disk| disk.watch().in_flight() > 0) {
            rig.rt.sleep(Duration::from_millis(1)).await;
        }
    });
}

/// A disk that is opened, hangs and is given up again and again: the kernel has no more of its requests than of one that hangs once,
/// and when it answers at last, it serves.
#[test]
fn a_disk_that_is_opened_again_and_again_holds_no_more() {
    let (hangs, mut writer) = pipe();
    on_a_core(async move |rig| {
        let mut held = Vec::new();
        for _ in 0..20 {
            let hung = rig.hung(&hangs, 1, true);
            let waiting: Vec<_> = (0..100).map(|_| hung.read(0, rig.rt.buffer(PAGE))).collect();
            yield_now().await;
            hung.give_up();
            for read in waiting {
                assert_eq!(kind(read.await.1), Some(DiskErrorKind::GivenUp));
            }
            held.push(hung);
        }
        let with_kernel = || held.iter().map(|disk| disk.watch().in_flight()).sum::<usize>();
        assert_eq!(with_kernel(), Limits::CORE.of_device());
        let again = rig.hung(&hangs, 1, true);
        let first = again.read(0, rig.rt.buffer(PAGE));
        rig.others_are_served().await;
        // It answers the old requests and the new one, in no order.
        for _ in 0..=Limits::CORE.of_device() {
            writer.write_all(&[0; PAGE]).expect("the pipe has a reader");
            rig.rt.sleep(Duration::from_millis(1)).await;
        }
        // An answer may be told of late, and one may have been for two.
        for _ in 0..1000 {
            if with_kernel() == 0 {
                break;
            }
            writer.write_all(&[0; PAGE]).expect("the pipe has a reader");
            rig.rt.sleep(Duration::from_millis(5)).await;
        }
        assert_eq!((first.await.1, with_kernel()), (Ok(()), 0));
    });
}
