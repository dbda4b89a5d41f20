//! What a block takes, and what lines it may lie in.

/// Lines of a group's data chunks, in units: 0 where there is no parity.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lines {
    pub units: u32,
    /// What of a line is on one disk: a power of two.
    pub cell: u32,
}

/// What a block takes, and what it would take whole: 2^n units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub units: u32,
    pub whole: u32,
}

impl Size {
    /// Of a block as it is.
    pub fn whole(units: u32) -> Size {
        Size { units, whole: units }
    }

    pub fn is_whole(&self) -> bool {
        self.units == self.whole
    }

    /// The class of the chunks that it goes to: one that was made smaller lies among the least.
    pub fn class(&self) -> u8 {
        if self.is_whole() { self.units.trailing_zeros() as u8 } else { 0 }
    }

    /// The first place at or after `at` where such a block may begin: a whole one at a multiple of its size.
    pub(crate) fn place(&self, at: u32, cell: u32) -> u32 {
        if self.is_whole() { at.next_multiple_of(self.units) } else { self.within_cell(at, cell) }
    }

    /// The first place at or after `at` from which it does not reach into another cell, if whole it needs only one.
    pub fn within_cell(&self, at: u32, cell: u32) -> u32 {
        if self.whole <= cell && at % cell + self.units > cell { at.next_multiple_of(cell) } else { at }
    }
}
