//! What is mounted and what is swap: `/proc/*/mountinfo` (proc(5)) and `/proc/swaps`.
//!
//! The daemon may have mounts of its own (systemd hides directories from services), so those of process 1 are read as well. A file system
//! that spans devices (btrfs, bcachefs) has a device number of its own: its devices are found by the mount's source and by `/sys/fs/btrfs`.

use crate::tree::{Tree, clean};
use crate::udev::unescape;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes read of one table of mounts: a machine with containers has thousands of lines of 200 bytes.
const TABLE_MAX: u64 = 8 << 20;
/// Mount points kept of one device: more say nothing new to a person.
const POINTS_MAX: usize = 16;
/// Mount points that make a disk a system disk.
const SYSTEM_POINTS: [&str; 6] = ["/", "/boot", "/boot/efi", "/efi", "/usr", "/var"];

/// Mount points and swap, by what the kernel calls the device.
#[derive(Default)]
pub(crate) struct Mounts {
    points: BTreeMap<String, BTreeSet<String>>,
    swaps: BTreeSet<String>,
    /// Devices with a swap file.
    swap_files: BTreeSet<String>,
}

/// Turns device numbers and paths into kernel names.
pub(crate) struct Names {
    by_number: BTreeMap<String, String>,
    known: BTreeSet<String>,
    /// Device-mapper names: `vg-root` → `dm-0`.
    by_map: BTreeMap<String, String>,
}

impl Names {
    pub fn new() -> Names {
        Names { by_number: BTreeMap::new(), known: BTreeSet::new(), by_map: BTreeMap::new() }
    }
    pub fn add(&mut self, name: &str, number: Option<String>, map: Option<String>) {
        self.known.insert(name.to_owned());
        if let Some(number) = number {
            self.by_number.insert(number, name.to_owned());
        }
        if let Some(map) = map {
            self.by_map.insert(map, name.to_owned());
        }
    }

    /// The kernel's name of the device at a path such as `/dev/mapper/vg-root`.
    pub fn of_path(&self, tree: Tree, path: &str) -> Option<String> {
        let rest = path.strip_prefix("/dev/")?;
        if let Some(map) = rest.strip_prefix("mapper/")
            && let Some(name) = self.by_map.get(map)
        {
            return Some(name.clone());
        }
        let name = rest.replace('/', "!");
        if self.known.contains(&name) {
            return Some(name);
        }
        tree.target_name(path)
    }
}

impl Mounts {
    pub fn read(tree: Tree, names: &Names) -> Mounts {
        let mut mounts = Mounts::default();
        for table in ["proc/self/mountinfo", "proc/1/mountinfo"] {
            for line in tree.bytes(table, TABLE_MAX).unwrap_or_default().split(|byte| *byte == b'\n') {
                mounts.add_mount(tree, names, line);
            }
        }
        mounts.add_btrfs(tree);
        let swaps = tree.bytes("proc/swaps", TABLE_MAX).unwrap_or_default();
        for line in swaps.split(|byte| *byte == b'\n').skip(1) {
            mounts.add_swap(tree, names, line);
        }
        mounts
    }

    /// One line: `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
    fn add_mount(&mut self, tree: Tree, names: &Names, line: &[u8]) {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(dash) = fields.iter().position(|field| *field == b"-") else { return };
        let (Some(number), Some(point)) = (fields.get(2), fields.get(4)) else { return };
        let point = clean(&unescape(point, b"\\", 8));
        let mut devices: Vec<String> = Vec::new();
        devices
            .extend(std::str::from_utf8(number).ok().and_then(|number| names.by_number.get(number).cloned()));
        if devices.is_empty()
            && let Some(source) = fields.get(dash + 2)
        {
            // bcachefs names all its devices.
            let source = clean(&unescape(source, b"\\", 8));
            devices.extend(source.split(':').filter_map(|path| names.of_path(tree, path)));
        }
        for device in devices {
            let points = self.points.entry(device).or_default();
            // What makes a disk a system disk is kept in any case.
            if points.len() < POINTS_MAX || SYSTEM_POINTS.contains(&&*point) {
                points.insert(point.clone());
            }
        }
    }

    /// All devices of a btrfs file system are mounted where one is.
    fn add_btrfs(&mut self, tree: Tree) {
        for uuid in tree.names("sys/fs/btrfs") {
            let devices = tree.names(&format!("sys/fs/btrfs/{uuid}/devices"));
            let points: BTreeSet<String> =
                devices.iter().filter_map(|device| self.points.get(device)).flatten().cloned().collect();
            for device in devices.into_iter().filter(|_| !points.is_empty()) {
                self.points.entry(device).or_default().extend(points.iter().cloned());
            }
        }
    }

    fn add_swap(&mut self, tree: Tree, names: &Names, line: &[u8]) {
        let mut fields = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty());
        let (Some(path), Some(kind)) = (fields.next(), fields.next()) else { return };
        let path = clean(&unescape(path, b"\\", 8));
        if kind == b"file" {
            // The file lies in the file system with the longest mount point above it, which may have several devices.
            let points = self.points.values().flatten().filter(|point| is_below(&path, point));
            let Some(above) = points.max_by_key(|point| point.len()) else { return };
            let devices = self.points.iter().filter(|(_, points)| points.contains(above));
            self.swap_files.extend(devices.map(|(device, _)| device.clone()));
        } else {
            self.swaps.extend(names.of_path(tree, &path));
        }
    }

    pub fn points(&self, device: &str) -> impl Iterator<Item = &str> {
        self.points.get(device).into_iter().flatten().map(String::as_str)
    }
    pub fn is_swap(&self, device: &str) -> bool {
        self.swaps.contains(device)
    }
    pub fn has_swap_file(&self, device: &str) -> bool {
        self.swap_files.contains(device)
    }
}

pub(crate) fn is_system_point(point: &str) -> bool {
    SYSTEM_POINTS.contains(&point)
}

fn is_below(path: &str, point: &str) -> bool {
    point == "/" || path.strip_prefix(point).is_some_and(|rest| rest.starts_with('/'))
}
