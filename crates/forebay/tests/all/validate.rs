//! Does a running pool answer workloads as clients ask them, and is nothing left of them afterwards? Are jobs and catalogues read as they are written? Is every
//! request of a client in a trace, and can it be asked again?
//!
//! Method: the real daemon and its command line; a configuration of one small volume, live over NBD and iSCSI.

use crate::common::{Daemon, Nbd, PATIENCE, Place};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

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
figures = [{ workload = "mixed", measure = "iops", value = 1000.0 }]
"#;

#[test]
fn a_running_pool_is_asked_and_left_as_it_was() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["host", "create", "mine", "--iqn", "iqn.1998-01.com.vmware:mine"]).expect(0);
    place.run(&["volume", "create", "tank/mine", "--size", "16M", "--host", "mine"]).expect(0);
    std::fs::write(place.path().join("small.toml"), CONFIGURATION).expect("a file");
    let live = ["validate", "run", "./small.toml", "--live", "--nbd", &daemon.nbd];
    place.run(&live).expect(2).says("--pool");
    place.run(&[&live[..], &["--pool", "tonk"]].concat()).expect(3);
    place.run(&[&live[..], &["--pool", "tank", "--case", "none"]].concat()).expect(2).says("no such case");
    place
        .run(&[&live[..], &["--pool", "tank", "--iscsi", &daemon.iscsi[0]]].concat())
        .expect(2)
        .says("--nbd");
    let over_nbd = place.json(&[&live[..], &["--pool", "tank"]].concat());
    let over_iscsi =
        [&live[..4], &["--pool", "tank", "--iscsi", &daemon.iscsi[0], "--report", "live.html"]].concat();
    let over_iscsi = place.json(&over_iscsi);
    for (reports, over) in [(&over_nbd, "NBD"), (&over_iscsi, "iSCSI")] {
        let live = &reports[0]["cases"][0]["live"];
        assert_eq!((&live["pool"], &live["over"]), (&json!("tank"), &json!(over)), "{reports}");
        let client = &live["clients"][0];
        assert_eq!((&client["failed"], &client["model"]), (&json!(0), &json!(null)), "{reports}");
        assert!(client["iops"].as_f64().is_some_and(|iops| iops > 10.0), "{client}");
        let figure = &reports[0]["cases"][0]["figures"][0];
        assert_eq!((&figure["ours"], &figure["live"]), (&json!(null), &client["iops"]), "{reports}");
    }
    let page = std::fs::read_to_string(place.path().join("live.html")).expect("it was written");
    assert!(
        page.contains("Live on pool tank over iSCSI") && page.contains("<th>Live / published</th>"),
        "{page}"
    );
    // Somebody's volume is there still, and nothing else.
    let names = |list: &[&str]| -> Vec<String> {
        let list = place.json(list);
        let items = list["items"].as_array().into_iter().flatten();
        items.filter_map(|item| Some(item["name"].as_str()?.to_string())).collect()
    };
    assert_eq!(names(&["volume", "list"]), ["tank/mine"]);
    assert_eq!(names(&["host", "list"]), ["mine"]);
    for list in ["project", "session"] {
        assert_eq!(place.json(&[list, "list"])["items"], json!([]));
    }
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

/// A line of a trace: microseconds, kind, where, bytes, microseconds until the answer.
fn line(text: &str) -> (u64, &str, u64, u64, u64) {
    let parts: Vec<&str> = text.split(' ').collect();
    let [since, kind, at, bytes, took] = parts[..] else { panic!("'{text}' is no request") };
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("'{text}' is no number"));
    (number(since), kind, number(at), number(bytes), number(took))
}

#[test]
fn a_trace_has_what_was_asked_and_is_asked_again() {
    let place = Place::new();
    place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["volume", "create", "tank/db", "--size", "64M", "--block-size", "8K"]).expect(0);
    place.run(&["volume", "create", "tank/other", "--size", "64M"]).expect(0);
    place.run(&["volume", "trace", "tank/none"]).expect(3);
    place.run(&["volume", "trace", "tank/db", "--seconds", "0"]).expect(2);
    let secret = place.json(&["token", "create", "t", "--role", "operator"])["secret"].clone();
    let api = daemon.api(secret.as_str().expect("it is text"));
    let refused = api.get("/api/v1/volumes/tank%2Fdb/trace?seconds=4000").problem(400, "invalid");
    assert_eq!(refused["field"], "seconds", "{refused}");
    // This client is there before, and is traced all the same.
    let mut client = Nbd::open(&daemon.nbd, "tank/db");
    let mut other = Nbd::open(&daemon.nbd, "tank/other");
    client.write(0, &[1; 4096]);
    let trace = thread::scope(|scope| {
        let trace =
            scope.spawn(|| place.run(&["volume", "trace", "tank/db", "--seconds", "5"]).expect(0).out);
        let begun = || {
            let events = place.json(&["event", "list"]).to_string();
            events.contains("volume.traced")
        };
        let start = Instant::now();
        while !begun() {
            assert!(start.elapsed() < PATIENCE, "the trace did not begin");
            thread::sleep(Duration::from_millis(50));
        }
        api.get("/api/v1/volumes/tank%2Fdb/trace").problem(409, "conflict");
        (0..50).for_each(|nth| client.write((nth * 7 % 50) * 8192, &[nth as u8 + 1; 8192]));
        other.write(0, &[1; 4096]);
        client.flush();
        thread::sleep(Duration::from_millis(300));
        (0..30).for_each(|nth| drop(client.read(nth * 4096, 12288)));
        trace.join().expect("the trace came")
    });
    let lines: Vec<&str> = trace.lines().collect();
    let [head, volume, requests @ .., end] = &lines[..] else { panic!("no trace: {trace}") };
    assert_eq!((*head, *end), ("forebay-trace 1", "end 81 0"));
    assert!(volume.starts_with("volume tank/db 67108864 8192 1"), "{volume}");
    let requests: Vec<_> = requests.iter().map(|text| line(text)).collect();
    let found: Vec<_> = requests.iter().map(|(_, kind, at, bytes, _)| (*kind, *at, *bytes)).collect();
    let writes = (0..50).map(|nth| ("w", (nth * 7 % 50) * 8192, 8192));
    let reads = (0..30).map(|nth| ("r", nth * 4096, 12288));
    let asked: Vec<_> = writes.chain([("f", 0, 0)]).chain(reads).collect();
    assert_eq!(found, asked);
    // One at a time: each begins after the answer to the one before, and the pause is seen.
    for pair in requests.windows(2) {
        let ((since, .., took), (next, ..)) = (pair[0], pair[1]);
        assert!(next + 1 >= since + took, "{pair:?}");
    }
    assert!(requests[0].0 == 0 && requests[51].0 - requests[50].0 >= 300_000, "{requests:?}");
    let audit = place.json(&["audit", "list"]);
    let traced = |status: u64| {
        let entries = audit["items"].as_array().expect("a list").iter();
        entries.filter(|one| one["operation"] == "VolumeTrace" && one["status"] == status).count()
    };
    assert_eq!((traced(200), traced(409)), (1, 1), "{audit}");
    // Over, so that it can be had again.
    place.run(&["volume", "trace", "tank/db", "--seconds", "1"]).expect(0);

    std::fs::write(place.path().join("db.trace"), &trace).expect("a file");
    let workload = place.run(&["validate", "import", "db.trace"]).expect(0).out;
    for told in [
        "# 80 reads and writes",
        "name = \"db\"",
        "read-percent = 37",
        "trace = \"db.trace\"",
        "volume-block-kib = 8",
    ] {
        assert!(workload.contains(told), "no {told} in {workload}");
    }
    let (start, end) = (CONFIGURATION.find("[[workload]]"), CONFIGURATION.find("[[case]]"));
    let (Some(start), Some(end)) = (start, end) else { unreachable!("it has both") };
    let again =
        format!("{}{workload}{}", &CONFIGURATION[..start], CONFIGURATION[end..].replace("mixed", "db"));
    // Measuring a pool of disks takes less of the simulator than one of flash.
    let again = again.replace("NVMe flash", "15K");
    std::fs::write(place.path().join("again.toml"), again).expect("a file");
    let report = place.json(&["validate", "run", "./again.toml", "--model"]);
    let client = &report[0]["cases"][0]["clients"][0];
    // All 80 come within less than a second or two, again and again.
    assert_eq!((&client["workload"], &client["failed"]), (&json!("db"), &json!(0)), "{client}");
    assert!(client["iops"].as_f64().is_some_and(|iops| iops > 40.0), "{client}");
    std::fs::write(place.path().join("db.trace"), trace.replace("\nend", "\nand")).expect("a file");
    place.run(&["validate", "run", "./again.toml", "--model"]).expect(2).says("db.trace");
    place.run(&["validate", "import", "db.trace"]).expect(2).says("is not a request");
    daemon.stop();
}
