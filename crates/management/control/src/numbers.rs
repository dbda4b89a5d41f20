//! Which logical unit numbers are free, for whoever adds mappings.
//!
//! A host has a number once at each target. What is mapped to a group has its number at all members, so one that is free for the
//! group is free for each of them. It is taken for the group itself as well, which may not have members yet.

use crate::hosts::{Content, LUN_MAX};
use std::collections::{HashMap, HashSet};

pub struct Numbers<'a> {
    /// UUIDs of the hosts of each group.
    members: HashMap<&'a str, &'a [String]>,
    /// By target, and then by host or group.
    taken: HashMap<String, HashMap<&'a str, HashSet<u16>>>,
}

impl<'a> Numbers<'a> {
    pub fn of(content: &'a Content) -> Numbers<'a> {
        let members = content.groups.iter().map(|group| (&*group.id, &*group.hosts)).collect();
        let mut numbers = Numbers { members, taken: HashMap::new() };
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

    pub fn take(&mut self, target: &str, to: &'a str, lun: u16) {
        let taken = self.taken.entry(target.to_string()).or_default();
        let members = self.members.get(to).copied().unwrap_or_default();
        for party in members.iter().map(String::as_str).chain([to]) {
            taken.entry(party).or_default().insert(lun);
        }
    }

    pub fn is_free(&self, target: &str, to: &str, lun: u16) -> bool {
        let Some(taken) = self.taken.get(target) else { return true };
        let mut parties = self.hosts(to).chain([to]);
        !parties.any(|party| taken.get(party).is_some_and(|taken| taken.contains(&lun)))
    }

    /// The lowest that is free at `target` for every host that `to` stands for.
    pub fn lowest(&self, target: &str, to: &str) -> Option<u16> {
        (0..=LUN_MAX).find(|lun| self.is_free(target, to, *lun))
    }
}
