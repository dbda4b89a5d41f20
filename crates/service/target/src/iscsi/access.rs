//! What the iSCSI server has to be told: who may come in, what they see, and the volumes behind it.
//!
//! [`Access`] is answered from the configuration (hosts, groups, mappings), [`Volumes`] by the engine. Tests answer both
//! from tables. Nobody is let in who is not named there.

use crate::backing::Device;
use forebay_base::Id;
use forebay_iscsi::Chap;
use forebay_pool::{Ceiling, IoError, SyncPolicy};
use forebay_runtime::{Buf, Rt};
use forebay_scsi::{BlockFormat, Lun};
use std::future::Future;
use std::sync::Arc;

/// Who may use what. Asked at every login and whenever [`IscsiServer::access_changed`](crate::IscsiServer::access_changed)
/// was called, on any core; must not block. Initiator and target names are in lower case.
pub trait Access: Send + Sync + 'static {
    /// Whether an initiator is known, and by what it has to prove itself; that is the same for discovery and for every
    /// target. An error is a refusal.
    fn admit(&self, initiator: &str) -> Result<Proof, Unknown>;

    /// Names of the targets at which the initiator sees something: what discovery tells it, and where it may log in.
    fn targets(&self, initiator: &str) -> Vec<String>;

    /// What the initiator sees at a target, in no order; each number once. Empty where it may not log in.
    fn luns(&self, initiator: &str, target: &str) -> Vec<Mapping>;

    /// What the host of an initiator gets at most, over all its sessions and volumes: the same one for all of them, until it is to be another.
    fn ceiling(&self, initiator: &str) -> Option<Arc<Ceiling>>;
}

/// How a known initiator shows who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Its name is enough.
    Name,
    Chap(Chap),
}

/// Nobody has told of this initiator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unknown;

/// A volume as one initiator sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub lun: Lun,
    pub volume: Id,
    /// The core that owns the volume ([`VolumeInfo::core`](forebay_pool::VolumeInfo::core)).
    pub core: usize,
    /// For people: `POOL/NAME`.
    pub name: String,
    /// The same in all mappings of one volume.
    pub format: BlockFormat,
}

impl Mapping {
    /// Whether nothing about it is different that an initiator can see.
    pub fn is_same_unit(&self, other: &Mapping) -> bool {
        let seen = |mapping: &Mapping| (mapping.lun, mapping.volume, mapping.core, mapping.format);
        seen(self) == seen(other)
    }
}

/// The volumes that there are.
pub trait Volumes: Clone + Send + Sync + 'static {
    type Disk: Disk;
    /// The volume, on the core that owns it.
    fn open(&self, rt: &Rt, id: Id) -> Result<Self::Disk, IoError>;
}

/// The volume behind a logical unit. The meaning of every method is that of [`Volume`](forebay_pool::Volume).
pub trait Disk: Device {
    /// Bytes, now.
    fn size(&self) -> u64;
    fn sync(&self) -> SyncPolicy;
    /// Whether every change is refused.
    fn is_read_only(&self) -> bool;
    fn compare_and_write(
        &self,
        at: u64,
        expected: Buf,
        new: Buf,
    ) -> impl Future<Output = Result<Result<(), usize>, IoError>>;
    /// What [`Disk::store_reservations`] stored last, if it ever did.
    fn load_reservations(&self) -> impl Future<Output = Result<Option<Vec<u8>>, IoError>>;
    /// Stores persistent reservations with the volume, durably: at most
    /// [`STATE_BYTES_MAX`](forebay_scsi::STATE_BYTES_MAX) bytes.
    fn store_reservations(&self, state: Vec<u8>) -> impl Future<Output = Result<(), IoError>>;
}
