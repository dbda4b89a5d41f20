//! Space that is held for reserved volumes.
//!
//! A *place* of a class is an aligned run of 2^class free units in a data chunk of that class. What reserved volumes are *owed* is
//! counted in places; the shard tells. Others take a place only while more are left than are owed, so those that are owed it
//! always find one. While a class is owed anything, blocks of other classes stay out of its chunks: a small block would spoil a large place.
//!
//! What is owed no longer stays held until the checkpoint that says so is durable: a crash before it goes back to where it was owed.
//!
//! What lies in chunks that are being emptied is to move into other chunks of its class, and counts against what is free there.

use crate::address::{ChunkId, NODE_UNITS, Ptr};
use crate::allocator::Space;
use crate::chunk::{Chunk, ChunkKind};
use std::cell::Cell;

/// Block classes: 4 KiB to 128 KiB.
pub const CLASSES: usize = 6;
/// Pointers of one leaf.
const LEAF_BLOCKS: u64 = 508;
/// Nodes that one write of a reserved volume makes dirty, at most, beside those that it needs for good.
const NODES_IN_TRANSIT: u64 = 48;

/// What is held of one class.
#[derive(Default)]
pub(crate) struct Held {
    /// Places that are owed now, that were at the last freeze, and that were at the last checkpoint which is durable.
    owed: u64,
    frozen: u64,
    durable: u64,
    /// Places that somebody is about to be owed: nothing durable says so, and what is taken back is held no longer at once.
    pledged: u64,
    /// Free places, less those that what is being moved will take; nothing when they have to be counted.
    free: Cell<Option<i64>>,
}

impl Held {
    fn places(&self) -> u64 {
        self.owed.max(self.frozen).max(self.durable) + self.pledged
    }
}

/// The class of a chunk of data.
fn class_of(kind: ChunkKind) -> Option<usize> {
    match kind {
        ChunkKind::Data { class } => Some(usize::from(class)),
        ChunkKind::Node | ChunkKind::Log => None,
    }
}

impl Space {
    /// Sets how many places of a class are owed, and how many somebody is about to be owed.
    pub fn set_owed(&mut self, class: u8, owed: u64, pledged: u64) {
        let held = &mut self.held[usize::from(class)];
        if held.places() == 0 && owed + pledged > 0 {
            held.free.set(None);
            // Whoever fills holes of other classes does so no longer.
            self.forget_holes();
        }
        let held = &mut self.held[usize::from(class)];
        (held.owed, held.pledged) = (owed, pledged);
    }

    /// Whether no places and no nodes are owed.
    pub fn owes_nothing(&self) -> bool {
        self.owed_inner == 0 && self.held.iter().all(|held| held.owed == 0 && held.pledged == 0)
    }

    /// Changes what is owed by the difference of what one volume was owed and is.
    pub fn owe(&mut self, class: u8, before: u64, now: u64) {
        let held = &mut self.held[usize::from(class)];
        held.owed = (held.owed + now).saturating_sub(before);
    }

    /// Interior nodes that reserved volumes are owed.
    pub fn set_owed_inner(&mut self, nodes: u64) {
        self.owed_inner = nodes;
    }

    /// Places of a class that are owed now.
    pub fn owed(&self, class: u8) -> u64 {
        self.held[usize::from(class)].owed
    }

    /// Whether more is held than is owed: a checkpoint changes that.
    pub fn is_easing(&self) -> bool {
        self.held.iter().any(|held| held.places() > held.owed + held.pledged)
    }

    /// Nodes that must stay free for blocks that are owed a place.
    pub fn nodes_held(&self) -> u64 {
        let leaves: u64 = self.held.iter().map(|held| held.places().div_ceil(LEAF_BLOCKS)).sum();
        if leaves == 0 { 0 } else { leaves + self.owed_inner + NODES_IN_TRANSIT }
    }

    /// Whether places of a chunk's class are held, so that other classes stay out of it.
    pub(crate) fn is_held(&self, kind: ChunkKind) -> bool {
        matches!(kind, ChunkKind::Data { class } if self.held[usize::from(class)].places() > 0)
    }

    /// Places of a class that anybody may take.
    pub fn spare(&self, class: u8) -> u64 {
        match self.held[usize::from(class)].places() {
            0 => u64::MAX,
            held => (self.places_free(class) - held as i64).max(0) as u64,
        }
    }

    /// Places of a class that are held and not there.
    pub fn lacking(&self, class: u8) -> u64 {
        match self.held[usize::from(class)].places() {
            0 => 0,
            held => (held as i64 - self.places_free(class)).max(0) as u64,
        }
    }

    /// The same, of what is owed now: what is owed no longer has got its place, or none is needed, and a crash before a checkpoint says so would
    /// take both back.
    pub fn lacking_owed(&self, class: u8) -> u64 {
        let held = &self.held[usize::from(class)];
        match held.owed + held.pledged {
            0 => 0,
            owed => (owed as i64 - self.places_free(class)).max(0) as u64,
        }
    }

    /// The same, if a group were vacated.
    pub fn lacking_without(&self, class: u8, group: u16) -> u64 {
        let held = self.held[usize::from(class)].places() as i64;
        let free = self.count_places(class, |chunk| chunk.entry.group == group);
        if held == 0 { 0 } else { (held - free).max(0) as u64 }
    }

    /// Free places of a class, less those that what is being moved will take.
    pub fn places_free(&self, class: u8) -> i64 {
        let cache = &self.held[usize::from(class)].free;
        let free = cache.get().unwrap_or_else(|| self.count_places(class, |_| false));
        cache.set(Some(free));
        free
    }

    fn count_places(&self, class: u8, is_emptied: impl Fn(&Chunk) -> bool) -> i64 {
        let places = |chunk: &Chunk| {
            let id = chunk.entry.id;
            if self.closed.contains(&id) || self.is_vacated(chunk) || is_emptied(chunk) {
                return -i64::from(chunk.busy.ones().div_ceil(1 << class));
            }
            i64::from(chunk.places())
        };
        self.chunks.of_kind(ChunkKind::Data { class }).map(places).sum()
    }

    /// Units were taken in a chunk, or have come back. What is not whole places is counted when somebody asks.
    pub(crate) fn note_places(&self, kind: ChunkKind, at: u32, units: u32, is_taken: bool) {
        let Some(class) = class_of(kind) else { return };
        let is_whole = (at | units).trailing_zeros() as usize >= class;
        let change = i64::from(units >> class) * if is_taken { -1 } else { 1 };
        let free = &self.held[class].free;
        free.set(free.get().filter(|_| is_whole).map(|free| free + change));
    }

    /// What is free has changed in a way that must be counted.
    pub(crate) fn recount_places(&self) {
        self.held.iter().for_each(|held| held.free.set(None));
    }

    /// Whether a place is in a chunk of this class.
    pub fn is_at_home(&self, ptr: &Ptr, class: u8) -> bool {
        self.chunks.get(ptr.addr().chunk()).and_then(|chunk| class_of(chunk.entry.kind))
            == Some(usize::from(class))
    }

    /// How many of these blocks, born after `since`, lie in places of this class, and how many do not.
    pub fn at_home(&self, class: u8, ptrs: &[Ptr], since: u64) -> (u64, u64) {
        let (mut home, mut strays) = (0, 0);
        let mut last = (ChunkId(0), false);
        for ptr in ptrs.iter().filter(|ptr| ptr.birth() > since) {
            let id = ptr.addr().chunk();
            // One that was made smaller frees no place.
            if ptr.kind() != 0 {
                strays += 1;
                continue;
            }
            if last.0 != id {
                let class = Some(usize::from(class));
                last = (id, self.chunks.get(id).is_some_and(|chunk| class_of(chunk.entry.kind) == class));
            }
            if last.1 { home += 1 } else { strays += 1 }
        }
        (home, strays)
    }

    /// What an import found owed is.
    pub fn held_since_import(&mut self) {
        self.held.iter_mut().for_each(|held| (held.frozen, held.durable) = (held.owed, held.owed));
        self.recount_places();
    }

    /// Part of closing a period: what is owed goes into the running checkpoint.
    pub(crate) fn freeze_held(&mut self) {
        self.held.iter_mut().for_each(|held| held.frozen = held.owed);
    }

    /// That checkpoint is durable.
    pub(crate) fn release_held(&mut self) {
        self.held.iter_mut().for_each(|held| held.durable = held.frozen);
        self.recount_places();
    }

    /// Of these empty chunks, those that reserved volumes can do without.
    pub(crate) fn may_leave(&self, chunks: Vec<ChunkId>) -> Vec<ChunkId> {
        let mut spare = [0; CLASSES].map(|_: u64| None);
        let mut nodes = self.nodes_free().saturating_sub(self.nodes_held());
        let nodes_held = self.nodes_held();
        let may = |id: &ChunkId| {
            let chunk = &self.chunks[*id];
            if self.is_vacated(chunk) || self.closed.contains(id) {
                return true;
            }
            let (spare, size) = match class_of(chunk.entry.kind) {
                None if nodes_held == 0 => return true,
                None => (&mut nodes, chunk.entry.units / NODE_UNITS),
                Some(class) => {
                    (spare[class].get_or_insert_with(|| self.spare(class as u8)), chunk.entry.units >> class)
                }
            };
            let left = spare.checked_sub(u64::from(size));
            *spare = left.unwrap_or(*spare);
            left.is_some()
        };
        chunks.into_iter().filter(may).collect()
    }

    /// Whether a chunk of data may be emptied into others: `spare` is what the classes have beside what is held.
    pub(crate) fn may_empty(&self, chunk: &Chunk, spare: &mut [Option<u64>; CLASSES]) -> bool {
        let Some(class) = class_of(chunk.entry.kind) else { return false };
        let spare = spare[class].get_or_insert_with(|| self.spare(class as u8));
        let left = spare.checked_sub(u64::from(chunk.entry.units >> class));
        *spare = left.unwrap_or(*spare);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::ChunkEntry;
    use crate::size::Lines;
    use forebay_base::Checksum;
    use forebay_device::SlotRef;

    fn space(kinds: &[(u8, u32)]) -> Space {
        let mut space = Space::new(vec![Lines::default()]);
        for (nth, (class, units)) in kinds.iter().enumerate() {
            let id = ChunkId(nth as u32 + 1);
            let (kind, slots) = (ChunkKind::Data { class: *class }, vec![SlotRef { disk: 0, slot: id.0 }]);
            let entry = ChunkEntry::fresh(id, kind, 0, *units, slots);
            space.insert(Chunk::fresh(entry));
            space.grant_logged(id);
        }
        space
    }

    fn ptr(addr: crate::address::Addr, units: u32) -> Ptr {
        Ptr::new(addr, units * 4096, 1, Checksum(1))
    }

    #[test]
    fn what_is_owed_is_not_spare_and_comes_back_with_a_checkpoint() {
        let mut space = space(&[(1, 64), (0, 64)]);
        assert_eq!(space.spare(1), u64::MAX, "nothing is owed");
        space.set_owed(1, 30, 0);
        assert_eq!((space.spare(1), space.lacking(1), space.spare(0)), (2, 0, u64::MAX));
        let kind = ChunkKind::Data { class: 1 };
        let (first, _) = space.allocate_run(kind, 2, 2).expect("room");
        assert_eq!(space.spare(1), 0);
        space.give_back(&ptr(first, 2));
        assert_eq!(space.spare(1), 1);
        space.owe(1, 30, 10);
        assert_eq!(space.spare(1), 21, "owed less, and it was never owed by anything durable");
        space.freeze();
        space.owe(1, 10, 0);
        assert_eq!((space.spare(1), space.is_easing()), (21, true), "a crash would go back to it");
        space.seal();
        space.release();
        assert_eq!(space.spare(1), 21);
        space.freeze();
        space.seal();
        space.release();
        assert_eq!((space.spare(1), space.is_easing()), (u64::MAX, false));
    }

    /// Goal: a block that an import found in the log, and that has got the place that it was owed since, leaves nothing lacking, before a checkpoint
    /// says so as well.
    #[test]
    fn who_has_got_the_place_that_he_was_owed_lacks_none() {
        let mut space = space(&[(1, 64)]);
        space.set_owed(1, 32, 0);
        space.held_since_import();
        let kind = ChunkKind::Data { class: 1 };
        assert_eq!(space.allocate_run(kind, 2, 2).map(|(_, count)| count), Ok(2));
        space.owe(1, 2, 0);
        assert_eq!((space.lacking(1), space.lacking_owed(1)), (2, 0));
        assert_eq!(space.allocate_run(kind, 2, 1).map(|(_, count)| count), Ok(1));
        assert_eq!(space.lacking_owed(1), 1);
    }

    #[test]
    fn what_is_pledged_and_taken_back_is_held_no_longer_whatever_checkpoint_came_between() {
        let mut space = space(&[(1, 64)]);
        space.set_owed(1, 2, 20);
        assert_eq!((space.spare(1), space.lacking(1)), (10, 0));
        space.freeze();
        space.seal();
        space.release();
        assert!(!space.is_easing());
        space.set_owed(1, 2, 0);
        assert_eq!((space.spare(1), space.owed(1)), (30, 2));
    }

    #[test]
    fn small_blocks_stay_out_of_chunks_that_are_held() {
        let mut space = space(&[(3, 64)]);
        space.declare_scarce();
        let small = ChunkKind::Data { class: 0 };
        let hole = space.allocate(small, 1).expect("a hole of another class");
        space.give_back(&ptr(hole, 1));
        space.set_owed(3, 8, 0);
        assert!(space.allocate(small, 1).is_err());
        assert_eq!((space.spare(3), space.lacking(3)), (0, 0));
        space.set_owed(3, 9, 0);
        assert_eq!(space.lacking(3), 1);
    }

    #[test]
    fn an_empty_chunk_stays_while_it_is_held_and_one_that_is_emptied_counts_against_the_others() {
        let mut space = space(&[(1, 64), (1, 64), (1, 64)]);
        space.set_owed(1, 40, 0);
        let all: Vec<ChunkId> = (1..=3).map(ChunkId).collect();
        assert_eq!(space.may_leave(all.clone()), [ChunkId(1)]);
        let kind = ChunkKind::Data { class: 1 };
        let (first, taken) = space.allocate_run(kind, 2, 8).expect("room");
        assert_eq!((taken, space.places_free(1)), (8, 88));
        space.close([first.chunk()].into());
        assert_eq!((space.places_free(1), space.lacking_without(1, 0)), (64 - 8, 40 + 8));
    }

    #[test]
    fn blocks_at_home_are_those_in_chunks_of_their_class() {
        let space = space(&[(1, 64), (0, 64)]);
        let at = |chunk: u32, unit: u32, birth: u64| {
            Ptr::new(crate::address::Addr::new(ChunkId(chunk), unit), 8192, birth, Checksum(1))
        };
        let ptrs = [at(1, 0, 5), at(1, 2, 4), at(2, 0, 6), at(9, 0, 6)];
        assert_eq!(space.at_home(1, &ptrs, 4), (1, 2));
        assert_eq!(space.at_home(1, &ptrs, 0), (2, 2));
    }
}
