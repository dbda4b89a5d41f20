//! `forebay channel`: where the appliance sends its notices.

use crate::arguments::DryRun;
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::destinations::{self, Destination};
use crate::failure::{Exit, Failure, printable};
use crate::listing::{self, Shown};
use crate::rename::Rename;
use crate::secret;
use crate::show::word;
use crate::size::show_time;
use crate::table::Cell;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use forebay_api::{
    self as api, AlertSeverity, Channel, ChannelSpec, ChannelTested, CriticalAlerts, Day, Delivery, Mail,
    MailLogin, MailSecurity, NoticeKind, Operation, QuietHours, Secret, SnmpLevel, SnmpTrap, Syslog,
    SyslogTransport, Webhook, quoted,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum ChannelCommand {
    /// Create a channel that sends mail over SMTP
    Mail {
        /// The channel's name, 1 to 64 characters
        name: String,
        /// The mail server's name or address
        #[arg(long, value_name = "HOST")]
        host: String,
        /// The mail server's port [default: 587; 465 with tls, 25 with none]
        #[arg(long, value_name = "PORT")]
        port: Option<u16>,
        /// How the connection is encrypted
        #[arg(long, default_value = "start-tls")]
        security: SecurityArgument,
        /// User at the mail server; its password is read from --password-file, the terminal or stdin
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// File with the password [default: the terminal or stdin]
        #[arg(long, value_name = "FILE", requires = "user")]
        password_file: Option<PathBuf>,
        /// The sender: nas@example.com or 'Storage <nas@example.com>'
        #[arg(long, value_name = "ADDRESS")]
        from: String,
        /// A recipient; repeat the option for more
        #[arg(long, value_name = "ADDRESS", action = clap::ArgAction::Append, required = true)]
        to: Vec<String>,
        /// PEM file of certificate authorities to trust instead of the system's
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Create a channel that posts JSON to a URL, signed with a secret that is printed once
    Webhook {
        /// The channel's name, 1 to 64 characters
        name: String,
        /// https://…, or http://… in a trusted network
        url: String,
        /// File with the secret: `whsec_` and the base64 of 24 to 64 bytes [default: a new random secret]
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        /// PEM file of certificate authorities to trust instead of the system's
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Create a channel that sends lines to a syslog server (RFC 5424)
    Syslog {
        /// The channel's name, 1 to 64 characters
        name: String,
        /// The syslog server's name or address
        #[arg(long, value_name = "HOST")]
        host: String,
        /// Transport; with udp, lost lines go unnoticed
        #[arg(long, default_value = "tls")]
        transport: TransportArgument,
        /// The syslog server's port [default: 514; 6514 with tls]
        #[arg(long, value_name = "PORT")]
        port: Option<u16>,
        /// Syslog facility, 0 to 23; 16 to 23 are local0 to local7
        #[arg(long, value_name = "N", default_value_t = 16)]
        facility: u8,
        /// PEM file of certificate authorities to trust instead of the system's
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Create a channel that sends SNMPv3 traps; it needs an authentication and a privacy password
    Snmp {
        /// The channel's name, 1 to 64 characters
        name: String,
        /// The trap receiver's name or address
        #[arg(long, value_name = "HOST")]
        host: String,
        /// The trap receiver's port [default: 162]
        #[arg(long, value_name = "PORT")]
        port: Option<u16>,
        /// SNMP user; the receiver needs it with the engine ID that `forebay channel show` prints
        #[arg(long, value_name = "USER")]
        user: String,
        /// Sign traps but do not encrypt them; no privacy password is needed
        #[arg(long)]
        no_privacy: bool,
        /// File with the authentication password, 8 characters or more [default: the terminal or stdin]
        #[arg(long, value_name = "FILE")]
        authentication_file: Option<PathBuf>,
        /// File with the privacy password, 8 characters or more [default: the terminal or stdin]
        #[arg(long, value_name = "FILE", conflicts_with = "no_privacy")]
        privacy_file: Option<PathBuf>,
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List channels and their state
    List,
    /// Show a channel, without its secrets
    Show {
        /// Name or UUID
        name: String,
    },
    /// Change what a channel delivers, when and where
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args([
        "new_name", "enabled", "severity", "notices", "heartbeat_hours", "quiet",
    ]).args(destinations::OPTIONS))]
    Set {
        /// Name or UUID
        name: String,
        /// A new name
        #[arg(long, value_name = "NAME")]
        new_name: Option<String>,
        /// Whether the channel delivers notices
        #[arg(long, value_name = "BOOL")]
        enabled: Option<bool>,
        #[command(flatten)]
        destination: Destination,
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Send a test message at once, and report the result
    Test {
        /// Name or UUID
        name: String,
    },
    /// Rename a channel
    Rename(Rename),
    /// Delete a channel
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

/// What a channel delivers and when.
#[derive(Args, Debug)]
pub struct What {
    /// Lowest severity of alerts to deliver [default for a new channel: warning]
    #[arg(long)]
    severity: Option<SeverityArgument>,
    /// Kinds of notices to deliver, separated by commas [default for a new channel: raised,cleared]
    #[arg(long, value_delimiter = ',')]
    notices: Vec<NoticeArgument>,
    /// Hours between heartbeats, 1 to 744, if `heartbeat` is among the notices [default for a new channel: 24]
    #[arg(long, value_name = "HOURS")]
    heartbeat_hours: Option<u32>,
    /// Quiet hours in UTC, with critical alerts only: 'saturday,sunday 00:00-24:00', 'daily 22:00-06:00', or none
    #[arg(long, value_name = "DAYS TIMES", value_parser = quiet)]
    quiet: Option<Quiet>,
}

/// Quiet hours, or none any more.
#[derive(Clone, Debug)]
struct Quiet(Option<QuietHours>);

const DAYS: [(&str, Day); 7] = [
    ("monday", Day::Monday),
    ("tuesday", Day::Tuesday),
    ("wednesday", Day::Wednesday),
    ("thursday", Day::Thursday),
    ("friday", Day::Friday),
    ("saturday", Day::Saturday),
    ("sunday", Day::Sunday),
];

fn quiet(text: &str) -> Result<Quiet, String> {
    if text == "none" {
        return Ok(Quiet(None));
    }
    let wrong = || {
        format!(
            "`{text}` is not a time span; write 'saturday,sunday 00:00-24:00', 'daily 22:00-06:00' or none"
        )
    };
    let (days, times) = text.split_once(' ').ok_or_else(wrong)?;
    let day = |name: &str| DAYS.iter().find(|(known, _)| *known == name).map(|(_, day)| *day);
    let days: Option<BTreeSet<Day>> = match days {
        "daily" => Some(DAYS.map(|(_, day)| day).into()),
        days => days.split(',').map(day).collect(),
    };
    let minute = |time: &str| {
        let (hours, minutes) = time.split_once(':')?;
        let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
        (hours <= 24 && minutes < 60).then(|| hours * 60 + minutes)
    };
    let (from, to) = times.split_once('-').ok_or_else(wrong)?;
    Ok(Quiet(Some(QuietHours {
        days: days.ok_or_else(wrong)?,
        from_minute: minute(from).ok_or_else(wrong)?,
        to_minute: minute(to).ok_or_else(wrong)?,
        critical: CriticalAlerts::Deliver,
    })))
}

fn quiet_in_words(quiet: &QuietHours) -> String {
    let days: Vec<&str> =
        DAYS.iter().filter(|(_, day)| quiet.days.contains(day)).map(|(name, _)| *name).collect();
    let days = if days.len() == DAYS.len() { "daily".into() } else { days.join(",") };
    let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
    let all = match quiet.critical {
        CriticalAlerts::Deliver => "",
        CriticalAlerts::HoldBack => ", also for critical alerts",
    };
    format!("{days} {}-{} UTC{all}", time(quiet.from_minute), time(quiet.to_minute))
}

impl What {
    /// Changes what is given.
    fn apply(self, spec: &mut ChannelSpec) {
        if let Some(severity) = self.severity {
            spec.severity_min = severity.into();
        }
        if !self.notices.is_empty() {
            spec.kinds = self.notices.into_iter().map(Into::into).collect();
        }
        if let Some(hours) = self.heartbeat_hours {
            spec.heartbeat_hours = hours;
        }
        if let Some(Quiet(quiet)) = self.quiet {
            spec.quiet_hours = quiet;
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SeverityArgument {
    Critical,
    Warning,
    Info,
}

impl From<SeverityArgument> for AlertSeverity {
    fn from(severity: SeverityArgument) -> AlertSeverity {
        match severity {
            SeverityArgument::Critical => AlertSeverity::Critical,
            SeverityArgument::Warning => AlertSeverity::Warning,
            SeverityArgument::Info => AlertSeverity::Info,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum NoticeArgument {
    /// Alerts that begin or get worse
    Raised,
    /// Alerts that have ended
    Cleared,
    /// A regular sign that the appliance is running
    Heartbeat,
    /// Entries of the audit log, over syslog only
    Audit,
}

impl From<NoticeArgument> for NoticeKind {
    fn from(kind: NoticeArgument) -> NoticeKind {
        match kind {
            NoticeArgument::Raised => NoticeKind::Raised,
            NoticeArgument::Cleared => NoticeKind::Cleared,
            NoticeArgument::Heartbeat => NoticeKind::Heartbeat,
            NoticeArgument::Audit => NoticeKind::Audit,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SecurityArgument {
    /// The connection is upgraded to TLS, or nothing is sent
    StartTls,
    /// TLS from the first byte
    Tls,
    /// No encryption; only without a user
    None,
}

impl From<SecurityArgument> for MailSecurity {
    fn from(security: SecurityArgument) -> MailSecurity {
        match security {
            SecurityArgument::StartTls => MailSecurity::StartTls,
            SecurityArgument::Tls => MailSecurity::Tls,
            SecurityArgument::None => MailSecurity::None,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum TransportArgument {
    Udp,
    Tcp,
    Tls,
}

impl From<TransportArgument> for SyslogTransport {
    fn from(transport: TransportArgument) -> SyslogTransport {
        match transport {
            TransportArgument::Udp => SyslogTransport::Udp,
            TransportArgument::Tcp => SyslogTransport::Tcp,
            TransportArgument::Tls => SyslogTransport::Tls,
        }
    }
}

fn authorities(file: Option<PathBuf>) -> Result<Option<String>, Failure> {
    let Some(path) = file else { return Ok(None) };
    std::fs::read_to_string(&path).map(Some).map_err(|error| {
        let detail = format!("the certificate authorities cannot be read: {error}");
        Failure::new(Exit::Usage, detail, "Name a PEM file.").object(path.display().to_string())
    })
}

impl Session {
    pub fn channel(&self, command: ChannelCommand) -> Outcome {
        match command {
            ChannelCommand::Mail {
                name,
                host,
                port,
                security,
                user,
                password_file,
                from,
                to,
                ca,
                what,
                dry_run,
            } => {
                let login = match user {
                    Some(user) => {
                        let password = secret::read(
                            password_file,
                            "the password for the mail server",
                            "--password-file",
                        )?;
                        Some(MailLogin { user, password: Secret::new(password) })
                    }
                    None => None,
                };
                let (security, ca_pem) = (security.into(), authorities(ca)?);
                let mail = Mail { host, port, security, login, from, to, ca_pem };
                self.channel_create(name, Delivery::Mail(mail), what, dry_run)
            }
            ChannelCommand::Webhook { name, url, secret_file, ca, what, dry_run } => {
                let secret = match secret_file {
                    Some(file) => {
                        Secret::new(secret::read(Some(file), "the webhook's secret", "--secret-file")?)
                    }
                    None => Secret::default(),
                };
                let hook = Webhook { url, secret, ca_pem: authorities(ca)? };
                self.channel_create(name, Delivery::Webhook(hook), what, dry_run)
            }
            ChannelCommand::Syslog { name, host, transport, port, facility, ca, what, dry_run } => {
                let syslog =
                    Syslog { host, port, transport: transport.into(), facility, ca_pem: authorities(ca)? };
                self.channel_create(name, Delivery::Syslog(syslog), what, dry_run)
            }
            ChannelCommand::Snmp {
                name,
                host,
                port,
                user,
                no_privacy,
                authentication_file,
                privacy_file,
                what,
                dry_run,
            } => {
                let authentication = secret::read(
                    authentication_file,
                    "the authentication password",
                    "--authentication-file",
                )?;
                let privacy = match no_privacy {
                    true => Secret::default(),
                    false => {
                        Secret::new(secret::read(privacy_file, "the privacy password", "--privacy-file")?)
                    }
                };
                let trap = SnmpTrap {
                    host,
                    port,
                    user,
                    level: if no_privacy { SnmpLevel::AuthNoPriv } else { SnmpLevel::AuthPriv },
                    authentication_password: Secret::new(authentication),
                    privacy_password: privacy,
                };
                self.channel_create(name, Delivery::SnmpTrap(trap), what, dry_run)
            }
            ChannelCommand::List => self.list(&self.client.all(Operation::ChannelList, &[])?, show_channels),
            ChannelCommand::Show { name } => {
                let channel: Channel = self.client.get(Call::of(Operation::ChannelShow, &name))?;
                self.one(&channel, show_channel)
            }
            ChannelCommand::Set { name, new_name, enabled, destination, what, dry_run } => {
                let seen = self.client.call(Call::of(Operation::ChannelShow, &name))?;
                let mut spec = seen.parse::<Channel>()?.spec;
                spec.enabled = enabled.unwrap_or(spec.enabled);
                what.apply(&mut spec);
                destination.apply(&mut spec.delivery).map_err(|failure| failure.object(&*name))?;
                let body = json!({ "name": new_name, "spec": spec.with_secrets() });
                let call = Call::of(Operation::ChannelSet, &name).body(&body).if_seen(&seen);
                let answer = self.client.call(call.dry_run(dry_run.dry_run))?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                let channel = answer.parse::<Channel>()?;
                self.changed(&channel, format!("Channel {} is changed.", channel.name))
            }
            ChannelCommand::Test { name } => {
                let tested: ChannelTested = self.client.get(Call::of(Operation::ChannelTest, &name))?;
                if let Some(failure) = tested.failure {
                    let remedy = format!("{} Then test again: a test is sent once.", failure.remedy);
                    return Err(Failure::new(Exit::Failed, failure.message, remedy).object(name));
                }
                self.one(&tested, |tested| {
                    println!("A test message was sent over channel {}.", printable(&name));
                    tested.note.iter().for_each(|note| println!("{}", printable(note)));
                })
            }
            ChannelCommand::Rename(rename) => self.rename("Channel", Operation::ChannelSet, rename),
            ChannelCommand::Delete { name, dry_run } => {
                let call = Call::of(Operation::ChannelDelete, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&name, "channel.delete", format!("Channel {name} is deleted."))
            }
        }
    }

    fn channel_create(&self, name: String, delivery: Delivery, what: What, dry_run: DryRun) -> Outcome {
        let mut spec = ChannelSpec::new(delivery);
        what.apply(&mut spec);
        let body = json!({ "name": name, "spec": spec.with_secrets() });
        let call = Call::new(Operation::ChannelCreate).body(&body).dry_run(dry_run.dry_run);
        let answer = self.client.call(call)?;
        if dry_run.dry_run {
            return self.plan(&answer);
        }
        self.one(&answer.parse::<Channel>()?, |channel| {
            println!("Channel {} is created.", printable(&channel.name));
            if let Some(secret) = &channel.webhook_secret {
                println!("This secret signs its requests, and is shown only once: {}", printable(secret));
            }
            if let Some(engine) = &channel.status.snmp_engine_id {
                println!("Add the user to the trap receiver with engine ID {}.", printable(engine));
            }
            println!("Test it with: forebay channel test {}", quoted(&channel.name));
        })
    }
}

/// A name as a shell takes it.
fn destination(delivery: &Delivery) -> String {
    match delivery {
        Delivery::Mail(mail) => format!("{} over {}", mail.to.join(", "), mail.host),
        Delivery::Webhook(hook) => hook.url.clone(),
        Delivery::Syslog(syslog) => format!("{} over {}", syslog.host, word(&syslog.transport)),
        Delivery::SnmpTrap(trap) => format!("{} as {}", trap.host, trap.user),
    }
}

fn state(channel: &Channel) -> &'static str {
    match (&channel.status.failure, channel.spec.enabled, channel.status.quiet) {
        (_, false, _) => "disabled",
        (Some(_), ..) => "failing",
        (None, true, true) => "quiet",
        (None, true, false) => "working",
    }
}

fn show_channels(channels: &[Channel]) -> Shown {
    let rows = channels.iter().map(|one| {
        vec![
            Cell::text(&one.name),
            Cell::text(one.spec.delivery.name()),
            Cell::text(destination(&one.spec.delivery)),
            Cell::text(one.spec.severity_min.name()),
            Cell::text(state(one)),
            Cell::number(one.status.waiting),
            Cell::text(one.status.delivered_unix_ms.map_or("-".into(), show_time)),
        ]
    });
    let titles = ["NAME", "KIND", "TO", "SEVERITY", "STATE", "WAITING", "DELIVERED (UTC)"];
    let empty = "No channels: alerts are not sent anywhere. To send mail, see: forebay channel mail --help";
    listing::table(&titles, rows.collect(), empty)
}

fn show_channel(one: &Channel) {
    println!("{}", printable(&one.name));
    println!("  id          {}", printable(&one.id));
    println!("  kind        {}", one.spec.delivery.name());
    println!("  to          {}", printable(&destination(&one.spec.delivery)));
    let kinds: Vec<String> = one.spec.kinds.iter().map(word).collect();
    println!("  notices     {}", kinds.join(", "));
    println!("  severity    {} and worse", one.spec.severity_min.name());
    if one.spec.kinds.contains(&NoticeKind::Heartbeat) {
        println!("  heartbeat   every {} h", one.spec.heartbeat_hours);
    }
    if let Some(quiet) = &one.spec.quiet_hours {
        println!("  quiet       {}", quiet_in_words(quiet));
    }
    println!("  state       {}", state(one));
    let api::ChannelStatus { delivered, waiting, lost, .. } = one.status;
    println!("  delivered   {delivered} since the daemon's start, {waiting} waiting, {lost} lost");
    if let Some(at) = one.status.delivered_unix_ms {
        println!("  last        {} UTC", show_time(at));
    }
    if let Some(note) = &one.status.note {
        println!("  note        {}", printable(note));
    }
    if let Some(failure) = &one.status.failure {
        println!(
            "  failure     {} UTC: {} {}",
            show_time(failure.at_unix_ms),
            printable(&failure.message),
            printable(&failure.remedy)
        );
    }
    if let Some(at) = one.status.retry_unix_ms {
        println!("  next try    {} UTC", show_time(at));
    }
    if let Some(engine) = &one.status.snmp_engine_id {
        println!("  engine ID   {}", printable(engine));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_hours_are_read_as_they_are_shown() {
        for (text, shown) in [
            ("saturday,sunday 00:00-24:00", "saturday,sunday 00:00-24:00 UTC"),
            ("daily 22:00-06:00", "daily 22:00-06:00 UTC"),
        ] {
            assert_eq!(quiet_in_words(&quiet(text).unwrap().0.unwrap()), shown);
        }
        assert!(quiet("none").unwrap().0.is_none());
        for wrong in ["", "daily", "someday 1:00-2:00", "daily 25:00-26:00", "daily 1-2", "daily 01:60-02:00"]
        {
            assert!(quiet(wrong).unwrap_err().contains("daily 22:00-06:00"), "{wrong}");
        }
        assert_eq!((quoted("ops"), quoted("my ops")), ("ops".into(), "'my ops'".into()));
    }
}
