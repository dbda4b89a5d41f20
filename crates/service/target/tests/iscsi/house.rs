//! Disks in memory, and a table of who may use them: what stands behind an iSCSI server in tests.

use forebay_base::Id;
use forebay_pool::{Cancellation, Ceiling, Extent, IoError, SyncPolicy};
use forebay_runtime::{Buf, Rt};
use forebay_scsi::{BlockFormat, Lun};
use forebay_target::{Access, Device, Disk, Mapping, Proof, Unknown, Volumes};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const TARGET: &str = "iqn.2026-11.io.forebay:pool";
pub const BLOCK: usize = 8192;

/// A sparse disk in memory. Writes are visible to reads at once.
pub struct MemoryDisk {
    pub id: Id,
    pub core: usize,
    pub size: AtomicU64,
    blocks: Mutex<Vec<Option<Box<[u8]>>>>,
    reservations: Mutex<Option<Vec<u8>>>,
    pub gone: AtomicBool,
    /// Nanoseconds for which the next read waits; later ones do not.
    pub slow_read: AtomicU64,
    /// The same for the next write.
    pub slow_write: AtomicU64,
    pub flushes: AtomicU64,
}

impl MemoryDisk {
    pub fn new(number: u8, core: usize, size: u64) -> Arc<MemoryDisk> {
        let disk = Arc::new(MemoryDisk {
            id: Id(0x1122_3344_5566_7788 << 64 | u128::from(number)),
            core,
            size: AtomicU64::new(0),
            blocks: Mutex::default(),
            reservations: Mutex::default(),
            gone: AtomicBool::new(false),
            slow_read: AtomicU64::new(0),
            slow_write: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        });
        disk.grow(size);
        disk
    }

    /// Makes it larger, in blocks of its own.
    pub fn grow(&self, size: u64) {
        self.blocks.lock().unwrap().resize_with(size as usize / BLOCK, || None);
        self.size.store(size, Ordering::SeqCst);
    }

    fn check(&self, at: u64, len: u64) -> Result<(), IoError> {
        if self.gone.load(Ordering::SeqCst) {
            return Err(IoError::Gone);
        }
        if at + len > self.size.load(Ordering::SeqCst) { Err(IoError::OutOfRange) } else { Ok(()) }
    }

    /// Calls `each` with every piece of a range: its block's content and the part within it.
    fn walk(&self, at: u64, len: usize, mut each: impl FnMut(&mut Option<Box<[u8]>>, usize, usize, usize)) {
        let mut blocks = self.blocks.lock().unwrap();
        let mut done = 0;
        while done < len {
            let place = at as usize + done;
            let (block, within) = (place / BLOCK, place % BLOCK);
            let count = (len - done).min(BLOCK - within);
            each(&mut blocks[block], within, done, count);
            done += count;
        }
    }

    pub fn copy_out(&self, at: u64, into: &mut [u8]) {
        self.walk(at, into.len(), |block, within, done, count| match block {
            Some(data) => into[done..done + count].copy_from_slice(&data[within..within + count]),
            None => into[done..done + count].fill(0),
        });
    }

    pub fn copy_in(&self, at: u64, bytes: &[u8]) {
        self.walk(at, bytes.len(), |block, within, done, count| {
            let data = block.get_or_insert_with(|| vec![0; BLOCK].into());
            data[within..within + count].copy_from_slice(&bytes[done..done + count]);
        });
    }

    fn unmap(&self, at: u64, len: u64) {
        self.walk(at, len as usize, |block, _, _, count| {
            if count == BLOCK {
                *block = None;
            }
        });
    }
}

#[derive(Clone)]
pub struct Handle {
    rt: Rt,
    disk: Arc<MemoryDisk>,
}

impl Device for Handle {
    /// Nothing here waits before it begins.
    fn cancellable(&self, _: &Cancellation) -> Handle {
        self.clone()
    }
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }
    async fn read(&self, at: u64, len: usize) -> Result<Vec<Buf>, IoError> {
        self.disk.check(at, len as u64)?;
        match self.disk.slow_read.swap(0, Ordering::SeqCst) {
            0 => {}
            nanos => self.rt.sleep(Duration::from_nanos(nanos)).await,
        }
        let mut data = self.rt.buffer(len);
        self.disk.copy_out(at, &mut data);
        Ok(vec![data.freeze()])
    }
    async fn write(&self, at: u64, data: Vec<Buf>, _fua: bool) -> Result<(), IoError> {
        let len: usize = data.iter().map(|part| part.len()).sum();
        self.disk.check(at, len as u64)?;
        match self.disk.slow_write.swap(0, Ordering::SeqCst) {
            0 => {}
            nanos => self.rt.sleep(Duration::from_nanos(nanos)).await,
        }
        let mut place = at;
        for part in &data {
            self.disk.copy_in(place, part);
            place += part.len() as u64;
        }
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.disk.flushes.fetch_add(1, Ordering::SeqCst);
        self.disk.check(0, 0)
    }
    async fn discard(&self, at: u64, len: u64, _fua: bool) -> Result<(), IoError> {
        self.disk.check(at, len)?;
        self.disk.unmap(at, len);
        Ok(())
    }
    async fn write_zeroes(&self, at: u64, len: u64, _fua: bool) -> Result<(), IoError> {
        self.disk.check(at, len)?;
        self.disk.walk(at, len as usize, |block, within, _, count| match block {
            Some(data) if count < BLOCK => data[within..within + count].fill(0),
            block => *block = None,
        });
        Ok(())
    }
    async fn status(&self, at: u64, len: u64, extents_max: usize) -> Result<Vec<Extent>, IoError> {
        self.disk.check(at, len)?;
        let mut extents: Vec<Extent> = Vec::new();
        self.disk.walk(at, len as usize, |block, _, _, count| match extents.last_mut() {
            Some(last) if last.mapped == block.is_some() => last.len += count as u64,
            _ => extents.push(Extent { len: count as u64, mapped: block.is_some() }),
        });
        extents.truncate(extents_max);
        Ok(extents)
    }
}

impl Disk for Handle {
    fn size(&self) -> u64 {
        self.disk.size.load(Ordering::SeqCst)
    }
    fn sync(&self) -> SyncPolicy {
        SyncPolicy::Standard
    }
    fn is_read_only(&self) -> bool {
        false
    }
    async fn compare_and_write(
        &self,
        at: u64,
        expected: Buf,
        new: Buf,
    ) -> Result<Result<(), usize>, IoError> {
        self.disk.check(at, new.len() as u64)?;
        let mut here = vec![0; expected.len()];
        self.disk.copy_out(at, &mut here);
        if let Some(byte) = here.iter().zip(&expected[..]).position(|(found, wanted)| found != wanted) {
            return Ok(Err(byte));
        }
        self.disk.copy_in(at, &new);
        Ok(Ok(()))
    }
    async fn load_reservations(&self) -> Result<Option<Vec<u8>>, IoError> {
        Ok(self.disk.reservations.lock().unwrap().clone())
    }
    async fn store_reservations(&self, state: Vec<u8>) -> Result<(), IoError> {
        *self.disk.reservations.lock().unwrap() = Some(state);
        Ok(())
    }
}

/// All disks there are, by their volume's id.
#[derive(Clone)]
pub struct Disks(pub Arc<Vec<Arc<MemoryDisk>>>);

impl Volumes for Disks {
    type Disk = Handle;
    fn open(&self, rt: &Rt, id: Id) -> Result<Handle, IoError> {
        let disk = self.0.iter().find(|disk| disk.id == id && disk.core == rt.core()).ok_or(IoError::Gone)?;
        disk.check(0, 0)?;
        Ok(Handle { rt: rt.clone(), disk: disk.clone() })
    }
}

pub struct Host {
    pub proof: Proof,
    pub luns: Vec<Mapping>,
    pub ceiling: Option<Arc<Ceiling>>,
}

/// Hosts by initiator name; `*` is everybody else.
#[derive(Default)]
pub struct Table(pub Mutex<HashMap<String, Host>>);

impl Table {
    fn with<T>(&self, initiator: &str, ask: impl Fn(&Host) -> T) -> Option<T> {
        let hosts = self.0.lock().unwrap();
        hosts.get(initiator).or_else(|| hosts.get("*")).map(ask)
    }
}

impl Access for Table {
    fn admit(&self, initiator: &str) -> Result<Proof, Unknown> {
        self.with(initiator, |host| host.proof.clone()).ok_or(Unknown)
    }
    fn targets(&self, initiator: &str) -> Vec<String> {
        let sees = self.with(initiator, |host| !host.luns.is_empty());
        if sees == Some(true) { vec![TARGET.into()] } else { Vec::new() }
    }
    fn ceiling(&self, initiator: &str) -> Option<Arc<Ceiling>> {
        self.with(initiator, |host| host.ceiling.clone()).flatten()
    }
    fn luns(&self, initiator: &str, target: &str) -> Vec<Mapping> {
        if target != TARGET {
            return Vec::new();
        }
        self.with(initiator, |host| host.luns.clone()).unwrap_or_default()
    }
}

pub fn mapping(lun: u16, disk: &MemoryDisk) -> Mapping {
    let lun = Lun::new(lun).expect("a small number");
    let name = format!("pool/disk{}", disk.id.0 as u8);
    Mapping { lun, volume: disk.id, core: disk.core, name, format: BlockFormat::B512 }
}
