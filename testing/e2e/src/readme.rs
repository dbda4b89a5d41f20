//! The README's first screen is true: its first block of commands is typed in, and what is printed is what it says, to the last line.

use crate::console::{self, Shell};
use crate::host::{Context, Directory, Outcome};
use std::fs;
use std::path::Path;

pub fn is_true(binary: &Path, directory: &Directory) -> Outcome<String> {
    let text = fs::read_to_string("README.md").context("README.md (run from the project's directory)")?;
    let steps = console::blocks(&text).first().ok_or("README.md has no console block")?.steps()?;
    let mut shell = Shell::start(binary, directory, "readme")?;
    for step in &steps {
        shell.step("README.md", step, false)?;
    }
    Ok(format!("{} commands, their output as written", steps.len()))
}
