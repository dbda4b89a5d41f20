//! Asking the disks themselves: their health through smartctl, and what is on them.
//!
//! Everything that touches a disk runs in a program of its own with a time limit ([`crate::child`]), at most [`Options::at_once`] of them at a time in
//! all. A program that hangs on a disk and cannot be ended is abandoned: it is kept aside, its disk is not asked again until it has ended, and
//! at [`ABANDONED_MAX`] of them nothing is asked of any disk, so that a dead controller does not fill the process table.
//!
//! The functions block, for at most their limit. An async caller runs them on a thread for blocking work.

use crate::child::{Limits, Output, RunError, find_program, kill, run};
use crate::disk::{Contents, ContentsSource, Disk, NotFreeKind, Signature, SignatureUsage, Transport};
use crate::inventory::Inventory;
use crate::smart::{NoReading, Reading, STANDBY_STATUS, parse};
use crate::tree::clean;
use crate::udev::usage_of;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Programs that hang, before no more are started.
pub const ABANDONED_MAX: usize = 64;
/// What a Forebay label begins with, whatever its version.
const LABEL_MAGIC: &[u8] = b"FOREBAY";
/// Labels are at multiples of this, at the beginning and at the end.
const LABEL_STEP: u64 = 64 * 1024;
/// Steps that are read at either end: the first and the last mebibyte, and one more.
const LABEL_STEPS: u64 = 17;

/// How disks are asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where `/dev` is: `/` but for tests.
    pub root: PathBuf,
    /// The program smartctl; by default the one that is installed.
    pub smartctl: Option<PathBuf>,
    /// For one query of one disk. A disk that is busy, or tries for long to read a bad sector, may take 10 seconds and is not broken.
    pub time_max: Duration,
    /// Bytes of one answer: real ones have up to 150 KiB.
    pub output_max: usize,
    /// Queries at a time: a few, since each can make its disk pause for a moment.
    pub at_once: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            root: PathBuf::from("/"),
            smartctl: None,
            time_max: Duration::from_secs(30),
            output_max: 1 << 20,
            at_once: 4,
        }
    }
}

/// Asks disks, and remembers which of them hang.
pub struct Examiner {
    options: Options,
    running: Mutex<usize>,
    ended: Condvar,
    abandoned: Mutex<BTreeMap<String, Vec<Child>>>,
    kill: fn(&mut Child),
}

/// Why a program gave nothing.
enum Silence {
    NotInstalled,
    TimedOut,
    TooLong,
    Abandoned,
    NotAsked,
    Failed(String),
}

impl Examiner {
    pub fn new(options: Options) -> Examiner {
        let abandoned = Mutex::new(BTreeMap::new());
        Examiner { options, running: Mutex::new(0), ended: Condvar::new(), abandoned, kill }
    }

    /// Asks one disk for its health, within [`Options::time_max`] and the time until a query may start. A disk in standby is not woken.
    pub fn read_health(&self, disk: &Disk) -> Reading {
        self.health_until(disk, Instant::now() + 2 * self.options.time_max)
    }

    /// Asks several disks, within `budget`; of those that were not asked by then, [`NoReading::NotAsked`]. In the order of `disks`.
    pub fn read_health_of(&self, disks: &[Disk], budget: Duration) -> Vec<Reading> {
        let until = Instant::now() + budget;
        self.for_each(disks.len(), |at| self.health_until(&disks[at], until))
    }

    /// Looks for signatures and Forebay labels on those disks that nothing else says are taken, within `budget`, and fills in what they hold and
    /// whether they are free. This reads from the disks, and wakes those in standby. A disk that cannot be read is not free.
    pub fn read_contents(&self, inventory: &mut Inventory, budget: Duration) {
        let until = Instant::now() + budget;
        let is_open = |disk: &Disk| disk.not_free.iter().all(|one| one.kind == NotFreeKind::Unread);
        let unread: Vec<usize> =
            (0..inventory.disks.len()).filter(|at| is_open(&inventory.disks[*at])).collect();
        let disks = &inventory.disks;
        let found = self.for_each(unread.len(), |at| self.contents_until(&disks[unread[at]], until));
        for (at, contents) in unread.into_iter().zip(found) {
            inventory.disks[at].set_contents(contents);
        }
    }

    /// How many queries hang and could not be ended.
    pub fn abandoned(&self) -> usize {
        self.reap().values().map(Vec::len).sum()
    }

    fn health_until(&self, disk: &Disk, until: Instant) -> Reading {
        if matches!(disk.transport, Transport::Loop | Transport::Nbd | Transport::Pmem | Transport::Mmc) {
            return Reading::None(NoReading::Unsupported("disks of this kind have no SMART".into()));
        }
        let program = self.options.smartctl.clone().or_else(|| find_program("smartctl"));
        let Some(program) = program else { return Reading::None(NoReading::NotInstalled) };
        let standby = format!("standby,{STANDBY_STATUS}");
        let node = self.node(disk);
        let arguments = ["--json=c", "-x", "-n", &standby, &node];
        Reading::None(match self.ask(disk, &program, &arguments, self.options.output_max, until) {
            Ok(output) => return parse(&output.bytes),
            Err(Silence::NotInstalled) => NoReading::NotInstalled,
            Err(Silence::TimedOut) => NoReading::TimedOut(self.options.time_max.as_secs()),
            Err(Silence::TooLong) => NoReading::TooLong,
            Err(Silence::Abandoned) => NoReading::Abandoned,
            Err(Silence::NotAsked) => NoReading::NotAsked,
            Err(Silence::Failed(why)) => NoReading::Failed(why),
        })
    }

    fn contents_until(&self, disk: &Disk, until: Instant) -> Contents {
        match self.look_at(disk, until) {
            Ok(contents) => contents,
            Err(why) => {
                let why = match why {
                    Silence::NotInstalled => "the programs wipefs and dd are not installed".into(),
                    Silence::TimedOut => {
                        format!("it did not answer for {} seconds", self.options.time_max.as_secs())
                    }
                    Silence::TooLong => "the answer is too long".into(),
                    Silence::Abandoned => "an earlier query still hangs".into(),
                    Silence::NotAsked => "there was no time for it, or other disks hang".into(),
                    Silence::Failed(why) => why,
                };
                Contents { source: ContentsSource::Failed(why), ..disk.contents.clone() }
            }
        }
    }

    fn look_at(&self, disk: &Disk, until: Instant) -> Result<Contents, Silence> {
        let mut contents = Contents { source: ContentsSource::Disk, ..Contents::default() };
        if self.has_label(disk, until)? {
            let kind = "forebay".to_owned();
            contents.signatures.push(Signature {
                usage: SignatureUsage::Forebay,
                kind,
                label: None,
                uuid: None,
            });
        }
        let wipefs = find_program("wipefs").ok_or(Silence::NotInstalled)?;
        let node = self.node(disk);
        let arguments = ["--no-act", "--json", "--output", "TYPE,LABEL,UUID,USAGE", "--", &node];
        let output = self.ask(disk, &wipefs, &arguments, 64 * 1024, until)?;
        if output.status != Some(0) {
            return Err(Silence::Failed("wipefs cannot read it".into()));
        }
        add_signatures(&output.bytes, &mut contents).map_err(|why| Silence::Failed(why.into()))?;
        Ok(contents)
    }

    /// Whether there is a Forebay label, of any version, at the beginning or the end.
    fn has_label(&self, disk: &Disk, until: Instant) -> Result<bool, Silence> {
        let dd = find_program("dd").ok_or(Silence::NotInstalled)?;
        let (input, block, count) =
            (format!("if={}", self.node(disk)), format!("bs={LABEL_STEP}"), format!("count={LABEL_STEPS}"));
        let last = (disk.size / LABEL_STEP).saturating_sub(LABEL_STEPS - 1);
        for skipped in [0, last] {
            let skip = format!("skip={skipped}");
            let arguments = [&*input, &block, &count, &skip, "status=none"];
            let max = (LABEL_STEP * LABEL_STEPS) as usize;
            let output = self.ask(disk, &dd, &arguments, max, until)?;
            if output.status != Some(0) {
                return Err(Silence::Failed("reading it fails".into()));
            }
            // A truthful device gives what was asked for: less would be an end where none is.
            if output.bytes.is_empty() && disk.size > 0 {
                return Err(Silence::Failed("it returns no data".into()));
            }
            if output.bytes.chunks(LABEL_STEP as usize).any(|step| step.starts_with(LABEL_MAGIC)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The node to ask: of several paths one that works. smartctl does not know multipath maps, and any path tells the same.
    fn node(&self, disk: &Disk) -> String {
        let works = |state: Option<&str>| matches!(state, None | Some("running" | "live"));
        let path = disk.paths.iter().find(|path| path.hctl.is_some() && works(path.state.as_deref()));
        let name = path.map_or(&disk.name, |path| &path.name).replace('!', "/");
        self.options.root.join("dev").join(name).to_string_lossy().into_owned()
    }

    /// Runs a program that asks a disk, when its turn comes.
    fn ask(
        &self,
        disk: &Disk,
        program: &Path,
        arguments: &[&str],
        output: usize,
        until: Instant,
    ) -> Result<Output, Silence> {
        self.check_abandoned(disk)?;
        let _permit = self.permit(until).ok_or(Silence::NotAsked)?;
        // While this waited, the disk may have begun to hang, or too many others.
        self.check_abandoned(disk)?;
        let left = until.saturating_duration_since(Instant::now());
        let limits = Limits { time: self.options.time_max.min(left), output, kill: self.kill };
        run(program, arguments, limits).map_err(|error| match error {
            RunError::NotFound => Silence::NotInstalled,
            RunError::Failed(why) => Silence::Failed(clean(why.as_bytes())),
            // Cut short by the caller's budget: nothing is held against the disk.
            RunError::TimedOut if left < self.options.time_max => Silence::NotAsked,
            RunError::TimedOut => Silence::TimedOut,
            RunError::TooLong => Silence::TooLong,
            RunError::Stuck(child) => {
                lock(&self.abandoned).entry(disk.identity.0.clone()).or_default().push(child);
                Silence::Abandoned
            }
        })
    }

    fn check_abandoned(&self, disk: &Disk) -> Result<(), Silence> {
        let abandoned = self.reap();
        if abandoned.contains_key(&disk.identity.0) {
            return Err(Silence::Abandoned);
        }
        if abandoned.values().map(Vec::len).sum::<usize>() >= ABANDONED_MAX {
            Err(Silence::NotAsked)
        } else {
            Ok(())
        }
    }

    /// Those that hang still, after those that ended were let go.
    fn reap(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Child>>> {
        let mut abandoned = lock(&self.abandoned);
        abandoned.retain(|_, children| {
            children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            !children.is_empty()
        });
        abandoned
    }

    /// One of [`Options::at_once`]; nothing when none was had by then.
    fn permit(&self, until: Instant) -> Option<Permit<'_>> {
        let mut running = lock(&self.running);
        while *running >= self.options.at_once.max(1) {
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            running = self.ended.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if Instant::now() >= until {
            return None;
        }
        *running += 1;
        Some(Permit(self))
    }

    /// `work` for each number below `count`, by a few threads; the results in order.
    fn for_each<T: Send>(&self, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
        let worker = || loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            let result = work(at);
            lock(&results).push((at, result));
        };
        thread::scope(|scope| {
            let others = self.options.at_once.min(count).saturating_sub(1);
            for _ in 0..others {
                // Without threads, this one does all.
                let _ = thread::Builder::new().name("forebay-disks".into()).spawn_scoped(scope, worker);
            }
            worker();
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// The right to run one program.
struct Permit<'a>(&'a Examiner);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *lock(&self.0.running) -= 1;
        self.0.ended.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds what wipefs lists. It prints nothing when there is nothing.
fn add_signatures(output: &[u8], contents: &mut Contents) -> Result<(), &'static str> {
    if output.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let document: Value =
        serde_json::from_slice(output).map_err(|_| "the answer of wipefs cannot be read")?;
    let list = document["signatures"].as_array().ok_or("the answer of wipefs cannot be read")?;
    let text =
        |value: &Value| value.as_str().map(|text| clean(text.as_bytes())).filter(|text| !text.is_empty());
    for one in list {
        let kind = text(&one["type"]).unwrap_or_else(|| "unknown".into());
        if matches!(one["usage"].as_str(), Some("partition-table"))
            || matches!(&*kind, "gpt" | "dos" | "PMBR")
        {
            contents.partition_table.get_or_insert(kind);
            continue;
        }
        let usage = usage_of(&kind, one["usage"].as_str());
        let found = Signature { usage, kind, label: text(&one["label"]), uuid: text(&one["uuid"]) };
        // A file system has its signature in several places.
        if !contents.signatures.contains(&found) {
            contents.signatures.push(found);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::blank;

    #[test]
    fn a_hung_query_is_abandoned_and_its_disk_left_alone_until_it_ends() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let smartctl = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-smartctl");
        std::fs::create_dir_all(directory.path().join("smart")).expect("a directory can be made");
        std::fs::write(directory.path().join("smart/sda.hang"), "").expect("a file can be made");
        let time_max = Duration::from_millis(200);
        let options = Options {
            root: directory.path().into(),
            smartctl: Some(smartctl),
            time_max,
            ..Options::default()
        };
        let examiner = Examiner { kill: |_| {}, ..Examiner::new(options) };
        let (hung, other) = (blank("sda"), blank("sdb"));
        let begun = Instant::now();
        assert_eq!(examiner.read_health(&hung), Reading::None(NoReading::Abandoned));
        assert_eq!(examiner.read_health(&hung), Reading::None(NoReading::Abandoned));
        assert_eq!(examiner.abandoned(), 1, "it was not asked a second time");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(
            matches!(examiner.read_health(&other), Reading::None(NoReading::Unreadable(_))),
            "another is"
        );
        for child in lock(&examiner.abandoned).values_mut().flatten() {
            child.kill().expect("it can be ended after all");
            child.wait().expect("it ends");
        }
        assert_eq!(examiner.abandoned(), 0);
        std::fs::remove_file(directory.path().join("smart/sda.hang")).expect("it is there");
        assert!(
            matches!(examiner.read_health(&hung), Reading::None(NoReading::Unreadable(_))),
            "it is asked again"
        );
    }

    #[test]
    fn signatures_of_wipefs_are_read_and_nonsense_is_an_error() {
        let mut contents = Contents::default();
        let output = br#"{"signatures":[{"type":"ext4","label":"data","uuid":"1-2","usage":"filesystem"},
            {"type":"gpt","label":null,"uuid":null,"usage":"partition-table"},{"type":"gpt"},
            {"type":"LVM2_member","usage":"raid"},{"type":"<b>\u001b","usage":5}]}"#;
        add_signatures(output, &mut contents).expect("it can be read");
        assert_eq!(contents.partition_table.as_deref(), Some("gpt"));
        let kinds: Vec<_> = contents.signatures.iter().map(|one| (one.usage, &*one.kind)).collect();
        use SignatureUsage::{FileSystem, Member, Other};
        assert_eq!(kinds, [(FileSystem, "ext4"), (Member, "LVM2_member"), (Other, "<b>")]);
        assert!(add_signatures(b" \n", &mut contents).is_ok());
        assert!(
            add_signatures(b"{}", &mut contents).is_err() && add_signatures(b"{", &mut contents).is_err()
        );
    }
}
