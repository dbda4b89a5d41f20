//! Channels: destinations of the appliance's notices, and their settings.
//!
//! Secrets are hidden by default: answers have `null` in their place. A `null` in a request keeps the stored secret,
//! as long as the delivery goes to the same place ([`ChannelSpec::keep_secrets`]). Only [`ChannelSpec::with_secrets`]
//! writes secrets down.

use crate::AlertSeverity;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use utoipa::ToSchema;

/// A channel: a destination of notices.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Channel {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: ChannelSpec,
    pub status: ChannelStatus,
    /// The secret that signs a webhook's requests. Only in the answer to the creation of a webhook without one; it is
    /// not shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_secret: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChannelStatus {
    pub created_unix_ms: u64,
    pub changed_unix_ms: u64,
    /// Messages delivered since the daemon started; over UDP (syslog, traps), messages sent.
    pub delivered: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_unix_ms: Option<u64>,
    /// A remark on the last success, such as refused recipients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The failure of the last attempt, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ChannelFailure>,
    /// Time of the next attempt, if the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_unix_ms: Option<u64>,
    /// Notices that wait: for the receiver, for the end of quiet hours, or because there were many.
    pub waiting: u64,
    /// Notices lost since the daemon started: refused by the receiver, or dropped because too many waited.
    pub lost: u64,
    /// Whether quiet hours hold notices back now.
    pub quiet: bool,
    /// Traps only: the engine ID for which the receiver configures the user, as in net-snmp's `createUser -e`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snmp_engine_id: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChannelFailure {
    pub at_unix_ms: u64,
    /// What happened.
    pub message: String,
    /// What to do next.
    pub remedy: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelCreate {
    /// 1 to 64 characters, not the name of another channel.
    pub name: String,
    pub spec: ChannelSpec,
}

/// Changes to a channel. Absent fields stay as they are. Secrets that are `null` stay while the delivery goes to the
/// same place.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelSet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ChannelSpec>,
}

/// The result of a test message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChannelTested {
    /// Whether the receiver accepted it. Over UDP (syslog, traps): whether it was sent.
    pub delivered: bool,
    /// A remark, such as recipients that the mail server refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ChannelFailure>,
}

/// A kind of notice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    /// An alert began, or became more severe.
    Raised,
    /// An alert ended.
    Cleared,
    /// A sign of life, every `heartbeat_hours`.
    Heartbeat,
    /// An entry of the audit log; syslog only.
    Audit,
}

/// The settings of a channel: what it delivers, where and when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    #[serde(default = "enabled")]
    pub enabled: bool,
    pub delivery: Delivery,
    /// The lowest severity of alerts that are delivered.
    #[serde(default = "warning")]
    pub severity_min: AlertSeverity,
    #[serde(default = "raised_and_cleared")]
    pub kinds: BTreeSet<NoticeKind>,
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
fn raised_and_cleared() -> BTreeSet<NoticeKind> {
    BTreeSet::from([NoticeKind::Raised, NoticeKind::Cleared])
}
fn daily() -> u32 {
    24
}

/// How messages are delivered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    Mail(Mail),
    Webhook(Webhook),
    Syslog(Syslog),
    SnmpTrap(SnmpTrap),
}

impl Delivery {
    /// As in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Delivery::Mail(_) => "mail",
            Delivery::Webhook(_) => "webhook",
            Delivery::Syslog(_) => "syslog",
            Delivery::SnmpTrap(_) => "snmp_trap",
        }
    }

    /// The trusted certificate authorities, instead of the system's.
    pub fn authorities(&mut self) -> Option<&mut String> {
        match self {
            Delivery::Mail(mail) => mail.ca_pem.as_mut(),
            Delivery::Webhook(webhook) => webhook.ca_pem.as_mut(),
            Delivery::Syslog(syslog) => syslog.ca_pem.as_mut(),
            Delivery::SnmpTrap(_) => None,
        }
    }

    /// Every secret, with its place as a JSON pointer below the delivery. Secrets that are not listed here are
    /// neither stored nor kept.
    pub fn secrets(&mut self) -> Vec<(&'static str, &mut Secret)> {
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

impl Webhook {
    /// The URL with `…` for what follows the host.
    pub fn shown_url(&self) -> String {
        let host = self.url.find("://").map_or(0, |at| at + 3);
        match self.url[host..].find(['/', '?', '#']) {
            Some(end) if self.url.len() > host + end + 1 => format!("{}/…", &self.url[..host + end]),
            _ => self.url.clone(),
        }
    }
}

/// How a mail connection is protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MailSecurity {
    /// TLS is negotiated on the plain connection and required (RFC 3207); port 587.
    StartTls,
    /// TLS from the first byte (RFC 8314); port 465.
    Tls,
    /// Unprotected; port 25. Only without a login.
    None,
}

impl MailSecurity {
    pub fn port(self) -> u16 {
        match self {
            MailSecurity::StartTls => 587,
            MailSecurity::Tls => 465,
            MailSecurity::None => 25,
        }
    }
}

/// Mail over SMTP (RFC 5321).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mail {
    /// Name or address of the mail server.
    pub host: String,
    /// Default: the standard port for `security`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(default = "start_tls")]
    pub security: MailSecurity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<MailLogin>,
    /// `nas@example.com` or `Storage <nas@example.com>`.
    pub from: String,
    /// Addresses only, 1 to 32.
    pub to: Vec<String>,
    /// Trusted certificate authorities in PEM, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
}

fn start_tls() -> MailSecurity {
    MailSecurity::StartTls
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MailLogin {
    pub user: String,
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub password: Secret,
}

/// A POST request with JSON, signed according to the Standard Webhooks specification: `webhook-id`,
/// `webhook-timestamp` and `webhook-signature`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// `https://…`, or `http://…` in a trusted network. The path is often a secret: answers show it as `…`, and a
    /// request with that keeps the stored path.
    pub url: String,
    /// `whsec_` and the base64 of 24 to 64 random bytes. Absent at the creation: the appliance makes one.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub secret: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SyslogTransport {
    /// RFC 5426, port 514, without confirmation of delivery.
    Udp,
    /// RFC 6587 with octet counting, port 514 (the usual one of receivers: none is registered).
    Tcp,
    /// RFC 5425, port 6514.
    Tls,
}

impl SyslogTransport {
    pub fn port(self) -> u16 {
        match self {
            SyslogTransport::Udp | SyslogTransport::Tcp => 514,
            SyslogTransport::Tls => 6514,
        }
    }
}

/// Syslog messages (RFC 5424).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnmpLevel {
    /// Signed and encrypted: usmHMAC192SHA256AuthProtocol (RFC 7860), usmAesCfb128Protocol (RFC 3826).
    #[default]
    AuthPriv,
    /// Signed only.
    AuthNoPriv,
}

/// SNMPv3 traps with the objects of FOREBAY-MIB. The receiver needs the user under the appliance's engine ID
/// (`status.snmp_engine_id`): the sender of a trap is the authoritative engine (RFC 3414, section 1.5.1).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnmpTrap {
    pub host: String,
    /// Default: 162.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// 1 to 32 bytes.
    pub user: String,
    #[serde(default)]
    pub level: SnmpLevel,
    /// At least 8 characters (RFC 3414, section 11.2).
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub authentication_password: Secret,
    /// Required for `auth_priv`, at least 8 characters; ignored otherwise.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub privacy_password: Secret,
}

impl ChannelSpec {
    /// With the default settings.
    pub fn new(delivery: Delivery) -> ChannelSpec {
        ChannelSpec {
            enabled: enabled(),
            delivery,
            severity_min: warning(),
            kinds: raised_and_cleared(),
            heartbeat_hours: daily(),
            quiet_hours: None,
        }
    }

    /// As JSON with the secrets: for a request, or for a file that only the daemon reads.
    pub fn with_secrets(&self) -> Value {
        let mut whole = serde_json::to_value(self).expect("a channel is plain data with names for keys");
        for (place, secret) in self.delivery.clone().secrets() {
            if !secret.is_hidden()
                && let Some(value) = whole.pointer_mut(&format!("/delivery/{}{place}", self.delivery.name()))
            {
                *value = Value::String(secret.expose().to_owned());
            }
        }
        whole
    }

    /// As answers show it: without the secret part of a webhook's URL.
    pub fn shown(&self) -> ChannelSpec {
        let mut shown = self.clone();
        if let Delivery::Webhook(webhook) = &mut shown.delivery {
            webhook.url = webhook.shown_url();
        }
        shown
    }

    /// Takes over the secrets of `stored` where this channel, which came from an answer, has them hidden.
    ///
    /// Only while the delivery goes to the same place: otherwise a user with the right to edit a channel could send
    /// its password to another host.
    pub fn keep_secrets(&mut self, stored: &ChannelSpec) {
        if let (Delivery::Webhook(webhook), Delivery::Webhook(stored)) =
            (&mut self.delivery, &stored.delivery)
            && webhook.url == stored.shown_url()
        {
            webhook.url.clone_from(&stored.url);
        }
        if !self.delivery.has_destination_of(&stored.delivery) {
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
    /// Whether a secret of the other one is kept for this.
    pub fn has_destination_of(&self, other: &Delivery) -> bool {
        self.destination() == other.destination()
    }

    /// The destination that a secret belongs to: kind, host and port, protection, and trusted authorities.
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

/// A secret, or the mark that one is kept elsewhere.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Option<String>);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(Some(text.into()))
    }

    /// Whether this came from a display, where secrets are not shown.
    pub fn is_hidden(&self) -> bool {
        self.0.is_none()
    }

    /// The secret itself; empty when it is hidden, which [`Channel::check`](crate::Channel::check) refuses.
    pub fn expose(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_hidden() { "Secret(kept elsewhere)" } else { "Secret(not shown)" })
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_none()
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        Option::<String>::deserialize(deserializer).map(Secret)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// Handling of critical alerts in quiet hours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CriticalAlerts {
    #[default]
    Deliver,
    HoldBack,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuietHours {
    /// Days on which a span begins.
    pub days: BTreeSet<Day>,
    /// Minutes after midnight in UTC, 0 to 1439.
    pub from_minute: u16,
    /// Minutes after midnight in UTC, 0 to 1440. A value not above `from_minute` is on the next day.
    pub to_minute: u16,
    #[serde(default)]
    pub critical: CriticalAlerts,
}
