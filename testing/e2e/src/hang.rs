//! A disk that hangs, under fio's verification.
//!
//! One disk of a mirror is a file that `nbdfuse` serves, and `nbdfuse` is stopped: no request to the disk ends any more. fio must go on without
//! an error once the disk is out of service, which must not come back while it owes answers. When it has given them, it is taken back
//! and gets what it missed; a scrub then finds nothing to repair on any disk.

use crate::heal::{DISK_BYTES, VOLUME_BYTES, during, fio, scrub, status};
use crate::host::{Context, Directory, Guard, Outcome, Process, command, may_mount, run};
use crate::server::{Forebay, START_LIMIT, Server};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A disk has ten seconds; the machine may be busy with other tests.
const EVICTED: Duration = Duration::from_secs(300);
const BACK: Duration = Duration::from_secs(300);

pub fn one_disk(binary: &Path, directory: &Directory) -> Outcome<String> {
    may_mount().context("this scenario mounts file systems")?;
    let back = directory.sparse_file("back", DISK_BYTES)?;
    let point = directory.create("fuse")?;
    let file = point.join("disk");
    let mut fuse = command("nbdfuse");
    fuse.arg(&file).args(["--command", "nbdkit", "-s", "file"]).arg(&back);
    let mut fuse = Process::start(&mut fuse, &directory.join("nbdfuse.log"))?;
    let _unmounted = Guard::new(move || {
        let _ = run(&format!("umount -l {}", point.display()));
    });
    fuse.wait_for("nbdfuse's file", START_LIMIT, || fs::metadata(&file).ok().filter(fs::Metadata::is_file))?;
    let disks = vec![directory.sparse_file("disk0", DISK_BYTES)?, file];
    let mut server = Forebay::create_on(binary, directory, "mirror", disks, "256M")?;
    let export = server.create_volume("volume", VOLUME_BYTES, "8K", false)?;
    let uri = server.uri(&export);
    // The daemon cannot end while a request of its is held: this goes first, whatever happens.
    let pid = fuse.pid();
    let _going = Guard::new(move || {
        let _ = run(&format!("kill -CONT {pid}"));
    });

    let mut took = Duration::ZERO;
    during(fio(&uri, directory, "write"), || {
        thread::sleep(Duration::from_secs(1));
        fuse.signal(libc::SIGSTOP);
        let begun = Instant::now();
        until("the disk that hangs is out of service", EVICTED, || {
            Ok(server.cli(&["event", "list"])?.contains("disk.evicted"))
        })?;
        took = begun.elapsed();
        match server.cli(&["disk", "online", "e2e/1"]) {
            Err(error) if error.contains("still owes answers") => {}
            other => return Err(format!("a disk that owes answers was brought back: {other:?}")),
        }
        fuse.signal(libc::SIGCONT);
        until("the disk is taken back", BACK, || Ok(server.cli(&["disk", "online", "e2e/1"]).is_ok()))
    })
    .context("fio while a disk hangs")?;
    until("the disk has what it missed", BACK, || {
        let status = status(&server)?["items"][0]["status"].clone();
        Ok(status["state"] == "online" && status.get("rebuild").is_none())
    })?;
    during(fio(&uri, directory, "verify"), || Ok(())).context("fio after the disk came back")?;
    let found = scrub(&server)?;
    if found != (0, 0) {
        return Err(format!("a scrub repaired and lost {found:?}"));
    }
    server.stop()?;
    Ok(format!("taken out after {:.0} s", took.as_secs_f64()))
}

fn until(what: &str, limit: Duration, mut is_so: impl FnMut() -> Outcome<bool>) -> Outcome {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > limit {
            return Err(format!("still waiting after {limit:?} until {what}"));
        }
        thread::sleep(Duration::from_millis(250));
    }
    Ok(())
}
