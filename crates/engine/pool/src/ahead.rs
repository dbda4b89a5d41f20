//! Reading ahead: who reads a volume in sequence finds what comes next in memory, and a disk that turns reads much at a time of each stream, whatever
//! others want of it in between.
//!
//! A stream is recognised by where its requests begin: near to where one before ended, a few times in a row, and leaving out little. So much is read ahead as it has
//! read so far, up to [`WINDOW_BYTES`]; in pieces, each with a turn of the volume's. What was read waits by its address and checksum, so it is never old, until it is
//! asked for or newer pieces need the memory. Whoever asks for what is just being read, and is nowhere else in memory, waits for that.

use crate::dataset::Dataset;
use crate::read::Reader;
use crate::shard::Shard;
use crate::signal::Turnstile;
use forebay_base::{Nanos, NumberHasher};
use forebay_runtime::Buf;
use forebay_space::Ptr;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::rc::Rc;

/// As much is read ahead of a stream at most.
const WINDOW_BYTES: u64 = 4 << 20;
/// In pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;
/// Of a shard's memory an eighth holds what was read ahead, but no more than this.
const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// A stream has asked for so much, in so many requests.
const STREAM_BYTES: u64 = 64 << 10;
const STREAM_REQUESTS: u32 = 3;
/// How far from where the last one ended a request may begin: several at a time come in any order.
const NEAR_BYTES: u64 = 256 << 10;
/// Places in a volume where the next request of a stream may be.
const STREAMS_MAX: usize = 32;
/// What nobody has asked for after this long gives way.
const UNWANTED_NS: u64 = 1_000_000_000;
/// Places that streams may hold of those; the others are for new ones.
const STREAMS_ALIVE_MAX: usize = 24;
/// Requests of others after which a stream is a place like any other.
const STREAM_AGE: u64 = 4096;

/// Where clients of a volume may be reading in sequence.
pub(crate) struct Streams {
    block_bytes: u64,
    known: RefCell<Known>,
    /// Blocks that are being read ahead.
    reading: RefCell<Vec<Range<u64>>>,
    read: Turnstile,
}

#[derive(Default)]
struct Known {
    streams: Vec<Stream>,
    /// Where each is, in units of [`NEAR_BYTES`] (modulo 2^32).
    areas: [u32; STREAMS_MAX],
    /// Their places, in the order in which they were there last.
    order: Vec<usize>,
    requests: u64,
}

struct Stream {
    /// The block after the last that was asked for.
    next: u64,
    /// The block that it began with.
    begun: u64,
    /// Blocks and requests of it so far, and the volume's requests when it was there last.
    blocks: u64,
    requests: u32,
    seen: u64,
    /// What is read ahead ends here.
    ahead: u64,
}

impl Streams {
    pub fn new(block_bytes: usize) -> Streams {
        let (known, reading, read) = Default::default();
        Streams { block_bytes: block_bytes as u64, known, reading, read }
    }

    /// Takes note of a read; gives what should be read ahead of it, and the stream's number.
    fn note(&self, first: u64, end: u64, window: u64) -> Option<(usize, Range<u64>)> {
        let mut known = self.known.borrow_mut();
        let Known { streams, areas, order, requests } = &mut *known;
        *requests += 1;
        let now = *requests;
        let fresh =
            || Stream { next: end, begun: first, blocks: end - first, requests: 1, seen: now, ahead: end };
        let near = (NEAR_BYTES / self.block_bytes).max(end - first);
        let near_to = |stream: &Stream| stream.next.abs_diff(first) <= near;
        let found = self.may_be_near(areas, first, near).then(|| streams.iter().position(near_to)).flatten();
        let Some(number) = found else {
            let number = if streams.len() < STREAMS_MAX {
                order.push(streams.len());
                streams.push(fresh());
                streams.len() - 1
            } else {
                let least = self.least_wanted(streams, order, now);
                order[least..].rotate_left(1);
                let number = order[STREAMS_MAX - 1];
                streams[number] = fresh();
                number
            };
            areas[number] = self.area(end);
            return None;
        };
        let at = order.iter().position(|place| *place == number).expect("each place is there once");
        order[at..].rotate_left(1);
        let stream = &mut streams[number];
        stream.blocks += end.saturating_sub(stream.next).min(end - first);
        // Who reads the same again, or backwards, is none.
        stream.requests = stream.requests.saturating_add(u32::from(end > stream.next));
        stream.seen = now;
        stream.next = stream.next.max(end);
        if stream.blocks * 2 < stream.next - stream.begun {
            // It leaves out more than it reads.
            *stream = fresh();
        }
        areas[number] = self.area(stream.next);
        if !self.is_stream(stream) {
            return None;
        }
        let window = stream.blocks.min(window / self.block_bytes);
        let (from, to) = (stream.ahead.max(stream.next), stream.next + window);
        if to.saturating_sub(from) < window.div_ceil(2) {
            return None;
        }
        stream.ahead = to;
        Some((number, from..to))
    }

    fn area(&self, block: u64) -> u32 {
        (block * self.block_bytes / NEAR_BYTES) as u32
    }

    /// Whether a stream may be so near to a block: what is read at random is near to none, and few instructions say so.
    fn may_be_near(&self, areas: &[u32; STREAMS_MAX], block: u64, near: u64) -> bool {
        let before = self.area(block).wrapping_sub(1);
        let is_near = |area: &u32| area.wrapping_sub(before) <= 2;
        near * self.block_bytes > NEAR_BYTES || areas.iter().fold(false, |any, area| any | is_near(area))
    }

    /// Which of the places in their order makes room for a new one: the oldest, but no stream while there are not too many of them.
    fn least_wanted(&self, streams: &[Stream], order: &[usize], now: u64) -> usize {
        let is_alive = |place: &&usize| {
            let stream = &streams[**place];
            self.is_stream(stream) && stream.seen + STREAM_AGE > now
        };
        match order.iter().position(|place| !is_alive(&place)) {
            Some(0) => 0,
            _ if order.iter().filter(is_alive).count() > STREAMS_ALIVE_MAX => 0,
            other => other.unwrap_or(0),
        }
    }

    /// What is read ahead of a stream ends before this block: there was no room.
    fn stop(&self, number: usize, block: u64) {
        self.known.borrow_mut().streams[number].ahead = block;
    }

    fn is_stream(&self, stream: &Stream) -> bool {
        stream.requests >= STREAM_REQUESTS && stream.blocks * self.block_bytes >= STREAM_BYTES
    }

    fn is_being_read(&self, blocks: &Range<u64>) -> bool {
        self.reading.borrow().iter().any(|piece| piece.start < blocks.end && blocks.start < piece.end)
    }
}

/// A piece that is being read ahead, until it is dropped.
struct Piece {
    shard: Rc<Shard>,
    dataset: Rc<Dataset>,
    blocks: Range<u64>,
    bytes: u64,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.shard.ahead.borrow_mut().coming -= self.bytes;
        let streams = &self.dataset.streams;
        let mut reading = streams.reading.borrow_mut();
        let mine = reading.iter().position(|piece| *piece == self.blocks).expect("there until it is over");
        reading.swap_remove(mine);
        drop(reading);
        streams.read.changed();
    }
}

impl Shard {
    /// Before a client reads these blocks: has what comes next read, if they belong to a stream.
    pub fn read_ahead(self: &Rc<Self>, dataset: &Rc<Dataset>, first: u64, last: u64) {
        let streams = &dataset.streams;
        let window = self.ahead.borrow().limit.min(2 * WINDOW_BYTES) / 2;
        let Some((number, mut next)) = streams.note(first, last + 1, window) else { return };
        next.end = next.end.min(dataset.record.borrow().blocks());
        while !next.is_empty() {
            let rest = next.end.min(next.start + PIECE_BYTES / streams.block_bytes);
            let blocks = std::mem::replace(&mut next.start, rest)..rest;
            let bytes = (blocks.end - blocks.start) * streams.block_bytes;
            if !self.ahead.borrow_mut().has_room(bytes, self.rt.now()) {
                return streams.stop(number, blocks.start);
            }
            streams.reading.borrow_mut().push(blocks.clone());
            let piece = Piece { shard: self.clone(), dataset: dataset.clone(), blocks, bytes };
            drop(self.rt.spawn(async move {
                let Piece { shard, dataset, blocks, .. } = &piece;
                if let Some(_active) = dataset.begin() {
                    // Whoever asks for what could not be read is told.
                    drop(shard.read_blocks(dataset, blocks.start, blocks.end - 1, Reader::Ahead).await);
                }
            }));
        }
    }

    /// Waits while any of these blocks is being read ahead for the client that asks for them: whether it had to.
    pub async fn is_coming(&self, dataset: &Dataset, blocks: Range<u64>, reader: Reader) -> bool {
        let streams = &dataset.streams;
        let comes = matches!(reader, Reader::Consumer(_)) && streams.is_being_read(&blocks);
        if comes {
            streams.read.until(|| !streams.is_being_read(&blocks)).await;
        }
        comes
    }
}

/// Blocks that were read ahead, by address, with their checksums and the run that they were read in.
pub(crate) struct Ahead {
    blocks: HashMap<u64, (u128, Buf, u64), BuildHasherDefault<NumberHasher>>,
    runs: BTreeMap<u64, Run>,
    next: u64,
    /// Bytes that the runs hold, and that are being read.
    bytes: u64,
    coming: u64,
    limit: u64,
}

/// Blocks that lie in one buffer, which is free when none of them is left.
struct Run {
    addrs: Vec<u64>,
    left: usize,
    bytes: u64,
    at: Nanos,
}

impl Ahead {
    /// Bytes of a shard's memory for what is read ahead.
    pub fn bytes_of(memory: u64) -> u64 {
        (memory / 8).min(MEMORY_BYTES_MAX)
    }

    /// For so many bytes.
    pub fn new(limit: u64) -> Ahead {
        Ahead { blocks: HashMap::default(), runs: BTreeMap::new(), next: 0, bytes: 0, coming: 0, limit }
    }

    /// Whether so many bytes more may be read ahead: then they are coming. The oldest give way that nobody has asked for.
    fn has_room(&mut self, bytes: u64, now: Nanos) -> bool {
        while self.bytes + self.coming + bytes > self.limit
            && let Some(oldest) = self.runs.first_entry()
            && now.since(oldest.get().at) > UNWANTED_NS
        {
            let addrs = oldest.get().addrs.clone();
            let number = *oldest.key();
            let is_of = |addr: &&u64| self.blocks.get(addr).is_some_and(|(.., run)| *run == number);
            let left: Vec<u64> = addrs.iter().filter(is_of).copied().collect();
            left.into_iter().for_each(|addr| self.remove(addr));
        }
        let fits = self.bytes + self.coming + bytes <= self.limit;
        self.coming += if fits { bytes } else { 0 };
        fits
    }

    /// Keeps the blocks of a run, whose contents follow each other, that are not in memory elsewhere.
    pub fn keep(&mut self, run: &[Ptr], data: Buf, now: Nanos, is_wanted: impl Fn(&Ptr) -> bool) {
        let (number, len) = (self.next, data.len() / run.len());
        let wanted: Vec<(usize, &Ptr)> = run.iter().enumerate().filter(|(_, ptr)| is_wanted(ptr)).collect();
        if wanted.is_empty() {
            return;
        }
        self.next += 1;
        self.bytes += data.footprint() as u64;
        let addrs = wanted.iter().map(|(_, ptr)| ptr.addr().0).collect();
        let kept = Run { addrs, left: wanted.len(), bytes: data.footprint() as u64, at: now };
        self.runs.insert(number, kept);
        for (nth, ptr) in wanted {
            self.remove(ptr.addr().0);
            self.blocks.insert(ptr.addr().0, (ptr.sum.0, data.slice(nth * len, len), number));
        }
    }

    pub fn get(&self, addr: u64) -> Option<(u128, &Buf)> {
        self.blocks.get(&addr).map(|(sum, data, _)| (*sum, data))
    }

    pub fn remove(&mut self, addr: u64) {
        let Some((.., number)) = self.blocks.remove(&addr) else { return };
        let run = self.runs.get_mut(&number).expect("its blocks are in a run");
        run.left -= 1;
        if run.left == 0 {
            self.bytes -= run.bytes;
            self.runs.remove(&number);
        }
    }
}
