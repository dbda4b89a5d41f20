//! How fast a pool heals and how long it will take, from its own figures, noted once a second.
//!
//! What is left counts room on disks, what is done counts bytes written: a slot that is half empty is left whole and done
//! by half. So the first tells how far it is and when it ends, the second how busy the disks are. The end is told as a range
//! between the pace of late and that since the beginning; they differ when clients come and go.

use crate::tasks::Progress;
use forebay_api::Eta;
use forebay_pool::Healing;
use std::collections::VecDeque;
use std::time::Duration;

/// What *of late* means: as many notes.
const NOTES: usize = 30;

#[derive(Clone, Copy)]
struct Note {
    /// Since some beginning.
    at: Duration,
    left: u64,
    done: u64,
}

/// Notes about one pool.
#[derive(Default)]
pub struct Pace {
    first: Option<Note>,
    recent: VecDeque<Note>,
    most: u64,
}

impl Pace {
    pub fn note(&mut self, at: Duration, healing: &Healing) -> Progress {
        let now = Note { at, left: healing.bytes_left, done: healing.bytes_done };
        if self.recent.len() == NOTES {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        self.most = self.most.max(now.left);
        let first = *self.first.get_or_insert(now);
        let lately = self.recent[0];
        let written = now.done.saturating_sub(lately.done);
        Progress {
            // What spreads over new disks has no end that is known before.
            permille: ((self.most - now.left) * 1000).checked_div(self.most).map(|done| done as u32),
            rate_bytes_per_second: per_second(written, now.at - lately.at),
            eta: eta(now, lately, first),
        }
    }
}

fn per_second(bytes: u64, time: Duration) -> Option<u64> {
    (u128::from(bytes) * 1000).checked_div(time.as_millis()).map(|rate| rate as u64)
}

fn eta(now: Note, lately: Note, first: Note) -> Option<Eta> {
    let seconds = |before: Note| {
        let rate = per_second(before.left.saturating_sub(now.left), now.at - before.at)?;
        now.left.checked_div(rate)
    };
    let (lately, overall) = (seconds(lately)?, seconds(first)?);
    let (low, high) = (lately.min(overall), lately.max(overall));
    Some(Eta { seconds_low: low - low / 10, seconds_high: high + high / 10 + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::WallTime;

    fn healing(bytes_left: u64, bytes_done: u64) -> Healing {
        Healing { bytes_left, bytes_done, since: WallTime(0), blocked: String::new() }
    }

    #[test]
    fn the_end_lies_between_the_pace_of_late_and_that_of_all() {
        let mut pace = Pace::default();
        let begin = pace.note(Duration::ZERO, &healing(100_000, 0));
        assert_eq!(begin, Progress { permille: Some(0), ..Progress::default() });
        // 100 a second and half of it written, for a minute; then twice as fast for as long as is remembered.
        for second in 1..=60 {
            pace.note(Duration::from_secs(second), &healing(100_000 - 100 * second, 50 * second));
        }
        let mut last = Progress::default();
        for second in 1..=60 {
            let (left, done) = (94_000 - 200 * second, 3_000 + 100 * second);
            last = pace.note(Duration::from_secs(60 + second), &healing(left, done));
        }
        assert_eq!((last.permille, last.rate_bytes_per_second), (Some(180), Some(100)));
        // 82 000 left at 200 or 150 a second: 410 to 546 s, and a tenth to each side.
        assert_eq!(last.eta, Some(Eta { seconds_low: 369, seconds_high: 601 }));
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let mut pace = Pace::default();
        pace.note(Duration::ZERO, &healing(0, 0));
        let spreading = pace.note(Duration::from_secs(1), &healing(0, 4096));
        assert_eq!((spreading.permille, spreading.rate_bytes_per_second), (None, Some(4096)));
        assert_eq!(spreading.eta, None);
        // Standing still, and growing.
        let mut pace = Pace::default();
        for left in [1000, 1000, 2000] {
            assert_eq!(pace.note(Duration::from_secs(left), &healing(left, 0)).eta, None);
        }
        // Begun again.
        assert_eq!(pace.note(Duration::from_secs(3000), &healing(500, 0)).permille, Some(750));
    }
}
