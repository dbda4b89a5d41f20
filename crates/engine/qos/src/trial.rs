//! Whether a small window helps those with latency goals: found out by trying.
//!
//! A goal may be out of reach, because the disks by themselves are slower. A small window then brings nobody's requests in time, and lets everybody's wait for
//! turns. So where requests are late although the window is at its least, it is opened for a look. When twice as many are late then, it is made small again;
//! otherwise it stays open for a minute, and longer each time that this is found again.

/// A look, and what it is compared with, are so many requests; the first ones of a look began before it.
const REQUESTS: u64 = 1000;
const REQUESTS_BEFORE: u64 = 200;
const PAUSE_MIN: u64 = 60_000_000_000;
const PAUSE_MAX: u64 = 16 * PAUSE_MIN;

/// Requests with a latency goal, from when they came until they were over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    pub timed: u64,
    pub late: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The window follows the goals. These were seen while it was at its least and they were late.
    Steered(Seen),
    /// It is open for a look.
    Look { small: Seen, before: u64, open: Seen },
    /// It stays open until then.
    Open(u64),
}

#[derive(Debug)]
pub(crate) struct Trial {
    phase: Phase,
    /// How long what is found holds, and until when nothing is tried.
    pause: u64,
    next: u64,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial { phase: Phase::Steered(Seen::default()), pause: PAUSE_MIN, next: 0 }
    }
}

impl Seen {
    fn add(&mut self, more: Seen) {
        self.timed += more.timed;
        self.late += more.late;
    }
}

impl Trial {
    /// Requests are over. What becomes of a window that is open: whether it stays so, or is made small again.
    pub fn stays_open(&mut self, now: u64, seen: Seen) -> Option<bool> {
        match &mut self.phase {
            Phase::Steered(_) => return None,
            Phase::Open(until) if now < *until => {}
            Phase::Open(_) => {
                self.phase = Phase::Steered(Seen::default());
                return None;
            }
            Phase::Look { before, .. } if *before < REQUESTS_BEFORE => *before += seen.timed,
            Phase::Look { small, open, .. } => {
                open.add(seen);
                if open.timed >= REQUESTS {
                    let helps = 2 * small.late * open.timed <= open.late * small.timed;
                    let until = now + self.pause;
                    self.pause = (2 * self.pause).min(PAUSE_MAX);
                    self.next = until;
                    self.phase = if helps { Phase::Steered(Seen::default()) } else { Phase::Open(until) };
                    return Some(!helps);
                }
            }
        }
        Some(true)
    }

    /// Requests were late although the window is at its least. Whether it is opened for a look.
    pub fn opens(&mut self, now: u64, seen: Seen) -> bool {
        let Phase::Steered(small) = &mut self.phase else { return false };
        small.add(seen);
        let is_enough = small.timed >= REQUESTS && small.late * 100 > small.timed && now >= self.next;
        if is_enough {
            self.phase = Phase::Look { small: *small, before: 0, open: Seen::default() };
        }
        is_enough
    }

    /// Requests were in time, or the window is not at its least.
    pub fn is_steered(&mut self) {
        if let Phase::Steered(small) = &mut self.phase {
            *small = Seen::default();
        }
    }
}
