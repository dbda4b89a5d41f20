//! Volumes as they are after months: overwritten in no order, under snapshots that come and go, in a pool that is nearly full.

use crate::measure::{
    AGE_FULL, AGE_PART, AGE_TIMES, AGEING, Places, SEQUENTIAL_READ, SEQUENTIAL_WRITE, State, Work,
};
use forebay_e2e::host::Outcome;
use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

/// What ageing asks of a volume.
pub trait Ages {
    fn size(&self) -> u64;
    /// Does `work` at each place.
    fn work(&self, work: &Work, places: Places) -> Outcome;
    fn snapshot(&self, name: &str) -> Outcome;
    fn delete(&self, name: &str) -> Outcome;
    /// Share of the pool that is in use.
    fn full(&self) -> Outcome<f64>;
}

/// Deletions run in the background, and what they free comes back with a checkpoint.
const DELETION: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
/// After so many looks that saw no change, nothing goes on behind what is measured next.
const QUIET_LOOKS: usize = 6;
/// A pool begins to gather after a second or two without load, and may empty chunks for as long before what is in use changes.
const GATHERED_LOOKS: usize = 200;
const GATHERING: Duration = Duration::from_secs(120);

/// Numbers of a volume's snapshots, the oldest first.
#[derive(Default)]
pub struct Rotation {
    taken: VecDeque<u64>,
    next: u64,
}

impl Rotation {
    pub fn prepare(&mut self, volume: &impl Ages, state: State) -> Outcome {
        let size = volume.size();
        match state {
            State::Fresh => volume.work(&SEQUENTIAL_WRITE, Places::whole(&SEQUENTIAL_WRITE, size)),
            State::Overwritten => volume.work(&AGEING, Places::part(&AGEING, size, 1.0, 1)),
            State::Rested => {
                volume.work(&SEQUENTIAL_READ, Places::whole(&SEQUENTIAL_READ, size))?;
                volume.work(&AGEING, Places::part(&AGEING, size, 1.0, 0))?;
                rest(volume, GATHERED_LOOKS, GATHERING)
            }
            State::Aged => {
                for step in 1..=((AGE_TIMES - 2.0) / AGE_PART) as u64 {
                    volume.work(&AGEING, Places::part(&AGEING, size, AGE_PART, step))?;
                    self.rotate(volume)?;
                }
                Ok(())
            }
        }
    }

    pub fn rotate(&mut self, volume: &impl Ages) -> Outcome {
        volume.snapshot(&name(self.next))?;
        self.taken.push_back(self.next);
        self.next += 1;
        while volume.full()? > AGE_FULL && self.taken.len() > 1 {
            let oldest = self.taken.pop_front().expect("more than one");
            volume.delete(&name(oldest))?;
            let asked = Instant::now();
            while volume.full()? > AGE_FULL && asked.elapsed() < DELETION {
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// The next snapshot, and the rest of what comes of it.
    pub fn rotate_and_rest(&mut self, volume: &impl Ages) -> Outcome {
        self.rotate(volume)?;
        rest(volume, QUIET_LOOKS, DELETION)
    }
}

/// Waits until so many looks at what is in use see no change, but no longer than that.
fn rest(volume: &impl Ages, quiet: usize, limit: Duration) -> Outcome {
    let (asked, mut last, mut looks) = (Instant::now(), volume.full()?, 0);
    while looks < quiet && asked.elapsed() < limit {
        thread::sleep(LOOK);
        let now = volume.full()?;
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
    }
    Ok(())
}

fn name(number: u64) -> String {
    format!("hourly-{number}")
}
