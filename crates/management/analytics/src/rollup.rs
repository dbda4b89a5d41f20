//! Seconds added up into minutes, and minutes into hours.

use crate::block::{Block, Resolution};
use crate::catalogue::Layer;
use crate::intake::{Line, ROWS_MAX, Table, add, bound};
use crate::row::Cell;
use std::collections::BTreeMap;

/// Rows of a layer while they are added up. Each second may have others; this many leave the greatest of a minute far from the edge.
const GATHERED_MAX: usize = 4 * ROWS_MAX;

pub(crate) type Layers = Vec<(Layer, Vec<Line>)>;

/// What is added up at the moment.
pub(crate) struct Rollup {
    resolution: Resolution,
    /// When it began, and how many of its seconds there were.
    current: Option<(u64, u32)>,
    tables: BTreeMap<Layer, Table>,
}

impl Rollup {
    pub fn new(resolution: Resolution) -> Rollup {
        Rollup { resolution, current: None, tables: BTreeMap::new() }
    }

    /// Adds what there was at a moment; answers with what is whole because this is of another time.
    pub fn push(&mut self, at: u64, seconds: u32, layers: &[(Layer, Vec<Line>)]) -> Option<(Block, Layers)> {
        let start = at - at % self.resolution.seconds();
        let whole =
            self.current.is_some_and(|(current, _)| current != start).then(|| self.finish()).flatten();
        let current = self.current.get_or_insert((start, 0));
        current.1 = current.1.saturating_add(seconds);
        for (layer, lines) in layers {
            let table = self.tables.entry(*layer).or_default();
            for line in lines {
                add(table, *layer, line.labels.clone(), line.cells.clone(), Cell::after);
            }
            if table.len() > GATHERED_MAX {
                let (lines, _) = bound(*layer, std::mem::take(table), GATHERED_MAX / 2);
                table.extend(lines.into_iter().map(|line| (line.labels, line.cells)));
            }
        }
        whole
    }

    fn finish(&mut self) -> Option<(Block, Layers)> {
        let (start, seconds) = self.current.take()?;
        let tables = std::mem::take(&mut self.tables).into_iter();
        let layers: Layers = tables.map(|(layer, table)| (layer, bound(layer, table, ROWS_MAX).0)).collect();
        Block::encode(self.resolution, start, seconds, &layers).map(|block| (block, layers))
    }
}
