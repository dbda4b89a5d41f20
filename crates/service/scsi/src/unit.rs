//! One logical unit: its identity, its state, and which command may run.

use crate::attention::Attention;
use crate::command::Command;
use crate::nexus::{Nexus, NexusId};
use crate::sense::Sense;
use crate::step::{CopyUnit, DataOut, Designator, Outcome, Response, Step, Task};
use forebay_base::Id;
use forebay_pool::{IoError, SyncPolicy};
use forebay_runtime::Arena;

/// Nexuses of one unit: 256 hosts with four paths each.
pub const NEXUSES_MAX: usize = 1024;
/// Registrations for persistent reservations: what fits into [`STATE_BYTES_MAX`] with the longest names.
pub const REGISTRATIONS_MAX: usize = 256;
/// Bytes of the state that [`Op::Persist`](crate::Op::Persist) stores, at most.
pub const STATE_BYTES_MAX: usize = 64 << 10;
/// The most data that one command moves: reported as MAXIMUM TRANSFER LENGTH.
pub const TRANSFER_BYTES_MAX: usize = 8 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BlockFormat {
    /// 512-byte logical blocks; the physical block is the volume's.
    #[default]
    B512,
    B4096,
}

/// What a unit is made of; what can change later has a setter of its own.
#[derive(Clone, Debug)]
pub struct UnitConfig {
    /// The volume's; the unit's names derive from it.
    pub id: Id,
    /// Bytes. The last part that is no whole logical block is not reachable.
    pub size: u64,
    /// The volume's, in bytes.
    pub volume_block: u32,
    pub format: BlockFormat,
    pub sync: SyncPolicy,
    /// Writes are refused as write protected.
    pub read_only: bool,
    /// The iSCSI name of the target.
    pub target_name: String,
    /// Tags of all portal groups through which the unit is reached, 1 to 64 of them.
    pub portal_groups: Vec<u16>,
}

/// There are [`NEXUSES_MAX`] already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyNexuses;

/// Stored reservations that cannot be read. Serving the unit without them could let a fenced host write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateError {
    Corrupt,
    /// Written by a later version.
    Version(u32),
}

/// A task management function or an event that resets the unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    LogicalUnit,
    Target,
}

pub struct Unit {}

impl Unit {
    /// `state`: what the last [`Op::Persist`](crate::Op::Persist) stored.
    pub fn new(_config: UnitConfig, _arena: Arena, _state: Option<&[u8]>) -> Result<Unit, StateError> {
        unimplemented!()
    }

    /// A session begins. Its first command is told POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    pub fn attach(&mut self, _nexus: Nexus) -> Result<NexusId, TooManyNexuses> {
        unimplemented!()
    }
    /// A session ends (I_T nexus loss): what is bound to it goes (RESERVE, prevention of removal), persistent
    /// reservations stay. Tasks of the nexus must not be resumed afterwards.
    pub fn detach(&mut self, _nexus: NexusId) {
        unimplemented!()
    }
    pub fn nexus(&self, _nexus: NexusId) -> &Nexus {
        unimplemented!()
    }

    pub fn block_bytes(&self) -> u32 {
        unimplemented!()
    }
    /// Logical blocks.
    pub fn blocks(&self) -> u64 {
        unimplemented!()
    }

    /// Bytes of Data-Out that a command needs and whether another announced length is an error: WRITE and its kin
    /// write the whole blocks that came, and the transport reports the residual; the others are refused.
    /// No more than this needs to be received: 0 for a command that [`begin`](Unit::begin) will refuse for its length.
    pub fn data_out_len(&self, _command: &Command) -> u64 {
        unimplemented!()
    }

    /// Judges a command whose Data-Out is complete, and answers or says what to do first.
    pub fn begin(&mut self, _nexus: NexusId, _command: &Command, _data: DataOut) -> Step {
        unimplemented!()
    }
    /// Goes on with the result of the task's last operation.
    pub fn resume(&mut self, _task: Task, _result: Result<Outcome, IoError>) -> Step {
        unimplemented!()
    }
    /// The answer to a command that cannot be judged, because [`parse`](crate::parse) or the transport refused it.
    pub fn refuse(&mut self, _nexus: NexusId, _sense: Sense) -> Response {
        unimplemented!()
    }

    /// LOGICAL UNIT RESET and the like; the caller has aborted the unit's tasks. `by`: who asked, and so is told nothing.
    pub fn reset(&mut self, _kind: Reset, _by: Option<NexusId>) {
        unimplemented!()
    }
    /// Tells a nexus, or all of them. For what the unit cannot know itself: [`Attention::ReportedLunsChanged`],
    /// [`Attention::CommandsCleared`].
    pub fn raise(&mut self, _attention: Attention, _to: Option<NexusId>) {
        unimplemented!()
    }
    /// A REPORT LUNS on another unit has told this nexus.
    pub fn clear(&mut self, _attention: Attention, _nexus: NexusId) {
        unimplemented!()
    }
    /// The volume was resized.
    pub fn set_size(&mut self, _size: u64) {
        unimplemented!()
    }
    pub fn set_sync(&mut self, _sync: SyncPolicy) {
        unimplemented!()
    }
    pub fn set_read_only(&mut self, _read_only: bool) {
        unimplemented!()
    }
    /// How full the space is of which the volume is provisioned, in thousandths, and from where on nexuses are told.
    pub fn set_fill(&mut self, _fill_permille: u32, _threshold_permille: u32) {
        unimplemented!()
    }

    /// Whether a designator of EXTENDED COPY means this unit.
    pub fn is_designated(&self, _designator: &Designator) -> bool {
        unimplemented!()
    }
    /// Whether a nexus may copy from and to this unit. Ask on the unit that was found, with its own nexus.
    pub fn admit_copy(&self, _nexus: NexusId, _designator: &Designator) -> CopyUnit {
        unimplemented!()
    }
}

/// Answers for a logical unit number that means nothing to the nexus: INQUIRY says that nothing is connected, REPORT LUNS is
/// answered, the rest is LOGICAL UNIT NOT SUPPORTED. Continue with [`resume_absent`].
pub fn begin_absent(_command: &Command) -> Step {
    unimplemented!()
}
pub fn resume_absent(_task: Task, _result: Result<Outcome, IoError>) -> Step {
    unimplemented!()
}
