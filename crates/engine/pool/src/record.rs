//! A dataset's line in the catalogue: a volume, a snapshot of one, a bookmark, a project, or the pool's own.
//!
//! ```text
//!   0 number 8     8 kind 1   9 state 1   10 sync 1   11 log2 of block bytes 1   12 height 1   13 compression 1   14 format 1   15 inherits 1
//!  16 id 16       32 family 16   48 size 8   56 created 8   64 root 32   96 mapped blocks 8   104 mapped units 8   112 parent 8   120 volume 8
//! 128 epoch 8    136 deleted before leaf 8   144 flags 4   148 keep hourly 1, daily 1, weekly 1, monthly 1   152 seconds 4   156 keep 4   160 deleted 8
//! 168 own blocks 8   176 own since 8   184 strays 8   192 added units 8   200 origin 16   216 base 16   232 received 8   240 level 16
//! 256 peer 16    272 ceiling 16, or forward since 8   288 quota 8   296 retain until 8   304 name length 2   306 name 200   506 zero 6
//! ```
//!
//! Where one kind of dataset has a field that another has no use for (a project its ceiling and quota, a volume its peer), the other may get a
//! field of its own.

use crate::added::Added;
use crate::bookmarks::Gap;
use crate::projects::Inherits;
use crate::reserve::Own;
use crate::spec::{SnapshotKeep, SnapshotSchedule, SyncPolicy, VolumeFormat};
use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_base::{Id, WallTime};
use forebay_compress::Compression;
use forebay_device::UNIT;
use forebay_qos::Rate;
use forebay_space::Ptr;
use forebay_tree::Mapped;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatasetState {
    Live,
    /// A deleted volume that can be had back: see [`crate::trash`]. Gone for clients; its snapshots, which are live, rest with it.
    Trashed,
    /// Being emptied in the background; gone for everyone else.
    Deleting,
    /// A volume of which a part has been received: see [`crate::receive`]. Nobody else finds it.
    Receiving,
    /// A volume that has moved to another pool, its `peer`: see [`crate::moving`]. Gone for everyone.
    Moved,
    /// A volume on its way here from its `peer`. Nobody else finds it.
    Arriving,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatasetKind {
    Volume,
    /// The pool's own: see [`crate::attributes`].
    Attributes,
    /// A volume as it was: see [`crate::lineage`].
    Snapshot,
    /// What volumes inherit: see [`crate::projects`]. It has no blocks.
    Project,
    /// A moment of a volume: see [`crate::bookmarks`]. It has no blocks.
    Bookmark,
}

impl DatasetKind {
    pub fn has_blocks(self) -> bool {
        !matches!(self, DatasetKind::Project | DatasetKind::Bookmark)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DatasetRecord {
    /// Number within the shard, as log records use it. No other dataset of the shard ever had it, or will.
    pub number: u64,
    pub kind: DatasetKind,
    pub state: DatasetState,
    pub sync: SyncPolicy,
    pub compression: Compression,
    pub block_shift: u8,
    pub id: Id,
    pub size: u64,
    pub created: WallTime,
    pub root: Ptr,
    pub mapped: Mapped,
    pub height: u8,
    /// A snapshot's is what stands behind the `@`.
    pub name: String,
    /// What the nodes of its tree say that they belong to: the first volume of those that descend from each other.
    pub family: Id,
    /// Of a snapshot: when it was sealed. Nothing in it was born later. Of a bookmark, that of its snapshot. Of a volume that is being received: what
    /// came for it was born from then on.
    pub epoch: u64,
    /// Of a snapshot that is being deleted: the leaves before this one are done.
    pub cursor: u64,
    /// Number of the snapshot that it grew from.
    pub parent: Option<u64>,
    /// Of a snapshot and a bookmark: the number of the volume that it is listed under.
    pub volume: u64,
    /// Of a volume and its snapshots: the moments after which it went back to something older.
    pub gap: Gap,
    /// Of a snapshot: it cannot be deleted before this time of the pool's clock. Zero for any time.
    pub retain_until: WallTime,
    pub held: bool,
    pub template: bool,
    pub scheduled: bool,
    pub schedule: SnapshotSchedule,
    /// Of a volume in the trash: since when.
    pub deleted: WallTime,
    /// Of a snapshot that was received, or is being received: the id of the snapshot that it is a copy of. Zero for none. Of a bookmark: what its
    /// snapshot is known by in streams.
    pub origin: Id,
    /// Of a volume that is being received: the origin of the snapshot that it began as. Zero when it began empty.
    pub base: Id,
    /// Of a volume that is being received: the blocks before this one are there, and durable. Of one that arrives: all blocks, once
    /// it is as it is where it comes from.
    pub received: u64,
    /// The other pool of a move. Zero for none.
    pub peer: Id,
    pub format: VolumeFormat,
    /// Of a volume and a project: the properties whose values here mean nothing.
    pub inherits: Inherits,
    /// Service level. Zero for none.
    pub level: Id,
    /// Of a project.
    pub ceiling: Rate,
    pub own: Own,
    pub added: Added,
    /// Of a project: bytes that all that belongs to it may take. Zero for any number.
    pub quota: u64,
}

pub(crate) const DATASET_BYTES: usize = 512;
/// Longest volume name in bytes.
pub(crate) const NAME_MAX: usize = 200;

/// Numbers are below this: no shard comes to it, and one more is a number, too.
pub(crate) const NUMBERS_MAX: u64 = 1 << 62;
/// No time of a pool's clock is as far: the year 10 000.
const TIMES_MAX: u64 = 253_402_300_800_000;

/// Allocation units of a block as it is.
pub(crate) fn block_units(block_shift: u8) -> u32 {
    (1 << block_shift) / UNIT as u32
}

const FLAG_HELD: u32 = 1;
const FLAG_TEMPLATE: u32 = 2;
const FLAG_SCHEDULED: u32 = 4;

impl DatasetRecord {
    /// A live dataset of which nothing is stored yet.
    pub fn new(kind: DatasetKind, id: Id, block_shift: u8, size: u64, name: String) -> DatasetRecord {
        DatasetRecord {
            number: 0,
            kind,
            state: DatasetState::Live,
            sync: SyncPolicy::Always,
            compression: Compression::Off,
            block_shift,
            id,
            size,
            created: WallTime(0),
            root: Ptr::HOLE,
            mapped: Mapped::default(),
            height: 0,
            name,
            family: id,
            epoch: 0,
            cursor: 0,
            parent: None,
            volume: 0,
            gap: Gap::default(),
            retain_until: WallTime(0),
            held: false,
            template: false,
            scheduled: false,
            schedule: SnapshotSchedule::default(),
            deleted: WallTime(0),
            origin: Id(0),
            base: Id(0),
            received: 0,
            peer: Id(0),
            format: VolumeFormat::Thin,
            inherits: Inherits::default(),
            level: Id(0),
            ceiling: Rate::default(),
            own: Own::default(),
            added: Added::default(),
            quota: 0,
        }
    }

    pub fn blocks(&self) -> u64 {
        self.size >> self.block_shift
    }

    /// Of one that arrives: whether it is as it is where it comes from.
    pub fn is_whole(&self) -> bool {
        self.received == self.blocks()
    }

    /// Of a snapshot: what it is known by in streams, the same in every pool that it was sent to.
    pub fn stream_id(&self) -> Id {
        if self.origin == Id(0) { self.id } else { self.origin }
    }

    pub fn encode(&self) -> [u8; DATASET_BYTES] {
        let mut bytes = [0; DATASET_BYTES];
        let mut w = Writer::new(&mut bytes);
        let sync = match self.sync {
            SyncPolicy::Always => 0,
            SyncPolicy::Standard => 1,
            SyncPolicy::Disabled => 2,
        };
        let kind = match self.kind {
            DatasetKind::Volume => 1,
            DatasetKind::Attributes => 2,
            DatasetKind::Snapshot => 3,
            DatasetKind::Project => 4,
            DatasetKind::Bookmark => 5,
        };
        let state = match self.state {
            DatasetState::Live => 0,
            DatasetState::Deleting => 1,
            DatasetState::Trashed => 2,
            DatasetState::Receiving => 3,
            DatasetState::Moved => 4,
            DatasetState::Arriving => 5,
        };
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.held, FLAG_HELD)
            | flag(self.template, FLAG_TEMPLATE)
            | flag(self.scheduled, FLAG_SCHEDULED);
        let format = match self.format {
            VolumeFormat::Thin => 0,
            VolumeFormat::ZeroedThick => 1,
            VolumeFormat::EagerZeroedThick => 2,
        };
        w.u64(self.number).u8(kind).u8(state).u8(sync).u8(self.block_shift);
        w.u8(self.height).u8(self.compression.code()).u8(format).u8(self.inherits.0);
        w.u128(self.id.0).u128(self.family.0).u64(self.size).u64(self.created.0);
        self.root.encode(&mut w);
        w.u64(self.mapped.blocks as u64).u64(self.mapped.units as u64);
        w.u64(self.parent.map_or(0, |number| number + 1)).u64(self.volume).u64(self.epoch).u64(self.cursor);
        let SnapshotSchedule { every_seconds, keep } = self.schedule;
        w.u32(flags).u8(keep.hourly).u8(keep.daily).u8(keep.weekly).u8(keep.monthly);
        w.u32(every_seconds).u32(keep.last).u64(self.deleted.0);
        w.u64(self.own.blocks).u64(self.own.since).u64(self.own.strays).u64(self.added.units as u64);
        w.u128(self.origin.0).u128(self.base.0).u64(self.received).u128(self.level.0).u128(self.peer.0);
        let (first, second) = match self.kind {
            DatasetKind::Project => (self.ceiling.iops, self.ceiling.bytes),
            _ => (self.gap.after, self.gap.before),
        };
        w.u64(first).u64(second).u64(self.quota).u64(self.retain_until.0);
        w.u16(self.name.len() as u16).text(&self.name, NAME_MAX);
        bytes
    }

    /// Nothing when a field is impossible or the place is unused.
    pub fn decode(bytes: &[u8]) -> Result<Option<DatasetRecord>, Truncated> {
        let mut r = Reader::new(bytes);
        let (number, kind, state, sync, block_shift) = (r.u64()?, r.u8()?, r.u8()?, r.u8()?, r.u8()?);
        let (height, compression, format, inherits) = (r.u8()?, r.u8()?, r.u8()?, Inherits(r.u8()?));
        let Some(compression) = Compression::from_code(compression) else { return Ok(None) };
        let (id, family, size, created) = (Id(r.u128()?), Id(r.u128()?), r.u64()?, WallTime(r.u64()?));
        let root = Ptr::decode(&mut r)?;
        let mapped = Mapped { blocks: r.u64()? as i64, units: r.u64()? as i64 };
        let (parent, volume) = (r.u64()?.checked_sub(1), r.u64()?);
        let (epoch, cursor, flags) = (r.u64()?, r.u64()?, r.u32()?);
        let (hourly, daily, weekly, monthly) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?);
        let (every_seconds, last) = (r.u32()?, r.u32()?);
        let keep = SnapshotKeep { last, hourly, daily, weekly, monthly };
        let schedule = SnapshotSchedule { every_seconds, keep };
        let deleted = WallTime(r.u64()?);
        let own = Own { blocks: r.u64()?, since: r.u64()?, strays: r.u64()? };
        let added = Added { units: r.u64()? as i64 };
        let (origin, base, received) = (Id(r.u128()?), Id(r.u128()?), r.u64()?);
        let (level, peer) = (Id(r.u128()?), Id(r.u128()?));
        let (first, second, quota) = (r.u64()?, r.u64()?, r.u64()?);
        let (retain_until, _, name) = (WallTime(r.u64()?), r.u16()?, r.text(NAME_MAX)?);
        let format = match format {
            0 => VolumeFormat::Thin,
            1 => VolumeFormat::ZeroedThick,
            2 => VolumeFormat::EagerZeroedThick,
            _ => return Ok(None),
        };
        let state = match state {
            0 => DatasetState::Live,
            1 => DatasetState::Deleting,
            2 => DatasetState::Trashed,
            3 => DatasetState::Receiving,
            4 => DatasetState::Moved,
            5 => DatasetState::Arriving,
            _ => return Ok(None),
        };
        let sync = match sync {
            0 => SyncPolicy::Always,
            1 => SyncPolicy::Standard,
            2 => SyncPolicy::Disabled,
            _ => return Ok(None),
        };
        let kind = match kind {
            1 => DatasetKind::Volume,
            2 => DatasetKind::Attributes,
            3 => DatasetKind::Snapshot,
            4 => DatasetKind::Project,
            5 => DatasetKind::Bookmark,
            _ => return Ok(None),
        };
        let (ceiling, gap) = match kind {
            DatasetKind::Project => (Rate { iops: first, bytes: second }, Gap::default()),
            _ => (Rate::default(), Gap { after: first, before: second }),
        };
        let are_numbers = number.max(volume).max(parent.unwrap_or(0)) < NUMBERS_MAX;
        let is_bare = root.is_hole()
            && parent.is_none()
            && matches!(state, DatasetState::Live | DatasetState::Deleting);
        let sane = are_numbers
            && (kind.has_blocks() || is_bare)
            && retain_until.0 < TIMES_MAX
            && (12..=17).contains(&block_shift)
            && height <= 4
            && size <= 64 << 40;
        let record = DatasetRecord {
            number,
            kind,
            state,
            sync,
            compression,
            block_shift,
            id,
            size,
            created,
            root,
            mapped,
            height,
            name,
            family,
            epoch,
            cursor,
            parent,
            volume,
            gap,
            retain_until,
            held: flags & FLAG_HELD != 0,
            template: flags & FLAG_TEMPLATE != 0,
            scheduled: flags & FLAG_SCHEDULED != 0,
            schedule,
            deleted,
            origin,
            base,
            received,
            peer,
            format,
            inherits,
            level,
            ceiling,
            own,
            added,
            quota,
        };
        Ok(sane.then_some(record))
    }
}

/// Snapshots that grew from each other in a circle, as only a forged catalogue has them, would be gone through for ever.
pub(crate) fn check_lineage(records: &[DatasetRecord]) -> Result<(), String> {
    let snapshots = records.iter().filter(|record| record.kind == DatasetKind::Snapshot);
    let parents: BTreeMap<u64, Option<u64>> = snapshots.map(|one| (one.number, one.parent)).collect();
    let mut looked_at = BTreeSet::new();
    for first in parents.keys() {
        let (mut path, mut next) = (BTreeSet::new(), Some(*first));
        while let Some(number) = next.filter(|number| !looked_at.contains(number)) {
            if !path.insert(number) {
                return Err(format!("snapshot {number} is its own ancestor"));
            }
            next = parents.get(&number).copied().flatten();
        }
        looked_at.append(&mut path);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Checksum;
    use forebay_space::{Addr, ChunkId};

    #[test]
    fn records_round_trip() {
        let record = DatasetRecord {
            number: 7,
            state: DatasetState::Deleting,
            sync: SyncPolicy::Disabled,
            compression: Compression::Zstd(19),
            created: WallTime(3),
            root: Ptr::new(Addr::new(ChunkId(3), 4), 16384, 1, Checksum(9)),
            mapped: Mapped { blocks: 77, units: 99 },
            height: 2,
            family: Id(6),
            epoch: 8,
            cursor: 9,
            parent: Some(0),
            volume: 4,
            gap: Gap { after: 11, before: 13 },
            retain_until: WallTime(13),
            held: true,
            scheduled: true,
            schedule: SnapshotSchedule {
                every_seconds: 60,
                keep: SnapshotKeep { last: 5, hourly: 6, daily: 7, weekly: 8, monthly: 255 },
            },
            format: VolumeFormat::EagerZeroedThick,
            inherits: Inherits::SYNC,
            level: Id(10),
            own: Own { blocks: 5, since: 6, strays: 7 },
            added: Added { units: -8 },
            quota: 9,
            ..DatasetRecord::new(DatasetKind::Snapshot, Id(5), 13, 1 << 40, "project/db-1".into())
        };
        assert_eq!(DatasetRecord::decode(&record.encode()), Ok(Some(record.clone())));
        let fresh = DatasetRecord::new(DatasetKind::Volume, Id(5), 13, 1 << 40, "db-1".into());
        let trashed = DatasetRecord { state: DatasetState::Trashed, deleted: WallTime(1 << 40), ..fresh };
        assert_eq!(DatasetRecord::decode(&trashed.encode()), Ok(Some(trashed.clone())));
        let fresh = DatasetRecord::new(DatasetKind::Volume, Id(5), 13, 1 << 40, "db-1".into());
        let (state, received) = (DatasetState::Receiving, 1 << 33);
        let receiving = DatasetRecord { state, origin: Id(6), base: Id(7), received, ..fresh };
        assert_eq!(DatasetRecord::decode(&receiving.encode()), Ok(Some(receiving)));
        let fresh = DatasetRecord::new(DatasetKind::Volume, Id(5), 13, 1 << 40, "db-1".into());
        for state in [DatasetState::Moved, DatasetState::Arriving] {
            let moving = DatasetRecord { state, peer: Id(8), ..fresh.clone() };
            assert_eq!(DatasetRecord::decode(&moving.encode()), Ok(Some(moving)));
        }
        let ceiling = Rate { iops: 11, bytes: 12 };
        let project =
            DatasetRecord { ceiling, ..DatasetRecord::new(DatasetKind::Project, Id(5), 12, 0, "p".into()) };
        assert_eq!(DatasetRecord::decode(&project.encode()), Ok(Some(project)));
        let mut unknown = trashed.encode();
        unknown[9] = 6;
        assert_eq!(DatasetRecord::decode(&unknown), Ok(None));
        assert_eq!(DatasetRecord::decode(&[0; DATASET_BYTES]), Ok(None));
    }

    #[test]
    fn snapshots_that_grew_from_each_other_are_refused() {
        let snapshot = |(number, parent): (u64, u64)| {
            let record = DatasetRecord::new(DatasetKind::Snapshot, Id(1), 12, 4096, "s".into());
            DatasetRecord { number, parent: parent.checked_sub(1), ..record }
        };
        // Numbers, and of the parent one more; 0 has none.
        let check =
            |all: &[(u64, u64)]| check_lineage(&all.iter().copied().map(snapshot).collect::<Vec<_>>());
        assert_eq!(
            check(&[(1, 0), (2, 2), (3, 2), (4, 5), (9, 78)]),
            Err("snapshot 4 is its own ancestor".into())
        );
        assert_eq!(check(&[(1, 0), (2, 2), (3, 2), (4, 4), (9, 78)]), Ok(()), "77 may be gone");
        assert!(check(&[(1, 3), (2, 4), (3, 2), (4, 2)]).is_err());
    }
}
