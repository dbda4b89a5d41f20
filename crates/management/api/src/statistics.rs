//! Statistics, their answers, and worksheets. What they mean is in `docs/analytics.md`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Something that can be asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Statistic {
    /// `layer.noun`.
    pub name: String,
    pub kind: StatisticKind,
    /// Of the values in an answer: `per-second`, `bytes-per-second`, `ns`, …
    pub unit: String,
    /// What may stand in brackets.
    pub dimensions: Vec<String>,
    /// What may stand in a bracket and makes a heat map.
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

/// What there was in an interval, in steps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticAnswer {
    /// As it was understood.
    pub expression: String,
    pub kind: StatisticKind,
    pub unit: String,
    /// A multiple of the step.
    pub from_unix_s: u64,
    pub to_unix_s: u64,
    pub step_seconds: u64,
    /// The greatest first. Absent of a heat map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<StatisticLine>>,
    /// What is not in `lines`, when something is not, and where adding makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<StatisticSum>,
    /// Where adding makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<StatisticSum>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heatmap: Option<HeatMap>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticLine {
    /// Values of the dimensions that it breaks down by; of a spread also `quantile`: `p50`, `p95`, `p99`, `p999` or `max`.
    pub labels: BTreeMap<String, String>,
    /// Over the whole interval; of a spread, the percentile of all its values together.
    pub mean: f64,
    pub greatest: f64,
    /// One a step; `null` where nothing was kept.
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticSum {
    /// Of how many lines.
    pub lines: u64,
    pub mean: f64,
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct HeatMap {
    /// By what: `latency`, `size` or `offset`.
    pub dimension: String,
    pub unit: String,
    /// Edges of rows in rising order: one more than rows, or none without any.
    pub bounds: Vec<u64>,
    /// For each step, how many a second each row has; empty where nothing was kept.
    pub columns: Vec<Vec<f64>>,
}

/// What a client of the stream sends: either of both.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StatisticSubscribe {
    /// Begins one, under a number of the client's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribe: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
    /// 1 to 100; 12 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Ends one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<u64>,
}

/// A second of a subscription, as the stream tells it.
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
    /// Of a heat map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<Vec<f64>>,
    /// How many seconds before this one were not told, because the client did not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatisticValue {
    pub labels: BTreeMap<String, String>,
    pub value: Option<f64>,
}

/// Graphs that somebody wants to see again.
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
    /// How much of the past is shown, live: 10 to 604800.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Instead: from when to when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_unix_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_unix_s: Option<u64>,
    /// The interval, a day at most, is kept whole for ever.
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
    /// Made by the appliance when something went wrong, and not changed since. The newest 20 of these are kept.
    #[serde(default)]
    pub captured: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorksheetCreate {
    /// 1 to 100 characters; no worksheet has it yet.
    pub name: String,
    pub spec: WorksheetSpec,
}

/// What to change of a worksheet; what is absent stays.
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
