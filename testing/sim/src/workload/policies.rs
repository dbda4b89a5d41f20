//! Policies that change under load: of a volume, and of a project on whatever shards its volumes are; and zeros over much of a volume, which empty
//! their leaves. Each acknowledgement is judged by the policy that was in force then.

use super::{Clients, Live, MIB, POOL, SECTOR};
use crate::harness::Failure;
use crate::oracle::{Effect, NEVER};
use forebay_pool::{ProjectChange, ProjectProperties, Setting, SyncPolicy, VolumeChange};
use futures_util::future::join;
use std::time::Duration;

/// The project that every other volume is in.
pub(super) const PROJECT: &str = "p";
const POLICIES: [SyncPolicy; 4] =
    [SyncPolicy::Always, SyncPolicy::Standard, SyncPolicy::Standard, SyncPolicy::Disabled];
/// As much of a volume is zeroed from its start: more than a leaf of small blocks.
const WIPED_BYTES_MAX: u64 = 4 * MIB;

impl Clients {
    pub(super) async fn create_project(&self) -> Result<(), Failure> {
        let properties = ProjectProperties { sync: Some(SyncPolicy::Standard), ..Default::default() };
        let created = self.engine.project_create(&format!("{POOL}/{PROJECT}"), properties).await;
        created.map(drop).map_err(|error| Failure::Outcome(format!("creating a project failed: {error}")))
    }

    /// Changes the policy of a volume, or of all in its project. One change at a time, so that it is known which is the last.
    pub(super) async fn change_policy(&self, live: &Live) {
        let policy = POLICIES[self.below(POLICIES.len() as u64) as usize];
        let issued = self.tick();
        let concerned: Vec<(usize, usize)> = {
            let mut history = self.history.borrow_mut();
            let is_its = |nth: &usize| match live.in_project {
                true => history.volumes[*nth].name.starts_with(&format!("{POOL}/{PROJECT}/")),
                false => *nth == live.model,
            };
            let models: Vec<usize> = (0..history.volumes.len()).filter(is_its).collect();
            let is_changing = |nth: &usize| {
                history.volumes[*nth].policies.iter().any(|(_, span)| span.acknowledged == NEVER)
            };
            if models.iter().any(is_changing) || history.volumes[live.model].deleted.issued != NEVER {
                return;
            }
            let issue = |nth: usize| (nth, history.volumes[nth].policy_issued(policy, issued));
            models.into_iter().map(issue).collect()
        };
        let sync = Setting::Own(policy);
        let result = match live.in_project {
            true => {
                let change = ProjectChange { sync, ..Default::default() };
                self.engine.project_set(&format!("{POOL}/{PROJECT}"), change).await.map(drop)
            }
            false => {
                let change = VolumeChange { sync, ..Default::default() };
                self.engine.volume_set(&live.name, change).await.map(drop)
            }
        };
        let is_gone = self.history.borrow().volumes[live.model].deleted.issued != NEVER && !live.in_project;
        match result {
            Ok(()) => {
                let granted = self.tick();
                let mut history = self.history.borrow_mut();
                concerned
                    .into_iter()
                    .for_each(|(nth, place)| history.volumes[nth].policy_granted(place, granted));
            }
            Err(_) if is_gone => {}
            Err(error) => self.outcome("changing a sync policy", Err(error)),
        }
    }

    /// Zeros over all of a volume, or much of it, discarded or written. Sometimes they are asked for twice, and only then to be durable: what
    /// is a hole in memory may not be one on disk yet.
    pub(super) async fn wipe(&self, live: &Live) {
        let size = live.handle.size().min(self.history.borrow().volumes[live.model].size());
        let size = size.min(WIPED_BYTES_MAX);
        let (discard, fua) = (self.below(2) == 0, self.below(2) == 0);
        if !live.reserved.borrow().is_empty() {
            return;
        }
        if !fua || self.below(2) == 0 {
            return self.zero_from_start(live, size, discard, fua).await;
        }
        self.zero_from_start(live, size, discard, false).await;
        // A checkpoint forgets the leaves before it is durable.
        let checkpoint = async {
            let result = self.engine.checkpoint(POOL).await;
            self.outcome("a checkpoint", result.map(drop));
        };
        let again = async {
            self.rt.sleep(Duration::from_micros(self.below(400))).await;
            self.zero_from_start(live, size, discard, true).await;
        };
        join(checkpoint, again).await;
    }

    async fn zero_from_start(&self, live: &Live, size: u64, discard: bool, fua: bool) {
        // A compare-and-write has its range to itself.
        if !live.reserved.borrow().is_empty() {
            return;
        }
        let (number, _) = self.issue(live, Effect::Zero, 0, (size / SECTOR as u64) as u32);
        let result = match discard {
            true => live.handle.discard(0, size, fua).await,
            false => live.handle.write_zeroes(0, size, fua).await,
        };
        self.end(live, number, result, fua, "zeros over a volume");
    }
}
