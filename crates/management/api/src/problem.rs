//! Errors as RFC 9457 problem documents.
//!
//! `code` is for programs: it never changes its meaning. `detail` says what happened, `remedy` what to do next; the
//! command line prints the same two texts.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The kind of error, for programs; its meaning never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A value or the form of the request is wrong; `field` names it.
    Invalid,
    /// No valid token, and no login.
    Unauthenticated,
    /// The role does not allow it, or the request may come from a foreign web page.
    Forbidden,
    NotFound,
    MethodNotAllowed,
    /// The client took too long to send the request.
    Timeout,
    /// The object exists already, is in use, or changed in the meantime.
    Conflict,
    /// Refused because data could be lost; nothing was changed.
    Unsafe,
    /// `If-Match` has another version of the object.
    PreconditionFailed,
    /// The request body is too large.
    TooLarge,
    /// The request body is not `application/json`.
    UnsupportedMediaType,
    /// The idempotency key was used with another request.
    KeyReused,
    /// A limit is reached.
    Busy,
    /// Not supported in this version.
    NotSupported,
    NoSpace,
    /// Stored data is damaged and unrecoverable.
    Corrupt,
    /// A disk, or the daemon's own directory, failed.
    Io,
    /// The pool stopped writing after a failure.
    Suspended,
    /// The daemon is shutting down.
    Stopped,
    /// A bug of the daemon.
    Internal,
}

/// As in JSON.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Code {
    pub const ALL: [Code; 20] = [
        Code::Invalid,
        Code::Unauthenticated,
        Code::Forbidden,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::Timeout,
        Code::Conflict,
        Code::Unsafe,
        Code::PreconditionFailed,
        Code::TooLarge,
        Code::UnsupportedMediaType,
        Code::KeyReused,
        Code::Busy,
        Code::NotSupported,
        Code::NoSpace,
        Code::Corrupt,
        Code::Io,
        Code::Suspended,
        Code::Stopped,
        Code::Internal,
    ];

    /// The HTTP status that goes with it.
    pub fn status(self) -> u16 {
        match self {
            Code::Invalid => 400,
            Code::Unauthenticated => 401,
            Code::Forbidden => 403,
            Code::NotFound => 404,
            Code::MethodNotAllowed => 405,
            Code::Timeout => 408,
            Code::Conflict | Code::Unsafe => 409,
            Code::PreconditionFailed => 412,
            Code::TooLarge => 413,
            Code::UnsupportedMediaType => 415,
            Code::KeyReused => 422,
            Code::Busy => 429,
            Code::Corrupt | Code::Io | Code::Internal => 500,
            Code::NotSupported => 501,
            Code::Suspended | Code::Stopped => 503,
            Code::NoSpace => 507,
        }
    }

    /// A short title for people, the same for all problems with this code.
    pub fn title(self) -> &'static str {
        match self {
            Code::Invalid => "The request is not valid",
            Code::Unauthenticated => "A valid token or login is needed",
            Code::Forbidden => "This is not allowed",
            Code::NotFound => "The object does not exist",
            Code::MethodNotAllowed => "The object does not have this operation",
            Code::Timeout => "The request took too long to arrive",
            Code::Conflict => "The object's state does not allow this",
            Code::Unsafe => "Refused, because data could be lost",
            Code::PreconditionFailed => "The object has changed in the meantime",
            Code::TooLarge => "The request is too large",
            Code::UnsupportedMediaType => "The request body is not JSON",
            Code::KeyReused => "The idempotency key belongs to another request",
            Code::Busy => "A limit is reached",
            Code::NotSupported => "Not supported in this version",
            Code::NoSpace => "No space left",
            Code::Corrupt => "Stored data is damaged and unrecoverable",
            Code::Io => "A disk or file could not be read or written",
            Code::Suspended => "The pool has stopped writing",
            Code::Stopped => "The daemon is shutting down",
            Code::Internal => "A bug in the daemon",
        }
    }
}

/// An error: `application/problem+json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:forebay:problem:CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The same for all problems with this code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    pub code: Code,
    /// What happened and why.
    pub detail: String,
    /// The pool, disk, volume, task or token concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The wrong field, header or parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        let name = serde_json::to_value(code).expect("a unit variant serialises");
        Problem {
            kind: format!("urn:forebay:problem:{}", name.as_str().expect("a unit variant is a string")),
            title: code.title().to_string(),
            status: code.status(),
            code,
            detail: detail.into(),
            object: None,
            field: None,
            remedy: None,
        }
    }
    pub fn object(mut self, object: impl Into<String>) -> Problem {
        self.object = Some(object.into()).filter(|text| !text.is_empty());
        self
    }
    pub fn field(mut self, field: impl Into<String>) -> Problem {
        self.field = Some(field.into()).filter(|text| !text.is_empty());
        self
    }
    pub fn remedy(mut self, remedy: impl Into<String>) -> Problem {
        self.remedy = Some(remedy.into()).filter(|text| !text.is_empty());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once_and_makes_a_document() {
        let mut kinds = std::collections::HashSet::new();
        for code in Code::ALL {
            let problem = Problem::new(code, "it happened").object("demo").field("size_bytes").remedy("");
            assert!(kinds.insert(problem.kind.clone()), "{} twice", problem.kind);
            assert!((400..600).contains(&problem.status));
            let json = serde_json::to_value(&problem).unwrap();
            assert_eq!(json["type"], problem.kind);
            assert_eq!(json["field"], "size_bytes");
            assert!(json.get("remedy").is_none(), "an empty remedy is left out");
            assert_eq!(serde_json::from_value::<Problem>(json).unwrap(), problem);
        }
    }
}
