//! Who uses a disk, under whatever name: found before the disk is overwritten.
//!
//! A lock does not tell everything. A file can be the image of a running guest or lie below a loop device; a device can be open without
//! being claimed; and the bytes of one disk can be reached through others: a partition and its whole disk, a loop device and its file, a
//! mapped device and what it is made of. So storage is compared by what the kernel calls it, a device number or an inode, never by path:
//!
//! | Related storage | How it is found | What counts |
//! |---|---|---|
//! | the disk itself | its number | mounts, swap, devices made of it, locks, processes that have it open |
//! | above it: its partitions, devices made of it, loop devices over it | sysfs, `LOOP_GET_STATUS64` | the same, and that it is there at all |
//! | below it: its whole disk, its file | sysfs, `LOOP_GET_STATUS64` | locks, processes that have it open to write |
//! | what it is made of | sysfs | nothing: it is claimed for this, and other volumes lie there |
//! | beside it: other loop devices over what is below | `LOOP_GET_STATUS64` | that it is claimed or open |
//!
//! Disks that this process has open are not judged here but reported ([`Users::overlaps`]): the engine knows which pool has them.
//!
//! Other partitions of the same disk and other volumes on the same devices have bytes of their own, and do not count. What cannot
//! be seen from here does not either: processes of another user when this one has no rights over them, and other machines.

use super::contents::TOOL;
use super::file::{identity_of, ioctl_into};
use crate::disk::Users;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Programs such as udev read a device right after it was closed. Such readers are waited for this long before they count as users.
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Devices on devices: more than anyone stacks, and an end if the kernel told of a circle.
const DEPTH_MAX: usize = 16;

/// Storage as the kernel names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Storage {
    /// By the number of its node.
    Device(u64),
    /// By its file system's number and its inode.
    File(u64, u64),
}

impl Storage {
    fn of(metadata: &fs::Metadata) -> Option<Storage> {
        match metadata.file_type() {
            kind if kind.is_block_device() => Some(Storage::Device(metadata.rdev())),
            kind if kind.is_file() => Some(Storage::File(metadata.dev(), metadata.ino())),
            _ => None,
        }
    }

    /// As in [`crate::Geometry::identity`].
    fn identity(self) -> u64 {
        match self {
            Storage::Device(number) => identity_of(libc::S_IFBLK, number, 0, 0),
            Storage::File(dev, ino) => identity_of(libc::S_IFREG, 0, dev, ino),
        }
    }
}

/// Storage that holds some of the same bytes, and how a person would name it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Related {
    storage: Storage,
    name: String,
}

/// All storage that has to do with one disk.
#[derive(Default, Debug)]
struct Relations {
    above: Vec<Related>,
    below: Vec<Related>,
    parts: Vec<Related>,
    beside: Vec<Related>,
}

/// Who uses the disk at `path`, and which other disks hold some of its bytes.
pub(super) fn find(path: &str) -> Result<Users, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    let own = Storage::of(&metadata).ok_or("it is neither a regular file nor a block device")?;
    let relations = Relations::of(own);
    let overlaps =
        relations.all().map(|related| (related.storage.identity(), related.name.clone())).collect();
    let begun = Instant::now();
    let user = loop {
        let user = relations.claimed(path, own).or_else(|| relations.open(own));
        match user {
            Some(User::Reader(_)) if begun.elapsed() < PATIENCE => std::thread::sleep(RETRY_DELAY),
            user => break user.map(User::words),
        }
    };
    Ok(Users { other: user, overlaps })
}

/// What uses a disk.
enum User {
    /// A process that only reads a device, and may be done soon.
    Reader(String),
    Other(String),
}

impl User {
    fn words(self) -> String {
        match self {
            User::Reader(words) | User::Other(words) => words,
        }
    }
}

impl Relations {
    fn of(own: Storage) -> Relations {
        let loops = Loop::all();
        let mut relations = Relations::default();
        relations.add_above(own, &loops, 0);
        relations.add_below(own, &loops, 0);
        let known: BTreeSet<Storage> = relations.all().map(|related| related.storage).chain([own]).collect();
        let is_below = |storage| relations.below.iter().any(|related| related.storage == storage);
        let is_beside = |one: &&Loop| is_below(one.backing) && !known.contains(&one.storage());
        relations.beside = loops.iter().filter(is_beside).map(Loop::related).collect();
        relations
    }

    fn all(&self) -> impl Iterator<Item = &Related> {
        self.above.iter().chain(&self.below).chain(&self.parts).chain(&self.beside)
    }

    fn add_above(&mut self, storage: Storage, loops: &[Loop], depth: usize) {
        let over = loops.iter().filter(|one| one.backing == storage).map(Loop::related);
        let made = match storage {
            Storage::Device(number) => [partitions(number), listed(number, "holders")].concat(),
            Storage::File(..) => Vec::new(),
        };
        for related in over.chain(made) {
            if depth < DEPTH_MAX && !self.above.contains(&related) {
                self.above.push(related.clone());
                self.add_above(related.storage, loops, depth + 1);
            }
        }
    }

    fn add_below(&mut self, storage: Storage, loops: &[Loop], depth: usize) {
        let Storage::Device(number) = storage else { return };
        let file = loops
            .iter()
            .find(|one| one.number == number)
            .map(|one| Related { storage: one.backing, name: one.path.clone() });
        let below = file.into_iter().chain(whole_disk(number)).map(|related| (related, false));
        let parts = listed(number, "slaves").into_iter().map(|related| (related, true));
        for (related, is_part) in below.chain(parts) {
            let list = if is_part { &mut self.parts } else { &mut self.below };
            if depth < DEPTH_MAX && !list.contains(&related) {
                list.push(related.clone());
                self.add_below(related.storage, loops, depth + 1);
            }
        }
    }

    /// What the kernel itself has the disk for, or who has locked it.
    fn claimed(&self, path: &str, own: Storage) -> Option<User> {
        let own = Related { storage: own, name: path.to_owned() };
        for related in std::iter::once(&own).chain(&self.above) {
            let through = if *related == own { String::new() } else { format!("through {}, ", related.name) };
            if let Some(how) = mounted(related.storage) {
                return Some(User::Other(format!("{through}{how}")));
            }
        }
        let made = self.above.first().filter(|related| !is_partition(related.storage));
        if let Some(related) = made {
            let name = &related.name;
            return Some(User::Other(match own.storage {
                Storage::File(..) => format!("{name} is attached to it; detach that with: losetup -d {name}"),
                Storage::Device(_) => format!("{name} is made of it"),
            }));
        }
        if is_locked(&own, false) {
            return Some(User::Other("locked by another process, such as a virtual machine".into()));
        }
        if let Some(file) = self.below.iter().find(|file| is_locked(file, true)) {
            return Some(User::Other(format!(
                "{}, which is below it, is locked by another process",
                file.name
            )));
        }
        let claimed = self.beside.iter().find(|related| is_claimed(&related.name));
        claimed.map(|related| User::Other(format!("{} holds the same bytes and is in use", related.name)))
    }

    /// Which other process has the disk open, or storage with the same bytes.
    fn open(&self, own: Storage) -> Option<User> {
        let is_among = |list: &[Related], storage| list.iter().any(|related| related.storage == storage);
        let counts = |open: &Open| {
            let storage = open.storage;
            let is_same = storage == own || is_among(&self.above, storage);
            is_same || ((is_among(&self.below, storage) || is_among(&self.beside, storage)) && open.writes())
        };
        let (process, open) = process_with(counts)?;
        let (storage, is_reader) =
            (open.storage, matches!(open.storage, Storage::Device(_)) && !open.writes());
        let related = self.all().find(|related| related.storage == storage && storage != own);
        let words = match related {
            Some(related) => format!("{}, which holds the same bytes, is open in {process}", related.name),
            None => format!("open in {process}"),
        };
        Some(if is_reader { User::Reader(words) } else { User::Other(words) })
    }
}

/// A loop device that has something to show.
#[derive(Debug)]
struct Loop {
    number: u64,
    name: String,
    backing: Storage,
    /// Of what it shows, as the kernel tells it.
    path: String,
}

impl Loop {
    fn storage(&self) -> Storage {
        Storage::Device(self.number)
    }

    fn related(&self) -> Related {
        Related { storage: self.storage(), name: self.name.clone() }
    }

    fn all() -> Vec<Loop> {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path());
        devices.filter(|device| device.join("loop").is_dir()).filter_map(|device| Loop::at(&device)).collect()
    }

    fn at(device: &Path) -> Option<Loop> {
        let path = fs::read_to_string(device.join("loop/backing_file")).ok()?;
        let path = path.trim_end_matches('\n').to_owned();
        let (number, name) = (device_number(device)?, device_name(device)?);
        // The path is of the mount namespace in which the device was made, and the file may have been renamed or deleted since.
        let backing = backing_of(&name).or_else(|| Storage::of(&fs::metadata(&path).ok()?))?;
        Some(Loop { number, name, backing, path })
    }
}

/// What a loop device shows, as its driver tells it.
fn backing_of(node: &str) -> Option<Storage> {
    let file = File::open(node).ok()?;
    let mut info = [0u64; LOOP_INFO_WORDS];
    ioctl_into(file.as_raw_fd(), LOOP_GET_STATUS64, &mut info).ok()?;
    let [dev, ino, rdev, ..] = info;
    Some(if rdev == 0 { Storage::File(dev, ino) } else { Storage::Device(rdev) })
}

/// From <linux/loop.h>.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
/// `struct loop_info64` has 232 bytes, and begins with the numbers of the file: device, inode, and device if it is one.
const LOOP_INFO_WORDS: usize = 29;

/// The directory of a block device below /sys/devices.
fn device_directory(number: u64) -> Option<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{}:{}", libc::major(number), libc::minor(number))).ok()
}

fn device_number(directory: &Path) -> Option<u64> {
    parse_number(fs::read_to_string(directory.join("dev")).ok()?.trim())
}

fn parse_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The node that udev and devtmpfs give it; sysfs has ! where the name has a slash.
fn device_name(directory: &Path) -> Option<String> {
    Some(format!("/dev/{}", directory.file_name()?.to_str()?.replace('!', "/")))
}

fn related(directory: &Path) -> Option<Related> {
    Some(Related { storage: Storage::Device(device_number(directory)?), name: device_name(directory)? })
}

fn is_partition(storage: Storage) -> bool {
    let Storage::Device(number) = storage else { return false };
    device_directory(number).is_some_and(|directory| directory.join("partition").exists())
}

fn partitions(number: u64) -> Vec<Related> {
    let Some(directory) = device_directory(number) else { return Vec::new() };
    let inside = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    inside.filter(|inside| inside.join("partition").exists()).filter_map(|inside| related(&inside)).collect()
}

/// The disk that it is a partition of.
fn whole_disk(number: u64) -> Option<Related> {
    let directory = device_directory(number)?;
    related(directory.parent()?).filter(|_| directory.join("partition").exists())
}

/// The devices that sysfs lists as its holders or its slaves.
fn listed(number: u64, list: &str) -> Vec<Related> {
    let Some(directory) = device_directory(number) else { return Vec::new() };
    let entries = fs::read_dir(directory.join(list)).into_iter().flatten().flatten();
    entries.filter_map(|entry| related(&fs::canonicalize(entry.path()).ok()?)).collect()
}

/// Where it is mounted, or that it is swap space.
fn mounted(storage: Storage) -> Option<String> {
    if let Storage::Device(number) = storage {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let is_it = |source: &str| {
            source.starts_with('/')
                && fs::metadata(source).is_ok_and(|node| Storage::of(&node) == Some(storage))
        };
        if let Some(place) = mount_of(&mounts, number, is_it) {
            return Some(format!("mounted at {place}; unmount it with: umount {place}"));
        }
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut paths = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let swap = paths.find(|path| {
        fs::metadata(unescape(path)).is_ok_and(|metadata| Storage::of(&metadata) == Some(storage))
    })?;
    Some(format!("used as swap space; end that with: swapoff {swap}"))
}

/// The first place where a device is mounted: "36 35 8:1 / /boot rw shared:1 - ext4 /dev/sda1 rw". The file systems that number
/// themselves (btrfs) name the device as their source.
fn mount_of(mounts: &str, number: u64, is_it: impl Fn(&str) -> bool) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let device = parse_number(words.nth(2)?);
        let place = words.nth(1)?;
        let source = line.split_once(" - ")?.1.split(' ').nth(1)?;
        (device == Some(number) || is_it(&unescape(source))).then(|| unescape(place))
    })
}

/// /proc writes blanks as \040 and so on.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code =
            after.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code.filter(|_| *first == b'\\') {
            Some(code) => {
                bytes.push(code);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether another open file has a lock on some of these bytes, of the kind that virtual machines take (OFD, `fcntl`); or, where this process
/// has no lock of its own, on the whole file (`flock`).
fn is_locked(related: &Related, as_a_whole: bool) -> bool {
    if !matches!(related.storage, Storage::File(..)) {
        return false;
    }
    let Ok(file) = File::open(&related.name) else { return false };
    if !file.metadata().is_ok_and(|metadata| Storage::of(&metadata) == Some(related.storage)) {
        return false;
    }
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    (lock.l_type, lock.l_whence) = (libc::F_WRLCK as _, libc::SEEK_SET as _);
    // SAFETY: the call reads and fills in the structure.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    let in_part = result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short;
    // A lock that is had by this is let go of with the file.
    in_part || (as_a_whole && matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Whether a device is mounted, part of another or opened exclusively.
fn is_claimed(node: &str) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(node);
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// A descriptor of another process.
struct Open {
    storage: Storage,
    pid: u32,
    number: String,
}

impl Open {
    /// Whether it can be written through; so it counts when that is not to be seen.
    fn writes(&self) -> bool {
        let info =
            fs::read_to_string(format!("/proc/{}/fdinfo/{}", self.pid, self.number)).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| libc::c_int::from_str_radix(flags.trim(), 8).ok());
        flags.is_none_or(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
    }
}

/// A process that has something open that counts; and what. Neither this one, nor one that it has look for signatures.
fn process_with(counts: impl Fn(&Open) -> bool) -> Option<(String, Open)> {
    let own = std::process::id();
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own).find_map(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        let open = |entry: fs::DirEntry| {
            let number = entry.file_name().to_str()?.to_owned();
            Some(Open { storage: opened(&entry.path())?, pid, number })
        };
        let open = descriptors.filter_map(open).find(|open| counts(open))?;
        let process = Process::of(pid)?;
        (process.parent != own || process.name != TOOL)
            .then(|| (format!("process {pid} ({})", process.name), open))
    })
}

/// What a descriptor in /proc is of. Nothing is asked of a file system that may be out of reach.
fn opened(descriptor: &Path) -> Option<Storage> {
    let path = CString::new(descriptor.as_os_str().as_bytes()).ok()?;
    let mut statx = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path ends with a zero; the structure is filled in when the call returns 0.
    let statx = unsafe {
        let asked = libc::STATX_TYPE | libc::STATX_INO;
        if libc::statx(libc::AT_FDCWD, path.as_ptr(), libc::AT_STATX_DONT_SYNC, asked, statx.as_mut_ptr())
            != 0
        {
            return None;
        }
        statx.assume_init()
    };
    match u32::from(statx.stx_mode) & libc::S_IFMT {
        libc::S_IFBLK => Some(Storage::Device(libc::makedev(statx.stx_rdev_major, statx.stx_rdev_minor))),
        libc::S_IFREG => {
            Some(Storage::File(libc::makedev(statx.stx_dev_major, statx.stx_dev_minor), statx.stx_ino))
        }
        _ => None,
    }
}

/// A process that runs.
pub(super) struct Process {
    pub name: String,
    pub parent: u32,
}

impl Process {
    /// Nothing for one that has ended, or is not to be seen from here.
    pub(super) fn of(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // "PID (NAME) STATE PARENT …"; a zombie has only its exit code left.
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let is_alive = !words.next()?.starts_with(['Z', 'X']);
        let parent = words.next()?.parse().ok()?;
        is_alive.then(|| Process { name: name.to_owned(), parent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_number_and_by_source() {
        let mounts = "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw\n\
                      30 22 8:17 / /srv/my\\040data rw shared:2 - xfs /dev/sdb1 rw\n\
                      31 22 0:44 /sub /data rw - btrfs /dev/sdc rw,space_cache\n\
                      32 22 0:45 / /net rw - nfs server:/export rw\n\n?";
        let mount = |number, path: &str| mount_of(mounts, number, |source| source == path);
        assert_eq!(mount(libc::makedev(8, 2), ""), Some("/".into()));
        assert_eq!(mount(libc::makedev(8, 17), ""), Some("/srv/my data".into()));
        assert_eq!(mount(libc::makedev(8, 32), "/dev/sdc"), Some("/data".into()));
        assert_eq!(mount(libc::makedev(8, 33), "/dev/sdd"), None);
    }

    #[test]
    fn escaped_blanks_are_blanks() {
        assert_eq!(unescape("/a\\040b\\134c\\"), "/a b\\c\\");
        assert_eq!(unescape("/\\0x"), "/\\0x");
    }

    /// As QEMU locks an image: some bytes, for the open file and not for the process.
    #[test]
    fn a_lock_on_some_bytes_is_seen() {
        let path = std::env::temp_dir().join(format!("forebay-usage-{}", std::process::id()));
        let file = File::create(&path).expect("a file can be made");
        let storage = Storage::of(&file.metadata().expect("it exists")).expect("it is a file");
        let related = Related { storage, name: path.display().to_string() };
        assert!(!is_locked(&related, true));
        // SAFETY: the structure is plain numbers, for which zero is a value.
        let mut lock: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
        (lock.l_type, lock.l_start, lock.l_len) = (libc::F_WRLCK as _, 100, 1);
        // SAFETY: the call reads the structure.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) }, 0);
        assert!(is_locked(&related, false));
        lock.l_type = libc::F_UNLCK as _;
        // SAFETY: as above.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) }, 0);
        assert!(!is_locked(&related, true));
        file.lock().expect("nobody has it");
        assert!(is_locked(&related, true) && !is_locked(&related, false));
        fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_process_is_known_while_it_runs() {
        let own = Process::of(std::process::id()).expect("it runs");
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(Process::of(u32::MAX).is_none());
    }
}
