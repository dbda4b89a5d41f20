//! A volume where it is: what clients do with it, carried out on its shard. They have a [`crate::Volume`], which finds it.

use crate::commit::{AHEAD_BYTES, Change, Entry};
use crate::dataset::{Active, Changing, Dataset};
use crate::destage::LogClaim;
use crate::error::IoError;
use crate::lines::LinesClaim;
use crate::pack::{Block, Packing};
use crate::read::Reader;
use crate::record::DatasetRecord;
use crate::reserve::Claim;
use crate::shard::Shard;
use crate::signal::Pass;
use crate::spec::{Extent, SyncPolicy};
use crate::turns::{Flow, Turn};
use crate::wanted::Wanted;
use forebay_base::Checksum;
use forebay_base::planted::{Bug, active};
use forebay_compress::Compression;
use forebay_device::UNIT;
use forebay_qos::Work;
use forebay_runtime::{Buf, Completion, Rt};
use forebay_tree::{FANOUT, Found};
use std::iter::once;
use std::rc::Rc;

/// The longest read or write in bytes.
pub const IO_BYTES_MAX: usize = 32 << 20;
/// The longest compare-and-write in bytes.
const COMPARE_BYTES_MAX: usize = 1 << 20;
/// On a pool with log disks, data up to this size goes to the log first; larger data is faster on the data disks.
const IN_LOG_BYTES_MAX: usize = 64 << 10;

/// A volume in the pool and on the shard where it is. Every operation is as that of [`crate::Volume`]; once the volume has moved, or
/// is there no longer, it is `Gone`.
#[derive(Clone)]
pub(crate) struct LocalVolume {
    pub shard: Rc<Shard>,
    pub dataset: Rc<Dataset>,
}

/// A client's change that may begin.
pub(crate) struct Admitted {
    _active: Active,
    _changing: Changing,
    /// Of all but what moves bring.
    pass: Option<Pass>,
}

/// A write before its blocks are locked.
enum Prepared {
    Packed(Packing),
    /// Without lines, it is packed when its blocks are whole.
    Bare {
        data: Vec<Buf>,
        count: u64,
        lines: Option<LinesClaim>,
    },
}

/// A turn at the disks, and room in the log for a write.
pub(crate) struct Room {
    turn: Turn,
    log: LogRoom,
}

/// Room in the log for a write.
pub(crate) struct LogRoom {
    /// Nothing when no blocks can be waiting there for theirs.
    pub claim: Option<LogClaim>,
    /// Whether the data goes there as well, so far as it has no lines of its own: then there is room for all of it.
    takes_data: bool,
}

impl Entry {
    /// Keeps the room until it is over; where it goes to many places, its turn costs as much.
    fn takes(&mut self, flow: &Flow, mut room: Room) {
        flow.amend(&mut room.turn, Work::write(self.stored_bytes() as u64, self.places()));
        (self.room, self.turn) = (room.log.claim, Some(room.turn));
    }
}

impl Prepared {
    /// Blocks that may go to the log.
    fn logged(&self) -> u64 {
        match self {
            Prepared::Packed(packing) => packing.sizes_left().len() as u64,
            Prepared::Bare { count, lines, .. } => {
                count.saturating_sub(lines.as_ref().map_or(0, LinesClaim::blocks))
            }
        }
    }
}

impl LocalVolume {
    pub fn of(shard: Rc<Shard>, dataset: Rc<Dataset>) -> LocalVolume {
        LocalVolume { shard, dataset }
    }
    pub fn size(&self) -> u64 {
        self.dataset.size()
    }
    pub fn block_size(&self) -> u32 {
        self.dataset.block_bytes() as u32
    }
    pub fn sync(&self) -> SyncPolicy {
        self.dataset.sync()
    }
    pub fn is_read_only(&self) -> bool {
        self.shard.shared.import.read_only
    }

    pub fn check(&self, at: u64, len: u64) -> Result<(), IoError> {
        if at.checked_add(len).is_none_or(|end| end > self.size()) {
            Err(IoError::OutOfRange)
        } else {
            Ok(())
        }
    }

    /// Counts an operation in.
    pub fn begin(&self) -> Result<Active, IoError> {
        self.shard.served.set(self.shard.served.get() + 1);
        self.dataset.begin().ok_or(IoError::Gone)
    }

    /// Counts an operation in that changes something.
    pub fn begin_change(&self) -> Result<Active, IoError> {
        let active = self.begin()?;
        if self.is_read_only() { Err(IoError::ReadOnly) } else { Ok(active) }
    }

    /// First and last block of a range that is not empty.
    fn blocks(&self, at: u64, len: u64) -> (u64, u64) {
        let block_bytes = u64::from(self.block_size());
        (at / block_bytes, (at + len - 1) / block_bytes)
    }

    pub async fn read(&self, at: u64, len: usize) -> Result<Vec<Buf>, IoError> {
        let _active = self.begin()?;
        self.check(at, len as u64)?;
        if len > IO_BYTES_MAX {
            return Err(IoError::OutOfRange);
        }
        if len == 0 {
            return Ok(Vec::new());
        }
        let (first, last) = self.blocks(at, len as u64);
        let parts = self.shard.read_blocks(&self.dataset, first, last, Reader::Client).await?;
        let skip = (at - first * u64::from(self.block_size())) as usize;
        Ok(trim(parts, skip, len))
    }

    /// Waits a moment when the log is filling up.
    async fn throttle(&self) {
        let waited = self.shard.throttle().await;
        if !waited.is_zero() {
            self.flow().tally.waited_for_room(waited.as_nanos() as u64);
        }
    }

    /// Waits for its place among the writes that the shard has taken in.
    async fn enter(&self, len: usize) -> Pass {
        let flow = self.flow();
        let gate = if flow.has_floor() { &self.shard.gate_of_promised } else { &self.shard.gate };
        if let Some(pass) = gate.try_enter(len) {
            return pass;
        }
        let asked = self.shard.rt.now();
        let pass = gate.enter(len).await;
        flow.tally.waited_for_turn(self.shard.rt.now().since(asked));
        pass
    }

    /// Waits until a change of `len` bytes from `at` may begin.
    pub async fn admit(&self, at: u64, len: usize) -> Result<Admitted, IoError> {
        let active = self.begin_change()?;
        self.check(at, len as u64)?;
        self.dataset.check_quota()?;
        if len > IO_BYTES_MAX {
            return Err(IoError::OutOfRange);
        }
        let mut pass = self.enter(len).await;
        self.throttle().await;
        let changing = match self.dataset.try_change()? {
            Some(changing) => changing,
            None => {
                // Others need the place at the gate, and among them may be who ends this wait.
                drop(pass);
                let asked = self.shard.rt.now();
                let changing = self.dataset.begin_change().await?;
                self.flow().tally.was_paused(self.shard.rt.now().since(asked));
                pass = self.enter(len).await;
                changing
            }
        };
        // It may have gone back to what it was, and be smaller.
        self.check(at, len as u64)?;
        Ok(Admitted { _active: active, _changing: changing, pass: Some(pass) })
    }

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
        let prepared = self.prepare(at, data, last - first + 1).await?;
        let room = self.claim(len, prepared.logged()).await?;
        let guard = self.dataset.locks.lock(first, last).await;
        let (mut entry, wait) = match prepared {
            Prepared::Packed(packing) => self.packed_entry(first, packing, room, fua).await?,
            Prepared::Bare { data, lines, .. } => {
                let parts = self.merge(at, data, first, last).await?;
                self.write_entry(first, parts, lines, room, fua).await?
            }
        };
        let Admitted { _active, _changing, pass } = admitted;
        // Past the gate, only who waits for what he has written is bounded.
        let wait = wait || pass.is_none();
        entry.pass = pass;
        let done = self.queue(entry, wait);
        drop(guard);
        finish(done).await
    }

    /// Writes whole blocks from `first` on in the forms that they have, whatever the volume's compression is.
    pub(crate) async fn write_blocks(&self, first: u64, blocks: Vec<Block>) -> Result<(), IoError> {
        let count = blocks.len() as u64;
        let (block_bytes, packing) = (self.dataset.block_bytes(), Packing::new(blocks));
        let Admitted { _active, _changing, pass } =
            self.admit(first * block_bytes as u64, count as usize * block_bytes).await?;
        let packing = self.shard.deal_lines(&self.dataset, packing).await?;
        let room = self.claim(count as usize * block_bytes, packing.sizes_left().len() as u64).await?;
        let guard = self.dataset.locks.lock(first, first + count - 1).await;
        let (mut entry, wait) = self.packed_entry(first, packing, room, false).await?;
        entry.pass = pass;
        let done = self.queue(entry, wait);
        drop(guard);
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

    /// Room in the log for a write of which `blocks` blocks have no lines of their own. Their data goes to the log first if it is small, and
    /// where there is parity.
    pub async fn claim_log(&self, blocks: u64) -> Result<LogRoom, IoError> {
        let (shard, bytes) = (&self.shard, blocks as usize * self.dataset.block_bytes());
        if !shard.data_in_log {
            return Ok(LogRoom { claim: None, takes_data: false });
        }
        let takes_data = bytes <= IN_LOG_BYTES_MAX || shard.space.borrow().has_lines();
        let asked = shard.rt.now();
        let claim = shard.staging_room(if takes_data { bytes } else { 0 }).await?;
        self.flow().tally.waited_for_room(shard.rt.now().since(asked));
        Ok(LogRoom { claim: Some(claim), takes_data })
    }

    /// What a write of `bytes` waits for before it locks its blocks.
    async fn claim(&self, bytes: usize, logged: u64) -> Result<Room, IoError> {
        // The log first: while it is full, nobody's turn passes unused.
        let log = self.claim_log(logged).await?;
        Ok(Room { turn: self.flow().turn(Work::write(bytes as u64, 1)).await, log })
    }

    /// Queues an entry; gives what to wait for, if the caller must.
    pub fn queue(&self, mut entry: Entry, wait: bool) -> Option<Completion<Result<(), IoError>>> {
        let done = wait.then(|| entry.awaited());
        self.shard.submit(entry);
        done
    }

    /// Whether a write with this `fua` is acknowledged only when it is durable.
    fn is_durable(&self, fua: bool) -> bool {
        match self.sync() {
            SyncPolicy::Always => true,
            SyncPolicy::Standard => fua && !active(Bug::FuaIgnored),
            SyncPolicy::Disabled => false,
        }
    }

    /// Allocates places for parts of whole blocks and makes the entry that writes them, large data written already; also whether
    /// its acknowledgement waits for it. The caller holds the blocks' lock and queues the entry without waiting for anything in
    /// between. Without `lines`, the blocks are packed first.
    async fn write_entry(
        &self,
        first: u64,
        parts: Vec<Buf>,
        lines: Option<LinesClaim>,
        room: Room,
        fua: bool,
    ) -> Result<(Entry, bool), IoError> {
        if lines.is_none() && self.dataset.compression() != Compression::Off {
            let packing = self.shard.pack_all(&self.dataset, parts).await;
            return self.packed_entry(first, packing, room, fua).await;
        }
        let durable = self.is_durable(fua);
        let block_bytes = self.dataset.block_bytes();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let count = bytes / block_bytes;
        let nodes = self.dataset.nodes_over(once(first..first + count as u64));
        let in_lines = count.min(lines.as_ref().map_or(0, LinesClaim::blocks) as usize);
        let wanted = Wanted::whole(block_bytes, count - in_lines);
        let (places, nodes) = self.shard.allocate(&wanted, nodes, self.dataset.claim()).await?;
        let mut lines: Vec<LinesClaim> = lines.into_iter().collect();
        let mut ptrs = lines.first_mut().map_or(Vec::new(), |lines| lines.take_first(in_lines));
        ptrs.extend(places);
        // The first blocks go straight to the data disks, the others to the log.
        let direct = if room.log.takes_data { in_lines } else { count };
        let (parts, logged) = split(parts, direct * block_bytes);
        let logged_places = ptrs.split_off(direct);
        let mut changes = Vec::with_capacity(1);
        if direct > 0 {
            let blocks = parts.iter().flat_map(|part| part.chunks_exact(block_bytes));
            ptrs.iter_mut().zip(blocks).for_each(|(ptr, block)| ptr.sum = Checksum::of(block));
            let dataset = self.dataset.clone();
            changes.push(Change::Write { dataset, first, ptrs, parts, stored: Vec::new(), destage: false });
        }
        if direct < count {
            let slices = |part: &Buf| {
                let part = part.clone();
                (0..part.len()).step_by(block_bytes).map(move |at| Block::whole(part.slice(at, block_bytes)))
            };
            let blocks = logged.iter().flat_map(slices).zip(logged_places.into_iter().map(Some)).collect();
            let (dataset, first) = (self.dataset.clone(), first + direct as u64);
            changes.push(Change::Data { dataset, first, blocks });
        }
        let mut entry = Entry::new(self.shard.entry_id(), changes, durable);
        (entry.nodes, entry.lines) = (Some(nodes), lines);
        entry.takes(self.flow(), room);
        if entry.stored_bytes() >= AHEAD_BYTES {
            self.shard.write_ahead(&mut entry).await;
        }
        Ok((entry, durable))
    }

    /// The same for blocks that are packed: each goes to its place or to the log, and those of zeros nowhere. Where there is room for
    /// whole blocks only, they go there.
    async fn packed_entry(
        &self,
        first: u64,
        mut packing: Packing,
        room: Room,
        fua: bool,
    ) -> Result<(Entry, bool), IoError> {
        let durable = self.is_durable(fua);
        let nodes = self.dataset.nodes_over(once(first..first + packing.blocks()));
        let sizes = packing.sizes_left();
        let allocated = self.shard.allocate(&Wanted::Each(&sizes), nodes, self.dataset.claim()).await;
        let (places, nodes) = match allocated {
            Err(IoError::NoSpace) if sizes.iter().any(|size| !size.is_whole()) => {
                packing.make_whole();
                let sizes = packing.sizes_left();
                self.shard.allocate(&Wanted::Each(&sizes), nodes, self.dataset.claim()).await?
            }
            allocated => allocated?,
        };
        let (changes, lines) = packing.changes(&self.dataset, first, places, room.log.takes_data);
        let mut entry = Entry::new(self.shard.entry_id(), changes, durable);
        (entry.nodes, entry.lines) = (Some(nodes), lines);
        entry.takes(self.flow(), room);
        if entry.stored_bytes() >= AHEAD_BYTES {
            self.shard.write_ahead(&mut entry).await;
        }
        Ok((entry, durable))
    }

    /// Whether parts of a write are whole blocks which a disk can take from where they are.
    fn is_whole(&self, at: u64, data: &[Buf]) -> bool {
        let block_bytes = self.dataset.block_bytes();
        let whole =
            |part: &Buf| !part.is_empty() && part.len().is_multiple_of(block_bytes) && is_aligned(part);
        at.is_multiple_of(block_bytes as u64) && data.iter().all(whole)
    }

    /// `data` in parts of whole blocks, `first..=last` in all, the ends completed with what is there.
    async fn merge(&self, at: u64, data: Vec<Buf>, first: u64, last: u64) -> Result<Vec<Buf>, IoError> {
        let block_bytes = self.dataset.block_bytes();
        if self.is_whole(at, &data) {
            return Ok(data);
        }
        let mut cutter = Cutter::new(&self.shard.rt, data);
        let mut parts = Vec::with_capacity(1);
        let (mut block, mut skip) = (first, (at - first * block_bytes as u64) as usize);
        while block <= last {
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

    pub async fn flush(&self) -> Result<(), IoError> {
        let _active = self.begin()?;
        if self.shard.is_suspended() {
            return Err(IoError::Suspended);
        }
        // What is acknowledged under `always` is durable; under `disabled`, nobody asked; read-only, there is nothing.
        if self.sync() != SyncPolicy::Standard || self.is_read_only() || active(Bug::FuaIgnored) {
            return Ok(());
        }
        let entry = Entry::new(self.shard.entry_id(), Vec::new(), true);
        finish(self.queue(entry, true)).await
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
        let room = self.claim(len, last - first + 1).await?;
        let guard = self.dataset.locks.lock(first, last).await;
        let mut offset = 0;
        let mut skip = (at - first * u64::from(self.block_size())) as usize;
        for block in first..=last {
            let data = self.shard.read_block(&self.dataset, block, Reader::Merger).await?;
            let here = &data[skip..data.len().min(skip + len - offset)];
            let differs = here.iter().zip(&expected[offset..]).position(|(found, wanted)| found != wanted);
            if let Some(byte) = differs {
                return Ok(Err(offset + byte));
            }
            offset += here.len();
            skip = 0;
        }
        let parts = self.merge(at, vec![new], first, last).await?;
        let (mut entry, wait) = self.write_entry(first, parts, None, room, false).await?;
        let Admitted { _active, _changing, pass } = admitted;
        entry.pass = pass;
        let done = self.queue(entry, wait);
        drop(guard);
        finish(done).await.map(Ok)
    }

    pub async fn status(&self, at: u64, len: u64, extents_max: usize) -> Result<Vec<Extent>, IoError> {
        let _active = self.begin()?;
        self.extents(at, len, extents_max, Reader::Client).await
    }

    /// The same for any reader.
    pub async fn extents(
        &self,
        at: u64,
        len: u64,
        extents_max: usize,
        reader: Reader,
    ) -> Result<Vec<Extent>, IoError> {
        self.check(at, len)?;
        if len == 0 || extents_max == 0 {
            return Ok(Vec::new());
        }
        let block_bytes = u64::from(self.block_size());
        let (mut block, last) = self.blocks(at, len);
        let mut extents: Vec<Extent> = Vec::new();
        let mut position = at;
        while block <= last {
            // Empty leaves are passed over at a stride; what is only in memory counts as data.
            let leaf = self.dataset.tree.borrow().next_leaf(block / FANOUT);
            let next = leaf.map_or(last + 1, |leaf| (leaf * FANOUT).clamp(block, last + 1));
            let (mapped, until) = if next > block && !self.dataset.has_newer(block, next) {
                (false, next)
            } else {
                (self.shard.is_mapped(&self.dataset, block, reader).await?, block + 1)
            };
            let end = (until * block_bytes).min(at + len);
            let full = extents.len() == extents_max;
            match extents.last_mut() {
                Some(extent) if extent.mapped == mapped => extent.len += end - position,
                _ if full => break,
                _ => extents.push(Extent { len: end - position, mapped }),
            }
            position = end;
            block = until;
        }
        Ok(extents)
    }

    /// Changes the volume's properties; durable when done.
    pub(crate) async fn put(&self, change: impl FnOnce(&mut DatasetRecord)) -> Result<(), IoError> {
        // A change starts from what the one before it left: two at once would undo each other, and a resize a deletion.
        let _turn = self.dataset.properties.lock(0, 0).await;
        if self.dataset.gone.get() {
            return Err(IoError::Gone);
        }
        let mut record = self.dataset.record.borrow().clone();
        record.mapped = self.dataset.tree.borrow().mapped();
        change(&mut record);
        let height = forebay_tree::height_for(record.blocks());
        let nodes = self.shard.reserve_nodes(u64::from(height) + 1, Claim::Urgent).await?;
        let mut entry = Entry::new(self.shard.entry_id(), vec![Change::put(record)], true);
        entry.nodes = Some(nodes);
        finish(self.queue(entry, true)).await
    }
}

impl Shard {
    async fn is_mapped(&self, dataset: &Dataset, block: u64, reader: Reader) -> Result<bool, IoError> {
        if dataset.newest(block, true).is_some() {
            return Ok(true);
        }
        match dataset.tree.borrow().lookup(block) {
            Found::Hole => return Ok(false),
            Found::At(_) => return Ok(true),
            Found::Unloaded { .. } => {}
        }
        self.locate_mapped(dataset, block, reader).await
    }
}

/// Whether a disk can take the bytes from where they lie: O_DIRECT wants memory aligned to the logical sector.
fn is_aligned(part: &Buf) -> bool {
    part.as_ptr().addr().is_multiple_of(4096)
}

pub(crate) fn length(data: &[Buf]) -> usize {
    data.iter().map(|part| part.len()).sum()
}

pub(crate) async fn finish(done: Option<Completion<Result<(), IoError>>>) -> Result<(), IoError> {
    match done {
        Some(done) => done.await,
        None => Ok(()),
    }
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

/// The bytes `skip..skip + len` of `parts`.
fn trim(mut parts: Vec<Buf>, mut skip: usize, mut len: usize) -> Vec<Buf> {
    if let [only] = &mut parts[..]
        && skip == 0
        && only.len() == len
    {
        return parts;
    }
    let mut out = Vec::with_capacity(parts.len());
    for part in parts {
        let from = skip.min(part.len());
        let here = (part.len() - from).min(len);
        if here > 0 {
            out.push(part.slice(from, here));
        }
        skip -= from;
        len -= here;
    }
    out
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
