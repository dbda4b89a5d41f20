//! The machine the tests run on: directories, processes, mounts, and how all of it goes away again.
//!
//! Whatever a test leaves behind on the machine is made together with its undoing, a [`Guard`]. Guards run when they are
//! dropped, newest first; and they run as well when the process is told to end (SIGINT, SIGTERM) or panics,
//! because a half-torn-down stack of loop device, FUSE and file system is what makes people reboot. Two nets below
//! that: the runner lives in a mount namespace of its own, which takes its mounts along, and child processes are
//! killed by the kernel when the thread that started them (the main thread) is gone.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Why a test failed, for people.
pub type Failure = String;
pub type Outcome<T = ()> = Result<T, Failure>;

/// Says what was being done when something failed.
pub trait Context<T> {
    fn context(self, doing: impl Display) -> Outcome<T>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, doing: impl Display) -> Outcome<T> {
        self.map_err(|error| format!("{doing}: {error}"))
    }
}

type Undo = Box<dyn FnOnce() + Send>;
static MOUNTS: OnceLock<Outcome> = OnceLock::new();
static UNDO: Mutex<BTreeMap<u64, Undo>> = Mutex::new(BTreeMap::new());

/// Something to undo. Dropping it does.
pub struct Guard(u64);

impl Guard {
    pub fn new(undo: impl FnOnce() + Send + 'static) -> Guard {
        let mut all = UNDO.lock().expect("no holder of this lock panics");
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, Box::new(undo));
        Guard(number)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let undo = UNDO.lock().expect("no holder of this lock panics").remove(&self.0);
        if let Some(undo) = undo {
            undo();
        }
    }
}

/// Undoes everything, newest first.
fn undo_everything() {
    // A panic while the lock is held must not wait for itself.
    while let Ok(mut all) = UNDO.try_lock() {
        let Some((_, undo)) = all.pop_last() else { break };
        drop(all);
        undo();
    }
}

/// Prepares this process: signals and panics undo, mounts stay private. Call first, before any thread starts.
pub fn prepare() {
    // All threads share the namespace, the one that cleans up included.
    MOUNTS.get_or_init(enter_mount_namespace);
    // SAFETY: plain system calls on values that live across them; no other thread runs yet.
    let signals = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    };
    thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: `signals` was initialised above and `signal` is a valid place for the result.
        unsafe { libc::sigwait(&signals, &mut signal) };
        eprintln!("signal {signal}: cleaning up");
        undo_everything();
        std::process::exit(128 + signal);
    });
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        undo_everything();
    }));
}

/// Fails when this process has no mount namespace of its own: then it must not mount.
pub fn may_mount() -> Outcome {
    MOUNTS.get().expect("prepare came first").clone()
}

fn enter_mount_namespace() -> Outcome {
    // SAFETY: plain system calls with constant, NUL-terminated arguments.
    let failed = unsafe {
        libc::unshare(libc::CLONE_NEWNS) != 0
            || libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) != 0
    };
    if failed {
        let error = std::io::Error::last_os_error();
        return Err(format!("no mount namespace of its own ({error}): run as root"));
    }
    Ok(())
}

/// A directory of this run on a real file system (O_DIRECT does not work on tmpfs), removed at the end.
pub struct Directory {
    path: PathBuf,
    _guard: Guard,
}

impl Directory {
    pub fn new(name: &str) -> Outcome<Directory> {
        let path = PathBuf::from(format!("/var/tmp/forebay-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).context(path.display())?;
        let gone = path.clone();
        let guard = Guard::new(move || {
            if let Err(error) = fs::remove_dir_all(&gone) {
                eprintln!("{} stays behind: {error}", gone.display());
            }
        });
        Ok(Directory { path, _guard: guard })
    }
    pub fn path(&self) -> &Path {
        &self.path
    }
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
    /// A new directory below.
    pub fn create(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.join(name);
        fs::create_dir_all(&path).context(path.display())?;
        Ok(path)
    }
    /// A sparse file of `size` bytes.
    pub fn sparse_file(&self, name: &str, size: u64) -> Outcome<PathBuf> {
        let path = self.join(name);
        File::create(&path).and_then(|file| file.set_len(size)).context(path.display())?;
        Ok(path)
    }
}

/// `program` as a command that gets no input, sees no signal mask of ours and dies with us. It is looked for where
/// administrators' tools are, too.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.stdin(Stdio::null()).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    // SAFETY: between fork and exec only async-signal-safe system calls are made.
    unsafe {
        command.pre_exec(|| {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command
}

/// Runs a command line (split at spaces; paths of this run have none) to its end and returns what it printed.
pub fn run(line: &str) -> Outcome<String> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a command line has a program");
    run_command(command(program).args(words), line)
}

pub fn run_command(command: &mut Command, line: &str) -> Outcome<String> {
    let output = command.output().context(line)?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{line}` failed ({}):\n{}\n{}", output.status, printed.trim_end(), complaint.trim_end()))
}

/// A process in the background. Killed (SIGKILL) when dropped.
pub struct Process {
    child: Option<Child>,
    pid: u32,
    log: PathBuf,
    guard: Option<Guard>,
}

impl Process {
    /// Starts `command`; both its outputs are appended to `log`.
    pub fn start(command: &mut Command, log: &Path) -> Outcome<Process> {
        let file = File::options().create(true).append(true).open(log).context(log.display())?;
        let errors = file.try_clone().context(log.display())?;
        let child = command.stdout(file).stderr(errors).spawn().context(format!("{command:?}"))?;
        let pid = child.id();
        let guard = Guard::new(move || {
            // SAFETY: the guard is dropped before the child is waited for, so the number is still its own.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        });
        Ok(Process { child: Some(child), pid, log: log.to_owned(), guard: Some(guard) })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        drop(self.guard.take());
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    /// Ends it with SIGTERM; fails when it does not exit with status 0 within `limit`.
    pub fn terminate(&mut self, limit: Duration) -> Outcome {
        // SAFETY: the child has not been waited for, so the number is still its own.
        unsafe { libc::kill(self.pid.cast_signed(), libc::SIGTERM) };
        let deadline = Instant::now() + limit;
        let status = loop {
            let child = self.child.as_mut().expect("a process is ended once");
            if let Some(status) = child.try_wait().context("waiting")? {
                break status;
            }
            if Instant::now() > deadline {
                return Err(format!("process {} does not end after SIGTERM\n{}", self.pid, self.log_tail()));
            }
            thread::sleep(Duration::from_millis(5));
        };
        self.child = None;
        // Already waited for: the number may be somebody else's now, so the guard must not run.
        if let Some(guard) = self.guard.take() {
            UNDO.lock().expect("no holder of this lock panics").remove(&guard.0);
        }
        if status.success() { Ok(()) } else { Err(format!("ended with {status}\n{}", self.log_tail())) }
    }

    /// Waits until `ready` yields a value; fails when the process ends or `limit` passes first.
    pub fn wait_for<T>(&mut self, what: &str, limit: Duration, ready: impl Fn() -> Option<T>) -> Outcome<T> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(value) = ready() {
                return Ok(value);
            }
            let child = self.child.as_mut().expect("a process that has not been ended");
            if let Some(status) = child.try_wait().context("waiting")? {
                return Err(format!("{what}: the process ended with {status}\n{}", self.log_tail()));
            }
            if Instant::now() > deadline {
                return Err(format!("{what}: not within {limit:?}\n{}", self.log_tail()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The end of what it printed.
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(30)..].join("\n");
        format!("--- end of {} ---\n{tail}", self.log.display())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
