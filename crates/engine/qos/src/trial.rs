//! Whether a small window helps those with latency goals: found out by trying.
//!
//! A goal may be out of reach, because the disks by themselves are slower. A small window then brings nobody's requests in time, and lets everybody's wait for
//! turns. So where requests are late although the window is at its least, it is opened for a look. When many more are late then, it is made small again;
//! otherwise it stays open for a minute. What was found holds for twice as long each time that it is found again.

/// A look, and what it is compared with, are so many requests and so long, so that no pause of a disk is taken for either; the first requests of a look began before it.
const REQUESTS: u64 = 1000;
const REQUESTS_BEFORE: u64 = 200;
const LOOK_MIN: u64 = 1_000_000_000;
/// Many more: twice as many, or one in so many of all.
const MORE_PART: u64 = 20;
const PAUSE_MIN: u64 = 60_000_000_000;
const PAUSE_MAX: u64 = 16 * PAUSE_MIN;

/// Requests with a latency goal, from when they asked for their turn until they were over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    pub timed: u64,
    pub late: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The window follows the goals. These were seen since then, while it was at its least and they were late.
    Steered { since: u64, small: Seen },
    /// It is open for a look.
    Look { since: u64, small: Seen, before: u64, open: Seen },
    /// It stays open until then.
    Open(u64),
}

#[derive(Debug)]
pub(crate) struct Trial {
    phase: Phase,
    /// What was found last, how long that holds, and until when nothing is tried.
    helped: Option<bool>,
    pause: u64,
    next: u64,
}

const STEERED: Phase = Phase::Steered { since: 0, small: Seen { timed: 0, late: 0 } };

impl Default for Trial {
    fn default() -> Trial {
        Trial { phase: STEERED, helped: None, pause: PAUSE_MIN, next: 0 }
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
            Phase::Steered { .. } => return None,
            Phase::Open(until) if now < *until => {}
            Phase::Open(_) => {
                self.phase = STEERED;
                return None;
            }
            Phase::Look { before, .. } if *before < REQUESTS_BEFORE => *before += seen.timed,
            Phase::Look { since, small, open, .. } => {
                open.add(seen);
                // Of as many as there will be at least: the rest of a look that has shown it would only be late as well.
                let timed = open.timed.max(REQUESTS);
                let helps = open.late * small.timed >= 2 * small.late * timed
                    || open.late * small.timed >= small.late * timed + timed * small.timed / MORE_PART;
                if helps || open.timed >= REQUESTS && now >= *since + LOOK_MIN {
                    self.found(now, helps);
                    return Some(!helps);
                }
            }
        }
        Some(true)
    }

    fn found(&mut self, now: u64, helps: bool) {
        let is_again = self.helped.replace(helps) == Some(helps);
        self.pause = if is_again { (2 * self.pause).min(PAUSE_MAX) } else { PAUSE_MIN };
        self.next = now + self.pause;
        self.phase = if helps { STEERED } else { Phase::Open(self.next) };
    }

    /// Requests were late although the window is at its least. Whether it is opened for a look.
    pub fn opens(&mut self, now: u64, seen: Seen) -> bool {
        let Phase::Steered { since, small } = &mut self.phase else { return false };
        if *small == Seen::default() {
            *since = now;
        }
        small.add(seen);
        let is_enough = small.timed >= REQUESTS && now >= *since + LOOK_MIN;
        let opens = is_enough && small.late * 100 > small.timed && now >= self.next;
        if opens {
            self.phase = Phase::Look { since: now, small: *small, before: 0, open: Seen::default() };
        }
        opens
    }

    /// Requests were in time.
    pub fn is_steered(&mut self) {
        if let Phase::Steered { .. } = self.phase {
            self.phase = STEERED;
        }
    }
}
