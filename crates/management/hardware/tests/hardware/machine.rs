//! A machine in a directory, as the kernel and udev show one.

use forebay_hardware::{Disk, Inventory};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub struct Machine {
    directory: TempDir,
}

/// A SCSI or SATA disk. `port` is its place below the controller: `host6/target6:0:3/6:0:3:0` has the last part as its HCTL.
#[derive(Clone)]
pub struct Scsi<'a> {
    pub name: &'a str,
    pub number: &'a str,
    /// Between `/sys/devices/` and the SCSI device.
    pub bus: &'a str,
    pub hctl: &'a str,
    pub vendor: &'a str,
    pub model: &'a str,
    pub serial: &'a str,
    pub wwid: &'a str,
    pub bytes: u64,
    pub rotational: bool,
}

pub const SAS_BUS: &str =
    "pci0000:00/0000:00:03.0/0000:03:00.0/host6/port-6:0/expander-6:0/port-6:0:1/end_device-6:0:1";
pub const ATA_BUS: &str = "pci0000:00/0000:00:1f.2/ata1/host0";

pub const TB: u64 = 1_000_000_000_000;

impl Default for Scsi<'_> {
    fn default() -> Self {
        Scsi {
            name: "sda",
            number: "8:0",
            bus: ATA_BUS,
            hctl: "0:0:0:0",
            vendor: "ATA     ",
            model: "ST4000VN008-2DR1",
            serial: "ZGY0FAKE",
            wwid: "naa.5000c500a1b2c3d4",
            bytes: 4 * TB,
            rotational: true,
        }
    }
}

impl Machine {
    pub fn new() -> Machine {
        // In memory where there is a place for that: a large machine has tens of thousands of files.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let machine = Machine { directory: directory.expect("a directory can be made") };
        machine.write("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
        machine.write("proc/self/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n");
        machine
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }
    pub fn read(&self) -> Inventory {
        Inventory::read(self.root())
    }
    /// The disk called `name`.
    pub fn disk(&self, name: &str) -> Disk {
        let inventory = self.read();
        let names: Vec<&str> = inventory.disks.iter().map(|disk| &*disk.name).collect();
        inventory
            .disks
            .iter()
            .find(|disk| disk.name == name)
            .unwrap_or_else(|| panic!("{name} of {names:?}"))
            .clone()
    }

    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a file is in a directory"))
            .expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    }
    pub fn append(&self, path: &str, text: &str) {
        let mut all = fs::read_to_string(self.path(path)).unwrap_or_default();
        all.push_str(text);
        self.write(path, all);
    }
    pub fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_symlink() || path.is_file() {
            fs::remove_file(path).expect("it can be removed");
        } else {
            fs::remove_dir_all(path).expect("it can be removed");
        }
    }

    /// A relative link, as in sysfs.
    pub fn link(&self, path: &str, to: &str) {
        let up = "../".repeat(path.matches('/').count());
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a link is in a directory"))
            .expect("a directory can be made");
        symlink(format!("{up}{to}"), path).expect("a link can be made");
    }

    /// A block device at a place of `/sys/devices`, shown in `/sys/block` and `/dev`.
    pub fn block(&self, name: &str, number: &str, device: &str, bytes: u64) -> String {
        let place =
            format!("sys/devices/{device}/block/{name}").replace("/virtual/block/block/", "/virtual/block/");
        self.write(&format!("{place}/dev"), format!("{number}\n"));
        self.write(&format!("{place}/size"), format!("{}\n", bytes / 512));
        for (file, text) in [
            ("ro", "0"),
            ("removable", "0"),
            ("hidden", "0"),
            ("queue/rotational", "0"),
            ("queue/zoned", "none"),
        ] {
            self.write(&format!("{place}/{file}"), format!("{text}\n"));
        }
        self.write(&format!("{place}/queue/logical_block_size"), "512\n");
        self.write(&format!("{place}/queue/physical_block_size"), "4096\n");
        self.link(&format!("sys/block/{name}"), &place);
        self.write(&format!("dev/{}", name.replace('!', "/")), "");
        place
    }

    pub fn scsi(&self, disk: &Scsi) -> String {
        let target = disk.hctl.rsplit_once(':').expect("a HCTL").0;
        let device = format!("{}/target{target}/{}", disk.bus, disk.hctl);
        let place = self.block(disk.name, disk.number, &device, disk.bytes);
        let at = |file: &str| format!("sys/devices/{device}/{file}");
        self.write(&at("vendor"), format!("{}\n", disk.vendor));
        self.write(&at("model"), format!("{}\n", disk.model));
        self.write(&at("rev"), "SC60\n");
        self.write(&at("type"), "0\n");
        self.write(&at("state"), "running\n");
        if !disk.wwid.is_empty() {
            self.write(&at("wwid"), format!("{}\n", disk.wwid));
        }
        if !disk.serial.is_empty() {
            let serial = format!("{:>20}", disk.serial);
            let page = [&[0, 0x80, 0, serial.len() as u8], serial.as_bytes()].concat();
            self.write(&at("vpd_pg80"), page);
        }
        self.write(&format!("{place}/queue/rotational"), if disk.rotational { "1\n" } else { "0\n" });
        self.link(&format!("{place}/device"), &format!("sys/devices/{device}"));
        place
    }

    /// A partition of the disk at `place`.
    pub fn partition(&self, place: &str, name: &str, number: &str, nth: u32, bytes: u64) {
        self.write(&format!("{place}/{name}/dev"), format!("{number}\n"));
        self.write(&format!("{place}/{name}/partition"), format!("{nth}\n"));
        self.write(&format!("{place}/{name}/size"), format!("{}\n", bytes / 512));
    }

    /// A device that is made of others, each with its place in sysfs: `dm-0`, `md0`.
    pub fn made_of(&self, name: &str, number: &str, parts: &[(&str, &str)]) -> String {
        let place = self.block(name, number, "virtual/block", TB);
        for (part, part_place) in parts {
            self.link(&format!("{part_place}/holders/{name}"), &place);
            self.link(&format!("{place}/slaves/{part}"), part_place);
        }
        place
    }
    pub fn map(&self, name: &str, number: &str, label: &str, uuid: &str, parts: &[(&str, &str)]) -> String {
        let place = self.made_of(name, number, parts);
        self.write(&format!("{place}/dm/name"), format!("{label}\n"));
        self.write(&format!("{place}/dm/uuid"), format!("{uuid}\n"));
        place
    }

    pub fn nvme(&self, name: &str, number: &str, pci: &str, eui: &str) -> String {
        let controller = name.split_once('n').and_then(|_| name.rsplit_once('n')).expect("a namespace").0;
        let device = format!("pci0000:00/0000:00:1d.0/{pci}/nvme/{controller}");
        let place = self.block(name, number, &device, TB).replace("/block/", "/");
        // A namespace lies directly below its controller.
        let real = format!("sys/devices/{device}/{name}");
        fs::rename(self.path(&format!("sys/devices/{device}/block/{name}")), self.path(&real))
            .expect("it can be moved");
        self.remove(&format!("sys/block/{name}"));
        self.link(&format!("sys/block/{name}"), &real);
        for (file, text) in [
            ("model", "Samsung SSD 980 PRO 1TB                 "),
            ("serial", "S5GXFAKEQ           "),
            ("firmware_rev", "5B2QGXA7"),
            ("transport", "pcie"),
            ("address", pci),
            ("state", "live"),
        ] {
            self.write(&format!("sys/devices/{device}/{file}"), format!("{text}\n"));
        }
        self.write(&format!("{real}/wwid"), format!("eui.{eui}\n"));
        self.link(&format!("{real}/device"), &format!("sys/devices/{device}"));
        assert_eq!(place, real);
        real
    }

    pub fn udev(&self, number: &str, properties: &[(&str, &str)]) {
        let mut text = String::from("I:12345\n");
        for (key, value) in properties {
            text += &format!("E:{key}={value}\n");
        }
        self.write(&format!("run/udev/data/b{number}"), text);
    }
    pub fn by_id(&self, link: &str, name: &str) {
        self.link(&format!("dev/disk/by-id/{link}"), &format!("dev/{name}"));
    }
    pub fn by_path(&self, link: &str, name: &str) {
        self.link(&format!("dev/disk/by-path/{link}"), &format!("dev/{name}"));
    }
    pub fn mount(&self, number: &str, point: &str, kind: &str, source: &str) {
        let line = format!("30 1 {number} / {point} rw,relatime shared:1 - {kind} {source} rw\n");
        self.append("proc/self/mountinfo", &line);
    }
    pub fn swap(&self, path: &str, kind: &str) {
        self.append(
            "proc/swaps",
            &format!("{path}                               {kind}\t\t8388604\t\t0\t\t-2\n"),
        );
    }
    /// An enclosure slot that holds the SCSI device at `device` of `/sys/devices`.
    pub fn slot(&self, enclosure: &str, id: &str, label: &str, number: u32, device: &str) {
        let place = format!("sys/class/enclosure/{enclosure}");
        self.write(&format!("{place}/id"), format!("{id}\n"));
        self.write(&format!("{place}/device/vendor"), "SMC     \n");
        self.write(&format!("{place}/device/model"), "SC846N4         \n");
        self.write(&format!("{place}/{label}/slot"), format!("{number}\n"));
        self.link(&format!("{place}/{label}/device"), &format!("sys/devices/{device}"));
    }
}
