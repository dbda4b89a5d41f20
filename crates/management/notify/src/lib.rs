//! The appliance calls for help: alerts, heartbeats and audit lines go out as mail, webhooks, syslog and SNMP traps.
//!
//! ```text
//!   what is wrong now ─► Tracker ─► what changed ─┬─► Outbox ─► task ─► Sender ─► smtp, webhook, syslog, snmp
//!   audit line ───────────────────────────────────┴─► Outbox ─► task ─► …        (one outbox and task a channel)
//! ```
//!
//! [`Reporter`] is what the daemon holds. [`outbox`] decides what goes out when, without I/O: merging, rates, quiet hours, retries, what is dropped. The modules of the kinds
//! know formats and protocols, and nothing of each other. [`Channel::check`] stands between what people configure and all of it.
//!
//! The crate stores nothing and reads no clock but the one it is given and tokio's.

pub mod channel;
mod check;
mod connect;
pub mod delivery;
mod failure;
#[cfg(test)]
mod format_tests;
mod mail;
pub mod notice;
pub mod outbox;
#[cfg(test)]
mod outbox_tests;
mod quiet;
pub mod rate;
mod reporter;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod settings_tests;
mod smtp;
pub mod snmp;
mod syslog;
mod text;
mod tracker;
pub mod webhook;

pub use channel::Channel;
pub use connect::only_certificates;
pub use delivery::Delivered;
pub use failure::{Failure, Problem, Retry};
pub use notice::Appliance;
pub use reporter::{CHANNELS_MAX, ChannelError, ChannelState, Clock, Reporter, Setup};
pub use tracker::ALERTS_MAX;
