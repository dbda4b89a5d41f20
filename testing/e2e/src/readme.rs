//! The README's first screen is true: its console block is typed in, and what is printed is what it says.
//!
//! The block is the first one fenced as `console`. A line that starts with `$ ` is a command, run by bash in an empty
//! directory with the built binary on the PATH; one that ends in ` &` stays in the background until the end. What
//! follows up to the next command is its output, both streams together. In it `…` stands for anything within a line;
//! spaces are compared as one, because a longer path widens a table's column.
//!
//! The README names the default ports. They may be taken on the machine of whoever runs this, so free ones take their
//! places, in commands and outputs alike.

use crate::host::{Context, Directory, Outcome, Process, command};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

const PORTS: [&str; 2] = ["10809", "8080"];

struct Step {
    command: String,
    output: Vec<String>,
}

pub fn is_true(binary: &Path, directory: &Directory) -> Outcome<String> {
    let text = fs::read_to_string("README.md").context("README.md (run from the project's directory)")?;
    let mut block = console_block(&text).ok_or("README.md has no console block")?;
    let mut held = Vec::new();
    for port in PORTS {
        let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
        let free = listener.local_addr().context("a free port")?.port();
        block = block.replace(&format!(":{port}"), &format!(":{free}"));
        held.push(listener);
    }
    drop(held);
    let steps = steps(&block);
    let bin = directory.create("bin")?;
    std::os::unix::fs::symlink(binary, bin.join("forebay")).context("a link to the binary")?;
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let place = directory.create("here")?;
    let mut background = Vec::new();
    for step in &steps {
        let shell = |line: &str| {
            let mut shell = command("bash");
            shell.args(["-c", &format!("exec 2>&1; {line}")]).current_dir(&place).env("PATH", &path);
            // What a person's own environment says about a daemon is not meant here.
            shell.env_remove("FOREBAY_DATA").env_remove("FOREBAY_URL").env_remove("FOREBAY_TOKEN");
            shell
        };
        if let Some(line) = step.command.strip_suffix(" &") {
            let log = directory.join(&format!("background{}.log", background.len()));
            let mut process = Process::start(&mut shell(&format!("exec {line}")), &log)?;
            let lines = step.output.len();
            process.wait_for(&format!("`{line}` to print {lines} lines"), Duration::from_secs(30), || {
                let printed = fs::read_to_string(&log).ok()?;
                (printed.lines().count() >= lines).then_some(())
            })?;
            let printed = fs::read_to_string(&log).context("its output")?;
            compare(step, &printed.lines().take(lines).collect::<Vec<_>>().join("\n"))?;
            background.push(process);
            continue;
        }
        let output = shell(&step.command).output().context(&step.command)?;
        compare(step, &String::from_utf8_lossy(&output.stdout))?;
    }
    for mut process in background {
        process.terminate(Duration::from_secs(30))?;
    }
    Ok(format!("{} commands, their output as written", steps.len()))
}

fn console_block(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("```console\n")?;
    Some(rest.split_once("```")?.0.to_owned())
}

fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), output: Vec::new() });
        } else if let Some(step) = steps.last_mut()
            && !line.is_empty()
        {
            step.output.push(line.to_owned());
        }
    }
    steps
}

fn compare(step: &Step, printed: &str) -> Outcome {
    let printed: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
    let same = printed.len() == step.output.len()
        && printed.iter().zip(&step.output).all(|(line, pattern)| matches(line, pattern));
    if same {
        return Ok(());
    }
    Err(format!(
        "README.md is not true: `{}` prints\n{}\nand not\n{}",
        step.command,
        printed.join("\n"),
        step.output.join("\n")
    ))
}

/// Whether `line` is what `pattern` says, with `…` for anything.
fn matches(line: &str, pattern: &str) -> bool {
    let one_space = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (line, pattern) = (one_space(line), one_space(pattern));
    let mut parts = pattern.split('…');
    let first = parts.next().expect("a split has a first part");
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_line_but_for_what_varies() {
        assert!(matches("pool tank online", "pool tank online"));
        assert!(matches("  tank   online", " tank online"));
        assert!(!matches("pool tank online.", "pool tank online"));
        assert!(matches("created 2026-11-20 by x", "created … by x"));
        assert!(matches("id 4f, 3 disks, 5 s", "id …, 3 disks, … s"));
        assert!(!matches("id 4f, 4 disks, 5 s", "id …, 3 disks, … s"));
        assert!(matches("anything", "…"));
        assert!(!matches("ab", "ab…b"));
    }

    #[test]
    fn a_step_is_a_command_with_its_output() {
        let block =
            console_block("# A\n\n```console\n$ one\n1\n$ two &\n\n$ three\n3\n4\n```\n").expect("a block");
        let steps = steps(&block);
        let seen: Vec<_> = steps.iter().map(|s| (s.command.as_str(), s.output.len())).collect();
        assert_eq!(seen, [("one", 1), ("two &", 0), ("three", 2)]);
        assert!(compare(&steps[2], "3\n4\n").is_ok());
        assert!(compare(&steps[2], "3\n4\n5\n").is_err());
        assert!(compare(&steps[2], "3\n").is_err());
    }
}
