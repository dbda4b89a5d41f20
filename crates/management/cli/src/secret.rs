//! Secrets come from a file, from the terminal without being shown, or from stdin, a line each. Never from an argument: every
//! user of the machine can read those.

use crate::failure::{Exit, Failure};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{BufRead, IsTerminal, Read, Stdin, Write, stderr, stdin};
use std::path::PathBuf;

/// The longest secret that CHAP has is 255 bytes; more is another kind of file.
const BYTES_MAX: u64 = 4096;

/// Reads the secret that is `what` to a person, from the file that the option `option` names if it does.
pub fn read(file: Option<PathBuf>, what: &str, option: &str) -> Result<String, Failure> {
    if let Some(path) = file {
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
        return match read {
            Ok(_) => Ok(without_newline(text)),
            Err(error) => {
                let detail = format!("{what} cannot be read: {error}");
                Err(Failure::new(Exit::Usage, detail, "Name a file that has only the secret.")
                    .object(path.display().to_string()))
            }
        };
    }
    let stdin = stdin();
    if stdin.is_terminal() && stderr().is_terminal() {
        from_terminal(&stdin, what, option)
    } else {
        line(&stdin, what, option)
    }
}

fn without_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    if text.ends_with('\r') {
        text.pop();
    }
    text
}

fn line(stdin: &Stdin, what: &str, option: &str) -> Result<String, Failure> {
    let mut text = String::new();
    match stdin.lock().take(BYTES_MAX).read_line(&mut text) {
        Ok(1..) => Ok(without_newline(text)),
        _ => {
            let remedy = format!(
                "Type it at a terminal, name a file with {option}, or pipe it in, one secret per line."
            );
            Err(Failure::new(Exit::Usage, format!("{what} is not on stdin"), remedy))
        }
    }
}

/// Puts the terminal back however the reading ends.
struct Quiet<'a>(&'a Stdin, Termios);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // A terminal that is gone shows nothing.
        let _ = tcsetattr(self.0, OptionalActions::Now, &self.1);
        eprintln!();
    }
}

fn from_terminal(stdin: &Stdin, what: &str, option: &str) -> Result<String, Failure> {
    let ask = |again: &str| {
        eprint!("Type {what}{again} (it is not shown): ");
        // The question is on the terminal that was just checked.
        let _ = stderr().flush();
        let failed = |error| {
            let detail = format!("the terminal would show {what}: {error}");
            Failure::new(
                Exit::Failed,
                detail,
                format!("Put it into a file, and name the file with {option}."),
            )
        };
        let before = tcgetattr(stdin).map_err(failed)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin, OptionalActions::Flush, &quiet).map_err(failed)?;
        let _quiet = Quiet(stdin, before);
        line(stdin, what, option)
    };
    let secret = ask("")?;
    match ask(" again")? == secret {
        true => Ok(secret),
        false => Err(Failure::new(Exit::Usage, "the two entries differ; nothing was changed", "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_at_the_end_is_not_part_of_a_secret() {
        for (text, secret) in [("a b \n", "a b "), ("a\r\n", "a"), ("a", "a"), ("a\n\n", "a\n"), ("", "")] {
            assert_eq!(without_newline(text.into()), secret);
        }
        assert_eq!(read(Some("/nothing/there".into()), "it", "--file").unwrap_err().exit, Exit::Usage);
    }
}
