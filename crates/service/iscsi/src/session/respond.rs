//! Answers to SCSI commands: data in, status, sense, residuals.
//!
//! Data go out in PDUs as long as the initiator takes, in sequences of at most MaxBurstLength; buffers are sliced, never
//! copied. The last PDU carries a status of GOOD along, which saves the response (11.7.3); any other status has a
//! response of its own, as sense data need one.

use super::{Completion, Session};
use crate::output::Source;
use crate::pdu::{DataIn, ScsiResponse};
use crate::tasks::{Fault, State, Tag};
use crate::wire::{TAG_NONE, flag, status};

impl Session {
    /// The driver's answer to [`super::Action::Command`]. The result of a command that was aborted meanwhile is
    /// dropped.
    pub fn complete(&mut self, tag: Tag, completion: Completion) {
        let slot = tag.0;
        let task = self.tasks.get(slot);
        assert!(task.state == State::Running, "{tag:?} was handed out and not completed");
        let (itt, expected_len, reads) = (task.itt, task.expected_len, task.reads);
        let (aborted, aborted_by, r2t_sn) = (task.aborted, task.aborted_by, task.transfer.r2t_sn);
        let moves = task.reads || task.writes;
        // First, so that the answer already shows the window that it opens.
        self.tasks.remove(slot);
        if aborted {
            return self.one_less(aborted_by);
        }
        if self.closing {
            return;
        }
        let expected = if moves { u64::from(expected_len) } else { 0 };
        let needed = completion.needed_len;
        let residual = u32::try_from(needed.abs_diff(expected)).unwrap_or(u32::MAX);
        let residual_flag = match needed.cmp(&expected) {
            std::cmp::Ordering::Greater => flag::OVERFLOW,
            std::cmp::Ordering::Less => flag::UNDERFLOW,
            std::cmp::Ordering::Equal => 0,
        };
        let mut pdus = r2t_sn;
        if reads && !completion.data_in.is_empty() {
            let all: u64 = completion.data_in.iter().map(|part| part.len() as u64).sum();
            let len = all.min(expected) as u32;
            let good = completion.status == status::GOOD;
            pdus += self.data_in(itt, &completion, len, good.then_some((residual_flag, residual)));
            if good && len > 0 {
                return;
            }
        }
        let response = ScsiResponse {
            flags: flag::FINAL | residual_flag,
            status: completion.status,
            itt,
            exp_data_sn: pdus,
            residual,
            ..ScsiResponse::default()
        };
        self.respond(response, &completion.sense);
    }

    /// Sends `len` bytes of data, the last PDU with a status of GOOD and this residual if one is given; how many PDUs it
    /// took.
    fn data_in(&mut self, itt: u32, completion: &Completion, len: u32, good: Option<(u8, u32)>) -> u32 {
        let segment_max = self.parameters.segment_max_peer;
        let mut source = Source::new(&completion.data_in, 0);
        let (mut at, mut burst_left, mut data_sn) = (0, self.parameters.burst_max, 0);
        while at < len {
            let segment = (len - at).min(segment_max).min(burst_left);
            let last = at + segment == len;
            burst_left -= segment;
            let mut data = DataIn { itt, ttt: TAG_NONE, data_sn, buffer_offset: at, ..DataIn::default() };
            if last || burst_left == 0 {
                data.flags = flag::FINAL;
                burst_left = self.parameters.burst_max;
            }
            let mut bhs = match good {
                Some((residual_flag, residual)) if last => {
                    data.flags |= flag::STATUS | residual_flag;
                    data.residual = residual;
                    let mut bhs = data.encode();
                    self.put_status(&mut bhs);
                    bhs
                }
                _ => {
                    let mut bhs = data.encode();
                    self.put_sequence(&mut bhs);
                    bhs
                }
            };
            if !(good.is_some() && last) {
                // StatSN is reserved where there is no status.
                bhs.0[24..28].fill(0);
            }
            self.output.data(bhs, &mut source, segment as usize);
            at += segment;
            data_sn += 1;
        }
        data_sn
    }

    /// Ends a command that cannot run.
    pub(super) fn fail(&mut self, slot: u16, fault: Fault) {
        let task = self.tasks.get(slot);
        let (itt, expected_len, r2t_sn) = (task.itt, task.expected_len, task.transfer.r2t_sn);
        self.tasks.remove(slot);
        let response = ScsiResponse {
            flags: flag::FINAL | if expected_len > 0 { flag::UNDERFLOW } else { 0 },
            status: status::CHECK_CONDITION,
            itt,
            exp_data_sn: r2t_sn,
            residual: expected_len,
            ..ScsiResponse::default()
        };
        self.respond(response, &fault.sense());
    }

    fn respond(&mut self, response: ScsiResponse, sense: &[u8]) {
        let mut bhs = response.encode();
        self.put_status(&mut bhs);
        if sense.is_empty() {
            return self.output.pdu(bhs);
        }
        let mut data = [0; 2 + SENSE_MAX];
        let sense = &sense[..sense.len().min(SENSE_MAX)];
        data[..2].copy_from_slice(&(sense.len() as u16).to_be_bytes());
        data[2..2 + sense.len()].copy_from_slice(sense);
        self.output.bytes(bhs, &data[..2 + sense.len()]);
    }
}

/// Sense data are at most 252 bytes (SPC-4, 4.5.2.1).
const SENSE_MAX: usize = 252;
