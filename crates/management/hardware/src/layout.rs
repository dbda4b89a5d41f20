//! Sensible layouts for a new pool from a set of free disks: a pure function and its table of rules.
//!
//! 1. Disks are put into classes: turning or flash, and sizes within [`SIZE_SPREAD`] % of the largest. Classes are never mixed in a group: the largest
//!    class by capacity holds the data, and the others are named as left over.
//! 2. Where the data disks turn, flash helps: as many of one flash class as a log group needs to lose what the data group can lose become log disks, and
//!    others become cache disks, which hold copies only. Too few for a safe log: they are all cache disks.
//! 3. The group has to be able to lose two disks where a rebuild is long or losses are many: disks that turn of [`LARGE_DISK`] bytes and more (hours of reading at best and a day in use, in which another may
//!    fail), or [`MANY_DISKS`] disks and more. Otherwise one. One disk alone loses nothing only as long as it lives.
//! 4. A group is at least one disk larger than its width where there are enough, so that it can rebuild onto spare space at once.
//! 5. The order: parity first from six disks on, since the engine writes whole stripes and parity costs less space; mirrors first below, where parity would
//!    save little.
//!
//! Sizes are estimates: what labels, records and the reserve take is counted as a 64th and a 64th. The engine has the last word.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Percent by which sizes in one class may differ: makers' disks "of 4 TB" differ by less.
pub const SIZE_SPREAD: u64 = 10;
/// Bytes: turning disks of 4 TB and more take over five hours to read at best, and a day in use.
pub const LARGE_DISK: u64 = 4_000_000_000_000;
/// Disks of a group from which two losses at once are likely enough.
pub const MANY_DISKS: usize = 12;
/// Flash below this is no help as a log: a shard's log is up to 1 GiB.
const LOG_DISK_MIN: u64 = 8_000_000_000;
/// Disks that a pool is created with at most, as the management API takes it; more are added to it later.
const DISKS_MAX: usize = 1024;
/// Parity layouts that are suggested, the widest first. Powers of two of data cells fit blocks of powers of two.
const DATA_WIDTHS: [u8; 4] = [16, 8, 4, 2];
/// Bytes of a disk below which the engine takes none.
const DISK_BYTES_MIN: u64 = 22 << 20;

/// A disk that a pool could have.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// The path that the pool is given, [`crate::Disk::device`].
    pub device: String,
    pub size: u64,
    pub rotational: bool,
    /// The enclosure that it is in, if known.
    pub enclosure: Option<String>,
}

impl From<&crate::Disk> for Candidate {
    fn from(disk: &crate::Disk) -> Candidate {
        let enclosure = disk.slot.as_ref().and_then(|slot| slot.enclosure.clone());
        Candidate { device: disk.device.clone(), size: disk.size, rotational: disk.rotational, enclosure }
    }
}

/// How a group protects data; its name is the one of `pool create --layout`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    Single,
    Mirror,
    Mirror3,
    Parity { data: u8, parity: u8 },
}

impl Layout {
    pub fn data(self) -> u8 {
        if let Layout::Parity { data, .. } = self { data } else { 1 }
    }
    /// Disks that a group can lose.
    pub fn redundancy(self) -> u8 {
        match self {
            Layout::Single => 0,
            Layout::Mirror => 1,
            Layout::Mirror3 => 2,
            Layout::Parity { parity, .. } => parity,
        }
    }
    /// Disks that hold a part of each piece of data.
    pub fn width(self) -> usize {
        usize::from(self.data() + self.redundancy())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Layout::Single => f.write_str("single"),
            Layout::Mirror => f.write_str("mirror"),
            Layout::Mirror3 => f.write_str("mirror3"),
            Layout::Parity { data, parity } => write!(f, "{data}+{parity}"),
        }
    }
}

/// A layout that makes sense.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Suggestion {
    pub layout: Layout,
    /// Paths of the data disks.
    pub disks: Vec<String>,
    pub log_disks: Vec<String>,
    pub cache_disks: Vec<String>,
    /// Bytes for data, about: after redundancy and the engine's own.
    pub usable: u64,
    /// Bytes of the data disks together.
    pub raw: u64,
    /// Disks that may fail at once without a loss.
    pub survives_disks: u8,
    /// Whether the loss of a whole enclosure is survived.
    pub survives_enclosure: bool,
    /// Whether what a failed disk held can be rebuilt on the others without a new disk.
    pub rebuilds_at_once: bool,
    /// One sentence: why this one.
    pub why: String,
}

/// Suggestions, the best first; none without disks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Suggestions {
    /// Four at most.
    pub ranked: Vec<Suggestion>,
    /// One sentence each: disks that are in no suggestion, and why.
    pub notes: Vec<String>,
}

/// Sensible layouts for a pool of these disks. The same disks give the same answer, in whatever order.
pub fn suggest(disks: &[Candidate]) -> Suggestions {
    let mut notes = Vec::new();
    let mut disks: Vec<&Candidate> = disks.iter().collect();
    disks.sort_by(|a, b| (a.size, &a.device).cmp(&(b.size, &b.device)).reverse());
    disks.dedup_by(|a, b| a.device == b.device);
    let small = disks.iter().filter(|disk| disk.size < DISK_BYTES_MIN).count();
    disks.retain(|disk| disk.size >= DISK_BYTES_MIN);
    if small > 0 {
        notes.push(format!("{} too small.", disks_are(small)));
    }
    let mut classes = classify(&disks);
    let Some(main) = (0..classes.len()).max_by_key(|at| capacity(&classes[*at])) else {
        return Suggestions { ranked: Vec::new(), notes };
    };
    let mut main = classes.swap_remove(main);
    let flash = flash_for(&main, &mut classes);
    if main.len() + flash.len() > DISKS_MAX {
        let most = DISKS_MAX - flash.len();
        notes.push(format!(
            "{} left over: a pool is created with {DISKS_MAX} disks at most.",
            disks_are(main.len() - most)
        ));
        main.truncate(most);
    }
    classes.sort_by_key(|class| std::cmp::Reverse(capacity(class)));
    for class in &classes {
        let (kind, size) = (if class[0].rotational { "turning" } else { "flash" }, show(class[0].size));
        notes
            .push(format!("{} left over: {kind} disks of {size} are another class.", disks_are(class.len())));
    }
    let ranked = layouts(&main).into_iter().map(|(layout, why)| build(layout, why, &main, &flash)).collect();
    Suggestions { ranked, notes }
}

/// Disks of one kind and about one size, the largest first, in classes.
fn classify<'a>(disks: &[&'a Candidate]) -> Vec<Vec<&'a Candidate>> {
    let mut classes: Vec<Vec<&Candidate>> = Vec::new();
    for disk in disks {
        let fits = |class: &&mut Vec<&Candidate>| {
            let largest = class[0];
            largest.rotational == disk.rotational && disk.size >= largest.size / 100 * (100 - SIZE_SPREAD)
        };
        match classes.iter_mut().find(fits) {
            Some(class) => class.push(disk),
            None => classes.push(vec![disk]),
        }
    }
    classes
}

fn capacity(class: &[&Candidate]) -> u128 {
    class.iter().map(|disk| u128::from(disk.size)).sum()
}

/// The flash that helps turning data disks: the class with most disks, taken out of `classes`.
fn flash_for<'a>(main: &[&Candidate], classes: &mut Vec<Vec<&'a Candidate>>) -> Vec<&'a Candidate> {
    let is_flash = |class: &[&Candidate]| !class[0].rotational && class[0].size >= LOG_DISK_MIN;
    let best = (0..classes.len()).filter(|at| is_flash(&classes[*at])).max_by_key(|at| classes[*at].len());
    match best {
        Some(at) if main[0].rotational => classes.swap_remove(at),
        _ => Vec::new(),
    }
}

/// Losses that a group of these disks should survive.
fn losses(main: &[&Candidate]) -> u8 {
    let is_large = main[0].rotational && main[0].size >= LARGE_DISK;
    if is_large || main.len() >= MANY_DISKS { 2 } else { 1 }
}

/// The layouts that these disks allow and that make sense, the best first.
fn layouts(main: &[&Candidate]) -> Vec<(Layout, String)> {
    let (count, losses) = (main.len(), losses(main));
    if count == 1 {
        let why = "One disk cannot protect data: its failure loses all data.".into();
        return vec![(Layout::Single, why)];
    }
    let parity = |parity: u8| -> Vec<Layout> {
        // With a disk to rebuild onto, where there are enough disks for that at all.
        let room = if count > 4 { count - 1 } else { count };
        let fits = |data: &u8| usize::from(*data + parity) <= room;
        DATA_WIDTHS.into_iter().filter(fits).map(|data| Layout::Parity { data, parity }).collect()
    };
    let mirror = if losses == 2 && count >= 3 { Layout::Mirror3 } else { Layout::Mirror };
    let mirror_why = match mirror {
        Layout::Mirror3 => {
            "The fastest for small random reads that survives two failures; a rebuild reads one disk only."
        }
        _ => "The fastest for small random reads and writes; a rebuild reads one disk only.",
    };
    let mut list = Vec::new();
    let safe = parity(losses);
    // The widest that is still moderate goes first; a wider one is for capacity.
    let moderate = safe.iter().copied().find(|layout| layout.data() <= 8);
    if let Some(layout) = moderate {
        let lost = if losses == 2 { "two failures" } else { "one failure" };
        let size = show(main[0].size);
        let because = match (losses, main[0].rotational && main[0].size >= LARGE_DISK) {
            (2, true) => format!(", as disks of {size} take long to rebuild"),
            (2, false) => ", as many disks fail more often".into(),
            _ => String::new(),
        };
        list.push((layout, format!("Much capacity; survives {lost}{because}.")));
    }
    let at = if count >= 6 { list.len() } else { 0 };
    list.insert(at, (mirror, mirror_why.into()));
    if let Some(widest) = safe.first().filter(|widest| Some(**widest) != moderate) {
        list.push((*widest, "The most capacity; small writes and rebuilds touch more disks.".into()));
    }
    if let Some(safer) =
        parity(losses + 1).into_iter().find(|layout| layout.data() <= 8).filter(|_| count >= 6)
    {
        list.push((safer, format!("Survives {} failures, for data that is hard to restore.", losses + 1)));
    }
    if losses == 2 && count == 2 {
        list.retain(|(layout, _)| *layout == Layout::Mirror);
    }
    list.dedup_by_key(|(layout, _)| *layout);
    list.truncate(4);
    list
}

fn build(layout: Layout, why: String, main: &[&Candidate], flash: &[&Candidate]) -> Suggestion {
    let devices = |disks: &[&Candidate]| disks.iter().map(|disk| disk.device.clone()).collect();
    // A log that is lost loses acknowledged writes: it has to survive what the data survives, with three disks at most.
    let needed = usize::from(layout.redundancy()) + 1;
    let logs = if needed <= 3 && flash.len() >= needed { needed } else { 0 };
    // The smallest of the class are enough for a log.
    let (cache, log) = flash.split_at(flash.len() - logs);
    let sizes: Vec<u64> = main.iter().map(|disk| disk.size).collect();
    let pieces = chunks(&sizes, layout.width());
    let stored = u128::from(pieces) * u128::from(layout.data());
    // Labels and records: a 64th. What is given to no volume: a 64th.
    let usable = stored - stored / 32;
    Suggestion {
        layout,
        disks: devices(main),
        log_disks: devices(log),
        cache_disks: devices(cache),
        usable: u64::try_from(usable).unwrap_or(u64::MAX),
        raw: u64::try_from(capacity(main)).unwrap_or(u64::MAX),
        survives_disks: layout.redundancy(),
        survives_enclosure: survives_enclosure(layout, main),
        rebuilds_at_once: layout.redundancy() > 0 && main.len() > layout.width(),
        why,
    }
}

/// Bytes of each of `width` parts, each on another disk, that disks of these sizes can hold together: the greatest `c` for which the
/// disks, none counted for more than `c`, have `width` times `c`.
fn chunks(sizes: &[u64], width: usize) -> u64 {
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let held: u128 = sizes.iter().map(|size| u128::from((*size).min(middle))).sum();
        if held >= u128::from(middle) * width as u128 { low = middle } else { high = middle - 1 }
    }
    low
}

/// Whether no enclosure needs to hold more parts of a chunk than the layout can lose.
fn survives_enclosure(layout: Layout, main: &[&Candidate]) -> bool {
    let mut counts = std::collections::BTreeMap::new();
    for disk in main {
        let Some(enclosure) = &disk.enclosure else { return false };
        *counts.entry(enclosure).or_insert(0usize) += 1;
    }
    let most = usize::from(layout.redundancy());
    counts.len() > 1 && counts.values().map(|count| (*count).min(most)).sum::<usize>() >= layout.width()
}

fn disks_are(count: usize) -> String {
    if count == 1 { "1 disk is".into() } else { format!("{count} disks are") }
}

/// A size as makers give it.
fn show(bytes: u64) -> String {
    let (value, unit) = match bytes {
        1_000_000_000_000.. => (bytes as f64 / 1e12, "TB"),
        _ => (bytes as f64 / 1e9, "GB"),
    };
    if value >= 10.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}
