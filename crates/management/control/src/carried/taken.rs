//! What a pool's registry brings into the daemon's files when its word counts for the pool ([`super::newer`]).
//!
//! The disks of a pool may come from anywhere, so nothing in a registry is believed. Each value has to be what a request could have made, or is left out,
//! by itself: the rest comes all the same. What stands for its hosts and groups here, [`super::parties`] says. A mapping counts for volumes of this pool only. What comes fits what
//! there is, as [`crate::store::Kept::check`] asks, within the same limits; what does not fit is left out. Of each kind no more items are looked at than an
//! appliance can have, which bounds the work.
//!
//! Hosts and groups come only where a mapping or project that comes names them.

use super::parties::Parties;
use super::{GROUP, HOST, Items, LEVEL, MAPPING, Origin, PROJECT, THRESHOLDS, is_uuid};
use crate::hosts::{Content, Group, HOSTS_MAX, Host, LUN_MAX, MAPPINGS_MAX, Mapping, VIEWS_MAX};
use crate::inherited::{NAMED_MAX, ProjectHosts};
use crate::iscsi_names::{self, is_target};
use crate::levels::{self, LEVELS_MAX, Level, check_spec};
use crate::rules::{self, NAME_BYTES_MAX, shown, snapshots::few};
use forebay_api::LEVEL_NONE;
use forebay_base::Id;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// More changes than can be made; one more is counted without an overflow.
pub const REVISION_MAX: u64 = 1 << 48;
/// What comes leaves room for changes.
pub const REVISION_TAKEN_MAX: u64 = REVISION_MAX >> 1;
const KEPT_MAX: usize = MAPPINGS_MAX + 2 * HOSTS_MAX;
pub const NOT_PLAIN: &str = "the entry is not valid";
pub const FULL: &str = "the limit of this appliance is reached";

/// What the engine says of the pool that has come. All but names are UUIDs.
pub struct Pool<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// `POOL/NAME` of its volumes and projects.
    pub volumes: HashMap<String, String>,
    pub projects: HashMap<String, String>,
    /// Volumes of other pools that are here.
    pub elsewhere: HashSet<String>,
    /// iSCSI names of the targets of other pools that are known here.
    pub targets: HashSet<String>,
}

/// What has come with a pool.
#[derive(Default)]
pub struct Taken {
    /// New ones, with their initiators.
    pub hosts: Vec<String>,
    pub groups: usize,
    pub mappings: usize,
    /// Mappings of the pool's volumes that were here and are no more.
    pub unmapped: usize,
    pub projects: usize,
    pub levels: usize,
    pub thresholds: usize,
    /// What was here and is as the pool says now.
    pub changed: Vec<String>,
    /// What has another name here than there.
    pub called: Vec<String>,
    /// Keys of what is to stay in the registry, at most as many as an appliance can have.
    pub kept: BTreeSet<String>,
    /// By the reason.
    left_out: BTreeMap<&'static str, Vec<String>>,
}

impl Taken {
    pub fn leave_out(&mut self, what: impl Into<String>, why: &'static str) {
        self.left_out.entry(why).or_default().push(what.into());
    }

    /// What has no place here stays in the registry.
    pub fn keep(&mut self, kind: &str, id: &str) {
        if self.kept.len() < KEPT_MAX {
            self.kept.insert(format!("{kind}{id}"));
        }
    }

    /// How many of what have come, and with which names; nothing where nothing is other than before.
    pub fn in_words(&self) -> Option<String> {
        let counted = [
            (self.groups, "host group", "host groups"),
            (self.mappings, "new mapping", "new mappings"),
            (self.projects, "project with hosts", "projects with hosts"),
            (self.levels, "service level", "service levels"),
            (self.thresholds, "fill threshold", "fill thresholds"),
            (self.unmapped, "mapping removed", "mappings removed"),
        ];
        let named =
            |words: &[String], what: &str| (!words.is_empty()).then(|| format!("{what} {}", few(words)));
        let counts = counted.iter().filter(|(count, ..)| *count > 0);
        let counts =
            counts.map(|(count, one, more)| format!("{count} {}", if *count == 1 { one } else { more }));
        let hosts = named(&self.hosts, if self.hosts.len() == 1 { "host" } else { "hosts" });
        let words = hosts.into_iter().chain(counts).collect::<Vec<_>>().join(", ");
        let words = Some(words).filter(|words| !words.is_empty());
        let all = [words, named(&self.changed, "changed:"), named(&self.called, "renamed:")];
        let all: Vec<String> = all.into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What was left out, a few of each reason; nothing where nothing was.
    pub fn left_out_in_words(&self) -> Option<String> {
        let each = self.left_out.iter().map(|(why, what)| format!("{} ({why})", few(what)));
        (!self.left_out.is_empty()).then(|| each.collect::<Vec<_>>().join("; "))
    }
}

/// Takes what the registry says about the pool in place of what the content says about it. With `changes`, also what it may change of hosts and groups that are here.
pub fn take(
    content: &mut Content,
    items: &Items,
    origin: Option<&Origin>,
    pool: &Pool<'_>,
    changes: bool,
    now_unix_ms: u64,
) -> Taken {
    let mut taken = Taken::default();
    let moving: HashSet<String> = content.moving.iter().map(|one| one.volume.clone()).collect();
    let named = named_by(content, pool.id);
    let is_own = content.revisions.get(pool.id).is_some_and(|revision| revision.is_own);
    let mut before = HashMap::new();
    content.mappings.retain(|mapping| {
        // One that moved to this pool elsewhere; a stranger's may have its UUID by intent.
        let has_moved = is_own && pool.volumes.contains_key(&mapping.volume);
        let is_its = mapping.pool == pool.id || has_moved;
        let stays = !is_its || moving.contains(&mapping.volume) || pool.elsewhere.contains(&mapping.volume);
        if !stays {
            before.insert(mapping.id.clone(), mapping.clone());
        }
        stays
    });
    content.projects.retain(|entry| entry.pool != pool.id);
    let revision = content.revisions.entry(pool.id.to_string()).or_default();
    let origin = origin.cloned().unwrap_or_else(Origin::unknown);
    revision.number = revision.number.max(origin.revision.min(REVISION_TAKEN_MAX));
    revision.kept.clear();
    revision.taken = Some(origin);

    let hosts = parsed(items, HOST, HOSTS_MAX, |host: &Host| &host.id, &mut taken);
    let groups = parsed(items, GROUP, HOSTS_MAX, |group: &Group| &group.id, &mut taken);
    let mut mappings = parsed(items, MAPPING, MAPPINGS_MAX, |mapping: &Mapping| &mapping.id, &mut taken);
    let mut projects = parsed(items, PROJECT, NAMED_MAX, |entry: &ProjectHosts| &entry.project, &mut taken);
    mappings.retain(|mapping| !moving.contains(&mapping.volume));
    mappings.sort_by(|a, b| (a.created_unix_ms, &a.id).cmp(&(b.created_unix_ms, &b.id)));
    projects.sort_by(|a, b| a.name.cmp(&b.name));

    let mut parties = Parties::of(
        content,
        pool,
        (is_own, if is_own && changes { named } else { HashSet::new() }),
        (hosts, groups),
        now_unix_ms,
    );
    parties.change_known(&mut taken);
    let wanted: Vec<_> =
        mappings.into_iter().filter_map(|mapping| parties.wanted(mapping, &mut taken)).collect();
    let named: Vec<_> = projects.into_iter().filter_map(|entry| parties.named(entry, &mut taken)).collect();
    let Parties { mut hosts, mut groups, .. } = parties;
    // Those that were here keep their order.
    content.hosts = content.hosts.iter().filter_map(|host| hosts.remove(&host.id)).collect();
    content.groups = content.groups.iter().filter_map(|group| groups.remove(&group.id)).collect();
    let (mut hosts, mut groups): (Vec<_>, Vec<_>) =
        (hosts.into_values().collect(), groups.into_values().collect());
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    content.hosts.extend(hosts);
    content.groups.extend(groups);

    let mut room = Room::of(content);
    for mapping in wanted {
        match room.admit(&mapping) {
            Ok(()) => {
                let was = before.remove(&mapping.id);
                taken.mappings +=
                    usize::from(was.is_none_or(|was| (was.to, was.lun) != (mapping.to.clone(), mapping.lun)));
                content.mappings.push(mapping);
            }
            Err(why) => {
                taken.keep(MAPPING, &mapping.id);
                taken.leave_out(format!("mapping of {} as LUN {}", mapping.volume_name, mapping.lun), why);
            }
        }
    }
    taken.unmapped = before.len();
    if !taken.kept.is_empty() {
        // With what they name.
        let named = items.keys().filter(|key| key.starts_with(HOST) || key.starts_with(GROUP));
        named.for_each(|key| taken.keep("", key));
    }
    let known: HashSet<String> = content.projects.iter().map(|entry| entry.project.clone()).collect();
    for mut entry in named.into_iter().filter(|entry| !known.contains(&entry.project)) {
        if !room.admit_named(&mut entry) {
            let why = "the project names them twice, or the limit of this appliance is reached";
            taken.leave_out(format!("hosts of {}", entry.name), why);
        }
        if !entry.hosts.is_empty() {
            taken.projects += 1;
            content.projects.push(entry);
        }
    }
    taken
}

/// Hosts and groups that the pool's mappings and projects name here.
fn named_by(content: &Content, pool: &str) -> HashSet<String> {
    let mappings = content.mappings.iter().filter(|mapping| mapping.pool == pool).map(|mapping| &mapping.to);
    let projects = content.projects.iter().filter(|entry| entry.pool == pool).flat_map(|entry| &entry.hosts);
    let mut named: HashSet<String> = mappings.chain(projects).cloned().collect();
    let groups = content.groups.iter().filter(|group| named.contains(&group.id));
    let members: Vec<String> = groups.flat_map(|group| group.hosts.iter().cloned()).collect();
    named.extend(members);
    named
}

/// Takes those of these levels that are not known here and that the registry has; and, if the registry counts for the pool and may change what is here (`changes`), those that have been changed more often than here.
pub fn take_levels(
    content: &mut levels::Content,
    items: &Items,
    wanted: &BTreeSet<Id>,
    changes: Option<bool>,
    taken: &mut Taken,
) {
    for id in wanted.iter().filter(|id| !levels::is_built_in(**id)).copied().collect::<Vec<_>>() {
        let Some(text) = items.get(&format!("{LEVEL}{id}")) else { continue };
        let level = serde_json::from_slice::<Level>(text).ok();
        let is_possible = |level: &Level| {
            level.id == id.to_string()
                && level.revision <= REVISION_MAX
                && rules::name("name", &level.name).is_ok()
                && check_spec(&level.spec).is_ok()
        };
        let Some(level) = level.filter(is_possible) else {
            taken.leave_out(format!("level {id}"), NOT_PLAIN);
            continue;
        };
        let names: HashSet<String> = content.all().map(|level| level.name).collect();
        if let Some(here) = content.levels.iter_mut().find(|here| here.id == level.id) {
            if here.spec == level.spec {
                continue;
            }
            if changes == Some(true) && level.revision > here.revision {
                taken.changed.push(format!("level {}", here.name));
                (here.spec, here.revision) = (level.spec, level.revision.min(REVISION_TAKEN_MAX));
            } else if changes.is_some() {
                taken.leave_out(
                    format!("level {}", here.name),
                    "this appliance has its own version and keeps it",
                );
            }
        } else if content.levels.len() >= LEVELS_MAX {
            taken.leave_out(format!("level {id}"), FULL);
        } else {
            let name = free_name(&level.name, |name| name == LEVEL_NONE || names.contains(name));
            if name != level.name {
                taken.called.push(format!("{} is named {name} here", level.name));
            }
            let revision = level.revision.min(REVISION_TAKEN_MAX);
            content.levels.push(Level { name, revision, ..level });
            taken.levels += 1;
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
            taken.leave_out(format!("more than {most} of `{kind}`"), "more than an appliance can have");
            break;
        }
        let key_id = &key[kind.len()..];
        match serde_json::from_slice(text) {
            Ok(value) if id(&value) == key_id && is_uuid(key_id) => found.push(value),
            _ => {
                taken.keep("", key);
                taken.leave_out(shown(key), NOT_PLAIN);
            }
        }
    }
    found
}

/// The name, or another one that is free.
pub fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
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

/// Whether a request could have made it, for this pool.
pub fn check_mapping(mapping: &Mapping, pool: &Pool<'_>) -> Result<(), &'static str> {
    let is_possible = mapping.lun <= LUN_MAX
        && iscsi_names::logical_block(Some(mapping.logical_block_bytes)).is_ok()
        && mapping.target.as_deref().is_none_or(is_target);
    match (mapping.pool == pool.id, is_possible) {
        (false, _) => Err("it belongs to another pool"),
        (true, false) => Err(NOT_PLAIN),
        (true, true) => Ok(()),
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
            return Err("its volume is mapped with another logical block size");
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
