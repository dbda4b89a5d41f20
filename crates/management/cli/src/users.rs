//! `forebay user`, `setup`, `audit` and `alert`: who may log in, who did what, and what is wrong now.

use crate::arguments::{DryRun, RoleArgument};
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::printable;
use crate::listing::{self, Shown};
use crate::rename::Rename;
use crate::secret;
use crate::show::word;
use crate::size::show_time;
use crate::table::{Cell, Tone, painted};
use clap::{ArgGroup, Subcommand};
use forebay_api::{self as api, AlertSeverity, Operation, Page, UserCreate, UserSet};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

/// As many entries of the audit log as an answer has.
const AUDIT_MAX: u32 = 1000;
const PASSWORD_FILE: &str = "--password-file";

#[derive(Subcommand, Debug)]
pub enum User {
    /// Create a user; the password is read from --password-file, the terminal or stdin
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// Role of the user
        #[arg(long, default_value = "viewer")]
        role: RoleArgument,
        /// File with the password, 12 characters or more [default: the terminal or stdin]
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List users
    List,
    /// Change a user's role or password; this ends all logins of the user
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args(["role", "password", "password_file"]))]
    Set {
        /// Name or UUID
        name: String,
        /// Role of the user
        #[arg(long)]
        role: Option<RoleArgument>,
        /// Ask for a new password on the terminal, or read it from stdin
        #[arg(long)]
        password: bool,
        /// File with the new password, 12 characters or more
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Rename a user; this ends all logins of the user
    Rename(Rename),
    /// Delete a user; this ends all logins of the user
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

#[derive(Subcommand, Debug)]
pub enum SetupCommand {
    /// Print a new link to create the first administrator, as long as there is no user
    Link,
}

#[derive(Subcommand, Debug)]
pub enum Audit {
    /// List the newest changes over the API, in the order in which they were made
    List {
        /// Maximum number of entries, 1 to 1000
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
}

#[derive(Subcommand, Debug)]
pub enum AlertCommand {
    /// List the current alerts, the most severe first
    List,
}

impl Session {
    pub fn user(&self, command: User) -> Outcome {
        match command {
            User::Create { name, role, password_file, dry_run } => {
                let password = secret::read(password_file, "the user's password", PASSWORD_FILE)?;
                let body = UserCreate { name, role: role.into(), password };
                let call = Call::new(Operation::UserCreate).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::User>()?, |user| {
                    println!("User {} is created.", printable(&user.name));
                })
            }
            User::List => self.list(&self.client.all(Operation::UserList, &[])?, show_users),
            User::Set { name, role, password, password_file, dry_run } => {
                let password = match password || password_file.is_some() {
                    true => Some(secret::read(password_file, "the user's new password", PASSWORD_FILE)?),
                    false => None,
                };
                let body = UserSet { role: role.map(Into::into), password, ..UserSet::default() };
                let call = Call::of(Operation::UserSet, &name).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::User>()?, |user| {
                    println!("User {} is changed.", printable(&user.name));
                })
            }
            User::Rename(rename) => self.rename("User", Operation::UserSet, rename),
            User::Delete { name, dry_run } => {
                let call = Call::of(Operation::UserDelete, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&name, "user.delete", format!("User {name} is deleted."))
            }
        }
    }

    pub fn setup(&self, command: SetupCommand) -> Outcome {
        let SetupCommand::Link = command;
        let link: api::SetupLink = self.client.get(Call::new(Operation::SetupLink))?;
        self.one(&link, |link| {
            println!("{}", printable(&link.url));
            if stderr().is_terminal() {
                eprintln!(
                    "Open the link before {} UTC. Anyone with the link can create the first administrator.",
                    show_time(link.expires_unix_ms)
                );
            }
        })
    }

    pub fn audit(&self, command: Audit) -> Outcome {
        let Audit::List { limit } = command;
        // The newest that match are among all that there are.
        let limit = if listing::is_filtered() { AUDIT_MAX } else { limit };
        let call = Call::new(Operation::AuditList).query("limit", limit);
        let page: Page<api::AuditEntry> = self.client.get(call)?;
        self.list(&page.items, show_audit)
    }

    pub fn alert(&self, command: AlertCommand) -> Outcome {
        let AlertCommand::List = command;
        let mut alerts: Vec<api::Alert> = self.client.all(Operation::AlertList, &[])?;
        alerts.sort_by_key(|alert| alert.severity);
        self.list(&alerts, show_alerts)
    }
}

fn show_users(users: &[api::User]) -> Shown {
    let rows = users.iter().map(|user| {
        let last = user.status.last_login_unix_ms.map_or("-".into(), show_time);
        vec![
            Cell::text(&user.name),
            Cell::text(word(&user.spec.role)),
            Cell::text(last),
            Cell::text(&user.id),
        ]
    });
    let empty = "No users. To create the first administrator: forebay setup link";
    listing::table(&["NAME", "ROLE", "LAST LOGIN (UTC)", "ID"], rows.collect(), empty)
}

fn show_audit(entries: &[api::AuditEntry]) -> Shown {
    let rows = entries.iter().map(|entry| {
        let tone = if entry.code.is_none() && entry.status < 400 { Tone::Plain } else { Tone::Warning };
        vec![
            Cell::text(show_time(entry.at_unix_ms)),
            Cell::text(&entry.principal),
            Cell::text(&entry.address),
            Cell::text(&entry.operation),
            Cell::text(outcome(entry)).tone(tone),
            Cell::text(match entry.count {
                Some(count) => format!("{} ({count} times)", entry.path),
                None if entry.changes.is_empty() => entry.path.clone(),
                None => format!("{} ({})", entry.path, entry.changes.join("; ")),
            }),
        ]
    });
    let titles = ["TIME (UTC)", "WHO", "FROM", "OPERATION", "OUTCOME", "PATH"];
    listing::table(&titles, rows.collect(), "No changes.")
}

/// `done`, `begun`, or why not.
fn outcome(entry: &api::AuditEntry) -> String {
    match (&entry.code, entry.status) {
        (Some(code), _) => code.to_string(),
        (None, 202) => "begun".into(),
        (None, ..400) => "done".into(),
        (None, status) => status.to_string(),
    }
}

fn show_alerts(alerts: &[api::Alert]) -> Shown {
    if alerts.is_empty() {
        println!("All is well.");
    }
    for alert in alerts {
        let tone = match alert.severity {
            AlertSeverity::Critical => Tone::Bad,
            AlertSeverity::Warning => Tone::Warning,
            AlertSeverity::Info => Tone::Plain,
        };
        println!(
            "{}  {}, since {} UTC",
            painted(alert.severity.name(), tone),
            printable(&alert.object.name),
            show_time(alert.since_unix_ms)
        );
        println!("  cause   {}", printable(&alert.cause));
        println!("  impact  {}", printable(&alert.impact));
        println!("  action  {}", printable(&alert.action));
        if let Some(command) = &alert.command {
            println!("          {}", printable(command));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_only_begun_or_failed_is_not_done() {
        let entry = |status: u16, code: Option<&str>| -> api::AuditEntry {
            serde_json::from_value(serde_json::json!({
                "sequence": 1, "at_unix_ms": 1, "principal": "socket", "address": "socket", "operation": "PoolCreate",
                "path": "/api/v1/pools", "status": status, "code": code,
            }))
            .expect("it is an entry")
        };
        for (status, code, shown) in [
            (201, None, "done"),
            (202, None, "begun"),
            (400, Some("invalid"), "invalid"),
            (200, Some("io"), "io"),
            (500, None, "500"),
        ] {
            assert_eq!(outcome(&entry(status, code)), shown);
        }
    }
}
