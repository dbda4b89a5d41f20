//! Disks that rot, die and are replaced, under fio's verification: what a pool is for.
//!
//! For each layout: one disk is overwritten with garbage, labels and all, while fio verifies what it wrote; a scrub puts it right and a second one
//! finds nothing. Then a disk dies under load (the file system that its file is on is shut down: every request fails),
//! is replaced and rebuilt, and another dies. No client may see an error, and everything must read as it was written.

use crate::host::{Context, Directory, Guard, Outcome, command, may_mount, run};
use crate::server::{Forebay, Server};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const LAYOUTS: [(&str, usize); 3] = [("mirror", 2), ("mirror3", 3), ("4+1", 5)];
pub(crate) const DISK_BYTES: u64 = 512 << 20;
pub(crate) const VOLUME_BYTES: u64 = 160 << 20;

/// A disk that can be made to fail.
struct Shelf {
    disk: PathBuf,
    mount: PathBuf,
    _mounted: Guard,
}

impl Shelf {
    fn new(directory: &Directory, name: &str) -> Outcome<Shelf> {
        let image = directory.sparse_file(&format!("{name}.img"), DISK_BYTES + (400 << 20))?;
        run(&format!("mkfs.xfs -q {}", image.display()))?;
        let mount = directory.create(name)?;
        run(&format!("mount -o loop {} {}", image.display(), mount.display()))?;
        let mounted = mount.clone();
        let guard = Guard::new(move || {
            let _ = run(&format!("umount -l {}", mounted.display()));
        });
        let disk = mount.join("disk");
        run(&format!("truncate -s {DISK_BYTES} {}", disk.display()))?;
        Ok(Shelf { disk, mount, _mounted: guard })
    }

    /// From here on every request to the disk fails.
    fn pull(&self) -> Outcome {
        run(&format!("xfs_io -x -c shutdown {}", self.mount.display())).map(drop)
    }
}

pub fn every_layout(binary: &Path, directory: &Directory) -> Outcome<String> {
    may_mount().context("this scenario mounts file systems")?;
    let mut said = Vec::new();
    for (layout, disks) in LAYOUTS {
        let own = Directory::new(&format!("heal-{disks}"))?;
        said.push(heals(binary, &own, layout, disks).context(layout)?);
    }
    let _ = directory;
    Ok(said.join("; "))
}

fn heals(binary: &Path, directory: &Directory, layout: &str, disks: usize) -> Outcome<String> {
    let shelves = [Shelf::new(directory, "shelf0")?, Shelf::new(directory, "shelf1")?];
    let plain = (2..disks).map(|disk| directory.sparse_file(&format!("disk{disk}"), DISK_BYTES));
    let plain: Outcome<Vec<PathBuf>> = plain.collect();
    let files = shelves.iter().map(|shelf| shelf.disk.clone()).chain(plain?).collect();
    let mut server = Forebay::create_on(binary, directory, layout, files, "256M")?;
    let export = server.create_volume("volume", VOLUME_BYTES, "8K", false)?;
    let uri = server.uri(&export);

    during(fio(&uri, directory, "write"), || Ok(())).context("fio")?;
    during(fio(&uri, directory, "verify"), || {
        let garbage = format!(
            "dd if=/dev/urandom of={} bs=1M count=512 conv=notrunc oflag=direct",
            shelves[1].disk.display()
        );
        run(&garbage).map(drop)
    })
    .context("fio while one disk is overwritten with garbage")?;
    let first = scrub(&server)?;
    if first.0 == 0 {
        return Err("a scrub after a disk was overwritten with garbage found nothing".into());
    }
    during(fio(&uri, directory, "verify"), || Ok(())).context("fio after the scrub")?;
    let second = scrub(&server)?;
    if (first.1, second) != (0, (0, 0)) {
        return Err(format!("repaired and lost: {first:?}, and by a second scrub {second:?}"));
    }

    during(fio(&uri, directory, "write"), || shelves[0].pull()).context("fio while a disk dies")?;
    let new = directory.sparse_file("new", DISK_BYTES)?;
    during(fio(&uri, directory, "write"), || {
        server.cli(&["disk", "replace", "e2e/0", new.to_str().expect("our paths are ASCII")]).map(drop)
    })
    .context("fio while a disk is replaced")?;
    let state = status(&server)?["items"][0]["status"]["state"].to_string();
    if state != "\"online\"" {
        return Err(format!("with the disk replaced the pool is {state}"));
    }
    during(fio(&uri, directory, "write"), || shelves[1].pull()).context("fio while a second disk dies")?;
    during(fio(&uri, directory, "verify"), || Ok(())).context("fio after the second disk died")?;
    server.stop()?;
    server.start()?;
    let uri = server.uri(&export);
    during(fio(&uri, directory, "verify"), || Ok(())).context("fio after a restart")?;
    server.stop()?;
    Ok(format!("{layout}: {} places repaired, two disks lost", first.0))
}

/// fio over the whole volume: `write` writes and verifies it, `verify` only verifies what the last `write` left.
pub(crate) fn fio(uri: &str, directory: &Directory, what: &str) -> String {
    let only = if what == "verify" { "--verify_only=1" } else { "--do_verify=1" };
    let state = directory.path().display();
    format!(
        "fio --name=heal --ioengine=nbd --uri={uri} --rw=randwrite --bs=8k --size={VOLUME_BYTES} --iodepth=16 --verify=crc32c \
         --verify_fatal=1 --verify_state_save=0 --randseed=7 {only} --aux-path={state}"
    )
}

/// Runs a command line to its end, and `work` meanwhile.
pub(crate) fn during(line: String, work: impl FnOnce() -> Outcome) -> Outcome {
    let mut words = line.split_whitespace();
    let mut child = command(words.next().expect("a program"))
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(&line)?;
    let worked = work();
    let pid = child.id();
    if worked.is_err() {
        child.kill().context(pid)?;
    }
    let output = child.wait_with_output().context(&line)?;
    worked?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{line}\n{}", String::from_utf8_lossy(&output.stderr))),
    }
}

pub(crate) fn status(server: &Forebay) -> Outcome<Value> {
    let text = server.cli(&["pool", "status", "e2e", "--json"])?;
    serde_json::from_str(&text).context("the pool's JSON")
}

/// Scrubs the pool; gives how many places were repaired and how many lost.
pub(crate) fn scrub(server: &Forebay) -> Outcome<(u64, u64)> {
    server.cli(&["pool", "scrub", "e2e"]).map_err(|error| {
        // Which object, and what was said of it: the pool is gone with the scenario.
        let shown = [&["pool", "status", "e2e", "--errors"][..], &["disk", "list"], &["event", "list"]]
            .map(|words| server.cli(words).unwrap_or_else(|error| error));
        format!("{error}\n{}", shown.join("\n"))
    })?;
    let scrub = status(server)?["items"][0]["status"]["scrub"].clone();
    match (scrub["state"].as_str(), scrub["repaired"].as_u64(), scrub["lost"].as_u64()) {
        (Some("done"), Some(repaired), Some(lost)) => Ok((repaired, lost)),
        _ => Err(format!("after a scrub the pool says {scrub}")),
    }
}
