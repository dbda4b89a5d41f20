//! The pool's registry as clients use it: one change at a time, of several items together, and what may be there after a crash.
//!
//! Every value begins with the number of the change that put it, so what is there says which changes were made. A change that was acknowledged must
//! be there, all of it; one that was not may be, all of it or nothing; nothing is there from before a change that is.

use crate::oracle::{NEVER, Span};
use forebay_pool::ItemChanges;
use std::collections::{BTreeMap, BTreeSet};

/// Items that are used: some changes meet most of them, and the others some.
pub const ITEMS: u64 = 12;

/// One change: items and the bytes of their values, or nothing where they were taken away.
#[derive(Clone, Debug)]
pub struct Put {
    pub items: BTreeMap<u64, Option<usize>>,
    pub span: Span,
}

/// All changes, in the order in which they were made. Change n has number n + 1.
#[derive(Clone, Default, Debug)]
pub struct Registry {
    pub puts: Vec<Put>,
}

fn key(item: u64) -> String {
    // Some are as long as they can be.
    format!("item/{item:0width$}", width = if item.is_multiple_of(3) { 250 } else { 2 })
}

fn value(number: usize, item: u64, bytes: usize) -> Vec<u8> {
    let start = (number as u32).to_le_bytes().into_iter().chain([item as u8]);
    start.chain((0..).map(|nth: usize| (nth * 7 + number + item as usize) as u8)).take(bytes).collect()
}

/// What may be there besides: put after an import, to see that it can be.
pub const AFTERWARDS: &str = "afterwards";
/// Bytes of a value at least: number and item.
pub const VALUE_MIN: usize = 5;

impl Registry {
    /// A change is asked for; what the engine is asked.
    pub fn issue(&mut self, items: BTreeMap<u64, Option<usize>>, issued: u64) -> ItemChanges {
        let number = self.puts.len() + 1;
        let changes =
            items.iter().map(|(item, bytes)| (key(*item), bytes.map(|bytes| value(number, *item, bytes))));
        let changes = changes.collect();
        self.puts.push(Put { items, span: Span { issued, acknowledged: NEVER } });
        changes
    }

    /// The last one was refused: it must not be there.
    pub fn refused(&mut self) {
        self.puts.last_mut().expect("one was issued").items.clear();
    }

    pub fn acknowledged(&mut self, at: u64) {
        self.puts.last_mut().expect("one was issued").span.acknowledged = at;
    }

    /// Judges what is there after a crash at a tick. Where what is durable may be lost, no change has to be there; where parts of the
    /// registry may be lost, any item may be missing.
    pub fn judge(
        &self,
        found: &BTreeMap<String, Vec<u8>>,
        at: u64,
        (durability, whole): (bool, bool),
    ) -> Result<(), String> {
        let issued = self.puts.iter().take_while(|put| put.span.issued <= at).count();
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        for item in 0..ITEMS {
            let Some(bytes) = found.get(&key(item)) else { continue };
            let number = bytes.first_chunk().map_or(0, |number| u32::from_le_bytes(*number) as usize);
            let put = number.checked_sub(1).and_then(|nth| self.puts[..issued].get(nth));
            let wanted = put.and_then(|put| *put.items.get(&item)?);
            if wanted.map(|len| value(number, item, len)).as_ref() != Some(bytes) {
                return Err(format!(
                    "item {item} of the registry has {} bytes that were never put there",
                    bytes.len()
                ));
            }
            seen.insert(item, number);
        }
        if let Some(strange) =
            found.keys().find(|found| *found != AFTERWARDS && (0..ITEMS).all(|item| key(item) != **found))
        {
            return Err(format!("the registry has an item that was never put: {strange}"));
        }
        let is_made = |number: &usize| {
            (durability && self.puts[number - 1].span.acknowledged <= at)
                || (whole && seen.values().any(|seen| seen == number))
        };
        let mut made: BTreeSet<usize> = (1..=issued).filter(is_made).collect();
        let last_of = |made: &BTreeSet<usize>, item: u64| {
            let touches = |number: &&usize| self.puts[**number - 1].items.contains_key(&item);
            made.iter().rev().find(touches).copied().unwrap_or(0)
        };
        let takes = |number: usize, item: u64| self.puts[number - 1].items.get(&item) == Some(&None);
        // What is missing was taken away by somebody: where only one change can have done it, that was made.
        while let Some(more) = (0..ITEMS).filter(|item| whole && !seen.contains_key(item)).find_map(|item| {
            let last = last_of(&made, item);
            let mut can = (last.max(1)..=issued).filter(|number| takes(*number, item));
            let (first, second) = (can.next()?, can.next());
            (last > 0 && second.is_none() && !made.contains(&first)).then_some(first)
        }) {
            made.insert(more);
        }
        for item in 0..ITEMS {
            let last = last_of(&made, item);
            let is_right = match seen.get(&item) {
                Some(number) => *number >= last,
                // Some change from there on took it away.
                None => last == 0 || !whole || (last..=issued).any(|number| takes(number, item)),
            };
            if !is_right {
                return Err(format!(
                    "item {item} of the registry is of change {:?}, and change {last} was made",
                    seen.get(&item)
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_torn_or_old_is_seen() {
        let mut registry = Registry::default();
        let mut found = registry.issue(BTreeMap::from([(1, Some(9)), (2, Some(700))]), 1);
        registry.acknowledged(2);
        let second = registry.issue(BTreeMap::from([(2, None), (4, Some(5))]), 3);
        let state = |changes: &ItemChanges| -> BTreeMap<String, Vec<u8>> {
            changes.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()
        };
        let strict = (true, true);
        let before = state(&found);
        assert_eq!(registry.judge(&before, 4, strict), Ok(()), "the second may be missing");
        found.extend(second);
        let after = state(&found);
        assert_eq!(registry.judge(&after, 4, strict), Ok(()), "or be there");
        assert!(registry.judge(&after, 2, strict).is_err(), "it was not asked for yet");
        let torn: BTreeMap<_, _> = before.iter().chain(&after).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert!(registry.judge(&torn, 4, strict).is_err());
        assert!(registry.judge(&BTreeMap::new(), 4, strict).is_err());
        let mut half = before.clone();
        half.remove(&key(2));
        assert!(registry.judge(&half, 4, strict).is_err(), "half of the second");
        assert_eq!(registry.judge(&BTreeMap::new(), 4, (false, false)), Ok(()));
        let mut wrong = after.clone();
        wrong.values_mut().next().expect("there is one").push(0);
        assert!(registry.judge(&wrong, 4, (false, false)).is_err());
        registry.acknowledged(5);
        assert!(registry.judge(&before, 5, strict).is_err(), "it was acknowledged");
    }
}
