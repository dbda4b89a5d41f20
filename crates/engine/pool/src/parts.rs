//! Blocks of which only parts are known: what a client wrote of them is durable in the log, and the rest is where the tree says.
//!
//! Who is alone with a small durable write need not wait until the rest of its blocks is read: that is done when they are read, or move to
//! their places. By then the parts may have become a whole block, as with a database's log.
//!
//! Where the rest turns out to be lost, what is known is stored *in part*: a form of block that nobody can read, but that further parts can
//! complete. So what was acknowledged is not given up for what no disk has any more, and nobody is given anything else instead.

use crate::damage::LOOK_AGAIN;
use crate::dataset::{Dataset, Staged};
use crate::destage::BLOCKS_MAX;
use crate::error::IoError;
use crate::pack::Block;
use crate::places::PlacesClaim;
use crate::read::{Reader, Source};
use crate::reserve::Claim;
use crate::shard::Shard;
use crate::wanted::Wanted;
use async_recursion::async_recursion as boxed;
use forebay_base::WallTime;
use forebay_base::codec::{Reader as Decoder, Writer};
use forebay_base::planted::{Bug, active};
use forebay_compress::Compression;
use forebay_runtime::{Buf, BufMut};
use forebay_space::Ptr;
use forebay_tree::Found;
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// The form of a block in a pointer: number of parts, where each begins and how long it is, and their bytes.
pub(crate) const IN_PART: u8 = 5;

/// How long after a look that was too late, or early, the next comes.
const STALE_PAUSE: Duration = Duration::from_millis(1);
/// What has been lost for so long is not waited for.
const LONG_LOST: Duration = Duration::from_secs(60);

/// Which bytes of a block are known: ranges in order that do not touch each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parts(Vec<Range<u32>>);

impl Parts {
    pub fn add(&mut self, mut range: Range<u32>) {
        let first = self.0.partition_point(|known| known.end < range.start);
        let touched = self.0[first..].iter().take_while(|known| known.start <= range.end).count();
        if let [head, ..] = &self.0[first..first + touched] {
            range.start = range.start.min(head.start);
            range.end = range.end.max(self.0[first + touched - 1].end);
        }
        self.0.splice(first..first + touched, [range]);
    }

    /// Whether all that the others are is among these.
    fn cover(&self, others: &Parts) -> bool {
        let within = |other: &Range<u32>| {
            self.0.iter().any(|known| known.start <= other.start && other.end <= known.end)
        };
        others.0.iter().all(within)
    }

    fn is_whole(&self, block_bytes: usize) -> bool {
        matches!(&self.0[..], [known] if known.len() == block_bytes)
    }

    fn copy(&self, from: &[u8], to: &mut [u8]) {
        for range in &self.0 {
            let bytes = range.start as usize..range.end as usize;
            to[bytes.clone()].copy_from_slice(&from[bytes]);
        }
    }
}

/// A block of which parts are known, in the form that it is stored in when the rest is lost. Where all but a few bytes are known, the last part
/// loses as many as it takes to say so; and of parts of a few bytes each, those are lost for which there is no room to say where they are.
fn in_part(data: &Buf, parts: &Parts, mut into: BufMut) -> Block {
    let parts = &parts.0[..parts.0.len().min(into.len() / 16)];
    let mut left = into.len() - 4 - 8 * parts.len();
    let cut = |part: &Range<u32>| {
        let len = part.len().min(left);
        left -= len;
        (part.start, &data[part.start as usize..][..len])
    };
    let parts: Vec<(u32, &[u8])> = parts.iter().map(cut).collect();
    let mut w = Writer::new(&mut into);
    w.u32(parts.len() as u32);
    for (at, bytes) in &parts {
        w.u32(*at).u32(bytes.len() as u32);
    }
    for (_, bytes) in &parts {
        w.bytes(bytes);
    }
    Block::of(data.clone(), IN_PART, into.freeze())
}

/// The parts in a block that is stored in part, put where they belong in `into`.
pub(crate) fn read_parts(stored: &[u8], into: &mut [u8]) -> Option<Parts> {
    let mut r = Decoder::new(stored);
    let count = r.u32().ok()?;
    let mut parts = Parts::default();
    let ranges: Vec<(u32, u32)> = (0..count.min(stored.len() as u32 / 8))
        .map(|_| Some((r.u32().ok()?, r.u32().ok()?)))
        .collect::<Option<_>>()?;
    for (at, len) in ranges {
        let end = at.checked_add(len)?;
        into.get_mut(at as usize..end as usize)?.copy_from_slice(r.bytes(len as usize).ok()?);
        if len > 0 {
            parts.add(at..end);
        }
    }
    Some(parts)
}

impl Shard {
    /// Puts parts of a block that are durable in frame `sequence` of the log, the one that is being applied, where reads find them.
    pub fn stage_parts(
        &self,
        dataset: &Dataset,
        block: u64,
        pieces: &[(u32, Buf)],
        place: Option<Ptr>,
        sequence: u64,
    ) {
        let before = dataset.staged.borrow().get(&block).cloned();
        let is_new = before.as_ref().is_none_or(|before| !before.block.size().is_whole());
        let block_bytes = dataset.block_bytes();
        let mut data = match &before {
            Some(before) => self.rt.arena().copy(&before.block.data),
            None => self.rt.arena().take_zeroed(block_bytes),
        };
        let mut new = Parts::default();
        for (at, piece) in pieces {
            data[*at as usize..][..piece.len()].copy_from_slice(piece);
            new.add(*at..*at + piece.len() as u32);
        }
        let (sequence, parts) = match before {
            None => (sequence, Some(new)),
            Some(Staged { sequence: older, parts: None, .. }) => (older, None),
            Some(Staged { parts: Some(known), .. }) if new.cover(&known) => (sequence, Some(new)),
            // The frames of both are needed.
            Some(Staged { sequence: older, parts: Some(mut known), .. }) => {
                new.0.into_iter().for_each(|range| known.add(range));
                (if active(Bug::PartsForgetOlderFrame) { sequence } else { older }, Some(known))
            }
        };
        let parts = parts.filter(|parts| !parts.is_whole(block_bytes));
        let staged = Staged { sequence, block: Block::whole(data.freeze()), place, parts };
        if is_new && place.is_some() && dataset.compression() != Compression::Off {
            self.to_be_packed.borrow_mut().push((dataset.number(), block));
        }
        self.insert_staged(dataset, block, staged);
        self.destage_work.send();
    }

    /// Reads the rest of a block that is staged in part, so that it is whole. An error when it cannot be had.
    pub async fn complete(&self, dataset: &Dataset, block: u64, reader: Reader) -> Result<(), IoError> {
        self.read_rest(dataset, block, reader).await?.then_some(()).ok_or(IoError::Corrupt)
    }

    /// The same; false when the rest is known to be lost: the block was stored in part. An error when it cannot be had now.
    #[boxed(?Send)]
    async fn read_rest(&self, dataset: &Dataset, block: u64, reader: Reader) -> Result<bool, IoError> {
        let in_part = || dataset.staged.borrow().get(&block).is_some_and(|staged| staged.parts.is_some());
        let (block_bytes, mut doubted, mut is_stale) = (dataset.block_bytes(), None, false);
        while in_part() {
            let Some(found) = self.look(dataset, block, reader).await? else { continue };
            if is_stale {
                // A checkpoint may have the leaf: while it has, what is newest is not known; once it has failed, it never will be.
                if self.is_suspended() {
                    return Err(IoError::Suspended);
                }
                self.rt.sleep(STALE_PAUSE).await;
            }
            is_stale = true;
            let mut whole = self.rt.arena().take_zeroed(block_bytes);
            let (mut known, mut at) = (None, None);
            match found {
                Source::Disk(ptr) if ptr.kind() == IN_PART => {
                    let still = || dataset.tree.borrow().lookup(block) == Found::At(ptr);
                    let Some(stored) = self.read_stored(dataset.id(), block, ptr, still).await? else {
                        continue;
                    };
                    known = Some(read_parts(&stored, &mut whole).unwrap_or_default());
                    at = Some(ptr);
                }
                Source::Disk(ptr) => {
                    at = Some(ptr);
                    match self.source(dataset, &ptr) {
                        Source::Memory(data) | Source::Ahead(_, data) => whole.copy_from_slice(&data),
                        _ => {
                            let _turn = self.turn_to_read(dataset, reader, &[ptr.bytes() as usize]).await;
                            match self.fetch(dataset, block, ptr, &mut doubted).await? {
                                Some((_, data)) => whole.copy_from_slice(&data),
                                None => continue,
                            }
                        }
                    }
                }
                _ => {}
            }
            // What the tree says now may be something newer, with which what was written before is no longer to be mixed.
            let now = dataset.tree.borrow().lookup(block);
            if at.map_or(Found::Hole, Found::At) != now {
                continue;
            }
            let mut staged = dataset.staged.borrow_mut();
            let Some(staged) = staged.get_mut(&block) else { continue };
            let Some(parts) = &mut staged.parts else { continue };
            parts.copy(&staged.block.data, &mut whole);
            staged.block = Block::whole(whole.freeze());
            if let Some(known) = known {
                known.0.into_iter().for_each(|range| parts.add(range));
                if !parts.is_whole(block_bytes) {
                    return Ok(false);
                }
            }
            staged.parts = None;
        }
        Ok(true)
    }

    /// Completes those of the blocks that are staged in part, so many at a time. The blocks are locked until they are stored. What no
    /// disk gives is looked for again after each pause: the error may be one that passes, and the place that has it is freed once
    /// something takes its place.
    pub async fn complete_all(
        &self,
        runs: impl Iterator<Item = (&Rc<Dataset>, Range<u64>)>,
        at_once: usize,
    ) -> Result<(), IoError> {
        let mut left: Vec<(&Rc<Dataset>, u64)> = Vec::new();
        for (dataset, blocks) in runs {
            let in_part = |(block, staged): (&u64, &Staged)| staged.parts.as_ref().map(|_| (dataset, *block));
            left.extend(dataset.staged.borrow().range(blocks).filter_map(in_part));
        }
        let (began, mut pauses) =
            (self.rt.wall(), LOOK_AGAIN.into_iter().filter(|_| !active(Bug::RestLookedForOnce)));
        loop {
            let looks = left.into_iter().map(|(dataset, block)| async move {
                (dataset, block, self.read_rest(dataset, block, Reader::Copier).await)
            });
            let looked: Vec<_> = stream::iter(looks).buffer_unordered(at_once).collect().await;
            left = Vec::new();
            for (dataset, block, completed) in looked {
                match completed {
                    Ok(_) => {}
                    Err(IoError::Corrupt | IoError::Io) if !self.has_ended() => left.push((dataset, block)),
                    Err(error) => return Err(error),
                }
            }
            left.retain(|(dataset, block)| !self.is_long_lost(dataset, *block, began));
            let Some(pause) = pauses.next().filter(|_| !left.is_empty()) else { return Ok(()) };
            self.rt.sleep(pause).await;
        }
    }

    /// Whether the block that the tree has was lost long before, as far as is known, and has not been right since.
    fn is_long_lost(&self, dataset: &Dataset, block: u64, now: WallTime) -> bool {
        let Found::At(ptr) = dataset.tree.borrow().lookup(block) else { return false };
        let found = self.damage.borrow().found(ptr.addr());
        found.is_some_and(|found| now.0 > found.0 + LONG_LOST.as_millis() as u64)
    }

    /// Packs the oldest of the blocks that came in parts, which move next, so far as they can be completed and places are at hand that are as small as they get. Others are
    /// stored as they are.
    pub async fn pack_parts(self: &Rc<Self>) {
        let some = {
            let mut all = self.to_be_packed.borrow_mut();
            let count = all.len().min(BLOCKS_MAX);
            all.drain(..count).collect::<Vec<_>>()
        };
        let packing = some.into_iter().map(|(number, block)| async move {
            let dataset = self.datasets.borrow().get(&number).cloned()?;
            self.complete(&dataset, block, Reader::Copier).await.ok()?;
            let is_it = |staged: &&Staged| staged.parts.is_none() && staged.block.size().is_whole();
            let data = dataset.staged.borrow().get(&block).filter(is_it)?.block.data.clone();
            let packed = self.pack_moved(&dataset, data.clone());
            if packed.size().is_whole() {
                return None;
            }
            let mut places = PlacesClaim::none(self);
            self.at_hand(&Wanted::one(packed.size()), 0, Claim::Moved, &mut places).await.ok()??;
            // A block that is locked may be on its way to the place that it has.
            let _guard = dataset.locks.try_lock(block, block)?;
            if let Some(staged) = dataset.staged.borrow_mut().get_mut(&block)
                && staged.place.is_some()
                && staged.block.data.as_ptr() == data.as_ptr()
            {
                staged.block = packed;
            }
            self.replace_place(&dataset, block, places.take_first(1)[0], |place| place.is_some());
            Some(())
        });
        stream::iter(packing).for_each_concurrent(self.destaged_at_once(), |packing| packing.map(drop)).await;
    }

    /// A staged block as it is to be stored; in part, if it is not complete now.
    pub fn to_store(&self, staged: &Staged) -> Block {
        match &staged.parts {
            None => staged.block.clone(),
            Some(_) if active(Bug::LostRestBecomesZeros) => staged.block.clone(),
            Some(parts) => {
                let into = self.rt.arena().take_zeroed(staged.block.data.len());
                in_part(&staged.block.data, parts, into)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::Random;
    use forebay_runtime::Arena;

    const BLOCK: usize = 4096;

    #[test]
    fn parts_are_as_many_as_their_bytes_say_and_come_back_from_where_they_are_stored() {
        let arena = Arena::new();
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let (mut parts, mut data, mut known) =
                (Parts::default(), arena.take_zeroed(BLOCK), [false; BLOCK]);
            for byte in 1..2 + random.below(12) {
                let from = random.below(BLOCK as u64 - 1) as usize;
                let to = from + 1 + random.below((BLOCK - from) as u64 / 2 + 1) as usize;
                let (from, to) =
                    if random.one_in(4) { (from / 512 * 512, to.div_ceil(512) * 512) } else { (from, to) };
                let to = to.min(BLOCK);
                data[from..to].fill(byte as u8);
                known[from..to].fill(true);
                let before = parts.clone();
                parts.add(from as u32..to as u32);
                assert!(parts.cover(&before), "seed {seed}");
            }
            let told = |parts: &Parts, at: usize| parts.0.iter().any(|range| range.contains(&(at as u32)));
            assert!((0..BLOCK).all(|at| told(&parts, at) == known[at]), "seed {seed}: {parts:?}");
            assert!(parts.0.windows(2).all(|pair| pair[0].end < pair[1].start), "seed {seed}: {parts:?}");
            assert_eq!(parts.is_whole(BLOCK), known == [true; BLOCK]);
            let data = data.freeze();
            let stored = in_part(&data, &parts, arena.take_zeroed(BLOCK)).stored();
            let mut back = arena.take_zeroed(BLOCK);
            let found = read_parts(&stored, &mut back).expect("it was written so");
            let lost = (0..BLOCK).filter(|at| known[*at] && !told(&found, *at)).count();
            let unknown = known.iter().filter(|known| !**known).count();
            assert!(
                lost <= (4 + 8 * parts.0.len()).saturating_sub(unknown),
                "seed {seed}: {lost} lost of {parts:?}"
            );
            assert!((0..BLOCK).all(|at| !told(&found, at) || back[at] == data[at]), "seed {seed}");
        }
    }

    #[test]
    fn more_parts_than_there_is_room_for_are_left_out() {
        let arena = Arena::new();
        let mut parts = Parts::default();
        (0..BLOCK as u32).step_by(2).for_each(|at| parts.add(at..at + 1));
        let stored = in_part(&arena.take_zeroed(BLOCK).freeze(), &parts, arena.take_zeroed(BLOCK)).stored();
        let found = read_parts(&stored, &mut [0; BLOCK]).expect("it was written so");
        assert!(found.0.len() == BLOCK / 16 && parts.cover(&found));
    }

    #[test]
    fn what_is_no_block_in_part_is_refused() {
        let mut into = [0; BLOCK];
        let mut stored = [0; BLOCK];
        assert_eq!(read_parts(&stored, &mut into), Some(Parts::default()));
        stored[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        stored[4..12].fill(0xff);
        assert_eq!(read_parts(&stored, &mut into), None);
        assert_eq!(read_parts(&[1, 0], &mut into), None);
    }
}
