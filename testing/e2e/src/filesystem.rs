//! A real file system on a volume, and the power goes: server → `nbdfuse` → loop device → mkfs → mount.
//!
//! 20 000 files of the operating system's own tree are copied and synced. Then writers create files, fsync each and,
//! only when fsync has returned, note it outside the volume; in the middle of that the daemon is killed with -9. What
//! is above it (mount, loop device, FUSE) is taken down as it falls, and the daemon is started again.
//!
//! The file system is then mounted and unmounted once before it is checked: its own journal belongs to its state,
//! and a check that may not write (`e2fsck -fn`, `xfs_repair -n`) cannot replay it and would report the crash itself as
//! damage. After the replay nothing may be left to repair, every noted file has its content, and so have the 20 000.

use crate::host::{Context, Directory, Guard, Outcome, Process, command, may_mount, run};
use crate::server::{Export, Forebay, START_LIMIT, Server};
use forebay_base::Random;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const FILES: usize = 20_000;
/// Larger files would make the copy long without making it more interesting.
const FILE_SIZE_MAX: u64 = 256 << 10;
const WRITERS: u64 = 4;
const KILLS: u64 = 2;
const VOLUME: u64 = 4 << 30;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
}

pub fn survives(binary: &Path, directory: &Directory, kind: Kind) -> Outcome<String> {
    may_mount().context("this scenario mounts file systems")?;
    let mut server = Forebay::create(binary, directory, "single", 1, 8 << 30)?;
    let export = server.create_volume("files", VOLUME, "8K", true)?;
    let figures = scenario(&mut server, &export, directory, kind)
        .map_err(|error| format!("{error}\n{}", server.log_tail()))?;
    server.stop()?;
    server.check_offline()?;
    Ok(figures)
}

fn scenario(server: &mut dyn Server, export: &Export, directory: &Directory, kind: Kind) -> Outcome<String> {
    let disk = Disk::attach(&server.uri(export), directory)?;
    match kind {
        Kind::Ext4 => run(&format!("mkfs.ext4 -q -F {}", disk.device))?,
        Kind::Xfs => run(&format!("mkfs.xfs -q -f {}", disk.device))?,
    };
    let mount = Mount::new(&disk, directory)?;
    let start = Instant::now();
    let sources = operating_system(FILES)?;
    let bytes = copy(&sources, &mount.path)?;
    run(&format!("sync -f {}", mount.path.display()))?;
    let copied_in = start.elapsed().as_secs_f64();

    let mut noted = Vec::new();
    let mut stack = Some((mount, disk));
    for kill in 0..KILLS {
        let (mount, disk) = stack.take().expect("each round ends with a mounted file system");
        let part = write_and_kill(server, &mount.path, kill)?;
        if part.is_empty() {
            return Err("no file was fsync'ed before the kill: that shows nothing".into());
        }
        noted.extend(part);
        drop(mount);
        drop(disk);

        server.start()?;
        let disk = Disk::attach(&server.uri(export), directory)?;
        Mount::new(&disk, directory).map(drop).context("replaying the journal")?;
        match kind {
            Kind::Ext4 => run(&format!("e2fsck -fn {}", disk.device))?,
            Kind::Xfs => run(&format!("xfs_repair -n {}", disk.device))?,
        };
        let mount = Mount::new(&disk, directory)?;
        for note in &noted {
            note.check(&mount.path)?;
        }
        compare(&sources, &mount.path)?;
        stack = Some((mount, disk));
    }
    drop(stack);
    Ok(format!(
        "{} files ({} MiB) copied in {copied_in:.1} s and intact, {} fsync'ed files intact after {KILLS} kills, {} clean",
        sources.len(),
        bytes >> 20,
        noted.len(),
        match kind {
            Kind::Ext4 => "e2fsck -fn",
            Kind::Xfs => "xfs_repair -n",
        }
    ))
}

/// The volume as a block device of this machine. Detached when dropped, also when the server is gone.
struct Disk {
    device: String,
    // Dropped in this order: the loop device lies on the FUSE file.
    /// A user of the loop device, which goes with its last one.
    _open: File,
    _fuse: Guard,
    _process: Process,
}

impl Disk {
    fn attach(uri: &str, directory: &Directory) -> Outcome<Disk> {
        let point = directory.create("fuse")?;
        let file = point.join("disk");
        let mut fuse = command("nbdfuse");
        fuse.arg(&file).arg(uri);
        let mut process = Process::start(&mut fuse, &directory.join("nbdfuse.log"))?;
        let unmounted = point.clone();
        let fuse = Guard::new(move || {
            let _ = run(&format!("umount -l {}", unmounted.display()));
        });
        process.wait_for("nbdfuse's file", START_LIMIT, || {
            fs::metadata(&file).ok().filter(fs::Metadata::is_file)
        })?;
        let device = run(&format!("losetup --find --show {}", file.display()))?.trim().to_owned();
        let open = File::open(&device).context(&device)?;
        // It is in use, so this means: when the last user is gone, however that comes about.
        run(&format!("losetup -d {device}"))?;
        Ok(Disk { device, _open: open, _fuse: fuse, _process: process })
    }
}

/// The mounted file system. Unmounted when dropped.
struct Mount {
    path: PathBuf,
    _guard: Guard,
}

impl Mount {
    fn new(disk: &Disk, directory: &Directory) -> Outcome<Mount> {
        let path = directory.create("mount")?;
        run(&format!("mount {} {}", disk.device, path.display()))?;
        let point = path.display().to_string();
        let guard = Guard::new(move || {
            // A file system whose disk has died can be busy for a moment.
            for _ in 0..50 {
                if run(&format!("umount {point}")).is_ok() {
                    return;
                }
                thread::sleep(Duration::from_millis(100));
            }
            let _ = run(&format!("umount -l {point}"));
        });
        Ok(Mount { path, _guard: guard })
    }
}

/// Files of this machine's operating system, and where their copies go. A system with fewer is copied more than once.
fn operating_system(count: usize) -> Outcome<Vec<(PathBuf, PathBuf)>> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::from("/usr")];
    while let Some(directory) = directories.pop() {
        if files.len() >= count {
            break;
        }
        // What vanishes or may not be read is not copied.
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                directories.push(entry.path());
            } else if metadata.is_file() && metadata.len() <= FILE_SIZE_MAX {
                files.push(entry.path());
            }
        }
    }
    if files.is_empty() {
        return Err("there are no files under /usr".into());
    }
    let places = (0..count).map(|i| {
        let file = &files[i % files.len()];
        let place = Path::new("copy").join((i / files.len()).to_string());
        (file.clone(), place.join(file.strip_prefix("/").expect("found under /usr")))
    });
    Ok(places.collect())
}

fn copy(sources: &[(PathBuf, PathBuf)], root: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for (from, to) in sources {
        let to = root.join(to);
        fs::create_dir_all(to.parent().expect("copies lie below the mount")).context(to.display())?;
        let content = fs::read(from).context(from.display())?;
        fs::write(&to, &content).context(to.display())?;
        bytes += content.len() as u64;
    }
    Ok(bytes)
}

fn compare(sources: &[(PathBuf, PathBuf)], root: &Path) -> Outcome {
    for (from, to) in sources {
        let to = root.join(to);
        let copy = fs::read(&to).context(to.display())?;
        if copy != fs::read(from).context(from.display())? {
            return Err(format!("{} differs from {}", to.display(), from.display()));
        }
    }
    Ok(())
}

/// A file whose fsync returned: its path and content follow from two numbers.
struct Note {
    writer: u64,
    number: u64,
}

impl Note {
    fn path(&self, root: &Path) -> PathBuf {
        root.join(format!("writer{}", self.writer)).join(format!("{:06}", self.number))
    }
    fn content(&self) -> Vec<u8> {
        let mut random = Random::new(self.writer << 32 | self.number);
        let mut content = vec![0; 1 + random.below(48 << 10) as usize];
        random.fill(&mut content);
        content
    }
    /// Creates the file durably: its content, and its name in the directory.
    fn write(&self, root: &Path) -> std::io::Result<()> {
        let path = self.path(root);
        let mut file = File::create(&path)?;
        file.write_all(&self.content())?;
        file.sync_all()?;
        File::open(path.parent().expect("the file lies in its writer's directory"))?.sync_all()
    }
    fn check(&self, root: &Path) -> Outcome {
        let path = self.path(root);
        let content = fs::read(&path).context(format!("{}, which was fsync'ed", path.display()))?;
        if content == self.content() {
            Ok(())
        } else {
            Err(format!("{}: fsync'ed, and its content is another", path.display()))
        }
    }
}

/// Writers run until the daemon under them is killed; what they noted until then.
fn write_and_kill(server: &mut dyn Server, root: &Path, kill: u64) -> Outcome<Vec<Note>> {
    let mut writers = Vec::new();
    for writer in kill * WRITERS..(kill + 1) * WRITERS {
        let root = root.to_owned();
        fs::create_dir_all(root.join(format!("writer{writer}"))).context("a writer's directory")?;
        writers.push(thread::spawn(move || {
            let mut noted = Vec::new();
            // The first error is the daemon's end showing through the file system.
            for number in 0.. {
                let note = Note { writer, number };
                if note.write(&root).is_err() {
                    break;
                }
                noted.push(note);
            }
            noted
        }));
    }
    run(&format!("sync -f {}", root.display()))?;
    let pause = Random::new(u64::from(std::process::id()) + kill).below(1500);
    thread::sleep(Duration::from_millis(1500 + pause));
    server.kill();
    let mut noted = Vec::new();
    for writer in writers {
        noted.extend(writer.join().map_err(|_| "a writer panicked")?);
    }
    Ok(noted)
}
