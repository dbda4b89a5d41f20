//! Does whoever watches hear of everything once, also after he was away, and is the interface all that strangers get?
//!
//! Method: server-sent events read from a plain connection; paths as no browser would send them.

use crate::common::{Daemon, PATIENCE, Place};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A stream of server-sent events. Chunk sizes have no colon and so look like nothing.
struct Stream {
    reader: BufReader<TcpStream>,
}

#[derive(Debug)]
struct Message {
    event: String,
    id: Option<u64>,
    data: Value,
}

impl Stream {
    fn open(daemon: &Daemon, secret: &str, headers: &str) -> Stream {
        let mut stream = TcpStream::connect(&daemon.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "GET /api/v1/events/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}{headers}\r\n\r\n",
            daemon.http
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        let mut kind = String::new();
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if line.to_ascii_lowercase().starts_with("content-type:") {
                kind = line.clone();
            }
        }
        assert!(kind.contains("text/event-stream"), "{kind}");
        Stream { reader }
    }

    /// The next message; `None` at the end.
    fn next(&mut self) -> Option<Message> {
        let (mut event, mut id, mut data) = (None, None, None);
        let mut line = String::new();
        loop {
            line.clear();
            match self.reader.read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
            match line.trim_end().split_once(": ") {
                Some(("event", name)) => event = Some(name.to_string()),
                Some(("id", number)) => id = Some(number.parse().unwrap()),
                Some(("data", text)) => data = Some(serde_json::from_str(text).unwrap()),
                _ => {}
            }
            if let (Some(event), Some(data)) = (&event, data.take()) {
                return Some(Message { event: event.clone(), id, data });
            }
        }
    }

    /// Reads on until a message is right; returns it, and those before it.
    fn until(&mut self, is_right: impl Fn(&Message) -> bool) -> Vec<Message> {
        let mut seen = Vec::new();
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "it did not come: {seen:?}");
            let message = self.next().unwrap_or_else(|| panic!("the stream has ended after {seen:?}"));
            let is_last = is_right(&message);
            seen.push(message);
            if is_last {
                return seen;
            }
        }
    }
}

fn token(place: &Place, name: &str, role: &str) -> String {
    place.json(&["token", "create", name, "--role", role])["secret"].as_str().unwrap().to_string()
}

fn numbers(messages: &[Message]) -> Vec<u64> {
    messages.iter().filter_map(|message| message.id).collect()
}

#[test]
fn events_changes_and_tasks_come_once_and_go_on_where_they_were() {
    let place = Place::new();
    let [a, b] = place.disks();
    let daemon = Daemon::start(&place);
    let secret = token(&place, "v", "viewer");
    let mut stream = Stream::open(&daemon, &secret, "");
    place.run(&["pool", "create", "tank", "--layout", "mirror", &a, &b]).expect(0);
    let pools =
        |message: &Message| message.event == "changed" && message.data == json!({"resource": "pools"});
    let seen = stream.until(pools);
    let states: Vec<&str> = seen
        .iter()
        .filter(|message| message.event == "task")
        .map(|message| {
            assert_eq!(
                (&message.data["name"], &message.data["object"]),
                (&json!("pool.create"), &json!("tank"))
            );
            message.data["state"].as_str().unwrap()
        })
        .collect();
    assert_eq!(states.last(), Some(&"succeeded"), "{states:?}");
    let mut once = states.clone();
    once.dedup();
    assert_eq!(once, states, "a state is told once");

    place.run(&["level", "create", "slow", "--max-iops", "100"]).expect(0);
    let level = |message: &Message| message.event == "event" && message.data["code"] == "level.created";
    let mut told = numbers(&seen);
    told.extend(numbers(&stream.until(level)));
    assert!(told.windows(2).all(|pair| pair[0] + 1 == pair[1]), "numbers have no gaps: {told:?}");
    // A plan changes nothing, and nothing is told of it.
    place.run(&["level", "delete", "slow", "--dry-run"]).expect(0);
    place.run(&["host", "create", "esx1", "--iqn", "iqn.1998-01.com.vmware:esx1"]).expect(0);
    let hosts = |message: &Message| message.event == "changed" && message.data["resource"] == "hosts";
    let between = stream.until(hosts);
    let levels = between.iter().filter(|message| message.data["resource"] == "levels").count();
    assert!(levels <= 1, "the creation's own: {between:?}");

    // Away; two things happen; back.
    let last = numbers(&between).last().copied().or(told.last().copied()).unwrap();
    drop(stream);
    place.run(&["level", "delete", "slow"]).expect(0);
    place.run(&["host", "delete", "esx1"]).expect(0);
    let mut stream = Stream::open(&daemon, &secret, &format!("\r\nLast-Event-ID: {last}"));
    let deleted = |message: &Message| message.event == "event" && message.data["code"] == "host.deleted";
    let missed = stream.until(deleted);
    let missed_numbers = numbers(&missed);
    assert_eq!(missed_numbers[0], last + 1);
    assert!(missed_numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{missed_numbers:?}");
    assert!(missed.iter().any(|message| message.data["code"] == "level.deleted"));
    for resource in ["volumes", "levels", "hosts"] {
        let is_told = |message: &Message| message.event == "changed" && message.data["resource"] == resource;
        assert!(missed.iter().any(is_told), "{resource} may have changed meanwhile");
    }
    // The daemon's end is the stream's.
    daemon.stop();
    while stream.next().is_some() {}
}

#[test]
fn a_stream_ends_when_its_token_is_revoked() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let secret = token(&place, "v", "viewer");
    let mut stream = Stream::open(&daemon, &secret, "");
    place.run(&["token", "delete", "v"]).expect(0);
    let start = Instant::now();
    while stream.next().is_some() {}
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    daemon.stop();
}

#[test]
fn streams_are_bounded_and_leave_room_for_others() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let secret = token(&place, "v", "viewer");
    let open: Vec<Stream> = (0..32).map(|_| Stream::open(&daemon, &secret, "")).collect();
    daemon.api(&secret).get("/api/v1/events/stream").problem(429, "busy");
    let other = token(&place, "w", "viewer");
    drop(Stream::open(&daemon, &other, ""));
    assert_eq!(daemon.api(&secret).get("/api/v1/pools").status, 200);
    drop(open);
    // Their ends are noticed when they are.
    let start = Instant::now();
    loop {
        let mut stream = TcpStream::connect(&daemon.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "GET /api/v1/events/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}\r\n\r\n",
            daemon.http
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        if &status == b"HTTP/1.1 200" {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "places are not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
    daemon.stop();
}

#[test]
fn strangers_get_the_interface_and_nothing_besides() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let get = |path: &str, more: &str| daemon.http(&format!("GET {path} HTTP/1.1{more}"), b"");
    let index = get("/", "");
    assert_eq!((index.status, index.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(index.header("cache-control"), Some("no-cache"));
    assert!(index.body.contains("<title>"), "{}", index.body);
    for place_inside in ["/volumes", "/pools/tank", "/x/y/z/", "/?a=b"] {
        assert_eq!(get(place_inside, "").body, index.body, "{place_inside}");
    }
    let tag = index.header("etag").unwrap();
    let again = get("/", &format!("\r\nIf-None-Match: {tag}"));
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    let head = daemon.http("HEAD / HTTP/1.1", b"");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    for method in ["POST", "PUT", "DELETE"] {
        daemon.http(&format!("{method} / HTTP/1.1"), b"").problem(405, "method_not_allowed");
    }
    for path in [
        "/../Cargo.toml",
        "/../../../../etc/passwd.txt",
        "/assets/../../tokens.json",
        "/..%2f..%2fCargo.toml",
        "/%2e%2e/%2e%2e/Cargo.toml",
        "/assets/%00.js",
        "//etc/hosts.conf",
        "/tokens.json",
        "/forebay.sock",
        "/assets/nothing.js",
        "/.git/config.x",
    ] {
        let reply = get(path, "");
        reply.problem(404, "not_found");
    }
    // Nothing of the data directory either, whatever it is called.
    for path in ["/users", "/tokens", "/../data/users", "/data/hosts"] {
        assert_eq!(get(path, "").body, index.body, "{path}");
    }
    let secret = token(&place, "v", "viewer");
    let answers = [
        index,
        get("/nothing.js", ""),
        get("/api/v1/pools", ""),
        daemon.api(&secret).get("/api/v1/pools"),
        daemon.http("GET / HTTP/1.1\r\nHost: evil.example", b""),
    ];
    for reply in answers {
        let policy = reply.header("content-security-policy").unwrap_or_default();
        for word in
            ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "connect-src 'self'"]
        {
            assert!(policy.contains(word), "{reply:?}");
        }
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(reply.header("cross-origin-opener-policy"), Some("same-origin"));
    }
    daemon.stop();
}

#[test]
fn what_is_wrong_is_told_until_it_is_mended() {
    let place = Place::new();
    let [a, b] = place.disks();
    let daemon = Daemon::start(&place);
    place.run(&["pool", "create", "tank", "--layout", "mirror", &a, &b]).expect(0);
    let secret = token(&place, "v", "viewer");
    let api = daemon.api(&secret);
    let alerts = || -> Vec<Value> { api.get("/api/v1/alerts").json()["items"].as_array().unwrap().clone() };
    assert_eq!(alerts(), Vec::<Value>::new());
    assert!(place.run(&["alert", "list"]).expect(0).out.contains("All is well."));

    place.run(&["disk", "offline", "tank/1", "--yes"]).expect(0);
    let wrong = alerts();
    let of = |id: &str| {
        wrong.iter().find(|alert| alert["id"] == id).unwrap_or_else(|| panic!("no {id} in {wrong:?}"))
    };
    let degraded = of("pool.degraded:tank");
    assert_eq!(degraded["severity"], "critical", "a mirror with one disk has nothing left to lose");
    assert_eq!(degraded["object"], json!({"resource": "pools", "name": "tank"}));
    let offline = of("disk.offline:tank/1");
    assert_eq!(
        (&offline["severity"], &offline["command"]),
        (&json!("info"), &json!("forebay disk online tank/1"))
    );
    let again = alerts();
    assert_eq!(again, wrong, "it is told the same way, and since when it was");
    let listed = place.run(&["alert", "list"]).expect(0).out;
    assert!(listed.contains("critical  tank") && listed.contains("forebay disk online tank/1"), "{listed}");

    place.run(&["disk", "online", "tank/1"]).expect(0);
    assert_eq!(alerts().iter().filter(|alert| alert["id"] == "pool.degraded:tank").count(), 0);
    // A level with a floor, in a pool that nobody has measured.
    place.run(&["level", "create", "gold", "--min-iops", "100"]).expect(0);
    place.run(&["volume", "create", "tank/a", "--size", "64M", "--level", "gold"]).expect(0);
    let unmeasured = alerts();
    assert!(unmeasured.iter().any(|alert| alert["id"] == "pool.unmeasured:tank"), "{unmeasured:?}");
    daemon.stop();
}
