//! A one-shot result on one executor: what an operation in flight owes to whoever waits for it.
//!
//! The waiter may go away; the [`Completer`] does not notice. An operation therefore owns its buffers and
//! drops them only when it is complete, so that cancelling a future never frees memory that a device is
//! still writing to.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

enum State<T> {
    Pending(Option<Waker>),
    Done(T),
    Taken,
    Abandoned,
}

/// The side that delivers the value.
pub struct Completer<T>(Rc<RefCell<State<T>>>);

/// The side that waits. Panics when the completer was dropped without delivering: an operation was lost.
#[must_use = "a completion does nothing unless awaited"]
pub struct Completion<T>(Rc<RefCell<State<T>>>);

/// A connected pair.
pub fn completion<T>() -> (Completer<T>, Completion<T>) {
    let state = Rc::new(RefCell::new(State::Pending(None)));
    (Completer(state.clone()), Completion(state))
}

/// Another who may deliver, before the completer does. What comes second is dropped.
pub struct Interrupter<T>(Rc<RefCell<State<T>>>);

/// Delivers a value that is still waited for, and gives one back that is not.
fn deliver<T>(state: &RefCell<State<T>>, value: T) -> Option<T> {
    let mut state = state.borrow_mut();
    if !matches!(*state, State::Pending(_)) {
        return Some(value);
    }
    let before = std::mem::replace(&mut *state, State::Done(value));
    drop(state);
    if let State::Pending(Some(waker)) = before {
        waker.wake();
    }
    None
}

impl<T> Interrupter<T> {
    pub fn interrupt(self, value: T) {
        drop(deliver(&self.0, value));
    }
}

impl<T> Completer<T> {
    pub fn complete(self, value: T) {
        drop(deliver(&self.0, value));
    }

    pub fn interrupter(&self) -> Interrupter<T> {
        Interrupter(self.0.clone())
    }

    /// Whether the waiter went away.
    pub fn is_orphan(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        if let State::Pending(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Abandoned;
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Completion<T> {
    /// A completion that already has its value.
    pub fn ready(value: T) -> Completion<T> {
        Completion(Rc::new(RefCell::new(State::Done(value))))
    }
}

impl<T> Future for Completion<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.borrow_mut();
        match &mut *state {
            State::Pending(waker) => {
                match waker {
                    Some(known) if known.will_wake(context.waker()) => {}
                    _ => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            State::Abandoned => panic!("an operation was dropped before it completed"),
            State::Taken => panic!("a completion was polled after it was ready"),
            State::Done(_) => match std::mem::replace(&mut *state, State::Taken) {
                State::Done(value) => Poll::Ready(value),
                _ => unreachable!("the state was Done"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll<T>(completion: &mut Completion<T>, count: &Arc<Count>) -> Poll<T> {
        Pin::new(completion).poll(&mut Context::from_waker(&Waker::from(count.clone())))
    }

    #[test]
    fn the_last_waker_is_woken_once() {
        let (first, last) = (Arc::default(), Arc::default());
        let (done, mut result) = completion();
        assert!(poll(&mut result, &first).is_pending());
        assert!(poll(&mut result, &last).is_pending());
        done.complete(7);
        assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
        assert_eq!(poll(&mut result, &last), Poll::Ready(7));
    }

    #[test]
    fn a_value_that_nobody_waits_for_is_dropped() {
        let value = Rc::new(());
        let (done, result) = completion();
        assert!(!done.is_orphan());
        drop(result);
        assert!(done.is_orphan());
        done.complete(value.clone());
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn an_interrupted_operation_ends_once() {
        let count = Arc::default();
        let (done, mut result) = completion();
        let interrupter = done.interrupter();
        assert!(poll(&mut result, &count).is_pending());
        interrupter.interrupt(1);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut result, &count), Poll::Ready(1));
        done.complete(2);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);

        let (done, mut result) = completion();
        let interrupter = done.interrupter();
        done.complete(1);
        interrupter.interrupt(2);
        assert_eq!(poll(&mut result, &count), Poll::Ready(1));
    }

    #[test]
    #[should_panic(expected = "an operation was dropped before it completed")]
    fn an_operation_that_is_lost_does_not_hang() {
        let count = Arc::default();
        let (done, mut result) = completion::<()>();
        assert!(poll(&mut result, &count).is_pending());
        drop(done);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        let _ = poll(&mut result, &count);
    }
}
