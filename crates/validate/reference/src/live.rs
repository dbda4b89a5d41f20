//! What a running pool gave beside what was published and what the model says.

use crate::configuration::{Case, Configuration, Figure};
use crate::report::{CaseReport, FigureReport, Report, milliseconds, of_tallies};
use forebay_workload::Tally;
use serde::Serialize;

/// How far the model of a rate and of a 99th percentile may be off.
pub const BOUNDS: [f64; 2] = [0.15, 0.25];

/// A case on a running pool: what its clients got, in the order of their volumes.
pub struct LiveCase {
    pub pool: String,
    /// The protocol.
    pub over: &'static str,
    /// By workload.
    pub clients: Vec<(String, Tally)>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LiveReport {
    pub pool: String,
    pub over: &'static str,
    pub clients: Vec<LiveClientReport>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LiveClientReport {
    pub workload: String,
    pub iops: f64,
    pub bytes_per_second: f64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub failed: u64,
    pub model: Option<ErrorReport>,
}

/// The model of a client, and how far it is off: its figure to the live one, less 1.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ErrorReport {
    pub iops: f64,
    pub p99_ms: f64,
    pub iops_error: f64,
    pub p99_error: f64,
    /// Each of the two is within its bound.
    pub within: [bool; 2],
}

impl ErrorReport {
    fn new(live: &LiveClientReport, iops: f64, p99_ms: f64) -> ErrorReport {
        let (iops_error, p99_error) = (iops / live.iops - 1.0, p99_ms / live.p99_ms - 1.0);
        // What is no number, since nothing was live, is in no bounds.
        let within = [iops_error.abs() <= BOUNDS[0], p99_error.abs() <= BOUNDS[1]];
        ErrorReport { iops, p99_ms, iops_error, p99_error, within }
    }
}

impl LiveClientReport {
    fn new((workload, tally): &(String, Tally)) -> LiveClientReport {
        LiveClientReport {
            workload: workload.clone(),
            iops: tally.iops(),
            bytes_per_second: tally.bytes_per_second(),
            mean_ms: milliseconds(tally.all.mean()),
            p50_ms: milliseconds(tally.all.quantile(500)),
            p99_ms: milliseconds(tally.all.quantile(990)),
            failed: tally.failures(),
            model: None,
        }
    }
}

impl LiveReport {
    /// Whether no request failed and the model, if there is one, is near enough.
    pub fn is_good(&self) -> bool {
        let is_near = |model: &ErrorReport| model.within == [true, true];
        self.clients.iter().all(|client| client.failed == 0 && client.model.as_ref().is_none_or(is_near))
    }
}

/// A published figure of a running pool; nothing where clients cannot tell.
fn live_figure(figure: &Figure, cases: &[Case], live: &[LiveCase], own: &LiveCase) -> Option<f64> {
    let of = |case: &LiveCase, workload: &str| {
        let tallies: Vec<&Tally> =
            case.clients.iter().filter(|(name, _)| name == workload).map(|(_, tally)| tally).collect();
        of_tallies(&tallies, figure.measure)
    };
    let value = of(own, &figure.workload)?;
    let Some(over) = &figure.over else { return Some(value) };
    let other = &live[cases.iter().position(|case| case.name == *over)?];
    Some(value / of(other, figure.over_workload.as_ref().unwrap_or(&figure.workload))?)
}

impl Report {
    /// Of what is only asked of a running pool: nothing yet.
    pub fn unmodelled(configuration: Configuration, seed: u64) -> Report {
        let figure = |figure: &Figure| FigureReport::unmodelled(figure);
        let case = |case: &Case| CaseReport {
            name: case.name.clone(),
            published: case.published.clone(),
            figures: case.figures.iter().map(figure).collect(),
            agrees: None,
            differs: case.differs.clone(),
            failures: Vec::new(),
            clients: Vec::new(),
            busy: Vec::new(),
            processors: None,
            network: [0.0; 2],
            disk_requests: 0,
            curve: Vec::new(),
            live: None,
        };
        let cases = configuration.cases.iter().map(case).collect();
        Report { seed, seeds: 1, devices: Vec::new(), cases, configuration }
    }

    /// Puts beside each case what a running pool gave in it.
    pub fn add_live(&mut self, live: &[LiveCase]) {
        assert_eq!(self.cases.len(), live.len(), "each case was live");
        let cases = &self.configuration.cases;
        for ((report, case), live_case) in self.cases.iter_mut().zip(cases).zip(live) {
            for (shown, figure) in report.figures.iter_mut().zip(&case.figures) {
                shown.live = live_figure(figure, cases, live, live_case);
            }
            let mut clients: Vec<_> = live_case.clients.iter().map(LiveClientReport::new).collect();
            for (client, modelled) in clients.iter_mut().zip(&report.clients) {
                client.model = Some(ErrorReport::new(client, modelled.iops, modelled.p99_ms));
            }
            report.live = Some(LiveReport { pool: live_case.pool.clone(), over: live_case.over, clients });
        }
    }

    /// Whether there was a model.
    pub fn is_modelled(&self) -> bool {
        self.cases.iter().any(CaseReport::is_modelled)
    }

    /// How it was asked live, if it was.
    pub(crate) fn live_conditions(&self) -> Option<String> {
        let live = self.cases.iter().find_map(|case| case.live.as_ref())?;
        let machine = &self.configuration.machine;
        let bounds = BOUNDS.map(|bound| bound * 100.0);
        Some(format!(
            "Live: the load ran on pool {} over {}; the layout of the configuration does not count. {} s were measured after {} s of the same load, with seed {}. Volumes were {} \
             times smaller than configured, not compressed, without service levels, and filled before. An error is the model's figure divided by the live \
             one, minus 1. Errors beyond {:.0} % of the IOPS or {:.0} % of the p99 are marked.",
            live.pool,
            live.over,
            machine.seconds,
            machine.warm_seconds,
            self.seed,
            machine.scale,
            bounds[0],
            bounds[1]
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{html, references};
    use forebay_base::Nanos;
    use forebay_workload::Request;

    /// So many requests in a second, one of a hundred of them taking ten times as long as the others.
    fn tally(iops: u64, took: u64) -> Tally {
        let mut tally = Tally::new(Nanos(0), Nanos(1_000_000_000));
        let request = Request { at: 0, bytes: 8192, is_write: false };
        for nth in 0..iops {
            let over = nth * 1_000_000_000 / iops;
            let took = if nth % 100 < 2 { took * 10 } else { took };
            tally.answered(Nanos(over.saturating_sub(took)), Nanos(over.max(took)), &request);
        }
        tally
    }

    #[test]
    fn live_figures_stand_beside_the_published_and_the_models_and_errors_are_marked() {
        let mut configuration = references().into_iter().find(|one| one.name == "D").expect("it is there");
        let live: Vec<LiveCase> = configuration
            .cases
            .iter()
            .map(|case| {
                let names = case.pools.iter().flat_map(|pool| &pool.workloads);
                let clients = names.map(|name| (name.clone(), tally(1000, 1_000_000))).collect();
                LiveCase { pool: "tank".into(), over: "iSCSI", clients }
            })
            .collect();
        configuration.machine.seconds = 1;
        let mut report = Report::unmodelled(configuration, 1);
        report.add_live(&live);
        let text = report.text();
        assert!(!report.is_modelled() && text.contains("tank") && text.contains("over iSCSI"), "{text}");
        assert!(!text.contains("model / published"), "nothing was modelled: {text}");
        // A ratio of the same to the same.
        let ratio = report.cases.iter().flat_map(|case| &case.figures).find(|figure| figure.over.is_some());
        assert_eq!(ratio.and_then(|figure| figure.live), Some(1.0));
        assert!(report.cases.iter().all(|case| case.live.as_ref().is_some_and(LiveReport::is_good)));

        let client = report.cases[0].live.as_mut().expect("it was live").clients.first_mut().expect("one");
        for (iops, p99, within) in [
            (1.14, 1.24, [true, true]),
            (0.86, 0.76, [true, true]),
            (1.16, 1.0, [false, true]),
            (1.0, 0.74, [true, false]),
        ] {
            let error = ErrorReport::new(client, client.iops * iops, client.p99_ms * p99);
            assert_eq!(error.within, within, "{iops} {p99}");
        }
        client.model = Some(ErrorReport::new(client, client.iops * 1.5, client.p99_ms));
        assert!(!report.cases[0].live.as_ref().is_some_and(LiveReport::is_good));
        let (text, page) = (report.text(), html(&[report]));
        assert!(text.contains("+50 % EXCEEDS 15 %"), "{text}");
        assert!(page.contains("<td class=\"missed\">+50 %</td><td>+0 %</td>"), "{page}");
        let nothing = LiveClientReport::new(&("none".into(), Tally::new(Nanos(0), Nanos(1_000_000_000))));
        assert_eq!(ErrorReport::new(&nothing, 0.0, 0.0).within, [false, false]);
    }
}
