//! The NBD protocol as values: bytes in, actions out, no sockets, no clock.
//!
//! The source is the NBD project's `doc/proto.md`, with its extended-headers extension. A connection is first a
//! [`Handshake`]: fixed newstyle option haggling, driven by [`Handshake::handle_input`] and
//! [`Handshake::poll_action`], whose questions (which export is this? which are there?) the caller answers.
//! Agreement consumes it and yields a [`Transmission`], which cuts the byte stream into [`Request`]s, while
//! [`Replies`] turns results into one batch of buffers for one send.
//!
//! What the peer sends is judged in three ways: an option or request that is wrong is refused with the error
//! the specification names; a stream that can no longer be cut into messages, or a peer that breaks a
//! mandatory rule where no reply is possible, is a [`Violation`] and the connection must be closed; everything
//! else is an action. Nothing panics on input and nothing is allocated on a length that was merely announced:
//! option data is capped, payloads grow by [`PAYLOAD_PART`] as their bytes arrive.
//!
//! The client side ([`client`]) is as small as tests and load generators need.

pub mod client;
mod handshake;
mod options;
mod reply;
mod transmission;
pub mod wire;

pub use handshake::{Action, Agreement, Export, Handshake, Refusal, TlsMode};
pub use reply::{Replies, Style};
pub use transmission::{Command, Decoded, PAYLOAD_PART, Refused, Request, Transmission};
pub use wire::{ErrorCode, REQUEST_MAX, Violation};
