//! What the guest does with the volume. Each step asks one question and says in its error what was seen instead.
//!
//! The paths are named by their portals (`/dev/disk/by-path`), so that a step knows which of the two nexuses a command
//! goes through. While paths are cut, fio writes and verifies files on the multipath device in rounds; an error in any
//! round, or any line of the kernel about an error of the multipath device or the file system on it, fails the step:
//! errors of the single paths are what multipath is for.

use super::chap;
use super::image::Image;
use super::link::{Link, State};
use super::machine::Machine;
use super::target::Target;
use crate::host::{Context, Directory, Outcome};
use std::time::Instant;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// For every change.
    Short,
    /// Both file systems, more data, every kind of cut on either path.
    Long,
}

/// The kernel's words for an error that reached the multipath device or a file system.
const ERRORS: &str =
    "dmesg | grep -E 'error.* dm-|EXT4-fs (error|warning)|XFS .*([Ee]rror|[Cc]orrupt)|Aborting journal'";
/// 512-byte blocks, the unit of LBAs here.
const MIB: u64 = 2048;

pub struct Steps {
    machine: Machine,
    target: Target,
    links: [Link; 2],
    /// The guest's names of the two paths, `/dev/sd?`.
    paths: [String; 2],
    /// And of the device over both.
    disk: String,
    done: Vec<String>,
}

impl Steps {
    /// Boots the guest; nothing is logged in yet.
    pub fn start(image: &Image, target: Target, directory: &Directory) -> Outcome<Steps> {
        let [first, second] = target.portals()?;
        let links = [Link::new(first)?, Link::new(second)?];
        let began = Instant::now();
        let machine = Machine::start(image, directory)?;
        let done = vec![format!("boot {:.0} s", began.elapsed().as_secs_f64())];
        Ok(Steps { machine, target, links, paths: Default::default(), disk: String::new(), done })
    }

    pub fn all(&mut self, extent: Extent) -> Outcome<String> {
        self.step("log in", Steps::log_in)?;
        self.step("identity", Steps::identity)?;
        self.step("reservations", Steps::reservations)?;
        self.step("unmap", Steps::unmap)?;
        self.step("copy", Steps::copy)?;
        match extent {
            Extent::Short => self.step("ext4 through cuts", |steps| {
                steps.file_system("ext4", 16, &[(0, State::Refused), (1, State::Refused)])
            })?,
            Extent::Long => {
                let cuts = [0, 1, 0, 1].map(|path| (path, State::Refused));
                let silent = [0, 1].map(|path| (path, State::Silent));
                let cuts = [&cuts[..], &silent[..]].concat();
                self.step("ext4 through cuts", |steps| steps.file_system("ext4", 64, &cuts))?;
                self.step("xfs through cuts", |steps| steps.file_system("xfs", 64, &cuts))?;
            }
        }
        self.step("log out", Steps::log_out)?;
        self.step("chap", |steps| {
            let portal = steps.portal(0);
            chap::prove(&mut steps.machine, &steps.target, &portal)
        })?;
        Ok(self.done.join(", "))
    }

    pub fn stop(self) -> Outcome {
        self.machine.stop()?;
        self.target.stop()
    }

    /// A failure with what the target says.
    pub fn failed(&self, failure: &str) -> String {
        format!("{failure}\n{}", self.target.log_tail())
    }

    fn step(&mut self, name: &str, step: impl FnOnce(&mut Self) -> Outcome<String>) -> Outcome {
        let began = Instant::now();
        let shown = step(self).context(name)?;
        let shown = if shown.is_empty() { shown } else { format!(" ({shown})") };
        self.done.push(format!("{name} {:.0} s{shown}", began.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Two sessions through the two links; multipath makes one device of them.
    fn log_in(&mut self) -> Outcome<String> {
        for number in 0..2 {
            let portal = self.portal(number);
            let node = format!("iscsiadm -m node -T {} -p {portal}", Target::IQN);
            self.machine.run(&format!("{node} -o new"))?;
            // A cut path fails after as long as is usual with multipath; a silent one is noticed by its pings.
            let mut settings = vec![
                ("node.session.timeo.replacement_timeout", "5"),
                ("node.conn[0].timeo.noop_out_interval", "5"),
                ("node.conn[0].timeo.noop_out_timeout", "10"),
            ];
            // Both ways of carrying data, one on each path.
            if number == 1 {
                settings.push(("node.conn[0].iscsi.HeaderDigest", "CRC32C"));
                settings.push(("node.conn[0].iscsi.DataDigest", "CRC32C"));
            }
            for (name, value) in settings {
                self.machine.run(&format!("{node} -o update -n '{name}' -v {value}"))?;
            }
            self.machine.run(&format!("{node} --login"))?;
            self.paths[number] = self.machine.device(&Target::path(&portal, Target::LUN))?;
        }
        self.wait_for_paths([true, true])?;
        let maps = self.machine.run("multipathd show maps raw format %n")?;
        self.disk = format!("/dev/mapper/{}", maps.trim());
        self.machine.run(&format!("udevadm settle; test -b {}", self.disk))?;
        Ok(String::new())
    }

    /// A portal as the guest sees it.
    fn portal(&self, number: usize) -> String {
        format!("10.0.2.2:{}", self.links[number].port())
    }

    /// Waits until multipath sees the paths as given, `true` for one that works.
    fn wait_for_paths(&mut self, works: [bool; 2]) -> Outcome {
        let paths = self.paths.clone();
        let seen = |printed: &str| {
            (0..2).all(|i| {
                let name = paths[i].trim_start_matches("/dev/");
                let line = printed.lines().find(|line| line.split(' ').next() == Some(name));
                // The device mapper's view, and the checker's.
                let states = line.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
                match states.as_deref() {
                    Some([state, checked]) => (*state == "active" && *checked == "ready") == works[i],
                    _ => false,
                }
            })
        };
        let line = "multipathd show paths raw format '%d %t %T'";
        self.machine.wait_for(line, &format!("paths that work: {works:?}"), seen).map(|_| ())
    }

    /// Both paths tell the same of one device, and what they tell fits together.
    fn identity(&mut self) -> Outcome<String> {
        let [a, b] = self.paths.clone();
        for page in ["di", "sn", "bl", "bdc", "lbpv"] {
            let of = |path: &str| format!("sg_vpd -p {page} {path}");
            let first = self.machine.run(&of(&a))?;
            // The designators of the port differ, that of the unit may not.
            if page != "di" && self.machine.run(&of(&b))? != first {
                return Err(format!("VPD page {page} differs between the paths:\n{first}"));
            }
        }
        let size = self.target.size();
        let capacity = self.machine.run(&format!("sg_readcap --long {a}"))?;
        if !capacity.contains(&format!("Device size: {size} bytes")) {
            return Err(format!("READ CAPACITY does not say {size} bytes:\n{capacity}"));
        }
        if !capacity.contains("lbpme=1") || !capacity.contains("lbprz=1") {
            return Err(format!("it does not say that unmapped blocks read as zeros:\n{capacity}"));
        }
        self.machine.run(&format!("sg_inq {a}"))?;
        self.machine.run(&format!("sg_luns {a}"))?;
        self.machine.run(&format!("sg_opcodes {a}"))?;
        let groups = self.machine.run(&format!("sg_rtpg --decode {a}"))?;
        let handler = self.machine.run("cat /sys/block/*/device/dh_state")?;
        if handler.lines().filter(|state| *state == "alua").count() != 2 {
            return Err(format!("the kernel's ALUA handler is not on both paths: {handler}\n{groups}"));
        }
        Ok(String::new())
    }

    /// Persistent reservations between the two nexuses, as cluster software uses them.
    fn reservations(&mut self) -> Outcome<String> {
        let [a, b] = self.paths.clone();
        let out = |words: &str, path: &str| format!("sg_persist --out {words} {path}");
        let write = |path: &str| format!("sg_dd if=/dev/zero of={path} oflag=sgio bs=512 count=8 seek=64");
        self.machine.run(&out("--register --param-sark=0xaaaa", &a))?;
        self.machine.run(&out("--register --param-sark=0xbbbb", &b))?;
        self.persist("--read-keys", &b, &["0xaaaa", "0xbbbb"])?;
        self.machine.run(&out("--reserve --param-rk=0xaaaa --prout-type=1", &a))?;
        self.persist("--read-reservation", &b, &["Key=0xaaaa", "Write Exclusive"])?;
        self.machine.run(&write(&a)).context("the holder's write")?;
        let (status, said) = self.machine.run_any(&write(&b))?;
        if status == 0 || !said.to_lowercase().contains("reservation conflict") {
            return Err(format!("another's write under a reservation ({status}):\n{said}"));
        }
        self.machine.run(&out("--release --param-rk=0xaaaa --prout-type=1", &a))?;
        // It is told that the reservation is gone, with whatever comes next.
        let _ = self.machine.run_any(&format!("sg_turs {b}"))?;
        self.machine.run(&write(&b)).context("a write after the release")?;

        self.machine.run(&out("--reserve --param-rk=0xaaaa --prout-type=5", &a))?;
        self.machine.run(&out("--preempt --param-rk=0xbbbb --param-sark=0xaaaa --prout-type=5", &b))?;
        self.persist("--read-reservation", &b, &["Key=0xbbbb", "Write Exclusive, registrants only"])?;
        let _ = self.machine.run_any(&format!("sg_turs {a}"))?;
        let keys = self.persist("--read-keys", &a, &["0xbbbb"])?;
        if keys.contains("0xaaaa") {
            return Err(format!("a preempted key is still registered:\n{keys}"));
        }
        self.machine.run(&out("--clear --param-rk=0xbbbb", &b))?;
        let _ = self.machine.run_any(&format!("sg_turs {a}"))?;
        self.persist("--read-keys", &a, &["no registered reservation keys"])?;
        self.machine.run(&write(&a)).context("a write after the clear")?;
        Ok(String::new())
    }

    fn persist(&mut self, what: &str, path: &str, expected: &[&str]) -> Outcome<String> {
        let said = self.machine.run(&format!("sg_persist --in {what} {path}"))?;
        match expected.iter().find(|expected| !said.to_lowercase().contains(&expected.to_lowercase())) {
            None => Ok(said),
            Some(missing) => Err(format!("sg_persist {what} on {path} does not say {missing:?}:\n{said}")),
        }
    }

    /// Reads blocks through one path, past the guest's caches, into a file.
    fn read(&mut self, path: &str, lba: u64, blocks: u64, file: &str) -> Outcome {
        let line = format!("sg_dd if={path} iflag=sgio of={file} bs=512 skip={lba} count={blocks}");
        self.machine.run(&line).map(|_| ())
    }

    /// Writes a file's blocks the same way.
    fn write(&mut self, path: &str, lba: u64, blocks: u64, file: &str) -> Outcome {
        let line = format!("sg_dd if={file} of={path} oflag=sgio bs=512 seek={lba} count={blocks}");
        self.machine.run(&line).map(|_| ())
    }

    fn same(&mut self, a: &str, b: &str, what: &str) -> Outcome {
        self.machine.run(&format!("cmp {a} {b}")).context(what).map(|_| ())
    }

    /// Unmapped blocks read as zeros through the other path, and their neighbours are what they were.
    fn unmap(&mut self) -> Outcome<String> {
        let [a, b] = self.paths.clone();
        self.machine.run("dd if=/dev/urandom of=/tmp/pattern bs=1M count=4")?;
        self.write(&a, 16 * MIB, 4 * MIB, "/tmp/pattern")?;
        self.read(&b, 16 * MIB, 4 * MIB, "/tmp/back")?;
        self.same("/tmp/pattern", "/tmp/back", "what was written through the other path")?;
        self.machine.run(&format!("sg_unmap --force --lba={} --num={} {b}", 17 * MIB, 2 * MIB))?;
        self.machine.run(
            "dd if=/dev/zero of=/tmp/expected bs=1M count=4; \
             dd if=/tmp/pattern of=/tmp/expected bs=1M count=1 conv=notrunc; \
             dd if=/tmp/pattern of=/tmp/expected bs=1M count=1 skip=3 seek=3 conv=notrunc",
        )?;
        self.read(&a, 16 * MIB, 4 * MIB, "/tmp/back")?;
        self.same("/tmp/expected", "/tmp/back", "after unmapping the middle")?;
        let line = format!("sg_get_lba_status --lba={} {a}", 17 * MIB);
        let status = self.machine.run(&line)?;
        if !status.contains("deallocated") {
            return Err(format!("the unmapped blocks are not reported as deallocated:\n{status}"));
        }
        Ok(String::new())
    }

    /// The target copies blocks by itself: within a unit, and from one path's unit to another unit, which came later.
    fn copy(&mut self) -> Outcome<String> {
        let [a, b] = self.paths.clone();
        self.target.map_second(64 << 20)?;
        self.machine.run("iscsiadm -m session --rescan")?;
        let other = self.machine.device(&Target::path(&self.portal(1), Target::SECOND_LUN))?;
        self.write(&a, 32 * MIB, 4 * MIB, "/tmp/pattern")?;
        for (to, at) in [(b, 48 * MIB), (other, 8 * MIB)] {
            let (from, count) = (32 * MIB, 4 * MIB);
            self.machine
                .run(&format!("sg_xcopy if={a} of={to} bs=512 skip={from} seek={at} count={count}"))?;
            self.read(&to, at, count, "/tmp/back")?;
            self.same("/tmp/pattern", "/tmp/back", &format!("the copy on {to}"))?;
        }
        Ok(String::new())
    }

    /// A file system on the multipath device, with fio writing and verifying on it while paths come and go; then it
    /// grows and is checked.
    fn file_system(&mut self, kind: &str, file_mib: u32, cuts: &[(usize, State)]) -> Outcome<String> {
        let disk = self.disk.clone();
        let (make, check, grow) = match kind {
            "ext4" => ("mkfs.ext4 -q -F", "e2fsck -fn", format!("resize2fs {disk}")),
            _ => ("mkfs.xfs -q -f", "xfs_repair -n", "xfs_growfs /mnt".to_owned()),
        };
        self.machine.run(&format!("{make} {disk} && mount -t {kind} {disk} /mnt"))?;
        // In rounds until it is told to stop: each leaves a line, the last one says how it ended.
        self.machine.run(&format!(
            "rm -f /run/rounds /run/stop; (while test ! -e /run/stop; do \
             fio --name=verify --directory=/mnt --size={file_mib}m --bsrange=4k-64k --rw=randwrite --ioengine=libaio \
             --iodepth=8 --direct=1 --fsync=32 --verify=crc32c --verify_fatal=1 --do_verify=1 --randrepeat=0 \
             >/run/fio 2>&1 || {{ echo failed >>/run/rounds; break; }}; echo passed >>/run/rounds; done; \
             echo over >>/run/rounds) </dev/null >/dev/null 2>&1 &"
        ))?;
        self.writes_go_on()?;
        for &(path, state) in cuts {
            self.links[path].set(state)?;
            let mut works = [true, true];
            works[path] = false;
            self.wait_for_paths(works)?;
            self.writes_go_on().context(format!("path {path} {state:?}"))?;
            self.links[path].set(State::Whole)?;
            self.wait_for_paths([true, true])?;
            self.writes_go_on().context(format!("path {path} mended"))?;
            self.no_errors()?;
        }
        self.grow(&grow)?;
        self.machine.run("touch /run/stop")?;
        let rounds =
            self.machine.wait_for("cat /run/rounds", "fio's end", |rounds| rounds.contains("over"))?;
        if rounds.contains("failed") {
            let said = self.machine.run("tail -n 40 /run/fio")?;
            return Err(self.machine.failed(&format!("fio failed:\n{said}")));
        }
        self.no_errors()?;
        self.machine.run(&format!("umount /mnt && {check} {disk}"))?;
        let rounds = rounds.lines().filter(|round| *round == "passed").count();
        Ok(format!("{rounds} rounds of fio verify over {} cuts", cuts.len()))
    }

    /// The multipath device completes more writes than it had.
    fn writes_go_on(&mut self) -> Outcome {
        // "reads merged sectors ms writes …" (Linux, Documentation/block/stat.rst)
        let count = "awk '{print $5}' /sys/block/dm-0/stat";
        let number = |printed: &str| printed.trim().parse::<u64>().unwrap_or(0);
        let before = number(&self.machine.run(count)?);
        let line = format!("{count}; grep -s failed /run/rounds");
        let now = self.machine.wait_for(&line, "writes that go on", |printed| {
            printed.contains("failed") || number(printed) >= before + 50
        })?;
        if now.contains("failed") {
            let said = self.machine.run("tail -n 40 /run/fio")?;
            return Err(self.machine.failed(&format!("fio failed:\n{said}")));
        }
        Ok(())
    }

    fn no_errors(&mut self) -> Outcome {
        match self.machine.run_any(ERRORS)? {
            // grep found none.
            (1, _) => Ok(()),
            (_, lines) => Err(self.machine.failed(&format!("errors reached the file system:\n{lines}"))),
        }
    }

    /// The volume grows under the mounted file system; the guest sees it and the file system takes it.
    fn grow(&mut self, grow: &str) -> Outcome {
        let (before, disk) = (self.target.size(), self.disk.clone());
        let size = before + (64 << 20);
        self.target.resize(size)?;
        // The kernel's words for the target's unit attention, which I/O meets before anybody asks.
        let told = "dmesg | grep 'Capacity data has changed'";
        self.machine.wait_for(told, "being told of the new size", |lines| !lines.is_empty())?;
        self.machine.run("iscsiadm -m session --rescan")?;
        let name = disk.trim_start_matches("/dev/mapper/");
        self.machine.run(&format!("multipathd resize map {name}"))?;
        let seen = self.machine.run(&format!("blockdev --getsize64 {disk}"))?;
        if seen.trim() != size.to_string() {
            return Err(format!("after growing to {size} and a rescan the guest sees {}", seen.trim()));
        }
        let blocks = "stat -f -c '%b %s' /mnt";
        let old = self.machine.run(blocks)?;
        self.machine.run(grow)?;
        let new = self.machine.run(blocks)?;
        let bytes = |printed: &str| {
            let mut numbers = printed.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
            numbers.next().zip(numbers.next()).map(|(blocks, size)| blocks * size)
        };
        match (bytes(&old), bytes(&new)) {
            // Some of the new space is the file system's own.
            (Some(old), Some(new)) if new >= old + (48 << 20) => Ok(()),
            _ => Err(format!("the file system did not grow: {} -> {}", old.trim(), new.trim())),
        }
    }

    fn log_out(&mut self) -> Outcome<String> {
        self.machine.run("multipath -F")?;
        self.machine.run("iscsiadm -m node --logoutall=all")?;
        let (_, left) = self.machine.run_any("iscsiadm -m session")?;
        if left.contains("tcp:") { Err(format!("sessions are left:\n{left}")) } else { Ok(String::new()) }
    }
}
