//! Replies of the transmission phase, gathered into batches.
//!
//! A write per reply halves what a connection can carry; so replies are collected here and leave together. The
//! headers of a batch are written one behind the other and become one buffer when the batch is taken; data
//! buffers are never copied. Between two batches nothing is allocated that the last one did not need.
//!
//! In structured style successes without data are simple replies, which are shorter and which the
//! specification allows; errors are chunks, because those carry a message.

use crate::wire::{
    CHUNK_LEN_EXTENDED, CHUNK_LEN_STRUCTURED, CONTEXT_ALLOCATION_ID, ErrorCode, REPLY_MAGIC_EXTENDED,
    REPLY_MAGIC_SIMPLE, REPLY_MAGIC_STRUCTURED, STRING_MAX, chunk, state,
};
use forebay_runtime::{Arena, Buf};

/// The form of requests and replies that was agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Style {
    #[default]
    Simple,
    Structured,
    /// Structured, with 64-bit lengths both ways.
    Extended,
}

/// Replies that have not been sent.
pub struct Replies {
    style: Style,
    headers: Vec<u8>,
    parts: Vec<Part>,
}

enum Part {
    /// This many further bytes of `headers`.
    Headers(usize),
    Data(Buf),
}

impl Replies {
    pub fn new(style: Style) -> Replies {
        Replies { style, headers: Vec::new(), parts: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of headers, messages and extents that wait here; data are the caller's to count.
    pub fn header_bytes(&self) -> usize {
        self.headers.len()
    }

    /// All replies so far, as buffers to be sent one behind the other.
    pub fn take_batch(&mut self, arena: &Arena) -> Vec<Buf> {
        let headers = arena.copy(&self.headers).freeze();
        let mut at = 0;
        let buffers = self.parts.drain(..).map(|part| match part {
            Part::Headers(len) => {
                at += len;
                headers.slice(at - len, len)
            }
            Part::Data(data) => data,
        });
        let batch = buffers.collect();
        self.headers.clear();
        batch
    }

    /// Success of a request that returns nothing.
    pub fn done(&mut self, cookie: u64, offset: u64) {
        match self.style {
            Style::Simple | Style::Structured => self.simple(cookie, 0),
            Style::Extended => self.chunk(chunk::NONE, cookie, offset, 0),
        }
    }

    /// The bytes that were read from `offset`.
    pub fn data(&mut self, cookie: u64, offset: u64, data: Vec<Buf>) {
        let len: u64 = data.iter().map(|part| part.len() as u64).sum();
        match self.style {
            Style::Simple => self.simple(cookie, 0),
            // A data chunk has at least one byte.
            _ if len == 0 => self.chunk(chunk::NONE, cookie, offset, 0),
            _ => {
                self.chunk(chunk::OFFSET_DATA, cookie, offset, 8 + len);
                self.push(&offset.to_be_bytes());
            }
        }
        self.parts.extend(data.into_iter().filter(|part| !part.is_empty()).map(Part::Data));
    }

    /// The extents of `base:allocation` from `offset`: length in bytes, and whether it is mapped. At least one.
    pub fn block_status(
        &mut self,
        cookie: u64,
        offset: u64,
        extents: impl ExactSizeIterator<Item = (u64, bool)>,
    ) {
        let flags = |mapped| if mapped { 0 } else { state::HOLE | state::ZERO };
        let count = extents.len();
        assert!(count > 0, "a block status has at least one extent");
        match self.style {
            Style::Simple => unreachable!("block status needs structured replies, which the decoder checks"),
            Style::Structured => {
                self.chunk(chunk::BLOCK_STATUS, cookie, offset, 4 + 8 * count as u64);
                self.push(&CONTEXT_ALLOCATION_ID.to_be_bytes());
                for (len, mapped) in extents {
                    let len = u32::try_from(len).expect("an extent is not longer than the 32-bit request");
                    self.push(&len.to_be_bytes());
                    self.push(&flags(mapped).to_be_bytes());
                }
            }
            Style::Extended => {
                self.chunk(chunk::BLOCK_STATUS_EXT, cookie, offset, 8 + 16 * count as u64);
                self.push(&CONTEXT_ALLOCATION_ID.to_be_bytes());
                self.push(&(count as u32).to_be_bytes());
                for (len, mapped) in extents {
                    self.push(&len.to_be_bytes());
                    self.push(&u64::from(flags(mapped)).to_be_bytes());
                }
            }
        }
    }

    /// Failure, with a message for people where the style has room for one.
    pub fn error(&mut self, cookie: u64, offset: u64, code: ErrorCode, message: &str) {
        if self.style == Style::Simple {
            return self.simple(cookie, code as u32);
        }
        let message = &message.as_bytes()[..message.len().min(STRING_MAX)];
        self.chunk(chunk::ERROR, cookie, offset, 4 + 2 + message.len() as u64);
        self.push(&(code as u32).to_be_bytes());
        self.push(&(message.len() as u16).to_be_bytes());
        self.push(message);
    }

    fn simple(&mut self, cookie: u64, error: u32) {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&REPLY_MAGIC_SIMPLE.to_be_bytes());
        header[4..8].copy_from_slice(&error.to_be_bytes());
        header[8..].copy_from_slice(&cookie.to_be_bytes());
        self.push(&header);
    }

    /// The header of the only chunk of a reply, with `len` bytes of payload to follow.
    fn chunk(&mut self, kind: u16, cookie: u64, offset: u64, len: u64) {
        let mut header = [0; CHUNK_LEN_EXTENDED];
        header[4..6].copy_from_slice(&chunk::FLAG_DONE.to_be_bytes());
        header[6..8].copy_from_slice(&kind.to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        if self.style == Style::Extended {
            header[..4].copy_from_slice(&REPLY_MAGIC_EXTENDED.to_be_bytes());
            header[16..24].copy_from_slice(&offset.to_be_bytes());
            header[24..].copy_from_slice(&len.to_be_bytes());
            self.push(&header);
        } else {
            let len = u32::try_from(len).expect("32-bit requests have 32-bit replies");
            header[..4].copy_from_slice(&REPLY_MAGIC_STRUCTURED.to_be_bytes());
            header[16..20].copy_from_slice(&len.to_be_bytes());
            self.push(&header[..CHUNK_LEN_STRUCTURED]);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.headers.extend_from_slice(bytes);
        match self.parts.last_mut() {
            Some(Part::Headers(len)) => *len += bytes.len(),
            _ => self.parts.push(Part::Headers(bytes.len())),
        }
    }
}
