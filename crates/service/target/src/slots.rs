//! Many futures of one type in one task, in memory that is used again.
//!
//! A request must not cost an allocation, so a finished future's place (and its waker) serves the next one.
//! Wake-ups are bits: a future that is woken sets its bit, and only the first bit after a poll wakes the task;
//! thirty completions of one turn are one wake-up.

use futures_util::task::AtomicWaker;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const WORDS: usize = 4;
/// Most futures at a time.
pub const SLOTS_MAX: usize = WORDS * 64;

/// Up to [`SLOTS_MAX`] running futures.
pub struct Slots<F: Future> {
    slots: Vec<Slot<F>>,
    free: Vec<usize>,
    woken: Arc<Woken>,
}

struct Slot<F> {
    /// Pinned once; emptied and filled in place.
    future: Pin<Box<Option<F>>>,
    waker: Waker,
}

#[derive(Default)]
struct Woken {
    bits: [AtomicU64; WORDS],
    /// Set from the first wake-up until the task looks: further ones need not wake it again.
    notified: AtomicBool,
    task: AtomicWaker,
}

struct SlotWaker {
    index: usize,
    woken: Arc<Woken>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.bits[self.index / 64].fetch_or(1 << (self.index % 64), Ordering::SeqCst);
        if !self.woken.notified.swap(true, Ordering::SeqCst) {
            self.woken.task.wake();
        }
    }
}

impl<F: Future> Slots<F> {
    pub fn new() -> Slots<F> {
        Slots { slots: Vec::new(), free: Vec::new(), woken: Arc::default() }
    }

    /// Futures running.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Starts a future; its output when it needs not wait. Panics when all slots are taken.
    pub fn start(&mut self, future: F) -> Option<F::Output> {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.slots.len();
            assert!(index < SLOTS_MAX, "more than {SLOTS_MAX} futures were started");
            let waker = Waker::from(Arc::new(SlotWaker { index, woken: self.woken.clone() }));
            self.slots.push(Slot { future: Box::pin(None), waker });
            index
        });
        self.slots[index].future.set(Some(future));
        self.poll_slot(index)
    }

    /// Polls the futures that were woken and appends what they returned. The task must call this whenever it runs.
    pub fn poll(&mut self, context: &mut Context, finished: &mut Vec<F::Output>) {
        self.woken.task.register(context.waker());
        self.woken.notified.store(false, Ordering::SeqCst);
        for word in 0..WORDS {
            let mut bits = self.woken.bits[word].swap(0, Ordering::SeqCst);
            while bits != 0 {
                let index = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                finished.extend(self.poll_slot(index));
            }
        }
    }

    fn poll_slot(&mut self, index: usize) -> Option<F::Output> {
        let slot = &mut self.slots[index];
        // An empty slot was woken by what its last future left behind.
        let future = slot.future.as_mut().as_pin_mut()?;
        match future.poll(&mut Context::from_waker(&slot.waker)) {
            Poll::Pending => None,
            Poll::Ready(output) => {
                slot.future.set(None);
                self.free.push(index);
                Some(output)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_runtime::{Completion, completion};
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Counter(AtomicUsize);
    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn many_completions_are_one_wake_up_and_slots_are_used_again() {
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(counter.clone());
        let mut context = Context::from_waker(&waker);
        let mut slots: Slots<Completion<usize>> = Slots::new();
        assert_eq!(slots.start(Completion::ready(7)), Some(7));
        for round in 0..3 {
            let mut completers = Vec::new();
            for _ in 0..SLOTS_MAX {
                let (done, result) = completion();
                assert_eq!(slots.start(result), None);
                completers.push(done);
            }
            assert_eq!((slots.len(), slots.slots.len()), (SLOTS_MAX, SLOTS_MAX));
            let mut finished = Vec::new();
            slots.poll(&mut context, &mut finished);
            assert_eq!(finished, []);
            for (value, done) in completers.drain(..).enumerate() {
                done.complete(value);
            }
            assert_eq!(counter.0.load(Ordering::SeqCst), round + 1);
            slots.poll(&mut context, &mut finished);
            finished.sort_unstable();
            assert_eq!(finished, (0..SLOTS_MAX).collect::<Vec<_>>());
        }
    }
}
