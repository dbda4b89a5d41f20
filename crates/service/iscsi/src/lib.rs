//! The iSCSI protocol as values: bytes in, actions out, no sockets, no clock (RFC 7143, RFC 7144).
//!
//! Both sides of a connection are here. The target's is first a [`Login`]: it negotiates, asks its driver who
//! may come in, and ends in an [`Established`], which makes a [`Session`]: that takes commands with their data,
//! hands them out as [`Action`]s, and turns what the driver completes into PDUs. The initiator's ([`initiator`]) is
//! a login and a session, too; tests and load generators use it.
//!
//! One connection per session, error recovery level 0: what is lost with a connection, the initiator repeats on the
//! next one, as every initiator in use does.
//!
//! What the peer sends is judged in three ways. A request that is wrong is refused as the RFC says: with a
//! Reject, a SCSI response or a login status. A stream that can no longer be cut into PDUs is a [`Violation`], and
//! the connection must be closed. Everything else is an action. Nothing panics on input; memory follows bytes that came
//! or were asked for, never bytes announced.

mod chap;
pub mod initiator;
mod keys;
mod login;
mod output;
pub mod pdu;
mod receiver;
mod session;
mod tasks;
pub mod text;
pub mod wire;

pub use chap::{Algorithm, CHALLENGE_LEN, Challenge, Chap, Credentials, SECRET_MAX, SECRET_MIN, Secret};
pub use keys::{Broken, Negotiation, Parameters, TaskReporting};
pub use login::{Authorization, Established, Login, LoginAction, LoginConfig, Purpose, Request, Unproven};
pub use output::{Output, Source};
pub use receiver::{Piece, Receiver, Violation};
pub use session::{
    Action, Closed, Command, Completion, Discovered, KEEPALIVE_AFTER, KEEPALIVE_LIMIT, Session, TargetsWanted,
};
pub use tasks::{COMMANDS_MAX, IMMEDIATE_MAX, PART, TAGS_MAX, Tag};
pub use wire::{Attribute, LoginStatus, TaskAnswer};
