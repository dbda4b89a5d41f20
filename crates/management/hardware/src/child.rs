//! A program run with a limit on its time and on its output, which never keeps its caller.
//!
//! A program that asks a hanging disk can end up in an uninterruptible sleep in the kernel: SIGKILL does not end it, and waiting for it would hang
//! as well. So its pipe is read without blocking, its end is polled, and one that survives SIGKILL is handed back
//! ([`RunError::Stuck`]) for the caller to keep and to reap some day.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a killed program has to be gone. SIGKILL takes microseconds, unless the kernel waits for a device.
const KILL_TIME: Duration = Duration::from_millis(500);
/// Polling starts so often, and slows down to the second: a query takes from 10 ms to seconds.
const POLL: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(25));
/// Where programs for administrators are, when the search path has no directory for them.
const DIRECTORIES: [&str; 5] = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"];

/// What a program said.
#[derive(Debug)]
pub(crate) struct Output {
    pub bytes: Vec<u8>,
    /// Absent when a signal ended it.
    pub status: Option<i32>,
}

/// Why a program said nothing.
#[derive(Debug)]
pub(crate) enum RunError {
    NotFound,
    Failed(String),
    TimedOut,
    TooLong,
    /// It outlived SIGKILL.
    Stuck(Child),
}

/// The limits of a run.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub time: Duration,
    pub output: usize,
    /// How a program is ended; tests have one that does nothing.
    pub kill: fn(&mut Child),
}

pub(crate) fn kill(child: &mut Child) {
    // It may have ended just now.
    let _ = child.kill();
}

/// Runs a program to its end or its limit.
pub(crate) fn run(program: &Path, arguments: &[&str], limits: Limits) -> Result<Output, RunError> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("LC_ALL", "C").env("PATH", DIRECTORIES.join(":"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => RunError::NotFound,
        _ => RunError::Failed(error.to_string()),
    })?;
    match watch(&mut child, begun, limits) {
        Ok(output) => Ok(output),
        Err(error) => Err(end(child, error, limits)),
    }
}

fn watch(child: &mut Child, begun: Instant, limits: Limits) -> Result<Output, RunError> {
    let mut pipe = child.stdout.take().expect("standard output is a pipe");
    let set = fcntl_getfl(&pipe).and_then(|flags| fcntl_setfl(&pipe, flags | OFlags::NONBLOCK));
    set.map_err(|error| RunError::Failed(error.to_string()))?;
    let (mut bytes, mut delay) = (Vec::new(), POLL.0);
    loop {
        // Its end is asked for before the pipe is emptied: what it wrote last is in the pipe by then.
        let ended = child.try_wait().map_err(|error| RunError::Failed(error.to_string()))?;
        take(&mut pipe, &mut bytes, limits.output)?;
        if let Some(status) = ended {
            return Ok(Output { bytes, status: status.code() });
        }
        if begun.elapsed() >= limits.time {
            return Err(RunError::TimedOut);
        }
        sleep(delay);
        delay = (delay * 2).min(POLL.1);
    }
}

/// Takes what the pipe has.
fn take(pipe: &mut impl Read, bytes: &mut Vec<u8>, max: usize) -> Result<(), RunError> {
    let mut part = [0; 16 * 1024];
    loop {
        match pipe.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(length) if bytes.len() + length > max => return Err(RunError::TooLong),
            Ok(length) => bytes.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(RunError::Failed(error.to_string())),
        }
    }
}

/// Ends a program, and tells why it was; or gives it back when it cannot be ended.
fn end(mut child: Child, error: RunError, limits: Limits) -> RunError {
    (limits.kill)(&mut child);
    let killed = Instant::now();
    while killed.elapsed() < KILL_TIME {
        match child.try_wait() {
            Ok(None) => sleep(POLL.0),
            Ok(Some(_)) | Err(_) => return error,
        }
    }
    RunError::Stuck(child)
}

/// Where a program is, if it is installed.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&search).chain(DIRECTORIES.map(PathBuf::from));
    directories.map(|directory| directory.join(name)).find(|path| path.is_absolute() && path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { time: Duration::from_secs(20), output: 1 << 20, kill };

    fn shell(script: &str, limits: Limits) -> Result<Output, RunError> {
        run(Path::new("/bin/sh"), &["-c", script], limits)
    }

    #[test]
    fn output_and_status_arrive_whole() {
        let output = shell("head -c 300000 /dev/zero; echo end; exit 4", LIMITS).expect("it ends");
        assert_eq!((output.bytes.len(), output.status), (300_004, Some(4)));
        assert!(output.bytes.ends_with(b"end\n"));
        let output = shell("kill -9 $$", LIMITS).expect("it ends");
        assert_eq!(output.status, None);
    }

    #[test]
    fn limits_hold() {
        let begun = Instant::now();
        let short = Limits { time: Duration::from_millis(100), ..LIMITS };
        assert!(matches!(shell("exec sleep 60", short), Err(RunError::TimedOut)));
        assert!(matches!(shell("exec yes", LIMITS), Err(RunError::TooLong)));
        // One that closed its output and goes on.
        assert!(matches!(shell("exec >/dev/null; exec sleep 60", short), Err(RunError::TimedOut)));
        assert!(begun.elapsed() < Duration::from_secs(15));
        assert!(matches!(run(Path::new("/no/such/program"), &[], LIMITS), Err(RunError::NotFound)));
    }

    #[test]
    fn a_grandchild_that_keeps_the_pipe_keeps_nobody() {
        let begun = Instant::now();
        let output = shell("sleep 20 & echo done", LIMITS).expect("it ends");
        assert_eq!(output.bytes, b"done\n");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn what_cannot_be_killed_is_handed_back() {
        let limits = Limits { time: Duration::from_millis(50), kill: |_| {}, ..LIMITS };
        let begun = Instant::now();
        let Err(RunError::Stuck(mut child)) = shell("exec sleep 60", limits) else {
            panic!("it was not killed");
        };
        assert!(begun.elapsed() < Duration::from_secs(10));
        child.kill().expect("it can be");
        child.wait().expect("it ends");
    }
}
