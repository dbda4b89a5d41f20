//! The figures, as a table to read and as JSON to keep.

use crate::measure::{Measured, Median};
use serde_json::{Value, json};
use std::fmt::Write;
use std::ops::RangeInclusive;

/// Repetitions of one work on one system.
pub struct Series {
    pub work: &'static str,
    pub system: &'static str,
    /// Bytes of one request.
    pub size: usize,
    pub runs: Vec<Measured>,
}

/// A share of one series in another that the product has set itself.
pub struct Goal {
    what: &'static str,
    work: &'static str,
    system: &'static str,
    beside: &'static str,
    of: fn(&Measured) -> f64,
    /// At least, or at most.
    limit: Limit,
}

enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

const IOPS: fn(&Measured) -> f64 = |m| m.iops;
const CPU: fn(&Measured) -> f64 = |m| m.cpu_us_per_io;
const RANDOM_READ: &str = "8 KiB random read, QD 32";
const RANDOM_WRITE: &str = "8 KiB random durable write, QD 32";
const FIRST: &str = "8 KiB durable first writes, QD 32";
const AGAIN: &str = "8 KiB durable overwrites, QD 32";

const fn goal(
    what: &'static str,
    work: &'static str,
    system: &'static str,
    beside: &'static str,
    of: fn(&Measured) -> f64,
    limit: Limit,
) -> Goal {
    Goal { what, work, system, beside, of, limit }
}

pub const GOALS: &[Goal] = &[
    goal("random read, engine ÷ bare", RANDOM_READ, "engine", "bare device", IOPS, Limit::AtLeast(0.85)),
    goal(
        "random durable write, engine ÷ bare",
        RANDOM_WRITE,
        "engine",
        "bare device",
        IOPS,
        Limit::AtLeast(1.0),
    ),
    goal(
        "sequential read, engine ÷ bare",
        "1 MiB sequential read, QD 8",
        "engine",
        "bare device",
        IOPS,
        Limit::AtLeast(0.9),
    ),
    goal(
        "sequential write, engine ÷ bare",
        "1 MiB sequential write, QD 8",
        "engine",
        "bare device",
        IOPS,
        Limit::AtLeast(0.9),
    ),
    goal(
        "sequential durable write, engine ÷ bare",
        "1 MiB sequential durable write, QD 8",
        "engine",
        "bare device",
        IOPS,
        Limit::AtLeast(0.9),
    ),
    goal("random read, NBD ÷ nbdkit", RANDOM_READ, "forebay NBD", "nbdkit file", IOPS, Limit::AtLeast(1.0)),
    goal("random read, NBD ÷ qemu-nbd", RANDOM_READ, "forebay NBD", "qemu-nbd", IOPS, Limit::AtLeast(1.0)),
    goal(
        "random durable write, NBD ÷ nbdkit",
        RANDOM_WRITE,
        "forebay NBD",
        "nbdkit file",
        IOPS,
        Limit::AtLeast(1.0),
    ),
    goal(
        "random durable write, NBD ÷ qemu-nbd",
        RANDOM_WRITE,
        "forebay NBD",
        "qemu-nbd",
        IOPS,
        Limit::AtLeast(1.0),
    ),
    goal(
        "CPU per random read, NBD ÷ nbdkit",
        RANDOM_READ,
        "forebay NBD",
        "nbdkit file",
        CPU,
        Limit::AtMost(1.0),
    ),
    goal(
        "CPU per durable write, NBD ÷ nbdkit",
        RANDOM_WRITE,
        "forebay NBD",
        "nbdkit file",
        CPU,
        Limit::AtMost(1.0),
    ),
];

const MIXED_1: &str = "8 KiB random 75/25, QD 1";
const MIXED_32: &str = "8 KiB random 75/25, QD 32";
const MIXED_4: &str = "8 KiB random 75/25, QD 32, 4 connections";
const READ: &str = "1 MiB sequential read, QD 8";
const WRITE: &str = "1 MiB sequential write, QD 8";

const fn beside_tgt(what: &'static str, work: &'static str, of: fn(&Measured) -> f64, limit: Limit) -> Goal {
    goal(what, work, "forebay iSCSI", "tgt", of, limit)
}

/// Where the device is the limit.
pub const ISCSI_DISK_GOALS: &[Goal] = &[
    beside_tgt("random 75/25, QD 1", MIXED_1, IOPS, Limit::AtLeast(1.0)),
    beside_tgt("random 75/25, QD 32", MIXED_32, IOPS, Limit::AtLeast(1.0)),
    beside_tgt("random 75/25, 4 connections", MIXED_4, IOPS, Limit::AtLeast(1.0)),
    beside_tgt("sequential read", READ, IOPS, Limit::AtLeast(1.0)),
    beside_tgt("sequential write", WRITE, IOPS, Limit::AtLeast(1.0)),
    beside_tgt("CPU per random I/O, QD 32", MIXED_32, CPU, Limit::AtMost(0.5)),
];

/// Where the processor is.
pub const ISCSI_MEMORY_GOALS: &[Goal] = &[
    beside_tgt("random 75/25, QD 1", MIXED_1, IOPS, Limit::AtLeast(1.5)),
    beside_tgt("random 75/25, QD 32", MIXED_32, IOPS, Limit::AtLeast(1.5)),
    beside_tgt("random 75/25, 4 connections", MIXED_4, IOPS, Limit::AtLeast(1.5)),
    beside_tgt("CPU per random I/O, QD 32", MIXED_32, CPU, Limit::AtMost(0.5)),
];

pub struct Report {
    pub title: &'static str,
    /// What is asked of the figures; nothing when they do not mean enough for that.
    pub goals: &'static [Goal],
    pub series: Vec<Series>,
    /// System and what its figures mean.
    pub remarks: Vec<(&'static str, String)>,
    pub setting: String,
}

impl Report {
    pub fn add(&mut self, work: &'static str, system: &'static str, size: usize, run: Measured) {
        match self.series.iter_mut().find(|s| s.work == work && s.system == system) {
            Some(series) => series.runs.push(run),
            None => self.series.push(Series { work, system, size, runs: vec![run] }),
        }
    }

    /// Brings the systems of one work together, each in the order in which it first came.
    pub fn sort(&mut self) {
        let first = |of: fn(&Series) -> &'static str| {
            let mut seen = Vec::new();
            for series in &self.series {
                if !seen.contains(&of(series)) {
                    seen.push(of(series));
                }
            }
            seen
        };
        let (works, systems) = (first(|s| s.work), first(|s| s.system));
        let place = |list: &[&str], name: &str| list.iter().position(|entry| *entry == name);
        self.series.sort_by_key(|s| (place(&works, s.work), place(&systems, s.system)));
    }

    fn median(&self, work: &str, system: &str, of: fn(&Measured) -> f64) -> Option<f64> {
        let series = self.series.iter().find(|s| s.work == work && s.system == system)?;
        Some(Median::of(series.runs.iter().map(of)).value)
    }

    /// Each goal with its figure and whether it was met.
    fn goals(&self) -> Vec<(&'static str, f64, f64, bool)> {
        let mut goals = Vec::new();
        for goal in self.goals {
            let figure = |system| self.median(goal.work, system, goal.of);
            let (Some(a), Some(b)) = (figure(goal.system), figure(goal.beside)) else { continue };
            let ratio = a / b;
            goals.push(match goal.limit {
                Limit::AtLeast(limit) => (goal.what, ratio, limit, ratio >= limit),
                Limit::AtMost(limit) => (goal.what, ratio, limit, ratio <= limit),
            });
        }
        for (what, system) in [
            ("first writes ÷ overwrites, engine", "engine"),
            ("first writes ÷ overwrites, NBD", "forebay NBD"),
        ] {
            if !self.goals.is_empty()
                && let (Some(a), Some(b)) =
                    (self.median(FIRST, system, IOPS), self.median(AGAIN, system, IOPS))
            {
                goals.push((what, a / b, 0.95, a / b >= 0.95));
            }
        }
        goals
    }

    pub fn table(&self) -> String {
        let mut text = format!("{}: {}\n", self.title, self.setting);
        let mut last = "";
        for series in &self.series {
            if series.work != last {
                last = series.work;
                writeln!(
                    text,
                    "\n{:<36} {:>9} {:>9} {:>5} {:>6} {:>9} {:>9} {:>9} {:>9}",
                    last, "IOPS", "MB/s", "±%", "÷bare", "p50 µs", "p99 µs", "p99.9 µs", "CPU µs/IO"
                )
                .expect("a string takes it");
            }
            let median = |of: fn(&Measured) -> f64| Median::of(series.runs.iter().map(of));
            let iops = median(IOPS);
            let ratio = self.median(series.work, "bare device", IOPS).map(|bare| iops.value / bare);
            writeln!(
                text,
                "  {:<34} {:>9.0} {:>9.1} {:>5.1} {:>6} {:>9} {:>9} {:>9} {:>9.1}",
                series.system,
                iops.value,
                median(|m| m.mb_per_s).value,
                iops.spread_percent(),
                ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
                known(median(|m| m.p50_us).value),
                known(median(|m| m.p99_us).value),
                known(median(|m| m.p999_us).value),
                median(CPU).value,
            )
            .expect("a string takes it");
        }
        text.push('\n');
        for (what, ratio, limit, met) in self.goals() {
            let verdict = if met { "met" } else { "MISSED" };
            writeln!(text, "{what:<40} {ratio:>6.2}   goal {limit:.2}: {verdict}")
                .expect("a string takes it");
        }
        text.push('\n');
        for (system, remark) in &self.remarks {
            writeln!(text, "{system}: {remark}").expect("a string takes it");
        }
        text
    }

    pub fn json(&self) -> Value {
        let series: Vec<Value> = self.series.iter().map(series_json).collect();
        let goals: Vec<Value> = self
            .goals()
            .into_iter()
            .map(|(what, ratio, limit, met)| json!({"what": what, "ratio": ratio, "goal": limit, "met": met}))
            .collect();
        let remarks: Vec<Value> =
            self.remarks.iter().map(|(system, remark)| json!({"system": system, "remark": remark})).collect();
        json!({"title": self.title, "setting": self.setting, "series": series, "goals": goals, "remarks": remarks})
    }
}

/// A figure that some generators do not give.
fn known(figure: f64) -> String {
    if figure.is_nan() { "-".into() } else { format!("{figure:.1}") }
}

fn series_json(series: &Series) -> Value {
    let runs: Vec<Value> = series
        .runs
        .iter()
        .map(|m| {
            json!({
                "iops": m.iops, "mb_per_s": m.mb_per_s, "p50_us": m.p50_us, "p99_us": m.p99_us,
                "p999_us": m.p999_us, "cpu_us_per_io": m.cpu_us_per_io,
            })
        })
        .collect();
    json!({"work": series.work, "system": series.system, "request_bytes": series.size, "runs": runs})
}

/// One figure, and what it should be.
pub struct Figure {
    name: String,
    value: f64,
    goal: Option<RangeInclusive<f64>>,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, goal: Option<RangeInclusive<f64>>) -> Figure {
        Figure { name: name.into(), value, goal }
    }

    fn line(&self, quick: bool) -> String {
        let verdict = match &self.goal {
            None => String::new(),
            Some(_) if quick => "not measured".into(),
            Some(goal) => {
                let verdict = if goal.contains(&self.value) { "met" } else { "MISSED" };
                match (*goal.start(), *goal.end()) {
                    (least, f64::INFINITY) => format!("at least {least}: {verdict}"),
                    (0.0, most) => format!("at most {most}: {verdict}"),
                    (least, most) => format!("{least} to {most}: {verdict}"),
                }
            }
        };
        format!("| {} | {:.2} | {verdict} |", self.name, self.value)
    }
}

pub fn at_least(limit: f64) -> Option<RangeInclusive<f64>> {
    Some(limit..=f64::INFINITY)
}

pub fn at_most(limit: f64) -> Option<RangeInclusive<f64>> {
    Some(0.0..=limit)
}

/// The figures as a table.
pub fn print(figures: &[Figure], quick: bool) {
    println!("\n| | | goal |\n|---|---|---|");
    figures.iter().for_each(|figure| println!("{}", figure.line(quick)));
}
