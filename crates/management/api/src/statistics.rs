//! Statistics, queries, and worksheets. `docs/reference/analytics.md` explains them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A statistic that can be queried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Statistic {
    /// `layer.noun`.
    pub name: String,
    pub kind: StatisticKind,
    /// Unit of the values in an answer: `per-second`, `bytes-per-second`, `ns`, …
    pub unit: String,
    /// Dimensions that it can be broken down by, in brackets.
    pub dimensions: Vec<String>,
    /// Distributions that a bracket shows as a heat map.
    pub spreads: Vec<String>,
    pub sentence: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StatisticKind {
    /// A rate.
    Counter,
    Gauge,
    /// A histogram.
    Spread,
}

/// The values of a statistic over an interval, in steps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticAnswer {
    /// The expression as it was understood.
    pub expression: String,
    pub kind: StatisticKind,
    pub unit: String,
    /// A multiple of the step.
    pub from_unix_s: u64,
    pub to_unix_s: u64,
    pub step_seconds: u64,
    /// Greatest mean first. Absent for a heat map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<StatisticLine>>,
    /// The sum of lines beyond `limit`, if there are any and a sum makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<StatisticSum>,
    /// The sum of all lines, if a sum makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<StatisticSum>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heatmap: Option<HeatMap>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticLine {
    /// Values of the dimensions of the breakdown; for a distribution also `quantile`: `p50`, `p95`, `p99`, `p999` or
    /// `max`.
    pub labels: BTreeMap<String, String>,
    /// Mean over the interval; for a distribution, the percentile of all its values together.
    pub mean: f64,
    pub greatest: f64,
    /// One value a step; `null` where nothing was stored.
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticSum {
    /// Number of lines in the sum.
    pub lines: u64,
    pub mean: f64,
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HeatMap {
    /// `latency`, `size` or `offset`.
    pub dimension: String,
    pub unit: String,
    /// Edges of the rows in rising order: one more than there are rows, or none without rows.
    pub bounds: Vec<u64>,
    /// For each step, the rate of each row per second; empty where nothing was stored.
    pub columns: Vec<Vec<f64>>,
}

/// A message from the client: a subscription, or its end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StatisticSubscribe {
    /// Starts a subscription, with a number that the client chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
    /// 1 to 100; 12 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Ends the subscription with this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<u64>,
}

/// A message to the client: one second of a subscription.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StatisticSecond {
    pub id: u64,
    pub at_unix_s: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<StatisticValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// For a heat map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<Vec<f64>>,
    /// Number of preceding seconds that were not sent because the client did not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticValue {
    pub labels: BTreeMap<String, String>,
    pub value: Option<f64>,
}

/// Saved graphs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Worksheet {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: WorksheetSpec,
    pub status: WorksheetStatus,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorksheetSpec {
    /// 1 to 24.
    pub graphs: Vec<WorksheetGraph>,
    /// For a live worksheet: the time shown, 10 to 604800 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// For a fixed interval: its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_unix_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_unix_s: Option<u64>,
    /// The data of the interval, a day at most, is kept until the worksheet is deleted.
    #[serde(default)]
    pub pinned: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorksheetGraph {
    pub expression: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// 1 to 100; 12 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorksheetStatus {
    pub created_unix_ms: u64,
    pub changed_unix_ms: u64,
    /// Recorded automatically around a fault, and not changed since. The newest 20 of these are kept.
    #[serde(default)]
    pub captured: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorksheetCreate {
    /// 1 to 100 characters, not the name of another worksheet.
    pub name: String,
    pub spec: WorksheetSpec,
}

/// Changes to a worksheet. Absent fields stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorksheetSet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<WorksheetSpec>,
}

/// A worksheet with the answers to its graphs, in their order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorksheetExport {
    pub name: String,
    pub graphs: Vec<StatisticAnswer>,
}
