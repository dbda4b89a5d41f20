//! Requests in the order of CmdSN, and data to their places.
//!
//! A request that is not immediate takes its turn by CmdSN: outside the window it is ignored, as the RFC prescribes; ahead
//! of a gap it is held. A PDU that is rejected counts as not received: its CmdSN stays a gap that the initiator has to
//! fill (7.3), so it is judged before it takes its turn.

use super::{Action, Closed, Session};
use crate::pdu::{Bhs, DataOut, NopIn, NopOut, ScsiCommand};
use crate::receiver::{Piece, Violation};
use crate::tasks::{State, Tag};
use crate::wire::{RejectReason, TAG_NONE, TEXT_MAX, flag, is_before, opcode};
use forebay_base::Nanos;
use forebay_base::planted::{Bug, active};
use forebay_runtime::Arena;

/// Where the data of the PDU being received go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landing {
    /// Nowhere.
    Skip,
    /// They are a command's own.
    Command(u16),
    /// They follow what a command already has; `last` of the sequence.
    DataOut { slot: u16, last: bool },
    /// To [`Session::collected`], to be looked at when whole.
    Collect,
}

/// A request before its turn.
pub enum Held {
    Command(u16),
    Other {
        header: Bhs,
        data: Vec<u8>,
    },
    /// Was aborted before it came (11.6.1).
    Void,
}

/// Whose turn a request is.
enum Turn {
    Now,
    Later,
    Never,
}

impl Session {
    /// Takes all of `input`, unless the session ends.
    pub fn handle_input(&mut self, now: Nanos, input: &mut &[u8], arena: &Arena) {
        if !input.is_empty() {
            self.set_heard(now);
        }
        while !self.closing {
            match self.receiver.next(input) {
                Ok(None) => return,
                Ok(Some(Piece::Header(bhs))) => {
                    self.header = bhs;
                    self.landing = self.begin(&bhs);
                }
                Ok(Some(Piece::Data(bytes))) => match self.landing {
                    Landing::Skip => {}
                    Landing::Command(slot) | Landing::DataOut { slot, .. } => {
                        // Of a command that will not run, data are not kept.
                        if self.tasks.get(slot).fault.is_none() {
                            self.tasks.append(slot, bytes, arena);
                        }
                    }
                    Landing::Collect => self.collected.extend_from_slice(bytes),
                },
                Ok(Some(Piece::End { intact })) => self.end(intact),
                Err(violation) => self.close(Closed::Violation(violation)),
            }
        }
        *input = &[];
    }

    /// A PDU begins: where do its data go?
    fn begin(&mut self, bhs: &Bhs) -> Landing {
        let allowed_in_discovery = [opcode::TEXT_REQUEST, opcode::LOGOUT_REQUEST, opcode::NOP_OUT];
        if self.target.is_none() && !allowed_in_discovery.contains(&bhs.opcode()) {
            self.reject(RejectReason::NotSupported, bhs);
            return Landing::Skip;
        }
        match bhs.opcode() {
            opcode::SCSI_COMMAND => self.begin_command(bhs),
            opcode::DATA_OUT => self.begin_data_out(&DataOut::decode(bhs)),
            opcode::NOP_OUT | opcode::TASK_REQUEST | opcode::TEXT_REQUEST | opcode::LOGOUT_REQUEST => {
                self.collected.clear();
                Landing::Collect
            }
            opcode::SNACK => {
                // Nothing is kept that could be sent again.
                self.reject(RejectReason::Snack, bhs);
                Landing::Skip
            }
            opcode::LOGIN_REQUEST => {
                self.reject(RejectReason::Protocol, bhs);
                Landing::Skip
            }
            _ => {
                self.reject(RejectReason::NotSupported, bhs);
                Landing::Skip
            }
        }
    }

    /// A PDU is whole.
    fn end(&mut self, intact: bool) {
        let landing = std::mem::replace(&mut self.landing, Landing::Skip);
        if !intact {
            let header = self.header;
            self.reject(RejectReason::DataDigest, &header);
            return self.close(Closed::Violation(Violation::DataDigest));
        }
        match landing {
            Landing::Skip => {}
            Landing::Command(slot) => self.end_command(slot),
            Landing::DataOut { slot, last } => self.end_data_out(slot, last),
            Landing::Collect => {
                let (header, data) = (self.header, std::mem::take(&mut self.collected));
                if let Some(data) = self.take_turn(header, data) {
                    // Kept for its memory.
                    self.collected = data;
                }
            }
        }
    }

    fn turn(&self, cmd_sn: u32) -> Turn {
        if cmd_sn == self.exp_cmd_sn && !self.is_window_closed() {
            Turn::Now
        } else if is_before(self.exp_cmd_sn, cmd_sn)
            && !is_before(self.max_cmd_sn, cmd_sn)
            && self.held.iter().all(|(held, _)| *held != cmd_sn)
        {
            Turn::Later
        } else {
            Turn::Never
        }
    }

    /// A request other than a SCSI command; gives the memory of its data back if it needs it no more.
    fn take_turn(&mut self, header: Bhs, data: Vec<u8>) -> Option<Vec<u8>> {
        if header.is_immediate() {
            self.handle(&header, &data);
            return Some(data);
        }
        // A NOP-Out that only answers ours is always immediate.
        match self.turn(header.cmd_sn()) {
            Turn::Never => Some(data),
            Turn::Now => {
                if self.handle(&header, &data) {
                    self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
                    self.release_held();
                }
                Some(data)
            }
            Turn::Later => {
                self.held_bytes += data.len();
                if self.held_bytes > TEXT_MAX {
                    self.close(Closed::Violation(Violation::HeldTooMuch));
                }
                self.held.push((header.cmd_sn(), Held::Other { header, data }));
                None
            }
        }
    }

    /// Lets held requests go whose turn has come.
    pub(super) fn release_held(&mut self) {
        while let Some(at) = self.held.iter().position(|(cmd_sn, _)| *cmd_sn == self.exp_cmd_sn) {
            if self.closing {
                return;
            }
            let taken = match self.held.swap_remove(at).1 {
                Held::Void => true,
                Held::Command(slot) => {
                    self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
                    self.tasks.get(slot).held = false;
                    self.advance(slot);
                    continue;
                }
                Held::Other { header, data } => {
                    self.held_bytes -= data.len();
                    self.handle(&header, &data)
                }
            };
            if !taken {
                return;
            }
            self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        }
    }

    /// Marks a command that has not come as aborted.
    pub(super) fn void(&mut self, cmd_sn: u32) {
        match self.turn(cmd_sn) {
            Turn::Now => {
                self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
                self.release_held();
            }
            Turn::Later => self.held.push((cmd_sn, Held::Void)),
            Turn::Never => {}
        }
    }

    /// Carries a request out; false when it was rejected.
    fn handle(&mut self, header: &Bhs, data: &[u8]) -> bool {
        match header.opcode() {
            opcode::NOP_OUT => self.nop_out(&NopOut::decode(header), data),
            opcode::TASK_REQUEST => self.task_request(&crate::pdu::TaskRequest::decode(header)),
            opcode::TEXT_REQUEST => return self.text_request(header, data),
            opcode::LOGOUT_REQUEST => self.logout_request(&crate::pdu::LogoutRequest::decode(header)),
            other => unreachable!("PDU {other:#04x} is not collected"),
        }
        true
    }

    fn nop_out(&mut self, nop: &NopOut, data: &[u8]) {
        assert!(!active(Bug::PingPanics), "planted");
        // Without a task tag it answers a ping of ours, and has done so by coming.
        if nop.itt == TAG_NONE {
            return;
        }
        let data = &data[..data.len().min(self.parameters.segment_max_peer as usize)];
        let mut bhs = NopIn { flags: flag::FINAL, itt: nop.itt, ttt: TAG_NONE, ..NopIn::default() }.encode();
        self.put_status(&mut bhs);
        self.output.bytes(bhs, data);
    }

    /// The turn of a SCSI command, which begins before its data have come: `None` when it is to be ignored, otherwise whether
    /// it has to wait.
    pub(super) fn command_turn(&self, command: &ScsiCommand) -> Option<bool> {
        match self.turn(command.cmd_sn) {
            Turn::Now => Some(false),
            Turn::Later => Some(true),
            Turn::Never => None,
        }
    }

    /// A command's own PDU is whole.
    fn end_command(&mut self, slot: u16) {
        let task = self.tasks.get(slot);
        task.arriving = false;
        let (held, immediate) = (task.held, task.immediate);
        let cmd_sn = self.header.cmd_sn();
        if held {
            self.held.push((cmd_sn, Held::Command(slot)));
        } else if !immediate {
            self.exp_cmd_sn = self.exp_cmd_sn.wrapping_add(1);
        }
        self.advance(slot);
        if !held && !immediate {
            self.release_held();
        }
    }

    /// Forgets a task that ends without the driver's doing.
    pub(super) fn forget(&mut self, slot: u16) {
        if self.tasks.get(slot).state == State::Asking {
            self.push(Action::Forget(Tag(slot)));
        }
        let task = self.tasks.get(slot);
        let (held, arriving, fresh) = (task.held, task.arriving, !task.held && !task.immediate);
        if matches!(self.landing, Landing::Command(s) | Landing::DataOut { slot: s, .. } if s == slot) {
            self.landing = Landing::Skip;
        }
        for entry in &mut self.held {
            if matches!(entry.1, Held::Command(found) if found == slot) {
                entry.1 = Held::Void;
            }
        }
        self.tasks.remove(slot);
        // Its turn is used up, though the rest of its PDU is yet to come.
        if arriving && fresh {
            self.void(self.header.cmd_sn());
        } else if arriving && held {
            let cmd_sn = self.header.cmd_sn();
            self.held.push((cmd_sn, Held::Void));
        }
    }
}
