//! Users, logins, the link for the first administrator, and the audit log.
//!
//! Passwords are in requests only, never in answers.

use crate::Access;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A user, who logs in with a password.
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
    /// Absent before the first login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_login_unix_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserCreate {
    /// 1 to 63 letters, digits and `._-`, starting with a letter. Upper and lower case are the same.
    pub name: String,
    pub role: Access,
    /// At least 12 characters, at most 1024 bytes.
    pub password: String,
}

/// Changes to a user. Absent fields stay as they are. A new name, role or password ends all logins of the user.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserSet {
    /// The new name; only an administrator can change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The last administrator keeps the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Access>,
    /// At least 12 characters, at most 1024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The present password. Required when users change their own password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_password: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginCreate {
    pub name: String,
    pub password: String,
}

/// The user or token that asks. The answer to a login also sets the cookie `forebay_session`, on HTTPS
/// `__Host-forebay_session`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Login {
    pub user: LoginUser,
    /// Value of the header `X-CSRF-Token`, which changes sent with the cookie need. Absent with a token and on the
    /// socket, which need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csrf: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoginUser {
    /// The user's name, or the token's.
    pub name: String,
    pub role: Access,
}

/// Whether the first administrator is still to be created.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Setup {
    pub needed: bool,
}

/// Creates the first administrator and begins a login.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetupFinish {
    /// From the link that the daemon or `forebay setup link` printed.
    pub secret: String,
    /// 1 to 63 letters, digits and `._-`, starting with a letter.
    pub name: String,
    /// At least 12 characters, at most 1024 bytes.
    pub password: String,
}

/// A new link for the first administrator. It replaces the previous one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetupLink {
    pub url: String,
    pub expires_unix_ms: u64,
}

/// A change over the API, made or refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Grows by one with each entry, across restarts.
    pub sequence: u64,
    pub at_unix_ms: u64,
    /// `user NAME` or `token NAME`; `socket` for the daemon's owner; `anonymous` for a login with an unknown name.
    pub principal: String,
    /// Origin: an IP address, or `socket` with the user of the host behind it, such as `socket of anna, as root`.
    pub address: String,
    /// The operation's name in this document, such as `VolumeCreate`.
    pub operation: String,
    /// The path of the request.
    pub path: String,
    /// The HTTP status of the answer. 202: a task was started, and another entry with the same `task` has its result.
    pub status: u16,
    /// Why the request was refused or failed. Also present when the request was answered but its purpose failed, such
    /// as a test message that was not delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<crate::Code>,
    /// The task that was started or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = "uuid")]
    pub task: Option<String>,
    /// For a change, the changed fields: `size_bytes: 2147483648, was 1073741824`. For a new object, its fields; for
    /// a deleted one, its former fields. For a task or a refused request, the request; for a task that ended, the
    /// result. Never a secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Number of refused logins that this entry stands for, if more than one: they are recorded once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}
