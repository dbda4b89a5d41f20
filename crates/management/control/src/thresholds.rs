//! Thresholds that are remembered, and whether they are crossed.
//!
//! One is looked at anew every [`LOOK_PARTS`]th of the time that its mean goes over, and not more often than everything else that may be wrong: what
//! is looked at costs as much as a query of a client.

use crate::statistics::answers;
use crate::store::{Kept, Store};
use forebay_analytics::{Answer, Ask, Expression, LIMIT_MAX};
use forebay_api::{Code, Problem, ThresholdSpec, show_in_unit};
use forebay_base::Id;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

const VERSION: u32 = 1;
/// Each is a question every ten seconds at most.
const THRESHOLDS_MAX: usize = 32;
const OVER_SECONDS: RangeInclusive<u32> = 10..=3600;
const LOOK_PARTS: u64 = 6;
/// The percentile of a spread that counts.
const QUANTILE: &str = "p99";

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Threshold {
    pub id: String,
    pub name: String,
    pub created_unix_ms: u64,
    pub changed_unix_ms: u64,
    pub revision: u64,
    pub spec: ThresholdSpec,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Content {
    pub version: u32,
    pub thresholds: Vec<Threshold>,
}

pub type Thresholds = Store<Content>;

impl Default for Content {
    fn default() -> Content {
        Content { version: VERSION, thresholds: Vec::new() }
    }
}

impl Content {
    fn place(&self, name: &str) -> Result<usize, Problem> {
        let place = self.thresholds.iter().position(|one| one.id == name || one.name == name);
        place.ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such threshold")
                .object(name)
                .remedy("`forebay threshold list` shows them.")
        })
    }

    pub fn find(&self, name: &str) -> Result<&Threshold, Problem> {
        self.place(name).map(|place| &self.thresholds[place])
    }

    pub fn find_mut(&mut self, name: &str) -> Result<&mut Threshold, Problem> {
        self.place(name).map(|place| &mut self.thresholds[place])
    }

    pub fn remove(&mut self, name: &str) -> Result<Threshold, Problem> {
        self.place(name).map(|place| self.thresholds.remove(place))
    }
}

impl Kept for Content {
    const FILE: &'static str = "thresholds";
    const VERSION: u32 = VERSION;
    const WHAT: &'static str = "thresholds";
    const REMEDY: &'static str = "Restore the file from a backup. Or move it away and start the daemon again; the thresholds are then lost.";

    fn version(&self) -> u32 {
        self.version
    }

    /// Not what expressions mean: one that a later version does not know is still the threshold's.
    fn check(&self) -> Result<(), Problem> {
        if self.thresholds.len() > THRESHOLDS_MAX {
            return Err(Problem::new(Code::Busy, format!("there are {THRESHOLDS_MAX} thresholds already"))
                .remedy(
                    "Delete one that is no longer needed. A threshold with a bracket like [disk] counts for every disk.",
                ));
        }
        let mut known = HashSet::new();
        for one in &self.thresholds {
            if !one.id.parse::<Id>().is_ok_and(|id| id.to_string() == one.id) {
                return Err(Problem::new(
                    Code::Invalid,
                    format!("`{}` is not the UUID of a threshold", one.id),
                ));
            }
            check_spec(&one.spec).map_err(|problem| problem.object(&*one.name))?;
            if !known.insert(&one.name) || !known.insert(&one.id) {
                return Err(Problem::new(Code::Conflict, "a threshold with this name exists")
                    .object(&*one.name)
                    .field("name")
                    .remedy("Choose another name, or change the existing threshold."));
            }
        }
        Ok(())
    }
}

fn check_spec(spec: &ThresholdSpec) -> Result<(), Problem> {
    let invalid = |field: &str, detail: String, remedy: &str| {
        Problem::new(Code::Invalid, detail).field(format!("spec.{field}")).remedy(remedy)
    };
    if spec.expression.chars().count() > forebay_analytics::CHARS_MAX {
        let detail = "the expression is too long".to_string();
        return Err(invalid("expression", detail, "Use a shorter expression."));
    }
    match (spec.above, spec.below) {
        (Some(limit), None) | (None, Some(limit)) if limit.is_finite() && limit >= 0.0 => {}
        (Some(_), None) => {
            return Err(invalid("above", "a limit is 0 or more".into(), "Give it in the statistic's unit."));
        }
        (None, Some(_)) => {
            return Err(invalid("below", "a limit is 0 or more".into(), "Give it in the statistic's unit."));
        }
        _ => {
            let detail = "a threshold has one limit".to_string();
            return Err(invalid("above", detail, "Give either above or below, in the statistic's unit."));
        }
    }
    if !OVER_SECONDS.contains(&spec.over_seconds) {
        let detail = format!("a mean over {} s is not possible", spec.over_seconds);
        return Err(invalid("over_seconds", detail, "Give 10 to 3600 seconds."));
    }
    Ok(())
}

/// A new threshold has to mean something: a limit of a number.
pub fn check_expression(spec: &ThresholdSpec) -> Result<Expression, Problem> {
    const FIELD: &str = "spec.expression";
    let expression = answers::parse(&spec.expression, FIELD)?;
    match expression.heat() {
        None => Ok(expression),
        Some(_) => Err(Problem::new(Code::Invalid, "a heat map has no single value to compare")
            .field(FIELD)
            .remedy("Use the statistic itself, such as disk.latency: its p99 is compared.")),
    }
}

/// A line of a statistic, and how it stands to a limit.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Values of what it is broken down by; empty when it is not.
    pub line: String,
    pub value: f64,
    pub crossed: bool,
    /// Lines that are beyond the limit.
    pub beyond: usize,
}

/// The line that is farthest beyond the limit, or nearest to it.
fn measure(spec: &ThresholdSpec, answer: &Answer) -> Option<Measured> {
    let lines = answer.series.iter().filter(|line| line.quantile.is_none_or(|name| name == QUANTILE));
    // Where nothing was kept is nothing to compare.
    let lines: Vec<_> = lines.filter(|line| line.values.iter().any(Option::is_some)).collect();
    let is_beyond = |value: f64| {
        spec.above.is_some_and(|limit| value > limit) || spec.below.is_some_and(|limit| value < limit)
    };
    let worst = match spec.above {
        Some(_) => lines.iter().max_by(|a, b| a.mean.total_cmp(&b.mean)),
        None => lines.iter().min_by(|a, b| a.mean.total_cmp(&b.mean)),
    }?;
    let labels: Vec<&str> = worst.labels.iter().map(|(_, value)| value.as_str()).collect();
    Some(Measured {
        line: labels.join(" "),
        value: worst.mean,
        crossed: is_beyond(worst.mean),
        beyond: lines.iter().filter(|line| is_beyond(line.mean)).count(),
    })
}

/// What is known of all thresholds, by id.
#[derive(Default)]
pub struct Known(BTreeMap<String, Look>);

struct Look {
    revision: u64,
    at_unix_s: u64,
    measured: Option<Measured>,
}

impl Known {
    /// Questions that are to be asked anew, with whose they are.
    pub fn due(&mut self, content: &Content, now_unix_s: u64) -> Vec<(Threshold, Ask)> {
        self.0.retain(|id, look| {
            content.thresholds.iter().any(|one| one.id == *id && one.revision == look.revision)
        });
        let due = content.thresholds.iter().filter(|one| {
            let every = u64::from(one.spec.over_seconds) / LOOK_PARTS;
            // A clock that was set back makes it due, too.
            self.0.get(&one.id).is_none_or(|look| now_unix_s.abs_diff(look.at_unix_s) >= every)
        });
        let asked = due.filter_map(|one| {
            let expression = check_expression(&one.spec).ok()?;
            let from = now_unix_s.saturating_sub(u64::from(one.spec.over_seconds));
            let ask = Ask { expression, from, to: now_unix_s, step_seconds: None, limit: LIMIT_MAX };
            Some((one.clone(), ask))
        });
        asked.collect()
    }

    pub fn answered(&mut self, of: &Threshold, answer: &Answer, now_unix_s: u64) {
        let measured = measure(&of.spec, answer);
        self.0.insert(of.id.clone(), Look { revision: of.revision, at_unix_s: now_unix_s, measured });
    }

    pub fn of(&self, one: &Threshold) -> Option<&Measured> {
        self.0.get(&one.id).filter(|look| look.revision == one.revision)?.measured.as_ref()
    }
}

/// `disk.latency[device] of sda was 12 ms over the last 60 s, above 10 ms`.
pub fn in_words(one: &Threshold, measured: &Measured) -> String {
    let ThresholdSpec { expression, above, over_seconds, .. } = &one.spec;
    let unit = unit_of(&one.spec);
    let whose = if measured.line.is_empty() { String::new() } else { format!(" of {}", measured.line) };
    let more = match measured.beyond {
        0 | 1 => String::new(),
        lines => format!(", and {} others", lines - 1),
    };
    let (word, limit) = match above {
        Some(limit) => ("above", *limit),
        None => ("below", one.spec.below.unwrap_or_default()),
    };
    format!(
        "{expression}{whose} was {} over the last {over_seconds} s{more}, {word} {}",
        show_in_unit(measured.value, unit),
        show_in_unit(limit, unit)
    )
}

pub fn unit_of(spec: &ThresholdSpec) -> &'static str {
    check_expression(spec).map_or("", |expression| answers::unit(&expression))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_analytics::{Dimension, Series};

    fn threshold(above: Option<f64>, below: Option<f64>) -> Threshold {
        Threshold {
            id: crate::random_id(),
            name: "slow".into(),
            created_unix_ms: 0,
            changed_unix_ms: 0,
            revision: 1,
            spec: ThresholdSpec {
                expression: "disk.latency[device]".into(),
                above,
                below,
                over_seconds: 60,
                severity: forebay_api::AlertSeverity::Warning,
            },
        }
    }

    fn answer(lines: &[(&str, &'static str, Option<f64>)]) -> Answer {
        let series = lines.iter().map(|(device, quantile, value)| Series {
            labels: vec![(Dimension::Device, device.to_string())],
            quantile: Some(quantile),
            mean: value.unwrap_or_default(),
            greatest: value.unwrap_or_default(),
            values: vec![*value],
        });
        Answer {
            from: 0,
            to: 60,
            step_seconds: 60,
            series: series.collect(),
            others: None,
            total: None,
            heat_map: None,
            rows_read: 0,
        }
    }

    #[test]
    fn the_worst_line_is_told_and_what_was_not_counted_is_not_compared() {
        let lines = [
            ("sda", "p99", Some(12e6)),
            ("sda", "max", Some(90e6)),
            ("sdb", "p99", Some(30e6)),
            ("sdc", "p99", None),
        ];
        let above = threshold(Some(1e7), None);
        let measured = measure(&above.spec, &answer(&lines)).unwrap();
        assert_eq!(
            (&*measured.line, measured.value, measured.crossed, measured.beyond),
            ("sdb", 30e6, true, 2)
        );
        let words = in_words(&above, &measured);
        assert_eq!(
            words,
            "disk.latency[device] of sdb was 30.0ms over the last 60 s, and 1 others, above 10.0ms"
        );
        let below = threshold(None, Some(1e7));
        let measured = measure(&below.spec, &answer(&lines)).unwrap();
        assert_eq!((&*measured.line, measured.crossed, measured.beyond), ("sda", false, 0));
        assert_eq!(measure(&below.spec, &answer(&lines[3..])), None);
    }

    #[test]
    fn a_limit_that_means_nothing_is_refused() {
        for (above, below, field) in [
            (None, None, "spec.above"),
            (Some(1.0), Some(2.0), "spec.above"),
            (Some(-1.0), None, "spec.above"),
            (None, Some(f64::INFINITY), "spec.below"),
        ] {
            let refused = check_spec(&threshold(above, below).spec).unwrap_err();
            assert_eq!(refused.field.as_deref(), Some(field));
        }
        let short = ThresholdSpec { over_seconds: 9, ..threshold(Some(1.0), None).spec };
        assert_eq!(check_spec(&short).unwrap_err().field.as_deref(), Some("spec.over_seconds"));
        for expression in ["disk.nothing", "nbd.ops[latency]"] {
            let spec = ThresholdSpec { expression: expression.into(), ..threshold(Some(1.0), None).spec };
            assert_eq!(check_expression(&spec).unwrap_err().field.as_deref(), Some("spec.expression"));
        }
    }

    #[test]
    fn one_is_asked_again_when_a_part_of_its_time_is_over_or_it_was_changed() {
        let mut known = Known::default();
        let mut content = Content { thresholds: vec![threshold(Some(1e7), None)], ..Content::default() };
        let due = |known: &mut Known, content: &Content, now| known.due(content, now).len();
        assert_eq!(due(&mut known, &content, 1000), 1);
        known.answered(&content.thresholds[0], &answer(&[("sda", "p99", Some(3e7))]), 1000);
        assert!(known.of(&content.thresholds[0]).is_some_and(|measured| measured.crossed));
        assert_eq!((due(&mut known, &content, 1009), due(&mut known, &content, 1010)), (0, 1));
        content.thresholds[0].revision = 2;
        assert_eq!(known.of(&content.thresholds[0]), None, "it may be crossed no longer");
        assert_eq!(due(&mut known, &content, 1001), 1);
    }
}
