//! A disk that is only read: what is written to it stays in memory, and is there when it is read again.
//!
//! An import completes what a crash left half done before it reads on: copies that lack a block, lines whose parity is behind.
//! For one that must not write, that happens here. What it writes is bounded by what an import can doubt; nothing
//! writes afterwards. Everything that is not in memory goes to the disk as it is.

use forebay_base::planted::{Bug, active};
use forebay_runtime::{Buf, BufMut, Disk, DiskBackend, DiskError, DiskErrorKind, DiskOp, Geometry, Rt};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Requests are multiples of it.
const PAGE: usize = 4096;

/// See the head of this file.
pub struct Overlay {
    rt: Rt,
    below: Disk,
    /// What was written, by page.
    pages: Rc<RefCell<BTreeMap<u64, Box<[u8]>>>>,
}

impl Overlay {
    /// `below`, which will not be written to.
    pub fn over(rt: &Rt, below: Disk) -> Disk {
        let overlay = Overlay { rt: rt.clone(), below, pages: Rc::default() };
        Disk::new(Rc::new(overlay), rt.watch())
    }

    fn keep(&self, at: u64, from: &[Buf]) {
        let bytes: Vec<u8> = from.iter().flat_map(|part| part.iter().copied()).collect();
        let mut pages = self.pages.borrow_mut();
        for (page, bytes) in (at / PAGE as u64..).zip(bytes.chunks(PAGE)) {
            pages.insert(page, bytes.into());
        }
    }

    fn holds_any(&self, at: u64, len: usize) -> bool {
        let pages = at / PAGE as u64..at / PAGE as u64 + (len / PAGE) as u64;
        self.pages.borrow().range(pages).next().is_some()
    }
}

impl DiskBackend for Overlay {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn give_up(&self) {
        self.below.give_up();
    }

    fn submit(&self, op: DiskOp) {
        match op {
            DiskOp::Read { at, into, done } if self.holds_any(at, into.len()) => {
                let (reading, pages) = (self.below.read(at, into), self.pages.clone());
                drop(self.rt.spawn(async move {
                    let (mut bytes, result) = reading.await;
                    let result = lay_over(&pages.borrow(), at, &mut bytes, result);
                    done.complete((bytes, result));
                }));
            }
            DiskOp::Read { .. } => self.below.submit(op),
            DiskOp::Write { .. } if active(Bug::ReadOnlyImportWrites) => self.below.submit(op),
            DiskOp::Write { at, from, done, .. } => {
                self.keep(at, &from);
                done.complete(Ok(()));
            }
            DiskOp::Flush { done } => done.complete(Ok(())),
            DiskOp::Discard { done, .. } => done.complete(Err(DiskErrorKind::Unsupported.into())),
        }
    }
}

/// Lays pages over what was read; where there are pages for all of it, whatever came of reading does not matter.
fn lay_over(
    pages: &BTreeMap<u64, Box<[u8]>>,
    at: u64,
    bytes: &mut BufMut,
    result: Result<(), DiskError>,
) -> Result<(), DiskError> {
    let mut whole = true;
    for (page, bytes) in (at / PAGE as u64..).zip(bytes.chunks_mut(PAGE)) {
        match pages.get(&page) {
            Some(kept) => bytes.copy_from_slice(kept),
            None => whole = false,
        }
    }
    if whole { Ok(()) } else { result }
}
