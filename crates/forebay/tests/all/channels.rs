//! Does the appliance call for help?
//!
//! Method: the real daemon, and sockets of the test as a syslog server and a webhook's receiver. What the protocols look like to real receivers (snmptrapd, rsyslog,
//! aiosmtpd) is asked in forebay-notify; here it is whether what happens to a pool gets there.

use crate::common::{Daemon, PATIENCE, Place};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

/// What came to a syslog server, in order.
struct Log {
    socket: UdpSocket,
    lines: Vec<String>,
}

impl Log {
    /// Waits for a line with all these words.
    fn wait_for(&mut self, words: &[&str]) {
        let start = Instant::now();
        loop {
            if self.lines.iter().any(|line| words.iter().all(|word| line.contains(word))) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no line with {words:?} among {:#?}", self.lines);
            let mut bytes = [0; 8192];
            if let Ok(length) = self.socket.recv(&mut bytes) {
                self.lines.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
            }
        }
    }
}

/// Answers every request with 204, and passes on what it was.
fn receiver() -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let (pass, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let (mut text, mut piece) = (Vec::new(), [0; 4096]);
            loop {
                let length = stream.read(&mut piece).unwrap_or(0);
                text.extend(&piece[..length]);
                let whole = String::from_utf8_lossy(&text).into_owned();
                let body =
                    whole.split_once("\r\n\r\n").map(|(head, body)| (head.to_ascii_lowercase(), body.len()));
                let is_whole = body.is_some_and(|(head, has)| {
                    let wants = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                    wants.and_then(|wants| wants.trim().parse().ok()).is_some_and(|wants: usize| has >= wants)
                });
                if is_whole || length == 0 {
                    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
                    // The test may have ended.
                    let _ = pass.send(whole);
                    break;
                }
            }
        }
    });
    (port, requests)
}

/// Goal: a disk that is gone is told over syslog and a webhook without anybody looking, and again when it is back; audit lines go to syslog;
/// channels and their secrets outlive a restart, and nothing that is shown has a secret.
#[test]
fn a_disk_that_fails_is_told_to_those_who_listen() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place);
    let disks = place.disks();
    place.run(&["pool", "create", "tank", "--layout", "mirror", &disks[0], &disks[1]]).expect(0);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let port = socket.local_addr().expect("bound").port().to_string();
    let log = ["channel", "syslog", "log", "--host", "127.0.0.1", "--transport", "udp", "--port", &port];
    place.run(&[&log[..], &["--notices", "raised,cleared,audit"]].concat()).expect(0);
    let (hook, requests) = receiver();
    let url = format!("http://127.0.0.1:{hook}/forebay");
    let made = place.run(&["channel", "webhook", "hook", &url]).expect(0).out;
    let secret = made.split_whitespace().find(|word| word.starts_with("whsec_")).expect("it is printed once");

    place.run(&["disk", "offline", "tank/0", "--yes"]).expect(0);
    let mut lines = Log { socket, lines: Vec::new() };
    lines.wait_for(&["pool.degraded", "tank"]);
    lines.wait_for(&["DiskOffline"]);
    lines.wait_for(&["DiskOffline", "disk.offline of tank/0 succeeded"]);
    let request = requests.recv_timeout(PATIENCE).expect("the webhook is called");
    assert!(request.contains("webhook-signature: v1,") && request.contains("tank"), "{request}");

    let failing = place.json(&["channel", "list"]);
    let shown = failing.to_string() + &place.run(&["channel", "show", "hook"]).expect(0).out;
    assert!(!shown.contains("whsec_"), "{shown}");
    daemon.stop();
    let stored = std::fs::read_to_string(place.data().join("channels")).expect("channels are remembered");
    assert!(stored.contains(secret));
    daemon = Daemon::start(&place);
    // Told anew: who listens may not have heard it.
    requests.recv_timeout(PATIENCE).expect("the webhook is called after a restart");
    place.run(&["disk", "online", "tank/0"]).expect(0);
    lines.wait_for(&["cleared", "tank"]);
    daemon.stop();
}

/// Goal: a test message says how it went, with what to do about it; what cannot work is refused when it is said, with its field.
#[test]
fn a_channel_that_does_not_work_says_why() {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("bound").port().to_string()
    };
    let mail = ["channel", "mail", "ops", "--host", "127.0.0.1", "--port", &nobody, "--security", "none"];
    let people = ["--from", "nas@example.com", "--to", "ops@example.com"];
    place.run(&[&mail[..], &["--from", "nas", "--to", "ops@example.com"]].concat()).expect(2);
    place.run(&[&mail[..], &people[..], &["--dry-run"]].concat()).expect(0);
    assert_eq!(place.json(&["channel", "list"])["items"], Value::Array(Vec::new()));
    place.run(&[&mail[..], &people[..]].concat()).expect(0);
    let twice = place.run(&[&mail[..], &people[..]].concat()).expect(4);
    assert!(twice.err.contains("a channel with this name exists"), "{}", twice.err);
    let failed = place.run(&["channel", "test", "ops"]).expect(1);
    assert!(failed.err.contains("127.0.0.1") && failed.err.contains("refused"), "{}", failed.err);
    assert!(failed.err.contains("a test is sent once"), "{}", failed.err);
    // Neither what was not delivered nor what a task refused counts as done.
    place.run(&["pool", "create", "two", "--layout", "single", "/tmp"]).expect(2);
    let begun = std::time::Instant::now();
    loop {
        let audit = place.json(&["audit", "list"]);
        let entries = audit["items"].as_array().expect("a list");
        let outcomes = |operation: &str| -> Vec<(u64, Option<&str>)> {
            let of = entries.iter().filter(|entry| entry["operation"] == operation);
            of.map(|entry| (entry["status"].as_u64().expect("a status"), entry["code"].as_str())).collect()
        };
        if let [(202, None), (400.., Some(_))] = outcomes("PoolCreate")[..] {
            assert_eq!(outcomes("ChannelTest"), [(200, Some("io"))]);
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{audit}");
    }
    place.run(&["channel", "set", "ops", "--to", "anna@example.com"]).expect(0);
    place.run(&["channel", "set", "ops", "--url", "https://example.com"]).expect(2).says("--host");
    let quiet = ["channel", "set", "ops", "--quiet", "daily 22:00-06:00", "--severity", "critical"];
    assert_eq!(place.run(&quiet).expect(0).out, "Channel ops is changed.\n");
    let set = place.run(&["channel", "show", "ops"]).expect(0).out;
    assert!(set.contains("daily 22:00-06:00 UTC") && set.contains("critical and worse"), "{set}");
    place.run(&["channel", "delete", "ops"]).expect(0);
    place.run(&["channel", "test", "ops"]).expect(3);
    daemon.stop();
}
