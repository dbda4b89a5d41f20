//! `forebay threshold`: alerts on statistics.

use crate::arguments::DryRun;
use crate::channels::SeverityArgument;
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, Failure, printable};
use crate::listing::{self, Shown};
use crate::rename::Rename;
use crate::size::parse_duration;
use crate::table::Cell;
use clap::{ArgGroup, Args, Subcommand};
use forebay_api::{
    Operation, Statistic, Threshold, ThresholdCreate, ThresholdSet, ThresholdSpec, show_in_unit,
};

#[derive(Subcommand, Debug)]
pub enum ThresholdCommand {
    /// Create a threshold: an alert is raised while a statistic is above or below a limit
    #[command(group = ArgGroup::new("needed").required(true).args(["above", "below"]))]
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// Statistic, as in `forebay stat query`; with a breakdown like disk.latency[device], each line is checked separately
        expression: String,
        #[command(flatten)]
        limit: Limit,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List thresholds and the present values of their statistics
    List,
    /// Show a threshold
    Show {
        /// Name or UUID
        name: String,
    },
    /// Change a threshold
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args(["above", "below", "over", "severity"]))]
    Set {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        limit: Limit,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Rename a threshold
    Rename(Rename),
    /// Delete a threshold, and its alert
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

#[derive(Args, Debug)]
pub struct Limit {
    /// Alert while the mean (for latency the p99) is above this: 500 (count), 10ms (time), 50M (size or throughput) or 90% (percentage)
    #[arg(long, value_name = "VALUE", value_parser = value, conflicts_with = "below")]
    above: Option<Value>,
    /// Alert while it is below this, in the same units
    #[arg(long, value_name = "VALUE", value_parser = value)]
    below: Option<Value>,
    /// Averaging time, 10s to 1h [default for a new threshold: 60s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    over: Option<u64>,
    /// Severity of the alert [default for a new threshold: warning]
    #[arg(long)]
    severity: Option<SeverityArgument>,
}

/// A limit as it was written: what stands behind the number has to fit the statistic's unit, which the daemon knows.
#[derive(Clone, PartialEq, Debug)]
struct Value {
    number: f64,
    suffix: String,
}

fn value(text: &str) -> Result<Value, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let wrong = |_| format!("`{text}` does not begin with a number; write 500, 10ms, 50M or 90%");
    Ok(Value { number: number.parse().map_err(wrong)?, suffix: suffix.into() })
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.number, self.suffix)
    }
}

/// What may stand behind the number of a limit, by the statistic's unit, and an example that is right.
fn suffixes(unit: &str) -> (&'static [(&'static str, f64)], &'static str) {
    const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    const RATES: &[(&str, f64)] =
        &[("G", 1e9), ("M", 1e6), ("K", 1e3), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)];
    const SIZES: &[(&str, f64)] = &[
        ("B", 1.0),
        ("K", 1024.0),
        ("M", 1_048_576.0),
        ("G", 1_073_741_824.0),
        ("T", 1_099_511_627_776.0),
        ("P", 1_125_899_906_842_624.0),
    ];
    match unit {
        "ns" => (TIMES, "10ms"),
        "bytes" => (SIZES, "100G"),
        "bytes-per-second" => (RATES, "50M"),
        "thousandths" => (&[("%", 10.0)], "90%"),
        // Nanoseconds of each second.
        "ns-per-second" => (&[("%", 1e7)], "90%"),
        _ => (&[("", 1.0)], "500"),
    }
}

impl Value {
    /// The limit in the statistic's own unit.
    fn in_unit(&self, statistic: &str, unit: &str) -> Result<f64, Failure> {
        let (suffixes, example) = suffixes(unit);
        let suffix = self.suffix.strip_suffix("iB").unwrap_or(&self.suffix);
        if let Some((_, factor)) = suffixes.iter().find(|(name, _)| *name == suffix) {
            return Ok(self.number * factor);
        }
        let unit = match unit {
            "ns" => "a time",
            "bytes" => "a size in bytes",
            "bytes-per-second" => "bytes per second",
            "thousandths" | "ns-per-second" => "a percentage",
            "per-second" => "a count per second",
            _ => "a count",
        };
        let names: Vec<&str> =
            suffixes.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
        let form = match &names[..] {
            [] => "a number alone".into(),
            [one] => format!("a number with {one}"),
            [all @ .., last] => format!("a number with {} or {last}", all.join(", ")),
        };
        let detail = format!("`{self}` does not fit this statistic, which is {unit}");
        Err(Failure::new(Exit::Usage, detail, format!("Write {form}, like {example}.")).object(statistic))
    }
}

impl Limit {
    /// Changes what is given. `unit` is the statistic's.
    fn apply(self, spec: &mut ThresholdSpec, unit: &str) -> Result<(), Failure> {
        if self.above.is_some() || self.below.is_some() {
            let limit =
                |value: Option<Value>| value.map(|value| value.in_unit(&spec.expression, unit)).transpose();
            (spec.above, spec.below) = (limit(self.above)?, limit(self.below)?);
        }
        if let Some(seconds) = self.over {
            spec.over_seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        }
        if let Some(severity) = self.severity {
            spec.severity = severity.into();
        }
        Ok(())
    }
}

impl Session {
    /// The unit of the statistic that an expression begins with.
    fn unit_of(&self, expression: &str) -> Result<String, Failure> {
        let name = expression.split('[').next().unwrap_or_default();
        let all = self.client.all::<Statistic>(Operation::StatisticList, &[])?;
        let known = all.into_iter().find(|one| one.name == name);
        known.map(|one| one.unit).ok_or_else(|| {
            Failure::new(Exit::Usage, "there is no such statistic", "`forebay stat list` shows them.")
                .object(expression)
        })
    }

    pub fn threshold(&self, command: ThresholdCommand) -> Outcome {
        match command {
            ThresholdCommand::Create { name, expression, limit, dry_run } => {
                let unit = self.unit_of(&expression)?;
                let mut spec = ThresholdSpec::new(expression);
                limit.apply(&mut spec, &unit)?;
                let body = ThresholdCreate { name, spec };
                let call = Call::new(Operation::ThresholdCreate).body(&body).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<Threshold>()?, |threshold| {
                    println!("Threshold {} is created: {}.", printable(&threshold.name), in_words(threshold));
                })
            }
            ThresholdCommand::List => self.list(&self.client.all(Operation::ThresholdList, &[])?, show_all),
            ThresholdCommand::Show { name } => {
                let threshold: Threshold = self.client.get(Call::of(Operation::ThresholdShow, &name))?;
                self.row(&threshold, show_all)
            }
            ThresholdCommand::Set { name, limit, dry_run } => {
                let seen = self.client.call(Call::of(Operation::ThresholdShow, &name))?;
                let Threshold { mut spec, status, .. } = seen.parse()?;
                limit.apply(&mut spec, &status.unit)?;
                let body = ThresholdSet { name: None, spec: Some(spec) };
                let call = Call::of(Operation::ThresholdSet, &name).body(&body).if_seen(&seen);
                let answer = self.client.call(call.dry_run(dry_run.dry_run))?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<Threshold>()?, |threshold| {
                    println!("Threshold {} is changed: {}.", printable(&threshold.name), in_words(threshold));
                })
            }
            ThresholdCommand::Rename(rename) => self.rename("Threshold", Operation::ThresholdSet, rename),
            ThresholdCommand::Delete { name, dry_run } => {
                let call = Call::of(Operation::ThresholdDelete, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&name, "threshold.delete", format!("Threshold {name} is deleted."))
            }
        }
    }
}

/// `above 10.0ms over 60 s`.
fn in_words(threshold: &Threshold) -> String {
    let spec = &threshold.spec;
    let (word, limit) = match spec.above {
        Some(limit) => ("above", limit),
        None => ("below", spec.below.unwrap_or_default()),
    };
    format!("{word} {} over {} s", show_in_unit(limit, &threshold.status.unit), spec.over_seconds)
}

fn show_all(thresholds: &[Threshold]) -> Shown {
    let rows = thresholds.iter().map(|one| {
        let value = one.status.value.map_or("-".into(), |value| show_in_unit(value, &one.status.unit));
        vec![
            Cell::text(&one.name),
            Cell::text(&one.spec.expression),
            Cell::text(in_words(one)),
            Cell::number(value),
            Cell::text(if one.status.crossed { "crossed" } else { "ok" }),
            Cell::text(one.spec.severity.name()),
        ]
    });
    let empty = "No thresholds. Create one with: forebay threshold create slow-disks disk.latency[device] --above 100ms";
    listing::table(&["NAME", "STATISTIC", "ALERT WHEN", "NOW", "STATE", "SEVERITY"], rows.collect(), empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str, unit: &str) -> Result<f64, String> {
        let value = value(text)?;
        value.in_unit("a.b", unit).map_err(|failure| {
            assert_eq!(failure.exit, Exit::Usage);
            format!("{}. {}", failure.detail, failure.remedy.unwrap_or_default())
        })
    }

    #[test]
    fn a_limit_has_the_unit_of_its_statistic() {
        for (text, unit, number) in [
            ("500", "per-second", 500.0),
            ("0", "volumes", 0.0),
            ("10ms", "ns", 1e7),
            ("1.5s", "ns", 1.5e9),
            ("50M", "bytes-per-second", 5e7),
            ("100GiB", "bytes", 107_374_182_400.0),
            ("90%", "thousandths", 900.0),
            ("50%", "ns-per-second", 5e8),
        ] {
            assert_eq!(limit(text, unit), Ok(number), "{text} {unit}");
        }
        for (text, unit, is, example) in [
            ("10%", "bytes", "a size in bytes", "like 100G."),
            ("100", "bytes", "a size in bytes", "with B, K, M, G, T or P"),
            ("50ms", "per-second", "a count per second", "a number alone, like 500."),
            ("50", "ns", "a time", "with ns, us, µs, ms or s, like 10ms."),
            ("900", "thousandths", "a percentage", "with %, like 90%."),
            ("10x", "ns", "`10x`", "like 10ms."),
        ] {
            let refused = limit(text, unit).unwrap_err();
            assert!(refused.contains(is) && refused.contains(example), "{text} {unit}: {refused}");
        }
        for wrong in ["", "ms", "-1", "1.2.3"] {
            assert!(value(wrong).unwrap_err().contains("10ms"), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_can_be_written() {
        for unit in ["ns", "bytes", "bytes-per-second", "thousandths", "ns-per-second", "per-second", "rows"]
        {
            let (_, example) = suffixes(unit);
            let shown = show_in_unit(limit(example, unit).unwrap(), unit);
            assert!(
                shown.replace(' ', "").starts_with(example.trim_end_matches(|c: char| !c.is_ascii_digit())),
                "{shown}"
            );
        }
    }
}
