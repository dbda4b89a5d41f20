//! How far a command is that this process carries out itself: a line on stderr that rewrites itself, on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Shows how many of how many are done. With `is_certain` all of them will be, so the time that is left can be estimated.
pub fn progress(what: &'static str, is_certain: bool) -> impl Fn(usize, usize) + Sync {
    let shown = Shown { what, is_certain, begin: Instant::now(), is_terminal: stderr().is_terminal() };
    move |done, of| {
        if shown.is_terminal {
            eprint!("\r\x1b[K{}", shown.line(done, of, shown.begin.elapsed()));
            // A terminal that is gone needs no progress.
            let _ = stderr().flush();
        }
    }
}

struct Shown {
    what: &'static str,
    is_certain: bool,
    begin: Instant,
    is_terminal: bool,
}

impl Shown {
    fn line(&self, done: usize, of: usize, elapsed: Duration) -> String {
        let mut line = format!("{done} of {of} {}, {} elapsed", self.what, words(elapsed.as_secs_f64()));
        if self.is_certain && done > 0 && done < of {
            let left = elapsed.as_secs_f64() / done as f64 * (of - done) as f64;
            line.push_str(&format!(", about {} left", words(left)));
        }
        line
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

fn words(seconds: f64) -> String {
    match seconds.ceil() as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_an_estimate_where_there_can_be_one() {
        let mut shown =
            Shown { what: "runs complete", is_certain: true, begin: Instant::now(), is_terminal: false };
        let at = |shown: &Shown, done| shown.line(done, 12, Duration::from_secs(90));
        assert_eq!(at(&shown, 0), "0 of 12 runs complete, 90 s elapsed");
        assert_eq!(at(&shown, 3), "3 of 12 runs complete, 90 s elapsed, about 5 min left");
        assert_eq!(at(&shown, 12), "12 of 12 runs complete, 90 s elapsed");
        shown.is_certain = false;
        assert_eq!(at(&shown, 3), "3 of 12 runs complete, 90 s elapsed");
    }
}
