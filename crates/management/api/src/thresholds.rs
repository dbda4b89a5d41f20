//! Thresholds: limits of statistics that raise alerts.

use crate::AlertSeverity;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A limit of a statistic. An alert stands as long as it is crossed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Threshold {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: ThresholdSpec,
    pub status: ThresholdStatus,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ThresholdSpec {
    /// An expression as in a query. With a bracket that breaks it down, each line is compared on its own.
    pub expression: String,
    /// The alert stands while the mean is above this value, in the statistic's unit; for a distribution, while its
    /// p99 is. Give either this or `below`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// The alert stands while the mean is below this value; a line without values is not below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    /// Seconds over which the mean is taken: 10 to 3600.
    #[serde(default = "minute")]
    pub over_seconds: u32,
    #[serde(default = "warning")]
    pub severity: AlertSeverity,
}

impl ThresholdSpec {
    /// Without a limit yet.
    pub fn new(expression: String) -> ThresholdSpec {
        ThresholdSpec { expression, above: None, below: None, over_seconds: minute(), severity: warning() }
    }
}

fn minute() -> u32 {
    60
}
fn warning() -> AlertSeverity {
    AlertSeverity::Warning
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ThresholdStatus {
    pub created_unix_ms: u64,
    pub changed_unix_ms: u64,
    /// Unit of `value`; empty when this version does not know the expression.
    pub unit: String,
    /// Whether the alert stands.
    pub crossed: bool,
    /// Last value of the line that is farthest beyond the limit, or nearest to it. Absent without values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ThresholdCreate {
    /// Letters, digits and `._-`, starting with a letter; not the name of another threshold.
    pub name: String,
    pub spec: ThresholdSpec,
}

/// Changes to a threshold. Absent fields stay as they are.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ThresholdSet {
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ThresholdSpec>,
}

/// A statistic's value in its unit, for people.
pub fn show_in_unit(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => crate::show_size(value as u64),
        "bytes-per-second" => crate::show_rate(value as u64),
        "ns" => match value as u64 {
            nanos @ 0..1000 => format!("{nanos}ns"),
            nanos => crate::show_measured(nanos / 1000),
        },
        // Nanoseconds of each second.
        "ns-per-second" => format!("{:.1}%", value / 1e7),
        "thousandths" => format!("{:.1}%", value / 10.0),
        _ if value >= 100.0 || value == value.trunc() => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
