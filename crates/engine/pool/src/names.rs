//! The names of a pool's volumes: where each is, whose name an id has, and how many each shard has. Nobody looks through all of them for one.

use forebay_base::Id;
use std::collections::BTreeMap;
use std::ops::Deref;

/// Where a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub shard: usize,
    pub id: Id,
}

#[derive(Default)]
pub(crate) struct Names {
    by_name: BTreeMap<String, Place>,
    /// The name that an id got last.
    by_id: BTreeMap<Id, String>,
    by_shard: BTreeMap<usize, usize>,
}

impl Names {
    pub fn insert(&mut self, name: String, place: Place) {
        self.remove(&name);
        self.by_id.insert(place.id, name.clone());
        *self.by_shard.entry(place.shard).or_default() += 1;
        self.by_name.insert(name, place);
    }

    /// The same, where nobody has the name.
    pub fn insert_new(&mut self, name: &str, place: Place) {
        if !self.by_name.contains_key(name) {
            self.insert(name.to_string(), place);
        }
    }

    pub fn remove(&mut self, name: &str) {
        let Some(place) = self.by_name.remove(name) else { return };
        if self.by_id.get(&place.id).is_some_and(|known| known == name) {
            self.by_id.remove(&place.id);
        }
        *self.by_shard.get_mut(&place.shard).expect("a name is counted") -= 1;
    }

    /// The name of an id.
    pub fn of(&self, id: Id) -> Option<&String> {
        self.by_id.get(&id)
    }

    /// How many there are on a shard.
    pub fn on_shard(&self, shard: usize) -> usize {
        self.by_shard.get(&shard).copied().unwrap_or(0)
    }
}

impl Deref for Names {
    type Target = BTreeMap<String, Place>;
    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ids_and_counts_agree_while_a_volume_is_renamed() {
        let mut names = Names::default();
        let place = |shard: usize, id: u128| Place { shard, id: Id(id) };
        names.insert("a".into(), place(0, 1));
        names.insert("b".into(), place(1, 2));
        // The new name is there before the old one goes.
        names.insert("c".into(), place(0, 1));
        assert_eq!((names.on_shard(0), names.of(Id(1)).map(String::as_str)), (2, Some("c")));
        names.remove("a");
        assert_eq!((names.on_shard(0), names.of(Id(1)).map(String::as_str)), (1, Some("c")));
        // A name that becomes another's.
        names.insert("b".into(), place(0, 3));
        assert_eq!((names.on_shard(0), names.on_shard(1), names.of(Id(2)), names.len()), (2, 0, None, 2));
    }
}
