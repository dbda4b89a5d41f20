//! Who may use which volumes over iSCSI: hosts, host groups and mappings, as the daemon remembers them.
//!
//! Everything is one [`Content`] in the file `hosts` ([`crate::store`]), private, because CHAP needs the secrets themselves.
//!
//! The invariants: names are unique among hosts and groups together, because either may stand for what a volume is mapped
//! to; an initiator name belongs to one host; a host sees a volume once, directly or through one group, and at each
//! target a number once; all mappings of a volume have one logical block. A target is a pool, so numbers begin at 0
//! for each host at each of them. They are kept by the volume's UUID and its pool's: an exported pool's mappings wait for
//! its import, a deleted volume's are dropped. Those of volumes that have no hosts of their own follow what projects say
//! ([`crate::inherited`]).
//!
//! The registry of each pool has a copy of what concerns the pool ([`crate::carried`]). To tell which of the two is newer, the content counts the
//! changes that concern a pool, and the appliance that has the file has a UUID.

use crate::carried::Revision;
use crate::inherited::ProjectHosts;
use crate::iscsi_names::target_name;
use crate::numbers::{GivenUp, Numbers};
use crate::store::{Kept, Store};
use forebay_api::{Code, Problem, show_rate_exact};
use forebay_pool::Rate;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

const VERSION: u32 = 1;
/// Of hosts and of groups: the largest clusters have some hundred, and each change looks at all.
pub const HOSTS_MAX: usize = 1000;
/// A host with as many adapters would be unheard of.
pub const INITIATORS_MAX: usize = 64;
/// With everything else the file stays below what [`crate::directory::DataDir::read`] takes, 16 MiB, and a change takes milliseconds.
pub const MAPPINGS_MAX: usize = 4096;
/// Volumes that hosts see, added up over all hosts: 64 hosts with 1024 volumes each. The snapshot that the iSCSI server asks
/// has an entry for each.
pub const VIEWS_MAX: usize = 65536;
/// SAM-5, 4.7.7.3: what flat space addressing can express.
pub const LUN_MAX: u16 = 16383;
pub const LOGICAL_BLOCK_DEFAULT: u32 = 512;

/// A CHAP name and its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    pub user: String,
    pub secret: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, ..)", self.user)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Host {
    pub id: String,
    pub name: String,
    pub created_unix_ms: u64,
    /// Grows with each change of this host, also of its secrets: the ETag.
    pub revision: u64,
    /// UUID of the pool that it came with, until it is changed here: only so far is it believed ([`crate::carried::parties`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_with: Option<String>,
    /// In lower case.
    pub initiators: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Credentials>,
    /// How the target proves itself; only with `chap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<Credentials>,
    /// What it gets at most in a second, over all its sessions and volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes_per_second: Option<u64>,
}

impl Host {
    /// What it gets at most in a second.
    pub fn ceiling(&self) -> Rate {
        Rate { iops: self.max_iops.unwrap_or_default(), bytes: self.max_bytes_per_second.unwrap_or_default() }
    }

    /// The same in words.
    pub fn ceilings(&self) -> impl Iterator<Item = String> {
        let iops = self.max_iops.map(|iops| format!("{iops} IOPS"));
        iops.into_iter().chain(self.max_bytes_per_second.map(show_rate_exact))
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    pub id: String,
    pub name: String,
    pub created_unix_ms: u64,
    pub revision: u64,
    /// As of a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub came_with: Option<String>,
    /// UUIDs.
    pub hosts: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mapping {
    pub id: String,
    pub created_unix_ms: u64,
    /// UUID.
    pub volume: String,
    /// UUID of the volume's pool.
    pub pool: String,
    /// `POOL/NAME`; another pool when the volume moves.
    pub volume_name: String,
    /// The target at which it is seen, when that is not its pool's: the volume has moved since, and hosts stay where they are logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// UUID of a host or a group.
    pub to: String,
    pub lun: u16,
    pub logical_block_bytes: u32,
}

impl Mapping {
    /// The iSCSI name of the target at which it is seen.
    pub fn target(&self) -> String {
        self.target.clone().unwrap_or_else(|| self.target_of_pool())
    }

    fn target_of_pool(&self) -> String {
        target_name(self.volume_name.split('/').next().unwrap_or_default())
    }

    /// The volume is in another pool now.
    pub fn follow(&mut self, pool: String, volume_name: String) {
        let seen_at = self.target();
        (self.pool, self.volume_name) = (pool, volume_name);
        self.target = Some(seen_at).filter(|target| *target != self.target_of_pool());
    }
}

/// A volume on its way to another pool, or one whose way a crash interrupted: it is in one of the two. All are UUIDs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moving {
    pub volume: String,
    pub from: String,
    pub to: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Content {
    pub version: u32,
    /// UUID, made before the first registry is written; empty until then. With the file it is lost, and comes back with a backup.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub appliance: String,
    /// By UUIDs of pools: how often that changed which concerns them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revisions: BTreeMap<String, Revision>,
    pub hosts: Vec<Host>,
    pub groups: Vec<Group>,
    pub mappings: Vec<Mapping>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moving: Vec<Moving>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<ProjectHosts>,
    /// Oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<GivenUp>,
}

/// What is known of volumes. All are UUIDs.
#[derive(Default)]
pub struct Here {
    /// Pools that are here, with all that they have in `volumes`.
    pub pools: HashSet<String>,
    /// Of each volume its pool, and `POOL/NAME`.
    pub volumes: HashMap<String, (String, String)>,
    /// Volumes of which moves have left something.
    pub left: HashSet<String>,
    /// Projects of the pool that came, with their names, `POOL/PROJECT`; nothing where they are not known.
    pub projects: Option<HashMap<String, String>>,
}

impl Default for Content {
    fn default() -> Content {
        Content {
            version: VERSION,
            appliance: String::new(),
            revisions: BTreeMap::new(),
            hosts: Vec::new(),
            groups: Vec::new(),
            mappings: Vec::new(),
            moving: Vec::new(),
            projects: Vec::new(),
            given_up: Vec::new(),
        }
    }
}

pub fn conflict(object: &str, field: &str, detail: String, remedy: &str) -> Problem {
    Problem::new(Code::Conflict, detail).object(object).field(field).remedy(remedy)
}

pub fn full(what: &str, limit: usize) -> Problem {
    Problem::new(Code::Busy, format!("there are {limit} {what} already"))
        .remedy("Delete some that are no longer used.")
}

pub fn no_number(volume: &str, host: &str) -> Problem {
    let detail = format!("no LUN from 0 to {LUN_MAX} is free for {host}");
    conflict(volume, "lun", detail, "Unmap volumes that the host does not use.")
}

impl Content {
    pub fn host(&self, name: &str) -> Result<&Host, Problem> {
        self.hosts.iter().find(|host| host.name == name || host.id == name).ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such host")
                .object(name)
                .remedy("`forebay host list` shows them; `forebay host create NAME --iqn IQN` creates one.")
        })
    }

    pub fn host_mut(&mut self, id: &str) -> Result<&mut Host, Problem> {
        let id = self.host(id)?.id.clone();
        Ok(self.hosts.iter_mut().find(|host| host.id == id).expect("it was found just now"))
    }

    pub fn group(&self, name: &str) -> Result<&Group, Problem> {
        self.groups.iter().find(|group| group.name == name || group.id == name).ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such host group")
                .object(name)
                .remedy("`forebay host group list` shows them.")
        })
    }

    pub fn group_mut(&mut self, id: &str) -> Result<&mut Group, Problem> {
        let id = self.group(id)?.id.clone();
        Ok(self.groups.iter_mut().find(|group| group.id == id).expect("it was found just now"))
    }

    /// UUID, name and whether it is a group, of the host or group with this name or UUID.
    pub fn party(&self, name: &str) -> Result<(&str, &str, bool), Problem> {
        match (self.host(name), self.group(name)) {
            (Ok(host), _) => Ok((&host.id, &host.name, false)),
            (_, Ok(group)) => Ok((&group.id, &group.name, true)),
            (Err(_), Err(_)) => Err(Problem::new(Code::NotFound, "there is no such host or host group")
                .object(name)
                .field("host")
                .remedy("`forebay host list` and `forebay host group list` show them.")),
        }
    }

    /// The hosts that `to` stands for.
    pub fn hosts_of<'a>(&'a self, to: &'a str) -> impl Iterator<Item = &'a str> {
        let group = self.groups.iter().find(|group| group.id == to);
        let members = group.into_iter().flat_map(|group| group.hosts.iter().map(String::as_str));
        members.chain(self.hosts.iter().filter(move |host| host.id == to).map(|host| host.id.as_str()))
    }

    /// What each host sees, by its UUID.
    pub fn views(&self) -> HashMap<&str, Vec<&Mapping>> {
        let mut views: HashMap<&str, Vec<&Mapping>> = HashMap::new();
        for mapping in &self.mappings {
            for host in self.hosts_of(&mapping.to) {
                views.entry(host).or_default().push(mapping);
            }
        }
        views
    }

    /// The groups of which a host is a member.
    pub fn groups_with<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Group> {
        self.groups.iter().filter(move |group| group.hosts.iter().any(|member| member == host))
    }

    /// Mappings of a volume that is called `name` or has this UUID. Two volumes of one name can only be told apart by UUID,
    /// when the pool of one of them is not here; `live` is the UUID of the one that is.
    pub fn of_volume<'a>(
        &'a self,
        name: &'a str,
        live: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Mapping> + 'a {
        self.mappings.iter().filter(move |mapping| match live {
            Some(live) => mapping.volume == live,
            None => mapping.volume == name || mapping.volume_name == name,
        })
    }

    /// Mappings of volumes that have moved follow them. Once the pool `came`, those of volumes that are in none of the pools where they may be are
    /// dropped, and what projects of it say that are no more.
    pub fn follow(&mut self, here: &Here, came: Option<&str>) {
        for mapping in &mut self.mappings {
            match here.volumes.get(&mapping.volume) {
                Some((pool, name)) if *pool != mapping.pool => mapping.follow(pool.clone(), name.clone()),
                // The pool may have another name, and its target with it.
                Some((_, name)) => mapping.volume_name.clone_from(name),
                None => {}
            }
        }
        let has_come = |pools: &[&str]| {
            pools.iter().any(|pool| Some(*pool) == came)
                && pools.iter().all(|pool| here.pools.contains(*pool))
        };
        let moving = &self.moving;
        self.mappings.retain(|mapping| {
            let moves = moving.iter().filter(|one| one.volume == mapping.volume);
            let pools = moves.flat_map(|one| [&*one.from, &*one.to]).chain([&*mapping.pool]);
            let is_known = here.volumes.contains_key(&mapping.volume) || here.left.contains(&mapping.volume);
            is_known || !has_come(&pools.collect::<Vec<_>>())
        });
        self.moving.retain(|one| here.left.contains(&one.volume) || !has_come(&[&one.from, &one.to]));
        if let Some(projects) = &here.projects {
            self.projects.retain(|entry| Some(&*entry.pool) != came || projects.contains_key(&entry.project));
            for entry in &mut self.projects {
                if let Some(name) = projects.get(&entry.project).filter(|_| Some(&*entry.pool) == came) {
                    entry.name.clone_from(name);
                }
            }
        }
    }

    /// A volume has another name, `POOL/[PROJECT/]NAME`.
    pub fn rename_volume(&mut self, volume: &str, name: &str) {
        let own = self.mappings.iter_mut().filter(|mapping| mapping.volume == volume);
        own.for_each(|mapping| mapping.volume_name = name.into());
    }

    /// After the destruction of a pool: its volumes are gone, but for those that may have moved to another one.
    pub fn forget_pool(&mut self, pool: &str) {
        for one in self.moving.iter().filter(|one| one.from == pool) {
            let moved = self.mappings.iter_mut().filter(|mapping| mapping.volume == one.volume);
            moved.for_each(|mapping| mapping.pool = one.to.clone());
        }
        self.moving.retain(|one| one.from != pool && one.to != pool);
        self.mappings.retain(|mapping| mapping.pool != pool);
        self.projects.retain(|entry| entry.pool != pool);
        self.revisions.remove(pool);
    }

    /// Something was changed that concerns a pool and is not in here.
    pub fn note_change(&mut self, pool: &str, change: Uncounted) {
        let revision = self.revisions.entry(pool.into()).or_default();
        revision.number = revision.number.saturating_add(1);
        revision.is_own |= change == Uncounted::OfPool;
    }

    /// Pools that a change from `before` concerns: mappings or what projects say, or a host or group that either names.
    fn pools_changed<'a>(&'a self, before: &'a Content) -> BTreeSet<&'a str> {
        let mut parties: HashSet<&str> = HashSet::new();
        parties.extend(differing(&before.hosts, &self.hosts, |host| &host.id).map(|host| &*host.id));
        parties.extend(differing(&before.groups, &self.groups, |group| &group.id).map(|group| &*group.id));
        let groups = before.groups.iter().chain(&self.groups);
        let with_member = groups.filter(|group| group.hosts.iter().any(|host| parties.contains(&**host)));
        let with_member: Vec<&str> = with_member.map(|group| &*group.id).collect();
        parties.extend(with_member);
        let naming = self.mappings.iter().filter(|mapping| parties.contains(&*mapping.to));
        let mappings = differing(&before.mappings, &self.mappings, |mapping| &mapping.id).chain(naming);
        let names_one = |entry: &&ProjectHosts| entry.hosts.iter().any(|to| parties.contains(&**to));
        let naming = self.projects.iter().filter(names_one);
        let projects = differing(&before.projects, &self.projects, |entry| &entry.project).chain(naming);
        mappings.map(|mapping| &*mapping.pool).chain(projects.map(|entry| &*entry.pool)).collect()
    }

    /// Adds a mapping: with the lowest free number and the volume's logical block unless told otherwise.
    pub fn map(&mut self, wanted: NewMapping<'_>) -> Result<Mapping, Problem> {
        let (to, to_name, _) = self.party(wanted.host)?;
        let (to, to_name) = (to.to_string(), to_name.to_string());
        let logical = self.mappings.iter().find(|mapping| mapping.volume == wanted.volume);
        let logical = logical.map(|mapping| mapping.logical_block_bytes);
        let mut mapping = Mapping {
            id: crate::random_id(),
            created_unix_ms: wanted.now_unix_ms,
            volume: wanted.volume.into(),
            pool: wanted.pool.into(),
            volume_name: wanted.volume_name.into(),
            target: None,
            to,
            lun: 0,
            logical_block_bytes: wanted.logical_block_bytes.or(logical).unwrap_or(LOGICAL_BLOCK_DEFAULT),
        };
        mapping.lun = match wanted.lun {
            Some(lun) => lun,
            None => {
                let chosen = Numbers::of(self).choose(&mapping.target(), &mapping.to, wanted.volume);
                chosen.ok_or_else(|| no_number(wanted.volume_name, &to_name))?
            }
        };
        self.mappings.push(mapping.clone());
        Ok(mapping)
    }

    fn check_views(&self) -> Result<(), Problem> {
        let name_of = |to: &str| self.party(to).map(|(_, name, _)| name.to_string()).unwrap_or_default();
        let views = self.views();
        if views.values().map(Vec::len).sum::<usize>() > VIEWS_MAX {
            return Err(full("volumes mapped to hosts", VIEWS_MAX));
        }
        for (host, view) in views {
            let mut volumes: HashMap<&str, &Mapping> = HashMap::new();
            let mut numbers: HashMap<(String, u16), &Mapping> = HashMap::new();
            for mapping in view {
                if let Some(other) = volumes.insert(&mapping.volume, mapping) {
                    let detail = format!(
                        "it is mapped to host {} already, as LUN {} through {}",
                        name_of(host),
                        other.lun,
                        name_of(&other.to)
                    );
                    let remedy =
                        "A host has a volume once, directly or through one group: unmap it there first.";
                    return Err(conflict(&mapping.volume_name, "host", detail, remedy));
                }
                if let Some(other) = numbers.insert((mapping.target(), mapping.lun), mapping) {
                    let detail = format!(
                        "LUN {} of host {} would be both {} (mapped to {}) and {} (mapped to {})",
                        mapping.lun,
                        name_of(host),
                        other.volume_name,
                        name_of(&other.to),
                        mapping.volume_name,
                        name_of(&mapping.to)
                    );
                    let remedy = "LUNs do not change: omit --lun to get a free LUN, or unmap one of the two.";
                    return Err(conflict(&mapping.volume_name, "lun", detail, remedy));
                }
            }
        }
        Ok(())
    }
}

impl Kept for Content {
    const FILE: &'static str = "hosts";
    const VERSION: u32 = VERSION;
    const WHAT: &'static str = "hosts";
    const REMEDY: &'static str = "Move the file away and start the daemon again. Then create the hosts with `forebay host create NAME --iqn IQN`.";

    fn version(&self) -> u32 {
        self.version
    }

    fn check(&self) -> Result<(), Problem> {
        if self.hosts.len() > HOSTS_MAX {
            return Err(full("hosts", HOSTS_MAX));
        }
        if self.groups.len() > HOSTS_MAX {
            return Err(full("host groups", HOSTS_MAX));
        }
        if self.mappings.len() > MAPPINGS_MAX {
            return Err(full("mappings", MAPPINGS_MAX));
        }
        let mut names = HashSet::new();
        let hosts = self.hosts.iter().map(|host| &host.name);
        for name in hosts.chain(self.groups.iter().map(|group| &group.name)) {
            if !names.insert(name) {
                let detail = "a host or host group with this name exists".to_string();
                return Err(conflict(
                    name,
                    "name",
                    detail,
                    "Choose another name: hosts and host groups share one list of names.",
                ));
            }
        }
        let mut owners: HashMap<&str, &str> = HashMap::new();
        for host in &self.hosts {
            for initiator in &host.initiators {
                if let Some(other) = owners.insert(initiator, &host.name) {
                    // Which of the two has it and which was to get it is not to be seen here.
                    let detail =
                        format!("hosts {other} and {} would both have this initiator name", host.name);
                    let remedy = "An initiator name belongs to one host; `forebay host list` shows which. Remove it there first: `forebay host set \
                                  HOST --iqn IQN`, with all other names of that host.";
                    return Err(conflict(initiator, "initiators", detail, remedy));
                }
            }
        }
        let mut logical: HashMap<&str, u32> = HashMap::new();
        for mapping in &self.mappings {
            let first = *logical.entry(&mapping.volume).or_insert(mapping.logical_block_bytes);
            if first != mapping.logical_block_bytes {
                let detail = format!(
                    "it is mapped with logical blocks of {first} bytes, not {}",
                    mapping.logical_block_bytes
                );
                let remedy =
                    "All hosts must see the same blocks: unmap it everywhere first, or omit the option.";
                return Err(conflict(&mapping.volume_name, "logical_block_bytes", detail, remedy));
            }
        }
        self.check_projects()?;
        self.check_views()
    }

    fn follow_up(&mut self, before: &Content) {
        self.keep_back(before);
        // One that was destroyed is counted no more.
        let is_forgotten =
            |pool: &str| before.revisions.contains_key(pool) && !self.revisions.contains_key(pool);
        let pools: Vec<String> = self
            .pools_changed(before)
            .into_iter()
            .filter(|pool| !is_forgotten(pool))
            .map(String::from)
            .collect();
        for pool in pools {
            let revision = self.revisions.entry(pool.clone()).or_default();
            revision.number = revision.number.saturating_add(1);
            let taken_before = before.revisions.get(&pool).and_then(|known| known.taken.as_ref());
            revision.is_own |= revision.taken.as_ref() == taken_before;
        }
    }
}

/// Those of either list that are not in the other as they are.
fn differing<'a, T: PartialEq>(
    before: &'a [T],
    after: &'a [T],
    id: impl Fn(&T) -> &str,
) -> impl Iterator<Item = &'a T> {
    let by_id = |list: &'a [T]| list.iter().map(|one| (id(one).to_string(), one)).collect::<HashMap<_, _>>();
    let (was, is) = (by_id(before), by_id(after));
    let gone = before.iter().filter(|one| is.get(id(one)) != Some(one)).collect::<Vec<_>>();
    let new = after.iter().filter(|one| was.get(id(one)) != Some(one)).collect::<Vec<_>>();
    gone.into_iter().chain(new)
}

/// A change that concerns a pool and is not seen in [`Content`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncounted {
    /// The pool was created, or its thresholds were set: it is no stranger from now on.
    OfPool,
    /// Every pool has a copy of all levels, a stranger too.
    OfLevels,
}

/// A mapping to make.
#[derive(Clone, Copy)]
pub struct NewMapping<'a> {
    /// UUID.
    pub volume: &'a str,
    /// UUID.
    pub pool: &'a str,
    pub volume_name: &'a str,
    /// Name or UUID of a host or group.
    pub host: &'a str,
    pub lun: Option<u16>,
    pub logical_block_bytes: Option<u32>,
    pub now_unix_ms: u64,
}

/// The content and its file.
pub type Hosts = Store<Content>;

#[cfg(test)]
#[path = "hosts_tests.rs"]
mod tests;
