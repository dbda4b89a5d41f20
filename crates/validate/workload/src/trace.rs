//! What was asked of a volume once, to be asked again: the file that `forebay volume trace` writes.
//!
//! The first line is `forebay-trace 1`, the second tells of the volume (`volume NAME BYTES BLOCK-BYTES UNIX-MS`); then each request has a line: microseconds since the
//! first of them came, one of `r`, `w`, `f`, `d` (read, write, flush, discard), where, how many bytes, and microseconds until it was answered. The last line is `end REQUESTS LOST`:
//! how many lines there are, and how many requests are missing since they came too fast. Empty lines say nothing. A file without it was cut off, and is refused.
//!
//! Reads and writes are asked again, at the moments of then. Flushes are not: volumes here acknowledge nothing that is not safe. Nor are discards: what is read must be there.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Requests of a trace, at most: 24 bytes of memory each.
pub const REQUESTS_MAX: usize = 4_000_000;
/// The longest that a volume takes.
const BYTES_MAX: u64 = 32 << 20;

/// A request of then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Past {
    /// Nanoseconds since the first of them came.
    pub due: u64,
    pub at: u64,
    pub bytes: u32,
    pub is_write: bool,
}

/// The requests of a file, once it was read.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Trace {
    pub path: String,
    pub requests: Arc<[Past]>,
}

impl Trace {
    /// What the file of this path says.
    pub fn read(path: &str, text: &str) -> Result<Trace, String> {
        let Recorded { requests, .. } = Recorded::parse(text)?;
        match requests.is_empty() {
            true => Err("the trace has no reads or writes".into()),
            false => Ok(Trace { path: path.into(), requests: requests.into() }),
        }
    }
}

impl From<String> for Trace {
    fn from(path: String) -> Trace {
        Trace { path, ..Trace::default() }
    }
}

impl From<Trace> for String {
    fn from(trace: Trace) -> String {
        trace.path
    }
}

/// What a file says.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    pub volume: String,
    pub volume_bytes: u64,
    pub block_bytes: u64,
    /// Reads and writes, by when they came.
    pub requests: Vec<Past>,
    /// Flushes and discards, and what is missing.
    pub others: u64,
    pub lost: u64,
    /// Of the request that took longest, and on average, in microseconds.
    pub longest_us: u64,
    pub mean_us: f64,
}

impl Recorded {
    /// Reads a file; says in which line it is none.
    pub fn parse(text: &str) -> Result<Recorded, String> {
        let mut lines = text.lines().enumerate().map(|(nth, line)| (nth + 1, line));
        if lines.next().map(|(_, line)| line) != Some("forebay-trace 1") {
            return Err("this is not a trace: its first line is not 'forebay-trace 1'".into());
        }
        let volume = lines.next().and_then(|(_, line)| {
            let parts: Vec<&str> = line.split(' ').collect();
            let ["volume", name, bytes, block, _] = parts[..] else { return None };
            Some((name.to_string(), bytes.parse().ok()?, block.parse().ok()?))
        });
        let Some((volume, volume_bytes, block_bytes)) = volume else {
            return Err("line 2 does not name a volume".into());
        };
        let mut recorded = Recorded {
            volume,
            volume_bytes,
            block_bytes,
            requests: Vec::new(),
            others: 0,
            lost: 0,
            longest_us: 0,
            mean_us: 0.0,
        };
        let mut all = 0;
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("end ") {
                let counts: Vec<u64> = rest.split(' ').filter_map(|count| count.parse().ok()).collect();
                let [count, lost] = counts[..] else {
                    return Err(format!("line {number} is not a valid end"));
                };
                if count != all {
                    return Err(format!("the trace has {all} requests, and its end says {count}"));
                }
                recorded.lost = lost;
                recorded.mean_us /= (all as f64).max(1.0);
                recorded.requests.sort_by_key(|request| request.due);
                return Ok(recorded);
            }
            all += 1;
            if all > REQUESTS_MAX as u64 {
                return Err(format!("the trace has more than {REQUESTS_MAX} requests: take a shorter one"));
            }
            recorded.add(line).ok_or_else(|| format!("line {number} is not a request: '{line:.60}'"))?;
        }
        Err("the trace was cut off: its end is missing".into())
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut parts = line.split(' ');
        let number = |text: Option<&str>| text?.parse::<u64>().ok();
        let (due, kind) = (number(parts.next())?, parts.next()?);
        let (at, bytes, took) = (number(parts.next())?, number(parts.next())?, number(parts.next())?);
        if parts.next().is_some() || due > u64::MAX / 1000 {
            return None;
        }
        self.longest_us = self.longest_us.max(took);
        self.mean_us += took as f64;
        let is_write = match kind {
            "r" => false,
            "w" => true,
            "f" | "d" => {
                self.others += 1;
                return Some(());
            }
            _ => return None,
        };
        if bytes == 0 || bytes > BYTES_MAX || at.checked_add(bytes)? > self.volume_bytes {
            return None;
        }
        self.requests.push(Past { due: due * 1000, at, bytes: bytes as u32, is_write });
        Some(())
    }

    /// Seconds from its beginning to its last request, at least one.
    pub fn seconds(&self) -> u64 {
        self.requests.last().map_or(1, |last| (last.due / 1_000_000_000 + 1).max(1))
    }
}

/// A place in a trace: it begins somewhere, goes on from its end to its beginning, and never ends.
pub(crate) struct Replay {
    requests: Arc<[Past]>,
    /// Bytes of the volume, which may be smaller than that of then.
    size: u64,
    next: usize,
    /// What a whole round takes, and nanoseconds to add to when requests are due.
    round: u64,
    shift: i128,
}

impl Replay {
    /// From the request number `first` on, which is due at once.
    pub fn new(requests: Arc<[Past]>, size: u64, first: usize) -> Replay {
        let round = requests.last().map_or(0, |last| last.due) + 1_000_000;
        let shift = -i128::from(requests[first].due);
        Replay { requests, size, next: first, round, shift }
    }

    /// The next request, and nanoseconds from the beginning until it is due.
    pub fn next(&mut self) -> (u64, crate::Request) {
        let Past { due, at, bytes, is_write } = self.requests[self.next];
        let due = (i128::from(due) + self.shift) as u64;
        self.next += 1;
        if self.next == self.requests.len() {
            self.next = 0;
            self.shift += i128::from(self.round);
        }
        // In a smaller volume, what was further back lies over what was further ahead; sequences stay such.
        let bytes = u64::from(bytes).min(self.size);
        let at = (at % self.size).min(self.size - bytes);
        (due, crate::Request { at, bytes, is_write })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    const GOOD: &str = "forebay-trace 1\nvolume tank/db 1048576 8192 1795575600000\n\
                        0 r 8192 4096 350\n\n10 f 0 0 5\n2000 w 1040384 8192 150\n1500 r 0 512 95\nend 4 3\n";

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let recorded = Recorded::parse(GOOD).expect("it is in order");
        let told = (recorded.volume.as_str(), recorded.volume_bytes, recorded.others, recorded.lost);
        assert_eq!(told, ("tank/db", 1 << 20, 1, 3));
        assert_eq!((recorded.longest_us, recorded.mean_us, recorded.seconds()), (350, 150.0, 1));
        let due: Vec<u64> = recorded.requests.iter().map(|request| request.due).collect();
        assert_eq!(due, [0, 1_500_000, 2_000_000]);
        let cases = [
            ("forebay-trace 1", "forebay-trace 2", "not a trace"),
            ("tank/db 1048576", "tank/db", "line 2"),
            ("10 f", "10 x", "line 5 is not a request"),
            ("8192 4096", "8192 0", "line 3"),
            ("1040384 8192", "1048576 8192", "line 6"),
            ("0 512 95", "0 512", "line 7"),
            ("end 4 3\n", "", "cut off"),
            ("end 4 3", "end 5 3", "its end says 5"),
        ];
        for (right, wrong, message) in cases {
            let error = Recorded::parse(&GOOD.replacen(right, wrong, 1)).expect_err(wrong);
            assert!(error.contains(message), "{error}, not {message}");
        }
    }

    #[test]
    fn it_begins_anywhere_and_goes_round_in_a_smaller_volume_too() {
        let past = |due, at, bytes| Past { due, at, bytes, is_write: false };
        let requests: Arc<[Past]> = [past(0, 0, 4096), past(5, 8192, 4096), past(9, 20480, 8192)].into();
        let mut replay = Replay::new(requests, 16384, 1);
        let some: Vec<(u64, u64)> = (0..4).map(|_| replay.next()).map(|(due, one)| (due, one.at)).collect();
        // After a round and a millisecond, all of it again.
        assert_eq!(some, [(0, 8192), (4, 4096), (1_000_004, 0), (1_000_009, 8192)]);
        assert_eq!(replay.next().1, Request { at: 4096, bytes: 8192, is_write: false });
    }
}
