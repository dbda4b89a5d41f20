//! Does the program refuse to overwrite what is in use, by whatever name and however it is forced, and what is not empty, unless it is
//! forced?
//!
//! Method: the real daemon and command line on sparse files; what the kernel does with devices (loop devices, mounts, other nodes) is asked where the
//! test may make such, that is as root. Contents of the disks' users are compared in the end.

use crate::common::{Daemon, Nbd, Place};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const DISK_BYTES: u64 = 300 << 20;

/// What a command of the system prints, without the end of the line. Panics when it fails.
fn system(words: &[&str]) -> String {
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .unwrap_or_else(|error| panic!("{words:?}: {error}"));
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Whether devices can be made here; tells why not.
fn has_devices() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    if !can {
        eprintln!("SKIPPED in part: loop devices need root and /dev/loop-control");
    }
    can
}

/// Undoes what a test did to the system, in the opposite order, whatever happens in it.
#[derive(Default)]
struct Undo(Vec<Vec<String>>);

impl Undo {
    fn by(&mut self, words: &[&str]) {
        self.0.push(words.iter().map(|word| word.to_string()).collect());
    }
    fn attach(&mut self, file: &str) -> String {
        let device = system(&["losetup", "--find", "--show", file]);
        self.by(&["losetup", "-d", &device]);
        device
    }
    /// Does the latest of it now.
    fn last(&mut self) {
        if let Some(words) = self.0.pop() {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            system(&words);
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        while let Some(words) = self.0.pop() {
            // A test that fails may have left less than it would have.
            let _ = Command::new(&words[0]).args(&words[1..]).stderr(Stdio::null()).status();
        }
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Every way to take a disk, tried in earnest and as a dry run, is refused although it is forced; says why.
fn refused(place: &Place, disk: &str, why: &str) {
    let ways: [&[&str]; 5] = [
        &["pool", "create", "new", "--layout", "single", disk],
        &["pool", "create", "new", "--layout", "single", "free", "--spare", disk],
        &["pool", "add", "other", disk],
        &["pool", "add", "other", disk, "--spare"],
        &["disk", "replace", "other/1", disk],
    ];
    for way in ways {
        for how in [&["--force", "--dry-run"][..], &["--force"]] {
            let ended = place.run(&[way, how].concat());
            assert!(matches!(ended.code, Some(4 | 5)), "{way:?} {how:?}: {ended:?}");
            assert!(ended.err.contains(why), "{way:?} {how:?}: no `{why}` in {ended:?}");
            assert!(!ended.err.contains("--force"), "{way:?} {how:?}: {ended:?}");
        }
    }
}

#[test]
fn disks_in_use_are_refused_however_they_are_named_and_forced() {
    let place = Place::new();
    for name in ["a", "b", "c", "free", "opened"] {
        place.disk(name, DISK_BYTES);
    }
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "single", "a"]).expect(0);
    place.run(&["pool", "create", "other", "--layout", "mirror", "b", "c"]).expect(0);
    place.run(&["volume", "create", "tank/v", "--size", "64M"]).expect(0);
    let content: Vec<u8> = (0..4 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    Nbd::open(&daemon.nbd, "tank/v").write(0, &content);

    // Other names of a file.
    symlink(place.path().join("a"), place.path().join("soft")).unwrap();
    fs::hard_link(place.path().join("a"), place.path().join("hard")).unwrap();
    fs::create_dir(place.path().join("sub")).unwrap();
    symlink("..", place.path().join("sub/up")).unwrap();
    for name in ["a", "./a", "soft", "hard", "sub/up/a"] {
        refused(&place, name, "disk tank/0 of an imported pool");
    }
    refused(&place, "b", "disk other/0 of an imported pool");

    // Another process has it open, and nothing locked.
    let opened = File::open(place.path().join("opened")).unwrap();
    let holder = Running(Command::new("sleep").arg("600").stdin(opened).spawn().unwrap());
    refused(&place, "opened", &format!("open in process {} (sleep)", holder.0.id()));
    drop(holder);

    // Another daemon.
    let elsewhere = Place::new();
    for name in ["free", "x", "y"] {
        elsewhere.disk(name, DISK_BYTES);
    }
    let second = Daemon::start(&elsewhere);
    elsewhere.run(&["pool", "create", "other", "--layout", "mirror", "x", "y"]).expect(0);
    let taken = place.path().join("a").display().to_string();
    refused(&elsewhere, &taken, &format!("process {} (", daemon.pid()));
    second.stop();

    let mut undo = Undo::default();
    if has_devices() {
        // A loop device over the file of a pool, and another one over that.
        let over = undo.attach(&taken);
        refused(&place, &over, "of an imported pool, through");
        let again = undo.attach(&over);
        refused(&place, &again, "of an imported pool, through");
        undo.last();
        undo.last();

        // A pool on a loop device: the device, another node of it, its file, another device over that, and that device's node.
        let below = place.disk("below", DISK_BYTES);
        let device = undo.attach(&below);
        place.run(&["pool", "create", "dev", "--layout", "single", &device]).expect(0);
        let node = place.path().join("node").display().to_string();
        let numbers = fs::metadata(&device).unwrap().rdev();
        let (major, minor) = (libc::major(numbers).to_string(), libc::minor(numbers).to_string());
        system(&["mknod", &node, "b", &major, &minor]);
        refused(&place, &device, "disk dev/0 of an imported pool");
        // Not where the temporary directory may have no devices.
        if File::open(&node).is_ok() {
            refused(&place, &node, "disk dev/0 of an imported pool");
        }
        refused(&place, &below, "disk dev/0 of an imported pool, through");
        let beside = undo.attach(&below);
        refused(&place, &beside, "disk dev/0 of an imported pool, through");
        undo.last();
        place.run(&["pool", "destroy", "dev", "--yes"]).expect(0);
        undo.last();

        // A mounted file system, by its device and by its file.
        let image = place.disk("image", DISK_BYTES);
        system(&["mkfs.ext4", "-q", "-F", &image]);
        let device = undo.attach(&image);
        refused(&place, &image, "attached to it; detach that with: losetup -d");
        let mount = place.path().join("mount").display().to_string();
        fs::create_dir(&mount).unwrap();
        system(&["mount", "-t", "ext4", &device, &mount]);
        undo.by(&["umount", &mount]);
        refused(&place, &device, &format!("mounted at {mount}; unmount it with: umount"));
        refused(&place, &image, "mounted at");
        undo.last();
        // What was advised works: nothing uses it any more, and what is on it can be overridden.
        place
            .run(&["pool", "create", "new", "--layout", "single", &device, "--dry-run"])
            .expect(5)
            .says("ext4");
        place.run(&["pool", "create", "new", "--layout", "single", &device, "--force"]).expect(0);
        place.run(&["pool", "destroy", "new", "--yes"]).expect(0);
        undo.last();
    }
    assert!(Nbd::open(&daemon.nbd, "tank/v").read(0, content.len()) == content);
    place.run(&["pool", "create", "new", "--layout", "single", "opened", "--force"]).expect(0);
    place.run(&["pool", "list"]).expect(0);
    daemon.stop();
}

/// Bytes, and where they are.
type Parts = Vec<(u64, Vec<u8>)>;

/// Signatures by the types that `libblkid` has for them: what is written where.
fn signatures() -> Vec<(&'static str, Parts)> {
    let labels = [0, 1 << 18, DISK_BYTES - (1 << 19), DISK_BYTES - (1 << 18)];
    let uberblocks = labels
        .iter()
        .flat_map(|label| (0..128u64).map(move |nth| (label + (128 << 10) + nth * 1024, nth + 1)));
    let uberblock = |(at, group): (u64, u64)| {
        (at, [0xbab10c_u64, 5000, group].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    vec![
        ("zfs_member", uberblocks.map(uberblock).collect()),
        ("linux_raid_member", vec![(DISK_BYTES - 65536, words(&[0xa92b_4efc, 0, 90, 0]))]),
        ("ceph_bluestore", vec![(0, b"bluestore block device\n".to_vec())]),
        ("VMFS_volume_member", vec![(1 << 20, words(&[0xc001_d00d]))]),
        ("vdo", vec![(0, b"dmvdo001".to_vec())]),
        ("drbd", vec![(DISK_BYTES - 4096 + 60, 0x8374_026d_u32.to_be_bytes().to_vec())]),
        ("f2fs", vec![(1024, words(&[0xf2f5_2010]))]),
        ("iso9660", vec![(32768, b"\x01CD001\x01".to_vec())]),
        ("gpt", gpt_backup()),
    ]
}

/// A GUID partition table without partitions, of which only the copy at the end is left (UEFI 2.10, section 5.3.2).
fn gpt_backup() -> Parts {
    let last = DISK_BYTES / 512 - 1;
    let entries = vec![0; 128 * 128];
    let mut header = Vec::new();
    header.extend(b"EFI PART\0\0\x01\0");
    header.extend(92_u32.to_le_bytes());
    header.extend([0; 8]);
    for lba in [last, 1, 34, last - 33] {
        header.extend(lba.to_le_bytes());
    }
    header.extend([7; 16]);
    header.extend((last - 32).to_le_bytes());
    header.extend(128_u32.to_le_bytes());
    header.extend(128_u32.to_le_bytes());
    header.extend(crc32(&entries).to_le_bytes());
    let sum = crc32(&header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    vec![((last - 32) * 512, entries), (last * 512, header)]
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

#[test]
fn what_is_not_empty_is_overwritten_by_force_only() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let create = |disk: &str, more: &[&str]| {
        place.run(&[&["pool", "create", "new", "--layout", "single", disk], more].concat())
    };
    let mut undo = Undo::default();
    let with_devices = has_devices();
    for (name, parts) in signatures() {
        let path = place.disk(name, DISK_BYTES);
        let file = File::options().write(true).open(&path).unwrap();
        parts.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        // Open, it would be in use.
        drop(file);
        create(name, &["--dry-run"]).expect(5).says(name).says("--force");
        create(name, &[]).expect(5).says(name).says("--force");
        create(name, &["--dry-run", "--force"]).expect(0);
        if with_devices {
            let device = undo.attach(&path);
            create(&device, &["--dry-run"]).expect(5).says(name).says("--force");
            create(&device, &["--dry-run", "--force"]).expect(0);
            undo.last();
        }
        fs::remove_file(&path).unwrap();
    }
    // Of a file a byte is enough, wherever it is; written zeros are none.
    for (at, byte) in [(0, 1), (12_345_678, 1), (DISK_BYTES - 1, 1), (12_345_678, 0)] {
        let path = place.disk("file", DISK_BYTES);
        File::options().write(true).open(&path).unwrap().write_all_at(&[byte], at).unwrap();
        let ended = create("file", &["--dry-run"]);
        if byte == 0 {
            ended.expect(0);
        } else {
            ended.expect(5).says("data");
        }
    }
    create("file", &[]).expect(0);
    // Neither does a pool that was destroyed leave an empty file, or one without a signature.
    place.run(&["pool", "destroy", "new", "--yes"]).expect(0);
    create("file", &[]).expect(5).says("data");
    create("file", &["--force"]).expect(0);
    daemon.stop();
}
