//! What a query gathers while it goes through blocks: lines over time, percentiles over time, a heat map.
//!
//! Lines are sparse, so that memory goes with what was read and not with how many lines there could be; when it is too much, the least are given up
//! ([`ENTRIES_MAX`]): of a sum they are in what others have, because the total is gathered by itself.

use crate::block::{Buckets, CellView};
use crate::catalogue::{Scale, Together};
use std::collections::HashMap;

/// Points of all lines together: 64 MiB.
const ENTRIES_MAX: usize = 4 << 20;
/// Lines that are told apart: some 10 MiB of names.
const LINES_MAX: usize = 1 << 16;
/// Percentiles have two histograms for each line: 20 MiB.
const SPREADS_MAX: usize = 1 << 12;
/// What is left when the least are given up: many times as many as an answer has.
const LEFT_MAX: usize = 1000;

/// Percentiles that a spread answers with, in thousandths, and their names.
pub(crate) const QUANTILES: [(u64, &str); 5] =
    [(500, "p50"), (950, "p95"), (990, "p99"), (999, "p999"), (1000, "max")];
/// By which lines of percentiles are the greatest: p99.
const RANKED: usize = 2;

/// Something that is gathered for each line.
pub(crate) trait Gather {
    /// By what lines are the greatest.
    fn rank(&self) -> f64;
    /// How many points it has.
    fn points(&self) -> usize;
}

/// Lines by the values that they are for, with `\0` between these.
pub(crate) struct Lines<G> {
    numbers: HashMap<String, Option<usize>>,
    lines: Vec<(String, G)>,
    lines_max: usize,
    points: usize,
}

impl<G: Gather> Lines<G> {
    fn new(lines_max: usize) -> Lines<G> {
        Lines { numbers: HashMap::new(), lines: Vec::new(), lines_max, points: 0 }
    }

    /// The line of a key; `None` when it was given up, or there are too many.
    fn line(&mut self, key: &str, make: impl FnOnce() -> G) -> Option<&mut G> {
        let number = match self.numbers.get(key) {
            Some(number) => (*number)?,
            None if self.numbers.len() >= self.lines_max => return None,
            None => {
                let number = self.lines.len();
                self.numbers.insert(key.into(), Some(number));
                self.lines.push((key.into(), make()));
                number
            }
        };
        Some(&mut self.lines[number].1)
    }

    /// Once a block: gives up the least when there is too much.
    fn shrink(&mut self, points_max: usize) {
        self.points = self.lines.iter().map(|(_, line)| line.points()).sum();
        if self.points <= points_max || self.lines.len() <= LEFT_MAX {
            return;
        }
        self.lines.sort_by(|(a, one), (b, other)| other.rank().total_cmp(&one.rank()).then_with(|| a.cmp(b)));
        self.lines.truncate(LEFT_MAX);
        self.numbers.values_mut().for_each(|number| *number = None);
        for (number, (key, _)) in self.lines.iter().enumerate() {
            self.numbers.insert(key.clone(), Some(number));
        }
    }

    /// The greatest lines, and how many others there were.
    pub fn greatest(self, limit: usize) -> (Vec<(String, G)>, usize) {
        let all = self.numbers.len();
        let mut lines = self.lines;
        lines.sort_by(|(a, one), (b, other)| other.rank().total_cmp(&one.rank()).then_with(|| a.cmp(b)));
        lines.truncate(limit);
        let others = all - lines.len();
        (lines, others)
    }
}

/// A counter or gauge over time.
#[derive(Clone, Default, Debug)]
pub(crate) struct Values {
    /// Steps in the order in which blocks came, with a sum and the seconds that it is of.
    entries: Vec<(u32, u32, f64)>,
    /// Of the block that is being read: its number, its step, and what its rows amount to.
    block: u64,
    step: u32,
    now: Option<(u32, f64)>,
    total: f64,
}

impl Values {
    fn take(&mut self, block: u64, step: u32, cell: CellView<'_>, together: Option<Together>) {
        if self.block != block {
            self.flush(together);
            (self.block, self.step) = (block, step);
        }
        let (seconds, sum) = match cell {
            CellView::Count(count) => (0, count as f64),
            CellView::Level { sum, seconds } => (seconds, sum as f64),
            CellView::Spread(_) => return,
        };
        self.now = Some(match (self.now, together) {
            (None, _) => (seconds, sum),
            (Some((_, before)), Some(Together::Greatest)) => (1, before.max(sum)),
            (Some((for_seconds, before)), Some(Together::Mean)) => {
                (for_seconds.saturating_add(seconds), before + sum)
            }
            (Some((for_seconds, before)), _) => (for_seconds.max(seconds), before + sum),
        });
    }

    fn flush(&mut self, together: Option<Together>) {
        let Some((seconds, sum)) = self.now.take() else { return };
        match self.entries.last_mut() {
            Some(last) if last.0 == self.step && together == Some(Together::Greatest) => {
                last.2 = last.2.max(sum);
            }
            Some(last) if last.0 == self.step => {
                (last.1, last.2) = (last.1.saturating_add(seconds), last.2 + sum)
            }
            _ => self.entries.push((self.step, seconds, sum)),
        }
        self.total += sum;
    }

    /// Sums and seconds of each step.
    pub fn dense(&self, points: usize, together: Option<Together>) -> Vec<(u32, f64)> {
        let mut dense = vec![(0, 0.0); points];
        for &(step, seconds, sum) in &self.entries {
            let (for_seconds, before): (u32, f64) = dense[step as usize];
            dense[step as usize] = match together {
                Some(Together::Greatest) => (1, before.max(sum)),
                _ => (for_seconds.saturating_add(seconds), before + sum),
            };
        }
        dense
    }
}

impl Gather for Values {
    fn rank(&self) -> f64 {
        self.total
    }
    fn points(&self) -> usize {
        self.entries.len()
    }
}

/// All lines of a counter or gauge, and their total.
pub(crate) struct ValueLines {
    pub lines: Lines<Values>,
    pub total: Values,
    pub together: Option<Together>,
}

impl ValueLines {
    pub fn new(together: Option<Together>) -> ValueLines {
        ValueLines { lines: Lines::new(LINES_MAX), total: Values::default(), together }
    }

    pub fn take(&mut self, block: u64, step: u32, key: &str, cell: CellView<'_>) {
        self.total.take(block, step, cell, self.together);
        if let Some(line) = self.lines.line(key, Values::default) {
            line.take(block, step, cell, self.together);
        }
    }

    pub fn block_ends(&mut self, block: u64) {
        // Going through all lines costs as much as some rows.
        if block.is_multiple_of(64) {
            self.lines.shrink(ENTRIES_MAX);
        }
    }

    pub fn finish(&mut self) {
        self.total.flush(self.together);
        self.lines.lines.iter_mut().for_each(|(_, line)| line.flush(self.together));
    }
}

/// Percentiles over time: histograms are added within a step, and are gone behind it.
#[derive(Debug)]
pub(crate) struct Percentiles {
    scale: Scale,
    step: u32,
    now: Vec<u64>,
    whole: Vec<u64>,
    pub steps: Vec<(u32, [f64; QUANTILES.len()])>,
}

impl Percentiles {
    fn new(scale: Scale) -> Percentiles {
        let buckets = vec![0; usize::from(scale.buckets())];
        Percentiles { scale, step: 0, now: buckets.clone(), whole: buckets, steps: Vec::new() }
    }

    fn take(&mut self, step: u32, buckets: Buckets<'_>) {
        if self.step != step {
            self.flush();
            self.step = step;
        }
        for (bucket, count) in buckets {
            if let Some(there) = self.now.get_mut(usize::from(bucket)) {
                *there = there.saturating_add(count);
            }
        }
    }

    fn flush(&mut self) {
        let Some(quantiles) = quantiles(self.scale, &self.now) else { return };
        self.steps.push((self.step, quantiles));
        for (whole, now) in self.whole.iter_mut().zip(&mut self.now) {
            *whole = whole.saturating_add(std::mem::take(now));
        }
    }

    /// Of all steps together.
    pub fn whole(&self) -> [f64; QUANTILES.len()] {
        quantiles(self.scale, &self.whole).unwrap_or_default()
    }
}

impl Gather for Percentiles {
    fn rank(&self) -> f64 {
        self.whole()[RANKED]
    }
    fn points(&self) -> usize {
        self.steps.len() * QUANTILES.len()
    }
}

/// Values that so many thousandths did not exceed, each the greatest of its bucket; `None` without any.
fn quantiles(scale: Scale, buckets: &[u64]) -> Option<[f64; QUANTILES.len()]> {
    let count = buckets.iter().fold(0u128, |sum, count| sum + u128::from(*count));
    if count == 0 {
        return None;
    }
    let mut found = [0.0; QUANTILES.len()];
    let (mut seen, mut next) = (0, 0);
    for (bucket, here) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        seen += u128::from(*here);
        while next < QUANTILES.len() && seen >= (count * u128::from(QUANTILES[next].0)).div_ceil(1000) {
            found[next] = scale.greatest(bucket as u16) as f64;
            next += 1;
        }
    }
    Some(found)
}

pub(crate) struct PercentileLines {
    pub lines: Lines<Percentiles>,
    scale: Scale,
}

impl PercentileLines {
    pub fn new(scale: Scale) -> PercentileLines {
        PercentileLines { lines: Lines::new(SPREADS_MAX), scale }
    }

    pub fn take(&mut self, step: u32, key: &str, cell: CellView<'_>) {
        let scale = self.scale;
        if let (CellView::Spread(buckets), Some(line)) =
            (cell, self.lines.line(key, || Percentiles::new(scale)))
        {
            line.take(step, buckets);
        }
    }

    pub fn block_ends(&mut self, block: u64) {
        if block.is_multiple_of(64) {
            self.lines.shrink(ENTRIES_MAX);
        }
    }

    pub fn finish(&mut self) {
        self.lines.lines.iter_mut().for_each(|(_, line)| line.flush());
    }
}

/// Counts by step and bucket.
pub(crate) struct Heat {
    scale: Scale,
    columns: Vec<Option<Box<[u64]>>>,
}

impl Heat {
    pub fn new(scale: Scale, points: usize) -> Heat {
        Heat { scale, columns: vec![None; points] }
    }

    pub fn take(&mut self, step: u32, cell: CellView<'_>) {
        let CellView::Spread(buckets) = cell else { return };
        let rows = usize::from(self.scale.buckets());
        let column = self.columns[step as usize].get_or_insert_with(|| vec![0; rows].into());
        for (bucket, count) in buckets {
            if let Some(there) = column.get_mut(usize::from(bucket)) {
                *there = there.saturating_add(count);
            }
        }
    }

    /// Edges of the rows that have something, and columns of these rows; an empty column where nothing was counted.
    pub fn trimmed(&self) -> (Vec<u64>, Vec<&[u64]>) {
        let counted = |row: &usize| self.columns.iter().flatten().any(|column| column[*row] > 0);
        let rows = 0..usize::from(self.scale.buckets());
        let (first, last) = match (rows.clone().find(counted), rows.rev().find(counted)) {
            (Some(first), Some(last)) => (first, last),
            _ => return (Vec::new(), vec![&[]; self.columns.len()]),
        };
        let mut bounds: Vec<u64> = (first..=last).map(|row| self.scale.least(row as u16)).collect();
        bounds.push(self.scale.greatest(last as u16) + 1);
        let columns = self.columns.iter().map(|column| match column {
            Some(column) => &column[first..=last],
            None => &[],
        });
        (bounds, columns.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(count: u64) -> CellView<'static> {
        CellView::Count(count)
    }

    #[test]
    fn the_least_are_given_up_and_stay_so_and_the_total_is_whole() {
        let mut lines = ValueLines::new(None);
        for nth in 0..3000u64 {
            lines.take(1, 0, &format!("{nth:04}"), count(nth));
        }
        lines.finish();
        lines.lines.shrink(2000);
        lines.take(2, 1, "0001", count(1_000_000));
        lines.take(2, 1, "2999", count(5));
        lines.finish();
        let (greatest, others) = lines.lines.greatest(2);
        let keys: Vec<&str> = greatest.iter().map(|(key, _)| &**key).collect();
        assert_eq!((&keys[..], others), (&["2999", "2998"][..], 2998));
        assert_eq!(greatest[0].1.dense(3, None), [(0, 2999.0), (0, 5.0), (0, 0.0)]);
        assert_eq!(lines.total.dense(2, None), [(0, 2999.0 * 1500.0), (0, 1_000_005.0)]);
    }

    #[test]
    fn steps_come_together_whatever_order_blocks_have() {
        let mut values = Values::default();
        for (block, step, rows) in [(1, 0, [1, 2]), (2, 1, [3, 4]), (3, 0, [5, 6])] {
            rows.into_iter().for_each(|row| values.take(block, step, count(row), None));
        }
        values.flush(None);
        assert_eq!(values.dense(2, None), [(0, 14.0), (0, 7.0)]);
    }

    #[test]
    fn gauges_are_first_put_together_and_then_averaged() {
        let level = |sum| CellView::Level { sum, seconds: 1 };
        for (together, expected) in [
            (Together::Sum, (2, 30.0 + 6.0)),
            (Together::Mean, (4, 30.0 + 6.0)),
            (Together::Greatest, (1, 20.0)),
        ] {
            let mut values = Values::default();
            for (block, rows) in [(1, [10, 20]), (2, [2, 4])] {
                rows.into_iter().for_each(|row| values.take(block, 0, level(row), Some(together)));
            }
            values.flush(Some(together));
            assert_eq!(values.dense(1, Some(together)), [expected], "{together:?}");
        }
    }

    #[test]
    fn percentiles_without_values_are_none() {
        assert_eq!(quantiles(Scale::Log, &[0; 304]), None);
        let mut one = [0; 304];
        one[3] = 1;
        assert_eq!(quantiles(Scale::Log, &one), Some([3.0; 5]));
        one[200] = 999;
        let tops = quantiles(Scale::Log, &one).unwrap();
        assert_eq!(tops, [Scale::Log.greatest(200) as f64; 5]);
    }
}
