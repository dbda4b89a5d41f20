//! What a run did to its disks, in order, and the crash images that follow from it.
//!
//! A [`Recording`] is the log of everything that changed what a disk holds or may hold: submissions and
//! completions of writes, flushes, outside interference; and marks that the harness put between them (an
//! acknowledged request, say). A [`Cursor`] goes through it and carries, for each disk, the durable contents and the
//! pending writes at that moment. From there a crash image is a handful of page references: the workload is
//! never run again, and ten thousand images of one run cost what their differences cost.
//!
//! Images between two neighbouring flushes are subsets of those just before the second, but what had been
//! acknowledged differs; so the caller chooses the moments.

use crate::cache::{Fate, PageWrite, Pending, WriteCache};
use crate::image::Image;
use std::rc::Rc;

/// One step of a run.
#[derive(Clone)]
pub enum Event {
    Submitted {
        disk: usize,
        id: u64,
        at: u64,
        pages: Rc<[PageWrite]>,
    },
    /// With `durable`, safe from here on.
    Completed {
        disk: usize,
        id: u64,
        durable: bool,
    },
    /// The write failed and left no trace.
    Failed {
        disk: usize,
        id: u64,
    },
    /// A flush is complete that covers these writes.
    Flushed {
        disk: usize,
        ids: Rc<[u64]>,
    },
    /// Somebody changed the disk from outside: rot, an exchange of its contents.
    Replaced {
        disk: usize,
        cache: WriteCache,
    },
    /// The harness's own.
    Mark(u64),
}

/// The log of a run.
#[derive(Clone, Default)]
pub struct Recording {
    /// The disks when recording began.
    pub start: Vec<WriteCache>,
    pub events: Vec<Event>,
}

/// A moment of a recorded run.
#[derive(Clone)]
pub struct Cursor<'a> {
    recording: &'a Recording,
    position: usize,
    disks: Vec<WriteCache>,
}

impl<'a> Cursor<'a> {
    pub fn new(recording: &'a Recording) -> Cursor<'a> {
        Cursor { recording, position: 0, disks: recording.start.clone() }
    }

    /// Events behind this moment.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Goes over the next event and returns it.
    pub fn advance(&mut self) -> Option<&'a Event> {
        let event = self.recording.events.get(self.position)?;
        self.position += 1;
        match event {
            Event::Submitted { disk, id, at, pages } => self.disks[*disk].submit(*id, *at, pages.clone()),
            Event::Completed { disk, id, durable } => self.disks[*disk].complete(*id, *durable),
            Event::Failed { disk, id } => self.disks[*disk].fail(*id),
            Event::Flushed { disk, ids } => self.disks[*disk].flushed(ids),
            Event::Replaced { disk, cache } => self.disks[*disk] = cache.clone(),
            Event::Mark(_) => {}
        }
        Some(event)
    }

    /// Goes on until `position` events are behind.
    pub fn advance_to(&mut self, position: usize) {
        while self.position < position && self.advance().is_some() {}
    }

    /// Every write that a power loss now may take, with its disk.
    pub fn pending(&self) -> impl Iterator<Item = (usize, &Pending)> {
        self.disks.iter().enumerate().flat_map(|(disk, cache)| cache.pending.iter().map(move |p| (disk, p)))
    }

    pub fn pending_count(&self) -> usize {
        self.disks.iter().map(|cache| cache.pending.len()).sum()
    }

    /// The disks after a power loss now; `fates` has one entry for each of [`Cursor::pending`], in its order.
    pub fn crash(&self, fates: &[Fate]) -> Vec<Image> {
        assert_eq!(fates.len(), self.pending_count(), "each pending write has one fate");
        let mut rest = fates;
        self.disks
            .iter()
            .map(|cache| {
                let (own, others) = rest.split_at(cache.pending.len());
                rest = others;
                cache.crash(|index, _| own[index])
            })
            .collect()
    }
}
