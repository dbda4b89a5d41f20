//! Does a running pool answer workloads as clients ask them, and is nothing left of them afterwards? Are jobs and catalogues read as they are written?
//!
//! Method: the real daemon and its command line; a configuration of one small volume, live over NBD.

mod common;
use common::{Daemon, Place};
use serde_json::json;

const CONFIGURATION: &str = r#"
name = "small"
title = "One volume"

[machine]
disk = "NVMe flash"
memory-mib = 64
scale = 16
warm-seconds = 1
seconds = 2

[[workload]]
name = "mixed"
block-kib = 8
read-percent = 70
access = "random"
size-gib = 1
outstanding = 4
volume-block-kib = 8

[[case]]
name = "alone"
pool = [{ layout = "mirror", groups = 1, workloads = ["mixed"] }]
"#;

#[test]
fn a_running_pool_is_asked_and_left_as_it_was() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["volume", "create", "tank/mine", "--size", "16M"]).expect(0);
    std::fs::write(place.path().join("small.toml"), CONFIGURATION).expect("a file");
    let live = ["validate", "run", "./small.toml", "--live", "--nbd", &daemon.nbd];
    place.run(&live).expect(2).says("--pool");
    place.run(&[&live[..], &["--pool", "tonk"]].concat()).expect(3);
    place.run(&[&live[..], &["--pool", "tank", "--case", "none"]].concat()).expect(2).says("no such case");
    let reports = place.json(&[&live[..], &["--pool", "tank"]].concat());
    let client = &reports[0]["clients"][0];
    assert_eq!((&reports[0]["kind"], &client["failed"]), (&json!("live"), &json!(0)), "{reports}");
    assert!(client["live"]["iops"].as_f64().is_some_and(|iops| iops > 10.0), "{client}");
    // Somebody's volume is there still, and nothing else.
    let volumes = place.json(&["volume", "list"]);
    let names: Vec<&str> = volumes["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|volume| volume["name"].as_str())
        .collect();
    assert_eq!(names, ["tank/mine"]);
    assert_eq!(place.json(&["project", "list"])["items"], json!([]));
    assert_eq!(place.json(&["volume", "trash"])["items"], json!([]));
    daemon.stop();
}

#[test]
fn jobs_of_fio_become_workloads_or_are_refused_by_name() {
    let place = Place::new();
    let job = |text: &str| std::fs::write(place.path().join("job.fio"), text).expect("a file");
    job("[oltp]\nrw=randrw\nrwmixread=70\nbs=8k\niodepth=16\nsize=20g\n");
    let printed = place.run(&["validate", "import", "job.fio"]).expect(0).out;
    assert!(printed.contains("read-percent = 70"), "{printed}");
    job("[oltp]\nrw=randrw\nverify=md5\n");
    place.run(&["validate", "import", "job.fio"]).expect(2).says("line 3: verify=md5");
}
