//! Is each disk listed once, as what it is and where it sits?

use crate::machine::{ATA_BUS, Machine, SAS_BUS, Scsi, TB};
use forebay_hardware::{Inventory, NotFreeKind, Transport, Zoned};
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn a_sata_disk_is_known_by_what_udev_and_the_kernel_say() {
    let machine = Machine::new();
    machine.scsi(&Scsi::default());
    machine.by_id("ata-ST4000VN008-2DR166_ZGY0FAKE", "sda");
    machine.by_id("wwn-0x5000c500a1b2c3d4", "sda");
    machine.by_id("wwn-0x5000c500a1b2c3d4-part1", "sda1");
    machine.by_path("pci-0000:00:1f.2-ata-1.0", "sda");
    machine.by_path("pci-0000:00:1f.2-ata-1", "sda");
    let disk = machine.disk("sda");
    assert_eq!(disk.model.as_deref(), Some("ST4000VN008-2DR1"), "16 characters are all that the kernel has");
    machine.udev(
        "8:0",
        &[
            ("DEVTYPE", "disk"),
            ("ID_MODEL_ENC", "ST4000VN008-2DR166\\x20\\x20"),
            ("ID_REVISION", "SC60-FULL"),
        ],
    );
    let disk = machine.disk("sda");
    assert_eq!(disk.model.as_deref(), Some("ST4000VN008-2DR166"));
    assert_eq!((disk.vendor.as_deref(), disk.serial.as_deref()), (Some("Seagate"), Some("ZGY0FAKE")));
    assert_eq!(
        (disk.firmware.as_deref(), disk.wwn.as_deref()),
        (Some("SC60-FULL"), Some("0x5000c500a1b2c3d4"))
    );
    assert_eq!((disk.size, disk.sector_logical, disk.sector_physical), (4 * TB / 512 * 512, 512, 4096));
    assert_eq!((disk.transport, disk.zoned, disk.rotational), (Transport::Sata, Zoned::No, true));
    assert_eq!((disk.read_only, disk.removable, disk.hctl.as_deref()), (false, false, Some("0:0:0:0")));
    assert_eq!(disk.by_id.as_deref(), Some("/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"));
    assert_eq!(disk.device, "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4");
    assert_eq!(disk.by_path.as_deref(), Some("/dev/disk/by-path/pci-0000:00:1f.2-ata-1"));
    assert_eq!(disk.identity.0, "wwn:0x5000c500a1b2c3d4");
    let inventory = machine.read();
    for path in [
        "/dev/sda",
        "sda",
        "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4",
        "/dev/disk/by-path/pci-0000:00:1f.2-ata-1",
    ] {
        assert_eq!(inventory.find_path(path).map(|disk| &*disk.name), Some("sda"), "{path}");
    }
    assert!(inventory.find_path("/dev/sdz").is_none() && inventory.find(&disk.identity).is_some());
}

#[test]
fn a_disk_in_a_shelf_is_where_the_enclosure_says() {
    let machine = Machine::new();
    let sas = Scsi {
        bus: SAS_BUS,
        hctl: "6:0:7:0",
        vendor: "SEAGATE ",
        model: "ST8000NM0075    ",
        serial: "ZA1FAKEJ",
        wwid: "naa.5000c5008a8b8c8d",
        bytes: 8 * TB,
        ..Scsi::default()
    };
    machine.scsi(&sas);
    let sata = Scsi {
        name: "sdb",
        number: "8:16",
        bus: SAS_BUS,
        hctl: "6:0:8:0",
        wwid: "naa.5000c5001",
        serial: "ZGY1",
        ..Scsi::default()
    };
    machine.scsi(&sata);
    machine.slot("6:0:24:0", "0x500304800123457f", "Slot 07", 7, &format!("{SAS_BUS}/target6:0:7/6:0:7:0"));
    machine.write("sys/class/enclosure/6:0:24:0/Slot 08/slot", "8\n");
    let disk = machine.disk("sda");
    let slot = disk.slot.clone().expect("it sits in one");
    assert_eq!(
        (slot.enclosure.as_deref(), slot.model.as_deref()),
        (Some("0x500304800123457f"), Some("SMC SC846N4"))
    );
    assert_eq!((slot.number, &*slot.label), (Some(7), "Slot 07"));
    assert_eq!(disk.place().as_deref(), Some("enclosure 0x500304800123457f, Slot 07"));
    assert_eq!(
        (disk.transport, disk.vendor.as_deref(), disk.serial.as_deref()),
        (Transport::Sas, Some("SEAGATE"), Some("ZA1FAKEJ"))
    );
    assert_eq!(machine.disk("sdb").transport, Transport::Sata, "also behind a SAS controller");
    assert_eq!(machine.disk("sdb").slot, None);
}

#[test]
fn an_nvme_disk_has_its_slot_and_its_name() {
    let machine = Machine::new();
    machine.nvme("nvme0n1", "259:0", "0000:3b:00.0", "0025385c21404d5d");
    machine.write("sys/bus/pci/slots/12/address", "0000:3b:00\n");
    machine.by_id("nvme-Samsung_SSD_980_PRO_1TB_S5GXFAKEQ", "nvme0n1");
    machine.by_id("nvme-eui.0025385c21404d5d", "nvme0n1");
    let disk = machine.disk("nvme0n1");
    assert_eq!((disk.transport, disk.rotational), (Transport::Nvme, false));
    assert_eq!(
        (disk.model.as_deref(), disk.vendor.as_deref()),
        (Some("Samsung SSD 980 PRO 1TB"), Some("Samsung"))
    );
    assert_eq!((disk.serial.as_deref(), disk.firmware.as_deref()), (Some("S5GXFAKEQ"), Some("5B2QGXA7")));
    assert_eq!(disk.wwn.as_deref(), Some("eui.0025385c21404d5d"));
    assert_eq!(disk.by_id.as_deref(), Some("/dev/disk/by-id/nvme-eui.0025385c21404d5d"));
    assert_eq!(disk.place().as_deref(), Some("PCI slot 12"));
    machine.write("sys/devices/pci0000:00/0000:00:1d.0/0000:3b:00.0/nvme/nvme0/transport", "tcp\n");
    assert_eq!(machine.disk("nvme0n1").transport, Transport::NvmeFabrics);
}

#[test]
fn nvme_that_joins_its_paths_itself_is_one_disk() {
    let machine = Machine::new();
    let place = machine.block("nvme0n1", "259:0", "virtual/nvme-subsystem/nvme-subsys0", TB);
    let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
    machine.link(&format!("{place}/device"), subsystem);
    machine.write(&format!("{place}/wwid"), "uuid.6b1f2d3c-0000-4000-8000-00000000000a\n");
    for controller in ["nvme0", "nvme1"] {
        let number = &controller[4..];
        let real = format!("sys/devices/pci0000:00/0000:00:1d.{number}/nvme/{controller}");
        machine.write(&format!("{real}/state"), "live\n");
        machine.write(&format!("{real}/transport"), "tcp\n");
        let path = machine.block(&format!("nvme0c{number}n1"), "0:0", &real["sys/devices/".len()..], TB);
        machine.write(&format!("{path}/hidden"), "1\n");
        machine.link(&format!("{subsystem}/{controller}"), &real);
    }
    let inventory = machine.read();
    assert_eq!(inventory.disks.len(), 1);
    let names: Vec<&str> = inventory.disks[0].paths.iter().map(|path| &*path.name).collect();
    assert_eq!(names, ["nvme0c0n1", "nvme0c1n1"]);
    assert_eq!(inventory.disks[0].transport, Transport::NvmeFabrics);
}

#[test]
fn two_paths_are_one_disk_with_and_without_a_multipath_map() {
    let machine = Machine::new();
    let other_bus = SAS_BUS.replace("host6", "host7");
    let first = Scsi {
        name: "sdb",
        number: "8:16",
        bus: SAS_BUS,
        hctl: "6:0:3:0",
        vendor: "HGST",
        model: "HUH721212AL5200",
        ..Scsi::default()
    };
    let second = Scsi { name: "sdaa", number: "65:160", bus: &other_bus, hctl: "7:0:3:0", ..first.clone() };
    let (one, two) = (machine.scsi(&first), machine.scsi(&second));
    machine.by_id("wwn-0x5000c500a1b2c3d4", "sdaa");
    let inventory = machine.read();
    assert_eq!(inventory.disks.len(), 1, "without a map");
    let disk = &inventory.disks[0];
    let paths: Vec<_> =
        disk.paths.iter().map(|path| (&*path.name, path.hctl.as_deref(), path.state.as_deref())).collect();
    assert_eq!(
        paths,
        [("sdb", Some("6:0:3:0"), Some("running")), ("sdaa", Some("7:0:3:0"), Some("running"))]
    );
    assert_eq!((disk.multipath.as_deref(), &*disk.device), (None, "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"));

    let map =
        machine.map("dm-3", "253:3", "mpatha", "mpath-35000c500a1b2c3d4", &[("sdb", &one), ("sdaa", &two)]);
    let inventory = machine.read();
    assert_eq!(inventory.disks.len(), 1, "with a map");
    let disk = &inventory.disks[0];
    assert_eq!(
        (disk.multipath.as_deref(), &*disk.device, disk.paths.len()),
        (Some("dm-3"), "/dev/mapper/mpatha", 2)
    );
    assert!(
        disk.not_free.iter().all(|one| one.kind == NotFreeKind::Unread),
        "the map is the disk itself: {:?}",
        disk.not_free
    );
    assert_eq!(inventory.find_path("/dev/mapper/mpatha").map(|disk| &*disk.name), Some("sdb"));

    // What lies on the map uses the disk.
    machine.map("dm-4", "253:4", "vg-data", "LVM-abc", &[("dm-3", &map)]);
    machine.mount("253:4", "/srv", "xfs", "/dev/mapper/vg-data");
    let texts: Vec<String> = machine.disk("sdb").not_free.into_iter().map(|one| one.text).collect();
    assert_eq!(
        texts,
        ["dm-4 (vg-data), on this disk, is mounted at /srv.", "dm-3 is part of the logical volume vg-data."]
    );
}

#[test]
fn disks_that_share_a_name_by_mistake_stay_apart() {
    let machine = Machine::new();
    let first = Scsi { serial: "AAA111", ..Scsi::default() };
    machine.scsi(&first);
    machine.scsi(&Scsi { name: "sdb", number: "8:16", hctl: "1:0:0:0", serial: "AAA222", ..first.clone() });
    machine.scsi(&Scsi {
        name: "sdc",
        number: "8:32",
        hctl: "2:0:0:0",
        serial: "",
        bytes: 2 * TB,
        ..first.clone()
    });
    // A bridge that gives all its disks one serial number, and names of zeros.
    for (name, number, hctl) in [("sdd", "8:48", "3:0:0:0"), ("sde", "8:64", "3:0:0:1")] {
        let bus = "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host3";
        let disk = Scsi {
            name,
            number,
            hctl,
            bus,
            serial: "0123456789ABCDE",
            wwid: "naa.5000000000000000",
            ..first.clone()
        };
        machine.scsi(&disk);
    }
    // The first halves of long names are the array's.
    for (name, number, hctl, last) in [("sdf", "8:80", "4:0:0:0", "1"), ("sdg", "8:96", "4:0:0:1", "2")] {
        machine.scsi(&Scsi { name, number, hctl, serial: "", wwid: "", vendor: "DELL", ..first.clone() });
        let long = format!("0x6001405aabbccdd0000000000000000{last}");
        machine.udev(number, &[("ID_WWN", "0x6001405aabbccdd0"), ("ID_WWN_WITH_EXTENSION", &long)]);
    }
    let inventory = machine.read();
    let mut names: Vec<&str> = inventory.disks.iter().map(|disk| &*disk.identity.0).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 7, "{names:?}");
    assert_eq!(machine.disk("sdd").transport, Transport::Usb);
    assert_eq!(machine.disk("sdd").wwn, None);
}

#[test]
fn what_is_no_disk_is_not_listed() {
    let machine = Machine::new();
    let place = machine.scsi(&Scsi::default());
    machine.made_of("md0", "9:0", &[("sda", &place)]);
    machine.map("dm-0", "253:0", "vg-root", "LVM-x", &[]);
    for (name, device) in [
        ("zram0", "virtual/block"),
        ("ram0", "virtual/block"),
        ("loop0", "virtual/block"),
        ("nbd0", "virtual/block"),
    ] {
        machine.block(name, "1:1", device, 0);
    }
    let cdrom = machine.scsi(&Scsi { name: "sr0", number: "11:0", hctl: "1:0:0:0", ..Scsi::default() });
    machine.write(&format!("{cdrom}/device/type"), "5\n");
    machine.block("mmcblk0boot0", "179:8", "platform/mmc_host/mmc0/mmc0:0001", TB);
    let names: Vec<String> = machine.read().disks.into_iter().map(|disk| disk.name).collect();
    assert_eq!(names, ["sda"]);
}

#[test]
fn virtual_loop_and_odd_disks_are_what_they_are() {
    let machine = Machine::new();
    let place = machine.block("vda", "254:0", "pci0000:00/0000:00:02.0/virtio1", TB);
    machine.write(&format!("{place}/serial"), "disk-1\n");
    machine.write("sys/devices/pci0000:00/0000:00:02.0/virtio1/vendor", "0x1af4\n");
    machine.link(&format!("{place}/device"), "sys/devices/pci0000:00/0000:00:02.0/virtio1");
    machine.by_id("virtio-disk-1", "vda");
    let place = machine.block("loop0", "7:0", "virtual/block", 1 << 30);
    machine.write(&format!("{place}/loop/backing_file"), "/srv/image.raw\n");
    let place = machine.scsi(&Scsi { hctl: "1:0:0:0", ..Scsi::default() });
    machine.write(&format!("{place}/queue/zoned"), "host-managed\n");
    machine.write(&format!("{place}/ro"), "1\n");
    machine.write(&format!("{place}/removable"), "1\n");
    machine.block("cciss!c0d0", "104:0", "pci0000:00/0000:00:05.0", TB);
    let disk = machine.disk("vda");
    assert_eq!(
        (disk.transport, disk.serial.as_deref(), disk.vendor),
        (Transport::Virtio, Some("disk-1"), None)
    );
    assert_eq!(
        (&*disk.device, disk.identity.0.as_str()),
        ("/dev/disk/by-id/virtio-disk-1", "serial:/disk-1")
    );
    assert_eq!(machine.disk("loop0").transport, Transport::Loop);
    assert_eq!(machine.disk("cciss!c0d0").device, "/dev/cciss/c0d0");
    let disk = machine.disk("sda");
    assert_eq!((disk.zoned, disk.read_only, disk.removable), (Zoned::HostManaged, true, true));
    let texts: Vec<String> = disk.not_free.into_iter().map(|one| one.text).collect();
    assert_eq!(
        texts,
        [
            "It is read-only.",
            "It can only be written in zones (host-managed SMR), which pools do not support."
        ]
    );
}

#[test]
fn odd_strings_and_absurd_numbers_do_no_harm() {
    let machine = Machine::new();
    let place = machine.scsi(&Scsi {
        vendor: "\x1b[31mEVIL\x07",
        model: "<b>$(reboot)</b>\u{202e}",
        serial: "",
        wwid: "naa.zzzz",
        ..Scsi::default()
    });
    machine
        .write(&format!("{place}/device/vpd_pg80"), [0, 0x80, 0xff, 0xff, b'S', 0xff, b'N', 0, b' ', b'1']);
    machine.write(&format!("{place}/size"), "18446744073709551615\n");
    machine.write(&format!("{place}/queue/logical_block_size"), "513\n");
    machine.write(&format!("{place}/queue/physical_block_size"), "99999999999999999999\n");
    machine.write(
        "run/udev/data/b8:0",
        [b"E:ID_FS_TYPE=\xff\x1b\nE:=\nE\nE:ID_FS_LABEL_ENC=\\x41\\x\n".as_slice(), &[b'x'; 1 << 20]]
            .concat(),
    );
    machine.link("dev/disk/by-id/wwn-0x5;reboot", "dev/sda");
    machine.link("dev/disk/by-id/-rf", "dev/sda");
    machine.write(
        "proc/self/mountinfo",
        [b"\xff\xfe - \n30 1 8:0 / /mnt/\\033[2J\\040x rw - ext4 /dev/sda rw\n".as_slice(), &[b'-'; 4096]]
            .concat(),
    );
    let disk = machine.disk("sda");
    assert_eq!((disk.vendor.as_deref(), disk.model.as_deref()), (Some("[31mEVIL"), Some("<b>$(reboot)</b>")));
    assert_eq!((disk.serial.as_deref(), disk.wwn), (Some("S\u{fffd}N 1"), None));
    assert_eq!((disk.size, disk.sector_logical, disk.sector_physical), (u64::MAX, 512, 512));
    assert_eq!((disk.by_id, &*disk.device), (None, "/dev/sda"));
    assert!(
        disk.not_free.iter().any(|one| one.text.contains("mounted at /mnt/[2J x")),
        "{:?}",
        disk.not_free
    );
    assert!(disk.not_free.iter().all(|one| !one.text.chars().any(char::is_control)));
}

#[test]
fn a_tree_without_anything_has_no_disks() {
    assert!(Inventory::read(Path::new("/no/such/directory")).disks.is_empty());
    let machine = Machine::new();
    assert!(machine.read().disks.is_empty());
    // Links that lead nowhere, out of the tree, and in a circle.
    machine.link("sys/block/sda", "sys/devices/none");
    std::os::unix::fs::symlink("/etc", machine.path("sys/block/sdb")).expect("a link can be made");
    machine.link("sys/block/sdc", "sys/block/sdd");
    machine.link("sys/block/sdd", "sys/block/sdc");
    assert!(machine.read().disks.is_empty());
}

#[test]
fn a_thousand_disks_on_two_paths_are_read_in_time() {
    let machine = Machine::new();
    let (one, two) = (SAS_BUS.to_owned(), SAS_BUS.replace("host6", "host7"));
    for nth in 0..1000u32 {
        let wwid = format!("naa.5000c500{nth:08x}");
        let serial = format!("ZC{nth:06}");
        for (path, bus) in [&one, &two].into_iter().enumerate() {
            let (host, name) = (6 + path, letters(nth * 2 + path as u32));
            let (hctl, number) = (format!("{host}:0:{nth}:0"), format!("{}:{}", 65 + path, nth));
            let disk = Scsi {
                name: &name,
                number: &number,
                bus,
                hctl: &hctl,
                wwid: &wwid,
                serial: &serial,
                vendor: "SEAGATE",
                ..Scsi::default()
            };
            machine.scsi(&disk);
        }
        let (label, device) = (format!("Slot {nth}"), format!("{one}/target6:0:{nth}/6:0:{nth}:0"));
        machine.slot(
            &format!("6:0:{}:0", 2000 + nth / 60),
            &format!("0x5003048{:09x}", nth / 60),
            &label,
            nth % 60,
            &device,
        );
        machine.by_id(&format!("wwn-0x5000c500{nth:08x}"), &letters(nth * 2));
    }
    let begun = Instant::now();
    let inventory = machine.read();
    let took = begun.elapsed();
    println!("1000 disks on two paths each: {took:?}");
    assert_eq!(inventory.disks.len(), 1000);
    assert!(
        inventory
            .disks
            .iter()
            .all(|disk| disk.paths.len() == 2 && disk.slot.is_some() && disk.by_id.is_some())
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
    let first: Vec<&str> = inventory.disks.iter().take(3).map(|disk| &*disk.name).collect();
    assert_eq!((first, &*inventory.disks[999].name), (vec!["sda", "sdc", "sde"], &*letters(1998)));
}

/// The kernel's name of the nth disk: `sda`, …, `sdz`, `sdaa`, ….
fn letters(mut nth: u32) -> String {
    let mut name = Vec::new();
    loop {
        name.push(b'a' + (nth % 26) as u8);
        if nth < 26 {
            break;
        }
        nth = nth / 26 - 1;
    }
    name.reverse();
    format!("sd{}", String::from_utf8(name).expect("letters"))
}

#[test]
fn buses_are_told_apart() {
    let machine = Machine::new();
    let cases = [
        ("sda", "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host3", "WD", Transport::Usb),
        ("sdb", "platform/host5/session1", "LIO-ORG", Transport::Iscsi),
        ("sdc", "pci0000:00/0000:05:00.0/host6/rport-6:0-1", "IBM", Transport::FibreChannel),
        ("sdd", "pci0000:00/0000:00:04.0/virtio2/host2", "QEMU", Transport::Virtio),
        ("sde", ATA_BUS, "ATA", Transport::Sata),
        ("sdf", "pci0000:00/0000:02:00.0/host8", "VMware", Transport::Virtual),
        ("sdg", "pci0000:00/0000:02:00.0/host9", "AVAGO", Transport::Scsi),
    ];
    for (nth, (name, bus, vendor, _)) in cases.iter().enumerate() {
        let (number, hctl, wwid) =
            (format!("8:{}", nth * 16), format!("{nth}:0:0:0"), format!("naa.5000c50000{nth}"));
        machine.scsi(&Scsi {
            name,
            number: &number,
            hctl: &hctl,
            bus,
            vendor,
            wwid: &wwid,
            ..Scsi::default()
        });
    }
    for (name, _, _, transport) in cases {
        assert_eq!(machine.disk(name).transport, transport, "{name}");
    }
}
