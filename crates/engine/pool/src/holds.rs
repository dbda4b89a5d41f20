//! Holds: readers that keep space from being given back while they use a pointer.
//!
//! A scrub and a repair read a pointer and then write where it leads. Space that a checkpoint gives back must not be allocated again before
//! they are done, or a repair lands on newer data. A holder reads the pointer from the trees *after* it took its hold. So a checkpoint that is
//! durable waits only for holds that are older than its own end: what a later holder finds in the trees was not freed before the freeze. A
//! holder that takes one hold after another, as a scrub does, delays a checkpoint by one step at most.

use crate::signal::Turnstile;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Default)]
pub(crate) struct Holds {
    next: Cell<u64>,
    held: RefCell<BTreeSet<u64>>,
    turnstile: Turnstile,
}

/// Until it is dropped, what its holder finds in the trees is not given back.
pub(crate) struct Hold {
    holds: Rc<Holds>,
    number: u64,
}

impl Holds {
    pub fn take(self: &Rc<Self>) -> Hold {
        let number = self.next.get();
        self.next.set(number + 1);
        self.held.borrow_mut().insert(number);
        Hold { holds: self.clone(), number }
    }

    /// Waits until every hold that exists now has ended.
    pub async fn earlier_ended(&self) {
        let end = self.next.get();
        self.turnstile.until(|| self.held.borrow().first().is_none_or(|first| *first >= end)).await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holds.held.borrow_mut().remove(&self.number);
        self.holds.turnstile.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_checkpoint_waits_for_earlier_holds_only() {
        let holds = Rc::new(Holds::default());
        assert!(holds.earlier_ended().now_or_never().is_some());
        let (first, second) = (holds.take(), holds.take());
        let mut ended = Box::pin(holds.earlier_ended());
        assert!(ended.as_mut().now_or_never().is_none());
        let later = holds.take();
        drop(second);
        assert!(ended.as_mut().now_or_never().is_none());
        drop(first);
        assert!(ended.as_mut().now_or_never().is_some(), "the later one is no reason to wait");
        drop(ended);
        drop(later);
    }
}
