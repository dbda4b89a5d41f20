//! The executor: tasks, timers and a backend that makes I/O progress and knows the time.
//!
//! One executor runs on one thread. Wakers may be called from anywhere (they are `Send`); a wake-up from
//! another thread goes through a locked list and unparks the backend, one from the same thread only through
//! the list, whose lock is then never contended. Ready tasks run in the order in which they were woken,
//! unless the backend picks another (the simulator explores interleavings that way).

use crate::buffer::{Arena, BufMut};
use crate::completion::{Completion, completion};
use crate::disk::{Disk, DiskBackend, OpenError, OpenMode, Users};
use crate::net::{Detached, Listener, NetError, Stream};
use crate::watch::Watch;
use forebay_base::planted::turn_ended;
use forebay_base::{Nanos, WallTime};
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// How long a search for users or contents of a disk may take: longer than what bounds it from within.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How often it is asked whether the search has ended.
const ANSWER_POLL: Duration = Duration::from_millis(2);

/// How long [`Backend::turn`] may wait when there is nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all: tasks are ready.
    Poll,
    /// Until something happens, or this time comes.
    Until(Nanos),
    /// Until something happens.
    Forever,
}

/// Ends a wait of [`Backend::turn`] from another thread.
pub trait Unpark: Send + Sync {
    fn unpark(&self);
}

/// What stands behind an executor: the kernel, or a simulated world.
pub trait Backend {
    fn now(&self) -> Nanos;
    /// The same of a clock that nobody can set, nor have run faster.
    fn uptime(&self) -> Nanos {
        self.now()
    }
    fn wall(&self) -> WallTime;
    fn random(&self) -> u64;
    /// Submits what was queued and delivers what completed, waiting as `wait` says.
    fn turn(&self, wait: Wait);
    fn unparker(&self) -> Arc<dyn Unpark>;
    fn open_disk(&self, path: &str, mode: OpenMode) -> Result<Rc<dyn DiskBackend>, OpenError>;
    /// How many requests the device of this identity has from this executor and has not answered, whoever asked for them and
    /// whether or not somebody still waits.
    fn owed(&self, _identity: u64) -> usize {
        0
    }
    /// Looks who uses the disk at `path`; the answer comes when that is known, an error says why it cannot be.
    fn find_users(&self, _path: &str) -> Receiver<Result<Users, String>> {
        unknown()
    }
    /// Looks what is on the disk at `path`, in words; nothing when it is empty.
    fn find_contents(&self, _path: &str) -> Receiver<Result<Option<String>, String>> {
        unknown()
    }
    fn listen(&self, address: &str) -> Result<Listener, NetError>;
    fn connect(&self, address: &str) -> Completion<Result<Stream, NetError>>;
    fn attach(&self, stream: Detached) -> Stream;
    /// Where this executor's buffers come from.
    fn arena(&self) -> Arena {
        Arena::new()
    }
    /// Which of `ready` tasks runs next, counted from the one woken first.
    fn pick(&self, ready: usize) -> usize {
        let _ = ready;
        0
    }
}

/// The answer of a backend that has no disks.
fn unknown<T>() -> Receiver<Result<T, String>> {
    let (send, answer) = mpsc::channel();
    send.send(Err("there are no disks here".into())).expect("the answer is awaited");
    answer
}

type Task = Pin<Box<dyn Future<Output = ()>>>;
type Job = Box<dyn FnOnce(&Rt) + Send>;

/// What other threads may touch.
struct Shared {
    /// Tasks that are to run, each at most once.
    woken: Mutex<VecDeque<usize>>,
    /// `None` when the executor has ended.
    jobs: Mutex<Option<VecDeque<Job>>>,
    /// Set while the executor waits in [`Backend::turn`]: a wake-up must then unpark it.
    parked: AtomicBool,
    unpark: Arc<dyn Unpark>,
}

impl Shared {
    fn notify(&self) {
        if self.parked.swap(false, Ordering::SeqCst) {
            self.unpark.unpark();
        }
    }
}

struct TaskWaker {
    task: usize,
    /// Whether the task is on its way to run: it need not be woken again. Cleared just before it runs.
    queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.woken.lock().expect("no holder of this lock panics").push_back(self.task);
        self.shared.notify();
    }
}

struct TaskSlot {
    /// Out while it runs, and when it has ended.
    future: Option<Task>,
    waker: Waker,
    wakes: Arc<TaskWaker>,
}

impl TaskSlot {
    /// Whether nobody has a waker of the task that ended here: another one may have it.
    fn is_forgotten(&self) -> bool {
        Arc::strong_count(&self.wakes) == 2
    }
}

/// Sleeping tasks by deadline, then by the order in which they went to sleep.
#[derive(Default)]
struct Timers {
    wakers: BTreeMap<(Nanos, u64), Waker>,
    next: u64,
}

struct Inner {
    core: usize,
    backend: Rc<dyn Backend>,
    arena: Arena,
    shared: Arc<Shared>,
    tasks: RefCell<Vec<Option<TaskSlot>>>,
    free: RefCell<Vec<usize>>,
    ready: RefCell<VecDeque<usize>>,
    timers: RefCell<Timers>,
    locals: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    /// The executor is being dropped: nothing new starts.
    ended: Cell<bool>,
}

/// The handle to the executor one runs on: cheap to clone, bound to its thread.
#[derive(Clone)]
pub struct Rt(Rc<Inner>);

/// The result of a spawned task. Dropping it lets the task run on.
pub struct Join<T>(Completion<T>);

impl<T> Future for Join<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl Rt {
    /// Index of this core among [`Cores`].
    pub fn core(&self) -> usize {
        self.0.core
    }
    /// Monotonic time.
    pub fn now(&self) -> Nanos {
        self.0.backend.now()
    }
    /// Monotonic time of a clock that nobody can set, nor have run faster.
    pub fn uptime(&self) -> Nanos {
        self.0.backend.uptime()
    }
    /// Time for people.
    pub fn wall(&self) -> WallTime {
        self.0.backend.wall()
    }
    /// A random number; from the operating system in production, from the seed in simulation.
    pub fn random(&self) -> u64 {
        self.0.backend.random()
    }
    pub fn arena(&self) -> &Arena {
        &self.0.arena
    }
    /// A buffer of `len` bytes with unspecified contents.
    pub fn buffer(&self, len: usize) -> BufMut {
        self.0.arena.take(len)
    }
    pub fn open_disk(&self, path: &str, mode: OpenMode) -> Result<Disk, OpenError> {
        self.0.backend.open_disk(path, mode).map(|disk| Disk::new(disk, self.watch()))
    }
    /// How many requests the device of this identity ([`crate::Geometry`]) has from this executor and has not answered, those
    /// included that were given up and those of handles that are gone.
    pub fn owed(&self, identity: u64) -> usize {
        self.0.backend.owed(identity)
    }
    /// Who uses the disk at `path` beside this process, whatever name they have for it. An error says why that cannot be told.
    pub async fn find_users(&self, path: &str) -> Result<Users, String> {
        self.answer(self.0.backend.find_users(path)).await
    }
    /// What is on the disk at `path` that would be lost, in words; nothing when it is empty. An error says why that cannot be told.
    pub async fn find_contents(&self, path: &str) -> Result<Option<String>, String> {
        self.answer(self.0.backend.find_contents(path)).await
    }
    /// What another thread finds out, unless a disk keeps it for too long.
    async fn answer<T>(&self, from: Receiver<Result<T, String>>) -> Result<T, String> {
        let deadline = self.now().after(ANSWER_MAX);
        loop {
            match from.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Disconnected) => return Err("the search ended without an answer".into()),
                Err(TryRecvError::Empty) if self.now() >= deadline => {
                    return Err(format!("the search has not ended within {} seconds", ANSWER_MAX.as_secs()));
                }
                Err(TryRecvError::Empty) => self.sleep(ANSWER_POLL).await,
            }
        }
    }
    /// For a disk on this executor.
    pub fn watch(&self) -> Watch {
        Watch::new(Rc::downgrade(&self.0.backend), self.0.arena.clone())
    }
    pub fn listen(&self, address: &str) -> Result<Listener, NetError> {
        self.0.backend.listen(address)
    }
    pub fn connect(&self, address: &str) -> Completion<Result<Stream, NetError>> {
        self.0.backend.connect(address)
    }
    /// Takes over a connection that another core detached.
    pub fn attach(&self, stream: Detached) -> Stream {
        self.0.backend.attach(stream)
    }

    /// Starts a task on this executor. While the executor is dropped, nothing starts: the future is dropped.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Join<T> {
        let (done, result) = completion();
        self.insert(Box::pin(async move { done.complete(future.await) }));
        Join(result)
    }

    #[cfg(test)]
    fn timers_pending(&self) -> usize {
        self.0.timers.borrow().wakers.len()
    }

    fn insert(&self, future: Task) {
        let inner = &*self.0;
        if inner.ended.get() {
            return;
        }
        let mut tasks = inner.tasks.borrow_mut();
        let index = inner.free.borrow_mut().pop().unwrap_or_else(|| {
            tasks.push(None);
            tasks.len() - 1
        });
        match &mut tasks[index] {
            Some(slot) if slot.is_forgotten() => {
                slot.wakes.queued.store(true, Ordering::Release);
                slot.future = Some(future);
            }
            slot => {
                let (queued, shared) = (AtomicBool::new(true), inner.shared.clone());
                let wakes = Arc::new(TaskWaker { task: index, queued, shared });
                *slot = Some(TaskSlot { future: Some(future), waker: Waker::from(wakes.clone()), wakes });
            }
        }
        inner.ready.borrow_mut().push_back(index);
    }

    /// Completes at `deadline`.
    pub fn sleep_until(&self, deadline: Nanos) -> Sleep {
        Sleep { rt: self.clone(), deadline, timer: None }
    }
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.now().after(duration))
    }

    /// The one value of type `T` on this executor, made on first use.
    pub fn local<T: Default + 'static>(&self) -> Rc<T> {
        let mut locals = self.0.locals.borrow_mut();
        let value = locals.entry(TypeId::of::<T>()).or_insert_with(|| Rc::new(T::default()));
        value.clone().downcast().expect("values are stored under their own type")
    }

    /// A handle through which other threads send jobs to this executor.
    pub fn remote(&self) -> Remote {
        Remote(self.0.shared.clone())
    }
}

/// Future of [`Rt::sleep_until`].
pub struct Sleep {
    rt: Rt,
    deadline: Nanos,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.rt.now() >= self.deadline {
            return Poll::Ready(());
        }
        let this = &mut *self;
        let mut timers = this.rt.0.timers.borrow_mut();
        let id = *this.timer.get_or_insert_with(|| {
            timers.next += 1;
            timers.next
        });
        timers.wakers.insert((this.deadline, id), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.timer {
            let waker = self.rt.0.timers.borrow_mut().wakers.remove(&(self.deadline, id));
            drop(waker);
        }
    }
}

/// Lets every other ready task run once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Sends jobs to one executor from any thread.
#[derive(Clone)]
pub struct Remote(Arc<Shared>);

impl Remote {
    /// Runs `job` on the executor, after what was sent before it. Jobs sent to an executor that has ended are dropped.
    pub fn run(&self, job: impl FnOnce(&Rt) + Send + 'static) {
        // A job that nobody will run is dropped outside the lock, as its drop may send another.
        let job: Job = Box::new(job);
        if let Some(jobs) = &mut *self.0.jobs.lock().expect("no holder of this lock panics") {
            jobs.push_back(job);
        } else {
            return;
        }
        self.0.notify();
    }
}

/// All executors of the process, by core number. In simulation several numbers may mean one executor.
#[derive(Clone)]
pub struct Cores(Arc<[Remote]>);

impl Cores {
    pub fn new(remotes: Vec<Remote>) -> Cores {
        assert!(!remotes.is_empty(), "at least one core");
        Cores(remotes.into())
    }
    pub fn count(&self) -> usize {
        self.0.len()
    }
    /// The executor of core `index` (modulo their number).
    pub fn core(&self, index: usize) -> &Remote {
        &self.0[index % self.0.len()]
    }
}

/// Owns the tasks and runs them.
pub struct Executor {
    rt: Rt,
}

impl Executor {
    pub fn new(core: usize, backend: Rc<dyn Backend>) -> Executor {
        let shared = Arc::new(Shared {
            woken: Mutex::default(),
            jobs: Mutex::new(Some(VecDeque::new())),
            parked: AtomicBool::new(false),
            unpark: backend.unparker(),
        });
        Executor {
            rt: Rt(Rc::new(Inner {
                core,
                arena: backend.arena(),
                backend,
                shared,
                tasks: RefCell::default(),
                free: RefCell::default(),
                ready: RefCell::default(),
                timers: RefCell::default(),
                locals: RefCell::default(),
                ended: Cell::new(false),
            })),
        }
    }

    pub fn rt(&self) -> &Rt {
        &self.rt
    }

    /// Runs until `main` is done; other tasks stay where they are.
    pub fn block_on<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.rt.insert(Box::pin(async move { *slot.borrow_mut() = Some(main.await) }));
        loop {
            self.run_ready();
            // Looked at before the backend may wait: nothing wakes an executor whose last task has ended.
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
            self.turn();
        }
    }

    /// Collects wake-ups and jobs and runs what is ready.
    fn run_ready(&self) {
        let inner = &*self.rt.0;
        self.collect();
        // Run what is ready now; what these tasks wake runs in the same round, up to a bound that keeps I/O moving.
        const BATCH: usize = 256;
        for _ in 0..BATCH {
            let index = {
                let mut ready = inner.ready.borrow_mut();
                match ready.len() {
                    0 => break,
                    1 => ready.pop_front(),
                    n => ready.remove(inner.backend.pick(n)),
                }
                .expect("the queue has a task at the picked place")
            };
            self.run(index);
            if inner.ready.borrow().is_empty() {
                self.collect();
            }
        }
    }

    /// Lets the backend make progress, waiting when no task is ready, and fires timers.
    fn turn(&self) {
        let inner = &*self.rt.0;
        let wait = if !inner.ready.borrow().is_empty() { Wait::Poll } else { self.next_timer() };
        if wait == Wait::Poll {
            inner.backend.turn(wait);
        } else {
            inner.shared.parked.store(true, Ordering::SeqCst);
            // A wake-up between the last collect and the store above found `parked` false: look again.
            let pending = !inner.shared.woken.lock().expect("no holder of this lock panics").is_empty()
                || self.jobs_wait();
            inner.backend.turn(if pending { Wait::Poll } else { wait });
            inner.shared.parked.store(false, Ordering::SeqCst);
        }
        self.fire_timers();
    }

    fn jobs_wait(&self) -> bool {
        let jobs = self.rt.0.shared.jobs.lock().expect("no holder of this lock panics");
        jobs.as_ref().is_some_and(|jobs| !jobs.is_empty())
    }

    fn collect(&self) {
        let inner = &*self.rt.0;
        let jobs = {
            let mut jobs = inner.shared.jobs.lock().expect("no holder of this lock panics");
            jobs.as_mut().map(std::mem::take).unwrap_or_default()
        };
        for job in jobs {
            job(&self.rt);
        }
        let mut woken = inner.shared.woken.lock().expect("no holder of this lock panics");
        inner.ready.borrow_mut().append(&mut woken);
    }

    fn run(&self, index: usize) {
        let inner = &*self.rt.0;
        let (mut future, waker) = {
            let mut tasks = inner.tasks.borrow_mut();
            let slot = tasks[index].as_mut().expect("woken, so it was there");
            // Acquires what whoever found it set has written: that wake-up is this run.
            slot.wakes.queued.swap(false, Ordering::AcqRel);
            // A task that has ended may still be woken by an old waker; a new task in its slot then runs in vain.
            let Some(future) = slot.future.take() else { return };
            (future, slot.waker.clone())
        };
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        turn_ended();
        if done {
            // Drop outside the borrow: a future's drop may spawn or wake.
            drop(future);
            inner.free.borrow_mut().push(index);
            return;
        }
        inner.tasks.borrow_mut()[index].as_mut().expect("a pending task exists").future = Some(future);
    }

    fn next_timer(&self) -> Wait {
        match self.rt.0.timers.borrow().wakers.first_key_value() {
            Some((&(deadline, _), _)) => Wait::Until(deadline),
            None => Wait::Forever,
        }
    }

    fn fire_timers(&self) {
        if self.rt.0.timers.borrow().wakers.is_empty() {
            return;
        }
        let now = self.rt.now();
        loop {
            let waker = match self.rt.0.timers.borrow_mut().wakers.first_entry() {
                Some(first) if first.key().0 <= now => first.remove(),
                _ => return,
            };
            waker.wake();
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Tasks hold `Rt`s, which hold the tasks: break the cycle. Each drop may use the executor, so nothing is
        // borrowed meanwhile.
        let inner = &*self.rt.0;
        inner.ended.set(true);
        let jobs = inner.shared.jobs.lock().expect("no holder of this lock panics").take();
        drop(jobs);
        drop(inner.tasks.take());
        drop(inner.locals.take());
        let wakers = std::mem::take(&mut inner.timers.borrow_mut().wakers);
        drop(wakers);
        // What the drops above have made anew.
        drop(inner.locals.take());
    }
}

#[cfg(test)]
pub(crate) mod tests;
