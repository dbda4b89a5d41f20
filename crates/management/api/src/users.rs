//! People: who may log in, the browser's logins, the link that makes the first administrator, and the record of who did what.
//!
//! Passwords travel in requests only; nothing here ever answers with one.

use crate::Access;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Somebody who logs in with a password.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct User {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: UserSpec,
    pub status: UserStatus,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UserSpec {
    pub role: Access,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UserStatus {
    pub created_unix_ms: u64,
    /// Absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_login_unix_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserCreate {
    /// 1 to 63 letters, digits and `._-`, starting with a letter. Names that differ in capitals only are the same.
    pub name: String,
    pub role: Access,
    /// At least 12 characters, at most 1024 bytes.
    pub password: String,
}

/// What to change of a user; what is absent stays. Either ends all of the user's logins.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserSet {
    /// The last administrator stays one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Access>,
    /// At least 12 characters, at most 1024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The password until now. Needed by who changes his own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_password: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginCreate {
    pub name: String,
    pub password: String,
}

/// Who is logged in. With the answer that begins it comes the cookie `forebay_session`, on HTTPS `__Host-forebay_session`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Login {
    pub user: LoginUser,
    /// Changes that come with the cookie have it in the header `X-CSRF-Token`. Absent for whoever needs none, because he sends a token or uses the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csrf: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoginUser {
    /// The user's name, or the token's.
    pub name: String,
    pub role: Access,
}

/// Whether there is nobody yet who could log in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Setup {
    pub needed: bool,
}

/// Makes the first administrator, and logs him in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetupFinish {
    /// From the link that the daemon printed, or `forebay setup link`.
    pub secret: String,
    /// 1 to 63 letters, digits and `._-`, starting with a letter.
    pub name: String,
    /// At least 12 characters, at most 1024 bytes.
    pub password: String,
}

/// A new link, which takes the place of the one before.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetupLink {
    pub url: String,
    pub expires_unix_ms: u64,
}

/// Somebody changed something over the API, or tried to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Grows by one with each entry, across restarts.
    pub sequence: u64,
    pub at_unix_ms: u64,
    /// `user NAME`, `token NAME`, `socket` for the owner on the host itself, or `nobody`.
    pub principal: String,
    /// Where from: an IP address; or `socket`, with the user of the host who is behind it, `socket of anna, as root`.
    pub address: String,
    /// As in this document: `VolumeCreate`.
    pub operation: String,
    /// The path that was asked for.
    pub path: String,
    /// What it came to: the HTTP status. 202: a task was begun, and another entry with the same `task` says how it ended.
    pub status: u16,
    /// Why it was refused or failed, also where the status says that the request itself was answered: a test that was not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<crate::Code>,
    /// The task that was begun, or that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "uuid")]
    pub task: Option<String>,
    /// What of the object is another now, `size_bytes: 2147483648, was 1073741824`; of a new one, what was decided; of one that is deleted, what it was; of a task
    /// and of what was refused, what was asked for; and of a task that has ended, how. Never a secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// How many refused logins of strangers this stands for, if more than one: they are written down once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}
