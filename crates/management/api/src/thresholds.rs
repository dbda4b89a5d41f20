//! Thresholds: alerts that somebody wants of a statistic.

use crate::AlertSeverity;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A statistic's limit, which raises an alert as long as it is crossed.
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
    /// As in a question; with a bracket that breaks down, each line by itself.
    pub expression: String,
    /// The alert stands while the mean is above this, in the statistic's unit; of a spread, while its p99 is. Either this or `below`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// Likewise; what there is nothing of is not below anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
    /// The mean over so many seconds: 10 to 3600.
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
    /// Of `value`; empty while the expression is none that this version knows.
    pub unit: String,
    /// Whether the alert stands.
    pub crossed: bool,
    /// Of the line that is farthest beyond, or nearest to it, when it was looked last; absent where nothing was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ThresholdCreate {
    /// Letters, digits and `._-`, starting with a letter; no threshold has it yet.
    pub name: String,
    pub spec: ThresholdSpec,
}

/// What to change of a threshold; what is absent stays.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ThresholdSet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ThresholdSpec>,
}

/// A statistic's value in its unit, for people.
pub fn show_in_unit(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => crate::show_size(value as u64),
        "bytes-per-second" => format!("{}/s", crate::show_size(value as u64)),
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
