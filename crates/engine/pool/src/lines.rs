//! Destaging into chunks with parity: whole lines where it can be, gaps of lines where it must be.
//!
//! Small writes gather in the log, each with a place reserved for it; places are dealt out line by line, so what came
//! together goes to the same lines. A line is written whole when everything in it that is in use or promised is
//! at hand: data and parity in one round of writes, nothing read. What in such a line was promised and has been
//! overwritten since is written as zeros, a gap.
//!
//! When no free lines are left, blocks are promised gaps, and gaps are *plugged* ([`Array::plan_plug`]): the new bytes, of
//! data and parity, go to the log first (`Plug`), then in place, and with the pointer records a `Plugged`. An
//! import writes the last plug again that no `Plugged` follows; there is one at a time. Until it is in place, reads that
//! have to compute from the other disks wait.

use crate::dataset::{Dataset, Staged};
use crate::entry::{Change, Entry};
use crate::error::IoError;
use crate::places::PlacesClaim;
use crate::reserve::{Claim, Need};
use crate::shard::Shard;
use crate::staged::StagedAt;
use crate::steps::Steps;
use crate::wanted::Wanted;
use forebay_base::Checksum;
use forebay_base::planted::{Bug, active};
use forebay_device::UNIT;
use forebay_raid::DiskSet;
use forebay_runtime::Buf;
use forebay_space::{Addr, ChunkKind, Ptr};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Addresses count sectors.
const SECTOR: u64 = 512;
/// Bytes of zeros that are at hand.
const ZEROS_BYTES: u64 = 128 << 10;
/// Bytes of whole lines that one entry writes.
const LINES_BYTES: u64 = 1 << 20;
/// Bytes that are plugged together: with their parity they fit into the part of the log that is kept for it.
const PLUG_BYTES: u64 = 64 << 10;
/// How long to leave blocks alone that a client is about to replace, and how often.
const CONTENDED_DELAY: Duration = Duration::from_micros(100);
const CONTENDED_TRIES: u32 = 8;

/// Looks for whole free lines for a write that does not fit into the log.
const SEARCHES_MAX: usize = 8;

/// A block that is durable in the log and has a place in a chunk with parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    pub dataset: u64,
    pub block: u64,
    pub units: u32,
}

/// Staged blocks by place.
pub(crate) type Places = BTreeMap<Addr, Placed>;
/// Where blocks were found, by dataset and number.
type Expected = BTreeMap<(u64, u64), Addr>;

/// What is about to move, and the locks that keep it as it is.
struct Batch {
    moving: Vec<Moving>,
    /// Whether some block could not be had.
    contended: bool,
}

/// Blocks of one dataset that follow each other.
struct Moving {
    dataset: Rc<Dataset>,
    first: u64,
    staged: Vec<Staged>,
}

impl Moving {
    fn blocks(&self) -> Range<u64> {
        self.first..self.first + self.staged.len() as u64
    }
}

impl Shard {
    /// Moves the oldest blocks that are durable in the log only, with what shares their lines. False when others had them locked.
    pub async fn destage_lines(self: &Rc<Self>) -> Result<bool, IoError> {
        // What has a place gives others theirs.
        let unplaced = self.place_staged().await;
        let oldest = match unplaced {
            Ok(()) => self.oldest_place(),
            Err(_) => self.placed.borrow().keys().next().copied(),
        };
        let Some(oldest) = oldest else { return unplaced.map(|()| true) };
        // After a failure less at a time may do: one block needs few nodes.
        let is_stuck = self.destage_stuck.get();
        let region = if is_stuck { None } else { self.whole_lines(oldest) };
        let is_whole = region.is_some();
        let placed = match region {
            Some(region) => self.placed.borrow().range(region).map(|(at, placed)| (*at, *placed)).collect(),
            // What is promised there and still on its way to the log will soon be staged, too.
            None if !self.is_written(oldest) && self.contended.get() < CONTENDED_TRIES => Vec::new(),
            None => self.plug_batch(oldest, if is_stuck { 0 } else { PLUG_BYTES }),
        };
        let places: Expected = placed.iter().map(|(at, one)| ((one.dataset, one.block), *at)).collect();
        let dataset = |number| self.datasets.borrow().get(&number).cloned();
        let of_dataset =
            |(number, blocks)| (dataset(number).expect("staged blocks belong to a dataset"), blocks);
        let runs: Vec<(Rc<Dataset>, Range<u64>)> = runs(&placed).into_iter().map(of_dataset).collect();
        let mut guards = Vec::with_capacity(runs.len());
        let mut locked = Vec::with_capacity(runs.len());
        let mut batch = Batch { moving: Vec::new(), contended: false };
        for (dataset, blocks) in &runs {
            match dataset.locks.try_lock(blocks.start, blocks.end - 1) {
                Some(guard) => guards.push(guard),
                None => {
                    batch.contended = true;
                    continue;
                }
            }
            locked.push((dataset, blocks.clone()));
        }
        let locked_runs = locked.iter().map(|(dataset, blocks)| (*dataset, blocks.clone()));
        self.complete_all(locked_runs, self.destaged_at_once()).await?;
        locked.into_iter().for_each(|(dataset, blocks)| batch.take(dataset, blocks, &places));
        let moving = batch.moving.iter_mut().flat_map(|moving| &mut moving.staged);
        moving.for_each(|staged| staged.block = self.to_store(staged));
        if (batch.contended && self.contended.get() < CONTENDED_TRIES) || batch.moving.is_empty() {
            self.contended.set(self.contended.get() + 1);
            drop(guards);
            self.seek_space(unplaced);
            // Nothing is lost by letting the commit that supersedes them go first.
            self.rt.sleep(CONTENDED_DELAY).await;
            return Ok(false);
        }
        self.contended.set(0);
        let is_whole = is_whole && !batch.contended;
        if !is_whole {
            // Of lines that would have been whole there may be more than a plug takes.
            batch.keep_first(PLUG_BYTES);
        }
        let count: usize = batch.moving.iter().map(|moving| moving.staged.len()).sum();
        let result = if is_whole { self.write_lines(batch).await } else { self.plug(oldest, batch).await };
        drop(guards);
        result.map(|()| self.destaged.set(self.destaged.get() + count as u64))?;
        Ok(true)
    }

    /// Places for blocks that an import found in the log: they had one then, and get another now. And for those that came in parts, where they take
    /// less than was held for them.
    pub async fn place_staged(self: &Rc<Self>) -> Result<(), IoError> {
        self.pack_parts().await;
        let placed = if self.has_unplaced.get() { self.place_unplaced().await } else { Ok(()) };
        self.lacks_place.set(placed == Err(IoError::NoSpace));
        placed
    }

    async fn place_unplaced(self: &Rc<Self>) -> Result<(), IoError> {
        let (mut number, mut steps) = (0, Steps::default());
        while let Some(dataset) = self.next_dataset(number) {
            number = dataset.number() + 1;
            let mut at = 0;
            while let Some(block) = self.next_unplaced(&dataset, at, &mut steps).await {
                at = block;
                let packed = self.pack_staged(&dataset, block);
                let wanted = Wanted::one(packed.size());
                let (mut places, _) = self.allocate_here(&wanted, 0, Claim::Moved).await?;
                self.replace_place(&dataset, block, places.take_first(1)[0], |place| place.is_none());
            }
        }
        self.has_unplaced.set(false);
        Ok(())
    }

    /// The first staged block from `at` on that has no place. None comes to be before it: only an import finds such blocks.
    async fn next_unplaced(&self, dataset: &Dataset, mut at: u64, steps: &mut Steps) -> Option<u64> {
        loop {
            steps.take(1).await;
            let next = {
                let staged = dataset.staged.borrow();
                let next = staged.range(at..).next();
                next.map(|(block, staged)| (*block, staged.place.is_none()))
            };
            match next? {
                (block, true) => return Some(block),
                (block, false) => at = block + 1,
            }
        }
    }

    /// Gives a staged block another place if its present one is `replaced`; otherwise the new one is given back. That too when the block is
    /// no longer the one that the place was made for, and takes more or less.
    pub fn replace_place(
        &self,
        dataset: &Dataset,
        block: u64,
        place: Ptr,
        replaced: impl Fn(&Option<Ptr>) -> bool,
    ) {
        let mut unused = Some(place);
        if let Some(staged) = dataset.staged.borrow_mut().get_mut(&block)
            && replaced(&staged.place)
            && staged.block.size().units == place.units()
        {
            unused = staged.place.replace(place);
            match &unused {
                Some(old) => drop(self.placed.borrow_mut().remove(&old.addr())),
                None => self.place_found(dataset),
            }
            self.note_placed(dataset.number(), block, &place);
        }
        if let Some(unused) = unused {
            self.space.borrow_mut().give_back(&unused);
        }
    }

    /// Takes note of where a staged block is to go.
    pub fn note_placed(&self, dataset: u64, block: u64, place: &Ptr) {
        if self.space.borrow().has_lines() {
            let placed = Placed { dataset, block, units: place.units() };
            self.placed.borrow_mut().insert(place.addr(), placed);
        }
    }

    /// The place of a block of the oldest frame that has staged blocks.
    fn oldest_place(&self) -> Option<Addr> {
        let (log, datasets) = (self.log.borrow(), self.datasets.borrow());
        let oldest = log.staged.oldest()?;
        let of_oldest =
            log.staged.blocks_from((oldest, 0, 0)).take_while(|(sequence, ..)| *sequence == oldest);
        let place = |(_, number, block): StagedAt| datasets.get(&number)?.staged.borrow().get(&block)?.place;
        of_oldest.filter_map(place).next().map(|place| place.addr())
    }

    /// Whether the line at a place holds something that has been written.
    fn is_written(&self, place: Addr) -> bool {
        let space = self.space.borrow();
        let line = space.line_bytes(place.chunk());
        let start = Addr(place.0 - place.offset() % line / SECTOR);
        !space.is_unwritten(start, line)
    }

    /// Staged blocks of one chunk, from a place on, that are plugged together: up to `most` bytes, and one block at least.
    fn plug_batch(&self, place: Addr, most: u64) -> Vec<(Addr, Placed)> {
        let placed = self.placed.borrow();
        let mut bytes = 0;
        let fits = |(_, placed): &(&Addr, &Placed)| {
            let first = bytes == 0;
            bytes += u64::from(placed.units) * UNIT;
            first || bytes <= most
        };
        let in_chunk = |(at, _): &(&Addr, &Placed)| at.chunk() == place.chunk();
        let batch = placed.range(place..).take_while(in_chunk).take_while(fits);
        batch.map(|(at, placed)| (*at, *placed)).collect()
    }

    /// The lines around a place, and as many after them as make a large write, in which all that is in use or promised is
    /// staged. Nothing when the place's own line holds something else. No further place is promised in them.
    fn whole_lines(&self, place: Addr) -> Option<Range<Addr>> {
        let (placed, mut space) = (self.placed.borrow(), self.space.borrow_mut());
        let chunk = place.chunk();
        let units_end = space.chunk(chunk).expect("staged places are owned").entry.units;
        // The units of one line that are staged, and the units that blocks beginning in it reach beyond it.
        let staged = |first: u32, line: u32| {
            let mut units = 0;
            let mut beyond = false;
            // A block from before the line may reach into it: the largest has 32 units.
            let from = Addr::new(chunk, first.saturating_sub(32));
            for (at, placed) in placed.range(from..Addr::new(chunk, first + line)) {
                let (start, end) = (at.unit(), at.unit() + placed.units);
                units += end.min(first + line).saturating_sub(start.max(first));
                beyond |= start < first + line && end > first + line;
            }
            (units, beyond)
        };
        let before = |first: u32| {
            let from = Addr::new(chunk, first.saturating_sub(32));
            placed.range(from..Addr::new(chunk, first)).any(|(at, placed)| at.unit() + placed.units > first)
        };
        let (mut first, line, _) = space.close_line(place);
        while before(first) {
            first -= line;
        }
        let mut end = first;
        loop {
            let must = end <= place.unit() || (end > first && staged(end - line, line).1);
            let large = u64::from(end - first + line) * UNIT > LINES_BYTES;
            if end + line > units_end || (!must && large) {
                break;
            }
            // The open line is closed only when it has to be.
            if !must && space.is_open(Addr::new(chunk, end)) {
                break;
            }
            let (_, _, busy) = space.close_line(Addr::new(chunk, end));
            let (units, _) = staged(end, line);
            if units != busy || (!must && units == 0) {
                if must {
                    return None;
                }
                break;
            }
            end += line;
        }
        // What was taken along and reaches beyond the end is left for the next time.
        while end > first && staged(end - line, line).1 {
            end -= line;
        }
        (end > place.unit()).then(|| Addr::new(chunk, first)..Addr::new(chunk, end))
    }

    /// Completes blocks (in order of address) to whole lines where their chunks have lines: what nobody uses becomes zeros.
    pub fn fill_lines(&self, blocks: Vec<(Addr, Buf)>) -> Vec<(Addr, Buf)> {
        let mut filled: Vec<(Addr, Buf)> = Vec::with_capacity(blocks.len() + 1);
        // Where the lines that were begun last are filled to.
        let mut end = None;
        let fill = |from: Addr, bytes: u64, filled: &mut Vec<(Addr, Buf)>| {
            assert!(self.space.borrow().is_unwritten(from, bytes), "zeros over data at {from:?}");
            let mut at = 0;
            while at < bytes {
                let part = self.zeros((bytes - at).min(ZEROS_BYTES) as usize);
                filled.push((from.plus(at), part.clone()));
                at += part.len() as u64;
            }
        };
        let rest = |end: Addr, line: u64| (line - end.offset() % line) % line;
        for (at, block) in blocks {
            let line = self.space.borrow().line_bytes(at.chunk());
            let (len, skip) = (block.len() as u64, if line == 0 { 0 } else { at.offset() % line });
            let start = Addr(at.0 - skip / SECTOR);
            match end.take() {
                Some((end, before)) if end > start => {
                    debug_assert_eq!(before, line);
                    fill(end, (at.0 - end.0) * SECTOR, &mut filled);
                }
                Some((end, before)) => {
                    fill(end, rest(end, before), &mut filled);
                    fill(start, skip, &mut filled);
                }
                None => fill(start, skip, &mut filled),
            }
            filled.push((at, block));
            end = (line > 0).then(|| (at.plus(len), line));
        }
        if let Some((end, line)) = end {
            fill(end, rest(end, line), &mut filled);
        }
        filled
    }

    /// Writes blocks that fill lines.
    async fn write_lines(self: &Rc<Self>, batch: Batch) -> Result<(), IoError> {
        let mut entry = self.pointers(&batch).await?;
        let done = entry.awaited();
        self.submit_durable(entry, self.places_at_once()).await;
        done.await
    }

    /// The entry that points to the blocks in their new places.
    async fn pointers(self: &Rc<Self>, batch: &Batch) -> Result<Entry, IoError> {
        let by_dataset = batch.moving.chunk_by(|one, next| Rc::ptr_eq(&one.dataset, &next.dataset));
        let nodes = by_dataset.map(|runs| runs[0].dataset.nodes_over(runs.iter().map(Moving::blocks)));
        let nodes = self.reserve_nodes(nodes.sum(), Claim::Urgent).await?;
        let changes = batch.moving.iter().map(|moving| {
            let place = |staged: &Staged| staged.place.expect("what moves has a place");
            Change::Write {
                dataset: moving.dataset.clone(),
                first: moving.first,
                ptrs: moving.staged.iter().map(|staged| staged.block.point(&place(staged))).collect(),
                parts: moving.staged.iter().map(|staged| staged.block.data.clone()).collect(),
                stored: moving.staged.iter().map(|staged| staged.block.stored()).collect(),
                destage: true,
            }
        });
        let mut entry = Entry::new(self.entry_id(), changes.collect(), false);
        entry.nodes = Some(nodes);
        Ok(entry)
    }

    /// Writes blocks into lines in use.
    async fn plug(self: &Rc<Self>, oldest: Addr, batch: Batch) -> Result<(), IoError> {
        let mut entry = self.pointers(&batch).await?;
        let slots = self.slots(&Ptr::new(oldest, UNIT as u32, 0, Checksum::default()));
        let slots = slots.expect("staged places are owned");
        let blocks = batch.moving.iter().flat_map(|moving| &moving.staged);
        let blocks: Vec<(Addr, Buf)> = blocks
            .map(|staged| (staged.place.expect("what moves has a place").addr(), staged.block.stored()))
            .collect();
        self.blank(&blocks).await?;
        let blocks = blocks.into_iter().map(|(at, data)| (at.offset(), data));
        let pieces = self.array.plan_plug(&slots, blocks.collect()).await.map_err(|_| IoError::Io)?;
        let plug = Change::Plug { chunk: oldest.chunk().0, pieces: pieces.clone() };
        let mut intent = Entry::new(self.entry_id(), vec![plug], true);
        let done = intent.awaited();
        self.submit(intent);
        done.await?;
        self.plugs.set(self.plugs.get() + 1);
        self.plugging.set(true);
        let mut touched = DiskSet::default();
        let written = self.array.written(self.array.write_pieces(&slots, &pieces), &mut touched).await;
        let flushed = match written {
            Ok(()) => self.array.flush(&touched).await,
            Err(error) => Err(error),
        };
        self.plugging.set(false);
        self.progress.changed();
        if flushed.is_err() {
            self.suspend("a stripe with parity could not be written");
            return Err(IoError::Io);
        }
        entry.changes.push(Change::Plugged);
        entry.is_in_place(Ok(touched));
        let done = entry.awaited();
        self.submit(entry);
        done.await
    }

    /// Makes lines that hold nothing, and whose parity may say anything, lines of zeros: a plug builds on what is there.
    async fn blank(&self, blocks: &[(Addr, Buf)]) -> Result<(), IoError> {
        let mut starts = BTreeSet::new();
        for (at, block) in blocks {
            let line = self.space.borrow().line_bytes(at.chunk());
            let begin = at.offset() / line * line;
            let lines = (begin..at.offset() + block.len() as u64).step_by(line as usize);
            starts.extend(lines.map(|start| Addr(at.0 - at.offset() / SECTOR + start / SECTOR)));
        }
        let mut touched = DiskSet::default();
        for start in starts.into_iter().filter(|start| !self.is_written(*start)) {
            let zeros = vec![(start, self.zeros(UNIT as usize))];
            for writing in self.start_writes(zeros) {
                self.array.written(writing, &mut touched).await.map_err(|_| IoError::Io)?;
            }
        }
        self.array.flush(&touched).await.map_err(|_| IoError::Io)
    }

    /// After a read that could not be verified: whether a plug was being put in place meanwhile, so that it should be tried
    /// again. `plugs` is what the count of plugs was before the read.
    pub async fn was_plugged(&self, plugs: u64) -> bool {
        let changed = self.plugging.get() || self.plugs.get() != plugs;
        self.progress.until(|| !self.plugging.get()).await;
        changed
    }
}

impl Shard {
    /// As many whole lines as `count` places of 2^n units (`units`) fill, or as there are; none where there is no parity. In the
    /// log, each would be `log_bytes`: what is left of a line is more than asked for when the rest would be too much for it.
    /// Not to be called with blocks locked: it may wait for an evacuation.
    pub async fn claim_lines(
        self: &Rc<Self>,
        units: u32,
        count: u64,
        log_bytes: usize,
        who: Claim,
    ) -> Result<PlacesClaim, IoError> {
        let mut claim = PlacesClaim::none(self);
        let sizes = self.space.borrow().whole_lines(units);
        let Some((least, most)) = sizes else { return Ok(claim) };
        let kind = ChunkKind::Data { class: units.trailing_zeros() as u8 };
        let mut searches = 0;
        loop {
            let may_take = || match who {
                Claim::Ordinary => self.space.borrow().spare(units.trailing_zeros() as u8),
                _ => u64::MAX,
            };
            let left = count.saturating_sub(claim.count());
            let fits = self.fits_into_log(left, log_bytes);
            if left == 0 || (left * u64::from(units) < least.into() && fits) {
                break;
            }
            let mut left = ((left * u64::from(units)) as u32).max(least);
            let found = loop {
                if self.is_suspended() {
                    return Err(IoError::Suspended);
                }
                // Whichever group a new chunk came from, it would do.
                let any = left >= most;
                let may = may_take().saturating_mul(units.into()).min(left.into()) as u32;
                let found = self.space.borrow_mut().allocate_lines(kind, units, may);
                match found {
                    Ok(found) => break Some(found),
                    Err(_) if self.read_sought().await? => {}
                    // The lines that there are may be those of a group with longer ones, of which some stays empty.
                    Err(_) if !any && !fits => left = most,
                    Err(_) if any && !self.yields_to_log(who) && self.grant(kind, Need::Ordinary).await => {}
                    Err(_) if any && searches == 0 && self.reclaim().await => searches += 1,
                    // What is left must fit into the log. Lines that others gave back come with a checkpoint or two.
                    Err(_) if searches < SEARCHES_MAX && !fits => {
                        searches += 1;
                        if !self.next_checkpoint().await {
                            break None;
                        }
                    }
                    Err(_) => break None,
                }
            };
            let Some((addr, size)) = found else { break };
            self.widen();
            let place = |nth: u32| addr.plus(u64::from(nth * units) * UNIT);
            let places = (0..size / units).map(place);
            let bytes = units * UNIT as u32;
            claim.add(places.map(|at| Ptr::new(at, bytes, 0, Checksum::default())));
        }
        Ok(claim)
    }
}

impl Batch {
    /// Adds those of the blocks that are staged for the places where they were found, and not being replaced.
    fn take(&mut self, dataset: &Rc<Dataset>, blocks: Range<u64>, places: &Expected) {
        let mut last: Option<Moving> = None;
        for block in blocks {
            // What is pending is newer and stands before this entry in the log: moving the older contents would undo it.
            let pending = dataset.pending.borrow().overlaps(block, block + 1);
            // What was pending when the block was locked, and is not any more, has a place of its own, in another line or chunk.
            let place = places.get(&(dataset.number(), block));
            let is_there = |staged: &&Staged| {
                staged.place.map(|place| place.addr()).as_ref() == place || active(Bug::ReplacedMovesAlong)
            };
            let staged = dataset.staged.borrow().get(&block).filter(|_| !pending).filter(is_there).cloned();
            let Some(staged) = staged else {
                self.contended = true;
                self.moving.extend(last.take());
                continue;
            };
            match &mut last {
                Some(moving) => moving.staged.push(staged),
                None => {
                    last = Some(Moving { dataset: dataset.clone(), first: block, staged: vec![staged] });
                }
            }
        }
        self.moving.extend(last);
    }

    /// Leaves the first blocks, up to `most` bytes, and one block at least.
    fn keep_first(&mut self, most: u64) {
        let mut bytes = 0;
        let mut fits = |staged: &Staged| {
            let first = bytes == 0;
            bytes += staged.place.map_or(0, |place| u64::from(place.units()) * UNIT);
            first || bytes <= most
        };
        for moving in &mut self.moving {
            let kept = moving.staged.iter().take_while(|staged| fits(staged)).count();
            moving.staged.truncate(kept);
        }
        self.moving.retain(|moving| !moving.staged.is_empty());
    }
}

/// Runs of block numbers, by dataset.
fn runs(placed: &[(Addr, Placed)]) -> Vec<(u64, Range<u64>)> {
    let mut blocks: Vec<(u64, u64)> =
        placed.iter().map(|(_, placed)| (placed.dataset, placed.block)).collect();
    blocks.sort_unstable();
    let mut runs: Vec<(u64, Range<u64>)> = Vec::new();
    for (dataset, block) in blocks {
        match runs.last_mut() {
            Some((last, run)) if *last == dataset && run.end == block => run.end += 1,
            _ => runs.push((dataset, block..block + 1)),
        }
    }
    runs
}
