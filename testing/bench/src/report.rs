//! The figures, as a table to read and as JSON to keep.

use crate::measure::{
    DURABLE, DURABLE_1, FIRST_WRITES, MIXED, MIXED_1, MIXED_4, Measured, Median, READ, READ_1,
    SEQUENTIAL_WRITE, STREAM, STREAM_AGED, STREAM_DURABLE, STREAM_OVERWRITTEN, STREAM_RESTED, WRITE_AGED,
};
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
    of: Source,
    beside: Source,
    figure: fn(&Measured) -> f64,
    /// At least, or at most.
    limit: Limit,
}

/// Work and system.
type Source = (&'static str, &'static str);

enum Limit {
    AtLeast(f64),
    AtMost(f64),
}
use Limit::{AtLeast, AtMost};

const IOPS: fn(&Measured) -> f64 = |m| m.iops;
const CPU: fn(&Measured) -> f64 = |m| m.cpu_us_per_io;
const P50: fn(&Measured) -> f64 = |m| m.p50_us;

const BARE: &str = "bare device";
const ENGINE: &str = "engine";
const NBD: &str = "forebay NBD";
const ISCSI: &str = "forebay iSCSI";
const NBDKIT: &str = "nbdkit file";
const QEMU: &str = "qemu-nbd";
const TGT: &str = "tgt";
const RESPONDER: &str = "responder";

/// Two systems under the same work.
const fn goal(
    what: &'static str,
    work: &'static str,
    system: &'static str,
    beside: &'static str,
    figure: fn(&Measured) -> f64,
    limit: Limit,
) -> Goal {
    Goal { what, of: (work, system), beside: (work, beside), figure, limit }
}

/// One system before and after.
const fn since(
    what: &'static str,
    system: &'static str,
    after: &'static str,
    before: &'static str,
    limit: Limit,
) -> Goal {
    Goal { what, of: (after, system), beside: (before, system), figure: IOPS, limit }
}

const FIRST: &str = FIRST_WRITES.name;
pub const AGAIN: &str = "8 KiB durable overwrites, QD 32";

/// Where the device is the limit.
pub const GOALS: &[Goal] = &[
    goal("random 75/25, engine ÷ bare", MIXED, ENGINE, BARE, IOPS, AtLeast(0.90)),
    goal("CPU per random 75/25, engine ÷ bare", MIXED, ENGINE, BARE, CPU, AtMost(1.25)),
    goal("random 75/25, NBD ÷ bare", MIXED, NBD, BARE, IOPS, AtLeast(0.95)),
    goal("random read, engine ÷ bare", READ, ENGINE, BARE, IOPS, AtLeast(0.90)),
    goal("random durable write, engine ÷ bare", DURABLE, ENGINE, BARE, IOPS, AtLeast(2.0)),
    goal("4 KiB durable write alone, p50, engine ÷ bare", DURABLE_1, ENGINE, BARE, P50, AtMost(1.1)),
    goal("sequential read, engine ÷ bare", STREAM, ENGINE, BARE, IOPS, AtLeast(0.95)),
    goal("sequential write, engine ÷ bare", SEQUENTIAL_WRITE.name, ENGINE, BARE, IOPS, AtLeast(0.95)),
    goal("sequential durable write, engine ÷ bare", STREAM_DURABLE, ENGINE, BARE, IOPS, AtLeast(0.95)),
    goal("sequential read, aged, engine ÷ bare", STREAM_AGED, ENGINE, BARE, IOPS, AtLeast(0.95)),
    goal("sequential write, aged, engine ÷ bare", WRITE_AGED, ENGINE, BARE, IOPS, AtLeast(0.95)),
    since(
        "sequential read after random overwrite ÷ before, engine",
        ENGINE,
        STREAM_OVERWRITTEN,
        STREAM,
        AtLeast(0.8),
    ),
    since(
        "sequential read after random overwrite and a rest ÷ before, engine",
        ENGINE,
        STREAM_RESTED,
        STREAM,
        AtLeast(0.8),
    ),
    goal("random read, NBD ÷ nbdkit", READ, NBD, NBDKIT, IOPS, AtLeast(1.0)),
    goal("random read, NBD ÷ qemu-nbd", READ, NBD, QEMU, IOPS, AtLeast(1.0)),
    goal("random durable write, NBD ÷ nbdkit", DURABLE, NBD, NBDKIT, IOPS, AtLeast(1.0)),
    goal("random durable write, NBD ÷ qemu-nbd", DURABLE, NBD, QEMU, IOPS, AtLeast(1.0)),
    goal("CPU per random read, NBD ÷ nbdkit", READ, NBD, NBDKIT, CPU, AtMost(1.0)),
    goal("CPU per durable write, NBD ÷ nbdkit", DURABLE, NBD, NBDKIT, CPU, AtMost(1.0)),
    since("first writes ÷ overwrites, engine", ENGINE, FIRST, AGAIN, AtLeast(0.95)),
    since("first writes ÷ overwrites, NBD", NBD, FIRST, AGAIN, AtLeast(0.95)),
];

/// Where the processor is.
pub const MEMORY_GOALS: &[Goal] = &[
    goal("random 75/25, NBD ÷ nbdkit", MIXED, NBD, NBDKIT, IOPS, AtLeast(1.5)),
    goal("random 75/25, NBD ÷ qemu-nbd", MIXED, NBD, QEMU, IOPS, AtLeast(1.5)),
    goal("CPU per random 75/25, NBD ÷ nbdkit", MIXED, NBD, NBDKIT, CPU, AtMost(0.5)),
    goal("4 KiB random read alone, p50, NBD ÷ responder", READ_1, NBD, RESPONDER, P50, AtMost(1.3)),
];

const fn beside_tgt(
    what: &'static str,
    work: &'static str,
    figure: fn(&Measured) -> f64,
    limit: Limit,
) -> Goal {
    goal(what, work, ISCSI, TGT, figure, limit)
}

pub const ISCSI_DISK_GOALS: &[Goal] = &[
    goal("random 75/25, QD 32, iSCSI ÷ bare", MIXED, ISCSI, BARE, IOPS, AtLeast(0.95)),
    beside_tgt("random 75/25, QD 1", MIXED_1, IOPS, AtLeast(1.0)),
    beside_tgt("random 75/25, QD 32", MIXED, IOPS, AtLeast(1.0)),
    beside_tgt("random 75/25, 4 connections", MIXED_4, IOPS, AtLeast(1.0)),
    beside_tgt("sequential read", STREAM, IOPS, AtLeast(1.0)),
    beside_tgt("sequential write", SEQUENTIAL_WRITE.name, IOPS, AtLeast(1.0)),
    beside_tgt("sequential read after random overwrite", STREAM_OVERWRITTEN, IOPS, AtLeast(1.0)),
    beside_tgt("CPU per random I/O, QD 32", MIXED, CPU, AtMost(0.5)),
];

pub const ISCSI_MEMORY_GOALS: &[Goal] = &[
    beside_tgt("random 75/25, QD 1", MIXED_1, IOPS, AtLeast(1.5)),
    beside_tgt("random 75/25, QD 32", MIXED, IOPS, AtLeast(2.0)),
    beside_tgt("random 75/25, 4 connections", MIXED_4, IOPS, AtLeast(1.5)),
    beside_tgt("CPU per random I/O, QD 32", MIXED, CPU, AtMost(0.5)),
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
        let verdict = |goal: &Goal| {
            let figure = |(work, system): Source| self.median(work, system, goal.figure);
            let ratio = figure(goal.of)? / figure(goal.beside)?;
            Some(match goal.limit {
                AtLeast(limit) => (goal.what, ratio, limit, ratio >= limit),
                AtMost(limit) => (goal.what, ratio, limit, ratio <= limit),
            })
        };
        self.goals.iter().filter_map(verdict).collect()
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
