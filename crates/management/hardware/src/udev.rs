//! What udev knows: its database of properties, and the links that it makes.
//!
//! The database is a file for each device, `/run/udev/data/b8:0`, with lines `E:KEY=VALUE` (systemd's `sd-device`; the format is not documented,
//! but has been the same since 2011 and is what `udevadm info` prints). Without udev, as in a container, all of this is absent.

use crate::disk::{Signature, SignatureUsage};
use crate::tree::{Tree, clean, is_plain_name};
use std::collections::{BTreeMap, HashMap};

/// Bytes of one device's record: real ones have some 4 KiB.
const RECORD_MAX: u64 = 64 * 1024;

/// Properties of one device.
#[derive(Default)]
pub(crate) struct Properties {
    values: HashMap<String, String>,
    /// Whether there is a record at all.
    pub is_known: bool,
}

impl Properties {
    /// Those of the device with this number, `8:0`.
    pub fn read(tree: Tree, number: &str) -> Properties {
        let Some(bytes) = tree.bytes(&format!("run/udev/data/b{number}"), RECORD_MAX) else {
            return Properties::default();
        };
        let mut values = HashMap::new();
        for line in bytes.split(|byte| *byte == b'\n') {
            let Some(pair) = line.strip_prefix(b"E:") else { continue };
            let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
            let (key, value) = (clean(&pair[..at]), clean(&pair[at + 1..]));
            if !value.is_empty() {
                values.insert(key, value);
            }
        }
        Properties { values, is_known: true }
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }
    pub fn text(&self, key: &str) -> Option<String> {
        self.get(key).map(str::to_owned)
    }
    /// A property that udev wrote with `\x20` for a space.
    pub fn decoded(&self, key: &str) -> Option<String> {
        let text = clean(&unescape(self.get(key)?.as_bytes(), b"\\x", 16));
        (!text.is_empty()).then_some(text)
    }

    /// The signature of a file system or a member of something.
    pub fn signature(&self) -> Option<Signature> {
        let kind = self.text("ID_FS_TYPE");
        let usage = self.get("ID_FS_USAGE");
        // Two signatures that contradict each other: libblkid gives no type then, but something is there.
        let kind = kind.or_else(|| usage.map(str::to_owned)).or_else(|| self.text("ID_FS_AMBIVALENT"))?;
        let usage = usage_of(&kind, usage);
        let label = self.decoded("ID_FS_LABEL_ENC").or_else(|| self.text("ID_FS_LABEL"));
        Some(Signature { usage, kind, label, uuid: self.text("ID_FS_UUID") })
    }
}

/// What a signature of libblkid is for.
pub(crate) fn usage_of(kind: &str, usage: Option<&str>) -> SignatureUsage {
    match (kind, usage) {
        ("forebay", _) => SignatureUsage::Forebay,
        ("swap" | "swsuspend", _) => SignatureUsage::Swap,
        ("bcache" | "LVM2_member" | "linux_raid_member" | "zfs_member", _) | (_, Some("raid")) => {
            SignatureUsage::Member
        }
        (_, Some("crypto")) => SignatureUsage::Encrypted,
        (_, Some("filesystem")) => SignatureUsage::FileSystem,
        (kind, None) if kind.starts_with("crypto_") || kind == "BitLocker" => SignatureUsage::Encrypted,
        (kind, None) if kind.ends_with("_member") => SignatureUsage::Member,
        (
            "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "vfat" | "exfat" | "ntfs" | "iso9660" | "udf"
            | "f2fs",
            None,
        ) => SignatureUsage::FileSystem,
        _ => SignatureUsage::Other,
    }
}

/// Bytes with escapes of `mark` and a fixed number of digits (two of 16, three of 8) turned back.
pub(crate) fn unescape(bytes: &[u8], mark: &[u8], radix: u32) -> Vec<u8> {
    let digits = if radix == 16 { 2 } else { 3 };
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let from = at + mark.len();
        let code = bytes[at..].starts_with(mark).then(|| bytes.get(from..from + digits)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, radix).ok());
        at = match code {
            Some(byte) => {
                plain.push(byte);
                from + digits
            }
            None => {
                plain.push(bytes[at]);
                at + 1
            }
        };
    }
    plain
}

/// How good a link in `/dev/disk/by-id` is as the lasting name of a disk: lower is better, `None` is no name at all.
///
/// 1. `wwn-`: the world-wide name, the same over SATA, SAS and Fibre Channel and on every path.
/// 2. `nvme-eui.`, `nvme-uuid.`, `nvme-nguid.`: NVMe's.
/// 3. `ata-`: model and serial number.
/// 4. `scsi-3…`: the SCSI identifier, which is the world-wide name again; then other `scsi-` links.
/// 5. `nvme-`: model and serial number; without a namespace number in it, so it comes behind the `eui`.
/// 6. `virtio-`: the serial number that the hypervisor was given.
/// 7. `usb-`, `mmc-`, and others that udev may make.
///
/// Links of one rank: the shorter, then the first in the alphabet. Links of partitions (`-part1`), of LVM and of md are names of something else.
pub fn link_rank(link: &str) -> Option<u8> {
    let is_partition = link
        .rsplit_once("-part")
        .is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if !is_plain_name(link) || is_partition {
        return None;
    }
    const FOREIGN: [&str; 6] = ["lvm-pv-uuid-", "md-", "dm-name-", "dm-uuid-LVM-", "dm-uuid-CRYPT-", "raid-"];
    if FOREIGN.iter().any(|prefix| link.starts_with(prefix)) {
        return None;
    }
    const RANKS: [(&str, u8); 10] = [
        ("wwn-", 0),
        ("nvme-eui.", 1),
        ("nvme-uuid.", 1),
        ("nvme-nguid.", 1),
        ("ata-", 2),
        ("scsi-3", 3),
        ("scsi-", 4),
        ("nvme-", 5),
        ("virtio-", 6),
        ("usb-", 7),
    ];
    Some(RANKS.iter().find(|(prefix, _)| link.starts_with(prefix)).map_or(8, |(_, rank)| *rank))
}

/// Links to devices, by the kernel's name of the device.
pub(crate) struct Links {
    by_id: BTreeMap<String, String>,
    by_path: BTreeMap<String, String>,
}

impl Links {
    pub fn read(tree: Tree) -> Links {
        let mut links = Links { by_id: BTreeMap::new(), by_path: BTreeMap::new() };
        let order = |link: &str| (link_rank(link), link.len(), link.to_owned());
        for link in tree.names("dev/disk/by-id") {
            let directory = "/dev/disk/by-id";
            if link_rank(&link).is_none() {
                continue;
            }
            let Some(target) = tree.target_name(&format!("{directory}/{link}")) else { continue };
            let best = links.by_id.entry(target).or_insert_with(|| link.clone());
            if order(&link) < order(best) {
                *best = link;
            }
        }
        for link in tree.names("dev/disk/by-path").into_iter().filter(|link| is_plain_name(link)) {
            let Some(target) = tree.target_name(&format!("/dev/disk/by-path/{link}")) else { continue };
            // `pci-…-ata-1` and `pci-…-ata-1.0` are one port.
            let best = links.by_path.entry(target).or_insert_with(|| link.clone());
            if link.len() < best.len() {
                *best = link;
            }
        }
        links
    }

    pub fn by_id(&self, name: &str) -> Option<String> {
        self.by_id.get(name).map(|link| format!("/dev/disk/by-id/{link}"))
    }
    pub fn by_path(&self, name: &str) -> Option<String> {
        self.by_path.get(name).map(|link| format!("/dev/disk/by-path/{link}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_turned_back_and_broken_ones_stay() {
        assert_eq!(unescape(b"Samsung\\x20SSD\\x2", b"\\x", 16), b"Samsung SSD\\x2");
        assert_eq!(unescape(b"/mnt/a\\040b\\999", b"\\", 8), b"/mnt/a b\\999");
        assert_eq!(unescape(b"\\x\\x41", b"\\x", 16), b"\\xA");
    }

    #[test]
    fn links_have_an_order() {
        let links = [
            "wwn-0x5000c500a1b2c3d4",
            "nvme-eui.0025385c21404d5d",
            "ata-ST4000VN008-2DR166_ZGY0ABCD",
            "scsi-35000c500a1b2c3d4",
            "scsi-SATA_ST4000VN008_ZGY0ABCD",
            "nvme-Samsung_SSD_980_PRO_1TB_S5GXNX0T000000A",
            "virtio-disk-1",
            "usb-WD_Elements_25A3-0:0",
            "mmc-SD32G_0x12345678",
        ];
        let ranks: Vec<_> = links.iter().map(|link| link_rank(link).expect("a link of a disk")).collect();
        assert_eq!(ranks, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        for none in
            ["wwn-0x5-part1", "lvm-pv-uuid-x", "md-name-x", "dm-uuid-LVM-x", "ata-a b", "ata-$(reboot)"]
        {
            assert_eq!(link_rank(none), None, "{none}");
        }
        assert_eq!(link_rank("ata-part-part"), Some(2), "a model may be called so");
    }
}
