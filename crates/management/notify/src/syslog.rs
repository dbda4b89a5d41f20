//! Syslog lines as in RFC 5424, and their way over UDP (RFC 5426), TCP (RFC 6587) and TLS (RFC 5425).
//!
//! Every alert is one line, also of a summary: programs read it. Fields that a program sorts by are structured data; sentences are the message. An
//! attempt opens a connection and closes it, so that a receiver that went away is noticed by the attempt that meets it and not by the one after;
//! audit lines come many to an attempt.
//!
//! UDP confirms nothing: a line counts as delivered when the network took it and no "port unreachable" came back shortly after.

use crate::connect::{self, Io, io_failure};
use crate::failure::Failure;
use crate::notice::{Appliance, Change, Content, Message, Standing};
use crate::snmp::ENTERPRISE;
use crate::text::{clip, rfc3339};
use forebay_api::{AlertSeverity, AuditEntry};
use forebay_api::{Syslog, SyslogTransport};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// Every receiver takes 480 bytes over IPv4 and 1180 over IPv6, and should take 2048 (RFC 5426, section 3.2); 1180 pass any IPv6 network in one piece.
pub const UDP_BYTES_MAX: usize = 1180;
/// What receivers should take (RFC 5425, section 4.3.1).
pub const STREAM_BYTES_MAX: usize = 8192;
/// Structured data stays whole while the message is cut. A header has at most 304 bytes (a host name of 253), the names and fixed values of an alert 124, and
/// four values are free text of which escapes may double each byte.
const UDP_VALUE_BYTES_MAX: usize = 90;
const _: () = assert!(304 + 124 + 4 * 2 * UDP_VALUE_BYTES_MAX < UDP_BYTES_MAX);
const STREAM_VALUE_BYTES_MAX: usize = 512;
const _: () = assert!(304 + 124 + 4 * 2 * STREAM_VALUE_BYTES_MAX < STREAM_BYTES_MAX);
const SEND_TIME_MAX: Duration = Duration::from_secs(20);
/// How long an ICMP answer of the receiver is waited for.
const UNREACHABLE_TIME: Duration = Duration::from_millis(150);

/// RFC 5424, section 6.2.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Severity {
    Critical = 2,
    Warning = 4,
    Notice = 5,
    Informational = 6,
}

fn severity(change: &Change) -> Severity {
    match (change.standing, change.alert.severity) {
        (Standing::Cleared, _) => Severity::Notice,
        (_, AlertSeverity::Critical) => Severity::Critical,
        (_, AlertSeverity::Warning) => Severity::Warning,
        (_, AlertSeverity::Info) => Severity::Informational,
    }
}

/// One line before it is written out.
struct Line {
    severity: Severity,
    at_unix_ms: u64,
    id: &'static str,
    data: Vec<(&'static str, String)>,
    message: String,
}

/// The lines of a message, each of at most `bytes_max` bytes.
pub fn lines(facility: u8, appliance: &Appliance, message: &Message, bytes_max: usize) -> Vec<Vec<u8>> {
    let value_bytes_max =
        if bytes_max >= STREAM_BYTES_MAX { STREAM_VALUE_BYTES_MAX } else { UDP_VALUE_BYTES_MAX };
    let mut lines: Vec<Line> =
        message.changes().iter().map(|change| alert_line(change, value_bytes_max)).collect();
    let at_unix_ms = message.at_unix_ms;
    let plain =
        |severity, id, text: String| Line { severity, at_unix_ms, id, data: Vec::new(), message: text };
    match &message.content {
        Content::Alert(_) | Content::Summary(_) => {}
        Content::Audit(entries) => lines.extend(entries.iter().map(audit_line)),
        Content::Heartbeat(tally) => {
            let mut heartbeat =
                plain(Severity::Informational, "HEARTBEAT", format!("alive; {}", tally.sentence()));
            heartbeat.data = vec![
                ("critical", tally.critical.to_string()),
                ("warning", tally.warning.to_string()),
                ("info", tally.info.to_string()),
            ];
            lines.push(heartbeat);
        }
        Content::Test => lines.push(plain(Severity::Notice, "TEST", "test message".into())),
    }
    if let Some(lost) = message.lost_sentence() {
        lines.push(plain(Severity::Warning, "LOST", lost));
    }
    lines.into_iter().map(|line| write(facility, appliance, &line, bytes_max, value_bytes_max)).collect()
}

fn alert_line(change: &Change, value_bytes_max: usize) -> Line {
    let alert = &change.alert;
    let id = match change.standing {
        Standing::Standing => "ALERT",
        Standing::Cleared => "CLEARED",
    };
    // Half a command is another command.
    let command =
        alert.command.clone().filter(|command| command.len() <= value_bytes_max).unwrap_or_default();
    let data = vec![
        ("id", alert.id.clone()),
        ("severity", alert.severity.name().into()),
        ("state", change.standing.name().into()),
        ("since", rfc3339(alert.since_unix_ms)),
        ("resource", alert.object.resource.clone()),
        ("object", alert.object.name.clone()),
        ("command", command),
    ];
    let sentences =
        [Some(&*alert.cause), Some(&*alert.impact), Some(&*alert.action), change.repetitions().as_deref()]
            .into_iter()
            .flatten()
            .filter(|sentence| !sentence.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
    Line { severity: severity(change), at_unix_ms: change.at_unix_ms, id, data, message: sentences }
}

fn audit_line(entry: &AuditEntry) -> Line {
    let mut data = vec![
        ("sequence", entry.sequence.to_string()),
        ("principal", entry.principal.clone()),
        ("address", entry.address.clone()),
        ("operation", entry.operation.clone()),
        ("status", entry.status.to_string()),
    ];
    data.extend(entry.code.map(|code| ("code", code.to_string())));
    data.extend(entry.task.clone().map(|task| ("task", task)));
    let code = entry.code.map_or(String::new(), |code| format!(" {code}"));
    let times = entry.count.map_or(String::new(), |count| format!(", {count} times"));
    let changes =
        if entry.changes.is_empty() { String::new() } else { format!(" ({})", entry.changes.join("; ")) };
    let AuditEntry { principal, operation, path, status, .. } = entry;
    let message = format!("{principal} {operation} {path}: {status}{code}{times}{changes}");
    Line { severity: Severity::Notice, at_unix_ms: entry.at_unix_ms, id: "AUDIT", data, message }
}

/// `<PRI>1 TIMESTAMP HOSTNAME forebay - MSGID [forebay@PEN …] BOM MSG`.
fn write(
    facility: u8,
    appliance: &Appliance,
    line: &Line,
    bytes_max: usize,
    value_bytes_max: usize,
) -> Vec<u8> {
    let priority = u16::from(facility) * 8 + line.severity as u16;
    let host = appliance.host_name();
    let mut data = String::from("-");
    if !line.data.is_empty() {
        data = format!("[forebay@{ENTERPRISE}");
        for (name, value) in &line.data {
            // Cut before it is escaped, so that no escape is cut in two.
            data += &format!(" {name}=\"{}\"", escape(clip(value, value_bytes_max)));
        }
        data.push(']');
    }
    let time = rfc3339(line.at_unix_ms);
    // A BOM says that the message is UTF-8 (RFC 5424, section 6.4).
    let whole = format!("<{priority}>1 {time} {host} forebay - {} {data} \u{feff}{}", line.id, line.message);
    clip(&whole, bytes_max).as_bytes().to_vec()
}

/// RFC 5424, section 6.3.3.
fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '"' | '\\' | ']') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

pub async fn deliver(syslog: &Syslog, appliance: &Appliance, message: &Message) -> Result<(), Failure> {
    let (host, port) = (&*syslog.host, syslog.port.unwrap_or(syslog.transport.port()));
    let stream: Box<dyn Io> = match syslog.transport {
        SyslogTransport::Udp => {
            let lines = lines(syslog.facility, appliance, message, UDP_BYTES_MAX);
            return send_datagrams(host, port, &lines).await;
        }
        SyslogTransport::Tcp => Box::new(connect::tcp(host, port).await?),
        SyslogTransport::Tls => {
            let tcp = connect::tcp(host, port).await?;
            connect::tls(tcp, host, port, syslog.ca_pem.as_deref()).await?
        }
    };
    let lines = lines(syslog.facility, appliance, message, STREAM_BYTES_MAX);
    match timeout(SEND_TIME_MAX, send_frames(stream, &lines)).await {
        Ok(sent) => sent.map_err(|error| io_failure(host, port, "did not take the lines", &error)),
        Err(_) => Err(Failure::passing(
            format!("{host}:{port} took no data for {} s", SEND_TIME_MAX.as_secs()),
            "Check that the syslog receiver is not stuck on a full disk or queue.",
        )),
    }
}

/// Octet counting (RFC 6587, section 3.4.1; RFC 5425, section 4.3), then an end, and whether the receiver closes in peace.
async fn send_frames(mut stream: Box<dyn Io>, lines: &[Vec<u8>]) -> std::io::Result<()> {
    let mut frames = Vec::new();
    for line in lines {
        frames.extend_from_slice(format!("{} ", line.len()).as_bytes());
        frames.extend_from_slice(line);
    }
    stream.write_all(&frames).await?;
    stream.flush().await?;
    stream.shutdown().await?;
    // Syslog has no answers. A reset shows that the receiver died with the lines unread; silence shows nothing.
    let mut byte = [0; 1];
    match timeout(UNREACHABLE_TIME, stream.read(&mut byte)).await {
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(()),
    }
}

/// Sends datagrams, and waits a little for the answer that nothing listens there.
pub async fn send_datagrams(host: &str, port: u16, datagrams: &[Vec<u8>]) -> Result<(), Failure> {
    let addresses = connect::look_up(host, port).await?;
    let address = addresses[0];
    let any: IpAddr = match address {
        std::net::SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        std::net::SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let send = async {
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(address).await?;
        for datagram in datagrams {
            socket.send(datagram).await?;
        }
        match timeout(UNREACHABLE_TIME, socket.recv(&mut [0; 1])).await {
            Ok(Err(error)) => Err(error),
            _ => Ok(()),
        }
    };
    match timeout(SEND_TIME_MAX, send).await {
        Ok(sent) => sent.map_err(|error| io_failure(host, port, "cannot be sent to", &error)),
        Err(_) => Err(Failure::passing(
            format!("{host}:{port} cannot be sent to"),
            "Check the appliance's network.",
        )),
    }
}
