//! What begins by itself: scrubs, so long after the last was through as the pool's superblock says, and snapshots of volumes that
//! have a schedule.
//!
//! Of scrubs one pool at a time, and not while something has to heal: a scrub that is due waits. After a time in which the pool was not
//! imported, it is due at once. A scrub that somebody paused stays paused.

use crate::control::Control;
use crate::error::Error;
use crate::lineage::Snapshot;
use crate::registry::registry;
use crate::reserve::Attempt;
use crate::shard::Shard;
use crate::spec::{ScrubSchedule, ScrubState, Severity, SnapshotSchedule};
use crate::steps::Steps;
use crate::utc::utc;
use forebay_base::WallTime;
use forebay_runtime::Rt;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How often it is looked whether a scrub is due.
const PERIOD: Duration = Duration::from_secs(60);
/// The same for snapshots; and how long it rests after one could not be taken.
const SNAPSHOT_PERIOD: Duration = Duration::from_secs(5);
const SNAPSHOT_REST: Duration = Duration::from_secs(300);

impl Control {
    pub fn schedule_scrubs(self: &Rc<Self>) {
        drop(self.rt.spawn(look_for_scrubs(Rc::downgrade(self), self.rt.clone())));
    }

    /// When the next scrub is due; never in a pool that is only read.
    pub fn next_scrub(&self) -> Option<WallTime> {
        let ScrubSchedule { last, every_seconds } = self.scrub.schedule.get();
        let since = last.0.max(self.label.borrow().created.0);
        (every_seconds > 0 && !self.shared.import.read_only)
            .then(|| WallTime(since.saturating_add(u64::from(every_seconds) * 1000)))
    }

    /// Has scrubs begin by themselves after so many seconds, or never with 0.
    pub async fn schedule_scrub(self: &Rc<Self>, every_seconds: u32) -> Result<(), Error> {
        self.scrub.schedule.set(ScrubSchedule { every_seconds, ..self.scrub.schedule.get() });
        self.checkpoint().await.map(drop)
    }

    /// Has snapshots taken as the volumes' schedules say.
    pub fn schedule_snapshots(self: &Rc<Self>) {
        drop(self.rt.spawn(look_for_snapshots(Rc::downgrade(self), self.rt.clone())));
    }

    /// Takes the snapshots that are due, of all volumes at one moment, and deletes those that are too many.
    async fn scheduled_snapshots(self: &Rc<Self>) -> Result<(), Error> {
        let now = self.rt.wall();
        let (mut due, mut surplus) = (Vec::new(), Vec::new());
        for index in 0..self.shard_count() {
            let look = move |shard: Rc<Shard>| async move { shard.scheduled(now).await };
            let (theirs, old) = self.on_shard(index, look).await?;
            due.extend(theirs);
            surplus.extend(old);
        }
        // Those of a volume that moves are taken where it arrives.
        due.retain(|volume| self.refuse_while_moving(volume).is_ok());
        if !due.is_empty() {
            self.snapshot_create(&due, &format!("auto-{}", utc(now)), (true, 0), Attempt::Real).await?;
        }
        for old in surplus {
            // One that has got a clone stays.
            let _ = self.snapshot_delete(&old).await;
        }
        Ok(())
    }

    fn scrub_is_due(&self) -> bool {
        let (now, schedule) = (self.rt.wall(), self.scrub.schedule.get());
        if schedule.last.0 > now.0 {
            // The clock was ahead when the last one ended: at the latest it ended now.
            self.scrub.schedule.set(ScrubSchedule { last: now, ..schedule });
        }
        let is_paused =
            self.scrub.state.borrow().as_ref().is_some_and(|scrub| scrub.state == ScrubState::Paused);
        let is_free = !is_paused && !self.is_ending() && self.healer.status().is_none();
        let nobody = || registry(&self.rt).controls().iter().all(|pool| !pool.scrub.running.get());
        self.next_scrub().is_some_and(|next| next.0 <= now.0) && is_free && nobody()
    }
}

async fn look_for_scrubs(control: Weak<Control>, rt: Rt) {
    loop {
        rt.sleep(PERIOD).await;
        let Some(control) = control.upgrade().filter(|control| !control.closing.get()) else { return };
        control.keep_time().await;
        // A pool that is closed meanwhile starts none.
        if control.scrub_is_due() && control.scrub_start().await.is_ok() {
            let message = "a scheduled scrub has started".to_string();
            control.event(Severity::Info, "pool.scrub_started", control.name(), message);
        }
    }
}

impl Shard {
    /// The volumes whose next snapshot is due, and the scheduled snapshots of all that are too many.
    async fn scheduled(&self, now: WallTime) -> (Vec<String>, Vec<String>) {
        let (mut due, mut surplus) = (Vec::new(), Vec::new());
        let (mut from, mut steps) = (0, Steps::default());
        while let Some(dataset) = self.next_dataset(from) {
            steps.take(1).await;
            let number = dataset.number();
            from = number + 1;
            let SnapshotSchedule { every_seconds, keep } = dataset.schedule();
            if every_seconds == 0 || !dataset.is_live() {
                continue;
            }
            let (last, count) = self.count_scheduled(number, &mut steps).await;
            // A clock that was ahead does not stop them.
            if last.0 > now.0 || now.0 - last.0 >= u64::from(every_seconds) * 1000 {
                due.push(dataset.record.borrow().name.clone());
            }
            let many = count.saturating_sub(keep.max(1) as usize);
            let (snapshots, mut epoch) = (&self.snapshots, 0);
            for _ in 0..many {
                steps.take(1).await;
                let old = snapshots.borrow().of_volume_from(number, epoch).find(is_scheduled).cloned();
                let Some(old) = old else { break };
                epoch = old.epoch() + 1;
                if self.objection(&old).is_none() {
                    surplus.push(old.record.borrow().id.to_string());
                }
            }
        }
        (due, surplus)
    }

    /// When the last of a volume's scheduled snapshots was taken, and how many of them there are.
    async fn count_scheduled(&self, volume: u64, steps: &mut Steps) -> (WallTime, usize) {
        let (mut last, mut count, mut epoch) = (WallTime(0), 0, 0);
        loop {
            steps.take(1).await;
            let next = self.snapshots.borrow().of_volume_from(volume, epoch).find(is_scheduled).cloned();
            let Some(snapshot) = next else { return (last, count) };
            (last, epoch, count) = (snapshot.record.borrow().created, snapshot.epoch() + 1, count + 1);
        }
    }
}

fn is_scheduled(snapshot: &&Rc<Snapshot>) -> bool {
    snapshot.is_live() && snapshot.record.borrow().scheduled
}

async fn look_for_snapshots(control: Weak<Control>, rt: Rt) {
    loop {
        rt.sleep(SNAPSHOT_PERIOD).await;
        let Some(control) = control.upgrade().filter(|control| !control.closing.get()) else { return };
        if control.shared.is_suspended() {
            continue;
        }
        if let Err(error) = control.scheduled_snapshots().await {
            let message = format!("a scheduled snapshot could not be taken: {error}");
            control.event(Severity::Warning, "snapshot.scheduled_failed", control.name(), message);
            rt.sleep(SNAPSHOT_REST).await;
        }
    }
}
