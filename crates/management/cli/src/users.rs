//! `forebay user`, `setup`, `audit` and `alert`: who may log in, who did what, and what is wrong now.

use crate::arguments::{DryRun, RoleArgument};
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::printable;
use crate::secret;
use crate::show::{self, word};
use crate::size::show_time;
use crate::table::{Cell, Tone, painted};
use clap::{ArgGroup, Subcommand};
use forebay_api::{self as api, AlertSeverity, Operation, Page, UserCreate, UserSet};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

const PASSWORD_FILE: &str = "--password-file";

#[derive(Subcommand, Debug)]
pub enum User {
    /// Make a user; the password is asked for on the terminal, or read from a file or stdin
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// What the user may do
        #[arg(long, default_value = "viewer")]
        role: RoleArgument,
        /// Where the password is, instead of the terminal or stdin: 12 characters or more
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List users
    List,
    /// Change a user's role or password; all of the user's logins end
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args(["role", "password", "password_file"]))]
    Set {
        /// Name or UUID
        name: String,
        /// What the user may do
        #[arg(long)]
        role: Option<RoleArgument>,
        /// Ask for a new password on the terminal, or read it from stdin
        #[arg(long)]
        password: bool,
        /// Where the new password is, instead
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Remove a user; all of the user's logins end
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

#[derive(Subcommand, Debug)]
pub enum SetupCommand {
    /// Print a new link that makes the first administrator, as long as there is no user
    Link,
}

#[derive(Subcommand, Debug)]
pub enum Audit {
    /// List the newest changes over the API, the oldest of them first
    List {
        /// At most this many
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
}

#[derive(Subcommand, Debug)]
pub enum AlertCommand {
    /// List what is wrong now, the worst first
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
                let body = UserSet { role: role.map(Into::into), password, old_password: None };
                let call = Call::of(Operation::UserSet, &name).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::User>()?, |user| {
                    println!("User {} is changed.", printable(&user.name));
                })
            }
            User::Delete { name, dry_run } => {
                let call = Call::of(Operation::UserDelete, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&name, "user.delete", format!("User {name} is removed."))
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
                    "Open it until {} UTC; whoever does makes the first administrator.",
                    show_time(link.expires_unix_ms)
                );
            }
        })
    }

    pub fn audit(&self, command: Audit) -> Outcome {
        let Audit::List { limit } = command;
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

fn show_users(users: &[api::User]) {
    let rows = users.iter().map(|user| {
        let last = user.status.last_login_unix_ms.map_or("-".into(), show_time);
        vec![
            Cell::text(&user.name),
            Cell::text(word(&user.spec.role)),
            Cell::text(last),
            Cell::text(&user.id),
        ]
    });
    let empty = "No users. Make the first administrator with: forebay setup link";
    show::table(&["NAME", "ROLE", "LAST LOGIN (UTC)", "ID"], rows.collect(), empty);
}

fn show_audit(entries: &[api::AuditEntry]) {
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
    show::table(&titles, rows.collect(), "Nobody has changed anything.");
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

fn show_alerts(alerts: &[api::Alert]) {
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
        println!("  do      {}", printable(&alert.action));
        if let Some(command) = &alert.command {
            println!("          {}", printable(command));
        }
    }
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
