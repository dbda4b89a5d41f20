//! The ledger of service levels: guarantee, demand and result of each volume in each second, and why a level was
//! missed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// One second of a pool. Shares of the pool's time are in thousandths.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LedgerSecond {
    /// Grows with each second, also from one import to the next, unless the clock is set back.
    pub number: u64,
    pub ended_unix_ms: u64,
    /// Length of the second: about a million microseconds.
    pub span_us: u64,
    /// Share of the pool's time that can be guaranteed; absent before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee_max_permille: Option<u32>,
    /// Share of the pool's time that the minimums of all volumes take together at worst. It exceeds
    /// `guarantee_max_permille` when some volumes are best effort.
    pub guaranteed_permille: u32,
    /// Pool time of background work in microseconds, by kind.
    pub background_work_us: BTreeMap<String, u64>,
    /// Volumes with requests in this second.
    pub volumes: Vec<LedgerLine>,
}

/// One second of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LedgerLine {
    /// `POOL/NAME`.
    pub volume: String,
    #[schema(format = "uuid")]
    pub volume_id: String,
    /// Name of its level, `none`, or the UUID of a level that this appliance does not have.
    pub level: String,
    /// Absent when its level has no minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    pub state: LedgerState,
    /// Why the level was missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<LedgerCause>,
    pub asked: u64,
    pub asked_bytes: u64,
    pub done: u64,
    pub done_bytes: u64,
    /// Requests answered with an error.
    pub failed: u64,
    /// Completed requests that took longer than the latency goal; than 100 ms when the level has a minimum but no
    /// goal.
    pub late: u64,
    /// Requests not answered at the end of the second.
    pub waiting: u64,
    /// Median latency without time at limits; up to an eighth too high.
    pub p50_us: u64,
    /// p99 latency without time at limits; up to an eighth too high.
    pub p99_us: u64,
    /// Time of all requests together held back at limits.
    pub held_us: u64,
    /// Time of all requests together waiting for space in the log.
    pub room_us: u64,
    /// Time of all requests together waiting to be scheduled.
    pub turn_us: u64,
    /// Time of all requests together at the disks.
    pub disks_us: u64,
    /// Time before all these, until a snapshot was taken or a move completed.
    pub paused_us: u64,
    /// Pool time that the volume used.
    pub pool_time_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Guaranteed,
    /// The pool cannot guarantee its minimum: minimum and latency goal do not apply.
    BestEffort,
    /// Minimum and latency goal do not apply now: the guarantee needs all disks in service and as fast as measured.
    CannotBeMet,
    /// The pool's performance is not measured.
    Unmeasured,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerState {
    /// It got its minimum; without a minimum, all requests were in time.
    Met,
    /// Its demand was below its minimum, and was served in time.
    LowDemand,
    /// It reached its limit.
    Limited,
    Missed,
    /// It gets its share without a guarantee, as `standing` says.
    BestEffort,
    CannotBeMet,
}

/// The cause of most of the delay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LedgerCause {
    pub kind: CauseKind,
    /// The neighbour, `POOL/NAME`; the kind of background work; or the number of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// Another volume used most of the pool's time.
    Neighbour,
    /// Background work used most of the pool's time, or filled the log.
    BackgroundWork,
    /// A disk is far slower than the others of its group.
    Disk,
    /// The disks are slower than measured.
    Disks,
    /// The disks need that long; only memory is faster.
    CacheMiss,
    /// The volume's own demand exceeds the pool's performance.
    OwnDemand,
}

impl LedgerCause {
    /// For people, in a few words.
    pub fn words(&self) -> String {
        let object = self.object.as_deref().unwrap_or_default();
        match self.kind {
            CauseKind::Neighbour | CauseKind::BackgroundWork => object.to_string(),
            CauseKind::Disk => format!("disk {object} is slow"),
            CauseKind::Disks => "slow disks".into(),
            CauseKind::CacheMiss => "cache miss".into(),
            CauseKind::OwnDemand => "more demand than the pool can serve".into(),
        }
    }
}
