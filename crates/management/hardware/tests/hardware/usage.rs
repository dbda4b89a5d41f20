//! Does it see who uses a disk, through whatever lies between, and where the machine itself lives?

use crate::machine::{ATA_BUS, Machine, Scsi, TB};
use forebay_hardware::{ContentsSource, NotFreeKind, SignatureUsage};

fn texts(machine: &Machine, name: &str) -> Vec<String> {
    machine.disk(name).not_free.into_iter().map(|one| one.text).collect()
}

fn kinds(machine: &Machine, name: &str) -> Vec<NotFreeKind> {
    machine.disk(name).not_free.into_iter().map(|one| one.kind).collect()
}

fn second() -> Scsi<'static> {
    Scsi {
        name: "sdb",
        number: "8:16",
        hctl: "1:0:0:0",
        serial: "ZGY1",
        wwid: "naa.5000c500a1b2c3d5",
        ..Scsi::default()
    }
}

#[test]
fn a_partitioned_system_disk_is_one() {
    let machine = Machine::new();
    let place = machine.scsi(&Scsi::default());
    for (nth, bytes) in [(1, 512 << 20), (2, TB), (3, 8 << 30)] {
        machine.partition(&place, &format!("sda{nth}"), &format!("8:{nth}"), nth, bytes);
    }
    machine.udev("8:0", &[("DEVTYPE", "disk"), ("ID_PART_TABLE_TYPE", "gpt")]);
    machine.udev(
        "8:1",
        &[
            ("ID_PART_ENTRY_TYPE", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"),
            ("ID_FS_TYPE", "vfat"),
            ("ID_FS_USAGE", "filesystem"),
        ],
    );
    machine.udev(
        "8:2",
        &[
            ("ID_FS_TYPE", "ext4"),
            ("ID_FS_USAGE", "filesystem"),
            ("ID_FS_LABEL_ENC", "ro\\x20ot"),
            ("ID_PART_ENTRY_NAME", "system"),
        ],
    );
    machine.mount("8:2", "/", "ext4", "/dev/root");
    machine.mount("8:1", "/boot/efi", "vfat", "/dev/sda1");
    machine.swap("/dev/sda3", "partition");
    let disk = machine.disk("sda");
    assert_eq!(
        disk.system,
        [
            "sda1, on this disk, is mounted at /boot/efi.",
            "sda2, on this disk, is mounted at /.",
            "sda3, on this disk, is swap space.",
            "sda1 is an EFI system partition.",
        ]
    );
    assert!(disk.is_system() && !disk.is_free());
    assert_eq!(disk.partitions.len(), 3);
    assert_eq!((disk.partitions[0].number, disk.partitions[0].size), (Some(1), 512 << 20));
    let root = disk.partitions[1].signature.as_ref().expect("there is one");
    assert_eq!(
        (root.usage, &*root.kind, root.label.as_deref()),
        (SignatureUsage::FileSystem, "ext4", Some("ro ot"))
    );
    let texts = texts(&machine, "sda");
    for text in [
        "sda2, on this disk, is mounted at /.",
        "It has 3 partitions (gpt).",
        "sda2 holds a file system (ext4).",
    ] {
        assert!(texts.iter().any(|one| one == text), "{text} of {texts:#?}");
    }
    // Another disk with nothing on it is only unread.
    machine.scsi(&second());
    assert_eq!(kinds(&machine, "sdb"), [NotFreeKind::Unread]);
    machine.udev("8:16", &[("DEVTYPE", "disk")]);
    assert_eq!(machine.disk("sdb").contents.source, ContentsSource::Udev);
    assert_eq!(kinds(&machine, "sdb"), [NotFreeKind::Unread], "udev does not know Forebay's labels");
}

#[test]
fn the_system_is_found_through_raid_and_lvm() {
    let machine = Machine::new();
    let (one, two) = (machine.scsi(&Scsi::default()), machine.scsi(&second()));
    machine.partition(&one, "sda1", "8:1", 1, TB);
    machine.partition(&two, "sdb1", "8:17", 1, TB);
    let array =
        machine.made_of("md0", "9:0", &[("sda1", &format!("{one}/sda1")), ("sdb1", &format!("{two}/sdb1"))]);
    let crypt = machine.map("dm-0", "253:0", "luks-1", "CRYPT-LUKS2-abc", &[("md0", &array)]);
    machine.map("dm-1", "253:1", "vg-root", "LVM-def", &[("dm-0", &crypt)]);
    machine.map("dm-2", "253:2", "vg-swap", "LVM-ghi", &[("dm-0", &crypt)]);
    machine.mount("253:1", "/", "ext4", "/dev/mapper/vg-root");
    machine.swap("/dev/dm-2", "partition");
    for name in ["sda", "sdb"] {
        let disk = machine.disk(name);
        assert_eq!(
            disk.system,
            [
                "dm-1 (vg-root), on this disk, is mounted at /.",
                "dm-2 (vg-swap), on this disk, is swap space."
            ]
        );
        let texts = texts(&machine, name);
        for text in [
            "part of the RAID array md0",
            "part of the encrypted device luks-1",
            "part of the logical volume vg-root",
        ] {
            assert!(texts.iter().any(|one| one.contains(text)), "{text} of {texts:#?}");
        }
    }
}

#[test]
fn swap_files_and_btrfs_and_loops_count() {
    let machine = Machine::new();
    machine.scsi(&Scsi::default());
    machine.scsi(&second());
    // btrfs has a device number of its own, and names one of its devices.
    machine.mount("0:45", "/var", "btrfs", "/dev/sda");
    machine.link("sys/fs/btrfs/6b1f2d3c-0000/devices/sda", "sys/block/sda");
    machine.link("sys/fs/btrfs/6b1f2d3c-0000/devices/sdb", "sys/block/sdb");
    machine.swap("/var/swap\\040file", "file");
    assert_eq!(machine.disk("sda").system, ["sda is mounted at /var.", "sda has a swap file."]);
    assert_eq!(
        machine.disk("sdb").system,
        ["sdb is mounted at /var.", "sdb has a swap file."],
        "it holds parts of both"
    );

    let machine = Machine::new();
    machine.scsi(&Scsi::default());
    let place = machine.block("loop3", "7:3", "virtual/block", TB);
    machine.write(&format!("{place}/loop/backing_file"), "/dev/sda\n");
    assert_eq!(texts(&machine, "sda"), ["sda is part of the loop device loop3."]);
    machine.mount("7:3", "/mnt/my\\040image", "ext4", "/dev/loop3");
    assert!(texts(&machine, "sda").contains(&"loop3, on this disk, is mounted at /mnt/my image.".to_owned()));
    assert!(!machine.disk("sda").is_system());
}

#[test]
fn mounts_of_process_1_count_and_sources_by_link_do() {
    let machine = Machine::new();
    machine.scsi(&Scsi::default());
    machine.scsi(&second());
    machine.write("proc/1/mountinfo", "31 1 8:0 / /home rw - xfs /dev/sda rw\n");
    machine.by_id("wwn-0x5000c500a1b2c3d5", "sdb");
    machine.mount("0:50", "/srv", "bcachefs", "/dev/none:/dev/disk/by-id/wwn-0x5000c500a1b2c3d5");
    assert_eq!(texts(&machine, "sda"), ["sda is mounted at /home."]);
    assert_eq!(texts(&machine, "sdb"), ["sdb is mounted at /srv."]);
}

#[test]
fn signatures_of_the_whole_disk_count() {
    let machine = Machine::new();
    machine.scsi(&Scsi::default());
    let cases = [
        (
            vec![("ID_FS_TYPE", "linux_raid_member"), ("ID_FS_USAGE", "raid")],
            "It holds part of a volume group or array (linux_raid_member).",
        ),
        (
            vec![("ID_FS_TYPE", "LVM2_member"), ("ID_FS_USAGE", "raid")],
            "It holds part of a volume group or array (LVM2_member).",
        ),
        (
            vec![("ID_FS_TYPE", "crypto_LUKS"), ("ID_FS_USAGE", "crypto")],
            "It holds encrypted data (crypto_LUKS).",
        ),
        (
            vec![("ID_FS_TYPE", "zfs_member"), ("ID_FS_USAGE", "filesystem"), ("ID_FS_LABEL", "tank")],
            "It holds part of a volume group or array (zfs_member), labelled tank.",
        ),
        (vec![("ID_FS_TYPE", "swap"), ("ID_FS_USAGE", "other")], "It holds swap space."),
        (
            vec![("ID_FS_AMBIVALENT", "filesystem:xfs:0 filesystem:ext4:0")],
            "It holds data with the signature filesystem:xfs:0 filesystem:ext4:0.",
        ),
        (vec![("ID_PART_TABLE_TYPE", "dos")], "It has an empty partition table (dos)."),
    ];
    for (properties, text) in cases {
        machine.udev("8:0", &properties);
        assert_eq!(texts(&machine, "sda"), [text]);
    }
}

#[test]
fn thousands_of_volumes_on_a_disk_stay_a_few_sentences() {
    let machine = Machine::new();
    let place = machine.scsi(&Scsi { bus: ATA_BUS, ..Scsi::default() });
    for nth in 0..300 {
        machine.map(
            &format!("dm-{nth}"),
            &format!("253:{nth}"),
            &format!("vg-{nth}"),
            &format!("LVM-{nth}"),
            &[("sda", &place)],
        );
        machine.mount(&format!("253:{nth}"), &format!("/srv/{nth}"), "ext4", "x");
    }
    for nth in 0..100 {
        machine.mount("8:0", &format!("/a/{nth}"), "ext4", "x");
    }
    machine.mount("8:0", "/usr", "ext4", "x");
    // A circle, which only a tree that lies has.
    machine.link("sys/devices/virtual/block/dm-0/holders/dm-0", "sys/devices/virtual/block/dm-0");
    let disk = machine.disk("sda");
    assert!(disk.not_free.len() <= 24, "{}", disk.not_free.len());
    assert_eq!(disk.system, ["sda is mounted at /usr."], "the one that matters is among a hundred");
}
