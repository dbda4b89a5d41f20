//! What hosts and host groups of a pool's registry stand for here.
//!
//! What is known here is changed only by a pool that is no stranger, since an administrator has changed here what concerns it; only where the pool named it here before; and only by what has
//! been changed more often. So a secret that was changed on another machine comes back with the pool, and disks from elsewhere change nothing. A host that came with another pool
//! was never looked at by an administrator: another pool's registry has to say the same of it, or its volumes are not mapped to it. Nor are they to a host that
//! proves itself less than the registry wants.

use super::taken::{
    FULL, NOT_PLAIN, Pool, REVISION_MAX, REVISION_TAKEN_MAX, Taken, check_mapping, free_name,
};
use super::{MAPPING, PROJECT};
use crate::hosts::{Content, Credentials, Group, HOSTS_MAX, Host, Mapping};
use crate::inherited::ProjectHosts;
use crate::iscsi_names::{self, target_name};
use crate::levels::{CEILING_BYTES, CEILING_IOPS, check_ceiling};
use crate::rules::{self, shown};
use forebay_api::Chap;
use std::collections::{HashMap, HashSet};

const KEPT: &str = "this appliance has its own version and keeps it";
const STRANGE: &str = "the one on this appliance came with another pool and differs: check and correct it, then map the volumes";
const SECRET: &str = "the one on this appliance has secrets or members that a pool from another machine does not get: map the volumes if they are \
                      meant for it";
const WEAKER: &str = "the host on this appliance has no CHAP secret, but the pool's version has one: set CHAP, then map the volumes";

/// Whether a request could have made it.
fn is_possible_host(host: &Host) -> bool {
    let chap = |credentials: &Option<Credentials>| {
        credentials.as_ref().map(|one| Chap { user: one.user.clone(), secret: one.secret.clone() })
    };
    let (one, other) = (chap(&host.chap), chap(&host.mutual));
    let ceilings = [(CEILING_IOPS, host.max_iops), (CEILING_BYTES, host.max_bytes_per_second)];
    rules::name("name", &host.name).is_ok()
        && host.revision <= REVISION_MAX
        && iscsi_names::initiators(&host.initiators).is_ok_and(|names| names == host.initiators)
        && iscsi_names::chap(one.as_ref()).is_ok()
        && iscsi_names::mutual(other.as_ref()).is_ok()
        && iscsi_names::both(host.chap.as_ref(), host.mutual.as_ref()).is_ok()
        && ceilings.iter().all(|(field, rate)| rate.is_none_or(|rate| check_ceiling(field, rate).is_ok()))
}

/// Hosts and groups: what the content has, and what of a registry stands for what.
pub struct Parties<'a> {
    pool: &'a Pool<'a>,
    now_unix_ms: u64,
    /// An administrator has changed something here that concerns the pool.
    is_own: bool,
    /// What the pool may change: what it named here before, if it is no stranger.
    changeable: HashSet<String>,
    /// As they will be.
    pub hosts: HashMap<String, Host>,
    pub groups: HashMap<String, Group>,
    names: HashSet<String>,
    /// Hosts by their initiators.
    initiators: HashMap<String, String>,
    /// Of the registry, not looked at yet.
    hosts_there: HashMap<String, Host>,
    groups_there: HashMap<String, Group>,
    /// What stands for those that were looked at, if anything does.
    found: HashMap<String, Option<String>>,
}

impl<'a> Parties<'a> {
    pub fn of(
        content: &Content,
        pool: &'a Pool<'a>,
        (is_own, changeable): (bool, HashSet<String>),
        (hosts, groups): (Vec<Host>, Vec<Group>),
        now_unix_ms: u64,
    ) -> Parties<'a> {
        let names = content.hosts.iter().map(|host| &host.name);
        let names = names.chain(content.groups.iter().map(|group| &group.name));
        let of = |host: &Host| {
            host.initiators.iter().map(|name| (name.clone(), host.id.clone())).collect::<Vec<_>>()
        };
        Parties {
            pool,
            now_unix_ms,
            is_own,
            changeable,
            names: names.cloned().collect(),
            initiators: content.hosts.iter().flat_map(of).collect(),
            hosts: content.hosts.iter().map(|host| (host.id.clone(), host.clone())).collect(),
            groups: content.groups.iter().map(|group| (group.id.clone(), group.clone())).collect(),
            hosts_there: hosts.into_iter().map(|host| (host.id.clone(), host)).collect(),
            groups_there: groups.into_iter().map(|group| (group.id.clone(), group)).collect(),
            found: HashMap::new(),
        }
    }

    /// Changes the hosts that are here and may be changed. Before all else: whom an initiator belongs to follows from all of them.
    pub fn change_known(&mut self, taken: &mut Taken) {
        let is_newer = |host: &&Host| {
            let here = self.hosts.get(&host.id);
            here.is_some_and(|here| host.revision > here.revision && !is_same(host, here))
                && self.changeable.contains(&host.id)
                && is_possible_host(host)
        };
        let mut newer: Vec<Host> = self.hosts_there.values().filter(is_newer).cloned().collect();
        newer.sort_by(|a, b| a.id.cmp(&b.id));
        let ids: HashSet<String> = newer.iter().map(|host| host.id.clone()).collect();
        self.initiators.retain(|_, of| !ids.contains(of));
        for host in newer {
            let here = self.hosts[&host.id].clone();
            let mut now = here.clone();
            if host.initiators.iter().all(|name| !self.initiators.contains_key(name)) {
                taken.changed.push(format!("host {}", here.name));
                let revision = host.revision.min(REVISION_TAKEN_MAX);
                let Host { id, name, created_unix_ms, came_with, .. } = here;
                now = Host { id, name, created_unix_ms, came_with, revision, ..host };
            }
            self.initiators.extend(now.initiators.iter().map(|name| (name.clone(), now.id.clone())));
            self.hosts.insert(now.id.clone(), now);
        }
    }

    /// The mapping as it would be here.
    pub fn wanted(&mut self, mapping: Mapping, taken: &mut Taken) -> Option<Mapping> {
        let name = self.pool.volumes.get(&mapping.volume);
        let checked = check_mapping(&mapping, self.pool).and(name.ok_or("its volume is not in this pool"));
        let checked = checked.and_then(|name| match self.pool.elsewhere.contains(&mapping.volume) {
            true => Err("a volume of another pool has the same UUID"),
            false => Ok(name),
        });
        let found = checked
            .and_then(|name| Ok((name, self.find(&mapping.to, taken).ok_or("its host was not taken")?)));
        let is_strange = |target: &String| self.pool.targets.contains(target);
        match found {
            Ok((name, to)) => Some(Mapping {
                to,
                volume_name: name.clone(),
                target: mapping
                    .target
                    .filter(|target| *target != target_name(self.pool.name) && !is_strange(target)),
                created_unix_ms: mapping.created_unix_ms.min(self.now_unix_ms),
                ..mapping
            }),
            Err(why) => {
                let name = shown(name.unwrap_or(&mapping.volume_name));
                taken.keep(MAPPING, &mapping.id);
                taken.leave_out(format!("mapping of {name} as LUN {}", mapping.lun), why);
                None
            }
        }
    }

    /// What a project says, as it would be here.
    pub fn named(&mut self, entry: ProjectHosts, taken: &mut Taken) -> Option<ProjectHosts> {
        let is_its = |_: &&String| entry.pool == self.pool.id;
        let Some(name) = self.pool.projects.get(&entry.project).filter(is_its) else {
            taken.keep(PROJECT, &entry.project);
            taken.leave_out(format!("hosts of {}", shown(&entry.name)), "the project is not in this pool");
            return None;
        };
        let found: Vec<_> = entry.hosts.iter().map(|to| self.find(to, taken)).collect();
        if found.contains(&None) {
            taken.leave_out(format!("hosts of {name}"), "some hosts were not taken");
        }
        Some(ProjectHosts { name: name.clone(), hosts: found.into_iter().flatten().collect(), ..entry })
    }

    /// The host or group here that this one of the registry stands for; it is added where that is possible.
    fn find(&mut self, id: &str, taken: &mut Taken) -> Option<String> {
        let is_host = self.hosts.contains_key(id) || self.hosts_there.contains_key(id);
        let is_group = self.groups.contains_key(id) || (!is_host && self.groups_there.contains_key(id));
        match self.found.get(id) {
            Some(found) => found.clone(),
            None if is_group => {
                let found = self.find_group(id, taken);
                self.found.insert(id.into(), found.clone());
                found
            }
            None => self.find_host(id, taken),
        }
    }

    fn find_host(&mut self, id: &str, taken: &mut Taken) -> Option<String> {
        if let Some(found) = self.found.get(id) {
            return found.clone();
        }
        let found = if self.groups.contains_key(id) { None } else { self.look_for_host(id, taken) };
        self.found.insert(id.into(), found.clone());
        found
    }

    fn find_group(&mut self, id: &str, taken: &mut Taken) -> Option<String> {
        let here = self.groups.get(id).cloned();
        let Some(group) = self.groups_there.remove(id) else {
            // Not even what is in it is said.
            return here.filter(|_| self.is_own).map(|here| here.id);
        };
        let (name, count) = (shown(&group.name), group.hosts.len());
        let is_possible =
            rules::name("name", &group.name).is_ok() && group.revision <= REVISION_MAX && count <= HOSTS_MAX;
        if !is_possible || (here.is_none() && self.groups.len() >= HOSTS_MAX) {
            let why = if is_possible { FULL } else { NOT_PLAIN };
            taken.leave_out(format!("host group {name}"), why);
            return here.filter(|_| self.is_own).map(|here| here.id);
        }
        // A group as a member is none.
        let members = group.hosts.iter().map(|member| match self.groups.contains_key(member) {
            true => None,
            false => self.find_host(member, taken),
        });
        let found: Vec<Option<String>> = members.collect();
        if found.contains(&None) {
            taken.leave_out(format!("members of host group {name}"), "some hosts were not taken");
        }
        let mut once = HashSet::new();
        let mut hosts: Vec<String> = found.into_iter().flatten().collect();
        hosts.retain(|host| once.insert(host.clone()));
        let Some(here) = here else {
            let name = self.name(&group.name, taken);
            let created_unix_ms = group.created_unix_ms.min(self.now_unix_ms);
            let came_with = Some(self.pool.id.to_string());
            taken.groups += 1;
            self.groups.insert(
                id.into(),
                Group {
                    name,
                    hosts,
                    created_unix_ms,
                    came_with,
                    revision: group.revision.min(REVISION_TAKEN_MAX),
                    ..group
                },
            );
            return Some(id.into());
        };
        if once == here.hosts.iter().cloned().collect() {
            return Some(here.id);
        }
        if self.changeable.contains(id) && group.revision > here.revision {
            taken.changed.push(format!("host group {}", here.name));
            self.groups
                .insert(id.into(), Group { hosts, revision: group.revision.min(REVISION_TAKEN_MAX), ..here });
            return Some(id.into());
        }
        if self.is_strange(&here.came_with) || !self.is_own {
            // Its other members would be given away.
            taken.leave_out(format!("host group {name}"), if self.is_own { STRANGE } else { SECRET });
            return None;
        }
        taken.leave_out(format!("host group {}", here.name), KEPT);
        Some(here.id)
    }

    fn look_for_host(&mut self, id: &str, taken: &mut Taken) -> Option<String> {
        let here = self.hosts.get(id).cloned();
        let host = match (self.hosts_there.remove(id), here) {
            (None, Some(here)) if self.is_own || here.chap.is_none() => return Some(here.id),
            (None, Some(here)) => {
                taken.leave_out(format!("host {}", here.name), SECRET);
                return None;
            }
            (None, None) => return None,
            (Some(host), Some(here)) if is_same(&host, &here) => return Some(here.id),
            (Some(host), Some(here)) => return self.known_host(&host, &here, taken),
            (Some(host), None) => host,
        };
        let name = format!("host {}", shown(&host.name));
        if !is_possible_host(&host) {
            taken.leave_out(name, NOT_PLAIN);
            return None;
        }
        if let Some(known) = host.initiators.iter().find_map(|name| self.initiators.get(name)) {
            let here = self.hosts[known].clone();
            return self.stands_for(&host, &here, taken);
        }
        if self.hosts.len() >= HOSTS_MAX {
            taken.leave_out(name, FULL);
            return None;
        }
        self.initiators.extend(host.initiators.iter().map(|name| (name.clone(), host.id.clone())));
        let name = self.name(&host.name, taken);
        taken.hosts.push(format!("{name} ({})", host.initiators.join(" ")));
        let created_unix_ms = host.created_unix_ms.min(self.now_unix_ms);
        let came_with = Some(self.pool.id.to_string());
        let revision = host.revision.min(REVISION_TAKEN_MAX);
        self.hosts.insert(id.into(), Host { name, created_unix_ms, came_with, revision, ..host });
        Some(id.to_string())
    }

    /// One that is known by its UUID, and is another here.
    fn known_host(&self, host: &Host, here: &Host, taken: &mut Taken) -> Option<String> {
        let found = self.stands_for(host, here, taken);
        if found.is_some() {
            taken.leave_out(format!("host {}", here.name), KEPT);
        }
        found
    }

    /// Whether volumes for this host of the registry may be mapped to the one that is here.
    fn stands_for(&self, host: &Host, here: &Host, taken: &mut Taken) -> Option<String> {
        let is_within = here.initiators.iter().all(|name| host.initiators.contains(name));
        let has_same = (&here.chap, &here.mutual) == (&host.chap, &host.mutual);
        let why = match host.chap.is_some() && here.chap.is_none() {
            true => Some(WEAKER),
            false if self.is_strange(&here.came_with) && !(is_within && here.chap == host.chap) => {
                Some(STRANGE)
            }
            // What stands for a host of the pool is written to its disks.
            false if !self.is_own && here.chap.is_some() && !has_same => Some(SECRET),
            false => None,
        };
        if let Some(why) = why {
            taken.leave_out(format!("host {} ({} here)", shown(&host.name), here.name), why);
            return None;
        }
        if host.id != here.id {
            taken.called.push(format!("{} is named {} here", shown(&host.name), here.name));
        }
        Some(here.id.clone())
    }

    /// Whether it came with another pool, and no administrator has changed it since.
    fn is_strange(&self, came_with: &Option<String>) -> bool {
        came_with.as_ref().is_some_and(|pool| pool != self.pool.id)
    }

    fn name(&mut self, wanted: &str, taken: &mut Taken) -> String {
        let name = free_name(wanted, |name| self.names.contains(name));
        if name != wanted {
            taken.called.push(format!("{wanted} is named {name} here"));
        }
        self.names.insert(name.clone());
        name
    }
}

/// Whether nothing of it differs that a host is known or served by.
fn is_same(one: &Host, other: &Host) -> bool {
    (&one.initiators, &one.chap, &one.mutual) == (&other.initiators, &other.chap, &other.mutual)
        && one.ceiling() == other.ceiling()
}
