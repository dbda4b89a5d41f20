//! Commands under way: what follows the result of an operation on the volume.
//!
//! A [`Task`] is all that is remembered of a command between two operations. Long commands go in pieces of
//! [`PIECE_BYTES`], so that each holds little memory and lets others have their turn. None of them needs a lock:
//! ORWRITE reads, and writes only if what it read is still there; the engine makes single operations atomic.

use crate::copy::Copying;
use crate::data;
use crate::execute::Expected;
use crate::inquiry;
use crate::limits::PIECE_BYTES;
use crate::nexus::NexusId;
use crate::reserve_out::Change;
use crate::sense::{Sense, SenseKey, asc};
use crate::step::{DataIn, Op, Outcome, Response, Status, Step};
use crate::unit::Unit;
use crate::{Attention, Command, Lun};
use forebay_pool::{Extent, IoError};
use forebay_runtime::Buf;

/// How often ORWRITE reads a piece again that others keep changing, before it answers BUSY: each time, another command
/// has got on.
const OR_ATTEMPTS_MAX: u32 = 1000;

/// A command under way: what [`Unit::resume`](crate::Unit::resume) needs to go on.
#[derive(Debug)]
pub struct Task(pub(crate) Work);

/// What to do with the result of the operation under way.
#[derive(Debug)]
pub(crate) enum Work {
    /// Nothing but to say so.
    Done,
    /// Hand the data to the initiator.
    Read,
    /// The data was only to be fetched.
    Drop,
    /// Go on with this.
    Then(Box<Work>),
    /// Compare what was read with what is expected. `start` is where the span begins, `at` what comes next.
    Verify {
        start: u64,
        at: u64,
        end: u64,
        expected: Expected,
    },
    /// UNMAP: the range before `next` is being cleared.
    Unmap {
        ranges: Vec<(u64, u64)>,
        next: usize,
    },
    /// WRITE SAME: what comes next is at `at`.
    Same {
        at: u64,
        end: u64,
        pattern: Buf,
    },
    /// ORWRITE: the piece at `at` is being read, or replaced.
    Or {
        start: u64,
        at: u64,
        end: u64,
        mask: Buf,
        attempts: u32,
        fua: bool,
    },
    Compare {
        fua: bool,
    },
    Status {
        lba: u64,
        allocation: u32,
    },
    Stop,
    Persist {
        nexus: NexusId,
        change: Box<Change>,
    },
    Luns {
        nexus: Option<NexusId>,
        lists_units: bool,
        allocation: u32,
    },
    Copy(Box<Copying>),
}

/// The end of the piece that begins at `at`: pieces end at multiples of their length, so that they cut no block.
fn piece_end(at: u64, end: u64) -> u64 {
    (at + 1).next_multiple_of(PIECE_BYTES).min(end)
}

impl Unit {
    /// Goes on with the result of the task's last operation.
    ///
    /// # Panics
    /// When the outcome is not of the operation's kind.
    pub fn resume(&mut self, task: Task, result: Result<Outcome, IoError>) -> Step {
        let outcome = match (&task.0, result) {
            (Work::Read, Ok(Outcome::Data(parts))) => {
                return Step::Done(Response { data_in: DataIn::Parts(parts), ..Response::good() });
            }
            (_, Ok(outcome)) => outcome,
            (_, Err(error)) => return self.fail(task, error),
        };
        self.advance(task.0, outcome).unwrap_or_else(|sense| Step::Done(self.check(sense)))
    }

    fn fail(&mut self, task: Task, error: IoError) -> Step {
        match task.0 {
            // Partial blocks at the ends could not be zeroed for want of space: what is whole can still be given back.
            Work::Unmap { ranges, next } if error == IoError::NoSpace => {
                let (at, len) = ranges[next - 1];
                let rest = Work::Unmap { ranges, next };
                Step::Medium(Op::Discard { at, len }, Task(Work::Then(Box::new(rest))))
            }
            Work::Persist { .. } => {
                self.is_storing = false;
                Step::Done(self.check(io_sense(error)))
            }
            Work::Copy(copying) => self.copy_failed(*copying, error),
            _ => Step::Done(self.check(io_sense(error))),
        }
    }

    fn advance(&mut self, work: Work, outcome: Outcome) -> Result<Step, Sense> {
        let good = || Ok(Step::Done(Response::good()));
        match (work, outcome) {
            (Work::Done, Outcome::Done) | (Work::Drop, Outcome::Data(_)) => good(),
            (Work::Then(next), Outcome::Done) => Ok(self.go_on(*next)),
            (Work::Verify { start, at, end, expected }, Outcome::Data(parts)) => {
                self.compare(start, at, &expected, &parts)?;
                let at = at + data::len(&parts);
                Ok(self.go_on(Work::Verify { start, at, end, expected }))
            }
            (work @ (Work::Unmap { .. } | Work::Same { .. }), Outcome::Done) => Ok(self.go_on(work)),
            (Work::Or { start, at, end, mask, attempts, fua }, Outcome::Data(parts)) => {
                let old = data::gather(&self.arena, &parts);
                let mut new = self.arena.copy(&old);
                let mask_here = &mask[(at - start) as usize..][..new.len()];
                new.iter_mut().zip(mask_here).for_each(|(byte, mask)| *byte |= mask);
                let op = Op::CompareAndWrite { at, expected: old, new: new.freeze() };
                Ok(Step::Medium(op, Task(Work::Or { start, at, end, mask, attempts, fua })))
            }
            (Work::Or { start, at, end, mask, attempts, fua }, Outcome::Compared(compared)) => {
                let (at, attempts) = match compared {
                    Ok(()) => (piece_end(at, end), 0),
                    // Somebody wrote in between: what is there now decides.
                    Err(_) if attempts < OR_ATTEMPTS_MAX => (at, attempts + 1),
                    Err(_) => return Ok(Step::Done(Response::status(Status::Busy))),
                };
                Ok(self.go_on(Work::Or { start, at, end, mask, attempts, fua }))
            }
            (Work::Compare { fua }, Outcome::Compared(compared)) => match compared {
                Ok(()) if fua => Ok(Step::Medium(Op::Flush, Task(Work::Done))),
                Ok(()) => good(),
                Err(at) => Err(Sense::new(SenseKey::Miscompare, asc::MISCOMPARE_DURING_VERIFY).at(at as u64)),
            },
            (Work::Status { lba, allocation }, Outcome::Extents(extents)) => {
                Ok(Step::Done(Response::bytes(self.lba_status(lba, &extents), allocation)))
            }
            (Work::Stop, Outcome::Done) => {
                self.is_stopped = true;
                good()
            }
            (Work::Persist { nexus, change }, Outcome::Done) => {
                self.is_storing = false;
                Ok(self.settle(nexus, *change))
            }
            (Work::Luns { nexus, lists_units, allocation }, Outcome::Luns(luns)) => {
                if let Some(nexus) = nexus {
                    self.clear(Attention::ReportedLunsChanged, nexus);
                }
                Ok(Step::Done(luns_reported(lists_units, allocation, luns)))
            }
            (Work::Copy(copying), outcome) => Ok(self.copy_on(*copying, outcome)),
            (work, outcome) => panic!("{outcome:?} does not follow from {work:?}"),
        }
    }

    /// The next operation of a command that goes in pieces, or its end.
    pub(crate) fn go_on(&self, work: Work) -> Step {
        let op = match &work {
            &Work::Verify { at, end, .. } if at < end => {
                Op::Read { at, len: (piece_end(at, end) - at) as usize }
            }
            &Work::Or { at, end, .. } if at < end => Op::Read { at, len: (piece_end(at, end) - at) as usize },
            Work::Or { fua: true, start, end, .. } if start < end => {
                return Step::Medium(Op::Flush, Task(Work::Done));
            }
            Work::Same { at, end, pattern } if at < end => {
                let (from, to) = (*at, piece_end(*at, *end));
                let data = vec![pattern.slice(0, (to - from).min(pattern.len() as u64) as usize)];
                let next =
                    Work::Same { at: from + data[0].len() as u64, end: *end, pattern: pattern.clone() };
                return Step::Medium(Op::Write { at: from, data, fua: false }, Task(next));
            }
            Work::Unmap { ranges, next } if *next < ranges.len() => {
                let (at, len) = ranges[*next];
                // Zeroes what is no whole block at the ends, too: LBPRZ promises zeros for whatever was unmapped.
                Op::WriteZeroes { at, len, fua: false }
            }
            _ => return Step::Done(Response::good()),
        };
        let work = match work {
            Work::Unmap { ranges, next } => Work::Unmap { ranges, next: next + 1 },
            work => work,
        };
        Step::Medium(op, Task(work))
    }

    fn compare(&self, start: u64, at: u64, expected: &Expected, parts: &[Buf]) -> Result<(), Sense> {
        let differs = match expected {
            Expected::Any => return Ok(()),
            Expected::Data(data) => {
                let from = (at - start) as usize;
                data::first_difference(parts, &data[from..][..data::len(parts) as usize])
            }
            Expected::Block(block) => {
                let wanted = data::repeat(&self.arena, block, data::len(parts) as usize);
                data::first_difference(parts, &wanted)
            }
        };
        match differs {
            None => Ok(()),
            Some(_) => Err(Sense::new(SenseKey::Miscompare, asc::MISCOMPARE_DURING_VERIFY)),
        }
    }

    fn lba_status(&self, mut lba: u64, extents: &[Extent]) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        for extent in extents {
            // An extent may end within a logical block only at the end of the volume.
            let blocks = extent.len / u64::from(self.block_bytes);
            bytes.extend(lba.to_be_bytes());
            bytes.extend((blocks as u32).to_be_bytes());
            bytes.extend([u8::from(!extent.mapped), 0, 0, 0]);
            lba += blocks;
        }
        let len = bytes.len() as u32 - 4;
        bytes[..4].copy_from_slice(&len.to_be_bytes());
        bytes
    }

    /// New reservations hold; tasks of those who were preempted are waited for.
    pub(crate) fn settle(&mut self, nexus: NexusId, mut change: Change) -> Step {
        let preempted = std::mem::take(&mut change.abort);
        self.commit(change);
        let aborted: Vec<NexusId> = self
            .nexuses()
            .filter(|(id, ports)| *id != nexus && preempted.contains(ports))
            .map(|(id, _)| id)
            .collect();
        if aborted.is_empty() {
            return Step::Done(Response::good());
        }
        Step::Medium(Op::Abort(aborted), Task(Work::Done))
    }
}

fn luns_reported(lists_units: bool, allocation: u32, mut luns: Vec<Lun>) -> Response {
    if !lists_units {
        luns.clear();
    }
    luns.sort();
    let mut bytes = (8 * luns.len() as u32).to_be_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes.extend(luns.iter().flat_map(|lun| lun.encode()));
    Response::bytes(bytes, allocation)
}

/// What an initiator is told when the volume fails.
pub(crate) fn io_sense(error: IoError) -> Sense {
    use SenseKey::*;
    let (key, code) = match error {
        IoError::OutOfRange => (IllegalRequest, asc::LBA_OUT_OF_RANGE),
        IoError::NoSpace => (DataProtect, asc::SPACE_ALLOCATION_FAILED),
        IoError::Corrupt => (MediumError, asc::UNRECOVERED_READ_ERROR),
        IoError::Io => (HardwareError, asc::INTERNAL_TARGET_FAILURE),
        IoError::Suspended => (NotReady, asc::NOT_READY_MANUAL_INTERVENTION),
        IoError::ReadOnly => (DataProtect, asc::WRITE_PROTECTED),
        IoError::Gone => (IllegalRequest, asc::LOGICAL_UNIT_NOT_SUPPORTED),
        // Only what the initiator has given up is cancelled: this is not sent.
        IoError::Cancelled => (AbortedCommand, asc::NONE),
    };
    Sense::new(key, code)
}

/// Answers for a logical unit number that means nothing to the nexus: INQUIRY says that nothing is connected, REPORT
/// LUNS is answered, the rest is LOGICAL UNIT NOT SUPPORTED. Continue with [`resume_absent`].
pub fn begin_absent(command: &Command) -> Step {
    const ABSENT: Sense = Sense::illegal(asc::LOGICAL_UNIT_NOT_SUPPORTED);
    let response = match *command {
        Command::Inquiry { page: None, allocation } => Response::bytes(inquiry::standard(false), allocation),
        Command::RequestSense { descriptor_format, allocation } => {
            Response::bytes(ABSENT.encode(descriptor_format).to_vec(), allocation)
        }
        Command::ReportLuns { select, allocation } => {
            match crate::execute::report_luns(None, select, allocation) {
                Ok(step) => return step,
                Err(sense) => Response::check(sense, false),
            }
        }
        _ => Response::check(ABSENT, false),
    };
    Step::Done(response)
}

/// Goes on with the result of the operation that [`begin_absent`] asked for.
pub fn resume_absent(task: Task, result: Result<Outcome, IoError>) -> Step {
    let response = match (task.0, result) {
        (Work::Luns { lists_units, allocation, .. }, Ok(Outcome::Luns(luns))) => {
            luns_reported(lists_units, allocation, luns)
        }
        (_, Err(error)) => Response::check(io_sense(error), false),
        (work, Ok(outcome)) => panic!("{outcome:?} does not follow from {work:?}"),
    };
    Step::Done(response)
}
