//! What a trap says: the objects and notifications of `mib/FOREBAY-MIB.txt`, which a test compares with the tables here.

use super::ENTERPRISE;
use super::ber::{SEQUENCE, TIME_TICKS, TRAP_V2, UNSIGNED_32, integer, octets, oid, sequence, unsigned};
use crate::notice::{Appliance, Change, Content, Message, Standing, Tally};
use crate::text::{clip, rfc3339};
use forebay_api::AlertSeverity;

/// SnmpAdminString (RFC 3411, section 5).
const STRING_BYTES_MAX: usize = 255;
/// sysUpTime.0 and snmpTrapOID.0, which every SNMPv2 trap begins with (RFC 3416, section 4.2.6).
const SYS_UP_TIME: &[u32] = &[1, 3, 6, 1, 2, 1, 1, 3, 0];
const SNMP_TRAP_OID: &[u32] = &[1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0];

/// `forebayMIB`.
pub const MIB: &[u32] = &[1, 3, 6, 1, 4, 1, ENTERPRISE, 1];
/// Below [`MIB`]: notifications, and objects.
pub const NOTIFICATIONS: u32 = 0;
pub const OBJECTS: u32 = 1;

/// A notification, with the last number of its identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Notification {
    AlertRaised = 1,
    AlertCleared = 2,
    Heartbeat = 3,
    Test = 4,
}

impl Notification {
    pub const ALL: [(Notification, &'static str); 4] = [
        (Notification::AlertRaised, "forebayAlertRaised"),
        (Notification::AlertCleared, "forebayAlertCleared"),
        (Notification::Heartbeat, "forebayHeartbeat"),
        (Notification::Test, "forebayTest"),
    ];
}

/// An object, with the last number of its identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Object {
    ApplianceName = 1,
    ApplianceId = 2,
    MessageId = 3,
    AlertId = 4,
    Severity = 5,
    Resource = 6,
    ObjectName = 7,
    Cause = 8,
    Impact = 9,
    Action = 10,
    Command = 11,
    Since = 12,
    TimesRaised = 13,
    TimesCleared = 14,
    Lost = 15,
    Critical = 16,
    Warning = 17,
    Info = 18,
}

impl Object {
    pub const ALL: [(Object, &'static str); 18] = [
        (Object::ApplianceName, "forebayApplianceName"),
        (Object::ApplianceId, "forebayApplianceId"),
        (Object::MessageId, "forebayMessageId"),
        (Object::AlertId, "forebayAlertId"),
        (Object::Severity, "forebayAlertSeverity"),
        (Object::Resource, "forebayAlertResource"),
        (Object::ObjectName, "forebayAlertObject"),
        (Object::Cause, "forebayAlertCause"),
        (Object::Impact, "forebayAlertImpact"),
        (Object::Action, "forebayAlertAction"),
        (Object::Command, "forebayAlertCommand"),
        (Object::Since, "forebayAlertSince"),
        (Object::TimesRaised, "forebayAlertTimesRaised"),
        (Object::TimesCleared, "forebayAlertTimesCleared"),
        (Object::Lost, "forebayLostNotices"),
        (Object::Critical, "forebayStandingCritical"),
        (Object::Warning, "forebayStandingWarning"),
        (Object::Info, "forebayStandingInfo"),
    ];
}

/// The value of forebayAlertSeverity.
pub fn severity(severity: AlertSeverity) -> u32 {
    match severity {
        AlertSeverity::Critical => 1,
        AlertSeverity::Warning => 2,
        AlertSeverity::Info => 3,
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Text(String),
    /// An enumeration.
    Integer(u32),
    /// Unsigned32.
    Count(u32),
}

/// A notification with its objects, in the order of the MIB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trap {
    pub notification: Notification,
    pub objects: Vec<(Object, Value)>,
}

fn text(text: &str) -> Value {
    Value::Text(clip(text, STRING_BYTES_MAX).to_owned())
}

fn count(count: impl TryInto<u32>) -> Value {
    Value::Count(count.try_into().unwrap_or(u32::MAX))
}

/// A trap for each alert of a message, or one for a heartbeat or test.
pub fn traps(appliance: &Appliance, message: &Message) -> Vec<Trap> {
    let trap = |notification, objects: Vec<(Object, Value)>| {
        let mut all = vec![
            (Object::ApplianceName, text(&appliance.name)),
            (Object::ApplianceId, text(&appliance.id)),
            (Object::MessageId, text(&message.id)),
        ];
        all.extend(objects);
        all.push((Object::Lost, count(message.lost)));
        Trap { notification, objects: all }
    };
    match &message.content {
        Content::Alert(_) | Content::Summary(_) => message
            .changes()
            .iter()
            .map(|change| {
                let notification = match change.standing {
                    Standing::Standing => Notification::AlertRaised,
                    Standing::Cleared => Notification::AlertCleared,
                };
                trap(notification, alert_objects(change))
            })
            .collect(),
        Content::Heartbeat(tally) => vec![trap(Notification::Heartbeat, tally_objects(tally))],
        Content::Test => vec![trap(Notification::Test, Vec::new())],
        Content::Audit(_) => Vec::new(),
    }
}

fn alert_objects(change: &Change) -> Vec<(Object, Value)> {
    let alert = &change.alert;
    // Half a command is another command.
    let fits = |command: &&str| command.len() <= STRING_BYTES_MAX;
    vec![
        (Object::AlertId, text(&alert.id)),
        (Object::Severity, Value::Integer(severity(alert.severity))),
        (Object::Resource, text(&alert.object.resource)),
        (Object::ObjectName, text(&alert.object.name)),
        (Object::Cause, text(&alert.cause)),
        (Object::Impact, text(&alert.impact)),
        (Object::Action, text(&alert.action)),
        (Object::Command, text(alert.command.as_deref().filter(fits).unwrap_or_default())),
        (Object::Since, text(&rfc3339(alert.since_unix_ms))),
        (Object::TimesRaised, count(change.raised)),
        (Object::TimesCleared, count(change.cleared)),
    ]
}

fn tally_objects(tally: &Tally) -> Vec<(Object, Value)> {
    vec![
        (Object::Critical, count(tally.critical)),
        (Object::Warning, count(tally.warning)),
        (Object::Info, count(tally.info)),
    ]
}

impl Trap {
    /// SNMPv2-Trap-PDU (RFC 3416, sections 3 and 4.2.6). `up_time` is in hundredths of a second.
    pub fn pdu(&self, up_time: u32, request: u32) -> Vec<u8> {
        let below = |branch: u32, numbers: &[u32]| [MIB, &[branch], numbers].concat();
        let bind = |name: &[u32], value: Vec<u8>| sequence(SEQUENCE, &[oid(name), value]);
        let mut variables = vec![
            bind(SYS_UP_TIME, unsigned(TIME_TICKS, up_time)),
            bind(SNMP_TRAP_OID, oid(&below(NOTIFICATIONS, &[self.notification as u32]))),
        ];
        for (object, value) in &self.objects {
            let value = match value {
                Value::Text(text) => octets(text.as_bytes()),
                Value::Integer(number) => integer(*number),
                Value::Count(number) => unsigned(UNSIGNED_32, *number),
            };
            // Each object exists once, so its instance is 0.
            variables.push(bind(&below(OBJECTS, &[*object as u32, 0]), value));
        }
        // No error, at no variable.
        sequence(TRAP_V2, &[integer(request), integer(0), integer(0), sequence(SEQUENCE, &variables)])
    }
}
