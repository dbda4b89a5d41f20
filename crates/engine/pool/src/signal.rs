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
    queue: RefCell<VecDeque<u64>>,
    tickets: Cell<u64>,
    turnstile: Turnstile,
}

/// A place inside a [`Gate`].
pub(crate) struct Pass {
    gate: Rc<Gate>,
    bytes: usize,
}

impl Gate {
    pub fn new(limit: usize) -> Gate {
        let (queue, turnstile) = (RefCell::default(), Turnstile::default());
        Gate { limit, inside: Cell::new(0), queue, tickets: Cell::new(0), turnstile }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.inside.get() == 0 || self.inside.get() + bytes <= self.limit
    }

    pub async fn enter(self: &Rc<Self>, bytes: usize) -> Pass {
        if !self.queue.borrow().is_empty() || !self.fits(bytes) {
            let ticket = self.tickets.get();
            self.tickets.set(ticket + 1);
            self.queue.borrow_mut().push_back(ticket);
            let guard = Ticket { gate: self, ticket };
            self.turnstile.until(|| self.queue.borrow().front() == Some(&ticket) && self.fits(bytes)).await;
            drop(guard);
        }
        self.inside.set(self.inside.get() + bytes);
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
        self.gate.queue.borrow_mut().retain(|ticket| *ticket != self.ticket);
        self.gate.turnstile.changed();
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.inside.set(self.gate.inside.get() - self.bytes);
        self.gate.turnstile.changed();
    }
}
