//! What the formats make of a message, where no receiver is needed to judge: subjects, lines and traps byte by byte, and the MIB against the code.

use crate::notice::{Appliance, Content, Tally};
use crate::samples::{alert, appliance, cleared, message, raised};
use crate::snmp::trap::{self, MIB, NOTIFICATIONS, Notification, OBJECTS, Object, Value};
use crate::snmp::usm;
use crate::{mail, syslog};
use forebay_api::AlertSeverity::{self, Critical, Info, Warning};
use std::collections::BTreeMap;

#[test]
fn subjects_say_what_matters_first() {
    let long = "x".repeat(1000);
    let mut wordy = alert("a", Warning);
    wordy.cause = long;
    let summary = vec![cleared(&alert("a", Critical)), raised(&alert("b", Warning))];
    let all_cleared = vec![cleared(&alert("a", Critical)), cleared(&alert("b", Warning))];
    for (content, expected) in [
        (
            Content::Alert(raised(&alert("a", Critical)).into()),
            "critical: Disk 3 of pool tank failed. (pools/tank)",
        ),
        (
            Content::Alert(cleared(&alert("a", Critical)).into()),
            "cleared: Disk 3 of pool tank failed. (pools/tank)",
        ),
        (Content::Summary(summary), "summary of 2 alerts: 1 warning"),
        (Content::Summary(all_cleared), "summary of 2 alerts: all cleared"),
        (
            Content::Heartbeat(Tally { critical: 1, warning: 2, info: 0 }),
            "heartbeat: 1 critical, 2 warning and 0 info alerts are active",
        ),
        (Content::Test, "test message"),
    ] {
        assert_eq!(mail::subject(&appliance(), &message(content)), format!("[nas1.example.com] {expected}"));
    }
    assert!(mail::subject(&appliance(), &message(Content::Alert(raised(&wordy).into()))).len() <= 180);
    let hostile = Appliance { name: "a\r\nBcc: b@c.example".into(), ..appliance() };
    assert!(!mail::subject(&hostile, &message(Content::Test)).contains(['\r', '\n']));
}

#[test]
fn a_mail_is_tagged_as_automatic_and_has_no_line_that_a_server_would_refuse() {
    let mut wordy = alert("a", Critical);
    wordy.cause = "ä".repeat(2000);
    wordy.action = "y".repeat(5000);
    let message = message(Content::Alert(raised(&wordy).into()));
    let (envelope, bytes) =
        mail::compose("A <a@b.example>", &["c@d.example".into()], &appliance(), &message).unwrap();
    assert_eq!(envelope.to().len(), 1);
    assert!(bytes.is_ascii());
    for line in bytes.split(|b| *b == b'\n') {
        assert!(line.len() <= 998, "RFC 5322, section 2.1.1: {}", line.len());
        assert_eq!(line.iter().filter(|b| **b == b'\r').count(), usize::from(line.ends_with(b"\r")));
    }
}

#[test]
fn addresses_with_breaks_or_more_than_one_are_none() {
    for good in ["a@b.example", "first.last+tag@sub.b.example"] {
        assert!(mail::address(good).is_some() && mail::sender(good).is_some(), "{good}");
    }
    assert!(mail::sender("Storage of Ann <a@b.example>").is_some());
    for bad in [
        "",
        "a",
        "a@",
        "@b",
        "a@b\r\nRCPT TO:<c@d>",
        "a@b.example, c@d.example",
        "a b@c.example",
        "ä@b.example",
        "a@b.example>",
    ] {
        assert!(mail::address(bad).is_none(), "{bad:?}");
    }
    assert!(mail::sender("A\r\nBcc: <c@d.example> <a@b.example>").is_none());
}

#[test]
fn a_syslog_line_has_the_form_of_rfc_5424() {
    let mut alert = alert("x\"]\\", Critical);
    alert.command = None;
    let message = message(Content::Alert(raised(&alert).into()));
    let lines = syslog::lines(16, &appliance(), &message, syslog::STREAM_BYTES_MAX);
    assert_eq!(
        String::from_utf8(lines[0].clone()).unwrap(),
        "<130>1 2026-01-01T00:00:00.500Z nas1.example.com forebay - ALERT [forebay@32473 id=\"x\\\"\\]\\\\\" severity=\"critical\" \
         state=\"standing\" since=\"2026-01-01T00:00:00.000Z\" resource=\"pools\" object=\"tank\" command=\"\"] \
         \u{feff}Disk 3 of pool tank failed. One more failure loses data. Replace the disk."
    );
}

#[test]
fn severities_and_what_was_lost_have_their_lines() {
    let line = |content, lost| {
        let lines =
            syslog::lines(0, &appliance(), &crate::notice::Message { lost, ..message(content) }, 1180);
        lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect::<Vec<_>>()
    };
    for (severity, expected) in [(Critical, "<2>1 "), (Warning, "<4>1 "), (Info, "<6>1 ")] {
        assert!(line(Content::Alert(raised(&alert("a", severity)).into()), 0)[0].starts_with(expected));
    }
    assert!(line(Content::Alert(cleared(&alert("a", Critical)).into()), 0)[0].starts_with("<5>1 "));
    let lost = line(Content::Test, 3);
    assert!(
        lost[1].contains(" LOST - ") && lost[1].contains("3 earlier notices were not delivered"),
        "{lost:?}"
    );
    let summary = Content::Summary(vec![raised(&alert("a", Warning)), raised(&alert("b", Warning))]);
    assert_eq!(line(summary, 0).len(), 2);
}

#[test]
fn the_worst_values_leave_structured_data_whole() {
    let mut worst = alert(&"\\".repeat(3000), Warning);
    worst.object.resource = "\"".repeat(3000);
    worst.object.name = "]€".repeat(3000);
    worst.command = Some("\\".repeat(syslog::UDP_BYTES_MAX));
    let host = Appliance { name: "a".repeat(2000), ..appliance() };
    let message = message(Content::Alert(cleared(&worst).into()));
    for bytes_max in [syslog::UDP_BYTES_MAX, syslog::STREAM_BYTES_MAX] {
        let line = syslog::lines(23, &host, &message, bytes_max).remove(0);
        let line = String::from_utf8(line).unwrap();
        assert!(line.len() <= bytes_max);
        assert!(line.contains("\"] \u{feff}Disk"), "{line}");
        assert!(line.contains(" command=\"\"]"), "half a command is another command: {line}");
    }
}

/// The passwords and engine of RFC 3414, appendix A.3; RFC 7860 has no vectors, so these are Python's (hashlib), whose SHA-1 by the same steps gives
/// appendix A.3.2.
#[test]
fn keys_are_localized_as_in_rfc_3414() {
    let engine = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let hex: String =
        usm::localized_key("maplesyrup", &engine).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "8982e0e549e866db361a6b625d84cccc11162d453ee8ce3a6445c2d6776f0f8b");
    // Of no length or a great one.
    usm::localized_key("", &engine);
    usm::localized_key(&"x".repeat(2 << 20), &engine);
    let id = usm::engine_id("an appliance");
    assert_eq!((id.len(), &id[..5]), (21, &[0x80, 0, 0x7e, 0xd9, 5][..]));
    assert_ne!(id, usm::engine_id("another appliance"));
}

struct Definition {
    oid: Vec<u32>,
    /// The words after SYNTAX, up to MAX-ACCESS.
    syntax: String,
    /// The names in OBJECTS.
    objects: Vec<String>,
}

/// Definitions of the MIB with their identifiers resolved from `enterprises`.
fn mib() -> BTreeMap<String, Definition> {
    let text = include_str!("../mib/FOREBAY-MIB.txt");
    let text: String =
        text.lines().map(|line| line.split("--").next().unwrap_or_default().to_owned() + "\n").collect();
    // Strings may have anything in them.
    let text: String = text.split('"').step_by(2).collect();
    let text = text.split_once(';').unwrap().1.to_owned();
    let mut known = BTreeMap::from([("enterprises".to_owned(), vec![1, 3, 6, 1, 4, 1])]);
    let mut found = BTreeMap::new();
    // `forebay` is used before it is defined.
    for _ in 0..2 {
        let mut rest = &*text;
        while let Some((before, after)) = rest.split_once("::= {") {
            let (value, after) = after.split_once('}').unwrap();
            rest = after;
            let words: Vec<&str> = before.split_whitespace().collect();
            let kinds = [
                "MODULE-IDENTITY",
                "OBJECT",
                "OBJECT-TYPE",
                "NOTIFICATION-TYPE",
                "OBJECT-GROUP",
                "NOTIFICATION-GROUP",
                "MODULE-COMPLIANCE",
            ];
            let kind = words.iter().position(|word| kinds.contains(word)).unwrap();
            let name = words[kind - 1].to_owned();
            let (parent, number) = value.trim().split_once(' ').unwrap();
            let Some(parent) = known.get(parent) else { continue };
            let oid = [parent.clone(), vec![number.parse().unwrap()]].concat();
            known.insert(name.clone(), oid.clone());
            let body = before.rsplit_once(words[kind]).unwrap().1;
            let between = |begin: &str, end: &str| {
                body.split_once(begin)
                    .and_then(|(_, rest)| rest.split_once(end))
                    .map_or("", |(text, _)| text)
                    .trim()
                    .to_owned()
            };
            let objects =
                between("OBJECTS     {", "}").split(',').map(|name| name.trim().to_owned()).collect();
            found.insert(name, Definition { oid, syntax: between("SYNTAX", "MAX-ACCESS"), objects });
        }
    }
    found
}

#[test]
fn the_mib_and_the_code_define_the_same() {
    let mib = mib();
    assert_eq!(mib["forebayMIB"].oid, MIB);
    for (branch, prefix, all) in [
        (OBJECTS, "forebayObjects", Object::ALL.map(|(object, name)| (object as u32, name)).to_vec()),
        (
            NOTIFICATIONS,
            "forebayNotifications",
            Notification::ALL.map(|(one, name)| (one as u32, name)).to_vec(),
        ),
    ] {
        let base = [MIB, &[branch]].concat();
        assert_eq!(mib[prefix].oid, base);
        let below =
            mib.iter().filter(|(_, found)| found.oid.len() == base.len() + 1 && found.oid.starts_with(&base));
        let defined: BTreeMap<u32, &str> =
            below.map(|(name, found)| (found.oid[base.len()], &**name)).collect();
        assert_eq!(defined, all.into_iter().collect());
    }
}

#[test]
fn traps_have_the_objects_that_the_mib_lists_with_their_types() {
    let mib = mib();
    let names: BTreeMap<u32, &str> = Object::ALL.map(|(object, name)| (object as u32, name)).into();
    for content in [
        Content::Alert(raised(&alert("a", Critical)).into()),
        Content::Alert(cleared(&alert("a", Info)).into()),
        Content::Heartbeat(Tally::default()),
        Content::Test,
    ] {
        let trap = trap::traps(&appliance(), &message(content)).remove(0);
        let (_, name) = Notification::ALL.into_iter().find(|(one, _)| *one == trap.notification).unwrap();
        let sent: Vec<&str> = trap.objects.iter().map(|(object, _)| names[&(*object as u32)]).collect();
        assert_eq!(mib[name].objects, sent, "{name}");
        for (object, value) in &trap.objects {
            let syntax = &*mib[names[&(*object as u32)]].syntax;
            let expected = match value {
                Value::Text(_) => "SnmpAdminString",
                Value::Count(_) => "Unsigned32",
                Value::Integer(_) => "INTEGER { critical(1), warning(2), info(3) }",
            };
            assert_eq!(syntax, expected, "{object:?}");
        }
    }
    let severity = |severity: AlertSeverity| format!("{}({})", severity.name(), trap::severity(severity));
    let listed = [Critical, Warning, Info].map(severity).join(", ");
    assert_eq!(mib["forebayAlertSeverity"].syntax, format!("INTEGER {{ {listed} }}"));
}
