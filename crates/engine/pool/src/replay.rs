//! Replay: applying what the log says after the cut, as far as it can be believed.
//!
//! Replay reads frames from the tail until one does not continue the chain. Frames up to the greatest `durable`
//! seen (and all that an earlier import sealed) were complete before later ones were written: they count
//! without a look at their data. The *doubtful* ones after that may be the last, never acknowledged commit, whose
//! frame reached the disk and whose data did not; each of their pointers is verified on every copy. The first frame
//! with a block that verifies nowhere ends the log, whole: nothing after it can have been acknowledged.
//! What is accepted in doubt is rewritten on the copies that lack it, so that a later import cannot see it otherwise.
//!
//! Before any block is verified, the last plug of the log that no frame says is in place is written once more: it may be half done, and
//! then blocks beside it cannot be computed. Blocks that an earlier plug put into the same lines are among those that are verified.
//!
//! Frames before the cut are in the trees already; they are read for blocks that live in the log alone.

use crate::clear::CLEAR_BLOCKS_MAX;
use crate::dataset::Dataset;
use crate::error::{Error, ErrorKind};
use crate::format::ShardRoot;
use crate::items::ITEMS_SHARD;
use crate::open::{FrameReader, read_ring};
use crate::pack::Block;
use crate::record::DatasetRecord;
use crate::shard::Shard;
use forebay_base::Checksum;
use forebay_base::planted::{Bug, active};
use forebay_device::{SlotRef, UNIT};
use forebay_log::{Chain, Frame, PlugPiece, Record, decode_records};
use forebay_raid::{ArrayError, DiskSet, Piece};
use forebay_runtime::Buf;
use forebay_space::{Addr, Chunk, ChunkId, Ptr};
use futures_util::future::join_all;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

pub(crate) struct Replay {
    shard: Rc<Shard>,
    root: ShardRoot,
    incarnation: u64,
    /// Part of the shard's tables is lost, and what is left is shown: records of what is not known any more are passed over.
    is_partial: bool,
    /// The last plug that no later record says is in place: its chunk and what goes there.
    plug: RefCell<Option<(ChunkId, Vec<Piece>)>>,
}

/// Blocks that are looked at side by side.
const VERIFIED_TOGETHER: usize = 64;

impl Replay {
    /// Replays the log of `shard` from `root` on, as `incarnation` left it.
    pub fn new(shard: Rc<Shard>, root: ShardRoot, incarnation: u64, is_partial: bool) -> Replay {
        Replay { shard, root, incarnation, is_partial, plug: RefCell::default() }
    }

    pub async fn run(self) -> Result<(), Error> {
        let (ring, chunks) = {
            let log = self.shard.log.borrow();
            (log.ring, log.chunks.clone())
        };
        let context = self.shard.frame_context();
        let mut reader =
            FrameReader::new(&self.shard.array, (ring, &chunks), context, &self.root, self.incarnation);
        let mut certain = self.root.sealed.saturating_sub(1);
        let mut waiting: VecDeque<(Chain, Frame, Vec<u8>)> = VecDeque::new();
        loop {
            let start = reader.chain;
            let Some((frame, payload)) = reader.next().await else { break };
            certain = certain.max(frame.durable);
            waiting.push_back((start, frame, payload));
            while waiting.front().is_some_and(|(_, frame, _)| frame.sequence <= certain) {
                let (start, frame, payload) = waiting.pop_front().expect("just seen");
                self.apply(start, &frame, &payload).await?;
            }
        }
        let (ends, mut needed) = (reader.chain.sequence, self.root.needed());
        if !active(Bug::GapEndsLog)
            && let Some(durable) = reader.durable_beyond().await
        {
            needed = needed.max(durable + 1);
        }
        if ends < needed && self.shard.shared.import.force {
            self.shard.tell_cut_short(ends, needed, &self.root);
        } else if ends < needed {
            let message = format!("the log ends at frame {ends}, and frames up to {} are needed", needed - 1);
            let error = self.error(ErrorKind::Corrupt, &message);
            let remedy = "Give the paths of all disks of the pool: another copy of the log may be whole. If none is, --force imports the pool without \
                          the rest of the log: the last acknowledged writes are lost";
            return Err(error.remedy(remedy));
        }
        if active(Bug::ReplaySkipsLastFrame) {
            waiting.pop_back();
        }
        if !active(Bug::VerifiesAmidPlug) {
            self.unless_rescued(self.plug_again(&waiting).await)?;
        }
        for (start, frame, payload) in waiting {
            if !self.verify(&frame, &payload).await {
                if active(Bug::ReplayContinuesAfterGap) {
                    continue;
                }
                break;
            }
            self.settle(&start, &frame).await;
            self.apply(start, &frame, &payload).await?;
            self.unless_rescued(self.restore_parity(&frame, &payload).await)?;
        }
        if active(Bug::VerifiesAmidPlug) {
            self.unless_rescued(self.plug_again(&VecDeque::new()).await)?;
        }
        // What was accepted in doubt is certain from here on: the next superblock seals it.
        let disks = self.shard.array.all();
        let lost = self.shard.array.flush(&disks).await.is_err();
        let mut log = self.shard.log.borrow_mut();
        log.durable = log.chain.sequence.saturating_sub(1);
        log.marked = log.durable;
        self.shard.sealed.set(log.chain.sequence);
        drop(log);
        let lost =
            if lost { Err(self.error(ErrorKind::Io, "the disks could not be flushed")) } else { Ok(()) };
        self.unless_rescued(lost)
    }

    /// Where more is missing than can be lost, what a crash left half done cannot be completed, and nothing is to be written anyway.
    fn unless_rescued(&self, result: Result<(), Error>) -> Result<(), Error> {
        result.or_else(|error| if self.shard.shared.import.is_rescue() { Ok(()) } else { Err(error) })
    }

    fn error(&self, kind: ErrorKind, message: &str) -> Error {
        Error::new(kind, self.shard.shared.name.clone(), format!("shard {}: {message}", self.shard.index))
    }

    /// Applies a frame that counts.
    async fn apply(&self, start: Chain, frame: &Frame, payload: &[u8]) -> Result<(), Error> {
        let impossible = || self.error(ErrorKind::Corrupt, "the log has an invalid record");
        let records = decode_records(payload, frame.records).map_err(|_| impossible())?;
        {
            let mut log = self.shard.log.borrow_mut();
            log.frame_start = start;
            log.chain = frame.next();
        }
        let staged_only = frame.sequence < self.root.cut;
        let claimed = |record: &Record| match record {
            Record::Write { ptrs, .. } if !staged_only => {
                ptrs.iter().filter(|ptr| !ptr.is_hole()).map(|ptr| ptr.addr().chunk()).collect()
            }
            _ => BTreeSet::new(),
        };
        let read = self.shard.read_maps(records.iter().flat_map(claimed)).await;
        read.expect("a pool that is being opened is not suspended");
        for record in records {
            if let Record::Put { record, .. } = record
                && !staged_only
            {
                let record = DatasetRecord::decode(record).ok().flatten().ok_or_else(impossible)?;
                self.put(record).await?;
                continue;
            }
            self.replay(record, frame, staged_only).ok_or_else(impossible)?;
        }
        Ok(())
    }

    /// Applies a dataset's properties; a clone begins with its snapshot's tree.
    async fn put(&self, record: DatasetRecord) -> Result<(), Error> {
        let shard = &self.shard;
        let is_known = shard.datasets.borrow().contains_key(&record.number)
            || shard.snapshots.borrow().contains_key(&record.number);
        // What is known of it now may not be all: it would read as zeros.
        if self.is_partial && !is_known {
            return Ok(());
        }
        let is_clone = record.parent.is_some() && !record.root.is_hole() && !is_known;
        let tree = is_clone.then(|| record.tree());
        shard.apply_put(record, tree);
        Ok(())
    }

    /// Nothing when the record cannot be true.
    fn replay(&self, record: Record, frame: &Frame, staged_only: bool) -> Option<()> {
        let shard = &self.shard;
        let dataset = |number: u64| shard.datasets.borrow().get(&number).cloned();
        let may_be_unknown = (staged_only || self.is_partial).then_some(());
        let unstage = |dataset: &Dataset, first: u64, count: u64| {
            let gone = dataset.take_staged(first, first.saturating_add(count));
            gone.iter().for_each(|(block, staged)| shard.unstage(dataset, *block, staged));
        };
        match record {
            Record::Write { dataset: number, first, ptrs } => {
                let Some(dataset) = dataset(number) else { return may_be_unknown };
                unstage(&dataset, first, ptrs.len() as u64);
                if staged_only {
                    return Some(());
                }
                if first.checked_add(ptrs.len() as u64)? > dataset.record.borrow().blocks() {
                    return None;
                }
                let ptrs =
                    if active(Bug::TornWriteAccepted) { &ptrs[..ptrs.len().div_ceil(2)] } else { &ptrs[..] };
                let mut freed = Vec::new();
                let mut space = shard.space.borrow_mut();
                let can_be_true = ptrs.iter().all(|ptr| ptr.is_hole() || space.claim(ptr));
                // What lies in a chunk that is not known any more reads as an error, and not as what it was before.
                if !can_be_true && !self.is_partial {
                    return None;
                }
                drop(space);
                shard.change_tree(&dataset, |tree| tree.set(first, ptrs, &mut freed));
                shard.account(&dataset, ptrs, &[]);
                shard.let_go(&dataset, &freed);
            }
            Record::Data { dataset: number, first, block_bytes, blocks } => {
                let Some(dataset) = dataset(number) else { return may_be_unknown };
                let blocks_all = dataset.record.borrow().blocks();
                if block_bytes as usize != dataset.block_bytes()
                    || first.checked_add(blocks.len() as u64).is_none_or(|end| end > blocks_all)
                {
                    // Before the cut it may have been larger.
                    return staged_only.then_some(());
                }
                let copy = |block: &[u8]| -> Buf { shard.rt.arena().copy(block).freeze() };
                let blocks = blocks.into_iter().map(|block| (Block::whole(copy(block)), None)).collect();
                shard.stage(&dataset, first, blocks, frame.sequence, 0);
            }
            Record::Parts { dataset: number, block, block_bytes, parts } => {
                let Some(dataset) = dataset(number) else { return may_be_unknown };
                if block_bytes as usize != dataset.block_bytes() || block >= dataset.record.borrow().blocks()
                {
                    return staged_only.then_some(());
                }
                let copy = |(at, bytes): (u32, &[u8])| (at, shard.rt.arena().copy(bytes).freeze());
                let parts: Vec<(u32, Buf)> = parts.into_iter().map(copy).collect();
                shard.stage_parts(&dataset, block, &parts, None, frame.sequence);
            }
            // What is not known to be there costs memory to clear.
            Record::Clear { count, .. } if count > CLEAR_BLOCKS_MAX => return None,
            Record::Clear { dataset: number, first, count } => {
                let Some(dataset) = dataset(number) else { return may_be_unknown };
                unstage(&dataset, first, count);
                if !staged_only {
                    let mut freed = Vec::new();
                    shard.change_tree(&dataset, |tree| tree.clear(first, count, &mut freed));
                    shard.let_go(&dataset, &freed);
                }
            }
            Record::Grant { chunk } if !staged_only => {
                let mut space = shard.space.borrow_mut();
                let id = chunk.id;
                if !space.contains(id) {
                    space.insert(Chunk::fresh(chunk));
                }
                space.grant_logged(id);
            }
            Record::Put { .. } | Record::Grant { .. } => {}
            Record::Plug { .. } | Record::Plugged => self.note_plug(record, frame),
            Record::Items { .. } if shard.index != ITEMS_SHARD => return None,
            Record::Items { items } if !staged_only && !active(Bug::RegistryNotReplayed) => {
                let mut all = shard.items.borrow_mut();
                for (key, value) in items {
                    all.replay(key, value)?;
                }
            }
            Record::Items { .. } => {}
        }
        Some(())
    }

    /// Makes the parity of lines that a frame accepted in doubt has written agree with their data: the power may have gone
    /// between the two. Where a disk is missing, nobody can tell from the line what its cells should be, so it is written
    /// anew: what the frame points to, which was verified, and zeros. Lines that hold anything else are left as they are:
    /// what is plugged into them is in place, and durable, before a frame points to it.
    async fn restore_parity(&self, frame: &Frame, payload: &[u8]) -> Result<(), Error> {
        if frame.sequence < self.root.cut || active(Bug::ParityNotRestored) {
            return Ok(());
        }
        let mut lines: BTreeMap<ChunkId, BTreeMap<u64, Vec<Ptr>>> = BTreeMap::new();
        for record in decode_records(payload, frame.records).unwrap_or_default() {
            let Record::Write { ptrs, .. } = record else { continue };
            let space = self.shard.space.borrow();
            for ptr in ptrs.iter().filter(|ptr| !ptr.is_hole()) {
                let of_chunk = lines.entry(ptr.addr().chunk()).or_default();
                for line in space.lines_of(ptr).into_iter().flatten() {
                    of_chunk.entry(line).or_default().push(*ptr);
                }
            }
        }
        let mut touched = DiskSet::default();
        for (chunk, lines) in lines {
            let slots = self.shard.space.borrow().chunk(chunk).map(|chunk| chunk.entry.slots.clone());
            for (line, ptrs) in lines {
                let slots = slots.as_ref().expect("it has lines");
                // What else is there was not looked at, and what is written into lines in use has its parity before a frame says so.
                if !self.is_all_of_line(chunk, line, &ptrs) && !active(Bug::ParityOfUnseen) {
                    continue;
                }
                let restored = self.shard.array.restore_parity(slots, line..line + 1, &mut touched).await;
                let restored = match restored {
                    Ok(left) if !left.is_empty() => self.write_line(chunk, line, &ptrs, &mut touched).await,
                    other => other.map(drop),
                };
                restored.map_err(|_| self.error(ErrorKind::Io, "parity could not be written"))?;
            }
        }
        Ok(())
    }

    /// Whether all that is in use of a line is at `ptrs`.
    fn is_all_of_line(&self, chunk: ChunkId, line: u64, ptrs: &[Ptr]) -> bool {
        let mut space = self.shard.space.borrow_mut();
        let len = space.line_bytes(chunk);
        let (start, end) = (line * len, (line + 1) * len);
        let (_, _, busy) = space.close_line(Addr::new(chunk, (start / UNIT) as u32));
        // A block may reach into the lines beside.
        let within = |ptr: &Ptr| {
            let at = ptr.addr().offset();
            (at + u64::from(ptr.bytes())).min(end).next_multiple_of(UNIT) - at.max(start)
        };
        ptrs.iter().map(within).sum::<u64>() == u64::from(busy) * UNIT
    }

    /// Writes a line of which some cell cannot be read, and all that is in use is at `ptrs`.
    async fn write_line(
        &self,
        chunk: ChunkId,
        line: u64,
        ptrs: &[Ptr],
        touched: &mut DiskSet,
    ) -> Result<(), ArrayError> {
        let array = &self.shard.array;
        let len = self.shard.space.borrow().line_bytes(chunk);
        let start = line * len;
        let slots = self.shard.slots(&ptrs[0]).expect("it has lines");
        let mut bytes = self.shard.rt.arena().take_zeroed(len as usize);
        for ptr in ptrs {
            let check = |bytes: &[u8]| Checksum::of(bytes) == ptr.sum;
            let (at, end) = (ptr.addr().offset(), ptr.addr().offset() + u64::from(ptr.bytes()));
            let good = array.read(&slots, at, ptr.bytes() as usize, check).await?;
            // A block may reach into the lines beside.
            let (from, to) = (at.max(start), end.min(start + len));
            let part = &good.bytes[(from - at) as usize..(to - at) as usize];
            bytes[(from - start) as usize..(to - start) as usize].copy_from_slice(part);
        }
        let writing = array.write(&slots, start, vec![bytes.freeze()]);
        array.written(writing, touched).await
    }

    /// Keeps what a record says of the plug that is under way.
    fn note_plug(&self, record: Record, frame: &Frame) {
        match record {
            // What an earlier incarnation left half written, the import after it has completed.
            Record::Plug { chunk, pieces } if frame.incarnation == self.incarnation => {
                let own = |piece: PlugPiece| Piece {
                    slot: piece.slot,
                    at: piece.at,
                    data: self.shard.rt.arena().copy(piece.bytes).freeze(),
                };
                *self.plug.borrow_mut() = Some((ChunkId(chunk), pieces.into_iter().map(own).collect()));
            }
            Record::Plugged => *self.plug.borrow_mut() = None,
            _ => {}
        }
    }

    /// Writes once more what a crash may have left half written into lines in use. The frame that says what was durable before the
    /// first piece was written, and with it all frames before it: if it is not, nothing was written yet, and the places of its blocks
    /// are free whatever comes of the doubtful frames `waiting`.
    async fn plug_again(&self, waiting: &VecDeque<(Chain, Frame, Vec<u8>)>) -> Result<(), Error> {
        let mut granted = BTreeMap::new();
        for (_, frame, payload) in waiting {
            for record in decode_records(payload, frame.records).unwrap_or_default() {
                match record {
                    Record::Grant { chunk } if frame.sequence >= self.root.cut => {
                        granted.insert(chunk.id, chunk.slots);
                    }
                    record => self.note_plug(record, frame),
                }
            }
        }
        let Some((chunk, pieces)) = self.plug.take() else { return Ok(()) };
        let known = self.shard.space.borrow().chunk(chunk).map(|chunk| chunk.entry.slots.clone());
        let slots = known.or_else(|| granted.remove(&chunk));
        let fits = |slots: &Vec<SlotRef>| pieces.iter().all(|piece| usize::from(piece.slot) < slots.len());
        let Some(slots) = slots.filter(fits) else { return Ok(()) };
        if active(Bug::PlugNotReplayed) {
            return Ok(());
        }
        let writing = self.shard.array.write_pieces(&slots, &pieces);
        let written = self.shard.array.written(writing, &mut DiskSet::default()).await;
        written.map_err(|_| self.error(ErrorKind::Io, "a stripe with parity could not be completed"))
    }

    /// Whether every block that a doubtful frame points to is there, on some copy. Mends the others.
    async fn verify(&self, frame: &Frame, payload: &[u8]) -> bool {
        if frame.sequence < self.root.cut || active(Bug::ReplayNoDataVerification) {
            return true;
        }
        let Ok(records) = decode_records(payload, frame.records) else { return false };
        let mut granted: BTreeMap<u32, Vec<SlotRef>> = BTreeMap::new();
        for record in records {
            match record {
                Record::Grant { chunk } => drop(granted.insert(chunk.id.0, chunk.slots)),
                Record::Write { ptrs, .. } => {
                    let blocks: Vec<Ptr> = ptrs.iter().filter(|ptr| !ptr.is_hole()).copied().collect();
                    // A disk may be slow, and every one that has a block is waited for.
                    for some in blocks.chunks(VERIFIED_TOGETHER) {
                        let verified = join_all(some.iter().map(|ptr| {
                            let of_grant = granted.get(&ptr.addr().chunk().0).cloned();
                            let slots = of_grant.or_else(|| self.shard.slots(ptr));
                            async move {
                                match slots {
                                    Some(slots) => self.verify_block(&slots, ptr).await,
                                    None => false,
                                }
                            }
                        }));
                        if verified.await.contains(&false) {
                            return false;
                        }
                    }
                }
                _ => {}
            }
        }
        true
    }

    async fn verify_block(&self, slots: &[SlotRef], ptr: &Ptr) -> bool {
        let check = |bytes: &[u8]| Checksum::of(bytes) == ptr.sum;
        let array = &self.shard.array;
        let (offset, len) = (ptr.addr().offset(), ptr.bytes() as usize);
        array.mend(slots, offset, len, check).await.is_some()
    }

    /// Makes every copy of a frame that was accepted in doubt the same.
    async fn settle(&self, start: &Chain, frame: &Frame) {
        let (ring, chunks) = {
            let log = self.shard.log.borrow();
            (log.ring, log.chunks.clone())
        };
        let context = self.shard.frame_context();
        let array = &self.shard.array;
        let whole = |bytes: &[u8]| Frame::decode(bytes, context, start).is_some();
        let len = frame.length as usize;
        let Some(bytes) = read_ring(array, ring, &chunks, start.position, len, whole).await else { return };
        let mut from = 0;
        for piece in ring.pieces(start.position, len) {
            let right = &bytes[from..from + piece.len];
            array.mend(&chunks[piece.chunk], piece.offset, piece.len, |found| found == right).await;
            from += piece.len;
        }
    }
}
