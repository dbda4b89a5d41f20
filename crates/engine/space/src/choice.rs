//! Which chunk a stream goes on in when the one that it filled has no more room, and the next place in a chunk.
//!
//! The emptiest chunk of its kind is taken if a quarter of it is free; otherwise a fresh one is asked for. Random overwriting without end then leaves chunks
//! 7/8 full: one that was filled loses its blocks as fast as any other, and is filled again when 3/4 of them are left; on the way its mean is
//! (1/4) ÷ ln(4/3) = 0.87.
//!
//! A hole costs a request of its own; in a fresh chunk, blocks that come together are written together. So while the chunks of a kind of data are fuller
//! than that, a fresh one comes before those with holes: it is space that overwriting would take anyway. After a snapshot, when nothing comes back, all
//! that is written goes there.
//!
//! What one request writes, and is as much as disks read at once without loss, is read together later, too. As long as a quarter of the pool is in no chunk, it has chunks to
//! itself that began empty, and holes are left to what is small.

use crate::address::ChunkId;
use crate::allocator::{Fill, Space, Stream};
use crate::chunk::{Chunk, ChunkKind};
use crate::chunks::Sum;
use crate::held::CLASSES;
use crate::lines::lines_in;
use crate::size::{Lines, Size};

/// Chunks whose records are sought at a time.
const SOUGHT_MAX: usize = 16;

/// Where a stream can go on.
pub(crate) enum Fresh {
    At(ChunkId, u32),
    /// Perhaps in one of these, whose records have to be read first: no other that is known has more room.
    Unread(Vec<ChunkId>),
    Nothing,
}

impl Space {
    /// A place in a chunk that no stream has open, the emptiest that has one: what follows goes there too, so that few chunks
    /// change and holes of one line are filled together.
    pub(crate) fn fresh_place(&self, stream: Stream, block: Size, most: u32) -> Fresh {
        let (any_hole, wants_empty) = (stream.fill == Fill::Holes, stream.fill.wants_empty());
        // A free line is filled by one stream.
        let is_apart = |id: ChunkId| {
            let apart = |(other, open): (&Stream, &(ChunkId, u32))| {
                open.0 != id || (any_hole && other.fill != Fill::Free)
            };
            self.open.iter().all(apart)
        };
        let is_of_other_lane = |id: ChunkId| {
            let same = |other: &Stream| other.kind == stream.kind && other.fill == stream.fill;
            self.open.iter().any(|(other, open)| open.0 == id && other.lane != stream.lane && same(other))
        };
        let is_dense = !self.scarce && stream.fill == Fill::Free && self.is_dense(stream.kind);
        // A free line is as good as a fresh chunk.
        let least = |chunk: &Chunk| if is_dense && self.line(chunk) == 0 { 3 } else { 1 };
        // What is to lie beside each other stays together.
        let is_kept =
            |id: ChunkId| self.open.iter().any(|(other, open)| open.0 == id && other.fill.wants_empty());
        let is_rich = |chunk: &&Chunk| {
            let (id, kind, free) = (chunk.entry.id, chunk.entry.kind, chunk.busy.zeros());
            // Nodes stay among nodes so that their number can be guaranteed.
            let is_data = |kind| matches!(kind, ChunkKind::Data { .. });
            (kind == stream.kind
                || (any_hole && is_data(kind) && is_data(stream.kind) && !self.is_held(kind)))
                && stream.piece(self.line(chunk), block.units) <= free.min(most)
                && match wants_empty {
                    // Neighbours come together only where nothing else lies.
                    true => free == chunk.entry.units,
                    false => self.scarce || free * 4 >= chunk.entry.units * least(chunk),
                }
                && !self.is_closed(id)
                && ((self.line(chunk) == 0 && !wants_empty && !is_kept(id)) || is_apart(id))
                && !is_of_other_lane(id)
        };
        let kinds = (0..CLASSES as u8).map(|class| ChunkKind::Data { class });
        let kinds = kinds.chain([ChunkKind::Node]).filter(|kind| *kind == stream.kind || any_hole);
        // Fewer than a quarter are not enough, and none have fewer units than this.
        let quarter = u64::from(self.chunks.units_min(stream.kind)) / 4;
        let least = if self.scarce || any_hole { 1 } else { quarter.max(1) };
        let mut unread = Vec::new();
        for some in self.chunks.emptiest_first(kinds, least) {
            let mut rich: Vec<&Chunk> = some.filter(is_rich).collect();
            rich.sort_by_key(|chunk| std::cmp::Reverse((chunk.busy.zeros(), chunk.entry.id)));
            for chunk in rich {
                let id = chunk.entry.id;
                if chunk.is_read() {
                    match self.first_place(chunk, stream, block) {
                        Some(unit) if unread.is_empty() => return Fresh::At(id, unit),
                        Some(_) => return Fresh::Unread(unread),
                        None => {}
                    }
                } else if self.may_fit(chunk, stream, block) {
                    unread.push(id);
                    if unread.len() == SOUGHT_MAX {
                        return Fresh::Unread(unread);
                    }
                }
            }
        }
        if unread.is_empty() { Fresh::Nothing } else { Fresh::Unread(unread) }
    }

    /// The first place in a chunk. One in which there is none is not searched again for as much until something is freed there.
    fn first_place(&self, chunk: &Chunk, stream: Stream, block: Size) -> Option<u32> {
        let lines = lines_in(&self.lines, chunk);
        let (size, lacks) =
            (stream.piece(lines.units, block.units), &chunk.lacks[stream.sort(block, lines.cell)]);
        if size >= lacks.get() {
            return None;
        }
        let place = next_place(lines, chunk, 0, stream, block, size);
        if place.is_none() {
            lacks.set(size);
        }
        place
    }

    /// Whether there may be a place in a chunk whose record has not been read.
    fn may_fit(&self, chunk: &Chunk, stream: Stream, block: Size) -> bool {
        let lines = lines_in(&self.lines, chunk);
        let size = stream.piece(lines.units, block.units);
        let may_lie_anywhere = !block.is_whole() || block.units < chunk.entry.kind.place_units();
        let has_room = match stream.fill {
            Fill::Holes => may_lie_anywhere || chunk.places() > 0,
            _ if lines.units > 0 => chunk.entry.lines > 0,
            _ => may_lie_anywhere || chunk.places() > 0,
        };
        has_room && size < chunk.lacks[stream.sort(block, lines.cell)].get()
    }

    /// Whether less than an eighth is free in the chunks of a kind of data; those that are closed count, since they will be open again.
    fn is_dense(&self, kind: ChunkKind) -> bool {
        let Sum { free, units } = self.chunks.sum(kind);
        matches!(kind, ChunkKind::Data { .. }) && free * 8 < units
    }

    /// Whether blocks of a kind of data can do without another chunk: an eighth is free in those that it has, or much of what was free after the last
    /// checkpoint is taken, and the next one tells what came back.
    pub fn spares_chunks(&self, kind: ChunkKind) -> bool {
        let Sum { free, units } = self.chunks.sum(kind);
        (units > 0 && free * 8 >= units) || self.was_wanted || self.wants_checkpoint()
    }

    /// Whether a quarter is free in all chunks of data: emptying some costs little more than it gives.
    pub fn is_roomy(&self) -> bool {
        let Sum { free, units } = self.chunks.sum_of_data();
        free * 4 >= units
    }

    /// Free units in chunks of data.
    pub fn units_free(&self) -> u64 {
        self.chunks.sum_of_data().free
    }
}

/// The first place at or after `cursor` for `size` free units where `block` may begin. In a chunk with lines it begins no
/// line that holds anything; in the line that the cursor is inside, all that holds anything came from this stream.
pub(crate) fn next_place(
    lines: Lines,
    chunk: &Chunk,
    cursor: u32,
    stream: Stream,
    block: Size,
    size: u32,
) -> Option<u32> {
    if lines.units == 0 || stream.fill == Fill::Holes {
        return match block.is_whole() {
            true => chunk.busy.find_free(cursor, block.units),
            false => chunk.busy.find_run(cursor, block.units, |at| block.place(at, lines.cell)),
        };
    }
    let line = lines.units;
    let place = |at: u32| match stream.fill {
        Fill::Lines => at.next_multiple_of(size),
        Fill::Free | Fill::Holes | Fill::Gathered | Fill::Long => block.place(at, lines.cell),
    };
    let begun = (!cursor.is_multiple_of(line)).then_some(cursor / line);
    let mut at = place(cursor);
    while at + size <= chunk.entry.units {
        let is_used = |nth: &u32| Some(*nth) != begun && !chunk.busy.is_free(nth * line, line);
        match (at / line..=(at + size - 1) / line).find(is_used) {
            Some(used) => at = place((used + 1) * line),
            None if chunk.busy.is_free(at, size) => return Some(at),
            None => at = place(at + 1),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Addr, Ptr};
    use crate::chunk::ChunkEntry;
    use forebay_base::Checksum;

    fn data(class: u8) -> ChunkKind {
        ChunkKind::Data { class }
    }

    fn chunk(id: u32, class: u8, units: u32) -> Chunk {
        Chunk::fresh(ChunkEntry::fresh(ChunkId(id), data(class), 0, units, Vec::new()))
    }

    /// Allocates blocks of a unit, and has them in trees.
    fn write(space: &mut Space, count: u32) -> Vec<Ptr> {
        let place = |_| {
            let addr: Addr = space.allocate(data(0), 1).expect("there is room");
            let ptr = Ptr::new(addr, 4096, 0, Checksum(0));
            space.applied(&ptr);
            ptr
        };
        (0..count).map(place).collect()
    }

    fn end_checkpoint(space: &mut Space) {
        space.seal();
        space.release();
        space.count_room(0);
    }

    #[test]
    fn blocks_need_a_chunk_when_what_they_have_is_full_and_no_checkpoint_is_due() {
        let mut space = Space::default();
        assert!(!space.spares_chunks(data(0)), "they have none");
        space.insert(chunk(1, 0, 4096));
        let blocks = write(&mut space, 3584);
        assert!(space.spares_chunks(data(0)) && !space.spares_chunks(data(1)), "an eighth is free");
        write(&mut space, 1);
        assert!(!space.spares_chunks(data(0)), "less than an eighth is free");
        blocks.iter().for_each(|block| space.freed(block));
        space.freeze();
        end_checkpoint(&mut space);
        write(&mut space, 3585);
        assert!(space.spares_chunks(data(0)), "a checkpoint is due");
        space.freeze();
        assert!(space.spares_chunks(data(0)), "it runs");
        end_checkpoint(&mut space);
        assert!(!space.spares_chunks(data(0)), "it has given nothing back");
    }
}
