//! Blocks that are given back: those that clients discard, and those that hold nothing but zeros.

use crate::Engine;
use crate::control::Control;
use crate::destage::LogClaim;
use crate::entry::{Change, Entry};
use crate::error::{Error, ErrorKind, IoError};
use crate::progress::WorkProgress;
use crate::read::Reader;
use crate::reserve::Claim;
use crate::spec::{VolumeFormat, VolumeInfo};
use crate::volume::{LocalVolume, finish};
use async_recursion::async_recursion as boxed;
use forebay_base::planted::{Bug, active};
use forebay_qos::{Task, Work};
use forebay_runtime::Buf;
use forebay_tree::FANOUT;
use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

/// Leaves that one clear record may touch: what its application costs at once, without giving others a turn.
const CLEAR_LEAVES_MAX: u64 = 256;
/// No record of the log clears more.
pub(crate) const CLEAR_BLOCKS_MAX: u64 = CLEAR_LEAVES_MAX * FANOUT;
/// Bytes that are searched for zeros at a time.
const SCAN_BYTES: u64 = 1 << 20;

impl LocalVolume {
    pub async fn discard(&self, at: u64, len: u64, fua: bool) -> Result<(), IoError> {
        let _active = self.begin_change()?;
        self.check(at, len)?;
        let block_bytes = u64::from(self.block_size());
        let (first, end) = (at.div_ceil(block_bytes), (at + len) / block_bytes);
        self.clear(first, end, fua).await
    }

    /// Clears the blocks `first..end`, visiting only leaves that exist.
    async fn clear(&self, first: u64, end: u64, fua: bool) -> Result<(), IoError> {
        let (mut at, mut has_cleared) = (first, false);
        while at < end {
            if self.shard.stopping.get() {
                return Err(IoError::Gone);
            }
            // What failed may be on disk all the same, and come back: that nothing is here now says nothing.
            if self.shard.is_suspended() {
                return Err(IoError::Suspended);
            }
            match self.shard.next_block(&self.dataset, at, end).await? {
                Some(found) => at = found,
                None => break,
            }
            let to = end.min((at / FANOUT + CLEAR_LEAVES_MAX) * FANOUT);
            let _changing = self.dataset.begin_change().await?;
            let room = self.dataset.aside(self.room_to_clear()).await?;
            if room.is_none() && self.shard.is_log_full() {
                return Err(IoError::NoSpace);
            }
            let end = end.min(self.dataset.record.borrow().blocks());
            if at >= end {
                return Err(IoError::OutOfRange);
            }
            let to = to.min(end);
            let _guard = self.dataset.locks.lock(at, to - 1).await;
            self.clear_locked(at..to, room, fua).await?;
            (at, has_cleared) = (to, true);
        }
        // What is a hole in memory may not be one on disk yet.
        match has_cleared || !self.is_durable(fua) || active(Bug::HolesTakenForDurable) {
            true => Ok(()),
            false => self.flush_acknowledged().await,
        }
    }

    /// Without room it goes on all the same: it may be what makes room.
    async fn room_to_clear(&self) -> Result<Option<LogClaim>, IoError> {
        match self.claim_log(0, 0, false).await {
            Ok(room) => Ok(Some(room.claim)),
            Err(IoError::NoSpace) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Clears blocks that the caller has locked, at once.
    async fn clear_locked(
        &self,
        blocks: Range<u64>,
        room: Option<LogClaim>,
        fua: bool,
    ) -> Result<(), IoError> {
        let nodes = self.dataset.nodes_over(once(blocks.clone()));
        let lacking = self.dataset.lacking();
        let nodes = self.shard.reserve_nodes(nodes, Claim::Urgent).await?;
        drop(lacking);
        let (dataset, first, count) = (self.dataset.clone(), blocks.start, blocks.end - blocks.start);
        let durable = self.is_durable(fua);
        let mut entry =
            Entry::new(self.shard.entry_id(), vec![Change::Clear { dataset, first, count }], durable);
        (entry.nodes, entry.room) = (Some(nodes), room);
        // Until it is applied, later writes to these blocks must wait: nothing in memory says that they are zeros.
        finish(self.queue(entry, true)).await
    }

    pub async fn write_zeroes(&self, at: u64, len: u64, fua: bool) -> Result<(), IoError> {
        self.check(at, len)?;
        let block_bytes = u64::from(self.block_size());
        let (end, first_whole, end_whole) =
            (at + len, at.next_multiple_of(block_bytes), (at + len) / block_bytes * block_bytes);
        if first_whole >= end_whole {
            return self.write(at, self.zero_parts(len as usize), fua).await;
        }
        if at < first_whole {
            self.write(at, self.zero_parts((first_whole - at) as usize), fua).await?;
        }
        self.discard(first_whole, end_whole - first_whole, fua).await?;
        if end_whole < end {
            self.write(end_whole, self.zero_parts((end - end_whole) as usize), fua).await?;
        }
        Ok(())
    }

    /// Up to two blocks of zeros.
    fn zero_parts(&self, len: usize) -> Vec<Buf> {
        let block_bytes = self.dataset.block_bytes();
        let parts = (0..len).step_by(block_bytes).map(|at| self.shard.zeros(block_bytes.min(len - at)));
        parts.collect()
    }

    /// Makes holes of blocks that hold only zeros, and gives their bytes; nothing when it was called off. Volumes that are not compressed have
    /// them, and those for which space was held when they were written.
    async fn reclaim_zeros(&self, progress: &WorkProgress) -> Result<Option<u64>, IoError> {
        let (shard, block_bytes) = (&self.shard, u64::from(self.block_size()));
        let mapped = self.dataset.tree.borrow().mapped().blocks as u64;
        let mapped = mapped + self.dataset.blocks_staged().await;
        progress.expect(mapped * block_bytes);
        let (mut at, mut found, mut pace) = (0, 0, shard.pace(Task::Reclaim));
        while let Some(run) = self.next_stored(at).await {
            if progress.is_canceled() {
                return Ok(None);
            }
            if shard.stopping.get() {
                return Err(IoError::Gone);
            }
            pace.step(Work::read((run.end - run.start) * block_bytes, 1)).await;
            let zeros = match self.zeros_in(run.clone(), progress).await {
                // Whoever read it has told; it is not zeros that anybody wrote.
                Err(IoError::Corrupt | IoError::Io) => Vec::new(),
                zeros => zeros?,
            };
            pace.end();
            for blocks in zeros {
                found += self.clear_zeros(blocks).await? * block_bytes;
            }
            at = run.end;
            pace.rest().await;
        }
        Ok(Some(found))
    }

    /// The first blocks from `at` on that may hold something.
    async fn next_stored(&self, at: u64) -> Option<Range<u64>> {
        let mut from = at / FANOUT;
        let leaf = loop {
            match self.shard.next_leaf(&self.dataset, from).await {
                Ok(leaf) => break leaf.map(|leaf| at.max(leaf * FANOUT)),
                // Nobody knows of zeros there.
                Err(hidden) => from = hidden.end,
            }
        };
        let staged = self.dataset.staged.borrow().range(at..).next().map(|(block, _)| *block);
        let start = leaf.into_iter().chain(staged).min()?;
        let most = (SCAN_BYTES / u64::from(self.block_size())).max(1);
        let end =
            (start + most).min((start / FANOUT + 1) * FANOUT).min(self.dataset.record.borrow().blocks());
        (start < end).then_some(start..end)
    }

    /// Runs of mapped blocks that hold only zeros.
    async fn zeros_in(
        &self,
        blocks: Range<u64>,
        progress: &WorkProgress,
    ) -> Result<Vec<Range<u64>>, IoError> {
        let _active = self.begin()?;
        let block_bytes = u64::from(self.block_size());
        let (mut at, mut runs): (_, Vec<Range<u64>>) = (blocks.start, Vec::new());
        let len = (blocks.end - blocks.start) * block_bytes;
        for extent in self.extents(at * block_bytes, len, usize::MAX, Reader::Copier).await? {
            let end = at + extent.len / block_bytes;
            if extent.mapped {
                progress.add(extent.len);
                let parts = self.shard.read_blocks(&self.dataset, at, end - 1, Reader::Copier).await?;
                let all = parts.iter().flat_map(|part| part.chunks(block_bytes as usize));
                for (block, _) in (at..).zip(all).filter(|(_, data)| self.is_zeros(data)) {
                    match runs.last_mut() {
                        Some(run) if run.end == block => run.end += 1,
                        _ => runs.push(block..block + 1),
                    }
                }
            }
            at = end;
        }
        Ok(runs)
    }

    fn is_zeros(&self, data: &[u8]) -> bool {
        data == &self.shard.zeros(data.len())[..]
    }

    /// Clears blocks that held zeros when they were looked at, if they still do: how many.
    async fn clear_zeros(&self, blocks: Range<u64>) -> Result<u64, IoError> {
        let _active = self.begin_change()?;
        let _changing = self.dataset.begin_change().await?;
        let room = self.dataset.aside(self.room_to_clear()).await?;
        if blocks.end > self.dataset.record.borrow().blocks() {
            return Ok(0);
        }
        let _guard = self.dataset.locks.lock(blocks.start, blocks.end - 1).await;
        for block in blocks.clone() {
            // What is not durable yet, and no client sees, is there all the same: writers let go of the lock before.
            let reader = if active(Bug::ReclaimsAsClient) { Reader::Copier } else { Reader::Merger };
            let data = self.shard.read_block(&self.dataset, block, reader).await;
            let is_zeros = match data {
                Err(IoError::Corrupt | IoError::Io) => false,
                data => self.is_zeros(&data?),
            };
            if !is_zeros && !active(Bug::ReclaimsUnseen) {
                return Ok(0);
            }
        }
        self.clear_locked(blocks.clone(), room, false).await?;
        Ok(blocks.end - blocks.start)
    }
}

impl Control {
    /// A volume in which blocks of zeros may take space.
    async fn reclaimable(&self, name: &str) -> Result<VolumeInfo, Error> {
        let info = self.volume_brief(name).await?;
        if info.format == VolumeFormat::EagerZeroedThick {
            let message = "the volume is eagerzeroedthick and always takes its full size";
            return Err(Error::new(ErrorKind::Conflict, self.object(name), message)
                .remedy("First make it thin or zeroedthick: forebay volume convert VOLUME --format thin"));
        }
        Ok(info)
    }

    async fn volume_reclaim(&self, name: &str, progress: Arc<WorkProgress>) -> Result<u64, Error> {
        self.reclaimable(name).await?;
        let reclaim =
            |shard, dataset| async move { LocalVolume::of(shard, dataset).reclaim_zeros(&progress).await };
        let found = self.on_volume(name, reclaim).await?;
        found.ok_or_else(|| {
            Error::new(ErrorKind::Conflict, self.object(name), "the search was canceled")
                .remedy("The space found until then was freed")
        })
    }
}

impl Engine {
    /// The volume, if [`Engine::volume_reclaim`] would not refuse it at once.
    #[boxed]
    pub async fn volume_reclaimable(&self, volume: &str) -> Result<VolumeInfo, Error> {
        self.on_writable_volume(volume, |control, name| async move { control.reclaimable(&name).await }).await
    }

    /// Looks through a volume (`POOL/NAME` or UUID) for blocks of zeros, and gives their space back: how many bytes. Clients go on.
    /// Dropping the future does not end it, `progress` does.
    #[boxed]
    pub async fn volume_reclaim(&self, volume: &str, progress: Arc<WorkProgress>) -> Result<u64, Error> {
        self.on_writable_volume(volume, |control, name| async move {
            control.volume_reclaim(&name, progress).await
        })
        .await
    }
}
