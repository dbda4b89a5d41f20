//! EXTENDED COPY (LID1) and RECEIVE COPY RESULTS: copies between units without their data leaving the appliance
//! (SPC-4 6.4, 6.24 and annex for the LID1 forms).
//!
//! Identification descriptors (E4h) and block-to-block segments (02h) are what Linux, ESXi and libiscsi send. A
//! parameter list is judged as a whole before anything is copied. Every unit that it names is looked for only among
//! those that the nexus sees, and asked whether this nexus may read or write there: naming a unit inside a command
//! gives no more rights than sending the command to it.
//!
//! What became of a copy is kept for RECEIVE COPY RESULTS: of the last [`COPIES_MAX`] on this unit.

use crate::data;
use crate::nexus::NexusId;
use crate::sense::{Sense, SenseKey, asc};
use crate::step::{CopyUnit, DataOut, Designator, Op, Outcome, Response, Step};
use crate::task::{Task, Work, io_sense};
use crate::unit::Unit;
use forebay_pool::IoError;
use std::collections::VecDeque;

/// Copies whose results are kept.
const COPIES_MAX: usize = 16;
/// Units that one list may name.
const TARGETS_MAX: usize = 16;
/// Segments of one list: what ESXi sends at most, with room.
const SEGMENTS_MAX: usize = 64;
const HEADER: usize = 16;
const TARGET: usize = 32;
const SEGMENT: usize = 28;
const LIST_MAX: usize = TARGETS_MAX * TARGET + SEGMENTS_MAX * SEGMENT;
/// Bytes that are copied in one operation.
const COPY_BYTES: u64 = 4 << 20;
const IDENTIFICATION: u8 = 0xe4;
const BLOCK_TO_BLOCK: u8 = 0x02;

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Copying {
    nexus: NexusId,
    list_id: Option<u8>,
    segments: Vec<Segment>,
    /// Block sizes that the list claims for its units.
    block_bytes: Vec<u32>,
    /// What is to be copied, in bytes; empty until the units are known.
    moves: Vec<Move>,
    /// The segment under way, and how much of it is done.
    segment: usize,
    done: u64,
    total: u64,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    from: usize,
    to: usize,
    from_lba: u64,
    to_lba: u64,
    blocks: u16,
    /// DC: the number of blocks is in the destination's.
    counts_destination: bool,
}

#[derive(Clone, Copy, Debug)]
struct Move {
    from: usize,
    to: usize,
    from_at: u64,
    to_at: u64,
    len: u64,
}

/// What became of copies.
#[derive(Debug, Default)]
pub(crate) struct Copies(VecDeque<Copied>);

#[derive(Debug)]
struct Copied {
    nexus: NexusId,
    list_id: u8,
    failed: bool,
    segments: u16,
    bytes: u64,
}

impl Copies {
    fn keep(&mut self, copied: Copied) {
        self.0.retain(|other| (other.nexus, other.list_id) != (copied.nexus, copied.list_id));
        if self.0.len() == COPIES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(copied);
    }
    pub fn forget(&mut self, nexus: NexusId) {
        self.0.retain(|copied| copied.nexus != nexus);
    }
}

const fn aborted(code: u16) -> Sense {
    Sense::new(SenseKey::CopyAborted, code)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// Reads a parameter list; also the names of its units.
fn decode(nexus: NexusId, list: &[u8]) -> Result<(Copying, Vec<Designator>), Sense> {
    let too_short = Sense::illegal(asc::PARAMETER_LIST_LENGTH);
    if list.len() < HEADER {
        return Err(too_short);
    }
    let (targets_len, segments_len) = (usize::from(u16_at(list, 2)), u32_at(list, 8) as usize);
    if targets_len + segments_len > LIST_MAX || HEADER + targets_len + segments_len > list.len() {
        return Err(too_short);
    }
    if targets_len % TARGET != 0 {
        return Err(Sense::parameter_field(2, None));
    }
    if targets_len / TARGET > TARGETS_MAX {
        return Err(Sense::illegal(asc::TOO_MANY_TARGET_DESCRIPTORS));
    }
    if u32_at(list, 12) != 0 {
        return Err(Sense::parameter_field(12, None));
    }
    let (targets, segments) = list[HEADER..HEADER + targets_len + segments_len].split_at(targets_len);
    let (mut designators, mut block_bytes) = (Vec::new(), Vec::new());
    for (index, target) in targets.chunks_exact(TARGET).enumerate() {
        let (designator, block) = decode_target(target, HEADER + index * TARGET)?;
        designators.push(designator);
        block_bytes.push(block);
    }
    let segments = decode_segments(segments, HEADER + targets_len)?;
    // List ids that are used at all (LIST ID USAGE).
    let list_id = if list[1] >> 3 & 0x03 == 0x03 { None } else { Some(list[0]) };
    for segment in &segments {
        // An index beyond the list fails when the units are known: before anything is copied.
        if let Some(designator) = designators.get_mut(segment.from) {
            designator.reads = true;
        }
        if let Some(designator) = designators.get_mut(segment.to) {
            designator.writes = true;
        }
    }

    let copying =
        Copying { nexus, list_id, segments, block_bytes, moves: Vec::new(), segment: 0, done: 0, total: 0 };
    Ok((copying, designators))
}

fn decode_target(target: &[u8], at: usize) -> Result<(Designator, u32), Sense> {
    if target[0] != IDENTIFICATION {
        return Err(Sense::illegal(asc::UNSUPPORTED_TARGET_DESCRIPTOR));
    }
    // A direct access block device.
    if target[1] & 0x1f != 0 {
        return Err(Sense::parameter_field(at + 1, 4));
    }
    let len = usize::from(target[7]);
    let bytes = target[8..28].get(..len).ok_or(Sense::parameter_field(at + 7, None))?;
    let designator = Designator {
        kind: target[5] & 0x0f,
        code_set: target[4] & 0x0f,
        bytes: bytes.to_vec(),
        reads: false,
        writes: false,
    };
    Ok((designator, u32_at(target, 28) & 0xff_ffff))
}

fn decode_segments(bytes: &[u8], at: usize) -> Result<Vec<Segment>, Sense> {
    let (mut rest, mut segments) = (bytes, Vec::new());
    while let [kind, ..] = *rest {
        let at = at + bytes.len() - rest.len();
        if segments.len() == SEGMENTS_MAX {
            return Err(Sense::illegal(asc::TOO_MANY_SEGMENT_DESCRIPTORS));
        }
        if kind != BLOCK_TO_BLOCK {
            return Err(Sense::illegal(asc::UNSUPPORTED_SEGMENT_DESCRIPTOR));
        }
        let (segment, behind) =
            rest.split_at_checked(SEGMENT).ok_or(Sense::illegal(asc::PARAMETER_LIST_LENGTH))?;
        if usize::from(u16_at(segment, 2)) != SEGMENT - 4 {
            return Err(Sense::parameter_field(at + 2, None));
        }
        segments.push(Segment {
            from: u16_at(segment, 4).into(),
            to: u16_at(segment, 6).into(),
            from_lba: u64_at(segment, 12),
            to_lba: u64_at(segment, 20),
            blocks: u16_at(segment, 10),
            counts_destination: segment[1] & 0x02 != 0,
        });
        rest = behind;
    }
    Ok(segments)
}

/// What a segment copies, in bytes.
fn plan(segment: &Segment, units: &[Option<CopyUnit>], claimed: &[u32]) -> Result<Move, Sense> {
    let unit = |index: usize| {
        let unit = units.get(index).copied().flatten().ok_or(aborted(asc::COPY_TARGET_NOT_REACHABLE))?;
        if unit.is_refused {
            return Err(aborted(asc::THIRD_PARTY_DEVICE_FAILURE));
        }
        // What the list counts in other blocks than the unit's is not what its author means.
        if claimed[index] != unit.block_bytes {
            return Err(aborted(asc::COPY_TARGET_INCORRECT));
        }
        Ok(unit)
    };
    let (source, destination) = (unit(segment.from)?, unit(segment.to)?);
    let counted = if segment.counts_destination { destination } else { source };
    let len = u64::from(segment.blocks) * u64::from(counted.block_bytes);
    let at = |unit: CopyUnit, lba: u64| {
        let block_bytes = u64::from(unit.block_bytes);
        let end = lba.checked_add(len.div_ceil(block_bytes));
        let is_inside = end.is_some_and(|end| end <= unit.blocks) && len.is_multiple_of(block_bytes);
        if is_inside { Ok(lba * block_bytes) } else { Err(aborted(asc::NONE)) }
    };
    Ok(Move {
        from: segment.from,
        to: segment.to,
        from_at: at(source, segment.from_lba)?,
        to_at: at(destination, segment.to_lba)?,
        len,
    })
}

impl Unit {
    pub(crate) fn extended_copy(&mut self, nexus: NexusId, len: u32, data: DataOut) -> Result<Step, Sense> {
        let list = data::list(&data, len)?;
        if list.is_empty() {
            return Ok(Step::Done(Response::good()));
        }
        let (copying, designators) = decode(nexus, &list)?;
        if copying.segments.is_empty() {
            return Ok(self.copy_ends(&copying, None));
        }
        Ok(Step::Medium(Op::Resolve(designators), Task(Work::Copy(Box::new(copying)))))
    }

    /// The units are known, or a piece has been copied.
    pub(crate) fn copy_on(&mut self, mut copying: Copying, outcome: Outcome) -> Step {
        match outcome {
            Outcome::Resolved(units) => {
                assert_eq!(units.len(), copying.block_bytes.len(), "an answer for each designator");
                let plan = |segment| plan(segment, &units, &copying.block_bytes);
                match copying.segments.iter().map(plan).collect() {
                    Ok(moves) => copying.moves = moves,
                    Err(sense) => return self.copy_ends(&copying, Some(sense)),
                }
            }
            Outcome::Done => {
                let len = copying.piece().expect("a piece was under way").len;
                copying.done += len;
                copying.total += len;
            }
            outcome => panic!("{outcome:?} is nothing that a copy asks for"),
        }
        while copying.moves.get(copying.segment).is_some_and(|whole| whole.len == copying.done) {
            copying.segment += 1;
            copying.done = 0;
        }
        match copying.piece() {
            None => self.copy_ends(&copying, None),
            Some(Move { from, to, from_at, to_at, len }) => {
                let op = Op::Copy { from, from_at, to, to_at, len };
                Step::Medium(op, Task(Work::Copy(Box::new(copying))))
            }
        }
    }

    pub(crate) fn copy_failed(&mut self, copying: Copying, error: IoError) -> Step {
        let sense = match error {
            // Hypervisors know what to do about this one.
            IoError::NoSpace => io_sense(error),
            _ => aborted(asc::THIRD_PARTY_DEVICE_FAILURE),
        };
        self.copy_ends(&copying, Some(sense))
    }

    fn copy_ends(&mut self, copying: &Copying, failure: Option<Sense>) -> Step {
        if let Some(list_id) = copying.list_id {
            self.copies.keep(Copied {
                nexus: copying.nexus,
                list_id,
                failed: failure.is_some(),
                segments: copying.segment as u16,
                bytes: copying.total,
            });
        }
        Step::Done(failure.map_or_else(Response::good, |sense| self.check(sense)))
    }

    /// COPY STATUS.
    pub(crate) fn copy_status(&self, nexus: NexusId, list_id: u8) -> Result<Vec<u8>, Sense> {
        let wanted = |copied: &&Copied| (copied.nexus, copied.list_id) == (nexus, list_id);
        let copied = self.copies.0.iter().find(wanted).ok_or(Sense::cdb_field(2, None))?;
        let mut bytes = vec![0, 0, 0, 8, 0x01 + u8::from(copied.failed)];
        bytes.extend(copied.segments.to_be_bytes());
        // In bytes, or in KiB when that does not fit.
        let (unit, count) = match u32::try_from(copied.bytes) {
            Ok(bytes) => (0, bytes),
            Err(_) => (1, (copied.bytes >> 10) as u32),
        };
        bytes.push(unit);
        bytes.extend(count.to_be_bytes());
        Ok(bytes)
    }

    /// OPERATING PARAMETERS.
    pub(crate) fn copy_parameters(&self) -> Vec<u8> {
        let mut bytes = vec![0; 44];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(4, &[1]); // SNLID: a list id may be left out
        put(8, &(TARGETS_MAX as u16).to_be_bytes());
        put(10, &(SEGMENTS_MAX as u16).to_be_bytes());
        put(12, &(LIST_MAX as u32).to_be_bytes());
        put(16, &(u32::from(u16::MAX) * self.block_bytes).to_be_bytes());
        put(34, &(COPIES_MAX as u16).to_be_bytes());
        put(36, &[COPIES_MAX as u8]);
        put(37, &[self.block_bytes.ilog2() as u8]);
        let implemented = [BLOCK_TO_BLOCK, IDENTIFICATION];
        put(43, &[implemented.len() as u8]);
        bytes.extend(implemented);
        let len = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&len.to_be_bytes());
        bytes
    }
}

impl Copying {
    /// What to copy next.
    fn piece(&self) -> Option<Move> {
        let whole = self.moves.get(self.segment)?;
        Some(Move {
            from_at: whole.from_at + self.done,
            to_at: whole.to_at + self.done,
            len: (whole.len - self.done).min(COPY_BYTES),
            ..*whole
        })
    }
}
