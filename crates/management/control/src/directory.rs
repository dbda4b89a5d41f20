//! The daemon's data directory: who owns it, and how files in it change.
//!
//! One daemon owns a directory: it holds an exclusive `flock` on `lock`, which the kernel gives back however the
//! daemon ends, so a `kill -9` leaves nothing to clean up and a stale socket is known to be stale. Files are
//! replaced whole: written beside, synced, renamed, and the directory synced, so that a crash at any point leaves
//! the old content or the new, never a mixture. The temporary name is fixed, so a crash leaves at most one behind,
//! and the next write removes it.
//!
//! Only the owner may enter the directory; one that was made for more is made private if it is empty or a daemon's, and refused otherwise, because something else may
//! need it as it is. Files are made with mode 0600, temporary ones never through a name that is there already, so that no planted link is followed.
//!
//! When a write fails, the directory knows it ([`DataDir::trouble`]) until a write works again.

use forebay_api::{Code, Problem};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

const LOCK: &str = "lock";
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Written to see whether the directory can be.
const PROBE: &str = "probe";
const PROBE_BYTES: usize = 4096;
/// No file the daemon keeps for itself is read beyond this: 10 000 remembered pools would fit.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// A directory that this process owns.
pub struct DataDir {
    path: PathBuf,
    _lock: File,
    /// The last failure to write, unless a write has worked since.
    trouble: Mutex<Option<Trouble>>,
}

/// Why the directory cannot be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// What could not be written.
    pub path: PathBuf,
    pub error: String,
    /// What to do.
    pub remedy: &'static str,
}

/// What to do about a write that failed.
pub fn remedy_of(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "Make room on the file system of the data directory, then try again."
        }
        ErrorKind::ReadOnlyFilesystem => {
            "The data directory's file system is read-only. Find the reason with `dmesg`, mount it writable, then try again."
        }
        ErrorKind::PermissionDenied => {
            "The daemon may not write into the data directory. Make its user the owner (`ls -ln`), remove the attribute `i` (`lsattr`), then try \
             again."
        }
        _ => "Check the file system and the disk of the data directory (`dmesg`), then try again.",
    }
}

impl DataDir {
    /// Creates the directory when it is missing (only its owner may enter) and locks it.
    pub fn open(path: &Path) -> Result<DataDir, Problem> {
        let at = path.display().to_string();
        let failed = |what: &str, error: io::Error| {
            let (detail, remedy) = match error.kind() {
                ErrorKind::PermissionDenied => (
                    format!("{what}: permission denied"),
                    "Run the daemon as its owner, or choose another directory with --data DIR.",
                ),
                ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                    (format!("{what}: it is not a directory"), "Choose another directory with --data DIR.")
                }
                _ => (format!("{what}: {error}"), "Choose another directory with --data DIR."),
            };
            Problem::new(Code::Io, detail).object(at.as_str()).remedy(remedy)
        };
        DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_DIRECTORY)
            .create(path)
            .map_err(|error| failed("the data directory cannot be created", error))?;
        let path =
            path.canonicalize().map_err(|error| failed("the data directory cannot be opened", error))?;
        make_private(&path)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(PRIVATE_FILE)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path.join(LOCK))
            .map_err(|error| failed("the data directory cannot be locked", error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Problem::new(
                    Code::Conflict,
                    "another forebay daemon runs on this data directory",
                )
                .object(at)
                .remedy("Use that daemon, stop it first, or choose another directory with --data DIR."));
            }
            Err(error) => return Err(failed("the data directory cannot be locked", error.into())),
        }
        let mut lock_file = &lock;
        // For people who look into the file; the lock itself is the kernel's.
        lock.set_len(0)
            .and_then(|()| writeln!(lock_file, "{}", std::process::id()))
            .map_err(|error| failed("the data directory cannot be written", error))?;
        Ok(DataDir { path, _lock: lock, trouble: Mutex::new(None) })
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
        match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(self.path.join(name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| File::open(&self.path)?.sync_all()),
        }
    }

    /// Replaces a file whole, durably. The name may begin with a directory below.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let written = self.replace(name, bytes);
        self.note(name, &written);
        written
    }

    fn trouble_lock(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.trouble.lock().expect("no holder of this lock panics")
    }

    /// Remembers how a write to a file of the directory ended.
    pub fn note<T>(&self, name: &str, written: &io::Result<T>) {
        *self.trouble_lock() = written.as_ref().err().map(|error| Trouble {
            path: self.file(name),
            error: error.to_string(),
            remedy: remedy_of(error),
        });
    }

    /// Why the directory cannot be written, if the last write failed and another try fails, too. Blocks on the disk.
    pub fn trouble(&self) -> Option<Trouble> {
        self.trouble_lock().as_ref()?;
        // As long as a page, which a full file system does not have.
        let tried = self.write(PROBE, &[b'\n'; PROBE_BYTES]).and_then(|()| fs::remove_file(self.file(PROBE)));
        self.note(PROBE, &tried);
        self.trouble_lock().clone()
    }

    /// What is told of a write that failed: `what` could not be written to `name`.
    pub fn cannot_write(&self, what: &str, name: &str, error: &io::Error) -> Problem {
        Problem::new(Code::Io, format!("{what} cannot be written: {error}"))
            .object(self.file(name).display().to_string())
            .remedy(remedy_of(error))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (directory, name) = match name.rsplit_once('/') {
            Some((directory, name)) => (self.path.join(directory), name),
            None => (self.path.clone(), name),
        };
        let new = directory.join(format!(".{name}.new"));
        // The remainder of a crash, or a planted file.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = create_new(&new)?;
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

/// A file that was not there, whatever links are.
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)
}

/// Only the owner, who is the daemon's user, may enter the directory from now on.
fn make_private(path: &Path) -> Result<(), Problem> {
    let refused = |detail: String, remedy: String| {
        Problem::new(Code::Unsafe, detail).object(path.display().to_string()).remedy(remedy)
    };
    let failed = |error: io::Error| {
        let remedy = format!(
            "Make it private with `chmod 700 {}`, or choose another directory with --data DIR.",
            path.display()
        );
        refused(format!("the data directory cannot be made private: {error}"), remedy)
    };
    let found = fs::metadata(path).map_err(failed)?;
    let (own, owner) = (rustix::process::geteuid().as_raw(), found.uid());
    if owner != own {
        let remedy = "Run the daemon as that user, `chown -R` the directory, or choose another directory with --data DIR.";
        let detail = format!("the data directory belongs to user {owner}, and the daemon runs as user {own}");
        return Err(refused(detail, remedy.into()));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let is_ours = path.join(LOCK).symlink_metadata().is_ok_and(|lock| lock.is_file());
    let is_empty = || fs::read_dir(path).map(|mut entries| entries.next().is_none());
    if !is_ours && !is_empty().map_err(failed)? {
        let detail = format!(
            "other users may enter the data directory (mode {mode:o}), and its contents are not a daemon's"
        );
        let remedy = format!(
            "Choose an empty or new directory with --data DIR. To use this one, make it private with `chmod 700 {}`.",
            path.display()
        );
        return Err(refused(detail, remedy));
    }
    fs::set_permissions(path, Permissions::from_mode(PRIVATE_DIRECTORY)).map_err(failed)
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
        assert_eq!(fs::metadata(dir.file("config")).unwrap().permissions().mode() & 0o777, 0o600);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_directory_that_others_may_enter_is_made_private_or_refused() {
        for (mode_before, is_daemons) in [(0o777, false), (0o755, false), (0o777, true), (0o750, true)] {
            let temp = test_directory();
            if is_daemons {
                drop(DataDir::open(temp.path()).unwrap());
            }
            fs::set_permissions(temp.path(), Permissions::from_mode(mode_before)).unwrap();
            DataDir::open(temp.path()).unwrap();
            assert_eq!(mode(temp.path()), 0o700, "{mode_before:o}");
        }
        // What something else may need as it is.
        let temp = test_directory();
        fs::write(temp.path().join("somebody's"), "x").unwrap();
        fs::set_permissions(temp.path(), Permissions::from_mode(0o1777)).unwrap();
        let refused = DataDir::open(temp.path()).err().expect("it is not only ours");
        assert_eq!((refused.code, mode(temp.path())), (Code::Unsafe, 0o1777));
        assert!(refused.remedy.unwrap().contains("chmod 700"));
        assert!(!temp.path().join(LOCK).exists(), "nothing was put there");
        fs::set_permissions(temp.path(), Permissions::from_mode(0o700)).unwrap();
        DataDir::open(temp.path()).unwrap();
    }

    #[test]
    fn links_in_the_place_of_our_files_are_not_followed() {
        let (temp, outside) = (test_directory(), test_directory());
        let theirs = outside.path().join("theirs");
        fs::write(&theirs, "their content").unwrap();
        fs::set_permissions(&theirs, Permissions::from_mode(0o644)).unwrap();
        let dir = DataDir::open(temp.path()).unwrap();
        std::os::unix::fs::symlink(&theirs, dir.file(".tokens.new")).unwrap();
        dir.write("tokens", b"secret").unwrap();
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "their content");
        assert_eq!(mode(&theirs), 0o644);
        assert_eq!(dir.read("tokens").unwrap().unwrap(), b"secret");
        assert!(dir.file("tokens").symlink_metadata().unwrap().is_file());
        drop(dir);
        fs::remove_file(temp.path().join(LOCK)).unwrap();
        std::os::unix::fs::symlink(&theirs, temp.path().join(LOCK)).unwrap();
        assert!(DataDir::open(temp.path()).is_err());
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "their content");
    }

    #[test]
    fn what_is_advised_fits_what_happened() {
        let error = |errno: rustix::io::Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        use rustix::io::Errno;
        for (errno, word) in [
            (Errno::NOSPC, "Make room"),
            (Errno::DQUOT, "Make room"),
            (Errno::ROFS, "read-only"),
            (Errno::PERM, "may not write"),
            (Errno::ACCESS, "may not write"),
            (Errno::IO, "dmesg"),
        ] {
            let remedy = remedy_of(&error(errno));
            assert!(remedy.contains(word), "{errno}: {remedy}");
            assert_eq!(remedy.contains("Make room"), word == "Make room");
        }
    }

    #[test]
    fn trouble_lasts_until_a_write_works() {
        let temp = test_directory();
        let dir = DataDir::open(temp.path()).unwrap();
        assert_eq!(dir.trouble(), None);
        // Directories where the temporary files should go: root may write anywhere else.
        for name in [".config.new", ".probe.new"] {
            fs::create_dir(dir.file(name)).unwrap();
        }
        dir.write("config", b"x").unwrap_err();
        let trouble = dir.trouble().expect("the last write failed, and so does the next");
        assert!(trouble.path.starts_with(temp.path().canonicalize().unwrap()), "{trouble:?}");
        fs::remove_dir(dir.file(".probe.new")).unwrap();
        assert_eq!(dir.trouble(), None, "it can be written again");
        assert!(!dir.file(PROBE).exists());
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
