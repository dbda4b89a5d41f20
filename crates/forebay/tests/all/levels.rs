//! Do volumes get what their service level says and no more, at once when it changes, and is all of it there again after a crash?
//!
//! Method: the real daemon, its command line and its REST API; requests go through NBD and are timed against the ceiling, `kill -9` comes in between.

use crate::common::{Api, Daemon, Nbd, PATIENCE, Place};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: u64 = 8192;

/// A level's name of a volume or project, and where it comes from.
fn level(place: &Place, noun: &str, name: &str) -> (String, String) {
    let spec = place.json(&[noun, "show", name])["spec"].clone();
    let text = |value: &Value| value.as_str().expect("a text").to_string();
    (text(&spec["level"]), text(&spec["sources"]["level"]))
}

fn from(level: &str, source: &str) -> (String, String) {
    (level.into(), source.into())
}

/// How long so many writes take, one after the other.
fn time(nbd: &mut Nbd, writes: u64) -> Duration {
    let begun = Instant::now();
    (0..writes).for_each(|nth| nbd.write(nth % 1024 * BLOCK, &[nth as u8; BLOCK as usize]));
    begun.elapsed()
}

/// Begins so many writes; ends with how long they take.
fn write(daemon: &Daemon, volume: &'static str, writes: u64) -> thread::JoinHandle<Duration> {
    let address = daemon.nbd.clone();
    thread::spawn(move || time(&mut Nbd::open(&address, volume), writes))
}

/// A pool with a project and volumes that acknowledge at once: only ceilings hold them back.
fn begin(place: &Place) -> Daemon {
    place.disks();
    let daemon = Daemon::start(place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["project", "create", "tank/db", "--sync", "standard"]).expect(0);
    for name in ["tank/db/data", "tank/db/log"] {
        place.run(&["volume", "create", name, "--size", "16M"]).expect(0);
    }
    daemon
}

#[test]
fn levels_are_made_changed_and_deleted() {
    let place = Place::new();
    let daemon = begin(&place);
    let listed = place.json(&["level", "list"]);
    let names = |listed: &Value| {
        let items = listed["items"].as_array().expect("a list").iter();
        items.map(|level| level["name"].as_str().expect("a name").to_string()).collect::<Vec<_>>()
    };
    let built_in = [
        "business-critical-1",
        "business-critical-2",
        "mission-critical",
        "non-critical-1",
        "non-critical-2",
    ];
    assert_eq!(names(&listed), built_in);
    assert_eq!(listed["items"][2]["spec"]["min_iops"], 75_000);
    assert_eq!(listed["items"][2]["status"]["built_in"], true);
    place
        .run(&["level", "set", "mission-critical", "--class", "non-critical"])
        .expect(4)
        .says("level create");
    place.run(&["level", "delete", "mission-critical"]).expect(4).says("built in");

    let create =
        ["level", "create", "gold", "--class", "mission-critical", "--min-iops", "500", "--latency", "10ms"];
    let plan = place.json(&[&create[..], &["--dry-run"]].concat());
    assert!(plan["changes"].to_string().contains("latency goal of 10ms"), "{plan}");
    place.run(&["level", "show", "gold"]).expect(3).says("level list");
    place.run(&create).expect(0);
    place.run(&create).expect(4).says("another name");
    place.run(&["level", "create", "none"]).expect(4);
    place.run(&["level", "create", "1st"]).expect(2);
    place.run(&["level", "create", "silver", "--max-iops", "9"]).expect(2).says("10 to");
    place.run(&["level", "create", "silver", "--burst", "3s"]).expect(2).says("limit");
    place.run(&["level", "set", "gold", "--max-iops", "499"]).expect(2).says("minimum, 500");
    let set = ["level", "set", "gold", "--max-iops", "1000", "--burst", "30s", "--latency", "none"];
    let plan = place.json(&[&set[..], &["--dry-run"]].concat());
    assert_eq!(plan["changes"].as_array().map(Vec::len), Some(3), "{plan}");
    place.run(&set).expect(0);
    let shown = place.run(&["level", "show", "gold"]).expect(0).out;
    for words in [
        "mission-critical",
        "minimum     500 IOPS",
        "latency     -",
        "limit       1000 IOPS",
        "burst       30s",
    ] {
        assert!(shown.contains(words), "{words} in {shown}");
    }

    // What looks much the same is a change, too.
    place.run(&["level", "set", "gold", "--max-bandwidth", "1450M"]).expect(0);
    let plan = place.json(&["level", "set", "gold", "--max-bandwidth", "1500M", "--dry-run"]);
    assert_eq!(plan["changes"], json!(["rate limit of 1500 MB/s"]));
    place.run(&["level", "set", "gold", "--max-bandwidth", "1500M"]).expect(0);
    let shown = place.run(&["level", "show", "gold"]).expect(0).out;
    assert!(shown.contains("limit       1000 IOPS, 1500 MB/s"), "{shown}");
    for zero in ["--max-iops=0", "--min-bandwidth=0K", "--latency=0ms", "--burst=off"] {
        place.run(&["level", "set", "gold", zero]).expect(2).says("write `none`");
    }

    // The API versions them, and `null` takes a bound away.
    let secret = place.run(&["token", "create", "robot", "--role", "operator"]).expect(0).out;
    let api = daemon.api(secret.trim());
    let made = api.post("/api/v1/levels", json!({"name": "silver", "max_bytes_per_second": 1 << 20}));
    assert_eq!((made.status, made.header("location")), (201, Some("/api/v1/levels/silver")));
    assert_eq!(made.json()["spec"], json!({"class": "business-critical", "max_bytes_per_second": 1 << 20}));
    let tag = made.header("etag").expect("a tag").to_string();
    let set =
        |tag: &str, body| api.call("PATCH", "/api/v1/levels/silver", &format!("If-Match: {tag}"), Some(body));
    let changed = set(&tag, json!({"max_bytes_per_second": null, "min_iops": 7}));
    assert_eq!(changed.json()["spec"], json!({"class": "business-critical", "min_iops": 7}));
    set(&tag, json!({"min_iops": 8})).problem(412, "precondition_failed");
    set("*", json!({"min_iops": 0})).problem(400, "invalid");
    set("*", json!({"floor": 8})).problem(400, "invalid");

    // Nobody loses one by accident.
    place.run(&["project", "set", "tank/db", "--level", "gold"]).expect(0);
    place.run(&["volume", "set", "tank/db/log", "--level", "gold"]).expect(0);
    place.run(&["level", "delete", "gold"]).expect(4).says("project tank/db, volume tank/db/log");
    place.run(&["level", "delete", "gold", "--dry-run"]).expect(4);
    assert_eq!(api.get("/api/v1/levels/gold").json()["status"]["volumes"], 2);
    place.run(&["volume", "set", "tank/db/log", "--inherit", "level"]).expect(0);
    place.run(&["level", "delete", "gold"]).expect(4).says("in use by project tank/db\n");
    place.run(&["project", "set", "tank/db", "--level", "none"]).expect(0);
    place.run(&["level", "delete", "gold"]).expect(0);
    assert_eq!(api.call("DELETE", "/api/v1/levels/silver", "", None).status, 204);
    assert_eq!(names(&place.json(&["level", "list"])), built_in);
    let events = place.run(&["event", "list"]).expect(0).out;
    for code in ["level.created", "level.changed", "level.deleted"] {
        assert!(events.contains(code), "{code} in {events}");
    }
    daemon.stop();
}

#[test]
fn volumes_have_the_level_of_their_project_or_one_of_their_own() {
    let place = Place::new();
    let daemon = begin(&place);
    assert_eq!(level(&place, "volume", "tank/db/data"), from("none", "default"));
    place.run(&["level", "create", "gold"]).expect(0);
    place.run(&["project", "set", "tank/db", "--level", "silver"]).expect(3).says("level list");
    let plan = place.json(&["project", "set", "tank/db", "--level", "gold", "--dry-run"]);
    assert_eq!(plan["changes"], json!(["level set to gold"]));
    place.run(&["project", "set", "tank/db", "--level", "gold"]).expect(0);
    place.run(&["volume", "set", "tank/db/log", "--level", "none"]).expect(0);
    let own = ["volume", "create", "tank/db/own", "--size", "16M", "--level", "non-critical-1"];
    place.run(&[&own[..], &["--level", "silver", "--dry-run"]].concat()).expect(2);
    place.run(&own).expect(0);
    place.run(&["volume", "create", "tank/alone", "--size", "16M"]).expect(0);
    let all = |place: &Place| {
        assert_eq!(level(place, "project", "tank/db"), from("gold", "own"));
        assert_eq!(level(place, "volume", "tank/db/data"), from("gold", "project"));
        assert_eq!(level(place, "volume", "tank/db/log"), from("none", "own"));
        assert_eq!(level(place, "volume", "tank/db/own"), from("non-critical-1", "own"));
        assert_eq!(level(place, "volume", "tank/alone"), from("none", "default"));
    };
    all(&place);
    assert!(
        place.run(&["volume", "show", "tank/db/data"]).expect(0).out.contains("level       gold (project)")
    );
    assert!(place.run(&["project", "show", "tank/db"]).expect(0).out.contains("level       gold (own)"));
    for noun in ["volume", "project"] {
        assert!(place.run(&[noun, "list"]).expect(0).out.contains("gold"));
    }
    // A clone has of its own what the volume of its snapshot has of its own, unless it is told otherwise.
    place.run(&["snapshot", "create", "tank/db/own@s", "tank/db/data@s"]).expect(0);
    place.run(&["clone", "create", "tank/db/own@s", "tank/like-own"]).expect(0);
    place.run(&["clone", "create", "tank/db/data@s", "tank/like-data"]).expect(0);
    place.run(&["volume", "create", "tank/other", "--from", "tank/db/own@s", "--level", "gold"]).expect(0);
    assert_eq!(level(&place, "volume", "tank/like-own"), from("non-critical-1", "own"));
    assert_eq!(level(&place, "volume", "tank/like-data"), from("none", "default"));
    assert_eq!(level(&place, "volume", "tank/other"), from("gold", "own"));
    place.run(&["volume", "delete", "tank/other", "--yes"]).expect(0);
    place.run(&["volume", "restore", "tank/other"]).expect(0);
    assert_eq!(level(&place, "volume", "tank/other"), from("gold", "own"));

    daemon.kill();
    let daemon = Daemon::start(&place);
    all(&place);
    place.run(&["pool", "export", "tank"]).expect(0);
    let gold = place.json(&["level", "show", "gold"])["id"].as_str().expect("an id").to_string();
    place.run(&["pool", "import", "tank", "./a", "./b"]).expect(0);
    all(&place);

    // One that was deleted meanwhile comes back with the pool, beside another one of that name.
    place.run(&["pool", "export", "tank"]).expect(0);
    let spec = place.json(&["level", "show", "gold"])["spec"].clone();
    place.run(&["level", "delete", "gold"]).expect(0);
    place.run(&["level", "create", "gold"]).expect(0);
    place.run(&["pool", "import", "tank", "./a", "./b"]).expect(0);
    assert_eq!(level(&place, "volume", "tank/db/data"), from("gold-2", "project"));
    assert_eq!(level(&place, "project", "tank/db"), from("gold-2", "own"));
    let again = place.json(&["level", "show", "gold-2"]);
    assert_eq!((&again["id"], &again["spec"]), (&json!(gold), &spec));
    // What this appliance does not know is shown as it is, and says so: nobody looks into the trash.
    place.run(&["level", "create", "bronze"]).expect(0);
    let bronze = place.json(&["level", "show", "bronze"])["id"].as_str().expect("an id").to_string();
    place.run(&["volume", "create", "tank/trashed", "--size", "16M", "--level", "bronze"]).expect(0);
    place.run(&["volume", "delete", "tank/trashed", "--yes"]).expect(0);
    place.run(&["level", "delete", "bronze"]).expect(0);
    place.run(&["volume", "restore", "tank/trashed"]).expect(0);
    assert_eq!(level(&place, "volume", "tank/trashed"), from(&bronze, "own"));
    let shown = place.json(&["volume", "show", "tank/trashed"]);
    assert_eq!(shown["conditions"][1]["reason"], "LevelUnknown", "{shown}");
    assert!(
        place.run(&["volume", "show", "tank/trashed"]).expect(0).out.contains("unknown on this appliance")
    );
    place.run(&["project", "set", "tank/db", "--level", "gold"]).expect(0);
    all(&place);
    daemon.stop();
    place.run(&["check", "--offline", "a", "b"]).expect(0);

    std::fs::write(place.data().join("levels"), "{").expect("a file can be written");
    place.run(&["serve", "--listen", "127.0.0.1:0"]).expect(1).says("levels: line 1").says("backup");
}

#[test]
fn a_ceiling_holds_and_follows_every_change() {
    let place = Place::new();
    let daemon = begin(&place);
    let mut nbd = Nbd::open(&daemon.nbd, "tank/db/data");
    place.run(&["level", "create", "slow", "--max-iops", "20"]).expect(0);
    place.run(&["project", "set", "tank/db", "--level", "slow"]).expect(0);
    // Forty of them in two seconds, less what may come at once.
    let held = time(&mut nbd, 40);
    assert!(held > Duration::from_millis(1800), "{held:?}");

    // In force at once, also for a write that waits: at 20 a second these would take half a minute.
    let waiting = write(&daemon, "tank/db/log", 600);
    thread::sleep(Duration::from_millis(500));
    assert!(!waiting.is_finished());
    place.run(&["level", "set", "slow", "--max-iops", "100000"]).expect(0);
    let held = waiting.join().expect("the writes go on");
    assert!(held < Duration::from_secs(15), "{held:?}");
    place.run(&["level", "set", "slow", "--max-iops", "20"]).expect(0);
    drop(nbd);

    // After a crash the level is known before anybody writes.
    daemon.kill();
    let daemon = Daemon::start(&place);
    let mut nbd = Nbd::open(&daemon.nbd, "tank/db/data");
    let held = time(&mut nbd, 40);
    assert!(held > Duration::from_millis(1800), "{held:?}");

    // So it is where the volume has one of its own, or none, or is in a pool that comes back.
    place.run(&["volume", "set", "tank/db/data", "--level", "none"]).expect(0);
    let free = time(&mut nbd, 200);
    assert!(free < Duration::from_secs(5), "{free:?}");
    place.run(&["volume", "set", "tank/db/data", "--inherit", "level"]).expect(0);
    drop(nbd);
    place.run(&["pool", "export", "tank"]).expect(0);
    place.run(&["pool", "import", "tank", "./a", "./b"]).expect(0);
    let held = time(&mut Nbd::open(&daemon.nbd, "tank/db/data"), 40);
    assert!(held > Duration::from_millis(1800), "{held:?}");

    // A project's is one for both volumes together, and follows a change likewise.
    let set =
        |ceiling: &str| place.run(&["project", "set", "tank/db", "--level", "none", "--max-iops", ceiling]);
    set("0").expect(2).says("none");
    set("20").expect(0);
    let shown = place.run(&["project", "show", "tank/db"]).expect(0).out;
    assert!(shown.contains("limit       20 IOPS\n"), "{shown}");
    let begun = Instant::now();
    let both = ["tank/db/data", "tank/db/log"].map(|volume| write(&daemon, volume, 20));
    for one in both {
        one.join().expect("the writes go on");
    }
    let held = begun.elapsed();
    assert!(held > Duration::from_millis(1800) && held < Duration::from_secs(15), "{held:?}");
    let waiting = write(&daemon, "tank/db/log", 600);
    thread::sleep(Duration::from_millis(500));
    assert!(!waiting.is_finished());
    set("none").expect(0);
    let held = waiting.join().expect("the writes go on");
    assert!(held < Duration::from_secs(15), "{held:?}");
    let shown = place.run(&["project", "show", "tank/db"]).expect(0).out;
    assert!(shown.contains("limit       -\n"), "{shown}");
    daemon.stop();
}

/// What there is at last.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "it is not so: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// The latest task of this kind, when it is over.
fn ended(api: &Api<'_>, name: &str) -> Value {
    until(&format!("task {name} has ended"), || {
        let tasks = api.get("/api/v1/tasks").json();
        let task = tasks["items"].as_array().expect("a list").iter().find(|task| task["name"] == name)?;
        let id = task["id"].as_str().expect("an id");
        let task = api.get(&format!("/api/v1/tasks/{id}?wait_seconds=60")).json();
        (task["state"] != "queued" && task["state"] != "running").then_some(task)
    })
}

#[test]
fn a_pool_is_measured_when_it_is_made_and_when_somebody_asks() {
    let place = Place::new();
    let [a, b] = place.disks();
    let daemon = Daemon::start(&place);
    let secret = place.run(&["token", "create", "robot", "--role", "admin"]).expect(0).out;
    let api = daemon.api(secret.trim());
    place.run(&["pool", "calibrate", "tank"]).expect(3);
    // Nobody says that it is not to be.
    let made = api.post("/api/v1/pools", json!({"name": "tank", "layout": "mirror", "disks": [a, b]}));
    assert_eq!(made.status, 202, "{made:?}");
    let task = ended(&api, "pool.calibrate");
    assert_eq!((&task["state"], &task["object"]), (&json!("succeeded"), &json!("tank")), "{task}");
    let speed = api.get("/api/v1/pools/tank").json()["status"]["speed"].clone();
    assert_eq!(task["result"], speed);
    for figure in
        ["read_iops", "write_iops", "read_bytes_per_second", "write_bytes_per_second", "measured_unix_ms"]
    {
        assert!(speed[figure].as_u64().expect("a number") > 0, "{figure} in {speed}");
    }
    let iops = speed["read_iops"].to_string();
    let shown = place.run(&["pool", "status", "tank"]).expect(0).out;
    assert!(shown.contains(&format!("speed       {iops} read and ")), "{shown}");
    let events = place.run(&["event", "list"]).expect(0).out;
    assert!(events.contains(&format!("measured: {iops} read IOPS")), "{events}");
    daemon.kill();
    let daemon = Daemon::start(&place);
    let api = daemon.api(secret.trim());
    assert_eq!(api.get("/api/v1/pools/tank").json()["status"]["speed"], speed);

    // One that nobody measured says so.
    for name in ["c", "d"] {
        place.disk(name, 256 << 20);
    }
    place.run(&["pool", "create", "vault", "--layout", "mirror", "c", "d"]).expect(0);
    let shown = place.run(&["pool", "status", "vault"]).expect(0).out;
    assert!(shown.contains("not measured; try: forebay pool calibrate vault"), "{shown}");
    assert_eq!(
        place.json(&["task", "list"])["items"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|task| task["name"] == "pool.calibrate")
            .count(),
        0
    );
    let told = place.run(&["pool", "calibrate", "vault"]).expect(0).out;
    assert!(told.contains("Pool vault: ") && told.contains(" write IOPS of 8 KiB"), "{told}");
    let speed = place.json(&["pool", "status", "vault"])["items"][0]["status"]["speed"].clone();
    assert!(speed["write_iops"].as_u64().expect("a number") > 0, "{speed}");
    daemon.stop();
    for disks in [["a", "b"], ["c", "d"]] {
        place.run(&["check", "--offline", disks[0], disks[1]]).expect(0);
    }
}

/// Goal: what does not fit is refused with the numbers; who wants it all the same gets no promise; and who breaks one is told of, second by second.
#[test]
fn promises_are_counted_and_the_ledger_says_whether_they_are_kept() {
    let place = Place::new();
    let [a, b] = place.disks();
    let daemon = Daemon::start(&place);
    let secret = place.run(&["token", "create", "robot", "--role", "admin"]).expect(0).out;
    let api = daemon.api(secret.trim());
    api.post("/api/v1/pools", json!({"name": "tank", "layout": "mirror", "disks": [a, b]}));
    let speed = ended(&api, "pool.calibrate")["result"].clone();
    let iops = |kind: &str| speed[kind].as_u64().expect("a number");
    let guess = iops("read_iops").min(iops("write_iops")) / 2;
    let promised = || {
        let status = api.get("/api/v1/pools/tank").json()["status"].clone();
        status["guaranteed_permille"].as_u64().expect("a number")
    };
    // A floor of about half: small requests cost more than they were measured to where large ones were slow.
    place.run(&["level", "create", "gold", "--min-iops", &guess.to_string(), "--latency", "100us"]).expect(0);
    place
        .run(&["volume", "create", "tank/probe", "--size", "16M", "--level", "gold", "--best-effort"])
        .expect(0);
    let half = (guess * 500 / promised()).to_string();
    place.run(&["volume", "set", "tank/probe", "--level", "none"]).expect(0);
    place.run(&["level", "set", "gold", "--min-iops", &half]).expect(0);
    let create = ["volume", "create", "tank/a", "--size", "16M", "--level", "gold"];
    let plan = place.json(&[&create[..], &["--dry-run"]].concat());
    assert!(plan["changes"].is_array(), "{plan}");
    place.run(&create).expect(0);
    let create = ["volume", "create", "tank/b", "--size", "16M", "--level", "gold"];
    for more in [&["--dry-run"][..], &[]] {
        let refused = place.run(&[&create[..], more].concat()).expect(4);
        refused.says("other volumes are guaranteed ").says(", and 90.0 % can be").says("--best-effort");
    }
    place.run(&[&create[..], &["--best-effort"]].concat()).expect(0);
    let kept = |name: &str| {
        let conditions = place.json(&["volume", "show", name])["conditions"].clone();
        let condition = conditions.as_array().expect("a list").iter().find(|one| one["type"] == "LevelMet");
        condition.expect("a condition")["status"].clone()
    };
    assert_eq!((kept("tank/a"), kept("tank/b")), (json!(true), json!(false)));
    // Two halves, but for what is rounded.
    let promised = promised();
    assert!((970..=1030).contains(&promised), "{promised}");
    let promised = format!("{}.{} %", promised / 10, promised % 10);
    let shown = place.run(&["pool", "status", "tank"]).expect(0).out;
    assert!(
        shown.contains(&format!("levels      need {promised} of the pool's time; 90.0 % can be guaranteed; some volumes are best effort")),
        "{shown}"
    );

    // Few writes, but none can be so fast.
    let mut nbd = Nbd::open(&daemon.nbd, "tank/a");
    let mut write_until_told = |code: &str| {
        let begun = Instant::now();
        while !place.run(&["event", "list"]).expect(0).out.contains(code) {
            assert!(begun.elapsed() < PATIENCE, "no {code}");
            for nth in 0..10 {
                nbd.write(nth * BLOCK, &[nth as u8; BLOCK as usize]);
                thread::sleep(Duration::from_millis(10));
            }
        }
    };
    write_until_told("level.missed");
    let ledger = |query: &str| api.get(&format!("/api/v1/pools/tank/ledger{query}")).json()["items"].clone();
    let all = ledger("");
    let lines = |state: &str| {
        let seconds = all.as_array().expect("a list").iter();
        let lines = seconds.flat_map(|second| second["volumes"].as_array().expect("a list"));
        lines.filter(|line| line["volume"] == "tank/a" && line["state"] == state).count()
    };
    assert!(lines("missed") >= 5, "{all}");
    let line = all[all.as_array().expect("a list").len() - 2]["volumes"][0].clone();
    assert!(line["cause"]["kind"].is_string() && line["standing"] == "guaranteed", "{line}");
    assert!(line["p99_us"].as_u64() > Some(100) && line["done"].as_u64() > Some(10), "{line}");
    // The next one comes within its second.
    let last = all[all.as_array().expect("a list").len() - 1]["number"].as_u64().expect("a number");
    let next = ledger(&format!("?after={last}&wait_seconds=10&limit=1"));
    assert_eq!(next[0]["number"], last + 1, "{next}");
    let shown = place.run(&["top", "qos", "tank", "--count", "2"]).expect(0).out;
    // Disks that are slow in the test leave less than nine tenths.
    let seconds = shown
        .lines()
        .filter(|line| line.starts_with(&format!("tank: levels need {promised} of the pool's time; ")));
    assert!(seconds.filter(|line| line.contains(" can be guaranteed")).count() == 2, "{shown}");
    let shown = place.run(&["top", "qos", "tank", "--json", "--count", "2"]).expect(0).out;
    let seconds: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(seconds.len(), 2);
    assert!(seconds[1]["number"].as_u64() > seconds[0]["number"].as_u64());

    place.run(&["level", "set", "gold", "--latency", "10s"]).expect(0);
    write_until_told("level.met");
    // There is room now.
    place.run(&["volume", "set", "tank/a", "--level", "none"]).expect(0);
    until("tank/b is promised its floor", || (kept("tank/b") == json!(true)).then_some(()));
    let events = place.run(&["event", "list"]).expect(0).out;
    assert!(events.contains("level.guaranteed"), "{events}");
    api.get("/api/v1/pools/tank/ledger?after=x").problem(400, "invalid");
    api.get("/api/v1/pools/vault/ledger").problem(404, "not_found");
    daemon.stop();
}
