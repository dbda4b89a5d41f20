//! The executor alone: order, timers, wake-ups across threads, and its end.

use super::*;
use std::cell::Cell;
use std::sync::Condvar;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;

/// No I/O; time that advances only by waiting; waits end by a call or by the deadline.
#[derive(Default)]
pub(crate) struct Quiet {
    now: Cell<u64>,
    called: Arc<Called>,
}

#[derive(Default)]
struct Called {
    flag: Mutex<bool>,
    changed: Condvar,
}

impl Unpark for Called {
    fn unpark(&self) {
        *self.flag.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Backend for Quiet {
    fn now(&self) -> Nanos {
        Nanos(self.now.get())
    }
    fn wall(&self) -> WallTime {
        WallTime(0)
    }
    fn random(&self) -> u64 {
        4
    }
    fn turn(&self, wait: Wait) {
        let mut called = self.called.flag.lock().unwrap();
        match wait {
            Wait::Poll => {}
            Wait::Until(deadline) => self.now.set(deadline.0.max(self.now.get())),
            Wait::Forever => {
                while !*called {
                    called = self.called.changed.wait(called).unwrap();
                }
            }
        }
        *called = false;
    }
    fn unparker(&self) -> Arc<dyn Unpark> {
        self.called.clone()
    }
    fn open_disk(&self, _: &str, _: OpenMode) -> Result<Rc<dyn DiskBackend>, OpenError> {
        Err(OpenError::NotFound)
    }
    fn listen(&self, _: &str) -> Result<Listener, NetError> {
        Err(NetError { os: None })
    }
    fn connect(&self, _: &str) -> Completion<Result<Stream, NetError>> {
        Completion::ready(Err(NetError { os: None }))
    }
    fn attach(&self, _: Detached) -> Stream {
        unreachable!("no test here attaches a connection")
    }
}

fn executor() -> Executor {
    Executor::new(0, Rc::new(Quiet::default()))
}

/// Runs `0` when it is dropped.
struct OnDrop<F: FnMut()>(F);
impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)()
    }
}

#[test]
fn tasks_run_in_the_order_in_which_they_were_woken() {
    let executor = executor();
    let rt = executor.rt().clone();
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    executor.block_on(async move {
        let tasks: Vec<_> = (0..5)
            .map(|task| {
                let order = order.clone();
                rt.spawn(async move {
                    order.borrow_mut().push(task);
                    yield_now().await;
                    order.borrow_mut().push(10 + task);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    assert_eq!(*seen.borrow(), [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]);
}

#[test]
fn sleeps_end_in_the_order_of_their_deadlines() {
    let executor = executor();
    let rt = executor.rt().clone();
    let order = Rc::new(RefCell::new(Vec::new()));
    let seen = order.clone();
    executor.block_on(async move {
        let tasks: Vec<_> = [30, 10, 20, 10]
            .into_iter()
            .map(|millis| {
                let (order, rt2) = (order.clone(), rt.clone());
                rt.spawn(async move {
                    rt2.sleep(Duration::from_millis(millis)).await;
                    order.borrow_mut().push((millis, rt2.now().0 / 1_000_000));
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    assert_eq!(*seen.borrow(), [(10, 10), (10, 10), (20, 20), (30, 30)]);
}

#[test]
fn sleeps_given_up_leave_nothing_behind() {
    let executor = executor();
    let rt = executor.rt().clone();
    executor.block_on(async move {
        for _ in 0..1000 {
            let mut sleep = Box::pin(rt.sleep(Duration::from_secs(3600)));
            std::future::poll_fn(|context| {
                assert!(sleep.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
    });
    assert_eq!(executor.rt().timers_pending(), 0);
}

#[test]
fn wake_ups_of_a_task_that_waits_to_run_are_one() {
    let executor = executor();
    let rt = executor.rt().clone();
    let polls = Rc::new(Cell::new(0));
    let seen = polls.clone();
    executor.block_on(async move {
        let shared = rt.0.shared.clone();
        let task = rt.spawn(std::future::poll_fn(move |context| {
            polls.set(polls.get() + 1);
            if polls.get() == 2 {
                return Poll::Ready(());
            }
            for _ in 0..1000 {
                context.waker().wake_by_ref();
            }
            assert!(shared.woken.lock().unwrap().len() <= 1);
            Poll::Pending
        }));
        task.await;
    });
    assert_eq!(seen.get(), 2);
}

#[test]
fn a_late_waker_of_an_ended_task_harms_nobody() {
    let executor = executor();
    let rt = executor.rt().clone();
    let late = Rc::new(RefCell::new(None));
    executor.block_on(async move {
        let keep = late.clone();
        rt.spawn(std::future::poll_fn(move |context| {
            *keep.borrow_mut() = Some(context.waker().clone());
            Poll::Ready(())
        }))
        .await;
        let late: Waker = late.borrow_mut().take().unwrap();
        late.wake_by_ref();
        // Takes the ended task's place, is woken in vain, and ends while queued twice.
        let mut polls = 0;
        let next = rt.spawn(std::future::poll_fn(move |context| {
            polls += 1;
            context.waker().wake_by_ref();
            late.wake_by_ref();
            if polls < 3 { Poll::Pending } else { Poll::Ready(polls) }
        }));
        assert_eq!(next.await, 3);
        yield_now().await;
        yield_now().await;
    });
}

#[test]
fn jobs_from_other_threads_wake_the_executor_and_run_in_order() {
    let executor = executor();
    let (done, result) = completion();
    let slot = executor.rt().local::<RefCell<Option<crate::Completer<Vec<u32>>>>>();
    *slot.borrow_mut() = Some(done);
    let count = if cfg!(miri) { 50 } else { 20_000 };
    let remote = executor.rt().remote();
    let sender = std::thread::spawn(move || {
        for number in 0..count {
            remote.run(move |rt| {
                let list = rt.local::<RefCell<Vec<u32>>>();
                list.borrow_mut().push(number);
                if number + 1 == count {
                    let slot = rt.local::<RefCell<Option<crate::Completer<Vec<u32>>>>>();
                    slot.borrow_mut().take().unwrap().complete(list.take());
                }
            });
        }
    });
    let list = executor.block_on(result);
    sender.join().unwrap();
    assert_eq!(list, (0..count).collect::<Vec<_>>());
}

#[test]
fn no_wake_up_from_another_thread_is_lost() {
    let executor = executor();
    let rounds = if cfg!(miri) { 20 } else { 5_000 };
    for _ in 0..rounds {
        let (send, receive) = std::sync::mpsc::channel::<Waker>();
        let flag = Arc::new(AtomicBool::new(false));
        let set = flag.clone();
        let thread = std::thread::spawn(move || {
            let waker = receive.recv().unwrap();
            set.store(true, Ordering::SeqCst);
            waker.wake();
        });
        executor.block_on(std::future::poll_fn(move |context| {
            if flag.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            let _ = send.send(context.waker().clone());
            Poll::Pending
        }));
        thread.join().unwrap();
    }
}

#[test]
fn an_executor_that_ends_drops_its_tasks_and_what_they_start_meanwhile() {
    let drops = Rc::new(Cell::new(0));
    let executor = executor();
    let rt = executor.rt().clone();
    // The first occupies a slot and leaves it, so that the free list is not empty when the executor ends.
    executor.block_on(rt.spawn(async {}));
    let (rt2, drops2) = (rt.clone(), drops.clone());
    drop(rt.spawn(async move {
        let _guard = OnDrop(|| {
            let drops = drops2.clone();
            let guard = OnDrop(move || drops.set(drops.get() + 1));
            drop(rt2.spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            }));
        });
        std::future::pending::<()>().await
    }));
    executor.block_on(yield_now());
    drop(executor);
    assert_eq!(drops.get(), 1);
    assert_eq!(Rc::strong_count(&rt.0), 1, "nothing holds the executor any more");
}

struct Local(Rt);
impl Drop for Local {
    fn drop(&mut self) {
        self.0.local::<Cell<u32>>().set(1);
    }
}

#[test]
fn a_local_may_use_the_executor_while_it_is_dropped() {
    let executor = executor();
    let rt = executor.rt().clone();
    let slot = rt.local::<RefCell<Option<Local>>>();
    *slot.borrow_mut() = Some(Local(rt.clone()));
    drop((slot, executor));
    assert_eq!(Rc::strong_count(&rt.0), 1, "nothing holds the executor any more");
}

#[test]
fn jobs_sent_to_an_executor_that_has_ended_are_dropped() {
    let executor = executor();
    let remote = executor.rt().remote();
    let counter = Arc::new(AtomicUsize::new(0));
    let send = |remote: &Remote| {
        let counted = counter.clone();
        remote.run(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
    };
    send(&remote);
    drop(executor);
    send(&remote);
    assert_eq!(Arc::strong_count(&counter), 1, "neither job is kept");
    assert_eq!(counter.load(Ordering::SeqCst), 0, "neither has run");
}

#[test]
fn a_job_may_send_another_while_it_is_dropped() {
    let executor = executor();
    let remote = executor.rt().remote();
    let send_again = remote.clone();
    let guard = Arc::new(SendOnDrop(send_again));
    for _ in 0..2 {
        let guard = guard.clone();
        remote.run(move |_| drop(guard));
    }
    drop(guard);
    drop(executor);
    remote.run(|_| unreachable!("the executor has ended"));
}

struct SendOnDrop(Remote);
impl Drop for SendOnDrop {
    fn drop(&mut self) {
        self.0.run(|_| ());
    }
}
