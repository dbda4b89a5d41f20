//! Do clients that hold connections, say nothing or do not read keep others out?
//!
//! Method: more of them than the daemon has places, from one address, in plain bytes against the real daemon; good clients at the same
//! address meanwhile. How long they take is not looked at: who is kept out is so for as long as the others stay.

use crate::common::{Daemon, PATIENCE, Place};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// More than all places.
const HELD: usize = 300;

fn token(place: &Place) -> String {
    place.json(&["token", "create", "t", "--role", "viewer"])["secret"].as_str().unwrap().to_string()
}

fn connect(daemon: &Daemon, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&daemon.http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// The largest file of the interface.
fn largest(daemon: &Daemon) -> String {
    let page = daemon.http("GET / HTTP/1.1", b"").body;
    let files = page.split('"').filter(|part| part.starts_with("/assets/"));
    let bytes = |path: &&str| {
        let head = daemon.http(&format!("HEAD {path} HTTP/1.1"), b"");
        head.header("content-length").and_then(|bytes| bytes.parse::<u64>().ok())
    };
    files.max_by_key(bytes).expect("the first page loads something").to_string()
}

/// Good clients get in while these connections are held, and whoever is known and in the middle of something stays.
fn good_clients_are_served(hold: impl Fn(&Daemon, usize) -> TcpStream) {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let secret = token(&place);
    // A stream of events that is there before them.
    let head = format!(
        "GET /api/v1/events/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}\r\n\r\n",
        daemon.http
    );
    let mut stream = connect(&daemon, &head);
    let mut told = String::new();
    let mut some = [0; 4096];
    while !told.contains("retry:") {
        let read = stream.read(&mut some).unwrap();
        told.push_str(&String::from_utf8_lossy(&some[..read]));
    }
    let held: Vec<TcpStream> = (0..HELD).map(|nth| hold(&daemon, nth)).collect();
    for _ in 0..10 {
        assert_eq!(daemon.http("GET /api/v1/setup HTTP/1.1", b"").status, 200, "a stranger");
        assert_eq!(daemon.api(&secret).get("/api/v1/pools").status, 200, "a token");
        place.run(&["pool", "list"]).expect(0);
    }
    place.run(&["level", "create", "slow", "--max-iops", "100"]).expect(0);
    while !told.contains("level.created") {
        let read = stream.read(&mut some).expect("the stream is still there");
        assert_ne!(read, 0, "the stream has ended");
        told.push_str(&String::from_utf8_lossy(&some[..read]));
    }
    drop(held);
    daemon.stop();
}

#[test]
fn silent_connections_make_room() {
    good_clients_are_served(|daemon, nth| {
        // Some say nothing at all, some stop in the middle of a header, some in the middle of a body.
        let body = format!(
            "POST /api/v1/login HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
            daemon.http
        );
        connect(daemon, ["", "GET / HTTP/1.1\r\nX: ", &body][nth % 3])
    });
}

#[test]
fn connections_that_do_not_read_make_room() {
    let path = std::sync::OnceLock::new();
    good_clients_are_served(|daemon, _| {
        let path = path.get_or_init(|| largest(daemon));
        connect(daemon, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", daemon.http).repeat(60))
    });
}

#[test]
fn one_user_does_not_take_all_streams() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let [first, second] = ["a", "b"].map(|name| {
        place.json(&["token", "create", name, "--role", "viewer"])["secret"].as_str().unwrap().to_string()
    });
    let open = |secret: &str| {
        let head = format!(
            "GET /api/v1/events/stream HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}\r\n\r\n",
            daemon.http
        );
        let mut stream = connect(&daemon, &head);
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        (String::from_utf8(status[9..].to_vec()).unwrap(), stream)
    };
    let mut streams: Vec<_> = (0..32).map(|_| open(&first)).collect();
    assert!(streams.iter().all(|(status, _)| status == "200"));
    assert_eq!(open(&first).0, "429");
    streams.push(open(&second));
    assert_eq!(streams[32].0, "200");
    daemon.stop();
}

/// Goal: a client that waits for news in many requests leaves connections to others, whatever addresses it has.
#[test]
fn one_user_does_not_take_all_connections_by_waiting() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let [first, second] = ["a", "b"].map(|name| {
        place.json(&["token", "create", name, "--role", "viewer"])["secret"].as_str().unwrap().to_string()
    });
    let path = |seconds: u32| format!("/api/v1/events?after={}&wait_seconds={seconds}", u64::MAX >> 1);
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {first}\r\n\r\n",
        path(60),
        daemon.http
    );
    // More than there are places: as soon as one of them is refused, the others have all.
    let waits: Vec<TcpStream> = (0..40).map(|_| connect(&daemon, &head)).collect();
    let is_answered = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_ok()
    };
    let begun = Instant::now();
    while !waits.iter().any(is_answered) {
        assert!(begun.elapsed() < PATIENCE, "none of them is refused");
        thread::sleep(Duration::from_millis(20));
    }
    daemon.api(&first).get(&path(1)).problem(429, "busy");
    assert_eq!(daemon.api(&first).get("/api/v1/events").status, 200, "this does not wait");
    assert_eq!(daemon.api(&second).get(&path(1)).status, 200);
    daemon.stop();
}

/// Goal: what is told after a token was revoked does not reach whoever has it, not even once.
#[test]
fn a_revoked_token_is_told_nothing_more() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let secret = token(&place);
    let head = |path: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}\r\n\r\n", daemon.http)
    };
    let mut stream = connect(&daemon, &head("/api/v1/events/stream"));
    let newest = daemon.api(&secret).get("/api/v1/events?limit=1").json()["items"][0]["sequence"].clone();
    let mut waits =
        connect(&daemon, &head(&format!("/api/v1/events?wait_seconds=60&after={}", u64::MAX >> 1)));
    let mut some = [0; 4096];
    let mut told = String::new();
    while !told.contains("retry:") {
        let read = stream.read(&mut some).unwrap();
        told.push_str(&String::from_utf8_lossy(&some[..read]));
    }
    place.run(&["token", "delete", "t"]).expect(0);
    for name in ["late", "later", "latest"] {
        place.run(&["host", "create", name, "--iqn", &format!("iqn.1998-01.com.vmware:{name}")]).expect(0);
    }
    loop {
        match stream.read(&mut some) {
            Ok(0) => break,
            Ok(read) => told.push_str(&String::from_utf8_lossy(&some[..read])),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("the stream goes on, after event {newest}: {error}"),
        }
    }
    assert!(!told.contains("late"), "{told}");
    // And a question that waits is not answered.
    let mut answer = Vec::new();
    let _ = waits.read(&mut some).map(|read| answer.extend_from_slice(&some[..read]));
    assert!(answer.starts_with(b"HTTP/1.1 401"), "{}", String::from_utf8_lossy(&answer));
    daemon.stop();
}

#[test]
fn a_request_names_one_host_and_one_cookie() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let field = |head: &str| daemon.http(head, b"").problem(400, "invalid")["field"].clone();
    let own = &daemon.http;
    assert_eq!(field(&format!("GET /api/v1/setup HTTP/1.1\r\nHost: {own}\r\nHost: {own}")), "Host");
    assert_eq!(field(&format!("GET / HTTP/1.1\r\nHost: {own}\r\nHost: evil.example")), "Host");
    assert_eq!(field("GET http://evil.example/api/v1/setup HTTP/1.1"), "Host");
    assert_eq!(daemon.http(&format!("GET http://{own}/api/v1/setup HTTP/1.1"), b"").status, 200);
    let twice = "GET /api/v1/login HTTP/1.1\r\nCookie: forebay_session=a; forebay_session=b";
    assert_eq!(field(twice), "Cookie");
    assert_eq!(daemon.http("GET / HTTP/1.1", b"").header("strict-transport-security"), None);
    daemon.stop();
}

#[test]
fn names_that_read_as_others_are_refused() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let admin =
        place.json(&["token", "create", "a", "--role", "admin"])["secret"].as_str().unwrap().to_string();
    let api = daemon.api(&admin);
    let spec = |title: &str| json!({"seconds": 60, "graphs": [{"expression": "nbd.ops", "title": title}]});
    let sheet =
        |name: &str, title: &str| api.post("/api/v1/worksheets", json!({"name": name, "spec": spec(title)}));
    for c in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}'] {
        let name = format!("a{c}b");
        assert_eq!(sheet(&name, "x").problem(400, "invalid")["field"], "name");
        assert_eq!(sheet("fine", &name).problem(400, "invalid")["field"], "spec.graphs[0].title");
        let report = json!({"name": name, "html": "<p>x</p>"});
        assert_eq!(api.post("/api/v1/reports", report).problem(400, "invalid")["field"], "name");
    }
    assert_eq!(sheet("Größe – 容量", "שבת").status, 201);
    let set = api.call(
        "PATCH",
        "/api/v1/worksheets/Gr%C3%B6%C3%9Fe%20%E2%80%93%20%E5%AE%B9%E9%87%8F",
        "",
        Some(json!({"name": "\u{202e}x"})),
    );
    assert_eq!(set.problem(400, "invalid")["field"], "name");
    daemon.stop();
}
