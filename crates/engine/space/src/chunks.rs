//! A shard's chunks by number. Every write looks several of them up, so that is a hash of the number; where it matters which comes first they have an
//! order, so that a run can be repeated.
//!
//! A shard may have millions. So what is asked for again and again is kept, and nothing passes over all: how much is free of each kind, which chunks
//! have nothing in them, which have about so much free. Invariant: these say what the bitmaps say. Whoever changes what is busy in a
//! chunk does so through [`Chunks::change`].

use crate::address::ChunkId;
use crate::chunk::{Chunk, ChunkKind, lacks_nothing};
use crate::held::CLASSES;
use forebay_base::NumberHasher;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::ops::Index;

/// Data of each class, nodes, and the log.
const KINDS: usize = CLASSES + 2;
/// Four for each power of two of free units, and one for none.
const RANKS: usize = 1 + 4 * 32;

/// Free units, and all, of the chunks of a kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Sum {
    pub free: u64,
    pub units: u64,
}

/// The chunks of one kind.
struct OfKind {
    sum: Sum,
    /// By how much is free in them.
    by_rank: Box<[BTreeSet<ChunkId>]>,
    /// None of them ever had fewer units.
    units_min: u32,
}

/// Bitmaps that are needed and are met in one go by whoever looks for some to forget.
const REFUSALS_MAX: usize = 1024;

pub(crate) struct Chunks {
    by_id: HashMap<ChunkId, Chunk, BuildHasherDefault<NumberHasher>>,
    order: BTreeSet<ChunkId>,
    kinds: [OfKind; KINDS],
    /// By group, the units in use, and all units of the log's.
    busy_of_group: Vec<u64>,
    /// In which nothing is busy.
    empty: BTreeSet<ChunkId>,
    /// Whose bitmaps may not have the same memory.
    apart: Vec<ChunkId>,
    /// Of which it is known which units are in use, the ones first that were found to be at rest first; and the bytes that takes.
    read: VecDeque<ChunkId>,
    read_bytes: usize,
}

impl Default for Chunks {
    fn default() -> Chunks {
        let of_kind = |_| OfKind {
            sum: Sum::default(),
            by_rank: vec![BTreeSet::new(); RANKS].into(),
            units_min: u32::MAX,
        };
        Chunks {
            by_id: HashMap::default(),
            order: BTreeSet::new(),
            kinds: std::array::from_fn(of_kind),
            busy_of_group: Vec::new(),
            empty: BTreeSet::new(),
            apart: Vec::new(),
            read: VecDeque::new(),
            read_bytes: 0,
        }
    }
}

fn nth(kind: ChunkKind) -> usize {
    match kind {
        ChunkKind::Data { class } => usize::from(class),
        ChunkKind::Node => CLASSES,
        ChunkKind::Log => CLASSES + 1,
    }
}

/// The rank of so many free units: none before one with fewer.
fn rank(free: u32) -> usize {
    match free.checked_ilog2() {
        None => 0,
        Some(power) => 1 + 4 * power as usize + ((u64::from(free) << 2 >> power) & 3) as usize,
    }
}

/// The most free units of a rank.
fn most_of(rank: usize) -> u64 {
    match rank.checked_sub(1) {
        None => 0,
        Some(nth) => ((5 + nth as u64 % 4) << (nth / 4)).div_ceil(4) - 1,
    }
}

impl Chunks {
    /// Adds a chunk; gives the one of this number that was there.
    pub fn insert(&mut self, chunk: Chunk) -> Option<Chunk> {
        let before = self.remove(chunk.entry.id);
        self.add(&chunk);
        self.order.insert(chunk.entry.id);
        if chunk.is_apart {
            self.apart.push(chunk.entry.id);
        }
        self.by_id.insert(chunk.entry.id, chunk);
        before
    }

    pub fn remove(&mut self, id: ChunkId) -> Option<Chunk> {
        let chunk = self.by_id.remove(&id)?;
        self.order.remove(&id);
        self.empty.remove(&id);
        self.read_bytes -= if chunk.is_kept { map_bytes(&chunk) } else { 0 };
        let (of_kind, free) = (&mut self.kinds[nth(chunk.entry.kind)], chunk.busy.zeros());
        of_kind.sum.free -= u64::from(free);
        of_kind.sum.units -= u64::from(chunk.entry.units);
        of_kind.by_rank[rank(free)].remove(&id);
        self.busy_of_group[usize::from(chunk.entry.group)] -= busy_of(&chunk);
        Some(chunk)
    }

    fn add(&mut self, chunk: &Chunk) {
        let (of_kind, free, id) =
            (&mut self.kinds[nth(chunk.entry.kind)], chunk.busy.zeros(), chunk.entry.id);
        of_kind.sum.free += u64::from(free);
        of_kind.sum.units += u64::from(chunk.entry.units);
        of_kind.by_rank[rank(free)].insert(id);
        of_kind.units_min = of_kind.units_min.min(chunk.entry.units);
        if chunk.busy.is_empty() {
            self.empty.insert(id);
        }
        let group = usize::from(chunk.entry.group);
        self.busy_of_group.resize(self.busy_of_group.len().max(group + 1), 0);
        self.busy_of_group[group] += busy_of(chunk);
    }

    pub fn get(&self, id: ChunkId) -> Option<&Chunk> {
        self.by_id.get(&id)
    }

    /// To change anything but what is busy.
    pub fn get_mut(&mut self, id: ChunkId) -> Option<&mut Chunk> {
        self.by_id.get_mut(&id)
    }

    /// Changes what is busy in a chunk that is there.
    pub fn change<T>(&mut self, id: ChunkId, change: impl FnOnce(&mut Chunk) -> T) -> T {
        let chunk = self.by_id.get_mut(&id).expect("only what is owned changes");
        let before = chunk.busy.zeros();
        let result = change(chunk);
        let after = chunk.busy.zeros();
        let of_kind = &mut self.kinds[nth(chunk.entry.kind)];
        of_kind.sum.free = of_kind.sum.free + u64::from(after) - u64::from(before);
        if rank(before) != rank(after) {
            of_kind.by_rank[rank(before)].remove(&id);
            of_kind.by_rank[rank(after)].insert(id);
        }
        if after > before {
            chunk.lacks = lacks_nothing();
        }
        if after == chunk.entry.units {
            self.empty.insert(id);
        } else if before == chunk.entry.units {
            self.empty.remove(&id);
        }
        if chunk.entry.kind != ChunkKind::Log {
            let busy = &mut self.busy_of_group[usize::from(chunk.entry.group)];
            *busy = *busy + u64::from(before) - u64::from(after);
        }
        if !std::mem::replace(&mut chunk.is_apart, true) {
            self.apart.push(id);
        }
        result
    }

    /// Where nothing is on its way any more, all bitmaps of a chunk get the same memory.
    pub fn share_bitmaps(&mut self) {
        let (by_id, read, bytes) = (&mut self.by_id, &mut self.read, &mut self.read_bytes);
        self.apart.retain(|id| {
            let Some(chunk) = by_id.get_mut(id) else { return false };
            chunk.is_apart = !chunk.share_bitmaps() || chunk.dirty;
            // One that is full or empty, or that nothing but memory knows, takes nothing that could be spared.
            let may_go = chunk.may_forget() && !chunk.busy.is_uniform();
            if may_go && !std::mem::replace(&mut chunk.is_kept, true) {
                read.push_back(*id);
                *bytes += map_bytes(chunk);
            }
            chunk.is_apart
        });
        // Those that have left are still in line.
        if self.read.len() > 64 + 2 * self.by_id.len() {
            let (by_id, mut seen) = (&self.by_id, BTreeSet::new());
            self.read.retain(|id| by_id.get(id).is_some_and(|chunk| chunk.is_kept) && seen.insert(*id));
        }
    }

    /// Forgets bitmaps until the others take no more than so many bytes; those that `is_needed` names stay, and what no record says.
    pub fn forget_maps(&mut self, most: usize, is_needed: impl Fn(ChunkId) -> bool) {
        let mut refusals = 0;
        for _ in 0..self.read.len() {
            if self.read_bytes <= most || refusals == REFUSALS_MAX {
                return;
            }
            let id = self.read.pop_front().expect("counted just now");
            // It may have left, and another be there.
            let Some(chunk) = self.by_id.get_mut(&id).filter(|chunk| chunk.is_kept) else { continue };
            if chunk.may_forget() && !is_needed(id) {
                self.read_bytes -= map_bytes(chunk);
                chunk.is_kept = false;
                chunk.forget_map();
            } else {
                refusals += 1;
                self.read.push_back(id);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All, in the order of their numbers.
    pub fn in_order(&self) -> impl Iterator<Item = &Chunk> {
        self.order.iter().map(|id| &self.by_id[id])
    }

    /// Those from a number on, in order.
    pub fn from(&self, id: ChunkId) -> impl Iterator<Item = &Chunk> {
        self.order.range(id..).map(|id| &self.by_id[id])
    }

    /// All, in no order: for who sorts or adds up.
    pub fn values(&self) -> impl Iterator<Item = &Chunk> {
        self.by_id.values()
    }

    /// In which nothing is busy, in the order of their numbers.
    pub fn empty(&self) -> impl Iterator<Item = &Chunk> {
        self.empty.iter().map(|id| &self.by_id[id])
    }

    pub fn of_kind(&self, kind: ChunkKind) -> impl Iterator<Item = &Chunk> {
        self.kinds[nth(kind)].by_rank.iter().flatten().map(|id| &self.by_id[id])
    }

    /// What is free of a kind.
    pub fn sum(&self, kind: ChunkKind) -> Sum {
        self.kinds[nth(kind)].sum
    }

    /// What is free of all data.
    pub fn sum_of_data(&self) -> Sum {
        let add = |sum: Sum, of_kind: &OfKind| Sum {
            free: sum.free + of_kind.sum.free,
            units: sum.units + of_kind.sum.units,
        };
        self.kinds[..CLASSES].iter().fold(Sum::default(), add)
    }

    /// By group, the units in use.
    pub fn busy_of_groups(&self) -> impl Iterator<Item = (u16, u64)> {
        self.busy_of_group.iter().enumerate().map(|(group, busy)| (group as u16, *busy))
    }

    /// The chunks of these kinds in which `least` units or more are free, the emptiest first, in groups of about as much: none of a group has more
    /// than one of the group before.
    pub fn emptiest_first(
        &self,
        kinds: impl Iterator<Item = ChunkKind> + Clone,
        least: u64,
    ) -> impl Iterator<Item = impl Iterator<Item = &Chunk>> {
        let ranks = (0..RANKS).rev().take_while(move |rank| most_of(*rank) >= least);
        ranks.map(move |rank| {
            let of_rank = kinds.clone().flat_map(move |kind| &self.kinds[nth(kind)].by_rank[rank]);
            of_rank.map(|id| &self.by_id[id])
        })
    }

    /// No chunk of this kind has fewer units.
    pub fn units_min(&self, kind: ChunkKind) -> u32 {
        self.kinds[nth(kind)].units_min
    }

    /// Whether what is kept is what the bitmaps say.
    pub fn is_consistent(&self) -> bool {
        let mut counted = Chunks::default();
        self.values().for_each(|chunk| counted.add(chunk));
        let alike = |(one, other): (&OfKind, &OfKind)| one.sum == other.sum && one.by_rank == other.by_rank;
        counted.busy_of_group.resize(self.busy_of_group.len(), 0);
        counted.kinds.iter().zip(&self.kinds).all(alike)
            && counted.empty == self.empty
            && counted.busy_of_group == self.busy_of_group
    }
}

/// Memory for a bitmap, whether what it says takes it now or not.
fn map_bytes(chunk: &Chunk) -> usize {
    chunk.entry.units as usize / 8
}

fn busy_of(chunk: &Chunk) -> u64 {
    match chunk.entry.kind {
        ChunkKind::Log => u64::from(chunk.entry.units),
        ChunkKind::Data { .. } | ChunkKind::Node => u64::from(chunk.busy.ones()),
    }
}

impl Index<ChunkId> for Chunks {
    type Output = Chunk;
    fn index(&self, id: ChunkId) -> &Chunk {
        &self.by_id[&id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_in_another_way_is_found() {
        let id = ChunkId(1);
        let entry = crate::ChunkEntry::fresh(id, ChunkKind::Node, 0, 64, Vec::new());
        let mut chunks = Chunks::default();
        chunks.insert(Chunk::fresh(entry));
        chunks.change(id, |chunk| chunk.busy.set(0, 8));
        assert!(chunks.is_consistent() && chunks.empty().next().is_none());
        assert_eq!(chunks.sum(ChunkKind::Node), Sum { free: 56, units: 64 });
        chunks.get_mut(id).expect("there").busy.set(8, 32);
        assert!(!chunks.is_consistent());
        chunks.get_mut(id).expect("there").busy.clear(8, 32);
        chunks.change(id, |chunk| chunk.busy.clear(0, 8));
        assert!(chunks.is_consistent() && chunks.empty().count() == 1);
        chunks.remove(id);
        assert!(chunks.is_consistent() && chunks.sum(ChunkKind::Node) == Sum::default());
    }

    #[test]
    fn a_rank_begins_where_the_one_before_ends() {
        let mut last = 0;
        for free in 0..100_000 {
            let now = rank(free);
            assert!(now >= last && u64::from(free) <= most_of(now), "{free}");
            assert!(now == last || u64::from(free) == most_of(last) + 1 || free <= 8, "{free}");
            last = now;
        }
        assert!(rank(u32::MAX) < RANKS && most_of(rank(u32::MAX)) >= u64::from(u32::MAX));
    }
}
