//! An initiator's session: commands out, results in.

use super::login::Connected;
use crate::keys::Parameters;
use crate::output::{Output, Source};
use crate::pdu::{
    AsyncMessage, Bhs, DataIn, DataOut, LogoutRequest, LogoutResponse, NopIn, NopOut, R2t, Reject,
    ScsiCommand, ScsiResponse, TaskRequest, TaskResponse, TextRequest, TextResponse,
};
use crate::receiver::{Piece, Receiver, Violation};
use crate::tasks::Transfer;
use crate::wire::{Attribute, TAG_NONE, TEXT_MAX, flag, is_before, opcode};
use forebay_runtime::{Arena, Buf};
use std::collections::VecDeque;

/// A SCSI command. One that sends data has `data_out`; one that expects some has `expected_in`.
#[derive(Clone, Debug, Default)]
pub struct ScsiRequest {
    pub lun: u64,
    pub cdb: [u8; 16],
    pub attribute: Attribute,
    pub immediate: bool,
    pub expected_in: u32,
    pub data_out: Vec<Buf>,
}

/// The target takes no more commands at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowClosed;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residual {
    None,
    /// The command would have moved so many bytes more, or has moved so many less, than expected.
    Overflow(u32),
    Underflow(u32),
}

#[derive(Debug)]
pub enum Event {
    Completed {
        itt: u32,
        status: u8,
        sense: Vec<u8>,
        data_in: Vec<Buf>,
        residual: Residual,
    },
    /// A task management function was answered, with one of [`crate::wire::TaskAnswer`].
    TaskAnswered {
        itt: u32,
        response: u8,
    },
    /// A ping was answered.
    Pong {
        itt: u32,
        data: Vec<u8>,
    },
    /// A text request was answered.
    Text {
        itt: u32,
        text: Vec<u8>,
    },
    /// One of [`crate::wire::logout`].
    LoggedOut {
        response: u8,
    },
    Async {
        message: AsyncMessage,
        data: Vec<u8>,
    },
    /// A PDU was refused for this reason.
    Rejected {
        reason: u8,
        header: Vec<u8>,
    },
    /// The target has asked whether we are there, and was answered.
    Pinged,
}

struct Pending {
    lun: u64,
    data_out: Vec<Buf>,
    data_in: Transfer,
    data_sn: u32,
    live: bool,
    /// How often the slot was used: part of the tag, so that an old answer finds nobody.
    round: u32,
}

pub struct Session {
    parameters: Parameters,
    receiver: Receiver,
    output: Output,
    commands: Vec<Pending>,
    free: Vec<usize>,
    other_itt: u32,
    header: Bhs,
    collected: Vec<u8>,
    text: Vec<u8>,
    landing: Option<usize>,
    events: VecDeque<Event>,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
}

const SLOT_BITS: u32 = 12;
/// Tags of what is no SCSI command.
const OTHER: u32 = 0x8000_0000;

impl Session {
    pub fn new(connected: &Connected) -> Session {
        let parameters = connected.parameters;
        let Parameters { header_digest, data_digest, segment_max_own, .. } = parameters;
        Session {
            parameters,
            receiver: Receiver::new(header_digest, data_digest, segment_max_own),
            output: Output::new(header_digest, data_digest),
            commands: Vec::new(),
            free: Vec::new(),
            other_itt: OTHER,
            header: Bhs::new(0),
            collected: Vec::new(),
            text: Vec::new(),
            landing: None,
            events: VecDeque::new(),
            cmd_sn: connected.cmd_sn,
            max_cmd_sn: connected.max_cmd_sn,
            exp_stat_sn: connected.exp_stat_sn,
        }
    }

    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }
    /// Commands that the target takes at this moment.
    pub fn window(&self) -> u32 {
        let open = self.max_cmd_sn.wrapping_add(1).wrapping_sub(self.cmd_sn);
        if open > 1 << 31 { 0 } else { open }
    }
    pub fn next_cmd_sn(&self) -> u32 {
        self.cmd_sn
    }
    /// For tests that leave gaps.
    pub fn set_next_cmd_sn(&mut self, cmd_sn: u32) {
        self.cmd_sn = cmd_sn;
    }
    pub fn exp_stat_sn(&self) -> u32 {
        self.exp_stat_sn
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }
    pub fn take_batch(&mut self, arena: &Arena) -> Vec<Buf> {
        self.output.take_batch(arena)
    }
    /// For PDUs that no initiator sends.
    pub fn raw(&mut self) -> &mut Output {
        &mut self.output
    }

    fn take_cmd_sn(&mut self, immediate: bool) -> Result<u32, WindowClosed> {
        if immediate {
            return Ok(self.cmd_sn);
        }
        if self.window() == 0 {
            return Err(WindowClosed);
        }
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        Ok(self.cmd_sn.wrapping_sub(1))
    }

    /// Queues a command with as many of its data as may go unasked; its tag.
    pub fn command(&mut self, request: ScsiRequest) -> Result<u32, WindowClosed> {
        let cmd_sn = self.take_cmd_sn(request.immediate)?;
        let slot = self.free.pop().unwrap_or_else(|| {
            assert!(self.commands.len() < 1 << SLOT_BITS, "more commands than any window has");
            self.commands.push(Pending {
                lun: 0,
                data_out: Vec::new(),
                data_in: Transfer::default(),
                data_sn: 0,
                live: false,
                round: 0,
            });
            self.commands.len() - 1
        });
        let pending = &mut self.commands[slot];
        pending.round = (pending.round + 1) & ((OTHER >> SLOT_BITS) - 1);
        pending.live = true;
        pending.data_sn = 0;
        pending.lun = request.lun;
        pending.data_in = Transfer::expecting(request.expected_in);
        pending.data_out = request.data_out;
        let itt = pending.round << SLOT_BITS | slot as u32;
        let out_len: usize = pending.data_out.iter().map(|part| part.len()).sum();
        let Parameters { segment_max_peer, first_burst_max, initial_r2t, immediate_data, .. } =
            self.parameters;
        let unasked = out_len.min(first_burst_max as usize);
        let own = if immediate_data { unasked.min(segment_max_peer as usize) } else { 0 };
        let follows = !initial_r2t && own < unasked;
        let command = ScsiCommand {
            flags: if follows { 0 } else { flag::FINAL }
                | if request.expected_in > 0 { flag::READ } else { 0 }
                | if out_len > 0 { flag::WRITE } else { 0 }
                | request.attribute.bits(),
            lun: request.lun,
            itt,
            expected_len: request.expected_in.max(out_len as u32),
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: request.cdb,
        };
        let mut bhs = command.encode();
        if request.immediate {
            bhs = bhs.immediate();
        }
        self.output.data(bhs, &mut Source::new(&self.commands[slot].data_out, 0), own);
        if follows {
            self.data_out(slot, itt, TAG_NONE, own, unasked);
        }
        Ok(itt)
    }

    /// Sends the bytes `at..end` of a command's data as one sequence.
    fn data_out(&mut self, slot: usize, itt: u32, ttt: u32, mut at: usize, end: usize) {
        let pending = &self.commands[slot];
        let mut source = Source::new(&pending.data_out, at);
        let mut data_sn = 0;
        while at < end {
            let len = (end - at).min(self.parameters.segment_max_peer as usize);
            let data = DataOut {
                flags: if at + len == end { flag::FINAL } else { 0 },
                lun: pending.lun,
                itt,
                ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn,
                buffer_offset: at as u32,
            };
            self.output.data(data.encode(), &mut source, len);
            at += len;
            data_sn += 1;
        }
    }

    fn next_other(&mut self) -> u32 {
        self.other_itt = OTHER | self.other_itt.wrapping_add(1) & (OTHER >> 1);
        self.other_itt
    }

    /// Queues a task management function, immediate; its tag.
    pub fn manage(&mut self, function: u8, lun: u64, referenced_itt: u32, referenced_cmd_sn: u32) -> u32 {
        let itt = self.next_other();
        let request = TaskRequest {
            flags: flag::FINAL | function,
            lun,
            itt,
            referenced_itt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            referenced_cmd_sn,
            exp_data_sn: 0,
        };
        self.output.pdu(request.encode().immediate());
        itt
    }

    /// Queues a ping; its tag.
    pub fn ping(&mut self, data: &[u8]) -> u32 {
        let itt = self.next_other();
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        let nop = NopOut { flags: flag::FINAL, itt, ttt: TAG_NONE, cmd_sn, exp_stat_sn, ..NopOut::default() };
        self.output.bytes(nop.encode().immediate(), data);
        itt
    }

    /// Queues a text request of one PDU; its tag.
    pub fn text(&mut self, text: &[u8]) -> u32 {
        let itt = self.next_other();
        self.text.clear();
        self.text_request(itt, TAG_NONE, text);
        itt
    }

    fn text_request(&mut self, itt: u32, ttt: u32, text: &[u8]) {
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        let request = TextRequest { flags: flag::FINAL, lun: 0, itt, ttt, cmd_sn, exp_stat_sn };
        self.output.bytes(request.encode().immediate(), text);
    }

    /// Queues a logout for one of the reasons in [`crate::wire::logout`].
    pub fn logout(&mut self, reason: u8, cid: u16) {
        let itt = self.next_other();
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        let request = LogoutRequest { flags: flag::FINAL | reason, itt, cid, cmd_sn, exp_stat_sn };
        self.output.pdu(request.encode().immediate());
    }

    /// Takes all of `input`. After an error the connection must be closed.
    pub fn handle_input(&mut self, input: &mut &[u8], arena: &Arena) -> Result<(), Violation> {
        while let Some(piece) = self.receiver.next(input)? {
            match piece {
                Piece::Header(bhs) => {
                    self.header = bhs;
                    self.collected.clear();
                    self.landing = None;
                    if bhs.opcode() == opcode::DATA_IN {
                        self.landing = Some(self.begin_data_in(&DataIn::decode(&bhs))?);
                    }
                }
                Piece::Data(bytes) => match self.landing {
                    Some(slot) => drop(self.commands[slot].data_in.append(bytes, arena)),
                    None => self.collected.extend_from_slice(bytes),
                },
                Piece::End { intact: false } => return Err(Violation::DataDigest),
                Piece::End { intact: true } => self.end()?,
            }
        }
        Ok(())
    }

    fn find(&self, itt: u32) -> Option<usize> {
        let slot = (itt & ((1 << SLOT_BITS) - 1)) as usize;
        let pending = self.commands.get(slot)?;
        (pending.live && pending.round == itt >> SLOT_BITS).then_some(slot)
    }

    fn unexpected(&self) -> Violation {
        Violation::Unexpected(self.header.opcode())
    }

    fn begin_data_in(&mut self, data: &DataIn) -> Result<usize, Violation> {
        let (unexpected, len) = (self.unexpected(), self.header.data_len());
        let slot = self.find(data.itt).ok_or(unexpected)?;
        let pending = &mut self.commands[slot];
        let fits = data.buffer_offset.checked_add(len).is_some_and(|end| end <= pending.data_in.wanted);
        if data.data_sn != pending.data_sn || data.buffer_offset != pending.data_in.received || !fits {
            return Err(unexpected);
        }
        pending.data_sn += 1;
        Ok(slot)
    }

    fn sequence(&mut self, has_status: bool) -> Result<(), Violation> {
        if has_status {
            // One connection delivers in order.
            if self.header.stat_sn() != self.exp_stat_sn {
                return Err(self.unexpected());
            }
            self.exp_stat_sn = self.exp_stat_sn.wrapping_add(1);
        }
        if is_before(self.max_cmd_sn, self.header.max_cmd_sn()) {
            self.max_cmd_sn = self.header.max_cmd_sn();
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Violation> {
        let header = self.header;
        let collected = std::mem::take(&mut self.collected);
        match header.opcode() {
            opcode::DATA_IN => {
                let data = DataIn::decode(&header);
                let done = data.flags & flag::STATUS != 0;
                self.sequence(done)?;
                if done {
                    self.completed(data.itt, data.status, Vec::new(), data.flags, data.residual)?;
                }
            }
            opcode::SCSI_RESPONSE => {
                self.sequence(true)?;
                let response = ScsiResponse::decode(&header);
                let sense = match collected.split_first_chunk::<2>() {
                    Some((&len, rest)) => {
                        rest.get(..usize::from(u16::from_be_bytes(len))).ok_or(self.unexpected())?.to_vec()
                    }
                    None => Vec::new(),
                };
                self.completed(response.itt, response.status, sense, response.flags, response.residual)?;
            }
            opcode::R2T => {
                self.sequence(false)?;
                let r2t = R2t::decode(&header);
                let slot = self.find(r2t.itt).ok_or(self.unexpected())?;
                let out_len: usize = self.commands[slot].data_out.iter().map(|part| part.len()).sum();
                let (at, len) = (r2t.buffer_offset as usize, r2t.desired_len as usize);
                if at + len > out_len || len == 0 || len > self.parameters.burst_max as usize {
                    return Err(self.unexpected());
                }
                self.data_out(slot, r2t.itt, r2t.ttt, at, at + len);
            }
            opcode::NOP_IN => {
                let nop = NopIn::decode(&header);
                self.sequence(nop.itt != TAG_NONE)?;
                if nop.ttt != TAG_NONE {
                    let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
                    let (itt, lun, ttt) = (TAG_NONE, nop.lun, nop.ttt);
                    let pong = NopOut { flags: flag::FINAL, lun, itt, ttt, cmd_sn, exp_stat_sn };
                    self.output.pdu(pong.encode().immediate());
                    self.events.push_back(Event::Pinged);
                } else if nop.itt != TAG_NONE {
                    self.events.push_back(Event::Pong { itt: nop.itt, data: collected });
                }
            }
            opcode::TASK_RESPONSE => {
                self.sequence(true)?;
                let TaskResponse { itt, response, .. } = TaskResponse::decode(&header);
                self.events.push_back(Event::TaskAnswered { itt, response });
            }
            opcode::TEXT_RESPONSE => {
                self.sequence(true)?;
                let response = TextResponse::decode(&header);
                if self.text.len() + collected.len() > TEXT_MAX {
                    return Err(Violation::TextTooLong);
                }
                self.text.extend_from_slice(&collected);
                if response.flags & flag::FINAL != 0 {
                    let text = std::mem::take(&mut self.text);
                    self.events.push_back(Event::Text { itt: response.itt, text });
                } else {
                    self.text_request(response.itt, response.ttt, &[]);
                }
            }
            opcode::LOGOUT_RESPONSE => {
                self.sequence(true)?;
                let LogoutResponse { response, .. } = LogoutResponse::decode(&header);
                self.events.push_back(Event::LoggedOut { response });
            }
            opcode::ASYNC => {
                self.sequence(true)?;
                self.events
                    .push_back(Event::Async { message: AsyncMessage::decode(&header), data: collected });
            }
            opcode::REJECT => {
                self.sequence(true)?;
                let Reject { reason, .. } = Reject::decode(&header);
                self.events.push_back(Event::Rejected { reason, header: collected });
            }
            _ => return Err(self.unexpected()),
        }
        Ok(())
    }

    fn completed(
        &mut self,
        itt: u32,
        status: u8,
        sense: Vec<u8>,
        flags: u8,
        count: u32,
    ) -> Result<(), Violation> {
        let slot = self.find(itt).ok_or(self.unexpected())?;
        let data_in = self.forget_slot(slot);
        let residual = match flags & (flag::OVERFLOW | flag::UNDERFLOW) {
            0 => Residual::None,
            flag::OVERFLOW => Residual::Overflow(count),
            flag::UNDERFLOW => Residual::Underflow(count),
            _ => return Err(self.unexpected()),
        };
        self.events.push_back(Event::Completed { itt, status, sense, data_in, residual });
        Ok(())
    }

    fn forget_slot(&mut self, slot: usize) -> Vec<Buf> {
        let pending = &mut self.commands[slot];
        pending.live = false;
        pending.data_out.clear();
        self.free.push(slot);
        pending.data_in.take()
    }

    /// Forgets a command that was aborted: no answer will come.
    pub fn forget(&mut self, itt: u32) {
        if let Some(slot) = self.find(itt) {
            self.forget_slot(slot);
        }
    }
}
