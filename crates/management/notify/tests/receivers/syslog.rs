//! Does rsyslog read in our lines what we mean, over UDP, TCP and TLS? Its parsers are the oracle: one for RFC 5424 and one that undoes the escapes of structured
//! data.

use crate::common::{
    Certificates, Program, alert, channel, find, free_tcp_port, free_udp_port, read, reporter,
};
use crate::common::{certificates, wait_async, wait_for_listener};
use forebay_api::AlertSeverity::{Critical, Info};
use forebay_api::{AlertObject, AuditEntry};
use forebay_notify::Channel;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

struct Receiver {
    _program: Program,
    _temp: TempDir,
    certificates: Certificates,
    out: PathBuf,
    udp: u16,
    tcp: u16,
    tls: u16,
}

fn receiver() -> Option<Receiver> {
    let program = find("rsyslogd", "rsyslog")?;
    if std::fs::read_dir("/usr/lib/x86_64-linux-gnu/rsyslog")
        .is_ok_and(|mut files| !files.any(|file| file.is_ok_and(|file| file.file_name() == "lmnsd_gtls.so")))
    {
        println!("skipped: rsyslog has no TLS (Debian package rsyslog-gnutls)");
        return None;
    }
    let temp = tempfile::tempdir().unwrap();
    let certificates = certificates(temp.path(), "127.0.0.1");
    let (udp, tcp, tls) = (free_udp_port(), free_tcp_port(), free_tcp_port());
    let out = temp.path().join("out");
    let (ca, certificate, key) = (
        certificates.authority_file.display(),
        certificates.certificate_file.display(),
        certificates.key_file.display(),
    );
    let fields =
        "%pri%|%hostname%|%app-name%|%msgid%|%timereported:::date-rfc3339%|%inputname%|%$!rfc5424-sd%|%msg%";
    let conf = format!(
        r#"global(workDirectory="{dir}" maxMessageSize="16k" defaultNetstreamDriverCAFile="{ca}" defaultNetstreamDriverCertFile="{certificate}" defaultNetstreamDriverKeyFile="{key}")
module(load="imudp")
module(load="imptcp")
module(load="imtcp" StreamDriver.Name="gtls" StreamDriver.Mode="1" StreamDriver.AuthMode="anon")
module(load="mmpstrucdata")
input(type="imudp" address="127.0.0.1" port="{udp}" name="udp")
input(type="imptcp" address="127.0.0.1" port="{tcp}" name="tcp")
input(type="imtcp" address="127.0.0.1" port="{tls}" name="tls")
template(name="line" type="string" string="{fields}\n")
action(type="mmpstrucdata" sd_name.lowercase="off")
action(type="omfile" file="{out}" template="line")
"#,
        dir = temp.path().display(),
        out = out.display(),
    );
    let file = temp.path().join("rsyslog.conf");
    std::fs::write(&file, conf).unwrap();
    let pid = temp.path().join("pid");
    let arguments = ["-n", "-f", file.to_str()?, "-i", pid.to_str()?];
    let program = Program::start(&program, &arguments.map(AsRef::as_ref), temp.path());
    wait_for_listener(tcp);
    wait_for_listener(tls);
    Some(Receiver { _program: program, _temp: temp, certificates, out, udp, tcp, tls })
}

#[derive(Debug)]
struct Line {
    priority: u32,
    host: String,
    message_id: String,
    time: String,
    data: Value,
    message: String,
}

impl Receiver {
    fn syslog(&self, transport: &str) -> Channel {
        let port = match transport {
            "udp" => self.udp,
            "tcp" => self.tcp,
            _ => self.tls,
        };
        let ca = &self.certificates.authority;
        channel(
            transport,
            json!({ "syslog": { "host": "127.0.0.1", "port": port, "transport": transport, "facility": 16, "ca_pem": ca } }),
        )
    }

    /// So many lines that came over this transport, as rsyslog took them apart.
    async fn lines(&self, transport: &str, count: usize) -> Vec<Line> {
        wait_async("the lines", || {
            let lines: Vec<Line> =
                read(&self.out).lines().filter_map(|line| parse(line, transport)).collect();
            (lines.len() >= count).then_some(lines)
        })
        .await
    }
}

fn parse(line: &str, transport: &str) -> Option<Line> {
    let parts: Vec<&str> = line.splitn(7, '|').collect();
    let [priority, host, application, message_id, time, input, rest] = parts[..] else { return None };
    // Structured data is JSON, which may have the separator in it.
    let mut data = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let (data, message) = match data.next() {
        Some(Ok(data_value)) => (data_value, rest[data.byte_offset()..].trim_start_matches('|')),
        _ => (Value::Null, rest.trim_start_matches('|')),
    };
    (input == transport && application == "forebay").then(|| Line {
        priority: priority.parse().unwrap(),
        host: host.into(),
        message_id: message_id.into(),
        time: time.into(),
        data: data["forebay@32473"].clone(),
        message: message.trim_start_matches('\u{feff}').into(),
    })
}

/// A name that ends a value, a structure and a line, unless it is escaped.
const HOSTILE: &str = r#"a"] [x@1 y="\z\"] |"#;

#[tokio::test]
async fn a_line_says_the_same_over_all_transports() {
    let Some(receiver) = receiver() else { return };
    for transport in ["udp", "tcp", "tls"] {
        let reporter = reporter(1);
        reporter.configure(vec![receiver.syslog(transport)]).unwrap();
        let mut alert = alert("disk.failed/tank/3", Critical);
        alert.object = AlertObject { resource: "volumes".into(), name: HOSTILE.into() };
        alert.cause = "Größe\nund mehr.".into();
        reporter.standing(std::slice::from_ref(&alert));
        let lines = receiver.lines(transport, 1).await;
        let line = &lines[0];
        // local0 is 16, critical is 2.
        assert_eq!((line.priority, &*line.host, &*line.message_id), (16 * 8 + 2, "nas1", "ALERT"));
        assert!(line.time.starts_with("20") && line.time.ends_with(['Z', '0']), "{}", line.time);
        assert_eq!(
            line.data,
            json!({
                "id": "disk.failed/tank/3", "severity": "critical", "state": "standing", "since": "2026-01-01T00:00:00.000Z",
                "resource": "volumes", "object": HOSTILE, "command": "forebay disk replace tank/3",
            })
        );
        assert_eq!(line.message, "Größe und mehr. One more failure loses data. Replace the disk.");
        reporter.standing(&[]);
        let cleared = receiver.lines(transport, 2).await.remove(1);
        assert_eq!(
            (cleared.priority, &*cleared.message_id, &cleared.data["state"]),
            (133, "CLEARED", &json!("cleared"))
        );
        let state =
            wait_async("success", || Some(reporter.states().remove(0)).filter(|s| s.delivered == 2)).await;
        assert_eq!(state.error, None);
    }
}

#[tokio::test]
async fn audit_lines_come_in_order_and_alone_where_only_they_are_wanted() {
    let Some(receiver) = receiver() else { return };
    let reporter = reporter(1);
    let mut audit = receiver.syslog("tls");
    audit.spec.kinds = [forebay_api::NoticeKind::Audit].into();
    reporter.configure(vec![audit]).unwrap();
    reporter.standing(&[alert("a", Critical)]);
    for sequence in 0..400 {
        reporter.audit(&AuditEntry {
            sequence,
            at_unix_ms: 1_767_225_600_123,
            principal: "user ann".into(),
            address: "192.0.2.7".into(),
            operation: "VolumeCreate".into(),
            path: "/v1/volumes\n<0>1 forged".into(),
            status: 202,
            changes: vec!["size_bytes: 2, was 1".into()],
            code: None,
            task: None,
            count: None,
        });
    }
    let lines = receiver.lines("tls", 400).await;
    let sequences: Vec<String> =
        lines.iter().map(|line| line.data["sequence"].as_str().unwrap().into()).collect();
    assert_eq!(sequences, (0..400).map(|n: u32| n.to_string()).collect::<Vec<_>>());
    assert_eq!((lines[7].priority, &*lines[7].message_id), (133, "AUDIT"));
    assert_eq!(lines[7].message, "user ann VolumeCreate /v1/volumes <0>1 forged: 202 (size_bytes: 2, was 1)");
    assert!(lines[7].time.starts_with("2026-01-01T00:00:00.123"), "{}", lines[7].time);
}

#[tokio::test]
async fn over_udp_the_message_is_cut_and_the_data_is_whole() {
    let Some(receiver) = receiver() else { return };
    let reporter = reporter(1);
    reporter.configure(vec![receiver.syslog("udp")]).unwrap();
    let mut alert = alert("a", Info);
    alert.cause = "ä€".repeat(400);
    reporter.standing(&[alert]);
    let line = receiver.lines("udp", 1).await.remove(0);
    assert_eq!(line.data["command"], "forebay disk replace tank/3");
    assert!(line.message.len() > 600 && line.message.len() < 1180, "{}", line.message.len());
    assert!(line.message.chars().all(|c| "ä€".contains(c)), "cut within a character: {}", line.message);
}

#[tokio::test]
async fn a_receiver_without_a_trusted_certificate_gets_nothing() {
    let Some(receiver) = receiver() else { return };
    let other = tempfile::tempdir().unwrap();
    let stranger = certificates(other.path(), "127.0.0.1").authority;
    let mut channel = receiver.syslog("tls");
    if let forebay_api::Delivery::Syslog(syslog) = &mut channel.spec.delivery {
        syslog.ca_pem = Some(stranger);
    }
    let failure = reporter(1).test(&channel).await.unwrap_err();
    assert!(failure.message.contains("not trusted here"), "{failure}");
    assert!(failure.remedy.contains("ca_pem"), "{failure}");
    assert_eq!(read(&receiver.out), "");
}
