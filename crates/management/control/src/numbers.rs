//! Which logical unit numbers are free, for code that adds mappings.
//!
//! A host has a number once at each target. What is mapped to a group has its number at all members, so one that is free for the
//! group is free for each of them. It is taken for the group itself as well, which may not have members yet.
//!
//! A number that a volume had is not chosen for another soon: a host that has not noticed yet goes on using it, and would write to the wrong disk.
//! Without it, it gets errors. Its own volume gets it back, as after the trash. Only so many are kept back that numbers stay small: some clients
//! see none above 255.

use crate::hosts::{Content, LUN_MAX, Mapping};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Numbers that are kept back at one target for one host or group, and for all.
const GIVEN_UP_MAX: usize = 64;
const GIVEN_UP_MAX_ALL: usize = 8192;

/// A number that a volume had at a target for a host or group. Targets have iSCSI names, the rest UUIDs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GivenUp {
    pub target: String,
    pub to: String,
    pub lun: u16,
    pub volume: String,
}

impl Content {
    /// Keeps back the numbers that mappings had before a change, and have no more.
    pub fn keep_back(&mut self, before: &Content) {
        let mut all = std::mem::take(&mut self.given_up);
        let place = |mapping: &Mapping| (mapping.target(), mapping.to.clone(), mapping.lun);
        let taken: HashSet<_> = self.mappings.iter().map(place).collect();
        for mapping in before.mappings.iter().filter(|mapping| !taken.contains(&place(mapping))) {
            let (target, to, lun) = place(mapping);
            all.push(GivenUp { target, to, lun, volume: mapping.volume.clone() });
        }
        let parties: HashSet<&str> = self
            .hosts
            .iter()
            .map(|host| &*host.id)
            .chain(self.groups.iter().map(|group| &*group.id))
            .collect();
        // The newest come first here: of each number the last volume, and of each party so many.
        let (mut seen, mut counts) = (HashSet::new(), HashMap::<_, usize>::new());
        let mut kept: Vec<GivenUp> = Vec::new();
        for one in all.into_iter().rev() {
            let place = (one.target.clone(), one.to.clone(), one.lun);
            if !parties.contains(&*one.to) || taken.contains(&place) || !seen.insert(place) {
                continue;
            }
            let count = counts.entry((one.target.clone(), one.to.clone())).or_default();
            *count += 1;
            if *count <= GIVEN_UP_MAX && kept.len() < GIVEN_UP_MAX_ALL {
                kept.push(one);
            }
        }
        kept.reverse();
        self.given_up = kept;
    }
}

pub struct Numbers<'a> {
    /// UUIDs of the hosts of each group.
    members: HashMap<&'a str, &'a [String]>,
    /// By target, and then by host or group.
    taken: HashMap<String, HashMap<&'a str, HashSet<u16>>>,
    /// Numbers that volumes had until now, in the same way, with the UUID of the volume.
    given_up: HashMap<String, HashMap<&'a str, HashMap<u16, &'a str>>>,
}

impl<'a> Numbers<'a> {
    pub fn of(content: &'a Content) -> Numbers<'a> {
        let members = content.groups.iter().map(|group| (&*group.id, &*group.hosts)).collect();
        let mut numbers = Numbers { members, taken: HashMap::new(), given_up: HashMap::new() };
        for one in &content.given_up {
            numbers.give_up(&one.target, &one.to, one.lun, &one.volume);
        }
        for mapping in &content.mappings {
            numbers.take(&mapping.target(), &mapping.to, mapping.lun);
        }
        numbers
    }

    /// The hosts that `to` stands for.
    pub fn hosts<'b>(&'b self, to: &'b str) -> impl Iterator<Item = &'b str> {
        let members = self.members.get(to).copied();
        let itself = members.is_none().then_some(to);
        members.unwrap_or_default().iter().map(String::as_str).chain(itself)
    }

    /// The host or group, and the hosts that it stands for.
    fn parties(&self, to: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        let members = self.members.get(to).copied().unwrap_or_default();
        members.iter().map(String::as_str).chain([to])
    }

    pub fn take(&mut self, target: &str, to: &'a str, lun: u16) {
        let parties = self.parties(to);
        let taken = self.taken.entry(target.to_string()).or_default();
        for party in parties {
            taken.entry(party).or_default().insert(lun);
        }
    }

    /// A volume had this number until now: no other volume gets it.
    pub fn give_up(&mut self, target: &str, to: &'a str, lun: u16, volume: &'a str) {
        let parties = self.parties(to);
        let given_up = self.given_up.entry(target.to_string()).or_default();
        for party in parties {
            given_up.entry(party).or_default().insert(lun, volume);
        }
    }

    /// Whether `volume` can have the number.
    pub fn is_free(&self, target: &str, to: &str, lun: u16, volume: &str) -> bool {
        let is_taken = |party: &str| {
            let taken = self.taken.get(target).and_then(|taken| taken.get(party));
            let given_up = self.given_up.get(target).and_then(|given_up| given_up.get(party)?.get(&lun));
            taken.is_some_and(|taken| taken.contains(&lun)) || given_up.is_some_and(|had| *had != volume)
        };
        !self.hosts(to).chain([to]).any(is_taken)
    }

    /// The one that `volume` had at `target` for `to`, or the lowest that it can have for every host that `to` stands for.
    pub fn choose(&self, target: &str, to: &str, volume: &str) -> Option<u16> {
        let is_free = |lun: &u16| self.is_free(target, to, *lun, volume);
        let given_up = self.given_up.get(target).and_then(|given_up| given_up.get(to));
        let own = given_up.into_iter().flatten().filter(|(_, had)| **had == volume).map(|(lun, _)| *lun);
        own.filter(is_free).min().or_else(|| (0..=LUN_MAX).find(is_free))
    }
}
