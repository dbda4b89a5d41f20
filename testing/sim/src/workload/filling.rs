//! A volume that fills its pool, and what is done to one.

use super::{Clients, Live};
use crate::content::SECTOR;
use crate::harness::Failure;
use crate::oracle::{Effect, NEVER};
use forebay_base::MIB;
use forebay_pool::{Compression, ErrorKind, IoError, Setting, SyncPolicy, VolumeChange, VolumeFormat};

/// A volume that fills its pool.
pub struct Filling(Live);

/// A volume that space is reserved for, and how many snapshots of it were asked for.
pub struct Reserved {
    live: Live,
    snapshots: u32,
}

/// Bytes of one write that fills.
const FILL_BYTES: u64 = 256 << 10;

impl Clients {
    /// Creates a volume larger than the pool and writes to it until there is no space left.
    pub async fn fill(&self) -> Result<Filling, Failure> {
        let data_disks = u64::from(self.setup.layout.data()) * self.setup.groups as u64;
        let second = self.setup.second_disks().len() as u64 * self.setup.second_disk_bytes();
        let size = (self.setup.disk_bytes() * data_disks + second).next_multiple_of(MIB);
        let how = (Compression::Off, VolumeFormat::Thin);
        self.create_volume(size, 16 << 10, SyncPolicy::Always, how).await;
        self.failure.check()?;
        let filling = Filling(self.live.borrow_mut().pop().expect("the volume was created"));
        self.fill_again(&filling).await?;
        Ok(filling)
    }

    /// Creates a volume with a reservation, of blocks of some size, which clients use like the others.
    pub async fn reserve(&self) -> Result<Reserved, Failure> {
        let block_size = (4096 << self.below(4)).min(self.setup.block_bytes_max() as u64) as u32;
        let thick = [VolumeFormat::ZeroedThick, VolumeFormat::EagerZeroedThick][self.below(2) as usize];
        self.create_volume(
            MIB + self.below(3) * 512 * 1024,
            block_size,
            SyncPolicy::Always,
            (Compression::Lz4, thick),
        )
        .await;
        self.failure.check()?;
        let live = self.live.borrow().last().cloned().filter(|live| live.is_thick);
        let live = live.ok_or_else(|| Failure::Outcome("a small reservation was refused".into()))?;
        Ok(Reserved { live, snapshots: 0 })
    }

    /// Writes all of a reserved volume, which must be possible: in order, or as much at random.
    pub async fn write_reserved(&self, reserved: &Reserved, in_order: bool) -> Result<(), Failure> {
        let live = &reserved.live;
        let (sectors, piece) = ((live.handle.size() / SECTOR as u64) as u32, 128);
        for nth in 0..sectors / piece {
            let nth = if in_order { nth } else { self.below(u64::from(sectors / piece)) as u32 };
            let (from, to) = (nth * piece, (nth + 1) * piece);
            let (number, _) = self.issue(live, Effect::Write, from, to);
            let parts = self.data(live, number, from, to);
            let result = live.handle.write(u64::from(from) * SECTOR as u64, parts, false).await;
            self.end(live, number, result, false, "a write to a reserved volume");
            self.failure.check()?;
        }
        Ok(())
    }

    /// Takes a snapshot of a reserved volume, unless there is no room to write all of it anew, or deletes the last.
    pub async fn snapshot_reserved(&self, reserved: &mut Reserved) -> Result<bool, Failure> {
        reserved.snapshots += 1;
        let name = format!("s{}", reserved.snapshots);
        match self.engine.snapshot_create(vec![reserved.live.name.clone()], &name).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NoSpace => Ok(false),
            Err(error) => Err(Failure::Outcome(format!("a snapshot of a reserved volume: {error}"))),
        }
    }

    /// Deletes the last snapshot of a reserved volume, which was taken.
    pub async fn forget_snapshot(&self, reserved: &Reserved) -> Result<(), Failure> {
        let name = format!("{}@s{}", reserved.live.name, reserved.snapshots);
        let deleted = self.engine.snapshot_delete(&name).await;
        deleted.map_err(|error| Failure::Outcome(format!("deleting a snapshot in a full pool: {error}")))
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

    /// What is written to a filling volume from now on is compressed.
    pub async fn compress(&self, filling: &Filling) -> Result<(), Failure> {
        let change = VolumeChange { compression: Setting::Own(Compression::Lz4), ..VolumeChange::default() };
        let set = self.engine.volume_set(&filling.0.name, change).await;
        set.map(drop).map_err(|error| Failure::Outcome(format!("changing the compression: {error}")))
    }

    /// Reads a filling volume in sequence.
    pub async fn read_through(&self, filling: &Filling) -> Result<(), Failure> {
        let (live, piece) = (&filling.0, (FILL_BYTES / SECTOR as u64) as u32);
        let sectors = (live.handle.size() / SECTOR as u64) as u32;
        for from in (0..sectors).step_by(piece as usize) {
            self.read_range(live, from, sectors.min(from + piece)).await;
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
