//! Lists of buffers as one run of bytes.

use crate::sense::{Sense, asc};
use crate::step::DataOut;
use forebay_runtime::{Arena, Buf};

pub(crate) fn len(parts: &[Buf]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// The parameter list of `len` bytes that a CDB announced.
pub(crate) fn list(data: &DataOut, len: u32) -> Result<Vec<u8>, Sense> {
    let mut bytes: Vec<u8> = data.parts.iter().flat_map(|part| part.iter().copied()).collect();
    if bytes.len() < len as usize {
        return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH));
    }
    bytes.truncate(len as usize);
    Ok(bytes)
}

/// The first `len` bytes, or as many whole blocks as there are. Moves the buffers as they are when nothing is to be cut.
pub(crate) fn whole_blocks(mut parts: Vec<Buf>, wanted: u64, block_bytes: u32) -> Vec<Buf> {
    let here = len(&parts);
    if here == wanted {
        return parts;
    }
    let mut left = here.min(wanted) / u64::from(block_bytes) * u64::from(block_bytes);
    parts.retain_mut(|part| {
        if left < part.len() as u64 {
            *part = part.slice(0, left as usize);
        }
        left -= part.len() as u64;
        !part.is_empty()
    });
    parts
}

/// All parts in one buffer; without a copy when there is one.
pub(crate) fn gather(arena: &Arena, parts: &[Buf]) -> Buf {
    if let [only] = parts {
        return only.clone();
    }
    let mut buffer = arena.take(len(parts) as usize);
    let mut at = 0;
    for part in parts {
        buffer[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    buffer.freeze()
}

/// `len` bytes of one block after the other; `len` is a multiple of it.
pub(crate) fn repeat(arena: &Arena, block: &[u8], len: usize) -> Buf {
    let mut buffer = arena.take(len);
    buffer.chunks_exact_mut(block.len()).for_each(|chunk| chunk.copy_from_slice(block));
    buffer.freeze()
}

/// Where the bytes of `parts` first differ from `expected`, which is as long.
pub(crate) fn first_difference(parts: &[Buf], mut expected: &[u8]) -> Option<usize> {
    let mut at = 0;
    for part in parts {
        let (here, rest) = expected.split_at(part.len());
        if part[..] != *here {
            let within = part.iter().zip(here).position(|(found, wanted)| found != wanted);
            return Some(at + within.expect("they differ somewhere"));
        }
        (expected, at) = (rest, at + part.len());
    }
    None
}
