//! Where the next blocks go: the chunk that is being filled, or one of several side by side.
//!
//! A chunk is on few disks. If one after the other were filled, a pool of sixty disks would take what is written in sequence at the rate of the two that have the
//! chunk, for gigabytes; and read it at that rate. So as many are filled side by side as find disks of their own: each is a *lane*. They take turns:
//! [`TURN_UNITS`] go to one, then the next has its turn. What is written together still lies together, and who reads it asks for as much at a time.
//!
//! Lanes are a preference and no promise. One that has no chunk lets another take its turn, and says so once ([`Space::take_narrow`]), so that the shard can ask for a
//! chunk more while nobody waits for it; only when no lane has room does somebody need one. Nodes have one lane: there are few, and their chunks are counted.

use crate::address::Addr;
use crate::allocator::{Fill, NeedChunk, Space, Stream};
use crate::choice::{Fresh, next_place};
use crate::chunk::{Chunk, ChunkKind};
use crate::lines::lines_in;
use crate::size::Size;
use forebay_base::planted::{Bug, active};
use std::collections::BTreeSet;

/// Lanes of one shard, at most: more keep more chunks half full, and no client has so much on its way.
pub const LANES_MAX: usize = 32;
/// Units that one lane takes before the next: 1 MiB, which is also the longest read of one disk.
const TURN_UNITS: u32 = 256;

/// What one request writes is worth an empty chunk from so many units on: 64 KiB, as short as what is read in sequence may be in pieces.
const LONG_UNITS: u32 = 16;

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Lanes {
    count: u8,
    turn: u8,
    /// Units taken in this turn.
    taken: u32,
    /// Those that found no chunk of their own since space came last.
    without: BTreeSet<Stream>,
    /// What kind of chunk one of them lacks.
    narrow: Option<ChunkKind>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes { count: 1, turn: 0, taken: 0, without: BTreeSet::new(), narrow: None }
    }
}

impl Lanes {
    /// There may be chunks for those that found none.
    pub fn look_again(&mut self) {
        self.without.clear();
    }

    /// So many units were taken; the next one's turn comes when it is enough, and no line is left half full.
    fn took(&mut self, units: u32, ends_line: bool) {
        self.taken = self.taken.saturating_add(units);
        if self.taken >= TURN_UNITS && ends_line {
            (self.turn, self.taken) = ((self.turn + 1) % self.count, 0);
        }
    }
}

impl Space {
    /// As many chunks of data of one kind are filled side by side, if they are to be had.
    pub fn set_lanes(&mut self, count: usize) {
        let count = count.clamp(1, LANES_MAX) as u8;
        self.open.retain(|stream, _| stream.lane < count);
        self.lanes = Lanes { count, ..Lanes::default() };
    }

    /// Chunks of data that are filled side by side.
    pub fn lanes(&self) -> usize {
        self.lanes.count.into()
    }

    /// The kind of chunk that a lane lacks, told once: another one has taken its turn.
    pub fn take_narrow(&mut self) -> Option<ChunkKind> {
        self.lanes.narrow.take()
    }

    /// Reserves 2^n units (`units`) for a block of `kind`; they count as busy until freed or given back.
    pub fn allocate(&mut self, kind: ChunkKind, units: u32) -> Result<Addr, NeedChunk> {
        self.allocate_run(kind, units, 1).map(|(addr, _)| addr)
    }

    /// Reserves places for up to `count` such blocks, one after the other: the first place and how many there are, at least one.
    pub fn allocate_run(
        &mut self,
        kind: ChunkKind,
        units: u32,
        count: u32,
    ) -> Result<(Addr, u32), NeedChunk> {
        if kind == ChunkKind::Node {
            self.nodes_free.set(None);
        }
        self.allocate_sized(kind, Size::whole(units), count)
    }

    /// Like [`Space::allocate_run`], for what one request writes: beside each other where that is to be had.
    pub fn allocate_request(
        &mut self,
        kind: ChunkKind,
        units: u32,
        count: u32,
    ) -> Result<(Addr, u32), NeedChunk> {
        // One block is a request of its own wherever it lies.
        let is_long = count > 1 && units.saturating_mul(count) >= LONG_UNITS;
        if !is_long || !self.spacious || self.has_lines() {
            return self.allocate_run(kind, units, count);
        }
        let taken = self.next_lane(kind, Fill::Long, Size::whole(units), units, count);
        taken.map(|(addr, taken, _)| (addr, taken)).ok_or(NeedChunk)
    }

    /// Reserves a place for a block that was made smaller.
    pub fn allocate_packed(&mut self, size: Size) -> Result<Addr, NeedChunk> {
        self.allocate_sized(ChunkKind::PACKED, size, 1).map(|(addr, _)| addr)
    }

    fn allocate_sized(&mut self, kind: ChunkKind, block: Size, count: u32) -> Result<(Addr, u32), NeedChunk> {
        let free = self.next_lane(kind, Fill::Free, block, block.units, count);
        let taken = match free {
            // Holes are filled where nothing better is to be had.
            None if self.scarce && self.sought.is_empty() => {
                self.bump(Stream { kind, fill: Fill::Holes, lane: 0 }, block, block.units, count)
            }
            taken => taken,
        };
        taken.map(|(addr, taken, _)| (addr, taken)).ok_or(NeedChunk)
    }

    /// Like [`Space::allocate_run`] for blocks of any size that are moved to lie beside each other: in chunks that began empty, whatever else is free.
    pub fn allocate_gathered(
        &mut self,
        kind: ChunkKind,
        block: Size,
        count: u32,
    ) -> Result<(Addr, u32), NeedChunk> {
        let taken = self.next_lane(kind, Fill::Gathered, block, block.units, count);
        taken.map(|(addr, taken, _)| (addr, taken)).ok_or(NeedChunk)
    }

    /// Reserves whole free lines for blocks of 2^n units (`units`), as few as whole blocks fill, if that is no more than `most`
    /// units: the first place, and how many units. Only free lines serve, also when space is scarce.
    pub fn allocate_lines(
        &mut self,
        kind: ChunkKind,
        units: u32,
        most: u32,
    ) -> Result<(Addr, u32), NeedChunk> {
        let taken = self.next_lane(kind, Fill::Lines, Size::whole(units), most, 1);
        taken.map(|(addr, _, size)| (addr, size)).ok_or(NeedChunk)
    }

    /// [`Space::bump`] in the lane whose turn it is, or else in the next that has room.
    fn next_lane(
        &mut self,
        kind: ChunkKind,
        fill: Fill,
        block: Size,
        most: u32,
        count: u32,
    ) -> Option<(Addr, u32, u32)> {
        self.sought.clear();
        if self.lanes.count == 1 || kind == ChunkKind::Node {
            return self.bump(Stream { kind, fill, lane: 0 }, block, most, count);
        }
        let Lanes { count: lanes, turn, taken, .. } = self.lanes;
        let count = count.min(TURN_UNITS.saturating_sub(taken).div_ceil(block.units).max(1));
        // Those that found no chunk before look again only when nobody else has room.
        for tries in [true, false] {
            for nth in 0..lanes {
                let stream = Stream { kind, fill, lane: (turn + nth) % lanes };
                if self.lanes.without.contains(&stream) == tries {
                    continue;
                }
                let sought = self.sought.len();
                let Some((addr, taken, size)) = self.bump(stream, block, most, count) else {
                    if !self.open.contains_key(&stream) {
                        self.lanes.without.insert(stream);
                        // Unless there may be one whose record is not read yet.
                        let narrow = (self.sought.len() == sought).then_some(kind);
                        self.lanes.narrow = narrow.or(self.lanes.narrow);
                    }
                    continue;
                };
                let line = self.line(&self.chunks[addr.chunk()]);
                let end = addr.unit() + taken * size;
                self.lanes.took(taken * size, line == 0 || end.is_multiple_of(line));
                return Some((addr, taken, size));
            }
        }
        None
    }

    /// Takes up to `count` pieces that follow each other, from the stream's open chunk or the emptiest of the others; gives their
    /// size, too, at most `most`.
    fn bump(&mut self, stream: Stream, block: Size, most: u32, count: u32) -> Option<(Addr, u32, u32)> {
        let mut at = self.open.get(&stream).copied();
        let (chunk, line, unit, size) = loop {
            if let Some((id, cursor)) = at {
                let chunk = self.chunks.get(id).expect("open chunks are owned");
                let lines = lines_in(&self.lines, chunk);
                let size = stream.piece(lines.units, block.units);
                // A small rest is no reason to leave the chunk.
                if size > most {
                    return None;
                }
                if let Some(unit) = next_place(lines, chunk, cursor, stream, block, size) {
                    break (id, lines.units, unit, size);
                }
                self.open.remove(&stream);
            }
            match self.fresh_place(stream, block, most) {
                Fresh::At(id, unit) => at = Some((id, unit)),
                Fresh::Unread(chunks) => {
                    self.sought.extend(chunks);
                    return None;
                }
                Fresh::Nothing => return None,
            }
        };
        if active(Bug::DoubleAllocation) && unit > 0 {
            return Some((Addr::new(chunk, unit), 1, size));
        }
        // The next line may hold something.
        let most = if line == 0 { count } else { ((line - unit % line) / size).clamp(1, count) };
        let (addr, taken, kind) = self.chunks.change(chunk, |chunk| {
            let (addr, taken) = take(chunk, unit, size, most);
            (addr, taken, chunk.entry.kind)
        });
        self.open.insert(stream, (addr.chunk(), unit + taken * size));
        self.note_places(kind, unit, taken * size, true);
        self.took(taken * size);
        Some((addr, taken, size))
    }
}

/// Takes up to `count` blocks from `unit` of a chunk on, where the first is free: the first place and how many there are.
fn take(chunk: &mut Chunk, unit: u32, units: u32, count: u32) -> (Addr, u32) {
    let taken = chunk.busy.free_run(unit, units.saturating_mul(count)) / units;
    let already = chunk.busy.set(unit, taken * units);
    assert!(taken > 0 && already == 0, "allocated a busy unit");
    (Addr::new(chunk.entry.id, unit), taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ChunkId;
    use crate::chunk::ChunkEntry;
    use crate::size::Lines;
    use forebay_device::SlotRef;

    const DATA: ChunkKind = ChunkKind::Data { class: 5 };

    fn chunk(id: u32, units: u32) -> Chunk {
        let slots = vec![SlotRef { disk: 0, slot: id }];
        Chunk::fresh(ChunkEntry::fresh(ChunkId(id), DATA, 0, units, slots))
    }

    /// Chunks that so many blocks of 128 KiB go to, by turns.
    fn fill(space: &mut Space, blocks: u32) -> Vec<(u32, u32)> {
        let mut turns: Vec<(u32, u32)> = Vec::new();
        for _ in 0..blocks {
            let chunk = space.allocate(DATA, 32).expect("there is room").chunk().0;
            match turns.last_mut() {
                Some((last, count)) if *last == chunk => *count += 1,
                _ => turns.push((chunk, 1)),
            }
        }
        turns
    }

    #[test]
    fn chunks_are_filled_side_by_side_a_mebibyte_at_a_time() {
        let mut space = Space::default();
        (1..=3).for_each(|id| space.insert(chunk(id, 1024)));
        space.set_lanes(3);
        assert_eq!(fill(&mut space, 32), [(3, 8), (2, 8), (1, 8), (3, 8)]);
        assert_eq!(space.take_narrow(), None);
        let (_, run) = space.allocate_run(DATA, 32, 100).expect("there is room");
        assert_eq!(run, 8, "no run is longer than a turn");
    }

    #[test]
    fn a_lane_without_a_chunk_lets_others_go_on_and_says_so_once() {
        let mut space = Space::default();
        space.insert(chunk(1, 1024));
        space.set_lanes(4);
        assert_eq!(fill(&mut space, 9), [(1, 9)]);
        assert_eq!((space.take_narrow(), space.take_narrow()), (Some(DATA), None));
        fill(&mut space, 8);
        space.take_narrow();
        // One more is for whoever has its turn next; without more, all room is used before anybody needs a chunk.
        space.insert(chunk(2, 1024));
        assert_eq!(fill(&mut space, 47), [(2, 7), (1, 15), (2, 25)]);
        assert_eq!(space.allocate(DATA, 32), Err(NeedChunk));
    }

    #[test]
    fn what_is_gathered_has_empty_chunks_to_itself_in_lanes_too() {
        let mut space = Space::default();
        for id in 8..=9 {
            let mut used = chunk(id, 1024);
            used.busy.set(0, 512);
            space.insert(used);
        }
        (2..=3).for_each(|id| space.insert(chunk(id, 1024)));
        space.set_lanes(2);
        let place = |space: &mut Space| {
            space
                .allocate_gathered(DATA, Size::whole(32), 8)
                .map(|(addr, run)| (addr.chunk().0, addr.unit(), run))
        };
        assert_eq!(place(&mut space), Ok((3, 0, 8)));
        assert_eq!(place(&mut space), Ok((2, 0, 8)));
        // Others go where it does not, in whichever lane.
        let others: BTreeSet<u32> =
            (0..16).map(|_| space.allocate(DATA, 32).expect("there is room").chunk().0).collect();
        assert_eq!(others, BTreeSet::from([8, 9]));
        assert_eq!([(); 2].map(|()| place(&mut space)), [Ok((3, 256, 8)), Ok((2, 256, 8))]);
        for _ in 0..4 {
            place(&mut space).expect("there is room");
        }
        space.open.retain(|stream, _| stream.fill != Fill::Free);
        assert_eq!(place(&mut space), Err(NeedChunk), "8 and 9 hold something");
        space.end_gathering();
        assert!(space.allocate(DATA, 32).is_ok());
    }

    #[test]
    fn long_requests_have_empty_chunks_while_much_is_in_none() {
        let mut space = Space::default();
        for id in 1..=2 {
            let mut used = chunk(id, 1024);
            (0..1024).step_by(64).for_each(|unit| _ = used.busy.set(unit, 32));
            space.insert(used);
        }
        let place = |space: &mut Space, count| {
            let place = space.allocate_request(DATA, 2, count);
            place.map(|(addr, run)| (addr.chunk().0, addr.unit(), run))
        };
        assert_eq!(place(&mut space, 64), Ok((2, 32, 16)), "nobody knows yet what is elsewhere");
        space.count_room(1024);
        assert_eq!(place(&mut space, 64), Err(NeedChunk), "a fresh one is to be asked for");
        assert_eq!(place(&mut space, 7), Ok((2, 96, 7)), "it is short");
        space.insert(chunk(3, 1024));
        assert_eq!(place(&mut space, 64), Ok((3, 0, 64)));
        assert_eq!(place(&mut space, 7), Ok((2, 110, 7)), "the fresh one is kept from it");
        assert_eq!(place(&mut space, 64), Ok((3, 128, 64)));
        let large = space.allocate_request(DATA, 16, 1).map(|(addr, run)| (addr.chunk().0, run));
        assert_eq!(large, Ok((2, 1)), "it is one block");
        // Less than a quarter of all is in no chunk.
        space.count_room(1023);
        assert_eq!(place(&mut space, 64), Ok((2, 176, 8)));
        space.count_room(1024);
        assert_eq!(place(&mut space, 64), Err(NeedChunk), "something lies in all");
        space.declare_scarce();
        assert_eq!(place(&mut space, 64), Ok((2, 224, 16)));
        while place(&mut space, 64).is_ok() {}
        assert_eq!(space.chunks.sum(DATA).free, 0, "all is anybody's");
    }

    #[test]
    fn a_turn_ends_no_line_in_the_middle() {
        let mut space = Space::new(vec![Lines { units: 96, cell: 32 }]);
        (1..=2).for_each(|id| space.insert(chunk(id, 960)));
        space.set_lanes(2);
        // Three lines are the first to be 1 MiB or more.
        assert_eq!(fill(&mut space, 27), [(2, 9), (1, 9), (2, 9)]);
    }
}
