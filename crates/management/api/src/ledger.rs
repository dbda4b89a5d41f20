//! The ledger of service levels: what each volume was promised, asked for and got in a second, and why a promise was not kept.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A pool's second. Parts of the pool's time are in thousandths.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LedgerSecond {
    /// Grows, also from one import to the next, as long as nobody sets the clock back.
    pub number: u64,
    pub ended_unix_ms: u64,
    /// Some more or less than a million.
    pub span_us: u64,
    /// How much can be promised. Absent as long as the pool was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promisable_permille: Option<u32>,
    /// What the floors of all volumes would take together at worst; more than can be promised when some are best effort.
    pub promised_permille: u32,
    /// By kind, the pool's time that its own work took, in microseconds.
    pub own_work_us: BTreeMap<String, u64>,
    /// Volumes that were asked for something.
    pub volumes: Vec<LedgerLine>,
}

/// A volume's second.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LedgerLine {
    /// `POOL/NAME`.
    pub volume: String,
    #[schema(format = "uuid")]
    pub volume_id: String,
    /// Its name, `none`, or the UUID of one that nobody here knows.
    pub level: String,
    /// Absent where its level promises no rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
    pub state: LedgerState,
    /// Why a promise was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<LedgerCause>,
    pub asked: u64,
    pub asked_bytes: u64,
    pub done: u64,
    pub done_bytes: u64,
    /// Answered with an error.
    pub failed: u64,
    /// Of those that are done: how many took longer than the level's goal, or than 100 ms where it has none but a floor.
    pub late: u64,
    /// Asked for, and not answered at the end of the second.
    pub waiting: u64,
    /// What half of them took at most, and 99 of 100; too large by an eighth at most. Time at ceilings is left out.
    pub p50_us: u64,
    pub p99_us: u64,
    /// Where the time of all requests together went: at ceilings, waiting for room in the log, for their turn, and at the disks.
    pub held_us: u64,
    pub room_us: u64,
    pub turn_us: u64,
    pub disks_us: u64,
    /// Before all that, until a snapshot was taken or a move came to its end.
    pub paused_us: u64,
    /// How much of the pool's time it took.
    pub pool_time_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    Promised,
    /// There is not enough for it; its floor and its latency goal do not count.
    BestEffort,
    /// Nor do they now: there is enough for it only with all disks in service and as fast as they were measured to be.
    CannotBeKept,
    /// Nobody has measured what the pool can do.
    Unmeasured,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerState {
    /// It had its floor, or all in time where it has none.
    Met,
    /// It asked for less than its floor, and had it in time.
    NotDemanded,
    /// It had as much as its ceiling allows.
    Capped,
    Violated,
    /// It has its share and no promise, as `standing` says.
    BestEffort,
    CannotBeKept,
}

/// What most of the time went to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LedgerCause {
    pub kind: CauseKind,
    /// Of a neighbour, `POOL/NAME`; of the pool's own work, its kind; of a disk, its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// Another volume had the most of the pool's time.
    Neighbour,
    /// The pool's own work had, or it filled the log.
    OwnWork,
    /// A disk is far slower than others of its group.
    Disk,
    /// The disks do less than they were measured to do.
    Disks,
    /// The disks take that long by themselves: only memory is faster.
    CacheMiss,
    /// It asked for more than the pool has, by itself.
    Itself,
}

impl LedgerCause {
    /// For people, in a few words.
    pub fn words(&self) -> String {
        let object = self.object.as_deref().unwrap_or_default();
        match self.kind {
            CauseKind::Neighbour | CauseKind::OwnWork => object.to_string(),
            CauseKind::Disk => format!("disk {object} is slow"),
            CauseKind::Disks => "slow disks".into(),
            CauseKind::CacheMiss => "cache miss".into(),
            CauseKind::Itself => "asks for more than the pool has".into(),
        }
    }
}
