//! One io_uring per executor: the operations in flight, their memory, submission, waiting, delivery.
//!
//! - **Ownership.** Whatever the kernel may read or write (buffers, vectors, addresses) belongs to the [`Op`]
//!   in the slot whose number is the request's `user_data`. The slot is emptied by the completion and by
//!   nothing else, so a dropped future frees nothing. A ring that is dropped cancels what can be cancelled and
//!   waits for the rest; what a hung device still holds after that is leaked on purpose.
//! - **Submission.** Requests are written to the submission queue when they are made and handed to the kernel
//!   by the one `io_uring_enter` of the turn, which also collects completions and, if asked, sleeps.
//! - **No polling.** Looking at the completion queue for a while before sleeping was measured and gained nothing
//!   that it did not cost twice over (same document).
//! - **Limits.** How many disk requests are in the kernel at a time, and of which disk, [`Admission`] says: beyond the device's own
//!   queue the kernel falls back to a thread per request. Later ones wait here in order, as do requests of
//!   any kind while the submission queue is full; the layers above bound how many there are. Completions
//!   that do not fit their queue are kept by the kernel (IORING_FEAT_NODROP) and fetched by the next turn.
//! - **Threads of the kernel.** Flushes, and whatever a device's queue has no room for, each take one of the ring's until the
//!   device answers. There are as many as disk requests may need ([`WORKERS`]), so that a flush never waits for one that hangs.
//! - **Setup.** SINGLE_ISSUER and DEFER_TASKRUN: completions are processed when this thread asks for them, in
//!   batches, instead of by interrupting it. Kernels before 6.1 get COOP_TASKRUN, those before 5.19 neither.

use super::UringError;
use super::disk::DiskRequest;
use super::net::NetRequest;
use super::registry::Places;
use super::wake::Alarm;
use crate::admission::{Admission, HandleId, Limits};
use crate::buffer::Arena;
use crate::disk::DiskErrorKind;
use crate::executor::Wait;
use forebay_base::Nanos;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::{Rc, Weak};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Entries of the submission queue: what one turn of a busy executor submits at once.
const SUBMISSIONS: u32 = 512;
/// Entries of the completion queue: a burst beyond it costs the kernel an allocation per completion.
const COMPLETIONS: u32 = 4096;
/// Threads of the kernel for requests to disks, which come when all others wait and go when they are idle. Its own limit, four per
/// processor, is what the flushes of one disk that hangs can take. This many are the requests of seven such disks.
const WORKERS: u32 = 1024;
/// Completions delivered in one turn. Delivering all of them makes a convoy: the device idles while everything
/// that it answered is processed, then gets it all back at once. At 32 requests in flight, 8 gave 76 000 reads
/// a second where no limit gave 64 000 (docs/development/decisions/0001-io-uring-reactor.md).
const DELIVER_MAX: usize = 8;
/// Bytes read in the completions of one turn after which no more are delivered: what was just read is checked and sent while a
/// core's second-level cache still has it, and the device gets its next large request after one answer, not after eight.
const DELIVER_BYTES_MAX: usize = 256 << 10;
/// How long a dropped ring waits for its requests before it leaks them. Disks answer or fail within the
/// kernel's own timeout of 30 s, except when they hang.
const DRAIN: Duration = Duration::from_secs(35);

const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// A request to the kernel with all memory that it refers to.
pub(super) enum Op {
    Disk(DiskRequest),
    Net(NetRequest),
}

impl Op {
    /// The kernel's form of the request; points only into memory that `self` owns and that does not move with it.
    fn entry(&mut self) -> squeue::Entry {
        match self {
            Op::Disk(request) => request.entry(),
            Op::Net(request) => request.entry(),
        }
    }
}

enum Slot {
    /// Number of the next free slot.
    Free(usize),
    Used(Op),
}

/// Operations in flight, by number.
struct Slots {
    slots: Vec<Slot>,
    free: usize,
    used: usize,
}

impl Slots {
    fn insert(&mut self, op: Op) -> usize {
        self.used += 1;
        if self.free == self.slots.len() {
            self.slots.push(Slot::Used(op));
            self.free += 1;
            return self.free - 1;
        }
        let index = self.free;
        match std::mem::replace(&mut self.slots[index], Slot::Used(op)) {
            Slot::Free(next) => self.free = next,
            Slot::Used(_) => unreachable!("a used slot is not on the free list"),
        }
        index
    }

    fn get(&mut self, index: usize) -> &mut Op {
        match &mut self.slots[index] {
            Slot::Used(op) => op,
            Slot::Free(_) => unreachable!("slot {index} holds a request"),
        }
    }

    fn take(&mut self, index: usize) -> Op {
        match std::mem::replace(&mut self.slots[index], Slot::Free(self.free)) {
            Slot::Used(op) => {
                self.free = index;
                self.used -= 1;
                op
            }
            Slot::Free(_) => panic!("the kernel completed request {index}, which was not in flight"),
        }
    }
}

struct Io {
    uring: IoUring,
    /// The ring's number among this thread's registered rings, or its descriptor.
    enter_fd: libc::c_int,
    enter_flags: u32,
    slots: Slots,
    /// Waiting for room in the submission queue.
    unsubmitted: VecDeque<squeue::Entry>,
    /// Which disk requests are in the kernel, by their slots, and which are not yet.
    admission: Admission<usize>,
}

pub(super) struct Ring {
    io: RefCell<Io>,
    pub(super) alarm: Arc<Alarm>,
    /// The executor's buffers; also copies of parts that a device cannot read in place.
    pub(super) arena: Arena,
    /// What the kernel knows of its memory.
    pub(super) places: Rc<Places>,
    /// Vectors of finished requests, for the next ones.
    vectors: RefCell<Vec<Vec<libc::iovec>>>,
    closing: Cell<bool>,
    me: Weak<Ring>,
}

/// What `IORING_ENTER_EXT_ARG` points to.
#[repr(C)]
struct EnterArgument {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timeout: *const types::Timespec,
}

fn build() -> io::Result<IoUring> {
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for attempt in 0..3 {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).setup_clamp().dontfork();
        match attempt {
            0 => builder.setup_submit_all().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            1 => builder.setup_submit_all().setup_coop_taskrun().setup_taskrun_flag(),
            _ => &mut builder,
        };
        match builder.build(SUBMISSIONS) {
            // EINVAL: this kernel does not know one of the flags.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = error,
            result => return result,
        }
    }
    Err(last)
}

impl Ring {
    /// A ring for the calling thread, on which it stays.
    pub(super) fn new() -> Result<Rc<Ring>, UringError> {
        let uring = build().map_err(UringError::from_setup)?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(UringError::TooOld);
        }
        // Without it, on kernels before 5.15, several disks that hang may have all threads.
        let _ = uring.submitter().register_iowq_max_workers(&mut [WORKERS, 0]);
        let alarm = Alarm::new().map_err(UringError::Other)?;
        let (enter_fd, enter_flags) = register_ring(uring.as_raw_fd());
        let places = Rc::new(Places::new(uring.as_raw_fd()));
        let ring = Rc::new_cyclic(|me| Ring {
            io: RefCell::new(Io {
                uring,
                enter_fd,
                enter_flags,
                slots: Slots { slots: Vec::new(), free: 0, used: 0 },
                unsubmitted: VecDeque::new(),
                admission: Admission::new(Limits::CORE),
            }),
            alarm: Arc::new(alarm),
            arena: Arena::registered(places.clone()),
            places,
            vectors: RefCell::default(),
            closing: Cell::new(false),
            me: me.clone(),
        });
        ring.watch_alarm();
        Ok(ring)
    }

    fn watch_alarm(&self) {
        let entry = opcode::PollAdd::new(types::Fd(self.alarm.fd()), libc::POLLIN as u32).multi(true).build();
        self.io.borrow_mut().push(entry.user_data(WAKE));
    }

    /// The ring as its owner, for handles made while requests complete. `None` while the ring is dropped.
    pub(super) fn handle(&self) -> Option<Rc<Ring>> {
        self.me.upgrade()
    }

    pub(super) fn now(&self) -> Nanos {
        // One origin for all rings, since times travel between cores; read first, so that no time is before it.
        static ORIGIN: OnceLock<u64> = OnceLock::new();
        let origin = *ORIGIN.get_or_init(monotonic);
        Nanos(monotonic() - origin)
    }

    /// Whether no disk request of this core is under way.
    pub(super) fn disks_are_idle(&self) -> bool {
        self.io.borrow().admission.is_idle()
    }

    /// Requests that the disk of this identity has not answered.
    pub(super) fn owed(&self, identity: u64) -> usize {
        self.io.borrow().admission.owed(identity)
    }

    /// A handle to the disk of this identity.
    pub(super) fn open(&self, identity: u64) -> HandleId {
        self.io.borrow_mut().admission.open(identity)
    }

    pub(super) fn close(&self, handle: HandleId) {
        self.io.borrow_mut().admission.close(handle);
    }

    pub(super) fn is_given_up(&self, handle: HandleId) -> bool {
        self.io.borrow().admission.is_given_up(handle)
    }

    /// Ends the requests of a handle that the kernel does not have, and asks it to drop those that it has.
    pub(super) fn give_up(&self, handle: HandleId) {
        self.abandon(handle);
        self.io.borrow_mut().cancel(|op| matches!(op, Op::Disk(request) if request.handle == handle));
    }

    /// Ends the requests of a handle that the kernel does not have.
    pub(super) fn abandon(&self, handle: HandleId) {
        let never: Vec<Op> = {
            let io = &mut *self.io.borrow_mut();
            let never = io.admission.give_up(handle).into_iter().map(|index| io.slots.take(index)).collect();
            io.launch_next(handle);
            never
        };
        for op in never {
            if let Op::Disk(request) = op {
                request.end(self, Err(DiskErrorKind::GivenUp.into()));
            }
        }
    }

    /// Queues a request; the next turn submits it.
    pub(super) fn start(&self, op: Op) {
        self.io.borrow_mut().start(op);
    }

    /// An empty list of vectors, with memory when some is at hand.
    pub(super) fn take_vectors(&self) -> Vec<libc::iovec> {
        self.vectors.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn return_vectors(&self, mut vectors: Vec<libc::iovec>) {
        // 64 lists of at most 1024 entries of 16 bytes: 1 MiB.
        let mut spare = self.vectors.borrow_mut();
        if vectors.capacity() > 0 && spare.len() < 64 {
            vectors.clear();
            spare.push(vectors);
        }
    }

    /// Submits what was queued and takes up what the kernel has left to this thread; delivers nothing.
    pub(super) fn exchange(&self) {
        self.io.borrow_mut().exchange();
    }

    /// Submits what was queued, waits as `wait` says, and delivers what is complete.
    pub(super) fn turn(&self, wait: Wait) {
        let timeout = match wait {
            Wait::Poll => Some(0),
            Wait::Until(deadline) => Some(deadline.since(self.now())),
            Wait::Forever => None,
        };
        if timeout == Some(0) {
            self.exchange();
        } else {
            self.wait(timeout);
        }
        self.deliver();
        self.alarm.rise();
    }

    fn wait(&self, timeout: Option<u64>) {
        let mut io = self.io.borrow_mut();
        // What does not fit the submission queue must go first: it may be what the wait is for.
        if !io.unsubmitted.is_empty() || io.completed() {
            io.exchange();
            return;
        }
        if self.alarm.lie_down() {
            io.enter(1, timeout);
            self.alarm.rise();
        } else {
            io.exchange();
        }
    }

    fn deliver(&self) {
        let mut bytes = 0;
        for _ in 0..DELIVER_MAX {
            let next = self.io.borrow_mut().uring.completion().next();
            let Some(completion) = next else { return };
            let user_data = completion.user_data();
            match user_data {
                WAKE if cqueue::more(completion.flags()) => {}
                WAKE if self.closing.get() => {}
                WAKE => self.watch_alarm(),
                CANCEL => {}
                _ => {
                    let op = self.io.borrow_mut().finish(user_data as usize);
                    match op {
                        Op::Disk(request) => {
                            bytes += request.bytes_read();
                            request.complete(self, completion.result());
                        }
                        Op::Net(request) => request.complete(self, completion.result()),
                    }
                }
            }
            if bytes >= DELIVER_BYTES_MAX {
                return;
            }
        }
    }
}

impl Io {
    fn start(&mut self, op: Op) {
        let of_disk = if let Op::Disk(request) = &op { Some((request.handle, request.class)) } else { None };
        let index = self.slots.insert(op);
        if of_disk.is_none_or(|(handle, class)| self.admission.ask(handle, class, index).is_some()) {
            self.launch(index);
        }
    }

    fn launch(&mut self, index: usize) {
        let entry = self.slots.get(index).entry();
        self.push(entry.user_data(index as u64));
    }

    fn finish(&mut self, index: usize) -> Op {
        let op = self.slots.take(index);
        if let Op::Disk(request) = &op {
            self.admission.answered(request.handle, request.class);
            self.launch_next(request.handle);
        }
        op
    }

    /// Hands the kernel what may go on after a request of this handle was answered, or all were given up.
    fn launch_next(&mut self, handle: HandleId) {
        while let Some(index) = self.admission.next(handle) {
            self.launch(index);
        }
    }

    /// Asks the kernel to drop these requests, if it can. They are answered in any case.
    fn cancel(&mut self, which: impl Fn(&Op) -> bool) {
        for index in 0..self.slots.slots.len() {
            if matches!(&self.slots.slots[index], Slot::Used(op) if which(op)) {
                self.push(opcode::AsyncCancel::new(index as u64).build().user_data(CANCEL));
            }
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the memory that the entry points to belongs to its operation, which stays in its slot, where
        // it does not move relative to that memory, until the kernel has completed it.
        if !self.unsubmitted.is_empty() || unsafe { self.uring.submission().push(&entry) }.is_err() {
            self.unsubmitted.push_back(entry);
        }
    }

    /// Moves waiting entries into the submission queue.
    fn fill(&mut self) {
        if self.unsubmitted.is_empty() {
            return;
        }
        let mut queue = self.uring.submission();
        while let Some(entry) = self.unsubmitted.front() {
            // SAFETY: as in `push`.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.unsubmitted.pop_front();
        }
    }

    /// Whether completions can be had without waiting: in the queue, or in the kernel ready to be put there.
    fn completed(&mut self) -> bool {
        if !self.uring.completion().is_empty() {
            return true;
        }
        let queue = self.uring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Submits everything and lets the kernel post completions, without waiting.
    fn exchange(&mut self) {
        loop {
            self.fill();
            let queue = self.uring.submission();
            if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
                return;
            }
            drop(queue);
            let progress = self.enter(0, None);
            if self.unsubmitted.is_empty() || !progress {
                return;
            }
        }
    }

    /// One `io_uring_enter`: submits the queue and, with `wait` of 1, waits for a completion, at most `timeout`
    /// nanoseconds. Returns whether the kernel took entries.
    fn enter(&mut self, wait: u32, timeout: Option<u64>) -> bool {
        let submissions = self.uring.submission().len();
        let timespec = timeout.map(|nanos| types::Timespec::from(Duration::from_nanos(nanos)));
        let argument = EnterArgument {
            sigmask: 0,
            sigmask_size: 0,
            min_wait_us: 0,
            timeout: timespec.as_ref().map_or(std::ptr::null(), |timespec| timespec),
        };
        let (pointer, size, extended) = match timespec {
            Some(_) => (&raw const argument, size_of::<EnterArgument>(), ENTER_EXT_ARG),
            None => (std::ptr::null(), 0, 0),
        };
        // SAFETY: the argument outlives the call; the entries' memory is owned by their slots (see `push`).
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                submissions as u32,
                wait,
                self.enter_flags | ENTER_GETEVENTS | extended,
                pointer,
                size,
            )
        };
        if result >= 0 {
            return result > 0;
        }
        match io::Error::last_os_error().raw_os_error() {
            // Time is up; a signal; completions must be fetched first; the kernel is short of memory. In each
            // case what was not submitted stays in the queue for the next turn.
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => false,
            other => panic!("io_uring_enter failed: {other:?}; the ring is unusable"),
        }
    }
}

const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const REGISTER_RING_FDS: libc::c_uint = 20;

/// Registers the ring with this thread, which spares the kernel a look-up per call. Kernels before 5.18 cannot.
fn register_ring(fd: libc::c_int) -> (libc::c_int, u32) {
    #[repr(C)]
    struct Update {
        offset: u32,
        reserved: u32,
        data: u64,
    }
    let mut update = Update { offset: u32::MAX, reserved: 0, data: fd as u64 };
    // SAFETY: the structure is the one this operation reads and writes (`io_uring_rsrc_update`).
    let registered =
        unsafe { libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_RING_FDS, &raw mut update, 1) };
    if registered == 1 { (update.offset as libc::c_int, ENTER_REGISTERED_RING) } else { (fd, 0) }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.places.close();
        self.closing.set(true);
        let io = self.io.get_mut();
        // Sockets can wait for ever; disks cannot, and a write once asked for is carried out.
        io.cancel(|op| matches!(op, Op::Net(_)));
        let end = Instant::now() + DRAIN;
        loop {
            let io = self.io.get_mut();
            io.exchange();
            if io.slots.used == 0 {
                return;
            }
            let now = Instant::now();
            if now >= end {
                break;
            }
            if !io.completed() {
                io.enter(1, Some((end - now).as_nanos() as u64));
            }
            self.deliver();
        }
        // The kernel may still write to these buffers: their memory is lost, not reused.
        std::mem::forget(std::mem::take(&mut self.io.get_mut().slots.slots));
    }
}

fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of a clock that only goes on. Each request asks several times, and `Instant` carries and checks more than this needs.
pub(super) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to what is ours.
    let result = unsafe { libc::clock_gettime(id, &raw mut time) };
    assert_eq!(result, 0, "every system has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::super::disk::UringDisk;
    use super::*;
    use crate::disk::OpenMode;
    use std::fs::File;

    /// Or the flushes of one disk that hangs have them all, and another disk's waits for them.
    #[test]
    fn more_threads_of_the_kernel_than_one_disk_can_take() {
        let (ring, mut threads) = (Ring::new().unwrap(), [0; 2]);
        // Zeros change nothing and are replaced by what there is.
        ring.io.borrow().uring.submitter().register_iowq_max_workers(&mut threads).unwrap();
        assert!(threads[0] as usize > Limits::CORE.of_device() + Limits::CORE.reserved, "{threads:?}");
    }

    /// Once in some thousand times a worker of the kernel is late with the end of a request and leaves it, and with it the
    /// last hold on the file, to the thread that owns the ring: the one that waits for the file's lock.
    #[test]
    fn a_disk_is_opened_although_this_ring_has_yet_to_let_go_of_it() {
        let path = std::env::temp_dir().join(format!("forebay-ring-{}", std::process::id()));
        let late = File::create(&path).unwrap();
        late.set_len(1 << 20).unwrap();
        late.lock().unwrap();
        let ring = Ring::new().unwrap();
        let flush = opcode::Fsync::new(types::Fd(late.as_raw_fd())).build();
        ring.io.borrow_mut().push(flush.user_data(CANCEL));
        ring.exchange();
        // By then a worker has carried it out.
        std::thread::sleep(Duration::from_millis(200));
        drop(late);
        let opened = UringDisk::open(ring, path.to_str().unwrap(), OpenMode::ReadWrite);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(opened.err(), None);
    }
}
