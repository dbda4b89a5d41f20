//! The initiator's side of a connection: a [`Login`], and the [`Session`] that it leads to.
//!
//! For tests and load generators, later for hosts. It speaks to any target, and believes none: what a target may not send is
//! a [`Violation`](crate::Violation). Bytes in, events out, PDUs gathered for one send, as on the target's
//! side; connecting, time and retrying are the caller's.

mod login;
mod session;

pub use login::{Connected, Login, LoginError, Wanted};
pub use session::{Event, Residual, ScsiRequest, Session, WindowClosed};
