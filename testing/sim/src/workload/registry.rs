//! Changes of the pool's registry under load, one at a time; what is there is looked at after each.

use super::Clients;
use crate::harness::Failure;
use crate::oracle::NEVER;
use crate::registry::{ITEMS, VALUE_MIN};
use crate::setup::POOL;
use forebay_pool::ErrorKind;
use std::collections::BTreeMap;

/// A value takes several rows at times, and seldom as many as there are in leaves.
const VALUE_BYTES: [u64; 6] = [8, 200, 500, 2_000, 2_000, 30_000];

impl Clients {
    pub(super) async fn change_registry(&self) {
        if self.changes_registry.replace(true) {
            return;
        }
        let issued = self.tick();
        let items: BTreeMap<u64, Option<usize>> = (0..1 + self.below(4))
            .map(|_| {
                let bytes = VALUE_MIN as u64 + self.below(VALUE_BYTES[self.below(6) as usize]);
                (self.below(ITEMS), (self.below(4) > 0).then_some(bytes as usize))
            })
            .collect();
        let changes = self.history.borrow_mut().registry.issue(items, issued);
        let result = self.engine.put_items(POOL, changes).await;
        let ended = self.tick();
        match &result {
            Ok(()) => self.history.borrow_mut().registry.acknowledged(ended),
            Err(error) if error.kind == ErrorKind::NoSpace => self.history.borrow_mut().registry.refused(),
            Err(_) => {}
        }
        self.outcome("changing the registry", result);
        match self.engine.items(POOL).await {
            Ok(found) => {
                let judged = self.history.borrow().registry.judge(&found, NEVER - 1, (true, true));
                judged.unwrap_or_else(|error| self.failure.report(Failure::Content(error)));
            }
            Err(error) => self.outcome("reading the registry", Err(error)),
        }
        self.changes_registry.set(false);
    }
}
