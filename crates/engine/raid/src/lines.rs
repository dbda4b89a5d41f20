//! Where the bytes of a parity chunk are.
//!
//! A chunk of D + P slots is cut across into *lines*: line L is the cells at byte L × cell of every slot, D of data and P of
//! parity. The chunk's bytes run through the data cells of line 0, then of line 1, and so on. Cell number L·D + i of
//! them, which is data cell i of line L, lies on slot (L·D + i) mod (D + P), and parity cell j of the line on slot
//! (L·D + D + j) mod (D + P): the roles of a line go round the slots from where the last line's data ended. So
//! any D + P cells that follow each other lie on as many slots, whatever reads in order uses all disks, and every slot
//! holds the same share of data. With 4+1:
//!
//! ```text
//!          slot 0  slot 1  slot 2  slot 3  slot 4
//! line 0     0       1       2       3       P
//! line 1     5       6       7       P       4
//! line 2     10      11      P       8       9
//! ```
//!
//! Bytes at one place of every cell of a line form a *column*: a code word. Any range of a line can be read, computed and
//! written by itself; cells only say how much lies on one disk.

use crate::code::Code;
use forebay_device::{GroupEntry, UNIT};

/// A cell is small enough that what is computed from a whole line stays in a processor's cache.
const CELL_BYTES_MAX: u64 = 256 << 10;

/// The shape of a group's parity chunks.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    pub code: Code,
    pub cell: u64,
    slot_bytes: u64,
}

/// Bytes of a chunk that lie in one cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub line: u64,
    pub role: usize,
    /// Byte in the slot, and how many.
    pub at: u64,
    pub len: usize,
    /// Where they start in the range that was cut.
    pub from: usize,
}

impl Lines {
    /// Nothing for a group of mirrors.
    ///
    /// # Panics
    /// When the group has a shape that a label must not have.
    pub fn of(group: &GroupEntry) -> Option<Lines> {
        if group.data == 1 {
            return None;
        }
        let (cell, slot_bytes) = (group.cell_bytes, group.slot_bytes);
        assert!(cell > 0 && cell.is_multiple_of(UNIT) && cell <= CELL_BYTES_MAX, "cells of {cell} bytes");
        assert!(slot_bytes.is_multiple_of(cell), "slots of {slot_bytes} bytes in cells of {cell}");
        Some(Lines { code: Code::new(group.data.into(), group.redundancy.into()), cell, slot_bytes })
    }

    /// Bytes of data in a line.
    pub fn line_bytes(&self) -> u64 {
        self.cell * self.code.data() as u64
    }

    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Lines of a chunk.
    pub fn count(&self) -> u64 {
        self.slot_bytes / self.cell
    }

    /// Whether a chunk has these bytes.
    pub fn contains(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.slot_bytes * self.code.data() as u64)
    }

    /// The slot on which a role of a line lies.
    pub fn slot_of(&self, line: u64, role: usize) -> usize {
        (self.turn(line) + role) % self.code.width()
    }

    /// The role that a slot has in a line.
    pub fn role_of(&self, line: u64, slot: usize) -> usize {
        (slot + self.code.width() - self.turn(line)) % self.code.width()
    }

    /// The slot where a line's roles begin.
    fn turn(&self, line: u64) -> usize {
        let width = self.code.width() as u64;
        (line % width * self.code.data() as u64 % width) as usize
    }

    /// The cells that a range of the chunk lies in, in order.
    pub fn extents(&self, offset: u64, len: usize) -> impl Iterator<Item = Extent> + use<> {
        let (cell, data) = (self.cell, self.code.data() as u64);
        let mut from = 0;
        std::iter::from_fn(move || {
            let position = offset + from as u64;
            let (number, within) = (position / cell, position % cell);
            let extent = Extent {
                line: number / data,
                role: (number % data) as usize,
                at: number / data * cell + within,
                len: (len - from).min((cell - within) as usize),
                from,
            };
            from += extent.len;
            (extent.len > 0).then_some(extent)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::KIB;

    fn lines(data: u8, redundancy: u8) -> Lines {
        let group = GroupEntry {
            role: 0,
            data,
            redundancy,
            slot_bytes: 256 * KIB,
            cell_bytes: 8 * KIB,
            leaving: false,
        };
        Lines::of(&group).expect("a parity group")
    }

    #[test]
    fn every_role_of_a_line_has_a_slot_of_its_own_and_cells_in_order_go_round() {
        for data in 2..=16 {
            for parity in 1..=3 {
                let lines = lines(data, parity);
                let width = usize::from(data + parity);
                let mut share = vec![0; width];
                for line in 0..width as u64 {
                    for role in 0..width {
                        assert_eq!(lines.role_of(line, lines.slot_of(line, role)), role);
                    }
                    for role in 0..usize::from(data) {
                        let number = line as usize * usize::from(data) + role;
                        assert_eq!(lines.slot_of(line, role), number % width);
                        share[number % width] += 1;
                    }
                }
                assert!(share.iter().all(|cells| *cells == usize::from(data)), "reads spread evenly");
            }
        }
    }

    #[test]
    fn extents_cover_a_range_in_order() {
        let lines = lines(3, 2);
        let extents: Vec<Extent> = lines.extents(20 * KIB, 16 << 10).collect();
        let extent = |line, role, at: u64, len: usize, from: usize| Extent {
            line,
            role,
            at: at * KIB,
            len: len << 10,
            from: from << 10,
        };
        assert_eq!(extents, [extent(0, 2, 4, 4, 0), extent(1, 0, 8, 8, 4), extent(1, 1, 8, 4, 12)]);
        assert!(lines.contains(0, 768 << 10) && !lines.contains(4 * KIB, 768 << 10));
        assert!(!lines.contains(u64::MAX, 1));
    }
}
