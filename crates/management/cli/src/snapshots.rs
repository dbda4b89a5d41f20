//! The commands about snapshots and clones.
//!
//! A snapshot is named `POOL/VOLUME@NAME`, or by its UUID once there is one.

use crate::arguments::{BestEffort, DryRun, Yes};
use crate::client::Call;
use crate::commands::{Outcome, Session, of_pool};
use crate::failure::{Exit, Failure, printable};
use crate::rename::Rename;
use crate::size::{parse_duration, show_time};
use crate::{show, streams};
use clap::{ArgAction, Subcommand};
use forebay_api as api;
use forebay_api::{Operation, SnapshotClone, SnapshotCreate, SnapshotRollback, SnapshotSet};

#[derive(Subcommand, Debug)]
pub enum Snapshot {
    /// Take a snapshot of a volume, or of several volumes or a project at one moment
    Create {
        /// POOL/VOLUME@NAME, or POOL/PROJECT@NAME for all its volumes; several must have the same pool and NAME
        #[arg(value_name = "VOLUME@NAME", required = true)]
        names: Vec<String>,
        /// Retention, up to 36500d: no user can delete the snapshot, its volume or its imported pool before it ends. It cannot be undone
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        retain: Option<u64>,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List snapshots, the oldest of a volume first
    List {
        /// Only snapshots of this volume
        #[arg(conflicts_with = "pool")]
        volume: Option<String>,
        /// Only snapshots of this pool
        #[arg(long)]
        pool: Option<String>,
    },
    /// Show a snapshot
    Show {
        /// POOL/VOLUME@NAME or UUID
        name: String,
    },
    /// Delete a snapshot; space that only it uses is freed in the background
    Delete {
        /// POOL/VOLUME@NAME or UUID
        name: String,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Roll a volume back to a snapshot; newer snapshots stay
    Rollback {
        /// POOL/VOLUME@NAME or UUID
        name: String,
        /// Proceed even if clients are connected to the volume
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Hold a snapshot, so that no user and no schedule can delete it
    Hold {
        /// POOL/VOLUME@NAME or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Release a held snapshot
    Release {
        /// POOL/VOLUME@NAME or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Rename a snapshot
    Rename(Rename),
    /// Change a snapshot's properties
    Set {
        /// POOL/VOLUME@NAME or UUID
        name: String,
        /// Whether it is a template, which is kept for clones and cannot be deleted
        #[arg(long, value_name = "true|false", action = ArgAction::Set, required_unless_present = "retain")]
        template: Option<bool>,
        /// Retention from now: no user can delete the snapshot, its volume or its imported pool before it ends. It can only be extended
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, required_unless_present = "template")]
        retain: Option<u64>,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Write a snapshot to stdout as a stream: all of it, or the changes since another one
    Send(streams::Send),
    /// Receive a snapshot's stream from stdin; the snapshot appears when it is complete
    Receive(streams::Receive),
    /// List interrupted receives
    Receives(streams::Receives),
    /// Discard an interrupted receive
    Abandon(streams::Abandon),
}

#[derive(Subcommand, Debug)]
pub enum CloneCommand {
    /// Create a volume from a snapshot; it shares the snapshot's blocks until they are overwritten
    Create {
        /// POOL/VOLUME@NAME or UUID of the snapshot
        #[arg(value_name = "VOLUME@NAME")]
        snapshot: String,
        /// POOL/[PROJECT/]NAME, in the same pool
        #[arg(value_name = "NEW")]
        name: String,
        #[command(flatten)]
        best_effort: BestEffort,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Promote a clone to the owner of its snapshot; its origin becomes a clone, and can be deleted
    Promote {
        /// POOL/NAME or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

const RETAINS: &str =
    "Retention cannot be undone: until it ends, the snapshot, its volume and its pool cannot be deleted";

/// What the API is asked for; the names have one behind the `@`.
fn group(names: &[String]) -> Result<SnapshotCreate, Failure> {
    let mut request = SnapshotCreate { volumes: Vec::new(), name: String::new(), retain_seconds: None };
    for full in names {
        let wrong = |detail: String, remedy: &str| {
            Err(Failure::new(Exit::Usage, detail, remedy).object(full.as_str()))
        };
        let Some((volume, name)) = full.rsplit_once('@') else {
            return wrong("it is not a snapshot's name".into(), "Write POOL/VOLUME@NAME.");
        };
        if !request.volumes.is_empty() && request.name != name {
            let detail =
                format!("snapshots taken together need the same name, and another is named {}", request.name);
            return wrong(detail, "Give all of them the same name, or take them one after the other.");
        }
        request.name = name.into();
        request.volumes.push(volume.into());
    }
    Ok(request)
}

impl Session {
    pub fn snapshot(&self, command: Snapshot) -> Outcome {
        match command {
            Snapshot::Create { names, retain, yes, dry_run } => {
                let body = SnapshotCreate { retain_seconds: retain, ..group(&names)? };
                let call = Call::new(Operation::SnapshotCreate).body(&body).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                if retain.is_some() {
                    self.confirm(yes.yes, RETAINS, &names.join(" "), &call)?;
                }
                let answer = self.client.call(call)?;
                self.one(&answer.parse::<api::Snapshots>()?, |taken| {
                    for snapshot in &taken.items {
                        println!("Snapshot {} is taken.", printable(&snapshot.name));
                        if let Some(until) = snapshot.status.retained_until_unix_ms {
                            println!("It cannot be deleted before {} UTC.", show_time(until));
                        }
                    }
                })
            }
            Snapshot::List { volume, pool } => {
                let mut query = of_pool(pool);
                query.extend(volume.map(|volume| ("volume", volume)));
                self.list(&self.client.all(Operation::SnapshotList, &query)?, show::snapshots)
            }
            Snapshot::Show { name } => {
                let snapshot: api::Snapshot = self.client.get(Call::of(Operation::SnapshotShow, &name))?;
                self.one(&snapshot, show::snapshot)
            }
            Snapshot::Delete { name, yes, dry_run } => {
                let call = Call::of(Operation::SnapshotDelete, &name).dry_run(dry_run.dry_run);
                if dry_run.dry_run {
                    return self.plan(&self.client.call(call)?);
                }
                // What was confirmed is this snapshot as it is now, not another that takes its name meanwhile.
                let seen = self.client.call(Call::of(Operation::SnapshotShow, &name))?;
                self.confirm(yes.yes, "Deleting a snapshot cannot be undone", &name, &call)?;
                self.client.call(call.if_seen(&seen))?;
                self.done(&name, "snapshot.delete", format!("Snapshot {name} is deleted."))
            }
            Snapshot::Rollback { name, force, yes, dry_run } => {
                let body = SnapshotRollback { force };
                if dry_run.dry_run {
                    let call = Call::of(Operation::SnapshotRollback, &name).body(&body).dry_run(true);
                    return self.plan(&self.client.call(call)?);
                }
                // By its UUID, which no other has, for the same reason.
                let seen: api::Snapshot = self.client.get(Call::of(Operation::SnapshotShow, &name))?;
                let what =
                    "Rolling a volume back loses all changes that no snapshot has, and cannot be undone";
                let call = Call::of(Operation::SnapshotRollback, &seen.id).body(&body);
                self.confirm(yes.yes, what, &name, &call)?;
                self.one(&self.client.get::<api::Volume>(call)?, |volume| {
                    println!(
                        "Volume {} is rolled back to {}.",
                        printable(&volume.name),
                        printable(&seen.name)
                    );
                })
            }
            Snapshot::Hold { name, dry_run } => {
                let change = SnapshotSet { held: Some(true), ..SnapshotSet::default() };
                self.snapshot_change(&name, &change, dry_run)
            }
            Snapshot::Release { name, dry_run } => {
                let change = SnapshotSet { held: Some(false), ..SnapshotSet::default() };
                self.snapshot_change(&name, &change, dry_run)
            }
            Snapshot::Rename(rename) => self.rename("Snapshot", Operation::SnapshotSet, rename.of_part('@')?),
            Snapshot::Set { name, template, retain, yes, dry_run } => {
                let change = SnapshotSet { template, retain_seconds: retain, ..SnapshotSet::default() };
                if retain.is_some() && !dry_run.dry_run {
                    let call = Call::of(Operation::SnapshotSet, &name).body(&change);
                    self.confirm(yes.yes, RETAINS, &name, &call)?;
                }
                self.snapshot_change(&name, &change, dry_run)
            }
            Snapshot::Send(send) => self.snapshot_send(send),
            Snapshot::Receive(receive) => self.snapshot_receive(receive),
            Snapshot::Receives(list) => self.receives(list),
            Snapshot::Abandon(abandon) => self.receive_abandon(abandon),
        }
    }

    fn snapshot_change(&self, name: &str, change: &SnapshotSet, dry_run: DryRun) -> Outcome {
        let call = Call::of(Operation::SnapshotSet, name).body(change).dry_run(dry_run.dry_run);
        let answer = self.client.call(call)?;
        if dry_run.dry_run {
            return self.plan(&answer);
        }
        let snapshot = answer.parse::<api::Snapshot>()?;
        self.changed(&snapshot, format!("Snapshot {} is changed.", snapshot.name))
    }

    pub fn clone_command(&self, command: CloneCommand) -> Outcome {
        match command {
            CloneCommand::Create { snapshot, name, best_effort, dry_run } => {
                let body = SnapshotClone { name };
                let call = Call::of(Operation::SnapshotClone, &snapshot).body(&body).dry_run(dry_run.dry_run);
                let call = call.best_effort(best_effort.best_effort);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Volume>()?, |volume| {
                    println!("Volume {} is a clone of {}.", printable(&volume.name), printable(&snapshot));
                })
            }
            CloneCommand::Promote { name, dry_run } => {
                let call = Call::of(Operation::VolumePromote, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Volume>()?, |volume| {
                    println!(
                        "Volume {} is promoted: it owns the snapshot that it was cloned from.",
                        printable(&volume.name)
                    );
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_one_name() {
        let group =
            |names: &[&str]| super::group(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        let request = group(&["tank/a@s", "tank/web/b@s"]).unwrap();
        assert_eq!((request.volumes.join(" "), request.name), ("tank/a tank/web/b".into(), "s".into()));
        for names in [&["tank/a"][..], &["tank/a@s", "tank/b@t"], &["tank/a@s", "tank/b"]] {
            let failure = group(names).unwrap_err();
            assert!(failure.exit == Exit::Usage && failure.remedy.is_some(), "{names:?}");
        }
    }
}
