//! Does net-snmp's snmptrapd, configured as a person would, take our traps and read in them what we mean? It knows the user by passwords, so it derives the
//! keys itself, verifies the signature and decrypts; RFC 7860 has no test vectors.

use crate::common::{Program, alert, channel, find, free_udp_port, read, reporter, wait_async, wait_for};
use forebay_api::AlertSeverity::{Critical, Warning};
use forebay_notify::{Channel, Reporter};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

struct Receiver {
    _program: Program,
    temp: TempDir,
    log: PathBuf,
    port: u16,
}

fn receiver(engine_id: &str) -> Option<Receiver> {
    let program = find("snmptrapd", "snmptrapd")?;
    let temp = tempfile::tempdir().unwrap();
    let (port, log) = (free_udp_port(), temp.path().join("log"));
    let conf = temp.path().join("trapd.conf");
    let text = format!(
        "createUser -e {engine_id} ops SHA-256 \"authentication one\" AES \"privacy two\"\n\
         createUser -e {engine_id} plain SHA-256 \"authentication one\"\n\
         authUser log ops priv\nauthUser log plain auth\n"
    );
    std::fs::write(&conf, text).unwrap();
    let listen = format!("udp:127.0.0.1:{port}");
    let arguments = ["-f", "-C", "-c", conf.to_str()?, "-Lf", log.to_str()?, "-On", "-m", "", &listen];
    let program = Program::start(&program, &arguments.map(AsRef::as_ref), temp.path());
    wait_for("snmptrapd's start", || read(&log).contains("NET-SNMP version").then_some(()));
    Some(Receiver { _program: program, temp, log, port })
}

impl Receiver {
    /// The log once it has this.
    async fn later(&self, text: &str) -> String {
        wait_async(text, || Some(read(&self.log)).filter(|log| log.contains(text))).await
    }
}

fn trap(port: u16) -> Channel {
    channel(
        "traps",
        json!({ "snmp_trap": {
            "host": "127.0.0.1", "port": port, "user": "ops",
            "authentication_password": "authentication one", "privacy_password": "privacy two",
        } }),
    )
}

fn set_up(boots: u32) -> Option<(Reporter, Receiver)> {
    let reporter = reporter(boots);
    let receiver = receiver(&reporter.snmp_engine_id())?;
    Some((reporter, receiver))
}

#[tokio::test]
async fn an_alert_arrives_with_its_objects_and_so_does_its_end() {
    let Some((reporter, receiver)) = set_up(7) else { return };
    reporter.configure(vec![trap(receiver.port)]).unwrap();
    let mut first = alert("disk.failed/tank/3", Critical);
    first.impact = format!("{} äöü.", "One more failure loses data. ".repeat(20));
    reporter.standing(&[first]);
    let log = receiver.later(".32473.1.1.8.0").await;
    let base = ".1.3.6.1.4.1.32473.1";
    for expected in [
        format!(".1.3.6.1.6.3.1.1.4.1.0 = OID: {base}.0.1"),
        format!("{base}.1.1.0 = STRING: \"nas1\""),
        format!("{base}.1.4.0 = STRING: \"disk.failed/tank/3\""),
        format!("{base}.1.5.0 = INTEGER: 1"),
        format!("{base}.1.6.0 = STRING: \"pools\""),
        format!("{base}.1.7.0 = STRING: \"tank\""),
        format!("{base}.1.8.0 = STRING: \"Disk 3 of pool tank failed.\""),
        format!("{base}.1.10.0 = STRING: \"Replace the disk.\""),
        format!("{base}.1.11.0 = STRING: \"forebay disk replace tank/3\""),
        format!("{base}.1.12.0 = STRING: \"2026-01-01T00:00:00.000Z\""),
        format!("{base}.1.13.0 = Gauge32: 1"),
        format!("{base}.1.14.0 = Gauge32: 0"),
        format!("{base}.1.15.0 = Gauge32: 0"),
        ".1.3.6.1.2.1.1.3.0 = Timeticks: (".into(),
    ] {
        assert!(log.contains(&expected), "{expected} is not in\n{log}");
    }
    reporter.standing(&[]);
    receiver.later(&format!("OID: {base}.0.2")).await;
}

#[tokio::test]
async fn a_user_without_privacy_is_signed_only() {
    let Some((reporter, receiver)) = set_up(1) else { return };
    let plain = channel(
        "plain",
        json!({ "snmp_trap": {
            "host": "127.0.0.1", "port": receiver.port, "user": "plain", "level": "auth_no_priv",
            "authentication_password": "authentication one",
        } }),
    );
    reporter.test(&plain).await.unwrap();
    receiver.later(".1.3.6.1.6.3.1.1.4.1.0 = OID: .1.3.6.1.4.1.32473.1.0.4").await;
}

/// The passwords are what the receiver judges by: with others, nothing is logged.
#[tokio::test]
async fn a_wrong_password_is_not_believed() {
    let Some((reporter, receiver)) = set_up(1) else { return };
    for (authentication, privacy) in
        [("authentication 1", "privacy two"), ("authentication one", "privacy 2")]
    {
        let wrong = channel(
            "wrong",
            json!({ "snmp_trap": {
                "host": "127.0.0.1", "port": receiver.port, "user": "ops",
                "authentication_password": authentication, "privacy_password": privacy,
            } }),
        );
        reporter.test(&wrong).await.unwrap();
    }
    reporter.test(&trap(receiver.port)).await.unwrap();
    let log = receiver.later("32473.1.0.4").await;
    assert_eq!(log.matches("32473.1.0.4").count(), 1, "{log}");
}

/// Engine boots count: a message of an earlier start may be a replay, and one of a later start is taken though its time began anew.
#[tokio::test]
async fn starts_of_the_daemon_are_told_apart() {
    let Some((reporter, receiver)) = set_up(5) else { return };
    reporter.test(&trap(receiver.port)).await.unwrap();
    receiver.later("32473.1.0.4").await;
    crate::common::reporter(4).test(&trap(receiver.port)).await.unwrap();
    let later = crate::common::reporter(6);
    later.configure(vec![trap(receiver.port)]).unwrap();
    later.standing(&[alert("a", Warning)]);
    let log = receiver.later("OID: .1.3.6.1.4.1.32473.1.0.1").await;
    assert_eq!(log.matches("32473.1.0.4").count(), 1, "that of the fourth start is old: {log}");
}

/// The receiver's clock for this engine follows the engine's own: what says that it is minutes older or younger is refused.
#[tokio::test]
async fn the_time_of_the_engine_goes_on() {
    let Some((reporter, receiver)) = set_up(2) else { return };
    reporter.test(&trap(receiver.port)).await.unwrap();
    receiver.later("32473.1.0.4").await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    reporter.configure(vec![trap(receiver.port)]).unwrap();
    reporter.standing(&[alert("a", Warning)]);
    let log = receiver.later("OID: .1.3.6.1.4.1.32473.1.0.1").await;
    let ticks = |line: &str| {
        let (_, rest) = line.split_once("Timeticks: (")?;
        rest.split_once(')')?.0.parse::<u32>().ok()
    };
    let up: Vec<u32> = log.lines().filter_map(ticks).collect();
    assert_eq!(up.len(), 2, "{log}");
    assert!((200..2000).contains(&(up[1] - up[0])), "hundredths of a second: {up:?}");
    drop(receiver.temp);
}
