//! The commands of one session that have not been answered, and the data of writes as they come in.
//!
//! A [`Task`] lives in a slot that the next command uses again. It is found by its initiator task tag, in a list of
//! plain numbers that is searched from end to end: at up to 144 entries that is faster than hashing.
//!
//! Data arrive in order (both sides agreed on DataPDUInOrder and DataSequenceInOrder): what comes next belongs where
//! the last ended, so a [`Transfer`] only appends, to 4096-aligned buffers of at most [`PART`] that are taken with
//! their first byte.

use crate::pdu::ScsiCommand;
use crate::wire::Attribute;
use forebay_runtime::{Arena, Buf, BufMut};
use std::collections::VecDeque;

/// Commands of one session at a time: the window that the initiator is shown. Initiators keep 32 to 128 in flight;
/// their unsolicited data are bounded by this times FirstBurstLength, 32 MiB.
pub const COMMANDS_MAX: u32 = 128;
/// Immediate commands, which no window bounds, beyond those.
pub const IMMEDIATE_MAX: u32 = 16;
/// Commands under way at a time, of both kinds.
pub const TAGS_MAX: usize = (COMMANDS_MAX + IMMEDIATE_MAX) as usize;
/// Data are received into buffers of at most this size; a write of up to 256 KiB, which nearly all are, is one buffer.
pub const PART: usize = 256 << 10;
/// R2Ts of one command that are unanswered at a time.
pub const BURSTS_MAX: usize = 8;
/// Tags of aborted commands whose data may still be on their way: those of a full session, for one round trip.
const ABORTED_MAX: usize = COMMANDS_MAX as usize;

/// Names a command between a session and its driver, until it is completed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tag(pub(crate) u16);

impl Tag {
    /// Below [`TAGS_MAX`]; of commands at the same time, different.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Where a command stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Free,
    /// Data are on their way, or it is not its turn yet.
    Gathering,
    /// The driver was asked how much of the rest it wants.
    Asking,
    /// The driver has it.
    Running,
}

/// Data asked for by one R2T.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    pub ttt: u32,
    /// Offset of its first byte behind the last.
    pub end: u32,
    /// DataSN of its next PDU.
    pub data_sn: u32,
}

/// What a command failed with before it could run: sense key, additional code and its qualifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    pub key: u8,
    pub asc: u8,
    pub ascq: u8,
}

impl Fault {
    const ABORTED: u8 = 0x0b;
    const ILLEGAL: u8 = 0x05;
    /// Table 3 of 11.4.7.2.
    pub const UNEXPECTED_DATA: Fault = Fault { key: Fault::ABORTED, asc: 0x0c, ascq: 0x0c };
    pub const INCORRECT_AMOUNT: Fault = Fault { key: Fault::ABORTED, asc: 0x0c, ascq: 0x0d };
    /// DATA PHASE ERROR.
    pub const DATA_PHASE: Fault = Fault { key: Fault::ABORTED, asc: 0x4b, ascq: 0x00 };
    /// INVALID FIELD IN COMMAND INFORMATION UNIT: bidirectional commands.
    pub const BIDIRECTIONAL: Fault = Fault { key: Fault::ILLEGAL, asc: 0x0e, ascq: 0x03 };
    /// INVALID COMMAND OPERATION CODE: longer CDBs.
    pub const LONG_CDB: Fault = Fault { key: Fault::ILLEGAL, asc: 0x20, ascq: 0x00 };

    /// Sense data in fixed format.
    pub fn sense(self) -> [u8; 18] {
        let mut sense = [0; 18];
        (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, self.key, 10, self.asc, self.ascq);
        sense
    }
}

/// The data of a write, as far as they have come.
#[derive(Default)]
pub struct Transfer {
    parts: Vec<Buf>,
    open: Option<BufMut>,
    open_filled: usize,
    /// Bytes that came.
    pub received: u32,
    /// Bytes that are wanted in all.
    pub wanted: u32,
    /// Unsolicited data will follow, and the DataSN of their next PDU.
    pub unsolicited: Option<u32>,
    /// Offset behind what R2Ts have asked for.
    pub asked: u32,
    pub r2t_sn: u32,
    /// In the order in which they were sent, which is that in which they are answered.
    pub bursts: VecDeque<Burst>,
}

impl Transfer {
    /// Nothing yet of `wanted` bytes.
    pub fn expecting(wanted: u32) -> Transfer {
        Transfer { wanted, ..Transfer::default() }
    }

    /// Appends bytes; returns how much memory was taken for them.
    pub fn append(&mut self, mut bytes: &[u8], arena: &Arena) -> u64 {
        let mut taken = 0;
        while !bytes.is_empty() {
            let left = self.wanted.saturating_sub(self.received) as usize;
            let open = self.open.get_or_insert_with(|| {
                let buffer = arena.take(left.clamp(bytes.len().min(PART), PART));
                taken += buffer.capacity() as u64;
                self.open_filled = 0;
                buffer
            });
            let count = (open.len() - self.open_filled).min(bytes.len());
            open[self.open_filled..self.open_filled + count].copy_from_slice(&bytes[..count]);
            self.open_filled += count;
            self.received += count as u32;
            bytes = &bytes[count..];
            if self.open_filled == open.len() {
                self.parts.extend(self.open.take().map(BufMut::freeze));
            }
        }
        taken
    }

    /// All that came.
    pub fn take(&mut self) -> Vec<Buf> {
        if let Some(mut open) = self.open.take() {
            open.truncate(self.open_filled);
            self.parts.push(open.freeze());
        }
        std::mem::take(&mut self.parts)
    }

    fn reset(&mut self) {
        self.parts.clear();
        self.open = None;
        self.bursts.clear();
        (self.open_filled, self.received, self.wanted, self.asked, self.r2t_sn) = (0, 0, 0, 0, 0);
        self.unsolicited = None;
    }
}

pub struct Task {
    pub state: State,
    pub itt: u32,
    pub lun: u64,
    pub cdb: [u8; 16],
    pub attribute: Attribute,
    pub reads: bool,
    pub writes: bool,
    pub immediate: bool,
    pub expected_len: u32,
    /// It came before its turn, which has not come yet.
    pub held: bool,
    /// Its own PDU has not come whole.
    pub arriving: bool,
    /// It will not run; answered when the data already asked for have come.
    pub fault: Option<Fault>,
    /// The task management request that aborted it, or none in particular: its result is dropped.
    pub aborted: bool,
    pub aborted_by: Option<u32>,
    pub transfer: Transfer,
    /// Bytes of memory that its data take.
    pub memory: u64,
}

/// All tasks of a session.
#[derive(Default)]
pub struct Tasks {
    tasks: Vec<Task>,
    /// Tags by slot; those of free slots stay but mean nothing.
    itts: Vec<u32>,
    free: Vec<u16>,
    immediate: u32,
    ordinary: u32,
    /// Aborted while data were on their way: these are not an error.
    aborted: VecDeque<u32>,
    /// Bytes of memory that data take which the driver does not have yet.
    pub memory: u64,
}

impl Tasks {
    pub fn find(&self, itt: u32) -> Option<u16> {
        let is_live = |&(slot, &found): &(usize, &u32)| found == itt && self.tasks[slot].state != State::Free;
        self.itts.iter().enumerate().find(is_live).map(|(slot, _)| slot as u16)
    }

    pub fn get(&mut self, slot: u16) -> &mut Task {
        &mut self.tasks[usize::from(slot)]
    }

    /// Tasks under way that count against the window, and immediate ones.
    pub fn ordinary(&self) -> u32 {
        self.ordinary
    }
    pub fn immediate(&self) -> u32 {
        self.immediate
    }

    pub fn live(&self) -> impl Iterator<Item = (u16, &Task)> {
        let live = self.tasks.iter().enumerate().filter(|(_, task)| task.state != State::Free);
        live.map(|(slot, task)| (slot as u16, task))
    }

    /// A slot for this command, in state [`State::Gathering`].
    pub fn insert(&mut self, command: &ScsiCommand, immediate: bool) -> u16 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(Task {
                state: State::Free,
                itt: 0,
                lun: 0,
                cdb: [0; 16],
                attribute: Attribute::Simple,
                reads: false,
                writes: false,
                immediate: false,
                expected_len: 0,
                held: false,
                arriving: false,
                fault: None,
                aborted: false,
                aborted_by: None,
                transfer: Transfer::default(),
                memory: 0,
            });
            self.itts.push(0);
            (self.tasks.len() - 1) as u16
        });
        let task = &mut self.tasks[usize::from(slot)];
        assert!(task.state == State::Free, "a slot from the free list is free");
        task.state = State::Gathering;
        (task.itt, task.lun, task.cdb) = (command.itt, command.lun, command.cdb);
        task.attribute = command.attribute();
        (task.reads, task.writes) = (command.reads(), command.writes());
        (task.immediate, task.expected_len) = (immediate, command.expected_len);
        (task.held, task.arriving, task.fault) = (false, true, None);
        (task.aborted, task.aborted_by) = (false, None);
        self.itts[usize::from(slot)] = command.itt;
        if immediate {
            self.immediate += 1;
        } else {
            self.ordinary += 1;
        }
        if !self.aborted.is_empty() {
            self.aborted.retain(|&itt| itt != command.itt);
        }
        slot
    }

    pub fn remove(&mut self, slot: u16) {
        let task = &mut self.tasks[usize::from(slot)];
        assert!(task.state != State::Free, "a task is removed once");
        let expects_data = task.transfer.unsolicited.is_some() || !task.transfer.bursts.is_empty();
        task.state = State::Free;
        task.transfer.reset();
        self.memory -= std::mem::take(&mut task.memory);
        let (itt, immediate) = (task.itt, task.immediate);
        if immediate {
            self.immediate -= 1;
        } else {
            self.ordinary -= 1;
        }
        if expects_data {
            self.remember_aborted(itt);
        }
        self.free.push(slot);
    }

    /// Appends to a task's data.
    pub fn append(&mut self, slot: u16, bytes: &[u8], arena: &Arena) {
        let task = &mut self.tasks[usize::from(slot)];
        let taken = task.transfer.append(bytes, arena);
        task.memory += taken;
        self.memory += taken;
    }

    /// Takes a task's data for the driver, which accounts for them from here on.
    pub fn take_data(&mut self, slot: u16) -> Vec<Buf> {
        let task = &mut self.tasks[usize::from(slot)];
        self.memory -= std::mem::take(&mut task.memory);
        task.transfer.take()
    }

    fn remember_aborted(&mut self, itt: u32) {
        if self.aborted.len() == ABORTED_MAX {
            self.aborted.pop_front();
        }
        self.aborted.push_back(itt);
    }

    /// Whether data for this tag, which is not in use, are the last of a task that was aborted.
    pub fn was_aborted(&self, itt: u32) -> bool {
        self.aborted.contains(&itt)
    }
}
