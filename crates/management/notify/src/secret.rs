//! Passwords and keys of channels, which no log, no answer and no debugger's print shows.
//!
//! Hiding is the default: `Debug` prints that there is one, and `Serialize` writes `null`. The one way to write secrets down is
//! [`Channel::to_stored`](crate::Channel::to_stored), for the file that only the daemon reads. A channel that comes back from a display has its
//! secrets as `null`; [`Channel::keep_secrets`](crate::Channel::keep_secrets) takes them over from the stored one.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A secret, or the mark that one is kept elsewhere.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Option<String>);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(Some(text.into()))
    }

    /// Whether this came from a display, where secrets are not shown.
    pub fn is_hidden(&self) -> bool {
        self.0.is_none()
    }

    /// The secret itself; empty when it is hidden, which [`Channel::check`](crate::Channel::check) refuses.
    pub(crate) fn expose(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_hidden() { "Secret(kept elsewhere)" } else { "Secret(not shown)" })
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_none()
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        Option::<String>::deserialize(deserializer).map(Secret)
    }
}
