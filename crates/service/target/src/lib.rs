//! Sessions and export maps: what drives the protocol crates over the runtime.
//!
//! [`NbdServer`] listens on core 0 and negotiates there ([`greet`]); when a client and the server agree on an
//! export, the connection moves to the core that owns the volume and stays there ([`session`]): no request
//! crosses cores. A session is one task. It decodes what one receive brought, keeps up to 256 requests running in
//! reusable slots ([`slots`]), and sends everything that is ready in one batch.
//!
//! Memory is bounded three times: by the decoder (buffers follow bytes received), per session and per core
//! ([`local`]). Volumes are reached through [`Catalog`] and [`Device`], which the engine implements and which
//! tests implement in memory.
//!
//! What clients ask for and get is counted where it is answered ([`facts`]).
//!
//! [`IscsiServer`] does the same for iSCSI, where a session has many volumes: see [`iscsi`].

mod admission;
mod backing;
mod contained;
mod event;
mod facts;
mod greet;
mod iscsi;
mod local;
mod request;
mod server;
mod session;
mod slots;
mod tls;
mod trace;
mod transport;

pub use admission::{ADDRESS_SHARE, CONNECTIONS_MAX, HALF_OPEN_MAX};
pub use backing::{Catalog, Device, Found};
pub use event::Events;
pub use facts::{Asked, ClientFacts, Facts, Operation, PLACES, Protocol, Watched, halt_facts, take_facts};
pub use iscsi::{
    Access, Disk, IscsiConfig, IscsiServer, IscsiSession, LOGIN_MAX, Mapping, Portal, Proof, Unknown, Volumes,
};
pub use local::{BYTES_MAX_ADDRESS, BYTES_MAX_CORE, PACE_BYTES, PACE_TIME};
pub use server::{HANDSHAKE_MAX, NbdConfig, NbdServer, SessionInfo};
pub use session::{BYTES_MAX, REQUESTS_MAX};
pub use tls::TlsFiles;
pub use trace::{TRACES_MAX, Traced, trace_begin, trace_end, trace_take};
