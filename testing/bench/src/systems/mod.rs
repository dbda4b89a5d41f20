//! The systems that are compared, each behind the same interface.

mod bare;
mod engine;
mod remote;
mod responder;

pub use bare::Bare;
pub use engine::{InProcess, POOL, drive, engine_pool, thin_volume, wait};
pub use remote::{UNIT, UNIT_ANY_BLOCK, Unit, forebay, forebay_iscsi, nbdkit, qemu_nbd, responder, tgt};
pub use responder::serve as respond;

use crate::measure::{Measured, Work};
use forebay_e2e::host::Outcome;
use std::time::Duration;

pub trait System {
    fn name(&self) -> &'static str;
    /// What its figures mean: durability, caches, whose processor time.
    fn remark(&self) -> String;
    /// Fills what is measured, once, so that no run meets a block that was never written.
    fn fill(&mut self) -> Outcome;
    fn run(&mut self, work: &Work, limit: Duration, seed: u64) -> Outcome<Measured>;
    /// First writes to a new thin volume of `size` bytes, and overwrites of it; `None` where volumes are not thin.
    fn first_writes(&mut self, _size: u64, _seed: u64) -> Outcome<Option<(Measured, Measured)>> {
        Ok(None)
    }
}
