//! Events for the administrator, bounded: a hostile client must not be able to fill the event log.

use forebay_base::Nanos;
use forebay_base::panics::Panicked;
use forebay_pool::{Event, Severity};
use forebay_runtime::Rt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Receives events; called on cores, must not block.
pub type Events = Arc<dyn Fn(Event) + Send + Sync>;

/// Of each code at most this many go out per [`WINDOW`]: enough to see what happens, too few to hide other events.
const PER_WINDOW: u32 = 10;
/// Nanoseconds: one minute.
const WINDOW: u64 = 60_000_000_000;

pub struct Reporter {
    sink: Events,
    /// One entry per event code that this crate has.
    windows: Mutex<HashMap<&'static str, Window>>,
}

struct Window {
    since: Nanos,
    sent: u32,
    suppressed: u64,
}

impl Reporter {
    pub fn new(sink: Events) -> Reporter {
        Reporter { sink, windows: Mutex::default() }
    }

    pub fn report(&self, rt: &Rt, severity: Severity, code: &'static str, object: &str, message: String) {
        let Some(suppressed) = self.admit(rt.now(), code) else { return };
        let message = match suppressed {
            0 => message,
            count => format!("{message} (and {count} more before it that were not shown)"),
        };
        (self.sink)(Event { at: rt.wall(), severity, code, object: object.to_owned(), message });
    }

    /// A bug in a protocol has ended a session.
    pub fn panicked(&self, rt: &Rt, code: &'static str, object: &str, Panicked(why): &Panicked) {
        let message =
            format!("disconnected because of a bug in Forebay, which {why}; no other client is affected");
        self.report(rt, Severity::Error, code, object, message);
    }

    /// Whether an event may go out, and how many were held back since the last one.
    fn admit(&self, now: Nanos, code: &'static str) -> Option<u64> {
        let mut windows = self.windows.lock().expect("no holder of this lock panics");
        let window = windows.entry(code).or_insert(Window { since: now, sent: 0, suppressed: 0 });
        if now.since(window.since) >= WINDOW {
            (window.since, window.sent) = (now, 0);
        }
        if window.sent == PER_WINDOW {
            window.suppressed += 1;
            return None;
        }
        window.sent += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let reporter = Reporter::new(Arc::new(|_| {}));
        let sent = |at: u64, code| reporter.admit(Nanos(at), code);
        for i in 0..10 {
            assert_eq!(sent(i, "a"), Some(0));
        }
        assert!((0..500).all(|i| sent(i, "a").is_none()));
        assert_eq!(sent(5, "b"), Some(0), "another code is not affected");
        assert_eq!(sent(WINDOW, "a"), Some(500));
        assert_eq!(sent(WINDOW, "a"), Some(0));
    }
}
