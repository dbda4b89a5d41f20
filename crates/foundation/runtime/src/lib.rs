//! The handles through which the engine meets the world: disks, network, clock, randomness, tasks.
//!
//! Everything above this crate is written against [`Rt`], the handle to the executor it runs on. In
//! production there is one executor per core over io_uring ([`uring`]); in simulation one executor runs
//! everything in virtual time (crate `forebay-simulation`). Futures are `!Send`: they live and die on one
//! executor. What crosses cores goes through [`Cores`] as a message.
//!
//! This is the only crate of the data path with system calls.

mod admission;
mod buffer;
mod completion;
mod disk;
mod executor;
mod net;
pub mod uring;
mod watch;

pub use admission::{Admission, Class, HandleId, Limits};
pub use buffer::{Arena, BUFFER_MAX, Buf, BufMut};
pub use completion::{Completer, Completion, Interrupter, completion};
pub use disk::{Disk, DiskBackend, DiskError, DiskErrorKind, DiskOp, Geometry, OpenError, OpenMode, Users};
pub use executor::{Backend, Cores, Executor, Join, Remote, Rt, Sleep, Unpark, Wait, yield_now};
pub use net::{Detached, Listener, ListenerBackend, NetError, Stream, StreamBackend};
pub use watch::{Done, Kind, Served, Vitals, Watch};
