//! `forebay stat` and `forebay worksheet`: statistics over time, and saved graphs of them.

use crate::arguments::DryRun;
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, Failure, printable};
use crate::listing::{self, Shown};
use crate::rename::Rename;
use crate::show;
use crate::size::{parse_seconds, show_time};
use crate::table::{Cell, colour};
use clap::{Args, Subcommand, ValueEnum};
use forebay_api::{self as api, HeatMap, Operation, StatisticAnswer, StatisticLine, show_in_unit};
use rustix::termios::{Winsize, tcgetwinsize};
use std::io::stdout;

/// Where the output is no terminal.
const COLUMNS_DEFAULT: usize = 100;
/// Rows of a heat map: a screen of the least size has 24.
const ROWS_MAX: usize = 20;
/// Beside a line's name and figures.
const SPARK_CHARS: usize = 40;
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// Of shades, in the 256 colours of terminals: from dark blue to yellow.
const COLOURS: [u8; 5] = [0, 24, 31, 172, 220];

#[derive(Subcommand, Debug)]
pub enum Stat {
    /// List the statistics
    List,
    /// Turn the collection of statistics on
    On,
    /// Turn the collection of statistics off until `stat on` or the daemon's next start; that time is missing later
    Off,
    /// Show a statistic over time, like `iscsi.ops[op=read][client]`
    Query {
        #[command(flatten)]
        question: Question,
        /// Maximum number of lines, 1 to 100; the greatest are shown
        #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100))]
        limit: u32,
    },
    /// Show requests by latency, size or offset over time: `nbd.ops[latency]`, `[size]`, `[offset]`
    Heatmap {
        #[command(flatten)]
        question: Question,
    },
}

#[derive(Args, Debug)]
pub struct Question {
    /// Statistic, as layer.noun and brackets: [dim] breaks down, [dim=value] and [dim!=value] filter
    expression: String,
    /// Start: how long ago (15m), a date and time in UTC (2026-11-20T17:04), or seconds since 1970, where a negative number counts from now
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "-300")]
    from: i64,
    /// End, in the same format; 0 is now
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "0")]
    to: i64,
    /// Length of a step in seconds [default: one that fits]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    step: Option<u64>,
}

#[derive(Subcommand, Debug)]
pub enum WorksheetCommand {
    /// List worksheets
    List,
    /// Show a worksheet
    Show {
        /// Name or UUID
        name: String,
    },
    /// Rename a worksheet
    Rename(Rename),
    /// Delete a worksheet; the interval that it pinned is kept no longer than others
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// Print the data of a worksheet
    Export {
        /// Name or UUID
        name: String,
        /// Output format
        #[arg(long, default_value = "json")]
        format: Format,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    Csv,
    Json,
}

impl Session {
    pub fn stat(&self, command: Stat) -> Outcome {
        match command {
            Stat::List => {
                self.list(&self.client.all::<api::Statistic>(Operation::StatisticList, &[])?, show_statistics)
            }
            Stat::On | Stat::Off => {
                let is_on = matches!(command, Stat::On);
                let call = Call::new(Operation::ServerSet).body(&api::ServerSet { statistics: Some(is_on) });
                let server: api::Server = self.client.get(call)?;
                self.one(&server, |_| {
                    self.say(if is_on { "Statistics are on." } else { "Statistics are off." })
                })
            }
            Stat::Query { question, limit } => {
                let answer: StatisticAnswer = self.client.get(question.call().query("limit", limit))?;
                self.row(&answer, |_| match &answer.heatmap {
                    Some(map) => {
                        print!("{}", drawn(&answer, map, columns(), colour()));
                        Ok(())
                    }
                    None => show_lines(&answer),
                })
            }
            Stat::Heatmap { question } => {
                let answer: StatisticAnswer = self.client.get(question.call())?;
                let Some(map) = &answer.heatmap else {
                    let remedy = "Add [latency], [size] or [offset] to `ops` of a layer; `forebay stat list` shows which have them.";
                    return Err(Failure::new(Exit::Usage, "this statistic is not a heat map", remedy)
                        .object(answer.expression));
                };
                self.one(&answer, |answer| print!("{}", drawn(answer, map, columns(), colour())))
            }
        }
    }

    pub fn worksheet(&self, command: WorksheetCommand) -> Outcome {
        match command {
            WorksheetCommand::List => {
                self.list(&self.client.all(Operation::WorksheetList, &[])?, show_worksheets)
            }
            WorksheetCommand::Show { name } => {
                let one: api::Worksheet = self.client.get(Call::of(Operation::WorksheetShow, &name))?;
                self.one(&one, show_worksheet)
            }
            WorksheetCommand::Rename(rename) => self.rename("Worksheet", Operation::WorksheetSet, rename),
            WorksheetCommand::Delete { name, dry_run } => {
                let call = Call::of(Operation::WorksheetDelete, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&name, "deleted", format!("Worksheet {name} is deleted."))
            }
            WorksheetCommand::Export { name, format } => {
                let format = match format {
                    Format::Csv => "csv",
                    Format::Json => "json",
                };
                let call = Call::of(Operation::WorksheetExport, &name).query("format", format);
                self.client.download(call, &mut stdout())?;
                Ok(Exit::Ok)
            }
        }
    }
}

impl Question {
    fn call(&self) -> Call<'static> {
        let call = Call::new(Operation::StatisticQuery).query("expression", &self.expression);
        let call = call.query("from", self.from).query("to", self.to);
        match self.step {
            Some(step) => call.query("step", step),
            None => call,
        }
    }
}

/// How wide the terminal is.
fn columns() -> usize {
    match tcgetwinsize(stdout()) {
        Ok(Winsize { ws_col: columns @ 1.., .. }) => columns.into(),
        _ => COLUMNS_DEFAULT,
    }
}

fn show_statistics(all: &[api::Statistic]) -> Shown {
    let rows = all.iter().map(|one| {
        let brackets: Vec<&str> = one.dimensions.iter().chain(&one.spreads).map(String::as_str).collect();
        vec![
            Cell::text(&one.name),
            Cell::text(show::word(&one.kind)),
            Cell::text(&one.unit),
            Cell::text(brackets.join(" ")),
            Cell::text(&one.sentence),
        ]
    });
    listing::table(&["NAME", "KIND", "UNIT", "BRACKETS", "DESCRIPTION"], rows.collect(), "No statistics.")
}

fn name(line: &StatisticLine) -> String {
    match line.labels.len() {
        0 => "all".into(),
        _ => line.labels.values().map(String::as_str).collect::<Vec<_>>().join(" "),
    }
}

fn show_lines(answer: &StatisticAnswer) -> Shown {
    let row = |name: String, mean: f64, greatest: Option<f64>, values: &[Option<f64>]| {
        let last = values.iter().rev().flatten().next();
        let shown = |value: Option<f64>| {
            Cell::number(value.map_or("-".into(), |value| show_in_unit(value, &answer.unit)))
        };
        let spark = spark(values, SPARK_CHARS);
        vec![Cell::text(name), shown(Some(mean)), shown(greatest), shown(last.copied()), Cell::text(spark)]
    };
    let lines = answer.lines.iter().flatten();
    let mut rows: Vec<Vec<Cell>> =
        lines.map(|line| row(name(line), line.mean, Some(line.greatest), &line.values)).collect();
    for (name, sum) in [("others", &answer.others), ("total", &answer.total)] {
        if let Some(sum) = sum.as_ref().filter(|_| rows.len() > 1) {
            let name = if name == "others" { format!("{} others", sum.lines) } else { name.into() };
            rows.push(row(name, sum.mean, None, &sum.values));
        }
    }
    println!("{}", title(answer));
    let titles = ["LINE", "MEAN", "MAX", "LAST", "OVER TIME"];
    listing::table(&titles, rows, "Nothing was counted in this interval.")
}

fn title(answer: &StatisticAnswer) -> String {
    let (from, to) = (answer.from_unix_s * 1000, answer.to_unix_s * 1000);
    format!(
        "{} from {} to {} UTC, steps of {} s",
        printable(&answer.expression),
        show_time(from),
        show_time(to),
        answer.step_seconds
    )
}

/// Values of so many columns, of each the greatest; a space where there is none.
fn spark(values: &[Option<f64>], columns: usize) -> String {
    let known = |chunk: &[Option<f64>]| chunk.iter().flatten().copied().reduce(f64::max);
    let top = known(values).unwrap_or(0.0);
    let chunks = values.chunks(values.len().div_ceil(columns).max(1));
    let character = |chunk| match known(chunk) {
        None => ' ',
        Some(value) if top > 0.0 => {
            SPARKS[((value / top * SPARKS.len() as f64) as usize).min(SPARKS.len() - 1)]
        }
        Some(_) => SPARKS[0],
    };
    chunks.map(character).collect()
}

/// A heat map as text: the greatest at the top, time to the right, the darker the more. Columns and rows that do not fit are added together.
fn drawn(answer: &StatisticAnswer, map: &HeatMap, width: usize, colour: bool) -> String {
    let mut out = format!("{}\n", title(answer));
    let rows = map.bounds.len().saturating_sub(1);
    if rows == 0 {
        out.push_str("Nothing was counted in this interval.\n");
        return out;
    }
    let label = |bound: u64| match map.unit.as_str() {
        "sixty-fourths" => format!("{bound}/64"),
        unit => show_in_unit(bound as f64, unit),
    };
    let labels: Vec<String> = map.bounds.iter().map(|bound| label(*bound)).collect();
    let margin = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) + 2;
    let columns = width.saturating_sub(margin).max(1);
    let (tall, wide) = (rows.div_ceil(ROWS_MAX), map.columns.len().div_ceil(columns).max(1));
    let cells: Vec<Vec<f64>> = (0..rows.div_ceil(tall))
        .map(|row| {
            let rows = row * tall..((row + 1) * tall).min(rows);
            let sum =
                |chunk: &[Vec<f64>]| chunk.iter().flat_map(|column| column.get(rows.clone())).flatten().sum();
            map.columns.chunks(wide).map(sum).collect()
        })
        .collect();
    let top = cells.iter().flatten().copied().fold(0.0, f64::max);
    for (row, values) in cells.iter().enumerate().rev() {
        let edge = &labels[row * tall];
        out.push_str(&" ".repeat(margin - 2 - edge.chars().count()));
        out.push_str(edge);
        out.push_str("  ");
        let mut line = String::new();
        for value in values {
            let shade = shade(*value, top);
            match colour && shade > 0 {
                true => line.push_str(&format!("\x1b[38;5;{}m{}\x1b[0m", COLOURS[shade], SHADES[shade])),
                false => line.push(SHADES[shade]),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// By the logarithm, so that few among many are still seen; nothing is only what is nothing.
fn shade(value: f64, top: f64) -> usize {
    if value <= 0.0 || top <= 0.0 {
        return 0;
    }
    let darkest = SHADES.len() - 1;
    ((value.ln_1p() / top.ln_1p() * darkest as f64).ceil() as usize).clamp(1, darkest)
}

fn interval(spec: &api::WorksheetSpec) -> String {
    match (spec.seconds, spec.from_unix_s, spec.to_unix_s) {
        (Some(seconds), ..) => format!("the last {seconds} s"),
        (_, Some(from), Some(to)) => format!("{} to {}", show_time(from * 1000), show_time(to * 1000)),
        _ => "-".into(),
    }
}

fn show_worksheets(worksheets: &[api::Worksheet]) -> Shown {
    let rows = worksheets.iter().map(|one| {
        vec![
            Cell::text(&one.name),
            Cell::number(one.spec.graphs.len()),
            Cell::text(interval(&one.spec)),
            Cell::text(if one.spec.pinned { "for ever" } else { "" }),
            Cell::text(&one.id),
        ]
    });
    let empty = "No worksheets. Save them in the browser interface.";
    listing::table(&["NAME", "GRAPHS", "INTERVAL (UTC)", "KEPT", "ID"], rows.collect(), empty)
}

fn show_worksheet(one: &api::Worksheet) {
    println!("Worksheet {}", printable(&one.name));
    println!("  id          {}", one.id);
    println!("  interval    {}", interval(&one.spec));
    println!("  kept        {}", if one.spec.pinned { "for ever" } else { "as long as others" });
    for graph in &one.spec.graphs {
        let title = graph.title.as_deref().map_or(String::new(), |title| format!("  ({})", printable(title)));
        println!("  graph       {}{title}", printable(&graph.expression));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(columns: Vec<Vec<f64>>, bounds: Vec<u64>) -> StatisticAnswer {
        StatisticAnswer {
            expression: "nbd.ops[latency]".into(),
            kind: api::StatisticKind::Counter,
            unit: "per-second".into(),
            from_unix_s: 0,
            to_unix_s: 3,
            step_seconds: 1,
            lines: None,
            others: None,
            total: None,
            heatmap: Some(HeatMap { dimension: "latency".into(), unit: "ns".into(), bounds, columns }),
        }
    }

    #[test]
    fn a_heat_map_has_the_greatest_at_the_top_and_fits() {
        let answer = answer(vec![vec![100.0, 0.0], vec![], vec![1.0, 3.0]], vec![1000, 2000, 3000]);
        let map = answer.heatmap.as_ref().unwrap();
        let text = drawn(&answer, map, 80, false);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["2µs    ▒", "1µs  █ ░"]);
        assert!(drawn(&answer, map, 80, true).contains("\x1b[38;5;220m█\x1b[0m"));
        let wide = HeatMap {
            columns: vec![vec![1.0; 100]; 500],
            bounds: (0..=100).map(|row| row * 1000).collect(),
            ..map.clone()
        };
        let text = drawn(&answer, &wide, 60, false);
        assert!(text.lines().count() <= ROWS_MAX + 1, "{text}");
        assert!(text.lines().skip(1).all(|line| line.chars().count() <= 60), "{text}");
        let nothing = HeatMap { bounds: vec![], columns: vec![vec![]], ..map.clone() };
        assert!(drawn(&answer, &nothing, 60, false).contains("Nothing"));
    }

    #[test]
    fn sparks_show_the_greatest_of_what_they_stand_for() {
        assert_eq!(spark(&[Some(0.0), None, Some(4.0), Some(8.0)], 40), "▁ ▅█");
        assert_eq!(spark(&[Some(0.0), Some(9.0), None, None], 2), "█ ");
        assert_eq!(spark(&[Some(0.0)], 5), "▁");
        assert_eq!(spark(&[], 5), "");
    }

    #[test]
    fn values_are_shown_in_their_units() {
        for (value, unit, text) in [
            (12.0, "per-second", "12"),
            (12.345, "per-second", "12.35"),
            (1234.5, "per-second", "1234"),
            (8192.0, "bytes", "8 KiB"),
            (1_500_000.0, "ns", "1.50ms"),
            (250.0, "ns", "250ns"),
            (5e8, "ns-per-second", "50.0%"),
            (385.0, "thousandths", "38.5%"),
        ] {
            assert_eq!(show_in_unit(value, unit), text);
        }
    }
}
