//! Cuts the stream of the transmission phase into requests.
//!
//! [`Transmission::decode`] is called with what one receive brought until that is used up; a request that
//! the bytes end within is kept here and goes on with the next bytes. Payloads are copied once, out of the
//! receive buffer into buffers of their own that start on 4096 bytes, as direct I/O wants them.
//!
//! The decoder knows what the peer may ask for (flags, range, sizes) and refuses the rest itself, so that a
//! [`Request`] is always valid for the export as agreed. The payload of a refused write is skipped. Whether
//! the volume can carry the request out is for the caller to find out.

use crate::handshake::Agreement;
use crate::reply::Style;
use crate::wire::{
    ErrorCode, REQUEST_LEN, REQUEST_LEN_EXTENDED, REQUEST_MAGIC, REQUEST_MAGIC_EXTENDED, REQUEST_MAX, Reader,
    Truncated, Violation, command, command_flag,
};
use forebay_base::planted::{Bug, active};
use forebay_runtime::{Arena, Buf, BufMut};

/// Payload is received into buffers of at most this size. A peer that announces 32 MiB and sends nothing
/// holds 256 KiB; a request of up to 256 KiB, which nearly all are, is one buffer.
pub const PAYLOAD_PART: usize = 256 << 10;

/// A valid request: within the export, at most 32 MiB of data, no flags but those the command has.
#[derive(Debug)]
pub struct Request {
    /// The client's name for the request, to be repeated in the reply.
    pub cookie: u64,
    /// Bytes from the start of the export.
    pub offset: u64,
    /// Durable before the reply.
    pub fua: bool,
    pub command: Command,
}

/// Lengths are in bytes. Except for block status they may be 0, which asks for nothing and succeeds.
#[derive(Debug)]
pub enum Command {
    Read {
        len: u32,
    },
    /// The parts follow each other; all but the last are [`PAYLOAD_PART`] long.
    Write {
        data: Vec<Buf>,
        len: u32,
    },
    Flush,
    Trim {
        len: u64,
    },
    Cache {
        len: u64,
    },
    WriteZeroes {
        len: u64,
        /// The range must stay allocated.
        no_hole: bool,
        /// Fail with [`ErrorCode::NotSupported`] rather than be as slow as a write.
        fast: bool,
    },
    BlockStatus {
        len: u64,
        /// One extent only.
        one: bool,
    },
}

/// A request that cannot be valid; the reply is this error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    pub cookie: u64,
    pub offset: u64,
    pub code: ErrorCode,
    pub message: &'static str,
}

#[derive(Debug)]
pub enum Decoded {
    Request(Request),
    Refused(Refused),
    /// The caller has no room for the next request: it is kept, and asked about again with the next call, also if that
    /// brings no bytes.
    Postponed,
    /// The client leaves; no more requests come.
    Disconnect,
}

/// The receiving side of one connection in the transmission phase.
pub struct Transmission {
    style: Style,
    /// Bytes of the export, as the client was told.
    size: u64,
    read_only: bool,
    allocation: bool,
    stage: Stage,
    /// The beginning of a header that the last bytes ended within.
    partial: [u8; REQUEST_LEN_EXTENDED],
    partial_len: usize,
}

enum Stage {
    Header,
    /// A valid request that the caller had no room for.
    Postponed {
        header: Header,
        command: Command,
    },
    Payload(Payload),
    Skip {
        refused: Refused,
        remaining: u32,
    },
}

struct Payload {
    cookie: u64,
    offset: u64,
    fua: bool,
    len: u32,
    /// Bytes that no part holds yet, the open one not counted.
    beyond: usize,
    parts: Vec<Buf>,
    open: BufMut,
    open_filled: usize,
}

struct Header {
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    len: u64,
}

impl Header {
    fn parse(bytes: &[u8], style: Style) -> Result<Result<Header, Violation>, Truncated> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u32()?;
        let expected = if style == Style::Extended { REQUEST_MAGIC_EXTENDED } else { REQUEST_MAGIC };
        if magic != expected {
            return Ok(Err(Violation::RequestMagic(magic)));
        }
        Ok(Ok(Header {
            flags: reader.u16()?,
            kind: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            len: if style == Style::Extended { reader.u64()? } else { u64::from(reader.u32()?) },
        }))
    }
}

impl Transmission {
    pub fn new(agreement: &Agreement) -> Transmission {
        Transmission {
            style: agreement.style,
            size: agreement.export.size,
            read_only: agreement.export.read_only,
            allocation: agreement.allocation,
            stage: Stage::Header,
            partial: [0; REQUEST_LEN_EXTENDED],
            partial_len: 0,
        }
    }

    /// Bytes of the write whose payload is being received; 0 between requests.
    pub fn receiving(&self) -> u64 {
        match &self.stage {
            Stage::Payload(payload) => u64::from(payload.len),
            _ => 0,
        }
    }

    /// Takes the next request off `input`, which moves on; `None` when it is used up. Whether there is room for a request,
    /// `has_room` says before any memory is taken for it; of a write it sees the length and no data yet. After an error the
    /// connection must be closed, and after [`Decoded::Disconnect`] nothing more may be decoded.
    pub fn decode(
        &mut self,
        input: &mut &[u8],
        arena: &Arena,
        mut has_room: impl FnMut(&Command) -> bool,
    ) -> Result<Option<Decoded>, Violation> {
        assert!(!active(Bug::RequestPanics), "planted");
        loop {
            let decoded = match &mut self.stage {
                Stage::Header => {
                    let Some(header) = self.header(input)? else { return Ok(None) };
                    self.judge(header, arena, &mut has_room)?
                }
                Stage::Postponed { command, .. } if !has_room(command) => Some(Decoded::Postponed),
                Stage::Postponed { .. } => {
                    let stage = std::mem::replace(&mut self.stage, Stage::Header);
                    let Stage::Postponed { header, command } = stage else {
                        unreachable!("it was that stage")
                    };
                    self.begin(&header, command, arena)
                }
                Stage::Payload(payload) => match payload.fill(input, arena) {
                    true => Some(self.finish_payload()),
                    false => return Ok(None),
                },
                Stage::Skip { refused, remaining } => {
                    let skipped = (*remaining as usize).min(input.len());
                    *input = &input[skipped..];
                    *remaining -= skipped as u32;
                    if *remaining > 0 {
                        return Ok(None);
                    }
                    let refused = *refused;
                    self.stage = Stage::Header;
                    Some(Decoded::Refused(refused))
                }
            };
            if decoded.is_some() {
                return Ok(decoded);
            }
        }
    }

    /// A whole header, from the input alone or with what was kept.
    fn header(&mut self, input: &mut &[u8]) -> Result<Option<Header>, Violation> {
        let len = if self.style == Style::Extended { REQUEST_LEN_EXTENDED } else { REQUEST_LEN };
        let parsed = if self.partial_len == 0 && input.len() >= len {
            let (header, rest) = input.split_at(len);
            *input = rest;
            Header::parse(header, self.style)
        } else {
            let taken = (len - self.partial_len).min(input.len());
            self.partial[self.partial_len..self.partial_len + taken].copy_from_slice(&input[..taken]);
            *input = &input[taken..];
            self.partial_len += taken;
            if self.partial_len < len {
                return Ok(None);
            }
            self.partial_len = 0;
            Header::parse(&self.partial[..len], self.style)
        };
        parsed.expect("a whole header was cut off").map(Some)
    }

    /// What is to become of the request; `None` when its payload must come first.
    fn judge(
        &mut self,
        header: Header,
        arena: &Arena,
        has_room: &mut impl FnMut(&Command) -> bool,
    ) -> Result<Option<Decoded>, Violation> {
        let announces_payload =
            self.style == Style::Extended && header.flags & command_flag::PAYLOAD_LEN != 0;
        let checked = self.check(&header);
        if header.kind == command::DISC {
            return Ok(Some(Decoded::Disconnect));
        }
        let payload = if header.kind == command::WRITE || announces_payload { header.len } else { 0 };
        let payload = u32::try_from(payload)
            .ok()
            .filter(|&len| len <= REQUEST_MAX)
            .ok_or(Violation::PayloadTooLong(payload))?;
        match checked {
            Err((code, message)) => {
                let refused = Refused { cookie: header.cookie, offset: header.offset, code, message };
                self.stage = Stage::Skip { refused, remaining: payload };
                Ok(None)
            }
            Ok(command) if has_room(&command) => Ok(self.begin(&header, command, arena)),
            Ok(command) => {
                self.stage = Stage::Postponed { header, command };
                Ok(Some(Decoded::Postponed))
            }
        }
    }

    /// Starts on a valid request; `None` when its payload must come first.
    fn begin(&mut self, header: &Header, command: Command, arena: &Arena) -> Option<Decoded> {
        let &Header { cookie, offset, .. } = header;
        let fua = header.flags & command_flag::FUA != 0;
        match command {
            Command::Write { len, .. } if len > 0 => {
                let first = (len as usize).min(PAYLOAD_PART);
                self.stage = Stage::Payload(Payload {
                    cookie,
                    offset,
                    fua,
                    len,
                    beyond: len as usize - first,
                    parts: Vec::with_capacity((len as usize).div_ceil(PAYLOAD_PART)),
                    open: arena.take(first),
                    open_filled: 0,
                });
                None
            }
            command => Some(Decoded::Request(Request { cookie, offset, fua, command })),
        }
    }

    /// Whether the request is one that the client may send; its data apart.
    fn check(&self, header: &Header) -> Result<Command, (ErrorCode, &'static str)> {
        let invalid = |message| Err((ErrorCode::Invalid, message));
        let &Header { flags, kind, offset, len, .. } = header;
        let allowed = command_flag::FUA
            | match kind {
                command::READ if self.style != Style::Simple => command_flag::DF,
                command::WRITE if self.style == Style::Extended => command_flag::PAYLOAD_LEN,
                command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
                command::BLOCK_STATUS => command_flag::REQ_ONE,
                _ => 0,
            };
        if flags & !allowed != 0 {
            return invalid("the request has a flag that this command does not take");
        }
        if self.read_only && matches!(kind, command::WRITE | command::TRIM | command::WRITE_ZEROES) {
            return Err((ErrorCode::NotPermitted, "the export is read-only"));
        }
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.size);
        match kind {
            command::READ if !inside => invalid("the read ends outside the export"),
            command::READ if len > u64::from(REQUEST_MAX) => invalid("a read has at most 32 MiB"),
            command::READ => Ok(Command::Read { len: len as u32 }),
            command::WRITE if !inside => Err((ErrorCode::NoSpace, "the write ends outside the export")),
            command::WRITE => Ok(Command::Write { data: Vec::new(), len: len as u32 }),
            command::FLUSH if offset != 0 || len != 0 => invalid("a flush has no range"),
            command::FLUSH => Ok(Command::Flush),
            command::TRIM if !inside => invalid("the range to trim ends outside the export"),
            command::TRIM => Ok(Command::Trim { len }),
            command::CACHE if !inside => invalid("the range to cache ends outside the export"),
            command::CACHE => Ok(Command::Cache { len }),
            command::WRITE_ZEROES if !inside => {
                Err((ErrorCode::NoSpace, "the range to zero ends outside the export"))
            }
            command::WRITE_ZEROES => Ok(Command::WriteZeroes {
                len,
                no_hole: flags & command_flag::NO_HOLE != 0,
                fast: flags & command_flag::FAST_ZERO != 0,
            }),
            command::BLOCK_STATUS if !self.allocation => {
                invalid("no metadata context was selected for this export")
            }
            command::BLOCK_STATUS if !inside || len == 0 => {
                invalid("the range of a block status is empty or ends outside the export")
            }
            command::BLOCK_STATUS => {
                Ok(Command::BlockStatus { len, one: flags & command_flag::REQ_ONE != 0 })
            }
            _ => invalid("this command is not known here"),
        }
    }

    fn finish_payload(&mut self) -> Decoded {
        let Stage::Payload(payload) = std::mem::replace(&mut self.stage, Stage::Header) else {
            unreachable!("called in the payload stage only");
        };
        let Payload { cookie, offset, fua, len, mut parts, open, .. } = payload;
        parts.push(open.freeze());
        Decoded::Request(Request { cookie, offset, fua, command: Command::Write { data: parts, len } })
    }
}

impl Payload {
    /// Copies payload bytes off `input`; true when all are there.
    fn fill(&mut self, input: &mut &[u8], arena: &Arena) -> bool {
        loop {
            let taken = (self.open.len() - self.open_filled).min(input.len());
            self.open[self.open_filled..self.open_filled + taken].copy_from_slice(&input[..taken]);
            self.open_filled += taken;
            *input = &input[taken..];
            if self.open_filled < self.open.len() {
                return false;
            }
            if self.beyond == 0 {
                return true;
            }
            // The next part is taken with its first byte, not before.
            if input.is_empty() {
                return false;
            }
            let next = self.beyond.min(PAYLOAD_PART);
            self.beyond -= next;
            self.open_filled = 0;
            let full = std::mem::replace(&mut self.open, arena.take(next));
            self.parts.push(full.freeze());
        }
    }
}
