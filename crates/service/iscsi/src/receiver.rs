//! Cuts the byte stream into PDUs without collecting them.
//!
//! [`Receiver::next`] is called with what one receive brought until that is used up, and gives pieces: a
//! header, then its data as slices of the receive buffer, then the end. Whoever asked copies the slices to where
//! they belong, once; the receiver itself keeps no more than a header (at most 1072 bytes), so memory follows
//! bytes received, never bytes announced. Padding and digests are dealt with in here.
//!
//! A wrong header digest, or a data segment longer than was declared, leaves nothing to trust the next
//! boundary by: a [`Violation`]. A wrong data digest is told at the end of its PDU, for the RFC wants it
//! answered.

use crate::pdu::{AHS_MAX, BHS_LEN, Bhs};
use crate::wire::padding;
use std::fmt;

const DIGEST_LEN: usize = 4;

/// Why a connection is closed without asking the peer: what it sent cannot be answered, or not be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A data segment longer than this side had declared that it takes.
    SegmentTooLong {
        len: u32,
        max: u32,
    },
    HeaderDigest,
    DataDigest,
    /// More or longer text than any negotiation needs.
    TextTooLong,
    /// A PDU that is no login request, during login.
    NotLogin(u8),
    /// More login requests than any negotiation needs.
    LoginTooLong,
    /// More data in PDUs that come before their turn than is kept.
    HeldTooMuch,
    /// From a target: what no target sends, or not to this request.
    Unexpected(u8),
    /// A login that was not carried to its end as the stages prescribe, or was refused; the peer was told why.
    LoginFailed(crate::wire::LoginStatus),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Violation::SegmentTooLong { len, max } => {
                write!(f, "it sent a data segment of {len} bytes, and at most {max} are allowed")
            }
            Violation::HeaderDigest => f.write_str("a header digest was wrong: the network damages data"),
            Violation::DataDigest => f.write_str("a data digest was wrong: the network damages data"),
            Violation::TextTooLong => f.write_str("it sent too much negotiation text"),
            Violation::NotLogin(opcode) => write!(f, "it sent PDU {opcode:#04x} before logging in"),
            Violation::LoginTooLong => f.write_str("its login took too many requests"),
            Violation::HeldTooMuch => f.write_str("it sent too much data ahead of a missing command"),
            Violation::Unexpected(opcode) => write!(f, "it sent PDU {opcode:#04x}, which was not expected"),
            Violation::LoginFailed(status) => {
                write!(f, "its login was refused with status {:#06x} ({status:?})", status as u16)
            }
        }
    }
}

/// Part of a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// A new PDU begins; its additional headers are in [`Receiver::ahs`].
    Header(Bhs),
    /// The next bytes of its data.
    Data(&'a [u8]),
    /// It is complete; whether its data passed their digest.
    End { intact: bool },
}

/// The receiving side of a connection.
pub struct Receiver {
    header_digest: bool,
    data_digest: bool,
    segment_max: u32,
    stage: Stage,
    header: [u8; BHS_LEN + AHS_MAX + DIGEST_LEN],
    have: usize,
}

#[derive(Clone, Copy)]
enum Stage {
    Header,
    /// Bytes of data, then of padding and digest, that are still to come.
    Data {
        data: usize,
        trailer: usize,
        crc: u32,
    },
    Trailer {
        left: usize,
        len: usize,
        crc: u32,
        bytes: [u8; 3 + DIGEST_LEN],
    },
}

impl Receiver {
    /// Data segments of up to `segment_max` bytes are taken.
    pub fn new(header_digest: bool, data_digest: bool, segment_max: u32) -> Receiver {
        Receiver {
            header_digest,
            data_digest,
            segment_max,
            stage: Stage::Header,
            header: [0; BHS_LEN + AHS_MAX + DIGEST_LEN],
            have: 0,
        }
    }

    /// From the next PDU on, data segments of up to this many bytes are taken.
    pub fn set_segment_max(&mut self, bytes: u32) {
        self.segment_max = bytes;
    }

    /// Whether a PDU has begun and is not complete.
    pub fn is_within_pdu(&self) -> bool {
        self.have > 0 || !matches!(self.stage, Stage::Header)
    }

    /// Additional headers of the PDU whose header came last.
    pub fn ahs(&self) -> &[u8] {
        &self.header[BHS_LEN..][..usize::from(self.header[4]) * 4]
    }

    /// The next piece; `None` when `input` is used up.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Violation> {
        match self.stage {
            Stage::Header => {
                if self.have < BHS_LEN && !self.fill(input, BHS_LEN) {
                    return Ok(None);
                }
                let bhs = Bhs(*self.header.first_chunk().expect("a header has 48 bytes"));
                let covered = BHS_LEN + bhs.ahs_len();
                let whole = covered + if self.header_digest { DIGEST_LEN } else { 0 };
                if !self.fill(input, whole) {
                    return Ok(None);
                }
                self.have = 0;
                let (header, digest) = self.header[..whole].split_at(covered);
                if self.header_digest && crc32c::crc32c(header).to_le_bytes() != digest {
                    return Err(Violation::HeaderDigest);
                }
                let len = bhs.data_len();
                if len > self.segment_max {
                    return Err(Violation::SegmentTooLong { len, max: self.segment_max });
                }
                let digest = if self.data_digest && len > 0 { DIGEST_LEN } else { 0 };
                let trailer = padding(len as usize) + digest;
                self.stage = Stage::Data { data: len as usize, trailer, crc: 0 };
                Ok(Some(Piece::Header(bhs)))
            }
            Stage::Data { data: 0, trailer: 0, .. } => {
                self.stage = Stage::Header;
                Ok(Some(Piece::End { intact: true }))
            }
            Stage::Data { data: 0, trailer, crc } => {
                self.stage = Stage::Trailer { left: trailer, len: trailer, crc, bytes: [0; 7] };
                self.next(input)
            }
            Stage::Data { data, trailer, crc } => {
                if input.is_empty() {
                    return Ok(None);
                }
                let (bytes, rest) = input.split_at(data.min(input.len()));
                *input = rest;
                let crc = if self.data_digest { crc32c::crc32c_append(crc, bytes) } else { 0 };
                self.stage = Stage::Data { data: data - bytes.len(), trailer, crc };
                Ok(Some(Piece::Data(bytes)))
            }
            Stage::Trailer { left, len, crc, mut bytes } => {
                let taken = left.min(input.len());
                let (part, rest) = input.split_at(taken);
                *input = rest;
                bytes[len - left..len - left + taken].copy_from_slice(part);
                if taken < left {
                    self.stage = Stage::Trailer { left: left - taken, len, crc, bytes };
                    return Ok(None);
                }
                self.stage = Stage::Header;
                if !self.data_digest {
                    return Ok(Some(Piece::End { intact: true }));
                }
                let (pad, digest) = bytes[..len].split_at(len - DIGEST_LEN);
                let intact = crc32c::crc32c_append(crc, pad).to_le_bytes() == digest;
                Ok(Some(Piece::End { intact }))
            }
        }
    }

    /// Completes the header to `len` bytes, if the input reaches that far.
    fn fill(&mut self, input: &mut &[u8], len: usize) -> bool {
        let (taken, rest) = input.split_at((len - self.have).min(input.len()));
        self.header[self.have..self.have + taken.len()].copy_from_slice(taken);
        self.have += taken.len();
        *input = rest;
        self.have == len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Output;
    use crate::pdu::NopOut;
    use forebay_runtime::Arena;

    /// What a stream becomes, cut into pieces of `cut` bytes.
    fn receive(
        receiver: &mut Receiver,
        stream: &[u8],
        cut: usize,
    ) -> Result<Vec<(Bhs, Vec<u8>, bool)>, Violation> {
        let mut pdus: Vec<(Bhs, Vec<u8>, bool)> = Vec::new();
        for mut input in stream.chunks(cut) {
            while let Some(piece) = receiver.next(&mut input)? {
                match piece {
                    Piece::Header(bhs) => pdus.push((bhs, Vec::new(), false)),
                    Piece::Data(bytes) => pdus.last_mut().unwrap().1.extend(bytes),
                    Piece::End { intact } => pdus.last_mut().unwrap().2 = intact,
                }
            }
            assert!(input.is_empty(), "all input is used up");
        }
        Ok(pdus)
    }

    #[test]
    fn pdus_come_out_as_they_went_in_however_they_are_cut() {
        for digests in [(false, false), (true, false), (false, true), (true, true)] {
            let (arena, mut output) = (Arena::new(), Output::new(digests.0, digests.1));
            let mut expected = Vec::new();
            for len in [0usize, 1, 2, 3, 4, 5, 48, 1000] {
                let data: Vec<u8> = (0..len).map(|i| (i * 31) as u8).collect();
                let bhs = NopOut { itt: len as u32, ..NopOut::default() }.encode();
                output.bytes(bhs, &data);
                let mut sent = bhs;
                sent.set_data_len(len as u32);
                expected.push((sent, data, true));
            }
            let stream: Vec<u8> = output.take_batch(&arena).iter().flat_map(|part| part.to_vec()).collect();
            for cut in [1, 2, 3, 5, 47, 48, 49, 52, 4096] {
                let mut receiver = Receiver::new(digests.0, digests.1, 1000);
                assert_eq!(receive(&mut receiver, &stream, cut).unwrap(), expected, "{digests:?}, cut {cut}");
            }
            // One bit anywhere is found by the digest that covers it.
            for at in 0..stream.len() {
                let mut damaged = stream.clone();
                damaged[at] ^= 4;
                let found = receive(&mut Receiver::new(digests.0, digests.1, 1000), &damaged, 4096);
                if digests == (true, true) {
                    let bad = |pdus: &Vec<(Bhs, Vec<u8>, bool)>| pdus.iter().any(|pdu| !pdu.2);
                    assert!(found.as_ref().map_or_else(|v| *v == Violation::HeaderDigest, bad), "byte {at}");
                }
            }
        }
    }

    /// RFC 7143, appendix A.4 (RFC 3720, B.4): 32 bytes of zeros, and of ones.
    #[test]
    fn the_digest_is_the_one_of_the_standard() {
        assert_eq!(crc32c::crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c::crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
    }

    #[test]
    fn a_segment_longer_than_declared_is_refused_by_its_header() {
        let mut bhs = NopOut::default().encode();
        bhs.set_data_len(513);
        let found = Receiver::new(false, false, 512).next(&mut &bhs.0[..]);
        assert_eq!(found, Err(Violation::SegmentTooLong { len: 513, max: 512 }));
    }
}
