//! What the operations do, by object.

pub mod alerts;
pub mod bookmarks;
pub mod calibrate;
pub mod channels;
pub mod damage;
pub mod disks;
pub mod hosts;
pub mod inherited;
pub mod ledger;
pub mod levels;
pub mod logins;
pub mod machine;
pub mod mappings;
pub mod moves;
pub mod others;
pub mod pools;
pub mod projects;
pub mod reclaim;
pub mod rename;
pub mod reports;
pub mod sessions;
pub mod snapshots;
pub mod statistics;
pub mod streams;
pub mod thresholds;
pub mod trace;
pub mod trash;
pub mod users;
pub mod volumes;
pub mod watch;
pub mod worksheets;

use crate::Shared;
use crate::request::Principal;
use crate::tasks::{Progress, Running};
use forebay_api::Severity;
use forebay_pool::WorkProgress;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, interval};

const POLL_DELAY: Duration = Duration::from_secs(1);

/// Records what a principal did.
fn told(shared: &Shared, who: &Principal, code: &str, object: &str, what: &str) {
    shared.events.record(Severity::Info, code, object, &format!("{what}, by {}", who.name));
}

/// Runs a task whose work the engine does, with clients, for hours: it says how far that is, and cancels it when a client cancels the task or the
/// daemon stops.
async fn watched<T>(
    shared: &Shared,
    running: &mut Running,
    work: impl AsyncFnOnce(Arc<WorkProgress>) -> T,
) -> T {
    running.give_up_turn();
    let progress = Arc::new(WorkProgress::default());
    let to_cancel = progress.clone();
    running.cancel_by(move || to_cancel.cancel());
    let (start, mut ticks) = (Instant::now(), interval(POLL_DELAY));
    let mut work = Box::pin(work(progress.clone()));
    let mut stopping = shared.stopping.subscribe();
    let mut is_stopping = false;
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => running.progress(told_of(&progress, start.elapsed())),
            // An error means that the daemon is gone altogether.
            _ = stopping.wait_for(|stopping| *stopping), if !is_stopping => {
                is_stopping = true;
                progress.cancel();
            }
        }
    }
}

fn told_of(progress: &WorkProgress, elapsed: Duration) -> Progress {
    let (done, total) = progress.bytes();
    let rate = u128::from(done).saturating_mul(1000).checked_div(elapsed.as_millis());
    Progress {
        permille: (done.saturating_mul(1000)).checked_div(total).map(|done| done.min(999) as u32),
        rate_bytes_per_second: rate.map(|rate| rate as u64),
        // How much clients change meanwhile is not known.
        eta: None,
    }
}
