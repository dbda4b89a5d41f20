//! Does the program list the disks of the machine, and offer none that is in use?
//!
//! Method: the real daemon on the machine that runs the test. What it says of the disk below the root file system is compared with what the kernel says.

use crate::common::{Daemon, Place};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's name of the disk that the root file system is on; nothing where that is on no disk (a container), or where sysfs is not this machine's.
fn root_disk() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let device = fs::metadata("/").expect("there is a root").dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mut at: PathBuf = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if at.join("partition").exists() {
        at.pop();
    }
    let name = at.file_name()?.to_string_lossy().into_owned();
    // Of device-mapper and the like it is not a disk itself.
    Path::new("/sys/block").join(&name).join("device").exists().then_some(name)
}

fn items(list: &Value) -> Vec<&Value> {
    list["items"].as_array().expect("a list").iter().collect()
}

/// Goal: API and command line list the same disks; the system disk is one, and is neither free nor offered; each that is not free says why, and each
/// how it is, or why that is not known.
#[test]
fn the_system_disk_is_listed_and_never_offered() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let secret = place.json(&["token", "create", "t", "--role", "viewer"]);
    let reply = daemon.api(secret["secret"].as_str().expect("a secret")).get("/api/v1/machine/disks");
    assert_eq!(reply.status, 200);
    let list = reply.json();
    for disk in items(&list) {
        let has = |name: &str| disk[name].as_array().is_some_and(|list| !list.is_empty());
        assert_eq!(disk["free"].as_bool(), Some(!has("not_free")), "{disk}");
        let is_good = disk["health"]["state"] == "good";
        let reasons = disk["health"]["reasons"].as_array().expect("a list");
        assert_eq!(is_good, reasons.is_empty(), "{disk}");
    }
    let free = place.json(&["disk", "list", "--free"]);
    assert!(items(&free).iter().all(|disk| disk["free"] == true && disk["system"] == false), "{free}");
    let all = place.json(&["disk", "list", "--machine"]);
    assert_eq!(items(&all).len(), items(&list).len());
    place.run(&["disk", "list", "--machine", "--free"]).expect(2);
    place.run(&["disk", "list", "--free"]).expect(0);
    place.run(&["disk", "list", "--machine"]).expect(0);
    match root_disk() {
        Some(name) => {
            let disk = items(&list).into_iter().find(|disk| disk["name"] == *name);
            let disk = disk.unwrap_or_else(|| panic!("{name} is in no list: {list}"));
            assert_eq!(
                (disk["system"].as_bool(), disk["free"].as_bool()),
                (Some(true), Some(false)),
                "{disk}"
            );
            assert!(items(&free).iter().all(|disk| disk["name"] != *name), "{free}");
        }
        None => eprintln!("SKIPPED in part: the root file system is on no disk that sysfs shows"),
    }
    // What is no disk is refused with the way to find one.
    let missing = place.path().join("missing").display().to_string();
    place.run(&["pool", "create", "tank", "--layout", "single", &missing]).says("forebay disk list --free");
    daemon.stop();
}
