//! The store: what was counted, for as long as it is kept.
//!
//! A second is in memory and in its file when [`Store::append`] returns; the disk is told to keep it once a minute. A process that is killed loses
//! nothing that was appended; a machine that loses power, a minute at most, and never what was on the disk before. Minutes and hours that were being
//! added up are added up again from seconds when the store is opened.
//!
//! Bounds: [`RECENT_SECONDS`] and [`RECENT_BYTES`] in memory; on disk, what [`Options`] say. What is too old or too much goes in whole segments, the
//! oldest first; of those whose age is too great, one at a time, so that a clock that is wrong for a minute does not cost everything.

use crate::block::{Block, Resolution};
use crate::catalogue::{Layer, Noun};
use crate::files::{Bounds, Track, make_private};
use crate::intake::{ROWS_MAX, Table, add, bound};
use crate::pins::{PinError, Pins};
use crate::rollup::{Layers, Rollup};
use crate::row::{Cell, Second};
use crate::view::View;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;

/// What is asked for most often, and shown when the disk is full: ten minutes.
const RECENT_SECONDS: usize = 600;
const RECENT_BYTES: usize = 16 << 20;
/// Between two calls that wait for the disk.
const SYNC_SECONDS: u64 = 60;
/// What is added up again when a store is opened: a minute or an hour that was not over, and some more for one that could not be written.
const CAUGHT_UP_SECONDS: u64 = 2 * 3600;
/// A segment of seconds is an hour, of minutes a day, of hours a month; or a part of all that is kept.
const SPANS: [u64; 3] = [3600, 86_400, 30 * 86_400];
const SEGMENT_BYTES: (u64, u64) = (64 << 10, 16 << 20);
const SEGMENTS_OF_BUDGET: u64 = 64;

/// What is kept.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// All blocks together, without pins; these may have half as much again.
    pub bytes_max: u64,
    /// How old seconds, minutes and hours may be.
    pub kept_seconds: [u64; 3],
}

impl Default for Options {
    fn default() -> Options {
        Options { bytes_max: 2 << 30, kept_seconds: [7 * 86_400, 14 * 86_400, 90 * 86_400] }
    }
}

pub struct Store {
    options: Options,
    tracks: [Track; 3],
    minute: Rollup,
    hour: Rollup,
    recent: VecDeque<Block>,
    recent_bytes: usize,
    until: [u64; 3],
    pins: Pins,
    synced_at: u64,
    checked_at: u64,
}

impl Store {
    /// Makes the directory if there is none. Reads the last hours of what is in it, at most.
    pub fn open(dir: &Path, options: Options) -> io::Result<Store> {
        make_private(dir)?;
        let bytes = (options.bytes_max / SEGMENTS_OF_BUDGET).clamp(SEGMENT_BYTES.0, SEGMENT_BYTES.1);
        let track = |resolution: Resolution| {
            Track::open(dir, resolution, Bounds { bytes, span: SPANS[resolution as usize] })
        };
        let mut store = Store {
            options,
            tracks: [track(Resolution::Second)?, track(Resolution::Minute)?, track(Resolution::Hour)?],
            minute: Rollup::new(Resolution::Minute),
            hour: Rollup::new(Resolution::Hour),
            recent: VecDeque::new(),
            recent_bytes: 0,
            until: [0; 3],
            pins: Pins::open(dir.join("pins"), options.bytes_max / 2)?,
            synced_at: 0,
            checked_at: 0,
        };
        store.catch_up()?;
        Ok(store)
    }

    /// Adds up what was not over when the last process ended.
    fn catch_up(&mut self) -> io::Result<()> {
        for resolution in [Resolution::Minute, Resolution::Hour] {
            let last = self.tracks[resolution as usize].segments().iter().map(|segment| segment.last).max();
            self.until[resolution as usize] = last.map_or(0, |last| last + resolution.seconds());
        }
        let last = |track: &Track| track.segments().iter().map(|segment| segment.last).max().unwrap_or(0);
        let minutes = self.until[Resolution::Hour as usize]
            .max(last(&self.tracks[Resolution::Minute as usize]).saturating_sub(CAUGHT_UP_SECONDS));
        self.replay(Resolution::Minute, minutes, |store, block| store.roll_hour(&block, &block.lines()))?;
        let seconds = self.until[Resolution::Minute as usize]
            .max(last(&self.tracks[Resolution::Second as usize]).saturating_sub(CAUGHT_UP_SECONDS));
        self.replay(Resolution::Second, seconds, |store, block| {
            let rolled = store.roll_up(block.header.start, &block.lines());
            store.remember(block);
            rolled
        })
    }

    /// Takes blocks from a time on once more, one after the other.
    fn replay(
        &mut self,
        resolution: Resolution,
        from: u64,
        mut take: impl FnMut(&mut Store, Block) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut taken = Ok(());
        for segment in self.tracks[resolution as usize].segments() {
            // What cannot be read is not there.
            let _ = segment.read(from..u64::MAX, &mut |block| {
                taken = take(self, block);
                if taken.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        }
        taken
    }

    /// Takes a second. When this fails it is in memory, and only there.
    pub fn append(&mut self, second: Second) -> io::Result<()> {
        let Second { at_unix_s, rows } = second;
        let mut tables: BTreeMap<Layer, Table> = BTreeMap::new();
        for row in rows {
            let (layer, labels, cells) = row.into_cells();
            add(tables.entry(layer).or_default(), layer, labels, cells, Cell::beside);
        }
        let mut merged = 0;
        let bounded = tables.into_iter().map(|(layer, table)| {
            let (lines, into_others) = bound(layer, table, ROWS_MAX);
            merged += into_others;
            (layer, lines)
        });
        let mut layers: Layers = bounded.collect();
        let rows: usize = layers.iter().map(|(_, lines)| lines.len()).sum();
        observe(&mut layers, rows as u64, merged);
        let failed = || io::Error::new(io::ErrorKind::InvalidData, "a second is larger than a block may be");
        let block = Block::encode(Resolution::Second, at_unix_s, 1, &layers).ok_or_else(failed)?;
        self.remember(block.clone());
        let written = self.tracks[Resolution::Second as usize].append(&block);
        let rolled = self.roll_up(at_unix_s, &layers);
        let kept = self.keep_house(at_unix_s);
        written.and(rolled).and(kept)
    }

    fn remember(&mut self, block: Block) {
        // The clock was set back: what is in memory is behind what is in files, and in order.
        if self.recent.back().is_some_and(|last| last.header.start > block.header.start) {
            self.recent.clear();
            self.recent_bytes = 0;
        }
        self.recent_bytes += block.bytes().len();
        self.recent.push_back(block);
        while self.recent.len() > RECENT_SECONDS
            || (self.recent_bytes > RECENT_BYTES && self.recent.len() > 1)
        {
            let gone = self.recent.pop_front().map_or(0, |block| block.bytes().len());
            self.recent_bytes -= gone;
        }
    }

    fn roll_up(&mut self, at: u64, layers: &Layers) -> io::Result<()> {
        let Some((block, layers)) = self.minute.push(at, 1, layers) else { return Ok(()) };
        let written = self.keep(&block);
        written.and(self.roll_hour(&block, &layers))
    }

    fn roll_hour(&mut self, minute: &Block, layers: &Layers) -> io::Result<()> {
        match self.hour.push(minute.header.start, minute.header.seconds, layers) {
            Some((block, _)) => self.keep(&block),
            None => Ok(()),
        }
    }

    fn keep(&mut self, block: &Block) -> io::Result<()> {
        let resolution = block.header.resolution;
        self.tracks[resolution as usize].append(block)?;
        // Not before it is there: until then its seconds are asked.
        self.until[resolution as usize] = block.header.start + resolution.seconds();
        Ok(())
    }

    /// Brings what is new to the disk, and removes what is too old or too much.
    fn keep_house(&mut self, now: u64) -> io::Result<()> {
        if now.abs_diff(self.synced_at) >= SYNC_SECONDS {
            self.synced_at = now;
            self.sync()?;
        }
        if now.abs_diff(self.checked_at) < SYNC_SECONDS && self.bytes() <= self.options.bytes_max {
            return Ok(());
        }
        self.checked_at = now;
        for (track, kept) in self.tracks.iter_mut().zip(self.options.kept_seconds) {
            if track.oldest().is_some_and(|segment| segment.last.saturating_add(kept) < now) {
                track.remove_oldest()?;
            }
        }
        while self.bytes() > self.options.bytes_max {
            let Some(track) = self.tracks.iter_mut().find(|track| track.oldest().is_some()) else { break };
            track.remove_oldest()?;
        }
        Ok(())
    }

    /// Returns when all that was appended is on the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.tracks.iter_mut().try_for_each(Track::sync)
    }

    /// Bytes on disk, without pins.
    pub fn bytes(&self) -> u64 {
        self.tracks.iter().map(Track::bytes).sum()
    }

    /// What there is now, for queries.
    pub fn view(&self) -> View {
        View {
            segments: self.tracks.each_ref().map(Track::segments),
            pins: self.pins.segments(),
            recent: self.recent.iter().cloned().collect(),
            until: self.until,
        }
    }

    /// Keeps an interval for ever, under a name of letters, digits and `-`; one with this name before is replaced.
    pub fn pin(&mut self, name: &str, range: Range<u64>) -> Result<(), PinError> {
        let view = self.view();
        self.pins.add(name, range, &view)
    }

    /// Gives up what was pinned under a name, if anything was.
    pub fn unpin(&mut self, name: &str) -> io::Result<()> {
        self.pins.remove(name)
    }

    /// Names under which something is pinned.
    pub fn pins(&self) -> impl Iterator<Item = &String> {
        self.pins.names()
    }
}

/// Adds what the intake itself has to say: how many rows there are is known only now.
fn observe(layers: &mut Layers, rows: u64, merged: u64) {
    let cells =
        vec![(Noun::Rows, Cell::Level { sum: rows.into(), seconds: 1 }), (Noun::Merged, Cell::Count(merged))];
    let place = match layers.iter().position(|(layer, _)| *layer == Layer::Observer) {
        Some(place) => place,
        None => {
            layers.push((Layer::Observer, Vec::new()));
            layers.len() - 1
        }
    };
    let mut table: Table = layers[place].1.drain(..).map(|line| (line.labels, line.cells)).collect();
    table.values_mut().for_each(|cells| cells.retain(|(noun, _)| *noun != Noun::Rows));
    add(&mut table, Layer::Observer, Vec::new(), cells, Cell::beside);
    layers[place].1 = bound(Layer::Observer, table, ROWS_MAX).0;
}
