//! Blocks in files: segments that are appended to until they are long enough, closed, and removed whole.
//!
//! A segment is called `RESOLUTION-NUMBER` while it grows and `RESOLUTION-NUMBER-FIRST-LAST` from then on: a name says what is in it, so opening a
//! store reads one segment of each resolution and no more. Numbers rise; times need not, when the clock is set back.
//!
//! What does not verify is passed over: behind a damaged block its header says where the next begins, and behind a damaged header the next magic
//! is looked for. Opening cuts off what was torn at the end of the growing segment; nothing else ever changes what was written.

use crate::block::{Block, HEADER_LEN, Header, MAGIC, Resolution};
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// For a hop over most of a segment, a few reads; for one from its start, few enough calls.
const READ_BYTES: usize = 128 << 10;

/// Makes a directory that only its owner may enter, or makes it so.
pub(crate) fn make_private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o700))
}

/// A segment, as far as it was written at the time of the look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub path: PathBuf,
    pub number: u64,
    /// Starts of the first and the last block in time.
    pub first: u64,
    pub last: u64,
    pub len: u64,
}

impl Segment {
    /// Hands on its blocks that begin in `range`, in the order in which they were written.
    pub fn read(
        &self,
        range: Range<u64>,
        take: &mut dyn FnMut(Block) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<()>> {
        if self.first >= range.end || self.last < range.start {
            return Ok(ControlFlow::Continue(()));
        }
        let wanted = |header: &Header| range.contains(&header.start);
        read(&self.path, self.len, wanted, &mut |_, block| take(block)).map(|read| read.flow)
    }
}

struct Scan {
    /// Where the last block that verified ends.
    end: u64,
    flow: ControlFlow<()>,
}

/// Reads the blocks that are wanted, with where each ends.
fn read(
    path: &Path,
    len: u64,
    wanted: impl Fn(&Header) -> bool,
    take: &mut dyn FnMut(u64, Block) -> ControlFlow<()>,
) -> io::Result<Scan> {
    let mut file = BufReader::with_capacity(READ_BYTES, File::open(path)?);
    let mut scan = Scan { end: 0, flow: ControlFlow::Continue(()) };
    let mut at = 0;
    let mut bytes = Vec::new();
    while at + HEADER_LEN as u64 <= len {
        let mut head = [0; HEADER_LEN];
        match file.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        let Some(header) = Header::decode(&head) else {
            match next_magic(&mut file, at + 1)? {
                Some(found) => at = found,
                None => break,
            }
            continue;
        };
        let end = at + (HEADER_LEN + header.len) as u64;
        if end > len {
            // Torn, or still being written. A whole block may yet follow a torn one.
            match next_magic(&mut file, at + 1)? {
                Some(found) => at = found,
                None => break,
            }
            continue;
        }
        at = end;
        if !wanted(&header) {
            file.seek_relative(header.len as i64)?;
            continue;
        }
        bytes.clear();
        bytes.extend(head);
        bytes.resize(HEADER_LEN + header.len, 0);
        match file.read_exact(&mut bytes[HEADER_LEN..]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read?,
        }
        if let Some(block) = Block::verify(header, Arc::from(&bytes[..])) {
            scan.end = end;
            scan.flow = take(end, block);
            if scan.flow.is_break() {
                break;
            }
        }
    }
    Ok(scan)
}

/// Where the next magic stands at or behind `from`, with the reader there.
fn next_magic(file: &mut BufReader<File>, from: u64) -> io::Result<Option<u64>> {
    let mut at = from;
    file.seek(SeekFrom::Start(at))?;
    loop {
        let there = file.fill_buf()?;
        if there.is_empty() {
            return Ok(None);
        }
        match there.iter().position(|byte| *byte == MAGIC[0]) {
            None => {
                let len = there.len();
                at += len as u64;
                file.consume(len);
            }
            Some(ahead) => {
                at += ahead as u64;
                file.consume(ahead);
                let mut magic = [0; MAGIC.len()];
                match file.read_exact(&mut magic) {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                    read => read?,
                }
                // What was looked at is in the buffer as a rule, so this is no call.
                if magic == MAGIC {
                    file.seek_relative(-(MAGIC.len() as i64))?;
                    return Ok(Some(at));
                }
                file.seek_relative(1 - MAGIC.len() as i64)?;
                at += 1;
            }
        }
    }
}

/// When a segment is long enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub bytes: u64,
    /// From the first block to the last.
    pub span: u64,
}

/// All segments of one resolution in a directory, and the one that grows.
pub(crate) struct Track {
    dir: PathBuf,
    resolution: Resolution,
    bounds: Bounds,
    closed: VecDeque<Arc<Segment>>,
    growing: Option<(File, Segment)>,
    next_number: u64,
    /// Of the growing one, what may not be on disk yet.
    is_synced: bool,
}

impl Track {
    /// Reads names, and what lies in a segment that was not closed.
    pub fn open(dir: &Path, resolution: Resolution, bounds: Bounds) -> io::Result<Track> {
        let mut track = Track {
            dir: dir.into(),
            resolution,
            bounds,
            closed: VecDeque::new(),
            growing: None,
            next_number: 1,
            is_synced: true,
        };
        let (mut closed, mut left_open) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let Some((number, times)) = entry.file_name().to_str().and_then(|name| parse(resolution, name))
            else {
                continue;
            };
            track.next_number = track.next_number.max(number.saturating_add(1));
            match times {
                Some((first, last)) => {
                    let len = entry.metadata()?.len();
                    closed.push(Arc::new(Segment { path: entry.path(), number, first, last, len }));
                }
                None => left_open.push((number, entry.path())),
            }
        }
        closed.sort_by_key(|segment| segment.number);
        track.closed = closed.into();
        left_open.sort();
        for (number, path) in left_open {
            // Only a daemon that ended while it closed one leaves two.
            track.close()?;
            track.resume(number, &path)?;
        }
        Ok(track)
    }

    /// Goes on with a segment that grew; what is torn at its end is cut off.
    fn resume(&mut self, number: u64, path: &Path) -> io::Result<()> {
        let len = fs::metadata(path)?.len();
        let (mut first, mut last) = (u64::MAX, 0);
        let scan = read(path, len, |_| true, &mut |_, block| {
            (first, last) = (first.min(block.header.start), last.max(block.header.start));
            ControlFlow::Continue(())
        })?;
        if scan.end == 0 {
            return fs::remove_file(path);
        }
        let file = OpenOptions::new().append(true).open(path)?;
        if scan.end < len {
            file.set_len(scan.end)?;
        }
        self.growing = Some((file, Segment { path: path.into(), number, first, last, len: scan.end }));
        Ok(())
    }

    /// Writes a block behind all others. After an error nothing of it is left, or nothing that verifies.
    pub fn append(&mut self, block: &Block) -> io::Result<()> {
        let start = block.header.start;
        let bytes = block.bytes();
        if let Some((_, segment)) = &self.growing {
            let span = segment.last.max(start) - segment.first.min(start);
            if segment.len + bytes.len() as u64 > self.bounds.bytes || span >= self.bounds.span {
                self.close()?;
            }
        }
        if self.growing.is_none() {
            let number = self.next_number;
            let path = self.dir.join(format!("{}-{number:010}", self.resolution.name()));
            let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
            self.next_number += 1;
            self.growing = Some((file, Segment { path, number, first: start, last: start, len: 0 }));
        }
        let (file, segment) = self.growing.as_mut().expect("it was made above");
        if let Err(error) = file.write_all(bytes) {
            // What follows would stand behind half a block: found again, but only by looking for it.
            if file.set_len(segment.len).is_err() {
                self.growing = None;
            }
            return Err(error);
        }
        segment.len += bytes.len() as u64;
        (segment.first, segment.last) = (segment.first.min(start), segment.last.max(start));
        self.is_synced = false;
        Ok(())
    }

    /// Brings what was appended to the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some((file, _)) = self.growing.as_ref().filter(|_| !self.is_synced) {
            file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }

    /// Nothing more comes into the segment that grows.
    pub fn close(&mut self) -> io::Result<()> {
        self.sync()?;
        let Some((_, segment)) = self.growing.take() else { return Ok(()) };
        let Segment { number, first, last, .. } = segment;
        let name = format!("{}-{number:010}-{first}-{last}", self.resolution.name());
        let path = self.dir.join(name);
        fs::rename(&segment.path, &path)?;
        self.closed.push_back(Arc::new(Segment { path, ..segment }));
        Ok(())
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> Vec<Arc<Segment>> {
        let growing = self.growing.iter().map(|(_, segment)| Arc::new(segment.clone()));
        self.closed.iter().cloned().chain(growing).collect()
    }

    pub fn bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|segment| segment.len).sum();
        closed + self.growing.as_ref().map_or(0, |(_, segment)| segment.len)
    }

    /// The oldest segment that does not grow.
    pub fn oldest(&self) -> Option<&Arc<Segment>> {
        self.closed.front()
    }

    /// Removes the oldest segment that does not grow; its readers continue.
    pub fn remove_oldest(&mut self) -> io::Result<()> {
        if let Some(segment) = self.closed.pop_front() {
            fs::remove_file(&segment.path)?;
        }
        Ok(())
    }
}

/// Number and times in a name; `None` when it is none of this resolution's.
pub(crate) fn parse(resolution: Resolution, name: &str) -> Option<(u64, Option<(u64, u64)>)> {
    let mut parts = name.strip_prefix(resolution.name())?.strip_prefix('-')?.split('-');
    let number = parts.next()?.parse().ok()?;
    let times = match (parts.next(), parts.next()) {
        (Some(first), Some(last)) => Some((first.parse().ok()?, last.parse().ok()?)),
        (None, None) => None,
        _ => return None,
    };
    parts.next().is_none().then_some((number, times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Layer, Noun};
    use crate::intake::Line;
    use crate::row::Cell;
    use forebay_base::Random;

    const BOUNDS: Bounds = Bounds { bytes: 1 << 20, span: 3600 };

    fn block(start: u64) -> Block {
        let cells = vec![(Noun::Used, Cell::Level { sum: 7, seconds: 1 })];
        let lines = vec![Line { labels: vec![], cells }];
        Block::encode(Resolution::Second, start, 1, &[(Layer::Cpu, lines)]).unwrap()
    }

    fn starts(track: &Track, range: Range<u64>) -> Vec<u64> {
        let mut starts = Vec::new();
        for segment in track.segments() {
            let _ = segment.read(range.clone(), &mut |block| {
                assert_eq!(block.lines().len(), 1);
                starts.push(block.header.start);
                ControlFlow::Continue(())
            });
        }
        starts
    }

    fn open(dir: &Path) -> Track {
        Track::open(dir, Resolution::Second, BOUNDS).unwrap()
    }

    #[test]
    fn segments_are_closed_by_time_and_by_size_and_found_by_their_names() {
        let temp = tempfile::tempdir().unwrap();
        let mut track = open(temp.path());
        (0..5).for_each(|nth| track.append(&block(1000 + nth * 1800)).unwrap());
        assert_eq!(track.segments().len(), 3);
        let len = block(0).bytes().len() as u64;
        let mut track = Track { bounds: Bounds { bytes: 2 * len, ..BOUNDS }, ..open(temp.path()) };
        assert_eq!((track.segments().len(), track.bytes()), (3, 5 * len));
        (0..2).for_each(|nth| track.append(&block(8300 + nth)).unwrap());
        assert_eq!(track.segments().len(), 4);
        let track = open(temp.path());
        assert_eq!(starts(&track, 0..u64::MAX), [1000, 2800, 4600, 6400, 8200, 8300, 8301]);
        assert_eq!(starts(&track, 2800..8300), [2800, 4600, 6400, 8200]);
    }

    #[test]
    fn the_oldest_go_first_and_readers_read_on() {
        let temp = tempfile::tempdir().unwrap();
        let mut track = open(temp.path());
        (0..5).for_each(|nth| track.append(&block(1000 + nth * 3600)).unwrap());
        let before = track.segments();
        assert_eq!(track.oldest().unwrap().first, 1000);
        track.remove_oldest().unwrap();
        assert_eq!(starts(&track, 0..u64::MAX).len(), 4);
        assert!(before[0].read(0..u64::MAX, &mut |_| ControlFlow::Continue(())).is_err(), "it is gone");
        // The one that grows stays.
        (0..9).for_each(|_| track.remove_oldest().unwrap());
        assert_eq!((starts(&track, 0..u64::MAX), track.oldest()), (vec![1000 + 4 * 3600], None));
    }

    /// Goal: a cut anywhere loses the block that it is in and no other, and what is appended afterwards is read. Method: the growing segment cut at
    /// every byte of its last two blocks.
    #[test]
    fn a_cut_at_any_byte_loses_one_block() {
        let temp = tempfile::tempdir().unwrap();
        let mut track = open(temp.path());
        (0..4).for_each(|nth| track.append(&block(1000 + nth)).unwrap());
        let path = track.segments()[0].path.clone();
        drop(track);
        let whole = fs::read(&path).unwrap();
        let len = whole.len() / 4;
        for cut in 0..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let mut track = open(temp.path());
            let left: Vec<u64> = (0..(cut / len) as u64).map(|nth| 1000 + nth).collect();
            assert_eq!(starts(&track, 0..u64::MAX), left, "cut at {cut}");
            track.append(&block(5)).unwrap();
            let grown = open(temp.path());
            assert_eq!(starts(&grown, 0..u64::MAX), [&left[..], &[5]].concat(), "cut at {cut}");
            for segment in grown.segments() {
                fs::remove_file(&segment.path).unwrap();
            }
        }
    }

    /// Goal: a changed byte loses the block that it is in and no other, in the growing segment and in closed ones.
    #[test]
    fn a_changed_byte_loses_one_block() {
        let mut random = Random::new(5);
        for is_closed in [false, true] {
            let temp = tempfile::tempdir().unwrap();
            let mut track = open(temp.path());
            (0..4).for_each(|nth| track.append(&block(1000 + nth)).unwrap());
            if is_closed {
                track.close().unwrap();
            }
            let path = track.segments()[0].path.clone();
            drop(track);
            let whole = fs::read(&path).unwrap();
            let len = whole.len() / 4;
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << random.below(8);
                fs::write(&path, &damaged).unwrap();
                let track = open(temp.path());
                let lost = 1000 + (at / len) as u64;
                let left: Vec<u64> = (1000..1004).filter(|start| *start != lost).collect();
                assert_eq!(starts(&track, 0..u64::MAX), left, "byte {at}");
                fs::write(&path, &whole).unwrap();
            }
        }
    }

    #[test]
    fn nonsense_is_read_to_its_end_and_no_memory_is_taken_for_what_it_claims() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("seconds-0000000007");
        let mut bytes = vec![0; 100_000];
        Random::new(9).fill(&mut bytes);
        bytes.extend(MAGIC.repeat(5000));
        // A whole block, at an odd place.
        bytes.extend(&block(77).bytes()[..]);
        bytes.extend(&block(78).bytes()[..30]);
        fs::write(&path, &bytes).unwrap();
        fs::write(temp.path().join("seconds-x-1"), b"").unwrap();
        fs::write(temp.path().join("seconds-0000000003"), b"FBAN").unwrap();
        let mut track = open(temp.path());
        assert_eq!(starts(&track, 0..u64::MAX), [77]);
        track.append(&block(79)).unwrap();
        assert_eq!(starts(&open(temp.path()), 0..u64::MAX), [77, 79]);
    }
}
