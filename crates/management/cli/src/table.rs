//! Tables for people: aligned columns, colour only on a terminal and never alone.

use crate::failure::printable;
use std::io::{IsTerminal, stdout};

/// What a word's colour says; the word says it, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    pub text: String,
    pub tone: Tone,
    /// Aligned to the right.
    pub right: bool,
}

impl Cell {
    pub fn text(text: impl AsRef<str>) -> Cell {
        Cell { text: printable(text.as_ref()), tone: Tone::Plain, right: false }
    }
    /// A number or size: aligned to the right.
    pub fn number(text: impl ToString) -> Cell {
        Cell { text: text.to_string(), tone: Tone::Plain, right: true }
    }
    pub fn tone(mut self, tone: Tone) -> Cell {
        self.tone = tone;
        self
    }
}

/// Whether stdout wants colour.
pub fn colour() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The table as text, a line per row; columns are two spaces apart.
pub fn render(titles: &[&str], rows: &[Vec<Cell>], colour: bool) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].text.chars().count());
        cells.chain([titles[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let right: Vec<bool> =
        (0..titles.len()).map(|column| rows.first().is_some_and(|row| row[column].right)).collect();
    let mut out = String::new();
    let titles: Vec<Cell> = titles.iter().map(Cell::text).collect();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths[column] - cell.text.chars().count());
            let text = paint(&cell.text, cell.tone, colour);
            match right[column] {
                true => line.push_str(&format!("{padding}{text}  ")),
                false => line.push_str(&format!("{text}{padding}  ")),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The text in its colour, where colour is wanted.
pub fn painted(text: &str, tone: Tone) -> String {
    paint(text, tone, colour())
}

fn paint(text: &str, tone: Tone, colour: bool) -> String {
    let code = match tone {
        _ if !colour => return text.to_string(),
        Tone::Plain => return text.to_string(),
        Tone::Good => 32,
        Tone::Warning => 33,
        Tone::Bad => 31,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_with_and_without_colour() {
        let rows = vec![
            vec![Cell::text("tank"), Cell::number("4 GiB"), Cell::text("online").tone(Tone::Good)],
            vec![Cell::text("ü\x1b[2J"), Cell::number("10 KiB"), Cell::text("degraded").tone(Tone::Warning)],
        ];
        let plain = render(&["NAME", "SIZE", "STATE"], &rows, false);
        assert_eq!(plain, "NAME     SIZE  STATE\ntank    4 GiB  online\nü\u{fffd}[2J  10 KiB  degraded\n");
        let coloured = render(&["NAME", "SIZE", "STATE"], &rows, true);
        assert!(coloured.contains("\x1b[32monline\x1b[0m"));
        assert_eq!(coloured.replace("\x1b[32m", "").replace("\x1b[33m", "").replace("\x1b[0m", ""), plain);
    }
}
