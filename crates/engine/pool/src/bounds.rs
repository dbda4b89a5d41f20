//! What a flow takes at most: its requests wait here for their ceilings.
//!
//! They wait before anything else: a request that waits has begun nothing, holds nothing, and hinders nobody; snapshots, moves and exports do not wait for
//! it. One of a flow takes its place under the ceilings at a time, so several flows share one evenly, and a change of the level reaches whoever
//! waits.

use crate::signal::Gate;
use forebay_qos::{Ceiling, Level, Rate, Work};
use forebay_runtime::Rt;
use futures_util::future::select;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// What requests wait for before anything else: up to two ceilings, of which others may know the second one, too.
pub struct Bounds {
    /// What its own was made of.
    own: Cell<(Rate, Duration)>,
    /// Its own, and one that it shares with others.
    ceilings: RefCell<[Option<Arc<Ceiling>>; 2]>,
    /// How often there was something new.
    version: Cell<u64>,
    /// Of the one that waits for its time.
    waiting: Cell<Option<Waker>>,
    /// Lets in one at a time.
    gate: Rc<Gate>,
}

/// A place under ceilings, given back when it is not used.
struct Taken {
    ceilings: [Option<Arc<Ceiling>>; 2],
    work: Work,
}

impl Taken {
    fn is_used(&mut self) {
        self.ceilings = [None, None];
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.ceilings.iter().flatten().for_each(|ceiling| ceiling.give_back(self.work));
    }
}

impl Bounds {
    /// Those of a level; none for one that says none.
    pub fn new(level: &Level) -> Bounds {
        let bounds = Bounds {
            own: Cell::default(),
            ceilings: RefCell::default(),
            version: Cell::new(0),
            waiting: Cell::new(None),
            gate: Rc::new(Gate::new(1)),
        };
        bounds.set(level);
        bounds
    }

    /// Others from now on, also for who waits; the same go on.
    pub(crate) fn set(&self, level: &Level) {
        let own = (level.ceiling, level.burst);
        if self.own.replace(own) == own {
            return;
        }
        let is_bound = level.ceiling != Rate::default();
        self.ceilings.borrow_mut()[0] = is_bound.then(|| Arc::new(Ceiling::new(level.ceiling, level.burst)));
        self.look_again();
    }

    /// Is under this one, too, from now on.
    pub fn share(&self, ceiling: Option<Arc<Ceiling>>) {
        let shared = &mut self.ceilings.borrow_mut()[1];
        let place = |ceiling: &Option<Arc<Ceiling>>| ceiling.as_ref().map(Arc::as_ptr);
        if place(shared) != place(&ceiling) {
            *shared = ceiling;
            self.look_again();
        }
    }

    /// Whoever waits finds out what has changed.
    pub fn look_again(&self) {
        self.version.set(self.version.get() + 1);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// Waits until `work` is below all of them, or there is nothing left to wait for ([`Bounds::look_again`] when that changes). Whether there
    /// were any.
    pub async fn pass(&self, rt: &Rt, work: Work, is_gone: impl Fn() -> bool) -> bool {
        if self.ceilings.borrow().iter().all(Option::is_none) {
            return false;
        }
        let _first = self.gate.enter(1).await;
        while !is_gone() {
            let (now, version) = (rt.now(), self.version.get());
            let mut taken = Taken { ceilings: self.ceilings.borrow().clone(), work };
            let begins = taken.ceilings.iter().flatten().map(|ceiling| ceiling.take(now, work)).max();
            let Some(begins) = begins.filter(|begins| *begins > now) else {
                taken.is_used();
                break;
            };
            let changed = poll_fn(|context| {
                if self.version.get() != version {
                    return Poll::Ready(());
                }
                self.waiting.set(Some(context.waker().clone()));
                Poll::Pending
            });
            select(pin!(changed), pin!(rt.sleep_until(begins))).await;
            if self.version.get() == version {
                taken.is_used();
                break;
            }
        }
        true
    }
}
