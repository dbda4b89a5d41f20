//! The label: who this disk is, which pool it belongs to, and what that pool consists of.
//!
//! Reading is a staircase: bytes → [`Label::decode`] (magic, version, checksum, own address) → the caller
//! compares pool, disk and generation with the other disks.

use crate::feature::{FEATURES_MAX, Feature};
use crate::layout::{CHUNK_BYTES_MAX, DISK_GRAIN, DiskLayout, LABEL_REGION, UNIT};
use crate::superblock::Owner;
use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_base::{Checksum, Id, WallTime};
use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

/// Bytes of the longest label.
const LABEL_BYTES_MAX: usize =
    (HEADER + GROUPS_MAX * GROUP_BYTES + DISKS_MAX * DISK_BYTES + FEATURES_MAX * FEATURE_BYTES)
        .next_multiple_of(UNIT as usize);
const _: () = assert!(LABEL_BYTES_MAX as u64 <= LABEL_REGION);
const MAGIC: &[u8; 8] = b"FOREBAY\x01";
/// 1 were development versions.
const VERSION: u16 = 2;
const CHECKSUM_AT: usize = 16;
const HEADER: usize = 256;
const GROUP_BYTES: usize = 64;
const DISK_BYTES: usize = 64;
const FEATURE_BYTES: usize = 64;
pub const GROUPS_MAX: usize = 256;
pub const DISKS_MAX: usize = 4096;
const NAME_BYTES: usize = 64;

/// What the pool thinks of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskStatus {
    Online,
    /// Out of service; whatever it holds is stale.
    Failed,
    /// In service, while all that is on it moves to other disks.
    Leaving,
    /// Out of service, and nothing points to it any more.
    Empty,
    /// No part of the pool any more: its number may be given to another.
    Removed,
    /// In service, to take the place of a disk that fails.
    Spare,
    /// Taken out by the administrator, to come back: stale.
    Offline,
    /// In service, with copies of what is read often: nothing is lost with it.
    Cache,
}

impl DiskStatus {
    const ALL: [DiskStatus; 8] = [
        DiskStatus::Online,
        DiskStatus::Failed,
        DiskStatus::Leaving,
        DiskStatus::Empty,
        DiskStatus::Removed,
        DiskStatus::Spare,
        DiskStatus::Offline,
        DiskStatus::Cache,
    ];

    /// Whether the pool reads from and writes to the disk.
    pub fn in_service(self) -> bool {
        matches!(self, DiskStatus::Online | DiskStatus::Leaving | DiskStatus::Spare | DiskStatus::Cache)
    }
}

/// Name of the box that a disk is in: what fails together. Empty when nobody said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Enclosure([u8; ENCLOSURE_BYTES]);

/// Bytes of the longest name of an enclosure.
pub const ENCLOSURE_BYTES: usize = 12;

impl Enclosure {
    /// Nothing when the name is too long.
    pub fn new(name: &str) -> Option<Enclosure> {
        let mut bytes = [0; ENCLOSURE_BYTES];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Some(Enclosure(bytes))
    }
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.0).trim_end_matches('\0').to_string()
    }
    pub fn is_named(&self) -> bool {
        self.0[0] != 0
    }
}

/// A group of disks with one layout and role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupEntry {
    /// 0 data, 1 log.
    pub role: u8,
    /// Data slots per chunk: 1 for single and mirrors.
    pub data: u8,
    /// Further slots per chunk: copies for a mirror, parity otherwise.
    pub redundancy: u8,
    pub slot_bytes: u64,
    /// Bytes of consecutive data on one slot; the slot size for single and mirrors.
    pub cell_bytes: u64,
    /// All that is in it moves to other groups; then its disks leave the pool.
    pub leaving: bool,
}

/// A disk as the pool knows it. Its index in the label is its number in every chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskEntry {
    pub id: Id,
    pub group: u16,
    pub status: DiskStatus,
    pub slots: u32,
    /// Bytes.
    pub size: u64,
    pub sector_physical: u32,
    /// Of a disk out of service: the last checkpoint that it has all of.
    pub stale_since: u64,
    /// The disk, by index, whose contents as of then this one began with: it came back under a new number.
    pub heir_of: Option<u16>,
    pub enclosure: Enclosure,
}

/// The most slots that one chunk can lack when these disks (each by its line and its enclosure) are out, if no chunk has more than
/// `crowd` slots in one enclosure. See [`Label::line`].
pub fn most_lacking(out: impl Iterator<Item = (u16, Enclosure)>, crowd: usize) -> usize {
    let mut boxes: BTreeMap<Enclosure, usize> = BTreeMap::new();
    let (mut lines, mut lacking) = (BTreeSet::new(), 0);
    for (_, enclosure) in out.filter(|(line, _)| lines.insert(*line)) {
        let there = boxes.entry(enclosure).or_default();
        *there += 1;
        lacking += usize::from(!enclosure.is_named() || *there <= crowd);
    }
    lacking
}

impl Label {
    /// The first of the numbers that a disk has had, of those that may still have slots. No chunk has slots under two of them, so
    /// that all of them together are one loss.
    pub fn line(&self, disk: u16) -> u16 {
        let heir_of = |disk: u16| self.disks.get(usize::from(disk)).and_then(|entry| entry.heir_of);
        // A circle, which only a forged label has, ends somewhere.
        successors(Some(disk), |disk| heir_of(*disk)).take(self.disks.len()).last().unwrap_or(disk)
    }

    /// A disk is no part of the pool any more. What is its heir is that of what it was an heir of, if it was.
    pub fn take_out(&mut self, index: usize) {
        let earlier = self.disks[index].heir_of.take();
        self.disks[index].status = DiskStatus::Removed;
        let heirs = self.disks.iter_mut().filter(|other| other.heir_of == Some(index as u16));
        heirs.for_each(|other| other.heir_of = earlier);
    }

    /// Whether a group has disks; the number of one that has none may be given to another.
    pub fn is_inhabited(&self, group: usize) -> bool {
        self.disks.iter().any(|disk| usize::from(disk.group) == group && disk.status != DiskStatus::Removed)
    }
}

impl DiskEntry {
    /// Whether chunks may have slots on the disk, or had.
    pub fn has_slots(&self) -> bool {
        !matches!(self.status, DiskStatus::Removed | DiskStatus::Spare | DiskStatus::Cache)
    }

    /// Whether chunks may have slots on the disk, so that missing it counts as a loss.
    pub fn counts(&self) -> bool {
        self.has_slots() && self.status != DiskStatus::Empty
    }
}

/// The decoded label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// What the pool uses beyond the format itself, at most [`FEATURES_MAX`].
    pub features: Vec<Feature>,
    pub pool: Id,
    pub pool_name: String,
    /// This disk's index in `disks`.
    pub disk: u16,
    /// Grows with every change of membership; of two labels of one pool the greater is right.
    /// Who wrote it.
    pub owner: Owner,
    pub generation: u64,
    pub created: WallTime,
    pub shards: u16,
    pub groups: Vec<GroupEntry>,
    pub disks: Vec<DiskEntry>,
}

/// Why bytes are not a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabelError {
    /// No label was ever written here.
    Absent,
    /// Written by a development version, whose pools are not imported any more.
    TooOld { version: u16 },
    /// Written by a newer version.
    TooNew { version: u16 },
    /// The pool uses something that this version does not know.
    Needs(Feature),
    /// The checksum or the recorded address is wrong, or a field is impossible.
    Damaged,
}

impl From<Truncated> for LabelError {
    fn from(_: Truncated) -> LabelError {
        LabelError::Damaged
    }
}

impl Label {
    /// The bytes of the copy at byte `at` of the disk, a multiple of 4 KiB. Panics when the pool exceeds [`DISKS_MAX`] or
    /// [`GROUPS_MAX`], which creation refuses.
    pub fn encode(&self, at: u64) -> Vec<u8> {
        assert!(
            self.groups.len() <= GROUPS_MAX
                && self.disks.len() <= DISKS_MAX
                && self.features.len() <= FEATURES_MAX,
            "a pool beyond the label's limits"
        );
        let entries = self.groups.len() * GROUP_BYTES + self.disks.len() * DISK_BYTES;
        let len = HEADER + entries + self.features.len() * FEATURE_BYTES;
        let mut bytes = vec![0; len.next_multiple_of(UNIT as usize)];
        let len = bytes.len() as u32;
        let mut w = Writer::new(&mut bytes);
        w.bytes(MAGIC).u16(VERSION).u16(HEADER as u16).u32(len).zeros(16);
        assert_eq!(w.position(), CHECKSUM_AT + 16);
        w.zeros(24).u64(at);
        w.u128(self.pool.0).u64(self.generation).u64(self.created.0);
        w.u16(self.disk).u16(self.shards).u16(self.groups.len() as u16).u16(self.disks.len() as u16);
        w.text(&self.pool_name, NAME_BYTES).u64(self.owner.epoch).u16(self.owner.node);
        w.u16(self.features.len() as u16);
        w.zeros(HEADER - w.position());
        for group in &self.groups {
            w.u8(group.role).u8(group.data).u8(group.redundancy).u8(u8::from(group.leaving)).u32(0);
            w.u64(group.slot_bytes).u64(group.cell_bytes).zeros(40);
        }
        for disk in &self.disks {
            w.u128(disk.id.0).u16(disk.group).u8(disk.status as u8).u8(0).u32(disk.slots);
            w.u64(disk.size).u32(disk.sector_physical).u64(disk.stale_since);
            w.u16(disk.heir_of.map_or(0, |heir| heir + 1)).bytes(&disk.enclosure.0).zeros(6);
        }
        self.features.iter().for_each(|feature| feature.encode(&mut w));
        let sum = Checksum::of(&bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 16].copy_from_slice(&sum.0.to_le_bytes());
        bytes
    }

    /// Of all labels of a pool the one with the greatest is right: what a deposed owner still writes comes before all that the next one does.
    pub fn order(&self) -> (u64, u64) {
        (self.owner.epoch, self.generation)
    }

    /// Whether these are the first bytes of a label.
    pub(crate) fn begins(first: &[u8]) -> bool {
        first.starts_with(MAGIC)
    }

    /// Bytes of the copy that begins like this, as it says itself: at least 4 KiB, and no more than there can be.
    pub(crate) fn length(first: &[u8]) -> usize {
        let says = first.get(12..16).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four")));
        (says as usize).clamp(UNIT as usize, LABEL_REGION as usize).next_multiple_of(UNIT as usize)
    }

    /// Decodes the copy that was read at byte `at` of a disk, of which `bytes` has all or more.
    pub fn decode(bytes: &[u8], at: u64) -> Result<Label, LabelError> {
        if bytes.len() < UNIT as usize || !Label::begins(bytes) {
            return Err(LabelError::Absent);
        }
        let bytes = bytes.get(..Label::length(bytes)).ok_or(LabelError::Damaged)?;
        let mut r = Reader::new(&bytes[8..]);
        let version = r.u16()?;
        let (header, length) = (r.u16()?, r.u32()?);
        let sum = r.u128()?;
        if sum != Checksum::of_with_hole(bytes, CHECKSUM_AT).0 {
            return Err(LabelError::Damaged);
        }
        let (_, own) = (r.bytes(24)?, r.u64()?);
        if version < VERSION {
            return Err(LabelError::TooOld { version });
        }
        if version != VERSION {
            return Err(LabelError::TooNew { version });
        }
        if own != at || header as usize != HEADER || length as usize != bytes.len() {
            return Err(LabelError::Damaged);
        }
        let pool = Id(r.u128()?);
        let (generation, created) = (r.u64()?, WallTime(r.u64()?));
        let (disk, shards, groups, disks) = (r.u16()?, r.u16()?, r.u16()? as usize, r.u16()? as usize);
        let pool_name = r.text(NAME_BYTES)?;
        let owner = Owner { epoch: r.u64()?, node: r.u16()? };
        let features = usize::from(r.u16()?);
        if groups == 0
            || groups > GROUPS_MAX
            || disks > DISKS_MAX
            || features > FEATURES_MAX
            || disk as usize >= disks
            || !(1..=32).contains(&shards)
        {
            return Err(LabelError::Damaged);
        }
        // First of all: what stands in the others may be what is not known.
        let entries = groups * GROUP_BYTES + disks * DISK_BYTES;
        let mut r = Reader::new(bytes.get(HEADER + entries..).ok_or(LabelError::Damaged)?);
        let features = (0..features).map(|_| Feature::decode(&mut r)?.ok_or(LabelError::Damaged));
        let features = features.collect::<Result<Vec<_>, _>>()?;
        if let Some(unknown) = features.iter().find(|feature| !feature.may_be_read()) {
            return Err(LabelError::Needs(*unknown));
        }
        let mut r = Reader::new(&bytes[HEADER..]);
        let groups = (0..groups).map(|_| decode_group(&mut r)).collect::<Result<Vec<_>, _>>()?;
        let disks = (0..disks).map(|_| decode_disk(&mut r, &groups)).collect::<Result<Vec<_>, _>>()?;
        Ok(Label { features, pool, pool_name, disk, owner, generation, created, shards, groups, disks })
    }
}

fn decode_group(r: &mut Reader) -> Result<GroupEntry, LabelError> {
    let (role, data, redundancy, leaving, _) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?, r.u32()?);
    let (slot_bytes, cell_bytes) = (r.u64()?, r.u64()?);
    r.bytes(40)?;
    let is_shape = match data {
        1 => redundancy <= 2,
        2..=16 => {
            (1..=3).contains(&redundancy)
                && cell_bytes.is_power_of_two()
                && (4096..=slot_bytes.min(1 << 20)).contains(&cell_bytes)
        }
        _ => false,
    };
    if role > 1
        || leaving > 1
        || !is_shape
        || !slot_bytes.is_multiple_of(if data == 1 { DISK_GRAIN } else { cell_bytes.max(DISK_GRAIN) })
        || !(1 << 16..=CHUNK_BYTES_MAX / u64::from(data)).contains(&slot_bytes)
    {
        return Err(LabelError::Damaged);
    }
    Ok(GroupEntry { role, data, redundancy, slot_bytes, cell_bytes, leaving: leaving == 1 })
}

fn decode_disk(r: &mut Reader, groups: &[GroupEntry]) -> Result<DiskEntry, LabelError> {
    let (id, group, status, _, slots) = (Id(r.u128()?), r.u16()?, r.u8()?, r.u8()?, r.u32()?);
    let (size, sector_physical, stale_since) = (r.u64()?, r.u32()?, r.u64()?);
    let (heir_of, enclosure) = (r.u16()?.checked_sub(1), r.bytes(ENCLOSURE_BYTES)?);
    let enclosure = Enclosure(enclosure.try_into().expect("as many bytes as asked for"));
    r.bytes(6)?;
    let status = *DiskStatus::ALL.get(usize::from(status)).ok_or(LabelError::Damaged)?;
    let entry = groups.get(usize::from(group)).ok_or(LabelError::Damaged)?;
    // The group of one that left may be another by now.
    if status != DiskStatus::Removed {
        let layout = DiskLayout::new(size, entry.slot_bytes, u64::from(entry.data));
        if layout.map_or(true, |layout| slots > layout.slots) {
            return Err(LabelError::Damaged);
        }
    }
    Ok(DiskEntry { id, group, status, slots, size, sector_physical, stale_since, heir_of, enclosure })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::Compatibility;

    fn sample() -> Label {
        let disk = DiskEntry {
            id: Id(7),
            group: 0,
            status: DiskStatus::Failed,
            slots: 200,
            size: 1 << 30,
            sector_physical: 4096,
            stale_since: 77,
            heir_of: Some(1),
            enclosure: Enclosure::new("shelf-1").expect("a short name"),
        };
        let (slot_bytes, cell_bytes) = (1 << 22, 1 << 22);
        let group = GroupEntry { role: 0, data: 1, redundancy: 1, slot_bytes, cell_bytes, leaving: true };
        Label {
            features: vec![Feature::new(Compatibility::ReadOnly, "more")],
            pool: Id(1 << 100),
            pool_name: "tank".into(),
            disk: 1,
            owner: Owner { epoch: 4, node: 1 },
            generation: 3,
            created: WallTime(5),
            shards: 2,
            groups: vec![group],
            disks: vec![DiskEntry { status: DiskStatus::Online, ..disk }, disk],
        }
    }

    #[test]
    fn round_trip_and_every_flipped_byte_is_seen() {
        let label = sample();
        let bytes = label.encode(65536);
        assert_eq!(Label::decode(&bytes, 65536), Ok(label));
        assert_eq!(Label::decode(&bytes, 0), Err(LabelError::Damaged));
        for at in (0..bytes.len()).step_by(7).chain(0..512) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Label::decode(&damaged, 65536).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_is_not_known_is_said_by_its_name() {
        let needed = Feature::new(Compatibility::Incompatible, "wide-pointers");
        let known = Feature::new(Compatibility::Compatible, "hints");
        let label = Label { features: vec![known, needed], ..sample() };
        assert_eq!(Label::decode(&label.encode(0), 0), Err(LabelError::Needs(needed)));
        let label = Label { features: vec![known], ..label };
        assert_eq!(Label::decode(&label.encode(0), 0), Ok(label));
    }

    #[test]
    fn torn_at_each_sector_is_seen() {
        let many = |name: &str, generation| {
            let disks = (0..60)
                .map(|id| DiskEntry { id: Id(id + u128::from(generation)), ..sample().disks[0] })
                .collect();
            Label { pool_name: name.into(), generation, disks, ..sample() }.encode(0)
        };
        let (old, new) = (many("old", 3), many("new", 4));
        // 256 + 64 + 60 × 64 = 4160 bytes differ.
        for cut in (512..4160).step_by(512) {
            assert_eq!(
                Label::decode(&[&new[..cut], &old[cut..]].concat(), 0),
                Err(LabelError::Damaged),
                "cut at {cut}"
            );
        }
    }
}
