//! `forebay check --offline`: the offline checker on this thread's own executor.
//!
//! A pool that a daemon has imported changes while one reads it, and the checker would find faults that are none. So the
//! disks are held for writing while the check runs (nothing is written): the daemon's lock refuses that, and ours keeps a
//! daemon from importing them meanwhile. Disks that may only be read, images on read-only media say, are checked
//! without.

use forebay_cli::{CheckReport, Exit, Failure};
use forebay_control::problem;
use forebay_pool::check::check;
use forebay_runtime::{Disk, OpenError, OpenMode, Rt, uring};
use std::time::Duration;

pub fn run(paths: Vec<String>) -> Result<CheckReport, Failure> {
    let checked = uring::block_on(|rt| async move {
        let held = hold(&rt, &paths).await?;
        let report = check(&rt, &paths).await.map_err(|error| Failure::from(problem(error)));
        drop(held);
        report
    });
    let report = checked.map_err(|error| Failure::new(Exit::Failed, error.to_string(), ""))??;
    let mut findings = report.problems;
    if report.problems_unlisted > 0 {
        findings.push(format!("{} more errors, not listed", report.problems_unlisted));
    }
    let pool = report.pool.map(|id| id.to_string()).unwrap_or_default();
    Ok(CheckReport {
        pool: format!("{} ({pool})", report.name),
        checked: vec![
            ("checkpoint".into(), report.checkpoint),
            ("volumes".into(), report.volumes),
            ("nodes".into(), report.nodes),
            ("blocks".into(), report.blocks),
            ("log_frames".into(), report.log_frames),
        ],
        findings,
    })
}

/// A killed daemon's disks are let go when its requests in the kernel have ended, normally within milliseconds.
const HELD_PAUSE: Duration = Duration::from_millis(50);
/// Five seconds: whoever asks about a pool that is in use should not wait long for the answer.
const HELD_ATTEMPTS: u32 = 100;

/// Locks the disks against everyone else for as long as the handles live.
async fn hold(rt: &Rt, paths: &[String]) -> Result<Vec<Disk>, Failure> {
    let mut held = Vec::new();
    let mut attempts = 0;
    for path in paths {
        loop {
            match rt.open_disk(path, OpenMode::ReadWrite) {
                Ok(disk) => held.push(disk),
                Err(OpenError::InUse(_)) if attempts < HELD_ATTEMPTS => {
                    attempts += 1;
                    rt.sleep(HELD_PAUSE).await;
                    continue;
                }
                Err(OpenError::InUse(by)) => {
                    let detail = format!("{by}, and a pool can only be checked while it is not in use");
                    let remedy =
                        "Export the pool with `forebay pool export NAME`, or stop the daemon that has it.";
                    return Err(Failure::new(Exit::Conflict, detail, remedy).object(path.as_str()));
                }
                // Anything else the checker meets itself, or can do without.
                Err(_) => {}
            }
            break;
        }
    }
    Ok(held)
}
