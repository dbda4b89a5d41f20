//! Are disks asked with bounds: in time, in number, without waking them; and is a disk free only when it was read?

use crate::machine::{Machine, Scsi, TB};
use forebay_hardware::{Examiner, Inventory, NoReading, NotFreeKind, Options, Reading, SignatureUsage};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn options(machine: &Machine) -> Options {
    let smartctl = Some(fixtures().join("fake-smartctl"));
    Options { root: machine.root().into(), smartctl, time_max: Duration::from_secs(20), ..Options::default() }
}

fn machine(disks: usize) -> Machine {
    let machine = Machine::new();
    for nth in 0..disks {
        let name = format!("sd{}", (b'a' + nth as u8) as char);
        let (number, hctl) = (format!("8:{}", nth * 16), format!("{nth}:0:0:0"));
        let (serial, wwid) = (format!("ZGY{nth}"), format!("naa.5000c500{nth:08x}"));
        machine.scsi(&Scsi {
            name: &name,
            number: &number,
            hctl: &hctl,
            serial: &serial,
            wwid: &wwid,
            bytes: 8 << 20,
            ..Scsi::default()
        });
        // Where a disk is, a file is.
        fs::File::create(machine.path(&format!("dev/{name}")))
            .and_then(|file| file.set_len(8 << 20))
            .expect("a file can be made");
    }
    fs::create_dir(machine.path("smart")).expect("a directory can be made");
    machine
}

fn answer(machine: &Machine, name: &str, fixture: &str) {
    let from = fixtures().join(format!("smart/{fixture}.json"));
    fs::copy(from, machine.path(&format!("smart/{name}.json"))).expect("the answer is there");
}

#[test]
fn each_disk_is_asked_once_without_waking_it_and_answers_come_in_order() {
    let machine = machine(6);
    for (name, fixture) in [
        ("sda", "ata-seagate-exos-x16"),
        ("sdb", "none-standby-7.3"),
        ("sdc", "scsi-hitachi-failing"),
        ("sdd", "none-truncated"),
        ("sde", "nvme-intel-p4510"),
    ] {
        answer(&machine, name, fixture);
    }
    let disks = machine.read().disks;
    let readings = Examiner::new(options(&machine)).read_health_of(&disks, Duration::from_secs(60));
    let passed = |reading: &Reading| match reading {
        Reading::Values(smart) => smart.passed,
        _ => None,
    };
    assert_eq!(
        readings.iter().map(passed).collect::<Vec<_>>(),
        [Some(true), None, Some(false), None, Some(true), None]
    );
    assert_eq!(readings[1], Reading::Standby);
    assert!(matches!(
        &readings[3..],
        [Reading::None(NoReading::Unreadable(_)), _, Reading::None(NoReading::Unreadable(_))]
    ));
    for disk in &disks {
        let asked =
            fs::read_to_string(machine.path(&format!("smart/{}.asked", disk.name))).expect("it was asked");
        let node = machine.path(&format!("dev/{}", disk.name));
        assert_eq!(asked, format!("--json=c -x -n standby,3 {}\n", node.display()));
    }
}

#[test]
fn a_disk_that_hangs_keeps_nobody_and_the_others_answer() {
    let machine = machine(4);
    machine.write("smart/sdb.hang", "");
    for name in ["sda", "sdc", "sdd"] {
        answer(&machine, name, "ata-seagate-exos-x16");
    }
    let options = Options { time_max: Duration::from_secs(2), ..options(&machine) };
    let begun = Instant::now();
    let readings = Examiner::new(options).read_health_of(&machine.read().disks, Duration::from_secs(60));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(readings[1], Reading::None(NoReading::TimedOut(2)));
    assert!([0, 2, 3].iter().all(|at| matches!(readings[*at], Reading::Values(_))));
}

#[test]
fn the_budget_ends_a_round_and_few_are_asked_at_once() {
    let machine = machine(12);
    for nth in 0..12u8 {
        machine.write(&format!("smart/sd{}.slow", (b'a' + nth) as char), "");
    }
    let disks = machine.read().disks;
    let options = Options { at_once: 2, ..options(&machine) };
    // Each takes 0.3 s, so two at a time need 1.8 s.
    let begun = Instant::now();
    let readings = Examiner::new(options.clone()).read_health_of(&disks, Duration::from_secs(60));
    assert!(begun.elapsed() >= Duration::from_millis(1700), "{:?}", begun.elapsed());
    assert_eq!(readings.len(), 12);
    let readings = Examiner::new(options).read_health_of(&disks, Duration::from_millis(700));
    let asked = readings.iter().filter(|reading| **reading != Reading::None(NoReading::NotAsked)).count();
    assert!((1..12).contains(&asked), "{asked}");
}

#[test]
fn answers_without_end_and_absent_programs_are_told() {
    let machine = machine(1);
    machine.write("smart/sda.json", " ".repeat(3 << 20));
    let disk = &machine.read().disks[0];
    assert_eq!(Examiner::new(options(&machine)).read_health(disk), Reading::None(NoReading::TooLong));
    let absent = Options { smartctl: Some("/no/such/smartctl".into()), ..options(&machine) };
    assert_eq!(Examiner::new(absent).read_health(disk), Reading::None(NoReading::NotInstalled));
}

#[test]
fn a_query_that_the_budget_cuts_short_is_not_held_against_the_disk() {
    let machine = machine(1);
    machine.write("smart/sda.hang", "");
    let readings =
        Examiner::new(options(&machine)).read_health_of(&machine.read().disks, Duration::from_millis(300));
    assert_eq!(readings, [Reading::None(NoReading::NotAsked)]);
}

fn read_contents(machine: &Machine) -> Inventory {
    let mut inventory = machine.read();
    Examiner::new(options(machine)).read_contents(&mut inventory, Duration::from_secs(60));
    inventory
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().write(true).open(path).expect("there is a file");
    file.write_all_at(bytes, at).expect("it can be written");
}

#[test]
fn a_disk_is_free_once_it_was_read_and_has_nothing() {
    let machine = machine(1);
    assert!(!machine.read().disks[0].is_free(), "not before");
    let disk = &read_contents(&machine).disks[0];
    assert!(disk.is_free(), "{:?}", disk.not_free);

    // Forebay's label in any of its places; 16 swap headers' worth of nothing between.
    for at in [0, 64 << 10, 1 << 20, (8 << 20) - (64 << 10)] {
        let machine = self::machine(1);
        write_at(&machine.path("dev/sda"), at, b"FOREBAY\x02");
        let disk = &read_contents(&machine).disks[0];
        let kinds: Vec<_> = disk.not_free.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [NotFreeKind::Forebay], "at {at}");
        assert_eq!(disk.contents.signatures[0].usage, SignatureUsage::Forebay);
    }

    // A swap signature, which wipefs knows: magic in the last ten bytes of the first page.
    let machine = self::machine(1);
    write_at(&machine.path("dev/sda"), 1024, &[1, 0, 0, 0, 0xff, 0x7, 0, 0]);
    write_at(&machine.path("dev/sda"), 4086, b"SWAPSPACE2");
    let disk = &read_contents(&machine).disks[0];
    assert_eq!(disk.not_free.iter().map(|one| &*one.text).collect::<Vec<_>>(), ["It holds swap space."]);
}

#[test]
fn a_disk_that_cannot_be_read_is_not_free() {
    let machine = machine(2);
    machine.remove("dev/sda");
    let inventory = read_contents(&machine);
    assert_eq!(inventory.disks[0].not_free[0].kind, NotFreeKind::Unread);
    assert!(
        inventory.disks[0].not_free[0].text.contains("cannot be read"),
        "{:?}",
        inventory.disks[0].not_free
    );
    assert!(inventory.disks[1].is_free());
    // A truncated device gives nothing at its end.
    let machine = self::machine(1);
    machine.write("sys/block/sda/size", format!("{}\n", TB / 512));
    assert!(!read_contents(&machine).disks[0].is_free());
}

#[test]
fn disks_in_use_are_not_read() {
    let machine = machine(2);
    machine.mount("8:0", "/srv", "ext4", "/dev/sda");
    machine.remove("dev/sda");
    let inventory = read_contents(&machine);
    assert_eq!(
        inventory.disks[0].not_free.iter().map(|one| one.kind).collect::<Vec<_>>(),
        [NotFreeKind::Mounted]
    );
}
