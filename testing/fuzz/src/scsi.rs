//! What a SCSI initiator can do to us, and what a damaged pool can hand to a unit.
//!
//! [`cdb`] parses raw CDBs. [`commands`] runs a script of CDBs and Data-Out by two initiators against a unit over a small
//! volume, with failures mixed in, and asks after each whether what the unit says of its reservations still
//! holds together. [`reservations`] starts a unit from raw bytes.

use forebay_base::Id;
use forebay_pool::{Extent, IoError, SyncPolicy};
use forebay_runtime::{Arena, Buf};
use forebay_scsi::{
    BlockFormat, Command, DataIn, DataOut, Direction, InitiatorPort, Lun, Nexus, NexusId, Op, Outcome,
    Response, STATE_BYTES_MAX, Status, Step, TRANSFER_BYTES_MAX, Unit, UnitConfig, parse,
};

const SIZE: usize = 256 << 10;
const BLOCK: usize = 4096;
/// More steps than the longest command on so small a volume can need, by far.
const STEPS_MAX: usize = 2000;

pub fn cdb(data: &[u8]) {
    match parse(data) {
        Ok(command) => {
            let len = command.data_out_len(4096);
            assert!(len == 0 || command.direction() == Direction::Out, "{command:?}");
            // Bytes that are not there are zeros.
            let mut padded = data.to_vec();
            padded.resize(data.len().max(16), 0);
            assert_eq!(parse(&padded), Ok(command));
        }
        Err(sense) => assert!(sense.encode(false).len() == 18 && sense.encode(true).len() <= 28),
    }
}

fn unit(arena: &Arena, format: BlockFormat, state: Option<&[u8]>) -> Option<Unit> {
    let config = UnitConfig {
        id: Id(7),
        size: SIZE as u64,
        volume_block: BLOCK as u32,
        format,
        sync: SyncPolicy::Standard,
        read_only: false,
        target_name: "iqn.2026-11.io.forebay:fuzz".into(),
        portal_groups: vec![1, 2],
    };
    Unit::new(config, arena.clone(), state).ok()
}

fn nexus(number: usize) -> Nexus {
    let name = ["iqn.2026-11.example:a", "iqn.2026-11.example:b"][number];
    let initiator = InitiatorPort::new(name, [0x80, 0, 0, 0, 0, 1]).expect("a proper name");
    Nexus { initiator, portal_group: 1 + number as u16 }
}

/// A volume whose every byte is there, and which fails when it is told to.
struct Volume {
    data: Vec<u8>,
    failure: Option<IoError>,
    stored: Option<Vec<u8>>,
}

impl Volume {
    fn range(&self, at: u64, len: u64) -> std::ops::Range<usize> {
        assert!(len > 0 && at.checked_add(len).is_some_and(|end| end <= SIZE as u64), "{at}+{len}");
        at as usize..(at + len) as usize
    }

    fn carry_out(&mut self, arena: &Arena, unit: &Unit, who: NexusId, op: Op) -> Result<Outcome, IoError> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let concat =
            |parts: &[Buf]| -> Vec<u8> { parts.iter().flat_map(|part| part.iter().copied()).collect() };
        Ok(match op {
            Op::Read { at, len } => {
                assert!(len <= TRANSFER_BYTES_MAX);
                Outcome::Data(vec![arena.copy(&self.data[self.range(at, len as u64)]).freeze()])
            }
            Op::Write { at, data, .. } => {
                let bytes = concat(&data);
                let range = self.range(at, bytes.len() as u64);
                self.data[range].copy_from_slice(&bytes);
                Outcome::Done
            }
            Op::Flush | Op::Abort(_) => Outcome::Done,
            Op::Discard { at, len } | Op::WriteZeroes { at, len, .. } => {
                let range = self.range(at, len);
                self.data[range].fill(0);
                Outcome::Done
            }
            Op::CompareAndWrite { at, expected, new } => {
                let range = self.range(at, new.len() as u64);
                let differs = self.data[range.clone()].iter().zip(&expected[..]).position(|(a, b)| a != b);
                if differs.is_none() {
                    self.data[range].copy_from_slice(&new);
                }
                Outcome::Compared(differs.map_or(Ok(()), Err))
            }
            Op::Status { at, len, extents_max } => {
                assert!(extents_max > 0);
                self.range(at, len);
                Outcome::Extents(vec![Extent { len, mapped: true }])
            }
            Op::Persist(bytes) => {
                assert!(bytes.len() <= STATE_BYTES_MAX);
                self.stored = Some(bytes);
                Outcome::Done
            }
            Op::Luns => Outcome::Luns(vec![Lun::default()]),
            Op::Resolve(designators) => {
                let found =
                    |designator| unit.is_designated(designator).then(|| unit.admit_copy(who, designator));
                Outcome::Resolved(designators.iter().map(found).collect())
            }
            Op::Copy { from_at, to_at, len, .. } => {
                let (from, to) = (self.range(from_at, len), self.range(to_at, len));
                self.data.copy_within(from, to.start);
                Outcome::Done
            }
        })
    }
}

fn run(
    unit: &mut Unit,
    volume: &mut Volume,
    arena: &Arena,
    who: NexusId,
    command: &Command,
    data: &[u8],
) -> Response {
    let needed = unit.data_out_len(command) as usize;
    let parts = vec![arena.copy(&data[..data.len().min(needed)]).freeze()];
    let mut step = unit.begin(who, command, DataOut { parts, announced: data.len() as u64 });
    for _ in 0..STEPS_MAX {
        match step {
            Step::Done(response) => return response,
            Step::Medium(op, task) => {
                let result = volume.carry_out(arena, unit, who, op);
                step = unit.resume(task, result);
            }
        }
    }
    panic!("{command:?} does not end");
}

/// Takes steps: a byte for who and what fails, two for the length of Data-Out, a CDB of 16 bytes, the data.
pub fn commands(data: &[u8]) {
    let [mode, script @ ..] = data else { return };
    let format = if mode & 1 == 0 { BlockFormat::B512 } else { BlockFormat::B4096 };
    let arena = Arena::new();
    let mut unit_here = unit(&arena, format, None).expect("no state");
    let mut volume = Volume { data: vec![0; SIZE], failure: None, stored: None };
    let ids = [0, 1].map(|number| unit_here.attach(nexus(number)).expect("room"));
    let mut rest = script;
    for _ in 0..64 {
        let Some((&[flags, high, low], behind)) = rest.split_first_chunk() else { break };
        let Some((cdb, behind)) = behind.split_first_chunk::<16>() else { break };
        let len = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (data, behind) = behind.split_at(len);
        rest = behind;
        let who = ids[usize::from(flags & 1)];
        volume.failure = match flags >> 4 {
            1 => Some(IoError::NoSpace),
            2 => Some(IoError::Corrupt),
            3 => Some(IoError::Suspended),
            _ => None,
        };
        let response = match parse(cdb) {
            Err(sense) => unit_here.refuse(who, sense),
            Ok(command) => run(&mut unit_here, &mut volume, &arena, who, &command, data),
        };
        volume.failure = None;
        assert_eq!(response.sense.is_empty(), response.status != Status::CheckCondition);
        assert!(response.data_in.len() <= TRANSFER_BYTES_MAX.max(64 << 10));
        // What is said of reservations is of one piece, whatever has happened.
        for action in 0..4 {
            let command = Command::PersistentReserveIn { action, allocation: u32::MAX };
            run(&mut unit_here, &mut volume, &arena, ids[0], &command, &[]);
        }
    }
    // What was stored can be started from, and is what it was.
    if let Some(stored) = &volume.stored {
        let mut again = unit(&arena, format, Some(stored)).expect("what a unit stores, it reads");
        let full_status = Command::PersistentReserveIn { action: 3, allocation: u32::MAX };
        let who = again.attach(nexus(0)).expect("room");
        let _ = run(&mut again, &mut volume, &arena, who, &Command::TestUnitReady, &[]);
        let response = run(&mut again, &mut volume, &arena, who, &full_status, &[]);
        assert!(matches!(response.data_in, DataIn::Bytes(_)));
    }
    drop((unit_here, volume));
    assert_eq!(arena.bytes_out(), 0, "no buffer is kept");
}

pub fn reservations(data: &[u8]) {
    let arena = Arena::new();
    let Some(mut unit) = unit(&arena, BlockFormat::B512, Some(data)) else { return };
    let mut volume = Volume { data: vec![0; SIZE], failure: None, stored: None };
    let who = unit.attach(nexus(0)).expect("room");
    for action in [0, 0, 1, 2, 3] {
        let command = Command::PersistentReserveIn { action, allocation: u32::MAX };
        run(&mut unit, &mut volume, &arena, who, &command, &[]);
    }
}
