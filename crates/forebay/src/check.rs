//! `forebay check --offline`: the offline checker on this thread's own executor.

use forebay_cli::{CheckReport, Exit, Failure};

pub fn run(_paths: Vec<String>) -> Result<CheckReport, Failure> {
    Err(Failure::new(Exit::Failed, "waits for the engine", ""))
}
