//! How a list is shown: which of its columns and rows, in which order. The same options for every list, over what its table has.
//!
//! A value is compared as a person reads it: sizes, rates, times and percentages by what they amount to, everything else as text. JSON has all of a list,
//! so these options are refused there, but for `--limit`, and a program chooses for itself.

use crate::failure::{Exit, Failure};
use crate::size::{parse_rate, parse_size};
use crate::table::{Cell, colour, render};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::cmp::Ordering;
use std::sync::OnceLock;

const COLUMNS: &str = "columns";
const SORT: &str = "sort";
const FILTER: &str = "filter";
/// How a command calls the limit that it has of its own: of the newest entries of a log.
const OWN_LIMIT: &str = "limit";
const ROWS: &str = "rows";
const NO_HEADER: &str = "no-header";
/// What a cell has where there is nothing to show.
const NONE: &str = "-";
/// Those of two characters first: they begin as the others.
const OPERATORS: [&str; 7] = ["!=", "<=", ">=", "=", "<", ">", "~"];

/// What the command line asks of the list. A process shows one.
static ASKED: OnceLock<Listing> = OnceLock::new();

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    columns: Vec<String>,
    sort: Vec<String>,
    filter: Vec<String>,
    limit: Option<usize>,
    /// Of entries with the newest last, at most so many.
    newest: Option<usize>,
    no_header: bool,
}

/// A column to sort by: what begins like another option is one that was meant.
fn sort_column(text: &str) -> Result<String, String> {
    match text.starts_with("--") {
        true => Err(format!("`{text}` is no column; give columns, like name,-size")),
        false => Ok(text.to_string()),
    }
}

/// The options, for a command that lists.
pub fn options(command: Command) -> Command {
    let value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let has_limit = command.get_arguments().any(|arg| arg.get_id() == OWN_LIMIT);
    let command = command
        .arg(
            value(COLUMNS, "COLUMN,...", "Show only these columns, in this order")
                .value_delimiter(',')
                .action(ArgAction::Append),
        )
        .arg(
            value(SORT, "COLUMN,...", "Sort by these columns; `-COLUMN` sorts in descending order")
                .value_delimiter(',')
                .value_parser(sort_column)
                .action(ArgAction::Append)
                .allow_hyphen_values(true),
        )
        .arg(
            value(
                FILTER,
                "CONDITION",
                "Show only rows that match, like `STATE=online`, `NAME~vm` (contains) or `SIZE>10G`; also !=, <, <= and >=",
            )
            .action(ArgAction::Append),
        )
        .arg(
            Arg::new(NO_HEADER)
                .long(NO_HEADER)
                .action(ArgAction::SetTrue)
                .help("Leave out the line with the column names"),
        );
    match has_limit {
        true => command,
        false => command.arg(
            value(ROWS, "N", "Show at most N rows")
                .long(OWN_LIMIT)
                .value_parser(clap::value_parser!(u32).range(1..)),
        ),
    }
}

/// Remembers what this command line asks of its list.
pub fn remember(matches: &ArgMatches, json: bool) -> Result<(), Failure> {
    let texts = |name: &str| {
        let given = matches.try_get_many::<String>(name).ok().flatten();
        given.map(|texts| texts.cloned().collect::<Vec<_>>()).unwrap_or_default()
    };
    let flag = |name: &str| matches.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or_default();
    // Another command has no rows: its options of these names are its own.
    if matches.try_contains_id(NO_HEADER).is_err() {
        return Ok(());
    }
    let number = |name: &str| {
        let given = matches.try_get_one::<u32>(name).ok().flatten();
        given.map(|number| *number as usize)
    };
    let listing = Listing {
        columns: texts(COLUMNS),
        sort: texts(SORT),
        filter: texts(FILTER),
        limit: number(ROWS),
        newest: number(OWN_LIMIT),
        no_header: flag(NO_HEADER),
    };
    let shapes = Listing { limit: None, newest: None, ..listing.clone() } != Listing::default();
    if json && shapes {
        return Err(Failure::new(
            Exit::Usage,
            "--columns, --sort, --filter and --no-header shape the table for people",
            "Leave them out, and choose from the JSON with a program like jq.",
        ));
    }
    // Tests run several commands in a process; none of those shapes a list.
    let _ = ASKED.set(listing);
    Ok(())
}

/// At most how many items JSON has.
pub fn limit() -> usize {
    ASKED.get().and_then(|asked| asked.limit).unwrap_or(usize::MAX)
}

/// Whether a list could be shown as it was asked for.
pub type Shown = Result<(), Failure>;

/// A list, as the command line asks for it, or what to say where there is nothing.
pub fn table(titles: &[&str], rows: Vec<Vec<Cell>>, empty: &str) -> Shown {
    let is_empty = rows.is_empty();
    let Table { titles, rows, has_header } = shape(titles, rows)?;
    if is_empty {
        // A script reads rows.
        if has_header {
            println!("{empty}");
        }
        return Ok(());
    }
    let text = render(&titles, &rows, colour());
    let lines = if has_header { text.as_str() } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    print!("{lines}");
    Ok(())
}

/// Whether rows are chosen after the daemon has answered.
pub fn is_filtered() -> bool {
    ASKED.get().is_some_and(|asked| !asked.filter.is_empty())
}

/// A table that is to be printed.
struct Table<'a> {
    titles: Vec<&'a str>,
    rows: Vec<Vec<Cell>>,
    has_header: bool,
}

/// A table as it was asked for.
fn shape<'a>(titles: &[&'a str], rows: Vec<Vec<Cell>>) -> Result<Table<'a>, Failure> {
    match ASKED.get() {
        Some(asked) => asked.shape(titles, rows),
        None => Ok(Table { titles: titles.to_vec(), rows, has_header: true }),
    }
}

impl Listing {
    fn shape<'a>(&self, titles: &[&'a str], mut rows: Vec<Vec<Cell>>) -> Result<Table<'a>, Failure> {
        for condition in &self.filter {
            let (column, operator, value) = parts(condition)?;
            let column = find(titles, column)?;
            comparable(condition, operator, value, rows.iter().map(|row| row[column].text.as_str()))?;
            rows.retain(|row| holds(&row[column].text, operator, value));
        }
        let newest = self.newest.unwrap_or(usize::MAX);
        rows.drain(..rows.len().saturating_sub(newest));
        for sort in self.sort.iter().rev() {
            let (name, descending) = match sort.strip_prefix('-') {
                Some(name) => (name, true),
                None => (sort.as_str(), false),
            };
            let column = find(titles, name)?;
            rows.sort_by(|a, b| {
                let order = compare(&a[column].text, &b[column].text);
                if descending { order.reverse() } else { order }
            });
        }
        rows.truncate(self.limit.unwrap_or(usize::MAX));
        if self.columns.is_empty() {
            return Ok(Table { titles: titles.to_vec(), rows, has_header: !self.no_header });
        }
        let columns =
            self.columns.iter().map(|name| find(titles, name)).collect::<Result<Vec<usize>, Failure>>()?;
        let rows =
            rows.into_iter().map(|row| columns.iter().map(|&column| row[column].clone()).collect()).collect();
        let titles = columns.iter().map(|&column| titles[column]).collect();
        Ok(Table { titles, rows, has_header: !self.no_header })
    }
}

/// The column with this name: as it is written, whatever the case, and with `_` or `-` for spaces.
fn find(titles: &[&str], name: &str) -> Result<usize, Failure> {
    let plain = |text: &str| {
        let text = text.split(" (").next().unwrap_or_default();
        text.trim().to_lowercase().replace(['_', '-'], " ")
    };
    titles.iter().position(|title| !title.is_empty() && plain(title) == plain(name)).ok_or_else(|| {
        let known: Vec<&str> = titles.iter().copied().filter(|title| !title.is_empty()).collect();
        let remedy = format!("Choose from {}.", known.join(", "));
        Failure::new(Exit::Usage, format!("the list has no column `{name}`"), remedy)
    })
}

fn parts(condition: &str) -> Result<(&str, &str, &str), Failure> {
    let at = condition.find(['!', '<', '>', '=', '~']);
    let found = at.and_then(|at| {
        let rest = &condition[at..];
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator))?;
        Some((condition[..at].trim(), *operator, rest[operator.len()..].trim()))
    });
    found.filter(|(column, ..)| !column.is_empty()).ok_or_else(|| {
        let remedy = "Write a column, one of = != < <= > >= ~, and a value, like `STATE=online`.";
        Failure::new(Exit::Usage, format!("`{condition}` is not a condition"), remedy)
    })
}

/// Refuses to compare amounts with what is none: no row would match.
fn comparable<'a>(
    condition: &str,
    operator: &str,
    value: &str,
    mut cells: impl Iterator<Item = &'a str>,
) -> Result<(), Failure> {
    if !operator.starts_with(['<', '>']) {
        return Ok(());
    }
    match cells.find(|cell| *cell != NONE && amount(cell, cell).is_some()) {
        Some(cell) if amount(value, cell).is_none() => {
            let detail = format!("`{condition}` compares amounts with a text");
            Err(Failure::new(Exit::Usage, detail, format!("Give a value like `{cell}`.")))
        }
        _ => Ok(()),
    }
}

fn holds(cell: &str, operator: &str, value: &str) -> bool {
    // A time is compared with as much of one as is given: a year alone is no amount.
    let order = || if is_time(cell) { cell.cmp(value) } else { compare(cell, value) };
    let is_alike = || amount(cell, cell).is_some() == amount(value, cell).is_some();
    let is_comparable = || cell != NONE && (is_time(cell) || is_alike());
    match operator {
        "<" | "<=" | ">" | ">=" if !is_comparable() => false,
        "=" => order() == Ordering::Equal,
        "!=" => order() != Ordering::Equal,
        "<" => order() == Ordering::Less,
        "<=" => order() != Ordering::Greater,
        ">" => order() == Ordering::Greater,
        ">=" => order() != Ordering::Less,
        _ => cell.to_lowercase().contains(&value.to_lowercase()),
    }
}

/// `2026-11-20 17:04:05`
fn is_time(cell: &str) -> bool {
    let fits = |(text, form): (u8, u8)| text == form || (form == b'0' && text.is_ascii_digit());
    cell.len() >= 10 && cell.bytes().zip(*b"0000-00-00").all(fits)
}

/// By what they amount to, if both are amounts; else as text, whatever the case. An amount comes before a text, and nothing comes last.
fn compare(a: &str, b: &str) -> Ordering {
    match (amount(a, a), amount(b, a)) {
        _ if (a == NONE) != (b == NONE) => (a == NONE).cmp(&(b == NONE)),
        (Some(a), Some(b)) => a.total_cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.to_lowercase().cmp(&b.to_lowercase()),
    }
}

/// What a text amounts to, in base units, beside a cell: a number with one unit or none. `10M` is a rate beside rates, and a size elsewhere; `10m` is a time.
fn amount(text: &str, cell: &str) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim();
    let factor = match unit {
        "" | "%" | "B" | "s" | "IOPS" => 1.0,
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        unit if unit.ends_with("/s") || cell.ends_with("B/s") => parse_rate(&format!("1{unit}")).ok()? as f64,
        unit => parse_size(&format!("1{unit}")).ok()? as f64,
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        let row = |name: &str, size: &str, state: &str, scrubbed: &str| {
            [name, size, state, scrubbed].map(Cell::text).to_vec()
        };
        vec![
            row("tank/a", "2 GiB", "online", "2026-11-20 17:04:05"),
            row("tank/B", "512 MiB", "online", "2026-11-19 17:04:05"),
            row("tank/c", "1.5 TiB", "degraded", "-"),
        ]
    }

    const TITLES: [&str; 4] = ["NAME", "SIZE", "STATE", "LAST SCRUB (UTC)"];

    fn shown(listing: &Listing) -> Result<Vec<String>, String> {
        let Table { titles, rows, has_header } =
            listing.shape(&TITLES, rows()).map_err(|failure| failure.detail)?;
        let rows =
            rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join("|"));
        let titles = has_header.then(|| titles.join("|"));
        Ok(titles.into_iter().chain(rows).collect())
    }

    #[test]
    fn lists_are_cut_sorted_and_filtered_by_what_cells_amount_to() {
        let words = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let cases: [(Listing, &[&str]); 7] = [
            (
                Listing { columns: words(&["size", "name"]), no_header: true, ..Listing::default() },
                &["2 GiB|tank/a", "512 MiB|tank/B", "1.5 TiB|tank/c"],
            ),
            (
                Listing { columns: words(&["NAME"]), sort: words(&["size"]), ..Listing::default() },
                &["NAME", "tank/B", "tank/a", "tank/c"],
            ),
            (
                Listing {
                    columns: words(&["NAME"]),
                    sort: words(&["-size"]),
                    limit: Some(2),
                    ..Listing::default()
                },
                &["NAME", "tank/c", "tank/a"],
            ),
            (
                Listing { columns: words(&["NAME"]), sort: words(&["state", "-name"]), ..Listing::default() },
                &["NAME", "tank/c", "tank/B", "tank/a"],
            ),
            (
                Listing {
                    columns: words(&["NAME"]),
                    filter: words(&["SIZE>=2G", "state=online"]),
                    ..Listing::default()
                },
                &["NAME", "tank/a"],
            ),
            (
                Listing { columns: words(&["NAME"]), filter: words(&["name~K/b"]), ..Listing::default() },
                &["NAME", "tank/B"],
            ),
            (
                Listing {
                    columns: words(&["NAME"]),
                    filter: words(&["last_scrub<2026-11-20"]),
                    ..Listing::default()
                },
                &["NAME", "tank/B"],
            ),
        ];
        for (listing, expected) in cases {
            assert_eq!(shown(&listing), Ok(words(expected)), "{listing:?}");
        }
        for (cell, condition, is_met) in [
            ("1m", ">30s", true),
            ("2h", ">90m", true),
            ("800 kB/s", "<1M", true),
            ("1 MB/s", "=1M", true),
            ("5000 IOPS, 50 MB/s", ">1000", false),
            ("unknown", ">1G", false),
            ("2026-11-20 17:04:05", ">2026", true),
            ("2026-11-20 17:04:05", "<2026-11", false),
            ("98.3ms", ">500µs", true),
            ("-", "!=x", true),
        ] {
            let condition = format!("A{condition}");
            let (_, operator, value) = parts(&condition).expect("a condition");
            assert_eq!(holds(cell, operator, value), is_met, "{cell} {condition}");
        }
        for (column, filter) in [
            ("nothing", "NAME=x"),
            ("NAME", "NAME"),
            ("NAME", "=x"),
            ("NAME", "SIZES>1"),
            ("NAME", "SIZE>abc"),
        ] {
            let listing =
                Listing { columns: words(&[column]), filter: words(&[filter]), ..Listing::default() };
            assert!(shown(&listing).is_err(), "{listing:?}");
        }
    }
}
