//! What a pool's registry brings into the daemon's files when its word counts for the pool ([`super::newer`]).
//!
//! The disks of a pool may come from anywhere, so nothing in a registry is believed. Each value has to be what a request could have made, or is left out,
//! by itself: the rest comes all the same. A host or group whose UUID is known here stays as it is here. A host whose initiator another host has here stands for
//! that host. A mapping counts for volumes of this pool only. What comes fits what there is, as [`crate::store::Kept::check`] asks, within the same limits; what does not fit is
//! left out. Of each kind no more items are looked at than an appliance can have, which bounds the work.
//!
//! Hosts and groups come only where a mapping or project that comes names them.

use super::{GROUP, HOST, Items, LEVEL, MAPPING, Origin, PROJECT, THRESHOLDS, is_uuid};
use crate::hosts::{Content, Credentials, Group, HOSTS_MAX, Host, LUN_MAX, MAPPINGS_MAX, Mapping, VIEWS_MAX};
use crate::inherited::{NAMED_MAX, ProjectHosts};
use crate::iscsi_names::{self, is_target, target_name};
use crate::levels::{self, CEILING_BYTES, CEILING_IOPS, LEVELS_MAX, Level, check_ceiling, check_spec};
use crate::rules::{self, NAME_BYTES_MAX, shown, snapshots::few};
use forebay_api::{Chap, LEVEL_NONE};
use forebay_base::Id;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// More changes than can be made; one more is counted without an overflow.
const REVISION_MAX: u64 = 1 << 48;
const NOT_PLAIN: &str = "the entry is not what this program writes";
const FULL: &str = "there are as many as there can be";

/// What the engine says of the pool that has come. All but names are UUIDs.
pub struct Pool<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// `POOL/NAME` of its volumes and projects.
    pub volumes: HashMap<String, String>,
    pub projects: HashMap<String, String>,
    /// Volumes of other pools that are here.
    pub elsewhere: HashSet<String>,
}

/// What has come with a pool.
#[derive(Default)]
pub struct Taken {
    pub hosts: usize,
    pub groups: usize,
    pub mappings: usize,
    pub projects: usize,
    pub levels: usize,
    pub thresholds: usize,
    /// By the reason.
    left_out: BTreeMap<&'static str, Vec<String>>,
}

impl Taken {
    fn leave_out(&mut self, what: impl Into<String>, why: &'static str) {
        self.left_out.entry(why).or_default().push(what.into());
    }

    /// How many of what have come; nothing where none has.
    pub fn in_words(&self) -> Option<String> {
        let counted = [
            (self.hosts, "host", "hosts"),
            (self.groups, "host group", "host groups"),
            (self.mappings, "mapping", "mappings"),
            (self.projects, "project with hosts", "projects with hosts"),
            (self.levels, "service level", "service levels"),
            (self.thresholds, "threshold of its fill level", "thresholds of its fill level"),
        ];
        let words = counted.iter().filter(|(count, ..)| *count > 0);
        let words: Vec<String> = words
            .map(|(count, one, more)| format!("{count} {}", if *count == 1 { one } else { more }))
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// What was left out, a few of each reason; nothing where nothing was.
    pub fn left_out_in_words(&self) -> Option<String> {
        let each = self.left_out.iter().map(|(why, what)| format!("{} ({why})", few(what)));
        (!self.left_out.is_empty()).then(|| each.collect::<Vec<_>>().join("; "))
    }
}

/// Takes what the registry says about the pool in place of what the content says about it.
pub fn take(
    content: &mut Content,
    items: &Items,
    origin: &Origin,
    pool: &Pool<'_>,
    now_unix_ms: u64,
) -> Taken {
    let mut taken = Taken::default();
    let moving: HashSet<String> = content.moving.iter().map(|one| one.volume.clone()).collect();
    content.mappings.retain(|mapping| {
        let is_its = pool.volumes.contains_key(&mapping.volume)
            || mapping.pool == pool.id && !pool.elsewhere.contains(&mapping.volume);
        !is_its || moving.contains(&mapping.volume)
    });
    content.projects.retain(|entry| entry.pool != pool.id);
    let revision = content.revisions.entry(pool.id.to_string()).or_default();
    revision.number = revision.number.max(origin.revision);
    revision.taken = Some(origin.clone());

    let hosts = parsed(items, HOST, HOSTS_MAX, |host: &Host| &host.id, &mut taken);
    let groups = parsed(items, GROUP, HOSTS_MAX, |group: &Group| &group.id, &mut taken);
    let mut mappings = parsed(items, MAPPING, MAPPINGS_MAX, |mapping: &Mapping| &mapping.id, &mut taken);
    let mut projects = parsed(items, PROJECT, NAMED_MAX, |entry: &ProjectHosts| &entry.project, &mut taken);
    mappings.retain(|mapping| !moving.contains(&mapping.volume));
    mappings.sort_by(|a, b| (a.created_unix_ms, &a.id).cmp(&(b.created_unix_ms, &b.id)));
    projects.sort_by(|a, b| a.name.cmp(&b.name));

    let mut parties = Parties::of(content, hosts, groups, now_unix_ms);
    let wanted: Vec<_> =
        mappings.into_iter().filter_map(|mapping| parties.wanted(mapping, pool, &mut taken)).collect();
    let named: Vec<_> =
        projects.into_iter().filter_map(|entry| parties.named(entry, pool, &mut taken)).collect();
    let (hosts, groups) = (parties.new_hosts, parties.new_groups);
    (taken.hosts, taken.groups) = (hosts.len(), groups.len());
    content.hosts.extend(hosts);
    content.groups.extend(groups);

    let mut room = Room::of(content);
    for mapping in wanted {
        match room.admit(&mapping) {
            Ok(()) => {
                taken.mappings += 1;
                content.mappings.push(mapping);
            }
            Err(why) => taken.leave_out(format!("mapping of {}", mapping.volume_name), why),
        }
    }
    let known: HashSet<String> = content.projects.iter().map(|entry| entry.project.clone()).collect();
    for mut entry in named.into_iter().filter(|entry| !known.contains(&entry.project)) {
        if !room.admit_named(&mut entry) {
            let why = "the project names them twice, or there are as many as there can be";
            taken.leave_out(format!("hosts of {}", entry.name), why);
        }
        if !entry.hosts.is_empty() {
            taken.projects += 1;
            content.projects.push(entry);
        }
    }
    taken
}

/// Takes those of these levels that are not known here and that the registry has.
pub fn take_levels(content: &mut levels::Content, items: &Items, wanted: &BTreeSet<Id>, taken: &mut Taken) {
    for id in wanted.iter().filter(|id| content.name_of(**id).is_none()).copied().collect::<Vec<_>>() {
        let Some(text) = items.get(&format!("{LEVEL}{id}")) else { continue };
        let level = serde_json::from_slice::<Level>(text).ok();
        let is_possible = |level: &Level| {
            level.id == id.to_string()
                && level.revision <= REVISION_MAX
                && rules::name("name", &level.name).is_ok()
                && check_spec(&level.spec).is_ok()
        };
        match level.filter(is_possible) {
            None => taken.leave_out(format!("level {id}"), NOT_PLAIN),
            Some(_) if content.levels.len() >= LEVELS_MAX => {
                taken.leave_out(format!("level {id}"), FULL);
            }
            Some(level) => {
                let names: HashSet<String> = content.all().map(|level| level.name).collect();
                let name = free_name(&level.name, |name| name == LEVEL_NONE || names.contains(name));
                content.levels.push(Level { name, ..level });
                taken.levels += 1;
            }
        }
    }
}

/// The thresholds that the registry has.
pub fn thresholds(items: &Items, taken: &mut Taken) -> Vec<u8> {
    let Some(text) = items.get(THRESHOLDS) else { return Vec::new() };
    let percents = serde_json::from_slice::<Vec<u8>>(text).ok();
    match percents.and_then(|percents| rules::thresholds(&percents).ok()) {
        Some((percents, _)) => {
            taken.thresholds = percents.len();
            percents
        }
        None => {
            taken.leave_out("thresholds", NOT_PLAIN);
            Vec::new()
        }
    }
}

/// Items of a kind that say what their keys say.
fn parsed<T: DeserializeOwned>(
    items: &Items,
    kind: &'static str,
    most: usize,
    id: impl Fn(&T) -> &str,
    taken: &mut Taken,
) -> Vec<T> {
    let all = items.range(kind.to_string()..).take_while(|(key, _)| key.starts_with(kind));
    let mut found = Vec::new();
    for (nth, (key, text)) in all.enumerate() {
        if nth == most {
            taken.leave_out(format!("more than {most} of `{kind}`"), "an appliance cannot have as many");
            break;
        }
        let key_id = &key[kind.len()..];
        match serde_json::from_slice(text) {
            Ok(value) if id(&value) == key_id && is_uuid(key_id) => found.push(value),
            _ => taken.leave_out(shown(key), NOT_PLAIN),
        }
    }
    found
}

/// The name, or another one that is free.
fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let is_free = |name: &str| !is_taken(name) && rules::name("name", name).is_ok();
    let other = |nth: usize| {
        let end = format!("-{nth}");
        // A name is ASCII.
        format!("{}{end}", &name[..name.len().min(NAME_BYTES_MAX - end.len())])
    };
    match is_free(name) {
        true => name.to_string(),
        false => (2..).map(other).find(|name| is_free(name)).expect("there are fewer names than numbers"),
    }
}

/// Whether a request could have made it.
fn is_possible_host(host: &Host) -> bool {
    let chap = |credentials: &Option<Credentials>| {
        credentials.as_ref().map(|one| Chap { user: one.user.clone(), secret: one.secret.clone() })
    };
    let (one, other) = (chap(&host.chap), chap(&host.mutual));
    let ceilings = [(CEILING_IOPS, host.ceiling_iops), (CEILING_BYTES, host.ceiling_bytes_per_second)];
    rules::name("name", &host.name).is_ok()
        && host.revision <= REVISION_MAX
        && iscsi_names::initiators(&host.initiators).is_ok_and(|names| names == host.initiators)
        && iscsi_names::chap(one.as_ref()).is_ok()
        && iscsi_names::mutual(other.as_ref()).is_ok()
        && iscsi_names::both(host.chap.as_ref(), host.mutual.as_ref()).is_ok()
        && ceilings.iter().all(|(field, rate)| rate.is_none_or(|rate| check_ceiling(field, rate).is_ok()))
}

fn check_mapping(mapping: &Mapping, pool: &Pool<'_>) -> Result<(), &'static str> {
    let is_possible = mapping.lun <= LUN_MAX
        && iscsi_names::logical_block(Some(mapping.logical_block_bytes)).is_ok()
        && mapping.target.as_deref().is_none_or(is_target);
    match (mapping.pool == pool.id, is_possible) {
        (false, _) => Err("it says that it belongs to another pool"),
        (true, false) => Err(NOT_PLAIN),
        (true, true) => Ok(()),
    }
}

/// Hosts and groups: what the content has, and what of a registry stands for what.
struct Parties {
    known_hosts: HashSet<String>,
    known_groups: HashSet<String>,
    names: HashSet<String>,
    /// Hosts by their initiators.
    initiators: HashMap<String, String>,
    /// Of the registry, not looked at yet.
    hosts: HashMap<String, Host>,
    groups: HashMap<String, Group>,
    /// What stands for those that were looked at, if anything does.
    found: HashMap<String, Option<String>>,
    new_hosts: Vec<Host>,
    new_groups: Vec<Group>,
    now_unix_ms: u64,
}

impl Parties {
    fn of(content: &Content, hosts: Vec<Host>, groups: Vec<Group>, now_unix_ms: u64) -> Parties {
        let names = content.hosts.iter().map(|host| &host.name);
        let names = names.chain(content.groups.iter().map(|group| &group.name));
        let of = |host: &Host| {
            host.initiators.iter().map(|name| (name.clone(), host.id.clone())).collect::<Vec<_>>()
        };
        Parties {
            known_hosts: content.hosts.iter().map(|host| host.id.clone()).collect(),
            known_groups: content.groups.iter().map(|group| group.id.clone()).collect(),
            names: names.cloned().collect(),
            initiators: content.hosts.iter().flat_map(of).collect(),
            hosts: hosts.into_iter().map(|host| (host.id.clone(), host)).collect(),
            groups: groups.into_iter().map(|group| (group.id.clone(), group)).collect(),
            found: HashMap::new(),
            new_hosts: Vec::new(),
            new_groups: Vec::new(),
            now_unix_ms,
        }
    }

    /// The host or group here that this one of the registry stands for; it is added where that is possible.
    fn find(&mut self, id: &str, taken: &mut Taken) -> Option<String> {
        if self.known_groups.contains(id) {
            return Some(id.into());
        }
        if let Some(host) = self.find_host(id, taken) {
            return Some(host);
        }
        let group = self.groups.remove(id)?;
        let (name, members) = (shown(&group.name), group.hosts.len());
        let is_possible = rules::name("name", &group.name).is_ok()
            && group.revision <= REVISION_MAX
            && members <= HOSTS_MAX
            && !self.known_hosts.contains(id);
        if !is_possible || self.known_groups.len() >= HOSTS_MAX {
            let why = if is_possible { FULL } else { NOT_PLAIN };
            taken.leave_out(format!("host group {name}"), why);
            return None;
        }
        let (mut hosts, mut once) = (Vec::new(), HashSet::new());
        let found: Vec<_> = group.hosts.iter().map(|member| self.find_host(member, taken)).collect();
        if found.contains(&None) {
            taken.leave_out(format!("members of host group {name}"), "the host is not known");
        }
        hosts.extend(found.into_iter().flatten().filter(|host| once.insert(host.clone())));
        let name = self.name(&group.name);
        self.known_groups.insert(id.into());
        let created_unix_ms = group.created_unix_ms.min(self.now_unix_ms);
        self.new_groups.push(Group { name, hosts, created_unix_ms, ..group });
        Some(id.into())
    }

    /// The mapping as it would be here.
    fn wanted(&mut self, mapping: Mapping, pool: &Pool<'_>, taken: &mut Taken) -> Option<Mapping> {
        let name = pool.volumes.get(&mapping.volume);
        let checked = check_mapping(&mapping, pool).and(name.ok_or("its volume is not in this pool"));
        let found = checked
            .and_then(|name| Ok((name, self.find(&mapping.to, taken).ok_or("its host is not known")?)));
        match found {
            Ok((name, to)) => Some(Mapping {
                to,
                volume_name: name.clone(),
                target: mapping.target.filter(|target| *target != target_name(pool.name)),
                created_unix_ms: mapping.created_unix_ms.min(self.now_unix_ms),
                ..mapping
            }),
            Err(why) => {
                let name = shown(name.unwrap_or(&mapping.volume_name));
                taken.leave_out(format!("mapping of {name}"), why);
                None
            }
        }
    }

    /// What a project says, as it would be here.
    fn named(&mut self, entry: ProjectHosts, pool: &Pool<'_>, taken: &mut Taken) -> Option<ProjectHosts> {
        let Some(name) = pool.projects.get(&entry.project).filter(|_| entry.pool == pool.id) else {
            taken.leave_out(format!("hosts of {}", shown(&entry.name)), "the project is not in this pool");
            return None;
        };
        let found: Vec<_> = entry.hosts.iter().map(|to| self.find(to, taken)).collect();
        if found.contains(&None) {
            taken.leave_out(format!("hosts of {name}"), "the host is not known");
        }
        Some(ProjectHosts { name: name.clone(), hosts: found.into_iter().flatten().collect(), ..entry })
    }

    fn find_host(&mut self, id: &str, taken: &mut Taken) -> Option<String> {
        if self.known_hosts.contains(id) {
            return Some(id.into());
        }
        if let Some(found) = self.found.get(id) {
            return found.clone();
        }
        let host = self.hosts.remove(id).filter(|_| !self.known_groups.contains(id))?;
        let name = format!("host {}", shown(&host.name));
        let found = if !is_possible_host(&host) {
            taken.leave_out(name, NOT_PLAIN);
            None
        } else if let Some(known) = host.initiators.iter().find_map(|name| self.initiators.get(name)) {
            Some(known.clone())
        } else if self.known_hosts.len() >= HOSTS_MAX {
            taken.leave_out(name, FULL);
            None
        } else {
            self.initiators.extend(host.initiators.iter().map(|name| (name.clone(), host.id.clone())));
            self.known_hosts.insert(host.id.clone());
            let name = self.name(&host.name);
            let created_unix_ms = host.created_unix_ms.min(self.now_unix_ms);
            self.new_hosts.push(Host { name, created_unix_ms, ..host });
            Some(id.to_string())
        };
        self.found.insert(id.into(), found.clone());
        found
    }

    fn name(&mut self, name: &str) -> String {
        let name = free_name(name, |name| self.names.contains(name));
        self.names.insert(name.clone());
        name
    }
}

/// Texts by numbers, which are small and fast to compare.
#[derive(Default)]
struct Names(HashMap<String, u32>);

impl Names {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.0.get(text) {
            return *number;
        }
        let number = self.0.len() as u32;
        self.0.insert(text.into(), number);
        number
    }
}

/// What hosts see, and what else they can see beside that. Hosts, volumes and targets are numbers.
struct Room {
    names: Names,
    /// The hosts of each group.
    members: HashMap<String, Rc<[u32]>>,
    mappings: usize,
    ids: HashSet<String>,
    views: usize,
    /// Hosts and volumes that they see; hosts, targets and the LUNs that they have there.
    volumes: HashSet<(u32, u32)>,
    luns: HashSet<(u32, u32, u16)>,
    /// Of volumes that are mapped.
    logical: HashMap<u32, u32>,
    /// How many hosts and groups projects name.
    named: usize,
}

impl Room {
    fn of(content: &Content) -> Room {
        let mut names = Names::default();
        let numbers =
            |hosts: &[String], names: &mut Names| hosts.iter().map(|host| names.number(host)).collect();
        let members = content
            .groups
            .iter()
            .map(|group| (group.id.clone(), numbers(&group.hosts, &mut names)))
            .collect();
        let mut room = Room {
            names,
            members,
            mappings: 0,
            ids: HashSet::new(),
            views: 0,
            volumes: HashSet::new(),
            luns: HashSet::new(),
            logical: HashMap::new(),
            named: content.projects.iter().map(|entry| entry.hosts.len()).sum(),
        };
        for mapping in &content.mappings {
            let place = room.place(mapping);
            room.take(mapping, &place);
        }
        room
    }

    /// The hosts that `to` stands for.
    fn hosts(&mut self, to: &str) -> Rc<[u32]> {
        match self.members.get(to) {
            Some(hosts) => hosts.clone(),
            None => Rc::from([self.names.number(to)]),
        }
    }

    /// Hosts, volume and target.
    fn place(&mut self, mapping: &Mapping) -> (Rc<[u32]>, u32, u32) {
        let volume = self.names.number(&mapping.volume);
        (self.hosts(&mapping.to), volume, self.names.number(&mapping.target()))
    }

    fn take(&mut self, mapping: &Mapping, (hosts, volume, target): &(Rc<[u32]>, u32, u32)) {
        self.mappings += 1;
        self.views += hosts.len();
        self.ids.insert(mapping.id.clone());
        self.logical.insert(*volume, mapping.logical_block_bytes);
        self.volumes.extend(hosts.iter().map(|host| (*host, *volume)));
        self.luns.extend(hosts.iter().map(|host| (*host, *target, mapping.lun)));
    }

    /// Takes one more, if the content with it is one that could be.
    fn admit(&mut self, mapping: &Mapping) -> Result<(), &'static str> {
        let place = self.place(mapping);
        let (hosts, volume, target) = &place;
        if self.mappings >= MAPPINGS_MAX || self.views + hosts.len() > VIEWS_MAX {
            return Err(FULL);
        }
        if self.ids.contains(&mapping.id) {
            return Err("a mapping with its UUID exists");
        }
        if self.logical.get(volume).is_some_and(|bytes| *bytes != mapping.logical_block_bytes) {
            return Err("its volume is mapped with other logical blocks");
        }
        if hosts.iter().any(|host| self.volumes.contains(&(*host, *volume))) {
            return Err("its host would see the volume twice");
        }
        if hosts.iter().any(|host| self.luns.contains(&(*host, *target, mapping.lun))) {
            return Err("its host has another volume under that LUN");
        }
        self.take(mapping, &place);
        Ok(())
    }

    /// Leaves those that a project can name; says whether these are all.
    fn admit_named(&mut self, entry: &mut ProjectHosts) -> bool {
        let (mut reached, mut once, before) = (HashSet::new(), HashSet::new(), entry.hosts.len());
        entry.hosts.retain(|to| {
            let hosts = self.hosts(to);
            let is_new = !hosts.iter().any(|host| reached.contains(host)) && once.insert(to.clone());
            let fits = is_new && self.named < NAMED_MAX;
            if fits {
                self.named += 1;
                reached.extend(hosts.iter().copied());
            }
            fits
        });
        entry.hosts.len() == before
    }
}
