//! What differs from group to group of a pool: lines, and how much is in use.

use crate::address::{ChunkId, NODE_UNITS};
use crate::allocator::Space;
use crate::chunk::{Chunk, ChunkKind};
use crate::size::Lines;
use std::collections::BTreeMap;

impl Space {
    /// The lines of a group; none where the pool has no such group any more.
    pub fn set_lines(&mut self, group: u16, lines: Lines) {
        let group = usize::from(group);
        self.lines.resize(self.lines.len().max(group + 1), Lines::default());
        self.lines[group] = lines;
        self.vacated.remove(&(group as u16));
        self.recount_places();
    }

    /// Allocates nothing from a group's chunks any more.
    pub fn vacate(&mut self, group: u16) {
        self.vacated.insert(group);
        let chunks = &self.chunks;
        self.open.retain(|_, (id, _)| chunks[*id].entry.group != group);
        self.recount_places();
        self.nodes_free.set(None);
    }

    /// Whether a chunk is in a group that is vacated.
    pub(crate) fn is_vacated(&self, chunk: &Chunk) -> bool {
        self.vacated.contains(&chunk.entry.group)
    }

    /// Whether some group is vacated, and whether a chunk is in one.
    pub fn is_vacating(&self) -> bool {
        !self.vacated.is_empty()
    }
    pub fn is_in_vacated(&self, id: ChunkId) -> bool {
        self.chunk(id).is_some_and(|chunk| self.is_vacated(chunk))
    }

    /// Nodes that can be written outside a group before another chunk is needed.
    pub fn nodes_free_beside(&self, group: u16) -> u64 {
        let is_beside = |chunk: &&Chunk| chunk.entry.group != group && !self.is_closed(chunk.entry.id);
        self.chunks
            .of_kind(ChunkKind::Node)
            .filter(is_beside)
            .map(|chunk| u64::from(chunk.busy.zeros() / NODE_UNITS))
            .sum()
    }

    /// The least and the most units that whole lines for blocks of `units` take, by group; nothing where there is no parity.
    pub fn whole_lines(&self, units: u32) -> Option<(u32, u32)> {
        let lines = || self.lines.iter().map(|lines| lines.units).filter(|line| *line > 0);
        let sizes = || lines().map(|line| whole_lines(line, units));
        sizes().min().zip(sizes().max())
    }

    /// By group, the units that data, nodes and the log occupy; what the next checkpoints give back does not count.
    pub fn units_busy(&self) -> BTreeMap<u16, u64> {
        let mut busy: BTreeMap<u16, u64> =
            self.chunks.busy_of_groups().filter(|(_, busy)| *busy > 0).collect();
        for (addr, units) in self.freed_runs() {
            let chunk = self.chunk(addr.chunk()).expect("freed in an owned chunk");
            let busy = busy.entry(chunk.entry.group).or_insert(0);
            *busy = busy.saturating_sub(u64::from(units));
        }
        busy
    }
}

/// The least that is both whole blocks of 2^n units (`units`) and whole lines of `line` units.
pub(crate) fn whole_lines(line: u32, units: u32) -> u32 {
    let common = units.trailing_zeros().min(line.trailing_zeros());
    line * (units >> common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_width_hold_whole_blocks() {
        for (line, units, whole) in
            [(8, 1, 8), (8, 2, 8), (8, 16, 16), (12, 8, 24), (20, 32, 160), (3, 4, 12)]
        {
            assert_eq!(whole_lines(line, units), whole, "lines of {line}, blocks of {units}");
        }
        let of = |units: u32| Lines { units, cell: 4 };
        let mut space = Space::new(vec![of(8), Lines::default()]);
        assert_eq!(space.whole_lines(2), Some((8, 8)));
        space.set_lines(2, of(12));
        assert_eq!(space.whole_lines(2), Some((8, 12)), "without the group that has none");
        assert_eq!(Space::new(vec![Lines::default()]).whole_lines(2), None);
    }
}
