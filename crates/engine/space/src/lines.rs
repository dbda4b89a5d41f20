//! Lines of chunks with parity: how long they are, and which of them a stream is inside.

use crate::address::{Addr, ChunkId, Ptr};
use crate::allocator::Space;
use crate::chunk::{Chunk, ChunkKind};
use crate::size::Lines;

impl Space {
    /// Units of a line of this chunk; 0 when it has none.
    pub(crate) fn line(&self, chunk: &Chunk) -> u32 {
        lines_in(&self.lines, chunk).units
    }

    /// The lines of the chunk at `addr`.
    pub fn lines_at(&self, addr: Addr) -> Lines {
        lines_in(&self.lines, &self.chunks[addr.chunk()])
    }

    /// Bytes of a line of a chunk; 0 when it has none.
    pub fn line_bytes(&self, chunk: ChunkId) -> u64 {
        let chunk = self.chunks.get(chunk).expect("asked of owned chunks");
        u64::from(self.line(chunk)) * forebay_device::UNIT
    }

    /// Whether nothing has been written in these bytes that is in use.
    pub fn is_unwritten(&self, at: Addr, bytes: u64) -> bool {
        let written = &self.chunks[at.chunk()].written;
        written.is_free(at.unit(), (bytes / forebay_device::UNIT) as u32)
    }

    /// Whether some chunks have lines.
    pub fn has_lines(&self) -> bool {
        self.lines.iter().any(|lines| lines.units > 0)
    }

    /// Promises nothing more in the line at `addr` to the stream that has it open. Its first unit, its units, and how many of
    /// them are in use or promised.
    pub fn close_line(&mut self, addr: Addr) -> (u32, u32, u32) {
        let chunk = &self.chunks[addr.chunk()];
        let line = self.line(chunk);
        let first = addr.unit() / line * line;
        let busy = (first..first + line).filter(|unit| chunk.busy.get(*unit)).count() as u32;
        for (id, cursor) in self.open.values_mut() {
            if *id == addr.chunk() && (first + 1..first + line).contains(cursor) {
                *cursor = first + line;
            }
        }
        (first, line, busy)
    }

    /// Whether a stream is inside the line at `addr`.
    pub fn is_open(&self, addr: Addr) -> bool {
        let line = self.line(&self.chunks[addr.chunk()]);
        let inside = |id: ChunkId, cursor: u32| {
            id == addr.chunk() && cursor / line == addr.unit() / line && !cursor.is_multiple_of(line)
        };
        self.open.values().any(|&(id, cursor)| inside(id, cursor))
    }

    /// The lines that a block lies in, when its chunk has parity.
    pub fn lines_of(&self, ptr: &Ptr) -> Option<std::ops::Range<u64>> {
        let chunk = self.chunks.get(ptr.addr().chunk())?;
        let line = self.line(chunk);
        let (first, end) = (ptr.addr().unit(), ptr.addr().unit() + ptr.units());
        (line > 0).then(|| u64::from(first / line)..u64::from(end.div_ceil(line)))
    }
}

/// The lines of a chunk, of those that the groups have.
pub(crate) fn lines_in(groups: &[Lines], chunk: &Chunk) -> Lines {
    match chunk.entry.kind {
        ChunkKind::Data { .. } => groups.get(usize::from(chunk.entry.group)).copied().unwrap_or_default(),
        ChunkKind::Node | ChunkKind::Log => Lines::default(),
    }
}
