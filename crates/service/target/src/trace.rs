//! What clients ask of one volume, request by request, for somebody who wants to ask it again elsewhere.
//!
//! A trace is taken where requests are answered ([`crate::facts`]), on the core that has the volume, while somebody takes it away several times a second. What a core has
//! and nobody has taken is bounded by [`WAITING_MAX`]; more is counted and left out, and clients never wait for it. Nothing of the data is looked at.

use crate::facts::{Asked, Operation, on_each};
use forebay_base::{Id, Nanos};
use forebay_runtime::{Cores, Rt};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Requests of one volume that wait on a core to be taken: 40 bytes each, and a second of what a core can answer.
pub const WAITING_MAX: usize = 1 << 17;
/// Volumes that are traced at the same time.
pub const TRACES_MAX: usize = 4;

/// A request that was answered, with what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traced {
    pub operation: Operation,
    pub at: u64,
    pub bytes: u64,
    /// When it came, by the clock of all cores, and nanoseconds until its answer.
    pub since: Nanos,
    pub took: u64,
}

/// What was asked of a volume and nobody has taken yet.
#[derive(Default)]
pub(crate) struct Tape {
    waiting: RefCell<Vec<Traced>>,
    lost: Cell<u64>,
}

impl Tape {
    pub fn note(&self, asked: &Asked, now: Nanos) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= WAITING_MAX {
            self.lost.set(self.lost.get() + 1);
            return;
        }
        let Asked { operation, at, bytes, since } = *asked;
        waiting.push(Traced { operation, at, bytes, since, took: now.since(since) });
    }
}

/// All traces of a core, by volume.
#[derive(Default)]
pub(crate) struct Tapes {
    tapes: RefCell<HashMap<Id, Rc<Tape>>>,
    /// Grows whenever one begins or ends: who keeps one looks again.
    version: Rc<Cell<u64>>,
}

/// What one client's requests to a volume go on, if that is traced.
pub(crate) struct Needle {
    volume: Id,
    seen: Cell<u64>,
    version: Rc<Cell<u64>>,
    tape: RefCell<Option<Rc<Tape>>>,
    all: Rc<Tapes>,
}

impl Needle {
    pub fn new(rt: &Rt, volume: Id) -> Needle {
        Needle::over(rt.local::<Tapes>(), volume)
    }

    pub(crate) fn over(all: Rc<Tapes>, volume: Id) -> Needle {
        let (version, tape) = (all.version.clone(), RefCell::default());
        Needle { volume, seen: Cell::new(0), version, tape, all }
    }

    /// A request was answered.
    pub fn note(&self, asked: &Asked, now: Nanos) {
        let version = self.version.get();
        if self.seen.replace(version) != version {
            *self.tape.borrow_mut() = self.all.tapes.borrow().get(&self.volume).cloned();
        }
        if let Some(tape) = &*self.tape.borrow() {
            tape.note(asked, now);
        }
    }
}

impl Tapes {
    fn begin(&self, volume: Id) -> bool {
        let mut tapes = self.tapes.borrow_mut();
        let is_free = tapes.len() < TRACES_MAX && !tapes.contains_key(&volume);
        if is_free {
            tapes.insert(volume, Rc::default());
            self.version.set(self.version.get() + 1);
        }
        is_free
    }

    fn take(&self, volume: Id) -> (Vec<Traced>, u64) {
        let tapes = self.tapes.borrow();
        tapes.get(&volume).map_or_else(Default::default, |tape| (tape.waiting.take(), tape.lost.take()))
    }

    fn end(&self, volume: Id) {
        self.tapes.borrow_mut().remove(&volume);
        self.version.set(self.version.get() + 1);
    }
}

/// Has a volume traced on all cores; false when it is already, or too many are. Whoever began it ends it. To be asked by one at a time: two at once might each have some cores.
pub async fn trace_begin(cores: Cores, volume: Id) -> bool {
    let begun = on_each::<Tapes, _>(cores.clone(), move |tapes| tapes.begin(volume)).await;
    let is_begun = begun.iter().all(|begun| *begun);
    // None is left with a part, whatever happened.
    if !is_begun && begun.iter().any(|begun| *begun) {
        trace_end(cores, volume).await;
    }
    is_begun
}

/// What was asked of a volume since this was last asked, by when it came; and how many requests were left out.
pub async fn trace_take(cores: Cores, volume: Id) -> (Vec<Traced>, u64) {
    let parts = on_each::<Tapes, _>(cores, move |tapes| tapes.take(volume)).await;
    let (mut all, mut lost) = (Vec::new(), 0);
    for (traced, missing) in parts {
        all.extend(traced);
        lost += missing;
    }
    all.sort_by_key(|traced| traced.since);
    (all, lost)
}

pub async fn trace_end(cores: Cores, volume: Id) {
    on_each::<Tapes, _>(cores, move |tapes| tapes.end(volume)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(at: u64) -> Asked {
        Asked { operation: Operation::Read, at, bytes: 8192, since: Nanos(at) }
    }

    #[test]
    fn what_is_asked_while_it_is_traced_is_told_once_and_not_without_bound() {
        let tapes: Rc<Tapes> = Rc::default();
        let (needle, other) = (Needle::over(tapes.clone(), Id(1)), Needle::over(tapes.clone(), Id(2)));
        needle.note(&asked(1), Nanos(5));
        assert!(tapes.begin(Id(1)) && !tapes.begin(Id(1)), "once at a time");
        needle.note(&asked(2), Nanos(5));
        other.note(&asked(3), Nanos(5));
        let traced = Traced { operation: Operation::Read, at: 2, bytes: 8192, since: Nanos(2), took: 3 };
        assert_eq!(tapes.take(Id(1)), (vec![traced], 0));
        (0..WAITING_MAX as u64 + 7).for_each(|at| needle.note(&asked(at), Nanos(at)));
        let (taken, lost) = tapes.take(Id(1));
        assert_eq!((taken.len(), lost), (WAITING_MAX, 7));
        assert_eq!(tapes.take(Id(1)), (Vec::new(), 0));
        tapes.end(Id(1));
        needle.note(&asked(9), Nanos(9));
        assert_eq!(tapes.take(Id(1)), (Vec::new(), 0));
        assert!((0..TRACES_MAX as u128).all(|volume| tapes.begin(Id(volume))) && !tapes.begin(Id(99)));
    }
}
