//! Which logical unit numbers are free, for code that adds mappings.
//!
//! A host has a number once at each target. What is mapped to a group has its number at all members, so one that is free for the
//! group is free for each of them. It is taken for the group itself as well, which may not have members yet.
//!
//! A number that one change takes from a volume is no other volume's with the same change: a host that has not noticed yet goes on using
//! it, and would write to the wrong disk. Without it, it gets errors.

use crate::hosts::{Content, LUN_MAX};
use std::collections::{HashMap, HashSet};

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

    /// The lowest that `volume` can have at `target` for every host that `to` stands for.
    pub fn lowest(&self, target: &str, to: &str, volume: &str) -> Option<u16> {
        (0..=LUN_MAX).find(|lun| self.is_free(target, to, *lun, volume))
    }
}
