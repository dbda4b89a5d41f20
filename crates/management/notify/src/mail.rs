//! Mail: what it says, and who may be written to. The conversation with the server is in [`smtp`](crate::smtp).
//!
//! A mail is plain text and complete: the person who reads it at night on a phone sees what is wrong, what it means, and what to type. Mails say
//! that a program wrote them (`Auto-Submitted`, RFC 3834), so that holiday notices do not answer.

use crate::notice::{Appliance, Change, Content, Message, Standing, Tally};
use crate::text::{clip, line, time_for_people};
use lettre::message::header::{ContentType, HeaderName, HeaderValue, MIME_VERSION_1_0};
use lettre::message::{Mailbox, Message as Letter};
use lettre::{Address, address::Envelope};
use std::time::{Duration, SystemTime};

/// What mail readers show of a subject, and a little more.
const SUBJECT_BYTES_MAX: usize = 180;

/// A mail address in ASCII, which every server takes.
pub fn address(text: &str) -> Option<Address> {
    let is_plain = text.is_ascii() && !text.contains(|c: char| c.is_control() || c.is_whitespace());
    text.parse().ok().filter(|_| is_plain)
}

/// An address with or without a name before it.
pub fn sender(text: &str) -> Option<Mailbox> {
    if text.contains(char::is_control) || text.len() > 320 {
        return None;
    }
    let mailbox: Mailbox = text.parse().ok()?;
    address(mailbox.email.as_ref())?;
    Some(mailbox)
}

pub fn subject(appliance: &Appliance, message: &Message) -> String {
    let name = line(&appliance.name, 64);
    let what = match &message.content {
        Content::Alert(change) => {
            let state = match change.standing {
                Standing::Standing => change.alert.severity.name(),
                Standing::Cleared => "cleared",
            };
            format!("{state}: {} ({})", clip(&change.alert.cause, 120), clip(&change.object(), 80))
        }
        Content::Summary(changes) => {
            let standing = changes.iter().filter(|change| change.standing == Standing::Standing);
            let tally = Tally::of(standing.map(|change| &change.alert));
            let worst = [(tally.critical, "critical"), (tally.warning, "warning"), (tally.info, "info")];
            let counts: Vec<String> = worst
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, name)| format!("{count} {name}"))
                .collect();
            let counts = if counts.is_empty() { "all cleared".into() } else { counts.join(", ") };
            format!("summary of {} alerts: {counts}", changes.len())
        }
        Content::Audit(lines) => format!("{} lines of the audit log", lines.len()),
        Content::Heartbeat(tally) => format!("heartbeat: {}", tally.sentence()),
        Content::Test => "test message".into(),
    };
    line(&format!("[{name}] {what}"), SUBJECT_BYTES_MAX)
}

pub fn body(appliance: &Appliance, message: &Message) -> String {
    let mut text = String::new();
    match &message.content {
        Content::Alert(change) => text += &paragraph(change),
        Content::Summary(changes) => {
            text += &format!("{} alerts changed. The most severe come first.\n", changes.len());
            for (number, change) in changes.iter().enumerate() {
                text += &format!("\n--- {} of {} ---\n{}", number + 1, changes.len(), paragraph(change));
            }
        }
        Content::Audit(lines) => {
            for entry in lines {
                text += &format!("{} {} {} {}\n", entry.principal, entry.operation, entry.path, entry.status);
            }
        }
        Content::Heartbeat(tally) => {
            text += &format!("The appliance is alive. {}.\n", tally.sentence());
            text += "If this message stops coming, check the appliance.\n";
        }
        Content::Test => text += "This is a test. Alerts of this appliance will reach you here.\n",
    }
    if let Some(lost) = message.lost_sentence() {
        text += &format!("\n{lost}\n");
    }
    text += &format!(
        "\nAppliance:  {}\nWritten:    {}\nMessage:    {}\n",
        line(&appliance.name, 253),
        time_for_people(message.at_unix_ms),
        message.id
    );
    text
}

fn paragraph(change: &Change) -> String {
    let alert = &change.alert;
    let since = time_for_people(alert.since_unix_ms);
    let state = match change.standing {
        Standing::Standing => format!("active since {since}"),
        Standing::Cleared => {
            format!("cleared at {}; it was active since {since}", time_for_people(change.at_unix_ms))
        }
    };
    let mut text = format!(
        "{}\n\nSeverity:   {}\nState:      {state}\nObject:     {}\nImpact:     {}\nAction:     {}\n",
        alert.cause,
        alert.severity.name(),
        change.object(),
        alert.impact,
        alert.action
    );
    if let Some(command) = &alert.command {
        text += &format!("Command:    {command}\n");
    }
    if let Some(repetitions) = change.repetitions() {
        text += &format!("{repetitions}\n");
    }
    text
}

/// The mail as it is sent, and who gets it. `None`: an address is not one, which [`Channel::check`](crate::Channel::check) refuses.
pub fn compose(
    from: &str,
    to: &[String],
    appliance: &Appliance,
    message: &Message,
) -> Option<(Envelope, Vec<u8>)> {
    let from = sender(from)?;
    let to: Vec<Address> = to.iter().map(|text| address(text)).collect::<Option<_>>()?;
    let envelope = Envelope::new(Some(from.email.clone()), to.clone()).ok()?;
    let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
    let mut builder = Letter::builder()
        .message_id(Some(format!("<{}@{}>", message.id, appliance.host_name())))
        .date(SystemTime::UNIX_EPOCH + Duration::from_millis(message.at_unix_ms.min(MAIL_TIME_LAST_MS)))
        .from(from)
        .subject(subject(appliance, message))
        .raw_header(HeaderValue::new(automatic, "auto-generated".into()))
        .header(MIME_VERSION_1_0)
        .header(ContentType::TEXT_PLAIN);
    for address in to {
        builder = builder.to(Mailbox::new(None, address));
    }
    let letter = builder.body(body(appliance, message)).ok()?;
    Some((envelope, letter.formatted()))
}

/// The end of 9999, beyond which a Date header has no form.
const MAIL_TIME_LAST_MS: u64 = 253_402_300_799_000;
