//! Tells guests whose file systems do not lie on the volume's blocks from those that do.
//!
//! A partition that starts in the middle of a block makes the volume read, merge and write two blocks for each
//! that the guest writes; it looks like a slow array and is a mistake of a moment when the disk was partitioned. Such a
//! guest gives itself away: its transfers are whole blocks long, and all of them begin at the same distance from a
//! block's start. Transfers that are no whole blocks long (logs, metadata in sectors) say nothing about it and are
//! not counted.
//!
//! The state is a score. Misaligned transfers raise it and aligned ones lower it twice as fast; it is raised once when
//! it reaches [`RAISED_AT`] and taken back at 0, so a few odd transfers make no noise and a mixture does not flicker.

/// Misaligned transfers beyond half of the aligned ones that make a guest misaligned.
const RAISED_AT: u16 = 1000;
/// An aligned transfer outweighs two misaligned ones.
const RELIEF: u16 = 2;

/// Watches one initiator on one unit.
#[derive(Clone, Debug, Default)]
pub struct Alignment {
    score: u16,
    is_raised: bool,
}

/// What a guest turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Misaligned,
    AlignedAgain,
}

impl Alignment {
    /// Notes a read or write of `len` bytes at `at` on a volume with blocks of this size; a verdict when it changes.
    pub fn note(&mut self, at: u64, len: u64, volume_block: u32) -> Option<Verdict> {
        let mask = u64::from(volume_block) - 1;
        if len == 0 || len & mask != 0 {
            return None;
        }
        if at & mask != 0 {
            self.score = (self.score + 1).min(RAISED_AT);
        } else {
            self.score = self.score.saturating_sub(RELIEF);
        }
        match (self.is_raised, self.score) {
            (false, RAISED_AT) => {
                self.is_raised = true;
                Some(Verdict::Misaligned)
            }
            (true, 0) => {
                self.is_raised = false;
                Some(Verdict::AlignedAgain)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u32 = 8192;

    fn run(alignment: &mut Alignment, count: u64, each: impl Fn(u64) -> (u64, u64)) -> Vec<Verdict> {
        (0..count).filter_map(|i| alignment.note(each(i).0, each(i).1, BLOCK)).collect()
    }

    #[test]
    fn one_verdict_for_each_turn() {
        let mut alignment = Alignment::default();
        // An old partition table: data begins at sector 63.
        let misaligned = |i| (63 * 512 + i * 8192, 8192);
        assert_eq!(run(&mut alignment, 999, misaligned), []);
        assert_eq!(run(&mut alignment, 100_000, misaligned), [Verdict::Misaligned]);
        let aligned = |i| (i * 8192, 16384);
        assert_eq!(run(&mut alignment, 499, aligned), []);
        assert_eq!(run(&mut alignment, 100_000, aligned), [Verdict::AlignedAgain]);
        assert_eq!(run(&mut alignment, 1000, misaligned), [Verdict::Misaligned]);
    }

    #[test]
    fn what_does_not_tell_is_not_counted() {
        let mut alignment = Alignment::default();
        assert_eq!(run(&mut alignment, 100_000, |i| (512 * i, 512)), [], "sectors");
        assert_eq!(run(&mut alignment, 100_000, |i| (4096 * (i % 3).min(1), 8192)), [], "a third is aligned");
        assert_eq!(run(&mut alignment, 100_000, |i| (8192 * i + 4096, 0)), [], "nothing is transferred");
    }
}
