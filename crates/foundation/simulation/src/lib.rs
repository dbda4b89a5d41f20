//! The runtime's handles in virtual time: a machine whose disks, clock and chances follow a seed.
//!
//! The engine runs here as it runs in production: the same code over [`forebay_runtime::Rt`]. A [`World`] is the
//! machine: it holds disks in memory, makes them fail as told ([`Rule`]), lets time pass when nobody has work,
//! and records what the disks were asked, from which crash images are built without running anything again
//! ([`Cursor`]). The same seed gives the same run, and [`World::trace`] shows it.
//!
//! Service times vary as chance has it, unless a disk has a model of a real device ([`Sheet`]). What a world does not have: threads (it is one; run several worlds
//! side by side) and networks.

mod backend;
mod cache;
mod disk;
mod fault;
mod image;
pub mod model;
mod recent;
mod record;
mod world;

pub use cache::{Fate, PageWrite, Pending, WriteCache};
pub use disk::DiscardEffect;
pub use fault::{Action, OpKind, Rule};
pub use image::{Image, PAGE, Page, SECTOR};
pub use model::Sheet;
pub use record::{Cursor, Event, Recording};
pub use world::{Stuck, World, WorldConfig};
