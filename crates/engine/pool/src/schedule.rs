//! Scrubs that begin by themselves, so long after the last was through as the pool's superblock says.
//!
//! One pool at a time, and not while something has to heal: a scrub that is due waits. After a time in which the pool was not
//! imported, it is due at once. A scrub that somebody paused stays paused.

use crate::control::Control;
use crate::error::Error;
use crate::registry::registry;
use crate::spec::{ScrubSchedule, ScrubState, Severity};
use forebay_base::WallTime;
use forebay_runtime::Rt;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How often it is looked whether a scrub is due.
const PERIOD: Duration = Duration::from_secs(60);

impl Control {
    pub fn schedule_scrubs(self: &Rc<Self>) {
        drop(self.rt.spawn(look(Rc::downgrade(self), self.rt.clone())));
    }

    /// When the next scrub is due; never in a pool that is only read.
    pub fn next_scrub(&self) -> Option<WallTime> {
        let ScrubSchedule { last, every_seconds } = self.scrub.schedule.get();
        let since = last.0.max(self.label.borrow().created.0);
        (every_seconds > 0 && !self.shared.import.read_only)
            .then(|| WallTime(since.saturating_add(u64::from(every_seconds) * 1000)))
    }

    /// Has scrubs begin by themselves after so many seconds, or never with 0.
    pub async fn schedule_scrub(self: &Rc<Self>, every_seconds: u32) -> Result<(), Error> {
        self.scrub.schedule.set(ScrubSchedule { every_seconds, ..self.scrub.schedule.get() });
        self.checkpoint().await.map(drop)
    }

    fn scrub_is_due(&self) -> bool {
        let (now, schedule) = (self.rt.wall(), self.scrub.schedule.get());
        if schedule.last.0 > now.0 {
            // The clock was ahead when the last one ended: at the latest it ended now.
            self.scrub.schedule.set(ScrubSchedule { last: now, ..schedule });
        }
        let is_paused =
            self.scrub.state.borrow().as_ref().is_some_and(|scrub| scrub.state == ScrubState::Paused);
        let is_free = !is_paused && !self.is_ending() && self.healer.status().is_none();
        let nobody = || registry(&self.rt).controls().iter().all(|pool| !pool.scrub.running.get());
        self.next_scrub().is_some_and(|next| next.0 <= now.0) && is_free && nobody()
    }
}

async fn look(control: Weak<Control>, rt: Rt) {
    loop {
        rt.sleep(PERIOD).await;
        let Some(control) = control.upgrade().filter(|control| !control.closing.get()) else { return };
        // A pool that is closed meanwhile starts none.
        if control.scrub_is_due() && control.scrub_start().await.is_ok() {
            let message = "a scrub begins, as its schedule says".to_string();
            control.event(Severity::Info, "pool.scrub_begins", control.name(), message);
        }
    }
}
