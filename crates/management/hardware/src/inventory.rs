//! The machine's disks, read from sysfs, procfs and udev's database.
//!
//! [`Inventory::read`] opens no disk and sends no command to one, so a disk that hangs does not keep it. What only the disk itself can tell, its
//! health and its contents, the [`crate::Examiner`] adds.
//!
//! Steps: every block device that is hardware ([`crate::sysfs`]) → grouped by the disk that it is a path of (`group`) → uses and contents → identities that
//! are unique. The cost is linear: about twenty small files for each device.

use crate::disk::{Contents, ContentsSource, Disk, DiskPath, Identity, NotFreeKind, SignatureUsage, Zoned};
use crate::enclosure::Slots;
use crate::sysfs::{Found, find};
use crate::tree::{Tree, is_plain_name};
use crate::udev::{Links, link_rank};
use crate::usage::{Devices, Uses, signature_text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Devices that are looked at: four paths to each of 4096 disks.
const DEVICES_MAX: usize = 16_384;

/// The disks of one machine at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Inventory {
    /// By kernel name, numbers in their order: `sdb` before `sdaa`, `nvme2n1` before `nvme10n1`.
    pub disks: Vec<Disk>,
}

impl Inventory {
    /// Reads below `root`: `sys`, `proc`, `dev` and `run/udev`; `/` for this machine. What is absent or cannot be read is left out, so there is
    /// no error: a machine without `/sys` has no disks.
    pub fn read(root: &Path) -> Inventory {
        let tree = Tree::new(root);
        let devices = Devices::read(tree);
        let (links, slots) = (Links::read(tree), Slots::read(tree));
        let names =
            devices.all.keys().filter(|name| tree.exists(&format!("sys/block/{name}"))).take(DEVICES_MAX);
        let found: Vec<Found> = names.filter_map(|name| find(tree, name, &links, &slots)).collect();
        let mut disks: Vec<Disk> =
            group(found, &devices).into_iter().map(|paths| join(paths, &devices, &links)).collect();
        disks.sort_by_key(|disk| natural(&disk.name));
        make_unique(&mut disks);
        for disk in &mut disks {
            disk.judge_free(&devices);
        }
        Inventory { disks }
    }

    /// The disk with an identity.
    pub fn find(&self, identity: &Identity) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.identity == *identity)
    }

    /// The disk that a path of the machine names: `/dev/sda`, a by-id link, a multipath map, or a kernel name.
    pub fn find_path(&self, path: &str) -> Option<&Disk> {
        let name = path.strip_prefix("/dev/").unwrap_or(path);
        let is_it = |disk: &&Disk| {
            disk.device == path
                || disk.by_id.as_deref() == Some(path)
                || disk.paths.iter().any(|way| way.name == name || way.by_path.as_deref() == Some(path))
                || disk.multipath.as_deref() == Some(name)
        };
        self.disks.iter().find(is_it)
    }
}

/// A name with its numbers as numbers, and shorter names of letters first.
fn natural(name: &str) -> (usize, String, Vec<u64>) {
    let letters: String = name.chars().take_while(|c| !c.is_ascii_digit()).collect();
    let numbers = name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    let numbers = numbers.collect();
    let width = if letters.starts_with("sd") || letters.starts_with("vd") { letters.len() } else { 0 };
    (width, letters, numbers)
}

/// Devices that are paths of one disk: those of one multipath map; and those with one world-wide name, unless their serial numbers or sizes
/// say that the name is not theirs alone.
fn group(found: Vec<Found>, devices: &Devices) -> Vec<Vec<Found>> {
    let mut groups: Vec<Vec<Found>> = Vec::new();
    let (mut by_map, mut by_wwn): (BTreeMap<String, usize>, BTreeMap<String, Vec<usize>>) =
        Default::default();
    for device in found {
        let map = devices.multipath_of(&device.name).map(str::to_owned);
        let same_map = map.as_ref().and_then(|map| by_map.get(map).copied());
        let same_wwn = device.wwn.as_ref().and_then(|wwn| {
            let candidates = by_wwn.get(wwn)?;
            candidates
                .iter()
                .copied()
                .find(|at| groups[*at].iter().all(|other| other.is_path_beside(&device)))
        });
        let at = same_map.or(same_wwn).unwrap_or(groups.len());
        if let Some(map) = map {
            by_map.insert(map, at);
        }
        if at == groups.len() {
            if let Some(wwn) = &device.wwn {
                by_wwn.entry(wwn.clone()).or_default().push(at);
            }
            groups.push(Vec::new());
        }
        groups[at].push(device);
    }
    groups
}

/// One disk of its paths, of which there is at least one.
fn join(mut ways: Vec<Found>, devices: &Devices, links: &Links) -> Disk {
    ways.sort_by_key(|way| natural(&way.name));
    let multipath = ways.iter().find_map(|way| devices.multipath_of(&way.name)).map(str::to_owned);
    let by_id = multipath.iter().chain(ways.iter().map(|way| &way.name)).filter_map(|name| links.by_id(name));
    let by_id = by_id.min_by_key(|link| {
        let link = link.rsplit('/').next().unwrap_or_default();
        (link_rank(link), link.len(), link.to_owned())
    });
    let nested: Vec<DiskPath> = ways.iter_mut().flat_map(|way| std::mem::take(&mut way.paths)).collect();
    let paths = match nested.is_empty() {
        true => ways.iter().map(Found::path).collect(),
        false => nested,
    };
    let name = ways[0].name.clone();
    let map_path = multipath.as_ref().map(|map| {
        let label = devices.all.get(map).and_then(|device| device.map_name.as_deref());
        label
            .filter(|label| is_plain_name(label))
            .map_or(format!("/dev/{map}"), |label| format!("/dev/mapper/{label}"))
    });
    let device =
        map_path.or_else(|| by_id.clone()).unwrap_or_else(|| format!("/dev/{}", name.replace('!', "/")));
    // Another path may know what the first does not.
    let any = |what: fn(&Found) -> Option<String>| ways.iter().find_map(what);
    let first = &ways[0];
    Disk {
        device,
        identity: Identity(String::new()),
        by_id,
        by_path: first.by_path.clone(),
        model: any(|way| way.model.clone()),
        vendor: any(|way| way.vendor.clone()),
        serial: any(|way| way.serial.clone()),
        firmware: any(|way| way.firmware.clone()),
        wwn: any(|way| way.wwn.clone()),
        size: ways.iter().map(|way| way.size).max().unwrap_or(0),
        sector_logical: first.sector_logical,
        sector_physical: first.sector_physical,
        rotational: first.rotational,
        transport: first.transport,
        zoned: first.zoned,
        read_only: ways.iter().all(|way| way.read_only),
        removable: first.removable,
        hctl: first.hctl.clone(),
        slot: ways.iter().find_map(|way| way.slot.clone()),
        partitions: ways
            .iter()
            .map(|way| &way.partitions)
            .max_by_key(|list| list.len())
            .cloned()
            .unwrap_or_default(),
        contents: ways
            .iter()
            .map(|way| &way.contents)
            .max_by_key(|known| known.signatures.len())
            .cloned()
            .unwrap_or_default(),
        system: Vec::new(),
        not_free: Vec::new(),
        health: None,
        paths,
        multipath,
        name,
    }
}

/// Gives each disk an identity that no other has.
fn make_unique(disks: &mut [Disk]) {
    let steps: [fn(&Disk) -> String; 3] = [
        |disk| match (&disk.wwn, &disk.serial) {
            (Some(wwn), _) => format!("wwn:{wwn}"),
            (None, Some(serial)) => format!("serial:{}/{serial}", disk.model.as_deref().unwrap_or_default()),
            (None, None) => String::new(),
        },
        |disk| disk.serial.as_ref().map_or(String::new(), |serial| format!("/serial:{serial}")),
        |disk| format!("/at:{}", disk.by_path.as_deref().or(disk.hctl.as_deref()).unwrap_or(&disk.name)),
    ];
    for step in steps {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for disk in disks.iter() {
            *counts.entry(disk.identity.0.clone()).or_default() += 1;
        }
        for disk in disks.iter_mut() {
            if disk.identity.0.is_empty() || counts[&disk.identity.0] > 1 {
                disk.identity.0 += &step(disk);
            }
        }
    }
    // Two disks in one place: paths are not unique in a tree that lies.
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for disk in disks.iter_mut() {
        let count = counts.entry(disk.identity.0.clone()).or_default();
        *count += 1;
        if *count > 1 {
            disk.identity.0 += &format!("/name:{}", disk.name);
        }
    }
}

impl Disk {
    /// Fills in who uses the disk and what is on it.
    fn judge_free(&mut self, devices: &Devices) {
        let mut ways: Vec<String> = self.paths.iter().map(|path| path.name.clone()).collect();
        ways.push(self.name.clone());
        ways.extend(self.multipath.clone());
        let mut uses = devices.uses(&ways, &self.partitions);
        self.system = std::mem::take(&mut uses.system);
        self.not_free = uses.not_free;
        self.judge_contents();
    }

    /// Reasons that lie in what is on the disk; after it was read again, those from before are replaced.
    pub(crate) fn judge_contents(&mut self) {
        use NotFreeKind::{Forebay, Partitions, Signature, System, Unread, Unusable};
        self.not_free
            .retain(|one| !matches!(one.kind, Forebay | Partitions | Signature | System | Unread | Unusable));
        let mut uses = Uses { not_free: std::mem::take(&mut self.not_free), system: Vec::new() };
        for text in &self.system {
            uses.add(System, format!("This is a system disk: {text}"));
        }
        for found in &self.contents.signatures {
            let kind = if found.usage == SignatureUsage::Forebay { Forebay } else { Signature };
            let label = found.label.as_ref().map_or(String::new(), |label| format!(", labelled {label}"));
            uses.add(kind, format!("It holds {}{label}.", signature_text(found.usage, &found.kind)));
        }
        if !self.partitions.is_empty() {
            let (count, table) = (self.partitions.len(), self.contents.partition_table.as_deref());
            let table = table.map_or(String::new(), |table| format!(" ({table})"));
            let noun = if count == 1 { "partition" } else { "partitions" };
            uses.add(Partitions, format!("It has {count} {noun}{table}."));
            for partition in &self.partitions {
                if let Some(found) = &partition.signature {
                    let what = signature_text(found.usage, &found.kind);
                    uses.add(Signature, format!("{} holds {what}.", partition.name));
                }
            }
        } else if let Some(table) = &self.contents.partition_table {
            uses.add(Partitions, format!("It has an empty partition table ({table})."));
        }
        if self.size == 0 {
            uses.add(Unusable, "It has no medium, or does not answer.".into());
        }
        if self.read_only {
            uses.add(Unusable, "It is read-only.".into());
        }
        if self.zoned == Zoned::HostManaged {
            uses.add(
                Unusable,
                "It can only be written in zones (host-managed SMR), which pools do not support.".into(),
            );
        }
        let unread = match &self.contents.source {
            ContentsSource::Disk => None,
            _ if !uses.not_free.is_empty() => None,
            ContentsSource::Failed(why) => Some(format!("Its contents cannot be read: {why}.")),
            ContentsSource::Unknown | ContentsSource::Udev => {
                Some("Its contents have not been read yet.".into())
            }
        };
        if let Some(text) = unread {
            uses.add(Unread, text);
        }
        uses.not_free.sort_by_key(|one| one.kind);
        self.not_free = uses.not_free;
    }

    /// Replaces what is known of the disk's contents.
    pub fn set_contents(&mut self, contents: Contents) {
        self.contents = contents;
        self.judge_contents();
    }
}
