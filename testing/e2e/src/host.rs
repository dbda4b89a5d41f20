//! The machine the tests run on: directories, processes, mounts, and how all of it goes away again.
//!
//! A half-torn-down stack of loop device, FUSE and file system is what makes people reboot, so nothing may stay
//! behind, however a run ends. In the orderly case values undo what they did when they are dropped. For every other
//! case [`prepare`] splits the program in two: the child runs the tests, the parent only watches. When the child has
//! ended by itself, by a signal or by a panic, or the parent is told to end (SIGINT, SIGTERM, SIGHUP), the parent kills what
//! is left of the child's descendants, whom it adopts, and removes the run's mounts and directories. Mounts are in a
//! namespace of parent and child: nobody else sees them, and they do not end with the FUSE server, whose own end
//! would wait for the file system on top of it. A loop device is told to go with its last user as soon as it has one.

use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
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

static MOUNTS: OnceLock<Outcome> = OnceLock::new();

/// Something to undo. Dropping it does.
pub struct Guard(Option<Box<dyn FnOnce()>>);

impl Guard {
    pub fn new(undo: impl FnOnce() + 'static) -> Guard {
        Guard(Some(Box::new(undo)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

/// Splits the program: returns in the child, which runs the tests; the parent cleans up behind it and ends with its
/// status. Call first, before any thread starts.
pub fn prepare() {
    MOUNTS.get_or_init(enter_mount_namespace);
    // SAFETY: plain system calls on values that live across them; no other thread runs yet.
    let (signals, child) = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
            libc::sigaddset(&mut signals, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        (signals, libc::fork())
    };
    match child {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: plain system calls. Ctrl-C is for the parent: in a group of its own the child does not see it.
            unsafe {
                libc::setpgid(0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut());
            }
        }
        child => std::process::exit(watch(child, &signals)),
    }
}

/// Waits for the child's end, or ends it when told to; cleans up; the status to end with.
fn watch(child: libc::pid_t, signals: &libc::sigset_t) -> i32 {
    let mut status = 0;
    let code = loop {
        let mut signal = 0;
        // SAFETY: both are valid for the call.
        unsafe { libc::sigwait(signals, &mut signal) };
        if signal != libc::SIGCHLD {
            eprintln!("signal {signal}: cleaning up");
            break 128 + signal;
        }
        // SAFETY: the child is ours and is waited for once. Adopted descendants are waited for below.
        if unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child {
            if libc::WIFEXITED(status) {
                break libc::WEXITSTATUS(status);
            }
            eprintln!("the tests ended with signal {}: cleaning up", libc::WTERMSIG(status));
            break 128 + libc::WTERMSIG(status);
        }
    };
    // Children of those that are killed become ours in turn.
    loop {
        let mine = descendants();
        if mine.is_empty() {
            break;
        }
        for pid in mine {
            // SAFETY: a child of this process that has not been waited for, so the number is its own.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }
    }
    let ours = format!("forebay-{child}-");
    unmount(&format!("{PLACE}/{ours}"));
    for entry in [PLACE, PLACE_IN_MEMORY].into_iter().flat_map(fs::read_dir).flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&ours)
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            eprintln!("{} stays behind: {error}", entry.path().display());
        }
    }
    code
}

/// Unmounts everything whose mount point starts with `prefix`, what was mounted last first.
fn unmount(prefix: &str) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for point in mounts.lines().rev().filter_map(|line| line.split(' ').nth(4)) {
        if point.starts_with(prefix) {
            let point = std::ffi::CString::new(point).expect("a line's field has no NUL");
            // SAFETY: a plain system call on a string that lives across it. What fails stays until this process ends.
            unsafe { libc::umount2(point.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

/// This process's children, adopted ones included.
fn descendants() -> Vec<libc::pid_t> {
    let me = std::process::id();
    let children = fs::read_to_string(format!("/proc/{me}/task/{me}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
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
}

/// A real file system, with room.
const PLACE: &str = "/var/tmp";
/// Memory as a file system.
const PLACE_IN_MEMORY: &str = "/dev/shm";

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{} stays behind: {error}", self.path.display());
        }
    }
}

impl Directory {
    pub fn new(name: &str) -> Outcome<Directory> {
        Directory::below(PLACE, name)
    }
    /// A directory whose files are memory: for measuring everything but the disk.
    pub fn in_memory(name: &str) -> Outcome<Directory> {
        Directory::below(PLACE_IN_MEMORY, name)
    }
    fn below(place: &str, name: &str) -> Outcome<Directory> {
        let path = Path::new(place).join(format!("forebay-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).context(path.display())?;
        Ok(Directory { path })
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

/// `program` as a command that gets no input. It is looked for where administrators' tools are, too.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.stdin(Stdio::null()).env("PATH", format!("{path}:/usr/sbin:/sbin"));
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
    /// `None` once it has been waited for.
    child: Option<Child>,
    pid: u32,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; both its outputs are appended to `log`.
    pub fn start(command: &mut Command, log: &Path) -> Outcome<Process> {
        let file = File::options().create(true).append(true).open(log).context(log.display())?;
        let errors = file.try_clone().context(log.display())?;
        let child = command.stdout(file).stderr(errors).spawn().context(format!("{command:?}"))?;
        Ok(Process { pid: child.id(), child: Some(child), log: log.to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, number: i32) {
        // SAFETY: the child has not been waited for, so the number is still its own.
        unsafe { libc::kill(self.pid.cast_signed(), number) };
    }

    /// Ends it with SIGTERM; fails when it does not exit with status 0 within `limit`.
    pub fn terminate(&mut self, limit: Duration) -> Outcome {
        self.signal(libc::SIGTERM);
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
