//! Who uses a disk: a walk from the disk over its partitions and everything that is made of them.
//!
//! ```text
//! sda ── sda1 ── md0 ── dm-0 (volume group) ── mounted at /
//!     └─ sda2 ── swap
//! ```
//!
//! The edges are sysfs's `holders`; a loop device over a disk is no holder there, so its backing file is an edge, too. A multipath map is
//! not a use: it is the disk itself, by all its paths. Depth and number of devices are bounded, whatever sysfs says.
//!
//! This is for showing and choosing. Before the engine writes to a disk, it looks again, and also for processes that have it open.

use crate::disk::{NotFree, NotFreeKind, Partition, SignatureUsage};
use crate::mounts::{Mounts, Names, is_system_point};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Devices that one disk's walk visits: a disk has 128 partitions at most, and thousands of volumes may lie on it.
const VISITED_MAX: usize = 16_384;
/// Sentences of one kind that are kept for a disk.
const TEXTS_MAX: usize = 8;
/// The type of an EFI system partition, in a GPT and in an MBR.
const EFI_PARTITION: [&str; 2] = ["c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "0xef"];

/// A block device, as the walk sees it.
#[derive(Default)]
pub(crate) struct Device {
    pub partitions: Vec<String>,
    /// Devices that are made of this one.
    pub holders: Vec<String>,
    /// Of a device-mapper device: its name and its UUID, which says by its prefix whose it is.
    pub map_name: Option<String>,
    map_uuid: Option<String>,
}

impl Device {
    pub fn is_multipath(&self) -> bool {
        self.map_uuid.as_deref().is_some_and(|uuid| uuid.starts_with("mpath-"))
    }
    /// What a person would call what this device is.
    fn noun(&self, name: &str) -> String {
        let map = self.map_name.as_deref().unwrap_or(name);
        match self.map_uuid.as_deref() {
            Some(uuid) if uuid.starts_with("LVM-") => format!("the logical volume {map}"),
            Some(uuid) if uuid.starts_with("CRYPT-") => format!("the encrypted device {map}"),
            Some(_) => format!("the mapped device {map}"),
            None if name.starts_with("md") => format!("the RAID array {name}"),
            None if name.starts_with("loop") => format!("the loop device {name}"),
            None => format!("the device {name}"),
        }
    }
}

/// All block devices and what connects them.
pub(crate) struct Devices {
    pub all: BTreeMap<String, Device>,
    pub mounts: Mounts,
}

impl Devices {
    pub fn read(tree: Tree) -> Devices {
        let (mut all, mut names): (BTreeMap<String, Device>, _) = (BTreeMap::new(), Names::new());
        let mut loops = Vec::new();
        for name in tree.names("sys/block") {
            let directory = format!("sys/block/{name}");
            let map_name = tree.text(&format!("{directory}/dm/name"));
            names.add(&name, tree.text(&format!("{directory}/dev")), map_name.clone());
            let mut device = Device {
                holders: tree.names(&format!("{directory}/holders")),
                map_uuid: tree.text(&format!("{directory}/dm/uuid")),
                map_name,
                ..Device::default()
            };
            for part in tree.names(&directory) {
                let inner = format!("{directory}/{part}");
                if !tree.exists(&format!("{inner}/partition")) {
                    continue;
                }
                names.add(&part, tree.text(&format!("{inner}/dev")), None);
                let holders = tree.names(&format!("{inner}/holders"));
                all.insert(part.clone(), Device { holders, ..Device::default() });
                device.partitions.push(part);
            }
            if let Some(file) = tree.text(&format!("{directory}/loop/backing_file")) {
                loops.push((file, name.clone()));
            }
            all.insert(name, device);
        }
        for (file, name) in loops {
            if let Some(device) = names.of_path(tree, &file).and_then(|below| all.get_mut(&below)) {
                device.holders.push(name);
            }
        }
        let mounts = Mounts::read(tree, &names);
        Devices { all, mounts }
    }

    /// The multipath map that a device is a path of.
    pub fn multipath_of(&self, name: &str) -> Option<&str> {
        let is_map = |holder: &&String| self.all.get(*holder).is_some_and(Device::is_multipath);
        self.all.get(name)?.holders.iter().find(is_map).map(String::as_str)
    }

    /// Who uses the disk with these paths, and where the machine itself lives on it.
    pub fn uses(&self, paths: &[String], partitions: &[Partition]) -> Uses {
        let mut uses = Uses::default();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut queue: VecDeque<&str> = paths.iter().map(String::as_str).collect();
        while let Some(name) = queue.pop_front() {
            if !seen.insert(name) || seen.len() > VISITED_MAX {
                continue;
            }
            let is_own = paths.iter().any(|path| path == name);
            self.look_at(name, is_own, &mut uses);
            let Some(device) = self.all.get(name) else { continue };
            queue.extend(device.partitions.iter().chain(&device.holders).map(String::as_str));
            for holder in &device.holders {
                let above = self.all.get(holder);
                if !above.is_some_and(Device::is_multipath) {
                    let noun =
                        above.map_or_else(|| format!("the device {holder}"), |above| above.noun(holder));
                    uses.add(NotFreeKind::Member, format!("{name} is part of {noun}."));
                }
            }
        }
        for partition in partitions {
            let kind = partition.kind.as_deref().unwrap_or_default().to_ascii_lowercase();
            if EFI_PARTITION.contains(&&*kind) {
                uses.add_system(format!("{} is an EFI system partition.", partition.name));
            }
        }
        uses
    }

    fn look_at(&self, name: &str, is_own: bool, uses: &mut Uses) {
        let named = match self.all.get(name).and_then(|device| device.map_name.as_deref()) {
            Some(map) => format!("{name} ({map})"),
            None => name.to_owned(),
        };
        let on = if is_own { "" } else { ", on this disk," };
        for point in self.mounts.points(name) {
            if is_system_point(point) {
                uses.add_system(format!("{named}{on} is mounted at {point}."));
            }
            uses.add(NotFreeKind::Mounted, format!("{named}{on} is mounted at {point}."));
        }
        if self.mounts.is_swap(name) {
            uses.add_system(format!("{named}{on} is swap space."));
            uses.add(NotFreeKind::Swap, format!("{named}{on} is swap space in use."));
        }
        if self.mounts.has_swap_file(name) {
            uses.add_system(format!("{named}{on} has a swap file."));
            uses.add(NotFreeKind::Swap, format!("{named}{on} has a swap file in use."));
        }
    }
}

/// What a walk found.
#[derive(Default)]
pub(crate) struct Uses {
    pub not_free: Vec<NotFree>,
    pub system: Vec<String>,
}

impl Uses {
    pub fn add(&mut self, kind: NotFreeKind, text: String) {
        let same = self.not_free.iter().filter(|one| one.kind == kind).count();
        if same < TEXTS_MAX && !self.not_free.iter().any(|one| one.text == text) {
            self.not_free.push(NotFree { kind, text });
        }
    }
    fn add_system(&mut self, text: String) {
        if self.system.len() < TEXTS_MAX && !self.system.contains(&text) {
            self.system.push(text);
        }
    }
}

/// How a person would name what a signature stands for.
pub(crate) fn signature_text(usage: SignatureUsage, kind: &str) -> String {
    match usage {
        SignatureUsage::FileSystem => format!("a file system ({kind})"),
        SignatureUsage::Swap => "swap space".into(),
        SignatureUsage::Member => format!("part of a volume group or array ({kind})"),
        SignatureUsage::Encrypted => format!("encrypted data ({kind})"),
        SignatureUsage::Forebay => "a disk of a Forebay pool".into(),
        SignatureUsage::Other => format!("data with the signature {kind}"),
    }
}
