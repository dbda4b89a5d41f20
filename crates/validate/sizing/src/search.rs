//! Tries what a catalogue has, the cheapest first.

use crate::bound::impossible;
use crate::{Catalogue, Wanted};
use forebay_reference::{ClientReport, Configuration, Mistake, Progress, Report};
use serde::Serialize;
use std::fmt::{self, Write};

/// Pools that a catalogue gives, at most.
const CANDIDATES_MAX: usize = 10_000;
/// Dearer ones that are told.
const DEARER: usize = 3;

/// A pool that could be bought.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Candidate {
    pub disk: String,
    pub layout: String,
    pub groups: u32,
    pub log: Option<String>,
    /// Data disks.
    pub disks: u64,
    pub price: u64,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Candidate { disk, layout, groups, log, disks, price } = self;
        write!(f, "{disks} x {disk} as {groups} x {layout}")?;
        if let Some(log) = log {
            write!(f, " with 2 x {log} for the log")?;
        }
        write!(f, ", {price}")
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every promise was kept.
    Kept,
    /// What was not.
    Failed(Vec<String>),
    /// Not tried: it cannot be enough.
    Impossible(String),
    /// Not tried: dearer than what is enough.
    NotNeeded,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tried {
    pub candidate: Candidate,
    pub verdict: Verdict,
    /// What clients got, if it was run: name, requests a second and 99th percentile in ms.
    pub got: Vec<(String, f64, f64)>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Answer {
    pub chosen: Option<Tried>,
    /// In the order of their price.
    pub cheaper: Vec<Tried>,
    pub dearer: Vec<Tried>,
    /// How many layouts the catalogue gives, and how many were run.
    pub candidates: usize,
    pub runs: usize,
    pub seed: u64,
    /// The chosen one as a configuration that `forebay validate run` takes.
    pub configuration: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub seed: u64,
    /// Layouts that are run, at most.
    pub runs_max: usize,
}

fn candidates(catalogue: &Catalogue, width: impl Fn(&str) -> Option<u64>) -> Result<Vec<Candidate>, Mistake> {
    let mut all = Vec::new();
    let logs = || [None].into_iter().chain(catalogue.logs.iter().map(Some));
    for disk in &catalogue.disks {
        for layout in &catalogue.layouts {
            let width = width(layout).ok_or_else(|| Mistake(format!("'{layout}' is not a layout")))?;
            for groups in 1..=catalogue.groups_max {
                let disks = width * u64::from(groups);
                all.extend(logs().map(|log| Candidate {
                    disk: disk.model.clone(),
                    layout: layout.clone(),
                    groups,
                    log: log.map(|log| log.model.clone()),
                    disks,
                    price: disks * disk.price + log.map_or(0, |log| 2 * log.price),
                }));
            }
        }
    }
    if all.len() > CANDIDATES_MAX {
        return Err(Mistake(format!(
            "the offers allow {} pools, and at most {CANDIDATES_MAX} are searched; give fewer",
            all.len()
        )));
    }
    // Of two with one price the one with fewer disks, and then in the order of the catalogue.
    all.sort_by_key(|candidate| (candidate.price, candidate.disks));
    Ok(all)
}

/// Disks of a group of this layout.
fn width(layout: &str) -> Option<u64> {
    match layout {
        "single" => Some(1),
        "mirror" => Some(2),
        "mirror3" => Some(3),
        other => {
            let (data, parity) = other.split_once('+')?;
            let (data, parity): (u64, u64) = (data.parse().ok()?, parity.parse().ok()?);
            data.checked_add(parity).filter(|width| (3..=64).contains(width))
        }
    }
}

/// What this client was promised and did not get.
fn broken(configuration: &Configuration, client: &ClientReport) -> Vec<String> {
    let (name, mut broken) = (&client.workload, Vec::new());
    if client.failed > 0 {
        broken.push(format!("{name}: {} requests failed", client.failed));
    }
    if client.met == Some(false) {
        let needs = client.needs_iops.unwrap_or(0);
        broken.push(format!("{name} gets {:.0} of {needs} IOPS", client.iops));
    }
    let level = configuration.client(name).and_then(|client| client.level.as_ref());
    if let Some(most) = level.and_then(|level| level.latency_ms).filter(|most| client.p99_ms > *most as f64) {
        broken.push(format!("{name}: the p99 is {:.1} ms, and its level allows {most} ms", client.p99_ms));
    }
    if client.best_effort {
        broken.push(format!("{name}: the pool cannot guarantee its level"));
    }
    broken
}

fn run(configuration: Configuration, candidate: &Candidate, seed: u64) -> Result<Tried, String> {
    let report = Report::make(configuration, seed)?;
    let clients = report.cases.iter().flat_map(|case| &case.clients);
    let failures: Vec<String> =
        clients.clone().flat_map(|client| broken(&report.configuration, client)).collect();
    let got = clients.map(|client| (client.workload.clone(), client.iops, client.p99_ms)).collect();
    let verdict = if failures.is_empty() { Verdict::Kept } else { Verdict::Failed(failures) };
    Ok(Tried { candidate: candidate.clone(), verdict, got })
}

/// The cheapest that keeps every promise.
pub fn search(
    wanted: &Wanted,
    catalogue: &Catalogue,
    options: Options,
    progress: Progress<'_>,
) -> Result<Answer, String> {
    let all = candidates(catalogue, width).map_err(|mistake| mistake.0)?;
    let (mut cheaper, mut runs, mut chosen) = (Vec::new(), 0, None);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut left = all.iter();
    // As many at a time as there are processors. Of what was run too far nothing is told: the answer does not depend on how many that are.
    while chosen.is_none() && runs < options.runs_max {
        let mut batch: Vec<(&Candidate, Result<Configuration, Tried>)> = Vec::new();
        let mut to_run = 0;
        for candidate in left.by_ref() {
            let tried = |verdict| Tried { candidate: candidate.clone(), verdict, got: Vec::new() };
            let configuration =
                wanted.configuration(catalogue, candidate).map_err(|mistake| mistake.to_string())?;
            match impossible(&configuration) {
                Some(why) => batch.push((candidate, Err(tried(Verdict::Impossible(why))))),
                None => {
                    batch.push((candidate, Ok(configuration)));
                    to_run += 1;
                }
            }
            if to_run >= threads.min(options.runs_max - runs) {
                break;
            }
        }
        if batch.is_empty() {
            break;
        }
        let done: Vec<(bool, Result<Tried, String>)> = std::thread::scope(|scope| {
            let work = batch.into_iter().map(|(candidate, configuration)| match configuration {
                Ok(configuration) => {
                    (true, Ok(scope.spawn(move || run(configuration, candidate, options.seed))))
                }
                Err(tried) => (false, Err(tried)),
            });
            let work: Vec<_> = work.collect();
            let stopped = || "the engine stopped because of a bug; its message is above".to_string();
            let ended = work.into_iter().map(|(ran, work)| match work {
                Ok(thread) => (ran, thread.join().unwrap_or_else(|_| Err(stopped()))),
                Err(tried) => (ran, Ok(tried)),
            });
            ended.collect()
        });
        for (ran, tried) in done {
            let tried = tried?;
            runs += usize::from(ran);
            progress(runs, options.runs_max);
            match tried.verdict {
                Verdict::Kept => {
                    chosen = Some(tried);
                    break;
                }
                _ => cheaper.push(tried),
            }
        }
    }
    let rest = all.iter().skip(cheaper.len() + usize::from(chosen.is_some())).take(DEARER);
    let not_needed = |candidate: &Candidate| Tried {
        candidate: candidate.clone(),
        verdict: Verdict::NotNeeded,
        got: Vec::new(),
    };
    let dearer = if chosen.is_some() { rest.map(not_needed).collect() } else { Vec::new() };
    let configuration =
        chosen.as_ref().and_then(|chosen| wanted.configuration(catalogue, &chosen.candidate).ok());
    Ok(Answer {
        chosen,
        cheaper,
        dearer,
        candidates: all.len(),
        runs,
        seed: options.seed,
        configuration: configuration.map(|configuration| configuration.toml()),
    })
}

impl Answer {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match &self.chosen {
            Some(chosen) => {
                let _ = writeln!(
                    text,
                    "{}\n  meets every need and level, and no cheaper pool does:",
                    chosen.candidate
                );
                for (workload, iops, p99) in &chosen.got {
                    let _ = writeln!(text, "  {workload:<28}{iops:>9.0} IOPS{p99:>9.2} ms p99");
                }
            }
            None => text.push_str("No pool that was tried meets every need and level.\n"),
        }
        text.push_str("\nCheaper, but not sufficient:\n");
        for tried in &self.cheaper {
            let why = match &tried.verdict {
                Verdict::Failed(failures) => failures.join("; "),
                Verdict::Impossible(why) => format!("not tried: {why}"),
                Verdict::Kept | Verdict::NotNeeded => continue,
            };
            let _ = writeln!(text, "  {}\n      {why}", tried.candidate);
        }
        if let Some(chosen) = &self.chosen {
            text.push_str("\nMore expensive, and not needed:\n");
            for Tried { candidate, .. } in &self.dearer {
                let _ = writeln!(text, "  {candidate} ({} more)", candidate.price - chosen.candidate.price);
            }
        }
        let _ = writeln!(
            text,
            "\n- {} of {} possible pools were run, in the order of their price, with seed {}. A pool is sufficient if it gives 99 % of the needed IOPS, keeps the p99 within the \
             latency of the level, and guarantees the level.",
            self.runs, self.candidates, self.seed
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_layouts() {
        assert_eq!(["single", "mirror", "mirror3", "4+1", "8+3"].map(width), [1, 2, 3, 5, 11].map(Some));
        assert_eq!(["", "+", "4+", "1e9+1", "18446744073709551615+1"].map(width), [None; 5]);
    }

    #[test]
    fn the_cheapest_comes_first_and_of_two_the_one_with_fewer_disks() {
        let text = "layouts = ['mirror', '2+1']\ngroups-max = 2\n[[disk]]\nmodel = 'a'\nprice = 30\n[[disk]]\nmodel = 'b'\nprice = 20\n\
                    [[log]]\nmodel = 'l'\nprice = 25\n";
        let all = candidates(&Catalogue::parse(text).expect("it is one"), width).expect("there are few");
        let prices: Vec<u64> = all.iter().map(|candidate| candidate.price).collect();
        assert_eq!(prices, [40, 60, 60, 80, 90, 90, 110, 110, 120, 120, 130, 140, 170, 170, 180, 230]);
        assert_eq!((all[1].disks, all[2].disks), (2, 3));
    }
}
