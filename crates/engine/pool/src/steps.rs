//! Yields within long loops. A core has many pools and clients: a loop over everything that a shard has keeps all of them
//! waiting, so it hands the core on after [`ITEMS_MAX`] items.
//!
//! Whatever is shared may change during a yield. Such a loop therefore remembers a key and goes on from there; it holds no borrow,
//! and looks again at what it found before.

use forebay_base::planted::{Bug, active, count_items};
use forebay_runtime::yield_now;

/// Items that are handled between two yields: at 50 ns each, a fifth of a millisecond.
pub(crate) const ITEMS_MAX: usize = 4096;

/// The items since the last yield.
#[derive(Default)]
pub(crate) struct Steps(usize);

impl Steps {
    /// To be called before `items` items are handled: yields first if they would be too many.
    pub async fn take(&mut self, items: usize) {
        if self.0 + items > ITEMS_MAX && !active(Bug::LoopsNeverYield) {
            yield_now().await;
            self.0 = 0;
        }
        self.0 += items;
        count_items(items);
    }
}
