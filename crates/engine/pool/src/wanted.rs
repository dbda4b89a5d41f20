//! What places are asked for.

use forebay_device::UNIT;
use forebay_space::{ChunkKind, Size};

/// The blocks that places are wanted for, in order.
pub(crate) enum Wanted<'a> {
    /// So many of one size.
    Alike(Size, usize),
    Each(&'a [Size]),
}

impl Wanted<'_> {
    /// Blocks as they are.
    pub fn whole(block_bytes: usize, count: usize) -> Wanted<'static> {
        Wanted::Alike(Size::whole((block_bytes as u64 / UNIT) as u32), count)
    }

    pub fn one(size: Size) -> Wanted<'static> {
        Wanted::Alike(size, 1)
    }

    pub fn count(&self) -> usize {
        match self {
            Wanted::Alike(_, count) => *count,
            Wanted::Each(sizes) => sizes.len(),
        }
    }

    /// The size of block `nth`, and how many like it follow each other from there.
    pub fn next(&self, nth: usize) -> (Size, u32) {
        match self {
            Wanted::Alike(size, count) => (*size, (count - nth) as u32),
            Wanted::Each(sizes) => {
                let size = sizes[nth];
                (size, sizes[nth..].iter().take_while(|other| **other == size).count() as u32)
            }
        }
    }

    /// The class of the chunks that block `nth` goes to.
    pub fn class(&self, nth: usize) -> u8 {
        self.next(nth).0.class()
    }

    pub fn kind(&self, nth: usize) -> ChunkKind {
        ChunkKind::Data { class: self.class(nth) }
    }
}
