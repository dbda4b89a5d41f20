//! Carries out one SCSI command on the core of its unit.
//!
//! [`forebay_scsi`] says what to do step by step; this does it: on the volume, among the units that the initiator
//! sees, and for copies on units of other cores, too, where it reads and writes by message.
//!
//! A command waits for its turn in the unit's task set, for its host's ceiling and for its volume's. As long as it waits it can be cancelled at
//! once; an operation that the volume has begun is carried through. So an aborted write has changed nothing, or is there whole. A command of several
//! operations (WRITE SAME, UNMAP, ORWRITE, copies) ends between two of them, and what those before have written stays.

use super::access::{Access, Disk, Mapping, Volumes};
use super::mail::Who;
use super::unit::{Live, NoTurn, Presence, Units};
use crate::backing::Device;
use crate::event::Reporter;
use crate::facts::{Asked, Operation};
use forebay_base::panics::{Panicked, contain};
use forebay_pool::{Cancellation, IoError, Severity, Work};
use forebay_runtime::{Buf, Cores, Rt};
use forebay_scsi::{
    Attention, Command, CopyUnit, DataIn, DataOut, Designator, Direction, Op, Outcome, Response, Sense,
    Status, Step, TaskAttribute, Unit, Verdict, asc, begin_absent, parse, resume_absent,
};
use futures_channel::oneshot;
use std::rc::Rc;
use std::sync::Arc;

/// What a command needs of the house, on any core.
pub struct Seat<V: Volumes> {
    pub cores: Cores,
    pub volumes: V,
    pub access: Arc<dyn Access>,
    pub reporter: Arc<Reporter>,
    pub who: Arc<Who>,
}

impl<V: Volumes> Clone for Seat<V> {
    fn clone(&self) -> Seat<V> {
        Seat {
            cores: self.cores.clone(),
            volumes: self.volumes.clone(),
            access: self.access.clone(),
            reporter: self.reporter.clone(),
            who: self.who.clone(),
        }
    }
}

impl<V: Volumes> Seat<V> {
    /// What the initiator sees now.
    pub fn luns(&self) -> Vec<Mapping> {
        self.access.luns(&self.who.initiator, &self.who.target)
    }
}

/// How a command ended, and how many bytes its CDB meant to move.
pub struct Answer {
    pub response: Response,
    pub needed_len: u64,
    /// The device server panicked over it: the session is to end.
    pub panicked: Option<Panicked>,
}

impl Answer {
    fn new(response: Response, needed_len: u64) -> Answer {
        Answer { response, needed_len, panicked: None }
    }

    fn of_panic(panicked: Panicked) -> Answer {
        Answer { panicked: Some(panicked), ..Answer::new(Response::status(Status::TaskAborted), 0) }
    }
}

/// Bytes that a step of a copy between units moves.
const COPY_PIECE: u64 = 1 << 20;

/// A command and the data that came with it.
pub struct Order {
    pub cdb: [u8; 16],
    pub attribute: TaskAttribute,
    pub data: DataOut,
}

/// A unit of this core, and the initiator's presence there.
pub type Here<V> = (Rc<Live<<V as Volumes>::Disk>>, Rc<Presence>);

/// Carries out a command. What has not begun when it is cancelled does not begin.
pub async fn execute<V: Volumes>(
    rt: &Rt,
    seat: &Seat<V>,
    (live, presence): Here<V>,
    Order { cdb, attribute, data }: Order,
    cancellation: &Cancellation,
) -> Answer {
    let since = rt.now();
    // What a panic leaves of the unit is not used again: it is opened anew, with the reservations that are stored.
    let broken = |panicked| {
        rt.local::<Units<V::Disk>>().forget(&live);
        Answer::of_panic(panicked)
    };
    let understand = || {
        live.refresh();
        let mut unit = live.unit.borrow_mut();
        let command = parse(&cdb).map_err(|sense| unit.refuse(presence.nexus, sense))?;
        let block_bytes = unit.block_bytes();
        Ok((command.data_out_len(block_bytes), command, block_bytes))
    };
    let (needed_out, command, block_bytes) = match contain(understand) {
        Ok(Ok(understood)) => understood,
        Ok(Err(refusal)) => return Answer::new(refusal, 0),
        Err(panicked) => return broken(panicked),
    };
    let done = |response: Response| {
        let needed_len =
            if command.direction() == Direction::In { response.data_in.len() as u64 } else { needed_out };
        Answer::new(response, needed_len)
    };
    let aborted = || done(Response::status(Status::TaskAborted));
    // From here on, whoever aborts it waits for it.
    let running = presence.run();
    let turn = match live.turn(attribute, cancellation).await {
        Ok(turn) => turn,
        Err(NoTurn::SetFull) => return done(Response::status(Status::TaskSetFull)),
        Err(NoTurn::Cancelled) => return aborted(),
    };
    let mut under_way = Some((running, turn));
    if cancellation.is_cancelled() || presence.is_detached.get() {
        return aborted();
    }
    note_alignment(rt, seat, &live, &presence, &command, block_bytes);
    let disk = live.disk.cancellable(cancellation);
    let (mut copied, mut asked) = (Vec::new(), None);
    let mut step = match contain(|| live.unit.borrow_mut().begin(presence.nexus, &command, data)) {
        Ok(step) => step,
        Err(panicked) => return broken(panicked),
    };
    loop {
        let (op, task) = match step {
            Step::Done(response) => {
                drop(under_way);
                if let Some((operation, at, bytes)) = asked {
                    let is_ok = response.status == Status::Good;
                    let asked = Asked { operation, at, bytes, since };
                    presence.watched.answered(&asked, live.disk.size(), rt.now(), is_ok);
                }
                return done(response);
            }
            Step::Medium(op, task) => (op, task),
        };
        // A command counts as what it does first.
        asked = asked.or_else(|| counts_as(&op));
        if let Some(work) = work_of(&op) {
            let below_ceiling = presence.bounds.pass(rt, work, || presence.is_detached.get());
            cancellation.unless_cancelled(below_ceiling).await;
        }
        // Reservations that are being stored have to be carried through; everything else may be left where it is.
        if cancellation.is_cancelled() && !matches!(op, Op::Persist(_)) {
            return aborted();
        }
        // Whoever waits for others to finish is not waited for, by those that it aborts or that wait for its turn, or they would wait for ever.
        if matches!(op, Op::Abort(_)) {
            under_way = None;
        }
        let result = perform(rt, seat, (&live, &disk), op, &mut copied, cancellation).await;
        match &result {
            Err(IoError::Cancelled) => return aborted(),
            Err(IoError::Gone) => rt.local::<Units<V::Disk>>().forget(&live),
            _ => {}
        }
        step = match contain(|| live.unit.borrow_mut().resume(task, result)) {
            Ok(step) => step,
            Err(panicked) => return broken(panicked),
        };
    }
}

/// What an operation is counted as, and where and how long it is.
fn counts_as(op: &Op) -> Option<(Operation, u64, u64)> {
    match op {
        Op::Read { at, len } => Some((Operation::Read, *at, *len as u64)),
        Op::Write { at, data, .. } => {
            Some((Operation::Write, *at, data.iter().map(|part| part.len() as u64).sum()))
        }
        Op::CompareAndWrite { at, new, .. } => Some((Operation::Write, *at, new.len() as u64)),
        Op::Discard { at, len } | Op::WriteZeroes { at, len, .. } => Some((Operation::Discard, *at, *len)),
        Op::Flush => Some((Operation::Flush, 0, 0)),
        Op::Copy { .. } | Op::Status { .. } | Op::Persist(_) => Some((Operation::Other, 0, 0)),
        Op::Abort(_) | Op::Luns | Op::Resolve(_) => None,
    }
}

/// What an operation counts as below the ceiling of its host, if it is one on the medium.
fn work_of(op: &Op) -> Option<Work> {
    match op {
        Op::Read { len, .. } => Some(Work::read(*len as u64, 1)),
        Op::Write { data, .. } => Some(Work::write(data.iter().map(|part| part.len() as u64).sum(), 1)),
        Op::CompareAndWrite { new, .. } => Some(Work::write(new.len() as u64, 1)),
        Op::Discard { .. } | Op::WriteZeroes { .. } => Some(Work::write(0, 1)),
        Op::Copy { len, .. } => Some(Work::write(*len, 1)),
        Op::Flush | Op::Status { .. } | Op::Persist(_) | Op::Abort(_) | Op::Luns | Op::Resolve(_) => None,
    }
}

/// A guest that reads and writes across the volume's blocks is slow for a reason that nobody sees: an event says it.
fn note_alignment<V: Volumes>(
    rt: &Rt,
    seat: &Seat<V>,
    live: &Live<V::Disk>,
    presence: &Presence,
    command: &Command,
    block_bytes: u32,
) {
    let (Command::Read { span, .. } | Command::Write { span, .. }) = command else { return };
    let block_bytes = u64::from(block_bytes);
    let (at, len) = (span.lba.saturating_mul(block_bytes), u64::from(span.blocks) * block_bytes);
    let verdict = presence.alignment.borrow_mut().note(at, len, live.disk.block_size());
    let (initiator, volume) = (&presence.who.initiator, &live.name);
    match verdict {
        None => {}
        Some(Verdict::Misaligned) => {
            let message = format!(
                "initiator {initiator} is misaligned on volume {volume}: its requests cross blocks of {} bytes, which doubles \
                 the work. Align its partitions and file systems to multiples of that",
                live.disk.block_size()
            );
            seat.reporter.report(rt, Severity::Warning, "iscsi.guest.misaligned", volume, message);
        }
        Some(Verdict::AlignedAgain) => {
            let message = format!("initiator {initiator} now uses volume {volume} aligned to its blocks");
            seat.reporter.report(rt, Severity::Info, "iscsi.guest.aligned", volume, message);
        }
    }
}

/// A command for a unit that the initiator does not have.
pub fn execute_absent<V: Volumes>(seat: &Seat<V>, cdb: &[u8; 16]) -> Answer {
    let seen = seat.luns();
    contain(|| answer_absent(cdb, &seen)).unwrap_or_else(Answer::of_panic)
}

fn answer_absent(cdb: &[u8; 16], seen: &[Mapping]) -> Answer {
    let command = match parse(cdb) {
        Ok(command) => command,
        Err(sense) => return Answer::new(Response::check(sense, false), 0),
    };
    let mut step = begin_absent(&command);
    loop {
        step = match step {
            Step::Done(response) => {
                let needed_len = response.data_in.len() as u64;
                return Answer::new(response, needed_len);
            }
            Step::Medium(Op::Luns, task) => resume_absent(task, Ok(numbers(seen))),
            Step::Medium(op, _) => panic!("{op:?} is nothing that an absent unit does"),
        };
    }
}

/// The answer when a unit is there and cannot be used.
pub fn unusable(error: IoError) -> Answer {
    let sense = match error {
        IoError::Gone => Sense::illegal(asc::LOGICAL_UNIT_NOT_SUPPORTED),
        _ => Sense::new(forebay_scsi::SenseKey::NotReady, asc::NOT_READY_MANUAL_INTERVENTION),
    };
    Answer::new(Response::check(sense, false), 0)
}

fn numbers(seen: &[Mapping]) -> Outcome {
    Outcome::Luns(seen.iter().map(|mapping| mapping.lun).collect())
}

/// Carries out one operation. What is rare is boxed, so that reads and writes have small futures.
async fn perform<V: Volumes>(
    rt: &Rt,
    seat: &Seat<V>,
    (live, disk): (&Live<V::Disk>, &V::Disk),
    op: Op,
    copied: &mut Vec<Option<Mapping>>,
    cancellation: &Cancellation,
) -> Result<Outcome, IoError> {
    match op {
        Op::Read { at, len } => disk.read(at, len).await.map(Outcome::Data),
        Op::Write { at, data, fua } => disk.write(at, data, fua).await.map(|()| Outcome::Done),
        rare => Box::pin(perform_rare(rt, seat, (live, disk), rare, copied, cancellation)).await,
    }
}

async fn perform_rare<V: Volumes>(
    rt: &Rt,
    seat: &Seat<V>,
    (live, disk): (&Live<V::Disk>, &V::Disk),
    op: Op,
    copied: &mut Vec<Option<Mapping>>,
    cancellation: &Cancellation,
) -> Result<Outcome, IoError> {
    match op {
        Op::Read { .. } | Op::Write { .. } => unreachable!("reads and writes are not rare"),
        Op::Flush => disk.flush().await?,
        Op::Discard { at, len } => disk.discard(at, len, false).await?,
        Op::WriteZeroes { at, len, fua } => disk.write_zeroes(at, len, fua).await?,
        Op::CompareAndWrite { at, expected, new } => {
            return disk.compare_and_write(at, expected, new).await.map(Outcome::Compared);
        }
        Op::Status { at, len, extents_max } => {
            return disk.status(at, len, extents_max).await.map(Outcome::Extents);
        }
        Op::Persist(state) => disk.store_reservations(state).await?,
        Op::Abort(nexuses) => {
            // It was told with the reservations; a command that is aborted now may have taken it along.
            let is_preempted = |nexus| nexuses.contains(&nexus);
            let tell = |unit: &mut Unit| unit.raise_to(Attention::RegistrationsPreempted, is_preempted);
            live.abort(rt, &seat.cores, |presence| is_preempted(presence.nexus), tell).await;
        }
        Op::Luns => return Ok(numbers(&seat.luns())),
        Op::Resolve(designators) => {
            let mut units = Vec::with_capacity(designators.len());
            let mappings = seat.luns();
            copied.clear();
            for designator in designators {
                let found = resolve(rt, seat, &mappings, &designator).await;
                units.push(found.as_ref().map(|(_, unit)| *unit));
                copied.push(found.map(|(mapping, _)| mapping));
            }
            return Ok(Outcome::Resolved(units));
        }
        Op::Copy { from, from_at, to, to_at, len } => {
            let place = |index: usize| copied.get(index).cloned().flatten().ok_or(IoError::Gone);
            let (from, to) = (place(from)?, place(to)?);
            let mut done = 0;
            while done < len {
                if cancellation.is_cancelled() {
                    return Err(IoError::Cancelled);
                }
                let piece = (len - done).min(COPY_PIECE);
                let data = read_at(rt, seat, &from, from_at + done, piece as usize, cancellation).await?;
                write_at(rt, seat, &to, to_at + done, data, cancellation).await?;
                done += piece;
            }
        }
    }
    Ok(Outcome::Done)
}

/// Runs `work` on the core of a mapped unit, with the initiator's presence there; `None` when it cannot be had.
pub async fn at_unit<V: Volumes, T: Send + 'static, F>(
    rt: &Rt,
    seat: &Seat<V>,
    mapping: &Mapping,
    work: impl FnOnce(Rt, Rc<Live<V::Disk>>, Rc<Presence>) -> F + Send + 'static,
) -> Option<T>
where
    F: Future<Output = T> + 'static,
{
    if mapping.core == rt.core() {
        let (live, presence) = visit(rt, seat, mapping).await.ok()?;
        return Some(work(rt.clone(), live, presence).await);
    }
    let (done, result) = oneshot::channel();
    let (seat, mapping) = (seat.clone(), mapping.clone());
    let core = mapping.core;
    let cores = seat.cores.clone();
    cores.core(core).run(move |rt| {
        let rt = rt.clone();
        rt.clone().spawn(async move {
            let visited = visit(&rt, &seat, &mapping).await;
            let value = match visited {
                Ok((live, presence)) => Some(work(rt, live, presence).await),
                Err(_) => None,
            };
            // Whoever asked may have gone with its core.
            let _ = done.send(value);
        });
    });
    result.await.ok().flatten()
}

/// The unit of a mapping on this core, with the initiator's presence there.
pub async fn visit<V: Volumes>(rt: &Rt, seat: &Seat<V>, mapping: &Mapping) -> Result<Here<V>, IoError> {
    let units = rt.local::<Units<V::Disk>>();
    let live = units.open(rt, &seat.volumes, mapping, &seat.who).await?;
    let presence = live.attach(rt, &seat.who, &*seat.access).ok_or(IoError::Suspended)?;
    Ok((live, presence))
}

async fn resolve<V: Volumes>(
    rt: &Rt,
    seat: &Seat<V>,
    mappings: &[Mapping],
    designator: &Designator,
) -> Option<(Mapping, CopyUnit)> {
    for mapping in mappings {
        let asked = designator.clone();
        let found = at_unit(rt, seat, mapping, move |_, live, presence| async move {
            let unit = live.unit.borrow();
            let look = || unit.is_designated(&asked).then(|| unit.admit_copy(presence.nexus, &asked));
            // Looking changes nothing: a unit that panics over it is not found, and the copy is refused.
            contain(look).unwrap_or_default()
        });
        if let Some(Some(unit)) = found.await {
            return Some((mapping.clone(), unit));
        }
    }
    None
}

/// Waits for the volume's ceiling no longer than until it is cancelled; on another core until it has been read.
async fn read_at<V: Volumes>(
    rt: &Rt,
    seat: &Seat<V>,
    from: &Mapping,
    at: u64,
    len: usize,
    cancellation: &Cancellation,
) -> Result<Vec<Buf>, IoError> {
    if from.core == rt.core() {
        return visit(rt, seat, from).await?.0.disk.cancellable(cancellation).read(at, len).await;
    }
    let bytes = at_unit(rt, seat, from, move |_, live, _| async move {
        live.disk.read(at, len).await.map(|parts| gather(&parts))
    });
    Ok(scatter(rt, &bytes.await.ok_or(IoError::Gone)??))
}

/// The same for writing.
async fn write_at<V: Volumes>(
    rt: &Rt,
    seat: &Seat<V>,
    to: &Mapping,
    at: u64,
    data: Vec<Buf>,
    cancellation: &Cancellation,
) -> Result<(), IoError> {
    if to.core == rt.core() {
        return visit(rt, seat, to).await?.0.disk.cancellable(cancellation).write(at, data, false).await;
    }
    let bytes = gather(&data);
    let written = at_unit(rt, seat, to, move |rt, live, _| async move {
        live.disk.write(at, scatter(&rt, &bytes), false).await
    });
    written.await.ok_or(IoError::Gone)?
}

/// Buffers as bytes that may go to another core.
pub fn gather(parts: &[Buf]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// Bytes from another core as buffers of this one.
pub fn scatter(rt: &Rt, bytes: &[u8]) -> Vec<Buf> {
    bytes.chunks(COPY_PIECE as usize).map(|part| rt.arena().copy(part).freeze()).collect()
}

/// Data for the initiator as buffers.
pub fn data_in(rt: &Rt, data: DataIn) -> Vec<Buf> {
    match data {
        DataIn::None => Vec::new(),
        DataIn::Bytes(bytes) if bytes.is_empty() => Vec::new(),
        DataIn::Bytes(bytes) => scatter(rt, &bytes),
        DataIn::Parts(parts) => parts,
    }
}
