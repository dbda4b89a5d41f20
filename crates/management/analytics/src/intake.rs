//! A second's rows, made few enough to keep for a week.
//!
//! Each layer keeps [`ROWS_MAX`] rows. Where there are more, the greatest stay as they are, and the others lose labels one after the other until they
//! fit: of what is left first the volume goes, so that a client with thousands of volumes is still seen, then the client instead, then both, then
//! all that has no fixed values. A label that goes becomes *others*; rows that become equal are added. So every total stays exact.
//!
//! Who is great is judged anew each second, by itself: with the skew that clients have, the greatest of an hour are far from the edge in each of its
//! seconds (a test measures it with 10 000 clients), and a sketch that lived across seconds would have nothing to add. A client that is small in
//! every second and steady for hours is found in *others*.

use crate::catalogue::{Dimension, Layer, OTHERS};
use crate::row::{Cell, Cells, Labels, add_cells};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows of a layer in a block: ten layers of rows of some 100 bytes are half a megabyte a second at worst.
pub const ROWS_MAX: usize = 512;

pub(crate) type Table = HashMap<Labels, Cells>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub labels: Labels,
    pub cells: Cells,
}

/// Sixteenths of the rows, and what these have lost.
const STAGES: [(usize, &[Dimension]); 5] = [
    (9, &[]),
    (3, &[Dimension::Volume, Dimension::Device]),
    (2, &[Dimension::Client]),
    (1, &[Dimension::Client, Dimension::Volume, Dimension::Device]),
    // All but those whose values are fixed, below.
    (1, Dimension::ALL),
];

/// Dimensions whose values come from the program and not from people: few, and rows that differ in them only stay or go together.
fn is_fixed(dimension: Dimension) -> bool {
    use Dimension::*;
    matches!(dimension, Op | Stage | Class | Source | Direction)
}

/// Adds a row to a table.
pub(crate) fn add(
    table: &mut Table,
    layer: Layer,
    labels: Labels,
    cells: Cells,
    how: fn(&mut Cell, &Cell, Option<crate::Together>),
) {
    match table.entry(labels) {
        std::collections::hash_map::Entry::Occupied(mut there) => {
            add_cells(layer, there.get_mut(), cells, how);
        }
        std::collections::hash_map::Entry::Vacant(free) => drop(free.insert(cells)),
    }
}

/// At most `max` lines (16 at least) of a table, in the order of their labels; and how many rows went into others.
pub(crate) fn bound(layer: Layer, table: Table, max: usize) -> (Vec<Line>, u64) {
    debug_assert!(max >= 16, "each stage has a row at least");
    let mut lines = Vec::with_capacity(table.len().min(max));
    let mut merged = 0;
    if table.len() <= max {
        lines.extend(table.into_iter().map(|(labels, cells)| Line { labels, cells }));
    } else {
        let others: Arc<str> = OTHERS.into();
        let mut rest = table;
        for (nth, (sixteenths, folded)) in STAGES.into_iter().enumerate() {
            // One is left for what no stage keeps.
            let last = usize::from(nth == STAGES.len() - 1);
            let kept = keep(layer, &mut rest, max * sixteenths / 16 - last, folded, &others);
            lines.extend(kept);
            if nth == 0 {
                merged = rest.len() as u64;
            }
        }
        let whole: Vec<Cells> = rest.into_values().collect();
        if !whole.is_empty() {
            let mut labels = Labels::new();
            for dimension in layer.statistics().flat_map(|one| one.dimensions) {
                if !labels.iter().any(|(there, _)| there == dimension) {
                    labels.push((*dimension, others.clone()));
                }
            }
            labels.sort_by_key(|(dimension, _)| *dimension);
            let mut cells = Cells::new();
            whole.into_iter().for_each(|row| add_cells(layer, &mut cells, row, Cell::beside));
            lines.push(Line { labels, cells });
        }
        lines = unite(layer, lines);
    }
    lines.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
    (lines, merged)
}

/// What a row weighs.
fn weight(layer: Layer, cells: &Cells) -> u64 {
    let by = layer.weight();
    cells.iter().find(|(noun, _)| *noun == by).map_or(0, |(_, cell)| match cell {
        Cell::Count(count) => *count,
        Cell::Level { sum, seconds } => (sum / u128::from(*seconds).max(1)) as u64,
        Cell::Spread(_) => 0,
    })
}

/// Takes the greatest rows out of a table, without some of their labels, as many as fit.
fn keep(layer: Layer, rest: &mut Table, max: usize, folded: &[Dimension], others: &Arc<str>) -> Vec<Line> {
    struct Group {
        weight: u64,
        rows: Table,
        originals: Vec<Labels>,
    }
    let mut groups: HashMap<Labels, Group> = HashMap::new();
    for (labels, cells) in rest.iter() {
        let mut shown = labels.clone();
        for (dimension, value) in &mut shown {
            if folded.contains(dimension) && !is_fixed(*dimension) {
                *value = others.clone();
            }
        }
        let mut key = shown.clone();
        key.retain(|(dimension, _)| !is_fixed(*dimension));
        let group = groups.entry(key).or_insert_with(|| Group {
            weight: 0,
            rows: Table::new(),
            originals: Vec::new(),
        });
        group.weight = group.weight.saturating_add(weight(layer, cells));
        add(&mut group.rows, layer, shown, cells.clone(), Cell::beside);
        group.originals.push(labels.clone());
    }
    let mut groups: Vec<(Labels, Group)> = groups.into_iter().collect();
    groups.sort_unstable_by(|(a, one), (b, other)| other.weight.cmp(&one.weight).then_with(|| a.cmp(b)));
    let mut lines = Vec::new();
    for (_, group) in groups {
        if lines.len() + group.rows.len() > max {
            break;
        }
        lines.extend(group.rows.into_iter().map(|(labels, cells)| Line { labels, cells }));
        group.originals.iter().for_each(|labels| drop(rest.remove(labels)));
    }
    lines
}

/// Lines with the same labels, which different stages may have left, as one.
fn unite(layer: Layer, lines: Vec<Line>) -> Vec<Line> {
    let mut table = Table::new();
    lines.into_iter().for_each(|line| add(&mut table, layer, line.labels, line.cells, Cell::beside));
    table.into_iter().map(|(labels, cells)| Line { labels, cells }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Noun;
    use forebay_base::Random;

    fn table(rows: impl Iterator<Item = (String, String, &'static str, u64)>) -> Table {
        let mut table = Table::new();
        for (client, volume, op, count) in rows {
            let labels = vec![
                (Dimension::Op, op.into()),
                (Dimension::Client, client.into()),
                (Dimension::Volume, volume.into()),
            ];
            let cells =
                vec![(Noun::Ops, Cell::Count(count)), (Noun::Latency, Cell::Spread(vec![(80, count)]))];
            add(&mut table, Layer::Nbd, labels, cells, Cell::beside);
        }
        table
    }

    fn count(line: &Line) -> u64 {
        weight(Layer::Nbd, &line.cells)
    }

    fn label(line: &Line, dimension: Dimension) -> &str {
        line.labels.iter().find(|(there, _)| *there == dimension).map_or("", |(_, value)| value)
    }

    #[test]
    fn few_rows_stay_as_they_are() {
        let rows = (0..ROWS_MAX).map(|nth| (nth.to_string(), "v".into(), "read", 1));
        let (lines, merged) = bound(Layer::Nbd, table(rows), ROWS_MAX);
        assert_eq!((lines.len(), merged), (ROWS_MAX, 0));
        assert!(lines.is_sorted_by(|a, b| a.labels < b.labels));
    }

    #[test]
    fn totals_and_histograms_are_exact_and_the_greatest_stay() {
        let mut random = Random::new(1);
        let rows: Vec<_> = (0..10_000u64)
            .flat_map(|nth| {
                ["read", "write"].map(|op| (format!("c{nth}"), format!("v{}", nth % 700), op, nth / 10))
            })
            .chain([("c3".into(), "v3".into(), "read", random.below(1000) + 9000)])
            .collect();
        let total: u64 = rows.iter().map(|row| row.3).sum();
        let (lines, merged) = bound(Layer::Nbd, table(rows.iter().cloned()), ROWS_MAX);
        assert!(lines.len() <= ROWS_MAX && lines.len() > ROWS_MAX * 3 / 4, "{}", lines.len());
        assert_eq!(lines.iter().map(count).sum::<u64>(), total);
        assert!(merged > 19_000 && merged < 20_000, "{merged}");
        for line in &lines {
            assert_eq!(line.cells[1].1, Cell::Spread(vec![(80, count(line))]));
        }
        // Both operations of the greatest clients, with their volumes.
        for nth in (9900..10_000).map(|nth| format!("c{nth}")).chain(["c3".into()]) {
            let whole = |line: &&Line| label(line, Dimension::Client) == nth;
            let lines: Vec<_> = lines.iter().filter(whole).collect();
            assert_eq!(lines.len(), 2, "{nth}");
            assert!(lines.iter().all(|line| label(line, Dimension::Volume) != OTHERS), "{nth}");
        }
    }

    #[test]
    fn a_client_of_many_small_volumes_is_seen() {
        let large = (0..400).map(|nth| (format!("c{nth}"), "v".to_string(), "read", 100));
        let many = (0..5000).map(|nth| ("herd".to_string(), format!("v{nth}"), "read", 1));
        let (lines, _) = bound(Layer::Nbd, table(large.chain(many)), ROWS_MAX);
        let herd: Vec<_> = lines.iter().filter(|line| label(line, Dimension::Client) == "herd").collect();
        assert_eq!(herd.iter().map(|line| count(line)).sum::<u64>(), 5000);
        assert_eq!((herd.len(), label(herd[0], Dimension::Volume)), (1, OTHERS));
    }

    #[test]
    fn whatever_the_labels_there_are_not_too_many_rows() {
        for dimension in Dimension::ALL {
            let mut table = Table::new();
            for nth in 0..2000u64 {
                let labels = vec![(*dimension, nth.to_string().into())];
                add(&mut table, Layer::Disk, labels, vec![(Noun::Ops, Cell::Count(nth))], Cell::beside);
            }
            let (lines, merged) = bound(Layer::Disk, table, 64);
            assert!(lines.len() <= 64 && merged > 0, "{dimension}: {}", lines.len());
            let total: u64 = lines.iter().map(|line| weight(Layer::Disk, &line.cells)).sum();
            assert_eq!(total, 1999 * 1000, "{dimension}");
        }
    }
}
