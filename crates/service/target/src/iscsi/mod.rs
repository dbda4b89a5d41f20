//! iSCSI over the runtime: logins, sessions, logical units.
//!
//! [`IscsiServer`] listens on core 0 and logs initiators in there ([`greet`]); a session then lives on the core of its
//! volumes ([`session`]), where its commands go straight to the units ([`route`], [`execute`]). Units belong to cores and
//! are shared by all sessions that see them ([`unit`]); what reaches a session from outside comes as [`mail`]. Who may come
//! in and what they see is asked of [`Access`]; how fast others can try is bounded by [`guesses`].

mod access;
mod engine;
mod execute;
mod greet;
mod guesses;
mod mail;
mod registry;
mod route;
mod server;
mod session;
mod unit;

pub use access::{Access, Disk, Mapping, Proof, Unknown, Volumes};
pub use registry::IscsiSession;
pub use server::{IscsiConfig, IscsiServer, LOGIN_MAX, Portal};
