//! What a store had at a moment, for queries: a list of segments, and the last minutes in memory.

use crate::block::{Block, Resolution};
use crate::files::Segment;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Whatever is appended meanwhile is not in it; what is removed meanwhile is missing.
#[derive(Clone, Default)]
pub struct View {
    /// By resolution, oldest first.
    pub(crate) segments: [Vec<Arc<Segment>>; 3],
    /// Intervals that are kept for ever: by resolution, in the order of their beginnings. A pin has each moment in one resolution.
    pub(crate) pins: [Vec<Arc<Segment>>; 3],
    /// The last seconds, oldest first.
    pub(crate) recent: Vec<Block>,
    /// Until when there are minutes and hours.
    pub(crate) until: [u64; 3],
}

impl View {
    /// The last second that there is.
    pub fn last(&self) -> Option<u64> {
        self.recent.last().map(|block| block.header.start)
    }

    /// Blocks of an interval, none longer than a step of the answer, and each moment once: hours as long as there are, then minutes, then seconds.
    pub(crate) fn blocks(
        &self,
        range: Range<u64>,
        step_seconds: u64,
        take: &mut dyn FnMut(&Block) -> ControlFlow<()>,
    ) {
        let coarsest =
            Resolution::ALL.into_iter().rev().find(|one| step_seconds.is_multiple_of(one.seconds()));
        let coarsest = coarsest.unwrap_or(Resolution::Second);
        let oldest = |resolution: Resolution| {
            let kept = self.segments[resolution as usize].first().map(|segment| segment.first);
            let recent = self.recent.first().map(|block| block.header.start);
            kept.or(recent.filter(|_| resolution == Resolution::Second)).unwrap_or(u64::MAX)
        };
        let used = Resolution::ALL.into_iter().filter(|one| *one <= coarsest);
        let have_from = used.clone().map(oldest).min().unwrap_or(u64::MAX);
        if range.start < have_from
            && self.pinned(range.start..range.end.min(have_from), step_seconds, take).is_break()
        {
            return;
        }
        let mut start = range.start;
        for resolution in used.rev() {
            let end = match resolution {
                Resolution::Second => range.end,
                _ => range.end.min(self.until[resolution as usize]),
            };
            if start < end {
                if self.regular(resolution, start..end, take).is_break() {
                    return;
                }
                start = end;
            }
        }
    }

    fn regular(
        &self,
        resolution: Resolution,
        range: Range<u64>,
        take: &mut dyn FnMut(&Block) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let is_recent = resolution == Resolution::Second;
        let recent_from = self.recent.first().filter(|_| is_recent).map(|block| block.header.start);
        let from_files = range.start..recent_from.unwrap_or(u64::MAX).min(range.end);
        if from_files.start < from_files.end {
            for segment in &self.segments[resolution as usize] {
                // Gone in the meantime, or a disk that cannot be read: what is left is still true.
                let read = segment.read(from_files.clone(), &mut |block| take(&block));
                read.unwrap_or(ControlFlow::Continue(()))?;
            }
        }
        for block in self.recent.iter().filter(|_| is_recent) {
            if range.contains(&block.header.start) {
                take(block)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn pinned(
        &self,
        range: Range<u64>,
        step_seconds: u64,
        take: &mut dyn FnMut(&Block) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for resolution in Resolution::ALL.into_iter().filter(|one| one.seconds() <= step_seconds) {
            // Pins overlap: what one had, the next has not.
            let mut start = range.start;
            for segment in &self.pins[resolution as usize] {
                let mut last = None;
                let read = segment.read(start..range.end, &mut |block| {
                    last = last.max(Some(block.header.start));
                    take(&block)
                });
                read.unwrap_or(ControlFlow::Continue(()))?;
                start = last.map_or(start, |last| start.max(last + 1));
            }
        }
        ControlFlow::Continue(())
    }
}
