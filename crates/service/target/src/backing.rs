//! What stands behind exports: the engine, or a test's disks in memory.

use forebay_base::Id;
use forebay_nbd::Export;
use forebay_pool::{Cancellation, Engine, Error, Extent, IoError, Volume};
use forebay_runtime::{Buf, Rt};
use std::future::Future;

/// An export that exists.
#[derive(Clone, Debug)]
pub struct Found {
    pub id: Id,
    /// The core on which [`Catalog::open`] finds it.
    pub core: usize,
    pub export: Export,
}

/// All exports there are. Asked on core 0, opened on the core that owns the export.
pub trait Catalog: Clone + Send + Sync + 'static {
    type Device: Device;
    /// Canonical names of all exports.
    fn list(&self) -> impl Future<Output = Result<Vec<String>, Error>>;
    /// The export of a name that a client sent: anything.
    fn find(&self, name: &str) -> impl Future<Output = Result<Found, Error>>;
    fn open(&self, rt: &Rt, id: Id) -> Result<Self::Device, IoError>;
}

/// The volume behind one session. The meaning of every method is that of [`Volume`].
pub trait Device: Clone + 'static {
    /// The same, for requests that are cancelled by this as long as they have not begun.
    fn cancellable(&self, cancellation: &Cancellation) -> Self;
    fn block_size(&self) -> u32;
    fn read(&self, at: u64, len: usize) -> impl Future<Output = Result<Vec<Buf>, IoError>>;
    fn write(&self, at: u64, data: Vec<Buf>, fua: bool) -> impl Future<Output = Result<(), IoError>>;
    fn flush(&self) -> impl Future<Output = Result<(), IoError>>;
    fn discard(&self, at: u64, len: u64, fua: bool) -> impl Future<Output = Result<(), IoError>>;
    fn write_zeroes(&self, at: u64, len: u64, fua: bool) -> impl Future<Output = Result<(), IoError>>;
    fn status(
        &self,
        at: u64,
        len: u64,
        extents_max: usize,
    ) -> impl Future<Output = Result<Vec<Extent>, IoError>>;
}

impl Catalog for Engine {
    type Device = Volume;

    async fn list(&self) -> Result<Vec<String>, Error> {
        let volumes = self.volumes(None).await?;
        Ok(volumes.into_iter().map(|volume| format!("{}/{}", volume.pool, volume.name)).collect())
    }

    async fn find(&self, name: &str) -> Result<Found, Error> {
        let volume = self.volume(name).await?;
        let export = Export {
            name: format!("{}/{}", volume.pool, volume.name),
            size: volume.size,
            block_size: volume.block_size,
            read_only: volume.read_only,
        };
        Ok(Found { id: volume.id, core: volume.core, export })
    }

    fn open(&self, rt: &Rt, id: Id) -> Result<Volume, IoError> {
        Volume::open(rt, id)
    }
}

impl Device for Volume {
    fn cancellable(&self, cancellation: &Cancellation) -> Volume {
        Volume::cancellable(self, cancellation)
    }
    fn block_size(&self) -> u32 {
        Volume::block_size(self)
    }
    fn read(&self, at: u64, len: usize) -> impl Future<Output = Result<Vec<Buf>, IoError>> {
        Volume::read(self, at, len)
    }
    fn write(&self, at: u64, data: Vec<Buf>, fua: bool) -> impl Future<Output = Result<(), IoError>> {
        Volume::write(self, at, data, fua)
    }
    fn flush(&self) -> impl Future<Output = Result<(), IoError>> {
        Volume::flush(self)
    }
    fn discard(&self, at: u64, len: u64, fua: bool) -> impl Future<Output = Result<(), IoError>> {
        Volume::discard(self, at, len, fua)
    }
    fn write_zeroes(&self, at: u64, len: u64, fua: bool) -> impl Future<Output = Result<(), IoError>> {
        Volume::write_zeroes(self, at, len, fua)
    }
    fn status(
        &self,
        at: u64,
        len: u64,
        extents_max: usize,
    ) -> impl Future<Output = Result<Vec<Extent>, IoError>> {
        Volume::status(self, at, len, extents_max)
    }
}
