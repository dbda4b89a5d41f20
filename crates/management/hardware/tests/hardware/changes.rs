//! Is a disk known again in another port and after a restart, and are only real changes told?

use crate::machine::{Machine, SAS_BUS, Scsi};
use forebay_hardware::{ChangeKind, Health, HealthState, changes};

fn shelf(disks: &[(&str, u32, &str)]) -> Machine {
    let machine = Machine::new();
    for (nth, (name, slot, serial)) in disks.iter().enumerate() {
        let (number, hctl) = (format!("8:{}", nth * 16), format!("6:0:{}:0", slot + 10));
        let wwid = format!("naa.5000c5000000{serial}");
        machine.scsi(&Scsi {
            name,
            number: &number,
            hctl: &hctl,
            serial,
            wwid: &wwid,
            vendor: "SEAGATE",
            bus: SAS_BUS,
            ..Scsi::default()
        });
        let target = slot + 10;
        machine.slot(
            "6:0:99:0",
            "0x500304800123457f",
            &format!("Slot {slot:02}"),
            *slot,
            &format!("{SAS_BUS}/target6:0:{target}/6:0:{target}:0"),
        );
    }
    machine
}

#[test]
fn disks_that_came_went_and_moved_are_told_and_new_kernel_names_are_not() {
    let before = shelf(&[("sda", 1, "0001"), ("sdb", 2, "0002"), ("sdc", 3, "0003")]).read();
    // After a restart the names are dealt anew: no change.
    let restarted = shelf(&[("sdb", 1, "0001"), ("sdc", 2, "0002"), ("sda", 3, "0003")]).read();
    assert_eq!(changes(&before, &restarted), []);
    // One went, one came, one moved.
    let after = shelf(&[("sda", 5, "0001"), ("sdb", 2, "0002"), ("sdd", 3, "0004")]).read();
    let list = changes(&before, &after);
    let told: Vec<(&str, &ChangeKind)> = list.iter().map(|change| (&*change.name, &change.kind)).collect();
    let moved = ChangeKind::Moved {
        from: "enclosure 0x500304800123457f, Slot 01".into(),
        to: "enclosure 0x500304800123457f, Slot 05".into(),
    };
    assert_eq!(
        told,
        [
            ("ST4000VN008-2DR1 0003", &ChangeKind::Went),
            ("ST4000VN008-2DR1 0004", &ChangeKind::Came),
            ("ST4000VN008-2DR1 0001", &moved),
        ]
    );
}

#[test]
fn health_and_lost_paths_are_changes() {
    let machine = shelf(&[("sda", 1, "0001"), ("sdb", 2, "0002")]);
    let bus = SAS_BUS.replace("host6", "host7");
    let second = Scsi {
        name: "sdz",
        number: "65:0",
        hctl: "7:0:11:0",
        bus: &bus,
        serial: "0001",
        wwid: "naa.5000c50000000001",
        vendor: "SEAGATE",
        ..Scsi::default()
    };
    let place = machine.scsi(&second);
    let health = |state| Some(Health { state, reasons: Vec::new() });
    let mut before = machine.read();
    assert_eq!(before.disks.len(), 2);
    before.disks[0].health = health(HealthState::Good);
    let mut after = before.clone();
    // Nothing is known of the second disk before: no change.
    after.disks[1].health = health(HealthState::Failing);
    assert_eq!(changes(&before, &after), []);
    after.disks[0].health = health(HealthState::Warning);
    let kinds: Vec<ChangeKind> = changes(&before, &after).into_iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Health { from: HealthState::Good, to: HealthState::Warning }]);
    machine.write(&format!("{place}/device/state"), "transport-offline\n");
    let kinds: Vec<ChangeKind> =
        changes(&before, &machine.read()).into_iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Paths { from: 2, to: 1 }]);
}

#[test]
fn a_disk_in_another_port_without_slots_has_moved_by_its_path() {
    let machine = Machine::new();
    machine.scsi(&Scsi::default());
    machine.by_path("pci-0000:00:1f.2-ata-1", "sda");
    let before = machine.read();
    machine.remove("dev/disk/by-path/pci-0000:00:1f.2-ata-1");
    machine.by_path("pci-0000:00:1f.2-ata-4", "sda");
    let list = changes(&before, &machine.read());
    assert!(
        matches!(&list[..], [change] if matches!(&change.kind, ChangeKind::Moved { from, to } if from.ends_with("ata-1") && to.ends_with("ata-4")))
    );
}
