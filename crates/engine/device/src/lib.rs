//! One disk of a pool: where things are on it, its label, its superblock slots, its health.
//!
//! ```text
//! byte 0        label, copy 0                              384 KiB
//!      384 KiB  label, copy 1                              384 KiB
//!      768 KiB  free                                       256 KiB
//!      1 MiB    superblock rings, 16 slots of 32 KiB each  2 × 512 KiB
//!      2 MiB    chunk records: two alternates per slot
//!      …        slots, all of one size
//!      end      label, copy 2                              384 KiB (at a multiple of 64 KiB)
//! ```
//!
//! A label changes only when the pool's membership does; its copies are written one after the other with a
//! flush between, so that a torn write leaves a whole one. A superblock slot is written by every checkpoint.
//! What a superblock says is the pool's business: here it is a checked payload.

mod feature;
mod health;
mod label;
mod layout;
mod member;
mod overlay;
mod superblock;

pub use feature::{Compatibility, FEATURES_MAX, Feature};
pub use health::{ErrorCounts, Health};
pub use label::{
    DISKS_MAX, DiskEntry, DiskStatus, ENCLOSURE_BYTES, Enclosure, GROUPS_MAX, GroupEntry, Label, LabelError,
    most_lacking,
};
pub use layout::{
    DISK_BYTES_MIN, DISK_GRAIN, DiskLayout, HEAD_BYTES, LABEL_REGION, LayoutError, SUPERBLOCKS_BYTES,
    SlotRef, UNIT, record_bytes,
};
pub use member::{Member, read_labels, read_superblocks, write_label, write_superblock};
pub use overlay::Overlay;
pub use superblock::{Owner, SUPERBLOCK_PAYLOAD_MAX, SuperblockSlot};
