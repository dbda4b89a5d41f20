//! Data of the options that have any: pure functions from bytes to values, and the replies' bytes.

use crate::wire::{CONTEXT_ALLOCATION, OPTION_REPLY_MAGIC, Reader, STRING_MAX, Truncated, info};

/// Why option data cannot be used; becomes `ERR_INVALID`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    Truncated,
    TrailingBytes,
    NotUtf8,
    StringTooLong,
}

impl Malformed {
    pub fn message(self) -> &'static str {
        match self {
            Malformed::Truncated => "the option data ends too early",
            Malformed::TrailingBytes => "the option data is longer than the option needs",
            Malformed::NotUtf8 => "a string is not UTF-8 or contains NUL",
            Malformed::StringTooLong => "a string is longer than 4096 bytes",
        }
    }
}

impl From<Truncated> for Malformed {
    fn from(_: Truncated) -> Malformed {
        Malformed::Truncated
    }
}

/// An export name or query.
pub fn string(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.len() > STRING_MAX {
        return Err(Malformed::StringTooLong);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(Malformed::NotUtf8),
    }
}

fn counted_string<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let len = reader.u32()?;
    string(reader.bytes(usize::try_from(len).map_err(|_| Malformed::Truncated)?)?)
}

/// What INFO and GO ask for.
#[derive(Debug, PartialEq, Eq)]
pub struct InfoRequest {
    pub name: String,
    pub wants_name: bool,
    pub wants_block_size: bool,
}

impl InfoRequest {
    pub fn parse(data: &[u8]) -> Result<InfoRequest, Malformed> {
        let mut reader = Reader::new(data);
        let name = counted_string(&mut reader)?.to_owned();
        let mut request = InfoRequest { name, wants_name: false, wants_block_size: false };
        for _ in 0..reader.u16()? {
            match reader.u16()? {
                info::NAME => request.wants_name = true,
                info::BLOCK_SIZE => request.wants_block_size = true,
                _ => {}
            }
        }
        if reader.rest().is_empty() { Ok(request) } else { Err(Malformed::TrailingBytes) }
    }
}

/// What LIST_META_CONTEXT and SET_META_CONTEXT ask for.
#[derive(Debug, PartialEq, Eq)]
pub struct MetaRequest {
    pub name: String,
    /// A query is `base:allocation`.
    pub selects_allocation: bool,
    /// Listing would show `base:allocation`: it is selected, or `base:` is asked for, or there is no query.
    pub lists_allocation: bool,
}

impl MetaRequest {
    pub fn parse(data: &[u8]) -> Result<MetaRequest, Malformed> {
        let mut reader = Reader::new(data);
        let name = counted_string(&mut reader)?.to_owned();
        let queries = reader.u32()?;
        let mut request = MetaRequest { name, selects_allocation: false, lists_allocation: queries == 0 };
        // Each query takes at least its length field, so an absurd count ends with the data.
        for _ in 0..queries {
            // Namespaces that nobody here knows must be ignored, and so are leaf names.
            let query = counted_string(&mut reader)?;
            request.selects_allocation |= query == CONTEXT_ALLOCATION;
            request.lists_allocation |= query == CONTEXT_ALLOCATION || query == "base:";
        }
        if reader.rest().is_empty() { Ok(request) } else { Err(Malformed::TrailingBytes) }
    }
}

/// Appends one reply to `option`.
pub fn push_reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(u32::try_from(len).expect("replies are far below 4 GiB").to_be_bytes());
    parts.iter().for_each(|part| out.extend(*part));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
    }

    #[test]
    fn info_requests() {
        let data = [counted("pool/a"), vec![0, 3, 0, 1, 0, 3, 0, 9]].concat();
        let expected = InfoRequest { name: "pool/a".into(), wants_name: true, wants_block_size: true };
        assert_eq!(InfoRequest::parse(&data), Ok(expected));
        for end in 0..data.len() {
            assert_eq!(InfoRequest::parse(&data[..end]), Err(Malformed::Truncated), "cut at {end}");
        }
        assert_eq!(InfoRequest::parse(&[&data[..], &[0]].concat()), Err(Malformed::TrailingBytes));
        assert_eq!(InfoRequest::parse(&[0xff; 6]), Err(Malformed::Truncated));
        assert_eq!(InfoRequest::parse(&[0, 0, 0, 1, 0xff, 0, 0]), Err(Malformed::NotUtf8));
        let long = [counted(&"x".repeat(STRING_MAX + 1)), vec![0, 0]].concat();
        assert_eq!(InfoRequest::parse(&long), Err(Malformed::StringTooLong));
    }

    #[test]
    fn context_queries() {
        let parse = |queries: &[&str]| {
            let mut data = counted("v");
            data.extend((queries.len() as u32).to_be_bytes());
            queries.iter().for_each(|query| data.extend(counted(query)));
            let request = MetaRequest::parse(&data).expect("well formed");
            (request.selects_allocation, request.lists_allocation)
        };
        assert_eq!(parse(&[]), (false, true));
        assert_eq!(parse(&["base:"]), (false, true));
        assert_eq!(parse(&["x-y:z", "base:allocation"]), (true, true));
        assert_eq!(parse(&["base:other", "qemu:dirty-bitmap:b"]), (false, false));
        let absurd = [counted("v"), u32::MAX.to_be_bytes().to_vec()].concat();
        assert_eq!(MetaRequest::parse(&absurd), Err(Malformed::Truncated));
    }
}
