//! Everything that is not a SCSI command: task management, text, logout.
//!
//! A task management function ends when two have happened: the driver has done its part, if it has one, and every
//! command of this session that the function aborted has been completed. Only then is it answered, so that the
//! initiator knows that nothing of those commands is still under way.

use super::{Action, Closed, Discovered, Session, TargetsWanted};
use crate::pdu::{Bhs, LogoutRequest, LogoutResponse, TaskRequest, TaskResponse, TextRequest, TextResponse};
use crate::receiver::Violation;
use crate::tasks::{IMMEDIATE_MAX, State, Tag};
use crate::text;
use crate::wire::{
    RejectReason, TAG_NONE, TEXT_MAX, TaskAnswer, flag, is_before, logout, task_function as function,
};

/// A task management function that has not been answered.
pub struct Management {
    id: u32,
    itt: u32,
    /// Commands that it aborted and that still run.
    running: u32,
    answer: Option<TaskAnswer>,
}

/// A text of several PDUs.
pub struct TextExchange {
    itt: u32,
    ttt: u32,
    input: Vec<u8>,
    /// The answer, and how much of it has been sent.
    output: Vec<u8>,
    sent: usize,
    /// The initiator has no more to say.
    last: bool,
    /// The driver was asked.
    waiting: bool,
}

impl Session {
    pub(super) fn task_request(&mut self, request: &TaskRequest) {
        let TaskRequest { itt, lun, .. } = *request;
        let function = request.flags & 0x7f;
        let modern = self.parameters.protocol_level >= 2;
        let with_driver = match function {
            function::ABORT_TASK => return self.abort_task(request),
            function::QUERY_TASK if modern => {
                let found = self.tasks.find(request.referenced_itt).is_some();
                return self
                    .answer_task(itt, if found { TaskAnswer::Succeeded } else { TaskAnswer::Complete });
            }
            function::QUERY_TASK_SET if modern => {
                let found = self.tasks.live().any(|(_, task)| task.lun == lun);
                return self
                    .answer_task(itt, if found { TaskAnswer::Succeeded } else { TaskAnswer::Complete });
            }
            // What could have happened unnoticed, the SCSI layer tells with the next command.
            function::QUERY_ASYNC_EVENT if modern => return self.answer_task(itt, TaskAnswer::Complete),
            function::ABORT_TASK_SET | function::CLEAR_TASK_SET | function::LUN_RESET => Some(lun),
            function::TARGET_WARM_RESET | function::TARGET_COLD_RESET => None,
            function::NEXUS_RESET if modern => None,
            function::TASK_REASSIGN => return self.answer_task(itt, TaskAnswer::ReassignNotSupported),
            _ => return self.answer_task(itt, TaskAnswer::NotSupported),
        };
        let Some(id) = self.begin_management(itt) else { return };
        let running = self.abort_all(with_driver, Some(id));
        self.management_of(id).expect("it has just begun").running = running;
        self.push(Action::Manage { id, function, lun });
    }

    fn abort_task(&mut self, request: &TaskRequest) {
        let TaskRequest { itt, lun, referenced_itt, referenced_cmd_sn, cmd_sn, .. } = *request;
        let found = self.tasks.find(referenced_itt);
        match found.map(|slot| (slot, self.tasks.get(slot))) {
            Some((_, task)) if task.lun != lun => self.answer_task(itt, TaskAnswer::NoTask),
            Some((slot, task)) if task.state != State::Running => {
                self.forget(slot);
                self.answer_task(itt, TaskAnswer::Complete);
            }
            Some((slot, _)) => {
                let Some(id) = self.begin_management(itt) else { return };
                let running = self.abort_running(slot, Some(id));
                let management = self.management_of(id).expect("it has just begun");
                (management.running, management.answer) = (running, Some(TaskAnswer::Complete));
                self.finish_management();
            }
            // It may still be on its way: then it is not to run when it comes.
            None if is_before(referenced_cmd_sn, cmd_sn)
                && !is_before(referenced_cmd_sn, self.exp_cmd_sn)
                && !is_before(self.max_cmd_sn, referenced_cmd_sn) =>
            {
                self.void(referenced_cmd_sn);
                self.answer_task(itt, TaskAnswer::Complete);
            }
            None => self.answer_task(itt, TaskAnswer::NoTask),
        }
    }

    /// The driver's answer to [`Action::Manage`].
    pub fn managed(&mut self, id: u32, answer: TaskAnswer) {
        let management = self.management_of(id).expect("the driver answers what it was asked, once");
        management.answer = Some(answer);
        self.finish_management();
    }

    /// Aborts commands because of what another session did: those for one logical unit, or all. Their results are
    /// dropped; the initiator learns of it through a unit attention.
    pub fn abort(&mut self, lun: Option<u64>) {
        self.abort_all(lun, None);
    }

    /// Aborts commands; how many of them still run.
    fn abort_all(&mut self, lun: Option<u64>, by: Option<u32>) -> u32 {
        let concerned: Vec<u16> = self
            .tasks
            .live()
            .filter(|(_, task)| lun.is_none_or(|lun| task.lun == lun))
            .map(|(slot, _)| slot)
            .collect();
        let mut running = 0;
        for slot in concerned {
            if self.tasks.get(slot).state == State::Running {
                running += self.abort_running(slot, by);
            } else {
                self.forget(slot);
            }
        }
        running
    }

    fn abort_running(&mut self, slot: u16, by: Option<u32>) -> u32 {
        let task = self.tasks.get(slot);
        // Whoever aborted it first waits for it.
        if std::mem::replace(&mut task.aborted, true) {
            return 0;
        }
        task.aborted_by = by;
        self.push(Action::Abort(Tag(slot)));
        1
    }

    /// A command that was aborted has been completed.
    pub(super) fn one_less(&mut self, by: Option<u32>) {
        if let Some(management) = by.and_then(|id| self.management_of(id)) {
            management.running -= 1;
            self.finish_management();
        }
    }

    fn begin_management(&mut self, itt: u32) -> Option<u32> {
        if self.management.len() >= IMMEDIATE_MAX as usize {
            self.answer_task(itt, TaskAnswer::Rejected);
            return None;
        }
        let id = self.management_next;
        self.management_next = id.wrapping_add(1);
        self.management.push(Management { id, itt, running: 0, answer: None });
        Some(id)
    }

    fn management_of(&mut self, id: u32) -> Option<&mut Management> {
        self.management.iter_mut().find(|management| management.id == id)
    }

    /// Answers the functions that are done.
    fn finish_management(&mut self) {
        while let Some(at) = self.management.iter().position(|m| m.running == 0 && m.answer.is_some()) {
            let done = self.management.remove(at);
            self.answer_task(done.itt, done.answer.expect("looked at just now"));
        }
    }

    fn answer_task(&mut self, itt: u32, answer: TaskAnswer) {
        if self.closing {
            return;
        }
        let response =
            TaskResponse { flags: flag::FINAL, response: answer as u8, itt, ..TaskResponse::default() };
        let mut bhs = response.encode();
        self.put_status(&mut bhs);
        self.output.pdu(bhs);
    }

    pub(super) fn logout_request(&mut self, request: &LogoutRequest) {
        let response = match request.flags & 0x7f {
            logout::CLOSE_SESSION => logout::DONE,
            logout::CLOSE_CONNECTION if request.cid == self.cid => logout::DONE,
            logout::CLOSE_CONNECTION => logout::NO_CONNECTION,
            _ => logout::RECOVERY_NOT_SUPPORTED,
        };
        let mut bhs = LogoutResponse {
            flags: flag::FINAL,
            response,
            itt: request.itt,
            time2wait: self.parameters.time2wait as u16,
            time2retain: self.parameters.time2retain as u16,
            ..LogoutResponse::default()
        }
        .encode();
        self.put_status(&mut bhs);
        self.output.pdu(bhs);
        if response == logout::DONE {
            self.close(Closed::Logout);
        }
    }

    /// A part of a text; false when it was rejected.
    pub(super) fn text_request(&mut self, header: &Bhs, data: &[u8]) -> bool {
        let request = TextRequest::decode(header);
        let goes_on = request.flags & flag::CONTINUE != 0;
        let last = request.flags & flag::FINAL != 0;
        if request.itt == TAG_NONE {
            self.reject(RejectReason::InvalidField, header);
            return false;
        }
        let known = self
            .text
            .as_ref()
            .is_some_and(|text| text.itt == request.itt && text.ttt == request.ttt && !text.waiting);
        if !known {
            if request.ttt != TAG_NONE || self.text.as_ref().is_some_and(|text| text.waiting) {
                self.reject(RejectReason::InvalidField, header);
                return false;
            }
            // A new exchange takes the place of one that was not finished.
            let ttt = self.next_ttt();
            self.text = Some(TextExchange {
                itt: request.itt,
                ttt,
                input: Vec::new(),
                output: Vec::new(),
                sent: 0,
                last,
                waiting: false,
            });
        }
        if goes_on && last {
            self.reject(RejectReason::Protocol, header);
            return false;
        }
        let exchange = self.text.as_mut().expect("made just now");
        if exchange.sent > 0 && data.is_empty() {
            self.send_text();
            return true;
        }
        if exchange.input.len() + data.len() > TEXT_MAX {
            self.close(Closed::Violation(Violation::TextTooLong));
            return true;
        }
        exchange.input.extend_from_slice(data);
        if goes_on {
            let (itt, ttt) = (exchange.itt, exchange.ttt);
            self.text_response(itt, ttt, 0, &[]);
            return true;
        }
        let input = std::mem::take(&mut exchange.input);
        (exchange.output, exchange.sent, exchange.last) = (Vec::new(), 0, last);
        self.handle_text(&input, header)
    }

    fn handle_text(&mut self, input: &[u8], header: &Bhs) -> bool {
        let Ok(pairs) = text::parse(input) else {
            self.reject(RejectReason::Protocol, header);
            self.text = None;
            return false;
        };
        let (wanted, other): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(key, _)| *key == "SendTargets");
        let mut answers = Vec::new();
        if self.negotiation.handle_later(&other, &mut answers).is_err() || wanted.len() > 1 {
            self.reject(RejectReason::Protocol, header);
            self.text = None;
            return false;
        }
        self.parameters.segment_max_peer = match self.negotiation.told_segment_max() {
            Some(told) => told,
            None => self.parameters.segment_max_peer,
        };
        let question = match (wanted.first(), &self.target) {
            (None, _) => None,
            (Some(&(_, "All")), None) => Some(TargetsWanted::All),
            // The target that one is with needs no name.
            (Some(&(_, "")), Some(target)) => Some(TargetsWanted::Named(target.clone())),
            (Some(&(_, name)), _) => {
                let found = text::name(name).map(TargetsWanted::Named);
                if found.is_none() {
                    text::push(&mut answers, "SendTargets", "Reject");
                }
                found
            }
        };
        let exchange = self.text.as_mut().expect("a text is handled within its exchange");
        exchange.output = answers;
        match question {
            Some(wanted) => {
                exchange.waiting = true;
                self.push(Action::FindTargets(wanted));
            }
            None => self.send_text(),
        }
        true
    }

    /// The driver's answer to [`Action::FindTargets`].
    pub fn targets(&mut self, targets: &[Discovered]) {
        let exchange =
            self.text.as_mut().filter(|text| text.waiting).expect("the driver answers what it was asked");
        exchange.waiting = false;
        for target in targets {
            text::push(&mut exchange.output, "TargetName", &target.name);
            for (address, group) in &target.portals {
                text::push(&mut exchange.output, "TargetAddress", format!("{address},{group}"));
            }
        }
        if !self.closing {
            self.send_text();
        }
    }

    /// Sends the next piece of an answer.
    fn send_text(&mut self) {
        let mut exchange = self.text.take().expect("a text is answered within its exchange");
        let rest = &exchange.output[exchange.sent..];
        let len = rest.len().min(self.parameters.segment_max_peer as usize);
        let piece = rest[..len].to_vec();
        exchange.sent += len;
        let complete = exchange.sent == exchange.output.len();
        if complete && exchange.last {
            return self.text_response(exchange.itt, TAG_NONE, flag::FINAL, &piece);
        }
        self.text_response(exchange.itt, exchange.ttt, if complete { 0 } else { flag::CONTINUE }, &piece);
        if complete {
            exchange.sent = 0;
        }
        self.text = Some(exchange);
    }

    fn text_response(&mut self, itt: u32, ttt: u32, flags: u8, data: &[u8]) {
        let mut bhs = TextResponse { flags, itt, ttt, ..TextResponse::default() }.encode();
        self.put_status(&mut bhs);
        self.output.bytes(bhs, data);
    }
}
