//! Units over volumes in memory, and initiators that send them CDBs.

use forebay_base::Id;
use forebay_pool::{Extent, IoError, SyncPolicy};
use forebay_runtime::{Arena, Buf};
use forebay_scsi::{
    BlockFormat, CopyUnit, DataIn, DataOut, InitiatorPort, Lun, Nexus, NexusId, Op, Outcome, Response,
    Status, Step, Task, Unit, UnitConfig, parse,
};
use std::collections::VecDeque;

pub const VOLUME_BLOCK: u32 = 8192;
pub const VOLUME_BYTES: u64 = 4 << 20;
pub const TARGET: &str = "iqn.2026-11.io.forebay:tank";

/// A volume: what it holds, which blocks hold anything, and what was asked of it.
pub struct Medium {
    pub data: Vec<u8>,
    mapped: Vec<bool>,
    block: usize,
    pub stored: Option<Vec<u8>>,
    pub aborted: Vec<NexusId>,
    pub flushes: usize,
    /// Results that the next operations have instead of their own.
    pub failures: VecDeque<Option<IoError>>,
    /// Written by somebody else just before the next compare-and-write.
    pub interference: VecDeque<(usize, u8)>,
    /// The longest read or write so far.
    pub longest: usize,
}

impl Medium {
    pub fn new(size: u64, block: u32) -> Medium {
        let blocks = size.div_ceil(u64::from(block)) as usize;
        Medium {
            data: vec![0; size as usize],
            mapped: vec![false; blocks],
            block: block as usize,
            stored: None,
            aborted: Vec::new(),
            flushes: 0,
            failures: VecDeque::new(),
            interference: VecDeque::new(),
            longest: 0,
        }
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
        self.mapped[at / self.block..(at + bytes.len()).div_ceil(self.block)].fill(true);
    }

    fn discard(&mut self, at: u64, len: u64) {
        let (first, end) = ((at as usize).div_ceil(self.block), (at + len) as usize / self.block);
        if first < end {
            self.data[first * self.block..end * self.block].fill(0);
            self.mapped[first..end].fill(false);
        }
    }

    fn status(&self, at: u64, len: u64, extents_max: usize) -> Vec<Extent> {
        let (mut at, end, mut extents) = (at as usize, (at + len) as usize, Vec::<Extent>::new());
        while at < end {
            let mapped = self.mapped[at / self.block];
            let next = ((at / self.block + 1) * self.block).min(end);
            let is_full = extents.len() == extents_max;
            match extents.last_mut() {
                Some(extent) if extent.mapped == mapped => extent.len += (next - at) as u64,
                _ if is_full => break,
                _ => extents.push(Extent { len: (next - at) as u64, mapped }),
            }
            at = next;
        }
        extents
    }

    /// Carries out what concerns this volume alone.
    fn carry_out(&mut self, arena: &Arena, op: Op) -> Result<Outcome, IoError> {
        let inside = |at: u64, len: u64, size: usize| {
            assert!(len > 0 && at + len <= size as u64, "{at}+{len} is outside {size}");
        };
        if let Some(Some(error)) = self.failures.pop_front() {
            return Err(error);
        }
        let size = self.data.len();
        match op {
            Op::Read { at, len } => {
                inside(at, len as u64, size);
                self.longest = self.longest.max(len);
                // In parts, as the engine's blocks come.
                let bytes = &self.data[at as usize..at as usize + len];
                Ok(Outcome::Data(bytes.chunks(3000).map(|part| arena.copy(part).freeze()).collect()))
            }
            Op::Write { at, data, .. } => {
                let bytes = data.concat_bytes();
                inside(at, bytes.len() as u64, size);
                self.longest = self.longest.max(bytes.len());
                self.write(at as usize, &bytes);
                Ok(Outcome::Done)
            }
            Op::Flush => {
                self.flushes += 1;
                Ok(Outcome::Done)
            }
            Op::Discard { at, len } => {
                inside(at, len, size);
                self.discard(at, len);
                Ok(Outcome::Done)
            }
            Op::WriteZeroes { at, len, .. } => {
                inside(at, len, size);
                let (at, end, block) = (at as usize, (at + len) as usize, self.block);
                let (first, last) = (at.next_multiple_of(block), end / block * block);
                if first < last {
                    self.write(at, &vec![0; first - at]);
                    self.discard(first as u64, (last - first) as u64);
                    self.write(last, &vec![0; end - last]);
                } else {
                    self.write(at, &vec![0; end - at]);
                }
                Ok(Outcome::Done)
            }
            Op::CompareAndWrite { at, expected, new } => {
                inside(at, new.len() as u64, size);
                assert!(expected.len() == new.len() && new.len() <= 1 << 20);
                if let Some((at, byte)) = self.interference.pop_front() {
                    self.data[at] = byte;
                }
                let here = &self.data[at as usize..at as usize + new.len()];
                let differs = here.iter().zip(&expected[..]).position(|(found, wanted)| found != wanted);
                if differs.is_none() {
                    self.write(at as usize, &new);
                }
                Ok(Outcome::Compared(differs.map_or(Ok(()), Err)))
            }
            Op::Status { at, len, extents_max } => {
                inside(at, len, size);
                Ok(Outcome::Extents(self.status(at, len, extents_max)))
            }
            Op::Persist(bytes) => {
                self.stored = Some(bytes);
                Ok(Outcome::Done)
            }
            Op::Abort(nexuses) => {
                self.aborted.extend(nexuses);
                Ok(Outcome::Done)
            }
            Op::Luns | Op::Resolve(_) | Op::Copy { .. } => unreachable!("the house's, not a volume's"),
        }
    }
}

pub trait Concat {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl Concat for [Buf] {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|part| part.iter().copied()).collect()
    }
}

/// All units of a target, LUN by LUN, each seen by every nexus.
pub struct House {
    pub arena: Arena,
    pub units: Vec<(Unit, Medium)>,
    /// Where the units of the copy under way are.
    copying: Vec<Option<usize>>,
}

/// An initiator port on every unit.
#[derive(Clone)]
pub struct Initiator {
    pub nexus: Nexus,
    pub ids: Vec<NexusId>,
}

pub fn id(lun: usize) -> Id {
    Id(0x0123_4567_89ab_4def_8123_4567_89ab_cd00 + lun as u128)
}

pub fn config(lun: usize, format: BlockFormat) -> UnitConfig {
    UnitConfig {
        id: id(lun),
        size: VOLUME_BYTES,
        volume_block: VOLUME_BLOCK,
        format,
        sync: SyncPolicy::Standard,
        read_only: false,
        target_name: TARGET.into(),
        portal_groups: vec![1, 2],
    }
}

/// What the initiator sees.
#[derive(Debug)]
pub struct Answer {
    pub status: Status,
    pub sense: Vec<u8>,
    pub data: Vec<u8>,
}

impl Answer {
    fn from(response: Response) -> Answer {
        let data = match response.data_in {
            DataIn::None => Vec::new(),
            DataIn::Bytes(bytes) => bytes,
            DataIn::Parts(parts) => parts.concat_bytes(),
        };
        assert_eq!(response.sense.is_empty(), response.status != Status::CheckCondition);
        Answer { status: response.status, sense: response.sense.to_vec(), data }
    }

    /// The data of a command that succeeds.
    #[track_caller]
    pub fn good(self) -> Vec<u8> {
        assert_eq!(self.status, Status::Good, "{:02x?}", self.sense);
        self.data
    }

    /// Key and code of fixed format sense.
    #[track_caller]
    pub fn sense(&self) -> (u8, u16) {
        assert_eq!(self.status, Status::CheckCondition, "{:02x?}", self.data);
        assert_eq!(self.sense[0] & 0x7f, 0x70, "fixed format");
        (self.sense[2], u16::from_be_bytes([self.sense[12], self.sense[13]]))
    }

    /// The place of a field that is wrong: in the CDB or not, byte, and bit if there is one.
    #[track_caller]
    pub fn field(&self) -> (bool, u16, Option<u8>) {
        let specific = &self.sense[15..18];
        assert_ne!(specific[0] & 0x80, 0, "a field is named");
        let bit = (specific[0] & 0x08 != 0).then_some(specific[0] & 0x07);
        (specific[0] & 0x40 != 0, u16::from_be_bytes([specific[1], specific[2]]), bit)
    }
}

impl House {
    pub fn new(luns: usize) -> House {
        House::of((0..luns).map(|lun| config(lun, BlockFormat::B512)))
    }

    pub fn of(configs: impl IntoIterator<Item = UnitConfig>) -> House {
        let arena = Arena::new();
        let unit = |config: UnitConfig| {
            let medium = Medium::new(config.size, config.volume_block);
            (Unit::new(config, arena.clone(), None).expect("no state"), medium)
        };
        let units = configs.into_iter().map(unit).collect();
        House { arena, units, copying: Vec::new() }
    }

    /// An initiator that has been told of the power-on.
    pub fn initiator(&mut self, name: &str, portal_group: u16) -> Initiator {
        let port = InitiatorPort::new(&format!("iqn.2026-11.example:{name}"), [0x80, 0, 0, 0, 0, 1]);
        let nexus = Nexus { initiator: port.expect("a proper name"), portal_group };
        let mut initiator = Initiator { nexus, ids: Vec::new() };
        self.log_in(&mut initiator);
        for lun in 0..self.units.len() {
            assert_eq!(self.send(&initiator, lun, &[0; 6]).sense(), (6, 0x2900));
        }
        initiator
    }

    pub fn log_in(&mut self, initiator: &mut Initiator) {
        let attach = |(unit, _): &mut (Unit, Medium)| unit.attach(initiator.nexus.clone()).expect("room");
        initiator.ids = self.units.iter_mut().map(attach).collect();
    }

    pub fn log_out(&mut self, initiator: &Initiator) {
        for ((unit, _), id) in self.units.iter_mut().zip(&initiator.ids) {
            unit.detach(*id);
        }
    }

    pub fn send(&mut self, initiator: &Initiator, lun: usize, cdb: &[u8]) -> Answer {
        self.send_data(initiator, lun, cdb, &[])
    }

    /// Sends a command with Data-Out of exactly what is given.
    pub fn send_data(&mut self, initiator: &Initiator, lun: usize, cdb: &[u8], data: &[u8]) -> Answer {
        Answer::from(self.run(initiator, lun, cdb, data, data.len() as u64))
    }

    /// Sends a command with Data-Out of which the initiator announces another length.
    pub fn run(
        &mut self,
        initiator: &Initiator,
        lun: usize,
        cdb: &[u8],
        data: &[u8],
        announced: u64,
    ) -> Response {
        let mut step = self.begin(initiator, lun, cdb, data, announced);
        loop {
            match step {
                Step::Done(response) => return response,
                Step::Medium(op, task) => {
                    let result = self.carry_out(initiator, lun, op);
                    step = self.units[lun].0.resume(task, result);
                }
            }
        }
    }

    pub fn begin(
        &mut self,
        initiator: &Initiator,
        lun: usize,
        cdb: &[u8],
        data: &[u8],
        announced: u64,
    ) -> Step {
        let (unit, nexus) = (&mut self.units[lun].0, initiator.ids[lun]);
        match parse(cdb) {
            Err(sense) => Step::Done(unit.refuse(nexus, sense)),
            Ok(command) => {
                let len = data.len().min(unit.data_out_len(&command) as usize);
                let parts = data[..len].chunks(5000).map(|part| self.arena.copy(part).freeze()).collect();
                unit.begin(nexus, &command, DataOut { parts, announced })
            }
        }
    }

    pub fn resume(&mut self, lun: usize, task: Task, result: Result<Outcome, IoError>) -> Step {
        self.units[lun].0.resume(task, result)
    }

    pub fn carry_out(&mut self, initiator: &Initiator, lun: usize, op: Op) -> Result<Outcome, IoError> {
        match op {
            Op::Luns => Ok(Outcome::Luns(
                (0..self.units.len()).map(|lun| Lun::new(lun as u16).expect("few units")).collect(),
            )),
            Op::Resolve(designators) => {
                let place =
                    |designator| self.units.iter().position(|(unit, _)| unit.is_designated(designator));
                self.copying = designators.iter().map(place).collect();
                let admit = |(designator, place): (_, &Option<usize>)| -> Option<CopyUnit> {
                    let place = (*place)?;
                    Some(self.units[place].0.admit_copy(initiator.ids[place], designator))
                };
                Ok(Outcome::Resolved(designators.iter().zip(&self.copying).map(admit).collect()))
            }
            Op::Copy { from, from_at, to, to_at, len } => {
                let [from, to] = [from, to].map(|place| self.copying[place].expect("a unit that was found"));
                let bytes = self.units[from].1.data[from_at as usize..][..len as usize].to_vec();
                if let Some(Some(error)) = self.units[to].1.failures.pop_front() {
                    return Err(error);
                }
                self.units[to].1.write(to_at as usize, &bytes);
                Ok(Outcome::Done)
            }
            op => {
                let arena = self.arena.clone();
                self.units[lun].1.carry_out(&arena, op)
            }
        }
    }
}
