//! The daemon's data directory: who owns it, and how files in it change.
//!
//! One daemon owns a directory: it holds an exclusive `flock` on `lock`, which the kernel gives back however the
//! daemon ends, so a `kill -9` leaves nothing to clean up and a stale socket is known to be stale. Files are
//! replaced whole: written beside, synced, renamed, and the directory synced, so that a crash at any point leaves
//! the old content or the new, never a mixture. The temporary name is fixed, so a crash leaves at most one behind,
//! and the next write takes it over.

use forebay_api::{Code, Problem};
use rustix::fs::{FlockOperation, Mode, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// No file the daemon keeps for itself is read beyond this: 10 000 remembered pools would fit.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A directory that this process owns.
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Creates the directory when it is missing (only its owner may enter) and locks it.
    pub fn open(path: &Path) -> Result<DataDir, Problem> {
        let at = path.display().to_string();
        let failed = |what: &str, error: io::Error| {
            let (detail, remedy) = match error.kind() {
                ErrorKind::PermissionDenied => (
                    format!("{what}: permission denied"),
                    "Run as its owner, or choose another with --data DIR.",
                ),
                ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                    (format!("{what}: it is not a directory"), "Choose another with --data DIR.")
                }
                _ => (format!("{what}: {error}"), "Choose another with --data DIR."),
            };
            Problem::new(Code::Io, detail).object(at.as_str()).remedy(remedy)
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| failed("the data directory cannot be created", error))?;
        let path =
            path.canonicalize().map_err(|error| failed("the data directory cannot be opened", error))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(|error| failed("the data directory cannot be locked", error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Problem::new(
                    Code::Conflict,
                    "another forebay daemon runs on this data directory",
                )
                .object(at)
                .remedy("Talk to that one, stop it first, or choose another directory with --data DIR."));
            }
            Err(error) => return Err(failed("the data directory cannot be locked", error.into())),
        }
        let mut lock_file = &lock;
        // For people who look into the file; the lock itself is the kernel's.
        lock.set_len(0)
            .and_then(|()| writeln!(lock_file, "{}", std::process::id()))
            .map_err(|error| failed("the data directory cannot be written", error))?;
        Ok(DataDir { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a directory below, private to the owner, unless it is there.
    pub fn make(&self, name: &str) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(self.path.join(name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| File::open(&self.path)?.sync_all()),
        }
    }

    /// Replaces a file whole, durably. The name may begin with a directory below.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (directory, name) = match name.rsplit_once('/') {
            Some((directory, name)) => (self.path.join(directory), name),
            None => (self.path.clone(), name),
        };
        let new = directory.join(format!(".{name}.new"));
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        // A file left behind by somebody else keeps its mode; ours is private.
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, directory.join(name))?;
        File::open(&directory)?.sync_all()
    }

    /// A file's content; `None` when there is no such file.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other("the file is too large to be the daemon's own"));
        }
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;

    #[test]
    fn a_second_owner_is_refused_until_the_first_is_gone() {
        let temp = test_directory();
        let first = DataDir::open(temp.path()).unwrap();
        let refused = DataDir::open(temp.path()).err().expect("the directory is locked");
        assert_eq!(refused.code, Code::Conflict);
        assert!(refused.remedy.unwrap().contains("--data"));
        drop(first);
        DataDir::open(temp.path()).unwrap();
    }

    #[test]
    fn a_write_replaces_the_whole_file_or_nothing() {
        let temp = test_directory();
        let dir = DataDir::open(temp.path()).unwrap();
        assert_eq!(dir.read("config").unwrap(), None);
        dir.write("config", b"a longer first content").unwrap();
        // What a crash in the middle of the next write leaves: half a temporary file, longer than the next content.
        fs::write(dir.file(".config.new"), "half of something that never became the file").unwrap();
        assert_eq!(dir.read("config").unwrap().unwrap(), b"a longer first content");
        dir.write("config", b"second").unwrap();
        assert_eq!(dir.read("config").unwrap().unwrap(), b"second");
        assert!(!dir.file(".config.new").exists());
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(dir.file("config")).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_in_the_place_of_the_directory_is_refused_in_words() {
        let temp = test_directory();
        let file = temp.path().join("file");
        fs::write(&file, "x").unwrap();
        let refused = DataDir::open(&file).err().expect("a file is no directory");
        assert!(refused.detail.contains("not a directory"), "{}", refused.detail);
    }
}
