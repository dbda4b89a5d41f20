//! Commands as values: what a CDB says, and what it needs of the transport before anything is carried out.
//!
//! [`parse`] judges only what the CDB itself shows. Fields that are not supported (protection information, ACA,
//! third-party reservations) are refused with their place; reserved bits are not looked at, because SPC-4 leaves them to
//! later standards and initiators set them. Which bits are looked at is what REPORT SUPPORTED OPERATION CODES
//! reports: [`opcodes`](crate::opcodes) has that table, and a test compares the two bit by bit.

use crate::sense::{Sense, asc};

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

/// Which block descriptor MODE SENSE wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockDescriptor {
    None,
    Short,
    Long,
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
        compares: bool,
    },
    Verify {
        span: Span,
        check: Check,
    },
    Prefetch {
        span: Span,
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
        allocation: u32,
    },
    ModeSense {
        ten: bool,
        block_descriptor: BlockDescriptor,
        control: PageControl,
        page: u8,
        subpage: u8,
        allocation: u32,
    },
    ModeSelect {
        ten: bool,
        list: u32,
    },
    /// `start` is `None` for power conditions, which make no difference.
    StartStop {
        start: Option<bool>,
        flush: bool,
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
    /// The status of the copy with this list id, or the copy manager's operating parameters.
    ReceiveCopyResults {
        list_id: Option<u8>,
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
    /// Which way the command's data goes, if it has any.
    pub fn direction(&self) -> Direction {
        use Command::*;
        match self {
            TestUnitReady
            | SynchronizeCache { .. }
            | Prefetch { .. }
            | StartStop { .. }
            | PreventAllow { .. }
            | Reserve
            | Release
            | Verify { check: Check::Medium, .. }
            | WriteSame { no_data: true, .. } => Direction::None,
            Write { .. }
            | WriteAtomic { .. }
            | WriteAndVerify { .. }
            | Verify { .. }
            | Unmap { .. }
            | WriteSame { .. }
            | OrWrite { .. }
            | CompareAndWrite { .. }
            | ModeSelect { .. }
            | PersistentReserveOut { .. }
            | ExtendedCopy { .. } => Direction::Out,
            RequestSense { .. }
            | Inquiry { .. }
            | ReportLuns { .. }
            | ReadCapacity10
            | ReadCapacity16 { .. }
            | Read { .. }
            | GetLbaStatus { .. }
            | ReadDefectData { .. }
            | ModeSense { .. }
            | PersistentReserveIn { .. }
            | ReportTargetPortGroups { .. }
            | ReportSupportedOpcodes { .. }
            | ReportTaskManagement { .. }
            | ReceiveCopyResults { .. } => Direction::In,
        }
    }

    /// Bytes of Data-Out that the CDB asks for, on a unit with logical blocks of this size. May be more than a command may
    /// have: [`Unit::data_out_len`](crate::Unit::data_out_len) judges that.
    pub fn data_out_len(&self, block_bytes: u32) -> u64 {
        use Command::*;
        let block_bytes = u64::from(block_bytes);
        match *self {
            Write { span, .. }
            | WriteAtomic { span, .. }
            | WriteAndVerify { span, .. }
            | OrWrite { span, .. }
            | Verify { span, check: Check::Data } => u64::from(span.blocks) * block_bytes,
            CompareAndWrite { span, .. } => 2 * u64::from(span.blocks) * block_bytes,
            Verify { span, check: Check::OneBlock } if span.blocks > 0 => block_bytes,
            WriteSame { no_data: false, .. } => block_bytes,
            Unmap { list }
            | ModeSelect { list, .. }
            | PersistentReserveOut { list, .. }
            | ExtendedCopy { list } => u64::from(list),
            _ => 0,
        }
    }
}

/// A CDB with zeros behind it.
struct Cdb([u8; 16]);

impl Cdb {
    fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }
    fn bit(&self, at: usize, bit: u8) -> bool {
        self.0[at] >> bit & 1 == 1
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }
    /// The service action.
    fn action(&self) -> u8 {
        self.0[1] & 0x1f
    }

    /// The blocks that a CDB of 10, 12 or 16 bytes names in the usual places.
    fn span(&self) -> Span {
        match self.0[0] >> 5 {
            1 | 2 => Span { lba: self.u32(2).into(), blocks: self.u16(7).into(), length_byte: 7 },
            5 => Span { lba: self.u32(2).into(), blocks: self.u32(6), length_byte: 6 },
            _ => Span { lba: self.u64(2), blocks: self.u32(10), length_byte: 10 },
        }
    }
    /// READ(6) and WRITE(6): 21 bits of address, and 0 stands for 256 blocks.
    fn span6(&self) -> Span {
        let blocks = if self.0[4] == 0 { 256 } else { self.0[4].into() };
        Span { lba: (self.u32(0) & 0x1f_ffff).into(), blocks, length_byte: 4 }
    }
    /// RDPROTECT, WRPROTECT, VRPROTECT, ORPROTECT: the medium has no protection information.
    fn unprotected(&self) -> Result<(), Sense> {
        if self.0[1] >> 5 == 0 { Ok(()) } else { Err(Sense::cdb_field(1, 7)) }
    }
    fn fua(&self) -> bool {
        self.bit(1, 3)
    }
    fn check(&self) -> Result<Check, Sense> {
        match self.0[1] >> 1 & 3 {
            0 => Ok(Check::Medium),
            1 => Ok(Check::Data),
            3 => Ok(Check::OneBlock),
            _ => Err(Sense::cdb_field(1, 2)),
        }
    }
    /// Fields that a bit mask covers must be 0.
    fn zero(&self, at: usize, mask: u8) -> Result<(), Sense> {
        let wrong = self.0[at] & mask;
        if wrong == 0 { Ok(()) } else { Err(Sense::cdb_field(at, wrong.ilog2() as u8)) }
    }
}

fn unknown_opcode() -> Sense {
    let field = crate::sense::FieldPointer { in_cdb: true, byte: 0, bit: None };
    Sense { field: Some(field), ..Sense::illegal(asc::INVALID_OPERATION_CODE) }
}

/// Bytes of a CDB, by its operation code's group; `None` for groups that are not supported.
pub(crate) fn cdb_len(opcode: u8) -> Option<usize> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}

/// Reads a CDB. Bytes that are missing are zeros, as in transports that send 16 always.
pub fn parse(cdb: &[u8]) -> Result<Command, Sense> {
    let mut padded = [0; 16];
    let present = cdb.len().min(16);
    padded[..present].copy_from_slice(&cdb[..present]);
    let len = cdb_len(padded[0]).ok_or_else(unknown_opcode)?;
    let cdb = Cdb(padded);
    let command = match cdb.byte(0) {
        0x08 => Command::Read { span: cdb.span6(), fua: false },
        0x0a => Command::Write { span: cdb.span6(), fua: false },
        0x28 | 0xa8 | 0x88 => {
            cdb.unprotected()?;
            Command::Read { span: cdb.span(), fua: cdb.fua() }
        }
        0x2a | 0xaa | 0x8a => {
            cdb.unprotected()?;
            Command::Write { span: cdb.span(), fua: cdb.fua() }
        }
        0x00..=0x1f => parse_six(&cdb)?,
        0x20..=0x5f => parse_ten(&cdb)?,
        0x80..=0x9f => parse_sixteen(&cdb)?,
        _ => parse_twelve(&cdb)?,
    };
    // NACA: auto contingent allegiance is not supported (NORMACA is 0).
    cdb.zero(len - 1, 0x04)?;
    Ok(command)
}

fn parse_six(cdb: &Cdb) -> Result<Command, Sense> {
    Ok(match cdb.byte(0) {
        0x00 => Command::TestUnitReady,
        0x03 => Command::RequestSense { descriptor_format: cdb.bit(1, 0), allocation: cdb.byte(4).into() },
        0x12 => {
            let (vital, page) = (cdb.bit(1, 0), cdb.byte(2));
            if !vital && page != 0 {
                return Err(Sense::cdb_field(2, None));
            }
            Command::Inquiry { page: vital.then_some(page), allocation: cdb.u16(3).into() }
        }
        0x15 => Command::ModeSelect { ten: false, list: mode_select(cdb, cdb.byte(4).into())? },
        0x16 | 0x17 => {
            // Third-party and extent reservations.
            cdb.zero(1, 0x11)?;
            if cdb.byte(0) == 0x16 { Command::Reserve } else { Command::Release }
        }
        0x1a => mode_sense(cdb, false, cdb.byte(4).into())?,
        0x1b => {
            // LOEJ: the medium cannot be removed.
            cdb.zero(4, 0x02)?;
            let start = match cdb.byte(4) >> 4 {
                0 => Some(cdb.bit(4, 0)),
                // Power conditions make no difference to a volume.
                0x1..=0x3 | 0x7 | 0xa | 0xb => None,
                _ => return Err(Sense::cdb_field(4, 7)),
            };
            Command::StartStop { start, flush: !cdb.bit(4, 2) }
        }
        0x1e => Command::PreventAllow { prevent: cdb.bit(4, 0) },
        _ => return Err(unknown_opcode()),
    })
}

fn parse_ten(cdb: &Cdb) -> Result<Command, Sense> {
    Ok(match cdb.byte(0) {
        0x25 => Command::ReadCapacity10,
        0x2e => write_and_verify(cdb)?,
        0x2f => verify(cdb)?,
        0x34 => Command::Prefetch { span: cdb.span() },
        0x35 => Command::SynchronizeCache { span: cdb.span() },
        0x37 => Command::ReadDefectData {
            twelve: false,
            lists: cdb.byte(2) & 0x1f,
            allocation: cdb.u16(7).into(),
        },
        0x41 => write_same(cdb)?,
        0x42 => {
            // ANCHOR: blocks cannot be anchored (ANC_SUP is 0).
            cdb.zero(1, 0x01)?;
            Command::Unmap { list: cdb.u16(7).into() }
        }
        0x55 => Command::ModeSelect { ten: true, list: mode_select(cdb, cdb.u16(7).into())? },
        0x56 | 0x57 => {
            // Third-party and extent reservations.
            cdb.zero(1, 0x13)?;
            if cdb.byte(0) == 0x56 { Command::Reserve } else { Command::Release }
        }
        0x5a => mode_sense(cdb, true, cdb.u16(7).into())?,
        0x5e => match cdb.action() {
            action @ 0..=3 => Command::PersistentReserveIn { action, allocation: cdb.u16(7).into() },
            _ => return Err(Sense::cdb_field(1, 4)),
        },
        0x5f => match cdb.action() {
            action @ 0..=7 => {
                Command::PersistentReserveOut { action, scope_and_type: cdb.byte(2), list: cdb.u32(5) }
            }
            _ => return Err(Sense::cdb_field(1, 4)),
        },
        _ => return Err(unknown_opcode()),
    })
}

fn parse_twelve(cdb: &Cdb) -> Result<Command, Sense> {
    let allocation = cdb.u32(6);
    Ok(match (cdb.byte(0), cdb.action()) {
        (0xa0, _) => Command::ReportLuns { select: cdb.byte(2), allocation },
        (0xa3, 0x0a) => match cdb.byte(1) >> 5 {
            format @ 0..=1 => Command::ReportTargetPortGroups { extended: format == 1, allocation },
            _ => return Err(Sense::cdb_field(1, 7)),
        },
        (0xa3, 0x0c) => Command::ReportSupportedOpcodes {
            timeouts: cdb.bit(2, 7),
            options: match cdb.byte(2) & 0x07 {
                options @ 0..=3 => options,
                _ => return Err(Sense::cdb_field(2, 2)),
            },
            opcode: cdb.byte(3),
            action: cdb.u16(4),
            allocation,
        },
        (0xa3, 0x0d) => Command::ReportTaskManagement { extended: cdb.bit(2, 7), allocation },
        (0xa3, _) => return Err(Sense::cdb_field(1, 4)),
        (0xae, _) => write_and_verify(cdb)?,
        (0xaf, _) => verify(cdb)?,
        (0xb7, _) => Command::ReadDefectData { twelve: true, lists: cdb.byte(1) & 0x1f, allocation },
        _ => return Err(unknown_opcode()),
    })
}

fn parse_sixteen(cdb: &Cdb) -> Result<Command, Sense> {
    Ok(match (cdb.byte(0), cdb.action()) {
        (0x83, 0x00) => Command::ExtendedCopy { list: cdb.u32(10) },
        (0x84, 0x00) => Command::ReceiveCopyResults { list_id: Some(cdb.byte(2)), allocation: cdb.u32(10) },
        (0x84, 0x03) => Command::ReceiveCopyResults { list_id: None, allocation: cdb.u32(10) },
        (0x89, _) => {
            cdb.unprotected()?;
            let span = Span { lba: cdb.u64(2), blocks: cdb.byte(13).into(), length_byte: 13 };
            Command::CompareAndWrite { span, fua: cdb.fua() }
        }
        (0x8b, _) => {
            cdb.unprotected()?;
            Command::OrWrite { span: cdb.span(), fua: cdb.fua() }
        }
        (0x8e, _) => write_and_verify(cdb)?,
        (0x8f, _) => verify(cdb)?,
        (0x90, _) => Command::Prefetch { span: cdb.span() },
        (0x91, _) => Command::SynchronizeCache { span: cdb.span() },
        (0x93, _) => write_same(cdb)?,
        (0x9c, _) => {
            cdb.unprotected()?;
            // ATOMIC BOUNDARY: writes are atomic as a whole or not at all.
            if cdb.u16(10) != 0 {
                return Err(Sense::cdb_field(10, None));
            }
            let span = Span { lba: cdb.u64(2), blocks: cdb.u16(12).into(), length_byte: 12 };
            Command::WriteAtomic { span, fua: cdb.fua() }
        }
        (0x9e, 0x10) => Command::ReadCapacity16 { allocation: cdb.u32(10) },
        (0x9e, 0x12) => Command::GetLbaStatus { lba: cdb.u64(2), allocation: cdb.u32(10) },
        (0x83 | 0x84 | 0x9e, _) => return Err(Sense::cdb_field(1, 4)),
        _ => return Err(unknown_opcode()),
    })
}

fn verify(cdb: &Cdb) -> Result<Command, Sense> {
    cdb.unprotected()?;
    Ok(Command::Verify { span: cdb.span(), check: cdb.check()? })
}

fn write_and_verify(cdb: &Cdb) -> Result<Command, Sense> {
    cdb.unprotected()?;
    match cdb.check()? {
        Check::OneBlock => Err(Sense::cdb_field(1, 2)),
        check => Ok(Command::WriteAndVerify { span: cdb.span(), compares: check == Check::Data }),
    }
}

fn write_same(cdb: &Cdb) -> Result<Command, Sense> {
    cdb.unprotected()?;
    // ANCHOR is not supported; PBDATA and LBDATA are obsolete, and ignoring them would write something else.
    cdb.zero(1, 0x16)?;
    let (unmap, no_data) = (cdb.bit(1, 3), cdb.byte(0) == 0x93 && cdb.bit(1, 0));
    // NDOB without UNMAP is written as zeros, too.
    Ok(Command::WriteSame { span: cdb.span(), unmap, no_data })
}

fn mode_sense(cdb: &Cdb, ten: bool, allocation: u32) -> Result<Command, Sense> {
    let control = match cdb.byte(2) >> 6 {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ => return Err(Sense { field: None, ..Sense::illegal(asc::SAVING_NOT_SUPPORTED) }),
    };
    Ok(Command::ModeSense {
        ten,
        block_descriptor: match (cdb.bit(1, 3), ten && cdb.bit(1, 4)) {
            (true, _) => BlockDescriptor::None,
            (false, false) => BlockDescriptor::Short,
            (false, true) => BlockDescriptor::Long,
        },
        control,
        page: cdb.byte(2) & 0x3f,
        subpage: cdb.byte(3),
        allocation,
    })
}

/// The parameter list length, if the rest is as it must be.
fn mode_select(cdb: &Cdb, list: u32) -> Result<u32, Sense> {
    // Pages are as in the standard (PF) and are not saved (SP).
    if !cdb.bit(1, 4) {
        return Err(Sense::cdb_field(1, 4));
    }
    cdb.zero(1, 0x01)?;
    Ok(list)
}
