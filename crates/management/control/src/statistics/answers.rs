//! Questions and answers of the analytics as the API has them.

use forebay_analytics::{
    Answer, AskError, Expression, ExpressionError, Kind, PinError, STATISTICS, Series, Statistic,
};
use forebay_api::{
    Code, HeatMap, Problem, StatisticAnswer, StatisticKind, StatisticLine, StatisticSecond, StatisticSum,
    StatisticValue,
};
use std::collections::BTreeMap;

/// Lines of an answer when the request has no limit.
pub const LIMIT_DEFAULT: u32 = 12;
pub const EXPRESSION: &str = "expression";

/// Everything there is to ask for.
pub fn all() -> Vec<forebay_api::Statistic> {
    STATISTICS.iter().map(statistic).collect()
}

fn statistic(one: &Statistic) -> forebay_api::Statistic {
    forebay_api::Statistic {
        name: one.to_string(),
        kind: kind(one.kind),
        unit: one.unit.into(),
        dimensions: one.dimensions.iter().map(|dimension| dimension.name().into()).collect(),
        spreads: one.spreads().map(|spread| spread.noun.name().into()).collect(),
        sentence: one.sentence.into(),
    }
}

pub fn kind(kind: Kind) -> StatisticKind {
    match kind {
        Kind::Counter => StatisticKind::Counter,
        Kind::Gauge(_) => StatisticKind::Gauge,
        Kind::Spread(_) => StatisticKind::Spread,
    }
}

/// An expression, or the problem that says what is wrong with it.
pub fn parse(text: &str, field: &str) -> Result<Expression, Problem> {
    Expression::parse(text).map_err(|error| {
        let ExpressionError { instead, .. } = &error;
        Problem::new(Code::Invalid, error.to_string()).field(field).remedy(instead.as_str())
    })
}

pub fn asked_wrongly(error: AskError) -> Problem {
    let (field, remedy) = match error {
        AskError::Interval => {
            ("to", "Give a `from` before `to`, both as seconds since 1970 or as seconds before now.")
        }
        AskError::Step => ("step", "Give 1 second or more, or omit it for an automatic step."),
        AskError::Limit => ("limit", "Give 1 to 100."),
        AskError::TooFine(_) => ("step", "Give a longer step, or omit it for an automatic step."),
    };
    Problem::new(Code::Invalid, error.to_string()).field(field).remedy(remedy)
}

pub fn not_pinned(error: PinError) -> Problem {
    let pinned =
        |code, detail: String, remedy: &str| Problem::new(code, detail).field("spec.pinned").remedy(remedy);
    match error {
        PinError::Length(most) => pinned(
            Code::Invalid,
            format!("a pinned interval has 1 second at least, and {most} at most"),
            "Choose a shorter interval.",
        ),
        PinError::TooMany(most) => pinned(
            Code::Busy,
            format!("{most} intervals are pinned already"),
            "Delete worksheets, or unpin their intervals.",
        ),
        PinError::NoRoom(bytes) => pinned(
            Code::NoSpace,
            format!("all pinned intervals together may have {bytes} bytes"),
            "Delete worksheets, or choose a shorter interval.",
        ),
        PinError::Nothing => pinned(
            Code::Conflict,
            "no data of this interval is kept (any more)".into(),
            "Choose a later interval, or save the worksheet without its data.",
        ),
        PinError::Io(error) => pinned(
            Code::Io,
            format!("the interval cannot be copied: {error}"),
            crate::directory::remedy_of(&error),
        ),
    }
}

/// Thousandths are enough of anything that is counted in whole things; digits behind them would be most of an answer.
fn short(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn shorts(values: &[Option<f64>]) -> Vec<Option<f64>> {
    values.iter().map(|value| value.map(short)).collect()
}

pub fn labels(line: &Series) -> BTreeMap<String, String> {
    let labels = line.labels.iter().map(|(dimension, value)| (dimension.name().to_string(), value.clone()));
    labels.chain(line.quantile.map(|name| ("quantile".to_string(), name.to_string()))).collect()
}

pub fn unit(expression: &Expression) -> &'static str {
    // A heat map shows how much there was, at each size of another unit.
    expression.statistic.unit
}

pub fn answer(expression: &Expression, answer: &Answer) -> StatisticAnswer {
    let sum = |rest: &forebay_analytics::Rest| StatisticSum {
        lines: rest.lines as u64,
        mean: rest.mean,
        values: shorts(&rest.values),
    };
    let line = |line: &Series| StatisticLine {
        labels: labels(line),
        mean: line.mean,
        greatest: line.greatest,
        values: shorts(&line.values),
    };
    let heatmap = answer.heat_map.as_ref().map(|map| HeatMap {
        dimension: map.dimension.name().into(),
        unit: map.unit.into(),
        bounds: map.bounds.clone(),
        columns: map
            .columns
            .iter()
            .map(|column| column.iter().flatten().copied().map(short).collect())
            .collect(),
    });
    StatisticAnswer {
        expression: expression.to_string(),
        kind: kind(expression.statistic.kind),
        unit: unit(expression).into(),
        from_unix_s: answer.from,
        to_unix_s: answer.to,
        step_seconds: answer.step_seconds,
        lines: heatmap.is_none().then(|| answer.series.iter().map(line).collect()),
        others: answer.others.as_ref().map(sum),
        total: answer.total.as_ref().map(sum),
        heatmap,
    }
}

/// The answer for a single second, as the stream tells it.
pub fn second(id: u64, answer: &Answer, missed: u64) -> StatisticSecond {
    let first = |values: &[Option<f64>]| values.first().copied().flatten().map(short);
    let value = |line: &Series| StatisticValue { labels: labels(line), value: first(&line.values) };
    let rest = |rest: &Option<forebay_analytics::Rest>| rest.as_ref().and_then(|rest| first(&rest.values));
    let map = answer.heat_map.as_ref();
    let column = |map: &forebay_analytics::HeatMap| {
        map.columns.iter().flatten().flatten().copied().map(short).collect()
    };
    StatisticSecond {
        id,
        at_unix_s: answer.from,
        lines: map.is_none().then(|| answer.series.iter().map(value).collect()),
        others: rest(&answer.others),
        total: rest(&answer.total),
        bounds: map.map(|map| map.bounds.clone()),
        column: map.map(column),
        missed: (missed > 0).then_some(missed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_an_expression_is_said_with_what_there_is() {
        let problem = parse("nbd.opps", "spec.graphs[2].expression").unwrap_err();
        assert_eq!(
            (problem.code, problem.field.as_deref()),
            (Code::Invalid, Some("spec.graphs[2].expression"))
        );
        assert!(problem.detail.contains("`opps`") && problem.remedy.unwrap().contains("latency"));
        assert_eq!(parse("nbd.ops[client]", EXPRESSION).unwrap().to_string(), "nbd.ops[client]");
    }

    #[test]
    fn everything_is_listed_with_its_brackets() {
        let all = all();
        let ops = all.iter().find(|one| one.name == "nbd.ops").unwrap();
        assert_eq!(ops.spreads, ["latency", "size", "offset"]);
        assert_eq!((ops.kind, &*ops.unit), (StatisticKind::Counter, "per-second"));
        assert_eq!(all.len(), STATISTICS.len());
    }
}
