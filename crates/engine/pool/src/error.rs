//! What can go wrong, told so that a person knows what happened, to which object, and what to do next.

use std::fmt;

/// Whose fault, and what a caller can do: the command line turns it into an exit status, REST into a status code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// A value is outside what the product can do; the field is named.
    Invalid(&'static str),
    NotFound,
    /// The object exists already, is busy, or changed meanwhile.
    Conflict,
    /// The request could destroy data and was refused; nothing was touched.
    Unsafe,
    NoSpace,
    /// Stored data fails its checks beyond what redundancy can repair.
    Corrupt,
    /// A device failed the request.
    Io,
    /// The pool has stopped writing after a failure that redundancy could not absorb.
    Suspended,
    /// The engine is shutting down.
    Stopped,
}

/// An error of a management operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    pub kind: ErrorKind,
    /// The pool, disk or volume concerned, as the user names it.
    pub object: String,
    /// What happened and why: a sentence without the object's name.
    pub message: String,
    /// What to try next; empty when there is nothing.
    pub remedy: String,
}

impl Error {
    pub fn new(kind: ErrorKind, object: impl Into<String>, message: impl Into<String>) -> Error {
        Error { kind, object: object.into(), message: message.into(), remedy: String::new() }
    }
    pub fn remedy(mut self, remedy: impl Into<String>) -> Error {
        self.remedy = remedy.into();
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.message)?;
        if !self.remedy.is_empty() {
            write!(f, ". {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Why one read or write of a volume failed. Small and `Copy`: protocols map it to their own codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoError {
    /// Outside the volume.
    OutOfRange,
    /// No space left in the pool; deletion and discard still work.
    NoSpace,
    /// Every copy of a block fails its checksum or cannot be read.
    Corrupt,
    /// A device failed the request.
    Io,
    /// The pool has stopped writing.
    Suspended,
    /// The pool was imported to be read only.
    ReadOnly,
    /// The volume was deleted or the pool exported.
    Gone,
    /// The client no longer wanted it, and it had not begun.
    Cancelled,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoError::OutOfRange => "the range is outside the volume, or longer than the maximum of a request",
            IoError::NoSpace => "no space left in the pool",
            IoError::Corrupt => "stored data is damaged beyond repair",
            IoError::Io => "a disk failed the request",
            IoError::Suspended => "the pool is suspended after a disk failure",
            IoError::ReadOnly => "the pool is imported read-only",
            IoError::Gone => "the volume is no longer available",
            IoError::Cancelled => "the request was cancelled before it began",
        })
    }
}
