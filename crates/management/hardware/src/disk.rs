//! A disk as a thing: what it is, where it sits, what is on it and how it is.
//!
//! One [`Disk`] is one piece of hardware, however many paths lead to it. Sizes are bytes, times hours, temperatures °C. All texts are cleaned of
//! control characters and bounded (256 characters), but not escaped for HTML or a shell. Absent values are `None`: most hardware leaves something out.

use crate::judge::Health;
use crate::usage::signature_text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A disk of this machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Disk {
    /// What the kernel calls it now, such as `sda`; of several paths the first. It may be another disk's after a restart.
    pub name: String,
    /// The path to give to a pool: the multipath map if there is one, otherwise [`Disk::by_id`], otherwise `/dev/NAME`.
    pub device: String,
    /// The same disk again, in whatever port: see [`Identity`].
    pub identity: Identity,
    /// The best link in `/dev/disk/by-id`, see [`crate::link_rank`].
    pub by_id: Option<String>,
    /// The link in `/dev/disk/by-path`: the port, not the disk.
    pub by_path: Option<String>,
    pub model: Option<String>,
    /// As the disk says, or as its model number shows (`ST…` is Seagate); absent where it only says `ATA`.
    pub vendor: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    /// World-wide name: `0x5000c500…` (NAA) or `eui.…`, `uuid.…` (NVMe).
    pub wwn: Option<String>,
    /// Bytes; 0 when there is no medium or it does not answer.
    pub size: u64,
    pub sector_logical: u32,
    pub sector_physical: u32,
    pub rotational: bool,
    pub transport: Transport,
    pub zoned: Zoned,
    pub read_only: bool,
    pub removable: bool,
    /// Host, channel, target and LUN of a SCSI disk's first path: `6:0:12:0`.
    pub hctl: Option<String>,
    pub slot: Option<Slot>,
    /// At least one; more where several ways lead to the same disk.
    pub paths: Vec<DiskPath>,
    /// The device-mapper device that joins the paths, such as `dm-3`. NVMe joins them by itself.
    pub multipath: Option<String>,
    pub partitions: Vec<Partition>,
    pub contents: Contents,
    /// Where the machine itself lives on it, one sentence each; empty: this is no system disk.
    pub system: Vec<String>,
    /// Why the disk is not free; empty: nothing is on it, and nothing uses it.
    pub not_free: Vec<NotFree>,
    /// Absent until it was read.
    pub health: Option<Health>,
}

impl Disk {
    /// Whether a pool can have the disk without anything being lost.
    pub fn is_free(&self) -> bool {
        self.not_free.is_empty()
    }
    /// Whether the machine itself lives on it.
    pub fn is_system(&self) -> bool {
        !self.system.is_empty()
    }
    /// What was found on it, one sentence each: signatures, partitions and what those hold.
    pub fn contents_in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let what = |found: &Signature| {
            let label = found.label.as_ref().map_or(String::new(), |label| format!(", labelled {label}"));
            format!("{}{label}", signature_text(found.usage, &found.kind))
        };
        words.extend(self.contents.signatures.iter().map(|found| format!("It holds {}.", what(found))));
        if let (Some(table), []) = (&self.contents.partition_table, &*self.partitions) {
            words.push(format!("It has an empty partition table ({table})."));
        }
        words.extend(self.partitions.iter().map(|partition| match &partition.signature {
            Some(found) => format!("Partition {} holds {}.", partition.name, what(found)),
            None => format!("Partition {} holds nothing that is known.", partition.name),
        }));
        words
    }
    /// Where it sits, as precisely as is known: enclosure and slot, the port, or SCSI numbers.
    pub fn place(&self) -> Option<String> {
        let slot = self.slot.as_ref().map(ToString::to_string);
        slot.or_else(|| self.by_path.clone()).or_else(|| self.hctl.clone())
    }
}

/// What makes a disk the same disk in another port and after a restart: its world-wide name; without one, model and serial number; without
/// that, too, only its place. Disks that claim the same name (cheap bridges do) are told apart by their serial numbers, and then by their places.
/// No two disks of one inventory have the same. For comparing and as a key, not for taking apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(pub String);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a disk is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Sata,
    Sas,
    /// NVMe over PCI Express.
    Nvme,
    /// NVMe over TCP, RDMA or Fibre Channel.
    NvmeFabrics,
    FibreChannel,
    Iscsi,
    Usb,
    /// A virtual disk of KVM, as a block device or behind a virtual SCSI controller.
    Virtio,
    /// A virtual disk of Xen, Hyper-V or VMware.
    Virtual,
    Mmc,
    /// Persistent memory.
    Pmem,
    Loop,
    Nbd,
    /// SCSI, but no more is known.
    Scsi,
    Other,
}

/// Whether a disk must be written in zones (SMR). A pool cannot use a host-managed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Zoned {
    #[default]
    No,
    HostAware,
    HostManaged,
}

/// One way to a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskPath {
    pub name: String,
    pub hctl: Option<String>,
    pub by_path: Option<String>,
    /// `running`, `offline`, `transport-offline`, `live`, …: what the kernel says of it.
    pub state: Option<String>,
}

/// Where a disk sits.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Slot {
    /// The enclosure's logical identifier; absent for a slot of the machine's own (PCI).
    pub enclosure: Option<String>,
    /// Vendor and model of the enclosure.
    pub model: Option<String>,
    /// Its number as the enclosure counts.
    pub number: Option<u32>,
    /// What the enclosure or the machine calls it: `Slot 07`.
    pub label: String,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.enclosure {
            Some(enclosure) => write!(f, "enclosure {enclosure}, {}", self.label),
            None => write!(f, "PCI slot {}", self.label),
        }
    }
}

/// A partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Partition {
    pub name: String,
    pub number: Option<u32>,
    pub size: u64,
    /// The type in the partition table: a GUID, or `0x83`.
    pub kind: Option<String>,
    pub label: Option<String>,
    pub signature: Option<Signature>,
}

/// What is known of a whole disk's contents.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Contents {
    pub source: ContentsSource,
    /// `gpt`, `dos`, …
    pub partition_table: Option<String>,
    pub signatures: Vec<Signature>,
}

/// Where the knowledge of a disk's contents comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentsSource {
    /// Not read yet, neither by udev nor by this crate.
    #[default]
    Unknown,
    /// udev looked when the disk appeared. It does not know Forebay's labels, so this does not make a disk free.
    Udev,
    /// The disk itself was read, see [`crate::Examiner::read_contents`].
    Disk,
    /// Reading it failed.
    Failed(String),
}

/// Something that was found on a disk or partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Signature {
    pub usage: SignatureUsage,
    /// As libblkid names it: `ext4`, `linux_raid_member`, `LVM2_member`, `crypto_LUKS`, `zfs_member`, `forebay`.
    pub kind: String,
    pub label: Option<String>,
    pub uuid: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignatureUsage {
    FileSystem,
    Swap,
    /// Software RAID, LVM, ZFS, bcache: a member of something.
    Member,
    Encrypted,
    /// A disk of a Forebay pool.
    Forebay,
    Other,
}

/// One reason why a disk is not free.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NotFree {
    pub kind: NotFreeKind,
    /// One sentence for people.
    pub text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotFreeKind {
    /// The machine itself lives on it.
    System,
    Mounted,
    Swap,
    /// Part of a RAID array, a volume group, an encrypted or another mapped device, or behind a loop device.
    Member,
    Forebay,
    Partitions,
    Signature,
    /// Not read, or reading failed.
    Unread,
    /// It cannot be written, has no medium, or only takes writes in order.
    Unusable,
}
