//! How far work is that takes long, and a way to call it off.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that are done, and that are to be. Whoever asked for the work may call it off.
#[derive(Debug, Default)]
pub struct WorkProgress {
    done: AtomicU64,
    total: AtomicU64,
    is_canceled: AtomicBool,
}

impl WorkProgress {
    /// What is done so far, and in all: more than was expected when things change meanwhile.
    pub fn bytes(&self) -> (u64, u64) {
        let done = self.done.load(Ordering::Relaxed);
        (done, self.total.load(Ordering::Relaxed).max(done))
    }

    pub fn cancel(&self) {
        self.is_canceled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.is_canceled.load(Ordering::Relaxed)
    }

    pub(crate) fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }
}
