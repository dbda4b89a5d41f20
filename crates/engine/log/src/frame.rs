//! One frame: what a group commit makes durable together.
//!
//! ```text
//! 0   magic "FBLOGFRM" 8   8 checksum 16   24 pool id 16   40 shard 2   42 version 2   44 records 4
//! 48  sequence 8   56 position 8   64 incarnation 8   72 durable sequence 8
//! 80  length 4 (with padding)   84 payload length 4   88 checksum of the frame before 16
//! 104 ownership epoch 8   112 node 2   114 zero 2   116 checksum of the header from 24 on 4
//! 120 records …  zero padding to a multiple of 4 KiB
//! ```
//!
//! The position counts bytes since the pool was made; its place in the ring is the remainder. `durable` is the
//! greatest sequence known to be on stable storage when the frame was submitted: after a crash only frames
//! beyond the greatest `durable` seen can be unacknowledged. The incarnation grows with every import: frames
//! after the point at which an import sealed the log count only if they are of that import or later. A frame of an owner that came after
//! the reader is none that the reader may go on from.

use forebay_base::codec::{Reader, Writer};
use forebay_base::{Checksum, Id};
use forebay_device::{Owner, UNIT};

/// Bytes before the first record.
pub const FRAME_HEADER: usize = 120;
const MAGIC: &[u8; 8] = b"FBLOGFRM";
const VERSION: u16 = 1;
const CHECKSUM_AT: usize = 8;
const HEADER_SUM_AT: usize = 116;
/// No frame is longer: 32 MiB of data, the pointers to it, and room to spare.
const FRAME_MAX: u32 = 40 << 20;

/// Whose log it is, and who writes or reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameContext {
    pub pool: Id,
    pub shard: u16,
    pub owner: Owner,
}

/// Where the next frame of a log goes and what it must link to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    pub position: u64,
    pub sequence: u64,
    pub previous: Checksum,
}

/// A decoded frame header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    pub sequence: u64,
    pub position: u64,
    pub incarnation: u64,
    pub durable: u64,
    /// Bytes in the ring, padding included.
    pub length: u32,
    pub payload: u32,
    pub records: u32,
    pub sum: Checksum,
}

impl Frame {
    /// Bytes in the ring of a frame with `payload` bytes of records.
    pub fn length_for(payload: usize) -> usize {
        (FRAME_HEADER + payload).next_multiple_of(UNIT as usize)
    }

    /// What follows this frame.
    pub fn next(&self) -> Chain {
        Chain {
            position: self.position + u64::from(self.length),
            sequence: self.sequence + 1,
            previous: self.sum,
        }
    }

    /// Length in the ring of the frame that starts here, as its header claims; nothing when it is not the frame `chain` expects.
    /// The contents are not verified yet.
    pub fn peek(bytes: &[u8], context: FrameContext, chain: &Chain) -> Option<u32> {
        Frame::header(bytes, context, Some(chain)).map(|frame| frame.length)
    }

    /// The frame at the start of `bytes` by itself, if its header is right; its records are not verified. What the header says was durable was durable
    /// before the frame was written.
    pub fn alone(bytes: &[u8], context: FrameContext) -> Option<Frame> {
        let frame = Frame::header(bytes, context, None)?;
        let sum = u32::from_le_bytes(bytes[HEADER_SUM_AT..FRAME_HEADER].try_into().expect("4 bytes"));
        (sum == header_sum(bytes)).then_some(frame)
    }

    /// Whether `bytes` begin with all of this frame.
    fn is_whole(&self, bytes: &[u8]) -> bool {
        let content = bytes.get(..FRAME_HEADER + self.payload as usize);
        content.is_some_and(|content| Checksum::of_with_hole(content, CHECKSUM_AT) == self.sum)
    }

    fn header(bytes: &[u8], context: FrameContext, chain: Option<&Chain>) -> Option<Frame> {
        if bytes.len() < FRAME_HEADER || &bytes[..8] != MAGIC {
            return None;
        }
        let mut r = Reader::new(&bytes[8..FRAME_HEADER]);
        let sum = Checksum(r.u128().ok()?);
        let (pool, shard, version, records) =
            (Id(r.u128().ok()?), r.u16().ok()?, r.u16().ok()?, r.u32().ok()?);
        let (sequence, position) = (r.u64().ok()?, r.u64().ok()?);
        let (incarnation, durable) = (r.u64().ok()?, r.u64().ok()?);
        let (length, payload, previous) = (r.u32().ok()?, r.u32().ok()?, Checksum(r.u128().ok()?));
        let epoch = r.u64().ok()?;
        let ours = pool == context.pool && shard == context.shard && version == VERSION;
        let ours = ours && epoch <= context.owner.epoch;
        let follows = chain.is_none_or(|chain| {
            sequence == chain.sequence && position == chain.position && previous == chain.previous
        });
        let sane = payload < FRAME_MAX && Frame::length_for(payload as usize) == length as usize;
        (ours && follows && sane).then_some(Frame {
            sequence,
            position,
            incarnation,
            durable,
            length,
            payload,
            records,
            sum,
        })
    }

    /// The frame at the start of `bytes` and its records, when it is whole and the one that `chain` expects.
    pub fn decode<'a>(bytes: &'a [u8], context: FrameContext, chain: &Chain) -> Option<(Frame, &'a [u8])> {
        let frame = Frame::header(bytes, context, Some(chain))?;
        frame.is_whole(bytes).then(|| (frame, &bytes[FRAME_HEADER..FRAME_HEADER + frame.payload as usize]))
    }
}

/// Of the header behind the checksum of the whole frame.
fn header_sum(bytes: &[u8]) -> u32 {
    Checksum::of(&bytes[CHECKSUM_AT + 16..HEADER_SUM_AT]).0 as u32
}

/// Completes a frame whose records already stand in `bytes[FRAME_HEADER..FRAME_HEADER + payload]`; `bytes` has the length
/// that [`Frame::length_for`] gives.
pub fn encode_frame(
    bytes: &mut [u8],
    context: FrameContext,
    chain: &Chain,
    incarnation: u64,
    durable: u64,
    records: u32,
    payload: usize,
) -> Frame {
    assert_eq!(bytes.len(), Frame::length_for(payload), "the buffer is the frame");
    let length = bytes.len() as u32;
    let mut w = Writer::new(bytes);
    w.bytes(MAGIC).zeros(16).u128(context.pool.0).u16(context.shard).u16(VERSION).u32(records);
    w.u64(chain.sequence).u64(chain.position).u64(incarnation).u64(durable);
    w.u32(length).u32(payload as u32).u128(chain.previous.0);
    w.u64(context.owner.epoch).u16(context.owner.node).zeros(6);
    assert_eq!(w.position(), FRAME_HEADER);
    let of_header = header_sum(bytes);
    bytes[HEADER_SUM_AT..FRAME_HEADER].copy_from_slice(&of_header.to_le_bytes());
    bytes[FRAME_HEADER + payload..].fill(0);
    let sum = Checksum::of(&bytes[..FRAME_HEADER + payload]);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 16].copy_from_slice(&sum.0.to_le_bytes());
    let (sequence, position, payload) = (chain.sequence, chain.position, payload as u32);
    Frame { sequence, position, incarnation, durable, length, payload, records, sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: FrameContext = FrameContext { pool: Id(3), shard: 1, owner: Owner { epoch: 5, node: 1 } };

    fn frame(chain: &Chain, fill: u8) -> (Vec<u8>, Frame) {
        let mut bytes = vec![fill; Frame::length_for(5000)];
        let frame = encode_frame(&mut bytes, CONTEXT, chain, 7, 0, 1, 5000);
        (bytes, frame)
    }

    #[test]
    fn only_the_continuation_is_accepted() {
        let start = Chain { position: 4096, sequence: 9, previous: Checksum(5) };
        let (bytes, first) = frame(&start, 1);
        assert_eq!(bytes.len(), 8192);
        assert_eq!(
            Frame::decode(&bytes, CONTEXT, &start).map(|(f, p)| (f, p.to_vec())),
            Some((first, vec![1; 5000]))
        );
        let wrong = [
            Chain { position: 0, ..start },
            Chain { sequence: 8, ..start },
            Chain { previous: Checksum(6), ..start },
        ];
        assert!(wrong.iter().all(|chain| Frame::decode(&bytes, CONTEXT, chain).is_none()));
        assert!(Frame::decode(&bytes, FrameContext { shard: 2, ..CONTEXT }, &start).is_none());
        let of = |epoch| FrameContext { owner: Owner { epoch, node: 0 }, ..CONTEXT };
        assert!(Frame::decode(&bytes, of(4), &start).is_none(), "of an owner after the reader");
        assert!(Frame::decode(&bytes, of(6), &start).is_some());
        // A stale successor of another frame in the same place does not link.
        let (_, other) = frame(&start, 2);
        let (stale, _) = frame(&other.next(), 3);
        assert!(Frame::decode(&stale, CONTEXT, &first.next()).is_none());
        assert!(Frame::decode(&stale, CONTEXT, &other.next()).is_some());
    }

    #[test]
    fn a_header_counts_without_the_records_and_not_when_it_is_wrong() {
        let (mut bytes, frame) = frame(&Chain::default(), 1);
        bytes[FRAME_HEADER..].fill(0);
        assert_eq!(Frame::alone(&bytes, CONTEXT), Some(frame));
        // Sequence, position, incarnation, durable, owner, its own checksum.
        for at in [48, 56, 64, 72, 104, 112, 116] {
            bytes[at] ^= 4;
            assert_eq!(Frame::alone(&bytes, CONTEXT), None, "byte {at}");
            bytes[at] ^= 4;
        }
    }

    #[test]
    fn each_torn_cut_is_seen() {
        let start = Chain::default();
        let (bytes, _) = frame(&start, 1);
        for cut in (512..5104).step_by(512) {
            let torn: Vec<u8> = bytes[..cut].iter().copied().chain(vec![0; bytes.len() - cut]).collect();
            assert!(Frame::decode(&torn, CONTEXT, &start).is_none(), "cut at {cut}");
        }
    }
}
