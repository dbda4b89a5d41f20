//! Do hosts, mappings, levels and thresholds go with a pool's disks to another machine and back, and does what was changed last win?
//!
//! Method: the real daemon twice, with a data directory each; the disks are files that both can open. One of the two is killed with its pool.

use crate::common::{Daemon, Place, mapped, wait_until};
use serde_json::{Value, json};

const SECRET: &str = "0123456789abcdef";
/// A part of the last change, as the registry has it.
const LAST: &[u8] = b"\"lun\":13";

fn begin(place: &Place) -> (Daemon, String) {
    let daemon = Daemon::start(place);
    let secret = place.run(&["token", "create", "robot", "--role", "operator"]).expect(0).out;
    (daemon, secret.trim().to_string())
}

/// The message of the newest event with this code.
fn event(place: &Place, code: &str) -> String {
    let events = place.json(&["event", "list"])["items"].clone();
    let mut events = events.as_array().expect("a list").iter().rev();
    let found = events.find(|event| event["code"] == json!(code));
    found.map(|event| event["message"].as_str().expect("a text").to_string()).unwrap_or_default()
}

/// What the hosts of a place prove themselves with.
fn remembered(place: &Place, host: &str) -> Value {
    let text = std::fs::read(place.data().join("hosts")).expect("it is written");
    let content: Value = serde_json::from_slice(&text).expect("it is JSON");
    let hosts = content["hosts"].as_array().expect("a list").clone();
    hosts.into_iter().find(|one| one["name"] == json!(host)).unwrap_or_default()
}

#[test]
fn a_pool_brings_its_hosts_mappings_and_levels_along() {
    let (here, there) = (Place::new(), Place::new());
    let disks = here.disks();
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    let (daemon, secret) = begin(&here);
    let api = daemon.api(&secret);
    here.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    let chap = ["host", "create", "esx1", "--iqn", "iqn.2026-01.example:esx1", "--chap", "esx1"];
    here.run_with(&chap, SECRET).expect(0);
    for name in ["esx2", "esx3", "unused"] {
        here.run(&["host", "create", name, "--iqn", &format!("iqn.2026-01.example:{name}")]).expect(0);
    }
    here.run(&["host", "group", "create", "cluster", "--host", "esx2", "esx3"]).expect(0);
    here.run(&["level", "create", "gold", "--max-iops", "5000"]).expect(0);
    here.run(&["level", "create", "silver", "--max-iops", "500"]).expect(0);
    for name in ["tank/vm1", "tank/vm2"] {
        here.run(&["volume", "create", name, "--size", "16M"]).expect(0);
    }
    here.run(&["volume", "map", "tank/vm1", "--host", "esx1", "--lun", "7"]).expect(0);
    here.run(&["volume", "map", "tank/vm2", "--host", "cluster", "--lun", "3"]).expect(0);
    here.run(&["volume", "set", "tank/vm1", "--level", "gold"]).expect(0);
    here.run(&["project", "create", "tank/web", "--host", "cluster", "esx1"]).expect(0);
    here.run(&["volume", "create", "tank/web/a", "--size", "16M"]).expect(0);
    here.run(&["pool", "set", "tank", "--threshold", "70"]).expect(0);
    let before = mapped(&api);
    assert_eq!(
        before,
        ["tank/vm1 esx1 7", "tank/vm2 cluster 3", "tank/web/a cluster 0", "tank/web/a esx1 0"]
    );
    here.run(&["pool", "export", "tank"]).expect(0);

    // To a machine that knows nothing.
    let (other_daemon, secret) = begin(&there);
    let other = other_daemon.api(&secret);
    there.run(&[&["pool", "import", "tank"], &disks[..]].concat()).expect(0);
    assert_eq!(mapped(&other), before);
    let mut came = remembered(&there, "esx1");
    assert!(came.as_object_mut().expect("a host").remove("came_with").is_some());
    assert_eq!(came, remembered(&here, "esx1"));
    assert_eq!(remembered(&there, "esx1")["chap"]["secret"], json!(SECRET));
    assert_eq!(remembered(&there, "unused"), Value::Null);
    assert_eq!(there.json(&["volume", "show", "tank/vm1"])["spec"]["level"], json!("gold"));
    assert_eq!(there.json(&["level", "show", "gold"])["spec"], here.json(&["level", "show", "gold"])["spec"]);
    there.run(&["level", "show", "silver"]).expect(3);
    let status = there.run(&["pool", "status", "tank"]).expect(0).out;
    assert!(status.contains("alerts at 70 %"), "{status}");
    assert_eq!(there.json(&["project", "show", "tank/web"])["spec"]["hosts"], json!(["cluster", "esx1"]));
    let told = event(&there, "registry.taken");
    assert!(
        told.contains("hosts esx1 (iqn") && told.contains("1 host group, 4 new mappings, 1 project"),
        "{told}"
    );
    assert_eq!(event(&there, "registry.left_out"), "");

    // What is changed there is there when it comes back.
    there.run(&["host", "create", "esx9", "--iqn", "iqn.2026-01.example:esx9"]).expect(0);
    there.run(&["volume", "unmap", "tank/vm1", "--host", "esx1"]).expect(0);
    there.run(&["volume", "map", "tank/vm1", "--host", "esx9", "--lun", "1"]).expect(0);
    there.run(&["project", "set", "tank/web", "--host", "cluster"]).expect(0);
    there.run(&["host", "set", "esx2", "--iqn", "iqn.2026-01.example:new-adapter"]).expect(0);
    there.run(&["level", "set", "gold", "--max-iops", "6000"]).expect(0);
    there.run(&["pool", "set", "tank", "--threshold", "60"]).expect(0);
    let changed = ["tank/vm1 esx9 1", "tank/vm2 cluster 3", "tank/web/a cluster 0"];
    assert_eq!(mapped(&other), changed);
    there.run(&["pool", "export", "tank"]).expect(0);
    here.run(&["pool", "import", "tank", "a", "b"]).expect(0);
    assert_eq!(mapped(&api), changed);
    assert_eq!(remembered(&here, "esx2")["initiators"], json!(["iqn.2026-01.example:new-adapter"]));
    assert_eq!(here.json(&["level", "show", "gold"])["spec"]["max_iops"], json!(6000));
    assert!(here.run(&["pool", "status", "tank"]).expect(0).out.contains("alerts at 60 %"));
    let told = event(&here, "registry.taken");
    assert!(
        told.contains("changed: host esx2") && told.contains("level gold") && told.contains("mapping"),
        "{told}"
    );
    assert_eq!(event(&here, "registry.left_out"), "");
    assert_eq!(here.json(&["project", "show", "tank/web"])["spec"]["hosts"], json!(["cluster"]));

    // A crash takes nothing back, nor does a change while the pool is exported.
    here.run(&["volume", "map", "tank/vm2", "--host", "esx1", "--lun", "12"]).expect(0);
    daemon.kill();
    let daemon = Daemon::start(&here);
    let api = daemon.api(here.run(&["token", "create", "more", "--role", "operator"]).expect(0).out.trim());
    let crashed = ["tank/vm1 esx9 1", "tank/vm2 cluster 3", "tank/vm2 esx1 12", "tank/web/a cluster 0"];
    assert_eq!(mapped(&api), crashed);
    here.run(&["pool", "export", "tank"]).expect(0);
    here.run(&["volume", "unmap", "tank/vm2", "--host", "esx1"]).expect(0);
    here.run(&["pool", "import", "tank", "a", "b"]).expect(0);
    assert_eq!(mapped(&api), changed);

    // The machine is gone, and its last change is with the disks.
    here.run(&["volume", "map", "tank/vm2", "--host", "esx1", "--lun", "13"]).expect(0);
    let disk = here.path().join("a");
    wait_until("the pool has a copy of the mapping", || {
        let bytes = std::fs::read(&disk).expect("the disk can be read");
        bytes.windows(LAST.len()).any(|window| window == LAST)
    });
    daemon.kill();
    there.run(&[&["pool", "import", "tank", "--force"], &disks[..]].concat()).expect(0);
    let gone = ["tank/vm1 esx9 1", "tank/vm2 cluster 3", "tank/vm2 esx1 13", "tank/web/a cluster 0"];
    assert_eq!(mapped(&other), gone);
    for code in ["registry.left_out", "registry.failed", "registry.unreadable"] {
        assert_eq!(event(&there, code), "", "{code}");
    }
    other_daemon.stop();
    here.run(&["check", "--offline", "a", "b"]).expect(0);
}
