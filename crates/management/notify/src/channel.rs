//! What a person configures: where messages go, which ones, and when.
//!
//! A channel is plain data that goes to a JSON file with [`Channel::to_stored`] and to a display with `Serialize`, which hides secrets
//! ([`Secret`]). Nothing here is trusted until [`Channel::check`] found nothing to complain about.

use crate::quiet::QuietHours;
use crate::secret::Secret;
use forebay_api::AlertSeverity;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// What a channel can be told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An alert began, or became more severe.
    Raised,
    /// An alert is over.
    Cleared,
    /// The appliance is alive; every [`Channel::heartbeat_hours`].
    Heartbeat,
    /// A line of the audit log; syslog only.
    Audit,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// Unique; what the UI and errors call it.
    pub name: String,
    #[serde(default = "enabled")]
    pub enabled: bool,
    pub delivery: Delivery,
    /// Alerts of this severity and more severe ones are delivered.
    #[serde(default = "warning")]
    pub severity_min: AlertSeverity,
    #[serde(default = "raised_and_cleared")]
    pub kinds: BTreeSet<Kind>,
    /// Hours between heartbeats, 1 to 744.
    #[serde(default = "daily")]
    pub heartbeat_hours: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_hours: Option<QuietHours>,
}

fn enabled() -> bool {
    true
}
fn warning() -> AlertSeverity {
    AlertSeverity::Warning
}
fn raised_and_cleared() -> BTreeSet<Kind> {
    BTreeSet::from([Kind::Raised, Kind::Cleared])
}
fn daily() -> u32 {
    24
}

/// How messages are delivered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delivery {
    Mail(Mail),
    Webhook(Webhook),
    Syslog(Syslog),
    SnmpTrap(SnmpTrap),
}

impl Delivery {
    /// As in the JSON field `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Delivery::Mail(_) => "mail",
            Delivery::Webhook(_) => "webhook",
            Delivery::Syslog(_) => "syslog",
            Delivery::SnmpTrap(_) => "snmp_trap",
        }
    }

    /// Every secret, with its place as a JSON pointer below the delivery: what is not on this list is neither stored nor kept.
    pub(crate) fn secrets(&mut self) -> Vec<(&'static str, &mut Secret)> {
        match self {
            Delivery::Mail(mail) => {
                mail.login.iter_mut().map(|login| ("/login/password", &mut login.password)).collect()
            }
            Delivery::Webhook(webhook) => vec![("/secret", &mut webhook.secret)],
            Delivery::Syslog(_) => Vec::new(),
            Delivery::SnmpTrap(trap) => vec![
                ("/authentication_password", &mut trap.authentication_password),
                ("/privacy_password", &mut trap.privacy_password),
            ],
        }
    }
}

/// How a mail connection is protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailSecurity {
    /// TLS is negotiated on the plain connection and required (RFC 3207); port 587.
    StartTls,
    /// TLS from the first byte (RFC 8314); port 465.
    Tls,
    /// Not protected; port 25. Without a login only.
    None,
}

impl MailSecurity {
    pub(crate) fn port(self) -> u16 {
        match self {
            MailSecurity::StartTls => 587,
            MailSecurity::Tls => 465,
            MailSecurity::None => 25,
        }
    }
}

/// Mail over SMTP (RFC 5321).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mail {
    /// Name or address of the mail server.
    pub host: String,
    /// The standard one of `security` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default = "start_tls")]
    pub security: MailSecurity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// `nas@example.com` or `Storage <nas@example.com>`.
    pub from: String,
    /// Addresses only, 1 to 32.
    pub to: Vec<String>,
    /// PEM of the authorities that are trusted instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
}

fn start_tls() -> MailSecurity {
    MailSecurity::StartTls
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    pub user: String,
    #[serde(default)]
    pub password: Secret,
}

/// A POST of JSON, signed as [`webhook`](crate::webhook) describes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// `https://…`, or `http://…` where the network is trusted.
    pub url: String,
    /// `whsec_` and the base64 of 24 to 64 random bytes.
    #[serde(default)]
    pub secret: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyslogTransport {
    /// RFC 5426, port 514: nothing tells whether a line arrived.
    Udp,
    /// RFC 6587 with octet counting, port 514 (as receivers are usually configured: it has no registered one).
    Tcp,
    /// RFC 5425, port 6514.
    Tls,
}

impl SyslogTransport {
    pub(crate) fn port(self) -> u16 {
        match self {
            SyslogTransport::Udp | SyslogTransport::Tcp => 514,
            SyslogTransport::Tls => 6514,
        }
    }
}

/// Lines as in RFC 5424.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Syslog {
    pub host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub transport: SyslogTransport,
    /// 0 to 23 (RFC 5424, table 1); 16 is local0.
    #[serde(default = "local0")]
    pub facility: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
}

fn local0() -> u8 {
    16
}

/// RFC 3414, section 1.4.3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnmpLevel {
    /// Signed and encrypted: usmHMAC192SHA256AuthProtocol (RFC 7860), usmAesCfb128Protocol (RFC 3826).
    #[default]
    AuthPriv,
    /// Signed only.
    AuthNoPriv,
}

/// SNMPv3 traps, of the objects in `mib/FOREBAY-MIB.txt`. The receiver needs the user under the appliance's engine ID
/// ([`Reporter::snmp_engine_id`](crate::Reporter::snmp_engine_id)), because the sender of a trap is the authoritative engine (RFC 3414, section 1.5.1).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnmpTrap {
    pub host: String,
    /// 162 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// 1 to 32 bytes.
    pub user: String,
    #[serde(default)]
    pub level: SnmpLevel,
    /// At least 8 characters (RFC 3414, section 11.2).
    #[serde(default)]
    pub authentication_password: Secret,
    /// Needed for `auth_priv`, at least 8 characters; not looked at otherwise.
    #[serde(default)]
    pub privacy_password: Secret,
}

impl Channel {
    /// The channel as JSON with its secrets, for a file that only the daemon reads. `serde_json` reads it back.
    pub fn to_stored(&self) -> Value {
        let mut stored = serde_json::to_value(self).expect("a channel is plain data with names for keys");
        for (place, secret) in self.delivery.clone().secrets() {
            if !secret.is_hidden()
                && let Some(value) = stored.pointer_mut(&format!("/delivery{place}"))
            {
                *value = Value::String(secret.expose().to_owned());
            }
        }
        stored
    }

    /// Takes over the secrets of `stored` where this channel, which came from a display, has them hidden.
    ///
    /// Only while the delivery goes to the same place: otherwise whoever may edit a channel could have its password sent to a host of their own.
    pub fn keep_secrets(&mut self, stored: &Channel) {
        if self.delivery.destination() != stored.delivery.destination() {
            return;
        }
        let mut old = stored.delivery.clone();
        let old = old.secrets();
        for (place, secret) in self.delivery.secrets() {
            if secret.is_hidden()
                && let Some((_, kept)) = old.iter().find(|(at, _)| *at == place)
            {
                *secret = (*kept).clone();
            }
        }
    }
}

impl Delivery {
    /// What a secret is entrusted to: kind, host and port, how the connection is protected, and whom it trusts.
    fn destination(&self) -> (&'static str, &str, u16, String) {
        let (host, port, protection) = match self {
            Delivery::Mail(mail) => (
                &*mail.host,
                mail.port.unwrap_or(mail.security.port()),
                format!("{:?} {:?}", mail.security, mail.ca_pem),
            ),
            Delivery::Webhook(webhook) => (&*webhook.url, 0, format!("{:?}", webhook.ca_pem)),
            Delivery::Syslog(syslog) => (&*syslog.host, syslog.port.unwrap_or_default(), String::new()),
            Delivery::SnmpTrap(trap) => {
                (&*trap.host, trap.port.unwrap_or_default(), format!("{:?}", trap.level))
            }
        };
        (self.name(), host, port, protection)
    }
}
