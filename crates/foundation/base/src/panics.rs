//! Which panics end the process.
//!
//! A panic in the engine is a broken invariant: what follows could destroy data, so the process ends at once, and the next start
//! finds everything acknowledged. A panic in a protocol crate is a broken conversation with one peer: these crates do no I/O and share
//! nothing with other sessions, so it is enough that this conversation ends.
//!
//! Programs are built with `panic = "unwind"` and call [`abort_on_panic`] first. From then on a panic on any thread aborts the
//! process where it happens, before anything is unwound, unless the thread is inside [`contain`]. Only calls into protocol crates
//! are contained, and only the call itself: no future is polled inside, so nothing of the engine can be unwound. Without
//! `abort_on_panic` (in tests) a panic outside unwinds its thread, as ever.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicU32, Ordering};

/// Longest message that is kept: what panicked may quote its peer.
const MESSAGE_MAX: usize = 300;
/// Contained panics that are reported on standard error, with a backtrace where one is asked for. A peer that knows how to cause one could
/// fill a log with more; callers tell of each in their own bounded way.
const REPORTS_MAX: u32 = 100;

thread_local! {
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
    /// Where the panic that is being contained happened, as the hook saw it.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A call that panicked: for people, where and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Panicked(pub String);

/// Makes a call that may panic. What it changed may be half done afterwards, and must not be used again.
pub fn contain<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    let outer = IS_CONTAINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    IS_CONTAINED.set(outer);
    result.map_err(|payload| {
        let place = PLACE.take().map(|place| format!(" at {place}")).unwrap_or_default();
        Panicked(format!("panicked{place}: {}", message(&*payload)))
    })
}

/// Has every panic end the process from now on, but for those that are contained. To be called once, first.
pub fn abort_on_panic() {
    let report = take_hook();
    let reported = AtomicU32::new(0);
    set_hook(Box::new(move |panic| {
        if !IS_CONTAINED.get() {
            report(panic);
            std::process::abort();
        }
        if reported.fetch_add(1, Ordering::Relaxed) < REPORTS_MAX {
            report(panic);
        }
        PLACE.set(place(panic));
    }));
}

fn place(panic: &PanicHookInfo<'_>) -> Option<String> {
    panic.location().map(ToString::to_string)
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").chars().take(MESSAGE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_panics_inside_is_told_and_the_thread_goes_on() {
        assert_eq!(contain(|| 7), Ok(7));
        let number = 5;
        let result = contain(|| -> u8 { panic!("of {number}") });
        assert_eq!(result, Err(Panicked("panicked: of 5".into())));
        let nested = contain(|| {
            assert!(contain(|| panic!("inside")).is_err());
            IS_CONTAINED.get()
        });
        assert_eq!(nested, Ok(true), "the outer call is still contained");
        assert!(!IS_CONTAINED.get());
        let long = contain(|| panic!("{}", "x".repeat(10_000)));
        assert!(long.unwrap_err().0.len() < 400);
    }

    /// Each case in a process of its own, which is this test once more.
    #[test]
    fn with_the_hook_a_panic_ends_the_process_unless_it_is_contained() {
        const CASE: &str = "FOREBAY_TEST_PANIC";
        match std::env::var(CASE).ok().as_deref() {
            Some("contained") => {
                abort_on_panic();
                let told = contain(|| panic!("a session")).unwrap_err();
                assert!(told.0.contains("panics.rs:") && told.0.ends_with(": a session"), "{told:?}");
                // Only the call is contained, on this thread, and not what follows it.
                std::process::exit(42);
            }
            Some("bare") => {
                abort_on_panic();
                let _ = contain(|| ());
                panic!("the engine");
            }
            Some("thread") => {
                abort_on_panic();
                let _ = contain(|| std::thread::spawn(|| panic!("another thread")).join());
                std::process::exit(42);
            }
            _ => {
                let name = "panics::tests::with_the_hook_a_panic_ends_the_process_unless_it_is_contained";
                let run = |case| {
                    let program = std::env::current_exe().expect("a test has a program");
                    let mut command = Command::new(program);
                    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CASE, case);
                    command.output().expect("it can be run").status
                };
                use std::os::unix::process::ExitStatusExt;
                assert_eq!(run("contained").code(), Some(42));
                assert_eq!(run("bare").signal(), Some(6), "SIGABRT");
                assert_eq!(run("thread").signal(), Some(6), "SIGABRT");
            }
        }
    }
}
