//! One simulated disk: its contents, its health, and what each operation does when its time has come.
//!
//! A write becomes visible to readers when it completes, and safe with a flush that is submitted after that. Reads
//! see completed writes only. Whatever the device does wrong was decided at submission (see [`crate::fault`])
//! and is part of the [`Work`] in the queue.

use crate::cache::{PageWrite, WriteCache, apply};
use crate::fault::OpKind;
use crate::image::{Image, PAGE, SECTOR};
use crate::model::Device;
use crate::recent::Recent;
use crate::record::Event;
use forebay_runtime::{Buf, BufMut, Class, DiskError, DiskErrorKind, Done, Geometry, HandleId};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// What discarded pages read as afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiscardEffect {
    #[default]
    Zeros,
    /// The old contents.
    Nothing,
    /// Bytes that nobody wrote.
    Garbage,
}

/// One disk of a world.
pub(crate) struct SimDisk {
    pub geometry: Geometry,
    pub discard: DiscardEffect,
    /// What a reader sees.
    pub current: Image,
    pub cache: WriteCache,
    /// Numbers of sectors that cannot be read until they are written.
    pub unreadable: BTreeSet<u64>,
    pub gone: bool,
    /// Whether it was asked for what lies behind the end that it has now: from then on it fails everything.
    pub shrunk: bool,
    /// Operations that hang.
    pub held: Vec<Work>,
    /// How often they were let go.
    pub releases: u64,
    /// Operations submitted, by kind.
    pub operations: [u64; 4],
    /// When it has done what was asked of it until now, where it does one thing after the other.
    pub busy_until: u64,
    /// What takes the time of a real device, if it has a model, and when that is to be looked at.
    pub device: Option<Box<dyn Device>>,
    pub look_at: Option<u64>,
    /// Bytes written.
    pub written: u64,
}

/// The handle through which an operation was asked for, and its class.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub handle: HandleId,
    pub class: Class,
}

/// An operation that the device has accepted and will report at its time.
pub(crate) enum Work {
    Read {
        place: Place,
        at: u64,
        into: BufMut,
        done: Done<(BufMut, Result<(), DiskError>)>,
        fails: Option<DiskErrorKind>,
    },
    Write(WriteWork),
    Flush {
        place: Place,
        covers: Rc<[u64]>,
        honest: bool,
        done: Done<Result<(), DiskError>>,
        fails: Option<DiskErrorKind>,
    },
}

impl Work {
    pub fn place(&self) -> Place {
        match self {
            Work::Read { place, .. } | Work::Flush { place, .. } => *place,
            Work::Write(write) => write.place,
        }
    }

    /// The same operation as one that never came to the device.
    pub fn given_up(mut self) -> Work {
        let given_up = Some(DiskErrorKind::GivenUp);
        match &mut self {
            Work::Read { fails, .. } => *fails = given_up,
            Work::Write(write) => (write.done_at_all, write.fails) = (false, given_up),
            Work::Flush { honest, fails, .. } => (*honest, *fails) = (false, given_up),
        }
        self
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Work::Read { into, .. } => into.len() as u64,
            Work::Write(write) => (write.pages.len() * PAGE) as u64,
            Work::Flush { .. } => 0,
        }
    }
}

pub(crate) struct WriteWork {
    pub place: Place,
    pub id: u64,
    pub at: u64,
    pub pages: Rc<[PageWrite]>,
    pub durable: bool,
    /// False: nothing of it reaches the medium.
    pub done_at_all: bool,
    pub done: Done<Result<(), DiskError>>,
    pub fails: Option<DiskErrorKind>,
}

impl SimDisk {
    pub fn new(image: Image, identity: u64, power_fails: bool) -> SimDisk {
        SimDisk {
            geometry: Geometry {
                size: image.size(),
                sector_logical: 512,
                sector_physical: 4096,
                rotational: false,
                identity,
            },
            discard: DiscardEffect::default(),
            current: image.clone(),
            cache: if power_fails { WriteCache::new(image) } else { WriteCache::unwatched() },
            unreadable: BTreeSet::new(),
            gone: false,
            shrunk: false,
            held: Vec::new(),
            releases: 0,
            operations: [0; 4],
            busy_until: 0,
            device: None,
            look_at: None,
            written: 0,
        }
    }

    pub fn count(&mut self, kind: OpKind) -> u64 {
        let count = &mut self.operations[kind as usize];
        *count += 1;
        *count
    }

    pub fn contains(&self, bytes: &Range<u64>) -> bool {
        bytes.start <= bytes.end && bytes.end <= self.geometry.size
    }

    /// Whether it has become shorter, and these bytes or some before them lay behind its end.
    pub fn ends_before(&mut self, bytes: &Range<u64>) -> bool {
        self.shrunk |= self.geometry.size < self.current.size() && !self.contains(bytes);
        self.shrunk
    }

    pub fn any_unreadable(&self, bytes: &Range<u64>) -> bool {
        !self.unreadable.is_empty()
            && self
                .unreadable
                .range(bytes.start / SECTOR as u64..bytes.end.div_ceil(SECTOR as u64))
                .next()
                .is_some()
    }

    /// Does `work` and reports it; returns what a recording keeps of it.
    pub fn finish(&mut self, disk: usize, work: Work) -> Option<Event> {
        match work {
            Work::Read { at, mut into, done, fails, .. } => {
                let gone = self.gone.then_some(DiskErrorKind::Gone);
                match gone.or(fails) {
                    Some(kind) => done.complete((into, Err(kind.into()))),
                    None => {
                        self.current.read(at, &mut into);
                        done.complete((into, Ok(())));
                    }
                }
                None
            }
            Work::Write(write) => {
                if self.gone || !write.done_at_all {
                    self.cache.fail(write.id);
                    let fails = if self.gone { Some(DiskErrorKind::Gone) } else { write.fails };
                    write.done.complete(fails.map_or(Ok(()), |kind| Err(kind.into())));
                    return Some(Event::Failed { disk, id: write.id });
                }
                apply(&mut self.current, write.at, &write.pages);
                self.cache.complete(write.id, write.durable);
                if !self.unreadable.is_empty() {
                    let first = write.at / SECTOR as u64;
                    for sector in first..first + (write.pages.len() * PAGE / SECTOR) as u64 {
                        self.unreadable.remove(&sector);
                    }
                }
                write.done.complete(write.fails.map_or(Ok(()), |kind| Err(kind.into())));
                Some(Event::Completed { disk, id: write.id, durable: write.durable })
            }
            Work::Flush { covers, honest, done, fails, .. } => {
                if self.gone {
                    done.complete(Err(DiskErrorKind::Gone.into()));
                    return None;
                }
                if honest {
                    self.cache.flushed(&covers);
                }
                done.complete(fails.map_or(Ok(()), |kind| Err(kind.into())));
                honest.then_some(Event::Flushed { disk, ids: covers })
            }
        }
    }
}

static ZEROS: [u8; PAGE] = [0; PAGE];

/// A page of a write; one of zeros takes no memory, and one that was written lately none of its own.
fn page_of(bytes: &[u8; PAGE], recent: &mut Recent) -> PageWrite {
    if *bytes == ZEROS { PageWrite::Zeros } else { PageWrite::Data(recent.page(bytes)) }
}

/// The parts of a write as pages. Panics when they are not a whole number of pages: the runtime's rule.
pub(crate) fn pages_of(parts: &[Buf], recent: &mut Recent) -> Vec<PageWrite> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    assert!(len.is_multiple_of(PAGE) && len > 0, "a write of {len} bytes is not a whole number of 4096");
    let mut pages = Vec::with_capacity(len / PAGE);
    // What one part begins of a page and others go on with.
    let mut page = ZEROS;
    let mut filled = 0;
    for part in parts {
        let mut rest = &part[..];
        while !rest.is_empty() {
            if filled == 0
                && let Some((whole, after)) = rest.split_first_chunk()
            {
                pages.push(page_of(whole, recent));
                rest = after;
                continue;
            }
            let n = rest.len().min(PAGE - filled);
            page[filled..filled + n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            filled += n;
            if filled == PAGE {
                pages.push(page_of(&page, recent));
                filled = 0;
            }
        }
    }
    pages
}
