//! Waiting on one core: a signal without a value, and a gate that bounds what is in flight.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Wakes everyone who waits. A signal sent while nobody waits is kept for the next waiter.
#[derive(Default)]
pub(crate) struct Signal {
    set: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    pub fn send(&self) {
        self.set.set(true);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }

    pub async fn wait(&self) {
        poll_fn(|context| {
            if self.set.replace(false) {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Completes for every waiter when `condition` holds; whoever changes what it depends on calls [`Turnstile::changed`].
#[derive(Default)]
pub(crate) struct Turnstile {
    waiting: RefCell<Vec<Waker>>,
}

impl Turnstile {
    pub fn changed(&self) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }

    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        poll_fn(|context| {
            if condition() {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Lets at most `limit` bytes pass at a time, first come first served. One request may exceed the limit when it is alone.
pub(crate) struct Gate {
    limit: usize,
    inside: Cell<usize>,
    /// Who waits, by ticket, and for how much: only the first is woken.
    queue: RefCell<VecDeque<(u64, usize, Option<Waker>)>>,
    tickets: Cell<u64>,
}

/// A place inside a [`Gate`].
pub(crate) struct Pass {
    gate: Rc<Gate>,
    bytes: usize,
}

impl Gate {
    pub fn new(limit: usize) -> Gate {
        Gate { limit, inside: Cell::new(0), queue: RefCell::default(), tickets: Cell::new(0) }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.inside.get() == 0 || self.inside.get() + bytes <= self.limit
    }

    fn is_first(&self, ticket: u64) -> bool {
        self.queue.borrow().front().is_some_and(|(first, ..)| *first == ticket)
    }

    fn wake_first(&self) {
        let first = self.queue.borrow_mut().front_mut().and_then(|(.., waker)| waker.take());
        if let Some(waker) = first {
            waker.wake();
        }
    }

    /// Whether nobody is inside or waits.
    pub fn is_free(&self) -> bool {
        self.inside.get() == 0 && self.queue.borrow().is_empty()
    }

    /// What those have that are inside, and those want that wait.
    pub fn wanted(&self) -> usize {
        self.inside.get() + self.queue.borrow().iter().map(|(_, bytes, _)| bytes).sum::<usize>()
    }

    /// Enters if it need not wait.
    pub fn try_enter(self: &Rc<Self>, bytes: usize) -> Option<Pass> {
        let may_enter = self.queue.borrow().is_empty() && self.fits(bytes);
        may_enter.then(|| {
            self.inside.set(self.inside.get() + bytes);
            Pass { gate: self.clone(), bytes }
        })
    }

    pub async fn enter(self: &Rc<Self>, bytes: usize) -> Pass {
        if let Some(pass) = self.try_enter(bytes) {
            return pass;
        }
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        self.queue.borrow_mut().push_back((ticket, bytes, None));
        let guard = Ticket { gate: self, ticket };
        poll_fn(|context| {
            if self.is_first(ticket) && self.fits(bytes) {
                return Poll::Ready(());
            }
            let mut queue = self.queue.borrow_mut();
            let mine = queue.binary_search_by_key(&ticket, |(other, ..)| *other);
            queue[mine.expect("queued until the guard drops")].2 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.inside.set(self.inside.get() + bytes);
        drop(guard);
        Pass { gate: self.clone(), bytes }
    }
}

/// A place in the queue before a gate; given up when the waiter goes away.
struct Ticket<'a> {
    gate: &'a Gate,
    ticket: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut queue = self.gate.queue.borrow_mut();
        let mine = queue.binary_search_by_key(&self.ticket, |(other, ..)| *other);
        let mine = mine.expect("tickets are queued in order, and leave once");
        queue.remove(mine);
        drop(queue);
        if mine == 0 {
            self.gate.wake_first();
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.inside.set(self.gate.inside.get() - self.bytes);
        self.gate.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Waiter {
        woken: Arc<Woken>,
        enters: LocalBoxFuture<'static, Pass>,
    }

    impl Waiter {
        fn new(gate: &Rc<Gate>, bytes: usize) -> Waiter {
            let gate = gate.clone();
            let mut waiter = Waiter {
                woken: Arc::default(),
                enters: async move { gate.enter(bytes).await }.boxed_local(),
            };
            assert!(waiter.poll().is_none(), "there is no room");
            waiter
        }
        fn poll(&mut self) -> Option<Pass> {
            let waker = Waker::from(self.woken.clone());
            match self.enters.poll_unpin(&mut Context::from_waker(&waker)) {
                Poll::Ready(pass) => Some(pass),
                Poll::Pending => None,
            }
        }
        fn was_woken(&self) -> usize {
            self.woken.0.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn a_gate_wakes_who_is_first_and_nobody_is_forgotten() {
        let gate = Rc::new(Gate::new(10));
        let inside = gate.try_enter(8).expect("there is room");
        let mut large = Waiter::new(&gate, 10);
        let [gone, mut small, mut last] = [3, 3, 3].map(|bytes| Waiter::new(&gate, bytes));
        assert!(gate.try_enter(1).is_none(), "others came before");
        assert_eq!(gate.wanted(), 8 + 10 + 3 * 3);
        // One in the middle goes away: nobody else is any nearer.
        drop(gone);
        assert_eq!(gate.wanted(), 8 + 10 + 2 * 3);
        assert_eq!([large.was_woken(), small.was_woken(), last.was_woken()], [0; 3]);
        drop(inside);
        assert_eq!([large.was_woken(), small.was_woken()], [1, 0]);
        let inside = large.poll().expect("it is alone");
        assert_eq!(small.was_woken(), 1, "the next one looks");
        assert!(small.poll().is_none());
        drop(inside);
        // The first is woken and goes away before it has looked.
        assert_eq!(small.was_woken(), 1);
        drop(small);
        assert_eq!(last.was_woken(), 1);
        assert!(last.poll().is_some());
    }
}
