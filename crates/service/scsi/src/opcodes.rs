//! Which commands there are, and which bits of their CDBs are looked at: REPORT SUPPORTED OPERATION CODES.
//!
//! The table is what [`parse`](crate::parse) does, told to initiators. A usage map has a one for every bit that is
//! evaluated; its first byte is the operation code, its length that of the CDB (SPC-4 6.34). DPO is among them,
//! because DPOFUA says that it is known, though the engine's cache decides for itself what to keep.

use crate::command::cdb_len;
use crate::sense::Sense;

/// One command, or one service action of a command.
pub(crate) struct Opcode {
    pub code: u8,
    pub action: Option<u8>,
    usage: &'static [u8],
    /// Seconds after which an initiator may think that something is wrong.
    timeout: u32,
}

/// The CONTROL byte: NACA.
const C: u8 = 0x04;
const F: u8 = 0xff;
/// A command that touches at most what fits into one transfer.
const SHORT: u32 = 30;
/// One that may touch much more.
const LONG: u32 = 120;

macro_rules! opcodes {
    ($($code:literal $(/ $action:literal)? [$($usage:expr),*] $timeout:ident;)*) => {
        pub(crate) const OPCODES: &[Opcode] = &[$(Opcode {
            code: $code,
            action: opcodes!(@action $($action)?),
            usage: &[$code, $($usage),*],
            timeout: $timeout,
        }),*];
    };
    (@action) => { None };
    (@action $action:literal) => { Some($action) };
}

opcodes! {
    // TEST UNIT READY, REQUEST SENSE, READ(6), WRITE(6), INQUIRY
    0x00 [0, 0, 0, 0, C] SHORT;
    0x03 [0x01, 0, 0, F, C] SHORT;
    0x08 [0x1f, F, F, F, C] SHORT;
    0x0a [0x1f, F, F, F, C] SHORT;
    0x12 [0x01, F, F, F, C] SHORT;
    // MODE SELECT(6), RESERVE(6), RELEASE(6), MODE SENSE(6), START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL
    0x15 [0x11, 0, 0, F, C] SHORT;
    0x16 [0x11, 0, 0, 0, C] SHORT;
    0x17 [0x11, 0, 0, 0, C] SHORT;
    0x1a [0x08, F, F, F, C] SHORT;
    0x1b [0, 0, 0, 0xf7, C] LONG;
    0x1e [0, 0, 0, 0x01, C] SHORT;
    // READ CAPACITY(10), READ(10), WRITE(10), WRITE AND VERIFY(10), VERIFY(10)
    0x25 [0, 0, 0, 0, 0, 0, 0, 0, C] SHORT;
    0x28 [0xf8, F, F, F, F, 0, F, F, C] SHORT;
    0x2a [0xf8, F, F, F, F, 0, F, F, C] SHORT;
    0x2e [0xf6, F, F, F, F, 0, F, F, C] SHORT;
    0x2f [0xf6, F, F, F, F, 0, F, F, C] LONG;
    // PRE-FETCH(10), SYNCHRONIZE CACHE(10), READ DEFECT DATA(10), WRITE SAME(10), UNMAP
    0x34 [0, F, F, F, F, 0, F, F, C] SHORT;
    0x35 [0, F, F, F, F, 0, F, F, C] LONG;
    0x37 [0, 0x1f, 0, 0, 0, 0, F, F, C] SHORT;
    0x41 [0xfe, F, F, F, F, 0, F, F, C] LONG;
    0x42 [0x01, 0, 0, 0, 0, 0, F, F, C] LONG;
    // MODE SELECT(10), RESERVE(10), RELEASE(10), MODE SENSE(10)
    0x55 [0x11, 0, 0, 0, 0, 0, F, F, C] SHORT;
    0x56 [0x13, 0, 0, 0, 0, 0, 0, 0, C] SHORT;
    0x57 [0x13, 0, 0, 0, 0, 0, 0, 0, C] SHORT;
    0x5a [0x18, F, F, 0, 0, 0, F, F, C] SHORT;
    // PERSISTENT RESERVE IN: READ KEYS, READ RESERVATION, REPORT CAPABILITIES, READ FULL STATUS
    0x5e / 0x00 [0x1f, 0, 0, 0, 0, 0, F, F, C] SHORT;
    0x5e / 0x01 [0x1f, 0, 0, 0, 0, 0, F, F, C] SHORT;
    0x5e / 0x02 [0x1f, 0, 0, 0, 0, 0, F, F, C] SHORT;
    0x5e / 0x03 [0x1f, 0, 0, 0, 0, 0, F, F, C] SHORT;
    // PERSISTENT RESERVE OUT: REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT AND ABORT,
    // REGISTER AND IGNORE EXISTING KEY, REGISTER AND MOVE
    0x5f / 0x00 [0x1f, F, 0, 0, F, F, F, F, C] SHORT;
    0x5f / 0x01 [0x1f, F, 0, 0, F, F, F, F, C] SHORT;
    0x5f / 0x02 [0x1f, F, 0, 0, F, F, F, F, C] SHORT;
    0x5f / 0x03 [0x1f, F, 0, 0, F, F, F, F, C] SHORT;
    0x5f / 0x04 [0x1f, F, 0, 0, F, F, F, F, C] SHORT;
    0x5f / 0x05 [0x1f, F, 0, 0, F, F, F, F, C] LONG;
    0x5f / 0x06 [0x1f, F, 0, 0, F, F, F, F, C] SHORT;
    0x5f / 0x07 [0x1f, F, 0, 0, F, F, F, F, C] SHORT;
    // EXTENDED COPY(LID1); RECEIVE COPY RESULTS: COPY STATUS, OPERATING PARAMETERS
    0x83 / 0x00 [0x1f, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C] LONG;
    0x84 / 0x00 [0x1f, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C] SHORT;
    0x84 / 0x03 [0x1f, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C] SHORT;
    // READ(16), COMPARE AND WRITE, WRITE(16), ORWRITE(16), WRITE AND VERIFY(16), VERIFY(16)
    0x88 [0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] SHORT;
    0x89 [0xf8, F, F, F, F, F, F, F, F, 0, 0, 0, F, 0, C] SHORT;
    0x8a [0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] SHORT;
    0x8b [0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] SHORT;
    0x8e [0xf6, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] SHORT;
    0x8f [0xf6, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] LONG;
    // PRE-FETCH(16), SYNCHRONIZE CACHE(16), WRITE SAME(16), WRITE ATOMIC(16), READ CAPACITY(16), GET LBA STATUS
    0x90 [0, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] SHORT;
    0x91 [0, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] LONG;
    0x93 [F, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] LONG;
    0x9c [0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] SHORT;
    0x9e / 0x10 [0x1f, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, C] SHORT;
    0x9e / 0x12 [0x1f, F, F, F, F, F, F, F, F, F, F, F, F, 0, C] SHORT;
    // REPORT LUNS, REPORT TARGET PORT GROUPS, REPORT SUPPORTED OPERATION CODES,
    // REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS
    0xa0 [0, F, 0, 0, 0, F, F, F, F, 0, C] SHORT;
    0xa3 / 0x0a [F, 0, 0, 0, 0, F, F, F, F, 0, C] SHORT;
    0xa3 / 0x0c [0x1f, 0x87, F, F, F, F, F, F, F, 0, C] SHORT;
    0xa3 / 0x0d [0x1f, 0x80, 0, 0, 0, F, F, F, F, 0, C] SHORT;
    // READ(12), WRITE(12), WRITE AND VERIFY(12), VERIFY(12), READ DEFECT DATA(12)
    0xa8 [0xf8, F, F, F, F, F, F, F, F, 0, C] SHORT;
    0xaa [0xf8, F, F, F, F, F, F, F, F, 0, C] SHORT;
    0xae [0xf6, F, F, F, F, F, F, F, F, 0, C] SHORT;
    0xaf [0xf6, F, F, F, F, F, F, F, F, 0, C] LONG;
    0xb7 [0x1f, 0, 0, 0, 0, F, F, F, F, 0, C] SHORT;
}

/// The command timeouts descriptor (SPC-4 6.34.4): after which time to ask, and when to give up.
fn timeouts(opcode: &Opcode) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[1] = 0x0a;
    bytes[8..12].copy_from_slice(&opcode.timeout.to_be_bytes());
    bytes
}

/// All commands (REPORTING OPTIONS 0).
fn all(with_timeouts: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for opcode in OPCODES {
        let len = cdb_len(opcode.code).expect("the table has supported groups only") as u8;
        let action = opcode.action.unwrap_or(0);
        let flags = u8::from(with_timeouts) << 1 | u8::from(opcode.action.is_some());
        bytes.extend([opcode.code, 0, 0, action, 0, flags, 0, len]);
        if with_timeouts {
            bytes.extend(timeouts(opcode));
        }
    }
    let len = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// The parameter data of REPORT SUPPORTED OPERATION CODES.
pub(crate) fn report(options: u8, code: u8, action: u16, with_timeouts: bool) -> Result<Vec<u8>, Sense> {
    if options == 0 {
        return Ok(all(with_timeouts));
    }
    let has_actions = OPCODES.iter().any(|opcode| opcode.code == code && opcode.action.is_some());
    let is_known = OPCODES.iter().any(|opcode| opcode.code == code);
    match options {
        // One command by its operation code alone, or together with a service action.
        1 if has_actions => return Err(Sense::cdb_field(2, 2)),
        2 if is_known && !has_actions => return Err(Sense::cdb_field(2, 2)),
        _ => {}
    }
    let wanted = |opcode: &&Opcode| {
        opcode.code == code
            && match opcode.action {
                Some(own) => u16::from(own) == action,
                None => options == 1 || action == 0,
            }
    };
    let Some(opcode) = OPCODES.iter().find(wanted) else {
        // SUPPORT 001b: not supported.
        return Ok(vec![0, 0x01, 0, 0]);
    };
    // SUPPORT 011b: as in the standard.
    let mut bytes = vec![0, u8::from(with_timeouts) << 7 | 0x03];
    bytes.extend((opcode.usage.len() as u16).to_be_bytes());
    let at = bytes.len() + 1;
    bytes.extend(opcode.usage);
    if let Some(action) = opcode.action {
        // The field of a service action holds its value, as the operation code does.
        bytes[at] = bytes[at] & !0x1f | action;
    }
    if with_timeouts {
        bytes.extend(timeouts(opcode));
    }
    Ok(bytes)
}

/// The parameter data of REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: all that iSCSI has but those of ACA.
pub(crate) fn report_task_management(extended: bool) -> Vec<u8> {
    // ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET.
    let mut bytes = vec![0xda, 0, 0, 0];
    if extended {
        bytes[3] = 12;
        bytes.resize(16, 0);
    }
    bytes
}
