//! Do channels leave each other, and the daemon, alone? And does a person learn from a channel's state what is wrong with it and what to do?

use crate::common::{alert, channel, free_tcp_port, reporter, wait_async};
use forebay_api::AlertSeverity::{Critical, Warning};
use forebay_notify::Channel;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UdpSocket};

fn udp(name: &str, port: u16) -> Channel {
    channel(name, json!({ "syslog": { "host": "127.0.0.1", "port": port, "transport": "udp" } }))
}

async fn receive(socket: &UdpSocket) -> String {
    let mut bytes = [0; 4096];
    let received = tokio::time::timeout(Duration::from_secs(20), socket.recv(&mut bytes)).await;
    String::from_utf8(bytes[..received.expect("a datagram").unwrap()].to_vec()).unwrap()
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_neither_the_daemon_nor_another_channel() {
    // Connections are accepted by the kernel, and nothing is ever read or said.
    let hangs = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = hangs.local_addr().unwrap().port();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let hanging = json!({ "mail": {
        "host": "127.0.0.1", "port": port, "security": "none", "from": "a@b.example", "to": ["c@d.example"],
    } });
    let reporter = reporter(1);
    reporter.configure(vec![channel("a", hanging), udp("z", socket.local_addr().unwrap().port())]).unwrap();
    let begin = Instant::now();
    let alerts: Vec<_> = (0..50).map(|n| alert(&format!("a{n}"), Critical)).collect();
    for count in 1..=alerts.len() {
        reporter.standing(&alerts[..count]);
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "the caller waited {:?}", begin.elapsed());
    let mut lines = Vec::new();
    for _ in 0..50 {
        lines.push(receive(&socket).await);
    }
    for alert in &alerts {
        let id = format!("id=\"{}\"", alert.id);
        assert_eq!(lines.iter().filter(|line| line.contains(&id)).count(), 1, "{id}: {lines:?}");
    }
    let delivered = || Some(reporter.states()).filter(|states| states[1].delivered == 50);
    let states = wait_async("the other channel's success", delivered).await;
    assert_eq!((&*states[0].name, states[0].delivered, states[0].delivered_at_unix_ms), ("a", 0, None));
    assert!(states[0].waiting > 0 && states[1].delivered_at_unix_ms.is_some(), "{states:?}");
}

#[tokio::test]
async fn a_state_says_what_is_wrong_and_what_to_do() {
    let port = free_tcp_port();
    let reporter = reporter(1);
    let tcp = json!({ "syslog": { "host": "127.0.0.1", "port": port, "transport": "tcp" } });
    reporter.configure(vec![channel("log", tcp.clone())]).unwrap();
    reporter.standing(&[alert("a", Warning)]);
    let state =
        wait_async("an error", || Some(reporter.states().remove(0)).filter(|s| s.error.is_some())).await;
    let error = state.error.unwrap();
    assert!(error.message.starts_with(&format!("127.0.0.1:{port} did not accept a connection")), "{error:?}");
    assert_eq!(error.remedy, "Check that the service runs there and listens on this port.");
    assert_eq!((state.waiting, state.delivered, state.dropped), (1, 0, 0));
    assert!(state.retry_at_unix_ms.is_some());
    let failure = reporter.test(&channel("log", tcp)).await.unwrap_err();
    assert!(failure.to_string().contains("did not accept a connection"), "{failure}");
    let unknown = json!({ "syslog": { "host": "nowhere.invalid", "transport": "tcp" } });
    let failure = reporter.test(&channel("log", unknown)).await.unwrap_err();
    assert!(failure.message.contains("nowhere.invalid"), "{failure}");
    assert!(failure.remedy.contains("DNS"), "{failure}");
}

#[tokio::test]
async fn over_udp_a_closed_port_is_noticed() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let reporter = reporter(1);
    reporter.test(&udp("log", port)).await.unwrap();
    drop(socket);
    let failure = reporter.test(&udp("log", port)).await.unwrap_err();
    assert!(failure.message.contains("refused"), "{failure}");
}

#[tokio::test]
async fn a_new_channel_and_one_that_moved_are_told_what_stands() {
    let first = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let second = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let ports = [&first, &second].map(|socket| socket.local_addr().unwrap().port());
    let reporter = reporter(1);
    reporter.standing(&[alert("a", Warning)]);
    reporter.configure(vec![udp("log", ports[0])]).unwrap();
    assert!(receive(&first).await.contains("id=\"a\""));
    // The same settings again change nothing.
    reporter.configure(vec![udp("log", ports[0])]).unwrap();
    reporter.configure(vec![udp("log", ports[1])]).unwrap();
    assert!(receive(&second).await.contains("id=\"a\""));
    reporter.standing(&[]);
    assert!(receive(&second).await.contains("state=\"cleared\""));
    assert!(first.try_recv(&mut [0; 10]).is_err(), "once is enough");
    let mut disabled = udp("log", ports[1]);
    disabled.spec.enabled = false;
    reporter.configure(vec![disabled]).unwrap();
    reporter.standing(&[alert("b", Critical)]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(second.try_recv(&mut [0; 10]).is_err());
    assert!(!reporter.states()[0].enabled);
}

#[tokio::test]
async fn settings_that_cannot_work_change_nothing() {
    let reporter = reporter(1);
    reporter.configure(vec![udp("log", 9)]).unwrap();
    let mut wrong = udp("log", 9);
    wrong.spec.heartbeat_hours = 0;
    let problems = reporter.configure(vec![udp("log", 9), wrong]).unwrap_err();
    let fields: Vec<&str> = problems.iter().map(|problem| &*problem.field).collect();
    assert_eq!(fields, ["channels[1].spec.heartbeat_hours", "channels[1].name"]);
    assert_eq!(reporter.states().len(), 1);
    let many = (0..33).map(|n| udp(&n.to_string(), 9)).collect();
    assert_eq!(reporter.configure(many).unwrap_err()[0].field, "channels");
}

#[tokio::test]
async fn the_first_heartbeat_tells_what_stands() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut heartbeat = udp("log", socket.local_addr().unwrap().port());
    heartbeat.spec.kinds = [forebay_api::NoticeKind::Heartbeat].into();
    let reporter = reporter(1);
    // As after a start: channels are there before it is known what is wrong.
    reporter.configure(vec![heartbeat]).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    reporter.standing(&[alert("a", Warning), alert("b", Critical)]);
    let line = receive(&socket).await;
    assert!(
        line.contains("forebay - HEARTBEAT [forebay@32473 critical=\"1\" warning=\"1\" info=\"0\"]"),
        "{line}"
    );
}

/// A state that is shown has no secret in it, whatever the channel's are.
#[tokio::test]
async fn states_are_plain_data() {
    let reporter = reporter(1);
    let url = "http://127.0.0.1:9/";
    let hook = channel(
        "hook",
        json!({ "webhook": { "url": url, "secret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX" } }),
    );
    reporter.configure(vec![hook]).unwrap();
    let shown: Value = serde_json::to_value(reporter.states()).unwrap();
    assert_eq!(shown[0]["delivery"], "webhook");
    assert!(!shown.to_string().contains("AAECAwQ"));
}
