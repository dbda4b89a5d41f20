//! Waiting for a task: a line on stderr that rewrites itself, only on a terminal.

use crate::client::{Call, Client};
use crate::failure::{Exit, Failure, printable};
use forebay_api::{Operation, Task, TaskState, show_rate};
use std::io::{IsTerminal, Write, stderr};

/// A terminal is refreshed each second; without one there is no hurry to hear that nothing has happened.
const SECONDS_TERMINAL: u32 = 1;
const SECONDS_QUIET: u32 = 30;
const BAR_WIDTH: u32 = 24;

/// Waits until the task has ended, and fails as it failed.
pub fn watch(client: &Client, id: &str) -> Result<Task, Failure> {
    let terminal = stderr().is_terminal();
    let wait = if terminal { SECONDS_TERMINAL } else { SECONDS_QUIET };
    let task = loop {
        let call = Call::of(Operation::TaskShow, id).query("wait_seconds", wait);
        let task: Task = client.get(call)?;
        if task.state.is_final() {
            break task;
        }
        if terminal {
            eprint!("\r\x1b[K{}", line(&task));
            // A terminal that is gone needs no progress.
            let _ = stderr().flush();
        }
    };
    if terminal {
        eprint!("\r\x1b[K");
    }
    match task.state {
        TaskState::Failed => Err(match task.error {
            Some(problem) => problem.into(),
            None => Failure::new(Exit::Failed, "the task failed without a reason", ""),
        }),
        TaskState::Cancelled => Err(Failure::new(Exit::Failed, "the task was cancelled", "").object(id)),
        _ => Ok(task),
    }
}

fn line(task: &Task) -> String {
    let mut line = format!("{} {}", printable(&task.name), printable(&task.object));
    match task.progress_permille {
        Some(permille) => {
            let permille = permille.min(1000);
            let filled = (permille * BAR_WIDTH / 1000) as usize;
            let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR_WIDTH as usize - filled));
            line.push_str(&format!(" [{bar}] {} %", permille / 10));
        }
        None if task.state == TaskState::Queued => line.push_str(": queued"),
        None => line.push_str(": running"),
    }
    if let Some(rate) = task.rate_bytes_per_second {
        line.push_str(&format!(", {}", show_rate(rate)));
    }
    if let Some(eta) = task.eta {
        line.push_str(&format!(", {} to {} s left", eta.seconds_low, eta.seconds_high));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::Eta;

    #[test]
    fn the_line_says_what_is_known() {
        let mut task = Task {
            id: "1".into(),
            name: "pool.scrub".into(),
            object: "tank".into(),
            state: TaskState::Running,
            progress_permille: None,
            rate_bytes_per_second: None,
            eta: None,
            cancellable: true,
            started_unix_ms: 0,
            finished_unix_ms: None,
            result: None,
            error: None,
        };
        assert_eq!(line(&task), "pool.scrub tank: running");
        task.progress_permille = Some(500);
        task.rate_bytes_per_second = Some(3 << 20);
        task.eta = Some(Eta { seconds_low: 10, seconds_high: 20 });
        let bar = "############............";
        assert_eq!(line(&task), format!("pool.scrub tank [{bar}] 50 %, 3.1 MB/s, 10 to 20 s left"));
    }
}
