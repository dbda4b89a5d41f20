//! Commands as values, and what each needs of the transport.

use crate::sense::Sense;

/// Blocks that a CDB names. Not yet compared with the unit's size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub lba: u64,
    pub blocks: u32,
    /// Where the CDB holds the number of blocks: for FIELD POINTER.
    pub(crate) length_byte: u8,
}

/// What VERIFY and WRITE AND VERIFY compare with (BYTCHK).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// The medium can be read.
    Medium,
    /// As many blocks of Data-Out.
    Data,
    /// One block of Data-Out, with each.
    OneBlock,
}

/// How MODE SENSE wants its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageControl {
    Current,
    Changeable,
    Default,
}

/// A command whose CDB is well formed. Lengths are bytes, `allocation` is the most that the initiator takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    TestUnitReady,
    RequestSense {
        descriptor_format: bool,
        allocation: u32,
    },
    Inquiry {
        page: Option<u8>,
        allocation: u32,
    },
    ReportLuns {
        select: u8,
        allocation: u32,
    },
    ReadCapacity10,
    ReadCapacity16 {
        allocation: u32,
    },
    Read {
        span: Span,
        fua: bool,
    },
    Write {
        span: Span,
        fua: bool,
    },
    WriteAtomic {
        span: Span,
        fua: bool,
    },
    WriteAndVerify {
        span: Span,
        check: Check,
    },
    Verify {
        span: Span,
        check: Check,
    },
    Prefetch {
        span: Span,
        immediate: bool,
    },
    SynchronizeCache {
        span: Span,
    },
    Unmap {
        list: u32,
    },
    WriteSame {
        span: Span,
        unmap: bool,
        no_data: bool,
    },
    OrWrite {
        span: Span,
        fua: bool,
    },
    CompareAndWrite {
        span: Span,
        fua: bool,
    },
    GetLbaStatus {
        lba: u64,
        allocation: u32,
    },
    ReadDefectData {
        twelve: bool,
        lists: u8,
        index: u32,
        allocation: u32,
    },
    ModeSense {
        ten: bool,
        no_block_descriptor: bool,
        long_lba: bool,
        control: PageControl,
        page: u8,
        subpage: u8,
        allocation: u32,
    },
    ModeSelect {
        ten: bool,
        list: u32,
    },
    StartStop {
        start: Option<bool>,
        flush: bool,
        eject: bool,
    },
    PreventAllow {
        prevent: bool,
    },
    PersistentReserveIn {
        action: u8,
        allocation: u32,
    },
    PersistentReserveOut {
        action: u8,
        scope_and_type: u8,
        list: u32,
    },
    Reserve,
    Release,
    ReportTargetPortGroups {
        extended: bool,
        allocation: u32,
    },
    ReportSupportedOpcodes {
        options: u8,
        opcode: u8,
        action: u16,
        timeouts: bool,
        allocation: u32,
    },
    ReportTaskManagement {
        extended: bool,
        allocation: u32,
    },
    ExtendedCopy {
        list: u32,
    },
    ReceiveCopyResults {
        action: u8,
        list_id: u8,
        allocation: u32,
    },
}

/// Which way a command's data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    None,
    /// To the initiator.
    In,
    /// From the initiator.
    Out,
}

impl Command {
    pub fn direction(&self) -> Direction {
        Direction::None
    }
}

/// Reads a CDB; missing bytes are zeros.
pub fn parse(_cdb: &[u8]) -> Result<Command, Sense> {
    Ok(Command::TestUnitReady)
}
