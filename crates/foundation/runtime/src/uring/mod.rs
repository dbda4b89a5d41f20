//! Production: one executor per core over io_uring (Linux 5.15 or newer; 6.1 for full speed).
//!
//! [`start`] makes the executors of a process, each on a thread of its own with a ring of its own; nothing is
//! shared between them but the list of open disks. [`block_on`] runs one executor on the calling thread.
//!
//! Threads are not pinned: the server shares its machine with its clients, and the scheduler knows better who
//! is idle. Nothing here touches the data of a request except to copy parts that a device cannot take in place.

mod contents;
mod disk;
mod file;
#[cfg(test)]
mod hung_disks;
mod local_socket;
mod net;
mod registry;
mod ring;
mod usage;
mod wake;

use crate::buffer::Arena;
use crate::completion::{Completer, Completion, completion};
use crate::disk::{DiskBackend, OpenError, OpenMode, Users};
use crate::executor::{Backend, Cores, Executor, Remote, Rt, Unpark, Wait};
use crate::net::{Detached, Listener, NetError, Stream};
use forebay_base::{Nanos, WallTime};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why there is no ring to run on.
#[derive(Debug)]
pub enum UringError {
    /// The kernel was built without it, or is older than 5.1.
    Missing,
    /// `kernel.io_uring_disabled` forbids it; the value is the setting.
    Disabled(u32),
    /// Something other than the setting forbids it, commonly a container's seccomp profile.
    Forbidden,
    /// The kernel lacks what 5.15 has.
    TooOld,
    /// The limit of locked memory or of open files is too low, or another error.
    Other(io::Error),
}

impl UringError {
    fn from_setup(error: io::Error) -> UringError {
        let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        UringError::classify(error, setting.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    }

    /// What a failed `io_uring_setup` means where `kernel.io_uring_disabled` has the value `setting`.
    fn classify(error: io::Error, setting: u32) -> UringError {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => UringError::Missing,
            Some(libc::EPERM | libc::EACCES) if setting != 0 => UringError::Disabled(setting),
            Some(libc::EPERM | libc::EACCES) => UringError::Forbidden,
            Some(libc::EINVAL) => UringError::TooOld,
            _ => UringError::Other(error),
        }
    }
}

impl fmt::Display for UringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UringError::Missing => f.write_str(
                "io_uring is missing in this kernel, or a sandbox hides it (ENOSYS); run on Linux 5.15 or newer \
                 with CONFIG_IO_URING, outside sandboxes without it",
            ),
            UringError::Disabled(setting) => write!(
                f,
                "io_uring is disabled by kernel.io_uring_disabled={setting}; allow it with: \
                 sysctl -w kernel.io_uring_disabled=0{}",
                if *setting == 1 { ", or run as a member of the group in kernel.io_uring_group" } else { "" }
            ),
            UringError::Forbidden => f.write_str(
                "io_uring is not permitted (EPERM), commonly by a container's seccomp profile; allow the system \
                 calls io_uring_setup, io_uring_enter and io_uring_register in it",
            ),
            UringError::TooOld => {
                f.write_str("io_uring of this kernel is too old; run on Linux 5.15 or newer")
            }
            UringError::Other(error) => match error.raw_os_error() {
                Some(libc::ENOMEM) => write!(
                    f,
                    "io_uring could not be set up: {error}; raise the limit of locked memory (ulimit -l)"
                ),
                Some(libc::EMFILE | libc::ENFILE) => {
                    write!(f, "io_uring could not be set up: {error}; raise the limit of open files (ulimit -n)")
                }
                _ => write!(f, "io_uring could not be set up: {error}"),
            },
        }
    }
}

impl std::error::Error for UringError {}

struct UringBackend {
    ring: Rc<ring::Ring>,
    random: RefCell<Random>,
}

impl UringBackend {
    fn new() -> Result<Rc<UringBackend>, UringError> {
        let ring = ring::Ring::new()?;
        Ok(Rc::new(UringBackend { ring, random: RefCell::default() }))
    }
}

impl Backend for UringBackend {
    fn now(&self) -> Nanos {
        self.ring.now()
    }
    fn uptime(&self) -> Nanos {
        Nanos(ring::clock(libc::CLOCK_MONOTONIC_RAW))
    }
    fn wall(&self) -> WallTime {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(since_1970.as_millis() as u64)
    }
    fn random(&self) -> u64 {
        self.random.borrow_mut().next()
    }
    fn turn(&self, wait: Wait) {
        self.ring.turn(wait);
    }
    fn unparker(&self) -> Arc<dyn Unpark> {
        self.ring.alarm.clone()
    }
    fn open_disk(&self, path: &str, mode: OpenMode) -> Result<Rc<dyn DiskBackend>, OpenError> {
        Ok(Rc::new(disk::UringDisk::open(self.ring.clone(), path, mode)?))
    }
    fn owed(&self, identity: u64) -> usize {
        self.ring.owed(identity)
    }
    fn find_users(&self, path: &str) -> mpsc::Receiver<Result<Users, String>> {
        on_a_thread(path, usage::find)
    }
    fn find_contents(&self, path: &str) -> mpsc::Receiver<Result<Option<String>, String>> {
        on_a_thread(path, contents::find)
    }
    fn listen(&self, address: &str) -> Result<Listener, NetError> {
        net::listen(self.ring.clone(), address)
    }
    fn connect(&self, address: &str) -> Completion<Result<Stream, NetError>> {
        net::connect(&self.ring, address)
    }
    fn attach(&self, stream: Detached) -> Stream {
        net::attach(self.ring.clone(), stream)
    }
    fn arena(&self) -> Arena {
        self.ring.arena.clone()
    }
}

/// Has a thread of its own look at a disk, which may take seconds, or for ever.
fn on_a_thread<T: Send + 'static>(
    path: &str,
    look: impl FnOnce(&str) -> Result<T, String> + Send + 'static,
) -> mpsc::Receiver<Result<T, String>> {
    let (send, answer) = mpsc::channel();
    let (path, refused) = (path.to_owned(), send.clone());
    // Nobody may wait for the answer any more.
    let work = move || drop(send.send(look(&path)));
    if let Err(error) = thread::Builder::new().name("forebay-search".into()).spawn(work) {
        let _ = refused.send(Err(format!("no thread could be started: {error}")));
    }
    answer
}

/// The kernel's random numbers, fetched 32 at a time.
#[derive(Default)]
struct Random {
    words: [u64; 32],
    left: usize,
}

impl Random {
    fn next(&mut self) -> u64 {
        if self.left == 0 {
            // SAFETY: the memory is the array. Up to 256 bytes come whole, once the kernel has seeded itself.
            let got = unsafe { libc::getrandom(self.words.as_mut_ptr().cast(), size_of_val(&self.words), 0) };
            assert_eq!(got, size_of_val(&self.words) as isize, "the kernel gives random numbers");
            self.left = self.words.len();
        }
        self.left -= 1;
        self.words[self.left]
    }
}

/// Runs an executor on this thread until the future that `main` makes is done.
pub fn block_on<T, F>(main: impl FnOnce(Rt) -> F) -> Result<T, UringError>
where
    T: 'static,
    F: Future<Output = T> + 'static,
{
    let executor = Executor::new(0, UringBackend::new()?);
    let main = main(executor.rt().clone());
    Ok(executor.block_on(main))
}

/// The threads behind [`Cores`]. Dropping it stops them.
pub struct Running {
    threads: Vec<(Remote, JoinHandle<()>)>,
}

/// A core ended by a panic; its message went to standard error.
#[derive(Debug, PartialEq, Eq)]
pub struct CorePanicked(pub usize);

impl fmt::Display for CorePanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core {} panicked; its message went to standard error", self.0)
    }
}

impl std::error::Error for CorePanicked {}

/// Ends the executor that holds it when it is completed.
#[derive(Default)]
struct Stop(Cell<Option<Completer<()>>>);

impl Running {
    /// Ends all executors where they stand: drops their tasks, waits for what is in the kernel, joins the
    /// threads. Orderly ends (flushing, closing) are the callers' to make first. Not to be called on a core.
    pub fn stop(mut self) -> Result<(), CorePanicked> {
        self.end()
    }

    fn end(&mut self) -> Result<(), CorePanicked> {
        for (remote, _) in &self.threads {
            remote.run(|rt| {
                if let Some(done) = rt.local::<Stop>().0.take() {
                    done.complete(());
                }
            });
        }
        let mut result = Ok(());
        for (core, (_, thread)) in self.threads.drain(..).enumerate() {
            if thread.join().is_err() && result.is_ok() {
                result = Err(CorePanicked(core));
            }
        }
        result
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A panic was reported where it happened.
        let _ = self.end();
    }
}

/// Starts `cores` executors (at least one), each on its own thread.
pub fn start(cores: usize) -> Result<(Cores, Running), UringError> {
    let mut running = Running { threads: Vec::new() };
    for core in 0..cores.max(1) {
        let (ready, started) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(format!("forebay-core-{core}"))
            .spawn(move || {
                let executor = match UringBackend::new() {
                    Ok(backend) => Executor::new(core, backend),
                    Err(error) => return ready.send(Err(error)).expect("the starter waits"),
                };
                let (done, stop) = completion();
                executor.rt().local::<Stop>().0.set(Some(done));
                ready.send(Ok(executor.rt().remote())).expect("the starter waits");
                executor.block_on(stop);
            })
            .map_err(UringError::Other)?;
        let remote = started.recv().expect("a core answers before it does anything that can panic")?;
        running.threads.push((remote, thread));
    }
    let cores = Cores::new(running.threads.iter().map(|(remote, _)| remote.clone()).collect());
    Ok((cores, running))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        let cases = [
            (libc::ENOSYS, 0, "run on Linux 5.15"),
            (libc::EPERM, 2, "sysctl -w kernel.io_uring_disabled=0"),
            (libc::EPERM, 1, "kernel.io_uring_group"),
            (libc::EPERM, 0, "seccomp"),
            (libc::EINVAL, 0, "too old"),
            (libc::ENOMEM, 0, "ulimit -l"),
            (libc::EMFILE, 0, "ulimit -n"),
        ];
        for (number, setting, advice) in cases {
            let text = UringError::classify(io::Error::from_raw_os_error(number), setting).to_string();
            assert!(text.contains(advice), "{number}: {text}");
        }
    }
}
