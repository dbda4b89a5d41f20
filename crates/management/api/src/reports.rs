//! Reports that are kept: of a validation, or of whatever else somebody measured.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A report, without what it says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Report {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub created_unix_ms: u64,
    /// Who has sent it.
    pub by: String,
    /// Of its page; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html_bytes: Option<u64>,
    /// Of its figures, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_bytes: Option<u64>,
}

/// A report to keep: a page, figures, or both.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportCreate {
    /// 1 to 100 characters; no report has it yet.
    pub name: String,
    /// A page that needs nothing else: it is shown without scripts, and nothing is loaded for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// JSON, as text: it is given back as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
}
