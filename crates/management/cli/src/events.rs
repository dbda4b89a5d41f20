//! `forebay event`: what happened, newest last, by time, code, object and severity.

use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::show;
use crate::size::parse_moment;
use clap::{Subcommand, ValueEnum};
use forebay_api::{Event as ApiEvent, Operation, Page};

#[derive(Subcommand, Debug)]
pub enum Event {
    /// List the newest events, oldest first
    List(List),
}

#[derive(clap::Args, Debug)]
pub struct List {
    /// Keep running, and print events as they happen
    #[arg(long)]
    follow: bool,
    /// Print at most N events to begin with
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Print only events since then: 30m, 12h or 7d ago, or 2026-11-20T17:04 (UTC)
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<u64>,
    /// Print only events whose code contains this, such as `disk.` or `pool.suspended`
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Print only events about objects whose names contain this
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
    /// Print only events of at least this severity
    #[arg(long)]
    severity: Option<Least>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Least {
    Info,
    Warning,
    Error,
}

impl List {
    /// As the API filters.
    fn filter(&self) -> Option<String> {
        let conditions = [
            self.since.map(|since| format!("at_unix_ms>={since}")),
            self.code.as_ref().map(|code| format!("code~\"{}\"", code.replace('"', ""))),
            self.object.as_ref().map(|object| format!("object~\"{}\"", object.replace('"', ""))),
            match self.severity {
                None | Some(Least::Info) => None,
                Some(Least::Warning) => Some("severity!=info".into()),
                Some(Least::Error) => Some("severity=error".into()),
            },
        ];
        let conditions: Vec<String> = conditions.into_iter().flatten().collect();
        (!conditions.is_empty()).then(|| conditions.join(","))
    }
}

impl Session {
    pub fn event(&self, command: Event) -> Outcome {
        let Event::List(list) = command;
        let filter = list.filter();
        let call = || {
            let call = Call::new(Operation::EventList);
            filter.as_ref().map_or(call.clone(), |filter| call.query("filter", filter))
        };
        let mut page: Page<ApiEvent> = self.client.get(call().query("limit", list.limit))?;
        if !list.follow {
            return self.list(&page.items, |events| {
                match events.is_empty() {
                    true => println!("No events."),
                    false => events.iter().for_each(show::event),
                }
                Ok(())
            });
        }
        let mut newest = 0;
        loop {
            for event in &page.items {
                match self.json {
                    true => show::json_line(event),
                    false => show::event(event),
                }
                newest = newest.max(event.sequence);
            }
            page = self.client.get(call().query("after", newest).query("wait_seconds", 30))?;
        }
    }
}
