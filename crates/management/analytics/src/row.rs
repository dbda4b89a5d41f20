//! Rows as they come in, and cells as they are added up.
//!
//! A cell is what one noun of one row amounts to, in a second or in any longer time. There are two ways to add cells: rows of the same time
//! ([`Cell::beside`]) and times of the same row ([`Cell::after`]); they differ for gauges only.

use crate::catalogue::{Dimension, Kind, Layer, Noun, Scale, Together, find};
use std::sync::Arc;

/// Labels of a row: more than any layer has dimensions.
pub const LABELS_MAX: usize = 8;
/// Longer values are cut: more than the longest name of a pool, a project and a volume with their slashes.
const LABEL_BYTES_MAX: usize = 400;

/// What was counted with one combination of labels in one second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub layer: Layer,
    /// In the order of [`Dimension`], each once. What is absent has no such thing: a volume without a project.
    pub labels: Vec<(Dimension, Arc<str>)>,
    pub values: Vec<(Noun, Value)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Of a counter: how much happened in this second.
    Count(u64),
    /// Of a gauge.
    Level(u64),
    /// Of a spread: buckets in rising order, with how much each counts. Of a [`forebay_probe::Histogram`] that was cleared a second ago, its
    /// `buckets()`.
    Spread(Vec<(u16, u32)>),
}

/// What came in for one second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Second {
    pub at_unix_s: u64,
    pub rows: Vec<Row>,
}

pub(crate) type Labels = Vec<(Dimension, Arc<str>)>;
pub(crate) type Cells = Vec<(Noun, Cell)>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    Count(u64),
    /// The mean is the sum divided by the seconds. A gauge of which only the greatest counts has one second.
    Level {
        sum: u128,
        seconds: u32,
    },
    Spread(Vec<(u16, u64)>),
}

impl Cell {
    /// What a value is in one second; `None` when it is none of this statistic's.
    fn of(layer: Layer, noun: Noun, value: Value) -> Option<Cell> {
        match (find(layer, noun)?.kind, value) {
            (Kind::Counter, Value::Count(count)) => Some(Cell::Count(count)),
            (Kind::Gauge(_), Value::Level(level)) => Some(Cell::Level { sum: level.into(), seconds: 1 }),
            (Kind::Spread(scale), Value::Spread(buckets)) => Some(Cell::Spread(tidy(scale, buckets))),
            _ => None,
        }
    }

    /// Adds what another row had at the same time.
    pub fn beside(&mut self, other: &Cell, together: Option<Together>) {
        match (self, other) {
            (Cell::Level { sum, seconds }, Cell::Level { sum: other, seconds: for_seconds }) => {
                match together {
                    Some(Together::Greatest) => (*sum, *seconds) = ((*sum).max(*other), 1),
                    Some(Together::Mean) => {
                        (*sum, *seconds) = (sum.saturating_add(*other), seconds.saturating_add(*for_seconds));
                    }
                    _ => (*sum, *seconds) = (sum.saturating_add(*other), (*seconds).max(*for_seconds)),
                }
            }
            (one, other) => one.after(other, together),
        }
    }

    /// Adds what the same row had at another time.
    pub fn after(&mut self, other: &Cell, together: Option<Together>) {
        match (self, other) {
            (Cell::Count(count), Cell::Count(other)) => *count = count.saturating_add(*other),
            (Cell::Level { sum, seconds }, Cell::Level { sum: other, seconds: for_seconds }) => {
                match together {
                    Some(Together::Greatest) => (*sum, *seconds) = ((*sum).max(*other), 1),
                    _ => {
                        (*sum, *seconds) = (sum.saturating_add(*other), seconds.saturating_add(*for_seconds))
                    }
                }
            }
            (Cell::Spread(buckets), Cell::Spread(other)) => *buckets = added(buckets, other),
            (one, other) => debug_assert!(false, "{other:?} is added to {one:?}"),
        }
    }
}

/// How gauges of a statistic come together.
pub(crate) fn together(layer: Layer, noun: Noun) -> Option<Together> {
    match find(layer, noun)?.kind {
        Kind::Gauge(together) => Some(together),
        _ => None,
    }
}

/// Adds a row's cells to another's, in one of both ways.
pub(crate) fn add_cells(
    layer: Layer,
    cells: &mut Cells,
    others: Cells,
    add: fn(&mut Cell, &Cell, Option<Together>),
) {
    for (noun, other) in others {
        match cells.iter_mut().find(|(mine, _)| *mine == noun) {
            Some((_, cell)) => add(cell, &other, together(layer, noun)),
            None => cells.push((noun, other)),
        }
    }
}

fn tidy(scale: Scale, mut buckets: Vec<(u16, u32)>) -> Vec<(u16, u64)> {
    let last = scale.buckets() - 1;
    buckets.sort_by_key(|(bucket, _)| *bucket);
    let mut tidy: Vec<(u16, u64)> = Vec::with_capacity(buckets.len());
    for (bucket, count) in buckets.into_iter().filter(|(_, count)| *count > 0) {
        let bucket = bucket.min(last);
        match tidy.last_mut() {
            Some((same, sum)) if *same == bucket => *sum += u64::from(count),
            _ => tidy.push((bucket, count.into())),
        }
    }
    tidy
}

/// Two lists of buckets in rising order as one.
fn added(one: &[(u16, u64)], other: &[(u16, u64)]) -> Vec<(u16, u64)> {
    let mut sum = Vec::with_capacity(one.len().max(other.len()));
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    loop {
        let next = match (one.peek(), other.peek()) {
            (Some((a, x)), Some((b, y))) if a == b => {
                let both = (*a, x.saturating_add(*y));
                one.next();
                other.next();
                both
            }
            (Some((a, _)), Some((b, _))) if a > b => *other.next().expect("it was peeked at"),
            (Some(_), _) => *one.next().expect("it was peeked at"),
            (None, Some(_)) => *other.next().expect("it was peeked at"),
            (None, None) => return sum,
        };
        sum.push(next);
    }
}

impl Row {
    /// Labels and cells. What is none of the layer's is left out: a mistake of the counting code, which tests should see.
    pub(crate) fn into_cells(self) -> (Layer, Labels, Cells) {
        let Row { layer, mut labels, values } = self;
        labels.sort_by_key(|(dimension, _)| *dimension);
        labels.dedup_by_key(|(dimension, _)| *dimension);
        labels.truncate(LABELS_MAX);
        for (_, value) in &mut labels {
            if value.len() > LABEL_BYTES_MAX {
                let end = (0..=LABEL_BYTES_MAX).rev().find(|at| value.is_char_boundary(*at));
                *value = value[..end.unwrap_or(0)].into();
            }
        }
        let mut cells = Cells::with_capacity(values.len());
        for (noun, value) in values {
            let cell = Cell::of(layer, noun, value);
            debug_assert!(cell.is_some(), "{layer} does not count {noun} in this way");
            if let Some(cell) = cell {
                add_cells(layer, &mut cells, vec![(noun, cell)], Cell::beside);
            }
        }
        (layer, labels, cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_come_together_as_their_nouns_say() {
        let level = |sum, seconds| Cell::Level { sum, seconds };
        for (how, beside, after) in [
            (Some(Together::Sum), level(90, 3), level(90, 5)),
            (Some(Together::Mean), level(90, 5), level(90, 5)),
            (Some(Together::Greatest), level(60, 1), level(60, 1)),
        ] {
            let (mut one, mut other) = (level(60, 3), level(60, 3));
            one.beside(&level(30, 2), how);
            other.after(&level(30, 2), how);
            assert_eq!((one, other), (beside, after), "{how:?}");
        }
    }

    #[test]
    fn buckets_are_added_whatever_their_order() {
        let mut one = Cell::Spread(tidy(Scale::Log, vec![(9, 1), (3, 2), (3, 1), (5, 0), (u16::MAX, 7)]));
        one.after(&Cell::Spread(vec![(1, 1), (3, 4), (10, 2)]), None);
        assert_eq!(one, Cell::Spread(vec![(1, 1), (3, 7), (9, 1), (10, 2), (303, 7)]));
    }

    #[test]
    fn long_labels_are_cut_between_characters() {
        let labels = vec![(Dimension::Client, format!("{}ä", "x".repeat(LABEL_BYTES_MAX - 1)).into())];
        let (_, labels, _) = Row { layer: Layer::Nbd, labels, values: vec![] }.into_cells();
        assert_eq!(&*labels[0].1, "x".repeat(LABEL_BYTES_MAX - 1));
    }
}
