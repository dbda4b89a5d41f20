//! `forebay config backup` and `restore`: what the daemon remembers besides the pools, in one file.
//!
//! That is what the daemon itself has written there, by name, but for logs, statistics, and what says that a daemon runs: files beside it may be disks of pools. Pools are on
//! their disks, and not in it. The backup has secrets (of CHAP, channels, the key of the authority), so only its owner may read it.

use crate::failure::{Exit, Failure};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const VERSION: u32 = 1;
/// The daemon holds it.
const LOCK: &str = "lock";
/// All reports that a daemon keeps, and the rest twice over.
const BYTES_MAX: u64 = 1 << 30;
/// What is remembered for good: files, and directories of files.
const FILES: [&str; 9] =
    ["channels", "config", "hosts", "levels", "reports", "thresholds", "tokens", "users", "worksheets"];
const DIRECTORIES: [&str; 2] = ["report-files", "tls"];

/// Names are paths below the data directory.
#[derive(Serialize, Deserialize)]
struct Backup {
    forebay_backup: u32,
    files: BTreeMap<String, String>,
}

/// Whether a backup may have a file of this name: nothing else is remembered, and nothing leads out of the directory.
fn is_kept(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    match name.split_once('/') {
        Some((directory, file)) => DIRECTORIES.contains(&directory) && !file.is_empty() && is_part(file),
        None => FILES.contains(&name),
    }
}

fn failed(what: &str, at: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied => "Run as the daemon's user, or as root.",
        ErrorKind::NotFound => "Name the daemon's data directory with --data DIR.",
        ErrorKind::AlreadyExists => "Name a file that does not exist yet.",
        _ => "Check the file system, then try again.",
    };
    Failure::new(Exit::Failed, format!("{what}: {error}"), remedy).object(at.display().to_string())
}

/// What of the data directory is remembered, by name.
fn collect(dir: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let unreadable = |at: &Path, error: io::Error| failed("it cannot be read", at, &error);
    // So that a directory that is none is said to be that.
    fs::read_dir(dir).map_err(|error| unreadable(dir, error))?;
    let mut names: Vec<String> = FILES.map(String::from).to_vec();
    for directory in DIRECTORIES {
        let at = dir.join(directory);
        let entries = match fs::read_dir(&at) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.map_err(|error| unreadable(&at, error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(&at, error))?;
            names.extend(entry.file_name().to_str().map(|name| format!("{directory}/{name}")));
        }
    }
    let (mut files, mut bytes) = (BTreeMap::new(), 0);
    for name in names.into_iter().filter(|name| is_kept(name)) {
        let at = dir.join(&name);
        match fs::symlink_metadata(&at) {
            Ok(found) if found.is_file() => bytes += found.len(),
            Ok(_) => continue,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(unreadable(&at, error)),
        }
        if bytes > BYTES_MAX {
            return Err(too_large(dir));
        }
        files.insert(name, fs::read_to_string(&at).map_err(|error| unreadable(&at, error))?);
    }
    Ok(files)
}

fn too_large(at: &Path) -> Failure {
    let detail = format!("a backup cannot be larger than {} GiB", BYTES_MAX >> 30);
    Failure::new(Exit::Failed, detail, "Delete reports: 'forebay report list' shows them.")
        .object(at.display().to_string())
}

/// Writes a backup of the data directory to a new file.
pub fn backup(dir: &Path, file: &Path, as_json: bool) -> Result<Exit, Failure> {
    let files = collect(dir)?;
    if files.is_empty() {
        let detail = "no daemon has stored settings in this directory";
        return Err(Failure::new(
            Exit::NotFound,
            detail,
            "Name the daemon's data directory with --data DIR.",
        )
        .object(dir.display().to_string()));
    }
    let count = files.len();
    let mut text = serde_json::to_vec_pretty(&Backup { forebay_backup: VERSION, files })
        .expect("a backup is plain data");
    text.push(b'\n');
    if text.len() as u64 > BYTES_MAX {
        return Err(too_large(dir));
    }
    let written =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(file).and_then(|mut out| {
            out.write_all(&text)?;
            out.sync_all()
        });
    written.map_err(|error| failed("the backup cannot be written", file, &error))?;
    match as_json {
        true => println!("{}", json!({ "file": file, "files": count })),
        false => println!(
            "Backup {} has {count} files of {}, including secrets: keep it safe.",
            file.display(),
            dir.display()
        ),
    }
    Ok(Exit::Ok)
}

/// Puts a backup into a data directory of which no daemon runs, in place of all that is remembered there.
pub fn restore(dir: &Path, file: &Path, force: bool, as_json: bool) -> Result<Exit, Failure> {
    let backup = read(file)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| failed("the data directory cannot be created", dir, &error))?;
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(dir.join(LOCK))
        .map_err(|error| failed("the data directory cannot be locked", dir, &error))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let remedy = "Stop it first, with 'systemctl stop forebay' or Ctrl-C, then restore.";
        return Err(Failure::new(Exit::Conflict, "a daemon runs on this data directory", remedy)
            .object(dir.display().to_string()));
    }
    let there = collect(dir)?;
    if !there.is_empty() && !force {
        let detail = format!("the directory has {} files of settings, which would be replaced", there.len());
        let remedy = "Give another directory, or add --force. 'forebay config backup FILE' saves the present settings.";
        return Err(Failure::new(Exit::Unsafe, detail, remedy).object(dir.display().to_string()));
    }
    // The list of pools last: a restore that is cut off leaves a daemon that imports what it knew.
    let (pools, others): (Vec<_>, Vec<_>) = backup.files.iter().partition(|(name, _)| *name == "config");
    for (name, text) in others.into_iter().chain(pools) {
        replace(dir, name, text).map_err(|error| failed("it cannot be written", &dir.join(name), &error))?;
    }
    for name in there.keys().filter(|name| !backup.files.contains_key(*name)) {
        fs::remove_file(dir.join(name))
            .map_err(|error| failed("it cannot be removed", &dir.join(name), &error))?;
    }
    match as_json {
        true => println!("{}", json!({ "data": dir, "files": backup.files.len() })),
        false => println!(
            "{} files are restored to {}. The daemon imports the pools at its next start, from their former disk paths.",
            backup.files.len(),
            dir.display()
        ),
    }
    Ok(Exit::Ok)
}

fn read(file: &Path) -> Result<Backup, Failure> {
    let invalid = |detail: String| {
        Failure::new(Exit::Usage, detail, "Name a file that 'forebay config backup FILE' has written.")
            .object(file.display().to_string())
    };
    let bytes = File::open(file)
        .and_then(|file| {
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(file, BYTES_MAX + 1), &mut bytes)?;
            Ok(bytes)
        })
        .map_err(|error| failed("the backup cannot be read", file, &error))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(invalid("it is too large for a backup".into()));
    }
    // Not the error itself: it might quote a secret.
    let backup: Backup = serde_json::from_slice(&bytes)
        .map_err(|error| invalid(format!("line {} is not part of a valid backup", error.line())))?;
    if backup.forebay_backup != VERSION {
        return Err(invalid(format!(
            "its version is {}, and this program reads version {VERSION}",
            backup.forebay_backup
        )));
    }
    match backup.files.keys().find(|name| !is_kept(name)) {
        Some(name) => Err(invalid(format!("it has a file `{name}`, which is not a settings file"))),
        None => Ok(backup),
    }
}

fn replace(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let at = dir.join(name);
    let parent = at.parent().expect("it is below the directory");
    match DirBuilder::new().mode(0o700).create(parent) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let new = parent.join(".restore.new");
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&new, &at)?;
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_remembered_comes_back_whole_and_nothing_else_does() {
        let temp = tempfile::tempdir().unwrap();
        let (old, new, file) = (temp.path().join("old"), temp.path().join("new"), temp.path().join("backup"));
        fs::create_dir_all(old.join("tls")).unwrap();
        fs::create_dir_all(old.join("analytics/pins")).unwrap();
        for name in
            ["config", "hosts", "tls/ca.key", "lock", "events.jsonl", "addresses.json", "analytics/pins/1"]
        {
            fs::write(old.join(name), format!("of {name}")).unwrap();
        }
        // A disk of a pool, as in the demo.
        fs::create_dir(old.join("disks")).unwrap();
        fs::write(old.join("disks/disk0"), [0xff; 4096]).unwrap();
        backup(&old, &file, true).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(backup(&old, &file, true).is_err(), "an older one is not overwritten");
        restore(&new, &file, false, true).unwrap();
        for name in ["config", "hosts", "tls/ca.key"] {
            assert_eq!(fs::read_to_string(new.join(name)).unwrap(), format!("of {name}"));
        }
        assert!(!new.join("events.jsonl").exists() && !new.join("analytics").exists());
        // What came since goes with a restore that is asked for by force.
        fs::write(new.join("levels"), "new").unwrap();
        assert_eq!(restore(&new, &file, false, true).unwrap_err().exit, Exit::Unsafe);
        fs::write(new.join("disk1"), [0xff; 4096]).unwrap();
        restore(&new, &file, true, true).unwrap();
        assert!(!new.join("levels").exists());
        assert_eq!(fs::read(new.join("disk1")).unwrap(), [0xff; 4096], "it is not the daemon's");
        let held = File::open(new.join(LOCK)).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        assert_eq!(restore(&new, &file, true, true).unwrap_err().exit, Exit::Conflict);
    }

    /// Goal: whatever the daemon begins to remember is in backups, and goes when its package is purged.
    #[test]
    fn backup_and_purge_know_what_there_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let purge = fs::read_to_string(root.join("packaging/debian/postrm")).unwrap();
        let purged: Vec<&str> = purge.split_whitespace().collect();
        for name in FILES.iter().chain(&DIRECTORIES) {
            assert!(purged.contains(name), "purging leaves {name}");
        }
        let sources = fs::read_dir(root.join("crates/management/control/src")).unwrap();
        for source in sources.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            let text = fs::read_to_string(&source).unwrap();
            for file in text.split("const FILE: &").skip(1).filter_map(|rest| rest.split('"').nth(1)) {
                let is_log = file.ends_with(".jsonl");
                assert!(
                    is_log || is_kept(file) || !text.contains("impl Kept for"),
                    "{file} of {}",
                    source.display()
                );
            }
        }
    }

    #[test]
    fn a_file_that_is_no_backup_is_refused_before_anything_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("backup");
        for text in [
            "no JSON",
            r#"{"forebay_backup": 2, "files": {}}"#,
            r#"{"forebay_backup": 1, "files": {"../../etc/passwd": "x"}}"#,
            r#"{"forebay_backup": 1, "files": {"/etc/passwd": "x"}}"#,
            r#"{"forebay_backup": 1, "files": {"lock": "x"}}"#,
            r#"{"forebay_backup": 1, "files": {"tls/../hosts": "x"}}"#,
            r#"{"forebay_backup": 1, "files": {"tls/a/b": "x"}}"#,
        ] {
            fs::write(&file, text).unwrap();
            let dir = temp.path().join("data");
            assert_eq!(restore(&dir, &file, true, true).unwrap_err().exit, Exit::Usage, "{text}");
            assert!(!dir.exists());
        }
    }
}
