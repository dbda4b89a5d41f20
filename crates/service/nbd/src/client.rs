//! The client's side, for tests and load: requests to bytes and bytes to replies, nothing about when.
//!
//! It trusts nobody (a server under test may be wrong) but knows only what this server sends: one chunk per
//! structured reply. It is no general client.

use crate::options::push_reply;
use crate::reply::Style;
use crate::wire::{
    OPTION_MAGIC, OPTION_REPLY_MAGIC, REPLY_MAGIC_EXTENDED, REPLY_MAGIC_SIMPLE, REPLY_MAGIC_STRUCTURED,
    REQUEST_MAGIC, REQUEST_MAGIC_EXTENDED, Reader, Truncated, chunk,
};

/// What came is not what this server sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Garbled(pub String);

fn counted(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

/// An option with its data.
pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u32).to_be_bytes();
    [&OPTION_MAGIC.to_be_bytes()[..], &number.to_be_bytes(), &len, data].concat()
}

/// Data of INFO and GO.
pub fn info_data(name: &str, requests: &[u16]) -> Vec<u8> {
    let mut data = counted(name);
    data.extend((requests.len() as u16).to_be_bytes());
    requests.iter().for_each(|request| data.extend(request.to_be_bytes()));
    data
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = counted(name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend(counted(query)));
    data
}

/// One reply to an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionReply {
    pub option: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

impl OptionReply {
    /// Takes a reply off `input`; `None` when it is not all there.
    pub fn take(input: &mut &[u8]) -> Result<Option<OptionReply>, Garbled> {
        let mut reader = Reader::new(input);
        let mut take = || {
            let (magic, option, kind) = (reader.u64()?, reader.u32()?, reader.u32()?);
            let len = reader.u32()? as usize;
            Ok::<_, Truncated>((magic, OptionReply { option, kind, data: reader.bytes(len)?.to_vec() }))
        };
        match take() {
            Ok((OPTION_REPLY_MAGIC, reply)) => {
                *input = reader.rest();
                Ok(Some(reply))
            }
            Ok((magic, _)) => Err(Garbled(format!("an option reply began with {magic:#x}"))),
            Err(Truncated) => Ok(None),
        }
    }

    /// The reply's bytes, as a server sends them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push_reply(&mut out, self.option, self.kind, &[&self.data]);
        out
    }
}

/// The header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    pub flags: u16,
    /// One of [`crate::wire::command`].
    pub kind: u16,
    pub cookie: u64,
    pub offset: u64,
    /// Cut to 32 bits unless extended headers were agreed on.
    pub len: u64,
}

impl RequestHeader {
    pub fn encode(&self, style: Style, out: &mut Vec<u8>) {
        let extended = style == Style::Extended;
        out.extend(if extended { REQUEST_MAGIC_EXTENDED } else { REQUEST_MAGIC }.to_be_bytes());
        out.extend(self.flags.to_be_bytes());
        out.extend(self.kind.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(self.offset.to_be_bytes());
        if extended {
            out.extend(self.len.to_be_bytes());
        } else {
            out.extend((self.len as u32).to_be_bytes());
        }
    }
}

/// One complete reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub cookie: u64,
    pub result: Result<Answer, Failure>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Data(Vec<u8>),
    /// Length in bytes and state flags.
    Extents(Vec<(u64, u64)>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// One of [`crate::wire::ErrorCode`].
    pub code: u32,
    pub message: String,
}

/// Takes a reply off `input`; `None` when it is not all there. `read_len` tells how many bytes a cookie's read asked for (0:
/// it was no read), without which a simple reply cannot be understood.
pub fn take_reply(
    input: &mut &[u8],
    style: Style,
    read_len: impl Fn(u64) -> usize,
) -> Result<Option<Reply>, Garbled> {
    let mut reader = Reader::new(input);
    match parse_reply(&mut reader, style, read_len) {
        Ok(reply) => {
            *input = reader.rest();
            reply.map(Some)
        }
        Err(Truncated) => Ok(None),
    }
}

fn parse_reply(
    reader: &mut Reader,
    style: Style,
    read_len: impl Fn(u64) -> usize,
) -> Result<Result<Reply, Garbled>, Truncated> {
    let magic = reader.u32()?;
    if magic == REPLY_MAGIC_SIMPLE && style != Style::Extended {
        let (code, cookie) = (reader.u32()?, reader.u64()?);
        let len = read_len(cookie);
        let result = match (code, len) {
            (0, 0) => Ok(Answer::Done),
            (0, len) if style == Style::Simple => Ok(Answer::Data(reader.bytes(len)?.to_vec())),
            (0, _) => return Ok(Err(Garbled("a simple reply to a read".into()))),
            (code, _) => Err(Failure { code, message: String::new() }),
        };
        return Ok(Ok(Reply { cookie, result }));
    }
    let expected = if style == Style::Extended { REPLY_MAGIC_EXTENDED } else { REPLY_MAGIC_STRUCTURED };
    if magic != expected || style == Style::Simple {
        return Ok(Err(Garbled(format!("a reply began with {magic:#x}"))));
    }
    let (flags, kind, cookie) = (reader.u16()?, reader.u16()?, reader.u64()?);
    let len = if style == Style::Extended {
        let _offset = reader.u64()?;
        reader.u64()?
    } else {
        u64::from(reader.u32()?)
    };
    let payload = reader.bytes(usize::try_from(len).map_err(|_| Truncated)?)?;
    if flags != chunk::FLAG_DONE {
        return Ok(Err(Garbled(format!("a chunk with flags {flags:#x}"))));
    }
    let mut inner = Reader::new(payload);
    let parsed = parse_chunk(&mut inner, kind);
    Ok(match parsed {
        Ok(Ok(result)) if inner.rest().is_empty() => Ok(Reply { cookie, result }),
        Ok(Ok(_)) | Err(Truncated) => Err(Garbled(format!("a chunk of type {kind} with {len} bytes"))),
        Ok(Err(garbled)) => Err(garbled),
    })
}

type ChunkResult = Result<Answer, Failure>;

fn parse_chunk(reader: &mut Reader, kind: u16) -> Result<Result<ChunkResult, Garbled>, Truncated> {
    Ok(Ok(match kind {
        chunk::NONE => Ok(Answer::Done),
        chunk::OFFSET_DATA => {
            let _offset = reader.u64()?;
            Ok(Answer::Data(reader.bytes(reader.rest().len())?.to_vec()))
        }
        chunk::BLOCK_STATUS => {
            let _context = reader.u32()?;
            let mut extents = Vec::new();
            while !reader.rest().is_empty() {
                extents.push((u64::from(reader.u32()?), u64::from(reader.u32()?)));
            }
            Ok(Answer::Extents(extents))
        }
        chunk::BLOCK_STATUS_EXT => {
            let (_context, count) = (reader.u32()?, reader.u32()?);
            let mut extents = Vec::new();
            for _ in 0..count {
                extents.push((reader.u64()?, reader.u64()?));
            }
            Ok(Answer::Extents(extents))
        }
        chunk::ERROR => {
            let code = reader.u32()?;
            let len = usize::from(reader.u16()?);
            let message = String::from_utf8_lossy(reader.bytes(len)?).into_owned();
            Err(Failure { code, message })
        }
        other => return Ok(Err(Garbled(format!("a chunk of type {other}")))),
    }))
}
