//! Which row of a table each record has. A record keeps its row, so that a checkpoint writes only the leaves in which something changed.
//!
//! A row that is let go is the next to be taken. Rows of two sorts never share a leaf: the chunk table has the chunks of nodes apart
//! ([`crate::tables`]).

use std::collections::{BTreeMap, BTreeSet};

/// Sorts of records that are kept apart.
const SORTS: usize = 2;

/// The rows of a table whose records have keys.
#[derive(Debug)]
pub(crate) struct Rows<K> {
    per_leaf: u64,
    by_key: BTreeMap<K, u64>,
    keys: BTreeMap<u64, K>,
    /// Leaves with a record: of which sort, and how many.
    leaves: BTreeMap<u64, (usize, u64)>,
    /// Rows without a record in such leaves.
    free: [BTreeSet<u64>; SORTS],
    /// Every leaf below this one has a record.
    search_from: u64,
}

impl<K: Copy + Ord> Rows<K> {
    pub fn new(per_leaf: u64) -> Rows<K> {
        let (by_key, keys, leaves) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Rows { per_leaf, by_key, keys, leaves, free: Default::default(), search_from: 0 }
    }

    /// What a stored table says: the record in this row has this key. False when another row has it.
    #[must_use]
    pub fn load(&mut self, row: u64, key: K, sort: usize) -> bool {
        let leaf = self.leaf(row);
        if !self.leaves.contains_key(&leaf) {
            self.begin(leaf, sort);
        }
        let sort = self.leaves[&leaf].0;
        let is_new = self.free[sort].remove(&row) && !self.by_key.contains_key(&key);
        if is_new {
            self.put(row, key);
        }
        is_new
    }

    fn leaf(&self, row: u64) -> u64 {
        row / self.per_leaf
    }

    fn put(&mut self, row: u64, key: K) {
        self.by_key.insert(key, row);
        self.keys.insert(row, key);
        let leaf = self.leaf(row);
        self.leaves.get_mut(&leaf).expect("its leaf has begun").1 += 1;
    }

    /// A leaf gets its first record.
    fn begin(&mut self, leaf: u64, sort: usize) {
        self.leaves.insert(leaf, (sort, 0));
        self.free[sort].extend(leaf * self.per_leaf..(leaf + 1) * self.per_leaf);
    }

    /// The leaf with the record of this key.
    pub fn leaf_of(&self, key: K) -> Option<u64> {
        self.by_key.get(&key).map(|row| self.leaf(*row))
    }

    /// The leaf with the record of this key, which gets a row if it has none.
    pub fn take(&mut self, key: K, sort: usize) -> u64 {
        if let Some(leaf) = self.leaf_of(key) {
            return leaf;
        }
        if self.free[sort].is_empty() {
            let unused = |leaf: &u64| !self.leaves.contains_key(leaf);
            self.search_from = (self.search_from..).find(unused).expect("leaves do not run out");
            self.begin(self.search_from, sort);
        }
        let row = self.free[sort].pop_first().expect("a leaf has begun");
        self.put(row, key);
        self.leaf(row)
    }

    /// Takes the row of this key away; gives the leaf that it was in.
    pub fn remove(&mut self, key: K) -> Option<u64> {
        let row = self.by_key.remove(&key)?;
        self.keys.remove(&row);
        let leaf = self.leaf(row);
        let (sort, used) = self.leaves.get_mut(&leaf).expect("a row that is in use is in a leaf that is");
        let sort = *sort;
        *used -= 1;
        if *used > 0 {
            self.free[sort].insert(row);
            return Some(leaf);
        }
        self.leaves.remove(&leaf);
        (leaf * self.per_leaf..(leaf + 1) * self.per_leaf).for_each(|row| _ = self.free[sort].remove(&row));
        self.search_from = self.search_from.min(leaf);
        Some(leaf)
    }

    /// The keys of a leaf, each with its place there.
    pub fn in_leaf(&self, leaf: u64) -> impl Iterator<Item = (usize, K)> {
        let first = leaf * self.per_leaf;
        self.keys.range(first..first + self.per_leaf).map(move |(row, key)| ((row - first) as usize, *key))
    }

    /// Leaves up to the last one that has a record.
    pub fn leaves(&self) -> u64 {
        self.leaves.last_key_value().map_or(0, |(leaf, _)| leaf + 1)
    }

    /// Leaves that have a record.
    pub fn leaves_in_use(&self) -> usize {
        self.leaves.len()
    }

    /// The row at a place of a leaf, if that has so many.
    pub fn row(&self, leaf: u64, place: usize) -> Option<u64> {
        let place = u64::try_from(place).ok().filter(|place| *place < self.per_leaf)?;
        leaf.checked_mul(self.per_leaf)?.checked_add(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_row_and_rows_of_two_sorts_share_no_leaf() {
        let mut rows: Rows<u32> = Rows::new(3);
        let leaves: Vec<u64> = (0..4).map(|key| rows.take(key, 0)).collect();
        assert_eq!((leaves, rows.take(9, 1), rows.take(1, 0)), (vec![0, 0, 0, 1], 2, 0));
        assert_eq!(
            (rows.remove(1), rows.remove(1), rows.take(7, 0)),
            (Some(0), None, 0),
            "the row is taken again"
        );
        assert_eq!(rows.in_leaf(0).collect::<Vec<_>>(), [(0, 0), (1, 7), (2, 2)]);
        // An empty leaf is anybody's.
        assert_eq!((rows.remove(3), rows.take(8, 1), rows.take(6, 1), rows.take(5, 1)), (Some(1), 2, 2, 1));
        assert_eq!((rows.take(4, 0), rows.leaves()), (3, 4));
    }

    #[test]
    fn what_was_stored_is_there_again_and_nothing_twice() {
        let mut rows: Rows<u32> = Rows::new(3);
        assert!(rows.load(7, 70, 1) && rows.load(1, 10, 0) && !rows.load(7, 71, 1) && !rows.load(8, 70, 1));
        assert_eq!((rows.leaf_of(70), rows.take(20, 0), rows.take(30, 1)), (Some(2), 0, 2));
        assert_eq!((rows.in_leaf(0).collect::<Vec<_>>(), rows.take(40, 0)), (vec![(0, 20), (1, 10)], 0));
        assert_eq!(rows.take(50, 0), 1, "the first leaf that has nothing");
    }
}
