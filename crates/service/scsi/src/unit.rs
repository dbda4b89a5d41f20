//! One logical unit: its identity, its state, and which command may run.
//!
//! A command is judged in this order: unit attentions of its nexus, reservations, whether the unit is started, write
//! protection; only then by itself ([`crate::execute`]). What each nexus is to the reservations is kept with the
//! nexus and brought up to date when reservations change, so that judging a read or write looks nothing up.

use crate::attention::{Attention, Attentions};
use crate::command::Command;
use crate::copy::Copies;
use crate::inquiry;
use crate::limits::{LIST_BYTES_MAX, Limits};
use crate::mode::{self, Mode};
use crate::nexus::{Nexus, NexusId};
use crate::reservation::{Access, Reservations, Role, conflicts};
use crate::reserve_out::Change;
use crate::reserve_store::{self, StateError};
use crate::sense::{Sense, SenseKey, asc};
use crate::step::{CopyUnit, DataOut, Designator, Response, Status, Step};
use forebay_base::Id;
use forebay_base::planted::{Bug, active};
use forebay_pool::SyncPolicy;
use forebay_runtime::Arena;

/// Nexuses of one unit: 256 hosts with four paths each.
pub const NEXUSES_MAX: usize = 1024;
/// How far fill must fall below the threshold before crossing it is news again.
const FILL_HYSTERESIS_PERMILLE: u32 = 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BlockFormat {
    /// 512-byte logical blocks; the physical block is the volume's.
    #[default]
    B512,
    /// 4 KiB logical blocks.
    B4096,
}

/// What a unit is made of; what can change later has a setter of its own.
#[derive(Clone, Debug)]
pub struct UnitConfig {
    /// The volume's; the unit's names derive from it.
    pub id: Id,
    /// Bytes, at least one logical block. An end that is no whole logical block is out of reach.
    pub size: u64,
    /// The volume's, in bytes: a power of two from 4 KiB.
    pub volume_block: u32,
    pub format: BlockFormat,
    pub sync: SyncPolicy,
    /// Writes are refused as write protected.
    pub read_only: bool,
    /// The iSCSI name of the target.
    pub target_name: String,
    /// Tags of all portal groups through which the unit is reached.
    pub portal_groups: Vec<u16>,
}

/// There are [`NEXUSES_MAX`] already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyNexuses;

struct Attached {
    nexus: Nexus,
    generation: u32,
    attentions: Attentions,
    role: Role,
}

/// A logical unit.
pub struct Unit {
    pub(crate) config: UnitConfig,
    pub(crate) arena: Arena,
    pub(crate) limits: Limits,
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) mode: Mode,
    attached: Vec<Option<Attached>>,
    generation: u32,
    pub(crate) reservations: Reservations,
    /// The next state of the reservations is being stored: until it is, there cannot be another.
    pub(crate) is_storing: bool,
    /// RESERVE: the whole unit, for one nexus.
    pub(crate) reserved_by: Option<NexusId>,
    pub(crate) is_stopped: bool,
    is_over_threshold: bool,
    pub(crate) copies: Copies,
}

impl Unit {
    /// `state`: what the last [`Op::Persist`](crate::Op::Persist) stored.
    pub fn new(config: UnitConfig, arena: Arena, state: Option<&[u8]>) -> Result<Unit, StateError> {
        let block_bytes = match config.format {
            BlockFormat::B512 => 512,
            BlockFormat::B4096 => 4096,
        };
        let reservations = state.map_or(Ok(Reservations::default()), reserve_store::decode)?;
        Ok(Unit {
            limits: Limits::new(block_bytes, config.volume_block),
            block_bytes,
            blocks: config.size / u64::from(block_bytes),
            config,
            arena,
            mode: Mode::default(),
            attached: Vec::new(),
            generation: 0,
            reservations,
            is_storing: false,
            reserved_by: None,
            is_stopped: false,
            is_over_threshold: false,
            copies: Copies::default(),
        })
    }

    /// A session begins. Its first command is told POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    pub fn attach(&mut self, nexus: Nexus) -> Result<NexusId, TooManyNexuses> {
        let slot = match self.attached.iter().position(|slot| slot.is_none()) {
            Some(slot) => slot,
            None if self.attached.len() == NEXUSES_MAX => return Err(TooManyNexuses),
            None => {
                self.attached.push(None);
                self.attached.len() - 1
            }
        };
        self.generation = self.generation.wrapping_add(1);
        let mut attentions = Attentions::default();
        attentions.raise(Attention::PowerOn);
        let role = self.reservations.role(&nexus);
        self.attached[slot] = Some(Attached { nexus, generation: self.generation, attentions, role });
        Ok(NexusId { slot: slot as u16, generation: self.generation })
    }

    /// A session ends (I_T nexus loss): what RESERVE gave it is released; persistent reservations stay. Its tasks may still
    /// be resumed, so that what they began is finished.
    pub fn detach(&mut self, nexus: NexusId) {
        self.get(nexus).expect("a nexus is detached once");
        self.attached[usize::from(nexus.slot)] = None;
        self.copies.forget(nexus);
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
    }

    /// Nexuses attached.
    pub fn nexuses(&self) -> impl Iterator<Item = (NexusId, &Nexus)> {
        self.attached.iter().enumerate().filter_map(|(slot, attached)| {
            let attached = attached.as_ref()?;
            Some((NexusId { slot: slot as u16, generation: attached.generation }, &attached.nexus))
        })
    }

    fn get(&self, nexus: NexusId) -> Option<&Attached> {
        let attached = self.attached.get(usize::from(nexus.slot))?.as_ref()?;
        (attached.generation == nexus.generation).then_some(attached)
    }
    fn get_mut(&mut self, nexus: NexusId) -> Option<&mut Attached> {
        let attached = self.attached.get_mut(usize::from(nexus.slot))?.as_mut()?;
        (attached.generation == nexus.generation).then_some(attached)
    }
    /// The ports of an attached nexus.
    pub fn nexus(&self, nexus: NexusId) -> &Nexus {
        &self.get(nexus).expect("commands come from attached nexuses").nexus
    }

    /// Bytes of a logical block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }
    /// Logical blocks of the unit.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
    /// SPC-4's WCE: acknowledged writes may be lost with the power until they are flushed.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        // Under `disabled`, too; there, nobody wants to hear of it: a flush does nothing, and asking for it costs time.
        self.config.sync == SyncPolicy::Standard
    }
    pub(crate) fn is_write_protected(&self) -> bool {
        self.config.read_only || self.mode.write_protected
    }
    pub(crate) fn mode_view(&self) -> mode::View {
        mode::View {
            mode: self.mode,
            volatile_cache: self.has_volatile_cache(),
            write_protected: self.is_write_protected(),
            block_bytes: self.block_bytes,
            blocks: self.blocks,
        }
    }
    pub(crate) fn inquiry_view(&self, nexus: NexusId) -> inquiry::View<'_> {
        inquiry::View {
            id: self.config.id,
            target_name: &self.config.target_name,
            portal_group: self.nexus(nexus).portal_group,
            volatile_cache: self.has_volatile_cache(),
            limits: self.limits,
        }
    }

    /// Bytes of Data-Out to receive for a command before [`begin`](Unit::begin), at most; 0 for a command that it will refuse
    /// for its length anyway. What the initiator announces beyond this need not be received.
    pub fn data_out_len(&self, command: &Command) -> u32 {
        let max = match command {
            Command::Unmap { .. }
            | Command::ModeSelect { .. }
            | Command::PersistentReserveOut { .. }
            | Command::ExtendedCopy { .. } => LIST_BYTES_MAX,
            Command::CompareAndWrite { .. } => 2 * u32::from(self.limits.compare_blocks) * self.block_bytes,
            _ => self.limits.transfer_blocks * self.block_bytes,
        };
        u32::try_from(command.data_out_len(self.block_bytes)).ok().filter(|&len| len <= max).unwrap_or(0)
    }

    /// Judges a command whose Data-Out is complete, and answers or says what to do first.
    ///
    /// # Panics
    /// When the nexus is not attached.
    pub fn begin(&mut self, nexus: NexusId, command: &Command, data: DataOut) -> Step {
        assert!(!active(Bug::CommandPanics), "planted");
        if let Err(response) = self.judge(nexus, command) {
            return Step::Done(response);
        }
        self.execute(nexus, command, data).unwrap_or_else(|sense| Step::Done(self.check(sense)))
    }

    /// CHECK CONDITION in the format that initiators chose.
    pub(crate) fn check(&self, sense: Sense) -> Response {
        Response::check(sense, self.mode.descriptor_sense)
    }

    /// The answer to a command that cannot be judged, because [`parse`](crate::parse) or the transport refused it.
    pub fn refuse(&mut self, nexus: NexusId, sense: Sense) -> Response {
        let attention = self.take_attention(nexus);
        self.check(attention.unwrap_or(sense))
    }

    pub(crate) fn take_attention(&mut self, nexus: NexusId) -> Option<Sense> {
        self.get_mut(nexus).expect("commands come from attached nexuses").attentions.take()
    }

    fn judge(&mut self, nexus: NexusId, command: &Command) -> Result<(), Response> {
        let attached = self.get_mut(nexus).expect("commands come from attached nexuses");
        let role = attached.role;
        if !attached.attentions.is_empty()
            && !matches!(
                command,
                Command::Inquiry { .. } | Command::ReportLuns { .. } | Command::RequestSense { .. }
            )
        {
            let sense = attached.attentions.take().expect("it is not empty");
            return Err(self.check(sense));
        }
        if self.is_reserved_against(nexus, role, command) {
            return Err(Response::status(Status::ReservationConflict));
        }
        if self.is_stopped && needs_medium(command) {
            return Err(self.check(STOPPED));
        }
        if writes_medium(command) && self.is_write_protected() {
            return Err(self.check(WRITE_PROTECTED));
        }
        Ok(())
    }

    fn is_reserved_against(&self, nexus: NexusId, role: Role, command: &Command) -> bool {
        if self.reserved_by.is_none() && self.reservations.reservation.is_none() {
            return false;
        }
        let access = Access::of(command);
        if let Some(holder) = self.reserved_by {
            // RESERVE and persistent reservations exclude each other.
            let persistent =
                matches!(command, Command::PersistentReserveIn { .. } | Command::PersistentReserveOut { .. });
            return persistent || holder != nexus && access != Access::Any;
        }
        self.reservations.kind().is_some_and(|kind| conflicts(kind, role, access))
    }

    /// Makes a change of reservations the state, and tells whom it concerns.
    pub(crate) fn commit(&mut self, change: Change) {
        self.reservations = change.state;
        for attached in self.attached.iter_mut().flatten() {
            attached.role = self.reservations.role(&attached.nexus);
            for (_, attention) in change.tell.iter().filter(|(nexus, _)| *nexus == attached.nexus) {
                attached.attentions.raise(*attention);
            }
        }
    }

    /// LOGICAL UNIT RESET or a reset of the target; the caller has aborted the unit's tasks. Persistent reservations stay.
    pub fn reset(&mut self) {
        self.reserved_by = None;
        self.is_stopped = false;
        self.mode = Mode::default();
        self.raise(Attention::Reset);
    }

    /// Tells all nexuses of what the unit cannot know itself.
    pub fn raise(&mut self, attention: Attention) {
        self.attached.iter_mut().flatten().for_each(|attached| attached.attentions.raise(attention));
    }
    pub(crate) fn raise_to_others(&mut self, attention: Attention, by: NexusId) {
        self.raise_to(attention, |nexus| nexus != by);
    }
    /// Tells some nexuses: those whose tasks another had aborted, for example.
    pub fn raise_to(&mut self, attention: Attention, which: impl Fn(NexusId) -> bool) {
        for (slot, attached) in self.attached.iter_mut().enumerate() {
            if let Some(attached) = attached
                && which(NexusId { slot: slot as u16, generation: attached.generation })
            {
                attached.attentions.raise(attention);
            }
        }
    }
    /// The nexus knows already: it has asked REPORT LUNS of another unit, say.
    pub fn clear(&mut self, attention: Attention, nexus: NexusId) {
        if let Some(attached) = self.get_mut(nexus) {
            attached.attentions.clear(attention);
        }
    }

    /// The volume was resized.
    pub fn set_size(&mut self, size: u64) {
        let blocks = size / u64::from(self.block_bytes);
        if blocks != self.blocks {
            self.blocks = blocks;
            self.raise(Attention::CapacityChanged);
        }
    }
    pub fn set_sync(&mut self, sync: SyncPolicy) {
        let before = self.has_volatile_cache();
        self.config.sync = sync;
        if self.has_volatile_cache() != before {
            self.raise(Attention::ModeParametersChanged);
        }
    }
    pub fn set_read_only(&mut self, read_only: bool) {
        if self.config.read_only != read_only {
            self.config.read_only = read_only;
            self.raise(Attention::ModeParametersChanged);
        }
    }
    pub fn set_portal_groups(&mut self, portal_groups: Vec<u16>) {
        self.config.portal_groups = portal_groups;
    }
    /// How full the space is out of which the volume is provisioned, in thousandths, and from where on nexuses are told.
    pub fn set_fill(&mut self, fill_permille: u32, threshold_permille: u32) {
        if fill_permille >= threshold_permille {
            if !std::mem::replace(&mut self.is_over_threshold, true) {
                self.raise(Attention::ThinThreshold);
            }
        } else if fill_permille + FILL_HYSTERESIS_PERMILLE <= threshold_permille {
            self.is_over_threshold = false;
        }
    }

    /// Whether a designator of EXTENDED COPY means this unit: by its NAA name, the only one that fits into one.
    pub fn is_designated(&self, designator: &Designator) -> bool {
        (designator.kind, designator.code_set) == (inquiry::NAA, inquiry::BINARY)
            && designator.bytes[..] == inquiry::naa(self.config.id)
    }

    /// What a copy by this nexus may do here. Ask on the unit that was found, with its own nexus there.
    pub fn admit_copy(&self, nexus: NexusId, designator: &Designator) -> CopyUnit {
        let role = self.get(nexus).map(|attached| attached.role);
        let conflict = |access| {
            self.reserved_by.is_some_and(|holder| holder != nexus)
                || self
                    .reservations
                    .kind()
                    .is_some_and(|kind| conflicts(kind, role.unwrap_or_default(), access))
        };
        let is_refused = role.is_none()
            || self.is_stopped
            || designator.reads && conflict(Access::Reads)
            || designator.writes && (conflict(Access::Writes) || self.is_write_protected());
        CopyUnit { block_bytes: self.block_bytes, blocks: self.blocks, is_refused }
    }
}

const STOPPED: Sense = Sense::new(SenseKey::NotReady, asc::NOT_READY_INITIALIZING_REQUIRED);
const WRITE_PROTECTED: Sense = Sense::new(SenseKey::DataProtect, asc::WRITE_PROTECTED);

/// Commands that a stopped unit does not carry out.
fn needs_medium(command: &Command) -> bool {
    use Command::*;
    matches!(
        command,
        TestUnitReady
            | Read { .. }
            | Verify { .. }
            | Prefetch { .. }
            | SynchronizeCache { .. }
            | GetLbaStatus { .. }
            | ReadDefectData { .. }
            | ReadCapacity10
            | ReadCapacity16 { .. }
            | ExtendedCopy { .. }
    ) || writes_medium(command)
}

fn writes_medium(command: &Command) -> bool {
    use Command::*;
    matches!(
        command,
        Write { .. }
            | WriteAtomic { .. }
            | WriteAndVerify { .. }
            | Unmap { .. }
            | WriteSame { .. }
            | OrWrite { .. }
            | CompareAndWrite { .. }
    )
}
