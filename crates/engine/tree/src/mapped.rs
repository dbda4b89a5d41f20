//! How much there is below a tree.

use forebay_space::Ptr;
use std::ops::{AddAssign, Sub};

/// Blocks that are not holes, and the allocation units that they take. Signed: it is also what a change makes of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mapped {
    pub blocks: i64,
    pub units: i64,
}

impl Mapped {
    /// Of these pointers.
    pub fn of<'a>(ptrs: impl IntoIterator<Item = &'a Ptr>) -> Mapped {
        let mut mapped = Mapped::default();
        for ptr in ptrs {
            mapped.blocks += i64::from(!ptr.is_hole());
            mapped.units += i64::from(ptr.units());
        }
        mapped
    }

    /// Without what would be less than nothing: until cold leaves are resolved, the count may be off.
    pub fn floor(self) -> Mapped {
        Mapped { blocks: self.blocks.max(0), units: self.units.max(0) }
    }
}

impl AddAssign for Mapped {
    fn add_assign(&mut self, other: Mapped) {
        self.blocks += other.blocks;
        self.units += other.units;
    }
}

impl Sub for Mapped {
    type Output = Mapped;

    fn sub(self, other: Mapped) -> Mapped {
        Mapped { blocks: self.blocks - other.blocks, units: self.units - other.units }
    }
}
