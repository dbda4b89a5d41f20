//! Disks over the ring. The oracle is content: every word written says where it belongs.

mod common;

use common::{Scratch, fill, wrong_at};
use forebay_runtime::{Buf, DiskErrorKind, OpenError, OpenMode, Rt, uring};

const MIB: u64 = 1 << 20;

fn written(rt: &Rt, at: u64, len: usize, version: u64) -> Buf {
    let mut buffer = rt.buffer(len);
    fill(&mut buffer, at, version);
    buffer.freeze()
}

#[test]
fn what_was_written_is_read_back_at_many_sizes_and_offsets() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 80 * MIB);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        assert_eq!(disk.geometry().size, 80 * MIB);
        let sizes = [4096, 8192, 12288, 65536, 135_168, 1 << 20, 32 << 20];
        for (version, (size, at)) in
            sizes.iter().flat_map(|&size| [0, 4096, 7 * 4096, 5 * MIB].map(|at| (size, at))).enumerate()
        {
            disk.write(at, vec![written(&rt, at, size, version as u64)]).await.unwrap();
            let (bytes, result) = disk.read(at, rt.buffer(size)).await;
            assert_eq!(result, Ok(()));
            assert_eq!(wrong_at(&bytes, at, version as u64), None, "{size} bytes at {at}");
        }
        let (_, result) = disk.read(64 * MIB, rt.buffer(32 << 20)).await;
        assert_eq!(result.unwrap_err().kind, DiskErrorKind::Io, "a read past the end fails");
        let result = disk.write(80 * MIB, vec![written(&rt, 0, 4096, 0)]).await;
        assert_eq!(result.unwrap_err().kind, DiskErrorKind::Io, "a write past the end fails");
        disk.flush().await.unwrap();
    })
    .unwrap();
    assert_eq!(std::fs::metadata(scratch.path().join("disk")).unwrap().len(), 80 * MIB);
}

#[test]
fn a_disk_is_locked_against_other_opens_but_not_its_own_process() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", MIB);
    uring::block_on(|rt| async move {
        assert_eq!(rt.open_disk("/nonexistent", OpenMode::Read).err(), Some(OpenError::NotFound));
        assert_eq!(rt.open_disk("/dev/null", OpenMode::Read).err(), Some(OpenError::NotADisk));
        let first = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        let second = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        assert_eq!(first.geometry(), second.geometry());
    })
    .unwrap();
}
