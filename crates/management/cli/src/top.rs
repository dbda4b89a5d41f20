//! Who uses what now, second by second.

use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, printable};
use crate::show::{json_line, permille_words as percent, word};
use crate::size::show_measured;
use crate::table::{Cell, Tone, colour, render};
use clap::Subcommand;
use forebay_api::{self as api, LedgerSecond, LedgerState, Operation, Page, Standing, show_size};
use rustix::termios::{Winsize, tcgetwinsize};
use std::io::{IsTerminal, Write, stdout};

/// How long the server waits for the next second.
const WAIT_SECONDS: u32 = 10;

#[derive(Subcommand, Debug)]
pub enum Top {
    /// Show each second what volumes were promised, asked for and got, and why a promise was not kept
    Qos {
        /// Pool name or UUID
        pool: String,
        /// End after this many seconds; without it, at Ctrl-C, or after the first with --json or where the output is not a terminal
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
}

impl Session {
    pub fn top(&self, command: Top) -> Outcome {
        let Top::Qos { pool, count } = command;
        let is_screen = stdout().is_terminal() && !self.json;
        let count = count.unwrap_or(if is_screen { u64::MAX } else { 1 });
        // Waits for the one that comes: the last one is over.
        let newest: Page<LedgerSecond> =
            self.client.get(Call::of(Operation::PoolLedger, &pool).query("limit", 1))?;
        let mut after = newest.items.last().map_or(0, |second| second.number);
        let mut shown = 0;
        while shown < count {
            let call = Call::of(Operation::PoolLedger, &pool).query("after", after);
            let page: Page<LedgerSecond> = self.client.get(call.query("wait_seconds", WAIT_SECONDS))?;
            for second in page.items.iter().take((count - shown).min(1000) as usize) {
                (after, shown) = (second.number, shown + 1);
                match (self.json, is_screen) {
                    (true, _) => json_line(second),
                    (false, true) => print!("\x1b[H\x1b[2J{}", fitted(&screen(&pool, second))),
                    (false, false) => print!("{}", screen(&pool, second)),
                }
            }
            // A terminal that is gone needs no more.
            if stdout().flush().is_err() {
                break;
            }
        }
        Ok(Exit::Ok)
    }
}

/// As many of something as there would have been in a second.
fn per_second(number: u64, second: &LedgerSecond) -> u64 {
    (u128::from(number) * 1_000_000 / u128::from(second.span_us.max(1))) as u64
}

/// A part of the pool's time, in words.
fn share(us: u64, second: &LedgerSecond) -> String {
    let permille = u128::from(us) * 1000 / u128::from(second.span_us.max(1));
    percent(permille.try_into().unwrap_or(u32::MAX))
}

/// As the terminal shows it whole.
fn fitted(text: &str) -> String {
    match tcgetwinsize(stdout()) {
        Ok(Winsize { ws_row: rows @ 1.., ws_col: columns @ 1.., .. }) => {
            fit(text, rows.into(), columns.into())
        }
        _ => text.to_string(),
    }
}

/// The first lines, which matter most, and how many there are besides; each as far as the columns go. Below the last the cursor needs a row.
fn fit(text: &str, rows: usize, columns: usize) -> String {
    let lines = text.lines().count();
    let shown = if lines < rows { lines } else { rows.saturating_sub(2) };
    let mut out: String = text.lines().take(shown).map(|line| cut(line, columns) + "\n").collect();
    if shown < lines {
        out.push_str(&cut(&format!("… {} more", lines - shown), columns));
        out.push('\n');
    }
    out
}

/// As much of a line as so many columns show. What sets a colour takes none, and what ends it is never lost.
fn cut(line: &str, columns: usize) -> String {
    let (mut left, mut in_colour) = (columns, false);
    let is_shown = |c: &char| {
        let (was_in, is_escape) = (in_colour, *c == '\x1b');
        in_colour = is_escape || (was_in && *c != 'm');
        let has_room = left > 0;
        left -= usize::from(has_room && !was_in && !is_escape);
        was_in || is_escape || has_room
    };
    line.chars().filter(is_shown).collect()
}

fn screen(pool: &str, second: &LedgerSecond) -> String {
    let promisable = match second.promisable_permille {
        Some(permille) => format!("of {} that can be", percent(permille)),
        None => "of a pool that was not measured ('forebay pool calibrate')".into(),
    };
    let mut text =
        format!("{}: promised {} {promisable}", printable(pool), percent(second.promised_permille));
    if !second.own_work_us.is_empty() {
        let own = second.own_work_us.iter();
        let own = own.map(|(kind, us)| format!("{} {}", printable(kind), share(*us, second)));
        text.push_str(&format!("; own work: {}", own.collect::<Vec<_>>().join(", ")));
    }
    text.push('\n');
    if second.volumes.is_empty() {
        text.push_str("No volume was asked for anything.\n");
        return text;
    }
    let mut lines: Vec<&api::LedgerLine> = second.volumes.iter().collect();
    // Broken promises first, then whoever has the most of the pool.
    lines.sort_by_key(|line| (line.state != LedgerState::Violated, std::cmp::Reverse(line.pool_time_us)));
    let titles =
        ["VOLUME", "LEVEL", "ASKED/S", "DONE/S", "BANDWIDTH", "P50", "P99", "POOL", "STATE", "CAUSE"];
    let rows: Vec<Vec<Cell>> = lines
        .into_iter()
        .map(|line| {
            let level = match line.standing {
                Some(Standing::BestEffort) => format!("{} (best effort)", line.level),
                _ => line.level.clone(),
            };
            let tone = match line.state {
                LedgerState::Violated => Tone::Bad,
                LedgerState::Capped => Tone::Warning,
                LedgerState::Met | LedgerState::NotDemanded => Tone::Plain,
            };
            vec![
                Cell::text(&line.volume),
                Cell::text(level),
                Cell::number(per_second(line.asked, second)),
                Cell::number(per_second(line.done, second)),
                Cell::number(format!("{}/s", show_size(per_second(line.done_bytes, second)))),
                Cell::number(show_measured(line.p50_us)),
                Cell::number(show_measured(line.p99_us)),
                Cell::number(share(line.pool_time_us, second)),
                Cell::text(word(&line.state)).tone(tone),
                Cell::text(line.cause.as_ref().map_or(String::new(), api::LedgerCause::words)),
            ]
        })
        .collect();
    text.push_str(&render(&titles, &rows, colour()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let text = "pool\nTITLES\na\nb\nc\n";
        assert_eq!(fit(text, 6, 80), text);
        assert_eq!(fit(text, 5, 80), "pool\nTITLES\na\n… 2 more\n");
        assert_eq!(fit(text, 5, 3), "poo\nTIT\na\n… 2\n");
        assert_eq!(fit(text, 1, 80), "… 5 more\n");
    }

    #[test]
    fn colours_take_no_columns_and_end() {
        let line = "ab \x1b[31mviolated\x1b[0m  c";
        assert_eq!(cut(line, 80), line);
        assert_eq!(cut(line, 5), "ab \x1b[31mvi\x1b[0m");
        assert_eq!(cut(line, 2), "ab\x1b[31m\x1b[0m");
    }
}
