//! What passes between a [`Unit`](crate::Unit) and whoever runs it.

use crate::nexus::NexusId;
use crate::sense::{Sense, SenseBytes};
use forebay_pool::Extent;
use forebay_runtime::Buf;

pub use crate::task::Task;

/// SCSI status codes (SAM-5 5.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    Good = 0x00,
    CheckCondition = 0x02,
    ConditionMet = 0x04,
    Busy = 0x08,
    ReservationConflict = 0x18,
    TaskSetFull = 0x28,
    TaskAborted = 0x40,
}

/// Data for the initiator, already cut to the allocation length of the CDB. The transport cuts it further to what the
/// initiator expects, and reports residuals.
#[derive(Debug)]
pub enum DataIn {
    None,
    Bytes(Vec<u8>),
    /// The engine's own buffers, one after the other.
    Parts(Vec<Buf>),
}

impl DataIn {
    pub fn len(&self) -> usize {
        match self {
            DataIn::None => 0,
            DataIn::Bytes(bytes) => bytes.len(),
            DataIn::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
        }
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The end of a command.
#[derive(Debug)]
pub struct Response {
    pub status: Status,
    /// Empty unless the status is [`Status::CheckCondition`].
    pub sense: SenseBytes,
    pub data_in: DataIn,
}

impl Response {
    pub fn status(status: Status) -> Response {
        Response { status, sense: SenseBytes::EMPTY, data_in: DataIn::None }
    }
    pub fn good() -> Response {
        Response::status(Status::Good)
    }
    pub fn check(sense: Sense, descriptor_format: bool) -> Response {
        let sense = sense.encode(descriptor_format);
        Response { status: Status::CheckCondition, sense, data_in: DataIn::None }
    }
    /// GOOD with data, of which the initiator takes no more than it has allocated.
    pub(crate) fn bytes(mut bytes: Vec<u8>, allocation: u32) -> Response {
        bytes.truncate(usize::try_from(allocation).unwrap_or(usize::MAX));
        Response { data_in: DataIn::Bytes(bytes), ..Response::good() }
    }
}

/// What comes next for a command.
#[derive(Debug)]
pub enum Step {
    Done(Response),
    /// Carry this out and call [`Unit::resume`](crate::Unit::resume) with the task and the result.
    Medium(Op, Task),
}

/// One operation. Offsets and lengths are bytes within the unit's volume; ranges are within its size as far as the unit
/// knows it, and never empty.
#[derive(Debug)]
pub enum Op {
    /// → [`Outcome::Data`]. At most [`TRANSFER_BYTES_MAX`](crate::TRANSFER_BYTES_MAX).
    Read { at: u64, len: usize },
    /// One atomic write of all parts. → [`Outcome::Done`]
    Write { at: u64, data: Vec<Buf>, fua: bool },
    /// → [`Outcome::Done`]
    Flush,
    /// → [`Outcome::Done`]
    Discard { at: u64, len: u64 },
    /// → [`Outcome::Done`]
    WriteZeroes { at: u64, len: u64, fua: bool },
    /// → [`Outcome::Compared`]
    CompareAndWrite { at: u64, expected: Buf, new: Buf },
    /// → [`Outcome::Extents`]
    Status { at: u64, len: u64, extents_max: usize },
    /// Store these bytes (at most [`STATE_BYTES_MAX`](crate::STATE_BYTES_MAX)) in place of the unit's last, durably; they
    /// come back at the next [`Unit::new`](crate::Unit::new). → [`Outcome::Done`], or an error: then nothing has changed.
    Persist(Vec<u8>),
    /// Tasks of these nexuses on this unit that began before are aborted, or have finished. → [`Outcome::Done`]
    Abort(Vec<NexusId>),
    /// Which logical units the nexus sees. → [`Outcome::Luns`]
    Luns,
    /// Find each designator among the units that the nexus sees (compare with
    /// [`Unit::is_designated`](crate::Unit::is_designated)) and ask [`Unit::admit_copy`](crate::Unit::admit_copy) there,
    /// this unit included. → [`Outcome::Resolved`], one for each; the caller keeps which unit each was until the task ends.
    Resolve(Vec<Designator>),
    /// Copy bytes between units by their places in the last [`Op::Resolve`]. → [`Outcome::Done`]
    Copy { from: usize, from_at: u64, to: usize, to_at: u64, len: u64 },
}

/// What came of an [`Op`].
#[derive(Debug)]
pub enum Outcome {
    Done,
    Data(Vec<Buf>),
    /// The first byte that differs, if one does: then nothing was written.
    Compared(Result<(), usize>),
    Extents(Vec<Extent>),
    Luns(Vec<crate::Lun>),
    Resolved(Vec<Option<CopyUnit>>),
}

/// How EXTENDED COPY names a unit, and what it wants there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Designator {
    /// DESIGNATOR TYPE as in the Device Identification VPD page.
    pub kind: u8,
    pub code_set: u8,
    pub bytes: Vec<u8>,
    pub reads: bool,
    pub writes: bool,
}

/// A unit that takes part in a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyUnit {
    pub block_bytes: u32,
    pub blocks: u64,
    /// A reservation, write protection or a stopped unit forbids it.
    pub is_refused: bool,
}

/// What came with a command.
#[derive(Debug, Default)]
pub struct DataOut {
    pub parts: Vec<Buf>,
    /// How much the initiator announced (iSCSI: Expected Data Transfer Length of a write); may differ from what the command
    /// needs and from what was received.
    pub announced: u64,
}
