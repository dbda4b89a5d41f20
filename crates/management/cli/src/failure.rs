//! How a command ends: the exit status and the message.
//!
//! Every failure says what happened, to which object, and what to try; the daemon's problem documents carry the same
//! three, and the command's own failures are made the same way.

use forebay_api::{Code, Problem};
use serde_json::json;

/// The exit status, stable for scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    Ok = 0,
    Failed = 1,
    /// The command line or a value in it is wrong.
    Usage = 2,
    NotFound = 3,
    /// The object exists already, is busy, or changed meanwhile.
    Conflict = 4,
    /// Refused, because data could be lost.
    Unsafe = 5,
    /// It works, but has less redundancy than its layout, or is read-only.
    Degraded = 6,
    /// The daemon does not answer.
    Unreachable = 7,
    /// Data is lost, and the loss is not accepted.
    Lost = 8,
    /// The role or the login does not allow it.
    Denied = 9,
}

impl Exit {
    fn of(code: Code) -> Exit {
        match code {
            Code::Invalid | Code::TooLarge | Code::UnsupportedMediaType | Code::NotSupported => Exit::Usage,
            Code::NotFound => Exit::NotFound,
            Code::Conflict | Code::PreconditionFailed | Code::KeyReused | Code::Busy => Exit::Conflict,
            Code::Unsafe => Exit::Unsafe,
            Code::Suspended => Exit::Degraded,
            Code::Stopped => Exit::Unreachable,
            Code::Unauthenticated | Code::Forbidden => Exit::Denied,
            Code::MethodNotAllowed
            | Code::Timeout
            | Code::NoSpace
            | Code::Corrupt
            | Code::Io
            | Code::Internal => Exit::Failed,
        }
    }
}

/// A command that did not do what was asked.
#[derive(Clone, Debug)]
pub struct Failure {
    pub exit: Exit,
    pub object: Option<String>,
    /// What happened and why.
    pub detail: String,
    /// What to try.
    pub remedy: Option<String>,
    /// As the daemon sent it.
    problem: Option<Box<Problem>>,
}

impl Failure {
    pub fn new(exit: Exit, detail: impl Into<String>, remedy: impl Into<String>) -> Failure {
        let remedy = Some(remedy.into()).filter(|text| !text.is_empty());
        Failure { exit, object: None, detail: detail.into(), remedy, problem: None }
    }
    pub fn object(mut self, object: impl Into<String>) -> Failure {
        self.object = Some(object.into());
        self
    }

    /// Prints it to stderr: as text, or as JSON for a program.
    pub fn report(&self, as_json: bool) {
        if as_json {
            let value = match &self.problem {
                Some(problem) => serde_json::to_value(problem.as_ref()).expect("a problem is plain data"),
                None => json!({
                    "exit": self.exit as u8, "detail": self.detail, "object": self.object, "remedy": self.remedy,
                }),
            };
            eprintln!("{value}");
            return;
        }
        eprintln!("{}", self.text());
    }

    fn text(&self) -> String {
        let mut text = String::from("forebay: ");
        if let Some(object) = &self.object {
            text.push_str(&printable(object));
            text.push_str(": ");
        }
        text.push_str(&printable(&self.detail));
        let field = self.problem.as_ref().and_then(|problem| problem.field.as_ref());
        if let Some(field) = field {
            text.push_str(&format!(" ({})", printable(field)));
        }
        if let Some(remedy) = &self.remedy {
            text.push_str("\n  try: ");
            text.push_str(&printable(remedy));
        }
        text
    }
}

/// Text from the daemon cannot move the cursor or change the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure {
            exit: Exit::of(problem.code),
            object: problem.object.clone(),
            detail: problem.detail.clone(),
            remedy: problem.remedy.clone(),
            problem: Some(Box::new(problem)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_why_and_what_to_try() {
        let problem = Problem::new(Code::Unsafe, "the disk holds pool \x1b[31mtank")
            .object("/dev/sdb")
            .field("disks")
            .remedy("Choose another.");
        let failure = Failure::from(problem);
        assert_eq!(failure.exit, Exit::Unsafe);
        let text = failure.text();
        assert_eq!(
            text,
            "forebay: /dev/sdb: the disk holds pool \u{fffd}[31mtank (disks)\n  try: Choose another."
        );
    }

    #[test]
    fn codes_have_the_documented_exits() {
        for (code, exit) in [
            (Code::Invalid, 2),
            (Code::NotFound, 3),
            (Code::Conflict, 4),
            (Code::PreconditionFailed, 4),
            (Code::Unsafe, 5),
            (Code::Suspended, 6),
            (Code::Stopped, 7),
            (Code::NoSpace, 1),
            (Code::Unauthenticated, 9),
            (Code::Forbidden, 9),
        ] {
            assert_eq!(Failure::from(Problem::new(code, "")).exit as u8, exit, "{code:?}");
        }
    }
}
