//! The commands about hosts, host groups, mappings and sessions.

use crate::arguments::{DryRun, Yes};
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, Failure, printable};
use crate::size::{or_none, parse_iops, parse_size};
use crate::{secret, show};
use clap::{Args, Subcommand};
use forebay_api as api;
use forebay_api::{HostCreate, HostGroupCreate, HostGroupSet, HostSet, MappingCreate, Operation};
use std::path::PathBuf;

/// CHAP: proof by secrets, which are asked for on the terminal, or read from files or from stdin, a line each.
#[derive(Args, Debug)]
pub struct Chap {
    /// The host proves itself by this name and a secret of 12 to 255 characters (CHAP)
    #[arg(long, value_name = "USER")]
    pub chap: Option<String>,
    /// Where the secret is, instead of the terminal or stdin
    #[arg(long, value_name = "FILE", requires = "chap")]
    pub chap_secret_file: Option<PathBuf>,
    /// The target proves itself to the host by this name and another secret (mutual CHAP)
    #[arg(long, value_name = "USER")]
    pub mutual: Option<String>,
    /// Where that secret is
    #[arg(long, value_name = "FILE", requires = "mutual")]
    pub mutual_secret_file: Option<PathBuf>,
}

/// What a host gets at most, over all its sessions and volumes.
#[derive(Args, Debug, Clone, Copy)]
pub struct Ceilings {
    /// Requests a second that it gets at most over iSCSI, or none
    #[arg(long, value_name = "N", value_parser = or_none(parse_iops))]
    ceiling_iops: Option<u64>,
    /// Bytes a second that it gets at most, like 50M, or none
    #[arg(long, value_name = "SIZE", value_parser = or_none(parse_size))]
    ceiling_bandwidth: Option<u64>,
}

/// For commands that would take volumes from a host.
#[derive(Args, Debug, Clone, Copy)]
pub struct Unmap {
    /// Do it even if volumes are taken away by it
    #[arg(long)]
    pub unmap: bool,
}

#[derive(Subcommand, Debug)]
pub enum Host {
    /// Make a host known by its initiator names
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// Its initiator names: iqn., eui. or naa.
        #[arg(long, value_name = "IQN", num_args = 1.., required = true)]
        iqn: Vec<String>,
        #[command(flatten)]
        chap: Chap,
        #[command(flatten)]
        ceilings: Ceilings,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List hosts
    List,
    /// Show a host and the volumes that it sees
    Show {
        /// Name or UUID
        name: String,
    },
    /// Change a host's initiator names, secrets or ceilings
    Set {
        /// Name or UUID
        name: String,
        /// All initiator names that it has from now on
        #[arg(long, value_name = "IQN", num_args = 1..)]
        iqn: Vec<String>,
        #[command(flatten)]
        chap: Chap,
        /// Its initiator name is enough from now on
        #[arg(long, conflicts_with_all = ["chap", "mutual"])]
        no_chap: bool,
        /// The target does not prove itself any more
        #[arg(long, conflicts_with = "mutual")]
        no_mutual: bool,
        #[command(flatten)]
        ceilings: Ceilings,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Forget a host
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        unmap: Unmap,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Host groups: hosts that see the same volumes under the same numbers
    #[command(subcommand)]
    Group(HostGroup),
}

#[derive(Subcommand, Debug)]
pub enum HostGroup {
    /// Create a host group
    Create {
        /// Letters, digits and `._-`, starting with a letter; no host has it
        name: String,
        /// Its members
        #[arg(long, value_name = "HOST", num_args = 1..)]
        host: Vec<String>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List host groups
    List,
    /// Show a host group and the volumes that are mapped to it
    Show {
        /// Name or UUID
        name: String,
    },
    /// Change who is in a host group
    Set {
        /// Name or UUID
        name: String,
        /// All its members from now on; `--host` alone leaves none
        #[arg(long, value_name = "HOST", num_args = 0.., required = true)]
        host: Vec<String>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Delete a host group; its hosts stay
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        unmap: Unmap,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

#[derive(Subcommand, Debug)]
pub enum SessionCommand {
    /// List sessions, the oldest first
    List {
        /// Only this host's or host group's
        #[arg(long)]
        host: Option<String>,
    },
    /// Log an initiator out; it may come back at once
    Drop {
        /// The session's number
        id: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

/// Bytes of `--logical-block`, as the API takes them; which ones are possible it knows itself.
pub fn logical_block(bytes: Option<u64>) -> Result<Option<u32>, Failure> {
    let wrong = |_| Failure::new(Exit::Usage, "the logical block is out of range", "Give 512 or 4K.");
    bytes.map(u32::try_from).transpose().map_err(wrong)
}

impl Session {
    pub fn host(&self, command: Host) -> Outcome {
        match command {
            Host::Create { name, iqn, chap, ceilings, dry_run } => {
                let (chap, mutual) = self.secrets(chap)?;
                let body = HostCreate {
                    name,
                    initiators: iqn,
                    chap,
                    mutual,
                    ceiling_iops: ceilings.ceiling_iops,
                    ceiling_bytes_per_second: ceilings.ceiling_bandwidth,
                };
                let call = Call::new(Operation::HostCreate).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Host>()?, |host| {
                    println!("Host {} is known.", printable(&host.name));
                })
            }
            Host::List => self.list(&self.client.all(Operation::HostList, &[])?, show::hosts),
            Host::Show { name } => {
                let host: api::Host = self.client.get(Call::of(Operation::HostShow, &name))?;
                self.one(&host, show::host)?;
                self.mappings_below("host", &host.id)
            }
            Host::Set { name, iqn, chap, no_chap, no_mutual, ceilings, dry_run } => {
                let (chap, mutual) = self.secrets(chap)?;
                let body = HostSet {
                    initiators: Some(iqn).filter(|iqn| !iqn.is_empty()),
                    chap: chap.map(Some).or(no_chap.then_some(None)),
                    // Without the host's proof there is none of the target's.
                    mutual: mutual.map(Some).or((no_mutual || no_chap).then_some(None)),
                    ceiling_iops: ceilings.ceiling_iops,
                    ceiling_bytes_per_second: ceilings.ceiling_bandwidth,
                };
                let call = Call::of(Operation::HostSet, &name).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Host>()?, show::host)
            }
            Host::Delete { name, unmap, yes, dry_run } => {
                let seeing = (Operation::HostShow, Operation::HostDelete);
                self.remove(seeing, ("host", &name), (unmap.unmap, yes.yes, dry_run.dry_run))
            }
            Host::Group(command) => self.host_group(command),
        }
    }

    fn host_group(&self, command: HostGroup) -> Outcome {
        match command {
            HostGroup::Create { name, host, dry_run } => {
                let body = HostGroupCreate { name, hosts: host };
                let call = Call::new(Operation::HostGroupCreate).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::HostGroup>()?, |group| {
                    println!("Host group {} is created.", printable(&group.name));
                })
            }
            HostGroup::List => self.list(&self.client.all(Operation::HostGroupList, &[])?, show::host_groups),
            HostGroup::Show { name } => {
                let group: api::HostGroup = self.client.get(Call::of(Operation::HostGroupShow, &name))?;
                self.one(&group, show::host_group)?;
                self.mappings_below("host", &group.id)
            }
            HostGroup::Set { name, host, dry_run } => {
                let body = HostGroupSet { hosts: host };
                let call = Call::of(Operation::HostGroupSet, &name).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::HostGroup>()?, show::host_group)
            }
            HostGroup::Delete { name, unmap, yes, dry_run } => {
                let seeing = (Operation::HostGroupShow, Operation::HostGroupDelete);
                self.remove(seeing, ("host group", &name), (unmap.unmap, yes.yes, dry_run.dry_run))
            }
        }
    }

    /// Removes a host or a group; one that sees volumes only with `unmap` and confirmation.
    fn remove(
        &self,
        (show, delete): (Operation, Operation),
        (kind, name): (&str, &str),
        (unmap, yes, dry_run): (bool, bool, bool),
    ) -> Outcome {
        let mut call = Call::of(delete, name).dry_run(dry_run);
        if unmap {
            call = call.query("unmap", true);
        }
        if dry_run {
            return self.plan(&self.client.call(call)?);
        }
        // What was confirmed is this one as it is now.
        let seen = self.client.call(Call::of(show, name))?;
        if unmap {
            self.confirm(
                yes,
                &format!("Deleting a {kind} and taking its volumes away cannot be undone"),
                name,
                &call,
            )?;
        }
        self.client.call(call.if_seen(&seen))?;
        let action = if delete == Operation::HostDelete { "host.delete" } else { "host_group.delete" };
        let is = if delete == Operation::HostDelete { "Host" } else { "Host group" };
        self.done(name, action, format!("{is} {name} is deleted."))
    }

    /// The secrets that go with the users, in this order.
    fn secrets(&self, chap: Chap) -> Result<(Option<api::Chap>, Option<api::Chap>), Failure> {
        let of = |user: Option<String>, file, what: &str, option: &str| {
            let read =
                |user: String| secret::read(file, what, option).map(|secret| api::Chap { user, secret });
            user.map(read).transpose()
        };
        let host = of(chap.chap, chap.chap_secret_file, "the host's secret", "--chap-secret-file")?;
        let target = of(chap.mutual, chap.mutual_secret_file, "the target's secret", "--mutual-secret-file")?;
        Ok((host, target))
    }

    /// For people: that a volume, which follows its project, gets hosts of its own.
    fn own_hosts_told(&self, volume: &str) -> Option<String> {
        // What is wrong with the volume, the change itself will say.
        let volume = self.client.get::<api::Volume>(Call::of(Operation::VolumeShow, volume)).ok()?;
        let project = volume.status.project.filter(|_| volume.spec.sources.hosts != api::Source::Own)?;
        let (name, project) = (printable(&volume.name), printable(&project));
        Some(format!(
            "Its hosts are its own from now on; `forebay volume set {name} --inherit hosts` has it follow {project} again."
        ))
    }

    pub fn map(&self, body: &MappingCreate, dry_run: bool) -> Outcome {
        let told = self.own_hosts_told(&body.volume);
        let answer = self.client.call(Call::new(Operation::MappingCreate).body(body).dry_run(dry_run))?;
        if dry_run {
            return self.plan(&answer);
        }
        self.one(&answer.parse::<api::Mapping>()?, |mapping| {
            let (volume, host) = (printable(&mapping.spec.volume), printable(&mapping.spec.host));
            let target = printable(&mapping.status.target);
            println!("Volume {volume} is LUN {} of {target} for {host}.", mapping.spec.lun);
            told.iter().for_each(|told| println!("{told}"));
        })
    }

    /// Removes the mapping of a volume to a host or group itself, not one through a group.
    pub fn unmap(&self, volume: &str, host: &str, dry_run: bool) -> Outcome {
        let query = [("volume", volume.to_string()), ("host", host.to_string())];
        let mut mappings: Vec<api::Mapping> = self.client.all(Operation::MappingList, &query)?;
        let through =
            mappings.iter().find(|mapping| mapping.status.is_group).map(|mapping| mapping.spec.host.clone());
        if let Some(group) = &through
            && self.client.call(Call::of(Operation::HostShow, host)).is_ok()
        {
            let detail = format!("{host} sees it as a member of {group}");
            let remedy =
                format!("Unmap it from the whole group with --host {group}, or take the host out of it.");
            return Err(Failure::new(Exit::Conflict, detail, remedy).object(volume));
        }
        let (Some(mapping), true) = (mappings.pop(), mappings.is_empty()) else {
            let detail = format!("it is not mapped to {host}");
            let remedy = "`forebay volume show VOLUME` lists who sees it.";
            return Err(Failure::new(Exit::NotFound, detail, remedy).object(volume));
        };
        let told = self.own_hosts_told(&mapping.status.volume_id);
        let call = Call::of(Operation::MappingDelete, &mapping.id).dry_run(dry_run);
        let answer = self.client.call(call)?;
        if dry_run {
            return self.plan(&answer);
        }
        let done = [format!("Volume {volume} is unmapped from {host}.")].into_iter().chain(told);
        self.done(volume, "mapping.delete", done.collect::<Vec<_>>().join(" "))
    }

    /// For people: who sees a volume, or what a host sees, below what was shown of it.
    pub fn mappings_below(&self, filter: &'static str, id: &str) -> Outcome {
        if self.json {
            return Ok(Exit::Ok);
        }
        let mappings: Vec<api::Mapping> =
            self.client.all(Operation::MappingList, &[(filter, id.to_string())])?;
        if !mappings.is_empty() {
            println!();
            show::mappings(&mappings);
        }
        Ok(Exit::Ok)
    }

    pub fn session(&self, command: SessionCommand) -> Outcome {
        match command {
            SessionCommand::List { host } => {
                let query: Vec<_> = host.into_iter().map(|host| ("host", host)).collect();
                self.list(&self.client.all(Operation::SessionList, &query)?, show::sessions)
            }
            SessionCommand::Drop { id, dry_run } => {
                let call = Call::of(Operation::SessionDrop, &id).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&id, "session.drop", format!("Session {id} is told to end."))
            }
        }
    }
}
