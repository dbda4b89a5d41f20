//! Writing to a volume where it is: what a client brings becomes one entry of the log, with places for its blocks.

use crate::commit::AHEAD_BYTES;
use crate::destage::{Ending, LogClaim};
use crate::entry::{Change, Entry};
use crate::error::IoError;
use crate::locks::RangeGuard;
use crate::pack::{Block, Packing};
use crate::places::{PlacesClaim, Waiting};
use crate::read::Reader;
use crate::reserve::Claim;
use crate::shard::NodesClaim;
use crate::spec::SyncPolicy;
use crate::turns::{Flow, Turn};
use crate::volume::{Admitted, LocalVolume, finish, length};
use crate::wanted::Wanted;
use forebay_base::Checksum;
use forebay_base::planted::{Bug, active};
use forebay_compress::Compression;
use forebay_device::UNIT;
use forebay_qos::Work;
use forebay_runtime::{Buf, Rt};
use forebay_space::Ptr;
use std::iter::once;
use std::ops::Range;

/// The longest compare-and-write in bytes.
const COMPARE_BYTES_MAX: usize = 1 << 20;
/// On a pool with log disks, what clients write up to this size goes to the log first, in whole blocks; larger data is faster on the data disks.
const IN_LOG_BYTES_MAX: usize = 64 << 10;

/// So little of who waits alone goes to the log first on any pool, in blocks and as it came.
const ALONE_BYTES_MAX: usize = 16 << 10;

/// A write whose blocks are locked and which can be queued; `wait`: it is acknowledged when it is durable.
struct Locked<'a> {
    guard: RangeGuard<'a>,
    entry: Entry,
    wait: bool,
}

/// A write before its blocks are locked.
enum Prepared {
    Packed(Packing),
    /// Without lines, it is packed when its blocks are whole.
    Bare {
        data: Vec<Buf>,
        count: u64,
        lines: Option<PlacesClaim>,
    },
}

/// A turn at the disks, and room in the log for a write.
pub(crate) struct Room {
    turn: Turn,
    log: LogRoom,
}

/// Room in the log for a write.
pub(crate) struct LogRoom {
    pub claim: LogClaim,
    /// Whether the data goes there as well, so far as it has no lines of its own: then there is room for all of it.
    takes_data: bool,
    /// And whether it does so as it came, in parts of blocks: whoever else wants these waits until that is applied.
    takes_parts: bool,
}

impl Entry {
    /// Keeps the room until it is over; where it goes to many places, its turn costs as much.
    fn takes(&mut self, flow: &Flow, mut room: Room) {
        flow.amend(&mut room.turn, Work::write(self.stored_bytes() as u64, self.places()));
        (self.room, self.turn) = (Some(room.log.claim), Some(room.turn));
    }
}

impl Prepared {
    /// Blocks that may go to the log.
    fn logged(&self) -> u64 {
        match self {
            Prepared::Packed(packing) => packing.sizes_left().len() as u64,
            Prepared::Bare { count, lines, .. } => {
                count.saturating_sub(lines.as_ref().map_or(0, PlacesClaim::count))
            }
        }
    }

    fn units_in_lines(&self) -> u64 {
        match self {
            Prepared::Packed(packing) => packing.units_in_lines(),
            Prepared::Bare { lines, .. } => lines.as_ref().map_or(0, PlacesClaim::units),
        }
    }
}

impl LocalVolume {
    /// Writes what a move brings, past the gate: it is less than the gate lets in, and clients of the volume wait for it.
    pub async fn write_moved(&self, at: u64, data: Vec<Buf>) -> Result<(), IoError> {
        let active = self.begin_change()?;
        self.check(at, length(&data) as u64)?;
        self.throttle().await;
        let changing = self.dataset.begin_change().await?;
        let admitted = Admitted { _active: active, _changing: changing, pass: None };
        self.write_admitted(admitted, at, data, false).await
    }

    pub async fn write(&self, at: u64, data: Vec<Buf>, fua: bool) -> Result<(), IoError> {
        let admitted = self.admit(at, length(&data)).await?;
        self.write_admitted(admitted, at, data, fua).await
    }

    pub async fn write_admitted(
        &self,
        admitted: Admitted,
        at: u64,
        data: Vec<Buf>,
        fua: bool,
    ) -> Result<(), IoError> {
        let len = length(&data);
        if len == 0 {
            return Ok(());
        }
        let (first, last) = self.blocks(at, len as u64);
        self.shard.note_written(&self.dataset, first..last + 1);
        let prepared = self.dataset.aside(self.prepare(at, data, last - first + 1)).await?;
        let locked = self.lock_for_write(at, len, prepared, fua, None).await?;
        self.queue_admitted(admitted, locked.expect("nothing was to be compared")).await
    }

    /// Writes whole blocks from `first` on in the forms that they have, whatever the volume's compression is.
    pub(crate) async fn write_blocks(&self, first: u64, blocks: Vec<Block>) -> Result<(), IoError> {
        let block_bytes = self.dataset.block_bytes();
        let (at, len) = (first * block_bytes as u64, blocks.len() * block_bytes);
        let admitted = self.admit(at, len).await?;
        let dealing = self.shard.deal_lines(&self.dataset, Packing::new(blocks));
        let packing = self.dataset.aside(dealing).await?;
        let locked = self.lock_for_write(at, len, Prepared::Packed(packing), false, None).await?;
        self.queue_admitted(admitted, locked.expect("nothing was to be compared")).await
    }

    /// Locks the blocks of a write and makes its entry, with room in the log and places. Where there are none at hand, it waits for them with nothing
    /// held. Does nothing when there is not what is `expected`: gives the first byte that differs.
    async fn lock_for_write(
        &self,
        at: u64,
        len: usize,
        mut prepared: Prepared,
        fua: bool,
        expected: Option<&Buf>,
    ) -> Result<Result<Locked<'_>, usize>, IoError> {
        let (first, last) = self.blocks(at, len as u64);
        let nodes = self.dataset.nodes_over(once(first..last + 1));
        let mut places = PlacesClaim::none(&self.shard);
        let (mut turn, mut has_waited) = (None, false);
        loop {
            let room = self.claim(len, prepared.logged(), self.is_durable(fua)).await?;
            // While it stood aside, the volume may have gone back to what it was, and be smaller.
            self.check(at, len as u64)?;
            let guard = self.dataset.locks.lock(first, last).await;
            if let Some(expected) = expected
                && let Some(byte) = self.compare(at, expected, first, last).await?
            {
                return Ok(Err(byte));
            }
            match self.entry(at, first..last + 1, &mut prepared, room, fua, &mut places).await {
                Ok(Some((entry, wait))) => {
                    drop(turn);
                    return Ok(Ok(Locked { guard, entry, wait }));
                }
                Ok(None) | Err(IoError::NoSpace) if !has_waited => drop(guard),
                Ok(None) => return Err(self.shard.why_none()),
                Err(error) => return Err(error),
            }
            // What was found goes back: others may need just that.
            places.give_back();
            has_waited = true;
            let searching = async {
                if self.dataset.claim() == Claim::Reserved {
                    // What is held is enough for one at a time.
                    turn = Some(self.shard.reserved_turn.lock(0, 0).await);
                }
                self.find_places(&mut prepared, nodes).await
            };
            match self.dataset.aside(searching).await {
                Ok(found) => places = found,
                // What it is packed to, once it is complete, may find a place all the same.
                Err(IoError::NoSpace) if self.packs_later(&prepared) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Queues a write, and waits until it can be acknowledged.
    async fn queue_admitted(&self, admitted: Admitted, locked: Locked<'_>) -> Result<(), IoError> {
        let (Admitted { _active, _changing, pass }, Locked { guard, mut entry, wait }) = (admitted, locked);
        // What parts are parts of, nobody knows before they are applied. Until then the block stays locked: what moves it to its place would not know of
        // them, and write to a place that they have given back. So they are waited for, also where the policy has changed meanwhile and nobody has to.
        let has_parts = entry.changes.iter().any(|change| matches!(change, Change::Parts { .. }));
        // Past the gate, only writes that are waited for are bounded. And after the log has given up, a write must not be acknowledged before it has failed.
        let wait = wait || pass.is_none() || has_parts || self.shard.ending.get() >= Ending::GaveUp;
        entry.pass = pass;
        let done = self.queue(entry, wait);
        let _guard = has_parts.then_some(guard);
        finish(done).await
    }

    /// Does with a write of `count` blocks what can be done before they are locked: packs them and claims lines for them.
    async fn prepare(&self, at: u64, data: Vec<Buf>, count: u64) -> Result<Prepared, IoError> {
        let (shard, block_bytes) = (&self.shard, self.dataset.block_bytes());
        let packs = self.dataset.compression() != Compression::Off;
        if packs && self.is_whole(at, &data) {
            let packing = shard.pack_all(&self.dataset, data).await;
            return Ok(Prepared::Packed(shard.deal_lines(&self.dataset, packing).await?));
        }
        // What has to be completed first is packed when it is. It must all fit into the log then.
        let lines = match packs && shard.fits_into_log(count, block_bytes) {
            true => None,
            false => {
                let (units, claim) = ((block_bytes as u64 / UNIT) as u32, self.dataset.claim());
                Some(shard.claim_lines(units, count, block_bytes, claim).await?)
            }
        };
        Ok(Prepared::Bare { data, count, lines })
    }

    /// Room in the log for a write of `asked` bytes of which `blocks` blocks have no lines of their own. Their data goes to the log first if a client waits for
    /// little, and the log has disks of its own, or it is the only one that waits, or its latency goal is in danger; and where there is parity.
    pub async fn claim_log(&self, asked: usize, blocks: u64, durable: bool) -> Result<LogRoom, IoError> {
        let (shard, bytes) = (&self.shard, blocks as usize * self.dataset.block_bytes());
        let is_small = asked <= IN_LOG_BYTES_MAX && shard.fits_into_log(blocks, self.dataset.block_bytes());
        let is_waited_for = durable && asked <= ALONE_BYTES_MAX && bytes <= IN_LOG_BYTES_MAX;
        let is_alone = is_waited_for && shard.is_quiet();
        // A small window is one that goals are in danger with.
        let is_pressed = is_waited_for && self.flow().has_goal() && !shard.shared.turns.is_wide_open();
        let goes_first = shard.data_in_log || is_alone || is_pressed;
        let has_lines = shard.space.borrow().has_lines();
        if has_lines && !shard.fits_into_log(blocks, self.dataset.block_bytes()) {
            // Neither whole lines nor the log take it, however long it waits.
            return Err(shard.why_none());
        }
        let takes_data = (is_small && goes_first) || has_lines;
        let bytes = if takes_data { bytes } else { 0 };
        let claim = match shard.claim_staging_room(bytes) {
            Some(claim) => claim,
            None => {
                let began = shard.rt.now();
                let claim = shard.staging_room(bytes).await?;
                self.flow().tally.waited_for_room(shard.rt.now().since(began));
                claim
            }
        };
        Ok(LogRoom { claim, takes_data, takes_parts: is_small && goes_first && is_alone })
    }

    /// What a write of `bytes` waits for before it locks its blocks.
    async fn claim(&self, bytes: usize, logged: u64, durable: bool) -> Result<Room, IoError> {
        // The log first: while it is full, nobody's turn passes unused.
        let log = self.dataset.aside(self.claim_log(bytes, logged, durable)).await?;
        Ok(Room { turn: self.flow().turn(Work::write(bytes as u64, 1)).await, log })
    }

    /// Whether a write with this `fua` is acknowledged only when it is durable.
    pub fn is_durable(&self, fua: bool) -> bool {
        match self.sync() {
            SyncPolicy::Always => true,
            SyncPolicy::Standard => fua && !active(Bug::FuaIgnored),
            SyncPolicy::Disabled => false,
        }
    }

    /// Makes the entry of a write whose blocks are locked, large data written already; also whether its acknowledgement waits for it. Nothing when
    /// the places at hand, besides those that it has, do not suffice. The caller queues it without waiting for anything in between.
    async fn entry(
        &self,
        at: u64,
        blocks: Range<u64>,
        prepared: &mut Prepared,
        room: Room,
        fua: bool,
        places: &mut PlacesClaim,
    ) -> Result<Option<(Entry, bool)>, IoError> {
        let (shard, claim, block_bytes) = (&self.shard, self.dataset.claim(), self.dataset.block_bytes());
        let nodes = self.dataset.nodes_over(once(blocks.clone()));
        let mut merged;
        let in_parts = room.log.takes_parts && self.comes_in_parts(at, prepared);
        let prepared = match prepared {
            unpacked if !in_parts && self.packs_later(unpacked) => {
                let Prepared::Bare { data, .. } = unpacked else { unreachable!("it is not packed") };
                let mut packing = shard.pack_all(&self.dataset, self.merge(at, data, &blocks).await?).await;
                if places.count() > 0 {
                    // They are for whole blocks: nobody knew what these would take.
                    packing.make_whole();
                }
                merged = Prepared::Packed(packing);
                &mut merged
            }
            prepared => prepared,
        };
        let (changes, lines, nodes) = match prepared {
            Prepared::Packed(packing) => {
                let sizes = packing.sizes_left();
                let nodes = self.at_hand(&Wanted::Each(&sizes), nodes, claim, places).await?;
                let Some(nodes) = nodes else { return Ok(None) };
                let packing = std::mem::take(packing);
                let places = places.take_first(sizes.len());
                let (changes, lines) =
                    packing.changes(&self.dataset, blocks.start, places, room.log.takes_data);
                (changes, lines, nodes)
            }
            Prepared::Bare { data, count, .. } if in_parts => {
                let wanted = Wanted::whole(block_bytes, *count as usize);
                let Some(nodes) = self.at_hand(&wanted, nodes, claim, places).await? else {
                    return Ok(None);
                };
                (self.parts(at, data, places.take_first(*count as usize)), Vec::new(), nodes)
            }
            Prepared::Bare { data, count, lines } => {
                let merged = match self.is_whole(at, data) {
                    true => None,
                    false => Some(self.merge(at, data, &blocks).await?),
                };
                let in_lines = lines.as_ref().map_or(0, PlacesClaim::count).min(*count) as usize;
                let logged = *count as usize - in_lines;
                let wanted = Wanted::whole(block_bytes, logged);
                let Some(nodes) = self.at_hand(&wanted, nodes, claim, places).await? else {
                    return Ok(None);
                };
                let mut lines = lines.take().filter(|lines| lines.count() > 0);
                let ptrs = match &mut lines {
                    Some(lines) => [lines.take_first(in_lines), places.take_first(logged)].concat(),
                    None => places.take_first(logged),
                };
                let parts = merged.unwrap_or_else(|| std::mem::take(data));
                // The first blocks go straight to the data disks, the others to the log.
                let direct = if room.log.takes_data { in_lines } else { ptrs.len() };
                (self.changes(blocks.start, parts, ptrs, direct), lines.into_iter().collect(), nodes)
            }
        };
        let mut entry = Entry::new(shard.entry_id(), changes, self.is_durable(fua));
        (entry.nodes, entry.lines) = (Some(nodes), lines);
        entry.takes(self.flow(), room);
        if entry.stored_bytes() >= AHEAD_BYTES {
            shard.write_ahead(&mut entry).await;
            // The policy that counts is the one when it is queued.
            entry.durable |= self.is_durable(fua);
        }
        let durable = entry.durable;
        Ok(Some((entry, durable)))
    }

    /// Whether it can go to the log just as it came, and some of its blocks are not whole.
    fn comes_in_parts(&self, at: u64, prepared: &Prepared) -> bool {
        let Prepared::Bare { data, lines, .. } = prepared else { return false };
        lines.as_ref().is_none_or(|lines| lines.count() == 0) && !self.is_whole(at, data)
    }

    /// Whether it is packed when its blocks are complete.
    fn packs_later(&self, prepared: &Prepared) -> bool {
        matches!(prepared, Prepared::Bare { lines: None, .. })
            && self.dataset.compression() != Compression::Off
    }

    /// What writes parts of whole blocks from `first` on to these places: the `direct` first ones at once, the others by way of the log.
    fn changes(&self, first: u64, parts: Vec<Buf>, mut ptrs: Vec<Ptr>, direct: usize) -> Vec<Change> {
        let block_bytes = self.dataset.block_bytes();
        let (parts, logged) = split(parts, direct * block_bytes);
        let logged_places = ptrs.split_off(direct);
        let mut changes = Vec::with_capacity(1);
        if direct > 0 {
            let blocks = parts.iter().flat_map(|part| part.chunks_exact(block_bytes));
            ptrs.iter_mut().zip(blocks).for_each(|(ptr, block)| ptr.sum = Checksum::of(block));
            let dataset = self.dataset.clone();
            changes.push(Change::Write { dataset, first, ptrs, parts, stored: Vec::new(), destage: false });
        }
        if !logged_places.is_empty() {
            let slices = |part: &Buf| {
                let part = part.clone();
                (0..part.len()).step_by(block_bytes).map(move |at| Block::whole(part.slice(at, block_bytes)))
            };
            let blocks = logged.iter().flat_map(slices).zip(logged_places.into_iter().map(Some)).collect();
            let (dataset, first) = (self.dataset.clone(), first + direct as u64);
            changes.push(Change::Data { dataset, first, blocks });
        }
        changes
    }

    /// What writes `data` just as it came by way of the log: what of it is not a whole block, as parts of blocks.
    fn parts(&self, at: u64, data: &[Buf], places: Vec<Ptr>) -> Vec<Change> {
        let block_bytes = self.dataset.block_bytes();
        let mut cutter = Cutter::new(&self.shard.rt, data.to_vec());
        let (first, mut skip) = (at / block_bytes as u64, (at % block_bytes as u64) as usize);
        let piece = |(block, place): (u64, Ptr)| {
            let from = std::mem::take(&mut skip);
            let mut piece = self.shard.rt.arena().take(cutter.left().min(block_bytes - from));
            cutter.copy_to(&mut piece);
            let (dataset, piece) = (self.dataset.clone(), piece.freeze());
            match piece.len() == block_bytes {
                true => {
                    Change::Data { dataset, first: block, blocks: vec![(Block::whole(piece), Some(place))] }
                }
                false => Change::Parts { dataset, block, parts: vec![(from as u32, piece)], place },
            }
        };
        (first..).zip(places).map(piece).collect()
    }

    /// [`crate::shard::Shard::at_hand`]. It may wait for nodes, which come with a checkpoint: one that waits for this write can see that.
    async fn at_hand(
        &self,
        wanted: &Wanted<'_>,
        nodes: u64,
        claim: Claim,
        places: &mut PlacesClaim,
    ) -> Result<Option<NodesClaim>, IoError> {
        let _lacking = self.dataset.lacking();
        self.shard.at_hand(wanted, nodes, claim, places).await
    }

    /// Waits for the places that a write lacks, with nothing held, and makes sure that there are nodes for it. Where there is room for whole blocks
    /// only, they are stored as they are.
    async fn find_places(&self, prepared: &mut Prepared, nodes: u64) -> Result<PlacesClaim, IoError> {
        let (shard, claim) = (&self.shard, self.dataset.claim());
        // Its lines are no reason for it, or for others who wait like it, to wait any longer.
        let _waiting = Waiting::new(shard, prepared.units_in_lines());
        let found = match prepared {
            Prepared::Bare { .. } => {
                let wanted = Wanted::whole(self.dataset.block_bytes(), prepared.logged() as usize);
                shard.allocate(&wanted, nodes, claim).await
            }
            Prepared::Packed(packing) => {
                let sizes = packing.sizes_left();
                match shard.allocate(&Wanted::Each(&sizes), nodes, claim).await {
                    Err(IoError::NoSpace) if sizes.iter().any(|size| !size.is_whole()) => {
                        packing.make_whole();
                        shard.allocate(&Wanted::Each(&packing.sizes_left()), nodes, claim).await
                    }
                    found => found,
                }
            }
        };
        found.map(|(places, _)| places)
    }

    /// Whether parts of a write are whole blocks which a disk can take from where they are.
    fn is_whole(&self, at: u64, data: &[Buf]) -> bool {
        let block_bytes = self.dataset.block_bytes();
        let whole =
            |part: &Buf| !part.is_empty() && part.len().is_multiple_of(block_bytes) && is_aligned(part);
        at.is_multiple_of(block_bytes as u64) && data.iter().all(whole)
    }

    /// `data` in parts of whole blocks, the ends completed with what is there.
    async fn merge(&self, at: u64, data: &[Buf], blocks: &Range<u64>) -> Result<Vec<Buf>, IoError> {
        let block_bytes = self.dataset.block_bytes();
        if self.is_whole(at, data) {
            return Ok(data.to_vec());
        }
        let mut cutter = Cutter::new(&self.shard.rt, data.to_vec());
        let mut parts = Vec::with_capacity(1);
        let (mut block, mut skip) = (blocks.start, (at - blocks.start * block_bytes as u64) as usize);
        while block < blocks.end {
            let len = cutter.left().min(block_bytes - skip);
            if len == block_bytes {
                let part = cutter.take(block_bytes);
                block += (part.len() / block_bytes) as u64;
                parts.push(part);
            } else {
                let mut whole = if active(Bug::PartialBlockZeroed) {
                    self.shard.rt.arena().take_zeroed(block_bytes)
                } else {
                    let old = self.shard.read_block(&self.dataset, block, Reader::Merger).await?;
                    self.shard.rt.arena().copy(&old)
                };
                cutter.copy_to(&mut whole[skip..skip + len]);
                parts.push(whole.freeze());
                (block, skip) = (block + 1, 0);
            }
        }
        Ok(parts)
    }

    pub async fn compare_and_write(
        &self,
        admitted: Admitted,
        at: u64,
        expected: Buf,
        new: Buf,
    ) -> Result<Result<(), usize>, IoError> {
        let len = new.len();
        if len == 0 || len > COMPARE_BYTES_MAX || expected.len() != len {
            return Err(IoError::OutOfRange);
        }
        let (first, last) = self.blocks(at, len as u64);
        let count = last - first + 1;
        // A compare may fail many times in a row: only a write that does not fit into the log claims lines before it.
        let prepared = match self.shard.fits_into_log(count, self.dataset.block_bytes()) {
            true => Prepared::Bare { data: vec![new], count, lines: None },
            false => self.dataset.aside(self.prepare(at, vec![new], count)).await?,
        };
        match self.lock_for_write(at, len, prepared, false, Some(&expected)).await? {
            Ok(locked) => self.queue_admitted(admitted, locked).await.map(Ok),
            Err(byte) => Ok(Err(byte)),
        }
    }

    /// The first byte of what is expected from `at` on that is another one.
    async fn compare(
        &self,
        at: u64,
        expected: &[u8],
        first: u64,
        last: u64,
    ) -> Result<Option<usize>, IoError> {
        let mut offset = 0;
        let mut skip = (at - first * u64::from(self.block_size())) as usize;
        for block in first..=last {
            let data = self.shard.read_block(&self.dataset, block, Reader::Merger).await?;
            let here = &data[skip..data.len().min(skip + expected.len() - offset)];
            let differs = here.iter().zip(&expected[offset..]).position(|(found, wanted)| found != wanted);
            if let Some(byte) = differs {
                return Ok(Some(offset + byte));
            }
            offset += here.len();
            skip = 0;
        }
        Ok(None)
    }
}

/// Whether a disk can take the bytes from where they lie: O_DIRECT wants memory aligned to the logical sector.
fn is_aligned(part: &Buf) -> bool {
    part.as_ptr().addr().is_multiple_of(4096)
}

/// The first `at` bytes of `parts`, and the rest.
fn split(mut parts: Vec<Buf>, at: usize) -> (Vec<Buf>, Vec<Buf>) {
    let mut before = 0;
    let cut = parts.iter().position(|part| {
        before += part.len();
        before > at
    });
    let Some(cut) = cut else { return (parts, Vec::new()) };
    let mut rest = parts.split_off(cut);
    let skip = at + rest[0].len() - before;
    if skip > 0 {
        parts.push(rest[0].slice(0, skip));
        rest[0] = rest[0].slice(skip, rest[0].len() - skip);
    }
    (parts, rest)
}

/// Cuts a list of parts at block boundaries, sharing memory where whole blocks lie aligned in one part.
struct Cutter<'a> {
    rt: &'a Rt,
    parts: std::vec::IntoIter<Buf>,
    current: Option<Buf>,
    at: usize,
    left: usize,
}

impl<'a> Cutter<'a> {
    fn new(rt: &'a Rt, parts: Vec<Buf>) -> Cutter<'a> {
        let left = parts.iter().map(|part| part.len()).sum();
        let mut parts = parts.into_iter();
        let current = parts.next();
        Cutter { rt, parts, current, at: 0, left }
    }

    fn left(&self) -> usize {
        self.left
    }

    /// The next block, and those behind it that are in the same part.
    fn take(&mut self, block_bytes: usize) -> Buf {
        if let Some(part) = &self.current
            && part.len() - self.at >= block_bytes
        {
            let blocks = part.slice(self.at, (part.len() - self.at) / block_bytes * block_bytes);
            if is_aligned(&blocks) {
                self.advance(blocks.len());
                return blocks;
            }
        }
        let mut block = self.rt.buffer(block_bytes);
        self.copy_to(&mut block);
        block.freeze()
    }

    fn copy_to(&mut self, mut into: &mut [u8]) {
        while !into.is_empty() {
            let part = self.current.as_ref().expect("as many bytes as the parts hold");
            let here = (part.len() - self.at).min(into.len());
            into[..here].copy_from_slice(&part[self.at..self.at + here]);
            into = &mut into[here..];
            self.advance(here);
        }
    }

    fn advance(&mut self, len: usize) {
        self.at += len;
        self.left -= len;
        if self.current.as_ref().is_some_and(|part| part.len() == self.at) {
            self.current = self.parts.next();
            self.at = 0;
        }
    }
}
