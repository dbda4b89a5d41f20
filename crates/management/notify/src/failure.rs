//! Why a message was not delivered, in words for the person who set the channel up, and whether another attempt can help.

use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Whether and when the same message is worth another attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// The receiver refused this message or these settings.
    Never,
    /// As the channel's backoff says.
    Backoff,
    /// Not before this time has passed, because the receiver asked for it.
    After(Duration),
}

/// A failed delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What happened, with the name of the peer.
    pub message: String,
    /// What to do next.
    pub remedy: String,
    pub retry: Retry,
}

impl Failure {
    pub(crate) fn passing(message: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure { message: message.into(), remedy: remedy.into(), retry: Retry::Backoff }
    }

    pub(crate) fn is_final(message: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure { message: message.into(), remedy: remedy.into(), retry: Retry::Never }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.message, self.remedy)
    }
}

impl std::error::Error for Failure {}

/// What is wrong with a channel's settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problem {
    /// Where: `delivery.port`, `quiet_hours.days`.
    pub field: String,
    /// What is wrong, as a sentence.
    pub message: String,
    /// What to write instead, as a sentence.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.field, self.message, self.remedy)
    }
}
