//! Reports for terminals.

use crate::configuration::Configuration;
use crate::live::{BOUNDS, ErrorReport, LiveClientReport, LiveReport};
use crate::report::{CaseReport, FigureReport, Report, percents};
use std::fmt::Write;

impl FigureReport {
    /// Whose figure it is, and of what.
    pub fn title(&self) -> String {
        let other = self.over_workload.as_ref().map_or(String::new(), |workload| format!("{workload} in "));
        let over = self.over.as_ref().map_or(String::new(), |case| format!(", relative to {other}'{case}'"));
        format!("{}, {}{over}", self.workload, self.measure)
    }
}

impl CaseReport {
    /// What went over the ports and how much processors worked.
    pub(crate) fn machine(&self) -> String {
        let [to, from] = self.network.map(|bytes| bytes / 1e6);
        let worked =
            self.processors.map_or(String::new(), |part| format!(", processors {:.0} % busy", part * 100.0));
        format!("network {to:.0} MB/s to the pools and {from:.0} MB/s from them{worked}")
    }
}

impl Report {
    /// For terminals.
    pub fn text(&self) -> String {
        let Configuration { name, title, source, traps, .. } = &self.configuration;
        let mut text = format!("{name}: {title}\n");
        if !source.is_empty() {
            let _ = writeln!(text, "based on: {source}");
        }
        if let Some((verdict, reasons)) = self.likeness() {
            let _ = writeln!(text, "{verdict}:");
            reasons.iter().for_each(|reason| text.extend(["  ", reason, "\n"]));
        }
        traps.iter().for_each(|trap| text.extend(["TRAP ", trap, "\n"]));
        self.cases.iter().for_each(|case| add_case(&mut text, case, self.seeds));
        text.push('\n');
        self.conditions().iter().for_each(|line| text.extend(["- ", line, "\n"]));
        text
    }
}

fn add_case(text: &mut String, case: &CaseReport, seeds: u64) {
    let _ = writeln!(text, "\n{} ({})", case.name, case.verdict());
    if !case.published.is_empty() {
        let _ = writeln!(text, "  published: {}", case.published);
    }
    if let Some(why) = case.reason() {
        let _ = writeln!(text, "  why it differs: {why}");
    }
    for failure in &case.failures {
        let _ = writeln!(text, "  {}", failure.told());
    }
    let between = |[least, most]: &[f64; 2], digits: usize| match seeds {
        1 => String::new(),
        _ => format!(" ({least:.digits$}–{most:.digits$})"),
    };
    for figure in &case.figures {
        let FigureReport { published, ours, between: range, live, .. } = figure;
        let _ = write!(text, "  {}: published {published}", figure.title());
        if let (Some(ours), Some(range)) = (ours, range) {
            let (range, ratio) = (between(range, 2), ours / published);
            let _ = write!(text, ", model {ours:.2}{range}, model / published {ratio:.2}");
        }
        if let Some(live) = live {
            let _ = write!(text, ", live {live:.2}, live / published {:.2}", live / published);
        }
        text.push('\n');
    }
    if case.is_modelled() {
        let _ = writeln!(text, "  {}", case.machine());
    }
    for (pool, busy) in case.busy.iter().enumerate() {
        let _ = writeln!(
            text,
            "  pool {pool}, disks busy {:<9}{:>7}{:>9}{:>9}{:>9}{:>9}{:>9}{:>13}",
            percents(busy),
            "needed",
            "IOPS",
            "lowest",
            "MB/s",
            "mean ms",
            "p99 ms",
            "outstanding"
        );
        for client in case.clients.iter().filter(|client| client.pool == pool) {
            let needs = client.needs_iops.map_or(String::new(), |needs| needs.to_string());
            let told = |value: Option<f64>, what: &str| value.map(|value| format!("{value:.1} {what}"));
            let others = [
                told(client.orders_per_minute, "orders/min"),
                told(client.hits_per_second, "IOPS from the client's cache"),
                told(client.compression_ratio, ": 1 compressed"),
                Some(client.verdict()).filter(|verdict| !verdict.is_empty()),
            ];
            let others = others.into_iter().flatten().collect::<Vec<_>>().join(", ");
            let _ = writeln!(
                text,
                "    {:<27}{needs:>7}{:>9.0}{:>9}{:>9.1}{:>9.2}{:>9.2}{:>13.2}  {others}{}",
                client.workload,
                client.iops,
                client.least_iops,
                client.bytes_per_second / 1e6,
                client.mean_ms,
                client.p99_ms,
                client.outstanding,
                between(&client.iops_between, 0)
            );
            for phase in &client.phases {
                let _ = writeln!(
                    text,
                    "      {} to {} s, {} IOPS requested: {:.0} IOPS, {} at most, mean {:.2} ms, longest {:.1} ms",
                    phase.from,
                    phase.to,
                    phase.rate,
                    phase.iops,
                    phase.most_iops,
                    phase.mean_ms,
                    phase.longest_ms
                );
            }
        }
    }
    for load in &case.curve {
        let _ = writeln!(
            text,
            "  {:>4} outstanding: {:>8.0} IOPS, mean {:.3} ms, p99 {:.3} ms",
            load.outstanding, load.iops, load.mean_ms, load.p99_ms
        );
    }
    case.live.iter().for_each(|live| add_live(text, live));
}

/// What of an error is beyond its bound.
fn marked(error: f64, is_within: bool, bound: f64) -> String {
    let beyond = if is_within { String::new() } else { format!(" EXCEEDS {:.0} %", bound * 100.0) };
    format!("{:+.0} %{beyond}", error * 100.0)
}

fn add_live(text: &mut String, live: &LiveReport) {
    let title = format!("live on pool {} over {}", live.pool, live.over);
    let _ = writeln!(
        text,
        "  {title:<36}{:>10}{:>9}{:>9}{:>9}{:>9}",
        "IOPS", "MB/s", "mean ms", "p50 ms", "p99 ms"
    );
    for client in &live.clients {
        let LiveClientReport { workload, iops, bytes_per_second, mean_ms, p50_ms, p99_ms, failed, model } =
            client;
        let mega = bytes_per_second / 1e6;
        let failed = if *failed > 0 { format!("  {failed} FAILED") } else { String::new() };
        let _ = writeln!(
            text,
            "    {workload:<34}{iops:>10.0}{mega:>9.1}{mean_ms:>9.2}{p50_ms:>9.2}{p99_ms:>9.2}{failed}"
        );
        if let Some(ErrorReport { iops_error, p99_error, within, .. }) = model {
            let rate = marked(*iops_error, within[0], BOUNDS[0]);
            let p99 = marked(*p99_error, within[1], BOUNDS[1]);
            let _ = writeln!(text, "      error of the model: {rate} of the IOPS and {p99} of the p99");
        }
    }
}
