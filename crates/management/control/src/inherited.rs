//! Whom volumes are mapped to that have no hosts of their own: to whom their project says.
//!
//! The engine keeps with a volume whether its hosts are its own, and knows nothing of hosts. What projects say is in the file `hosts`, by UUID. One
//! function puts the two together, [`Content::inherit`]. It is called after each change of volumes or hosts, and changes nothing where
//! all is as it should be. So what brings a volume into a project, or a project's hosts to its volumes, needs no code of its own, and what a
//! crash left undone is done at the next import. An entry of a deleted project has no effect.
//!
//! A mapping that is there keeps its number. Where a project names a group instead of a host that is in it, or the other way round, the new mapping takes over
//! number and target of the old one if they are free: the host notices nothing. No number goes from one volume to another at once. Volumes that are not here, those on their way to
//! another pool, and those with hosts of their own are left alone.
//!
//! A project names no host twice, the numbers are free ones, and the logical block is that of the volume's other mappings. So of all that [`Content::check`]
//! asks, only the limits can be in the way. What is beyond them is left out and told.

use crate::hosts::{Content, LOGICAL_BLOCK_DEFAULT, MAPPINGS_MAX, Mapping, VIEWS_MAX};
use crate::hosts::{conflict, full, no_number};
use crate::numbers::Numbers;
use crate::rules::snapshots::few;
use forebay_api::Problem;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// Hosts and groups that projects name, added up over all projects: as many as there may be mappings.
pub const NAMED_MAX: usize = 4096;

/// Whom the volumes of a project are mapped to that inherit it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProjectHosts {
    /// UUIDs of the pool and of the project.
    pub pool: String,
    pub project: String,
    /// `POOL/PROJECT`.
    pub name: String,
    /// UUIDs of hosts and groups, at least one.
    pub hosts: Vec<String>,
}

/// A volume that is here and has no hosts of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heir {
    /// UUIDs of the volume, its pool and its project, if it belongs to one.
    pub id: String,
    pub pool: String,
    pub project: Option<String>,
    /// `POOL/[PROJECT/]NAME`.
    pub name: String,
}

/// A mapping that a project wants and that is not possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// `POOL/PROJECT/NAME`.
    pub volume: String,
    /// Name of the host or group.
    pub host: String,
    pub problem: Problem,
}

impl Content {
    /// UUIDs of the hosts and groups that a project names.
    pub fn said(&self, project: &str) -> &[String] {
        let entry = self.projects.iter().find(|entry| entry.project == project);
        entry.map_or(&[], |entry| &entry.hosts)
    }

    /// Has a project name these from now on, which may be none.
    pub fn say(&mut self, said: ProjectHosts) {
        self.projects.retain(|entry| entry.project != said.project);
        if !said.hosts.is_empty() {
            self.projects.push(said);
        }
    }

    /// The projects that name a host or group.
    pub fn projects_naming(&self, to: &str) -> Vec<String> {
        let naming = self.projects.iter().filter(|entry| entry.hosts.iter().any(|named| named == to));
        naming.map(|entry| entry.name.clone()).collect()
    }

    /// No project names this host or group any more.
    pub fn unsay(&mut self, to: &str) {
        self.projects.iter_mut().for_each(|entry| entry.hosts.retain(|named| named != to));
        self.projects.retain(|entry| !entry.hosts.is_empty());
    }

    /// Names of hosts and groups.
    pub fn names(&self, parties: &[String]) -> Vec<String> {
        parties.iter().filter_map(|id| Some(self.party(id).ok()?.1.to_string())).collect()
    }

    /// Says which project names what it cannot.
    pub fn check_projects(&self) -> Result<(), Problem> {
        if self.projects.iter().map(|entry| entry.hosts.len()).sum::<usize>() > NAMED_MAX {
            return Err(full("hosts named by projects", NAMED_MAX));
        }
        let groups = self.groups.iter().map(|group| &*group.id);
        let known: HashSet<&str> = self.hosts.iter().map(|host| &*host.id).chain(groups).collect();
        for entry in &self.projects {
            let wrong = |detail: String, remedy: &str| conflict(&entry.name, "hosts", detail, remedy);
            let (mut named, mut reached) = (HashSet::new(), HashMap::new());
            for to in &entry.hosts {
                let name = self.names(std::slice::from_ref(to)).concat();
                if !known.contains(&**to) {
                    let detail = format!("it names {to}, which is not a host or host group");
                    return Err(wrong(
                        detail,
                        "Set its hosts with `forebay project set PROJECT --host NAME`.",
                    ));
                }
                if !named.insert(to) {
                    return Err(wrong(format!("it names {name} twice"), "Name it once."));
                }
                for host in self.hosts_of(to) {
                    if let Some(other) = reached.insert(host, to) {
                        let names = self.names(&[host.into(), other.clone()]);
                        let detail = format!(
                            "it names host {} twice: through {} and through {name}",
                            names[0], names[1]
                        );
                        let remedy = "A host has a volume once, directly or through one group: name only one of the two.";
                        return Err(wrong(detail, remedy));
                    }
                }
            }
        }
        Ok(())
    }

    /// Maps these volumes to the hosts of their projects, and to no others. Returns what was not possible.
    pub fn inherit(&mut self, heirs: &[Heir], now_unix_ms: u64) -> Vec<Refused> {
        let moving: HashSet<&str> = self.moving.iter().map(|one| &*one.volume).collect();
        let said: HashMap<&str, &[String]> =
            self.projects.iter().map(|entry| (&*entry.project, &*entry.hosts)).collect();
        let stays = heirs.iter().filter(|heir| !moving.contains(&*heir.id));
        let mut wanted: Vec<(&Heir, &[String])> = stays
            .map(|heir| (heir, heir.project.as_deref().and_then(|project| said.get(project).copied())))
            .map(|(heir, to)| (heir, to.unwrap_or_default()))
            .collect();
        wanted.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        let to: HashMap<&str, &[String]> = wanted.iter().map(|(heir, to)| (&*heir.id, *to)).collect();
        let is_kept = |mapping: &Mapping| to.get(&*mapping.volume).is_none_or(|to| to.contains(&mapping.to));
        let (kept, dropped): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.mappings).into_iter().partition(is_kept);
        self.mappings = kept;
        let (added, refused) = self.missing(&wanted, &dropped, now_unix_ms);
        self.mappings.extend(added);
        refused
    }

    /// The mappings that these volumes do not have yet, and those that are not possible.
    fn missing<'a>(
        &'a self,
        heirs: &[(&'a Heir, &'a [String])],
        dropped: &'a [Mapping],
        now_unix_ms: u64,
    ) -> (Vec<Mapping>, Vec<Refused>) {
        let there: HashSet<(&str, &str)> =
            self.mappings.iter().map(|mapping| (&*mapping.volume, &*mapping.to)).collect();
        let all = dropped.iter().chain(&self.mappings);
        let logical: HashMap<&str, u32> =
            all.map(|mapping| (&*mapping.volume, mapping.logical_block_bytes)).collect();
        let mut numbers = Numbers::of(self);
        dropped.iter().for_each(|old| numbers.give_up(&old.target(), &old.to, old.lun, &old.volume));
        let mut wanted = Vec::new();
        for (heir, to) in heirs {
            for to in to.iter().filter(|to| !there.contains(&(&*heir.id, &***to))) {
                let shows_it_too = |old: &&Mapping| {
                    old.volume == heir.id
                        && numbers.hosts(&old.to).any(|host| numbers.hosts(to).any(|other| other == host))
                };
                let olds: Vec<&Mapping> = dropped.iter().filter(shows_it_too).collect();
                let is_free = |old: &&&Mapping| numbers.is_free(&old.target(), to, old.lun, &heir.id);
                let same = olds.iter().find(is_free);
                let old = same.or(olds.first());
                let mapping = Mapping {
                    id: crate::random_id(),
                    created_unix_ms: now_unix_ms,
                    volume: heir.id.clone(),
                    pool: heir.pool.clone(),
                    volume_name: heir.name.clone(),
                    target: old.and_then(|old| old.target.clone()),
                    to: to.clone(),
                    lun: 0,
                    logical_block_bytes: logical.get(&*heir.id).copied().unwrap_or(LOGICAL_BLOCK_DEFAULT),
                };
                // Before any other one gets it.
                let same = same.map(|old| old.lun);
                same.iter().for_each(|lun| numbers.take(&mapping.target(), to, *lun));
                wanted.push((mapping, to, same));
            }
        }
        let mut views: usize = self.mappings.iter().map(|mapping| numbers.hosts(&mapping.to).count()).sum();
        let (mut added, mut refused) = (Vec::new(), Vec::new());
        for (mapping, to, same) in wanted {
            let target = mapping.target();
            let (hosts, host) = (numbers.hosts(to).count(), self.names(std::slice::from_ref(to)).concat());
            // What has no room anyway looks for no number.
            let problem = if self.mappings.len() + added.len() >= MAPPINGS_MAX {
                full("mappings", MAPPINGS_MAX)
            } else if views + hosts > VIEWS_MAX {
                full("volumes mapped to hosts", VIEWS_MAX)
            } else if let Some(lun) = same.or_else(|| numbers.choose(&target, to, &mapping.volume)) {
                numbers.take(&target, to, lun);
                views += hosts;
                added.push(Mapping { lun, ..mapping });
                continue;
            } else {
                no_number(&mapping.volume_name, &host)
            };
            let volume = mapping.volume_name;
            refused.push(Refused { problem: problem.object(&*volume), volume, host });
        }
        (added, refused)
    }

    /// The same, all of it or nothing.
    pub fn inherit_wholly(&mut self, heirs: &[Heir], now_unix_ms: u64) -> Result<(), Problem> {
        match self.inherit(heirs, now_unix_ms).into_iter().next() {
            Some(Refused { host, problem, .. }) => {
                let detail = format!("it cannot be mapped to {host}: {}", problem.detail);
                Err(Problem { detail, ..problem })
            }
            None => Ok(()),
        }
    }
}

/// Refusals that were told, so that each is told once while it lasts.
#[derive(Default)]
pub struct Refusals(Mutex<HashSet<(String, String)>>);

impl Refusals {
    /// Those of the present ones that were not among the last.
    pub fn news(&self, mut refused: Vec<Refused>) -> Vec<Refused> {
        let known = |one: &Refused| (one.volume.clone(), one.host.clone());
        let now = refused.iter().map(known).collect();
        let before = std::mem::replace(&mut *self.0.lock().expect("no holder of this lock panics"), now);
        refused.retain(|one| !before.contains(&known(one)));
        refused
    }
}

/// What is different for some hosts, all in the same way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// A few names.
    pub hosts: String,
    pub what: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.hosts, self.what)
    }
}

/// Which hosts see more or less than they did.
pub fn differences(before: &Content, after: &Content) -> Vec<Difference> {
    let (were, are) = (before.views(), after.views());
    let mut alike: Vec<([String; 3], Vec<String>)> = Vec::new();
    for host in &after.hosts {
        let was = were.get(&*host.id).map_or(&[][..], Vec::as_slice);
        let is = are.get(&*host.id).map_or(&[][..], Vec::as_slice);
        let by_volume = |view: &[&'_ Mapping]| -> HashMap<String, (String, u16)> {
            let place = |mapping: &&Mapping| (mapping.volume.clone(), (mapping.target(), mapping.lun));
            view.iter().map(place).collect()
        };
        let (was_at, is_at) = (by_volume(was), by_volume(is));
        let gained: Vec<_> = is.iter().filter(|mapping| !was_at.contains_key(&mapping.volume)).collect();
        let lost: Vec<_> = was.iter().filter(|mapping| !is_at.contains_key(&mapping.volume)).collect();
        let is_elsewhere =
            |mapping: &&&Mapping| was_at.get(&mapping.volume).is_some_and(|at| is_at[&mapping.volume] != *at);
        let elsewhere: Vec<_> = is.iter().filter(is_elsewhere).collect();
        let what = [
            volumes(&gained, |mapping| format!("{} as LUN {}", mapping.volume_name, mapping.lun), ""),
            volumes(&lost, |mapping| format!("{} (LUN {})", mapping.volume_name, mapping.lun), ""),
            volumes(
                &elsewhere,
                |mapping| format!("{} as LUN {} from now on", mapping.volume_name, mapping.lun),
                " under other LUNs",
            ),
        ];
        match alike.iter_mut().find(|(known, _)| *known == what) {
            Some((_, hosts)) => hosts.push(host.name.clone()),
            None => alike.push((what, vec![host.name.clone()])),
        }
    }
    let in_words = |(what, hosts): ([String; 3], Vec<String>)| {
        let verbs = if hosts.len() == 1 { ["gains", "loses", "sees"] } else { ["gain", "lose", "see"] };
        let said = verbs.iter().zip(what).filter(|(_, what)| !what.is_empty());
        let what: Vec<String> = said.map(|(verb, what)| format!("{verb} {what}")).collect();
        Difference { hosts: few(&hosts), what: what.join("; ") }
    };
    alike.into_iter().map(in_words).filter(|difference| !difference.what.is_empty()).collect()
}

/// One in its own words, or how many.
fn volumes(mappings: &[&&Mapping], one: impl Fn(&Mapping) -> String, how: &str) -> String {
    match mappings {
        [] => String::new(),
        [mapping] => one(mapping),
        more => format!("{} volumes{how}", more.len()),
    }
}

#[cfg(test)]
#[path = "inherited_tests.rs"]
mod tests;
