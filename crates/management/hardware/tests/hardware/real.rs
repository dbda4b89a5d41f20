//! Does it hold on the machine that runs the tests?

use forebay_hardware::{Examiner, HealthState, Inventory, NoReading, Options, Reading, judge};
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn this_machine_has_a_disk_that_is_not_free_where_it_runs_from_one() {
    let begun = Instant::now();
    let mut inventory = Inventory::read(Path::new("/"));
    assert!(begun.elapsed() < Duration::from_secs(20), "reading /sys opens no disk");
    for disk in &inventory.disks {
        println!(
            "{} {:?} {} bytes, {:?}, {:?}",
            disk.name, disk.identity.0, disk.size, disk.transport, disk.not_free
        );
        assert!(disk.sector_logical.is_power_of_two() && disk.sector_physical >= disk.sector_logical);
        assert!(!disk.paths.is_empty() && disk.device.starts_with("/dev/"));
        assert!(!disk.is_system() || !disk.is_free());
    }
    let mut identities: Vec<_> = inventory.disks.iter().map(|disk| &disk.identity).collect();
    identities.sort();
    identities.dedup();
    assert_eq!(identities.len(), inventory.disks.len());
    let root = std::fs::read_to_string("/proc/self/mountinfo").expect("there is procfs");
    let is_root_on_disk = root.lines().any(|line| line.contains(" / / ") && line.contains(" /dev/"));
    if inventory.disks.is_empty() || !is_root_on_disk {
        println!("skipped: no disk, or the root file system is on none");
        return;
    }
    assert!(inventory.disks.iter().any(|disk| disk.is_system()), "the root file system is on one of them");
    let examiner = Examiner::new(Options::default());
    examiner.read_contents(&mut inventory, Duration::from_secs(30));
    assert!(inventory.disks.iter().filter(|disk| disk.is_system()).all(|disk| !disk.is_free()));
}

#[test]
fn the_installed_smartctl_is_understood() {
    let inventory = Inventory::read(Path::new("/"));
    let examiner = Examiner::new(Options::default());
    let Some(disk) = inventory.disks.first() else {
        println!("skipped: this machine shows no disk");
        return;
    };
    let reading = examiner.read_health(disk);
    println!("{}: {reading:?}", disk.name);
    if reading == Reading::None(NoReading::NotInstalled) {
        println!("skipped: smartctl is not installed; install smartmontools");
        return;
    }
    let is_wrong = matches!(
        reading,
        Reading::None(NoReading::Unreadable(_) | NoReading::TooLong | NoReading::NewFormat(_))
    );
    assert!(!is_wrong, "{reading:?}");
    // Whatever the disk is: it is judged, with a reason where it is not good.
    let health = judge(&reading, None);
    assert_eq!(health.reasons.is_empty(), health.state == HealthState::Good);
}
