//! Opening disks: what they are, how large, and that nobody else writes to them.
//!
//! Every executor opens every disk for itself, but a disk opened for writing has one descriptor per process,
//! listed here by identity and closed with its last user: the descriptor carries the lock (`flock` on a file,
//! `O_EXCL` on a block device), and both kinds of lock belong to a descriptor. Closing happens under the
//! list's lock, so that opening again at the same moment finds the disk either open or free.
//!
//! The kernel lets go of a descriptor, and with it the lock, when the last worker that served it has: of a killed process
//! when the device has answered its requests, of this one a moment after the answer to the last. A disk whose holder is
//! dead, or is this process, is therefore waited for, one that another living process holds is not. Who waits lets its
//! ring go on: the kernel leaves the end of a request to the thread that owns the ring where a worker was late with it.

use super::usage::Process;
use crate::disk::{Geometry, OpenError, OpenMode};
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The unit in which buffered files are read and written, and the least alignment that callers keep.
const PAGE: u32 = 4096;

/// What an executor needs to know of a disk it has opened.
pub(super) struct DiskFile {
    fd: RawFd,
    /// The descriptor's owner, unless that is the process-wide list.
    own: Option<File>,
    pub(super) geometry: Geometry,
    /// Whether requests bypass the page cache.
    pub(super) direct: bool,
    /// Alignment in memory that direct requests need, in bytes.
    pub(super) memory_alignment: u32,
    pub(super) is_device: bool,
    /// Whether the file is memory (tmpfs): nothing waits for it.
    pub(super) in_memory: bool,
    /// Whether the file system may ask elsewhere before it answers, in the caller, whatever the ring was told (FUSE, network).
    pub(super) remote: bool,
    /// Whether it was found to end before it should. What it lost is nothing that could be read, and a write would only hide that.
    pub(super) shrunk: Cell<bool>,
}

struct Shared {
    file: File,
    direct: bool,
    users: usize,
}

/// Disks that this process has open for writing, by identity.
static OPEN: Mutex<Option<HashMap<u64, Shared>>> = Mutex::new(None);

impl DiskFile {
    /// Opens the disk at `path`; `go_on` is called again and again while it is waited for.
    pub(super) fn open(path: &str, mode: OpenMode, go_on: impl Fn()) -> Result<DiskFile, OpenError> {
        // Looked at before it is opened: opening a pipe would wait for its writer, opening a tape would wind it.
        let kind = fs::metadata(path).map_err(open_error)?;
        let is_device = kind.file_type().is_block_device();
        if !is_device && !kind.file_type().is_file() {
            return Err(OpenError::NotADisk);
        }
        let identity = identity(&kind);
        let (fd, own, direct) = match mode {
            OpenMode::Read => {
                let (file, direct) = open_direct(path, OpenOptions::new().read(true), 0)?;
                (file.as_raw_fd(), Some(file), direct)
            }
            OpenMode::ReadWrite => {
                let (fd, direct) = share_waiting(path, &kind, go_on)?;
                (fd, None, direct)
            }
        };
        // From here on an error drops `disk`, which closes or gives back the descriptor.
        let mut disk = DiskFile {
            fd,
            own,
            geometry: Geometry {
                size: 0,
                sector_logical: PAGE,
                sector_physical: PAGE,
                rotational: false,
                identity,
            },
            direct,
            memory_alignment: PAGE,
            is_device,
            in_memory: !is_device && file_system(fd) == libc::TMPFS_MAGIC,
            remote: !is_device && REMOTE.contains(&file_system(fd)),
            shrunk: Cell::new(false),
        };
        let now = stat(fd).map_err(other)?;
        if identity_of(now.st_mode, now.st_rdev, now.st_dev, now.st_ino) != identity {
            return Err(OpenError::Io(format!("{path} became another file while it was opened; try again")));
        }
        disk.probe(&now).map_err(other)?;
        Ok(disk)
    }

    /// A pipe in place of a disk: what is read of it waits until something is written to it.
    #[cfg(test)]
    pub(super) fn of_pipe(pipe: File, identity: u64) -> DiskFile {
        let geometry = Geometry {
            size: 1 << 30,
            sector_logical: PAGE,
            sector_physical: PAGE,
            rotational: false,
            identity,
        };
        DiskFile {
            fd: pipe.as_raw_fd(),
            own: Some(pipe),
            geometry,
            direct: false,
            memory_alignment: 1,
            is_device: false,
            in_memory: false,
            remote: false,
            shrunk: Cell::new(false),
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    fn probe(&mut self, stat: &libc::stat) -> io::Result<()> {
        let device = if self.is_device { stat.st_rdev } else { stat.st_dev };
        let queue = queue_directory(device);
        let limit = |name: &str| {
            let text = fs::read_to_string(format!("{}/{name}", queue.as_deref()?)).ok()?;
            text.trim().parse::<u32>().ok()
        };
        self.geometry.rotational = limit("rotational") == Some(1);
        if self.is_device {
            self.geometry.size = ioctl::<u64>(self.fd, BLKGETSIZE64)?;
            self.geometry.sector_logical = ioctl::<libc::c_int>(self.fd, BLKSSZGET)? as u32;
            self.geometry.sector_physical = ioctl::<libc::c_uint>(self.fd, BLKPBSZGET)?;
            self.memory_alignment = limit("dma_alignment").map_or(PAGE, |mask| mask + 1);
        } else {
            self.geometry.size = stat.st_size as u64;
            if self.direct {
                let (memory, offset) = direct_alignment(self.fd).unwrap_or((PAGE, PAGE));
                self.geometry.sector_logical = offset;
                self.geometry.sector_physical = limit("physical_block_size").unwrap_or(PAGE);
                self.memory_alignment = memory;
            }
        }
        // Devices that claim nonsense get what every device can do; callers align to 4096 bytes anyway.
        let sane = |sector: u32| if sector.is_power_of_two() && sector >= 512 { sector } else { PAGE };
        self.geometry.sector_logical = sane(self.geometry.sector_logical).min(PAGE);
        self.geometry.sector_physical = sane(self.geometry.sector_physical).max(self.geometry.sector_logical);
        if !self.memory_alignment.is_power_of_two() {
            self.memory_alignment = PAGE;
        }
        Ok(())
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        if self.own.is_some() {
            return;
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let list = open.as_mut().expect("a shared disk is on the list");
        let shared = list.get_mut(&self.geometry.identity).expect("a shared disk is on the list");
        shared.users -= 1;
        if shared.users == 0 {
            list.remove(&self.geometry.identity);
        }
    }
}

/// Like [`share`]; waits a while for what a dead process, or this one, has left behind. This blocks the executor, as opening a
/// disk does anyway.
fn share_waiting(path: &str, kind: &fs::Metadata, go_on: impl Fn()) -> Result<(RawFd, bool), OpenError> {
    let is_device = kind.file_type().is_block_device();
    // Who holds a device cannot be found out, so it may be alive.
    let patience = if is_device { Duration::from_secs(1) } else { Duration::from_secs(20) };
    let start = Instant::now();
    loop {
        let refused = match share(path, identity(kind), is_device) {
            Err(OpenError::InUse(refused)) => refused,
            result => return result,
        };
        if let Some(holder) = living_holder(kind) {
            return Err(OpenError::InUse(format!("locked by {holder}")));
        }
        if start.elapsed() > patience {
            return Err(OpenError::InUse(refused));
        }
        std::thread::sleep(Duration::from_millis(5));
        go_on();
    }
}

/// Who has locked the file, if that is another process that still runs (and is to be seen from here).
fn living_holder(kind: &fs::Metadata) -> Option<String> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = lock_holder(&locks, kind.dev(), kind.ino()).filter(|pid| *pid != std::process::id())?;
    Process::of(pid).map(|process| format!("process {pid} ({})", process.name))
}

/// The process that /proc/locks lists for a whole-file lock: "1: FLOCK ADVISORY WRITE 4711 fe:00:131 0 EOF", with
/// the file system's device number in hexadecimal.
fn lock_holder(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{ino}", libc::major(dev), libc::minor(dev));
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let matches = words.next() == Some("FLOCK");
        let pid = words.nth(2)?.parse().ok()?;
        (matches && words.next()? == file).then_some(pid)
    })
}

/// The process's descriptor of the disk `identity`, opened and locked on first use.
fn share(path: &str, identity: u64, is_device: bool) -> Result<(RawFd, bool), OpenError> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let list = open.get_or_insert_default();
    if let Some(shared) = list.get_mut(&identity) {
        shared.users += 1;
        return Ok((shared.file.as_raw_fd(), shared.direct));
    }
    let exclusive = if is_device { libc::O_EXCL } else { 0 };
    let (file, direct) = open_direct(path, OpenOptions::new().read(true).write(true), exclusive)?;
    // SAFETY: no pointers.
    if !is_device && unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EWOULDBLOCK) => OpenError::InUse("locked by another process".into()),
            _ => OpenError::Io(format!("cannot lock {path}: {error}")),
        });
    }
    let fd = file.as_raw_fd();
    list.insert(identity, Shared { file, direct, users: 1 });
    Ok((fd, direct))
}

/// Opens past the page cache, or through it where the file system knows no other way (some tmpfs, overlays).
fn open_direct(path: &str, options: &mut OpenOptions, flags: libc::c_int) -> Result<(File, bool), OpenError> {
    match options.custom_flags(flags | libc::O_DIRECT).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let file = options.custom_flags(flags).open(path).map_err(open_error)?;
            Ok((file, false))
        }
        Err(error) => Err(open_error(error)),
    }
}

fn open_error(error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENXIO | libc::ENODEV) => OpenError::NotFound,
        Some(libc::EBUSY) => {
            OpenError::InUse("mounted, part of a volume, or opened exclusively by another process".into())
        }
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => OpenError::NotPermitted,
        _ => other(error),
    }
}

fn other(error: io::Error) -> OpenError {
    OpenError::Io(error.to_string())
}

fn identity(metadata: &fs::Metadata) -> u64 {
    identity_of(metadata.mode(), metadata.rdev(), metadata.dev(), metadata.ino())
}

/// A device node is what its device number says; a file is its inode on its file system. 128 bits and a kind are
/// folded into 64: two of a thousand disks collide with a probability of 1 in 10^13.
pub(super) fn identity_of(mode: u32, rdev: u64, dev: u64, ino: u64) -> u64 {
    let is_device = mode & libc::S_IFMT == libc::S_IFBLK;
    let (kind, major, minor) = if is_device { (1u8, rdev, 0) } else { (2, dev, ino) };
    let mut bytes = [0; 17];
    bytes[0] = kind;
    bytes[1..9].copy_from_slice(&major.to_le_bytes());
    bytes[9..].copy_from_slice(&minor.to_le_bytes());
    forebay_base::Checksum::of(&bytes).0 as u64
}

/// The queue limits of a block device; those of the whole disk when it is a partition.
fn queue_directory(device: u64) -> Option<String> {
    let device = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    let candidates = [format!("{device}/queue"), format!("{device}/../queue")];
    candidates.into_iter().find(|path| Path::new(path).is_dir())
}

// From <linux/fs.h>: _IOR(0x12, 114, size_t), _IO(0x12, 104), _IO(0x12, 123).
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;
const BLKSSZGET: libc::Ioctl = 0x1268;
const BLKPBSZGET: libc::Ioctl = 0x127b;

/// An ioctl that fills in an integer `T`.
fn ioctl<T: Default>(fd: RawFd, request: libc::Ioctl) -> io::Result<T> {
    let mut value = T::default();
    ioctl_into(fd, request, &mut value)?;
    Ok(value)
}

/// An ioctl that fills in `value`.
pub(super) fn ioctl_into<T>(fd: RawFd, request: libc::Ioctl, value: &mut T) -> io::Result<()> {
    // SAFETY: each request that is called here and in `usage` writes one value of the type with which it is called.
    match unsafe { libc::ioctl(fd, request, &raw mut *value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn stat(fd: RawFd) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: the call fills the structure when it returns 0.
    unsafe {
        match libc::fstat(fd, stat.as_mut_ptr()) {
            0 => Ok(stat.assume_init()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// FUSE, NFS, SMB2, Ceph, 9P: see statfs(2) and <linux/magic.h>.
const REMOTE: [libc::__fsword_t; 5] =
    [libc::FUSE_SUPER_MAGIC, libc::NFS_SUPER_MAGIC, 0xfe53_4d42, 0x00c3_6400, 0x0102_1997];

/// The kind of the file system that a file is on.
fn file_system(fd: RawFd) -> libc::__fsword_t {
    let mut statfs = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the structure is filled in or left zeroed.
    unsafe {
        libc::fstatfs(fd, statfs.as_mut_ptr());
        statfs.assume_init().f_type
    }
}

/// Alignment in memory and in the file that direct I/O needs, where the kernel (6.1) and the file system tell.
fn direct_alignment(fd: RawFd) -> Option<(u32, u32)> {
    let mut statx = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty string, as AT_EMPTY_PATH wants; the structure is filled in or left zeroed.
    let statx = unsafe {
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        if libc::statx(fd, c"".as_ptr(), flags, libc::STATX_DIOALIGN, statx.as_mut_ptr()) != 0 {
            return None;
        }
        statx.assume_init()
    };
    let known = statx.stx_mask & libc::STATX_DIOALIGN != 0 && statx.stx_dio_offset_align > 0;
    known.then_some((statx.stx_dio_mem_align, statx.stx_dio_offset_align))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_by_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:131 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 fe:00:132 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE x\n3:\n\n\
                     4: FLOCK  ADVISORY  WRITE 13 103:02:99 0 EOF\n";
        assert_eq!(lock_holder(locks, libc::makedev(0xfe, 0), 131), Some(4711));
        assert_eq!(lock_holder(locks, libc::makedev(0xfe, 0), 132), None, "12 waits for it");
        assert_eq!(lock_holder(locks, libc::makedev(0x103, 2), 99), Some(13));
    }
}
