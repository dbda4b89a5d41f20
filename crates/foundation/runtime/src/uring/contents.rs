//! What is on a disk that would be lost if it were overwritten.
//!
//! Signatures are `libblkid`'s affair: it knows hundreds, and new ones with each release. It is asked through `wipefs`, which lists every
//! signature that it finds, where `blkid -p` gives up when two contradict each other, and which also looks for a partition table of which only the
//! backup at the end is left. A regular file is judged by its bytes besides: an image of a virtual machine, a database or a backup has no
//! signature that anyone must know. Only a file of holes and zeros is empty.
//!
//! Whatever cannot be told is an error, never an empty disk.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than a disk that turns takes to spin up and be read in fifty places.
const PROBE_TIME_MAX: Duration = Duration::from_secs(30);
/// Enough to read some ten gigabytes of written zeros. A file that has more of them counts as one with data.
const ZEROS_TIME_MAX: Duration = Duration::from_secs(10);
const POLL_DELAY: Duration = Duration::from_millis(2);
const CHUNK_BYTES: usize = 1 << 20;
pub(super) const TOOL: &str = "wipefs";
/// Where the tool is, when the search path has no directory for administrators.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// What is on the disk at `path`, in words; nothing when it is empty.
pub(super) fn find(path: &str) -> Result<Option<String>, String> {
    let is_file = fs::metadata(path).map_err(|error| error.to_string())?.is_file();
    let mut command = Command::new(tool()?);
    command.args(["--no-act", "--noheadings", "--output", "TYPE", "--", path]);
    if let Some(signatures) = signatures(command, PROBE_TIME_MAX)? {
        return Ok(Some(format!("{signatures} (found by {TOOL})")));
    }
    if is_file {
        let file = File::open(path).map_err(|error| error.to_string())?;
        return has_data(&file, ZEROS_TIME_MAX)
            .map(|found| found.map(str::to_owned))
            .map_err(|error| error.to_string());
    }
    Ok(None)
}

fn tool() -> Result<PathBuf, String> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&search).chain(DIRECTORIES.map(PathBuf::from));
    let found =
        directories.map(|directory| directory.join(TOOL)).find(|tool| tool.is_absolute() && tool.is_file());
    found.ok_or_else(|| {
        format!("the program {TOOL}, which this check needs, is not installed; install util-linux")
    })
}

/// The types of the signatures that the tool lists.
fn signatures(mut command: Command, time_max: Duration) -> Result<Option<String>, String> {
    command.env_clear().env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{TOOL} cannot be run: {error}"))?;
    let ended = wait(&mut child, time_max).map_err(|error| format!("{TOOL}: {error}"))?;
    let Some(status) = ended else {
        let seconds = time_max.as_secs();
        return Err(format!("{TOOL} has not ended within {seconds} seconds: the disk may hang"));
    };
    let (mut found, mut errors) = (String::new(), String::new());
    // Both ends were closed when it ended, and what it says fits a pipe.
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut found));
    let _ = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut errors));
    if !status.success() || !errors.trim().is_empty() {
        return Err(format!("{TOOL} failed ({status}): {}", errors.trim()));
    }
    let mut kinds: Vec<&str> = found.split_whitespace().collect();
    kinds.sort_unstable();
    kinds.dedup();
    Ok((!kinds.is_empty()).then(|| kinds.join(", ")))
}

/// Waits for a child. One that takes too long is killed; one that cannot be killed, since a disk hangs, is left to the kernel.
fn wait(child: &mut Child, time_max: Duration) -> io::Result<Option<std::process::ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < time_max {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL_DELAY);
    }
    child.kill()?;
    std::thread::sleep(POLL_DELAY);
    child.try_wait()?;
    Ok(None)
}

/// Whether a file has a byte that is not zero.
fn has_data(file: &File, time_max: Duration) -> io::Result<Option<&'static str>> {
    let (begun, size) = (Instant::now(), file.metadata()?.len());
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < size {
        let Some(data) = seek(file, at, libc::SEEK_DATA)? else { return Ok(None) };
        let end = seek(file, data, libc::SEEK_HOLE)?.unwrap_or(size);
        at = data;
        while at < end {
            let len = (end - at).min(CHUNK_BYTES as u64) as usize;
            let read = file.read_at(&mut buffer[..len], at)?;
            if read == 0 {
                return Ok(None);
            }
            if buffer[..read].iter().any(|byte| *byte != 0) {
                return Ok(Some("data"));
            }
            at += read as u64;
            if begun.elapsed() > time_max {
                return Ok(Some("more data than a check of some seconds can read (it begins with zeros)"));
            }
        }
    }
    Ok(None)
}

/// The next data or hole at or after a place; nothing when there is none.
fn seek(file: &File, at: u64, what: libc::c_int) -> io::Result<Option<u64>> {
    // SAFETY: no pointers.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, what) };
    match io::Error::last_os_error() {
        _ if found >= 0 => Ok(Some(found as u64)),
        error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        // No holes are known here: all of it is read.
        error if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok(Some(if what == libc::SEEK_DATA { at } else { file.metadata()?.len() }))
        }
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is gone when the test has ended.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let directory =
                std::env::temp_dir().join(format!("forebay-contents-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).expect("a directory can be made");
            Scratch(directory)
        }
        fn file(&self, name: &str, size: u64) -> File {
            let options =
                File::options().read(true).write(true).create(true).truncate(true).open(self.0.join(name));
            let file = options.expect("a file can be made");
            file.set_len(size).expect("it can be sparse");
            file
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_of_holes_and_zeros_has_no_data() {
        let scratch = Scratch::new("zeros");
        let file = scratch.file("file", 64 << 20);
        let found = |file: &File| has_data(file, Duration::from_secs(600)).expect("it can be read").is_some();
        assert!(!found(&file));
        file.write_all_at(&[0; 3 << 20], 5 << 20).expect("written");
        assert!(!found(&file));
        file.write_all_at(&[1], (64 << 20) - 1).expect("written");
        assert!(found(&file));
        file.set_len(32 << 20).expect("cut");
        assert!(!found(&file));
        file.write_all_at(&[1], (8 << 20) - 1).expect("written");
        assert!(found(&file));
        assert!(!found(&scratch.file("empty", 0)));
        // What takes too long to look through is not taken for empty.
        let zeros = scratch.file("zeros", 8 << 20);
        zeros.write_all_at(&[0; 8 << 20], 0).expect("written");
        assert!(has_data(&zeros, Duration::ZERO).expect("it can be read").is_some());
    }

    #[test]
    fn what_the_tool_does_not_tell_is_an_error() {
        let ask = |does: &str, limit| {
            let mut tool = Command::new("/bin/sh");
            tool.args(["-c", does]);
            signatures(tool, limit)
        };
        let long = Duration::from_secs(600);
        assert_eq!(ask("exit 0", long), Ok(None));
        assert_eq!(ask("echo ext4; echo dos; echo ext4", long), Ok(Some("dos, ext4".into())));
        assert!(ask("echo cannot read >&2", long).expect_err("it complains").contains("cannot read"));
        assert!(ask("exit 1", long).expect_err("it fails").contains("exit status: 1"));
        assert!(
            ask("exec sleep 600", Duration::from_millis(50)).expect_err("it hangs").contains("has not ended")
        );
        assert!(signatures(Command::new("/nonexistent/wipefs"), long).is_err());
    }
}
