//! One block device of sysfs: whether it is a disk, and what it says of itself.
//!
//! Left out: what is made of disks (dm, md, bcache), memory (ram, zram), CD and floppy drives, boot areas of MMC, loop and NBD devices without
//! anything behind them, and the single paths of NVMe's own multipath (`nvme0c1n1`, hidden), which are listed with their disk.
//!
//! The kernel cuts ATA model numbers to 16 characters and firmware to 4, so udev's properties go first where there are any.

use crate::disk::{Contents, ContentsSource, DiskPath, Partition, Slot, Transport, Zoned};
use crate::enclosure::{Slots, is_hctl};
use crate::tree::{Tree, clean};
use crate::udev::{Links, Properties};

/// Partitions of one disk: what a GPT of the usual size can name.
const PARTITIONS_MAX: usize = 128;
const SECTOR: u64 = 512;

/// A device that is a disk, or a path of one.
pub(crate) struct Found {
    pub name: String,
    pub model: Option<String>,
    pub vendor: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    pub wwn: Option<String>,
    pub size: u64,
    pub sector_logical: u32,
    pub sector_physical: u32,
    pub rotational: bool,
    pub transport: Transport,
    pub zoned: Zoned,
    pub read_only: bool,
    pub removable: bool,
    pub hctl: Option<String>,
    pub by_path: Option<String>,
    pub slot: Option<Slot>,
    pub state: Option<String>,
    pub partitions: Vec<Partition>,
    pub contents: Contents,
    /// The paths that NVMe joins by itself.
    pub paths: Vec<DiskPath>,
}

impl Found {
    /// Whether another device with the same world-wide name is another path to this disk.
    pub fn is_path_beside(&self, other: &Found) -> bool {
        let same_serial = match (&self.serial, &other.serial) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        // A path that failed has no size.
        let same_size = self.size == other.size || self.size == 0 || other.size == 0;
        same_serial && same_size && self.transport != Transport::Usb
    }

    pub fn path(&self) -> DiskPath {
        let (name, hctl) = (self.name.clone(), self.hctl.clone());
        DiskPath { name, hctl, by_path: self.by_path.clone(), state: self.state.clone() }
    }
}

/// The device called `name`, if it is a disk.
pub(crate) fn find(tree: Tree, name: &str, links: &Links, slots: &Slots) -> Option<Found> {
    let directory = format!("sys/block/{name}");
    let real = tree.resolve(&directory)?;
    let at = |what: &str| format!("{directory}/{what}");
    let size = tree.number(&at("size")).unwrap_or(0).saturating_mul(SECTOR);
    if !is_disk(tree, name, &directory, &real, size) {
        return None;
    }
    let udev =
        tree.text(&at("dev")).map_or_else(Properties::default, |number| Properties::read(tree, &number));
    let device = tree.target_name(&at("device"));
    let hctl = device.clone().filter(|name| is_hctl(name));
    let transport = transport(tree, name, &directory, &real);
    let own_vendor = tree.text(&at("device/vendor")).filter(|_| hctl.is_some());
    let model = udev.decoded("ID_MODEL_ENC").or_else(|| tree.text(&at("device/model")));
    let vendor =
        own_vendor.or_else(|| udev.decoded("ID_VENDOR_ENC").filter(|_| transport != Transport::Virtio));
    let vendor = vendor.filter(|vendor| !matches!(&**vendor, "ATA" | "NVMe" | "VirtIO" | "0x1af4"));
    let vendor = vendor.or_else(|| model.as_deref().and_then(vendor_of).map(str::to_owned));
    let firmware = tree.text(&at("device/firmware_rev"));
    let firmware = firmware.or_else(|| udev.text("ID_REVISION")).or_else(|| tree.text(&at("device/rev")));
    let logical = sector(tree.number(&at("queue/logical_block_size"))).unwrap_or(512);
    let pci = pci_address(&real, tree, &directory);
    let slot = hctl.as_deref().and_then(|hctl| slots.of_scsi(hctl)).or_else(|| slots.of_pci(&pci?));
    Some(Found {
        serial: serial(tree, &directory, &udev),
        wwn: wwn(tree, &directory, &udev),
        sector_logical: logical,
        sector_physical: sector(tree.number(&at("queue/physical_block_size")))
            .unwrap_or(logical)
            .max(logical),
        rotational: tree.flag(&at("queue/rotational")),
        zoned: match tree.text(&at("queue/zoned")).as_deref() {
            Some("host-managed") => Zoned::HostManaged,
            Some("host-aware") => Zoned::HostAware,
            _ => Zoned::No,
        },
        read_only: tree.flag(&at("ro")),
        removable: tree.flag(&at("removable")),
        by_path: links.by_path(name),
        state: tree.text(&at("device/state")),
        partitions: partitions(tree, &directory),
        contents: contents(&udev),
        paths: nvme_paths(tree, name),
        name: name.to_owned(),
        model,
        vendor,
        firmware,
        size,
        transport,
        hctl,
        slot,
    })
}

fn is_disk(tree: Tree, name: &str, directory: &str, real: &str, size: u64) -> bool {
    const NO_DISKS: [&str; 10] = ["dm-", "md", "ram", "zram", "sr", "fd", "bcache", "mtdblock", "drbd", "zd"];
    let is_numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if NO_DISKS.iter().any(|prefix| is_numbered(prefix)) || tree.flag(&format!("{directory}/hidden")) {
        return false;
    }
    if name.starts_with("mmcblk") && (name.contains("boot") || name.contains("rpmb")) {
        return false;
    }
    if is_numbered("loop") {
        return tree.exists(&format!("{directory}/loop/backing_file"));
    }
    if is_numbered("nbd") {
        return size > 0;
    }
    // A SCSI device of another kind than disk (0) or disk with simplified commands (14).
    if tree.number(&format!("{directory}/device/type")).is_some_and(|kind| !matches!(kind, 0 | 14)) {
        return false;
    }
    let is_virtual = real.starts_with("/sys/devices/virtual/");
    !is_virtual || real.contains("/nvme-subsystem/") || is_numbered("rbd")
}

fn transport(tree: Tree, name: &str, directory: &str, real: &str) -> Transport {
    let has = |part: &str| real.contains(part);
    if name.starts_with("nvme") {
        let controller = tree.names(&format!("{directory}/device")).into_iter().find(|entry| {
            entry.strip_prefix("nvme").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
        });
        let inner = controller.map(|controller| format!("{directory}/device/{controller}/transport"));
        let said = tree.text(&format!("{directory}/device/transport")).or_else(|| tree.text(&inner?));
        return match said.as_deref() {
            None | Some("pcie" | "apple-nvme") => Transport::Nvme,
            Some(_) => Transport::NvmeFabrics,
        };
    }
    let is_ata = || tree.text(&format!("{directory}/device/vendor")).as_deref() == Some("ATA");
    match name {
        _ if name.starts_with("loop") => Transport::Loop,
        _ if name.starts_with("nbd") => Transport::Nbd,
        _ if name.starts_with("pmem") => Transport::Pmem,
        _ if name.starts_with("mmcblk") => Transport::Mmc,
        _ if name.starts_with("xvd") => Transport::Virtual,
        _ if has("/usb") => Transport::Usb,
        _ if has("/virtio") => Transport::Virtio,
        _ if has("/session") => Transport::Iscsi,
        _ if has("/rport-") => Transport::FibreChannel,
        // Behind a SAS controller a SATA disk stays one.
        _ if has("/end_device-") && !is_ata() => Transport::Sas,
        _ if has("/ata") || is_ata() => Transport::Sata,
        _ if has("/vmbus") || has("/VMBUS") => Transport::Virtual,
        _ if has("/host") => match tree.text(&format!("{directory}/device/vendor")).as_deref() {
            Some("VMware" | "Msft" | "QEMU") => Transport::Virtual,
            _ => Transport::Scsi,
        },
        _ => Transport::Other,
    }
}

/// A sector size that a disk can have.
fn sector(bytes: Option<u64>) -> Option<u32> {
    bytes.filter(|bytes| bytes.is_power_of_two() && (512..=1 << 20).contains(bytes)).map(|bytes| bytes as u32)
}

/// The disk's own serial number. SCSI: vital product data page 80h (SPC-4, Unit Serial Number): four bytes of header, the length in the last two.
fn serial(tree: Tree, directory: &str, udev: &Properties) -> Option<String> {
    let page = tree.bytes(&format!("{directory}/device/vpd_pg80"), 4 + 255);
    let from_page = page.and_then(|page| {
        let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
        Some(clean(page.get(4..)?.get(..length.min(page.len() - 4))?))
    });
    let texts = [
        udev.text("ID_SCSI_SERIAL"),
        from_page,
        tree.text(&format!("{directory}/device/serial")),
        tree.text(&format!("{directory}/serial")),
        udev.text("ID_SERIAL_SHORT"),
        // `t10.ATA     MODEL      SERIAL`, in fields of fixed width.
        tree.text(&format!("{directory}/device/wwid"))
            .filter(|wwid| wwid.starts_with("t10."))
            .and_then(|wwid| wwid.rsplit_once(' ').map(|(_, serial)| serial.to_owned())),
    ];
    texts.into_iter().flatten().find(|text| is_name(text, 0))
}

/// The world-wide name: the kernel's, or udev's with its extension. `ID_WWN` alone is the first half of a long name, which all volumes of one array
/// share.
fn wwn(tree: Tree, directory: &str, udev: &Properties) -> Option<String> {
    let wwid =
        tree.text(&format!("{directory}/device/wwid")).or_else(|| tree.text(&format!("{directory}/wwid")));
    let texts = [wwid, udev.text("ID_WWN_WITH_EXTENSION"), udev.text("ID_WWN")];
    texts.into_iter().flatten().find_map(|text| {
        let (kind, digits) = match text.split_once('.') {
            Some(("naa", digits)) => ("0x", digits),
            Some(("eui", digits)) => ("eui.", digits),
            Some(("uuid", digits)) => ("uuid.", digits),
            // `nvme.8086-…` and `t10.…` are model and serial number again.
            Some(_) => return None,
            None => match text.strip_prefix("0x") {
                Some(digits) => ("0x", digits),
                None => return None,
            },
        };
        let digits = digits.to_ascii_lowercase();
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        (is_hex && digits.len() >= 8 && is_name(&digits, 1)).then(|| format!("{kind}{digits}"))
    })
}

/// Whether a serial number or a name names anything: behind its first `skipped` digits, which are the type of a name, not only zeros or Fs.
fn is_name(text: &str, skipped: usize) -> bool {
    text.chars().filter(|c| c.is_alphanumeric()).skip(skipped).any(|c| !matches!(c, '0' | 'f' | 'F'))
}

/// Whose model numbers begin like this, where the disk only says `ATA`.
fn vendor_of(model: &str) -> Option<&'static str> {
    const PREFIXES: [(&str, &str); 19] = [
        ("ST", "Seagate"),
        ("WDC", "Western Digital"),
        ("WUH", "Western Digital"),
        ("WUS", "Western Digital"),
        ("WD", "Western Digital"),
        ("HGST", "HGST"),
        ("HUH", "HGST"),
        ("Hitachi", "Hitachi"),
        ("TOSHIBA", "Toshiba"),
        ("KIOXIA", "Kioxia"),
        ("SAMSUNG", "Samsung"),
        ("Samsung", "Samsung"),
        ("MZ", "Samsung"),
        ("INTEL", "Intel"),
        ("SOLIDIGM", "Solidigm"),
        ("Micron", "Micron"),
        ("MTFD", "Micron"),
        ("CT", "Crucial"),
        ("KINGSTON", "Kingston"),
    ];
    let fits = |prefix: &str| {
        let rest = model.strip_prefix(prefix)?;
        // Two letters alone say little: a number has to follow.
        (prefix.len() > 2 || rest.starts_with(|c: char| c.is_ascii_digit()) || prefix == "MZ").then_some(())
    };
    PREFIXES.iter().find(|(prefix, _)| fits(prefix).is_some()).map(|(_, vendor)| *vendor)
}

/// The PCI function that an NVMe disk is, as `0000:3b:00.0`.
fn pci_address(real: &str, tree: Tree, directory: &str) -> Option<String> {
    if !real.contains("/nvme") {
        return None;
    }
    if let Some(address) = tree.text(&format!("{directory}/device/address")) {
        return Some(address);
    }
    let mut functions = real.split('/').rev();
    functions
        .find(|part| part.len() >= 12 && part.contains('.') && part.matches(':').count() == 2)
        .map(str::to_owned)
}

/// The paths of a disk that NVMe joins by itself: `nvme0c1n1` is one of `nvme0n1`.
fn nvme_paths(tree: Tree, name: &str) -> Vec<DiskPath> {
    let Some((subsystem, namespace)) = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n')) else {
        return Vec::new();
    };
    let controllers = tree.names(&format!("sys/block/{name}/device"));
    let mut paths = Vec::new();
    for controller in controllers {
        let Some(number) =
            controller.strip_prefix("nvme").filter(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        let path = format!("nvme{subsystem}c{number}n{namespace}");
        let inner = format!("sys/block/{name}/device/{controller}");
        if tree.exists(&format!("{inner}/{path}")) || tree.exists(&format!("sys/block/{path}")) {
            paths.push(DiskPath {
                name: path,
                hctl: None,
                by_path: None,
                state: tree.text(&format!("{inner}/state")),
            });
        }
    }
    paths
}

fn partitions(tree: Tree, directory: &str) -> Vec<Partition> {
    let names = tree.names(directory);
    let names = names.into_iter().filter(|name| tree.exists(&format!("{directory}/{name}/partition")));
    let read = |name: String| {
        let at = |what: &str| format!("{directory}/{name}/{what}");
        let udev =
            tree.text(&at("dev")).map_or_else(Properties::default, |number| Properties::read(tree, &number));
        Partition {
            number: tree.number(&at("partition")).and_then(|number| u32::try_from(number).ok()),
            size: tree.number(&at("size")).unwrap_or(0).saturating_mul(SECTOR),
            kind: udev.text("ID_PART_ENTRY_TYPE"),
            label: udev.decoded("ID_PART_ENTRY_NAME"),
            signature: udev.signature(),
            name,
        }
    };
    let mut partitions: Vec<Partition> = names.take(PARTITIONS_MAX).map(read).collect();
    partitions.sort_by_key(|partition| partition.number);
    partitions
}

/// What udev found on the whole device.
fn contents(udev: &Properties) -> Contents {
    let looked = udev.is_known && udev.get("DEVTYPE").is_none_or(|kind| kind == "disk");
    Contents {
        source: if looked { ContentsSource::Udev } else { ContentsSource::Unknown },
        partition_table: udev.text("ID_PART_TABLE_TYPE"),
        signatures: udev.signature().into_iter().collect(),
    }
}
