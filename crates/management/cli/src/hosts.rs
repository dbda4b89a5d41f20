//! The commands about hosts, host groups, mappings and sessions.

use crate::arguments::{DryRun, Yes};
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, Failure, printable};
use crate::rename::Rename;
use crate::size::{or_none, parse_iops, parse_rate};
use crate::{secret, show};
use clap::{Args, Subcommand};
use forebay_api as api;
use forebay_api::{HostCreate, HostGroupCreate, HostGroupSet, HostSet, MappingCreate, Operation};
use std::path::PathBuf;

/// CHAP: proof by secrets, which are asked for on the terminal, or read from files or from stdin, a line each.
#[derive(Args, Debug)]
pub struct Chap {
    /// CHAP user name of the host; its secret has 12 to 255 characters
    #[arg(long, value_name = "USER")]
    pub chap: Option<String>,
    /// File with the host's secret [default: the terminal or stdin]
    #[arg(long, value_name = "FILE", requires = "chap")]
    pub chap_secret_file: Option<PathBuf>,
    /// Mutual CHAP user name of the target; its secret must differ from the host's
    #[arg(long, value_name = "USER")]
    pub mutual: Option<String>,
    /// File with the target's secret [default: the terminal or stdin]
    #[arg(long, value_name = "FILE", requires = "mutual")]
    pub mutual_secret_file: Option<PathBuf>,
}

/// A host's limits, over all its sessions and volumes.
#[derive(Args, Debug, Clone, Copy)]
pub struct Ceilings {
    /// Maximum IOPS of the host over iSCSI, or none
    #[arg(long, value_name = "N", value_parser = or_none(parse_iops))]
    max_iops: Option<u64>,
    /// Maximum throughput of the host over iSCSI such as 50M (50 MB/s), or none
    #[arg(long, value_name = "RATE", value_parser = or_none(parse_rate))]
    max_bandwidth: Option<u64>,
}

/// For commands that would take volumes from a host.
#[derive(Args, Debug, Clone, Copy)]
pub struct Unmap {
    /// Delete it even if volumes are mapped to it; they are unmapped
    #[arg(long)]
    pub unmap: bool,
}

#[derive(Subcommand, Debug)]
pub enum Host {
    /// Create a host from its iSCSI initiator names
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// The host's initiator names, which begin with iqn., eui. or naa.
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
    /// Show a host and the volumes that are mapped to it
    Show {
        /// Name or UUID
        name: String,
    },
    /// Change a host's initiator names, CHAP secrets or limits
    Set {
        /// Name or UUID
        name: String,
        /// All initiator names of the host; they replace the present ones
        #[arg(long, value_name = "IQN", num_args = 1..)]
        iqn: Vec<String>,
        #[command(flatten)]
        chap: Chap,
        /// Turn CHAP off: the initiator name alone is enough to log in
        #[arg(long, conflicts_with_all = ["chap", "mutual"])]
        no_chap: bool,
        /// Turn mutual CHAP off
        #[arg(long, conflicts_with = "mutual")]
        no_mutual: bool,
        #[command(flatten)]
        ceilings: Ceilings,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Rename a host
    Rename(Rename),
    /// Delete a host
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
    /// Host groups: hosts that share volumes and LUNs
    #[command(subcommand)]
    Group(HostGroup),
}

#[derive(Subcommand, Debug)]
pub enum HostGroup {
    /// Create a host group
    Create {
        /// Letters, digits and `._-`, starting with a letter; not the name of a host
        name: String,
        /// Hosts of the group [default: none]
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
    /// Change the members of a host group
    Set {
        /// Name or UUID
        name: String,
        /// All hosts of the group, which replace the present ones; `--host` alone removes all
        #[arg(long, value_name = "HOST", num_args = 0.., required = true)]
        host: Vec<String>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Rename a host group
    Rename(Rename),
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
        /// Only sessions of this host or host group
        #[arg(long)]
        host: Option<String>,
    },
    /// End a session; the initiator may log in again at once
    Drop {
        /// The session's number, as `session list` shows it
        id: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

/// Bytes of `--logical-block`, as the API takes them; which ones are possible it knows itself.
pub fn logical_block(bytes: Option<u64>) -> Result<Option<u32>, Failure> {
    let wrong = |_| Failure::new(Exit::Usage, "the logical block size is out of range", "Give 512 or 4K.");
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
                    max_iops: ceilings.max_iops,
                    max_bytes_per_second: ceilings.max_bandwidth,
                };
                let call = Call::new(Operation::HostCreate).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Host>()?, |host| {
                    println!("Host {} is created.", printable(&host.name));
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
                    name: None,
                    initiators: Some(iqn).filter(|iqn| !iqn.is_empty()),
                    chap: chap.map(Some).or(no_chap.then_some(None)),
                    // Without the host's proof there is none of the target's.
                    mutual: mutual.map(Some).or((no_mutual || no_chap).then_some(None)),
                    max_iops: ceilings.max_iops,
                    max_bytes_per_second: ceilings.max_bandwidth,
                };
                let call = Call::of(Operation::HostSet, &name).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                let host = answer.parse::<api::Host>()?;
                self.changed(&host, format!("Host {} is changed.", host.name))
            }
            Host::Rename(rename) => self.rename("Host", Operation::HostSet, rename),
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
                let body = HostGroupSet { name: None, hosts: Some(host) };
                let call = Call::of(Operation::HostGroupSet, &name).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                let group = answer.parse::<api::HostGroup>()?;
                self.changed(&group, format!("Host group {} is changed.", group.name))
            }
            HostGroup::Rename(rename) => self.rename("Host group", Operation::HostGroupSet, rename),
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
                &format!("Deleting a {kind} and unmapping its volumes cannot be undone"),
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
            "The volume no longer inherits the hosts of project {project}. To inherit them again: forebay volume set {name} --inherit hosts"
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
            println!("Volume {volume} is mapped to {host} as LUN {} of {target}.", mapping.spec.lun);
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
            let detail = format!("it is mapped to {host} only as a member of {group}");
            let remedy = format!(
                "Unmap it from the whole group with --host {group}, or remove the host from the group."
            );
            return Err(Failure::new(Exit::Conflict, detail, remedy).object(volume));
        }
        let (Some(mapping), true) = (mappings.pop(), mappings.is_empty()) else {
            let detail = format!("it is not mapped to {host}");
            let remedy = "`forebay volume show VOLUME` lists its hosts.";
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
            show::mappings(&mappings)?;
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
                self.done(&id, "session.drop", format!("Session {id} is being ended."))
            }
        }
    }
}
