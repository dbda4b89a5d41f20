//! A volume that fills its pool, and what is done to one.

use super::{Clients, Live};
use crate::content::SECTOR;
use crate::harness::Failure;
use crate::oracle::{Effect, NEVER};
use forebay_base::MIB;
use forebay_pool::{Compression, IoError, SyncPolicy};

/// A volume that fills its pool.
pub struct Filling(Live);

/// Bytes of one write that fills.
const FILL_BYTES: u64 = 256 << 10;

impl Clients {
    /// Creates a volume larger than the pool and writes to it until there is no space left.
    pub async fn fill(&self) -> Result<Filling, Failure> {
        let data_disks = u64::from(self.setup.layout.data()) * self.setup.groups as u64;
        let second = self.setup.second_disks().len() as u64 * self.setup.second_disk_bytes();
        let size = (self.setup.disk_bytes() * data_disks + second).next_multiple_of(MIB);
        self.create_volume(size, 16 << 10, SyncPolicy::Always, Compression::Off).await;
        self.failure.check()?;
        let filling = Filling(self.live.borrow_mut().pop().expect("the volume was created"));
        self.fill_again(&filling).await?;
        Ok(filling)
    }

    /// Writes to a filling volume from its start until there is no space left.
    pub async fn fill_again(&self, filling: &Filling) -> Result<(), Failure> {
        let live = &filling.0;
        let size = live.handle.size();
        let mut refused_at_step = FILL_BYTES;
        let mut at = 0;
        // Large writes first; when they no longer fit, single blocks until none does.
        while at < size && refused_at_step >= u64::from(live.handle.block_size()) {
            let len = refused_at_step.min(size - at);
            let (from, to) = ((at / SECTOR as u64) as u32, ((at + len) / SECTOR as u64) as u32);
            let (number, _) = self.issue(live, Effect::Write, from, to);
            let parts = self.data(live, number, from, to);
            let result = live.handle.write(at, parts, false).await;
            self.end(live, number, result, false, "a write that fills");
            self.failure.check()?;
            match result {
                Ok(()) => at += len,
                Err(IoError::NoSpace) => refused_at_step /= 4,
                Err(error) => return Err(Failure::Outcome(format!("filling the pool failed: {error}"))),
            }
        }
        if at >= size {
            return Err(Failure::Outcome("a pool took more data than it has space".into()));
        }
        Ok(())
    }

    /// Discards the first half of a filling volume: that must work on a full pool.
    pub async fn discard_half(&self, filling: &Filling) -> Result<(), Failure> {
        let live = &filling.0;
        let half = live.handle.size() / 2;
        for at in (0..half).step_by(MIB as usize) {
            let len = MIB.min(half - at);
            let (from, to) = ((at / SECTOR as u64) as u32, ((at + len) / SECTOR as u64) as u32);
            let (number, _) = self.issue(live, Effect::Zero, from, to);
            let result = live.handle.discard(at, len, false).await;
            self.end(live, number, result, false, "a discard on a full pool");
            result.map_err(|error| Failure::Outcome(format!("a discard on a full pool failed: {error}")))?;
        }
        self.failure.check()
    }

    /// Deletes a filling volume: that must work on a full pool.
    pub async fn delete_filling(&self, filling: &Filling) -> Result<(), Failure> {
        self.delete(&filling.0).await;
        self.failure.check()?;
        if self.history.borrow().volumes[filling.0.model].deleted.acknowledged == NEVER {
            return Err(Failure::Outcome("a deletion on a full pool failed".into()));
        }
        Ok(())
    }

    /// Discards single blocks, one to three of every four, so that few chunks are full and few are empty; with parity only one,
    /// so that few lines are free and gaps are all there is.
    pub async fn scatter(&self, filling: &Filling) -> Result<(), Failure> {
        let live = &filling.0;
        let sectors = live.handle.block_size() / SECTOR as u32;
        let blocks = (live.handle.size() / u64::from(live.handle.block_size())) as u32;
        for four in (0..blocks).step_by(4) {
            let first = four + self.below(4) as u32;
            let count = if self.setup.layout.data() > 1 { 1 } else { 1 + self.below(3) as u32 };
            let (from, to) = (first, (first + count).min(blocks));
            let (from, to) = (from.min(blocks) * sectors, to * sectors);
            if from < to {
                let (number, _) = self.issue(live, Effect::Zero, from, to);
                let (at, len) = (u64::from(from) * SECTOR as u64, u64::from(to - from) * SECTOR as u64);
                let result = live.handle.discard(at, len, false).await;
                self.end(live, number, result, false, "a discard");
            }
        }
        self.failure.check()
    }

    /// Overwrites parts of a filling volume.
    pub async fn overwrite(&self, filling: &Filling, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            self.write(&filling.0).await;
        }
        self.failure.check()
    }
}
