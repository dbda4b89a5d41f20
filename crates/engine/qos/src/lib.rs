//! Who may begin now: admission and scheduling of all that wants a pool's disks, as pure functions of time.
//!
//! A pool has one [`Pool`], which all its shards share, and each shard a [`Scheduler`] with a *flow* for each of its volumes and for work that the
//! engine does by itself. A flow has a [`Level`]: a floor, a share, ceilings. Requests queue in their flow; the scheduler
//! says which may begin, and is told when it is over. Nothing here waits or reads a clock, and no request allocates once its flow is warm.
//!
//! The tags are those of mClock (Gulati, Merchant, Varman: "mClock: Handling Throughput Variability for Hypervisor IO Scheduling", OSDI 2010): a flow
//! that is behind its floor goes first, in the order of who should have been served earliest; what is left is shared by weight. A
//! [`Ceiling`] holds requests back before they come to the scheduler, whatever the others do. So a flow gets the greater of its floor and its share, and
//! never more than its ceiling.
//!
//! *Costs.* Floors and ceilings count requests and bytes. Shares count [`Costs`]: how long the request keeps the whole pool
//! busy, in nanoseconds. What is in flight is counted in the same unit, so the bound on it, the *window*, is the time that the pool needs for what it has
//! been given: what whoever comes next waits for at the devices.
//!
//! *Several shards* share the window, which is one atomic number, and a virtual time. Each that has requests waiting shows the
//! tag of the next one; a shard whose own next is further on than the others' by more than a small lead lets them go first. Nobody takes a lock, asks
//! another core, or has to be told a share: the same rule makes one shard or sixteen fair. A shard with nothing in flight may always begin
//! one request, so none waits for another's completions.

mod admission;
mod ceiling;
mod cost;
mod ledger;
mod level;
mod pool;
mod scheduler;
mod task;
mod trial;

pub use admission::{Promise, SHARE_MAX, WHOLE, Wish, kept};
pub use ceiling::Ceiling;
pub use cost::{Affine, Costs, Kind, Work};
pub use ledger::{Account, Cause, Circumstances, State, Usual};
pub use level::{Class, Level, Rate};
pub use pool::Pool;
pub use scheduler::{FlowId, InFlight, Next, Scheduler};
pub use task::Task;
