//! The target's side of a connection in full feature phase: PDUs in, actions out; completions in, PDUs out.
//!
//! The driver feeds [`Session::handle_input`] until it is used up and then takes [`Action`]s from
//! [`Session::poll_action`]: commands with all their data, questions, and in the end a [`Closed`]. What it has done it tells
//! with [`Session::complete`] and its like, which queue PDUs; [`Session::take_batch`] gives all of them for one send.
//! A command goes through four hands: [`receive`](self) puts requests in the order of CmdSN and data in their
//! places, `command` gathers a write's data by R2T, the driver runs it, `respond` answers it.
//!
//! **Bounds.** The command window admits [`COMMANDS_MAX`] commands, and [`IMMEDIATE_MAX`] immediate ones beyond it. Data that
//! come unasked are at most FirstBurstLength each; the rest of a write is asked for when the driver says so
//! ([`Action::Solicit`]), which it can put off as long as memory is short. While [`Session::set_memory_short`] holds, the
//! window does not grow. A request ahead of a gap in CmdSN is kept until the gap is filled, with at most
//! [`TEXT_MAX`] bytes of what is no write's data. Output is the driver's to bound: it should not
//! feed input while much output waits.
//!
//! **Aborting.** A command that is still gathering data ends at once; one that runs is finished by the driver and its result
//! dropped, and the task management response waits for that. Data on their way for an aborted command are dropped
//! without a word. The RFC lets a target wait for them instead (4.2.3.3), but initiators in use stop sending when
//! they abort, whatever was asked for.
//!
//! **Errors.** At error recovery level 0 nothing is sent again: after a wrong data digest the peer is told and the
//! connection closed.

mod command;
mod manage;
mod receive;
mod respond;

use crate::keys::{Negotiation, Parameters};
use crate::login::{Established, Purpose};
use crate::output::Output;
use crate::pdu::{AsyncMessage, Bhs, NopIn};
use crate::receiver::{Receiver, Violation};
use crate::tasks::{COMMANDS_MAX, State, Tag, Tasks, Transfer};
use crate::wire::{Attribute, RejectReason, TAG_NONE, async_event, flag};
use forebay_base::Nanos;
use forebay_runtime::{Arena, Buf};
use manage::{Management, TextExchange};
use receive::{Held, Landing};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

#[cfg(doc)]
use crate::{tasks::IMMEDIATE_MAX, wire::TEXT_MAX};

/// An initiator that has been silent for this long is asked whether it is there.
pub const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
/// One that then stays silent for this long is not.
pub const KEEPALIVE_LIMIT: Duration = Duration::from_secs(15);

/// A SCSI command, in its turn and with its data.
#[derive(Debug)]
pub struct Command {
    pub tag: Tag,
    pub lun: u64,
    pub cdb: [u8; 16],
    pub attribute: Attribute,
    /// What the initiator is ready to take, and what it said it would send.
    pub expected_in: u32,
    pub expected_out: u32,
    /// What was sent of that and asked for: parts that follow each other; all but the last are [`crate::PART`] long.
    pub data: Vec<Buf>,
}

#[derive(Debug)]
pub enum Action {
    /// To be answered with [`Session::complete`], always.
    Command(Command),
    /// A write whose data have not all come: how many bytes are wanted? To be answered with [`Session::solicit`], unless a
    /// [`Action::Forget`] comes first.
    Solicit { tag: Tag, lun: u64, cdb: [u8; 16], expected_out: u32 },
    /// The question about this command needs no answer any more.
    Forget(Tag),
    /// The initiator no longer wants this command. It has to be completed all the same; sooner is better.
    Abort(Tag),
    /// A task management function for a logical unit or the target; this session's own tasks are looked after here. To be
    /// answered with [`Session::managed`].
    Manage { id: u32, function: u8, lun: u64 },
    /// To be answered with [`Session::targets`].
    FindTargets(TargetsWanted),
    /// The last action: finish what runs, drop its results, send what [`Session::take_batch`] still has, and close.
    Close(Closed),
}

/// Which targets a SendTargets asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetsWanted {
    All,
    Named(String),
}

/// A target as discovery tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovered {
    pub name: String,
    /// `ADDRESS:PORT` and the portal group it belongs to.
    pub portals: Vec<(String, u16)>,
}

/// Why a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// The initiator logged out.
    Logout,
    Violation(Violation),
    /// The initiator did not answer a ping.
    Silent,
    /// This side wanted it.
    Dropped,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::Logout => f.write_str("it logged out"),
            Closed::Violation(violation) => violation.fmt(f),
            Closed::Silent => write!(f, "it did not answer a ping for {} s", KEEPALIVE_LIMIT.as_secs()),
            Closed::Dropped => f.write_str("the session was dropped"),
        }
    }
}

/// How a command ended.
#[derive(Debug, Default)]
pub struct Completion {
    /// SCSI status.
    pub status: u8,
    /// Sense data; empty when there are none.
    pub sense: Vec<u8>,
    /// For the initiator; what exceeds its expectation is cut off.
    pub data_in: Vec<Buf>,
    /// Bytes that the command, as its CDB says, moves in or out; what this differs by from the initiator's expectation is the
    /// residual.
    pub needed_len: u64,
}

/// One connection, which is one session.
pub struct Session {
    parameters: Parameters,
    negotiation: Negotiation,
    /// What it is a session with; `None`: it is for discovery.
    target: Option<String>,
    cid: u16,
    receiver: Receiver,
    output: Output,
    tasks: Tasks,
    landing: Landing,
    /// Header and data of the request being received, if it is no SCSI command.
    header: Bhs,
    collected: Vec<u8>,
    /// Requests that came before their turn, in no order, and the bytes that they keep.
    held: Vec<(u32, Held)>,
    held_bytes: usize,
    actions: VecDeque<Action>,
    management: Vec<Management>,
    management_next: u32,
    text: Option<TextExchange>,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
    stat_sn: u32,
    ttt_next: u32,
    memory_short: bool,
    closing: bool,
    heard: Nanos,
    pinged: Option<Nanos>,
}

impl Session {
    pub fn new(established: &Established, now: Nanos) -> Session {
        let parameters = established.parameters;
        let Parameters { header_digest, data_digest, segment_max_own, .. } = parameters;
        Session {
            parameters,
            negotiation: Negotiation::target(parameters),
            target: match &established.request.purpose {
                Purpose::Discovery => None,
                Purpose::Normal { target } => Some(target.clone()),
            },
            cid: established.cid,
            receiver: Receiver::new(header_digest, data_digest, segment_max_own),
            output: Output::new(header_digest, data_digest),
            tasks: Tasks::default(),
            landing: Landing::Skip,
            header: Bhs::new(0),
            collected: Vec::new(),
            held: Vec::new(),
            held_bytes: 0,
            actions: VecDeque::new(),
            management: Vec::new(),
            management_next: 0,
            text: None,
            exp_cmd_sn: established.exp_cmd_sn,
            max_cmd_sn: established.exp_cmd_sn.wrapping_add(COMMANDS_MAX - 1),
            stat_sn: established.stat_sn,
            ttt_next: 0,
            memory_short: false,
            closing: false,
            heard: now,
            pinged: None,
        }
    }

    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Everything queued so far, for one send.
    pub fn take_batch(&mut self, arena: &Arena) -> Vec<Buf> {
        self.output.take_batch(arena)
    }
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }
    /// Bytes of output that wait, data buffers not counted.
    pub fn output_bytes(&self) -> usize {
        self.output.header_bytes()
    }
    /// Bytes of memory held by data that the driver does not have yet.
    pub fn memory(&self) -> u64 {
        self.tasks.memory
    }
    /// Bytes that were asked for and have not come.
    pub fn awaited(&self) -> u64 {
        let transfers =
            self.tasks.live().map(|(_, task)| &task.transfer).filter(|transfer| transfer.asked > 0);
        transfers.map(|transfer| u64::from(transfer.wanted.saturating_sub(transfer.received))).sum()
    }
    /// Bytes of [`Session::memory`] that belong to writes which wait for [`Session::solicit`].
    pub fn memory_asking(&self) -> u64 {
        let asking = self.tasks.live().filter(|(_, task)| task.state == State::Asking);
        asking.map(|(_, task)| task.memory).sum()
    }
    /// Whether the initiator has to send the rest of what it has begun: of a PDU, of unsolicited data, of data that were asked for, or a
    /// request that is missing before others. A write whose data nobody has asked for waits for this side.
    pub fn awaits_initiator(&self) -> bool {
        let is_incomplete =
            |transfer: &Transfer| transfer.unsolicited.is_some() || !transfer.bursts.is_empty();
        self.receiver.is_within_pdu()
            || !self.held.is_empty()
            || self.tasks.live().any(|(_, task)| is_incomplete(&task.transfer))
    }
    /// Commands that have not been answered.
    pub fn commands(&self) -> u32 {
        self.tasks.ordinary() + self.tasks.immediate()
    }

    /// Whether the driver has little memory left: the command window then grows no further.
    pub fn set_memory_short(&mut self, short: bool) {
        let was_closed = self.memory_short && self.is_window_closed();
        self.memory_short = short;
        // An initiator with a closed window and nothing under way has to be told that it may go on.
        if !short && was_closed && !self.closing {
            self.ping(TAG_NONE);
        }
    }

    fn is_window_closed(&self) -> bool {
        self.max_cmd_sn.wrapping_add(1) == self.exp_cmd_sn
    }

    /// Something has come from the initiator, though it has not been looked at.
    pub fn set_heard(&mut self, now: Nanos) {
        self.heard = now;
        self.pinged = None;
    }

    /// When [`Session::handle_timeout`] wants to be called, at the latest.
    pub fn next_timeout(&self) -> Nanos {
        match self.pinged {
            Some(at) => at.after(KEEPALIVE_LIMIT),
            None => self.heard.after(KEEPALIVE_AFTER),
        }
    }

    /// Pings a silent initiator; gives one up that does not answer.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if now < self.next_timeout() || self.closing {
            return;
        }
        if self.pinged.is_some() {
            return self.close(Closed::Silent);
        }
        self.pinged = Some(now);
        let ttt = self.next_ttt();
        self.ping(ttt);
    }

    /// A NOP-In that asks for an answer to `ttt`, or for none; it takes no StatSN.
    fn ping(&mut self, ttt: u32) {
        let mut bhs = NopIn { flags: flag::FINAL, itt: TAG_NONE, ttt, ..NopIn::default() }.encode();
        self.put_sequence(&mut bhs);
        self.output.pdu(bhs);
    }

    /// Tells the initiator that something happened to a logical unit; `sense` says what.
    pub fn notify(&mut self, lun: u64, sense: &[u8]) {
        if self.closing {
            return;
        }
        let message = AsyncMessage { lun, event: async_event::SCSI, ..AsyncMessage::default() };
        let mut data = (sense.len() as u16).to_be_bytes().to_vec();
        data.extend_from_slice(sense);
        self.async_message(message, &data);
    }

    /// Asks the initiator to log out within so many seconds.
    pub fn request_logout(&mut self, seconds: u16) {
        if !self.closing {
            let event = async_event::LOGOUT_REQUESTED;
            self.async_message(AsyncMessage { event, parameter3: seconds, ..AsyncMessage::default() }, &[]);
        }
    }

    /// Ends the session, with a word to the initiator.
    pub fn drop_session(&mut self) {
        if !self.closing {
            let (event, parameter2) = (async_event::SESSION_DROPPED, self.parameters.time2wait as u16);
            self.async_message(AsyncMessage { event, parameter2, ..AsyncMessage::default() }, &[]);
            self.close(Closed::Dropped);
        }
    }

    fn async_message(&mut self, message: AsyncMessage, data: &[u8]) {
        let mut bhs = AsyncMessage { flags: flag::FINAL, itt: TAG_NONE, ..message }.encode();
        self.put_status(&mut bhs);
        self.output.bytes(bhs, data);
    }

    /// No more is taken from the peer; what runs is left to the driver.
    fn close(&mut self, why: Closed) {
        if self.closing {
            return;
        }
        self.closing = true;
        self.landing = Landing::Skip;
        self.actions.push_back(Action::Close(why));
    }

    /// Nothing is asked of the driver after it was told to close.
    fn push(&mut self, action: Action) {
        if !self.closing {
            self.actions.push_back(action);
        }
    }

    /// Fills in the sequence numbers of a PDU without a StatSN of its own.
    fn put_sequence(&mut self, bhs: &mut Bhs) {
        let open = if self.memory_short { 0 } else { COMMANDS_MAX.saturating_sub(self.tasks.ordinary()) };
        let grown = self.exp_cmd_sn.wrapping_add(open).wrapping_sub(1);
        // The window's end never moves back.
        if crate::wire::is_before(self.max_cmd_sn, grown) {
            self.max_cmd_sn = grown;
        }
        bhs.set_sequence(self.stat_sn, self.exp_cmd_sn, self.max_cmd_sn);
    }

    /// Fills in the sequence numbers of a PDU that has a status, and counts it.
    fn put_status(&mut self, bhs: &mut Bhs) {
        self.put_sequence(bhs);
        self.stat_sn = self.stat_sn.wrapping_add(1);
    }

    fn next_ttt(&mut self) -> u32 {
        let ttt = self.ttt_next;
        self.ttt_next = (self.ttt_next + 1) % TAG_NONE;
        ttt
    }

    /// Sends the header of a PDU back with the reason why it was refused.
    fn reject(&mut self, reason: RejectReason, header: &Bhs) {
        let mut bhs = crate::pdu::Reject {
            flags: flag::FINAL,
            reason: reason as u8,
            itt: TAG_NONE,
            ..Default::default()
        }
        .encode();
        self.put_status(&mut bhs);
        self.output.bytes(bhs, &header.0);
    }
}
