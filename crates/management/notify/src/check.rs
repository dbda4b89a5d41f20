//! Whether a channel's settings can work, before anything is sent: each complaint names the field, what is wrong and what to write instead.
//!
//! This is also the wall against header injection: no name, address or password with a line break gets past it, and [`Reporter`](crate::Reporter)
//! takes only channels that passed. The formats clean or encode what they are given nevertheless.

use crate::channel::Channel;
use crate::connect;
use crate::failure::Problem;
use crate::quiet::{DAY_MINUTES, covers_everything};
use crate::webhook::{Target, signing_key};
use forebay_api::{
    Delivery, Mail, MailSecurity, NoticeKind, QuietHours, Secret, SnmpLevel, SnmpTrap, Syslog, Webhook,
};

/// A heartbeat that is rarer than once a month proves little.
const HEARTBEAT_HOURS_MAX: u32 = 31 * 24;
const NAME_CHARS_MAX: usize = 64;
/// People on one channel; a distribution list is one of them.
const RECIPIENTS_MAX: usize = 32;
const SECRET_BYTES_MAX: usize = 1024;
/// The longest name in DNS.
const HOST_BYTES_MAX: usize = 253;
/// snmpAdminString of usmUserName (RFC 3414, section 5).
const SNMP_USER_BYTES_MAX: usize = 32;
/// RFC 3414, section 11.2.
const SNMP_PASSWORD_CHARS_MIN: usize = 8;

struct Complaints(Vec<Problem>);

impl Complaints {
    fn add(&mut self, field: &str, message: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Problem { field: field.into(), message: message.into(), remedy: remedy.into() });
    }
}

impl Channel {
    /// Everything that is wrong with the settings; nothing is looked up or connected to.
    pub fn check(&self) -> Result<(), Vec<Problem>> {
        let mut found = Complaints(Vec::new());
        let length = self.name.chars().count();
        if length == 0 || length > NAME_CHARS_MAX || self.name.contains(char::is_control) {
            found.add(
                "name",
                "The name is empty, too long or has a line break or another control character.",
                format!("Write a name of 1 to {NAME_CHARS_MAX} characters, such as \"operators by mail\"."),
            );
        }
        if self.spec.kinds.is_empty() {
            found.add(
                "kinds",
                "The channel reports nothing.",
                "List at least one of raised, cleared, heartbeat and audit, or disable the channel.",
            );
        }
        if self.spec.kinds.contains(&NoticeKind::Audit) && !matches!(self.spec.delivery, Delivery::Syslog(_))
        {
            found.add(
                "kinds",
                "Lines of the audit log go to syslog only.",
                "Remove audit here, and add a syslog channel with it.",
            );
        }
        if self.spec.heartbeat_hours == 0 || self.spec.heartbeat_hours > HEARTBEAT_HOURS_MAX {
            found.add(
                "heartbeat_hours",
                format!("{} hours between heartbeats cannot be used.", self.spec.heartbeat_hours),
                format!("Write a number from 1 to {HEARTBEAT_HOURS_MAX}, such as 24."),
            );
        }
        if let Some(quiet) = &self.spec.quiet_hours {
            check_quiet_hours(&mut found, quiet);
        }
        match &self.spec.delivery {
            Delivery::Mail(mail) => check_mail(&mut found, mail),
            Delivery::Webhook(webhook) => check_webhook(&mut found, webhook),
            Delivery::Syslog(syslog) => check_syslog(&mut found, syslog),
            Delivery::SnmpTrap(trap) => check_snmp(&mut found, trap),
        }
        let delivery = self.spec.delivery.name();
        for problem in &mut found.0 {
            // As it is in JSON.
            if let Some(field) = problem.field.strip_prefix("delivery.") {
                problem.field = format!("delivery.{delivery}.{field}");
            }
            if problem.field != "name" {
                problem.field.insert_str(0, "spec.");
            }
        }
        if found.0.is_empty() { Ok(()) } else { Err(found.0) }
    }
}

fn check_quiet_hours(found: &mut Complaints, quiet: &QuietHours) {
    if quiet.days.is_empty() {
        found.add(
            "quiet_hours.days",
            "Quiet hours without a day never begin.",
            "List days such as saturday and sunday, or remove quiet_hours.",
        );
    }
    if quiet.from_minute >= DAY_MINUTES || quiet.to_minute > DAY_MINUTES {
        found.add(
            "quiet_hours",
            "The minutes are not within a day.",
            "Write minutes after midnight in UTC: 0 to 1439 for from_minute, 0 to 1440 for to_minute; 22:00 is 1320.",
        );
    } else if covers_everything(quiet) {
        found.add(
            "quiet_hours",
            "The channel would always be quiet, and deliver critical alerts only.",
            "Shorten the quiet hours, or set severity_min to critical.",
        );
    }
}

fn check_host(found: &mut Complaints, host: &str, port: Option<u16>) {
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    let is_name = host.len() <= HOST_BYTES_MAX
        && host.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        });
    if !is_address && !is_name {
        found.add(
            "delivery.host",
            "This is neither a host name nor an IP address.",
            "Write the name or address alone, without a scheme, port or brackets: mail.example.com, 192.0.2.7 or 2001:db8::7.",
        );
    }
    if port == Some(0) {
        found.add(
            "delivery.port",
            "Port 0 does not exist.",
            "Write a port from 1 to 65535, or leave it out.",
        );
    }
}

fn check_secret(found: &mut Complaints, field: &str, secret: &Secret) {
    if secret.is_hidden() || secret.expose().is_empty() {
        found.add(
            field,
            "The secret is missing. A stored secret is kept only while the channel has the same destination.",
            "Enter it again.",
        );
    } else if secret.expose().len() > SECRET_BYTES_MAX || secret.expose().contains(char::is_control) {
        found.add(
            field,
            "It is too long or has a line break or another control character.",
            "Check that nothing else was copied along with it.",
        );
    }
}

fn check_authorities(found: &mut Complaints, pem: Option<&str>) {
    if let Some(pem) = pem
        && let Err(why) = connect::given_authorities(pem)
    {
        found.add(
            "delivery.ca_pem",
            format!("The certificates cannot be used: {why}."),
            "Paste the PEM text of the authority's certificate, with its BEGIN CERTIFICATE and END CERTIFICATE lines, or leave it out to trust the system's authorities.",
        );
    }
}

fn check_mail(found: &mut Complaints, mail: &Mail) {
    check_host(found, &mail.host, mail.port);
    check_authorities(found, mail.ca_pem.as_deref());
    if crate::mail::sender(&mail.from).is_none() {
        found.add(
            "delivery.from",
            "This is not a mail address.",
            "Write one such as nas@example.com or Storage <nas@example.com>, with domain names in ASCII (xn--…).",
        );
    }
    if mail.to.is_empty() || mail.to.len() > RECIPIENTS_MAX {
        found.add(
            "delivery.to",
            format!("There are {} recipients.", mail.to.len()),
            format!("List 1 to {RECIPIENTS_MAX}; use a distribution list for more."),
        );
    }
    for address in &mail.to {
        if crate::mail::address(address).is_none() {
            found.add(
                "delivery.to",
                format!("{:?} is not a mail address.", crate::text::line(address, 80)),
                "Write one address an entry, such as operator@example.com, without a name.",
            );
        }
    }
    if let Some(login) = &mail.login {
        if login.user.is_empty()
            || login.user.len() > SECRET_BYTES_MAX
            || login.user.contains(char::is_control)
        {
            found.add(
                "delivery.login.user",
                "The user name is empty, too long or has a control character.",
                "Write the name that the mail server knows, or remove login.",
            );
        }
        check_secret(found, "delivery.login.password", &login.password);
        if mail.security == MailSecurity::None {
            found.add(
                "delivery.security",
                "The password would be sent over an unprotected connection.",
                "Use start_tls or tls, or remove login.",
            );
        }
    }
}

fn check_webhook(found: &mut Complaints, webhook: &Webhook) {
    if let Err(why) = Target::parse(&webhook.url) {
        found.add(
            "delivery.url",
            format!("The URL cannot be used: {why}."),
            "Write one such as https://hooks.example.com/forebay.",
        );
    }
    check_authorities(found, webhook.ca_pem.as_deref());
    check_secret(found, "delivery.secret", &webhook.secret);
    if !webhook.secret.expose().is_empty() && signing_key(&webhook.secret).is_none() {
        found.add(
            "delivery.secret",
            "The signing secret is not whsec_ followed by 24 to 64 bytes in base64.",
            "Leave it out, and the appliance creates one. Or write whsec_ and the output of `openssl rand -base64 32`.",
        );
    }
}

fn check_syslog(found: &mut Complaints, syslog: &Syslog) {
    check_host(found, &syslog.host, syslog.port);
    check_authorities(found, syslog.ca_pem.as_deref());
    if syslog.facility > 23 {
        found.add(
            "delivery.facility",
            format!("There is no facility {}.", syslog.facility),
            "Write a number from 0 to 23; 16 to 23 are local0 to local7.",
        );
    }
}

fn check_snmp(found: &mut Complaints, trap: &SnmpTrap) {
    check_host(found, &trap.host, trap.port);
    let is_user =
        (1..=SNMP_USER_BYTES_MAX).contains(&trap.user.len()) && !trap.user.contains(char::is_control);
    if !is_user {
        found.add(
            "delivery.user",
            "This cannot be an SNMPv3 user name.",
            format!(
                "Write 1 to {SNMP_USER_BYTES_MAX} bytes without control characters, as the receiver knows it."
            ),
        );
    }
    let passwords = [
        (true, "delivery.authentication_password", &trap.authentication_password),
        (trap.level == SnmpLevel::AuthPriv, "delivery.privacy_password", &trap.privacy_password),
    ];
    for (_, field, password) in passwords.into_iter().filter(|(needed, _, _)| *needed) {
        check_secret(found, field, password);
        if !password.is_hidden() && password.expose().chars().count() < SNMP_PASSWORD_CHARS_MIN {
            found.add(
                field,
                "The password is too short.",
                format!("Use at least {SNMP_PASSWORD_CHARS_MIN} characters, as SNMPv3 requires."),
            );
        }
    }
}
