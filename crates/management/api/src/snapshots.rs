//! Snapshots: the contents of volumes at one moment.
//!
//! A snapshot keeps the blocks that its volume had when it was taken, and is never written. Clones can be made of it,
//! and its volume can be rolled back to it.

use crate::Condition;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::ToSchema;

/// Which scheduled snapshots of a volume are kept: those that one of these counts asks for. The others are deleted.
/// Hours, days, weeks (from Monday) and months are those of UTC; those without a snapshot do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotKeep {
    /// The newest snapshots, 0 to 1000.
    #[serde(default)]
    #[schema(maximum = 1000)]
    pub last: u32,
    /// The newest snapshot of each of the last hours, 0 to 255 of them.
    #[serde(default)]
    pub hourly: u8,
    /// The newest snapshot of each of the last days, 0 to 255 of them.
    #[serde(default)]
    pub daily: u8,
    /// The newest snapshot of each of the last weeks, 0 to 255 of them.
    #[serde(default)]
    pub weekly: u8,
    /// The newest snapshot of each of the last months, 0 to 255 of them.
    #[serde(default)]
    pub monthly: u8,
}

impl SnapshotKeep {
    pub const LAST_MAX: u32 = 1000;

    /// The newest so many.
    pub const fn last(last: u32) -> SnapshotKeep {
        SnapshotKeep { last, hourly: 0, daily: 0, weekly: 0, monthly: 0 }
    }

    fn counts(&self) -> [(&'static str, u32); 5] {
        let of = u32::from;
        [
            ("last", self.last),
            ("hourly", of(self.hourly)),
            ("daily", of(self.daily)),
            ("weekly", of(self.weekly)),
            ("monthly", of(self.monthly)),
        ]
    }
}

/// `24`, or `last=8,hourly=24,daily=7`: as it is read.
impl fmt::Display for SnapshotKeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == SnapshotKeep::last(self.last) {
            return write!(f, "{}", self.last);
        }
        let counts = self.counts().into_iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(name, count)| format!("{name}={count}")).collect();
        f.write_str(&counts.join(","))
    }
}

impl FromStr for SnapshotKeep {
    type Err = String;

    fn from_str(text: &str) -> Result<SnapshotKeep, String> {
        let wrong = || {
            "write a number (1 to 1000), or like last=8,hourly=24,daily=7,weekly=4,monthly=12 (last up to 1000, the others up to 255)".to_string()
        };
        if text.contains('+') {
            return Err(wrong());
        }
        if let Ok(last) = text.parse() {
            return if last <= SnapshotKeep::LAST_MAX { Ok(SnapshotKeep::last(last)) } else { Err(wrong()) };
        }
        let (mut keep, mut named) = (SnapshotKeep::default(), Vec::new());
        for part in text.split(',') {
            let (name, count) = part.split_once('=').ok_or_else(wrong)?;
            if named.contains(&name) {
                return Err(format!("{name} is given twice"));
            }
            named.push(name);
            let tier = match name {
                "last" => {
                    keep.last = count.parse().map_err(|_| wrong())?;
                    continue;
                }
                "hourly" => &mut keep.hourly,
                "daily" => &mut keep.daily,
                "weekly" => &mut keep.weekly,
                "monthly" => &mut keep.monthly,
                _ => return Err(wrong()),
            };
            *tier = count.parse().map_err(|_| wrong())?;
        }
        if keep.last > SnapshotKeep::LAST_MAX { Err(wrong()) } else { Ok(keep) }
    }
}

/// The contents of a volume at one moment. Its name is `POOL/VOLUME@NAME`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: SnapshotSpec,
    pub status: SnapshotStatus,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotSpec {
    /// Its volume, `POOL/NAME`.
    pub volume: String,
    /// It cannot be deleted until the hold is released.
    pub held: bool,
    /// A source of clones; it cannot be deleted either.
    pub template: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SnapshotStatus {
    pub pool: String,
    /// Size of the volume at that moment.
    pub size_bytes: u64,
    pub block_size_bytes: u32,
    /// Bytes of blocks that held data.
    pub mapped_bytes: u64,
    /// Bytes of blocks that only this snapshot has: deleting it alone frees them. Absent when some of its metadata
    /// cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_bytes: Option<u64>,
    /// End of the retention: no user can delete the snapshot before. It is given by the machine's clock as it is now.
    /// The pool's own clock decides; it cannot be set, and stands still while the pool is not imported. Absent
    /// without retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_until_unix_ms: Option<u64>,
    /// Taken by the volume's schedule, which also deletes it.
    pub scheduled: bool,
    /// Clones of it, `POOL/NAME`. It cannot be deleted while it has any.
    pub clones: Vec<String>,
    pub created_unix_ms: u64,
}

/// Snapshots to take, of one volume or of several at the same moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// Names or UUIDs of volumes of one pool, at most 256. The name or UUID of a project stands for all its volumes.
    pub volumes: Vec<String>,
    /// The part of the name after `@`, the same for all: 1 to 100 letters, digits and `._-:`.
    pub name: String,
    /// Retention in seconds: no user can delete these snapshots, their volumes or the imported pool before it ends.
    /// It can be extended, never shortened.
    #[schema(minimum = 1, maximum = 3153600000_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_seconds: Option<u64>,
}

/// Snapshots that were taken at the same moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Snapshots {
    /// In the order of the volumes in the request.
    pub items: Vec<Snapshot>,
}

/// Changes to a snapshot. Absent fields stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSet {
    /// The new name, without the volume: what follows the `@`. In a request without other changes. A schedule does not
    /// delete the snapshot any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<bool>,
    /// Retention in seconds from now: no user can delete the snapshot before it ends. It cannot end earlier than the
    /// present retention.
    #[schema(minimum = 1, maximum = 3153600000_u64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_seconds: Option<u64>,
}

/// Rolls the volume back to the snapshot. Changes since then that no snapshot has are lost. Newer snapshots stay.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRollback {
    /// Proceed although clients are connected to the volume.
    #[serde(default)]
    pub force: bool,
}

/// A clone to make of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotClone {
    /// `POOL/[PROJECT/]NAME`, in the snapshot's pool.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_reads_as_it_is_written() {
        for (text, keep) in [
            ("24", SnapshotKeep::last(24)),
            (
                "last=8,hourly=24,daily=7,weekly=4,monthly=12",
                SnapshotKeep { last: 8, hourly: 24, daily: 7, weekly: 4, monthly: 12 },
            ),
            ("daily=255", SnapshotKeep { daily: 255, ..SnapshotKeep::default() }),
            ("0", SnapshotKeep::default()),
        ] {
            assert_eq!(text.parse(), Ok(keep));
            assert_eq!(keep.to_string(), text);
        }
        assert_eq!("last=24".parse(), Ok(SnapshotKeep::last(24)));
        for wrong in [
            "",
            "1001",
            "last=1001",
            "hourly=256",
            "yearly=1",
            "daily",
            "daily=",
            "daily=1,daily=2",
            "-1",
            "+1",
            "daily=+1",
        ] {
            assert!(wrong.parse::<SnapshotKeep>().is_err(), "{wrong}");
        }
    }
}
