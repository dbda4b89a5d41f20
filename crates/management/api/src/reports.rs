//! Stored reports, of validations or other measurements.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A report, without its contents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Report {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub created_unix_ms: u64,
    /// The user or token that stored it.
    pub by: String,
    /// Size of its page; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html_bytes: Option<u64>,
    /// Size of its figures; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_bytes: Option<u64>,
}

/// A report to store: a page, figures, or both.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportCreate {
    /// 1 to 100 characters, not the name of another report.
    pub name: String,
    /// A self-contained page. It is shown without scripts, and nothing is loaded for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// JSON, as text; it is returned unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
}
