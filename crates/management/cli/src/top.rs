//! Who uses what now, second by second.

use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::Exit;
use crate::show::{permille_words as percent, word};
use crate::table::{Cell, Tone, colour, render};
use clap::Subcommand;
use forebay_api::{
    self as api, LedgerSecond, LedgerState, Operation, Page, Standing, show_micros, show_size,
};
use std::io::{IsTerminal, Write, stdout};

/// How long the server waits for the next second.
const WAIT_SECONDS: u32 = 10;

#[derive(Subcommand, Debug)]
pub enum Top {
    /// Show each second what volumes were promised, asked for and got, and why a promise was not kept
    Qos {
        /// Pool name or UUID
        pool: String,
        /// End after this many seconds; without it, at Ctrl-C, or after the first where the output is not a terminal
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
                    (true, _) => println!("{}", serde_json::to_string(second).expect("it is plain data")),
                    (false, true) => print!("\x1b[H\x1b[2J{}", screen(&pool, second)),
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

fn screen(pool: &str, second: &LedgerSecond) -> String {
    let promisable = match second.promisable_permille {
        Some(permille) => format!("of {} that can be", percent(permille)),
        None => "of a pool that was not measured ('forebay pool calibrate')".into(),
    };
    let mut text = format!("{pool}: promised {} {promisable}", percent(second.promised_permille));
    if !second.own_work_us.is_empty() {
        let own = second.own_work_us.iter().map(|(kind, us)| {
            format!("{kind} {}", percent((us * 1000 / second.span_us.max(1)).min(9999) as u32))
        });
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
                LedgerState::Met | LedgerState::NotDemanded | LedgerState::Idle => Tone::Plain,
            };
            let share = line.pool_time_us * 1000 / second.span_us.max(1);
            vec![
                Cell::text(&line.volume),
                Cell::text(level),
                Cell::number(per_second(line.asked, second)),
                Cell::number(per_second(line.done, second)),
                Cell::number(format!("{}/s", show_size(per_second(line.done_bytes, second)))),
                Cell::number(show_micros(line.p50_us)),
                Cell::number(show_micros(line.p99_us)),
                Cell::number(percent(share.min(9999) as u32)),
                Cell::text(word(&line.state)).tone(tone),
                Cell::text(line.cause.as_ref().map_or(String::new(), api::LedgerCause::words)),
            ]
        })
        .collect();
    text.push_str(&render(&titles, &rows, colour()));
    text
}
