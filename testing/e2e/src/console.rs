//! Pages as they are typed in: blocks of commands with their output, and a bash to type them into.
//!
//! A block is fenced as `console`. A line that starts with `$ ` is a command; one that ends in `\` goes on in the next line, and one that ends in ` &` stays in the
//! background. What follows up to the next command is its output, both streams together. In it `…` stands for anything within a line, and a line of nothing else
//! for any lines; spaces are compared as one, because a longer path widens a table's column.
//!
//! Pages name the default ports. They may be taken on the machine that runs this, so free ones take their places: in commands and outputs, and by options of the
//! daemon that a page need not show.

use crate::host::{Context, Directory, Guard, Outcome, command};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any command of a page should take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// What a daemon prints when it serves.
const READY: &str = "forebay: ready, API http://…";

#[derive(Debug)]
pub struct Step {
    pub command: String,
    /// What is shown of its output.
    pub output: Vec<String>,
}

impl Step {
    /// A command of which nothing is shown.
    pub fn new(command: &str) -> Step {
        Step { command: command.into(), output: Vec::new() }
    }

    pub fn starts_a_daemon(&self) -> bool {
        self.command.starts_with("forebay serve") && self.command.ends_with(" &")
    }
}

pub struct Block {
    /// What stands behind ```` ```console ````.
    pub mark: String,
    pub lines: Vec<String>,
}

impl Block {
    /// Lines with a prompt.
    pub fn commands(&self) -> usize {
        let prompts = ["$ ", "# ", "PS> "];
        self.lines.iter().filter(|line| prompts.iter().any(|prompt| line.starts_with(prompt))).count()
    }

    pub fn steps(&self) -> Outcome<Vec<Step>> {
        let mut steps: Vec<Step> = Vec::new();
        let mut goes_on = false;
        for line in &self.lines {
            let typed = if goes_on { Some(line.as_str()) } else { line.strip_prefix("$ ") };
            match (typed, steps.last_mut()) {
                (Some(typed), last) => {
                    let part = typed.strip_suffix('\\').unwrap_or(typed);
                    match last.filter(|_| goes_on) {
                        Some(step) => step.command += part.trim_start(),
                        None => steps.push(Step::new(part)),
                    }
                    goes_on = typed.ends_with('\\');
                }
                (None, _) if line.is_empty() => {}
                (None, _) if line.starts_with("# ") => return Err(format!("`{line}` is for root: not here")),
                (None, Some(step)) => step.output.push(line.clone()),
                (None, None) => return Err(format!("`{line}` is the output of no command")),
            }
        }
        Ok(steps)
    }
}

/// The blocks of a page that are fenced as `console`.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(bool, usize)> = None;
    for line in page.lines() {
        let text = line.trim_start();
        match (open, text.strip_prefix("```")) {
            (None, Some(kind)) => {
                let (name, mark) = kind.split_once(' ').unwrap_or((kind, ""));
                open = Some((name == "console", line.len() - text.len()));
                if name == "console" {
                    blocks.push(Block { mark: mark.trim().into(), lines: Vec::new() });
                }
            }
            (Some(_), Some(_)) => open = None,
            (Some((true, indent)), None) => {
                let block = blocks.last_mut().expect("one is open");
                block.lines.push(line.get(indent..).unwrap_or_default().into());
            }
            _ => {}
        }
    }
    blocks
}

/// A bash in an empty directory, with the built binary on the PATH. It and everything it has started go away with the value.
pub struct Shell {
    input: ChildStdin,
    lines: Receiver<String>,
    /// Each of a page's ports, and the one that takes its place.
    ports: [(u16, u16); 3],
    /// For logs of what stays in the background.
    logs: PathBuf,
    started: usize,
    _guard: Guard,
}

impl Shell {
    /// `name` is that of the directory, below which the shell begins in `here`.
    pub fn start(binary: &Path, directory: &Directory, name: &str) -> Outcome<Shell> {
        let port = crate::server::free_port;
        let ports = [(10809, port()?), (8080, port()?), (3260, port()?)];
        let bin = directory.create(&format!("{name}/bin"))?;
        std::os::unix::fs::symlink(binary, bin.join("forebay")).context("a link to the binary")?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        // Commands come by descriptor 3: what is started finds nothing to read on its own input.
        let reads = "exec 2>&1 3<&0 </dev/null; while IFS= read -r line <&3; do eval \"$line\"; echo \"--- that was it: $?\"; done";
        let mut bash = command("bash");
        bash.args(["-c", reads]).current_dir(directory.create(&format!("{name}/here"))?).env("PATH", path);
        bash.stdin(Stdio::piped()).stdout(Stdio::piped());
        // What a person's own environment says about a daemon is not meant here.
        bash.env_remove("FOREBAY_DATA").env_remove("FOREBAY_URL").env_remove("FOREBAY_TOKEN");
        let mut bash = bash.process_group(0).spawn().context("bash")?;
        let input = bash.stdin.take().expect("its input is a pipe");
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
        Ok(Shell { input, lines, ports, logs: directory.create(name)?, started: 0, _guard: guard })
    }

    /// Types a page's command in and compares what it prints with what is shown. Where nothing is shown it may print anything if `is_free`, and has to succeed.
    pub fn step(&mut self, page: &str, step: &Step, is_free: bool) -> Outcome {
        let replaced = |text: &String| {
            let by =
                |text: String, (from, to): &(u16, u16)| text.replace(&format!(":{from}"), &format!(":{to}"));
            self.ports.iter().fold(text.clone(), by)
        };
        let (line, mut output) =
            (replaced(&step.command), step.output.iter().map(replaced).collect::<Vec<_>>());
        let (printed, status) = match line.strip_suffix(" &") {
            None => self.run(&line)?,
            Some(line) => {
                let [nbd, http, iscsi] = self.ports.map(|(_, port)| port);
                let ports =
                    format!("--nbd 127.0.0.1:{nbd} --listen 127.0.0.1:{http} --iscsi 127.0.0.1:{iscsi}");
                let is_daemon = step.starts_a_daemon();
                if is_daemon && output.is_empty() {
                    output.push(READY.into());
                }
                let line = line.replace("forebay serve", &format!("forebay serve {ports} --memory 256M"));
                (self.start_in_background(&line, output.len())?, 0)
            }
        };
        let printed: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
        let is_true = match output.is_empty() && is_free {
            // A signal is what was asked for, as with `kill -9 $!; wait`.
            true => status == 0 || status > 128,
            false => all_match(&printed, &output),
        };
        if is_true {
            return Ok(());
        }
        let (printed, shown) = (printed.join("\n"), output.join("\n"));
        Err(format!("{page} is not true: `{line}` prints (status {status})\n{printed}\nand not\n{shown}"))
    }

    /// Types a line in and returns what it printed, and the status.
    fn run(&mut self, line: &str) -> Outcome<(String, i32)> {
        writeln!(self.input, "{line}").context(line)?;
        let mut printed = String::new();
        loop {
            let next =
                self.lines.recv_timeout(LIMIT).context(format!("`{line}` after printing {printed:?}"))?;
            // Behind output that does not end its line, too.
            if let Some((before, status)) = next.split_once("--- that was it: ") {
                printed += before;
                return Ok((printed, status.parse().context(line)?));
            }
            // What bash says about a job that was killed, and when, is bash's business.
            if !next.contains(" Killed ") {
                printed += &next;
                printed.push('\n');
            }
        }
    }

    /// Starts a command in the background and waits until it has printed `lines` lines, which are returned.
    fn start_in_background(&mut self, line: &str, lines: usize) -> Outcome<String> {
        self.started += 1;
        let log = self.logs.join(format!("{}.log", self.started));
        self.run(&format!("{line} >{} 2>&1 &", log.display()))?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let printed = fs::read_to_string(&log).unwrap_or_default();
            if lines == 0 || printed.lines().count() >= lines && printed.ends_with('\n') {
                return Ok(printed.lines().take(lines).collect::<Vec<_>>().join("\n"));
            }
            if Instant::now() > deadline {
                return Err(format!("`{line}` prints only {printed:?}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Whether lines are as a page shows them.
fn all_match(printed: &[&str], shown: &[String]) -> bool {
    match (printed.split_first(), shown.split_first()) {
        (_, Some((pattern, rest))) if pattern == "…" => {
            (0..=printed.len()).any(|from| all_match(&printed[from..], rest))
        }
        (Some((line, lines)), Some((pattern, rest))) => matches(line, pattern) && all_match(lines, rest),
        (None, None) => true,
        _ => false,
    }
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
        let page = "# A\n\n```console\n$ one\n1\n$ two &\n\n$ three \\\n    and\n3\n4\n```\n\n1. a\n\n   ```console example\n   # four\n   $ five\n   ```\n";
        let [block, example] = &blocks(page)[..] else { panic!("two blocks") };
        let steps = block.steps().expect("steps");
        let seen: Vec<_> = steps.iter().map(|s| (s.command.as_str(), s.output.len())).collect();
        assert_eq!(seen, [("one", 1), ("two &", 0), ("three and", 2)]);
        for (printed, is_same) in [(&["3", "4"][..], true), (&["3", "4", "5"], false), (&["3"], false)] {
            assert_eq!(all_match(printed, &steps[2].output), is_same, "{printed:?}");
        }
        assert!(all_match(&["1", "2", "3"], &["…".into(), "3".into()]));
        assert!(!all_match(&["1", "3", "2"], &["…".into(), "3".into()]));
        assert_eq!((block.mark.as_str(), block.commands()), ("", 3));
        assert_eq!((example.mark.as_str(), example.commands()), ("example", 2));
        example.steps().expect_err("it is not typed in");
    }
}
