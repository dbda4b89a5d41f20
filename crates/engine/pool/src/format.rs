//! The superblock's payload: the roots of the shards, and what is the pool's as a whole.
//!
//! ```text
//! superblock payload: 192 bytes, then 256 per shard
//!   0 version 2   2 shards 2   4 flags 4 (bit 0: exported)   8 incarnation 8   16 epoch 8   24 label generation 8
//!   32 last whole scrub 8   40 seconds between scrubs 4   44 seconds in the trash 4
//!   48 host that has it, or had it last 16   64 that host's name 64   128 pool clock 8   136 zero
//!   shard: 0 root of the chunk table: a reference with slots 64   64 of the catalogue 32   96 of what is lost 32
//!          128 levels above their leaves: 1, 1, 1   131 of the registry 1   132 zero 4   136 tail position 8   144 tail sequence 8   152 tail link 16
//!          168 cut sequence 8   176 sealed sequence 8   184 scrub: dataset number plus one 8, leaf 8   200 next dataset number 8
//!          208 root of the registry 32   240 zero
//!   after the shards: when it was measured 8, small reads 8 and writes 8 a second, bytes read 8 and written 8 a second, window in ns 8,
//!          one small read and write in ns 8 and 8
//!   then the last scrub: state 1 (0: none, 1 running, 2 paused, 3 done, 4 stopped), zero 1, disks 2, zero 4, since 8, ended 8, bytes read 8,
//!          bytes in use 8, repaired 8, lost 8
//!   then of each disk: failed reads 4, failed writes 4, wrong reads 4, repaired 4
//! ```

use crate::record::NUMBERS_MAX;
use crate::scrub::ScrubPosition;
use crate::spec::{Host, PoolSpeed, Scrub, ScrubSchedule, ScrubState};
use crate::table_tree::{HEIGHT_MAX, HOMED_REF_BYTES, Ref, Root};
use forebay_base::codec::{Reader, Truncated, Writer};
use forebay_base::{Checksum, Id, WallTime};
use forebay_device::{ErrorCounts, SUPERBLOCK_PAYLOAD_MAX};
use forebay_log::Chain;
use forebay_space::PTR_BYTES;
use std::cmp::Reverse;
use std::time::Duration;

/// Shards a pool can have: what fits into a superblock.
pub(crate) const SHARDS_MAX: usize = 32;
const VERSION: u16 = 5;
const HEADER: usize = 192;
const HOST_NAME_BYTES: usize = 64;
const SHARD_BYTES: usize = 256;
const SPEED_BYTES: usize = 64;
const SCRUB_BYTES: usize = 56;
const ERRORS_BYTES: usize = 20;
/// Disks against which something is held that a superblock has room for; of more, those with least are left out.
const ERRORS_MAX: usize = 1024;
const FOUND_BYTES_MAX: usize = SCRUB_BYTES + ERRORS_MAX * ERRORS_BYTES;
const _: () =
    assert!(HEADER + SHARDS_MAX * SHARD_BYTES + SPEED_BYTES + FOUND_BYTES_MAX <= SUPERBLOCK_PAYLOAD_MAX);
const FLAG_EXPORTED: u32 = 1;

/// Where one shard's state is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ShardRoot {
    /// The chunk table: everything else is found through it.
    pub table: Root,
    pub catalog: Root,
    /// What is lost.
    pub damage: Root,
    /// What belongs to the pool beside its data: of shard 0 only.
    pub registry: Root,
    /// The oldest frame that an import must read.
    pub tail: Chain,
    /// Frames before this sequence are in the trees, but for data that still lives in the log alone.
    pub cut: u64,
    /// Frames before this sequence were accepted by an earlier import, whatever their incarnation.
    pub sealed: u64,
    /// How far a scrub has come that is under way.
    pub scrub: Option<ScrubPosition>,
    /// Every dataset and snapshot has a lower number, or had one.
    pub next_number: u64,
}

/// A checkpoint of the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Super {
    /// Grows with every import.
    pub incarnation: u64,
    pub epoch: u64,
    pub label_generation: u64,
    pub exported: bool,
    pub scrubs: ScrubSchedule,
    /// How long deleted volumes are kept; with 0 they are not.
    pub trash_keep_seconds: u32,
    /// Who has the pool, or had it last.
    pub host: Host,
    /// What it is by the pool's own clock ([`crate::retention`]).
    pub clock: WallTime,
    /// What the disks were measured to do.
    pub speed: Option<PoolSpeed>,
    /// The last scrub, as far as it had come.
    pub scrub: Option<Scrub>,
    /// What is held against each disk, without what was so of late.
    pub errors: Vec<ErrorCounts>,
    pub shards: Vec<ShardRoot>,
}

impl Super {
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.shards.len() <= SHARDS_MAX);
        let errors = worst(&self.errors);
        let found_bytes = SCRUB_BYTES + errors.len() * ERRORS_BYTES;
        let mut bytes = vec![0; HEADER + self.shards.len() * SHARD_BYTES + SPEED_BYTES + found_bytes];
        let mut w = Writer::new(&mut bytes);
        w.u16(VERSION).u16(self.shards.len() as u16).u32(u32::from(self.exported) * FLAG_EXPORTED);
        w.u64(self.incarnation).u64(self.epoch).u64(self.label_generation);
        w.u64(self.scrubs.last.0).u32(self.scrubs.every_seconds).u32(self.trash_keep_seconds);
        let name = &self.host.name[..self.host.name.floor_char_boundary(HOST_NAME_BYTES)];
        w.u128(self.host.id.0).bytes(name.as_bytes()).zeros(HOST_NAME_BYTES - name.len());
        w.u64(self.clock.0).zeros(56);
        for shard in &self.shards {
            let start = w.position();
            shard.table.at.encode(true, &mut w);
            shard.catalog.at.encode(false, &mut w);
            shard.damage.at.encode(false, &mut w);
            w.u8(shard.table.height).u8(shard.catalog.height).u8(shard.damage.height);
            w.u8(shard.registry.height).zeros(4);
            w.u64(shard.tail.position).u64(shard.tail.sequence).u128(shard.tail.previous.0);
            w.u64(shard.cut).u64(shard.sealed);
            let (number, leaf) = shard.scrub.map_or((0, 0), |(number, leaf)| (number + 1, leaf));
            w.u64(number).u64(leaf).u64(shard.next_number);
            shard.registry.at.encode(false, &mut w);
            w.zeros(SHARD_BYTES - (w.position() - start));
        }
        match self.speed {
            Some(speed) => encode_speed(&mut w, speed),
            None => drop(w.zeros(SPEED_BYTES)),
        }
        encode_found(&mut w, &self.scrub, &errors);
        bytes
    }

    /// Nothing when the payload is impossible (its checksum was right: a newer version, or our bug).
    pub fn decode(bytes: &[u8]) -> Result<Option<Super>, Truncated> {
        let mut r = Reader::new(bytes);
        let (version, shards, flags) = (r.u16()?, usize::from(r.u16()?), r.u32()?);
        let (incarnation, epoch, label_generation) = (r.u64()?, r.u64()?, r.u64()?);
        let (last, every_seconds, trash_keep_seconds) = (WallTime(r.u64()?), r.u32()?, r.u32()?);
        let (id, name) = (Id(r.u128()?), r.bytes(HOST_NAME_BYTES)?);
        let host = Host { id, name: String::from_utf8_lossy(name).trim_end_matches('\0').to_string() };
        let (clock, _) = (WallTime(r.u64()?), r.bytes(56)?);
        if version != VERSION || shards == 0 || shards > SHARDS_MAX {
            return Ok(None);
        }
        let mut roots = Vec::with_capacity(shards);
        for _ in 0..shards {
            let mut r = Reader::new(r.bytes(SHARD_BYTES)?);
            let [table, catalog, damage] = [true, false, false].map(|is_homed| Ref::decode(is_homed, &mut r));
            let (Some(table), Some(catalog), Some(damage)) = (table?, catalog?, damage?) else {
                return Ok(None);
            };
            let (heights, _) = ([r.u8()?, r.u8()?, r.u8()?, r.u8()?], r.bytes(4)?);
            if heights.iter().any(|height| *height > HEIGHT_MAX) {
                return Ok(None);
            }
            let root = |at, nth: usize| Root { at, height: heights[nth] };
            let (table, catalog, damage) = (root(table, 0), root(catalog, 1), root(damage, 2));
            let tail = Chain { position: r.u64()?, sequence: r.u64()?, previous: Checksum(r.u128()?) };
            let (cut, sealed, number, leaf) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
            let scrub = number.checked_sub(1).map(|number| (number, leaf));
            let next_number = r.u64()?;
            let Some(registry) = Ref::decode(false, &mut r)? else { return Ok(None) };
            if next_number >= NUMBERS_MAX {
                return Ok(None);
            }
            let registry = root(registry, 3);
            roots.push(ShardRoot { table, catalog, damage, registry, tail, cut, sealed, scrub, next_number });
        }
        let exported = flags & FLAG_EXPORTED != 0;
        let speed = decode_speed(&mut Reader::new(r.bytes(SPEED_BYTES)?))?;
        let (scrub, errors) = decode_found(&mut r)?;
        let scrubs = ScrubSchedule { last, every_seconds };
        Ok(Some(Super {
            incarnation,
            epoch,
            label_generation,
            exported,
            scrubs,
            trash_keep_seconds,
            host,
            clock,
            speed,
            scrub,
            errors,
            shards: roots,
        }))
    }
}

fn encode_speed(w: &mut Writer<'_>, speed: PoolSpeed) {
    w.u64(speed.measured.0).u64(speed.read_iops).u64(speed.write_iops);
    w.u64(speed.read_bytes).u64(speed.write_bytes).u64(speed.window.as_nanos() as u64);
    w.u64(speed.read_latency.as_nanos() as u64).u64(speed.write_latency.as_nanos() as u64);
}

/// The disks against which something is held, in the order of their numbers.
fn worst(errors: &[ErrorCounts]) -> Vec<(u16, ErrorCounts)> {
    let sum = |errors: &ErrorCounts| errors.read + errors.write + errors.checksum + errors.repaired;
    let mut some: Vec<_> = (0..).zip(errors.iter().copied()).filter(|(_, errors)| sum(errors) > 0).collect();
    if some.len() > ERRORS_MAX {
        some.sort_by_key(|(_, errors)| Reverse(sum(errors)));
        some.truncate(ERRORS_MAX);
        some.sort_by_key(|(disk, _)| *disk);
    }
    some
}

fn encode_found(w: &mut Writer<'_>, scrub: &Option<Scrub>, errors: &[(u16, ErrorCounts)]) {
    let state = scrub.as_ref().map_or(0, |scrub| match scrub.state {
        ScrubState::Running => 1,
        ScrubState::Paused => 2,
        ScrubState::Done => 3,
        ScrubState::Stopped => 4,
    });
    let scrub = scrub.clone().unwrap_or_default();
    w.u8(state).u8(0).u16(errors.len() as u16).u32(0);
    w.u64(scrub.since.0).u64(scrub.ended.unwrap_or_default().0);
    w.u64(scrub.bytes_done).u64(scrub.bytes_total).u64(scrub.repaired).u64(scrub.lost);
    let few = |count: u64| count.min(u64::from(u32::MAX)) as u32;
    for (number, disk) in errors {
        w.u16(*number)
            .u16(0)
            .u32(few(disk.read))
            .u32(few(disk.write))
            .u32(few(disk.checksum))
            .u32(few(disk.repaired));
    }
}

/// The last scrub, and what is held against each disk.
fn decode_found(r: &mut Reader<'_>) -> Result<(Option<Scrub>, Vec<ErrorCounts>), Truncated> {
    let (state, _, disks, _) = (r.u8()?, r.u8()?, r.u16()?, r.u32()?);
    let (since, ended) = (WallTime(r.u64()?), WallTime(r.u64()?));
    let (bytes_done, bytes_total, repaired, lost) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    let ended = (ended.0 > 0).then_some(ended);
    let state = match state {
        1 => Some(ScrubState::Running),
        2 => Some(ScrubState::Paused),
        3 => Some(ScrubState::Done),
        4 => Some(ScrubState::Stopped),
        _ => None,
    };
    let scrub = state.map(|state| Scrub { state, bytes_done, bytes_total, repaired, lost, since, ended });
    let mut errors = Vec::new();
    for _ in 0..disks {
        let (number, _) = (usize::from(r.u16()?), r.u16()?);
        let [read, write, checksum, repaired] = [r.u32()?, r.u32()?, r.u32()?, r.u32()?].map(u64::from);
        errors.resize(errors.len().max(number + 1), ErrorCounts::default());
        errors[number] = ErrorCounts { read, write, checksum, repaired, ..ErrorCounts::default() };
    }
    Ok((scrub, errors))
}

/// Nothing when it was never measured.
fn decode_speed(r: &mut Reader<'_>) -> Result<Option<PoolSpeed>, Truncated> {
    let measured = WallTime(r.u64()?);
    let (read_iops, write_iops, read_bytes, write_bytes) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
    let [window, read_latency, write_latency] = [r.u64()?, r.u64()?, r.u64()?].map(Duration::from_nanos);
    let speed = PoolSpeed {
        read_iops,
        write_iops,
        read_bytes,
        write_bytes,
        read_latency,
        write_latency,
        window,
        measured,
    };
    Ok((measured.0 > 0).then_some(speed))
}

const _: () = assert!(HOMED_REF_BYTES + 2 * PTR_BYTES == 128);

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_device::{DISKS_MAX, SlotRef};
    use forebay_space::{Addr, ChunkId, Ptr};

    #[test]
    fn superblocks_round_trip() {
        let ptr = Ptr::new(Addr::new(ChunkId(3), 4), 16384, 1, Checksum(9));
        let slots = vec![SlotRef { disk: 1, slot: 2 }; 3];
        let tail = Chain { position: 4096, sequence: 8, previous: Checksum(1) };
        let root = ShardRoot {
            table: Root { at: Ref { ptr, slots }, height: 3 },
            catalog: Root::default(),
            damage: Root { at: Ref { ptr, slots: Vec::new() }, height: 1 },
            registry: Root { at: Ref { ptr, slots: Vec::new() }, height: 2 },
            tail,
            cut: 10,
            sealed: 9,
            scrub: Some((4, 5)),
            next_number: 11,
        };
        let pool = Super {
            incarnation: 2,
            epoch: 1,
            label_generation: 4,
            exported: true,
            scrubs: ScrubSchedule { last: WallTime(5), every_seconds: 6 },
            trash_keep_seconds: 7,
            host: Host { id: Id(7), name: "alpha".into() },
            clock: WallTime(8),
            speed: Some(PoolSpeed {
                read_iops: 1,
                write_iops: 2,
                read_bytes: 3,
                write_bytes: 4,
                read_latency: Duration::from_nanos(7),
                write_latency: Duration::from_nanos(8),
                window: Duration::from_nanos(5),
                measured: WallTime(6),
            }),
            scrub: Some(Scrub {
                state: ScrubState::Done,
                bytes_done: 1,
                bytes_total: 2,
                repaired: 3,
                lost: 4,
                since: WallTime(5),
                ended: Some(WallTime(6)),
            }),
            errors: (0..ERRORS_MAX as u64)
                .map(|nth| ErrorCounts { read: nth, write: 1, ..Default::default() })
                .collect(),
            shards: vec![root; SHARDS_MAX],
        };
        assert_eq!(Super::decode(&pool.encode()), Ok(Some(pool.clone())));
        let new = Super { speed: None, scrub: None, errors: Vec::new(), ..pool.clone() };
        assert_eq!(Super::decode(&new.encode()), Ok(Some(new)));
        let mut many = vec![ErrorCounts { read: 2, ..ErrorCounts::default() }; DISKS_MAX];
        many[7] = ErrorCounts { read: 1, ..ErrorCounts::default() };
        let kept = Super::decode(&Super { errors: many, ..pool.clone() }.encode())
            .expect("whole")
            .expect("possible");
        let with_some = kept.errors.iter().filter(|disk| disk.read > 0).count();
        assert_eq!((with_some, kept.errors[7].read), (ERRORS_MAX, 0), "the least is left out");
        let long = Host { id: Id(7), name: format!("a{}", "ö".repeat(32)) };
        let kept = Super::decode(&Super { host: long, ..pool }.encode());
        assert_eq!(
            kept.map(|kept| kept.map(|kept| kept.host.name)),
            Ok(Some(format!("a{}", "ö".repeat(31))))
        );
    }
}
