//! The systems that are compared, each behind the same interface.

mod ageing;
mod bare;
mod engine;
mod remote;
mod responder;

pub use bare::Bare;
pub use engine::{InProcess, POOL, Running, drive, engine_pool, thin_volume, wait};
pub use remote::{UNIT, UNIT_ANY_BLOCK, Unit, forebay, forebay_iscsi, nbdkit, qemu_nbd, responder, tgt};
pub use responder::serve as respond;

use crate::measure::{Measured, State, Work};
use forebay_e2e::host::Outcome;
use std::time::Duration;

pub trait System {
    fn name(&self) -> &'static str;
    /// What its figures mean: durability, caches, whose processor time.
    fn remark(&self) -> String;
    /// Brings what is measured into a state, each that is asked for from the one before it. In the first, no run meets a block that was never written.
    fn prepare(&mut self, _state: State) -> Outcome {
        Ok(())
    }
    /// The next snapshot of a volume that has aged, and no more of them than there is room for.
    fn rotate(&mut self) -> Outcome {
        Ok(())
    }
    fn run(&mut self, work: &Work, limit: Duration, seed: u64) -> Outcome<Measured>;
    /// First writes to a new thin volume of `size` bytes, and overwrites of it; `None` where volumes are not thin.
    fn first_writes(&mut self, _size: u64, _seed: u64) -> Outcome<Option<(Measured, Measured)>> {
        Ok(None)
    }
}
