//! A question, and its answer.
//!
//! Blocks of the interval are read one after the other, of each only the layer that is asked for. A block that is a second, a minute or an hour long
//! falls into one step; steps lie at multiples of their length, so that the same interval has the same steps whenever it is asked for.
//!
//! Rates are divided by the seconds that were kept: a step in which the appliance was not running for half of the time shows what it did in the
//! other half, and one of which nothing was kept has no value.

use crate::block::{Block, CellView, RowView};
use crate::catalogue::{Dimension, Kind, NONE, Noun, Together};
use crate::expression::Expression;
use crate::series::{Heat, PercentileLines, QUANTILES, ValueLines, Values};
use crate::view::View;
use std::fmt;
use std::ops::{ControlFlow, Range};

/// Points of a line: more than a screen has.
pub const POINTS_MAX: u64 = 10_000;
/// Without a step, at most so many.
const POINTS_DEFAULT: u64 = 1000;
pub const LIMIT_MAX: usize = 100;
/// Blocks of a query: two days of seconds, read in some seconds.
const BLOCKS_MAX: u64 = 200_000;
/// Steps that are chosen without one.
const STEPS: [u64; 18] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    pub expression: Expression,
    /// In seconds since 1970; the end is not in it.
    pub from: u64,
    pub to: u64,
    pub step_seconds: Option<u64>,
    /// 1 to [`LIMIT_MAX`].
    pub limit: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskError {
    /// It ends before it begins, or beyond all clocks.
    Interval,
    Step,
    Limit,
    /// The least step that would do.
    TooFine(u64),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Interval => f.write_str("the interval ends before it begins"),
            AskError::Step => f.write_str("a step has at least 1 second"),
            AskError::Limit => write!(f, "an answer has 1 to {LIMIT_MAX} lines"),
            AskError::TooFine(least) => {
                write!(f, "the interval is too long for this step; use {least} seconds or more")
            }
        }
    }
}

impl std::error::Error for AskError {}

#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub from: u64,
    pub to: u64,
    pub step_seconds: u64,
    pub series: Vec<Series>,
    /// What is not in `series`, where adding makes sense.
    pub others: Option<Rest>,
    pub total: Option<Rest>,
    pub heat_map: Option<HeatMap>,
    /// How many rows were looked at.
    pub rows_read: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    pub labels: Vec<(Dimension, String)>,
    /// Of a spread: `p50`, `p95`, `p99`, `p999` or `max`.
    pub quantile: Option<&'static str>,
    /// Over the whole interval: a counter's events by the seconds that were kept, a gauge's mean, a percentile of all values together.
    pub mean: f64,
    pub greatest: f64,
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Rest {
    /// How many lines these are.
    pub lines: usize,
    pub mean: f64,
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct HeatMap {
    pub dimension: Noun,
    pub unit: &'static str,
    /// Edges of rows in rising order: one more than rows.
    pub bounds: Vec<u64>,
    /// For each step, how much a second each row has; `None` where nothing was kept.
    pub columns: Vec<Option<Vec<f64>>>,
}

/// What a query gathers.
enum Gathered {
    Values(Box<ValueLines>),
    Percentiles(PercentileLines),
    Heat(Heat),
}

/// Steps of an answer, and how many seconds of each were kept.
struct Grid {
    range: Range<u64>,
    step: u64,
    kept: Vec<u32>,
    before: Option<u64>,
}

impl Grid {
    /// The step of a block; `None` when it is outside.
    fn step(&mut self, block: &Block) -> Option<u32> {
        let header = &block.header;
        if !self.range.contains(&header.start) {
            return None;
        }
        let step = (header.start - self.range.start) / self.step;
        // A second that came in two parts was one second.
        if self.before != Some(header.start) {
            self.kept[step as usize] = self.kept[step as usize].saturating_add(header.seconds);
        }
        self.before = Some(header.start);
        Some(step as u32)
    }

    fn kept_seconds(&self) -> f64 {
        self.kept.iter().map(|seconds| f64::from(*seconds)).sum()
    }
}

/// The steps of a question.
fn grid(ask: &Ask) -> Result<Grid, AskError> {
    if ask.from >= ask.to || ask.to > 1 << 40 {
        return Err(AskError::Interval);
    }
    if !(1..=LIMIT_MAX).contains(&ask.limit) {
        return Err(AskError::Limit);
    }
    let length = ask.to - ask.from;
    let step = match ask.step_seconds {
        Some(0) => return Err(AskError::Step),
        // Whole blocks fall into steps.
        Some(step) if step > 3600 => step.min(1 << 40).next_multiple_of(3600),
        Some(step) if step > 60 => step.next_multiple_of(60),
        Some(step) => step,
        None => fitting(length, |step| length.div_ceil(step) <= POINTS_DEFAULT),
    };
    // Of minutes and hours there are never so many.
    let seconds_read = |step: u64| if step.is_multiple_of(60) { 0 } else { length };
    let fits = |step: u64| length.div_ceil(step) <= POINTS_MAX && seconds_read(step) <= BLOCKS_MAX;
    if !fits(step) {
        return Err(AskError::TooFine(fitting(length, fits)));
    }
    let range = ask.from - ask.from % step..ask.to.next_multiple_of(step);
    let points = (range.end - range.start) / step;
    Ok(Grid { range, step, kept: vec![0; points as usize], before: None })
}

fn fitting(length: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let found = STEPS.into_iter().find(|step| fits(*step));
    found.unwrap_or_else(|| length.div_ceil(POINTS_DEFAULT).next_multiple_of(86_400))
}

/// What a view has to say to a question. Reads files where it has to.
pub fn query(view: &View, ask: &Ask) -> Result<Answer, AskError> {
    let mut grid = grid(ask)?;
    let expression = &ask.expression;
    let statistic = expression.statistic;
    let heat = expression.heat();
    let noun = heat.unwrap_or(statistic).noun;
    let mut gathered = match (heat.and_then(|heat| heat.scale()), statistic.kind) {
        (Some(scale), _) => Gathered::Heat(Heat::new(scale, grid.kept.len())),
        (None, Kind::Counter) => Gathered::Values(Box::new(ValueLines::new(None))),
        (None, Kind::Gauge(together)) => Gathered::Values(Box::new(ValueLines::new(Some(together)))),
        (None, Kind::Spread(scale)) => Gathered::Percentiles(PercentileLines::new(scale)),
    };
    let by: Vec<Dimension> = expression.by().collect();
    let filtered = expression.filtered();
    let (mut space, mut key) = (Vec::new(), String::new());
    let (mut rows_read, mut number) = (0, 0);
    let (range, step_seconds) = (grid.range.clone(), grid.step);
    view.blocks(range, step_seconds, &mut |block| {
        let Some(step) = grid.step(block) else { return ControlFlow::Continue(()) };
        number += 1;
        let Some((texts, mut rows)) = block.rows(statistic.layer, &mut space) else {
            return ControlFlow::Continue(());
        };
        // Behind a lie of the block there is nothing more of it.
        while let Ok(Some(row)) = rows.next() {
            rows_read += 1;
            let Some(cell) = wanted(row, noun, &texts, expression, &filtered) else { continue };
            key.clear();
            for dimension in &by {
                key.push_str(value(row, *dimension, &texts));
                key.push('\0');
            }
            match &mut gathered {
                Gathered::Values(lines) => lines.take(number, step, &key, cell),
                Gathered::Percentiles(lines) => lines.take(step, &key, cell),
                Gathered::Heat(heat) => heat.take(step, cell),
            }
        }
        match &mut gathered {
            Gathered::Values(lines) => lines.block_ends(number),
            Gathered::Percentiles(lines) => lines.block_ends(number),
            Gathered::Heat(_) => {}
        }
        ControlFlow::Continue(())
    });
    let mut answer = Answer {
        from: grid.range.start,
        to: grid.range.end,
        step_seconds: grid.step,
        series: Vec::new(),
        others: None,
        total: None,
        heat_map: None,
        rows_read,
    };
    match gathered {
        Gathered::Values(lines) => values(*lines, &grid, &by, ask.limit, &mut answer),
        Gathered::Percentiles(lines) => answer.series = percentiles(lines, &grid, &by, ask.limit),
        Gathered::Heat(gathered) => {
            let unit = heat.map_or("", |heat| heat.unit);
            answer.heat_map = Some(heat_map(&gathered, &grid, noun, unit));
        }
    }
    Ok(answer)
}

/// The value of a dimension in a row.
fn value<'a>(row: &RowView<'_>, dimension: Dimension, texts: &[&'a str]) -> &'a str {
    let found = row.labels.iter().find(|(there, _)| *there == dimension);
    found.map_or(NONE, |(_, text)| texts[*text])
}

/// The cell of a row, if the row is asked for.
fn wanted<'a>(
    row: &RowView<'a>,
    noun: Noun,
    texts: &[&str],
    expression: &Expression,
    filtered: &[Dimension],
) -> Option<CellView<'a>> {
    let (_, cell) = row.cells.iter().find(|(there, _)| *there == noun)?;
    let admitted = |dimension: &Dimension| expression.admits(*dimension, value(row, *dimension, texts));
    filtered.iter().all(admitted).then_some(*cell)
}

fn labels(by: &[Dimension], key: &str) -> Vec<(Dimension, String)> {
    by.iter().copied().zip(key.split('\0').map(String::from)).collect()
}

/// Values of steps: of a counter by the seconds that were kept, of a gauge by those that had one.
fn shown(dense: &[(u32, f64)], grid: &Grid, together: Option<Together>) -> Vec<Option<f64>> {
    let steps = dense.iter().zip(&grid.kept);
    steps
        .map(|((seconds, sum), kept)| {
            let by = if together.is_none() { *kept } else { *seconds };
            (by > 0).then(|| sum / f64::from(by))
        })
        .collect()
}

fn mean(dense: &[(u32, f64)], values: &[Option<f64>], grid: &Grid, together: Option<Together>) -> f64 {
    let sum: f64 = dense.iter().map(|(_, sum)| sum).sum();
    let by = match together {
        None => grid.kept_seconds(),
        // Of the greatest there is no sum over time that means anything.
        Some(Together::Greatest) => {
            let known = values.iter().flatten();
            return known.clone().sum::<f64>() / (known.count().max(1) as f64);
        }
        Some(_) => dense.iter().map(|(seconds, _)| f64::from(*seconds)).sum(),
    };
    if by > 0.0 { sum / by } else { 0.0 }
}

fn greatest(values: &[Option<f64>]) -> f64 {
    values.iter().flatten().fold(0.0, |one, other| other.max(one))
}

fn values(mut lines: ValueLines, grid: &Grid, by: &[Dimension], limit: usize, answer: &mut Answer) {
    lines.finish();
    let ValueLines { lines, total, together } = lines;
    let points = grid.kept.len();
    let series = |key: &str, line: &Values| {
        let dense = line.dense(points, together);
        let values = shown(&dense, grid, together);
        let mean = mean(&dense, &values, grid, together);
        Series { labels: labels(by, key), quantile: None, mean, greatest: greatest(&values), values }
    };
    let (greatest_lines, others) = lines.greatest(limit);
    answer.series = greatest_lines.iter().map(|(key, line)| series(key, line)).collect();
    if by.is_empty() && answer.series.is_empty() {
        // Nothing happened, which is an answer.
        answer.series.push(series("", &total));
    }
    if !matches!(together, None | Some(Together::Sum)) {
        return;
    }
    let whole = series("", &total);
    let rest = |nth: usize| {
        let total = whole.values[nth]?;
        let shown: f64 = answer.series.iter().filter_map(|line| line.values[nth]).sum();
        Some((total - shown).max(0.0))
    };
    if others > 0 {
        let values = (0..points).map(rest).collect();
        let shown: f64 = answer.series.iter().map(|line| line.mean).sum();
        answer.others = Some(Rest { lines: others, mean: (whole.mean - shown).max(0.0), values });
    }
    let lines = answer.series.len() + others;
    answer.total = Some(Rest { lines, mean: whole.mean, values: whole.values });
}

fn percentiles(mut lines: PercentileLines, grid: &Grid, by: &[Dimension], limit: usize) -> Vec<Series> {
    lines.finish();
    let (lines, _) = lines.lines.greatest(limit);
    let mut all = Vec::with_capacity(lines.len() * QUANTILES.len());
    for (key, line) in lines {
        let whole = line.whole();
        for (nth, (_, name)) in QUANTILES.into_iter().enumerate() {
            let mut values = vec![None; grid.kept.len()];
            for (step, quantiles) in &line.steps {
                values[*step as usize] = Some(quantiles[nth]);
            }
            all.push(Series {
                labels: labels(by, &key),
                quantile: Some(name),
                mean: whole[nth],
                greatest: greatest(&values),
                values,
            });
        }
    }
    all
}

fn heat_map(heat: &Heat, grid: &Grid, dimension: Noun, unit: &'static str) -> HeatMap {
    let (bounds, columns) = heat.trimmed();
    let rows = bounds.len().saturating_sub(1);
    let columns = columns.into_iter().zip(&grid.kept).map(|(column, kept)| {
        let rate = |nth| column.get(nth).map_or(0.0, |count: &u64| *count as f64 / f64::from(*kept));
        (*kept > 0).then(|| (0..rows).map(rate).collect())
    });
    HeatMap { dimension, unit, bounds, columns: columns.collect() }
}
