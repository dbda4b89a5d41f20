//! The README's first screen is true: its console block is typed in, and what is printed is what it says.
//!
//! The block is the first one fenced as `console`. A line that starts with `$ ` is a command, typed into one bash in an
//! empty directory with the built binary on the PATH; one that ends in ` &` stays in the background, and the next
//! is typed when it has printed what it should. What follows up to the next command is the output, both streams
//! together. In it `…` stands for anything within a line; spaces are compared as one, because a longer path widens a
//! table's column.
//!
//! The README names the default ports. They may be taken on the machine of whoever runs this, so free ones take their
//! places: in the outputs, and by options of the daemon that the README need not show.

use crate::host::{Context, Directory, Guard, Outcome, command};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any command of a README should take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

struct Step {
    command: String,
    output: Vec<String>,
}

pub fn is_true(binary: &Path, directory: &Directory) -> Outcome<String> {
    let text = fs::read_to_string("README.md").context("README.md (run from the project's directory)")?;
    let block = console_block(&text).ok_or("README.md has no console block")?;
    let (nbd, http, iscsi) = (free_port()?, free_port()?, free_port()?);
    let block = block.replace(":10809", &format!(":{nbd}")).replace(":8080", &format!(":{http}"));
    let block = block.replace(":3260", &format!(":{iscsi}"));
    let ports = format!("--nbd 127.0.0.1:{nbd} --listen 127.0.0.1:{http} --iscsi 127.0.0.1:{iscsi}");
    let steps = steps(&block);

    let bin = directory.create("bin")?;
    std::os::unix::fs::symlink(binary, bin.join("forebay")).context("a link to the binary")?;
    let mut shell = Shell::start(&bin, &directory.create("here")?)?;
    for (number, step) in steps.iter().enumerate() {
        let printed = match step.command.strip_suffix(" &") {
            None => shell.run(&step.command)?,
            Some(line) => {
                let line = line.replace("forebay serve", &format!("forebay serve {ports}"));
                shell.start_in_background(
                    &line,
                    &directory.join(&format!("{number}.log")),
                    step.output.len(),
                )?
            }
        };
        compare(step, &printed)?;
    }
    Ok(format!("{} commands, their output as written", steps.len()))
}

fn free_port() -> Outcome<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a free port")?;
    Ok(listener.local_addr().context("a free port")?.port())
}

/// A bash to type into. It and everything it has started go away with the value.
struct Shell {
    input: ChildStdin,
    lines: Receiver<String>,
    _guard: Guard,
}

impl Shell {
    fn start(bin: &Path, place: &Path) -> Outcome<Shell> {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut bash = command("bash");
        bash.current_dir(place).env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped());
        // What a person's own environment says about a daemon is not meant here.
        bash.env_remove("FOREBAY_DATA").env_remove("FOREBAY_URL").env_remove("FOREBAY_TOKEN");
        let mut bash = bash.process_group(0).spawn().context("bash")?;
        let mut input = bash.stdin.take().expect("its input is a pipe");
        let output = bash.stdout.take().expect("its output is a pipe");
        let group = bash.id().cast_signed();
        let guard = Guard::new(move || {
            // SAFETY: the group is bash's, which is waited for only afterwards, so its number is not taken again.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            let _ = bash.wait();
        });
        let (send, lines) = channel();
        thread::spawn(move || {
            // Ends when bash does, or when nobody listens any more.
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        writeln!(input, "exec 2>&1").context("bash")?;
        Ok(Shell { input, lines, _guard: guard })
    }

    /// Types a command in and returns what it printed.
    fn run(&mut self, line: &str) -> Outcome<String> {
        const END: &str = "--- that was it ---";
        writeln!(self.input, "{line}\necho '{END}'").context(line)?;
        let mut printed = String::new();
        loop {
            let next =
                self.lines.recv_timeout(LIMIT).context(format!("`{line}` after printing {printed:?}"))?;
            if next == END {
                return Ok(printed);
            }
            // What bash says about a job that was killed, and when, is bash's business.
            if !next.contains(" Killed ") {
                printed += &next;
                printed.push('\n');
            }
        }
    }

    /// Starts a command in the background and waits until it has printed `lines` lines, which are returned.
    fn start_in_background(&mut self, line: &str, log: &Path, lines: usize) -> Outcome<String> {
        self.run(&format!("{line} >{} 2>&1 &", log.display()))?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let printed = fs::read_to_string(log).unwrap_or_default();
            if printed.lines().count() >= lines && printed.ends_with('\n') {
                return Ok(printed.lines().take(lines).collect::<Vec<_>>().join("\n"));
            }
            if Instant::now() > deadline {
                return Err(format!("`{line}` prints only {printed:?}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
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
