//! The numbers of the protocol: opcodes, flags, codes, and sequence-number arithmetic (RFC 7143, section 11 unless
//! said otherwise).

/// A tag that names nothing: no task, no transfer.
pub const TAG_NONE: u32 = 0xffff_ffff;
/// The TCP port that IANA assigned.
pub const PORT: u16 = 3260;
/// The data segment that every peer takes before it has declared more (13.12), and during login.
pub const SEGMENT_DEFAULT: u32 = 8192;
/// Bytes of one text (login or text exchange), over all the PDUs that carry it. Everything that any initiator sends
/// fits in a tenth of this.
pub const TEXT_MAX: usize = 64 << 10;

pub mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_REQUEST: u8 = 0x02;
    pub const LOGIN_REQUEST: u8 = 0x03;
    pub const TEXT_REQUEST: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT_REQUEST: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// Bits of the second byte.
pub mod flag {
    /// The last PDU of a sequence.
    pub const FINAL: u8 = 0x80;
    /// Login: the sender is ready for the next stage.
    pub const TRANSIT: u8 = 0x80;
    /// Text and login: the text goes on in the next PDU.
    pub const CONTINUE: u8 = 0x40;
    /// SCSI command: data is expected in; data is expected out.
    pub const READ: u8 = 0x40;
    pub const WRITE: u8 = 0x20;
    /// SCSI command: where the task attribute is.
    pub const ATTRIBUTE: u8 = 0x07;
    /// Data-In: asks for an acknowledgement (error recovery level above 0 only); carries the status.
    pub const ACKNOWLEDGE: u8 = 0x40;
    pub const STATUS: u8 = 0x01;
    /// SCSI response and Data-In: more data, or less, than the initiator expected.
    pub const OVERFLOW: u8 = 0x04;
    pub const UNDERFLOW: u8 = 0x02;
}

/// Why a PDU is rejected (11.17.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RejectReason {
    DataDigest = 0x02,
    Snack = 0x03,
    Protocol = 0x04,
    NotSupported = 0x05,
    TooManyImmediate = 0x06,
    TaskInProgress = 0x07,
    InvalidField = 0x09,
    WaitingForLogout = 0x0c,
}

/// What a task management request asks for (11.5.1, and RFC 7144 section 5 from 9 on).
pub mod task_function {
    pub const ABORT_TASK: u8 = 1;
    pub const ABORT_TASK_SET: u8 = 2;
    pub const CLEAR_ACA: u8 = 3;
    pub const CLEAR_TASK_SET: u8 = 4;
    pub const LUN_RESET: u8 = 5;
    pub const TARGET_WARM_RESET: u8 = 6;
    pub const TARGET_COLD_RESET: u8 = 7;
    pub const TASK_REASSIGN: u8 = 8;
    pub const QUERY_TASK: u8 = 9;
    pub const QUERY_TASK_SET: u8 = 10;
    pub const NEXUS_RESET: u8 = 11;
    pub const QUERY_ASYNC_EVENT: u8 = 12;
}

/// How a task management request ended (11.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TaskAnswer {
    Complete = 0,
    NoTask = 1,
    NoLun = 2,
    ReassignNotSupported = 4,
    NotSupported = 5,
    NotAuthorized = 6,
    /// Of a query: there is such a task (RFC 7144).
    Succeeded = 7,
    Rejected = 255,
}

/// How a login failed: status class and detail (11.13.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum LoginStatus {
    Success = 0x0000,
    InitiatorError = 0x0200,
    AuthenticationFailed = 0x0201,
    /// The initiator may not use this target.
    Forbidden = 0x0202,
    NotFound = 0x0203,
    UnsupportedVersion = 0x0205,
    TooManyConnections = 0x0206,
    MissingParameter = 0x0207,
    /// No further connection can join this session.
    CannotJoin = 0x0208,
    SessionTypeNotSupported = 0x0209,
    NoSession = 0x020a,
    /// A PDU that is no login request.
    InvalidDuringLogin = 0x020b,
    TargetError = 0x0300,
    Unavailable = 0x0301,
    OutOfResources = 0x0302,
}

/// Stages of a login, as CSG and NSG name them.
pub mod stage {
    pub const SECURITY: u8 = 0;
    pub const OPERATIONAL: u8 = 1;
    pub const FULL_FEATURE: u8 = 3;
}

/// Reasons of a logout request (11.14.1) and answers to it (11.15.1).
pub mod logout {
    pub const CLOSE_SESSION: u8 = 0;
    pub const CLOSE_CONNECTION: u8 = 1;
    pub const REMOVE_FOR_RECOVERY: u8 = 2;
    pub const DONE: u8 = 0;
    pub const NO_CONNECTION: u8 = 1;
    pub const RECOVERY_NOT_SUPPORTED: u8 = 2;
    pub const CLEANUP_FAILED: u8 = 3;
}

/// Events of an asynchronous message (11.9.1).
pub mod async_event {
    pub const SCSI: u8 = 0;
    pub const LOGOUT_REQUESTED: u8 = 1;
    pub const CONNECTION_DROPPED: u8 = 2;
    pub const SESSION_DROPPED: u8 = 3;
}

/// SCSI status codes that the transport gives or looks at (SAM-5).
pub mod status {
    pub const GOOD: u8 = 0x00;
    pub const CHECK_CONDITION: u8 = 0x02;
    pub const BUSY: u8 = 0x08;
    pub const TASK_ABORTED: u8 = 0x40;
}

/// How a command wants to be queued (11.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Attribute {
    /// As the initiator does not say, or simple.
    #[default]
    Simple,
    Ordered,
    HeadOfQueue,
    Aca,
}

impl Attribute {
    pub fn of(flags: u8) -> Attribute {
        match flags & flag::ATTRIBUTE {
            2 => Attribute::Ordered,
            3 => Attribute::HeadOfQueue,
            4 => Attribute::Aca,
            _ => Attribute::Simple,
        }
    }
    pub fn bits(self) -> u8 {
        match self {
            Attribute::Simple => 1,
            Attribute::Ordered => 2,
            Attribute::HeadOfQueue => 3,
            Attribute::Aca => 4,
        }
    }
}

/// Whether `a` comes before `b` in serial-number arithmetic (RFC 1982, 32 bits).
pub fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Bytes of padding behind `len` bytes of data.
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_and_segments_are_padded_to_words() {
        assert!(
            is_before(0xffff_ffff, 0) && is_before(5, 6) && !is_before(6, 6) && !is_before(0, 0xffff_fff0)
        );
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding), [0, 3, 2, 1, 0, 3]);
    }
}
