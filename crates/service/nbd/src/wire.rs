//! Numbers of the protocol, and reading them off the wire. Everything is big-endian.
//!
//! Names follow `doc/proto.md` of the NBD project without the `NBD_` prefix.

use std::fmt;

/// `NBDMAGIC`, the first word of every server.
pub const INIT_MAGIC: u64 = 0x4e42444d41474943;
/// `IHAVEOPT`, the second word of a newstyle server and the first of every option.
pub const OPTION_MAGIC: u64 = 0x49484156454f5054;
pub const OPTION_REPLY_MAGIC: u64 = 0x0003e889045565a9;
pub const REQUEST_MAGIC: u32 = 0x25609513;
pub const REQUEST_MAGIC_EXTENDED: u32 = 0x21e41c71;
pub const REPLY_MAGIC_SIMPLE: u32 = 0x67446698;
pub const REPLY_MAGIC_STRUCTURED: u32 = 0x668e33ef;
pub const REPLY_MAGIC_EXTENDED: u32 = 0x6e8a278c;

pub const REQUEST_LEN: usize = 4 + 2 + 2 + 8 + 8 + 4;
pub const REQUEST_LEN_EXTENDED: usize = REQUEST_LEN + 4;
pub const CHUNK_LEN_STRUCTURED: usize = 4 + 2 + 2 + 8 + 4;
pub const CHUNK_LEN_EXTENDED: usize = 4 + 2 + 2 + 8 + 8 + 8;
pub const OPTION_LEN: usize = 8 + 4 + 4;

/// Longest read or write in one request: the size that every client may rely on, and the largest that the
/// engine takes.
pub const REQUEST_MAX: u32 = 32 << 20;
/// Longest string (export name, message) of the protocol.
pub const STRING_MAX: usize = 4096;

/// Flags of the server's greeting and of the client's answer.
pub mod handshake_flag {
    pub const FIXED_NEWSTYLE: u32 = 1 << 0;
    pub const NO_ZEROES: u32 = 1 << 1;
}

/// Flags of an export.
pub mod export_flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to options.
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR + 1;
    pub const ERR_POLICY: u32 = ERROR + 2;
    pub const ERR_INVALID: u32 = ERROR + 3;
    pub const ERR_TLS_REQD: u32 = ERROR + 5;
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
    pub const ERR_SHUTDOWN: u32 = ERROR + 7;
    pub const ERR_TOO_BIG: u32 = ERROR + 9;
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR + 10;
}

pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const BLOCK_SIZE: u16 = 3;
}

pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types and flags of reply chunks.
pub mod chunk {
    pub const FLAG_DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const BLOCK_STATUS_EXT: u16 = 6;
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// States of the context `base:allocation`.
pub mod state {
    pub const HOLE: u32 = 1 << 0;
    pub const ZERO: u32 = 1 << 1;
}

/// The only metadata context there is.
pub const CONTEXT_ALLOCATION: &str = "base:allocation";
/// Its number on every connection that selected it.
pub const CONTEXT_ALLOCATION_ID: u32 = 1;

/// Error numbers of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ErrorCode {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
    Shutdown = 108,
}

/// Why a connection is closed without a further word: the protocol has no reply there, or messages can no longer be
/// told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    ClientFlags(u32),
    OptionMagic(u64),
    /// More options than a negotiation needs.
    TooManyOptions,
    /// More bytes than a negotiation needs.
    TooManyBytes,
    /// An option other than EXPORT_NAME without fixed newstyle.
    NotFixedNewstyle(u32),
    /// EXPORT_NAME, which has no error reply, for an export that is not there.
    UnknownExport,
    /// EXPORT_NAME before TLS, which is required.
    TlsRequired,
    /// EXPORT_NAME while the server stops.
    Stopping,
    /// Bytes in the clear after STARTTLS: somebody may be injecting them.
    PlaintextAfterTls,
    RequestMagic(u32),
    /// A payload of this many bytes, beyond [`REQUEST_MAX`].
    PayloadTooLong(u64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Violation::ClientFlags(flags) => write!(f, "it set unknown client flags {flags:#010x}"),
            Violation::OptionMagic(magic) => write!(f, "an option began with {magic:#018x}"),
            Violation::TooManyOptions => f.write_str("it sent too many options"),
            Violation::TooManyBytes => f.write_str("it sent too many bytes of options"),
            Violation::NotFixedNewstyle(option) => {
                write!(f, "it sent option {option} without agreeing to fixed newstyle")
            }
            Violation::UnknownExport => f.write_str("it asked for an export that does not exist"),
            Violation::TlsRequired => f.write_str("it asked for an export without TLS, which is required"),
            Violation::Stopping => f.write_str("it asked for an export while the server was stopping"),
            Violation::PlaintextAfterTls => f.write_str("it sent bytes in the clear after asking for TLS"),
            Violation::RequestMagic(magic) => write!(f, "a request began with {magic:#010x}"),
            Violation::PayloadTooLong(len) => write!(f, "it announced a payload of {len} bytes"),
        }
    }
}

/// The data ended before the structure did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncated;

/// Takes big-endian numbers and strings off a byte slice.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Truncated)?;
        self.0 = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Truncated)?;
        self.0 = rest;
        Ok(*head)
    }
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_be_bytes)
    }
}
