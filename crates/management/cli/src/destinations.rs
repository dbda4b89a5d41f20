//! Where a channel's notices go, as `forebay channel set` changes it.
//!
//! A stored secret goes to the destination only that it was entered for: with another host, port or URL the appliance discards it, so it is read again here
//! before anything is sent.

use crate::failure::{Exit, Failure};
use crate::secret;
use clap::Args;
use forebay_api::{Delivery, Secret};
use std::path::PathBuf;

#[derive(Args, Debug, Default)]
pub struct Destination {
    /// New mail server, syslog server or trap receiver
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// New port of the server
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// New URL of the webhook
    #[arg(long)]
    url: Option<String>,
    /// New recipients of mail, which replace the old ones; repeat the option for more
    #[arg(long, value_name = "ADDRESS", action = clap::ArgAction::Append)]
    to: Vec<String>,
    /// File with the mail server's password; a new host or port requires the password again
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// File with the webhook's secret; a new URL requires the secret again
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// File with the authentication password for traps; a new host or port requires the password again
    #[arg(long, value_name = "FILE")]
    authentication_file: Option<PathBuf>,
    /// File with the privacy password for traps; a new host or port requires the password again
    #[arg(long, value_name = "FILE")]
    privacy_file: Option<PathBuf>,
}

/// Options by name, for messages and the group that one of them has to be of.
pub const OPTIONS: [&str; 8] =
    ["host", "port", "url", "to", "password_file", "secret_file", "authentication_file", "privacy_file"];

impl Destination {
    fn given(&self) -> impl Iterator<Item = &'static str> {
        let is_given = [
            self.host.is_some(),
            self.port.is_some(),
            self.url.is_some(),
            !self.to.is_empty(),
            self.password_file.is_some(),
            self.secret_file.is_some(),
            self.authentication_file.is_some(),
            self.privacy_file.is_some(),
        ];
        OPTIONS.into_iter().zip(is_given).filter(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    /// Changes what is given, and reads the secrets that the new destination needs.
    pub fn apply(self, delivery: &mut Delivery) -> Result<(), Failure> {
        let has: &[&str] = match delivery {
            Delivery::Mail(mail) if mail.login.is_some() => &["host", "port", "to", "password_file"],
            Delivery::Mail(_) => &["host", "port", "to"],
            Delivery::Webhook(_) => &["url", "secret_file"],
            Delivery::Syslog(_) => &["host", "port"],
            Delivery::SnmpTrap(_) => &["host", "port", "authentication_file", "privacy_file"],
        };
        let option = |name: &str| format!("--{}", name.replace('_', "-"));
        if let Some(wrong) = self.given().find(|name| !has.contains(name)) {
            let detail = format!("a channel of kind {} has no option {}", delivery.name(), option(wrong));
            let has: Vec<String> = has.iter().map(|name| option(name)).collect();
            return Err(Failure::new(Exit::Usage, detail, format!("Its options are {}.", has.join(", "))));
        }
        let before = delivery.clone();
        let (host, port) = match delivery {
            Delivery::Mail(mail) => (&mut mail.host, &mut mail.port),
            Delivery::Syslog(syslog) => (&mut syslog.host, &mut syslog.port),
            Delivery::SnmpTrap(trap) => (&mut trap.host, &mut trap.port),
            Delivery::Webhook(hook) => (&mut hook.url, &mut None),
        };
        if let Some(place) = self.host.or(self.url) {
            *host = place;
        }
        if self.port.is_some() {
            *port = self.port;
        }
        let is_moved = !delivery.has_destination_of(&before);
        let read = |file: Option<PathBuf>, what: &str, option: &str, into: &mut Secret| {
            if is_moved || file.is_some() {
                *into = Secret::new(secret::read(file, what, option)?);
            }
            Ok::<(), Failure>(())
        };
        match delivery {
            Delivery::Mail(mail) => {
                if !self.to.is_empty() {
                    mail.to = self.to;
                }
                if let Some(login) = &mut mail.login {
                    let what = "the password for the mail server";
                    read(self.password_file, what, "--password-file", &mut login.password)?;
                }
            }
            Delivery::Webhook(hook) => {
                read(self.secret_file, "the webhook's secret", "--secret-file", &mut hook.secret)?;
            }
            Delivery::Syslog(_) => {}
            Delivery::SnmpTrap(trap) => {
                let (what, option) = ("the authentication password", "--authentication-file");
                read(self.authentication_file, what, option, &mut trap.authentication_password)?;
                if trap.level == forebay_api::SnmpLevel::AuthPriv {
                    let what = "the privacy password";
                    read(self.privacy_file, what, "--privacy-file", &mut trap.privacy_password)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn delivery(value: Value) -> Delivery {
        serde_json::from_value(value).expect("it is a delivery")
    }

    fn mail() -> Delivery {
        let login = json!({"user": "nas", "password": null});
        delivery(json!({"mail": {"host": "a", "from": "nas@x", "to": ["b@x"], "login": login}}))
    }

    #[test]
    fn a_secret_is_kept_only_while_the_destination_stays() {
        let mut same = mail();
        let change = Destination { to: vec!["c@x".into(), "d@x".into()], ..Destination::default() };
        change.apply(&mut same).unwrap();
        let Delivery::Mail(kept) = &same else { panic!("it was mail") };
        assert_eq!(kept.to, ["c@x", "d@x"]);
        assert!(kept.login.as_ref().unwrap().password.is_hidden(), "the appliance keeps it");

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret\n").unwrap();
        let password_file = Some(file.path().to_path_buf());
        let mut moved = mail();
        let change =
            Destination { host: Some("b".into()), port: Some(26), password_file, ..Destination::default() };
        change.apply(&mut moved).unwrap();
        let Delivery::Mail(moved) = moved else { panic!("it was mail") };
        assert_eq!((&*moved.host, moved.port), ("b", Some(26)));
        assert_eq!(moved.login.unwrap().password.expose(), "secret");
    }

    #[test]
    fn an_option_of_another_kind_is_refused() {
        let mut hook = delivery(json!({"webhook": {"url": "https://a", "secret": null}}));
        let change = Destination { host: Some("b".into()), ..Destination::default() };
        let refused = change.apply(&mut hook).unwrap_err();
        assert!(
            refused.detail.contains("--host") && refused.remedy.unwrap().contains("--url, --secret-file")
        );
        let mut syslog = delivery(json!({"syslog": {"host": "a", "transport": "udp"}}));
        let change = Destination { port: Some(99), host: Some("b".into()), ..Destination::default() };
        change.apply(&mut syslog).unwrap();
        assert_eq!(syslog, delivery(json!({"syslog": {"host": "b", "port": 99, "transport": "udp"}})));
    }
}
