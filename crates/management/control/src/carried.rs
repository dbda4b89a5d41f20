//! What the registry of a pool carries ([`forebay_pool::Engine::put_items`]): all that the daemon's files say about the pool, so that it goes with the disks.
//!
//! The daemon goes by its files. The registry of each imported pool has a copy of what concerns the pool, one JSON value for each key:
//!
//! ```text
//! host/UUID group/UUID   hosts and groups that its mappings and projects name; a group brings its hosts. With the secrets of CHAP
//! mapping/UUID           mappings of its volumes
//! project/UUID           which hosts its projects name
//! level/UUID             all service levels that are not built in
//! thresholds             how full it is, in percent, when that is reported, if that was set
//! origin                 which appliance wrote this, and how often it had changed what concerns the pool
//! ```
//!
//! Other keys are a later version's, and stay. `origin` is written last: what a crash leaves of a longer change has the number of the state before, so the
//! appliance that wrote it writes the rest at the next import.
//!
//! At an import the newer of the two wins ([`newer`]), and only for this pool: the files where this appliance wrote the registry and has counted as many changes
//! or more, or has taken exactly this registry before; else the registry. So a change that did not reach the registry is not lost, and what another machine
//! changed is there when the pool comes back. Each pool has a count of its own: after an older backup was restored, a change that concerns one pool
//! does not make the files look newer than the registry of another one.
//!
//! All here are pure functions. What is read from a registry is checked like a request: see [`taken`].

pub mod parties;
pub mod taken;

use crate::hosts::{Content, Group, Host, Mapping};
use crate::inherited::ProjectHosts;
use crate::levels;
use forebay_base::Id;
use forebay_pool::{ITEM_VALUE_MAX, ITEMS_CHANGED_MAX, ITEMS_PUT_MAX, ItemChanges};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};

pub type Items = BTreeMap<String, Vec<u8>>;

const VERSION: u32 = 1;
const ORIGIN: &str = "origin";
const THRESHOLDS: &str = "thresholds";
const HOST: &str = "host/";
const GROUP: &str = "group/";
const LEVEL: &str = "level/";
const MAPPING: &str = "mapping/";
const PROJECT: &str = "project/";
/// In the order in which they are written: what others name comes first, and goes last.
const KINDS: [&str; 7] = [HOST, GROUP, LEVEL, THRESHOLDS, MAPPING, PROJECT, ORIGIN];

/// Which state of which appliance a registry has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    version: u32,
    pub appliance: String,
    pub revision: u64,
}

impl Origin {
    /// Of a registry that does not say it.
    pub fn unknown() -> Origin {
        Origin { version: VERSION, appliance: String::new(), revision: 0 }
    }
}

/// How often what concerns a pool has changed, and which registry of it was taken last.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Revision {
    pub number: u64,
    /// An administrator has changed something that concerns the pool here, so the pool is no stranger.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_own: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Origin>,
    /// Keys of what was not taken then. It stays in the registry: what has no place here may have one where the pool goes next.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub kept: BTreeSet<String>,
}

/// What a registry says of its own age.
#[derive(PartialEq, Eq, Debug)]
pub enum Age {
    /// Nothing, or nothing that can be read.
    Unknown,
    /// A later version of this program wrote it, and means something by it that this one does not know.
    Later(u32),
    Known(Origin),
}

/// Whose word counts for a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Newer {
    Files,
    Registry,
}

pub fn age(items: &Items) -> Age {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Some(text) = items.get(ORIGIN) else { return Age::Unknown };
    match serde_json::from_slice(text) {
        Ok(Versioned { version }) if version > VERSION => Age::Later(version),
        _ => match serde_json::from_slice::<Origin>(text) {
            Ok(origin)
                if origin.version == VERSION
                    && is_uuid(&origin.appliance)
                    && origin.revision <= taken::REVISION_MAX =>
            {
                Age::Known(origin)
            }
            _ => Age::Unknown,
        },
    }
}

/// Whose word counts for the pool with this UUID.
pub fn newer(origin: &Origin, content: &Content, pool: &str) -> Newer {
    let ours = content.revisions.get(pool).cloned().unwrap_or_default();
    let is_ours = origin.appliance == content.appliance && origin.revision <= ours.number;
    if is_ours || ours.taken.as_ref() == Some(origin) { Newer::Files } else { Newer::Registry }
}

fn is_uuid(text: &str) -> bool {
    text.parse::<Id>().is_ok_and(|id| id.to_string() == text)
}

/// Those of a registry's items that are written here; what is `kept` is not.
pub fn known(mut items: Items, kept: &BTreeSet<String>) -> Items {
    items.retain(|key, _| kind(key).is_some() && !kept.contains(key));
    items
}

/// Whether a registry has anything that is written here.
pub fn has_known(items: &Items) -> bool {
    items.keys().any(|key| kind(key).is_some())
}

/// The place of a key's kind among [`KINDS`].
fn kind(key: &str) -> Option<usize> {
    let is_it = |kind: &str| if kind.ends_with('/') { key.starts_with(kind) } else { key == kind };
    KINDS.iter().position(|kind| is_it(kind))
}

/// What the registry of the pool with this UUID is to have.
pub fn items_of(content: &Content, levels: &levels::Content, thresholds: &[u8], pool: &str) -> Items {
    let mut items = Items::new();
    let mut put = |kind: &str, id: &str, value: Vec<u8>| _ = items.insert(format!("{kind}{id}"), value);
    let mut named: HashSet<&str> = HashSet::new();
    for mapping in content.mappings.iter().filter(|mapping| mapping.pool == pool) {
        named.insert(&mapping.to);
        put(MAPPING, &mapping.id, json::<Mapping>(mapping));
    }
    for entry in content.projects.iter().filter(|entry| entry.pool == pool) {
        named.extend(entry.hosts.iter().map(String::as_str));
        put(PROJECT, &entry.project, json::<ProjectHosts>(entry));
    }
    for group in content.groups.iter().filter(|group| named.contains(&*group.id)).collect::<Vec<_>>() {
        named.extend(group.hosts.iter().map(String::as_str));
        put(GROUP, &group.id, json::<Group>(group));
    }
    for host in content.hosts.iter().filter(|host| named.contains(&*host.id)) {
        put(HOST, &host.id, json::<Host>(host));
    }
    levels.levels.iter().for_each(|level| put(LEVEL, &level.id, json(level)));
    if !thresholds.is_empty() {
        put(THRESHOLDS, "", json(&thresholds));
    }
    let revision = content.revisions.get(pool).map_or(0, |revision| revision.number);
    put(ORIGIN, "", json(&Origin { version: VERSION, appliance: content.appliance.clone(), revision }));
    items
}

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("it is plain data")
}

/// Changes that make what a registry has into what it is to have.
#[derive(Default)]
pub struct Difference {
    /// To be put one after the other.
    pub batches: Vec<ItemChanges>,
    /// Keys of what is longer than a registry takes. It is not put.
    pub too_long: Vec<String>,
}

pub fn difference(known: &Items, wanted: &Items) -> Difference {
    let mut found = Difference::default();
    let mut puts: Vec<(usize, &String, Option<&Vec<u8>>)> = Vec::new();
    for (key, value) in wanted.iter().filter(|(key, value)| known.get(*key) != Some(value)) {
        match value.len() > ITEM_VALUE_MAX {
            true => {
                found.too_long.push(key.clone());
                if known.contains_key(key) {
                    puts.push((kind(key).unwrap_or_default(), key, None));
                }
            }
            false => puts.push((kind(key).unwrap_or_default(), key, Some(value))),
        }
    }
    let gone = known.keys().filter(|key| !wanted.contains_key(*key));
    // After all that is put but the origin, and what names others before these.
    let last = KINDS.len() - 1;
    let after = |key: &String| 2 * last - 1 - kind(key).unwrap_or_default();
    puts.iter_mut().filter(|(kind, ..)| *kind == last).for_each(|(kind, ..)| *kind = 2 * last);
    puts.extend(gone.map(|key| (after(key), key, None)));
    puts.sort_by_key(|(rank, ..)| *rank);
    let (mut batch, mut bytes) = (ItemChanges::new(), 0);
    for (_, key, value) in puts {
        let more = key.len() + value.map_or(0, Vec::len);
        if bytes + more > ITEMS_PUT_MAX || batch.len() == ITEMS_CHANGED_MAX {
            found.batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += more;
        batch.insert(key.clone(), value.cloned());
    }
    if !batch.is_empty() {
        found.batches.push(batch);
    }
    found
}

/// What a registry has after these changes.
pub fn apply(known: &mut Items, batch: ItemChanges) {
    for (key, value) in batch {
        match value {
            Some(value) => _ = known.insert(key, value),
            None => _ = known.remove(&key),
        }
    }
}

#[cfg(test)]
#[path = "carried_tests.rs"]
mod tests;
