//! A disk's volatile write cache: what is safe, and what the next power loss may take.
//!
//! A write is *pending* from its submission until it is durable: through a flush that was submitted after the
//! write had completed, or because the write itself asked for it. Any subset of the pending writes may survive
//! a power loss, each whole or torn between two sectors. The same state serves the running disk and, fed from
//! a recording, the construction of crash images ([`crate::record`]).
//!
//! Order: completed pending writes are kept in order of completion, in front of those in flight. A survivor
//! never undoes a later durable write to the same page: such a page is marked superseded.

use crate::image::{Image, PAGE, Page, SECTOR};
use std::rc::Rc;

/// What a write does to one page.
#[derive(Clone)]
pub enum PageWrite {
    Data(Page),
    /// Zeros, without memory: a discarded page.
    Zeros,
    /// Nothing: a later durable write has replaced this page, or the range of a discard was left alone.
    Superseded,
}

/// One write or discard that a power loss may still take.
#[derive(Clone)]
pub struct Pending {
    /// Number of the operation within the world.
    pub id: u64,
    /// Bytes; a multiple of 4096.
    pub at: u64,
    pub pages: Rc<[PageWrite]>,
    /// Whether the device has reported it complete.
    pub completed: bool,
}

impl Pending {
    /// Whole sectors that it writes.
    pub fn sectors(&self) -> usize {
        self.pages.len() * (PAGE / SECTOR)
    }
}

/// What a power loss leaves of one pending write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Lost,
    Whole,
    /// The first so many sectors.
    Head(usize),
    /// All but the first so many sectors.
    Tail(usize),
}

/// Durable contents and pending writes of one disk.
#[derive(Clone)]
pub struct WriteCache {
    pub durable: Image,
    pub pending: Vec<Pending>,
    /// Nobody will ask what a power loss leaves: nothing is kept.
    is_unwatched: bool,
}

/// Applies the pages of a write at byte `at`.
pub fn apply(image: &mut Image, at: u64, pages: &[PageWrite]) {
    for (index, page) in pages.iter().enumerate() {
        let number = at / PAGE as u64 + index as u64;
        match page {
            PageWrite::Data(page) => image.set_page(number, Some(page.clone())),
            PageWrite::Zeros => image.set_page(number, None),
            PageWrite::Superseded => {}
        }
    }
}

/// Applies only the sectors `from..to` of a write at byte `at`.
pub fn apply_sectors(image: &mut Image, at: u64, pages: &[PageWrite], from: usize, to: usize) {
    const PER_PAGE: usize = PAGE / SECTOR;
    for (index, page) in pages.iter().enumerate() {
        let first = index * PER_PAGE;
        let (low, high) = (from.clamp(first, first + PER_PAGE), to.clamp(first, first + PER_PAGE));
        if low == high {
            continue;
        }
        let at = at + (index * PAGE) as u64;
        if high - low == PER_PAGE {
            apply(image, at, std::slice::from_ref(page));
            continue;
        }
        let zeros = [0; PAGE];
        let bytes = match page {
            PageWrite::Data(page) => &**page,
            PageWrite::Zeros => &zeros,
            PageWrite::Superseded => continue,
        };
        let (from, to) = ((low - first) * SECTOR, (high - first) * SECTOR);
        image.write(at + from as u64, &bytes[from..to]);
    }
}

impl WriteCache {
    pub fn new(durable: Image) -> WriteCache {
        WriteCache { durable, pending: Vec::new(), is_unwatched: false }
    }

    /// Of a disk that keeps its power.
    pub fn unwatched() -> WriteCache {
        WriteCache { durable: Image::new(0), pending: Vec::new(), is_unwatched: true }
    }

    pub fn submit(&mut self, id: u64, at: u64, pages: Rc<[PageWrite]>) {
        if self.is_unwatched {
            return;
        }
        self.pending.push(Pending { id, at, pages, completed: false });
    }

    /// The device reports write `id` complete; a durable one leaves the cache for good.
    pub fn complete(&mut self, id: u64, durable: bool) {
        let Some(index) = self.pending.iter().position(|pending| pending.id == id) else { return };
        let mut write = self.pending.remove(index);
        if !durable {
            write.completed = true;
            let place = self.pending.iter().take_while(|pending| pending.completed).count();
            self.pending.insert(place, write);
            return;
        }
        apply(&mut self.durable, write.at, &write.pages);
        for older in self.pending.iter_mut().filter(|older| older.completed) {
            supersede(older, &write);
        }
    }

    /// Write `id` failed: it has left no trace.
    pub fn fail(&mut self, id: u64) {
        self.pending.retain(|pending| pending.id != id);
    }

    /// Operations that a flush submitted now covers.
    pub fn completed(&self) -> Vec<u64> {
        self.pending.iter().filter(|pending| pending.completed).map(|pending| pending.id).collect()
    }

    /// A flush is complete that covers `ids`.
    pub fn flushed(&mut self, ids: &[u64]) {
        if ids.is_empty() {
            return;
        }
        let (covered, rest): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| ids.contains(&pending.id));
        self.pending = rest;
        for write in covered {
            apply(&mut self.durable, write.at, &write.pages);
        }
    }

    /// The contents after a power loss now; `fate` has one entry for each pending write.
    pub fn crash(&self, fate: impl Fn(usize, &Pending) -> Fate) -> Image {
        let mut image = self.durable.clone();
        for (index, write) in self.pending.iter().enumerate() {
            let sectors = write.sectors();
            match fate(index, write) {
                Fate::Lost => {}
                Fate::Whole => apply(&mut image, write.at, &write.pages),
                Fate::Head(n) => apply_sectors(&mut image, write.at, &write.pages, 0, n.min(sectors)),
                Fate::Tail(n) => apply_sectors(&mut image, write.at, &write.pages, n.min(sectors), sectors),
            }
        }
        image
    }
}

/// Marks the pages of `older` that the durable write `newer` has replaced.
fn supersede(older: &mut Pending, newer: &Pending) {
    let (older_first, newer_first) = (older.at / PAGE as u64, newer.at / PAGE as u64);
    let from = older_first.max(newer_first);
    let to = (older_first + older.pages.len() as u64).min(newer_first + newer.pages.len() as u64);
    if from < to {
        let mut pages = older.pages.to_vec();
        for number in from..to {
            pages[(number - older_first) as usize] = PageWrite::Superseded;
        }
        older.pages = pages.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Rc<[PageWrite]> {
        Rc::new([PageWrite::Data(Rc::new([byte; PAGE]))])
    }
    fn byte(image: &Image, at: u64) -> u8 {
        let mut byte = [0];
        image.read(at, &mut byte);
        byte[0]
    }

    #[test]
    fn a_flush_covers_what_was_complete_when_it_was_submitted() {
        let mut cache = WriteCache::new(Image::new(1 << 20));
        cache.submit(1, 0, page(1));
        cache.submit(2, 4096, page(2));
        cache.complete(1, false);
        let covered = cache.completed();
        cache.complete(2, false);
        cache.flushed(&covered);
        let all_lost = cache.crash(|_, _| Fate::Lost);
        assert_eq!((byte(&all_lost, 0), byte(&all_lost, 4096)), (1, 0));
        assert_eq!(byte(&cache.crash(|_, _| Fate::Whole), 4096), 2);
    }

    #[test]
    fn a_torn_write_changes_between_two_sectors() {
        let mut cache = WriteCache::new(Image::new(1 << 20));
        cache.submit(
            1,
            0,
            Rc::new([PageWrite::Data(Rc::new([7; PAGE])), PageWrite::Data(Rc::new([8; PAGE]))]),
        );
        let head = cache.crash(|_, _| Fate::Head(9));
        assert_eq!([4095, 4096, 4607, 4608].map(|at| byte(&head, at)), [7, 8, 8, 0]);
        let tail = cache.crash(|_, _| Fate::Tail(7));
        assert_eq!([3583, 3584, 8191].map(|at| byte(&tail, at)), [0, 7, 8]);
    }

    #[test]
    fn a_survivor_does_not_undo_a_later_durable_write() {
        let mut cache = WriteCache::new(Image::new(1 << 20));
        cache.submit(
            1,
            0,
            Rc::new([PageWrite::Data(Rc::new([1; PAGE])), PageWrite::Data(Rc::new([1; PAGE]))]),
        );
        cache.complete(1, false);
        cache.submit(2, 4096, page(2));
        cache.complete(2, true);
        let image = cache.crash(|_, _| Fate::Whole);
        assert_eq!((byte(&image, 0), byte(&image, 4096)), (1, 2));
    }
}
