//! What keeps a snapshot from being deleted: that it is held, a template, cloned, or *retained* until some time.
//!
//! Retention protects a snapshot from administrators, too, and from whoever has their passwords. It can be made longer and not shorter, and neither the
//! volume nor the imported pool can be deleted before it ends. So it is measured by a clock that no user can set. The
//! *pool's clock* begins with the machine's when the pool is created, runs with the machine's uptime while the pool is imported, and stands still
//! while it is not. Each superblock has it; after a crash it goes on from the last one, which is never too far.

use crate::control::Control;
use crate::error::{Error, ErrorKind};
use crate::lineage::Snapshot;
use crate::record::DatasetRecord;
use crate::shard::Shard;
use crate::spec::{SnapshotChange, SnapshotInfo};
use crate::steps::Steps;
use crate::utc::utc;
use forebay_base::{Nanos, WallTime};
use forebay_runtime::Rt;
use std::rc::Rc;
use std::time::Duration;

/// While something is retained, a superblock is written at least this often: so much longer it may be retained for each crash.
const STORED_EVERY: Duration = Duration::from_secs(3600);

/// How an objection begins that only time settles.
const RETAINED: &str = "it is retained until";

#[derive(Clone, Copy)]
pub(crate) struct PoolClock {
    stored: WallTime,
    since: Nanos,
}

impl PoolClock {
    /// Goes on from what a superblock says.
    pub fn from(stored: WallTime, rt: &Rt) -> PoolClock {
        PoolClock { stored, since: rt.uptime() }
    }

    pub fn now(&self, rt: &Rt) -> WallTime {
        WallTime(self.stored.0.saturating_add(rt.uptime().since(self.since) / 1_000_000))
    }
}

impl Shard {
    /// Until when a snapshot is retained, by the machine's clock as it is now; nothing when it is not.
    pub(crate) fn retained_until(&self, record: &DatasetRecord) -> Option<WallTime> {
        let left = record.retain_until.0.saturating_sub(self.shared.clock.now(&self.rt).0);
        (left > 0).then(|| WallTime(self.rt.wall().0.saturating_add(left)))
    }

    /// A retained snapshot, if there is one; it may take a while to find.
    async fn retained(self: &Rc<Self>) -> Option<SnapshotInfo> {
        let (mut from, mut steps) = (0, Steps::default());
        loop {
            steps.take(1).await;
            let next = self.snapshots.borrow().range(from..).next().map(|(_, snapshot)| snapshot.clone())?;
            from = next.number() + 1;
            if next.is_live() && self.retained_until(&next.record.borrow()).is_some() {
                return Some(self.snapshot_info(&next));
            }
        }
    }

    /// Why a snapshot is not to be deleted; nothing when it may be.
    pub(crate) fn objection(&self, snapshot: &Snapshot) -> Option<String> {
        let info = self.snapshot_info(snapshot);
        let (volumes, snapshots) = self.heirs(snapshot.number());
        if let Some(until) = info.retained_until {
            Some(format!("{RETAINED} {} and cannot be deleted before", utc(until)))
        } else if info.held || info.template {
            Some(format!("it is {}", if info.held { "held" } else { "a template" }))
        } else if !info.clones.is_empty() {
            Some(format!("it has clones: {}", info.clones.join(", ")))
        } else if volumes.len() + snapshots.len() > 1 {
            Some("its volume was rolled back to it and still has newer snapshots".into())
        } else if snapshot.is_lent() {
            Some("it is being cloned or sent".into())
        } else {
            None
        }
    }

    /// Snapshots of a volume that cannot go with it, with the reason.
    pub(crate) fn objections(&self, volume: u64) -> Vec<String> {
        let snapshots = self.snapshots_of(volume);
        let stays = |snapshot: &Rc<Snapshot>| {
            let info = self.snapshot_info(snapshot);
            let why = if info.retained_until.is_some() || info.held || info.template || snapshot.is_lent() {
                self.objection(snapshot)
            } else if !info.clones.is_empty() {
                Some(format!("it has clones: {}", info.clones.join(", ")))
            } else {
                None
            };
            why.map(|why| format!("@{}: {why}", info.name))
        };
        snapshots.iter().filter_map(stays).collect()
    }
}

impl Control {
    /// The time of the pool's clock in so many seconds; zero for no seconds.
    pub(crate) fn retain_until(&self, seconds: u32) -> WallTime {
        let now = self.shared.clock.now(&self.rt);
        if seconds == 0 { WallTime(0) } else { WallTime(now.0.saturating_add(u64::from(seconds) * 1000)) }
    }

    /// Refuses to destroy a pool in which something is retained.
    pub(crate) async fn refuse_while_retained(&self) -> Result<(), Error> {
        let Some(found) = self.retained().await? else { return Ok(()) };
        let message = format!(
            "the pool cannot be destroyed yet: snapshot {}/{}@{} is retained until {}",
            found.pool,
            found.volume,
            found.name,
            utc(found.retained_until.unwrap_or_default())
        );
        Err(Error::new(ErrorKind::Conflict, self.name(), message).remedy(
            "'forebay snapshot list' shows the retained snapshots and the end of each retention; destroy the pool after that",
        ))
    }

    async fn retained(&self) -> Result<Option<SnapshotInfo>, Error> {
        for index in 0..self.shard_count() {
            let found = self.on_shard(index, |shard| async move { shard.retained().await }).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Has the pool's clock stored where a crash would have it fall back too far.
    pub(crate) async fn keep_time(self: &Rc<Self>) {
        let is_due = self.rt.now().since(self.clock_stored.get()) >= STORED_EVERY.as_nanos() as u64;
        if is_due && !self.shared.import.read_only && matches!(self.retained().await, Ok(Some(_))) {
            // A checkpoint that fails suspends the pool, and has its event.
            let _ = self.checkpoint().await;
        }
    }

    /// The remedy for an objection: for what is retained only time, whatever else would help otherwise.
    pub(crate) fn remedy_of(why: &str, otherwise: &str) -> String {
        if why.contains(RETAINED) { "Wait until then".into() } else { otherwise.into() }
    }

    /// Refuses to retain anything in a pool that is being destroyed.
    pub(crate) fn check_retention(&self, object: &str, is_retained: bool) -> Result<(), Error> {
        if is_retained && self.destroying.get() {
            let object = self.object(object);
            return Err(Error::new(ErrorKind::Conflict, object, "its pool is being destroyed")
                .remedy("If the pool stays, try again"));
        }
        Ok(())
    }

    pub(crate) async fn snapshot_set(
        self: &Rc<Self>,
        name: &str,
        change: SnapshotChange,
    ) -> Result<SnapshotInfo, Error> {
        let _turn = self.lineage.lock(0, 0).await;
        self.check_retention(name, change.retain_seconds.is_some())?;
        let retain_until = change.retain_seconds.map_or(WallTime(0), |seconds| self.retain_until(seconds));
        let changed = self.on_snapshot(name, move |shard, snapshot| async move {
            let mut record = snapshot.record.borrow().clone();
            record.held = change.held.unwrap_or(record.held);
            record.template = change.template.unwrap_or(record.template);
            let now = shard.retained_until(&record);
            if change.retain_seconds.is_some() && now.is_some() && retain_until.0 < record.retain_until.0 {
                return Ok(Err(now));
            }
            record.retain_until = WallTime(record.retain_until.0.max(retain_until.0));
            shard.put_all(vec![record]).await?;
            Ok(Ok(shard.describe(&snapshot).await))
        });
        let changed = changed.await?;
        if changed.is_ok() && change.retain_seconds.is_some() {
            // A crash is not to take the pool's clock back to before this.
            self.checkpoint().await?;
        }
        changed.map_err(|until| {
            let until = utc(until.unwrap_or_default());
            let message =
                format!("it is retained until {until} already, and a retention cannot be shortened");
            Error::new(ErrorKind::Conflict, self.object(name), message).remedy("Choose a longer time")
        })
    }

    pub async fn snapshot_delete(&self, name: &str) -> Result<(), Error> {
        let _turn = self.lineage.lock(0, 0).await;
        let refused = self.on_snapshot(name, |shard, snapshot| async move {
            match shard.objection(&snapshot) {
                Some(why) => Ok(Err(why)),
                None => shard.doom(&[snapshot], None).await.map(Ok),
            }
        });
        refused.await?.map_err(|why| {
            let otherwise =
                "Release it with 'forebay snapshot release SNAPSHOT', or delete or promote the clones, then try again";
            Error::new(ErrorKind::Conflict, self.object(name), format!("it cannot be deleted: {why}"))
                .remedy(Self::remedy_of(&why, otherwise))
        })
    }
}
