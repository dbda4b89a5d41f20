//! Tells guests whose partitions do not start on the volume's blocks from those that do.

/// Watches one initiator on one unit.
#[derive(Clone, Debug, Default)]
pub struct Alignment {
    score: i32,
}

/// What a guest turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Misaligned,
    AlignedAgain,
}

impl Alignment {
    /// Notes a read or write of `len` bytes at `at`; a verdict when it changes.
    pub fn note(&mut self, _at: u64, _len: u64, _volume_block: u32) -> Option<Verdict> {
        unimplemented!()
    }
}
