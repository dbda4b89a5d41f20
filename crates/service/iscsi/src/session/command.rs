//! SCSI commands until they run: judged, put in their turn, and a write's data gathered.
//!
//! Data come in the command's own PDU, then unsolicited, then as R2Ts ask for them; always in order. A command that breaks
//! the rules of its data phase gets a [`Fault`]: it does not run, the data that are still on their way are dropped,
//! and when the last of them has come it is answered with CHECK CONDITION (11.17.1).

use super::receive::Landing;
use super::{Action, Command, Session};
use crate::pdu::{Additional, Bhs, DataOut, R2t, ScsiCommand, additional};
use crate::tasks::{BURSTS_MAX, Burst, Fault, IMMEDIATE_MAX, State, Tag, Task, Transfer};
use crate::wire::{RejectReason, TAG_NONE, flag};

impl Session {
    /// A SCSI command begins; gives it a slot, unless it is ignored or rejected.
    pub(super) fn begin_command(&mut self, bhs: &Bhs) -> Landing {
        let command = ScsiCommand::decode(bhs);
        let immediate = bhs.is_immediate();
        let held = if immediate {
            if self.tasks.immediate() >= IMMEDIATE_MAX {
                self.reject(RejectReason::TooManyImmediate, bhs);
                return Landing::Skip;
            }
            false
        } else {
            match self.command_turn(&command) {
                Some(held) => held,
                None => return Landing::Skip,
            }
        };
        if command.itt == TAG_NONE {
            self.reject(RejectReason::InvalidField, bhs);
            return Landing::Skip;
        }
        if self.tasks.find(command.itt).is_some() {
            self.reject(RejectReason::TaskInProgress, bhs);
            return Landing::Skip;
        }
        let fault = self.judge(&command, bhs.data_len());
        let slot = self.tasks.insert(&command, immediate);
        let task = self.tasks.get(slot);
        (task.held, task.fault) = (held, fault);
        if command.writes() {
            task.transfer.wanted = command.expected_len;
            // More follows unasked, whether it may or not.
            task.transfer.unsolicited = (command.flags & flag::FINAL == 0).then_some(0);
        }
        Landing::Command(slot)
    }

    /// What is wrong with a command, if anything.
    fn judge(&self, command: &ScsiCommand, data_len: u32) -> Option<Fault> {
        if command.reads() && command.writes() {
            return Some(Fault::BIDIRECTIONAL);
        }
        for header in additional(self.receiver.ahs()) {
            match header {
                Ok(Additional::Cdb(_)) => return Some(Fault::LONG_CDB),
                Ok(Additional::ReadLen(_)) | Err(_) => return Some(Fault::BIDIRECTIONAL),
                Ok(Additional::Unknown(_)) => {}
            }
        }
        let more = command.flags & flag::FINAL == 0;
        let unasked = data_len > 0 && !self.parameters.immediate_data
            || more && (self.parameters.initial_r2t || !command.writes())
            || data_len > 0 && !command.writes()
            || data_len > self.parameters.first_burst_max;
        if unasked {
            return Some(Fault::UNEXPECTED_DATA);
        }
        (data_len > command.expected_len).then_some(Fault::INCORRECT_AMOUNT)
    }

    /// Data for a command begin.
    pub(super) fn begin_data_out(&mut self, data: &DataOut) -> Landing {
        let header = self.header;
        let Some(slot) = self.tasks.find(data.itt) else {
            if !self.tasks.was_aborted(data.itt) {
                self.reject(RejectReason::InvalidField, &header);
            }
            return Landing::Skip;
        };
        let (len, last) = (header.data_len(), data.flags & flag::FINAL != 0);
        let first_burst_max = self.parameters.first_burst_max;
        let task = self.tasks.get(slot);
        if task.state == State::Running {
            // Everything that was asked for has come.
            self.reject(RejectReason::InvalidField, &header);
            return Landing::Skip;
        }
        let transfer = &mut task.transfer;
        let end = data.buffer_offset.checked_add(len);
        let verdict = if data.ttt == TAG_NONE {
            let bound = first_burst_max.min(task.expected_len);
            match &mut transfer.unsolicited {
                None => Err(Fault::UNEXPECTED_DATA),
                Some(data_sn) => {
                    let expected = std::mem::replace(data_sn, data_sn.wrapping_add(1));
                    check_data(data, expected, transfer.received, end, bound, false)
                }
            }
        } else if let Some(burst) = transfer.bursts.front_mut().filter(|burst| burst.ttt == data.ttt) {
            let expected = burst.data_sn;
            burst.data_sn = expected.wrapping_add(1);
            check_data(data, expected, transfer.received, end, burst.end, last)
        } else if transfer.bursts.iter().any(|burst| burst.ttt == data.ttt) {
            // Sequences come in order.
            Err(Fault::DATA_PHASE)
        } else {
            // A transfer tag from long ago, or from nowhere.
            self.reject(RejectReason::InvalidField, &header);
            return Landing::Skip;
        };
        if task.fault.is_none()
            && let Err(fault) = verdict
        {
            task.fault = Some(fault);
            self.reject(RejectReason::Protocol, &header);
        }
        Landing::DataOut { slot, last }
    }

    /// A PDU of a command's data is whole.
    pub(super) fn end_data_out(&mut self, slot: u16, last: bool) {
        if last {
            let ttt = DataOut::decode(&self.header).ttt;
            let transfer = &mut self.tasks.get(slot).transfer;
            if ttt == TAG_NONE {
                transfer.unsolicited = None;
            } else {
                transfer.bursts.retain(|burst| burst.ttt != ttt);
            }
            self.advance(slot);
        }
    }

    /// Takes a command as far as it can go without the peer or the driver.
    pub(super) fn advance(&mut self, slot: u16) {
        let task = self.tasks.get(slot);
        if task.held || task.arriving || task.transfer.unsolicited.is_some() {
            return;
        }
        if let Some(fault) = task.fault {
            if task.transfer.bursts.is_empty() {
                if task.state == State::Asking {
                    self.push(Action::Forget(Tag(slot)));
                }
                self.fail(slot, fault);
            }
            return;
        }
        match task.state {
            State::Free | State::Running | State::Asking => {}
            State::Gathering if task.transfer.received == task.transfer.wanted => self.start(slot),
            State::Gathering if task.transfer.asked == 0 => {
                task.state = State::Asking;
                let Task { lun, cdb, expected_len, .. } = *task;
                self.push(Action::Solicit { tag: Tag(slot), lun, cdb, expected_out: expected_len });
            }
            State::Gathering => self.ask(slot),
        }
    }

    /// The driver's answer to [`Action::Solicit`]: the command needs so many bytes in all, those that came
    /// included.
    pub fn solicit(&mut self, tag: Tag, wanted: u64) {
        if self.closing {
            return;
        }
        let task = self.tasks.get(tag.0);
        assert!(task.state == State::Asking, "{tag:?} was asked about");
        task.state = State::Gathering;
        let Transfer { received, .. } = task.transfer;
        let wanted =
            u32::try_from(wanted).unwrap_or(u32::MAX).clamp(received, task.expected_len.max(received));
        task.transfer.wanted = wanted;
        if wanted == received {
            return self.start(tag.0);
        }
        task.transfer.asked = received;
        self.ask(tag.0);
    }

    /// Sends R2Ts for what is wanted, as many as may be unanswered at a time.
    fn ask(&mut self, slot: u16) {
        let most = (self.parameters.r2t_outstanding_max as usize).min(BURSTS_MAX);
        loop {
            let ttt = self.ttt_next;
            let burst_max = self.parameters.burst_max;
            let task = self.tasks.get(slot);
            let Transfer { asked, wanted, r2t_sn, ref mut bursts, .. } = task.transfer;
            if asked == wanted || bursts.len() == most {
                return;
            }
            let end = asked + (wanted - asked).min(burst_max);
            bursts.push_back(Burst { ttt, end, data_sn: 0 });
            (task.transfer.asked, task.transfer.r2t_sn) = (end, r2t_sn + 1);
            let r2t = R2t {
                flags: flag::FINAL,
                lun: task.lun,
                itt: task.itt,
                ttt,
                r2t_sn,
                buffer_offset: asked,
                desired_len: end - asked,
                ..R2t::default()
            };
            self.next_ttt();
            let mut bhs = r2t.encode();
            self.put_sequence(&mut bhs);
            self.output.pdu(bhs);
        }
    }

    /// Hands a command with all its data to the driver.
    fn start(&mut self, slot: u16) {
        let data = self.tasks.take_data(slot);
        let task = self.tasks.get(slot);
        task.state = State::Running;
        let (expected_in, expected_out) = match (task.reads, task.writes) {
            (true, _) => (task.expected_len, 0),
            (_, true) => (0, task.expected_len),
            _ => (0, 0),
        };
        let Task { lun, cdb, attribute, .. } = *task;
        let tag = Tag(slot);
        self.push(Action::Command(Command { tag, lun, cdb, attribute, expected_in, expected_out, data }));
    }
}

/// Whether data are the next ones, and within what was asked for; the last of a solicited sequence end it exactly.
fn check_data(
    data: &DataOut,
    data_sn: u32,
    received: u32,
    end: Option<u32>,
    bound: u32,
    ends: bool,
) -> Result<(), Fault> {
    if data.data_sn != data_sn || data.buffer_offset != received {
        return Err(Fault::DATA_PHASE);
    }
    match end {
        Some(end) if end == bound || end < bound && !ends => Ok(()),
        _ => Err(Fault::INCORRECT_AMOUNT),
    }
}
