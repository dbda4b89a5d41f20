//! What is in flight on a disk: for how long, and an end to waiting for what may never come.
//!
//! A request ends for the caller when the device answers, when its read was to be given up once it is late, or when the whole disk
//! is given up. The device may still be at work on what was ended so: the request keeps its buffers until then, and stays in
//! flight here ([`Watch::in_flight`]).

use crate::buffer::{Arena, BufMut};
use crate::completion::{Completer, Interrupter};
use crate::disk::{DiskError, DiskErrorKind};
use crate::executor::Backend;
use forebay_base::Nanos;
use forebay_probe::Histogram;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// What a request asks of a device, as far as its time is compared with that of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Read,
    Write,
    /// Also a write that is durable when complete.
    Flush,
    /// Not compared: what it takes depends on how much is discarded, and of what.
    Discard,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Flush, Kind::Discard];
}

/// Requests of one kind that a device answered, what they moved, and how long they took, together and each.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Served {
    pub count: u64,
    pub bytes: u64,
    pub nanos: u64,
    /// In nanoseconds; absent when there were none.
    pub latencies: Option<Histogram>,
}

impl Served {
    fn add(&mut self, other: &Served) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.nanos += other.nanos;
        if let Some(latencies) = &other.latencies {
            self.latencies.get_or_insert_default().add(latencies);
        }
    }
}

/// How a device does.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Vitals {
    /// For how many nanoseconds it has owed its answer to the oldest request, discards left out.
    pub waits: u64,
    /// For how many nanoseconds it had something to do since this was last asked. Of several handles: of the one that had most, so at least so long.
    pub busy: u64,
    /// What it answered since this was last asked, by [`Kind`] up to flushes.
    pub served: [Served; 3],
}

impl Vitals {
    /// Adds what another handle to the same device saw.
    pub fn add(&mut self, other: &Vitals) {
        self.waits = self.waits.max(other.waits);
        self.busy = self.busy.max(other.busy);
        self.served.iter_mut().zip(&other.served).for_each(|(served, more)| served.add(more));
    }
}

/// A request that the device has not answered.
struct Op {
    since: Nanos,
    kind: Kind,
    bytes: u64,
    /// Absent when nobody waits any more.
    waiter: Option<Waiter>,
}

enum Waiter {
    Read { interrupter: Interrupter<(BufMut, Result<(), DiskError>)>, len: usize, impatient: bool },
    Other(Interrupter<Result<(), DiskError>>),
}

/// The requests of one [`crate::Disk`] and its clones.
pub struct Watch {
    /// Weak: requests in flight are the backend's.
    backend: Weak<dyn Backend>,
    arena: Arena,
    ops: RefCell<Slab<Op>>,
    /// By [`Kind`], since they were last taken.
    served: [RefCell<Served>; 3],
    /// Since when there is something in flight, or since this was last asked, and for how long there was before.
    busy_since: Cell<Nanos>,
    busy: Cell<u64>,
    /// Running mean of what reads took, in nanoseconds; 0 before the first.
    typical_read: Cell<u64>,
    given_up: Cell<bool>,
}

impl Watch {
    pub(crate) fn new(backend: Weak<dyn Backend>, arena: Arena) -> Watch {
        Watch {
            backend,
            arena,
            ops: RefCell::default(),
            served: Default::default(),
            busy_since: Cell::new(Nanos(0)),
            busy: Cell::new(0),
            typical_read: Cell::new(0),
            given_up: Cell::new(false),
        }
    }

    pub(crate) fn read(
        this: &Rc<Watch>,
        done: Completer<(BufMut, Result<(), DiskError>)>,
        len: usize,
        impatient: bool,
    ) -> Done<(BufMut, Result<(), DiskError>)> {
        let waiter = Waiter::Read { interrupter: done.interrupter(), len, impatient };
        Watch::begin(this, done, (Kind::Read, len as u64), waiter)
    }

    pub(crate) fn other(
        this: &Rc<Watch>,
        done: Completer<Result<(), DiskError>>,
        kind: Kind,
        bytes: u64,
    ) -> Done<Result<(), DiskError>> {
        let waiter = Waiter::Other(done.interrupter());
        Watch::begin(this, done, (kind, bytes), waiter)
    }

    fn begin<T>(this: &Rc<Watch>, done: Completer<T>, (kind, bytes): (Kind, u64), waiter: Waiter) -> Done<T> {
        let op = Op { since: this.now(), kind, bytes, waiter: Some(waiter) };
        let mut ops = this.ops.borrow_mut();
        if ops.is_empty() {
            this.busy_since.set(op.since);
        }
        let key = ops.insert(op);
        Done { done, in_flight: Some(InFlight { watch: this.clone(), key }) }
    }

    /// The beginning of time once the executor has ended.
    fn now(&self) -> Nanos {
        self.backend.upgrade().map_or(Nanos(0), |backend| backend.now())
    }

    fn end(&self, key: usize) {
        let now = self.now();
        let op = {
            let mut ops = self.ops.borrow_mut();
            let op = ops.remove(key);
            if ops.is_empty() {
                self.busy.set(self.busy.get() + now.since(self.busy_since.get()));
            }
            op
        };
        let took = now.since(op.since);
        if let Some(served) = self.served.get(op.kind as usize) {
            let mut served = served.borrow_mut();
            served.count += 1;
            served.bytes += op.bytes;
            served.nanos += took;
            served.latencies.get_or_insert_default().record(took);
        }
        if op.kind == Kind::Read {
            let mean = self.typical_read.get();
            // A sixteenth of it is new each time.
            self.typical_read.set(if mean == 0 { took } else { mean - mean / 16 + took / 16 });
        }
    }

    /// What a read takes lately, in nanoseconds; 0 before the first.
    pub fn typical_read(&self) -> u64 {
        self.typical_read.get()
    }

    pub fn take_vitals(&self) -> Vitals {
        let mut busy = self.busy.take();
        if !self.ops.borrow().is_empty() {
            busy += self.now().since(self.busy_since.replace(self.now()));
        }
        Vitals {
            waits: self.waits(&[Kind::Read, Kind::Write, Kind::Flush]),
            busy,
            served: [0, 1, 2].map(|kind| self.served[kind].take()),
        }
    }

    /// Requests that the device has not answered.
    pub fn in_flight(&self) -> usize {
        self.ops.borrow().len()
    }

    /// For how many nanoseconds the device has owed its answer to the oldest request of these kinds.
    pub fn waits(&self, kinds: &[Kind]) -> u64 {
        let (now, ops) = (self.now(), self.ops.borrow());
        let waits = ops.iter().filter(|(_, op)| kinds.contains(&op.kind)).map(|(_, op)| now.since(op.since));
        waits.max().unwrap_or(0)
    }

    /// Ends each [`crate::Disk::read_unless_late`] that has waited for more than so many nanoseconds.
    pub fn end_late_reads(&self, after: u64) {
        let now = self.now();
        let is_late = |op: &Op| {
            now.since(op.since) > after && matches!(op.waiter, Some(Waiter::Read { impatient: true, .. }))
        };
        self.interrupt(is_late, DiskErrorKind::Late);
    }

    /// Whether there are reads that [`Watch::end_late_reads`] might have to end.
    pub fn has_impatient_reads(&self) -> bool {
        let ops = self.ops.borrow();
        ops.iter().any(|(_, op)| matches!(op.waiter, Some(Waiter::Read { impatient: true, .. })))
    }

    /// Ends all that is waited for, with the error that the device was given up, and lets nothing more reach it.
    pub(crate) fn give_up(&self) {
        self.given_up.set(true);
        self.interrupt(|_| true, DiskErrorKind::GivenUp);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.get()
    }

    fn interrupt(&self, which: impl Fn(&Op) -> bool, kind: DiskErrorKind) {
        let waiters: Vec<Waiter> = {
            let mut ops = self.ops.borrow_mut();
            let of = |(_, op): (usize, &mut Op)| if which(op) { op.waiter.take() } else { None };
            ops.iter_mut().filter_map(of).collect()
        };
        for waiter in waiters {
            match waiter {
                // The device may still write to the buffer that it was given.
                Waiter::Read { interrupter, len, .. } => {
                    interrupter.interrupt((self.arena.take(len), Err(kind.into())))
                }
                Waiter::Other(interrupter) => interrupter.interrupt(Err(kind.into())),
            }
        }
    }
}

/// What a device owes to a request: its answer.
pub struct Done<T> {
    done: Completer<T>,
    in_flight: Option<InFlight>,
}

struct InFlight {
    watch: Rc<Watch>,
    key: usize,
}

impl<T> Done<T> {
    pub fn complete(self, value: T) {
        drop(self.in_flight);
        self.done.complete(value);
    }

    #[cfg(test)]
    pub fn of_nobody() -> Done<T> {
        Done { done: crate::completion().0, in_flight: None }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.watch.end(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, DiskBackend, DiskOp, Geometry};
    use crate::executor::Executor;
    use crate::executor::tests::Quiet;
    use std::time::Duration;

    /// A device that answers when it is told to.
    #[derive(Clone, Default)]
    struct Idle(Rc<RefCell<Vec<DiskOp>>>);

    impl DiskBackend for Idle {
        fn geometry(&self) -> Geometry {
            Geometry {
                size: 1 << 20,
                sector_logical: 512,
                sector_physical: 512,
                rotational: false,
                identity: 1,
            }
        }
        fn submit(&self, op: DiskOp) {
            self.0.borrow_mut().push(op);
        }
        fn give_up(&self) {}
    }

    impl Idle {
        fn answer_first(&self) {
            match self.0.borrow_mut().remove(0) {
                DiskOp::Read { into, done, .. } => done.complete((into, Ok(()))),
                DiskOp::Write { done, .. } | DiskOp::Flush { done } | DiskOp::Discard { done, .. } => {
                    done.complete(Ok(()))
                }
            }
        }
    }

    fn kind<T>(result: Result<T, DiskError>) -> Option<DiskErrorKind> {
        result.err().map(|error| error.kind)
    }

    #[test]
    fn late_reads_end_and_stay_in_flight_until_the_device_is_done_with_them() {
        let executor = Executor::new(0, Rc::new(Quiet::default()));
        let (rt, device) = (executor.rt().clone(), Idle::default());
        let disk = Disk::new(Rc::new(device.clone()), rt.watch());
        executor.block_on(async move {
            let (patient, impatient) =
                (disk.read(0, rt.buffer(4096)), disk.read_unless_late(0, rt.buffer(8192)));
            rt.sleep(Duration::from_millis(8)).await;
            let watch = disk.watch();
            assert_eq!((watch.waits(&[Kind::Read]), watch.waits(&[Kind::Write])), (8_000_000, 0));
            watch.end_late_reads(8_000_000);
            assert!(watch.has_impatient_reads(), "it is late after eight milliseconds");
            watch.end_late_reads(7_999_999);
            let (bytes, result) = impatient.await;
            assert_eq!((bytes.len(), kind(result)), (8192, Some(DiskErrorKind::Late)));
            assert_eq!((watch.in_flight(), watch.has_impatient_reads()), (2, false));
            device.answer_first();
            assert_eq!((patient.await.1, watch.typical_read()), (Ok(()), 8_000_000));
            rt.sleep(Duration::from_millis(8)).await;
            device.answer_first();
            assert_eq!((watch.in_flight(), watch.typical_read()), (0, 8_500_000));
            // The second one was asked for together with the first, and answered eight milliseconds after it.
            let vitals = watch.take_vitals();
            assert_eq!((vitals.waits, vitals.busy), (0, 16_000_000));
            let [reads, writes, flushes] = vitals.served;
            assert_eq!((reads.count, reads.bytes, reads.nanos), (2, 12_288, 24_000_000));
            assert_eq!(reads.latencies.expect("there were two").count(), 2);
            assert_eq!([writes, flushes], [Served::default(), Served::default()]);
            assert_eq!(watch.take_vitals(), Vitals::default());
        });
    }

    #[test]
    fn nothing_waits_for_a_disk_that_is_given_up() {
        let executor = Executor::new(0, Rc::new(Quiet::default()));
        let (rt, device) = (executor.rt().clone(), Idle::default());
        let disk = Disk::new(Rc::new(device.clone()), rt.watch());
        executor.block_on(async move {
            let (read, flush) = (disk.read(0, rt.buffer(4096)), disk.flush());
            disk.clone().give_up();
            assert_eq!(kind(read.await.1), Some(DiskErrorKind::GivenUp));
            assert_eq!(kind(flush.await), Some(DiskErrorKind::GivenUp));
            let write = disk.write(0, vec![rt.arena().take_zeroed(4096).freeze()]);
            assert_eq!(kind(write.await), Some(DiskErrorKind::GivenUp));
            assert_eq!((device.0.borrow().len(), disk.watch().in_flight()), (2, 2));
            device.answer_first();
            device.answer_first();
            assert_eq!(disk.watch().in_flight(), 0);
        });
    }
}
