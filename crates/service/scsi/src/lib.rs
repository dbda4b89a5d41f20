//! A SCSI device server as values: commands in, steps out, no sockets, no clock, no volume.
//!
//! Sources: SAM-5 (addressing, task sets, unit attentions), SPC-4 (commands of every device, persistent
//! reservations, third-party copy) and SBC-3 (commands of disks). What moves commands and data is elsewhere: a
//! transport such as iSCSI brings a CDB and its Data-Out and takes a status, sense and Data-In back.
//!
//! One [`Unit`] is one logical unit, shared by all its I_T nexuses on the core that owns the volume behind it. A
//! command goes through three calls:
//!
//! 1. [`parse`] turns a CDB into a [`Command`] or says what is wrong with it. The command knows its
//!    [`Direction`] and how many bytes of Data-Out it needs, before any of them is received.
//! 2. [`Unit::begin`] judges it (unit attentions, reservations, start/stop state, write protection, ranges) and either
//!    answers or returns an [`Op`] for the volume together with a [`Task`].
//! 3. The caller carries out the operation however it likes and hands its result to [`Unit::resume`], which
//!    answers or returns the next operation. Nothing else is asked of the caller: comparing, repeating a pattern,
//!    read-modify-write, verifying and copying are loops in here.
//!
//! Between the calls nothing is borrowed and other commands run. A task that is dropped leaves nothing behind,
//! except the one that stores reservations ([`Op::Persist`]), which must be carried through.
//!
//! The initiator's lies are answered with sense data that names the field; a caller's mistakes (a nexus that was
//! detached, a result of another kind than the operation's) panic. Memory is bounded: per unit by
//! [`NEXUSES_MAX`] and [`REGISTRATIONS_MAX`], per command by [`TRANSFER_BYTES_MAX`].

mod alignment;
mod attention;
mod command;
mod copy;
mod data;
mod execute;
mod inquiry;
mod limits;
mod lun;
mod mode;
mod nexus;
mod opcodes;
mod reservation;
mod reserve_in;
mod reserve_out;
mod reserve_store;
mod sense;
mod step;
mod task;
mod tasks;
mod unit;

pub use alignment::{Alignment, Verdict};
pub use attention::Attention;
pub use command::{BlockDescriptor, Check, Command, Direction, PageControl, Span, parse};
pub use limits::TRANSFER_BYTES_MAX;
pub use lun::{LUN_MAX, Lun};
pub use nexus::{InitiatorPort, Nexus, NexusId};
pub use reserve_store::{REGISTRATIONS_MAX, STATE_BYTES_MAX, StateError};
pub use sense::{FieldPointer, Sense, SenseBytes, SenseKey, asc};
pub use step::{CopyUnit, DataIn, DataOut, Designator, Op, Outcome, Response, Status, Step};
pub use task::{Task, begin_absent, resume_absent};
pub use tasks::{Admission, TaskAttribute, TaskSet};
pub use unit::{BlockFormat, NEXUSES_MAX, TooManyNexuses, Unit, UnitConfig};
