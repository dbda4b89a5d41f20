//! What begins by itself: scrubs, so long after the last was through as the pool's superblock says, and snapshots of volumes that
//! have a schedule. Of these, which are kept is a matter of when they were taken ([`kept`]).
//!
//! Of scrubs one pool at a time, and not while something has to heal: a scrub that is due waits. After a time in which the pool was not
//! imported, it is due at once. A scrub that somebody paused stays paused.

use crate::control::Control;
use crate::error::Error;
use crate::lineage::Snapshot;
use crate::registry::registry;
use crate::reserve::Attempt;
use crate::shard::Shard;
use crate::spec::{ScrubSchedule, ScrubState, Severity};
use crate::steps::Steps;
use crate::utc::{date, utc};
use forebay_base::WallTime;
use forebay_runtime::Rt;
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How often it is looked whether a scrub is due.
const PERIOD: Duration = Duration::from_secs(60);
/// The same for snapshots; and how long it rests after one could not be taken.
const SNAPSHOT_PERIOD: Duration = Duration::from_secs(5);
const SNAPSHOT_REST: Duration = Duration::from_secs(300);

/// When snapshots of a volume are taken without being asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSchedule {
    /// From one to the next; 0 for never.
    pub every_seconds: u32,
    pub keep: SnapshotKeep,
}

/// Which of a volume's scheduled snapshots are kept: each that counts for one of these. The others are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotKeep {
    /// So many of the newest.
    pub last: u32,
    /// The newest of each of the last so many hours in which there are any, and so on. Hours, days, weeks (from Monday) and months are those of UTC.
    pub hourly: u8,
    pub daily: u8,
    pub weekly: u8,
    pub monthly: u8,
}

impl SnapshotKeep {
    pub const fn last(last: u32) -> SnapshotKeep {
        SnapshotKeep { last, hourly: 0, daily: 0, weekly: 0, monthly: 0 }
    }
}

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
        due.retain(|volume| self.find(volume).is_some() && self.refuse_while_moving(volume).is_ok());
        // What goes makes room for what comes.
        for old in surplus {
            // One that has got a clone stays.
            let _ = self.snapshot_delete(&old).await;
        }
        if !due.is_empty() {
            self.snapshot_create(&due, &format!("auto-{}", utc(now)), (true, 0), Attempt::Real).await?;
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
            let taken = self.scheduled_of(number, &mut steps).await;
            let last = taken.last().map_or(WallTime(0), |(at, _)| *at);
            // A clock that was ahead does not stop them.
            if last.0 > now.0 || now.0 - last.0 >= u64::from(every_seconds) * 1000 {
                // By its id: it may get another name meanwhile.
                due.push(dataset.id().to_string());
            }
            let times: Vec<WallTime> = taken.iter().map(|(at, _)| *at).collect();
            let is_surplus = kept(&times, keep).into_iter().map(|is_kept| !is_kept);
            for (_, epoch) in taken.iter().zip(is_surplus).filter_map(|(taken, is)| is.then_some(taken)) {
                steps.take(1).await;
                let old = self.snapshots.borrow().of_volume_from(number, *epoch).find(is_scheduled).cloned();
                if let Some(old) = old.filter(|old| old.epoch() == *epoch && self.objection(old).is_none()) {
                    surplus.push(old.record.borrow().id.to_string());
                }
            }
        }
        (due, surplus)
    }

    /// A volume's scheduled snapshots, oldest first: when each was taken, and its epoch.
    async fn scheduled_of(&self, volume: u64, steps: &mut Steps) -> Vec<(WallTime, u64)> {
        let (mut taken, mut epoch) = (Vec::new(), 0);
        loop {
            steps.take(1).await;
            let next = self.snapshots.borrow().of_volume_from(volume, epoch).find(is_scheduled).cloned();
            let Some(snapshot) = next else { return taken };
            epoch = snapshot.epoch() + 1;
            taken.push((snapshot.record.borrow().created, snapshot.epoch()));
        }
    }
}

/// Which of the snapshots that were taken at these times, oldest first, are kept. The newest always is: the next one is counted from it.
fn kept(taken: &[WallTime], keep: SnapshotKeep) -> Vec<bool> {
    let mut kept = vec![false; taken.len()];
    let newest_first = || (0..taken.len()).rev();
    newest_first().take(keep.last.max(1) as usize).for_each(|nth| kept[nth] = true);
    let days = |at: WallTime| at.0 / 86_400_000;
    let month = |at: WallTime| {
        let (year, month, _) = date(days(at));
        year * 12 + month
    };
    // 1970-01-01 was a Thursday.
    let week = |at: WallTime| (days(at) + 3) / 7;
    let spans: [(u8, &dyn Fn(WallTime) -> u64); 4] = [
        (keep.hourly, &|at| at.0 / 3_600_000),
        (keep.daily, &days),
        (keep.weekly, &week),
        (keep.monthly, &month),
    ];
    for (count, span_of) in spans {
        // A clock that was set back comes to a span again.
        let mut spans = BTreeSet::new();
        for nth in newest_first() {
            let span = span_of(taken[nth]);
            if spans.contains(&span) {
                continue;
            }
            if spans.len() == usize::from(count) {
                break;
            }
            spans.insert(span);
            kept[nth] = true;
        }
    }
    kept
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    /// When those are from that are kept, in hours since 1970.
    fn hours_kept(taken: impl IntoIterator<Item = u64>, keep: SnapshotKeep) -> Vec<u64> {
        let taken: Vec<WallTime> = taken.into_iter().map(|hour| WallTime(hour * HOUR)).collect();
        let kept = kept(&taken, keep);
        taken.iter().zip(kept).filter_map(|(at, is_kept)| is_kept.then_some(at.0 / HOUR)).collect()
    }

    #[test]
    fn the_newest_are_kept_and_the_newest_of_each_day_week_and_month() {
        let of = |last, hourly, daily, weekly, monthly| SnapshotKeep { last, hourly, daily, weekly, monthly };
        let year = 365 * 24;
        assert_eq!(hours_kept(0..100, SnapshotKeep::last(3)), [97, 98, 99]);
        assert_eq!(hours_kept(0..100, SnapshotKeep::default()), [99]);
        assert_eq!(hours_kept([], of(1, 1, 1, 1, 1)), []);
        assert_eq!(hours_kept(0..100, of(0, 2, 3, 0, 0)), [71, 95, 98, 99]);
        // Mondays were 5 and 12 January 1970.
        assert_eq!(hours_kept(0..14 * 24, of(0, 0, 0, 3, 0)), [4 * 24 - 1, 11 * 24 - 1, 14 * 24 - 1]);
        assert_eq!(hours_kept(0..year, of(0, 0, 0, 0, 3)), [304 * 24 - 1, 334 * 24 - 1, year - 1]);
        // What is counted are days that have any.
        assert_eq!(hours_kept([1, 2, 24 * 9, 24 * 20, 24 * 20 + 1], of(0, 0, 3, 0, 0)), [2, 216, 481]);
        // The usual one: after a year of hours, each span has what is asked of it, and they share what they can.
        let usual = hours_kept(0..year, of(0, 24, 7, 4, 12));
        assert_eq!(usual.len(), 24 + 6 + 2 + 11, "{usual:?}");
        // A time twice, and a clock that was set back.
        assert_eq!(hours_kept([5, 5, 5], of(0, 9, 0, 0, 0)), [5]);
        assert_eq!(hours_kept([50, 2, 3], of(2, 0, 9, 0, 0)), [50, 2, 3]);
        assert_eq!(hours_kept([1, 30, 2, 31, 3], of(0, 0, 2, 0, 0)), [31, 3]);
    }

    #[test]
    fn what_is_kept_stays_kept_as_long_as_it_counts() {
        // Taking them one by one, and deleting what is too many each time, ends as if all had been there at once.
        let keep = SnapshotKeep { last: 2, hourly: 5, daily: 4, weekly: 3, monthly: 2 };
        let mut there = Vec::new();
        for hour in 0..100 * 24 {
            there.push(hour);
            there = hours_kept(there, keep);
        }
        assert_eq!(there, hours_kept(0..100 * 24, keep));
    }
}
