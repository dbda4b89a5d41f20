//! What each command does: answered from the unit's state, or the first operation on the volume.
//!
//! Everything about a command that can be wrong is found here, before its first operation: a range beyond the end, a
//! length over the limits that the Block Limits page reports, Data-Out of another length. [`crate::task`] goes on
//! from there.

use crate::attention::Attention;
use crate::command::{Check, Command, Span};
use crate::data;
use crate::inquiry;
use crate::limits::{PIECE_BYTES, STATUS_BYTES_MAX, TRANSFER_BYTES_MAX};
use crate::mode;
use crate::nexus::NexusId;
use crate::opcodes;
use crate::reserve_in;
use crate::reserve_out::{self, Refusal};
use crate::reserve_store;
use crate::sense::{Sense, SenseKey, asc};
use crate::step::{DataOut, Op, Response, Status, Step};
use crate::task::{Task, Work};
use crate::unit::Unit;
use forebay_runtime::Buf;

/// GET LBA STATUS descriptors in one answer, at most: 16 KiB of them.
const STATUS_DESCRIPTORS_MAX: usize = 1024;

impl Unit {
    /// Carries out a command that nothing outside it forbids.
    pub(crate) fn execute(
        &mut self,
        nexus: NexusId,
        command: &Command,
        data: DataOut,
    ) -> Result<Step, Sense> {
        let done = |response| Ok(Step::Done(response));
        match *command {
            // READ's FUA asks for what the medium has; the engine's cache never differs from it.
            Command::Read { span, .. } => self.read(span),
            Command::Write { span, fua } | Command::WriteAtomic { span, fua } => self.write(span, data, fua),
            Command::WriteAndVerify { span, compares } => self.write_and_verify(span, data, compares),
            Command::Verify { span, check } => self.verify(span, check, data),
            Command::Prefetch { span } => self.prefetch(span),
            Command::SynchronizeCache { span } => {
                self.check_range(span)?;
                Ok(Step::Medium(Op::Flush, Task(Work::Done)))
            }
            Command::Unmap { list } => self.unmap(list, data),
            Command::WriteSame { span, no_data, .. } => self.write_same(span, data, no_data),
            Command::OrWrite { span, fua } => self.or_write(span, data, fua),
            Command::CompareAndWrite { span, fua } => self.compare_and_write(span, data, fua),
            Command::GetLbaStatus { lba, allocation } => self.get_lba_status(lba, allocation),

            Command::TestUnitReady | Command::PreventAllow { .. } => done(Response::good()),
            Command::RequestSense { descriptor_format, allocation } => {
                done(self.request_sense(nexus, descriptor_format, allocation))
            }
            Command::Inquiry { page, allocation } => {
                let bytes = match page {
                    None => inquiry::standard(true),
                    Some(code) => {
                        inquiry::page(code, &self.inquiry_view(nexus)).ok_or(Sense::cdb_field(2, None))?
                    }
                };
                done(Response::bytes(bytes, allocation))
            }
            Command::ReportLuns { select, allocation } => report_luns(Some(nexus), select, allocation),
            Command::ReadCapacity10 => done(Response::bytes(self.read_capacity_10(), 8)),
            Command::ReadCapacity16 { allocation } => {
                done(Response::bytes(self.read_capacity_16(), allocation))
            }
            Command::ReadDefectData { twelve, lists, allocation } => {
                // No list has an entry: damaged blocks are repaired or replaced below.
                let bytes = if twelve { vec![0, lists, 0, 0, 0, 0, 0, 0] } else { vec![0, lists, 0, 0] };
                done(Response::bytes(bytes, allocation))
            }
            Command::ModeSense { ten, block_descriptor, control, page, subpage, allocation } => {
                let bytes = mode::sense(ten, block_descriptor, control, page, subpage, &self.mode_view())?;
                done(Response::bytes(bytes, allocation))
            }
            Command::ModeSelect { ten, list } => {
                let list = data::list(&data, list)?;
                let mode = mode::select(ten, &list, &self.mode_view())?;
                if mode != self.mode {
                    self.mode = mode;
                    self.raise_to_others(Attention::ModeParametersChanged, nexus);
                }
                done(Response::good())
            }
            Command::StartStop { start: Some(false), flush: true } => {
                Ok(Step::Medium(Op::Flush, Task(Work::Stop)))
            }
            Command::StartStop { start, .. } => {
                self.is_stopped = start.map_or(self.is_stopped, |start| !start);
                done(Response::good())
            }
            Command::PersistentReserveIn { action, allocation } => {
                let state = &self.reservations;
                let bytes = match action {
                    0 => reserve_in::read_keys(state),
                    1 => reserve_in::read_reservation(state),
                    2 => reserve_in::report_capabilities(state),
                    _ => reserve_in::read_full_status(state),
                };
                done(Response::bytes(bytes, allocation))
            }
            Command::PersistentReserveOut { action, scope_and_type, list } => {
                self.persistent_reserve_out(nexus, action, scope_and_type, list, data)
            }
            Command::Reserve => done(Response::status(self.reserve(nexus))),
            Command::Release => done(Response::status(self.release(nexus))),
            Command::ReportTargetPortGroups { extended, allocation } => {
                done(Response::bytes(self.report_target_port_groups(extended), allocation))
            }
            Command::ReportSupportedOpcodes { options, opcode, action, timeouts, allocation } => {
                done(Response::bytes(opcodes::report(options, opcode, action, timeouts)?, allocation))
            }
            Command::ReportTaskManagement { extended, allocation } => {
                done(Response::bytes(opcodes::report_task_management(extended), allocation))
            }
            Command::ExtendedCopy { list } => self.extended_copy(nexus, list, data),
            Command::ReceiveCopyResults { list_id, allocation } => {
                let bytes = match list_id {
                    Some(list_id) => self.copy_status(nexus, list_id)?,
                    None => self.copy_parameters(),
                };
                done(Response::bytes(bytes, allocation))
            }
        }
    }

    /// Bytes of a span, which must lie within the unit.
    fn check_range(&self, span: Span) -> Result<(u64, u64), Sense> {
        let end = span.lba.checked_add(span.blocks.into());
        if span.lba >= self.blocks || end.is_none_or(|end| end > self.blocks) {
            return Err(Sense::illegal(asc::LBA_OUT_OF_RANGE));
        }
        let block_bytes = u64::from(self.block_bytes);
        Ok((span.lba * block_bytes, u64::from(span.blocks) * block_bytes))
    }

    /// The same for a command that moves at most `blocks_max`.
    fn check_span(&self, span: Span, blocks_max: u32) -> Result<(u64, u64), Sense> {
        let range = self.check_range(span)?;
        if span.blocks > blocks_max {
            return Err(Sense::cdb_field(span.length_byte.into(), None));
        }
        Ok(range)
    }

    /// Data-Out of exactly this length.
    fn exact_data(&self, data: DataOut, len: u64, length_byte: u8) -> Result<Vec<Buf>, Sense> {
        if data.announced != len || data::len(&data.parts) != len {
            return Err(Sense::cdb_field(length_byte.into(), None));
        }
        Ok(data.parts)
    }

    fn read(&self, span: Span) -> Result<Step, Sense> {
        let (at, len) = self.check_span(span, self.limits.transfer_blocks)?;
        if len == 0 {
            return Ok(Step::Done(Response::good()));
        }
        Ok(Step::Medium(Op::Read { at, len: len as usize }, Task(Work::Read)))
    }

    /// Writes the whole blocks that came; the transport tells of the rest as a residual.
    fn write(&self, span: Span, data: DataOut, fua: bool) -> Result<Step, Sense> {
        let (at, len) = self.check_span(span, self.limits.transfer_blocks)?;
        let data = data::whole_blocks(data.parts, len, self.block_bytes);
        if data::len(&data) == 0 {
            return Ok(Step::Done(Response::good()));
        }
        Ok(Step::Medium(Op::Write { at, data, fua }, Task(Work::Done)))
    }

    fn write_and_verify(&self, span: Span, data: DataOut, compares: bool) -> Result<Step, Sense> {
        let (at, len) = self.check_span(span, self.limits.transfer_blocks)?;
        let data = data::whole_blocks(data.parts, len, self.block_bytes);
        if data::len(&data) == 0 {
            return Ok(Step::Done(Response::good()));
        }
        let end = at + data::len(&data);
        let expected =
            if compares { Expected::Data(data::gather(&self.arena, &data)) } else { Expected::Any };
        // What is verified is what the medium has: written through.
        let work = Work::Verify { start: at, at, end, expected };
        Ok(Step::Medium(Op::Write { at, data, fua: true }, Task(Work::Then(Box::new(work)))))
    }

    fn verify(&self, span: Span, check: Check, data: DataOut) -> Result<Step, Sense> {
        let blocks_max = if check == Check::Data { self.limits.transfer_blocks } else { u32::MAX };
        let (at, len) = self.check_span(span, blocks_max)?;
        let expected = match check {
            Check::Medium => Expected::Any,
            Check::Data => {
                let data = self.exact_data(data, len, span.length_byte)?;
                Expected::Data(data::gather(&self.arena, &data))
            }
            Check::OneBlock => {
                let len = if len == 0 { 0 } else { self.block_bytes.into() };
                let data = self.exact_data(data, len, span.length_byte)?;
                Expected::Block(data::gather(&self.arena, &data))
            }
        };
        Ok(self.go_on(Work::Verify { start: at, at, end: at + len, expected }))
    }

    /// GOOD, not CONDITION MET: the engine keeps what it finds worth keeping.
    fn prefetch(&self, span: Span) -> Result<Step, Sense> {
        let (at, len) = self.check_range(span)?;
        // No length means all that follows.
        let end = if len == 0 { self.blocks * u64::from(self.block_bytes) } else { at + len };
        let len = (end - at).min(TRANSFER_BYTES_MAX as u64) as usize;
        Ok(Step::Medium(Op::Read { at, len }, Task(Work::Drop)))
    }

    fn unmap(&self, list: u32, data: DataOut) -> Result<Step, Sense> {
        let list = data::list(&data, list)?;
        if list.is_empty() {
            return Ok(Step::Done(Response::good()));
        }
        let (header, descriptors) =
            list.split_first_chunk::<8>().ok_or(Sense::illegal(asc::PARAMETER_LIST_LENGTH))?;
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let descriptors = descriptors.get(..len).ok_or(Sense::illegal(asc::PARAMETER_LIST_LENGTH))?;
        // What is no whole descriptor at the end is ignored (SBC-3 5.28.2).
        let (descriptors, _) = descriptors.as_chunks::<16>();
        if descriptors.len() > self.limits.unmap_descriptors as usize {
            return Err(Sense::parameter_field(2, None));
        }
        let (mut ranges, mut total) = (Vec::with_capacity(descriptors.len()), 0u64);
        for descriptor in descriptors {
            let (lba, rest) = descriptor.split_first_chunk().expect("sixteen bytes");
            let blocks = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
            let span = Span { lba: u64::from_be_bytes(*lba), blocks, length_byte: 0 };
            // Nothing to unmap is no error, even just behind the last block (SBC-3 5.28.2).
            if blocks == 0 && span.lba <= self.blocks {
                continue;
            }
            ranges.push(self.check_range(span)?);
            total += u64::from(blocks);
        }
        if total > self.limits.unmap_blocks.into() {
            return Err(Sense::parameter_field(8, None));
        }
        Ok(self.go_on(Work::Unmap { ranges: joined(ranges), next: 0 }))
    }

    fn write_same(&self, span: Span, data: DataOut, no_data: bool) -> Result<Step, Sense> {
        let (at, len) = self.check_span(span, self.limits.same_blocks)?;
        if span.blocks == 0 {
            // WSNZ: the unit has no "to the end".
            return Err(Sense::cdb_field(span.length_byte.into(), None));
        }
        let block = match no_data {
            true => None,
            false => {
                let parts = self.exact_data(data, self.block_bytes.into(), span.length_byte)?;
                Some(data::gather(&self.arena, &parts)).filter(|block| block.iter().any(|&byte| byte != 0))
            }
        };
        // Zeros need no space, whether UNMAP says so or not: they read the same (LBPRZ).
        let Some(block) = block else {
            let op = Op::WriteZeroes { at, len, fua: false };
            return Ok(Step::Medium(op, Task(Work::Done)));
        };
        let pattern = data::repeat(&self.arena, &block, len.min(PIECE_BYTES) as usize);
        Ok(self.go_on(Work::Same { at, end: at + len, pattern }))
    }

    fn or_write(&self, span: Span, data: DataOut, fua: bool) -> Result<Step, Sense> {
        let (at, len) = self.check_span(span, self.limits.transfer_blocks)?;
        let parts = self.exact_data(data, len, span.length_byte)?;
        let mask = data::gather(&self.arena, &parts);
        Ok(self.go_on(Work::Or { start: at, at, end: at + len, mask, attempts: 0, fua }))
    }

    fn compare_and_write(&self, span: Span, data: DataOut, fua: bool) -> Result<Step, Sense> {
        let (at, len) = self.check_span(span, self.limits.compare_blocks.into())?;
        let parts = self.exact_data(data, 2 * len, span.length_byte)?;
        if len == 0 {
            return Ok(Step::Done(Response::good()));
        }
        let both = data::gather(&self.arena, &parts);
        let len = len as usize;
        let op = Op::CompareAndWrite { at, expected: both.slice(0, len), new: both.slice(len, len) };
        Ok(Step::Medium(op, Task(Work::Compare { fua })))
    }

    fn get_lba_status(&self, lba: u64, allocation: u32) -> Result<Step, Sense> {
        let (at, _) = self.check_range(Span { lba, blocks: 0, length_byte: 0 })?;
        let len = (self.blocks * u64::from(self.block_bytes) - at).min(STATUS_BYTES_MAX);
        // At least one descriptor, even when there is no room for it.
        let extents_max =
            (allocation as usize).saturating_sub(8).div_ceil(16).clamp(1, STATUS_DESCRIPTORS_MAX);
        let work = Work::Status { lba, allocation };
        Ok(Step::Medium(Op::Status { at, len, extents_max }, Task(work)))
    }

    fn request_sense(&mut self, nexus: NexusId, descriptor_format: bool, allocation: u32) -> Response {
        let sense = self.take_attention(nexus).unwrap_or(match self.is_stopped {
            true => Sense::new(SenseKey::NotReady, asc::NOT_READY_INITIALIZING_REQUIRED),
            false => Sense::new(SenseKey::NoSense, asc::NONE),
        });
        Response::bytes(sense.encode(descriptor_format).to_vec(), allocation)
    }

    fn read_capacity_10(&self) -> Vec<u8> {
        let last = u32::try_from(self.blocks - 1).unwrap_or(u32::MAX);
        [last.to_be_bytes(), self.block_bytes.to_be_bytes()].concat()
    }

    fn read_capacity_16(&self) -> Vec<u8> {
        let mut bytes = vec![0; 32];
        bytes[..8].copy_from_slice(&(self.blocks - 1).to_be_bytes());
        bytes[8..12].copy_from_slice(&self.block_bytes.to_be_bytes());
        // Logical blocks per physical block as an exponent; LBPME, LBPRZ; aligned to 0.
        bytes[13] = self.limits.granularity.ilog2() as u8;
        bytes[14] = 0xc0;
        bytes
    }

    fn report_target_port_groups(&self, extended: bool) -> Vec<u8> {
        let ports = &self.config.portal_groups;
        let mut groups = Vec::new();
        if extended {
            // Format 001b, and no implicit transition takes time.
            groups.extend([0x10, 0, 0, 0]);
        }
        // Active/optimised, the only state that is supported; no status to report.
        groups.extend([0x00, 0x01]);
        groups.extend(inquiry::PORT_GROUP.to_be_bytes());
        groups.extend([0, 0, 0, ports.len() as u8]);
        groups.extend(ports.iter().flat_map(|port| [0, 0, (port >> 8) as u8, *port as u8]));
        let mut bytes = (groups.len() as u32).to_be_bytes().to_vec();
        bytes.extend(groups);
        bytes
    }

    fn persistent_reserve_out(
        &mut self,
        nexus: NexusId,
        action: u8,
        scope_and_type: u8,
        list: u32,
        data: DataOut,
    ) -> Result<Step, Sense> {
        if self.is_storing {
            // The state that it would change is not settled.
            return Ok(Step::Done(Response::status(Status::Busy)));
        }
        let list = data::list(&data, list)?;
        let attached: Vec<_> = self.nexuses().map(|(_, nexus)| nexus.clone()).collect();
        let request = reserve_out::Request {
            action,
            scope_and_type,
            list: &list,
            nexus: self.nexus(nexus),
            portal_groups: &self.config.portal_groups,
            attached: &attached,
        };
        let change = match reserve_out::apply(&self.reservations, &request) {
            Ok(change) => change,
            Err(Refusal::Conflict) => return Ok(Step::Done(Response::status(Status::ReservationConflict))),
            Err(Refusal::Check(sense)) => return Err(sense),
        };
        if self.reservations.persists || change.state.persists {
            self.is_storing = true;
            let op = Op::Persist(reserve_store::encode(&change.state));
            return Ok(Step::Medium(op, Task(Work::Persist { nexus, change: Box::new(change) })));
        }
        Ok(self.settle(nexus, change))
    }

    /// RESERVE, and what it means beside persistent reservations (SPC-4 5.12.3: CRH).
    fn reserve(&mut self, nexus: NexusId) -> Status {
        if !self.reservations.registrations.is_empty() {
            return self.compatible(nexus);
        }
        match self.reserved_by {
            Some(holder) if holder != nexus => Status::ReservationConflict,
            _ => {
                self.reserved_by = Some(nexus);
                Status::Good
            }
        }
    }

    /// RELEASE: of no effect for who holds nothing.
    fn release(&mut self, nexus: NexusId) -> Status {
        if !self.reservations.registrations.is_empty() {
            return self.compatible(nexus);
        }
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
        Status::Good
    }

    fn compatible(&self, nexus: NexusId) -> Status {
        let role = self.reservations.role(self.nexus(nexus));
        let admitted = self.reservations.kind().is_some_and(|kind| kind.admits_registrants());
        if role.holder || role.registered && admitted { Status::Good } else { Status::ReservationConflict }
    }
}

/// What verified blocks must be equal to.
#[derive(Debug)]
pub(crate) enum Expected {
    Any,
    /// The whole span.
    Data(Buf),
    /// Each block of it.
    Block(Buf),
}

/// REPORT LUNS, which is the same everywhere.
pub(crate) fn report_luns(nexus: Option<NexusId>, select: u8, allocation: u32) -> Result<Step, Sense> {
    let lists_units = match select {
        0x00 | 0x02 => true,
        // Well known logical units only, or administrative ones: there are none.
        0x01 | 0x10..=0x12 => false,
        _ => return Err(Sense::cdb_field(2, None)),
    };
    let work = Work::Luns { nexus, lists_units, allocation };
    Ok(Step::Medium(Op::Luns, Task(work)))
}

/// Ranges of an UNMAP list that meet or overlap, as one: in any order they say the same (SBC-3 5.28.1). A block of the volume's that several name between them is so
/// given back; one by one, each would have a part of it written as zeros.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    ranges.dedup_by(|(at, len), (before_at, before_len)| {
        let end = *before_at + *before_len;
        let joins = *at <= end;
        if joins {
            *before_len = end.max(*at + *len) - *before_at;
        }
        joins
    });
    ranges
}
