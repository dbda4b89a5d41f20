//! `forebay threshold`: alerts that somebody wants of a statistic.

use crate::arguments::DryRun;
use crate::channels::SeverityArgument;
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::printable;
use crate::show;
use crate::size::parse_duration;
use crate::table::Cell;
use clap::{ArgGroup, Args, Subcommand};
use forebay_api::{Operation, Threshold, ThresholdCreate, ThresholdSet, ThresholdSpec, show_in_unit};

#[derive(Subcommand, Debug)]
pub enum ThresholdCommand {
    /// Have an alert raised as long as a statistic is above or below a limit
    #[command(group = ArgGroup::new("needed").required(true).args(["above", "below"]))]
    Create {
        /// Letters, digits and `._-`, starting with a letter
        name: String,
        /// layer.noun and brackets, as in `forebay stat query`; broken down like disk.latency[device], each line counts by itself
        expression: String,
        #[command(flatten)]
        limit: Limit,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List thresholds, and what the statistics are now
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
    /// The mean, of a spread like latency the p99, is above this: 500, 10ms, 50M, 90%
    #[arg(long, value_name = "VALUE", value_parser = value, conflicts_with = "below")]
    above: Option<Value>,
    /// Likewise below it
    #[arg(long, value_name = "VALUE", value_parser = value)]
    below: Option<Value>,
    /// Over how long the mean goes, 10s to 1h [default for a new threshold: 60s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    over: Option<u64>,
    /// What kind of alert it is [default for a new threshold: warning]
    #[arg(long)]
    severity: Option<SeverityArgument>,
}

/// A number, and what its unit makes of it: nanoseconds, bytes, or thousandths.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Value(f64);

fn value(text: &str) -> Result<Value, String> {
    const UNITS: [(&str, f64); 10] = [
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("K", 1024.0),
        ("M", 1_048_576.0),
        ("G", 1_073_741_824.0),
        ("T", 1_099_511_627_776.0),
        // Of statistics in thousandths.
        ("%", 10.0),
        ("", 1.0),
    ];
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
    let wrong = || format!("`{text}` is no value; write a number alone or like 10ms, 50M or 90%");
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Ok(Value(number * factor.ok_or_else(wrong)?))
}

impl Limit {
    /// Changes what is given.
    fn apply(self, spec: &mut ThresholdSpec) {
        if self.above.is_some() || self.below.is_some() {
            (spec.above, spec.below) = (self.above.map(|value| value.0), self.below.map(|value| value.0));
        }
        if let Some(seconds) = self.over {
            spec.over_seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        }
        if let Some(severity) = self.severity {
            spec.severity = severity.into();
        }
    }
}

impl Session {
    pub fn threshold(&self, command: ThresholdCommand) -> Outcome {
        match command {
            ThresholdCommand::Create { name, expression, limit, dry_run } => {
                let mut spec = ThresholdSpec::new(expression);
                limit.apply(&mut spec);
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
                self.one(&threshold, |threshold| show_all(std::slice::from_ref(threshold)))
            }
            ThresholdCommand::Set { name, limit, dry_run } => {
                let seen = self.client.call(Call::of(Operation::ThresholdShow, &name))?;
                let mut spec = seen.parse::<Threshold>()?.spec;
                limit.apply(&mut spec);
                let body = ThresholdSet { spec: Some(spec) };
                let call = Call::of(Operation::ThresholdSet, &name).body(&body).if_seen(&seen);
                let answer = self.client.call(call.dry_run(dry_run.dry_run))?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<Threshold>()?, |threshold| {
                    println!("Threshold {} is changed: {}.", printable(&threshold.name), in_words(threshold));
                })
            }
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

fn show_all(thresholds: &[Threshold]) {
    let rows = thresholds.iter().map(|one| {
        let value = one.status.value.map_or("-".into(), |value| show_in_unit(value, &one.status.unit));
        vec![
            Cell::text(&one.name),
            Cell::text(&one.spec.expression),
            Cell::text(in_words(one)),
            Cell::number(value),
            Cell::text(if one.status.crossed { "crossed" } else { "kept" }),
            Cell::text(one.spec.severity.name()),
        ]
    });
    let empty =
        "No thresholds. 'forebay threshold create slow-disks disk.latency[device] --above 100ms' makes one.";
    show::table(&["NAME", "STATISTIC", "ALERT WHEN", "NOW", "STATE", "SEVERITY"], rows.collect(), empty);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_units_of_statistics() {
        for (text, number) in [
            ("500", 500.0),
            ("10ms", 1e7),
            ("1.5s", 1.5e9),
            ("50M", 52_428_800.0),
            ("90%", 900.0),
            ("0", 0.0),
        ] {
            assert_eq!(value(text), Ok(Value(number)), "{text}");
        }
        for wrong in ["", "ms", "10 ms", "-1", "1.2.3", "10x"] {
            assert!(value(wrong).unwrap_err().contains("10ms"), "{wrong}");
        }
    }
}
