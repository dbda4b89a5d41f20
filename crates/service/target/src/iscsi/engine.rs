//! The engine's volumes behind logical units.

use super::access::{Disk, Volumes};
use forebay_base::Id;
use forebay_pool::{ATTRIBUTES_BYTES_MAX, Engine, IoError, SyncPolicy, Volume};
use forebay_runtime::{Buf, Rt};
use forebay_scsi::STATE_BYTES_MAX;

const _: () = assert!(STATE_BYTES_MAX <= ATTRIBUTES_BYTES_MAX);

impl Volumes for Engine {
    type Disk = Volume;

    fn open(&self, rt: &Rt, id: Id) -> Result<Volume, IoError> {
        Volume::open(rt, id)
    }
}

impl Disk for Volume {
    fn size(&self) -> u64 {
        Volume::size(self)
    }
    fn sync(&self) -> SyncPolicy {
        Volume::sync(self)
    }
    fn is_read_only(&self) -> bool {
        Volume::is_read_only(self)
    }
    fn compare_and_write(
        &self,
        at: u64,
        expected: Buf,
        new: Buf,
    ) -> impl Future<Output = Result<Result<(), usize>, IoError>> {
        Volume::compare_and_write(self, at, expected, new)
    }
    fn load_reservations(&self) -> impl Future<Output = Result<Option<Vec<u8>>, IoError>> {
        self.load_attributes()
    }
    async fn store_reservations(&self, state: Vec<u8>) -> Result<(), IoError> {
        self.store_attributes(&state).await
    }
}
