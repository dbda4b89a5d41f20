//! Requests whose client no longer wants them.
//!
//! A request waits for much before it begins: for ceilings, for room at the shard, for a snapshot that is being taken. Until then it has
//! changed nothing and holds nothing but places in queues, which it gives up when its future is dropped. So that is how it is cancelled,
//! and only as long as it waits there: a request that has begun holds what others count on (allocations, locks, an entry
//! in a commit), and goes on to its end.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Cancels all requests that were given a clone of it and have not begun. Belongs to one core.
#[derive(Clone, Default)]
pub struct Cancellation(Rc<State>);

#[derive(Default)]
struct State {
    is_cancelled: Cell<bool>,
    /// Tasks with requests that wait, each once: as many as its owner runs at a time.
    waiting: RefCell<Vec<Waker>>,
}

impl Cancellation {
    /// From now on nothing under it begins.
    pub fn cancel(&self) {
        self.0.is_cancelled.set(true);
        self.0.waiting.take().into_iter().for_each(Waker::wake);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.get()
    }

    /// What `wait` gives; nothing, and `wait` is dropped, when it is cancelled before that.
    pub async fn unless_cancelled<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let mut wait = pin!(wait);
        poll_fn(|context| {
            if self.is_cancelled() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(value) = wait.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            let mut waiting = self.0.waiting.borrow_mut();
            if !waiting.iter().any(|known| known.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::{pending, ready};
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

    #[test]
    fn what_waits_is_dropped_and_woken_once_and_what_comes_later_does_not_begin() {
        let (cancellation, woken) = (Cancellation::default(), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        assert_eq!(cancellation.unless_cancelled(ready(7)).now_or_never(), Some(Some(7)));
        let held = Rc::new(());
        let guard = held.clone();
        let mut waiting = Box::pin(cancellation.unless_cancelled(async move {
            let _guard = guard;
            pending::<()>().await;
        }));
        for _ in 0..3 {
            assert!(waiting.poll_unpin(&mut context).is_pending());
        }
        cancellation.clone().cancel();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(waiting.poll_unpin(&mut context), Poll::Ready(None));
        drop(waiting);
        assert_eq!(Rc::strong_count(&held), 1, "its places are given up");
        assert_eq!(cancellation.unless_cancelled(ready(7)).now_or_never(), Some(None));
    }
}
