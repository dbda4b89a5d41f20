//! Intervals that are kept for ever: copied whole into a directory of their own, `pins/NAME`.
//!
//! A copy has each moment once, in the finest resolution that there is of it. It is made under another name and renamed when all of it is on the disk.

use crate::block::{Block, Resolution};
use crate::files::{Bounds, Segment, Track, make_private};
use crate::view::View;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest that one pin keeps.
pub(crate) const SECONDS_MAX: u64 = 86_400;
/// How many there are at most.
pub(crate) const PINS_MAX: usize = 200;
/// One segment of each resolution, however long.
const BOUNDS: Bounds = Bounds { bytes: u64::MAX, span: u64::MAX };
const UNFINISHED: &str = "new-";

/// Why an interval is not pinned.
#[derive(Debug)]
pub enum PinError {
    /// Longer than this many seconds, or empty.
    Length(u64),
    /// There are so many already.
    TooMany(usize),
    /// All pins together would have more bytes than this.
    NoRoom(u64),
    /// Nothing is kept of it (any more).
    Nothing,
    Io(io::Error),
}

impl From<io::Error> for PinError {
    fn from(error: io::Error) -> PinError {
        PinError::Io(error)
    }
}

pub(crate) struct Pins {
    dir: PathBuf,
    bytes_max: u64,
    kept: BTreeMap<String, [Vec<Arc<Segment>>; 3]>,
}

impl Pins {
    pub fn open(dir: PathBuf, bytes_max: u64) -> io::Result<Pins> {
        make_private(&dir)?;
        let mut pins = Pins { dir, bytes_max, kept: BTreeMap::new() };
        for entry in fs::read_dir(&pins.dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with(UNFINISHED) {
                fs::remove_dir_all(entry.path())?;
            } else if entry.file_type()?.is_dir() {
                pins.kept.insert(name, segments(&entry.path())?);
            }
        }
        Ok(pins)
    }

    /// Copies what a view has of an interval.
    pub fn add(&mut self, name: &str, range: Range<u64>, view: &View) -> Result<(), PinError> {
        debug_assert!(is_name(name), "a name that is a file's");
        if range.is_empty() || range.end - range.start > SECONDS_MAX {
            return Err(PinError::Length(SECONDS_MAX));
        }
        if !self.kept.contains_key(name) && self.kept.len() >= PINS_MAX {
            return Err(PinError::TooMany(PINS_MAX));
        }
        let others = self.kept.iter().filter(|(other, _)| *other != name);
        let left = self.bytes_max.saturating_sub(others.map(|(_, kept)| bytes(kept)).sum());
        let unfinished = self.dir.join(format!("{UNFINISHED}{name}"));
        let copied = copy(&unfinished, range, view, left);
        if let Err(error) = copied {
            // What is left of it is removed at the next start, at the latest.
            let _ = fs::remove_dir_all(&unfinished);
            return Err(error);
        }
        self.remove(name)?;
        let path = self.dir.join(name);
        fs::rename(&unfinished, &path)?;
        File::open(&self.dir)?.sync_all()?;
        self.kept.insert(name.into(), segments(&path)?);
        Ok(())
    }

    pub fn remove(&mut self, name: &str) -> io::Result<()> {
        if self.kept.remove(name).is_some() {
            fs::remove_dir_all(self.dir.join(name))?;
        }
        Ok(())
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.kept.keys()
    }

    /// All segments by resolution, in the order of their beginnings.
    pub fn segments(&self) -> [Vec<Arc<Segment>>; 3] {
        Resolution::ALL.map(|resolution| {
            let all = self.kept.values().flat_map(|kept| &kept[resolution as usize]);
            let mut all: Vec<Arc<Segment>> = all.cloned().collect();
            all.sort_by_key(|segment| segment.first);
            all
        })
    }
}

/// Letters, digits and `-`, as UUIDs have them.
fn is_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(is_fine) && !name.starts_with(UNFINISHED)
}

fn bytes(kept: &[Vec<Arc<Segment>>; 3]) -> u64 {
    kept.iter().flatten().map(|segment| segment.len).sum()
}

fn segments(dir: &Path) -> io::Result<[Vec<Arc<Segment>>; 3]> {
    let mut all = [const { Vec::new() }; 3];
    for resolution in Resolution::ALL {
        all[resolution as usize] = Track::open(dir, resolution, BOUNDS)?.segments();
    }
    Ok(all)
}

fn copy(dir: &Path, range: Range<u64>, view: &View, bytes_max: u64) -> Result<(), PinError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => make_private(dir)?,
    }
    // Each resolution until the next finer begins.
    let mut end = range.end;
    let mut bytes = 0;
    for resolution in Resolution::ALL {
        let mut track = Track::open(dir, resolution, BOUNDS)?;
        let seconds = resolution.seconds();
        let mut first = None;
        let mut copied = Ok(());
        let mut take = |block: &Block| {
            if block.header.resolution != resolution {
                return ControlFlow::Continue(());
            }
            first = Some(first.map_or(block.header.start, |first: u64| first.min(block.header.start)));
            bytes += block.bytes().len() as u64;
            copied = match bytes > bytes_max {
                true => Err(PinError::NoRoom(bytes_max)),
                false => track.append(block).map_err(PinError::from),
            };
            if copied.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // Whole blocks that begin within what is left.
        let start = range.start - range.start % seconds;
        let until = end - end % seconds;
        view.blocks(start..until.max(start), seconds, &mut take);
        copied?;
        track.close()?;
        end = first.unwrap_or(end);
    }
    if bytes == 0 {
        return Err(PinError::Nothing);
    }
    File::open(dir)?.sync_all()?;
    Ok(())
}
